"""The harness's own processes, attacked from the worker: memory, signals, limits."""

import ctypes
import fcntl
import os
import resource
import signal
import socket
import time
from contextlib import suppress

from tests.submissions.hostile.kit import ancestors, kind

PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
SYS_PIDFD_OPEN, SYS_PIDFD_SEND_SIGNAL, SYS_RT_SIGQUEUEINFO = 434, 424, 129
F_SETSIG = 10
CHUNK = 1 << 22
libc = ctypes.CDLL(None, use_errno=True)
libc.process_vm_readv.restype = libc.process_vm_writev.restype = ctypes.c_ssize_t


def writable_ranges(pid):
    """The (start, end) of each range of the process's writable memory without a name, including its heap."""
    try:
        with open(f"/proc/{pid}/maps") as maps:
            entries = [line.split() for line in maps]
    except OSError:
        return
    for span, access, *_, name in (entry if len(entry) > 5 else [*entry, ""] for entry in entries):
        if access.startswith("rw") and name in ("", "[heap]"):
            start, end = (int(address, 16) for address in span.split("-"))
            yield start, min(end, start + (1 << 28))


@kind()
def memory_file():
    """/proc/PID/mem: every "fail" of the harness's memory becomes "pass" """
    for pid in ancestors():
        try:
            memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
        except OSError:
            continue
        for start, end in writable_ranges(pid):
            for base in range(start, end, CHUNK):
                with suppress(OSError):
                    content = os.pread(memory, min(CHUNK, end - base), base)
                    changed = content.replace(b"fail", b"pass")
                    if changed != content:
                        os.pwrite(memory, changed, base)


class Span(ctypes.Structure):
    """The struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


@kind()
def process_vm_writev():
    """process_vm_writev: the same"""
    buffer = ctypes.create_string_buffer(CHUNK)
    for pid in ancestors():
        for start, end in writable_ranges(pid):
            for base in range(start, end, CHUNK):
                ours = Span(ctypes.addressof(buffer), min(CHUNK, end - base))
                theirs = Span(base, ours.length)
                size = libc.process_vm_readv(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
                at = buffer.raw[: max(size, 0)].find(b"fail")
                while at >= 0:
                    buffer[at : at + 4] = b"pass"
                    ours, theirs = Span(ctypes.addressof(buffer) + at, 4), Span(base + at, 4)
                    libc.process_vm_writev(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
                    at = buffer.raw[:size].find(b"fail")


@kind(timeout_s=10)
def ptrace_attach():
    """ptrace: the harness is attached to and stays stopped"""
    for pid in ancestors():
        libc.ptrace(PTRACE_ATTACH, pid, 0, 0)
    time.sleep(2)


@kind()
def kills_the_harness():
    """SIGKILL to the harness"""
    for pid in ancestors():
        os.kill(pid, signal.SIGKILL)


@kind()
def interrupts_the_harness():
    """SIGINT and SIGTERM to the harness"""
    for pid in ancestors():
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)


@kind(timeout_s=10)
def stops_the_harness():
    """SIGSTOP to the harness"""
    for pid in ancestors():
        os.kill(pid, signal.SIGSTOP)


@kind()
def signals_by_other_calls():
    """SIGKILL to the harness by pidfd_send_signal, tgkill, rt_sigqueueinfo and to its group"""
    information = ctypes.create_string_buffer(128)
    information[8:9] = b"\xff"  # si_code is SI_QUEUE, -1
    information[9:12] = b"\xff" * 3
    for pid in ancestors():
        process = libc.syscall(SYS_PIDFD_OPEN, pid, 0)
        libc.syscall(SYS_PIDFD_SEND_SIGNAL, process, signal.SIGKILL, None, 0)
        libc.tgkill(pid, pid, signal.SIGKILL)
        libc.syscall(SYS_RT_SIGQUEUEINFO, pid, signal.SIGKILL, information)
        if os.getpgid(pid) == pid:  # the run's own group
            libc.killpg(pid, signal.SIGKILL)


@kind()
def signal_of_a_file():
    """SIGKILL to the harness as the signal of a socket that gets data (F_SETOWN, F_SETSIG)"""
    ours, theirs = socket.socketpair()
    for pid in ancestors():
        fcntl.fcntl(ours, F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(ours, fcntl.F_SETOWN, pid)
        fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        theirs.send(b"x")


@kind(then=("all_zeros",))
def limits_of_the_harness():
    """prlimit: no memory, descriptors, files or seconds for the harness; then this process ends"""
    for pid in ancestors():
        for limit in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU):
            with suppress(OSError):
                resource.prlimit(pid, limit, (1, 1))
    os._exit(5)


@kind()
def priority_of_the_harness():
    """The harness gets the lowest priority, and is the first that a lack of memory ends"""
    for pid in ancestors():
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, 19)
            with open(f"/proc/{pid}/oom_score_adj", "w") as file:
                file.write("1000")
