"""Check and time a submission on the contest's cases, on a B200, a Hopper GPU or, where there is neither, emulated.

    python eval.py test                  the test cases
    python eval.py benchmark             the benchmark cases, timed; on the emulator checked and counted, never timed
    python eval.py leaderboard           the same on inputs that were not seen before, with every timed output checked
    python eval.py profile               what a B200 spends its time on, or what the emulator counted
    python eval.py test --problem gemm   another of the contest's problems; all: every problem, one after the other
    python eval.py MODE SPECFILE --case 2                one case (numbered from 0) of a spec file
    python eval.py test --device emulator --schedule random:1
    python eval.py test --device hopper  on a Hopper GPU, with tensor memory and tensor core in software
    python eval.py benchmark --device hopper    there without tensor-core work: times of all the rest, results unchecked

With POPCORN_FD in the environment this is the contest's eval.py: results are `key: value` lines on that descriptor.
The contest has an eval.py with a task and a reference per problem; here --problem says which, group_gemm by default.
Exit codes: 0 all passed, 112 a case failed, 2 usage, 113 unreadable or malformed spec file, 111 POPCORN_FD unusable,
1 no device to run on, or a package is missing, 130 interrupted.

Cases run in a spawned worker process. One that dies or exceeds --timeout fails its case; the next case gets a new one.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import fcntl
import functools
import importlib.util
import inspect
import math
import multiprocessing
import multiprocessing.connection
import os
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from task import GROUP_GEMM, PROBLEMS, Benchmark, Problem, SpecError, TestSpec

MODES = ("test", "benchmark", "leaderboard", "profile")
ALL = "all"  # in place of a problem's name
HERE = Path(__file__).resolve().parent

EXIT_NO_DEVICE = 1  # or no torch to reach it with; 2, for usage, is what argparse exits with
EXIT_BAD_POPCORN_FD = 111
EXIT_CHECK_FAILED = 112
EXIT_BAD_SPEC = 113
EXIT_INTERRUPTED = 130

TIMEOUT_S = {"b200": 240, "hopper": 240, "emulator": 1800}  # one case; a timed one may take 120 s by the stop rules
WORKER_START_TIMEOUT_S = 180  # importing torch, and the emulator with it
WORKER_EXIT_TIMEOUT_S = 10
LIVENESS_INTERVAL_S = 0.2
RESTARTED = "EVAL_RESTARTED_UNDER_EMULATOR"

CASE_COLUMNS = ["case", "shapes"]

SEED_STEP = 42  # between the inputs of one timing
L2_FLUSH_ELEMENTS = 16000 * 1024 * 1024  # float32: 67 GB of randn take long enough to hide the calls' host work
L2_FLUSH_SHARE = 0.8  # of the free memory, where that is less
MIN_RUNS = 3
MIN_ELAPSED_NS = 1e8
MAX_ELAPSED_NS = 120e9
MAX_RELATIVE_ERROR = 1e-3

PROFILED = "output not checked"
OMITTED = "Hopper, tensor core omitted"
HOPPER_MODES = {"test": "exact", "benchmark": "timing"}  # of eval -> of emulator/hopper
HOPPER_IS = {
    "exact": "memory, TMA, mbarriers, clusters and launches are a Hopper's; tensor memory and tensor core are software",
    "timing": "memory, TMA, mbarriers, clusters and launches are a Hopper's; tensor-core work is left out, results are "
    "not checked, and times are no B200's",
}
COUNTS_TITLE = "counts from emulation, no times"
COUNTED = {  # field of the emulator's counters -> (label, the minimum that it is compared with, label of the ratio)
    "ctas": ("CTAs", None, ""),
    "mma": ("MMAs", None, ""),
    "tma_load_requested_bytes": ("TMA bytes requested", "minimum_load_bytes", "requested / minimum"),
    "tma_load_unique_bytes": ("TMA bytes, unique", "minimum_load_bytes", "unique / minimum"),
    "stored_bytes": ("bytes stored", "minimum_store_bytes", "stored / minimum"),
}
PER_ALLOCATION = "TMA bytes per allocation (requested, unique)"


@dataclass(frozen=True)
class Limits:
    """When to stop repeating a timing: after `repeats`, or once the calls' mean times runs exceeds `budget_ns`."""

    repeats: int
    budget_ns: float


BENCHMARK_WARM_UP = Limits(100, 1e8)
BENCHMARK = Limits(100, 10e9)
LEADERBOARD_WARM_UP = Limits(50, 5e8)
LEADERBOARD = Limits(100, 30e9)


@dataclass(frozen=True)
class Stats:
    """Nanoseconds per call over the repeats of a timing; err is the standard error of the mean."""

    runs: int
    mean: float
    std: float
    err: float
    best: float
    worst: float

    @classmethod
    def of(cls, durations: list[float]) -> Stats:
        runs = len(durations)
        mean = sum(durations) / runs
        std = math.sqrt(sum((duration - mean) ** 2 for duration in durations) / (runs - 1))
        return cls(runs, mean, std, std / math.sqrt(runs), min(durations), max(durations))


