"""Work that compiled code does alone: accesses to a cluster's shared memory, marked stores, matrices, cp.async, and
reads of the clock.
"""

import gc

import numpy as np
import pytest

from nogpu.bootstrap.sitecustomize import uncollected
from nogpu.errors import EmulatorError
from nogpu.hardware.store_marks import STORES
from nogpu.ops import cp_async
from tests.support.small_kernels import aligned, launch, store

MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
LOOP = "mov.u32 %r20, 0; AGAIN: {body} add.u32 %r20, %r20, 1; setp.lt.u32 %p9, %r20, {n}; @%p9 bra AGAIN;"
PEER = (
    "mov.u32 %r10, smem; xor.b32 %r11, %rank, 1; mapa.shared::cluster.u32 %r12, %r10, %r11;"
    "mad.lo.u32 %r13, %tid, 16, %r12; mad.lo.u32 %r14, %tid, 16, %r10; mov.u32 %r1, 0;" + MEET
)
COPY = """
    setp.ne.u32 %p1, %tid, 0; @%p1 bra DONE; cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r10], {nbytes};
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
DONE:
"""
REFUSED = "reads shared offset 0x400 through the async proxy, which warp 0 of .* has stored"


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
@pytest.mark.parametrize(
    "body",
    [
        "st.shared::cluster.b32 [%r13], %r20;",
        "st.shared::cluster.v4.b32 [%r13], {%r20, %r20, %r20, %r20};",
        "st.shared::cluster.b32 [%r12+512], %r20;",
        "ld.shared::cluster.b32 %r2, [%r13]; add.u32 %r1, %r1, %r2;",
        "ld.shared::cluster.v2.b32 {%r2, %r3}, [%r12+512]; add.u32 %r1, %r1, %r2;",
        "st.shared.b32 [%r14], %r20; ld.shared.b32 %r2, [%r14];",
    ],
)
def test_accesses_within_a_cluster(body, schedule, rows):
    launch(PEER + LOOP.format(body=body, n=50) + MEET, grid=2, cluster=2, schedule=schedule)
    assert not [opcode for opcode in rows if opcode.startswith(("ld.shared", "st.shared"))]


@pytest.mark.parametrize("kernels", [True, False])
def test_what_the_other_cta_has_stored(kernels):
    """A lane gets the words of the lane that stores to it; inactive lanes store nothing."""
    body = PEER + "setp.ge.u32 %p2, %tid, 8; mad.lo.u32 %r15, %rank, 100, %tid; add.u32 %r16, %r15, 1000;"
    body += "st.shared.v2.b32 [%r14], {%r20, %r20};".replace("%r20", "%tid") + MEET
    body += "@!%p2 st.shared::cluster.v2.b32 [%r13], {%r15, %r16};" + MEET
    body += "ld.shared.b32 %r1, [%r14+4]; ld.shared::cluster.b32 %r2, [%r13]; mad.lo.u32 %r3, %rank, 64, %tid;"
    body += "mul.wide.u32 %rd1, %r3, 4; add.s64 %rd1, %a0, %rd1; st.global.b32 [%rd1], %r1;"
    body += "st.global.b32 [%rd1+128], %r2;" + MEET
    out = np.zeros(128, np.uint32)
    launch(body, out, grid=2, cluster=2, kernels=kernels)
    lane = np.arange(32)
    for rank in range(2):
        found = out[64 * rank : 64 * rank + 64]
        assert found[:32].tolist() == np.where(lane < 8, 100 * (1 - rank) + lane + 1000, lane).tolist()
        assert found[32:].tolist() == np.where(lane < 8, 100 * rank + lane, lane).tolist()


