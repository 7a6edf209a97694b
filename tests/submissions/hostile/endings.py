"""Submissions that end, hang or break their own process."""

import atexit
import ctypes
import faulthandler
import os
import resource
import signal
import sys
import threading
import time
from contextlib import suppress

from tests.submissions.hostile.kit import kind

HOG = 1 << 30  # bytes beyond the process's present size


def raises(name, error):
    """Register a kind that raises this error."""

    def act():
        raise error

    kind(name, type(error).__name__)(act)


kind("exit_0", "os._exit(0) in the call")(lambda data: os._exit(0))
kind("exit_112", "os._exit(112), the harness's own code")(lambda data: os._exit(112))
kind("system_exit", "sys.exit(0)")(lambda data: sys.exit(0))


raises("keyboard_interrupt", KeyboardInterrupt())
raises("generator_exit", GeneratorExit())
raises("stop_iteration", StopIteration([0]))
kind("kills_itself", "SIGKILL to itself")(lambda data: os.kill(os.getpid(), signal.SIGKILL))


@kind()
def kills_its_group():
    """SIGKILL to its process group, if that is the worker's own"""
    if os.getpgid(0) != os.getpgid(os.getppid()):
        os.killpg(0, signal.SIGKILL)


kind("segmentation_fault", "A read at address 0")(lambda data: ctypes.string_at(0))
kind("aborts", "os.abort()")(lambda data: os.abort())


@kind(alone=True)
def core_file():
    """os.abort() with the largest core file allowed, from each folder that there is"""
    for place in (os.getcwd(), os.environ["HOSTILE_FOLDER"], "/dev/shm"):
        if not os.fork():
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)
            os.chdir(place)
            os.abort()
        os.wait()


kind("other_program", "execv: the worker becomes /bin/true")(lambda data: os.execv("/bin/true", ["true"]))


@kind()
def deep_recursion(data):
    """A recursion without end"""
    return deep_recursion(data)


@kind()
def stack_overflow(data):
    """A recursion without end or limit"""
    sys.setrecursionlimit(2**30)
    nested = []
    for _ in range(10_000_000):
        nested = [nested]
    return [repr(nested)]


@kind()
def memory_hog():
    """All the memory that there is, up to a limit of 1 GB more"""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + HOG, used + HOG))
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


kind("exit_before_a_right_case", "os._exit(0), then a right case, which must pass", then=("callers_c",))(
    lambda data: os._exit(0)
)
kind("exit_at_import", "os._exit(0) when it is imported", at_import=True)(lambda: os._exit(0))
kind("system_exit_at_import", "sys.exit(0) when it is imported", at_import=True)(lambda: sys.exit(0))
kind("exit_at_exit", "os._exit(0) in an atexit function", at_import=True)(lambda: atexit.register(os._exit, 0))


@kind(at_import=True, timeout_s=10)
def hang_at_exit():
    """A hang in an atexit function, and a thread that does not end"""
    atexit.register(time.sleep, 600)
    threading.Thread(target=time.sleep, args=(600,)).start()


kind("hang_at_import", "A hang when it is imported", at_import=True, timeout_s=8)(lambda: time.sleep(600))


@kind(timeout_s=4)
def endless_loop(data):
    """A loop without end"""
    while True:
        pass


kind("endless_call", "A hang in C that holds Python's lock", timeout_s=4)(lambda data: ctypes.PyDLL(None).sleep(600))
kind("stops_itself", "SIGSTOP to itself", timeout_s=4)(lambda: os.kill(os.getpid(), signal.SIGSTOP))


@kind(timeout_s=4)
def ignores_signals():
    """All signals ignored or blocked, then a loop without end"""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):  # those of the C library
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        time.sleep(1)


@kind(alone=True)
def alarm_handler():
    """An interval timer whose handler raises in whatever runs after the call"""

    def handler(number, frame):
        raise SystemExit(0)

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)


kind("fault_handler", "faulthandler ends the process with a traceback some time after the call", alone=True)(
    lambda: faulthandler.dump_traceback_later(0.01, exit=True)
)


@kind(alone=True)
def no_descriptors():
    """A limit of no further descriptors, memory or processes for itself"""
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_STACK):
        resource.setrlimit(limit, (0, 0))
