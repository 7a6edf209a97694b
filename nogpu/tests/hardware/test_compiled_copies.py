"""Bulk and tensor copies in C against copies byte by byte, their marks of traffic, and the copies left to Python."""

import itertools
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nogpu.errors import Fault
from nogpu.hardware.memory import GlobalMemory
from nogpu.hardware.shared_memory import SharedMemory
from nogpu.hardware.tma import boxes
from nogpu.hardware.tma.tensor_map import TensorMap
from nogpu.hardware.traffic import SECTOR, Traffic
from tests.support.encoding import tensor_map

SHARED = 48 * 1024
BITS = {"u8": 8, "u16": 16, "f16": 16, "bf16": 16, "f32": 32, "s32": 32, "u64": 64, "f64": 64, "b4x16": 4}
NAN = {"f16": b"\xff\x7f", "bf16": b"\xff\x7f", "f32": b"\xff\xff\xff\x7f", "f64": b"\xff" * 7 + b"\x7f"}
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
    rows: bool

    @property
    def row_bytes(self) -> int:
        return self.counts[0] * BITS[self.element] // 8

    def swizzled(self, address: int) -> int:
        """The swizzled address (PTX ISA, "Swizzling Modes")."""
        (span, atom), line = self.swizzle, address // 128
        if atom == "16B":
            return address ^ (line % (span // 16)) * 16 if span else address
        if atom == "64B":
            return address ^ line % 2 * 64
        return address ^ line % 4 * 32 ^ (line % 2 * 8 if atom == "32B flip" else 0)

    def bytes(self):
        """(offset in shared memory, offset in the tensor or None, position in its element) of each byte of the box."""
        bits, place = BITS[self.element], self.offset
        if self.rows:
            starts = [[row] for row in self.coords[1:]]
        else:
            outer = itertools.product(*(range(n) for n in reversed(self.counts[1:])))
            starts = [
                [c + i * s for c, i, s in zip(self.coords[1:], reversed(index), self.steps[1:])] for index in outer
            ]
        for at in starts:
            inside = all(0 <= c < dim for c, dim in zip(at, self.dims[1:]))
            base = sum(c * stride for c, stride in zip(at, self.strides))
            for i in range(self.row_bytes):
                column = self.coords[0] + i * 8 // bits
                found = inside and 0 <= column < self.dims[0]
                yield self.swizzled(place), base + self.coords[0] * bits // 8 + i if found else None, i
                place += 1


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
    rows = draw(st.booleans()) and draw(st.booleans())
    element, swizzle = draw(st.sampled_from(sorted(BITS))), draw(st.sampled_from(SWIZZLES))
    bits, rank = BITS[element], 2 if rows else draw(st.integers(1, 5))
    widest = min(swizzle[0] or 256, 256 * bits // 8)
    counts = [16 * draw(st.integers(1, widest // 16)) * 8 // bits]
    counts += [1 if rows else draw(st.integers(1, 9 if rank < 4 else 3)) for _ in range(rank - 1)]
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
    if bits == 4:
        coords[0] &= -2
    return Copy(
        *(element, dims, strides, counts, steps, swizzle, element in NAN and draw(st.booleans()), coords),
        *(0x400 + 128 * draw(st.integers(0, 20)), 16 * draw(st.integers(0, 4)), rows),
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


def sectors(setting: Setting, offsets: set[int]) -> set[int]:
    return {(setting.tensor.ctypes.data + offset - setting.loads.origin) // SECTOR for offset in offsets}


def load(setting: Setting, copy: Copy) -> int:
    coords = tuple(copy.coords)
    return boxes.load_tile(setting.map, coords, setting.memory, setting.shared, copy.offset, None, copy.rows)


def store(setting: Setting, copy: Copy) -> int:
    coords = tuple(copy.coords)
    box = boxes.read_tile(setting.map, coords, setting.shared, copy.offset, None, copy.rows)
    return boxes.write_tile(setting.map, coords, setting.memory, box, None, copy.rows)


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
    expected, inside = setting.shared.data.copy(), set()
    fill, requested = NAN[copy.element] if copy.fill_nan else b"\0", 0
    for place, offset, i in copy.bytes():
        expected[place] = fill[i % len(fill)] if offset is None else setting.tensor[offset]
        if offset is not None:
            inside.add(offset)
            requested += 1
    with compiled():
        assert load(setting, copy) == requested
    assert np.array_equal(setting.shared.data, expected)
    assert setting.loads.requested == requested
    assert set(np.flatnonzero(setting.loads.marks).tolist()) == sectors(setting, inside)
    check_twin(setting, copy, load)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(copies(store=True))
def test_tile_stores(copy):
    setting = Setting(copy)
    expected, marked, requested = setting.tensor.copy(), set(), 0
    for place, offset, _ in copy.bytes():
        if offset is not None:
            expected[offset] = setting.shared.data[place]
            marked.add(copy.start + offset)
            requested += 1
    with compiled():
        assert store(setting, copy) == requested
    assert np.array_equal(setting.tensor, expected)
    stores = setting.stores
    assert stores.requested == requested
    assert set(np.flatnonzero(stores.marks).tolist()) == marked
    assert (stores.low, stores.high) == ((min(marked), max(marked) + 1) if marked else (len(stores.marks), 0))
    check_twin(setting, copy, store)


def plain(**changes) -> Copy:
    """A box of 16 x 4 words of a tensor of 32 x 8, 128-byte swizzle."""
    values = {"element": "f32", "dims": [32, 8], "strides": [160], "counts": [16, 4], "steps": [1, 1]}
    values |= {"swizzle": (128, "16B"), "fill_nan": False, "coords": [4, 2], "offset": 0x800, "start": 16}
    return Copy(**values | {"rows": False} | changes)


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
    touched = sectors(setting, set(range(start, start + nbytes)))
    assert set(np.flatnonzero(setting.loads.marks).tolist()) == touched
    with compiled():
        read = boxes.read_bulk(setting.shared, 0x900, nbytes)
        assert boxes.write_bulk(setting.memory, address, read) == nbytes
    assert bytes(setting.tensor[start : start + nbytes]) == bytes(setting.shared.data[0x900 : 0x900 + nbytes])
    assert setting.stores.requested == nbytes
    assert (setting.stores.low, setting.stores.high) == (16 + start, 16 + start + nbytes)
    assert np.flatnonzero(setting.stores.marks).tolist() == list(range(16 + start, 16 + start + nbytes))


REFUSED = [
    (plain(offset=0x840), None, "offset 0x840"),
    (plain(offset=SHARED + 0x400 - 128), None, "shared memory is"),
    (plain(offset=0x380), None, "shared memory is"),
    (plain(), "barrier", "live barrier"),
    (plain(), "release", "no live allocation"),
    (plain(), "shorten", "past the end"),
    (plain(coords=[4]), None, "1 coordinates"),
    (plain(element="b4x16", counts=[32, 4], coords=[3, 2]), None, "byte boundary"),
    (plain(rows=True, coords=[0, 1, 2, 3, 4]), None, "the box one row high"),
]


@pytest.mark.parametrize("run", [load, store])
@pytest.mark.parametrize(("copy", "fault", "message"), REFUSED)
def test_what_python_refuses(copy, fault, message, run):
    setting = Setting(copy)
    address, size = setting.allocation.ctypes.data, len(setting.allocation)
    if fault == "barrier":
        setting.shared.place_barrier(copy.offset + 4 * 64 - 8, "a barrier")
    elif fault is not None:
        setting.memory.release(address)
        if fault == "shorten":
            setting.memory.register(address, size - 160 * 3)
            setting.copied_before()
    before = setting.shared.data.copy(), setting.allocation.copy()
    with pytest.raises(Fault, match=message):
        run(setting, copy)
    assert np.array_equal(setting.shared.data, before[0])
    assert np.array_equal(setting.allocation, before[1])
    assert not (setting.loads.requested or setting.stores.requested)
    assert not (setting.loads.marks.any() or setting.stores.marks.any())


@pytest.mark.parametrize(
    ("coords", "writable", "message"), [((-4, 2), True, "not be negative"), ((4, 2), False, "read-only")]
)
def test_stores_that_python_refuses(coords, writable, message):
    copy = plain(coords=list(coords))
    setting = Setting(copy)
    if not writable:
        address = setting.allocation.ctypes.data
        setting.memory.release(address)
        setting.memory.register(address, len(setting.allocation), writable=False)
    before = setting.allocation.copy()
    with pytest.raises(Fault, match=message):
        store(setting, copy)
    assert np.array_equal(setting.allocation, before)


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
