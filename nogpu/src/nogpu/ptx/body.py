"""The body of an entry or device function: a walk over its statements with a stack of scopes.

An inline-assembly block or call sequence (`{ ... }`) opens a scope of its own for registers, variables and labels;
their names are made unique in the body. `.loc` lines become `Instruction.source`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from nogpu.errors import EmulatorError
from nogpu.ptx.expressions import constant, whole
from nogpu.ptx.ir import (
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
from nogpu.ptx.literals import integer
from nogpu.ptx.syntax import NAME, VARIABLE, instruction, split, variable
from nogpu.ptx.types import SPECIAL_REGISTERS, type_width

REGISTER_LIMIT = 1 << 20  # registers of a body
OFFSET_BITS = 32  # signed bits of the constant in an address (PTX ISA, "Addresses as Operands")
_STATEMENT = re.compile(
    rf"(?P<loc>\.loc\b[^\n{{}};]*)|(?P<label>{NAME})\s*:(?!:)|(?P<open>\{{)|(?P<close>\}})|(?P<text>[^;{{}}][^;]*);"
)
_BLANK = re.compile(r"\s*")
_LOC = re.compile(r"\.loc\s+(\d+\s+\d+\s+\d+)(?:[^\n]*?\binlined_at\s+(\d+\s+\d+\s+\d+))?")
_OF_THE_TOOLKIT = re.compile(r"/(?:nvidia/cu|cuda)[^/]*/(?:.*/)?include/")  # a path of CUDA's own headers
_REGISTERS = re.compile(
    r"\.reg\s*(?:\.align\s+\d+\s+)?(?:\.v(?P<count>[24])\s*)?"
    r"\.(?P<type>pred|b(?:8|16|32|64|128)|[us](?:8|16|32|64)|f(?:16x2|16|32|64))\s+(?P<names>.*)",
    re.S,
)
_ELEMENTS = ("xyzw", "rgba")  # names of a vector register's elements
_FAMILY = re.compile(rf"({NAME}|%)<\s*(\d+)\s*>")
_PROTOTYPE = re.compile(r"(?:\([^()]*\)\s*)?_\s*(?:\([^()]*\)\s*)?(?:\.[a-z][\w\s,.]*)?")
_PRAGMA = re.compile(r'\.pragma\s*"[^"\n]*"')
_ADDRESS = re.compile(r"\s*([^+]*?)\s*(?:\+\s*(.+?)\s*)?", re.S)

_CLOSING = {"[": "]", "{": "}", "(": ")"}
_CONSTANT_STARTS = "0123456789.(+-~!W"  # first characters of constant expressions

_Statement = tuple[str, str, int, str | None, Place]
"""Tuple (kind: a group of _STATEMENT, text, line of the PTX text, "file.py:line" if known, place in the text)."""


class _Scope:
    """The declarations between a pair of braces."""

    def __init__(self, number: int = 0):
        self.number = number  # 0 for the body itself
        self.suffix = f"@{number}" if number else ""  # suffix that makes names unique in the body
        self.declared: dict[str, Register | Vector | Variable] = {}


class BodyParser:
    """Fills `body` from the text at `body.inside`. Raises EmulatorError with the line.

    files: the module's `.file` numbers -> names. line_starts: offsets of the text's lines.
    """

    def __init__(self, text: str, body: Body, files: dict[int, str], line_starts: list[int]):
        self.body, self.files, self.line_starts = body, files, line_starts
        results = body.results if isinstance(body, Function) else []
        self.module = body.scope or Scope()
        self.parameters = {param.name for param in (*body.params, *results)}
        self.known = set(self.parameters)
        self.scopes = [_Scope()]
        self.opened = 0
        self.last_label = ""
        self.label_scopes: dict[int, dict[str, str]] = {0: {}}  # number of a scope -> label -> unique name
        self.sources: dict[tuple[str, ...], str] = {}  # place of a .loc -> result of `_source`
        for statement in self._statements(text, *body.inside):
            self._statement(*statement)

    def _fail(self, reason: str, line: int, text: str | None = None, source: str | None = None) -> EmulatorError:
        return EmulatorError(reason, kernel=self.body.name, ptx_line=line, ptx_text=text, source=source)

    def _statements(self, text: str, position: int, end: int) -> list[_Statement]:
        """The statements in order. Labels are bound to scopes at once, because uses may precede them."""
        statements: list[_Statement] = []
        source: str | None = None
        line, line_starts, scope_id, stack = 0, self.line_starts, 0, [0]
        while (start := _BLANK.match(text, position, end).end()) < end:  # type: ignore[union-attr]
            while line < len(line_starts) and line_starts[line] <= start:
                line += 1
            match = _STATEMENT.match(text, start, end)
            if match is None or match.lastgroup is None:
                rest = text[start:end].partition("\n")[0].strip()
                reason = f"syntax not understood: a semicolon is missing behind {rest!r}"
                if rest.startswith(";"):
                    reason = "syntax not understood: a statement is missing in front of the semicolon"
                raise self._fail(reason, line, rest)
            kind, value, position = match.lastgroup, match.group(match.lastgroup), match.end()
            if kind == "loc":
                loc = _LOC.match(value)
                source = self._source(*loc.groups()) if loc else source
                continue
            if kind == "open":
                scope_id += 1
                stack.append(scope_id)
                self.label_scopes[scope_id] = {}
            elif kind == "close":
                if len(stack) == 1:
                    raise self._fail("unbalanced braces: no brace is open here", line)
                stack.pop()
            elif kind == "label":
                scope = stack[-1]
                if value in self.label_scopes[scope]:
                    raise self._fail(f"label {value} stands twice", line)
                self.label_scopes[scope][value] = value if scope == 0 else f"{value}@{scope}"
            statements.append((kind, value.strip(), line, source, Place(start, position)))
        if len(stack) > 1:
            raise self._fail("unbalanced braces: a block is not closed", line)
        return statements

    def _source(self, place: str, caller: str | None) -> str:
        """The line of a .loc, as "file.py:line". For code inlined from CUDA's headers, the line that calls it."""
        file, line, column = place.split()
        source = f"{self.files.get(int(file), '?')}:{line}"
        if caller is not None and _OF_THE_TOOLKIT.search(source):
            known = self.sources.get(tuple(caller.split()))
            source = known or self._source(caller, None)
        self.sources[file, line, column] = source
        return source

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
                raise self._fail(str(error), line, " ".join(value.split()), source) from None

    def _directive(self, text: str) -> None:
        registers = _REGISTERS.fullmatch(text)
        declared = VARIABLE.fullmatch(text)
        if registers:
            for name in registers["names"].split(","):
                self._declare(name.strip(), type_width(registers["type"]), int(registers["count"] or 1))
        elif declared:
            parsed = variable(declared)
            if parsed.extern:
                raise ValueError(".extern variables stand outside of functions")
            unique = replace(parsed, name=parsed.name + self.scopes[-1].suffix)
            if parsed.space in ("global", "const"):
                unique = replace(unique, name=f"{self.body.name}::{unique.name}")
                self._check_relocations(parsed)
                self.module.variables[unique.name] = unique
            else:
                self.body.variables[unique.name] = unique
            self._bind(parsed.name, unique)
        elif text.startswith((".branchtargets", ".callprototype", ".calltargets")):
            self._list(*text.split(maxsplit=1))
        elif not _PRAGMA.fullmatch(text):
            raise ValueError("directive not understood")

    def _list(self, directive: str, text: str = "") -> None:
        """Read the targets of a branch, or the prototype or targets of a call, under the label in front."""
        if self.body.labels.get(self.last_label) != len(self.body.instructions):
            raise ValueError(f"{directive} without a label in front (PTX ISA, {directive})")
        if directive == ".branchtargets":
            targets = [self._label(name.strip()) for name in text.split(",")]
            for target in targets:
                if not any(target in labels.values() for labels in self.label_scopes.values()):
                    raise ValueError(f"branch target {target!r} is no label")
            self.body.branch_targets[self.last_label] = targets
            return
        if directive == ".callprototype":
            understood = _PROTOTYPE.fullmatch(text) is not None
        else:
            understood = all(name.strip() in self.module.functions for name in text.split(","))
        if not understood:
            raise ValueError(f"{directive} {text}".rstrip() + " not understood")
        self.known.add(self.last_label)

    def _check_relocations(self, variable: Variable) -> None:
        """Raise ValueError if a variable holds an address of something that is not at module level."""
        for relocation in variable.relocations:
            other = self.module.variables.get(relocation.name)
            is_variable = other is not None and other.space in ("global", "const")
            if not is_variable and relocation.name not in self.module.functions:
                raise ValueError(
                    f"variable {variable.name} holds the address of {relocation.name}, which is no .global or .const "
                    "variable and no function of the module (PTX ISA, Initializers)"
                )

    def _declare(self, name: str, width: int, elements: int = 1) -> None:
        family = _FAMILY.fullmatch(name)
        if family is None and not re.fullmatch(NAME, name):
            raise ValueError(f"{name!r} is no name of a register")
        count = integer(family[2]) if family else 1
        if width == 1 and elements > 1:
            raise ValueError(f"{name}: predicates are no vectors (PTX ISA, Vectors)")
        count *= elements
        if len(self.body.registers) + count > REGISTER_LIMIT:
            raise ValueError(f"{name} declares {count} registers; a body can have {REGISTER_LIMIT} in the emulator")
        for each in (f"{family[1]}{i}" for i in range(count // elements)) if family else (name,):
            if elements == 1:
                self._bind(each, self._register(each, width))
                continue
            parts = tuple(self._register(f"{each}.{letter}", width) for letter in _ELEMENTS[0][:elements])
            self._bind(each, Vector(parts))
            for letters in _ELEMENTS:
                for letter, part in zip(letters, parts):
                    self._bind(f"{each}.{letter}", part)

    def _register(self, name: str, width: int) -> Register:
        register = Register(name + self.scopes[-1].suffix, width)
        self.body.registers[register.name] = register
        return register

    def _bind(self, name: str, declared: Register | Vector | Variable) -> None:
        if name in self.scopes[-1].declared or (len(self.scopes) == 1 and name in self.parameters):
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
            if name in module.kernels:
                raise ValueError(f"the address of kernel {name}, in a module that declares no function __cudaCDP2...")
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

    def _lookup(self, name: str) -> Register | Vector | Variable | None:
        for scope in reversed(self.scopes):
            if name in scope.declared:
                return scope.declared[name]
        return None

    def _operand(self, text: str) -> object:
        """The operand that a text means. Raises ValueError for a text that is not understood."""
        text = text.strip()
        if text[:1] in _CONSTANT_STARTS and not _is_list(text):
            value = constant(text)
            if value is not None:
                return value
        if text[:1] in _CLOSING and (len(text) == 1 or text[-1] != _CLOSING[text[0]]):
            raise ValueError(f"operand {text!r} does not end in {_CLOSING[text[0]]!r}")
        if text.startswith("["):
            return self._address(text[1:-1])
        if text.startswith(("{", "(")):
            inner = text[1:-1].strip()
            return Vector(tuple(self._single(part) for part in split(inner)) if inner else ())
        if "|" in text:
            parts = text.split("|")
            if len(parts) != 2:
                raise ValueError(f"operand {text!r} has {len(parts)} parts, d|p has two")
            return Pair(self._single(parts[0]), self._single(parts[1]))
        return self._single(text)

    def _single(self, text: str) -> object:
        """The operand of a text that is no address, vector or pair."""
        text = text.strip()
        if text == "_":
            return SINK
        if text.startswith("!"):
            return Negated(self._predicate(text[1:].strip()))
        found = self._lookup(text)
        if isinstance(found, Variable):
            return Symbol(found.name)
        if found is not None:
            return found
        if text in SPECIAL_REGISTERS:
            return Special(text)
        value = constant(text)
        if value is not None:
            return value
        if re.fullmatch(NAME, text):
            if text.startswith("%"):
                raise ValueError(f"register {text!r} is neither declared nor a special register that is modelled")
            return Symbol(self._symbol(text))
        offset = re.fullmatch(rf"({NAME})\s*\+\s*(.+)", text, re.S)
        if offset:
            base = self._single(offset.group(1))
            if not isinstance(base, Symbol) or base == SINK:
                raise ValueError(f"operand {text!r} not understood: only a variable's address can have an offset")
            return Address(base, _offset(offset.group(2)), direct=True)
        raise ValueError(f"operand {text!r} not understood")

    def _address(self, text: str) -> Address:
        parts = split(text)
        coordinates = None
        if len(parts) > 2:
            raise ValueError(f"address [{text.strip()}] not understood")
        if len(parts) == 2:
            vector = self._operand(parts[1])
            if not isinstance(vector, Vector) or not vector.items:
                raise ValueError(f"address [{text.strip()}]: coordinates in braces are expected behind the comma")
            coordinates = vector.items
        match = _ADDRESS.fullmatch(parts[0])
        if match is None:
            raise ValueError(f"address [{text.strip()}] not understood")
        base, offset = match.groups()
        if offset is not None and constant(offset) is None:
            raise ValueError(
                f"address [{text.strip()}] not understood: a register or variable and a constant are expected"
            )
        found = self._single(base)
        if not isinstance(found, (Register, Symbol, Immediate)) or found == SINK:
            raise ValueError(f"address [{text.strip()}] not understood")
        return Address(found, _offset(offset) if offset else 0, coordinates)


def _is_list(text: str) -> bool:
    """True if parentheses enclose the whole text: the results or arguments of a call."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return character == ")" and index == len(text) - 1
    return False


def _offset(text: str) -> int:
    """The constant in an address. Raises ValueError unless it is a signed number of OFFSET_BITS bits."""
    value = whole(text)
    if not -(1 << OFFSET_BITS - 1) <= value < 1 << OFFSET_BITS - 1:
        raise ValueError(
            f"offset {value} of an address does not fit {OFFSET_BITS} signed bits (PTX ISA, Addresses as Operands)"
        )
    return value
