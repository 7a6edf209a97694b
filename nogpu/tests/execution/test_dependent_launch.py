"""Programmatic dependent launch: overlap of launches, waits, resources that co-resident CTAs share."""

from dataclasses import replace

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from nogpu.execution import device as device_module
from nogpu.execution.device import Device, DeviceProperties, LaunchConfig
from nogpu.ptx import module as ptx
from tests.support.emulated import PROGRAMS, run, succeed
from tests.support.small_kernels import aligned, module

SCHEDULES = ["late", "eager", "random:1", "random:2", "random:3"]
TRIGGER = "griddepcontrol.launch_dependents;\n"
WAIT = "griddepcontrol.wait;\n"

# Waits until word {word} of a0 is set; sets word {word}.
AWAIT = "AWAIT: ld.volatile.global.b32 %r50, [%a0+4*{word}]; setp.eq.u32 %p15, %r50, 0; @%p15 bra AWAIT;\n"
SET = "mov.u32 %r51, 1; st.volatile.global.b32 [%a0+4*{word}], %r51;\n"

# word of a0 <- constant; word of a0 <- another word of a0
STORE = "mov.u32 %r52, {value}; st.global.b32 [%a0+4*{word}], %r52;\n"
COPY = "ld.global.b32 %r53, [%a0+4*{source}]; st.global.b32 [%a0+4*{word}], %r53;\n"

# 16 bytes {value} from shared memory to word {word} of a0; the CTA waits for no more than the reads
BULK_STORE = """
    mov.u32 %r54, smem; mov.u32 %r55, {value}; st.shared.b32 [%r54], %r55; fence.proxy.async.shared::cta;
    bar.warp.sync -1; setp.ne.u32 %p14, %tid, 0; @%p14 bra STORED;
    add.s64 %rd20, %a0, 4*{word}; cp.async.bulk.global.shared::cta.bulk_group [%rd20], [%r54], 16;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
STORED: bar.warp.sync -1;
"""

ALLOC = """
    mov.u32 %r56, smem; tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%r56], {columns};
    ld.shared.b32 %r57, [%r56];
"""
DEALLOC = "tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %r57, {columns};\n"
EVERYWHERE = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"


def words(text):
    """Write addresses as numbers, because PTX allows no products in addresses."""
    while "4*" in text:
        before, after = text.split("4*", 1)
        number = after[: next(i for i, c in enumerate(after) if not c.isdigit())]
        text = f"{before}{4 * int(number)}{after[len(number) :]}"
    return text


def kernel(name, *parts):
    text = module(words("".join(parts))).replace(".visible .entry k(", f".visible .entry {name}(")
    return ptx.parse(text).entries[name]


class Bench:
    """A device with an array of 64 words; every launch gets its address."""

    def __init__(self, schedules=("late",), workers=1, **properties):
        self.device = Device(tuple(schedules), workers, DeviceProperties(**properties))
        self.data = aligned(64)
        self.device.memory.register(self.data.ctypes.data, self.data.nbytes, "data")

    def launch(self, entry, grid=1, cluster=1, threads=32, shared=1024, programmatic=True):
        config = LaunchConfig((grid, 1, 1), (threads, 1, 1), (cluster, 1, 1), shared, programmatic)
        self.device.launch(entry, config, [self.data.ctypes.data.to_bytes(8, "little")])
        return self

    def results(self):
        self.device.synchronize()
        return self.data.tolist()


# A launch that ends only after the next one has started.
FIRST = kernel("first", TRIGGER, AWAIT.format(word=0))
SECOND = kernel("second", SET.format(word=0), WAIT, STORE.format(word=1, value=5))


