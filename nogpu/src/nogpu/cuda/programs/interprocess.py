"""Memory and events that processes share by handles (CUDA Runtime API, cudaIpcGetMemHandle).

An exported allocation lies in a file in memory, which other processes map while the one that has exported it lives. The
work that a process records in an event is over when the call returns, so that no other process ever waits for one.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import NamedTuple

from nogpu.cuda import events
from nogpu.cuda.programs import devices, memory, pages, status
from nogpu.cuda.programs.entries import ADDRESS, HANDLE, UINT, entry, put
from nogpu.errors import Fault

_HANDLE = struct.Struct("<8sQQQQ24x")  # cudaIpcMemHandle_t and cudaIpcEventHandle_t: 64 bytes
_MEMORY, _EVENT = b"nogpumem", b"nogpuevt"


class _Opened(NamedTuple):
    address: int
    nbytes: int
    handle: bytes


_opened: dict[int, tuple[_Opened, int]] = {}  # address -> mapping, and how often it has been opened


@entry("cudaIpcGetMemHandle cuIpcGetMemHandle", ADDRESS, ADDRESS)
def export_memory(result: int, pointer: int) -> None:
    device = devices.emulated("handles for other processes")
    device.finish()
    start = device.allocation(pointer)
    nbytes = device.allocated_bytes(start) if start is not None and start not in memory.on_host else None
    if start is None or nbytes is None:
        raise Fault(f"pointer {pointer:#x}: only memory of cudaMalloc can be shared by a handle")
    if start in memory.exported:
        file, _ = memory.exported[start]
    else:
        file = pages.create(nbytes)
        os.pwrite(file, ctypes.string_at(start, pages.rounded(nbytes)), 0)
        pages.show(file, nbytes, start)
        device.shown(start)
        memory.exported[start] = file, nbytes
    _put(result, _HANDLE.pack(_MEMORY, os.getpid(), file, os.fstat(file).st_ino, nbytes))


def _put(result: int, handle: bytes) -> None:
    if not result:
        raise status.Refused(status.INVALID_VALUE, "a null pointer for a handle")
    ctypes.memmove(result, handle, len(handle))


def _read(address: int, kind: bytes, what: str) -> tuple[bytes, tuple[int, ...]]:
    """A handle, and its numbers, of which the first is the process. Raises Refused for what no process has exported."""
    handle = ctypes.string_at(address, _HANDLE.size)
    found, *numbers = _HANDLE.unpack(handle)
    if found != kind:
        raise status.Refused(status.INVALID_HANDLE, f"the handle is of no {what} that a process has exported")
    if numbers[0] == os.getpid():
        raise status.Refused(status.INVALID_CONTEXT, f"this process itself has exported the {what}")
    return handle, tuple(numbers)


@entry("emulator_ipc_open_memory", ADDRESS, ADDRESS, UINT)
def open_memory(result: int, handle_address: int, flags: int) -> None:
    device = devices.emulated("handles for other processes")
    handle, (process, number, inode, nbytes) = _read(handle_address, _MEMORY, "memory")
    known = next((address for address, (mapping, _) in _opened.items() if mapping.handle == handle), None)
    if known is None:
        try:
            file = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise status.Refused(status.INVALID_HANDLE, f"process {process} shares it no longer: {error}") from None
        try:
            if os.fstat(file).st_ino != inode:
                raise status.Refused(status.INVALID_HANDLE, f"process {process} has freed the memory")
            known = pages.show(file, nbytes)
        finally:
            os.close(file)
        device.place(known, nbytes, f"cudaIpcOpenMemHandle({nbytes} bytes of process {process})")
    times = _opened[known][1] if known in _opened else 0
    _opened[known] = _Opened(known, nbytes, handle), times + 1
    put(result, ctypes.c_size_t, known)


@entry("cudaIpcCloseMemHandle cuIpcCloseMemHandle", ADDRESS)
def close_memory(pointer: int) -> None:
    if pointer not in _opened:
        raise Fault(f"pointer {pointer:#x}: cudaIpcOpenMemHandle has not returned it, or it is closed")
    mapping, times = _opened.pop(pointer)
    if times > 1:
        _opened[pointer] = mapping, times - 1
        return
    devices.emulated("handles for other processes").remove(pointer)
    pages.give_back(pointer, mapping.nbytes)


@entry("cudaIpcGetEventHandle cuIpcGetEventHandle", ADDRESS, HANDLE)
def export_event(result: int, event: int) -> None:
    if not events.is_shared(event):
        raise status.Refused(status.INVALID_HANDLE, "the event has been created without cudaEventInterprocess")
    _put(result, _HANDLE.pack(_EVENT, os.getpid(), event, 0, 0))


@entry("emulator_ipc_open_event", ADDRESS, ADDRESS)
def open_event(result: int, handle_address: int) -> None:
    _, (process, *_) = _read(handle_address, _EVENT, "event")
    if not os.path.exists(f"/proc/{process}"):
        raise status.Refused(status.INVALID_HANDLE, f"process {process}, which has created the event, has ended")
    put(result, ctypes.c_size_t, events.create(events.NO_TIMES))
