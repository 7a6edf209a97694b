"""Shared memory descriptors: fields, illegal values, and the places of operands' chunks, against byte addresses."""

import numpy as np
import pytest

from nogpu.errors import Fault
from nogpu.hardware.tensor.descriptors import SmemDescriptor, k_major, mn_major
from tests.support.tensor_operands import MODES, descriptor, k_major_address, mn_major_address, span_of


def test_fields():
    """The constants that CuTe DSL kernels use for 128-byte swizzled operands and for scale factors."""
    operand = SmemDescriptor.decode(0x4000404000010000 | 0x8400 >> 4)
    assert (operand.start, operand.leading, operand.stride, operand.swizzle) == (0x8400, 16, 1024, 128)
    assert (operand.atom, operand.base) == (16, 0)
    scales = SmemDescriptor.decode(0x0000400800000000 | 0x3FFF)
    assert (scales.start, scales.leading, scales.stride, scales.swizzle) == (0x3FFF0, 0, 128, 0)
    assert SmemDescriptor.decode(1 << 61 | 1 << 46 | 5 << 49).atom == 32
    assert SmemDescriptor.decode(1 << 61 | 1 << 46 | 5 << 49).base == 5


def starts(mode):
    """Starts inside the pattern, at 32-byte steps along a row as K advances, where a row of 32 bytes stays whole."""
    return [
        start
        for start in (0x2000, 0x2020, 0x2080, 0x2460, 0x27E0)
        if not mode or start % span_of(mode) + 32 <= span_of(mode)
    ]


@pytest.mark.parametrize(
    ("mode", "start"), [(mode, start) for mode in MODES for start in starts(mode)], ids=lambda value: str(value)
)
@pytest.mark.parametrize("base", [0, 3])
@pytest.mark.parametrize(("rows", "row_chunks"), [(8, 1), (24, 2), (128, 2), (32, 1), (4, 2)])
def test_k_major_chunks(mode, start, base, rows, row_chunks):
    base = base if mode else 0
    stride, leading = 16 * 8 * 16, 0 if mode else 4096
    found = k_major(descriptor(start, stride, mode, leading, base), rows, row_chunks)
    chunks, lowest, highest = found.places, found.lowest, found.highest
    expected = [
        [k_major_address(start, row, 16 * chunk, mode, stride, leading, base) // 16 for chunk in range(row_chunks)]
        for row in range(rows)
    ]
    assert np.array_equal(chunks, expected)
    assert (lowest, highest) == (np.min(expected), np.max(expected))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("base", [0, 5])
@pytest.mark.parametrize(("k", "row_chunks"), [(16, 8), (16, 1), (8, 16), (32, 8), (32, 4)])
def test_mn_major_chunks(mode, base, k, row_chunks):
    base = base if mode else 0
    stride, leading, start = 0x1000, 0x4000, 0x2000
    found = mn_major(descriptor(start, stride, mode, leading, base), k, row_chunks)
    chunks, lowest, highest = found.places, found.lowest, found.highest
    expected = [
        [mn_major_address(start, 16 * chunk, i, mode, stride, leading, base) // 16 for chunk in range(row_chunks)]
        for i in range(k)
    ]
    assert np.array_equal(chunks, expected)
    assert (lowest, highest) == (np.min(expected), np.max(expected))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (1 << 46, "bits 46-48 are 0, must be 1"),
        (1 << 47, "bits 46-48 are 3, must be 1"),
        (1 << 14, "bits 14-15 are 1, must be 0: the start address has 18 bits"),
        (1 << 31, "reserved bits"),
        (1 << 53, "reserved bits"),
        (1 << 60, "reserved bits"),
        (1 << 52, "needs sm_103a"),
        (1 << 61, "swizzling mode 3 is invalid, must be one of 0, 1, 2, 4, 6"),
        (5 << 61, "swizzling mode 7 is invalid"),
        (64 << 32, "stride dimension byte offset is 0"),
        (5 << 32, "64 adjacent bytes start 80 bytes into the swizzle's span of 128 and cross its end"),
        (5, "64 adjacent bytes start 80 bytes .* the matrix starts at 0x2050"),
    ],
)
def test_illegal_k_major_descriptors(changes, message):
    good = descriptor(0x2000, 1024, 128)
    k_major(good, 16, 4)
    with pytest.raises(Fault, match=message):
        k_major(good ^ changes, 16, 4)


def test_the_last_address_and_the_first_beyond_it():
    last = descriptor(0x3FC00, 1024, 128)
    assert k_major(last, 8, 2).highest * 16 + 16 <= 1 << 18
    with pytest.raises(Fault, match="the start address has 18 bits"):
        k_major(last + (0x400 >> 4), 8, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0x2000, 1024, 128, 0), "leading dimension byte offset is 0"),
        ((0x2000, 0, 128, 4096), "stride dimension byte offset is 0"),
        ((0x2020, 1024, 128, 4096), "128 adjacent bytes start 32 bytes into the swizzle's span of 128"),
        ((0x2000, 1024, 128, 4096 + 16), "128 adjacent bytes start 16 bytes into the swizzle's span"),
        ((0x2000, 1024 + 16, 128, 4096), "128 adjacent bytes start 16 bytes into the swizzle's span"),
        ((0x2000, 1024, 0, 0), "leading dimension byte offset is 0"),
        ((0x2000, 0, 0, 128), "stride dimension byte offset is 0"),
    ],
)
def test_illegal_mn_major_descriptors(arguments, message):
    mn_major(descriptor(0x2000, 1024, arguments[2], 4096), 16, 16)
    with pytest.raises(Fault, match=message):
        mn_major(descriptor(*arguments), 16, 16)


def test_strides_that_are_not_needed():
    """A matrix of one group of rows, one chunk: the fields may have any values."""
    k_major(descriptor(0x2000, 0, 128, 0), 8, 2)
    k_major(descriptor(0x2000, 128, 0, 0), 128, 1)
    mn_major(descriptor(0x2000, 1024, 128, 0), 16, 8)
    with pytest.raises(Fault, match="leading dimension byte offset is 0"):
        k_major(descriptor(0x2000, 128, 0, 0), 128, 2)


def test_the_base_offset_moves_the_pattern_of_swizzling_only():
    """PTX ISA, "Shared Memory Descriptor": it says where the repeating pattern of a swizzling mode starts. The table of
    starts has none for the mode without swizzling.
    """
    for swizzle, leading, stride in ((0, 16, 128), (128, 0, 1024)):
        plain, moved = (k_major(descriptor(0x2000, stride, swizzle, leading, base=base), 16, 2) for base in (0, 4))
        assert np.array_equal(plain.places, moved.places) == (swizzle == 0)


def test_the_leading_stride_of_a_swizzled_k_major_matrix_is_not_used():
    """PTX ISA, "Major-ness supported by Strides". A CTA's rank, left in the address, would show in these bits."""
    plain = k_major(descriptor(0x2000, 1024, 128, 16), 128, 2)
    for leading in (0, 128, 0x1000000 >> 16 & 0x3FFF0, 0x3FFF0):
        assert np.array_equal(k_major(descriptor(0x2000, 1024, 128, leading), 128, 2).places, plain.places)


def test_slices_of_k_as_groups_of_rows():
    """The stride is 32 bytes: eight rows of 128 bytes are read as 32 rows of 32."""
    chunks = k_major(descriptor(0x2000, 32, 128), 32, 2).places
    for row in range(32):
        assert chunks[row, 0] * 16 == k_major_address(0x2000, row % 8, 32 * (row // 8), 128, 1024, 0)