class TestOverlap:
    @pytest.mark.parametrize("schedules", [*([s] for s in SCHEDULES), SCHEDULES[:3]])
    @pytest.mark.parametrize("grid", [1, 5])
    def test_what_is_before_the_wait_runs_beside_the_launch_before(self, schedules, grid):
        bench = Bench(schedules).launch(FIRST, grid).launch(SECOND)
        assert bench.device.pending == 1 or bench.data[1] == 5
        assert bench.results()[:2] == [1, 5] and not bench.device.pending

    def test_not_without_the_attribute(self):
        bench = Bench().launch(FIRST)
        with pytest.raises(EmulatorError, match="the kernel hangs: all warps that can run poll without an effect"):
            bench.launch(SECOND, programmatic=False)
        assert bench.results()[1] == 0

    def test_not_without_the_trigger(self):
        with pytest.raises(EmulatorError, match="the kernel hangs: all warps that can run poll"):
            Bench().launch(kernel("first", AWAIT.format(word=0))).launch(SECOND)

    def test_not_before_every_cta_has_triggered(self):
        only_one = "mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra REST;" + TRIGGER + "REST: "
        bench = Bench().launch(kernel("first", only_one, AWAIT.format(word=0)), grid=2)
        with pytest.raises(EmulatorError, match="the kernel hangs") as error:
            bench.launch(SECOND)
        assert "CTA (1, 0, 0) of launch 0 (first)" in str(error.value)
        assert "launch 1 (second) has not started: 1 of 2 CTAs of launch 0 (first) have neither" in str(error.value)

    def test_an_exit_is_a_trigger(self):
        """CTA 1 never triggers and exits, CTA 0 triggers and waits for the second launch."""
        parts = "mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra END;", TRIGGER, AWAIT.format(word=0), "END:"
        bench = Bench().launch(kernel("first", *parts), grid=2).launch(SECOND)
        assert bench.results()[1] == 5

    def test_one_thread_triggers_for_its_cta(self):
        parts = "setp.ne.u32 %p1, %tid, 40; @%p1 bra REST;", TRIGGER, "REST: ", AWAIT.format(word=0)
        assert Bench().launch(kernel("first", *parts), threads=64).launch(SECOND).results()[1] == 5

    def test_a_chain_ends(self):
        bench = Bench()
        for count in range(1, device_module.LONGEST_CHAIN):
            assert bench.launch(kernel("k", TRIGGER, WAIT, COPY.format(source=count, word=0))).device.pending == count
        assert bench.launch(kernel("k", TRIGGER)).device.pending == 0

    def test_a_launch_that_lets_nobody_start_early_runs_with_the_chain(self):
        bench = Bench().launch(kernel("k", TRIGGER)).launch(kernel("l", WAIT))
        assert bench.device.pending == 0 and len(bench.device.counters()) == 2


