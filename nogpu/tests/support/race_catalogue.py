"""A catalogue of races: every kind of access in a memory, with each order that can be missing, beside an ordered twin.

A kernel has a first access and a second one; an edge says what stands ahead of the first, behind it, and ahead of the
second, in the racy kernel and in its twin. A row names the memory, the missing order and the rule.
"""

from typing import NamedTuple

from tests.support.encoding import f16_idesc, smem_descriptor
from tests.support.twins import twin

# %r10: shared memory, %r11: its mbarriers. %p1: thread 0, %p2: warp 0, %p3: thread 32, %p5: CTA 0, %p8: lanes 0 to 7.
# %r3, %rd3: a lane's word in shared and global memory, %rd4: that in shared memory by its generic address; %r13, %rd5:
# its 16 bytes; %r14: a row of 16 bytes for each of eight lanes.
BEGIN = """
    .reg .b32 %cta, %lane; mov.u32 %cta, %ctaid.x; and.b32 %lane, %tid, 31; mov.u32 %r4, 1; mov.u16 %h1, 1;
    mov.u32 %r8, 0; mov.u32 %r10, smem; add.u32 %r11, %r10, 2048;
    setp.eq.u32 %p1, %tid, 0; setp.lt.u32 %p2, %tid, 32; setp.eq.u32 %p3, %tid, 32; setp.eq.u32 %p5, %cta, 0;
    setp.lt.u32 %p8, %lane, 8; mad.lo.u32 %r3, %lane, 4, %r10; mad.lo.u32 %r13, %lane, 16, %r10;
    and.b32 %r14, %lane, 7; mad.lo.u32 %r14, %r14, 16, %r10; cvt.u64.u32 %rd4, %r3; cvta.shared.u64 %rd4, %rd4;
    mad.wide.u32 %rd3, %lane, 4, %a0; mad.wide.u32 %rd5, %lane, 16, %a0;
    @%p1 mbarrier.init.shared.b64 [%r11], COUNT; @%p1 mbarrier.init.shared.b64 [%r11+8], 1;
    @%p1 fence.mbarrier_init.release.cluster; @%p2 st.shared.b32 [%r3], 0; fence.proxy.async.shared::cta; bar.sync 0;
"""
SYNC, LANES, FENCE = "bar.sync 0;", "bar.warp.sync -1;", "fence.acq_rel.cta;"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
ARRIVE = "mbarrier.arrive.shared.b64 _, [%r11];"
RELAXED = "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r11];"


def wait(name, phase=0, how="", at=0):
    return f"{name}: mbarrier.try_wait.parity{how} %p9, [%r11+{at}], {phase}; @!%p9 bra {name};\n"


WAIT = wait("HEARS", how=".shared.b64")
RELAXED_WAIT = wait("HEARS", how=".relaxed.cta.shared::cta.b64")
STALE = wait("HEARS", 1, ".shared.b64")


class Row(NamedTuple):
    memory: str
    missing: str
    """The order that the racy kernel lacks."""
    accesses: str
    rule: str
    """The rule that reports it, "" if nothing does."""
    options: dict
    """Arguments of the launch; `count`: arrivals of the mbarrier."""
    racy: str
    legal: str


class Edge(NamedTuple):
    missing: str
    rule: str
    holes: dict
    """Texts for places of the kernel: one for both, or the racy one and the legal one."""
    count: int = 1


def edge(missing, rule, count=1, **holes):
    return Edge(missing, rule, {"ahead": "", "tell": "", "hear": "", "late": "", **holes}, count)


def rows(memory, kernel, edges, pairs, options=None):
    """Rows of each edge and each pair of accesses."""
    for each in edges:
        for first, second in pairs:
            accesses = {"first": first[1], "second": second[1]}
            _, _, racy, legal = twin("", kernel, **accesses, **each.holes)
            name = f"{first[0]}, {second[0]}"
            yield Row(memory, each.missing, name, each.rule, {**(options or {}), "count": each.count}, racy, legal)


def product(firsts, seconds):
    return [(first, second) for first in firsts.items() for second in seconds.items()]


