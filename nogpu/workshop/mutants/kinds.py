"""Mutants of a PTX module: each has one instruction of synchronisation removed, weakened or changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_STATEMENT = re.compile(
    r"(?P<guard>@!?%?[\w$]+\s+)?"
    r"\b(?P<opcode>(?:mbarrier|fence|membar|bar|barrier|tcgen05|cp|griddepcontrol|tensormap|ld|st|red|atom|mapa|elect)"
    r"\.[\w.:]+)(?![\w.:])(?P<operands>[^;]*);"
)
_SYNCHRONISATION = re.compile(
    r"mbarrier|fence|membar|bar|griddepcontrol|tensormap|elect|tcgen05|cp\.|\w+\.async|"
    r"(?:ld|st|red|atom)\.(?:\S*\.)?(?:acquire|release|acq_rel|relaxed)"
)
AROUND = 2  # instructions on each side that describe a place


class Statement(NamedTuple):
    """An instruction of a module's text, its guard included."""

    start: int
    end: int
    guard: str
    opcode: str
    operands: str

    def has(self, *parts: str) -> bool:
        """True if the opcode has one of these parts between its dots."""
        return any(part in parts for part in self.opcode.split("."))

    def with_opcode(self, opcode: str) -> str:
        return f"{self.guard}{opcode}{self.operands};"


@dataclass(frozen=True)
class Mutant:
    """A change of a module's text."""

    kind: str  # a name of KINDS
    change: str  # description of the change
    instruction: str  # without the numbers of registers
    place: str  # opcodes around it
    number: int  # from 1, among mutants with the same values of the fields above
    line: int  # line of the text, from 1
    start: int
    end: int
    text: str  # replacement of the text from start to end

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """The fields that tell a mutant from others of its program. None depends on line or register numbers."""
        return self.kind, self.change, self.instruction, self.place, self.number

    def apply(self, ptx: str) -> str:
        return ptx[: self.start] + self.text + ptx[self.end :]


Change = tuple[str, str]  # (description, the text in the instruction's place)


def _remove(statement: Statement) -> Iterator[Change]:
    yield "removed", ""


def _relax(statement: Statement) -> Iterator[Change]:
    parts = statement.opcode.split(".")
    if "relaxed" in parts:
        return
    found = {"release", "acquire", "acq_rel"} & set(parts)
    if found:
        yield "relaxed", statement.with_opcode(".".join("relaxed" if part in found else part for part in parts))
    elif parts[0] == "mbarrier":
        at = 3 if parts[2] in ("parity", "expect_tx", "noComplete") else 2
        yield "relaxed", statement.with_opcode(".".join([*parts[:at], "relaxed", "cluster", *parts[at:]]))
    elif parts[:3] == ["barrier", "cluster", "arrive"]:
        yield "relaxed", statement.with_opcode(".".join([*parts[:3], "relaxed", *parts[3:]]))


def _narrow(statement: Statement) -> Iterator[Change]:
    parts = statement.opcode.split(".")
    wide = next((part for part in parts if part in ("cluster", "gpu", "sys")), None)
    if wide is not None and parts[0] != "barrier":
        yield f".{wide} is .cta", statement.with_opcode(".".join("cta" if part == wide else part for part in parts))


def _double(statement: Statement) -> Iterator[Change]:
    text = f"{statement.guard}{statement.opcode}{statement.operands};"
    yield "twice", f"{text} {text}"


def _no_wait(statement: Statement) -> Iterator[Change]:
    predicate = statement.operands.split(",")[0].strip()
    yield "returns at once", f"{statement.guard}setp.eq.u32 {predicate}, 0, 0;"


def _computed(
    statement: Statement, which: int, type_: str, change: str, code: str, operation: str = ""
) -> Iterator[Change]:
    """Change operand number `which` by instructions: `code`, with {x} for the operand and {t} for the new one."""
    operands = split_operands(statement.operands)
    if which >= len(operands):
        return
    x = operands[which]
    operands[which] = "mutant"
    words = f".reg .{type_} mutant; {code.format(x=x, t='mutant')}"
    yield change, f"{{ {words} {statement.guard}{operation or statement.opcode} {', '.join(operands)}; }}"


def _parity(statement: Statement) -> Iterator[Change]:
    if statement.has("parity"):
        yield from _computed(statement, 2, "b32", "other parity", "xor.b32 {t}, {x}, 1;")


def _count(statement: Statement) -> Iterator[Change]:
    yield from _computed(statement, 1, "b32", "one more", "add.s32 {t}, {x}, 1;")
    yield from _computed(statement, 1, "b32", "one less", "sub.s32 {t}, {x}, 1;")