@pytest.mark.parametrize(
    "access, reason",
    [
        ("st.shared::cluster.b32 [%r13+2], %r1;", "misaligned"),
        ("st.shared::cluster.b32 [%r13+4000], %r1;", "the launch's shared memory is"),
        ("st.shared::cluster.b32 [%r13+33554432], %r1;", "cluster of 2"),
        ("ld.shared::cluster.b32 %r2, [%r13+33554432];", "cluster of 2"),
        ("st.shared.b32 [%r13], %r1;", "names CTA rank . in|names CTA rank ., not"),
        ("st.shared::cluster.b32 [%r12+2048], %r1;", "mbarrier"),
    ],
)
@pytest.mark.parametrize("kernels", [True, False])
def test_accesses_that_are_refused(access, reason, kernels):
    init = "setp.ne.u32 %p1, %tid, 0; mov.u32 %r10, smem; @%p1 bra SET; mbarrier.init.shared.b64 [%r10+2048], 1;"
    with pytest.raises(EmulatorError, match=reason):
        launch(init + "SET:" + PEER + access + MEET, grid=2, cluster=2, kernels=kernels)


def test_a_peer_that_has_exited():
    body = PEER + "setp.eq.u32 %p1, %rank, 0; @%p1 bra END; " + LOOP.format(body="bar.sync 0;", n=2000)
    with pytest.raises(EmulatorError, match="exited"):
        launch(body + "st.shared::cluster.b32 [%r13], %r1; END:", grid=2, cluster=2)


# Stores that the async proxy reads

MARKED = "mov.u32 %r10, smem; mad.lo.u32 %r14, %tid, 4, %r10;"


def test_the_first_of_marked_stores_is_pythons(rows):
    stores = "st.shared.b32 [%r14], 0; st.shared.b32 [%r14+128], %tid; st.shared.b32 [%r14], %r20;"
    out = aligned(32)
    body = MARKED + LOOP.format(body=stores, n=50) + "{fence}" + COPY.format(nbytes=128)
    launch(body.format(fence="fence.proxy.async;"), out)
    assert rows.count("st.shared.b32") == 1 and set(out.tolist()) == {49}
    with pytest.raises(EmulatorError, match=REFUSED) as error:
        launch(body.format(fence=""), out)
    assert error.value.ptx_text.startswith("cp.async.bulk.global")
    with pytest.raises(EmulatorError, match="reads shared offset 0x480"):
        launch(body.replace("[%r10]", "[%r10+128]").format(fence=""), out)


@pytest.mark.parametrize("first, place", [("", "%r10"), ("", "%r10+128"), ("@%p3", "%r10+128")])
def test_stores_behind_a_fence_are_marked_anew(first, place):
    """Python does the first store, which may be in the first round only, compiled code the second."""
    stores = f"setp.eq.u32 %p3, %r20, 0; {first} st.shared.b32 [%r14], 1; st.shared.b32 [%r14+128], 2;"
    body = MARKED + LOOP.format(body="{}" + stores + "{}", n=5)
    copy = COPY.replace("%r10", place).format(nbytes=128)
    with pytest.raises(EmulatorError, match="reads shared offset 0x4[08]0 through the async proxy"):
        launch(body.format("fence.proxy.async;", "") + copy, aligned(32))
    launch(body.format("", "fence.proxy.async;") + copy, aligned(32))


def test_marks_of_later_stores_are_seen():
    """The last of one instruction's twelve stores goes to 128 bytes from 1664 on, behind 256 untouched ones."""
    later = "add.u32 %r14, %r14, 128; setp.eq.u32 %p3, %r20, 10; @%p3 add.u32 %r14, %r14, 256;"
    stored = f"st.shared.b32 [%r14], %r20; {later}"
    body = MARKED + LOOP.format(body=stored, n=12)
    copy = COPY.format(nbytes=128)
    for offset in (1152, 1664):
        with pytest.raises(EmulatorError, match=REFUSED):
            launch(body + copy.replace("[%r10]", f"[%r10+{offset}]"), aligned(32))
        launch(body + "fence.proxy.async;" + copy.replace("[%r10]", f"[%r10+{offset}]"), aligned(32))
    launch(body + copy.replace("[%r10]", "[%r10+1536]"), aligned(32))


