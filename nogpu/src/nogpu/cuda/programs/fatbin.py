"""PTX from the fat binaries that nvcc embeds in host code.

The format is not documented. `fatbinary` of CUDA 12 and 13 writes, little endian: a wrapper (u32 magic, u32 version,
u64 address of the data, u64), whose data is a sequence of blocks (u32 magic, u16 version, u16 header bytes, u64 bytes
behind the header), each with images: u16 kind, u16 version, u32 header bytes, u64 bytes behind the header, u32
bytes of compressed data, 8 bytes that do not matter here, u32 architecture, 8 bytes, u64 flags, 8 bytes, u64 bytes
when decompressed. A wrapper of version 2 stands for objects that the device linker has put together: its last word is
the address of the addresses of their blocks, up to a null pointer (crt/link.stub).
"""

from __future__ import annotations

import ctypes
import importlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from nogpu.errors import EmulatorError
from nogpu.hardware.properties import of_process
from nogpu.ptx.joining import joined

WRAPPER_MAGIC, BLOCK_MAGIC = 0x466243B1, 0xBA55ED50
_LINKED = 2  # version of a wrapper that the device linker makes
_WRAPPER = struct.Struct("<IIQ")
_BLOCK = struct.Struct("<IHHQ")
_IMAGE = struct.Struct("<HHIQI8xI8xQ8xQ")
PTX, MACHINE_CODE = 1, 2
_LZ4, _ZSTD = 0x2000, 0x8000  # flags
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_TARGET = re.compile(rb"^\.target\s+sm_\d+([af]?)", re.MULTILINE)


@dataclass(frozen=True)
class Image:
    """One image of a fat binary."""

    kind: int
    architecture: int  # 100 for sm_100, sm_100a and sm_100f
    data: bytes  # decompressed

    @property
    def suffix(self) -> str:
        """ "a" or "f" of PTX for sm_100a or sm_100f, which the number leaves out; else ""."""
        target = _TARGET.search(self.data[:4096]) if self.kind == PTX else None
        return target[1].decode() if target else ""


def ptx(wrapper: int) -> str:
    """The PTX of the fat binary with a wrapper at this address, for the newest architecture that the device runs.

    Raises EmulatorError where there is none.
    """
    magic, version, address = _WRAPPER.unpack(ctypes.string_at(wrapper, _WRAPPER.size))
    if magic != WRAPPER_MAGIC:
        raise EmulatorError(f"the fat binary's magic number is {magic:#x}, {WRAPPER_MAGIC:#x} expected")
    if version == _LINKED:
        objects = [list(images(read(each))) for each in _pointers(wrapper + _WRAPPER.size)]
        # Functions of a library in machine code alone, as NVIDIA's libcudadevrt, are missing where they are called.
        return joined([choose(found) for found in objects if _runnable(found) or not _machine_code(found)])
    return choose(list(images(read(address))))


def _pointers(place: int) -> Iterator[int]:
    """The pointers at the address that a place holds, up to a null pointer."""
    address = ctypes.c_uint64.from_address(place).value
    while pointer := ctypes.c_uint64.from_address(address).value:
        yield pointer
        address += ctypes.sizeof(ctypes.c_uint64)


def read(address: int) -> bytes:
    """The block at an address. Raises EmulatorError where there is none."""
    magic, _, header, size = _BLOCK.unpack(ctypes.string_at(address, _BLOCK.size))
    if magic != BLOCK_MAGIC:
        raise EmulatorError(f"the fat binary's block has magic number {magic:#x}, {BLOCK_MAGIC:#x} expected")
    found = ctypes.string_at(address, header + size)
    # An empty block comes first where the linker has put several together.
    return found if size else read(address + header)


def images(block: bytes) -> Iterator[Image]:
    """The images of a block."""
    _, _, place, size = _BLOCK.unpack_from(block)
    end = place + size
    while place + _IMAGE.size <= end:
        kind, _, header, padded, compressed, architecture, flags, full = _IMAGE.unpack_from(block, place)
        data = block[place + header : place + header + padded]
        if compressed:
            data = _decompressed(data[:compressed], flags, full)
        yield Image(kind, architecture, data)
        place += header + padded


def choose(found: list[Image]) -> str:
    """The PTX for the newest architecture that the device runs. Raises EmulatorError where there is none."""
    properties = of_process()
    texts = _runnable(found)
    if not texts:
        kinds = {PTX: "PTX"}
        held = sorted({f"{kinds.get(i.kind, 'machine code')} for sm_{i.architecture}{i.suffix}" for i in found})
        own, device = f"{properties.architecture}a", " --device rubin" if properties.is_rubin else ""
        raise EmulatorError(
            f"the program holds {', '.join(held) or 'nothing'}, and the device runs PTX up to sm_{own}: compile it "
            f"with -gencode arch=compute_{own},code=compute_{own}, or by `nogpu run{device} nvcc`"
        )
    best = max(texts, key=lambda image: image.architecture)
    return best.data.partition(b"\0")[0].decode()


def _runnable(found: list[Image]) -> list[Image]:
    """The images with PTX that the device runs."""
    runs = of_process().runs
    return [image for image in found if image.kind == PTX and runs(image.architecture, image.suffix)]


def _machine_code(found: list[Image]) -> bool:
    """True if one of the images is machine code for the device."""
    return any(image.kind == MACHINE_CODE and image.architecture == of_process().architecture for image in found)


def _decompressed(data: bytes, flags: int, size: int) -> bytes:
    if data.startswith(_ZSTD_MAGIC):
        return zstd(data, size)
    if flags & _LZ4:
        return lz4(data, size)
    raise EmulatorError(f"the fat binary's compression is unknown (flags {flags:#x}): compile it with --no-compress")


def lz4(data: bytes, size: int) -> bytes:
    """The `size` bytes of a compressed block (github.com/lz4/lz4, doc/lz4_Block_format.md)."""
    out, place = bytearray(), 0

    def length(first: int) -> int:
        nonlocal place
        if first < 15:
            return first
        while True:
            first, place = first + data[place], place + 1
            if data[place - 1] != 255:
                return first

    while place < len(data) and len(out) < size:
        token, place = data[place], place + 1
        literals = length(token >> 4)
        out += data[place : place + literals]
        place += literals
        if len(out) >= size:
            break
        distance, place = int.from_bytes(data[place : place + 2], "little"), place + 2
        matched = 4 + length(token & 15)
        start = len(out) - distance
        while matched:  # a match may run into what it writes
            piece = out[start : start + matched]
            out += piece
            start, matched = start + len(piece), matched - len(piece)
    return bytes(out[:size])


def zstd(data: bytes, size: int) -> bytes:
    """The data decompressed, by the system's libzstd, Python 3.14 or the package zstandard, whichever there is."""
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError:
        pass
    else:
        out = ctypes.create_string_buffer(size)
        decompress = library.ZSTD_decompress
        decompress.restype = ctypes.c_size_t
        decompress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
        if decompress(out, size, data, len(data)) != size:
            raise EmulatorError("the fat binary's compressed PTX is broken")
        return out.raw
    for name in ("compression.zstd", "zstandard"):
        try:
            return importlib.import_module(name).decompress(data)
        except ImportError:
            pass
    raise EmulatorError(
        "the program's PTX is compressed with zstd, and there is nothing to decompress it: install libzstd or the "
        "package zstandard, or compile it with nvcc's --no-compress"
    )
