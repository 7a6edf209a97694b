"""Recording: makes the traces of launches (clock/trace.py)."""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nogpu import headers
from nogpu.clock.operands import PATTERN, Words, replacements
from nogpu.clock.recipes import Recipes
from nogpu.clock.trace import COUNT_SHIFT, MANY, PART_BIT, Trace
from nogpu.compiler import translate
from nogpu.execution import device
from nogpu.execution.launch import PartRecorder
from nogpu.hardware.native import library
from nogpu.hardware.program import Program
from nogpu.ptx.ir import Entry

if TYPE_CHECKING:
    from nogpu.compiler.plan import Plan
    from nogpu.compiler.rowcode.registers import Slots
    from nogpu.execution.launch import Launch
    from nogpu.hardware.async_operations import AsyncOperation
    from nogpu.hardware.cluster import Cluster, Cta
    from nogpu.hardware.warp import ActiveGroup

_FULL = 0xFFFFFFFF


@headers.mirrors("native/trace.c", "Trace")
class _Records(ctypes.Structure):
    """Records of a warp."""

    def taken(self) -> np.ndarray:
        """A copy of the records: uint32."""
        return np.frombuffer(ctypes.string_at(self.words or 0, 4 * self.count) if self.count else b"", np.uint32)

    def free(self) -> None:
        library().free_trace(ctypes.addressof(self))


_Recorder = headers.structure("native/trace.c", "Recorder")
"""The part of a program's recording that compiled code knows."""


class ProgramRecorder:
    """Makes the records of a program's instructions, in compiled code or, for operations in Python, in Python."""

    def __init__(self) -> None:
        self.names = replacements(self._note)
        self._recorder = _Recorder()
        self._address = ctypes.addressof(self._recorder)
        self._noted: dict[ActiveGroup, list[Words]] = {}
        self._recipes: list[np.ndarray] = []  # of the program, and of its program by lane
        self._later: list[bool] = []
        self._by_python: list[bool] = []

    def attach(self, planned: Plan, slots: Slots) -> tuple[int, int]:
        """Implements `translate.Recorder.attach`."""
        self._recipes.append(Recipes(planned, slots).table())
        self._follow(self._recipes[-1])
        self._by_python = [PATTERN.match(i.opcode) is not None for i in planned.entry.instructions]
        return ctypes.cast(library().record_instruction, ctypes.c_void_p).value or 0, self._address

    def use(self, parameters: np.ndarray, launch: LaunchRecorder) -> None:
        """Set the parameters and the recorder of the launch that is recorded next."""
        self._launch = launch
        self._follow(self._recipes[0])
        self._recorder.parameters = parameters.ctypes.data
        self._recorder.parameters_end = parameters.ctypes.data + len(parameters)

    def _follow(self, recipes: np.ndarray) -> None:
        self._recorder.recipes = recipes.ctypes.data
        self._later = recipes["later"].astype(bool).tolist()

    def _note(self, group: ActiveGroup, records: list[Words]) -> None:
        self._noted[group] = records

    def executed(self, index: int, group: ActiveGroup, mask: int) -> None:
        """Implements `translate.Recorder.executed`."""
        if not self._later[index]:
            return
        context = group.warp.registers
        if not self._by_python[index]:
            library().record_executed(self._address, context.context_address, index, mask)
            return
        part = (mask != _FULL) << PART_BIT
        words = array("I")
        for operands in self._noted.pop(group):
            words.append(index | part | min(len(operands), MANY) << COUNT_SHIFT)
            if len(operands) >= MANY:
                words.append(len(operands))
            words.extend(operands)
        library().append_words(context.context.trace, words.buffer_info()[0], len(words))
        self._launch.appended(group, index)


@dataclass
class Part:
    """The records of some CTAs of a launch."""

    ctas: list[int] = field(default_factory=list)
    """Indices of the CTAs, x fastest."""
    warps: list[list[np.ndarray]] = field(default_factory=list)
    """Records of each CTA's warps: uint32."""


