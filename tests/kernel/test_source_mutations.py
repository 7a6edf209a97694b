"""Split K and dual GEMMs broken in the kernel's source, one line at a time: the emulator must notice each under its
default schedules, by an error or by a wrong result. test_mutations.py breaks the PTX."""

import pytest

import reference
from tests.support.configurations import EMULATED, label, set_chip
from tests.support.mutants import source_mutant

emulator = pytest.importorskip("emulator")
pytestmark = pytest.mark.skipif(not EMULATED, reason="runs in the emulator")

SCHEDULES = ("late", "random:1", "random:2")


def outcomes(monkeypatch, folder, replacements, shape, products, schedules=SCHEDULES):
    """Per schedule: None if the result is right, else the error or difference. Two tiles, the second ragged."""
    module = source_mutant(folder, replacements)
    compared = reference.REFERENCES["gemm" if products == 1 else "dual_gemm"]
    sizes = {"m": shape[0] - 28, "n": 128 * shape[1] + 8, "k": 256 * (3 * shape[3] + 1) - 64, "l": 1, "seed": 11}
    want = compared.ref_kernel(compared.generate_input(**sizes))
    for schedule in schedules:
        set_chip(monkeypatch, [schedule])
        data = compared.generate_input(**sizes)
        data[-1].fill_(float("nan"))
        try:
            found = module.run(data, configurations=(shape,)).clone()
        except emulator.EmulatorError as error:
            yield schedule, f"{error}"
        else:
            passed, message = compared.compare(want, found)
            yield schedule, None if passed else f"wrong result: {message}"


ATTEND_ONCE = ("range(2 if self.plan.k_split > 1 else 0)", "range(1 if self.plan.k_split > 1 else 0)")
CLUSTER = {
    "sums are sent before all MMAs are done": [
        ("        cluster_arrive()\n        cluster_wait()\n        for distance in", "        for distance in"),
        ATTEND_ONCE,
    ],
    "sums are added before all have come": [
        ("        cluster_arrive_release()\n        cluster_wait()\n", ""),
        ATTEND_ONCE,
    ],
    "sums are sent to another rank": [
        ("(buffer, to * plan.cta_group", "(buffer, (to + 1) % plan.k_split * plan.cta_group")
    ],
}
EXCHANGE = {
    "sums of another rank's tokens are sent": [
        ("i * plan.part_tokens + to * plan.share_tokens", "i * plan.part_tokens + cta.split_rank * plan.share_tokens")
    ],
    "one sender's sums are not added": [("in range(plan.k_split - 1):", "in range(1, plan.k_split - 1):")],
    "a rank begins a k-tile late": [
        ("return rank * k_tiles // split * K_TILE,", "return (rank * k_tiles // split + 1) * K_TILE,")
    ],
    "a rank ends a k-tile early": [
        ("(rank + 1) * k_tiles // split * K_TILE,", "((rank + 1) * k_tiles // split - 1) * K_TILE,")
    ],
    "another rank's tokens are stored": [
        (
            "begin += cta.split_rank * plan.share_tokens",
            "begin += (plan.k_split - 1 - cta.split_rank) * plan.share_tokens",
        )
    ],
    "a rank stores the next one's tokens as well": [
        ("(0, plan.share_tokens, plan.epilogue_tokens)", "(0, 2 * plan.share_tokens, plan.epilogue_tokens)"),
        ("token + plan.epilogue_tokens < plan.share_tokens", "token + plan.epilogue_tokens < 2 * plan.share_tokens"),
    ],
}
MORE_SENDERS = {
    "senders write over each other's sums": [("(plan.k_split - distance - 1) * plan.share_bytes", "0")],
}
PAIRS = {
    "commits of all ranks arrive in the first pair": [
        ("Int16(PAIR << split_rank * plan.cta_group) if plan.k_split > 1 else Int16(PAIR)", "Int16(PAIR)")
    ],
    "both CTAs of a pair send to the leader": [("to * plan.cta_group + cta.rank)", "to * plan.cta_group)")],
}
DUAL = {
    "the second product takes the first one's scale factors in TMEM": [
        (
            "                        weight_sf,\n",
            "                        tmem + (plan.weight_sf_column + block * SF_COLUMNS),\n",
        )
    ],
    "the first weights' scale factors are copied twice": [
        ("i * SF_STAGE + block * SF_ATOM >> 4", "block * SF_ATOM >> 4")
    ],
    "the first weights' scale factors are loaded twice": [("weight_sf[i] + sf_offset", "weight_sf[0] + sf_offset")],
    "the first weights are loaded twice": [
        ("tma_load(part_smem, weight_map[i],", "tma_load(part_smem, weight_map[0],")
    ],
    "the first weights are multiplied twice": [("i * plan.weight_bytes + block * MMA_K", "block * MMA_K")],
    "the products share an accumulator": [("d + i * plan.part_tokens,", "d,")],
    "silu of the second product": [("silu_times, *results", "silu_times, *results[::-1]")],
}
DUAL_SPLIT = {
    "only the first product's sums are added": [("in enumerate(results):", "in enumerate(results[:1]):")],
    "the second product's sums are sent over the first one's": [
        ("(i * plan.share_tokens + first + token) // 4", "(first + token) // 4")
    ],
}
# CLUSTER is broken in pairs of CTAs as well, which meet at the same barriers; EXCHANGE does not know of pairs.
CASES = [
    *((name, change, (128, 1, 1, 4), 1) for name, change in (CLUSTER | EXCHANGE | MORE_SENDERS).items()),
    *((name, change, (64, 2, 1, 2), 2) for name, change in (CLUSTER | PAIRS | DUAL_SPLIT).items()),
    *((name, change, (64, 1, 2, 1), 2) for name, change in DUAL.items()),
]


@pytest.mark.parametrize(
    ("name", "change", "shape", "products"), CASES, ids=[f"{name}, {label(shape)}" for name, _, shape, _ in CASES]
)
def test_mutation_is_noticed(monkeypatch, tmp_path, name, change, shape, products):
    found = []
    for _, problem in outcomes(monkeypatch, tmp_path, change, shape, products):
        found.append(problem)
        if problem:
            break
    assert found[-1], f"{name}: unnoticed under {', '.join(SCHEDULES)}"


@pytest.mark.parametrize(
    ("shape", "products"),
    sorted({case[2:] for case in CASES}),
    ids=[label(s) for s, _ in sorted({c[2:] for c in CASES})],
)
def test_unmutated_source_is_silent(monkeypatch, tmp_path, shape, products):
    assert not any(problem for _, problem in outcomes(monkeypatch, tmp_path, [], shape, products))
