"""The device: launch limits, runs in forked children, agreement of schedules, counters."""

import ctypes
import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from nogpu.execution import device as device_module
from nogpu.execution import runs, workers
from nogpu.execution.device import Device, DeviceProperties, LaunchConfig
from nogpu.execution.journal import journal, settle
from nogpu.hardware.memory import GlobalMemory
from nogpu.hardware.properties import check_launch, ctas_per_sm, static_shared_bytes
from nogpu.hardware.traffic import Traffic
from nogpu.ptx import module as ptx

HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"

# out[i] = i + bias for the global thread index i
ADD = """
.visible .entry add(.param .u64 out, .param .u32 bias) .reqntid 64, 1, 1
{
    .reg .b32 %r<5>; .reg .b64 %rd<4>;
    ld.param.b64 %rd1, [out]; ld.param.b32 %r1, [bias]; mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x;
    mad.lo.s32 %r2, %r3, 64, %r2; add.s32 %r1, %r1, %r2; mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2;
    st.global.b32 [%rd3], %r1;
    ret;
}
"""

ONE_WORD = """
.visible .entry k(.param .u64 out) .reqntid 32, 1, 1
{{ .reg .b32 %r<2>; .reg .b64 %rd<2>; ld.param.b64 %rd1, [out]; {} ret; }}
"""
CLASH = ONE_WORD.format("mov.u32 %r1, %ctaid.x; st.global.b32 [%rd1], %r1;")  # every CTA writes its index
BY_SM = """
.visible .entry k(.param .u64 out) .reqntid 32, 1, 1
{ .reg .b32 %r<2>; .reg .b64 %rd<3>; ld.param.b64 %rd1, [out]; mov.u32 %r1, %smid; mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd1, %rd1, %rd2; ld.global.b32 %r1, [%rd1]; add.u32 %r1, %r1, 1; st.global.b32 [%rd1], %r1; ret; }
"""  # counts, without atomics, the CTAs of each SM
COUNT = ONE_WORD.format("atom.global.add.u32 %r1, [%rd1], 1;")  # counts threads
FAULTY = ONE_WORD.format("st.global.b32 [%rd1], 7; st.global.b32 [%rd1+4096], 7;")  # writes beyond the array, too

# copies 128 bytes by a bulk copy through shared memory; at {wait} the copy has to be waited for
COPY = """
.extern .shared .align 1024 .b8 smem[];
.visible .entry copy(.param .u64 src, .param .u64 dst) .reqntid 32, 1, 1
{{
    .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %rd<6>;
    ld.param.b64 %rd1, [src]; ld.param.b64 %rd2, [dst]; mov.u32 %r1, smem; add.s32 %r2, %r1, 1024;
    mov.u32 %r3, %tid.x; setp.ne.b32 %p1, %r3, 0; @%p1 bra READY;
    mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 128;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 128, [%r2];
READY: bar.sync 0;
    {wait}
    shl.b32 %r4, %r3, 2; add.s32 %r5, %r1, %r4; ld.shared.b32 %r6, [%r5];
    cvt.u64.u32 %rd3, %r4; add.s64 %rd4, %rd2, %rd3; st.global.b32 [%rd4], %r6;
ARRIVED: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra ARRIVED;
    ret;
}}
"""
WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra WAIT;"


def entry(text: str) -> ptx.Entry:
    (result,) = ptx.parse(HEADER + text).entries.values()
    return result


def u64(value: int) -> bytes:
    return value.to_bytes(8, "little")


def u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


def config(grid, threads=64, **options):
    return LaunchConfig((grid, 1, 1), (threads, 1, 1), **options)


@pytest.fixture(autouse=True)
def reaped(monkeypatch):
    """A check that the test leaves no child behind."""
    fork, pids = os.fork, []

    def recorded():
        pid = fork()
        if pid:
            pids.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", recorded)
    yield
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


