"""The device that NOGPU names: the emulated B200, or a Hopper GPU (`nogpu run --device hopper`).

Both have the same methods. Addresses are integers, sizes are in bytes.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import operator
import os
from collections.abc import Callable
from typing import Any, NamedTuple, SupportsInt

import numpy as np

from nogpu.cuda import device_attributes, device_launches, events, graphs, queues
from nogpu.errors import EmulatorError, Fault
from nogpu.execution.device import Device, run_pending, wait_for_all
from nogpu.hardware.allocations import NULL_PAGE
from nogpu.hardware.properties import DeviceProperties, LaunchConfig
from nogpu.hardware.variables import is_constant, module_memory
from nogpu.hardware.words import misaligned
from nogpu.ptx.ir import Entry, Module

ALIGNMENT = 512  # alignment of device allocations in bytes
WITHIN_DEVICE = 3  # cudaMemcpyDeviceToDevice
_COPY_KINDS = ((False, False), (False, True), (True, False), (True, True), (False, False))
"""cudaMemcpyKind -> (source, destination), True for device memory; the last kind leaves it to the addresses."""
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def integer(value: Any, what: str, low: int = 0, high: int = (1 << 64) - 1) -> int:
    """An integer or a handle of cuda.bindings. Raises Fault unless it is within the limits."""
    try:
        number = int(value) if hasattr(value, "getPtr") else operator.index(value)
    except TypeError:
        raise Fault(f"{what} {value!r}: an integer is expected") from None
    if not low <= number <= high:
        raise Fault(f"{what} {number}: must be {low} to {high}")
    return number


class Guard(NamedTuple):
    """Functions that keep the host's code off device memory; begin takes (address, bytes), and returns False if it
    guards as much as it can already; end takes the address.
    """

    begin: Callable[[int, int], bool]
    end: Callable[[int], None]


class Emulated:
    """The emulated B200. Pointers and handles may be those of cuda.bindings."""

    guard: Guard | None = None
    """Guard of device memory that `allocate` returns or `place` is given: nothing else lies in its pages."""

    def __init__(self) -> None:
        self._buffers: dict[int, tuple[np.ndarray, int]] = {}
        self._shared: set[int] = set()

    def launch(
        self, ptx: str, entry: Entry, config: LaunchConfig, values: list[bytes], queue: int, event: int = 0
    ) -> None:
        """Launch an entry of a PTX module on a queue, and record an event behind it. values: bytes of each parameter.

        While a graph is captured, the launch is added to the graph.
        """
        launch = functools.partial(self._launch, entry, config, values, queue, event)
        graphs.submit(launch, queue, graphs.KERNEL)

    def _launch(self, entry: Entry, config: LaunchConfig, values: list[bytes], queue: int, event: int) -> None:
        Device.current().launch(entry, config, values, queue=queue)
        self.work_made(entry, queue)
        if event:
            # On a GPU the event may be recorded once every CTA has begun. The launch's end is later, so it is safe.
            events.record(event, queue)

    def work_made(self, entry: Entry, queue: int) -> None:
        """Do the work that kernels of an entry's module have asked for, as work of a queue."""
        for work in device_launches.made(entry):
            if isinstance(work, device_launches.Launch):
                self._launch(*work, queue, 0)
            elif isinstance(work, device_launches.Copy):
                self.copy(*work, WITHIN_DEVICE, queue)
            else:
                self.fill(work.target, work.value, work.nbytes, 1, queue)

    def synchronize(self, queue: int | None = None, event: int | None = None) -> None:
        """Return when all work is done, or that of a queue or up to an event if one is named. Raises EmulatorError for
        a kernel that has failed.
        """
        if event is not None:
            run_pending()
            events.waited(event)
        elif queue is not None:
            run_pending()
            queues.waited(queue)
        else:
            wait_for_all()

    def is_over(self, queue: int | None = None, event: int | None = None) -> bool:
        """True if a query of a queue or an event says that its work is over, which counts as a wait of the host."""
        run_pending()
        over = events.answers(event) if event is not None else queue is None or queues.answers(queue)
        if over:
            self.synchronize(queue, event)
        return over

    def finish(self) -> None:
        """Do all work so far, without a wait of the host."""
        run_pending()

    def wait(self, queue: int, event: int) -> None:
        """Let a queue wait for an event."""
        events.wait(queue, event)

    def record(self, event: int, queue: int) -> None:
        """Set an event's time to the end of a queue's work so far."""
        run_pending()
        events.record(event, queue)

    def allocate(self, size: object, on_host: bool = False, queue: int | None = None, name: str = "") -> int:
        """Allocate device memory, or host memory that kernels may access too, as work of a queue if one is named. The
        result is its address. name: the allocation's in messages. Raises Fault for a size that does not fit.
        """
        device = Device.current()
        nbytes = integer(size, "size", 1, device.properties.total_memory)
        guard = None if on_host else self.guard
        alignment = ALIGNMENT if on_host else mmap.PAGESIZE
        try:
            buffer = np.empty(nbytes + -nbytes % alignment + alignment, np.uint8)
        except MemoryError:
            raise Fault(f"size {nbytes}: this machine has not that much memory") from None
        address = buffer.ctypes.data + -buffer.ctypes.data % alignment
        is_guarded = guard is not None and guard.begin(address, nbytes)
        device.memory.register(address, nbytes, name or f"cuMemAlloc({nbytes})")
        device.memory.at(address, nbytes, "store").is_guarded = is_guarded
        device.leave_unwritten(address, nbytes)
        self._buffers[address] = buffer, nbytes
        if queue is not None:
            queues.accessed(queue, "the allocation", writes=[queues.run_of(address, nbytes)])
        return address

    def free(self, pointer: SupportsInt, queue: int | None = None) -> None:
        """Free an allocation, as work of a queue, or without one after a wait of the host. A null pointer is ignored.

        Raises Fault for any other address.
        """
        run_pending()
        address = integer(pointer, "pointer")
        if address and address not in self._buffers:
            raise Fault(f"pointer {address:#x}: no allocation of this interface starts there, or it is free already")
        if queue is None:
            wait_for_all()
        elif address:
            _, nbytes = self._buffers[address]
            queues.accessed(queue, "the release", writes=[queues.run_of(address, nbytes)])
        if address:
            Device.current().memory.release(address)
            if self.guard:
                self.guard.end(address)
            del self._buffers[address]

    def allocated_bytes(self, address: int) -> int | None:
        """Bytes of the allocation of `allocate` that starts at an address; None if there is none."""
        return self._buffers[address][1] if address in self._buffers else None

    def shown(self, address: int) -> None:
        """Note that other processes may write to an allocation from now on."""
        held = Device.current().memory.holding(address)
        held.is_guarded, held.watch = False, None

    def place(self, address: int, nbytes: int, name: str, writable: bool = True) -> None:
        """Let kernels access pages that the caller has mapped, and keep the host's code off them."""
        Device.current().memory.register(address, nbytes, name, writable)
        if self.guard:
            self.guard.begin(address, nbytes)

    def remove(self, address: int) -> None:
        """End the effect of `place`, after a wait of the host."""
        self.synchronize()
        Device.current().memory.release(address)
        if self.guard:
            self.guard.end(address)

    def reserved(self, address: int, nbytes: int) -> None:
        """Note addresses that `place` may be given later, for messages; 0 bytes end that."""
        Device.current().memory.reserved(address, nbytes)

    def share(self, address: int, nbytes: int) -> None:
        """Let kernels access host memory of the program. Raises Fault for memory that is registered already."""
        try:
            Device.current().memory.register(address, nbytes, f"cudaHostRegister({nbytes})")
        except ValueError as error:
            raise Fault(str(error)) from None
        self._shared.add(address)

    def unshare(self, address: int) -> None:
        """End the effect of `share`. Raises Fault for an address that has not been shared."""
        if address not in self._shared:
            raise Fault(f"{address:#x} has not been registered")
        self.synchronize()
        self._shared.remove(address)
        Device.current().memory.release(address)

    def allocation(self, address: int) -> int | None:
        """The start of the allocation that holds an address; None if it is not the device's."""
        found = self.extent(address)
        return None if found is None else found[0]

    def extent(self, address: int) -> tuple[int, int] | None:
        """(start, bytes) of the allocation that holds an address; None if it is not the device's."""
        found = Device.current().memory.allocation(address)
        return None if found is None else (found.start, found.end - found.start)

    def copy(
        self, target: SupportsInt, source: SupportsInt, count: int, kind: object, queue: int | None = None
    ) -> None:
        """Copy as cudaMemcpy, or with a queue as cudaMemcpyAsync. Device addresses are checked; host addresses must be
        good, as on any machine.

        The host waits for copies from and to its memory, asynchronous ones to pageable memory among them (CUDA Runtime
        API, "API synchronization behavior").
        """
        run_pending()
        nbytes, number = integer(count, "count"), integer(kind, "cudaMemcpyKind", 0, len(_COPY_KINDS) - 1)
        memory = Device.current().memory
        sides = ((integer(source, "source"), "load"), (integer(target, "destination"), "store"))
        for (address, access), on_device in zip(sides, _COPY_KINDS[number]):
            if nbytes and on_device:
                held = memory.allocation(address)
                is_const = held is not None and not held.writable and is_constant(held.start)
                memory.at(address, nbytes, "load" if is_const else access)
            elif nbytes and address < NULL_PAGE:
                raise Fault(f"{access} of {nbytes} bytes at {address:#x}: null pointer")
        of = queues.LEGACY if queue is None else queue
        queues.accessed(of, "a copy", *([queues.run_of(address, nbytes)] for address, _ in sides))
        if memory.allocation(sides[1][0]) is None or (queue is None and number != WITHIN_DEVICE):
            queues.waited(of)
        memory.holding(sides[1][0]).writes += 1
        ctypes.memmove(sides[1][0], sides[0][0], nbytes)

    def fill(self, pointer: SupportsInt, value: int, count: int, size: int, queue: int = queues.LEGACY) -> None:
        """Store `count` values of 1, 2 or 4 bytes, as work of a queue."""
        run_pending()
        address, nbytes = integer(pointer, "pointer"), size * integer(count, "count")
        filler = integer(value, "value", 0, (1 << 8 * size) - 1)
        if address % size:
            raise misaligned("fill", address, size)
        if nbytes:
            words = Device.current().memory.at(address, nbytes, "store")
            queues.accessed(queue, "a fill", writes=[queues.run_of(address, nbytes)])
            fill = address, nbytes, size, filler
            if words.is_guarded and words.filled == (fill, words.writes):
                return
            words.data[address - words.start :][:nbytes].view(_WORDS[size])[:] = filler
            words.writes += 1
            words.filled = fill, words.writes

    def view(self, address: int, nbytes: int, access: str) -> np.ndarray:
        """Bytes of device memory, as an array of uint8 that shares it. access: "load" or "store", which is checked."""
        found = Device.current().memory.at(address, nbytes, access)
        found.writes += access == "store"
        return found.data[address - found.start :][:nbytes]

    def variable(self, module: Module, name: str) -> tuple[int, int]:
        """(address, bytes) of a variable of a module. Raises KeyError if there is none."""
        memory = module_memory(module.scope)
        address = memory.addresses[name]
        memory.register(Device.current().memory)
        return address, memory.variables[name].size

    def attribute(self, number: object) -> int:
        """The value of a CUdevice_attribute. Raises EmulatorError for one that is not known."""
        return device_attributes.attribute(number, self.properties())

    def properties(self) -> DeviceProperties:
        """The device's properties, against which launches are checked."""
        return Device.current().properties

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of device memory."""
        total = self.properties().total_memory
        return total - Device.current().memory.writable_bytes, total


class Hopper:
    """A Hopper GPU, whose memory is the program's. All queues are torch's current one. Variables are refused: each
    kernel is lowered to a module of its own.
    """

    def launch(
        self, ptx: str, entry: Entry, config: LaunchConfig, values: list[bytes], queue: int, event: int = 0
    ) -> None:
        from nogpu.hopper import launch  # needs the driver, and torch with CUDA

        if event:
            raise EmulatorError("a launch that records an event is not modelled on a Hopper GPU", kernel=entry.name)
        launch.current().launch(ptx, entry, config, values)

    def _call(self, name: str, *arguments: object) -> Any:
        from cuda.bindings import driver as cuda

        from nogpu.hopper import gpu

        return gpu.call(getattr(cuda, name), *arguments)

    def synchronize(self, queue: int | None = None, event: int | None = None) -> None:
        self._call("cuCtxSynchronize")

    def is_over(self, queue: int | None = None, event: int | None = None) -> bool:
        self.synchronize()
        return True

    def finish(self) -> None:
        self.synchronize()

    def wait(self, queue: int, event: int) -> None:
        """Does nothing, since all queues are one."""

    def record(self, event: int, queue: int) -> None:
        self.synchronize()
        events.record(event)

    def allocate(self, size: int, on_host: bool = False, queue: int | None = None) -> int:
        return int(self._call("cuMemAllocManaged", size, 1) if on_host else self._call("cuMemAlloc", size))

    def free(self, pointer: int, queue: int | None = None) -> None:
        if pointer:
            self._call("cuMemFree", pointer)

    def share(self, address: int, nbytes: int) -> None:
        self._call("cuMemHostRegister", address, nbytes, 0)

    def unshare(self, address: int) -> None:
        self._call("cuMemHostUnregister", address)

    def allocation(self, address: int) -> int | None:
        found = self.extent(address)
        return None if found is None else found[0]

    def extent(self, address: int) -> tuple[int, int] | None:
        try:
            start, nbytes = self._call("cuMemGetAddressRange", address)
        except EmulatorError:
            return None
        return int(start), int(nbytes)

    def copy(self, target: int, source: int, count: int, kind: int, queue: int | None = None) -> None:
        if count:
            self.synchronize()
            self._call("cuMemcpy", target, source, count)

    def fill(self, pointer: int, value: int, count: int, size: int, queue: int = queues.LEGACY) -> None:
        if count:
            self.synchronize()
            self._call(f"cuMemsetD{8 * size}", pointer, value, count)

    def variable(self, module: Module, name: str) -> tuple[int, int]:
        raise EmulatorError(f"variable {name}: variables of a module are not modelled on a Hopper GPU")

    def attribute(self, number: int) -> int:
        from nogpu.hopper import gpu

        return gpu.device_attribute(number)

    def properties(self) -> DeviceProperties:
        return DeviceProperties()

    def memory(self) -> tuple[int, int]:
        free, total = self._call("cuMemGetInfo")
        return int(free), int(total)


emulated = functools.cache(Emulated)
"""The emulated B200 of this process."""


@functools.cache
def current() -> Emulated | Hopper:
    """The device of this process, by NOGPU."""
    return Hopper() if os.environ.get("NOGPU") == "hopper" else emulated()
