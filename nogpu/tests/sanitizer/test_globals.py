"""The sanitizer on global memory: races of threads, copies, clusters and launches beside twins that are ordered."""

import mmap

import numpy as np
import pytest

from nogpu import EmulatorError, errors
from nogpu.execution.device import Device, LaunchConfig
from nogpu.hardware.properties import DeviceProperties
from nogpu.ptx import module as ptx
from nogpu.sanitizer.observer import Sanitizer
from tests.support.encoding import tensor_map
from tests.support.small_kernels import aligned, launch, module
from tests.support.twins import twin

BEGIN = """
    .reg .b32 %cta; mov.u32 %cta, %ctaid.x; setp.eq.u32 %p7, %cta, 0;
    mov.u32 %r10, smem; add.u32 %r11, %r10, 2048; setp.eq.u32 %p1, %tid, 0; setp.lt.u32 %p2, %tid, 32;
    mul.wide.u32 %rd2, %tid, 4; add.s64 %rd2, %a0, %rd2; mad.lo.u32 %r2, %tid, 4, %r10;
"""
STORE, LOAD = "st.global.b32 [%rd2], %tid;", "ld.global.b32 %r5, [%rd2];"
SYNC, LANES, FENCE = "bar.sync 0;", "bar.warp.sync -1;", "fence.proxy.async;"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
WAIT = "{name}: mbarrier.try_wait.parity.shared.b64 %p9, [%r11], {phase}; @!%p9 bra {name};"
INIT = "@%p1 mbarrier.init.shared.b64 [%r11], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;"

# Each thread stores a word, and loads that of another.
OTHER_WARP = """
    st.global.b32 [%rd2], %tid; {edge}
    xor.b32 %r3, %tid, 32; mul.wide.u32 %rd3, %r3, 4; add.s64 %rd3, %a0, %rd3; {access}
"""
LOAD_OTHER = "ld.global.b32 %r5, [%rd3];"
OTHER_LANE = OTHER_WARP.replace("32;", "1;", 1)

# Every CTA stores what it has loaded, to a place of its own or to that of all.
CTAS = "mad.wide.u32 %rd4, %cta, {stride}, %rd2; {access}"
LOAD_AND_STORE = "ld.global.b32 %r5, [%rd4]; st.global.b32 [%rd4], %r5;"

PEER = """
    st.global.b32 [%rd4], %cta; {meet} xor.b32 %r3, %cta, 1; mad.wide.u32 %rd5, %r3, 256, %rd2;
    ld.global.b32 %r5, [%rd5]; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""

# CTA 0 stores, and sends a message in word 128, for which CTA 1 waits before it loads.
FLAG = """
    @!%p7 bra LOADS;
    st.global.b32 [%rd2], %tid; bar.sync 0; mov.u32 %r4, 1; {tell} bra DONE;
LOADS: {wait} bar.sync 0; ld.global.b32 %r5, [%rd2];
DONE:
"""
SPIN = "@!%p1 bra SEEN; AGAIN: {load} [%a0+512]; setp.eq.u32 %p9, %r6, 0; @%p9 bra AGAIN; {fence} SEEN:"
ACQUIRE = SPIN.format(load="ld.acquire.gpu.global.b32 %r6,", fence="")
VOLATILE = SPIN.format(load="ld.volatile.global.b32 %r6,", fence="membar.gl;")
RELAXED = SPIN.format(load="ld.relaxed.gpu.global.b32 %r6,", fence="fence.acq_rel.gpu;")
UNFENCED = SPIN.format(load="ld.relaxed.gpu.global.b32 %r6,", fence="")
RELEASE = "@%p1 st.release.gpu.global.b32 [%a0+512], %r4;"
FENCED_ATOMIC = "@%p1 membar.gl; @%p1 atom.global.add.u32 %r7, [%a0+512], 1;"
FENCED_VOLATILE = "@%p1 membar.gl; @%p1 st.volatile.global.b32 [%a0+512], %r4;"

# CTA 0 sends a message to CTA 1, which sends one to CTA 2.
CHAIN = """
    @!%p7 bra LATER; st.global.b32 [%rd2], %tid; bar.sync 0; {first} bra DONE;
LATER: setp.eq.u32 %p8, %cta, 1; @!%p8 bra LAST; @!%p1 bra DONE;
ONE: ld.acquire.gpu.global.b32 %r6, [%a0+512]; setp.eq.u32 %p9, %r6, 0; @%p9 bra ONE;
    mov.u32 %r4, 1; st.release.gpu.global.b32 [%a0+640], %r4; bra DONE;
