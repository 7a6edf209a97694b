"""Neighbours, load warps and dual GEMMs broken in the kernel's source, one line at a time: the emulator must notice
each under its default schedules, by an error or by a wrong result. test_mutations.py breaks the PTX."""

import pytest

import reference
from tests.support.configurations import EMULATED, label_with_products, set_chip
from tests.support.mutants import source_mutant
from tests.support.slow import sampled

nogpu = pytest.importorskip("nogpu")
Machine = pytest.importorskip("nogpu.execution.machine").Machine
Queues = pytest.importorskip("nogpu.hardware.async_operations").Queues
pytestmark = pytest.mark.skipif(not EMULATED, reason="runs in the emulator")

SCHEDULES = ("late", "random:1", "random:2")


def outcomes(monkeypatch, folder, change, shape, products):
    """Yield None for each schedule with a right result, else the error or difference.

    One cluster has two blocks of weight rows of three tiles each: neighbours have the same weight rows or others. The
    last tiles are ragged, and an odd number of k-tiles makes the load warps change places.
    """
    module = source_mutant(folder, [change] if change else [])
    compared = reference.REFERENCES["gemm" if products == 1 else "dual_gemm"]
    sizes = {"m": 3 * shape[0] - 28, "n": 128 * shape[1] + 72, "k": 256 * 5 - 64, "l": 1, "seed": 11}
    want = compared.ref_kernel(compared.generate_input(**sizes))
    for schedule in SCHEDULES:
        set_chip(monkeypatch, [schedule])
        data = compared.generate_input(**sizes)
        data[-1].fill_(float("nan"))
        try:
            found = module.solve(data, configurations=(shape,), sms=shape[1] * shape[3]).clone()
        except nogpu.EmulatorError as error:
            yield f"{error}"
        else:
            passed, message = compared.compare(want, found)
            yield None if passed else f"wrong result: {message}"