@dataclass(frozen=True)
class Result:
    """What came of one case."""

    passed: bool
    message: str = ""
    traceback: str = ""
    stats: Stats | None = None
    baseline: Stats | None = None
    plain_read: Stats | None = None  # of as many bytes as the case must move, where the tensor core was omitted
    counts: dict[str, Any] | None = None  # of the emulator; see count_case
    report: str | None = None  # of the profile mode


# ---------------------------------------------------------------------------------------------------------------------
# Cases, in the worker process
# ---------------------------------------------------------------------------------------------------------------------


def run_counted(call: Callable[[], Any]) -> tuple[Any, list[dict[str, Any]]]:
    """(result of call, the emulator's counters of every launch that it made)."""
    import torch

    emulator = sys.modules["emulator"]
    emulator.reset_counters()
    result = call()
    torch.cuda.synchronize()
    return result, [asdict(counters) for counters in emulator.counters()]


def clone(data: Any) -> Any:
    """A copy of nested tuples and lists with every tensor cloned."""
    if isinstance(data, (tuple, list)):
        return type(data)(clone(item) for item in data)
    return data.clone() if hasattr(data, "clone") else data


def tensors(output: Any) -> Iterator[Any]:
    if isinstance(output, (tuple, list)):
        for item in output:
            yield from tensors(item)
    else:
        yield output


@dataclass(frozen=True)
class Case:
    """A case in the worker: the problem's reference, the submission and generate_input's arguments."""

    problem: Problem
    reference: Any  # reference.Reference
    submission: ModuleType
    args: dict[str, Any]

    def inputs(self, first: int) -> list[tuple]:
        """The inputs of one timing, with seeds that follow from the case's own, starting at the `first` of them."""
        seeds = (self.args["seed"] + SEED_STEP * (first + i) for i in range(self.problem.inputs_per_timing))
        return [self.reference.generate_input(**{**self.args, "seed": seed}) for seed in seeds]


def plan_of(case: Case, problem_sizes: list[tuple[int, int, int, int]]) -> dict[str, Any]:
    """The submission's own account of what it launches, for those that have one; of the project's kernel, plans.py's.

    plan_report(problem_sizes) is about group GEMM; plan_report(problem_sizes, problem) is asked for any problem.
    """
    plan_report = getattr(case.submission, "plan_report", None)
    if Path(getattr(case.submission, "__file__", "")).resolve() == HERE / "submission.py":
        from tools.plans import plan_report
    if plan_report is None:
        return {}
    if "problem" in inspect.signature(plan_report).parameters:
        return plan_report(problem_sizes, problem=case.problem.name)
    return plan_report(problem_sizes) if case.problem is GROUP_GEMM else {}


def check_case(case: Case) -> Result:
    """Run the submission once and check its output."""
    import torch

    data = case.reference.generate_input(**case.args)
    torch.cuda.synchronize()
    output = case.submission.custom_kernel(clone(data))
    torch.cuda.synchronize()
    return Result(*case.reference.check(data, output))


def count_case(case: Case) -> Result:
    """check_case on the emulator, with counts: launches, the kernel's own plan, the bytes that must move at least."""
    data = case.reference.generate_input(**case.args)
    cloned = clone(data)
    output, launches = run_counted(lambda: case.submission.custom_kernel(cloned))
    load_bytes, store_bytes = case.reference.minimum_traffic(data)
    counts = {
        "launches": launches,
        "plan": plan_of(case, case.reference.problem_sizes(data)),
        "minimum_load_bytes": load_bytes,
        "minimum_store_bytes": store_bytes,
    }
    return Result(*case.reference.check(data, output), counts=counts)


def count_launches(case: Case) -> Result:
    """count_case with all that was counted, launch by launch, as the report."""
    result = count_case(case)
    return replace(result, counts=None, report=launches_text(result.counts))