# Two warps of a CTA, each with the same 128 bytes.
SHARED_WRITES = {
    "st": "st.shared.b32 [%r3], %lane;",
    "st.v4": "@%p8 st.shared.v4.b32 [%r13], {%r4, %r4, %r4, %r4};",
    "st.u8": "st.shared.u8 [%r3], %h1;",
    "generic st": "st.b32 [%rd4], %lane;",
    "atom": "atom.shared.add.u32 %r5, [%r3], 1;",
    "red": "red.shared.add.u32 [%r3], 1;",
    "stmatrix": "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r14], {%r4};",
}
SHARED_READS = {
    "ld": "ld.shared.b32 %r5, [%r3];",
    "ld.v4": "@%p8 ld.shared.v4.b32 {%r5, %r6, %r7, %r9}, [%r13];",
    "ld.u8": "ld.shared.u8 %h2, [%r3];",
    "generic ld": "ld.b32 %r5, [%rd4];",
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r14];",
}
GLOBAL_WRITES = {
    "st": "st.global.b32 [%rd3], %lane;",
    "st.v4": "@%p8 st.global.v4.b32 [%rd5], {%r4, %r4, %r4, %r4};",
    "st.u8": "st.global.u8 [%rd3], %h1;",
    "generic st": "st.b32 [%rd3], %lane;",
    "atom": "atom.global.add.u32 %r5, [%rd3], 1;",
    "red": "red.global.add.u32 [%rd3], 1;",
}
GLOBAL_READS = {
    "ld": "ld.global.b32 %r5, [%rd3];",
    "ld.v4": "@%p8 ld.global.v4.b32 {%r5, %r6, %r7, %r9}, [%rd5];",
    "ld.u8": "ld.global.u8 %h2, [%rd3];",
    "generic ld": "ld.b32 %r5, [%rd3];",
}


def some(accesses, *names):
    return {name: accesses[name] for name in names}


def both_ways(writes, reads):
    """Read after write, write after read, write after write."""
    store, load = some(writes, "st"), some(reads, "ld")
    return product(store, load) + product(load, store) + product(store, store)


TWO_WARPS = "@%p2 bra SECOND; {ahead} {first} {tell} bra END;\nSECOND: {hear} {second}\nEND: {late}"
NO_BARRIER = edge("no barrier", "threads", tell=("", SYNC), hear=("", SYNC))
ONE_ARRIVES = "@%p3 " + ARRIVE
FLAG = "bar.warp.sync -1; @%p3 st.{}.cta.shared.b32 [%r10+1024], 1;"
SEEN = "HEARS: ld.{}.cta.shared.b32 %r6, [%r10+1024]; setp.eq.u32 %p4, %r6, 0; @%p4 bra HEARS;"
CLEARED = "@%p1 st.shared.b32 [%r10+1024], 0; bar.sync 0;"
OF_WARPS = [
    edge(
        "wrong barrier number",
        "threads",
        tell=("bar.sync 1, 32;", "bar.sync 1, 64;"),
        hear=("bar.sync 2, 32;", "bar.sync 1, 64;"),
    ),
    edge("barrier of a warp only", "threads", tell=(LANES, SYNC), hear=(LANES, SYNC)),
    edge("a fence, no barrier", "threads", tell=(FENCE, FENCE + SYNC), hear=(FENCE, SYNC + FENCE)),
    edge("early exit", "order", tell=("exit;", SYNC), hear=SYNC),
    edge("arrival without a wait", "threads", 32, tell=ARRIVE, hear=("", WAIT)),
    edge("wrong parity", "threads", 32, tell=ARRIVE, hear=(STALE, WAIT)),
    edge("signal ahead of the access", "threads", 32, ahead=(ARRIVE, ""), tell=("", ARRIVE), hear=WAIT),
    edge("one lane signals for all", "threads", tell=(ONE_ARRIVES, LANES + ONE_ARRIVES), hear=WAIT),
    edge(
        "one lane waits for all",
        "threads",
        32,
        tell=ARRIVE,
        hear=tuple(f"@!%p1 bra HEARD; {WAIT} HEARD: {meet}" for meet in ("", LANES)),
    ),
    edge("relaxed signal", "order", 32, tell=(RELAXED, ARRIVE), hear=WAIT),
    edge("relaxed wait", "order", 32, tell=ARRIVE, hear=(RELAXED_WAIT, WAIT)),
    edge("fence ahead of the access", "order", 32, ahead=(FENCE, ""), tell=(RELAXED, FENCE + RELAXED), hear=WAIT),
    edge("fence missing behind the wait", "order", 32, tell=ARRIVE, hear=(RELAXED_WAIT, RELAXED_WAIT + FENCE)),
    edge("relaxed signal", "order", tell=(FLAG.format("relaxed"), FLAG.format("release")), hear=SEEN.format("acquire")),
    edge("relaxed wait", "order", tell=FLAG.format("release"), hear=(SEEN.format("relaxed"), SEEN.format("acquire"))),
]


