"""Structures and constants of the package's C files, read from their text: each is written once, in C."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

Mirror = TypeVar("Mirror", bound=type[ctypes.Structure])

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INCLUDE = re.compile(r'#include "(.+)"')
_ENUM = re.compile(r"enum (\w*) ?\{([^}]*)\}")
_STRUCT = re.compile(r"struct (\w*) ?\{(.*?)\} ?(\w*);", re.DOTALL)
_DECLARATION = re.compile(r"(?:const |struct )*(\w+) (.+)")
_FUNCTION = re.compile(r"\(\*(\w+)\)")
_DECLARATOR = re.compile(r"(.*?)(\w+)((?:\[[^]]+\])*)")
_NUMBERS = {
    **{f"u{bits}": getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"s{bits}": getattr(ctypes, f"c_int{bits}") for bits in (8, 16, 32, 64)},
    **{f"{sign}int{bits}_t": getattr(ctypes, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (32, 64)},
    **{"f32": ctypes.c_float, "f64": ctypes.c_double, "double": ctypes.c_double},
    **{"word": ctypes.c_size_t, "cudaStream_t": ctypes.c_size_t, "char": ctypes.c_char},
}


class _Source(NamedTuple):
    """A C file with the package's headers that it includes."""

    constants: dict[str, int]
    enumerations: dict[str, tuple[str, ...]]
    """Tag -> names."""
    structs: dict[str, str]
    """Name -> the declarations of its fields."""


@cache
def _read(path: Path) -> _Source:
    text = path.read_text()
    found = _Source({}, {}, {})
    for name in _INCLUDE.findall(text):
        included = _read((path.parent / name).resolve())
        found.constants.update(included.constants)
        found.enumerations.update(included.enumerations)
        found.structs.update(included.structs)
    text = _COMMENT.sub("", text)
    for tag, items in _ENUM.findall(text):
        value = -1
        names = []
        for item in filter(None, map(str.strip, items.split(","))):
            name, _, expression = item.partition(" = ")
            value = _value(expression, found.constants) if expression else value + 1
            names.append(name)
            found.constants[name] = value
        found.enumerations[tag] = tuple(names)
    found.structs.update({name or tag: body for tag, body, name in _STRUCT.findall(text)})
    return found


def _value(expression: str, known: dict[str, int]) -> int:
    return int(expression) if expression.isdigit() else eval(expression, {}, known)


@cache
def _source(name: str) -> _Source:
    return _read(Path(__file__).resolve().parent / name)


def constants(source: str, *names: str) -> tuple[int, ...]:
    """Values of enumerators of a C file ("native/engine.h"), or of the headers that it includes."""
    known = _source(source).constants
    return tuple(known[name] for name in names)


def enumerators(source: str, tag: str) -> tuple[str, ...]:
    """Names of an enumeration of a C file, in order."""
    return _source(source).enumerations[tag]


def _fields(source: str, name: str) -> list[tuple[str, Any]]:
    """(name, ctypes type) of each field of a struct of a C file."""
    found = _source(source)
    return _declared(found.structs[name], found.constants, lambda tag: structure(source, tag))


def fields(declarations: str, **types: type) -> list[tuple[str, Any]]:
    """(name, ctypes type) of each field of a struct that is declared as in C: "s32 kind; word sizes[3], batch".

    types: ctypes types, by their names in the declarations. Raises ValueError for what is no declaration.
    """
    return _declared(declarations, {}, types.__getitem__)


def _declared(text: str, constants: dict[str, int], type_of: Callable[[str], type]) -> list[tuple[str, Any]]:
    """(name, ctypes type) of each field. A pointer is an address, but a `char *` is a c_char_p."""
    found: list[tuple[str, Any]] = []
    for declaration in filter(None, map(str.strip, text.split(";"))):
        if function := _FUNCTION.search(declaration):
            found.append((function[1], ctypes.c_void_p))
            continue
        base, declarators = _matched(_DECLARATION, declaration)
        for declarator in declarators.split(","):
            stars, field, counts = _matched(_DECLARATOR, declarator.strip())
            kind: Any
            if stars:
                kind = ctypes.c_char_p if base == "char" else ctypes.c_void_p
            else:
                kind = _NUMBERS.get(base) or type_of(base)
            for count in reversed(re.findall(r"[^][]+", counts)):
                kind = kind * _value(count, constants)
            found.append((field, kind))
    return found


def _matched(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(f"no declaration of a field that is understood: {text}")
    return match.groups()


@cache
def structure(source: str, name: str) -> type[ctypes.Structure]:
    """A ctypes class with the fields of a struct of a C file."""
    return type(name, (ctypes.Structure,), {"_fields_": _fields(source, name)})


def packer(source: str, name: str, first: str | None = None, last: str | None = None) -> struct.Struct:
    """A packer of a struct of a C file, or of its fields from first to last, all numbers and addresses."""
    fields = _fields(source, name)
    names = [field for field, _ in fields]
    chosen = fields[names.index(first) if first else 0 : names.index(last) + 1 if last else None]
    return struct.Struct("".join(_codes(kind) for _, kind in chosen))


def _codes(kind: Any) -> str:
    if issubclass(kind, ctypes.Array):
        return _codes(kind._type_) * kind._length_
    return "".join(_codes(field) for _, field in kind._fields_) if issubclass(kind, ctypes.Structure) else kind._type_


def mirrors(source: str, name: str = "", **types: type) -> Callable[[Mirror], Mirror]:
    """A decorator that gives a class the fields of a struct of a C file.

    name: the struct's, by default the class's. types: ctypes types of fields, by name, in place of the C file's.
    """

    def decorated(mirror: Mirror) -> Mirror:
        fields = _fields(source, name or mirror.__name__)
        mirror._fields_ = [(field, types.get(field, kind)) for field, kind in fields]
        return mirror

    return decorated
