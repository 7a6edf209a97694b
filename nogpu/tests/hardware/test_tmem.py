"""Tensor memory: allocation rules, and the fragments of loads and stores thread by thread."""

import numpy as np
import pytest

from nogpu.errors import Fault
from nogpu.hardware.tensor.order import COLUMNS
from nogpu.hardware.tensor.tmem import ColumnAllocator, TensorMemory

SHAPES = {"32x32b": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8, "16x32bx2": 1}
REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
NUMS = (1, 2, 4, 8, 16, 32, 64, 128)
FORMS = [(s, n) for s in SHAPES for n in NUMS if n <= {"16x128b": 64, "16x256b": 32}.get(s, 128)]


def filled() -> TensorMemory:
    """A tensor memory with all columns allocated; word (lane, column) is lane << 16 | column."""
    tmem = TensorMemory()
    assert tmem.alloc(512) == 0
    tmem.words[:] = np.arange(128, dtype=np.uint32)[:, None] << 16 | np.arange(COLUMNS, dtype=np.uint32)
    return tmem


def load(tmem, shape, num, warp, taddr, packed=False, half_split=0):
    return tmem.read(tmem.place("tcgen05.ld", (shape, num, packed, half_split), warp, taddr))


def store(tmem, shape, num, warp, taddr, values, packed=False, half_split=0):
    tmem.write(tmem.place("tcgen05.st", (shape, num, packed, half_split), warp, taddr), values)


def place(shape: str, thread: int, register: int, split: int = 0) -> tuple[int, int]:
    """The (row, column) of a register, from Figures "Matrix Fragment for shape" of the PTX ISA, section Data Movement
    Shape.
    """
    match shape:
        case "32x32b":
            return thread, register
        case "16x64b":  # even threads of a quad hold rows 0-7, odd ones rows 8-15, of two columns
            return thread // 4 + (8 if thread % 2 else 0), 2 * register + (thread % 4 >= 2)
        case "16x128b":  # registers in pairs: rows 0-7, then rows 8-15, of four columns
            return thread // 4 + 8 * (register % 2), register // 2 * 4 + thread % 4
        case "16x256b":  # registers in fours: two columns of rows 0-7, then the same two of rows 8-15
            return thread // 4 + 8 * (register % 4 // 2), register // 4 * 8 + thread % 4 * 2 + register % 2
        case "16x32bx2":  # threads 16-31 hold the second half, `split` columns further on
            return thread % 16, register + (split if thread >= 16 else 0)


@pytest.mark.parametrize(("shape", "num"), FORMS)
def test_load_and_store(shape, num):
    tmem = filled()
    split = max(num, 40) if shape == "16x32bx2" else 0
    count = num * REGISTERS[shape]
    for warp, extra in ((0, 0), (3, 0), (2, 16)):
        if extra and shape == "32x32b":
            continue
        lane, column = 32 * warp + extra, 96
        taddr = lane << 16 | column
        values = load(tmem, shape, num, warp, taddr, half_split=split)
        places = np.array([[place(shape, t, r, split) for t in range(32)] for r in range(count)])
        expected = places[..., 0] + lane << 16 | places[..., 1] + column
        assert np.array_equal(values, expected)
        assert values.dtype == np.uint32
        target = filled()
        new = np.random.default_rng(num).integers(0, 1 << 32, (count, 32), dtype=np.uint32)
        store(target, shape, num, warp, taddr, new, half_split=split)
        assert np.array_equal(load(target, shape, num, warp, taddr, half_split=split), new)
        untouched = np.ones((128, COLUMNS), bool)
        untouched[places[..., 0] + lane, places[..., 1] + column] = False
        assert np.array_equal(target.words[untouched], filled().words[untouched])


@pytest.mark.parametrize("shape", SHAPES)
def test_packed_16_bit_elements(shape):
    """.pack::16b joins the low halves of adjacent columns, .unpack::16b parts them again."""
    tmem, num, split = filled(), 4, 32 if shape == "16x32bx2" else 0
    values = load(tmem, shape, num, 1, 32 << 16, packed=True, half_split=split)
    assert values.shape == (num * REGISTERS[shape], 32)
    for register, thread in np.ndindex(*values.shape):
        row, column = place(shape, thread, register)
        first = 2 * column + (split if thread >= 16 else 0)
        low, high = (int(tmem.words[32 + row, first + i]) & 0xFFFF for i in (0, 1))
        assert values[register, thread] == low | high << 16
    target = filled()
    store(target, shape, num, 1, 32 << 16, values, packed=True, half_split=split)
    changed = target.words != filled().words
    columns = 2 * num * SHAPES[shape]
    rows = 32 if shape == "32x32b" else 16
    assert changed[32 : 32 + rows, :columns].all()
    assert changed.sum() == rows * columns * (2 if split else 1)
    assert ((target.words & 0xFFFF) == (filled().words & 0xFFFF)).all()
    assert (target.words[changed] >> 16 == 0xFFFF).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_quadrant_is_the_warps(shape):
    """Lane 0, and lanes from 128 on, mean the same place as the warp's own lanes: hardware masks them."""
    tmem, split = filled(), 32 if shape == "16x32bx2" else 0
    for warp, within in np.ndindex(4, 1 if shape == "32x32b" else 2):
        own = 32 * warp + 16 * within
        expected = load(tmem, shape, 1, warp, own << 16, half_split=split)
        for lane in (16 * within, 128 + own, 128 + 16 * within, 384 + own):
            assert np.array_equal(load(tmem, shape, 1, warp, lane << 16, half_split=split), expected)
            target = filled()
            target.words[:] = 1 << 31
            store(target, shape, 1, warp, lane << 16, expected, half_split=split)
            changed = target.words != 1 << 31
            assert np.array_equal(target.words[changed], tmem.words[changed])
            assert changed.any(axis=1).nonzero()[0].min() == own


