"""Recorded seconds of each test file, by which a run starts the longest files first."""

import json
import math
from collections import Counter
from pathlib import Path

SLOW_S = 20  # seconds of a file
FILE = Path(__file__).resolve().parents[1] / "durations.json"


def recorded(file=FILE):
    """The seconds of each test file, by its path from the root; empty without a record."""
    return json.loads(file.read_text()) if file.is_file() else {}


def file_of(node_id):
    return node_id.split("::", 1)[0]


def is_slow(item, seconds):
    """True if the test's file takes longer than SLOW_S by the record."""
    return seconds.get(file_of(item.nodeid), 0) > SLOW_S


def longest_first(items, seconds):
    """Sort tests in place by the seconds of their file, files without a record first; a file keeps its order."""
    items.sort(key=lambda item: (-seconds.get(file_of(item.nodeid), math.inf), file_of(item.nodeid)))


class Recorder:
    """Sums the durations of a session's tests by file."""

    def __init__(self):
        self.seconds = Counter()

    def add(self, report):
        """Count one phase (set-up, call or tear-down) of a test that was not skipped."""
        if not report.skipped:
            self.seconds[file_of(report.nodeid)] += report.duration

    def merge_into(self, file, root):
        """Replace the entries of the files that ran; drop those of files that are no longer in the folder `root`."""
        merged = {**recorded(file), **{name: round(seconds, 1) for name, seconds in self.seconds.items()}}
        kept = {name: merged[name] for name in sorted(merged) if (root / name).is_file()}
        file.write_text(json.dumps(kept, indent=1) + "\n")
