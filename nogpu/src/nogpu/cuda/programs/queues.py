"""Entry points for queues and events. Work runs in the order of the calls; times are the host's clock."""

from __future__ import annotations

import ctypes

from nogpu.cuda import events, graphs, queues
from nogpu.cuda.backends import current
from nogpu.cuda.programs import status
from nogpu.cuda.programs.entries import ADDRESS, HANDLE, INT, QUEUE, SIZE, U64, UINT, constant, entry, ignored, put


@entry("cudaStreamCreate", ADDRESS)
@entry("cudaStreamCreateWithFlags cuStreamCreate", ADDRESS, UINT)
@entry("cudaStreamCreateWithPriority cuStreamCreateWithPriority", ADDRESS, UINT, INT)
def create_queue(result: int, flags: int = 0, priority: int = 0) -> None:
    put(result, ctypes.c_size_t, queues.create(flags))


@entry("cudaStreamDestroy cuStreamDestroy_v2", QUEUE)
def destroy_queue(queue: int) -> None:
    current().finish()
    queues.destroy(queue)


def _check_uncaptured(*queue: int) -> None:
    if graphs.capturing(*queue):
        raise status.Refused(status.CAPTURE_UNSUPPORTED, "the host waits for a queue that is captured")


@entry("cudaDeviceSynchronize cuCtxSynchronize", queued="cudaStreamSynchronize cuStreamSynchronize")
def synchronize(*queue: int) -> None:
    _check_uncaptured(*queue)
    current().synchronize(*queue)


@entry("cudaEventSynchronize cuEventSynchronize", HANDLE)
def wait_for_event(event: int) -> None:
    current().synchronize(event=event)


@entry("cudaStreamQuery cuStreamQuery", QUEUE)
def query_queue(queue: int) -> int | None:
    _check_uncaptured(queue)
    return None if current().is_over(queue) else status.NOT_READY


@entry("cudaEventQuery cuEventQuery", HANDLE)
def query_event(event: int) -> int | None:
    return None if current().is_over(event=event) else status.NOT_READY


@entry("cudaStreamWaitEvent cuStreamWaitEvent", QUEUE, HANDLE, UINT)
def wait(queue: int, event: int, flags: int) -> None:
    current().wait(queue, event)


ignored("cudaStreamSetAttribute cuStreamSetAttribute", QUEUE, INT, ADDRESS)
ignored("cudaStreamAttachMemAsync cuStreamAttachMemAsync", QUEUE, ADDRESS, SIZE, UINT)
constant("cudaStreamGetPriority cudaStreamGetFlags cudaStreamGetDevice", 0, QUEUE, ADDRESS, place=1)
constant("cuStreamGetPriority cuStreamGetFlags cuStreamGetDevice", 0, QUEUE, ADDRESS, place=1)


@entry("cudaStreamGetId cuStreamGetId", QUEUE, ADDRESS)
def queue_number(queue: int, result: int) -> None:
    put(result, U64, queue)


@entry("cudaEventCreate", ADDRESS)
@entry("cudaEventCreateWithFlags cuEventCreate", ADDRESS, UINT)
def create_event(result: int, flags: int = 0) -> None:
    put(result, ctypes.c_size_t, events.create(flags))


@entry("cudaEventRecord cuEventRecord", HANDLE, QUEUE)
@entry("cudaEventRecordWithFlags cuEventRecordWithFlags", HANDLE, QUEUE, UINT)
def record(event: int, queue: int, flags: int = 0) -> None:
    current().record(event, queue)


@entry("cudaEventElapsedTime cuEventElapsedTime cuEventElapsedTime_v2", ADDRESS, HANDLE, HANDLE)
def elapsed_time(result: int, start: int, end: int) -> None:
    put(result, ctypes.c_float, events.milliseconds(start, end))


@entry("cudaEventDestroy cuEventDestroy_v2", HANDLE)
def destroy_event(event: int) -> None:
    events.destroy(event)
