"""tools.clock.tables: bands of modelled times whose mode and problem have truth, and points by family."""

import json
import math
import random

import pytest

from harness.launch_modes import LaunchMode
from task import PROBLEMS
from tools.clock import tables as clock_tables
from workshop.records import MeasurementError

HEADER = (
    "| us on a B200 | speed of light | best published | modelled: best published kernel, ordinary launches "
    "| modelled: ours, ordinary launches (silicon's range) | modelled: ours, programmatic, nothing promised "
    "| modelled: ours, overlapping |"
)


def point(family, silicon, modelled=10.0, number=0, **more):
    row = {"family": family, "held_out": False, "floor": False, "kind": "CUDA C++", "timing": "in turn"}
    row |= {"program": "a.cu", "configuration": f"v{number}", "case": str(number), "silicon_us": silicon}
    return {**row, **({} if modelled is None else {"modelled_us": modelled}), **more}


def family(name, count, first=10, **more):
    return [point(name, first + number, number=number, **more) for number in range(count)]


def ours(**times):
    return [
        {"entry": "ours", "problem": name, "case": case, **times}
        for name, problem in PROBLEMS.items()
        for case in range(len(problem.benchmarks))
    ]


@pytest.fixture
def results(tmp_path):
    """A function that writes the files of points and returns the lines of a table of them."""

    def of(points, modelled=(), name="modelled b200"):
        (tmp_path / "clock-b200.json").write_text(json.dumps({"chip": "b200", "command": ["rec"], "points": points}))
        (tmp_path / "clock-ours-b200.json").write_text(json.dumps({"chip": "b200", "points": [*modelled]}))
        kind, _, rest = name.partition(" ")
        return getattr(clock_tables, kind)(tmp_path, rest).splitlines()

    return of


# ---- Modelled times ----


def families(problem="group_gemm", means=(10, 12, 14), count=4, **more):
    """Points of families a, b, ... with these geometric means in tenths of the modelled time."""
    return [
        point(f"{name}/{problem}", mean * factor, number=number, **more)
        for name, mean in zip("abcdefgh", means)
        for number, factor in zip(range(count), (0.9, 1 / 0.9, 0.95, 1 / 0.95) * 3)
    ]


def test_columns_of_modelled_times(results):
    times = ours(ordinary_us=9.0, programmatic_us=7.0, overlapping_us=4.0)
    best = [{"entry": "v6b", "problem": "group_gemm", "case": case, "ordinary_us": 5.0} for case in range(4)]
    best += [{"entry": "v2", "problem": "dual_gemm", "case": case, "ordinary_us": 6.0} for case in range(3)]
    truth = families()
    lines = results(truth, [*times, *best])
    assert lines[0] == HEADER
    assert len(lines) == 2 + 4 + 4 + 2  # a row for each case of the first problem, a mean of each problem
    low, high = clock_tables.band(truth)
    assert (
        lines[2]
        == f"| group GEMM, case 0 | 18.8 | 27.9 | 5.00 | 9.00 ({9 * low:.1f} to {9 * high:.0f}) | 7.00 | 4.00 |"
    )
    assert lines[7].startswith("| dual GEMM, geometric mean | 4.89 | 12.7 | - | 9.00 | 7.00 | 4.00 |"), "3 of 4 cases"
    assert lines[9].startswith("| GEMV, geometric mean | 8.63 | 18.6 | - | 9.00 |")
    caption = lines[-1]
    assert "Best published kernels: group GEMM v6b, dual GEMM v2." in caption
    assert f"range: {low:.2f} to {high:.2f} times the modelled time" in caption
    assert "from 12 published times of 3 families in ordinary launches. A time without a range" in caption
    assert "error unknown, since nobody has published times of launches of that kind" in caption
    assert len(results(truth, times, "modelled b200 every")) == 2 + 14 + 4 + 2
    with pytest.raises(MeasurementError, match="'all' is not 'every'"):
        results([], times, "modelled b200 all")


def test_a_time_that_is_not_there_is_a_dash(results):
    lines = results([], ours(programmatic_us=7.0))
    assert lines[2].endswith("| 27.9 | - | - | 7.00 | - |")
    assert "none was replayed" in lines[-1] and "Silicon's range" not in lines[-1]


def test_the_quantile_of_student():
    """A printed table has these values for 0.95 and 3, 13 and 120 degrees of freedom."""
    for freedom, value in ((3, 2.353), (13, 1.771), (120, 1.658)):
        assert clock_tables._student(0.95, freedom) == pytest.approx(value, rel=0.005)


