"""Loads public names of a package from its modules when they are first used, since imports are slow."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def names(package: str, **modules: str) -> Callable[[str], Any]:
    """The __getattr__ of a package. modules: module ("_" for a dot) -> its names, with blanks between."""
    places = {name: module.replace("_", ".") for module, found in modules.items() for name in found.split()}

    def attribute(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{places[name]}"), name)

    return attribute
