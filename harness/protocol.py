"""Reports by the contest's protocol: `key: value` lines on the file descriptor that POPCORN_FD names."""

from __future__ import annotations

import base64
import fcntl
import os
import sys
from dataclasses import fields

from harness.counts import counts_text
from harness.interpreter import Output
from harness.results import Result
from harness.submissions import Submission
from harness.timing import Stats
from task import TestSpec


def usable_fd(text: str) -> int | None:
    """The file descriptor that `text` names if it is open for writing, else None."""
    try:
        fd = int(text)
        writable = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except (ValueError, OSError, OverflowError):
        return None
    return fd if writable else None


def is_output(fd: int) -> bool:
    """True if `fd` is the same file as this process's stdout or stderr."""
    return any(os.path.sameopenfile(fd, output) for output in (1, 2) if is_open(output))


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


class ProtocolReport:
    """Reports a mode's cases as lines of the protocol."""

    def __init__(self, fd: int, submission: Submission):
        os.set_inheritable(fd, False)
        self.is_output = is_output(fd)
        self.file = Output(open(fd, "wb"), "utf-8")
        self.key = ""  # prefix of the mode's lines
        self.submission = submission

    def __enter__(self) -> ProtocolReport:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def log(self, key: str, value: object) -> None:
        """Write one line, in which the lines of the value are joined by " | "."""
        text = " | ".join(line.strip() for line in str(value).splitlines() if line.strip())
        print(f"{key}: {text}", file=self.file, flush=True)

    def begin(self, mode: str, specs: list[TestSpec]) -> None:
        self.key = "test" if mode == "test" else "benchmark"
        self.log("submission-sha256", self.submission.digest)
        self.log(f"{self.key}-count", len(specs))

    def replaying(self, done: int, total: int) -> None:
        pass

    def working(self, what: str) -> None:
        """Do nothing: the protocol has no line for work without a result."""

    def case_begins(self, index: int, spec: TestSpec) -> None:
        self.log(f"{self.key}.{index}.spec", spec.line)

    def case_ends(self, index: int, result: Result) -> None:
        prefix = f"{self.key}.{index}"
        if not result.passed:
            if not self.is_output:
                print(result.traceback, file=sys.stderr, end="", flush=True)
            self.log(f"{prefix}.status", "fail")
            self.log(f"{prefix}.error", result.message)
        elif result.report is not None:
            self.log(f"{prefix}.report", base64.b64encode(result.report.encode(), b"+*").decode())
        elif result.stats:
            for field in fields(Stats):
                self.log(f"{prefix}.{field.name}", getattr(result.stats, field.name))
            if result.message:
                self.log(f"{prefix}.message", result.message)
        else:
            self.log(f"{prefix}.status", "pass")
            message = f"{result.message}; {counts_text(result.counts)}" if result.counts else result.message
            self.log(f"{prefix}.message", message)

    def end(self, passed: bool) -> None:
        self.log("check", "pass" if passed else "fail")
