"""The outcome of a case, as it crosses from the worker process to the reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.timing import Stats


@dataclass(frozen=True)
class Result:
    """The outcome of one case. A field that the case's job does not fill is None."""

    passed: bool
    message: str = ""
    traceback: str = ""
    stats: Stats | None = None
    baseline: Stats | None = None  # torch's own kernels on the same inputs
    plain_read: Stats | None = None  # a read of the bytes that the case must move; with tensor-core work omitted
    counts: dict[str, Any] | None = None  # made by cases.count_case, shown by harness.counts
    report: str | None = None  # text of the profile mode
