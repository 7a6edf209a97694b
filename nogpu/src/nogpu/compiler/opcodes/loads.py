"""Rows of the opcode table: ld, ldu and st (PTX ISA, "ld", "ldu", "st"). Their modifiers may come in any order."""

from __future__ import annotations

import re

from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.modifiers import HINT, SCOPES, classified
from nogpu.compiler.opcodes.rows import KindOf, Row, row, same_as_sources
from nogpu.compiler.rowcode.accesses import access
from nogpu.compiler.rowcode.assembler import Assembler, Unsupported
from nogpu.compiler.signatures import misfit, shown
from nogpu.ptx.ir import SINK, Address, Immediate, Instruction, Register, Symbol, items_of
from nogpu.ptx.types import type_width

_LEVEL1 = ("evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate")
_STORE = {
    "order": ("weak", "volatile", "relaxed", "release"),
    "device": ("mmio",),
    "scope": SCOPES,
    "space": ("global", "shared", "shared::cta", "shared::cluster", "local"),
    "operator": ("wb", "cg", "cs", "wt"),
    "level1": tuple(f"L1::{priority}" for priority in _LEVEL1),
    "level2": ("L2::evict_normal", "L2::evict_first", "L2::evict_last"),
    "hint": HINT,
    "vector": ("v2", "v4", "v8"),
    "type": tuple(f"{letter}{bits}" for letter in "bus" for bits in (8, 16, 32, 64)) + ("f32", "f64"),
}
_LOAD = _STORE | {
    "order": ("weak", "volatile", "relaxed", "acquire"),
    "space": (*_STORE["space"], "param", "param::entry", "const"),
    "operator": ("ca", "cg", "cs", "lu", "cv"),
    "prefetch": ("L2::64B", "L2::128B", "L2::256B"),
    "nc": ("nc",),
}
_UNIFORM_LOAD = {"space": ("global",), "vector": ("v2", "v4"), "type": _STORE["type"]}
_CLASSES = {"ld": _LOAD, "ldu": _UNIFORM_LOAD, "st": _STORE}
# Space -> the name that `ops.memory` has for it. Parameters and constants are in global memory here, read-only.
_SPACES = {"shared::cta": "shared", "param": "global", "param::entry": "global", "const": "global"}
_EXCLUSIVE = (  # pairs of classes that exclude each other
    ("operator", "level1"),
    ("operator", "level2"),
    ("operator", "device"),
    ("device", "vector"),
    ("device", "nc"),
)
# Classes of modifiers for global and generic addresses only.
_OF_GLOBAL = ("level1", "level2", "hint", "prefetch", "nc", "device")
_ORDERED = ("relaxed", "acquire", "release")


def _parsed(code: Code, instruction: Instruction, match: re.Match) -> tuple[dict[str, str], str, int, int]:
    """(modifiers by class, space, bits per element, elements). Raises EmulatorError if PTX has no such instruction."""
    name = match.group("name")
    found = classified(code, name, match.group("modifiers"), _CLASSES[name])
    declared = found.get("space")
    space = "generic" if declared is None else _SPACES.get(declared, declared)
    width, count = type_width(found["type"]), int(found.get("vector", "v1")[1:])
    reason = _conflict(found, space, width, count)
    if reason is not None:
        raise code.fail(f"{instruction.opcode}: {reason} (PTX ISA, {name})")
    expected = 2 + ("hint" in found)
    if len(instruction.operands) != expected:
        raise code.fail(f"{instruction.opcode} with {len(instruction.operands)} operands; it takes {expected}")
    return found, space, width, count


