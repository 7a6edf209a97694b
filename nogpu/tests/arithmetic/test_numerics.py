"""The number format tables against the formats' definitions and ml_dtypes, over all codes."""

import ml_dtypes
import numpy as np
import pytest

from nogpu.arithmetic import numerics

BYTES = np.arange(256, dtype=np.uint8)


def same(actual: np.ndarray, expected: np.ndarray) -> bool:
    """True if float32 arrays are equal, including signs of zeros and places of NaNs."""
    nan = np.isnan(expected)
    bits = actual[~nan].view(np.uint32) == expected[~nan].view(np.uint32)
    return actual.dtype == np.float32 and np.array_equal(np.isnan(actual), nan) and bool(bits.all())


def defined(exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    """The float32 of every code of a format with a sign, IEEE-style bias and subnormals, and no reserved exponent."""
    code = np.arange(1 << 1 + exponent_bits + mantissa_bits)
    sign = np.where(code >> exponent_bits + mantissa_bits, -1.0, 1.0)
    exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
    fraction = (code & (1 << mantissa_bits) - 1) / (1 << mantissa_bits)
    bias = (1 << exponent_bits - 1) - 1
    magnitude = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    return (sign * magnitude).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "bits", "special"),
    [
        ("e2m1", (2, 1), {}),
        ("e2m3", (2, 3), {}),
        ("e3m2", (3, 2), {}),
        ("e4m3", (4, 3), {0x7F: np.nan, 0xFF: np.nan}),
        (
            "e5m2",
            (5, 2),
            {0x7C: np.inf, 0xFC: -np.inf} | {s | code: np.nan for s in (0, 0x80) for code in (0x7D, 0x7E, 0x7F)},
        ),
    ],
)
def test_tables(name, bits, special):
    expected = defined(*bits)
    for code, value in special.items():
        expected[code] = value
    assert same(numerics.DECODED[name], expected)


def test_scale_exponents():
    assert same(numerics.UE8M0, np.append(2.0 ** (np.arange(255) - 127.0), np.nan).astype(np.float32))


def test_unsigned_e4m3_ignores_the_top_bit():
    expected = (BYTES & 0x7F).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    assert same(numerics.UE4M3, expected)
    assert np.isnan(numerics.UE4M3[[0x7F, 0xFF]]).all() and np.isfinite(np.delete(numerics.UE4M3, [0x7F, 0xFF])).all()


def test_ue5m3():
    """The upper eight bits of an unsigned half below infinity's codes, which are numbers here but for the last."""
    expected = (np.arange(256) << 7).astype(np.uint16).view(np.float16).astype(np.float32)
    expected[248:] = [*(65536.0 * (1 + np.arange(7) / 8)), np.nan]
    assert same(numerics.UE5M3, expected)


def test_pairs_have_the_low_nibble_first():
    packed = BYTES.reshape(16, 16)
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(16, 32)
    assert same(numerics.E2M1_PAIRS[packed].view(np.float32), nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float32))


def test_tables_cannot_be_changed():
    for table in (*numerics.DECODED.values(), numerics.UE4M3, numerics.UE5M3, numerics.E2M1_PAIRS):
        assert not table.flags.writeable
