"""The classes and families of instructions: a chip profile has a cost for each family."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nogpu import headers
from nogpu.clock.chip import Chip
from nogpu.clock.trace import Trace

CLASSES = tuple(map(str.lower, headers.enumerators("clock/native/clock.h", "Class")))
INSTRUCTION = np.dtype(headers.structure("clock/native/clock.h", "Instruction"))
"""variant: of tcgen05.cp, the number of quarters of tensor memory that get the same bytes. Of other classes 1 for a
load that the L1 cache keeps, a wait for groups (not a commit), an instruction that waits for the warp's stores, a copy
by a tensor map, a subroutine, and an MMA that finds A in the collector."""
SKIP_WAIT, SKIP_DATA = headers.constants("clock/native/clock.h", "SKIP_WAIT", "SKIP_DATA")
"""Bits of `skips`: an instruction's waits for others, and its wait for its own sources, cost nothing."""

# (pattern of the opcode, class, family in the profile's table). The first match counts.
_FAMILIES = [
    (r"(bra|brx|call|ret|exit|trap)\b", "branch", "branch"),
    (r"ld\.(param|const)", "plain", "constant"),
    (r"ldu?(?!matrix)\b.*\.(volatile|relaxed|acquire|cg|cv|mmio)", "load", "memory"),
    (r"ldu?(?!matrix)\b", "load", "memory"),
    (r"(ldmatrix)", "shared", "memory"),
    (r"(stmatrix)", "store", "memory"),
    (r"st\.async|red\.async", "async_store", "memory"),
    (r"st\.bulk", "plain", "memory"),
    (r"st\b", "store", "memory"),
    (r"(atom|red)\b", "atomic", "memory"),
    (r"cp\.async\.mbarrier", "cp_arrive", "memory"),
    (r"cp\.async\.(commit_group|wait_group|wait_all)", "cp_group", "uniform"),
    (r"cp\.(async|reduce\.async)\.bulk\.(commit_group|wait_group)", "copy_group", "uniform"),
    (r"cp\.(async|reduce\.async)\.bulk", "copy", "copy"),
    (r"cp\.async", "cp_async", "memory"),
    (r"mbarrier\.init", "init", "memory"),
    (r"mbarrier\.(test|try)_wait", "wait", "memory"),
    (r"mbarrier\.(arrive|expect|complete)", "mbarrier", "memory"),
    (r"tcgen05\.mma", "mma", "tensor"),
    (r"tcgen05\.cp", "tmem_copy", "tensor"),
    (r"tcgen05\.commit", "commit", "tensor"),
    (r"tcgen05\.(ld|st)", "tmem_load", "tensor"),
    (r"tcgen05\.wait", "tmem_wait", "uniform"),
    (r"tcgen05\.alloc", "alloc", "tensor"),
    (r"tcgen05\.dealloc", "dealloc", "tensor"),
    (r"tcgen05\.", "plain", "uniform"),
    (r"bar\.warp", "plain", "warp_sync"),
    (r"barrier\.cluster", "cluster", "memory"),
    (r"bar(rier)?\.(cta\.)?(sync|arrive|red)", "bar", "memory"),
    (r"griddepcontrol", "grid", "memory"),
    (r"clusterlaunchcontrol\.try_cancel", "cancel", "copy"),
    (r"nanosleep", "sleep", "uniform"),
    (r"fence\.proxy\.tensormap.*acquire", "edit", "map_acquire"),
    (r"fence\.proxy|fence\.mbarrier|membar|fence", "fence", "memory"),
    (r"prefetch\.tensormap", "map_prefetch", "uniform"),
    (r"tensormap\.replace", "edit", "map_replace"),
    (r"tensormap\.cp_fenceproxy", "edit", "map_publish"),
    (r"(tex|tld4|suld|sust|txq|suq)\b", "plain", "memory"),
    (r"setmaxnreg|prefetch|discard|applypriority|pragma|mapa|createpolicy|isspacep|getctarank", "plain", "alu"),
    (r"mma\.sync", "plain", "mma_sync"),
    (r"(mov|cvta|wmma)\b", "plain", "none"),  # of wmma only the check that all lanes execute it is left
    (r"(shfl|match|movmatrix)\b", "plain", "shuffle"),
    (r"(redux)\b", "plain", "redux"),
    (r"(vote|elect|activemask)\b", "plain", "vote"),
    (r"(rcp|sqrt)\.r[nzmp]", "plain", "reciprocal"),
    (r"(ex2|lg2|rcp|rsqrt|sqrt)\.approx\.f32", "plain", "special_scaled"),
    (r"(ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh)\.", "plain", "special"),
    (r"div\.approx", "plain", "special"),
    (r"div\.full", "plain", "division_full"),
    (r"(div|rem)\.[us]64", "plain", "division_long"),
    (r"(div|rem)\.[us]", "plain", "division_int"),
    (r"div\.", "plain", "division"),
    (r"cvt\b.*\.f16x2\.e2m1x2", "plain", "convert_e2m1"),
    (r"cvt\b.*\.(e2m1|e2m3|e3m2|e4m3|e5m2|ue8m0|s2f6)", "plain", "convert_narrow"),
    (r"cvt\b.*\.(f16x2|bf16x2)\.", "plain", "convert_pair"),
    (r"cvt\b.*\.[us](8|16|32)\.[us](8|16|32)|cvt\.[us]64\.[us]32|cvt\.[us]32\.[us]64", "plain", "alu"),
    (r"cvt\b", "plain", "convert"),
    (r"(fma|mul|add|sub|neg|abs|min|max)\b.*\.f64", "plain", "double"),
    (r"(fma|mul|add|sub|mad)\b.*\.(f32x2|f32|f16x2|bf16x2|f16|bf16)", "plain", "float"),
    (r"(mul|mad)\.wide", "plain", "multiply"),
    (r"(mul|mad)\.(lo|hi)\.[us]64", "plain", "multiply_long"),
    (r"(mul|mad|mul24|mad24|dp4a|dp2a)\b", "plain", "multiply"),
    (r".*\.[usb]64\b", "plain", "alu_long"),
    (r"(and|or|xor|not|cnot|lop3|shl|shr|shf|prmt|bfe|bfi|szext|bmsk|set|setp|selp|slct|min|max)\b", "plain", "logic"),
    (r".*", "plain", "alu"),
]
_PATTERNS = [(re.compile(pattern), kind, family) for pattern, kind, family in _FAMILIES]
# Instructions that wait until the warp's stores are visible to a whole cluster or the GPU.
_DRAINS = {
    "cluster": re.compile(r"arrive(?!.*relaxed)"),
    "fence": re.compile(r"membar\.(gl|sys)|fence\.(acq_rel|sc|acquire|release)\.(cluster|gpu|sys)"),
    "mbarrier": re.compile(r"\.(release|acq_rel)\.(cluster|gpu|sys)"),
}
_SUBROUTINES = {"reciprocal", "division", "division_long"}
"""Families whose instructions a warp executes one at a time: with a warp on each partition, independent ones take as
long as those of a chain (docs/results/h200-subroutines.json: rcp.rn 77 cycles, div.rn 57, div.u64 304).
"""
_COLLECTED = re.compile(r"\.collector::a::(use|lastuse)\b")
_UNCACHED = re.compile(r"\.(volatile|relaxed|acquire|cg|cv|mmio|cs|lu)\b|no_allocate")