def of_warps():
    for memory, writes, reads in (
        ("shared", SHARED_WRITES, SHARED_READS),
        ("global, one CTA", GLOBAL_WRITES, GLOBAL_READS),
    ):
        everything = product(writes, reads) + product(reads, writes) + product(some(writes, "st"), writes)
        yield from rows(memory, TWO_WARPS, [NO_BARRIER], everything)
        yield from rows(memory, CLEARED + TWO_WARPS, OF_WARPS, both_ways(writes, reads))


# CTAs of two clusters, of one warp each: the first is CTA 0's. The message is word 128 of global memory.
TWO_CTAS = "@!%p5 bra SECOND; {ahead} {first} {tell} bra END;\nSECOND: {hear} {second}\nEND: {late}"
TOLD = "bar.warp.sync -1; @%p1 st.release.gpu.global.b32 [%a0+512], 1;"


def heard(load="ld.acquire.gpu.global.b32 %r6,", behind="", seen="%r6"):
    return f"HEARS: {load} [%a0+512]; setp.eq.u32 %p4, {seen}, 0; @%p4 bra HEARS; {behind}"


HEARD, RELAXED_HEARD = heard(), heard("ld.relaxed.gpu.global.b32 %r6,")
RELAXED_TOLD = TOLD.replace("release", "relaxed")


def fenced(scope):
    return f"bar.warp.sync -1; @%p1 fence.acq_rel.{scope}; @%p1 st.relaxed.gpu.global.b32 [%a0+512], 1;"


def fenced_behind(scope):
    return heard("ld.relaxed.gpu.global.b32 %r6,", f"fence.acq_rel.{scope};")


FENCED = fenced("gpu")
OF_CTAS = [
    edge("no message", "clusters", tell=("", TOLD), hear=("", HEARD)),
    edge("wait for another message", "clusters", tell=TOLD, hear=(HEARD.split("setp")[0].replace("512", "640"), HEARD)),
    edge("a fence, no message", "clusters", tell=("fence.acq_rel.gpu;", TOLD), hear=("fence.acq_rel.gpu;", HEARD)),
    edge("one lane signals for all", "clusters", tell=(TOLD.removeprefix("bar.warp.sync -1;"), TOLD), hear=HEARD),
    edge("signal ahead of the access", "clusters", ahead=(TOLD, ""), tell=("", TOLD), hear=HEARD),
    edge("relaxed signal", "order", tell=(RELAXED_TOLD, TOLD), hear=HEARD),
    edge("relaxed wait", "order", tell=TOLD, hear=(RELAXED_HEARD, HEARD)),
    edge(
        "fence ahead of the access", "order", ahead=("fence.acq_rel.gpu;", ""), tell=(RELAXED_TOLD, FENCED), hear=HEARD
    ),
    edge(
        "fence missing behind the wait",
        "order",
        tell=FENCED,
        hear=(RELAXED_HEARD, fenced_behind("gpu")),
    ),
    edge(
        "fence missing ahead of the signal",
        "order",
        tell=(FENCED.replace("@%p1 fence.acq_rel.gpu;", ""), FENCED),
        hear=heard("ld.volatile.global.b32 %r6,", "membar.gl;"),
    ),
    edge(
        "mixed sizes",
        "sizes",
        tell=TOLD,
        hear=(
            heard("ld.acquire.gpu.global.b64 %rd6,", "", "%r6").replace("setp", "cvt.u32.u64 %r6, %rd6; setp"),
            HEARD,
        ),
    ),
    *(
        edge(f"scope of a {narrow}", "scope", **holes)
        for narrow, wide in (("cta", "gpu"), ("cluster", "sys"))
        for holes in (
            {"tell": (TOLD.replace("gpu", narrow), TOLD.replace("gpu", wide)), "hear": HEARD},
            {"tell": TOLD, "hear": (HEARD.replace("gpu", narrow), HEARD.replace("gpu", wide))},
            {"tell": (fenced(narrow), fenced(wide)), "hear": HEARD},
            {"tell": TOLD, "hear": (fenced_behind(narrow), fenced_behind(wide))},
        )
    ),
]


