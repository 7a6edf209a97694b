"""Keeps a worker process to itself, and ends all that it has started.

A process in a Landlock domain cannot reach a process outside of it through ptrace, /proc/PID/fd or /proc/PID/mem, and
from ABI 6 (Linux 6.12) on it cannot send it a signal either; see Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH = 1
ACCESS_FS_REFER = 1 << 13  # links and renames from one folder to another
SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0
SCOPE_SIGNAL = 1 << 1
LEAST_ABI = 2  # the first in which renames can be allowed
SCOPES_ABI = 6

END_TIMEOUT_S = 10

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("handled_access_fs", "handled_access_net", "scoped")]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def landlock_abi() -> int:
    """The version of the kernel's Landlock interface, 0 without it."""
    version = _libc.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), CREATE_RULESET_VERSION)
    return max(version, 0)


def protect_from_children() -> None:
    """Make this process the parent of its descendants' orphans, and unreadable through /proc for other processes."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    _libc.prctl(PR_SET_DUMPABLE, 0)


def confine() -> bool:
    """Put this thread and all that it starts into a Landlock domain of its own. Returns False without Landlock.

    Files, networks and devices stay as they are. To be called before a second thread starts.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a killed judge must not leave a hung kernel behind
    abi = landlock_abi()
    if abi < LEAST_ABI:
        return False
    ruleset = _Ruleset(ACCESS_FS_REFER, 0, SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL if abi >= SCOPES_ABI else 0)
    size = ctypes.sizeof(_Ruleset) if abi >= SCOPES_ABI else _Ruleset.handled_access_net.offset
    rules = _checked(_libc.syscall(LANDLOCK_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), 0))
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    anywhere = _PathBeneath(ACCESS_FS_REFER, root)
    _checked(_libc.syscall(LANDLOCK_ADD_RULE, rules, RULE_PATH_BENEATH, ctypes.byref(anywhere), 0))
    _checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_libc.syscall(LANDLOCK_RESTRICT_SELF, rules, 0))
    os.close(root)
    os.close(rules)
    return True


# ---------------------------------------------------------------------------------------------------------------------
# Process trees
# ---------------------------------------------------------------------------------------------------------------------


def _parents() -> dict[int, int]:
    """Process -> its parent, of all processes."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                parents[int(name)] = int(stat.read().rpartition(b")")[2].split()[1])
    return parents


def children() -> set[int]:
    """The processes whose parent is this one."""
    return {process for process, parent in _parents().items() if parent == os.getpid()}


def _descendants(spared: set[int]) -> set[int]:
    """This process's children other than `spared`, and all that descend from them."""
    parents = _parents()
    found = {process for process, parent in parents.items() if parent == os.getpid()} - spared
    grew = True
    while grew:
        more = {process for process, parent in parents.items() if parent in found} - found
        found |= more
        grew = bool(more)
    return found


def end_descendants(spared: set[int]) -> bool:
    """Kill this process's children other than `spared`, with all that descends from them, and wait until they are gone.

    protect_from_children must have been called before they started: a descendant whose parent ends is then a child of
    this process. They are stopped before they are killed, so that none starts another meanwhile. Returns whether all
    are gone after END_TIMEOUT_S.
    """
    deadline = time.monotonic() + END_TIMEOUT_S
    while found := _descendants(spared):
        stopped: set[int] = set()
        while fresh := found - stopped:
            _send(signal.SIGSTOP, fresh)
            stopped |= fresh
            found = _descendants(spared)
        _send(signal.SIGKILL, stopped)
        for process in stopped:
            with suppress(ChildProcessError):  # a grandchild: another process waits for it, or has left it to this one
                while os.waitpid(process, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
                    time.sleep(0.001)
        if time.monotonic() > deadline:
            return not _descendants(spared)
    return True


def _send(number: int, processes: set[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)
