"""Logs of the accesses that compiled code notes. They are checked together, before their clock changes.

A warp has a log of its accesses to global memory, a CTA one of its warps' accesses to its shared memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nogpu.sanitizer.clocks import FULL, LANES
from nogpu.sanitizer.conflicts import Noted

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.warp import Warp
    from nogpu.sanitizer.accesses import Accesses
    from nogpu.sanitizer.cluster_state import ClusterState
    from nogpu.sanitizer.global_accesses import GlobalAccesses
    from nogpu.sanitizer.shadow import Shadow

ROOM = 64  # accesses
WIDEST = 32  # bytes of the largest access by a lane
_HEAD, _RECORD = 2, 2 + LANES  # words (native/engine.h, AccessLog)
# Second word of a record: masks of flags, and shifts of fields. A run is a full warp's access to words in a row.
_STORE, _BY_LANE, _RUN = 1, 2, 4
_WIDTH, _WARP = 3, 32


def _width(how: int) -> int:
    """Bytes of a lane's access. how: second word of its record."""
    return (how & FULL) >> _WIDTH


def _are_apart(heads: list[list[int]]) -> bool:
    """True if all accesses are runs, and the range of bytes that loads span does not meet the one that stores span."""
    spans = []
    for kind in (0, _STORE):
        runs = [(first, first + LANES * _width(how)) for _, how, first in heads if how & _STORE == kind]
        spans.append((min(runs)[0], max(end for _, end in runs)))
    return all(how & _RUN for _, how, _ in heads) and (spans[0][1] <= spans[1][0] or spans[1][1] <= spans[0][0])


def _may_meet(records: np.ndarray) -> bool:
    """True if a load and a store of these records may have bytes in common."""
    stores = (records[:, 1] & np.uint64(_STORE)).astype(bool)
    by_lane = (records[:, 1] & np.uint64(_BY_LANE)).astype(bool)
    ends = np.where(by_lane, np.maximum.reduce(records[:, 2:], axis=1), records[:, 2]) + np.uint64(WIDEST)
    firsts = np.where(by_lane, np.minimum.reduce(records[:, 2:], axis=1), records[:, 2])
    loads = ~stores
    return bool(((firsts[stores, None] < ends[loads]) & (firsts[loads] < ends[stores, None])).any())


class _Log:
    """Buffer of records that compiled code fills."""

    def __init__(self) -> None:
        words = np.zeros(_HEAD + ROOM * _RECORD, np.uint64)
        words[1] = ROOM
        self.address = words.ctypes.data
        self.head = words.data  # first word: accesses so far
        self.records = words[_HEAD:].reshape(ROOM, _RECORD)


class SharedLog:
    """Log of the accesses to one CTA's shared memory, in their order."""

    def __init__(self, cta: Cta, shadow: Shadow, accesses: Accesses) -> None:
        self.cta, self.shadow, self._accesses = cta, shadow, accesses
        self._log = log = _Log()
        self.head = log.head  # first word: accesses that are still to be checked
        for warp in cta.warps:
            warp.registers.context.shared_log = log.address

    def settle(self) -> None:
        """Checks and records the noted accesses."""
        count = self.head[0]
        if not count:
            return
        self.head[0] = 0
        records = self._log.records[:count]
        heads = records[:, :2].tolist()
        first = 0
        for end in range(1, count + 1):  # groups of like accesses of a warp in a row
            head, how = heads[first]
            if end < count and heads[end][1] == how and not (heads[end][0] ^ head) & FULL:
                continue
            noted = Noted(
                self.cta.warps[how >> _WARP],
                head & FULL,
                "store" if how & _STORE else "load",
                _width(how),
                [each >> 32 for each, _ in heads[first:end]],
                records[first:end, 2:].astype(np.int64),
                bool(how & _BY_LANE),
            )
            self._accesses.noted(self.cta, self.shadow, noted)
            first = end


class AccessLog:
    """Log of one warp's accesses to global memory, beside its CTA's `SharedLog`."""

    def __init__(self, state: ClusterState, warp: Warp, accesses: GlobalAccesses, shared: SharedLog) -> None:
        self._state, self._warp, self._accesses, self._shared = state, warp, accesses, shared
        self._log = log = _Log()
        self._head = log.head
        warp.registers.context.log = log.address
        accesses.logs.append(self)

    def end(self) -> None:
        """Checks the last accesses and closes the log of the warp, which has exited."""
        self.settle()
        self._accesses.logs.remove(self)

    def settle(self) -> None:
        """Checks and records the noted accesses."""
        if self._shared.head[0]:
            self._shared.settle()
        count = self._head[0]
        if not count:
            return
        self._head[0] = 0
        records = self._log.records[:count]
        heads = records[:, :3].tolist()
        groups: dict[tuple[int, int], list[int]] = {}  # (mask, second word) -> records
        are_both = len({how & _STORE for _, how, _ in heads}) > 1
        is_store, in_order = 0, are_both and not _are_apart(heads) and _may_meet(records)
        for i, (head, how, _) in enumerate(heads):
            if in_order and how & _STORE != is_store:  # The order among loads does not matter, nor among stores.
                self._check(groups, heads)
                groups, is_store = {}, how & _STORE
            groups.setdefault((head & FULL, how), []).append(i)
        self._check(groups, heads)

    def _check(self, groups: dict[tuple[int, int], list[int]], heads: list[list[int]]) -> None:
        for (mask, how), members in groups.items():
            kind, indices = "store" if how & _STORE else "load", [heads[i][0] >> 32 for i in members]
            if how & _RUN:
                starts = [heads[i][2] for i in members]
                if self._accesses.noted_runs(self._state, self._warp, kind, _width(how), indices, starts):
                    continue
            addresses, by_lane = self._log.records[members, 2:], bool(how & _BY_LANE)
            noted = Noted(self._warp, mask, kind, _width(how), indices, addresses, by_lane)
            self._accesses.noted(self._state, noted)
