"""Bulk and tensor copies to shared memory (PTX ISA, "Asynchronous copy").

The operands are checked when a warp issues the copy. The schedule decides when the copy happens; whatever may have
changed by then is checked then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.arithmetic.lanes import lane_list
from emulator.arithmetic.reductions import combined
from emulator.errors import Fault
from emulator.hardware.async_operations import AsyncOperation
from emulator.hardware.barriers import TILE_LOAD
from emulator.hardware.routes import Operands
from emulator.hardware.tma import boxes, rules
from emulator.hardware.tma.known_maps import map_at
from emulator.hardware.tma.swizzle import CHUNK
from emulator.hardware.tma.tensor_map import TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES, TensorMap
from emulator.ops.mbarrier import barrier_at
from emulator.ops.memory import SHARED_TAG, TAG_SHIFT, shared_target
from emulator.ops.peers import check_started

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.hardware.barriers import MBarrier
    from emulator.hardware.cluster import Cta
    from emulator.hardware.routes import Load
    from emulator.hardware.warp import ActiveGroup, Issuer, Warp
    from emulator.ops.active_lanes import Operand

LOAD, STORE, REDUCTION = "load", "store", "reduction"
Place = tuple["Cta", int]
"""A CTA and an offset in its shared memory."""


def issues(mask: int, kind: str, operands: tuple) -> list[tuple]:
    """The operands of each copy that the active lanes issue, as integers.

    operands: integers, rows, or None. Lanes with equal operands issue

    - one copy in a STORE: the DSL issues it from whole warps, and the hardware executes it once per warp;
    - a copy each in a REDUCTION, for which ptxas makes a loop over the lanes;
    - none in a LOAD, which raises Fault: every lane's bytes would be counted on the barrier.
    """
    if not mask & (mask - 1):
        if np.ndarray not in map(type, operands):
            return [operands]
        lane = mask.bit_length() - 1
        return [tuple(_at(operand, lane) for operand in operands)]
    if kind == REDUCTION:
        return [tuple(_at(operand, lane) for operand in operands) for lane in lane_list(mask)]
    if np.ndarray not in map(type, operands):
        distinct = [operands]
    else:
        distinct = list(dict.fromkeys(tuple(_at(operand, lane) for operand in operands) for lane in lane_list(mask)))
    if kind == LOAD and len(distinct) < mask.bit_count():
        raise Fault(f"{mask.bit_count()} lanes ({mask:#010x}) issue the same copy; one lane must be elected")
    return distinct


def _at(operand: Any, lane: int) -> Any:
    return int(operand[lane]) if isinstance(operand, np.ndarray) else operand


def signed_coordinates(coordinates: list[int]) -> tuple[int, ...]:
    return tuple([(c & 0xFFFFFFFF ^ 0x80000000) - 0x80000000 for c in coordinates])


class MapReader:
    """Reads a tensor map once: when the copy happens, or earlier if the issuing thread waits for the read."""

    __slots__ = ("_address", "_issuer", "_known", "_memory", "_read", "issued")

    def __init__(self, g: ActiveGroup, address: int, issuer: Issuer) -> None:
        if address >> TAG_SHIFT == SHARED_TAG:
            raise Fault(
                "a tensor map in shared memory can't be used by a copy: it must be in global, constant or parameter "
                "memory"
            )
        if address % TENSOR_MAP_ALIGNMENT:
            raise Fault(f"tensor map at {address:#x}: must be {TENSOR_MAP_ALIGNMENT}-byte aligned")
        self._memory, self._address, self._issuer = g.grid.memory, address, issuer
        self._known = map_at(self._memory, address)
        # The map as it is at issue must be valid: the hardware may read it at once.
        self.issued = self._known.decoded()
        self._read: TensorMap | None = None

    def __call__(self) -> TensorMap:
        if self._read is None:
            memory = self._memory
            if memory.observer is not None or memory.version != self._known.version:
                raw = memory.read(self._address, TENSOR_MAP_BYTES, self._issuer, proxy="tensormap")
                self._read = TensorMap.decode(raw)
            else:
                self._read = self._known.decoded()
        return self._read

    def prepare(self) -> None:
        self()


def own_source(g: ActiveGroup, address: int) -> int:
    """The offset of a .shared::cta source, which must be in the issuer's CTA."""
    cta, offset = shared_target(g, address)
    if cta is not g.cta:
        raise Fault(f".shared::cta source {address:#x} is in CTA rank {cta.rank}")
    return offset


