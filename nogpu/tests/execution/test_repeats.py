"""Launches that do not run again: what they leave is what every launch of them would have left."""

import numpy as np
import pytest

from nogpu.cuda.backends import Emulated
from nogpu.execution import device as device_module
from nogpu.execution import repeats
from nogpu.execution.device import Device
from nogpu.execution.repeats import Repeats
from nogpu.execution.runs import Runner
from tests.execution.test_device import COUNT, ONE_WORD, config, entry, u64

PLUS_ONE = """
.visible .entry k(.param .u64 from, .param .u64 out) .reqntid 32, 1, 1
{ .reg .b32 %r<2>; .reg .b64 %rd<3>; ld.param.b64 %rd1, [from]; ld.param.b64 %rd2, [out]; ld.global.b32 %r1, [%rd1];
  add.s32 %r1, %r1, 1; st.global.b32 [%rd2], %r1; ret; }
"""
CLOCK = ONE_WORD.format("mov.u32 %r1, %clock; st.global.b32 [%rd1], 7;")
PRINT = """
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 list);
.visible .entry k(.param .u64 out) .reqntid 32, 1, 1
{ .reg .b64 %rd<2>; ld.param.b64 %rd1, [out];
  { .param .b64 p; .param .b64 q; .param .b32 r; st.param.b64 [p], %rd1; st.param.b64 [q], 0;
    call.uni (r), vprintf, (p, q); }
  ret; }
"""


class Memory:
    """Words of the device's memory, and how many launches have really run."""

    def __init__(self, monkeypatch, schedules=("late",)):
        monkeypatch.setattr(repeats, "SHARE", 1e9)
        self.device = Device(schedules)
        self.device.repeats = Repeats(self.device.memory)
        self.words = [np.zeros(32, np.uint32) for _ in range(3)]
        for words in self.words:
            self.device.memory.register(words.ctypes.data, words.nbytes)
        self.ran, run = 0, Runner.run

        def counted(runner, chain):
            self.ran += 1
            return run(runner, chain)

        monkeypatch.setattr(Runner, "run", counted)

    def launch(self, kernel, *places, times=1, **options):
        for _ in range(times):
            self.device.launch(kernel, config(1, 32), [u64(self.words[each].ctypes.data) for each in places], **options)


@pytest.fixture
def memory(monkeypatch):
    return Memory(monkeypatch)


def test_a_launch_that_changes_nothing_runs_twice(memory, capsys):
    memory.launch(entry(PLUS_ONE), 0, 1, times=7)
    assert memory.words[1][0] == 1 and memory.ran == 2 and memory.device.repeats.skipped == 5
    assert capsys.readouterr().err.count("--every-launch") == 1
    counters = memory.device.counters()
    assert len(counters) == 7 and len({each.warp_instructions for each in counters}) == 1


@pytest.mark.parametrize("changed", [0, 1, 2], ids=["operand", "result", "another"])
def test_a_change_of_memory_by_the_host_counts(memory, changed):
    kernel = entry(PLUS_ONE)
    memory.launch(kernel, 0, 1, times=4)
    memory.words[changed][0] = 41
    memory.launch(kernel, 0, 1)
    assert memory.words[1][0] == memory.words[0][0] + 1 and memory.ran == 3
    memory.launch(kernel, 0, 1, times=3)
    assert memory.words[1][0] == memory.words[0][0] + 1 and memory.ran <= 4


def test_a_change_of_memory_by_another_launch_counts(memory):
    """Two kernels of a loop in which the second undoes the first, and one in which neither does."""
    plus, count = entry(PLUS_ONE), entry(COUNT)
    for n in range(1, 6):
        memory.launch(plus, 0, 1)
        memory.launch(count, 1)
        assert memory.words[1][0] == 33, n
    assert memory.device.repeats.skipped == 0
    memory.ran = 0
    for _ in range(5):
        memory.launch(plus, 0, 1)
        memory.launch(plus, 1, 2)
        assert memory.words[2][0] == 2
    assert memory.ran < 10 and memory.device.repeats.skipped == 10 - memory.ran


def test_a_launch_that_changes_its_operand_always_runs(memory):
    memory.launch(entry(COUNT), 0, times=9)
    assert memory.words[0][0] == 9 * 32 and memory.ran == 9


def test_a_launch_that_changed_nothing_of_other_bytes_runs(memory):
    plus, other = entry(PLUS_ONE), entry(PLUS_ONE.replace("add.s32 %r1, %r1, 1", "add.s32 %r1, %r1, 2"))
    memory.launch(plus, 0, 1, times=3)
    memory.words[0][0] = 41
    memory.launch(other, 0, 2, times=3)
    memory.launch(plus, 0, 1)
    assert memory.words[1][0] == 42 and memory.words[2][0] == 43


