"""The jobs that a mode runs on a case: check, count, time, profile. They run in the judge, which never imports the
submission: it makes inputs and expected outputs, has the worker call the submission, and compares the outputs' bytes
in its own memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from harness import messages
from harness.cases import CALLS, Case, Inputs
from harness.clocks import Clocking
from harness.counts import launches_text
from harness.results import Plans, Result
from harness.timing import Limits, Stats, measure, release_memory, repeat, time_calls

if TYPE_CHECKING:  # an import of torch
    from harness.shared_memory import SharedMemory

NOT_CHECKED = "output not checked"
OMITTED = "Hopper, tensor core omitted"
WARM_UP_REPEATS = 3  # repeats; the first timing of a process loads modules and allocates the flush

Body = TypeVar("Body", bound=messages.Message)


class Asks(Protocol):
    """The worker process, as jobs use it."""

    memory: SharedMemory

    def ask(self, request: messages.Request, reply: type[Body], meanwhile: Callable[[], Any] | None = None) -> Body:
        """Send a request and return the reply, of class `reply`. meanwhile: called while the worker works."""


@dataclass(frozen=True)
class Trial:
    """A case before the judge: the case and the worker process that calls the submission."""

    case: Case
    worker: Asks
    inputs: Inputs = field(default_factory=Inputs)
    following: Case | None = None  # the next case, whose first input is made while the worker is busy
    recorded: bool = False  # the emulator also records counted calls
    calls: int = CALLS  # calls of a small case

    def store(self, slot: int, data: Any, in_place: bool = False) -> None:
        """Store an input in a slot. in_place: in the memory of the slot's previous input."""
        from harness.shared_memory import layout_of, save

        layout, end = layout_of(data)
        size = self.worker.memory.require(end)
        save(data, layout, self.worker.memory.bytes)
        self.worker.ask(messages.Store(slot, layout, size, in_place), messages.Done)

    def call(
        self, slots: list[int], clone: bool, counted: bool = False, meanwhile: Callable[[], Any] | None = None
    ) -> tuple[messages.Launch, ...]:
        """Call the submission on the slots' inputs; see messages.Call. Returns the counts of the launches."""
        request = messages.Call(tuple(slots), clone, counted, recorded=counted and self.recorded)
        return self.worker.ask(request, messages.Called, meanwhile).launches

    def compare(self, slot: int, expected: Any) -> tuple[bool, str]:
        """Compare the output of the last call on the slot. Returns (passed, message); see Reference.compare."""
        import torch

        from harness.outputs import find_fault
        from harness.shared_memory import contiguous_places, fill

        wanted = [expected] if isinstance(expected, torch.Tensor) else expected
        places, end = contiguous_places(wanted)
        size = self.worker.memory.require(end)
        outputs = self.worker.ask(messages.Fetch(slot, places, size), messages.Outputs)
        fault = find_fault(expected, outputs)
        if fault:
            return False, fault
        copies = [
            fill(torch.empty(want.shape, dtype=want.dtype, device=want.device), place, self.worker.memory.bytes)
            for want, place in zip(wanted, places)
        ]
        return self.case.reference.compare(expected, copies if isinstance(expected, list) else copies[0])

    def find_mismatch(self, expected: list[Any]) -> str:
        """A text on the first of the slots 0, 1, ... whose output is wrong; empty if all are right."""
        for slot, want in enumerate(expected):
            passed, message = self.compare(slot, want)
            if not passed:
                return f"input {slot} of {len(expected)}: {message}"
        return ""


# ---- Check and count ----


@dataclass(frozen=True)
class Checked:
    """The outcome of calls, and figures of the first call of the case itself for a report."""

    passed: bool
    message: str
    launches: tuple[messages.Launch, ...] = ()
    sizes: tuple[tuple[int, int, int, int], ...] = ()  # (m, n, k, l) of each group or of the call
    minimum_traffic: tuple[int, int] = (0, 0)  # bytes read and written if each moves once


def check_case(trial: Trial) -> Result:
    """Call the submission and check its outputs: CALLS times if the case is small, else once after a rehearsal."""
    checked = check_calls(trial, counted=False)
    return Result(checked.passed, checked.message)


def count_case(
    trial: Trial,
    clock: Clocking | None = None,
    replaying: Callable[[int, int], None] | None = None,
    calls: int = CALLS,
) -> Result:
    """Run check_case on the emulator, with the counts that harness.counts shows.

    calls: number of calls of a small case.
    clock: the chip on which the counted call is replayed as the contest's loop, and further wishes (harness.clocks).
    replaying: called with the number of finished replays and of all, during the search for what would be faster.
    """
    checked = check_calls(replace(trial, recorded=clock is not None, calls=calls), counted=True)
    if not checked.passed:
        return Result(False, checked.message)
    load_bytes, store_bytes = checked.minimum_traffic
    plan = trial.worker.ask(messages.Plan(trial.case.problem.name, checked.sizes), messages.Planned).plan
    counts = {
        "launches": [msgspec.structs.asdict(launch) for launch in checked.launches],
        "plan": plan,
        "minimum_load_bytes": load_bytes,
        "minimum_store_bytes": store_bytes,
    }
    figures = None if clock is None else clock_calls(trial, clock, replaying)
    return Result(True, checked.message, counts=counts, clock=figures)


