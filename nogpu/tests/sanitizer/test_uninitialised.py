"""Uninitialised data, on small kernels: reported at uses that matter, under every schedule, and twins that write it."""

import warnings

import numpy as np
import pytest

from nogpu import EmulatorError, errors
from nogpu.hardware.memory import UNWRITTEN
from nogpu.sanitizer.observer import Sanitizer
from tests.support import emulated
from tests.support.encoding import f16_idesc, smem_descriptor
from tests.support.small_kernels import aligned, launch, module

BEGIN = """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 3072; setp.eq.u32 %p1, %tid, 0; setp.lt.u32 %p2, %tid, 32; mov.u32 %r0, 0;
    mad.lo.u32 %r2, %tid, 4, %r10; mul.wide.u32 %rd1, %tid, 4; add.s64 %rd1, %a0, %rd1;
"""
STORE, LOAD, OUT = "st.shared.b32 [%r2], %tid;", "ld.shared.b32 %r5, [%r2];", "st.global.b32 [%rd1], %r5;"
ABOVE = LOAD + "setp.gt.u32 %p4, %r5, 7;"
INIT = "@%p1 mbarrier.init.shared.b64 [%r11], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;"
WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 %p9, [%r11], 0; @!%p9 bra WAIT;"
BULK = """
    fence.proxy.async.shared::cta; bar.sync 0; @%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r10], 128;
    @%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;
"""
MASKED = BULK.replace("bulk_group [%a0], [%r10], 128;", "bulk_group.cp_mask [%a0], [%r10], 128, %h1;")
ALLOC = """@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r11+16], 64; bar.sync 0;
    ld.shared.b32 %r12, [%r11+16];"""
FREE = "bar.sync 0; @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r12, 64;"
TMEM_LOAD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 %r5, [%r12]; tcgen05.wait::ld.sync.aligned;"
TMEM_STORE = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12], {}; tcgen05.wait::st.sync.aligned;"

# Each thread writes a row of 32 bytes, except for the part that the hole leaves out.
ROWS = """
    mad.lo.u32 %r3, %tid, 32, %r10; <> st.shared.v4.b32 [%r3], {%r0, %r0, %r0, %r0};
    st.shared.v4.b32 [%r3+16], {%r0, %r0, %r0, %r0};
LEFT_OUT: fence.proxy.async.shared::cta; bar.sync 0;
"""
TENSOR = (
    f"{INIT} {ALLOC} {ROWS} {{operation}} @%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"
    f"[%r11]; {WAIT} tcgen05.fence::after_thread_sync; @!%p2 bra END; {TMEM_LOAD} {{use}} END: {FREE}"
)
# Rows of 16 bytes in A, which is B, too; 64 x 16 elements of D.
MMA = f"""mov.b64 %rd5, {smem_descriptor(0x400, 256, leading=128)}; mov.b32 %r15, {f16_idesc(64, 16)};
    @%p1 tcgen05.mma.cta_group::1.kind::f16 [%r12], %rd5, %rd5, %r15, %p8;"""
PRODUCT = TENSOR.replace("{operation}", "setp.ne.u32 %p8, %r0, 0;" + MMA)
COPIED = TENSOR.replace(
    "{operation}",
    f"mov.b64 %rd5, {smem_descriptor(0x400, 128, leading=128)};"
    "@%p1 tcgen05.cp.cta_group::1.32x128b.warpx4 [%r12], %rd5;",
)
LANES = "setp.lt.u32 %p5, %tid, 16; @%p5 " + OUT
# Row 3 of A, that is bytes 0x430 to 0x43f and 0x4b0 to 0x4bf, column 3 of B.
ROW_3 = "setp.eq.u32 %p6, %tid, 1; @%p6 bra LEFT_OUT;"

MATRIX = """
    @!%p2 bra END; mad.lo.u32 %r3, %tid, 16, %r10; setp.gt.u32 %p5, %tid, 7; @%p5 bra STORED;
    setp.eq.u32 %p6, %tid, 0; @%p6 bra STORED; st.shared.v4.b32 [%r3], {%r0, %r0, %r0, %r0};
STORED: bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r3]; setp.gt.u32 %p7, %tid, 3; USE <> END:
"""
PRODUCTS = """mov.u32 %r20, 0; mov.f32 %r22, 0f00000000; mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32
    {%r23, %r24, %r25, %r26}, {%r5, %r20}, {%r20}, {%r22, %r22, %r22, %r22};"""