def of_ctas():
    options = {"grid": 2, "threads": 32}
    yield from rows("global, two clusters", TWO_CTAS, OF_CTAS, both_ways(GLOBAL_WRITES, GLOBAL_READS), options)
    more = product(some(GLOBAL_WRITES, "st.v4", "st.u8", "generic st", "red"), some(GLOBAL_READS, "ld"))
    yield from rows("global, two clusters", TWO_CTAS, OF_CTAS[:1], more, options)


# Read-only loads of what another warp, or another cluster, has written, in order.
NC = {
    "ld.nc": "ld.global.nc.b32 %r5, [%rd3];",
    "ld.nc.v4": "@%p8 ld.global.nc.v4.b32 {%r5, %r6, %r7, %r9}, [%rd5];",
    "ld.nc.u8": "ld.global.nc.u8 %h2, [%rd3];",
}


def of_read_only():
    for name, load in NC.items():
        for memory, kernel, tell, hear, options in (
            ("read-only, one CTA", TWO_WARPS, SYNC, SYNC, {}),
            ("read-only, two clusters", TWO_CTAS, TOLD, HEARD, {"grid": 2, "threads": 32}),
        ):
            stores = some(GLOBAL_WRITES, "st", "st.v4", "red").items()
            for each, store in stores:
                holes = {"ahead": "", "first": store, "tell": tell, "hear": hear, "late": ""}
                second = (load, load.replace(".nc", ""))
                _, _, racy, legal = twin("", kernel, second=second, **holes)
                yield Row(
                    memory, "read-only path", f"{each}, {name}", "read-only", {**options, "count": 1}, racy, legal
                )


# CTA 0 accesses CTA 1's shared memory, then CTA 1 does. %r15: the place there, %r16: its mbarrier.
DISTRIBUTED = f"""mapa.shared::cluster.u32 %r15, %r3, 1; mapa.shared::cluster.u32 %r16, %r11, 1; {MEET}
    @%p5 bra FIRST; {{hear}} {{second}} bra END;\nFIRST: {{ahead}} {{first}} {{tell}}\nEND: {{late}} {MEET}"""
REMOTE = {
    "st": "st.shared::cluster.b32 [%r15], %lane;",
    "atom": "atom.shared::cluster.add.u32 %r5, [%r15], 1;",
    "red": "red.shared::cluster.add.u32 [%r15], 1;",
    "ld": "ld.shared::cluster.b32 %r5, [%r15];",
}
REMOTE_ARRIVE = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r16];"
CLUSTER_WAIT = wait("HEARS", how=".acquire.cluster.shared::cta.b64")
RELAXED_MEET = MEET.replace("arrive", "arrive.relaxed")
ARRIVES, WAITS = MEET.split("; ")[0] + ";", MEET.split("; ")[1]
ONE_TELLS = "@%p1 " + REMOTE_ARRIVE
OF_CLUSTER = [
    edge("no barrier", "threads", tell=("", MEET), hear=("", MEET)),
    edge("barrier of the CTA", "threads", tell=(SYNC, MEET), hear=(SYNC, MEET)),
    edge("signal ahead of the access", "threads", ahead=(ARRIVES, ""), tell=(WAITS, MEET), hear=MEET),
    edge("relaxed signal", "order", tell=(RELAXED_MEET, MEET), hear=MEET),
    edge("fence of the CTA", "scope", tell=(FENCE + RELAXED_MEET, "fence.acq_rel.cluster;" + RELAXED_MEET), hear=MEET),
    edge("wrong parity", "threads", 32, tell=REMOTE_ARRIVE, hear=(CLUSTER_WAIT.replace("], 0", "], 1"), CLUSTER_WAIT)),
    edge("one lane signals for all", "threads", tell=(ONE_TELLS, LANES + ONE_TELLS), hear=CLUSTER_WAIT),
    edge(
        "relaxed signal",
        "order",
        32,
        tell=(REMOTE_ARRIVE.replace("release", "relaxed"), REMOTE_ARRIVE),
        hear=CLUSTER_WAIT,
    ),
    edge(
        "relaxed wait", "order", 32, tell=REMOTE_ARRIVE, hear=(CLUSTER_WAIT.replace("acquire", "relaxed"), CLUSTER_WAIT)
    ),
    edge(
        "signal of the CTA's scope",
        "scope",
        32,
        tell=(REMOTE_ARRIVE.replace("release.cluster.", ""), REMOTE_ARRIVE),
        hear=CLUSTER_WAIT,
    ),
    edge("wait of the CTA's scope", "scope", 32, tell=REMOTE_ARRIVE, hear=(WAIT, CLUSTER_WAIT)),
]


