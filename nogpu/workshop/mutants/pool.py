"""Functions of no arguments in forked processes, many at a time, each with a limit of its time."""

from __future__ import annotations

import gc
import os
import pickle
import selectors
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """A task that is over."""

    number: int  # place among the tasks
    result: Any  # None where it was too late or the process died
    seconds: float
    failure: str  # "" for none, else what became of the process


@dataclass
class _Running:
    number: int
    process: int
    began: float
    data: bytearray = field(default_factory=bytearray)


def run(tasks: Sequence[Callable[[], Any]], jobs: int, limit: float, seconds: float | None = None) -> Iterator[Ended]:
    """Results as they come. Each task runs in a process that is forked for it, `limit` seconds at most. None starts
    when `seconds` are over.

    Processes end with the iterator.
    """
    gc.collect()
    gc.freeze()  # children do not copy what the collector would touch
    selector, waiting, began = selectors.DefaultSelector(), list(range(len(tasks)))[::-1], time.monotonic()
    try:
        while waiting or selector.get_map():
            if seconds is not None and time.monotonic() - began > seconds:
                waiting.clear()
            while waiting and len(selector.get_map()) < jobs:
                number = waiting.pop()
                pipe, process = _fork(tasks[number])
                selector.register(pipe, selectors.EVENT_READ, _Running(number, process, time.monotonic()))
            for key, _ in selector.select(timeout=0.5):
                read = os.read(key.fd, 1 << 16)
                key.data.data.extend(read)
                if not read:
                    yield _end(selector, key)
            for key in list(selector.get_map().values()):
                if time.monotonic() - key.data.began > limit:
                    os.kill(key.data.process, signal.SIGKILL)
                    yield _end(selector, key, f"no result within {limit:g} seconds")
    finally:
        for key in list(selector.get_map().values()):
            os.kill(key.data.process, signal.SIGKILL)
            _end(selector, key)
        selector.close()
        gc.unfreeze()


def _end(selector: selectors.BaseSelector, key: selectors.SelectorKey, failure: str = "") -> Ended:
    running: _Running = key.data
    selector.unregister(key.fd)
    os.close(key.fd)
    _, status = os.waitpid(running.process, 0)
    seconds, result = time.monotonic() - running.began, None
    if not failure and running.data:
        result, failure = pickle.loads(bytes(running.data))
    elif not failure:
        failure = f"the process ended with status {status}"
    return Ended(running.number, result, seconds, failure)


def _fork(task: Callable[[], Any]) -> tuple[int, int]:
    """(descriptor of the result, process)."""
    read, write = os.pipe()
    process = os.fork()
    if process:
        os.close(write)
        return read, process
    code = 1
    try:
        os.close(read)
        try:
            answer = task(), ""
        except BaseException as error:  # it is the parent's to judge
            answer = None, f"{type(error).__name__}: {error}"
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(answer, pipe)
        code = 0
    finally:
        os._exit(code)


def shown(ended: Iterator[Ended], total: int, console: Any) -> Iterator[Ended]:
    """The same, with a progress bar on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        for each in ended:
            bar.advance(task)
            yield each