@functools.cache
def l2_flush_elements() -> int:
    import torch

    free_bytes, _ = torch.cuda.mem_get_info()
    return min(L2_FLUSH_ELEMENTS, int(free_bytes * L2_FLUSH_SHARE) // 4)


def time_calls(kernel: Callable[[tuple], Any], inputs: list[tuple]) -> tuple[float, list[Any]]:
    """(nanoseconds per call, outputs) of calls back to back between one pair of events, on a flushed L2."""
    import torch

    torch.cuda.synchronize()
    flush = torch.randn(l2_flush_elements(), device="cuda")
    del flush
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    outputs = [kernel(data) for data in inputs]
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e6 / len(inputs), outputs


def measure(
    kernel: Callable[[tuple], Any],
    inputs: list[tuple],
    limits: Limits,
    recheck: Callable[[list[Any]], str] | None = None,
) -> Stats | str:
    """Repeat time_calls by the contest's stop rules.

    recheck is called with each repeat's outputs; a text from it ends the timing and is returned.
    """
    durations: list[float] = []
    began = time.perf_counter_ns()
    for _ in range(limits.repeats):
        duration, outputs = time_calls(kernel, inputs)
        durations.append(duration)
        problem = recheck(outputs) if recheck else ""
        if problem:
            return problem
        elapsed = time.perf_counter_ns() - began
        if len(durations) >= MIN_RUNS and elapsed > MIN_ELAPSED_NS:
            stats = Stats.of(durations)
            spent = stats.mean * stats.runs > limits.budget_ns or elapsed > MAX_ELAPSED_NS
            if spent or stats.err < MAX_RELATIVE_ERROR * stats.mean:
                break
    return Stats.of(durations)


def time_case(case: Case, limits: Limits, recheck: bool = False, baseline: bool = False) -> Result:
    """Check the outputs of one timing's calls, then time them.

    With recheck, the timed inputs are others than those checked first, and every output of every repeat is checked.
    Outputs are overwritten in between, or a submission that leaves an earlier repeat's results in place would pass.
    """
    import torch

    def find_mismatch(outputs: list[Any]) -> str:
        for index, (want, output) in enumerate(zip(expected, outputs)):
            passed, message = case.reference.compare(want, output)
            if not passed:
                return f"input {index} of {len(expected)}: {message}"
        return ""

    def check_and_overwrite(outputs: list[Any]) -> str:
        problem = find_mismatch(outputs)
        if not problem:
            for tensor in tensors(outputs):
                tensor.fill_(math.nan)
        return problem

    kernel = case.submission.custom_kernel
    inputs = case.inputs(first=1)
    expected = [case.reference.ref_kernel(data) for data in inputs]
    outputs = [kernel(clone(data)) for data in inputs]
    torch.cuda.synchronize()
    problem = find_mismatch(outputs)
    if problem:
        return Result(False, problem)
    if recheck:
        inputs = case.inputs(first=1 + len(inputs))
        expected = [case.reference.ref_kernel(data) for data in inputs]
    stats = measure(kernel, inputs, limits, check_and_overwrite if recheck else None)
    if isinstance(stats, str):
        return Result(False, f"a timed output is wrong: {stats}")
    if not baseline:
        return Result(True, stats=stats)

    problem = find_mismatch([case.reference.baseline(data) for data in inputs])
    if problem:
        return Result(False, f"the baseline is wrong: {problem}")
    reference = measure(case.reference.baseline, inputs, limits)
    message = f"baseline torch._scaled_mm {reference.mean / 1e3:.3f} us, {reference.mean / stats.mean:.2f}x the time"
    return Result(True, message, stats=stats, baseline=reference)


def time_pipeline(case: Case, limits: Limits) -> Result:
    """Time calls on a Hopper without tensor-core work, then plain reads of as many bytes as must be moved."""
    import torch

    from emulator.hopper import plain_read

    inputs = case.inputs(first=1)
    for data in inputs:
        case.submission.custom_kernel(clone(data))
    torch.cuda.synchronize()
    stats = measure(case.submission.custom_kernel, inputs, limits)
    readers = [plain_read.reader(sum(case.reference.minimum_traffic(data))) for data in inputs]
    reads = measure(lambda read: read(), readers, limits)
    return Result(True, f"{OMITTED}; plain read {reads.mean / 1e3:.3f} us", stats=stats, plain_read=reads)


def profile_case(case: Case) -> Result:
    """torch's profiler table of one call; under ncu (POPCORN_NCU) just one call in the NVTX range custom_kernel."""
    import torch

    data = case.reference.generate_input(**case.args)
    kernel = case.submission.custom_kernel
    if os.environ.get("POPCORN_NCU", "0").lower() not in ("", "0", "false"):
        cloned = clone(data)
        torch.cuda.synchronize()
        with torch.cuda.nvtx.range("custom_kernel"):
            kernel(cloned)
            torch.cuda.synchronize()
        return Result(True, PROFILED, report="")

    from torch.profiler import ProfilerActivity, profile, record_function

    kernel(clone(data))  # compiles
    cloned = clone(data)
    torch.cuda.synchronize()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities) as profiler, record_function("custom_kernel"):
        kernel(cloned)
        torch.cuda.synchronize()
    return Result(True, PROFILED, report=profiler.key_averages().table(sort_by="self_cuda_time_total", row_limit=20))


JOBS = {job.__name__: job for job in (check_case, count_case, count_launches, time_case, time_pipeline, profile_case)}


# ---------------------------------------------------------------------------------------------------------------------
# The worker process
# ---------------------------------------------------------------------------------------------------------------------


