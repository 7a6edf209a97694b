"""Rows of the opcode table: ld, st, atom, red, address conversion, prefetch (PTX ISA, "Data Movement and
Conversion").
"""

from __future__ import annotations

import re

from emulator.access import LOCAL_TAG, SHARED_TAG, TAG_SHIFT
from emulator.code import Code
from emulator.instructions import SINK, Address, Instruction, Register, Vector
from emulator.operands import type_width
from emulator.rows import KindOf, Row, always_lanes, called, ignored, row, same_as_sources

_SHARED_BITS = SHARED_TAG << TAG_SHIFT
_LOCAL_BITS = LOCAL_TAG << TAG_SHIFT
_TYPES = "b8|u8|s8|b16|u16|s16|f16|bf16|b32|u32|s32|f32|b64|u64|s64|f64"
_CACHE = (
    r"(?:\.(?:ca|cg|cs|cv|lu|wb|wt))?(?:\.L1::(?:evict_(?:normal|unchanged|first|last)|no_allocate))?"
    r"(?:\.L2::evict_(?:normal|first|last))?(?P<hint>\.L2::cache_hint)?(?:\.L2::(?:64|128|256)B)?"
)
_ORDER = r"(?:\.(?P<order>weak|volatile|relaxed|acquire|release)(?:\.(?:cta|cluster|gpu|sys))?|\.mmio\.relaxed\.sys)?"
_SPACE = r"(?:\.(?P<space>global|shared::cta|shared::cluster|shared|local))?"
_VECTOR = r"(?:\.v(?P<count>2|4|8))?"


def space_of(match: re.Match) -> str:
    """The space as `access.py` names it."""
    name = match.groupdict().get("space")
    return {None: "generic", "shared::cta": "shared"}.get(name, name)


def _checked_width(code: Code, match: re.Match) -> tuple[int, int]:
    width, count = type_width(match.group("type")), int(match.group("count") or 1)
    if width * count > 256 or (width * count > 128 and space_of(match) not in ("global", "generic")):
        raise code.fail(f"an access of {width * count} bits per lane; the limit is 128, in global memory 256")
    return width, count


