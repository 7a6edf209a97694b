"""Calls of Python as text, with their destinations; `compiler.sources` writes the source operands.

The text names register i `r<i>`, the active group that runs it `g`, and the mask of active lanes, an integer, `m`. A
uniform register is an unsigned integer (a bool for a predicate), any other a row (`arithmetic.lanes`), and a predicate
of kind "bits" a mask.
"""

from __future__ import annotations

import re

from nogpu.compiler.flow import Flow
from nogpu.compiler.sources import Sources
from nogpu.ptx.ir import SINK, Instruction, Pair, Register, items_of
from nogpu.ptx.types import type_width

# A test becomes a wait if its loop does nothing else.
WAITING_FORMS = {"mbarrier.test_parity(": "mbarrier.wait_parity(", "mbarrier.test_state(": "mbarrier.wait_state("}


class Code(Sources):
    """The text of one instruction, which `python_rows` makes a function."""

    def __init__(self, flow: Flow, numbers: dict[str, int], symbols: dict[str, tuple[str, int]]) -> None:
        super().__init__(flow, numbers, symbols)
        self.lines: list[str] = []
        self.pc = 0
        """Index of the instruction."""
        self.kind = "uniform"
        """Kind of the result: "uniform", "lanes" or "bits"."""
        self.writes = 0
        """Number of the destinations."""
        self.waits = False
        """True if the instruction may have to wait."""
        self._temporaries = 0

    def line(self, text: str) -> None:
        self.lines.append(f"    {text}")

    def temporary(self) -> str:
        """The name of a new local variable."""
        self._temporaries += 1
        return f"t{self._temporaries}"

    # Destinations

    def assign(self, operand: object, expression: str, kind: str) -> None:
        """Emits the assignment of a value of a kind ("uniform", "lanes" or "bits") to a register.

        For `_` it emits only the evaluation of the expression.
        """
        if operand == SINK:
            self.line(expression)
            return
        register = self.register(operand)
        target, width = self.flow.kinds[register.name], register.width
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
        """Emits the assignment of a sequence to the items of a vector or pair, or of its first item to a register."""
        items = (operand.first, operand.second) if isinstance(operand, Pair) else items_of(operand)
        source = self.temporary()
        self.line(f"{source} = {expression}")
        for i, item in enumerate(items):
            if item != SINK:
                self.assign(item, f"{source}[{i}]", kind)

    # Whole instructions

    def call(self, instruction: Instruction, match: re.Match, template: str, parts: bool = False) -> None:
        """Emits a call. In the template, names in braces stand for

        - `{g}`, `{m}` (the mask), `{pc}`, `{issuer}`, a tuple of g and pc;
        - groups of the opcode's match, as Python literals: `{name}`, or `{name:b}`, True if the group is there;
        - operands by index, with a form: `{1:v}` an integer or a row of 32 bits, `{1:q}` of 64, `{1:t}` of the
          opcode's type, `{1:s}` the items of a vector as rows of that type, `{1:p}` a predicate as a mask, `{1:i}` one
          32-bit integer for the active lanes, `{1:l}` one 64-bit integer, `{1:x}` an address as an integer or a row,
          `{1:a}` an address as one integer.

        Operands that the instruction does not have are None. parts: the result is a sequence, as in `assign_parts`.
        """
        destination = instruction.operands[0] if instruction.operands else None
        expression = self.fill(instruction, match, template)
        if self.waits:
            for test, waiting in WAITING_FORMS.items():
                expression = expression.replace(test, waiting)
            self.line(f"if not {expression}: return {~self.pc}")
            expression = "True"
        if parts:
            self.assign_parts(destination, expression, self.kind)
        elif self.writes and isinstance(destination, Register):
            self.assign(destination, expression, self.kind)
        elif not self.waits:
            self.line(expression)

    def fill(self, instruction: Instruction, match: re.Match, template: str) -> str:
        """The template with each name in braces replaced by its text."""
        fixed = {"g": "g", "m": self.mask, "pc": str(self.pc), "issuer": f"(g, {self.pc})"}

        def replace(found: re.Match) -> str:
            name, form = found.groups()
            if name in fixed:
                return fixed[name]
            if not name.isdigit():
                text = match.group(name)
                return str(text is not None) if form == "b" else text if text and text.isdigit() else repr(text)
            index = int(name)
            operand = instruction.operands[index] if index < len(instruction.operands) else None
            return self.form(operand, form, match.groupdict().get("type") or "b32")

        return re.sub(r"\{(\w+)(?::(\w))?\}", replace, template)

    def form(self, operand: object, form: str, type_name: str) -> str:
        """The text of an operand in a form that `call` names. type_name: the opcode's type."""
        if operand is None:
            return "None"
        if form in "il":
            return self.single(operand, 32 if form == "i" else 64)
        if form in "vq":
            return self.value(operand, 32 if form == "v" else 64)
        if form == "t":
            return self.value(operand, type_width(type_name), type_name)
        if form == "s":
            return self.stack(items_of(operand), type_name)
        if form == "p":
            return self.predicate_bits(operand)
        if form in "ax":
            text = self.address(operand)
            return text if form == "x" or self.flow.kind_of(operand) == "uniform" else f"pick({text}, {self.mask})"
        raise self.fail(f"unknown operand form {form!r}")
