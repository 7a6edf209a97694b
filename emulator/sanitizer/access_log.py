"""What compiled code notes of a warp's accesses to global memory, checked together before the warp's clock changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.sanitizer.clocks import LANES

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
        groups: dict[tuple[int, int], list[int]] = {}  # (mask, second word) -> records
        is_store = 0
        for i, (head, how) in enumerate(records[:, :2].tolist()):
            if how & 1 != is_store:  # the order of loads does not matter, nor that of stores
                self._check(groups, records)
                groups, is_store = {}, how & 1
            groups.setdefault((head & 0xFFFFFFFF, how), []).append(i)
        self._check(groups, records)

    def _check(self, groups: dict[tuple[int, int], list[int]], records: np.ndarray) -> None:
        for (mask, how), members in groups.items():
            found = records[members]
            indices = (found[:, 0] >> np.uint64(32)).tolist()
            kind = "store" if how & 1 else "load"
            self._accesses.noted(self._scene, self._warp, mask, kind, how >> 2, indices, found[:, 2:], bool(how & 2))
