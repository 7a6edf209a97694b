"""The folder of the tests' files, and the environment of programs that they start."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # folder of the distribution
PACKAGE = ROOT / "src" / "nogpu"


def clean_environment(**variables):
    """The environment without the additions of `python -m nogpu`, under which the tests may run."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NOGPU")}
    entries = environment.get("PYTHONPATH", "").split(os.pathsep)
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in entries if not entry.endswith("bootstrap"))
    return {**environment, **variables}
