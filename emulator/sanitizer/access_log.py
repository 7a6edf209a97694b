"""What compiled code notes of a warp's accesses to global memory, checked together before the warp's clock changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.sanitizer.clocks import FULL, LANES

if TYPE_CHECKING:
    from emulator.hardware.warp import Warp
    from emulator.sanitizer.global_accesses import GlobalAccesses
    from emulator.sanitizer.scene import Scene

ROOM = 64  # accesses
_HEAD, _RECORD = 2, 2 + LANES  # words (native/engine.h, AccessLog)


class AccessLog:
    """Of one warp."""

    def __init__(self, scene: Scene, warp: Warp, accesses: GlobalAccesses) -> None:
        self._scene, self._warp, self._accesses = scene, warp, accesses
        self._words = np.zeros(_HEAD + ROOM * _RECORD, np.uint64)
        self._words[1] = ROOM
        self._head = self._words.data
        self._records = self._words[_HEAD:].reshape(ROOM, _RECORD)
        warp.registers.context.log = self._words.ctypes.data
        accesses.logs.append(self)

    def end(self) -> None:
        """The warp has exited."""
        self.settle()
        self._accesses.logs.remove(self)

    def settle(self) -> None:
        """Checks and records what has been noted."""
        count = self._head[0]
        if not count:
            return
        self._head[0] = 0
        records = self._records[:count]
        heads = records[:, :2].tolist()
        head, how = heads[0]
        if all(as_first == how and not (each ^ head) & FULL for each, as_first in heads):
            self._note(head & FULL, how, [each >> 32 for each, _ in heads], records[:, 2:].copy())
            return
        groups: dict[tuple[int, int], list[int]] = {}  # (mask, second word) -> records
        is_store = 0
        for i, (head, how) in enumerate(heads):
            if how & 1 != is_store:  # the order of loads does not matter, nor that of stores
                self._check(groups, heads)
                groups, is_store = {}, how & 1
            groups.setdefault((head & FULL, how), []).append(i)
        self._check(groups, heads)

    def _check(self, groups: dict[tuple[int, int], list[int]], heads: list[list[int]]) -> None:
        for (mask, how), members in groups.items():
            self._note(mask, how, [heads[i][0] >> 32 for i in members], self._records[members, 2:])

    def _note(self, mask: int, how: int, indices: list[int], addresses: np.ndarray) -> None:
        """Accesses of one mask and of one kind. how: second word of their records."""
        kind = "store" if how & 1 else "load"
        self._accesses.noted(self._scene, self._warp, mask, kind, how >> 2, indices, addresses, bool(how & 2))
