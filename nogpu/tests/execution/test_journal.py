"""Journals of a launch's stores: by windows, between processes, and against brute force."""

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from nogpu.execution import journal as journals
from nogpu.execution.journal import agree, journal, settle
from nogpu.execution.workers import run_forked
from nogpu.hardware.allocations import Allocations
from nogpu.hardware.traffic import Traffic

NBYTES = 1000
KINDS = ("bytes", "words", "all")


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch):
    monkeypatch.setattr(journals, "_WINDOW", 64)


@pytest.fixture
def memory():
    data = np.zeros(NBYTES + 8, np.uint8)
    found = Allocations()
    found.register(data.ctypes.data + 8 - data.ctypes.data % 8, NBYTES)
    found.keep = data
    return found


def _allocation(memory):
    return memory.snapshot()[1][0]


def _stored(memory, kind, rng, data=None):
    """(journal, bytes that were written, their mask) of stores to some bytes, some words, or all words of a range."""
    allocation = _allocation(memory)
    mask = np.zeros(NBYTES, bool)
    first, end = sorted(8 * rng.choice(NBYTES // 8, 2, replace=False))
    mask[first:end] = {"bytes": rng.random(end - first) < 0.3, "all": True}.get(
        kind, np.repeat(rng.random((end - first) // 8) < 0.3, 8)
    )
    mask[first] = True
    if kind == "words":
        mask[first : first + 8] = True
    before, data = allocation.data.copy(), rng.integers(0, 256, NBYTES, np.uint8) if data is None else data
    allocation.data[mask] = data[mask]
    traffic = Traffic()
    for at in np.flatnonzero(mask):
        traffic.store(allocation, allocation.start + int(at), 1)
    found = journal(traffic)
    allocation.data[:] = before
    return found, data, mask


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(10))
def test_pieces_have_what_was_written(memory, kind, seed):
    written, data, mask = _stored(memory, kind, np.random.default_rng(seed))
    (part,) = written.values()
    image, count = np.zeros(NBYTES, np.uint8), 0
    for window, piece in part.pieces():
        assert 64 * window <= piece.first < piece.end <= 64 * (window + 1)
        piece.put(image, 0)
        count += piece.data.nbytes
    np.testing.assert_array_equal(image, np.where(mask, data, 0))
    assert count == mask.sum()


@pytest.mark.parametrize("seed", range(10))
def test_parts_and_schedules_that_agree(memory, seed):
    """Parts that write one value to a byte are in memory behind it, where both schedules have written the same."""
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, NBYTES, np.uint8)
    parts = [_stored(memory, kind, rng, data) for kind in KINDS]
    of = [written for written, _, _ in parts]
    settle(memory, {"late": of, "eager": of[::-1]}, "k")
    mask = np.any([mask for _, _, mask in parts], axis=0)
    np.testing.assert_array_equal(_allocation(memory).data, np.where(mask, data, 0))


@pytest.mark.parametrize("at", [0, 63, 64, 500, NBYTES - 1])
def test_parts_and_schedules_that_differ(memory, at):
    """Messages name the first byte, and how many differ in all windows; memory stays as it was."""
    allocation = _allocation(memory)

    def stores(value):
        allocation.data[at:] = value
        traffic = Traffic()
        traffic.store(allocation, allocation.start + at, NBYTES - at)
        found = journal(traffic)
        allocation.data[:] = 0
        return found

    one, two = stores(1), stores(2)
    with pytest.raises(EmulatorError, match=f"different bytes to {allocation.start + at:#x}, byte {at} of"):
        settle(memory, {"late": [one, two]}, "k")
    with pytest.raises(
        EmulatorError, match=f"byte {at} of .* is 0x01 after late and 0x02 after eager; {NBYTES - at} bytes"
    ):
        settle(memory, {"late": [one], "eager": [two]}, "k")
    assert not allocation.data.any()
    allocation.is_compared = False
    agree(memory, {"late": [one], "eager": [two]}, "k")


@pytest.mark.parametrize("size", [0, 1, 1 << 16, (1 << 24) + 7])
def test_large_arrays_of_children(size):
    def task(report):
        return {"a": np.arange(size, dtype=np.uint32), "b": b"x", "c": np.ones((3, size % 100), order="F")}

    for found in run_forked([("a", task), ("b", task)], 2):
        expected = task(None)
        np.testing.assert_array_equal(found["a"], expected["a"])
        np.testing.assert_array_equal(found["c"], expected["c"])
        assert found["b"] == b"x"
