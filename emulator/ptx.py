"""PTX text -> Module: entries, their parameters, variables and instructions with parsed operands.

Only the syntax is handled here. Inline-assembly blocks (`{ ... }`) open a scope of their own for registers and
labels, as in PTX; every register and label gets a name that is unique in its entry. `.loc` lines become
`Instruction.source`.
"""

from __future__ import annotations

import re
import struct

from emulator.errors import EmulatorError
from emulator.instructions import (
    SINK,
    Address,
    Entry,
    Immediate,
    Instruction,
    Module,
    Negated,
    Pair,
    Param,
    Predicate,
    Register,
    Special,
    Symbol,
    Variable,
    Vector,
)

__all__ = ["Entry", "Instruction", "Module", "Param", "parse"]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_NAME = r"[A-Za-z_$%][\w$%]*"
_TYPE_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}
_ENTRY = re.compile(rf"\.entry\s+({_NAME})\s*(?:\((.*?)\))?([^{{;]*)\{{", re.S)
_PARAM = re.compile(
    rf"\.param\s+(?:\.align\s+(\d+)\s+)?\.[busf](\d+)\s+(?:\.ptr[^,]*?\s)?({_NAME})\s*(?:\[(\d+)\])?$", re.S
)
_VARIABLE = re.compile(
    rf"(\.extern\s+)?(?:\.(?:visible|weak|common)\s+)?\.(shared|local|global|const)\s+(?:\.align\s+(\d+)\s+)?(?:\.attribute\([^)]*\)\s*)?"
    rf"\.[busf](\d+)\s+({_NAME})\s*((?:\[\d*\]\s*)*)(?:=\s*(.*))?$",
    re.S,
)
_STATEMENT = re.compile(
    rf"\s*(?:(?P<loc>\.loc\b[^\n]*)|(?P<label>{_NAME})\s*:(?!:)|(?P<open>\{{)|(?P<close>\}})|(?P<text>[^;{{}}][^;]*);|(?P<end>\Z))"
)
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)")
_REGISTERS = re.compile(r"\.reg\s+\.(pred|[busf]\d+)\s+(.*)", re.S)
_GUARD = re.compile(rf"@(!?)\s*({_NAME})\s+")
_OPERATION = re.compile(r"([a-z][\w.:]*)\s*(.*)", re.S)
_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_SPECIALS = {
    "tid ntid ctaid nctaid cluster_ctaid cluster_nctaid clusterid nclusterid": [".x", ".y", ".z"],
    "laneid warpid nwarpid smid nsmid gridid cluster_ctarank cluster_nctarank clock clock64 clock_hi globaltimer globaltimer_lo "
    "globaltimer_hi lanemask_eq lanemask_lt lanemask_le lanemask_gt lanemask_ge dynamic_smem_size total_smem_size "
    "is_explicit_cluster": [""],
}
SPECIALS = {f"%{name}{axis}" for names, axes in _SPECIALS.items() for name in names.split() for axis in axes}


def parse(text: str) -> Module:
    """Parse a PTX module. Raises EmulatorError with the line for syntax that is not known."""
    clean = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    version = re.search(r"\.version\s+([\d.]+)", clean)
    target = re.search(r"\.target\s+([\w, ]+)", clean)
    if version is None or target is None:
        raise EmulatorError("not a PTX module: .version or .target is missing")
    files = {int(number): name for number, name in _FILE.findall(clean)}
    bodies, outside, position = [], [], 0
    for match in _ENTRY.finditer(clean):
        if match.start() < position:
            continue
        end = _matching_brace(clean, match.end() - 1)
        start = clean.rfind("\n", 0, match.start()) + 1
        outside.append(clean[position:start])
        bodies.append((match, end))
        position = end + 1
    outside.append(clean[position:])
    shared_variables = _module_variables("".join(outside))
    entries = {}
    for match, end in bodies:
        entry = _EntryParser(clean, match, end, files, shared_variables).entry
        entries[entry.name] = entry
    return Module(entries, target.group(1).strip(), version.group(1))


