"""Loads, stores and address conversion, per lane and uniform, in every state space."""

import numpy as np
import pytest

from nogpu.compiler import translate
from nogpu.errors import EmulatorError
from nogpu.ops import memory
from nogpu.ptx import module as ptx
from tests.support.small_kernels import aligned, launch, module, store

LANE = np.arange(32)


def lanes(body, *arrays, threads=32, **options):
    out = np.full(threads, 0xDEAD, np.uint32)
    launch(body + store("%r1"), out, *arrays, threads=threads, **options)
    return out.tolist()


@pytest.mark.parametrize(
    "load", ["ld.global", "ld.global.nc", "ld.global.L1::no_allocate", "ld.global.nc.L1::evict_last.L2::128B"]
)
@pytest.mark.parametrize(
    "count,width", [(1, 8), (2, 8), (4, 8), (1, 16), (4, 16), (1, 32), (2, 32), (4, 32), (8, 32), (2, 64), (4, 64)]
)
def test_vector_copies_in_global_memory(count, width, load):
    nbytes = count * width // 8
    source = np.random.default_rng(1).integers(0, 256, 32 * nbytes).astype(np.uint8)
    registers = [f"{ {8: '%h', 16: '%h', 32: '%r', 64: '%rd'}[width] }{10 + i}" for i in range(count)]
    items, vector = (f"{{{', '.join(registers)}}}", f".v{count}") if count > 1 else (registers[0], "")
    source_aligned, out_aligned = aligned(source), aligned(np.zeros(32 * nbytes, np.uint8))
    for offset in ("%tid", "0"):
        body = f"""
            mov.u32 %r1, {offset}; mul.wide.u32 %rd1, %r1, {nbytes}; add.s64 %rd2, %rd1, %a1; add.s64 %rd3, %rd1, %a0;
            {load}{vector}.b{width} {items}, [%rd2]; st.global{vector}.b{width} [%rd3], {items};
        """
        out_aligned[:] = 0
        launch(body, out_aligned, source_aligned)
        count_bytes = 32 * nbytes if offset == "%tid" else nbytes
        np.testing.assert_array_equal(out_aligned[:count_bytes], source[:count_bytes])
        assert not out_aligned[count_bytes:].any()


def test_narrow_loads_extend():
    source = np.array([0x80, 0xFF, 0x7F, 1] * 8, np.uint8)
    body = "cvt.u64.u32 %rd2, %tid; add.s64 %rd2, %rd2, %a1; {} mov.u32 %r1, %r2;"
    assert (
        lanes(body.format("ld.global.s8 %r2, [%rd2];"), source)
        == source.view(np.int8).astype(np.int32).view(np.uint32).tolist()
    )
    assert lanes(body.format("ld.global.u8 %r2, [%rd2];"), source) == source.tolist()
    assert lanes(body.format("ld.global.s8 %r2, [%a1+1];"), source) == [0xFFFFFFFF] * 32


def test_parameters():
    text = module("").replace("(.param .u64 a0)", "(.param .u64 a0, .param .u32 n, .param .align 16 .b8 table[32])")
    assert "table[32]" in text
    entry = ptx.parse(text).entries["k"]
    assert entry.param_offsets() == {"a0": 0, "n": 8, "table": 16, "": 48}
    body = (
        "ld.param.v2.b32 {%r1, %r2}, [a0]; mov.b64 %rd2, a0; ld.param.b32 %r3, [%rd2+4]; "
        "sub.u32 %r1, %r3, %r2; add.u32 %r1, %r1, 3;"
    )
    assert lanes(body) == [3] * 32
    body = (
        "mov.b64 %rd2, a0; cvta.param.u64 %rd3, %rd2; ld.b64 %rd4, [%rd3]; "
        "setp.eq.u64 %p1, %rd4, %a0; selp.b32 %r1, 1, 0, %p1;"
    )
    assert lanes(body) == [1] * 32


@pytest.mark.parametrize("lane", ["0", "%tid"])
def test_parameter_address_of_32_bits(lane):
    """`cvta.param` of the low half, which is an address of the state space, gives the generic address."""
    body = (
        f"mov.b32 %r2, a0; shl.b32 %r3, {lane}, 0; and.b32 %r3, %r3, 0; add.u32 %r2, %r2, %r3; cvt.u64.u32 %rd2, %r2; "
        "cvta.param.u64 %rd3, %rd2; ld.b64 %rd4, [%rd3]; "
        "setp.eq.u64 %p1, %rd4, %a0; selp.b32 %r1, 1, 0, %p1;"
    )
    assert lanes(body) == [1] * 32


