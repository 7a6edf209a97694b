"""Torch's operations that need not run again: a benchmark's reference is called with the same operands many times.

The result of an operation that is a function of its operands is known while watches of their memory are under way
(`torch_watches`). A result that the program has dropped is given out again: its memory is kept, and still watched, so
that it has the bytes that the operation has left. An `out` that nothing has written to since is left as it is.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.autograd.forward_ad

from nogpu.cuda import torch_graphs, torch_watches
from nogpu.cuda.torch_memory import RECURRENT, Tensor, on_device, storage_of
from nogpu.execution.device import Device

Function = Callable[..., Any]

LEAST = 1 << 18  # bytes of the operands together: operations on fewer take as long as what is done here
SMALL = 1 << 16  # bytes of memory that is not watched but copied and compared
CALLS = 32  # that are remembered
KEPT = 1 << 30  # most bytes of results that are kept
RESULTS = 3  # of a call, that are kept: one is made before the program drops the one before

_NAMES = (
    *("add", "sub", "mul", "div", "true_divide", "maximum", "minimum", "neg", "abs", "pow", "square", "exp", "exp2"),
    *("log", "sqrt", "rsqrt", "reciprocal", "erf", "sin", "cos", "tanh", "sigmoid", "clamp", "relu", "relu6", "gelu"),
    *("silu", "mish", "elu", "leaky_relu", "hardswish", "hardsigmoid", "hardtanh", "hardshrink", "softplus", "softmax"),
    *("log_softmax", "layer_norm", "rms_norm", "group_norm", "sum", "mean", "amax", "amin", "max", "min", "prod"),
    *("argmax", "argmin", "var", "std", "cumsum", "norm", "dot", "mv", "mm", "bmm", "matmul", "addmm", "baddbmm"),
    *("linear", "einsum", "conv1d", "conv2d", "conv3d", "__add__", "__radd__", "__sub__", "__rsub__", "__mul__"),
    *("__rmul__", "__truediv__", "__matmul__", "__rmatmul__", "__neg__", "__pow__", "cat", "stack", "sort", "topk"),
    *("cumprod", "logsumexp", "cross_entropy", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    *(f"{kind}_pool{rank}d" for kind in ("max", "avg", "adaptive_max", "adaptive_avg") for rank in (1, 2, 3)),
    *("scaled_dot_product_attention", "gru", "lstm", "rnn_tanh", "rnn_relu"),
)
_FUNCTIONS = {
    getattr(owner, name)
    for owner in (torch, Tensor, torch.nn.functional, torch._C._nn)
    for name in _NAMES
    if hasattr(owner, name)
}
"""Operations whose results are a function of their arguments, in memory of their own, unless they drop numbers."""

_SUBNORMAL = 5e-324

_lock = threading.RLock()


class _Result:
    """A result that is kept, and may be the program's at the moment."""

    def __init__(self, result: Tensor) -> None:
        self._result = result
        self.nbytes = result.untyped_storage().nbytes()
        self._watch = torch_watches.watch(result.data_ptr(), True)
        self._memory: weakref.ref[Any] | None = None
        self._kind: Any = type("Lent", (ctypes.c_uint8 * self.nbytes,), {})  # a subclass has attributes

    @property
    def is_lent(self) -> bool:
        """True while the program has it."""
        return self._memory is not None and self._memory() is not None

    @property
    def is_whole(self) -> bool:
        """True if nothing has written to it."""
        return self._watch != 0 and torch_watches.watch(self._result.data_ptr(), False) == self._watch

    def lend(self) -> Tensor:
        """A tensor that has the result's memory, and a storage whose end is that of the loan."""
        memory = self._kind.from_address(self._result.data_ptr())
        memory.result = self._result  # lives as long as the storage
        self._memory = weakref.ref(memory)
        storage = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
        of = self._result
        return torch.empty(0, dtype=of.dtype, device="cpu").set_(storage, 0, of.shape, of.stride())


@dataclass
class _Part:
    """A tensor that a call returns, alone or in a tuple, as far as it is kept."""

    results: list[_Result] = field(default_factory=list)
    small: Tensor | None = None
    """Copy of a result that is too small to be watched."""

    @property
    def is_overwritten(self) -> bool:
        """True if the program has written to a result, and has dropped it."""
        return any(not each.is_lent and not each.is_whole for each in self.results)

    def known(self) -> Tensor | None:
        """The result, if it is known."""
        if self.small is not None:
            return self.small.clone()
        free = next((each for each in self.results if not each.is_lent and each.is_whole), None)
        return None if free is None else free.lend()

    def keep(self, result: Any, others: Sequence[Any]) -> Any:
        """The new result, whose memory is kept if it is known to be its own: that of none of the others."""
        storage = storage_of(result) if type(result) is Tensor else None
        if storage is None or result.storage_offset():
            return result
        if any(isinstance(each, Tensor) and storage_of(each) is storage for each in others):
            return result
        if storage.nbytes() < SMALL:
            self.small = result.clone()
            return result
        if len(self.results) == RESULTS:
            return result
        self.results.append(_Result(result))
        return self.results[-1].lend()