def _conflict(found: dict[str, str], space: str, width: int, count: int) -> str | None:
    """The reason why modifiers cannot stand together, or None."""
    order, declared = found.get("order"), found.get("space", "global")
    for kinds in _EXCLUSIVE:
        both = [found[kind] for kind in kinds if kind in found]
        if len(both) > 1:
            return f".{both[0]} and .{both[1]} exclude each other"
    for kind in _OF_GLOBAL:
        if kind in found and declared != "global":
            return f".{found[kind]} is for global memory"
    if (order in _ORDERED) != ("scope" in found):
        return "a scope goes with relaxed, acquire or release, and they with a scope"
    if order in (*_ORDERED, "volatile"):
        cached = [found[kind] for kind in ("operator", "nc") if kind in found]
        if order == "volatile":
            cached += [found[kind] for kind in ("level1", "level2", "hint", "prefetch") if kind in found]
        if cached:
            return f".{order} excludes .{cached[0]}"
        if declared not in ("global", "shared", "shared::cta", "shared::cluster"):
            return f".{order} is not for .{declared}"
    if "device" in found and (order, found.get("scope")) != ("relaxed", "sys"):
        return ".mmio goes with .relaxed.sys"
    if "nc" in found and "space" not in found:
        return ".nc is for global memory"
    return _size_conflict(found, space, width, count)


def _size_conflict(found: dict[str, str], space: str, width: int, count: int) -> str | None:
    bits = width * count
    limit = 256 if space in ("global", "generic") and found.get("space") in (None, "global") else 128
    if bits > limit:
        return f"an access of {bits} bits per lane; the limit is 128, in global memory 256"
    if count == 8 and width not in (8, 32):
        return f".v8 of {width} bits; it takes 32"
    if "level2" in found and bits != 256:
        return f".{found['level2']} needs an access of 256 bits, this one has {bits}"
    return None


def _items(code: Code, operand: object, count: int, width: int, sinks: bool) -> tuple:
    items = items_of(operand)
    if len(items) != count:
        raise code.fail(f"an operand of {len(items)} elements, {count} expected")
    for item in items:
        if item == SINK and not (sinks and count > 1):
            raise code.fail("_ is not a source here" if not sinks else "_ stands among the elements of a vector only")
        if isinstance(item, Register) and item.width < width:
            raise code.fail(f"register {item.name} has {item.width} bits, the access {width}")
        if isinstance(item, Register) and item.width > 64:
            raise code.fail(f"register {item.name} has {item.width} bits, the access {width}")
    widths = {item.width for item in items if isinstance(item, Register)}
    if len(widths) > 1:
        raise code.fail(f"registers of {' and '.join(map(str, sorted(widths)))} bits in one operand {shown(operand)}")
    return items


def _check_address(code: Code, operand: object, space: str | None) -> None:
    """Raises EmulatorError unless an operand is an address that an access to `space` may have."""
    code.address(operand)
    assert isinstance(operand, Address)
    base = operand.base
    refusal = misfit(operand, "[]")
    if refusal is not None and not (isinstance(base, Immediate) and space == "local"):
        raise code.fail(refusal)
    if isinstance(base, Register) and base.width != 64 and space in (None, "global", "const"):
        raise code.fail(f"register {base.name} has {base.width} bits, a global or generic address 64")
    if isinstance(base, Symbol):
        own = code.symbols[base.name][0]
        if (own == "param") != (space in ("param", "param::entry")) and space is not None:
            raise code.fail(f"{base.name} is a .{own} variable, the access is to .{space} (PTX ISA, State Spaces)")


def _load(code: Code, instruction: Instruction, match: re.Match) -> None:
    found, space, width, count = _parsed(code, instruction, match)
    destination, address = instruction.operands[:2]
    _check_address(code, address, found.get("space"))
    items = _items(code, destination, count, width, sinks=True)
    for item in items:
        if item != SINK:
            code.register(item)
    is_signed = found["type"][0] == "s"
    words = code.temporary()
    if code.kind == "uniform":
        code.line(
            f"{words} = memory.load(g, {space!r}, {code.address(address)}, {width // 8}, {count}, (g, {code.pc}))"
        )
    else:
        text = code.address(address)
        if code.is_uniform(address.base):
            text = f"row_of({text}, 64)"
        code.line(
            f"{words} = memory.load_lanes(g, {code.mask}, {space!r}, {text}, {width // 8}, {count}, (g, {code.pc}))"
        )
    if found.get("order", "weak") != "weak":
        code.line(f"messages.hear(g, {code.mask}, {space!r}, {code.address(address)})")
    for i, item in enumerate(items):
        if item == SINK:
            continue
        text = f"{words}[{i}]"
        if item.width != width:
            text = f"extend({text}, {item.width}, {is_signed})" if code.kind != "uniform" else text
            if code.kind == "uniform" and is_signed:
                text = f"signed({text}, {width}) & {(1 << item.width) - 1}"
        code.assign(item, text, code.kind)


