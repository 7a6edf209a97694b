"""The verdict on a program that ran on the emulator, and the line of its output that says why."""

from __future__ import annotations

import re

PASS, WRONG, HANG, ERROR, UNSUPPORTED, FAILED, LATE = VERDICTS = (
    *("pass", "wrong", "hang", "error", "unsupported", "failed", "time limit"),
)
# The emulator's reports: an exception's line, or the line ahead of those on kernel, CTA and warp (EmulatorError).
_REPORT = r"^.*(?:EmulatorError:|emulator\.errors\.\w+).*$|^\S.*$(?=\n(?: .*\n)*?  kernel   \S)"
# A program's own words for wrong results, even if its exit code is 0. "0 FAILED" and "FAILED: 0" are no such words, nor
# are pytest's lines on a test, which do not say why it failed.
_FAILURE = r"^(?!.*\.py::).*(?:(?<!\b0 )\bFAIL(?:ED)?\b(?!(?: tests?)?\s*[:=]\s*0\b)|\b[Tt]est failed\b).*$"
_EXCEPTION = r"^(?:E +)?[\w.]*(?:Error|Exception|Interrupt)\b:? .*$"  # last line of a traceback, or pytest's of it
_REASONS = (
    # A line of source in pytest's traceback, which is indented or has ">", says nothing, nor does a test's name.
    (UNSUPPORTED, r"^(?![ >]).*(?:is not modelled|are not modelled|is not supported|not in the opcode table).*$"),
    (HANG, r"^.*the kernel hangs.*$"),
    (ERROR, _REPORT),
    (WRONG, _FAILURE),
    (
        WRONG,
        r"^(?!.*\.py::).*"
        r"(?:AssertionError|^E +assert |mismatch|not close|[Ii]ncorrect|[Ww]rong|[Tt]ensor-likes|disagree).*$",
    ),
)
_WARNING = re.compile(r"^.*\b\w*Warning: .*$", re.MULTILINE)  # Python's, which say nothing on how a program ended
_PLACE = re.compile(r"PTX\s+(line \d+: .*)")
ADDRESS = re.compile(r"0x[0-9a-f]{9,}")  # address in host memory, different in each run
_SOURCE = re.compile(r"^(?:[\w.]*EmulatorError|_*cu\w+): ")  # an exception's name, or the call's of CUDA C++
MOST = 300  # characters of a reason


def judge(output: str, code: int | None, expects: str) -> tuple[str, str]:
    """(verdict, the line that says why and the first place in PTX after it) of a program.

    code: its exit code, None if it was stopped. expects: a regular expression that the output of a program that passes
    matches. A program that says that a test has failed does not pass, whatever its exit code.
    """
    if code is None:
        return LATE, ""
    if code == 0 and re.search(expects, output):
        found = re.search(_FAILURE, output, re.MULTILINE)
        return (WRONG, _shorten(found.group(0))) if found else (PASS, "")
    output = _WARNING.sub("", output)
    for verdict, pattern in _REASONS:
        found = re.search(pattern, output, re.MULTILINE)
        if found:
            place = _PLACE.search(output, found.end()) if verdict in (HANG, ERROR) else None
            reason = _SOURCE.sub("", _shorten(found.group(0)))
            return verdict, f"{reason}; PTX {_shorten(place.group(1))}" if place else reason
    lines = re.findall(_EXCEPTION, output, re.MULTILINE) or [line for line in output.splitlines() if line.strip()]
    return FAILED, _shorten((lines or ["no output"])[-1])


def _shorten(text: str) -> str:
    return ADDRESS.sub("0x...", " ".join(text.split()))[:MOST]
