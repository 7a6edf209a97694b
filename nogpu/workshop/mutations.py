"""Excerpts of PTX modules, and their mutations: of characters, tokens, lines and instructions."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nogpu.ptx.ir import Module, Place
from nogpu.ptx.module import parse
from nogpu.ptx.syntax import split

WINDOW = (4, 40)  # instructions of an excerpt's body, least and most
MORE = 0.4  # chance of one more mutation
_TOKEN = re.compile(r"\.?[A-Za-z_$%][\w$%]*|0[xXfFdD][0-9a-fA-F]+|\d+(?:\.\d+)?|::|\S")
_NUMBER = re.compile(r"(?<![\w%$.])\d\w*")
_STATEMENT = re.compile(
    r"(?<![^\s;{}:])(?P<guard>@!?\s*%[\w$]+\s+)?(?P<opcode>[a-z]\w*(?:\.[\w:]+)*)\s"
    r"(?P<operands>[^;{}\n]*(?:\{[^;{}\n]*\}[^;{}\n]*)*);"
)
_STRANGE_CHARACTERS = "\0\t\n\r\x0b\x1c\u0663\u00e9\u2028\ud800 {}[]()<>;:,.+-*/|!@%_$\"'\\0aZ"
_STRANGE_NUMBERS = (
    *"0 1 -1 --1 08 0x 0b2 0b1 007 1U 1UU 0xG 1. 1.5 .5 1e400 1.0e400 255 256 65536 4294967295 4294967296".split(),
    *"-2147483649 9223372036854775807 -9223372036854775809 18446744073709551616 0x1ffffffffffffffff".split(),
    *"99999999999999999999999 0f3F80000 0f3F800000 0F7FFFFFFF 0d3FF0000000000000 0d0".split(),
    "\u0663",
    "9" * 5000,
)
_STRANGE_OPERANDS = (
    *("_", "{}", "{_}", "{{%r1}}", "[]", "[,]", "[%r1", "%r1]", "[%r1+]", "[%r1+-]", "[+4]", "[%r1+%r2]", "[%r1-4]"),
    *("[%r1, {}]", "[%r1, {%r2, %r3}]", "[5]", "[_]", "5|6", "%p1|%p2", "%p1|%p2|%p3", "|", "!%p1", "!", "!!%p1", "!5"),
    *("()", "(%r1)", "%tid.x", "%tid", "%tid.w", "%envreg1", "%clock64", "%nothing", "nothing", "nothing+4", "smem+4"),
    *("-%r1", "%r1+4", "", " ", "generic(smem)", "0f3F800000", "true", "WARP_SZ", "%", "$", "%r1.x", "1.5", "-1.5"),
    "[" * 2000,
)


@dataclass(frozen=True)
class Input:
    """A text to try."""

    text: str
    levels: tuple[str, ...]  # keys of LEVELS: the mutations' levels, in order


class Mutator:
    """Makes inputs from modules. Opcodes, operands and lines that mutations add are those of any of the modules."""

    def __init__(self, texts: Sequence[str]):
        """texts: PTX modules that the emulator accepts."""
        self._modules = [parse(text) for text in texts]
        self._weights = [len(text) for text in texts]
        statements = [match for text in texts for match in _STATEMENT.finditer(text)]
        self._opcodes = sorted({match["opcode"] for match in statements})
        self._operands = sorted({part.strip() for match in statements for part in split(match["operands"])})
        self._tokens = sorted({token for text in texts for token in _TOKEN.findall(text)})
        self._lines = sorted({line for text in texts for line in text.splitlines()})

    def excerpt(self, rng: random.Random) -> str:
        """Part of a random module: its declarations and labels, and in each body a few consecutive instructions.

        Longer modules are chosen more often.
        """
        (module,) = rng.choices(self._modules, self._weights)
        text, kept, position = module.text, [], 0
        for place in sorted(_left_out(module, rng)):
            kept.append(text[position : place.start])
            position = place.end
        return re.sub(r"\n\s*(?=\n)", "", "".join((*kept, text[position:])))

    def make(self, rng: random.Random) -> Input:
        """An excerpt with one or more mutations."""
        text = self.excerpt(rng)
        levels: list[str] = []
        while not levels or rng.random() < MORE:
            level = rng.choice(list(LEVELS))
            text = LEVELS[level](self, text, rng)
            levels.append(level)
        return Input(text, tuple(levels))

    def characters(self, text: str, rng: random.Random) -> str:
        """Removes, inserts, replaces or doubles a few characters; now and then cuts the text off."""
        start = rng.randrange(len(text) + 1)
        end = start + rng.choice((0, 1, 1, 1, 2, 8))
        new = rng.choice((*_STRANGE_CHARACTERS, "", "", text[start:end] * 2, chr(rng.randrange(1, 0x250))))
        return text[:start] if rng.random() < 0.03 else text[:start] + new + text[end:]

    def tokens(self, text: str, rng: random.Random) -> str:
        """Removes, doubles, exchanges or replaces a token, often a number."""
        places = [match.span() for match in _TOKEN.finditer(text)]
        if not places:
            return text
        (start, end), (first, last) = sorted(rng.choices(places, k=2))
        match rng.randrange(6):
            case 0:
                return text[:start] + text[end:]
            case 1:
                return f"{text[:end]} {text[start:end]}{text[end:]}"
            case 2 if end <= first:
                return text[:start] + text[first:last] + text[end:first] + text[start:end] + text[last:]
            case 3 | 4:
                start, end = rng.choice([match.span() for match in _NUMBER.finditer(text)] or [(start, end)])
                return text[:start] + rng.choice(_STRANGE_NUMBERS) + text[end:]
        return text[:start] + rng.choice(self._tokens) + text[end:]

    def lines(self, text: str, rng: random.Random) -> str:
        """Removes, doubles, moves or replaces a line, or adds one of any module."""
        lines = text.split("\n")
        index = rng.randrange(len(lines))
        match rng.randrange(5):
            case 0:
                del lines[index]
            case 1:
                lines.insert(rng.randrange(len(lines) + 1), lines[index])
            case 2:
                lines.insert(rng.randrange(len(lines)), lines.pop(index))
            case 3:
                lines[index] = rng.choice(self._lines)
            case 4:
                lines.insert(index, rng.choice(self._lines))
        return "\n".join(lines)

    def instructions(self, text: str, rng: random.Random) -> str:
        """Changes the guard, the opcode or the operands of an instruction."""
        statements = list(_STATEMENT.finditer(text))
        if not statements:
            return text
        found = rng.choice(statements)
        guard, opcode, operands = found["guard"] or "", found["opcode"], split(found["operands"])
        at = rng.randrange(len(operands))
        other = rng.choice(rng.choice((_STRANGE_OPERANDS, self._operands)))
        match rng.randrange(8):
            case 0:
                del operands[at]
            case 1:
                operands.insert(at, other)
            case 2:
                rng.shuffle(operands)
            case 3 | 4:
                operands[at] = other
            case 5:
                opcode = rng.choice(self._opcodes)
            case 6:
                modifiers = opcode.split(".")
                modifiers[rng.randrange(len(modifiers))] = rng.choice(rng.choice(self._opcodes).split("."))
                opcode = ".".join(modifiers)
            case 7:
                guard = rng.choice(("", "@%p1 ", "@!%p1 ", "@%r1 ", "@ ", "@5 ", "@!! %p1 "))
        return f"{text[: found.start()]}{guard}{opcode} {', '.join(operands)};{text[found.end() :]}"


def _left_out(module: Module, rng: random.Random) -> list[Place]:
    """The places of a module's instructions outside of a random window of each body; every ret stays."""
    places = []
    for body in (*module.entries.values(), *module.scope.functions.values()):
        count = min(rng.randint(*WINDOW), len(body.instructions))
        first = rng.randrange(len(body.instructions) - count + 1)
        places += [
            instruction.place
            for index, instruction in enumerate(body.instructions)
            if not first <= index < first + count and instruction.opcode != "ret"
        ]
    return places


LEVELS: dict[str, Callable[[Mutator, str, random.Random], str]] = {
    "character": Mutator.characters,
    "token": Mutator.tokens,
    "line": Mutator.lines,
    "instruction": Mutator.instructions,
}
