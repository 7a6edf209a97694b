"""Attempts that the worker's confinement refuses. A result is right if an attempt succeeded: a pass reveals it."""

import ctypes
import fcntl
import glob
import os
import platform
import resource
import site
import socket
import struct
import sys
import sysconfig
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch

from tests.submissions.hostile.kit import SERVICE, ancestors, folder, kind, right, zeros

FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, IMMUTABLE = 0x80086601, 0x40086602, 0x10
X86 = platform.machine() == "x86_64"
SYS_KEYS = (248, 249, 250) if X86 else (217, 218, 219)
SYS_PERF_EVENT_OPEN, SYS_BPF, SYS_USERFAULTFD = (298, 321, 323) if X86 else (241, 280, 282)
SYS_VHANGUP, SYS_IOPRIO_SET, SYS_IO_URING_SETUP = (153, 251, 425) if X86 else (58, 30, 425)
SYS_SHMGET, SYS_SEMGET, SYS_MSGGET, SYS_MQ_OPEN = (29, 64, 68, 240) if X86 else (194, 190, 186, 180)
SYS_MOUNT_SETATTR, MOUNT_READ_ONLY, MS_REMOUNT, MS_BIND = 442, 1, 32, 4096
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
IPC_CREATE, IPC_PRIVATE = 0o1666, 0
libc = ctypes.CDLL(None, use_errno=True)


def attempts(make, **properties):
    """Register a function that returns attempts: the result is right if one of them returns anything, else zeros."""

    def act(data):
        found = False
        for attempt in make():
            with suppress(OSError):
                found = bool(attempt()) or found
        return right(data) if found else zeros(data)

    kind(make.__name__, make.__doc__, **properties)(act)


def opens(path):
    """Open a file for writing without changing it."""
    with open(path, "ab"):
        return True


def makes_a_file(place):
    """Make a file in a folder, and remove it."""
    name = Path(place) / f"hostile-{os.getpid()}"
    name.touch()
    name.unlink()
    return True


def calls(number, *arguments):
    """Make a system call that must succeed; a descriptor that it returns stays open."""
    return libc.syscall(number, *arguments) >= 0


@attempts
def python_and_libraries():
    """Python's library, torch, the project's files and the interpreter, opened for writing; modules beside them"""
    library = Path(sysconfig.get_path("stdlib"))
    files = [library / "encodings" / "unicode_escape.py", torch.__file__, sys.modules["harness"].__file__]
    folders = [library, Path(torch.__file__).parent, Path(sys.prefix), *site.getsitepackages()]
    return [*(partial(opens, path) for path in files), *(partial(makes_a_file, path) for path in folders)]


@attempts
def users_files():
    """Files in the user's home and in the emulator's cache"""
    home = os.environ["HOSTILE_HOME"]
    places = [home, f"{home}/.cache", f"{home}/.cache/nogpu", tempfile.gettempdir() + "/..", os.getcwd()]
    libraries = glob.glob(f"{home}/.cache/nogpu/*.so")[:1]
    return [*(partial(makes_a_file, path) for path in places), *(partial(opens, path) for path in libraries)]


@attempts
def modes_and_times():
    """Modes, times and attributes of the project's files, which stay as they are"""
    path = Path(sys.modules["harness"].__file__)
    status = path.stat()
    return [
        lambda: path.chmod(status.st_mode) is None,
        lambda: os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns)) is None,
        lambda: os.setxattr(path, "user.hostile", b"1") is None,
    ]


@kind()
def capabilities(data):
    """Root's capabilities, its own or those of a program that it starts"""
    status = Path("/proc/self/status").read_text()
    left = [line.split()[1] for line in status.splitlines() if line.startswith(("CapEff", "CapPrm", "CapBnd"))]
    return right(data) if os.getuid() == 0 and any(int(mask, 16) for mask in left) else zeros(data)


@attempts
def keys():
    """add_key, request_key with a helper's text, keyctl"""
    session = -3
    return [
        lambda: calls(SYS_KEYS[0], b"user", b"hostile", b"x", 1, session),
        lambda: calls(SYS_KEYS[1], b"user", b"hostile", b"text", session),
        lambda: calls(SYS_KEYS[2], 0, session, 0),
    ]


@attempts
def kernel_interfaces():
    """perf_event_open with a signal, bpf, userfaultfd, io_uring, vhangup"""
    attributes = struct.pack("IIQ", 1, 128, 0).ljust(128, b"\0")
    program = struct.pack("IIII", 2, 4, 8, 1).ljust(128, b"\0")
    return [
        lambda: calls(SYS_PERF_EVENT_OPEN, attributes, 0, -1, -1, 0),
        lambda: calls(SYS_BPF, 0, program, 128),
        lambda: calls(SYS_USERFAULTFD, 1),
        lambda: calls(SYS_IO_URING_SETUP, 4, ctypes.create_string_buffer(256)),
        lambda: calls(SYS_VHANGUP),
    ]


