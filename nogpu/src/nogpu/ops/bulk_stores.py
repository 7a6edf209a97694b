"""Bulk and tensor copies from shared to global memory, with and without a reduction, and their groups (PTX ISA,
"cp.async.bulk", "cp.reduce.async.bulk", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nogpu.arithmetic.lanes import lane_list
from nogpu.hardware.async_operations import AsyncOperation
from nogpu.hardware.tma import boxes, rules
from nogpu.hardware.tma.swizzle import CHUNK
from nogpu.ops.copy_operands import REDUCTION, STORE, MapReader, issues, own_source, signed_coordinates

if TYPE_CHECKING:
    from nogpu.hardware.memory import GlobalMemory
    from nogpu.hardware.shared_memory import SharedMemory
    from nogpu.hardware.tma.modes import Mode
    from nogpu.hardware.warp import ActiveGroup, Issuer
    from nogpu.ops.active_lanes import Operands


class _Store:
    """A store in two parts: it reads shared memory, for which a thread may wait, then writes global memory."""

    def __init__(
        self, what: str, issuer: Issuer, read: Callable[[], boxes.Data], write: Callable[[boxes.Data], None]
    ) -> None:
        """what: the store's name in messages."""
        self._what, self._issuer, self._read, self._write = what, issuer, read, write
        self._data: boxes.Data | None = None

    def prepare(self) -> None:
        """Reads shared memory, unless it has been read."""
        self._source()

    def _source(self) -> boxes.Data:
        if self._data is None:
            self._issuer[0].cta.alive(self._what, self._issuer)
            self._data = self._read()
        return self._data

    def __call__(self) -> None:
        self._write(self._source())


def _submit(g: ActiveGroup, mask: int, store: _Store, issuer: Issuer) -> None:
    async_op = AsyncOperation(g, issuer, store, store.prepare)
    g.warp.bulk_open.append((mask, async_op))
    g.cta.machine.queues.store(async_op)


def store_tile(
    g: ActiveGroup, mask: int, operands: Operands, mode: Mode, operation: str | None, issuer: Issuer
) -> None:
    """Issues cp.async.bulk.tensor from shared to global memory; with an operation, cp.reduce.async.bulk.tensor.

    operands: tensor map, source, coordinates.
    """
    for address, src, *coords in issues(mask, STORE if operation is None else REDUCTION, operands):
        offset = own_source(g, src)
        reader, place, shared = MapReader(g, address, issuer), signed_coordinates(coords), g.cta.shared
        rules.check_tile(reader.issued, place, shared, offset, "load", mode)
        if operation is not None:
            rules.check_reduction(reader.issued, operation)

        def read(
            reader: MapReader = reader,
            place: tuple[int, ...] = place,
            shared: SharedMemory = shared,
            offset: int = offset,
        ) -> boxes.Data:
            box = boxes.read_tile(reader(), place, shared, offset, issuer, mode)
            if g.cta.cluster.events.is_observed:
                g.cta.cluster.events.stores_tile(g.cta, reader(), place, offset, mode, issuer)
            return box

        def write(box: boxes.Data, reader: MapReader = reader, place: tuple[int, ...] = place) -> None:
            boxes.write_tile(reader(), place, g.grid.memory, box, issuer, mode, operation)

        _submit(g, mask, _Store("a tensor store", issuer, read, write), issuer)


def store_bulk(
    g: ActiveGroup, mask: int, operands: Operands, reduction: tuple[str, str] | None, issuer: Issuer
) -> None:
    """Issues cp.async.bulk from shared to global memory; with a reduction (operation, type), cp.reduce.async.bulk.

    operands: destination, source, bytes, mask of the bytes of each 16 that are written.
    """
    for address, src, size, kept in issues(mask, STORE if reduction is None else REDUCTION, operands):
        offset, shared, memory = own_source(g, src), g.cta.shared, g.grid.memory
        rules.check_bulk(memory, address, shared, offset, size, "load", _unwritten(kept))

        def read(
            shared: SharedMemory = shared, offset: int = offset, size: int = size, kept: int | None = kept
        ) -> boxes.Data:
            data = boxes.read_bulk(shared, offset, size, issuer)
            if g.cta.cluster.events.is_observed:
                g.cta.cluster.events.stores_bulk(g.cta, offset, size, kept, issuer)
            return data

        def write(
            data: boxes.Data, memory: GlobalMemory = memory, address: int = address, kept: int | None = kept
        ) -> None:
            boxes.write_bulk(memory, address, data, issuer, kept, reduction)

        _submit(g, mask, _Store("a bulk store", issuer, read, write), issuer)


def _unwritten(kept: int | None) -> tuple[int, int]:
    """Bytes at the start and at the end of a store that a byte mask leaves out."""
    if not kept:
        return 0, 0
    return (kept & -kept).bit_length() - 1, CHUNK - kept.bit_length()


def commit_group(g: ActiveGroup, mask: int, issuer: Issuer) -> None:
    """cp.async.bulk.commit_group: the stores that a lane has issued since its last commit form a group."""
    async_ops = [(lanes, async_op) for lanes, async_op in g.warp.bulk_open if lanes & mask]
    g.warp.bulk_open = [(lanes, async_op) for lanes, async_op in g.warp.bulk_open if not lanes & mask]
    g.warp.bulk_groups.append((mask, async_ops))
    g.cta.cluster.events.committed(g.warp, mask)


def wait_group(g: ActiveGroup, mask: int, newest: int, read_only: bool, issuer: Issuer) -> None:
    """cp.async.bulk.wait_group: completes all but each lane's `newest` groups.

    read_only: `.read`: the groups only read their sources. The tensor maps of the lanes' earlier loads are read, too
    (PTX ISA, "cp.async.bulk.wait_group").
    """
    queues, groups = g.cta.machine.queues, g.warp.bulk_groups
    issuers = 0
    for committed, async_ops in groups:
        for lanes, _ in async_ops:
            issuers |= committed & lanes
    for lane in lane_list(mask & issuers):
        own = [async_ops for lanes, async_ops in groups if lanes >> lane & 1]
        due = [
            async_op
            for async_ops in own[: max(0, len(own) - newest)]
            for lanes, async_op in async_ops
            if lanes >> lane & 1
        ]
        if read_only:
            queues.prepare(due)
            for async_op in due:
                async_op.prepare = None
        else:
            queues.force(due)
    while groups and all(async_op.done for _, async_op in groups[0][1]):
        del groups[0]
    queues.prepare([async_op for lanes, async_op in g.warp.map_reads if lanes & mask])
    g.warp.map_reads = [(lanes, async_op) for lanes, async_op in g.warp.map_reads if not lanes & mask]
    g.cta.cluster.events.completed(g.warp, mask, newest, read_only)
