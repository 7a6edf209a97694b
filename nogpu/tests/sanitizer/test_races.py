"""The sanitizer on small kernels: each race, whether or not the schedule shows it, and an ordered twin."""

import json
import warnings

import pytest

from nogpu import EmulatorError, errors
from nogpu.sanitizer.observer import Sanitizer
from nogpu.sanitizer.rules import RULES
from nogpu.sanitizer.waivers import in_source
from tests.support import emulated
from tests.support.encoding import f16_idesc, smem_descriptor
from tests.support.small_kernels import aligned, launch, module
from tests.support.twins import twin

BEGIN = """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 2048; setp.eq.u32 %p1, %tid, 0; setp.lt.u32 %p2, %tid, 32;
    mad.lo.u32 %r2, %tid, 4, %r10;
"""
INIT = "@%p1 mbarrier.init.shared.b64 [%r11], {count}; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;"
FENCE, WARP, CTA = "fence.proxy.async.shared::cta;", "bar.warp.sync -1;", "bar.sync 0;"
WAIT = "{name}: mbarrier.try_wait.parity.shared.b64 %p9, [%r11], {phase}; @!%p9 bra {name};"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
WAITED = WAIT.format(name="W", phase=0)
MEET_RELAXED = MEET.replace("arrive", "arrive.relaxed")
CLUSTER = {"grid": 2, "cluster": 2}

# Each thread stores a word, and loads another thread's.
OTHER_WARP = (
    "st.shared.b32 [%r2], %tid; {edge} xor.b32 %r3, %tid, 32; mad.lo.u32 %r4, %r3, 4, %r10; ld.shared.b32 %r5, [%r4];"
)
OTHER_LANE = OTHER_WARP.replace("32;", "1;", 1)

# Warp 1 stores, warp 0 loads.
HANDED_OVER = """
    @%p2 bra LOADS; {store} {arrive} bra DONE;
LOADS: {wait} ld.shared.b32 %r5, [%r10+132];
DONE:
"""
STORE = "st.shared.b32 [%r2], %tid;"
# The lower half of each warp exits, while the upper waits to store where the lower stores last.
LEFT = f"""{STORE} {WARP} and.b32 %r3, %tid, 16; setp.eq.u32 %p4, %r3, 0; @%p4 bra LEAVES;
    {WARP} st.shared.b32 [%r2+-64], 5; ret;
LEAVES: {{last}} ret;"""
ARRIVE = "mbarrier.arrive.shared.b64 _, [%r11];"
ONE = "setp.eq.u32 %p3, %tid, 32; @%p3 " + ARRIVE

# Threads store what lane 0 has copied to global memory, and store again.
STAGED = """
    st.shared.b32 [%r2], %tid; {fence} bar.sync 0;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r10], 128; @%p1 cp.async.bulk.commit_group;
    {wait} {edge} st.shared.b32 [%r2], %tid; @%p1 cp.async.bulk.wait_group 0;
"""
READ = "@%p1 cp.async.bulk.wait_group.read 0;"

# Lane 0 issues a copy to shared memory, all load the bytes, and lane 0 issues another copy to the same place.
LOAD = """@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128;
    @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [%a0], 128, [%r11];"""
ONCE = INIT.format(count=1) + "@!%p2 bra DONE;" + LOAD + "{wait} ld.shared.b32 %r5, [%r2];"
ONCE += WAIT.format(name="LAST", phase=0) + "DONE:"
FILLED = INIT.format(count=1) + "@!%p2 bra DONE;" + LOAD + "{wait} ld.shared.b32 %r5, [%r2]; {edge}" + LOAD
FILLED += WAIT.format(name="LAST", phase=1) + "DONE:"

# Lane 0 of warp 1 issues tcgen05.cp from bytes that warp 0 then overwrites.
COPIED = """
    @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10+3072], 64; bar.sync 0;
    ld.shared.b32 %r12, [%r10+3072]; setp.eq.u32 %p3, %tid, 32; mov.b64 %rd5, 0x0000400800000040;
    @%p3 tcgen05.cp.cta_group::1.32x128b.warpx4 [%r12], %rd5;
    @%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11];
    {before} @%p2 st.shared.b32 [%r2], %tid; {after}
    bar.sync 0; @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r12, 64;
"""
ENDED = WAIT.format(name="ENDED", phase=0)

# Each CTA stores to the other, which loads.
REMOTE = f"""{MEET}
    xor.b32 %r3, %rank, 1; mapa.shared::cluster.u32 %r4, %r2, %r3; st.shared::cluster.b32 [%r4], %tid;
    {{edge}} ld.shared.b32 %r5, [%r2]; {MEET}"""

COPY_ASYNC = """
    mul.wide.u32 %rd1, %tid, 4; add.s64 %rd1, %a0, %rd1; cp.async.ca.shared.global [%r2], [%rd1], 4;
    cp.async.commit_group; {wait} {edge} ld.shared.b32 %r5, [{place}]; cp.async.wait_group 0;
"""

