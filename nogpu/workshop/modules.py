"""Loads files as modules, and runs them as programs."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock


def load_module(name: str, path: Path) -> Any:
    """Loads a file as the module `name`, which sys.modules has from then on."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_script(path: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """Runs a file to its end, as `python FILE ARGUMENTS` does. Returns its global variables."""
    with mock.patch.object(sys, "argv", [str(path), *arguments]):
        sys.path.insert(0, str(path.parent))
        try:
            return runpy.run_path(str(path), run_name="__main__")
        finally:
            sys.path.remove(str(path.parent))
