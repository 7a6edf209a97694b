"""Instructions of the opcode table for tests: every spelling of a row's opcodes, and operands that it takes.

Registers are named by their bits and number: `%v32_1` differs from lane to lane, `%u32_1` is the same in all of them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from re import _constants, _parser
from types import SimpleNamespace

import numpy as np

from nogpu.compiler.carry import FLAG
from nogpu.compiler.opcodes import addresses, carry, comparisons, conversions, floats, integers
from nogpu.compiler.opcodes.rows import Row
from nogpu.compiler.operands import PARAMETERS, SHARED_BASE
from nogpu.compiler.rowcode.assembler import Assembler
from nogpu.compiler.rowcode.registers import Slots
from nogpu.errors import EmulatorError
from nogpu.ptx.ir import Immediate, Instruction, Pair, Register, Vector

MODULES = (integers, carry, comparisons, floats, addresses)
ARITHMETIC = {module.__name__.rpartition(".")[2]: [row for row in module.ROWS if row.writes] for module in MODULES}
ARITHMETIC |= {"conversions": conversions.PLAIN, "packed": conversions.PACKED}
"""Family of rows of the table -> its arithmetic rows."""
WIDTHS = (1, 8, 16, 32, 64)
LITERALS = {"5": Immediate(5), "-3": Immediate(-3), "0f3FC00000": Immediate(0x3FC00000, 32)}
POOL = 28  # registers of each width and kind
_REPEATS = 2  # most repeats of a part that may be repeated without limit


def spellings(pattern: str) -> list[str]:
    """The texts that a pattern of the table matches."""
    return list(dict.fromkeys(_sequence(_parser.parse(pattern))))


def _sequence(items: object) -> list[str]:
    texts = [""]
    for item in items:
        texts = [start + end for start in texts for end in _item(*item)]
    return texts


def _item(kind: object, value: object) -> list[str]:
    if kind is _constants.LITERAL:
        return [chr(value)]
    if kind is _constants.SUBPATTERN:
        return _sequence(value[-1])
    if kind is _constants.BRANCH:
        return [text for branch in value[1] for text in _sequence(branch)]
    if kind is _constants.IN:
        return [text for item in value for text in _item(*item)]
    if kind is _constants.MAX_REPEAT:
        low, high, inner = value
        once = _sequence(inner)
        high = _REPEATS if high is _constants.MAXREPEAT else high
        return ["".join(texts) for n in range(low, high + 1) for texts in itertools.product(once, repeat=n)]
    raise NotImplementedError(f"{kind} in a pattern of the opcode table")


def sampled(texts: list[str], count: int, rng: np.random.Generator) -> list[str]:
    """At most about `count` of the texts, but at least one with each part of an opcode."""
    if len(texts) <= count:
        return texts
    chosen, seen = [], set()
    for text in rng.permutation(texts).tolist():
        parts = set(text.split("."))
        if len(chosen) < count or parts - seen:
            chosen.append(text)
            seen |= parts
    return chosen


def register(kind: str, width: int, number: int) -> Register:
    """A register. kind: "v" (different in each lane) or "u" (uniform)."""
    return Register(f"%{kind}{width}_{number}", width)


class _Kinds(SimpleNamespace):
    def kind_of(self, operand: object) -> str:
        if isinstance(operand, Vector):
            return max(map(self.kind_of, operand.items), key=("uniform", "bits", "lanes").index)
        if not isinstance(operand, Register):
            return "uniform"
        return self.kinds[operand.name]


def _kinds() -> _Kinds:
    kinds = {
        f"%{kind}{width}_{i}": "uniform" if kind == "u" else "lanes"
        for kind in "uvd"
        for width in WIDTHS
        for i in range(POOL)
    }
    return _Kinds(kinds=kinds | {FLAG.name: "lanes"}, merged=set())


def _slots() -> Slots:
    slots = Slots()
    for name in (SHARED_BASE, PARAMETERS, FLAG.name):
        slots.add(name, 1 if name == FLAG.name else 64, row=name == FLAG.name)
    for kind, width, number in itertools.product("uvd", WIDTHS, range(POOL)):
        slots.add(register(kind, width, number).name, width, row=kind != "u")
    return slots


FLOW, SLOTS = _kinds(), _slots()


def is_legal(row: Row, match: re.Match[str], operands: tuple) -> bool:
    """True if a row takes these operands."""
    instruction = Instruction(match.string, operands, None, 0, "")
    code = Assembler(FLOW, {}, SLOTS)
    code.kind = "lanes"
    if row.refusal(instruction, match) is not None:
        return False
    try:
        row.kernels(code, explicit(row, instruction), match)
    except (EmulatorError, AttributeError, ValueError, TypeError, KeyError):
        return False
    return True


def explicit(row: Row, instruction: Instruction) -> Instruction:
    """The instruction with the carry flag among its operands, if it uses that."""
    destination, *sources = instruction.operands
    destination = Pair(destination, FLAG) if "out" in row.carry else destination
    sources += [FLAG] if "in" in row.carry else []
    return Instruction(instruction.opcode, (destination, *sources), None, 0, "")


def forms(row: Row, match: re.Match[str], limit: int = 4) -> list[tuple]:
    """Operands that a row takes, of different widths and numbers, with registers wherever they are legal."""
    found = []
    for operands in _candidates(row, match):
        if is_legal(row, match, operands):
            found.append(operands)
            if len(found) == limit:
                break
    return found


def _candidates(row: Row, match: re.Match[str]) -> Iterator[tuple]:
    if match.string.startswith("mov.") and match.string != "mov.pred":
        yield from _moves()
        return
    words = row.takes.format(**match.groupdict(default="")).split() if row.takes else []
    if row.takes and "." not in words:
        yield from _of_words(words)
        return
    counts = sorted(row.operands or {len(words)} if words else row.operands or range(2, 5))
    for count in counts:
        same = [(width,) * count for width in WIDTHS]
        for widths in itertools.chain(same, itertools.product(WIDTHS[1:], repeat=count)):
            yield tuple(register("d" if i == 0 else "v", width, i) for i, width in enumerate(widths))


def _of_words(words: list[str]) -> Iterator[tuple]:
    needed = sum(not word.endswith("?") for word in words)
    for count in range(len(words), needed - 1, -1):
        options = [list(_of_word(word.removesuffix("?"), i)) for i, word in enumerate(words[:count])]
        yield from itertools.product(*options)


def _of_word(word: str, i: int) -> Iterator[object]:
    kind = "d" if i == 0 else "v"
    if word == "#":
        yield Immediate(0xCA)
    elif word == "p":
        yield register(kind, 1, i)
    elif word == "p|p":
        yield Pair(register("d", 1, 0), register("d", 1, 1))
        yield register("d", 1, 0)
    elif word == "b32|p":
        yield Pair(register("d", 32, 0), register("d", 1, 0))
    else:
        yield from (register(kind, width, i) for width in WIDTHS[1:])


def _moves() -> Iterator[tuple]:
    for width in WIDTHS[1:]:
        yield register("d", width, 0), register("v", width, 1)
    for width, count in itertools.product(WIDTHS[1:], (2, 4)):
        if width // count >= 8:
            yield Vector(tuple(register("d", width // count, i) for i in range(count))), register("v", width, 1)
            yield register("d", width, 0), Vector(tuple(register("v", width // count, i) for i in range(count)))
