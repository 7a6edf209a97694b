"""Follows accesses to global memory, by all clusters of launches that may overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from emulator.sanitizer.clocks import FENCED_GLOBAL, MAPPED, Cause, lanes_of
from emulator.sanitizer.global_tables import Tables
from emulator.sanitizer.history import Access, History, View
from emulator.sanitizer.operations import slot
from emulator.sanitizer.orders import is_strong, reach
from emulator.sanitizer.scene import Scene, remnant, running_lanes
from emulator.sanitizer.words import Words

if TYPE_CHECKING:
    from emulator.hardware.allocations import Allocation
    from emulator.hardware.memory import GlobalMemory
    from emulator.hardware.warp import Issuer, Warp
    from emulator.sanitizer.follow import ClusterCauses
    from emulator.sanitizer.history import Cells
    from emulator.sanitizer.report import Reporter

READS = 8  # of a byte, by those that nothing orders, that are kept


class GlobalAccesses:
    """Under one schedule."""

    def __init__(self, memory: GlobalMemory, reporter: Reporter) -> None:
        self._memory, self._reporter = memory, reporter
        self.words = Words()
        self._history = History(READS)
        self._tables: dict[Allocation, Tables] = {}

    def observe(
        self,
        kind: str,
        proxy: str,
        address: int | np.ndarray,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        issuer: Issuer | None,
    ) -> None:
        """The observer of global memory. What the host does has no issuer, and is ordered before and after launches."""
        if issuer is None:
            return
        cta = issuer[0].cta
        scene = cast("ClusterCauses", cta.cluster.causes).scene
        running = cta.machine.running
        if running is not None and running.cause is not None:
            access, views = self._of_operation(scene, running.cause, kind, proxy)
            mask = running.cause.mask if access.lanes else 0
        else:
            warp, mask = issuer[0].warp, running_lanes(issuer[0].warp)
            scene.warps[warp].settle()
            access = self._of_warp(scene, warp, mask, kind, issuer)
            views = [View(None, part, clock) for part, clock in scene.warps[warp].parts(mask)]
        if isinstance(address, np.ndarray):
            self._by_lane([access], address, shape[0], mask, views)
            return
        tables = self._tables_at(address)
        if tables is not None:
            self._check([access], tables, tables.box(address, shape, strides), None, views)

    def noted(
        self,
        scene: Scene,
        warp: Warp,
        mask: int,
        kind: str,
        width: int,
        indices: list[int],
        addresses: np.ndarray,
        by_lane: bool,
    ) -> None:
        """Accesses of a warp by instructions in a row. addresses: uint64[instructions, 32], or of their first lane."""
        group = warp.first_group
        accesses = [self._of_warp(scene, warp, mask, kind, (group, index)) for index in indices]
        views = [View(None, part, known) for part, known in scene.warps[warp].parts(mask)]
        if not by_lane:
            for access, address in zip(accesses, addresses[:, 0].tolist(), strict=True):
                tables = self._tables_at(address)
                if tables is not None:
                    self._check([access], tables, tables.box(address, (width,), (1,)), None, views)
            return
        addresses = addresses[:, lanes_of(mask)]
        parts: dict[Tables | None, list[int]] = {}  # instructions by the allocation that all of their lanes access
        for i, (low, high) in enumerate(zip(addresses.min(1).tolist(), addresses.max(1).tolist(), strict=True)):
            tables = self._tables_at(low)
            parts.setdefault(tables if tables is not None and high < tables.end else None, []).append(i)
        for tables, rows in parts.items():
            for group_of in [rows] if tables is not None else [[row] for row in rows]:
                self._by_lane([accesses[i] for i in group_of], addresses[group_of].ravel(), width, mask, views)

    def _by_lane(self, accesses: list[Access], addresses: np.ndarray, width: int, mask: int, views: list[View]) -> None:
        """Accesses by lanes: addresses uint64[n] of all lanes for the first access, then for the next one. Those of
        several accesses are in one allocation.
        """
        lanes = np.array(lanes_of(mask), np.uint8) if len(addresses) == len(accesses) * mask.bit_count() else None
        if lanes is not None:
            if len(accesses) > 1:
                lanes = np.tile(lanes, len(accesses))
            if len(views) > 1:
                views = [View((view.lanes >> lanes.astype(np.int64) & 1).astype(bool), *view[1:]) for view in views]
        tables = self._tables_at(int(addresses.min()))
        if tables is not None and int(addresses.max()) < tables.end:
            chunks = None if accesses[0].is_write or len(views) > 1 else tables.chunks(addresses, width)
            if chunks is not None:
                self._check(accesses, tables, chunks, None, views)
            else:
                self._check(accesses, tables, tables.lanes(addresses, width), lanes, views)
            return
        for i, address in enumerate(addresses.tolist()):  # several allocations, or one that nobody can write to
            tables = self._tables_at(address)
            if tables is not None:
                one = None if lanes is None else lanes[i : i + 1]
                own = [view._replace(rows=None) for view in views if view.rows is None or view.rows[i]]
                self._check(accesses, tables, tables.lanes(addresses[i : i + 1], width), one, own)

    def _tables_at(self, address: int) -> Tables | None:
        """Of the allocation at an address; None if nobody can write to it."""
        allocation = self._memory.holding(address)
        if not allocation.writable:
            return None
        tables = self._tables.get(allocation)
        if tables is None:
            tables = self._tables[allocation] = Tables(allocation)
        return tables

    def _check(
        self, accesses: list[Access], tables: Tables, cells: Cells, lanes: np.ndarray | None, views: list[View]
    ) -> None:
        for conflict in self._history.access(accesses[0], cells, lanes, views, others=accesses):
            place = f"byte {conflict.place:#x} of {tables.allocation}"
            self._reporter.report(conflict, accesses[0], place, "global")

    def _of_warp(self, scene: Scene, warp: Warp, mask: int, kind: str, issuer: Issuer) -> Access:
        clock = scene.warps[warp]
        clock.changes += 1
        key = clock.base, clock.now, mask, issuer[1], kind
        access = scene.global_accesses.get(key)
        if access is None:
            opcode = issuer[0].grid.entry.instructions[issuer[1]].opcode
            access = Access(clock.base, clock.now, mask, kind == "store", False, is_strong(opcode), remnant(issuer))
            access.home, access.reach = scene.home, reach(opcode)
            scene.global_accesses[key] = access
        return access

    def _of_operation(self, scene: Scene, cause: Cause, kind: str, proxy: str) -> tuple[Access, list[View]]:
        issuer, mask = cause.issuer, 0
        opcode = issuer[0].grid.entry.instructions[issuer[1]].opcode
        if proxy == "tensormap":
            agent, count = slot(scene.agents, "map reads", cause)
        elif cause.channel is None:
            agent, count = slot(scene.agents, "reads", cause)
        elif opcode.startswith("cp.async.c"):
            agent, count, mask = cause.channel.agent, cause.count, cause.mask
        else:  # a bulk store: the component behind that of its read
            agent, count = cause.channel.agent + 1, cause.count
        clock = scene.agents.fit(cause.clock)
        if not mask:
            clock.set(agent, count)
        key = agent, count, mask, issuer[1], kind
        access = scene.global_accesses.get(key)
        if access is None:
            is_async = proxy != "generic"
            access = Access(agent, count, mask, kind == "store", is_async, is_strong(opcode), remnant(issuer))
            access.cause, access.home, access.reach = True, scene.home, reach(opcode)
            access.fence = MAPPED if proxy == "tensormap" else FENCED_GLOBAL
            scene.global_accesses[key] = access
        return access, [View(None, 0, clock)]
