"""The progress of long launches: on a terminal, by the first process only."""

import os
import pty
import re
import subprocess
import sys

import pytest

from tests.support.commands import ROOT, clean_environment
from tests.support.small_kernels import module

TURNS = 2_000_000  # of the loop, of three instructions each
COUNT = f"mov.u32 %r2, 0; C: add.u32 %r2, %r2, 1; setp.lt.u32 %p4, %r2, {TURNS}; @%p4 bra C;"
PTX = module(COUNT, 0)


def program(setting=""):
    """A program that launches four CTAs after a change of the settings."""
    return f"""if True:
        import sys
        import nogpu
        from nogpu.execution import status
        {setting}
        nogpu.load_ptx({PTX!r})["k"].launch(4, 32)
        print("done", flush=True)
    """


WITHOUT_RICH = "sys.modules['rich'] = None; "
LATER = "status.DELAY, status.INTERVAL = 600, 0.01"
SOON = "status.DELAY = status.INTERVAL = 0.01"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program(SOON)!r}])"


def on_terminal(text, *options, stderr=True, **variables):
    """The text that `python -m nogpu OPTIONS -c TEXT` writes to a terminal. stderr: true for standard error, too;
    otherwise it must stay empty.
    """
    path = os.pathsep.join([str(ROOT), clean_environment()["PYTHONPATH"]])
    variables = {"PYTHONPATH": path, "TERM": "xterm", "COLUMNS": "120", **variables}
    terminal, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "nogpu", *options, "-c", text],
        env=clean_environment(**variables), stdout=theirs, stderr=theirs if stderr else subprocess.PIPE,
    )  # fmt: skip
    os.close(theirs)
    written = b""
    try:
        while part := os.read(terminal, 1 << 16):
            written += part
    except OSError:  # no other end any longer
        pass
    os.close(terminal)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and not errors, (written, errors)
    return re.sub(r"\x1b\[[\d;]*m", "", written.decode())  # text without colours


@pytest.mark.parametrize("options", [(), ("--schedule", "late,eager"), ("--workers", "2")])
@pytest.mark.parametrize("without", ["", pytest.param(WITHOUT_RICH, marks=pytest.mark.slow)])
def test_a_long_launch(options, without):
    text = on_terminal(program(without + SOON), *options)
    total = 8 if "--schedule" in options else 4
    seen = [int(count.replace(",", "")) for count in re.findall(r"([\d,]+) warp instructions", text)]
    assert len(seen) > 2 and seen == sorted(seen) and 0 < seen[-1] <= (3 * TURNS + 10) * total
    assert re.search(rf"k\W.*\b[0-{total}]/{total} CTAs", text)
    assert ("━" in text) == (not without)
    before, after = text.split("done")
    assert re.search(r"\x1b\[2?K[^\w]*$", before) and after == "\r\n"  # the line is erased


@pytest.mark.parametrize(
    "text, stderr, variables",
    [
        pytest.param(program(LATER), True, {}, id="a short launch"),
        pytest.param(program(SOON), False, {}, id="no terminal"),
        pytest.param(program(WITHOUT_RICH + SOON), False, {}, id="no terminal and no rich", marks=pytest.mark.slow),
        pytest.param(program(SOON), True, {"NOGPU_PROGRESS": "0"}, id="turned off"),
        pytest.param(CHILD, True, {}, id="a child of a process on the device"),
    ],
)
def test_nothing_else(text, stderr, variables):
    assert on_terminal(text, stderr=stderr, **variables) == "done\r\n"


@pytest.mark.parametrize("without", ["", WITHOUT_RICH])
def test_a_replay_has_no_instructions(without):
    text = f"{without}from nogpu.execution import status; {SOON}; shown = status.Status('replaying', 'CTAs'); "
    text = on_terminal(f"import sys, time; {text}time.sleep(0.02); shown(1, 3); shown.close(); print('done')")
    assert re.search(r"replaying\W.*\b1/3 CTAs", text) and "instructions" not in text