@pytest.mark.parametrize("others", [0, STORES])
def test_a_fence_that_is_older_than_the_last_store(others):
    """Warp 1 has met warp 0 behind the first store, and fences after the second, which it has not acquired. Compiled
    code may have forgotten that one for other instructions.
    """
    store_and_meet = "st.shared.b32 [%r14], %r20; add.u32 %r14, %r14, 128; @%p5 bra NEXT; bar.sync 1, 64; NEXT:"
    body = MARKED + "setp.gt.u32 %p4, %tid, 31; @%p4 bra OTHER; setp.ne.u32 %p5, %tid, %tid;"
    body += LOOP.format(body=f"{store_and_meet} setp.eq.u32 %p5, %r20, %r20;", n=2)
    body += others * "st.shared.b32 [%r14+1024], 0;"
    body += "mov.u32 %r1, 1; st.volatile.global.b32 [%a1], %r1; bar.sync 2, 64;"
    body += COPY.replace("DONE:", "").format(nbytes=256) + "bra DONE; OTHER: bar.sync 1, 64;"
    body += "W: ld.volatile.global.b32 %r2, [%a1]; setp.eq.u32 %p6, %r2, 0; @%p6 bra W; {fence} bar.sync 2, 64; DONE:"
    for fence in ("", "fence.proxy.async;"):
        with pytest.raises(EmulatorError, match=REFUSED):
            launch(body.format(fence=fence), aligned(64), np.zeros(4, np.uint32), threads=64)


@pytest.mark.parametrize("fence", ["", "fence.proxy.async;"])
def test_a_store_that_compiled_code_numbers_again(fence):
    """Warp 1's stores take the place of warp 0's store, and its fence frees that: compiled code numbers warp 0's store
    once more, and warp 0's fence ends both marks.
    """
    poll = "W{n}: ld.volatile.global.b32 %r2, [%a1]; setp.ne.u32 %p6, %r2, {n}; @%p6 bra W{n};"
    tell = "mov.u32 %r1, {n}; st.volatile.global.b32 [%a1], %r1;"
    between = tell.format(n=1) + poll.format(n=2)
    body = MARKED + "setp.gt.u32 %p4, %tid, 31; @%p4 bra OTHER;"
    body += LOOP.format(
        body=f"st.shared.b32 [%r14], %tid; setp.ne.u32 %p5, %r20, 0; @%p5 bra NEXT; {between} NEXT:", n=2
    )
    body += fence + COPY.replace("DONE:", "").format(nbytes=128) + "bra DONE; OTHER:" + poll.format(n=1)
    body += STORES * "st.shared.b32 [%r14+1024], 0;" + "fence.proxy.async;" + tell.format(n=2) + "DONE:"
    out = aligned(32)
    if fence:
        launch(body, out, np.zeros(4, np.uint32), threads=64)
        assert out.tolist() == list(range(32))
    else:
        with pytest.raises(EmulatorError, match=REFUSED):
            launch(body, out, np.zeros(4, np.uint32), threads=64)


def test_lanes_that_do_not_store_mark_nothing():
    """Lane 0 stores to the first 16 bytes, the others' addresses are of the 128 bytes that are copied."""
    body = MARKED + "setp.eq.u32 %p2, %tid, 0; add.u32 %r14, %r14, 124; @%p2 mov.u32 %r14, %r10;"
    body += LOOP.format(body="@%p2 st.shared.b32 [%r14], %r20;", n=9)
    launch(body + COPY.replace("[%r10]", "[%r10+128]").format(nbytes=128), aligned(32))
    with pytest.raises(EmulatorError, match=REFUSED):
        launch(body + COPY.format(nbytes=128), aligned(32))


