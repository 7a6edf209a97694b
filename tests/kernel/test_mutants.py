"""A sample of the kernels' mutants; a list names those that nothing notices. `python -m tools.mutants` runs all."""

import functools

import pytest

from harness import ROOT
from tests.support.configurations import EMULATED
from tests.support.slow import sampled
from tools.mutants import SURVIVORS
from tools.mutants.programs import ours
from workshop.mutants import kinds, results, survivors, tape, trial

pytestmark = pytest.mark.skipif(not EMULATED, reason="mutates PTX in the emulator")

PROGRAMS = {program.name: program for program in ours()}
# One mutant of each kind, by number: kinds whose instances a schedule, the sanitizer or nothing notices.
SAMPLE = [
    ("pairs", "no wait", 2),
    ("pairs", "wait relaxed", 0),
    ("pairs", "arrive relaxed", 0),
    ("1-SM", "no bar.warp.sync", -1),
    ("1-SM", "no launch_dependents", 0),
    ("1-SM", "no tcgen05.fence::before", 1),
    ("GEMV", "no griddepcontrol.wait", 1),
]


@functools.cache
def recorded(name):
    found = PROGRAMS[name].record()
    tape.settle(found)
    return found


@pytest.mark.parametrize(("name", "kind", "number"), sampled(SAMPLE, 4, names=3))
def test_a_mutant_is_noticed_or_listed(name, kind, number):
    """One schedule suffices to notice each of these mutants."""
    of = recorded(name)
    mutant = kinds.mutants(of.ptx, [kind])[number]
    outcome = trial.examine(of, mutant.apply(of.ptx), ["late"], ["late"])
    found = results.of(name, mutant, outcome, 0)
    assert not list(survivors.complaints([found], survivors.load(SURVIVORS), complete=False))


@pytest.mark.parametrize("name", ["pairs", "GEMV"])
def test_a_kernel_as_it_is_survives(name):
    """The sanitizer reports only what submission.py waives."""
    of = recorded(name)
    assert trial.examine(of, of.ptx, ["random:7"], ["random:7"]) == trial.Outcome(trial.SURVIVED)


def test_the_committed_results_fit_the_list():
    saved = results.load(ROOT / "docs/results/mutants.json")
    assert saved is not None
    assert not list(survivors.complaints(saved.results, survivors.load(SURVIVORS)))
