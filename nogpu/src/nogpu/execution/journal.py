"""Bytes that a run of a launch wrote to global memory, to be carried between processes and compared with other runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nogpu.errors import EmulatorError
from nogpu.hardware.allocations import Allocation, Allocations
from nogpu.hardware.traffic import MARK_PADDING, Traffic

_WORD = np.uint64  # kernels usually write whole aligned words: a mask of words is then enough
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
    for allocation, origin, image in agree(memory, runs, kernel):
        allocation.data[origin : origin + len(image)] = image
        allocation.writes += 1


def agree(
    memory: Allocations, runs: Mapping[str, Sequence[Journal]], kernel: str
) -> list[tuple[Allocation, int, np.ndarray]]:
    """(allocation, offset in it, bytes from there on) that all schedules leave. Raises EmulatorError like `settle`."""
    images = []
    for start in sorted({start for journals in runs.values() for written in journals for start in written}):
        allocation = memory.allocation(start)
        assert allocation is not None  # the runs wrote to it
        writes = {schedule: [j[start] for j in journals if start in j] for schedule, journals in runs.items()}
        images.append((allocation, *_agreed(allocation, writes, kernel)))
    return images


def _agreed(allocation: Allocation, writes: dict[str, list[Written]], kernel: str) -> tuple[int, np.ndarray]:
    """(offset in an allocation, bytes from there on) that every schedule leaves. writes: by schedule and part."""
    origin = min(part.first for parts in writes.values() for part in parts)
    end = max(part.end for parts in writes.values() for part in parts)
    images = {}
    for schedule, parts in writes.items():
        image = images[schedule] = allocation.data[origin:end].copy()
        for part in parts:
            part.put(image, origin)
        for part in parts[:-1]:
            at = part.missing(image, origin)
            if at is not None:
                raise EmulatorError(
                    f"CTAs of different clusters write different bytes to {allocation.start + at:#x}, byte {at} of "
                    f"{allocation} (schedule {schedule})",
                    kernel=kernel,
                )
        first, reference = next(iter(images.items()))
        if allocation.is_compared and not np.array_equal(reference, image):
            different = np.flatnonzero(reference != image)
            at = int(different[0])
            raise EmulatorError(
                f"schedules disagree: byte {origin + at} of {allocation}, at {allocation.start + origin + at:#x}, is "
                f"{reference[at]:#04x} after {first} and {image[at]:#04x} after {schedule}; "
                f"{len(different)} bytes of that allocation differ. The result depends on the order of "
                f"asynchronous work: a wait, an arrival or a fence is missing",
                kernel=kernel,
            )
    return origin, reference
