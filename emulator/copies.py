"""What bulk and tensor copies, their groups and tensor map edits do when a warp issues them (PTX ISA, "Asynchronous
copy").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from emulator import tensormap, tma
from emulator.access import SHARED_TAG, TAG_SHIFT, pick, shared_target, whole_warp
from emulator.errors import Fault
from emulator.jobs import Job
from emulator.lanes import lane_list
from emulator.synchronization import barrier_at
from emulator.tensormap import TensorMap

if TYPE_CHECKING:
    from emulator.cluster import Cta
    from emulator.warp import Group

TENSOR_MAP_BYTES = 128
TENSOR_MAP_ALIGNMENT = 64


def _issues(mask: int, once: bool, *operands) -> list[tuple]:
    """The operands of each copy that the active lanes issue.

    once: equal operands in several lanes are one copy (a store, which the DSL issues from whole warps and the
    hardware executes once per warp); otherwise they are an error, because every lane's bytes would be counted on the
    barrier.
    """
    flat = [item for operand in operands for item in (operand if isinstance(operand, tuple) else (operand,))]
    if not mask & (mask - 1):
        lane = mask.bit_length() - 1
        return [tuple(_at(operand, lane) for operand in operands)]
    if not any(isinstance(item, np.ndarray) for item in flat):
        distinct = [operands]
    else:
        distinct = list(dict.fromkeys(tuple(_at(operand, lane) for operand in operands) for lane in lane_list(mask)))
    if not once and len(distinct) < mask.bit_count():
        raise Fault(f"{mask.bit_count()} lanes ({mask:#010x}) issue the same copy; one lane must be elected")
    return distinct


def _at(operand, lane: int):
    if isinstance(operand, tuple):
        return tuple(_at(item, lane) for item in operand)
    return int(operand[lane]) if isinstance(operand, np.ndarray) else operand


def _signed(coordinates: tuple) -> tuple[int, ...]:
    return tuple((c & 0xFFFFFFFF ^ 0x80000000) - 0x80000000 for c in coordinates)


def _tensor_map(g: Group, address: int, who) -> TensorMap:
    if address >> TAG_SHIFT == SHARED_TAG:
        raise Fault(
            "a tensor map in shared memory can't be used by a copy: it must be in global, constant or parameter memory"
        )
    if address % TENSOR_MAP_ALIGNMENT:
        raise Fault(f"tensor map at {address:#x}: must be {TENSOR_MAP_ALIGNMENT}-byte aligned")
    return TensorMap.decode(g.grid.memory.read(address, TENSOR_MAP_BYTES, who, proxy="tensormap"))


class _MapReader:
    """Reads a tensor map when the copy does, or earlier when the issuing thread has waited for it."""

    def __init__(self, g: Group, address: int, who):
        self.arguments = (g, address, who)
        self.tensor_map: TensorMap | None = None

    def __call__(self) -> TensorMap:
        if self.tensor_map is None:
            self.tensor_map = _tensor_map(*self.arguments)
        return self.tensor_map


def _destinations(g: Group, destination: int, barrier: int, multicast: int | None, pair: bool, own_only: bool):
    """((CTA, offset), mbarrier) for each CTA that receives the copy (PTX ISA, "cp.async.bulk.tensor", .multicast,
    .cta_group).
    """
    target, offset = shared_target(g, destination)
    signalled, barrier_offset = shared_target(g, barrier)
    if multicast is None:
        if own_only and target is not g.cta:
            raise Fault(f".shared::cta destination {destination:#x} is in CTA rank {target.rank}")
        # .cta_group::2 allows the barrier to be in the peer CTA of the pair; without it both are in one CTA.
        if signalled is not target and not (pair and signalled.rank ^ target.rank == 1):
            raise Fault(f"the barrier is in CTA rank {signalled.rank}, the destination in rank {target.rank}")
        return [((target, offset), barrier_at(g, None, barrier))]
    if multicast >> g.cta.cluster.size or not multicast:
        raise Fault(f"multicast mask {multicast:#06x} for a cluster of {g.cta.cluster.size} CTAs")
    found = []
    for rank in lane_list(multicast):
        receiver = g.cta.cluster.cta(rank, g.cta)
        notified = (rank & ~1) | (signalled.rank & 1) if pair else rank
        found.append(((receiver, offset), g.cta.cluster.cta(notified, g.cta).mbarrier(barrier_offset)))
    return found


def load_tile(
    g: Group, mask: int, destination, tensor_map, coordinates, barrier, multicast, pair, own_only: bool, who
) -> None:
    """cp.async.bulk.tensor from global to shared memory."""
    for dst, address, coords, mbar, targets in _issues(
        mask, False, destination, tensor_map, coordinates, barrier, multicast
    ):
        places = _destinations(g, dst, mbar, targets, pair, own_only)
        reader = _MapReader(g, address, who)
        job = Job(g.grid, g.issuer(who), _tile_load(g, reader, _signed(coords), places, who), reader)
        if not g.grid.is_parameter(address):
            g.warp.map_reads.append((mask, job))
        g.cta.machine.queues.load(job)


def _tile_load(g: Group, reader: _MapReader, coords: tuple[int, ...], places, who):
    def run() -> None:
        tensor_map = reader()
        nbytes = tensor_map.box_bytes
        (first, offset), _ = places[0]
        first.alive("a tensor copy")
        tma.load_tile(tensor_map, coords, g.grid.memory, first.shared, offset, who)
        for (cta, _), _ in places[1:]:
            cta.alive("a tensor copy")
            cta.shared.write(offset, first.shared.data[offset : offset + nbytes], who)
        for _, barrier in places:
            barrier.complete(nbytes, "tensor copy", who)

    return run


def load_bulk(g: Group, mask: int, destination, source, nbytes, barrier, multicast, own_only: bool, who) -> None:
    """cp.async.bulk from global to shared memory."""
    for dst, address, size, mbar, targets in _issues(mask, False, destination, source, nbytes, barrier, multicast):
        places = _destinations(g, dst, mbar, targets, False, own_only)

        def run(address=address, size=size, places=places) -> None:
            (first, offset), _ = places[0]
            first.alive("a bulk copy")
            tma.load_bulk(g.grid.memory, address, first.shared, offset, size, who)
            for (cta, _), _ in places[1:]:
                cta.alive("a bulk copy")
                cta.shared.write(offset, first.shared.data[offset : offset + size], who)
            for _, notified in places:
                notified.complete(size, "bulk copy", who)

        g.cta.machine.queues.load(Job(g.grid, g.issuer(who), run))


def copy_shared(g: Group, mask: int, destination, source, nbytes, barrier, who) -> None:
    """cp.async.bulk from this CTA's shared memory to a CTA of the cluster."""
    for dst, src, size, mbar in _issues(mask, False, destination, source, nbytes, barrier):
        ((target, offset), notified) = _destinations(g, dst, mbar, None, False, False)[0]
        origin, source_offset = shared_target(g, src)
        if origin is not g.cta:
            raise Fault(f".shared::cta source {src:#x} is in CTA rank {origin.rank}")
        for what, value in (("destination", offset), ("source", source_offset), ("size", size)):
            if value % 16:
                raise Fault(f"cp.async.bulk: {what} {value:#x} is not a multiple of 16 (PTX ISA, cp.async.bulk)")

        def run(target=target, offset=offset, source_offset=source_offset, size=size, notified=notified) -> None:
            target.alive("a bulk copy")
            target.shared.write(offset, g.cta.shared.read(source_offset, size, who), who)
            notified.complete(size, "bulk copy", who)

        g.cta.machine.queues.load(Job(g.grid, g.issuer(who), run))


