"""Tasks in forked children: each sees the parent's memory as it was and changes only its own copy of it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import selectors
import signal
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from emulator.errors import EmulatorError

Report = Callable[[int], None]  # units of work done since the last report
Task = Callable[[Report], object]

_HEADER = struct.Struct("<cQ")  # kind (P progress, R result, E error), length of the pickled message
_REPORT_INTERVAL = 0.05  # seconds
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)


class ChildTraceback(Exception):
    """Where in a child an error was raised; the cause of the error that the parent raises."""


@dataclass
class _Child:
    index: int
    pid: int
    pipe: int
    received: bytearray = field(default_factory=bytearray)
    outcome: tuple[bytes, object] | None = None


def run_forked(tasks: Sequence[tuple[str, Task]], limit: int, report: Report | None = None) -> list:
    """Results of (name, task) pairs, at most `limit` at once. If tasks fail, the first one's error is raised.

    A task runs in a forked child and must not use what lives in other threads; its result and its error are pickled.
    The children are gone when this returns or raises.
    """
    results: list = [None] * len(tasks)
    failure: tuple[int, BaseException] | None = None
    children: dict[int, _Child] = {}
    waiting = list(enumerate(tasks))[::-1]
    with selectors.DefaultSelector() as selector:
        try:
            while children or waiting:
                while waiting and len(children) < limit:
                    index, (_, task) = waiting.pop()
                    child = _fork(index, task)
                    children[index] = child
                    selector.register(child.pipe, selectors.EVENT_READ, child)
                for key, _ in selector.select():
                    child = key.data
                    if _receive(child, report):
                        continue
                    selector.unregister(child.pipe)
                    del children[child.index]
                    error = _finish(child, tasks[child.index][0])
                    if error is None:
                        results[child.index] = child.outcome[1]
                    elif failure is None or child.index < failure[0]:
                        failure = child.index, error
                if (
                    failure is not None
                ):  # tasks start in order: only those that run already may be before the failed one
                    waiting.clear()
                    for index in [index for index in children if index > failure[0]]:
                        selector.unregister(children[index].pipe)
                        _kill(children.pop(index))
        finally:
            for child in children.values():
                _kill(child)
    if failure is not None:
        raise failure[1]
    return results


def _fork(index: int, task: Task) -> _Child:
    read_end, write_end = os.pipe()
    parent = os.getpid()
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there is none, or it is closed
        sys.stdout.flush()  # or the child would write what waits in the buffer, too
    with warnings.catch_warnings():
        # From 3.12 on a fork beside other threads warns; the child uses nothing of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(write_end)
        return _Child(index, pid, read_end)
    try:
        os.close(read_end)
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            gc.freeze()  # what the parent left must be neither finalised nor, by a collection's marks, copied
            _work(task, write_end)
    finally:
        os._exit(0)


def _work(task: Task, pipe: int) -> None:
    done, sent = 0, time.monotonic()

    def report(units: int) -> None:
        nonlocal done, sent
        done += units
        if time.monotonic() - sent >= _REPORT_INTERVAL:
            _send(pipe, b"P", done)
            done, sent = 0, time.monotonic()

    try:
        result = task(report)
        _send(pipe, b"P", done)
        _send(pipe, b"R", result)
    except BaseException as error:
        text = traceback.format_exc()
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        _send(pipe, b"E", (error, text))


def _send(pipe: int, kind: bytes, message: object) -> None:
    payload = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    for part in (_HEADER.pack(kind, len(payload)), payload):
        view = memoryview(part)
        while view:
            view = view[os.write(pipe, view) :]


def _receive(child: _Child, report: Report | None) -> bool:
    """Takes what the pipe holds. False at its end."""
    part = os.read(child.pipe, 1 << 20)
    child.received += part
    while len(child.received) >= _HEADER.size:
        kind, length = _HEADER.unpack_from(child.received)
        end = _HEADER.size + length
        if len(child.received) < end:
            break
        message = pickle.loads(memoryview(child.received)[_HEADER.size : end])
        del child.received[:end]
        if kind != b"P":
            child.outcome = kind, message
        elif report is not None:
            report(message)
    return bool(part)


def _finish(child: _Child, name: str) -> BaseException | None:
    """Reaps a child whose pipe has ended. Returns its error."""
    os.close(child.pipe)
    _, status = os.waitpid(child.pid, 0)
    if child.outcome is None:
        code = os.waitstatus_to_exitcode(status)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"left with exit code {code}"
        return EmulatorError(f"the process that ran {name} {how} before it had a result")
    kind, message = child.outcome
    if kind == b"R":
        return None
    error, text = message
    if not isinstance(error, EmulatorError):
        error.__cause__ = ChildTraceback(f"in the process that ran {name}:\n{text}")
    return error


def _kill(child: _Child) -> None:
    os.close(child.pipe)
    os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)
