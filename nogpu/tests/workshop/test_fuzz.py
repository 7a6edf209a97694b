"""Mutated PTX causes only EmulatorErrors; the fuzzer itself notices any other error, and shortens the text."""

import json
import random
import shutil

import pytest

import nogpu
from nogpu import bench_kernels, store
from nogpu.compiler import stored
from nogpu.errors import EmulatorError
from tests.support import nvcc
from workshop import fuzz
from workshop.mutations import LEVELS, Mutator

KERNELS = [bench_kernels.ptx(case) for case in bench_kernels.CASES]
INPUTS = 400


@pytest.fixture(scope="module")
def modules():
    compiled = nvcc.nvcc() and shutil.which("g++")
    return KERNELS + ([nvcc.ptx(name) for name in ("language.cu", "gemm.cu")] if compiled else [])


@pytest.mark.slow
def test_mutated_modules(modules):
    """More of them, on the emulator's own kernels: python -m workshop.fuzz."""
    tally = fuzz.run(modules, range(INPUTS), seed=0)
    assert not tally.bad, "\n".join(f"{place}\n{tried.text}" for place, (_, tried) in tally.bad.items())
    counts = sum(tally.counts.values(), start=fuzz.Counter())
    assert counts.total() == INPUTS and set(tally.counts) == set(LEVELS)
    assert min(counts[kind] for kind in (fuzz.ACCEPTED, fuzz.PARSER, fuzz.TRANSLATION)) > INPUTS // 50


def test_excerpts_are_legal_and_mutations_change_them(modules):
    mutator = Mutator(modules)
    with fuzz.limits():
        for number in range(20):
            rng = random.Random(number)
            text = mutator.excerpt(rng)
            assert fuzz.examine(text).kind == fuzz.ACCEPTED, text
            assert mutator.make(random.Random(number)) == mutator.make(random.Random(number))
            for mutate in LEVELS.values():
                assert any(mutate(mutator, text, rng) != text for _ in range(10))


def test_inputs_are_translated_and_not_kept(monkeypatch):
    monkeypatch.setattr(store, "read", lambda entry: pytest.fail("read"))
    monkeypatch.setattr(store, "write", lambda *args: pytest.fail("written"))
    long = KERNELS[0].replace("ret;", "mov.u32 %r1, 0;" * stored.LEAST_INSTRUCTIONS + "ret;")
    assert long != KERNELS[0] and fuzz.examine(long) == fuzz.Outcome(fuzz.ACCEPTED)


def planted(monkeypatch, fails):
    """Make `fails` run with each module's text after it has loaded."""
    load = nogpu.load_ptx

    def load_ptx(text):
        module = load(text)
        fails(text)
        return module

    monkeypatch.setattr(nogpu, "load_ptx", load_ptx)


def raw(text):
    if "mbarrier.init" in text:
        raise IndexError("list index out of range")


def hidden(text):
    try:
        raw(text)
    except IndexError as error:
        raise EmulatorError("operands not understood", ptx_line=1) from error


def without_a_line(text):
    if "mbarrier.init" in text:
        raise EmulatorError("something is wrong somewhere")


def endless(text):
    while "mbarrier.init" in text:
        pass


def greedy(text):
    if "mbarrier.init" in text:
        bytearray(2 * fuzz.LIMIT_BYTES)


@pytest.mark.parametrize(
    ("fails", "kind", "place"),
    [
        (raw, fuzz.FAILED, "IndexError"),
        (hidden, fuzz.FAILED, "IndexError"),
        (without_a_line, fuzz.FAILED, "no line: something is wrong somewhere"),
        (endless, fuzz.LATE, "Late"),
        (greedy, fuzz.LATE, "MemoryError"),
    ],
)
def test_whatever_else_comes_is_noticed(monkeypatch, fails, kind, place):
    planted(monkeypatch, fails)
    with fuzz.limits():
        with monkeypatch.context() as patch:
            if fails is endless:
                patch.setattr(fuzz, "LIMIT_SECONDS", 0.2)
            outcome = fuzz.examine(KERNELS[0])
        assert (outcome.kind, outcome.place) == (kind, place)
        assert fuzz.examine(KERNELS[0].replace("mbarrier.init", "mbarrier.inval")).kind == fuzz.TRANSLATION


def test_the_command_prints_the_shortest_input(monkeypatch, capsys, tmp_path):
    planted(monkeypatch, raw)
    saved = tmp_path / "fuzz.json"
    with pytest.raises(SystemExit) as ended:
        fuzz.main(["--inputs", "30", "--seed", "1", "--save", str(saved)])
    printed = capsys.readouterr().out
    assert ended.value.code == 1 and "last mutation" in printed
    *_, text = printed.partition(": IndexError\n")
    assert "mbarrier.init" in text and len(text) < min(map(len, KERNELS)) / 4
    with pytest.raises(IndexError):
        nogpu.load_ptx(text)
    record = json.loads(saved.read_text())
    assert list(record["bad"]) == ["IndexError"] and record["command"][:4] == ["--inputs", "30", "--seed", "1"]
    assert sum(sum(counts.values()) for counts in record["counts"].values()) == 30


def test_the_command_succeeds(capsys):
    with pytest.raises(SystemExit) as ended:
        fuzz.main(["--inputs", "20"])
    assert ended.value.code == 0
    with pytest.raises(SystemExit) as ended:
        fuzz.main(["--only", "7"])
    assert ended.value.code == 0 and " 20 " in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        fuzz.main(["--inputs", "0"])
    assert ended.value.code == 2
