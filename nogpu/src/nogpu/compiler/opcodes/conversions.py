"""Rows of the opcode table: mov, and cvt between integers and floats (PTX ISA, "mov", "cvt")."""

from __future__ import annotations

from nogpu.compiler.opcodes import conversion_kernels as kernels
from nogpu.compiler.opcodes.rows import Row, by_lane, row

_WORD = "b16|u16|s16|f16|bf16|b32|u32|s32|f32|f16x2|bf16x2|b64|u64|s64|f64|f32x2"
_INTEGER = "u8|s8|u16|s16|u32|s32|u64|s64"
_FLOAT = "f16|bf16|f32|f64"
_CONVERTED, _FLOAT_CONVERTED = "{to}+ {type}+", "{to}+ {type}"
_FTZ_SAT = r"(?P<ftz>\.ftz)?(?P<sat>\.sat)?"
_NARROW_INTEGER = "u8|s8|u16|s16|u32|s32"

ROWS: list[Row] = [
    row(rf"mov\.(?P<type>{_WORD})", operands=2, kernels=kernels.mov),
    row(
        rf"cvt(?P<sat>\.sat)?\.(?P<to>{_INTEGER})\.(?P<type>{_INTEGER})",
        takes=_CONVERTED,
        kernels=kernels.integer_to_integer,
    ),
    by_lane(
        rf"cvt\.(?P<rounding>rn|rz|rm|rp){_FTZ_SAT}\.(?P<to>f16|f32)\.(?P<type>{_INTEGER})",
        kernels.integer_to_float,
        takes=_CONVERTED,
    ),
    by_lane(
        rf"cvt\.(?P<rounding>rn|rz|rm|rp)\.(?P<to>bf16)\.(?P<type>{_INTEGER})",
        kernels.integer_to_float,
        takes=_CONVERTED,
    ),
    by_lane(
        rf"cvt\.(?P<rounding>rn|rz|rm|rp)(?P<sat>\.sat)?\.(?P<to>f64)\.(?P<type>{_NARROW_INTEGER})",
        kernels.integer_to_float,
        takes=_CONVERTED,
    ),
    by_lane(r"cvt\.rn\.f64\.(?P<type>u64|s64)", kernels.long_to_double, takes="f64 {type}+"),
    by_lane(
        rf"cvt\.(?P<rounding>rni|rzi|rmi|rpi)(?P<ftz>\.ftz)?(?:\.sat)?\.(?P<to>{_INTEGER})\.(?P<type>{_FLOAT})",
        kernels.float_to_integer,
        takes=_FLOAT_CONVERTED,
    ),
    by_lane(
        rf"cvt(?:\.(?P<rounding>rn|rz|rm|rp|rni|rzi|rmi|rpi))?{_FTZ_SAT}\.(?P<to>{_FLOAT})\.(?P<type>{_FLOAT})",
        kernels.float_to_float,
        takes=_FLOAT_CONVERTED,
    ),
    by_lane(
        r"cvt\.(?P<rounding>rn|rz)(?P<modifiers>(?:\.relu|\.satfinite)+)\.(?P<to>f16|bf16)\.(?P<type>f32)",
        kernels.float_to_float,
        takes=_FLOAT_CONVERTED,
    ),
]
