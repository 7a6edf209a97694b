"""Loads and stores of the lanes of a warp, by state space (PTX ISA, "ld", "st", "discard").

Generic addresses have SHARED_TAG in their top byte if they are in shared memory, LOCAL_TAG if in local memory, and are
in global memory otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nogpu import headers
from nogpu.arithmetic.lanes import UINTS, lane_list, lanes, only
from nogpu.errors import Fault
from nogpu.hardware.local_memory import LocalMemory
from nogpu.hardware.memory import RANK_SHIFT
from nogpu.hardware.words import misaligned
from nogpu.ops.peers import check_started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.memory import GlobalMemory
    from nogpu.hardware.shared_memory import SharedMemory
    from nogpu.hardware.warp import ActiveGroup, Issuer
    from nogpu.ops.active_lanes import Operand

TAG_SHIFT, SHARED_TAG, LOCAL_TAG = headers.constants("native/engine.h", "TAG_SHIFT", "SHARED_TAG", "LOCAL_TAG")
LINE = 128  # bytes of a cache line
_ADDRESS_MASK = (1 << 32) - 1


def shared_target(g: ActiveGroup, address: int) -> tuple[Cta, int]:
    """(CTA, offset in its shared memory) of a 32-bit shared::cluster address or a generic address."""
    if address >> 32:
        if address >> TAG_SHIFT != SHARED_TAG:
            raise Fault(f"generic address {address:#x} is not in shared memory")
        address &= _ADDRESS_MASK
    rank = address >> RANK_SHIFT
    cta = g.cta
    if rank != cta.rank:
        cta = cta.cluster.peer(address)
        check_started(g, cta)
    return cta, address & (1 << RANK_SHIFT) - 1


def memory_of(g: ActiveGroup, space: str, address: int) -> tuple[GlobalMemory | SharedMemory, int]:
    """(memory, address in it) of one address outside of local memory."""
    if space == "shared::cluster":
        return shared_target(g, address)[0].shared, address
    if space == "generic":
        tag = address >> TAG_SHIFT
        if tag == SHARED_TAG:
            address &= _ADDRESS_MASK
            return shared_target(g, address)[0].shared, address
        if tag == LOCAL_TAG:
            raise Fault(f"generic address {address:#x} of local memory used as if it were the same for several lanes")
    return g.grid.memory, address


def load(g: ActiveGroup, space: str, address: int, nbytes: int, count: int, issuer: Issuer) -> tuple[int, ...]:
    """`count` consecutive words of `nbytes` bytes, unsigned, at an address that all active lanes share."""
    if space == "shared":
        return g.cta.shared.load_vector(address, nbytes, count, issuer)
    memory, address = memory_of(g, space, address)
    words = memory.load_vector(address, nbytes, count, issuer)
    if g.cta.cluster.events.is_observed and memory is g.grid.memory:
        g.cta.cluster.events.loaded(g, _lanes_of(g), address, words, nbytes, issuer)
    return words


def store(g: ActiveGroup, space: str, address: int, values: tuple[int, ...], nbytes: int, issuer: Issuer) -> None:
    """Stores consecutive words of `nbytes` bytes at an address that all active lanes share."""
    g.cta.machine.progress += 1
    if space == "shared":
        g.cta.shared.store_vector(address, values, nbytes, issuer)
        return
    memory, address = memory_of(g, space, address)
    memory.store_vector(address, values, nbytes, issuer)


def load_lanes(
    g: ActiveGroup, mask: int, space: str, address: np.ndarray, nbytes: int, count: int, issuer: Issuer
) -> np.ndarray:
    """uint[count, 32]: `count` words of `nbytes` bytes per lane. Lanes outside the mask are undefined."""
    events = g.cta.cluster.events
    if space == "global":
        values = g.grid.memory.gather(address, nbytes, count, only(mask), issuer)
        if events.is_observed:
            events.loaded(g, mask, address, list(values), nbytes, issuer)
        return values
    if space == "shared":
        return g.cta.shared.gather(_narrow(address), nbytes, count, only(mask), issuer)
    if space == "local":
        return g.warp.local.load(mask, address, nbytes, count)
    values = np.zeros((count, 32), UINTS[8 * nbytes])
    for part, target, addresses in _parts(g, mask, space, address):
        if isinstance(target, LocalMemory):
            found = target.load(part, addresses, nbytes, count)
        else:
            found = target.gather(addresses, nbytes, count, lanes(part), issuer)
            if events.is_observed and target is g.grid.memory:
                events.loaded(g, part, addresses, list(found), nbytes, issuer)
        values = np.where(lanes(part), found, values)
    return values


def store_lanes(g: ActiveGroup, mask: int, space: str, address: np.ndarray, values: np.ndarray, issuer: Issuer) -> None:
    """Stores the words of each lane at the lane's own address. values: uint[count, 32]."""
    if space == "local":
        g.warp.local.store(mask, address, values)
        return
    machine, events = g.cta.machine, g.cta.cluster.events
    machine.progress += 1
    if events.is_observed and space in ("global", "shared"):
        events.stored(mask, address, values, issuer)
    if space == "global":
        g.grid.memory.scatter(address, values, only(mask), issuer)
    elif space == "shared":
        g.cta.shared.scatter(_narrow(address), values, only(mask), issuer)
    else:
        private = True
        for part, target, addresses in _parts(g, mask, space, address):
            if isinstance(target, LocalMemory):
                target.store(part, addresses, values)
            else:
                if events.is_observed:
                    events.stored(part, address, values, issuer)
                target.scatter(addresses, values, lanes(part), issuer)
                private = False
        machine.quiet += private


