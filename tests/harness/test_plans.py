"""eval.py test --plans all: every case in every plan that can take it. A plan that fails, fails alone."""

import itertools
import re

import pytest

import submission
from harness import messages, options, plan_report
from task import GROUP_GEMM
from tests.harness.local_worker import LocalWorker
from tests.support.commands import ROOT, run_eval, run_protocol

SPECS = "m: [7]; n: [136]; k: [512]; g: 1; seed: 5\nm: [70]; n: [136]; k: [64]; g: 1; seed: 6\n"

# Faults of calls in some plans: one wrong bit in a result, or the death of the process.
PLANTED = """
    if configurations is not None:
        tile, cta_group, per_sm, neighbours = configurations[0]
        if (tile, cta_group, neighbours) == (64, 1, 1):
            call.outputs[0].view(torch.int16)[-1, -1] ^= 1
        if (tile, cta_group, per_sm) == (192, 2, 2):
            import os
            os.kill(os.getpid(), 11)
    return call.outputs
"""
NOTHING = "    sms = sm_count(torch.cuda.current_device()) if sms is None else sms\n"


def planted_submission(folder):
    text = (ROOT / "submission.py").read_text()
    assert text.count("    return call.outputs\n") == 1 and text.count(NOTHING) == 1
    text = text.replace("    return call.outputs\n", PLANTED)
    nothing = "    if configurations and configurations[0][::3] == (256, 1):\n        return call.outputs\n"
    path = folder / "planted.py"
    path.write_text(text.replace(NOTHING, NOTHING + nothing))
    return path


def rows(output):
    """The cells of each row, by plan."""
    lines = [line.split("  ") for line in output.splitlines() if "per SM" in line and "forced" not in line]
    return {parts[0].strip(): [part.strip() for part in parts[1:] if part.strip()] for parts in lines}


@pytest.mark.slow
def test_a_plan_that_fails_fails_alone(tmp_path):
    """Two of 24 or 22 plans have one wrong bit, two launch nothing, and one kills its process."""
    path = tmp_path / "specs"
    path.write_text(SPECS)
    submitted = "--submission", planted_submission(tmp_path)
    process = run_eval("test", path, "--device", "emulator", "--schedule", "late", *submitted, "--plans", "all")
    assert process.returncode == 112
    found = rows(process.stdout)
    assert set(found) == set(map(plan_report.configuration_name, submission.legal_configurations()))
    for name, cells in found.items():
        expected = "exact"
        if name.startswith("128x64,") and "side by side" not in name:
            expected = "pass"
        if "x256" in name and "side by side" not in name or name == "256x192, 2 per SM":
            expected = "FAIL"
        assert [cell.removeprefix("* ") for cell in cells] == [expected, "-" if "x16," in name else expected], name
    for case in (0, 1):
        assert sum(cells[case].startswith("* ") for cells in found.values()) == 1
    assert "3 of 24 plans fail" in process.stdout and "3 of 22 plans fail" in process.stdout
    assert "forced to 256x192, 2 per SM: the worker process was killed by signal 11" in process.stdout


@pytest.mark.parametrize("problem", ("dual_gemm", "gemv"))
def test_plans_of_other_problems(problem):
    """A GEMV has the plans of a GEMM of one token."""
    names, chosen = plan_report.plans([(64, 1 if problem == "gemv" else 120, 1088, 2)], problem)
    legal = submission.legal_configurations(2 if problem == "dual_gemm" else 1)
    assert names == [plan_report.configuration_name(shape) for shape in legal] and chosen in names


def test_the_readme_names_what_the_ten_tests_choose():
    chosen = set()
    for spec in GROUP_GEMM.parse_specs(GROUP_GEMM.tests):
        sizes = list(zip(*(spec.args[name] for name in "mnk"), itertools.repeat(1)))
        chosen |= {each.schedule.plan for each in submission.configure(tuple(sizes), options.B200_SMS)}
    (sentence,) = re.findall(r"- The contest's ten tests .*", (ROOT / "README.md").read_text())
    tiles = {f"{submission.WEIGHT_TILE * plan.cta_group}x{plan.token_tile}" for plan in chosen}
    assert set(re.findall(r"\d+x\d+", sentence)) == tiles
    assert ("single CTAs only" in sentence) == ({plan.cta_group for plan in chosen} == {1})


def test_a_name_belongs_to_one_configuration():
    legal = submission.legal_configurations()
    assert len(set(map(plan_report.configuration_name, legal))) == len(legal)
    with pytest.raises(ValueError, match="no configuration '128x7'; there are 128x16"):
        plan_report.forced("128x7")


def test_plans_of_a_worker():
    """A submission without plans offers none; a forced one ends with the case."""
    worker = LocalWorker(lambda data: data[-1])
    offered = worker.ask(messages.Offer("gemm", ((1, 8, 64, 1),)), messages.Offered)
    assert (offered.plans, offered.chosen) == ((), "")
    with pytest.raises(Exception, match="the submission offers no plans, 'a' among them"):
        worker.ask(messages.Force("a"), messages.Done)
    worker = LocalWorker(lambda data: data[-1])
    worker.runner.forced = lambda data: None
    assert worker.runner.custom_kernel is worker.runner.forced
    worker.ask(messages.Finish(), messages.Finished)
    assert worker.runner.forced is None


def test_plans_are_for_a_person_and_of_tests(tmp_path):
    process = run_eval("benchmark", "--device", "emulator", "--plans", "all")
    assert process.returncode == 2 and "--plans all is of mode test" in process.stderr
    path = tmp_path / "specs"
    path.write_text(SPECS)
    code, lines, output = run_protocol("test", path, "--device", "emulator", "--plans", "all")
    assert code == 2 and not lines and "not of mode test or POPCORN_FD" in output