def load_submission(path: str) -> ModuleType:
    """The module `submission`, from the file at `path`, imported once."""
    if "submission" not in sys.modules:
        spec = importlib.util.spec_from_file_location("submission", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["submission"] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules["submission"]
            raise
    return sys.modules["submission"]


def device_is_usable() -> bool:
    """False after an error that CUDA reports from every later call."""
    import torch

    try:
        torch.cuda.synchronize()
    except Exception:
        return False
    return True


def worker_main(connection: multiprocessing.connection.Connection, submission_path: str) -> None:
    """Send the device's name, then answer every (job, problem, args, options) with (Result, whether to go on here).

    Results cross as dicts, since classes of this file have another module's name here, and exceptions as text, since
    those of the DSL do not pickle.
    """
    os.setsid()  # so that the parent can kill what a submission may have started as well
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a killed harness must not leave a hung kernel behind
    import torch

    import reference

    connection.send(torch.cuda.get_device_name())
    while True:
        try:
            job, problem, args, options = connection.recv()
        except EOFError:
            return
        try:
            submission = load_submission(submission_path)
            result = JOBS[job](Case(PROBLEMS[problem], reference.REFERENCES[problem], submission, args), **options)
        except BaseException as error:  # SystemExit included
            text = "".join(traceback.format_exception(error))
            result = Result(False, f"{type(error).__name__}: {error}", traceback=text)
        connection.send((asdict(result), device_is_usable()))


class Worker:
    """Runs cases in a spawned process, and starts another when it had to end the last one."""

    def __init__(self, submission: Path, timeout_s: float):
        self.submission = submission
        self.timeout_s = timeout_s
        self.process: multiprocessing.Process | None = None
        self.connection: multiprocessing.connection.Connection | None = None
        self.device = ""

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self.process and not error:
            self.connection.close()  # a worker that is waiting for a case returns, and a profiler may finish its report
            self.process.join(WORKER_EXIT_TIMEOUT_S)
        self.kill()

    def device_name(self) -> str:
        """The name of the device that cases run on."""
        try:
            self._start()
        except _WorkerLost as lost:
            return f"no device ({lost})"
        return self.device

    def run(self, job: Callable[..., Result], problem: Problem, spec: TestSpec, **options: Any) -> Result:
        """Run `job` on a case. Whatever happens to the worker becomes a Result."""
        try:
            self._start()
            result, can_go_on = self._ask((job.__name__, problem.name, dict(spec.args), options))
        except _WorkerLost as lost:
            return Result(False, str(lost))
        if not can_go_on:
            self.kill()
        for name in ("stats", "baseline", "plain_read"):
            result[name] = result[name] and Stats(**result[name])
        return Result(**result)

    def kill(self) -> None:
        """End the process and whatever it started, if there is one."""
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:  # not yet a group of its own, or over
            self.process.kill()
        self.process.join()
        self.connection.close()
        self.process = self.connection = None

    def _start(self) -> None:
        if self.process is not None:
            return
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=worker_main, args=(theirs, str(self.submission)))
        self.process.start()
        theirs.close()
        self.device = self._receive(WORKER_START_TIMEOUT_S, "while it started")

    def _ask(self, request: tuple) -> Any:
        try:
            self.connection.send(request)
        except OSError:
            raise self._death() from None
        return self._receive(self.timeout_s, "--timeout sets the limit")

    def _receive(self, timeout_s: float, remark: str) -> Any:
        deadline = time.monotonic() + timeout_s
        # Death is asked for: a process that the worker left behind may hold the worker's end of the pipe open.
        while self.process.is_alive() and time.monotonic() < deadline:
            if self.connection.poll(LIVENESS_INTERVAL_S):
                break
        try:
            if self.connection.poll():
                return self.connection.recv()
        except (EOFError, OSError):
            raise self._death() from None
        if not self.process.is_alive():
            raise self._death()
        self.kill()
        raise _WorkerLost(f"no result after {timeout_s:g} s: the worker was killed ({remark})")

    def _death(self) -> _WorkerLost:
        self.process.join()
        code = self.process.exitcode
        self.kill()
        how = f"exited with code {code}" if code >= 0 else f"was killed by signal {-code} ({signal.strsignal(-code)})"
        return _WorkerLost(f"the worker process {how}")


class _WorkerLost(Exception):
    """The worker died or exceeded its time; the text says how."""


# ---------------------------------------------------------------------------------------------------------------------
# Reports
# ---------------------------------------------------------------------------------------------------------------------


class ProtocolReport:
    """The contest's `key: value` lines."""

    def __init__(self, fd: int):
        os.set_inheritable(fd, False)
        self.file = os.fdopen(fd, "w")

    def __enter__(self) -> ProtocolReport:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def log(self, key: str, value: object) -> None:
        value = " | ".join(line.strip() for line in str(value).splitlines() if line.strip())
        print(f"{key}: {value}", file=self.file, flush=True)

    def begin(self, mode: str, specs: list[TestSpec]) -> None:
        self.key = "test" if mode == "test" else "benchmark"
        self.log(f"{self.key}-count", len(specs))

    def working(self, what: str) -> None:
        """The protocol has no line for work whose result is not reported."""

    def case_begins(self, index: int, spec: TestSpec) -> None:
        self.log(f"{self.key}.{index}.spec", spec.line)

    def case_ends(self, index: int, result: Result) -> None:
        prefix = f"{self.key}.{index}"
        if not result.passed:
            print(result.traceback, file=sys.stderr, end="", flush=True)
            self.log(f"{prefix}.status", "fail")
            self.log(f"{prefix}.error", result.message)
        elif result.report is not None:
            self.log(f"{prefix}.report", base64.b64encode(result.report.encode(), b"+*").decode())
        elif result.stats:
            for field in fields(Stats):
                self.log(f"{prefix}.{field.name}", getattr(result.stats, field.name))
            if result.message:
                self.log(f"{prefix}.message", result.message)
        else:
            self.log(f"{prefix}.status", "pass")
            message = f"{result.message}; {counts_text(result.counts)}" if result.counts else result.message
            self.log(f"{prefix}.message", message)

    def end(self, passed: bool) -> None:
        self.log("check", "pass" if passed else "fail")


