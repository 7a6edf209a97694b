"""atom and red: read-modify-writes by the lanes of a warp, one lane after another (PTX ISA, "atom", "red")."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from nogpu.arithmetic.lanes import UINTS, bits_of, lane_list, row_of, sharers, signed
from nogpu.arithmetic.reductions import combined
from nogpu.errors import Fault
from nogpu.ops.memory import LOCAL_TAG, SHARED_TAG, TAG_SHIFT, load_lanes, memory_of, store_lanes
from nogpu.ptx.types import type_width

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup, Issuer
    from nogpu.ops.active_lanes import Operand

_INTEGER = {
    "add": lambda old, b, c: old + b,
    "min": lambda old, b, c: min(old, b),
    "max": lambda old, b, c: max(old, b),
    "and": lambda old, b, c: old & b,
    "or": lambda old, b, c: old | b,
    "xor": lambda old, b, c: old ^ b,
    "exch": lambda old, b, c: b,
    "cas": lambda old, b, c: c if old == b else old,
    "inc": lambda old, b, c: 0 if old >= b else old + 1,
    "dec": lambda old, b, c: b if old == 0 or old > b else old - 1,
}


Form = tuple[str, str, str]
"""Modifiers of an atomic: state space, operation, type."""


def atomic(
    g: ActiveGroup, mask: int, form: Form, address: Operand, b: np.ndarray, c: np.ndarray | None, issuer: Issuer
) -> np.ndarray:
    """Executes the lanes' operations, lowest lane first. Returns the old values, uint[elements, 32].

    b: uint[elements, 32]. c: uint[elements, 32], the new value of cas; None for every other operation. Each element is
    atomic by itself; the address must be aligned to the whole vector.
    """
    machine, (space, _, type_name) = g.cta.machine, form
    before = machine.progress
    machine.progress += 1
    if isinstance(address, int):
        address = row_of(address, 64)
    if space == "generic":
        _refuse_local(mask, address)
    if type_name.startswith(("f", "bf")):
        old, changes = _floating(g, mask, form, address, b, issuer)
    else:
        old, changes = _integer(g, mask, form, address, b, c, issuer)
    if not changes:
        machine.quiet += machine.progress - before
    events = g.cta.cluster.events
    if events.is_observed and space in ("global", "generic"):
        of_global = mask & bits_of(address >> np.uint64(TAG_SHIFT) == 0)
        events.loaded(g, of_global, address, list(old), old.itemsize, issuer)
    return old


def _refuse_local(mask: int, address: np.ndarray) -> None:
    for lane in lane_list(mask):
        if int(address[lane]) >> TAG_SHIFT == LOCAL_TAG:
            raise Fault(f"atomic at generic address {int(address[lane]):#x} of local memory: must be global or shared")


def modified(operation: str, type_name: str, old: int, b: int, c: int | None = None) -> int:
    """The new value, unsigned, of an integer word that holds `old`."""
    width = type_width(type_name)
    if type_name[0] == "s":
        old, b = signed(old, width), signed(b, width)
    return _INTEGER[operation](old, b, c) & (1 << width) - 1


def _integer(
    g: ActiveGroup, mask: int, form: Form, address: np.ndarray, b: np.ndarray, c: np.ndarray | None, issuer: Issuer
) -> tuple[np.ndarray, bool]:
    """(old values, whether a word has changed)."""
    space, operation, type_name = form
    nbytes = type_width(type_name) // 8
    old_values = np.zeros((1, 32), UINTS[8 * nbytes])
    changes = False
    for part in _sharers(g, mask, address):
        with _running(g, part):
            for lane in lane_list(part):
                place = int(address[lane])
                memory, place = (g.cta.shared, place) if space == "shared" else memory_of(g, space, place)
                (old,) = memory.load_vector(place, nbytes, 1, issuer)
                third = None if c is None else int(c[0, lane])
                new = modified(operation, type_name, old, int(b[0, lane]), third)
                memory.store_vector(place, (new,), nbytes, issuer)
                changes |= new != old
                old_values[0, lane] = old
    return old_values, changes


@contextmanager
def _running(g: ActiveGroup, part: int) -> Iterator[None]:
    """Makes observers attribute the accesses in the block to the lanes of `part`."""
    context = g.warp.registers.context
    mask = context.mask
    context.mask = part
    try:
        yield
    finally:
        context.mask = mask


def _sharers(g: ActiveGroup, mask: int, address: np.ndarray) -> list[int]:
    """Masks of lanes with the same address, if events are observed; else the whole mask."""
    return list(sharers(mask, address).values()) if g.cta.cluster.events.is_observed else [mask]


def _floating(
    g: ActiveGroup, mask: int, form: Form, address: np.ndarray, b: np.ndarray, issuer: Issuer
) -> tuple[np.ndarray, bool]:
    """(old values, whether a word has changed). Lanes whose addresses differ go together; lanes that share an address
    go in turns.
    """
    space, operation, type_name = form
    element = type_name.removesuffix("x2")
    count, nbytes = len(b), b.itemsize
    old_values = np.zeros_like(b)
    changes = False
    for part in _turns(mask, address):
        with _running(g, part):
            old = np.ascontiguousarray(load_lanes(g, part, space, address, nbytes, count, issuer))
            operand = np.ascontiguousarray(b)
            new = _changed(space, operation, element, address, old, operand)
            store_lanes(g, part, space, address, new, issuer)
        lanes = lane_list(part)
        old_values[:, lanes] = old[:, lanes]
        changes |= bool((old != new)[:, lanes].any())
    return old_values, changes


def _changed(
    space: str, operation: str, element: str, address: np.ndarray, old: np.ndarray, b: np.ndarray
) -> np.ndarray:
    """The new values. In shared memory f32 sums keep subnormal numbers, in global memory they flush them (PTX ISA,
    "atom").
    """
    if element != "f32":
        return _combined(operation, element, old, b)
    in_shared = np.array([space != "global"])
    if space == "generic":
        in_shared = address >> np.uint64(TAG_SHIFT) == SHARED_TAG
    if in_shared.all():
        return _combined(operation, "f32", old, b)
    flushed = _combined(operation, "f32.ftz", old, b)
    return np.where(in_shared, _combined(operation, "f32", old, b), flushed) if in_shared.any() else flushed


def _combined(operation: str, type_name: str, old: np.ndarray, b: np.ndarray) -> np.ndarray:
    return combined(operation, type_name, old.view(np.uint8), b.view(np.uint8)).view(b.dtype)


def _turns(mask: int, address: np.ndarray) -> Iterator[int]:
    """Masks of lanes whose addresses differ; the lowest of the lanes that share an address comes first."""
    addresses = address.tolist()
    while mask:
        taken: dict[int, int] = {}
        for lane in lane_list(mask):
            taken.setdefault(addresses[lane], lane)
        part = sum(1 << lane for lane in taken.values())
        yield part
        mask &= ~part
