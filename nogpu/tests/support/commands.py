"""The folder of the tests' files, the environment of programs that they start, and modules that cost much to import."""

import importlib
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


class Lazy:
    """A module that is imported when it is first used: every process of pytest imports all files of tests."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith(("__", "_mock_")):  # asked for by pytest
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)
