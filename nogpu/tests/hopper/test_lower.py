"""PTX lowered for a Hopper GPU: ptxas assembles it for sm_90a; single instructions, by rule; refused instructions."""

import re

import ml_dtypes
import numpy as np
import pytest

from nogpu.errors import EmulatorError
from nogpu.hardware.tensor.tmem import fragment
from nogpu.hopper import MODES, library
from nogpu.hopper.lower import lower
from nogpu.hopper.maps import MARK_4_BIT, MARK_OFFSET, MapFacts
from nogpu.hopper.rules_tcgen05 import SHAPES
from nogpu.hopper.statements import statements
from nogpu.ptx.module import parse
from nogpu.ptx.syntax import without_comments
from tests.support import small_kernels
from tests.support.ptxas import assembles

HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"
KERNEL = """
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry k(
    .param .align 64 .b8 first[128], .param .align 64 .b8 second[128], .param .u64 memory
)
.reqntid 128, 1, 1
{
    .reg .pred %p<4>;
    .reg .b8 %c<2>;
    .reg .b16 %h<4>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<16>;
    mov.b32 %r1, dynamic;
    ld.param.b64 %rd4, [memory];
    mov.b64 %rd1, first;
    mov.b64 %rd2, second;
    setp.ne.b32 %p1, %r1, 0;
    selp.b64 %rd3, %rd1, %rd2, %p1;
    cvta.param.u64 %rd1, %rd1;
    cvta.param.u64 %rd3, %rd3;
    BODY
    ret;
}
"""
MAPS = {"first": MapFacts(True, 4096), "second": MapFacts(True, 4096)}


def no_library():
    raise AssertionError("the library was asked for")


def lowered(body, mode="timing", maps=MAPS, ctas=1, library_ptx=no_library):
    """Lower KERNEL with `body`."""
    text = HEADER + KERNEL.replace("BODY", body)
    return lower(text, "k", mode, maps, ctas, library_ptx)


def flat(result):
    """The lowered text on one line, without comments."""
    return " ".join(without_comments(result.ptx).split())


BODIES = [
    "tcgen05.alloc.cta_group::1.sync.aligned.b32 [%rd4], 512;",
    "@%p1 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r1], 64;",
    "@!%p1 tcgen05.cp.cta_group::1.128x256b [%r2], %rd5;",
    "tcgen05.cp.cta_group::2.64x128b.warpx2::02_13 [%r2+4], %rd5;",
    "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X [%r2], %rd5, %rd6, %r3, [%r4], [%r5+4], %p1;",
    "tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale.block16.collector::a::discard "
    "[%r2], %rd5, %rd6, %r3, [%r4], [%r5], !%p1;",
    "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r2, %r3}, [%r4];",
    "tcgen05.ld.sync.aligned.16x64b.x2.pack::16b.b32 {%r2, %r3}, [%r4+16];",
    "tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%r2}, [%r4], 16;",
    "tcgen05.st.sync.aligned.16x128b.x1.b32 [%r4], {%r2, %r3};",
    "tcgen05.st.sync.aligned.32x32b.x1.unpack::16b.b32 [%r4], {%r2};",
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd4];",
    "@%p1 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r1], %h1;",
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
    ".cta_group::2.L2::cache_hint [%r1], [%rd1, {%r2, %r3}], [%r4], %h1, %rd5;",
    "@%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes.cta_group::2 "
    "[%r1], [%rd4, {%r2, 0}], [%r4+8];",
    "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd3, {-1, %r2}], [%r1];",
    "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {%r2, %r3}];",
    "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd4], 16, [%r2];",
    "tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r1], 0, %r2;",
    "bar.sync 0; barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; mov.u32 %r2, %ntid.x;",
    "@%p1 ret; bar.sync 3, 64; elect.sync %r2|%p2, -1; @%p2 exit;",
    "setmaxnreg.inc.sync.aligned.u32 128;",
    "fma.rn.f32x2 %rd5, %rd6, %rd7, %rd8; add.f32x2 %rd5, %rd5, %rd6;",
    "max.f32 %r2, %r3, %r4, %r5;",
    "cvt.rn.satfinite.e2m1x2.f32 %c1, %r2, %r3; cvt.rn.f16x2.e2m1x2 %r4, %c1;",
    "ld.global.L1::no_allocate.L2::evict_first.v4.b64 {%rd4, %rd5, %rd6, %rd7}, [%rd4+32];",
    "@%p1 st.global.v8.b32 [%rd4], {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8};",
    "st.relaxed.cta.global.L1::no_allocate.L2::evict_last.v8.b32 [%rd4], {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8};",
    "griddepcontrol.wait; griddepcontrol.launch_dependents;",
]
BESIDE = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;\n"
"""An allocation that gives every kernel extra warps in exact mode."""


