"""Fixtures of tests that count what Python does of a launch."""

import pytest

from nogpu.compiler.python_rows import PythonRows
from nogpu.compiler.translate import Runner


@pytest.fixture
def pythons(monkeypatch):
    """One item for each time that Python has run a part of a turn."""
    counted = []
    for owner, name in ((Runner, "run"), (Runner, "conclude"), (PythonRows, "run")):
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, original=original: (counted.append(1), original(*a))[1])
    return counted


@pytest.fixture
def rows(monkeypatch):
    """The opcodes of the Python rows that have run."""
    called, original = [], PythonRows.run

    def run(self, index, group, mask):
        if index >= 0:
            called.append(group.cta.grid.program.entry.instructions[index].opcode)
        return original(self, index, group, mask)

    monkeypatch.setattr(PythonRows, "run", run)
    return called