class TestLaunchLimits:
    ENTRY = ptx.Entry("k", [])
    GOOD = LaunchConfig(grid=(4, 2, 1), block=(128, 1, 1))

    REFUSED = [
        ({"block": (1024, 2, 1)}, "has 2048 threads, the limit is 1024"),
        ({"block": (1, 1, 65)}, "z must be 1 to 64"),
        ({"block": (0, 1, 1)}, "x must be 1 to 1024"),
        ({"grid": (0, 1, 1)}, "x must be 1 to 2147483647"),
        ({"grid": (1, 65536, 1)}, "y must be 1 to 65535"),
        ({"dynamic_shared_bytes": 232449}, "the limit of both together is 232448"),
        ({"cluster": (3, 1, 1)}, "is not a multiple of cluster (3, 1, 1) in x"),
        ({"cluster": (0, 1, 1)}, "every axis must be at least 1"),
        ({"grid": (16, 1, 1), "cluster": (16, 1, 1)}, "16 CTAs, the limit is 8 without the non-portable"),
        ({"grid": (32, 1, 1), "cluster": (32, 1, 1), "nonportable_cluster": True}, "32 CTAs, the limit is 16"),
        ({"grid": (149, 1, 1), "cooperative": True, "dynamic_shared_bytes": 200_000}, "149 CTAs, 148 fit"),
    ]
    TAKEN = [
        {},
        {"block": (1024, 1, 1), "dynamic_shared_bytes": 232448},
        {"grid": (16, 1, 1), "cluster": (16, 1, 1), "nonportable_cluster": True},
        {"grid": (8, 2, 1), "cluster": (4, 2, 1)},
        {"grid": (148, 1, 1), "cooperative": True, "dynamic_shared_bytes": 200_000},
    ]

    @pytest.mark.parametrize("change, text", [*REFUSED, *((change, None) for change in TAKEN)])
    def test_limits(self, change, text):
        if text is None:
            check_launch(self.ENTRY, replace(self.GOOD, **change), DeviceProperties())
            return
        with pytest.raises(EmulatorError) as error:
            check_launch(self.ENTRY, replace(self.GOOD, **change), DeviceProperties())
        assert text in error.value.reason and error.value.kernel == "k"

    def test_parameters(self):
        check_launch(ptx.Entry("k", [ptx.Param("a", 32764, 4)]), self.GOOD, DeviceProperties())
        with pytest.raises(EmulatorError, match="32768 bytes of parameters, the limit is 32764"):
            entry = ptx.Entry("k", [ptx.Param("a", 1, 1), ptx.Param("b", 32764, 4)])
            check_launch(entry, self.GOOD, DeviceProperties())
        with pytest.raises(EmulatorError, match="reqntid"):
            check_launch(ptx.Entry("k", [], reqntid=(64, 1, 1)), self.GOOD, DeviceProperties())

    def test_static_shared_memory_counts(self):
        variables = {
            "a": ptx.Variable("a", "shared", 3, 1),
            "b": ptx.Variable("b", "shared", 8, 8),
            "c": ptx.Variable("c", "shared", 0, 1024, extern=True),
            "d": ptx.Variable("d", "local", 100, 4),
        }
        kernel = ptx.Entry("k", [], variables=variables)
        assert static_shared_bytes(kernel) == 16
        with pytest.raises(EmulatorError, match="232440 bytes of dynamic and 16 of static"):
            check_launch(kernel, replace(self.GOOD, dynamic_shared_bytes=232440), DeviceProperties())

    @pytest.mark.parametrize("threads, shared, ctas", [(1024, 0, 2), (33, 0, 32), (32, 232448, 1), (32, 115712, 2)])
    def test_ctas_per_sm(self, threads, shared, ctas):
        assert ctas_per_sm(threads, shared, DeviceProperties()) == ctas


