"""The launches of a program, recorded once and repeated with other PTX, from the same memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np

from nogpu.cuda.modules import Kernel
from nogpu.errors import LENIENT
from nogpu.execution import device as devices
from nogpu.execution.device import Device
from nogpu.execution.replay import UNHELD
from nogpu.hardware.allocations import Allocation
from nogpu.hardware.properties import LaunchConfig
from nogpu.ptx.module import parse
from nogpu.sanitizer.explore import Explorer
from nogpu.sanitizer.observer import Sanitizer


@dataclass(frozen=True)
class Step:
    """A launch as the host code asked for it."""

    kernel: Kernel
    config: LaunchConfig
    values: list[bytes]


@dataclass
class Tape:
    """Launches in their order. The launches of a list in `steps` may overlap; all end before those of the next."""

    ptx: str  # text of the kernel that is mutated; launches of other kernels are repeated unchanged
    steps: list[list[Step]]
    before: dict[Allocation, np.ndarray]  # the device's memory before the first launch
    sms: int | None  # number of SMs that the chip has; None for all
    allowed: tuple[str, ...]  # rules that the sanitizer waives
    strict: bool  # True if doubts are errors (`nogpu.errors.doubt`)
    expected: dict[Allocation, np.ndarray] = field(default_factory=dict)  # behind the last launch of unchanged PTX
    instructions: int = 0  # warp instructions of the unchanged PTX, under the first schedule
    kept: list[object] = field(default_factory=list)  # owners of the memory

    def run(
        self,
        ptx: str,
        schedule: str,
        sanitize: bool = False,
        limit: int | None = None,
        explorer: Explorer | None = None,
    ) -> bool:
        """Repeats the launches with `ptx` as the mutated kernel's text. Returns True if the memory is as expected.

        limit: most warp instructions of a launch and those that overlap it. explorer: searches their interleavings.
        Raises EmulatorError.
        """
        device, memory = Device.current(), Device.current().memory
        memory.put_back(self.before)
        mutated = None if ptx == self.ptx else parse(ptx)
        with _settings(device, schedule, self, sanitize, limit, explorer):
            for overlapping in self.steps:
                for step in overlapping:
                    entry = step.kernel.entry
                    if mutated is not None and step.kernel.module.text == self.ptx:
                        entry = mutated.entries[step.kernel.name]
                    device.launch(entry, step.config, step.values)
                device.synchronize()
        return all(np.array_equal(allocation.data, data) for allocation, data in self.expected.items())

    @property
    def digest(self) -> str:
        """The hash of the PTX."""
        return hashlib.sha256(self.ptx.encode()).hexdigest()


@dataclass(frozen=True)
class Program:
    """A kernel, and the function that records it."""

    name: str
    record: Callable[[], Tape]
    source: str = "submission.py"  # its file; for a kernel of others, repository and path


@contextmanager
def _settings(
    device: Device, schedule: str, tape: Tape, sanitize: bool, limit: int | None, explorer: Explorer | None
) -> Iterator[None]:
    """Within the context, launches run in this process under a schedule."""
    # An explorer follows each order of a launch by sanitizers of its own: the run behind the search is one of these.
    followed = (schedule,) if explorer is None else (UNHELD,)
    changed: dict[str, Any] = {
        "schedules": (schedule,),
        "workers": 1,
        "sanitizer": Sanitizer(tape.allowed, followed) if sanitize else None,
        "explorer": explorer,
        "max_instructions": limit or device.max_instructions,
        "properties": with_sms(device, tape.sms),
    }
    with mock.patch.multiple(device, **changed), mock.patch.dict(os.environ, {LENIENT: "0"}):
        if not tape.strict:
            del os.environ[LENIENT]
        yield


def with_sms(device: Device, sms: int | None) -> devices.DeviceProperties:
    """The chip's properties with `sms` SMs, or unchanged for None."""
    return device.properties if sms is None else replace(device.properties, sm_count=sms)


def record(
    parts: Iterable[object],
    sms: int | None = None,
    allowed: Sequence[str] = (),
    strict: bool = True,
    wanted: Callable[[str], bool] = lambda ptx: True,
    most: int | None = None,
) -> Tape:
    """A tape of a program's launches. parts: the program, as an iterator; launches between two of its items may
    overlap. sms, allowed, strict: those of Tape. wanted: True for the text of the kernel that is mutated. most:
    launches of that kernel after which the tape ends, None for all.

    The launches are not run while they are recorded: the program must not use their results. Raises ValueError for a
    program that does not launch a wanted kernel.
    """
    tape = Tape("", [[]], {}, sms, tuple(allowed), strict)
    memory = Device.current().memory

    def submit(kernel: Kernel, config: LaunchConfig, values: list[bytes], queue: int = 0, event: int = 0) -> None:
        recorded = sum(step.kernel.module.text == tape.ptx for part in tape.steps for step in part)
        if most is not None and recorded >= most:
            return
        if not tape.ptx and wanted(kernel.module.text):
            tape.ptx = kernel.module.text
        tape.steps[-1].append(Step(kernel, config, values))
        if not tape.before:
            tape.before = memory.contents()
            tape.kept += [owner() for owner in devices.memory_owners]

    device = Device.current()
    with mock.patch.object(Kernel, "submit", submit), mock.patch.object(device, "properties", with_sms(device, sms)):
        for _ in parts:
            tape.steps.append([])
    tape.steps = [part for part in tape.steps if part]
    if not tape.ptx:
        raise ValueError("the program launches no kernel of which mutants could be made")
    return tape


def settle(tape: Tape, schedule: str = "late") -> None:
    """Runs the unchanged PTX, and keeps the memory that it leaves, as mutants must. Raises EmulatorError."""
    device = Device.current()
    device.reset_counters()
    tape.run(tape.ptx, schedule)
    tape.expected = {allocation: allocation.data.copy() for allocation in tape.before}
    tape.instructions = sum(counters.warp_instructions for counters in device.counters())


def settled(programs: Iterable[Program]) -> dict[str, Tape]:
    """The tapes of programs by name, all of them recorded and then settled."""
    tapes = {program.name: program.record() for program in programs}
    for each in tapes.values():
        settle(each)
    return tapes
