"""The jobs that a mode runs on a case, in the worker process: check, count, time, profile."""

from __future__ import annotations

import inspect
import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from harness import ROOT
from harness.counts import launches_text
from harness.results import Result
from harness.timing import Limits, measure, timing_inputs
from task import GROUP_GEMM, Problem

if TYPE_CHECKING:  # it imports torch, which only the worker does
    from reference import Reference

NOT_CHECKED = "output not checked"
OMITTED = "Hopper, tensor core omitted"


@dataclass(frozen=True)
class Case:
    """A case in the worker: the problem's reference, the submission and generate_input's arguments."""

    problem: Problem
    reference: Reference
    submission: ModuleType
    args: dict[str, Any]

    def inputs(self, first: int) -> list[tuple[Any, ...]]:
        """The inputs of one timing; see timing_inputs."""
        return timing_inputs(self.problem, self.reference.generate_input, self.args, first)


def clone(data: Any) -> Any:
    """A copy of nested tuples and lists with every tensor cloned."""
    if isinstance(data, (tuple, list)):
        return type(data)(clone(item) for item in data)
    return data.clone() if hasattr(data, "clone") else data


def tensors(output: Any) -> Iterator[Any]:
    """The leaves of nested tuples and lists."""
    if isinstance(output, (tuple, list)):
        for item in output:
            yield from tensors(item)
    else:
        yield output


# ---------------------------------------------------------------------------------------------------------------------
# Check and count
# ---------------------------------------------------------------------------------------------------------------------


def check_case(case: Case) -> Result:
    """Run the submission once and check its output."""
    import torch

    data = case.reference.generate_input(**case.args)
    torch.cuda.synchronize()
    output = case.submission.custom_kernel(clone(data))
    torch.cuda.synchronize()
    return Result(*case.reference.check(data, output))


def count_case(case: Case) -> Result:
    """check_case on the emulator, with the counts that harness.counts shows."""
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
    passed, message = case.reference.check(data, output)
    return Result(passed, message, counts=counts)


def count_launches(case: Case) -> Result:
    """count_case with every count of every launch as the report."""
    result = count_case(case)
    return replace(result, counts=None, report=launches_text(result.counts or {}))


def run_counted(call: Callable[[], Any]) -> tuple[Any, list[dict[str, Any]]]:
    """(result of the call, the emulator's counters of each launch that it made)."""
    import torch

    emulator = sys.modules["emulator"]
    emulator.reset_counters()
    result = call()
    torch.cuda.synchronize()
    return result, [asdict(counters) for counters in emulator.counters()]


def plan_of(case: Case, problem_sizes: list[tuple[int, int, int, int]]) -> dict[str, Any]:
    """The submission's own account of its launches: label -> figure. Empty for a submission that gives none.

    A submission gives one by a function plan_report(problem_sizes), which is asked for group GEMM only, or
    plan_report(problem_sizes, problem), which is asked for every problem. harness.plan_report has the project's own.
    """
    plan_report: Callable[..., dict[str, Any]] | None = getattr(case.submission, "plan_report", None)
    if Path(getattr(case.submission, "__file__", None) or "").resolve() == ROOT / "submission.py":
        from harness.plan_report import plan_report
    if plan_report is None:
        return {}
    if "problem" in inspect.signature(plan_report).parameters:
        return plan_report(problem_sizes, problem=case.problem.name)
    return plan_report(problem_sizes) if case.problem is GROUP_GEMM else {}


# ---------------------------------------------------------------------------------------------------------------------
# Time
# ---------------------------------------------------------------------------------------------------------------------


def find_mismatch(case: Case, expected: list[Any], outputs: list[Any]) -> str:
    """The first input whose output is wrong, and its differences; empty if all outputs are right."""
    for index, (want, output) in enumerate(zip(expected, outputs)):
        passed, message = case.reference.compare(want, output)
        if not passed:
            return f"input {index} of {len(expected)}: {message}"
    return ""


def time_case(case: Case, limits: Limits, recheck: bool = False, baseline: bool = False) -> Result:
    """Check the outputs of one timing's calls, then time the calls.

    recheck: time other inputs than those checked first, check every output of every repeat, and overwrite the outputs
    after each repeat, so that a submission cannot pass by leaving the results of an earlier repeat in place.
    baseline: check and time torch's own kernels on the same inputs as well.
    """
    import torch

    def check_and_overwrite(outputs: list[Any]) -> str:
        mismatch = find_mismatch(case, expected, outputs)
        if not mismatch:
            for tensor in tensors(outputs):
                tensor.fill_(math.nan)
        return mismatch

    kernel = case.submission.custom_kernel
    inputs = case.inputs(first=1)
    expected = [case.reference.ref_kernel(data) for data in inputs]
    outputs = [kernel(clone(data)) for data in inputs]
    torch.cuda.synchronize()
    mismatch = find_mismatch(case, expected, outputs)
    if mismatch:
        return Result(False, mismatch)
    if recheck:
        inputs = case.inputs(first=1 + len(inputs))
        expected = [case.reference.ref_kernel(data) for data in inputs]
    stats = measure(kernel, inputs, limits, check_and_overwrite if recheck else None)
    if isinstance(stats, str):
        return Result(False, f"a timed output is wrong: {stats}")
    if not baseline:
        return Result(True, stats=stats)

    mismatch = find_mismatch(case, expected, [case.reference.baseline(data) for data in inputs])
    if mismatch:
        return Result(False, f"the baseline is wrong: {mismatch}")
    reference = measure(case.reference.baseline, inputs, limits)
    message = f"baseline torch._scaled_mm {reference.mean / 1e3:.3f} us, {reference.mean / stats.mean:.2f}x the time"
    return Result(True, message, stats=stats, baseline=reference)


def time_pipeline(case: Case, limits: Limits) -> Result:
    """Time calls on a Hopper GPU with tensor-core work omitted, then plain reads of the bytes that the case must move.

    Outputs are not checked: without tensor-core work they are wrong.
    """
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


# ---------------------------------------------------------------------------------------------------------------------
# Profile
# ---------------------------------------------------------------------------------------------------------------------


def profile_case(case: Case) -> Result:
    """The table of torch's profiler for one call; under ncu (POPCORN_NCU) one call in the NVTX range custom_kernel."""
    import torch

    data = case.reference.generate_input(**case.args)
    kernel = case.submission.custom_kernel
    if os.environ.get("POPCORN_NCU", "0").lower() not in ("", "0", "false"):
        cloned = clone(data)
        torch.cuda.synchronize()
        with torch.cuda.nvtx.range("custom_kernel"):
            kernel(cloned)
            torch.cuda.synchronize()
        return Result(True, NOT_CHECKED, report="")

    from torch.profiler import ProfilerActivity, profile, record_function

    kernel(clone(data))  # compiles
    cloned = clone(data)
    torch.cuda.synchronize()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities) as profiler, record_function("custom_kernel"):
        kernel(cloned)
        torch.cuda.synchronize()
    return Result(True, NOT_CHECKED, report=profiler.key_averages().table(sort_by="self_cuda_time_total", row_limit=20))
