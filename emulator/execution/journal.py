"""What one run of a launch wrote to global memory, carried between processes and compared with other runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emulator.errors import EmulatorError
from emulator.hardware.allocations import Allocations
from emulator.hardware.traffic import MARK_PADDING, Traffic

_WORD = np.uint64  # kernels write runs of aligned words, so a mask of words is usually enough
_WHOLE = int.from_bytes(b"\1" * 8, "little")
assert np.dtype(_WORD).itemsize == MARK_PADDING


@dataclass(frozen=True)
class Written:
    """Units (bytes or words) written in one allocation.

    first: offset of the first one in bytes; length: units from there to the last one; mask: uint8, a bit for each of
    these, None if all were written; data: uint8 or uint64, the last values of the written units.
    """

    first: int
    length: int
    mask: np.ndarray | None
    data: np.ndarray

    @property
    def end(self) -> int:
        return self.first + self.length * self.data.itemsize

    def _units(self, image: np.ndarray, origin: int) -> np.ndarray:
        return image[self.first - origin : self.end - origin].view(self.data.dtype)

    def _mask(self) -> np.ndarray | slice:
        return slice(None) if self.mask is None else np.unpackbits(self.mask, count=self.length).view(bool)

    def put(self, image: np.ndarray, origin: int) -> None:
        """Writes into image: uint8, an allocation's bytes from offset `origin` on."""
        self._units(image, origin)[self._mask()] = self.data

    def missing(self, image: np.ndarray, origin: int) -> int | None:
        """Offset in the allocation of the first byte in which the image differs from what was written."""
        units, mask = self._units(image, origin), self._mask()
        if np.array_equal(units[mask], self.data):
            return None
        expected = units.copy()
        expected[mask] = self.data
        return self.first + int((expected.view(np.uint8) != units.view(np.uint8)).argmax())


Journal = dict[int, Written]  # by the allocation's address


def journal(traffic: Traffic) -> Journal:
    """The bytes that the stores in `traffic` left in memory."""
    written = {}
    for allocation, stores in traffic.stores.items():
        low, high = stores.low & -MARK_PADDING, -(-stores.high // MARK_PADDING) * MARK_PADDING
        words = stores.marks[low:high].view(_WORD)
        mask, unit = words == _WHOLE, _WORD
        if np.count_nonzero(mask) != np.count_nonzero(words):
            mask, unit = stores.marks[low:high].view(bool), np.uint8
        start = int(mask.argmax())
        mask = mask[start : len(mask) - int(mask[::-1].argmax())]
        first = low + start * np.dtype(unit).itemsize
        data = allocation.data[first : first + len(mask) * np.dtype(unit).itemsize].view(unit)
        whole = bool(mask.all())
        written[allocation.start] = Written(
            first, len(mask), None if whole else np.packbits(mask), data.copy() if whole else data[mask]
        )
    return written


def settle(memory: Allocations, runs: dict[str, Sequence[Journal]], kernel: str) -> None:
    """Writes to memory what the runs of one launch, schedule -> journals of its parts, have left.

    Raises EmulatorError, before anything is written, where two schedules leave different bytes or where two parts of
    one run, which nothing orders, write different bytes to one address.
    """
    images = []
    for start in sorted({start for journals in runs.values() for written in journals for start in written}):
        allocation = memory.allocation(start)
        writes = {schedule: [j[start] for j in journals if start in j] for schedule, journals in runs.items()}
        origin = min(part.first for parts in writes.values() for part in parts)
        end = max(part.end for parts in writes.values() for part in parts)
        reference = None
        for schedule, parts in writes.items():
            image = allocation.data[origin:end].copy()
            for part in parts:
                part.put(image, origin)
            for part in parts[:-1]:
                at = part.missing(image, origin)
                if at is not None:
                    raise EmulatorError(
                        f"CTAs of different clusters write different bytes to {start + at:#x}, byte {at} of "
                        f"{allocation} (schedule {schedule})",
                        kernel=kernel,
                    )
            if reference is None:
                reference, first_schedule = image, schedule
            elif not np.array_equal(reference, image):
                different = np.flatnonzero(reference != image)
                at = int(different[0])
                raise EmulatorError(
                    f"schedules disagree: byte {origin + at} of {allocation}, at {start + origin + at:#x}, is "
                    f"{reference[at]:#04x} after {first_schedule} and {image[at]:#04x} after {schedule}; "
                    f"{len(different)} bytes of that allocation differ. The result depends on the order of "
                    f"asynchronous work: a wait, an arrival or a fence is missing",
                    kernel=kernel,
                )
        images.append((allocation, origin, reference))
    for allocation, origin, image in images:
        allocation.data[origin : origin + len(image)] = image
