"""tools.replies: every form of a reply, as the public sources of popcorn-cli and the service make it, is read."""

import json
import textwrap

import pytest

from tools import replies, variants
from tools.replies import Case

SPECS = ["m: [80, 176]; n: [4096, 4096]; k: [7168, 7168]; g: 2; seed: 1111", "m: [40]; n: [7168]; k: [2048]; g: 1"]
TIMES = [Case("benchmark", 0, SPECS[0], 27.9, 0.02, 27.5, 28.8), Case("benchmark", 1, SPECS[1], 6.43, 0.004, 6.4, 6.61)]
RESULT = {
    "benchmark-count": "2",
    "benchmark.0.spec": SPECS[0],
    **{"benchmark.0.mean": "27900", "benchmark.0.err": "20", "benchmark.0.best": "27500", "benchmark.0.worst": "28800"},
    "benchmark.1.spec": SPECS[1],
    **{"benchmark.1.mean": "6430", "benchmark.1.err": "4", "benchmark.1.best": "6400", "benchmark.1.worst": "6610"},
    "check": "pass",
}
FAILED_RESULT = {
    "benchmark-count": "1",
    **{"benchmark.0.spec": SPECS[0], "benchmark.0.status": "fail", "benchmark.0.error": "mismatch\\nat 0"},
}
TESTS = {"test-count": "1", "test.0.spec": "m: 1", "test.0.status": "fail", "test.0.error": "wrong"}
SYSTEM = """**B200 on Modal ✅ success**
> ✅ Testing successful
> ✅ Benchmarking successful

Running on:
* GPU: `NVIDIA B200`
* CPU: `INTEL(R) XEON(R) PLATINUM 8570`
* Device count: `1`
* Runtime: `CUDA`
* Platform: `Linux-6.8.0`
* Torch: `2.12.0+cu130`
* Hostname: `runner`
"""
BENCHMARKS = f"""

## Benchmarks:
```
{SPECS[0]}
 ⏱ 27.9 ± 0.02 µs
 ⚡ 27.5 µs 🐌 28.8 µs

{SPECS[1]}
 ⏱ 6.43 ± 0.004 µs
 ⚡ 6400 ns 🐌 6.61 µs
```"""
RANKED = BENCHMARKS.replace("Benchmarks", "Ranked Benchmark").replace("27.9", "28.1")
PASSED = "\n\n## ✅ Passed 1/1 tests:\n```\n✅ m: 1```"
OUTPUT = {"passed": True, "stdout": "a\nb", "result": RESULT}
RESULTS = json.dumps([{"error": "", "runs": {"benchmark": {"compilation": None, "run": OUTPUT}}}], indent=2)
TEST_LOG = "# Testing failed\nCommand\n\n## Test log:\n```\n✅ m: 1\n❌ m: 2\n> bad```"
SUMMARY = {"submission_id": 17, "leaderboard": "nvfp4_group_gemm", "file_name": "x.py", "done": True}


def run(mode, result=None, passed=True, score=None, secret=False):
    """A run of a submission's record."""
    found = {"start_time": "t", "end_time": "t", "mode": mode, "secret": secret, "runner": "B200"}
    return {**found, "score": score, "passed": passed, **({} if result is None else {"result": result})}


def read(tmp_path, **files):
    """The one reply of files by ending; a value that is no text is written as JSON."""
    for ending, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / f"group_gemm.chosen.benchmark.{ending}").write_text(text)
    (reply,) = replies.read(tmp_path)
    return reply


def older(*reports):
    """popcorn-cli's --output before version 1.3.16: the JSON text of the reports without its brackets."""
    return json.dumps(reports, ensure_ascii=False)[1:-1].replace("\\n", "\n")


@pytest.mark.parametrize(
    "files",
    [
        {"json": {**SUMMARY, "runs": [run("benchmark", RESULT)], "job": {"status": "succeeded", "error": None}}},
        {"txt": older(SYSTEM + BENCHMARKS)},
        {"txt": SYSTEM + BENCHMARKS},
        {"txt": RESULTS},
        {"txt": RESULTS.strip("[]").replace("\\n", "\n")},
        {
            "json": {**SUMMARY, "runs": [run("benchmark", RESULT)]},
            "txt": json.dumps({**SUMMARY, "runs": [run("benchmark")]}, indent=2),
            "log": "Submitting to leaderboard: nvfp4_group_gemm\nGPU: B200\n\nWaiting for results...\n",
        },
    ],
    ids=["record", "older output", "report", "results", "results without brackets", "record and summary"],
)
def test_times_of_cases(tmp_path, files):
    reply = read(tmp_path, **files)
    assert (reply.problem, reply.variant, reply.mode) == ("group_gemm", "chosen", "benchmark")
    assert reply.cases == TIMES and not reply.errors
    assert replies.mean_of(reply) == pytest.approx((27.9 * 6.43) ** 0.5)


def test_a_leaderboard_submission_is_judged_by_its_ranked_run(tmp_path):
    reply = read(tmp_path, txt=older(SYSTEM + PASSED + BENCHMARKS + RANKED, "**B200 on Modal (secret) ✅ success**\n"))
    assert [case.run for case in reply.cases] == ["test", "benchmark", "benchmark", "leaderboard", "leaderboard"]
    assert reply.cases[0] == Case("test", 0, "m: 1")
    assert [case.mean for case in reply.timed] == [28.1, 6.43]


