"""Modules of PTX and their kernels, which every front loads, gives attributes and launches."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nogpu.compiler import stored
from nogpu.compiler.linking import link
from nogpu.compiler.translate import translate
from nogpu.cuda import arguments, backends, device_launches, graphs, queues
from nogpu.cuda.device_heap import with_heap
from nogpu.cuda.graph_conditions import with_conditions
from nogpu.errors import EmulatorError, Fault
from nogpu.execution.device import Device, wait_for_all
from nogpu.hardware.properties import WARP_THREADS, DeviceProperties, LaunchConfig, static_shared_bytes
from nogpu.hardware.variables import module_memory
from nogpu.ptx import ir

if TYPE_CHECKING:
    from nogpu.clock.record import Recording
    from nogpu.clock.trace import Trace

    Record = str | os.PathLike[str] | Callable[[Trace], None] | Recording | None

MOST_REGISTERS = 255  # of a thread: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"
NAMES_SHOWN = 5  # kernels or variables that a message on a missing one lists


class Module:
    """A loaded PTX module: `module["name"]` is a kernel; iteration gives the kernels' names."""

    def __init__(self, text: str | Callable[[], str], schedule: str | None = None, lenient: bool | None = None):
        """text: PTX, or a function that reads it when it is first needed. schedule, lenient: settings of launches that
        do not name their own.
        """
        self._text, self.schedule, self.lenient = text, schedule, lenient
        self._kernels: dict[str, Kernel] = {}

    @functools.cached_property
    def text(self) -> str:
        return self._text if isinstance(self._text, str) else self._text()

    @functools.cached_property
    def parsed(self) -> ir.Module:
        return _parsed(self.text)

    def kernel(self, name: str) -> Kernel:
        """A kernel, which may turn out to be missing when its entry is first needed: the text is not read here."""
        return self._kernels.setdefault(name, Kernel(self, name))

    def __getitem__(self, name: str) -> Kernel:
        if name not in self.parsed.entries:
            raise KeyError(f"the module has no kernel {name!r}; it has {_listed(self.parsed.entries)}")
        return self.kernel(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.parsed.entries)

    def variable(self, name: str) -> np.ndarray:
        """uint8[bytes] of a .global or .const variable: the memory that kernels load and store. Raises KeyError."""
        Device.current().synchronize()
        memory = module_memory(self.parsed.scope)
        if name not in memory.bytes:
            raise KeyError(f"the module has no variable {name!r}; it has {_listed(memory.bytes)}")
        return memory.bytes[name]


def _parsed(text: str) -> ir.Module:
    return device_launches.read(stored.module(with_conditions(with_heap(device_launches.with_launches(text)))))


_parsed_once = functools.cache(_parsed)


def of_compilation(text: str) -> Module:
    """A module that a compiler in this process has made, and may make again: equal texts are parsed once."""
    module = Module(text)
    module.parsed = _parsed_once(text)
    return module


