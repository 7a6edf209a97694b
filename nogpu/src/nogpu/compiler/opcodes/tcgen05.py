"""Rows of the opcode table: tcgen05 (PTX ISA, "TensorCore 5th Generation Family Instructions")."""

from __future__ import annotations

import re

import numpy as np

from nogpu import headers
from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.rows import Row, always_lanes, called, row
from nogpu.compiler.rowcode.assembler import Assembler, Unsupported
from nogpu.hardware.tensor.instruction import BLOCK_SCALING, KINDS, SCALE_BLOCKS
from nogpu.hardware.tensor.tmem import Form, extent, fragment
from nogpu.ptx.ir import Address, Immediate, Instruction, Negated, Register, Vector, items_of


def _tensor_memory_load(code: Code, instruction: Instruction, match: re.Match) -> None:
    _, taddr, *split = instruction.operands
    places = f"{_form(code, split, match)}, {code.address(taddr)}, destinations[{code.pc}]"
    code.line(f"tmem.load(g, {code.mask}, {places}, (g, {code.pc}))")


_ISSUE = headers.packer("native/tensor_work.c", "IssueOperands")
_COMMITTED = headers.packer("native/tensor_work.c", "CommitOperands")
(_WORK_OPERANDS,) = headers.constants("native/tensor_work.h", "WORK_OPERANDS")


