"""Launches that do not run again: what they leave is what every launch of them would have left."""

import numpy as np
import pytest

from nogpu.cuda.backends import Emulated
from nogpu.errors import EmulatorError
from nogpu.execution import device as device_module
from nogpu.execution import repeats, runs
from nogpu.execution.device import Device
from nogpu.execution.repeats import Repeats
from nogpu.execution.runs import Runner
from tests.execution.test_device import COUNT, ONE_WORD, config, entry, u64

PLUS_ONE = """
.visible .entry k(.param .u64 from, .param .u64 out) .reqntid 32, 1, 1
{ .reg .b32 %r<2>; .reg .b64 %rd<3>; ld.param.b64 %rd1, [from]; ld.param.b64 %rd2, [out]; ld.global.b32 %r1, [%rd1];
  add.s32 %r1, %r1, 1; st.global.b32 [%rd2], %r1; ret; }
"""
# Loads of word 5, by compiled code, Python's rows and copies.
READ = """
.visible .entry k(.param .u64 from, .param .u64 out) .reqntid 32, 1, 1
{{ .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<4>; .shared .align 16 .b8 s[64];
  ld.param.b64 %rd1, [from]; ld.param.b64 %rd2, [out]; mov.u32 %r3, s; mov.u32 %r2, %tid.x; {}
  st.global.b32 [%rd2], %r1; ret; }}
"""
ACCESSES = [
    "ld.global.b32 %r1, [%rd1+20];",
    "ld.global.v2.b32 {%r4, %r1}, [%rd1+16];",
    "ld.b32 %r1, [%rd1+20];",
    "setp.eq.u32 %p1, %r2, 0; @%p1 ld.global.b32 %r4, [%rd1]; ld.global.b32 %r1, [%rd1+20];",
    "and.b32 %r4, %r2, 7; mul.wide.u32 %rd3, %r4, 4; add.s64 %rd3, %rd1, %rd3; ld.global.b32 %r4, [%rd3];"
    "shfl.sync.idx.b32 %r1, %r4, 5, 31, -1;",
    "atom.global.or.b32 %r1, [%rd1+20], 0;",
    "cp.async.ca.shared.global [%r3], [%rd1+20], 4; cp.async.wait_all; ld.shared.b32 %r1, [%r3];",
    "ld.global.nc.L2::128B.b32 %r1, [%rd1+20];",
]
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


@pytest.mark.parametrize("changed", [0, 1], ids=["operand", "result"])
def test_a_change_of_memory_by_the_host_counts(memory, changed):
    kernel = entry(PLUS_ONE)
    memory.launch(kernel, 0, 1, times=4)
    memory.words[changed][0] = 41
    memory.launch(kernel, 0, 1)
    assert memory.words[1][0] == memory.words[0][0] + 1 and memory.ran == 3
    memory.launch(kernel, 0, 1, times=3)
    assert memory.words[1][0] == memory.words[0][0] + 1 and memory.ran <= 4


@pytest.mark.parametrize("changed", [(2, 0), (0, 1), (1, 1)], ids=["allocation", "behind operand", "behind result"])
def test_a_change_of_what_a_launch_does_not_access_does_not_count(memory, changed):
    kernel = entry(PLUS_ONE)
    for n in range(6):
        memory.words[changed[0]][changed[1]] = n
        memory.launch(kernel, 0, 1)
    assert memory.ran == 2 and memory.words[1][0] == 1 and memory.words[changed[0]][changed[1]] == 5


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("access", ACCESSES)
def test_every_access_is_noted(memory, access, workers, monkeypatch):
    """Word 5 of the operand, which the result depends on, changes between launches."""
    monkeypatch.setattr(runs, "SPLIT_SECONDS", 0.0)
    memory.device.workers = workers
    kernel = entry(READ.format(access))
    for n in [7, 7, 7, 8, 9, 9, 9]:
        memory.words[0][5] = n
        memory.launch(kernel, 0, 1)
        assert memory.words[1][0] == n, (n, memory.words[1])
    assert memory.ran < 7 or "atom" in access


def test_launches_on_parts_of_an_allocation_are_kept_apart(memory):
    """A program with several queues gives each its part."""
    kernel = entry(PLUS_ONE)
    for _ in range(5):
        for part in range(6):
            address = memory.words[1].ctypes.data + 4 * part
            memory.device.launch(kernel, config(1, 32), [u64(memory.words[0].ctypes.data), u64(address)])
    assert memory.ran == 12 and memory.words[1].tolist()[:7] == [1] * 6 + [0]


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


