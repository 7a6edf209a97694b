"""tools.first_light: the plan of steps, the page, the constants that it suggests, and the command in the emulator."""

import dataclasses
import functools
import html.parser
import itertools
import json
import re
import subprocess
import sys

import pytest
import torch
from cuda.bindings import driver

import reference
import submission
from harness import options
from harness.launch_modes import PROGRAMMATIC, LaunchMode
from harness.plan_report import configuration_name, configuration_of
from task import PROBLEMS
from tests.support.commands import ROOT, clean_environment
from tests.support.slow import sampled
from tools import report
from tools.rows import Row
from tools.sitting import answer, calls, clusters, drawings, page, suggest, times, trials, work
from tools.sitting.outcomes import RESULTS, Writer, read_events
from tools.sitting.steps import B200, EMULATED_GROUPS, EMULATOR, HOPPER, last_steps, steps
from tools.stages import at_most

GROUPS = {name: list(checks) for name, checks in calls.groups().items()}
LEGAL = [each for each in submission.legal_configurations() if each.token_tile > submission.FEW_TOKENS]
OURS = [f"ours, {mode}" for mode in LaunchMode]
CLUSTER = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
MOST_BYTES = 2_000_000  # limit of the page and of the JSON: they are mailed

# ---- Steps ----


def test_every_configuration_is_forced_pairs_first():
    of_group = [name for name in GROUPS if name.count(".") == 4]
    assert len(of_group) == sum(len(submission.legal_configurations(products)) for products in submission.PRODUCTS)
    left_out = [name for name in GROUPS if name.startswith("trials.")]
    assert left_out == list(GROUPS)[-len(left_out) :]
    assert len(left_out) == sum(len(trials.left_out(products)) for products in submission.PRODUCTS)
    pairs = [".sm2." in name for name in of_group]
    assert pairs == sorted(pairs, reverse=True) and any(pairs) and not all(pairs)
    assert all({"edges", "overlap", "shared"} <= set(GROUPS[name]) for name in of_group)


@pytest.mark.parametrize("device", (B200, HOPPER, EMULATOR))
def test_steps_of_a_device(device, tmp_path):
    found = steps(device, GROUPS, tmp_path)
    names = [step.name for step in found]
    assert len(set(names)) == len(names)
    groups = [name.removeprefix("calls.") for name in names if name.startswith("calls.")]
    assert groups == (list(filter(EMULATED_GROUPS.__contains__, GROUPS)) if device == EMULATOR else list(GROUPS))
    assert all(step.limit_s >= step.needs_s for step in [*found, *last_steps(device, tmp_path)])
    modes = {"test", "benchmark", "leaderboard"}
    kinds = {"calls", "clusters", "compare", "trials", "stages", "calibrate"}
    assert {name.split(".")[0] for name in names} == modes | kinds
    for step in found:
        mode, _, problem = step.name.partition(".")
        if mode in modes:
            specs = PROBLEMS[problem].read_spec_file(tmp_path / f"{step.name}.specs")
            assert len(specs) == len(step.expected)
            limit_s = float(step.command[step.command.index("--timeout") + 1])
            assert limit_s < step.limit_s if mode == "test" else limit_s >= step.limit_s  # slow is not wrong
            assert device == EMULATOR or len(specs) == (10 if mode == "test" else len(PROBLEMS[problem].benchmarks))
    refused = {step.name.split(".")[0] for step in found if step.refusal}
    assert (
        refused == {B200: set(), HOPPER: {"leaderboard"}, EMULATOR: {"clusters", "compare", "trials", "stages"}}[device]
    )
    # Timing steps have the GPU to themselves.
    timed = ("compare", "trials", "stages")
    assert not [step.name for step in found if step.name.split(".")[0] in timed and not step.alone]
    if device == B200:
        assert not [s.name for s in found if s.name.startswith(("benchmark", "leaderboard")) and not s.alone]
        assert all("--baseline" in step.command for step in found if step.name.startswith("benchmark"))


# ---- A step's process ----


@pytest.fixture
def writer(tmp_path, monkeypatch):
    monkeypatch.setenv(RESULTS, str(tmp_path / "events"))
    return Writer()


def spoiled(data, *arguments, configurations=None, **promises):
    """submission.solve with one element of the first output wrong."""
    result = original(data, *arguments, configurations=configurations, **promises)
    calls.outputs_of(data)[0].view(torch.int16)[0, 0] ^= 1
    return result


