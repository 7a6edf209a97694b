"""Tensor and bulk copies against a copy of one element after the other."""

import itertools

import numpy as np
import pytest

from nogpu.errors import Fault
from nogpu.hardware.memory import GlobalMemory
from nogpu.hardware.shared_memory import SharedMemory
from nogpu.hardware.tma import boxes as tma
from nogpu.hardware.tma.swizzle import swizzle
from nogpu.hardware.tma.tensor_map import TensorMap
from tests.support.encoding import tensor_map

BYTES = {"u8": 1, "u16": 2, "f16": 2, "bf16": 2, "f32": 4, "u32": 4, "f64": 8, "u64": 8}
SHARED = 64 * 1024
FIRST = 0x400


class Tensor:
    """A tensor in global memory with a map over it; `gap` bytes, a multiple of 16, lie between its rows."""

    def __init__(self, dims, box, element="u8", swizzle=0, gap=0, element_strides=None, fill_nan=False, atom="16B"):
        self.rng = np.random.default_rng(0)
        self.dims, self.box, self.swizzle, self.atom = dims, box, swizzle, atom
        self.steps = element_strides or [1] * len(dims)
        self.bits = 4 if element == "b4x16" else 8 * BYTES[element]
        self.fill = {16: 0x7FFF, 32: 0x7FFFFFFF}[self.bits] if fill_nan else 0
        row = dims[0] * self.bits // 8
        pitch = -(-row // 16) * 16 + gap
        self.strides = [pitch * int(np.prod(dims[1:i])) for i in range(1, len(dims))]
        nbytes = sum((dim - 1) * stride for dim, stride in zip(dims[1:], self.strides, strict=True)) + row
        storage = self.rng.integers(0, 256, nbytes + 16, dtype=np.uint8)
        self.data = storage[-storage.ctypes.data % 16 :][:nbytes]
        self.memory = GlobalMemory()
        self.memory.register(self.data.ctypes.data, nbytes, "tensor")
        raw = tensor_map(
            self.data.ctypes.data, dims, self.strides, box, element, swizzle, self.steps, fill_nan=fill_nan, atom=atom
        )
        self.map = TensorMap.decode(raw)

    def element_at(self, coords) -> int | None:
        """The bit offset of an element in the tensor's memory; None outside of the tensor."""
        if any(not 0 <= c < d for c, d in zip(coords, self.dims, strict=True)):
            return None
        return coords[0] * self.bits + 8 * sum(c * s for c, s in zip(coords[1:], self.strides, strict=True))

    def swizzled(self, address) -> int:
        """Swizzled address (PTX ISA, "Swizzling Modes"): bits above the 128-byte line select those to add below."""
        line = address >> 7
        if self.atom == "16B":
            return address ^ (line & {0: 0, 32: 1, 64: 3, 128: 7}[self.swizzle]) << 4
        if self.atom == "64B":
            return address ^ (line & 1) << 6
        return address ^ (line & 3) << 5 ^ (8 * (line & 1) if self.atom == "32B flip" else 0)

    def box_elements(self, coords, offset):
        """The (bit address in shared memory, bit offset in the tensor or None) of each element of the box."""
        counts = [-(-size // step) for size, step in zip(self.box, self.steps, strict=True)]
        linear = 0
        for index in itertools.product(*(range(n) for n in reversed(counts))):
            place = [c + i * s for c, i, s in zip(coords, reversed(index), self.steps, strict=True)]
            yield 8 * self.swizzled(offset + linear // 8) + linear % 8, self.element_at(place)
            linear += self.bits


def store_tile(tensor_map, coords, memory, shared, offset, issuer=None):
    return tma.write_tile(tensor_map, coords, memory, tma.read_tile(tensor_map, coords, shared, offset, issuer), issuer)


def store_bulk(memory, address, shared, offset, nbytes, issuer=None):
    tma.check_bulk(memory, address, shared, offset, nbytes, "load")
    return tma.write_bulk(memory, address, tma.read_bulk(shared, offset, nbytes, issuer), issuer)


def get_bits(data: np.ndarray, bit: int, width: int) -> int:
    value = int.from_bytes(data[bit // 8 : (bit + width + 7) // 8].tobytes(), "little")
    return value >> bit % 8 & (1 << width) - 1


def set_bits(data: np.ndarray, bit: int, width: int, value: int) -> None:
    span = slice(bit // 8, (bit + width + 7) // 8)
    whole = int.from_bytes(data[span].tobytes(), "little") & ~((1 << width) - 1 << bit % 8) | value << bit % 8
    data[span] = list(whole.to_bytes(span.stop - span.start, "little"))


CASES = {
    "1d": ({"dims": (100,), "box": (64,)}, [(0,), (48,), (-16,), (99,), (100,), (-64,)]),
    "2d none": ({"dims": (60, 20), "box": (32, 8), "element": "u16"}, [(0, 0), (32, 16), (-3, -5), (59, 19), (0, 20)]),
    "2d 32B": ({"dims": (64, 20), "box": (16, 16), "element": "f16", "swizzle": 32}, [(16, 0), (56, 10), (-8, -8)]),
    "2d 64B": ({"dims": (64, 20), "box": (32, 16), "element": "bf16", "swizzle": 64}, [(16, 0), (56, 10), (-8, -8)]),
    "2d 128B": ({"dims": (64, 40), "box": (32, 32), "element": "f32", "swizzle": 128}, [(16, 3), (56, 20), (-8, -8)]),
    "narrow row": ({"dims": (64, 40), "box": (16, 13), "swizzle": 128}, [(16, 3), (56, 33)]),
    "nibbles": (
        {"dims": (508, 40), "box": (256, 16), "element": "b4x16", "swizzle": 128},
        [(256, 8), (0, 30), (-2, -1)],
    ),
    "nan f16": ({"dims": (40, 10), "box": (16, 8), "element": "f16", "swizzle": 32, "fill_nan": True}, [(32, 5)]),
    "nan f32": ({"dims": (40, 10), "box": (16, 8), "element": "f32", "fill_nan": True}, [(30, -2), (99, 99)]),
    "32B atoms": (
        {"dims": (64, 40), "box": (32, 32), "element": "f32", "swizzle": 128, "atom": "32B"},
        [(16, 3), (56, 20), (-8, -8)],
    ),
    "32B atoms, flip": (
        {"dims": (64, 40), "box": (32, 32), "element": "f32", "swizzle": 128, "atom": "32B flip"},
        [(16, 3), (56, 20), (-8, -8)],
    ),
    "64B atoms": (
        {"dims": (64, 40), "box": (16, 32), "element": "f32", "swizzle": 128, "atom": "64B"},
        [(16, 3), (56, 20)],
    ),
    "3d": ({"dims": (24, 7, 5), "box": (16, 4, 3), "gap": 16}, [(0, 0, 0), (8, 5, 3), (-4, -2, -1), (16, 3, 4)]),
    "4d": (
        {"dims": (16, 5, 4, 3), "box": (16, 2, 3, 2), "element": "u32", "swizzle": 64},
        [(0, 4, 2, 2), (0, 1, 1, 1)],
    ),
    "5d": ({"dims": (8, 3, 4, 3, 2), "box": (8, 2, 2, 2, 2), "element": "f64", "swizzle": 64}, [(0, 1, 2, 2, 1)]),
    "steps": (
        {"dims": (32, 30, 9), "box": (16, 9, 5), "element_strides": [1, 2, 3]},
        [(0, 0, 0), (16, 1, 2), (0, 25, 7), (0, -3, -2), (0, -3, -4)],
    ),
}
RUNS = [
    (name, coords, offset) for name, (_, places) in CASES.items() for coords in places for offset in (FIRST, 0x1380)
]


def tensor_of(name: str) -> Tensor:
    return Tensor(**CASES[name][0])


@pytest.mark.parametrize(("name", "coords", "offset"), RUNS)
def test_load_tile(name, coords, offset):
    tensor = tensor_of(name)
    shared = SharedMemory(SHARED)
    expected = shared.data.copy()
    width, read = tensor.bits, 0
    for address, source in tensor.box_elements(coords, offset):
        set_bits(expected, address, width, tensor.fill if source is None else get_bits(tensor.data, source, width))
        read += source is not None
    assert tma.load_tile(tensor.map, coords, tensor.memory, shared, offset) == read * width // 8
    assert np.array_equal(shared.data, expected)


@pytest.mark.parametrize(("name", "coords", "offset"), [run for run in RUNS if min(run[1]) >= 0])
def test_store_tile(name, coords, offset):
    tensor = tensor_of(name)
    shared = SharedMemory(SHARED)
    shared.data[:] = tensor.rng.integers(0, 256, shared.data.size, dtype=np.uint8)
    expected, width, written = tensor.data.copy(), tensor.bits, 0
    for address, target in tensor.box_elements(coords, offset):
        if target is not None:
            set_bits(expected, target, width, get_bits(shared.data, address, width))
            written += 1
    before = shared.data.copy()
    assert store_tile(tensor.map, coords, tensor.memory, shared, offset) == written * width // 8
    assert np.array_equal(tensor.data, expected)
    assert np.array_equal(shared.data, before)


ROWS = [
    ((0, 3, 1, 2, 1), {"dims": (64, 20), "box": (32, 1), "element": "f16", "swizzle": 64}),
    ((48, 19, 20, 0, 25), {"dims": (64, 20), "box": (32, 1), "element": "f16"}),
    ((8, 5, 6, 5, 4), {"dims": (64, 20), "box": (32, 1), "element": "f32", "swizzle": 128, "atom": "32B"}),
    ((64, 0, 1, 2, 3), {"dims": (64, 20), "box": (16, 1), "element": "f16"}),
]


def four_rows(tensor, coords, offset):
    """Pairs (bit address in shared memory, bit offset in the tensor or None) of four boxes of one row, in a column."""
    for i, row in enumerate(coords[1:]):
        for j in range(tensor.box[0]):
            linear = (i * tensor.box[0] + j) * tensor.bits
            place = 8 * tensor.swizzled(offset + linear // 8) + linear % 8
            yield place, tensor.element_at((coords[0] + j, row))


@pytest.mark.parametrize(("coords", "shape"), ROWS)
def test_gather_of_four_rows(coords, shape):
    tensor, shared = Tensor(**shape), SharedMemory(SHARED)
    expected, read = shared.data.copy(), 0
    for address, source in four_rows(tensor, coords, 0x1380):
        value = 0 if source is None else get_bits(tensor.data, source, tensor.bits)
        set_bits(expected, address, tensor.bits, value)
        read += source is not None
    assert tma.load_tile(tensor.map, coords, tensor.memory, shared, 0x1380, rows=True) == read * tensor.bits // 8
    assert np.array_equal(shared.data, expected)
    assert tma.tile_bytes(tensor.map, rows=True) == 4 * tensor.map.inner_bytes


@pytest.mark.parametrize(("coords", "shape"), ROWS)
def test_scatter_of_four_rows(coords, shape):
    tensor, shared = Tensor(**shape), SharedMemory(SHARED)
    shared.data[:] = tensor.rng.integers(0, 256, shared.data.size, dtype=np.uint8)
    expected, written = tensor.data.copy(), 0
    for address, target in four_rows(tensor, coords, 0x1380):
        if target is not None:
            set_bits(expected, target, tensor.bits, get_bits(shared.data, address, tensor.bits))
            written += 1
    box = tma.read_tile(tensor.map, coords, shared, 0x1380, rows=True)
    assert tma.write_tile(tensor.map, coords, tensor.memory, box, rows=True) == written * tensor.bits // 8
    assert np.array_equal(tensor.data, expected)


@pytest.mark.parametrize("shape", [{"dims": (64, 20), "box": (32, 4)}, {"dims": (64, 5, 4), "box": (32, 1, 1)}])
def test_four_rows_need_a_matrix_and_a_box_one_row_high(shape):
    tensor = Tensor(**shape)
    with pytest.raises(Fault, match="the rank must be 2 and the box one row high"):
        tma.load_tile(tensor.map, (0, 0, 1, 2, 3), tensor.memory, SharedMemory(SHARED), FIRST, rows=True)


def test_bytes_that_a_mask_leaves_out():
    memory = GlobalMemory()
    storage = np.zeros(256, np.uint8)
    first = -storage.ctypes.data % 16
    target = storage[first : first + 64]
    memory.register(target.ctypes.data, 64, "target")
    data = np.arange(1, 65, dtype=np.uint8)
    assert tma.write_bulk(memory, target.ctypes.data, data, byte_mask=0x8005) == 12
    kept = np.array([i % 16 in (0, 2, 15) for i in range(64)])
    assert np.array_equal(target, np.where(kept, data, 0))


def test_every_swizzle_is_its_own_inverse_and_stays_in_its_line():
    chunks = np.arange(4096)
    for span, atom in ((0, 16), (32, 16), (64, 16), (128, 16), (128, 32), (128, 64)):
        places = swizzle(chunks, span, atom)
        assert np.array_equal(swizzle(places, span, atom), chunks)
        assert np.array_equal(places // 8, chunks // 8)
        assert (span == 0) == np.array_equal(places, chunks)


def test_swizzle_follows_the_address_not_the_box():
    """The same box at two offsets that differ by 128 bytes is permuted in two ways (PTX ISA, "Swizzling Modes")."""
    tensor = Tensor((128, 16), (128, 16), swizzle=128)
    images = []
    for offset in (0x800, 0x880):
        shared = SharedMemory(SHARED)
        tma.load_tile(tensor.map, (0, 0), tensor.memory, shared, offset)
        images.append(shared.data[offset : offset + 2048])
    assert not np.array_equal(*images)
    assert np.array_equal(images[0][:128], tensor.data[:128])


@pytest.mark.parametrize(
    ("changes", "coords", "offset", "message"),
    [
        ({}, (0, 0), 0x440, r"0x440 is not a multiple of 128"),
        ({}, (0,), FIRST, r"1 coordinates for a tensor map of rank 2"),
        ({}, (0, 0), SHARED + FIRST - 512, r"of 1024 bytes at shared offset 0x10200"),
        ({}, (0, 0), 0x380, r"at shared offset 0x380"),
        ({"dims": (64, 40), "box": (32, 8), "element": "b4x16"}, (3, 0), FIRST, "coordinate 3 of 4-bit elements"),
        ({"element_strides": [2, 1]}, (0, 0), FIRST, "element stride 2 in dimension 0"),
    ],
)
def test_illegal_tiles(changes, coords, offset, message):
    tensor = Tensor(**{"dims": (64, 64), "box": (32, 32)} | changes)
    for copy in (tma.load_tile, store_tile):
        with pytest.raises(Fault, match=message):
            copy(tensor.map, coords, tensor.memory, SharedMemory(SHARED), offset)


def test_a_store_has_no_negative_coordinates():
    tensor = Tensor((64, 64), (32, 32))
    with pytest.raises(Fault, match=r"coordinates \(0, -1\), must not be negative"):
        store_tile(tensor.map, (0, -1), tensor.memory, SharedMemory(SHARED), FIRST)


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        (
            {"dims": (128, 8, 4), "strides": (256, 4096), "box": (16, 8, 1), "interleave": 1},
            "interleave 16B is not modelled",
        ),
        (
            {"dims": (128, 8, 4), "strides": (256, 4096), "box": (16, 8, 1), "element_strides": (2, 1, 1)},
            "element stride 2 in dimension 0",
        ),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(encoding, message):
    decoded = TensorMap.decode(tensor_map(0x1000, **encoding))
    with pytest.raises(Fault, match=message):
        tma.load_tile(decoded, (0, 0, 0), GlobalMemory(), SharedMemory(SHARED), FIRST)


@pytest.mark.parametrize("copy", [tma.load_tile, store_tile])
def test_a_map_one_byte_longer_than_its_allocation(copy):
    tensor = Tensor((64, 64), (32, 32))
    memory = GlobalMemory()
    memory.register(tensor.data.ctypes.data, tensor.data.size - 1, "short")
    copy(tensor.map, (0, 32), memory, SharedMemory(SHARED), FIRST)
    with pytest.raises(Fault, match="past the end of short"):
        copy(tensor.map, (32, 32), memory, SharedMemory(SHARED), FIRST)


def test_a_box_wholly_outside_touches_no_memory():
    tensor = Tensor((64, 64), (32, 32))
    shared, empty = SharedMemory(SHARED), GlobalMemory()
    assert tma.load_tile(tensor.map, (64, 0), empty, shared, FIRST) == 0
    assert not shared.data[FIRST : FIRST + 1024].any()
    assert store_tile(tensor.map, (0, 64), empty, shared, FIRST) == 0


def test_bulk_copies():
    memory, shared = GlobalMemory(), SharedMemory(SHARED)
    storage = np.random.default_rng(0).integers(0, 256, 4096, dtype=np.uint8)
    data = storage[-storage.ctypes.data % 16 :][:2048]
    memory.register(data.ctypes.data, data.size, "data")
    assert tma.load_bulk(memory, data.ctypes.data + 16, shared, 0x500, 512) == 512
    assert np.array_equal(shared.data[0x500:0x700], data[16:528])
    assert (shared.data[FIRST:0x500] == 0xFF).all() and (shared.data[0x700:] == 0xFF).all()
    expected = data.copy()
    expected[1024:1536] = expected[16:528]
    assert store_bulk(memory, data.ctypes.data + 1024, shared, 0x500, 512) == 512
    assert np.array_equal(data, expected)
    assert tma.load_bulk(memory, data.ctypes.data, shared, 0x500, 0) == 0
    assert store_bulk(memory, data.ctypes.data, shared, 0x500, 0) == 0
    assert np.array_equal(data, expected)


@pytest.mark.parametrize(
    ("address", "offset", "nbytes", "message"),
    [
        (8, 0x500, 64, "global address 0x.*8 is not a multiple of 16"),
        (0, 0x508, 64, "shared memory offset 0x508 is not a multiple of 16"),
        (0, 0x500, 24, "size 0x18 is not a multiple of 16"),
        (2000, 0x500, 64, "past the end of data"),
        (0, SHARED + FIRST - 32, 64, "shared offset"),
    ],
)
def test_illegal_bulk_copies(address, offset, nbytes, message):
    memory, shared = GlobalMemory(), SharedMemory(SHARED)
    storage = np.zeros(4096, np.uint8)
    first = storage.ctypes.data + -storage.ctypes.data % 16
    memory.register(first, 2048, "data")
    for copy in (
        lambda: tma.load_bulk(memory, first + address, shared, offset, nbytes),
        lambda: store_bulk(memory, first + address, shared, offset, nbytes),
    ):
        with pytest.raises(Fault, match=message):
            copy()


def test_observers_see_both_sides_of_a_copy():
    tensor = Tensor((128, 64), (64, 32), swizzle=64)
    shared, seen = SharedMemory(SHARED), []
    tensor.memory.observer = lambda *access: seen.append(("global", *access))
    shared.observer = lambda *access: seen.append(("shared", *access))
    start = tensor.data.ctypes.data + 64 + 128 * 48
    tma.load_tile(tensor.map, (64, 48), tensor.memory, shared, 0x800, "me")
    box = ("async", start, (16, 64), (128, 1), "me")
    assert sorted(seen) == [("global", "load", *box), ("shared", "store", "async", 0x800, (2048,), (1,), "me")]
    seen.clear()
    store_tile(tensor.map, (64, 48), tensor.memory, shared, 0x800, "me")
    assert sorted(seen) == [("global", "store", *box), ("shared", "load", "async", 0x800, (2048,), (1,), "me")]
