"""Chains: loads of words and the arithmetic on them that one kernel executes (native/chains.c).

A chain's instructions stand in a row in a block. Other arithmetic between them that they do not feed goes ahead of
them. Sums that only make addresses for the chain's loads, and values that only the chain reads, are computed where
the kernel leaves the chain to the instructions' own operations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from nogpu import headers
from nogpu.compiler.flow import EXIT, Block, Step
from nogpu.compiler.operands import CLOCKS
from nogpu.compiler.plan import Plan
from nogpu.compiler.rowcode.addresses import shared_sum
from nogpu.ptx.ir import Address, Immediate, Instruction, Register, Special

_LEAST = 3  # loads and arithmetic instructions of a chain
_REACH = 64  # most instructions ahead of a chain that stand between two of its own
(_MOST_PLACES,) = headers.constants("native/chains.c", "MOST_PLACES")
_LOAD = re.compile(r"ld\.(?:weak\.)?(global|shared)(?:::cta)?(?:\.nc)?\.(?:[bus]32|f32)")
_ARITHMETIC = re.compile(r"(?:add|sub|mul)(?:\.rn)?\.f32|fma\.rn\.f32")
_INTEGER = re.compile(r"(?:add|sub|mul\.lo|mad\.lo)\.[su]32")
_WORTH = re.compile(rf"{_ARITHMETIC.pattern}|mad\.lo\.[su]32")  # arithmetic that chains are looked for around


@dataclass
class Chain:
    """Instructions by their indices."""

    ahead: list[int] = field(default_factory=list)
    """Arithmetic that is executed ahead of the chain."""
    sums: list[int] = field(default_factory=list)
    """Sums that only the chain's loads use."""
    loads: list[int] = field(default_factory=list)
    arithmetic: list[int] = field(default_factory=list)
    sources: dict[int, list[int | None]] = field(default_factory=dict)
    """Arithmetic -> by source: the chain's instruction that has computed or loaded it; None: none has."""
    kept: set[int] = field(default_factory=set)
    """Loads and arithmetic whose results are read behind the chain."""
    end: int = 0
    """The instruction behind the chain."""


def is_integer(instruction: Instruction) -> bool:
    """True for integer arithmetic that a chain can have."""
    return _INTEGER.fullmatch(instruction.opcode) is not None


