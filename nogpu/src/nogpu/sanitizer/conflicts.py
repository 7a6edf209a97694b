"""Decides whether a clock orders two accesses to an item, and names what is missing if it does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nogpu.sanitizer.clocks import ANYWAY, FENCED, LANES, ORDERED, ROWS, UNSCOPED, lanes_of
from nogpu.sanitizer.shadow_tables import GROUPS, Cells

if TYPE_CHECKING:
    from nogpu.execution.replay import Step
    from nogpu.hardware.warp import Issuer, Warp
    from nogpu.sanitizer.clocks import Cause, Clock, Home
    from nogpu.sanitizer.observed import Word

ALL = 255  # number that stands for all lanes of the access
CTA, CLUSTER, GRID = range(3)
"""Extents of the scope of a strong access."""
READ_ONLY = -1
"""`Access.fence` of a load through the read-only path, which sees no write of its launch (PTX ISA, ld.global.nc)."""
Lanes = np.ndarray | None


class Access:
    """Access to memory by lanes of a warp, or by another agent."""

    __slots__ = (
        *("agent", "cause", "count", "fence", "is_async", "is_strong", "is_write", "issuer", "lanes", "listed"),
        *("home", "number", "origin", "polled", "reach", "several", "size", "started", "step", "writes"),
    )

    now: Step | None = None
    """The step that runs, where steps are followed (`races.py`)."""

    def __init__(
        self, agent: int, count: int, lanes: int, is_write: bool, is_async: bool, is_strong: bool, issuer: Issuer | Any
    ) -> None:
        """agent: component of the first lane, or of an agent that is no lane. lanes: mask, 0 for no lane."""
        self.agent, self.count, self.lanes = agent, count, lanes
        self.is_write, self.is_async, self.is_strong, self.issuer = is_write, is_async, is_strong, issuer
        self.listed = lanes_of(lanes)
        self.cause: Cause | bool | None = None  # of an asynchronous operation
        self.number = 0  # index in the history
        self.step = Access.now
        self.fence = FENCED  # row of a clock that covers threads' writes which this access's proxy sees
        self.home: Home | None = None  # its cluster, where accesses of several clusters meet
        self.reach = GRID  # extent of its scope, if it is strong
        self.size = 0  # bytes of each of its words, if it is strong
        self.started: Clock | None = None  # clock at the start of its launch, of a load through the read-only path
        self.origin = 0  # address of offset 0 of the memory
        self.writes: dict[Word, int] = {}  # by word: numbers of its strong writes
        self.polled: tuple[int, int] | None = None  # a load's address, and the number of writes before it
        # of instructions in a row: their indices, addresses [instructions] or [instructions, lanes], bytes of each
        self.several: tuple[list[int], Sequence[int] | np.ndarray, int] | None = None

    def name(self, address: int) -> None:
        """Sets the issuer to the last of several instructions that has accessed a byte."""
        if self.several is not None:
            indices, places, width = self.several
            addresses = np.asarray(places, np.uint64).reshape(len(indices), -1)
            at = np.flatnonzero(((addresses <= address) & (address < addresses + np.uint64(width))).any(axis=1))
            self.issuer = self.issuer[0], indices[int(at[-1])] if len(at) else self.issuer[1]

    def is_of(self, other: Access) -> bool:
        """True if lanes of the same warp, or the same other agent, make both accesses."""
        return self.agent == other.agent and self.home is other.home

    def is_fenced(self, other: Access) -> bool:
        """True if an order alone does not make this write visible to another access."""
        if other.fence == READ_ONLY:
            return (
                self.home is other.home or other.started is None or not _is_covered(self, other, other.started, ORDERED)
            )
        return other.is_async and not self.is_async


class Noted(NamedTuple):
    """Accesses of a warp by instructions in a row, as compiled code has noted them."""

    warp: Warp
    mask: int
    kind: str  # "load" or "store"
    width: int  # bytes of a lane
    indices: list[int]  # of the instructions
    addresses: np.ndarray  # [instructions, 32]; only the first lane's counts where lanes have none of their own
    by_lane: bool


class View(NamedTuple):
    """Clock under which an access is checked: that of some of its lanes, or of an asynchronous operation."""

    rows: np.ndarray | None  # bool, by place: the places of these lanes; None: all
    lanes: int  # mask, 0 for an operation
    clock: Clock
    row: int = ORDERED  # row of the clock that has to cover an earlier access


class Conflict(NamedTuple):
    """Earlier access that is not ordered before a later one."""

    before: Access
    missing: int | None  # row of `Clock` that would order it; None: none of them
    place: tuple[int, int]  # offsets of the first bytes in a row that both access: (first, end)
    same_warp: bool


def _column(rows: np.ndarray, like: np.ndarray) -> np.ndarray:
    return rows[:, None] if like.ndim == 2 else rows


def _is_covered(before: Access, access: Access, clock: Clock, row: int) -> bool:
    """True if a row of a clock covers an access by all of its lanes."""
    agent, count = before.agent, before.count
    if before.home is not access.home:
        assert before.home is not None  # set where accesses of several clusters meet
        counts = clock.of(before.home, row)
    elif row >= ROWS:
        counts = clock.row(row)
    else:
        table = clock.table
        if not before.lanes:
            return table.item(row, agent) >= count
        if len(before.listed) == 1:
            return table.item(row, agent + before.listed[0]) >= count
        counts = table[row]
    if not before.lanes:
        return bool(counts[agent] >= count)
    known = counts[agent : agent + LANES] >= count
    return bool(np.logical_and.reduce(known)) or all(known[lane] for lane in before.listed)


def are_strong(before: Access, access: Access) -> bool:
    """True if two accesses are morally strong (PTX ISA, "Morally Strong Operations"): they also overlap completely."""
    if not (before.is_strong and access.is_strong) or before.size != access.size:
        return False
    one, other = before.home, access.home
    return one is other or (before.reach == GRID and access.reach == GRID)


def is_ordered(before: Access, access: Access, view: View, needs_fence: bool) -> bool:
    """True if `before` happens before `access`, which sees it behind a fence if it needs one."""
    if not _is_covered(before, access, view.clock, view.row):
        return False
    return not needs_fence or _is_seen(before, access, view.clock)


def _is_seen(before: Access, access: Access, clock: Clock) -> bool:
    """True if an access sees a write that needs a fence."""
    return access.fence != READ_ONLY and _is_covered(before, access, clock, access.fence)


def follows(before: Access, access: Access, view: View) -> bool:
    """True if two accesses, one of them a write, are no conflict."""
    if access.is_strong and are_strong(before, access):
        return True
    if not _is_covered(before, access, view.clock, view.row):
        return False
    if access.fence == READ_ONLY:
        return not before.is_write or not before.is_fenced(access)
    needs_fence = access.is_async and before.is_write and not before.is_async
    return not needs_fence or _is_covered(before, access, view.clock, access.fence)


def _counts(before: Access, access: Access, view: View, row: int) -> np.ndarray:
    """Row of the later access's clock, with components of the earlier access's cluster."""
    if before.home is access.home:
        return view.clock.row(row)
    assert before.home is not None  # set where accesses of several clusters meet
    return view.clock.of(before.home, row)


def conflicts(
    before: Access, access: Access, at: np.ndarray, cells: Cells, of_before: np.ndarray, lanes: Lanes, view: View
) -> Iterator[Conflict]:
    """Yields the conflict of two accesses, if there is one. at: bool by item, True where both may access it. of_before:
    lane of the earlier access, by item.
    """
    if view.rows is not None:
        at = at & _column(view.rows, at)
    bad = at & _uncovered(before, view, view.row, of_before, lanes, access)
    missing: int | None = None
    needs_fence = before.is_write and before.is_fenced(access)
    if bad.any():
        for row in (UNSCOPED, ANYWAY):
            if missing is None and not (bad & _uncovered(before, view, row, of_before, lanes, access)).any():
                missing = row
        if missing is None and before.is_strong and access.is_strong and before.size == access.size:
            missing = UNSCOPED  # They would be no conflict but for their scopes.
    elif needs_fence and access.fence == READ_ONLY:
        missing, bad = READ_ONLY, at
    elif needs_fence:
        missing, bad = access.fence, at & _uncovered(before, view, access.fence, of_before, lanes, access)
    if bad.any():
        place = cells.place(bad)
        if not _is_observed(before, access, view.clock, place):
            yield Conflict(before, missing, place, before.is_of(access))


def _is_observed(before: Access, access: Access, clock: Clock, place: tuple[int, int]) -> bool:
    """True if strong writes of the words at these offsets have been observed, which orders them before the access."""
    if not before.writes or access.is_async or clock.observed is None:
        return False
    first, end = (access.origin + offset for offset in place)
    seen, found = clock.observed.seen, False
    for word, number in before.writes.items():
        if word[1] < end and word[1] + word[2] > first:
            lowest, highest = seen.get(word, (0, -1))
            if not lowest <= number <= highest:
                return False
            found = True
    return found


def _uncovered(before: Access, view: View, row: int, of_before: np.ndarray, lanes: Lanes, access: Access) -> np.ndarray:
    """bool by item: True where a row of the clock does not cover the earlier access. of_before: lane of that access."""
    table = _counts(before, access, view, row)
    if not before.lanes:
        return np.full_like(of_before, table[before.agent] < before.count, bool)
    known = table[before.agent : before.agent + LANES] >= before.count
    own = before.is_of(access) and bool(view.lanes)
    unknown = [lane for lane in before.listed if not known[lane]]
    by_lane = np.append(known, np.zeros(ALL + 1 - LANES, bool))
    # Each of the lanes that have stored a word together finds there what it has stored itself.
    by_lane[ALL] = not unknown or (own and before.is_write and not view.lanes & ~before.lanes)
    for count, first in GROUPS.items():
        by_lane[first : first + LANES // count] = known.reshape(-1, count).all(axis=1)
    fine = by_lane[of_before]
    if own and (lanes is not None or view.lanes.bit_count() == 1):  # a lane's own accesses are in program order
        lane = view.lanes.bit_length() - 1 if lanes is None else lanes[:, None]
        fine = fine | (of_before == lane)
        if len(unknown) == 1:
            fine = fine | ((of_before == ALL) & (lane == unknown[0]))
    return ~fine
