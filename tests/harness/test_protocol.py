"""eval.py with POPCORN_FD, as the contest's harness runs its own file."""

import base64
import hashlib
import os

import pytest

from tests.submissions.behaviours import POPCORN_SEED
from tests.support.commands import (
    BEHAVIOURS,
    SUBMISSIONS,
    run_protocol,
    spec_line,
    watched_eval,
    write_specs,
    written_by_worker,
)

OPTIONS = ("--device", "emulator")

# behaviour -> (status, part of the error or of the message)
OUTCOMES = {
    "good": ("pass", "bit-exact"),
    "close": ("pass", "within tolerance: "),
    "wrong": ("fail", "group 1 (24 x 8 x 1): 1 of 192 elements differ, largest error 100 | at [3, 2, 0]: got "),
    "nan": ("fail", "group 1 (24 x 8 x 1): 1 of 192 elements differ, 1 NaN or inf | at [3, 2, 0]: got nan, want "),
    "other_shape": ("fail", "group 0: shape is (5, 16, 1), expected (6, 16, 1)"),
    "other_dtype": ("fail", "group 1: dtype is torch.float32, expected torch.float16"),
    "on_the_cpu": ("fail", "group 0: device is cpu, expected cuda:0"),
    "nothing": ("fail", "output is of type NoneType, expected a list of 2 tensors"),
    "one_missing": ("fail", "group 1: got NoneType, expected a tensor"),
    "too_short": ("fail", "output has 1 tensors, expected 2"),
    "raises": ("fail", "ValueError: first line | second line"),
    "raises_what_does_not_pickle": ("fail", "LocalError: <function"),
    "exits": ("fail", "SystemExit: 3"),
    "hangs": ("fail", "no result after 8 s: the worker was killed (--timeout sets the limit)"),
    "leaves": ("fail", "the worker process exited with code 4"),
    "dies_and_leaves_a_child": ("fail", "the worker process was killed by signal 6 (Aborted)"),
    "breaks_the_device": ("fail", "RuntimeError: CUDA error: an illegal memory access"),
    "checks_its_surroundings": ("pass", "bit-exact"),
    "checks_its_seed": ("pass", "bit-exact"),
}


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_every_behaviour_has_its_outcome(tmp_path):
    """A worker that ends is noticed at once, and what it has started is killed. The judge opens no code once a
    submission may have run, because the submission may have changed it.
    """
    specs = write_specs(tmp_path / "specs.txt", OUTCOMES)
    program, recorded = watched_eval(tmp_path)
    code, log, output = run_protocol(
        "test", specs, "--submission", BEHAVIOURS, "--timeout", 8, *OPTIONS,
        program=program, POPCORN_SEED=str(POPCORN_SEED), PIDS=f"pids-{os.getpid()}",
    )  # fmt: skip
    digest = hashlib.sha256(BEHAVIOURS.read_bytes()).hexdigest()
    found, want = {}, {"submission-sha256": digest, "test-count": str(len(OUTCOMES)), "check": "fail"}
    for index, (behaviour, (status, text)) in enumerate(OUTCOMES.items()):
        want |= {f"test.{index}.spec": spec_line(behaviour), f"test.{index}.status": status}
        key = f"test.{index}.{'message' if status == 'pass' else 'error'}"
        want[key] = text
        if text in log.get(key, ""):
            found[key] = text
    assert {**log, **found} == want
    assert code == 112
    assert "second line" in output, "tracebacks go to stderr"
    pids = written_by_worker(f"pids-{os.getpid()}")
    hung, child = pids.read_text().split()
    pids.unlink()
    assert not is_running(hung) and not is_running(child)
    asked, events = recorded()
    assert "Call" in asked and events == []


@pytest.mark.slow
def test_all_passed(tmp_path):
    specs = write_specs(tmp_path / "specs.txt", ["good", "close"])
    code, log, _ = run_protocol("test", specs, "--submission", BEHAVIOURS, *OPTIONS)
    assert (code, log["check"]) == (0, "pass")
    assert list(log) == [
        "submission-sha256",
        "test-count",
        "test.0.spec", "test.0.status", "test.0.message",
        "test.1.spec", "test.1.status", "test.1.message",
        "check",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "line", "message"),
    [
        ("dual_gemm", "m: 128; n: 128; k: 256; l: 2; seed: 3", ""),
        ("gemm", "m: 40; n: 136; k: 208; l: 2; seed: 3", "bit-exact"),
        ("gemv", "m: 40; k: 208; l: 2; seed: 3", "bit-exact"),
    ],
)
def test_the_other_problems(tmp_path, problem, line, message):
    (tmp_path / "specs.txt").write_text(f"{line}\n")
    arguments = ("--problem", problem, "--submission", SUBMISSIONS / "all_problems.py", *OPTIONS)
    code, log, output = run_protocol("test", tmp_path / "specs.txt", *arguments)
    assert (code, log["check"], log["test-count"], log["test.0.spec"]) == (0, "pass", "1", line), output
    assert message in log["test.0.message"]


