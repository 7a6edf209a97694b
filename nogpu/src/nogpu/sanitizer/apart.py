"""Accesses to an allocation by CTAs that keep apart: nobody else writes to the bytes that one of them accesses.

They are not recorded, only kept, with a mark for each word. Once a mark shows that another access may conflict with one
of them they are checked one by one (`GlobalAccesses`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nogpu.sanitizer import spans
from nogpu.sanitizer.access_log import BY_LANE, NOTE, RUN, STORE, WARP, WIDTH
from nogpu.sanitizer.clocks import FULL, LANES
from nogpu.sanitizer.queue_history import Touched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nogpu.sanitizer.global_tables import Place, Tables

GRAIN = 4  # bytes of a mark
_LANE = np.arange(LANES, dtype=np.uint64)
_OF_RUN = LANES  # stands for the lanes of a run in `Ranges.owners`
_NOBODY = np.iinfo(np.int64).min  # an owner of loads only
_HALF = np.uint64(32)
# Marks of a word: accesses that are kept, and others.
_KEPT_READ, _KEPT_WRITTEN, _READ, _WRITTEN = (1 << bit for bit in range(4))
NUMBER, HEAD, HOW, FIRST = range(4)
"""Words of a note: the number of its CTA, then those of a record of `access_log`."""


class Ranges(NamedTuple):
    """Ranges of bytes that threads access. Two equal ranges of one owner are accesses of the same threads."""

    starts: np.ndarray  # int64[n]: addresses
    ends: np.ndarray
    stores: np.ndarray  # bool[n]
    owners: np.ndarray  # int64[n]; negative: no store by these threads is known as theirs
    tags: np.ndarray  # int64[n]: 1 + the index of the instruction

    @staticmethod
    def of(notes: np.ndarray, read_only: Sequence[int] = ()) -> Ranges:
        """The ranges of notes uint64[n, FIRST + 1 or 1 + NOTE]. read_only: loads through the read-only path, which see
        no store, not even their own thread's.
        """
        if (notes[:, HOW] & RUN).all():
            return _of_runs(notes, read_only)
        return Ranges(*map(np.concatenate, zip(*_by_kind(notes, read_only))))

    def of_kind(self, stores: bool) -> Ranges:
        """The stores, or the loads, in order of their addresses."""
        chosen = np.flatnonzero(self.stores == stores)
        chosen = chosen[np.argsort(self.starts[chosen], kind="stable")]
        return Ranges(*(each[chosen] for each in self))

    def merged(self) -> list[list[int]]:
        """[start, end] of the ranges, joined where they touch."""
        return spans.merged(self.starts, self.ends, spans.UNTAGGED)[:, :2].tolist()


def _by_kind(notes: np.ndarray, read_only: Sequence[int]) -> Iterator[Ranges]:
    is_run, by_lane = notes[:, HOW] & RUN != 0, notes[:, HOW] & BY_LANE != 0
    yield _of_runs(notes[is_run], read_only)
    by_warp = notes[~by_lane]
    owners = -1 - np.arange(len(by_warp))
    yield _ranges(by_warp, by_warp[:, FIRST], _width(by_warp), owners)
    scattered = notes[_is_scattered(notes)]
    if not len(scattered):
        return
    rows, lanes = np.nonzero(_lanes(scattered))
    each = scattered[rows]
    yield _ranges(each, scattered[rows, FIRST + lanes], _width(each), _owners(each, lanes, read_only))


def _of_runs(notes: np.ndarray, read_only: Sequence[int]) -> Ranges:
    return _ranges(notes, notes[:, FIRST], _width(notes) * LANES, _owners(notes, _OF_RUN, read_only))


def _ranges(notes: np.ndarray, starts: np.ndarray, sizes: np.ndarray, owners: np.ndarray) -> Ranges:
    places = starts.astype(np.int64)
    tags = (notes[:, HEAD] >> _HALF).astype(np.int64) + 1
    return Ranges(places, places + sizes, notes[:, HOW] & STORE != 0, owners, tags)


def _width(notes: np.ndarray) -> np.ndarray:
    """int64[n]: bytes of a lane's access."""
    return ((notes[:, HOW] & FULL) >> WIDTH).astype(np.int64)


def _owners(notes: np.ndarray, lanes: np.ndarray | int, read_only: Sequence[int]) -> np.ndarray:
    warps = notes[:, NUMBER] << np.uint64(6) | notes[:, HOW] >> np.uint64(WARP)
    owners = warps.astype(np.int64) << 6 | lanes
    if not read_only:
        return owners
    return np.where(np.isin(notes[:, HEAD] >> _HALF, read_only), _NOBODY, owners)


def _meet(stores: Ranges, others: Ranges, at: np.ndarray, inside: np.ndarray) -> bool:
    """True if a store at one of these indices meets, as `inside` says, another access by other threads."""
    same = (
        (stores.starts[at] == others.starts) & (stores.ends[at] == others.ends) & (stores.owners[at] == others.owners)
    )
    return bool((inside & ~same).any())


def are_apart(stores: Ranges, loads: Ranges) -> bool:
    """True if every byte that somebody stores is accessed by the same threads only. Both are in order of addresses."""
    if len(stores.starts) > 1:
        after = Ranges(*(each[1:] for each in stores))
        if _meet(stores, after, np.arange(len(after.starts)), after.starts < stores.ends[:-1]):
            return False
    if not len(stores.starts):
        return True
    at = np.searchsorted(stores.ends, loads.starts, "right")
    known = np.minimum(at, len(stores.starts) - 1)
    return not _meet(stores, loads, known, (at < len(stores.starts)) & (stores.starts[known] < loads.ends))


