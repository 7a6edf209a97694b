"""Makes Linux system calls that Python's library lacks."""

from __future__ import annotations

import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> int:
    """Return the result of a system call. Raises OSError for a negative one."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def prctl(option: int, argument: int = 0) -> None:
    """Set an attribute of this process. Raises OSError."""
    checked(libc.prctl(option, *(ctypes.c_ulong(each) for each in (argument, 0, 0, 0))))
