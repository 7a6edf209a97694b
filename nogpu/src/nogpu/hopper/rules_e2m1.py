"""Rules for conversions from and to e2m1, which a Hopper lacks. The code is inline: some kernels do little else."""

from __future__ import annotations

from nogpu.hopper.context import Context
from nogpu.hopper.statements import Block, Statement
from nogpu.ptx.ir import Register, Vector

# A table for prmt, whose selector's nibbles are e2m1 numbers. Three bits select the high byte of the magnitude as fp16
# (whose low byte is 0), with bit 7 set. If a nibble's fourth bit is set, prmt repeats bit 7 of the byte instead.
MAGNITUDES = 0xBEBCB880, 0xC6C4C2C0
POSITIVE = 0x40404040, 0x40404040  # table with 0x40 for a positive number, 0 for a negative one
PAIRS = 0x1404, 0x3424  # prmt selectors that move bytes 0 and 1, or 2 and 3, to the high bytes of both halves


def convert(statement: Statement, context: Context) -> str:
    """Lower cvt from and to e2m1x2. Raises EmulatorError for other types and modifiers."""
    block, opcode = Block(), statement.opcode
    code = block.register()
    if opcode == "cvt.rn.satfinite.e2m1x2.f32":
        target, high, low = statement.operands
        context.calls = True
        block.call("hopper_f32_to_e2m1x2", ("b32", high), ("b32", low), result=("b32", code))
        block.add(f"cvt.u8.u32 {target}, {code};")
    elif opcode == "cvt.rn.f16x2.e2m1x2":
        target, source = statement.operands
        shared = context.high_bytes.get(statement.parsed.operands[1])
        if shared is None or context.bare:
            block.add(f"cvt.u32.u8 {code}, {source};")
        if context.bare:
            block.add(f"mul.lo.u32 {target}, {code}, {1 << 9 | 1 << 21};")
        else:
            high, pair = shared or (_high_bytes(block, context, code, block.register()), 0)
            block.add(f"prmt.b32 {target}, {high}, 0, {PAIRS[pair]};")
    else:
        raise context.refuse(statement, "of e2m1 only cvt.rn.f16x2.e2m1x2 and cvt.rn.satfinite.e2m1x2.f32 are modelled")
    return block.text(statement)


def split(statement: Statement, context: Context) -> str | None:
    """Lower mov of a word to four bytes: the common part of later conversions of these from e2m1 follows the mov."""
    parts = statement.parsed.operands[0]
    if not isinstance(parts, Vector) or len(parts.items) != 4 or context.bare or statement.guard:
        return None
    converted = [part for part in parts.items if part in context.converted]
    # A byte that another instruction writes too may differ from the word's byte at its conversion.
    if not converted or not all(context.origins.defined_once(part) for part in converted):
        return None
    block, word = Block(), statement.operands[1]
    upper, low, high = block.register(), *(context.register("b32") for _ in range(2))
    _high_bytes(block, context, word, low)
    block.add(f"shr.u32 {upper}, {word}, 16;")
    _high_bytes(block, context, upper, high)
    for place, part in enumerate(parts.items):
        if isinstance(part, Register):
            context.high_bytes[part] = (low, high)[place // 2], place % 2
    return f"{statement.opcode} {', '.join(statement.operands)};\n\t{block.text()}"


def _high_bytes(block: Block, context: Context, word: str, target: str) -> str:
    """Set `target` to the high bytes, as fp16, of the four e2m1 numbers in the low 16 bits of `word`, and return it."""
    masked, magnitudes, positive = (block.register() for _ in range(3))
    block.add(f"and.b32 {masked}, {word}, 0x77777777;")
    for result, selector, (first, second) in ((magnitudes, masked, MAGNITUDES), (positive, word, POSITIVE)):
        block.add(f"prmt.b32 {result}, {context.constant(first)}, {second:#x}, {selector};")
    # The product takes 0x80 from the bytes of positive numbers. It uses another pipe than logic operations.
    block.add(f"mad.lo.s32 {target}, {positive}, -2, {magnitudes};")
    return target
