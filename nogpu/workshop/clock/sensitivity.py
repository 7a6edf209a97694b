"""Modelled times of recorded launches where a constant of the chip's profile moves by 20 %.

Each constant but the number of SMs, and each family of instructions with all of its costs, is taken 20 % lower and 20
% higher, one at a time; a count of whole things by at least one, and never to none. A recording is a folder with a file
for each launch of a call (`nogpu.clock.trace.Trace`).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.progress import Progress

from nogpu.clock.chip import PROFILES, Chip, Cost, profile, resolved
from nogpu.clock.loop import modelled_loop
from nogpu.clock.trace import Trace
from nogpu.errors import EmulatorError
from workshop.clock.record import load

SHARE = 0.2
FLOOR_PLAN = "sms"  # a profile's GPCs say how many there are
LOWER, HIGHER = "lower", "higher"
IN_TURN = "ordinary launches"  # of a work: no launch starts before the one ahead has ended


@dataclasses.dataclass(frozen=True)
class Work:
    """A loop of calls, of which each has the launches of a recording."""

    folder: Path
    name: str
    launches: str
    calls: int
    silicon_us: float | None = None


@dataclasses.dataclass(frozen=True)
class Varied:
    """A constant, or a family of instructions, and how it is moved."""

    name: str
    of_instructions: bool
    direction: str


def moved(value: float, direction: str, of_count: bool) -> float:
    """A constant's value, moved; of_count: it counts whole things."""
    new = value * (1 - SHARE if direction == LOWER else 1 + SHARE)
    if not of_count or not value.is_integer() or not value:
        return new
    new = min(round(new), value - 1) if direction == LOWER else max(round(new), value + 1)
    return max(new, 1.0)


def varied_chip(chip: Chip, varied: Varied, counts: Iterable[str]) -> Chip:
    """counts: names of the constants that count things."""
    if not varied.of_instructions:
        value = moved(chip.constants[varied.name], varied.direction, varied.name in counts)
        return chip.with_constant(varied.name, value)
    cost = chip.instructions[varied.name]
    costs = (moved(each, varied.direction, False) for each in (cost.issue, cost.interval, cost.latency))
    return dataclasses.replace(chip, instructions={**chip.instructions, varied.name: Cost(cost.pipe, *costs)})


def counts_of(name: str) -> set[str]:
    """The constants of a profile that count things; a cost is a factor."""
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


def modelled(work: Work, chip: Chip) -> float | None:
    """Microseconds of a call; None where the launches come to no end on this chip or find no room."""
    try:
        programmatic = False if work.launches == IN_TURN else None
        return modelled_loop(_traces(work.folder, work.name), chip, work.calls, programmatic, words=0).us
    except EmulatorError:
        return None


def modelled_both(work: Work, profile_name: str, name: str, of_instructions: bool) -> dict[str, float | None]:
    """Modelled times by direction. A name of "" is the profile as it is, under the same key."""
    chip, counts = profile(profile_name), counts_of(profile_name)
    if not name:
        return {"": modelled(work, chip)}
    ways = (Varied(name, of_instructions, direction) for direction in (LOWER, HIGHER))
    return {each.direction: modelled(work, varied_chip(chip, each, counts)) for each in ways}


def figures(base: Sequence[float], new: Sequence[float | None], silicon: Sequence[float | None]) -> dict[str, Any]:
    """Changes of the sample's modelled times as shares: median, largest in size and its place; the median error's
    change, where silicon's times are known; how many came to no end.
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


def summed(
    sample: Sequence[Work], times: dict[tuple[str, bool], dict[str, dict[int, float | None]]], ended: Sequence[int]
) -> dict[str, Any]:
    """The sample with its modelled times, and the figures of each constant and family by direction.

    times: by name and whether it is of instructions, by direction, by place in the sample. ended: places that have all.
    """
    base = times["", False][""]
    places = [place for place in ended if base[place]]
    kept = [base[place] or 0.0 for place in places]
    silicon = [sample[place].silicon_us for place in places]
    rows = [
        {"name": work.name, "launches": work.launches, "us": round(us, 4)}
        | ({"silicon_us": work.silicon_us} if work.silicon_us else {})
        for work, us in zip((sample[place] for place in places), kept, strict=True)
    ]
    found: dict[str, Any] = {"sample": rows, "constants": {}, "instructions": {}}
    for (name, of_instructions), ways in times.items():
        if name:
            found["instructions" if of_instructions else "constants"][name] = {
                direction: figures(kept, [new[place] for place in places], silicon) for direction, new in ways.items()
            }
    return found


def sensitivities(sample: Sequence[Work], profile_name: str, jobs: int, only: str = "") -> Iterator[dict[str, Any]]:
    """`summed`, after each work of the sample that is done. only: part of the names that are varied."""
    chip = profile(profile_name)
    names = [*((name, False) for name in chip.constants if name != FLOOR_PLAN), *((n, True) for n in chip.instructions)]
    names = [("", False), *(key for key in names if only in key[0])]
    times: dict[tuple[str, bool], dict[str, dict[int, float | None]]] = {
        key: {direction: {} for direction in ((LOWER, HIGHER) if key[0] else ("",))} for key in names
    }
    left = dict.fromkeys(range(len(sample)), len(names))
    with Progress(transient=True) as progress, ProcessPoolExecutor(jobs) as pool:
        bar = progress.add_task("replays", total=len(sample) * len(names))
        running = {
            pool.submit(modelled_both, work, profile_name, *key): (place, key)
            for place, work in enumerate(sample)
            for key in names
        }
        for each in as_completed(running):
            place, key = running[each]
            for direction, us in each.result().items():
                times[key][direction][place] = us
            progress.advance(bar)
            left[place] -= 1
            if not left[place]:
                yield summed(sample, times, [place for place, count in left.items() if not count])
