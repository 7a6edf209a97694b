"""Runs of programs on the emulated device, each in a process of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

from nogpu import store
from tests.support.commands import ROOT, clean_environment

PROGRAMS = ROOT / "tests" / "cuda" / "programs"


def run(*arguments, options=(), **variables):
    """Run `python -m nogpu OPTIONS ARGUMENTS`; returns the completed process with its text output."""
    command = [sys.executable, "-m", "nogpu", *map(str, (*options, *arguments))]
    environment = clean_environment(**variables)
    inherited = clean_environment()["PYTHONPATH"]
    entries = (str(ROOT), variables.get("PYTHONPATH"), inherited)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, entries))
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def checks(program):
    """Names of the check functions of a file in tests/cuda/programs."""
    return re.findall(r"^def (check_\w+)\(\)", (PROGRAMS / program).read_text(), re.MULTILINE)


def succeed(*programs, **variables):
    """Run the checks of files in tests/cuda/programs, all in one process, and report those that fail."""
    process = run("-m", "tests.support.emulated", *programs, **variables)
    lines = process.stdout.splitlines()
    assert process.returncode == 0 and lines, f"{programs} ended with {process.returncode}\n{process.stderr}"
    results = json.loads(lines[-1])
    failed = [f"{name}: {text}" for name, text in results.items() if text != "ok"]
    expected = {f"{program}, {name}" for program in programs for name in checks(program)}
    assert results.keys() == expected and not failed, "\n".join(failed)


def copy_libraries(place, link=False):
    """Make a cache at the place, with the emulator's libraries, which take long to compile."""
    (place / store.NAME).mkdir(parents=True)
    found, made = store.root() / "libraries", place / store.NAME / "libraries"
    if link:
        made.symlink_to(found)
        return
    made.mkdir()
    newest = sorted(found.glob("*.so"), key=lambda path: path.stat().st_mtime)[-12:]
    for path in newest:
        shutil.copy(path, made)


def main(*programs):
    sys.path.insert(0, str(PROGRAMS))
    results = {}
    for program in programs:
        module = __import__(Path(program).stem)
        for name in checks(program):
            try:
                getattr(module, name)()
                results[f"{program}, {name}"] = "ok"
            except Exception:
                results[f"{program}, {name}"] = traceback.format_exc()
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
