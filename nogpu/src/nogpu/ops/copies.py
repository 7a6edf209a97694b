"""Bulk and tensor copies to shared memory (PTX ISA, "Asynchronous copy").

The operands are checked when a warp issues the copy. The schedule decides when the copy happens; whatever may have
changed by then is checked then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from nogpu.arithmetic.reductions import combined
from nogpu.errors import Fault, is_lenient
from nogpu.hardware import tile_loads
from nogpu.hardware.async_operations import AsyncOperation
from nogpu.hardware.mbarriers import TILE_LOAD
from nogpu.hardware.tma import boxes, rules
from nogpu.hardware.tma.swizzle import CHUNK
from nogpu.hardware.tma.tensor_map import TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES, TensorMap
from nogpu.ops.copy_operands import (
    LOAD,
    REDUCTION,
    STORE,
    Awaited,
    Destination,
    MapReader,
    destinations,
    issues,
    lands_later,
    own_source,
    signed_coordinates,
)
from nogpu.ops.memory import SHARED_TAG, TAG_SHIFT

if TYPE_CHECKING:
    from collections.abc import Callable

    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.mbarriers import MBarrier
    from nogpu.hardware.tile_loads import Load
    from nogpu.hardware.tma.modes import Mode
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp
    from nogpu.ops.active_lanes import Operand, Operands


def load_tile(
    g: ActiveGroup, mask: int, operands: Operands, pair: bool, own_only: bool, mode: Mode, issuer: Issuer
) -> None:
    """Issues cp.async.bulk.tensor from global to shared memory.

    operands: destination, tensor map, mbarrier, multicast mask, coordinates and im2col offsets. pair, own_only: as for
    `destinations`.
    """
    for dst, address, mbar, targets, *coords in issues(mask, LOAD, operands):
        places = destinations(g, dst, mbar, targets, pair, own_only)
        reader, place = MapReader(g, address, issuer), signed_coordinates(coords)
        for (cta, offset), _ in places:
            rules.check_tile(reader.issued, place, cta.shared, offset, "store", mode)
        load = _tile_load(g, reader, place, places, mode, issuer)
        async_op = AsyncOperation(g, issuer, load, reader.prepare, lands_later(places))
        if is_lenient() and not g.grid.is_parameter(address):
            g.cta.machine.queues.prepare([async_op])
        if not g.grid.is_parameter(address):
            g.warp.map_reads.append((mask, async_op))
        elif targets is None and mode == "tile":
            own = tile_loads.Operands(dst, address, mbar)
            _let_repeat(g, own, reader.issued, places[0])
        g.cta.machine.queues.load(async_op)


def _let_repeat(g: ActiveGroup, operands: tile_loads.Operands, tensor_map: TensorMap, place: Destination) -> None:
    """Lets compiled code issue and execute this tile load the next time, if it can."""
    ((cta, offset), barrier), machine, memory = place, g.cta.machine, g.grid.memory
    loads = None if g.grid.observers else machine.repeated_loads()
    if loads is None or isinstance(barrier, Awaited) or barrier.home is None:
        return
    marks = memory.counted("load", tensor_map.address)
    if marks is not None and tensor_map.tile is not None and cta is g.cta:
        loads.learn(operands, cta.rank, offset, tensor_map, marks, barrier)


def pending_load(load: Load, warp: Warp) -> AsyncOperation:
    """A tile load that compiled code has issued for a warp and can't execute."""
    g, route = warp.first_group, load.route
    issuer = g, load.pc

    def run() -> None:
        g.cta.alive("a tensor copy", issuer)
        home = g.cta.cluster.ctas[route.home]
        barrier = cast("MBarrier", home.shared.live_barriers.by_address[load.target])
        places: list[Destination] = [((g.cta, route.offset), barrier)]
        _tile_load(g, MapReader(g, route.map, issuer), tuple(load.at[: route.rank]), places, "tile", issuer)()

    async_op = AsyncOperation(g, issuer, run)
    async_op.known = load.known
    return async_op


