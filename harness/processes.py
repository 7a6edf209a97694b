"""Finds and ends the processes that descend from this one."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from harness.linux import PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, prctl

END_TIMEOUT_S = 10


def protect_from_children() -> None:
    """Make this process the parent of its descendants' orphans, and unreadable through /proc for other processes."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_DUMPABLE, 0)


def _parents() -> dict[int, int]:
    """The numbers of all processes: process -> its parent."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                parents[int(name)] = int(stat.read().rpartition(b")")[2].split()[1])
    return parents


def children() -> set[int]:
    """The numbers of the processes whose parent is this one."""
    return {process for process, parent in _parents().items() if parent == os.getpid()}


def _descendants(spared: set[int]) -> set[int]:
    """The numbers of this process's descendants, without the children `spared` and their descendants."""
    parents = _parents()
    found = {process for process, parent in parents.items() if parent == os.getpid()} - spared
    grew = True
    while grew:
        more = {process for process, parent in parents.items() if parent in found} - found
        found |= more
        grew = bool(more)
    return found


def end_descendants(spared: set[int]) -> bool:
    """Kill this process's children other than `spared`, with all their descendants, and wait until they are gone.

    protect_from_children must have been called before they started: a descendant whose parent ends is then a child of
    this process. Processes are stopped before they are killed, so that fewer can start others. Returns whether all
    are gone after END_TIMEOUT_S.
    """
    deadline = time.monotonic() + END_TIMEOUT_S
    while found := _descendants(spared):
        stopped: set[int] = set()
        while (fresh := found - stopped) and time.monotonic() < deadline:
            _send(signal.SIGSTOP, fresh)
            stopped |= fresh
            found = _descendants(spared)
        _send(signal.SIGKILL, stopped)
        for process in stopped:
            with suppress(ChildProcessError):  # a grandchild that another process waits for or has left to this one
                while os.waitpid(process, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
                    time.sleep(0.001)
        if time.monotonic() > deadline:
            return not _descendants(spared)
    return True


def _send(number: int, processes: set[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)
