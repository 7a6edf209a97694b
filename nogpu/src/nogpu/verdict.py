"""The verdict on a program, which runs in a child whose processes leave notes: a line, and a document of JSON."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from nogpu import commands
from nogpu.errors import EXIT_CODES
from nogpu.notes import REPORT

_PR_SET_PDEATHSIG = 1  # man 2 prctl
_FORWARDED = signal.SIGTERM, signal.SIGHUP

EXPLORED = {"clean": "clean for all interleavings", "bounded": "bounded"}
"""Verdict of a search -> its text."""

LONGEST = 120  # characters of a reason in the verdict's line

Note = dict[str, Any]


def judged(command: str, program: list[str], json_file: str | None, start: Callable[[], None]) -> NoReturn:
    """Run a program in a child, which `start` replaces by it; report the verdict, and end with its code or signal.

    json_file: "-" is standard output, and the program's own output goes to standard error.
    """
    descriptor, report = tempfile.mkstemp(prefix="nogpu-", suffix=".jsonl")
    os.close(descriptor)
    os.environ[REPORT] = report
    began = time.monotonic()
    try:
        status = _run(start, json_file == "-")
        notes = [json.loads(line) for line in Path(report).read_text().splitlines()]
    finally:
        os.unlink(report)
    found = document(command, program, status, notes) | {"seconds": round(time.monotonic() - began, 3)}
    if json_file == "-":
        print(json.dumps(found, indent=1))
    elif json_file is not None:
        Path(json_file).write_text(json.dumps(found, indent=1) + "\n")
    if commands.COMMANDS[command].is_judged:
        print(f"nogpu {command}: {sentence(found)}", file=sys.stderr)
    sys.stdout.flush()
    if status < 0 and found["exit_code"] == status:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(found["exit_code"])


def _run(start: Callable[[], None], moves_output: bool) -> int:
    """The exit status of a child that runs `start`, negative for a signal. This process's signals go to the child."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent has ended before
            os._exit(commands.EXIT_INTERRUPTED)
        if moves_output:
            os.dup2(2, 1)
        try:
            start()
        except SystemExit as end:  # the callers on the stack go on in the parent only
            sys.stderr.flush()
            os._exit(end.code if isinstance(end.code, int) else 1)
    signal.signal(signal.SIGINT, lambda number, frame: None)  # a terminal sends it to the child as well
    for number in _FORWARDED:
        signal.signal(number, lambda number, frame: os.kill(child, number))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def document(command: str, program: list[str], status: int, notes: list[Note]) -> Note:
    """The verdict and all that the notes say. status: exit status of the program, negative for a signal."""
    by_kind: dict[str, list[Note]] = {"launch": [], "fault": [], "doubt": [], "time": [], "exploration": []}
    for note in notes:
        by_kind[note["note"]].append({key: value for key, value in note.items() if key not in ("note", "process")})
    code, faults = status, by_kind["fault"]
    if commands.COMMANDS[command].is_judged:
        if faults and code in (0, 1):
            code = EXIT_CODES[faults[0]["kind"]]
        elif code == 0 and not by_kind["launch"]:
            code = commands.EXIT_NOTHING
    return {
        "nogpu": commands.version(),
        "command": command,
        "program": program,
        "verdict": commands.VERDICTS.get(code, "failed"),
        "exit_code": code,
        "program_exit_code": status,
        "faults": faults,
        "doubts": [note["text"] for note in by_kind["doubt"]],
        "launches": by_kind["launch"],
        "explorations": by_kind["exploration"],
        "modelled_times": by_kind["time"],
    }


def sentence(found: Note) -> str:
    """The verdict in a line."""
    launches, faults = found["launches"], found["faults"]
    kernels = len({launch["kernel"] for launch in launches})
    parts = [f"{_plural(len(launches), 'launch', 'es')} of {_plural(kernels, 'kernel')} without a fault"]
    if faults and found["verdict"] in EXIT_CODES:
        fault = faults[0]
        reason = fault["reason"].splitlines()[0]
        cut = reason if len(reason) <= LONGEST else reason[: LONGEST - 1] + "…"
        first = f"rule {fault['rule']}" if fault["rule"] else cut
        kernel = fault["kernel"] and f"kernel {fault['kernel']}"
        place = fault["file"] and f"{fault['file']}:{fault['line']}"
        parts = [part for part in (first, kernel, place) if part]
    elif found["verdict"] == "failed":
        parts.insert(0, _ending(found["exit_code"]))
    elif found["explorations"]:
        words = Counter(each["verdict"] for each in found["explorations"])
        parts += [f"{number} {EXPLORED[word]}" for word, number in sorted(words.items(), reverse=True)]
    elif found["command"] == "check" and launches:
        parts.append(_schedules(launches))
    if found["doubts"]:
        parts.append(_plural(len(found["doubts"]), "doubt"))
    return f"{found['verdict']}: {', '.join(parts)}"


def _schedules(launches: list[Note]) -> str:
    """The text of the launches' schedules, each with the number of its launches unless all have it."""
    counts = Counter(name for launch in launches for name in launch["schedules"])
    of_all = all(count == len(launches) for count in counts.values())
    return "under " + ", ".join(name if of_all else f"{name} ({count})" for name, count in counts.items())


def _ending(status: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"exit code {status}"


def _plural(number: int, what: str, ending: str = "s") -> str:
    return f"{number} {what}{ending if number != 1 else ''}"
