"""Python text of source operands, by the kinds of their registers (`compiler.flow`).

A uniform register is an unsigned integer (a bool for a predicate), any other a row (`arithmetic.lanes`), and a
predicate of kind "bits" a mask.
"""

from __future__ import annotations

from collections.abc import Iterable

from nogpu.compiler.flow import Flow
from nogpu.compiler.operands import VALUES, special_is_uniform
from nogpu.compiler.signatures import misfit, shown
from nogpu.errors import EmulatorError
from nogpu.ptx.ir import Address, Immediate, Negated, Register, Special, Symbol
from nogpu.ptx.literals import literal_bits
from nogpu.ptx.types import type_width


class Sources:
    """Reads registers as text: register i is `r<i>`, the active group is `g`."""

    def __init__(self, flow: Flow, numbers: dict[str, int], symbols: dict[str, tuple[str, int]]) -> None:
        """numbers: register name -> index. symbols: as `layout.Layout` has them."""
        self.flow, self.numbers, self.symbols = flow, numbers, symbols
        self.mask = "m"
        """Name of the mask of active lanes."""
        self.defined: set[str] = set()
        """Registers that the text so far has written."""
        self.preload: set[str] = set()
        """Registers that the text reads before it writes them."""

    def fail(self, reason: str) -> EmulatorError:
        return EmulatorError(reason)

    def kind_of(self, register: Register) -> str:
        return self.flow.kinds[register.name]

    def register(self, operand: object) -> Register:
        """The operand. Raises EmulatorError unless it is a register."""
        if not isinstance(operand, Register):
            raise self.fail(f"a register is expected, not {shown(operand)}")
        return operand

    def name(self, register: Register) -> str:
        """The local variable of a register, whose value the text needs."""
        if register.name not in self.defined:
            self.preload.add(register.name)
        return f"r{self.numbers[register.name]}"

    def is_uniform(self, operand: object) -> bool:
        return special_is_uniform(operand) and self.flow.kind_of(operand) == "uniform"

    def value(self, operand: object, width: int = 32, type_name: str | None = None) -> str:
        """The value of an operand: an unsigned integer if it is uniform, else a row.

        width, type_name: bits and type of a literal, by default untyped.
        """
        if isinstance(operand, Register):
            name = self.name(operand)
            return f"lanes({name})" if operand.width == 1 and self.kind_of(operand) == "bits" else name
        if isinstance(operand, Immediate):
            return str(self.literal(operand, type_name or f"b{width}"))
        if isinstance(operand, Special):
            if operand.name not in VALUES:
                raise self.fail(f"special register {operand.name} is not modelled")
            return f"specials[{operand.name!r}](g)"
        raise self.fail(f"operand {shown(operand)} can't be used as a value here")

    def stack(self, items: Iterable[object], type_name: str = "b32") -> str:
        """The items as uint[count, 32]. type_name: type of each."""
        width = type_width(type_name)
        return f"stack([{', '.join(self.value(item, width, type_name) for item in items)}], {width})"

    def literal(self, operand: Immediate, type_name: str) -> int:
        """A literal's bits in a type. Raises EmulatorError if it does not fit."""
        try:
            return literal_bits(operand, type_name)
        except ValueError as error:
            raise self.fail(str(error)) from None

    def symbol(self, operand: Symbol) -> str:
        """The address of a parameter or a variable."""
        if operand.name not in self.symbols:
            raise self.fail(f"symbol {operand.name!r} is not declared")
        space, offset = self.symbols[operand.name]
        if space == "shared":
            return f"(g.cta.shared_base + {offset})"
        if space == "param":
            return f"(g.grid.param_address + {offset})"
        return str(offset)

    def fits(self, operand: object, type_name: str) -> None:
        """Raises EmulatorError unless an operand is a register of the type's width or a value of the type."""
        reason = misfit(operand, type_name)
        if reason is not None:
            raise self.fail(reason)

    def predicate(self, operand: object) -> tuple[str, str]:
        """(local variable, kind) of a predicate register."""
        if not isinstance(operand, Register) or operand.width != 1:
            raise self.fail(f"operand {shown(operand)} is no predicate")
        return self.name(operand), self.kind_of(operand)

    def predicate_row(self, operand: object) -> str:
        """A predicate as bool[32]."""
        if isinstance(operand, Negated):
            return f"~{self.predicate_row(operand.register)}"
        if isinstance(operand, Immediate):
            return "lanes(FULL)" if operand.value else "lanes(0)"
        text, kind = self.predicate(operand)
        return {"uniform": f"lanes(FULL if {text} else 0)", "bits": f"lanes({text})", "lanes": text}[kind]

    def predicate_bits(self, operand: object) -> str:
        """A predicate as a mask: a bit per lane in which it holds."""
        if isinstance(operand, Negated):
            return f"({self.predicate_bits(operand.register)} ^ FULL)"
        if isinstance(operand, Immediate):
            return "FULL" if operand.value else "0"
        text, kind = self.predicate(operand)
        return {"uniform": f"(FULL if {text} else 0)", "bits": text, "lanes": f"bits_of({text})"}[kind]

    def boolean(self, operand: object) -> str:
        """A predicate as one bool, on which the active lanes must agree."""
        if isinstance(operand, Negated):
            return f"(not {self.boolean(operand.register)})"
        if isinstance(operand, Immediate):
            return str(bool(operand.value))
        text, kind = self.predicate(operand)
        if kind == "uniform":
            return text
        return f"agreed({self.predicate_bits(operand)}, {self.mask})"

    def single(self, operand: object, width: int = 32) -> str:
        """One integer, on which the active lanes must agree."""
        if operand is None:
            return "None"
        text = self.value(operand, width)
        return text if self.is_uniform(operand) else f"pick({text}, {self.mask})"

    def address(self, operand: object, width: int | None = None) -> str:
        """The unsigned address, an integer or a row. width: bits of the address; None: those of the base."""
        if not isinstance(operand, Address) or operand.direct:
            raise self.fail(f"an address in brackets is expected, not {shown(operand)}")
        return self.sum(operand, width)

    def sum(self, operand: Address, width: int | None = None) -> str:
        """The base and the offset of an address, added; width as in `address`."""
        base = operand.base
        if isinstance(base, Register) and base.width not in (32, 64):
            raise self.fail(f"register {base.name} has {base.width} bits, an address has 32 or 64")
        if width is None:
            width = base.width if isinstance(base, Register) else 64
        text = self.symbol(base) if isinstance(base, Symbol) else self.value(base, width)
        if operand.offset == 0:
            return text
        mask = (1 << width) - 1
        if self.is_uniform(base):
            return f"({text} + {operand.offset} & {mask})"
        return f"({text} + {operand.offset & mask})"
