"""Stores to shared memory that the async proxy may not see yet (PTX ISA, "Async proxy", "membar/fence").

Bulk copies and the tensor core (the async proxy) may read bytes that threads have stored (the generic proxy) only after
a fence.proxy.async: of the warp that stored them, or of a warp that has since waited for an event later than the store.
Stores to global memory are not tracked.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from emulator.errors import ordering_fault
from emulator.hardware.barriers import label

if TYPE_CHECKING:
    from emulator.hardware.shared_memory import SharedMemory
    from emulator.hardware.warp import Issuer, Warp

GRAIN_SHIFT = 4  # one mark per 16 bytes, the least that the async proxy reads
_OFFSET = (1 << 24) - 1  # mask of the offset in a shared address, below the CTA's rank
STORES = 256  # instructions of warps that compiled code knows


class _Known(ctypes.Structure):
    """Stores of one instruction of a warp that compiled code marks (native/copies.h, Stores)."""

    _fields_ = [
        ("warp", ctypes.c_void_p),
        ("pc", ctypes.c_int64),
        ("number", ctypes.c_int64),
        ("time", ctypes.c_int64),
    ]


class MarksState(ctypes.Structure):
    """What compiled code knows of marks (native/copies.h, StoreMarks)."""

    _fields_ = [("marks", ctypes.c_void_p), ("stores", _Known * STORES)]


class _Stores:
    """Stores of one instruction of a warp that no fence has followed."""

    __slots__ = ("issuer", "known", "time")

    def __init__(self, issuer: Issuer):
        self.issuer = issuer
        self.time = 0  # of the last one that Python has marked
        self.known: _Known | None = None  # of those that compiled code marks


def _last(stores: _Stores) -> int:
    """Time of the last one."""
    return stores.time if stores.known is None else max(stores.time, stores.known.time)


def _place(warp: int, pc: int) -> int:
    """Where compiled code looks for the stores of an instruction. warp: address of its context."""
    return (warp >> 4 ^ pc * 31) % STORES


class StoreMarks:
    """The stores of threads to a CTA's shared memory that no fence has followed, by the bytes that they wrote.

    While there are any, the marks are the memory's observer, which checks the reads of the async proxy.
    """

    def __init__(self, memory: SharedMemory):
        self._memory = memory
        self._marks = np.zeros((len(memory.data) >> GRAIN_SHIFT) + 1, np.int32)  # 0: none
        self._stores: dict[int, _Stores] = {}  # by mark
        self._numbers: dict[tuple[Warp, int], int] = {}  # (warp, index of the instruction) -> mark
        self._last = 0  # mark given out
        self._state = MarksState(self._marks.ctypes.data)
        self.address = ctypes.addressof(self._state)
        """Of the structure that compiled code marks stores in."""

    def stored(self, place: int | np.ndarray, issuer: Issuer) -> None:
        """A thread or the lanes of a warp store. place: an address or offset, or one per lane."""
        group, index = issuer
        number = self._numbers.get((group.warp, index))
        if number is None:
            number = self._last = self._last + 1
            self._numbers[group.warp, index] = number
            self._stores[number] = _Stores(issuer)
            self._memory.observer = self._observe
        stores = self._stores[number]
        stores.time = group.cta.machine.progress
        self._marks[(place & _OFFSET) >> GRAIN_SHIFT] = number
        if stores.known is None:
            self._make_known(number, stores)

    def _make_known(self, number: int, stores: _Stores) -> None:
        """Compiled code may mark further stores of the instruction. It forgets those whose place they take."""
        group, index = stores.issuer
        warp = group.warp.registers.context_address
        known = self._state.stores[_place(warp, index)]
        self._forget(known)
        known.warp, known.pc, known.number = warp, index, number
        stores.known = known

    def _forget(self, known: _Known) -> None:
        stores = self._stores.get(known.number)
        if stores is not None:
            stores.time, stores.known = max(stores.time, known.time), None
        known.number = known.time = 0

    def fence(self, warp: Warp) -> None:
        """fence.proxy.async of a warp: its own stores may be read, and all made before the event it last waited for."""
        done = [n for n, of in self._stores.items() if of.issuer[0].warp is warp or _last(of) <= warp.synced]
        for number in done:
            if (known := self._stores[number].known) is not None:
                self._forget(known)
            group, index = self._stores.pop(number).issuer
            del self._numbers[group.warp, index]
        if done and not self._stores:
            self._memory.observer = None
            self._marks[:] = 0

    def _observe(
        self,
        kind: str,
        proxy: str,
        place: int | np.ndarray,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        issuer: Issuer | None,
    ) -> None:
        if proxy != "async":
            return
        touched: slice | np.ndarray
        if isinstance(place, np.ndarray):
            touched = (place & _OFFSET) >> GRAIN_SHIFT
        else:
            touched = slice(place >> GRAIN_SHIFT, (place + shape[0] - 1 >> GRAIN_SHIFT) + 1)
        if kind == "store":
            self._marks[touched] = 0
            return
        found = self._marks[touched]
        for number in set(found.tolist()) if found.any() else ():
            stores = self._stores.get(number)
            if stores is not None:
                if issuer is None:
                    raise ValueError("a read of the async proxy that is checked needs an issuer")
                self._refuse(int(np.flatnonzero(self._marks == number)[0]) << GRAIN_SHIFT, stores, issuer)

    def _refuse(self, offset: int, stores: _Stores, issuer: Issuer) -> None:
        entry = issuer[0].grid.entry
        ordering_fault(
            f"{entry.instructions[issuer[1]].opcode} of {label(issuer)} reads shared offset {offset:#x} through the "
            f"async proxy, which {label(stores.issuer)} has stored: fence.proxy.async is missing in between "
            "(PTX ISA, membar/fence)",
            (entry.name, stores.issuer[1], issuer[1]),
        )
