"""Loads and stores of tensor memory that compiled code executes, with the results of their Python rows."""

import re

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from nogpu.sanitizer.observer import Sanitizer
from tests.support.small_kernels import launch

WARPS, TIMES, FIRST = 4, 5, 100
REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
FORMS = [
    (shape, num, packed)
    for shape, nums in (("32x32b", (1, 8, 128)), ("16x64b", (2, 4)), ("16x128b", (1, 4)), ("16x256b", (1, 2)))
    for num in nums
    for packed in ("", "16b")[: 1 + (num < 128)]
] + [("16x32bx2", 4, ""), ("16x32bx2", 2, "16b")]
# Warp 0 allocates. %r12: the allocation's address in the warp's own quadrant.
SETUP = """
    mov.u32 %r10, smem; shr.u32 %r11, %tid, 5; setp.ne.u32 %p1, %r11, 0; mov.u32 %r1, 0; @%p1 bra ALLOCATED;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 256;
ALLOCATED: bar.sync 0; ld.shared.b32 %r12, [%r10]; shl.b32 %r13, %r11, 21; add.u32 %r12, %r12, %r13;
    mov.u32 %r20, 0;
"""
FREE = """
    bar.sync 0; @%p1 bra FREED; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r12, 256;
FREED: mad.wide.u32 %rd1, %tid, 4, %a0; st.global.b32 [%rd1], %r1;
"""
WAIT = "tcgen05.wait::{}.sync.aligned;"
ONE = ".sync.aligned.32x32b.x1.b32"


@pytest.fixture
def rows(noting):
    """The instructions of tensor memory whose Python rows have run: opcode and number of each."""
    return noting(lambda index, opcode: index < 0 or opcode.startswith(("tcgen05.ld", "tcgen05.st", "tcgen05.wait")))


def repeated(body):
    return f"AGAIN: {body} add.u32 %r20, %r20, 1; setp.lt.u32 %p2, %r20, {TIMES}; @%p2 bra AGAIN;"


def run(body, **options):
    """uint32[threads]: the values of %r1 at the end."""
    out = np.zeros(32 * WARPS, np.uint32)
    launch(f".reg .b32 %w<{FIRST + 160}>;" + SETUP + body + FREE, out, threads=32 * WARPS, **options)
    return out


def exchange(shape, num, packed, waits=True):
    """Stores and loads of one form at columns 3 and 40, the values from and to registers, `_` and constants."""
    count = num * REGISTERS[shape]
    names = [f"%w{FIRST + i}" for i in range(count)]
    body = "".join(f"mad.lo.u32 {name}, %tid, {7919 + 12 * i}, %r20;" for i, name in enumerate(names))
    split = ", 9" if shape == "16x32bx2" else ""
    mode, back = (f".unpack::{packed}", f".pack::{packed}") if packed else ("", "")
    given = [*names[:-1], "%r20"] if count > 1 else names  # the same in all lanes
    at = "%r12+3" if count > 32 else "%r12+40"
    body += f"tcgen05.st.sync.aligned.{shape}.x{num}{mode}.b32 [{at}]{split}, {{{', '.join(given)}}};"
    body += WAIT.format("st") * waits
    body += f"tcgen05.ld.sync.aligned.{shape}.x{num}{back}.b32 {{{', '.join(names)}}}, [{at}]{split};"
    body += WAIT.format("ld") * waits
    return repeated(body + "".join(f"mad.lo.u32 %r1, %r1, 31, {name};" for name in names))


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
@pytest.mark.parametrize(("shape", "num", "packed"), FORMS)
def test_forms(shape, num, packed, schedule, rows):
    body = exchange(shape, num, packed)
    found = run(body, schedule=schedule)
    seen = len(rows)
    assert np.array_equal(found, run(body, kernels=False))
    assert len(np.unique(found)) == 32 * WARPS
    assert schedule.startswith("random") or not seen