@pytest.mark.slow
def test_benchmark_counts_and_never_times(tmp_path):
    specs = write_specs(tmp_path / "specs.txt", ["good", "wrong", "good"])
    code, log, _ = run_protocol("benchmark", specs, "--submission", BEHAVIOURS, *OPTIONS)
    assert (code, log["check"], log["benchmark-count"]) == (112, "fail", "3")
    assert [log[f"benchmark.{index}.status"] for index in range(3)] == ["pass", "fail", "pass"]
    message = "bit-exact; counts from emulation, no times: plan: tiles 2, plan: waves 1, launches 0, "
    assert log["benchmark.0.message"].startswith(message)
    assert {key.split(".")[-1] for key in log if "." in key} == {"spec", "status", "message", "error"}


@pytest.mark.slow
def test_leaderboard_ends_at_the_first_failure(tmp_path):
    specs = write_specs(tmp_path / "specs.txt", ["good", "wrong", "good"])
    code, log, _ = run_protocol("leaderboard", specs, "--submission", BEHAVIOURS, *OPTIONS)
    assert (code, log["check"], log["benchmark-count"]) == (112, "fail", "3")
    assert (log["benchmark.0.status"], log["benchmark.1.status"]) == ("pass", "fail")
    assert "benchmark.2.spec" not in log


@pytest.mark.slow
def test_profile_reports_in_base64(tmp_path):
    specs = write_specs(tmp_path / "specs.txt", ["good"])
    code, log, _ = run_protocol("profile", specs, "--submission", BEHAVIOURS, *OPTIONS)
    assert (code, log["check"], log["benchmark-count"]) == (0, "pass", "1")
    report = base64.b64decode(log["benchmark.0.report"], b"+*").decode()
    assert report.startswith("counts from emulation, no times:\nplan: tiles: 2\n")


@pytest.mark.parametrize("popcorn_fd", ["", "three", "-1", "97", str(2**40), "read"])
def test_an_unusable_descriptor(refused, popcorn_fd):
    """The last is open for reading only."""
    with open(os.devnull) as file:
        popcorn_fd = popcorn_fd.replace("read", str(file.fileno()))
        code, stderr = refused("test", "x", POPCORN_FD=popcorn_fd)
    assert code == 111
    assert f"POPCORN_FD={popcorn_fd!r} is not open for writing" in stderr


@pytest.fixture
def refused_by_the_protocol(refused):
    """`refused` with a usable POPCORN_FD."""
    with open(os.devnull, "w") as file:
        yield lambda *arguments, **variables: refused(*arguments, POPCORN_FD=str(file.fileno()), **variables)


@pytest.mark.parametrize(
    ("arguments", "seed", "text"),
    [
        ((), "", "the following arguments are required: mode"),
        (("test",), "", "SPECFILE is required"),
        (("script", "SPECS"), "", "invalid choice: 'script'"),
        (("test", "SPECS", "--case", "1"), "", "the cases are numbered 0 to 0"),
        (("test", "SPECS", "--problem", "all"), "", "--problem all takes no SPECFILE"),
        (("test", "--problem", "all"), "", "SPECFILE is required"),
        (("test", "SPECS"), "many", "POPCORN_SEED='many' is not an integer"),
        (("benchmark", "SPECS", "--baseline", *OPTIONS), "", "--baseline is a time"),
    ],
)
def test_usage(tmp_path, refused_by_the_protocol, arguments, seed, text):
    specs = write_specs(tmp_path / "specs.txt", ["good"])
    arguments = [specs if argument == "SPECS" else argument for argument in arguments]
    code, stderr = refused_by_the_protocol(*arguments, POPCORN_SEED=seed)
    assert code == 2
    assert text in stderr


@pytest.mark.parametrize(
    ("content", "text", "problem"),
    [
        (None, "could not read spec file", "group_gemm"),
        ("", "no test cases", "group_gemm"),
        ("m: [1, 2]; n: 3.5\n", "'n: 3.5' is not 'key: value'", "group_gemm"),
        ("m: [1, x]\n", "'x' in list '[1, x]' is not an integer", "group_gemm"),
        ("m: 1; n: 2; k: 64; l: 1; seed: 1\n", "group_gemm takes m, n, k, g, seed", "group_gemm"),
        (f"{spec_line('good')}\n", "gemv takes m, k, l, seed; got m, n, k, g, seed", "gemv"),
    ],
)
def test_a_bad_spec_file(tmp_path, refused_by_the_protocol, content, text, problem):
    specs = tmp_path / "specs.txt"
    if content is not None:
        specs.write_text(content)
    code, stderr = refused_by_the_protocol("test", specs, "--problem", problem)
    assert code == 113
    assert text in stderr
