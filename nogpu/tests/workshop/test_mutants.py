"""Mutants: what is made of a text, and what came of them."""

import argparse
import dataclasses
import json

import pytest

from nogpu.ptx.module import parse
from tests.support.small_kernels import module
from workshop.mutants import kinds, results, score, silence, survivors
from workshop.mutants.kinds import KINDS, mutants
from workshop.mutants.results import Result
from workshop.mutants.trial import ERROR, SURVIVED, WRONG


def made(text, kind):
    """The (change, text with it) of each mutant of a kind."""
    return [(mutant.change, mutant.apply(text)) for mutant in mutants(text, [kind])]


ACQUIRE, ARRIVE = "fence.proxy.tensormap::generic.acquire", "mbarrier.arrive"
# Kind, opcode, opcode in its place, operands of both.
OPCODES = [
    ("arrive relaxed", f"{ARRIVE}.shared::cluster.b64", f"{ARRIVE}.RELAXED.shared::cluster.b64", "_, [%r1]"),
    ("arrive relaxed", f"{ARRIVE}.expect_tx.shared.b64", f"{ARRIVE}.expect_tx.RELAXED.shared.b64", "_, [%r1], 8"),
    ("arrive relaxed", "mbarrier.arrive.release.cta.shared.b64", "mbarrier.arrive.relaxed.cta.shared.b64", "_, [%r1]"),
    ("wait relaxed", "mbarrier.try_wait.parity.b64", "mbarrier.try_wait.parity.RELAXED.b64", "%p1, [%r1], 0"),
    ("wait relaxed", "mbarrier.test_wait.acquire.cta.b64", "mbarrier.test_wait.relaxed.cta.b64", "%p1, [%r1], %rd1"),
    ("cluster arrive relaxed", "barrier.cluster.arrive.release.aligned", "barrier.cluster.arrive.relaxed.aligned", ""),
    ("cluster arrive relaxed", "barrier.cluster.arrive.aligned", "barrier.cluster.arrive.relaxed.aligned", ""),
    ("word relaxed", "atom.acq_rel.gpu.global.add.u32", "atom.relaxed.gpu.global.add.u32", "%r1, [%rd1], 1"),
    ("word narrowed", "st.release.sys.global.b32", "st.release.cta.global.b32", "[%rd1], %r1"),
    ("arrive narrowed", "mbarrier.arrive.release.cluster.b64", "mbarrier.arrive.release.cta.b64", "_, [%r1]"),
    ("fence narrowed", f"{ACQUIRE}.gpu", f"{ACQUIRE}.cta", "[%rd1], 128"),
]
TRY = "mbarrier.try_wait.parity.shared.b64"
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64"
# Kind, instruction, its replacement.
CHANGES = [
    *((kind, f"{old} {x};", f"{new.replace('RELAXED', 'relaxed.cluster')} {x};") for kind, old, new, x in OPCODES),
    ("no bar.warp.sync", "bar.warp.sync -1;", ""),
    ("no bulk wait_group", "cp.async.bulk.wait_group.read 0;", ""),
    ("later bulk wait_group", "cp.async.bulk.wait_group.read 0;", "cp.async.bulk.wait_group.read 1;"),
    ("no named barrier", "@%p1 bar.sync 1, 64;", ""),
    ("no named barrier", "barrier.cta.sync.aligned 1;", ""),
    ("two arrivals", f"@%p1 {ARRIVE}.b64 _, [%r1];", f"@%p1 {ARRIVE}.b64 _, [%r1]; @%p1 {ARRIVE}.b64 _, [%r1];"),
    ("no wait", f"{TRY} %p1, [%r1], 0;", "setp.eq.u32 %p1, 0, 0;"),
    (
        "other parity",
        f"{TRY} %p1, [%r1], %r2;",
        f"{{ .reg .b32 mutant; xor.b32 mutant, %r2, 1; {TRY} %p1, [%r1], mutant; }}",
    ),
    ("commit elsewhere", f"{COMMIT} [%r1+8];", f"{COMMIT} [%r1+16];"),
    ("no griddepcontrol.wait", "griddepcontrol.wait;", ""),
]


@pytest.mark.parametrize(("kind", "old", "new"), CHANGES)
def test_an_instruction_changes(kind, old, new):
    before, after = "add.u32 %r1, %r2, 1;\n", "\nret;"
    assert [text for _, text in made(f"{before}{old}{after}", kind)] == [f"{before}{new}{after}"]


# Kind, instructions that do not belong to it.
OTHERS = [
    ("arrive relaxed", "mbarrier.arrive.relaxed.cluster.shared.b64 _, [%r1];"),
    ("cluster arrive relaxed", "barrier.cluster.arrive.relaxed.aligned;"),
    ("no named barrier", "bar.warp.sync -1; barrier.cluster.wait.aligned;"),
    ("word relaxed", "ld.relaxed.gpu.global.b32 %r1, [%rd1]; st.shared::cluster.b32 [%r1], %r2;"),
    ("word narrowed", "st.shared::cluster.b32 [%r1], %r2; ld.acquire.cta.global.b32 %r1, [%rd1];"),
    ("fence narrowed", "fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;"),
    ("no fence", "fence.mbarrier_init.release.cluster; fence.proxy.async;"),
    ("no commit", "cp.async.bulk.commit_group;"),
    ("other mask", "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1];"),
]


@pytest.mark.parametrize(("kind", "text"), OTHERS)
def test_an_instruction_stays(kind, text):
    assert not made(text, kind)


def test_every_kind_has_a_row_and_an_instruction():
    assert {kind.row for kind in KINDS.values()} == set(kinds.ROWS)
    assert {kind for kind, *_ in CHANGES} <= set(KINDS)


