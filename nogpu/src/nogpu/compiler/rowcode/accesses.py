"""Descriptions of loads, stores and atomics for the kernels `access` and `atomic` (native/access.c)."""

from __future__ import annotations

from itertools import chain

from nogpu import headers
from nogpu.compiler.rowcode.assembler import Assembler, Unsupported
from nogpu.ptx.ir import SINK, Address, Immediate, Register
from nogpu.ptx.literals import literal_bits
from nogpu.ptx.types import type_width

SPACES = {"global": 0, "shared": 1, "shared::cluster": 2, "generic": 3}  # in the order of native/access.c
(_MOST_ITEMS,) = headers.constants("native/access.c", "MOST_ITEMS")
NOTHING, ROW, ONE, CONSTANT = headers.constants("native/access.c", "NOTHING", "ROW", "ONE", "CONSTANT")
_OPERATIONS = dict(
    zip(
        ("add", "add.f32", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"),
        headers.constants(
            "native/access.c", "ADD", "ADD_F32", "MIN", "MAX", "AND", "OR", "XOR", "EXCH", "CAS", "INC", "DEC"
        ),
    )
)
_ACCESS = headers.packer("native/access.c", "Access")


def access(code: Assembler, store: bool, space: str, address: Address, items: tuple, type_name: str) -> None:
    """Emits ld or st of items to or from `space`. Raises Unsupported for spaces without a kernel."""
    if space not in SPACES:
        raise Unsupported
    slot, displacement, by_lane = code.address(address)
    width = type_width(type_name)
    described = [_item(code, item, type_name, store) for item in items]
    if by_lane and not store and any(kind == ONE for kind, *_ in described):
        raise Unsupported
    base = address.base
    bits = base.width if isinstance(base, Register) else 64
    uniform = space != "generic" and not by_lane and all(kind != ROW for kind, *_ in described)
    signed = type_name[0] == "s"
    head = (SPACES[space], store, by_lane, uniform, bits, width // 8, len(items), signed, slot, 0)
    described += [(NOTHING, 0, 0)] * (_MOST_ITEMS - len(items))
    code.emit_described("access", _ACCESS.pack(*map(int, head), displacement, *chain.from_iterable(described)))


def atomic(
    code: Assembler, space: str, operation: str, type_name: str, address: Address, result: object, sources: list
) -> None:
    """Emits atom, or with the result SINK red. sources: b, and c of cas. Raises Unsupported for other types."""
    width = type_width(type_name)
    if space not in SPACES or type_name not in ("b32", "b64", "u32", "u64", "s32", "s64", "f32"):
        raise Unsupported
    slot, displacement, by_lane = code.address(address)
    items = [_item(code, result, type_name, False), *(_item(code, source, type_name, True) for source in sources)]
    if items[0][0] not in (NOTHING, ROW) or any(kind in (ROW, ONE) and bits != width for kind, bits, _ in items):
        raise Unsupported
    bits = address.base.width if isinstance(address.base, Register) else 64
    kind = _OPERATIONS["add.f32" if type_name == "f32" else operation]
    head = (SPACES[space], True, by_lane, False, bits, width // 8, 1, type_name[0] == "s", slot, kind)
    items += [(NOTHING, 0, 0)] * (_MOST_ITEMS - len(items))
    code.emit_described("atomic", _ACCESS.pack(*map(int, head), displacement, *chain.from_iterable(items)))


def _item(code: Assembler, item: object, type_name: str, store: bool) -> tuple[int, int, int]:
    """(kind, bits of the register, slot or constant) of an element."""
    if item == SINK and not store:
        return NOTHING, 0, 0
    if isinstance(item, Immediate):
        return CONSTANT, type_width(type_name), literal_bits(item, type_name)
    if not isinstance(item, Register):
        raise Unsupported
    return (ROW if code.is_row(item) else ONE), item.width, code.slots[item.name].offset
