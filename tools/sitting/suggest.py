"""Suggests constants under which the choice is best, by the measured times of every configuration.

A launch's configuration is the one that `submission.candidates` puts first, by the rates of the chip, which are
constants of submission.py. The suggestion is the set of values with the least geometric mean, over all measured cases,
of chosen time / best time. Among equally good values it takes those nearest to the present ones, and it changes a
constant only where that gains.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import harness.dsl  # noqa: F401
import submission
from harness.console import geomean
from harness.launch_modes import OVERLAPPING, PROGRAMMATIC
from harness.plan_report import configuration_name, configuration_of

MODES = "in turn", "overlapping"  # modes of a chip's rates, in submission.py's order
STEPS = 8  # values per power of ten that are tried
DECADES = 1  # powers of ten up and down from the present value
ROUNDS = 2  # rounds of the search over all constants, one after the other
GAIN = 1e-6  # least relative gain that counts


Times = Mapping[tuple[int, ...], float]  # configuration -> microseconds


@dataclass(frozen=True)
class Measured:
    """The measured configurations of a case in one launch mode."""

    problem: str
    case: int
    overlapping: bool
    sizes: submission.Sizes  # (M, N, K) of each group, in the order of the tiles
    products: int
    sms: int
    times: Times
    _choices: dict[tuple, tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)

    def chosen(self) -> tuple[int, ...]:
        """The measured configuration that the present constants choose."""
        # Calls in turn do not ask for the rates of overlapping ones, which a search changes half of the time.
        rates = tuple(getattr(submission, chip(self.sms))[: 1 + self.overlapping])
        if rates not in self._choices:
            configurations = tuple(map(submission.Configuration._make, sorted(self.times)))
            schedules = submission.candidates(self.sizes, self.sms, self.overlapping, self.products, configurations)
            self._choices[rates] = configuration_of(schedules[0])
        return self._choices[rates]

    def best(self) -> tuple[int, ...]:
        return min(self.times, key=lambda shape: self.times[shape])

    def ratio(self) -> float:
        """The time of the chosen configuration over that of the best."""
        return self.times[self.chosen()] / self.times[self.best()]


def chip(sms: int) -> str:
    """The name of the rates of a chip with this number of SMs."""
    return "BLACKWELL" if sms > submission.HOPPER_SMS else "HOPPER"


@contextlib.contextmanager
def constants(values: Mapping[str, float]) -> Iterator[None]:
    """A context in which submission.py has these rates. values: "NAME, MODE: FIELD" -> value."""
    changed: dict[str, Any] = {name: [*getattr(submission, name)] for name in ("BLACKWELL", "HOPPER")}
    for key, value in values.items():
        name, mode, rate = re.split(", |: ", key)
        place = MODES.index(mode)
        changed[name][place] = changed[name][place]._replace(**{rate: value})
    with mock.patch.multiple(submission, **changed):
        yield


def current(sms: int) -> dict[str, float]:
    """The rates of a chip with this number of SMs: "NAME, MODE: FIELD" -> value."""
    name = chip(sms)
    rates = zip(MODES, getattr(submission, name))
    return {f"{name}, {mode}: {field}": x for mode, of_mode in rates for field, x in of_mode._asdict().items()}


def regret(measured: Sequence[Measured], values: Mapping[str, float]) -> float:
    """The geometric mean of chosen time / best time under these values."""
    with constants(values):
        return geomean(each.ratio() for each in measured)


def tried(value: float) -> list[float]:
    """Values to try for a constant: a logarithmic grid around the present value, nearest first."""
    steps = sorted(range(-DECADES * STEPS, DECADES * STEPS + 1), key=abs)
    return [float(f"{value * 10 ** (step / STEPS):.3g}") for step in steps if step]


def search(measured: Sequence[Measured]) -> dict[str, float]:
    """The best values that are found by a search of one constant after the other."""
    values = current(measured[0].sms)
    least = regret(measured, values)
    for _ in range(ROUNDS):
        before = dict(values)
        # A tensor core that was omitted stays so.
        for name in (name for name in values if 0 < values[name] < submission.ENDLESS):
            for value in tried(values[name]):
                found = regret(measured, {**values, name: value})
                if found < least * (1 - GAIN):
                    least, values = found, {**values, name: value}
        if values == before:
            break
    return values


def measured_of(figures: Sequence[Mapping[str, Any]], sms: int) -> list[Measured]:
    """The measured cases, with every configuration that is timed in the figures. sms: the device's."""
    found = []
    rows = [f for f in figures if f.get("configuration") and not f.get("stages") and not f.get("trial")]
    for key, of_case in itertools.groupby(sorted(rows, key=_key), key=_key):
        problem, case, launches = key
        kept = list(of_case)
        times = {tuple(figure["configuration"]): figure["us"] for figure in kept}
        sizes = tuple(tuple(size) for size in kept[0]["sizes"])
        found.append(Measured(problem, case, launches == OVERLAPPING, sizes, kept[0]["products"], sms, times))
    return found


def _key(figure: Mapping[str, Any]) -> tuple[str, int, str]:
    return figure["problem"], figure["case"], figure["launches"]


def suggestion(figures: Sequence[Mapping[str, Any]], sms: int) -> dict[str, Any]:
    """The chosen and the best configuration of each case, and the constants and the mean ratio before and after.

    Raises ValueError if no configuration was timed.
    """
    measured = measured_of(figures, sms)
    if not measured:
        raise ValueError("no configuration was timed: there is nothing to suggest from")
    values = search(measured)
    with constants(values):
        after = [(configuration_name(each.chosen()), each.ratio()) for each in measured]
    cases = [
        {
            "problem": each.problem,
            "case": each.case,
            "launches": OVERLAPPING if each.overlapping else PROGRAMMATIC,
            "chosen": configuration_name(each.chosen()),
            "chosen us": each.times[each.chosen()],
            "best": configuration_name(each.best()),
            "best us": each.times[each.best()],
            "ratio": round(each.ratio(), 4),
            "suggested": suggested,
            "suggested ratio": round(ratio, 4),
            "configurations": len(each.times),
        }
        for each, (suggested, ratio) in zip(measured, after)
    ]
    means = {"ratio": regret(measured, {}), "suggested ratio": regret(measured, values)}
    return {"constants": current(sms), "suggested": values, "cases": cases, **means}
