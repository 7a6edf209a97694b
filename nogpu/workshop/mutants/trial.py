"""One mutant: its program's launches under schedules, then with the sanitizer, until something notices it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nogpu.errors import EmulatorError, OrderingWarning

if TYPE_CHECKING:
    from nogpu.sanitizer.explore import Explorer
    from workshop.mutants.tape import Tape

SCHEDULES = ("late", "random:1", "random:2")
ERROR, DOUBT, WRONG, HANG, SURVIVED, LATE = "error", "doubt", "wrong", "hang", "survived", "late"
VERDICTS = (ERROR, DOUBT, WRONG, HANG, SURVIVED, LATE)  # LATE: nothing within the time
SANITIZED = "late", "random:1", "last:1", "eager"
TURNS = 8  # multiple of the unchanged kernel's instructions beyond which a launch hangs
_RULE = re.compile(r"sanitizer, rule ([\w-]+)")
_HANG = re.compile(r"the kernel hangs|stopped after|hangs:")
_SHOWN = 160  # characters of a reason


@dataclass(frozen=True)
class Outcome:
    """The outcome of a mutant."""

    verdict: str  # one of VERDICTS
    schedule: str = ""  # the one under which it was noticed
    sanitized: bool = False  # True if the sanitizer was needed
    reason: str = ""  # the rule of the sanitizer, or the beginning of the error's text

    @property
    def noticed(self) -> bool:
        return self.verdict not in (SURVIVED, LATE)


def examine(
    tape: Tape, ptx: str, schedules: Sequence[str] = SCHEDULES, sanitized: Sequence[str] = SANITIZED
) -> Outcome:
    """Runs a mutant until something notices it: under `schedules`, then with the sanitizer under `sanitized`."""
    for sanitize, names in ((False, schedules), (True, sanitized)):
        for schedule in names:
            found = once(tape, ptx, schedule, sanitize)
            if found is not None:
                return found
    return Outcome(SURVIVED)


def once(tape: Tape, ptx: str, schedule: str, sanitized: bool, explorer: Explorer | None = None) -> Outcome | None:
    """The outcome of one run; None if nothing is noticed. explorer: that of `Tape.run`."""
    how = schedule, sanitized
    try:
        with warnings.catch_warnings(record=True) as doubts:
            warnings.simplefilter("always", OrderingWarning)
            limit = TURNS * tape.instructions if tape.instructions else None
            right = tape.run(ptx, schedule, sanitized, limit, explorer)
    except EmulatorError as error:
        rule = _RULE.search(error.reason)
        if rule:
            return Outcome(ERROR, *how, rule[1])
        return Outcome(HANG if _HANG.search(error.reason) else ERROR, *how, _shortened(error.reason))
    if not right:
        return Outcome(WRONG, *how)
    found = next((str(each.message) for each in doubts if issubclass(each.category, OrderingWarning)), None)
    return None if found is None else Outcome(DOUBT, *how, _shortened(found))


def _shortened(text: str) -> str:
    """The first line, without addresses, cut after _SHOWN characters."""
    return re.sub(r"0x[0-9a-f]+", "0x...", text.partition("\n")[0])[:_SHOWN]
