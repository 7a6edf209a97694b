"""Runs of eval.py in a process of its own, as the contest's harness or as a person starts it."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from harness.submissions import Submission

ROOT = Path(__file__).resolve().parents[2]
SUBMISSIONS = ROOT / "tests" / "submissions"
BEHAVIOURS = SUBMISSIONS / "behaviours.py"
WATCHED = ROOT / "tests" / "support" / "watched_eval.py"


def clean_environment(**variables):
    """The environment without the additions of `python -m nogpu`, under which the tests may run."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NOGPU", "POPCORN"))}
    entries = environment.get("PYTHONPATH", "").split(os.pathsep)
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in entries if not entry.endswith("bootstrap"))
    return {**environment, **variables}


def spec_line(behaviour):
    """The spec line of a case in which BEHAVIOURS has this behaviour."""
    from tests.submissions.behaviours import M_OF, SEED_OF_CASE

    return f"m: [{M_OF[behaviour]}, 24]; n: [16, 8]; k: [64, 128]; g: 2; seed: {SEED_OF_CASE}"


def write_specs(path, behaviours):
    """Write a spec file with a case for each behaviour; returns its path."""
    path.write_text("".join(f"{spec_line(behaviour)}\n" for behaviour in behaviours))
    return path


def written_by_worker(name, submission=BEHAVIOURS):
    """The path of a file in the home of the workers that run a submission."""
    return Path.home() / ".cache" / "nvfp4-worker" / Submission.of(submission).digest / name


def run_eval(*arguments, script=ROOT / "eval.py", cwd=None, **variables):
    """Run eval.py for a person; returns the completed process with its text output."""
    command = [sys.executable, *filter(None, [script]), *map(str, arguments)]
    return subprocess.run(
        command, env=clean_environment(**variables), cwd=cwd, capture_output=True, text=True, timeout=300
    )


def watched_eval(folder):
    """eval.py as a program that records the code files which it opens after a worker's first request: the program's
    words, and a function that returns the requests and these events.
    """
    found = folder / "found"
    return ("-m", "nogpu", WATCHED, found), lambda: json.loads(found.read_text())


def run_protocol(*arguments, program=(ROOT / "eval.py",), limit_s=300, **variables):
    """Run eval.py, or a program that runs it, with a pipe as POPCORN_FD, killed after `limit_s`.

    Returns (exit code, {key: value} of its lines in order, stdout and stderr).
    """
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, *map(str, (*program, *arguments))],
        env=clean_environment(POPCORN_FD=str(writing), **variables),
        pass_fds=(writing,),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    os.close(writing)
    watchdog = threading.Timer(limit_s, process.kill)
    watchdog.start()
    with os.fdopen(reading) as pipe:
        lines = pipe.read().splitlines()
    output, _ = process.communicate()
    watchdog.cancel()
    pairs = [line.split(": ", 1) for line in lines]
    assert len({key for key, _ in pairs}) == len(pairs), "a key is logged twice"
    return process.returncode, dict(pairs), output