@pytest.mark.parametrize("mode", MODES)
def test_instructions_assemble(mode):
    assert assembles(lowered(BESIDE + "\n".join(BODIES), mode, ctas=2, library_ptx=library.ptx).ptx)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("body", BODIES)
def test_each_instruction_assembles(body, mode):
    assert assembles(lowered(BESIDE + body, mode, ctas=2, library_ptx=library.ptx).ptx)


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("tcgen05.shift.cta_group::1.down [%r1]", "block-scaled e2m1"),
        ("tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1", "block-scaled e2m1"),
        (
            "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [%r1], [%r2], %rd2, %r2, [%r3], [%r4], %p1",
            "block-scaled e2m1",
        ),
        ("tcgen05.cp.cta_group::1.4x256b [%r1], %rd1", "shape"),
        ("clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %rd1", "cluster launch control"),
        (
            "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes "
            "[%r1], [%rd1, {%r1, %r1, %r1, %r1, %r1}], [%r2]",
            "no such mode",
        ),
        ("cvt.rn.satfinite.e2m3x2.f32 %h1, %r1, %r2", "no such type"),
        ("redux.sync.max.abs.f32 %r1, %r2, -1", "integers only"),
        ("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r1], 13", "no such element type"),
    ],
)
def test_what_cannot_be_lowered_is_named_with_its_line(instruction, reason):
    with pytest.raises(EmulatorError, match=reason) as caught:
        lowered(instruction + ";")
    line = 1 + (HEADER + KERNEL).splitlines().index("    BODY")
    assert (caught.value.kernel, caught.value.ptx_line) == ("k", line)
    assert caught.value.reason.startswith(f"{instruction.split()[0]} cannot be lowered to sm_90a: ")


def test_extra_warps_need_whole_warps_along_x():
    text = HEADER + KERNEL.replace("BODY", "tcgen05.alloc.cta_group::1.sync.aligned.b32 [%rd4], 32;")
    for reqntid in (".reqntid 100, 1, 1", ".reqntid 64, 2, 1", ""):
        with pytest.raises(EmulatorError, match="whole warps"):
            lower(text.replace(".reqntid 128, 1, 1", reqntid), "k", "exact", {}, 1, no_library)


def test_statements_are_cut_from_their_places():
    """Comments, line breaks and blanks do not shift the places of later instructions."""
    body = "@!%p1  mov.b32 %r2 , /* a; b */ 1 ; { .reg .b32 t; // }\n L: mov.b64 {t,\n %r3}, %rd4; } @ %p2 bra L2; L2:"
    module = parse(HEADER + KERNEL.replace("BODY", body))
    found = list(statements(module.text, module.entries["k"]))[-4:-1]
    assert [(s.guard, s.opcode, s.operands) for s in found] == [
        ("@!%p1", "mov.b32", ("%r2", "1")),
        ("", "mov.b64", ("{t,\n %r3}", "%rd4")),
        ("@%p2", "bra", ("L2",)),
    ]
    texts = [module.text[slice(*s.parsed.place)] for s in found]
    assert [text.split()[0] for text in texts] == ["@!%p1", "mov.b64", "@"] and all(text[-1] == ";" for text in texts)


def test_lines_of_inlined_functions_assemble():
    """nvcc's -lineinfo names a function in .loc by a string in a section that the lowered module lacks."""
    text = (
        HEADER + '.file 1 "a.cu"\n' + KERNEL.replace("BODY", ".loc 1 2 3, function_name $L__name, inlined_at 1 4 5\n")
    )
    result = lower(text + ".section .debug_str { $L__name: .b8 0 }", "k", "timing", MAPS, 1, no_library)
    assert ".loc 1 2 3\n" in result.ptx and assembles(result.ptx)


def test_a_kernel_of_sm_90_stays_as_it_is():
    body = "bar.sync 0; @%p1 ret; mov.u32 %r2, %ntid.x; fence.proxy.async.shared::cta;"
    result = lowered(body, "exact")
    assert (result.extra_threads, result.control_bytes, result.uses_tmem) == (0, 0, False)
    assert body in result.ptx


def test_only_the_entry_asked_for_is_kept():
    text = HEADER + KERNEL.replace("BODY", "") + ".visible .entry other() { tcgen05.shift.cta_group::1.down [0]; ret; }"
    result = lower(text, "k", "exact", {}, 1, no_library)
    assert "other" not in result.ptx and "sm_90a" in result.ptx


