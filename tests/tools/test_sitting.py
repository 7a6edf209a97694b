"""Steps of tools.first_light: one that hangs, dies, is wrong or too late is reported, and the rest goes on."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness import ROOT
from tools.sitting.outcomes import CUT, FAILED, NOT_RUN, PASSED, Check, read_constants, read_protocol
from tools.sitting.sitting import LOSSES, Sitting
from tools.sitting.steps import Step, eval_command

# What the code of a step begins with: w(...) writes an event, todo(...) has the names that no earlier process began.
PRELUDE = """
import json, os, signal, subprocess, sys, time
file = open(os.environ["LIGHT_RESULTS"], "a")
def w(**event):
    file.write(json.dumps(event) + "\\n")
    file.flush()
def todo(*names):
    for name in names:
        if name not in json.loads(os.environ["LIGHT_SKIP"]):
            w(begin=name)
            yield name
            w(end=name, passed=True, message="")
"""
HANG, FAULT = "time.sleep(60)", "os.kill(os.getpid(), signal.SIGSEGV)"
FIGURES = "for i in range(5): w(figure={'us': i})\ntime.sleep(60)"


def step(code, name="one", **options):
    return Step(
        name, f"step {name}", (sys.executable, "-c", PRELUDE + code), **{"limit_s": 20, "needs_s": 0, **options}
    )


def three_checks(what, **options):
    """A step whose second check does `what`."""
    code = f"for name in todo('a', 'b', 'c'):\n    if name == 'b': {what}"
    return step(code, resumes=True, expected=("a", "b", "c"), **options)


@pytest.fixture
def sitting(tmp_path):
    return Sitting(tmp_path, 60)


def test_a_step_that_passes(sitting):
    outcome = sitting.run(three_checks("pass"))
    assert (outcome.state, outcome.reason, outcome.output) == (PASSED, "", "")
    assert outcome.checks == [Check(name, True) for name in "abc"]


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (HANG, "no end after 1 s: killed"),
        (FAULT, "killed by signal 11 (Segmentation fault)"),
        ("sys.exit(3)", "exit code 3"),
    ],
    ids=["hangs", "faults", "exits"],
)
def test_what_is_lost_is_reported_and_the_rest_goes_on(sitting, what, reason):
    outcome = sitting.run(three_checks(what, row_limit_s=1))
    assert {check.name: (check.passed, check.message) for check in outcome.checks} == {
        "a": (True, ""),
        "b": (False, reason),
        "c": (True, ""),
    }
    assert outcome.state == FAILED and outcome.reason == "1 of 3 checks failed"
    assert sitting.run(step("w(figure={})", "two")).state == PASSED


def test_after_an_error_that_takes_the_context_another_process_goes_on(sitting):
    """The process has reported the check itself, and ends."""
    outcome = sitting.run(three_checks("w(end='b', passed=False, message='illegal'); sys.exit('lost')"))
    assert outcome.checks == [Check("a", True), Check("b", False, "illegal"), Check("c", True)]
    assert (outcome.state, outcome.reason) == (FAILED, "1 of 3 checks failed")


def test_a_wrong_output_is_reported_and_the_rest_goes_on(sitting):
    wrong = "w(begin='a')\nw(end='a', passed=False, message='call 3 of 15: 7 differ')"
    steps = [step(wrong, "wrong", expected=("a",)), three_checks("pass")]
    outcomes = []
    sitting.run_all(steps, 1, 0, outcomes.append)
    assert [outcome.state for outcome in outcomes] == [FAILED, PASSED]
    assert outcomes[0].failures() == [Check("a", False, "call 3 of 15: 7 differ")]
    assert outcomes[0].reason == "1 of 1 checks failed"


def test_a_step_ends_when_every_process_is_lost(sitting):
    code = f"for name in todo(*'abcdefgh'): {FAULT}"
    outcome = sitting.run(step(code, resumes=True, expected=tuple("abcdefgh")))
    assert [check.name for check in outcome.failures()] == list("abcdefgh")[:LOSSES]
    assert f"not run: {', '.join('abcdefgh'[LOSSES:])}" in outcome.reason


def test_a_check_that_a_good_process_left_out_is_named(sitting):
    outcome = sitting.run(step("for name in todo('a', 'b'): pass", expected=("a", "b", "c")))
    assert (outcome.state, outcome.reason) == (FAILED, "not run: c")


def test_without_an_event_the_end_of_the_process_is_the_reason(sitting):
    outcome = sitting.run(step("print('what it said'); sys.exit(7)", resumes=True))
    assert (outcome.state, outcome.reason) == (FAILED, "exit code 7")
    assert outcome.output.strip() == "what it said"
    assert sitting.run(step("pass", "silent")).reason == "it reported nothing"


def test_no_folder_of_the_machine_is_in_what_others_read(sitting):
    places = f"'{ROOT}/tools/light', '{Path.home()}/secret/lib.py', 'usr/lib/python3'"
    told = f"print({places}); w(begin='a'); w(end='a', passed=False, message=' '.join(({places})))"
    outcome = sitting.run(step(told))
    assert outcome.output.strip() == outcome.checks[0].message == "tools/light ~/secret/lib.py usr/lib/python3"


@pytest.mark.parametrize("measures", (True, False))
def test_at_its_limit_only_a_measuring_step_keeps_what_it_has(sitting, measures):
    outcome = sitting.run(step(FIGURES, limit_s=1, measures=measures))
    assert len(outcome.figures) == 5
    assert outcome.state == (CUT if measures else FAILED)
    assert "no end after 1 s: killed" in outcome.reason
    assert outcome.seconds < 5


def test_what_a_step_has_started_ends_with_it(sitting, tmp_path):
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)"
    outcome = sitting.run(step(f"p = {child}\nw(figure={{'pid': p.pid}})\ntime.sleep(60)", limit_s=1, measures=True))
    pid = outcome.figures[0]["pid"]
    with pytest.raises(ProcessLookupError):
        for _ in range(50):
            os.kill(pid, 0)
            if "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]:
                raise ProcessLookupError
            time.sleep(0.1)


def test_the_time_is_kept(tmp_path):
    began = time.monotonic()
    outcomes = []
    hanging = [step("time.sleep(60)", name, limit_s=30, needs_s=1) for name in ("one", "two", "three")]
    Sitting(tmp_path, 4).run_all(hanging, 1, 2, outcomes.append)
    assert time.monotonic() - began < 8
    assert [outcome.state for outcome in outcomes] == [FAILED, NOT_RUN, NOT_RUN]
    assert "no end after 2 s" in outcomes[0].reason
    assert outcomes[1].reason == "0 s of the sitting were left, it needs 1"


def test_time_is_kept_back_for_the_last_steps(tmp_path):
    sitting = Sitting(tmp_path, 10)
    assert sitting.run(step("w(figure={})", needs_s=5), kept_s=9).state == NOT_RUN
    assert sitting.run(step("w(figure={})", needs_s=5), kept_s=0).state == PASSED


def test_steps_that_do_not_run(sitting, tmp_path):
    outcome = sitting.run(step("w(figure={})", refusal="an emulator has no times"))
    assert (outcome.state, outcome.reason, outcome.seconds) == (NOT_RUN, "an emulator has no times", 0)
    one = step("w(figure={})", needs_file=tmp_path / "constants.json")
    outcome = sitting.run(one)
    assert (outcome.state, outcome.reason) == (NOT_RUN, "no step has left constants.json")
    one.needs_file.touch()
    assert sitting.run(one).state == PASSED


def test_only_steps_that_need_not_be_alone_run_side_by_side(sitting):
    steps = [step("w(figure={}); time.sleep(0.5)", name, alone=name in "cd") for name in "abcd"]
    outcomes = {}
    sitting.run_all(steps, 2, 0, lambda outcome: outcomes.setdefault(outcome.name, outcome))
    begins = {name: outcomes[name].started_s for name in "abcd"}
    ends = {name: begins[name] + outcomes[name].seconds for name in "abcd"}
    assert begins["b"] < ends["a"] and begins["a"] < ends["b"]
    assert max(ends["a"], ends["b"]) <= begins["c"] + 0.1 and ends["c"] <= begins["d"] + 0.1


def test_an_interrupt_ends_what_runs(sitting):
    threading.Timer(1, sitting.end).start()
    outcomes = []
    sitting.run_all([step(FIGURES, "one"), step("w(figure={})", "two")], 1, 0, outcomes.append)
    assert [(outcome.state, outcome.reason) for outcome in outcomes] == [(CUT, "interrupted"), (NOT_RUN, "interrupted")]
    assert len(outcomes[0].figures) == 5 and not outcomes[0].checks


# ---- What other commands leave ----


def test_the_protocols_of_eval(tmp_path):
    path = tmp_path / "events"
    path.write_text(
        "test-count: 3\ntest.0.spec: m: 1\ntest.0.status: pass\ntest.0.message: bit-exact\n"
        "test.1.spec: m: 2\ntest.1.status: fail\ntest.1.error: 7 differ\ntest.2.spec: m: 3\n"
    )
    found = read_protocol(path)
    assert found.checks == [Check("case 0", True, "bit-exact"), Check("case 1", False, "7 differ")]
    assert found.begun == "case 2"
    path = tmp_path / "events"
    values = {"runs": 10, "mean": 2500.0, "std": 10.0, "err": 1.0, "best": 2400.0, "worst": 2600.0}
    lines = [f"benchmark.0.{name}: {value}" for name, value in values.items()]
    path.write_text("\n".join(["benchmark-count: 1", "benchmark.0.spec: m: 1", *lines, ""]))
    found = read_protocol(path)
    assert found.checks == [Check("case 0", True)]
    assert found.figures[0]["mean_us"] == 2.5 and found.figures[0]["worst_us"] == 2.6


def test_a_case_that_eval_did_not_reach_is_named(sitting):
    """eval.py's protocol is read although its process was killed."""
    code = "file.write('test.0.spec: m: 1\\ntest.0.status: pass\\ntest.1.spec: m: 2\\n'); file.flush(); time.sleep(60)"
    outcome = sitting.run(step(code, limit_s=1, read=read_protocol, expected=("case 0", "case 1", "case 2")))
    assert outcome.state == FAILED
    assert outcome.checks == [Check("case 0", True), Check("case 1", False, "no end after 1 s: killed")]
    assert "not run: case 2" in outcome.reason


def test_the_protocol_goes_to_the_file_of_the_step(tmp_path):
    """The shell's descriptor reaches eval.py, which refuses one that is not open for writing with exit code 111."""
    command = eval_command("emulator", "test", "group_gemm", tmp_path / "missing")
    process = subprocess.run(
        command, env={**os.environ, "LIGHT_RESULTS": str(tmp_path / "events")}, capture_output=True
    )
    assert process.returncode == 113 and b"missing" in process.stderr  # unreadable spec file: the descriptor was taken
    assert (tmp_path / "events").exists()


def test_constants_and_their_errors(tmp_path):
    path = tmp_path / "constants.json"
    assert read_constants(path).figures == []
    entry = {"value": 1.5, "unit": "cycles", "low": 1, "high": 2, "samples": [1, 2], "launch": {}}
    path.write_text(json.dumps({"constants": {"a.b": entry}, "errors": {"c": "CUDA_ERROR_ILLEGAL_ADDRESS"}}))
    found = read_constants(path)
    assert found.figures == [{"constant": "a.b", "value": 1.5, "unit": "cycles", "low": 1, "high": 2}]
    assert found.checks == [Check("c", False, "CUDA_ERROR_ILLEGAL_ADDRESS")]
