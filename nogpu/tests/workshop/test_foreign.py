"""workshop.foreign on programs of our own: one of each fate, and what is published of them."""

import dataclasses
import json
import re
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from workshop.foreign import __main__ as command
from workshop.foreign import popcorn, tables
from workshop.foreign import runs as foreign
from workshop.foreign.tables import foreign_lists, foreign_programs, foreign_runs
from workshop.foreign.verdicts import judge
from workshop.processes import Sessions

HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"
# Lane 0 stores a number to shared memory and copies it to out.
COPY = """.visible .entry k(.param .u64 out)
{
    .reg .b64 %d; .reg .b32 %r<3>; .reg .pred %p;
    ld.param.u64 %d, [out]; mov.u32 %r0, smem; mov.u32 %r1, %tid.x; setp.ne.u32 %p, %r1, 0; @%p ret;
    st.shared.v4.b32 [%r0], {VALUE, 7, 7, 7}; FENCE
    cp.async.bulk.global.shared::cta.bulk_group [%d], [%r0], 16; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0; ret;
}
"""
WAITS = """.visible .entry k(.param .u64 out)
{
    .reg .b32 %r; .reg .pred %p; mov.u32 %r, smem; mbarrier.init.shared.b64 [%r], 64;
W:  mbarrier.try_wait.parity.shared.b64 %p, [%r], 0; @!%p bra W; ret;
}
"""
SCRIPT = """import sys
import numpy as np
import nogpu
assert "NOGPU_SCHEDULE" not in __import__("os").environ
out = nogpu.array(np.zeros(4, np.uint32))
nogpu.load_ptx({text!r})["k"].launch(1, {threads}, [out], shared=1024)
print("result", out.tolist(), *sys.argv[1:])
if out.tolist() != [7] * 4:
    sys.exit("wrong results")
"""
FENCE = "fence.proxy.async;"


def script(text, threads=32):
    return SCRIPT.format(text=HEADER + text, threads=threads)


def copying(fence, value):
    return script(COPY.replace("FENCE", fence).replace("VALUE", str(value)))