def test_coordinates_of_4_bit_maps_are_halved():
    load = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    load += " [%r1], [%rd3, {%r2, %r3}], [%r4];"
    two = flat(lowered(load))
    assert re.search(r"shr\.s32 (\w+), %r2, 1; cp\.async\.bulk\.tensor\.2d\S+ \[%r1\], \[%rd3, \{\1, %r3\}\]", two)
    bytes_only = dict.fromkeys(MAPS, MapFacts(False, 4096))
    assert "shr.s32" not in flat(lowered(load, maps=bytes_only))


@pytest.mark.parametrize(
    ("base", "maps"),
    [("%rd4", MAPS), ("%rd3", {"first": MapFacts(True, 4096), "second": MapFacts(False, 4096)})],
    ids=["from memory", "one of two kinds"],
)
def test_a_map_that_is_not_known_is_asked(base, maps):
    store = f"cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [{base}, {{%r2, %r3}}], [%r1];"
    result = lowered(store, maps=maps)
    assert result.asks
    text = flat(result)
    assert f"ld.u8 hopper_b32_1, [{base}+{MARK_OFFSET}]; setp.eq.u32 hopper_pred_2, hopper_b32_1, {MARK_4_BIT};" in text
    assert "selp.b32 hopper_b32_0, hopper_b32_0, %r2, hopper_pred_2;" in text


@pytest.mark.parametrize("mode", MODES)
def test_loads_that_signal_another_cta_are_forwarded(mode):
    """A Hopper's TMA signals only barriers of its own CTA; a warp of the lowered kernel passes the bytes on."""
    load = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    body = f"{load}.cta_group::2 [%r1], [%rd3, {{%r2, %r3}}], [%r4];"
    result = lowered(body, mode, ctas=2, library_ptx=library.ptx)
    assert result.forwards and result.extra_threads == 32 and assembles(result.ptx)
    own = lowered(body.replace(".cta_group::2", ""), mode, ctas=2)
    assert not own.forwards and not own.extra_threads


def test_a_warp_that_leaves_is_not_expected_at_cluster_barriers():
    """Beside extra warps, software counts at cluster barriers: arrival, wait, and a substitute for a warp's end."""
    alloc = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;"
    body = f"{alloc} barrier.cluster.arrive.relaxed.aligned; @%p1 bra L; barrier.cluster.wait.acquire.aligned; L:"
    text = flat(lowered(body, "exact", ctas=2, library_ptx=library.ptx))
    assert text.count("mbarrier.arrive.release.cluster") == text.count("mbarrier.arrive_drop.release.cluster") == 2
    assert "arrive_drop" not in flat(lowered(body, "exact", ctas=1, library_ptx=library.ptx))


def test_a_commit_without_tensor_core_is_an_arrival():
    commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1];"
    assert "mbarrier.arrive.shared::cta.b64 _, [%r1];" in flat(lowered(commit))
    both = commit.replace("::1.", "::2.").replace("cluster.b64 [%r1]", "cluster.multicast::cluster.b64 [%r1], %h1")
    assert flat(lowered(both, ctas=2)).count("mbarrier.arrive.relaxed.cluster.shared::cluster.b64") == 2


def run_lowered(monkeypatch, body, *arrays, threads):
    """Lower a small kernel without the library and run it on the emulator. Returns its text."""
    result = lower(small_kernels.module(body, len(arrays)), "k", "exact", {}, 1, no_library)
    monkeypatch.setattr(small_kernels, "module", lambda *arguments: result.ptx)
    small_kernels.launch(body, *arrays, threads=threads)
    return flat(result)


def unpacked(codes):
    return np.stack([codes & 15, codes >> 4], axis=1).view(ml_dtypes.float4_e2m1fn).astype(np.float16).view(np.uint16)


def test_unpacking_of_e2m1_is_exact(monkeypatch):
    """The source has every byte; the conversion has a guard, and the next instruction reads its register."""
    codes, out = np.arange(256, dtype=np.uint8), np.full((256, 2), np.nan, np.float16)
    text = run_lowered(
        monkeypatch,
        """
        cvt.u64.u32 %rd1, %tid; add.s64 %rd1, %rd1, %a1; .reg .b8 x, unused; ld.global.b8 %h1, [%rd1];
        mov.b16 {x, unused}, %h1; setp.ge.u32 %p1, %tid, 0; mov.b32 %r1, 0;
        @%p1 cvt.rn.f16x2.e2m1x2 %r1, x; @!%p1 cvt.rn.f16x2.e2m1x2 %r1, unused;
        mad.wide.u32 %rd2, %tid, 4, %a0; st.global.b32 [%rd2], %r1;
        """,
        out,
        codes,
        threads=256,
    )
    np.testing.assert_array_equal(out.view(np.uint16), unpacked(codes))
    assert "call" not in text and "e2m1" not in text


