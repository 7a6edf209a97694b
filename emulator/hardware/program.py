"""A translated kernel, as warps run it."""

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

DONE = -(1 << 30)  # a segment's result where its group has parted or ended


@dataclass
class Program:
    """segments: by the index of their first instruction. inter_cta: CTAs may communicate through global memory.

    entry: with its calls expanded. static_shared, local_bytes: bytes per CTA and per thread that its variables take.
    printing_schedule: the schedule under which it prints; None: under each.
    """

    entry: Entry
    segments: list[Callable[[ActiveGroup], int] | None]
    registers: list
    static_shared: int
    dynamic_shared_offset: int
    local_bytes: int
    inter_cta: bool
    filename: str
    source: str
    line_map: list[int]
    printing_schedule: str | None = None

    @cached_property
    def traits(self) -> Traits:
        return Traits.of(self.entry)

    def instruction_at(self, traceback: types.TracebackType | None) -> int | None:
        """The index of the instruction that a traceback of generated code passes through."""
        found = None
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self.filename:
                found = self.line_map[traceback.tb_lineno - 1]
            traceback = traceback.tb_next
        return found
