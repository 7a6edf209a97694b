"""Kernels from PTX text: load a module, launch its entries with raw arguments, from plain Python or beside torch."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from nogpu.clock.record import Recording
from nogpu.clock.trace import Trace
from nogpu.compiler import stored
from nogpu.compiler.translate import translate
from nogpu.errors import EmulatorError, Fault
from nogpu.execution.device import Device
from nogpu.hardware.properties import DeviceProperties, LaunchConfig
from nogpu.hardware.variables import module_memory
from nogpu.host import arguments, queues
from nogpu.ptx.ir import Entry

NAMES_SHOWN = 5  # of a module's kernels or variables, where one is not among them


class Module:
    """A loaded PTX module: `module["name"]` is a kernel; iteration gives the kernels' names."""

    def __init__(self, text: str, schedule: str | None = None, lenient: bool | None = None):
        """schedule, lenient: of launches that do not name their own."""
        self._module = stored.module(text)
        _check_target(self._module.target, self._module.target_line)
        self._kernels = {name: Kernel(entry, schedule, lenient) for name, entry in self._module.entries.items()}

    def __getitem__(self, name: str) -> Kernel:
        if name not in self._kernels:
            raise KeyError(f"the module has no kernel {name!r}; it has {_listed(self._kernels)}")
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def variable(self, name: str) -> np.ndarray:
        """uint8[bytes] of a .global or .const variable: the memory that kernels load and store. Raises KeyError."""
        Device.current().synchronize()
        memory = module_memory(self._module.scope)
        if name not in memory.bytes:
            raise KeyError(f"the module has no variable {name!r}; it has {_listed(memory.bytes)}")
        return memory.bytes[name]


class Kernel:
    """An entry of a module."""

    def __init__(self, entry: Entry, schedule: str | None = None, lenient: bool | None = None):
        self._entry, self._schedule, self._lenient = entry, schedule, lenient
        self.name = entry.name
        self.params = tuple(entry.params)  # in the order of the entry's .param
        self._recorded: tuple[object, Recording] | None = None

    def check(self) -> None:
        """Translates the kernel, as its first launch does. Raises EmulatorError for what is not modelled."""
        translate(self._entry)

    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence = (),
        *,
        shared: int = 0,
        cluster: int | Sequence[int] = 1,
        programmatic: bool = False,
        cooperative: bool = False,
        nonportable_cluster: bool = False,
        wait: bool = True,
        schedule: str | None = None,
        lenient: bool | None = None,
        record: str | os.PathLike[str] | Callable[[Trace], None] | Recording | None = None,
        queue: int = queues.LEGACY,
    ) -> None:
        """Run the kernel on the current device.

        grid, block and cluster are (x, y, z) or fewer sizes: CTAs, threads per CTA, CTAs per cluster. shared: bytes of
        dynamic shared memory. args: a list or tuple, one per parameter of the entry:

        - for an address, an array: one of `nogpu.array`, a torch tensor on device "cuda", or another NumPy array,
          whose memory (of a view, its base's) becomes device memory; a null pointer is 0;
        - for an integer parameter an int, for a floating-point one an int or float; for either a NumPy scalar of the
          parameter's size;
        - for an array of bytes (structures, tensor maps), bytes, an array of as many bytes or a ctypes structure.

        schedule: those of this launch, "late,random:1"; None for the module's, and without one the device's. lenient:
        True turns broken rules of order into warnings, False turns doubts into errors, None leaves it to the module,
        and without a choice there to NOGPU_LENIENT (docs/rules.md).

        record: what takes the launch's trace: a function, a folder, or a Recording; None leaves it to the device. The
        launch then runs on its own and under schedule "late".

        queue: a handle of the CUDA driver's or runtime's, such as of cudaStreamCreate or torch's `Stream.cuda_stream`.

        wait: whether the launch has ended when this returns. Without it, the launch may run later, beside the
        `programmatic` launches that follow. Raises EmulatorError for arguments that do not fit, for a launch that the
        device refuses and for a rule that the kernel breaks.
        """
        if self._entry.error is not None:
            raise self._entry.error
        if os.environ.get("NOGPU") == "hopper":
            raise EmulatorError("PTX that is loaded as text runs on the emulated B200 only", kernel=self.name)
        try:
            config = LaunchConfig(
                grid=arguments.sizes("grid", grid),
                block=arguments.sizes("block", block),
                cluster=arguments.sizes("cluster", cluster),
                dynamic_shared_bytes=arguments.count("shared", shared),
                programmatic=arguments.flag("programmatic", programmatic),
                cooperative=arguments.flag("cooperative", cooperative),
                nonportable_cluster=arguments.flag("nonportable_cluster", nonportable_cluster),
            )
            wait = arguments.flag("wait", wait)
            schedules = arguments.schedules(self._schedule if schedule is None else schedule)
            chosen = arguments.choice("lenient", self._lenient if lenient is None else lenient)
            values = self._packed(arguments.arguments(args))
            handle = arguments.count("queue", queue)
            queues.check(handle)
        except (ValueError, TypeError, OverflowError, Fault) as error:
            raise EmulatorError(f"launch refused: {error}", kernel=self.name) from None
        current = Device.current()
        current.launch(self._entry, config, values, schedules, chosen, self._recording(record), handle)
        if wait:
            current.synchronize()
            queues.waited()

    def _recording(
        self, record: str | os.PathLike[str] | Callable[[Trace], None] | Recording | None
    ) -> Recording | None:
        if record is None or isinstance(record, Recording):
            return record
        if not callable(record) and not isinstance(record, str | os.PathLike):
            raise EmulatorError(
                f"launch refused: record is a {type(record).__name__}; a function, a folder or a Recording is expected",
                kernel=self.name,
            )
        if self._recorded is None or self._recorded[0] != record:
            self._recorded = record, Recording(record)  # kept, since it has a translation of the kernel
        return self._recorded[1]

    def _packed(self, args: Sequence) -> list[bytes]:
        if len(args) != len(self.params):
            names = ", ".join(f"{p.name} ({arguments.declared(p)})" for p in self.params) or "none"
            raise ValueError(f"{len(args)} arguments for {len(self.params)} parameters: {names}")
        values = []
        for param, value in zip(self.params, args):
            try:
                values.append(arguments.packed(param, value))
            except (ValueError, TypeError, OverflowError) as error:
                place = f"argument for parameter {param.name} ({arguments.declared(param)})"
                raise ValueError(f"{place}: {error}") from None
        return values


