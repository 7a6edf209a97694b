"""The contest's module `utils`, for submissions that import it."""

import sys

import pytest
import torch

from harness.runner import CONTEST, load_submission
from nogpu.contest import utils

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "received, expected, reasons",
    [
        ([1.0, NAN, INF, -INF], [1.0 + 1e-6, NAN, INF, -INF], []),
        ([1.0, 2.0], [1.0, 2.1], ["Number of mismatched elements: 1", "ERROR AT (1,): 2.0 2.0999999046325684"]),
        ([NAN], [0.0], ["Number of mismatched elements: 1", "ERROR AT (0,): nan 0.0"]),
        ([INF], [-INF], ["Number of mismatched elements: 1", "ERROR AT (0,): inf -inf"]),
        ([1.0], [1.0, 1.0], ["SIZE MISMATCH: (1,), expected (2,)"]),
    ],
)  # fmt: skip
def test_closeness(received, expected, reasons):
    received, expected = torch.tensor(received), torch.tensor(expected)
    assert utils.verbose_allclose(received, expected, rtol=1e-5) == reasons
    check = utils.make_match_reference(lambda data: data, rtol=1e-5)
    assert check(expected, received)[0] == (not reasons)
    assert check([expected, expected], [expected, received])[0] == (not reasons)


def test_many_differences_are_counted():
    reasons = utils.verbose_allequal(torch.zeros(9), torch.ones(9), max_print=2)
    assert len(reasons) == 4 and reasons[-1] == "... and 7 more mismatched elements."


def test_determinism_ends_with_its_context():
    with utils.DeterministicContext():
        assert torch.are_deterministic_algorithms_enabled() and torch.backends.cudnn.deterministic
    assert not torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.deterministic
    utils.set_seed(3)
    assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("own", [False, True])
def test_a_submission_imports_it(monkeypatch, tmp_path, own):
    """A submission's own module of that name comes first. That a worker has the module, test_protocol.py shows."""
    submission = tmp_path / "submission.py"
    submission.write_text("from utils import make_match_reference")
    others = [place for place in sys.path if place != CONTEST]
    monkeypatch.setattr(sys, "path", [*([str(tmp_path)] if own else []), *others])
    others = [finder for finder in sys.meta_path if type(finder).__name__ != "ContestFinder"]  # of the emulated device
    monkeypatch.setattr(sys, "meta_path", others)
    for name in ("submission", "utils"):
        monkeypatch.setitem(sys.modules, name, None)  # restored in the end
        del sys.modules[name]
    if own:
        (tmp_path / "utils.py").write_text("make_match_reference = None\n")
    assert (load_submission(str(submission)).make_match_reference is None) == own
