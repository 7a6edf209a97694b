"""Kernels whose verdict is hard to give: legal ones that look like races, and races that look legal."""

import pytest

from nogpu import EmulatorError
from nogpu.sanitizer.observer import Sanitizer
from tests.support.small_kernels import aligned, launch
from tests.support.twins import twin

# %p1: thread 0, %p2: warp 0, %p3: thread 32, %p5: CTA 0. %r10: shared memory, %r11: its mbarriers.
BEGIN = """
    .reg .b32 %cta, %lane; mov.u32 %cta, %ctaid.x; and.b32 %lane, %tid, 31;
    mov.u32 %r10, smem; add.u32 %r11, %r10, 2048; mad.lo.u32 %r2, %tid, 4, %r10; mov.u32 %r4, 1;
    setp.eq.u32 %p1, %tid, 0; setp.lt.u32 %p2, %tid, 32; setp.eq.u32 %p3, %tid, 32; setp.eq.u32 %p5, %cta, 0;
    mul.wide.u32 %rd2, %tid, 4; add.s64 %rd2, %a0, %rd2;
"""
SYNC, LANES = "bar.sync 0;", "bar.warp.sync -1;"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
INIT = "@%p1 mbarrier.init.shared.b64 [%r11], {count}; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;"
WAIT = "{name}: mbarrier.try_wait.parity.shared.b64 %p9, [%r11], {phase}; @!%p9 bra {name};"
ALLOC = """@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10+3072], 64; bar.sync 0;
    ld.shared.b32 %r12, [%r10+3072];"""
FREE = "bar.sync 0; @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r12, 64;"

# Each CTA arrives on its peer's mbarrier, for which nobody waits, and exits behind a barrier of the cluster.
LAST_ARRIVAL = f"""{INIT.format(count=1)} {MEET} xor.b32 %r3, %rank, 1; mapa.shared::cluster.u32 %r5, %r11, %r3;
    @%p1 mbarrier.arrive{{how}}.shared::cluster.b64 _, [%r5]; {{meet}}"""

# The last CTA to arrive adds what all have stored, and sets the counter back (CUDA C++ Programming Guide, Memory Fence
# Functions).
LAST_BLOCK = """@!%p1 bra END; mad.wide.u32 %rd3, %cta, 4, %a0; st.volatile.global.b32 [%rd3], %cta; membar.gl;
    atom.global.inc.u32 %r6, [%a0+512], 2; setp.eq.u32 %p4, %r6, {last}; @!%p4 bra END;
    ld.volatile.global.b32 %r7, [%a0]; ld.volatile.global.b32 %r8, [%a0+4]; {words} st.global.b32 [%a0+512], 0;
END:"""
# The thread observes many words of shared memory in between, as in NVIDIA's sample of that name.
VOLATILE = """mov.u32 %r3, 0;
AGAIN: mad.lo.u32 %r5, %r3, 4, %r10; st.volatile.shared.b32 [%r5], %r3; ld.volatile.shared.b32 %r5, [%r5];
    add.u32 %r3, %r3, 1; setp.lt.u32 %p9, %r3, 130; @%p9 bra AGAIN;"""

# All threads store and fence, one tells, one hears, all fence and load.
ALL_FENCE = """@!%p5 bra LOADS; st.global.b32 [%rd2], %tid; {before} bar.sync 0;
    @%p1 atom.global.add.u32 %r6, [%a0+512], 1; bra END;
LOADS: @!%p1 bra HEARD; HEARS: ld.volatile.global.b32 %r6, [%a0+512]; setp.eq.u32 %p4, %r6, 0; @%p4 bra HEARS;
HEARD: bar.sync 0; {behind} ld.global.b32 %r7, [%rd2];
END:"""

ONE, TWO, PAIR = {"threads": 32}, {"grid": 2}, {"grid": 2, "cluster": 2}
WIDE = {"threads": 512}
LOADS_COLUMN, WAITS_LOAD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 %r5, [%r12];", "tcgen05.wait::ld.sync.aligned;"
STORES_COLUMN, WAITS_STORE = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12], %tid;", "tcgen05.wait::st.sync.aligned;"

