"""Instructions with the carry flag, in chains, against Python integers: per lane, uniform, and after lanes part."""

import numpy as np
import pytest

from tests.support.opcode_runs import TESTED, operands, s
from tests.support.small_kernels import launch

MASK = {32: (1 << 32) - 1, 64: (1 << 64) - 1}


def result(operation, reads, width, sign, values, flag):
    """The bits and the carry or borrow out of one instruction."""
    flag = flag if reads else 0
    name, _, half = operation.partition(".")
    if name == "sub":
        total = values[0] - values[1] - flag
        return total & MASK[width], int(total < 0)
    if name == "add":
        term, addend = values
    else:
        a, b, addend = values
        product = s(a, width) * s(b, width) if sign == "s" else a * b
        term = (product if half == "lo" else product >> width) & MASK[width]
    total = term + addend + flag
    return total & MASK[width], total >> width


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("type_name", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("operation", ["add", "sub", "mad.lo", "mad.hi"])
def test_chains(operation, type_name, uniform):
    """A flag is made, passed through, and used up."""
    width, count = int(type_name[1:]), 2 if operation in ("add", "sub") else 3
    name, _, half = operation.partition(".")
    half = f".{half}" if half else ""
    chain = [f"{name}{half}.cc.{type_name}", f"{name}c{half}.cc.{type_name}", f"{name}c{half}.{type_name}"]
    TESTED.update(chain)
    columns = [operands(width, 5 * i + len(operation)) for i in range(count)]
    columns[0][:3], columns[1][:3] = [MASK[width], 0, 5], [1, 1, 5]
    r, nbytes = ("%r", 4) if width == 32 else ("%rd", 8)
    text = []
    for i in range(count):
        place = f"%a{i + 1}" if uniform else f"%rd{30 + i}"
        text.append(f"mad.wide.u32 %rd{30 + i}, %tid, {nbytes}, %a{i + 1}; ld.global.b{width} {r}{i + 1}, [{place}];")
    sources = ", ".join(f"{r}{i + 1}" for i in range(count))
    text += [f"{opcode} {r}{20 + i}, {sources};" for i, opcode in enumerate(chain)]
    text.append(f"mad.wide.u32 %rd25, %tid, {3 * nbytes}, %a0;")
    text += [f"st.global.b{width} [%rd25+{nbytes * i}], {r}{20 + i};" for i in range(3)]
    out = np.zeros((32, 3), f"u{nbytes}")
    launch("\n".join(text), out, *(np.array(column, f"u{nbytes}") for column in columns))
    expected = []
    for values in zip(*columns, strict=True):
        flag, row = 0, []
        for step in range(3):
            bits, flag = result(operation, step > 0, width, type_name[0], values, flag)
            row.append(bits)
        expected.append(row)
    assert out.tolist() == ([expected[0]] * 32 if uniform else expected)


def test_flag_of_lanes_that_part():
    """A guard, or the two sides of a branch, part the lanes: every lane reads the flag that it wrote last."""
    out = np.zeros(32, np.uint32)
    text = """
        mov.u32 %r1, 0xFFFFFFFF; setp.lt.u32 %p1, %tid, 5; setp.lt.u32 %p2, %tid, 20;
        add.cc.u32 %r2, %r1, 0;
        @%p1 add.cc.u32 %r2, %r1, 1;
        @%p2 bra SKIP;
        add.cc.u32 %r2, %r1, %tid;
    SKIP:
        addc.u32 %r3, 0, 0;
        mad.wide.u32 %rd1, %tid, 4, %a0; st.global.b32 [%rd1], %r3;
    """
    launch(text, out)
    lane = np.arange(32)
    assert out.tolist() == ((lane < 5) | (lane >= 20)).astype(int).tolist()
