"""Rows of the opcode table: cvt to and from packed numbers and tf32, cvt.pack (PTX ISA, "cvt", "cvt.pack").

Conversions of four numbers with random bits (`.rs` to e4m3x4, e2m1x4, ...) are not modelled: the PTX ISA shows the
layout of their bits in pictures only.
"""

from __future__ import annotations

from nogpu.compiler.opcodes import conversion_kernels as kernels
from nogpu.compiler.opcodes.rows import Row, by_lane

_SMALL = "e4m3|e5m2|e2m1|e2m3|e3m2"
_MODIFIERS = r"(?P<modifiers>(?:\.relu|\.satfinite)*)"
_SATURATING = r"(?P<modifiers>(?:\.relu)?\.satfinite(?:\.relu)?)"
_RELU = r"(?P<modifiers>\.relu)?"
_SATFINITE = r"(?P<modifiers>\.satfinite)?"

ROWS: list[Row] = [
    by_lane(rf"cvt\.(?P<rounding>rn|rz){_MODIFIERS}\.(?P<to>f16|bf16)x2\.(?P<type>f32)", kernels.pack, operands=3),
    by_lane(rf"cvt\.rs{_MODIFIERS}\.(?P<to>f16|bf16)x2\.f32", kernels.pack_stochastic, takes="b32 f32 f32 b32"),
    by_lane(rf"cvt\.(?P<rounding>rn){_SATURATING}\.(?P<to>{_SMALL})x2\.(?P<type>f32)", kernels.pack, operands=3),
    by_lane(
        rf"cvt\.(?P<rounding>rn){_SATURATING}\.(?P<to>{_SMALL})x2\.(?P<type>f16x2|bf16x2)", kernels.pack, operands=2
    ),
    by_lane(rf"cvt\.(?P<rounding>rz|rp){_SATFINITE}\.(?P<to>ue8m0)x2\.(?P<type>f32)", kernels.pack, operands=3),
    by_lane(rf"cvt\.(?P<rounding>rz|rp){_SATFINITE}\.(?P<to>ue8m0)x2\.(?P<type>bf16x2)", kernels.pack, operands=2),
    by_lane(rf"cvt\.rn{_RELU}\.(?P<to>f16|bf16)x2\.(?P<of>{_SMALL})x2", kernels.unpack, takes="b32 ."),
    by_lane(
        rf"cvt\.rn{_RELU}(?P<scaled>\.scaled::n2::ue8m0)\.(?P<to>bf16)x2\.(?P<of>{_SMALL})x2",
        kernels.unpack,
        takes="b32 . b16",
    ),
    by_lane(r"cvt\.rn(?P<modifiers>)\.(?P<to>bf16)x2\.(?P<of>ue8m0)x2", kernels.unpack, takes="b32 ."),
    by_lane(rf"cvt\.(?P<rounding>rn|rz){_MODIFIERS}\.tf32\.f32", kernels.round_to_tf32, takes="b32 f32"),
    by_lane(rf"cvt\.(?P<rounding>rna){_SATFINITE}\.tf32\.f32", kernels.round_to_tf32, takes="b32 f32"),
    by_lane(r"cvt\.pack\.sat\.(?P<sign>[us])(?P<width>16)\.s32", kernels.pack_integers, takes="b32 s32 s32"),
    by_lane(
        r"cvt\.pack\.sat\.(?P<sign>[us])(?P<width>2|4|8)\.s32\.b32", kernels.pack_integers, takes="b32 s32 s32 b32"
    ),
]
