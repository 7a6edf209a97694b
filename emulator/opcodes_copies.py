"""Rows of the opcode table: bulk and tensor copies, tensor map edits (PTX ISA, "Data Movement and Conversion Instructions:
Asynchronous copy").
"""

from __future__ import annotations

import re

from emulator.code import Code
from emulator.instructions import Address, Instruction
from emulator.rows import Row, called, ignored, row


def _tile_load(code: Code, instruction: Instruction, match: re.Match) -> None:
    """[dst], [map, {c}], [mbar]{, mask}{, cache hint}"""
    destination, tensor_map, barrier, *options = instruction.operands
    _check_rank(code, tensor_map, match)
    options = _options(code, options, match)
    multicast = code.single(options[0], 16) if match.group("multicast") else "None"
    pair, own = ".cta_group::2" in instruction.opcode, match.group("space") == "shared::cta"
    coordinates = _coordinates(code, tensor_map)
    places = f"{code.address(destination)}, {code.address(tensor_map)}, {coordinates}, {code.address(barrier)}"
    code.line(f"load_tile(g, {code.mask}, {places}, {multicast}, {pair}, {own}, (g, {code.pc}))")


def _options(code: Code, operands: list, match: re.Match) -> list:
    expected = bool(match.groupdict().get("multicast")) + bool(match.group("hint"))
    if len(operands) != expected:
        raise code.fail(f"{len(operands)} optional operands where the modifiers ask for {expected}")
    return operands


def _check_rank(code: Code, tensor_map: Address, match: re.Match) -> None:
    rank = len(tensor_map.coordinates or ())
    if rank != int(match.group("rank")):
        raise code.fail(f"{rank} coordinates in a copy of {match.group('rank')} dimensions")


def _coordinates(code: Code, tensor_map: Address) -> str:
    return "(" + ", ".join(code.value(item) for item in tensor_map.coordinates) + ",)"


def _tile_store(code: Code, instruction: Instruction, match: re.Match) -> None:
    """[map, {c}], [src]{, cache hint}"""
    tensor_map, source, *options = instruction.operands
    _check_rank(code, tensor_map, match)
    _options(code, options, match)
    places = f"{code.address(tensor_map)}, {_coordinates(code, tensor_map)}, {code.address(source)}"
    code.line(f"store_tile(g, {code.mask}, {places}, (g, {code.pc}))")


def _bulk_load(code: Code, instruction: Instruction, match: re.Match) -> None:
    """[dst], [src], size, [mbar]{, mask}{, cache hint}"""
    destination, source, size, barrier, *options = instruction.operands
    options = _options(code, options, match)
    multicast = code.single(options[0], 16) if match.group("multicast") else "None"
    places = f"{code.address(destination)}, {code.address(source)}, {code.value(size)}, {code.address(barrier)}"
    own = match.group("space") == "shared::cta"
    code.line(f"load_bulk(g, {code.mask}, {places}, {multicast}, {own}, (g, {code.pc}))")


_HINT = r"(?P<hint>\.L2::cache_hint)?"
_ARRIVAL = r"\.mbarrier::complete_tx::bytes(?P<multicast>\.multicast::cluster)?"
_ORDINAL_FIELDS = "box_dim|global_dim|global_stride|element_stride"
_PLAIN_FIELDS = "global_address|rank|elemtype|interleave_layout|swizzle_mode|swizzle_atomicity|fill_mode"
_REPLACE = r"tensormap\.replace\.tile\.(?P<field>{})\.(?P<space>shared::cta|global)\.b1024\.b(?P<width>32|64)"

ROWS: list[Row] = [
    row(
        rf"cp\.async\.bulk\.tensor\.(?P<rank>[1-5])d\.(?P<space>shared::cta|shared::cluster)\.global(?:\.tile)?{_ARRIVAL}"
        rf"(?:\.cta_group::[12])?{_HINT}(?:\.cta_group::[12])?",
        _tile_load,
        writes=0,
    ),
    row(
        rf"cp\.async\.bulk\.tensor\.(?P<rank>[1-5])d\.global\.shared::cta(?:\.tile)?\.bulk_group{_HINT}",
        _tile_store,
        writes=0,
    ),
    row(rf"cp\.async\.bulk\.(?P<space>shared::cta|shared::cluster)\.global{_ARRIVAL}{_HINT}", _bulk_load, writes=0),
    called(
        r"cp\.async\.bulk\.shared::cluster\.shared::cta\.mbarrier::complete_tx::bytes",
        "copy_shared(g, {m}, {0:x}, {1:x}, {2:v}, {3:x}, {who})",
        writes=0,
    ),
    called(
        rf"cp\.async\.bulk\.global\.shared::cta\.bulk_group{_HINT}",
        "store_bulk(g, {m}, {0:x}, {1:x}, {2:v}, {who})",
        writes=0,
    ),
    called(r"cp\.async\.bulk\.commit_group", "commit_group(g, {m}, {who})", writes=0),
    called(r"cp\.async\.bulk\.wait_group(?P<read>\.read)?", "wait_group(g, {m}, {0:i}, {read:b}, {who})", writes=0),
    ignored(r"cp\.async\.bulk\.prefetch\.tensor\.[1-5]d\.L2\.global(?:\.tile)?(?:\.L2::cache_hint)?"),
    ignored(r"cp\.async\.bulk\.prefetch\.L2\.global(?:\.L2::cache_hint)?"),
    ignored(r"prefetch(?:\.param|\.const)?\.tensormap"),
    called(
        _REPLACE.replace("{}", _ORDINAL_FIELDS),
        "replace_field(g, {m}, {space}, {field}, {0:x}, {1:i}, {2:v}, {who})",
        writes=0,
    ),
    called(
        _REPLACE.replace("{}", _PLAIN_FIELDS),
        "replace_field(g, {m}, {space}, {field}, {0:x}, None, {1:l}, {who})",
        writes=0,
    ),
    called(
        r"tensormap\.cp_fenceproxy\.global\.shared::cta\.tensormap::generic\.release\.(?:cta|cluster|gpu|sys)\.sync\.aligned",
        "publish_tensor_map(g, {m}, {0:x}, {1:x}, {2:i}, {who})",
        writes=0,
    ),
]
