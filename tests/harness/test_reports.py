"""The reports of results from these tests: tables for a person, lines of the protocol."""

import io
import math
import os
import re
from pathlib import Path

from harness.counts import counts_column, launches_text
from harness.protocol import ProtocolReport
from harness.results import Plans, Result
from harness.submissions import Submission
from harness.tables import ConsoleReport, print_total, shapes_text
from harness.timing import Stats
from task import GROUP_GEMM, PROBLEMS, Benchmark, TestSpec


def test_the_total_has_every_geomean():
    reports = []
    for problem in PROBLEMS.values():
        specs = problem.parse_specs([benchmark.line for benchmark in problem.benchmarks])
        report = ConsoleReport(problem, "a device · a file", list(range(len(specs))))
        report.results = [(i, spec, Result(True, stats=stats_of(20.0))) for i, spec in enumerate(specs)]
        reports.append(report)
    reports[0].console.file, reports[0].console.width = io.StringIO(), 120
    print_total(reports)
    rows = [" ".join(line.split()) for line in reports[0].console.file.getvalue().splitlines()]
    for row in (
        "dual_gemm 4 passed, 0 failed; geomean 20.000 us (speed of light 4.89, best published 13.12)",
        "gemv 3 passed, 0 failed; geomean 20.000 us (speed of light 8.63, best published 18.55)",
        "total 14 passed, 0 failed",
    ):
        assert row in rows


def console_text(results, lines, width=200):
    numbers = list(range(len(lines)))
    report = ConsoleReport(GROUP_GEMM, "a device · a file", numbers)
    report.console.file = io.StringIO()
    report.console.width = width
    specs = GROUP_GEMM.parse_specs(lines)
    with report:
        report.begin("benchmark", specs)
        for index, result in enumerate(results):
            report.case_begins(index, specs[index])
            report.case_ends(index, result)
        report.end(all(result.passed for result in results))
    return report.console.file.getvalue()


def stats_of(mean_us):
    return Stats(10, mean_us * 1e3, 120.0, 40.0, mean_us * 1e3 - 500, mean_us * 1e3 + 700)


BENCHMARK_LINES = [benchmark.line for benchmark in GROUP_GEMM.benchmarks]


def test_the_timing_table():
    """Times beside what is known of a case: a line per case where there is room, no mean of some cases."""
    means = (28.2495, 21.334, 4.812, 6.1)
    results = [Result(True, stats=stats_of(mean)) for mean in means]
    text = console_text(results, BENCHMARK_LINES)
    assert "m 80 176 128 72 64 248 96 160, n 4096, k 7168, g 8" in text
    (row,) = [line.split() for line in text.splitlines() if " m 40 76 " in line]
    assert row[-9:] == ["21.334", "±", "0.120", "20.834", "..", "22.034", "10.667", "2.00", "18.8"]
    geomean = math.prod(means) ** 0.25
    assert text.endswith(f"4 passed, 0 failed; geomean {geomean:.3f} us (speed of light 5.21, best published 13.09)\n")
    assert "torch._scaled_mm" not in text
    results = [Result(True, stats=stats_of(20.0))] * 4
    assert len(console_text(results, BENCHMARK_LINES, width=120).splitlines()) == 1 + 1 + 4 + 4 + 1 + 1
    results = [Result(True, stats=stats_of(20.0), baseline=stats_of(50.0))]
    text = console_text(results, [GROUP_GEMM.tests[0]])
    (row,) = [line.split() for line in text.splitlines() if " m 96 128" in line]
    assert row[-5:] == ["-", "-", "-", "50.000", "2.50"]
    assert text.endswith("1 passed, 0 failed; geomean 20.000 us\n")
    results = [Result(True, stats=stats_of(20.0)), Result(False, "[red] wrong [1, 2]")]
    text = console_text(results, BENCHMARK_LINES[:2])
    assert "\n[red] wrong [1, 2]\n" in text
    assert text.endswith("1 passed, 1 failed\n")


