"""Fixtures of the harness's tests."""

import pytest
import torch

from harness.timing import l2_flush_elements


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