STORED_MATRIX = """add.u32 %r3, %r3, 512; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%r5}; bar.warp.sync -1;
    ld.shared.b32 %r5, [%r2+512];"""

VALUE, ADDRESS, CONTROL = "the value that it stores", "the address in", "what decides where control goes"


def case(body, wrong="", legal=STORE, words=VALUE):
    """A row: body with a hole <>, what leaves bytes in it unwritten, what writes them, words of the report."""
    return body, wrong, legal, words


CASES = {
    "shared memory": case("<>" + LOAD + OUT),
    "three bytes of a word": case("<>" + LOAD + OUT, wrong="st.shared.b8 [%r2], %tid;"),
    "bytes that other threads have written": case(
        "@%p2 " + STORE + "bar.sync 0; <> ld.shared.b32 %r5, [%r3];" + OUT,
        wrong="mov.u32 %r3, %r2;",
        legal="and.b32 %r3, %tid, 31; mad.lo.u32 %r3, %r3, 4, %r10;",
    ),
    "the part of a vector that is used": case(
        "and.b32 %r3, %tid, 62; mad.lo.u32 %r3, %r3, 4, %r10; st.shared.b32 [%r3], %r0; bar.sync 0;"
        "ld.shared.v2.b32 {%r4, %r5}, [%r3]; <>",
        wrong=OUT,
        legal=OUT.replace("%r5", "%r4"),
    ),
    "the part of a word that is used": case(
        "st.shared.b8 [%r2], %tid;" + LOAD + "<>" + OUT, legal="and.b32 %r5, %r5, 255;"
    ),
    "multiplied by zero": case(LOAD + "mul.lo.u32 %r5, %r5, <>;" + OUT, wrong="2", legal="%r0"),
    "an address": case(
        f"<> {LOAD} and.b32 %r6, %r5, 60; cvt.u64.u32 %rd2, %r6; add.s64 %rd2, %rd2, %a0; ld.global.b32 %r7, [%rd2];",
        words=ADDRESS,
    ),
    "the address of a store": case(
        "<>" + LOAD + "and.b32 %r6, %r5, 124; add.u32 %r6, %r6, %r10; st.shared.b32 [%r6+1024], %r0;", words=ADDRESS
    ),
    "a branch": case("<>" + ABOVE + "@%p4 bra X; X:", words=CONTROL),
    "an exit": case("<>" + ABOVE + "@%p4 exit;", words=CONTROL),
    "a predicate": case("<>" + ABOVE + "@%p4 st.global.b32 [%rd1], %r0;", words="the predicate %p4"),
    "a predicate of a sum": case("<>" + ABOVE + "mov.u32 %r5, 1; @%p4 add.u32 %r5, %r5, 1;" + OUT),
    "a predicate of a sum, by which poison skips it": case(
        "<>" + LOAD + "setp.lt.u32 %p4, %r5, 7; mov.u32 %r5, 1; @%p4 add.u32 %r5, %r5, 1;" + OUT
    ),
    "a predicate that a known one decides": case(
        ABOVE + "<> and.pred %p4, %p4, %p5; @%p4 bra X; X:",
        wrong="setp.eq.u32 %p5, %r0, 0;",
        legal="setp.ne.u32 %p5, %r0, 0;",
        words=CONTROL,
    ),
    "a register": case("<> add.u32 %r5, %r40, 1;" + OUT, legal="mov.u32 %r40, 2;"),
    "a register that some lanes write": case(
        "<> mov.u32 %r40, 2; @%p1 bra X; mov.u32 %r40, 3; X: mov.u32 %r5, %r40;" + OUT, wrong="@!%p1 bra X;", legal=""
    ),
    "an atomic's operand": case("<>" + LOAD + "red.global.add.u32 [%a0], %r5;", words="an operand, %r5"),
    "an atomic in shared memory": case("<> bar.sync 0; atom.shared.add.u32 %r5, [%r2], 1; bar.sync 0;" + LOAD + OUT),
    "an atomic that exchanges": case("atom.shared.exch.b32 %r5, [%r2], %tid; <>" + OUT, legal=LOAD),
    "what a barrier waits for": case(
        "<>" + LOAD + "shr.u32 %r5, %r5, 31; add.u32 %r5, %r5, 64; barrier.sync 1, %r5;", words="an operand"
    ),
    "through shared memory": case("<>" + LOAD + "st.shared.b32 [%r2+1024], %r5; ld.shared.b32 %r5, [%r2+1024];" + OUT),
    "what another lane has": case(
        f"@!%p2 bra END; setp.lt.u32 %p4, %tid, 16; @%p4 {STORE} {LOAD} shfl.sync.bfly.b32 %r5, %r5, <>, 31, -1;"
        f"@%p4 {OUT} END:",
        wrong="16",
        legal="8",
    ),
    "a bulk store": case("@%p2 <>" + BULK, wrong="st.shared.b8 [%r2], %tid;", words="a byte that it stores"),
    "bytes that a bulk store leaves out": case(
        "mov.b16 %h1, <>; @%p2 st.shared.b16 [%r2], %h1;" + MASKED,
        wrong="0xffff",
        legal="0x3333",
        words="a byte that it stores",
    ),
    "cp.async fills up with zeros": case(
        "cp.async.ca.shared.global [%r2<>], [%rd1], 4, 2; cp.async.wait_all;" + LOAD + OUT, wrong="+1024", legal=""
    ),
    "tensor memory": case(
        ALLOC + "@!%p2 bra END; <>" + TMEM_LOAD + OUT + "END:" + FREE, legal=TMEM_STORE.format("%tid")
    ),
    "a register in tensor memory": case(
        ALLOC + "@!%p2 bra END; <>" + LOAD + TMEM_STORE.format("%r5") + TMEM_LOAD + OUT + "END:" + FREE
    ),
    "an operand of the tensor core": case(PRODUCT.replace("{use}", LANES), wrong=ROW_3, legal=""),
    "a row of D that is not stored": case(
        PRODUCT.replace("{use}", "<>").replace("<>", "setp.eq.u32 %p6, %tid, 2; @%p6 bra LEFT_OUT;", 1),
        wrong=LANES,
        legal="setp.eq.u32 %p5, %tid, 0; @%p5 " + OUT,
    ),
    "what an MMA adds to": case(
        PRODUCT.replace("<>", "").replace("%p8, %r0, 0;", "%p8, %r0, <>;").replace("{use}", LANES), wrong="1", legal="0"
    ),
    "tcgen05.cp": case(COPIED.replace("{use}", OUT), wrong=ROW_3, legal=""),
    **{
        f"a row of {name}": case(MATRIX.replace("USE", use), out, "@%p7 " + out, VALUE)
        for name, use, out in (
            ("ldmatrix", "", OUT),
            ("stmatrix", STORED_MATRIX, OUT),
            ("mma.sync", PRODUCTS, OUT.replace("%r5", "%r23")),
        )
    },
}


