"""All hostile submissions and twins, in the order of the table."""

from tests.submissions.hostile import (  # noqa: F401  # each registers its kinds
    patches,
    reach,
    results,
    calls,
    channel,
    descriptors,
    judge,
    memory,
    endings,
    processes,
    surroundings,
    texts,
    files,
    twins,
)
from tests.submissions.hostile.kit import KINDS

__all__ = ["KINDS"]