@pytest.mark.parametrize("fence", ["", "fence.proxy.async;"])
def test_more_instructions_than_compiled_code_knows(fence):
    stores = "".join(f"st.shared.b32 [%r14], {i};" for i in range(STORES + 40))
    out = aligned(32)
    body = MARKED + LOOP.format(body=stores, n=2) + fence + COPY.format(nbytes=128)
    if fence:
        launch(body, out)
        assert set(out.tolist()) == {STORES + 39}
        return
    with pytest.raises(EmulatorError, match=REFUSED):
        launch(body, out)


# The clock

CLOCKS = {"%clock64": 64, "%globaltimer": 64, "%clock": 32, "%globaltimer_lo": 32}


@pytest.mark.parametrize("name", CLOCKS)
def test_a_clock_grows_with_each_read(name, rows):
    width, found = CLOCKS[name], []
    first, now = ("%rd2", "%rd3") if width == 64 else ("%r2", "%r3")
    read = f"mov.u{width} {now}, {name}; sub.u{width} {first}, {now}, {first};"
    narrow = f"cvt.u32.u{width} %r4, {first};" if width == 64 else f"mov.u32 %r4, {first};"
    grown = f"{read} {narrow} min.u32 %r5, %r5, %r4; mov.u{width} {first}, {now};"
    body = f"mov.u32 %r5, 99; mov.u{width} {first}, {name};" + LOOP.format(body=grown, n=100) + store("%r5")
    for schedule in ("late", "random:1"):
        out, before = np.zeros(32, np.uint32), len(rows)
        launch(body, out, schedule=schedule)
        found.append((set(out.tolist()), rows[before:].count(f"mov.u{width}") > 100))
    assert found == [({1}, False), ({1}, True)]


def test_the_upper_half_of_a_clock():
    """The deadline is 2^33 cycles: time goes forward by itself while all wait for it."""
    body = """
    W:  mov.u64 %rd2, %clock64; setp.lt.u64 %p1, %rd2, 8589934592; @%p1 bra W;
        mov.u32 %r1, %clock_hi; mov.u32 %r2, %globaltimer_hi; mad.lo.u32 %r1, %r2, 16, %r1;
    """
    out = np.zeros(32, np.uint32)
    launch(body + store("%r1"), out)
    assert out[0] % 16 >= 2 and set(out.tolist()) == {17 * (out[0] % 16)}


def test_lanes_that_do_not_read_a_clock_keep_their_value():
    body = "mov.u32 %r1, 7; setp.lt.u32 %p1, %tid, 3; @%p1 mov.u32 %r1, %clock; setp.gt.u32 %p2, %r1, 7;"
    out = np.zeros(32, np.uint32)
    launch("mov.u32 %r2, %clock;" * 9 + body + "@%p2 mov.u32 %r1, 8;" + store("%r1"), out)
    assert out.tolist() == [8] * 3 + [7] * 29


# The start of a process


def test_imports_that_are_not_searched_for_garbage():
    frozen = gc.get_freeze_count()
    try:
        with pytest.raises(ImportError), uncollected():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() and gc.get_freeze_count() > frozen
        gc.unfreeze()
        gc.disable()
        with uncollected():
            pass
        assert not gc.isenabled() and gc.get_freeze_count() == 0
    finally:
        gc.unfreeze()
        gc.enable()


# Matrices and cp.async

ROWS = """
    mov.u32 %r10, smem; mad.lo.u32 %r14, %tid, 16, %r10;
    mad.wide.u32 %rd2, %tid, 16, %a1; mad.wide.u32 %rd1, %tid, 16, %a0;
"""
MATRICES = """
    ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd2]; st.shared.v4.b32 [%r14], {%r1, %r2, %r3, %r4}; bar.warp.sync -1;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, _}, [%r14];
    ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r4}, [%r14+128]; bar.warp.sync -1;
    st.shared.b32 [%r14], 0; stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r14], {%r1, %r4};
    stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r14+256], {%r2, %r3}; bar.warp.sync -1;
    ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r14]; st.global.v4.b32 [%rd1], {%r1, %r2, %r3, %r4};
"""


