"""Which costs of the choice make it right, by the measured times of every configuration.

A launch's configuration is the one that costs least by `Schedule.cost`: amounts, times microseconds that submission.py
has for launches that overlap (OVERLAPPING) and in turn (IN_TURN). The suggestion is the set of values under which the
chosen configurations are least slow: the geometric mean over all measured cases of chosen time / best time. Among
equally good values it takes those nearest to the present ones, and it changes a cost only where that gains.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import harness.dsl  # noqa: F401
import submission
from harness.console import geomean
from harness.plan_report import configuration_name

COSTS = {  # name -> constant of submission.py that Schedule.cost reads, its field
    f"{launches}.{name}": (launches, name)
    for launches in ("OVERLAPPING", "IN_TURN")
    for name in submission.Amounts._fields
}
STEPS = 16  # values per power of ten that are tried
DECADES = (-3, 2)  # powers of ten between which a cost is looked for, in microseconds
ROUNDS = 4  # of the search, one cost after the other
GAIN = 1e-6  # a smaller one, relative, is none


def shape_of(schedule: submission.Schedule) -> tuple[int, ...]:
    """The schedule's configuration."""
    plan = schedule.plan
    return plan.token_tile, plan.cta_group, plan.ctas_per_sm, plan.k_split


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
        return sorted(found, key=shape_of)

    def chosen(self) -> tuple[int, ...]:
        """The measured configuration that the present costs choose."""
        return shape_of(min(self.schedules, key=lambda each: each.cost(self.overlapping)))

    def best(self) -> tuple[int, ...]:
        return min(self.times, key=lambda shape: self.times[shape])

    def ratio(self) -> float:
        """Time of the chosen configuration over that of the best."""
        return self.times[self.chosen()] / self.times[self.best()]


@contextlib.contextmanager
def costs(values: Mapping[str, float]) -> Iterator[None]:
    """submission.py with these costs."""
    before = {launches: getattr(submission, launches) for launches, _ in COSTS.values()}
    try:
        for name, value in values.items():
            launches, field = COSTS[name]
            setattr(submission, launches, getattr(submission, launches)._replace(**{field: value}))
        yield
    finally:
        for launches, value in before.items():
            setattr(submission, launches, value)


def current() -> dict[str, float]:
    """The costs of submission.py."""
    return {name: getattr(getattr(submission, launches), field) for name, (launches, field) in COSTS.items()}


def regret(measured: Sequence[Measured], values: Mapping[str, float]) -> float:
    """Geometric mean of chosen time / best time under these costs."""
    with costs(values):
        return geomean(each.ratio() for each in measured)


def tried(value: float) -> list[float]:
    """Values to try for a cost: zero and a logarithmic grid, nearest to the present value first."""
    low, high = DECADES
    least = 10**low
    grid = [0.0, *(float(f"{10 ** (low + step / STEPS):.3g}") for step in range((high - low) * STEPS + 1))]
    return sorted({*grid, value}, key=lambda x: abs(math.log(max(x, least) / max(value, least))))


def search(measured: Sequence[Measured]) -> dict[str, float]:
    """The best costs that a search, one cost after the other, finds."""
    values = current()
    least = regret(measured, values)
    for _ in range(ROUNDS):
        before = dict(values)
        for name in COSTS:
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
        found.append(Measured(problem, case, launches == "overlapping", sizes, kept[0]["products"], sms, times))
    return found


def _key(figure: Mapping[str, Any]) -> tuple[str, int, str]:
    return figure["problem"], figure["case"], figure["launches"]


def suggestion(figures: Sequence[Mapping[str, Any]], sms: int) -> dict[str, Any]:
    """Per case the chosen and the best configuration; the costs and the mean ratio before and after.

    Raises ValueError where no configuration was timed.
    """
    measured = measured_of(figures, sms)
    if not measured:
        raise ValueError("no configuration was timed: there is nothing to suggest from")
    values = search(measured)
    with costs(values):
        after = [(configuration_name(each.chosen()), each.ratio()) for each in measured]
    cases = [
        {
            "problem": each.problem,
            "case": each.case,
            "launches": "overlapping" if each.overlapping else "in turn",
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
    return {"costs": current(), "suggested": values, "cases": cases, **means}