LAST: @!%p1 bra SEEN;
TWO: ld.acquire.gpu.global.b32 %r6, [%a0+640]; setp.eq.u32 %p9, %r6, 0; @%p9 bra TWO;
SEEN: bar.sync 0; ld.global.b32 %r5, [%rd2];
DONE:
"""

# The grid.sync of cooperative groups, between a store and a load of another CTA's bytes.
GRID = """
    mad.wide.u32 %rd4, %cta, 256, %rd2; st.global.b32 [%rd4], %tid; bar.sync 0; @!%p1 bra MET;
    {fence} atom.global.add.u32 %r6, [%a0+1024], 1;
AGAIN: ld.volatile.global.b32 %r6, [%a0+1024]; setp.ne.u32 %p9, %r6, 3; @%p9 bra AGAIN; {fence}
MET: bar.sync 0;
    add.u32 %r3, %cta, 1; setp.eq.u32 %p8, %r3, 3; selp.u32 %r3, 0, %r3, %p8; mad.wide.u32 %rd5, %r3, 256, %rd2;
    ld.global.b32 %r5, [%rd5];
"""

# Threads store bytes that a copy then reads; and the other way round.
COPIED = f"""{INIT} st.global.b32 [%rd2], %tid; {{before}} bar.sync 0; {{after}} @!%p1 bra WAITED;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [%a0], 128, [%r11];
WAITED: {WAIT.format(name="ENDED", phase=0)}"""
OVERWRITTEN = f"""{INIT} @!%p1 bra ISSUED; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [%a0], 128, [%r11];
ISSUED: {{before}} @!%p2 st.global.b32 [%rd2+-128], %tid; {WAIT.format(name="ENDED", phase=0)}"""

# Bytes that a bulk store has written, or has still to write.
STORED = """
    st.shared.b32 [%r2], %tid; fence.proxy.async; bar.sync 0;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r10], 256; @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group{read} 0; {edge} {access} @%p1 cp.async.bulk.wait_group 0;
"""
REDUCED = """
    st.shared.b32 [%r2], %tid; {first} fence.proxy.async; bar.sync 0;
    @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%a0], [%r10], 256;
    @%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;
"""
LANE_COPY = """
    cp.async.ca.shared.global [%r2], [%rd2], 4; {edge}
    xor.b32 %r3, %tid, 32; mul.wide.u32 %rd3, %r3, 4; add.s64 %rd3, %a0, %rd3; st.global.b32 [%rd3], %tid;
    cp.async.wait_all;
