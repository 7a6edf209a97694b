"""Pinned memory of torch tensors on the host, which non-blocking copies access while the host goes on."""

from __future__ import annotations

import weakref

from nogpu.cuda.torch_memory import Tensor, call_on_cpu, on_device, storage_of
from nogpu.hardware.allocations import Allocation, Allocations

MEMORY = Allocations()
"""Pinned storages, by address."""


def allocation_of(tensor: Tensor) -> Allocation | None:
    """The pinned memory of a tensor; None if it has none."""
    storage = storage_of(tensor)
    return getattr(storage, "emulated_pinned", None)


def pinned(tensor: Tensor) -> Tensor:
    """Tensor.pin_memory: the tensor if it is pinned, else a copy that is. Raises RuntimeError on the device."""
    if on_device(tensor):
        raise RuntimeError(f"cannot pin 'torch.cuda.{type(tensor).__name__}' only dense CPU tensors can be pinned")
    return tensor if allocation_of(tensor) is not None else pin(call_on_cpu(Tensor.clone, (tensor,), {}))


def pin(tensor: Tensor) -> Tensor:
    """Pins the memory of a new tensor on the host. Returns the tensor."""
    storage = storage_of(tensor)
    if storage is not None and storage.nbytes() and not tensor.is_meta:
        address, nbytes = storage.data_ptr(), storage.nbytes()
        for other in MEMORY.neighbours(address):  # a storage that torch has resized since
            if other is not None and address < other.end and other.start < address + nbytes:
                MEMORY.release(other.start)
        shape = ", ".join(map(str, tensor.shape))
        MEMORY.register(address, nbytes, f"pinned tensor {str(tensor.dtype).removeprefix('torch.')}[{shape}]")
        allocation = MEMORY.holding(address)
        storage.emulated_pinned = allocation  # type: ignore[attr-defined]  # not in torch's stub
        weakref.finalize(storage, _forget, allocation).atexit = False
    return tensor


def _forget(allocation: Allocation) -> None:
    if MEMORY.allocation(allocation.start) is allocation:
        MEMORY.release(allocation.start)
