"""Rows of the opcode table: bulk and tensor copies, reductions, tensor map edits (PTX ISA, "Data Movement and
Conversion Instructions: Asynchronous copy").
"""

from __future__ import annotations

import re

from nogpu import headers
from nogpu.arithmetic.reductions import OPERATIONS, TENSOR_OPERATIONS
from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.rows import Row, called, row
from nogpu.compiler.rowcode.assembler import Assembler, Unsupported
from nogpu.hardware.tma.modes import GATHERED_ROWS, Mode
from nogpu.ptx.ir import Address, Instruction, Register, Vector

_OPTIONS = {"multicast": "b16", "hint": "b64", "kept": "b16"}  # modifier -> type of its operand, in order
_ROW_MODES = ("tile::gather4", "tile::scatter4")
_PIXEL_MODES = ("im2col", "im2col_no_offs")


def _tile_load(code: Code, instruction: Instruction, match: re.Match) -> None:
    """Emits the load [dst], [map, {c}], [mbar]{, {im2col offsets}}{, mask}{, cache hint}."""
    destination, tensor_map, barrier, *options = instruction.operands
    mode = _mode(code, tensor_map, match)
    coordinates = _coordinates(code, tensor_map, options, match)
    options = _options(code, options, match)
    multicast = code.single(options[0], 16) if match.group("multicast") else "None"
    pair, own = ".cta_group::2" in instruction.opcode, match.group("space") == "shared::cta"
    places = f"{code.address(destination)}, {code.address(tensor_map)}, {code.address(barrier)}"
    operands = f"({places}, {multicast}, {coordinates})"
    code.line(f"copies.load_tile(g, {code.mask}, {operands}, {pair}, {own}, {mode!r}, (g, {code.pc}))")


_OPERANDS = headers.packer("native/loads.c", "Operands")