class LaunchRecorder(PartRecorder):
    """The records of a launch, or of a part of it, while it runs."""

    def __init__(self, values: bool) -> None:
        self.values = values
        self.part = Part()
        self._records: dict[Cta, list[_Records]] = {}
        self._requests: dict[tuple, list[tuple[_Records, int]]] = {}
        """Origin of a clusterlaunchcontrol.try_cancel -> records and place of its last word, oldest first."""

    def join(self, cluster: Cluster) -> None:
        for cta in cluster.ctas:
            self._records[cta] = records = [_Records() for _ in cta.warps]
            for warp, found in zip(cta.warps, records):
                warp.registers.context.trace = ctypes.addressof(found)

    def leave(self, cluster: Cluster) -> None:
        grid = cluster.grid.config.grid
        for cta in cluster.ctas:
            x, y, z = cta.index
            records = self._records.pop(cta)
            self.part.ctas.append(x + grid[0] * (y + grid[1] * z))
            self.part.warps.append([found.taken() for found in records])
            for warp, found in zip(cta.warps, records):
                warp.registers.context.trace = None
                found.free()

    def appended(self, group: ActiveGroup, index: int) -> None:
        """Note the place of the last word that Python has appended for a try_cancel; other instructions have none."""
        if index in group.grid.program.requests:
            records = self._records[group.cta][group.warp.index]
            request = group.origin((group, index))
            self._requests.setdefault(request, []).append((records, records.count - 1))

    def cancelled(self, request: AsyncOperation, number: int | None) -> None:
        records, place = self._requests[request.origin].pop(0)
        if number is not None:
            ctypes.c_uint32.from_address(records.words + 4 * place).value = number

    def close(self) -> None:
        """Free the records of CTAs that have not exited."""
        for records in self._records.values():
            for found in records:
                found.free()
        self._records.clear()


class Recording:
    """Records launches, each on its own, and passes their traces on (`execution.launch.Recording`)."""

    def __init__(self, take: Callable[[Trace], None] | str | os.PathLike[str], values: bool = True) -> None:
        """take: a function that is called with each launch's trace, or a folder for files. values: False leaves out the
        tensor core's products, which do not affect times; results are then worthless.
        """
        self._take = take if callable(take) else _Folder(Path(take)).save
        self._values = values
        self._recorders: dict[int, ProgramRecorder] = {}

    def translate(self, entry: Entry) -> Program:
        """Translates an entry as `compiler.translate.translate` does, with a recorder of its instructions."""
        recorder = ProgramRecorder()
        program = translate.translate(entry, recorder=recorder)
        self._recorders[id(program)] = recorder
        return program

    def begin(self, launch: Launch) -> LaunchRecorder:
        """Start to record a launch, or a part of one, that runs in this process."""
        recorder = LaunchRecorder(self._values)
        self._recorders[id(launch.program)].use(launch.parameters, recorder)
        return recorder

    def end(self, launch: Launch, parts: list[Any]) -> None:
        """Pass on the trace of a launch that has run. parts: `Part`s."""
        self._take(_trace(launch, parts))


def _trace(launch: Launch, parts: list[Part]) -> Trace:
    config, program = launch.config, launch.program
    warps = -(-config.block[0] * config.block[1] * config.block[2] // 32)
    found = {cta: records for part in parts for cta, records in zip(part.ctas, part.warps)}
    lengths = np.zeros((config.ctas, warps), np.int64)
    words = []
    for cta in range(config.ctas):
        for warp, records in enumerate(found.get(cta, ())):
            lengths[cta, warp] = len(records)
            words.append(records)
    ends = np.cumsum(lengths.ravel()).reshape(lengths.shape)
    starts = np.hstack([ends[:, :1] - lengths[:, :1], ends])
    return Trace(
        name=launch.kernel,
        grid=config.grid,
        block=config.block,
        cluster=config.cluster,
        shared_bytes=program.dynamic_shared_offset + config.dynamic_shared_bytes,
        registers=program.entry.registers_per_thread or 0,
        min_ctas=program.entry.min_ctas or 0,
        programmatic=config.programmatic,
        cooperative=config.cooperative,
        instructions=program.entry.instructions,
        words=np.concatenate(words) if words else np.empty(0, np.uint32),
        starts=starts,
        params=launch.parameters.tobytes(),
    )


class _Folder:
    """A folder of trace files, one for each launch, with its number and the kernel's name."""

    def __init__(self, path: Path) -> None:
        self._path, self._count = path, 0
        path.mkdir(parents=True, exist_ok=True)

    def save(self, trace: Trace) -> None:
        name = "".join(letter if letter.isalnum() or letter in "_-" else "_" for letter in trace.name)[:80]
        while True:  # needed because processes of one program share the folder
            number = f"{self._count:04}"
            self._count += 1
            if any(self._path.glob(f"{number}-*.npz")):
                continue
            with suppress(FileExistsError), open(self._path / f"{number}-{name}.npz", "xb") as file:
                trace.save(file)
                return


def install() -> None:
    """Record launches of this process in the folder NOGPU_RECORD; NOGPU_RECORD_VALUES=0 leaves out values."""
    device.recording = Recording(os.environ["NOGPU_RECORD"], os.environ.get("NOGPU_RECORD_VALUES") != "0")


@contextmanager
def recording(sink: Callable[[Trace], None], values: bool = True) -> Iterator[None]:
    """Within the context, `sink` gets the trace of each launch of this process. values: that of `Recording`."""
    current = device.Device.current()
    before, current.recording = current.recording, Recording(sink, values)
    try:
        yield
    finally:
        current.recording = before
