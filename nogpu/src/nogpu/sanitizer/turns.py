"""Turn of a run: a step with an effect that others may see or depend on."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from nogpu.execution.replay import Step
from nogpu.hardware.barriers import label
from nogpu.sanitizer.cluster_state import opcode

if TYPE_CHECKING:
    from nogpu.hardware.warp import Issuer

READS, WRITES = "reads", "writes"
TESTS = "tests"  # place of a word that stands for the tests of an mbarrier
Phase = tuple[Hashable, int]
"""A barrier and the number of one of its phases."""


class Turn:
    """Step, or the end of its wait, with what others may see of it."""

    __slots__ = ("after", "arrives", "ends", "expects", "index", "issuer", "step", "tests", "waits", "words")

    def __init__(self, step: Step, issuer: Issuer, after: list[Turn], ends: bool) -> None:
        self.step, self.issuer, self.after, self.ends = step, issuer, after, ends
        self.words: dict[tuple[Hashable, Hashable], str] = {}  # by word: how it is accessed
        self.arrives: dict[Phase, bool] = {}  # True: as one of the expected arrivals, rather than by bytes
        self.expects: set[Phase] = set()
        self.waits: set[Phase] = set()
        self.tests: set[Phase] = set()
        self.index = -1  # in the order of the run; -1: not known yet, -2: taken back

    @property
    def text(self) -> str:
        return f"{opcode(self.issuer)} of {label(self.issuer)}"