# Starts a process in a group of its own, as ninja does, and one in a session of its own. Both keep the standard output.
SPAWNS = """import os, sys, time
for apart in (os.setpgrp, os.setsid):
    if not (child := os.fork()):
        apart()
        time.sleep(100)
        sys.exit()
    print(child, file=open("children", "a"))
time.sleep(100)
"""
MEETS = """import pathlib, time
pathlib.Path("{own}").touch()
until = time.monotonic() + 20
while not pathlib.Path("{other}").exists() and time.monotonic() < until:
    time.sleep(0.01)
print("result" if pathlib.Path("{other}").exists() else "alone")
"""
PROGRAMS = {
    "right": copying(FENCE, 7),
    "unfenced": copying("", 7),
    "wrong": copying(FENCE, 6),
    "wrong_unfenced": copying("", 6),
    "hangs": script(WAITS, 1),
    "slow": "import time\ntime.sleep(60)\n",
    "raises": "raise SystemExit('no such luck')\n",
    "silent": "",
    "owns_up": "print('result'); print('GEMM 3: FAILED')",
    "deep/neighbourly": "import neighbour; print('result', neighbour.NUMBER)",
    "deep/neighbour": "NUMBER = 7",
    "environment": "import os; print('result', os.environ['OF_LIST'], os.environ['PYTHONPATH'].split(':'))",
    "spawns": SPAWNS,
    "meets_a": MEETS.format(own="a", other="b"),
    "meets_b": MEETS.format(own="b", other="a"),
}
VERDICTS = """right
case -> 3.5us
case -> 4.5us

unfenced
case -> 2.5us

wrong.py
Correctness errors

wrong_unfenced
case -> 1.0us

hangs
Hang
"""
LIST = """[[group]]
framework = "ours"
repository = "own/er"
folder = "sub"
verdicts = "timings.txt"
command = "{file} {arguments} {schedule}"
expects = "result"
environment = { OF_LIST = "{checkout}/include {packages} {lists} {folder}", PYTHONPATH = "{checkout}/more" }
programs = [PROGRAMS]

[[group]]
framework = "absent"
repository = "absent/one"
command = "{file}"
programs = ["a.py"]
"""


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Folder of the checkout and of the list."""
    base = tmp_path / "own+er" / "sub"
    base.mkdir(parents=True)
    for name, text in PROGRAMS.items():
        (base / name).parent.mkdir(exist_ok=True)
        (base / f"{name}.py").write_text(text)
    (base / "timings.txt").write_text(VERDICTS)
    entries = ", ".join(f'"{name}.py"' for name in PROGRAMS)
    (tmp_path / "list.toml").write_text(LIST.replace("PROGRAMS", entries))
    monkeypatch.setenv("NOGPU_SCHEDULE", "eager")  # of the session: no program sees it
    return tmp_path


def listed(places):
    """{name: program}"""
    programs = foreign.programs(places, set(), places)
    return {program.name.removeprefix("sub/").removesuffix(".py"): program for program in programs}


def run_one(places, name, limit=60.0):
    return foreign.run(listed(places)[name], "late", limit, Sessions())


def children_of(places, seconds):
    """Numbers of the processes that "spawns" has started, once there are both."""
    children, until = places / "own+er" / "sub" / "children", time.monotonic() + seconds
    while not (children.exists() and len(children.read_text().split()) == 2) and time.monotonic() < until:
        time.sleep(0.01)
    return children.read_text().split()


HANGS = r"the kernel hangs: no warp can run.*; PTX line 8: mbarrier.try_wait"


@pytest.mark.parametrize(
    "name, verdict, lenient, silicon, agrees, reason",
    [
        ("right", "pass", "", "3.5us", True, ""),
        (
            *("unfenced", "error", "pass", "2.5us", True),
            ".*fence.proxy.async is missing.*; PTX line 10: cp.async.bulk.global",
        ),
        ("wrong", "wrong", "wrong", "Correctness errors", True, "wrong results"),
        ("wrong_unfenced", "error", "wrong", "1.0us", False, ".*fence.proxy.async is missing"),
        ("hangs", "hang", "hang", "Hang", True, HANGS),
        ("raises", "failed", "", "", None, "no such luck$"),
        ("silent", "failed", "", "", None, "no output$"),
        ("owns_up", "wrong", "wrong", "", None, "GEMM 3: FAILED"),
        ("deep/neighbourly", "pass", "", "", None, "$"),
    ],
)
def test_verdicts(places, name, verdict, lenient, silicon, agrees, reason):
    result = run_one(places, name)
    assert (result.verdict, result.lenient, result.silicon, result.agrees) == (verdict, lenient, silicon, agrees)
    assert result.name == f"sub/{name}.py" and result.framework == "ours" and result.schedule == "late"
    assert re.match(reason, result.reason)


def test_the_time_limit(places):
    result = run_one(places, "slow", limit=0.5)
    assert result.verdict == "time limit" and result.seconds < 15 and not result.lenient


def runs(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_the_time_limit_ends_all_that_a_program_has_started(places):
    started = time.monotonic()
    assert run_one(places, "spawns", limit=2.0).verdict == "time limit"
    assert time.monotonic() - started < 30
    children = children_of(places, 0)
    assert len(children) == 2 and not any(map(runs, children))


def test_the_environment_of_a_list(places):
    program, checkout = listed(places)["environment"], places / "own+er"
    include, packages, lists, folder = program.environment["OF_LIST"].split()
    assert (include, lists, folder) == (f"{checkout}/include", str(places), f"{checkout}/sub")
    assert Path(packages).is_dir()
    output, code = foreign.execute(program, "late", 60.0, Sessions())
    assert code == 0 and include in output and f"'{foreign.ROOT}'" in output
    assert output.index(f"'{checkout}/more'") < output.index(f"'{folder}'")  # a list's module hides one beside the file


@pytest.mark.parametrize("expects, cases", [("result", 1), (r"result \[(?P<cases>\d)", 7)])
def test_cases_of_a_program_are_counted(places, expects, cases):
    program = dataclasses.replace(listed(places)["right"], expects=expects)
    assert foreign.run(program, "late", 60.0, Sessions()).cases == cases


@pytest.mark.parametrize("jobs, met", [("1", False), ("2", True)])
def test_programs_run_side_by_side(places, capsys, jobs, met):
    arguments = [str(places), "--lists", str(places), "--only", "meets_", "--schedule", "late", "--jobs", jobs]
    if not met:
        arguments += ["--timeout", "1"]
    assert command.main(arguments) == 0
    assert ("2 runs: 2 pass." in capsys.readouterr().out) is met


def test_a_terminal_shows_what_runs(places):
    found = [(program, "late") for name, program in listed(places).items() if "meets_" in name]
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=200)
    assert len(list(foreign.run_all(found, 60.0, 2, console, foreign.run))) == 2
    assert re.search(r"meets_(a|b)\.py under late, (sub/)?meets_(?!\1)(a|b)\.py under late", screen.getvalue())
    assert "2/2" in screen.getvalue()


def test_runs_that_are_broken_off_end(places):
    """Whoever leaves the loop, such as Ctrl-C, ends the programs that run."""
    wanted = [(listed(places)[name], "late") for name in ("silent", "spawns", "right")]
    for result in foreign.run_all(wanted, 60.0, 2, Console(file=StringIO()), foreign.run):
        assert result.verdict == "failed"
        children = children_of(places, 20)
        break
    assert not any(map(runs, children))


def test_programs_end_with_the_command(places):
    command = [sys.executable, "-m", "workshop.foreign", str(places), "--lists", str(places), "--only", "spawns"]
    with subprocess.Popen(command, cwd=foreign.ROOT, stdout=subprocess.PIPE) as process:
        children = children_of(places, 30)
        process.terminate()
        assert process.wait(30) == 143
    assert not any(map(runs, children))


REPORT = """{call}: store of 4 bytes at 0x559ae6f94400: outside every live allocation
  kernel   k(float*)
  at       CTA (0, 0, 0) warp 0
  PTX      line 30: st.global.b32 [%rd4], 1
