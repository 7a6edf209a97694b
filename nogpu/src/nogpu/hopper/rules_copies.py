"""Rules for tensor copies: 4-bit maps (maps.py), barriers in another CTA (forwarding.cuh), new forms of sm_100."""

from __future__ import annotations

import re

from nogpu.hopper.context import Context, address, asked
from nogpu.hopper.maps import MapFacts
from nogpu.hopper.statements import Block, Statement, split


def _map_operand(statement: Statement) -> int:
    """Index of the map's operand: first in stores and prefetches, after the destination in loads."""
    return 0 if re.search(r"\.global\.shared|prefetch|reduce", statement.opcode) else 1


def _facts(statement: Statement, context: Context) -> MapFacts | None:
    """Facts that all maps of the statement share; None if they are known only at run time, from the map itself."""
    place = statement.parsed.operands[_map_operand(statement)]
    names = context.origins.of(place.base) if place.offset == 0 else None
    facts = {context.maps.get(name) for name in names or ()}
    return facts.pop() if len(facts) == 1 else None


def tensor_copy(statement: Statement, context: Context) -> str | None:
    """Lower cp.async.bulk.tensor, cp.reduce.async.bulk.tensor and cp.async.bulk.prefetch.tensor."""
    opcode, operands, block = statement.opcode, list(statement.operands), Block()
    at, facts = _map_operand(statement), _facts(statement, context)
    source, coordinates = split(operands[at].strip()[1:-1])
    names = split(coordinates.strip("{}"))
    if facts is None or facts.four_bit:
        if facts is None:
            half = asked(block, context, "", source, names[0])
        else:
            half = block.register()
            block.add(f"shr.s32 {half}, {names[0]}, 1;")
        names[0] = half
        operands[at] = f"[{source}, {{{', '.join(names)}}}]"
    if ".cta_group::2" in opcode and ".mbarrier" in opcode:
        operands[2] = f"[{_shadow(block, statement, context, source, facts)}]"
    lowered = re.sub(r"\.cta_group::[12]", "", opcode).replace(".shared::cta.global", ".shared::cluster.global")
    if lowered == opcode and operands == list(statement.operands):
        return None
    block.add(f"{lowered} {', '.join(operands)};")
    return block.text(statement)


def _shadow(block: Block, statement: Statement, context: Context, source: str, facts: MapFacts | None) -> str:
    """A register with the barrier on which the load itself completes (forwarding.cuh)."""
    meant, mask, shadow = address(block, statement.operands[2]), block.register(), block.register()
    if facts is None:
        bytes_ = block.register()
        context.call(block, "hopper_box_bytes", ("b64", source), result=("b32", bytes_))
    else:
        bytes_ = str(facts.box_bytes)
    if ".multicast" in statement.opcode:
        block.add(f"cvt.u32.u16 {mask}, {statement.operands[3]};")
    else:
        # The destination is in one CTA only.
        target = address(block, statement.operands[0])
        block.add(f"shr.u32 {mask}, {target}, 24;")
        block.add(f"shl.b32 {mask}, 1, {mask};")
    context.call(block, "hopper_load_barrier", ("b32", meant), ("b32", bytes_), ("b32", mask), result=("b32", shadow))
    return shadow


def bulk_copy(statement: Statement, context: Context) -> str | None:
    """Lower cp.async.bulk without a map: its destination .shared::cta is new in sm_100; the address fits both forms."""
    if ".shared::cta.global" not in statement.opcode:
        return None
    opcode = statement.opcode.replace(".shared::cta.global", ".shared::cluster.global")
    return f"{statement.guard} {opcode} {', '.join(statement.operands)};"


def replace_field(statement: Statement, context: Context) -> str | None:
    """Lower tensormap.replace in a map that may have had 4-bit elements: half of a new size of dimension 0.

    Raises EmulatorError for a 4- or 6-bit element type, and for the box's size in dimension 0.
    """
    opcode = statement.opcode
    if ".elemtype" in opcode and statement.operands[-1].strip() in ("13", "14", "15"):
        raise context.refuse(statement, "a Hopper has no such element type")
    if not (".global_dim" in opcode or ".box_dim" in opcode) or statement.operands[1] != "0":
        return None
    if ".box_dim" in opcode:
        raise context.refuse(statement, "boxes of 4-bit elements are known from the launch's tensor maps only")
    block = Block()
    space = ".shared" if ".shared" in opcode else ".global" if ".global." in opcode else ""
    place, _, value = statement.operands
    half = asked(block, context, space, place.strip()[1:-1], value)
    block.add(f"{opcode} {place}, 0, {half};")
    return block.text(statement)
