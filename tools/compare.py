"""Times the kernel against others and against the memory system, in one run on one GPU: a B200, or a Hopper GPU.

    python compare.py [--problem NAME] [--peer FILE ...] [--example FILE] [--case N ...] [--shapes] [--repeats N]
                      [--save FILE.json]

Rows, microseconds per call, medians over repeats of the contest's loop: as many inputs as the problem says (15 for a
group GEMM, 50 for a GEMM or a dual GEMM, one for a GEMV) back to back between two events, on a flushed L2, the host's
work hidden behind a kernel that waits.

    plain read            a grid-stride read of as many bytes as the case must move
    ring                  the same bytes through a ring of bulk copies, one CTA per SM: launched one after another, and with
                          programmatic launch, loads before the wait
    ring, our traffic     the chosen schedule's own loads and stores, as plain bulk copies, nothing computed
    ours                  custom_kernel; as solve() launches it (nothing promised); with programmatic launch off; of a GEMV
                          on a Hopper also with one instruction in place of the software for each conversion from e2m1
    ours, TILE            with --shapes: every configuration of the kernel, whatever would be chosen
    FILE                  custom_kernel of another file: --peer, as often as wanted. Where its calls wait for the GPU the
                          host's work cannot be hidden: "host included", and "kernels only" is the profiler's sum of what
                          ran on the GPU
    NVIDIA grouped ...    --example: grouped_blockscaled_gemm.py from NVIDIA/cutlass, examples/python/CuTeDSL/cute/
                          blackwell/kernel/blockscaled_grouped_gemm, one SM per MMA and (B200 only) two

On a Hopper GPU the B200's PTX runs with tensor-core work left out (see README): its times say what loads, barriers,
stores and launches take on that GPU. They are no times of a B200.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tools.peers import load_grouped_example, load_submission

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SEED_STEP = 42
REPEATS = 40
PRODUCTS = {"group_gemm": 1, "gemm": 1, "dual_gemm": 2}  # of the problems whose launches are planned by schedules
PROFILED = 5
FLUSH_BYTES = 512 * 2**20  # several times the L2 of any GPU
WAIT_CYCLES = 10_000_000  # of the kernel that hides the host's work, at first
LONGEST_WAIT_CYCLES = 100_000_000
MAX_GROUPS = 16  # ring.cu
RING_STAGE, RING_STAGES, RING_THREADS = 16384, 12, 96
LINE = 128  # bytes of L2
STORE_BYTES = 256  # ring.cu
SF_BYTES = 2048  # of 128 rows in a k-tile
SMEM_BYTES = 227 * 1024
# Rows of NVIDIA's example: MMA tile, CTAs of a cluster, and whether a Hopper's time of it says something: loads for two
# SMs are done in software there.
EXAMPLES = {
    "NVIDIA grouped example, 1-SM 128x128": ((128, 128), (1, 1), True),
    "NVIDIA grouped example, 2-SM 256x128": ((256, 128), (2, 1), False),
}


class Group(ctypes.Structure):
    """ring.cu's Group."""

    _fields_ = [(name, ctypes.c_int64) for name in ("weights", "tokens", "output")] + [
        (name, ctypes.c_int32) for name in ("first_tile", "token_blocks", "k_tiles", "m", "n")
    ]


class Work(ctypes.Structure):
    """ring.cu's Work."""

    _fields_ = [("groups", Group * MAX_GROUPS)] + [
        (name, ctypes.c_int32)
        for name in (
            *("group_count", "tiles", "ctas_per_tile", "token_tile", "part_tokens"),
            *("stages", "weight_bytes", "part_bytes", "early"),
        )
    ]


@dataclasses.dataclass
class Row:
    """One thing to time in one case: `call` is called with one of `inputs`, back to back."""

    name: str
    call: Callable[[Any], Any]
    inputs: list[Any]


# ----------------------------------------------------------------------------------------------------------------------
# Rows that only move bytes
# ----------------------------------------------------------------------------------------------------------------------


@functools.cache
def ring_kernel():
    """ring.cu, loaded for the GPU that is there."""
    from emulator.hopper import gpu, library

    function = gpu.Module(library.ptx(HERE / "ring.cu", "sm_90")).function("ring")
    gpu.set_attribute(function, gpu.MAX_DYNAMIC_SHARED_BYTES, SMEM_BYTES)
    return function


