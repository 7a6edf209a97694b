"""Reads SASS, the machine code's text as nvdisasm lists it: instruction counts, and main loops of the warp roles."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

_LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);|^(\.L_\w+):", re.M)


@dataclass(frozen=True)
class Sass:
    """The instructions of a cubin in address order."""

    text: str
    opcodes: tuple[str, ...]  # opcodes with modifiers, such as "UTMALDG.2D"
    operands: tuple[str, ...]
    labels: dict[str, int]  # label -> index of the instruction behind it

    def counts(self, start: int = 0, end: int | None = None) -> Counter[str]:
        """The count of each opcode, without modifiers, in [start, end)."""
        return Counter(opcode.partition(".")[0] for opcode in self.opcodes[start:end])

    def main_loops(self, opcodes: tuple[str, ...]) -> list[Counter[str]]:
        """The counts of each innermost loop that contains one of the opcodes, in address order."""
        ends: dict[int, int] = {}  # start of a loop -> its last branch back
        for index, (opcode, operands) in enumerate(zip(self.opcodes, self.operands)):
            target = re.search(r"`\((\.L_\w+)\)", operands)
            if opcode.partition(".")[0] == "BRA" and target and self.labels[target[1]] < index:
                ends[self.labels[target[1]]] = index
        wanted = [i for i, opcode in enumerate(self.opcodes) if opcode.partition(".")[0] in opcodes]
        innermost = set()
        for index in wanted:
            around = [(end - start, start, end) for start, end in ends.items() if start <= index <= end]
            if around:
                innermost.add(min(around)[1:])
        return [self.counts(start, end + 1) for start, end in sorted(innermost)]


def read_sass(listing: str) -> Sass:
    """Parse nvdisasm's listing. Padding behind the last instruction is left out."""
    opcodes: list[str] = []
    operands: list[str] = []
    labels: dict[str, int] = {}
    for opcode, rest, label in _LINE.findall(listing):
        if label:
            labels[label] = len(opcodes)
        else:
            opcodes.append(opcode)
            operands.append(rest)
    while opcodes and opcodes[-1] == "NOP":  # NOPs between instructions stay: they take issue slots
        del opcodes[-1], operands[-1]
    return Sass(listing, tuple(opcodes), tuple(operands), labels)
