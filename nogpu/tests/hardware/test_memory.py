"""Global and shared memory: bounds to the byte, alignment, lanes against single accesses, traffic by brute force."""

import numpy as np
import pytest

from nogpu.errors import Fault
from nogpu.hardware.memory import SHARED_BASE, GlobalMemory
from nogpu.hardware.shared_memory import SharedMemory
from nogpu.hardware.traffic import SECTOR, Traffic

ELEMENTS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
WIDTHS = [(1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (2, 2), (4, 2), (4, 4), (8, 2), (8, 4), (4, 8)]


def aligned(nbytes: int, alignment: int = 256, skew: int = 0) -> np.ndarray:
    storage = np.zeros(nbytes + 2 * alignment, np.uint8)
    first = -storage.ctypes.data % alignment + skew
    return storage[first : first + nbytes]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def space(rng):
    """A memory with one allocation, "a", of 4096 random bytes amid a larger buffer: (memory, bytes, address)."""
    whole = aligned(3 * 4096)
    whole[:] = rng.integers(0, 256, len(whole))
    memory = GlobalMemory()
    address = whole.ctypes.data + 4096
    memory.register(address, 4096, "a")
    return memory, whole[4096:8192], address


class TestAllocations:
    def test_overlaps_are_refused_and_neighbours_are_not(self, space):
        memory, _, address = space
        for start, size in ((address, 1), (address - 1, 2), (address + 4095, 1), (address - 8, 8192)):
            with pytest.raises(ValueError, match="overlap the live a at"):
                memory.register(start, size)
        memory.register(address + 4096, 16)
        memory.register(address - 16, 16)

    @pytest.mark.parametrize("address, nbytes", [(0, 16), (1 << 47, 16), (1 << 20, 0)])
    def test_impossible_allocations_are_refused(self, address, nbytes):
        with pytest.raises(ValueError, match="no allocation can be"):
            GlobalMemory().register(address, nbytes)

    def test_a_released_allocation_is_not_accessible(self, space):
        memory, _, address = space
        lanes = np.full(32, address, np.uint64)
        memory.load_vector(address, 4, 1)
        memory.gather(lanes, 4)
        memory.release(address)
        with pytest.raises(Fault, match="outside every live allocation; a at .* was there, freed at"):
            memory.load_vector(address, 4, 1)
        with pytest.raises(Fault, match="outside every live allocation; a at .* was there, freed at"):
            memory.gather(lanes, 4)
        with pytest.raises(KeyError):
            memory.release(address)
        memory.register(address, 64)
        memory.load_vector(address, 4, 1)

    def test_lookup_agrees_with_a_scan(self, rng):
        buffer = aligned(1 << 16)
        base, memory, live = buffer.ctypes.data, GlobalMemory(), {}
        for _ in range(300):
            start, size = base + int(rng.integers(0, 1 << 16)) // 64 * 64, 48
            if start in live:
                memory.release(start)
                del live[start]
            else:
                memory.register(start, size)
                live[start] = size
            address = base + int(rng.integers(0, 1 << 16))
            found = memory.allocation(address)
            expected = [s for s in live if s <= address < s + live[s]]
            assert ([] if found is None else [found.start]) == expected

    @pytest.mark.parametrize(
        "offset, nbytes, text",
        [
            (4092, 8, "the last 4 bytes are past the end of a at"),
            (-4, 8, "the first 4 bytes are before a at"),
            (4100, 8, "it lies 4 byte(s) past the end of a at"),
            (-24, 8, "it lies 16 byte(s) before a at"),
        ],
    )
    def test_a_miss_names_the_nearest_allocation_and_the_distance(self, space, offset, nbytes, text):
        memory, _, address = space
        with pytest.raises(Fault) as fault:
            memory.read(address + offset, nbytes)
        assert f"load of {nbytes} bytes at {address + offset:#x}" in fault.value.reason
        assert text in fault.value.reason and f"{address:#x} (4096 bytes)" in fault.value.reason

    def test_adjacent_allocations_are_not_one(self, space):
        memory, _, address = space
        memory.register(address + 4096, 64, "b")
        memory.read(address + 4096, 64)
        with pytest.raises(Fault, match="the last 8 bytes are past the end of a"):
            memory.read(address + 4088, 16)

    def test_launch_parameters_are_read_only(self, space):
        memory, data, address = space
        memory.release(address)
        memory.register(address, 4096, "kernel parameters", writable=False)
        before = data.copy()
        lanes = np.full(32, address, np.uint64)
        assert memory.load_vector(address, 1, 1) == (data[0],)
        memory.gather(lanes, 4)
        for store in (
            lambda: memory.store_vector(address, (1,), 4),
            lambda: memory.write(address, np.zeros(4, np.uint8)),
            lambda: memory.scatter(lanes, np.zeros((1, 32), np.uint32)),
        ):
            with pytest.raises(Fault, match=r"kernel parameters at .* is read-only"):
                store()
        assert np.array_equal(data, before)


class TestGlobalAccesses:
    @pytest.mark.parametrize("nbytes, count", WIDTHS)
    def test_one_lane_moves_little_endian_words(self, space, nbytes, count):
        memory, data, address = space
        width = nbytes * count
        expected = tuple(data[width : 2 * width].view(ELEMENTS[nbytes]).tolist())
        assert memory.load_vector(address + width, nbytes, count) == expected
        memory.store_vector(address, expected, nbytes)
        assert np.array_equal(data[:width], data[width : 2 * width])
        for call in (
            lambda at: memory.load_vector(at, nbytes, count),
            lambda at: memory.store_vector(at, (0,) * count, nbytes),
        ):
            call(address + 4096 - width)
            for at in (address + 4096, address - width):
                with pytest.raises(Fault, match="byte"):
                    call(at)
            if width > 1:
                with pytest.raises(Fault, match=f"of {width} bytes at .*: misaligned by {width // 2} bytes"):
                    call(address + width // 2)

    @pytest.mark.parametrize("masked", [False, True])
    @pytest.mark.parametrize("nbytes, count", WIDTHS)
    def test_lanes_do_what_single_lanes_do(self, space, rng, nbytes, count, masked):
        memory, data, address = space
        width = nbytes * count
        addresses = address + rng.permutation(4096 // width)[:32].astype(np.uint64) * np.uint64(width)
        mask = rng.random(32) < 0.5 if masked else None
        active = np.flatnonzero(mask) if masked else np.arange(32)
        if masked:  # an inactive lane, which holds no address
            addresses[~mask] = rng.integers(0, 1 << 63, int((~mask).sum()), dtype=np.uint64)
        got = memory.gather(addresses, nbytes, count, mask)
        assert got.shape == (count, 32) and got.dtype == ELEMENTS[nbytes]
        for lane in active:
            assert tuple(got[:, lane].tolist()) == memory.load_vector(int(addresses[lane]), nbytes, count)
        values = rng.integers(0, 1 << 8 * nbytes, (count, 32), dtype=np.uint64).astype(ELEMENTS[nbytes])
        expected = data.copy()
        for lane in active:
            at = int(addresses[lane]) - address
            expected[at : at + width] = values[:, lane].copy().view(np.uint8)
        memory.scatter(addresses, values, mask)
        assert np.array_equal(data, expected)

    @pytest.mark.parametrize("nbytes, count", WIDTHS)
    def test_one_bad_lane_faults_and_nothing_is_stored(self, space, nbytes, count):
        memory, data, address = space
        width = nbytes * count
        addresses = address + np.arange(32, dtype=np.uint64) * np.uint64(width)
        before = data.copy()
        values = np.zeros((count, 32), ELEMENTS[nbytes])
        bad = [
            (address + 4096, "past the end"),
            (address - width, "before a"),
            (1 << 14, "before a0? at .*; it may be an address in shared memory, which instructions with .shared take"),
            (64, "null pointer and an offset of 64 bytes$"),
            (1024, "null pointer and an offset of 1024 bytes, or an address in shared memory, which"),
            ((1 << 64) - width, "past"),
        ]
        bad += [(address + step, "misaligned") for step in (1, width // 2, width - 1) if 0 < step < width]
        for at, text in bad:
            for lane in (0, 13, 31):
                lanes = addresses.copy()
                lanes[lane] = at
                with pytest.raises(Fault, match=text) as fault:
                    memory.gather(lanes, nbytes, count)
                assert f"load of {width} bytes at {at:#x}" in fault.value.reason
                with pytest.raises(Fault, match=text):
                    memory.scatter(lanes, values)
                assert np.array_equal(data, before)

    def test_no_word_of_an_unaligned_allocation_reaches_outside(self):
        buffer = aligned(256, skew=8)
        memory, address = GlobalMemory(), buffer.ctypes.data
        memory.register(address, 100)
        inside = np.full(4, address + 8, np.uint64)
        memory.gather(inside, 4, 4)
        for at in (address - 8, address + 88):
            inside[2] = at
            with pytest.raises(Fault, match="of 16 bytes at"):
                memory.gather(inside, 4, 4)

    def test_lanes_may_lie_in_different_allocations(self, space):
        memory, data, address = space
        other = aligned(64)
        other[:] = 9
        memory.register(other.ctypes.data, 64)
        addresses = np.array([address, other.ctypes.data + 4, address + 8], np.uint64)
        assert memory.gather(addresses, 4).tolist() == [
            [int(data[:4].view(np.uint32)[0]), 0x09090909, int(data[8:12].view(np.uint32)[0])]
        ]
        memory.scatter(addresses, np.array([[1, 2, 3]], np.uint32))
        assert [data[0], other[4], data[8]] == [1, 2, 3]

    def test_no_active_lane_is_no_access(self, space):
        memory, data, _ = space
        before = data.copy()
        nowhere, none = np.zeros(32, np.uint64), np.zeros(32, bool)
        memory.gather(nowhere, 4, 1, none)
        memory.scatter(nowhere, np.zeros((1, 32), np.uint32), none)
        assert np.array_equal(data, before)

    def test_boxes(self, space, rng):
        memory, data, address = space
        shape, strides = (3, 5, 16), (1024, 64, 1)
        offsets = np.add.outer(np.add.outer(np.arange(3) * 1024, np.arange(5) * 64), np.arange(16)) + 96
        box = memory.strided(address + 96, shape, strides)
        assert np.array_equal(box, data[offsets]) and not box.flags.writeable
        new = rng.integers(0, 256, shape).astype(np.uint8)
        expected = data.copy()
        expected[offsets] = new
        memory.write_strided(address + 96, strides, new)
        assert np.array_equal(data, expected)
        last = 2 * 1024 + 4 * 64 + 16
        memory.strided(address + 4096 - last, shape, strides)
        for at in (address + 4096 - last + 1, address - 1):
            with pytest.raises(Fault, match="1 byte"):
                memory.strided(at, shape, strides)
            with pytest.raises(Fault, match="1 byte"):
                memory.write_strided(at, strides, new)
        assert np.array_equal(data, expected)


class TestTraffic:
    def sectors(self, offsets: np.ndarray, origin: int) -> int:
        return len(np.unique((offsets + origin) // SECTOR)) * SECTOR

    @pytest.mark.parametrize("skew", [0, 8, 16])
    @pytest.mark.parametrize("first", [0, 16, 24, 40])
    @pytest.mark.parametrize(
        "shape, strides",
        [
            ((128,), (1,)),
            ((7, 64), (160, 1)),
            ((7, 24), (48, 1)),
            ((3, 4, 40), (1024, 144, 1)),
            ((2, 1, 32), (64, 7, 1)),
        ],
    )
    def test_loads_mark_the_sectors_they_touch(self, shape, strides, first, skew):
        buffer = aligned(8192, skew=skew)
        memory, address = GlobalMemory(), buffer.ctypes.data
        memory.register(address, 8192, "a")
        traffic = memory.traffic = Traffic()
        offsets = np.full(1, first)
        for n, stride in zip(shape, strides):
            offsets = np.add.outer(offsets, np.arange(n) * stride).ravel()
        for _ in range(2):
            memory.strided(address + first, shape, strides)
        (loads,) = traffic.loads.values()
        assert loads.requested == 2 * len(offsets)
        assert int(loads.marks.sum()) * SECTOR == self.sectors(offsets, address)

    def test_only_loads_of_the_async_proxy_count(self, space):
        memory, _, address = space
        traffic = memory.traffic = Traffic()
        memory.read(address, 128, proxy="generic")
        memory.gather(np.full(32, address, np.uint64), 4)
        memory.load_vector(address, 4, 1)
        assert not traffic.loads
        memory.read(address, 128)
        assert [loads.requested for loads in traffic.loads.values()] == [128]

    def test_every_store_marks_its_bytes(self, space, rng):
        memory, _, address = space
        traffic = memory.traffic = Traffic()
        expected = np.zeros(4096, bool)
        requested = 0

        def stored(offset, width):
            nonlocal requested
            expected[offset : offset + width] = True
            requested += width

        memory.store_vector(address + 64, (1,), 4)
        stored(64, 4)
        memory.write(address + 100, np.ones(33, np.uint8))
        stored(100, 33)
        memory.write_strided(address + 2048, (64, 1), np.ones((3, 20), np.uint8))
        for row in range(3):
            stored(2048 + 64 * row, 20)
        for nbytes, count in WIDTHS:
            width = nbytes * count
            words = rng.permutation(1024 // width)[:32]
            mask = rng.random(len(words)) < 0.5
            addresses = (address + 3072 + words * width).astype(np.uint64)
            memory.scatter(addresses, np.ones((count, len(words)), ELEMENTS[nbytes]), mask)
            for word in words[mask]:
                stored(3072 + int(word) * width, width)
        (stores,) = traffic.stores.values()
        assert np.array_equal(stores.marks.view(bool), expected)
        assert traffic.stored_bytes == requested
        marked = np.flatnonzero(expected)
        assert stores.low <= marked[0] and marked[-1] < stores.high

    def test_stores_to_an_unaligned_allocation(self):
        buffer = aligned(256, skew=4)
        memory, address = GlobalMemory(), buffer.ctypes.data
        memory.register(address, 100)
        traffic = memory.traffic = Traffic()
        memory.store_vector(address + 8, (1,), 4)
        (stores,) = traffic.stores.values()
        assert (stores.low, stores.high) == (8, 12)
        memory.scatter(np.array([address + 60, address + 92], np.uint64), np.ones((2, 2), np.uint32))
        assert np.flatnonzero(stores.marks).tolist() == [*range(8, 12), *range(60, 68), *range(92, 100)]

    def test_loads_seen_elsewhere_add_up(self, space):
        memory, _, address = space
        parts = []
        for first in (0, 48, 96):
            traffic = memory.traffic = Traffic()
            memory.read(address + first, 64)
            parts.append(traffic.packed_loads())
        total = Traffic()
        for part in parts:
            total.add_loads(memory, part)
        (loads,) = total.loads.values()
        assert loads.requested == 192 and int(loads.marks.sum()) == 5


class TestSharedMemory:
    SIZE = 4096 - 8

    @pytest.fixture
    def shared(self):
        return SharedMemory(self.SIZE, rank=3)

    @pytest.mark.parametrize("nbytes, count", WIDTHS)
    def test_lanes_and_single_lanes_agree(self, shared, rng, nbytes, count):
        width = nbytes * count
        shared.data[:] = rng.integers(0, 256, len(shared.data))
        base = (3 << 24) + SHARED_BASE
        addresses = (base + rng.permutation(self.SIZE // width)[:32] * width).astype(np.uint32)
        mask = rng.random(32) < 0.5
        addresses[~mask] = rng.integers(0, 1 << 32, int((~mask).sum()), dtype=np.uint32)
        got = shared.gather(addresses, nbytes, count, mask)
        for lane in np.flatnonzero(mask):
            offset = int(addresses[lane]) & 0xFFFFFF
            expected = tuple(shared.data[offset : offset + width].copy().view(ELEMENTS[nbytes]).tolist())
            assert tuple(got[:, lane].tolist()) == expected == shared.load_vector(int(addresses[lane]), nbytes, count)
        values = rng.integers(0, 1 << 8 * nbytes, (count, 32), dtype=np.uint64).astype(ELEMENTS[nbytes])
        image = shared.data.copy()
        for lane in np.flatnonzero(mask):
            offset = int(addresses[lane]) & 0xFFFFFF
            image[offset : offset + width] = values[:, lane].copy().view(np.uint8)
        shared.scatter(addresses, values, mask)
        assert np.array_equal(shared.data, image)
        lane = int(np.flatnonzero(mask)[0])
        shared.store_vector(int(addresses[lane]), (0,) * count, nbytes)
        assert not any(shared.load_vector(int(addresses[lane]), nbytes, count))

    @pytest.mark.parametrize("nbytes, count", WIDTHS)
    def test_bad_addresses_fault(self, shared, nbytes, count):
        width = nbytes * count
        base, end = (3 << 24) + SHARED_BASE, (3 << 24) + len(shared.data)
        good = (base + np.arange(32) * width).astype(np.uint32)
        bad = [
            (base - width, "shared memory is [0x400, 0x13f8)"),
            (-(-end // width) * width, "shared memory is [0x400, 0x13f8)"),
            (base & 0xFFFFFF, "names CTA rank 0, not 3"),
            ((4 << 24) + SHARED_BASE, "names CTA rank 4, not 3"),
        ]
        if width > 1:
            bad.append((base + width // 2, "misaligned"))
        if width > 8:  # a last word that runs past the end
            bad.append((end // width * width, "shared memory is [0x400, 0x13f8)"))
        before = shared.data.copy()
        for at, text in bad:
            lanes = good.copy()
            lanes[17] = at
            for access in (
                lambda lanes=lanes: shared.gather(lanes, nbytes, count),
                lambda lanes=lanes: shared.scatter(lanes, np.zeros((count, 32), ELEMENTS[nbytes])),
                lambda at=at: shared.load_vector(at, nbytes, count),
                lambda at=at: shared.store_vector(at, (0,) * count, nbytes),
            ):
                with pytest.raises(Fault) as fault:
                    access()
                assert text in fault.value.reason
        assert np.array_equal(shared.data, before)

    def test_copies_are_checked(self, shared):
        shared.write(SHARED_BASE, np.arange(16, dtype=np.uint8))
        assert shared.read(SHARED_BASE + 4, 4).tolist() == [4, 5, 6, 7]
        shared.read(SHARED_BASE, self.SIZE)
        for offset, nbytes in ((SHARED_BASE - 1, 1), (SHARED_BASE + 1, self.SIZE)):
            with pytest.raises(Fault, match="CTA rank 3"):
                shared.read(offset, nbytes)
            with pytest.raises(Fault, match="CTA rank 3"):
                shared.write(offset, np.zeros(nbytes, np.uint8))


def test_an_observer_sees_every_access_once(space):
    memory, data, address = space
    shared = SharedMemory(1024)
    seen = []

    def observe(kind, proxy, where, shape, strides, issuer):
        seen.append((kind, proxy, where.tolist() if isinstance(where, np.ndarray) else where, shape, strides, issuer))

    memory.observer = shared.observer = observe
    mask = np.array([True, False, True])
    lanes, far = np.array([address, 0, address + 8], np.uint64), aligned(64)
    memory.register(far.ctypes.data, 64)
    apart = np.array([address, far.ctypes.data], np.uint64)
    window = np.array([0x400, 0, 0x408], np.uint32)
    calls = [
        (lambda: memory.load_vector(address, 4, 1, "w"), ("load", "generic", address, (4,), (1,))),
        (lambda: memory.store_vector(address, (1, 2), 4, "w"), ("store", "generic", address, (8,), (1,))),
        (lambda: memory.gather(lanes, 4, 2, mask, "w"), ("load", "generic", [address, address + 8], (8,), (1,))),
        (
            lambda: memory.scatter(lanes, np.zeros((1, 3), np.uint32), mask, "w"),
            ("store", "generic", [address, address + 8], (4,), (1,)),
        ),
        (
            lambda: memory.scatter(apart, np.zeros((1, 2), np.uint32), None, "w"),
            ("store", "generic", apart.tolist(), (4,), (1,)),
        ),
        (lambda: memory.read(address, 64, "w"), ("load", "async", address, (64,), (1,))),
        (
            lambda: memory.strided(address, (2, 8), (64, 1), "w", "generic"),
            ("load", "generic", address, (2, 8), (64, 1)),
        ),
        (lambda: memory.write(address, data[:4].copy(), "w"), ("store", "async", address, (4,), (1,))),
        (lambda: shared.load_vector(0x400, 4, 1, "w"), ("load", "generic", 0x400, (4,), (1,))),
        (lambda: shared.store_vector(0x400, (4,), 4, "w"), ("store", "generic", 0x400, (4,), (1,))),
        (lambda: shared.gather(window, 4, 1, mask, "w"), ("load", "generic", [0x400, 0x408], (4,), (1,))),
        (
            lambda: shared.scatter(window, np.zeros((1, 3), np.uint32), mask, "w"),
            ("store", "generic", [0x400, 0x408], (4,), (1,)),
        ),
        (lambda: shared.read(0x400, 8, "w"), ("load", "async", 0x400, (8,), (1,))),
        (lambda: shared.write(0x400, data[:4], "w"), ("store", "async", 0x400, (4,), (1,))),
    ]
    for call, expected in calls:
        seen.clear()
        call()
        assert seen == [(*expected, "w")]


def test_an_observer_does_not_see_what_faults(space):
    memory, _, address = space
    seen = []
    memory.observer = lambda *access: seen.append(access)
    lanes = np.array([address, address + 4096], np.uint64)
    for access in (
        lambda: memory.scatter(lanes, np.zeros((1, 2), np.uint32)),
        lambda: memory.gather(lanes, 4),
        lambda: memory.write(address + 4095, np.zeros(2, np.uint8)),
    ):
        with pytest.raises(Fault):
            access()
    assert not seen


class TestLiveBarriers:
    """Nothing but mbarrier operations may touch the eight bytes of a live mbarrier."""

    SIZE = 4096
    PLACES = (SHARED_BASE, SHARED_BASE + 64, SHARED_BASE + 3000, SHARED_BASE + 4088)

    @pytest.fixture(params=[1, 2, 4])
    def shared(self, request):
        shared = SharedMemory(self.SIZE)
        for nbytes, count in WIDTHS:
            shared.gather(np.full(32, SHARED_BASE, np.uint32), nbytes, count)
        for place in self.PLACES[: request.param]:
            shared.place_barrier(place, f"barrier {place:#x}")
        shared.live = self.PLACES[: request.param]
        return shared

    @pytest.mark.parametrize("nbytes, count", WIDTHS)
    def test_each_access_of_each_place(self, shared, nbytes, count):
        """Against the places byte by byte, in every access that reaches one and its neighbours."""
        width = nbytes * count
        opaque = {byte for place in shared.live for byte in range(place, place + 8)}
        far = np.uint32(SHARED_BASE + 1024)
        for place in self.PLACES:
            for at in range(place - 64, place + 64):
                if at % width or at < SHARED_BASE or at + width > SHARED_BASE + self.SIZE:
                    continue
                lanes = np.full(32, far, np.uint32)
                lanes[19] = at
                values = np.zeros((count, 32), ELEMENTS[nbytes])
                accesses = [
                    lambda lanes=lanes: shared.gather(lanes, nbytes, count),
                    lambda lanes=lanes, values=values: shared.scatter(lanes, values),
                    lambda at=at: shared.load_vector(at, nbytes, count),
                    lambda at=at: shared.store_vector(at, (0,) * count, nbytes),
                    lambda at=at: shared.read(at, width),
                    lambda at=at: shared.write(at, np.zeros(width, np.uint8)),
                ]
                touched = sorted(opaque & set(range(at, at + width)))
                for access in accesses:
                    if not touched:
                        access()
                        continue
                    with pytest.raises(Fault) as fault:
                        access()
                    assert f"shared offset {at:#x} " in fault.value.reason
                    assert f": barrier {touched[0] & -8:#x}" in fault.value.reason

    def test_what_is_left_of_a_barrier(self, shared):
        shared.data[:] = 0
        shared.remove_barrier(SHARED_BASE)
        assert shared.load_vector(SHARED_BASE, 8, 1) == ((1 << 64) - 1,)
        lanes = np.full(32, SHARED_BASE, np.uint32)
        shared.scatter(lanes, np.full((1, 32), 5, np.uint32))
        assert (shared.gather(lanes, 4)[0] == 5).all()
        with pytest.raises(KeyError):
            shared.remove_barrier(SHARED_BASE)


def test_a_release_while_the_live_allocations_are_listed():
    """A finalizer may release memory while the dictionary is copied, and the copy is of no use then."""

    class Spoilt(dict):
        def copy(self):
            memory._live = dict(self)
            memory.release(storage.ctypes.data)
            raise RuntimeError("dictionary keys changed during iteration")

    memory, storage, other = GlobalMemory(), aligned(256), aligned(256)
    for each in (storage, other):
        memory.register(each.ctypes.data, 256)
    memory._live = Spoilt(memory._live)
    version, live = memory.snapshot()
    assert version == memory.version and [each.start for each in live] == [other.ctypes.data]