def test_the_score_is_the_service_s(tmp_path):
    """The summary has no times; the record has those of the benchmark run, which is not the ranked one."""
    runs = [run("benchmark"), run("leaderboard", score=1.3e-5), run("leaderboard", score=1.4e-5, secret=True)]
    summary = "Geomean score (public) on B200: 0.000013 s\n\n" + json.dumps({**SUMMARY, "runs": runs}, indent=2)
    reply = read(tmp_path, txt=summary)
    assert reply.score == replies.mean_of(reply) == pytest.approx(13) and not reply.cases and not reply.errors
    runs[0] = run("benchmark", RESULT)
    reply = read(tmp_path, txt=summary, json={**SUMMARY, "runs": runs})
    assert reply.timed == TIMES and replies.mean_of(reply) == pytest.approx(13)


def test_a_secret_run_has_no_cases(tmp_path):
    runs = [run("benchmark", {**RESULT, "benchmark.0.mean": "1"}, score=1e-6, secret=True), run("benchmark", RESULT)]
    reply = read(tmp_path, json={"runs": runs})
    assert reply.cases == TIMES and reply.score is None


@pytest.mark.parametrize(
    ("files", "errors", "case_errors"),
    [
        ({"json": {"runs": [run("benchmark", FAILED_RESULT, passed=False)]}}, [], ["mismatch\nat 0"]),
        ({"json": {"runs": [run("test", TESTS, passed=False)]}}, [], ["wrong"]),
        ({"json": {"runs": [run("benchmark", {}, passed=False)]}}, ["benchmark: not passed", "no times"], []),
        (
            {"json": {"runs": [run("benchmark", RESULT), run("test", {}, passed=False, secret=True)]}},
            ["test, secret: not passed"],
            [],
        ),
        ({"json": {"runs": [], "job": {"status": "timed_out", "error": "late"}}}, ["timed_out: late", "no times"], []),
        (
            {"log": "Waiting for results...\nApplication error: Server returned status 500: no\n"},
            ["Server returned status 500: no", "no times"],
            [],
        ),
        ({"txt": json.dumps({**SUMMARY, "runs": [run("benchmark")]}, indent=2)}, ["no times"], []),
        (
            {"txt": SYSTEM + f"\n\n## Benchmarks:\n```\n❌ {SPECS[0]} failed testing:\n\nmismatch found\n\n```"},
            [],
            ["mismatch found"],
        ),
        (
            {"txt": "**B200 ✅ success**\n> ❌ Testing failed\n" + TEST_LOG},
            ["Testing failed"],
            ["bad"],
        ),
        (
            {"txt": "**B200**\n> ❌ Running benchmarks failed (timeout)\n# Running failed\n"},
            ["Running benchmarks failed (timeout)", "Running failed", "no times"],
            [],
        ),
    ],
    ids=[
        "benchmark",
        "test",
        "no result",
        "secret",
        "job",
        "log",
        "summary only",
        "report",
        "report of tests",
        "crash",
    ],
)
def test_what_went_wrong(tmp_path, files, errors, case_errors):
    reply = read(tmp_path, **files)
    assert len(reply.errors) == len(errors) and all(map(str.startswith, reply.errors, errors))
    assert [case.error for case in reply.cases if case.error] == case_errors


def test_a_failed_case_has_no_geometric_mean(tmp_path):
    result = {**RESULT, "benchmark.1.status": "fail", "benchmark.1.error": "wrong", "benchmark.1.mean": None}
    reply = read(tmp_path, json={"runs": [run("benchmark", result, passed=False)]})
    assert replies.mean_of(reply) is None and reply.timed[0] == TIMES[0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.b.c.txt", "hello", "a.b.c.txt is in no form of the service's replies: it begins with 'hello'"),
        ("a.b.c.json", "{", "a.b.c.json is no JSON"),
        ("a.txt", "", "a.txt is not named PROBLEM.VARIANT.MODE"),
        ("a.b.c.md", "", "a.b.c.md is no reply"),
        ("a.b.c.txt", "## Benchmarks:\nx\n ⏱ 3 parsecs\n", "the units are ns"),
    ],
)
def test_what_is_no_reply_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        replies.read(tmp_path)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no reply is in"):
        replies.read(tmp_path)


def test_the_table_and_the_file(tmp_path, capsys, monkeypatch):
    """The fastest variant comes first, the one that failed last."""
    monkeypatch.setenv("COLUMNS", "200")
    folder = tmp_path / variants.REPLIES
    folder.mkdir()
    slow = {**RESULT, "benchmark.0.mean": "40000"}
    for variant, result in (("a-slow", slow), ("chosen", RESULT), ("broken", FAILED_RESULT)):
        record = {"runs": [run("benchmark", result, passed=result is not FAILED_RESULT)]}
        (folder / f"gemm.{variant}.benchmark.json").write_text(json.dumps(record))
    variants.main(["read", str(tmp_path), "--save", str(tmp_path / "all.json")])
    printed = capsys.readouterr().out
    rows = [
        line.split()[0]
        for line in printed.splitlines()
        if line.split() and line.split()[0] in ("a-slow", "chosen", "broken")
    ]
    assert rows == ["chosen", "a-slow", "broken"]
    assert "27.90 (27.50-28.80)" in printed and "benchmark 0: mismatch" in printed and "gemm, benchmark" in printed
    saved = json.loads((tmp_path / "all.json").read_text())["replies"]
    assert [reply["variant"] for reply in saved] == rows
    assert saved[0]["cases"][0]["best"] == 27.5 and saved[0]["geomean"] == pytest.approx((27.9 * 6.43) ** 0.5)


def test_an_indented_report_is_read_too(tmp_path):
    """A person copies it like that from a message."""
    reply = read(tmp_path, txt=textwrap.indent(SYSTEM + BENCHMARKS, "  "))
    assert reply.cases == TIMES
