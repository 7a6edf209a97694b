"""Accesses of launches to global memory, read from the shadow that they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nogpu.sanitizer import spans
from nogpu.sanitizer.global_tables import LaneWords
from nogpu.sanitizer.queue_history import Touched

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nogpu.sanitizer.conflicts import Access
    from nogpu.sanitizer.global_tables import Tables
    from nogpu.sanitizer.history import History

_KINDS = ((False, False), (False, True), (True, True))
"""(writes, is strong) of the accesses that are kept among the reads of an item."""


def touched(
    launches: Iterable[int], tables: Iterable[Tables], history: History, with_reads: bool
) -> dict[int, list[Touched]]:
    """Bytes that each launch, by number, has written and, if wanted, those that it has read."""
    return {launch: list(_of_launch(launch, tables, history, with_reads)) for launch in launches}


def _of_launch(launch: int, tables: Iterable[Tables], history: History, with_reads: bool) -> Iterator[Touched]:
    writes = np.array([_tag(launch, access) for access in history.accesses], np.int64)
    reads = [
        np.array([_last(launch, members, kind) for members in history.sets], np.int64)
        if with_reads or kind[0]
        else None
        for kind in _KINDS
    ]
    for each in tables:
        if each.reads is not None:
            if with_reads:
                yield from _unwritten(launch, each)
            continue
        yield Touched(each.start, True, False, _spans(each, False, writes))
        for kind, tags in zip(_KINDS, reads):
            if tags is not None and tags.any():
                yield Touched(each.start, *kind, _spans(each, True, tags))


def _tag(launch: int, access: Access | None) -> int:
    """Tag of an access; 0 for one of another launch."""
    if access is None or access.home is None or access.home.grid != launch:
        return 0
    return access.issuer[1] + 1


def _last(launch: int, members: tuple[Access, ...], kind: tuple[bool, bool]) -> int:
    """Tag of a launch's last access of a kind; 0 if it has none."""
    tags = (_tag(launch, access) for access in reversed(members) if (access.is_write, access.is_strong) == kind)
    return next((tag for tag in tags if tag), 0)


def _spans(tables: Tables, reads: bool, tags: np.ndarray) -> np.ndarray:
    """Spans of an allocation by tag. tags: by number of an access, or of a set of them."""
    runs = tables.runs(reads)
    return spans.joined([spans.of_runs(starts, ends, tags[numbers]) for starts, ends, numbers in runs])


def _unwritten(launch: int, tables: Tables) -> Iterator[Touched]:
    """Yields a launch's reads of an allocation to which nobody has written."""
    found: dict[bool, dict[int, dict[object, tuple[np.ndarray, np.ndarray]]]] = {False: {}, True: {}}
    for access, place in tables.reads or ():
        tag = _tag(launch, access)
        if not tag:
            continue
        of = found[access.is_strong].setdefault(tag, {})
        key = len(of) if isinstance(place, LaneWords) else place
        if key not in of:
            of[key] = place.spans()
    for is_strong, by_tag in found.items():
        if by_tag:
            yield Touched(tables.start, False, is_strong, spans.joined([*map(_merged, by_tag, by_tag.values())]))


def _merged(tag: int, ranges: dict[object, tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    starts, ends = (np.concatenate(of) for of in zip(*ranges.values()))
    return spans.merged(starts, ends, tag)
