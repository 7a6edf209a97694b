"""The shared memory descriptor of a tcgen05 operation: the place and layout of an operand in shared memory.

The descriptor is decoded completely. Reserved bits, modes of other architectures, missing strides, and rows that cross
the end of the swizzle's span raise Fault by name. PTX ISA, tcgen05: "Shared Memory Descriptor", "Major-ness supported
by Strides", "Shared Memory Layout and Swizzling"; the strides between 16-byte chunks are those of CUTLASS's canonical
layouts (cute/arch/mma_sm100_desc.hpp).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from nogpu.errors import Fault
from nogpu.hardware.tma.swizzle import CHUNK, swizzle

SMEM_DESCRIPTOR = "PTX ISA, tcgen05: Shared Memory Descriptor"
STRIDES = "PTX ISA, tcgen05: Major-ness supported by Strides"
SWIZZLING = "PTX ISA, tcgen05: Shared Memory Layout and Swizzling"

_MODES = {0: (0, CHUNK), 1: (128, 2 * CHUNK), 2: (128, CHUNK), 4: (64, CHUNK), 6: (32, CHUNK)}
"""Swizzling mode (bits 61-63) -> (span, atom) in bytes: atoms trade places within a span."""

_CORE_ROWS = 8
MIDDLE_ROW_BYTES = 48
"""Bytes of a row of mxf4nvf4's K of 96, and of 64 elements of 6 bits."""


