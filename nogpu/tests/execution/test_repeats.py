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
from tests.execution.test_device import COUNT, FAULTY, ONE_WORD, config, entry, u64

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
# Stores to word 5, whose value before is 1, that leave 3, by compiled code, Python's rows and copies.
STORES = [
    "mov.b32 %r1, 3; st.global.b32 [%rd1+20], %r1;",
    "mov.b32 %r1, 3; st.b32 [%rd1+20], %r1;",
    "ld.global.b32 %r1, [%rd1+20]; add.u32 %r1, %r1, 2; st.global.b32 [%rd1+20], %r1;",
    "mov.b32 %r1, 3; st.global.v2.b32 [%rd1+16], {%r1, %r1};",
    "setp.eq.u32 %p1, %r2, 9; mov.b32 %r1, 3; @%p1 st.global.b8 [%rd1+20], %r1;",
    "setp.eq.u32 %p1, %r2, 9; @%p1 red.global.add.u32 [%rd1+20], 2;",
    "setp.eq.u32 %p1, %r2, 9; @%p1 atom.global.exch.b32 %r1, [%rd1+20], 3;",
    "and.b32 %r4, %r2, 7; mul.wide.u32 %rd2, %r4, 4; add.s64 %rd2, %rd1, %rd2; mov.b32 %r1, 3;"
    "st.global.b32 [%rd2], %r1;",
    "mov.b32 %r1, 3; st.shared.b32 [%r3+4], %r1; setp.eq.u32 %p1, %r2, 0; fence.proxy.async; @%p1 "
    "cp.async.bulk.global.shared::cta.bulk_group [%rd1+16], [%r3], 16; cp.async.bulk.commit_group; "
    "cp.async.bulk.wait_group 0;",
]
STORE = """
.visible .entry k(.param .u64 out) .reqntid 32, 1, 1
{{ .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<4>; .shared .align 16 .b8 s[64];
  ld.param.b64 %rd1, [out]; mov.u32 %r3, s; mov.u32 %r2, %tid.x; {} ret; }}
"""
ACCESSED_TO_5 = ONE_WORD.format("ld.global.b32 %r1, [%rd1+20]; st.global.b32 [%rd1], 7;")
GRID_BARRIER = ONE_WORD.format(
    ".reg .b32 %low, %high; .reg .b64 %rd3; mov.b32 %high, %envreg1; mov.b32 %low, %envreg2;"
    "mov.b64 %rd3, {%low, %high}; atom.global.add.u32 %r1, [%rd3+4], 1;"
    "atom.global.add.u32 %r1, [%rd1], %r1;"
)
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

    def launch(self, kernel, *places, times=1, shape=None, **options):
        for _ in range(times):
            self.device.launch(
                kernel, shape or config(1, 32), [u64(self.words[each].ctypes.data) for each in places], **options
            )


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
    for n in [*range(3), 2, 2, 2, 2, 7, 7]:
        memory.words[0][0] = n
        memory.launch(plus, 0, 1)
        memory.launch(count, 1)
        assert memory.words[1][0] == n + 33, n
    assert 0 < memory.device.repeats.skipped == 18 - memory.ran
    memory.words[0][0] = memory.ran = memory.device.repeats.skipped = 0
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
    for n in [0, 0, 0, 0, 5, 5, 5, 0]:
        memory.words[0][0] = n
        memory.launch(kernel, 0)
        assert memory.words[0][0] == n + 32
    assert memory.ran == 4  # launches 1, 2, 5, 8


@pytest.mark.parametrize("schedules", [("late",), ("eager",), ("late", "eager")])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("store", STORES)
def test_every_store_is_written_in_the_place_of_a_launch(monkeypatch, store, workers, schedules):
    monkeypatch.setattr(runs, "SPLIT_SECONDS", 0.0)
    memory = Memory(monkeypatch, schedules)
    memory.device.workers = workers
    kernel, left = entry(STORE.format(store)), []
    for _ in range(5):
        memory.words[0][:] = 1
        memory.launch(kernel, 0)
        left.append(memory.words[0].tolist())
    assert memory.ran == 2 and left == 5 * left[:1] and left[0][5] == 3


def test_bytes_that_others_change_while_a_launch_runs_are_not_known(memory, monkeypatch):
    """Another process answers a launch, which waits for it."""
    kernel, run = entry(ACCESSED_TO_5), Runner.run

    def answered(runner, chain):
        found = run(runner, chain)
        memory.words[0][3] = 1
        return found

    monkeypatch.setattr(Runner, "run", answered)
    for _ in range(5):
        memory.words[0][:6] = 0
        memory.launch(kernel, 0)
        assert memory.words[0].tolist()[:6] == [7, 0, 0, 1, 0, 0]
    assert memory.ran == 5