original = submission.solve


@pytest.mark.parametrize("run", (original, spoiled), ids=["right", "wrong"])
def test_checks_compare_every_bit(writer, tmp_path, monkeypatch, run):
    monkeypatch.setattr(submission, "solve", run)
    sizes = calls.arguments([(16, 136, 192), (7, 8, 64)])
    found = calls.of_configuration("group_gemm", {"edges": sizes}, ((64, 2, 2, 1),))
    monkeypatch.setattr(calls, "groups", lambda: {"one": found})
    monkeypatch.setattr(calls, "LONGER", 2)
    work.run_calls(writer, "one")
    ends = {check.name: check for check in read_events(tmp_path / "events").checks}
    assert list(ends) == ["edges", "overlap", "shared"]
    assert {check.passed for check in ends.values()} == {run is original}
    if run is spoiled:
        assert "call 0 of 15" in ends["overlap"].message and "call 14 of 15" in ends["shared"].message


def test_each_of_overlapping_calls_is_compared(monkeypatch):
    """Any one wrong call of fifteen is found."""
    args = calls.arguments([(16, 8, 64)])
    for wrong in (0, 7, 14):
        count = itertools.count(-2)  # the first and the last input compile

        def run(data, *arguments, wrong=wrong, count=count, **promises):
            return (spoiled if next(count) == wrong else original)(data, *arguments, **promises)

        monkeypatch.setattr(submission, "solve", run)
        with pytest.raises(AssertionError, match=f"call {wrong} of 15"):
            calls.solve("group_gemm", args, None, 15, operands_ready=True, output_free=True)


@pytest.fixture
def timed(monkeypatch):
    """Names of the rows, which are not run: the n-th takes n microseconds."""
    names = []

    def time_row(row, flush, repeats):
        names.append(row.name)
        return [float(len(names))] * repeats, True

    data = reference.generate_input(m=(70, 200), n=(136, 128), k=(1088, 1024), g=2, seed=3)
    sizes = tuple(map(tuple, reference.REFERENCES["group_gemm"].problem_sizes(data)))
    cases = [times.Timed("group_gemm", case, [data], sizes, 1 << 20, 1) for case in range(2)]
    monkeypatch.setattr(times, "time_row", time_row)
    monkeypatch.setattr(times, "_flush", lambda: None)
    monkeypatch.setattr(times, "timed_cases", lambda problem: cases)
    monkeypatch.setattr(times, "memory_rows", lambda *_: iter([Row("plain read", None, [None])]))
    return names


@pytest.mark.slow
def test_every_configuration_is_timed_in_the_order_of_the_choice(writer, tmp_path, timed):
    times.compare(writer, "group_gemm")
    found = read_events(tmp_path / "events")
    assert not found.checks and timed[:8] == [*OURS, "plain read"] * 2
    of_shapes = [figure for figure in found.figures if "configuration" in figure]
    shapes = {(tuple(f["configuration"]), f["case"], f["launches"]) for f in of_shapes}
    assert shapes == set(itertools.product(map(tuple, LEGAL), (0, 1), ("overlapping", PROGRAMMATIC)))
    assert len(of_shapes) == len(shapes)
    first = [figure["name"] for figure in of_shapes[:4]]
    assert len(set(first)) == 1 and [figure["case"] for figure in of_shapes[:4]] == [0, 0, 1, 1]
    cases = suggest.suggestion(of_shapes, SMS)["cases"]
    assert [(case["case"], case["launches"]) for case in cases] == list(
        itertools.product((0, 1), ("overlapping", PROGRAMMATIC))
    )
    assert {case["chosen"] for case in cases if case["launches"] == "overlapping"} == set(first)


def test_stages_are_timed_from_two_to_all(writer, tmp_path, timed):
    times.stages(writer, "group_gemm")
    counts = {}
    for figure in read_events(tmp_path / "events").figures:
        key = tuple(figure["configuration"]), figure["case"], figure["launches"]
        counts.setdefault(key, []).append(figure["stages"])
    assert len(counts) == len(LEGAL) * 2 * 2
    for (shape, _, _), found in counts.items():
        assert found == list(range(2, submission.Plan(1, *shape).stages + 1))


