"""Rules for arithmetic, conversions and wide accesses."""

from __future__ import annotations

import re

from emulator.hopper.context import Context
from emulator.hopper.statements import Block, Statement, split


def packed_f32(statement: Statement, context: Context) -> str:
    """add, mul, fma of two floats in a 64-bit register."""
    block, target = Block(), statement.operands[0]
    halves = []
    for source in statement.operands[1:]:
        low, high = block.register(), block.register()
        block.add(f"mov.b64 {{{low}, {high}}}, {source};")
        halves.append((low, high))
    results = block.register(), block.register()
    opcode = statement.opcode.replace(".f32x2", ".f32")
    for half in range(2):
        block.add(f"{opcode} {results[half]}, {', '.join(source[half] for source in halves)};")
    block.add(f"mov.b64 {target}, {{{results[0]}, {results[1]}}};")
    return block.text(statement)


def three_inputs(statement: Statement, context: Context) -> str | None:
    """min and max of three floats."""
    if len(statement.operands) != 4:
        return None
    block, (target, *sources) = Block(), statement.operands
    first = block.register()
    block.add(f"{statement.opcode} {first}, {sources[0]}, {sources[1]};")
    block.add(f"{statement.opcode} {target}, {first}, {sources[2]};")
    return block.text(statement)


def convert(statement: Statement, context: Context) -> str:
    """cvt from and to e2m1x2."""
    block, opcode = Block(), statement.opcode
    code = block.register()
    if opcode == "cvt.rn.satfinite.e2m1x2.f32":
        target, high, low = statement.operands
        context.calls = True
        block.call("hopper_f32_to_e2m1x2", ("b32", high), ("b32", low), result=("b32", code))
        block.add(f"cvt.u8.u32 {target}, {code};")
    elif opcode == "cvt.rn.f16x2.e2m1x2":
        target, source = statement.operands
        block.add(f"cvt.u32.u8 {code}, {source};")
        if context.bare:
            block.add(f"mul.lo.u32 {target}, {code}, {1 << 9 | 1 << 21};")
        else:
            _unpack_e2m1(block, target, code)
    else:
        raise context.refuse(statement, "of e2m1 only cvt.rn.f16x2.e2m1x2 and cvt.rn.satfinite.e2m1x2.f32 are modelled")
    return block.text(statement)


def _unpack_e2m1(block: Block, target: str, code: str) -> None:
    """Two e2m1 numbers in a byte to f16x2. Inline: some kernels convert all of their input and do little else.

    The exponent and mantissa bits of e2m1, shifted to those of fp16, give 2**-14 times the value; 0.5 becomes a
    subnormal number. Multiplications shift the byte into both halves at once, on another pipe than logic operations.
    """
    magnitudes, signs, scale = block.register(), block.register(), block.register()
    block.add(f"mul.lo.u32 {magnitudes}, {code}, {1 << 9 | 1 << 21};")
    block.add(f"mul.lo.u32 {signs}, {code}, {1 << 12 | 1 << 24};")
    block.add(f"and.b32 {magnitudes}, {magnitudes}, 0x0e000e00;")
    block.add(f"lop3.b32 {magnitudes}, {signs}, 0x80008000, {magnitudes}, 0xea;")  # a & b | c
    block.add(f"mov.b32 {scale}, 0x74007400;")  # 2**14 in both halves
    block.add(f"mul.rn.f16x2 {target}, {magnitudes}, {scale};")


def wide_access(statement: Statement, context: Context) -> str:
    """256-bit loads and stores, as two of 128 bits."""
    opcode = re.sub(r"\.L2::evict_\w+|\.L1::evict_\w+|\.L1::no_allocate|\.L2::\d+B", "", statement.opcode)
    opcode = re.sub(r"\.v([48])\.", lambda form: f".v{int(form[1]) // 2}.", opcode)
    operands = list(statement.operands)
    loads = opcode.startswith("ld")
    at, values = (1, 0) if loads else (0, 1)
    registers = split(operands[values].strip("{}"))
    base, _, offset = operands[at].strip()[1:-1].partition("+")
    block = Block()
    start = block.register("b64")
    # The first half may overwrite the address register.
    block.add(f"mov.b64 {start}, {base.strip()};")
    middle = len(registers) // 2
    for half, part in enumerate((registers[:middle], registers[middle:])):
        operands[values] = f"{{{', '.join(part)}}}"
        operands[at] = f"[{start}+{int(offset or '0', 0) + 16 * half}]"
        block.add(f"{opcode} {', '.join(operands)};")
    return block.text(statement)
