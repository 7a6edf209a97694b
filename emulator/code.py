"""Writes the Python text of instructions: operands, destinations, masks and guards.

Generated code names register i `r<i>`, the group of lanes that runs it `g`, and the lanes that are active `m` (a mask
as an integer; `m1`, `m2`, ... inside of conditional parts). A uniform register is an unsigned integer (a bool for a
predicate), any other a row (`lanes.py`), and a predicate of kind "bits" a mask.
"""

from __future__ import annotations

import re
from contextlib import contextmanager

from emulator.errors import EmulatorError
from emulator.flow import Flow
from emulator.instructions import (
    SINK,
    Address,
    Immediate,
    Instruction,
    Negated,
    Register,
    Special,
    Symbol,
    Vector,
)
from emulator.operands import LANE_SPECIALS, UNIFORM_SPECIALS, immediate_bits, special_is_uniform, type_width

_CLAMP = re.compile(r"min\((\d+), (\d+)\)")  # of an immediate shift count
# A test in a loop that does nothing else becomes a wait.
WAITING_FORMS = {"test_parity(": "wait_parity(", "test_state(": "wait_state("}
_FLOATS = {"f16": "f16", "f32": "f32", "f64": "f64", "f16x2": "f16", "f32x2": "f32"}


class Code:
    """Emits one segment of a program (see `translate.py`)."""

    def __init__(self, flow: Flow, numbers: dict[str, int], layout: dict[str, tuple[str, int]]):
        """numbers: register name -> index. layout: symbol -> (space, offset)."""
        self.flow, self.numbers, self.layout = flow, numbers, layout
        self.lines: list[tuple[str, int]] = []
        self.depth = 1
        self.mask = "m"
        self.defined: set[str] = set()
        self.preload: set[str] = set()
        self.pc = 0
        self._masks = 0
        self._temporaries = 0
        self.kind = "uniform"  # of the current instruction's result
        self.writes = 0  # destinations of the current instruction
        self.waits = False  # whether the current instruction may have to wait

    def line(self, text: str) -> None:
        self.lines.append(("    " * self.depth + text, self.pc))

    def temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    @contextmanager
    def indented(self, header: str, mask: str | None = None):
        self.line(header)
        outer, self.mask = self.mask, mask or self.mask
        self.depth += 1
        start = len(self.lines)
        yield
        if len(self.lines) == start:
            self.line("pass")
        self.depth -= 1
        self.mask = outer

    def new_mask(self, bits: str) -> str:
        self._masks += 1
        name = f"m{self._masks}"
        self.line(f"{name} = {self.mask} & {bits}")
        return name

    # Sources

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
            expression = UNIFORM_SPECIALS.get(operand.name) or LANE_SPECIALS[operand.name]
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
        if space == "global":
            return f"(g.grid.global_address + {offset})"
        return str(offset)

    def integer(self, operand: object, type_name: str) -> str:
        """A Python integer with the type's sign; the operand must be uniform."""
        width = type_width(type_name)
        if isinstance(operand, Immediate):
            bits = immediate_bits(operand, width)
            return f"({bits - (1 << width)})" if type_name[0] == "s" and bits >> width - 1 else str(bits)
        text = self.value(operand, width)
        if type_name[0] != "s":
            return text
        half = 1 << width - 1
        return f"(({text} ^ {half}) - {half})"

    def lanes(self, operand: object, type_name: str, row: bool = False) -> str:
        """A row viewed as the type, or a Python number that combines with such rows. row: always a row."""
        width = type_width(type_name)
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

    def predicate_row(self, operand: object) -> str:
        if isinstance(operand, Negated):
            return f"~{self.predicate_row(operand.register)}"
        if isinstance(operand, Immediate):
            return "lanes(FULL)" if operand.value else "lanes(0)"
        text = self.name(operand)
        kind = self.kind_of(operand)
        return {"uniform": f"lanes(FULL if {text} else 0)", "bits": f"lanes({text})", "lanes": text}[kind]

    def predicate_bits(self, operand: object) -> str:
        """The lanes in which a predicate holds, as a mask."""
        if isinstance(operand, Negated):
            return f"({self.predicate_bits(operand.register)} ^ FULL)"
        if isinstance(operand, Immediate):
            return "FULL" if operand.value else "0"
        text = self.name(operand)
        kind = self.kind_of(operand)
        return {"uniform": f"(FULL if {text} else 0)", "bits": text, "lanes": f"bits_of({text})"}[kind]

    def boolean(self, operand: object) -> str:
        """A bool for the active lanes, which must agree on it."""
        if isinstance(operand, Negated):
            return f"(not {self.boolean(operand.register)})"
        if isinstance(operand, Immediate):
            return str(bool(operand.value))
        if self.kind_of(operand) == "uniform":
            return self.name(operand)
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

    # Destinations

    def assign(self, operand: object, expression: str, kind: str) -> None:
        """Write a value of a kind ("uniform", "lanes" or "bits") to a register; `_` takes none."""
        if operand is SINK or operand == SINK:
            self.line(expression)
            return
        register, target = operand, self.flow.kinds[operand.name]
        width = register.width
        if kind == "uniform" and target != "uniform":
            if width == 1:
                expression = f"(FULL if {expression} else 0)"
                kind = "bits"
            else:
                expression = f"row_of({expression}, {width})"
        if kind == "bits" and target == "lanes":
            expression = f"lanes({expression})"
        if target != "uniform" and register.name in self.flow.merged:
            new, old = self.temporary(), self.name(register)
            self.line(f"{new} = {expression}")
            if target == "bits":
                expression = f"{new} & {self.mask} | {old} & ~{self.mask}"
            else:
                expression = f"{new} if {self.mask} == FULL else where(lanes({self.mask}), {new}, {old})"
        self.line(f"r{self.numbers[register.name]} = {expression}")
        self.defined.add(register.name)

    def assign_parts(self, operand: object, expression: str, kind: str) -> None:
        """Write the items of a sequence to the items of a vector operand."""
        items = operand.items if isinstance(operand, Vector) else (operand,)
        source = self.temporary()
        self.line(f"{source} = {expression}")
        for i, item in enumerate(items):
            if item != SINK:
                self.assign(item, f"{source}[{i}]", kind)

    # Whole instructions

    def compute(
        self, instruction: Instruction, type_name: str, scalar: str | None, lanes: str, sources: str, result: str | None
    ) -> None:
        destination, operands = instruction.operands[0], instruction.operands[1:]
        if len(operands) > len(sources):
            raise self.fail(f"{len(operands)} source operands, {len(sources)} expected")
        width = type_width(type_name)
        wide = f"{type_name[0]}{2 * width}"
        types = {"u": "u32", "i": "s32", "p": "pred", "w": wide, "q": f"u{width}"}
        typed = [types.get(letter, type_name) for letter in sources[: len(operands)]]
        names = dict(zip("abcde", typed))
        result = {None: type_name, "wide": wide, "unsigned": f"u{width}"}.get(result, result)
        facts = {"n": width, "signed": type_name[0] == "s"}
        if self.kind == "uniform" and scalar is not None:
            texts = {
                key: self.boolean(operand) if names[key] == "pred" else self.integer(operand, names[key])
                for key, operand in zip("abcde", operands)
            }
            expression = _CLAMP.sub(lambda found: str(min(map(int, found.groups()))), scalar.format(**facts, **texts))
            if result != "pred" and (result[0] == "s" or re.search(r"[-+*~(]|<<", scalar)):
                expression = f"({expression}) & {(1 << type_width(result)) - 1}"
            self.assign(destination, expression, "uniform")
            return
        first_row = scalar is None or all(self.is_uniform(operand) for operand in operands)
        texts = {
            key: self.lanes(operand, names[key], row=first_row and i == 0)
            for i, (key, operand) in enumerate(zip("abcde", operands))
        }
        expression = lanes.format(**facts, **texts)
        if result != "pred" and result[0] not in "ub":
            expression = f"({expression}).view(u{type_width(result)})"
        self.assign(destination, expression, "lanes")

    def call(self, instruction: Instruction, match: re.Match, template: str) -> None:
        """Emit `template`, an expression, as a call. It may name, in braces: g, m (mask), pc, who; groups of the
        opcode's match (as Python literals; `{name:b}` whether the group is there); and operands by index with a form:
        `{1:i}` one integer for the active lanes, `{1:l}` the same of 64 bits, `{1:v}` an integer or a row, `{1:a}` an
        address as one integer, `{1:x}` an address as integer or row, `{1:c}` the coordinates of a tensor address,
        `{1:p}` one bool, `{1:r}` a list of rows or integers. Operands that are not there are None."""
        destination = instruction.operands[0] if instruction.operands else None
        expression = self.fill(instruction, match, template)
        if self.waits:
            for test, waiting in WAITING_FORMS.items():
                expression = expression.replace(test, waiting)
            self.line(f"if not {expression}: return {~self.pc}")
            expression = "True"
        if self.writes and isinstance(destination, Register):
            self.assign(destination, expression, self.kind)
        elif not self.waits:
            self.line(expression)

    def fill(self, instruction: Instruction, match: re.Match, template: str) -> str:
        fixed = {"g": "g", "m": self.mask, "pc": str(self.pc), "who": f"(g, {self.pc})"}

        def replace(found: re.Match) -> str:
            name, form = found.groups()
            if name in fixed:
                return fixed[name]
            if not name.isdigit():
                text = match.group(name)
                return str(text is not None) if form == "b" else text if text and text.isdigit() else repr(text)
            index = int(name)
            operand = instruction.operands[index] if index < len(instruction.operands) else None
            return self.form(operand, form)

        return re.sub(r"\{(\w+)(?::(\w))?\}", replace, template)

    def form(self, operand: object, form: str) -> str:
        if operand is None:
            return "None"
        if form in "il":
            return self.single(operand, 32 if form == "i" else 64)
        if form == "v":
            return self.value(operand)
        if form in "ax":
            if not isinstance(operand, Address):
                raise self.fail(f"an address is expected, not {operand}")
            text = self.address(operand)
            return text if form == "x" or self.flow.kind_of(operand.base) == "uniform" else f"pick({text}, {self.mask})"
        if form == "c":
            return self.coordinates(operand.coordinates or ())
        if form == "p":
            return self.boolean(operand)
        if form == "r":
            items = operand.items if isinstance(operand, Vector) else (operand,)
            return "[" + ", ".join(self.value(item) for item in items) + "]"
        raise self.fail(f"unknown operand form {form!r}")
