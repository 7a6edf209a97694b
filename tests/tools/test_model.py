"""The roofline's counts are the reference's, its rates the profile's, and the clock never beats it."""

import json

import pytest

import reference
from nogpu.clock.chip import profile
from task import PROBLEMS, TestSpec
from tools import model
from tools.measurements import RESULTS

SMALL = {
    "group_gemm": {"m": (96, 128), "n": (128, 256), "k": (256, 512), "g": 2, "seed": 1},
    "dual_gemm": {"m": 256, "n": 384, "k": 512, "l": 2, "seed": 1},
    "gemm": {"m": 128, "n": 256, "k": 512, "l": 2, "seed": 1},
    "gemv": {"m": 256, "k": 512, "l": 3, "seed": 1},
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_bytes_are_the_references(problem):
    args = SMALL[problem]
    found = reference.REFERENCES[problem]
    data = found.generate_input(**args)
    assert model.roofline(problem, args, profile("b200")).bytes == sum(found.minimum_traffic(data))


def test_terms_follow_from_the_profile():
    """4096 x 4096 weights by 128 tokens: 2,048 MMAs of 128 columns, 64 cycles each, on 148 SMs."""
    chip = profile("b200")
    args = {"m": 128, "n": 4096, "k": 4096, "l": 1, "seed": 1}
    found = model.roofline("gemm", args, chip)
    assert found.tensor_us == pytest.approx(chip.us(4096 // 128 * 4096 // 64 * 64 / 148))
    assert found.dram_us == pytest.approx(found.bytes / 7.3e6, rel=1e-3)
    assert found.us == max(found.dram_us, found.tensor_us)
    assert model.roofline("dual_gemm", args, chip).tensor_us == pytest.approx(2 * found.tensor_us)


def test_no_modelled_time_is_below_the_roofline():
    """2 % for lines of the last calls that stay in L2."""
    saved = json.loads((RESULTS / "clock-ours-b200.json").read_text())
    chip = profile(saved["chip"])
    for point in saved["points"]:
        case = TestSpec.parse(PROBLEMS[point["problem"]].benchmarks[point["case"]].line).args
        least = model.roofline(point["problem"], case, chip).us
        assert min(us for name, us in point.items() if name.endswith("_us")) > 0.98 * least, point
