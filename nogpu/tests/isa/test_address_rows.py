"""Loads whose lanes have one address by groups, or runs of words: the row's pattern is looked for once in a block."""

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from tests.support.small_kernels import aligned, launch

LANE = np.arange(32)
WORDS = 256
# Index of the word of each lane: 0, two rows of 16 columns, four of 8, their transposes, and lanes apart
INDICES = {
    "one": "mov.u32 %r2, 0;",
    "row": "mov.u32 %r2, %tid;",
    "16 columns": "and.b32 %r2, %tid, 15;",
    "8 columns": "and.b32 %r2, %tid, 7;",
    "8 columns, rows apart": "and.b32 %r2, %tid, 7; shr.u32 %r3, %tid, 3; mad.lo.u32 %r2, %r3, 20, %r2;",
    "rows of 16": "shr.u32 %r2, %tid, 4;",
    "rows of 8": "shr.u32 %r2, %tid, 3;",
    "strided": "mul.lo.u32 %r2, %tid, 3;",
    "but one": "min.u32 %r2, %tid, 30;",
    "back": "sub.u32 %r2, 31, %tid;",
}


def _index(name):
    row = LANE // 8
    return {
        "one": 0 * LANE,
        "row": LANE,
        "16 columns": LANE % 16,
        "8 columns": LANE % 8,
        "8 columns, rows apart": LANE % 8 + 20 * row,
        "rows of 16": LANE // 16,
        "rows of 8": row,
        "strided": 3 * LANE,
        "but one": np.minimum(LANE, 30),
        "back": 31 - LANE,
    }[name]


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("lanes_of", [0xFFFFFFFF, 0x00F0F00F, 1 << 31], ids=hex)
@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_loads_by_one_row(name, lanes_of, space, width):
    """Loads by one base and by sums of it, of all lanes or some; the base changes behind the third load."""
    nbytes, low = width // 8, 32 if space == "shared" else 64
    register = {8: "%h", 16: "%h", 32: "%r", 64: "%rd"}[width]
    words = np.random.default_rng(3).integers(0, 256, WORDS * nbytes).astype(np.uint8)
    source, out = aligned(words), aligned(np.zeros(5 * 32 * nbytes, np.uint8))
    base, other = ("%r5", "%r6") if space == "shared" else ("%rd5", "%rd6")
    row = (
        f"mul.lo.u32 %r5, %r2, {nbytes}; add.u32 %r5, %r5, %r4;"
        if space == "shared"
        else (f"mul.wide.u32 %rd5, %r2, {nbytes}; add.s64 %rd5, %rd5, %a1;")
    )
    loads = [
        f"@%p2 ld.{space}.b{width} {register}{10 + i}, [{at}];"
        for i, at in enumerate((base, f"{base}+{nbytes}", other, base, f"{base}+{2 * nbytes}"))
    ]
    loads.insert(2, f"add.s{low} {other}, {base}, {5 * nbytes};")
    loads.insert(4, f"add.s{low} {base}, {base}, {7 * nbytes};")
    stores = "".join(
        f"st.global.b{width} [%rd7], {register}{10 + i}; add.s64 %rd7, %rd7, {32 * nbytes};" for i in range(5)
    )
    fill = "".join(f"mov.b{max(width, 16)} {register}{10 + i}, 7;" for i in range(5))
    body = f"""
        mov.u32 %r4, smem; mov.u32 %r1, 0;
    F:  add.u32 %r3, %r4, %r1; cvt.u64.u32 %rd1, %r1; add.s64 %rd2, %a1, %rd1;
        ld.global.b8 %h1, [%rd2]; st.shared.b8 [%r3], %h1; add.u32 %r1, %r1, 1;
        setp.lt.u32 %p1, %r1, {len(words)}; @%p1 bra F;
        bar.warp.sync -1;
        {INDICES[name]} {fill}
        mov.u32 %r8, {lanes_of}; shr.u32 %r8, %r8, %tid; and.b32 %r8, %r8, 1; setp.ne.u32 %p2, %r8, 0;
        {row} mul.wide.u32 %rd7, %tid, {nbytes}; add.s64 %rd7, %a0, %rd7;
        {" ".join(loads) if lanes_of != 0xFFFFFFFF else " ".join(loads).replace("@%p2 ", "")} {stores}
    """
    launch(body, out, source, shared=len(words))
    places = words.reshape(WORDS, nbytes)
    seven = np.frombuffer((7).to_bytes(nbytes, "little"), np.uint8)
    active = (lanes_of >> LANE & 1).astype(bool)[:, None]
    for i, distance in enumerate((0, 1, 5, 7, 9)):
        found = out[32 * nbytes * i :][: 32 * nbytes].reshape(32, nbytes)
        np.testing.assert_array_equal(found, np.where(active, places[_index(name) + distance], seven))


