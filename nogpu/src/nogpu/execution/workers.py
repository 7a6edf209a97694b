"""Tasks in forked children: each sees the parent's memory as it was and changes only its own copy of it.

`multiprocessing` carries the messages. It does not start the children: it refuses to in the workers of its own pools,
and programs run kernels there.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from nogpu.errors import EmulatorError

Report = Callable[[int], None]
"""Function called with the units of work done since its last call."""
Task = Callable[[Report], Any]

# A message is (kind, units of work since the last one, content); the last is a result, or an error and its traceback.
# It is a pickle and the sizes of the large arrays in it, whose bytes follow in messages of at most _CHUNK.
_PROGRESS, _RESULT, _ERROR = "progress", "result", "error"
_REPORT_INTERVAL = 0.05  # seconds
_LARGE, _CHUNK = 1 << 16, 1 << 24  # bytes
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)


class ChildTraceback(Exception):
    """Traceback of an error in a child, as text; the cause of the error that the parent raises."""


@dataclass
class _Child:
    index: int
    pid: int
    messages: Connection
    outcome: tuple[str, Any] | None = None
    """Kind and content of its last message."""


def run_forked(tasks: Sequence[tuple[str, Task]], limit: int, report: Report | None = None) -> list[Any]:
    """Results of (name, task) pairs, of which at most `limit` run at once. Raises the error of the first that fails.

    A task runs in a forked child and must not use what lives in other threads; its result and its error are pickled.
    The children are gone when this returns or raises. A child that dies without a result raises EmulatorError.
    """
    results: list[Any] = [None] * len(tasks)
    failure: tuple[int, BaseException] | None = None
    children: dict[int, _Child] = {}
    waiting = list(enumerate(tasks))[::-1]
    try:
        while children or waiting:
            while waiting and len(children) < limit:
                index, (_, task) = waiting.pop()
                children[index] = _fork(index, task)
            ready = wait([child.messages for child in children.values()])
            for child in [child for child in children.values() if child.messages in ready]:
                if _receive(child, report):
                    continue
                del children[child.index]
                result, error = _finish(child, tasks[child.index][0])
                if error is None:
                    results[child.index] = result
                elif failure is None or child.index < failure[0]:
                    failure = child.index, error
            if failure is not None:
                waiting.clear()  # Tasks start in order: only those that run already may be before the failed one.
                for index in [index for index in children if index > failure[0]]:
                    _kill(children.pop(index))
    finally:
        for child in children.values():
            _kill(child)
    if failure is not None:
        raise failure[1]
    return results


def _fork(index: int, task: Task) -> _Child:
    receiver, sender = Pipe(duplex=False)
    parent = os.getpid()
    with contextlib.suppress(AttributeError, OSError, ValueError):  # standard output is absent or closed
        sys.stdout.flush()  # the child would write the buffered text, too
    with warnings.catch_warnings():
        # From 3.12 on a fork beside other threads warns; the child uses nothing of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        sender.close()
        return _Child(index, pid, receiver)
    try:
        receiver.close()
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            gc.freeze()  # the parent's objects must be neither finalised nor, by a collection's marks, copied
            _work(task, sender)
    finally:
        os._exit(0)


def _work(task: Task, messages: Connection) -> None:
    done, sent = 0, time.monotonic()

    def report(units: int) -> None:
        nonlocal done, sent
        done += units
        if time.monotonic() - sent >= _REPORT_INTERVAL:
            _send(messages, _PROGRESS, done, None)
            done, sent = 0, time.monotonic()

    try:
        result = task(report)
        _send(messages, _RESULT, done, result)
    except BaseException as error:
        text = traceback.format_exc()
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        _send(messages, _ERROR, 0, (error, text))


def _send(messages: Connection, kind: str, units: int, content: object) -> None:
    large: list[memoryview] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes >= _LARGE:
            large.append(buffer.raw())
            return False
        return True

    text = pickle.dumps((kind, units, content), protocol=5, buffer_callback=is_small)
    messages.send((text, [view.nbytes for view in large]))
    for view in large:
        for start in range(0, view.nbytes, _CHUNK):
            messages.send_bytes(view[start : start + _CHUNK])


def _take(messages: Connection) -> tuple[str, int, Any]:
    """Receives what `_send` has sent, with no more than a chunk of it twice in memory."""
    text, sizes = messages.recv()
    arrays = [bytearray(size) for size in sizes]
    for array in arrays:
        for start in range(0, len(array), _CHUNK):
            messages.recv_bytes_into(array, start)
    return pickle.loads(text, buffers=arrays)


def _receive(child: _Child, report: Report | None) -> bool:
    """Takes a message. Returns False if no other one comes: it was the last, or the child has died."""
    try:
        kind, units, content = _take(child.messages)
    except (EOFError, OSError):  # The child has died between messages, or within one.
        return False
    if kind != _PROGRESS:
        child.outcome = kind, content
    if report is not None and kind != _ERROR:
        report(units)
    return kind == _PROGRESS


def _finish(child: _Child, name: str) -> tuple[Any, BaseException | None]:
    """Reaps a child that sends no more. Returns (result, error)."""
    child.messages.close()
    _, status = os.waitpid(child.pid, 0)
    if child.outcome is None:
        code = os.waitstatus_to_exitcode(status)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"left with exit code {code}"
        return None, EmulatorError(f"the process that ran {name} {how} before it had a result")
    kind, content = child.outcome
    if kind == _RESULT:
        return content, None
    error, text = content
    if not isinstance(error, EmulatorError):
        error.__cause__ = ChildTraceback(f"in the process that ran {name}:\n{text}")
    return None, error


def _kill(child: _Child) -> None:
    child.messages.close()
    os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)
