"""Stores to shared memory that the async proxy may not see yet (PTX ISA, "Async proxy", "membar/fence").

Bulk copies and the tensor core (the async proxy) may read bytes that threads have stored (the generic proxy) only after
a fence.proxy.async: of the warp that stored them, or of a warp that has since waited for an event later than the store.
Stores to global memory are not tracked.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from nogpu import headers
from nogpu.errors import ordering_fault
from nogpu.hardware.barriers import label

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.warp import Issuer, Warp

# One mark per 16 bytes, the least that the async proxy reads; number of instructions in the table of compiled code.
GRAIN_SHIFT, STORES = headers.constants("native/copies.h", "GRAIN_SHIFT", "STORES")
_OFFSET = (1 << 24) - 1  # mask of the offset in a shared address, below the CTA's rank


_NUMBER, _TIME = 2, 3  # columns of the table of stores: warp, instruction's index, mark, time of the last


@headers.mirrors("native/copies.h", "StoreMarks")
class MarksState(ctypes.Structure):
    """State of the marks that compiled code shares."""


class _Stores:
    """Stores of one instruction of a warp that no fence has followed."""

    __slots__ = ("issuer", "place", "time")

    def __init__(self, issuer: Issuer, place: int | None = None):
        self.issuer = issuer
        self.place = place  # index in the table, if compiled code marks further ones
        self.time = 0  # time of the last store that Python has marked


def _place(warp: int, pc: int) -> int:
    """Index in the table of the stores of an instruction. warp: address of its context."""
    return (warp >> 4 ^ pc * 31) % STORES


class StoreMarks:
    """Stores of threads to a CTA's shared memory that no fence has followed, by the bytes that they wrote.

    While there are any, the marks are the memory's observer, which checks the reads of the async proxy. Compiled code
    marks stores, too, once there are some, and numbers those of further instructions.
    """

    def __init__(self, cta: Cta):
        self._cluster, self._memory = cta.cluster, cta.shared
        self._marks = np.zeros((len(self._memory.data) >> GRAIN_SHIFT) + 1, np.int32)  # by grain; 0: none
        self._stores: dict[int, _Stores] = {}  # by mark
        self._numbers: dict[tuple[Warp, int], int] = {}  # (warp, index of the instruction) -> mark
        self._table = np.zeros((STORES, 4), np.int64)
        self._heard = 0  # marks up to this one are in the dictionaries, unless a fence has followed
        self._state = MarksState(self._marks.ctypes.data, self._table.ctypes.data)
        self.address = ctypes.addressof(self._state)
        """Address of the structure in which compiled code marks stores."""

    def stored(self, place: int | np.ndarray, issuer: Issuer) -> None:
        """Marks a store of a thread or the lanes of a warp. place: an address or offset, or one per lane."""
        self._hear()
        group, index = issuer
        number = self._numbers.get((group.warp, index))
        if number is None:
            number = self._heard = self._state.last = self._state.last + 1
            self._add(number, _Stores(issuer))
            self._state.live = True
            self._memory.observer = self._observe
        stores = self._stores[number]
        stores.time = group.cta.machine.progress
        self._marks[(place & _OFFSET) >> GRAIN_SHIFT] = number
        if stores.place is None:
            self._put(number, stores)

    def _add(self, number: int, stores: _Stores) -> None:
        group, index = stores.issuer
        self._stores[number], self._numbers[group.warp, index] = stores, number

    def _hear(self) -> None:
        """Adds the stores that compiled code has numbered."""
        if self._state.last == self._heard:
            return
        warps = {warp.registers.context_address: warp for cta in self._cluster.ctas for warp in cta.warps}
        for place in np.flatnonzero(self._table[:, _NUMBER] > self._heard).tolist():
            address, index, number, _ = self._table[place].tolist()
            self._add(number, _Stores((warps[address].first_group, index), place))
        self._heard = self._state.last

    def _put(self, number: int, stores: _Stores) -> None:
        """Lets compiled code mark further stores of the instruction. Stores that had its place are left to Python."""
        group, index = stores.issuer
        warp = group.warp.registers.context_address
        place = _place(warp, index)
        earlier = self._stores.get(int(self._table[place, _NUMBER]))
        if earlier is not None:
            earlier.time, earlier.place = self._last(earlier), None
        self._table[place] = warp, index, number, stores.time
        stores.place = place

    def _last(self, stores: _Stores) -> int:
        """Time of the last store."""
        return stores.time if stores.place is None else max(stores.time, int(self._table[stores.place, _TIME]))

    def fence(self, warp: Warp) -> None:
        """Executes fence.proxy.async of a warp: the async proxy may then read the warp's own stores, and all made
        before the event that the warp last waited for.
        """
        self._hear()
        done = [n for n, of in self._stores.items() if of.issuer[0].warp is warp or self._last(of) <= warp.synced]
        for number in done:
            stores = self._stores.pop(number)
            group, index = stores.issuer
            # Compiled code gives an instruction a second number if others have had its place meanwhile.
            if self._numbers.get((group.warp, index)) == number:
                del self._numbers[group.warp, index]
            if stores.place is not None:
                self._table[stores.place] = 0
        if done and not self._stores:
            self._state.live = False
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
        self._hear()
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