def test_a_band_holds_the_share_of_the_times_of_another_family():
    """A band of families drawn from the model holds 90 % of the times of one that it does not know."""
    draw = random.Random(1)

    def drawn(name):
        mean = draw.gauss(0, 0.2)
        return [point(f"{name}/gemm", 10 * math.exp(mean + draw.gauss(0, 0.1))) for _ in range(10)]

    inside = [0, 0]
    for _ in range(200):
        low, high = clock_tables.band([row for name in range(8) for row in drawn(name)])
        new = [row["silicon_us"] / 10 for row in drawn("new")]
        inside[0] += sum(low <= ratio <= high for ratio in new)
        inside[1] += len(new)
    assert inside[0] / inside[1] == pytest.approx(clock_tables.IN_BAND, abs=0.03)


@pytest.mark.parametrize(
    ("points", "banded"),
    [
        (families("gemv"), True),
        (families("gemv", means=(10, 12), count=6), False),
        (families("gemv", means=(10, 12, 14), count=3), False),
        (families("gemv", means=(10, 12, 14), count=3) + families("gemm"), False),
        (families("gemv", means=(10,), count=10) + families("gemm", means=(10, 11, 12)), True),
        (families("gemm", count=12), False),
        (families("my_gemv", count=12), False),
        (families("gemv", count=3) + families("gemv", floor=True), False),
        (families("gemv", count=3) + families("gemv", timing="kernel"), False),
        (families("gemv", count=3) + [point("a/gemv", 9, None, error="no end")] * 9, False),
    ],
)
def test_a_band_needs_three_families_and_ten_times_of_its_problem(results, points, banded):
    lines = results(points, ours(**{mode.field: 9.0 for mode in LaunchMode}))
    cells = [cell.strip() for cell in lines[9].split("|")]
    assert cells[1] == "GEMV, geometric mean" and cells[6:8] == ["9.00", "9.00"]
    assert cells[5].startswith("9.00 (") == banded


def test_how_a_band_does_on_families_that_it_does_not_know(results):
    calibrating = families(means=(10, 12, 14, 16))
    validating = [point("z/gemm", us, held_out=True) for us in (2, 11, 13, 15, 40)]
    lines = results([*calibrating, *validating], ours(ordinary_us=9.0))
    # Only 2 and 40 of the fifth family lie outside: its spread makes the others' ranges wide.
    assert "In the range of all families but their own lie 19 of 21 (90%) of them." in lines[-1]
    assert "In that of the calibrating families lie 3 of 5 (60%) of those held out." in lines[-1]
    assert "held out" not in results(calibrating, ours(ordinary_us=9.0))[-1]


# ---- Errors by family ----


def test_families_that_calibrate_and_those_that_are_held_out(results):
    points = [
        point("a/gemm", 10.0, 11.0, case="0", number=0),
        point("a/gemm", 20.0, 18.0, case="0", number=1),
        point("a/gemm", 8.0, 12.0, case="1", number=2, floor=True),
        point("b/norm", 5.0, 6.0, held_out=True, kind="Triton", timing="kernel"),
        point("b/norm", 5.0, None, number=1, held_out=True, kind="Triton", timing="kernel", error="x | y"),
    ]
    lines = results(points, name="clock b200")
    first, second = lines.index("Families that are **calibrating**:"), lines.index("Families that are **held out**:")
    assert lines[first + 4 : second - 1] == [
        "| a/gemm | CUDA C++ | loop, ordinary launches | 2 | 10.0% | 10.0% | +0.0% | 100% of 1 |",
        "| a/gemm, with floors | CUDA C++ | loop, ordinary launches | 3 | 10.0% | 50.0% | +16.7% | 100% of 1 |",
        "| **all that are calibrating** |  |  | 2 | 10.0% | 10.0% | +0.0% | 100% of 1 |",
        "| **all that are calibrating**, with floors |  |  | 3 | 10.0% | 50.0% | +16.7% | 100% of 1 |",
    ]
    assert lines[second + 4 : second + 6] == [
        "| b/norm | Triton | profiler, kernels | 1 | 20.0% | 20.0% | +20.0% | - |",
        "| **all that are held out** |  |  | 1 | 20.0% | 20.0% | +20.0% | - |",
    ]
    assert "| all 2 | 3 | 10.0% | 20.0% | +6.7% | 100% of 1 |" in lines
    assert "| a/gemm | v2 | 1 | 8.00 | 12.00 | +50.0% (floor) |" in lines
    assert lines[-3] == "| b/norm | v1 | 1 | 5.00 | - | none: x \\| y |"
    assert lines[-1] == "`python -m workshop.clock.ladders rec`"


def test_without_points_that_are_held_out_it_says_so(results):
    assert "No point is held out." in results(family("a/gemm", 3), name="clock b200")
