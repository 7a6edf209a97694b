"""The emulator's time per operation on this CPU: nogpu bench [--json FILE] [--repeats N] [--only TEXT]

Each operation is in the loop of a small PTX kernel, which is launched with few and with many iterations. The
difference, less that of an empty loop, is the CPU time of the operations. One thread of one process runs one CTA
or one pair, under schedule "late". The times say nothing about a GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

import nogpu
from nogpu import store
from nogpu.bench_kernels import CASES, SHARED_BYTES, TILE_BYTES, Case, ptx
from nogpu.hardware.tma.encode import TiledMap

NOTE = "Times of the emulator on this CPU; they say nothing about a GPU."
ENVIRONMENT = {"NOGPU_SCHEDULE": "late", "NOGPU_WORKERS": "1", "NOGPU_EVERY_LAUNCH": "1"}
LOOP_SECONDS = 0.04  # approximate time of a timed launch


@dataclass(frozen=True)
class Result:
    """The time of one operation."""

    family: str
    name: str
    seconds: float  # median over the repeats
    low: float  # least and most over the repeats
    high: float
    rate: float | None = None  # seconds per unit of work
    unit: str = ""  # unit of the work


class Runner:
    """The kernel of a case, launched with a number of iterations."""

    def __init__(self, case: Case):
        self.case = case
        self._kernel = nogpu.load_ptx(ptx(case))["k"]
        self._memory = nogpu.array(np.zeros(TILE_BYTES, np.uint8))
        address = self._memory.ctypes.data
        self._map = TiledMap(0, address, (128, 128), (128,), (128, 128), (1, 1), swizzle=3).encode()
        self.launch(1)

    def launch(self, iterations: int) -> float:
        """Launch the kernel; the result is its CPU seconds."""
        args = (self._memory, self._map, ctypes.c_uint32(iterations))
        ctas = self.case.cluster
        started = time.process_time()
        self._kernel.launch(ctas, self.case.threads, args, shared=SHARED_BYTES, cluster=ctas)
        return time.process_time() - started

    def iterations(self, seconds: float) -> int:
        """The number of iterations that take about `seconds`."""
        count = 2
        while (taken := self.launch(count)) < seconds / 2 and count < 1 << 20:
            count *= 2
        return max(2, int(count * seconds / taken))

    def slopes(self, seconds: float, repeats: int) -> list[float]:
        """The CPU seconds per iteration, one figure per repeat. seconds: approximate time of a launch."""
        many = self.iterations(seconds)
        return [(self.launch(many + 1) - self.launch(1)) / many for _ in range(repeats)]


def _launches(repeats: int) -> list[float]:
    """The seconds of each launch of an empty kernel after its translation."""
    text = ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k() { ret; }"
    kernel = nogpu.load_ptx(text)["k"]
    taken = []
    for _ in range(20 * repeats):
        started = time.process_time()
        kernel.launch(1, 32)
        taken.append(time.process_time() - started)
    return taken[1:]


def _translations(repeats: int) -> list[float]:
    """The seconds to parse and translate a line of PTX, one figure per repeat.

    The kernel has 64 copies of every warp instruction among the cases, a statement per line. Its second launch is
    subtracted from its loading and first launch.
    """
    memory = nogpu.array(np.zeros(TILE_BYTES, np.uint8))
    cases = [case for case in CASES if case.family == "warp instruction"]
    operations = "\n".join(case.operation.format(at=f"{n}_{i}") for n, case in enumerate(cases) for i in range(64))
    operations = operations.replace("{", "{{").replace("}", "}}")  # `ptx` formats them again
    text = ptx(Case("", "", operations, "setp.gt.u32 %p3, %tid, 7; mov.b32 %r8, %r6; mov.b32 %r9, %r6;", per_loop=1))
    text = text.replace("; ", ";\n")
    lines = text.count("\n")
    args = (memory, bytes(128), 1)
    taken = []
    for _ in range(repeats):
        started = time.process_time()
        with store.unused():
            kernel = nogpu.load_ptx(text)["k"]
        kernel.launch(1, 32, args, shared=SHARED_BYTES)
        first = time.process_time()
        kernel.launch(1, 32, args, shared=SHARED_BYTES)
        taken.append((first - started - (time.process_time() - first)) / lines)
    return taken


OTHERS: dict[tuple[str, str], Callable[[int], list[float]]] = {
    ("launch", "launch of an empty kernel"): _launches,
    ("translation", "line of PTX, parsed and translated"): _translations,
}


def _result(family: str, name: str, taken: list[float], work: float = 0.0, unit: str = "") -> Result:
    median = statistics.median(taken)
    return Result(family, name, median, min(taken), max(taken), median / work if work else None, unit)


def measure(cases: Iterable[Case], repeats: int, seconds: float = LOOP_SECONDS) -> Iterator[Result]:
    """The results of the cases, in order. A case whose time is subtracted from others is timed when first needed."""
    known = {case.name: case for case in CASES}
    medians: dict[str, float] = {"": 0.0}

    def times(case: Case) -> list[float]:
        slopes = Runner(case).slopes(seconds, repeats)
        # The loop is timed per iteration, any other case per operation.
        if case.free in ("", "loop"):
            return [(slope - base(case.free)) / case.per_loop for slope in slopes]
        return [(slope - base("loop")) / case.per_loop - base(case.free) for slope in slopes]

    def base(name: str) -> float:
        if name not in medians:
            medians[name] = statistics.median(times(known[name]))
        return medians[name]

    for case in cases:
        taken = times(case)
        medians.setdefault(case.name, statistics.median(taken))
        yield _result(case.family, case.name, taken, case.work, case.unit)


def processor() -> str:
    """Name of the processor, and number of cores that this process may use."""
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} cores"


def time_text(seconds: float) -> str:
    """The text of a time, with the unit that fits: 1.234e-06 -> "1.23 us"."""
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if seconds >= scale or unit == "ns":
            return f"{seconds / scale:.3g} {unit}"
    raise AssertionError("unreachable")


def rate_text(result: Result) -> str:
    """The text of a result's rate, per byte or per 10**12 FLOP; "" if it has none."""
    if result.rate is None:
        return ""
    return f"{result.rate * 1e12:.3g} s per TFLOP" if result.unit == "FLOP" else f"{result.rate * 1e9:.2f} ns per byte"


