"""Fixtures of the harness's tests."""

import os
import sys

import pytest
import torch

import eval as eval_py
from harness.timing import l2_flush_elements


@pytest.fixture
def refused(monkeypatch, capsys):
    """A function that calls eval.py's main here: the exit code and standard error of a call that it refuses."""

    def run(*arguments, **variables):
        for name in [name for name in os.environ if name.startswith(("NOGPU", "POPCORN"))]:
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["eval.py", *map(str, arguments)])
        monkeypatch.setattr(os, "execve", lambda *command: pytest.fail("not refused"))
        try:
            code = eval_py.main()
        except SystemExit as ended:
            code = ended.code
        out, err = capsys.readouterr()
        assert not out
        return code, err

    return run


@pytest.fixture
def events(monkeypatch):
    """The calls of time_calls to the device, in order; the n-th pair of events is n ms apart."""
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("record")

        def elapsed_time(self, end):
            return float(log.count("record") // 2)

    def randn(elements, device):
        log.append(f"flush {elements}")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (180 * 10**9, 190 * 10**9))
    monkeypatch.setattr(torch, "randn", randn)
    l2_flush_elements.cache_clear()
    yield log
    l2_flush_elements.cache_clear()
