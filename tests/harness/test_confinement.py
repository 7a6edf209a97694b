"""What a confined process can reach, and the end of all that it starts."""

import os
import subprocess
import sys
import textwrap

import pytest

from harness.confinement import LEAST_ABI, SCOPES_ABI, landlock_abi
from tests.support.commands import ROOT


def run_python(code, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


REACH = """
    import os, signal
    from harness.confinement import confine
    if os.environ["CONFINED"]:
        assert confine()
    def tries(what):
        try:
            what()
        except PermissionError:
            return "refused"
        return "done"
    parent = f"/proc/{os.getppid()}"
    print(tries(lambda: open(f"{parent}/mem", "r+b")), tries(lambda: os.listdir(f"{parent}/fd") and
        os.stat(f"{parent}/fd/0")), tries(lambda: os.kill(os.getppid(), 0)))
    os.rename(os.path.join(os.environ["FOLDER"], "a", "file"), os.path.join(os.environ["FOLDER"], "file"))
"""


@pytest.mark.skipif(landlock_abi() < LEAST_ABI, reason="this kernel has no Landlock, or an old one")
def test_a_confined_process_does_not_reach_its_parent(tmp_path):
    for confined, expected in (("", "done done done"), ("1", "refused refused refused")):
        if confined and landlock_abi() < SCOPES_ABI:
            expected = "refused refused done"
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / "file").touch()
        run = run_python(REACH, CONFINED=confined, FOLDER=str(tmp_path))
        assert run.stdout.strip() == expected, run.stderr
        assert (tmp_path / "file").exists(), "files can be moved as before"


FORKS = """
import os, time
for _ in range(6):
    if not os.fork():
        os.setsid()
if os.fork():
    os._exit(0)  # the rest are orphans
time.sleep(600)
"""

TREE = """
    import os, subprocess, sys, time
    from harness.confinement import children, end_descendants, protect_from_children
    protect_from_children()
    kept = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    spared = children()
    subprocess.Popen([sys.executable, "-c", os.environ["FORKS"]])
    deadline = time.monotonic() + 30
    while len(children()) < 65 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(children()) >= 65
    assert end_descendants(spared)
    assert children() == spared == {kept.pid} and kept.poll() is None
    print("all gone")
    kept.communicate(b"")
"""


def test_orphans_in_sessions_of_their_own_are_ended_and_others_are_spared():
    run = run_python(TREE, FORKS=FORKS)
    assert run.stdout == "all gone\n", run.stderr
