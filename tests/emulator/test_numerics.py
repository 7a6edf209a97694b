"""The number format tables against ml_dtypes, over all codes."""

import ml_dtypes
import numpy as np
import pytest

from emulator.arithmetic import numerics

BYTES = np.arange(256, dtype=np.uint8)


def same(actual: np.ndarray, expected: np.ndarray) -> bool:
    """Equal float32 arrays, signs of zeros and places of NaNs included."""
    nan = np.isnan(expected)
    bits = actual[~nan].view(np.uint32) == expected[~nan].view(np.uint32)
    return actual.dtype == np.float32 and np.array_equal(np.isnan(actual), nan) and bool(bits.all())


@pytest.mark.parametrize(
    ("table", "reference", "codes"),
    [
        (numerics.E2M1, ml_dtypes.float4_e2m1fn, BYTES[:16]),
        (numerics.E4M3, ml_dtypes.float8_e4m3fn, BYTES),
        (numerics.UE8M0, ml_dtypes.float8_e8m0fnu, BYTES),
    ],
)
def test_tables(table, reference, codes):
    assert same(table[codes], codes.view(reference).astype(np.float32))


def test_unsigned_e4m3_ignores_the_top_bit():
    expected = (BYTES & 0x7F).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    assert same(numerics.UE4M3, expected)
    assert np.isnan(numerics.UE4M3[[0x7F, 0xFF]]).all() and np.isfinite(np.delete(numerics.UE4M3, [0x7F, 0xFF])).all()


def test_unpack_takes_the_low_nibble_first():
    packed = BYTES.reshape(16, 16)
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(16, 32)
    assert same(numerics.unpack_e2m1(packed), nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float32))


def test_bf16_over_all_codes():
    bits = np.arange(1 << 16, dtype=np.uint16)
    actual, expected = numerics.bf16_to_f32(bits), bits.view(ml_dtypes.bfloat16).astype(np.float32)
    assert same(actual, expected)


def test_tables_cannot_be_changed():
    for table in (numerics.E2M1, numerics.E4M3, numerics.UE4M3, numerics.UE8M0, numerics.E2M1_PAIRS):
        assert not table.flags.writeable