CASES = {
    "two warps without a barrier": twin("threads", OTHER_WARP, edge=("", CTA)),
    "two lanes without bar.warp.sync": twin("lanes", OTHER_LANE, edge=("", WARP)),
    "lanes that store and exit before a bar.warp.sync of the others": twin("order", LEFT, last=(STORE, "")),
    "a barrier of other warps": twin("threads", OTHER_WARP, edge=(WARP, "barrier.sync 1, 64;")),
    "a wait for a named barrier is missing": twin(
        "threads", HANDED_OVER, store=STORE, arrive="bar.arrive 1, 64;", wait=("bar.arrive 1, 64;", "bar.sync 1, 64;")
    ),
    "a store behind the arrival": twin(
        "threads",
        INIT.format(count=32) + HANDED_OVER,
        store=(ARRIVE, STORE),
        arrive=(STORE, ARRIVE),
        wait=WAITED,
    ),
    "32 lanes store, one arrives": twin(
        "threads",
        INIT.format(count=1) + HANDED_OVER,
        store=STORE,
        arrive=(ONE, WARP + ONE),
        wait=WAITED,
    ),
    "one lane waits, 32 load": twin(
        "threads",
        INIT.format(count=32) + HANDED_OVER.replace("{wait}", "@!%p1 bra MET; {wait} MET: {meet}"),
        store=STORE,
        arrive=ARRIVE,
        wait=WAITED,
        meet=("", WARP),
    ),
    "a bulk store without a fence": twin("proxy-fence", STAGED, fence=("", FENCE), wait=READ, edge=CTA),
    "staging bytes are overwritten without a wait": twin(
        "staging", STAGED, fence=FENCE, wait=("", "@%p1 cp.async.bulk.wait_group 0;"), edge="bar.sync 0;"
    ),
    "staging bytes are overwritten while a newer group may stay": twin(
        "staging", STAGED, fence=FENCE, wait=(READ.replace("0;", "1;"), READ), edge="bar.sync 0;"
    ),
    "staging bytes are overwritten by lanes that have not met the one that waits": twin(
        "staging", STAGED, fence=FENCE, wait=READ, edge=("", WARP)
    ),
    "copied bytes are loaded without a wait": twin("copy", ONCE, wait=(WARP, WAITED)),
    "a copy overwrites bytes that others load": twin("copy", FILLED, wait=WAITED, edge=("", WARP)),
    "the tensor core may still read": twin(
        "tensor-core", INIT.format(count=1) + COPIED, before=(CTA, ENDED), after=(ENDED, "")
    ),
    "stores to another CTA": twin("threads", REMOTE, edge=(CTA, MEET)),
    "cp.async without a wait": twin(
        "copy", COPY_ASYNC, wait=("", "cp.async.wait_group 0;"), edge=(WARP, ""), place="%r2"
    ),
    "cp.async of another thread": twin(
        "copy",
        COPY_ASYNC.replace("{place}", "%r10"),
        wait=("cp.async.wait_group 1;", "cp.async.wait_group 0;"),
        edge="bar.sync 0;",
    ),
}

# Half of a warp's lanes wait for their copies before the others do.
COPIES_PARTED = """
    mul.wide.u32 %rd1, %tid, 4; add.s64 %rd1, %a0, %rd1; cp.async.ca.shared.global [%r2], [%rd1], 4;
    cp.async.commit_group; and.b32 %r7, %tid, 16; setp.eq.u32 %p4, %r7, 0; xor.b32 %r8, %r2, {other}; @%p4 bra FIRST;
    cp.async.wait_group 0; ld.shared.b32 %r5, [%r8]; bra DONE;
FIRST: cp.async.wait_group 0; ld.shared.b32 %r5, [%r8];
DONE:
"""
CASES["cp.async of lanes that have not waited"] = twin("copy|lanes", COPIES_PARTED, other=(64, 0))

# Both CTAs store to CTA 1 in turn: CTA 0's message comes on its mbarrier.
PASSED_ON = f"""{INIT.format(count=1)} {MEET}
    mapa.shared::cluster.u32 %r4, %r2, 1; mapa.shared::cluster.u32 %r5, %r11, 1;
    setp.eq.u32 %p4, %rank, 1; @%p4 bra HEARS;
    st.shared::cluster.b32 [%r4], %tid; bar.sync 0; {{arrive}} bra END;
HEARS: {{wait}} ld.shared.b32 %r6, [%r2];
END: {MEET}"""
TO_CLUSTER = "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];"
TO_CLUSTER_RELAXED = TO_CLUSTER.replace("release", "relaxed")
FROM_CLUSTER = WAIT.replace(".shared.b64", ".acquire.cluster.shared::cta.b64").format(name="W", phase=0)

HANDED = INIT.format(count=32) + HANDED_OVER
RELAXED_WAIT = WAIT.replace(".shared.b64", ".relaxed.cta.shared::cta.b64").format(name="W", phase=0)
RELAXED = "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r11];"
WORD = f"""{INIT.format(count=1)} @%p1 st.shared.b32 [%r10+1024], 0; bar.sync 0; @%p2 bra READS;
    st.shared.b32 [%r2], %tid; bar.warp.sync -1; setp.eq.u32 %p3, %tid, 32;
    @%p3 st.{{store}}.cta.shared.b32 [%r10+1024], 1; bra DONE;
READS: ld.{{load}}.cta.shared.b32 %r6, [%r10+1024]; {{fence}} setp.eq.u32 %p4, %r6, 0; @%p4 bra READS;
    ld.shared.b32 %r5, [%r10+128];
DONE:"""