def test_a_launch_that_fails_does_so_each_time(memory):
    kernel = entry(FAULTY)
    for _ in range(4):
        memory.words[0][0] = 0
        with pytest.raises(EmulatorError):
            memory.launch(kernel, 0)
        assert memory.words[0][0] == 7
    assert memory.ran == 4


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
    copies, settle = [], Repeats._settle
    monkeypatch.setattr(Repeats, "_settle", lambda self, *of: copies.append(1) or settle(self, *of))
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


@pytest.mark.parametrize(("limit", "ran"), [(7, 5), (8, 2)])
def test_what_a_launch_has_stored_counts_as_a_copy(memory, monkeypatch, limit, ran):
    """Four bytes that it has found, and four that it has stored."""
    monkeypatch.setattr(repeats, "BYTES", limit)
    kernel = entry(COUNT)
    for _ in range(5):
        memory.words[0][0] = 0
        memory.launch(kernel, 0)
        assert memory.words[0][0] == 32
    assert memory.ran == ran


def test_nothing_is_compared_while_there_is_no_time(memory, compared, monkeypatch):
    """Launches run then, and what is known of them stays."""
    kernel = entry(PLUS_ONE)
    memory.launch(kernel, 0, 1, times=2)
    monkeypatch.setattr(repeats, "SHARE", 0.0)
    memory.device.repeats._seconds = -1.0
    compared.clear()
    memory.launch(kernel, 0, 1)
    assert memory.ran == 3 and compared == []
    memory.device.repeats._seconds = 1.0
    memory.launch(kernel, 0, 1)
    assert memory.ran == 3 and len(compared) == 2


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
    ran = 2
    if not written:  # nothing wrote to it between the first launches: there is no copy until something does
        backend.copy(address, guarded.words[written].copy().ctypes.data, 4, 1)
        guarded.launch(kernel, 0, 1)
        ran = 3
    backend.copy(address, guarded.words[written].copy().ctypes.data, 4, 1)
    compared.clear()
    guarded.launch(kernel, 0, 1)
    assert guarded.ran == ran and compared == [address]
    backend.fill(address, 41, 1, 4)
    guarded.launch(kernel, 0, 1)
    assert guarded.ran == ran + 1 and guarded.words[1][0] == guarded.words[0][0] + 1


def test_guarded_memory_that_nothing_writes_is_not_copied(guarded, monkeypatch):
    """A loop of a fill and a sum: only the sum's bytes are copied, and a change of the operand counts."""
    monkeypatch.setattr(repeats, "BYTES", 8)
    kernel = entry(PLUS_ONE)
    for value in [3, 3, 3, 3, 9, 9]:
        Emulated().fill(guarded.words[0].ctypes.data, value, 1, 4)
        Emulated().fill(guarded.words[1].ctypes.data, 0, 1, 4)
        guarded.launch(kernel, 0, 1)
        assert guarded.words[1][0] == value + 1
    assert guarded.ran == 4 and guarded.device.repeats._known.popitem()[1].copied <= 8


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


@pytest.mark.parametrize("is_guarded", [True, False])
def test_launches_of_a_loop_are_known_side_by_side(guarded, is_guarded):
    """A loop of fills, and of kernels each of which reads what the one before has written."""
    for words in guarded.words:
        guarded.device.memory.starting_at(words.ctypes.data).is_guarded = is_guarded
    kernels = [entry(PLUS_ONE), entry(COUNT), entry(PLUS_ONE)]
    for n in [0, 0, 0, 0, 8, 8, 8]:
        for words, value in zip(guarded.words, [n, 0, 0]):
            Emulated().fill(words.ctypes.data, value, 1, 4)
        for kernel, places in zip(kernels, [(0, 1), (1,), (1, 2)]):
            guarded.launch(kernel, *places)
        assert [words[0] for words in guarded.words] == [n, n + 33, n + 34]
    assert guarded.ran == 9


def test_an_allocation_in_the_place_of_another_is_another(guarded):
    kernel, address = entry(PLUS_ONE), guarded.words[0].ctypes.data
    guarded.launch(kernel, 0, 1, times=3)
    guarded.device.memory.release(address)
    guarded.words[0][0] = 41
    guarded.device.memory.register(address, guarded.words[0].nbytes)
    guarded.device.memory.starting_at(address).is_guarded = True
    guarded.launch(kernel, 0, 1)
    assert guarded.words[1][0] == 42


def test_a_shorter_allocation_in_the_place_of_another_is_another(memory):
    kernel, address = entry(READ.format(ACCESSES[0])), memory.words[0].ctypes.data
    memory.launch(kernel, 0, 1, times=3)
    memory.device.memory.release(address)
    memory.device.memory.register(address, 16)
    with pytest.raises(EmulatorError, match="past the end"):
        memory.launch(kernel, 0, 1)


def test_a_cooperative_launch_has_its_barrier_anew(memory):
    """Each finds the words of the grid's barrier clear, and leaves them set."""
    kernel = entry(GRID_BARRIER)
    for _ in range(5):
        memory.words[0][0] = 0
        memory.launch(kernel, 0, shape=config(2, 32, cooperative=True))
        assert memory.words[0][0] == 64 * 63 // 2
    assert memory.ran == 2