@pytest.mark.parametrize(
    ("shape", "num", "warp", "taddr", "message"),
    [
        ("32x32b", 8, 1, 64 << 16, "lane 64 of warp 1 of its group; the warp reaches lanes 32 to 63"),
        ("32x32b", 8, 1, 48 << 16, "lane 48 of warp 1"),
        ("16x256b", 8, 0, 32 << 16, "lane 32 of warp 0"),
        ("16x256b", 8, 0, 8 << 16, "lane 8 of warp 0"),
        ("16x64b", 1, 3, 160 << 16, "lane 160 of warp 3"),
        ("32x32b", 3, 0, 0, r"x3: .num must be a power of two up to 128"),
        ("16x128b", 128, 0, 0, r"x128: .num must be a power of two up to 64"),
        ("16x256b", 64, 0, 0, r"x64: .num must be a power of two up to 32"),
        ("16x512b", 1, 0, 0, "not a shape"),
        ("32x32b", 32, 0, 240, "columns 240 to 271|column 256 .of 240 to 271. is not allocated"),
        ("16x256b", 16, 0, 192, "column 256 .of 192 to 319. is not allocated"),
        ("32x32b", 128, 0, 400, "columns 400 to 527; limit 511"),
    ],
)
def test_illegal_accesses(shape, num, warp, taddr, message):
    tmem = TensorMemory()
    tmem.alloc(256)
    with pytest.raises(Fault, match=message):
        load(tmem, shape, num, warp, taddr)
    with pytest.raises(Fault, match=message):
        store(tmem, shape, num, warp, taddr, np.zeros((num * REGISTERS.get(shape, 1), 32), np.uint32))


def test_packing_and_the_second_half_count_for_the_columns_in_use():
    tmem = TensorMemory()
    tmem.alloc(64)
    load(tmem, "32x32b", 64, 0, 0)
    with pytest.raises(Fault, match="column 64"):
        load(tmem, "32x32b", 64, 0, 0, packed=True)
    load(tmem, "16x32bx2", 32, 0, 0, half_split=32)
    with pytest.raises(Fault, match="column 64"):
        load(tmem, "16x32bx2", 32, 0, 0, half_split=48)
    with pytest.raises(Fault, match="only 16x32bx2 has a split offset"):
        load(tmem, "16x64b", 1, 0, 0, half_split=8)


def test_allocations_are_poisoned_and_tracked():
    tmem = TensorMemory()
    with pytest.raises(Fault, match=r"column 0 .of 0 to 31. is not allocated; allocated: none"):
        load(tmem, "32x32b", 32, 0, 0)
    assert [tmem.alloc(128), tmem.alloc(32), tmem.alloc(256)] == [0, 128, 160]
    assert tmem.allocations == {0: 128, 128: 32, 160: 256}
    tmem.words[:, 128:160] = 1
    tmem.dealloc(128, 32)
    with pytest.raises(Fault, match=r"column 128 .* allocated: 0 to 127, 160 to 415"):
        tmem.check_columns(120, 16, "test")
    assert tmem.alloc(32) == 128
    assert (load(tmem, "32x32b", 32, 0, 128) == 0xFFFFFFFF).all()
    assert np.isnan(tmem.words.view(np.float32)[:, 128:160]).all()


def test_alloc_that_would_block():
    tmem = TensorMemory()
    assert tmem.alloc(256) == 0
    assert tmem.alloc(512) is None
    assert tmem.allocations == {0: 256}
    tmem.dealloc(0, 256)
    assert tmem.alloc(512) == 0


def test_two_ctas_share_the_columns_of_an_sm():
    allocator = ColumnAllocator()
    first, second = TensorMemory(allocator), TensorMemory(allocator)
    assert (first.alloc(256), second.alloc(128), first.alloc(128)) == (0, 256, 384)
    assert second.alloc(32) is None
    with pytest.raises(Fault, match="column 0"):
        second.check_columns(0, 32, "test")
    with pytest.raises(Fault, match="is not an allocation of this CTA"):
        second.dealloc(0, 256)
    first.dealloc(0, 256)
    assert second.alloc(32) == 0


def test_a_pair_gets_the_same_columns_in_both_ctas():
    """Instructions of a pair name one address for both, so columns must be free on both SMs there."""
    sms = [ColumnAllocator(), ColumnAllocator()]
    busy = TensorMemory(sms[0])
    assert busy.alloc(256) == 0
    first, second = TensorMemory(sms[0]), TensorMemory(sms[1])
    assert first.alloc_with(second, 256) == 256
    assert first.allocations == second.allocations == {256: 256}
    third = TensorMemory(sms[1])
    assert TensorMemory(sms[0]).alloc_with(third, 256) is None
    busy.dealloc(0, 256)
    assert TensorMemory(sms[0]).alloc_with(third, 256) == 0


def test_mmas_are_checked_anew_when_the_columns_change():
    tmem = TensorMemory()
    for change in (lambda: tmem.alloc(32), lambda: tmem.dealloc(0, 32)):
        tmem.legal["form", "operands"] = None
        change()
        assert not tmem.legal
