"""Torch's operations while a CUDA graph is captured: a replay does them again, into the capture's tensors.

The capture itself does an operation once, for the shapes of its results, and puts back what it has written.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from nogpu.cuda import current_queue, graphs
from nogpu.cuda.torch_answers import ANSWERS
from nogpu.cuda.torch_memory import Tensor, call_on_cpu, on_device, storage_of, tensors
from nogpu.execution.device import run_pending

Function = Callable[..., Any]

# Answers that wait for a tensor's data on the host.
_READS = {Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__repr__, Tensor.__format__}
# Gradients, whose operations the function mode does not see, and results with as many elements as the data say.
_REFUSED = {Tensor.backward, torch.autograd.backward, torch.autograd.grad}
_REFUSED |= {Tensor.nonzero, torch.nonzero, Tensor.masked_select, torch.masked_select, Tensor.unique, torch.unique}
_BUILT_IN = types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType


def capturing() -> bool:
    """True if a graph is captured from torch's current queue."""
    return graphs.capturing(current_queue.get())


def record(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Callable[[], Any]) -> Any:
    """The result of a call whose work a replay does. answer: does it now, by the rules of the device.

    Raises NotImplementedError for a call that waits for data of the device, or for gradients.
    """
    sources = [each for each in tensors((args, kwargs)) if on_device(each)]
    if sources and func in _REFUSED:
        graphs.refuse(f"torch.{func.__name__}")
    kept = map(_memory, sources) if _may_write(func, kwargs) else ()
    before = [(each, call_on_cpu(Tensor.clone, (each,), {})) for each in kept]
    versions = [each._version for each in sources]
    with graphs.suspended():
        result = answer()
        results = list(tensors((result,)))
        if sources and not results and result is not None and func in ANSWERS.keys() - _READS:
            return result
        if sources and (result is not None and not results or not all(map(on_device, results))):
            graphs.refuse(f"torch.{func.__name__}")
        for each, content in before:
            call_on_cpu(Tensor.copy_, (each, content), {})
    written = versions != [each._version for each in sources]
    made = [each for each in results if on_device(each) and not _shares(each, sources)]
    if written or made:
        graphs.submit(lambda: _again(answer, results, sources), current_queue.get(), graphs.KERNEL)
    return result


def _again(answer: Callable[[], Any], results: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Do an operation's work. The sanitizer does not follow it: it knows the order of a graph's launches alone."""
    run_pending()
    with torch._C.DisableTorchFunction():
        for old, new in zip(results, tensors((answer(),)), strict=True):
            if not _shares(old, sources):
                call_on_cpu(Tensor.copy_, (old.detach(), new.detach()), {})


def _memory(tensor: Tensor) -> Tensor:
    """The elements from a tensor's first to its last in memory: torch copies to no tensor that has some twice."""
    count = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
    return tensor.detach().as_strided((count,), (1,))


def _may_write(func: Function, kwargs: dict[str, Any]) -> bool:
    """True if a call may write into its arguments. Of functions in Python and a library's only running them tells."""
    name = func.__name__
    in_place = name.startswith("__i") or name == "__setitem__" or name.endswith("_") and not name.endswith("__")
    return in_place or "out" in kwargs or not isinstance(func, _BUILT_IN)


def _shares(tensor: Tensor, sources: Sequence[Tensor]) -> bool:
    return any(storage_of(tensor) is storage_of(source) for source in sources)