def _tile_load(
    g: ActiveGroup, reader: MapReader, coords: tuple[int, ...], places: list[Destination], mode: Mode, issuer: Issuer
) -> Callable[[], None]:
    def run() -> None:
        tensor_map = reader()
        nbytes, counted = rules.tile_bytes(tensor_map, mode), rules.counted_bytes(tensor_map, mode)
        (first, offset), _ = places[0]
        first.alive("a tensor copy", issuer)
        boxes.load_tile(tensor_map, coords, g.grid.memory, first.shared, offset, issuer, mode)
        _spread(places, nbytes, "a tensor copy", issuer)
        for _, barrier in places:
            barrier.complete(counted, TILE_LOAD, issuer)

    return run


def _spread(places: list[Destination], nbytes: int, what: str, issuer: Issuer) -> None:
    """Copies the bytes that have landed in the first place to the others."""
    (first, start), _ = places[0]
    for (cta, _), _ in places[1:]:
        cta.alive(what, issuer)
        cta.shared.write(start, first.shared.data[start : start + nbytes], issuer)
    for (cta, offset), _ in places:
        cta.cluster.events.landed(cta, offset, nbytes, issuer)


def load_bulk(g: ActiveGroup, mask: int, operands: Operands, own_only: bool, issuer: Issuer) -> None:
    """Issues cp.async.bulk from global memory.

    operands: destination, source, bytes, mbarrier, multicast mask, bytes ignored at the start and at the end.
    """
    for dst, address, size, mbar, targets, *ignored in issues(mask, LOAD, operands):
        places = destinations(g, dst, mbar, targets, False, own_only)
        for (cta, offset), _ in places:
            rules.check_bulk(g.grid.memory, address, cta.shared, offset, size, "store", ignored)

        def run(
            address: int = address, size: int = size, ignored: list[int] = ignored, places: list[Destination] = places
        ) -> None:
            (first, offset), _ = places[0]
            first.alive("a bulk copy", issuer)
            boxes.load_bulk(g.grid.memory, address, first.shared, offset, size, issuer, ignored)
            _spread(places, size, "a bulk copy", issuer)
            for _, notified in places:
                notified.complete(size, "bulk copy", issuer)

        g.cta.machine.queues.load(AsyncOperation(g, issuer, run, waits=lands_later(places)))


def copy_shared(
    g: ActiveGroup, mask: int, operands: Operands, reduction: tuple[str, str] | None, issuer: Issuer
) -> None:
    """Issues cp.async.bulk from this CTA's shared memory to a CTA of the cluster; with a reduction (operation, type),
    cp.reduce.async.bulk. operands: destination, source, bytes, mbarrier.
    """
    for dst, src, size, mbar in issues(mask, LOAD if reduction is None else REDUCTION, operands):
        ((target, offset), notified) = destinations(g, dst, mbar, None, False, False)[0]
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
            notified: MBarrier | Awaited = notified,
        ) -> None:
            target.alive("a bulk copy", issuer)
            data = g.cta.shared.read(source_offset, size, issuer)
            if reduction is not None:
                operation, type_name = reduction
                data = combined(operation, type_name, target.shared.data[offset : offset + size], data)
            target.shared.write(offset, data, issuer)
            notified.complete(size, "bulk copy", issuer)

        g.cta.machine.queues.load(AsyncOperation(g, issuer, run))


def prefetch_tile(g: ActiveGroup, mask: int, operands: Operands, mode: Mode, issuer: Issuer) -> None:
    """cp.async.bulk.prefetch.tensor: checks the tensor map and the coordinates. The L2 cache is not modelled.

    operands: tensor map, coordinates and im2col offsets.
    """
    for address, *coords in issues(mask, STORE, operands):
        rules.check_map(MapReader(g, address, issuer).issued, signed_coordinates(coords), mode)


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
