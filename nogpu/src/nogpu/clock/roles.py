"""Roles of the warps of a CTA, and the reasons of their waits, found in a recording."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from nogpu.clock.costs import family_of
from nogpu.clock.trace import Trace

_ROLES = (("mma", "MMA"), ("tmem_load", "epilogue"), ("copy", "loads"), ("store", "stores"))
_REASONS = {
    "bar": "named barrier",
    "cluster": "cluster barrier",
    "grid": "launch before",
    "copy_group": "bulk copies",
    "cp_group": "cp.async copies",
    "alloc": "tensor memory columns",
    "tmem_wait": "tensor memory",
    "sleep": "nanosleep",
}


@dataclass(frozen=True)
class Roles:
    """The roles of a launch's warps and the reasons of their waits."""

    names: list[str]
    """Role of each warp of a CTA: "loads", "MMA", "epilogue", ..."""
    reasons: dict[int, str]
    """Instruction at which warps wait -> reason of the wait."""


def roles_of_each(traces: Sequence[Trace]) -> list[Roles]:
    """The roles for each launch; launches of one kernel have those of the first."""
    keys = [(id(trace.instructions), trace.block, trace.cluster, trace.shared_bytes) for trace in traces]
    known = {key: trace for key, trace in zip(reversed(keys), reversed(traces))}
    found = {key: roles_of(trace) for key, trace in known.items()}
    return [found[key] for key in keys]


def roles_of(trace: Trace) -> Roles:
    """The roles of a launch's warps, from the instructions of the first CTA that has run, and of its cluster."""
    size = trace.cluster[0] * trace.cluster[1] * trace.cluster[2]
    filled = (trace.starts[:, -1] > trace.starts[:, 0]).nonzero()[0]
    if not len(filled):
        return Roles([], {})
    first = int(filled[0]) // size * size
    kinds = [family_of(instruction.opcode)[0] for instruction in trace.instructions]
    completers: dict[tuple[int, int], set[str]] = defaultdict(set)  # key: (rank, offset) of an mbarrier
    waited: dict[int, set[tuple[int, int]]] = defaultdict(set)
    warps = trace.starts.shape[1] - 1
    seen: list[set[str]] = [set() for _ in range(warps)]
    for rank in range(size):
        for warp in range(warps):
            for record in trace.records(first + rank, warp):
                kind, words = kinds[record.pc], record.words
                if kind in ("plain", "branch") or not words:
                    continue
                _note(kind, words, rank, completers, waited[record.pc])
                seen[warp].add("copy_out" if kind == "copy" and words[0] == 2 else kind)
    reasons = {
        pc: _REASONS.get(kinds[pc])
        or _reason(set().union(*(completers[place] for place in places)) if places else set())
        for pc, places in waited.items()
    }
    return Roles([_role(found, warp) for warp, found in enumerate(seen)], reasons)


def _note(
    kind: str,
    words: tuple[int, ...],
    rank: int,
    completers: dict[tuple[int, int], set[str]],
    waited: set[tuple[int, int]],
) -> None:
    """Note the effect of an instruction on mbarriers."""
    if kind == "wait":
        waited.add((rank, words[0] & 0xFFFFFF))
    elif kind == "mbarrier" and words[1]:
        completers[words[0] >> 24, words[0] & 0xFFFFFF].add("warps")
    elif kind == "commit":
        for target in range(words[1].bit_length()):
            if words[1] >> target & 1:
                completers[target, words[0] & 0xFFFFFF].add("tensor core")
    elif kind == "copy" and words[0] == 1:
        for target in range(words[3].bit_length()):
            if words[3] >> target & 1:
                completers[target, words[2] & 0xFFFFFF].add("loads")
        completers[words[2] >> 24, words[2] & 0xFFFFFF].add("loads")


def _reason(completers: set[str]) -> str:
    """The reason of a wait for mbarriers. Loads count first: bytes come after the arrival that expects them."""
    if "loads" in completers:
        return "loads"
    if "tensor core" in completers:
        return "tensor core"
    return "other warps" if completers else "data"


def _role(seen: set[str], warp: int) -> str:
    for kind, name in _ROLES:
        if kind in seen:
            return name
    return "stores" if "copy_out" in seen else f"warp {warp}"
