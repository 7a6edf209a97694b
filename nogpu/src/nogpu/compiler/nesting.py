"""Nesting of branches: the sides of a short branch run one after the other; at any other branch the group parts.

So do the lanes that a guarded exit leaves, if their way to an exit of their own is short: all exit at its end.
"""

from __future__ import annotations

import re

from nogpu.compiler.flow import EXIT, Block, Flow

INLINE_LIMIT = 400  # most instructions of a nested branch

# Instructions for which it matters which lanes of the warp have exited.
_AMONG_LANES = re.compile(r"activemask|bar|elect|griddepcontrol|match|redux|shfl|tcgen05|vote|\S*\.(?:sync|aligned)\b")


class Nesting:
    """Choice of the branches of an entry that are nested."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._inlinable: dict[int, bool] = {}
        self._exits: dict[int, bool] = {}
        self.stops = {
            block.join for block in flow.blocks.values() if block.start in flow.divergent and not self.inlinable(block)
        }
        """Reconvergence points of branches that are not nested. Segments end there."""

    def inlinable(self, block: Block) -> bool:
        """True if the branch at the end of a block is nested."""
        known = self._inlinable.get(block.start)
        if known is None:
            self._inlinable[block.start] = False  # result for a side that loops back to this block
            last = self._flow.steps[block.end - 1]
            known = (
                last.target is not None
                and last.instruction.predicate is not None
                and block.join != EXIT
                and sum(max(self._side(successor, block.join), 0) for successor in block.successors) <= INLINE_LIMIT
                and all(self._side(successor, block.join) >= 0 for successor in block.successors)
            )
            self._inlinable[block.start] = known
        return known

    def exits(self, block: Block) -> bool:
        """True if the guarded exit at the end of a block is nested: so are the other lanes, up to their exit."""
        known = self._exits.get(block.start)
        if known is None:
            start = self._flow.start_of(block.end)
            known = 0 <= self._way_out(start) <= INLINE_LIMIT and self._is_alone(start)
            self._exits[block.start] = known
        return known

    def _way_out(self, start: int) -> int:
        """Number of instructions from `start` to the exit of all lanes; -1 if that way cannot be nested."""
        count, current, seen = 0, start, set[int]()
        while current != EXIT and current not in seen and current not in self.stops:
            seen.add(current)
            block = self._flow.blocks[current]
            last = self._flow.steps[block.end - 1]
            guard = last.instruction.predicate
            count += block.end - block.start
            if last.ends and guard is None:
                return count
            if last.ends and guard is not None and self._flow.kinds[guard.register.name] != "uniform":
                current = self._flow.start_of(block.end)
            elif len(set(block.successors)) == 1:
                current = block.successors[0]
            elif self.inlinable(block):
                count += sum(self._side(successor, block.join) for successor in block.successors)
                current = block.join
            else:
                return -1
        return -1

    def _is_alone(self, start: int) -> bool:
        """True if no instruction from `start` on waits, parts segments or asks which lanes of the warp have exited."""
        seen, pending = {EXIT}, [start]
        while pending:
            current = pending.pop()
            if current in seen:
                continue
            seen.add(current)
            block = self._flow.blocks[current]
            for step in self._flow.steps[block.start : block.end]:
                if step.blocks or step.parts or _AMONG_LANES.match(step.instruction.opcode):
                    return False
            pending.extend(block.successors)
        return True

    def _side(self, start: int, join: int) -> int:
        """Number of instructions from `start` to `join`; -1 if the side cannot be nested."""
        count, current, seen = 0, start, set()
        while current != join:
            if current == EXIT or current in seen:
                return -1
            seen.add(current)
            block = self._flow.blocks[current]
            steps = self._flow.steps[block.start : block.end]
            if any(step.blocks or step.parts or step.ends for step in steps):
                return -1
            count += len(steps)
            if len(set(block.successors)) == 1:
                current = block.successors[0]
            elif self.inlinable(block):
                count += sum(self._side(successor, block.join) for successor in block.successors)
                current = block.join
            else:
                return -1
        return count
