"""Chains: loads and arithmetic in a row that one kernel executes do what the instructions do one by one."""

from dataclasses import replace

import numpy as np
import pytest

from nogpu.compiler import segments
from nogpu.compiler.rowcode.image import Image
from nogpu.compiler.segments import RowCode
from nogpu.errors import EmulatorError
from tests.isa.test_address_rows import INDICES
from tests.support.small_kernels import aligned, entry, launch_entry

WORDS = 2048
FLOATS = [f"%r{number}" for number in range(10, 18)]
OTHERS = ["%r30", "%r40", "%r41", "%r42"]
BITS = {"global": 64, "shared": 32}
NAMES = {"global": "%rd", "shared": "%r"}
BASES = {space: [f"{name}{number}" for number in (5, 6, *range(20, 26))] for space, name in NAMES.items()}
SPECIAL = [0, 0x80000000, 1, 0x007FFFFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC12345, 0xFF8ABCDE]


def words():
    """Numbers, a few of them special, and small ones, whose sums are not all infinite."""
    rng = np.random.default_rng(5)
    found = rng.standard_normal(WORDS).astype(np.float32).view(np.uint32)
    found[rng.integers(0, WORDS, WORDS // 8)] = rng.choice(SPECIAL, WORDS // 8)
    return found


def run(body, chained=True, kernels=None, **options):
    """(what a body has stored, the kernels of its program). kernels: names that replace those of kernels."""
    source, out = aligned(words()), np.zeros(32 * 64, np.uint32)
    images: list[Image] = []

    def image(code):
        made = original(code)
        images.append(replace(made, kernels=[(kernels or {}).get(name, name) for name in made.kernels]))
        return images[-1]

    original = RowCode.image
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowCode, "image", image)
        if not chained:
            patch.setattr(segments, "chains_of", lambda plan, block: {})
        values = [array.ctypes.data.to_bytes(8, "little") for array in (out, source)]
        launch_entry(entry(body, 2), values, [out, source], shared=4 * WORDS, **options)
    return out, images[0].kernels


def stored(registers):
    """PTX that stores registers of each thread, of 64-bit ones the distance from the second array."""
    text = "mul.wide.u32 %rd1, %tid, 4; add.s64 %rd1, %a0, %rd1;"
    for i, register in enumerate(registers):
        if register.startswith("%rd"):
            text += f"sub.s64 %rd2, {register}, %a1; cvt.u32.u64 %r2, %rd2; st.global.b32 [%rd1+{128 * i}], %r2;"
        else:
            text += f"st.global.b32 [%rd1+{128 * i}], {register};"
    return text


def prologue(index, space):
    """Registers' first values: bases 64 words behind the start, one the same in all lanes; words in shared memory."""
    copy, place = (
        "",
        "mad.wide.u32 %rd5, %r2, 4, %a1; add.s64 %rd5, %rd5, 256; add.s64 %rd6, %a1, 512; mov.u64 %rd8, 8;",
    )
    if space == "shared":
        copy = f"""mov.u32 %r4, smem; mov.u32 %r1, %tid;
            F: mul.wide.u32 %rd1, %r1, 4; add.s64 %rd1, %a1, %rd1; ld.global.b32 %r2, [%rd1];
            shl.b32 %r3, %r1, 2; add.u32 %r3, %r3, %r4; st.shared.b32 [%r3], %r2; add.u32 %r1, %r1, 32;
            setp.lt.u32 %p1, %r1, {WORDS}; @%p1 bra F; bar.warp.sync -1;"""
        place = """mul.lo.u32 %r5, %r2, 4; add.u32 %r5, %r5, %r4; add.u32 %r5, %r5, 256; add.u32 %r6, %r4, 512;
            mov.u32 %r8, 8;"""
    firsts = "".join(
        f"cvt.rn.f32.u32 {name}, %tid; add.f32 {name}, {name}, 0f3F{i}00000;" for i, name in enumerate(FLOATS)
    )
    sums = "".join(f"mov.b{BITS[space]} {name}, {BASES[space][0]};" for name in BASES[space][2:])
    return f"""{copy} {index} {place} {firsts} {sums}
        mov.u32 %r40, 3; mov.u32 %r41, %tid; mov.u32 %r42, 0; mov.f32 %r30, 0f3FA00000;"""


def random_instruction(rng, space):
    bits, bases, added = BITS[space], BASES[space], f"{NAMES[space]}8"
    value = lambda: rng.choice([*FLOATS, *FLOATS, "%r30", "0f3F000000"])  # noqa: E731
    guard = "@%p3 " if rng.random() < 0.03 else ""
    kind = rng.choice(["load", "load", "fma", "fma", "two", "mad", "integers", "sum", "ahead"])
    if kind == "load":
        return f"{guard}ld.{space}.f32 {rng.choice(FLOATS)}, [{rng.choice(bases)}+{4 * rng.integers(-8, 9)}];"
    if kind == "fma":
        target = rng.choice(FLOATS)
        return f"{guard}fma.rn.f32 {target}, {value()}, {value()}, {rng.choice([target, value()])};"
    if kind == "two":
        return f"{guard}{rng.choice(['add', 'sub', 'mul'])}.f32 {rng.choice(FLOATS)}, {value()}, {value()};"
    if kind == "mad":
        target = rng.choice(FLOATS)
        return f"{guard}mad.lo.s32 {target}, {rng.choice([*FLOATS, '%r30'])}, {rng.choice([*FLOATS, '-7'])}, {target};"
    if kind == "integers":
        name = rng.choice(["add.s32", "sub.u32", "mul.lo.s32", "mul.lo.u32"])
        return f"{guard}{name} {rng.choice(FLOATS)}, {rng.choice(FLOATS)}, {rng.choice([*FLOATS, '%r30', '12345'])};"
    if kind == "sum":
        row, other = rng.choice([bases[0], *bases[2:]]), rng.choice([added, "4", "-8"])
        return f"{guard}add.s{bits} {rng.choice(bases[2:])}, {row}, {other};"
    return rng.choice(
        [
            "add.u32 %r40, %r40, %tid;",
            "add.u32 %r42, %r42, 5;",
            f"add.s{bits} {added}, {added}, 4;",
            f"add.s{bits} {bases[0]}, {bases[0]}, 4;",
            f"add.s{bits} {bases[1]}, {bases[1]}, -4;",
            "xor.b32 %r41, %r41, %r40;",
            "mul.f32 %r30, %r30, 0f3F400000;",
            "setp.lt.f32 %p3, %r10, %r11;",
            f"mov.b32 %r41, {rng.choice(FLOATS)};",
            f"max.f32 {rng.choice(FLOATS)}, %r10, %r12;",
        ]
    )


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("lanes_of", [0xFFFFFFFF, 0x00F0F00F], ids=hex)
def test_chains_do_what_their_instructions_do(name, space, lanes_of):
    chains = 0
    for seed in range(12):
        rng = np.random.default_rng([seed, lanes_of & 0xFF])
        instructions = " ".join(random_instruction(rng, space) for _ in range(40))
        kept = [*FLOATS, *OTHERS, *rng.choice(BASES[space], 4)]
        body = f"""
            {prologue(INDICES[name], space)} mov.u32 %r8, {lanes_of}; shr.u32 %r8, %r8, %tid; and.b32 %r8, %r8, 1;
            setp.eq.u32 %p2, %r8, 0; setp.ne.u32 %p3, %tid, 3; mov.u32 %r8, 8; @%p2 bra END;
            {instructions}
            END: {stored(kept)}
        """
        found, kernels = run(body)
        expected, others = run(body, chained=False)
        np.testing.assert_array_equal(found, expected, f"seed {seed}: {instructions}")
        chains += "chain" in kernels
        assert "chain" not in others
    assert chains > 6


@pytest.mark.parametrize("name", ["one", "row", "16 columns", "8 columns", "rows of 16", "rows of 8"])
@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("operation", ["fma.rn.f32", "mad.lo.s32"])
def test_a_chain_needs_none_of_its_instructions(name, space, operation):
    """The kernels of its loads and products are replaced by one that does nothing: they are not called."""
    bits, r, load = BITS[space], NAMES[space], f"ld.{space}.f32"
    body = f"""
        {prologue(INDICES[name], space)} sub.s{bits} {r}6, {r}6, {"%a1" if space == "global" else "%r4"};
        mov.u32 %r43, 0;
        L: sub.s{bits} {r}21, {r}5, 0; add.s{bits} {r}20, {r}21, {r}6;
        {load} %r18, [{r}20]; {load} %r19, [{r}5]; {operation} %r10, %r18, %r19, %r10;
        {load} %r18, [{r}20+4]; add.u32 %r43, %r43, 1; {load} %r19, [{r}5+128]; {operation} %r10, %r18, %r19, %r10;
        add.s{bits} {r}5, {r}5, 4; setp.lt.u32 %p1, %r43, 9; @%p1 bra L;
        {stored(["%r10"])}
    """
    expected, _ = run(body, chained=False)
    found, kernels = run(body, kernels=dict.fromkeys((f"load_{space}_32", "fma_f32", "mad_32"), "check_uninitialised"))
    assert expected[:32].any() and "chain" in kernels
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["one", "row", "8 columns", "strided"])
@pytest.mark.parametrize("before", ["", "add.s32 %r20, %r5, %r8; @%p3 mov.u32 %r40, 5; "])
@pytest.mark.parametrize("overwritten,base", [("%r5", "%r22"), ("%r8", "%r6")])
def test_a_chain_overwrites_what_addresses_are_sums_of(name, before, overwritten, base):
    """A load's result is the row of a sum, or is added to it, in the chain or ahead; a later load is by it."""
    body = f"""
        {prologue(INDICES[name], "shared")} setp.eq.u32 %p3, %tid, 3; add.s32 %r20, %r5, %r8;
        {before} add.s32 %r21, %r20, 4; ld.shared.b32 {overwritten}, [{base}+8];
        ld.shared.f32 %r18, [%r21]; fma.rn.f32 %r10, %r18, {overwritten}, %r10;
        ld.shared.f32 %r18, [%r20]; fma.rn.f32 %r10, %r18, %r30, %r10;
        {stored(["%r10", "%r40"])}
    """
    np.testing.assert_array_equal(run(body)[0], run(body, chained=False)[0])


@pytest.mark.parametrize("name", ["one", "row", "8 columns", "strided"])
@pytest.mark.parametrize("distance", ["far", "far below", 2])
@pytest.mark.parametrize("space", ["global", "shared"])
def test_faults_of_chains(name, distance, space):
    """The second load of a chain faults, by its displacement or by what is added to its row; both ways name it."""
    bits, r = BITS[space], NAMES[space]
    far = 1 << (40 if space == "global" else 20)
    distance = {"far": far, "far below": -far}.get(distance, distance)
    for added, at in ((distance, 0), (0, distance)):
        body = f"""
            {prologue(INDICES[name], space)} mov.b{bits} {r}8, {added}; add.s{bits} {r}20, {r}5, {r}8;
            ld.{space}.f32 %r10, [{r}5]; fma.rn.f32 %r11, %r10, %r11, %r12;
            ld.{space}.f32 %r10, [{r}{20 if added else 5}+{at}]; fma.rn.f32 %r11, %r10, %r11, %r11; {stored(["%r11"])}
        """
        reports = []
        for chained in (True, False):
            with pytest.raises(EmulatorError) as raised:
                run(body, chained)
            reports.append(str(raised.value).split(" at 0x")[0])
        assert reports[0] == reports[1]
