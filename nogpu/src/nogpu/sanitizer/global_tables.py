"""The shadow of an allocation of global memory: who has accessed each byte last.

Chunks of 16 bytes that are always accessed as a whole have one item, the others one for each byte. Tables are made of
pages that the system gives when they are first touched. Reads are kept beside them until somebody writes.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nogpu.sanitizer.clocks import FULL, LANES, repeated
from nogpu.sanitizer.shadow_tables import GROUPS, Cells, Items, group_of, is_zero, run_of
from nogpu.sanitizer.spans import of_box

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nogpu.hardware.allocations import Allocation
    from nogpu.sanitizer.conflicts import Access

CHUNK = 16  # bytes
Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides, in items."""


@lru_cache(maxsize=4096)
def _in_chunks(shape: tuple[int, ...], strides: tuple[int, ...]) -> Box | None:
    """A box of bytes as one of chunks; None if a row may begin or end inside of one."""
    if shape[-1] % CHUNK or any(stride % CHUNK for n, stride in zip(shape[:-1], strides) if n > 1):
        return None
    return (*shape[:-1], shape[-1] // CHUNK), (*(stride // CHUNK for stride in strides[:-1]), 1)


def _offsets(first: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """int64[shape]: the offset of each byte of a box."""
    found = np.full((), first, np.int64)
    for n, stride in zip(shape, strides):
        found = found[..., None] + np.arange(n) * stride
    return found


@lru_cache(maxsize=256)
def _groups(width: int, times: int) -> np.ndarray:
    """uint8[n]: the number that stands for the lanes of each chunk of a warp's run of words of `width` bytes, `times`
    times in a row; nobody may change the array.
    """
    each = CHUNK // width
    lanes = np.arange(LANES, dtype=np.uint8).repeat(max(1, width // CHUNK))
    return np.tile(GROUPS[each] + lanes[: LANES // each] if each > 1 else lanes, times)


class Bytes(NamedTuple):
    """Box of bytes that an access touches."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def cells(self, tables: Tables, is_write: bool, parts: int) -> tuple[Cells, np.ndarray | None]:
        """Items, and the lane of each; None: no lane. parts: number of clocks that the warp's lanes have."""
        return tables.box(*self), None

    def spans(self) -> tuple[np.ndarray, np.ndarray]:
        """(starts, ends) of the bytes: addresses, int64[n] each."""
        return of_box(*self)


class LaneWords(NamedTuple):
    """Words that lanes, or none in particular, access."""

    addresses: np.ndarray  # uint64[n], aligned
    width: int  # bytes
    lanes: np.ndarray | None  # uint8[n]

    def cells(self, tables: Tables, is_write: bool, parts: int) -> tuple[Cells, np.ndarray | None]:
        """Items, and the lane of each; None: no lane. parts: number of clocks that the warp's lanes have."""
        if parts == 1:
            chunks = tables.chunks(self.addresses, self.width)
            if chunks is not None:
                groups = None if self.lanes is None else group_of(self.lanes.reshape(-1, CHUNK // self.width))
                if groups is not None or not is_write:  # the lanes of a load may be lost
                    return chunks, groups
        return tables.lanes(self.addresses, self.width), self.lanes

    def spans(self) -> tuple[np.ndarray, np.ndarray]:
        """(starts, ends) of the bytes: addresses, int64[n] each."""
        starts = self.addresses.astype(np.int64)
        return starts, starts + self.width


class Runs(NamedTuple):
    """Words in a row that the lanes of a full warp access, by one instruction or by several."""

    starts: tuple[int, ...]
    width: int  # bytes of a word

    def cells(self, tables: Tables, is_write: bool, parts: int) -> tuple[Cells, np.ndarray | None]:
        """Items, and the lane of each; None: no lane. parts: number of clocks that the warp's lanes have."""
        cells = tables.runs_of(self.starts, self.width * LANES)
        if cells is not None:
            return cells, _groups(self.width, len(self.starts))
        offsets = np.arange(0, self.width * LANES, self.width, dtype=np.uint64)
        addresses = (np.array(self.starts, np.uint64)[:, None] + offsets).ravel()
        return LaneWords(addresses, self.width, repeated(FULL, len(self.starts))).cells(tables, is_write, parts)

    def spans(self) -> tuple[np.ndarray, np.ndarray]:
        """(starts, ends) of the bytes: addresses, int64[n] each."""
        starts = np.array(self.starts, np.int64)
        return starts, starts + self.width * LANES


Place = Bytes | LaneWords | Runs


class Tables:
    """Shadow of one allocation."""

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation
        self.start, self.end = allocation.start, allocation.end
        self._origin = allocation.start & -CHUNK
        self._chunks = -(-(allocation.end - self._origin) // CHUNK)
        self._whole = Items.of(self._chunks)
        self._split = np.zeros(self._chunks, bool)  # True for chunks that have items for their bytes
        self._bytes: Items | None = None  # set once a chunk is split
        self._columns = self._whole.columns()
        self._words: dict[int, Items] = {}
        self._first_chunk, self._end_chunk = self._chunks, 0  # of the chunks that have been accessed
        self.reads: list[tuple[Access, Place]] | None = []  # all accesses while nobody has written, not recorded yet

    def box(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Cells:
        """Items of a box of bytes. strides: bytes."""
        first = address - self._origin
        chunks = None if first % CHUNK else _in_chunks(shape, strides)
        if chunks is not None:
            at, box = first // CHUNK, chunks
            if self._bytes is None or is_zero(self._splits(at, box)):
                return self._boxes(self._whole, at, box, CHUNK)
        self._divide((_offsets(first, shape, strides) // CHUNK).ravel())
        assert self._bytes is not None  # a chunk is split
        return self._boxes(self._bytes, first, (shape, strides), 1)

    def chunks(self, addresses: np.ndarray, width: int) -> Cells | None:
        """Items of words that adjacent lanes access, if these are whole chunks; the lane of each word is lost."""
        each = CHUNK // width
        if each < 2 or len(addresses) % each:
            return None
        words = (addresses - np.uint64(self._origin)).view(np.int64).reshape(-1, each)
        first = words[:, :1]
        if (first % CHUNK).any() or not (words == first + np.arange(each) * width).all():
            return None
        where = first // CHUNK
        if self._bytes is not None and not is_zero(self._split[where]):
            return None
        return Cells(self._whole, where, partial(self._first, where, CHUNK))

    def runs_of(self, starts: tuple[int, ...], size: int) -> Cells | None:
        """Items of runs of `size` bytes, if these are whole chunks."""
        firsts = [start - self._origin for start in starts]
        if size % CHUNK or any(first % CHUNK for first in firsts):
            return None
        if len(firsts) == 1:
            where = np.arange(firsts[0] // CHUNK, (firsts[0] + size) // CHUNK)
        else:
            where = ((np.array(firsts) // CHUNK)[:, None] + np.arange(size // CHUNK)).ravel()
        if self._bytes is not None and not is_zero(self._split[where]):
            return None
        return Cells(self._columns, where, partial(self._first, where, CHUNK))

    def lanes(self, addresses: np.ndarray, width: int) -> Cells:
        """Items of words of `width` bytes, a row for each. addresses: uint64[n], aligned."""
        offsets = (addresses - np.uint64(self._origin)).view(np.int64)
        chunks = offsets >> 4
        if width > CHUNK:
            chunks = chunks[:, None] + np.arange(width // CHUNK)
        if width >= CHUNK and (self._bytes is None or is_zero(self._split[chunks])):
            tables = self._columns if width == CHUNK else self._whole
            return Cells(tables, chunks, partial(self._first, chunks, CHUNK))
        self._divide(chunks.ravel())
        if width > CHUNK:
            assert self._bytes is not None  # a chunk is split
            where = offsets[:, None] + np.arange(width)
            return Cells(self._bytes, where, partial(self._first, where, 1))
        words = offsets >> (width.bit_length() - 1)
        return Cells(self._by_width(width), words, partial(self._first, words, width))

    def _by_width(self, width: int) -> Items:
        """Tables of bytes with a row for each aligned word."""
        assert self._bytes is not None  # a chunk is split
        found = self._words.get(width)
        if found is None:
            found = self._words[width] = self._bytes.in_rows(width)
        return found

    def _splits(self, first: int, box: Box) -> np.ndarray:
        """bool, in the box's shape: the chunks that are split."""
        shape, strides = box
        return np.ndarray(shape, bool, self._split, first, strides)

    def _boxes(self, items: Items, first: int, box: Box, grain: int) -> Cells:
        return Cells(items.boxed(first, *box), ..., partial(self._first_of, first, box[1], grain))

    def _first(self, where: np.ndarray, grain: int, bad: np.ndarray) -> tuple[int, int]:
        row, *column = np.nonzero(bad)
        if where.ndim > 1:
            return self._run(np.broadcast_to(where, bad.shape)[bad], grain)
        if grain == CHUNK:
            return self._run(where[row], grain)
        return self._run(where[row] * grain + column[0], 1)

    def _first_of(self, first: int, strides: tuple[int, ...], grain: int, bad: np.ndarray) -> tuple[int, int]:
        items = np.asarray(sum(index * stride for index, stride in zip(np.nonzero(bad), strides)))
        return self._run(first + items, grain)

    def _run(self, items: np.ndarray, grain: int) -> tuple[int, int]:
        first, end = run_of(items, grain)
        return first + self._origin - self.start, end + self._origin - self.start

    def reach(self, first: int, end: int) -> None:
        """Notes that some bytes at addresses from `first` to before `end` have been accessed."""
        self._first_chunk = min(self._first_chunk, (first - self._origin) // CHUNK)
        self._end_chunk = max(self._end_chunk, -(-(end - self._origin) // CHUNK))

    @property
    def reached(self) -> tuple[int, int] | None:
        """Addresses between which all accesses have been (`reach`); None: there were none."""
        if self._first_chunk >= self._end_chunk:
            return None
        first, end = self._first_chunk * CHUNK + self._origin, self._end_chunk * CHUNK + self._origin
        return max(first, self.start), min(end, self.end)

    def runs(self, reads: bool) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yields (starts, ends, numbers): addresses, in order, of items in a row that have the same number, of writes
        or of reads, and these numbers. A number may be 0.
        """
        first, end = self._first_chunk, self._end_chunk
        whole = (self._whole.reads if reads else self._whole.writes)[first:end]
        if self._bytes is None:
            yield self._runs_of(whole, first * CHUNK, CHUNK)
            return
        yield self._runs_of(np.where(self._split[first:end], 0, whole), first * CHUNK, CHUNK)
        by_byte = self._bytes.reads if reads else self._bytes.writes
        yield self._runs_of(by_byte[first * CHUNK : end * CHUNK], first * CHUNK, 1)

    def _runs_of(self, numbers: np.ndarray, first: int, grain: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        bounds = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
        bounds = np.concatenate([[0], bounds, [len(numbers)]])
        places = bounds * grain + first + self._origin
        return places[:-1], places[1:], numbers[bounds[:-1]]

    def _divide(self, chunks: np.ndarray) -> None:
        """Gives the chunks items for their bytes."""
        if self._bytes is None:
            self._bytes = Items.of(self._chunks * CHUNK)
        is_split = self._split[chunks]
        if is_split.all():
            return
        new = chunks[~is_split]
        if not is_zero(self._whole.pairs[new]):
            self._bytes.spread(self._whole, new, CHUNK)
        self._split[new] = True