def _destinations(
    g: ActiveGroup, destination: int, barrier: int, multicast: int | None, pair: bool, own_only: bool
) -> list[tuple[Place, MBarrier]]:
    """(destination, mbarrier) for each CTA that receives the copy (PTX ISA, "cp.async.bulk.tensor", .multicast,
    .cta_group).

    multicast: a bit per CTA of the cluster, None without `.multicast`. pair: `.cta_group::2`. own_only: a destination
    in another CTA is refused.
    """
    target, offset = shared_target(g, destination)
    signalled, barrier_offset = shared_target(g, barrier)
    if multicast is None:
        if own_only and target is not g.cta:
            raise Fault(f".shared::cta destination {destination:#x} is in CTA rank {target.rank}")
        # .cta_group::2 allows the barrier to be in the peer CTA of the pair; without it both are in one CTA.
        if signalled is not target and not (pair and signalled.rank ^ target.rank == 1):
            raise Fault(f"the barrier is in CTA rank {signalled.rank}, the destination in rank {target.rank}")
        live = None if signalled.exited else signalled.mbarriers.get(barrier_offset)
        return [((target, offset), live or barrier_at(g, None, barrier))]
    if multicast >> g.cta.cluster.size or not multicast:
        raise Fault(f"multicast mask {multicast:#06x} for a cluster of {g.cta.cluster.size} CTAs")
    found = []
    for rank in lane_list(multicast):
        receiver = g.cta.cluster.cta(rank, g.cta)
        notified = g.cta.cluster.cta((rank & ~1) | (signalled.rank & 1) if pair else rank, g.cta)
        check_started(g, receiver)
        check_started(g, notified)
        found.append(((receiver, offset), notified.mbarrier(barrier_offset)))
    return found


def load_tile(
    g: ActiveGroup,
    mask: int,
    destination: Operand,
    tensor_map: Operand,
    coordinates: tuple[Operand, ...],
    barrier: Operand,
    multicast: Operand | None,
    pair: bool,
    own_only: bool,
    rows: bool,
    issuer: Issuer,
) -> None:
    """cp.async.bulk.tensor from global to shared memory. rows: mode tile::gather4."""
    operands = (destination, tensor_map, barrier, multicast, *coordinates)
    for dst, address, mbar, targets, *coords in issues(mask, LOAD, operands):
        places = _destinations(g, dst, mbar, targets, pair, own_only)
        reader, place = MapReader(g, address, issuer), signed_coordinates(coords)
        for (cta, offset), _ in places:
            rules.check_tile(reader.issued, place, cta.shared, offset, "store", rows)
        load = _tile_load(g, reader, place, places, rows, issuer)
        async_op = AsyncOperation(g, issuer, load, reader.prepare)
        if not g.grid.is_parameter(address):
            g.warp.map_reads.append((mask, async_op))
        elif targets is None and not rows:
            _let_repeat(g, Operands(dst, address, mbar), reader.issued, places[0])
        g.cta.machine.queues.load(async_op)


def _let_repeat(g: ActiveGroup, operands: Operands, tensor_map: TensorMap, place: tuple[Place, MBarrier]) -> None:
    """Compiled code may issue and execute this tile load the next time, if it can."""
    ((cta, offset), barrier), machine, memory = place, g.cta.machine, g.grid.memory
    if machine.schedule.kind != "late" or not machine.turns.in_use:
        return
    marks = memory.counted_loads(tensor_map.address)
    if marks is not None and tensor_map.tile is not None and cta is g.cta and barrier.home is cta:
        machine.turns.use_loads().learn(operands, cta.shared, offset, tensor_map, marks, barrier)


def pending_load(load: Load, warp: Warp) -> AsyncOperation:
    """A tile load that compiled code has issued for a warp and can't execute."""
    g, route = warp.first_group, load.route
    issuer = g, load.pc

    def run() -> None:
        g.cta.alive("a tensor copy", issuer)
        live = g.cta.shared.live_barriers.by_address.get(route.target)
        barrier = g.cta.mbarriers[live.offset] if live is not None else barrier_at(g, None, route.barrier)
        places = [((g.cta, route.offset), barrier)]
        _tile_load(g, MapReader(g, route.map, issuer), tuple(load.at[: route.rank]), places, False, issuer)()

    async_op = AsyncOperation(g, issuer, run)
    async_op.known = load.known
    return async_op


def _tile_load(
    g: ActiveGroup,
    reader: MapReader,
    coords: tuple[int, ...],
    places: list[tuple[Place, MBarrier]],
    rows: bool,
    issuer: Issuer,
) -> Callable[[], None]:
    def run() -> None:
        tensor_map = reader()
        nbytes, counted = rules.tile_bytes(tensor_map, rows), rules.counted_bytes(tensor_map, rows)
        (first, offset), _ = places[0]
        first.alive("a tensor copy", issuer)
        boxes.load_tile(tensor_map, coords, g.grid.memory, first.shared, offset, issuer, rows)
        for (cta, _), _ in places[1:]:
            cta.alive("a tensor copy", issuer)
            cta.shared.write(offset, first.shared.data[offset : offset + nbytes], issuer)
        for _, barrier in places:
            barrier.complete(counted, TILE_LOAD, issuer)

    return run


