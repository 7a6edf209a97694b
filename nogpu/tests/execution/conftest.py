"""Fixtures of tests that count what Python does of a launch."""

import pytest

from nogpu.compiler.python_rows import PythonRows
from nogpu.compiler.translate import Runner
from nogpu.hardware.native import ARRIVES, SHARES


@pytest.fixture
def pythons(monkeypatch):
    """One item for each time that Python has run a part of a turn."""
    counted = []
    for owner, name in ((Runner, "run"), (Runner, "conclude"), (PythonRows, "run")):
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, original=original: (counted.append(1), original(*a))[1])
    return counted


@pytest.fixture
def noting(monkeypatch):
    """Function that returns the opcodes of the Python rows that run from then on and fulfil a condition.

    The condition takes the row's index, below 0 where loads of tensor memory are settled, and the opcode.
    """

    def note(condition):
        called, original = [], PythonRows.run

        def run(self, index, group, mask):
            if index not in (ARRIVES, SHARES):
                opcode = group.cta.grid.program.entry.instructions[max(index, ~index)].opcode
                if condition(index, opcode):
                    called.append(opcode)
            return original(self, index, group, mask)

        monkeypatch.setattr(PythonRows, "run", run)
        return called

    return note


@pytest.fixture
def rows(noting):
    """The opcodes of the Python rows that have run."""
    return noting(lambda index, opcode: index >= 0)