@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_results_that_are_used_without_a_wait(schedule, rows):
    body = exchange("32x32b", 8, "", waits=False)
    found = run(body, schedule=schedule)
    assert not rows
    assert np.array_equal(found, run(body, kernels=False))


def test_a_sanitized_launch_has_the_rows(rows):
    run(exchange("32x32b", 1, ""), sanitizer=Sanitizer())
    assert len(rows) >= 4 * WARPS * TIMES


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1", "random:2"])
def test_more_than_compiled_code_keeps(schedule):
    """Loads and stores complete in order, whoever has them; a barrier in between tells Python of them."""
    chain = "mov.u32 %w1, %tid;"
    for i in range(40):
        chain += f"tcgen05.st{ONE} [%r12+{i}], %w1; tcgen05.ld{ONE} %w{FIRST + i}, [%r12+{i}];"
        chain += "bar.sync 1;" * (i == 10)
    chain += f"tcgen05.ld{ONE} %w2, [%r12+7]; {WAIT.format('ld')} add.u32 %r1, %r1, %w2;"
    chain += "".join(f"mad.lo.u32 %r1, %r1, 3, %w{FIRST + i};" for i in range(40)) + "add.u32 %w1, %w1, 1;"
    expected = np.zeros(32 * WARPS, np.uint32)
    thread = np.arange(32 * WARPS, dtype=np.uint32)
    for _ in range(TIMES):
        expected += thread
        for _ in range(40):
            expected = 3 * expected + thread
    assert np.array_equal(run(repeated(chain), schedule=schedule), expected)


@pytest.mark.parametrize("schedule", ["late", "random:3"])
def test_a_store_is_late(schedule):
    """The registers of a store may change behind it; what it has written is there once it is waited for."""
    body = f"tcgen05.st{ONE} [%r12], %r20; {WAIT.format('st')} mov.u32 %w1, 5; tcgen05.st{ONE} [%r12], %w1;"
    body += f"mov.u32 %w1, 6; tcgen05.ld{ONE} %w2, [%r12]; {WAIT.format('ld')} add.u32 %r1, %r1, %w2;"
    assert set(run(repeated(body), schedule=schedule)) == {5 * TIMES}


# Behind accesses that let compiled code go on.
BEFORE = f"tcgen05.st{ONE} [%r12], %tid; {WAIT.format('st')} tcgen05.ld{ONE} %w1, [%r12]; {WAIT.format('ld')}"
WRONG = {
    "a column that is not allocated": (f"tcgen05.ld{ONE} %w1, [%r12+256];", "column 256 .* is not allocated"),
    "no such column": (f"tcgen05.ld{ONE} %w1, [%r12+600];", "columns 600 to 600; limit 511"),
    "a lane that the warp does not reach": (
        f"add.u32 %w3, %r12, 0x400000; tcgen05.ld{ONE} %w1, [%w3];",
        "the warp reaches lanes",
    ),
    "addresses that differ": (f"add.u32 %w3, %r12, %tid; tcgen05.ld{ONE} %w1, [%w3];", "must be the same in all"),
    "half of a quadrant": (
        f"add.u32 %w3, %r12, 0x80000; tcgen05.ld{ONE.replace('32x32b', '16x64b')} %w1, [%w3];",
        "starts at a multiple of 16",
    ),
    "some of the lanes": (
        f"and.b32 %w4, %tid, 31; setp.lt.u32 %p3, %w4, 9; @%p3 tcgen05.ld{ONE} %w1, [%r12];",
        "has diverged",
    ),
}


@pytest.mark.parametrize("schedule", ["late", "eager"])
@pytest.mark.parametrize("name", WRONG)
def test_what_python_refuses(name, schedule):
    body, reason = WRONG[name]
    with pytest.raises(EmulatorError, match=reason):
        run(BEFORE + body, schedule=schedule)
    with pytest.raises(EmulatorError) as plain:
        run(BEFORE + body, schedule=schedule, kernels=False)
    with pytest.raises(EmulatorError, match=re.escape(str(plain.value))):
        run(BEFORE + body, schedule=schedule)