@pytest.mark.parametrize("lane", [0, 13, 31])
def test_a_row_that_changes_by_a_guard(lane):
    """A guarded load looks for no pattern on behalf of those behind it, and a guarded sum is none of the whole row."""
    words, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    body = f"""
        mul.wide.u32 %rd7, %tid, 4; add.s64 %rd7, %a0, %rd7; and.b32 %r2, %tid, 7; mov.u32 %r1, 0;
        setp.eq.u32 %p1, %tid, {lane}; setp.gt.u32 %p2, %tid, 40;
    L:  mad.wide.u32 %rd5, %r2, 4, %a1; mov.u64 %rd6, %rd5;
        @%p2 ld.global.b32 %r3, [%rd5];
        ld.global.b32 %r4, [%rd5]; @%p1 add.s64 %rd6, %rd5, 4; ld.global.b32 %r5, [%rd6];
        mad.lo.u32 %r4, %r5, 100, %r4;
        st.global.b32 [%rd7], %r4; add.s64 %rd7, %rd7, 128;
        add.u32 %r2, %r2, 16; add.u32 %r1, %r1, 1; setp.lt.u32 %p3, %r1, 2; @%p3 bra L;
    """
    launch(body, out, words)
    moved = LANE == lane
    for turn in range(2):
        first = LANE % 8 + 16 * turn
        np.testing.assert_array_equal(out[32 * turn :][:32], first + 100 * (first + moved))


KNOWN = pytest.mark.parametrize(
    "index", ["mov.u32 %r2, 0;", INDICES["8 columns"], INDICES["rows of 8"], INDICES["row"]]
)


