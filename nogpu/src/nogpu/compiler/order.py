"""The order of an opcode's modifiers.

The PTX ISA writes them in one order; ptxas takes them in any, and shipped PTX relies on that. Only modifiers of one
class, two types or two state spaces, mean different things by their order.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

FREE_LIMIT = 8  # most modifiers whose orders are tried

_NAMES = {
    "bar": "warp sync arrive red",
    "barrier": "cta cluster sync arrive wait red",
    "clusterlaunchcontrol": "try_cancel query_cancel async is_canceled get_first_ctaid",
    "cp": "async bulk tensor reduce prefetch commit_group wait_group wait_all mbarrier arrive",
    "createpolicy": "fractional range cvt",
    "cvt": "pack",
    "cvta": "to",
    "dp2a": "lo hi",
    "fence": "proxy",
    "mad": "lo hi wide",
    "mad24": "lo hi",
    "madc": "lo hi",
    "mbarrier": "init inval arrive arrive_drop expect_tx complete_tx test_wait try_wait parity pending_count",
    "mul": "lo hi wide",
    "mul24": "lo hi",
    "prefetch": "tensormap",
    "red": "async",
    "setmaxnreg": "inc dec",
    "shf": "l r",
    "st": "async bulk",
    "tensormap": "replace cp_fenceproxy",
    "wmma": "load store mma a b c d",
}
"""First part of an opcode -> the parts that belong to the instruction's name if they follow it."""
_CLASSES = {
    "type": r"pred|[bus]\d+|b?f\d+(?:x\d+)?|tf32|u?e\dm\d(?:x\d+)?|b\d+x\d+(?:_p\d+)?",
    "space": r"(?:shared|param)(?:::\w+)?|global|local|const",
    "layout": "row|col",
    "priority": r"L\d::evict_\w+",
}
_CLASS = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _CLASSES.items()))


def _name_length(parts: list[str]) -> int:
    """Number of leading parts that are the instruction's name; 0 if another of its parts stands behind a modifier."""
    if parts[0] == "tcgen05":
        return 2
    following = _NAMES.get(parts[0], "").split()
    length = 1 + len(list(itertools.takewhile(lambda part: part in following, parts[1:])))
    return 0 if set(following) & set(parts[length:]) else length


def orders(opcode: str) -> Iterator[str]:
    """The opcode with its modifiers in each order that means the same; none for more than FREE_LIMIT modifiers."""
    parts = opcode.split(".")
    length = _name_length(parts)
    name, modifiers = parts[:length], parts[length:]
    if not name or len(modifiers) > FREE_LIMIT:
        return
    matches = [_CLASS.fullmatch(modifier) for modifier in modifiers]
    kinds = [match.lastgroup if match else None for match in matches]
    fixed = [
        (a, b)
        for a, b in itertools.combinations(range(len(kinds)), 2)
        if (kinds[a] is not None and kinds[a] == kinds[b]) or modifiers[a] == modifiers[b]
    ]
    for chosen in itertools.permutations(range(len(modifiers))):
        if all(chosen.index(a) < chosen.index(b) for a, b in fixed):
            yield ".".join((*name, *(modifiers[index] for index in chosen)))