class _Scan:
    """A look for the chains of a block."""

    def __init__(self, plan: Plan, block: Block) -> None:
        self._plan, self._flow, self._block = plan, plan.flow, block
        self._eager: set[int] = set()  # sums that something else reads, too
        self._refused: set[int] = set()

    def chain(self, start: int) -> Chain | None:
        """The chain at an instruction, if there is one that is worth it."""
        while True:
            found = self._scan(start)
            if found is None:
                continue
            if not found.arithmetic or len(found.loads) + len(found.arithmetic) < _LEAST:
                return None
            defined = {register.name: index for index in found.sums for register in self._flow.steps[index].defines}
            live = {index for name, index in defined.items() if self._is_read(name, found.end)}
            last: dict[str, int] = {}
            for index in sorted(found.loads + found.arithmetic):
                last[self._result(index)] = index
            found.kept = {index for name, index in last.items() if self._is_read(name, found.end)}
            shared = {index for index in found.kept if self._flow.kinds[self._result(index)] == "uniform"}
            if not live and not shared:
                return found
            self._eager |= live
            self._refused |= shared

    def _result(self, index: int) -> str:
        return self._flow.steps[index].defines[0].name

    def _scan(self, start: int) -> Chain | None:
        """The chain as far as it is known which sums and loads belong to it; None if another sum does not."""
        chain, ahead = Chain(), list[int]()
        read = set[str]()  # registers that the chain reads
        addressing, bases = set[str](), set[str]()  # those that its sums and loads read; that its loads read
        values = dict[str, int]()  # register -> the load or arithmetic that has written it last
        sums = dict[str, int]()
        for index in range(start, self._block.end):
            step = self._flow.steps[index]
            kind = self._kind(index, step)
            if kind is None or len(ahead) > _REACH:
                break
            defines, uses = ({register.name for register in x} for x in (step.defines, step.uses))
            if kind in ("ahead", "sum") and uses & values.keys() and self._counts(step):
                kind = "arithmetic"
            if kind == "ahead":
                if uses & values.keys() or defines & (read | values.keys() | sums.keys()):
                    break
                if uses & sums.keys():
                    self._eager |= {sums[name] for name in uses & sums.keys()}
                    return None
                ahead.append(index)
                continue
            if kind == "sum":
                if uses & values.keys() or defines & (read | values.keys() | sums.keys() | uses):
                    break
                chain.sums.append(index)
                sums[self._result(index)] = index
                addressing |= uses
            elif defines & (addressing | sums.keys() | (uses if kind == "load" else set())):
                break
            elif kind == "load":
                if uses & values.keys() or len(bases | uses) > _MOST_PLACES:
                    break
                bases |= uses
                addressing |= uses
                chain.loads.append(index)
            else:
                if uses & sums.keys():
                    break
                operands = step.instruction.operands[1:]
                chain.arithmetic.append(index)
                chain.sources[index] = [values.get(x.name) if isinstance(x, Register) else None for x in operands]
            if kind != "sum":
                values[self._result(index)] = index
            chain.ahead += ahead
            ahead = []
            read |= uses
            chain.end = index + 1
        return chain

    def _kind(self, index: int, step: Step) -> str | None:
        """The part of an instruction in a chain: "load", "sum", "arithmetic" or "ahead"; None if it ends the chain."""
        instruction, (row, _) = step.instruction, self._plan.rows[index]
        is_plain = not (step.target or step.ends or step.blocks or step.parts or instruction.predicate)
        if not is_plain or index in self._plan.first_uses or index in self._refused:
            return None
        kinds = self._flow.kinds
        if load := _LOAD.fullmatch(instruction.opcode):
            result, address = instruction.operands[:2]
            if len(instruction.operands) != 2 or not isinstance(result, Register) or not isinstance(address, Address):
                return None
            base, bits = address.base, 64 if load[1] == "global" else 32
            if not isinstance(base, Register) or base.width != bits or result.width != 32 or address.offset % 4:
                return None
            return "load" if kinds[base.name] == kinds[result.name] else None
        operands = instruction.operands
        if row.emit is not None or any(isinstance(x, Special) and x.name in CLOCKS for x in operands):
            return None
        if _ARITHMETIC.fullmatch(instruction.opcode) and all(isinstance(x, Register | Immediate) for x in operands):
            return "arithmetic" if kinds[step.defines[0].name] == "lanes" else "ahead"
        if index not in self._eager and shared_sum(self._flow, instruction) is not None:
            return "sum"
        return "ahead"

    def _counts(self, step: Step) -> bool:
        """True for integer arithmetic on rows."""
        sources = step.instruction.operands[1:]
        is_plain = all(isinstance(x, Register | Immediate) for x in sources)
        return is_integer(step.instruction) and is_plain and self._flow.kinds[step.defines[0].name] == "lanes"

    def _is_read(self, name: str, start: int) -> bool:
        """True if an instruction behind the chain may read a register's value."""
        for step in self._flow.steps[start : self._block.end]:
            if any(register.name == name for register in step.uses):
                return True
            if step.instruction.predicate is None and any(register.name == name for register in step.defines):
                return False
        ways = (successor for successor in self._block.successors if successor != EXIT)
        return any(name in self._flow.blocks[way].live_in for way in ways)


def chains_of(plan: Plan, block: Block) -> dict[int, Chain]:
    """The chains of a block, by their first instructions."""
    found: dict[int, Chain] = {}
    scan, index = _Scan(plan, block), block.start
    for arithmetic in range(block.start, block.end):
        if not _WORTH.fullmatch(plan.entry.instructions[arithmetic].opcode):
            continue
        index = max(index, arithmetic - _REACH)
        while index <= arithmetic:
            chain = scan.chain(index)
            if chain is not None:
                found[index] = chain
            index = index + 1 if chain is None else chain.end
    return found