def of_cluster():
    own_load, own_store = some(SHARED_READS, "ld"), some(SHARED_WRITES, "st")
    pairs = product(some(REMOTE, "st", "atom", "red"), own_load) + product(some(REMOTE, "ld", "st"), own_store)
    yield from rows("distributed shared", DISTRIBUTED, OF_CLUSTER, pairs, {"grid": 2, "cluster": 2, "threads": 32})


# Copies to shared memory. Thread 32 issues those that complete on an mbarrier.
EXPECT = "@%p3 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128; "
FILLS = {
    "bulk copy": "@%p3 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [%a0], 128, [%r11];",
    "bulk copy of shared memory": "@%p3 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
    "[%r10], [%r10+256], 128, [%r11];",
    "tensor copy": "@%p3 cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
    "[%r10], [%a1, {%r8, %r8}], [%r11];",
}
FILLS = {name: EXPECT + text for name, text in FILLS.items()}
STORES = {  # they need a cluster
    "st.async": f"{EXPECT} st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r3], %lane, [%r11];",
    "red.async": f"{EXPECT} red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 "
    "[%r3], 1, [%r11];",
}
LAST = wait("LAST", how=".shared.b64")
OF_FILLS = [
    edge("no wait", "copy", hear=("", WAIT), late=LAST),
    edge("wrong parity", "copy", hear=(STALE, WAIT), late=LAST),
    edge("no barrier behind the wait", "copy", tell=(WAIT, WAIT + SYNC), hear=("", SYNC)),
]
FREED = "@%p2 mbarrier.arrive.shared.b64 _, [%r11+8];"
FREE = wait("FREE", 0, ".shared.b64", 8)
ONE_FREES = "@%p1 mbarrier.arrive.shared.b64 _, [%r11+8];"
# Warp 0 accesses the bytes, then warp 1 has them filled.
REFILL = "@!%p2 bra SECOND; {ahead} {first} {tell} bra END;\nSECOND: {hear} {second}\nEND: {late}"
OF_REFILLS = [
    edge("no barrier", "copy", tell=("", SYNC), hear=("", SYNC), late=LAST),
    edge(
        "signal ahead of the access", "copy", ahead=(ONE_FREES, ""), tell=("", LANES + ONE_FREES), hear=FREE, late=LAST
    ),
    edge("one lane signals for all", "copy", tell=(ONE_FREES, LANES + ONE_FREES), hear=FREE, late=LAST),
    edge("wrong parity", "copy", tell=LANES + ONE_FREES, hear=(FREE.replace("], 0", "], 1"), FREE), late=LAST),
]
LANE_FILLS = {
    "cp.async": "cp.async.ca.shared.global [%r3], [%rd3], 4;",
    "cp.async of 16 bytes": "@%p8 cp.async.cg.shared.global [%r13], [%rd5], 16;",
}
COMMIT, ENDED = "cp.async.commit_group;", "cp.async.wait_group 0;"
OF_LANE_FILLS = [
    edge("no wait", "copy", tell=(COMMIT + SYNC, COMMIT + ENDED + SYNC), hear=SYNC, late=ENDED),
    edge(
        "wait_group too weak",
        "copy",
        tell=tuple(f"{COMMIT} cp.async.wait_group {n}; {SYNC}" for n in (1, 0)),
        hear=SYNC,
        late=ENDED,
    ),
    edge("no commit", "copy", tell=(ENDED + SYNC + COMMIT, COMMIT + ENDED + SYNC), hear=SYNC, late=ENDED),
    edge("no barrier behind the wait", "copy", tell=(COMMIT + ENDED, COMMIT + ENDED + SYNC), hear=("", SYNC)),
]


