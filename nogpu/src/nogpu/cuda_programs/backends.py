"""Where a program runs: the emulated B200, or a Hopper GPU (`python -m nogpu --device hopper`).

Both have the methods of `Backend`. Addresses are integers, sizes are in bytes.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, Protocol

import numpy as np

from nogpu.cuda_programs import status
from nogpu.cuda_programs.modules import Kernel, Variable
from nogpu.errors import EmulatorError, Fault
from nogpu.execution.device import Device, LaunchConfig, run_pending
from nogpu.hardware.properties import DeviceProperties
from nogpu.hardware.variables import module_memory
from nogpu.host import driver, events, graphs, queues

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


class Backend(Protocol):
    """A device as the entry points see it."""

    def launch(self, kernel: Kernel, config: LaunchConfig, values: list[bytes], queue: int) -> None:
        """Launch a kernel on a queue. values: the bytes of each parameter."""

    def synchronize(self, queue: int | None = None, event: int | None = None) -> None:
        """Return when all work is done; of a queue or up to an event, if one is named. Raises EmulatorError for a
        kernel that has failed.
        """

    def finish(self) -> None:
        """Do all work so far, for which the host does not wait."""

    def wait(self, queue: int, event: int) -> None:
        """Let a queue wait for an event."""

    def allocate(self, nbytes: int, on_host: bool, queue: int | None = None) -> int:
        """Device memory, or host memory that kernels may access too; as work of a queue, if one is named."""

    def free(self, address: int, queue: int | None = None) -> None:
        """Release what `allocate` has returned; as work of a queue, if one is named. Raises Fault for anything else."""

    def share(self, address: int, nbytes: int) -> None:
        """Let kernels access host memory of the program."""

    def unshare(self, address: int) -> None:
        """End `share`."""

    def allocation(self, address: int) -> int | None:
        """The start of the allocation that holds an address; None if it is not the device's."""

    def copy(self, target: int, source: int, nbytes: int, kind: int, queue: int | None = None) -> None:
        """cudaMemcpy, by cudaMemcpyKind; with a queue cudaMemcpyAsync."""

    def fill(self, address: int, value: int, count: int, size: int, queue: int = queues.LEGACY) -> None:
        """Store `count` values of 1, 2 or 4 bytes, as work of a queue."""

    def variable(self, variable: Variable) -> tuple[int, int]:
        """Address and size of a variable."""

    def attribute(self, number: int) -> int:
        """A CUdevice_attribute. Raises EmulatorError for one that is not known."""

    def properties(self) -> DeviceProperties:
        """The limits that launches are checked against."""

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""

    def record(self, event: int, queue: int) -> None:
        """Set an event's time to the end of a queue's work so far."""


