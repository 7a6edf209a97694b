"""Rules for tensor memory and tensor core: calls of the library in exact mode, few instructions or none otherwise."""

from __future__ import annotations

import re

from nogpu.hardware.tensor.order import COLUMNS
from nogpu.hardware.tensor.tmem import fragment
from nogpu.hopper.context import Context, address, word
from nogpu.hopper.statements import Block, Statement, split

MODELLED = "the software tensor core has block-scaled e2m1 MMAs with both operands in shared memory only"


def cta_group(statement: Statement) -> int:
    """The number of CTAs that execute the instruction together: 1 or 2."""
    return 2 if ".cta_group::2" in statement.opcode else 1


def alloc(statement: Statement, context: Context) -> str:
    """Lower tcgen05.alloc: the address is 0 if there is no tensor memory."""
    block, (target, columns) = Block(), statement.operands
    base = "0"
    if context.exact:
        base = block.register()
        context.call(block, "hopper_alloc", ("b32", columns), word(cta_group(statement)), result=("b32", base))
    space = ".shared" if ".shared" in statement.opcode else ""
    block.add(f"st{space}.b32 {target}, {base};")
    return block.text(statement)


def dealloc(statement: Statement, context: Context) -> str:
    """Lower tcgen05.dealloc."""
    block = Block()
    if context.exact:
        context.call(block, "hopper_dealloc", ("b32", statement.operands[1]))
    return block.text(statement)


def fence(statement: Statement, context: Context) -> str:
    """Lower tcgen05.fence and tcgen05.wait: a fence in exact mode, where tensor memory is global memory."""
    return f"{statement.guard} fence.acq_rel.gpu;" if context.exact else ""


_COPIES = {
    "128x256b": 128 << 8 | 2 << 4 | 3,
    "128x128b": 128 << 8 | 1 << 4 | 3,
    "64x128b.warpx2::02_13": 64 << 8 | 1 << 4 | 1,
    "64x128b.warpx2::01_23": 64 << 8 | 1 << 4 | 2,
    "32x128b.warpx4": 32 << 8 | 1 << 4,
}
"""Shape of tcgen05.cp -> argument `shape` of copy() in tensorcore.cuh."""


def copy(statement: Statement, context: Context) -> str:
    """Lower tcgen05.cp. Raises EmulatorError for a shape that is not modelled."""
    shape = _COPIES.get(re.sub(r"tcgen05\.cp\.cta_group::[12]\.", "", statement.opcode))
    if shape is None:
        raise context.refuse(statement, "this shape is not modelled")
    if not context.exact:
        return ""
    block = Block()
    taddr = address(block, statement.operands[0])
    context.call(
        block, "hopper_copy", word(cta_group(statement)), word(shape), ("b32", taddr), ("b64", statement.operands[1])
    )
    return block.text(statement)


def mma(statement: Statement, context: Context) -> str:
    """Lower tcgen05.mma, block-scaled, of e2m1, both operands in shared memory. Raises EmulatorError for others."""
    kind, opcode = re.search(r"kind::(\w+)", statement.opcode), statement.opcode
    if (
        kind is None
        or kind[1] not in ("mxf4", "mxf4nvf4")
        or ".block_scale" not in opcode
        or len(statement.operands) != 7
    ):
        raise context.refuse(statement, MODELLED)
    d, a, b, idesc, sfa, sfb, enable = statement.operands
    if a.startswith("["):
        raise context.refuse(statement, MODELLED)
    if not context.exact:
        return ""
    size = 16 if ".block16" in opcode or ".scale_vec::4X" in opcode else 32
    block = Block()
    accumulate = block.register()
    block.add(f"selp.u32 {accumulate}, 1, 0, {enable};" if not enable.isdigit() else f"mov.b32 {accumulate}, {enable};")
    d, sfa, sfb = (address(block, operand) for operand in (d, sfa, sfb))
    operands = (("b32", d), ("b64", a), ("b64", b), ("b32", idesc), ("b32", sfa), ("b32", sfb), ("b32", accumulate))
    context.call(block, "hopper_mma", word(cta_group(statement)), word(size), *operands)
    return block.text(statement)


SHAPES = {"32x32b": 0, "16x64b": 1, "16x128b": 2, "16x256b": 3, "16x32bx2": 4}
"""Shape of tcgen05.ld -> argument `shape` of hopper_tmem_address in tensorcore.cuh."""


