"""All hostile submissions and twins, in the order of the table."""

import importlib

from tests.submissions.hostile.kit import KINDS

FAMILIES = (
    *("patches", "reach", "surroundings"),  # attacks on the submission's own process
    *("results", "calls"),  # attacks by returned values
    *("channel", "memory", "descriptors", "judge", "files", "rights"),  # attacks on the way to the judge
    *("endings", "processes", "texts"),  # attacks by leftovers
    "twins",
)

for family in FAMILIES:
    importlib.import_module(f"tests.submissions.hostile.{family}")  # import that registers the family's kinds

__all__ = ["KINDS"]
