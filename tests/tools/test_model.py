"""The cost model's counts are those of the schedule; its sums follow from them."""

import json

import pytest

import reference
import task
from tests.support.configurations import EVERY, label, label_with_products
from tools import model

CASES = [task.TestSpec.parse(benchmark.line).args for benchmark in task.PROBLEMS["group_gemm"].benchmarks]


def estimate(args, sms=148):
    return model.estimate(list(zip(args["m"], args["n"], args["k"])), sms)


@pytest.mark.parametrize("args", CASES[2:], ids="23")
def test_minimum_bytes_are_the_references(args):
    data = reference.generate_input(**args)
    assert estimate(args).minimum_bytes == sum(reference.group_gemm_minimum_traffic(data))


def estimate_with(shape, sizes, sms, products=1):
    return model.estimate(sizes, sms, products=products, configurations=(shape,))


@pytest.mark.parametrize(("shape", "products"), EVERY, ids=[label_with_products(*case) for case in EVERY])
def test_loads_of_whole_tiles_are_the_requested_bytes(shape, products):
    """Where no box is clipped, CTAs load what is requested, a pair's scale factors of tokens in each of the two."""
    sizes = [(768, 512, 1280), (384 if shape[0] == 192 else 256, 256, 1024)]
    found = estimate_with(shape, sizes, 148, products)
    assert sum(map(found.loaded, range(found.schedule.ctas))) == found.schedule.requested_bytes
    # Every sum but those that a share stores itself goes to another one, as fp32.
    sums = found.schedule.tiles * shape[0] * 128 * shape[1] * products * 4
    assert sum(found.loads) == found.schedule.requested_bytes + (shape[3] - 1) * sums


@pytest.mark.parametrize("shape", [(192, 1, 1, 2), (128, 2, 1, 4)], ids=label)
def test_shares_of_k_run_on_sms_side_by_side(shape):
    """Clusters of two and eight CTAs on 21 SMs: some of them can have none."""
    cluster = shape[1] * shape[3]
    slots = 21 // cluster
    found = estimate_with(shape, [(shape[0], (slots + 1) * 128 * shape[1], 1024)], 21)
    (load,) = set(found.loads)
    assert found.by_sm(found.loads) == [2 * load] * cluster + [load] * (slots - 1) * cluster + [0] * (21 % cluster)


def test_shares_of_k_of_different_length():
    """Seven k-tiles in four shares."""
    found = estimate_with((128, 2, 1, 4), [(128, 256, 1792)], 148)
    assert [found.tiles(cta) for cta in range(8)] == [[(k_tiles, 128, 1)] for k_tiles in (1, 1, 2, 2, 2, 2, 2, 2)]


def test_minimum_bytes_of_a_dual_gemm():
    data = reference.generate_dual_gemm_input(m=256, n=384, k=512, l=1, seed=1)
    minimum = model.estimate([(256, 384, 512)], 148, products=2).minimum_bytes
    assert minimum == sum(reference.dual_gemm_minimum_traffic(data))


@pytest.mark.parametrize("shape", [(192, 1, 2, 1), (192, 2, 2, 1), (128, 1, 1, 1)], ids=str)
def test_the_busiest_sm(shape):
    """24 tiles of one size, and with two CTAs per SM one for each CTA: 4 SMs have 6 or, of a pair each, 12 of them."""
    found = estimate_with(shape, [(shape[0], 24 * 128 * shape[1], 1024)], 4)
    (load,) = {found.loaded(cta) // len(found.tiles(cta)) for cta in range(found.schedule.ctas)}
    assert found.by_sm(found.loads) == [24 * shape[1] // 4 * load] * 4
    uneven = estimate_with(shape, [(shape[0], 25 * 128 * shape[1], 1024)], 4)
    tiles = 7 if shape[1] == 1 else 13
    assert uneven.in_turn_us["SM"] * model.SM_BYTES_PER_US == pytest.approx(tiles * load)


@pytest.mark.parametrize("args", CASES, ids="0123")
def test_terms(args):
    found = estimate(args)
    overlapping, in_turn = found.overlapping_us, found.in_turn_us
    assert overlapping["DRAM"] == in_turn["DRAM"] == found.minimum_bytes / 7.2e6
    assert overlapping["SM"] * 90e3 * 148 == pytest.approx(sum(found.loads))
    assert in_turn["SM"] * 90e3 == pytest.approx(max(sum(found.loads[sm::148]) for sm in range(148)))
    # 128 x 128 x 64 per MMA and CTA: every scaled product is computed once, rounded up to whole parts of tokens.
    work = sum(found.mma_cycles) / 64 * 128 * 128 * 64
    useful = sum(m * n * k for m, n, k in zip(args["m"], args["n"], args["k"]))
    assert useful <= work <= 2 * useful
    assert all(overlapping[name] <= in_turn[name] for name in overlapping)


def test_table(capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it, and the table would be folded
    model.main(["--save", str(tmp_path / "model.json")])
    text = capsys.readouterr().out
    assert "not a measurement" in text and "case 3" in text and text.count("DRAM") >= 3
    saved = json.loads((tmp_path / "model.json").read_text())
    assert saved["sms"] == 148 and len(saved["cases"]) == 4
    for case in saved["cases"]:
        assert all(name in text and value in text for name, value in case.items())
