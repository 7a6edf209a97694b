"""Gradients on the emulated device.

The autograd engine calls functions written in Python with torch's function modes as they were when it was started, and
with gradients that C++ has made: plain CPU tensors. So the device's mode is on while the engine runs, and a gradient is
put on the device of the tensor that it belongs to where Python sees it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils.checkpoint

from nogpu.cuda.torch_memory import Tensor, on_device, place

Function = Callable[..., Any]


def _on(gradient: Any, cuda: bool) -> Any:
    """The gradient, put on the device, or on the host."""
    if not isinstance(gradient, Tensor):
        return gradient
    with torch._C.DisableTorchFunction():  # the mode may be on
        return place(gradient, "cuda" if cuda else "cpu", ())


def plain(mode: Any, func: Function, *args: Any, **kwargs: Any) -> Any:
    """Answers Tensor.backward and torch.autograd.backward by torch's own, whose engine switches the mode on again."""
    return func(*args, **kwargs)


def gradients(mode: Any, func: Function, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Answers torch.autograd.grad, with each gradient on its input's device."""
    sources = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    results = func(outputs, inputs, *args, **kwargs)
    return tuple(_on(result, on_device(source)) for result, source in zip(results, sources))


def gradient_of(mode: Any, func: Function, tensor: Tensor) -> Tensor | None:
    """Answers Tensor.grad, with the gradient on the tensor's device."""
    gradient = func(tensor)
    if gradient is None or on_device(gradient) == on_device(tensor):
        return gradient
    placed = _on(gradient, on_device(tensor))
    if placed is not gradient:
        tensor.grad = placed
    return placed


def register_hook(mode: Any, func: Function, tensor: Tensor, hook: Function) -> Any:
    """Answers Tensor.register_hook: the hook sees the gradient on the tensor's device."""
    cuda = on_device(tensor)

    @functools.wraps(hook, updated=())
    def placed(gradient: Tensor) -> Tensor | None:
        return hook(_on(gradient, cuda))

    return func(tensor, placed)


def _remembering(original: Function) -> Function:
    """autograd.Function.apply that notes, in the node of the graph, which of the results are on the device."""

    @functools.wraps(original)
    def apply(kind: type, *args: Any, **kwargs: Any) -> Any:
        results = original.__get__(None, kind)(*args, **kwargs)
        listed = results if isinstance(results, tuple) else (results,)
        nodes = {id(r.grad_fn): r.grad_fn for r in listed if isinstance(r, Tensor) and r.grad_fn is not None}
        for node in nodes.values():
            if isinstance(node, torch.autograd.function.BackwardCFunction):
                node.emulated_places = [isinstance(r, Tensor) and on_device(r) for r in listed]
        return results

    return apply


def _placing(original: Function) -> Function:
    """BackwardCFunction.apply or apply_boxed, with the gradient of each result on that result's device."""

    @functools.wraps(original)
    def apply(node: Any, *gradients: Any) -> Any:
        places = getattr(node, "emulated_places", None)
        if places is None:
            return original(node, *gradients)
        boxed = len(gradients) == 1 and isinstance(gradients[0], list)
        given: Sequence[Any] = gradients[0] if boxed else gradients
        placed = [_on(gradient, cuda) for gradient, cuda in zip(given, places)]
        if boxed:
            gradients[0][:] = placed
            return original(node, *gradients)
        return original(node, *placed)

    return apply


def _on_device(original: Function, mode: Any) -> Function:
    """The start of the engine, under the device's mode, so that functions in Python see the device."""

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return original(*args, **kwargs)

    return run


def _form(saved: Tensor) -> dict[str, Any]:
    """The properties of a saved tensor that a checkpoint compares. A result has a device only behind its operation."""
    return {"shape": saved.shape, "dtype": saved.dtype}


def install(mode: Any) -> None:
    """Make the autograd engine run under the device's function mode."""
    checkpoint: Any = torch.utils.checkpoint
    checkpoint._allowed_determinism_checks_to_fns[checkpoint._DEFAULT_DETERMINISM_MODE] = _form
    function: Any = torch.autograd.function
    function.Function.apply = classmethod(_remembering(function.Function.__dict__["apply"]))
    for name in ("apply", "apply_boxed"):
        if hasattr(function.BackwardCFunction, name):
            setattr(function.BackwardCFunction, name, _placing(getattr(function.BackwardCFunction, name)))
    engine: Any = _on_device(torch.autograd.graph._engine_run_backward, mode)
    for owner in (torch.autograd, torch.autograd.graph):
        owner._engine_run_backward = engine  # type: ignore[attr-defined]  # a patch is the purpose