class ConsoleReport:
    """Tables for a person."""

    def __init__(self, problem: Problem, headline: str, numbers: list[int]):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

        self.problem, self.headline, self.numbers = problem, headline, numbers
        self.console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160)
        columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        self.progress = Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)
        self.results: list[tuple[int, TestSpec, Result]] = []

    def __enter__(self) -> ConsoleReport:
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def begin(self, mode: str, specs: list[TestSpec]) -> None:
        self._print(f"{self.problem.name} {mode} · {self.headline}", "bold")
        self.bar = self.progress.add_task(mode, total=len(specs))
        self.progress.start()

    def working(self, what: str) -> None:
        self.progress.update(self.bar, description=what)

    def case_begins(self, index: int, spec: TestSpec) -> None:
        self.spec = spec
        self.progress.update(self.bar, description=f"case {self.numbers[index]}: {shapes_text(spec)}")

    def case_ends(self, index: int, result: Result) -> None:
        self.results.append((self.numbers[index], self.spec, result))
        self.progress.advance(self.bar)

    def end(self, passed: bool) -> None:
        self.progress.stop()
        timed = any(result.stats for _, _, result in self.results)
        self.console.print(self._timing_table() if timed else self._result_table())
        counted = [entry for entry in self.results if entry[2].counts]
        if counted:
            self._print(COUNTS_TITLE, "bold")
            self.console.print(self._counts_table(counted))
        for number, spec, result in self.results:
            if result.report:
                self._print(f"\ncase {number}: {shapes_text(spec)}\n{result.report}")
        seen: dict[str, int] = {}  # what a case failed with -> the first case that did
        for number, spec, result in self.results:
            if not result.passed:
                self._print(f"\ncase {number} FAILED: {shapes_text(spec)}", "bold red")
                text = result.traceback or result.message
                first = seen.setdefault(text, number)
                self._print(text if first == number else f"as case {first}: {result.message.splitlines()[0]}")
        self._print(self.summary(), "bold green" if passed else "bold red")

    def count(self) -> tuple[int, int]:
        """(passed, failed) of the cases that ran."""
        passed = sum(result.passed for _, _, result in self.results)
        return passed, len(self.results) - passed

    def _print(self, text: str, style: str | None = None) -> None:
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def _result_table(self) -> Any:
        table = _table(CASE_COLUMNS, ["result"])
        for number, spec, result in self.results:
            text = f"pass, {result.message}" if result.message else "pass"
            table.add_row(str(number), shapes_text(spec), _styled(result, text))
        return table

    def _timing_table(self) -> Any:
        if any(result.plain_read for _, _, result in self.results):
            return self._pipeline_table()
        baseline = any(result.baseline for _, _, result in self.results)
        names = ["us", "best .. worst", "speed\nof\nlight", "ratio", "best\npublished"]
        table = _table(CASE_COLUMNS, names + (["torch.\n_scaled_mm", "speed-up"] if baseline else []))
        for number, spec, result in self.results:
            row = [str(number), shapes_text(spec)]
            if result.stats:
                stats, figures = result.stats, self.problem.find_benchmark(spec)
                mean_us = stats.mean / 1e3
                row += [f"{mean_us:.3f} ± {stats.std / 1e3:.3f}", f"{stats.best / 1e3:.3f} .. {stats.worst / 1e3:.3f}"]
                row += _against(figures, mean_us)
                if result.baseline:
                    row += [f"{result.baseline.mean / 1e3:.3f}", f"{result.baseline.mean / stats.mean:.2f}"]
            else:
                row.append(_styled(result, ""))
            table.add_row(*row)
        return table

    def _pipeline_table(self) -> Any:
        table = _table(CASE_COLUMNS, [f"us\n({OMITTED})", "best .. worst", "plain read\nof the same bytes", "ratio"])
        for number, spec, result in self.results:
            row = [str(number), shapes_text(spec)]
            if result.plain_read:
                stats, read = result.stats, result.plain_read
                row += [f"{stats.mean / 1e3:.3f} ± {stats.std / 1e3:.3f}"]
                row += [f"{stats.best / 1e3:.3f} .. {stats.worst / 1e3:.3f}"]
                row += [f"{read.mean / 1e3:.3f} ± {read.std / 1e3:.3f}", f"{stats.mean / read.mean:.2f}"]
            else:
                row.append(_styled(result, ""))
            table.add_row(*row)
        return table

    def _counts_table(self, counted: list[tuple[int, TestSpec, Result]]) -> Any:
        columns = [counts_column(result.counts) for _, _, result in counted]
        table = _table([""], [f"case {number}" for number, _, _ in counted])
        table.columns[0].no_wrap = True
        for name in dict.fromkeys(name for column in columns for name in column):
            table.add_row(name, *(column.get(name, "") for column in columns))
        return table

    def summary(self) -> str:
        passed, failed = self.count()
        text = f"{passed} passed, {failed} failed"
        if passed < len(self.numbers) or not all(result.stats for _, _, result in self.results):
            return text
        text += f"; geomean {geomean([result.stats.mean / 1e3 for _, _, result in self.results]):.3f} us"
        if any(result.plain_read for _, _, result in self.results):
            return f"{text}, {OMITTED}"
        if [self.problem.find_benchmark(spec) for _, spec, _ in self.results] == list(self.problem.benchmarks):
            light = geomean([benchmark.speed_of_light_us for benchmark in self.problem.benchmarks])
            text += f" (speed of light {light:.2f}, best published {self.problem.best_geomean_us:.2f})"
        return text