CASES |= {
    "a relaxed arrival": twin(
        "order", HANDED, store=STORE, arrive=(RELAXED, "fence.acq_rel.cta;" + RELAXED), wait=ENDED
    ),
    "a fence before the store that a relaxed arrival follows": twin(
        "order", HANDED, store=("fence.acq_rel.cta;" + STORE, STORE), arrive=(RELAXED, ARRIVE), wait=ENDED
    ),
    "a relaxed wait": twin(
        "order", HANDED, store=STORE, arrive=ARRIVE, wait=(RELAXED_WAIT, RELAXED_WAIT + "fence.acq_rel.cta;")
    ),
    "a relaxed arrival on the cluster's barrier": twin(
        "order", REMOTE, edge=(MEET_RELAXED, "fence.acq_rel.cluster;" + MEET_RELAXED)
    ),
    "a relaxed store of a word that others wait for": twin(
        "order", WORD, store=("relaxed", "release"), load="acquire", fence=""
    ),
    "a relaxed load of a word": twin("order", WORD, store="release", load="relaxed", fence=("", "fence.acq_rel.cta;")),
    "a relaxed arrival in another CTA": twin(
        "order",
        PASSED_ON,
        arrive=(TO_CLUSTER_RELAXED, "fence.acq_rel.cluster;" + TO_CLUSTER_RELAXED),
        wait=FROM_CLUSTER,
    ),
}

ALLOC = """
    @%p2 tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%r10+3072], 64; bar.sync 0; {meet}
    ld.shared.b32 %r12, [%r10+3072];
"""
FREE = "@%p2 tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %r12, 64;"
LOAD_COLUMN, WAIT_LOAD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 %r5, [%r12];", "tcgen05.wait::ld.sync.aligned;"

# Warp 0 stores a column, which warp 4 loads: both have the first 32 lanes.
LOADED = LOAD_COLUMN + WAIT_LOAD
ALLOC_ONE, FREE_ONE = ALLOC.format(group=1, meet=""), FREE.format(group=1)
FIVE_WARPS = f"""{ALLOC_ONE} @%p2 bra STORES; setp.lt.u32 %p5, %tid, 128; @%p5 bra END; {{wait}} {LOADED} bra END;
STORES: tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12], %tid; tcgen05.wait::st.sync.aligned; {{arrive}}
END: bar.sync 0; {FREE_ONE}"""
USED = f"""{ALLOC_ONE} @!%p2 bra END; {LOAD_COLUMN} {{wait}} add.u32 %r6, %r5, 1;
    tcgen05.wait::ld.sync.aligned; st.shared.b32 [%r2], %r6;
END: bar.sync 0; {FREE_ONE}"""
# Warp 0 loads a column, over which lane 0 of warp 1 has tcgen05.cp copy.
LOADED_FIRST = f"""{INIT.format(count=1)} {ALLOC_ONE} @!%p2 bra COPIES; {LOADED}
    {{edge}} @%p1 mbarrier.arrive.shared.b64 _, [%r11]; bra END;
COPIES: setp.eq.u32 %p3, %tid, 32; mov.b64 %rd5, 0x0000400800000040; @!%p3 bra END; {ENDED}
    tcgen05.cp.cta_group::1.32x128b.warpx4 [%r12], %rd5;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11]; {WAIT.format(name="W2", phase=1)}
END: bar.sync 0; {FREE_ONE}"""
# Two accesses to the same columns, in the same half of a quadrant's lanes or in both, and nothing between them.
STORED_HALF = FIVE_WARPS.replace("32x32b", "16x64b").replace("[%r12], %tid", "[%r12{half}], %tid")
LOADED_BESIDE = f"""{INIT.format(count=1)} {ALLOC_ONE} mov.b64 %rd5, {smem_descriptor(0x400, 256, leading=128)};
    mov.b32 %r15, {f16_idesc(64, 16)}; setp.ne.u32 %p8, %r15, %r15;
    @%p1 tcgen05.mma.cta_group::1.kind::f16 [%r12{{half}}], %rd5, %rd5, %r15, %p8;
    @%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11]; @!%p2 bra END;
    {LOADED.replace("32x32b", "16x64b")} {ENDED}
END: bar.sync 0; {FREE_ONE}"""
UPPER = ("", "+1048576")
PAIR_FREED = MEET + ALLOC.format(group=2, meet=MEET) + "@!%p2 bra END; setp.eq.u32 %p4, %rank, 0; @%p4 bra END;"
PAIR_FREED += LOAD_COLUMN + WAIT_LOAD + "END: bar.sync 0; {meet}" + FREE.format(group=2) + MEET

# The kernel has no tcgen05.wait::ld: the use of its register is the wait for the load of warp 4.
NEVER_WAITS = f"""{ALLOC_ONE} setp.lt.u32 %p5, %tid, 128; @%p5 bra STORES;
    {LOAD_COLUMN} st.shared.b32 [%r2], %r5; STORES: {{meet}} {FREE_ONE}"""

# Warp 0 stores a column and arrives, warp 4 waits and loads it.
COLUMN_PASSED_ON = f"""{INIT.format(count=1)} {ALLOC_ONE}
    @%p2 bra STORES; setp.lt.u32 %p5, %tid, 128; @%p5 bra END; {ENDED} {{after}} {LOADED} bra END;
STORES: tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12], %tid; tcgen05.wait::st.sync.aligned; {{before}} bar.warp.sync -1;
    @%p1 mbarrier.arrive{{how}}.shared.b64 _, [%r11];
END: bar.sync 0; {FREE_ONE}"""
TMEM_FENCES = ["tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;"]

