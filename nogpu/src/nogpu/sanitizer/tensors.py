"""Follows uninitialised bits in tensor memory: loads, stores, copies and products (`TensorValues`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nogpu.hardware.tensor.order import COLUMNS
from nogpu.hardware.tma.swizzle import CHUNK
from nogpu.ptx.ir import items_of
from nogpu.sanitizer.origins import INVALID, SharedShadow, TensorShadow
from nogpu.sanitizer.products import Products
from nogpu.sanitizer.registers import Files, chosen
from nogpu.sanitizer.shadow_tables import is_zero

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.tensor.copy import Copy
    from nogpu.hardware.tensor.core import Mma
    from nogpu.hardware.tensor.tmem import Place, TensorMemory
    from nogpu.hardware.warp import ActiveGroup, Issuer

_PRODUCTS = Products()


class _Shadows(dict["Cta", TensorShadow]):
    """Shadow of each CTA, made when it is first used: many kernels use no tensor memory."""

    def __missing__(self, cta: Cta) -> TensorShadow:
        found = self[cta] = TensorShadow(cta)
        return found


class Tensors:
    """Uninitialised bits in the tensor memories of a cluster. It implements `hardware.tensor.tmem.TensorValues`."""

    def __init__(self, files: Files, shared: dict[Cta, SharedShadow]) -> None:
        self._files, self._entry, self._shared = files, files.entry, shared
        self._tensor = _Shadows()
        self._of_tmem = {cta.tmem: cta for cta in shared}
        # Operations of the tensor core that have made nothing invalid, with the versions of the shadows at that time.
        self._clean: dict[tuple[int, Cta], tuple[object, tuple[int, ...]]] = {}
        for cta in shared:
            cta.tmem.values = self

    def fragment(self, g: ActiveGroup, issuer: Issuer, place: Place, stores: bool) -> None:
        """Handler of `Events.fragment`: copies uninitialised bits between registers and tensor memory."""
        shadow, registers = self._tensor[g.cta], self._files.by_warp[g.warp]
        instruction, column = self._entry.instructions[issuer[1]], place[0] % COLUMNS
        if not stores:
            values = shadow.memory.read(place)
            if not is_zero(values):
                origin = shadow.origin(column, issuer)
                for item, bits in zip(items_of(instruction.operands[0]), values, strict=False):
                    self._files.set(g.warp, item, chosen(g.warp.live), bits.astype(np.uint64), origin)
                if instruction.opcode.startswith("tcgen05.ld.red"):
                    of_any = np.bitwise_or.reduce(values).astype(np.uint64)
                    self._files.set(g.warp, instruction.operands[1], chosen(g.warp.live), of_any, origin)
            return
        items = items_of(instruction.operands[1])
        values = np.array([registers.bits(item) for item in items], np.uint32)
        shadow.memory.write(place, values)
        shadow.version += place[1][2]  # .unpack::16b leaves the high halves open
        tainted = next((item for item in items if registers.bits(item).any()), None)
        if tainted is not None:
            shadow.stems_from(range(column, column + 2 * len(items)), registers.origin(tainted.name))

    def poisoned(self, tmem: TensorMemory, base: int, columns: int) -> None:
        """Marks columns as uninitialised at their allocation (`TensorValues.poisoned`)."""
        self._tensor[self._of_tmem[tmem]].allocated(base, columns)

    def multiplied(self, mma: Mma, memories: Sequence[TensorMemory], issuer: Issuer) -> None:
        """Follows a product (`TensorValues.multiplied`)."""
        ctas = [self._of_tmem[tmem] for tmem in memories]
        if self._is_known_clean(mma, ctas):
            return
        shadows = [(self._shared[cta].memory, self._tensor[cta].memory) for cta in ctas]
        invalid = _PRODUCTS.invalid_operand(mma, shadows)
        if invalid is None and mma.accumulate:
            self._note_clean(mma, ctas)
            return
        if _PRODUCTS.multiply(mma, shadows, invalid is None, memories) and invalid is not None:
            number, kind, at = invalid
            cta = ctas[number]
            origin = self._shared[cta].origin(at, issuer) if kind == "shared" else self._tensor[cta].origin(at, issuer)
            for cta in ctas:
                self._tensor[cta].stems_from(range(mma.column, mma.column + mma.op.columns), origin)
        elif not mma.shifts_a:
            self._note_clean(mma, ctas)
        for cta in ctas:
            mma.shift_rows(self._tensor[cta].words)

    def _is_known_clean(self, operation: Mma | Copy, ctas: list[Cta]) -> bool:
        """True if an operation has made nothing invalid before, and nothing has become invalid since."""
        known = self._clean.get((id(operation), ctas[0]))
        return known is not None and known[1] == self._versions(ctas)

    def _note_clean(self, operation: Mma | Copy, ctas: list[Cta]) -> None:
        self._clean[id(operation), ctas[0]] = operation, self._versions(ctas)

    def _versions(self, ctas: list[Cta]) -> tuple[int, ...]:
        versions: tuple[int, ...] = ()
        for cta in ctas:
            versions += self._shared[cta].version, self._tensor[cta].version
        return versions

    def copied(self, copy: Copy, tmem: TensorMemory, issuer: Issuer) -> None:
        """Follows a copy to tensor memory (`TensorValues.copied`)."""
        cta = self._of_tmem[tmem]
        if self._is_known_clean(copy, [cta]):
            return
        shared, tensor = self._shared[cta], self._tensor[cta]
        places = copy.chunks.places
        rows = shared.chunks(places)
        if not is_zero(rows):
            first = np.argwhere(rows.reshape(-1, CHUNK))[0].tolist()
            offset = int(places.ravel()[first[0]]) * CHUNK + first[1]
            tensor.stems_from(range(copy.column, copy.column + copy.width), shared.origin(offset, issuer))
            if copy.bits:
                rows = np.where(rows.any(axis=-1, keepdims=True), np.uint8(INVALID), np.uint8(0)) + np.zeros_like(rows)
        data = np.ascontiguousarray(rows).reshape(*places.shape[:-1], -1)
        copy.distribute(data.view(np.uint32), tensor.words)
        if is_zero(data):
            self._note_clean(copy, [cta])