"""

TWO, THREE = {"grid": 2}, {"grid": 3}
CASES = {
    "two warps": twin("threads", OTHER_WARP, edge=("", SYNC), access=LOAD_OTHER),
    "two warps store": twin("threads", OTHER_WARP, edge=("", SYNC), access="st.global.b32 [%rd3], %tid;"),
    "two lanes": twin("lanes", OTHER_LANE, edge=("", LANES), access=LOAD_OTHER),
    "a plain load beside an atomic": twin(
        "threads",
        "@%p1 atom.global.add.u32 %r5, [%a0], 1; {edge} setp.eq.u32 %p3, %tid, 32; @%p3 {load} %r6, [%a0];",
        edge="",
        load=("ld.global.b32", "ld.relaxed.gpu.global.b32"),
    ),
    "two CTAs store": twin("clusters", CTAS, TWO, stride=(0, 256), access="st.global.b32 [%rd4], %cta;"),
    "two CTAs add": twin("clusters", CTAS, TWO, stride=0, access=(LOAD_AND_STORE, "red.global.add.u32 [%rd4], 1;")),
    "two CTAs of a cluster": twin(
        "threads", CTAS.replace("{access}", PEER), {"grid": 2, "cluster": 2}, stride=256, meet=("", MEET)
    ),
    "a flag without an order": twin(
        "order", FLAG, TWO, tell=(RELEASE.replace("release", "relaxed"), RELEASE), wait=ACQUIRE
    ),
    "a flag that nobody waits for": twin(
        "clusters", FLAG, TWO, tell=RELEASE, wait=("@%p1 ld.acquire.gpu.global.b32 %r6, [%a0+640];", ACQUIRE)
    ),
    "a relaxed flag without a fence": twin("order", FLAG, TWO, tell=FENCED_ATOMIC, wait=(UNFENCED, RELAXED)),
    "a volatile flag": twin(
        "order", FLAG, TWO, tell=(FENCED_VOLATILE.replace("@%p1 membar.gl;", ""), FENCED_VOLATILE), wait=VOLATILE
    ),
    "a flag before the barrier": twin(
        "clusters", FLAG.replace("bar.sync 0;", "{meet}", 1), TWO, tell=RELEASE, wait=ACQUIRE, meet=("", SYNC)
    ),
    "a chain of three CTAs": twin(
        "order",
        CHAIN,
        THREE,
        first=("@%p1 atom.relaxed.gpu.global.add.u32 %r4, [%a0+512], 1;", "mov.u32 %r4, 1;" + RELEASE),
    ),
    "a barrier of the grid": twin("order", GRID, THREE, fence=("", "membar.gl;")),
    "a copy reads what threads have stored": twin(
        "global-fence", COPIED, before=("fence.proxy.async.shared::cta;", "fence.proxy.async.global;"), after=""
    ),
    "a copy reads before the barrier": twin(
        "copy", COPIED.replace("bar.sync 0; {after}", "{after}"), before=FENCE, after=("", SYNC)
    ),
    "the fence is behind the barrier": twin("global-fence", COPIED, before="", after=("", FENCE)),
    "threads store what a copy reads": twin("copy", OVERWRITTEN, before=("", WAIT.format(name="OVER", phase=0))),
    "a bulk store is read": twin("bulk-store", STORED, read=(".read", ""), edge=SYNC, access=LOAD),
    "a bulk store is read by others": twin("bulk-store", STORED, read="", edge=("", SYNC), access=LOAD),
    "a bulk store is overwritten": twin("bulk-store", STORED, read=(".read", ""), edge=SYNC, access=STORE),
    "CTAs reduce what one has stored": twin("clusters", REDUCED, TWO, first=("@%p7 st.global.b32 [%rd2], %tid;", "")),
    "cp.async": twin("copy", LANE_COPY, edge=("", "cp.async.wait_all; bar.sync 0;")),
}


def run(body, schedule, allowed=(), words=None, **options):
    options = {"threads": 64} | options
    words = aligned(512) if words is None else words
    launch(BEGIN + body, words, schedule=schedule, sanitizer=Sanitizer(allowed), **options)


@pytest.mark.parametrize("name", CASES)
def test_a_race_is_reported_and_its_ordered_twin_is_silent(name, schedule):
    """The report names its rule, both accesses and the allocation, under every schedule."""
    rule, options, racy, legal = CASES[name]
    with pytest.raises(EmulatorError, match=f"sanitizer, rule {rule}: nothing orders") as error:
        run(racy, schedule, **options)
    assert error.value.reason.partition("namely")[0].count("at PTX line") == 2 and "(PTX ISA, " in error.value.reason
    assert " of a0 at 0x" in error.value.reason
    run(legal, schedule, **options)


@pytest.fixture
def low_words():
    """512 words below 4 GiB, where the heap of a Python lies that is no position-independent executable."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_32BIT", 0x40)
    words = np.frombuffer(mmap.mmap(-1, 2048, flags=flags), np.uint32)
    if words.ctypes.data >> 32:
        pytest.skip("MAP_32BIT is of x86")
    return words


@pytest.mark.parametrize("name", ["a flag without an order", "a chain of three CTAs", "a barrier of the grid"])
def test_words_of_low_addresses_order_clusters(name, low_words):
    rule, options, racy, legal = CASES[name]
    with pytest.raises(EmulatorError, match=f"rule {rule}: nothing orders"):
        run(racy, "late", words=low_words, **options)
    low_words[:] = 0
    run(legal, "late", words=low_words, **options)