def test_trials_are_timed_in_three_modes_then_configurations_that_are_left_out(writer, tmp_path, timed):
    times.trials(writer, "group_gemm")
    figures = read_events(tmp_path / "events").figures
    edits = [(f["trial"], f["case"], f["launches"]) for f in figures if "configuration" not in f]
    assert sorted(edits) == sorted(itertools.product(trials.TRIALS, (0, 1), LaunchMode))
    others = [(tuple(f["configuration"]), f["case"], f["launches"]) for f in figures if "configuration" in f]
    modes = ("overlapping", PROGRAMMATIC)
    assert sorted(others) == sorted(itertools.product(map(tuple, trials.left_out(1)), (0, 1), modes))
    assert len(trials.left_out(1)) > 3 and not set(trials.left_out(1)) & set(submission.legal_configurations())
    with pytest.raises(ValueError, match="nothing to suggest from"):
        suggest.suggestion(figures, SMS)


@pytest.mark.parametrize("name", sampled(trials.TRIALS, 4))
def test_a_trial_is_the_kernel_with_other_instructions(name):
    """The result is right, and the PTX has what the trial's name says."""
    calls.solve("group_gemm", calls.arguments([(70, 136, 1088)]), ((128, 1, 1, 2),), 2, trial=name)
    with report.kept_artifacts():
        plan = 1, 128, 1, 1, 2
        texts = [each.compile_kernel(each.Plan(*plan)).artifacts.PTX for each in (submission, trials.module(name))]
    counts = {
        "EVICT_FIRST hints on all loads": (r"cp\.async\.bulk[^;]*L2::cache_hint", 0, 6),
        "two k-tiles prefetched to L2 before the wait": (
            r"cp\.async\.bulk\.prefetch",
            0,
            15,
        ),  # three copies of the block
        "one load warp": (r"\.reqntid 224", 1, 0),
        "epilogue reads 64 columns at once": (r"tcgen05\.ld[^;]*\.x64", 0, 2),
    }
    pattern, before, after = counts[name]
    assert [len(re.findall(pattern, text)) for text in texts] == [before, after]


def test_a_row_that_raises_is_a_failed_check(writer, tmp_path, timed, monkeypatch):
    def time_row(row, flush, repeats):
        raise ValueError("no")

    monkeypatch.setattr(times, "time_row", time_row)
    times.compare(writer, "group_gemm")
    found = read_events(tmp_path / "events")
    assert (
        not found.figures
        and not any(check.passed for check in found.checks)
        and len(found.checks) == 8 + len(LEGAL) * 4
    )
    assert found.checks[0].message == "ValueError: no"


def test_fewer_stages_give_the_same_result():
    with pytest.raises(ValueError, match="1 stages; a ring has at least 2"):
        at_most(1)
    shape = submission.Configuration(64, 2, 1, 1)
    module, fitting = at_most(2), submission.Plan(1, *shape).stages
    assert module.Plan(1, *shape).stages == 2 < fitting == submission.Plan(1, *shape).stages
    assert module.Plan(1, *shape).at.end < submission.Plan(1, *shape).at.end
    data = reference.generate_input(m=(70,), n=(136,), k=(1088,), g=1, seed=3)
    output = module.solve(data, configurations=(shape,))
    assert reference.check_implementation(data, output) == (True, "bit-exact")


def test_the_driver_is_asked_for_clusters_as_the_kernel_is_launched(writer, tmp_path, monkeypatch):
    """A fake driver checks a CTA's bytes of SMEM and the cluster's size, which a launch names even if it is 1."""
    set_bytes = []

    def ask(function, kernel, config):
        (attribute,) = [each for each in config.attrs if each.id == CLUSTER]
        assert function is driver.cuOccupancyMaxActiveClusters and kernel == "kernel"
        assert config.sharedMemBytes == set_bytes[-1]
        return 1000 * attribute.value.clusterDim.x + config.blockDimX

    monkeypatch.setattr(clusters, "kernel", lambda plan, hopper: "kernel")
    monkeypatch.setattr(clusters.gpu, "set_attribute", lambda kernel, attribute, value: set_bytes.append(value))
    monkeypatch.setattr(clusters.gpu, "call", ask)
    monkeypatch.setattr(clusters, "current_sms", lambda: 148)
    work.clusters(writer)
    figures = read_events(tmp_path / "events").figures
    assert [figure["cluster"] for figure in figures] == [1, 2, 2, 4, 1, 2]
    assert [figure["smem"] for figure in figures] == set_bytes and max(set_bytes[4:]) < min(set_bytes[:4])
    assert [figure["active"] for figure in figures] == [1000 * figure["cluster"] + 224 for figure in figures]
    assert [figure["slots"] for figure in figures] == [148, 74, 74, 32, 296, 148]