def ring_shared_bytes(work: Work) -> int:
    stage_bytes = work.weight_bytes + work.token_tile // work.part_tokens * work.part_bytes
    return work.stages * stage_bytes + STORE_BYTES + 8 * (2 * work.stages + 2)


def run_ring(ctas: int, programmatic: bool, work: Work) -> None:
    import torch

    from emulator.hopper import gpu
    from emulator.hardware.properties import LaunchConfig

    config = LaunchConfig(
        (ctas, 1, 1), (RING_THREADS, 1, 1), (1, 1, 1), ring_shared_bytes(work), programmatic=programmatic
    )
    gpu.launch(ring_kernel(), config, [bytes(work)], torch.cuda.current_stream().cuda_stream)


def plain_ring(address: int, nbytes: int, sms: int, early: bool) -> Work:
    """So many bytes through a ring, an equal and contiguous share per SM."""
    k_tiles = -(-nbytes // (sms * RING_STAGE))
    work = Work(group_count=1, tiles=sms, ctas_per_tile=1, token_tile=1, part_tokens=1, early=early)
    work.stages, work.weight_bytes = RING_STAGES, nbytes // (sms * k_tiles * LINE) * LINE
    work.groups[0] = Group(weights=address, token_blocks=1, k_tiles=k_tiles, n=128)
    return work


def schedule_ring(schedule, buffer) -> tuple[Work, int]:
    """The schedule's traffic, operands and output one after the other in a buffer (None: only count its bytes)."""
    plan = schedule.plan
    if plan.k_split > 1:
        raise ValueError(f"{plan.k_split} shares of K; ring.cu's CTAs load all of it")
    work = Work(group_count=len(schedule.sizes), tiles=schedule.tiles, ctas_per_tile=plan.cta_group, early=1)
    work.token_tile, work.part_tokens, work.stages = plan.token_tile, plan.part_tokens, plan.stages
    work.weight_bytes = plan.products * (plan.weight_bytes + SF_BYTES)
    work.part_bytes = plan.part_token_bytes + plan.part_atoms * SF_BYTES
    at = start = buffer.data_ptr() if buffer is not None else 0
    for index, ((m, n, k), first) in enumerate(zip(schedule.sizes, schedule.first_tiles)):
        k_tiles, weight_blocks = -(-k // 256), -(-n // (128 * plan.cta_group)) * plan.cta_group
        token_parts = -(-m // plan.token_tile) * plan.parts * plan.cta_group
        group = Group(
            first_tile=first, token_blocks=-(-m // plan.token_tile), k_tiles=k_tiles, m=m, n=weight_blocks * 128
        )
        group.weights, at = at, at + weight_blocks * k_tiles * work.weight_bytes
        group.tokens, at = at, at + token_parts * k_tiles * work.part_bytes
        group.output, at = at, at + m * weight_blocks * 128 * 2
        work.groups[index] = group
    return work, at - start


def memory_rows(nbytes: int, schedule, sms: int, calls: int) -> Iterator[Row]:
    """Rows that only move bytes, each with as many buffers as there are calls. schedule: None for a kernel without one."""
    import torch

    from emulator.hopper import plain_read

    yield Row("plain read", lambda read: read(), [plain_read.reader(nbytes) for _ in range(calls)])
    buffers = [torch.zeros(nbytes, dtype=torch.uint8, device="cuda") for _ in range(calls)]
    for name, programmatic in (("ring, launches in turn", False), ("ring, loads before the wait", True)):
        works = [plain_ring(buffer.data_ptr(), nbytes, sms, programmatic) for buffer in buffers]
        yield Row(name, functools.partial(run_ring, sms, programmatic), works)
    del buffers, works
    if schedule is not None and schedule.plan.k_split == 1:
        _, needed = schedule_ring(schedule, None)
        buffers = [torch.zeros(needed, dtype=torch.uint8, device="cuda") for _ in range(calls)]
        works = [schedule_ring(schedule, buffer)[0] for buffer in buffers]
        yield Row("ring, our traffic", functools.partial(run_ring, schedule.ctas, True), works)


# ----------------------------------------------------------------------------------------------------------------------
# Kernels
# ----------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def ordinary_launches() -> Iterator[None]:
    """Launches on the Hopper path without their programmatic attribute."""
    from emulator.hopper import gpu

    original = gpu.launch

    def without(function, config, *rest) -> None:
        original(function, dataclasses.replace(config, programmatic=False), *rest)

    gpu.launch = without
    try:
        yield
    finally:
        gpu.launch = original


@contextlib.contextmanager
def bare_conversions() -> Iterator[None]:
    """Launches on the Hopper path without the software for conversions that only a B200 has: wrong values."""
    mode = os.environ["EMULATOR_HOPPER_MODE"]
    os.environ["EMULATOR_HOPPER_MODE"] = "bare"
    try:
        yield
    finally:
        os.environ["EMULATOR_HOPPER_MODE"] = mode


def one_shape(submission, shape: tuple[int, int, int, int]) -> Callable:
    """custom_kernel() with this configuration of the kernel only."""
    return functools.partial(submission.run, operands_ready=True, output_free=True, configurations=(shape,))


def wrapped(call: Callable, context: Callable, *arguments) -> Callable:
    def inside(data) -> Any:
        with context(*arguments):
            return call(data)

    return inside


def example_calls(path: Path | None, hopper: bool) -> dict[str, Callable]:
    """What --example adds, by the names of its rows."""
    if path is None:
        return {}
    return {
        name: load_grouped_example(path, tile, cluster)
        for name, (tile, cluster, on_hopper) in EXAMPLES.items()
        if on_hopper or not hopper
    }


def kernel_rows(submission, inputs: list[tuple], shapes: list[tuple], hopper: bool, of_gemv: bool) -> Iterator[Row]:
    yield Row("ours", submission.custom_kernel, inputs)
    yield Row("ours, nothing promised", submission.solve, inputs)
    if hopper:
        yield Row("ours, programmatic launch off", wrapped(submission.custom_kernel, ordinary_launches), inputs)
    if hopper and of_gemv:
        yield Row("ours, e2m1 conversions bare", wrapped(submission.custom_kernel, bare_conversions), inputs)
    for shape in shapes:
        tile, cta_group, per_sm, k_split = shape
        name = f"ours, {128 * cta_group}x{tile}, {per_sm} per SM" + (f", K in {k_split}" if k_split > 1 else "")
        yield Row(name, one_shape(submission, shape), inputs)


# ----------------------------------------------------------------------------------------------------------------------
# Timing
# ----------------------------------------------------------------------------------------------------------------------


def time_row(row: Row, flush, repeats: int) -> tuple[list[float], bool]:
    """Microseconds per call of every repeat, after one that is not counted; and whether the host's work was hidden.

    It cannot be where a call waits for the GPU.
    """
    import torch

    durations, cycles = [], WAIT_CYCLES
    while len(durations) <= repeats:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        torch.cuda._sleep(cycles)
        start.record()
        for data in row.inputs:
            row.call(data)
        hidden = not start.query()
        end.record()
        torch.cuda.synchronize()
        if hidden or cycles > LONGEST_WAIT_CYCLES:
            durations.append(start.elapsed_time(end) * 1e3 / len(row.inputs))
        else:
            cycles *= 2
    return durations[1:], hidden


def kernel_time(row: Row) -> float:
    """Microseconds per call that the GPU was at work, by the profiler: a sum over kernels and copies."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for data in row.inputs:
            row.call(data)
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in profiler.key_averages()) / len(row.inputs)


def compare(problem, cases: list[int], options: argparse.Namespace, hopper: bool) -> dict[str, Any]:
    """Microseconds per call of every repeat, by row and case. problem: of task.PROBLEMS."""
    import torch
    from rich.progress import Progress

    import reference
    import submission
    import task

    sms = torch.cuda.get_device_properties(0).multi_processor_count
    examples, described = example_calls(options.example, hopper), reference.REFERENCES[problem.name]
    products = PRODUCTS.get(problem.name)
    flush = torch.empty(FLUSH_BYTES // 4, device="cuda")
    results: dict[str, dict[int, list[float]]] = {}
    with Progress(transient=True) as progress:
        for case in cases:
            args = dict(task.TestSpec.parse(problem.benchmarks[case].line).args)
            seeds = [{**args, "seed": args["seed"] + SEED_STEP * i} for i in range(problem.inputs_per_timing)]
            inputs = [described.generate_input(**args) for args in seeds]
            schedule, every = None, []
            if products:
                sizes = tuple(map(tuple, described.problem_sizes(inputs[0])))
                (launched, *_) = submission.configure(sizes, sms, products=products)
                schedule, every = launched.schedule, submission.shapes(products) if options.shapes else []
            rows = itertools.chain(
                kernel_rows(submission, inputs, every, hopper, products is None),
                (Row(path.name, load_submission(path), inputs) for path in options.peer),
                (Row(name, call, inputs) for name, call in examples.items()),
                memory_rows(sum(described.minimum_traffic(inputs[0])), schedule, sms, len(inputs)),
            )
            for row in rows:
                bar = progress.add_task(f"case {case + 1}: {row.name}", total=None)
                times, hidden = time_row(row, flush, options.repeats)
                results.setdefault(row.name + ("" if hidden else ", host included"), {})[case] = times
                if not hidden:
                    times = [kernel_time(row) for _ in range(PROFILED)]
                    results.setdefault(f"{row.name}, kernels only", {})[case] = times
                progress.remove_task(bar)
            del inputs, rows, row
    return results


def show(results: dict[str, dict[int, list[float]]], cases: list[int], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, caption="median us per call, (10th to 90th percentile)")
    table.add_column("")
    for case in cases:
        table.add_column(f"case {case + 1}", justify="right")
    for name, by_case in results.items():
        cells = []
        for case in cases:
            times = sorted(by_case.get(case, []))
            tenth = len(times) // 10
            cells.append(
                f"{statistics.median(times):.2f} ({times[tenth]:.2f}-{times[-1 - tenth]:.2f})" if times else ""
            )
        table.add_row(name, *cells)
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def circumstances() -> dict[str, Any]:
    """What a reader of the saved file must know: device, versions, and which kernel this was."""
    import cutlass
    import torch

    properties = torch.cuda.get_device_properties(0)
    clocks = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,clocks.max.mem", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "device": properties.name,
        "sms": properties.multi_processor_count,
        "driver, max clocks": clocks.stdout.strip(),
        "torch": torch.__version__,
        "nvidia-cutlass-dsl": cutlass.__version__,
        "submission.py sha256": hashlib.sha256((ROOT / "submission.py").read_bytes()).hexdigest(),
        "tensor core": "omitted" if os.environ.get("EMULATOR") == "hopper" else "as it is",
        "command": sys.argv[1:],
    }


def main() -> None:
    import task

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", choices=list(task.PROBLEMS), default="group_gemm")
    parser.add_argument("--peer", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--example", type=Path, metavar="FILE", help="NVIDIA's grouped_blockscaled_gemm.py")
    parser.add_argument("--case", type=int, action="append", metavar="N", help="from 1 on; all by default")
    parser.add_argument("--shapes", action="store_true", help="time every configuration of the kernel")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="keep every measurement")
    options = parser.parse_args()
    problem = task.PROBLEMS[options.problem]
    every = range(1, len(problem.benchmarks) + 1)
    if unknown := set(options.case or ()) - set(every):
        parser.error(f"case {min(unknown)}; {problem.name} has 1 to {len(every)}")

    from harness import devices

    hopper = devices.has_hopper()
    if not hopper and not devices.has_b200():
        sys.exit("compare.py: a B200 or a Hopper GPU is needed; there is neither")
    if hopper and os.environ.get("EMULATOR") != "hopper":
        os.environ["EMULATOR_HOPPER_MODE"] = "timing"
        command = [sys.executable, "-m", "emulator", "--device", "hopper", str(HERE / "compare.py"), *sys.argv[1:]]
        os.execv(sys.executable, command)

    import torch

    cases = [number - 1 for number in options.case or every]
    results = compare(problem, cases, options, hopper)
    name = torch.cuda.get_device_name()
    omitted = ", Hopper: tensor core omitted, no B200 times" if hopper else ""
    show(results, cases, f"{problem.name}, {name}{omitted}")
    if options.save:
        options.save.write_text(json.dumps({**circumstances(), "us": results}, indent=1))
        print(f"every measurement is in {options.save}")


if __name__ == "__main__":
    main()