def _issue_kernel(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """Emits tcgen05.mma or cp with the registers that it reads."""
    groups = match.groupdict()
    if groups.get("shifts") or groups.get("b_collector"):
        raise Unsupported
    slots: list[int] = []
    rows = wide = predicates = 0
    operands = [item for operand in instruction.operands for item in items_of(operand)]
    for operand in operands:
        if isinstance(operand, Immediate):
            continue
        bit = 1 << len(slots)
        base = operand.base if isinstance(operand, Address) else operand
        if isinstance(base, Register) and base.width == 1 or isinstance(base, Negated):
            source = code.source(base, "pred")
            predicates |= bit
        elif isinstance(base, Register):
            source = code.source(base, f"b{base.width}")
            wide |= bit if base.width == 64 else 0
        else:
            raise Unsupported
        slots.append(source.offset)
        rows |= bit if source.row else 0
    if len(slots) > _WORK_OPERANDS:
        raise Unsupported
    count = len(slots)
    slots += [0] * (_WORK_OPERANDS - count)
    is_mma = instruction.opcode.startswith("tcgen05.mma")
    code.emit_described(
        "tensor_issue", _ISSUE.pack(*slots, rows, wide, predicates, count, int(groups["group"]), is_mma)
    )


def _commit_kernel(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    barrier, *ranks = instruction.operands
    if match.group("restricted"):
        raise Unsupported
    slot, displacement, rows = code.address(barrier)
    wide = not isinstance(barrier.base, Register) or barrier.base.width == 64
    multicast = code.source(ranks[0], "b16") if ranks else None
    if multicast is not None and multicast.row:
        raise Unsupported
    where = slot, -1 if multicast is None else multicast.offset
    code.emit_described(
        "tensor_commit", _COMMITTED.pack(displacement, *where, rows, wide, int(match.group("group")), 0)
    )


_FRAGMENT = headers.packer("native/fragments.c", "Fragment")


def _load_kernel(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, taddr, *split = instruction.operands
    items = items_of(destination)
    slots = [code.source(item, "b32").offset if isinstance(item, Register) else -1 for item in items]
    code.emit_described("tensor_load", _described(code, taddr, _form(code, split, match), slots))


def _store_kernel(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    taddr, *split, source = instruction.operands
    sources = [code.source(item, "b32") for item in items_of(source)]
    slots = [source.offset | (not source.row) for source in sources]
    code.emit_described("tensor_store", _described(code, taddr, _form(code, split, match), slots))


def _described(code: Assembler, taddr: Address, form: Form, slots: list[int]) -> bytes:
    """The operands of tcgen05.ld or .st, whose registers are in these slots."""
    slot, displacement, is_row = code.address(taddr)
    lanes, columns = extent(form)
    places = fragment(form)[0] if form[2] else fragment(form)
    if len(places) != len(slots):
        raise Unsupported
    # A register's word is a sum of what the lane and what the register adds.
    registers = np.stack([slots, places[:, 0]], axis=1).astype(np.int32)
    fixed = displacement, slot, is_row, lanes, columns, form[3], form[2], len(slots), 0
    return _FRAGMENT.pack(*fixed, *(places[0] - places[0, 0]).tolist()) + registers.tobytes()


def _wait_kernel(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    code.emit("tensor_wait", a=match.group("kind") == "st")


def _reducing_load(code: Code, instruction: Instruction, match: re.Match) -> None:
    """Emits tcgen05.ld.red {r...}, reduced, [taddr] {, split}."""
    _, _, taddr, *split = instruction.operands
    groups = match.groupdict()
    reduction = groups["op"], groups["type"], bool(groups.get("absolute")), bool(groups.get("nan"))
    places = f"{_form(code, split, match)}, {code.address(taddr)}, destinations[{code.pc}]"
    code.line(f"tmem.load(g, {code.mask}, {places}, (g, {code.pc}), {reduction})")


def _tensor_memory_store(code: Code, instruction: Instruction, match: re.Match) -> None:
    taddr, *split, source = instruction.operands
    items = items_of(source)
    for item in items:
        code.fits(item, "b32")
    places = f"{_form(code, split, match)}, {code.address(taddr)}, {code.stack(items)}"
    code.line(f"tmem.store(g, {code.mask}, {places}, (g, {code.pc}))")


def _form(code: Code | Assembler, operands: list, match: re.Match) -> tuple[str, int, bool, int]:
    """The modifiers as `ops.tmem` takes them. operands: the split offset, if there is one."""
    needed = match.group("shape") == "16x32bx2"
    if needed != (len(operands) == 1) or (needed and not isinstance(operands[0], Immediate)):
        raise code.fail("an immediate split offset goes with shape 16x32bx2 only")
    split = operands[0].value if needed else 0
    return match.group("shape"), int(match.group("num")), bool(match.groupdict().get("pack")), split


def _mma(code: Code, instruction: Instruction, match: re.Match) -> None:
    """Emits tcgen05.mma [d], a, b, idesc, {[sfa], [sfb],} {disable-output-lane,} enable-input-d {, scale-input-d}.

    a: a descriptor in a 64-bit register, or an address in tensor memory. tcgen05.mma.sp has [metadata] behind b.
    """
    kind, group, sparse = match.group("kind"), int(match.group("group")), match.string.startswith("tcgen05.mma.sp.")
    block = _scale_block(code, kind, match.group("scaled") is not None, match.group("scale"))
    d, a, b, *rest = instruction.operands
    metadata = code.address(rest.pop(0)) if sparse else "0"
    idesc, *rest = rest
    scales = "0, 0"
    if block:
        scales, rest = _scale_factors(code, kind, rest)
    disabled, rest = _disabled_lanes(code, rest, group, block)
    d_shift = _scale_input_d(code, kind, rest)
    shifts_a = match.group("shifts") is not None
    if shifts_a and (block or match.group("collector") in ("fill", "use")):
        raise code.fail(
            "tcgen05.mma.ashift with .block_scale, .collector::a::fill or .collector::a::use (PTX ISA, tcgen05.mma)"
        )
    if shifts_a and sparse:
        raise code.fail(
            "tcgen05.mma.sp.ashift is not modelled: the PTX ISA does not say if the metadata shift with A's rows"
        )
    for word in disabled:
        code.fits(word, "b32")
    form = f"{block}, {isinstance(a, Address)}, {d_shift}, {shifts_a}, {match.group('b_collector')!r}"
    words = "".join(f"{code.value(word)}, " for word in disabled)
    operands = f"{_matrices(code, d, a, b)}, {code.value(idesc)}, {scales}, {code.boolean(rest[0])}, ({words})"
    _issue(code, f"{kind!r}, {group}, {form}, sparse={sparse}", f"{operands}, metadata={metadata}")


def _stationary_mma(code: Code, instruction: Instruction, match: re.Match) -> None:
    """Emits tcgen05.mma.ws [d], a, b, idesc, enable-input-d {, zero-column-mask-desc}."""
    d, a, b, idesc, enable, *mask = instruction.operands
    kind, use, buffer = match.group("kind"), match.group("collector"), match.group("buffer") or "b0"
    form = f"{kind!r}, 1, None, {isinstance(a, Address)}, 0, False, {use!r}, {buffer!r}, stationary=True"
    operands = f"{_matrices(code, d, a, b)}, {code.value(idesc)}, 0, 0, {code.boolean(enable)}"
    _issue(code, form, f"{operands}, zero_columns={code.value(mask[0], 64)}" if mask else operands)


def _matrices(code: Code, d: object, a: object, b: object) -> str:
    if isinstance(a, Address):
        return f"{code.address(d)}, {code.address(a)}, {code.value(b, 64)}"
    code.fits(a, "b64")
    return f"{code.address(d)}, {code.value(a, 64)}, {code.value(b, 64)}"


def _issue(code: Code, form: str, operands: str) -> None:
    issued = f"tcgen05.MmaForm({form}), tcgen05.MmaOperands({operands})"
    code.line(f"tcgen05.mma(g, {code.mask}, {issued}, (g, {code.pc}))")


def _scale_factors(code: Code, kind: str, operands: list) -> tuple[str, list]:
    """(addresses of the scale factors of A and B, the operands behind them)."""
    if len(operands) != 3:
        raise code.fail(f"tcgen05.mma.kind::{kind}.block_scale ends in [scale-A], [scale-B], enable-input-d")
    return f"{code.address(operands[0])}, {code.address(operands[1])}", operands[2:]


def _disabled_lanes(code: Code, operands: list, group: int, block: int | None) -> tuple[tuple, list]:
    """(words of disable-output-lane, none without it; the operands behind them)."""
    if not operands or not isinstance(operands[0], Vector):
        return (), operands
    words = operands[0].items
    if len(words) != 4 * group or block:
        raise code.fail(
            f"disable-output-lane of {len(words)} words; it has {4 * group} for cta_group::{group}, and there is "
            "none with block scaling"
        )
    return words, operands[1:]


def _scale_block(code: Code, kind: str, scaled: bool, size: str | None) -> int | None:
    """Elements per scale factor, None without block scaling. scaled: `.block_scale`. size: the scale vector size."""
    blocks = SCALE_BLOCKS.get(kind)
    if scaled != (blocks is not None):
        raise code.fail(
            f"tcgen05.mma.kind::{kind} {'has no' if scaled else 'needs'} .block_scale (PTX ISA, tcgen05.mma)"
        )
    if blocks is None and size is None:
        return None
    if blocks is None or size not in blocks:
        legal = ", ".join(f".{name}" for name in blocks or () if name) or "none"
        raise code.fail(
            f"tcgen05.mma.kind::{kind} with {f'.{size}' if size else 'no .scale_vectorsize'}; must be {legal} "
            f"({BLOCK_SCALING})"
        )
    return blocks[size]


def _scale_input_d(code: Code, kind: str, operands: list) -> int:
    """The immediate scale-input-d behind enable-input-d, 0 without one."""
    if len(operands) == 1:
        return 0
    if len(operands) != 2 or not isinstance(operands[1], Immediate) or not KINDS[kind].scales_d:
        raise code.fail(
            "tcgen05.mma ends in enable-input-d and, for kinds f16 and tf32, an immediate scale-input-d (PTX ISA, "
            "tcgen05.mma)"
        )
    if not 0 <= operands[1].value <= 15:
        raise code.fail(f"scale-input-d is {operands[1].value}, must be 0 to 15 (PTX ISA, tcgen05.mma)")
    return operands[1].value


_TMEM_SHAPE = r"(?P<shape>32x32b|16x64b|16x128b|16x256b|16x32bx2)\.x(?P<num>1|2|4|8|16|32|64|128)"
_CTA_GROUP = r"\.cta_group::(?P<group>1|2)"
_MMA_MODIFIERS = (
    rf"{_CTA_GROUP}\.kind::(?P<kind>f16|tf32|f8f6f4|i8|mxf8f6f4|mxf4nvf4|mxf4)"
    r"(?P<scaled>\.block_scale)?(?:\.(?P<scale>scale_vec::[124]X|block16|block32))?"
    r"(?P<shifts>\.ashift)?(?:\.collector::a::(?P<collector>fill|use|lastuse|discard))?"
    r"(?:\.collector::b::(?P<b_collector>fill|use|lastuse|discard))?"
)
_COMMIT = rf"tcgen05\.commit{_CTA_GROUP}\.mbarrier::arrive::one(?P<restricted>\.sync_restrict::shared::read::mma::a)?"

_RED = r"tcgen05\.ld\.red\.sync\.aligned\.(?P<shape>32x32b|16x32bx2)\.x(?P<num>2|4|8|16|32|64|128)\.(?P<op>min|max)"


def _reducing(pattern: str) -> Row:
    return row(pattern, _reducing_load, writes=2, kind=always_lanes, takes="b32* b32 [] #?")


ROWS: list[Row] = [
    called(
        rf"tcgen05\.alloc(?P<exclusive>\.exclusive)?{_CTA_GROUP}\.sync\.aligned(?:\.shared::cta)?\.b32",
        "tmem.wait_alloc(g, {m}, {group}, {exclusive:b}, {0:a}, {1:i}, {issuer})",
        flow="wait",
        takes="[] u32",
    ),
    called(
        rf"tcgen05\.dealloc(?P<exclusive>\.exclusive)?{_CTA_GROUP}\.sync\.aligned\.b32",
        "tmem.dealloc(g, {m}, {group}, {exclusive:b}, {0:i}, {1:i}, {issuer})",
        writes=0,
        takes="b32 u32",
    ),
    called(
        rf"tcgen05\.relinquish_alloc_permit{_CTA_GROUP}\.sync\.aligned",
        "tmem.relinquish(g, {m}, {group}, {issuer})",
        writes=0,
    ),
    row(
        rf"tcgen05\.ld\.sync\.aligned\.{_TMEM_SHAPE}(?P<pack>\.pack::16b)?\.b32",
        _tensor_memory_load,
        kind=always_lanes,
        kernels=_load_kernel,
        takes="b32* [] #?",
    ),
    _reducing(rf"{_RED}(?P<absolute>\.abs)?(?P<nan>\.NaN)?\.(?P<type>f32)"),
    _reducing(rf"{_RED}\.(?P<type>u32|s32)"),
    row(
        rf"tcgen05\.st\.sync\.aligned\.{_TMEM_SHAPE}(?P<pack>\.unpack::16b)?\.b32",
        _tensor_memory_store,
        kernels=_store_kernel,
        takes="[] . .?",
    ),
    called(
        r"tcgen05\.wait::(?P<kind>ld|st)\.sync\.aligned",
        "tmem.wait_for(g, {m}, {kind})",
        writes=0,
        kernels=_wait_kernel,
    ),
    called(r"tcgen05\.fence::(?P<side>before|after)_thread_sync", "tmem.fence(g, {side})", writes=0),
    called(
        rf"tcgen05\.cp{_CTA_GROUP}\.(?P<shape>128x256b|4x256b|128x128b|64x128b|32x128b)"
        r"(?:\.(?P<cast>warpx2::02_13|warpx2::01_23|warpx4))?"
        r"(?:\.b8x16\.(?P<source>b6x16_p32|b4x16_p64))?",
        "tcgen05.copy(g, {m}, {group}, ({shape}, {cast}, {source}), {0:x}, {1:l}, {issuer})",
        kernels=_issue_kernel,
        takes="[] b64",
    ),
    row(rf"tcgen05\.mma{_MMA_MODIFIERS}", _mma, kernels=_issue_kernel, takes="[] . b64 b32 . .? .? .?"),
    row(rf"tcgen05\.mma\.sp{_MMA_MODIFIERS}", _mma, kernels=_issue_kernel, takes="[] . b64 [] b32 . .? .? .?"),
    row(
        r"tcgen05\.mma\.ws\.cta_group::1\.kind::(?P<kind>f16|tf32|f8f6f4|i8)"
        r"(?:\.collector::(?P<buffer>b[0-3])::(?P<collector>fill|use|lastuse|discard))?",
        _stationary_mma,
        takes="[] . b64 b32 . b64?",
    ),
    called(
        rf"{_COMMIT}(?:\.shared::cluster)?\.b64",
        "tcgen05.commit(g, {m}, {group}, {restricted:b}, {0:x}, None, {issuer})",
        kernels=_commit_kernel,
        takes="[]",
    ),
    called(
        rf"{_COMMIT}(?:\.shared::cluster)?\.multicast::cluster\.b64",
        "tcgen05.commit(g, {m}, {group}, {restricted:b}, {0:x}, {1:i}, {issuer})",
        kernels=_commit_kernel,
        takes="[] b16",
    ),
]