def run(body, schedule="late", fill=0, allowed=()):
    data = aligned(np.full(256, fill, np.uint32))
    launch(BEGIN + body, data, schedule=schedule, sanitizer=Sanitizer(allowed), threads=64)
    return data


@pytest.mark.parametrize("name", CASES)
def test_what_nobody_has_written_is_reported_where_it_counts(monkeypatch, name, schedule):
    """The report names the origin and the first reader. A twin that writes the bytes is silent."""
    body, wrong, legal, words = CASES[name]
    with pytest.raises(EmulatorError, match=f"rule uninitialised: nobody has written\n    {words}") as error:
        run(body.replace("<>", wrong), schedule)
    assert "It comes from " in error.value.reason and "(PTX ISA, " in error.value.reason
    assert ("read by" in error.value.reason) != ("It comes from register" in error.value.reason)
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    run(body.replace("<>", legal), schedule)


def test_the_rule_can_be_waived():
    run(LOAD + OUT, allowed=["uninitialised"])


READ = "ld.global.b32 %r5, [%rd1];"
OF_GLOBAL = {
    "a branch": (READ + "setp.gt.u32 %p4, %r5, 7; @%p4 bra X; X:", CONTROL),
    "an address": (
        "ld.global.v2.b32 {%r4, %r5}, [%a0]; and.b32 %r6, %r5, 60; add.u32 %r6, %r6, %r10; ld.shared.b32 %r7, [%r6];",
        ADDRESS,
    ),
    "half a word": ("ld.global.u16 %r5, [%rd1+2]; setp.gt.u32 %p4, %r5, 7; @%p4 bra X; X:", CONTROL),
    "a byte": ("ld.global.u8 %r5, [%a0+5]; setp.gt.u32 %p4, %r5, 7; @%p4 bra X; X:", CONTROL),
    "an acquired word": (
        "ld.acquire.gpu.global.b32 %r5, [%a0]; setp.gt.u32 %p4, %r5, 7; @%p4 bra X; X:",
        CONTROL,
    ),
    "a counter that nobody has cleared": ("atom.global.add.u32 %r5, [%a0], 1;", "the word that it changes"),
    "a bulk copy": (
        f"{INIT} @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128; @%p1 cp.async.bulk.shared::cta.global"
        f".mbarrier::complete_tx::bytes [%r10], [%a0], 128, [%r11]; @!%p2 bra END; {WAIT} {ABOVE} @%p4 bra END; END:",
        CONTROL,
    ),
    "cp.async": ("cp.async.ca.shared.global [%r2], [%rd1], 4; cp.async.wait_all;" + ABOVE + "@%p4 bra X; X:", CONTROL),
}


