"""The body of an entry or device function: a walk over its statements with a stack of scopes.

An inline-assembly block or call sequence (`{ ... }`) opens a scope of its own for registers, variables and labels;
their names are made unique in the body. `.loc` lines become `Instruction.source`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from emulator.errors import EmulatorError
from emulator.ptx.ir import (
    SINK,
    Address,
    Body,
    Function,
    Immediate,
    Instruction,
    Negated,
    Pair,
    Place,
    Predicate,
    Register,
    Scope,
    Special,
    Symbol,
    Variable,
    Vector,
)
from emulator.ptx.syntax import NAME, VARIABLE, instruction, integer, number, split, variable
from emulator.ptx.types import SPECIAL_REGISTERS

_STATEMENT = re.compile(
    rf"\s*(?:(?P<loc>\.loc\b[^\n]*)|(?P<file>\.file\b[^\n]*)|(?P<label>{NAME})\s*:(?!:)|(?P<open>\{{)|(?P<close>\}})"
    r"|(?P<text>[^;{}][^;]*);|(?P<end>\Z))"
)
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)")
_REGISTERS = re.compile(r"\.reg\s+\.(pred|[busf]\d+)\s+(.*)", re.S)


_ADDRESS = re.compile(r"\s*([^+]*?)\s*(?:(\+)\s*(-?\w+)\s*)?")

_Statement = tuple[str, str, int, str | None, Place]
"""(kind: a group of _STATEMENT, text, line of the PTX text, "file.py:line" where it is known, place in the text)."""


class _Scope:
    """The declarations between a pair of braces."""

    def __init__(self, number: int = 0):
        self.number = number  # 0: the body itself
        self.suffix = f"@{number}" if number else ""  # makes names unique in the body
        self.declared: dict[str, Register | Variable] = {}


class BodyParser:
    """Fills `body` from the text at `body.inside`. Raises EmulatorError with the line.

    files: the module's `.file` numbers -> names. line_starts: offsets of the text's lines.
    """

    def __init__(self, text: str, body: Body, files: dict[int, str], line_starts: list[int]):
        self.body, self.files, self.line_starts = body, files, line_starts
        results = body.results if isinstance(body, Function) else []
        self.module = body.scope or Scope()
        self.known = {param.name for param in (*body.params, *results)}
        self.scopes = [_Scope()]
        self.opened = 0
        self.last_label = ""
        self.label_scopes: dict[int, dict[str, str]] = {0: {}}  # number of a scope -> label -> unique name
        for statement in self._statements(text, *body.inside):
            self._statement(*statement)

    def _statements(self, text: str, position: int, end: int) -> list[_Statement]:
        """The statements in order. Labels are bound to scopes here, so that they can be used before they appear."""
        statements: list[_Statement] = []
        source: str | None = None
        line, line_starts, scope_id, stack = 0, self.line_starts, 0, [0]
        while position < end:
            match = _STATEMENT.match(text, position, end)
            if match is None or match.lastgroup is None:
                raise EmulatorError("syntax not understood", ptx_line=text.count("\n", 0, position) + 1)
            kind, value, position = match.lastgroup, match.group(match.lastgroup), match.end()
            start = match.start(kind)
            while line < len(line_starts) and line_starts[line] <= start:
                line += 1
            if kind == "loc":
                loc = _LOC.match(value)
                source = f"{self.files.get(int(loc.group(1)), '?')}:{loc.group(2)}" if loc else source
                continue
            if kind == "file":
                continue
            if kind == "end":
                break
            if kind == "open":
                scope_id += 1
                stack.append(scope_id)
                self.label_scopes[scope_id] = {}
            elif kind == "close":
                stack.pop()
            elif kind == "label":
                scope = stack[-1]
                if value in self.label_scopes[scope]:
                    raise EmulatorError(f"label {value} stands twice", kernel=self.body.name, ptx_line=line)
                self.label_scopes[scope][value] = value if scope == 0 else f"{value}@{scope}"
            statements.append((kind, value.strip(), line, source, Place(start, position)))
        return statements

    def _statement(self, kind: str, value: str, line: int, source: str | None, place: Place) -> None:
        if kind == "open":
            self.opened += 1
            self.scopes.append(_Scope(self.opened))
        elif kind == "close":
            self.scopes.pop()
        elif kind == "label":
            self.last_label = self._label(value)
            self.body.labels[self.last_label] = len(self.body.instructions)
        else:
            try:
                if value.startswith("."):
                    self._directive(value)
                else:
                    self._instruction(value, line, source, place)
            except ValueError as error:
                raise EmulatorError(
                    str(error), kernel=self.body.name, ptx_line=line, ptx_text=" ".join(value.split()), source=source
                ) from None

    def _directive(self, text: str) -> None:
        registers = _REGISTERS.fullmatch(text)
        declared = VARIABLE.fullmatch(text)
        if registers:
            kind, names = registers.groups()
            width = 1 if kind == "pred" else int(kind[1:])
            for name in names.split(","):
                self._declare(name.strip(), width)
        elif declared:
            parsed = variable(declared)
            unique = replace(parsed, name=parsed.name + self.scopes[-1].suffix)
            self._bind(parsed.name, unique)
            self.body.variables[unique.name] = unique
        elif text.startswith(".branchtargets"):
            targets = [self._label(name.strip()) for name in text.removeprefix(".branchtargets").split(",")]
            self.body.branch_targets[self.last_label] = targets
        elif text.startswith((".callprototype", ".calltargets")):
            self.known.add(self.last_label)
        elif not text.startswith(".pragma"):
            raise ValueError("directive not understood")

    def _declare(self, name: str, width: int) -> None:
        family = re.fullmatch(r"(.*)<(\d+)>", name)
        names = [f"{family.group(1)}{i}" for i in range(int(family.group(2)))] if family else [name]
        suffix = self.scopes[-1].suffix
        for name in names:
            register = Register(name + suffix, width)
            self._bind(name, register)
            self.body.registers[register.name] = register

    def _bind(self, name: str, declared: Register | Variable) -> None:
        if name in self.scopes[-1].declared:
            raise ValueError(f"{name} is declared twice")
        self.scopes[-1].declared[name] = declared

    def _label(self, name: str) -> str:
        for scope in reversed(self.scopes):
            label = self.label_scopes[scope.number].get(name)
            if label is not None:
                return label
        return name

    def _symbol(self, name: str) -> str:
        """The unique name of a label, parameter, function or variable of the module."""
        label, module = self._label(name), self.module
        declared = name in self.known or name in module.variables or name in module.functions
        if label == name and name not in self.label_scopes[0] and not declared:
            raise ValueError(f"{name!r} is not declared")
        return label

    def _instruction(self, text: str, line: int, source: str | None, place: Place) -> None:
        guard, opcode, parts = instruction(text)
        predicate = Predicate(self._predicate(guard.lstrip("@!")), guard.startswith("@!")) if guard else None
        operands = tuple(self._operand(part) for part in parts)
        one_line = " ".join(text.split())
        self.body.instructions.append(Instruction(opcode, operands, predicate, line, one_line, source, place))

    def _predicate(self, name: str) -> Register:
        found = self._lookup(name)
        if not isinstance(found, Register):
            raise ValueError(f"register {name!r} is not declared")
        if found.width != 1:
            raise ValueError(f"register {name!r} has {found.width} bits; a predicate is expected")
        return found

    def _lookup(self, name: str) -> Register | Variable | None:
        for scope in reversed(self.scopes):
            if name in scope.declared:
                return scope.declared[name]
        return None

    def _operand(self, text: str) -> object:
        """The operand that the text of one means. ValueError if it is not understood."""
        text = text.strip()
        if text == "_":
            return SINK
        if text.startswith("["):
            return self._address(text[1:-1])
        if text.startswith(("{", "(")):
            inner = text[1:-1].strip()
            return Vector(tuple(self._operand(part) for part in split(inner)) if inner else ())
        if "|" in text:
            first, second = text.split("|")
            return Pair(self._operand(first), self._operand(second))
        if text.startswith("!"):
            return Negated(self._predicate(text[1:].strip()))
        found = self._lookup(text)
        if isinstance(found, Variable):
            return Symbol(found.name)
        if found is not None:
            return found
        if text in SPECIAL_REGISTERS:
            return Special(text)
        literal = number(text)
        if literal is not None:
            return literal
        if re.fullmatch(NAME, text):
            if text.startswith("%"):
                raise ValueError(f"register {text!r} is neither declared nor a special register that is modelled")
            return Symbol(self._symbol(text))
        offset = re.fullmatch(rf"({NAME})\s*\+\s*(-?\w+)", text)
        if offset:
            return Address(self._operand(offset.group(1)), integer(offset.group(2)))
        raise ValueError(f"operand {text!r} not understood")

    def _address(self, text: str) -> Address:
        parts = split(text)
        coordinates = None
        if len(parts) > 1:
            vector = self._operand(parts[1])
            coordinates = vector.items if isinstance(vector, Vector) else (vector,)
        match = _ADDRESS.fullmatch(parts[0])
        if match is None:
            raise ValueError(f"address [{text.strip()}] not understood")
        base, sign, offset = match.groups()
        if sign is None and re.fullmatch(rf"{NAME}\s*-\s*\w+", base):
            base, offset = base.split("-")
            offset = "-" + offset.strip()
        found = self._operand(base)
        if not isinstance(found, (Register, Symbol, Immediate)):
            raise ValueError(f"address [{text.strip()}] not understood")
        return Address(found, integer(offset) if offset else 0, coordinates)
