"""The tables of launches: the chosen configuration comes first, the others with the figure by which they lost."""

import json
import re

import pytest

import submission
import task
from harness import plan_report
from harness.launch_modes import LaunchMode
from tests.support.slow import sampled
from tools import plans


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Make the terminal wide enough for a row in a line."""
    monkeypatch.setenv("COLUMNS", "200")


def printed(capsys):
    """Title, cells of the header and cells of each row of the one printed table."""
    title, _, header, _, *rows, _ = capsys.readouterr().out.splitlines()
    return title, *([re.split(r"\s{2,}", line.strip()) for line in of] for of in ([header], rows))


def test_the_choice_and_what_the_others_lost_by(capsys):
    sizes = [(192, 3072, 4096, 1), (320, 3072, 4096, 1), (0, 128, 128, 1)]
    plans.explain(sizes, sms=148, mode=LaunchMode.OVERLAPPING)
    title, (header,), rows = printed(capsys)
    assert title == "2 groups on 148 SMs, overlapping:"
    # Tiles of few tokens cannot take these groups.
    assert len(rows) == sum(each.token_tile > submission.FEW_TOKENS for each in submission.legal_configurations())
    assert header[:4] == ["tile", "CTAs per MMA", "CTAs per SM", "side by side"]
    assert header[-2:] == ["MB requested", "lost by"]
    found = submission.candidates(((320, 3072, 4096), (192, 3072, 4096)), 148, overlapping=True)
    assert rows[0] == [*plans.describe(found[0]).values(), "chosen"]
    for row, other in zip(rows[1:], found[1:]):
        total, name = other.cost(True) - found[0].cost(True), "[a-z][a-z0-9]+"
        if total < 0:
            assert row[-1] == f"{other.cost() - found[0].cost():.2f} us where calls do not overlap"
        else:
            assert re.fullmatch(rf"{total:.2f} us(: {name}(, {name})?)?", row[-1])


def test_costs_are_of_the_rates_that_bound_a_schedule():
    """Pairs cost 0 without them and the whole constant with them; the chip stays as it was."""
    before = submission.BLACKWELL
    sizes = ((128, 3072, 4096),)
    for pair in (1, 2):
        schedule = submission.Schedule(submission.Plan(1, 64, pair), sizes, 148)
        found = plans.costs(schedule, False)
        assert found["pair"] == pytest.approx((pair - 1) * before[0].pair) and found["neighbours"] == 0
        assert found["dram"] > 0 and sum(found.values()) < 2 * schedule.cost()
    assert submission.BLACKWELL == before


def test_calls_that_promise_nothing_have_another_choice(capsys, tmp_path):
    path = tmp_path / "plans.json"
    arguments = ["m: 256; n: 4096; k: 7168; l: 1", "--problem", "dual_gemm", "--sms", "132"]
    plans.main(arguments)
    title, _, rows = printed(capsys)
    assert title == "1 group on 132 SMs, ordinary launches:"
    (launch,) = submission.configure(((256, 4096, 7168, 1),), 132, False, 2)
    assert rows[0] == [*plans.describe(launch.schedule).values(), "chosen"]
    plans.main([*arguments, "--save", str(path)])
    (saved,) = json.loads(path.read_text())["launches"]
    assert f"{saved['title']}:" == title and [list(row.values()) for row in saved["rows"]] == rows


BENCHMARKS = [(name, case.line) for name, problem in task.PROBLEMS.items() for case in problem.benchmarks[::-1]]


@pytest.mark.parametrize(("problem", "line"), sampled(BENCHMARKS, 4, names=2))
def test_every_problem_has_a_report_and_a_command(capsys, monkeypatch, problem, line):
    """`eval.py` shows the report's figures; the command takes the spec lines of the contest."""
    monkeypatch.setattr(plan_report, "current_sms", lambda: 148)
    report = plan_report.plan_report(plans.sizes_of(line, problem), problem)
    plans.main([line, "--problem", problem])
    _, (header,), rows = printed(capsys)
    assert [*report.items()] == [*zip(header, rows[0])][: len(report)]


def test_launches_of_many_groups_and_of_none(monkeypatch, capsys):
    monkeypatch.setattr(plan_report, "current_sms", lambda: 148)
    groups = submission.MAX_GROUPS + 1
    sizes = ((64, 128, 256, 1),) * groups
    tiles = [f"{launch.schedule.tiles}" for launch in submission.configure(sizes, 148)]
    assert len(tiles) == 2 and plan_report.plan_report(sizes)["tiles"] == " + ".join(tiles)
    assert plan_report.plan_report([(0, 128, 256, 1)]) == {}
    plans.explain([(0, 128, 128, 1)], sms=148)
    assert capsys.readouterr().out == "nothing to launch: no group has tokens\n"


@pytest.mark.parametrize(
    ("problem", "size", "message"),
    [("group_gemm", (64, 100, 128, 1), "n is 100"), ("gemv", (64, 1, 100, 1), "k is 100")],
)
def test_sizes_that_the_kernel_cannot_take_are_refused(problem, size, message):
    with pytest.raises(ValueError, match=message):
        plans.explain([size], problem, 148)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["m: [1, 2]; n: [8]; k: [64]"], "group_gemm takes lists m, n and k of one length"),
        (["m: 96; n: 8; k: 64"], "group_gemm takes lists"),
        (["m: 96; n: 8; k: [64]", "--problem", "gemm"], "gemm takes numbers m, n"),
        (["m: 96; k: 64", "--problem", "dual_gemm"], "dual_gemm takes numbers .* 'n'"),
        (["m: 96; k: 100", "--problem", "gemv"], "k is 100; it must be 64 to"),
        (["m = 96"], "'m = 96' is not 'key: value'"),
    ],
)
def test_the_command_says_what_is_wrong_with_a_line(arguments, message):
    with pytest.raises(SystemExit, match=f"^tools.plans: .*{message}"):
        plans.main(arguments)