class _Store:
    """A store in its two parts: it reads shared memory, which may be waited for, and writes global memory."""

    def __init__(self, cta: Cta, what: str, read: Callable, write: Callable):
        self.cta, self.what, self._read, self._write = cta, what, read, write
        self.data: np.ndarray | None = None

    def read(self) -> None:
        if self.data is None:
            self.cta.alive(self.what)
            self.data = self._read()

    def __call__(self) -> None:
        self.read()
        self._write(self.data)


def _submit_store(g: Group, mask: int, store: _Store, who) -> None:
    job = Job(g.grid, g.issuer(who), store, store.read)
    g.warp.bulk_open.append((mask, job))
    g.cta.machine.queues.store(job)


def store_tile(g: Group, mask: int, tensor_map, coordinates, source, who) -> None:
    """cp.async.bulk.tensor from shared to global memory."""
    for address, coords, src in _issues(mask, True, tensor_map, coordinates, source):
        cta, offset = shared_target(g, src)
        if cta is not g.cta:
            raise Fault(f".shared::cta source {src:#x} is in CTA rank {cta.rank}")
        reader, place = _MapReader(g, address, who), _signed(coords)

        def read(reader=reader, place=place, shared=cta.shared, offset=offset) -> np.ndarray:
            return tma.read_tile(reader(), place, shared, offset, who)

        def write(box: np.ndarray, reader=reader, place=place) -> None:
            tma.write_tile(reader(), place, g.grid.memory, box, who)

        _submit_store(g, mask, _Store(cta, "a tensor store", read, write), who)