def _listed(names: Collection[str]) -> str:
    """Names for a message: whole, since they are keys, but not all of many."""
    more = len(names) - NAMES_SHOWN
    return (", ".join(list(names)[:NAMES_SHOWN]) or "none") + (f" and {more} more" if more > 0 else "")


def load_ptx(text: str, schedule: str | None = None, lenient: bool | None = None) -> Module:
    """Parse PTX for sm_100a or a target whose PTX runs there. schedule, lenient: of its kernels' launches, as
    `Kernel.launch` takes them.

    Raises EmulatorError with the line for syntax that is not understood outside of functions, and for anything but
    text. The first launch of a kernel raises it for what is not understood of it or of the functions that it calls, and
    for an instruction that is not modelled; `Kernel.check` does so without a launch.
    """
    if not isinstance(text, str):
        hint = ": decode it" if isinstance(text, bytes | bytearray | memoryview) else ""
        raise EmulatorError(f"load_ptx takes the text of a module, a str; {type(text).__name__} given{hint}")
    if "\n" not in text and text.endswith(".ptx"):
        raise EmulatorError(f"load_ptx takes the text of a module, not the name of its file: {text[:200]!r}")
    try:
        arguments.schedules(schedule)
        arguments.choice("lenient", lenient)
    except (ValueError, TypeError) as error:
        raise EmulatorError(f"load_ptx: {error}") from None
    return Module(text, schedule, lenient)


def _check_target(target: str, line: int) -> None:
    """Raise EmulatorError for a target whose PTX does not run on the device (PTX ISA, ".target").

    PTX for sm_NN runs on later devices too, for sm_NNa on no other, for sm_NNf on the family only.
    """
    major, minor = DeviceProperties.capability
    name = target.partition(",")[0]
    sm = re.fullmatch(r"sm_(\d+)([af]?)", name)
    number, own = (int(sm[1]) if sm else 0), 10 * major + minor
    if sm is None or number > own or (sm[2] and number != own):
        reason = f"PTX for {name}: a device of compute capability {major}.{minor} does not run it"
        raise EmulatorError(reason, ptx_line=line, ptx_text=f".target {target}")