@pytest.mark.parametrize("name", OF_GLOBAL)
def test_global_memory(name, schedule):
    """Words that were allocated and never written are reported; others are silent."""
    body, words = OF_GLOBAL[name]
    with pytest.raises(EmulatorError, match=f"nobody has written\n    {words}(?s:.)*It comes from global memory"):
        run(body, schedule, UNWRITTEN)
    run(body, schedule, 0)


def test_copies_of_global_memory_are_silent(monkeypatch):
    """A partly filled buffer may be copied, and its copy is partly filled, too; results made of it are doubts."""
    monkeypatch.setattr(errors, "_reported", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copied = run("ld.global.b32 %r5, [%rd1]; st.global.b32 [%rd1+512], %r5;", fill=UNWRITTEN)
        assert (copied == UNWRITTEN).all()
        body = "ld.global.b32 %r5, [%rd1];" + "st.shared.b32 [%r2], %r5; {}" + BULK.replace("[%a0]", "[%a0+512]")
        run(body.format(""), fill=UNWRITTEN)
    with pytest.warns(errors.OrderingWarning, match="rule uninitialised(?s:.)*It comes from global memory"):
        run(READ + "add.u32 %r5, %r5, 1;" + OUT, fill=UNWRITTEN)
    monkeypatch.setattr(errors, "_reported", set())
    with pytest.warns(errors.OrderingWarning, match="a byte that it stores"):
        run(body.format("add.u32 %r5, %r5, 1; st.shared.b32 [%r2], %r5;"), fill=UNWRITTEN)


PROGRAM = """
import torch, nogpu
kernel = nogpu.load_ptx({ptx!r})["k"]
x = torch.{make}(64, dtype=torch.int32, device="cuda")
{fill}
kernel.launch(1, 64, [x.data_ptr()], shared=4096)
"""


@pytest.mark.parametrize(
    ("make", "fill", "fails"),
    [
        ("empty", "", True),
        pytest.param("empty", "x.copy_(torch.arange(64))", False, marks=pytest.mark.slow),
        pytest.param("zeros", "", False, marks=pytest.mark.slow),
    ],
)
def test_tensors_that_nobody_has_filled(make, fill, fails):
    """torch's operations and copies write; torch.empty does not."""
    ptx = module(BEGIN + READ + "setp.gt.u32 %p4, %r5, 7; @%p4 bra X; X:")
    found = emulated.run("-c", PROGRAM.format(ptx=ptx, make=make, fill=fill), options=["check"])
    assert (found.returncode != 0) == fails, found.stderr
    assert ("rule uninitialised" in found.stderr) == fails
