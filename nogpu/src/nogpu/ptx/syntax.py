"""The parts of PTX statements: names, parameters, variables with their initialisers, lists."""

from __future__ import annotations

import math
import re

from nogpu.ptx.expressions import constant
from nogpu.ptx.ir import Param, Relocation, Variable
from nogpu.ptx.literals import fits, integer, literal_bits

NAME = r"(?:[A-Za-z][\w$]*|[_$%][\w$]+)"
TYPE_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}
INITIALISED_LIMIT = 1 << 30  # bytes of a variable with initial values
_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.S)
_FOREIGN = re.compile(r'"[^"\n]*"|([^\t\n\f\r -~])')
_INSTRUCTION = re.compile(rf"(?:@(?P<not>!?)\s*(?P<guard>{NAME})\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<operands>.*)", re.S)
_TYPE = r"\.(b(?:8|16|32|64|128)|[us](?:8|16|32|64)|f(?:16|32|64))"
_POINTER = r"\.ptr\b(?:\s*\.(?:const|global|local|shared))?(?:\s*\.align\s+(\d+))?\s"
_PARAM = re.compile(rf"\.param\s*(?:\.align\s+(\d+)\s+)?{_TYPE}\b\s*({_POINTER})?\s*({NAME})\s*(?:\[(\w+)\])?$", re.S)
_MANAGED = r"(?:\.attribute\(\s*\.managed\s*\)\s*)?"
VARIABLE = re.compile(
    rf"(?:\.(?P<linking>extern|visible|weak|common)\s*)?\.(?P<space>shared|local|global|const|param)\s*"
    rf"{_MANAGED}(?:\.align\s+(?P<align>\d+)\s+)?{_MANAGED}{_TYPE.replace('(', '(?P<type>', 1)}\s+"
    rf"(?P<name>{NAME})\s*(?P<dims>(?:\[\w*\]\s*)*)(?:=\s*(?P<initial>.*))?$",
    re.S,
)
_PLACE = rf"(?:generic\(\s*({NAME})\s*\)|({NAME}))\s*(?:\+\s*(-?\w+)\s*)?"
_ADDRESS_OF = re.compile(_PLACE)
_MASKED_ADDRESS = re.compile(rf"(0[xX][0-9a-fA-F]+)\(\s*{_PLACE}\)")
_ADDRESS_TYPES = ("u32", "b32", "u64", "b64")
_BYTE_MASKS = [0xFF << 8 * i for i in range(8)]


def without_comments(text: str) -> str:
    """Replace comments in `text` by blanks: every other character keeps its offset and line."""
    return _COMMENT.sub(lambda match: match[0] if match[0][0] == '"' else re.sub(r"[^\n]", " ", match[0]), text)


def foreign_character(text: str) -> int | None:
    """The offset of the first character, outside of strings, that PTX lacks; None if there is none."""
    return next((match.start() for match in _FOREIGN.finditer(text) if match[1]), None)


def split(text: str, separator: str = ",") -> list[str]:
    """Split `text` at the separators outside of brackets, braces and parentheses."""
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


def instruction(text: str) -> tuple[str, str, list[str]]:
    """Split an instruction without its semicolon into (guard, opcode, operands); guard: "@%p1", "@!%p1" or "". Raises
    ValueError if it is not understood.
    """
    match = _INSTRUCTION.fullmatch(text.strip())
    if match is None:
        raise ValueError("statement not understood")
    guard = f"@{match['not']}{match['guard']}" if match["guard"] else ""
    operands = [part.strip() for part in split(match["operands"])] if match["operands"].strip() else []
    return guard, match["opcode"], operands


def _alignment(text: str | None, element: int) -> int:
    """The value of `.align`, by default the bytes of an element. Raises ValueError unless it is a power of two."""
    value = element if text is None else integer(text)
    if value < 1 or value & (value - 1) or value >> 31:
        raise ValueError(
            f".align {value}: must be a power of two of at most 2^30 (PTX ISA, Variable and Parameter Alignment)"
        )
    return value


def _elements(text: str, what: str) -> int:
    """The size of an array. Raises ValueError unless it is at least 1."""
    count = integer(text)
    if count < 1:
        raise ValueError(f"{what} is an array of {count} elements, must be at least 1")
    return count


