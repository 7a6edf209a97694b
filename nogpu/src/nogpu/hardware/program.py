"""Translated kernel: the code that warps run."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nogpu import headers
from nogpu.hardware.native import Calls, Move
from nogpu.hardware.register_file import RegisterFile
from nogpu.hardware.tensor.work import TensorPlans
from nogpu.ptx.ir import Entry

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup

(DONE,) = headers.constants("native/engine.h", "DONE")  # result of a turn in which the group has parted or ended
_READERS = ("tcgen05.mma", "tcgen05.cp.", "cp.async.bulk.", "cp.reduce.async.bulk.")


@dataclass(frozen=True)
class RegisterUses:
    """Registers of a program, for a sanitizer that follows uninitialised bits in them."""

    defines: list[tuple[str, ...]]
    """Registers that each instruction writes."""
    uses: list[tuple[str, ...]]
    """Registers that each instruction reads, the guard included."""
    unwritten: frozenset[str]
    """Registers that may be read before they are written."""
    places: dict[str, tuple[int, int, bool]]
    """Register -> (offset in the register file, bits, True if it has a value, or a predicate's bit, for each lane)."""

    @cached_property
    def mentions(self) -> dict[str, np.ndarray]:
        """Register -> int64[n]: the instructions that name it."""
        found: dict[str, list[int]] = {}
        for index, (defines, uses) in enumerate(zip(self.defines, self.uses, strict=True)):
            for name in {*defines, *uses}:
                found.setdefault(name, []).append(index)
        return {name: np.array(indices) for name, indices in found.items()}


@dataclass(frozen=True)
class Traits:
    """Features of a whole kernel that rules of order depend on."""

    tensor_fences: bool  # the kernel has a tcgen05.fence
    async_reads: bool  # the kernel has an instruction by which the async proxy reads shared memory

    @staticmethod
    def of(entry: Entry) -> Traits:
        """Features of an entry with its calls expanded."""
        opcodes = {instruction.opcode for instruction in entry.instructions}
        return Traits(
            any(opcode.startswith("tcgen05.fence") for opcode in opcodes),
            any(opcode.startswith(_READERS) and _reads_shared(opcode) for opcode in opcodes),
        )


def _reads_shared(opcode: str) -> bool:
    """True if a reader's source is shared memory. Copies name their destination's space before their source's."""
    sources = ".global.shared::cta", ".shared::cluster.shared::cta"
    return opcode.startswith("tcgen05.") or any(source in opcode for source in sources)


@dataclass
class Program:
    """Kernel as row code in segments: runs of instructions that an active group executes at a stretch."""

    entry: Entry  # kernel with its calls expanded
    # Runs a group from its next instruction, for a number of segments at most. Returns (segments run, index of the next
    # instruction), the index's complement if the group has to wait, or DONE.
    run: Callable[[ActiveGroup, int], tuple[int, int]]
    # Gives turns to warps that can run. Takes the address of their state, and a function that returns the group whose
    # turn it is. Returns the reason why it stops.
    run_turns: Callable[[int, Callable[[], ActiveGroup]], int]
    # Ends a part of a turn that compiled code has begun. Returns (segments left, index as `run`).
    conclude: Callable[[ActiveGroup], tuple[int, int]]
    starts: np.ndarray  # uint64: by instruction, the address of the operation with which a segment starts, else 0
    registers: RegisterFile
    calls: Calls
    live_words: Callable[[int], np.ndarray]  # index of an instruction -> 64-bit words of live registers
    static_shared: int  # bytes of .shared variables
    dynamic_shared_offset: int  # bytes, from the start of a CTA's shared memory
    local_bytes: int  # per thread
    inter_cta: bool  # what CTAs write to global memory may depend on others: atomics, and what `awaits` has
    awaits: bool  # a CTA may read what another one writes meanwhile, and so wait for it
    # Translates the kernel by lane (`compiler.flow`), with segments that start wherever the program's do. Returns the
    # program, and the moves of the registers to it; None for a program by lane.
    by_lane: Callable[[], tuple[Program, ctypes.Array[Move]]] | None = None
    register_uses: RegisterUses | None = None  # set for programs whose registers are followed
    printing_schedule: str | None = None  # only schedule whose printf output appears; None: all

    @cached_property
    def tensor_plans(self) -> TensorPlans:
        """Plans of its tensor core's work for compiled code."""
        return TensorPlans()

    @cached_property
    def traits(self) -> Traits:
        """Features that rules of order depend on."""
        return Traits.of(self.entry)

    @cached_property
    def requests(self) -> frozenset[int]:
        """Instructions by which clusters take over the work of others (PTX ISA, "clusterlaunchcontrol.try_cancel")."""
        opcodes = enumerate(instruction.opcode for instruction in self.entry.instructions)
        return frozenset(index for index, opcode in opcodes if opcode.startswith("clusterlaunchcontrol.try_cancel"))
