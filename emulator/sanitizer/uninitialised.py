"""Follows what nobody has written: bytes of shared memory, words of tensor and global memory, bits of registers.

Loads, copies and products pass it on. It is reported where it counts: in a store to global memory, an address, a
branch, and whatever else has an effect.

Global memory is followed by its contents: what `torch.empty` and the like allocate begins as words UNWRITTEN, and a
word that still is one has not been written. A copy of such a word is silent: programs copy buffers that they have
filled in part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.hardware.memory import UNWRITTEN
from emulator.hardware.tensor.tmem import COLUMNS
from emulator.hardware.tma import boxes
from emulator.hardware.tma.swizzle import CHUNK
from emulator.ops.memory import LOCAL_TAG, SHARED_TAG, TAG_SHIFT
from emulator.ptx.ir import Address, Instruction, Register, Vector
from emulator.ptx.types import type_width
from emulator.sanitizer.origins import INVALID, Origin, SharedShadow, TensorShadow, global_origin
from emulator.sanitizer.products import Products
from emulator.sanitizer.propagate import spread
from emulator.sanitizer.registers import LANES, NOTHING, WarpRegisters, chosen, full
from emulator.sanitizer.scene import running_lanes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.hardware.async_operations import AsyncOperation
    from emulator.hardware.cluster import Cluster, Cta
    from emulator.hardware.program import Heeded
    from emulator.hardware.tensor.copy import Copy
    from emulator.hardware.tensor.core import Mma
    from emulator.hardware.tensor.tmem import Place, TensorMemory
    from emulator.hardware.tma.tensor_map import TensorMap
    from emulator.hardware.warp import ActiveGroup, Issuer, Warp
    from emulator.sanitizer.report import Reporter

_PRODUCTS = Products()
_BRANCHES = ("bra", "brx", "ret", "exit", "call")
_HINTS = ("prefetch", "prefetchu", "applypriority", "createpolicy", "nanosleep")
_LOADS = ("ld", "ldu", "ldmatrix")
_ATOMICS = ("atom", "red")
_EFFECTS = _BRANCHES + _ATOMICS + ("st", "stmatrix", "cp", "mbarrier", "bar", "barrier", "tcgen05", "multimem")
_SYSTEM = ("clusterlaunchcontrol", "griddepcontrol", "setmaxnreg", "discard", "fence", "membar", "trap")
_HAS_EFFECT = frozenset(_EFFECTS + _SYSTEM)


def _items(operand: object) -> tuple:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _registers_of(address: Address) -> list[Register]:
    found = [address.base, *(address.coordinates or ())]
    return [item for operand in found for item in _items(operand) if isinstance(item, Register)]


class _Stored:
    """What the store that a warp executes, or has left behind, writes of uninitialised bits."""

    def __init__(self, mask: int, invalid: np.ndarray, origin: Origin) -> None:
        self.mask, self.invalid, self.origin = mask, invalid, origin  # invalid: uint8[32 or rows, bytes]

    def by_place(self, places: int | np.ndarray, width: int) -> np.ndarray:
        """uint8[places, width]."""
        count = len(places) if isinstance(places, np.ndarray) else 1
        rows = self.invalid if len(self.invalid) != LANES else self.invalid[chosen(self.mask)]
        if count == len(rows) and rows.shape[1] == width:
            return rows
        if count == 1 and rows.shape[1] == width and (rows == rows[:1]).all():
            return rows[:1]
        return np.full((count, width), INVALID if rows.any() else 0, np.uint8)


class Uninitialised:
    """Of a cluster. It implements `hardware.tensor.tmem.TensorValues`."""

    def __init__(self, cluster: Cluster, reporter: Reporter) -> None:
        self._reporter = reporter
        self._entry = cluster.grid.entry
        self._is_tensor_core = [i.opcode.startswith("tcgen05.") for i in self._entry.instructions]
        heeded = cluster.grid.program.heeded
        self._heeded: Heeded | None = heeded
        self._shared = {cta: SharedShadow(cta) for cta in cluster.ctas}
        self._tensor = {cta: TensorShadow(cta) for cta in cluster.ctas}
        self._of_tmem = {cta.tmem: cta for cta in cluster.ctas}
        # Operations of the tensor core that have been found to make nothing invalid, at which versions of the shadows.
        self._clean: dict[tuple[int, Cta], tuple[object, tuple[int, ...]]] = {}
        self._stored: dict[tuple[Warp, int], _Stored] = {}
        self._moving: tuple[AsyncOperation, np.ndarray, Origin] | None = None  # read by the operation that runs
        self._changed: tuple[Issuer, int] | None = None  # an atomic's word that was invalid before
        self._warps: dict[Warp, WarpRegisters] = {}
        if heeded is None:
            return
        for cta in cluster.ctas:
            cta.tmem.values = self
            for warp in cta.warps:
                self._warps[warp] = WarpRegisters(warp, heeded)

    # Shared memory

    def accessed(
        self, cta: Cta, kind: str, place: int | np.ndarray, width: int, issuer: Issuer, running: AsyncOperation | None
    ) -> None:
        """An access to a CTA's shared memory."""
        if running is not None and self._is_tensor_core[issuer[1]]:  # `multiplied` and `copied` follow its operands
            return
        if isinstance(place, np.ndarray):
            place = (place & 0xFFFFFF).astype(np.int64)
        shadow = self._shared[cta]
        if kind == "load":
            invalid = shadow.found(place, width)
            if invalid is not None:
                self._read(shadow, place, width, invalid, issuer, running)
            return
        stored = self._stored.get((issuer[0].warp, issuer[1]))
        if stored is not None:
            invalid = stored.by_place(place, width)
            shadow.write(place, width, invalid)
            shadow.stems_from(place, width, stored.origin)
            if running is None:
                del self._stored[issuer[0].warp, issuer[1]]
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
        if base in _ATOMICS and isinstance(place, int) and ".exch" not in instruction.opcode:
            self._changed = issuer, place
        if base == "ldmatrix":
            self._load_matrix(instruction, invalid, issuer, origin)
        elif base != "red" and base in (*_LOADS, *_ATOMICS):
            self._load(instruction, invalid, issuer, origin)

    def _load(self, instruction: Instruction, invalid: np.ndarray, issuer: Issuer, origin: Origin) -> None:
        """Lanes have loaded bytes, of which some are invalid: uint8[lanes or 1, bytes]."""
        mask = running_lanes(issuer[0].warp)
        lanes, items = chosen(mask), _items(instruction.operands[0])
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
            self._set(issuer[0].warp, item, lanes, bits, origin)

    def _load_matrix(self, instruction: Instruction, rows: np.ndarray, issuer: Issuer, origin: Origin) -> None:
        lanes, items = chosen(running_lanes(issuer[0].warp)), _items(instruction.operands[0])
        found = np.full((len(items), LANES), 0xFFFFFFFF, np.uint32)
        if instruction.opcode.endswith(".b16") and rows.size == found.nbytes:
            halves = np.ascontiguousarray(rows).view(np.uint16).reshape(-1, 8, 8)
            if ".trans" in instruction.opcode:
                halves = halves.transpose(0, 2, 1)
            found = np.ascontiguousarray(halves).reshape(-1, 64).view(np.uint32)
        for item, bits in zip(items, found, strict=True):
            self._set(issuer[0].warp, item, lanes, bits.astype(np.uint64), origin)

    def _set(self, warp: Warp, item: object, lanes: np.ndarray, bits: np.ndarray, origin: Origin) -> None:
        if isinstance(item, Register) and warp in self._warps:
            registers = self._warps[warp]
            registers.set(item.name, lanes, bits & full(registers.width(item.name)), origin)

    # Global memory

    def landed(self, cta: Cta, place: int | np.ndarray, nbytes: int, issuer: Issuer) -> None:
        """As `Causes.landed`."""
        self._shared[cta].copied(place, nbytes, issuer)

    def loaded(
        self, g: ActiveGroup, mask: int, address: int | np.ndarray, values: Sequence[Any], nbytes: int, issuer: Issuer
    ) -> None:
        """As `Causes.loaded`."""
        base, lanes = self._entry.instructions[issuer[1]].opcode.partition(".")[0], chosen(mask)
        for n, value in enumerate(values):
            bits = self._unwritten(g, lanes, address, n * nbytes, np.broadcast_to(np.uint64(value), LANES), nbytes)
            if not bits.any():
                continue
            if base in _ATOMICS and ".exch" not in self._entry.instructions[issuer[1]].opcode:
                self._report("the word that it changes", issuer, bits != 0, global_origin(issuer), False)
            elif base in (*_LOADS, "atom"):
                item = _items(self._entry.instructions[issuer[1]].operands[0])[n]
                self._set(g.warp, item, lanes, bits, global_origin(issuer))

    @staticmethod
    def _unwritten(
        g: ActiveGroup, lanes: np.ndarray, address: int | np.ndarray, offset: int, words: np.ndarray, nbytes: int
    ) -> np.ndarray:
        """uint64[32]: the bits of lanes' words that nobody has written."""
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
        self, cta: Cta, tensor_map: TensorMap, coords: tuple[int, ...], offset: int, rows: bool, issuer: Issuer
    ) -> None:
        """As `Causes.stores_tile`."""
        shadow, nbytes = self._shared[cta], boxes.tile_bytes(tensor_map, rows)
        invalid = shadow.found(offset, nbytes)
        if invalid is None:
            return
        invalid = invalid & ~self._copies(cta, offset, nbytes)
        box = SharedShadow(cta)
        box.data[:] = 0
        box.write(offset, nbytes, invalid)
        if boxes.stores_any(tensor_map, coords, box.memory, offset, rows):
            origin = shadow.origin(shadow.first(offset, invalid), issuer)
            self._report("a byte that it stores to global memory", issuer, None, origin, origin.is_global)

    def stores_bulk(self, cta: Cta, offset: int, nbytes: int, kept: int | None, issuer: Issuer) -> None:
        """As `Causes.stores_bulk`."""
        shadow = self._shared[cta]
        invalid = shadow.found(offset, nbytes)
        if invalid is None:
            return
        invalid = invalid & ~self._copies(cta, offset, nbytes)
        if kept is not None:
            invalid = invalid & np.resize([INVALID * (kept >> n & 1) for n in range(CHUNK)], nbytes).astype(np.uint8)
        if invalid.any():
            origin = shadow.origin(shadow.first(offset, invalid), issuer)
            self._report("a byte that it stores to global memory", issuer, None, origin, origin.is_global)

    @staticmethod
    def _copies(cta: Cta, offset: int, nbytes: int) -> np.ndarray:
        """uint8[nbytes]: 0xFF where a word of global memory that nobody has written has been copied as it is."""
        words = cta.shared.data[offset : offset + nbytes // 4 * 4].view(np.uint32) == UNWRITTEN
        found = np.zeros(nbytes, np.uint8)
        found[: 4 * len(words)] = np.repeat(words, 4) * np.uint8(INVALID)
        return found

    # Tensor memory

    def fragment(self, g: ActiveGroup, issuer: Issuer, place: Place, stores: bool) -> None:
        """As `Causes.fragment`."""
        if g.warp not in self._warps:
            return
        shadow, registers = self._tensor[g.cta], self._warps[g.warp]
        instruction, column = self._entry.instructions[issuer[1]], place[0] % COLUMNS
        if not stores:
            values = shadow.memory.read(place)
            if values.any():
                origin = shadow.origin(column, issuer)
                for item, bits in zip(_items(instruction.operands[0]), values, strict=False):
                    self._set(g.warp, item, chosen(g.warp.live), bits.astype(np.uint64), origin)
            return
        items = _items(instruction.operands[1])
        values = np.array([registers.bits(item) for item in items], np.uint32)
        shadow.memory.write(place, values)
        shadow.version += place[3]  # .unpack::16b leaves the high halves open
        tainted = next((item for item in items if registers.bits(item).any()), None)
        if tainted is not None:
            shadow.stems_from(range(column, column + 2 * len(items)), registers.origin(tainted.name))

    def allocated(self, tmem: TensorMemory, base: int, columns: int) -> None:
        """As `TensorValues.allocated`."""
        self._tensor[self._of_tmem[tmem]].allocated(base, columns)

    def multiplied(self, mma: Mma, memories: Sequence[TensorMemory], issuer: Issuer) -> None:
        """As `TensorValues.multiplied`."""
        ctas = [self._of_tmem[tmem] for tmem in memories]
        if self._is_known_clean(mma, ctas):
            return
        shadows = [(self._shared[cta].memory, self._tensor[cta].memory) for cta in ctas]
        invalid = _PRODUCTS.invalid_operand(mma, shadows)
        if invalid is None and mma.accumulate:
            self._note_clean(mma, ctas)
            return
        if _PRODUCTS.multiply(mma, shadows, invalid is None) and invalid is not None:
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
        """Whether an operation has made nothing invalid before, and nothing has become invalid since."""
        known = self._clean.get((id(operation), ctas[0]))
        return known is not None and known[1] == self._versions(ctas)

    def _note_clean(self, operation: Mma | Copy, ctas: list[Cta]) -> None:
        self._clean[id(operation), ctas[0]] = operation, self._versions(ctas)

    def _versions(self, ctas: list[Cta]) -> tuple[int, ...]:
        return tuple(version for cta in ctas for version in (self._shared[cta].version, self._tensor[cta].version))

    def copied(self, copy: Copy, tmem: TensorMemory, issuer: Issuer) -> None:
        """As `TensorValues.copied`."""
        cta = self._of_tmem[tmem]
        if self._is_known_clean(copy, [cta]):
            return
        shared, tensor = self._shared[cta], self._tensor[cta]
        places = copy.chunks.places
        rows = shared.chunks(places)
        if rows.any():
            first = np.argwhere(rows.reshape(-1, CHUNK))[0].tolist()
            offset = int(places.ravel()[first[0]]) * CHUNK + first[1]
            tensor.stems_from(range(copy.column, copy.column + copy.width), shared.origin(offset, issuer))
            if copy.bits:
                rows = np.where(rows.any(axis=-1, keepdims=True), np.uint8(INVALID), np.uint8(0)) + np.zeros_like(rows)
        data = np.ascontiguousarray(rows).reshape(*places.shape[:-1], -1)
        copy.distribute(data.view(np.uint32), tensor.words)
        if not data.any():
            self._note_clean(copy, [cta])

    # Registers

    def heeded(self, g: ActiveGroup, mask: int, index: int) -> None:
        """As `Causes.heeded`."""
        assert self._heeded is not None
        registers, instruction, issuer = self._warps[g.warp], self._entry.instructions[index], (g, index)
        base, lanes = instruction.opcode.partition(".")[0], chosen(mask)
        guard = self._guard(registers, instruction, base, issuer)
        if base in _BRANCHES:
            self._check_uses(registers, "what decides where control goes", issuer, lanes, guard)
            return
        if base in _HINTS or instruction.opcode.startswith("cp.async.bulk.prefetch"):
            return
        for operand in instruction.operands:
            for register in _registers_of(operand) if isinstance(operand, Address) else ():
                self._check(registers, register, f"the address in {register.name}", issuer, lanes)
        defines = self._heeded.defines[index]
        results = dict.fromkeys(defines, NOTHING)
        uses = [name for name in self._heeded.uses[index] if name in registers and name not in guard]
        if base == "st" and ".async" not in instruction.opcode and ".bulk" not in instruction.opcode:
            self._store(registers, g, instruction, issuer, mask)
        elif base == "st" or base in _ATOMICS:
            self._change(registers, instruction, issuer, mask, uses)
        elif base == "stmatrix":
            self._store_matrix(registers, instruction, issuer, mask, uses)
        elif base in _HAS_EFFECT and not instruction.opcode.startswith(("tcgen05.st.", "tcgen05.ld.")):
            self._check_uses(registers, "an operand", issuer, lanes, guard)
        elif base not in (*_LOADS, "tcgen05") and mask:
            results = spread(g, mask, instruction, defines, uses, registers)
        origin = registers.origin(next(iter(uses or guard))) if uses or guard else None
        decided = self._undecided(registers, guard, g)
        for name in defines:
            bits = np.where(decided, full(registers.width(name)), results.get(name, NOTHING))
            registers.set(name, lanes | decided, bits, origin)

    @staticmethod
    def _undecided(registers: WarpRegisters, guard: tuple[str, ...], g: ActiveGroup) -> np.ndarray:
        """bool[32]: lanes of which it is not known whether they execute the instruction."""
        found = np.zeros(LANES, bool)
        for name in guard:
            found |= (registers.bits(Register(name, 1)) != 0) & chosen(g.warp.registers.context.outer)
        return found

    def _guard(self, registers: WarpRegisters, instruction: Instruction, base: str, issuer: Issuer) -> tuple[str, ...]:
        """The guard, if it has uninitialised bits in lanes that count."""
        if instruction.predicate is None or instruction.predicate.register.name not in registers:
            return ()
        register, outer = instruction.predicate.register, chosen(issuer[0].warp.registers.context.outer)
        if not (registers.bits(register) != 0)[outer].any():
            return ()
        if base in _HAS_EFFECT and base not in _BRANCHES:
            self._check(registers, register, f"the predicate {register.name}", issuer, outer)
        return (register.name,)

    def _check_uses(
        self, registers: WarpRegisters, what: str, issuer: Issuer, lanes: np.ndarray, guard: tuple[str, ...]
    ) -> None:
        assert self._heeded is not None
        for name in self._heeded.uses[issuer[1]]:
            if name in registers and (name not in guard or what.startswith("what")):
                self._check(registers, Register(name, 0), f"{what}, {name}", issuer, lanes)

    def _check(
        self, registers: WarpRegisters, register: Register, what: str, issuer: Issuer, lanes: np.ndarray
    ) -> None:
        bad = (registers.bits(register) != 0) & lanes
        if bad.any():
            self._report(what, issuer, bad, registers.origin(register.name), False)

    def _report(self, what: str, issuer: Issuer, lanes: np.ndarray | None, origin: Origin, is_doubt: bool) -> None:
        mask = 0 if lanes is None else sum(1 << lane for lane in np.flatnonzero(lanes).tolist())
        self._reporter.report_uninitialised(what, issuer, mask, origin, is_doubt)

    # Stores

    def _data(self, registers: WarpRegisters, operand: object, nbytes: int) -> np.ndarray:
        """uint8[32, bytes]: the uninitialised bits of what each lane stores."""
        parts = [registers.bits(item)[:, None].view(np.uint8)[:, :nbytes] for item in _items(operand)]
        found = np.concatenate(parts, axis=1)
        return np.where(found != 0, np.uint8(INVALID), np.uint8(0))

    def _store(
        self, registers: WarpRegisters, g: ActiveGroup, instruction: Instruction, issuer: Issuer, mask: int
    ) -> None:
        address, source = instruction.operands[:2]
        parts, nbytes = instruction.opcode.split("."), type_width(instruction.opcode.rpartition(".")[2]) // 8
        data, lanes = self._data(registers, source, nbytes), chosen(mask)
        tainted = next((item for item in _items(source) if registers.bits(item)[lanes].any()), None)
        if tainted is None or "local" in parts or "param" in parts:
            return
        origin = registers.origin(tainted.name)
        shared = np.full(LANES, any(part.startswith("shared") for part in parts))
        if "global" not in parts and not shared.any():
            places = registers.value(address.base)
            tags = NOTHING if places is None else places >> np.uint64(TAG_SHIFT)
            shared, lanes = tags == SHARED_TAG, lanes & (tags != LOCAL_TAG)
        bad = lanes & ~shared & data.any(axis=1)
        if bad.any() and not self._is_copy(registers, _items(source), bad, origin):
            what = f"the value that it stores to global memory, {tainted.name}"
            self._report(what, issuer, bad, origin, origin.is_global)
        if (lanes & shared).any():
            self._stored[g.warp, issuer[1]] = _Stored(mask, data, origin)

    @staticmethod
    def _is_copy(registers: WarpRegisters, items: tuple, lanes: np.ndarray, origin: Origin) -> bool:
        """Whether all that is uninitialised are words of global memory as they are."""
        if not origin.is_global:
            return False
        for item in items:
            bits, value = registers.bits(item), registers.value(item)
            for shift in (np.uint64(0), np.uint64(32)):
                bad = lanes & (bits >> shift & full(32) != 0)
                if bad.any() and (value is None or (value >> shift & full(32) != UNWRITTEN)[bad].any()):
                    return False
        return True

    def _change(
        self, registers: WarpRegisters, instruction: Instruction, issuer: Issuer, mask: int, uses: list[str]
    ) -> None:
        """atom, red, st.async, st.bulk: of what they store all bits are uninitialised if one is."""
        addressed = {x.name for o in instruction.operands if isinstance(o, Address) for x in _registers_of(o)}
        lanes = chosen(mask)
        tainted = [n for n in uses if n not in addressed and registers.bits(Register(n, 0))[lanes].any()]
        if not tainted:
            return
        origin, bad = registers.origin(tainted[0]), np.zeros(LANES, bool)
        for name in tainted:
            bad |= (registers.bits(Register(name, 0)) != 0) & lanes
        if ".shared" not in instruction.opcode and ".async" not in instruction.opcode:
            self._report(f"an operand, {tainted[0]}", issuer, bad, origin, origin.is_global)
        invalid = np.where(bad[:, None], np.uint8(INVALID), np.uint8(0))
        self._stored[issuer[0].warp, issuer[1]] = _Stored(mask, invalid, origin)

    def _store_matrix(
        self, registers: WarpRegisters, instruction: Instruction, issuer: Issuer, mask: int, uses: list[str]
    ) -> None:
        items = _items(instruction.operands[1])
        tainted = next((item for item in items if registers.bits(item).any()), None)
        if tainted is None:
            return
        values = np.array([registers.bits(item) for item in items], np.uint32)
        halves = np.where(values.view(np.uint16) != 0, np.uint16(0xFFFF), np.uint16(0)).reshape(-1, 8, 8)
        if ".b16" not in instruction.opcode:
            halves = np.full_like(halves, 0xFFFF)
        elif ".trans" in instruction.opcode:
            halves = halves.transpose(0, 2, 1)
        rows = np.ascontiguousarray(halves).reshape(-1, 8).view(np.uint8)
        self._stored[issuer[0].warp, issuer[1]] = _Stored(mask, rows, registers.origin(tainted.name))