def test_matrices(rows):
    """Python's rows have the same results."""
    data, found = aligned(np.random.default_rng(7).integers(0, 1 << 31, 128, np.uint32)), []
    for kernels in (True, False):
        rows.clear()
        found.append(aligned(128))
        launch(ROWS + MATRICES, found[-1], data, kernels=kernels)
        used = [opcode.partition(".")[0] for opcode in rows if "matrix" in opcode]
        assert used == ([] if kernels else ["ldmatrix"] * 2 + ["stmatrix"] * 2)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("address", ["%r14+8", "%r14+4096", "%r14+-1024"])
@pytest.mark.parametrize(
    "form",
    [
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [X]",
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [X], {%r1, %r2, %r3, %r4}",
    ],
)
def test_matrices_that_are_refused(form, address):
    texts = []
    for kernels in (True, False):
        with pytest.raises(EmulatorError, match=r"misaligned|shared memory is") as error:
            launch(
                ROWS + "mov.u32 %r1, 0;" + form.replace("X", address) + ";", aligned(128), aligned(128), kernels=kernels
            )
        texts.append(error.value.reason)
    assert texts[0] == texts[1]


@pytest.fixture
def in_python(monkeypatch):
    """The checks and copies of cp.async that Python has made."""
    calls = []
    for owner, name in ((cp_async, "_check"), (cp_async.Copies, "_copy_observed")):
        original = getattr(owner, name)

        def noted(*arguments, name=name, original=original):
            calls.append(name)
            return original(*arguments)

        monkeypatch.setattr(owner, name, noted)
    return calls


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1", "random:2"])
@pytest.mark.parametrize("size", ["", ", %r17", ", 5"])
def test_cp_async(size, schedule, in_python):
    """Half of the lanes copy, with their own sizes or the same, and zeros behind."""
    data, found = aligned(np.random.default_rng(8).integers(0, 1 << 31, 128, np.uint32)), []
    copy = f"@%p1 cp.async.cg.shared.global [%r14], [%rd2], 16{size}; cp.async.wait_all;"
    body = (
        ROWS
        + "setp.lt.u32 %p1, %tid, 16; rem.u32 %r17, %tid, 17;"
        + 2 * copy
        + "ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r14];"
    )
    for kernels in (True, False):
        in_python.clear()
        found.append(aligned(128))
        launch(
            body + "st.global.v4.b32 [%rd1], {%r1, %r2, %r3, %r4};", found[-1], data, kernels=kernels, schedule=schedule
        )
        assert set(in_python) == (set() if kernels else {"_check"})
    np.testing.assert_array_equal(*found)
    assert found[0][64:].tolist() == 64 * [0xFFFFFFFF]


@pytest.mark.parametrize(
    "body,text",
    [
        ("[%r14+8], [%rd2], 16", "destination 0x408 is misaligned"),
        ("[%r14+4096], [%rd2], 16", "the launch's shared memory is"),
        ("[%r14+-1024], [%rd2], 16", "the launch's shared memory is"),
        ("[%r14], [%rd2+8], 16", "source 0x.* is misaligned"),
        ("[%r14], [%rd2], 16, 17", "src-size 17 is larger than cp-size 16"),
        ("[%r14], [%rd2+512], 16", "outside every live allocation"),
        ("[%r14], [%rd2], 16, 3; mbarrier.init.shared.b64 [%r10+496], 1", "mbarrier"),
    ],
)
@pytest.mark.parametrize("kernels", [True, False])
def test_cp_async_that_is_refused(body, text, kernels):
    for before in ("", "setp.lt.u32 %p1, %tid, 32; @!%p1 bra DONE;"):
        with pytest.raises(EmulatorError, match=text) as error:
            launch(
                f"{ROWS} {before} cp.async.cg.shared.global {body}; cp.async.wait_all; DONE:",
                aligned(128),
                aligned(128),
                kernels=kernels,
            )
        assert error.value.ptx_text.startswith(
            "cp.async.cg" if "allocation" not in text and text != "mbarrier" else "cp.async"
        )


