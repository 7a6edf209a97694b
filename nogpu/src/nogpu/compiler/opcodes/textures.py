"""Rows of the opcode table: tex, tld4, txq, suld, sust and suq on texture and surface objects (PTX ISA, "Texture
Instructions", "Surface Instructions").
"""

from __future__ import annotations

import re

from nogpu import headers
from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.rows import Row, always_lanes, called, row
from nogpu.compiler.rowcode.assembler import Assembler, Unsupported
from nogpu.ptx.ir import SINK, Instruction, Register, Vector

_FETCH = headers.packer("native/textures.c", "Fetch")
(AXES,) = headers.constants("native/textures.h", "AXES")

_AXES = {"1d": ((1,), 1), "2d": ((2,), 2), "3d": ((4,), 3), "a1d": ((2,), 2), "a2d": ((4,), 3)}
_AXES |= {"cube": ((4,), 3), "acube": ((4,), 4)}
"""Geometry -> (legal numbers of coordinates, of those that count); of layered ones the first is a layer's index."""
_NOT_MODELLED = "textures without samples and mipmaps are, with layers and faces by tex, and surfaces without layers"


def _coordinates(code: Code, address: object, match: re.Match, type_name: str) -> str:
    counts, used = _AXES[match.group("geometry")]
    given = getattr(address, "coordinates", None) or ()
    if len(given) not in counts:
        raise code.fail(f"{len(given)} coordinates for .{match.group('geometry')}, {counts[0]} expected")
    for item in given:
        code.fits(item, "b32")
    types = ["u32" if _is_layered(match) and not place else type_name for place in range(used)]
    return f"stack([{', '.join(code.value(item, 32, kind) for item, kind in zip(given, types))}], 32)"


def _dimensions(match: re.Match) -> int:
    return int(match.group("geometry")[-2])


def _is_layered(match: re.Match) -> bool:
    return match.group("geometry").startswith("a")