class TestWorkers:
    def test_results_keep_their_order_and_children_their_memory(self):
        data = np.zeros(4, np.uint8)

        def task(value):
            def run(_):
                time.sleep(0.02 * (3 - value))
                data[:] = value
                return int(data.sum())

            return run

        assert workers.run_forked([(str(v), task(v)) for v in range(4)], 2) == [0, 4, 8, 12]
        assert not data.any()

    def test_no_more_children_than_allowed(self, tmp_path):
        def task(_):
            mine = tmp_path / str(os.getpid())
            mine.touch()
            time.sleep(0.03)
            running = len(list(tmp_path.iterdir()))
            mine.unlink()
            return running

        running = workers.run_forked([("t", task)] * 5, 2)
        assert max(running) <= 2

    def test_large_results_and_progress(self):
        def task(report):
            for _ in range(10):
                report(3)
            return np.arange(1 << 20)

        done = []
        results = workers.run_forked([("a", task), ("b", task)], 2, done.append)
        assert all(np.array_equal(result, np.arange(1 << 20)) for result in results)
        assert sum(done) == 60

    def test_the_first_task_s_error_is_raised_whichever_comes_first(self):
        def fail(index):
            def run(_):
                time.sleep(0.1 if index == 1 else 0)
                raise EmulatorError(f"task {index}", kernel="k", cta=(1, 2, 3), warp=4, ptx_line=5, ptx_text="ret")

            return run

        def forever(_):
            time.sleep(60)

        start = time.monotonic()
        with pytest.raises(EmulatorError) as error:
            workers.run_forked([("a", lambda _: None), ("b", fail(1)), ("c", fail(2)), ("d", forever)], 4)
        assert error.value.reason == "task 1" and error.value.cta == (1, 2, 3) and error.value.ptx_line == 5
        assert time.monotonic() - start < 30

    def test_nothing_starts_after_a_failure(self, tmp_path):
        def fail(_):
            raise EmulatorError("first")

        with pytest.raises(EmulatorError, match="first"):
            workers.run_forked([("a", fail), ("b", lambda _: (tmp_path / "ran").touch())], 1)
        assert not (tmp_path / "ran").exists()

    def test_an_unexpected_error_brings_its_traceback(self):
        class Odd(Exception):
            def __reduce__(self):
                raise TypeError("not to be pickled")

        def fail(_):
            raise Odd("deep inside")

        with pytest.raises(RuntimeError, match="Odd: deep inside") as error:
            workers.run_forked([("the task", fail)], 1)
        assert isinstance(error.value.__cause__, workers.ChildTraceback)
        cause = str(error.value.__cause__)
        assert "in the process that ran the task" in cause and "in fail" in cause

    @pytest.mark.parametrize(
        "end, text",
        [
            (lambda: os.kill(os.getpid(), signal.SIGKILL), "that ran the task was killed by SIGKILL"),
            (lambda: os._exit(3), "that ran the task left with exit code 3"),
        ],
    )
    def test_a_dead_child_is_reported(self, end, text):
        with pytest.raises(EmulatorError, match=text):
            workers.run_forked([("the task", lambda _: end())], 1)

    def test_an_interrupted_parent_ends_its_children(self):
        def task(report):
            report(1)
            time.sleep(workers._REPORT_INTERVAL)
            report(1)
            time.sleep(60)

        def interrupt(_):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            workers.run_forked([("a", task), ("b", task)], 2, interrupt)

    def test_forking_in_a_callback_beside_torch_s_threads(self):
        torch = pytest.importorskip("torch")
        product = torch.ones(300, 300) @ torch.ones(300, 300)
        assert torch.relu(product).sum() == 300**3
        matrix = np.ones((200, 200), np.float32)
        np.dot(matrix, matrix)
        results = []

        @ctypes.CFUNCTYPE(ctypes.c_int)
        def callback():
            results.extend(workers.run_forked([("a", lambda _: float((matrix @ matrix).sum()))] * 3, 2))
            return 0

        assert callback() == 0 and results == [200.0**3] * 3
        assert torch.relu(product).sum() == 300**3


