"""CUDA graphs: work is recorded instead of done, and every replay does it in the order of the calls. The order that
events and waits give the work is recorded, too.

A capture by torch takes the launches of all queues, and torch's operations (torch_graphs). A capture by the CUDA
runtime takes the work of the queue that it names, and of those that wait for an event of it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

from nogpu.cuda import current_queue
from nogpu.execution import device
from nogpu.execution.device import queue_order

Pool = tuple[int, int]
KERNEL, COPY, FILL, HOST, GRAPH, EMPTY = range(6)  # cudaGraphNodeType
ALLOCATION, RELEASE, CONDITIONAL = 10, 11, 13


class Work(NamedTuple):
    """Work that a replay does. kind: a cudaGraphNodeType, None for work that only orders the rest."""

    run: Callable[[], None]
    kind: int | None


class _Capture:
    def __init__(self, queue: int | None) -> None:
        self.work: list[Work] = []
        self.queues = None if queue is None else {queue}
        """Queues that are captured; None for all."""
        self.events: set[int] = set()


_capture: _Capture | None = None
_numbers = itertools.count()


def capturing(queue: int | None = None) -> bool:
    """True if a graph is being captured, and from the queue if one is named."""
    return _capture is not None and (queue is None or _capture.queues is None or queue in _capture.queues)


def begin(queue: int | None = None) -> None:
    """Capture the work of a queue, or of all. Raises RuntimeError during another capture."""
    global _capture
    if _capture is not None:
        raise RuntimeError("a CUDA graph is being captured already")
    device.run_pending()
    _capture = _Capture(queue)


def end() -> list[Work]:
    """End the capture and return its work. Raises RuntimeError if no graph is being captured."""
    global _capture
    if _capture is None:
        raise RuntimeError("no CUDA graph is being captured")
    work, _capture = _capture.work, None
    return work


def captured() -> list[Work]:
    """The work of the capture so far."""
    return [] if _capture is None else _capture.work


def submit(work: Callable[[], None], queue: int, kind: int | None = None) -> None:
    """Do work of a queue, or add it to the graph that is captured from the queue."""
    if _capture is not None and capturing(queue):
        _capture.work.append(Work(work, kind))
    else:
        work()


def recorded(event: int, queue: int) -> None:
    """Note that an event is recorded in a queue. If that queue is captured, so are queues that wait for the event."""
    if _capture is not None:
        (_capture.events.add if capturing(queue) else _capture.events.discard)(event)


def waited(queue: int, event: int) -> None:
    """Note that a queue waits for an event. The queue is captured from now on if the event is of a captured one."""
    if _capture is not None and _capture.queues is not None and event in _capture.events:
        _capture.queues.add(queue)


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Work is done, and not recorded."""
    global _capture
    before, _capture = _capture, None
    try:
        yield
    finally:
        _capture = before


def refuse(what: str) -> NoReturn:
    """Raise NotImplementedError for an operation that cannot be captured."""
    raise NotImplementedError(f"{what} while a CUDA graph is captured: it waits for the device or is not modelled")


class CUDAGraph:
    """torch.cuda.CUDAGraph: the work between capture_begin and capture_end.

    The graph keeps the device memory that exists at capture_end.
    """

    def __init__(self, keep_graph: bool = False):
        self.work: list[Work] | None = None
        self._number = next(_numbers)
        self._kept: list[object] = []

    def capture_begin(self, pool: Pool | None = None, capture_error_mode: str = "global") -> None:
        begin()

    def capture_end(self) -> None:
        self.work = end()
        self._kept = [owner() for owner in device.memory_owners]

    def replay(self, queue: int | None = None) -> None:
        """Do the graph's work as work of a queue, torch's current one if none is named. Raises RuntimeError without a
        capture.
        """
        if self.work is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        order = queue_order()
        queue = current_queue.get() if queue is None else queue
        with contextlib.nullcontext() if order is None else order.replaying(self._number, queue):
            for work in self.work:
                work.run()

    def reset(self) -> None:
        self.work, self._kept = None, []
        order = queue_order()
        if order is not None:
            order.forget_graph(self._number)

    def pool(self) -> Pool:
        return 0, 0
