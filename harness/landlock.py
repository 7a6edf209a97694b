"""Puts processes into domains of Landlock, described in Linux's Documentation/userspace-api/landlock.rst.

A process in a domain cannot reach a process outside of it through ptrace, /proc/PID/fd or /proc/PID/mem, nor, from
ABI 6 (Linux 6.12) on, by a signal. It can change files only in the places that the domain's rules name.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from harness.linux import checked, libc

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls
CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH = 1

WRITE_FILE = 1 << 1
CHANGE_FOLDER = 0b1_1111_1111 << 4  # removes and makes entries of each type
REFER = 1 << 13  # links and renames from one folder to another
TRUNCATE = 1 << 14
IOCTL_OF_DEVICES = 1 << 15
CHANGES = {2: WRITE_FILE | CHANGE_FOLDER | REFER, 3: TRUNCATE, 5: IOCTL_OF_DEVICES}  # ABI -> changes that are new in it
OF_FILES = WRITE_FILE | TRUNCATE | IOCTL_OF_DEVICES

SCOPES = 0b11  # scopes of abstract Unix sockets and of signals
LEAST_ABI = 2  # first ABI that can allow renames
FILES_ABI = 3  # first ABI that can forbid truncation
SCOPES_ABI = 6


class _Ruleset(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("handled_access_fs", "handled_access_net", "scoped")]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


def abi() -> int:
    """The version of the kernel's interface; 0 if the kernel has no Landlock."""
    return max(libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), CREATE_RULESET_VERSION), 0)


def restrict(writable: Iterable[str | os.PathLike[str]]) -> int:
    """Put this thread and all that it starts into a domain of its own. Returns the ABI, 0 if there is no domain.

    writable: folders, files and devices that the process may change; missing ones are left out. Raises OSError.
    PR_SET_NO_NEW_PRIVS must be set, and no second thread may have started.
    """
    version = abi()
    if version < LEAST_ABI:
        return 0
    changes = sum(access for least, access in CHANGES.items() if version >= least)
    ruleset = _Ruleset(changes, 0, SCOPES if version >= SCOPES_ABI else 0)
    size = ctypes.sizeof(_Ruleset) if version >= SCOPES_ABI else _Ruleset.handled_access_net.offset
    rules = checked(libc.syscall(CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), 0))
    for path in writable:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rule = _PathBeneath(changes if os.path.isdir(path) else changes & OF_FILES, place)
        checked(libc.syscall(ADD_RULE, rules, RULE_PATH_BENEATH, ctypes.byref(rule), 0))
        os.close(place)
    checked(libc.syscall(RESTRICT_SELF, rules, 0))
    os.close(rules)
    return version
