"""The memory of torch tensors on the emulated device, and the placement of results.

A tensor is on the device if its storage is a device allocation; its views are on the device too. The allocation is the
storage's own CPU memory, registered with the device until the storage dies.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from nogpu.cuda import current_queue, torch_cuda, torch_watches
from nogpu.execution import device
from nogpu.execution.device import Device, queue_order

DEVICE = torch.device("cuda", 0)

Tensor = torch.Tensor


class Allocation:
    """The registration of one torch storage with the device, while the storage lives."""

    def __init__(self, name: str):
        self.name = name
        self.storage = 0  # the address of the c10::StorageImpl
        self.address = 0
        self.nbytes = 0
        self.queue = current_queue.get()
        self.used_by: set[int] = set()
        """Queues whose work so far has to end before the memory is given out again (Tensor.record_stream)."""

    def update(self, storage: torch.UntypedStorage) -> None:
        """Register the storage's present range; it changes when torch resizes the storage."""
        address, nbytes = storage.data_ptr(), storage.nbytes()
        if (address, nbytes) != (self.address, self.nbytes):
            self.release()
            if nbytes:
                memory = Device.current().memory
                memory.register(address, nbytes, self.name)
                memory.at(address, nbytes, "store").watch = torch_watches.watch
                torch_cuda.memory_in_use.add(nbytes)
            self.address, self.nbytes = address, nbytes
            order = queue_order()
            if order is not None and nbytes:
                order.given(Device.current().memory, self.queue, address)

    def release(self) -> None:
        if self.nbytes:
            Device.current().memory.release(self.address)
            torch_cuda.memory_in_use.add(-self.nbytes)
        self.address = self.nbytes = 0


_storages: dict[Allocation, weakref.ref[torch.UntypedStorage]] = {}
storage_addresses: set[int] = set()
"""The address of each c10::StorageImpl on the device, as C++ code knows it."""


def live_storages() -> list[torch.UntypedStorage]:
    """The storages on the device. A reference to one keeps its memory."""
    found = (storage() for storage in list(_storages.values()))
    return [storage for storage in found if storage is not None]


device.memory_owners.append(live_storages)


def storage_of(tensor: Tensor) -> torch.UntypedStorage | None:
    """The tensor's storage, the same object as long as it lives; None for a tensor without plain storage.

    The storage of a tensor that torch.func or torch.vmap has wrapped is that of the wrapped tensor.
    """
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # a tensor without storage
        wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        return storage_of(torch._C._functorch.get_unwrapped(tensor)) if wrapped else None


def on_device(tensor: Tensor) -> bool:
    """True if the tensor's storage is a device allocation."""
    # torch keeps one Python object per storage as long as the storage lives, with its attributes.
    return hasattr(storage_of(tensor), "emulated_allocation")


def put_on_device(tensor: Tensor) -> None:
    """Make the tensor's storage a device allocation. Raises NotImplementedError for a tensor without plain storage."""
    storage = storage_of(tensor)
    if storage is None:
        raise NotImplementedError(f"the emulated device has no tensors of layout {tensor.layout}, dtype {tensor.dtype}")
    if not tensor.is_meta:
        shape = ", ".join(map(str, tensor.shape))
        put_storage_on_device(storage, f"tensor {str(tensor.dtype).removeprefix('torch.')}[{shape}]")


def put_storage_on_device(storage: torch.UntypedStorage, name: str) -> None:
    """Make a storage a device allocation, or update it if it is one. name: a new allocation's in messages."""
    allocation = getattr(storage, "emulated_allocation", None)
    if allocation is None:
        allocation = Allocation(name)
        storage.emulated_allocation = allocation  # type: ignore[attr-defined]  # not in torch's stub
        _storages[allocation] = weakref.ref(storage)
        allocation.storage = storage._cdata
        storage_addresses.add(allocation.storage)
        weakref.finalize(storage, _forget, allocation).atexit = False
    allocation.update(storage)


def _location(storage: Any) -> str | None:
    """The place of a storage for torch.save: the device's name, None for the host."""
    return str(DEVICE) if hasattr(storage, "emulated_allocation") else None


def _restored(storage: Any, location: str) -> Any:
    """The storage that torch.load has read, put on the device, or None if its place is another."""
    if kind(location) != "cuda":
        return None
    put_storage_on_device(storage, f"storage of {storage.nbytes()} bytes from a file")
    return storage


def register_with_files() -> None:
    """Make torch.save and torch.load know the device."""
    torch.serialization.register_package(0, _location, _restored)  # 0: ahead of torch's own devices


def leave_unwritten(tensor: Tensor) -> None:
    """Tells the sanitizer, if there is one, that a new tensor on the device has not been written."""
    storage = storage_of(tensor)
    if hasattr(storage, "emulated_allocation"):
        assert storage is not None
        Device.current().leave_unwritten(storage.data_ptr(), storage.nbytes())


def update_allocation(storage: torch.UntypedStorage) -> None:
    """Register the present range of a storage that is on the device."""
    allocation = getattr(storage, "emulated_allocation", None)
    if allocation is not None:
        allocation.update(storage)


def record_queue(tensor: Tensor, queue: int) -> None:
    """Tensor.record_stream: the memory is given out again only after the work that the queue has at the release."""
    allocation = getattr(storage_of(tensor), "emulated_allocation", None)
    if allocation is not None:
        allocation.used_by.add(queue)


def _forget(allocation: Allocation) -> None:
    order = queue_order()
    if order is not None and allocation.nbytes:
        order.freed(Device.current().memory, allocation.queue, allocation.address, allocation.used_by)
    allocation.release()
    _storages.pop(allocation, None)
    storage_addresses.discard(allocation.storage)


