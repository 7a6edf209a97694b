"""The cost model's counts are those of the schedule; its sums follow from them."""

import pytest

import model
import reference
import submission
import task

CASES = [task.TestSpec.parse(benchmark.line).args for benchmark in task.PROBLEMS["group_gemm"].benchmarks]


def estimate(args, sms=148):
    return model.estimate(list(zip(args["m"], args["n"], args["k"])), sms)


@pytest.mark.parametrize("args", CASES[2:], ids=["3", "4"])
def test_minimum_bytes_are_the_references(args):
    data = reference.generate_input(**args)
    assert estimate(args).minimum_bytes == sum(reference.group_gemm_minimum_traffic(data))


@pytest.mark.parametrize(("cta_group", "token_tile"), [(1, 128), (1, 64), (2, 128)])
def test_loads_of_whole_tiles_are_the_requested_bytes(monkeypatch, cta_group, token_tile):
    """Where no box is clipped, a CTA loads what is requested, and a pair's scale factors of tokens once more."""
    monkeypatch.setattr(submission, "shapes", lambda: [(token_tile, cta_group, 1)])
    submission.configure.cache_clear()
    found = model.estimate([(256, 512, 1024), (128, 256, 512)], 148)
    submission.configure.cache_clear()
    requested = found.schedule.requested
    assert sum(found.loads) == found.schedule.requested_bytes + (cta_group - 1) * requested["token SF"]


@pytest.mark.parametrize("args", CASES, ids="1234")
def test_terms(args):
    found = estimate(args)
    overlapping, in_turn = found.overlapping_us, found.in_turn_us
    assert overlapping["DRAM"] == in_turn["DRAM"] == found.minimum_bytes / 7.2e6
    assert overlapping["SM"] * 90e3 * 148 == pytest.approx(sum(found.loads))
    assert in_turn["SM"] * 90e3 == pytest.approx(max(found.loads))
    # 128 x 128 x 64 per MMA and CTA: every scaled product is computed once, rounded up to whole parts of tokens.
    work = sum(found.mma_cycles) / 64 * 128 * 128 * 64
    useful = sum(m * n * k for m, n, k in zip(args["m"], args["n"], args["k"]))
    assert useful <= work <= 2 * useful
    assert all(overlapping[name] <= in_turn[name] for name in overlapping)


def test_table(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["model.py"])
    model.main()
    text = capsys.readouterr().out
    assert "not a measurement" in text and "case 4" in text and text.count("DRAM") >= 3