def _bytes(statement: Statement) -> Iterator[Change]:
    which = 1 if statement.opcode.startswith("mbarrier.expect_tx") else 2
    yield from _computed(statement, which, "b32", "16 more", "add.s32 {t}, {x}, 16;")
    yield from _computed(statement, which, "b32", "16 less", "sub.s32 {t}, {x}, 16;")


def _later_group(statement: Statement) -> Iterator[Change]:
    found = re.fullmatch(r"\s*(\d+)\s*", statement.operands)
    if found:
        yield "one group more may be left", f"{statement.guard}{statement.opcode} {int(found[1]) + 1};"


def _moved(statement: Statement) -> Iterator[Change]:
    operands = split_operands(statement.operands)
    address = operands[0].strip("[]")
    moved = f"[{address}+8]" if "+" not in address else f"[{address.split('+')[0]}+{int(address.split('+')[1]) + 8}]"
    yield "to the next mbarrier", f"{statement.guard}{statement.opcode} {', '.join([moved, *operands[1:]])};"


def _mask(statement: Statement) -> Iterator[Change]:
    which = 1 if statement.opcode.startswith("tcgen05") else 3
    for change, code in (
        ("without the first CTA", ".reg .b16 less; sub.s16 less, {x}, 1; and.b16 {t}, {x}, less;"),
        ("the first CTA only", ".reg .b16 less; neg.s16 less, {x}; and.b16 {t}, {x}, less;"),
    ):
        yield from _computed(statement, which, "b16", change, code)


@dataclass(frozen=True)
class Kind:
    """A way to break an instruction."""

    name: str
    row: str  # row of the table of results
    opcode: re.Pattern[str]
    changes: Callable[[Statement], Iterator[Change]]


def _kind(name: str, row: str, opcode: str, changes: Callable[[Statement], Iterator[Change]] = _remove) -> Kind:
    return Kind(name, row, re.compile(opcode), changes)


ORDERS, SCOPES = "order: relaxed", "scope: CTA"
WARPS, FRAGMENTS = "bar.warp.sync", "tcgen05.wait::ld, ::st"
GROUPS = "bulk groups: commit, wait"
MAPS = "tensor map edits: fences"
INITIALISED, PROXIES = "fence.mbarrier_init", "fence.proxy.async"
CLUSTER, NAMED = "cluster barriers", "named barriers"
SYNC, FENCES = "tcgen05.fence", "fences of threads"
ARRIVALS, WAITS, PARITIES, COUNTS, BYTES = (
    *("mbarrier arrivals", "mbarrier waits", "mbarrier parities"),
    *("mbarrier counts", "mbarrier bytes"),
)
COMMITS, MASKS, ALLOCATION, LAUNCHES = "tcgen05.commit", "multicast masks", "tensor memory's allocation", "launches"
ROWS = (
    *(ORDERS, SCOPES, WARPS, FRAGMENTS, GROUPS, MAPS, INITIALISED, PROXIES, CLUSTER, NAMED, SYNC, FENCES),
    *(ARRIVALS, WAITS, PARITIES, COUNTS, BYTES, COMMITS, MASKS, ALLOCATION, LAUNCHES),
)
"""Rows of the table of results, in order."""

