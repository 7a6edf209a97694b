"""Runs of one instruction, per lane and on uniform values, and references that round exactly."""

import struct
from fractions import Fraction

import numpy as np

from tests.support.small_kernels import launch

SPECIAL = {
    8: [0, 1, 0x7F, 0x80, 0xFF],
    16: [0, 1, 0x7FFF, 0x8000, 0xFFFF, 5],
    32: [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 31, 32, 33],
    64: [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 63, 64, 65],
}
FLOAT32 = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    3.25,
    65504.0,
    65520.0,
    1e-8,
    -6e-8,
    3.4e38,
    1e-40,
    float("inf"),
    -float("inf"),
    float("nan"),
]
TESTED = set()  # opcodes, of which test_opcode_rows.py asks whether they are of all rows
REGISTER = {8: "%h", 16: "%h", 32: "%r", 64: "%rd"}
FORMATS = {
    "f16": (11, -14, 15),
    "bf16": (8, -126, 127),
    "tf32": (11, -126, 127),
    "f32": (24, -126, 127),
    "f64": (53, -1022, 1023),
}


def bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def s(value, width):
    return value - (1 << width) if value >> width - 1 & 1 else value


def operands(width, seed, small=False):
    """Values of a width, 32 of them: special ones first, in an order that depends on the seed, then random ones."""
    rng = np.random.default_rng(seed)
    values = rng.permutation(np.array(SPECIAL[width], np.uint64)).tolist()
    values += [
        int(v) >> int(k)
        for v, k in zip(rng.integers(0, 1 << min(width, 63), 32 - len(values)), rng.integers(0, width, 32))
    ]
    return [v % 70 if small else v & (1 << width) - 1 for v in values]


def run(opcode, widths, result_width, columns, suffix="", uniform=False, prefix=""):
    """Execute `opcode d, s0, s1, ...` in a thread for each row of the columns, or once for each of 8 uniform operand
    sets. prefix: text before the sources, as "x, ".
    """
    TESTED.add(opcode)
    count = len(columns[0])
    out = np.zeros(count, np.dtype(f"u{result_width // 8}"))
    sources = [np.array(column, np.dtype(f"u{width // 8}")) for column, width in zip(columns, widths, strict=True)]
    threads = 1024 if count % 1024 == 0 else count if count < 1024 else 32
    text = ["mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %tid, %r1, %r2, %tid;"]
    for case in range(8 if uniform else 1):
        names = []
        for i, width in enumerate(widths):
            name = f"{REGISTER[width]}{10 + i}"
            address = f"%a{i + 1}+{case * width // 8}" if uniform else f"%rd{i + 1}"
            if not uniform:
                text.append(f"mul.wide.u32 %rd{i + 1}, %tid, {width // 8}; add.s64 %rd{i + 1}, %rd{i + 1}, %a{i + 1};")
            text.append(f"ld.global.b{width} {name}, [{address}];")
            names.append(name)
        destination = f"{REGISTER[result_width]}20"
        text.append(f"{opcode} {destination}, {prefix}{', '.join(names)}{suffix};")
        if uniform:
            text.append(f"st.global.b{result_width} [%a0+{case * result_width // 8}], {destination};")
        else:
            text.append(f"mul.wide.u32 %rd9, %tid, {result_width // 8}; add.s64 %rd9, %rd9, %a0;")
            text.append(f"st.global.b{result_width} [%rd9], {destination};")
    launch("\n".join(text), out, *sources, threads=threads, grid=count // threads)
    return out[:8] if uniform else out


def check_integers(opcode, widths, result_width, reference, suffix="", small=()):
    columns = [operands(width, 11 * i + len(opcode), i in small) for i, width in enumerate(widths)]
    expected = [reference(*row) & (1 << result_width) - 1 for row in zip(*columns)]
    assert run(opcode, widths, result_width, columns, suffix).tolist() == expected
    assert run(opcode, widths, result_width, columns, suffix, uniform=True).tolist() == expected[:8]


def typed(reference, type_name):
    """The reference on values of a type."""
    width = int(type_name[1:])
    return (lambda *v: reference(*(s(x, width) for x in v))) if type_name[0] == "s" else reference


def floats(seed):
    values = np.random.default_rng(seed).permutation(FLOAT32).astype(np.float32)
    random = np.random.default_rng(seed + 1).normal(size=32 - len(values)).astype(np.float32)
    return np.concatenate([values, random])


def flushed(a):
    return np.where(np.abs(a) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), a), a)


def round_exactly(value: Fraction, name: str, rounding: str) -> float:
    """A rational number rounded to a format of FORMATS: rn, rna, rz, rm or rp."""
    precision, low, high = FORMATS[name]
    if value == 0:
        return 0.0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, low) - precision + 1)
    count, rest = divmod(magnitude, unit)
    up = {
        "rn": 2 * rest > unit or (2 * rest == unit and count % 2 == 1),
        "rna": 2 * rest >= unit,
        "rz": False,
        "rm": rest > 0 and value < 0,
        "rp": rest > 0 and value > 0,
    }[rounding]
    result, largest = (count + up) * unit, Fraction(2) ** (high + 1) - Fraction(2) ** (high - precision + 1)
    if result > largest:
        to_infinity = {"rn": True, "rna": True, "rz": False, "rm": value < 0, "rp": value > 0}[rounding]
        return float(np.copysign(np.inf if to_infinity else float(largest), float(np.sign(value.numerator))))
    return float(result) if value > 0 else -float(result)