# ---- The choice ----

SMS = 148
SIZES = (((384, 3072, 4096), (192, 3072, 4096)), ((128, 4096, 1536),), ((40, 7168, 2048),) * 8)


def figures(constants):
    """Figures with times in the choice's order under these constants."""
    found = []
    with suggest.constants(constants):
        for case, sizes in enumerate(SIZES):
            for overlapping in (True, False):
                for rank, schedule in enumerate(submission.candidates(sizes, SMS, overlapping)):
                    shape = configuration_of(schedule)
                    where = {"problem": "group_gemm", "case": case, "sizes": sizes, "products": 1}
                    launches = "overlapping" if overlapping else PROGRAMMATIC
                    timed = {"configuration": shape, "name": configuration_name(shape), "us": 10 + rank}
                    found.append({**where, **timed, "launches": launches})
    return found


@pytest.mark.slow
def test_a_choice_that_is_right_is_kept():
    found = suggest.suggestion(figures({}), SMS)
    assert found["suggested"] == found["constants"] == suggest.current(SMS)
    assert found["ratio"] == found["suggested ratio"] == 1
    assert all(case["chosen"] == case["best"] == case["suggested"] for case in found["cases"])
    assert len(found["cases"]) == 2 * len(SIZES)


@pytest.mark.slow
def test_constants_of_another_chip_are_found():
    before = suggest.current(SMS)
    found = suggest.suggestion(figures({"BLACKWELL, in turn: pair": 3.0, "BLACKWELL, overlapping: pair": 1.0}), SMS)
    assert found["ratio"] > 1.1
    assert found["suggested ratio"] == 1 and all(case["suggested"] == case["best"] for case in found["cases"])
    assert suggest.current(SMS) == before
    with suggest.constants(found["suggested"]):
        for sizes, overlapping in itertools.product(SIZES, (True, False)):
            best = [case["best"] for case in found["cases"] if case["case"] == SIZES.index(sizes)]
            names = configuration_name(configuration_of(submission.candidates(sizes, SMS, overlapping)[0]))
            assert names in best


@pytest.mark.slow
def test_the_choice_is_among_what_was_measured():
    found = [figure for figure in figures({}) if figure["us"] > 10]
    assert all(case["ratio"] == 1 and case["chosen us"] == 11 for case in suggest.suggestion(found, SMS)["cases"])


def test_choices_are_those_of_the_present_constants():
    """A case that has been asked under other constants chooses anew, one in turn only for those of calls in turn."""
    measured, choices = suggest.measured_of(figures({}), SMS), set()
    for values in ({}, {"BLACKWELL, overlapping: pair": 30.0}, {"BLACKWELL, in turn: pair": 30.0}, {}):
        with suggest.constants(values):
            found = tuple(each.chosen() for each in measured)
            assert found == tuple(dataclasses.replace(each, _choices={}).chosen() for each in measured)
        choices.add(found)
    assert len(choices) == 3
    assert [len(each._choices) for each in measured] == [3 if each.overlapping else 2 for each in measured]


def test_without_times_there_is_no_suggestion():
    with pytest.raises(ValueError, match="nothing to suggest from"):
        suggest.suggestion([{"configuration": (64, 1, 1, 1), "stages": 2}], SMS)


# ---- The page ----


def outcome(name, state="passed", **fields):
    empty = {"reason": "", "started_s": 1.0, "seconds": 2.5, "checks": [], "figures": [], "output": ""}
    return {"name": name, "title": f"title of {name}", "state": state, **empty, **fields}


@functools.cache
def suggested_for_another_chip():
    """A search of all constants, as JSON."""
    return json.dumps(suggest.suggestion(figures({"BLACKWELL, in turn: pair": 3.0}), SMS))


