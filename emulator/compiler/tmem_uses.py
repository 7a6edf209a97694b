"""Where results of tcgen05.ld are first used.

A load is asynchronous, and its registers may be read only behind tcgen05.wait::ld. But ptxas keeps account of registers
that are still to be written, so that without the wait an instruction that names one of them waits for it. So a load
is over, at the latest, at the wait or at the first such instruction; which these are is found here, ahead of time.
"""

from __future__ import annotations

from emulator.compiler.flow import EXIT, Flow, Step

Pending = dict[str, frozenset[int]]  # register -> the loads, by index, whose result it may still be to receive


def first_uses(flow: Flow) -> dict[int, frozenset[int]]:
    """Index of an instruction -> the loads (indices) that must be over before it, of those that may not be."""
    if not any(_is_load(step) for step in flow.steps):
        return {}
    found: dict[int, frozenset[int]] = {}
    entering: dict[int, Pending] = {start: {} for start in flow.blocks}
    pending = list(flow.blocks)
    while pending:
        start = pending.pop()
        block, state = flow.blocks[start], dict(entering[start])
        for index in range(block.start, block.end):
            _step(index, flow.steps[index], state, found)
        for successor in block.successors:
            if successor != EXIT and _merge(entering[successor], state):
                pending.append(successor)
    return found


def _is_load(step: Step) -> bool:
    return step.instruction.opcode.startswith("tcgen05.ld")


def _step(index: int, step: Step, state: Pending, found: dict[int, frozenset[int]]) -> None:
    due = frozenset().union(*(state.get(register.name, frozenset()) for register in step.uses))
    if due:
        found[index] = found.get(index, frozenset()) | due
        for name in [name for name, loads in state.items() if loads <= due]:
            del state[name]
    opcode, guarded = step.instruction.opcode, step.instruction.predicate is not None
    if opcode.startswith("tcgen05.wait::ld") and not guarded:
        state.clear()
    for register in step.defines:
        if _is_load(step):
            state[register.name] = frozenset((index,)) | (
                state.get(register.name, frozenset()) if guarded else frozenset()
            )
        elif not guarded:
            state.pop(register.name, None)


def _merge(into: Pending, state: Pending) -> bool:
    """Adds a state to the one in which a block may be entered. Returns whether that has grown."""
    grown = False
    for name, loads in state.items():
        known = into.get(name, frozenset())
        if not loads <= known:
            into[name], grown = known | loads, True
    return grown