def first_addresses(notes: np.ndarray) -> np.ndarray:
    """uint64[n]: the address of the first lane of each access. notes: as `Ranges.of` takes them."""
    if not (scattered := _is_scattered(notes)).any():
        return notes[:, FIRST]
    lanes = np.where(scattered, _lanes(notes).argmax(axis=1), 0)
    return notes[np.arange(len(notes)), FIRST + lanes]


def compact(notes: np.ndarray) -> np.ndarray:
    """Copy of notes uint64[n, 1 + NOTE] without addresses that follow from the first ones, if there are no others."""
    return (notes if _is_scattered(notes).any() else notes[:, : FIRST + 1]).copy()


def by_warp(notes: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yields (number of a CTA, index of a warp, its records uint64[n, NOTE] of `access_log`) for runs of notes."""
    records = np.zeros((len(notes), NOTE), np.uint64)
    records[:, : notes.shape[1] - 1] = notes[:, 1:]
    owners = np.stack([notes[:, NUMBER], notes[:, HOW] >> np.uint64(WARP)], axis=1).astype(np.int64)
    firsts = np.flatnonzero(np.append(True, (owners[1:] != owners[:-1]).any(axis=1))[: len(notes)])
    for part, (cta, warp) in zip(np.split(records, firsts)[1:], owners[firsts].tolist(), strict=True):
        yield cta, warp, part


def _is_scattered(notes: np.ndarray) -> np.ndarray:
    """bool[n]: True for accesses by lanes whose addresses do not follow from the first one."""
    return notes[:, HOW] & (BY_LANE | RUN) == BY_LANE


def _lanes(notes: np.ndarray) -> np.ndarray:
    """bool[n, 32]: True for the lanes of an access."""
    return (notes[:, HEAD, None] >> _LANE & np.uint64(1)).astype(bool)


class Apart:
    """Accesses to one allocation that are kept, and marks of them and of those that are recorded."""

    def __init__(self, tables: Tables) -> None:
        self._start, self._end = tables.start, tables.end
        self._marks = np.zeros(-(-(tables.end - tables.start) // GRAIN) + 1, np.uint8)
        self.notes: list[np.ndarray] = []
        """Accesses that are kept, in order."""
        if tables.reached is not None:
            self._mark([[*tables.reached]], _READ | _WRITTEN)

    def _words(self, start: int, end: int) -> np.ndarray:
        """Marks of bytes, which are in the allocation."""
        return self._marks[(start - self._start) // GRAIN : -(-(end - self._start) // GRAIN)]

    def _marked(self, ranges: list[list[int]]) -> int:
        """All marks of some bytes."""
        found = 0
        for each in ranges:
            found |= int(np.bitwise_or.reduce(self._words(*each)))
        return found

    def _mark(self, ranges: list[list[int]], mark: int) -> None:
        for each in ranges:
            self._words(*each)[:] |= mark

    def add(self, notes: np.ndarray, read_only: Sequence[int]) -> bool:
        """Keeps accesses, and returns True, if they conflict with no other. notes, read_only: as `Ranges.of` takes
        them.
        """
        ranges = Ranges.of(notes, read_only)
        if ranges.starts.min() < self._start or ranges.ends.max() > self._end:
            return False
        stores, loads = ranges.of_kind(True), ranges.of_kind(False)
        if not are_apart(stores, loads):
            return False
        stored, loaded = stores.merged(), loads.merged()
        if self._marked(stored) or self._marked(loaded) & (_WRITTEN | _KEPT_WRITTEN):
            return False
        self._mark(stored, _KEPT_WRITTEN)
        self._mark(loaded, _KEPT_READ)
        self.notes.append(notes)
        return True

    def meets(self, place: Place, is_write: bool) -> bool:
        """True if an access may conflict with one that is kept. If not, it is marked as recorded."""
        ranges = spans.merged(*place.spans(), spans.UNTAGGED)[:, :2].tolist()
        if self._marked(ranges) & (_KEPT_WRITTEN | _KEPT_READ * is_write):
            return True
        self._mark(ranges, _WRITTEN if is_write else _READ)
        return False

    def touched(self, with_reads: bool) -> Iterator[Touched]:
        """The bytes that the accesses that are kept have written and, if wanted, those that they have read."""
        writes = np.concatenate([_written(Ranges.of(notes).of_kind(True)) for notes in self.notes])
        yield Touched(self._start, True, False, spans.of_runs(*writes[np.argsort(writes[:, 0])].T))
        if with_reads:
            parts: dict[int, list[np.ndarray]] = {}
            for notes in self.notes:
                for part in _read(Ranges.of(notes).of_kind(False)):
                    parts.setdefault(int(part[0, 2]), []).append(part)
            reads = []
            for tag, of in parts.items():
                starts, ends, _ = np.concatenate(of).T
                reads.append(spans.merged(starts, ends, tag))
            yield Touched(self._start, False, False, spans.joined(reads))


def _written(stores: Ranges) -> np.ndarray:
    """Spans of stores, of which none overlap but equal ones: the last of these counts."""
    last = np.ones(len(stores.starts), bool)
    last[:-1] = stores.starts[1:] != stores.starts[:-1]
    return spans.of_runs(stores.starts[last], stores.ends[last], stores.tags[last])


def _read(loads: Ranges) -> Iterator[np.ndarray]:
    """Yields the spans of the loads by each instruction."""
    for tag in np.unique(loads.tags).tolist():
        chosen = loads.tags == tag
        yield spans.merged(loads.starts[chosen], loads.ends[chosen], tag)