def parameter(text: str) -> Param:
    """A parameter of an entry or a function. Raises ValueError if it is not understood."""
    match = _PARAM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"parameter not understood: {text.strip()!r}")
    align, type_name, pointer, pointed, name, count = match.groups()
    size = TYPE_BYTES[type_name[1:]]
    total = size if count is None else size * _elements(count, f"parameter {name}")
    _alignment(pointed, 1)
    return Param(name, total, _alignment(align, size), type_name, count is not None, pointer is not None)


def parameters(text: str) -> list[Param]:
    """The parameters of a list. Raises ValueError if one is not understood or two have the same name."""
    found = [parameter(part) for part in split(text)] if text.strip() else []
    for index, param in enumerate(found):
        if param.name in {other.name for other in found[:index]}:
            raise ValueError(f"parameter {param.name} is declared twice")
    return found


def variable(match: re.Match) -> Variable:
    """The variable of a match of VARIABLE. Raises ValueError for sizes or an initialiser that are not understood."""
    type_name, space, name = match["type"], match["space"], match["name"]
    element, extern = TYPE_BYTES[type_name[1:]], match["linking"] == "extern"
    texts = re.findall(r"\[(\w*)\]", match["dims"])
    open_ended = bool(texts) and not texts[0]
    dims = [0] * open_ended + [_elements(text, f"variable {name}") for text in texts[open_ended:]]
    data: bytes | None = None
    relocations: tuple[Relocation, ...] = ()
    if match["initial"] is not None:
        if space not in ("global", "const"):
            raise ValueError(f".{space} variables have no initialiser")
        if extern:
            raise ValueError(f"variable {name} is .extern: it has no initialiser here")
        if element * math.prod(dims[open_ended:]) > INITIALISED_LIMIT:
            raise ValueError(
                f"variable {name} has initial values and more than {INITIALISED_LIMIT} bytes: not modelled"
            )
        data, relocations = _initial(match["initial"].strip(), type_name, dims)
        if open_ended:
            dims[0] = len(data) // (element * math.prod(dims[1:]))
    elif open_ended and not extern:
        raise ValueError(f"variable {name} has no size")
    size = element * math.prod(dims)
    if not fits(size, 63):
        raise ValueError(f"variable {name} has {size} bytes, more than a 64-bit address reaches")
    if data is not None:
        data = data.ljust(size, b"\0")
    return Variable(name, space, size, _alignment(match["align"], element), extern, data, relocations)


def _initial(text: str, type_name: str, dims: list[int]) -> tuple[bytes, tuple[Relocation, ...]]:
    """The bytes and relocations of an initialiser; zeros fill up the rows of an inner dimension.

    dims: elements by dimension; the first is 0 if the initialiser determines it.
    """
    if not dims:
        return _element(text, type_name)
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError(
            f"initial value {text[:80]!r} of an array of {dims[0] or 'some'} elements: braces are expected"
        )
    parts = split(text[1:-1])
    row = TYPE_BYTES[type_name[1:]] * math.prod(dims[1:])
    if dims[0] and len(parts) > dims[0]:
        raise ValueError(f"{row * len(parts)} bytes of initial values for {row * dims[0]} bytes")
    pieces: list[bytes] = []
    relocations: list[Relocation] = []
    for index, part in enumerate(parts):
        inner, found = _initial(part.strip(), type_name, dims[1:])
        relocations += [Relocation(r.offset + index * row, r.name, r.addend, r.size, r.mask) for r in found]
        pieces.append(inner.ljust(row, b"\0"))
    return b"".join(pieces), tuple(relocations)


def _element(text: str, type_name: str) -> tuple[bytes, tuple[Relocation, ...]]:
    size = TYPE_BYTES[type_name[1:]]
    literal = constant(text)
    if literal is not None:
        return literal_bits(literal, type_name).to_bytes(size, "little"), ()
    match = _ADDRESS_OF.fullmatch(text)
    if match is not None and type_name in _ADDRESS_TYPES:
        mask, (generic, name, offset) = (1 << 8 * size) - 1, match.groups()
    else:
        match = _MASKED_ADDRESS.fullmatch(text)
        if match is None or size > 1:
            raise ValueError(f"initial value {text[:80]!r} not understood for type .{type_name}")
        given, generic, name, offset = match.groups()
        mask = integer(given)
        if mask not in _BYTE_MASKS:
            raise ValueError(f"mask {given} of an address: must be 0xff, 0xff00, ... (PTX ISA, Initializers)")
    addend = integer(offset) if offset else 0
    return bytes(size), (Relocation(0, generic or name, addend, size, mask),)