CASES |= {
    "a column is passed on by a relaxed arrival, without any tcgen05.fence": twin(
        "order", COLUMN_PASSED_ON, how=(".relaxed.cta", ""), before="", after=""
    ),
    "a pair's columns are freed behind a relaxed barrier, without any tcgen05.fence": twin(
        "order", PAIR_FREED, meet=(MEET_RELAXED, MEET)
    ),
    "columns are freed beside a load that nobody waits for": twin(
        "tensor-memory", NEVER_WAITS, meet=("", "bar.sync 0;")
    ),
    "a column is loaded before it is stored": twin(
        "tensor-memory", FIVE_WARPS, arrive=("", "bar.arrive 1, 64;"), wait=("", "bar.sync 1, 64;")
    ),
    "16 lanes of a column are loaded beside a store": twin(
        "tensor-memory", STORED_HALF, arrive="", wait="", half=UPPER
    ),
    "16 lanes of a column are loaded beside an MMA": twin("tensor-memory", LOADED_BESIDE, half=UPPER),
    "32 lanes have waited for a load, one arrives": twin("tensor-memory", LOADED_FIRST, edge=("", WARP)),
    "a loaded register is used before tcgen05.wait::ld": twin("fragment", USED, wait=("", WAIT_LOAD)),
    "columns of a pair are freed without a word of the other CTA": twin(
        "tensor-memory",
        PAIR_FREED,
        meet=("", MEET_RELAXED.join(TMEM_FENCES)),
    ),
}

# Warp 1 frees what warp 0 has loaded. Nobody executes tcgen05.wait.
FREED_BY_OTHERS = f"""{ALLOC_ONE.replace("@%p2", "@!%p2")} @!%p2 bra END; {LOAD_COLUMN} {{use}} mov.u32 %r8, %r6;
END: bar.sync 0; {FREE_ONE.replace("@%p2", "@!%p2")}"""
# Registers are paired by mov before the wait, as compilers do, then used.
PAIRED = USED.replace(
    "{wait} add.u32 %r6, %r5, 1;\n   ", "mov.b64 %rd6, {{%r5, %r5}}; {wait} mov.b64 {{%r6, %r7}}, %rd6; {use}"
)
PAIRED = PAIRED.replace("tcgen05.wait::ld.sync.aligned; st.shared", "{last} st.shared")
CASES["what a mov has copied is used before tcgen05.wait::ld"] = twin(
    "fragment", PAIRED, wait=("", WAIT_LOAD), use="add.u32 %r6, %r7, 1;", last=(WAIT_LOAD, "")
)

# Warp 1 loads a pair's columns and exits; warp 0 frees them behind the cluster's barrier, which waits for no other.
EXITED = MEET + ALLOC.format(group=2, meet=MEET) + "@%p2 bra FREES;" + LOAD_COLUMN + "{wait} ret;\nFREES:" + WAIT_LOAD
EXITED += MEET + FREE.format(group=2)

# Each CTA issues a copy and waits for it; behind a relaxed cluster barrier the other accesses the bytes.
BEHIND_A_COPY = f"""{INIT.format(count=1)} {MEET} @!%p2 bra WAITED; {LOAD} {ENDED}
WAITED: {MEET_RELAXED}
    xor.b32 %r3, %rank, 1; mapa.shared::cluster.u32 %r4, %r2, %r3; @!%p2 bra END; {{access}}
END: {MEET}"""
CASES["a load behind a copy and a relaxed barrier"] = twin(
    "order", BEHIND_A_COPY, access=("ld.shared::cluster.b32 %r5, [%r4];", "")
)


# The other CTA arrives on the mbarrier that CTA 1 has initialised, or issues a copy that completes on it.
SET_UP = f"""@%p1 mbarrier.init.shared.b64 [%r11], 1; {{fence}}
    {{arrive}} barrier.cluster.wait.aligned; mapa.shared::cluster.u32 %r5, %r11, 1;
    mapa.shared::cluster.u32 %r4, %r10, 1; setp.eq.u32 %p4, %rank, 1; @%p4 bra HEARS; {{use}} bra END;
HEARS: @!%p1 bra END; {{expect}}
    W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p9, [%r11], 0; @!%p9 bra W;
END: {MEET}"""
FENCED, PUBLISHED = "@%p1 fence.proxy.async.shared::cta;", "@%p1 fence.mbarrier_init.release.cluster;"
CLUSTER_RELAXED, CLUSTER_RELEASE = "barrier.cluster.arrive.relaxed.aligned;", "barrier.cluster.arrive.aligned;"
REMOTE_ARRIVAL = {"use": "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];", "expect": ""}
REMOTE_COPY = {
    "use": "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%a0], 128, [%r5];",
    "expect": "mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128;",
}
CASES |= {
    "a remote arrival behind a relaxed barrier": twin(
        "initialisation",
        SET_UP,
        fence=(FENCED, PUBLISHED),
        arrive=CLUSTER_RELAXED,
        **REMOTE_ARRIVAL,
    ),
    "a remote arrival behind a fence before the initialisation": twin(
        "initialisation",
        PUBLISHED + SET_UP,
        fence=("fence.proxy.async.shared::cta;", ""),
        arrive=(CLUSTER_RELAXED, CLUSTER_RELEASE),
        **REMOTE_ARRIVAL,
    ),
    "a copy of the other CTA behind a relaxed barrier": twin(
        "initialisation",
        SET_UP,
        fence=(FENCED, PUBLISHED),
        arrive=CLUSTER_RELAXED,
        **REMOTE_COPY,
    ),
    "a copy of the other CTA behind a barrier that releases": twin(
        "initialisation",
        SET_UP.replace("{fence}", "{fence} @%p1 bra FENCED; fence.proxy.async; FENCED:"),
        fence=("", FENCED),
        arrive=("fence.acq_rel.cluster;" + CLUSTER_RELEASE, CLUSTER_RELEASE),
        **REMOTE_COPY,
    ),
    "a thread of the CTA that has not heard of the initialisation": twin(
        "initialisation",
        """@%p1 mbarrier.init.shared.b64 [%r11], 1; @%p1 fence.mbarrier_init.release.cluster; @%p2 bra MEETS;
        mov.u32 %r4, 0; DELAY: add.u32 %r4, %r4, 1; setp.lt.u32 %p4, %r4, 9999; @%p4 bra DELAY; {edge}
        setp.eq.u32 %p3, %tid, 32; @%p3 mbarrier.arrive.shared.b64 _, [%r11]; bra END; MEETS: {meets} END:""",
        edge=("", CTA),
        meets=("", CTA),
    ),
}


