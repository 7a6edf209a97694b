"""Verdicts of `nogpu explore` on the project's kernels: clean for all interleavings, and failing without a wait."""

import pytest

import reference
from tests.support.configurations import EMULATED, set_chip, solver
from tests.support.mutants import run_mutated, without_one
from tools import interleavings

nogpu = pytest.importorskip("nogpu")
pytestmark = [
    pytest.mark.skipif(not EMULATED, reason="explores launches in the emulator"),
    pytest.mark.slow,
]
RUNS = 60
SMALL = {"m": (64,), "n": (128,), "k": (2048,), "g": 1, "seed": 5}
PROGRAMS = {program.name: program for program in interleavings.small_programs()}
# Pairs of neighbours whose tiles have different weight rows have 11 orders; of those a configuration of each number of
# products is enough here, `python -m tools.interleavings` has all.
MANY_ORDERS = [name for name in PROGRAMS if name.endswith("2-1-2, other rows")]
LEFT_OUT = {name for name in MANY_ORDERS if "64-" not in name}


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in LEFT_OUT])
def test_every_configuration_is_clean(name):
    found = interleavings.explored(PROGRAMS[name].record, RUNS, 0)
    assert found.verdict == interleavings.CLEAN, found
    orders = 11 if name in MANY_ORDERS else 3 if name.endswith("other rows") else 2  # of two pairs of launches
    assert found.orders == orders and found.turns > 100


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_kernel_without_a_wait_fails(monkeypatch, which):
    """Each of these waits for an mbarrier is needed."""
    from nogpu.execution.device import Device
    from nogpu.sanitizer import Explorer

    set_chip(monkeypatch, ["late"])
    monkeypatch.setattr(Device.current(), "explorer", Explorer(RUNS))
    run_mutated(monkeypatch, without_one(r"mbarrier\.try_wait", which))
    data = reference.generate_input(**SMALL)
    with pytest.raises(nogpu.EmulatorError, match="of nogpu explore, and again by"):
        solver((64, 1, 1, 1))(data)
        Device.current().synchronize()
