"""Rows of the opcode table: atom and red (PTX ISA, "atom", "red"). Their modifiers may come in any order."""

from __future__ import annotations

import re

from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.modifiers import HINT, SCOPES, classified
from nogpu.compiler.opcodes.rows import Row, always_lanes, row
from nogpu.compiler.rowcode.accesses import atomic
from nogpu.compiler.rowcode.assembler import Assembler, Unsupported
from nogpu.ptx.ir import SINK, Address, Instruction, Vector, items_of

_SCALARS = {
    **dict.fromkeys(("and", "or", "xor"), ("b32", "b64")),
    **dict.fromkeys(("min", "max"), ("u32", "s32", "u64", "s64")),
    **dict.fromkeys(("inc", "dec"), ("u32",)),
    "add": ("u32", "s32", "u64", "f32", "f64", "f16", "f16x2", "bf16", "bf16x2"),
    "exch": ("b32", "b64"),
    "cas": ("b16", "b32", "b64"),
}
_HALVES = {"f16": (2, 4, 8), "bf16": (2, 4, 8), "f16x2": (2, 4), "bf16x2": (2, 4)}
_VECTORS = {"add": {"f32": (2, 4), **_HALVES}, "min": _HALVES, "max": _HALVES}
_TYPES = ("b16", "b32", "b64", "b128", "u32", "u64", "s32", "s64", "f16", "f16x2", "bf16", "bf16x2", "f32", "f64")
_ATOM = {
    "order": ("relaxed", "acquire", "release", "acq_rel"),
    "scope": SCOPES,
    "space": ("global", "shared", "shared::cta", "shared::cluster"),
    "operation": tuple(_SCALARS),
    "type": _TYPES,
    "vector": ("v2", "v4", "v8"),
    "rounding": ("noftz",),
    "hint": HINT,
}
# red returns no value: it has neither exch nor cas, nor acquire.
_RED = _ATOM | {
    "order": ("relaxed", "release"),
    "operation": tuple(operation for operation in _SCALARS if operation not in ("exch", "cas")),
}
_CLASSES = {"atom": _ATOM, "red": _RED}


def _check(code: Code, name: str, found: dict[str, str]) -> None:
    operation, type_name, vector = found["operation"], found["type"], found.get("vector")
    what = f"{name}.{operation}" + (f".{vector}" if vector else "") + f".{type_name}"
    if type_name == "b128":
        raise code.fail(f"{what}: 128-bit atomics are not modelled")
    if vector and int(vector[1:]) not in _VECTORS.get(operation, {}).get(type_name, ()):
        raise code.fail(f"{what} does not exist (PTX ISA, {name}, vector types)")
    if not vector and type_name not in _SCALARS[operation]:
        raise code.fail(f"{what} does not exist: .{operation} takes {', '.join(_SCALARS[operation])} (PTX ISA, {name})")
    if ("f16" in type_name) != ("rounding" in found):
        raise code.fail(f"{what}: .noftz belongs to f16 and bf16 types, and they must have it (PTX ISA, {name})")
    if found.get("space", "global") != "global" and (vector or "hint" in found):
        raise code.fail(f"{what}: vectors and cache hints are for global memory (PTX ISA, {name})")
    if operation == "cas" and "hint" in found:
        raise code.fail(f"{what} has no cache hint (PTX ISA, {name})")


def _emit(code: Code, instruction: Instruction, match: re.Match) -> None:
    name = match.group("name")
    found = classified(code, name, match.group("modifiers"), _CLASSES[name])
    if "operation" not in found:
        raise code.fail(f"{name} without an operation (PTX ISA, {name})")
    _check(code, name, found)
    operands = instruction.operands[1:] if name == "atom" else instruction.operands
    expected = 2 + (found["operation"] == "cas") + ("hint" in found)
    if len(operands) != expected:
        raise code.fail(f"{len(operands)} operands after the destination, {expected} expected")
    address, *sources = operands
    code.fits(address, "[]")
    if "hint" in found:
        code.fits(sources[-1], "b64")
    count = int(found.get("vector", "v1")[1:])
    taken = sources[: 2 if found["operation"] == "cas" else 1]
    values = [_stacked(code, source, count, found["type"]) for source in taken]
    space = {None: "generic", "shared::cta": "shared"}.get(found.get("space"), found.get("space"))
    place = f"{(space, found['operation'], found['type'])}, {code.address(address)}"
    call = f"atomics.atomic(g, {code.mask}, {place}, {', '.join((values + ['None'])[:2])}, (g, {code.pc}))"
    code.line(f"messages.tell(g, {code.mask}, {space!r}, {code.address(address)})")
    if name == "red":
        code.line(call)
        return
    code.line(f"messages.hear(g, {code.mask}, {space!r}, {code.address(address)})")
    destination = instruction.operands[0]
    code.fits(destination, f"_{found['type']}{'*' if count > 1 else ''}")
    if count > 1 and len(destination.items if isinstance(destination, Vector) else ()) != count:
        raise code.fail(f"the destination must be a vector of {count}")
    code.assign_parts(destination, call, "lanes")


def _kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """Emits the kernel of an atomic on one word. Its modifiers are legal: the call, written before, checks them."""
    name = match.group("name")
    parts = match.group("modifiers")[1:].split(".")
    found = {kind: part for part in parts for kind, names in _CLASSES[name].items() if part in names}
    result, (address, *sources) = SINK, instruction.operands
    if name == "atom":
        result, address, *sources = instruction.operands
    if "vector" in found or not isinstance(address, Address):
        raise Unsupported
    space = {"shared::cta": "shared"}.get(found.get("space", "generic"), found.get("space", "generic"))
    taken = sources[: 2 if found["operation"] == "cas" else 1]
    atomic(code, space, found["operation"], found["type"], address, result, taken)


def _stacked(code: Code, source: object, count: int, type_name: str) -> str:
    items = items_of(source)
    if len(items) != count:
        raise code.fail(f"an operand of {len(items)} elements, {count} expected")
    for item in items:
        code.fits(item, type_name)
    return code.stack(items, type_name)


ROWS: list[Row] = [
    row(r"(?P<name>atom)(?P<modifiers>\..+)", _emit, kind=always_lanes, kernels=_kernels),
    row(r"(?P<name>red)(?P<modifiers>\.(?!async).+)", _emit, writes=0, kernels=_kernels),
]