"""
CODE = 'CUDA error at bad.cu:4 code=700(cudaErrorIllegalAddress) "cudaDeviceSynchronize()": wrong\n'
WARNING = "a.py:3: UserWarning: the type is not supported\n"
SOURCE = '>           pytest.skip("fp8 is not supported")\n        # nor is float4, which is not supported\n'


@pytest.mark.parametrize("call", ["__cudaLaunchKernel", "cuLaunchKernelEx", "nogpu.errors.EmulatorError"])
@pytest.mark.parametrize("output", [REPORT + CODE, CODE + REPORT, WARNING + REPORT, SOURCE + REPORT])
def test_no_error_code_warning_or_line_of_source_hides_the_report(output, call):
    verdict, reason = judge(output.format(call=call), 1, "passed")
    reported = "store of 4 bytes at 0x...: outside every live allocation; PTX line 30: st.global.b32 [%rd4], 1"
    assert (verdict, reason) == ("error", reported)


def test_what_a_program_prints_is_kept(places, tmp_path):
    for name, (text, code) in {"owns_up": ("GEMM 3: FAILED", 0), "raises": ("no such luck", 1)}.items():
        foreign.run(listed(places)[name], "late", 60.0, Sessions(), outputs=tmp_path)
        (kept,) = tmp_path.glob(f"own+er+*{name}*late")
        assert kept.read_text().endswith(f"{text}\n\nexit code {code}\n")


@pytest.mark.parametrize(
    "output, verdict",
    [
        *(("Test passed", "pass"), ("passed, 0 FAILED", "pass"), ("passed\nFAILED: 0\n", "pass")),
        *(("passed\nFAILED tests: 0\n", "pass"), ("passed\n3 passed, 1 xfailed\n", "pass")),
        *(("passed\nTest failed!\n", "wrong"), ("passed\n2: FAILED\n", "wrong"), ("passed\n10 FAILED\n", "wrong")),
        *(("passed\nResult = FAIL\n", "wrong"), ("test_a.py::test_mismatch SKIPPED\n1 skipped\n", "failed")),
    ],
)
def test_a_program_that_says_it_failed_does_not_pass(output, verdict):
    assert judge(output, 0, "passed")[0] == verdict


@pytest.mark.parametrize(
    "why, verdict",
    [("NotImplementedError: no kernel", "failed"), ("AssertionError: no", "wrong"), ("assert 3 == 4", "wrong")],
)
def test_what_pytest_says(why, verdict):
    source = "        Raises EmulatorError for an odd number of values.\n"  # a frame's, which pytest shows
    output = f"test_x.py::test_y FAILED [100%]\nE       {why}\nFAILED test_x.py::test_y - {why}\n1 failed in 2 s\n"
    found, reason = judge(source + output, 1, r"\d+ passed")
    assert found == verdict and reason == f"E {' '.join(why.split())}"


@pytest.mark.parametrize(
    "silicon, agreeing",
    [
        *(("12.5us", {"pass"}), ("Hang", {"hang", "error"}), ("Hang/error", {"hang", "error"}), ("Fault", {"error"})),
        *(("Correctness errors", {"wrong", "error"}), ("Fails correctness", {"wrong", "error"})),
    ],
)
def test_what_agrees_with_a_b200(silicon, agreeing):
    for verdict in foreign.VERDICTS:
        run = foreign.Run("a/b", "n", "f", "late", verdict, 1.0, "", silicon, "")
        assert run.agrees == (verdict in agreeing)


@pytest.mark.parametrize(
    "silicon, lenient, agrees",
    [("1us", "pass", True), ("1us", "wrong", False), ("Hang", "wrong", True), ("Hang", "pass", False)],
)
def test_what_agrees_after_an_error(silicon, lenient, agrees):
    assert foreign.Run("a/b", "n", "f", "late", "error", 1.0, "", silicon, "", lenient).agrees is agrees


def test_reasons_have_no_addresses_of_this_run():
    output = "nogpu.errors.EmulatorError: store of 4 bytes at 0x559ae6f94400: past the end\n  PTX      line 3: st\n"
    assert judge(output, 1, "") == ("error", "store of 4 bytes at 0x...: past the end; PTX line 3: st")


def test_the_command_continues_a_file_and_names_what_is_missing(places, monkeypatch, capsys):
    folder, save, tried = places, places / "runs.json", []

    def run(program, schedule, limit, sessions, outputs):
        tried.append((program.file.stem, schedule))
        return foreign.Run(program.repository, program.name, "ours", schedule, "pass", 1.0, "", program.silicon, "")

    monkeypatch.setattr(foreign, "run", run)
    arguments = [str(folder), "--lists", str(folder), "--save", str(save), "--only", "right"]
    assert command.main([*arguments, "--schedule", "late"]) == 0
    assert "git clone https://github.com/absent/one" in capsys.readouterr().out
    assert command.main([*arguments, "--schedule", "late,eager"]) == 0
    assert tried == [("right", "late"), ("right", "eager")]
    assert "2 of 2 agree" in capsys.readouterr().out
    assert [each["schedule"] for each in json.loads(save.read_text())["runs"]] == ["late", "eager"]
    one_list = str(folder / "list.toml")
    assert command.main([str(folder), "--lists", one_list, "--only", "hangs", "--schedule", "late"]) == 1


def test_the_lists_are_complete():
    """Every list of the repository can be read; the programs themselves are not here."""
    missing = set()
    assert list(foreign.programs(foreign.LISTS / "nothing", missing)) == []
    assert any("gau-nernst/learn-cuda" in command for command in missing) and len(missing) > 5


def test_the_table_of_runs(tmp_path):
    first = [entry("x/one.py", "late", "pass", version="0123abcde"), entry("x/one.py", "eager", "hang", "Hang")]
    for name, runs in ("x", first), ("y", [entry("y/two.py a", "late", "error", lenient="pass")]), ("sanitizer", []):
        (tmp_path / f"foreign-{name}.json").write_text(json.dumps({"command": ["f"], "torch": "1", "runs": runs}))
    assert foreign_runs(tmp_path, "").splitlines() == [
        "| program | list | commit | late | eager |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| one.py | x | 0123abcde | pass, 1 s | hang, 1 s |",
        "| two.py a | y | not recorded | error, lenient pass, 1 s | - |",
    ]
    assert "--results" in foreign_runs(tmp_path / "nothing", "")


NEEDS = """[[group]]
framework = "ours"
repository = "own/er"
beside = ["other/one"]
needs = { "{packages}/no/such.h" = "pip install such" }
command = "{file}"
programs = ["sub/right.py"]
"""


def test_a_list_says_what_it_needs(places, tmp_path):
    """Each missing thing is named with the command that brings it; with all of them there, the programs are."""
    lists = tmp_path / "needs.toml"
    lists.write_text(NEEDS)
    clone, missing = f"git clone https://github.com/other/one {places / 'other+one'}", set()
    assert list(foreign.programs(places, missing, lists)) == [] and missing == {clone, "pip install such"}
    (places / "other+one").mkdir()
    lists.write_text(NEEDS.replace("{packages}/no/such.h", "{checkout}/sub/right.py"))
    assert [program.list for program in foreign.programs(places, set(), lists)] == ["needs"]


def test_the_version_is_the_checkouts(places):
    """A commit if the checkout is a repository of its own, no other repository's around it."""

    def git(*words, folder):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True)

    checkout = places / "own+er"
    for folder in (places, checkout):
        assert foreign.version_of(checkout) == ""
        git("init", "-q", folder=folder)
        git("commit", "-q", "--allow-empty", "-m", "one", folder=folder)
    assert re.fullmatch("[0-9a-f]{9}", foreign.version_of(checkout)) and run_one(places, "silent").version