class TestSettling:
    @pytest.fixture
    def space(self):
        data = np.arange(253, dtype=np.uint8)
        memory = GlobalMemory()
        memory.register(data.ctypes.data, len(data), "c")
        return memory, data, data.ctypes.data

    def run(self, memory, data, writes):
        """Run the writes (offset, bytes). Returns their journal, and undoes them."""
        before = data.copy()
        memory.traffic = Traffic()
        for offset, content in writes:
            memory.write(data.ctypes.data + offset, np.frombuffer(content, np.uint8))
        result = journal(memory.traffic)
        memory.traffic = None
        data[:] = before
        return result

    @pytest.mark.parametrize(
        "writes",
        [
            *([(0, b"ab")], [(251, b"ab")], [(3, b"a"), (100, b"bc"), (7, b"d"), (3, b"e")]),
            *([(8, bytes(16)), (40, bytes(8))], [(248, b"abcde"), (0, bytes(8))], [(0, bytes(range(253))[::-1])]),
        ],
    )
    def test_what_was_written_arrives(self, space, writes):
        memory, data, _ = space
        expected = data.copy()
        for offset, content in writes:
            expected[offset : offset + len(content)] = np.frombuffer(content, np.uint8)
        settle(memory, {"late": [self.run(memory, data, writes)]}, "k")
        assert np.array_equal(data, expected)

    def test_parts_add_up_and_schedules_may_write_the_same(self, space):
        memory, data, _ = space
        late = [self.run(memory, data, [(0, b"ab"), (9, b"z")]), self.run(memory, data, [(4, b"cd"), (9, b"z")])]
        other = [self.run(memory, data, [(0, b"ab\x02\x03cd"), (9, b"z")])]  # bytes 2 and 3 keep their value
        settle(memory, {"late": late, "random:1": other}, "k")
        assert bytes(data[:10]) == b"ab\x02\x03cd\x06\x07\x08z"

    @pytest.mark.parametrize("other", [[(0, b"ab"), (4, b"x")], [(0, b"ab")], [(0, b"ab"), (4, b"c"), (200, b"c")]])
    def test_disagreement_names_the_byte_and_writes_nothing(self, space, other):
        memory, data, address = space
        before = data.copy()
        runs = {
            "late": [self.run(memory, data, [(0, b"ab"), (4, b"c")])],
            "eager": [self.run(memory, data, [(4, b"c"), (0, b"ab")])],
            "random:1": [self.run(memory, data, other)],
        }
        with pytest.raises(EmulatorError) as error:
            settle(memory, runs, "k")
        at = 200 if len(other) == 3 else 4
        assert f"byte {at} of c at {address:#x} (253 bytes), at {address + at:#x}" in error.value.reason
        assert "after late and" in error.value.reason and "after random:1" in error.value.reason
        assert np.array_equal(data, before)

    @pytest.mark.parametrize("second", [[(0, b"zzzz"), (10, b"cX")], [(0, bytes(8)), (8, b"abcXefgh")]])
    def test_parts_must_not_race(self, space, second):
        memory, data, address = space
        before = data.copy()
        first, second = self.run(memory, data, [(8, b"abcd")]), self.run(memory, data, second)
        for parts in ([first, second], [second, first]):
            with pytest.raises(EmulatorError, match=f"different clusters write different bytes to {address + 11:#x}"):
                settle(memory, {"late": parts}, "k")
        assert np.array_equal(data, before)


def make_device(schedules=("late",), count=1):
    device = Device(schedules, count)
    out = np.zeros(64 * 40, np.uint32)
    device.memory.register(out.ctypes.data, out.nbytes, "out")
    return device, out


RUNS = [(("late",), 1), (("late",), 3), (("late", "eager", "random:5"), 1), (("late", "random:5"), 2)]