class TestWait:
    @pytest.mark.parametrize("schedules", [*([s] for s in SCHEDULES), SCHEDULES[:3]])
    @pytest.mark.parametrize("write", [STORE, BULK_STORE])
    def test_everything_is_visible_behind_the_wait(self, schedules, write):
        first = kernel("first", TRIGGER, write.format(word=4, value=7))
        second = kernel("second", WAIT, COPY.format(source=4, word=0))
        assert Bench(schedules).launch(first, 3).launch(second).results()[:5:4] == [7, 7]

    def test_at_once_without_a_launch_before(self):
        assert Bench().launch(kernel("k", WAIT, STORE.format(word=0, value=3), TRIGGER)).results()[0] == 3

    @pytest.mark.parametrize("write", [STORE, BULK_STORE])
    def test_a_load_before_it_may_be_stale(self, write):
        first = kernel("first", TRIGGER, write.format(word=4, value=7))
        second = kernel("second", COPY.format(source=4, word=0), WAIT, COPY.format(source=4, word=1))
        assert Bench(["late"]).launch(first).launch(second).results()[:2] == [0, 7]
        assert Bench(["eager"]).launch(first).launch(second).results()[:2] == [7, 7]
        bench = Bench(["late", "random:1", "random:2", "eager"]).launch(first)
        with pytest.raises(EmulatorError, match="schedules disagree: byte 0 of data") as error:
            bench.launch(second)
        assert error.value.kernel == "first overlapped by second"
        assert not bench.data.any()

    # The first launch reads or writes word 4; the second one overwrites it too early.
    HAZARDS = [COPY.format(source=4, word=0), STORE.format(word=4, value=7), BULK_STORE.format(word=4, value=7)]

    @pytest.mark.parametrize("hazard", HAZARDS, ids=["read", "write", "bulk write"])
    @pytest.mark.parametrize("ordered", [True, False])
    def test_a_store_before_it_is_caught(self, hazard, ordered):
        first = kernel("first", TRIGGER, hazard)
        store = STORE.format(word=4, value=9)
        second = kernel("second", *((WAIT, store) if ordered else (store, WAIT)))
        expected = Bench().launch(first).launch(second, programmatic=False).results()
        if ordered:
            for schedule in SCHEDULES:
                assert Bench([schedule]).launch(first).launch(second).results() == expected
        else:
            assert Bench(["late"]).launch(first).launch(second).results() != expected
            results = [Bench([s]).launch(first).launch(second).results() for s in ("late", *SCHEDULES[1:])]
            assert any(result != results[0] for result in results)

    @pytest.mark.parametrize("waits", [True, False])
    def test_it_is_for_the_launch_just_before(self, waits):
        """A second launch that never waits ends early, and the third one waits only for the second."""
        first = kernel("first", TRIGGER, AWAIT.format(word=0) if not waits else "", STORE.format(word=4, value=7))
        second = kernel("second", TRIGGER, WAIT if waits else "")
        third = kernel("third", WAIT, COPY.format(source=4, word=1), SET.format(word=0))
        for schedule in SCHEDULES:
            bench = Bench([schedule]).launch(first).launch(second).launch(third)
            assert bench.results()[:5] == [1, 7 if waits else 0, 0, 0, 7]

    def test_a_hang_says_what_is_waited_for(self):
        """CTA 3 of the first launch never ends; more CTAs wait for it than the report lists."""
        forever = """
            mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 3; @%p1 bra END; mov.u32 %r2, smem;
            setp.ne.u32 %p1, %tid, 0; @%p1 bra END; mbarrier.init.shared.b64 [%r2], 1;
        W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra W;
        END:
        """
        bench = Bench().launch(kernel("first", TRIGGER, forever), grid=60)
        with pytest.raises(EmulatorError, match="the kernel hangs: no warp can run") as error:
            bench.launch(kernel("second", WAIT), grid=100)
        text = str(error.value)
        assert "CTA (3, 0, 0) of launch 0 (first) warp 0" in text and "parity 0 (phase 0) of mbarrier" in text
        assert "waits for the end of launch 0 (first): 1 of 60 CTAs have not exited, 0 asynchronous" in text
        assert "... and 80 more" in text and "CTA (99, 0, 0)" not in text