def _kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """Emits the kernel of an access. Its modifiers are legal: the call, written before, has checked them."""
    store = match.group("name") == "st"
    parts = match.group("modifiers")[1:].split(".")
    found = {kind: part for part in parts for kind, names in _CLASSES[match.group("name")].items() if part in names}
    address, items = instruction.operands[0 if store else 1], instruction.operands[1 if store else 0]
    items = items_of(items)
    declared = found.get("space", "generic")
    if store and SINK in items:
        raise Unsupported
    ordered = found.get("order", "weak") != "weak"
    access(code, store, _SPACES.get(declared, declared), address, items, found["type"], ordered)


def _load_kind(instruction: Instruction, writes: int, kind_of: KindOf) -> str:
    """The kind of a load's result: a row for local memory, which differs from lane to lane, and for generic addresses,
    which may be local; for other memory uniform if the address is.
    """
    parts = set(instruction.opcode.split("."))
    elsewhere = parts & {space for space in _LOAD["space"] if space != "local"}
    return same_as_sources(instruction, writes, kind_of) if elsewhere else "lanes"


def _store(code: Code, instruction: Instruction, match: re.Match) -> None:
    found, space, width, count = _parsed(code, instruction, match)
    address, source = instruction.operands[:2]
    _check_address(code, address, found.get("space"))
    items = _items(code, source, count, width, sinks=width * count == 256)
    for item in items:
        if isinstance(item, Immediate):
            code.fits(item, found["type"])
        elif item != SINK:
            code.value(item)
    if found.get("order", "weak") != "weak":
        code.line(f"messages.tell(g, {code.mask}, {space!r}, {code.address(address)})")
    if SINK in items:
        _store_parts(code, space, address, items, found["type"])
    else:
        _store_words(code, space, address, items, found["type"])


def _store_parts(code: Code, space: str, address: Address, items: tuple, type_name: str) -> None:
    """Emits a store of each element that is not `_`."""
    width = type_width(type_name)
    code.line(f"memory.check_alignment({code.mask}, {code.address(address)}, {width * len(items) // 8})")
    for i, item in enumerate(items):
        if item != SINK:
            _store_words(code, space, Address(address.base, address.offset + i * width // 8), (item,), type_name)


def _store_words(code: Code, space: str, address: Address, items: tuple, type_name: str) -> None:
    width = type_width(type_name)
    uniform = code.is_uniform(address.base) and all(code.is_uniform(item) for item in items)
    if uniform and space not in ("local", "generic"):
        texts = [_truncated(code, item, type_name) for item in items]
        code.line(
            f"memory.store(g, {space!r}, {code.address(address)}, ({', '.join(texts)},), {width // 8}, (g, {code.pc}))"
        )
        return
    text = code.address(address)
    if code.is_uniform(address.base):
        text = f"row_of({text}, 64)"
    code.line(f"memory.store_lanes(g, {code.mask}, {space!r}, {text}, {code.stack(items, type_name)}, (g, {code.pc}))")


def _truncated(code: Code, item: object, type_name: str) -> str:
    width = type_width(type_name)
    text = code.value(item, width, type_name)
    return f"{text} & {(1 << width) - 1}" if isinstance(item, Register) and item.width > width else text


ROWS: list[Row] = [
    row(r"(?P<name>ldu?)(?P<modifiers>\.(?!param::func).+)", _load, kind=_load_kind, kernels=_kernels),
    row(r"(?P<name>st)(?P<modifiers>\.(?!async|bulk|param).+)", _store, writes=0, kernels=_kernels),
]
