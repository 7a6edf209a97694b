"""Control flow of an entry: basic blocks, reconvergence points, live registers, uniform registers.

A register is *uniform* if all lanes that may read it hold the same value. It is then one value, and a result of
uniform registers alone is computed once for the warp. Any other register is a row of 32 lanes.

The reconvergence point of a branch is the first place to which all paths from it lead, exits aside. Lanes that part at
the branch become one group again there, once all of them have come (`hardware.warp`). A register written on one side
of such a branch must keep the other lanes' values only if it is read at or after that point, or on the other side.
These registers are *merged*; a write to any other register replaces it as a whole.

All this holds as long as lanes wait for each other at reconvergence points. Where some go on alone (`Warp.part`), each
instruction may run for different lanes at different times. In a flow *by lane* every register that is written is a
merged row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from nogpu.ptx.ir import Address, Entry, Instruction, Negated, Pair, Register, Symbol, Vector

KINDS = ("uniform", "bits", "lanes")  # kinds of registers and operands, narrowest first
EXIT = -1  # as a successor: threads exit; as a reconvergence point: there is none


def registers_in(operand: object) -> list[Register]:
    """The registers that an operand names, in order."""
    if isinstance(operand, Register):
        return [operand]
    if isinstance(operand, Negated):
        return [operand.register]
    if isinstance(operand, Vector):
        return [register for item in operand.items for register in registers_in(item)]
    if isinstance(operand, Pair):
        return registers_in(operand.first) + registers_in(operand.second)
    if isinstance(operand, Address):
        items = (operand.base, *(operand.coordinates or ()))
        return [register for item in items for register in registers_in(item)]
    return []


@dataclass
class Step:
    """An instruction and its part in the control flow."""

    instruction: Instruction
    defines: list[Register]
    uses: list[Register]
    """Registers that the instruction reads, the guard included."""
    target: str | None
    """Label to which the instruction branches, or None."""
    ends: bool
    """True if threads exit here."""
    blocks: bool
    """True if the instruction may have to wait: a program can be resumed here."""
    kind: Callable[[Callable[[object], str]], str]
    """The kind of the result, from a function that gives the kind of an operand."""
    parts: bool = False
    """True if the step is a segment of its own: a turn may end on either side of it."""


@dataclass
class Block:
    """A basic block: instructions `start` to `end`, without `end`. Blocks are named by their start."""

    start: int
    end: int
    successors: list[int] = field(default_factory=list)
    """Blocks that may follow, and EXIT if threads exit at the block's end."""
    predecessors: list[int] = field(default_factory=list)
    live_in: set[str] = field(default_factory=set)
    """Registers whose values at the block's start may be read."""
    join: int = EXIT
    """Reconvergence point of the branch at the block's end."""