def show(results: list[Result]) -> None:
    """Print a table of the results."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"emulator, {processor()}", caption=NOTE, box=box.SIMPLE)
    table.add_column("operation")
    for column in ("median", "range", "per work"):
        table.add_column(column, justify="right", no_wrap=True)
    family = None
    for result in results:
        if result.family != family:
            family = result.family
            table.add_row(f"[bold]{family}")
        spread = f"{time_text(result.low)} to {time_text(result.high)}"
        table.add_row(f"  {result.name}", time_text(result.seconds), spread, rate_text(result))
    Console().print(table)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="nogpu bench", description=NOTE)
    parser.add_argument("--json", metavar="FILE", help="write the results to this file as well, in seconds")
    parser.add_argument(
        "--repeats", type=int, default=5, metavar="N", help="measurements per operation; default: %(default)s"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="measure operations with TEXT in name or family")
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats}: at least 1 expected")

    def wanted(family: str, name: str) -> bool:
        return options.only.lower() in f"{family} {name}".lower()

    cases = [case for case in CASES if case.family != "loop" and wanted(case.family, case.name)]
    others = [key for key in OTHERS if wanted(*key)]
    if not cases and not others:
        parser.error(f"--only {options.only!r}: nothing has this in its name")
    if not ENVIRONMENT.items() <= os.environ.items():
        command = [sys.executable, "-m", "nogpu.bench", *(sys.argv[1:] if arguments is None else arguments)]
        os.execve(sys.executable, command, os.environ | ENVIRONMENT)

    from rich.progress import Progress

    with Progress(transient=True) as progress:
        task = progress.add_task("measuring", total=len(cases) + len(others))
        results = []
        for result in measure(cases, options.repeats):
            results.append(result)
            progress.advance(task)
        for key in others:
            results.append(_result(*key, OTHERS[key](options.repeats)))
            progress.advance(task)
    if options.json:
        with open(options.json, "w") as file:
            head = {"note": NOTE, "processor": processor(), "python": platform.python_version()}
            json.dump({**head, "results": [asdict(result) for result in results]}, file, indent=1)
            file.write("\n")
    show(results)


if __name__ == "__main__":
    main()