def test_one_command_makes_the_table_of_all_lists(places, tmp_path, monkeypatch, capsys):
    """Each list has a result file of its own, none before; the table has earlier runs of absent lists, too."""
    lists, results = tmp_path / "lists", tmp_path / "results"
    lists.mkdir(), results.mkdir()
    group, absent = (places / "list.toml").read_text().split("\n\n")
    (lists / "first.toml").write_text(group)
    (lists / "second.toml").write_text(group.replace(".py", ".txt"))
    (lists / "third.toml").write_text(absent)
    (places / "own+er" / "sub" / "right.txt").write_text(PROGRAMS["right"])
    before = [entry("absent.py", "late", "pass", version="abc123456")]
    (results / "foreign-third.json").write_text(json.dumps({"runs": before}))
    monkeypatch.setattr(foreign, "version_of", lambda checkout: "0123abcde")
    monkeypatch.setenv("COLUMNS", "200")  # a narrow terminal's table cuts names off
    arguments = [
        str(places),
        "--lists",
        str(lists),
        "--results",
        str(results),
        "--only",
        "er/sub/r",
        "--schedule",
        "late",
    ]
    assert command.main(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "not there: git clone https://github.com/absent/one" in shown
    assert re.search(r"sub/right.py 0123abcde late pass 3.5us [\d.]+", shown)
    assert re.search(r"absent.py abc123456 late pass 1.0", shown)
    made = json.loads((results / "foreign-first.json").read_text())["runs"]
    assert {run["name"] for run in made} == {"sub/right.py", "sub/raises.py"}
    of_second = json.loads((results / "foreign-second.json").read_text())["runs"]
    assert [run["name"] for run in of_second if run["verdict"] == "pass"] == ["sub/right.txt"]
    with pytest.raises(SystemExit):
        command.main([*arguments, "--save", str(tmp_path / "x.json")])


def entry(name, schedule, verdict, silicon="", **more):
    fields = {"repository": "a/b", "framework": "f", "seconds": 1.0, "reason": "", "note": ""}
    return {**fields, "name": name, "schedule": schedule, "verdict": verdict, "silicon": silicon, **more}


def test_the_table_of_measurements(tmp_path):
    saved = [
        entry("x/one.py", "late", "pass", "3.5us"),
        entry("x/one.py", "eager", "error", "3.5us", lenient="pass", reason="a rule | broken; PTX line 7: bad"),
        entry("x/two.py", "late", "hang", "Hang", reason="the kernel hangs"),
        entry("x/three.py", "late", "wrong", "9us", note="their bug"),
    ]
    (tmp_path / "foreign-x.json").write_text(json.dumps({"command": ["f"], "torch": "1", "runs": saved}))
    text = foreign_programs(tmp_path, "x")
    lines = text.splitlines()
    assert lines[0] == "| program | late | eager | B200, published | agrees | finding | why |"
    assert lines[2] == "| one.py | pass | error, lenient pass | 3.5us | yes | a rule \\| broken; PTX line 7: bad |  |"
    assert lines[3] == "| two.py | hang | - | Hang | yes | the kernel hangs |  |"
    assert lines[4] == "| three.py | wrong | - | 9us | **not** under late |  | their bug |"
    assert "Programs that agree with the B200, late: 2 of 3; eager: 1 of 1." in text
    assert "python -m workshop.foreign" in foreign_programs(tmp_path, "y")


def test_the_table_of_lists(tmp_path):
    first = [
        *(entry("x/one.py", schedule, "pass", note="a doubt", cases=5) for schedule in ("late", "eager")),
        entry("x/two.py --size 3", "late", "pass"),
        entry("x/two.py --size 3", "eager", "error", lenient="pass", reason="a rule | broken"),
    ]
    second = [
        entry("y/three.py", "late", "wrong", reason="not close", note="their bug"),
        entry("y/one.py", "late", "pass"),
    ]
    for name, runs in ("x", first), ("y", second), ("known", [entry("z.py", "late", "hang", "Hang")]):
        (tmp_path / f"foreign-{name}.json").write_text(json.dumps({"command": ["f"], "torch": "1", "runs": runs}))
    counts, _, rows = foreign_lists(tmp_path, "").partition("\n\n")
    assert counts.splitlines() == [
        "| list | programs | late | eager | under each of them | cases that are right | cases under each of them |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *("| x | 2 | 2 of 2 | 1 of 2 | 1 | 5 | 5 |", "| y | 2 | 1 of 2 | - | 0 | 1 | 0 |"),
        "| **all** | 4 | 3 of 4 | 1 of 2 | 1 | 6 | 5 |",
    ]
    assert rows.splitlines()[2:] == [
        "| two.py --size 3 | x | pass | error, lenient pass | a rule \\| broken |",
        "| three.py | y | wrong | - | their bug |",
    ]
    assert "workshop.foreign" in foreign_lists(tmp_path / "nothing", "")


def test_a_contests_problem_runs_by_its_own_tests(tmp_path, capfd):
    folder = tmp_path / "problem"
    folder.mkdir()
    (folder / "task.yml").write_text(
        "config:\n  main: eval.py\n\ntests:\n"
        '  - {"size": 127, "seed": 4242}\n  # one more\n  - {"size":  8, "cond": 1.5}\n\n'
        'benchmarks:\n  - {"size": 1024, "seed": 1}\n'
    )
    (tmp_path / "eval.py").write_text(
        "import os, sys, submission\n"
        "print(open(sys.argv[2]).read(), file=open(int(os.environ['POPCORN_FD']), 'w'))\n"
        "sys.exit(submission.code)\n"
    )
    for name in ("../utils.py", "task.py", "reference.py"):
        (folder / name).write_text("")
    (folder / "submission.py").write_text("code = 0\n")
    (folder / "other.py").write_text("code = 112\n")
    assert popcorn.main([str(folder)]) == 0
    assert "size: 127; seed: 4242\nsize: 8; cond: 1.5\n" in capfd.readouterr().out
    assert popcorn.main([str(folder), str(folder / "other.py")]) == 112
    (folder / "task.yml").write_text("benchmarks:\n")
    with pytest.raises(ValueError, match="has no tests"):
        popcorn.main([str(folder)])


def test_a_program_may_have_a_folder_and_options_of_its_own(tmp_path):
    (tmp_path / "own+er" / "a").mkdir(parents=True)
    (tmp_path / "list.toml").write_text(
        '[[group]]\nframework = "ours"\nrepository = "own/er"\ncommand = "{file} {options} -- {arguments}"\n'
        'programs = [{ folder = "a", file = "b.cu", options = "c.cpp -lx", arguments = "7" }, "d.cu"]\n'
    )
    first, second = foreign.programs(tmp_path, set(), tmp_path)
    assert (first.folder, first.name) == (tmp_path / "own+er" / "a", "a/b.cu 7")
    assert first.command == "{file} c.cpp -lx -- 7"
    assert (second.folder, second.command) == (tmp_path / "own+er", "{file}  -- ")


def test_names_in_tables_tell_programs_apart():
    names = ["a/x/main.cpp", "b/x/main.cpp --n 1", "b/x/main.cpp --n 2", "b/y/own.cu"]
    assert list(tables._short(names).values()) == ["a/x/main.cpp", *(f"b/{name[2:]}" for name in names[1:3]), "own.cu"]
