"""Published microbenchmarks of a B200 through the clock, and the errors of a ladder."""

import pytest

from nogpu.clock.chip import profile
from nogpu.clock.replay import replay
from tests.support import microbenchmarks
from workshop.clock import ladders
from workshop.clock.families import held_out


def _multiplies(columns: int, many: int) -> float:
    """Cycles of a launch of one warp with so many MMAs, 128 x columns."""
    warp = microbenchmarks.Warp()
    warp.add(microbenchmarks.INIT, 0, 1)
    for _ in range(many):
        warp.add(microbenchmarks.MMA, 0, 128, columns, 16, 1, 0, 1)
    warp.add(microbenchmarks.COMMIT, 0, 1, 1)
    warp.add(microbenchmarks.WAIT, 0, 0, 1)
    result = replay([microbenchmarks.launch([[warp]])], profile("b200"))
    return result.ends[0] - result.first_ctas[0]


@pytest.mark.parametrize(("columns", "cycles"), [(64, 48), (96, 56), (128, 64), (256, 128)])
def test_an_mma_takes_as_long_as_published(columns: int, cycles: int) -> None:
    """SemiAnalysisAI/microbench-blackwell, umma_latency: bf16, both operands in shared memory, one CTA."""
    assert (_multiplies(columns, 120) - _multiplies(columns, 20)) / 100 == pytest.approx(cycles, rel=0.01)


def test_an_mma_alone_takes_as_long_as_published() -> None:
    assert microbenchmarks.mma_cycles(profile("b200"), 256) == pytest.approx(264, rel=0.05)


def test_a_half_of_l2_reads_the_other_halfs_lines_once() -> None:
    """The two halves read the same lines: the second reading of a line by a half is from its own copy."""
    chip = profile("b200").with_constant("l2_link_rate", 1e-3)  # the link decides
    size = 4096
    slow = [
        replay([microbenchmarks.launch([[microbenchmarks.ring(size, 4, loads, 0, size, 16 * size)]])], chip).ends[0]
        for loads in (16, 64)
    ]
    assert slow[1] < 1.1 * slow[0]


def test_errors_of_a_ladder() -> None:
    alike = {"family": "a/b", "case": "0"}
    rows = [
        {**alike, "silicon_us": 10.0, "modelled_us": 11.0},
        {**alike, "silicon_us": 20.0, "modelled_us": 10.0},
        {**alike, "silicon_us": 20.5, "modelled_us": 30.75},
    ]
    figures = ladders.errors(rows)
    assert figures["median"] == pytest.approx(0.5)
    assert figures["signed"] == pytest.approx((0.1 - 0.5 + 0.5) / 3)
    assert figures["pairs"] == 2  # 20 and 20.5 differ by less than 5 %
    assert figures["ordered"] == 0.5


def _published(case: str, *times: float, timing: str = "in turn") -> list[dict]:
    return [{"family": "someone/gemm", "case": case, "us": us, "timing": timing} for us in times]


def test_times_that_versions_share_are_not_their_kernels() -> None:
    floor = _published("0", 8.40, 8.41, 8.40, 6.5, 6.4, 10.1)
    pairs = _published("1", 8.40, 8.41, 9.0, 9.01, 10.0, 10.01)  # no three alike
    dense = _published("2", *(30 * 1.004**i for i in range(12)))  # neighbours only
    kernel = _published("3", 8.40, 8.41, 8.40, timing="kernel")  # a profiler's times are on no grid
    assert ladders.floors([*floor, *pairs, *dense, *kernel]) == {("someone/gemm", "0")}
    left_out = [{**point, "not_comparable": "the host"} for point in floor]
    assert ladders.floors(left_out) == set()


def test_the_committed_points_name_their_families() -> None:
    points = ladders.published()
    assert {point["timing"] for point in points} <= {"in turn", "kernel"}
    assert {point["l2"] for point in points} <= {"cold", "warm"}
    assert all(isinstance(point["case"], str) and point["us"] > 0 and point["calls"] > 0 for point in points)
    places = [(point["family"], point["configuration"], point["case"]) for point in points]
    assert len(set(places)) == len(places)


def test_a_family_is_held_out_by_its_name_unless_it_had_been_in_view() -> None:
    assert held_out("prime-kernels/rmsnorm")  # SHA-256 begins with 0xd1
    assert not held_out("flashinfer/kda")  # 0xc4
    assert not held_out("gpu-mode-kernels/gemm")  # 0xef, but its points had been replayed


def test_a_kernels_time_leaves_the_host_out() -> None:
    """A profiler's time of a launch is from its start to its end; a loop's begins with the event ahead of it."""
    point = {"timing": "kernel", "l2": "cold", "calls": 1, "us": 3.0, "sms": 148}
    trace = microbenchmarks.launch([[microbenchmarks.ring(4096, 1, 4, 0, 4096)]])
    kernel = ladders.modelled_us([trace], point, "b200", {})
    in_turn = ladders.modelled_us([trace], {**point, "timing": "in turn"}, "b200", {})
    first = profile("b200").us(profile("b200").constants["launch_first"])
    assert in_turn == pytest.approx(kernel - ladders.PROFILER_US + first, rel=0.01)
    warm = ladders.modelled_us([trace], {**point, "l2": "warm"}, "b200", {})
    assert warm < kernel


def test_a_profilers_kernel_finds_half_of_l2_to_be_written_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(ladders, "replay", lambda traces, chip, **options: seen.append((chip, options)) or stop())
    chip = profile("b200")
    with pytest.raises(LookupError):
        ladders.modelled_us([None], {"timing": "kernel", "l2": "cold", "sms": 148}, "b200", {})
    ((found, options),) = seen
    assert found.constants["l2_dirty"] == chip.constants["l2_storage"] / 2 > chip.constants["l2_dirty"]
    assert options["dirty_l2"]


def stop() -> None:
    raise LookupError