def of_fills():
    accesses = some(SHARED_READS, "ld", "ldmatrix") | some(SHARED_WRITES, "st", "atom")
    yield from rows("shared, copies", TWO_WARPS, OF_FILLS, product(FILLS, accesses))
    yield from rows("shared, copies", REFILL, OF_REFILLS, product(some(SHARED_READS, "ld", "ldmatrix"), FILLS))
    yield from rows("shared, copies", TWO_WARPS, OF_LANE_FILLS, product(LANE_FILLS, accesses))
    pair = {"grid": 2, "cluster": 2}
    yield from rows("shared, copies", TWO_WARPS, OF_FILLS, product(STORES, some(SHARED_READS, "ld")), pair)
    yield from rows("shared, copies", REFILL, OF_REFILLS, product(some(SHARED_READS, "ld"), STORES), pair)


# Copies from shared memory, which thread 32 issues.
OUTS = {
    "bulk store": "@%p3 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r10], 128;",
    "bulk reduction": "@%p3 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%a0], [%r10], 128;",
    "tensor store": "@%p3 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%a1, {%r8, %r8}], [%r10];",
}
OUT_COMMIT = "@%p3 cp.async.bulk.commit_group;"
OUT_ENDED, OUT_READ = (f"@%p3 cp.async.bulk.wait_group{read} 0;" for read in ("", ".read"))
OUT_LAST = OUT_COMMIT + OUT_ENDED
PROXY = "fence.proxy.async.shared::cta;"


def proxy_edges(rule, late):
    """Edges of generic stores ahead of reads through the async proxy. rule: of the one without a barrier."""
    fenced = {"tell": (SYNC, PROXY + SYNC), "hear": SYNC, "late": late}
    return [
        edge("no barrier", rule, tell=(PROXY, PROXY + SYNC), hear=("", SYNC), late=late),
        edge("no proxy fence", "proxy-fence", **fenced),
        edge("fence ahead of the access", "proxy-fence", ahead=(PROXY, ""), **fenced),
    ]


OF_OUTS = [
    *proxy_edges("staging", OUT_LAST),
    edge(
        "a fence of another kind",
        "proxy-fence",
        tell=("fence.acq_rel.gpu;" + SYNC, PROXY + SYNC),
        hear=SYNC,
        late=OUT_LAST,
    ),
]
OF_STAGING = [
    edge("no wait", "staging", tell=(OUT_COMMIT + SYNC, OUT_COMMIT + OUT_READ + SYNC), hear=SYNC, late=OUT_ENDED),
    edge(
        "wait_group too weak",
        "staging",
        tell=(OUT_COMMIT + OUT_READ.replace("0;", "1;") + SYNC, OUT_COMMIT + OUT_READ + SYNC),
        hear=SYNC,
        late=OUT_ENDED,
    ),
    edge(
        "no commit",
        "staging",
        tell=(OUT_READ + SYNC + OUT_COMMIT, OUT_COMMIT + OUT_READ + SYNC),
        hear=SYNC,
        late=OUT_ENDED,
    ),
    edge(
        "another thread waits",
        "staging",
        late=OUT_ENDED,
        hear=SYNC,
        tell=(OUT_COMMIT + OUT_READ.replace("@%p3", "@!%p3") + SYNC, OUT_COMMIT + OUT_READ + SYNC),
    ),
    edge(
        "no barrier behind the wait",
        "staging",
        tell=(OUT_COMMIT + OUT_READ, OUT_COMMIT + OUT_READ + SYNC),
        hear=("", SYNC),
        late=OUT_ENDED,
    ),
]
OF_WRITTEN = [
    *(
        each._replace(
            rule="bulk-store",
            holes={
                k: tuple(t.replace(".read", "") for t in v) if isinstance(v, tuple) else v
                for k, v in each.holes.items()
            },
        )
        for each in OF_STAGING
    ),
    edge(
        "wait for the read alone",
        "bulk-store",
        tell=(OUT_COMMIT + OUT_READ + SYNC, OUT_COMMIT + OUT_ENDED + SYNC),
        hear=SYNC,
        late=OUT_ENDED,
    ),
]


