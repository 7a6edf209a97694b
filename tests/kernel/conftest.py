"""Strict rules for the project's own kernels: a doubt, which is a warning for other programs, is an error here."""

import pytest


@pytest.fixture(autouse=True)
def doubts_are_errors(monkeypatch):
    monkeypatch.setenv("NOGPU_LENIENT", "0")