# Forms in which the bytes of a word arise; "again" overwrites x1 with byte 2 behind the mov.
SHARED = "mov.b32 {x0, x1, x2, x3}, %r1;"
SPLITS = {
    "once": SHARED,
    "in an inner scope": "{ mov.b32 {x0, x1, x2, x3}, %r1; }",
    "again": SHARED + "shr.u32 %r2, %r1, 16; cvt.u8.u32 x1, %r2;",
    "guarded": "setp.ge.u32 %p1, %tid, 0; @%p1 " + SHARED,
}


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
def test_unpacking_of_a_word_is_exact(monkeypatch, split):
    """The words have every byte in every place. A word that is split once looks its four bytes up together."""
    codes = np.arange(256, dtype=np.uint8)
    words = np.stack([np.roll(codes[:: 1 - 2 * (i % 2)], 37 * i) for i in range(4)], axis=1)
    out = np.full((256, 4, 2), np.nan, np.float16)
    text = run_lowered(
        monkeypatch,
        f"""
        mad.wide.u32 %rd1, %tid, 4, %a1; .reg .b8 x<4>; ld.global.b32 %r1, [%rd1]; {split}
        cvt.rn.f16x2.e2m1x2 %r1, x0; cvt.rn.f16x2.e2m1x2 %r2, x1;
        cvt.rn.f16x2.e2m1x2 %r3, x2; cvt.rn.f16x2.e2m1x2 %r4, x3;
        mad.wide.u32 %rd2, %tid, 16, %a0; st.global.v4.b32 [%rd2], {{%r1, %r2, %r3, %r4}};
        """,
        out,
        np.ascontiguousarray(words),
        threads=256,
    )
    if split == SPLITS["again"]:
        words[:, 1] = words[:, 2]
    np.testing.assert_array_equal(out.reshape(1024, 2).view(np.uint16), unpacked(words.reshape(-1)))
    together = split in (SHARED, SPLITS["in an inner scope"])
    assert text.count("prmt.b32") == 2 * (2 if together else 4) + 4


@pytest.mark.parametrize("form", ["v8.b32", "v4.b64"])
def test_wide_accesses_become_two(monkeypatch, form):
    """The load may overwrite its own address register."""
    given = np.arange(32 * 32 + 32, dtype=np.uint8)[: 32 * 32].reshape(32, 32)
    given = np.ascontiguousarray(given[np.random.default_rng(3).permutation(32)])
    both = small_kernels.aligned(np.concatenate([given.reshape(-1), np.zeros(given.nbytes, np.uint8)]))
    out = both[given.nbytes :]
    names = "%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8" if form == "v8.b32" else "%rd1, %rd2, %rd3, %rd4"
    text = run_lowered(
        monkeypatch,
        f"""
        mad.wide.u32 %rd1, %tid, 32, %a0; add.s64 %rd9, %rd1, {given.nbytes};
        ld.global.L1::no_allocate.{form} {{{names}}}, [%rd1]; st.global.{form} [%rd9], {{{names}}};
        """,
        both,
        threads=32,
    )
    assert (out.reshape(32, 32) == given).all()
    assert len(re.findall(r"(?:ld|st)\.global\S*\.v(?:4\.b32|2\.b64) ", text)) == 4


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num", [1, 2, 8])
def test_a_register_is_as_far_from_the_first_in_every_thread(shape, num):
    places = fragment((shape, num, False, 0))
    assert (places - places[0] == (places - places[0])[:, :1]).all()


def test_bare_mode_leaves_one_multiplication_of_a_conversion():
    convert = "cvt.rn.f16x2.e2m1x2 %r4, %c1;"
    (timing, bare) = (flat(lowered(convert, mode)) for mode in ("timing", "bare"))
    assert timing.count("prmt.b32") == 3 and timing.count("mad.lo.s32") == 1
    assert bare.count("mul.lo.u32") == 1 and "prmt" not in bare
    with_tensor_core = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1];"
    assert flat(lowered(with_tensor_core, "bare")) == flat(lowered(with_tensor_core, "timing"))
