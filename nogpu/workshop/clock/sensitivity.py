"""Modelled times of recorded launches on chips that differ from a profile by 20 % in one constant.

Each constant but the number of SMs, and each family of instructions with all of its costs, is taken 20 % lower and 20
% higher, one at a time. A count moves by at least one, and never to 0. A recording is a folder with a file for each
launch of a call (`nogpu.clock.trace.Trace`).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import statistics
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nogpu.clock.chip import PROFILES, Chip, Cost, profile, resolved
from nogpu.clock.loop import modelled_loop
from nogpu.clock.trace import Trace
from nogpu.errors import EmulatorError
from workshop import processes
from workshop.clock.record import load

SHARE = 0.2
FLOOR_PLAN = "sms"  # constant that a profile's GPCs fix
LOWER, HIGHER = "lower", "higher"
IN_TURN = "ordinary launches"  # `Work.launches` if no launch starts before the one ahead has ended

Varied = tuple[str, str, str]  # "constants" or "instructions", name, direction
BASE: Varied = ("", "", "")  # the profile as it is


@dataclasses.dataclass(frozen=True)
class Work:
    """A loop of calls, each with the launches of one recording."""

    folder: Path
    name: str
    launches: str
    calls: int
    silicon_us: float | None = None


Times = Mapping[Varied, Mapping[Work, float | None]]


def moved(value: float, direction: str, of_count: bool) -> float:
    """A constant's value, moved by SHARE. of_count: True if it counts things: an integer above 0 stays one."""
    new = value * (1 - SHARE if direction == LOWER else 1 + SHARE)
    if not of_count or not value.is_integer() or not value:
        return new
    new = min(round(new), value - 1) if direction == LOWER else max(round(new), value + 1)
    return max(new, 1.0)


def varied_chip(chip: Chip, varied: Varied, counts: Container[str]) -> Chip:
    """The chip with one constant or family moved. counts: names of the constants that count things."""
    kind, name, direction = varied
    if kind == "constants":
        return chip.with_constant(name, moved(chip.constants[name], direction, name in counts))
    if kind == "instructions":
        cost = chip.instructions[name]
        costs = (moved(each, direction, False) for each in (cost.issue, cost.interval, cost.latency))
        return dataclasses.replace(chip, instructions={**chip.instructions, name: Cost(cost.pipe, *costs)})
    return chip


def all_varied(chip: Chip, only: str) -> list[Varied]:
    """The profile as it is, then each constant and family with `only` in its name in both directions."""
    names = [("constants", name) for name in chip.constants if name != FLOOR_PLAN]
    names += [("instructions", name) for name in chip.instructions]
    return [BASE, *((*each, direction) for each in names if only in each[1] for direction in (LOWER, HIGHER))]


def counts_of(name: str) -> set[str]:
    """The names of a profile's constants that count things. Factors (`_cost`) have the unit of counts, but are none."""
    path = PROFILES / f"{name}.json"
    data = resolved(json.loads((path if path.exists() else Path(name)).read_text()))
    return {
        constant
        for constant, entry in data["constants"].items()
        if entry["unit"] == "count" and not constant.endswith("_cost")
    }


@functools.lru_cache(maxsize=2)
def _traces(folder: Path, name: str) -> list[Trace]:
    return load(folder / name)


def modelled(work: Work, profile_name: str, varied: Varied) -> float | None:
    """Microseconds of a call; None if the launches do not end on this chip or find no room."""
    chip = varied_chip(profile(profile_name), varied, counts_of(profile_name))
    try:
        programmatic = False if work.launches == IN_TURN else None
        traces = _traces(work.folder, work.name)
        return modelled_loop(traces, chip, work.calls, programmatic=programmatic, words=0).us
    except EmulatorError:
        return None


def figures(base: Sequence[float], new: Sequence[float | None], silicon: Sequence[float | None]) -> dict[str, Any]:
    """Changes of the sample's modelled times, as shares: the median, and the largest in size with its index ("of").

    Beside them: the change of the median error if silicon's times are known, and the number of works without an end.
    """
    changes = {i: after / before - 1 for i, (before, after) in enumerate(zip(base, new, strict=True)) if after}
    found: dict[str, Any] = {"no end": len(base) - len(changes)} if len(changes) < len(base) else {}
    if changes:
        at = max(changes, key=lambda i: abs(changes[i]))
        found |= {"median": round(statistics.median(changes.values()), 5)}
        found |= {"largest": round(changes[at], 5), "of": at}
    compared = [(b, n, s) for b, n, s in zip(base, new, silicon, strict=True) if n and s]
    if compared:
        before, after = (statistics.median(abs(row[i] / row[2] - 1) for row in compared) for i in (0, 1))
        found["median error"] = round(after - before, 5)
    return found


def summed(ended: Sequence[Work], times: Times) -> dict[str, Any]:
    """The works with their modelled times ("sample"), and the `figures` of each constant and family by direction."""
    kept = [work for work in ended if times[BASE][work]]
    base = [times[BASE][work] or 0.0 for work in kept]
    rows = [
        {"name": work.name, "launches": work.launches, "us": round(us, 4)}
        | ({"silicon_us": work.silicon_us} if work.silicon_us else {})
        for work, us in zip(kept, base, strict=True)
    ]
    found: dict[str, Any] = {"sample": rows, "constants": {}, "instructions": {}}
    for (kind, name, direction), new in times.items():
        if kind:
            figures_of = figures(base, [new[work] for work in kept], [work.silicon_us for work in kept])
            found[kind].setdefault(name, {})[direction] = figures_of
    return found


def sensitivities(sample: Sequence[Work], profile_name: str, jobs: int, only: str = "") -> Iterator[dict[str, Any]]:
    """Yields the result of `summed` after each work of the sample. only: part of the names that are varied."""
    times: dict[Varied, dict[Work, float | None]] = {key: {} for key in all_varied(profile(profile_name), only)}
    replays = [(work, profile_name, varied) for work in sample for varied in times]
    for (work, _, varied), us in processes.each(modelled, replays, jobs, "replays"):
        times[varied][work] = us
        if all(work in of for of in times.values()):
            yield summed([each for each in sample if all(each in of for of in times.values())], times)
