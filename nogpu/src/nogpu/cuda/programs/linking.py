"""Entry points of the driver's linker (CUDA Driver API, cuLinkCreate): PTX is what comes out."""

from __future__ import annotations

import ctypes
from pathlib import Path

from nogpu.cuda.handles import Table
from nogpu.cuda.programs import fatbin, status
from nogpu.cuda.programs.driver import empty_logs
from nogpu.cuda.programs.entries import ADDRESS, HANDLE, INT, SIZE, UINT, entry, put, text
from nogpu.ptx.joining import joined

_PTX, _FAT_BINARY = 1, 2  # CUjitInputType
_inputs = Table[list[ctypes.Array]]("linker of cuLinkCreate")


def _add(handle: int, kind: int, image: bytes) -> None:
    if kind not in (_PTX, _FAT_BINARY):
        raise status.Refused(status.NOT_SUPPORTED, f"linking an input of type {kind} is not modelled: PTX is")
    _inputs[handle].append(ctypes.create_string_buffer(image))


def _text(image: bytes) -> str:
    if image.startswith(fatbin.BLOCK_MAGIC.to_bytes(4, "little")):
        return fatbin.choose(list(fatbin.images(image)))
    return image.partition(b"\0")[0].decode()


@entry("cuLinkCreate_v2", UINT, ADDRESS, ADDRESS, ADDRESS)
def create(count: int, options: int, values: int, result: int) -> None:
    empty_logs(count, options, values)
    put(result, ctypes.c_size_t, _inputs.add([]))


@entry("cuLinkAddData_v2", HANDLE, INT, ADDRESS, SIZE, ADDRESS, UINT, ADDRESS, ADDRESS)
def add_data(handle: int, kind: int, data: int, nbytes: int, *rest: int) -> None:
    _add(handle, kind, ctypes.string_at(data, nbytes))


@entry("cuLinkAddFile_v2", HANDLE, INT, ADDRESS, UINT, ADDRESS, ADDRESS)
def add_file(handle: int, kind: int, path: int, *rest: int) -> None:
    try:
        image = Path(text(path)).read_bytes()
    except OSError as error:
        raise status.Refused(status.FILE_NOT_FOUND, str(error)) from None
    _add(handle, kind, image)


@entry("cuLinkComplete", HANDLE, ADDRESS, ADDRESS)
def complete(handle: int, result: int, nbytes: int) -> None:
    inputs = _inputs[handle]
    if not inputs:
        raise status.Refused(status.INVALID_VALUE, "nothing has been added to the linker")
    if len(inputs) > 1:
        text = joined([_text(image.raw) for image in inputs])
        inputs[:] = [ctypes.create_string_buffer(text.encode())]
    image = inputs[0]
    put(result, ctypes.c_size_t, ctypes.addressof(image))
    if nbytes:
        put(nbytes, ctypes.c_size_t, len(image))


@entry("cuLinkDestroy", HANDLE)
def destroy(handle: int) -> None:
    _inputs.take(handle)