def _matching_brace(text: str, start: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    raise EmulatorError("unbalanced braces", ptx_line=text.count("\n", 0, start) + 1)


def _module_variables(text: str) -> dict[str, Variable]:
    """Variables declared outside of the entries; function bodies and debug sections are not looked into."""
    variables = {}
    for statement in re.sub(r"(?<!=)(?<!= )\{[^{}]*\}", ";", text).split(";"):
        index = statement.find(".extern .shared")
        candidate = (
            statement[index:]
            if index >= 0
            else re.sub(r"^\s*\.(version|target|address_size|file)[^\n]*", "", statement, flags=re.M)
        )
        match = _VARIABLE.fullmatch(candidate.strip())
        if match:
            variable = _variable(match)
            variables[variable.name] = variable
    return variables


def _variable(match: re.Match) -> Variable:
    extern, space, align, bits, name, dims, initial = match.groups()
    element = _TYPE_BYTES[bits]
    count = 1
    for dim in re.findall(r"\[(\d*)\]", dims):
        count *= int(dim or 0)
    data = None
    if initial is not None:
        values = [int(value, 0) for value in re.findall(r"-?\w+", initial)]
        data = b"".join((value & ((1 << 8 * element) - 1)).to_bytes(element, "little") for value in values)
        data = data.ljust(count * element, b"\0")
    return Variable(name, space, count * element, int(align or element), extern is not None, data)


class _EntryParser:
    """Parses one entry: a walk over its statements with a stack of scopes."""

    def __init__(self, text: str, header: re.Match, end: int, files: dict[int, str], variables: dict[str, Variable]):
        name, params, directives = header.groups()
        self.line_starts = [0] + [match.end() for match in re.finditer("\n", text)]
        self.entry = Entry(name, [self._param(text.strip()) for text in (params or "").split(",") if text.strip()])
        self.entry.line = text.count("\n", 0, header.start()) + 1
        self.entry.variables.update(variables)
        reqntid = re.search(r"\.reqntid\s+([\d, ]+)", directives)
        if reqntid:
            sizes = [int(size) for size in reqntid.group(1).split(",")]
            self.entry.reqntid = tuple((sizes + [1, 1])[:3])
        self.files = files
        self.scopes: list[dict[str, object]] = [{}]
        self.unique = 0
        statements = self._statements(text, header.end(), end)
        self.known_names = {*self.label_scopes[0], *(param.name for param in self.entry.params)}
        for kind, value, line, source in statements:
            self._statement(kind, value, line, source)

    def _param(self, text: str) -> Param:
        match = _PARAM.fullmatch(text)
        if match is None:
            raise EmulatorError(f"parameter not understood: {text!r}")
        align, bits, name, count = match.groups()
        size = _TYPE_BYTES[bits]
        return Param(name, size * int(count) if count else size, int(align or size))

    def _statements(self, text: str, position: int, end: int) -> list[tuple[str, str, int, str | None]]:
        """The statements in order. Labels are bound to scopes here, so that they can be used before they appear."""
        statements, source, line, line_starts, scope_id, stack = [], None, 0, self.line_starts, 0, [0]
        self.label_scopes: dict[int, dict[str, str]] = {0: {}}
        while position < end:
            match = _STATEMENT.match(text, position, end)
            if match is None:
                raise EmulatorError("syntax not understood", ptx_line=text.count("\n", 0, position) + 1)
            kind, value, position = match.lastgroup, match.group(match.lastgroup), match.end()
            start = match.start(kind)
            while line < len(line_starts) and line_starts[line] <= start:
                line += 1
            if kind == "loc":
                loc = _LOC.match(value)
                source = f"{self.files.get(int(loc.group(1)), '?')}:{loc.group(2)}" if loc else source
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
                self.label_scopes[scope][value] = value if scope == 0 else f"{value}@{scope}"
            statements.append((kind, value.strip(), line, source))
        return statements

    def _statement(self, kind: str, value: str, line: int, source: str | None) -> None:
        if kind == "open":
            self.unique += 1
            self.scopes.append({"": self.unique})
        elif kind == "close":
            self.scopes.pop()
        elif kind == "label":
            self.entry.labels[self._label(value)] = len(self.entry.instructions)
            self.last_label = self._label(value)
        elif value.startswith("."):
            self._directive(value, line)
        else:
            self._instruction(value, line, source)

    def _directive(self, text: str, line: int) -> None:
        registers = _REGISTERS.fullmatch(text)
        variable = _VARIABLE.fullmatch(text)
        if registers:
            kind, names = registers.groups()
            width = 1 if kind == "pred" else int(kind[1:])
            for name in names.split(","):
                self._declare(name.strip(), width)
        elif variable:
            parsed = _variable(variable)
            self.entry.variables[parsed.name] = parsed
        elif text.startswith(".branchtargets"):
            targets = [self._label(name.strip()) for name in text.removeprefix(".branchtargets").split(",")]
            self.entry.branch_targets[self.last_label] = targets
        elif not text.startswith(".pragma"):
            raise EmulatorError("directive not understood", kernel=self.entry.name, ptx_line=line, ptx_text=text)

    def _declare(self, name: str, width: int) -> None:
        family = re.fullmatch(r"(.*)<(\d+)>", name)
        names = [f"{family.group(1)}{i}" for i in range(int(family.group(2)))] if family else [name]
        scope = self.scopes[-1]
        suffix = f"@{scope['']}" if "" in scope else ""
        for name in names:
            register = Register(name + suffix, width)
            scope[name] = register
            self.entry.registers[register.name] = register

    def _label(self, name: str) -> str:
        for scope in reversed(self.scopes):
            label = self.label_scopes[scope.get("", 0)].get(name)
            if label is not None:
                return label
        return name

    def _symbol(self, name: str) -> str:
        """The unique name of a label, parameter or variable."""
        label = self._label(name)
        if label == name and name not in self.known_names and name not in self.entry.variables:
            raise ValueError(f"{name!r} is not declared")
        return label

    def _instruction(self, text: str, line: int, source: str | None) -> None:
        statement, predicate = text, None
        guard = _GUARD.match(statement)
        try:
            if guard:
                predicate = Predicate(self._register(guard.group(2)), bool(guard.group(1)))
                statement = statement[guard.end() :]
            operation = _OPERATION.fullmatch(statement.strip())
            if operation is None:
                raise ValueError("statement not understood")
            opcode, rest = operation.groups()
            operands = tuple(self._operand(part) for part in _split(rest, ",")) if rest.strip() else ()
        except ValueError as error:
            raise EmulatorError(
                str(error), kernel=self.entry.name, ptx_line=line, ptx_text=text, source=source
            ) from None
        self.entry.instructions.append(Instruction(opcode, operands, predicate, line, " ".join(text.split()), source))

    def _register(self, name: str) -> Register:
        found = self._lookup(name)
        if not isinstance(found, Register):
            raise ValueError(f"register {name!r} is not declared")
        return found

    def _lookup(self, name: str) -> object | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def _operand(self, text: str) -> object:
        text = text.strip()
        if text == "_":
            return SINK
        if text.startswith("["):
            return self._address(text[1:-1])
        if text.startswith("{"):
            return Vector(tuple(self._operand(part) for part in _split(text[1:-1], ",")))
        if "|" in text:
            first, second = text.split("|")
            return Pair(self._operand(first), self._operand(second))
        if text.startswith("!"):
            return Negated(self._register(text[1:].strip()))
        found = self._lookup(text)
        if found is not None:
            return found
        if text in SPECIALS:
            return Special(text)
        number = _number(text)
        if number is not None:
            return number
        if re.fullmatch(_NAME, text):
            if text.startswith("%"):
                raise ValueError(f"register {text!r} is neither declared nor a special register that is modelled")
            return Symbol(self._symbol(text))
        offset = re.fullmatch(rf"({_NAME})\s*\+\s*(-?\w+)", text)
        if offset:
            return Address(self._operand(offset.group(1)), int(offset.group(2), 0))
        raise ValueError(f"operand {text!r} not understood")

    def _address(self, text: str) -> Address:
        parts = _split(text, ",")
        coordinates = None
        if len(parts) > 1:
            vector = self._operand(parts[1])
            coordinates = vector.items if isinstance(vector, Vector) else (vector,)
        base, sign, offset = re.fullmatch(r"\s*([^+]*?)\s*(?:(\+)\s*(-?\w+)\s*)?", parts[0]).groups()
        if sign is None and re.fullmatch(rf"{_NAME}\s*-\s*\w+", base):
            base, offset = base.split("-")
            offset = "-" + offset.strip()
        return Address(self._operand(base), int(offset.rstrip("U"), 0) if offset else 0, coordinates)


def _split(text: str, separator: str) -> list[str]:
    """Split at separators outside of brackets and braces."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        if character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
        elif character == separator and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return parts


def _number(text: str) -> Immediate | None:
    if _INTEGER.match(text):
        digits = text.rstrip("U")
        negative, digits = digits.startswith("-"), digits.lstrip("-")
        octal = re.fullmatch(r"0\d+", digits)
        value = int(digits, 8) if octal else int(digits, 0)
        return Immediate(-value if negative else value)
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        return Immediate(int(text[2:], 16), 32)
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
        return Immediate(int(text[2:], 16), 64)
    if re.fullmatch(r"-?\d+\.\d*([eE][-+]?\d+)?", text):
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
    return None