def _tile_load_kernel(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, tensor_map, barrier, *_ = instruction.operands
    coordinates = tensor_map.coordinates or ()
    plain = match.group("mode") is None and not match.group("multicast")
    if not plain:
        raise Unsupported
    slots, displacements, rows, wide = [], [], 0, 0
    for i, address in enumerate((destination, tensor_map, barrier)):
        slot, displacement, by_lane = code.address(address)
        slots.append(slot)
        displacements.append(displacement)
        rows |= by_lane << i
        wide |= (not isinstance(address.base, Register) or address.base.width == 64) << i
    for i, item in enumerate(coordinates, start=3):
        source = code.source(item, "s32")
        slots.append(source.offset)
        rows |= source.row << i
    slots += [-1] * (8 - len(slots))
    pair = ".cta_group::2" in instruction.opcode
    description = _OPERANDS.pack(*slots, rows, wide, *displacements, len(coordinates), pair)
    code.emit("tile_load", x=code.described(description))


def _options(code: Code, operands: list, match: re.Match) -> list:
    groups = match.groupdict()
    types = [type_name for name, type_name in _OPTIONS.items() if groups.get(name)]
    if len(operands) != len(types):
        raise code.fail(f"{len(operands)} optional operands where the modifiers ask for {len(types)}")
    for operand, type_name in zip(operands, types):
        code.fits(operand, type_name)
    return operands


def _mode(code: Code, tensor_map: Address, match: re.Match) -> Mode:
    """The copy's mode; checks the number of dimensions and of coordinates."""
    rows = match.group("mode") in _ROW_MODES
    rank, count = int(match.group("rank")), len(tensor_map.coordinates or ())
    if rows and rank != 2:
        raise code.fail(f"{match.group('mode')} of {rank} dimensions: there are two")
    if count != (1 + GATHERED_ROWS if rows else rank):
        what = "of four rows" if rows else f"of {rank} dimensions"
        raise code.fail(f"{count} coordinates in a copy {what}")
    if match.group("mode") in _PIXEL_MODES:
        if rank < 3:
            raise code.fail(f".{match.group('mode')} of {rank} dimensions: there are 3 to 5 (PTX ISA, im2col mode)")
        return "im2col"
    return "rows" if rows else "tile"


def _coordinates(code: Code, tensor_map: Address, options: list, match: re.Match) -> str:
    """The coordinates as text, then the im2col offsets, which are taken out of `options`; stores have zeros."""
    items = tensor_map.coordinates or ()
    for item in items:
        code.fits(item, "s32")
    values = [code.value(item) for item in items]
    if match.group("mode") == "im2col":
        offsets = options.pop(0).items if options and isinstance(options[0], Vector) else ()
        if len(offsets) != len(items) - 2:
            raise code.fail(f"{len(offsets)} im2col offsets in a copy of {len(items)} dimensions; it has two less")
        for item in offsets:
            code.fits(item, "u16")
        values += [code.value(item, 16) for item in offsets]
    elif match.group("mode") == "im2col_no_offs":
        values += ["0"] * (len(items) - 2)
    return ", ".join(values)


def _tile_store(code: Code, instruction: Instruction, match: re.Match) -> None:
    """Emits the store [map, {c}], [src]{, cache hint}."""
    tensor_map, source, *options = instruction.operands
    mode = _mode(code, tensor_map, match)
    _options(code, options, match)
    coordinates = _coordinates(code, tensor_map, options, match)
    operands = f"({code.address(tensor_map)}, {code.address(source)}, {coordinates})"
    operation = match.groupdict().get("operation")
    code.line(f"bulk_stores.store_tile(g, {code.mask}, {operands}, {mode!r}, {operation!r}, (g, {code.pc}))")


def _tile_prefetch(code: Code, instruction: Instruction, match: re.Match) -> None:
    """Emits the prefetch [map, {c}]{, {im2col offsets}}{, cache hint}."""
    tensor_map, *options = instruction.operands
    mode = _mode(code, tensor_map, match)
    operands = f"({code.address(tensor_map)}, {_coordinates(code, tensor_map, options, match)})"
    _options(code, options, match)
    code.line(f"copies.prefetch_tile(g, {code.mask}, {operands}, {mode!r}, (g, {code.pc}))")


def _bulk_load(code: Code, instruction: Instruction, match: re.Match) -> None:
    """Emits the load [dst], [src], size{, bytes ignored left and right}, [mbar]{, mask}{, cache hint}."""
    destination, source, size, *between = instruction.operands
    ignored = [code.value(between.pop(0)) for _ in range(2)] if match.groupdict().get("ignores") else ["0", "0"]
    barrier, *options = between
    options = _options(code, options, match)
    multicast = code.single(options[0], 16) if match.groupdict().get("multicast") else "None"
    places = f"{code.address(destination)}, {code.address(source)}, {code.value(size)}, {code.address(barrier)}"
    operands = ", ".join((places, multicast, *ignored))
    own = match.group("space") == "shared::cta"
    code.line(f"copies.load_bulk(g, {code.mask}, ({operands}), {own}, (g, {code.pc}))")


def _bulk_store(code: Code, instruction: Instruction, match: re.Match) -> None:
    """Emits the store [dst], [src], size{, cache hint}{, byte mask}."""
    destination, source, size, *options = instruction.operands
    options = _options(code, options, match)
    kept = code.value(options[-1], 16) if match.groupdict().get("kept") else "None"
    places = f"{code.address(destination)}, {code.address(source)}, {code.value(size)}"
    reduction = _reduction(code, match, "global")
    code.line(f"bulk_stores.store_bulk(g, {code.mask}, ({places}, {kept}), {reduction!r}, (g, {code.pc}))")


def _bulk_shared(code: Code, instruction: Instruction, match: re.Match) -> None:
    """Emits the copy [dst], [src], size, [mbar]."""
    destination, source, size, barrier = instruction.operands
    places = f"{code.address(destination)}, {code.address(source)}, {code.value(size)}, {code.address(barrier)}"
    reduction = _reduction(code, match, "shared::cluster")
    code.line(f"copies.copy_shared(g, {code.mask}, ({places}), {reduction!r}, (g, {code.pc}))")


def _reduction(code: Code, match: re.Match, space: str) -> tuple[str, str] | None:
    """(operation, element type) of a reduction, None for a copy."""
    if "operation" not in match.re.groupindex:
        return None
    operation, type_name = match.group("operation"), match.group("type")
    types = OPERATIONS[space].get(operation, ())
    if type_name not in types:
        raise code.fail(
            f".{operation}.{type_name} is no reduction in {space} memory; types of .{operation}: "
            f"{', '.join(types) or 'none'} (PTX ISA, cp.reduce.async.bulk)"
        )
    # In a bulk reduction sums of f32 flush subnormals; tensor maps have a type for that.
    return operation, "f32.ftz" if type_name == "f32" else type_name


_HINT = r"(?P<hint>\.L2::cache_hint)?"
_ARRIVAL = r"\.mbarrier::complete_tx::bytes(?P<multicast>\.multicast::cluster)?"
_ORDINAL_FIELDS = "box_dim|global_dim|global_stride|element_stride"
_PLAIN_FIELDS = "global_address|rank|elemtype|interleave_layout|swizzle_mode|swizzle_atomicity|fill_mode"
_REPLACE = r"tensormap\.replace\.tile\.(?P<field>{})\.(?P<space>shared::cta|global)\.b1024\.b(?P<width>32|64)"

_LOAD_MODE = r"(?:\.tile|\.(?P<mode>tile::gather4|tile::scatter4|im2col))?"
_STORE_MODE = _LOAD_MODE.replace("im2col", "im2col_no_offs")
_OPERATIONS = "|".join(TENSOR_OPERATIONS)
_ELEMENTS = r"(?P<operation>(?:and|or|xor|add|inc|dec|min|max)(?:\.noftz)?)\.(?P<type>[a-z]+[0-9]+)"

ROWS: list[Row] = [
    row(
        rf"cp\.async\.bulk\.tensor\.(?P<rank>[1-5])d\.(?P<space>shared::cta|shared::cluster)\.global{_LOAD_MODE}{_ARRIVAL}"
        rf"(?:\.cta_group::[12])?{_HINT}(?:\.cta_group::[12])?",
        _tile_load,
        kernels=_tile_load_kernel,
        takes="[] [,] [] .? .? .?",
    ),
    row(
        rf"cp\.async\.bulk\.tensor\.(?P<rank>[1-5])d\.global\.shared::cta{_STORE_MODE}\.bulk_group{_HINT}",
        _tile_store,
        takes="[,] [] b64?",
    ),
    row(
        rf"cp\.reduce\.async\.bulk\.tensor\.(?P<rank>[1-5])d\.global\.shared::cta\.(?P<operation>{_OPERATIONS})"
        rf"(?:\.tile|\.(?P<mode>im2col_no_offs))?\.bulk_group{_HINT}",
        _tile_store,
        takes="[,] [] b64?",
    ),
    row(
        rf"cp\.async\.bulk\.(?P<space>shared::cta|shared::cluster)\.global{_ARRIVAL}{_HINT}",
        _bulk_load,
        takes="[] [] u32 [] .? .?",
    ),
    row(
        rf"cp\.async\.bulk\.(?P<space>shared::cta)\.global\.mbarrier::complete_tx::bytes{_HINT}(?P<ignores>\.ignore_oob)",
        _bulk_load,
        takes="[] [] u32 u32 u32 [] .?",
    ),
    row(
        r"cp\.async\.bulk\.shared::cluster\.shared::cta\.mbarrier::complete_tx::bytes",
        _bulk_shared,
        takes="[] [] u32 []",
    ),
    row(
        rf"cp\.reduce\.async\.bulk\.shared::cluster\.shared::cta\.mbarrier::complete_tx::bytes\.{_ELEMENTS}",
        _bulk_shared,
        takes="[] [] u32 []",
    ),
    row(
        rf"cp\.async\.bulk\.global\.shared::cta\.bulk_group{_HINT}(?P<kept>\.cp_mask)?",
        _bulk_store,
        takes="[] [] u32 .? .?",
    ),
    row(
        rf"cp\.reduce\.async\.bulk\.global\.shared::cta\.bulk_group{_HINT}\.{_ELEMENTS}",
        _bulk_store,
        takes="[] [] u32 b64?",
    ),
    called(r"cp\.async\.bulk\.commit_group", "bulk_stores.commit_group(g, {m}, {issuer})", writes=0),
    called(
        r"cp\.async\.bulk\.wait_group(?P<read>\.read)?",
        "bulk_stores.wait_group(g, {m}, {0:i}, {read:b}, {issuer})",
        takes="#",
    ),
    row(
        rf"cp\.async\.bulk\.prefetch\.tensor\.(?P<rank>[1-5])d\.L2\.global{_LOAD_MODE}{_HINT}",
        _tile_prefetch,
        takes="[,] .? .?",
    ),
    called(
        r"cp\.async\.bulk\.prefetch\.L2\.global(?:\.L2::cache_hint)?",
        "copies.prefetch_bulk(g, {m}, {0:x}, {1:v}, {issuer})",
        takes="[] u32 b64?",
    ),
    called(r"prefetch(?:\.param|\.const)?\.tensormap", "copies.prefetch_map(g, {m}, {0:x}, {issuer})", takes="[]"),
    called(
        _REPLACE.replace("{}", _ORDINAL_FIELDS),
        "tensor_maps.replace_field(g, {m}, {space}, {0:x}, ({field}, {1:i}), {2:v}, {issuer})",
        takes="[] # b{width}",
    ),
    called(
        _REPLACE.replace("{}", _PLAIN_FIELDS),
        "tensor_maps.replace_field(g, {m}, {space}, {0:x}, ({field}, None), {1:l}, {issuer})",
        takes="[] b{width}",
    ),
    called(
        r"tensormap\.cp_fenceproxy\.global\.shared::cta\.tensormap::generic\.release\.(?:cta|cluster|gpu|sys)\.sync\.aligned",
        "tensor_maps.publish(g, {m}, {0:x}, {1:x}, {2:i}, {issuer})",
        takes="[] [] #",
    ),
]