def _load(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, address = instruction.operands[:2]
    width, count = _checked_width(code, match)
    is_signed = match.group("type")[0] == "s"
    items = destination.items if isinstance(destination, Vector) else (destination,)
    space = space_of(match)
    words = code.temporary()
    if code.kind == "uniform":
        code.line(f"{words} = load(g, {space!r}, {code.address(address)}, {width // 8}, {count}, (g, {code.pc}))")
    else:
        text = code.address(address)
        if code.is_uniform(address.base):
            text = f"row_of({text}, {32 if space == 'local' else 64})"
        code.line(f"{words} = load_lanes(g, {code.mask}, {space!r}, {text}, {width // 8}, {count}, (g, {code.pc}))")
    for i, item in enumerate(items):
        if item == SINK:
            continue
        text = f"{words}[{i}]"
        if item.width != width:
            text = f"extend({text}, {item.width}, {is_signed})" if code.kind != "uniform" else text
            if code.kind == "uniform" and is_signed:
                text = f"signed({text}, {width}) & {(1 << item.width) - 1}"
        code.assign(item, text, code.kind)


def _load_kind(instruction: Instruction, writes: int, kind_of: KindOf) -> str:
    """Local memory differs from lane to lane; anything else is one value where the address is one."""
    return "lanes" if ".local" in instruction.opcode else same_as_sources(instruction, writes, kind_of)


def _load_generic_kind(instruction: Instruction, writes: int, kind_of: KindOf) -> str:
    """A generic address may lie in local memory, so that equal addresses need not hold equal values."""
    return "lanes"


def _load_param(code: Code, instruction: Instruction, match: re.Match) -> None:
    """ld.param reads the launch's parameter buffer, by name or through a register."""
    destination, address = instruction.operands
    width, count = type_width(match.group("type")), int(match.group("count") or 1)
    items = destination.items if isinstance(destination, Vector) else (destination,)
    words = code.temporary()
    if code.kind != "uniform":
        raise code.fail("ld.param with an address that differs between lanes is not modelled")
    code.line(f"{words} = load(g, 'global', {code.address(address)}, {width // 8}, {count}, (g, {code.pc}))")
    for i, item in enumerate(items):
        text = f"{words}[{i}]"
        if match.group("type")[0] == "s" and item.width != width:
            text = f"signed({text}, {width}) & {(1 << item.width) - 1}"
        code.assign(item, text, "uniform")


def _store(code: Code, instruction: Instruction, match: re.Match) -> None:
    address, source = instruction.operands[:2]
    width, count = _checked_width(code, match)
    items = source.items if isinstance(source, Vector) else (source,)
    space = space_of(match)
    if (
        space not in ("local", "generic")
        and code.is_uniform(address.base)
        and all(code.is_uniform(item) for item in items)
    ):
        texts = [_truncated(code, item, width) for item in items]
        code.line(f"store(g, {space!r}, {code.address(address)}, ({', '.join(texts)},), {width // 8}, (g, {code.pc}))")
        return
    text = code.address(address)
    if code.is_uniform(address.base):
        text = f"row_of({text}, {_address_width(address, space)})"
    values = ", ".join(code.value(item, width) for item in items)
    code.line(f"store_lanes(g, {code.mask}, {space!r}, {text}, stack([{values}], {width}), (g, {code.pc}))")


def _address_width(address: Address, space: str) -> int:
    if isinstance(address.base, Register):
        return address.base.width
    return 32 if space in ("local", "shared", "shared::cluster") else 64


def _truncated(code: Code, item: object, width: int) -> str:
    text = code.value(item, width)
    return f"{text} & {(1 << width) - 1}" if isinstance(item, Register) and item.width > width else text


def _atomic(returns: bool):
    def emit(code: Code, instruction: Instruction, match: re.Match) -> None:
        operands = instruction.operands[1:] if returns else instruction.operands
        address, *sources = operands
        width = type_width(match.group("type"))
        expected = 2 if match.group("op") == "cas" else 1
        if len(sources) not in (expected, expected + 1) or any(isinstance(source, Vector) for source in sources):
            raise code.fail("these operands of an atomic are not modelled")
        values = [code.value(source, width) for source in sources[:expected]] + ["None"] * (2 - expected)
        place = f"{space_of(match)!r}, {match.group('op')!r}, {match.group('type')!r}"
        call = f"atomic(g, {code.mask}, {place}, {code.address(address)}, {', '.join(values)}, (g, {code.pc}))"
        if returns:
            code.assign(instruction.operands[0], call, "lanes")
        else:
            code.line(call)

    return emit


_ATOMIC_TYPES = "b32|b64|u32|s32|u64|s64|f16x2|f32|f64|b16|f16"
_ATOMIC_FORM = (
    r"(?:\.(?:relaxed|acquire|release|acq_rel))?(?:\.(?:cta|cluster|gpu|sys))?" + _SPACE + r"\.(?P<op>{})(?:\.noftz)?"
    rf"(?:\.L2::cache_hint)?\.(?P<type>{_ATOMIC_TYPES})"
)
_ATOMIC_PATTERN = _ATOMIC_FORM.replace("{}", "add|min|max|and|or|xor|exch|cas|inc|dec")


def _convert_address(code: Code, instruction: Instruction, match: re.Match) -> None:
    """cvta: shared and local addresses get or lose their tag, global and parameter addresses are generic ones."""
    destination, source = instruction.operands
    space, to_space = match.group("space"), match.group("to") is not None
    if isinstance(source, Address):
        text = code.address(source, 64)
    else:
        text = code.value(source, 64)
    tag = {"shared": _SHARED_BITS, "local": _LOCAL_BITS}.get(space.partition("::")[0], 0)
    if tag and to_space:
        text = f"{text} & {(1 << 32) - 1}"
    elif tag:
        text = f"{text} | u64({tag})" if code.kind == "lanes" else f"{text} | {tag}"
    if destination.width == 32:
        raise code.fail("32-bit generic addresses are not modelled")
    code.assign(destination, text, code.kind)


def _map_address(code: Code, instruction: Instruction, match: re.Match) -> None:
    """mapa: the same offset in the CTA of another rank."""
    destination, source, rank = instruction.operands
    address = code.address(source) if isinstance(source, Address) else code.value(source, 32)
    if code.kind != "uniform":
        width = destination.width
        address, rank_text = f"row_of({address}, {width})", f"row_of({code.value(rank)}, 32).astype(u{width})"
        code.assign(destination, f"{address} & u{width}({_rank_mask(match)}) | {rank_text} << u{width}(24)", "lanes")
    else:
        code.assign(destination, f"{address} & {_rank_mask(match)} | {code.value(rank)} << 24", "uniform")


def _rank_mask(match: re.Match) -> int:
    return 0xFFFFFF if match.group("space") else (0xFF << TAG_SHIFT) | 0xFFFFFF


def _is_space(code: Code, instruction: Instruction, match: re.Match) -> None:
    """isspacep: by the tag. Shared addresses of another CTA are in shared::cluster only."""
    destination, source = instruction.operands
    space, text = match.group("space"), code.value(source, 64)
    if code.kind == "lanes":
        text = f"row_of({text}, 64)"
    tests = {
        "shared::cluster": f"({text} >> 56 == {SHARED_TAG})",
        "local": f"({text} >> 56 == {LOCAL_TAG})",
        "global": f"({text} >> 56 == 0)",
    }
    own = f"({text} >> 24 == g.cta.shared_base + {_SHARED_BITS} >> 24)"
    code.assign(destination, tests.get(space, own), code.kind)


ROWS: list[Row] = [
    row(rf"ld\.param(?:::entry)?{_VECTOR}\.(?P<type>{_TYPES})", _load_param),
    row(rf"ld{_ORDER}\.(?P<space>global|shared::cta|shared::cluster|shared|local){_CACHE}{_VECTOR}\.(?P<type>{_TYPES})", _load, kind=_load_kind),
    row(rf"ld\.(?P<space>global){_CACHE}\.nc{_CACHE.replace('?P<hint>', '?:')}{_VECTOR}\.(?P<type>{_TYPES})", _load, kind=_load_kind),
    row(rf"ld{_ORDER}{_CACHE}{_VECTOR}\.(?P<type>{_TYPES})", _load, kind=_load_generic_kind),
    row(rf"st{_ORDER}{_SPACE}{_CACHE}{_VECTOR}\.(?P<type>{_TYPES})", _store, writes=0),
    row(rf"atom{_ATOMIC_PATTERN}", _atomic(True), kind=always_lanes),
    row(rf"red{_ATOMIC_PATTERN}", _atomic(False), writes=0),
    row(r"cvta(?P<to>\.to)?\.(?P<space>global|shared::cta|shared::cluster|shared|local|param|const)\.u(?:32|64)", _convert_address),
    row(r"mapa(?:\.(?P<space>shared::cluster))?\.u(?:32|64)", _map_address),
    row(r"isspacep\.(?P<space>global|shared::cta|shared::cluster|shared|local)", _is_space),
    called(r"getctarank(?:\.shared::cluster)?\.u(?:32|64)", "{1:v} >> 24 & 0xff"),
    ignored(r"prefetch(?:\.global|\.local)?\.(?:L1|L2)(?:::evict_(?:last|normal))?"),
    ignored(r"prefetchu\.L1"),
    ignored(r"applypriority(?:\.global)?\.L2::evict_normal"),
    called(r"createpolicy\.fractional\.L2::evict_(?:last|normal|first|unchanged)(?:\.L2::evict_(?:first|unchanged))?\.b64", "0"),
]  # fmt: skip
