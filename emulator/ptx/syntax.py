"""The parts of PTX statements: names, numbers, parameters, variables with their initialisers, lists."""

from __future__ import annotations

import re
import struct

from emulator.ptx.ir import Immediate, Param, Relocation, Variable

NAME = r"[A-Za-z_$%][\w$%]*"
TYPE_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_INSTRUCTION = re.compile(rf"(?:@(?P<not>!?)\s*(?P<guard>{NAME})\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<operands>.*)", re.S)
_TYPE = r"\.([busf](?:8|16|32|64|128))"
_PARAM = re.compile(rf"\.param\s+(?:\.align\s+(\d+)\s+)?{_TYPE}\s+(\.ptr[^,]*?\s)?({NAME})\s*(?:\[(\d+)\])?$", re.S)
VARIABLE = re.compile(
    rf"(?P<extern>\.extern\s+)?(?:\.(?:visible|weak|common)\s+)?\.(?P<space>shared|local|global|const|param)\s+"
    rf"(?:\.align\s+(?P<align>\d+)\s+)?(?:\.attribute\([^)]*\)\s*)?{_TYPE.replace('(', '(?P<type>', 1)}\s+"
    rf"(?P<name>{NAME})\s*(?P<dims>(?:\[\d*\]\s*)*)(?:=\s*(?P<initial>.*))?$",
    re.S,
)
_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_ADDRESS_OF = re.compile(
    rf"(?:(?P<mask>0[xX][0-9a-fA-F]+)\()?(?:generic\(\s*(?P<generic>{NAME})\s*\)|(?P<name>{NAME}))"
    r"\s*(?:\+\s*(?P<offset>-?\w+)\s*)?\)?"
)


def without_comments(text: str) -> str:
    """`text` with blanks in place of comments: every other character keeps its offset and line."""
    return _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def split(text: str, separator: str = ",") -> list[str]:
    """The parts of `text` between the separators outside of brackets, braces and parentheses."""
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
    """(guard, opcode, operands) of an instruction without its semicolon; guard: "@%p1", "@!%p1" or "". ValueError if
    it is not understood.
    """
    match = _INSTRUCTION.fullmatch(text.strip())
    if match is None:
        raise ValueError("statement not understood")
    guard = f"@{match['not']}{match['guard']}" if match["guard"] else ""
    operands = [part.strip() for part in split(match["operands"])] if match["operands"].strip() else []
    return guard, match["opcode"], operands


def integer(text: str) -> int:
    """An integer literal (PTX ISA, "Integer Constants"); a leading 0 means octal."""
    digits = text.strip().rstrip("U")
    negative, digits = digits.startswith("-"), digits.lstrip("-")
    value = int(digits, 8) if re.fullmatch(r"0\d+", digits) else int(digits, 0)
    return -value if negative else value


def number(text: str) -> Immediate | None:
    """An integer or floating-point literal, None for any other text."""
    if _INTEGER.match(text):
        return Immediate(integer(text))
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        return Immediate(int(text[2:], 16), 32)
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
        return Immediate(int(text[2:], 16), 64)
    if re.fullmatch(r"-?\d+\.\d*([eE][-+]?\d+)?", text):
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
    return None


def parameter(text: str) -> Param:
    """A parameter of an entry or a function. ValueError if it is not understood."""
    match = _PARAM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"parameter not understood: {text.strip()!r}")
    align, type_name, pointer, name, count = match.groups()
    size = TYPE_BYTES[type_name[1:]]
    total = size * int(count) if count else size
    return Param(name, total, int(align or size), type_name, count is not None, pointer is not None)


def variable(match: re.Match) -> Variable:
    """The variable of a match of VARIABLE. ValueError for an initialiser that is not understood."""
    type_name, space = match["type"], match["space"]
    element = TYPE_BYTES[type_name[1:]]
    dims = [int(dim or 0) for dim in re.findall(r"\[(\d*)\]", match["dims"])]
    data: bytes | None = None
    relocations: tuple[Relocation, ...] = ()
    if match["initial"] is not None:
        if space not in ("global", "const"):
            raise ValueError(f".{space} variables have no initialiser")
        data, relocations = _initial(match["initial"].strip(), type_name, dims)
        if dims and not dims[0]:
            dims[0] = len(data) // element
    count = 1
    for dim in dims:
        count *= dim
    size = count * element
    if data is not None:
        if len(data) > size:
            raise ValueError(f"{len(data)} bytes of initial values for {size} bytes")
        data = data.ljust(size, b"\0")
    name, align = match["name"], int(match["align"] or element)
    return Variable(name, space, size, align, match["extern"] is not None, data, relocations)


def _initial(text: str, type_name: str, dims: list[int]) -> tuple[bytes, tuple[Relocation, ...]]:
    """Bytes and relocations of an initialiser; an inner dimension's bytes are filled up with zeros."""
    element = TYPE_BYTES[type_name[1:]]
    if not text.startswith("{"):
        return _element(text, type_name)
    data = b""
    relocations: list[Relocation] = []
    row = element
    for dim in dims[1:]:
        row *= dim
    for part in split(text.removeprefix("{").removesuffix("}")):
        if not part.strip():
            continue
        inner, found = _initial(part.strip(), type_name, dims[1:])
        relocations += [Relocation(r.offset + len(data), r.name, r.addend, r.size, r.mask) for r in found]
        data += inner.ljust(row if part.strip().startswith("{") else element, b"\0")
    return data, tuple(relocations)


def _element(text: str, type_name: str) -> tuple[bytes, tuple[Relocation, ...]]:
    size = TYPE_BYTES[type_name[1:]]
    literal = number(text)
    if literal is not None:
        value = literal.value
        if type_name[0] == "f" or literal.float_width:
            value = _float_bits(literal, type_name)
        return (value & (1 << 8 * size) - 1).to_bytes(size, "little"), ()
    match = _ADDRESS_OF.fullmatch(text)
    if match is None:
        raise ValueError(f"initial value {text!r} not understood")
    mask = int(match["mask"], 16) if match["mask"] else (1 << 8 * size) - 1
    addend = integer(match["offset"]) if match["offset"] else 0
    return bytes(size), (Relocation(0, match["generic"] or match["name"], addend, size, mask),)


def _float_bits(literal: Immediate, type_name: str) -> int:
    """The bits of a number in a floating-point type, or in an untyped one of the number's width. Raises ValueError."""
    width = 8 * TYPE_BYTES[type_name[1:]]
    if literal.float_width == width:
        return literal.value
    formats = {16: "<e", 32: "<f", 64: "<d"}
    if type_name[0] != "f":
        raise ValueError(f"a {literal.float_width}-bit floating-point value for type .{type_name}")
    value = float(literal.value)
    if literal.float_width:
        code = formats[literal.float_width]
        value = struct.unpack(code, literal.value.to_bytes(literal.float_width // 8, "little"))[0]
    return int.from_bytes(struct.pack(formats[width], value), "little")