class TestSharedSm:
    """Resources that the CTAs of an SM share. The chips are small, so that CTAs share SMs."""

    @pytest.mark.parametrize("columns, fits", [(256, True), (512, False)])
    def test_columns_taken_before_the_wait_may_be_those_that_the_first_launch_needs(self, columns, fits):
        alloc, dealloc = (text.format(group=1, columns=columns) for text in (ALLOC, DEALLOC))
        first = kernel("first", TRIGGER, alloc, dealloc)
        second = kernel("second", alloc, WAIT, dealloc)
        bench = Bench(sm_count=1).launch(first)
        if fits:
            bench.launch(second).results()
            return
        with pytest.raises(EmulatorError, match="the kernel hangs: no warp can run") as error:
            bench.launch(second)
        text = str(error.value)
        assert "CTA (0, 0, 0) of launch 0 (first) warp 0" in text and "tcgen05.alloc" in text
        assert "held are 512 by CTA (0, 0, 0) of launch 1 (second)" in text
        assert "waits for the end of launch 0 (first): 1 of 1 CTAs have not exited" in text
        assert bench.launch(kernel("k", STORE.format(word=0, value=3))).results()[0] == 3

    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_columns_taken_before_the_trigger_are_safe(self, schedule):
        alloc, dealloc = (text.format(group=1, columns=512) for text in (ALLOC, DEALLOC))
        first = kernel("first", alloc, TRIGGER, dealloc)
        second = kernel("second", alloc, WAIT, dealloc, STORE.format(word=0, value=3))
        assert Bench([schedule], sm_count=1).launch(first).launch(second).results()[0] == 3

    @pytest.mark.parametrize("early", [True, False])
    def test_pairs(self, early):
        alloc, dealloc = (text.format(group=2, columns=512) for text in (ALLOC, DEALLOC))
        pair = EVERYWHERE + alloc + EVERYWHERE, dealloc + EVERYWHERE
        first = kernel("first", *((TRIGGER, *pair) if early else (pair[0], TRIGGER, pair[1])))
        second = kernel("second", pair[0], WAIT, pair[1])
        bench = Bench(sm_count=2).launch(first, 2, 2)
        if not early:
            bench.launch(second, 4, 2).results()
            return
        with pytest.raises(EmulatorError, match="that many columns are not free in both"):
            bench.launch(second, 2, 2)

    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_ctas_of_one_launch_share_columns(self, schedule):
        alloc, dealloc = (text.format(group=1, columns=256) for text in (ALLOC, DEALLOC))
        first = kernel("first", TRIGGER, alloc, dealloc)
        Bench([schedule], sm_count=2).launch(first, 9).launch(kernel("second", WAIT)).results()

    ROOM = [
        (dict(shared=113 << 10), dict(shared=113 << 10), True),
        (dict(shared=113 << 10), dict(shared=(113 << 10) + 4), False),
        (dict(shared=227 << 10), dict(shared=4), False),
        (dict(threads=1024), dict(threads=1024), True),
        (dict(threads=1024, grid=2), dict(threads=32), False),
        (dict(grid=31), dict(grid=1), True),
        (dict(grid=32), dict(grid=1), False),
    ]

    @pytest.mark.parametrize("first, second, room", ROOM)
    @pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
    def test_an_sm_has_room_for_so_much(self, first, second, room, schedule):
        """The second launch may start early on one SM; on two SMs it always does."""
        assert Bench([schedule], sm_count=2).launch(FIRST, **first).launch(SECOND, **second).results()[1] == 5
        bench = Bench([schedule], sm_count=1).launch(FIRST, **first)
        if room:
            assert bench.launch(SECOND, **second).results()[1] == 5
        else:
            with pytest.raises(EmulatorError, match="the kernel hangs"):
                bench.launch(SECOND, **second)

    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_a_cluster_that_is_over_makes_room(self, schedule):
        shared = 227 << 10
        bench = Bench([schedule], sm_count=2).launch(kernel("first", TRIGGER), 5, shared=shared)
        bench.launch(kernel("second", WAIT, STORE.format(word=0, value=3)), 6, 2, shared=shared)
        assert bench.results()[0] == 3

    def test_a_cluster_is_on_different_sms(self):
        smid = "mov.u32 %r1, %smid; mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd1, %r2, 4; add.s64 %rd1, %rd1, %a0;"
        record = smid + "add.u32 %r1, %r1, 1; st.global.b32 [%rd1], %r1;"
        for schedule in SCHEDULES:
            bench = Bench([schedule], sm_count=8).launch(kernel("first", TRIGGER, record), 8, 2)
            sms = np.array(bench.launch(kernel("second", WAIT)).results()[:8]).reshape(4, 2) - 1
            assert (sms[:, 0] % 2 == 0).all() and (sms[:, 1] == sms[:, 0] + 1).all()
            assert len(set(sms[:, 0])) == {"late": 1, "eager": 4}.get(schedule, len(set(sms[:, 0])))

    def test_a_cluster_that_no_chip_can_hold(self):
        bench = Bench(sm_count=1).launch(kernel("first", TRIGGER), 2, 2)
        with pytest.raises(EmulatorError, match=r"a cluster of 2 CTAs does not fit on 1 SM\(s\)"):
            bench.launch(kernel("second", WAIT))