def a_record():
    """The fullest record of a sitting at a B200."""
    check = {"passed": True, "message": "0.1 s"}
    bad = {"name": "overlap", "passed": False, "message": "call 3 of 15: <7> & 'more' differ"}
    compared, staged, tried = [], [], []
    for problem, of in PROBLEMS.items():
        rows, where = [], {"problem": problem, "host_included": False, "p10": 1.0, "p90": 9.0, "repeats": 10}
        for case in range(len(of.benchmarks)):
            for number, row in enumerate((*OURS, "torch._scaled_mm", "plain read")):
                rows.append({**where, "case": case, "row": row, "us": 3.25 + number})
            for shape, launches in itertools.product(LEGAL, ("overlapping", PROGRAMMATIC)):
                name = configuration_name(shape)
                timed = {"configuration": shape, "name": name, "launches": launches, "us": 7.125 + shape[0] / 64}
                rows.append({**where, "case": case, "row": f"{name}, {launches}", **timed})
                staged.append({**where, "case": case, **timed, "stages": 2})
        compared.append(outcome(f"compare.{problem}", "cut short", reason="no end after 90 s: killed", figures=rows))
        for case, name, launches in itertools.product(range(len(of.benchmarks)), trials.TRIALS, LaunchMode):
            row = f"{name}, {launches}"
            tried.append({**where, "case": case, "row": row, "trial": name, "launches": launches, "us": 6.5})
        compared.append(outcome(f"trials.{problem}", figures=tried[-3 * len(trials.TRIALS) * len(of.benchmarks) :]))
    constants = [{"constant": f"c{i}", "value": i / 7, "unit": "cycles", "low": 1.0, "high": 2.0} for i in range(1900)]
    profile = {"constants": {f"p{i}": {"value": i, "unit": "us", "source": "c1"} for i in range(60)}}
    benchmark = {"mean_us": 9.87, "best_us": 9.5, "worst_us": 10.5, "std_us": 0.1, "spec": "m: 1", "message": "1.5x"}
    done = [
        *(outcome(f"calls.{g}", checks=[{"name": name, **check} for name in names]) for g, names in GROUPS.items()),
        outcome("calls.bad", "failed", reason="1 of 1 checks failed", checks=[bad], output="the <end> of its output"),
        outcome("test.gemm", checks=[{"name": f"case {i}", **check} for i in range(10)]),
        outcome("benchmark.group_gemm", figures=[{"case": i, **benchmark} for i in range(4)]),
        *compared,
        outcome("stages.group_gemm", figures=staged),
        outcome("clusters", figures=[{"cluster": 4, "name": "256x64", "smem": 1024, "active": 33, "slots": 32}]),
        outcome("calibrate", figures=constants),
        outcome("profile", figures=[{"profile": profile, "base": "b200.json"}]),
        outcome("suggest", figures=[{"suggestion": json.loads(suggested_for_another_chip())}]),
        outcome("leaderboard.gemm", "not run", reason="3 s of the sitting were left, it needs 20", seconds=0),
    ]
    facts = {"device": "NVIDIA B200", "sms": SMS, "submission.py sha256": "abc123", "driver, max clocks": "580.1"}
    return {"began": "2026-01-01", "minutes": 10, "device": "b200", "facts": facts, "seconds": 432.1, "steps": done}


class Text(html.parser.HTMLParser):
    """The text of a page, and its open elements; they must close in order."""

    def __init__(self, content):
        super().__init__()
        self.open, self.parts = [], []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag, attributes):
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_data(self, data):
        self.parts.append(data)


@pytest.mark.slow
def test_the_page_says_what_the_json_says():
    record = json.loads(json.dumps(a_record()))
    content = page.page(record)
    read = Text(content)
    text = "\n".join(read.parts)
    assert not read.open
    for step in record["steps"]:
        assert step["title"] in text and step["reason"] in text and step["output"] in text
        for check in step["checks"]:
            counted = check["passed"] and not step["name"].startswith("calls.")
            assert counted or check["name"] in text
            assert check["passed"] or check["message"] in text
        for figure in step["figures"]:
            assert "us" not in figure or f"{figure['us']:.2f}" in text
    for name, value in record["facts"].items():
        assert name in text and str(value) in text
    assert "10 passed, 0 failed" in text  # ten of the forty tests
    assert "9.87" in text and "9.50 .. 10.50" in text  # the benchmark
    case = next(step for step in record["steps"] if step["name"] == "suggest")["figures"][0]["suggestion"]["cases"][0]
    assert case["chosen"] in text and case["best"] in text and f"{case['ratio']:.3f}" in text
    assert "p59" in text and "1900 constants" in text
    passed = sum(check["passed"] for step in record["steps"] for check in step["checks"])
    assert f"{passed} passed, 1 failed" in text and "title of calls.bad" in text
    # Every failure is in the section of failures, which ends where the next one begins.
    failed = content[content.index("What failed") : content.index("When each step ran")]
    assert failed.count("<h3") == 1 and "&lt;7&gt; &amp; &#x27;more&#x27; differ" in failed


