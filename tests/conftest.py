"""Puts the whole session on the emulated device where there is no B200: the same test bodies run on either."""

import os
import subprocess
import sys
from pathlib import Path

import emulator

# Asked of a process of its own: the emulator must be there before torch is imported here.
QUESTION = "from harness import devices; print(devices.has_b200())"
ROOT = Path(__file__).resolve().parent.parent
if subprocess.check_output([sys.executable, "-c", QUESTION], cwd=ROOT, text=True).strip() != "True":
    # Where the tests are spread over the cores, launches need not be.
    emulator.activate(schedule="late", workers="1" if "PYTEST_XDIST_WORKER" in os.environ else None)

# Files that take longest, longest first: spread over processes by file, none of them is to start last.
LONGEST = [
    f"test_{name}.py"
    for name in (
        *("report", "problems", "dependent_calls", "kernel", "mutations", "source_mutations", "gemv", "protocol"),
        *("hopper_lower", "eval", "dependent_launch", "runtime", "reference", "torch_device"),
    )
]


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