class TestDevice:
    BAD = kernel("bad", TRIGGER, "st.global.b32 [%a0+256], %tid;")

    @pytest.mark.parametrize("schedules", [["late"], ["late", "random:1"]])
    def test_errors_are_raised_where_the_launch_runs(self, schedules):
        bench = Bench(schedules).launch(self.BAD)
        with pytest.raises(EmulatorError, match="0 byte.s. past the end of data") as error:
            bench.device.synchronize()
        assert error.value.kernel == "bad"
        bench.device.synchronize()
        device = bench.device
        for call in (device.counters, device.reset_counters, lambda: bench.launch(SECOND, programmatic=False)):
            bench.launch(self.BAD).launch(kernel("second", TRIGGER))
            with pytest.raises(EmulatorError, match="past the end of data"):
                call()
        good = kernel("good", TRIGGER, STORE.format(word=0, value=4))
        assert bench.launch(good).launch(kernel("second", WAIT, COPY.format(source=0, word=1))).results()[:2] == [4, 4]

    def test_a_launch_that_is_refused_is_refused_at_once(self):
        bench = Bench().launch(kernel("k", TRIGGER, STORE.format(word=0, value=4)))
        with pytest.raises(EmulatorError, match="launch refused"):
            bench.launch(SECOND, threads=2048)
        assert bench.device.pending == 1 and bench.results()[0] == 4

    @pytest.mark.parametrize("schedules", [*([s] for s in SCHEDULES), ["late", "random:1"]])
    def test_counters_are_each_launch_s_own(self, schedules):
        load = """
            setp.ne.u32 %p1, %tid, 0; @%p1 bra LOADED; mov.u32 %r1, smem; add.u32 %r2, %r1, 512;
            mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
            mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 64;
            cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%a0+64], 64, [%r2];
        W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra W;
        LOADED: bar.warp.sync -1;
        """
        first = kernel("first", TRIGGER, load, BULK_STORE.format(word=4, value=7))
        second = kernel("second", TRIGGER, WAIT, STORE.format(word=0, value=1))

        def counted(programmatic):
            bench = Bench(schedules).launch(first, 3).launch(second, 2, programmatic=programmatic)
            address = bench.data.ctypes.data
            rows = [counters.as_dict() for counters in bench.device.counters()]
            return [{**row, "per_allocation": [*row["per_allocation"].values()]} for row in rows], address

        overlapping, _ = counted(True)
        assert [row["kernel"] for row in overlapping] == ["first", "second"]
        assert [row["ctas"] for row in overlapping] == [3, 2]
        assert [row["stored_bytes"] for row in overlapping] == [3 * 16, 2 * 4]
        assert [row["tma_load_requested_bytes"] for row in overlapping] == [3 * 64, 0]
        assert [row["tma_load_unique_bytes"] for row in overlapping] == [64, 0]
        assert overlapping == counted(False)[0]

    def test_the_chip_may_change_between_launches(self):
        bench = Bench()
        bench.device.properties = replace(bench.device.properties, sm_count=2)
        bench.device.schedules = ("random:4",)
        bench.launch(FIRST, shared=227 << 10).launch(SECOND)
        assert bench.results()[1] == 5 and {row.schedule for row in bench.device.counters()} == {"random:4"}
        bench.device.properties = replace(bench.device.properties, sm_count=1)
        bench.data[:] = 0
        with pytest.raises(EmulatorError, match="1 of 1 clusters of launch 1 .second. have not found room on an SM"):
            bench.launch(FIRST, shared=227 << 10).launch(SECOND)

    @pytest.mark.parametrize("schedules", [["late"], ["late", "eager"]])
    def test_progress_counts_all_clusters(self, schedules):
        bench, seen = Bench(schedules), []
        bench.device.progress = lambda done, total, _: seen.append((done, total))
        bench.launch(FIRST, 4).launch(SECOND, 2).results()
        assert seen[-1] == (6 * len(schedules), 6 * len(schedules))


def test_torch():
    succeed("pending_checks.py", NOGPU_WORKERS="1")


@pytest.mark.parametrize(
    "body, code", [("st.global.b32 [%a0+4096], %tid;", 100), pytest.param("", 0, marks=pytest.mark.slow)]
)
def test_the_exit_of_a_process_runs_what_is_pending(body, code):
    program = f"""if True:
        import torch, pending_checks
        x = torch.zeros(4, device="cuda")
        pending_checks.launch(x, pending_checks.TRIGGER, {body!r})
        print("launched")
    """
    process = run("-c", program, PYTHONPATH=str(PROGRAMS))
    assert (process.returncode, process.stdout) == (code, "launched\n"), process.stderr
    assert ("EmulatorError" in process.stderr and "kernel   k" in process.stderr) == bool(code), process.stderr