_ARRIVE = r"mbarrier\.arrive(?:_drop)?\."
_WAIT = r"mbarrier\.(?:try|test)_wait\."
_WORDS = r"(?:ld|st|red|atom)\."
_ORDERED = r"(?:\S*\.)?(?:release|acquire|acq_rel)(?:\.|$)"
KINDS = {
    kind.name: kind
    for kind in (
        _kind("arrive relaxed", ORDERS, _ARRIVE, _relax),
        _kind("wait relaxed", ORDERS, _WAIT, _relax),
        _kind("cluster arrive relaxed", ORDERS, r"barrier\.cluster\.arrive", _relax),
        _kind("word relaxed", ORDERS, _WORDS + _ORDERED, _relax),
        _kind("arrive narrowed", SCOPES, _ARRIVE, _narrow),
        _kind("wait narrowed", SCOPES, _WAIT, _narrow),
        _kind("word narrowed", SCOPES, rf"{_WORDS}(?:\S*\.)?(?:release|acquire|acq_rel|relaxed)\.", _narrow),
        _kind("fence narrowed", SCOPES, r"fence\.(?:acq_rel|sc|acquire|release|proxy\.tensormap)", _narrow),
        _kind("no bar.warp.sync", WARPS, r"bar\.warp\.sync"),
        _kind("no tcgen05.wait::ld", FRAGMENTS, r"tcgen05\.wait::ld"),
        _kind("no tcgen05.wait::st", FRAGMENTS, r"tcgen05\.wait::st"),
        _kind("no bulk commit_group", GROUPS, r"cp\.async\.(?:bulk\.)?commit_group"),
        _kind("no bulk wait_group", GROUPS, r"cp\.async\.(?:bulk\.)?wait_(?:group|all)"),
        _kind("later bulk wait_group", GROUPS, r"cp\.async\.(?:bulk\.)?wait_group", _later_group),
        _kind("no fence of a tensor map", MAPS, r"fence\.proxy\.tensormap"),
        _kind("tensor map copied without a release", MAPS, r"tensormap\.cp_fenceproxy", _narrow),
        _kind("no fence.mbarrier_init", INITIALISED, r"fence\.mbarrier_init"),
        _kind("no fence.proxy.async", PROXIES, r"fence\.proxy\.async"),
        _kind("no cluster arrive", CLUSTER, r"barrier\.cluster\.arrive"),
        _kind("no cluster wait", CLUSTER, r"barrier\.cluster\.wait"),
        _kind("no named barrier", NAMED, r"(?:bar|barrier)\.(?:cta\.)?(?:sync|arrive)(?:\.aligned)?$"),
        _kind("no tcgen05.fence::before", SYNC, r"tcgen05\.fence::before"),
        _kind("no tcgen05.fence::after", SYNC, r"tcgen05\.fence::after"),
        _kind("no fence", FENCES, r"fence\.(?:acq_rel|sc|acquire|release)|membar"),
        _kind("no arrival", ARRIVALS, rf"{_ARRIVE}|cp\.async\.mbarrier"),
        _kind("two arrivals", ARRIVALS, rf"{_ARRIVE}|cp\.async\.mbarrier", _double),
        _kind("no wait", WAITS, _WAIT, _no_wait),
        _kind("other parity", PARITIES, _WAIT, _parity),
        _kind("no initialisation", COUNTS, r"mbarrier\.init"),
        _kind("other count", COUNTS, r"mbarrier\.init", _count),
        _kind("other bytes", BYTES, r"mbarrier\.(?:arrive\.)?expect_tx", _bytes),
        _kind("no commit", COMMITS, r"tcgen05\.commit"),
        _kind("commit elsewhere", COMMITS, r"tcgen05\.commit", _moved),
        _kind("other mask", MASKS, r"(?:tcgen05\.commit|cp\.async\.bulk)\.\S*multicast::cluster", _mask),
        _kind("no allocation", ALLOCATION, r"tcgen05\.alloc"),
        _kind("no deallocation", ALLOCATION, r"tcgen05\.dealloc"),
        _kind("no relinquishing", ALLOCATION, r"tcgen05\.relinquish"),
        _kind("no griddepcontrol.wait", LAUNCHES, r"griddepcontrol\.wait"),
        _kind("no launch_dependents", LAUNCHES, r"griddepcontrol\.launch_dependents"),
    )
}


def split_operands(text: str) -> list[str]:
    """Operands of an instruction: the stripped parts between commas outside of brackets and braces."""
    found, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "[{(") - (character in "]})")
        if character == "," and not depth:
            found.append(text[start:place].strip())
            start = place + 1
    return [*found, text[start:].strip()]


def statements(ptx: str) -> list[Statement]:
    """The instructions of a module that synchronise, of which kinds may have mutants, in the order of the text."""
    return [
        Statement(found.start(), found.end(), found["guard"] or "", found["opcode"], found["operands"])
        for found in _STATEMENT.finditer(ptx)
        if _SYNCHRONISATION.match(found["opcode"])
    ]


def mutants(ptx: str, kinds: Sequence[str] | None = None) -> list[Mutant]:
    """The mutants of a module, one for each way in which a kind changes an instruction, in the order of the text.

    kinds: names of KINDS, None for all. Raises KeyError for an unknown name.
    """
    chosen = [KINDS[name] for name in kinds] if kinds is not None else list(KINDS.values())
    found = statements(ptx)
    result: list[Mutant] = []
    seen: Counter[tuple[str, str, str, str]] = Counter()
    for index, statement in enumerate(found):
        for kind in chosen:
            if not kind.opcode.match(statement.opcode):
                continue
            for change, text in kind.changes(statement):
                like = (kind.name, change, _plain(statement), _place(found, index))
                seen[like] += 1
                line = ptx.count("\n", 0, statement.start) + 1
                result.append(Mutant(*like, seen[like], line, statement.start, statement.end, text))
    return result


def _plain(statement: Statement) -> str:
    """The instruction's text without the numbers of registers, which change with the rest of the kernel."""
    text = f"{statement.guard}{statement.opcode}{statement.operands}"
    return re.sub(r"\s+", " ", re.sub(r"%(\w*?)\d+", r"%\1", text)).strip()


def _place(found: Sequence[Statement], index: int) -> str:
    before = [_short(each) for each in found[max(0, index - AROUND) : index]]
    after = [_short(each) for each in found[index + 1 : index + 1 + AROUND]]
    return f"{', '.join(before) or 'begin'} | {', '.join(after) or 'end'}"


def _short(statement: Statement) -> str:
    return ".".join(statement.opcode.split(".")[:3])