@dataclass
class _Call:
    """A function with its arguments."""

    operands: tuple[object, ...] | None = None
    """States of the operands (`_state`) with which the results have been made."""
    out: object = None
    """State of `out` behind the operation."""
    parts: list[_Part] = field(default_factory=list)
    kind: Callable[[list[Any]], Any] | None = None
    """Type of the tuple that the call returns; None of a call that returns one tensor."""
    in_vain: int = 0
    """Watches in a row that have saved nothing."""
    pause: int = 1
    """Calls that run before watches begin."""

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for part in self.parts for each in part.results)

    @property
    def is_overwritten(self) -> bool:
        """True if the program has written to a result, and has dropped it."""
        return any(part.is_overwritten for part in self.parts)

    def known(self, out: Tensor | None) -> Any:
        """The result, if it is known."""
        if out is not None:
            return out if self.out is not None and _state(out) == self.out else None
        known = [part.known() for part in self.parts]
        if not known or any(each is None for each in known):
            return None
        return known[0] if self.kind is None else self.kind(known)

    def keep(self, result: Any, sources: Sequence[Tensor]) -> Any:
        """The new result, whose memory is kept if it is known to be its own."""
        self.kind = type(result) if isinstance(result, tuple) else None
        whole = [*result] if isinstance(result, tuple) else [result]
        self.parts = self.parts or [_Part() for _ in whole]
        kept = [
            part.keep(each, [*sources, *(other for other in whole if other is not each)])
            for part, each in zip(self.parts, whole, strict=True)
        ]
        return kept[0] if self.kind is None else self.kind(kept)


_calls: dict[object, _Call] = {}


def run(
    func: Function, args: tuple[Any, ...], kwargs: dict[str, Any], sources: Sequence[Tensor], call: Callable[[], Any]
) -> Any:
    """The result of a call on tensors of the device, on the CPU: `call` makes it unless it is known."""
    if func not in _FUNCTIONS or _is_random(func, args, kwargs) or not _is_function_of(args, kwargs, sources):
        return call()
    out = kwargs.get("out")
    try:
        place = None if out is None else _place(out)
        key = func, _form((args, kwargs | {"out": None})), place, _settings()
        hash(key)
    except TypeError:  # an argument of another kind
        return call()
    with _lock:
        known = _calls.pop(key, None) or _Call()
        _calls[key] = known  # the last one used
        while len(_calls) > CALLS or sum(each.nbytes for each in _calls.values()) > KEPT:
            del _calls[next(iter(_calls))]
        operands = [each for each in sources if each is not out]
        states = tuple(map(_state, operands))
        are_unchanged = known.operands is not None and states == known.operands
        if are_unchanged:
            result = known.known(out)
            if result is not None:
                known.in_vain = 0
                return result
        if not are_unchanged or out is not None or known.is_overwritten:
            known.operands, known.parts = None, []
            if known.pause:
                known.pause -= 1
                return call()
            known.in_vain += 1
            known.pause = (1 << known.in_vain) - 1
            states = tuple(_state(each, True) for each in operands)
        known.operands = None if None in states else states
        result = call()
        if known.operands is None:
            return result
        if out is None:
            return known.keep(result, sources)
        known.out = _state(out, True)
        return result


def _is_random(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True if an operation may drop numbers: the one float among the arguments of a recurrent layer is the share."""
    if func is torch.nn.functional.scaled_dot_product_attention:
        return bool(kwargs.get("dropout_p", args[4] if len(args) > 4 else 0))
    return func in RECURRENT and any(isinstance(each, float) and each for each in args)


def _is_function_of(args: tuple[Any, ...], kwargs: dict[str, Any], sources: Sequence[Tensor]) -> bool:
    """True if a call's result depends on nothing else, and on enough that it is worth while to know it."""
    if Device.current().repeats is None or Device.current().sanitizer is not None:
        return False
    if torch.is_grad_enabled() and any(each.requires_grad for each in sources):
        return False
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    if torch.autograd.forward_ad._current_level >= 0 or torch_graphs.capturing():
        return False
    out = kwargs.get("out")
    if out is not None and (
        type(out) is not Tensor or any(storage_of(each) is storage_of(out) for each in sources if each is not out)
    ):
        return False
    plain = all(
        type(each) in (Tensor, torch.nn.Parameter) and each.layout is torch.strided and not each.is_neg()
        for each in sources
    )
    return plain and sum(map(_nbytes, sources)) >= LEAST and all(map(on_device, sources))


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _state(tensor: Tensor, begins: bool = False) -> object:
    """Value that is the same again only if the tensor's memory has the same bytes; None if that is not known."""
    storage = tensor.untyped_storage()
    allocation = Device.current().memory.starting_at(storage.data_ptr())
    if allocation is None:
        return None
    return bytes(allocation.data) if storage.nbytes() < SMALL else allocation.state(begins)


def _place(tensor: Tensor) -> tuple[object, ...]:
    return tensor.untyped_storage().data_ptr(), tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def _form(value: object) -> object:
    """An argument as a part of a key: tensors by their form, and by their place, small ones by their bytes.

    Raises TypeError for other kinds.
    """
    if isinstance(value, Tensor):
        state = _state(value)
        # Results that are too small to be watched are copied, so that they lie elsewhere each time.
        memory = (state, value.storage_offset()) if isinstance(state, bytes) else _place(value)
        return memory, value.dtype, tuple(value.shape), value.stride(), value.is_conj(), type(value)
    if isinstance(value, (list, tuple)):
        return type(value), *map(_form, value)
    if isinstance(value, dict):
        return tuple((name, _form(each)) for name, each in value.items())
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype)):
        return type(value), repr(value)  # 1, 1.0 and True differ, so do 0.0 and -0.0
    raise TypeError


def _settings() -> tuple[object, ...]:
    """Settings that results depend on, too."""
    return (
        *(torch.get_default_dtype(), torch.is_inference_mode_enabled(), torch.get_float32_matmul_precision()),
        *(torch.are_deterministic_algorithms_enabled(), torch.get_num_threads(), torch._C._get_mkldnn_enabled()),
        _SUBNORMAL * 1.0 == 0,  # torch.set_flush_denormal has no getter
    )


def _unlock() -> None:
    global _lock
    _lock = threading.RLock()  # a thread that the process does not have may hold the one before


os.register_at_fork(after_in_child=_unlock)
