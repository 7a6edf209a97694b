"""Published microbenchmarks of a B200 through the clock, and the errors of a ladder."""

import pytest

from emulator.clock.chip import profile
from emulator.clock.replay import replay
from tools import b200_rings, ladders


def _multiplies(columns: int, many: int) -> float:
    """Cycles of a launch of one warp with so many MMAs, 128 x columns."""
    warp = b200_rings._Warp()
    warp.add(b200_rings._INIT, 0, 1)
    for _ in range(many):
        warp.add(b200_rings._MMA, 0, 128, columns, 16, 1, 0, 1)
    warp.add(b200_rings._COMMIT, 0, 1, 1)
    warp.add(b200_rings._WAIT, 0, 0, 1)
    result = replay([b200_rings.launch([[warp]])], profile("b200"))
    return result.ends[0] - result.first_ctas[0]


@pytest.mark.parametrize(("columns", "cycles"), [(64, 48), (96, 56), (128, 64), (256, 128)])
def test_an_mma_takes_as_long_as_published(columns: int, cycles: int) -> None:
    """SemiAnalysisAI/microbench-blackwell, umma_latency: bf16, both operands in shared memory, one CTA."""
    assert (_multiplies(columns, 120) - _multiplies(columns, 20)) / 100 == pytest.approx(cycles, rel=0.01)


def test_an_mma_alone_takes_as_long_as_published() -> None:
    assert b200_rings.mma_cycles(profile("b200"), 256) == pytest.approx(264, rel=0.05)


def test_a_half_of_l2_reads_the_other_halfs_lines_once() -> None:
    """Both halves read the same lines: the second reading of a line by a half is from its own copy."""
    chip = profile("b200").with_constant("l2_link_rate", 1e-3)  # the link decides
    size = 4096
    slow = [
        replay([b200_rings.launch([[b200_rings.ring(size, 4, loads, 0, size, 16 * size)]])], chip).ends[0]
        for loads in (16, 64)
    ]
    assert slow[1] < 1.1 * slow[0]


def test_errors_of_a_ladder() -> None:
    rows = [
        {"set": "a", "case": "0", "silicon_us": 10.0, "modelled_us": 11.0},
        {"set": "a", "case": "0", "silicon_us": 20.0, "modelled_us": 10.0},
        {"set": "a", "case": "0", "silicon_us": 20.5, "modelled_us": 30.75},
    ]
    figures = ladders.errors(rows)
    assert figures["median"] == pytest.approx(0.5)
    assert figures["signed"] == pytest.approx((0.1 - 0.5 + 0.5) / 3)
    assert figures["pairs"] == 2  # 20 and 20.5 differ by less than 5 %
    assert figures["ordered"] == 0.5


def _published(case: int, *times: float) -> list[dict]:
    return [{"source": "someone", "problem": "gemm", "case": case, "us": us} for us in times]


def test_times_that_versions_share_are_not_their_kernels() -> None:
    """Three of eight alike, then two pairs, then three of ten."""
    floor = _published(0, 8.4, 8.41, 8.4, 9, 10, 11, 12, 13)
    pairs = _published(1, 8.4, 8.41, 9, 9.01, 10, 11)
    dense = _published(2, 20.8, 20.8, 20.9, 21.4, 22, 23, 24, 25, 26, 27)
    assert ladders.floors([*floor, *pairs, *dense]) == {ladders.ladder_of(floor[0])}
    left_out = [{**point, "not_comparable": "the host"} for point in floor]
    assert ladders.floors(left_out) == set()


def test_calls_of_a_published_loop() -> None:
    assert ladders.calls_of({"source": "NVFP4_Kernels"}) == 15
    assert ladders.calls_of({"source": "learn-cuda", "m": 4096, "n": 4096, "k": 4096}) == 146