def steps_of(**steps):
    """A record of outcomes by name: checks as {name: passed}, figures as a list."""
    found = []
    for name, what in steps.items():
        checks = [{"name": n, "passed": x, "message": ""} for n, x in what.items()] if isinstance(what, dict) else []
        state = "passed" if all(check["passed"] for check in checks) else "failed"
        figures = what if isinstance(what, list) else []
        found.append(outcome(name.replace("__", "."), state, checks=checks, figures=figures))
    return {"steps": found}


def timed_row(us, mode, **facts):
    row = f"ours, {mode}" if not facts else f"{facts}"
    return {"case": 1, "row": row, "us": us, "host_included": False, **({"launches": mode} if facts else {}), **facts}


FEW = "group_gemm__sm1__tile64__x1__n1"
CONFIGURATION = {"configuration": (64, 1, 1, 1), "name": "128x64, 1 per SM"}


def test_the_page_begins_with_times_beside_the_best_published():
    rows = [timed_row(us, mode) for us, mode in zip((9.0, 8.0, 7.5), LaunchMode)]
    record = steps_of(compare__gemm=rows, test__gemm={"case 0": True}, **{f"calls__{FEW}": {"edges": True}})
    published = PROBLEMS["gemm"].benchmarks[1].best_published_us
    expected = ("gemm, case 1", "9.00", "8.00", "7.50", f"{published:g}", f"{published / 9:.2f}", "right")
    assert expected in answer.rows(record)
    assert [row[1:4] for row in answer.rows(record) if row[0] == "gemm, case 0"] == [("–",) * 3]
    content = page.page({**record, "began": "", "minutes": 10})
    assert content.index("9.00") < content.index("What to change: nothing") < content.index("began, took")


@pytest.mark.parametrize(
    ("steps", "problem", "found"),
    [
        ({"test__gemm": {"case 0": True, "case 1": False}}, "gemm", "WRONG: 1 of 2 checks failed"),
        ({"test__gemm": {"case 0": True}, f"calls__{FEW}": {"edges": False}}, "gemm", "WRONG: 1 of 2 checks failed"),
        ({"test__gemm": {"case 0": True}, f"calls__{FEW}": {"edges": False}}, "dual_gemm", "not checked"),
        ({"test__gemm": {"case 0": True}, f"calls__trials__{FEW}": {"edges": False}}, "gemm", "right"),
        ({"calls__chosen": {"gemm": True, "gemv": False}}, "gemm", "right"),
        ({"calls__chosen": {"gemm": True, "gemv": False}}, "gemv", "WRONG: 1 of 1 checks failed"),
        ({"test__group_gemm": {"case 0": False}}, "gemm", "not checked"),
    ],
)
def test_a_problem_is_right_where_its_own_checks_are(steps, problem, found):
    assert answer.verdict(steps_of(**steps), problem) == found
    changes = list(answer.changes(steps_of(**steps)))
    assert any(change.startswith(f"{problem}: WRONG") for change in changes) == found.startswith("WRONG")


def test_what_is_faster_and_right_is_a_change():
    chosen = [timed_row(10.0, mode) for mode in LaunchMode]
    others = [timed_row(9.0, "overlapping", **CONFIGURATION), timed_row(9.9, PROGRAMMATIC, **CONFIGURATION)]
    edits = [timed_row(us, PROGRAMMATIC, trial=name) for us, name in ((9.5, "one"), (9.6, "two"))]
    where = "group_gemm, case 1"
    by_configuration = f"{where}, overlapping: 9.00 us instead of 10.00 by 128x64, 1 per SM"

    def changes(**more):
        record = steps_of(compare__group_gemm=[*chosen, *others], trials__group_gemm=edits, **more)
        return [change for change in answer.changes(record) if change.startswith(where)]

    assert changes() == [f"{where}, {PROGRAMMATIC}: 9.50 us instead of 10.00 by one", by_configuration]
    wrong = changes(calls__trials={"one, gemv": False})
    assert wrong == [f"{where}, {PROGRAMMATIC}: 9.60 us instead of 10.00 by two", by_configuration]
    assert changes(**{f"calls__{FEW}": {"edges": False}})[1:] == []