def run(body, schedule, allowed=(), **options):
    options = {"threads": 64} | options
    launch(BEGIN + body, aligned(256), schedule=schedule, sanitizer=Sanitizer(allowed), **options)


def options_of(body):
    if "STORES:" in body:
        return {"threads": 160}
    return CLUSTER if "cluster.wait.aligned" in body else {}


@pytest.mark.parametrize("name", CASES)
def test_a_race_is_reported_and_its_ordered_twin_is_silent(name, schedule, monkeypatch):
    """The report names its rule and both accesses, under every schedule."""
    rule, _, racy, legal = CASES[name]
    if rule == "fragment":  # a doubt
        monkeypatch.setenv("NOGPU_LENIENT", "0")
    with pytest.raises(EmulatorError, match=f"sanitizer, rule ({rule}): nothing orders") as error:
        run(racy, schedule, **options_of(racy))
    assert error.value.reason.partition("namely")[0].count("at PTX line") == 2 and "(PTX ISA, " in error.value.reason
    run(legal, schedule, **options_of(legal))


def test_registers_of_a_kernel_that_prints(monkeypatch):
    """Calls of the driver's functions, which stay in the program, do not end the search for early uses of registers."""
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    prints = """.reg .pred %none; setp.lt.u32 %none, %tid, 0; @!%none bra SILENT;
        {{ .param .b64 p; .param .b64 q; .param .b32 r; st.param.b64 [p], %rd6; st.param.b64 [q], %rd6;
        call.uni (r), vprintf, (p, q); }}
    SILENT:"""
    declarations = ".extern .func (.param .b32 r) vprintf(.param .b64 p, .param .b64 q);"
    parts = {"wait": WAIT_LOAD, "use": "add.u32 %r6, %r7, 1;", "last": ""}
    run((prints + PAIRED).format(**parts), "late", declarations=declarations)
    with pytest.raises(EmulatorError, match="rule fragment"):
        run((prints + PAIRED).format(**parts | {"wait": "", "last": WAIT_LOAD}), "late", declarations=declarations)


@pytest.mark.parametrize("name", ["a loaded register is used before", "what a mov has copied is used before"])
def test_an_early_use_of_registers_is_a_doubt(monkeypatch, name):
    """The report names the instruction that uses a register, not a mov that has paired it."""
    monkeypatch.setattr(errors, "_reported", set())
    _, _, racy, _ = CASES[f"{name} tcgen05.wait::ld"]
    with pytest.warns(
        errors.OrderingWarning, match=r"rule fragment: nothing orders\n    add\.u32 of warp 0 .*\n  behind"
    ):
        run(racy, "late")


def test_a_barrier_waits_for_threads_that_have_exited(schedule):
    run(EXITED.format(wait=WAIT_LOAD), schedule, **CLUSTER)
    with pytest.raises(EmulatorError, match="columns"):
        run(EXITED.format(wait=""), schedule, **CLUSTER)


def test_a_use_waits_for_the_load(schedule):
    """It is a doubt. A rule of the emulator may be the first to report that there is neither a use nor a wait."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.OrderingWarning)
        run(FREED_BY_OTHERS.format(use="add.u32 %r6, %r5, 1;"), schedule)
    with pytest.raises(EmulatorError, match="columns"):
        run(FREED_BY_OTHERS.format(use=""), schedule)


def test_fences_of_tensor_memory_order_relaxed_barriers(schedule):
    before, after = TMEM_FENCES
    run(COLUMN_PASSED_ON.format(how=".relaxed.cta", before=before, after=after), schedule, threads=160)


RELAXED_FROM_CLUSTER = FROM_CLUSTER.replace("acquire", "relaxed")
NARROW = [
    {"arrive": TO_CLUSTER.replace(".release.cluster", ""), "wait": FROM_CLUSTER},
    {"arrive": TO_CLUSTER, "wait": ENDED},
    {"arrive": "fence.acq_rel.cta;" + TO_CLUSTER_RELAXED, "wait": FROM_CLUSTER},
    {"arrive": TO_CLUSTER, "wait": RELAXED_FROM_CLUSTER + "fence.acq_rel.cta;"},
]
WIDE = [
    {"arrive": "fence.acq_rel.cluster; fence.acq_rel.cta;" + TO_CLUSTER_RELAXED, "wait": FROM_CLUSTER},
    {"arrive": TO_CLUSTER, "wait": RELAXED_FROM_CLUSTER + "fence.acq_rel.cta; fence.acq_rel.gpu;"},
]


@pytest.mark.parametrize("scopes", WIDE)
def test_a_fence_for_other_ctas(monkeypatch, scopes):
    """A fence of the CTA's own scope beside it removes nothing."""
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    run(PASSED_ON.format(**scopes), "late", **CLUSTER)


