"""Entry points of the driver: modules, libraries (of the runtime, too), tensor maps."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from nogpu.cuda.programs import modules, status
from nogpu.cuda.programs.entries import ADDRESS, HANDLE, INT, UINT, entry, put, text
from nogpu.errors import Fault
from nogpu.hardware.tma.encode import Im2colMap, TiledMap
from nogpu.hardware.tma.im2col import IM2COL_RULES, check_rank
from nogpu.hardware.tma.tensor_map import RULES, TENSOR_MAP_BYTES


@entry("cuModuleLoadData cuModuleLoadFatBinary", ADDRESS, ADDRESS)
@entry("cuLibraryLoadData cudaLibraryLoadData", *([ADDRESS] * 4), UINT, ADDRESS, ADDRESS, UINT)
def load_module(result: int, image: int, *options: int) -> None:
    put(result, ctypes.c_size_t, modules.load(image))


@entry("cuModuleLoadDataEx", ADDRESS, ADDRESS, UINT, ADDRESS, ADDRESS)
def load_with_options(result: int, image: int, count: int, options: int, values: int) -> None:
    put(result, ctypes.c_size_t, modules.load(image))
    empty_logs(count, options, values)


def empty_logs(count: int, options: int, values: int) -> None:
    """Make the compiler's logs, which the program asks for by CUjit_options, empty texts."""
    if not count:
        return
    numbers, given = (ctypes.c_int32 * count).from_address(options), (ctypes.c_size_t * count).from_address(values)
    for place, number in enumerate(numbers):
        if number in _LOGS and given[place]:
            put(given[place], ctypes.c_char, b"\0")
        elif number in _LOG_SIZES:
            given[place] = 0


_LOGS, _LOG_SIZES = (3, 5), (4, 6)  # CU_JIT_INFO_LOG_BUFFER, _ERROR_LOG_BUFFER, and their sizes in bytes


@entry("cuModuleLoad", ADDRESS, ADDRESS)
@entry(
    "cuLibraryLoadFromFile cudaLibraryLoadFromFile", ADDRESS, ADDRESS, ADDRESS, ADDRESS, UINT, ADDRESS, ADDRESS, UINT
)
def load_file(result: int, name: int, *options: int) -> None:
    try:
        image = ctypes.create_string_buffer(Path(text(name)).read_bytes())
    except OSError as error:
        raise status.Refused(status.FILE_NOT_FOUND, str(error)) from None
    put(result, ctypes.c_size_t, modules.load(ctypes.addressof(image)))


@entry("cuModuleUnload cuLibraryUnload cudaLibraryUnload", HANDLE)
def unload_module(module: int) -> None:
    modules.unload(module)


@entry("cuModuleGetFunction cuLibraryGetKernel cudaLibraryGetKernel", ADDRESS, HANDLE, ADDRESS)
def get_kernel(result: int, module: int, name: int) -> None:
    put(result, ctypes.c_size_t, modules.look_up(module, text(name)))


@entry("cuLibraryGetModule", ADDRESS, HANDLE)
def get_module(result: int, module: int) -> None:
    put(result, ctypes.c_size_t, module)


@entry("cuModuleGetGlobal_v2", ADDRESS, ADDRESS, HANDLE, ADDRESS)
@entry("cuLibraryGetGlobal cudaLibraryGetGlobal", ADDRESS, ADDRESS, HANDLE, ADDRESS)
def get_variable(address: int, nbytes: int, module: int, name: int) -> None:
    found = modules.Variable(modules.module(module), text(name)).place()
    for result, value in zip((address, nbytes), found):
        if result:
            put(result, ctypes.c_size_t, value)


def _array(address: int, count: int, kind: Any) -> list[int]:
    if count > 0 and not address:
        raise Fault("a null pointer for an array of the tensor map's dimensions")
    return list((kind * count).from_address(address)) if count > 0 else []


@entry(
    "cuTensorMapEncodeTiled",
    *(ADDRESS, INT, UINT, ADDRESS),
    *(ADDRESS, ADDRESS, ADDRESS, ADDRESS),
    *(INT, INT, INT, INT),
)
def encode(result: int, data_type: int, rank: int, address: int, *rest: int) -> None:
    dims, strides, box, element_strides, *kinds = rest
    # The driver's documentation asks for 64-byte alignment of the result. Driver 13.0 on an H200 writes the same bytes
    # to any address; what a kernel reads has to be aligned, and is checked there.
    if not result:
        raise Fault(f"a null pointer for the tensor map ({RULES})")
    if not 1 <= rank <= 5:
        raise Fault(f"tensor map rank {rank}; limit 1 to 5 ({RULES})")
    raw = TiledMap(
        data_type,
        address,
        _array(dims, rank, ctypes.c_uint64),
        _array(strides, rank - 1, ctypes.c_uint64),
        _array(box, rank, ctypes.c_uint32),
        _array(element_strides, rank, ctypes.c_uint32),
        *kinds,
    ).encode()
    ctypes.memmove(result, raw, TENSOR_MAP_BYTES)


@entry(
    "cuTensorMapEncodeIm2col",
    *(ADDRESS, INT, UINT, ADDRESS),
    *(ADDRESS, ADDRESS, ADDRESS, ADDRESS, UINT, UINT, ADDRESS),
    *(INT, INT, INT, INT),
)
def encode_pixels(result: int, data_type: int, rank: int, address: int, *rest: int) -> None:
    dims, strides, lower, upper, channels, pixels, element_strides, *kinds = rest
    if not result:
        raise Fault(f"a null pointer for the tensor map ({IM2COL_RULES})")
    check_rank(rank)
    raw = Im2colMap(
        data_type,
        address,
        _array(dims, rank, ctypes.c_uint64),
        _array(strides, rank - 1, ctypes.c_uint64),
        _array(lower, rank - 2, ctypes.c_int32),
        _array(upper, rank - 2, ctypes.c_int32),
        channels,
        pixels,
        _array(element_strides, rank, ctypes.c_uint32),
        *kinds,
    ).encode()
    ctypes.memmove(result, raw, TENSOR_MAP_BYTES)


@entry("cuTensorMapReplaceAddress", ADDRESS, ADDRESS)
def replace_address(tensor_map: int, address: int) -> None:
    put(tensor_map, ctypes.c_uint64, address)
