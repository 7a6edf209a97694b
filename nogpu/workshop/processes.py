"""A command in a session of its own, its output, and the end of everything that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

GRACE = 5.0  # seconds in which a killed process has to be gone


class Sessions:
    """Commands that run in sessions of their own, from any thread; `end` kills those that run."""

    def __init__(self) -> None:
        self._leaders: set[int] = set()  # process numbers, which are the sessions' numbers too
        self._lock = threading.Lock()
        self._ended = False

    def output(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], limit: float
    ) -> tuple[str, int | None]:
        """(standard output and error, exit code) of a command, at most `limit` seconds; the exit code of one that was
        stopped is None.
        """
        with self._lock:
            if self._ended:
                return "", None
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._leaders.add(process.pid)
        with process:
            try:
                output, _ = process.communicate(timeout=limit)
                code: int | None = process.returncode
            except subprocess.TimeoutExpired:
                kill_session(process.pid)
                output, _ = process.communicate()
                code = None
            finally:
                with self._lock:
                    self._leaders.discard(process.pid)
        return output, code

    def end(self) -> None:
        """Kills all commands that run; none starts from here on."""
        with self._lock:
            self._ended = True
            leaders = list(self._leaders)
        for leader in leaders:
            kill_session(leader)


def kill_session(leader: int) -> None:
    """Kills the processes of a session and all that they have started.

    A group is not enough: ninja puts each compiler in a group of its own. Descendants may have a session of theirs.
    """
    give_up = time.monotonic() + GRACE
    family = {leader}
    while time.monotonic() < give_up:
        found = _members(leader, family)
        if not found:
            return
        for process in found:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        family |= found
        time.sleep(0.01)


def _members(session: int, family: Iterable[int]) -> set[int]:
    """Processes that run, of the session, the family, or descended from either."""
    parents: dict[int, int] = {}
    members = set()
    family = set(family)
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            # The name, in parentheses, may have spaces: fields are counted behind it.
            state, parent, _, of_session = (place / "stat").read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if state in "ZX":
            continue
        number = int(place.name)
        parents[number] = int(parent)
        if int(of_session) == session or number in family:
            members.add(number)
    while more := {number for number, parent in parents.items() if parent in members and number not in members}:
        members |= more
    return members
