"""torch.cuda.Stream and Event: queues of the device, and points in their work.

A Stream is, as in torch, one of 32 queues, given out in turn, that do not wait for the legacy default queue
(c10/cuda/CUDAStream.cpp); there are 32 others of high priority.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Iterator
from typing import Any

import torch

from nogpu.cuda import current_queue, events, graphs, queues
from nogpu.cuda.backends import emulated

POOL = 32  # queues of a priority

_pools: dict[bool, Iterator[int]] = {}  # True for high priority -> handles


def _of_pool(is_high: bool) -> int:
    """The handle of the next queue of a priority."""
    if is_high not in _pools:
        _pools[is_high] = itertools.cycle([queues.create(queues.NON_BLOCKING) for _ in range(POOL)])
    return next(_pools[is_high])


class Stream:
    """torch.cuda.Stream: a queue of the device."""

    def __init__(self, device: object = None, priority: int = 0, **kwargs: Any):
        """kwargs: stream_id of an existing Stream, as in torch, or stream_ptr, the handle of any queue."""
        self.device = torch.device("cuda", 0)
        self.priority = priority
        self.device_index, self.device_type = 0, 1
        handle = kwargs.get("stream_ptr", kwargs.get("stream_id"))
        self.cuda_stream: int = _of_pool(priority < 0) if handle is None else handle
        self.stream_id = self.cuda_stream

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.cuda_stream)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.cuda_stream:#x}>"

    def __enter__(self) -> Stream:
        self._before = getattr(self, "_before", [])
        self._before.append(current())
        choose(self)
        return self

    def __exit__(self, *failure: object) -> None:
        choose(self._before.pop())

    def synchronize(self) -> None:
        emulated().synchronize(self.cuda_stream)

    def query(self) -> bool:
        return emulated().is_over(self.cuda_stream)

    def is_capturing(self) -> bool:
        return graphs.capturing(self.cuda_stream)

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        queues.join(self.cuda_stream, stream.cuda_stream)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream


class ExternalStream(Stream):
    """torch.cuda.ExternalStream: a queue that something else has created."""

    def __init__(self, stream_ptr: int, device: object = None, **kwargs: Any):
        super().__init__(device, stream_ptr=stream_ptr)


DEFAULT = Stream(stream_ptr=queues.LEGACY)
_known: dict[int, Stream] = {queues.LEGACY: DEFAULT}


def current(device: object = None) -> Stream:
    """torch.cuda.current_stream: the queue of this thread."""
    handle = current_queue.get()
    return _known.get(handle) or Stream(stream_ptr=handle)


def choose(stream: Stream | None) -> None:
    """torch.cuda.set_stream: choose the queue of this thread."""
    if stream is not None:
        _known[stream.cuda_stream] = stream
        current_queue.choose(stream.cuda_stream)


@contextlib.contextmanager
def chosen(stream: Stream | None) -> Iterator[None]:
    """torch.cuda.stream: a context whose work goes to a queue."""
    before = current()
    choose(stream)
    try:
        yield
    finally:
        choose(before)


_capturing: list[Stream] = []  # the queue of captures that name none


@contextlib.contextmanager
def graph(
    cuda_graph: graphs.CUDAGraph,
    pool: graphs.Pool | None = None,
    stream: Stream | None = None,
    capture_error_mode: str = "global",
    **kwargs: Any,
) -> Iterator[None]:
    """torch.cuda.graph: a context whose work is captured."""
    if stream is None:
        _capturing[:] = _capturing or [Stream()]
    emulated().synchronize()
    with chosen(stream or _capturing[0]):
        cuda_graph.capture_begin(pool, capture_error_mode)
        try:
            yield
        finally:
            cuda_graph.capture_end()


class Event:
    """torch.cuda.Event: a point in a queue's work."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **kwargs: Any):
        self.enable_timing = enable_timing
        self.device = torch.device("cuda", 0)
        self.cuda_event = 0  # handle; 0 before the first record, as in torch

    def __del__(self) -> None:
        events.destroy(self.cuda_event)

    def record(self, stream: Stream | None = None) -> None:
        self.cuda_event = self.cuda_event or events.create()
        emulated().record(self.cuda_event, (stream or current()).cuda_stream)

    def synchronize(self) -> None:
        emulated().synchronize(event=self.cuda_event)

    def wait(self, stream: Stream | None = None) -> None:
        events.wait((stream or current()).cuda_stream, self.cuda_event)

    def query(self) -> bool:
        return emulated().is_over(event=self.cuda_event)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds of the host's clock between two recorded events. Raises ValueError as torch does."""
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self.cuda_event and end_event.cuda_event):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return events.milliseconds(self.cuda_event, end_event.cuda_event)
