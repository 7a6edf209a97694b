"""Assembler of a program's operations, with which rows of the opcode table emit the kernels of an instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nogpu import headers
from nogpu.compiler.flow import Flow
from nogpu.compiler.operands import CLOCKS, PARAMETER_BYTES, PARAMETERS, SHARED_BASE
from nogpu.compiler.rowcode.addresses import AddressRows
from nogpu.compiler.rowcode.image import OP
from nogpu.compiler.rowcode.registers import Slots
from nogpu.compiler.signatures import misfit, shown
from nogpu.errors import EmulatorError
from nogpu.ptx.ir import SINK, Address, Immediate, Instruction, Negated, Register, Special, Symbol
from nogpu.ptx.literals import literal_bits
from nogpu.ptx.types import type_width

KEEPS, TO_ROW = headers.constants("native/engine.h", "KEEPS", "TO_ROW")
(FOURTH,) = headers.constants(
    "native/arithmetic.h", "FOURTH"
)  # flag of an operation with four sources: the last one's slot, x, holds one value for all lanes
_BASES = {"shared": SHARED_BASE, "param": PARAMETERS}


class Unsupported(Exception):
    """Raised where no kernel does what the instruction says: Python is called instead."""


@dataclass(frozen=True)
class Source:
    """An operand: the offset of its slot, and whether that holds a row."""

    offset: int
    row: bool


class Assembler:
    """Collects a program's operations."""

    def __init__(self, flow: Flow, symbols: dict[str, tuple[str, int]], slots: Slots) -> None:
        """symbols: as `layout.Layout` has them."""
        self.flow, self.symbols, self.slots = flow, symbols, slots
        self.pc = 0
        """Index of the current instruction."""
        self.kind = "uniform"
        """Kind of the instruction's result (`compiler.flow`)."""
        self.guarded = False
        """True if only lanes in which a guard holds execute the instruction."""
        self.waits = False
        """True if the instruction may have to wait."""
        self.address_rows = AddressRows(flow, self._shared_sum)
        self._ops: list[tuple[int, int, int, int, int, int, int, int]] = []
        self._kernels: dict[str, int] = {}
        self._descriptions = bytearray()
        self._described: list[int] = []
        self._constants: dict[int, Source] = {}
        self._temporaries = 0
        self.clocks: dict[int, list[tuple[int, str]]] = {}
        """Instruction -> (slot, special register) of each clock that it reads, for Python where C has no clock."""

    def __len__(self) -> int:
        return len(self._ops)

    def emit(self, kernel: str, d: int = 0, a: int = 0, b: int = 0, c: int = 0, x: int = 0) -> int:
        """Adds an operation without flags (native/engine.h, `Op`). Returns its index."""
        return self._emit(kernel, (d, a, b, c), 0, x)

    def _emit(self, kernel: str, slots: tuple[int, int, int, int], flags: int, x: int) -> int:
        number = self._kernels.setdefault(kernel, len(self._kernels))
        self._ops.append((number, *slots, flags, self.pc, x))
        return len(self._ops) - 1

    def emit_described(self, kernel: str, description: bytes) -> None:
        """Adds an operation whose x is the address of a description, which is a multiple of 8 bytes long."""
        self.emit(kernel, x=self.described(description))

    def described(self, description: bytes) -> int:
        """Adds a description, a multiple of 8 bytes long. Returns the next operation's x, which becomes its address."""
        self._described.append(len(self._ops))
        self._descriptions += description
        return len(self._descriptions) - len(description)

    def become(self, index: int, kernel: str, description: bytes) -> None:
        """Makes the operation at `index` another one, whose x is the address of a description, a multiple of 8 bytes
        long.
        """
        number = self._kernels.setdefault(kernel, len(self._kernels))
        self._ops[index] = (number, *self._ops[index][1:7], len(self._descriptions))
        self._described.append(index)
        self._descriptions += description

    def patch(self, index: int, target: int | None = None) -> None:
        """Makes the jump at `index` lead to the operation `target`; None: to the next one."""
        op = self._ops[index]
        self._ops[index] = (*op[:7], (len(self._ops) if target is None else target) - index)

    def drop(self, count: int) -> None:
        """Drops all operations but the first `count`."""
        del self._ops[count:]
        self._described = [index for index in self._described if index < count]

    def assembled(self) -> dict[str, Any]:
        """The fields of `Image` that describe the operations."""
        return {
            "kernels": list(self._kernels),
            "ops": np.array(self._ops, OP).tobytes(),
            "described": self._described,
            "descriptions": bytes(self._descriptions),
        }

    # Operands

    def constant(self, value: int) -> Source:
        """A slot that holds a constant."""
        value &= (1 << 64) - 1
        known = self._constants.get(value)
        if known is None:
            slot = self.slots.add(f"%constant{len(self._constants)}", 64, row=False)
            self.slots.constants[slot.offset] = value
            known = self._constants[value] = Source(slot.offset, False)
        return known

    def temporary(self, width: int, row: bool) -> Source:
        """A new slot. width: bits."""
        self._temporaries += 1
        slot = self.slots.add(f"%temporary{self._temporaries}", width, row)
        return Source(slot.offset, row)

    def fail(self, reason: str) -> EmulatorError:
        return EmulatorError(reason)

    def fits(self, operand: object, type_name: str) -> None:
        """Raises EmulatorError unless an operand is a register of the type's width or a value of the type."""
        reason = misfit(operand, type_name)
        if reason is not None:
            raise self.fail(reason)

    def source(self, operand: object, type_name: str) -> Source:
        """The slot of an operand of a type. Raises EmulatorError for any other operand."""
        self.fits(operand, type_name)
        if isinstance(operand, Register):
            return Source(self.slots[operand.name].offset, self.is_row(operand))
        if isinstance(operand, Immediate):
            return self.constant(int(bool(operand.value)) if type_name == "pred" else literal_bits(operand, type_name))
        if isinstance(operand, Special):
            return self._special(operand.name, type_width(type_name))
        assert isinstance(operand, Negated)
        of = self.source(operand.register, "pred")
        result = self.temporary(1, of.row)
        self.emit("not_pred" if of.row else "not_pred_s", result.offset, of.offset)
        return result

    def _special(self, name: str, width: int) -> Source:
        """The slot of a special register, cut off or with zeros above."""
        if width == 1:
            raise self.fail(f"operand {name} is no predicate")
        if name in CLOCKS:
            bits, shift = CLOCKS[name]
            now = self.temporary(bits, row=False)
            self.emit("read_clock", now.offset, c=bits, x=shift)
            self.clocks.setdefault(self.pc, []).append((now.offset, name))
            return now
        if name not in self.slots:
            raise self.fail(f"special register {name} is not modelled")
        slot = self.slots[name]
        found = Source(slot.offset, slot.row)
        if not slot.row or slot.width == width:
            return found
        return self.intermediate(f"cvt_u{width}_u{slot.width}", width, [found])

    def place(self, operand: object, type_name: str, space: str | None = None) -> Source:
        """The address of a variable or parameter, "v" or "v+4", or an operand of a type.

        space: that of the variable, None for any. Raises EmulatorError for other operands, and for too few bits.
        """
        symbol = operand.base if isinstance(operand, Address) and operand.direct else operand
        if not isinstance(symbol, Symbol):
            return self.source(operand, type_name)
        self._check_place(symbol, type_width(type_name), space)
        base, offset = self.base(symbol)
        if isinstance(operand, Address):
            offset += operand.offset
        if base is None:
            return self.constant(offset)
        total = self.temporary(64, row=False)
        self.emit("add_64_s", total.offset, base, self.constant(offset).offset)
        return total

    def _check_place(self, symbol: Symbol, width: int, space: str | None) -> None:
        """Raises EmulatorError for a symbol that is not declared, of another space, or with more than `width` bits."""
        if symbol.name not in self.symbols:
            raise self.fail(f"symbol {symbol.name!r} is not declared")
        own = self.symbols[symbol.name][0]
        needed = 32 if own in ("shared", "local", "param") else 64
        if space not in (None, own):
            raise self.fail(f"{symbol.name} is a .{own} variable, .{space} is expected")
        if width < needed:
            raise self.fail(f"the address of {symbol.name} has {needed} bits, more than .b{width} has")

    def address(self, address: Address) -> tuple[int, int, bool]:
        """(slot of the base, -1 if there is none; displacement in bytes; whether the slot holds a row)."""
        base = address.base
        if isinstance(base, Register):
            return self.slots[base.name].offset, address.offset, self.is_row(base)
        if isinstance(base, Symbol):
            slot, offset = self.base(base)
            return -1 if slot is None else slot, offset + address.offset, False
        raise Unsupported

    def base(self, symbol: Symbol) -> tuple[int | None, int]:
        """(slot of the base of a symbol's space, None for an absolute address; offset from there)."""
        space, offset = self.symbols[symbol.name]
        return (self.slots[_BASES[space]].offset if space in _BASES else None), offset

    @property
    def parameter_bytes(self) -> Source:
        """The size of the parameters in bytes."""
        if PARAMETER_BYTES not in self.slots:
            self.slots.add_special(PARAMETER_BYTES, 64)
        return Source(self.slots[PARAMETER_BYTES].offset, False)

    @property
    def parameters(self) -> Source:
        """The address of the parameters."""
        return Source(self.slots[PARAMETERS].offset, False)

    def is_row(self, operand: object) -> bool:
        """True if an operand is a register that may differ from lane to lane."""
        return isinstance(operand, Register) and self.flow.kinds[operand.name] != "uniform"

    # Operations

    def operation(self, kernel: str, destination: object, sources: Sequence[Source], x: int = 0) -> None:
        """Emits `destination = kernel(sources)`. For values that all lanes share the kernel's name ends in _s."""
        if destination == SINK:
            return
        if not isinstance(destination, Register):
            raise self.fail(f"a register is expected, not {shown(destination)}")
        row = self.is_row(destination)
        if not row and any(source.row for source in sources):
            raise Unsupported
        keeps = row and (self.guarded or destination.name in self.flow.merged)
        self._operation(kernel, self.slots[destination.name].offset, row, sources, KEEPS if keeps else 0, x)

    def shared_result(
        self, kernel: str, destination: object, source: Source | None = None, b: int = 0, c: int = 0, x: int = 0
    ) -> None:
        """Adds an operation whose result all lanes share; the destination may be a row, or `_`. source: operand a."""
        a, flags = (0, 0) if source is None else (source.offset, int(not source.row))
        if destination == SINK:
            self._emit(kernel, (self.temporary(64, row=False).offset, a, b, c), flags, x)
            return
        if not isinstance(destination, Register):
            raise Unsupported
        if self.is_row(destination):
            keeps = self.guarded or destination.name in self.flow.merged
            flags |= TO_ROW | (KEEPS if keeps else 0)
        self._emit(kernel, (self.slots[destination.name].offset, a, b, c), flags, x)

    def intermediate(self, kernel: str, width: int, sources: Sequence[Source], x: int = 0, row: bool = False) -> Source:
        """Emits `kernel(sources)` to a new slot. width: bits of the result. row: a row in any case."""
        row = row or any(source.row for source in sources)
        result = self.temporary(width, row)
        self._operation(kernel, result.offset, row, sources, 0, x)
        return result

    def _operation(self, kernel: str, d: int, row: bool, sources: Sequence[Source], flags: int, x: int) -> None:
        if len(sources) == 4:
            *sources, fourth = sources
            flags, x = flags | (0 if fourth.row else FOURTH), fourth.offset
        for i, source in enumerate(sources):
            flags |= (not source.row) << i
        a, b, c = [source.offset for source in sources] + [0] * (3 - len(sources))
        self._emit(kernel if row else f"{kernel}_s", (d, a, b, c), flags, x)

    def _shared_sum(self, a: object, b: object, width: int) -> int:
        """Emits the sum of two values that all lanes share, operands or slots. Returns its slot. width: bits."""
        slots = [x if isinstance(x, int) else self.source(x, f"u{width}").offset for x in (a, b)]
        total = self.temporary(width, row=False).offset
        self.emit(f"add_{width}_s", total, *slots)
        return total

    def compute(
        self, instruction: Instruction, type_name: str, kernel: str, sources: str, x: int = 0, result: str | None = None
    ) -> None:
        """Emits `d = kernel(a, b, ...)`; sources and result as in `opcodes.rows.computed`.

        kernel: a name in which {w} is the type's width, {t} its sign and width, {f} its name. x: the kernel's constant.
        """
        destination, *operands = instruction.operands
        width = type_width(type_name)
        wide = f"{type_name[0]}{2 * width}"
        types = {"t": type_name, "u": "u32", "i": "s32", "w": wide, "q": f"u{width}"}
        if type_name[0] == "f":
            types["q"] = type_name  # for literals
        self.fits(destination, wide if result == "wide" else result or type_name)
        typed = [self.source(operand, types[letter]) for operand, letter in zip(operands, sources, strict=True)]
        signed = ("s" if type_name[0] == "s" else "u") + str(width)
        self.operation(kernel.format(w=width, t=signed, f=type_name), destination, typed, x)