@pytest.mark.parametrize("kernels", [True, False])
def test_the_async_proxy_and_cp_async(kernels):
    """Copies are marked as the stores of their threads: of the instruction that comes first, and of later ones."""
    copies = "".join(f"cp.async.cg.shared.global [%r14+{offset}], [%rd2], 16;" for offset in (0, 512))
    copies += "cp.async.wait_all;"
    for offset in (0, 512):
        body = (
            ROWS + LOOP.format(body=copies, n=3) + "{}" + COPY.format(nbytes=128).replace("[%r10]", f"[%r10+{offset}]")
        )
        launch(body.format("fence.proxy.async;"), aligned(128), aligned(128), kernels=kernels)
        with pytest.raises(EmulatorError, match=rf"reads shared offset {1024 + offset:#x} through the async proxy"):
            launch(body.format(""), aligned(128), aligned(128), kernels=kernels)


# Atomics and fences


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
@pytest.mark.parametrize("memory", ["global.cas.b32 %r2, [%a0], 7, 1", "shared.max.u32 %r2, [%r10], 0"])
def test_atomics_that_change_nothing(memory, schedule, rows):
    out = np.zeros(32, np.uint32)
    body = "mov.u32 %r10, smem; mov.u32 %r1, 3; st.shared.b32 [%r10], 3;" + f"atom.{memory};" * 5
    launch(body + store("%r2"), out, schedule=schedule)
    assert not [opcode for opcode in rows if opcode.startswith("atom")] and np.unique(out).tolist() in ([0], [3])


@pytest.mark.parametrize("operation", ["add.f64", "add.noftz.f16", "add.noftz.bf16", "add.noftz.f16x2", "add.f32"])
def test_sums_of_floating_point(operation, rows):
    """Lanes that share a word add one after the other. Python's rows have the same results."""
    width = {"f64": 64, "f16": 16, "bf16": 16}.get(operation.rpartition(".")[2], 32)
    found = []
    for kernels in (True, False):
        rng = np.random.default_rng(1)
        words, values = (rng.standard_normal(64).astype(np.float64 if width == 64 else np.float16) for _ in range(2))
        before = words.tobytes()
        body = f".reg .b{width} %x, %y; and.b32 %r1, %tid, 3; mad.wide.u32 %rd1, %r1, 8, %a1;"
        body += f"mad.wide.u32 %rd2, %tid, 8, %a2; ld.global.b{width} %x, [%rd2];"
        body += f"atom.global.{operation} %y, [%rd1], %x; red.global.{operation} [%rd1], %y; mov.u32 %r1, 0;"
        launch(body + store("%r1"), np.zeros(32, np.uint32), words, np.resize(values, 256), kernels=kernels)
        found.append(words.tobytes())
        assert any(opcode.startswith(("atom", "red")) for opcode in rows) != kernels
    assert found[0] == found[1] != before


FENCES = ["membar.gl", "membar.cta", "membar.sys", "fence.acq_rel.gpu", "fence.sc.cta"]


@pytest.mark.parametrize("cluster", [1, 2])
def test_fences(cluster, rows):
    launch("".join(f"{fence};" for fence in FENCES), grid=2, cluster=cluster)
    assert not rows


@pytest.mark.parametrize("fence", ["", *FENCES])
def test_a_fence_that_makes_an_mbarrier_visible(fence, rows):
    """One of more than the CTA makes the other CTA's arrival legal."""
    body = "mov.u32 %r10, smem; mapa.shared::cluster.u32 %r12, %r10, 1; setp.ne.u32 %p1, %tid, 0; @%p1 bra OUT;"
    body += f"mbarrier.init.shared.b64 [%r10], 1; {fence}; {fence}; OUT:".replace(" ;", "")
    meet = MEET.replace("arrive", "arrive.relaxed")
    body += meet + "@%p1 bra DONE; mbarrier.arrive.shared::cluster.b64 _, [%r12]; DONE:" + meet
    is_wide = fence and not fence.endswith("cta")
    try:
        launch(body, grid=2, cluster=2, schedule="eager")
    except EmulatorError:
        assert not is_wide
    else:
        assert is_wide
    assert not rows.count(fence)