def check_alignment(mask: int, address: Operand, nbytes: int) -> None:
    """Raises Fault unless the active lanes' addresses are multiples of `nbytes`."""
    for place in [address] if isinstance(address, int) else address[lanes(mask)].tolist():
        if place % nbytes:
            raise misaligned("store", place, nbytes)


def check_line(mask: int, address: Operand, nbytes: int, instruction: str) -> list[int]:
    """The active lanes' addresses for an instruction on cache lines. Raises Fault unless they are whole lines."""
    places = [address] if isinstance(address, int) else address[lanes(mask)].tolist()
    for place in places:
        if nbytes != LINE or place % LINE:
            raise Fault(
                f"{instruction} of {nbytes} bytes at {place:#x}: must be {LINE} bytes at a multiple of {LINE} "
                f"(PTX ISA, {instruction})"
            )
    return places


def discard_line(g: ActiveGroup, mask: int, address: Operand, nbytes: int, issuer: Issuer) -> None:
    """discard.L2: the bytes of the lines become undefined, here 0xff."""
    g.cta.machine.progress += 1
    for place in check_line(mask, address, nbytes, "discard"):
        g.grid.memory.write(place, np.full(LINE, 0xFF, np.uint8), issuer, proxy="generic")


def _lanes_of(g: ActiveGroup) -> int:
    return g.warp.registers.context.mask & g.warp.live


def _narrow(address: np.ndarray) -> np.ndarray:
    return address if address.dtype == np.uint32 else address.astype(np.uint32)


def _parts(
    g: ActiveGroup, mask: int, space: str, address: np.ndarray
) -> Iterator[tuple[int, GlobalMemory | SharedMemory | LocalMemory, np.ndarray]]:
    """(mask, memory, addresses) for each memory in which addresses of the active lanes lie."""
    active = lane_list(mask)
    keys = address >> np.asarray(RANK_SHIFT if space == "shared::cluster" else TAG_SHIFT, address.dtype)
    for key in sorted({int(keys[lane]) for lane in active}):
        part = sum(1 << lane for lane in active if keys[lane] == key)
        if space == "generic" and key == SHARED_TAG:
            yield from _parts(g, part, "shared::cluster", address.astype(np.uint32))
        elif space == "generic":
            yield part, (g.warp.local if key == LOCAL_TAG else g.grid.memory), address
        else:
            cta = g.cta.cluster.cta(key, g.cta)
            check_started(g, cta)
            yield part, cta.shared, _narrow(address)
