"""Modifiers in any order, as ptxas takes them; the order of types and of state spaces counts."""

import random

import pytest

from nogpu.compiler.opcodes.table import lookup
from nogpu.compiler.translate import translate
from tests.support import ptxas
from tests.support.small_kernels import entry

# (name, modifiers in the PTX ISA's order, operands)
FORMS = [
    (
        "cp.async.bulk.tensor",
        "2d shared::cluster global tile mbarrier::complete_tx::bytes multicast::cluster cta_group::2 L2::cache_hint",
        "[%r0], [%rd0, {%r1, %r1}], [%r0], %h1, %rd1",
    ),
    ("cp.async.bulk.tensor", "2d global shared::cta tile bulk_group L2::cache_hint", "[%rd0, {%r1, %r1}], [%r0], %rd1"),
    ("cp.reduce.async.bulk.tensor", "2d global shared::cta add tile bulk_group", "[%rd0, {%r1, %r1}], [%r0]"),
    ("cp.reduce.async.bulk", "global shared::cta bulk_group L2::cache_hint add u32", "[%rd0], [%r0], 16, %rd1"),
    ("tcgen05.mma", "cta_group::1 kind::f16 collector::a::fill", "[%r1], %rd1, %rd1, %r1, %p1"),
    (
        "tcgen05.mma",
        "cta_group::1 kind::mxf4nvf4 block_scale scale_vec::4X collector::a::use",
        "[%r1], %rd1, %rd1, %r1, [%r1], [%r1], %p1",
    ),
    ("tcgen05.mma", "sp cta_group::2 kind::i8 collector::a::lastuse", "[%r1], %rd1, %rd1, [%r1], %r1, %p1"),
    ("tcgen05.mma.ws", "cta_group::1 kind::f16 collector::b2::lastuse", "[%r1], %rd1, %rd1, %r1, %p1, %rd1"),
    ("tcgen05.commit", "cta_group::1 mbarrier::arrive::one shared::cluster multicast::cluster b64", "[%r0], %h1"),
    ("tcgen05.ld", "sync aligned 16x64b x2 pack::16b b32", "{%r3, %r4}, [%r1]"),
    ("tcgen05.alloc", "cta_group::1 sync aligned shared::cta b32", "[%r0], 32"),
    ("mbarrier.arrive.expect_tx", "release cluster shared::cluster b64", "_, [%r0], %r1"),
    ("mbarrier.try_wait.parity", "acquire cta shared::cta b64", "%p1, [%r0], %r1"),
    ("barrier.cluster.arrive", "release aligned", ""),
    ("ldmatrix", "sync aligned m8n8 x2 trans shared b16", "{%r3, %r4}, [%r0]"),
    ("ldmatrix", "sync aligned m16n16 x1 trans shared b8x16 b4x16_p64", "{%r3, %r4}, [%r0]"),
    ("stmatrix", "sync aligned m8n8 x2 trans shared b16", "[%r0], {%r3, %r4}"),
    ("cvt", "rn satfinite relu f16x2 f32", "%r3, %f1, %f1"),
    ("fma", "rn ftz sat f32", "%f2, %f1, %f1, %f1"),
    ("setp", "lt and ftz f32", "%p1, %f1, %f1, %p2"),
    ("setmaxnreg.dec", "sync aligned u32", "32"),
    ("shfl", "sync idx b32", "%r3|%p1, %r1, 0, 31, -1"),
    ("redux", "sync add s32", "%r3, %r1, -1"),
    ("shf.l", "wrap b32", "%r3, %r1, %r1, %r1"),
    ("dp2a.lo", "u32 s32", "%r3, %r1, %r1, %r1"),
    ("ld", "relaxed gpu global L1::no_allocate v2 b32", "{%r3, %r4}, [%rd0]"),
    ("red", "relaxed gpu global add v2 f32", "[%rd0], {%f1, %f1}"),
]
DECLARED = """
    .reg .f32 %f<4>; mov.u32 %r0, smem; mov.u64 %rd0, %a0; mov.u32 %r1, 0; mov.u64 %rd1, 0; mov.b16 %h1, 1;
    mov.f32 %f1, 0f00000000; mov.pred %p1, 0; mov.pred %p2, 0;
"""
TWINS = [
    ("cp.async.bulk.tensor", "2d global shared::cluster tile mbarrier::complete_tx::bytes", FORMS[0][2]),
    ("cvt", "rn f32 f16x2", "%r3, %f1, %f1"),
    ("ldmatrix", "sync aligned m16n16 x1 trans b4x16_p64 b8x16", "{%r3, %r4}, [%rd0]"),
    ("mbarrier.try_wait", "acquire parity cta shared::cta b64", "%p1, [%r0], %r1"),
    ("barrier.cluster", "aligned arrive", ""),
    ("shf", "wrap l b32", "%r3, %r1, %r1, %r1"),
    ("dp2a", "u32 lo s32", "%r3, %r1, %r1, %r1"),
    ("mul24", "u32 lo", "%r3, %r1, %r1"),
    ("mad24", "s32 hi", "%r3, %r1, %r1, %r1"),
]