# A tensor map in global memory (%a1) that threads edit, and a copy that uses it, twice. %a2: another tensor.
EDIT = """
    @!%p1 bra EDITED{i}; tensormap.replace.tile.global_address.global.b1024.b64 [%a1], %a{tensor}; {release}
EDITED{i}: bar.warp.sync -1;
"""
PUBLISH = """
    @!%p1 bra EDITED{i}; tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r10+1024], %a{tensor};
EDITED{i}: bar.warp.sync -1;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%a1], [%r10+1024], 128;
"""
USE = """
    {acquire} @!%p1 bra ISSUED{i}; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128; mov.u32 %r8, 0;
    cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r10], [%a1, {{{{%r8, %r8}}}}],
        [%r11];
ISSUED{i}:
"""
RELEASE_MAP = "fence.proxy.tensormap::generic.release.gpu;"
ACQUIRE_MAP = "fence.proxy.tensormap::generic.acquire.gpu [%a1], 128;"
ACQUIRE_OTHER = ACQUIRE_MAP.replace("%a1", "%a2")
FETCH = """
    mad.wide.u32 %rd6, %tid, 4, %a1; ld.global.b32 %r9, [%rd6];
    mad.lo.u32 %r7, %tid, 4, %r10; st.shared.b32 [%r7+1024], %r9; bar.warp.sync -1;
"""
ENDED = WAIT.format(name="ENDED", phase=0)
ONCE = INIT + EDIT.format(i=0, tensor=2, release="{release}") + USE.format(i=0, acquire="{acquire}") + ENDED
PUBLISHED = INIT + FETCH + PUBLISH.format(i=0, tensor=2) + USE.format(i=0, acquire="{acquire}") + ENDED
EDITS = [EDIT.format(i=i, tensor=tensor, release=RELEASE_MAP) for i, tensor in ((0, 2), (1, 0))]
TWICE = INIT + EDITS[0] + USE.format(i=0, acquire=ACQUIRE_MAP) + "{wait}" + EDITS[1] + ENDED
READ_WAIT = "@%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group.read 0; bar.warp.sync -1;"
MAPS = {
    "no release": twin("map-fence", ONCE, release=("", RELEASE_MAP), acquire=ACQUIRE_MAP),
    "no acquire": twin("map-fence", ONCE, release=RELEASE_MAP, acquire=("", ACQUIRE_MAP)),
    "an acquire of other bytes": twin(
        "map-fence", ONCE, release=RELEASE_MAP, acquire=(ACQUIRE_OTHER, ACQUIRE_OTHER + ACQUIRE_MAP)
    ),
    "no acquire of a published map": twin("map-fence", PUBLISHED, acquire=("", ACQUIRE_MAP)),
    "a fence of the async proxy instead": twin(
        "map-fence", ONCE, release=(FENCE, RELEASE_MAP), acquire=(FENCE, ACQUIRE_MAP)
    ),
    "edited while a copy may read it": twin("tensor-map", TWICE, wait=("", READ_WAIT)),
    "edited behind the copy": twin("tensor-map", TWICE, wait=("", WAIT.format(name="OVER", phase=0))),
}


def run_maps(body, schedule):
    tensors = [aligned(np.arange(64, dtype=np.uint32).reshape(4, 16)) for _ in range(2)]
    sizes = [tensors[0].ctypes.data, (16, 4), (64,), (16, 2), "u32"]
    tensor_map_bytes = aligned(tensor_map(*sizes))
    arrays = tensors[0], tensor_map_bytes, tensors[1]
    launch(BEGIN + body, *arrays, schedule=schedule, sanitizer=Sanitizer())


@pytest.mark.parametrize("name", MAPS)
def test_tensor_maps(name, schedule):
    """A copy may miss an edit, or see it too early; ordered edits are silent."""
    rule, _, racy, legal = MAPS[name]
    with pytest.raises(EmulatorError, match=f"sanitizer, rule {rule}: nothing orders") as error:
        run_maps(racy, schedule)
    assert "tensormap proxy" in error.value.reason and " of a1 at 0x" in error.value.reason
    run_maps(legal, schedule)


def test_a_tensor_map_that_a_lenient_run_reads_at_issue(monkeypatch):
    """A lenient run reads the map at issue, but hardware may read it later."""
    monkeypatch.setenv("NOGPU_LENIENT", "1")
    rule, _, racy, legal = MAPS["edited while a copy may read it"]
    with pytest.raises(EmulatorError, match=f"sanitizer, rule {rule}: nothing orders"):
        run_maps(racy, "late")
    run_maps(legal, "late")


TRIGGER, WAIT_AHEAD = "griddepcontrol.launch_dependents;", "griddepcontrol.wait;"
NOTHING = "mov.u32 %r5, 0;"


def run_launches(schedule, *bodies, programmatic=True, between=lambda device: None, ctas=2, threads=32, workers=1):
    """Launches of one queue, on one array."""
    device = Device((schedule,), workers, DeviceProperties())
    device.sanitizer = Sanitizer()
    data = aligned(512)
    device.memory.register(data.ctypes.data, data.nbytes, "data")
    for number, body in enumerate(bodies):
        text = module(BEGIN + body).replace(".entry k(", f".entry k{number}(")
        config = LaunchConfig((ctas, 1, 1), (threads, 1, 1), (1, 1, 1), 4096, programmatic)
        device.launch(ptx.parse(text).entries[f"k{number}"], config, [data.ctypes.data.to_bytes(8, "little")])
        between(device)
    device.synchronize()


