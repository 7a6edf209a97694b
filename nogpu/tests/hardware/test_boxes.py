"""Bulk and tensor copies, in C and in Python, against copies byte by byte; their traffic; copies that are refused."""

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nogpu.errors import Fault
from nogpu.hardware.memory import GlobalMemory
from nogpu.hardware.shared_memory import SharedMemory
from nogpu.hardware.tma import boxes
from nogpu.hardware.tma.encode import Im2colMap
from nogpu.hardware.tma.swizzle import swizzle
from nogpu.hardware.tma.tensor_map import TensorMap
from nogpu.hardware.traffic import SECTOR, Traffic
from tests.support.encoding import tensor_map

SHARED = 48 * 1024
BITS = {"u8": 8, "u16": 16, "f16": 16, "bf16": 16, "f32": 32, "s32": 32, "u64": 64, "f64": 64, "b4x16": 4}
NAN = {"f16": b"\xff\x7f", "bf16": b"\xff\x7f", "f32": b"\xff\xff\xff\x7f", "f64": b"\xff" * 7 + b"\x7f"}
DATA_TYPES = ["u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "", "", "", "b4x16"]
SWIZZLES = [(0, "16B"), (32, "16B"), (64, "16B"), (128, "16B"), (128, "32B"), (128, "32B flip"), (128, "64B")]


@dataclass
class Copy:
    """A box of a tensor; sizes in elements, strides in bytes."""

    element: str
    dims: list[int]
    strides: list[int]
    counts: list[int]
    steps: list[int]
    swizzle: tuple[int, str]
    fill_nan: bool
    coords: list[int]
    offset: int  # offset in shared memory
    start: int  # start of the tensor in its allocation
    mode: str
    corners: tuple[list[int], list[int]] = ([], [])  # of mode im2col, the lower and the upper one
    pixels: int = 1

    @property
    def row_bytes(self) -> int:
        return self.counts[0] * BITS[self.element] // 8

    def swizzled(self, address):
        """The swizzled address (PTX ISA, "Swizzling Modes")."""
        (span, atom), line = self.swizzle, address // 128
        if atom == "16B":
            return address ^ (line % (span // 16)) * 16 if span else address
        if atom == "64B":
            return address ^ line % 2 * 64
        return address ^ line % 4 * 32 ^ (line % 2 * 8 if atom == "32B flip" else 0)

    def bytes(self):
        """Arrays of each byte of the box: offset in shared memory, in the tensor (-1: outside), position in its row."""
        rows = [self.coords[1:]]
        if self.mode == "rows":
            rows = [[row] for row in self.coords[1:]]
        elif self.mode == "im2col":
            base, offsets = self.coords[1 : len(self.dims)], self.coords[len(self.dims) :]
            images = (pixel for image in count(base[-1]) for pixel in self.image(image, base[:-1]))
            rows = np.array(list(islice(images, self.pixels))) + [*offsets, 0]
        elif len(self.dims) > 1:
            index = np.indices(self.counts[:0:-1]).reshape(len(self.dims) - 1, -1)[::-1].T
            rows = index * self.steps[1:] + self.coords[1:]
        rows, bits, i = np.array(rows, int), BITS[self.element], np.arange(self.row_bytes)
        column = self.coords[0] + i * 8 // bits
        inside = ((rows >= 0) & (rows < self.dims[1:])).all(1)[:, None] & (column >= 0) & (column < self.dims[0])
        offsets = (rows @ np.array(self.strides, int))[:, None] + self.coords[0] * bits // 8 + i
        places = self.swizzled(self.offset + np.arange(offsets.size))
        return places, np.where(inside, offsets, -1).ravel(), np.tile(i, len(rows))

    def image(self, image, base):
        """Bases in an image, all of the bounding box behind that of the first pixel if it is in this image."""
        lower, upper = self.corners
        box = [range(low, dim + high) for low, dim, high in zip(lower, self.dims[1:], upper)]
        first = base if image == self.coords[len(self.dims) - 1] else lower

        def lines(axis, first):
            if axis < 0:
                yield (image,)
                return
            for place in range(first[axis], box[axis].stop, self.steps[axis + 1]):
                for inner in lines(axis - 1, first if place == first[axis] else lower):
                    yield (*inner[:-1], place, image)

        return lines(len(base) - 1, first)


class Setting:
    """The memories of a copy, and the traffic of a launch that has copied from and to the tensor before."""

    def __init__(self, copy: Copy) -> None:
        rng = np.random.default_rng(1)
        reach = sum((dim - 1) * stride for dim, stride in zip(copy.dims[1:], copy.strides))
        size = copy.start + reach + (copy.dims[0] * BITS[copy.element] + 7) // 8
        storage = np.zeros(size + 64, np.uint8)
        self.allocation = storage[-storage.ctypes.data % 32 :][:size]
        self.allocation[:] = rng.integers(0, 256, size)
        self.tensor = self.allocation[copy.start :]
        self.memory = GlobalMemory()
        self.memory.register(self.allocation.ctypes.data, size, "tensor")
        self.shared = SharedMemory(SHARED)
        self.shared.data[:] = rng.integers(0, 256, len(self.shared.data))
        if copy.mode == "im2col":
            code = DATA_TYPES.index(copy.element)
            size, swizzle = (copy.counts[0], copy.pixels), SWIZZLES.index(copy.swizzle)
            place = self.tensor.ctypes.data, copy.dims, copy.strides
            raw = Im2colMap(code, *place, *copy.corners, *size, copy.steps, 0, swizzle, 0, copy.fill_nan).encode()
            self.map = TensorMap.decode(raw)
            self.copied_before()
            return
        box = [n * step for n, step in zip(copy.counts, copy.steps)]
        self.map = TensorMap.decode(
            tensor_map(
                *(self.tensor.ctypes.data, copy.dims, copy.strides, box, copy.element, copy.swizzle[0], copy.steps),
                fill_nan=copy.fill_nan,
                atom=copy.swizzle[1],
            )
        )
        self.copied_before()

    def copied_before(self) -> None:
        self.traffic = self.memory.traffic = Traffic()
        self.memory.read(self.allocation.ctypes.data, 1)
        self.memory.write(self.allocation.ctypes.data, self.allocation[:1].copy())
        (self.loads,), (self.stores,) = self.traffic.loads.values(), self.traffic.stores.values()
        for marks in (self.loads, self.stores):
            marks.requested, marks.marks[:], marks.low, marks.high = 0, 0, len(marks.marks), 0


def coordinates(size: int, dim: int, store: bool):
    """The coordinate of a box in a dimension: anywhere, and often such that box and tensor overlap."""
    anywhere, common = st.integers(-size - 1, dim + 1), st.integers(1 - size, dim - 1)
    return st.one_of(common, common, common, anywhere).map(lambda place: max(place, 0) if store else place)


@st.composite
def copies(draw, store: bool) -> Copy:
    mode = draw(st.sampled_from(["tile", "tile", "rows", "im2col"]))
    rows, pixels = mode == "rows", mode == "im2col"
    element, swizzle = draw(st.sampled_from(sorted(BITS))), draw(st.sampled_from(SWIZZLES))
    bits, rank = BITS[element], 2 if rows else draw(st.integers(3 if pixels else 1, 5))
    widest = min(swizzle[0] or 256, 256 * bits // 8)
    counts = [16 * draw(st.integers(1, widest // 16)) * 8 // bits]
    counts += [1 if rows or pixels else draw(st.integers(1, 5 if rank < 4 else 3)) for _ in range(rank - 1)]
    steps = [1] + [1 if rows else draw(st.integers(1, 3)) for _ in range(rank - 1)]
    dims = [
        2 * draw(st.integers(1, counts[0])),
        *(draw(st.integers(1, 12 if rank < 4 else 5)) for _ in range(rank - 1)),
    ]
    strides, reach = [], dims[0] * bits // 8
    for dim in dims[1:]:
        least = 0 if not store and draw(st.integers(0, 3)) == 0 else -(-reach // 16) * 16
        strides.append(least + 16 * draw(st.integers(0, 3)))
        reach += (dim - 1) * strides[-1]
    sizes = [n * step for n, step in zip(counts, steps)]
    coords = [draw(coordinates(size, dim, store)) for size, dim in zip(sizes, dims)]
    coords += [draw(coordinates(1, dims[1], store)) for _ in range(3 if rows else 0)]
    corners = ([], [])
    for i, dim in enumerate(dims[1:-1] if pixels else (), start=1):
        lower = draw(st.integers(0 if store else -3, dim - 1))
        upper = draw(st.integers(lower - dim + 1, 0 if store else 3))
        coords[i] = draw(st.integers(lower, dim - 1 + upper))
        coords.append(0 if store else draw(st.integers(0, 3)))
        corners[0].append(lower)
        corners[1].append(upper)
    if bits == 4:
        coords[0] &= -2
    return Copy(
        *(element, dims, strides, counts, steps, swizzle, element in NAN and draw(st.booleans()), coords),
        *(0x400 + 128 * draw(st.integers(0, 20)), 16 * draw(st.integers(0, 4)), mode, corners),
        pixels=draw(st.integers(1, 40)) if pixels else 1,
    )


@contextmanager
def compiled():
    """A context that refuses Python's own way."""

    def refuse(*args):
        raise AssertionError("the copy was not made by compiled code")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("check_tile", "check_bulk", "_clip"):
            patch.setattr(boxes, name, refuse)
        yield


def sectors(setting: Setting, offsets) -> list[int]:
    return np.unique((setting.tensor.ctypes.data + np.array(offsets) - setting.loads.origin) // SECTOR).tolist()


def load(setting: Setting, copy: Copy) -> int:
    coords = tuple(copy.coords)
    return boxes.load_tile(setting.map, coords, setting.memory, setting.shared, copy.offset, None, copy.mode)


def store(setting: Setting, copy: Copy) -> int:
    coords = tuple(copy.coords)
    box = boxes.read_tile(setting.map, coords, setting.shared, copy.offset, None, copy.mode)
    return boxes.write_tile(setting.map, coords, setting.memory, box, None, copy.mode)


def check_twin(setting: Setting, copy: Copy, run) -> None:
    """Check that Python's own way, which an observer forces, has the same results."""
    twin = Setting(copy)
    seen = []
    twin.shared.observer = twin.memory.observer = lambda *access: seen.append(access)
    run(twin, copy)
    assert seen
    assert np.array_equal(twin.shared.data, setting.shared.data)
    assert np.array_equal(twin.allocation, setting.allocation)
    for mine, other in ((setting.loads, twin.loads), (setting.stores, twin.stores)):
        assert mine.requested == other.requested
        assert np.array_equal(mine.marks, other.marks)
        assert (mine.low, mine.high) == (other.low, other.high)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(copies(store=False))
def test_tile_loads(copy):
    setting = Setting(copy)
    expected = setting.shared.data.copy()
    fill = np.frombuffer(NAN[copy.element] if copy.fill_nan else b"\0", np.uint8)
    places, offsets, i = copy.bytes()
    expected[places] = np.where(offsets < 0, fill[i % len(fill)], setting.tensor[offsets])
    inside = offsets[offsets >= 0]
    with compiled():
        assert load(setting, copy) == len(inside)
    assert np.array_equal(setting.shared.data, expected)
    assert setting.loads.requested == len(inside)
    assert np.flatnonzero(setting.loads.marks).tolist() == sectors(setting, inside)
    check_twin(setting, copy, load)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(copies(store=True))
def test_tile_stores(copy):
    setting = Setting(copy)
    expected, (places, offsets, _) = setting.tensor.copy(), copy.bytes()
    inside = offsets[offsets >= 0]
    expected[inside] = setting.shared.data[places[offsets >= 0]]
    marked = np.unique(copy.start + inside).tolist()
    with compiled():
        assert store(setting, copy) == len(inside)
    assert np.array_equal(setting.tensor, expected)
    stores = setting.stores
    assert stores.requested == len(inside)
    assert np.flatnonzero(stores.marks).tolist() == marked
    assert (stores.low, stores.high) == ((marked[0], marked[-1] + 1) if marked else (len(stores.marks), 0))
    check_twin(setting, copy, store)


def plain(**changes) -> Copy:
    """A box of 16 x 4 words of a tensor of 32 x 8, 128-byte swizzle."""
    values = {"element": "f32", "dims": [32, 8], "strides": [160], "counts": [16, 4], "steps": [1, 1]}
    values |= {"swizzle": (128, "16B"), "fill_nan": False, "coords": [4, 2], "offset": 0x800, "start": 16}
    return Copy(**values | {"mode": "tile"} | changes)


@pytest.mark.parametrize(("start", "nbytes"), [(0, 16), (16, 48), (48, 800)])
def test_bulk_copies(start, nbytes):
    setting = Setting(plain())
    address, data = setting.tensor.ctypes.data + start, setting.tensor[start : start + nbytes].copy()
    expected = setting.shared.data.copy()
    expected[0x810 : 0x810 + nbytes] = data
    with compiled():
        assert boxes.load_bulk(setting.memory, address, setting.shared, 0x810, nbytes) == nbytes
    assert np.array_equal(setting.shared.data, expected)
    assert setting.loads.requested == nbytes
    assert np.flatnonzero(setting.loads.marks).tolist() == sectors(setting, range(start, start + nbytes))
    with compiled():
        read = boxes.read_bulk(setting.shared, 0x900, nbytes)
        assert boxes.write_bulk(setting.memory, address, read) == nbytes
    assert bytes(setting.tensor[start : start + nbytes]) == bytes(setting.shared.data[0x900 : 0x900 + nbytes])
    assert setting.stores.requested == nbytes
    assert (setting.stores.low, setting.stores.high) == (16 + start, 16 + start + nbytes)
    assert np.flatnonzero(setting.stores.marks).tolist() == list(range(16 + start, 16 + start + nbytes))


REFUSED = [
    (plain(offset=0x840), "", "shared memory offset 0x840 is not a multiple of 128"),
    (plain(offset=SHARED + 0x400 - 128), "", r"of 256 bytes at shared offset 0xc380.* shared memory is"),
    (plain(offset=0x380), "", "at shared offset 0x380.* shared memory is"),
    (plain(), "barrier", "live barrier"),
    (plain(), "release", "outside every live allocation; .* was there, freed at"),
    (plain(), "shorten", "past the end"),
    (plain(coords=[4]), "", "1 coordinates for a tensor map of rank 2"),
    (plain(element="b4x16", counts=[32, 4], coords=[3, 2]), "", "coordinate 3 of 4-bit elements.* byte boundary"),
    (plain(mode="rows", coords=[0, 1, 2, 3, 4]), "", "the rank must be 2 and the box one row high"),
    (
        plain(dims=[32, 8, 2], strides=[160, 1280], counts=[16, 1, 1], steps=[1, 1, 1], mode="rows", coords=[0] * 5),
        *("", "the rank must be 2 and the box one row high"),
    ),
    (plain(steps=[2, 1]), "", "element stride 2 in dimension 0"),
    (plain(coords=[-4, 2]), "store", "must not be negative"),
    (plain(coords=[0, -1]), "store", r"coordinates \(0, -1\), must not be negative"),
    (plain(), "store, read-only", "read-only"),
]


@pytest.mark.parametrize(
    ("run", "copy", "fault", "message"),
    [(run, *case) for case in REFUSED for run in (load, store) if run is store or "store" not in case[1]],
)
def test_copies_that_are_refused(run, copy, fault, message):
    setting = Setting(copy)
    address, size = setting.allocation.ctypes.data, len(setting.allocation)
    if fault == "barrier":
        setting.shared.place_barrier(copy.offset + 4 * 64 - 8, "a barrier")
    elif fault in ("release", "shorten", "store, read-only"):
        setting.memory.release(address)
        if fault != "release":
            setting.memory.register(address, size - 160 * 3 * (fault == "shorten"), writable=fault == "shorten")
            setting.memory.traffic = None
    before = setting.shared.data.copy(), setting.allocation.copy()
    with pytest.raises(Fault, match=message):
        run(setting, copy)
    assert np.array_equal(setting.shared.data, before[0])
    assert np.array_equal(setting.allocation, before[1])
    assert not (setting.loads.requested or setting.stores.requested)
    assert not (setting.loads.marks.any() or setting.stores.marks.any())


@pytest.mark.parametrize(
    ("address", "offset", "nbytes", "message"),
    [
        (8, 0x500, 64, "global address 0x.*8 is not a multiple of 16"),
        (0, 0x508, 64, "shared memory offset 0x508 is not a multiple of 16"),
        (0, 0x500, 24, "size 0x18 is not a multiple of 16"),
        (1264, 0x500, 64, "past the end of tensor"),
        (0, SHARED + 0x400 - 32, 64, "shared offset"),
    ],
)
def test_bulk_copies_that_are_refused(address, offset, nbytes, message):
    setting = Setting(plain())
    address += setting.allocation.ctypes.data
    with pytest.raises(Fault, match=message):
        boxes.load_bulk(setting.memory, address, setting.shared, offset, nbytes)
    with pytest.raises(Fault, match=message):
        boxes.check_bulk(setting.memory, address, setting.shared, offset, nbytes, "load")
        boxes.write_bulk(setting.memory, address, boxes.read_bulk(setting.shared, offset, nbytes))


def test_bulk_copies_of_no_bytes():
    setting = Setting(plain())
    address = setting.allocation.ctypes.data
    assert boxes.load_bulk(setting.memory, address, setting.shared, 0x500, 0) == 0
    assert boxes.write_bulk(setting.memory, address, boxes.read_bulk(setting.shared, 0x500, 0)) == 0
    assert not (setting.loads.requested or setting.stores.requested)


def test_a_map_with_interleave_is_refused_by_name():
    raw = tensor_map(0x1000, dims=(128, 8, 4), strides=(256, 4096), box=(16, 8, 1), interleave=1)
    with pytest.raises(Fault, match="interleave 16B is not modelled"):
        boxes.load_tile(TensorMap.decode(raw), (0, 0, 0), GlobalMemory(), SharedMemory(SHARED), 0x400)


def test_a_box_wholly_outside_touches_no_memory():
    copy = plain(coords=[32, 0])
    setting, empty = Setting(copy), GlobalMemory()
    assert boxes.load_tile(setting.map, (32, 0), empty, setting.shared, copy.offset) == 0
    assert not setting.shared.data[copy.offset : copy.offset + 256].any()
    box = boxes.read_tile(setting.map, (0, 8), setting.shared, copy.offset)
    assert boxes.write_tile(setting.map, (0, 8), empty, box) == 0


def test_bytes_that_a_mask_leaves_out():
    setting = Setting(plain(start=0))
    data, before = np.arange(1, 65, dtype=np.uint8), setting.allocation[:64].copy()
    assert boxes.write_bulk(setting.memory, setting.allocation.ctypes.data, data, byte_mask=0x8005) == 12
    kept = np.array([i % 16 in (0, 2, 15) for i in range(64)])
    assert np.array_equal(setting.allocation[:64], np.where(kept, data, before))


def test_every_swizzle_is_its_own_inverse_and_stays_in_its_line():
    chunks = np.arange(4096)
    for span, atom in ((0, 16), (32, 16), (64, 16), (128, 16), (128, 32), (128, 64)):
        places = swizzle(chunks, span, atom)
        assert np.array_equal(swizzle(places, span, atom), chunks)
        assert np.array_equal(places // 8, chunks // 8)
        assert (span == 0) == np.array_equal(places, chunks)


def test_observers_see_both_sides_of_a_copy():
    copy = plain(swizzle=(64, "16B"))
    setting, seen = Setting(copy), []
    setting.memory.observer = lambda *access: seen.append(("global", *access))
    setting.shared.observer = lambda *access: seen.append(("shared", *access))
    box = ("async", setting.tensor.ctypes.data + 2 * 160 + 16, (4, 64), (160, 1), "me")
    rows = ("async", copy.offset, (256,), (1,), "me")
    boxes.load_tile(setting.map, (4, 2), setting.memory, setting.shared, copy.offset, "me")
    assert sorted(seen) == [("global", "load", *box), ("shared", "store", *rows)]
    seen.clear()
    tile = boxes.read_tile(setting.map, (4, 2), setting.shared, copy.offset, "me")
    boxes.write_tile(setting.map, (4, 2), setting.memory, tile, "me")
    assert sorted(seen) == [("global", "store", *box), ("shared", "load", *rows)]


def test_a_barrier_beside_the_box_is_no_obstacle():
    setting = Setting(plain())
    setting.shared.place_barrier(0x7F8, "a barrier")
    setting.shared.place_barrier(0x800 + 4 * 64, "a barrier")
    with compiled():
        assert load(setting, plain()) == 4 * 64


@pytest.mark.parametrize("observed", [False, True])
def test_a_barrier_that_is_placed_between_two_copies(observed):
    setting = Setting(plain())
    if observed:
        setting.shared.observer = lambda *access: None
    load(setting, plain())
    setting.shared.place_barrier(0x840, "a barrier")
    with pytest.raises(Fault, match="live barrier"):
        load(setting, plain())
    setting.shared.remove_barrier(0x840)
    assert load(setting, plain()) == 4 * 64


@pytest.mark.parametrize("run", [load, store])
def test_an_allocation_that_is_replaced_between_two_copies(run):
    """The second allocation starts behind the tensor's first bytes."""
    setting = Setting(plain(coords=[0, 0]))
    run(setting, plain(coords=[0, 0]))
    address, size = setting.allocation.ctypes.data, len(setting.allocation)
    setting.memory.release(address)
    setting.memory.register(address + 32, size - 32)
    with pytest.raises(Fault, match="the first 16 bytes are before"):
        run(setting, plain(coords=[0, 0]))


@pytest.mark.parametrize("run", [load, store])
def test_a_first_copy_is_counted_like_the_next(run):
    setting = Setting(plain())
    traffic = setting.memory.traffic = Traffic()
    run(setting, plain())
    (marks,) = (traffic.loads if run is load else traffic.stores).values()
    once = marks.marks.copy()
    with compiled():
        run(setting, plain())
    assert marks.requested == 2 * 4 * 64
    assert np.array_equal(marks.marks, once)


def test_launches_count_their_own_copies():
    """Launches overlap, so that the memory has the traffic of each in turn."""
    setting = Setting(plain())
    first = setting.loads
    setting.copied_before()
    with compiled():
        load(setting, plain())
    assert (first.requested, setting.loads.requested) == (0, 4 * 64)