def test_counts_bytes_and_masks_are_computed():
    """The mutants are legal PTX, and the operand has the value that they name."""
    body = """
    mbarrier.init.shared.b64 [%r1], 4; mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 64;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r1], %h1;
    """
    text = module(body)
    changes = [(mutant.kind, mutant.change) for mutant in mutants(text, ["other count", "other bytes", "other mask"])]
    assert changes == [
        *(("other count", "one more"), ("other count", "one less")),
        *(("other bytes", "16 more"), ("other bytes", "16 less")),
        *(("other mask", "without the first CTA"), ("other mask", "the first CTA only")),
    ]
    for mutant in mutants(text):
        assert parse(mutant.apply(text)).entries, mutant


def test_keys_do_not_depend_on_lines_and_registers():
    one = "bar.sync 0;\n@%p1 mbarrier.arrive.shared.b64 _, [%r1];\nbar.sync 1;\nbar.sync 0;\n"
    other = one.replace("%p1", "%p4").replace("%r1", "%r22").replace("\n@", "\nadd.u32 %r7, %r8, 9;\n@")
    assert [mutant.key for mutant in mutants(one)] == [mutant.key for mutant in mutants(other)]
    assert [mutant.line for mutant in mutants(one)] != [mutant.line for mutant in mutants(other)]
    assert len({mutant.key for mutant in mutants(one * 8)}) == len(mutants(one * 8))


def test_a_kind_that_is_none():
    with pytest.raises(KeyError, match="no such kind"):
        mutants("ret;", ["no such kind"])


# What came of them


def result(kind="no wait", verdict=ERROR, **more):
    parts = {"change": "removed", "instruction": "bar", "place": "a | b", "number": 1, "line": 3}
    return Result("ours", kind, **{**parts, **more}, verdict=verdict)


EQUIVALENT = survivors.Entry("equivalent", "no one reads it", "no wait", change="first", place=r"a \|")
GAP = survivors.Entry("gap", "the map is read at issue", "no wait", ("ours", "theirs"), change="second")


def test_scores():
    found = [
        *(result(), result(sanitized=True), result(verdict=SURVIVED, change="first")),
        *(result(verdict=SURVIVED, change="second"), result(verdict=SURVIVED, change="third")),
        result("no fence", WRONG),
    ]
    counted = score.scores(found, [EQUIVALENT, GAP], score.row_of)
    assert counted["mbarrier waits"].row("x") == ["x", "5", "1", "1", "2", "2", "50.0 %"]
    assert counted["all"].row("all") == ["all", "6", "1", "2", "3", "2", "60.0 %"]
    assert counted["fences of threads"].share == "100.0 %"


def test_what_does_not_fit_the_list():
    listed, unlisted = result(verdict=SURVIVED, change="first"), result(verdict=SURVIVED, change="third")
    noticed = result(change="second")
    assert not list(survivors.complaints([listed, result()], [EQUIVALENT]))
    (text,) = survivors.complaints([unlisted], [])
    assert text.startswith("not listed: ours, PTX line 3, no wait")
    (text,) = survivors.complaints([noticed], [GAP])
    assert text.startswith("noticed, but listed")
    (text,) = survivors.complaints([], [GAP])
    assert text.startswith("no survivor: ours, theirs; no wait; second")
    assert not list(survivors.complaints([], [GAP], complete=False))
    assert not GAP.matches(dataclasses.replace(listed, program="another", change="second"))


@pytest.mark.parametrize(
    "text",
    [
        '[[survivor]]\nkind = "no wait"\nclassified = "equivalent"\nwhy = ""',
        '[[survivor]]\nkind = "no wait"\nclassified = "unknown"\nwhy = "x"',
        '[[survivor]]\nkind = "no wait"\nclassified = "gap"\nwhy = "x"\nline = 3',
    ],
)
def test_lists_that_are_not_legal(tmp_path, text):
    (tmp_path / "list.toml").write_text(text)
    with pytest.raises(ValueError, match="list.toml"):
        survivors.load(tmp_path / "list.toml")


def test_a_file_of_results(tmp_path):
    file = results.File({"ours": "0"}, {"ours": "submission.py"}, [result(), result(verdict=SURVIVED)], {"torch": "2"})
    file.save(tmp_path / "mutants.json")
    assert results.load(tmp_path / "mutants.json") == file
    assert results.load(tmp_path / "none.json") is None


class Silent:
    """A program and its tape in one; it computes wrong values from any other text."""

    name, instructions = "kernel", None

    def __init__(self, ptx):
        self.ptx = self.digest = ptx

    def record(self):
        return self

    def run(self, ptx, schedule, sanitized, limit, explorer):
        assert ptx == self.ptx and sanitized and explorer is None
        return ptx == "right"


@pytest.mark.slow
def test_silence_goes_on_where_it_ended_in_the_same_emulator(tmp_path, monkeypatch):
    path = tmp_path / "silence.json"
    monkeypatch.setattr(silence.tape, "settle", lambda recorded: None)

    def run(ptx, seeds, seconds=None):
        options = argparse.Namespace(silence=seeds, save=path, jobs=2, limit=60.0, seconds=seconds)
        code = silence.main(options, [Silent(ptx)], {})
        saved = json.loads(path.read_text())
        return code, sorted(saved["runs"]["kernel"]), len(saved["reports"])

    assert run("right", 1, seconds=-1.0) == (1, [], 0)
    assert run("right", 1) == (0, ["eager", "late", "random:1"], 0)
    assert run("right", 2) == (0, ["eager", "late", "random:1", "random:2"], 0)
    monkeypatch.setattr(silence.records, "emulator", lambda: "another")
    assert run("right", 1, seconds=-1.0) == (1, [], 0)
    assert run("wrong", 1) == (1, ["eager", "late", "random:1"], 3)
