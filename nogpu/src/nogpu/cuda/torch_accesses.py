"""Reports reads and writes of device memory by torch's operations to the sanitizer, as work of torch's current queue.

An operation writes the tensors whose version it changes, and results in memory of their own; it reads its other
tensors, unless its results are views of them. The host waits for an operation that returns a number, a size or a tensor
of the CPU, or that takes a tensor of the CPU (CUDA semantics of torch, "Asynchronous execution").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from nogpu.cuda import current_queue, queues, torch_answers, torch_pinned
from nogpu.cuda.torch_memory import Tensor, on_device, storage_of, tensors
from nogpu.execution.device import queue_order
from nogpu.hardware.allocations import Allocation

Function = Callable[..., Any]

_READS_TO_HOST = {
    *(
        getattr(Tensor, name)
        for name in ("item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__complex__")
    ),
    *(getattr(Tensor, name) for name in ("__contains__", "__repr__", "__format__", "equal", "allclose", "is_nonzero")),
    *(torch.equal, torch.allclose, torch.is_nonzero),
}
"""Operations whose result is the host's."""

_SIZES = {
    *(getattr(Tensor, name) for name in ("nonzero", "masked_select", "unique", "unique_consecutive")),
    *(torch.nonzero, torch.masked_select, torch.unique, torch.unique_consecutive, torch.argwhere, Tensor.argwhere),
    *(torch.bincount, Tensor.bincount, torch.combinations),
}
"""Operations of whose result the host learns the size."""

_REPEATS = torch.repeat_interleave, Tensor.repeat_interleave
_MASKS = torch.bool, torch.uint8

_MOVES = {Tensor.to, Tensor.cuda, Tensor.cpu, Tensor.copy_, torch.tensor, torch.as_tensor, torch.asarray}
"""Operations for which the host waits if they move data from it or to it, unless called with non_blocking."""


def _box(tensor: Tensor) -> queues.Box:
    size = tensor.element_size()
    return tensor.data_ptr(), (*tensor.shape, size), (*(stride * size for stride in tensor.stride()), 1)


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def follow(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any], call: Callable[[], Any], empty: bool) -> Any:
    """Run a call of torch's that may use data, and report its accesses; the result is the call's.

    empty: True if the call leaves its result unwritten.
    """
    sources = [*tensors(args), *tensors(kwargs.values())]
    given = [source for source in sources if on_device(source)]
    versions = [_version(source) for source in given]
    is_pinned = any(torch_pinned.allocation_of(source) is not None for source in sources)
    is_alone = not given and not is_pinned
    on_host = [] if is_alone else [(source, _version(source)) for source in sources if not on_device(source)]
    result = call()
    found = [each for each in tensors((result,)) if on_device(each)]
    own = {storage_of(source) for source in sources}
    if not given and not found:
        if is_pinned and not empty:
            uses = [(source, _version(source) != version) for source, version in on_host]
            _accessed_by_host(func, uses, any(storage_of(each) not in own for each in tensors((result,))))
        return result
    written = [source for source, version in zip(given, versions) if _version(source) != version]
    made = [each for each in found if storage_of(each) not in own]
    to_host = func in _READS_TO_HOST or any(storage_of(each) not in own for each in _on_host(result))
    to_host = to_host or any(_version(source) != version for source, version in on_host)
    learns = func in _READS_TO_HOST or func in _SIZES or bool(given) and _host_learns(func, args, kwargs)
    if not (written or (made and not empty) or to_host or learns):
        return result
    changed = {id(source) for source in written}
    reads = [] if empty else [source for source in given if id(source) not in changed]
    if func is Tensor.__setitem__ and written:
        written = _part(*args[:2])
    moves = func in _MOVES and (any(not on_device(source) for source in sources) or not sources or to_host)
    copied = [(source, _version(source) != version) for source, version in on_host] if moves else []
    copied += [(each, True) for each in _on_host(result) if moves and storage_of(each) not in own]
    _accessed(func, reads, [*written, *(() if empty else made)], copied)
    if learns or ((moves or to_host) and not _is_non_blocking(func, args, kwargs)):
        queues.waited(current_queue.get())
    return result


