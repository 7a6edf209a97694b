"""What launches have accessed of global memory, from the shadow that they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emulator.sanitizer import spans
from emulator.sanitizer.queues import Touched

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from emulator.sanitizer.global_tables import Tables
    from emulator.sanitizer.history import Access, History

_KINDS = ((False, False), (False, True), (True, True))
"""(writes, is strong) of what is kept among the reads of an item."""


class _Numbers(NamedTuple):
    """Tags by number of an access, or of a set of them; 0 for those of other launches."""

    writes: np.ndarray
    reads: tuple[np.ndarray, ...]  # by kind


def touched(tables: Iterable[Tables], history: History, with_reads: bool) -> dict[int, list[Touched]]:
    """By number of a launch: the bytes that it has written and, if wanted, those that it has read."""
    launches = {access.home.grid for access in history.accesses if access is not None and access.home is not None}
    for each in tables:
        launches |= {read[0].home.grid for read in each.reads or () if read[0].home is not None}
    return {launch: list(_of_launch(launch, tables, history, with_reads)) for launch in sorted(launches)}


def _of_launch(launch: int, tables: Iterable[Tables], history: History, with_reads: bool) -> Iterator[Touched]:
    numbers = _numbers(launch, history)
    for each in tables:
        if each.reads is not None:
            if with_reads:
                yield from _unwritten(launch, each)
            continue
        yield Touched(each.start, True, False, _spans(each, False, numbers.writes))
        for (writes, is_strong), tags in zip(_KINDS, numbers.reads):
            if (writes or with_reads) and tags.any():
                yield Touched(each.start, writes, is_strong, _spans(each, True, tags))


def _tag(access: Access) -> int:
    return access.issuer[1] + 1


def _numbers(launch: int, history: History) -> _Numbers:
    writes = np.zeros(len(history.accesses), np.int64)
    for number, access in enumerate(history.accesses):
        if access is not None and access.home is not None and access.home.grid == launch:
            writes[number] = _tag(access)
    reads = tuple(np.zeros(len(history.sets), np.int64) for _ in _KINDS)
    for number, members in enumerate(history.sets):
        for access in members:
            if access.home is not None and access.home.grid == launch:
                reads[_KINDS.index((access.is_write, access.is_strong))][number] = _tag(access)
    return _Numbers(writes, reads)


def _spans(tables: Tables, reads: bool, tags: np.ndarray) -> np.ndarray:
    parts = []
    for places, numbers, grain in tables.numbered(reads):
        found = tags[numbers]
        parts.append(spans.of_items(places[found != 0], found[found != 0], grain))
    return spans.joined(parts)


def _unwritten(launch: int, tables: Tables) -> Iterator[Touched]:
    """The reads of an allocation to which nobody has written."""
    boxes: dict[tuple[int, bool], dict[object, tuple[np.ndarray, np.ndarray]]] = {}
    for access, address, shape, strides, _ in tables.reads or ():
        if access.home is None or access.home.grid != launch:
            continue
        of = boxes.setdefault((_tag(access), access.is_strong), {})
        if isinstance(address, np.ndarray):
            starts = address.astype(np.int64)
            of[len(of)] = starts, starts + shape[0]
        elif (address, shape, strides) not in of:
            of[address, shape, strides] = spans.of_box(address, shape, strides)
    for is_strong in (False, True):
        parts = [
            spans.merged(
                np.concatenate([each[0] for each in of.values()]),
                np.concatenate([each[1] for each in of.values()]),
                tag,
            )
            for (tag, strong), of in boxes.items()
            if strong is is_strong
        ]
        if parts:
            yield Touched(tables.start, False, is_strong, spans.joined(parts))
