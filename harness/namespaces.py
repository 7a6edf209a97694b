"""Namespaces and capabilities that leave a process no right which its user lacks, and a read-only file tree."""

from __future__ import annotations

import ctypes
import glob
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from harness.linux import PR_CAPBSET_DROP, checked, libc, prctl

NEW_USER, NEW_MOUNTS, NEW_IPC = 0x10000000, 0x00020000, 0x08000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MOUNT_SETATTR = 442  # system call
MOUNT_ATTR_RDONLY = 1
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
CAPABILITY_VERSION_3 = 0x20080522
MOST_CAPABILITIES = 64
SHARED_MEMORY = Path("/dev/shm")
PROCESSES = Path("/proc")
TERMINALS = Path("/dev/pts")
_MPS = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))  # the service by which processes share a GPU
_OCTAL = re.compile(r"\\(\d{3})")  # escape sequence in the kernel's list of mounts
KERNEL = ("bus", "fs", "irq", "sys", "sysrq-trigger")
"""Entries of /proc that change the kernel, as in the OCI runtime specification's read-only paths (runc's default)."""


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def _mount(source: str | None, target: str, kind: str | None, flags: int) -> None:
    names = (None if name is None else os.fsencode(name) for name in (source, target, kind))
    checked(libc.mount(*names, ctypes.c_ulong(flags), None))


def _set_attributes(path: str, flags: int, attributes: _MountAttributes) -> None:
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    checked(libc.syscall(MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), flags, ctypes.byref(attributes), size))


def hidden() -> Iterator[str]:
    """Paths of the machine's consoles, and of sockets with a file on which a process may be listening.

    A server that listens there, such as a session's D-Bus, tmux or Docker, may run programs outside of the worker's
    domain. Mount points are searched, too: the kernel's list of sockets leaves out other network namespaces.
    """
    yield from (path for path in glob.glob("/dev/tty*") + ["/dev/console"] if os.access(path, os.R_OK))
    bound = re.findall(r" (/.*)$", Path("/proc/net/unix").read_text(errors="surrogateescape"), re.MULTILINE)
    mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    for path in {*bound, *(_OCTAL.sub(lambda code: chr(int(code[1], 8)), line.split()[4]) for line in mounts)}:
        with suppress(OSError):
            if stat.S_ISSOCK(os.stat(path).st_mode) and Path(path).parent != _MPS:
                yield path


def enter(writable: Sequence[Path]) -> bool:
    """Move this process to namespaces of its own: users, mounts and IPC. Returns False where the kernel refuses.

    All files are read-only there, with their modes and times, except for `writable`, the processes' entries in /proc
    and a /dev/shm of its own, which ends with its last process. Terminals and other processes' sockets are hidden. The
    user stays the same. No second thread may have started.
    """
    user, group = os.geteuid(), os.getegid()
    places = [str(path) for path in (*writable, PROCESSES)]
    try:
        checked(libc.unshare(NEW_USER | NEW_MOUNTS | NEW_IPC))
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text)
        _mount(None, "/", None, MS_REC | MS_PRIVATE)
        if SHARED_MEMORY.is_dir():
            _mount("tmpfs", str(SHARED_MEMORY), "tmpfs", 0)
            places.append(str(SHARED_MEMORY))
        for name in hidden():
            with suppress(OSError):  # a socket whose file is gone
                _mount("/dev/null", name, None, MS_BIND)
        if TERMINALS.is_dir():
            _mount("tmpfs", str(TERMINALS), "tmpfs", 0)
        settings = (PROCESSES / name for name in KERNEL)
        for path in (*writable, *filter(Path.exists, settings)):
            _mount(str(path), str(path), None, MS_BIND)
        _set_attributes("/", AT_RECURSIVE, _MountAttributes(set=MOUNT_ATTR_RDONLY))
    except OSError:
        return False
    for place in places:
        with suppress(OSError):  # a file system that was read-only before
            _set_attributes(place, 0, _MountAttributes(clear=MOUNT_ATTR_RDONLY))
    return True


def drop_capabilities() -> None:
    """Give up all capabilities, including those that root gets by starting a program. Raises OSError."""
    for capability in range(MOST_CAPABILITIES):
        with suppress(OSError):  # an unknown number, or a process without capabilities
            prctl(PR_CAPBSET_DROP, capability)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    checked(libc.capset(header, (ctypes.c_uint32 * 6)()))
