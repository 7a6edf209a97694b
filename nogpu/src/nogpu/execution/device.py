"""The device: launches, under one or several schedules, in this process or in forked ones.

A launch runs once per schedule, each time from the same memory, and its clusters may be dealt to several workers. With
one worker and little memory the runs are in this process. Other runs happen in forked children, which see this
process's memory copy-on-write and send back the bytes that they wrote. All schedules must leave the same bytes, or the
launch raises.

A kernel with griddepcontrol.launch_dependents does not run at once, because the next launch may overlap it. Such
launches are pending until a call may see their results or change their inputs, and then run together
(`execution.machine`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nogpu import notes
from nogpu.compiler import translate
from nogpu.errors import EmulatorError, readable
from nogpu.execution import settings, status
from nogpu.execution.kept_ctas import Seats
from nogpu.execution.launch import Launch, Recording, Sanitizer
from nogpu.execution.meter import MAX_INSTRUCTIONS
from nogpu.execution.repeats import Repeats
from nogpu.execution.runs import Progress, Runner, Spare
from nogpu.execution.trials import Explorer, explore
from nogpu.hardware.async_operations import Schedule
from nogpu.hardware.counters import LaunchCounters
from nogpu.hardware.memory import UNWRITTEN, GlobalMemory
from nogpu.hardware.program import Program
from nogpu.hardware.properties import DeviceProperties, LaunchConfig, check_launch, of_process, with_clusters
from nogpu.hardware.variables import module_memory
from nogpu.ptx.module import Entry

__all__ = ["Device", "DeviceProperties", "LaunchConfig"]

WORKSPACE_BYTES = 8  # bytes of grid_workspace of cooperative_groups: its size, and a barrier
PARAMETER_ALIGNMENT = 128  # bytes of the parameter buffer's alignment: a tensor map in it must be 64-byte aligned
SPARE = "random:1", "random:2", "random:3", "random:4", "random:5"  # schedules of `Device.spare`
LONGEST_CHAIN = 4  # number of pending launches; memory that the program frees meanwhile is kept until they have run

memory_owners: list[Callable[[], object]] = []
"""Functions, each of which returns an object that keeps the program's memory alive for pending launches."""

recording: Recording | None = None
"""`Device.recording` of the device that `Device.current` makes."""

explorer: Explorer | None = None
"""`Device.explorer` of the device that `Device.current` makes."""

sanitizer: Sanitizer | None = None
"""`Device.sanitizer` of the device that `Device.current` makes."""

_current: Device | None = None


@dataclass
class _Translated:
    entry: Entry
    program: Program
    allows_dependents: bool
    """True if the kernel has griddepcontrol.launch_dependents."""
    parameters: np.ndarray
    """Memory for the parameters of a launch, as `_parameter_memory` returns it."""