def _fetch(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, address = instruction.operands[:2]
    found = match.groupdict()
    _items(code, destination, 4)
    type_name = found["coordinates"]
    if type_name == "s32" and found["geometry"] != "1d":
        raise code.fail(f"instruction {instruction.opcode} is not modelled: integers address linear memory only")
    form = (found["geometry"], found["type"], type_name == "s32")
    channel = "rgba".index(found["channel"]) if found.get("channel") else None
    where = f"{code.address(address)}, {_coordinates(code, address, match, type_name)}"
    call = f"textures.fetch(g, {code.mask}, {form}, {where}, {channel}, (g, {code.pc}))"
    code.assign_parts(destination, call, "lanes")


def _fetch_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, address = instruction.operands[:2]
    slot, displacement, by_lane = code.address(address)
    if slot < 0 or displacement or not isinstance(destination, Vector):
        raise Unsupported
    used, type_name = _AXES[match.group("geometry")][1], match.group("coordinates")
    sources = [code.source(item, type_name) for item in (address.coordinates or ())[:used]]
    items = [item for item in destination.items if isinstance(item, Register)]
    if len(sources) != used or len(destination.items) != 4 or not all(map(code.is_row, items)):
        raise Unsupported
    slots = [-1 if item == SINK else code.slots[item.name].offset for item in destination.items]
    rest = [0] * (AXES - used)
    head = slot, by_lane, used, type_name == "s32", match.group("type") == "f32", 0
    places, rows = [source.offset for source in sources], [source.row for source in sources]
    code.emit_described("fetch", _FETCH.pack(*map(int, (*head, *places, *rest, *rows, *rest, *slots))))


def _items(code: Code, operand: object, count: int) -> tuple:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        raise code.fail(f"an operand of {len(items)} elements, {count} expected")
    return items


def _surface(code: Code, address: object, match: re.Match) -> tuple[int, str]:
    """(number of values, text of the first arguments) of a surface access."""
    form = (_dimensions(match), int(match.group("bits")), match.group("outside"))
    count = int((match.group("vector") or "v1")[1:])
    if form[1] * count > 128:
        raise code.fail(f"an access of {form[1] * count} bits; the limit is 128 (PTX ISA, {match.group('name')})")
    where = f"{code.address(address)}, {_coordinates(code, address, match, 's32')}"
    return count, f"g, {code.mask}, {form}, {where}"


def _register_bits(match: re.Match) -> int:
    return max(16, int(match.group("bits")))


def _load_surface(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, address = instruction.operands
    count, arguments = _surface(code, address, match)
    for item in _items(code, destination, count):
        code.fits(item, f"b{_register_bits(match)}")
    code.assign_parts(destination, f"textures.load({arguments}, {count}, (g, {code.pc}))", "lanes")


def _store_surface(code: Code, instruction: Instruction, match: re.Match) -> None:
    address, source = instruction.operands
    count, arguments = _surface(code, address, match)
    width = _register_bits(match)
    items = _items(code, source, count)
    for item in items:
        code.fits(item, f"b{width}")
    values = f"stack([{', '.join(code.value(item, width) for item in items)}], {match.group('bits')})"
    code.line(f"textures.store({arguments}, {values}, (g, {code.pc}))")


def _refused(code: Code, instruction: Instruction, match: re.Match) -> None:
    raise code.fail(f"instruction {instruction.opcode} is not modelled: {_NOT_MODELLED}")


def _size(name: str, of_surface: bool) -> list[Row]:
    return [
        called(
            rf"{name}\.{axis}\.b32",
            f"textures.size(g, {{m}}, {{1:x}}, {number}, {of_surface})",
            kind=always_lanes,
            takes="b32 []",
        )
        for number, axis in enumerate(("width", "height", "depth"))
    ]


def _fetched(pattern: str, takes: str) -> Row:
    return row(pattern, _fetch, kind=always_lanes, takes=takes, kernels=_fetch_kernels)


_GEOMETRY, _LAYERED = r"(?P<geometry>1d|2d|3d)", r"(?P<geometry>a1d|a2d|cube|acube)"
_RESULT = r"\.v4\.(?P<type>u32|s32|f32)"
_ACCESS = rf"\.b\.{_GEOMETRY}(?:\.(?P<vector>v2|v4))?\.b(?P<bits>8|16|32|64)\.(?P<outside>trap|clamp|zero)"

ROWS: list[Row] = [
    _fetched(rf"tex\.{_GEOMETRY}{_RESULT}\.(?P<coordinates>s32|f32)", "b32* [,]"),
    # A texture has one level, which every level operand and every gradient selects.
    _fetched(rf"tex\.level\.{_GEOMETRY}{_RESULT}\.(?P<coordinates>f32)", "b32* [,] f32"),
    _fetched(rf"tex\.grad\.{_GEOMETRY}{_RESULT}\.(?P<coordinates>f32)", "b32* [,] f32* f32*"),
    *(
        row(
            rf"tex{form}\.{_LAYERED}{_RESULT}\.(?P<coordinates>f32)", _fetch, kind=always_lanes, takes=f"b32* [,]{more}"
        )
        for form, more in (("", ""), (r"\.level", " f32"), (r"\.grad", " f32* f32*"))
    ),
    row(
        rf"tld4\.(?P<channel>r|g|b|a)\.(?P<geometry>2d){_RESULT}\.(?P<coordinates>f32)",
        _fetch,
        kind=always_lanes,
        takes="b32* [,]",
    ),
    row(rf"(?P<name>suld){_ACCESS}", _load_surface, kind=always_lanes, takes=". [,]"),
    row(rf"(?P<name>sust){_ACCESS}", _store_surface, takes="[,] ."),
    *_size("txq", False),
    *_size("suq", True),
    row(r"(?:tex\..*\b(?:2dms|a2dms)|tld4\..*\b(?:a2d|cube|acube))\b.*", _refused, refuses=True),
    row(r"su(?:ld|st)\..*\b(?:a1d|a2d)\b.*", _refused, refuses=True),
]
