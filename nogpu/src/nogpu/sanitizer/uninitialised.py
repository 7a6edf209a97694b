"""Follows uninitialised data: bytes of shared and local memory, words of tensor and global memory, bits of registers.

Loads, copies and products pass them on. They are reported where they count: in a store to global memory, an address, a
branch, and any other effect.

Global memory is followed by its contents: memory from `torch.empty` and the like begins as words UNWRITTEN, and a word
that still has this value has not been written. A copy of such a word is silent: programs copy buffers that they have
filled in part.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nogpu.hardware.memory import UNWRITTEN
from nogpu.hardware.tma import boxes
from nogpu.hardware.tma.swizzle import CHUNK
from nogpu.ptx.ir import Instruction, items_of
from nogpu.sanitizer.cluster_state import running, running_lanes
from nogpu.sanitizer.effects import Effects
from nogpu.sanitizer.origins import INVALID, LocalShadow, Origin, SharedShadow, global_origin, local_origin
from nogpu.sanitizer.registers import ATOMICS, LANES, LOADS, NOTHING, Files, chosen, full
from nogpu.sanitizer.tensors import Tensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nogpu.hardware.async_operations import AsyncOperation
    from nogpu.hardware.cluster import Cluster, Cta
    from nogpu.hardware.tma.modes import Mode
    from nogpu.hardware.tma.tensor_map import TensorMap
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp
    from nogpu.sanitizer.report import Reporter


class Uninitialised:
    """Uninitialised data in the memories and registers of a cluster."""

    def __init__(self, cluster: Cluster, reporter: Reporter) -> None:
        self._entry = cluster.grid.entry
        self._shared = {cta: SharedShadow(cta) for cta in cluster.ctas}
        self._files = files = Files(cluster)
        self._effects, self._tensors = Effects(files, reporter), Tensors(files, self._shared)
        self._moving: tuple[AsyncOperation, np.ndarray, Origin] | None = None  # bytes read by the operation that runs
        self._changed: tuple[Issuer, int] | None = None  # word of an atomic that was invalid before it
        for cta, shadow in self._shared.items():  # Compiled code reads and writes the shadow, too.
            for warp in cta.warps:
                warp.registers.context.unwritten = shadow.data.ctypes.data
                if warp.local.data.size:
                    warp.local.observer = partial(self._local, warp, LocalShadow(len(warp.local.data[0])))

    @property
    def observers(self) -> tuple[Uninitialised, Effects, Tensors]:
        """Parts that handle the cluster's events."""
        return self, self._effects, self._tensors

    # Shared memory

    def accessed(
        self, cta: Cta, kind: str, place: int | np.ndarray, width: int, issuer: Issuer, running: AsyncOperation | None
    ) -> None:
        """Passes on the uninitialised bits that an access to a CTA's shared memory loads or stores."""
        if running is not None and self._entry.instructions[issuer[1]].opcode.startswith("tcgen05."):
            return  # `multiplied` and `copied` follow the operands of the tensor core
        if isinstance(place, np.ndarray):
            place = (place & 0xFFFFFF).astype(np.int64)
        shadow = self._shared[cta]
        if kind == "load":
            invalid = shadow.found(place, width)
            if invalid is not None:
                self._read(shadow, place, width, invalid, issuer, running)
            return
        stored = self._effects.stored.get((issuer[0].warp, issuer[1]))
        if stored is not None:
            invalid = stored.by_place(place, width)
            shadow.write(place, width, invalid)
            shadow.stems_from(place, width, stored.origin)
            if running is None:
                del self._effects.stored[issuer[0].warp, issuer[1]]
        elif running is not None and self._moving is not None and self._moving[0] is running:
            _, invalid, origin = self._moving
            shadow.write(place, width, invalid if invalid.shape[1] == width else 0)
            shadow.stems_from(place, width, origin)
        elif self._changed is None or self._changed != (issuer, place):
            shadow.write(place, width)
        self._changed = None

    def _read(
        self,
        shadow: SharedShadow,
        place: int | np.ndarray,
        width: int,
        invalid: np.ndarray,
        issuer: Issuer,
        running: AsyncOperation | None,
    ) -> None:
        origin = shadow.origin(shadow.first(place, invalid), issuer)
        instruction = self._entry.instructions[issuer[1]]
        base = instruction.opcode.partition(".")[0]
        if running is not None:
            self._moving = running, invalid.copy(), origin
            return
        if base in ATOMICS and isinstance(place, int) and ".exch" not in instruction.opcode:
            self._changed = issuer, place
        if base == "ldmatrix":
            self._load_matrix(instruction, invalid, issuer, origin)
        elif base != "red" and base in (*LOADS, *ATOMICS):
            self._load(instruction, invalid, issuer, origin)

    def _load(self, instruction: Instruction, invalid: np.ndarray, issuer: Issuer, origin: Origin) -> None:
        """Marks bits of registers that lanes load. invalid: uint8[lanes or 1, bytes], invalid bits of these bytes."""
        mask = running_lanes(issuer[0].warp)
        lanes, items = chosen(mask), items_of(instruction.operands[0])
        nbytes = invalid.shape[1] // len(items)
        signed = instruction.opcode.rpartition(".")[2][0] == "s"
        for n, item in enumerate(items):
            part = np.zeros((LANES, 8), np.uint8)
            found = invalid[:, n * nbytes : (n + 1) * nbytes]
            if len(found) == lanes.sum():
                part[lanes, :nbytes] = found
            else:
                part[lanes, :nbytes] = np.bitwise_or.reduce(found, axis=0)
            bits = part.view(np.uint64)[:, 0]
            if signed:
                bits = np.where(part[:, nbytes - 1] != 0, bits | ~full(8 * nbytes), bits)
            self._files.set(issuer[0].warp, item, lanes, bits, origin)

    def _load_matrix(self, instruction: Instruction, rows: np.ndarray, issuer: Issuer, origin: Origin) -> None:
        lanes, items = chosen(running_lanes(issuer[0].warp)), items_of(instruction.operands[0])
        found = np.full((len(items), LANES), 0xFFFFFFFF, np.uint32)
        if instruction.opcode.endswith(".b16") and rows.size == found.nbytes:
            halves = np.ascontiguousarray(rows).view(np.uint16).reshape(-1, 8, 8)
            if ".trans" in instruction.opcode:
                halves = halves.transpose(0, 2, 1)
            found = np.ascontiguousarray(halves).reshape(-1, 64).view(np.uint32)
        for item, bits in zip(items, found, strict=True):
            self._files.set(issuer[0].warp, item, lanes, bits.astype(np.uint64), origin)

    # Local memory

    def _local(self, warp: Warp, shadow: LocalShadow, kind: str, places: list[tuple[int, int]], nbytes: int) -> None:
        """Passes on uninitialised bits that lanes load from local memory or store there."""
        issuer = running(warp)
        if kind == "store":
            stored = self._effects.stored.pop((warp, issuer[1]), None)
            shadow.write(places, nbytes, None if stored is None else stored.invalid)
            if stored is not None:
                shadow.origin = stored.origin
            return
        instruction = self._entry.instructions[issuer[1]]
        if instruction.opcode.startswith("ld."):
            invalid = shadow.found(places, nbytes)
            if invalid is not None:
                self._load(
                    instruction,
                    invalid[chosen(running_lanes(warp))],
                    issuer,
                    shadow.origin or local_origin(warp, issuer),
                )

    # Global memory

    def landed(self, cta: Cta, place: int | np.ndarray, nbytes: int, issuer: Issuer) -> None:
        """Follows a copy from global memory (`Events.landed`)."""
        self._shared[cta].copied(place, nbytes, issuer)

    def loaded(
        self, g: ActiveGroup, mask: int, address: int | np.ndarray, values: Sequence[Any], nbytes: int, issuer: Issuer
    ) -> None:
        """Marks registers that lanes load from global memory, or reports an atomic (`Events.loaded`)."""
        base, lanes = self._entry.instructions[issuer[1]].opcode.partition(".")[0], chosen(mask)
        for n, value in enumerate(values):
            bits = self._unwritten(g, lanes, address, n * nbytes, np.broadcast_to(np.uint64(value), LANES), nbytes)
            if not bits.any():
                continue
            if base in ATOMICS and ".exch" not in self._entry.instructions[issuer[1]].opcode:
                self._effects.report("the word that it changes", issuer, bits != 0, global_origin(issuer), False)
            elif base in (*LOADS, "atom"):
                item = items_of(self._entry.instructions[issuer[1]].operands[0])[n]
                self._files.set(g.warp, item, lanes, bits, global_origin(issuer))

    @staticmethod
    def _unwritten(
        g: ActiveGroup, lanes: np.ndarray, address: int | np.ndarray, offset: int, words: np.ndarray, nbytes: int
    ) -> np.ndarray:
        """uint64[32]: the uninitialised bits of lanes' words."""
        if nbytes >= 4:
            low, high = words & full(32) == UNWRITTEN, words >> np.uint64(32) == UNWRITTEN
            bits = np.where(low, full(32), NOTHING) | np.where(high, full(32) << np.uint64(32), NOTHING)
            return np.where(lanes, bits, NOTHING)
        parts = np.array([UNWRITTEN], np.uint32).view(f"u{nbytes}")
        alike, bits = lanes & np.isin(words, parts), np.zeros(LANES, np.uint64)
        for lane in np.flatnonzero(alike).tolist():
            place = (address if isinstance(address, int) else int(address[lane])) + offset
            allocation = g.grid.memory.holding(place)
            word = allocation.frozen[(place & ~3) - allocation.start :][:4]
            if bytes(word) == UNWRITTEN.to_bytes(4, "little"):
                bits[lane] = full(8 * nbytes)
        return bits

    def stores_tile(
        self, cta: Cta, tensor_map: TensorMap, coords: tuple[int, ...], offset: int, mode: Mode, issuer: Issuer
    ) -> None:
        """Checks the bytes that a tensor store writes (`Events.stores_tile`)."""
        shadow, nbytes = self._shared[cta], boxes.tile_bytes(tensor_map, mode)
        invalid = shadow.found(offset, nbytes)
        if invalid is None:
            return
        invalid = invalid & ~self._copies(cta, offset, nbytes)
        box = SharedShadow(cta)
        box.data[:] = 0
        box.write(offset, nbytes, invalid)
        if boxes.stores_any(tensor_map, coords, box.memory, offset, mode):
            origin = shadow.origin(shadow.first(offset, invalid), issuer)
            self._effects.report("a byte that it stores to global memory", issuer, None, origin, origin.is_global)

    def stores_bulk(self, cta: Cta, offset: int, nbytes: int, kept: int | None, issuer: Issuer) -> None:
        """Checks the bytes that a bulk store writes (`Events.stores_bulk`)."""
        shadow = self._shared[cta]
        invalid = shadow.found(offset, nbytes)
        if invalid is None:
            return
        invalid = invalid & ~self._copies(cta, offset, nbytes)
        if kept is not None:
            invalid = invalid & np.resize([INVALID * (kept >> n & 1) for n in range(CHUNK)], nbytes).astype(np.uint8)
        if invalid.any():
            origin = shadow.origin(shadow.first(offset, invalid), issuer)
            self._effects.report("a byte that it stores to global memory", issuer, None, origin, origin.is_global)

    @staticmethod
    def _copies(cta: Cta, offset: int, nbytes: int) -> np.ndarray:
        """uint8[nbytes]: 0xFF where a word of global memory that nobody has written has been copied unchanged."""
        words = cta.shared.data[offset : offset + nbytes // 4 * 4].view(np.uint32) == UNWRITTEN
        found = np.zeros(nbytes, np.uint8)
        found[: 4 * len(words)] = np.repeat(words, 4) * np.uint8(INVALID)
        return found
