"""The table of lowering rules: opcode pattern -> rule, for the instructions that sm_90a lacks.

A rule takes a statement and the context. It returns the PTX that replaces the statement, guard included, or None if the
statement stays. `CANNOT` lists the instructions that have no equal on a Hopper, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from nogpu.hopper.context import Context
from nogpu.hopper.rules_copies import bulk_copy, replace_field, tensor_copy
from nogpu.hopper.rules_e2m1 import convert, split
from nogpu.hopper.rules_tcgen05 import MODELLED, access, alloc, commit, copy, dealloc, fence, mma
from nogpu.hopper.rules_threads import cluster_arrive, cluster_wait, cta_barrier, leave, set_registers
from nogpu.hopper.rules_words import packed_f32, three_inputs, wide_access
from nogpu.hopper.statements import Statement

Rule = Callable[[Statement, Context], "str | None"]

# (prefix of the opcode, reason), for opcodes without a rule
CANNOT = (
    (r"tcgen05\.", MODELLED),
    (r"clusterlaunchcontrol\.", "a Hopper has no cluster launch control"),
    (r"cp\..*\.(tile::(gather|scatter)4|im2col::w)", "a Hopper's TMA has no such mode"),
    (r"cvt\..*(e2m3x2|e3m2x2|ue8m0x2|s2f6x2)", "a Hopper has no such type"),
    (r"redux\.sync\..*f32", "a Hopper reduces integers only"),
    (r"(ld|st)matrix\..*(m16n16|m16n8|m8n16)", "a Hopper has 8x8 matrices of b16 only"),
    (r"mma\..*(kind::|block_scale)", "a Hopper's mma has no such kind"),
    (r"st\.bulk", "a Hopper has no bulk store of a value"),
)


def nothing(statement: Statement, context: Context) -> str:
    """The rule that drops a statement."""
    return ""


RULES: tuple[tuple[str, Rule], ...] = (
    (r"tcgen05\.alloc\.", alloc),
    (r"tcgen05\.dealloc\.", dealloc),
    (r"tcgen05\.relinquish_alloc_permit\.", nothing),
    (r"tcgen05\.(fence|wait)::", fence),
    (r"tcgen05\.cp\.", copy),
    (r"tcgen05\.mma\.cta_group", mma),
    (r"tcgen05\.(ld|st)\.sync\.", access),
    (r"tcgen05\.commit\.", commit),
    (r"cp\.(reduce\.)?async\.bulk\.(prefetch\.)?tensor\.(?!.*(gather4|scatter4|im2col))", tensor_copy),
    (r"cp\.async\.bulk\.shared", bulk_copy),
    (r"tensormap\.replace\.", replace_field),
    (r"barrier\.cluster\.arrive", cluster_arrive),
    (r"barrier\.cluster\.wait", cluster_wait),
    (r"(bar|barrier)(\.cta)?\.(sync|red)", cta_barrier),
    (r"(ret|exit)$", leave),
    (r"setmaxnreg\.", set_registers),
    (r"(add|mul|fma|sub)\.\S*f32x2$", packed_f32),
    (r"(min|max)\.\S*f32$", three_inputs),
    (r"cvt\.\S*e2m1x2", convert),
    (r"mov\.b32$", split),
    (r"(ld|st)\.(\S+\.)?global\S*\.(v8\.[busf]32|v4\.[busf]64)$", wide_access),
)
"""Pairs (prefix of the opcode, rule); the first that fits is taken."""


def rule(opcode: str) -> Rule | None:
    """The rule for an opcode, None if it has none."""
    for pattern, function in RULES:
        if re.match(pattern, opcode):
            return function
    return None


def reason_against(opcode: str) -> str | None:
    """The reason why an opcode without a rule cannot be lowered; None if `CANNOT` does not list it."""
    return next((reason for pattern, reason in CANNOT if re.match(pattern, opcode)), None)
