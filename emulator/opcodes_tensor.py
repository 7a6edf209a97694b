"""Rows of the opcode table: tcgen05 (PTX ISA, "TensorCore 5th Generation Family Instructions")."""

from __future__ import annotations

import re

from emulator.code import Code
from emulator.instructions import Address, Immediate, Instruction, Vector
from emulator.rows import Row, always_lanes, called, ignored, row


def _tensor_memory_load(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, taddr, *split = instruction.operands
    call = (
        f"load(g, {code.mask}, {match.group('shape')!r}, {match.group('num')}, {bool(match.group('pack'))}, "
        f"{code.address(taddr)}, {_split(code, split, match)}, (g, {code.pc}))"
    )
    code.assign_parts(destination, "tensorops." + call, "lanes")


def _tensor_memory_store(code: Code, instruction: Instruction, match: re.Match) -> None:
    taddr, *split, source = instruction.operands
    items = source.items if isinstance(source, Vector) else (source,)
    values = ", ".join(code.value(item) for item in items)
    code.line(
        f"tensorops.store(g, {code.mask}, {match.group('shape')!r}, {match.group('num')}, {bool(match.group('pack'))}, "
        f"{code.address(taddr)}, {_split(code, split, match)}, stack([{values}], 32), (g, {code.pc}))"
    )


def _split(code: Code, operands: list, match: re.Match) -> str:
    needed = match.group("shape") == "16x32bx2"
    if needed != (len(operands) == 1) or (needed and not isinstance(operands[0], Immediate)):
        raise code.fail("an immediate split offset goes with shape 16x32bx2 only")
    return str(operands[0].value) if needed else "None"


def _mma(code: Code, instruction: Instruction, match: re.Match) -> None:
    """[d], a, b, idesc, {[sfa], [sfb],} {disable-output-lane,} enable-input-d; a: a descriptor or an address in
    tensor memory.
    """
    d, a, b, idesc, *rest = instruction.operands
    scaled = match.group("scaled") is not None
    if not scaled and isinstance(rest[0], Vector):
        code.line(f"tensorissue.all_lanes([{', '.join(code.value(item) for item in rest[0].items)}], {code.mask})")
        rest = rest[1:]
    if len(rest) != (3 if scaled else 1):
        raise code.fail("the operand scale-input-d of tcgen05.mma is not modelled")
    scales = f"{code.address(rest[0])}, {code.address(rest[1])}" if scaled else "None, None"
    in_tmem = isinstance(a, Address)
    operands = f"{code.address(d)}, {code.address(a) if in_tmem else code.value(a, 64)}, {code.value(b, 64)}, {code.value(idesc)}"
    place = f"{match.group('group')}, {match.group('kind')!r}, {match.group('scale')!r}"
    accumulate = code.boolean(rest[-1])
    code.line(
        f"tensorissue.mma(g, {code.mask}, {place}, {operands}, {scales}, {accumulate}, {in_tmem}, (g, {code.pc}))"
    )


_TMEM_SHAPE = r"(?P<shape>32x32b|16x64b|16x128b|16x256b|16x32bx2)\.x(?P<num>1|2|4|8|16|32|64|128)"
_CTA_GROUP = r"\.cta_group::(?P<group>1|2)"
ROWS: list[Row] = [
    called(
        rf"tcgen05\.alloc{_CTA_GROUP}\.sync\.aligned(?:\.shared::cta)?\.b32",
        "tensorops.wait_alloc(g, {m}, {group}, {0:a}, {1:i}, {who})",
        writes=0,
        flow="wait",
    ),
    called(rf"tcgen05\.dealloc{_CTA_GROUP}\.sync\.aligned\.b32", "tensorops.dealloc(g, {m}, {group}, {0:i}, {1:i}, {who})", writes=0),
    called(rf"tcgen05\.relinquish_alloc_permit{_CTA_GROUP}\.sync\.aligned", "tensorops.relinquish(g, {m}, {group}, {who})", writes=0),
    row(rf"tcgen05\.ld\.sync\.aligned\.{_TMEM_SHAPE}(?P<pack>\.pack::16b)?\.b32", _tensor_memory_load, kind=always_lanes),
    row(rf"tcgen05\.st\.sync\.aligned\.{_TMEM_SHAPE}(?P<pack>\.unpack::16b)?\.b32", _tensor_memory_store, writes=0),
    called(r"tcgen05\.wait::(?:ld|st)\.sync\.aligned", "tensorops.synchronize(g, {m}, 'tcgen05.wait')", writes=0),
    ignored(r"tcgen05\.fence::(?:before|after)_thread_sync"),
    called(
        rf"tcgen05\.cp{_CTA_GROUP}\.(?P<shape>128x256b|4x256b|128x128b|64x128b|32x128b)(?:\.(?P<cast>warpx2::02_13|warpx2::01_23|warpx4))?",
        "tensorissue.copy(g, {m}, {group}, {shape}, {cast}, {0:x}, {1:v}, {who})",
        writes=0,
    ),
    row(
        rf"tcgen05\.mma{_CTA_GROUP}\.kind::(?P<kind>f16|mxf4nvf4|mxf4)(?P<scaled>\.block_scale)?(?:\.(?P<scale>scale_vec::[124]X|block16|block32))?"
        r"(?:\.collector::a::(?:fill|use|lastuse|discard))?",
        _mma,
        writes=0,
    ),
    called(
        rf"tcgen05\.commit{_CTA_GROUP}\.mbarrier::arrive::one(?:\.shared::cluster)?(?:\.multicast::cluster)?\.b64",
        "tensorissue.commit(g, {m}, {group}, {0:x}, {1:i}, {who})",
        writes=0,
    ),
]  # fmt: skip
