"""Descriptions of loads, stores, atomics, matrices and cp.async for the kernels of native/access.c."""

from __future__ import annotations

from itertools import chain

from nogpu import headers
from nogpu.compiler.rowcode.assembler import Assembler, Source, Unsupported
from nogpu.ptx.ir import SINK, Address, Immediate, Register
from nogpu.ptx.literals import literal_bits
from nogpu.ptx.types import type_width

# In the order of native/access.c. Local memory has no atomics.
_PLACES = {"global": 0, "shared": 1, "shared::cluster": 2, "generic": 3, "local": 4}
SPACES = {space: number for space, number in _PLACES.items() if space != "local"}
(_ORDERED,) = headers.constants("native/access.c", "ORDERED")
(_MOST_ITEMS,) = headers.constants("native/access.c", "MOST_ITEMS")
NOTHING, ROW, ONE, CONSTANT = headers.constants("native/access.c", "NOTHING", "ROW", "ONE", "CONSTANT")
(ONE_VALUE,) = headers.constants("native/engine.h", "ONE_VALUE")
_NAMES = (
    "add",
    "add.f32",
    "add.f64",
    "add.f16",
    "add.bf16",
    "min",
    "max",
    "and",
    "or",
    "xor",
    "exch",
    "cas",
    "inc",
    "dec",
)
_OPERATIONS = dict(
    zip(_NAMES, headers.constants("native/access.c", *(name.upper().replace(".", "_") for name in _NAMES)), strict=True)
)
_ACCESS, _MATRICES, _CP_ASYNC = (headers.packer("native/access.c", name) for name in ("Access", "Matrices", "CpAsync"))
_NO_ITEM = NOTHING, 0, 0
_NO_ROW = 0, -1, 0, False
_ROW_BITS = {"global": 64, "generic": 64, "shared": 32}  # of the addresses of loads whose patterns are looked for


def access(
    code: Assembler, store: bool, space: str, address: Address, items: tuple, type_name: str, ordered: bool
) -> None:
    """Emits ld or st of items to or from `space`. ordered: whether it is volatile or has an order. Raises Unsupported
    for spaces without a kernel.
    """
    if space not in _PLACES:
        raise Unsupported
    slot, displacement, by_lane = code.address(address)
    width = type_width(type_name)
    described = [_item(code, item, type_name, store) for item in items]
    if by_lane and not store and any(kind == ONE for kind, *_ in described):
        raise Unsupported
    base = address.base
    bits = base.width if isinstance(base, Register) else 64
    uniform = space not in ("generic", "local") and not by_lane and all(kind != ROW for kind, *_ in described)
    signed = type_name[0] == "s"
    kind = _ORDERED if ordered else 0
    head = (_PLACES[space], store, by_lane, uniform, bits, width // 8, len(items), signed, slot, kind)
    row, kernel = (slot, *_NO_ROW[1:]), "access"
    if by_lane and not store and not ordered and bits == _ROW_BITS.get(space):
        row = _row(code, base)
        form = {1: f"{width}", 4: f"{width}x4" if width == 32 else None}.get(len(items))
        if form and all(item[:2] == (ROW, width) for item in described):
            kernel = f"load_{'shared' if space == 'shared' else 'global'}_{form}"
    described += [_NO_ITEM] * (_MOST_ITEMS - len(items))
    code.emit_described(kernel, _ACCESS.pack(*map(int, (*head, *row)), displacement, *chain.from_iterable(described)))


def _row(code: Assembler, base: object) -> tuple[int, int, int, bool]:
    """The fields that describe the row of a load's addresses."""
    assert isinstance(base, Register)
    row, added, place, is_known = code.address_rows.row_of(base)
    if isinstance(added, int):
        slot = added
    else:
        slot = -1 if added is None else code.source(added, f"u{row.width}").offset
    return code.slots[row.name].offset, slot, place, is_known


def atomic(
    code: Assembler, space: str, operation: str, type_name: str, address: Address, result: object, sources: list
) -> None:
    """Emits atom, or with the result SINK red. sources: b, and c of cas. Raises Unsupported for local memory."""
    width = type_width(type_name)
    if space not in SPACES:
        raise Unsupported
    slot, displacement, by_lane = code.address(address)
    items = [_item(code, result, type_name, False), *(_item(code, source, type_name, True) for source in sources)]
    if items[0][0] not in (NOTHING, ROW) or any(kind in (ROW, ONE) and bits != width for kind, bits, _ in items):
        raise Unsupported
    bits = address.base.width if isinstance(address.base, Register) else 64
    floating = "f" in type_name
    kind = _OPERATIONS[f"{operation}.{type_name.removesuffix('x2')}" if floating else operation]
    head = (SPACES[space], True, by_lane, False, bits, width // 8, 1, type_name[0] == "s", slot, kind)
    items += [_NO_ITEM] * (_MOST_ITEMS - len(items))
    code.emit_described("atomic", _ACCESS.pack(*map(int, (*head, *_NO_ROW)), displacement, *chain.from_iterable(items)))


def matrices(code: Assembler, store: bool, address: Address, registers: tuple, transposed: bool) -> None:
    """Emits ldmatrix or stmatrix of 8x8 matrices of 16-bit elements. Raises Unsupported for constants."""
    items = [_item(code, register, "b32", store) for register in registers]
    if any(kind == CONSTANT or (kind == ONE and not store) for kind, *_ in items):
        raise Unsupported
    slots = [-1 if kind == NOTHING else place | (ONE_VALUE if kind == ONE else 0) for kind, _, place in items]
    slots += [-1] * (4 - len(items))
    head = _place(code, "shared", store, address, 8, 2)
    code.emit_described(
        "store_matrices" if store else "load_matrices", _MATRICES.pack(*head, transposed, len(items), *slots)
    )


def cp_async(
    code: Assembler, target: Address, source: Address, size: int, counts: object | None, ignored: Source | None
) -> None:
    """Emits cp.async of `size` bytes. counts: src-size; None for all bytes. ignored: predicate of lanes that read
    nothing; None: no lane.
    """
    item = _NO_ITEM if counts is None else _item(code, counts, "u32", True)
    lanes = (-1, 0) if ignored is None else (ignored.offset, int(not ignored.row))
    places = _place(code, "shared", True, target, size, 1), _place(code, "global", False, source, size, 1)
    code.emit_described("cp_async", _CP_ASYNC.pack(*chain(*places), *item, *lanes))


def _place(code: Assembler, space: str, store: bool, address: Address, nbytes: int, count: int) -> tuple[int, ...]:
    """The fields of an access without items. Raises Unsupported for a generic address of shared memory."""
    slot, displacement, by_lane = code.address(address)
    bits = address.base.width if isinstance(address.base, Register) else 64
    if space == "shared" and isinstance(address.base, Register) and bits != 32:
        raise Unsupported
    head = (SPACES[space], store, by_lane, False, bits, nbytes, count, False, slot, 0)
    return (*map(int, (*head, *_NO_ROW)), displacement, *chain(*[_NO_ITEM] * _MOST_ITEMS))


def _item(code: Assembler, item: object, type_name: str, store: bool) -> tuple[int, int, int]:
    """(kind, bits of the register, slot or constant) of an element."""
    if item == SINK and not store:
        return NOTHING, 0, 0
    if isinstance(item, Immediate):
        return CONSTANT, type_width(type_name), literal_bits(item, type_name)
    if not isinstance(item, Register):
        raise Unsupported
    return (ROW if code.is_row(item) else ONE), item.width, code.slots[item.name].offset
