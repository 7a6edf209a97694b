"""workshop.foreign --sanitize on programs of our own: reports, what they are worth, the table."""

import pytest

from workshop import CHECKOUT
from workshop.foreign import __main__ as foreign
from workshop.foreign import sanitized
from workshop.foreign.tables import foreign_sanitizer

PTX = """.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k()
{
    .reg .b32 %r<5>;
    mov.u32 %r0, smem; mov.u32 %r1, %tid.x; mad.lo.u32 %r2, %r1, 4, %r0; xor.b32 %r3, %r1, 32;
    mad.lo.u32 %r3, %r3, 4, %r0;
    st.shared.b32 [%r2], %r1; EDGE
    ld.shared.b32 %r4, [%r3];
    ld.shared.b32 %r4, [%r3];
    ret;
}
"""
SCRIPT = "import nogpu; nogpu.load_ptx({!r})['k'].launch(2, 64, [], shared=1024); print('done')"
LIST = """[[group]]
framework = "ours"
repository = "own/er"
command = "-m nogpu --schedule {schedule} {file}"
expects = "done"
programs = ["racy.py", "ordered.py"]
"""
JUDGED = """[[judged]]
program = "own/er/racy"
rule = "threads"
report = "ld.shared.b32"
verdict = "VERDICT"
reason = "no | barrier"
"""


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """Arguments of `foreign.main`: a racy and an ordered program; a call says what reports of the first are worth."""
    (tmp_path / "own+er").mkdir()
    for name, edge in ("racy", ""), ("ordered", "bar.sync 0;"):
        (tmp_path / "own+er" / f"{name}.py").write_text(SCRIPT.format(PTX.replace("EDGE", edge)))
    (tmp_path / "list.toml").write_text(LIST)

    read = sanitized.judgements

    def judged(verdict):
        path = tmp_path / "judged"
        path.write_text(JUDGED.replace("VERDICT", verdict))
        entries = read(path)
        monkeypatch.setattr(sanitized, "judgements", lambda: entries)
        options = [
            "--sanitize",
            "--lists",
            str(tmp_path / "list.toml"),
            "--save",
            str(tmp_path / "foreign-sanitizer.json"),
        ]
        return [str(tmp_path), *options]

    return judged


def test_reports_are_judged_and_kept(arguments, tmp_path, capsys):
    """Pairs of the same opcodes are one report. A later run judges the file's reports anew, without the programs."""
    assert foreign.main(arguments("false alarm")) == 0
    racy, ordered = sanitized.load(tmp_path / "foreign-sanitizer.json")
    found = {report.pairs: report for report in racy.reports}  # a load, and both loads, behind or before the store
    assert sorted(found) == [1, 2] and {report.rule for report in racy.reports} == {"threads"}
    assert {report.verdict for report in racy.reports} == {"false alarm"}
    assert found[2].text.startswith("ld.shared.b32 of warp ") and found[2].text.endswith("waits for before its own.")
    assert racy.outcome == ordered.outcome == "pass" and not ordered.reports
    assert "2 runs: 1 silent, 1 with a false alarm (50.0%); 0 reports are not judged." in capsys.readouterr().out
    assert not list(tmp_path.glob("sanitizer-*"))
    for path in (tmp_path / "own+er").iterdir():
        path.unlink()
    assert foreign.main(arguments("true")) == 0
    assert "0 with a false alarm" in capsys.readouterr().out
    (tmp_path / "list.toml").write_text(LIST)
    table = foreign_sanitizer(tmp_path, "")
    assert "| ours | 2 | 1 | 1 | 0 | 0 | 0 |" in table
    assert (
        "| racy.py | threads | ld.shared.b32, line 11 behind st.shared.b32, line 10 | true | no \\| barrier |" in table
    )


def test_what_is_not_judged(arguments, monkeypatch):
    call = arguments("doubt")
    with pytest.raises(ValueError, match="'perhaps' is no verdict: true, doubt, false alarm"):
        arguments("perhaps")
    monkeypatch.setattr(sanitized, "judgements", list)
    assert foreign.main([*call, "--only", "racy"]) == 1


def test_the_reports_of_the_repository():
    """Each report of the committed file is judged as the committed judgements say, and few of them are false alarms."""
    runs = sanitized.load(CHECKOUT / "docs" / "results" / "foreign-sanitizer.json")
    entries = sanitized.judgements()
    assert runs and [sanitized.judged(run, entries) for run in runs] == runs
    assert all(report.verdict for run in runs for report in run.reports)
    alarms = [run for run in runs if any(report.verdict == sanitized.FALSE for report in run.reports)]
    assert len(alarms) < 0.02 * len(runs)


def test_no_file(tmp_path):
    assert sanitized.load(tmp_path / "nothing.json") == [] == sanitized.load(None)
    assert "--sanitize" in foreign_sanitizer(tmp_path, "")
    assert sanitized.counts([]).startswith("0 runs: 0 silent")
