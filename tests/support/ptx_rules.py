"""Rules of the PTX ISA on the order of instructions, checked on every path through a kernel's PTX.

The rules are those that the emulator does not check: it runs the lanes of a warp together, and it asks for no fence of
tensor memory around alloc and dealloc. The check reads the text: it takes every path of the control flow graph,
whatever the predicates, and an instruction behind a predicate orders nothing.
"""

import re
from dataclasses import dataclass

from nogpu.ptx.ir import Entry, Instruction
from nogpu.ptx.module import parse


@dataclass(frozen=True)
class Between:
    """Rule that every path from an instruction that matches `first` to one that matches `then` passes a `needed` one.

    All three are regular expressions for the start of an opcode; START as `first` is the kernel's beginning.
    """

    first: str
    needed: str
    then: str
    why: str


# Arrivals by which other threads learn of progress. bar.warp.sync is none: only lanes of one warp learn from it.
ARRIVAL = r"(mbarrier\.arrive|bar\.sync|bar\.arrive|barrier\.)"
WAIT = r"(mbarrier\.try_wait|bar\.sync|barrier\.cluster\.wait|barrier\.sync)"
START = ""

ORDER = {
    "tcgen05.alloc": Between(
        START,
        r"tcgen05\.alloc",
        r"griddepcontrol\.launch_dependents",
        "a CTA of the next launch could take the columns before this one has its own, and then wait for its end",
    ),
    "tcgen05.fence::before_thread_sync": Between(
        r"tcgen05\.(alloc|relinquish_alloc_permit)",
        r"tcgen05\.fence::before_thread_sync",
        ARRIVAL,
        'the allocation is ordered before an arrival only by this fence (PTX ISA, "tcgen05.fence")',
    ),
    "tcgen05.fence::after_thread_sync": Between(
        WAIT,
        r"tcgen05\.fence::after_thread_sync",
        r"tcgen05\.dealloc",
        'the end of tensor memory is ordered after a wait only by this fence (PTX ISA, "tcgen05.fence")',
    ),
    "bar.warp.sync": Between(
        r"(mbarrier\.init|tcgen05\.ld)",
        r"bar\.warp\.sync",
        r"(mbarrier\.arrive|bar\.arrive)",
        "one lane arrives for reads of all lanes, or all lanes for one lane's set-up; only a warp barrier orders them",
    ),
}

FORBIDDEN = {
    "local memory": r"[\w.]+\.local\b",
    "global atomics": r"(atom|red)\.(?!\S*shared)|multimem\.red|cp\.reduce\.async\.bulk\.(tensor\.\dd\.)?global",
    "device-side tensormap.replace": r"tensormap\.replace",
}


def successors(entry: Entry, index: int) -> list[int]:
    """The indices of the instructions that may run next."""
    instruction = entry.instructions[index]
    opcode, guarded = instruction.opcode, instruction.predicate is not None
    following = [index + 1] if index + 1 < len(entry.instructions) else []
    if opcode.startswith("bra"):
        return [entry.labels[instruction.operands[0].name]] + (following if guarded else [])
    if opcode.startswith("brx"):
        labels = entry.branch_targets[instruction.operands[1].name]
        return [entry.labels[label] for label in labels] + (following if guarded else [])
    if opcode in ("ret", "exit", "trap"):
        return following if guarded else []
    return following


def matching(entry: Entry, pattern: str) -> list[int]:
    return [i for i, instruction in enumerate(entry.instructions) if re.match(pattern, instruction.opcode)]


def first_unordered(entry: Entry, rule: Between) -> Instruction | None:
    """The first instruction found that a path reaches from a `first` without passing a `needed`."""
    needed = {i for i in matching(entry, rule.needed) if entry.instructions[i].predicate is None}
    then, seen = set(matching(entry, rule.then)), set()
    starts = matching(entry, rule.first) if rule.first != START else []
    pending = [following for first in starts for following in successors(entry, first)] or [0] * (rule.first == START)
    while pending:
        index = pending.pop()
        if index in seen or index in needed:
            continue
        seen.add(index)
        if index in then:
            return entry.instructions[index]
        pending += successors(entry, index)
    return None


def broken(ptx: str) -> dict[str, str]:
    """Rules that a module's only kernel breaks, by name, with the offending line or variable.

    An ordering rule is also broken if the kernel has no `first` or no `then`, because it would check nothing.
    """
    (entry,) = parse(ptx).entries.values()
    found = {}
    for name, rule in ORDER.items():
        unordered = first_unordered(entry, rule)
        if unordered is not None:
            found[name] = f"line {unordered.line}, {unordered.text}: {rule.why}"
        elif not (matching(entry, rule.first) and matching(entry, rule.then)):
            found[name] = f"nothing to order: no {rule.first} or no {rule.then}"
    for name, pattern in FORBIDDEN.items():
        for index in matching(entry, pattern):
            found[name] = f"line {entry.instructions[index].line}, {entry.instructions[index].text}"
    for variable in entry.variables.values():
        if variable.space == "local":
            found["local memory"] = f"variable {variable.name}, {variable.size} bytes"
    return found
