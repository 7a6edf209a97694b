"""torch.autocast("cuda") on the emulated device, by torch's autocast for CPU tensors.

A call on tensors of the device runs with CPU autocast set as CUDA's is. The two have different lists of operations:
those that only CUDA's autocast casts get a kernel here, and those that only the CPU's does are refused.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

Cast = Callable[[list[torch.Tensor]], torch.dtype]

# Operations that CUDA's autocast (ATen/autocast_mode.h) runs in the narrow type, in float32, and in the widest type
# among their operands, in any version of torch (rms_norm not in 2.11). CPU autocast leaves them alone.
NARROW = (
    *("_convolution", "convolution", "addmv", "addr", "einsum", "mv", "chain_matmul", "linalg_multi_dot"),
    *("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"),
    "_scaled_dot_product_flash_attention",
)
WIDE = (
    *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh"),
    *("tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm"),
    *("rms_norm", "group_norm", "frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim", "cosine_similarity"),
    *("dist", "pdist", "renorm", "logsumexp", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "sum"),
    *("linalg_vector_norm", "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum.dim_IntList"),
    *("norm.Scalar", "norm.ScalarOpt_dim"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d"),
    *("_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d"),
    *("_upsample_bilinear2d_aa", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bicubic2d_aa"),
)
WIDEST = ("addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "index_put", "tensordot", "scatter_add")
CUDNN = ("cudnn_convolution", "cudnn_convolution_transpose")
"""Operations of CUDA's list that no CPU tensor reaches."""
ALIKE = {"cat", "stack", "conv1d", "conv2d", "conv3d", "cross_entropy_loss"}
"""Operations of the CPU's list alone whose results are those of CUDA, as they promote anyway or call others."""
OTHERWISE = {"binary_cross_entropy", "grid_sampler"}
"""Operations of both lists, which cast them to different types."""


class _State(threading.local):
    on_device = False  # True while a call on tensors of the device autocasts as CUDA's


_state = _State()


def _narrow(tensors: list[torch.Tensor]) -> torch.dtype:
    return torch.get_autocast_dtype("cpu")


def _wide(tensors: list[torch.Tensor]) -> torch.dtype:
    return torch.float32


def _widest(tensors: list[torch.Tensor]) -> torch.dtype:
    wide = any(tensor.dtype == torch.float32 for tensor in tensors)
    return torch.float32 if wide else torch.get_autocast_dtype("cpu")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The operands among values that autocast may cast."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() and value.dtype != torch.float64:
            yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(item, dtype) for item in value)
    return value.to(dtype) if any(True for _ in _tensors(value)) else value


def _kernel(name: str, choose: Cast) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
        with torch._C._ExcludeDispatchKeyGuard(key):
            if _state.on_device and kwargs.get("dtype") is None:
                dtype = choose(list(_tensors(args)))
                args = tuple(_cast(value, dtype) for value in args)
            return operation(*args, **kwargs)

    return kernel


@functools.cache
def _library() -> torch.library.Library:
    """The kernels of CPU autocast that the CUDA list of this torch needs, registered by the first call."""
    library = torch.library.Library("aten", "IMPL")
    listed = set(torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA"))
    for names, choose in ((NARROW, _narrow), (WIDE, _wide), (WIDEST, _widest)):
        for name in (name for name in names if f"aten::{name}" in listed):
            library.impl(name, _kernel(name, choose), "AutocastCPU")
    return library


@functools.cache
def _refused() -> set[str]:
    """Names of the functions that CPU autocast casts otherwise than CUDA's."""
    listed = torch._C._dispatch_get_registrations_for_dispatch_key
    ours = {f"aten::{name}" for name in (*NARROW, *WIDE, *WIDEST)}
    names = {
        name.partition("::")[2].partition(".")[0]
        for name in {*listed("AutocastCPU")} - {*listed("AutocastCUDA")} - ours
    }
    return {name.removeprefix(prefix) for name in names - ALIKE for prefix in ("", "linalg_", "fft_")} | OTHERWISE


def differs() -> bool:
    """True if calls on the device need `as_on_device`."""
    return torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")


@contextlib.contextmanager
def as_on_device(name: str = "") -> Iterator[None]:
    """A context in which torch's operations on CPU tensors autocast as CUDA's do.

    name: the called function's. Raises NotImplementedError for one that CPU autocast would run in another type.
    """
    enabled, dtype = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    if enabled:
        if name in _refused():
            raise NotImplementedError(
                f"torch.autocast('cuda') around {name} is not modelled by the emulated device: the CPU's autocast "
                "runs it in another type than CUDA's; disable autocast around it"
            )
        _library()
    before = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), _state.on_device
    torch.set_autocast_enabled("cpu", enabled)
    torch.set_autocast_dtype("cpu", dtype)
    _state.on_device = enabled
    try:
        yield
    finally:
        torch.set_autocast_enabled("cpu", before[0])
        torch.set_autocast_dtype("cpu", before[1])
        _state.on_device = before[2]
