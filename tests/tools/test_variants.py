"""tools.variants: edits that fail by name, files that the service takes and that compute, commands that submit."""

import ast
import json
import os
import re
import stat
import subprocess
import sys

import pytest

from harness.plan_report import configurations
from task import PROBLEMS
from tests.support import emulated
from tests.support.commands import ROOT, clean_environment
from tools import replies, variants
from tools.variants import Edit

SOURCE = variants.SUBMISSION.read_text()
# With VARIANTS=all in the environment every variant computes, else these.
EVERY = os.environ.get("VARIANTS") == "all"
SAMPLE = {
    "group_gemm": ["programmatic", "ordinary", "sm2-tile192-x2-n1", "sm1-tile16-x2-n1"],
    "dual_gemm": ["ordinary", "sm1-tile64-x2-n1"],
    "gemm": ["programmatic"],
    "gemv": ["ordinary", "programmatic", "overlapping", "sm1-tile16-x1-n1"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All variants of all problems."""
    path = tmp_path_factory.mktemp("variants")
    variants.write(path, list(PROBLEMS.values()), variants.MODES)
    return path


def kinds(problem):
    return [variant.kind for variant in variants.variants(PROBLEMS[problem])]


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_there_is_a_variant_of_every_configuration(folder, problem):
    names = {path.name for path in folder.glob(f"{problem}.*.py")}
    assert names == {f"{problem}.{kind}.py" for kind in kinds(problem)}
    assert len(names) == 3 + len(configurations(problem))


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_variant_is_submission_py_but_for_a_few_lines(folder, problem):
    for kind in kinds(problem):
        lines = (folder / f"{problem}.{kind}.py").read_text().splitlines()
        old = SOURCE.splitlines()
        changed = [line for line in lines if line not in old]
        assert len(changed) == (problem != "group_gemm") + {"overlapping": 4, "programmatic": 0}.get(kind, 1), kind
        assert len(old) - len(lines) == (-2 if kind == "overlapping" else 0)
        assert lines[0] == f"#!POPCORN leaderboard {PROBLEMS[problem].leaderboard}"


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_variant_needs_nothing_that_the_service_lacks(folder, problem):
    for path in folder.glob(f"{problem}.*.py"):
        text = path.read_text()
        variants.check(text, PROBLEMS[problem].leaderboard)
        imported = [node for node in ast.walk(variants.parsed(text)) if isinstance(node, (ast.Import, ast.ImportFrom))]
        names = {alias.name for node in imported if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module for node in imported if isinstance(node, ast.ImportFrom)}
        ours = {name.split(".")[0] for name in names} - sys.stdlib_module_names
        assert ours == {"cutlass", "torch", "task"}


@pytest.fixture(scope="module")
def launched(folder):
    """{name of a variant: what it has launched}; a sample in one process, every variant in one for each problem."""
    of_problems = [[f"{problem}.{kind}" for kind in (kinds if EVERY else SAMPLE.get)(problem)] for problem in PROBLEMS]
    found = {}
    for names in of_problems if EVERY else [sum(of_problems, [])]:
        files = [folder / f"{name}.py" for name in names]
        process = emulated.run(ROOT / "tests" / "programs" / "variant_checks.py", *files)
        assert process.returncode == 0, process.stderr
        found |= json.loads(process.stdout.splitlines()[-1])
    assert [*found] == sum(of_problems, [])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_variants_compute_with_what_their_name_says(launched, problem):
    of_problem = [variant for variant in variants.variants(PROBLEMS[problem]) if variant.name in launched]
    assert of_problem
    for variant in of_problem:
        found = launched[variant.name]
        assert found["right"], variant.name
        assert found["programmatic"] == (variant.kind != "ordinary"), variant.name
        if named := re.fullmatch(r"sm(\d+)-tile(\d+)-x(\d+)-n(\d+)", variant.kind):
            ctas, tile, per_sm, neighbours = map(int, named.groups())
            assert found["plan"] == [tile, ctas, per_sm, neighbours], variant.name
        else:
            assert variant.kind in ("ordinary", "programmatic", "overlapping")


# ---- Edits and checks ----

TEXT = "a = 1\n\n\ndef f():\n    return a\n\n\nclass C:\n    a = 2\n    b = a\n"


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (Edit("f", "return a", "return 3"), TEXT.replace("return a", "return 3")),
        (Edit("C", "a = 2", "a = 4"), TEXT.replace("a = 2", "a = 4")),
        (Edit(None, "a = 1", "a = 5"), TEXT.replace("a = 1", "a = 5")),
    ],
)
def test_an_edit_stays_in_its_place(edit, expected):
    assert edit.apply(TEXT) == expected


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit("f", "a = 2", "a = 4"), "f has 'a = 2' 0 times; the edit to 'a = 4' needs it exactly once"),
        (Edit("C", "a", "x"), "C has 'a' 3 times"),
        (Edit(None, "a = ", "x = "), "the file has 'a = ' 2 times"),
        (Edit("g", "a", "x"), "0 functions or classes g"),
    ],
)
def test_an_edit_that_does_not_fit_is_an_error(edit, message):
    with pytest.raises(ValueError, match=message):
        edit.apply(TEXT)


@pytest.mark.parametrize(
    ("lost", "instead", "message"),
    [
        (variants.ENTRY, "return data", "custom_kernel has 'return solve.data.' 0 times"),
        ("def custom_kernel", "def other_kernel", "0 functions or classes custom_kernel"),
        ("use_pdl=True", "use_pdl=False", "Gemm has 'use_pdl=True' 0 times"),
        ("#!POPCORN leaderboard", "#!POPCORN", "the file has '#!POPCORN leaderboard.* 0 times"),
        ("import functools", "import", "line [0-9]+ is no Python"),
    ],
)
def test_a_submission_without_an_anchor_is_an_error(lost, instead, message, tmp_path, monkeypatch):
    path = tmp_path / "submission.py"
    path.write_text(SOURCE.replace(lost, instead))
    monkeypatch.setattr(variants, "SUBMISSION", path)
    with pytest.raises(SystemExit, match=f"tools.variants: .*{message}"):
        variants.main(["write", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


HEADER = "#!POPCORN leaderboard nvfp4_gemm\n#!POPCORN gpu B200\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "x = 1\ny = 'upStReam'\n", "line 4 has 'StReam'"),
        (HEADER + "#" * 1_000_000, "bytes; the service takes 1000000"),
        (HEADER.replace("_gemm", "_gemv"), "nvfp4_gemv.*expected.*nvfp4_gemm"),
        ("\n" + HEADER, "directives {}; expected"),
        (HEADER.replace("B200", "H100"), "H100"),
    ],
)
def test_what_the_service_refuses_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        variants.check(text, "nvfp4_gemm")


def test_what_the_service_takes_is_taken():
    variants.check(HEADER + "x = 1\n", "nvfp4_gemm")


# ---- submit.sh ----

POPCORN = """#!/bin/sh
echo "$@" >> "$LOG"
echo "Submitting" >&2
while [ $# -gt 1 ]; do [ "$1" = --output ] && output=$2; shift; done
case $1 in *programmatic*) echo "Application error: Server returned status 500" >&2; exit 1;; esac
printf '{\\n  "submission_id": 17,\\n  "runs": [{"mode": "benchmark", "passed": true}]\\n}\\n' > "$output"
"""
CURL = """#!/bin/sh
read -r header
for last in "$@"; do :; done
echo "$header $last" >> "$LOG"
while [ "$1" != --output ]; do shift; done
echo '{"runs": [{"mode": "benchmark", "passed": true, "result": {"benchmark-count": "1", "benchmark.0.spec": "m: 1",
"benchmark.0.mean": "2000", "benchmark.0.best": "1000", "benchmark.0.worst": "3000"}}]}' > "$2"
"""


def program(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_submit_sh_keeps_replies_that_can_be_read(tmp_path, monkeypatch):
    """Programs stand in the place of popcorn-cli and curl."""
    monkeypatch.setattr(variants, "configurations", lambda problem: [])
    variants.write(tmp_path, [PROBLEMS["gemv"]], ["benchmark"])
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "popcorn-cli", POPCORN)
    program(tmp_path / "bin" / "curl", CURL)
    (tmp_path / ".popcorn.yaml").write_text("cli_id: owner\n")
    variables = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "LOG": str(tmp_path / "log"),
    }
    command, environment = ["sh", str(tmp_path / "submit.sh")], clean_environment(**variables)
    for _ in range(2):  # what is there is not submitted again
        process = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=60)
        assert process.returncode == 0 and not process.stderr, process.stderr
    log = (tmp_path / "log").read_text().splitlines()
    arguments = (
        "submit --no-tui --leaderboard nvfp4_gemv --gpu B200 --mode benchmark --output replies/{0}.benchmark.txt {0}.py"
    )
    record = f"X-Popcorn-Cli-Id: owner {variants.SERVICE}/user/submissions/17"
    calls = {kind: arguments.format(f"gemv.{kind}") for kind in ("ordinary", "programmatic", "overlapping")}
    assert log == [
        calls["ordinary"],
        record,
        calls["programmatic"],
        calls["overlapping"],
        record,
        calls["programmatic"],
    ]
    found = {reply.variant: reply for reply in replies.read(tmp_path / "replies")}
    assert found["ordinary"].cases == [replies.Case("benchmark", 0, "m: 1", 2.0, None, 1.0, 3.0)]
    assert "Server returned status 500" in found["programmatic"].errors


def test_a_mode_with_a_case_that_does_not_fit_is_left_out():
    chosen = list(variants.variants(PROBLEMS["gemm"]))
    lines = variants.script(chosen, ["test", "benchmark"]).splitlines()
    (left_out,) = [line for line in lines if line.startswith("# gemm.sm1-tile16-x1-n1, test: left out")]
    assert left_out.endswith(PROBLEMS["gemm"].tests[0])
    assert "submit gemm.sm1-tile64-x1-n1 nvfp4_gemm test" in lines
    few = list(variants.variants(PROBLEMS["gemv"]))
    assert "submit gemv.sm1-tile16-x1-n1 nvfp4_gemv test" in variants.script(few, ["test"]).splitlines()


@pytest.mark.slow
def test_the_command_as_the_page_has_it(tmp_path):
    command = [sys.executable, ROOT / "tools" / "variants.py", "write", tmp_path / "out", "--problem", "gemv"]
    process = subprocess.run(
        command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
    count = 3 + len(configurations("gemv"))
    assert f"{count} files are in" in process.stdout and len(list((tmp_path / "out").iterdir())) == count + 1