class Device:
    """Emulated NVIDIA B200 or Rubin. Only `current` reads settings of the environment.

    An error of a pending launch is raised by the call that runs it: the next launch that does not overlap it,
    `synchronize`, `counters`, or a torch call that may see or change data.
    """

    def __init__(
        self,
        schedules: tuple[str, ...] = ("late",),
        workers: int = 1,
        properties: DeviceProperties | None = None,
        max_instructions: int = MAX_INSTRUCTIONS,
    ) -> None:
        """Raises ValueError for illegal schedules or numbers. The attributes explain the arguments."""
        if not schedules or len(set(schedules)) < len(schedules):
            raise ValueError(f"schedules must be at least one and differ: {schedules}")
        if workers < 1:
            raise ValueError(f"workers must be at least 1: {workers}")
        if max_instructions < 1:
            raise ValueError(f"max_instructions must be at least 1: {max_instructions}")
        for schedule in schedules:
            Schedule.parse(schedule)
        self.properties = properties or of_process()
        """Properties of the chip. Few SMs make CTAs share them. This and the next four may change between launches."""
        self.schedules = schedules
        """Names of schedules, as `Schedule.parse` takes them."""
        self.workers = workers
        """Largest number of processes that a launch uses at once."""
        self.max_instructions = max_instructions
        """Warp instructions after which a launch, with those that overlap it, is stopped under a schedule."""
        self.progress: Progress | None = None
        """Function called with (CTAs done, CTAs in all, warp instructions) of the running launch, over its schedules.
        None: a terminal shows them (`status`).
        """
        self.recording: Recording | None = None
        """Recorder of launches that name none; each runs on its own under schedule "late"."""
        self.sanitizer: Sanitizer | None = None
        """Sanitizer that follows the events of launches, and raises Fault for accesses that are not ordered."""
        self.spare = Spare(SPARE, 0)
        """Further schedules of launches under schedule "late" alone."""
        self.explorer: Explorer | None = None
        """Explorer that looks for a schedule under which a launch, or one of several that overlap, fails."""
        self.memory = GlobalMemory()
        self.repeats: Repeats | None = None
        """Launches whose stores are known, which do not run again. None: every launch runs."""
        self._counters: list[LaunchCounters] = []
        self._cluster_seconds: dict[int, float] = {}
        self._seats = Seats()
        self._chain: list[Launch] = []
        self._kept: list[object] = []
        self._workspace = np.zeros(WORKSPACE_BYTES, np.uint8)
        self._programs: dict[tuple[int, Recording | None, bool, bool], _Translated] = {}
        # Reentrant: a finalizer that runs inside of a launch may call torch, which synchronizes.
        self._lock = threading.RLock()

    @staticmethod
    def current() -> Device:
        """Device of the process. The first call makes it from NOGPU_SCHEDULE (default: late), NOGPU_WORKERS (default:
        the number of cores that this process may use), NOGPU_MAX_INSTRUCTIONS, NOGPU_RANDOM_SECONDS (0) and
        NOGPU_EVERY_LAUNCH (0). Raises EmulatorError for values that are not legal.
        """
        global _current
        if _current is None:
            schedules = _setting("schedule", "late")
            workers = _setting("workers", min(len(os.sched_getaffinity(0)), settings.WORKER_LIMIT))
            limit = _setting("max_instructions", MAX_INSTRUCTIONS)
            _current = Device(schedules, workers, max_instructions=limit)
            _current.spare.seconds = _setting("random_seconds", 0)
            if not _setting("every_launch", 0):
                _current.repeats = Repeats(_current.memory)
            _current.recording, _current.sanitizer, _current.explorer = recording, sanitizer, explorer
        return _current

    @property
    def pending(self) -> int:
        """Number of launches that are still to run."""
        return len(self._chain)

    def leave_unwritten(self, address: int, nbytes: int) -> None:
        """Fills memory that has been allocated and not written with UNWRITTEN words if there is a sanitizer."""
        allocation = self.memory.at(address, nbytes, "store") if nbytes and self.sanitizer is not None else None
        if allocation is not None:
            words = allocation.data[address - allocation.start :][: nbytes // 4 * 4]
            words.view(np.uint32)[:] = UNWRITTEN

    def synchronize(self) -> None:
        """Runs the pending launches. Raises EmulatorError if one fails."""
        with self._lock:
            try:
                self._run_pending()
            except EmulatorError as error:
                # The error names its place in the kernel; the place in the emulator helps no one.
                raise error.with_traceback(None) from None

    def counters(self) -> list[LaunchCounters]:
        """One entry per launch since the last reset, oldest first. Raises EmulatorError if a pending launch fails."""
        self.synchronize()
        return list(self._counters)

    def reset_counters(self) -> None:
        """Runs the pending launches, and removes all entries of `counters`. Raises EmulatorError if one fails."""
        self.synchronize()
        self._counters.clear()

    def launch(
        self,
        entry: Entry,
        config: LaunchConfig,
        params: list[bytes],
        schedules: tuple[str, ...] | None = None,
        lenient: bool | None = None,
        recording: Recording | None = None,
        queue: int = 0,
    ) -> None:
        """Runs a kernel, or makes it pending. params: the bytes of each parameter, in the entry's order.

        schedules: the launch's own, None for the device's. lenient: True makes broken rules of order warnings, False
        doubts errors (`errors.doubt`), None leaves it to NOGPU_LENIENT. A launch overlaps only launches with the same
        values of both, on the same queue. recording: None for the device's. A recorded launch overlaps no other. queue:
        handle of the queue; launches run in the order of the calls, but a sanitizer follows the order that queues give.

        Raises EmulatorError for a launch that the device refuses, and for a rule that this kernel or a pending one
        breaks. Bytes written by a failing kernel stay in memory if it ran in this process under one schedule, and are
        lost otherwise; launches that were to overlap it do not run.
        """
        recording = self.recording if recording is None else recording
        parted = self.explorer is not None or any(each.startswith("replay:") for each in schedules or self.schedules)
        translated = self._translated(entry, recording, parted)
        schedules = ("late",) if recording is not None else schedules or self.schedules
        is_followed = recording is not None or self.sanitizer is not None or self.explorer is not None
        key = id(translated.program), config, tuple(params), schedules, lenient
        if not (is_followed or config.cooperative) and self._is_known(key):
            return
        config = with_clusters(entry, config)
        check_launch(translated.program.entry, config, self.properties)
        packed = np.frombuffer(entry.pack(params), np.uint8)
        if config.cooperative:
            config = replace(config, workspace=self._workspace.ctypes.data)
        with self._lock:
            # Launches that may overlap, and those whose accesses are remembered, have memories of their own.
            is_alone = not (self._chain or is_followed)
            parameters = translated.parameters if is_alone else _parameter_memory(len(packed))
            parameters[:] = packed
            launch = Launch(translated.program, config, parameters, entry.name, schedules, key, lenient, recording)
            launch.sanitizer, launch.explorer, launch.queue = self.sanitizer, self.explorer, queue
            self._add(launch, translated.allows_dependents)

    def _is_known(self, key: object) -> bool:
        """True if a launch need not even be made (`Repeats.found`)."""
        with self._lock:
            if self.repeats is None or self._chain or self.spare.seconds > 0 or notes.wanted():
                return False
            counters = self.repeats.found(key, self.properties)
            self._counters += counters or ()
            return counters is not None

    def _add(self, launch: Launch, allows_dependents: bool) -> None:
        """Makes a launch pending, behind those that it may overlap, and runs it unless the next may overlap it."""
        config, parameters = launch.config, launch.parameters
        own = launch.schedules, launch.lenient, launch.queue
        alike = all((x.schedules, x.lenient, x.queue) == own for x in self._chain)
        if not config.programmatic or config.cooperative or not alike or launch.recording is not None:
            self._run_pending()
        if len(parameters):
            self.memory.register(parameters.ctypes.data, len(parameters), "kernel parameters", writable=False)
        if config.workspace:
            self._workspace[:] = 0
            self.memory.register(config.workspace, WORKSPACE_BYTES, "barrier of the grid")
        if self.sanitizer is not None and self.sanitizer.queues is not None:
            what = f"the launch of {readable(launch.kernel)}"
            launch.node = self.sanitizer.queues.submitted(launch.queue, what, launch.program.entry)
        self._chain.append(launch)
        # The program may have allocated memory since the last launch.
        self._kept = [owner() for owner in memory_owners] if allows_dependents else self._kept
        if not allows_dependents or len(self._chain) == LONGEST_CHAIN or launch.recording is not None:
            self._run_pending()

    def _run_pending(self) -> None:
        chain, self._chain = self._chain, []
        if not chain:
            return
        shown = status.Status(chain[-1].kernel) if self.progress is None and status.is_shown() else None
        try:
            runner = Runner(
                self.memory,
                self.properties,
                chain[0].schedules,
                self.workers,
                self.max_instructions,
                self.progress or shown,
                self._cluster_seconds,
                self._seats,
            )
            for launch in chain:
                launch.program.printing_schedule = chain[0].schedules[0]
            if self.spare.seconds > 0 and chain[0].schedules == ("late",) and chain[0].recording is None:
                runner.spare = self.spare
            explore(runner, chain)
            followed = any(each.recording or each.sanitizer or each.explorer for each in chain)
            if self.repeats is None or len(chain) > 1 or followed or runner.spare is not None:
                found = runner.run(chain)
            else:
                found = self.repeats.run(chain[0], self.properties, lambda: runner.run(chain))
            for launch in chain:
                launch.schedules = runner.schedules
            self._counters += found
            if notes.wanted():
                for launch, counters in zip(chain, found):
                    _note(launch, counters)
            for launch in chain:
                if launch.node is not None and launch.touched is not None and self.sanitizer is not None:
                    self.sanitizer.queues.accessed(self.memory, launch.node, launch.touched)
        except EmulatorError as error:
            launch = next((launch for launch in chain if launch.kernel == error.kernel), chain[0])
            error.shape = launch.config.shape
            error.note()
            raise
        finally:
            if shown is not None:
                shown.close()
            for launch in chain:
                if len(launch.parameters):
                    self.memory.release(launch.parameters.ctypes.data)
                if launch.config.workspace:
                    self.memory.release(launch.config.workspace)
            self._kept = []

    def _translated(self, entry: Entry, recording: Recording | None, parted: bool) -> _Translated:
        followed = self.sanitizer is not None or self.explorer is not None
        key = id(entry), recording, followed, parted
        known = self._programs.get(key)
        if known is None:
            if recording is None:
                program = translate.translate(entry, follows_registers=followed, parted=parted)
            else:
                program = recording.translate(entry)
            allows = any(i.opcode == "griddepcontrol.launch_dependents" for i in program.entry.instructions)
            parameters = _parameter_memory(entry.param_offsets()[""])
            known = self._programs[key] = _Translated(entry, program, allows, parameters)
            if self.sanitizer is not None:
                self.sanitizer.read(program.entry)
            if entry.scope is not None:
                module_memory(entry.scope).register(self.memory)
        return known


def _note(launch: Launch, counters: LaunchCounters) -> None:
    """Leaves a note of a launch that has run."""
    config = launch.config
    notes.note(
        "launch",
        kernel=readable(launch.kernel),
        grid=config.grid,
        block=config.block,
        cluster=config.cluster,
        schedules=launch.schedules,
        warp_instructions=counters.warp_instructions,
    )


def _parameter_memory(nbytes: int) -> np.ndarray:
    """Aligned uint8[nbytes] whose addresses have the same high half: a kernel may keep the low half only."""
    storage = np.zeros(2 * (nbytes + PARAMETER_ALIGNMENT), np.uint8)
    start = storage.ctypes.data
    first = start + -start % PARAMETER_ALIGNMENT
    if first >> 32 != first + nbytes - 1 >> 32:
        first += -first % (1 << 32)
    return storage[first - start :][:nbytes]


def _setting(name: str, default: object) -> Any:
    """Value of a setting, by its environment variable. Raises EmulatorError if that is not legal."""
    variable = f"NOGPU_{name.upper()}"
    try:
        return settings.CHECKS[name](os.environ.get(variable) or str(default))
    except ValueError as error:
        raise EmulatorError(f"environment variable {variable}: {error}") from None


def queue_order() -> Any:
    """Order of queues of the current device (`launch.Queues`), for the host's calls, or None."""
    following = sanitizer if _current is None else _current.sanitizer
    return None if following is None else following.queues


def run_pending() -> None:
    """Runs the pending launches of the current device, if there is one."""
    if _current is not None and _current.pending:
        _current.synchronize()


def wait_for_all() -> None:
    """Runs the pending launches of the current device: the host waits for the work of all queues."""
    run_pending()
    order = queue_order()
    if order is not None:
        order.host_waits_for_all()


@atexit.register
def _run_pending_at_exit() -> None:
    """Runs the pending launches: a process whose last launches fail must end with an error."""
    try:
        run_pending()
    except Exception:
        code: Any = 1
        try:
            sys.excepthook(*sys.exc_info())
        except SystemExit as ended:
            code = ended.code
        for output in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it
                output.flush()
        os._exit(code)  # an exception here would leave the exit code as it is
