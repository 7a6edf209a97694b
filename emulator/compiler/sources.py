"""Python text for the source operands of instructions, by the kinds of their registers (`flow.py`).

A uniform register is an unsigned integer (a bool for a predicate), any other a row (`lanes.py`), and a predicate of kind
"bits" a mask.
"""

from __future__ import annotations

from emulator.compiler.flow import Flow
from emulator.compiler.operands import LANE_SPECIALS, UNIFORM_SPECIALS, misfit, special_is_uniform
from emulator.errors import EmulatorError
from emulator.ptx.ir import Address, Immediate, Negated, Register, Special, Symbol
from emulator.ptx.types import immediate_bits, type_width

_FLOATS = {"f16": "f16", "f32": "f32", "f64": "f64", "f16x2": "f16", "f32x2": "f32"}


class Sources:
    """Generated code names register i `r<i>` and the group of lanes that runs it `g`.

    mask: the name of the mask of active lanes. defined: registers that the text so far has written; preload: those that
    it reads before.
    """

    def __init__(self, flow: Flow, numbers: dict[str, int], layout: dict[str, tuple[str, int]]):
        """numbers: register name -> index. layout: symbol -> (space, offset; the address for "global")."""
        self.flow, self.numbers, self.layout = flow, numbers, layout
        self.mask = "m"
        self.defined: set[str] = set()
        self.preload: set[str] = set()

    def fail(self, reason: str) -> EmulatorError:
        return EmulatorError(reason)

    def kind_of(self, register: Register) -> str:
        return self.flow.kinds[register.name]

    def name(self, register: Register) -> str:
        if register.name not in self.defined:
            self.preload.add(register.name)
        return f"r{self.numbers[register.name]}"

    def is_uniform(self, operand: object) -> bool:
        return special_is_uniform(operand) and self.flow.kind_of(operand) == "uniform"

    def value(self, operand: object, width: int = 32) -> str:
        """An unsigned integer where the operand is uniform, else a row."""
        if isinstance(operand, Register):
            name = self.name(operand)
            return f"lanes({name})" if operand.width == 1 and self.kind_of(operand) == "bits" else name
        if isinstance(operand, Immediate):
            return str(immediate_bits(operand, width))
        if isinstance(operand, Special):
            expression = UNIFORM_SPECIALS.get(operand.name) or LANE_SPECIALS.get(operand.name)
            if expression is None:
                raise self.fail(f"special register {operand.name} is not modelled")
            return expression
        if isinstance(operand, Symbol):
            return self.symbol(operand)
        if isinstance(operand, Address):
            return self.address(operand)
        raise self.fail(f"operand {operand} can't be used as a value here")

    def symbol(self, operand: Symbol) -> str:
        if operand.name not in self.layout:
            raise self.fail(f"symbol {operand.name!r} is not declared")
        space, offset = self.layout[operand.name]
        if space == "shared":
            return f"(g.cta.shared_base + {offset})"
        if space == "param":
            return f"(g.grid.param_address + {offset})"
        return str(offset)

    def fits(self, operand: object, type_name: str) -> None:
        reason = misfit(operand, type_name)
        if reason is not None:
            raise self.fail(reason)

    def integer(self, operand: object, type_name: str) -> str:
        """A Python integer with the type's sign; the operand must be uniform."""
        width = type_width(type_name)
        if isinstance(operand, Immediate):
            bits = immediate_bits(operand, width)
            return f"({bits - (1 << width)})" if type_name[0] == "s" and bits >> width - 1 else str(bits)
        self.fits(operand, type_name)
        text = self.value(operand, width)
        if type_name[0] != "s":
            return text
        half = 1 << width - 1
        return f"(({text} ^ {half}) - {half})"

    def lanes(self, operand: object, type_name: str, row: bool = False) -> str:
        """A row viewed as the type, or a Python number that combines with such rows. row: always a row."""
        width = type_width(type_name)
        self.fits(operand, type_name)
        if type_name in _FLOATS:
            return f"row_of({self.value(operand, width)}, {width}).view({_FLOATS[type_name]})"
        if type_name == "pred":
            return self.predicate_row(operand)
        if self.is_uniform(operand):
            if row:
                text = f"row_of({self.value(operand, width)}, {width})"
                return f"{text}.view(i{width})" if type_name[0] == "s" else text
            return self.integer(operand, type_name)
        text = self.value(operand, width)
        return f"{text}.view(i{width})" if type_name[0] == "s" else text

    def predicate(self, operand: object) -> str:
        if not isinstance(operand, Register) or operand.width != 1:
            raise self.fail(f"operand {getattr(operand, 'name', operand)} is no predicate")
        return self.name(operand)

    def predicate_row(self, operand: object) -> str:
        if isinstance(operand, Negated):
            return f"~{self.predicate_row(operand.register)}"
        if isinstance(operand, Immediate):
            return "lanes(FULL)" if operand.value else "lanes(0)"
        text = self.predicate(operand)
        kind = self.kind_of(operand)
        return {"uniform": f"lanes(FULL if {text} else 0)", "bits": f"lanes({text})", "lanes": text}[kind]

    def predicate_bits(self, operand: object) -> str:
        """The lanes in which a predicate holds, as a mask."""
        if isinstance(operand, Negated):
            return f"({self.predicate_bits(operand.register)} ^ FULL)"
        if isinstance(operand, Immediate):
            return "FULL" if operand.value else "0"
        text = self.predicate(operand)
        kind = self.kind_of(operand)
        return {"uniform": f"(FULL if {text} else 0)", "bits": text, "lanes": f"bits_of({text})"}[kind]

    def boolean(self, operand: object) -> str:
        """A bool for the active lanes, which must agree on it."""
        if isinstance(operand, Negated):
            return f"(not {self.boolean(operand.register)})"
        if isinstance(operand, Immediate):
            return str(bool(operand.value))
        text = self.predicate(operand)
        if self.kind_of(operand) == "uniform":
            return text
        return f"agreed({self.predicate_bits(operand)}, {self.mask})"

    def single(self, operand: object, width: int = 32) -> str:
        """An integer for the active lanes, which must agree on it."""
        if operand is None:
            return "None"
        text = self.value(operand, width)
        return text if self.is_uniform(operand) else f"pick({text}, {self.mask})"

    def address(self, operand: Address, width: int | None = None) -> str:
        """Unsigned address of the base's width; an integer or a row."""
        base = operand.base
        if width is None:
            width = base.width if isinstance(base, Register) else 64
        text = self.value(base, width)
        if operand.offset == 0:
            return text
        mask = (1 << width) - 1
        if self.is_uniform(base):
            return f"({text} + {operand.offset} & {mask})"
        return f"({text} + {operand.offset & mask})"

    def coordinates(self, items: tuple) -> str:
        signed_items = [
            str(item.value) if isinstance(item, Immediate) else f"(({self.single(item)} ^ 2147483648) - 2147483648)"
            for item in items
        ]
        return f"({', '.join(signed_items)},)"
