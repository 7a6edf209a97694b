"""PTX text -> Module: entries and device functions with their parameters, variables and instructions.

Only the syntax is handled here. The declarations outside of the bodies are in the module's `Scope`, which all bodies
share.
"""

from __future__ import annotations

import re

from emulator.errors import EmulatorError
from emulator.ptx.body import BodyParser
from emulator.ptx.ir import Body, Entry, Function, Instruction, Module, Param, Place, Scope, Variable
from emulator.ptx.syntax import NAME, VARIABLE, parameter, split, variable, without_comments

__all__ = ["Entry", "Instruction", "Module", "Param", "Variable", "parse"]

_OUTSIDE = re.compile(
    r"\s*(?:(?P<line>\.(?:version|target|address_size)\b[^.\n]*(?:\.\d+)?|\.(?:file|loc)\b[^\n]*)"
    r"|(?P<section>\.section\b[^{;]*\{)"
    r"|(?P<head>(?:\.(?:visible|extern|weak|common)\s+)*\.(?:entry|func)\b(?:[^{;(]|\([^()]*\))*)(?P<opens>[{;])"
    r"|(?P<text>[^;]+);|(?P<end>\Z))"
)
_HEAD = re.compile(
    rf"[^(]*?\.(entry|func)\s*(?:\(([^()]*)\)\s*)?({NAME})\s*(?:\(([^()]*)\)\s*)?((?:\.[a-z]\w*[\s\d,]*)*)", re.S
)
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')
_SIZES = {"reqntid": "reqntid", "maxntid": "maxntid", "reqnctapercluster": "cluster"}
# Directives that only guide compilation.
_WITHOUT_EFFECT = {"minnctapersm", "maxnctapersm", "maxnreg", "explicitcluster", "noreturn", "abi_preserve"}


def parse(text: str) -> Module:
    """Parse a PTX module. Raises EmulatorError with the line for syntax that is not known."""
    return _ModuleParser(text).module


def _matching_brace(text: str, start: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    raise EmulatorError("unbalanced braces", ptx_line=text.count("\n", 0, start) + 1)


class _ModuleParser:
    """Reads the declarations first, then the bodies, which may use variables and functions declared behind them."""

    def __init__(self, text: str):
        self.text = without_comments(text.rstrip("\0"))  # DSL 4.5.2 keeps the C string's end
        version = re.search(r"\.version\s+([\d.]+)", self.text)
        target = re.search(r"\.target\s+([\w, ]+)", self.text)
        if version is None or target is None:
            raise EmulatorError("not a PTX module: .version or .target is missing")
        self.line_starts = [0] + [match.end() for match in re.finditer("\n", self.text)]
        self.scope = Scope()
        self.entries: dict[str, Entry] = {}
        bodies = self._outside()
        files = {int(number): name for number, name in _FILE.findall(text)}
        for body in bodies:
            BodyParser(self.text, body, files, self.line_starts)
        dynamic = {v.name: v for v in self.scope.variables.values() if v.space == "shared" and v.extern}
        for entry in self.entries.values():
            entry.variables |= dynamic
        self.module = Module(self.entries, target.group(1).strip(), version.group(1), self.scope, self.text)

    def _outside(self) -> list[Body]:
        """Reads the text outside of braces. Returns the bodies, whose insides are still to be read."""
        bodies, position = [], 0
        while position < len(self.text):
            match = _OUTSIDE.match(self.text, position)
            if match is None or match.lastgroup is None:
                raise EmulatorError("syntax not understood", ptx_line=self._line(position))
            position = match.end()
            kind = "head" if match["head"] else match.lastgroup
            try:
                if kind == "section":
                    position = _matching_brace(self.text, match.end() - 1) + 1
                elif kind == "head":
                    body = self._head(match["head"], match["opens"] == "{")
                    body.line = self._line(match.start("head"))
                    if match["opens"] == "{":
                        end = _matching_brace(self.text, match.end() - 1)
                        position = end + 1
                        body.place, body.inside = Place(match.start("head"), position), Place(match.end(), end)
                        bodies.append(body)
                elif kind == "text":
                    self._declaration(match["text"].strip())
            except ValueError as error:
                line = self._line(match.start(kind))
                raise EmulatorError(str(error), ptx_line=line, ptx_text=" ".join(match[kind].split())) from None
        return bodies

    def _line(self, position: int) -> int:
        return self.text.count("\n", 0, position) + 1

    def _head(self, text: str, opens: bool) -> Body:
        match = _HEAD.fullmatch(text.strip())
        if match is None:
            raise ValueError("header not understood")
        kind, results, name, params, directives = match.groups()
        parameters = [parameter(part) for part in split(params or "") if part.strip()]
        if kind == "entry":
            if not opens:
                raise ValueError(f"entry {name} has no body")
            entry = Entry(name, parameters, scope=self.scope)
            self._directives(entry, directives)
            self.entries[name] = entry
            return entry
        found = [parameter(part) for part in split(results or "") if part.strip()]
        known = self.scope.functions.get(name)
        function = Function(name, parameters, found, opens, scope=self.scope)
        if known is None or opens:
            self.scope.functions[name] = function
        return function

    def _directives(self, entry: Entry, text: str) -> None:
        for name, values in re.findall(r"\.(\w+)([\s\d,]*)", text):
            sizes = [int(value) for value in re.findall(r"\d+", values)]
            if name in _SIZES and 1 <= len(sizes) <= 3:
                setattr(entry, _SIZES[name], tuple((sizes + [1, 1])[:3]))
            elif name == "maxclusterrank" and len(sizes) == 1:
                entry.max_cluster = sizes[0]
            elif name not in _WITHOUT_EFFECT:
                raise ValueError(f"directive .{name} {values.strip()}".rstrip() + " not understood")

    def _declaration(self, text: str) -> None:
        match = VARIABLE.fullmatch(text)
        if match is None:
            if text.startswith(".pragma"):
                return
            raise ValueError("declaration not understood")
        parsed = variable(match)
        if parsed.space in ("local", "param"):
            raise ValueError(f".{parsed.space} variables stand inside of functions")
        known = self.scope.variables.get(parsed.name)
        if known is None or known.extern:
            self.scope.variables[parsed.name] = parsed
