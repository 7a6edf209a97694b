"""The builds of runtime/, named after their lists of symbols (the .map files)."""

from __future__ import annotations

from pathlib import Path

from nogpu import toolchain

LINKED, PROGRAM, CUTE_DSL = "linked", "program", "cute_dsl"
LINKED_NAME = "libemulator_cudart.so"
_SONAMES = {LINKED: LINKED_NAME, PROGRAM: "libcudart.so.13", CUTE_DSL: "libemulator_cute_dsl.so"}


def library(kind: str) -> Path:
    """Path of a build (LINKED, ...). Raises RuntimeError if there is no C compiler."""
    symbols = toolchain.HERE / "cuda" / "programs" / "runtime" / f"{kind}.map"
    return toolchain.build(
        "cuda/programs/runtime", (f"-Wl,--version-script={symbols}", f"-Wl,-soname,{_SONAMES[kind]}")
    )