def access(statement: Statement, context: Context) -> str:
    """Lower tcgen05.ld and tcgen05.st: accesses to global memory in exact mode, else loads of 0 and no stores."""
    loads = statement.opcode.startswith("tcgen05.ld")
    form = re.search(r"\.(\d+x\w+?)\.x(\d+)(\.(?:un)?pack::16b)?\.b32$", statement.opcode)
    if form is None or form[1] not in SHAPES:
        raise context.refuse(statement, MODELLED)
    shape, packed = form[1], form[3] is not None
    operands = list(statement.operands)
    vector = operands.pop(0 if loads else -1)
    registers = split(vector.strip("{}")) if vector.startswith("{") else [vector]
    block = Block()
    if not context.exact:
        for register in registers if loads else ():
            block.add(f"mov.b32 {register}, 0;")
        return block.text(statement)
    taddr, half_split = address(block, operands[0]), operands[1] if len(operands) > 1 else "0"
    first = block.register("b64")
    context.call(
        block,
        "hopper_tmem_address",
        ("b32", taddr),
        word(SHAPES[shape]),
        word(int(packed)),
        ("b32", half_split),
        result=("b64", first),
    )
    words = fragment((shape, int(form[2]), False, 0))
    for register, distance in zip(registers, (words - words[0])[:, 0].tolist(), strict=True):
        lanes, columns = divmod(distance, COLUMNS)
        place = 4 * (lanes + 128 * columns * (2 if packed else 1))
        if packed:
            _access_halves(block, register, first, place, loads)
        elif loads:
            block.add(f"ld.global.cg.b32 {register}, [{first}+{place}];")
        else:
            block.add(f"st.global.cg.b32 [{first}+{place}], {register};")
    if not loads:
        block.add("fence.acq_rel.gpu;")
    return block.text(statement)


def _access_halves(block: Block, register: str, first: str, place: int, loads: bool) -> None:
    """Load or store the halves of a register as the low halves of two columns."""
    low, high = block.register(), block.register()
    if loads:
        block.add(f"ld.global.cg.b32 {low}, [{first}+{place}];")
        block.add(f"ld.global.cg.b32 {high}, [{first}+{place + 512}];")
        block.add(f"prmt.b32 {register}, {low}, {high}, 0x5410;")
    else:
        block.add(f"and.b32 {low}, {register}, 0xFFFF;")
        block.add(f"shr.u32 {high}, {register}, 16;")
        block.add(f"st.global.cg.b32 [{first}+{place}], {low};")
        block.add(f"st.global.cg.b32 [{first}+{place + 512}], {high};")


def commit(statement: Statement, context: Context) -> str:
    """Lower tcgen05.commit: an arrival, in exact mode after the work that the library has finished by then."""
    # Without tensor-core work there is nothing to order, and a release of cluster scope would cost time.
    block, form = Block(), "release" if context.exact else "relaxed"
    arrive = f"mbarrier.arrive.{form}.cluster.shared::cluster.b64 _,"
    if context.ctas == 1:
        arrive = "mbarrier.arrive.shared::cta.b64 _,"
    if ".shared" in statement.opcode:
        barrier = address(block, statement.operands[0])
    else:
        wide, barrier = block.register("b64"), block.register()
        block.add(f"cvta.to.shared.u64 {wide}, {statement.operands[0].strip()[1:-1]};")
        block.add(f"cvt.u32.u64 {barrier}, {wide};")
    if context.exact:
        block.add("fence.acq_rel.gpu;")
    if ".multicast" not in statement.opcode:
        block.add(f"{arrive} [{barrier}];")
        return block.text(statement)
    mask, remote, chosen = block.register(), block.register(), block.register("pred")
    bit = block.register()
    block.add(f"cvt.u32.u16 {mask}, {statement.operands[1]};")
    for rank in range(context.ctas):
        block.add(f"and.b32 {bit}, {mask}, {1 << rank};")
        block.add(f"setp.ne.b32 {chosen}, {bit}, 0;")
        block.add(f"mapa.shared::cluster.u32 {remote}, {barrier}, {rank};")
        block.add(f"@{chosen} {arrive} [{remote}];")
    return block.text(statement)
