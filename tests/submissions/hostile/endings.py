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

from tests.submissions.hostile.kit import kind, zeros

HOG = 1 << 30  # bytes beyond the process's present size


@kind()
def exit_0(data):
    """os._exit(0) in the call"""
    os._exit(0)


@kind()
def exit_112(data):
    """os._exit(112), the harness's own code"""
    os._exit(112)


@kind()
def system_exit(data):
    """sys.exit(0)"""
    sys.exit(0)


@kind()
def keyboard_interrupt(data):
    """KeyboardInterrupt"""
    raise KeyboardInterrupt


@kind()
def generator_exit(data):
    """GeneratorExit"""
    raise GeneratorExit


@kind()
def stop_iteration(data):
    """StopIteration"""
    raise StopIteration([0])


@kind()
def kills_itself(data):
    """SIGKILL to itself"""
    os.kill(os.getpid(), signal.SIGKILL)


@kind()
def kills_its_group(data):
    """SIGKILL to its process group, if that is the worker's own"""
    if os.getpgid(0) != os.getpgid(os.getppid()):
        os.killpg(0, signal.SIGKILL)
    return zeros(data)


@kind()
def segmentation_fault(data):
    """A read at address 0"""
    ctypes.string_at(0)


@kind()
def aborts(data):
    """os.abort()"""
    os.abort()


@kind()
def other_program(data):
    """execv: the worker becomes /bin/true"""
    os.execv("/bin/true", ["true"])


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
def memory_hog(data):
    """All the memory that there is, up to a limit of 1 GB more"""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + HOG, used + HOG))
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


@kind(then=("callers_c",))
def exit_before_a_right_case(data):
    """os._exit(0), then a right case, which must pass"""
    os._exit(0)


@kind(at_import=True)
def exit_at_import():
    """os._exit(0) when it is imported"""
    os._exit(0)


@kind(at_import=True)
def system_exit_at_import():
    """sys.exit(0) when it is imported"""
    sys.exit(0)


@kind(at_import=True)
def exit_at_exit():
    """os._exit(0) in an atexit function"""
    atexit.register(os._exit, 0)


@kind(at_import=True, timeout_s=10)
def hang_at_exit():
    """A hang in an atexit function, and a thread that does not end"""
    atexit.register(time.sleep, 600)
    threading.Thread(target=time.sleep, args=(600,)).start()


@kind(at_import=True, timeout_s=8)
def hang_at_import():
    """A hang when it is imported"""
    time.sleep(600)


@kind(timeout_s=4)
def endless_loop(data):
    """A loop without end"""
    while True:
        pass


@kind(timeout_s=4)
def endless_call(data):
    """A hang in C that holds Python's lock"""
    ctypes.PyDLL(None).sleep(600)


@kind(timeout_s=4)
def stops_itself(data):
    """SIGSTOP to itself"""
    os.kill(os.getpid(), signal.SIGSTOP)
    return zeros(data)


@kind(timeout_s=4)
def ignores_signals(data):
    """All signals ignored or blocked, then a loop without end"""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):  # those of the C library
            pass
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        time.sleep(1)


@kind(alone=True)
def alarm_handler(data):
    """An interval timer whose handler raises in whatever runs after the call"""

    def handler(number, frame):
        raise SystemExit(0)

    outputs = zeros(data)
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    return outputs


@kind(alone=True)
def fault_handler(data):
    """faulthandler ends the process with a traceback some time after the call"""
    faulthandler.dump_traceback_later(0.01, exit=True)
    return zeros(data)


@kind(alone=True)
def no_descriptors(data):
    """A limit of no further descriptors, memory or processes for itself"""
    outputs = zeros(data)
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_STACK):
        resource.setrlimit(limit, (0, 0))
    return outputs
