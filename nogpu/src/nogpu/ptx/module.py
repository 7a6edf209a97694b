"""PTX text -> Module: entries and device functions with their parameters, variables and instructions.

The parser handles only syntax. The declarations outside of the bodies are in the module's `Scope`, which all bodies
share.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from nogpu.errors import EmulatorError
from nogpu.ptx.body import BodyParser
from nogpu.ptx.directives import function_directives, set_sizes
from nogpu.ptx.header import header
from nogpu.ptx.ir import Body, Entry, Function, Instruction, Module, Param, Place, Scope, Variable
from nogpu.ptx.syntax import NAME, VARIABLE, foreign_character, parameters, variable, without_comments

__all__ = ["Entry", "Instruction", "Module", "Param", "Variable", "parse"]

_OUTSIDE = re.compile(
    r'(?P<file>\.file\s+\d+\s+"[^"\n]*"(?:\s*,\s*\d+\s*,\s*\d+)?)'
    r"|(?P<section>\.section\s+\.?[\w.$]+\s*\{)"
    r"|(?P<head>(?:\.(?:visible|extern|weak|common)\s*)?\.(?:entry|func)\b(?:[^{};()]|\([^(){};]*\))*)(?P<opens>[{;])"
    r'|(?P<pragma>\.pragma\s*"[^"\n]*"\s*;)'
    r"|(?P<text>[^;{}][^;]*);"
)
HEAD = re.compile(
    rf"(?:\.(\w+)\s*)?\.(entry|func)\s*(?:\(([^()]*)\)\s*)?({NAME})\s*(?:\(([^()]*)\)\s*)?(\.[^()]*)?", re.S
)
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')
_BRACE = re.compile(r"[{}]")
_BLANK = re.compile(r"\s*")


def parse(text: str) -> Module:
    """Parse a PTX module. Raises EmulatorError with the line for unknown syntax.

    An entry or function that is not understood is refused alone: its body has an `error`.
    """
    return _ModuleParser(text).module


class Statement(NamedTuple):
    """A declaration, function or section of a module."""

    kind: str
    """"head" of an entry or function, "text" of a variable, "file", "section" or "pragma"."""
    text: str
    """The text ahead of a brace or semicolon."""
    place: Place
    """All of it."""
    inside: Place | None
    """The place between its braces; None if it has none."""


def statements(text: str, position: int) -> Iterator[Statement]:
    """Yields what a module's text without comments has from `position` on, outside of braces.

    Raises EmulatorError with the line for unknown syntax.
    """
    while (position := _BLANK.match(text, position).end()) < len(text):  # type: ignore[union-attr]
        match = _OUTSIDE.match(text, position)
        if match is None or match.lastgroup is None:
            raise _unread(text, position)
        start, position = position, match.end()
        kind = "head" if match["head"] else match.lastgroup
        inside = None
        if kind == "section" or match["opens"] == "{":
            end = _closing_brace(text, match.end() - 1)
            position, inside = end + 1, Place(match.end(), end)
        yield Statement(kind, match[kind], Place(start, position), inside)


def _failure(text: str, position: int, reason: str, statement: str | None = None) -> EmulatorError:
    line = text.count("\n", 0, position) + 1
    return EmulatorError(reason, ptx_line=line, ptx_text=None if statement is None else " ".join(statement.split()))


def _unread(text: str, position: int) -> EmulatorError:
    """The error for text at module level that begins no declaration, function or section."""
    line = text[position:].partition("\n")[0]
    if line.startswith("}"):
        return _failure(text, position, "surplus closing brace: no brace is open", line)
    return _failure(text, position, "syntax not understood", line)


def _closing_brace(text: str, start: int) -> int:
    depth = 0
    for match in _BRACE.finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    raise _failure(text, start, "unbalanced braces: this one is never closed")


class _ModuleParser:
    """Reads the declarations, then the bodies, which may use variables and functions that are declared behind them."""

    def __init__(self, text: str):
        self.text = without_comments(text.rstrip("\0"))  # the end of a C string, which DSL 4.5.2 includes
        foreign = foreign_character(self.text)
        if foreign is not None:
            raise self._fail(foreign, f"character {self.text[foreign]!r}: PTX is ASCII (PTX ISA, Source Format)")
        start = header(self.text)
        self.line_starts = [0] + [match.end() for match in re.finditer("\n", self.text)]
        self.scope = Scope()
        self.entries: dict[str, Entry] = {}
        self.initialised: list[tuple[Variable, int]] = []  # variables that hold addresses, and their places
        bodies = self._outside(start.end)
        self._check_addresses()
        files = {int(number): name for number, name in _FILE.findall(self.text)}
        for body in bodies:
            if body.error is None:
                try:
                    BodyParser(self.text, body, files, self.line_starts)
                except EmulatorError as error:
                    body.error = error
        dynamic = {v.name: v for v in self.scope.variables.values() if v.space == "shared" and v.extern}
        for entry in self.entries.values():
            entry.variables |= dynamic
        self.module = Module(self.entries, start.target, start.version, self.scope, self.text, start.target_line)

    def _fail(self, position: int, reason: str, statement: str | None = None) -> EmulatorError:
        return _failure(self.text, position, reason, statement)

    def _outside(self, position: int) -> list[Body]:
        """Read the text outside of braces. Returns the bodies, whose insides are still unread."""
        bodies: list[Body] = []
        for statement in statements(self.text, position):
            try:
                if statement.kind == "head":
                    body = self._head(statement.text, statement.inside is not None, statement.place.start)
                    body.line = self.text.count("\n", 0, statement.place.start) + 1
                    if statement.inside is not None:
                        body.place, body.inside = statement.place, statement.inside
                        bodies.append(body)
                elif statement.kind == "text":
                    self._declaration(statement.text.strip(), statement.place.start)
            except ValueError as error:
                raise self._fail(statement.place.start, str(error), statement.text) from None
        return bodies

    def _head(self, text: str, opens: bool, place: int) -> Body:
        match = HEAD.fullmatch(text.strip())
        if match is None:
            raise ValueError("header not understood")
        linking, kind, results, name, params, directives = match.groups()
        failure: EmulatorError | None = None
        found: list[Param] = []
        returned: list[Param] = []
        try:
            found, returned = parameters(params or ""), parameters(results or "")
            if kind == "func":
                function_directives(directives or "")
        except ValueError as error:
            failure = self._fail(place, str(error), text)
        if kind == "entry":
            if (linking == "extern") == opens:
                raise ValueError(
                    f"entry {name} is .extern: it has no body here" if opens else f"entry {name} has no body"
                )
            if results is not None:
                raise ValueError(f"entry {name} has results: only functions have them")
            entry = Entry(name, found, scope=self.scope, error=failure)
            if not opens:
                return entry
            self._check_new(name, "entry")
            try:
                set_sizes(entry, directives or "")
            except ValueError as error:
                entry.error = entry.error or self._fail(place, str(error), text)
            self.entries[name] = entry
            self.scope.kernels.add(name)
            return entry
        if linking == "extern" and opens:
            raise ValueError(f"function {name} is .extern: it has no body here")
        function = Function(name, found, returned, opens, scope=self.scope, error=failure)
        if failure is None:
            self._check_function(function)
        else:
            self._check_new(name, "function")
        if name not in self.scope.functions or opens:
            self.scope.functions[name] = function
        return function

    def _check_new(self, name: str, kind: str) -> None:
        """Raise ValueError if something of another kind, or another entry, has the name."""
        for other, names in (
            ("entry", self.entries),
            ("function", self.scope.functions),
            ("variable", self.scope.variables),
        ):
            if name in names and (other != kind or kind == "entry"):
                raise ValueError(
                    f"{kind} {name}: the module has {'an' if other == 'entry' else 'a'} {other} of this name"
                )

    def _check_function(self, function: Function) -> None:
        """Raise ValueError for a second body, or a prototype that differs from an earlier one."""
        name = function.name
        self._check_new(name, "function")
        own = [param.name for param in (*function.results, *function.params)]
        if len(set(own)) < len(own):
            raise ValueError(f"function {name} has a parameter and a result of one name: {', '.join(own)}")
        known = self.scope.functions.get(name)
        if known is None:
            return
        if known.defined and function.defined:
            raise ValueError(f"function {name} is defined twice")
        for what in ("results", "params"):
            before, now = ([(p.type, p.size) for p in getattr(f, what)] for f in (known, function))
            if before != now:
                raise ValueError(f"function {name} is declared with {what} of other types before: {before}, here {now}")

    def _declaration(self, text: str, place: int) -> None:
        match = VARIABLE.fullmatch(text)
        if match is None:
            if text.startswith((".version", ".target", ".address_size")):
                raise ValueError(f"{text.split()[0]} stands once, at the start of the module")
            hint = (
                ""
                if text.startswith(".")
                else ": it is outside of every body, perhaps because a brace above is surplus"
            )
            raise ValueError(f"declaration not understood{hint}")
        parsed = replace(variable(match), line=self.text.count("\n", 0, place) + 1)
        if parsed.space in ("local", "param"):
            raise ValueError(f".{parsed.space} variables stand inside of functions")
        self._check_new(parsed.name, "variable")
        known = self.scope.variables.get(parsed.name)
        if known is not None:
            if not (known.extern or parsed.extern):
                raise ValueError(f"variable {parsed.name} is declared twice")
            if (known.space, known.size, known.align) != (parsed.space, parsed.size, parsed.align):
                raise ValueError(f"variable {parsed.name} is declared otherwise before")
            if known.extern and not match["linking"]:
                raise ValueError(f"variable {parsed.name} is declared .extern before: it must be .visible here")
        if known is None or known.extern:
            self.scope.variables[parsed.name] = parsed
        if parsed.relocations:
            self.initialised.append((parsed, place))

    def _check_addresses(self) -> None:
        """Raise EmulatorError for a variable that holds an address of anything but a variable or function."""
        for holder, place in self.initialised:
            for relocation in holder.relocations:
                other = self.scope.variables.get(relocation.name)
                if other is None and relocation.name in self.scope.functions and not relocation.addend:
                    continue
                if other is None or other.space not in ("global", "const") or other.extern:
                    raise self._fail(
                        place,
                        f"variable {holder.name} holds the address of {relocation.name}, which is no .global or .const "
                        "variable and no function of the module (PTX ISA, Initializers)",
                    )
