"""Nesting of branches: the sides of a short branch run one after the other; at any other branch the group parts."""

from __future__ import annotations

from nogpu.compiler.flow import EXIT, Block, Flow

INLINE_LIMIT = 400  # most instructions of a nested branch


class Nesting:
    """Choice of the branches of an entry that are nested."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._inlinable: dict[int, bool] = {}
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
