"""Runs of programs on the emulated device, each in a process of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.commands import ROOT, clean_environment


def run(*arguments, options=(), **variables):
    """Run `python -m nogpu OPTIONS ARGUMENTS`; returns the completed process with its text output."""
    command = [sys.executable, "-m", "nogpu", *map(str, (*options, *arguments))]
    environment = clean_environment(**variables)
    inherited = clean_environment()["PYTHONPATH"]
    entries = (str(ROOT), variables.get("PYTHONPATH"), inherited)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, entries))
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def copy_libraries(place, link=False):
    """Make a cache at the place, with the emulator's libraries, which take long to compile."""
    name = "nogpu"  # name of the emulator's folder in the user's cache
    (place / name).mkdir(parents=True)
    found, made = Path.home() / ".cache" / name / "libraries", place / name / "libraries"
    if link:
        made.symlink_to(found)
        return
    made.mkdir()
    newest = sorted(found.glob("*.so"), key=lambda path: path.stat().st_mtime)[-12:]
    for path in newest:
        shutil.copy(path, made)
