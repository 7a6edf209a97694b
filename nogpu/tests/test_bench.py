"""The emulator's benchmark: its kernels execute the named operations, and their times are separated correctly."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

import nogpu
from nogpu import bench
from tests.support.commands import ROOT

CASES = {case.name: case for case in bench.CASES}


def counted(case, iterations):
    """The counters of `iterations` iterations: of a launch with one more, less those of a launch with one."""
    runner = bench.Runner(case)
    nogpu.reset_counters()
    runner.launch(1)
    runner.launch(1 + iterations)
    one, more = (counters.as_dict() for counters in nogpu.counters())
    return {name: more[name] - one[name] for name in more if isinstance(more[name], int)}


def test_names():
    assert len(CASES) == len(bench.CASES)
    assert {case.free for case in bench.CASES} <= {*CASES, ""}


@pytest.mark.parametrize("name", CASES)
def test_what_the_kernels_do(name):
    case, n = CASES[name], 3
    did = counted(case, n)
    operations = case.per_loop * n
    if case.family == "MMA":
        assert did["mma"] == operations and did["mma_flops"] == operations * case.work
    elif case.family == "copy":
        moved = did["tma_load_requested_bytes"] if "load" in name else did["stored_bytes"]
        assert moved == operations * case.work == operations * bench.TILE_BYTES
    elif case.family == "warp instruction" and "branch" not in name:
        assert did["warp_instructions"] == operations + 3 * n
    else:
        assert did["warp_instructions"] >= 3 * n + operations * (name != "loop")


class Fake:
    """A replacement of bench.Runner: a loop takes 3 us, each operation in it 2 us, each arrival and wait 5 us."""

    def __init__(self, case):
        self.case = case

    def slopes(self, seconds, repeats):
        if self.case.name == "loop":
            return [3e-6] * repeats
        waits = 5e-6 if self.case.family in ("copy", "mbarrier") else 0.0
        works = 0.0 if self.case.family == "mbarrier" else 2e-6
        return [3e-6 + self.case.per_loop * (works + waits) + noise * 1e-6 for noise in range(repeats)]


def test_what_is_subtracted(monkeypatch):
    monkeypatch.setattr(bench, "Runner", Fake)
    copy = CASES["bulk load of 16 KB"]
    plain = dataclasses.replace(CASES["shuffle"], per_loop=4, work=8, unit="byte")
    first, second = bench.measure([plain, copy], 3)
    assert (first.low, first.seconds, first.high) == pytest.approx((2e-6, 2.25e-6, 2.5e-6))
    assert first.rate == pytest.approx(2.25e-6 / 8)
    assert second.seconds == pytest.approx(2e-6) and second.rate == pytest.approx(2e-6 / bench.TILE_BYTES)


def test_units():
    texts = [bench.time_text(seconds) for seconds in (2.5, 1e-3, 1.234e-4, 4.56e-8, -3e-10)]
    assert texts == ["2.5 s", "1 ms", "123 us", "45.6 ns", "-0.3 ns"]
    result = bench.Result("", "", 1e-3, 0, 0, 2.5e-11, "FLOP")
    assert bench.rate_text(result) == "25 s per TFLOP"
    assert bench.rate_text(dataclasses.replace(result, rate=2e-9, unit="byte")) == "2.00 ns per byte"
    assert bench.rate_text(dataclasses.replace(result, rate=None)) == ""


def run(*arguments):
    command = [sys.executable, "-m", "nogpu.bench", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"COLUMNS": "160"}, capture_output=True, text=True)


def test_command(tmp_path):
    done = run("--repeats", "1", "--only", "integer", "--json", str(tmp_path / "times.json"))
    assert done.returncode == 0, done.stderr
    assert "integer, by lane" in done.stdout and bench.NOTE in done.stdout and "bulk load" not in done.stdout
    written = json.loads((tmp_path / "times.json").read_text())
    assert written["note"] == bench.NOTE and written["processor"] == bench.processor()
    assert [result["name"] for result in written["results"]] == ["integer, the same in all lanes", "integer, by lane"]
    uniform, by_lane = (result["seconds"] for result in written["results"])
    # Differences of two measurements may be negative by noise.
    assert abs(uniform) < 1e-2 and abs(by_lane) < 1e-2
    refused = run("--only", "nothing of this kind")
    assert refused.returncode == 2 and "nothing has this in its name" in refused.stderr