def tensors(values: Iterable[object]) -> Iterator[Tensor]:
    """The tensors among values and in their lists, tuples and dictionaries."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)
        elif isinstance(value, dict):
            yield from tensors(value.values())


def kind(device: object) -> str | None:
    """ "cuda", "cpu" or another device type; None if the object names none. Raises RuntimeError for another GPU."""
    if isinstance(device, int) and not isinstance(device, bool):
        device = torch.device("cuda", device)
    elif isinstance(device, str):
        try:
            device = torch.device(device)
        except RuntimeError:
            return None
    if not isinstance(device, torch.device):
        return None
    if device.type == "cuda" and device.index not in (None, 0):
        raise RuntimeError(f"CUDA error: invalid device ordinal\nThere is one emulated device, cuda:0; got {device}")
    return device.type


# Moves of data, which torch's CPU kernels lack for some strides of the types WITHOUT_KERNELS.
MOVES = {
    Tensor.clone,
    Tensor.contiguous,
    Tensor.copy_,
    Tensor.reshape,
    Tensor.flatten,
    Tensor.repeat,
    Tensor.__getitem__,
    Tensor.__setitem__,
    torch.clone,
    torch.cat,
    torch.stack,
    torch.reshape,
}
WITHOUT_KERNELS = {torch.float4_e2m1fn_x2}
_MISSING = re.compile(r"Could not run '(\S+)' with arguments from the 'CPU' backend")


def call_on_cpu(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """func(*args, **kwargs), as a move of bytes where torch's CPU kernels lack it for a packed type.

    Raises NotImplementedError with one line for an operation that has kernels for CUDA only.
    """
    try:
        return func(*args, **kwargs)
    except NotImplementedError as error:
        missing = _MISSING.match(str(error))
        if missing and any(map(on_device, tensors((*args, *kwargs.values())))):
            raise NotImplementedError(
                f"{missing[1]} is not modelled: torch has a kernel of it for CUDA, and none for the CPU"
            ) from None
        kinds = {tensor.dtype for tensor in tensors(args) if tensor.dtype in WITHOUT_KERNELS}
        if func not in MOVES or len(kinds) != 1:
            raise
    result = func(*_as_bytes(args), **kwargs)
    return args[0] if func is Tensor.copy_ else result.view(kinds.pop()) if isinstance(result, Tensor) else result


def _as_bytes(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.view(torch.uint8) if value.dtype in WITHOUT_KERNELS else value
    return type(value)(map(_as_bytes, value)) if isinstance(value, (list, tuple)) else value


class _Moves(threading.local):
    own = False  # True while the emulator itself copies, by torch's kernels and not by the program's for CUDA


moves = _Moves()


def _copy(tensor: Tensor) -> Tensor:
    before, moves.own = moves.own, True
    try:
        return call_on_cpu(Tensor.clone, (tensor,), {})
    finally:
        moves.own = before


def place(
    result: Any, wanted: str | None, sources: Sequence[Tensor], explicit: bool = False, aliasing: bool = False
) -> Any:
    """The result of a call, on the device `wanted`.

    explicit: the program itself named the device; then a result that shares memory with an input on the other device is
    copied. aliasing: the result may share memory with data other than tensors.
    """
    if isinstance(result, (list, tuple)):
        for item in result:
            place(item, wanted, sources)
        return result
    if not isinstance(result, Tensor) or wanted not in ("cuda", "cpu"):
        return result
    storage = storage_of(result)
    if wanted == "cpu":
        return _copy(result) if hasattr(storage, "emulated_allocation") else result
    if not hasattr(storage, "emulated_allocation"):
        shared = aliasing or any(storage_of(source) is storage for source in sources)
        if shared and not explicit:
            return result
        result = _copy(result) if shared else result
    put_on_device(result)
    return result


# Operations that take tensors of both devices. An indexing operation is on the device of the indexed tensor.
CROSS_DEVICE: set[Callable[..., Any]] = {
    Tensor.copy_,
    Tensor.data.__set__,  # type: ignore[attr-defined]  # a descriptor; an attribute in torch's stub
    torch._has_compatible_shallow_copy_type,
    torch.as_tensor,
    torch.asarray,
    torch.tensor_split,
}
RECURRENT: set[Callable[..., Any]] = {torch.gru, torch.lstm, torch.rnn_tanh, torch.rnn_relu}
_PACKED = RECURRENT | {torch._pack_padded_sequence, torch._pad_packed_sequence}
"""Operations on sequences of different lengths, which are on the host."""
INDEXING = {Tensor.__getitem__, Tensor.__setitem__, Tensor.index_put, Tensor.index_put_, torch.index_put}


def check_devices(func: Callable[..., Any], args: tuple[Any, ...], sources: Sequence[Tensor]) -> None:
    """Raise torch's RuntimeError if tensors of both devices meet. A host tensor without dimensions fits any device."""
    if func in CROSS_DEVICE:
        return
    if func in INDEXING:
        index = args[1] if isinstance(args[1], (list, tuple)) else (args[1],)
        if not on_device(args[0]) and any(on_device(tensor) for tensor in tensors(index)):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        return
    if func in _PACKED:
        if any(on_device(source) and not source.is_floating_point() for source in sources):
            raise RuntimeError(f"lengths of sequences should be on the CPU, but are on cuda:0 (in {func.__name__})")
        sources = [source for source in sources if source.is_floating_point()]
    if any(not on_device(source) and source.dim() > 0 for source in sources):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
            f"(in {getattr(func, '__name__', func)})"
        )
