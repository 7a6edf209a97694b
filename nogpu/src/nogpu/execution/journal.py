"""Bytes that a run of a launch wrote to global memory, to be carried between processes and compared with other runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nogpu.errors import EmulatorError
from nogpu.hardware.allocations import Allocation, Allocations
from nogpu.hardware.traffic import MARK_PADDING, Traffic

_WORD = np.uint64  # kernels usually write whole aligned words: a mask of words is then enough
_WINDOW = 1 << 24  # bytes of memory that are compared at once: a copy of all would be as large as what was written
_WHOLE = int.from_bytes(b"\1" * 8, "little")
assert np.dtype(_WORD).itemsize == MARK_PADDING


@dataclass(frozen=True)
class Written:
    """Units (bytes or words) written in one allocation."""

    first: int
    """Offset of the first written unit, in bytes."""
    length: int
    """Number of units from the first to the last written one."""
    mask: np.ndarray | None
    """uint8: a bit for each of these units, set if it was written; None if all were."""
    data: np.ndarray
    """uint8 or uint64: the last values of the written units."""

    @property
    def end(self) -> int:
        return self.first + self.length * self.data.itemsize

    def _units(self, image: np.ndarray, origin: int) -> np.ndarray:
        return image[self.first - origin : self.end - origin].view(self.data.dtype)

    def _mask(self) -> np.ndarray | slice:
        return slice(None) if self.mask is None else np.unpackbits(self.mask, count=self.length).view(bool)

    def put(self, image: np.ndarray, origin: int) -> None:
        """Writes the units into an image. image: uint8, an allocation's bytes from offset `origin` on."""
        self._units(image, origin)[self._mask()] = self.data

    def missing(self, image: np.ndarray, origin: int) -> int | None:
        """Offset in the allocation of the first byte in which an image differs from the written units, or None."""
        units, mask = self._units(image, origin), self._mask()
        if np.array_equal(units[mask], self.data):
            return None
        expected = units.copy()
        expected[mask] = self.data
        return self.first + int((expected.view(np.uint8) != units.view(np.uint8)).argmax())

    def pieces(self) -> Iterator[tuple[int, Written]]:
        """(index of the window, the units written in it) of each window of the allocation. Their data are views."""
        size, used = self.data.itemsize, 0
        for window in range(self.first // _WINDOW, -(-self.end // _WINDOW)):
            low = max(0, window * _WINDOW - self.first) // size
            high = min(self.length, ((window + 1) * _WINDOW - self.first) // size)
            mask, count = None, high - low
            if self.mask is not None:
                bits = np.unpackbits(self.mask[low // 8 : -(-high // 8)])[low % 8 :][:count]
                mask, count = np.packbits(bits), int(np.count_nonzero(bits))
            if count:
                yield window, Written(self.first + low * size, high - low, mask, self.data[used : used + count])
            used += count


Journal = dict[int, Written]
"""Address of an allocation -> the units written in it."""


def journal(traffic: Traffic) -> Journal:
    """Bytes that the stores in `traffic` left in memory."""
    written = {}
    for allocation, stores in traffic.stores.items():
        low, high = stores.low & -MARK_PADDING, -(-stores.high // MARK_PADDING) * MARK_PADDING
        words = stores.marks[low:high].view(_WORD)
        unit: np.dtype = np.dtype(_WORD)
        mask = words == _WHOLE
        if np.count_nonzero(mask) != np.count_nonzero(words):
            mask, unit = stores.marks[low:high].view(bool), np.dtype(np.uint8)
        start = int(mask.argmax())
        mask = mask[start : len(mask) - int(mask[::-1].argmax())]
        first = low + start * unit.itemsize
        data = allocation.data[first : first + len(mask) * unit.itemsize].view(unit)
        whole = bool(mask.all())
        written[allocation.start] = Written(
            first, len(mask), None if whole else np.packbits(mask), data.copy() if whole else data[mask]
        )
    return written


def settle(memory: Allocations, runs: Mapping[str, Sequence[Journal]], kernel: str) -> None:
    """Writes the journals of one launch to memory. runs: schedule -> the journals of the run's parts.

    Raises EmulatorError, before anything is written, if two schedules leave different bytes or if two parts of one run,
    which are not ordered, write different bytes to one address.
    """
    agree(memory, runs, kernel)
    first = next(iter(runs.values()))
    for allocation in _written(memory, [first]):
        for part in _parts(first, allocation):
            for _, piece in part.pieces():
                piece.put(allocation.data, 0)
        allocation.writes += 1


def agree(memory: Allocations, runs: Mapping[str, Sequence[Journal]], kernel: str) -> None:
    """Raises EmulatorError like `settle`."""
    for allocation in _written(memory, runs.values()):
        _check(allocation, {schedule: _parts(journals, allocation) for schedule, journals in runs.items()}, kernel)


def _written(memory: Allocations, runs: Iterable[Sequence[Journal]]) -> list[Allocation]:
    """Allocations in which runs have written."""
    found = []
    for start in sorted({start for journals in runs for written in journals for start in written}):
        allocation = memory.allocation(start)
        assert allocation is not None  # the runs wrote to it
        found.append(allocation)
    return found


def _parts(journals: Sequence[Journal], allocation: Allocation) -> list[Written]:
    return [each[allocation.start] for each in journals if allocation.start in each]


def _by_window(parts: list[Written]) -> defaultdict[int, list[Written]]:
    found: defaultdict[int, list[Written]] = defaultdict(list)
    for part in parts:
        for window, piece in part.pieces():
            found[window].append(piece)
    return found


def _check(allocation: Allocation, runs: dict[str, list[Written]], kernel: str) -> None:
    """Raises EmulatorError like `settle`, for one allocation. runs: the parts of each schedule's run."""
    if len(runs) == 1 and len(next(iter(runs.values()))) == 1:
        return
    windows = {schedule: _by_window(parts) for schedule, parts in runs.items()}
    places = sorted(set().union(*windows.values()))
    reference = next(iter(runs))
    for schedule, pieces in windows.items():
        different = _Different()
        for window in places:
            origin = window * _WINDOW
            image = _image(allocation, origin, pieces[window])
            for piece in pieces[window][:-1]:
                at = piece.missing(image, origin)
                if at is not None:
                    raise EmulatorError(
                        f"CTAs of different clusters write different bytes to {allocation.start + at:#x}, byte {at} of "
                        f"{allocation} (schedule {schedule})",
                        kernel=kernel,
                    )
            if schedule != reference and allocation.is_compared:
                different.add(origin, _image(allocation, origin, windows[reference][window]), image)
        if different.count:
            at = different.first
            raise EmulatorError(
                f"schedules disagree: byte {at} of {allocation}, at {allocation.start + at:#x}, is "
                f"{different.expected:#04x} after {reference} and {different.found:#04x} after {schedule}; "
                f"{different.count} bytes of that allocation differ. The result depends on the order of "
                f"asynchronous work: a wait, an arrival or a fence is missing",
                kernel=kernel,
            )


def _image(allocation: Allocation, origin: int, pieces: list[Written]) -> np.ndarray:
    """Bytes of the window at `origin` with these pieces written."""
    image = allocation.data[origin : origin + _WINDOW].copy()
    for piece in pieces:
        piece.put(image, origin)
    return image


@dataclass
class _Different:
    """Bytes in which a run differs from the first one."""

    count: int = 0
    first: int = 0
    """Offset of the first of them, which has these values after the two runs."""
    expected: int = 0
    found: int = 0

    def add(self, origin: int, reference: np.ndarray, image: np.ndarray) -> None:
        """Adds those of a window."""
        if np.array_equal(reference, image):
            return
        places = np.flatnonzero(reference != image)
        if not self.count:
            at = int(places[0])
            self.first, self.expected, self.found = origin + at, int(reference[at]), int(image[at])
        self.count += len(places)