# Two loads: one is paired before the wait.
PAIRED = f"""{ALLOC} @!%p2 bra END; tcgen05.ld.sync.aligned.32x32b.x2.b32 {{{{%r5, %r6}}}}, [%r12];
    mov.b64 %rd6, {{{{%r5, %r6}}}}; {{use}} {WAITS_LOAD} mov.b64 {{{{%r7, %r8}}}}, %rd6; st.shared.b32 [%r2], %r7;
END: {FREE}"""
NINE_READERS = """setp.lt.u32 %p4, %tid, 288; @%p1 st.global.b32 [%a0], 7; bar.sync 0; @!%p4 bra WRITES;
    {early} ld.global.b32 %r5, [%a0]; {late} bra END;
WRITES: bar.sync 1, 320; st.global.b32 [%a0], 8;
END:"""
TENTH = {"threads": 320}

CASES = {
    "a remote arrival, a barrier of the cluster, exit": twin(
        "reaches CTA .*, which has exited", LAST_ARRIVAL, PAIR, how=".release.cluster", meet=("", MEET)
    ),
    "a relaxed remote arrival, a barrier of the cluster, exit": twin(
        "reaches CTA .*, which has exited", LAST_ARRIVAL, PAIR, how=".relaxed.cluster", meet=("", MEET)
    ),
    **{
        f"the last CTA sets the counter back{where}": twin("clusters", LAST_BLOCK, TWO, last=("%r6", "1"), words=words)
        for where, words in (("", ""), (" behind many volatile words", VOLATILE))
    },
    "all threads fence before a message": twin(
        "order", ALL_FENCE, TWO, before=("fence.acq_rel.gpu;", "fence.sc.gpu;"), behind="fence.sc.gpu;"
    ),
    "all threads fence behind a message": twin("order", ALL_FENCE, TWO, before="membar.gl;", behind=("", "membar.gl;")),
    "a pair of registers": twin("fragment", PAIRED, use=("add.u64 %rd7, %rd6, 1;", "")),
    "a load through the read-only path": twin(
        "read-only", "{first} bar.sync 0; ld.global.nc.b32 %r5, [%rd2];", first=("st.global.b32 [%rd2], %tid;", "")
    ),
    "a reader that signals early": twin(
        "threads",
        NINE_READERS.replace("{early}", "@%p2 {first}").replace("{late}", "@%p2 {last} @!%p2 bar.arrive 1, 320;"),
        TENTH,
        first=("bar.arrive 1, 320;", ""),
        last=("mov.u32 %r9, 0;", "bar.arrive 1, 320;"),
    ),
    "a lane stores, and another lane over it": twin(
        "lanes",
        "st.global.b32 [%rd2], %tid; {edge} xor.b32 %r3, %tid, 1; mul.wide.u32 %rd3, %r3, 4;"
        "add.s64 %rd3, %a0, %rd3; st.global.b32 [%rd3], %tid;",
        edge=("", LANES),
    ),
    "a lane stores twice, and another over the second": twin(
        "lanes", "st.global.b32 [%rd2], %tid; {edge} st.global.b32 [%rd2+4], %tid;", ONE, edge=("", LANES)
    ),
    "shared: a lane stores twice, and another over the second": twin(
        "lanes", "st.shared.b32 [%r2], %tid; {edge} st.shared.b32 [%r2+4], %tid;", ONE, edge=("", LANES)
    ),
    "wide loads of another lane's bytes": twin(
        "lanes",
        "mul.wide.u32 %rd3, %tid, 16; add.s64 %rd3, %a0, %rd3; ld.global.v4.b32 {{%r5, %r6, %r7, %r8}}, [%rd3];"
        "xor.b32 %r3, %tid, 1; mul.wide.u32 %rd4, %r3, 16; add.s64 %rd4, %a0, %rd4; {edge}"
        "st.global.v4.b32 [%rd4], {{%r5, %r6, %r7, %r8}};",
        edge=("", LANES),
    ),
    "wide stores, and loads of another lane's bytes": twin(
        "lanes",
        "mul.wide.u32 %rd3, %tid, 16; add.s64 %rd3, %a0, %rd3; st.global.v4.b32 [%rd3], {{%r4, %r4, %r4, %r4}};"
        "xor.b32 %r3, %tid, 1; mul.wide.u32 %rd4, %r3, 16; add.s64 %rd4, %a0, %rd4; {edge}"
        "ld.global.v4.b32 {{%r5, %r6, %r7, %r8}}, [%rd4];",
        edge=("", LANES),
    ),
    "a column that is stored, then loaded": twin(
        "tensor-memory",
        f"{ALLOC} @!%p2 bra END; {STORES_COLUMN} {{wait}} {LOADS_COLUMN} {WAITS_LOAD} {WAITS_STORE} END: {FREE}",
        wait=("", WAITS_STORE),
    ),
    "a column that is loaded, then stored": twin(
        "tensor-memory",
        f"{ALLOC} @!%p2 bra END; {LOADS_COLUMN} {{wait}} {STORES_COLUMN} {WAITS_LOAD} {WAITS_STORE} END: {FREE}",
        wait=("", WAITS_LOAD),
    ),
    "an mbarrier that is initialised again while others may poll it": twin(
        "initialisation",
        INIT.format(count=1)
        + "@%p1 mbarrier.arrive.shared.b64 _, [%r11];"
        + WAIT.format(name="POLLS", phase=0)
        + "{edge} @%p1 mbarrier.inval.shared.b64 [%r11]; @%p1 mbarrier.init.shared.b64 [%r11], 1;",
        edge=("", SYNC),
    ),
    "a named barrier of two groups": twin(
        "named-barrier",
        """setp.lt.u32 %p4, %tid, 64; @%p4 bra FIRST; bar.sync {second}, 64; bra END;
    FIRST: bar.sync 1, 64;
    END:""",
        {"threads": 128},
        second=("1", "2"),
    ),
    "a named barrier of two groups, one behind the other": twin(
        "named-barrier",
        """setp.lt.u32 %p4, %tid, 64; @%p4 bra FIRST; {edge} bar.sync 1, 64; bra END;
    FIRST: bar.sync 1, 64; {edge}
    END:""",
        {"threads": 128},
        edge=("", SYNC),
    ),
    "ldmatrix of rows that other lanes have stored": twin(
        "lanes",
        "st.shared.b32 [%r2], %tid; {edge} and.b32 %r3, %tid, 7; mad.lo.u32 %r3, %r3, 16, %r10;"
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r5}}, [%r3];",
        {"threads": 32},
        edge=("", LANES),
    ),
    "local memory that nobody has written": twin(
        "uninitialised",
        ".local .align 4 .b8 own[8]; {first} ld.local.b32 %r5, [own+4]; st.global.b32 [%rd2], %r5;",
        first=("st.local.b32 [own], 1;", "st.local.b32 [own+4], 1;"),
    ),
    "an atomic of another size": twin(
        "sizes",
        """@!%p1 bra END; @!%p5 bra HEARS; st.global.b32 [%a0], 1; st.release.gpu.global.b32 [%a0+512], %r4; bra END;
    HEARS: ld.acquire.gpu.global.{type} %{register}, [%a0+512]; cvt.u32.u64 %r5, %rd5;
    setp.eq.u32 %p4, {seen}, 0; @%p4 bra HEARS;
    ld.global.b32 %r6, [%a0];
    END:""",
        TWO,
        type=("b64", "b32"),
        register=("rd5", "r6"),
        seen=("%r5", "%r6"),
    ),
    "atomics of two sizes": twin(
        "sizes",
        "@%p1 atom.global.add.u32 %r5, [%a0], 1; @%p3 atom.global.add.u{size} %{register}, [%a0], 1;",
        size=("64", "32"),
        register=("rd5", "r5"),
    ),
}


def run(body, schedule, **options):
    options = {"threads": 64} | options
    launch(BEGIN + body, aligned(512), schedule=schedule, sanitizer=Sanitizer(), **options)


@pytest.mark.parametrize("name", CASES)
def test_a_race_is_reported_and_its_ordered_twin_is_silent(name, schedule, monkeypatch):
    """A row's first item is a rule of the sanitizer, or words of a report that needs none."""
    words, options, racy, legal = CASES[name]
    if words == "fragment":  # a doubt
        monkeypatch.setenv("NOGPU_LENIENT", "0")
    run(legal, schedule, **options)
    with pytest.raises(EmulatorError, match=words if " " in words else f"sanitizer, rule ({words}):"):
        run(racy, schedule, **options)
