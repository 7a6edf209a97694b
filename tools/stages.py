"""Loads submission.py with fewer stages than fit, to measure what the depth of the ring is worth."""

from __future__ import annotations

import functools
from types import ModuleType

from harness import ROOT
from harness.modules import load_module

FEWEST = 2  # with fewer, loads and MMAs would take turns


@functools.cache
def at_most(stages: int) -> ModuleType:
    """A separate module of submission.py, with its own caches, whose plans have at most `stages` stages.

    Raises ValueError for fewer than FEWEST.
    """
    if stages < FEWEST:
        raise ValueError(f"{stages} stages; a ring has at least {FEWEST}, or loads and MMAs take turns")
    import harness.dsl  # noqa: F401

    module = load_module(f"submission_of_{stages}_stages", ROOT / "submission.py")
    fitting = module.Plan.stages.func
    capped = functools.cached_property(lambda plan: min(stages, fitting(plan)))
    capped.__set_name__(module.Plan, "stages")
    module.Plan.stages = capped
    return module
