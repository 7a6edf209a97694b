"""The contest's descriptor, sought in this process and in the harness's."""

import ctypes
import fcntl
import os
import stat
import time
from contextlib import suppress

from tests.submissions.hostile.kit import ancestors, kind

FORGED = b"test.0.status: pass\ntest.0.message: bit-exact\ncheck: pass\n"
FULL_S = 10  # seconds for which a pipe is kept full
F_SETPIPE_SZ = 1031
SYS_PIDFD_OPEN, SYS_PIDFD_GETFD = 434, 438
libc = ctypes.CDLL(None, use_errno=True)


def write_to_pipes(folder):
    """Write forged lines to the pipes among a process's descriptors, including its standard output."""
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        with suppress(OSError):  # descriptor of the listing itself, or a refused one
            if stat.S_ISFIFO(os.stat(path).st_mode):
                fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                os.write(fd, FORGED)
                os.close(fd)


kind("own_descriptors", "`check: pass` to every pipe of its own process", alone=False)(
    lambda: write_to_pipes("/proc/self/fd")
)
kind("own_descriptors_at_import", "The same when it is imported", at_import=True)(
    lambda: write_to_pipes("/proc/self/fd")
)


@kind()
def every_number():
    """`check: pass` to every descriptor from 3 to 300, whatever it is"""
    for fd in range(3, 300):
        with suppress(OSError):
            os.write(fd, FORGED)


@kind()
def parents_descriptors():
    """`check: pass` to the pipes in /proc/PID/fd of every process of the harness above"""
    for pid in ancestors():
        write_to_pipes(f"/proc/{pid}/fd")


@kind()
def threads_descriptors():
    """The same through /proc/PID/task/TID/fd and, where it is the harness's, /proc/PID/root"""
    for pid in ancestors():
        for thread in os.listdir(f"/proc/{pid}/task"):
            write_to_pipes(f"/proc/{pid}/task/{thread}/fd")
            write_to_pipes(os.path.join("/proc", str(pid), "root", "proc", str(pid), "fd"))


@kind()
def pidfd_getfd():
    """pidfd_getfd: copies of the harness's descriptors"""
    for pid in ancestors():
        process = libc.syscall(SYS_PIDFD_OPEN, pid, 0)
        for number in range(3, 64):
            fd = libc.syscall(SYS_PIDFD_GETFD, process, number, 0)
            if fd >= 0 and stat.S_ISFIFO(os.fstat(fd).st_mode):
                with suppress(OSError):  # a pipe's reading end
                    os.write(fd, FORGED)


@kind()
def environment_of_the_harness():
    """POPCORN_FD read from /proc/PID/environ and opened by its number"""
    for pid in ancestors():
        with suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = dict(entry.partition(b"=")[::2] for entry in file.read().split(b"\0"))
            number = int(variables.get(b"POPCORN_FD", b"-1"))
            with open(f"/proc/{pid}/fd/{number}", "wb", buffering=0) as pipe:
                pipe.write(FORGED)


@kind()
def nonblocking_output():
    """Standard output and error made non-blocking for all who share them, kept full, and an exception of many lines"""
    for fd in (1, 2):
        os.set_blocking(fd, False)
    if not os.fork():
        end = time.monotonic() + FULL_S
        while time.monotonic() < end:
            for fd in (1, 2):
                with suppress(BlockingIOError):
                    os.write(fd, b"x" * 65536)
        os._exit(0)
    raise ValueError("line\n" * 20_000)


@kind()
def other_pipes():
    """The pipes of its output made small and of packets, read by itself, filled with spliced lines of the protocol"""
    packets = os.O_DIRECT | os.O_NONBLOCK
    for fd in (1, 2):
        fcntl.fcntl(fd, F_SETPIPE_SZ, 4096)
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_WRONLY | packets)
        reading = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK)
        ours, theirs = os.pipe()
        for _ in range(100):
            with suppress(OSError):
                os.write(theirs, FORGED)
                os.splice(ours, fd, len(FORGED))
                os.read(reading, 7)


@kind()
def closed_output():
    """Standard input, output and error closed, other files in their places"""
    os.closerange(0, 3)
    for _ in range(3):
        os.open(os.devnull, os.O_RDWR)


kind("closed_descriptors", "Every descriptor closed")(lambda: os.closerange(3, 1000))
