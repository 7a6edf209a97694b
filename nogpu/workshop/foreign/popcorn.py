"""Runs a problem of GPU MODE's reference-kernels by its own eval.py, with the tests of its task.yml.

    python -m nogpu -m workshop.foreign.popcorn FOLDER [SUBMISSION]

FOLDER is the problem's; eval.py and utils.py lie above it. SUBMISSION: default FOLDER/submission.py. Files are gathered
in one folder, as the contest's runner does. The exit code is eval.py's: 0 if all tests pass, 112 if one does not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from workshop.console import command_parser


def tests(task: Path) -> list[str]:
    """The tests of a task.yml as eval.py reads them, one a line: `size: 127; seed: 4242`."""
    block = re.search(r"^tests:\n((?:[ #].*\n|\n)*)", task.read_text(), re.MULTILINE)
    cases = [json.loads(case) for case in re.findall(r"^ *- (\{.*\})", block[1], re.MULTILINE)] if block else []
    return ["; ".join(f"{name}: {value}" for name, value in case.items()) for case in cases]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns eval.py's exit code. Raises ValueError for a task without tests."""
    parser = command_parser(__doc__, "workshop.foreign.popcorn")
    parser.add_argument("folder", type=Path)
    parser.add_argument("submission", type=Path, nargs="?")
    options = parser.parse_args(arguments)
    folder = options.folder.resolve()
    cases = tests(folder / "task.yml")
    if not cases:
        raise ValueError(f"{folder / 'task.yml'} has no tests")
    with tempfile.TemporaryDirectory() as place:
        for name in ("../eval.py", "../utils.py", "task.py", "reference.py"):
            shutil.copy(folder / name, place)
        shutil.copy(options.submission or folder / "submission.py", Path(place, "submission.py"))
        Path(place, "tests.txt").write_text("".join(f"{case}\n" for case in cases))
        command = [sys.executable, "eval.py", "test", "tests.txt"]
        with Path(place, "log.txt").open("w+") as log:
            environment = os.environ | {"POPCORN_FD": str(log.fileno())}
            code = subprocess.run(command, cwd=place, env=environment, pass_fds=[log.fileno()]).returncode
            log.seek(0)
            print(log.read(), end="")
    print(f"{len(cases)} tests: exit code {code}")
    return code


if __name__ == "__main__":
    sys.exit(main())
