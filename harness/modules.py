"""Loads Python files as modules, by path."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_module(name: str, path: str | Path) -> ModuleType:
    """Run the Python file at `path` as a new module and enter it in sys.modules as `name`.

    Raises ImportError for a file that is not named *.py, and any exception of the file after removing the entry.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file: its name does not end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # needed by dataclasses and inspect, which look up a class's module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