@dataclass(frozen=True)
class SmemDescriptor:
    """A matrix in shared memory, made of 16-byte chunks."""

    value: int  # the 64-bit descriptor
    start: int  # byte offset in the CTA's window
    leading: int  # leading dimension byte offset (see `k_major`, `mn_major`)
    stride: int  # stride dimension byte offset
    swizzle: int  # span in bytes, 0: none
    atom: int  # bytes that the swizzle keeps together, 16 or 32
    base: int  # 128-byte units by which the swizzle's pattern starts after its natural boundary
    absolute: bool = False  # `leading` is the offset in the CTA's window at which rows go on that cross a span

    @staticmethod
    @lru_cache(maxsize=4096)
    def decode(value: int, rubin: bool = False) -> SmemDescriptor:
        """The descriptor in a 64-bit register. Raises Fault for reserved bits, a wrong version, an invalid mode.

        rubin: True if the start address has a bit more, for 327 KiB of shared memory (nvidia-cutlass-dsl 4.8.1 masks
        addresses by 0x7FFF when it compiles for sm_107a, by 0x3FFF for sm_100a).
        """
        version, mode = value >> 46 & 7, value >> 61

        def refuse(what: str) -> Fault:
            return Fault(f"shared memory descriptor {value:#018x}: {what} ({SMEM_DESCRIPTOR})")

        if version != 1:
            raise refuse(f"bits 46-48 are {version}, must be 1")
        start_bits = 15 if rubin else 14
        reserved = (value & 0xFFFF) >> start_bits
        if reserved:
            raise refuse(
                f"reserved bits {start_bits}-15 are {reserved}, must be 0: the start address has {start_bits + 4} "
                f"bits, of which bits 0-{start_bits - 1} hold the upper {start_bits}"
            )
        absolute = bool(value >> 52 & 1)
        if absolute and not rubin:
            raise refuse("an absolute leading address (bit 52) needs sm_103a or sm_107a")
        if value & (0xFF << 53 | 3 << 30) & ~(absolute << 30):
            raise refuse("reserved bits (30, 31 or 53-60) are set, must be 0")
        if mode not in _MODES:
            raise refuse(f"swizzling mode {mode} is invalid, must be one of {', '.join(map(str, _MODES))}")
        span, atom = _MODES[mode]
        # The base offset says where a swizzling mode's repeating pattern starts (PTX ISA, "Shared Memory Descriptor",
        # table of starting addresses). Without swizzling there is none; Triton sets it by the address in all modes.
        base = value >> 49 & 7 if span else 0
        if absolute and (mode != 2 or base):
            raise refuse("an absolute leading address (bit 52) needs 128-byte swizzling (mode 2) and base offset 0")
        leading, stride = (value >> 16 & (0x7FFF if absolute else 0x3FFF)) << 4, (value >> 32 & 0x3FFF) << 4
        return SmemDescriptor(value, (value & 0xFFFF) << 4, leading, stride, span, atom, base, absolute)

    def refuse(self, what: str, section: str) -> Fault:
        """Fault that names this descriptor, the reason and a section of the PTX ISA."""
        return Fault(f"shared memory descriptor {self.value:#018x}: {what} ({section})")

    def require_stride(self, name: str, stride: int) -> None:
        """Raises Fault if a stride that the operand needs is 0."""
        if not stride:
            raise self.refuse(f"{name} is 0, but the operand has more than one group along it", STRIDES)

    def require_span(self, starts: np.ndarray, nbytes: int) -> None:
        """Raises Fault if `nbytes` adjacent bytes from one of the starts cross the end of the swizzle's span."""
        inside = int((starts % self.swizzle).max())
        if inside + nbytes > self.swizzle:
            raise self.refuse(
                f"{nbytes} adjacent bytes start {inside} bytes into the swizzle's span of {self.swizzle} and cross its "
                f"end; the matrix starts at {self.start:#x}",
                SWIZZLING,
            )

    def swizzled(self, linear: np.ndarray) -> np.ndarray:
        """Chunk numbers of unswizzled byte offsets (int64, any shape).

        The pattern depends on absolute addresses; the base offset moves its start (PTX ISA: (pattern start >> 7) & 7).
        """
        shift = 8 * self.base
        return swizzle(linear // CHUNK - shift, self.swizzle, self.atom) + shift


@dataclass(frozen=True, eq=False)
class Chunks:
    """The 16-byte items of a CTA's window that an operand consists of."""

    places: np.ndarray  # int64, numbers of the items
    lowest: int
    highest: int

    def part(self, number: int, parts: int, transposed: bool) -> Chunks:
        """Chunks of part `number` of K, divided into `parts`. transposed: True if rows are along M or N. Else a row has
        two chunks, from the one on in which the part begins; it may end in the first.
        """
        if parts == 1:
            return self
        if transposed:
            places = np.ascontiguousarray(np.split(self.places, parts, axis=0)[number])
        else:
            count = self.places.shape[1]
            first = number * count // parts
            places = np.ascontiguousarray(self.places[:, [first, min(first + 1, count - 1)]])
        return Chunks(places, int(places.min()), int(places.max()))

    def beyond(self, first: int, axis: int) -> Chunks:
        """Chunks from number `first` along an axis of `places` on."""
        if not first:
            return self
        places = np.ascontiguousarray(np.split(self.places, [first], axis)[1])
        return Chunks(places, int(places.min()), int(places.max()))

    @cached_property
    def offsets(self) -> np.ndarray:
        """int64[n]: offsets of the chunks in bytes."""
        return self.places.ravel() * CHUNK


def _chunks(matrix: SmemDescriptor, linear: np.ndarray) -> Chunks:
    places = matrix.swizzled(linear)
    places.flags.writeable = False
    return Chunks(places, int(places.min()), int(places.max()))


@lru_cache(maxsize=4096)
def k_major(descriptor: int, rows: int, row_chunks: int, rubin: bool = False) -> Chunks:
    """The chunks of a K-major operand, int64[rows, row_chunks].

    Groups of eight rows are `stride` apart. With swizzling a group's rows are a span apart and a row's chunks adjacent;
    `leading` is not used. Without swizzling a group's rows are 16 bytes apart and a row's chunks `leading`.

    Rows of 48 bytes may go on in another span, where the first row does at the absolute leading address.
    """
    matrix = SmemDescriptor.decode(descriptor, rubin)
    span = matrix.swizzle
    if rows > _CORE_ROWS:
        matrix.require_stride("stride dimension byte offset", matrix.stride)
    row, chunk = np.arange(rows)[:, None], np.arange(row_chunks)
    starts = matrix.start + row // _CORE_ROWS * matrix.stride + row % _CORE_ROWS * (span or CHUNK)
    if matrix.absolute:
        return _chunks(matrix, _crossing(matrix, starts, chunk))
    if span:
        matrix.require_span(starts, row_chunks * CHUNK)
    elif row_chunks > 1:
        matrix.require_stride("leading dimension byte offset", matrix.leading)
    return _chunks(matrix, starts + chunk * (CHUNK if span else matrix.leading))


def _crossing(matrix: SmemDescriptor, starts: np.ndarray, chunk: np.ndarray) -> np.ndarray:
    """Byte offsets of the chunks of rows of 48 bytes that may cross their span (PTX ISA, tcgen05: "Leading dimension
    absolute address").
    """
    if len(chunk) * CHUNK != MIDDLE_ROW_BYTES:
        raise matrix.refuse(f"an absolute leading address (bit 52) with rows of {len(chunk) * CHUNK} bytes", STRIDES)
    before = (matrix.swizzle - matrix.start % matrix.swizzle) // CHUNK  # chunks in front of the span's end
    if before < len(chunk) and matrix.leading % matrix.swizzle:
        raise matrix.refuse(f"the absolute leading address {matrix.leading:#x} is not the start of a span", STRIDES)
    beyond = starts - matrix.start + matrix.leading + (chunk - before) * CHUNK
    return np.where(chunk < before, starts + chunk * CHUNK, beyond)


@lru_cache(maxsize=4096)
def mn_major(descriptor: int, k: int, row_chunks: int, rubin: bool = False) -> Chunks:
    """The chunks of an M- or N-major operand, int64[k, row_chunks]: one row per element of K, chunks along M or N.

    With swizzling an atom is a span of M or N by eight elements of K (four with 32-byte atoms), which are a span apart;
    atoms are `leading` apart along M or N and `stride` along K. Without swizzling an atom is a chunk of M or N by eight
    elements of K, which are 16 bytes apart; atoms are `stride` apart along M or N and `leading` along K.
    """
    matrix = SmemDescriptor.decode(descriptor, rubin)
    if matrix.absolute:
        raise matrix.refuse("an absolute leading address (bit 52) of an M- or N-major matrix", STRIDES)
    row, chunk = np.arange(k)[:, None], np.arange(row_chunks)
    span = matrix.swizzle
    leading, stride = ("leading dimension byte offset", matrix.leading), ("stride dimension byte offset", matrix.stride)
    if span:
        group, depth, pitch = span // CHUNK, _CORE_ROWS * CHUNK // matrix.atom, span
        along_mn, along_k = leading, stride
    else:
        group, depth, pitch = 1, _CORE_ROWS, CHUNK
        along_mn, along_k = stride, leading
    if row_chunks > group:
        matrix.require_stride(*along_mn)
    if k > depth:
        matrix.require_stride(*along_k)
    starts = matrix.start + chunk // group * along_mn[1] + row % depth * pitch + row // depth * along_k[1]
    if span:
        matrix.require_span(starts, min(row_chunks * CHUNK, span))
    return _chunks(matrix, starts + chunk % group * CHUNK)
