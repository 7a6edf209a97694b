"""The soak: its problems are legal, the same at every draw and of every kind; its judgement notices what is wrong."""

import functools
import json
import shlex
import subprocess
import sys

import pytest
import torch

import submission
from tests import soak
from tests.programs.pool_answers import SoakAnswers
from tests.submissions import all_problems
from tests.support import soak_memory
from tests.support.commands import ROOT, clean_environment
from tests.support.slow import sampled
from tests.support.soak_draws import PALETTES, UNIT, draw, kernel_of, longest_k

KINDS = "group_gemm", "gemm", "dual_gemm", "gemv"


@functools.cache
def problem(number):
    return draw(submission, 5, number)


def problems(step=20):
    """Some of 840 problems; a step of 4 has those of every kind."""
    return [problem(number) for number in range(0, 840, step)]


@pytest.fixture(params=sampled([20, 4], 2), ids=lambda step: f"every {step}th")
def every(request):
    return problems(request.param)


# ---- Problems ----


def overlap(blocks, others):
    return any(block.overlaps(other) for block in blocks for other in others)


def test_calls_are_legal_and_promises_true(every):
    """Sizes of the contract, addresses that loads can take, and nothing in the memory of a call's own outputs.

    Promises are true of all earlier calls. Sums fit fp32 in any order, and no call reads a dual GEMM's output, whose
    last bit is open.
    """
    for problem in every:
        for number, call in enumerate(problem.calls):
            assert all(group.k % 64 == 0 < group.k and group.m >= (call.products == 0) for group in call.groups)
            assert all(group.n % 8 == 0 < group.n or call.products == 0 for group in call.groups)
            blocks = call.operands() + call.outputs()
            assert all(block.offset % 16 == 0 for block in blocks)
            assert all(block.offset + block.size <= problem.storages[block.storage] for block in blocks)
            for index, block in enumerate(call.outputs()):
                others = [*call.operands(), *call.outputs()[:index]]
                assert not overlap([block], others), problem.describe()
            earlier = problem.calls[:number]
            written = [block for other in earlier for block in other.outputs()]
            read = [block for other in earlier for block in other.operands()]
            assert not (call.ready and overlap(call.operands(), written)), problem.describe()
            assert not (call.free and overlap(call.outputs(), read + written)), problem.describe()
            assert max(group.k for group in call.groups) <= longest_k(call.palette)
            open_bits = [block for other in earlier if other.products == 2 for block in other.outputs()]
            assert not overlap(call.operands(), open_bits), problem.describe()


@pytest.mark.parametrize("palette", PALETTES, ids=str)
def test_the_longest_k_is_right(palette):
    """The sum of K products of the largest values, and that less a step: fp32 can tell them apart."""
    step = (0.5 * min(scale for scale in palette if scale)) ** 2
    largest = (6 * max(palette)) ** 2 * int(longest_k(palette))
    assert largest % step == 0 and torch.tensor([largest, largest - step]).tolist() == [largest, largest - step]
    assert largest > 2**23 * step, "no shorter than need be"


def test_units_and_turns():
    """A problem follows from its seed and number, a turn has every configuration, and a unit launches one kernel."""
    numbers = [37, 5, 410]
    assert [draw(submission, 5, number) for number in numbers] == [draw(submission, 5, n) for n in numbers[::-1]][::-1]
    assert draw(submission, 5, 37) != draw(submission, 6, 37) != draw(submission, 6, 38)
    every = [
        (products, tuple(shape))
        for products in submission.PRODUCTS
        for shape in submission.legal_configurations(products)
    ]
    kernels = [kernel_of(submission, 5, unit) for unit in range(3 * (len(every) + 18))]
    given = [(kernel.products, kernel.shape) for kernel in kernels if kernel.products and not kernel.chosen]
    assert sorted(given[: len(every)]) == sorted(given[-len(every) :]) == sorted(every)
    assert {kernel.products for kernel in kernels if kernel.chosen} == {1, 2}
    assert len({kernel.shape for kernel in kernels if not kernel.products}) > 6
    for first in (0, 7 * UNIT, 30 * UNIT):
        plans = set()
        for number in range(first, first + UNIT):
            for call in draw(submission, 5, number).calls:
                sizes = tuple((group.m, group.n, group.k, group.l) for group in call.groups)
                sms = call.sms or 148
                found = submission.configure(sizes, sms, call.ready, call.products, call.configurations)
                plans |= {launch.schedule.plan for launch in found}
        assert len(plans) <= 2


