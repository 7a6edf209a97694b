"""Python text of floating-point operands: registers as rows of numbers, rows of numbers as registers.

f16, f32 and their pairs are viewed in place; bf16 is widened to float32. The row of a pair has 64 numbers, the lower
half of each lane first.
"""

from __future__ import annotations

from nogpu.compiler.code import Code
from nogpu.ptx.types import type_width

VIEWS = {"f16": "f16", "f16x2": "f16", "f32": "f32", "f32x2": "f32", "f64": "f64"}


def numbers(code: Code, operand: object, type_name: str, flush: bool = False) -> str:
    """An operand as a row of numbers. flush: subnormals of f16 and f32 become zeros (`.ftz`)."""
    width = type_width(type_name)
    code.fits(operand, type_name)
    text = f"row_of({code.value(operand, width, type_name)}, {width})"
    text = f"floats.from_bf16({text})" if type_name.startswith("bf16") else f"{text}.view({VIEWS[type_name]})"
    return f"floats.flush({text})" if flush else text


def bits(text: str, type_name: str) -> str:
    """A row of numbers (float32 for bf16) as the row of a register."""
    width = type_width(type_name)
    return f"floats.to_bf16({text}, {width})" if type_name.startswith("bf16") else f"({text}).view(u{width})"