class Emulated:
    """The emulated B200."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._shared: set[int] = set()

    def launch(self, kernel: Kernel, config: LaunchConfig, values: list[bytes], queue: int) -> None:
        graphs.submit(functools.partial(Device.current().launch, kernel.entry, config, values, queue=queue))

    def synchronize(self, queue: int | None = None, event: int | None = None) -> None:
        Device.current().synchronize()
        if event is None:
            queues.waited(queue)
        else:
            events.waited(event)

    def finish(self) -> None:
        run_pending()

    def wait(self, queue: int, event: int) -> None:
        events.wait(queue, event)

    def allocate(self, nbytes: int, on_host: bool, queue: int | None = None) -> int:
        address = driver.allocate(nbytes)
        if queue is not None:
            queues.accessed(queue, "the allocation", writes=[queues.run_of(address, nbytes)])
        self._sizes[address] = nbytes
        return address

    def free(self, address: int, queue: int | None = None) -> None:
        driver.free(address, queue)
        self._sizes.pop(address, None)

    def share(self, address: int, nbytes: int) -> None:
        try:
            Device.current().memory.register(address, nbytes, f"cudaHostRegister({nbytes})")
        except ValueError as error:
            raise Fault(str(error)) from None
        self._shared.add(address)

    def unshare(self, address: int) -> None:
        if address not in self._shared:
            raise Fault(f"{address:#x} has not been registered")
        self.synchronize()
        self._shared.remove(address)
        Device.current().memory.release(address)

    def allocation(self, address: int) -> int | None:
        found = Device.current().memory.allocation(address)
        return None if found is None else found.start

    def copy(self, target: int, source: int, nbytes: int, kind: int, queue: int | None = None) -> None:
        driver.copy(target, source, nbytes, kind, queue)

    def fill(self, address: int, value: int, count: int, size: int, queue: int = queues.LEGACY) -> None:
        driver.fill(address, value, count, _WORDS[size], queue)

    def variable(self, variable: Variable) -> tuple[int, int]:
        scope = variable.module.parsed.scope
        memory = module_memory(scope)
        if variable.name not in memory.addresses:
            raise status.Refused(status.INVALID_SYMBOL, f"the module has no variable {variable.name!r}")
        memory.register(Device.current().memory)
        return memory.addresses[variable.name], memory.variables[variable.name].size

    def attribute(self, number: int) -> int:
        return driver.attribute(number)

    def properties(self) -> DeviceProperties:
        return Device.current().properties

    def memory(self) -> tuple[int, int]:
        total = self.properties().total_memory
        return total - Device.current().memory.writable_bytes, total

    def record(self, event: int, queue: int) -> None:
        self.finish()
        events.record(event, queue)


class Hopper:
    """A Hopper GPU, whose memory is the program's. All queues are torch's current one. Variables are refused: each
    kernel is lowered to a module of its own.
    """

    def launch(self, kernel: Kernel, config: LaunchConfig, values: list[bytes], queue: int) -> None:
        from nogpu.hopper import launch  # needs the driver, and torch with CUDA

        launch.current().launch(kernel.module.text, kernel.entry, config, values)

    def _call(self, name: str, *arguments: object) -> Any:
        from cuda.bindings import driver as cuda

        from nogpu.hopper import gpu

        return gpu.call(getattr(cuda, name), *arguments)

    def synchronize(self, queue: int | None = None, event: int | None = None) -> None:
        self._call("cuCtxSynchronize")

    def finish(self) -> None:
        self.synchronize()

    def wait(self, queue: int, event: int) -> None:
        """All queues are one."""

    def allocate(self, nbytes: int, on_host: bool, queue: int | None = None) -> int:
        return int(self._call("cuMemAllocManaged", nbytes, 1) if on_host else self._call("cuMemAlloc", nbytes))

    def free(self, address: int, queue: int | None = None) -> None:
        if address:
            self._call("cuMemFree", address)

    def share(self, address: int, nbytes: int) -> None:
        self._call("cuMemHostRegister", address, nbytes, 0)

    def unshare(self, address: int) -> None:
        self._call("cuMemHostUnregister", address)

    def allocation(self, address: int) -> int | None:
        try:
            start, _ = self._call("cuMemGetAddressRange", address)
        except EmulatorError:
            return None
        return int(start)

    def copy(self, target: int, source: int, nbytes: int, kind: int, queue: int | None = None) -> None:
        if nbytes:
            self.synchronize()
            self._call("cuMemcpy", target, source, nbytes)

    def fill(self, address: int, value: int, count: int, size: int, queue: int = queues.LEGACY) -> None:
        if count:
            self.synchronize()
            self._call(f"cuMemsetD{8 * size}", address, value, count)

    def variable(self, variable: Variable) -> tuple[int, int]:
        raise EmulatorError(f"variable {variable.name}: variables of a module are not modelled on a Hopper GPU")

    def attribute(self, number: int) -> int:
        from nogpu.hopper import gpu

        return gpu.device_attribute(number)

    def properties(self) -> DeviceProperties:
        return DeviceProperties()

    def memory(self) -> tuple[int, int]:
        free, total = self._call("cuMemGetInfo")
        return int(free), int(total)

    def record(self, event: int, queue: int) -> None:
        self.synchronize()
        events.record(event)


@functools.cache
def current() -> Backend:
    """The device of this process, by NOGPU."""
    return Hopper() if os.environ.get("NOGPU") == "hopper" else Emulated()


def strings(pointer: int, sizes: list[int]) -> list[bytes]:
    """The bytes of each parameter, from the array of their addresses (void **) that a launch passes."""
    if sizes and not pointer:
        raise status.Refused(status.INVALID_VALUE, f"a null pointer for the arguments of {len(sizes)} parameters")
    addresses = (ctypes.c_size_t * len(sizes)).from_address(pointer) if sizes else ()
    return [ctypes.string_at(address, size) for address, size in zip(addresses, sizes)]