# Local memory, and accesses with an order

LOCAL = ".local .align 16 .b8 stack[48]; mov.u32 %r8, stack; and.b32 %r9, %tid, 7; mad.lo.u32 %r9, %r9, 4, %r8;"
GENERIC = "cvt.u64.u32 %rd5, %r9; cvta.local.u64 %rd5, %rd5;"
SUM = "add.u32 %r1, %r1, %r2;"
LOCAL_ACCESSES = {
    "lanes have their own": "st.local.u32 [%r9], %tid; ld.local.u32 %r2, [%r9];" + SUM,
    "others read what is their own": "st.local.u32 [%r8+16], %tid; ld.local.u32 %r2, [%r9];" + SUM,
    "one value": "st.local.u32 [stack+4], 9; ld.local.u32 %r2, [%r9];" + SUM,
    "a vector": "st.local.v2.u32 [stack+16], {%tid, %r9}; ld.local.v4.u32 {%r2, %r3, %r4, %r5}, [stack+16];" + SUM * 2,
    "bytes": "st.local.u8 [%r9+3], %tid; ld.local.s16 %r2, [%r9+2];" + SUM,
    "some lanes": "setp.lt.u32 %p1, %tid, 9; @%p1 st.local.u32 [%r9+4], %tid; @%p1 ld.local.u32 %r2, [%r9+4];" + SUM,
    "generic": GENERIC + "st.u32 [%rd5], %tid; ld.u32 %r2, [%rd5];" + SUM,
}


@pytest.mark.parametrize("name", LOCAL_ACCESSES)
def test_local_memory(name, rows):
    """Each CTA finds its local memory as no CTA has left it. Python's rows have the same results."""
    body = (
        LOCAL
        + "mov.u32 %r1, 0; mov.u32 %r2, 5; ld.local.u32 %r1, [stack+28];"
        + LOCAL_ACCESSES[name]
        + "mov.u32 %r3, %ctaid.x;"
    )
    body += (
        "mad.lo.u32 %r3, %r3, 32, %tid; mul.wide.u32 %rd1, %r3, 4; add.s64 %rd1, %a0, %rd1; st.global.u32 [%rd1], %r1;"
    )
    found = []
    for kernels in (True, False):
        found.append(np.zeros((64, 32), np.uint32))
        launch(body, found[-1], grid=64, kernels=kernels)
        assert any(".local" in opcode for opcode in rows) != kernels
    assert found[0].tolist() == found[1].tolist() and np.unique(found[0], axis=0).shape[0] == 1


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize(
    "access", ["ld.local.u32 %r1, [%r9+44]", "st.local.u32 [%r9+2], %r1", "st.local.u32 [48], %r1"]
)
def test_local_accesses_that_are_refused(access, kernels):
    with pytest.raises(EmulatorError, match=r"local address 0x\w+: misaligned, or outside .*, \[0, 0x30\)"):
        launch(LOCAL + f"mov.u32 %r1, 0; {access};", kernels=kernels)


@pytest.mark.parametrize("schedule", ["late", "random:1"])
@pytest.mark.parametrize("order", ["volatile", "relaxed.gpu", "relaxed.sys"])
def test_ordered_accesses(order, schedule, rows):
    words = np.arange(32, dtype=np.uint32)
    body = "mov.u32 %r10, smem; mad.lo.u32 %r14, %tid, 4, %r10; mad.wide.u32 %rd2, %tid, 4, %a0;"
    body += f"ld.{order}.global.u32 %r1, [%rd2]; st.{order}.shared.u32 [%r14], %r1; ld.{order}.shared.u32 %r2, [%r14];"
    launch(body + f"add.u32 %r2, %r2, 5; st.{order}.global.u32 [%rd2], %r2;", words, schedule=schedule)
    assert not rows and words.tolist() == list(range(5, 37))


