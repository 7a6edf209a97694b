"""The reduction of tcgen05.ld.red: the smallest or largest of the words that a thread loads (PTX ISA, "tcgen05.ld")."""

from __future__ import annotations

import numpy as np

_MAGNITUDE, _INFINITY, _NAN = 0x7FFFFFFF, 0x7F800000, 0x7FFFFFFF


Reduction = tuple[str, str, bool, bool]
"""Modifiers of tcgen05.ld.red: min or max; f32, u32 or s32; .abs; .NaN: one NaN makes the result NaN, without it the
result is NaN where all words are.
"""


def reduced(words: np.ndarray, reduction: Reduction) -> np.ndarray:
    """uint32[threads] of words uint32[registers, threads]. -0 is less than +0; a NaN is the canonical one."""
    op, kind, absolute, nan = reduction
    smallest, pick = op == "min", np.min if op == "min" else np.max
    if kind == "u32":
        return pick(words, axis=0)
    if kind == "s32":
        return pick(words.view(np.int32), axis=0).view(np.uint32)
    if absolute:
        words = words & np.uint32(_MAGNITUDE)
    is_nan = (words & _MAGNITUDE) > _INFINITY
    # Negative numbers of greater magnitude are smaller: as signed integers they are once their other bits are inverted.
    signed = words.view(np.int32)
    keys = np.where(is_nan, np.int32(_MAGNITUDE if smallest else ~_MAGNITUDE), signed ^ (signed >> 31 & _MAGNITUDE))
    found = pick(keys, axis=0)
    bits = (found ^ (found >> 31 & _MAGNITUDE)).view(np.uint32)
    return np.where(is_nan.any(axis=0) if nan else is_nan.all(axis=0), np.uint32(_NAN), bits)