def clock_calls(trial: Trial, clock: Clocking, replaying: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """Replay the recorded call as the contest's loop on a chip. Returns a `clock` of harness.clocks; see count_case."""
    calls = trial.case.problem.inputs_per_timing
    files = (str(path) if path else "" for path in (clock.timeline, clock.picture))
    clocked = trial.worker.ask(messages.Clock(clock.chip, calls, *files), messages.Clocked)
    why: tuple[str, ...] = ()
    while clock.why and not why:
        explained = trial.worker.ask(messages.Why(clock.chip, calls), messages.Explained)
        why = explained.lines
        if replaying:
            replaying(explained.done, explained.total)
    return {
        "chip": clocked.chip,
        "band": clocked.band,
        "calls": calls,
        "ordinary": msgspec.structs.asdict(clocked.ordinary),
        "programmatic": clocked.programmatic and msgspec.structs.asdict(clocked.programmatic),
        "files": list(clocked.files),
        "why": list(why),
    }


def count_launches(trial: Trial) -> Result:
    """Run count_case with every count of every launch as the report."""
    result = count_case(trial)
    return replace(result, counts=None, report=launches_text(result.counts)) if result.counts else result


def check_calls(trial: Trial, counted: bool) -> Checked:
    """Check a small case by several calls, a large one by a rehearsal and one call."""
    rehearsed = trial.case.rehearsal()
    if rehearsed is trial.case:
        return check_repeated_calls(trial, counted)
    checked = check_repeated_calls(replace(trial, case=rehearsed, following=trial.case), counted=False)
    if not checked.passed:
        sizes = "; ".join(f"{name}: {value}" for name, value in rehearsed.args.items())
        return Checked(False, f"a small case of the same structure, {sizes}: {checked.message}")
    data = trial.inputs.take(trial.case)
    trial.store(0, data)
    return check_call(trial, 0, data, clone=True, counted=counted, ahead=[(trial.following, 0)])[0]


def check_repeated_calls(trial: Trial, counted: bool) -> Checked:
    """Call the submission on different inputs and check each output, and the first output again at the end.

    The first call is on a copy, as in the contest; from the third on, tensors are at the second call's addresses. A
    result fails that is right only once, stays in an earlier call's place, or is overwritten by a later call.
    """
    last = trial.calls - 1
    for number in range(trial.calls):
        slot = min(number, 1)
        data = trial.inputs.take(trial.case, number)
        trial.store(slot, data, in_place=number > 1)
        is_first = number == 0  # the first call compiles, which leaves the judge time for two inputs
        ahead = [(trial.case if number < last else None, number + 1), (trial.following if is_first else None, 0)]
        checked, expected = check_call(trial, slot, data, is_first, counted and is_first, ahead)
        if not checked.passed:
            prefix = f"call {number + 1} of {trial.calls}, with other values: " if number else ""
            return Checked(False, prefix + checked.message)
        if number == 0:
            first, expected_of_first = checked, expected
    passed, message = trial.compare(0, expected_of_first)
    return first if passed else Checked(False, f"the output of call 1, after later calls: {message}")


def check_call(
    trial: Trial, slot: int, data: Any, clone: bool, counted: bool, ahead: list[tuple[Case | None, int]]
) -> tuple[Checked, Any]:
    """Call the submission on the slot, whose input is `data`, and compare. Also returns the expected output.

    ahead: (case, number) of inputs to make while the worker works; the case may be None.
    """
    reference = trial.case.reference
    expected: list[Any] = []

    def work() -> None:
        expected.append(reference.ref_kernel(data))
        for case, number in ahead:
            if case:
                trial.inputs.prepare(case, number)

    launches = trial.call([slot], clone, counted, meanwhile=work)
    passed, message = trial.compare(slot, expected[0])
    sizes = tuple(reference.problem_sizes(data))
    return Checked(passed, message, launches, sizes, reference.minimum_traffic(data)), expected[0]


def offer_plans(trial: Trial) -> Result:
    """List the plans that can be forced on the case; none has run."""
    reference = trial.case.reference
    sizes = tuple(reference.problem_sizes(trial.inputs.take(trial.case)))
    offered = trial.worker.ask(messages.Offer(trial.case.problem.name, sizes), messages.Offered)
    return Result(True, plans=Plans(offered.plans, offered.chosen))


def check_plan(trial: Trial, plan: str) -> Result:
    """Check one call in a forced plan, on a copy of its input whose c has wrong values."""
    trial.worker.ask(messages.Force(plan), messages.Done)
    data = trial.inputs.take(trial.case)
    trial.store(0, data)
    checked, _ = check_call(trial, 0, data, clone=True, counted=False, ahead=[])
    return Result(checked.passed, checked.message)


# ---- Time ----


def hand_over(trial: Trial, first: int) -> list[Any]:
    """Store the inputs of one timing in slots 0, 1, ... and return the expected outputs."""
    expected = []
    for slot, data in enumerate(trial.case.timing_inputs(first)):
        expected.append(trial.case.reference.ref_kernel(data))
        trial.store(slot, data)
    release_memory()
    return expected


def measure_here(trial: Trial, call: Callable[[Any], Any], inputs: list[Any], limits: Limits) -> Stats:
    """Time calls in this process, after the worker has released its device memory."""
    trial.worker.ask(messages.Finish(), messages.Finished)
    for _ in range(WARM_UP_REPEATS):
        time_calls(call, inputs)
    stats = measure(call, inputs, limits)
    release_memory()
    return stats


def time_submission(trial: Trial, limits: Limits, recheck: Callable[[], str] | None = None) -> Stats | str:
    """Time the calls on the stored inputs, in the worker; see timing.repeat and messages.Time."""
    slots = trial.case.problem.inputs_per_timing

    def time_once() -> float:
        return trial.worker.ask(messages.Time(slots), messages.Timed).nanoseconds

    return repeat(time_once, limits, recheck)


def time_case(trial: Trial, limits: Limits, recheck: bool = False, baseline: bool = False) -> Result:
    """Check the outputs of one timing's calls, then time the calls.

    recheck: time other inputs than those checked first, check every output of every repeat, and overwrite the outputs
    after each repeat, so that a submission cannot pass by leaving the results of an earlier repeat in place.
    baseline: also check and time torch's own kernels on the same inputs, in this process.
    """
    count = trial.case.problem.inputs_per_timing
    first = 1
    expected = hand_over(trial, first)
    trial.call(list(range(count)), clone=True)
    mismatch = trial.find_mismatch(expected)
    if mismatch:
        return Result(False, mismatch)
    if recheck:
        first += count
        expected = hand_over(trial, first)

    def check_and_overwrite() -> str:
        mismatch = trial.find_mismatch(expected)
        if not mismatch:
            trial.worker.ask(messages.Overwrite(count), messages.Done)
        return mismatch

    stats = time_submission(trial, limits, check_and_overwrite if recheck else None)
    if isinstance(stats, str):
        return Result(False, f"a timed output is wrong: {stats}")
    if not baseline:
        return Result(True, stats=stats)

    inputs = list(trial.case.timing_inputs(first))
    for index, (data, want) in enumerate(zip(inputs, expected)):
        passed, message = trial.case.reference.compare(want, trial.case.reference.baseline(data))
        if not passed:
            return Result(False, f"the baseline is wrong: input {index} of {count}: {message}")
    reference = measure_here(trial, trial.case.reference.baseline, inputs, limits)
    message = f"baseline torch._scaled_mm {reference.mean / 1e3:.3f} us, {reference.mean / stats.mean:.2f}x the time"
    return Result(True, message, stats=stats, baseline=reference)


def time_pipeline(trial: Trial, limits: Limits) -> Result:
    """Time calls on a Hopper GPU with tensor-core work omitted, then plain reads of the bytes that the case must move.

    Outputs are not checked: without tensor-core work they are wrong.
    """
    from nogpu.hopper import plain_read

    minimum_bytes = []
    for slot, data in enumerate(trial.case.timing_inputs(first=1)):
        minimum_bytes.append(sum(trial.case.reference.minimum_traffic(data)))
        trial.store(slot, data)
    release_memory()
    trial.call(list(range(len(minimum_bytes))), clone=True)
    stats = time_submission(trial, limits)
    assert isinstance(stats, Stats), "nothing is rechecked"
    readers = [plain_read.reader(count) for count in minimum_bytes]
    reads = measure_here(trial, lambda read: read(), readers, limits)
    return Result(True, f"{OMITTED}; plain read {reads.mean / 1e3:.3f} us", stats=stats, plain_read=reads)


# ---- Profile ----


def profile_case(trial: Trial) -> Result:
    """Have a profiler report on one call; see harness.profiling."""
    trial.store(0, trial.case.input())
    report = trial.worker.ask(messages.Profile(0), messages.Profiled).report
    return Result(True, NOT_CHECKED, report=report)