@pytest.mark.slow
def test_problems_are_of_every_kind():
    found = {trait for problem in problems(4) for trait in problem.traits()}
    assert {problem.kind for problem in problems(4)} == set(KINDS)
    wanted = {
        "memory": {"own storages", "slices", "one storage"},
        "calls in a row": set("12346"),
        "schedule": {"late", "eager", "random"},
        "promises": {f"ready {ready}, free {free}" for ready in ("true", "false") for free in ("true", "false")},
        "groups and batches": {"0", "1", "2 to 4", "5 to 8", "9 to 16", "17 to 32"},
        "overlap": {f"{a} over an earlier {b}" for a in ("operand", "output") for b in ("operand", "output")},
        "configuration is": {"given", "the schedule's choice"},
    }
    for category, values in wanted.items():
        assert values <= {value for of, value in found if of == category}
    calls = [call for problem in problems(4) for call in problem.calls]
    work = sorted(call.work for call in calls)
    assert work[9 * len(work) // 10] < 2e7 and 1e8 < work[-1] < 1.5e9
    assert {call.sms for call in calls} >= {None, 2, 148}
    assert {group.n for call in calls if not call.products for group in call.groups} >= {1, 128}
    assert {bool(group.m) for call in calls for group in call.groups} == {True, False}


# ---- Memory ----


def solved(problem):
    """(storages as they must be, storages after all calls in torch, from the reordered scales)."""
    storages, scales = soak_memory.contents(problem)
    memory = [storage.to("cuda") for storage in storages]
    for number in range(len(problem.calls)):
        all_problems.custom_kernel(soak_memory.arguments(problem, number, memory)[0])
    return soak_memory.expected(problem, storages, scales), [storage.cpu() for storage in memory]


def small(kind, calls=1):
    """The problem of this kind with the fewest products."""
    found = [x for x in problems() if {call.kind for call in x.calls} == {kind} and len(x.calls) >= calls]
    return min(found, key=lambda problem: sum(call.work or 1e9 for call in problem.calls))


@pytest.mark.parametrize("kind", KINDS)
def test_expected_bytes_are_those_of_another_implementation(kind):
    small = [x for x in problems() if x.kind == kind and sum(call.work for call in x.calls) < 3e5]
    assert small
    for problem in small[:6]:
        assert soak_memory.differences(problem, *solved(problem)) == [], problem.describe()


@pytest.mark.parametrize("kind", KINDS)
def test_every_changed_byte_is_noticed(kind):
    problem = small(kind)
    want, found = solved(problem)
    (block, *_) = problem.calls[0].outputs()
    for storage, place, text in [
        (block.storage, block.offset + 1, "call 0, group 0, c: 1 of"),
        (block.storage, block.offset + block.size - 1, "call 0, group 0, c: 1 of"),
        *((s, p, "bytes beside") for s, p in ((x.storage, x.offset) for x in problem.calls[0].operands()[:2])),
    ]:
        changed = [storage.clone() for storage in found]
        changed[storage][place] ^= 0x40
        (difference,) = soak_memory.differences(problem, want, changed)
        assert text in difference


@pytest.mark.parametrize(("kind", "steps", "wrong"), [("gemm", 1, 1), ("dual_gemm", 1, 0), ("dual_gemm", 2, 1)])
def test_only_a_dual_gemms_last_bit_is_open(kind, steps, wrong):
    problem = small(kind)
    want, _ = solved(problem)
    found = [storage.clone() for storage in want]
    c = soak_memory.output(found, problem.calls[0].groups[0], problem.calls[0].products).view(torch.int16)
    c[0, 0, 0] += steps
    assert len(soak_memory.differences(problem, want, found)) == wrong


# ---- The command ----


def test_wrong_problems_and_lost_processes_are_counted_and_printed(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(soak, "make_runner", SoakAnswers)
    file = tmp_path / "soak.json"
    assert soak.main(["--problems", "12", "--jobs", "1", "--seed", "3", "--save", str(file)]) == 1
    output = capsys.readouterr().out
    assert "WRONG: problem 1\n  the process died, exit code 3\n" in output
    assert "WRONG: problem 2 of seed 3\n  late: call 0, group 0, c: 1 of 8 elements differ\n" in output
    assert all(f"tests/soak.py --seed 3 --only {number}\n" in output for number in (1, 2))
    assert "12 problems, 22 calls of 1.1e+03 products, 2 wrong" in output and "50% of their time compiling" in output
    saved = json.loads(file.read_text())
    assert saved["wrong"] == {"1": "no answer", "2": "gemm"} and saved["problems"] == 12
    counts = {"problem": {"gemm": 11, "no answer": 1}, "configuration": {"0": 6, "1": 5}, "schedule": {"late": 11}}
    assert saved["counts"] == counts


def test_how_a_soak_ends(monkeypatch, capsys):
    monkeypatch.setattr(soak, "make_runner", SoakAnswers)
    assert soak.main(["--problems", "1", "--jobs", "1"]) == 0
    output = capsys.readouterr().out
    assert "1 problems" in output and " 0 wrong" in output and "WRONG" not in output
    monkeypatch.setattr(soak, "make_runner", SoakAnswers)
    assert soak.main(["--seconds", "0", "--jobs", "1"]) == 1
    assert "0 problems" in capsys.readouterr().out, "none was run: that proves nothing"


def test_a_soak_that_cannot_start_says_so(monkeypatch, capfd, tmp_path):
    monkeypatch.setattr(soak, "make_runner", SoakAnswers)
    assert soak.main(["--problems", "1", "--jobs", "1", "--submission", str(tmp_path / "absent.py")]) == 2
    error = capfd.readouterr().err
    assert "soak: a worker did not start: the process died, exit code 1" in error and "absent.py" in error


@pytest.mark.parametrize("words", [["--problems", "0"], ["--jobs", "0"], ["--only", "-1"]])
def test_wrong_usage(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        soak.main(words)
    assert "must be at least" in capsys.readouterr().err


def run_command(*words):
    command = [sys.executable, "-m", "nogpu", *words]
    return subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_a_planted_fault_is_found_and_repeated(tmp_path):
    text, broken = (ROOT / "submission.py").read_text(), tmp_path / "broken.py"
    neighbours = "cvt.rn.f16x2.f32 $0, $2, $1;"
    assert text.count(neighbours) == 1
    broken.write_text(text.replace(neighbours, "cvt.rn.f16x2.f32 $0, $1, $2;"))
    process = run_command("tests/soak.py", "--problems", "1", "--jobs", "1", "--submission", str(broken))
    assert process.returncode == 1 and "WRONG: problem 0" in process.stdout, process.stdout + process.stderr
    first, again = process.stdout.split("  again: ")
    python, module, emulator, *words = shlex.split(again.splitlines()[0])
    assert (python, module, emulator) == ("python", "-m", "nogpu")
    repeated = run_command(*words)
    assert repeated.returncode == 1 and repeated.stdout.split("  again: ")[0] == first