class TestLaunches:
    @pytest.mark.parametrize("schedules, count", RUNS)
    def test_every_way_to_run_gives_the_same(self, schedules, count):
        device, out = make_device(schedules, count)
        progress = []
        device.progress = lambda *state: progress.append(state)
        kernel = entry(ADD)
        for bias in (5, 7):
            device.launch(kernel, config(40), [u64(out.ctypes.data), u32(bias)])
            assert np.array_equal(out, np.arange(64 * 40) + bias)
        device.synchronize()
        assert progress[-1] == (40 * len(schedules), 40 * len(schedules), 800 * len(schedules))
        first, second = device.counters()
        assert first.as_dict() == second.as_dict()
        assert (first.kernel, first.grid, first.cluster, first.schedule) == ("add", (40, 1, 1), (1, 1, 1), schedules[0])
        assert first.ctas == 40 and first.stored_bytes == out.nbytes
        assert first.warp_instructions == 40 * 2 * 10
        assert first.mma == first.tma_load_requested_bytes == 0 and first.per_allocation == {}
        device.reset_counters()
        assert device.counters() == []

    @pytest.mark.parametrize("schedules, count", RUNS)
    def test_errors_carry_their_place(self, schedules, count):
        device, out = make_device(schedules, count)
        device.memory.release(out.ctypes.data)
        device.memory.register(out.ctypes.data, 64 * 4 * 20, "out")
        with pytest.raises(EmulatorError, match=r"store of 4 bytes at .* past the end of out") as error:
            device.launch(entry(ADD), config(40), [u64(out.ctypes.data), u32(0)])
        assert (error.value.kernel, error.value.ptx_text) == ("add", "st.global.b32 [%rd3], %r1")
        assert error.value.cta[0] >= 20 and error.value.warp in (0, 1)
        device.launch(entry(ADD), config(20), [u64(out.ctypes.data), u32(9)])
        assert out[19 * 64] == 19 * 64 + 9

    def test_parameters_are_not_writable(self):
        device, _ = make_device()
        text = ADD.replace("ld.param.b64 %rd1, [out];", "mov.b64 %rd1, out; cvta.param.u64 %rd1, %rd1;")
        with pytest.raises(EmulatorError, match=r"kernel parameters at .* is read-only"):
            device.launch(entry(text), config(1), [u64(0), u32(0)])

    def test_wrong_parameters_are_refused(self):
        device, _ = make_device()
        for values in ([u64(0)], [u64(0), u64(0)]):
            with pytest.raises(EmulatorError):
                device.launch(entry(ADD), config(1), values)

    def test_clusters_that_write_one_word_are_a_race(self):
        device, out = make_device(count=2)
        with pytest.raises(EmulatorError, match=f"different clusters write different bytes to {out.ctypes.data:#x}"):
            device.launch(entry(CLASH), config(2, 32), [u64(out.ctypes.data)])
        assert out[0] == 0

    def test_ctas_that_take_turns_on_an_sm_stay_together(self):
        """Slots by %smid, as of the tensor maps of CUTLASS's arrays of GEMMs, have one CTA at a time."""
        device, out = make_device(count=3)
        count = 2 * device.properties.sm_count + 5
        device.launch(entry(BY_SM), config(count, 32), [u64(out.ctypes.data)])
        turns = np.bincount(np.arange(count) % device.properties.sm_count)
        assert np.array_equal(out[: len(turns)], turns)

    def test_ctas_that_talk_to_each_other_stay_together(self):
        device, out = make_device(("late", "random:1"), 2)
        device.launch(entry(COUNT), config(5, 32), [u64(out.ctypes.data)])
        assert out[0] == 5 * 32

    @pytest.mark.parametrize("wait", [WAIT, ""], ids=["waits", "does not wait"])
    def test_a_missing_wait_makes_schedules_disagree(self, wait):
        device, out = make_device(("late", "eager"), 2)
        out[:] = np.arange(len(out))
        src, dst = out.ctypes.data, out.ctypes.data + 1024
        kernel, config_ = entry(COPY.format(wait=wait)), config(1, 32, dynamic_shared_bytes=2048)
        if wait:
            device.launch(kernel, config_, [u64(src), u64(dst)])
            assert np.array_equal(out[256:288], np.arange(32))
            (counters,) = device.counters()
            assert counters.tma_load_requested_bytes == 128 and counters.stored_bytes == 128
            assert counters.per_allocation == {f"out@{src:#x}": (128, counters.tma_load_unique_bytes)}
            assert counters.tma_load_unique_bytes == (128 if src % 32 == 0 else 160)
        else:
            with pytest.raises(EmulatorError, match=r"schedules disagree: byte 1024 of out at .* is 0xff after late"):
                device.launch(kernel, config_, [u64(src), u64(dst)])
            assert out[256] == 256

    def test_a_seed_means_the_same_for_any_number_of_workers(self):
        text = COPY.format(wait="").replace(
            "cvt.u64.u32 %rd3, %r4;", "mov.u32 %r7, %ctaid.x; mad.lo.s32 %r7, %r7, 128, %r4; cvt.u64.u32 %rd3, %r7;"
        )
        arrived = []
        for count in (1, 2, 3):
            device, out = make_device(("random:5",), count)
            out[:32] = 7
            config_ = config(60, 32, dynamic_shared_bytes=2048)
            device.launch(entry(text), config_, [u64(out.ctypes.data), u64(out.ctypes.data + 128)])
            arrived.append((out[32 : 32 + 60 * 32].reshape(60, 32) == 7).all(axis=1).tolist())
        assert arrived[0] == arrived[1] == arrived[2]
        assert any(arrived[0]) and not all(arrived[0])

    def test_unique_bytes_are_not_added_over_workers(self):
        device, out = make_device(count=2)
        src = out.ctypes.data
        kernel = entry(COPY.format(wait=WAIT))
        config_ = config(4, 32, dynamic_shared_bytes=2048)
        device.launch(kernel, config_, [u64(src), u64(src + 1024)])
        (counters,) = device.counters()
        assert counters.tma_load_requested_bytes == 4 * 128
        assert counters.tma_load_unique_bytes in (128, 160)

    def test_a_killed_child_names_the_run(self, monkeypatch):
        device, out = make_device(count=2)
        monkeypatch.setattr(runs, "run_grids", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        with pytest.raises(EmulatorError, match="that ran add under schedule late, part 0 of 2 was killed by SIGKILL"):
            device.launch(entry(ADD), config(40), [u64(out.ctypes.data), u32(0)])

    def test_short_launches_stop_forking(self, monkeypatch):
        monkeypatch.setattr(runs, "SPLIT_SECONDS", 60.0)
        device, out = make_device(count=2)
        kernel, config_ = entry(ADD), config(2)
        device.launch(kernel, config_, [u64(out.ctypes.data), u32(0)])
        monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
        device.launch(kernel, config_, [u64(out.ctypes.data), u32(3)])
        assert out[127] == 130

    def test_the_current_device_comes_from_the_environment(self, monkeypatch):
        monkeypatch.setattr(device_module, "_current", None)
        monkeypatch.setenv("NOGPU_SCHEDULE", "late, random:3")
        monkeypatch.setenv("NOGPU_WORKERS", "3")
        device = Device.current()
        assert device is Device.current() and device.schedules == ("late", "random:3") and device.workers == 3
        for name, value in (("NOGPU_WORKERS", "two"), ("NOGPU_WORKERS", "0"), ("NOGPU_SCHEDULE", "late,late")):
            monkeypatch.setattr(device_module, "_current", None)
            with monkeypatch.context() as context:
                context.setenv(name, value)
                with pytest.raises(EmulatorError, match=f"environment variable {name}: "):
                    Device.current()


@pytest.mark.parametrize("limit", [1 << 24, 63], ids=["here", "forked"])
class TestSchedulesOfOneWorker:
    """Schedules that run in this process, if the memory is small, and see none of each other's bytes."""

    @pytest.fixture
    def device(self, monkeypatch, limit):
        monkeypatch.setattr(runs, "SNAPSHOT_BYTES", limit)
        return Device(("late", "eager", "random:1"))

    def test_every_run_starts_from_the_same_memory(self, monkeypatch, device, limit):
        out = np.full(16, 5, np.uint32)
        device.memory.register(out.ctypes.data, out.nbytes, "out")
        forked, fork = [], os.fork
        monkeypatch.setattr(os, "fork", lambda: forked.append(1) or fork())
        device.launch(entry(COUNT), config(3, 32), [u64(out.ctypes.data)])
        assert out.tolist() == [5 + 96, *[5] * 15] and bool(forked) == (limit < 64)
        assert [counters.ctas for counters in device.counters()] == [3]

    def test_a_failing_kernel_leaves_nothing(self, device):
        """The layout of memory decides which allocation is nearest and named."""
        out = np.full(16, 5, np.uint32)
        device.memory.register(out.ctypes.data, out.nbytes, "out")
        with pytest.raises(EmulatorError, match="store of 4 bytes at 0x[0-9a-f]+: outside every live allocation"):
            device.launch(entry(FAULTY), config(1, 32), [u64(out.ctypes.data)])
        assert out.tolist() == [5] * 16

    def test_schedules_that_disagree(self, device):
        source, out = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
        for array, name in ((source, "source"), (out, "out")):
            device.memory.register(array.ctypes.data, array.nbytes, name)
        arguments = [u64(source.ctypes.data), u64(out.ctypes.data)]
        with pytest.raises(EmulatorError, match="schedules disagree"):
            device.launch(entry(COPY.format(wait="")), config(1, 32, dynamic_shared_bytes=2048), arguments)
        assert not out.any()
        device.launch(entry(COPY.format(wait=WAIT)), config(1, 32, dynamic_shared_bytes=2048), arguments)
        assert out.tolist() == list(range(32))


def test_atomics_of_compiled_code_count_as_stores():
    """Forked runs send back what they have marked."""
    device, words = Device(("late", "eager")), np.zeros(2, np.uint32)
    device.memory.register(words.ctypes.data, words.nbytes)
    device.launch(entry(COUNT), config(3, 32), [u64(words.ctypes.data)])
    assert words.tolist() == [96, 0] and device.counters()[0].stored_bytes == 4 * 96


def test_marks_of_stores_are_of_one_launch(monkeypatch):
    """Two workers each give back what their CTAs have stored, not what an earlier launch has."""
    monkeypatch.setattr(runs, "SPLIT_SECONDS", 0.0)
    device, kernel, out = Device(), entry(ADD), np.zeros(4 * 64, np.uint32)
    device.memory.register(out.ctypes.data, out.nbytes)
    for device.workers, bias in ((1, 0), (1, 7), (2, 9), (1, 3), (2, 5)):
        device.launch(kernel, config(4, 64), [u64(out.ctypes.data), bias.to_bytes(4, "little")])
        assert np.array_equal(out, np.arange(4 * 64) + bias)
    assert {each.stored_bytes for each in device.counters()} == {out.nbytes}


@pytest.mark.parametrize("notes,marked", [(False, 0), (True, 4 * 4 * 64)])
def test_stores_are_marked_where_somebody_asks(monkeypatch, notes, marked):
    """Compiled code only counts the bytes that a launch in this process stores, where nothing is compared with it."""
    found = []
    give_back = Traffic.give_back

    def noted(traffic):
        found.extend(int(stores.marks.sum()) for stores in traffic.stores.values())
        give_back(traffic)

    monkeypatch.setattr(Traffic, "give_back", noted)
    asked = []
    monkeypatch.setattr(runs, "Traffic", lambda asks: asked.append(asks) or Traffic(notes))
    device, out = Device(workers=1), np.zeros(4 * 64, np.uint32)
    device.memory.register(out.ctypes.data, out.nbytes)
    device.launch(entry(ADD), config(4, 64), [u64(out.ctypes.data), bytes(4)])
    assert np.array_equal(out, np.arange(4 * 64)) and found == [marked]
    assert asked == [False]
    assert device.counters()[0].stored_bytes == out.nbytes
