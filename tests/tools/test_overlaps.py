"""tools.overlaps: every row runs in the emulator, the control has stale bytes, figures and faults follow from rows."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from tests.support import emulated
from tests.support.commands import ROOT, clean_environment
from tools import overlaps
from tools.overlaps import CONTROL, Row
from workshop.calibration.launches import END_NS, OWN_B, RECORD, START_NS, SUM

SEEN = Row(CONTROL, "loads", 1024, 4, 3, 40)
UNSEEN = dataclasses.replace(SEEN, stale_tries=0, stale_bytes=0)
RIGHT = Row("kernel", "loads", 1024, 4, 0, 0)
STALE = dataclasses.replace(RIGHT, stale_tries=1, stale_bytes=8)


@pytest.mark.slow
def test_the_program_runs_in_the_emulator(tmp_path):
    """The control alone, whose writes are late, has stale bytes."""
    saved = tmp_path / "overlaps.json"
    process = emulated.run("-m", "tools.overlaps", "--smoke", "--save", saved)
    assert process.returncode == 0, process.stderr
    record = json.loads(saved.read_text())
    rows = [Row(**row) for row in record["rows"]]
    late = len(overlaps.LATE) * (1 + len(overlaps.SMOKE.delays))
    assert len(rows) == len(overlaps.READERS) * (len(overlaps.writers(overlaps.SMOKE)) + late)
    assert {row.delay for row in rows} == {0, *overlaps.SMOKE.delays}
    assert {row.writer for row in rows if row.stale_bytes} == {CONTROL}
    assert record["summary"]["stale tries"] == 0 and record["summary"]["control's stale tries"] == 2
    assert record["summary"]["launches started behind one that spins"] == [2, 2]
    assert record["summary"]["ends in order"]


def is_sound_here():
    command = [sys.executable, "-m", "tools.overlaps", "--tries", "40"]
    process = subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]


@pytest.mark.gpu(9, 0)
def test_a_run_on_a_hopper_is_sound():
    is_sound_here()


@pytest.mark.gpu(10, 0)
def test_a_run_on_a_b200_is_sound():
    is_sound_here()


def stamps(*launches):
    """Records of (start, end of the wait, end) in launch order, stored in another order."""
    records = np.zeros((len(launches), RECORD), np.int64)
    for number, (start, waited, end) in enumerate(launches):
        records[number, [START_NS, OWN_B, END_NS, SUM]] = start, waited, end, number
    return records[::-1]


@pytest.mark.parametrize(
    ("launches", "expected"),
    [
        ([(0, 0, 100), (1, 100, 101), (2, 101, 102)], (2, True)),
        ([(0, 0, 100), (1, 100, 101), (101, 101, 102)], (1, True)),
        ([(0, 0, 100), (100, 100, 101)], (0, True)),
        ([(0, 0, 100), (1, 99, 101), (2, 101, 102)], (2, False)),
        ([(0, 0, 100), (1, 100, 103), (2, 101, 104)], (2, False)),
    ],
)
def test_launches_that_overlap(launches, expected):
    assert overlaps.overlapping(stamps(*launches)) == expected


@pytest.mark.parametrize(
    ("rows", "behind", "words"),
    [
        ([SEEN, RIGHT], [(5, True)], []),
        ([SEEN, STALE], [(5, True)], []),
        ([UNSEEN, RIGHT], [(5, True)], ["no stale byte: loads behind a kernel that lets its successor start"]),
        ([SEEN, RIGHT], [(5, True), (5, False)], ["launches end out of order"]),
    ],
)
def test_faults(rows, behind, words):
    found = overlaps.faults(rows, behind)
    assert len(found) == len(words) and all(word in text for word, text in zip(words, found))


def test_findings_and_figures():
    """A stale byte is a finding unless the control has it, which is not counted."""
    late = dataclasses.replace(STALE, delay=500)
    assert overlaps.findings([SEEN, RIGHT, STALE, late]) == [
        "8 stale bytes in 1 of 4 tries: loads behind kernel, 1024 bytes",
        "8 stale bytes in 1 of 4 tries: loads behind kernel, 1024 bytes, 500 cycles after the reader's start",
    ]
    figures = overlaps.summary([SEEN, RIGHT, STALE], [(5, True), (4, True)])
    assert (figures["tries"], figures["stale tries"]) == (8, 1)
    assert (figures["control's tries"], figures["control's stale tries"]) == (4, 3)
    assert figures["launches started behind one that spins"] == [4, 5] and figures["ends in order"]


@pytest.mark.parametrize("tries", ["0", "-1", "x"])
def test_tries_that_are_no_number_are_refused(tries, capsys):
    with pytest.raises(SystemExit):
        overlaps.main(["--tries", tries])
    assert f"'{tries}' is not a number above 0" in capsys.readouterr().err