ONLY_FIRST = "@%p7 "
FIRST, FENCE_GPU = ONLY_FIRST + STORE + TRIGGER, "fence.acq_rel.gpu;"
FENCED_FIRST, LATE_STORE = ONLY_FIRST + STORE + FENCE_GPU + TRIGGER, TRIGGER + ONLY_FIRST + STORE
# name: (what a race does, what an ordered one does)
LAUNCHES = {
    "a load before the wait": ([FIRST, LOAD + WAIT_AHEAD], [FIRST, WAIT_AHEAD + LOAD]),
    "a store before the wait": (
        [TRIGGER + LOAD, ONLY_FIRST + STORE + WAIT_AHEAD],
        [TRIGGER + LOAD, WAIT_AHEAD + ONLY_FIRST + STORE],
    ),
    "a store behind the trigger": ([LATE_STORE, LOAD], [LATE_STORE, WAIT_AHEAD + LOAD]),
    "a launch between does not wait": (
        [FIRST, TRIGGER + NOTHING, WAIT_AHEAD + LOAD],
        [FIRST, TRIGGER + WAIT_AHEAD, WAIT_AHEAD + LOAD],
    ),
    "a fence of the CTA before the trigger": (
        [FENCED_FIRST.replace("gpu", "cta"), LOAD + WAIT_AHEAD],
        [FENCED_FIRST, LOAD + WAIT_AHEAD],
    ),
    "a store behind the fence before the trigger": ([FENCE_GPU + FIRST, LOAD], [FENCED_FIRST, LOAD]),
    "a fence before the second trigger": (
        [LATE_STORE + FENCE_GPU + TRIGGER, LOAD],
        [FENCED_FIRST.replace("gpu", "sys"), LOAD],
    ),
    "a launch between that passes nothing on": (
        [FENCED_FIRST, TRIGGER + NOTHING, LOAD],
        [FENCED_FIRST, FENCE_GPU + TRIGGER + NOTHING, LOAD],
    ),
    "another lane has waited": (
        [FIRST, "@%p1 griddepcontrol.wait;" + LOAD],
        [FIRST, "@%p1 griddepcontrol.wait; bar.warp.sync -1;" + LOAD],
    ),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_programmatic_launches(name, schedule):
    """Accesses without a wait for the previous launch are unordered with all of it; the report names both launches."""
    racy, legal = LAUNCHES[name]
    with pytest.raises(EmulatorError, match="sanitizer, rule launch: nothing orders") as error:
        run_launches(schedule, *racy)
    assert " of launch 0 (k0) at PTX line" in error.value.reason
    assert f" of launch {len(racy) - 1} (k{len(racy) - 1}) at PTX line" in error.value.reason
    run_launches(schedule, *legal)


def test_read_only_loads_of_what_the_launch_ahead_writes(monkeypatch):
    """They are a doubt behind the wait for that launch; an ordinary launch begins when it has ended."""
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    bodies = [FIRST, WAIT_AHEAD + LOAD.replace("global", "global.nc")]
    with pytest.raises(EmulatorError, match="sanitizer, rule read-only: nothing orders"):
        run_launches("late", *bodies)
    run_launches("late", *bodies, programmatic=False)
    run_launches("late", FIRST, WAIT_AHEAD + LOAD)
    monkeypatch.setenv("NOGPU_LENIENT", "")
    with pytest.warns(errors.OrderingWarning, match="rule read-only"):
        run_launches("late", *bodies)


def test_ordinary_launches_are_in_order(schedule):
    """The launches lack the attribute, or the host waits in between."""
    racy, _ = LAUNCHES["a load before the wait"]
    run_launches(schedule, *racy, programmatic=False)
    run_launches(schedule, *racy, between=Device.synchronize)


def test_what_threads_have_fenced_is_each_lanes_own():
    """Lane 0 issues a copy of bytes that 32 lanes have stored and fenced: nothing orders that before its issue."""
    body = """
        st.shared.b32 [%r2], %tid; fence.proxy.async.shared::cta; {edge}
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r10], 128;
        @%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;
    """
    with pytest.raises(EmulatorError, match="sanitizer, rule staging"):
        run(body.format(edge=""), "late", threads=32)
    run(body.format(edge="bar.warp.sync -1;"), "late", threads=32)


def test_clusters_run_where_their_races_are_seen():
    """Clusters run in one process, not in several workers."""
    with pytest.raises(EmulatorError, match="sanitizer, rule clusters"):
        run_launches("late", "st.global.b32 [%rd2], 7;", threads=64, workers=2)


def test_nothing_is_left_behind():
    """A launch without the sanitizer is not observed; the next one with it begins afresh."""

    def check(device):
        device.synchronize()
        assert device.memory.observer is None

    run_launches("late", STORE, "@%p1 st.global.b32 [%a0], 7;", programmatic=False, between=check, ctas=1, threads=64)
