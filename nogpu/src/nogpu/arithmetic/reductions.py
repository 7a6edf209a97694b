"""Element-wise reductions of asynchronous copies (PTX ISA, "cp.reduce.async.bulk", "cp.reduce.async.bulk.tensor").

Each element of the destination becomes op(destination, source) in the element's own type: integers wrap, floats are
rounded to nearest even, `inc` and `dec` wrap at the source as `atom` does. Minimum and maximum prefer numbers to NaN
and order -0 below +0.

Sums of "f32.ftz" flush subnormal inputs and results to zeros of the same sign. Bulk sums of f32 do so, and tensor sums
where the tensor map's element type says so (an assumption). Sums of f16, bf16 (always `.noftz`) and f64 do not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_INTEGERS = ("u32", "s32", "u64")
OPERATIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "global": {
        "and": ("b32", "b64"),
        "or": ("b32", "b64"),
        "xor": ("b32", "b64"),
        "add": (*_INTEGERS, "f32", "f64"),
        "add.noftz": ("f16", "bf16"),
        "inc": ("u32",),
        "dec": ("u32",),
        "min": (*_INTEGERS, "s64", "f16", "bf16"),
        "max": (*_INTEGERS, "s64", "f16", "bf16"),
    },
    "shared::cluster": {
        "and": ("b32",),
        "or": ("b32",),
        "xor": ("b32",),
        "add": _INTEGERS,
        "inc": ("u32",),
        "dec": ("u32",),
        "min": ("u32", "s32"),
        "max": ("u32", "s32"),
    },
}
"""cp.reduce.async.bulk: destination's space -> operation -> element types."""

TENSOR_OPERATIONS: dict[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", "f16", "bf16", "f32", "f32.ftz", "f64"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("u32", "s32", "u64", "s64"),
    "or": ("u32", "s32", "u64", "s64"),
    "xor": ("u32", "s32", "u64", "s64"),
}
"""cp.reduce.async.bulk.tensor: operation -> element types of the tensor map."""

_DTYPES = {
    **{"u32": np.uint32, "b32": np.uint32, "s32": np.int32, "u64": np.uint64, "b64": np.uint64, "s64": np.int64},
    **{"f16": np.float16, "f32": np.float32, "f32.ftz": np.float32, "f64": np.float64, "bf16": np.uint16},
}
_NANS = {np.float16: (np.uint16, 0x7FFF), np.float32: (np.uint32, 0x7FFFFFFF)}


def _from_bf16(row: np.ndarray) -> np.ndarray:
    """bf16 bits, uint16[...] -> float32[...]."""
    return (row.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _bf16_bits(values: np.ndarray) -> np.ndarray:
    """float32 -> bf16 bits (uint16), to nearest even; NaN becomes the canonical one."""
    bits = values.view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return np.where(np.isnan(values), np.uint16(0x7FFF), (bits >> np.uint32(16)).astype(np.uint16))


def _flush(values: np.ndarray) -> np.ndarray:
    """The values with zeros of the same sign in place of subnormals."""
    zeros = np.copysign(values.dtype.type(0), values)
    return np.where(np.abs(values) < np.finfo(values.dtype).tiny, zeros, values)


def _inc(old: np.ndarray, limit: np.ndarray) -> np.ndarray:
    return np.where(old >= limit, np.uint32(0), old + np.uint32(1))


def _dec(old: np.ndarray, limit: np.ndarray) -> np.ndarray:
    return np.where((old == 0) | (old > limit), limit, old - np.uint32(1))


def _least(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    picked = np.fmin(old, new)
    if old.dtype.kind != "f":
        return picked
    return np.where((old == 0) & (new == 0), np.where(np.signbit(old), old, new), picked)


def _greatest(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    picked = np.fmax(old, new)
    if old.dtype.kind != "f":
        return picked
    return np.where((old == 0) & (new == 0), np.where(np.signbit(old), new, old), picked)


_COMBINE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "min": _least,
    "max": _greatest,
    "inc": _inc,
    "dec": _dec,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _canonical(values: np.ndarray) -> np.ndarray:
    """The values with the canonical NaN in place of NaNs of half and single precision."""
    unsigned, code = _NANS.get(values.dtype.type, (None, 0))
    if unsigned is None:
        return values
    return np.where(np.isnan(values), np.array(code, unsigned).view(values.dtype), values)


def combined(operation: str, type_name: str, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """op(old, new) of each element, uint8 of the sources' shape.

    operation, type_name: as in OPERATIONS or TENSOR_OPERATIONS. old, new: uint8[..., n], whole elements along the last
    axis, contiguous there.
    """
    combine = _COMBINE[operation.partition(".")[0]]
    a, b = (np.ascontiguousarray(part).view(_DTYPES[type_name]) for part in (old, new))
    with np.errstate(all="ignore"):
        if type_name == "bf16":
            result = _bf16_bits(combine(_from_bf16(a), _from_bf16(b)))
        elif type_name == "f32.ftz":
            result = _canonical(_flush(combine(_flush(a), _flush(b))))
        else:
            result = _canonical(combine(a, b)) if a.dtype.kind == "f" else combine(a, b)
    return np.ascontiguousarray(result.astype(a.dtype, copy=False)).view(np.uint8).reshape(old.shape)
