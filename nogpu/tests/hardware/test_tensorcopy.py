"""tcgen05.cp against copies byte by byte."""

import numpy as np
import pytest

from nogpu.errors import Fault
from nogpu.hardware.tensor.order import COLUMNS
from tests.support.tensor_operands import (
    MODES,
    NARROW_BITS,
    SF,
    SFA,
    copy,
    descriptor,
    make_cta,
    put_operand,
    put_scales,
)

SHAPES = [
    ("32x128b", "warpx4", 32, 16, (0, 0, 0, 0)),
    ("64x128b", "warpx2::02_13", 64, 16, (0, 1, 0, 1)),
    ("64x128b", "warpx2::01_23", 64, 16, (0, 0, 1, 1)),
    ("128x128b", None, 128, 16, (0, 1, 2, 3)),
    ("128x256b", None, 128, 32, (0, 1, 2, 3)),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("shape", "multicast", "rows", "row_bytes", "quadrants"), SHAPES)
def test_copy(shape, multicast, rows, row_bytes, quadrants, mode):
    pairs = [make_cta(), make_cta()]
    images = []
    for seed, (shared, _) in enumerate(pairs):
        data = np.random.default_rng(seed).integers(0, 256, (rows, row_bytes), dtype=np.uint8)
        source = put_operand(shared, SF, data, mode)
        images.append(data)
    copy(pairs, shape, multicast, None, 40, source)
    for data, (_, tmem) in zip(images, pairs, strict=True):
        expected = np.full((128, COLUMNS, 4), 0xFF, np.uint8)
        for lane in range(128):
            row = 32 * quadrants[lane // 32] + lane % 32
            expected[lane, 40 : 40 + row_bytes // 4] = data[row].reshape(-1, 4)
        assert np.array_equal(tmem.words.view(np.uint8).reshape(128, COLUMNS, 4), expected)


@pytest.mark.parametrize("lane", [0, 31])
def test_copy_of_a_row_per_quadrant(lane):
    shared, tmem = cta = make_cta()
    data = np.random.default_rng(0).integers(0, 256, (4, 32), dtype=np.uint8)
    copy([cta], "4x256b", None, None, lane << 16 | 8, put_operand(shared, SF, data, 0))
    expected = np.full((128, COLUMNS, 4), 0xFF, np.uint8)
    for row in range(4):
        expected[32 * row + lane, 8:16] = data[row].reshape(8, 4)
    assert np.array_equal(tmem.words.view(np.uint8).reshape(128, COLUMNS, 4), expected)


@pytest.mark.parametrize(("source", "element", "shift"), [("b4x16_p64", "e2m1", 2), ("b6x16_p32", "e3m2", 1)])
@pytest.mark.parametrize(("shape", "multicast", "rows", "row_bytes", "quadrants"), SHAPES)
def test_copy_that_unpacks(source, element, shift, shape, multicast, rows, row_bytes, quadrants):
    """Sixteen elements and padding become sixteen bytes, the element in the middle of each."""
    bits = NARROW_BITS[element]
    shared, tmem = cta = make_cta()
    rng = np.random.default_rng(bits)
    codes = rng.integers(0, 1 << bits, (rows, row_bytes), dtype=np.uint8)
    packed = rng.integers(0, 256, (rows, row_bytes), dtype=np.uint8)
    for row in range(rows):
        for first in range(0, row_bytes, 16):
            number = sum(int(code) << bits * i for i, code in enumerate(codes[row, first : first + 16]))
            packed[row, first : first + 2 * bits] = list(number.to_bytes(2 * bits, "little"))
    copy([cta], shape, multicast, source, 40, put_operand(shared, SF, packed, 0))
    held = tmem.words.view(np.uint8).reshape(128, COLUMNS, 4)[:, 40 : 40 + row_bytes // 4].reshape(128, row_bytes)
    for lane in range(128):
        assert np.array_equal(held[lane], codes[32 * quadrants[lane // 32] + lane % 32] << shift)


def test_copy_brings_scale_factors_where_the_mma_looks_for_them():
    """The 512-byte atom of 128 rows by 4 blocks (cuBLAS, 1D block scaling layout)."""
    cta = make_cta()
    codes = np.random.default_rng(0).integers(0, 0x7F, (128, 4), dtype=np.uint8)
    for (row, block), code in np.ndenumerate(codes):
        cta[0].data[SF + row % 32 * 16 + row // 32 * 4 + block] = code
    copy([cta], "32x128b", "warpx4", None, SFA, 0x0000400800000000 | SF >> 4)
    other = make_cta()
    put_scales(other[1], SFA, codes)
    assert np.array_equal(cta[1].words, other[1].words)


@pytest.mark.parametrize(
    ("shape", "multicast", "taddr", "start", "message"),
    [
        ("32x128b", None, 0, SF, r"tcgen05.cp.32x128b; must be .*32x128b.warpx4"),
        ("128x128b", "warpx4", 0, SF, r"tcgen05.cp.128x128b.warpx4; must be 128x256b"),
        ("32x128b", "warpx4", 32 << 16, SF, r"lane 32; must be 0"),
        ("4x256b", None, 32 << 16, SF, r"lane 32; must be below 32"),
        ("32x128b", "warpx4", 509, SF, r"columns 509 to 512; limit 511"),
        ("32x128b", "warpx4", 0, 0x200, r"tcgen05.cp, shared memory descriptor 0x.* at shared offset 0x200"),
        ("128x128b", None, 0, 200 * 1024, r"tcgen05.cp, shared memory descriptor .* 0x32400\)"),
    ],
)
def test_illegal_copies(shape, multicast, taddr, start, message):
    with pytest.raises(Fault, match=message):
        copy([make_cta()], shape, multicast, None, taddr, descriptor(start, 128))