@pytest.mark.parametrize("stride", [0, 4, 8, 12, -4])
@pytest.mark.parametrize("value", ["tid", "0x12", "r30"])
@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_stores_of_all_lanes(width, value, stride, rows):
    """The value may be each lane's own or one for all, the places in a row or not; the highest lane stores last."""
    body = f""".reg .b64 %rdtid; mov.u32 %r30, 77; cvt.u64.u32 %rd30, %r30; cvt.u64.u32 %rdtid, %tid;
        mul.lo.s32 %r9, %tid, {stride * width // 32}; add.s32 %r9, %r9, 1024; cvt.s64.s32 %rd2, %r9;
        add.s64 %rd2, %a0, %rd2; st.global.b{width} [%rd2], """
    wide = {"tid": "%rdtid", "r30": "%rd30"} if width == 64 else {"tid": "%tid", "r30": "%r30"}
    body += wide.get(value, value) + ";"
    found = []
    for kernels in (True, False):
        rows.clear()
        found.append(np.zeros(2048, np.uint8))
        launch(body, found[-1], kernels=kernels)
        assert (len(rows) > 0) != kernels
    assert found[0].tolist() == found[1].tolist() and found[0].any()


BARRIER = """
    mov.u32 %r10, smem; setp.eq.u32 %p1, %tid, 0; @%p1 mbarrier.init.shared.b64 [%r10], 1; bar.warp.sync 0xffffffff;
    mov.u32 %r1, 0; mov.u32 %r11, 0;
"""
TEST = "mbarrier.test_wait.parity.shared.b64 %p3, [%r10], %r11; @%p3 add.u32 %r1, %r1, 1;"
ARRIVE = "@%p1 mbarrier.arrive.shared.b64 _, [%r10]; bar.warp.sync 0xffffffff;"


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
def test_an_mbarrier_that_is_tested_in_vain(schedule, rows):
    out = np.zeros(32, np.uint32)
    body = f"{TEST} {TEST} {ARRIVE} {TEST} xor.b32 %r11, %r11, 1;"
    launch(BARRIER + LOOP.format(body=body, n=50) + store("%r1"), out, schedule=schedule)
    assert set(out) == {50}
    assert not [opcode for opcode in rows if opcode.startswith("mbarrier.test_wait")]


def test_more_tests_in_vain_than_compiled_code_keeps(rows):
    """Some lanes are others than all, so that each test is one of its own."""
    out = np.zeros(32, np.uint32)
    tests = "".join(f"setp.lt.u32 %p2, %tid, {n}; @%p2 {TEST.split(';')[0]};" for n in range(1, 13))
    launch(BARRIER + tests + ARRIVE + tests + TEST + store("%r1"), out)
    assert set(out) == {1}
    assert 4 <= len([opcode for opcode in rows if opcode.startswith("mbarrier.test_wait")]) < 25


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
def test_a_phase_that_tests_have_missed(schedule, kernels):
    with pytest.raises(EmulatorError, match="phase 0 was waited for and missed"):
        launch(BARRIER + TEST + ARRIVE + ARRIVE + TEST, schedule=schedule, kernels=kernels)


def test_an_mbarrier_in_the_place_of_one_that_was_tested():
    out = np.zeros(32, np.uint32)
    anew = "@%p1 mbarrier.inval.shared.b64 [%r10]; @%p1 mbarrier.init.shared.b64 [%r10], 1; bar.warp.sync 0xffffffff;"
    body = LOOP.format(body=f"{TEST} {anew} {ARRIVE} {ARRIVE}", n=30)
    launch(BARRIER + body + store("%r1"), out)
    assert set(out) == {0}