@KNOWN
@pytest.mark.parametrize(
    "distance,message", [(4096, "outside|no live|not in"), (-4096, "outside|no live|not in"), (2, "align")]
)
def test_faults_behind_a_known_row(index, distance, message):
    """Loads by a pattern that is known are checked as the first one is."""
    body = f"""
        {index} add.u32 %r2, %r2, %tid; sub.u32 %r2, %r2, %tid; mul.wide.u32 %rd5, %r2, 4; add.s64 %rd5, %rd5, %a1;
        ld.global.b32 %r3, [%rd5]; ld.global.b32 %r4, [%rd5+4]; ld.global.b32 %r5, [%rd5+{distance}];
    """
    launch(body.replace(f"+{distance}", "+8"), np.zeros(32, np.uint32), np.zeros(64, np.uint32))
    with pytest.raises(EmulatorError, match=message):
        launch(body, np.zeros(32, np.uint32), np.zeros(64, np.uint32))


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_sums_of_sums(name, space):
    """Each base is the sum of the one before and a value that all lanes share; the value and the first base change."""
    bits, base = (32, "%r") if space == "shared" else (64, "%rd")
    words, out = np.arange(WORDS, dtype=np.uint32), np.zeros(7 * 32, np.uint32)
    row = (
        "mul.lo.u32 %r21, %r2, 4; mov.u32 %r4, smem; add.u32 %r21, %r21, %r4;"
        if space == "shared"
        else "mad.wide.u32 %rd21, %r2, 4, %a1;"
    )

    def b(number):
        return f"{base}{number}"

    step, load = f"add.s{bits}", f"ld.{space}.b32"
    body = f"""
        mov.u32 %r4, smem; mov.u32 %r1, 0;
    F:  shl.b32 %r3, %r1, 2; add.u32 %r3, %r3, %r4; st.shared.b32 [%r3], %r1; add.u32 %r1, %r1, 1;
        setp.lt.u32 %p1, %r1, {WORDS}; @%p1 bra F;
        bar.warp.sync -1;
        {INDICES[name]} {row} mov.b{bits} {b(27)}, 8;
        {load} %r10, [{b(21)}];
        {step} {b(22)}, {b(21)}, {b(27)}; {load} %r11, [{b(22)}];
        {step} {b(23)}, {b(27)}, {b(22)}; mov.b{bits} {b(27)}, 40; {load} %r12, [{b(23)}+4];
        {step} {b(24)}, {b(23)}, -12; {load} %r13, [{b(24)}];
        {step} {b(25)}, {b(24)}, {b(27)}; {step} {b(21)}, {b(21)}, 400; {load} %r14, [{b(25)}];
        {step} {b(23)}, {b(23)}, {b(27)}; {load} %r15, [{b(23)}]; {load} %r16, [{b(21)}+-396];
        mul.wide.u32 %rd7, %tid, 4; add.s64 %rd7, %a0, %rd7;
        {"".join(f"st.global.b32 [%rd7+{128 * i}], %r{10 + i};" for i in range(7))}
    """
    launch(body, out, words, shared=4 * WORDS)
    for i, distance in enumerate((0, 2, 5, 1, 11, 14, 1)):
        np.testing.assert_array_equal(out[32 * i :][:32], _index(name) + distance, f"load {i}")


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("lanes_of", [0xFFFFFFFF, 0x00F0F00F], ids=hex)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_vectors_by_one_row(name, lanes_of, space):
    """Loads of four words, two of them by a pattern that is known, the last over the row of its addresses."""
    words, out = np.arange(4 * WORDS, dtype=np.uint32), np.zeros(12 * 32, np.uint32)
    guard = "" if lanes_of == 0xFFFFFFFF else "@%p2 "
    place = "%r21" if space == "shared" else "%rd21"
    row = (
        "mul.lo.u32 %r21, %r2, 16; mov.u32 %r4, smem; add.u32 %r21, %r21, %r4;"
        if space == "shared"
        else "mad.wide.u32 %rd21, %r2, 16, %a1; mov.u32 %r21, 7;"
    )
    registers = ["{%r10, %r11, %r12, %r13}", "{%r14, %r15, %r16, %r17}", "{%r18, %r19, %r21, %r22}"]
    loads = "".join(f"{guard}ld.{space}.v4.b32 {of}, [{place}+{16 * i}];" for i, of in enumerate(registers))
    kept = [*range(10, 20), 21, 22]
    body = f"""
        mov.u32 %r4, smem; mov.u32 %r1, 0;
    F:  shl.b32 %r3, %r1, 2; add.u32 %r3, %r3, %r4; st.shared.b32 [%r3], %r1; add.u32 %r1, %r1, 1;
        setp.lt.u32 %p1, %r1, {4 * WORDS}; @%p1 bra F;
        bar.warp.sync -1;
        {"".join(f"mov.u32 %r{number}, 7;" for number in kept)} {INDICES[name]} {row}
        mov.u32 %r8, {lanes_of}; shr.u32 %r8, %r8, %tid; and.b32 %r8, %r8, 1; setp.ne.u32 %p2, %r8, 0;
        {loads} mul.wide.u32 %rd7, %tid, 4; add.s64 %rd7, %a0, %rd7;
        {"".join(f"st.global.b32 [%rd7+{128 * i}], %r{number};" for i, number in enumerate(kept))}
    """
    launch(body, out, words, shared=16 * WORDS)
    active = (lanes_of >> LANE & 1).astype(bool)
    for i in range(12):
        found = out[32 * i :][:32]
        np.testing.assert_array_equal(found[active], (4 * _index(name) + i)[active])
        if i != 10:
            assert (found[~active] == 7).all()


@KNOWN
@pytest.mark.parametrize(
    "distance,message", [(4096, "outside|no live|not in"), (-4096, "outside|no live|not in"), (8, "align")]
)
def test_faults_of_vectors_and_sums(index, distance, message):
    body = f"""
        {index} add.u32 %r2, %r2, %tid; sub.u32 %r2, %r2, %tid; mul.wide.u32 %rd5, %r2, 16; add.s64 %rd5, %rd5, %a1;
        mov.u64 %rd8, {distance - 32}; ld.global.v4.b32 {{%r3, %r4, %r5, %r6}}, [%rd5];
        add.s64 %rd6, %rd5, 32; add.s64 %rd7, %rd6, %rd8; ld.global.v4.b32 {{%r3, %r4, %r5, %r6}}, [%rd7];
    """
    launch(body.replace(f"{distance - 32};", "-32;"), np.zeros(32, np.uint32), np.zeros(256, np.uint32))
    with pytest.raises(EmulatorError, match=message):
        launch(body, np.zeros(32, np.uint32), np.zeros(256, np.uint32))
