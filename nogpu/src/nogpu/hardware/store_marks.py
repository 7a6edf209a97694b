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
from nogpu.hardware.native import library

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.memory import Observer
    from nogpu.hardware.warp import Issuer, Warp

# One mark per 16 bytes, the least that the async proxy reads; places in the table of compiled code.
GRAIN_SHIFT, STORES = headers.constants("native/copies.h", "GRAIN_SHIFT", "STORES")
_OFFSET = (1 << 24) - 1  # mask of the offset in a shared address, below the CTA's rank

_NUMBER = 2  # column of the table, which has: warp, instruction's index, mark, time of the last store

MarksState = headers.structure("native/copies.h", "StoreMarks")
"""State of the marks that compiled code shares."""


class StoreMarks:
    """Stores of threads to a CTA's shared memory that no fence has followed, by the bytes that they wrote.

    While there are any, the marks are the memory's observer, which checks the reads of the async proxy. Each
    instruction of a warp has a number, the mark of its stores. Compiled code numbers, marks and forgets stores
    (native/store_marks.c); those whose place in its table others have taken are kept here.
    """

    def __init__(self, cta: Cta):
        self._cluster = cta.cluster
        self._marks = np.zeros((len(cta.shared.data) >> GRAIN_SHIFT) + 1, np.int32)  # by grain; 0: none
        self._table, self._used = np.zeros((STORES, 4), np.int64), np.zeros(STORES, np.int32)
        self._evicted: dict[int, tuple[Issuer, int]] = {}  # by mark: instruction and time of the last store
        self._state = MarksState(
            self._marks.ctypes.data, len(self._marks), self._table.ctypes.data, self._used.ctypes.data
        )
        self.address = ctypes.addressof(self._state)
        """Address of the structure in which compiled code marks stores."""

    @property
    def observer(self) -> Observer | None:
        """Observer of the memory while there are stores."""
        return self._observe if self._state.live else None

    def stored(self, place: int | np.ndarray, issuer: Issuer) -> None:
        """Marks a store of a thread or the lanes of a warp. place: an address or offset, or one per lane."""
        group, index = issuer
        store = self.address, group.warp.registers.context_address, index, group.cta.machine.progress
        number = library().number_of_stores(*store)
        if not number:
            self._evict(group.warp, index)
            number = library().number_of_stores(*store)
        self._marks[(place & _OFFSET) >> GRAIN_SHIFT] = number

    def _evict(self, warp: Warp, index: int) -> None:
        """Makes room for the stores of an instruction of a warp in the table."""
        place = library().stores_place(warp.registers.context_address, index)
        number = int(self._table[place, _NUMBER])
        self._evicted[number] = self._stores(place)
        self._table[place, _NUMBER] = 0
        left = [used for used in self._used[: self._state.count].tolist() if used != place]
        self._used[: len(left)], self._state.count, self._state.evicted = left, len(left), len(self._evicted)

    def _stores(self, place: int) -> tuple[Issuer, int]:
        """The instruction whose stores have a place in the table, and the time of the last."""
        address, index, _, time = self._table[place].tolist()
        warps = (warp for cta in self._cluster.ctas for warp in cta.warps)
        warp = next(warp for warp in warps if warp.registers.context_address == address)
        return (warp.first_group, index), time

    def fence(self, warp: Warp) -> None:
        """Executes fence.proxy.async of a warp: the async proxy may then read the warp's own stores, and all made
        before the event that the warp last waited for.
        """
        self._evicted = {
            number: (issuer, time)
            for number, (issuer, time) in self._evicted.items()
            if issuer[0].warp is not warp and time > warp.synced
        }
        self._state.evicted = len(self._evicted)
        library().fence_stores(self.address, warp.registers.context_address, warp.synced)

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
        for number in set(found.tolist()) - {0} if found.any() else ():
            places = np.flatnonzero(self._table[:, _NUMBER] == number).tolist()
            stores = self._evicted.get(number) or (self._stores(places[0]) if places else None)
            if stores is not None:
                if issuer is None:
                    raise ValueError("a read of the async proxy that is checked needs an issuer")
                self._refuse(int(np.flatnonzero(self._marks == number)[0]) << GRAIN_SHIFT, stores[0], issuer)

    def _refuse(self, offset: int, stores: Issuer, issuer: Issuer) -> None:
        entry = issuer[0].grid.entry
        ordering_fault(
            f"{entry.instructions[issuer[1]].opcode} of {label(issuer)} reads shared offset {offset:#x} through the "
            f"async proxy, which {label(stores)} has stored: fence.proxy.async is missing in between "
            "(PTX ISA, membar/fence)",
            (entry.name, stores[1], issuer[1]),
        )
