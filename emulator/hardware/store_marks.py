"""Stores to shared memory that the async proxy may not see yet (PTX ISA, "Async proxy", "membar/fence").

Bulk copies and the tensor core (the async proxy) may read bytes that threads have stored (the generic proxy) only after
a fence.proxy.async: of the warp that stored them, or of a warp that has since waited for an event later than the store.
Stores to global memory are not tracked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.errors import ordering_fault
from emulator.hardware.barriers import label

if TYPE_CHECKING:
    from emulator.hardware.shared_memory import SharedMemory
    from emulator.hardware.warp import Issuer, Warp

GRAIN_SHIFT = 4  # one mark per 16 bytes, the least that the async proxy reads
_OFFSET = (1 << 24) - 1  # mask of the offset in a shared address, below the CTA's rank


class _Stores:
    """Stores of one instruction of a warp that no fence has followed."""

    __slots__ = ("time", "issuer")

    def __init__(self, issuer: Issuer):
        self.issuer = issuer
        self.time = 0  # of the last one


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

    def stored(self, place: int | np.ndarray, issuer: Issuer) -> None:
        """A thread or the lanes of a warp store. place: an address or offset, or one per lane."""
        group, index = issuer
        number = self._numbers.get((group.warp, index))
        if number is None:
            number = self._last = self._last + 1
            self._numbers[group.warp, index] = number
            self._stores[number] = _Stores(issuer)
            self._memory.observer = self._observe
        self._stores[number].time = group.cta.machine.progress
        self._marks[(place & _OFFSET) >> GRAIN_SHIFT] = number

    def fence(self, warp: Warp) -> None:
        """fence.proxy.async of a warp: its own stores may be read, and all made before the event it last waited for."""
        done = [n for n, of in self._stores.items() if of.issuer[0].warp is warp or of.time <= warp.synced]
        for number in done:
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