def print_total(reports: list[ConsoleReport]) -> None:
    """A line per problem and one for all, after the tables of several problems."""
    console = reports[0].console
    table = _table(["all problems", ""], [])
    for report in reports:
        table.add_row(report.problem.name, report.summary())
    passed, failed = (sum(counts) for counts in zip(*(report.count() for report in reports)))
    table.add_section()
    table.add_row("total", f"{passed} passed, {failed} failed", style="bold red" if failed else "bold green")
    console.print(table)


def _table(left: list[str], right: list[str]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table


def _styled(result: Result, text: str) -> Any:
    from rich.text import Text

    return Text(text, style="green") if result.passed else Text("FAIL", style="bold red")


def _against(figures: Benchmark | None, mean_us: float) -> list[str]:
    if figures is None:
        return ["-", "-", "-"]
    light = figures.speed_of_light_us
    return [f"{light:.3f}", f"{mean_us / light:.2f}", f"{figures.best_published_us:g}"]


def geomean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def shapes_text(spec: TestSpec) -> str:
    """The case's arguments without its seed; a list of equal numbers is shown as one."""
    parts = []
    for key, value in spec.args.items():
        if isinstance(value, tuple):
            value = value[0] if len(set(value)) == 1 else " ".join(map(str, value))
        if key != "seed":
            parts.append(f"{key} {value}")
    return ", ".join(parts)


def counts_column(counts: dict[str, Any]) -> dict[str, str]:
    """One case's counts by label: the plan's own, then what the emulator counted, summed over the launches."""
    column = {f"plan: {name}": str(value) for name, value in counts["plan"].items()}
    column["launches"] = str(len(counts["launches"]))
    for field, (label, minimum, ratio) in COUNTED.items():
        total = sum(launch[field] for launch in counts["launches"])
        column[label] = f"{total:,}"
        if minimum and counts[minimum]:
            column[ratio] = f"{total / counts[minimum]:.3f}"
    return column


def counts_text(counts: dict[str, Any]) -> str:
    return f"{COUNTS_TITLE}: " + ", ".join(f"{label} {value}" for label, value in counts_column(counts).items())


def launches_text(counts: dict[str, Any]) -> str:
    """Everything that the emulator counted, launch by launch."""
    lines = [f"{COUNTS_TITLE}:", *(f"{label}: {value}" for label, value in counts_column(counts).items())]
    for number, launch in enumerate(counts["launches"]):
        lines.append(f"launch {number}: {launch['kernel']}")
        for name, value in launch.items():
            if name == "per_allocation":
                lines.append(f"    {PER_ALLOCATION}:")
                lines += [f"        {key}: {requested:,}, {unique:,}" for key, (requested, unique) in value.items()]
            elif name != "kernel":
                lines.append(f"    {name}: {value}")
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------------------------
# Modes
# ---------------------------------------------------------------------------------------------------------------------


def job_of_mode(
    mode: str, emulated: bool, baseline: bool, hopper: bool = False
) -> tuple[Callable[..., Result], dict[str, Any]]:
    """The job that a mode runs on every case, and its options."""
    if hopper and mode == "benchmark":
        return time_pipeline, {"limits": BENCHMARK}
    if mode == "test":
        return check_case, {}
    if mode == "profile":
        return (count_launches if emulated else profile_case), {}
    if emulated:
        return count_case, {}
    if mode == "benchmark":
        return time_case, {"limits": BENCHMARK, "baseline": baseline}
    return time_case, {"limits": LEADERBOARD, "baseline": baseline, "recheck": True}


def run_mode(
    mode: str,
    problem: Problem,
    specs: list[TestSpec],
    worker: Worker,
    report: ProtocolReport | ConsoleReport,
    emulated: bool,
    baseline: bool,
    hopper: bool = False,
) -> int:
    """Run every case and report it; leaderboard mode ends at the first failure. Returns the exit code."""
    job, options = job_of_mode(mode, emulated, baseline, hopper)
    passed = True
    with report:
        report.begin(mode, specs)
        if job in (time_case, time_pipeline):
            report.working("warming up")
            warm_up = BENCHMARK_WARM_UP if mode == "benchmark" else LEADERBOARD_WARM_UP
            for spec in specs[:1] if mode == "benchmark" else specs:
                worker.run(job, problem, spec, limits=warm_up)
        for index, spec in enumerate(specs):
            report.case_begins(index, spec)
            result = worker.run(job, problem, spec, **options)
            report.case_ends(index, result)
            passed = passed and result.passed
            if mode == "leaderboard" and not passed:
                break
        report.end(passed)
    return 0 if passed else EXIT_CHECK_FAILED


# ---------------------------------------------------------------------------------------------------------------------
# Devices
# ---------------------------------------------------------------------------------------------------------------------


def emulated_device() -> str | None:
    """The device that `python -m emulator` started this process on; torch need not be imported yet."""
    return {"1": "emulator", "hopper": "hopper"}.get(os.environ.get("EMULATOR"))


def under_emulator() -> bool:
    """Whether `python -m emulator` started this process."""
    return emulated_device() is not None


def cuda_capability() -> tuple[int, int] | None:
    """Compute capability of the current CUDA device, None where there is none."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None  # without the seconds that importing torch takes
    import torch

    return torch.cuda.get_device_capability() if torch.cuda.is_available() else None


def has_b200() -> bool:
    """Whether the current CUDA device runs sm_100a code."""
    return cuda_capability() == (10, 0)


def has_hopper() -> bool:
    """Whether the current CUDA device runs sm_90a code."""
    return cuda_capability() == (9, 0)


def choose_device(requested: str | None) -> str:
    """The name of the device to run on. Raises DeviceError if the requested one cannot be had."""
    if under_emulator():
        if requested not in (None, emulated_device()):
            raise DeviceError(f"--device {requested} cannot be had under python -m emulator as it was started")
        return emulated_device()
    if requested == "b200":
        import torch

        if not torch.cuda.is_available():
            raise DeviceError("--device b200: there is no CUDA device, or torch is built without CUDA")
        if torch.cuda.get_device_capability() != (10, 0):
            name, (major, minor) = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
            raise DeviceError(
                f"--device b200: the current device is {name}, capability {major}.{minor}; a B200 has 10.0"
            )
    if requested == "hopper" and not has_hopper():
        raise DeviceError("--device hopper: the current CUDA device, if there is one, does not have capability 9.0")
    return requested or ("b200" if has_b200() else "hopper" if has_hopper() else "emulator")


def without_schedule(arguments: list[str]) -> list[str]:
    """The arguments less --schedule, which is the emulator's: as a command to be typed, they would be refused."""
    kept = [argument for argument in arguments if not argument.startswith("--schedule=")]
    if "--schedule" in kept:
        at = kept.index("--schedule")
        del kept[at : at + 2]
    return kept


def check_packages() -> None:
    """Raise DeviceError if eval.py was started by a Python that lacks what it needs."""
    for name in ("torch", "rich"):
        if importlib.util.find_spec(name) is None:
            raise DeviceError(
                f"{sys.executable} has no package {name!r}; `make eval` sets up a virtual environment, .venv-dsl-VERSION, "
                "that has all: activate it first"
            )


def restart_under_emulator(schedule: str | None, device: str = "emulator") -> NoReturn:
    """Replace this process by `python -m emulator eval.py` with the same arguments; file descriptors stay open."""
    if os.environ.get(RESTARTED):
        raise DeviceError(f"python -m emulator is another package of that name in {os.getcwd()}")
    if not (HERE / "emulator" / "__main__.py").is_file():
        raise DeviceError(f"there is no emulator to run in place of a B200: {HERE / 'emulator'} is missing")
    options = ["--schedule", schedule] if schedule else []
    options += ["--device", "hopper"] if device == "hopper" else []
    command = ["-m", "emulator", *options, str(Path(__file__).resolve()), *sys.argv[1:]]
    shown = shlex.join(["python", "-m", "emulator", *options, "eval.py", *without_schedule(sys.argv[1:])])
    what = "a Hopper GPU" if device == "hopper" else "an emulated B200"
    print(f"eval.py: restarting on {what}: {shown}", file=sys.stderr, flush=True)
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    os.execve(sys.executable, [sys.executable, *command], {**os.environ, "PYTHONPATH": path, RESTARTED: "1"})


class DeviceError(Exception):
    """The device asked for, or any device, cannot be used; the text says what is missing."""


# ---------------------------------------------------------------------------------------------------------------------
# Command line
# ---------------------------------------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def parse_arguments() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("specfile", nargs="?", help="spec lines to run in place of the problem's own")
    parser.add_argument("--problem", choices=(*PROBLEMS, ALL), default=GROUP_GEMM.name, help="default: %(default)s")
    parser.add_argument("--case", type=int, metavar="I", help="run only this case, numbered from 0")
    parser.add_argument("--submission", type=Path, default=HERE / "submission.py", metavar="FILE")
    parser.add_argument(
        "--device",
        choices=("b200", "hopper", "emulator"),
        help="default: b200 where there is one, else hopper where there is one, else emulator",
    )
    parser.add_argument("--schedule", metavar="S[,S...]", help="passed on to the emulator, if that is the device")
    parser.add_argument("--baseline", action="store_true", help="time torch's own kernels as well (b200)")
    limits = ", ".join(f"{limit} on {device}" for device, limit in TIMEOUT_S.items())
    parser.add_argument("--timeout", type=seconds, metavar="SECONDS", help=f"limit for one case; default: {limits}")
    return parser, parser.parse_args()


@dataclass(frozen=True)
class Selection:
    """The cases of one problem that are run."""

    problem: Problem
    specs: list[TestSpec]
    numbers: list[int]  # of the specs, among all that the problem or the spec file has


def select_cases(parser: argparse.ArgumentParser, args: argparse.Namespace) -> list[Selection]:
    """What the command line asks for, with POPCORN_SEED combined into the seeds. Raises SpecError."""
    if args.problem == ALL and args.specfile:
        parser.error(f"--problem {ALL} takes no SPECFILE: a spec file holds the cases of one problem")
    if args.problem == ALL and args.case is not None:
        parser.error(f"--problem {ALL} takes no --case: it is the number of a case of one problem")
    seed = os.environ.get("POPCORN_SEED")
    selections = []
    for problem in PROBLEMS.values() if args.problem == ALL else [PROBLEMS[args.problem]]:
        if args.specfile:
            specs = problem.read_spec_file(args.specfile)
        else:
            lines = problem.tests if args.mode == "test" else [benchmark.line for benchmark in problem.benchmarks]
            specs = problem.parse_specs(lines)
        numbers = list(range(len(specs)))
        if args.case is not None:
            if args.case not in numbers:
                parser.error(f"--case {args.case}: the cases are numbered 0 to {len(specs) - 1}")
            numbers = [args.case]
        try:
            specs = [specs[i].combine_seed(int(seed)) if seed else specs[i] for i in numbers]
        except ValueError:
            parser.error(f"POPCORN_SEED={seed!r} is not an integer")
        selections.append(Selection(problem, specs, numbers))
    return selections


def usable_fd(text: str) -> int | None:
    """The file descriptor that `text` names, if it is open for writing."""
    try:
        fd = int(text)
        writable = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except (ValueError, OSError, OverflowError):
        return None
    return fd if writable else None


def main() -> int:
    protocol_fd = None
    if "POPCORN_FD" in os.environ:
        protocol_fd = usable_fd(os.environ["POPCORN_FD"])
        if protocol_fd is None:
            print(f"POPCORN_FD={os.environ['POPCORN_FD']!r} is not open for writing", file=sys.stderr)
            return EXIT_BAD_POPCORN_FD

    parser, args = parse_arguments()
    if protocol_fd is not None and args.specfile is None:
        parser.error("SPECFILE is required where POPCORN_FD is set")
    if not args.submission.is_file():
        parser.error(f"--submission {args.submission}: there is no such file")
    try:
        selections = select_cases(parser, args)
    except SpecError as error:
        print(error, file=sys.stderr)
        return EXIT_BAD_SPEC

    try:
        if protocol_fd is None and not under_emulator():
            check_packages()
        device = choose_device(args.device)
        if args.baseline and (device != "b200" or args.mode not in ("benchmark", "leaderboard")):
            parser.error("--baseline is a time: it needs a B200, and mode benchmark or leaderboard")
        if device == "hopper" and args.mode not in HOPPER_MODES:
            parser.error(f"on a Hopper there are the modes {' and '.join(HOPPER_MODES)}, not {args.mode}")
        if device != "b200" and not under_emulator():
            if protocol_fd is not None:
                os.set_inheritable(protocol_fd, True)
            restart_under_emulator(args.schedule if device == "emulator" else None, device)
    except DeviceError as error:
        print(f"eval.py: {error}", file=sys.stderr)
        return EXIT_NO_DEVICE
    if args.schedule and under_emulator() and not os.environ.get(RESTARTED):
        parser.error("give --schedule to python -m emulator, before eval.py")

    # The worker inherits the environment as it is now.
    os.environ["CUTE_DSL_DISABLE_FILE_CACHING"] = "1"
    for name in ("POPCORN_SEED", "POPCORN_FD", RESTARTED):
        os.environ.pop(name, None)
    if device == "hopper":
        os.environ["EMULATOR_HOPPER_MODE"] = HOPPER_MODES[args.mode]
        print(f"eval.py: {HOPPER_IS[HOPPER_MODES[args.mode]]}", file=sys.stderr, flush=True)
    with Worker(args.submission, args.timeout or TIMEOUT_S[device]) as worker:
        if protocol_fd is not None:
            reports = [ProtocolReport(protocol_fd)]
        else:
            name = worker.device_name()
            if args.schedule and device == "emulator":
                name += f", schedules {args.schedule}"
            headline = f"{name} · {args.submission}"
            reports = [ConsoleReport(selected.problem, headline, selected.numbers) for selected in selections]
        modes = {"emulated": device == "emulator", "baseline": args.baseline, "hopper": device == "hopper"}
        codes = []
        for selected, report in zip(selections, reports):
            if codes:
                print(flush=True)
            codes.append(run_mode(args.mode, selected.problem, selected.specs, worker, report, **modes))
        if len(reports) > 1:
            print_total(reports)
        return max(codes)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("eval.py: interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
