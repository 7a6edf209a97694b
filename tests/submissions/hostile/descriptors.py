"""The contest's descriptor, sought in this process and in the harness's."""

import ctypes
import os
import stat
import time

from tests.submissions.hostile.kit import ancestors, kind, zeros

FORGED = b"test.0.status: pass\ntest.0.message: bit-exact\ncheck: pass\n"
FULL_S = 10  # seconds for which a pipe is kept full
SYS_PIDFD_OPEN, SYS_PIDFD_GETFD = 434, 438
libc = ctypes.CDLL(None, use_errno=True)


def write_to_pipes(folder):
    """Write forged lines to the pipes among a process's descriptors, including its standard output."""
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        try:
            if stat.S_ISFIFO(os.stat(path).st_mode):
                fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                os.write(fd, FORGED)
                os.close(fd)
        except OSError:  # descriptor of the listing itself, or a refused one
            pass


@kind()
def own_descriptors(data):
    """`check: pass` to every pipe of its own process"""
    write_to_pipes("/proc/self/fd")
    return zeros(data)


@kind(at_import=True)
def own_descriptors_at_import():
    """The same when it is imported"""
    write_to_pipes("/proc/self/fd")


@kind(alone=True)
def every_number(data):
    """`check: pass` to every descriptor from 3 to 300, whatever it is"""
    for fd in range(3, 300):
        try:
            os.write(fd, FORGED)
        except OSError:
            pass
    return zeros(data)


@kind(alone=True)
def parents_descriptors(data):
    """`check: pass` to the pipes in /proc/PID/fd of every process of the harness above"""
    for pid in ancestors():
        write_to_pipes(f"/proc/{pid}/fd")
    return zeros(data)


@kind(alone=True)
def threads_descriptors(data):
    """The same through /proc/PID/task/TID/fd and, where it is the harness's, /proc/PID/root"""
    for pid in ancestors():
        for thread in os.listdir(f"/proc/{pid}/task"):
            write_to_pipes(f"/proc/{pid}/task/{thread}/fd")
            write_to_pipes(os.path.join("/proc", str(pid), "root", "proc", str(pid), "fd"))
    return zeros(data)


@kind(alone=True)
def pidfd_getfd(data):
    """pidfd_getfd: copies of the harness's descriptors"""
    for pid in ancestors():
        process = libc.syscall(SYS_PIDFD_OPEN, pid, 0)
        for number in range(3, 64):
            fd = libc.syscall(SYS_PIDFD_GETFD, process, number, 0)
            if fd >= 0 and stat.S_ISFIFO(os.fstat(fd).st_mode):
                try:
                    os.write(fd, FORGED)
                except OSError:  # a pipe's reading end
                    pass
    return zeros(data)


@kind(alone=True)
def environment_of_the_harness(data):
    """POPCORN_FD read from /proc/PID/environ and opened by its number"""
    for pid in ancestors():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = dict(entry.partition(b"=")[::2] for entry in file.read().split(b"\0"))
            number = int(variables.get(b"POPCORN_FD", b"-1"))
            with open(f"/proc/{pid}/fd/{number}", "wb", buffering=0) as pipe:
                pipe.write(FORGED)
        except OSError:
            pass
    return zeros(data)


@kind(alone=True)
def nonblocking_output(data):
    """Standard output and error made non-blocking for all who share them, kept full, and an exception of many lines"""
    for fd in (1, 2):
        os.set_blocking(fd, False)
    if not os.fork():
        end = time.monotonic() + FULL_S
        while time.monotonic() < end:
            for fd in (1, 2):
                try:
                    os.write(fd, b"x" * 65536)
                except BlockingIOError:
                    pass
        os._exit(0)
    raise ValueError("line\n" * 20_000)


@kind(alone=True)
def closed_output(data):
    """Standard input, output and error closed, other files in their places"""
    os.closerange(0, 3)
    for _ in range(3):
        os.open(os.devnull, os.O_RDWR)
    return zeros(data)


@kind(alone=True)
def closed_descriptors(data):
    """Every descriptor closed"""
    outputs = zeros(data)
    os.closerange(3, 1000)
    return outputs