def _on_host(result: Any) -> list[Tensor]:
    return [each for each in tensors((result,)) if not on_device(each)]


def _part(tensor: Tensor, index: Any) -> list[Tensor]:
    """The tensor that an assignment to items writes: a view of the part, or the whole tensor if no view is the part."""
    try:
        part = tensor.detach()[index]
    except (IndexError, TypeError, RuntimeError):
        return [tensor]
    return [part if storage_of(part) is storage_of(tensor) else tensor]


def _host_learns(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True if the host waits because of a call's arguments: values decide a size or a place, or are moved first."""
    if func is Tensor.__getitem__:
        return _index_waits(*args)
    if func is Tensor.__setitem__:
        target, index, value = args
        is_number = not isinstance(value, Tensor) or (not on_device(value) and value.dim() == 0)
        is_filled = is_number and isinstance(index, Tensor) and on_device(index) and index.dtype in _MASKS
        is_moved = not is_number and on_device(target) and not on_device(value)
        return is_moved or (not is_filled and _index_waits(target, index))  # a mask and a number are masked_fill_
    if func in _REPEATS:
        return len([*tensors(args), *tensors(kwargs.values())]) > 1 and kwargs.get("output_size") is None
    if func is Tensor.new_tensor:
        return not any(map(on_device, tensors((*args[1:], *kwargs.values()))))
    return func in (torch.where, Tensor.where) and len(args) + len(kwargs) == 1


def _index_waits(tensor: Tensor, index: Any) -> bool:
    """True if an index has a mask, whose elements are counted, a number on the device, or values of the host."""
    for part in index if isinstance(index, tuple) else (index,):
        bounds = (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)
        numbers = [each for each in bounds if isinstance(each, Tensor) and on_device(each)]
        if any(each.dim() == 0 or each.dtype in _MASKS for each in numbers):
            return True
        is_values = isinstance(part, list) or (isinstance(part, Tensor) and not on_device(part) and part.dim() > 0)
        if is_values and on_device(tensor):
            return True
    return False


def _is_non_blocking(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return func in _MOVES and torch_answers.non_blocking(args[1:], kwargs)


def _accessed(
    func: Function, reads: Iterable[Tensor], writes: Iterable[Tensor], copied: Iterable[tuple[Tensor, bool]]
) -> None:
    """Reports an operation on the device. copied: tensors of the host, each with True if the operation writes it."""
    boxes = [[_box(tensor) for tensor in of if storage_of(tensor) is not None] for of in (reads, writes)]
    node, pinned = queues.accessed(current_queue.get(), f"torch's {func.__name__}", *boxes), _pinned(copied)
    if pinned:
        queue_order().touches_pinned(torch_pinned.MEMORY, node, pinned)


def _pinned(accesses: Iterable[tuple[Tensor, bool]]) -> list[tuple[Allocation, tuple[queues.Box, bool]]]:
    found = ((torch_pinned.allocation_of(tensor), (_box(tensor), is_write)) for tensor, is_write in accesses)
    return [(allocation, access) for allocation, access in found if allocation is not None and all(access[0][1])]


def _accessed_by_host(func: Function, sources: list[tuple[Tensor, bool]], makes: bool) -> None:
    """Reports an operation on the host. sources: its tensors, each with True if it has been written. makes: the result
    has memory of its own. Views are no access, nor are operations that need a tensor's form only.
    """
    is_form = func.__name__.endswith("_like") or func.__name__.startswith("new_")
    if func in _READS_TO_HOST or any(is_write for _, is_write in sources) or (makes and not is_form):
        what, accesses = f"torch's {func.__name__}", _pinned(sources)
        queue_order().touched_by_host(torch_pinned.MEMORY, what, accesses)