def test_a_relaxed_cluster_barrier_behind_a_fence_of_the_cta():
    with pytest.raises(EmulatorError, match="rule scope: nothing orders"), pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOGPU_LENIENT", "0")
        run(REMOTE.format(edge="fence.acq_rel.cta;" + MEET_RELAXED), "late", **CLUSTER)


@pytest.mark.parametrize("scopes", NARROW)
def test_a_scope_without_the_other_cta_is_a_doubt(monkeypatch, scopes):
    """A doubt is a warning once, unless it is waived, or an error in a strict run."""
    monkeypatch.setattr(errors, "_reported", set())
    with pytest.warns(errors.OrderingWarning, match="sanitizer, rule scope: nothing orders") as found:
        run(PASSED_ON.format(**scopes), "late", **CLUSTER)
    assert len(found) == 1
    monkeypatch.setattr(errors, "_reported", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(PASSED_ON.format(**scopes), "late", ["scope"], **CLUSTER)
        run(PASSED_ON.format(arrive=TO_CLUSTER, wait=FROM_CLUSTER), "late", **CLUSTER)
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    with pytest.raises(EmulatorError, match="rule scope"):
        run(PASSED_ON.format(**scopes), "late", **CLUSTER)


def test_a_relaxed_word_of_a_completion_is_a_doubt(monkeypatch):
    """The word is written after a copy that another CTA has seen complete."""
    stores = BEHIND_A_COPY.format(access="st.shared::cluster.b32 [%r4], %tid;")
    monkeypatch.setattr(errors, "_reported", set())
    with pytest.warns(errors.OrderingWarning, match="sanitizer, rule completion: nothing orders") as found:
        run(stores, "late", **CLUSTER)
    assert len(found) == 1
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    run(stores, "late", ["completion@st.shared::cluster.b32"], **CLUSTER)
    run(stores.replace("arrive.relaxed", "arrive.release"), "late", **CLUSTER)
    with pytest.raises(EmulatorError, match="rule completion"):
        run(stores, "late", **CLUSTER)


SAME_WORD = "mov.u32 %r4, {value}; shr.u32 %r3, %tid, 4; mad.lo.u32 %r3, %r3, 4, %r10; {store} [%r3], %r4;"
SAME_GLOBAL = "mov.u32 %r4, {value}; shr.u32 %r3, %tid, 4; mul.wide.u32 %rd1, %r3, 4; add.s64 %rd1, %a0, %rd1;"
SAME_GLOBAL += "st.global.b32 [%rd1], %r4;"


@pytest.mark.parametrize("body", [SAME_WORD.replace("{store}", "st.shared.b32"), SAME_GLOBAL])
def test_lanes_that_store_to_one_word(body):
    """A place with different values may keep any; equal ones and stores with an order are legal."""
    with pytest.raises(EmulatorError, match="rule lanes: nothing orders lanes 0 and 1 of"):
        run(body.format(value="%tid"), "late", threads=32)
    run(body.format(value="7"), "late", threads=32)
    run(body.format(value="%tid"), "late", ["lanes"], threads=32)
    run(SAME_WORD.format(value="%tid", store="st.relaxed.cta.shared.b32"), "late", threads=32)
    run(".local .align 4 .b8 own[4]; cvta.local.u64 %rd1, own; st.b32 [%rd1], %tid;", "late", threads=32)


# All lanes load a word at one address, and some of them store to it.
READ_TOGETHER = "@!%p2 bra END; ld.{memory}.b32 %r5, {place}; {{edge}} {{who}} st.{memory}.b32 {place}, 1;\nEND:"
READ_WORD = READ_TOGETHER.format(memory="shared", place="[%r10]")
READ_GLOBAL = READ_TOGETHER.format(memory="global", place="[%a0]")
LAST_LANE = "setp.eq.u32 %p3, %tid, 31; @%p3"
OTHERS_ARRIVE = f"""@%p1 bra W; {ARRIVE} bra END; W: mbarrier.try_wait.parity.shared.b64 %p9, [%r11], 0;
    @!%p9 bra W; st.shared.b32 [%r10], 1;\nEND:"""


@pytest.mark.parametrize("body", [READ_WORD, READ_GLOBAL], ids=["shared", "global"])
@pytest.mark.parametrize("who", ["@%p1", LAST_LANE, ""], ids=["lane 0", "lane 31", "all"])
def test_a_word_that_lanes_load_together_is_stored(body, who):
    """The load of any other lane may come behind the store."""
    with pytest.raises(EmulatorError, match="rule lanes: nothing orders"):
        run(body.format(edge="", who=who), "late", threads=64)
    run(body.format(edge=WARP, who=who), "late", threads=64)


def test_a_word_that_lanes_load_together_is_stored_by_one_that_has_heard_of_the_others():
    """A lane's own load is in program order."""
    body = INIT.format(count="{count}") + "ld.shared.b32 %r5, [%r10];" + OTHERS_ARRIVE
    run(body.format(count=31), "late", threads=32)
    late = body.replace("ld.shared.b32 %r5, [%r10];", "").replace(ARRIVE, ARRIVE + "ld.shared.b32 %r5, [%r10];")
    with pytest.raises(EmulatorError, match="rule lanes: nothing orders"):
        run(late.format(count=31), "late", threads=32)


def test_a_word_that_lanes_store_together():
    """Each lane that has stored the word finds there what it has stored itself, not what it stores later."""
    together = "st.shared.b32 [%r10], 1; {edge} {then}"
    run(together.format(edge="", then="ld.shared.b32 %r5, [%r10];"), "late", threads=32)
    run(together.format(edge="", then="@%p1 ld.shared.b32 %r5, [%r10];"), "late", threads=32)


def test_a_report_names_the_bytes_and_the_mbarrier():
    """The report has all adjacent bytes of both accesses, and the mbarrier on which the copy completes."""
    body = FILLED.format(wait=WAITED, edge="")
    with pytest.raises(EmulatorError, match=r"at shared offsets 0x404\.\.0x47f of CTA \(0, 0, 0\): the copy's bytes"):
        run(body, "late")
    body = INIT.format(count=1) + "@!%p1 bra DONE;" + LOAD + ENDED + "DONE: ld.shared.b32 %r5, [%r10+8];"
    told = "which writes through the async proxy and completes on the mbarrier at shared offset 0xc00 of CTA"
    with pytest.raises(EmulatorError, match=told) as error:
        run(body, "late", threads=32)
    assert "at shared offsets 0x408..0x40b of CTA (0, 0, 0)" in error.value.reason
    with pytest.raises(EmulatorError, match=r"at columns? 0x0(\.\.0x\w+)? of CTA"):
        run(FIVE_WARPS.format(arrive="", wait=""), "late", threads=160)


WEAK = {
    "a relaxed arrival": r"mbarrier\.arrive\.relaxed\.cta\.\S+ of warp 1 .*, on the mbarrier at shared offset 0xc00",
    "a relaxed wait": r"mbarrier\.try_wait\.parity\.relaxed\.\S+ of warp 0 .*, on the mbarrier at shared offset 0xc00",
    "a relaxed load of a word": r"ld\.relaxed\.cta\.shared\.b32 of warp 0 .*, on the word at 0x800",
    "a relaxed arrival on the cluster's barrier": r"barrier\.cluster\.arrive\.relaxed\S+ of .*, on the barrier of the",
    "a relaxed arrival in another CTA": r"mbarrier\.arrive\.relaxed\.cluster\.\S+ of warp 0 .*, on the mbarrier",
}


@pytest.mark.parametrize("name", WEAK)
def test_a_report_names_what_is_relaxed(name, schedule):
    _, _, racy, _ = CASES[name]
    with pytest.raises(EmulatorError, match=f"but one of the two is relaxed\n  namely {WEAK[name]}"):
        run(racy, schedule, **options_of(racy))


def test_a_report_names_a_scope(monkeypatch):
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    with pytest.raises(
        EmulatorError, match=r"rule scope(?s:.*)namely mbarrier\.arrive\.shared::cluster\.b64 of warp 0"
    ):
        run(PASSED_ON.format(**NARROW[0]), "late", **CLUSTER)


def test_a_report_is_at_the_access():
    """The place of the error is the later access, wherever the warp is when it is checked."""
    body = OTHER_WARP.format(edge="") + "\nmov.u32 %r7, 1;\nmov.u32 %r7, 2;"
    with pytest.raises(EmulatorError, match="rule threads") as error:
        run(body, "late")
    assert error.value.ptx_text == "st.shared.b32 [%r2], %tid" and error.value.warp == 1


# Lane 0 has the tensor core copy bytes to columns, which the warp loads.
COPIED_COLUMN = f"""{INIT.format(count=1)} {ALLOC_ONE} @!%p2 bra END; mov.b64 %rd5, 0x0000400800000040;
    mov.u32 %r3, 7; mad.lo.u32 %r4, %tid, 16, %r10; st.shared.v4.b32 [%r4], {{{{%r3, %r3, %r3, %r3}}}}; {FENCE} {WARP}
    @%p1 tcgen05.cp.cta_group::1.32x128b.warpx4 [%r12], %rd5;
    @%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11]; {{wait}}
    {LOADED} mul.wide.u32 %rd2, %tid, 4; add.s64 %rd2, %a0, %rd2; st.global.b32 [%rd2], %r5; {{late}}
END: bar.sync 0; {FREE_ONE}"""


def test_a_missing_wait_is_not_reported_as_uninitialised(schedule):
    """The bytes that the load would have found are under way, and only its order is wrong."""
    with pytest.raises(EmulatorError, match="sanitizer, rule tensor-memory: nothing orders"):
        run(COPIED_COLUMN.format(wait="", late=ENDED), schedule)
    run(COPIED_COLUMN.format(wait=ENDED, late=""), schedule)


def test_rules_that_are_waived_are_listed():
    """The waived rule is not reported; reports of others say that it is waived."""
    run(OTHER_WARP.format(edge=""), "late", ["threads"])
    with pytest.raises(EmulatorError, match=r"rule lanes: .*(?s:.)*Allowed: threads; copy"):
        run(OTHER_LANE.format(edge=""), "late", ["threads", "copy"])
    with pytest.raises(ValueError, match="'race' is no rule of the sanitizer: threads, lanes"):
        Sanitizer(["race"])


def test_a_rule_that_an_opcode_waives(monkeypatch):
    """A waiver may be at one of the two accesses, and for a scope or an order also at the arrival or the wait."""
    run(OTHER_WARP.format(edge=""), "late", ["threads@ld.shared.b32"])
    with pytest.raises(EmulatorError, match="rule threads"):
        run(OTHER_WARP.format(edge=""), "late", ["threads@ld.shared.b64"])
    run(
        HANDED.format(store=STORE, arrive=RELAXED, wait=ENDED),
        "late",
        ["order@mbarrier.arrive.relaxed.cta.shared::cta.b64"],
    )
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    arrival = TO_CLUSTER.replace(".release.cluster", "")
    run(
        PASSED_ON.format(arrive=arrival, wait=FROM_CLUSTER),
        "late",
        ["scope@mbarrier.arrive.shared::cluster.b64"],
        **CLUSTER,
    )
    with pytest.raises(EmulatorError, match="rule scope"):
        run(
            PASSED_ON.format(arrive=arrival, wait=FROM_CLUSTER), "late", ["scope@mbarrier.arrive.shared.b64"], **CLUSTER
        )


def test_waivers_beside_instructions():
    """A file whose kernels have no line information waives by the opcodes of its lines."""
    line = 'arrive = ptx("@%p1 mbarrier.arrive.shared::cluster.b64 _, [$0];")'
    found = in_source(f"x = 1\n{line}  # sanitizer: allow scope, order: it is over\n", "a/kernel.py", RULES)
    assert [waiver.text for waiver in found] == [
        f"{rule}@mbarrier.arrive.shared::cluster.b64" for rule in ("scope", "order")
    ]
    assert str(found[0]) == "scope@mbarrier.arrive.shared::cluster.b64 (kernel.py:2: it is over)"
    for wrong in ("x = 1  # sanitizer: allow scope", "st.shared.b32  # sanitizer: allow race"):
        with pytest.raises(ValueError, match="kernel.py:1|'race'"):
            in_source(wrong.replace("st.", '"st.').replace("b32", 'b32"'), "kernel.py", RULES)


def test_a_rule_that_a_source_line_waives(tmp_path):
    """A waiver is for its access alone, and that rule alone."""
    source = tmp_path / "kernel.py"
    source.write_text("load(other)  # sanitizer: allow lanes, threads\nload(other)  # sanitizer: allow copy\n")
    body, declarations = OTHER_WARP.replace("{edge}", "\n.loc 1 {line} 0\n"), f'.file 1 "{source}"'
    run(body.format(line=1), "late", declarations=declarations)
    with pytest.raises(EmulatorError, match="rule threads"):
        run(body.format(line=2), "late", declarations=declarations)


def test_reports_of_a_log(monkeypatch, tmp_path):
    """Launches go on; the log has each pair of instructions once, doubts included, without a warning."""
    monkeypatch.setenv("NOGPU_SANITIZE_LOG", str(tmp_path / "log"))
    again = OTHER_LANE + "\nld.shared.b32 %r5, [%r4];"  # load of two warps
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(PASSED_ON.format(**NARROW[0]), "late", **CLUSTER)
        run(again.format(edge=""), "late")
    found = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [each["rule"] for each in found] == ["scope", "lanes", "lanes"]
    assert {each["kernel"] for each in found} == {"k"} and len({each["text"] for each in found}) == 3


PROGRAM = module(BEGIN + OTHER_WARP.format(edge=""), arguments=0)
PROGRAM = f"import nogpu; nogpu.load_ptx({PROGRAM!r})['k'].launch(4, 64, [], shared=4096)"


def test_programs_are_followed():
    """Programs under nogpu check are followed, in workers too; without it races are not sought."""
    options = ["--workers", "2", "--schedule", "late,eager"]
    found = emulated.run("-c", PROGRAM, options=["check", *options])
    assert found.returncode == 100 and "sanitizer, rule threads: nothing orders" in found.stderr
    assert "replay   nogpu check --schedule late PROGRAM" in found.stderr
    assert emulated.run("-c", PROGRAM, options=options).returncode == 0
    found = emulated.run("-c", PROGRAM, options=["check", *options, "--allow", "lanes,threads"])
    assert found.returncode == 0 and found.stderr.splitlines() == [
        "sanitizer: rules that were allowed to be broken: lanes; threads",
        "nogpu check: right: 1 launch of 1 kernel without a fault, under late, eager",
    ]
    one = ["check", "--schedule", "late,eager", "--follow", "eager"]
    found = emulated.run("-c", PROGRAM, options=one)  # other schedules run as without the sanitizer
    assert found.returncode == 100 and "schedule eager; it does not happen under late" in found.stderr


@pytest.mark.parametrize(
    "options,words",
    [
        ("explore --allow scope", "give that, too"),
        ("run --allow scope", "unrecognized arguments: --allow"),
        ("check --allow scope,race", "'race' is no rule of the sanitizer"),
        ("check --allow scope@", "'scope@' is no rule of the sanitizer"),
        ("check --follow eager", "--follow eager: launches run under late"),
        ("check --device hopper", "argument --device: invalid choice: 'hopper'"),
        ("check --chip b200", "unrecognized arguments: --chip"),
    ],
)
def test_options_that_are_refused(refusal, options, words):
    assert words in refusal(*options.split(), "-c", "")
