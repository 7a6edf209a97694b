"""Reductions of asynchronous copies against Python integers and exact sums that are rounded once."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from nogpu.arithmetic.reductions import OPERATIONS, TENSOR_OPERATIONS, combined

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f32.ftz": np.float32, "f64": np.float64}
CASES = sorted(
    {(op, t) for table in (*OPERATIONS.values(), TENSOR_OPERATIONS) for op, types in table.items() for t in types}
)


def samples(type_name):
    """Pairs of elements as bit patterns: special values with each other, then random ones."""
    width = 16 if type_name in ("f16", "bf16") else 64 if type_name.endswith("64") else 32
    special = [0, 1, 2, (1 << width) - 1, 1 << width - 1, (1 << width - 1) - 1, (1 << width - 1) + 1, 7]
    if type_name in FLOATS:
        info = ml_dtypes.finfo(FLOATS[type_name])
        values = [1.0, -1.0, np.inf, -np.inf, np.nan, info.tiny, -info.tiny, info.tiny / 2, info.max, info.eps, 1 / 3]
        unsigned = f"u{width // 8}"
        special += [int(np.array(v).astype(FLOATS[type_name]).view(unsigned)) for v in values]
    rng = np.random.default_rng(0)
    pairs = [(a, b) for a in special for b in special]
    pairs += [tuple(int.from_bytes(rng.bytes(width // 8)) for _ in "ab") for _ in range(2000)]
    return width, pairs


def integer(operation, type_name, width, old, new):
    if type_name[0] == "s":
        old, new = ((v ^ 1 << width - 1) - (1 << width - 1) for v in (old, new))
    results = {
        "add": lambda: old + new,
        "min": lambda: min(old, new),
        "max": lambda: max(old, new),
        "and": lambda: old & new,
        "or": lambda: old | new,
        "xor": lambda: old ^ new,
        "inc": lambda: 0 if old >= new else old + 1,
        "dec": lambda: new if old == 0 or old > new else old - 1,
    }
    return results[operation]() & (1 << width) - 1


def total(type_name, old, new):
    """The exact sum of two numbers, rounded once, and flushed if the type says so."""
    kind = FLOATS[type_name]
    if type_name == "f64":
        return old + new  # the host's sum of doubles, which equals the device's
    if type_name.endswith("ftz"):
        old, new = (kind(np.copysign(0, v)) if abs(v) < np.finfo(kind).tiny else v for v in (old, new))
    if not (np.isfinite(old) and np.isfinite(new)) or (old == 0 and new == 0):
        return kind(float(old) + float(new))
    exact = Fraction(float(old)) + Fraction(float(new))
    # Candidates around a first guess: the nearest, and of two equally near ones the even one.
    guess = kind(float(exact))
    if not np.isfinite(guess):
        return guess
    unsigned = f"u{np.dtype(kind).itemsize}"
    code = int(np.array(guess).view(unsigned))
    near = [
        np.array(c, unsigned).view(kind)[()]
        for c in (code - 1, code, code + 1)
        if 0 <= c < 1 << 8 * np.dtype(kind).itemsize
    ]
    near = [v for v in near if np.isfinite(v)]
    best = min(near, key=lambda v: (abs(Fraction(float(v)) - exact), int(np.array(v).view(unsigned)) & 1))
    if type_name.endswith("ftz") and abs(best) < np.finfo(kind).tiny:
        return kind(np.copysign(0, float(best)))
    return best


def extreme(operation, old, new):
    if np.isnan(old) or np.isnan(new):
        return new if np.isnan(old) else old
    key = lambda v: (float(v), not np.signbit(v))  # noqa: E731
    return (min if operation == "min" else max)((old, new), key=key)


@np.errstate(all="ignore")
@pytest.mark.parametrize(("operation", "type_name"), CASES)
def test_every_operation(operation, type_name):
    width, pairs = samples(type_name)
    unsigned = f"u{width // 8}"
    old, new = (np.array(column, unsigned) for column in zip(*pairs, strict=True))
    result = combined(operation, type_name, old.view(np.uint8), new.view(np.uint8)).view(unsigned)
    for a, b, got in zip(old, new, result, strict=True):
        if type_name not in FLOATS:
            assert got == integer(operation, type_name, width, int(a), int(b)), (a, b)
            continue
        kind = FLOATS[type_name]
        x, y = a.view(kind), b.view(kind)
        want = total(type_name, x, y) if operation.startswith("add") else extreme(operation, x, y)
        if np.isnan(want):
            assert np.isnan(got.view(kind))
            assert type_name == "f64" or got == (1 << width - 1) - 1
        else:
            assert got == np.array(want).view(unsigned), (x, y, want)


def test_boxes_keep_their_shape():
    old, new = (np.arange(48, dtype=np.uint32).reshape(3, 4, 4).view(np.uint8) for _ in "ab")
    assert combined("add", "u32", old[:, 1:3], new[:, 1:3]).shape == (3, 2, 16)