@pytest.mark.parametrize("space", [".shared", ".shared::cta", ".shared::cluster", ""])
def test_shared_memory(space):
    address = "mov.u32 %r2, smem; mad.lo.u32 %r3, %tid, 8, %r2; "
    if space == "":
        address += "cvt.u64.u32 %rd2, %r3; cvta.shared.u64 %rd3, %rd2; mov.u64 %rd4, smem; cvta.shared.u64 %rd5, %rd4;"
    base, first = ("%rd3", "%rd5") if space == "" else ("%r3", "%r2")
    body = f"""{address}
        mul.lo.u32 %r4, %tid, 7; st{space}.v2.b32 [{base}], {{%r4, %tid}}; bar.warp.sync -1;
        ld{space}.b32 %r5, [{base}+4]; ld{space}.v2.b16 {{%h1, %h2}}, [{base}]; cvt.u32.u16 %r6, %h1;
        ld{space}.b32 %r7, [{first}+16];
        add.u32 %r1, %r5, %r6; add.u32 %r1, %r1, %r7;
    """
    assert lanes(body) == (8 * LANE + 14).tolist()


@pytest.mark.parametrize("lanes_of", [0xFFFFFFFF, 0x00F0F00F, 1 << 31])
@pytest.mark.parametrize("stride", [0, 1, 2, 5], ids=lambda words: f"stride {words}")
@pytest.mark.parametrize("count,width", [(1, 8), (1, 16), (1, 32), (2, 32), (4, 32), (1, 64), (2, 64)])
def test_rows_of_shared_memory(count, width, stride, lanes_of):
    """Lanes that share an address, have words in a row, or words apart; all lanes or some."""
    nbytes = count * width // 8
    name = {8: "%h", 16: "%h", 32: "%r", 64: "%rd"}[width]
    loaded, kept = ([f"{name}{start + i}" for i in range(count)] for start in (10, 20))
    items, rest = (f"{{{', '.join(found)}}}" if count > 1 else found[0] for found in (loaded, kept))
    vector, size = f".v{count}" if count > 1 else "", 32 * 5 * nbytes
    words = np.random.default_rng(2).integers(0, 256, size).astype(np.uint8)
    source, out = aligned(words), aligned(np.zeros(size, np.uint8))
    body = f"""
        mov.u32 %r2, smem; mov.u32 %r1, 0;
    F:  add.u32 %r3, %r2, %r1; cvt.u64.u32 %rd1, %r1; add.s64 %rd2, %a1, %rd1;
        ld.global.b8 %h1, [%rd2]; st.shared.b8 [%r3], %h1; add.u32 %r1, %r1, 1;
        setp.lt.u32 %p1, %r1, {size}; @%p1 bra F;
        bar.warp.sync -1;
        mad.lo.u32 %r3, %tid, {stride * nbytes}, %r2; mov.u32 %r4, {lanes_of}; shr.u32 %r4, %r4, %tid;
        and.b32 %r4, %r4, 1; setp.ne.u32 %p2, %r4, 0;
        {" ".join(f"mov.b{max(width, 16)} {register}, 7;" for register in loaded)}
        @%p2 ld.shared{vector}.b{width} {items}, [%r3];
        mul.wide.u32 %rd3, %tid, {nbytes}; add.s64 %rd3, %a0, %rd3; st.global{vector}.b{width} [%rd3], {items};
        bar.warp.sync -1;
        @%p2 st.shared{vector}.b{width} [%r3], {items};
        bar.warp.sync -1;
        ld.shared{vector}.b{width} {rest}, [%r3];
        add.s64 %rd3, %rd3, {32 * nbytes}; st.global{vector}.b{width} [%rd3], {rest};
    """
    launch(body, out, source, shared=size)
    seven = np.tile(np.frombuffer((7).to_bytes(width // 8, "little"), np.uint8), count)
    places = [words[lane * stride * nbytes :][:nbytes] for lane in LANE]
    expected = [place if lanes_of >> lane & 1 else seven for lane, place in enumerate(places)]
    np.testing.assert_array_equal(out[: 32 * nbytes], np.concatenate(expected))
    np.testing.assert_array_equal(out[32 * nbytes : 64 * nbytes], np.concatenate(places))


@pytest.mark.parametrize("stride", [4, 16, 64], ids=lambda nbytes: f"stride {nbytes}")
@pytest.mark.parametrize("lane", [0, 13, 31])
def test_a_lane_on_a_live_barrier(lane, stride):
    """Rows of shared memory around a live mbarrier are loaded; one lane on it is an error, whatever the others have."""
    body = f"""
        mov.u32 %r2, smem; setp.eq.u32 %p1, %tid, 0;
        @%p1 mbarrier.init.shared.b64 [%r2+{{barrier}}], 1; bar.warp.sync -1;
        mad.lo.u32 %r3, %tid, {stride}, %r2; st.shared.b32 [%r3+4096], %tid; ld.shared.b32 %r1, [%r3+4096];
    """
    place = 4096 + (lane * stride & ~7)
    assert lanes(body.format(barrier=4096 - 8), shared=8192) == LANE.tolist()
    with pytest.raises(EmulatorError, match="touches a live barrier"):
        lanes(body.format(barrier=place), shared=8192)


def test_distributed_shared_memory():
    body = """
        mov.u32 %r2, smem; mad.lo.u32 %r3, %tid, 4, %r2; add.u32 %r4, %tid, 100; mad.lo.u32 %r4, %rank, 1000, %r4;
        st.shared.b32 [%r3], %r4;
        barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
        xor.b32 %r5, %rank, 1; mapa.shared::cluster.u32 %r6, %r3, %r5; ld.shared::cluster.b32 %r1, [%r6];
        mapa.shared::cluster.u32 %r7, %r2, %r5; ld.shared::cluster.b32 %r8, [%r7+4]; add.u32 %r1, %r1, %r8;
        getctarank.shared::cluster.u32 %r9, %r7;
        mad.lo.u32 %r1, %r9, 10000, %r1; and.b32 %r10, %tid, 1; mapa.shared::cluster.u32 %r11, %r2, %r10;
        ld.shared::cluster.b32 %r12, [%r11];
        mad.lo.u32 %r1, %r12, 100000, %r1;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        mad.lo.u32 %r13, %rank, 32, %tid; mad.wide.u32 %rd1, %r13, 4, %a0; st.global.b32 [%rd1], %r1;
    """
    out = np.zeros(64, np.uint32)
    launch(body, out, grid=2, cluster=2)
    rank = np.arange(64) // 32
    other, lane = 1 - rank, np.arange(64) % 32
    expected = 1000 * other + 100 + lane + 1000 * other + 101 + 10000 * other + 100000 * (1000 * (lane % 2) + 100)
    assert out.tolist() == (expected & 0xFFFFFFFF).tolist()


def test_local_memory():
    body = """
        .local .align 8 .b8 stack[32]; .reg .b64 %sp;
        mov.u64 %sp, stack; cvta.local.u64 %rd2, %sp; and.b32 %r2, %tid, 3; mad.wide.u32 %rd3, %r2, 8, %sp;
        mul.lo.u32 %r3, %tid, 5; st.local.b32 [%rd3], %r3; st.local.v2.b32 [stack+16], {%tid, %r3};
        mad.wide.u32 %rd4, %r2, 8, %rd2; ld.b32 %r4, [%rd4];
        st.b32 [%rd2+20], %r2; ld.local.b32 %r5, [stack+20]; mad.lo.u32 %r1, %r5, 1000, %r4;
    """
    expected = np.where(LANE % 4 == 2, 1000 * 2 + LANE, 1000 * (LANE % 4) + 5 * LANE)
    assert lanes(body) == expected.tolist()


def test_generic_accesses_need_no_python(monkeypatch):
    """nvcuda::wmma has generic addresses only."""
    monkeypatch.setattr(memory, "load_lanes", None)
    monkeypatch.setattr(memory, "store_lanes", None)
    out = np.zeros(32, np.uint32)
    body = """mad.wide.u32 %rd1, %tid, 4, %a0; mov.u64 %rd2, smem; cvta.shared.u64 %rd3, %rd2;
        mad.wide.u32 %rd4, %tid, 4, %rd3; st.b32 [%rd4], %tid; bar.warp.sync -1; ld.b32 %r1, [%rd4];
        add.u32 %r1, %r1, 1; st.b32 [%rd1], %r1; ld.b32 %r2, [%rd1]; add.u32 %r2, %r2, %r1; st.b32 [%rd1], %r2;"""
    launch(body, out)
    assert out.tolist() == [2 * (lane + 1) for lane in range(32)]


def test_address_spaces():
    body = """
        mov.u64 %rd2, smem; cvta.shared.u64 %rd3, %rd2; isspacep.shared %p1, %rd3; isspacep.global %p2, %rd3;
        isspacep.global %p3, %a0;
        cvta.to.shared.u64 %rd4, %rd3; setp.eq.u64 %p4, %rd4, %rd2; cvta.to.global.u64 %rd5, %a0;
        setp.eq.u64 %p5, %rd5, %a0;
        isspacep.shared::cluster %p6, %rd3; isspacep.local %p7, %rd3; mov.b64 %rd8, a0; cvta.param.u64 %rd8, %rd8;
        isspacep.param %p9, %rd8; isspacep.param::entry %p10, %a0;
        mapa.u64 %rd6, %rd3, 0;
        setp.eq.u64 %p8, %rd6, %rd3;
        selp.b32 %r1, 1, 0, %p1; @%p2 add.u32 %r1, %r1, 2; @%p3 add.u32 %r1, %r1, 4; @%p4 add.u32 %r1, %r1, 8;
        @%p5 add.u32 %r1, %r1, 16;
        @%p9 add.u32 %r1, %r1, 256; @%p10 add.u32 %r1, %r1, 512; @%p6 add.u32 %r1, %r1, 32;
        @%p7 add.u32 %r1, %r1, 64; @%p8 add.u32 %r1, %r1, 128;
        prefetch.global.L2 [%a0]; prefetchu.L1 [%a0]; createpolicy.fractional.L2::evict_first.b64 %rd7, 1.0;
        ld.global.L2::cache_hint.b32 %r2, [%a0], %rd7;
    """
    assert lanes(body) == [1 + 4 + 8 + 16 + 32 + 128 + 256] * 32


def test_cache_hints():
    """No hint changes the values loaded or stored; a discarded line is poisoned."""
    data = aligned(np.arange(64, dtype=np.uint32))
    body = """
        applypriority.global.L2::evict_normal [%a1], 128; prefetch.L2::evict_last [%a1]; prefetch.local.L1 [%a1];
        createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %rd3, [%a1], 1024, 4096;
        createpolicy.cvt.L2.b64 %rd3, %rd3;
        mad.wide.u32 %rd2, %tid, 4, %a1;
        ld.global.L1::evict_first.L2::cache_hint.L2::128B.b32 %r1, [%rd2], %rd3; ld.global.ca.nc.b32 %r2, [%rd2];
        add.u32 %r1, %r1, %r2;
        ld.global.cs.L2::cache_hint.b32 %r2, [%rd2], %rd3; add.u32 %r1, %r1, %r2; ldu.global.b32 %r2, [%rd2];
        add.u32 %r1, %r1, %r2;
        ld.L2::64B.L2::cache_hint.b32 %r2, [%rd2], %rd3; add.u32 %r1, %r1, %r2;
        ld.global.acquire.gpu.b32 %r2, [%rd2]; add.u32 %r1, %r1, %r2;
        ld.mmio.relaxed.sys.global.b32 %r2, [%rd2]; add.u32 %r1, %r1, %r2;
        ld.global.nc.L1::evict_last.L2::evict_first.L2::cache_hint.L2::256B.v8.b32
            {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}, [%a1+32], %rd3; add.u32 %r1, %r1, %r10;
    """
    assert lanes(body, data) == (7 * LANE + 8).tolist()
    assert (
        lanes("ld.global.b32 %r1, [%a1]; discard.global.L2 [%a1], 128; ld.global.b32 %r1, [%a1+124];", data)
        == [0xFFFFFFFF] * 32
    )
    assert (data[:32] == 0xFFFFFFFF).all() and data[32:].tolist() == list(range(32, 64))


def test_stores_of_some_elements():
    """`_` in a vector of 256 bits leaves its place as it is (PTX ISA, "st")."""
    data, out = aligned(np.full(256, 5, np.uint32)), np.zeros(1, np.uint32)
    body = (
        "mad.wide.u32 %rd1, %tid, 32, %a1; mov.u32 %r1, 7; "
        "st.global.L2::evict_last.v8.f32 [%rd1], {%tid, _, %r1, %r1, _, _, %tid, _};"
    )
    launch(body, out, data)
    expected = np.full((32, 8), 5)
    expected[:, [0, 6]], expected[:, [2, 3]] = LANE[:, None], 7
    np.testing.assert_array_equal(data.reshape(32, 8), expected)
    with pytest.raises(EmulatorError, match="misaligned by 16 bytes"):
        launch("st.global.v4.b64 [%a1+16], {%a0, _, %a0, %a0};", out, data)


def test_programs_that_communicate_through_global_memory():
    def inter_cta(body):
        return translate.translate(ptx.parse(module(body)).entries["k"]).inter_cta

    def awaits(body):
        return translate.translate(ptx.parse(module(body)).entries["k"]).awaits

    assert inter_cta("atom.global.add.u32 %r1, [%a0], 1;") and inter_cta("ld.acquire.gpu.global.b32 %r1, [%a0];")
    assert inter_cta("red.release.gpu.global.add.u32 [%a0], 1;") and inter_cta("ld.volatile.b32 %r1, [%a0];")
    assert not inter_cta(
        "ld.global.b32 %r1, [%a0]; mov.u32 %r2, smem; atom.shared.add.u32 %r1, [%r2], 1; "
        "ld.volatile.shared.b32 %r1, [%r2];"
    )
    assert awaits("ld.acquire.gpu.global.b32 %r1, [%a0];") and awaits("ld.volatile.b32 %r1, [%a0];")
    assert awaits("atom.global.add.u32 %r1, [%a0], 1; st.global.b32 [%a0+4], %r1;")
    assert not awaits("atom.global.add.u32 %r1, [%a0], 1;") and not awaits("red.global.add.u32 [%a0], 1;")
    assert not awaits("atom.global.add.u32 _, [%a0], 1;")
