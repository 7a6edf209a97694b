"""Hostile submissions and legal twins that share runs of eval.py; `python tests/hostile.py` runs all of them."""

import hashlib

import pytest

from tests.submissions.hostile.kit import FAILS, PASSES
from tests.submissions.hostile.register import KINDS
from tests.support import hostile_runs
from tests.support.commands import ROOT

LEAST_KINDS = 300


def together(*families):
    """Kinds of these families whose cases share a run."""
    return [kind.name for kind in KINDS.values() if kind.family in families and not kind.alone]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(
            [*together("results", "calls"), "forged_then_exit", "pickled_code", "finish_fails", "exit_0"], id="results"
        ),
        pytest.param(together("twins"), id="twins", marks=pytest.mark.slow),
        pytest.param(
            [
                *("torch_equal", "reference_compare", "torch_empty_like", "frame_data", "finalizer"),
                *("truncated_memory", "cleared_memory", "newlines", "escapes", "surrogates"),
                *("parents_descriptors", "pidfd_getfd", "memory_file", "signals_by_other_calls", "stops_the_harness"),
                *("detached_grandchild", "child_of_the_harness", "program_without_environment"),
            ],
            id="reach",
            marks=pytest.mark.slow,
        ),
        pytest.param(["second_worker", *KINDS["second_worker"].then], id="files", marks=pytest.mark.slow),
        pytest.param(together("rights"), id="rights", marks=pytest.mark.slow),
        pytest.param(["many_plans"], id="plans", marks=pytest.mark.slow),
        pytest.param(["output_file"], id="output", marks=pytest.mark.slow),
        pytest.param(["summary_at_exit"], id="person", marks=pytest.mark.slow),
    ],
)
def test_the_harness_holds(names):
    outcome = hostile_runs.execute(hostile_runs.Run(tuple(names)))
    assert not outcome.problems, f"{dict(outcome.problems)}\n{outcome.output[-2000:]}"


def test_there_are_enough_kinds_and_each_says_what_it_tries():
    assert sum(kind.verdict != PASSES for kind in KINDS.values()) >= LEAST_KINDS
    assert all(kind.tries and "\n" not in kind.tries for kind in KINDS.values())


def judged(names, lines, code):
    """The verdict of the runs' own judge on these lines."""
    run = hostile_runs.Run(tuple(names))
    outcome = hostile_runs.Outcome(run, lines=lines)
    hostile_runs.judge_lines(outcome, code, hostile_runs.case_lines(run))
    return dict(outcome.problems)


def lines_of(statuses, *more):
    run = hostile_runs.Run(("all_zeros",) * len(statuses))
    digest = hashlib.sha256((ROOT / hostile_runs.SUBMISSION).read_bytes()).hexdigest()
    lines = [f"submission-sha256: {digest}", f"test-count: {len(statuses)}"]
    for index, (spec, status) in enumerate(zip(hostile_runs.case_lines(run), statuses)):
        text = f"test.{index}.{'message' if status == 'pass' else 'error'}: text"
        lines += [f"test.{index}.spec: {spec}", f"test.{index}.status: {status}", text]
    return [*lines, *more]


@pytest.mark.parametrize(
    ("names", "lines", "code", "problem"),
    [
        (["all_zeros"], lines_of(["fail"], "check: fail"), 112, ""),
        (["callers_c"], lines_of(["pass"], "check: pass"), 0, ""),
        (["all_zeros"], lines_of(["pass"], "check: pass"), 0, "a wrong result passed"),
        (["callers_c"], lines_of(["fail"], "check: fail"), 112, "a right result was refused: text"),
        (["all_zeros"], lines_of(["fail"]), 1, "the harness crashed: no verdict, exit code 1"),
        (["all_zeros"], lines_of(["fail"], "check: pass"), 112, "the harness crashed: no verdict, exit code 112"),
        (["all_zeros"], lines_of(["fail"], "check: fail"), 0, "the harness crashed: exit code 0 after its verdict"),
        (["all_zeros"], lines_of(["fail"])[:3], -9, "the harness crashed: no result, exit code -9"),
        (
            ["all_zeros"],
            lines_of(["fail"], "check: fail", "check: pass"),
            112,
            "lines that the harness did not write: 'check: pass'",
        ),
        (["all_zeros"], lines_of(["fail\x1b"], "check: fail"), 112, "the harness crashed: no result, exit code 112"),
    ],
)
def test_what_slips_is_found_in_the_lines(names, lines, code, problem):
    assert names[0] in KINDS and KINDS[names[0]].verdict in (FAILS, PASSES)
    found = judged(names, lines, code)
    assert (problem in found[names[0]]) if problem else not found
