"""The register file of a program: a slot for every register, and for the special registers that it reads.

| kind of register (`compiler.flow`) | slot |
|---|---|
| uniform | 8 bytes, the unsigned value; a predicate is 0 or 1 |
| a row of predicates | 8 bytes, the mask in the lower four |
| any other row | 32 words of the register's width, lane 0 first, aligned to 64 bytes |
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from nogpu.compiler.flow import Flow
from nogpu.compiler.operands import CLOCKS, LANE_SPECIALS, PARAMETERS, SHARED_BASE, VALUES
from nogpu.hardware.native import ALIGNMENT, LANES
from nogpu.ptx.ir import Entry, Special

WORD = 8  # bytes of a slot that holds no row
POISON = 0xFFFFFFFFFFFFFFFF  # value of a register before it is written


@dataclass(frozen=True)
class Slot:
    """The place of a register in the register file."""

    offset: int  # bytes
    width: int  # bits of the register
    row: bool  # true for 32 words, false for one
    predicate: bool

    @property
    def words(self) -> range:
        """Indices of the 64-bit words of the register file that the slot occupies."""
        return range(self.offset // WORD, (self.offset + self._nbytes + WORD - 1) // WORD)

    @property
    def _nbytes(self) -> int:
        return LANES * self.width // 8 if self.row else WORD


@dataclass
class Slots:
    """The slots of a program."""

    by_name: dict[str, Slot] = field(default_factory=dict)
    specials: list[str] = field(default_factory=list)
    """Names of the values that are read, as `operands.VALUES` has them."""
    constants: dict[int, int] = field(default_factory=dict)
    """Offset of a slot -> the constant that it holds."""
    size: int = 0
    """Bytes of all slots."""

    def add(self, name: str, width: int, row: bool) -> Slot:
        """Adds a slot. width: bits. A row of predicates is a mask."""
        row = row and width > 1
        nbytes, alignment = (LANES * width // 8, ALIGNMENT) if row else (WORD, WORD)
        offset = -(-self.size // alignment) * alignment
        self.size = offset + nbytes
        slot = self.by_name[name] = Slot(offset, width, row, width == 1)
        return slot

    def __getitem__(self, name: str) -> Slot:
        return self.by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    def initial(self) -> bytes:
        """The register file as every warp starts with it."""
        initial = np.full(-(-self.size // WORD) * WORD, POISON & 0xFF, np.uint8)
        words = initial.view(np.uint64)
        for slot in self.by_name.values():
            if not slot.row:
                words[slot.offset // WORD] = 0 if slot.predicate else POISON & (1 << slot.width) - 1
        for offset, value in self.constants.items():
            words[offset // WORD] = value
        return initial.tobytes()

    def add_special(self, name: str, width: int) -> None:
        """Adds a slot for one of `operands.VALUES`."""
        self.add(name, width, row=name in LANE_SPECIALS)
        self.specials.append(name)

    def special_places(self) -> list[tuple[int, int, bool, str]]:
        """(offset, bits, whether it is a row, name) of each special register or base that the program reads."""
        found = [(self.by_name[name], name) for name in self.specials]
        return [(slot.offset, slot.width, slot.row, name) for slot, name in found]

    def words_of(self, registers: Iterable[str]) -> bytes:
        """Indices, as int32s, of the words of these registers' slots, sorted by name."""
        return array("i", [word for name in sorted(registers) for word in self.by_name[name].words]).tobytes()


def slots_of(entry: Entry, flow: Flow) -> Slots:
    """The slots of an entry's registers, of the special registers that do not change, and of symbols' bases."""
    slots = Slots()
    for name in (SHARED_BASE, PARAMETERS):
        slots.add_special(name, 64)
    for name, register in entry.registers.items():
        slots.add(name, register.width, flow.kinds[name] != "uniform")
    for instruction in entry.instructions:
        for operand in instruction.operands:
            if isinstance(operand, Special) and operand.name not in slots:
                if operand.name in VALUES and operand.name not in CLOCKS:
                    slots.add_special(operand.name, 32)
    return slots
