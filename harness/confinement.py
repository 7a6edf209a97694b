"""Keeps a worker process to itself, and ends all that it has started.

A process in a Landlock domain cannot reach a process outside of it through ptrace, /proc/PID/fd or /proc/PID/mem, and
from ABI 6 (Linux 6.12) on it cannot send it a signal either; see Documentation/userspace-api/landlock.rst. A seccomp
filter keeps it from setting the limits of others.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
import time
from contextlib import suppress
from typing import NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
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

SECCOMP_MODE_FILTER = 2
SECCOMP_RET_ALLOW = 0x7FFF0000
SECCOMP_RET_ERRNO = 0x00050000
PRLIMIT64 = {"x86_64": (0xC000003E, 302), "aarch64": (0xC00000B7, 261)}  # machine -> (AUDIT_ARCH_*, system call)
BPF_LOAD_WORD, BPF_JUMP_EQUAL, BPF_RETURN = 0x20, 0x15, 0x06
AT_NUMBER, AT_ARCHITECTURE, AT_ARGUMENT_0 = 0, 4, 16  # offsets in struct seccomp_data

END_TIMEOUT_S = 10

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("handled_access_fs", "handled_access_net", "scoped")]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


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


def confine() -> int:
    """Put this thread and all that it starts into a Landlock domain of its own. Returns Landlock's ABI, 0 without it.

    Files, networks and devices stay as they are. To be called before a second thread starts.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a killed judge must not leave a hung kernel behind
    _checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _forbid_limits_of_others()
    abi = landlock_abi()
    if abi < LEAST_ABI:
        return 0
    ruleset = _Ruleset(ACCESS_FS_REFER, 0, SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL if abi >= SCOPES_ABI else 0)
    size = ctypes.sizeof(_Ruleset) if abi >= SCOPES_ABI else _Ruleset.handled_access_net.offset
    rules = _checked(_libc.syscall(LANDLOCK_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), 0))
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    anywhere = _PathBeneath(ACCESS_FS_REFER, root)
    _checked(_libc.syscall(LANDLOCK_ADD_RULE, rules, RULE_PATH_BENEATH, ctypes.byref(anywhere), 0))
    _checked(_libc.syscall(LANDLOCK_RESTRICT_SELF, rules, 0))
    os.close(root)
    os.close(rules)
    return abi


def _forbid_limits_of_others() -> None:
    """Refuse prlimit of a process that is named by its number, with EPERM: Landlock does not see that system call."""
    if platform.machine() not in PRLIMIT64:
        return
    architecture, prlimit = PRLIMIT64[platform.machine()]
    instructions = [
        (BPF_LOAD_WORD, 0, 0, AT_ARCHITECTURE),
        (BPF_JUMP_EQUAL, 0, 5, architecture),
        (BPF_LOAD_WORD, 0, 0, AT_NUMBER),
        (BPF_JUMP_EQUAL, 0, 2, prlimit),
        (BPF_LOAD_WORD, 0, 0, AT_ARGUMENT_0),
        (BPF_JUMP_EQUAL, 0, 1, 0),
        (BPF_RETURN, 0, 0, SECCOMP_RET_ALLOW),
        (BPF_RETURN, 0, 0, SECCOMP_RET_ERRNO | errno.EPERM),
    ]
    text = b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)
    _libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(_Program(len(instructions), text)))


# ---------------------------------------------------------------------------------------------------------------------
# The keeper of a worker
# ---------------------------------------------------------------------------------------------------------------------


def fork_confined(judge: int) -> None:
    """Confine this process and return in a child that is confined further; the process itself becomes its keeper.

    The keeper ends when the child does, in the same way, or by SIGTERM. Before, it kills every process of its domain:
    one system call reaches all of them, however fast they fork. The child cannot reach the keeper, whose domain is
    not its own. Without signals' scopes there is no keeper, and this process returns. judge: the parent's number.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    if confine() >= SCOPES_ABI:
        child = os.fork()
        if child:
            _keep(child, judge)
        confine()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGCHLD})


def _keep(child: int, judge: int) -> NoReturn:
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    status = None
    while status is None:
        number = signal.sigwait({signal.SIGTERM, signal.SIGCHLD})
        ended, found = os.waitpid(child, os.WNOHANG)
        if ended:
            status = found
        elif number == signal.SIGTERM:
            status = signal.SIGKILL
    try:
        os.kill(judge, 0)
    except PermissionError:  # so no signal leaves the domain, and -1 means the processes in it
        with suppress(ProcessLookupError, PermissionError):
            os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass
    _end_as(status)


def _end_as(status: int) -> NoReturn:
    """End this process as the one whose wait status this is has ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with suppress(OSError):  # SIGKILL's action is not to be set
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


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
    this process. They are stopped before they are killed, so that fewer start others meanwhile. Returns whether all
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
