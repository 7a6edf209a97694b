"""Edits of submission.py that may make it faster on silicon, and configurations that its choice leaves out.

A trial is checked (`calls`) and timed (`times`) beside the unchanged file. A faster one belongs in submission.py.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from types import ModuleType

import harness.dsl  # noqa: F401
import submission
from tools.compare import edited_module
from tools.variants import Edit

# Cache policy, with cute.nvgpu's and CUTLASS's value: lines that are loaded with it are the first to leave L2.
EVICT_FIRST = "0x12F0000000000000"
HINTED = "{{.reg .b64 policy; mov.b64 policy, " + EVICT_FIRST + "; "  # inside an f-string


def hinted(opcode: str, places: str) -> Edit:
    """An edit that puts the hint on the instruction of submission.bulk_copy with this opcode and these operands."""
    return Edit("bulk_copy", f'"{opcode} {places};"', f'"{HINTED}{opcode}.L2::cache_hint {places}, policy;}}}}"')


PREFETCHES = """\
prefetch_map = instruction("prefetch.tensormap [$0];", "l")  # tensor map
prefetch_box = instruction("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [$0, {$1, $2}];", "l,r,r")
prefetch_bytes = instruction("cp.async.bulk.prefetch.L2.global [$0], $1;", "l,r")
"""
WAIT = "            if cta.promises & OPERANDS_READY == 0:\n"
# An earlier launch may still write prefetched lines: it writes them in L2, so that loads after the wait are right.
PREFETCH = f"""\
            if tile == cta.first_tile and turn * K_TILE < k:
                ahead_bytes = cutlass.min(k - turn * K_TILE, K_TILE) * (SF_ATOM // MMA_K)
                ahead_sf = Int64(turn) * SF_STAGE
                for i in cutlass.range_constexpr(plan.products):
                    for piece in cutlass.range_constexpr(plan.neighbours):
                        prefetch_box(weight_map[i], turn * K_TILE, row + piece * (plan.rows // plan.neighbours))
                    prefetch_bytes(weight_sf[i] + ahead_sf, ahead_bytes)
                prefetch_box(token_map, turn * K_TILE, first_token)
                prefetch_bytes(token_sf + ahead_sf, ahead_bytes)
{WAIT}"""
TRIALS: dict[str, tuple[Edit, ...]] = {
    "EVICT_FIRST hints on all loads": (
        hinted("{opcode}", "{places}"),
        hinted("{opcode}.multicast::cluster", "{places}, ${len(operands)}"),
    ),
    "two k-tiles prefetched to L2 before the wait": (
        Edit(None, PREFETCHES.splitlines(keepends=True)[0], PREFETCHES),
        Edit("Gemm", WAIT, PREFETCH),
    ),
    "one load warp": (Edit(None, "\nLOAD_WARPS = 2\n", "\nLOAD_WARPS = 1\n"),),
    "epilogue reads 64 columns at once": (Edit(None, "\nEPILOGUE_TOKENS = 32 ", "\nEPILOGUE_TOKENS = 64 "),),
}


@functools.cache
def module(name: str) -> ModuleType:
    """A module of submission.py with the edits of a trial. Raises ValueError if an edit does not fit."""
    return edited_module(*TRIALS[name])


def left_out(products: int) -> list[submission.Configuration]:
    """The configurations that the kernel can take but `legal_configurations` leaves out."""
    every = itertools.product(submission.TOKEN_TILES, *[(1, 2)] * 3)
    found, legal = [], submission.legal_configurations(products)
    for configuration in map(submission.Configuration._make, every):
        with contextlib.suppress(ValueError):
            submission.Plan(1, *configuration, products)
            if configuration not in legal:
                found.append(configuration)
    return found
