"""Device "cuda" for a torch that has none.

A tensor of the device is a CPU tensor whose storage is registered as a device allocation; its views are on the device
too. A `TorchFunctionMode` sees every torch call of the program. It replaces the device "cuda" by "cpu", registers the
storages of results, copies a tensor that changes device, refuses to mix devices in an operation as torch does, and
answers `.device` and other properties that depend on the device. Memory is released with its storage.

Random numbers of the device come from torch's CPU generator. Sparse and quantized tensors of the device are refused.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.utils._device
import torch.utils.dlpack
from torch.overrides import TorchFunctionMode

from nogpu.cuda import (
    current_queue,
    torch_accesses,
    torch_autocast,
    torch_autograd,
    torch_compile,
    torch_cuda,
    torch_cuda_operations,
    torch_fakes,
    torch_graphs,
    torch_library,
    torch_pinned,
    torch_products,
    torch_profiler,
    torch_queues,
    torch_repeats,
    torch_watches,
)
from nogpu.cuda.torch_answers import ANSWERS, STORAGE_USES, may_use_data
from nogpu.cuda.torch_memory import (
    Tensor,
    call_on_cpu,
    check_devices,
    kind,
    leave_unwritten,
    on_device,
    place,
    record_queue,
    register_with_files,
    tensors,
    update_allocation,
)
from nogpu.execution.device import queue_order, run_pending

ALIGNMENT = 512  # bytes; torch's CUDA caching allocator rounds every block to them

# Functions whose result may share memory with data other than tensors.
ALIASING = {torch.as_tensor, torch.asarray}

# Functions whose result is memory that has not been written.
EMPTY = {torch.empty, torch.empty_like, torch.empty_strided, torch.empty_permuted, Tensor.new_empty}
EMPTY |= {Tensor.new_empty_strided}


# Functions that neither read nor write by themselves, or not by torch's operations alone.
UNFOLLOWED = {Tensor.backward, torch.autograd.backward, torch.autograd.grad, Tensor.register_hook, torch.device}


class VirtualDevice(TorchFunctionMode):
    """A function mode that runs torch calls on CPU tensors and keeps track of the tensors on the device."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if torch_fakes.concerns(func, args, kwargs):
            return torch_fakes.call(func, args, kwargs or {})
        if may_use_data(func, kwargs):
            if torch_graphs.capturing():
                return torch_graphs.record(func, args, kwargs or {}, lambda: self._answer(func, args, kwargs))
            run_pending()
            if queue_order() is not None and func not in UNFOLLOWED:
                call = functools.partial(self._answer, func, args, kwargs)
                return torch_accesses.follow(func, args, kwargs or {}, call, func in EMPTY)
        return self._answer(func, args, kwargs)

    def _answer(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        answer = ANSWERS.get(func)
        if answer is not None:
            return answer(self, func, *args, **(kwargs or {}))
        if func.__name__ == "__get__":  # a property of args[0]
            result = func(*args)
            return place(result, "cuda", args) if isinstance(result, Tensor) and on_device(args[0]) else result
        return self.call(func, args, dict(kwargs) if kwargs else {})

    @staticmethod
    def call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run `func` on the CPU. Its result is on the device that the call names, else on that of the inputs."""
        if isinstance(kwargs.get("generator"), torch_cuda.DefaultGenerator):  # it stands for that of torch's operations
            kwargs.pop("generator")
        device = kwargs.get("device")
        if device is None and func in torch.utils._device._device_constructors():
            device = torch.utils._device.CURRENT_DEVICE
        wanted = None if device is None else kind(device)
        if wanted == "cuda":
            kwargs["device"] = "cpu"
        if kwargs.get("pin_memory"):
            result = VirtualDevice.call(func, args, kwargs | {"pin_memory": False})
            return result if on_device(result) else torch_pinned.pin(result)
        if func is torch.tensor:  # It copies its argument; a list of device tensors makes a host tensor.
            sources = [source for source in args[:1] if isinstance(source, Tensor)]
        else:
            sources = [*tensors(args), *tensors(kwargs.values())]
        explicit = wanted is not None
        if any(on_device(source) for source in sources):
            check_devices(func, args, sources)
            wanted = wanted or "cuda"
            if torch_autocast.differs():
                with torch_autocast.as_on_device(func.__name__):
                    return place(call_on_cpu(func, args, kwargs), wanted, sources, explicit, func in ALIASING)
            result = torch_repeats.run(func, args, kwargs, sources, lambda: VirtualDevice._on_cpu(func, args, kwargs))
            return place(result, wanted, sources, explicit, func in ALIASING)
        result = place(call_on_cpu(func, args, kwargs), wanted, sources, explicit, func in ALIASING)
        if func in EMPTY:
            leave_unwritten(result)
        return result

    @staticmethod
    def _on_cpu(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call on tensors of the device, on the CPU."""
        narrow = torch_products.narrow_type(func, args, kwargs)
        if narrow is not None:
            return torch_products.product(func, narrow, args, kwargs)
        return call_on_cpu(func, args, kwargs)


def _from_dlpack(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """torch.from_dlpack that shares the memory of a tensor on the device; torch refuses one that requires gradients."""

    @functools.wraps(original)
    def from_dlpack(ext_tensor: Any, *args: Any, **kwargs: Any) -> Tensor:
        if isinstance(ext_tensor, Tensor) and ext_tensor.is_cuda and not ext_tensor.requires_grad:
            return ext_tensor.detach()
        return original(ext_tensor, *args, **kwargs)

    return from_dlpack


def _record_stream(tensor: Tensor, stream: torch_queues.Stream) -> None:
    """Answers Tensor.record_stream by `record_queue`."""
    record_queue(tensor, stream.cuda_stream)


def _to_dlpack(tensor: Tensor) -> Any:
    """torch.to_dlpack, which takes tensors that require gradients; Tensor.__dlpack__ refuses them."""
    return tensor.detach().__dlpack__()


def _behind_pending(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called after the pending launches have run."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        run_pending()
        return function(*args, **kwargs)

    return wrapped


def _resize(original: Callable[..., None]) -> Callable[..., None]:
    """UntypedStorage.resize_, which moves a storage, with its allocation moved as well."""

    @functools.wraps(original)
    def resize_(storage: torch.UntypedStorage, size: int) -> None:
        run_pending()
        original(storage, size)
        update_allocation(storage)

    return resize_


def _from_file(original: Callable[..., Any]) -> Callable[..., Any]:
    """UntypedStorage._set_from_file, which lets a file of Python's fill the memory by a system call."""

    @functools.wraps(original)
    def from_file(storage: torch.UntypedStorage, *args: Any) -> Any:
        run_pending()
        torch_watches.end(storage.data_ptr(), storage.nbytes())
        return original(storage, *args)

    return from_file


def _start_on_device(
    start: Callable[[threading.Thread], None], mode: VirtualDevice
) -> Callable[[threading.Thread], None]:
    """Thread.start for threads that see the device: a function mode belongs to one thread."""

    @functools.wraps(start)
    def wrapped(thread: threading.Thread) -> None:
        run = thread.run

        def run_on_device() -> None:
            with mode:
                run()

        thread.run = run_on_device  # type: ignore[method-assign]  # a patch is the purpose
        start(thread)

    return wrapped


@functools.cache
def install() -> None:
    """Give this process the device. Raises RuntimeError if torch's allocations cannot be aligned as a device's are."""
    if not torch_watches.align(ALIGNMENT):
        raise RuntimeError(
            "torch's allocator could not be aligned: its libc10.so does not import posix_memalign and free"
        )
    torch_cuda.install()
    torch._C._cuda_getCurrentRawStream = lambda device: current_queue.get()
    exchange = {"from_dlpack": _from_dlpack(torch.utils.dlpack.from_dlpack), "to_dlpack": _to_dlpack}
    for name, function in exchange.items():
        setattr(torch, name, function)
        setattr(torch.utils.dlpack, name, function)
    Tensor.record_stream = _record_stream  # type: ignore[assignment, method-assign]  # torch's takes no queue of ours
    for owner, name in STORAGE_USES:
        setattr(owner, name, _behind_pending(getattr(owner, name)))
    storage: Any = torch.UntypedStorage
    storage.resize_ = _resize(storage.resize_)
    storage._set_from_file = _from_file(storage._set_from_file)
    mode = VirtualDevice()
    mode.__enter__()
    torch_autograd.install(mode)
    torch_fakes.install(mode)
    torch_compile.install()
    torch_cuda_operations.install()
    register_with_files()
    torch_library.install(mode)
    torch_profiler.install()
    start: Any = _start_on_device(threading.Thread.start, mode)
    threading.Thread.start = start  # type: ignore[method-assign]  # a patch is the purpose


def install_tvm_ffi() -> None:
    """Make TVM-FFI take tensors by `Tensor.__dlpack__`; its faster way would find them on the CPU."""
    import tvm_ffi

    if hasattr(Tensor, "__dlpack_c_exchange_api__"):
        del Tensor.__dlpack_c_exchange_api__
    original = tvm_ffi.from_dlpack

    @functools.wraps(original)
    def from_dlpack(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        # Unlike `Tensor.__dlpack__`, the faster way takes tensors that require gradients.
        return original(tensor.detach() if isinstance(tensor, Tensor) else tensor, *args, **kwargs)

    tvm_ffi.from_dlpack = from_dlpack
