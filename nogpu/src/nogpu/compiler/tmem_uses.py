"""First uses of the results of tcgen05.ld.

A load is asynchronous, and PTX allows its registers to be read only after tcgen05.wait::ld. ptxas, however, tracks
registers with a pending write, so that without the wait the first instruction that reads or writes one of them waits
for it. A load is therefore complete at the wait or at that instruction, whichever comes first. This module finds these
instructions ahead of time.
"""

from __future__ import annotations

from nogpu.compiler.flow import EXIT, Flow, Step

Pending = dict[str, frozenset[int]]
"""Register -> the loads, by index, that may not have written it yet."""


def first_uses(flow: Flow, through_moves: bool = False) -> dict[int, frozenset[int]]:
    """Index of an instruction -> indices of the loads that must be complete before it and may not be yet.

    through_moves: mov is no use of what it copies; a use of its destination is one. Compilers pair registers by mov
    before the wait, and such a mov is no machine instruction.
    """
    if not any(_is_load(step) for step in flow.steps):
        return {}
    found: dict[int, frozenset[int]] = {}
    entering: dict[int, Pending] = {start: {} for start in flow.blocks}
    pending = list(flow.blocks)
    while pending:
        start = pending.pop()
        block, state = flow.blocks[start], dict(entering[start])
        for index in range(block.start, block.end):
            _step(index, flow.steps[index], state, found, through_moves)
        for successor in block.successors:
            if successor != EXIT and _merge(entering[successor], state):
                pending.append(successor)
    return found


def _is_load(step: Step) -> bool:
    return step.instruction.opcode.startswith("tcgen05.ld")


def _step(index: int, step: Step, state: Pending, found: dict[int, frozenset[int]], through_moves: bool) -> None:
    copies = through_moves and step.instruction.opcode.startswith("mov.")
    touched = step.defines if copies else (*step.uses, *step.defines)
    copied = frozenset().union(*(state.get(register.name, frozenset()) for register in step.uses if copies))
    due = frozenset().union(*(state.get(register.name, frozenset()) for register in touched))
    if due:
        found[index] = found.get(index, frozenset()) | due
        for name in [name for name, loads in state.items() if loads <= due]:
            del state[name]
    opcode, guarded = step.instruction.opcode, step.instruction.predicate is not None
    if opcode.startswith("tcgen05.wait::ld") and not guarded:
        state.clear()
    for register in step.defines:
        loads = frozenset((index,)) if _is_load(step) else copied
        if loads:
            state[register.name] = loads | (state.get(register.name, frozenset()) if guarded else frozenset())
        elif not guarded:
            state.pop(register.name, None)


def _merge(into: Pending, state: Pending) -> bool:
    """Adds a state to those in which a block may be entered. Returns True if it adds anything."""
    grown = False
    for name, loads in state.items():
        known = into.get(name, frozenset())
        if not loads <= known:
            into[name], grown = known | loads, True
    return grown
