"""Follows accesses to global memory, by all clusters of launches that may overlap."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from nogpu.hardware.traffic import extent
from nogpu.sanitizer.access_log import check
from nogpu.sanitizer.apart import Apart, by_warp, first_addresses
from nogpu.sanitizer.clocks import FENCED_GLOBAL, FULL, LANES, MAPPED, Cause, Home, lanes_meet, lanes_of, repeated
from nogpu.sanitizer.cluster_state import ClusterState, remnant, running_lanes
from nogpu.sanitizer.conflicts import READ_ONLY, Access, Noted, View
from nogpu.sanitizer.global_tables import Bytes, LaneWords, Runs, Tables
from nogpu.sanitizer.history import History
from nogpu.sanitizer.operations import slot
from nogpu.sanitizer.orders import is_read_only, is_strong, reach, word_size
from nogpu.sanitizer.report import spread
from nogpu.sanitizer.touched import touched
from nogpu.sanitizer.words import Words

if TYPE_CHECKING:
    from nogpu.hardware.allocations import Allocation
    from nogpu.hardware.cluster import Cluster
    from nogpu.hardware.memory import GlobalMemory
    from nogpu.hardware.warp import Issuer, Warp
    from nogpu.ptx.ir import Entry
    from nogpu.sanitizer.access_log import AccessLog
    from nogpu.sanitizer.global_tables import Place
    from nogpu.sanitizer.queue_history import Touched
    from nogpu.sanitizer.report import Reporter

PENDING = 1 << 16  # limit of unrecorded reads of an allocation to which nobody has written
READS = 8  # number of unordered reads of a byte that are kept


class GlobalAccesses:
    """Accesses to global memory under one schedule."""

    def __init__(self, memory: GlobalMemory, reporter: Reporter, kept_reads: int | None = READS) -> None:
        """kept_reads: unordered reads of a byte that are kept; None: all."""
        self._memory, self._reporter = memory, reporter
        self.words = Words()
        self.states: dict[Cluster, ClusterState] = {}  # by cluster that is followed
        self.logs: list[AccessLog] = []  # of warps that have not exited
        self.launches: set[int] = set()  # numbers of the launches that have begun
        self._history = History(kept_reads)
        self._tables: dict[Allocation, Tables] = {}
        self._read_only: dict[int, frozenset[int]] = {}  # by number of a launch
        self._writes = 0  # number of writes so far
        self._kept: Cluster | None = None  # in whose place CTAs run that compiled code keeps
        # Accesses that are kept; None: they have met others, and no more are kept
        self._apart: dict[Tables, Apart | None] = {}
        self._homes: dict[int, Home] = {}  # of CTAs that compiled code has kept, by number

    def settle(self) -> None:
        """Checks the accesses that compiled code has noted."""
        for log in self.logs:
            log.settle()

    def touched(self, with_reads: bool) -> dict[int, list[Touched]]:
        """Accesses so far, by number of a launch. with_reads: reads are among them."""
        self.settle()
        found = touched(self.launches, list(self._tables.values()), self._history, with_reads)
        for apart in filter(None, self._apart.values()):  # of the only launch: no other overlaps it
            for of_launch in found.values():
                of_launch += apart.touched(with_reads)
        return found

    def follow(self, cluster: Cluster) -> None:
        """Handles that compiled code keeps a resident cluster of one CTA, and others in its place."""
        self._kept, self._homes[cluster.number] = cluster, self.states[cluster].home

    def renew(self, cluster: Cluster) -> None:
        """Handles that the cluster, to which nothing has happened, is another one now."""
        state = self.states[cluster]
        state.home = self._homes.setdefault(cluster.number, Home(state.home.grid))

    def keep(self, cluster: Cluster, notes: np.ndarray) -> None:
        """Keeps accesses by CTAs that have synchronized with nobody, or checks and records them if they may conflict
        with others. notes: as `apart.Ranges.of` takes them.
        """
        read_only = sorted(self._read_only_of(self.states[cluster], cluster.grid.entry))
        firsts = first_addresses(notes)
        while len(notes):
            tables = self._tables_at(int(firsts[0]))
            if tables is None:  # other lanes of the first access write to another allocation
                inside = np.arange(len(notes)) == 0
            else:
                inside = (firsts >= tables.start) & (firsts < tables.end)
            of = notes if inside.all() else notes[inside]
            if tables is None or not self._keep_in(tables, of, read_only):
                self._replay(of)
            notes, firsts = notes[~inside], firsts[~inside]

    def check_kept(self, cluster: Cluster, notes: np.ndarray) -> None:
        """Checks and records accesses of the CTA that runs in the cluster's place. notes: as for `keep`."""
        for _, warp, records in by_warp(notes):
            check(self, self.states[cluster], cluster.warps[warp], records)

    def _keep_in(self, tables: Tables, notes: np.ndarray, read_only: list[int]) -> bool:
        self._writes += 1
        if tables not in self._apart:
            self._apart[tables] = Apart(tables)
        apart = self._apart[tables]
        if apart is not None and apart.add(notes, read_only):
            return True
        self._record_apart(tables)
        return False

    def _record_apart(self, tables: Tables) -> None:
        """Checks and records the accesses to an allocation that have been kept."""
        apart = self._apart[tables]
        self._apart[tables] = None
        for notes in [] if apart is None else apart.notes:
            self._replay(notes)

    def _replay(self, notes: np.ndarray) -> None:
        """Checks and records accesses that have been kept, or could have been."""
        cluster, state = self._kept, None
        assert cluster is not None  # set: it has kept them
        number = cluster.number
        try:
            for cta, warp, records in by_warp(notes):
                if state is None or cta != cluster.number:
                    cluster.become(cta)
                    state = ClusterState(cluster, self._reporter, self.words)
                    state.home = self._homes.setdefault(cta, state.home)
                check(self, state, cluster.warps[warp], records)
        finally:
            cluster.become(number)

    def observe(
        self,
        kind: str,
        proxy: str,
        address: int | np.ndarray,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        issuer: Issuer | None,
    ) -> None:
        """Checks and records an access to global memory: to a box of bytes at an address, or to words of shape[0] bytes
        at several. An access of the host has no issuer: it is ordered before and after launches.
        """
        if issuer is None:
            return
        tables = None if isinstance(address, np.ndarray) else self._tables_at(address)
        if tables is None and not isinstance(address, np.ndarray):
            return
        cta = issuer[0].cta
        state = self.states[cta.cluster]
        running = cta.machine.running
        if running is not None and running.cause is not None:
            access, views = self._of_operation(state, running.cause, kind, proxy, address)
            mask = running.cause.mask if access.lanes else 0
        else:
            warp, mask = issuer[0].warp, running_lanes(issuer[0].warp)
            state.warps[warp].settle()
            access = self._of_warp(state, warp, mask, kind, issuer)
            views = [View(None, part, clock) for part, clock in state.warps[warp].parts(mask)]
        if isinstance(address, np.ndarray):
            self._by_lane(access, address, shape[0], mask, views)
        elif tables is not None and not self._repeats(access, address):
            low, high = extent(shape, strides)
            tables.reach(address + low, address + high)
            self._check(access, tables, Bytes(address, shape, strides), views)

    def _repeats(self, access: Access, address: int) -> bool:
        """True if a warp loads a word again, by the same instruction, with no write since: it spins."""
        last, access.polled = access.polled, (address, self._writes)
        return not access.is_write and last == access.polled

    def noted_runs(
        self, state: ClusterState, warp: Warp, kind: str, width: int, indices: list[int], starts: list[int]
    ) -> bool:
        """Checks and records accesses of a full warp by instructions in a row, each to words of `width` bytes in a row.
        Returns False, with nothing done, where instructions or lanes have to be told apart. starts: addresses.
        """
        size, low, high = width * LANES, min(starts), max(starts)
        tables, clock, grid = self._tables_at(low), state.warps[warp], warp.cta.grid
        views = [View(None, part, known) for part, known in clock.parts(FULL)]
        if tables is None or high + size > tables.end or len(views) > 1:
            return False
        if len(indices) > 1:
            overlap = kind == "store" and any(after - start < size for start, after in pairwise(sorted(starts)))
            if overlap or self._are_apart(state, grid.entry, indices):
                return False
        access = self._of_noted(state, warp, FULL, kind, indices[0])
        place = Runs(tuple(starts), width)
        if len(indices) > 1:
            access.several = indices, place.starts, size
        tables.reach(low, high + size)
        self._check(access, tables, place, views)
        return True

    def noted(self, state: ClusterState, noted: Noted) -> None:
        """Checks and records accesses of a warp. The addresses of `noted` are uint64."""
        warp, mask, kind, width, indices, addresses, by_lane = noted
        if not by_lane:
            addresses = addresses[:, :1]
        elif mask != FULL:
            addresses = addresses[:, lanes_of(mask)]
        places = addresses.ravel()
        low, high = int(np.minimum.reduce(places)), int(np.maximum.reduce(places))
        tables = self._tables_at(low)
        parts = [(indices, addresses)]
        meet = len(indices) > 1 and kind == "store" and by_lane and lanes_meet(addresses)
        if meet or (len(indices) > 1 and self._are_apart(state, warp.cta.grid.entry, indices)):
            parts = [([index], addresses[i : i + 1]) for i, index in enumerate(indices)]
        elif tables is None or high >= tables.end:  # parts by the allocation of the first lane
            rows: dict[Tables | None, list[int]] = {}
            for i, address in enumerate(addresses[:, 0].tolist()):
                rows.setdefault(self._tables_at(address), []).append(i)
            parts = [([indices[i] for i in of], addresses[of]) for of in rows.values()]
        for of_part, places in parts:
            access = self._of_noted(state, warp, mask, kind, of_part[0])
            if len(of_part) > 1:
                access.several = (of_part, places, width)
            views = [View(None, part, known) for part, known in state.warps[warp].parts(mask)]
            extent = (low, high, tables) if len(parts) == 1 else None
            self._by_lane(access, places.ravel(), width, mask if by_lane else 0, views, extent)

    def _are_apart(self, state: ClusterState, entry: Entry, indices: list[int]) -> bool:
        """True if accesses by these instructions have to be checked one by one."""
        read_only = len(self._read_only_of(state, entry).intersection(indices))
        return read_only not in (0, len(set(indices))) or self._reporter.tells_apart(entry, indices)

    def _read_only_of(self, state: ClusterState, entry: Entry) -> frozenset[int]:
        """Indices of a kernel's loads through the read-only path."""
        found = self._read_only.get(state.home.grid)
        if found is None:
            opcodes = enumerate(instruction.opcode for instruction in entry.instructions)
            found = self._read_only[state.home.grid] = frozenset(i for i, opcode in opcodes if is_read_only(opcode))
        return found

    def _of_noted(self, state: ClusterState, warp: Warp, mask: int, kind: str, index: int) -> Access:
        clock = state.warps[warp]
        clock.changes += 1
        if clock.identity is None:
            clock.identity, _ = remnant((warp.first_group, 0))
        access = Access(clock.base, clock.now, mask, kind == "store", False, False, (clock.identity, index))
        access.home = state.home
        if index in self._read_only_of(state, warp.cta.grid.entry):
            access.fence, access.started = READ_ONLY, state.started
        return access

    def _by_lane(
        self,
        access: Access,
        addresses: np.ndarray,
        width: int,
        mask: int,
        views: list[View],
        extent: tuple[int, int, Tables | None] | None = None,
    ) -> None:
        """Checks and records accesses to words of `width` bytes. addresses: uint64[n], those of the lanes of a mask,
        once or several times in a row; mask 0: of no lane in particular. extent: lowest and highest address, tables of
        the lowest.
        """
        lanes, times = None, len(addresses) // (mask.bit_count() or 1)
        if mask and times * mask.bit_count() == len(addresses):
            lanes = repeated(mask, times)
            if len(views) > 1:
                views = [View((view.lanes >> lanes.astype(np.int64) & 1).astype(bool), *view[1:]) for view in views]
        if extent is None:
            low = int(np.minimum.reduce(addresses))
            extent = low, int(np.maximum.reduce(addresses)), self._tables_at(low)
        low, high, tables = extent
        if tables is not None and high < tables.end:
            tables.reach(low, high + width)
            self._check(access, tables, LaneWords(addresses, width, lanes), views)
            return
        for i, address in enumerate(addresses.tolist()):  # several allocations, or one that nobody can write to
            tables = self._tables_at(address)
            if tables is not None:
                tables.reach(address, address + width)
                one = None if lanes is None else lanes[i : i + 1]
                own = [view._replace(rows=None) for view in views if view.rows is None or view.rows[i]]
                self._check(access, tables, LaneWords(addresses[i : i + 1], width, one), own)

    def _tables_at(self, address: int) -> Tables | None:
        """Tables of the allocation at an address; None if nobody can write to it."""
        allocation = self._memory.holding(address)
        if not allocation.writable:
            return None
        tables = self._tables.get(allocation)
        if tables is None:
            tables = self._tables[allocation] = Tables(allocation)
        return tables

    def _check(self, access: Access, tables: Tables, place: Place, views: list[View]) -> None:
        """Checks an access to bytes of one allocation."""
        apart = self._apart.get(tables)
        if apart is not None and apart.meets(place, access.is_write):
            self._record_apart(tables)
        self._writes += access.is_write
        if tables.reads is not None:
            if not access.is_write:
                tables.reads.append((access, place))
                if len(tables.reads) < PENDING:
                    return
            self._record(tables)
            if not access.is_write:
                return
        cells, lanes = place.cells(tables, access.is_write, len(views))
        if self._history.follows(access, cells.items, cells.where, lanes, views):
            return
        access.origin = tables.start
        for conflict in self._history.access(access, cells, lanes, views):
            for each in (conflict.before, access):
                each.name(tables.start + conflict.place[0])
            where = f"{spread('byte', *conflict.place)} of {tables.allocation}"
            self._reporter.report(conflict, access, where, "global")

    def _record(self, tables: Tables) -> None:
        """Records the reads of an allocation to which nobody has written so far."""
        reads, tables.reads = tables.reads or [], None
        for access, place in reads:
            cells, lanes = place.cells(tables, False, 1)
            self._history.follows(access, cells.items, cells.where, lanes, [])

    def _of_warp(self, state: ClusterState, warp: Warp, mask: int, kind: str, issuer: Issuer) -> Access:
        clock = state.warps[warp]
        clock.changes += 1
        key = clock.base, clock.now, mask, issuer[1], kind, Access.now
        access = state.global_accesses.get(key)
        if access is None:
            opcode = issuer[0].grid.entry.instructions[issuer[1]].opcode
            access = Access(clock.base, clock.now, mask, kind == "store", False, is_strong(opcode), remnant(issuer))
            access.home, access.reach = state.home, reach(opcode)
            if access.is_strong:
                access.writes, clock.has_written, access.size = clock.writes, True, word_size(opcode)
            elif is_read_only(opcode):
                access.fence, access.started = READ_ONLY, state.started
            state.global_accesses[key] = access
        return access

    def _of_operation(
        self, state: ClusterState, cause: Cause, kind: str, proxy: str, address: int | np.ndarray
    ) -> tuple[Access, list[View]]:
        issuer, mask = cause.issuer, 0
        opcode = issuer[0].grid.entry.instructions[issuer[1]].opcode
        if proxy == "tensormap":
            agent, count = slot(state.agents, "map reads", cause)
        elif cause.channel is None:
            agent, count = slot(state.agents, "reads", cause)
        elif opcode.startswith("cp.async.c"):
            agent, count, mask = cause.channel.agent, cause.count, cause.mask
        else:  # a bulk store: the component behind that of its read
            agent, count = cause.channel.agent + 1, cause.count
        clock = state.agents.fit(cause.clock)
        if not mask:
            clock.set(agent, count)
        key = agent, count, mask, issuer[1], kind
        access = state.global_accesses.get(key)
        if access is None:
            is_async = proxy != "generic"
            access = Access(agent, count, mask, kind == "store", is_async, is_strong(opcode), remnant(issuer))
            access.cause, access.home, access.reach = True, state.home, reach(opcode)
            access.size = word_size(opcode) if access.is_strong else 0
            access.fence = FENCED_GLOBAL
            if proxy == "tensormap" and isinstance(address, int):
                access.fence = MAPPED + address
            state.global_accesses[key] = access
        return access, [View(None, 0, clock)]