def of_outs():
    stores = some(SHARED_WRITES, "st", "st.v4", "generic st", "atom", "stmatrix")
    yield from rows("shared, bulk stores", REFILL, OF_OUTS, product(stores, OUTS))
    yield from rows("shared, bulk stores", TWO_WARPS, OF_STAGING, product(OUTS, some(SHARED_WRITES, "st", "atom")))
    accesses = some(GLOBAL_READS, "ld") | some(GLOBAL_WRITES, "st")
    yield from rows("global, bulk stores", TWO_WARPS, OF_WRITTEN, product(OUTS, accesses))


# Copies that read global memory.
ANY_PROXY, GLOBAL_PROXY = "fence.proxy.async;", "fence.proxy.async.global;"
OF_COPIED = [
    edge("no barrier", "copy", tell=(ANY_PROXY, ANY_PROXY + SYNC), hear=("", SYNC), late=LAST),
    edge("no proxy fence", "global-fence", tell=(SYNC, GLOBAL_PROXY + SYNC), hear=SYNC, late=LAST),
    edge("fence of other memory", "global-fence", tell=(PROXY + SYNC, ANY_PROXY + SYNC), hear=SYNC, late=LAST),
    edge(
        "fence ahead of the access",
        "global-fence",
        ahead=(ANY_PROXY, ""),
        tell=(SYNC, ANY_PROXY + SYNC),
        hear=SYNC,
        late=LAST,
    ),
]
OF_OVERWRITTEN = [
    edge("no wait", "copy", hear=("", WAIT), late=LAST),
    edge("wrong parity", "copy", hear=(STALE, WAIT), late=LAST),
    edge("no barrier behind the wait", "copy", tell=(WAIT, WAIT + SYNC), hear=("", SYNC)),
]


def of_copied():
    fills = some(FILLS, "bulk copy", "tensor copy")
    stores = some(GLOBAL_WRITES, "st", "st.v4", "red")
    yield from rows("global, copies", REFILL, OF_COPIED, product(stores, fills))
    yield from rows("global, copies", TWO_WARPS, OF_OVERWRITTEN, product(fills, stores))
    yield from rows("global, copies", TWO_WARPS, OF_LANE_FILLS, product(LANE_FILLS, some(GLOBAL_WRITES, "st")))


# The tensor core, whose instructions thread 32 issues.
TENSOR = f"""@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10+3072], 64; bar.sync 0;
    ld.shared.b32 %r12, [%r10+3072]; setp.ne.u32 %p7, %r8, 0; mov.b32 %r17, {f16_idesc(64, 16)};
    mov.b64 %rd7, {smem_descriptor(0x400, 128, leading=128)}; mov.b64 %rd8, {smem_descriptor(0x400, 256, leading=128)};
    {{kernel}} bar.sync 0; @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r12, 64;"""
CORE = {
    "tcgen05.cp": "@%p3 tcgen05.cp.cta_group::1.32x128b.warpx4 [%r12], %rd7;",
    "tcgen05.mma": "@%p3 tcgen05.mma.cta_group::1.kind::f16 [%r12], %rd8, %rd8, %r17, %p7;",
}
CORE_COMMIT = "@%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11];"
CORE_LATER = CORE_COMMIT.replace("%r11", "%r11+8")
CORE_LAST = CORE_LATER + wait("LAST", how=".shared.b64", at=8)
OF_CORE_READS = proxy_edges("tensor-core", CORE_LAST)