def test_markup_in_a_submissions_names_is_text():
    plan = {"[/red]": "[/]"}
    counts = {"launches": [], "plan": plan, "minimum_load_bytes": 1, "minimum_store_bytes": 1}
    plans = Plans(("[/red]",), "[/red]", {"[/red]": Result(True, "[/]")})
    text = console_text([Result(True, counts=counts, plans=plans)], BENCHMARK_LINES[:1])
    assert "\n plan: [/red]  [/] \n" in re.sub("  +", "  ", text) and "\n [/red]  * pass \n" in re.sub(
        "  +", "  ", text
    )


def test_failures_without_a_text():
    text = console_text([Result(False)] * 2, BENCHMARK_LINES[:2])
    assert text.endswith("\nas case 0: \n0 passed, 2 failed\n")


def test_labels_of_counts_stay_whole_on_80_columns():
    launch = {"kernel": "k", "ctas": 148, "mma": 19_712, "stored_bytes": 8_388_608}
    launch |= {"tma_load_requested_bytes": 200_933_376, "tma_load_unique_bytes": 136_421_376}
    counts = {
        "launches": [launch],
        "plan": {"tile": "256 x 256 x 256"},
        "minimum_load_bytes": 1,
        "minimum_store_bytes": 1,
    }
    text = console_text([Result(True, counts=counts)] * 4, BENCHMARK_LINES, width=80)
    for label in counts_column(counts):
        assert any(line.strip().startswith(label) for line in text.splitlines()), label
    assert text.count("200,933,376") == 4


def test_counts_against_the_minimum():
    launch = {"kernel": "k", "grid": (4, 1, 1), "ctas": 4, "mma": 10, "stored_bytes": 30}
    launch |= {"tma_load_requested_bytes": 300, "tma_load_unique_bytes": 110, "per_allocation": {"b": (9, 8)}}
    counts = {"launches": [launch, launch], "plan": {"waves": 2}, "minimum_load_bytes": 200, "minimum_store_bytes": 60}
    assert counts_column(counts) == {
        "plan: waves": "2",
        "launches": "2",
        "CTAs": "8",
        "MMAs": "20",
        "TMA bytes requested": "600",
        "requested / minimum": "3.000",
        "TMA bytes, unique": "220",
        "unique / minimum": "1.100",
        "bytes stored": "60",
        "stored / minimum": "1.000",
    }
    text = launches_text(counts)
    assert "launch 1: k\n    grid: (4, 1, 1)\n    ctas: 4\n" in text
    assert text.endswith("\n    TMA bytes per allocation (requested, unique):\n        b: 9, 8")


def protocol_lines(mode, *results):
    reading, writing = os.pipe()
    spec = TestSpec.parse(GROUP_GEMM.tests[0])
    with ProtocolReport(writing, Submission(Path("submission.py"), "0" * 64)) as report:
        report.begin(mode, [spec] * len(results))
        for index, result in enumerate(results):
            report.case_begins(index, spec)
            report.case_ends(index, result)
        report.end(all(result.passed for result in results))
    with os.fdopen(reading) as pipe:
        digest, *lines = pipe.read().splitlines()
    assert digest == f"submission-sha256: {'0' * 64}"
    return lines


def test_the_protocols_lines():
    stats = Stats(7, 1234.5, 12.25, 4.5, 1200.0, 1300.25)
    passed = Result(True, stats=stats)
    failed = Result(False, "one\ntwo")
    assert protocol_lines("leaderboard", passed, failed) == [
        "benchmark-count: 2",
        f"benchmark.0.spec: {GROUP_GEMM.tests[0]}",
        "benchmark.0.runs: 7",
        "benchmark.0.mean: 1234.5",
        "benchmark.0.std: 12.25",
        "benchmark.0.err: 4.5",
        "benchmark.0.best: 1200.0",
        "benchmark.0.worst: 1300.25",
        f"benchmark.1.spec: {GROUP_GEMM.tests[0]}",
        "benchmark.1.status: fail",
        "benchmark.1.error: one | two",
        "check: fail",
    ]
    lines = protocol_lines("profile", Result(True, report="???>>>"))
    assert lines[2:] == ["benchmark.0.report: Pz8*Pj4+", "check: pass"]


def test_benchmark_lines_are_found_for_their_figures():
    spec = TestSpec.parse(BENCHMARK_LINES[2])
    assert isinstance(GROUP_GEMM.find_benchmark(spec), Benchmark)
    assert shapes_text(spec) == "m 192 320, n 3072, k 4096, g 2"