class Flow:
    """The control flow of an entry, and the kind of every register."""

    def __init__(self, entry: Entry, steps: list[Step], by_lane: bool = False) -> None:
        """by_lane: lanes need not wait for each other at reconvergence points."""
        self.entry, self.steps = entry, steps
        self.blocks: dict[int, Block] = {}
        """Blocks by their start, in the order of the instructions."""
        self.kinds = {name: "uniform" for name in entry.registers}
        """Register name -> "uniform", "lanes" or "bits" (a predicate as an integer with a bit per lane)."""
        self.merged: set[str] = set(entry.registers) if by_lane else set()
        """Registers that some of the lanes may write while the others keep their values."""
        self.divergent: set[int] = set()
        """Blocks that end in a branch at which lanes may part."""
        self._make_blocks()
        self._find_joins()
        self._find_live()
        self._classify()

    def target_of(self, step: Step) -> int | None:
        """The instruction to which a step branches, None if it is no branch."""
        return None if step.target is None else self.entry.labels[step.target]

    def _make_blocks(self) -> None:
        steps, count = self.steps, len(self.steps)
        leaders = {0}
        for index, step in enumerate(steps):
            target = self.target_of(step)
            if target is not None:
                leaders.add(target)
            if (step.target is not None or step.ends) and index + 1 < count:
                leaders.add(index + 1)
            if step.blocks or step.parts:
                leaders.add(index)
            if step.parts:
                leaders.add(index + 1)
        starts = sorted(leader for leader in leaders if leader < count)
        for start, end in zip(starts, [*starts[1:], count], strict=True):
            block, last = Block(start, end), steps[end - 1]
            guarded = last.instruction.predicate is not None
            target = self.target_of(last)
            if target is not None:
                block.successors.append(self.start_of(target))
            if (last.target is None and not last.ends) or guarded:
                block.successors.append(self.start_of(end))
            if last.ends:
                block.successors.append(EXIT)
            self.blocks[start] = block
        for block in self.blocks.values():
            for successor in block.successors:
                if successor != EXIT:
                    self.blocks[successor].predecessors.append(block.start)

    def start_of(self, index: int) -> int:
        """The block that starts at an instruction, EXIT behind the last one."""
        return index if index < len(self.steps) else EXIT

    def _find_joins(self) -> None:
        """Finds the reconvergence point of each block's branch: its immediate post-dominator.

        If the branch has none because lanes exit on the way, the point is the first block that all other lanes pass:
        guarded exits are ignored first, then all exits.
        """
        for counted in (2, 1, 0):  # most successors of a block whose exits count
            passed, reached = self._ways(counted)
            for block in self.blocks.values():
                sides = {successor for successor in block.successors if successor != EXIT}
                if len(sides) == 2 and block.join == EXIT:
                    a, b = sides
                    block.join = self._first(sides, passed[a] & passed[b] & reached[a] & reached[b])

    def _ways(self, counted: int) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
        """(block -> the blocks on all ways from it, block -> the blocks on some way), the block itself included.

        Exits of blocks with more than `counted` successors are ignored.
        """
        everything = set(self.blocks)
        passed = {start: everything for start in self.blocks}
        reached = {start: {start} for start in self.blocks}
        changed = True
        while changed:
            changed = False
            for start, block in reversed(self.blocks.items()):
                inner = [successor for successor in block.successors if successor != EXIT]
                ends = len(inner) < len(block.successors) <= counted
                on_all = {start} if ends else everything.intersection(*(passed[s] for s in inner)) | {start}
                on_some = {start}.union(*(reached[s] for s in inner))
                if on_all != passed[start] or on_some != reached[start]:
                    passed[start], reached[start], changed = on_all, on_some, True
        return passed, reached

    def _first(self, sides: set[int], common: set[int]) -> int:
        """The common block that all ways from the sides reach first; EXIT if there is no such block."""
        firsts = set()
        for side in sides:
            found, pending = set(), [side]
            while pending:
                start = pending.pop()
                if start == EXIT or start in found:
                    continue
                if start in common:
                    firsts.add(start)
                    continue
                found.add(start)
                pending.extend(self.blocks[start].successors)
        return firsts.pop() if len(firsts) == 1 else EXIT

    def _find_live(self) -> None:
        """Finds the registers that are live at the start of each block."""
        reads: dict[int, set[str]] = {}
        writes: dict[int, set[str]] = {}
        for block in self.blocks.values():
            read: set[str] = set()
            written: set[str] = set()
            for step in self.steps[block.start : block.end]:
                read |= {register.name for register in step.uses} - written
                if step.instruction.predicate is None:
                    written |= {register.name for register in step.defines}
            reads[block.start], writes[block.start] = read, written
        changed = True
        while changed:
            changed = False
            for block in reversed(self.blocks.values()):
                live: set[str] = set()
                for successor in block.successors:
                    if successor != EXIT:
                        live |= self.blocks[successor].live_in
                live = (live - writes[block.start]) | reads[block.start]
                if live != block.live_in:
                    block.live_in, changed = live, True

    def region(self, start: int, join: int) -> set[int]:
        """Blocks that can be reached from `start` without passing `join`."""
        found, pending = set(), [start]
        while pending:
            block = pending.pop()
            if block in (join, EXIT) or block in found:
                continue
            found.add(block)
            pending.extend(self.blocks[block].successors)
        return found

    def _classify(self) -> None:
        """Finds the registers' kinds, the divergent blocks and the merged registers, which depend on each other."""
        definitions: dict[int, set[str]] = {
            block.start: {r.name for step in self.steps[block.start : block.end] for r in step.defines}
            for block in self.blocks.values()
        }
        changed = True
        while changed:
            changed = self._spread_kinds()
            for block in self.blocks.values():
                last = self.steps[block.end - 1]
                guard = last.instruction.predicate
                if block.start in self.divergent or guard is None or not (last.target is not None or last.ends):
                    continue
                if self.kinds[guard.register.name] != "uniform":
                    self.divergent.add(block.start)
                    self._merge_at(block, definitions)
                    changed = True

    def _spread_kinds(self) -> bool:
        """Widens the kinds of results as far as their operands require. Returns True if any has changed."""
        any_change, changed = False, True
        while changed:
            changed = False
            for step in self.steps:
                guard = step.instruction.predicate
                parted = guard is not None and self.kinds[guard.register.name] != "uniform"
                result = step.kind(self.kind_of)
                for register in step.defines:
                    name, kind = register.name, result
                    if parted:
                        self.merged.add(name)
                    if kind == "bits" and register.width != 1:
                        kind = "uniform"  # the leader of elect.sync
                    if kind == "uniform" and name in self.merged:
                        kind = "bits" if register.width == 1 else "lanes"
                    kind = max(kind, self.kinds[name], key=KINDS.index)
                    if kind != self.kinds[name]:
                        self.kinds[name], changed, any_change = kind, True, True
        return any_change

    def _merge_at(self, block: Block, definitions: dict[int, set[str]]) -> None:
        """Marks the registers that must keep other lanes' values because lanes may part at the end of a block."""
        sides = [self.region(successor, block.join) for successor in set(block.successors)]
        live_at_join = self.blocks[block.join].live_in if block.join != EXIT else set()
        for side in sides:
            written: set[str] = set().union(*(definitions[start] for start in side))
            self.merged |= written & live_at_join
            for other in sides:
                if other is not side:
                    touched: set[str] = set().union(
                        *(definitions[start] | self.blocks[start].live_in for start in other)
                    )
                    self.merged |= written & touched

    def kind_of(self, operand: object) -> str:
        """The kind of an operand: the widest of its registers' kinds."""
        return max(
            (self.kinds[register.name] for register in registers_in(operand)), key=KINDS.index, default="uniform"
        )


def written_operands(instruction: Instruction, writes: int) -> tuple[list[Register], list[Register]]:
    """(defined, used) registers of an instruction whose first `writes` operands are destinations."""
    defines: list[Register] = []
    uses: list[Register] = []
    for index, operand in enumerate(instruction.operands):
        found = registers_in(operand)
        (defines if index < writes and not isinstance(operand, (Address, Symbol)) else uses).extend(found)
    if instruction.predicate is not None:
        uses.append(instruction.predicate.register)
    return defines, uses