def store_bulk(g: Group, mask: int, destination, source, nbytes, who) -> None:
    """cp.async.bulk from shared to global memory."""
    for address, src, size in _issues(mask, True, destination, source, nbytes):
        cta, offset = shared_target(g, src)
        if cta is not g.cta:
            raise Fault(f".shared::cta source {src:#x} is in CTA rank {cta.rank}")

        def read(address=address, shared=cta.shared, offset=offset, size=size) -> np.ndarray:
            return tma.read_bulk(address, shared, offset, size, who)

        def write(data: np.ndarray, address=address) -> None:
            tma.write_bulk(g.grid.memory, address, data, who)

        _submit_store(g, mask, _Store(cta, "a bulk store", read, write), who)


def commit_group(g: Group, mask: int, who) -> None:
    """cp.async.bulk.commit_group: each lane's stores since its last one form a group of that lane."""
    jobs = [(lanes, job) for lanes, job in g.warp.bulk_open if lanes & mask]
    g.warp.bulk_open = [(lanes, job) for lanes, job in g.warp.bulk_open if not lanes & mask]
    g.warp.bulk_groups.append((mask, jobs))


def wait_group(g: Group, mask: int, newest: int, read_only: bool, who) -> None:
    """cp.async.bulk.wait_group{.read}: all but each lane's `newest` groups are done, or have read their sources.

    Tensor maps of the lanes' earlier loads have been read, too (PTX ISA, "cp.async.bulk.wait_group").
    """
    queues, groups = g.cta.machine.queues, g.warp.bulk_groups
    for lane in lane_list(mask):
        own = [jobs for lanes, jobs in groups if lanes >> lane & 1]
        due = [job for jobs in own[: max(0, len(own) - newest)] for lanes, job in jobs if lanes >> lane & 1]
        if read_only:
            queues.prepare(due)
        else:
            queues.force(due)
    while groups and all(job.done for _, job in groups[0][1]):
        del groups[0]
    queues.prepare([job for lanes, job in g.warp.map_reads if lanes & mask])
    g.warp.map_reads = [(lanes, job) for lanes, job in g.warp.map_reads if not lanes & mask]


def replace_field(g: Group, mask: int, space: str, field: str, address, ordinal: int | None, value, who) -> None:
    """tensormap.replace.tile of a tensor map in shared or global memory."""
    address, value = pick(address, mask), pick(value, mask)
    if space.startswith("shared"):
        cta, offset = shared_target(g, address)
        raw = np.array(cta.shared.read(offset, TENSOR_MAP_BYTES, who, proxy="generic"))
        tensormap.edit(raw, field, ordinal, value)
        cta.shared.write(offset, raw, who, proxy="generic")
    else:
        raw = np.array(g.grid.memory.read(address, TENSOR_MAP_BYTES, who, proxy="generic"))
        tensormap.edit(raw, field, ordinal, value)
        g.grid.memory.write(address, raw, who, proxy="generic")


def publish_tensor_map(g: Group, mask: int, destination, source, nbytes: int, who) -> None:
    """tensormap.cp_fenceproxy: the whole warp copies one tensor map from shared to global memory."""
    whole_warp(g, mask, "tensormap.cp_fenceproxy")
    if nbytes != TENSOR_MAP_BYTES:
        raise Fault(f"tensormap.cp_fenceproxy of {nbytes} bytes: must be {TENSOR_MAP_BYTES}")
    cta, offset = shared_target(g, pick(source, mask))
    g.cta.machine.progress += 1
    data = cta.shared.read(offset, TENSOR_MAP_BYTES, who, proxy="generic")
    g.grid.memory.write(pick(destination, mask), data, who, proxy="generic")