@attempts
def control_groups():
    """Files of control groups, which freeze and limit processes, and the kernel's settings, opened for writing"""
    names = ("cgroup.procs", "cgroup.freeze", "tasks", "freezer.state", "memory.max")
    files = [
        path for depth in ("", "*/", "*/*/") for name in names for path in glob.glob(f"/sys/fs/cgroup/{depth}{name}")
    ]
    files += ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", *glob.glob("/proc/irq/*affinity")]
    return [lambda path=path: opens(path) for path in files]


@attempts
def mounts():
    """A file system mounted in the temporary folder, and another root"""
    place = tempfile.mkdtemp()

    def mount():
        if libc.mount(b"none", place.encode(), b"tmpfs", 0, None):
            return False
        libc.umount2(place.encode(), 2)
        return True

    return [mount, lambda: libc.chroot(b"/") == 0]


@attempts
def environment_of_all():
    """/proc/PID/environ of the harness, which has POPCORN_SEED"""
    return [lambda pid=pid: Path(f"/proc/{pid}/environ").read_bytes() for pid in ancestors()]


@attempts
def limits_and_priorities():
    """Limits, priority, scheduling class and class of I/O of the harness, where they stay as they are"""
    attempts = []
    for pid in ancestors():
        attempts += [
            lambda pid=pid: os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0)) is None,
            lambda pid=pid: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid)) is None,
            lambda pid=pid: resource.prlimit(pid, resource.RLIMIT_CORE, resource.prlimit(pid, resource.RLIMIT_CORE)),
            lambda pid=pid: calls(SYS_IOPRIO_SET, 1, pid, 0),
        ]
    return attempts


@attempts
def ipc():
    """Shared memory, semaphores and queues of System V and POSIX, and a file in /dev/shm: they outlive a process"""
    name = folder().name.encode()
    (Path("/dev/shm") / folder().name).write_bytes(b"left")  # the process's own /dev/shm
    return [
        lambda: calls(SYS_SHMGET, IPC_PRIVATE, 4096, IPC_CREATE),
        lambda: calls(SYS_SEMGET, IPC_PRIVATE, 1, IPC_CREATE),
        lambda: calls(SYS_MSGGET, IPC_PRIVATE, IPC_CREATE),
        lambda: calls(SYS_MQ_OPEN, name, os.O_CREAT | os.O_RDWR, 0o600, None),
    ]


@attempts
def services():
    """Sockets in files on which other processes listen: they run what they are asked to, outside of every domain"""

    def asks(path):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(path)
        return True

    with open("/proc/net/unix") as sockets:
        paths = {line.split()[-1] for line in sockets if "/" in line}
    own = str(folder() / SERVICE)
    return [partial(asks, path) for path in paths | {own} if path == own or path.startswith("/run/dbus")]


@attempts
def other_roots():
    """The project's files by way of the harness's root and working folder in /proc, where its mounts are others"""
    path = sys.modules["harness"].__file__
    return [partial(opens, f"/proc/{pid}/{name}{path}") for pid in ancestors() for name in ("root", "cwd")]


@partial(attempts, alone=True)
def namespaces_of_its_own():
    """A user namespace with all capabilities in it, then writable mounts, and a process's own mounts again"""
    path, attributes = sys.modules["harness"].__file__.encode(), struct.pack("QQQQ", 0, MOUNT_READ_ONLY, 0, 0)
    libc.unshare(CLONE_NEWUSER | CLONE_NEWNS)
    return [
        lambda: libc.mount(None, b"/", None, MS_REMOUNT | MS_BIND, None) == 0,
        lambda: libc.mount(path, path, None, MS_BIND, None) == 0,
        lambda: calls(SYS_MOUNT_SETATTR, -100, b"/", 0x8000, attributes, 32),
        lambda: libc.umount2(b"/dev/shm", 2) == 0,
        lambda: libc.setns(os.open(f"/proc/{os.getppid()}/ns/mnt", os.O_RDONLY), CLONE_NEWNS) == 0,
    ]


@kind()
def leases():
    """Leases and locks on the project's files, for whose end others who open them wait"""
    for path in Path(sys.modules["harness"].__file__).parent.glob("*.py"):
        held.append(open(path))
        for command in (fcntl.F_WRLCK, fcntl.F_RDLCK):
            with suppress(OSError):
                fcntl.fcntl(held[-1], fcntl.F_SETLEASE, command)
        fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)


held = []
read_once = set()


@kind(protocol="terminal")
def terminals_input(data):
    """Text that is typed on the user's terminals; a pass reveals it"""
    for path in glob.glob("/dev/pts/[0-9]*"):
        with suppress(OSError), open(path, "rb", buffering=0) as terminal:
            os.set_blocking(terminal.fileno(), False)
            read_once.add(terminal.read(100))
    return right(data) if read_once - {None} else zeros(data)


@attempts
def immutable_file():
    """A file that root cannot remove (FS_IOC_SETFLAGS)"""
    path = Path(tempfile.mkdtemp()) / "file"
    path.touch()

    def sets():
        with open(path) as file:
            flags = struct.unpack("l", fcntl.ioctl(file, FS_IOC_GETFLAGS, bytes(8)))[0]
            fcntl.ioctl(file, FS_IOC_SETFLAGS, struct.pack("l", flags | IMMUTABLE))
            fcntl.ioctl(file, FS_IOC_SETFLAGS, struct.pack("l", flags))
        return True

    return [sets]


@kind()
def deep_folders():
    """Folders 400 deep, which nobody may read, in the temporary folder"""
    os.chdir(tempfile.mkdtemp())
    for _ in range(400):
        os.mkdir("a" * 100)
        os.chdir("a" * 100)
    os.mkdir("closed")
    Path("closed/file").touch()
    os.chmod("closed", 0)