def of_core(rule):
    """Edges behind what the tensor core does: of its operands' bytes, or of its columns."""
    return [
        edge("no wait", rule, tell=CORE_COMMIT + SYNC, hear=(SYNC, SYNC + WAIT), late=LAST),
        edge("wrong parity", rule, tell=CORE_COMMIT, hear=(STALE, WAIT), late=LAST),
        edge(
            "signal ahead of the access",
            rule,
            ahead=(CORE_COMMIT, ""),
            tell=("", CORE_COMMIT),
            hear=WAIT,
            late=CORE_LAST,
        ),
        edge("no commit", rule, tell=(SYNC + CORE_COMMIT, CORE_COMMIT + WAIT + SYNC), hear=SYNC, late=LAST),
        edge("no barrier behind the wait", rule, tell=(CORE_COMMIT + WAIT, CORE_COMMIT + WAIT + SYNC), hear=("", SYNC)),
    ]


COLUMN_LOAD = {
    "tcgen05.ld": "tcgen05.ld.sync.aligned.32x32b.x1.b32 %r5, [%r12]; tcgen05.wait::ld.sync.aligned;",
    "tcgen05.st": "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12], %lane; tcgen05.wait::st.sync.aligned;",
}
FIRST_ARRIVES = "@%p1 " + ARRIVE
# Warp 0 accesses columns; then thread 32 has the tensor core write them.
OF_DRAINS = [
    edge("no barrier", "tensor-memory", tell=("", SYNC), hear=("", SYNC), late=CORE_LAST),
    edge(
        "one lane signals for all",
        "tensor-memory",
        tell=(FIRST_ARRIVES, LANES + FIRST_ARRIVES),
        hear=WAIT,
        late=CORE_LAST,
    ),
    edge(
        "signal ahead of the access",
        "tensor-memory",
        ahead=(FIRST_ARRIVES, ""),
        tell=("", LANES + FIRST_ARRIVES),
        hear=WAIT,
        late=CORE_LAST,
    ),
]


def of_tensor_core():
    def kernel(text):
        return TENSOR.replace("{kernel}", text)

    reads = product(some(SHARED_WRITES, "st", "atom", "st.v4"), CORE)
    yield from rows("shared, tensor core", kernel(REFILL), OF_CORE_READS, reads)
    writes = product(CORE, some(SHARED_WRITES, "st", "red"))
    yield from rows("shared, tensor core", kernel(TWO_WARPS), of_core("tensor-core"), writes)
    yield from rows("tensor memory", kernel(TWO_WARPS), of_core("tensor-memory"), product(CORE, COLUMN_LOAD))
    yield from rows("tensor memory", kernel(REFILL), OF_DRAINS, product(COLUMN_LOAD, CORE))
    no_wait = edge("no tcgen05.wait", "tensor-memory", tell=("", "tcgen05.wait::st.sync.aligned;"))
    stores = {"tcgen05.st": COLUMN_LOAD["tcgen05.st"].split(" tcgen05.wait")[0]}
    one_warp = kernel("@!%p2 bra END; {ahead} {first} {tell} {hear} {second} {late} END:")
    yield from rows("tensor memory", one_warp, [no_wait], product(stores, COLUMN_LOAD))


# A lane does not observe what others change by the same instruction, but for the last of those that change one word.
def of_atomics():
    shared = some(SHARED_WRITES, "atom") | {"atom of one word": "atom.shared.add.u32 %r5, [%r10], 1;"}
    of_global = some(GLOBAL_WRITES, "atom") | {"atom of one word": "atom.global.add.u32 %r5, [%a0], 1;"}
    ctas = {"grid": 2, "threads": 32}
    for memory, kernel, edges, atomics, loads, options in (
        ("shared", TWO_WARPS, OF_WARPS, shared, SHARED_READS, {}),
        ("global, one CTA", TWO_WARPS, OF_WARPS, of_global, GLOBAL_READS, {}),
        ("global, two clusters", TWO_CTAS, OF_CTAS, of_global, GLOBAL_READS, ctas),
    ):
        one_signals = [each for each in edges if each.missing == "one lane signals for all"]
        yield from rows(memory, kernel, one_signals, product(atomics, some(loads, "ld")), options)


KERNELS = [
    *of_warps(),
    *of_ctas(),
    *of_read_only(),
    *of_cluster(),
    *of_fills(),
    *of_outs(),
    *of_copied(),
    *of_tensor_core(),
    *of_atomics(),
]
