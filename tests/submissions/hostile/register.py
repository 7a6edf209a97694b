"""All hostile submissions and twins, in the order of the table."""

import importlib

from tests.submissions.hostile.kit import KINDS

FAMILIES = (
    *("patches", "reach", "surroundings"),  # the submission's own process
    *("results", "calls"),  # what it returns
    *("channel", "memory", "descriptors", "judge", "files", "rights"),  # the way to the judge
    *("endings", "processes", "texts"),  # what it leaves
    "twins",
)

for family in FAMILIES:
    importlib.import_module(f"tests.submissions.hostile.{family}")  # registers its kinds

__all__ = ["KINDS"]