def load_bulk(
    g: ActiveGroup,
    mask: int,
    destination: Operand,
    source: Operand,
    nbytes: Operand,
    barrier: Operand,
    multicast: Operand | None,
    own_only: bool,
    issuer: Issuer,
) -> None:
    """cp.async.bulk from global to shared memory."""
    for dst, address, size, mbar, targets in issues(mask, LOAD, (destination, source, nbytes, barrier, multicast)):
        places = _destinations(g, dst, mbar, targets, False, own_only)
        for (cta, offset), _ in places:
            rules.check_bulk(g.grid.memory, address, cta.shared, offset, size, "store")

        def run(address: int = address, size: int = size, places: list[tuple[Place, MBarrier]] = places) -> None:
            (first, offset), _ = places[0]
            first.alive("a bulk copy", issuer)
            boxes.load_bulk(g.grid.memory, address, first.shared, offset, size, issuer)
            for (cta, _), _ in places[1:]:
                cta.alive("a bulk copy", issuer)
                cta.shared.write(offset, first.shared.data[offset : offset + size], issuer)
            for _, notified in places:
                notified.complete(size, "bulk copy", issuer)

        g.cta.machine.queues.load(AsyncOperation(g, issuer, run))


def copy_shared(
    g: ActiveGroup,
    mask: int,
    destination: Operand,
    source: Operand,
    nbytes: Operand,
    barrier: Operand,
    reduction: tuple[str, str] | None,
    issuer: Issuer,
) -> None:
    """cp.async.bulk from this CTA's shared memory to a CTA of the cluster; with a reduction (operation, type),
    cp.reduce.async.bulk.
    """
    kind = LOAD if reduction is None else REDUCTION
    for dst, src, size, mbar in issues(mask, kind, (destination, source, nbytes, barrier)):
        ((target, offset), notified) = _destinations(g, dst, mbar, None, False, False)[0]
        source_offset = own_source(g, src)
        for what, value in (("destination", offset), ("source", source_offset), ("size", size)):
            if value % CHUNK:
                raise Fault(f"cp.async.bulk: {what} {value:#x} is not a multiple of {CHUNK} (PTX ISA, cp.async.bulk)")
        g.cta.shared.check(source_offset, size, "load")
        target.shared.check(offset, size, "store")

        def run(
            target: Cta = target,
            offset: int = offset,
            source_offset: int = source_offset,
            size: int = size,
            notified: MBarrier = notified,
        ) -> None:
            target.alive("a bulk copy", issuer)
            data = g.cta.shared.read(source_offset, size, issuer)
            if reduction is not None:
                operation, type_name = reduction
                data = combined(operation, type_name, target.shared.data[offset : offset + size], data)
            target.shared.write(offset, data, issuer)
            notified.complete(size, "bulk copy", issuer)

        g.cta.machine.queues.load(AsyncOperation(g, issuer, run))


def prefetch_tile(
    g: ActiveGroup, mask: int, tensor_map: Operand, coordinates: tuple[Operand, ...], rows: bool, issuer: Issuer
) -> None:
    """cp.async.bulk.prefetch.tensor: checks the tensor map and the coordinates. The L2 cache is not modelled."""
    for address, *coords in issues(mask, STORE, (tensor_map, *coordinates)):
        rules.check_map(MapReader(g, address, issuer).issued, signed_coordinates(coords), rows)


def prefetch_bulk(g: ActiveGroup, mask: int, source: Operand, nbytes: Operand, issuer: Issuer) -> None:
    """cp.async.bulk.prefetch: checks address and size. The L2 cache is not modelled."""
    for address, size in issues(mask, STORE, (source, nbytes)):
        for what, value in (("global address", address), ("size", size)):
            if value % CHUNK:
                raise Fault(
                    f"cp.async.bulk.prefetch: {what} {value:#x} is not a multiple of {CHUNK} (PTX ISA, "
                    "cp.async.bulk.prefetch)"
                )
        if size:
            g.grid.memory.at(address, size, "load")


def prefetch_map(g: ActiveGroup, mask: int, tensor_map: Operand, issuer: Issuer) -> None:
    """prefetch.tensormap: checks the address only. The tensor map may still be encoded later."""
    for (address,) in issues(mask, STORE, (tensor_map,)):
        if address >> TAG_SHIFT == SHARED_TAG or address % TENSOR_MAP_ALIGNMENT:
            raise Fault(
                f"prefetch.tensormap of {address:#x}: must be a {TENSOR_MAP_ALIGNMENT}-byte aligned address in global, "
                "constant or parameter memory (PTX ISA, prefetch)"
            )
        g.grid.memory.at(address, TENSOR_MAP_BYTES, "load")
