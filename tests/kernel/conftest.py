"""The project's own kernels leave no doubt: what is a warning in programs of others is an error here."""

import pytest


@pytest.fixture(autouse=True)
def doubts_are_errors(monkeypatch):
    monkeypatch.setenv("NOGPU_LENIENT", "0")