def shuffled(modifiers, seed):
    """Some orders of the modifiers that keep the order inside of each class."""
    source, count, classes = (
        random.Random(seed),
        max(2, 8 - modifiers.count(" ")),
        ("global", "shared", "f16x2", "f32", "b8x16", "b4x16_p64", "u32", "s32"),
    )
    for _ in range(count):
        order = modifiers.split()
        source.shuffle(order)
        kept = iter([part for part in modifiers.split() if part.startswith(classes)])
        yield [next(kept) if part.startswith(classes) else part for part in order]


@pytest.mark.parametrize("name,modifiers,operands", FORMS)
def test_any_order(name, modifiers, operands):
    expected = lookup(f"{name}.{'.'.join(modifiers.split())}")
    assert expected is not None
    for order in shuffled(modifiers, 1):
        row, match = lookup(".".join([name, *order]))
        assert row is expected[0]
        assert sorted(match.string.split(".")) == sorted(expected[1].string.split("."))


@pytest.mark.parametrize("name,modifiers,operands", TWINS)
def test_orders_that_mean_something_else(name, modifiers, operands):
    assert lookup(f"{name}.{'.'.join(modifiers.split())}") is None


def entry_text(text):
    return (
        ".version 8.8\n.target sm_100a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"
        ".visible .entry k(.param .u64 a) {\n.reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<8>;\n"
        f".reg .b64 %rd<4>, %a0; ld.param.b64 %a0, [a]; {text}\nret; }}"
    )


def takes(text):
    """True if an installed ptxas takes a kernel's body for sm_100a."""
    module = entry_text(text)
    for path in ptxas.installed():
        refused = ptxas.refusal(path, module, "sm_100a")
        if "Unsupported .version" not in refused:
            return not refused
    pytest.skip("no ptxas for the PTX in site-packages or on PATH; the extra `test` brings one")


def test_ptxas_takes_the_same():
    statements = [
        f"{'.'.join([name, *order])} {operands};"
        for name, modifiers, operands in FORMS
        for order in shuffled(modifiers, 2)
    ]
    assert takes(DECLARED + "\n".join(statements))
    for name, modifiers, operands in TWINS:
        assert not takes(f"{DECLARED} {name}.{'.'.join(modifiers.split())} {operands};")


def test_translation_of_modifiers_in_another_order():
    """The instruction keeps its text; features of the kernel are found all the same."""
    copy = "cp.async.bulk.bulk_group.global.shared::cta [%rd0], [%r0], 16;"
    program = translate(entry(f"{DECLARED} setp.ne.u32 %p1, %tid, 0; @%p1 bra END; {copy} END:"))
    assert program.traits.async_reads
    assert any(i.text.startswith("cp.async.bulk.bulk_group") for i in program.entry.instructions)
