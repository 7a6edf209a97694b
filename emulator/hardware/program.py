"""A translated kernel: the code that warps run."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from emulator.hardware.traits import Traits
from emulator.ptx.ir import Entry

if TYPE_CHECKING:
    from emulator.hardware.warp import ActiveGroup

DONE = -(1 << 30)  # a segment's result when its group has parted or ended


@dataclass
class Program:
    """A kernel as Python code in segments: runs of instructions that an active group executes at a stretch."""

    entry: Entry  # with its calls expanded
    # By the index of the first instruction. A segment returns the index of the next one, its complement if the group
    # has to wait, or DONE.
    segments: list[Callable[[ActiveGroup], int] | None]
    registers: list  # initial values, by number
    static_shared: int  # bytes of .shared variables
    dynamic_shared_offset: int  # bytes, from the start of a CTA's shared memory
    local_bytes: int  # per thread
    inter_cta: bool  # CTAs may communicate through global memory
    filename: str  # of the generated code, in tracebacks
    source: str  # the generated code
    line_map: list[int]  # line of the generated code - 1 -> index of the instruction
    printing_schedule: str | None = None  # the only schedule whose printf output appears; None: all

    @cached_property
    def traits(self) -> Traits:
        """The features that rules of order depend on."""
        return Traits.of(self.entry)

    def instruction_at(self, traceback: types.TracebackType | None) -> int | None:
        """Index of the instruction whose generated code a traceback passes through last; None if there is none."""
        found = None
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self.filename:
                found = self.line_map[traceback.tb_lineno - 1]
            traceback = traceback.tb_next
        return found
