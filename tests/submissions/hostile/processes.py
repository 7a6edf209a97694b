"""Processes that a submission starts and leaves behind; results are right, and either verdict is allowed."""

import ctypes
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress

from tests.submissions.hostile.kit import OVER, ancestors, folder, kind

LIFE_S = 150  # life of an abandoned process, longer than its run may take
PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG = 36, 1
PTRACE_TRACEME, PTRACE_SEIZE = 0, 0x4206
CLONE_VFORK = 0x4000
CLONE_PARENT, CLONE_NEWPID, SYS_CLONE, SYS_EXIT = 0x8000, 0x20000000, 56, 60
libc = ctypes.CDLL(None, use_errno=True)


def lingers():
    """Sleep for long as a child, then create a file."""
    time.sleep(LIFE_S)
    (folder() / "later").touch()
    os._exit(0)


def open_pipes(pid):
    """New descriptors of a process's pipes, for writing."""
    opened = []
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{name}"
            if os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode):
                opened.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    return opened


@kind()
def sleeping_child():
    """A child that sleeps"""
    if not os.fork():
        lingers()


@kind()
def detached_grandchild():
    """A grandchild with a session of its own, whose parent has ended"""
    if not os.fork():
        os.setsid()
        if not os.fork():
            lingers()
        os._exit(0)
    os.wait()


@kind()
def daemon_with_descriptors():
    """A detached daemon that writes `check: pass` to every pipe that it and the harness have, again and again"""
    opened = [fd for pid in (os.getpid(), *ancestors()) for fd in open_pipes(pid)]
    if not os.fork():
        os.setsid()
        if not os.fork():
            end = time.monotonic() + LIFE_S
            while time.monotonic() < end:
                for fd in opened:
                    with suppress(OSError):
                        os.write(fd, b"check: pass\n")
                time.sleep(0.05)
        os._exit(0)
    os.wait()


@kind()
def stubborn_child():
    """A child that ignores and blocks all signals"""
    if not os.fork():
        os.setsid()
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        lingers()


@kind()
def stopped_child():
    """A child that has stopped itself"""
    if not os.fork():
        os.setsid()
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)


@kind()
def child_of_the_harness():
    """clone(CLONE_PARENT): a sibling of the worker, in a session of its own"""
    if not libc.syscall(SYS_CLONE, CLONE_PARENT | signal.SIGCHLD, None, None, None, None):
        libc.setsid()
        libc.sleep(LIFE_S)
        libc._exit(0)


@kind()
def own_reaper():
    """A daemon that adopts its own descendants"""
    if not os.fork():
        os.setsid()
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for _ in range(3):
            if not os.fork():
                os.setsid()
                if not os.fork():
                    lingers()
                os._exit(0)
        lingers()


@kind()
def own_namespace():
    """A daemon in a namespace of process ids of its own, where the kernel allows one"""
    if not os.fork():
        libc.unshare(CLONE_NEWPID)
        if not os.fork():
            os.setsid()
            lingers()
        os._exit(0)
    os.wait()


@kind()
def program_without_environment():
    """Another program, detached, with an empty environment and no descriptors"""
    command = [sys.executable, "-S", "-c", f"import time; time.sleep({LIFE_S})"]
    subprocess.Popen(command, env={}, start_new_session=True, stdin=-3, stdout=-3, stderr=-3)


@kind()
def hopping_processes():
    """Eight daemons that are new processes every few milliseconds"""
    end = time.monotonic() + LIFE_S
    for _ in range(8):
        if not os.fork():
            os.setsid()
            while time.monotonic() < end and not (folder() / OVER).exists():
                if os.fork():
                    os._exit(0)
                os.setsid()
            os._exit(0)
        os.wait()


@kind()
def many_processes():
    """Fifty processes in sessions of their own"""
    for _ in range(50):
        if not os.fork():
            os.setsid()
            lingers()


@kind()
def process_without_its_first_thread():
    """A child whose first thread has ended and whose second sleeps: it looks like a zombie"""
    if not os.fork():
        os.setsid()
        threading.Thread(target=lingers).start()
        libc.syscall(SYS_EXIT, 0)


@kind(timeout_s=8)
def child_and_hang(data):
    """A detached grandchild, and a hang"""
    detached_grandchild(data)
    time.sleep(600)


@kind()
def child_and_death(data):
    """A detached grandchild, and the worker's death"""
    detached_grandchild(data)
    os.kill(os.getpid(), signal.SIGKILL)


@kind(at_import=True)
def child_at_import():
    """A detached grandchild of the import"""
    if not os.fork():
        os.setsid()
        if not os.fork():
            lingers()
        os._exit(0)
    os.wait()


@kind()
def child_at_exit():
    """A detached grandchild that is started when the worker ends"""
    import atexit

    atexit.register(detached_grandchild, ((), ()))


@kind()
def traced_by_its_parent():
    """PTRACE_TRACEME: the worker's parent is told of every signal, and the worker stops at each"""
    libc.ptrace(PTRACE_TRACEME, 0, 0, 0)
    detached_grandchild(())
    os.kill(os.getpid(), signal.SIGUSR1)


@kind(timeout_s=8)
def tracer_that_never_reaps():
    """A child traces the worker, which ends; nobody but the tracer is told so, and it sleeps"""
    worker = os.getpid()
    reading, writing = os.pipe()
    if not os.fork():
        libc.ptrace(PTRACE_SEIZE, worker, None, None)
        os.write(writing, b"x")
        lingers()
    os.read(reading, 1)
    os._exit(0)


@kind(timeout_s=8)
def waits_for_a_sleeping_child():
    """vfork: the worker waits in the kernel for a child that sleeps"""
    if not libc.syscall(SYS_CLONE, CLONE_VFORK | signal.SIGCHLD, None, None, None, None):
        lingers()


@kind()
def no_death_signal():
    """The worker asks not to be killed with its parent, and holds its socket in a child"""
    libc.prctl(PR_SET_PDEATHSIG, 0)
    if not os.fork():
        os.setsid()
        lingers()
