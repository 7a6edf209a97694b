"""Row code as plain data, to which a process adds addresses."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import numpy as np

from nogpu import headers
from nogpu.compiler.operands import BY_CTA, VALUES
from nogpu.hardware.native import library
from nogpu.hardware.register_file import RegisterFile

OP = np.dtype(headers.structure("native/engine.h", "Op"))


@cache
def address_of(kernel: str) -> int:
    """The address of a kernel by its name. Raises AttributeError if there is none."""
    return ctypes.cast(getattr(library(), f"k_{kernel}"), ctypes.c_void_p).value or 0


@dataclass(frozen=True)
class Image:
    """A program's row code. Nothing in it depends on the CPU, only addresses of global variables on the process."""

    name: str
    """Name of the PTX kernel."""
    kernels: list[str]
    """The C kernels that it uses (native/*.c)."""
    ops: bytes
    """Items of type OP. `run` is an index of `kernels`; `x` of those in `described` is an offset in `descriptions`."""
    described: list[int]
    descriptions: bytes
    starts: dict[int, int]
    """First instruction of a segment -> index of its first operation."""
    registers: bytes
    """The register file as every warp starts with it."""
    specials: list[tuple[int, int, bool, str]]
    """Result of `Slots.special_places`."""
    texts: dict[int, str]
    """Instruction -> its Python row."""
    without_kernel: list[int]
    """Instructions that only their Python rows execute."""
    destinations: dict[int, list[int]]
    """Result of `PythonTexts.destinations`."""
    first_uses: dict[int, list[int]]
    """`Plan.first_uses`, with sorted lists."""
    live_words: dict[int, bytes]
    """Place where a group can stand -> int32s: indices of 64-bit words of the register file that it may read."""
    static_shared: int
    dynamic_shared_offset: int
    local_bytes: int

    def assembled(self) -> tuple[np.ndarray, np.ndarray]:
        """(operations, as OP; their descriptions, uint8, which must live as long)."""
        addresses = np.array([address_of(kernel) for kernel in self.kernels], np.uint64)
        ops = np.frombuffer(self.ops, OP).copy()
        descriptions = np.frombuffer(self.descriptions or bytes(8), np.uint8)
        ops["run"] = addresses[ops["run"].astype(np.int64)]
        ops["x"][self.described] += descriptions.ctypes.data
        return ops, descriptions

    def register_file(self) -> RegisterFile:
        specials = [(offset, bits, is_row, VALUES[name]) for offset, bits, is_row, name in self.specials]
        by_cta = [(offset, VALUES[name]) for offset, _, _, name in self.specials if name in BY_CTA]
        return RegisterFile(np.frombuffer(self.registers, np.uint8), specials, by_cta)
