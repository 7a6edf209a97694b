"""Which constants of the choice make it right, by the measured times of every configuration.

A launch's configuration is the one that costs least by `Schedule.cost`, which weighs what schedules differ in by
constants of submission.py. The suggestion is the set of values under which the chosen configurations are least slow:
the geometric mean over all measured cases of chosen time / best time. Among equally good values it takes those nearest
to the present ones, and it changes a constant only where that gains.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import harness.dsl  # noqa: F401
import submission
from harness.console import geomean
from harness.launch_modes import OVERLAPPING, PROGRAMMATIC
from harness.plan_report import configuration_name, configuration_of

CONSTANTS = ("OVERLAPPING", "IN_TURN")  # of submission.py, which `cost` reads: microseconds of each amount
STEPS = 32  # values per power of ten that are tried
DECADES = 3  # powers of ten up and down from the present value
ROUNDS = 4  # of the search, one constant after the other
GAIN = 1e-6  # a smaller one, relative, is none


def cost(schedule: submission.Schedule, overlapping: bool) -> tuple[float, ...]:
    """What the choice compares."""
    return (schedule.cost(overlapping),)


Times = Mapping[tuple[int, ...], float]  # configuration -> microseconds


@dataclass(frozen=True)
class Measured:
    """The measured configurations of a case's launches of one kind."""

    problem: str
    case: int
    overlapping: bool
    sizes: submission.Sizes  # in the order of the tiles
    products: int
    sms: int
    times: Times

    @functools.cached_property
    def schedules(self) -> list[submission.Schedule]:
        """Those of the measured configurations, in the order in which `submission.shapes` has them."""
        configurations = tuple(map(submission.Configuration._make, sorted(self.times)))
        found = submission.candidates(self.sizes, self.sms, self.overlapping, self.products, configurations)
        return sorted(found, key=configuration_of)

    def chosen(self) -> tuple[int, ...]:
        """The measured configuration that the present constants choose."""
        return configuration_of(min(self.schedules, key=lambda each: cost(each, self.overlapping)))

    def best(self) -> tuple[int, ...]:
        return min(self.times, key=lambda shape: self.times[shape])

    def ratio(self) -> float:
        """Time of the chosen configuration over that of the best."""
        return self.times[self.chosen()] / self.times[self.best()]


@contextlib.contextmanager
def constants(values: Mapping[str, float]) -> Iterator[None]:
    """submission.py with these values, by NAME.FIELD."""
    before = {name: getattr(submission, name) for name in CONSTANTS}
    try:
        for key, value in values.items():
            name, field = key.split(".")
            setattr(submission, name, getattr(submission, name)._replace(**{field: value}))
        yield
    finally:
        for name, amounts in before.items():
            setattr(submission, name, amounts)


def current() -> dict[str, float]:
    """The constants of submission.py, by NAME.FIELD."""
    return {f"{name}.{field}": x for name in CONSTANTS for field, x in getattr(submission, name)._asdict().items()}


def regret(measured: Sequence[Measured], values: Mapping[str, float]) -> float:
    """Geometric mean of chosen time / best time under these values."""
    with constants(values):
        return geomean(each.ratio() for each in measured)


def tried(value: float) -> list[float]:
    """Values to try for a constant: zero and a logarithmic grid around the present value, nearest first."""
    steps = sorted(range(-DECADES * STEPS, DECADES * STEPS + 1), key=abs)
    return [*(float(f"{value * 10 ** (step / STEPS):.3g}") for step in steps if step), 0.0]


def search(measured: Sequence[Measured]) -> dict[str, float]:
    """The best values that a search, one constant after the other, finds."""
    values = current()
    least = regret(measured, values)
    for _ in range(ROUNDS):
        before = dict(values)
        for name in filter(values.get, values):  # what has no weight keeps none
            for value in tried(values[name]):
                found = regret(measured, {**values, name: value})
                if found < least * (1 - GAIN):
                    least, values = found, {**values, name: value}
        if values == before:
            break
    return values


def measured_of(figures: Sequence[Mapping[str, Any]], sms: int) -> list[Measured]:
    """The cases of which every configuration that was timed is among the figures of `work.shapes`."""
    found = []
    rows = [figure for figure in figures if figure.get("configuration") and not figure.get("stages")]
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
    """Per case the chosen and the best configuration; the constants and the mean ratio before and after.

    Raises ValueError where no configuration was timed.
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
    means = {"ratio": regret(measured, current()), "suggested ratio": regret(measured, values)}
    return {"constants": current(), "suggested": values, "cases": cases, **means}
