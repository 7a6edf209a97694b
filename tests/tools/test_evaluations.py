"""The evaluations of `make check`: with each DSL every case of every problem, those of the same bytes once."""

import collections
import ctypes
import os
import re
import subprocess

import pytest
import torch

from harness.cases import Case
from reference import REFERENCES
from task import GROUP_GEMM, PROBLEMS
from tests.support.commands import ROOT

SANITIZED = "4.5.2"  # the DSL whose kernels the sanitizer follows in every case
EVALUATION = re.compile(r"\.venv-dsl-(\S+)/bin/python eval\.py test --problem (\S+) (.*)")


@pytest.fixture(scope="module")
def evaluated():
    """{(DSL, problem): [(number of a case, whether the sanitizer follows it)]}."""
    environment = {"PATH": os.environ["PATH"]}  # without variables of a make that runs the tests
    command = ["make", "--dry-run", "eval-each", "eval"]
    listed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    listed = listed.replace("\\\n", "")
    found = collections.defaultdict(list)
    for dsl, problem, options in EVALUATION.findall(listed):
        cases = [int(case) for case in re.findall(r"--case (\d+)", options)]
        every = range(len(PROBLEMS[problem].tests))
        found[dsl, problem] += [(case, "--sanitize " in options) for case in cases or every]
    return found


@pytest.mark.parametrize("dsl", ["4.5.2", "4.8.1"])
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=lambda problem: problem.name)
def test_every_case_is_evaluated_once(evaluated, problem, dsl):
    cases = evaluated[dsl, problem.name]
    sanitized = [problem.tests[case] for case, follows in cases if follows]
    plain = [problem.tests[case] for case, follows in cases if not follows]
    assert len(set(sanitized)) == len(sanitized) and len(set(plain)) == len(plain)
    assert set(sanitized if dsl == SANITIZED or problem is GROUP_GEMM else sanitized + plain) == set(problem.tests)
    assert sanitized


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=lambda problem: problem.name)
def test_cases_of_one_line_have_the_same_bytes(problem):
    """The numbers, sizes and values of their inputs are equal, those of their rehearsals too."""
    specs = problem.parse_specs(problem.tests)
    same = [(a, b) for i, a in enumerate(specs) for b in specs[:i] if a.line == b.line]
    assert len(same) == {"dual_gemm": 1, "gemv": 1}.get(problem.name, 0)
    for pair in same:
        one, other = (Case(problem, REFERENCES[problem.name], spec.args) for spec in pair)
        assert one.identity() == other.identity() and one.rehearsal().identity() == other.rehearsal().identity()
        assert raw(one.input()) == raw(other.input())


def raw(data):
    """Bytes of an input's tensors, and its other values."""
    if isinstance(data, torch.Tensor):
        storage = data.cpu().untyped_storage()
        return ctypes.string_at(storage.data_ptr(), storage.nbytes())
    return [raw(part) for part in data] if isinstance(data, (list, tuple)) else data