@dataclass(frozen=True)
class Costs:
    """Costs of an entry's instructions on a chip."""

    table: np.ndarray  # INSTRUCTION[n]
    values: np.ndarray  # uint32: registers of the instructions, sources before results
    registers: int  # number of distinct registers
    families: list[str]


@lru_cache(maxsize=4096)
def family_of(opcode: str) -> tuple[str, str]:
    """The class and the family of an opcode."""
    for pattern, kind, family in _PATTERNS:
        if pattern.match(opcode):
            return kind, family
    raise AssertionError(opcode)  # unreachable: the last pattern matches everything


def costs_of(trace: Trace, chip: Chip) -> Costs:
    """The cost table of a launch's instructions. Raises ValueError for a chip without one of their families."""
    table = np.zeros(len(trace.instructions), INSTRUCTION)
    numbers: dict[str, int] = {}
    values: list[int] = []
    families = []
    for index, (instruction, flow) in enumerate(zip(trace.instructions, trace.flows, strict=True)):
        opcode = instruction.opcode
        kind, family = family_of(opcode)
        if family == "none" and flow.special:
            family = "special_register"
        families.append(family)
        sources = [numbers.setdefault(name, len(numbers)) for name in flow.uses[:255]]
        results = [numbers.setdefault(name, len(numbers)) for name in flow.defines[:255]]
        if family not in chip.instructions:
            raise ValueError(f"chip profile {chip.name!r} lacks the instruction family {family!r}, of {opcode}")
        cost = chip.instructions[family]
        variant = 0
        if kind == "plain":
            variant = family in _SUBROUTINES
        elif kind == "load":
            variant = not _UNCACHED.search(opcode)
        elif kind in ("copy_group", "cp_group"):
            variant = "wait" in opcode
        elif kind == "copy":
            variant = ".tensor" in opcode
        elif kind == "tmem_copy":
            variant = 4 if "warpx4" in opcode else 2 if "warpx2" in opcode else 1
        elif kind == "mma":
            variant = bool(_COLLECTED.search(opcode))
        elif kind in ("cluster", "fence", "mbarrier"):
            variant = bool(_DRAINS[kind].search(opcode))
        row = table[index]
        row["kind"], row["pipe"], row["variant"] = CLASSES.index(kind), cost.pipe, variant
        row["of_launch"] = opcode.startswith("ld.param")
        row["issue"], row["interval"], row["latency"] = cost.issue, cost.interval, cost.latency
        row["values"], row["sources"], row["results"] = len(values), len(sources), len(results)
        values += sources + results
    return Costs(table, np.array(values or [0], np.uint32), len(numbers), families)