def test_memory_that_is_new_or_gone_does_not_count_unless_it_is_accessed(memory):
    kernel = entry(PLUS_ONE)
    memory.launch(kernel, 0, 1, times=3)
    more = np.zeros(4, np.uint32)
    memory.device.memory.register(more.ctypes.data, more.nbytes)
    memory.launch(kernel, 0, 1)
    memory.device.memory.release(more.ctypes.data)
    memory.launch(kernel, 0, 1)
    assert memory.ran == 2
    memory.device.memory.release(memory.words[0].ctypes.data)
    with pytest.raises(EmulatorError, match="load of 4 bytes"):
        memory.launch(kernel, 0, 1)
    assert memory.ran == 3


@pytest.mark.parametrize("text", [CLOCK, PRINT], ids=["clock", "printf"])
def test_other_effects_are_had_each_time(memory, text, capfd):
    memory.words[0][:2] = np.frombuffer(b"again\n\0\0", np.uint32)
    memory.launch(entry(text), 0, times=5)
    assert memory.ran == 5 and (text is CLOCK or capfd.readouterr().out.count("again") == 5 * 32)


def test_schedules_that_differ_from_launch_to_launch_run_each_time(monkeypatch):
    memory = Memory(monkeypatch, ("random:1",))
    memory.launch(entry(PLUS_ONE), 0, 1, times=4)
    assert memory.ran == 4


@pytest.mark.parametrize("changes", [True, False])
def test_copies_that_save_nothing_end(memory, monkeypatch, changes):
    """A program that writes new operands before each launch pays for few copies, whether or not the launch changes
    its results.
    """
    copies, make_room = [], Repeats._make_room
    monkeypatch.setattr(Repeats, "_make_room", lambda self, size: copies.append(1) or make_room(self, size))
    kernel = entry(PLUS_ONE)
    for n in range(40):
        memory.words[0][0] = n
        if not changes:
            memory.words[1][0] = n + 1
        memory.launch(kernel, 0, 1)
        assert memory.words[1][0] == n + 1
    assert len(copies) == 6  # before launches 2, 3, 5, 9, 17, 33


def test_a_launch_is_looked_at_again_after_copies_in_vain(memory):
    """A program checks a kernel with several operands, and times it then."""
    kernel = entry(PLUS_ONE)
    for n in [*range(6), *[6] * 20]:
        memory.words[0][0] = n
        memory.launch(kernel, 0, 1)
        assert memory.words[1][0] == n + 1
    assert memory.ran == 9  # the ninth is looked at


def test_short_launches_and_large_memories_are_left_alone(memory, monkeypatch):
    monkeypatch.setattr(repeats, "BYTES", 7)
    memory.launch(entry(PLUS_ONE), 0, 1, times=4)
    assert memory.ran == 4
    monkeypatch.setattr(repeats, "BYTES", 8)
    monkeypatch.setattr(repeats, "BYTES_PER_SECOND", 0)
    memory.launch(entry(PLUS_ONE), 0, 1, times=4)
    assert memory.ran == 8


def test_copies_of_all_launches_have_a_limit(memory, monkeypatch):
    """Two launches whose copies do not fit together."""
    monkeypatch.setattr(repeats, "BYTES", 15)
    kernel = entry(PLUS_ONE)
    for _ in range(4):
        memory.launch(kernel, 0, 1)
        memory.launch(kernel, 0, 2)
        assert sum(known.copied for known in memory.device.repeats._known.values()) <= 15
    assert memory.words[1][0] == memory.words[2][0] == 1


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


@pytest.mark.parametrize("written", [0, 1])
def test_a_write_to_guarded_memory_counts(guarded, compared, written):
    """The launch runs if the bytes are others than before."""
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


@pytest.mark.parametrize("workers", [1, 2])
def test_a_launch_that_writes_to_guarded_memory_counts(guarded, workers, monkeypatch):
    monkeypatch.setattr(runs, "SPLIT_SECONDS", 0.0)
    guarded.device.workers = workers
    kernel, other = entry(PLUS_ONE), entry(PLUS_ONE.replace("add.s32 %r1, %r1, 1", "add.s32 %r1, %r1, 2"))
    guarded.launch(kernel, 0, 1, times=3)
    for schedules in (("late",), ("late", "eager")):
        guarded.launch(other, 2, 0, schedules=schedules)
        guarded.words[2][0] += 5  # nobody looks at what the host cannot change
        guarded.launch(kernel, 0, 1, times=3)
        assert guarded.words[1][0] == guarded.words[0][0] + 1 == guarded.words[2][0] - 2


def test_a_launch_that_has_failed_counts(guarded):
    kernel = entry(PLUS_ONE)
    fails = entry(ONE_WORD.format("st.global.b32 [%rd1], 9; mov.b64 %rd1, 64; st.global.b32 [%rd1], 7;"))
    guarded.launch(kernel, 0, 1, times=3)
    with pytest.raises(EmulatorError):
        guarded.launch(fails, 0)
    assert guarded.words[0][0] == 9
    guarded.launch(kernel, 0, 1)
    assert guarded.words[1][0] == 10