def test_what_is_assumed_wrongly_is_a_change():
    figure = {"cluster": 4, "name": "256x64, 1 per SM, 2 side by side", "active": 33, "slots": 32}
    (change,) = answer.changes(steps_of(clusters=[figure, {**figure, "active": 32}]))
    assert change.startswith("submission.Schedule.slots: 33 clusters of 4 CTAs") and change.endswith("it assumes 32")


@pytest.mark.slow
def test_labels_of_pictures_are_whole():
    """Every text of a picture lies in it, by the width of its characters, and no name is shortened."""
    record = a_record()
    long = "leaderboard mode of eval.py, group_gemm, and a title that is longer than any step has today"
    record["steps"][0]["title"] = long
    content = page.page(record)
    assert f">{long}</text>" in content
    texts = re.findall(
        r'<text x="([\d.]+)"[^>]*?(?:text-anchor="(\w+)" )?font-size="(\d+)"[^>]*>([^<]*)</text>', content
    )
    assert len(texts) > 500
    for x, anchor, size, words in texts:
        width = 0.6 * int(size) * len(re.sub(r"&[^;]+;", "x", words))
        start = float(x) - width * {"": 0, "start": 0, "middle": 0.5, "end": 1}[anchor]
        assert 0 <= start and start + width <= drawings.WIDTH, words


@pytest.mark.slow
def test_page_and_json_are_small_enough_to_mail():
    record = a_record()
    assert len(page.page(record)) < MOST_BYTES and len(json.dumps(record)) < MOST_BYTES


def test_the_page_of_a_sitting_that_found_no_device():
    lost = outcome("which", "failed", reason="exit code 1", output="no torch")
    text = page.page({"began": "2026-01-01", "minutes": 10, "steps": [lost]})
    assert "exit code 1" in text and "no torch" in text and not Text(text).open


@pytest.mark.slow
def test_a_page_of_one_figure_has_its_pictures():
    """Pictures of one point and of no point are drawn without a division by zero."""
    record = a_record()
    for step in record["steps"]:
        step["figures"], step["checks"] = step["figures"][:1], step["checks"][:1]
    content = page.page(record)
    assert content.count("<svg") >= 3 and not re.search(r"\bnan\b|\binf\b", content)


# ---- The command ----


def run(*arguments, script=("tools/first_light.py",)):
    command = [sys.executable, *script, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=280)


@pytest.mark.slow
def test_a_sitting_in_the_emulator(tmp_path):
    process = run("--device", "emulator", "--save", tmp_path, "--only", "test.group", "--only", "compare.gemv")
    assert process.returncode == 0, process.stdout + process.stderr
    record = json.loads((tmp_path / "first_light.json").read_text())
    states = {step["name"]: step["state"] for step in record["steps"]}
    assert states == {"survey": "passed", "test.group_gemm": "passed", "compare.gemv": "not run"}
    assert record["facts"]["device"] == "NVIDIA B200 (emulated)"
    assert (tmp_path / "first_light.html").read_text() == page.page(record)
    for text in ("2 passed, 0 failed, 0 cut short, 1 not run", "an emulator has no times", "sha256"):
        assert text in " ".join(process.stdout.split())


def test_without_time_nothing_runs_and_the_page_says_so(tmp_path):
    process = run("--device", "emulator", "--save", tmp_path, "--minutes", "0.11")
    assert process.returncode in (0, 1)
    record = json.loads((tmp_path / "first_light.json").read_text())
    assert {step["state"] for step in record["steps"]} <= {"not run", "failed"}
    assert "of the sitting were left" in (tmp_path / "first_light.html").read_text()


@pytest.mark.parametrize("script", (("tools/first_light.py",), ("-m", "tools.first_light")))
@pytest.mark.parametrize("arguments", (("--minutes", "0"), ("--jobs", "0")))
def test_usage(script, arguments):
    process = run(*arguments, script=script)
    assert process.returncode == 2 and arguments[0] in process.stderr


def test_devices_are_those_of_eval():
    parser = options.command_parser("")
    options.add_device(parser)
    (action,) = (action for action in parser._actions if action.dest == "device")
    assert set(action.choices) == {B200, HOPPER, EMULATOR}