class Kernel:
    """An entry of a module, with the attributes that the program has given it."""

    def __init__(self, module: Module, name: str):
        self.module, self.name = module, name
        self.nonportable_cluster = False
        self._dynamic_shared_limit: int | None = None
        self._recorded: tuple[object, Recording] | None = None

    @functools.cached_property
    def entry(self) -> ir.Entry:
        """The parsed entry. Raises EmulatorError if the module's PTX has none of the kernel's name."""
        entries = self.module.parsed.entries
        if self.name not in entries:
            raise EmulatorError(f"the module's PTX has no entry of this name: {', '.join(entries)}", kernel=self.name)
        return entries[self.name]

    @property
    def params(self) -> tuple[ir.Param, ...]:
        """The parameters, in the order of the entry's .param."""
        return tuple(self.entry.params)

    @property
    def max_threads(self) -> int:
        """The most threads of a CTA, by the kernel's launch bounds."""
        bounds = self.entry.reqntid or self.entry.maxntid
        return min(
            DeviceProperties.max_threads_per_block, math.prod(bounds or (DeviceProperties.max_threads_per_block,))
        )

    @property
    def registers(self) -> int:
        """The most registers of a thread that fit: PTX does not say how many ptxas would take."""
        warps = -(-self.max_threads // WARP_THREADS)
        return min(MOST_REGISTERS, DeviceProperties.registers_per_block // (WARP_THREADS * warps) // 8 * 8)

    @functools.cached_property
    def static_shared_bytes(self) -> int:
        """Bytes of the kernel's shared variables, with those of its module and of the functions that it calls."""
        return static_shared_bytes(self.entry if isinstance(self.entry, stored.StoredEntry) else link(self.entry))

    @property
    def dynamic_shared_limit(self) -> int:
        """The most bytes of dynamic shared memory of a launch: what the program has set, else 48 KiB less static."""
        if self._dynamic_shared_limit is not None:
            return self._dynamic_shared_limit
        return max(0, DeviceProperties.shared_memory_per_block - self.static_shared_bytes)

    @dynamic_shared_limit.setter
    def dynamic_shared_limit(self, nbytes: int) -> None:
        self._dynamic_shared_limit = nbytes

    def check(self) -> None:
        """Translates the kernel, as its first launch does. Raises EmulatorError for what is not modelled."""
        translate(self.entry)

    def submit(self, config: LaunchConfig, values: list[bytes], queue: int = queues.LEGACY, event: int = 0) -> None:
        """Launch on the device that NOGPU names, or add the launch to the graph that is being captured.

        values: bytes of each parameter, in order. queue: its handle. event: the handle of an event to record, or 0.
        Raises EmulatorError for a queue that does not exist; on a Hopper GPU the driver checks it.
        """
        if os.environ.get("NOGPU") != "hopper":
            try:
                queues.check(queue)
            except Fault as fault:
                raise EmulatorError(f"launch refused: {fault.reason}", kernel=self.name) from None
        backends.current().launch(self.module.text, self.entry, config, values, queues.resolved(queue), event)

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
        record: Record = None,
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

        schedule: the launch's schedules, "late,random:1"; None for the module's, and without one the device's. lenient:
        True turns broken rules of order into warnings, False turns doubts into errors, None leaves it to the module,
        and without a choice there to NOGPU_LENIENT (docs/rules.md).

        record: the function, folder or Recording for the launch's trace; None leaves it to the device. A recorded
        launch runs on its own and under schedule "late".

        queue: a handle of the CUDA driver's or runtime's, such as of cudaStreamCreate or torch's `Stream.cuda_stream`.

        wait: True if the launch has ended when this returns. With False the launch may run later, beside the
        `programmatic` launches that follow. While a CUDA graph is captured, the launch becomes a part of it.

        Raises EmulatorError for arguments that do not fit, for a launch that the device refuses and for a rule that the
        kernel breaks.
        """
        if self.entry.error is not None:
            raise self.entry.error
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
            schedules = arguments.schedules(self.module.schedule if schedule is None else schedule)
            chosen = arguments.choice("lenient", self.module.lenient if lenient is None else lenient)
            values = self._packed(arguments.arguments(args))
            handle = arguments.count("queue", queue)
            queues.check(handle)
        except (ValueError, TypeError, OverflowError, Fault) as error:
            raise EmulatorError(f"launch refused: {error}", kernel=self.name) from None
        recording = self._recording(record)

        def run(keeps: Sequence = args) -> None:
            Device.current().launch(self.entry, config, values, schedules, chosen, recording, handle)
            device = backends.current()
            assert isinstance(device, backends.Emulated)
            device.work_made(self.entry, handle)

        graphs.submit(run, handle, graphs.KERNEL)
        if wait and not graphs.capturing(handle):
            wait_for_all()

    def _recording(self, record: Record) -> Recording | None:
        if record is None:
            return None
        from nogpu.clock.record import Recording  # few launches need the import

        if isinstance(record, Recording):
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
