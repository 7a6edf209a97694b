"""tools.choice: the shapes that are drawn, the inputs over a pool of bytes, the judgement of a choice."""

import json

import pytest
import torch

import submission
from harness.plan_report import configuration_name
from task import PROBLEMS
from tools.choice import __main__ as choice
from tools.choice import times as choice_times
from tools.choice.times import Drawn
from workshop import records


def test_shapes_are_drawn_by_seed_and_number():
    found = choice_times.draw(20, 3)
    assert found == choice_times.draw(40, 3)[:20] != choice_times.draw(20, 4)
    assert {drawn.problem for drawn in found} == {"group_gemm", "gemm", "dual_gemm"}
    for drawn in found:
        assert choice_times.call_bytes(drawn.problem, drawn.sizes) <= choice_times.MOST_BYTES
        assert choice_times.CALLS * choice_times.MOST_BYTES <= choice_times.POOL_BYTES
        assert choice_times.legal(drawn, 132)


def test_the_benchmark_s_cases_are_among_the_shapes():
    count = sum(len(PROBLEMS[name].benchmarks) for name in ("group_gemm", "gemm", "dual_gemm"))
    assert len(choice_times.benchmarks()) == count


@pytest.mark.parametrize("problem", ["group_gemm", "gemm", "dual_gemm"])
def test_inputs_pass_every_check_of_solve(problem):
    sizes = ((40, 256, 512, 1), (72, 256, 512, 1)) if problem == "group_gemm" else ((40, 256, 512, 1),)
    nbytes = choice_times.call_bytes(problem, sizes)
    data = choice_times.call_data(problem, sizes, torch.zeros(nbytes, dtype=torch.uint8, device="cuda"))
    call = submission.unpack(data)
    assert call.problems == sizes and call.products == choice_times.products(problem)
    submission.check_addresses(submission.check(call), call.problems, call.products)


def record(us):
    """A file with one shape, on which every configuration takes 2 us, and some another time."""
    drawn = Drawn("gemm", ((64, 2048, 1024, 1),))
    names = map(configuration_name, choice_times.legal(drawn, 132))
    times = {name: {"overlapping": [us.get(name, 2.0)] * 3} for name in names}
    return {"sms": 132, "shapes": [{"problem": drawn.problem, "sizes": drawn.sizes, "case": None, "us": times}]}


def test_a_choice_is_judged_by_the_best_configuration(capsys, tmp_path):
    drawn = Drawn("gemm", ((64, 2048, 1024, 1),))
    chosen = choice_times.choice(drawn, 132, True)
    (launch,) = submission.configure(drawn.sizes, 132, overlapping=True)
    plan = launch.schedule.plan
    assert chosen == configuration_name((plan.token_tile, plan.cta_group, plan.ctas_per_sm, plan.neighbours))
    (miss,) = choice.misses(record({chosen: 2.04}), "overlapping")
    assert (miss.chosen, miss.us, miss.least) == (chosen, 2.04, 2.0)
    path = tmp_path / "times.json"
    for us, within in ((2.04, 1), (2.08, 0)):
        records.write(path, record({chosen: us}), "shapes")
        choice.main([str(path)])
        assert f"overlapping: {within} of 1 drawn shapes within 3 %" in capsys.readouterr().out
    assert json.loads(path.read_text()) == json.loads(json.dumps(record({chosen: 2.08})))


@pytest.mark.parametrize("arguments", [[], ["--measure"], ["a.json", "--measure", "--save", "b"], ["a", "--save", "b"]])
def test_a_file_or_a_measurement(arguments):
    with pytest.raises(SystemExit):
        choice.main(arguments)