def test_a_launch_runs_where_the_host_undoes_it(memory):
    kernel = entry(COUNT)
    for _ in range(6):
        memory.words[0][0] = 0
        memory.launch(kernel, 0)
        assert memory.words[0][0] == 32


def test_memory_that_is_new_or_gone_counts(memory):
    kernel = entry(PLUS_ONE)
    memory.launch(kernel, 0, 1, times=3)
    more = np.zeros(4, np.uint32)
    memory.device.memory.register(more.ctypes.data, more.nbytes)
    memory.launch(kernel, 0, 1)
    assert memory.ran == 3
    memory.device.memory.release(more.ctypes.data)
    memory.launch(kernel, 0, 1)
    assert memory.ran == 4


@pytest.mark.parametrize("text", [CLOCK, PRINT], ids=["clock", "printf"])
def test_other_effects_are_had_each_time(memory, text, capfd):
    memory.words[0][:2] = np.frombuffer(b"again\n\0\0", np.uint32)
    memory.launch(entry(text), 0, times=5)
    assert memory.ran == 5 and (text is CLOCK or capfd.readouterr().out.count("again") == 5 * 32)


def test_schedules_that_differ_from_launch_to_launch_run_each_time(monkeypatch):
    memory = Memory(monkeypatch, ("random:1",))
    memory.launch(entry(PLUS_ONE), 0, 1, times=4)
    assert memory.ran == 4


def test_copies_that_save_nothing_end(memory, monkeypatch):
    """A program that writes new operands before each launch pays for few copies."""
    copies, keep = [], Repeats._keep
    monkeypatch.setattr(Repeats, "_keep", lambda self, live: copies.append(1) or keep(self, live))
    kernel = entry(PLUS_ONE)
    for n in range(10):
        memory.words[0][0] = n
        memory.launch(kernel, 0, 1)
        assert memory.words[1][0] == n + 1
    assert len(copies) == repeats.ATTEMPTS


def test_short_launches_and_large_memories_are_left_alone(memory, monkeypatch):
    monkeypatch.setattr(repeats, "BYTES", 3 * 128 - 1)
    memory.launch(entry(PLUS_ONE), 0, 1, times=4)
    assert memory.ran == 4
    monkeypatch.setattr(repeats, "BYTES", 3 * 128)
    monkeypatch.setattr(repeats, "BYTES_PER_SECOND", 0)
    memory.launch(entry(PLUS_ONE), 0, 1, times=4)
    assert memory.ran == 8


@pytest.fixture
def guarded(memory, monkeypatch):
    """Memory that the host's code cannot reach."""
    monkeypatch.setattr(device_module, "_current", memory.device)
    for words in memory.words:
        memory.device.memory.at(words.ctypes.data, words.nbytes, "store").is_guarded = True
    return memory


@pytest.fixture
def compared(monkeypatch):
    """The addresses that are compared."""
    addresses, compare = [], repeats._compare
    monkeypatch.setattr(repeats, "_compare", lambda first, *rest: addresses.append(first) or compare(first, *rest))
    return addresses


def test_guarded_memory_that_nothing_has_written_is_not_compared(guarded, compared):
    kernel = entry(PLUS_ONE)
    guarded.launch(kernel, 0, 1, times=2)
    compared.clear()
    guarded.launch(kernel, 0, 1, times=9)
    assert guarded.ran == 2 and compared == []


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_write_to_guarded_memory_counts(guarded, compared, written):
    """Of the same bytes, the launch need not run; of others it does."""
    kernel, backend = entry(PLUS_ONE), Emulated()
    address = guarded.words[written].ctypes.data
    guarded.launch(kernel, 0, 1, times=3)
    backend.copy(address, guarded.words[written].copy().ctypes.data, 4, 1)
    compared.clear()
    guarded.launch(kernel, 0, 1)
    assert guarded.ran == 2 and compared == [address]
    backend.fill(address, 41, 1, 4)
    guarded.launch(kernel, 0, 1)
    assert guarded.ran == 3 and guarded.words[1][0] == guarded.words[0][0] + 1


def test_a_fill_is_left_out_only_while_nothing_has_written(guarded):
    backend, address = Emulated(), guarded.words[0].ctypes.data
    for expected in (32, 32):
        backend.fill(address, 0, 32, 4)
        guarded.launch(entry(COUNT), 0)
        assert guarded.words[0][0] == expected
    for value in (5, 6, 5):
        backend.fill(address, value, 32, 4)
        assert set(guarded.words[0]) == {value}
    backend.copy(address, np.arange(32, dtype=np.uint32).ctypes.data, 128, 1)
    backend.fill(address, 5, 32, 4)
    assert set(guarded.words[0]) == {5}
    backend.view(address, 128, "store")[:] = 1
    backend.fill(address, 5, 32, 4)
    assert set(guarded.words[0]) == {5}
    guarded.words[0][:] = 7  # what no host can do: the fill is left out
    backend.fill(address, 5, 32, 4)
    assert set(guarded.words[0]) == {7}