OWN = "Int16((1 << plan.cta_group) - 1 << cta.neighbour * plan.cta_group)"
MASKS = {
    "a stage is empty when one of two CTAs has read it": ("Int32(plan.neighbours))", "Int32(1))"),
    "a stage's commits do not arrive in the neighbour": ("Int16((1 << plan.cluster_ctas) - 1)", OWN),
    "an accumulator's commits arrive in the neighbour, too": (
        "8 * accumulator), tile_ctas, plan)",
        "8 * accumulator), cluster_ctas, plan)",
    ),
    "a shared half arrives in one CTA": (
        "select_(shared, both << rank, 1 << own)",
        "select_(shared, 1 << own, 1 << own)",
    ),
    "halves arrive in the neighbour that shares nothing": (
        "select_(shared, both << rank, 1 << own)",
        "select_(shared, both << rank, both << rank)",
    ),
}
HALVES = {
    "both neighbours load the first half": ("or piece == cta.neighbour", "or piece == 0"),
    "neighbours share whatever their rows are": (
        "shares_weights = divide(index ^ 1, token_blocks) == block",
        "shares_weights = index >= 0",
    ),
    "the second half of the weights is the first": ("k_start, row + piece * piece_rows,", "k_start, row,"),
    "the second half of the weights overwrites the first": ("i * plan.rows + piece * piece_rows)", "i * plan.rows)"),
    "the second half of the scale factors is the first": ("source + piece_start,", "source,"),
    "the second half of the scale factors overwrites the first": ("target + piece_start,", "target,"),
}
PAIRS_OF_NEIGHBOURS = {
    "halves of a pair's other CTA arrive in the leaders": ("select_(shared, both << rank,", "select_(shared, both,"),
    "an accumulator's commits arrive in the first pair": (OWN, "Int16((1 << plan.cta_group) - 1)"),
}
OWN_STAGES = "if remainder(stage, LOAD_WARPS) == turn:\n                    full ="
LOADS = {
    "both load warps fill the even stages": ("self.load(cta, warp - first_load_warp,", "self.load(cta, Int32(0),"),
    "both load warps fill every stage": (OWN_STAGES, OWN_STAGES.replace("== turn", ">= 0")),
    "load warps do not wait for the last commits": (
        "if remainder(stage, LOAD_WARPS) == turn:\n                mbarrier_wait",
        "if turn == LOAD_WARPS:\n                mbarrier_wait",
    ),
}
DUAL = {
    "the second half's scale factors are copied in the first's order": ("product = i ^ second_half", "product = i"),
    "the first half's scale factors are copied in the second's order": ("product = i ^ second_half", "product = 1 - i"),
    "the second half is multiplied by the first's scale factors": (
        "weight_sf + second_half * (SF_COLUMNS // 2),",
        "weight_sf,",
    ),
    "the first weights' scale factors are copied twice": ("source = product * SF_STAGE + block", "source = block"),
    "the first weights' scale factors are loaded twice": ("weight_sf[i] + sf_offset", "weight_sf[0] + sf_offset"),
    "the first weights are loaded twice": ("weight_map[i], k_start", "weight_map[0], k_start"),
    "the second weights overwrite the first": ("(i * plan.rows + piece * piece_rows)", "(piece * piece_rows)"),
    "halves of 128 rows are 128 rows apart": (
        "divide(block, plan.products) * plan.cta_group",
        "block * plan.cta_group",
    ),
    "rows of the second product are stored behind the first's": (
        "remainder(quarter * WARP_ROWS, plan.rows)",
        "quarter * WARP_ROWS",
    ),
    "warps do not wait for what they receive": (
        "cute.arch.barrier(barrier_id=EXCHANGE_BARRIER",
        "dict(barrier_id=EXCHANGE_BARRIER",
    ),
    "all warps meet at one barrier": (
        "EXCHANGE_BARRIER + divide(warp, 4) * 2 + remainder(warp, 2)",
        "EXCHANGE_BARRIER",
    ),
    "warps send into one buffer": ("self.exchange(smem, remainder(exchanges, 2),", "self.exchange(smem, Int32(0),"),
    "warps receive what they have sent": ("buffer + (warp ^ 2) * warp_bytes", "buffer + warp * warp_bytes"),
    "warps send the sums that they keep": (
        "for first in (product, 1 - product)",
        "for first in (product, product)",
    ),
    "warps of both products store the same tokens": ("first += product * stored", "first += 0 * stored"),
    "silu of the second product": ("first = product == 0", "first = product == 1"),
}
DUAL_OF_MANY_TILES = {
    "half of the warps give an accumulator back": (
        "Int32(plan.epilogue_warps * plan.cta_group)",
        "Int32(4 * plan.cta_group)",
    ),
}
# Pairs have only the masks among the neighbours' mutations.
CASES = [
    *((name, change, (64, 1, 1, 2), 1) for name, change in (MASKS | HALVES | LOADS).items()),
    *((name, change, (64, 2, 1, 2), 2) for name, change in (MASKS | PAIRS_OF_NEIGHBOURS | DUAL_OF_MANY_TILES).items()),
    *((name, change, (64, 1, 2, 1), 2) for name, change in DUAL.items()),
]
CASES += [("nothing is broken", None, *how) for how in sorted({case[2:] for case in CASES})]


@pytest.mark.parametrize(
    ("name", "change", "shape", "products"),
    sampled(CASES, 6, names=4),
    ids=[f"{name}, {label_with_products(*how)}" for name, _, *how in CASES],
)
def test_mutations_alone_are_noticed(monkeypatch, tmp_path, name, change, shape, products):
    problem = next(filter(None, outcomes(monkeypatch, tmp_path, change, shape, products)), None)
    assert bool(problem) == bool(change), f"{name}: {problem or 'unnoticed'} under {', '.join(SCHEDULES)}"


def oldest_arrivals_last(queues):
    """Queues.run_one with arrivals in other CTAs when nothing else can happen, the newest first."""
    others = [queue for queue in queues._queues()[1:] if queue]
    if others:
        queues._run(queues.random.choice(others), 0)
    else:
        queues._run(queues._arrivals, -1)


LOOP = "for k_start in cutlass.range(0, k, K_TILE, unroll=1):\n                "
IN_TURNS = f"{LOOP}if remainder(stage, LOAD_WARPS) == turn:", f"{LOOP}turn ^= 1\n                if turn == 1:"


@pytest.mark.slow
@pytest.mark.parametrize("change", [None, IN_TURNS])
def test_a_stage_has_one_load_warp(monkeypatch, tmp_path, change):
    """Load warps that take turns at filling stages mistake one phase for another where a commit is late."""
    monkeypatch.setattr(Machine, "compiled_work", lambda machine, grid: None)  # all arrivals are in Queues
    monkeypatch.setattr(Queues, "run_one", oldest_arrivals_last)
    found = [problem for problem in outcomes(monkeypatch, tmp_path, change, (128, 2, 1, 2), 2) if problem]
    assert bool(found) == bool(change), found
