"""The text of a report: times, utilisation and waits, always called modelled, with the known error of the model."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nogpu.clock.chip import Chip
from nogpu.clock.replay import Replay
from nogpu.clock.report import Report, report
from nogpu.clock.trace import Trace

ERRORS = Path(__file__).with_name("errors.json")
ORDINARY = "ordinary launches"  # kind of a point, also if the point names none
OTHERS = "others"  # kind of points with the programmatic attribute
LONGEST_LIST = 40  # launches in the list, at most
_NAME = 44  # characters
_LEAST = 0.005  # share of a role's time below which a reason is omitted


def errors(points: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The model's errors by kind of launch: median, the bound of nine tenths of them, and the number of points.

    points: of a chip, as `workshop.clock.ladders` and `tools.clock.validate` save them. Those on a floor are left out.
    """
    sizes: dict[str, list[float]] = {ORDINARY: [], OTHERS: []}
    for point in points:
        if "modelled_us" in point and not point.get("floor"):
            kind = ORDINARY if point.get("launches", ORDINARY) == ORDINARY else OTHERS
            sizes[kind].append(abs(point["modelled_us"] / point["silicon_us"] - 1))
    return {
        kind: {
            "median": statistics.median(found),
            "nine tenths": sorted(found)[min(int(0.9 * len(found)), len(found) - 1)],
            "points": len(found),
        }
        for kind, found in sizes.items()
        if found
    }


def error_band(chip: Chip, file: Path = ERRORS) -> str:
    """A text on the model's error on a chip, for ordinary launches, as published kernels are timed, and for others."""
    known = json.loads(file.read_text()).get(chip.name)
    if known is None:
        return "error not known on this chip"
    texts = (
        f"{kind}: median {found['median']:.0%}, 90 % of {found['points']} points within {found['nine tenths']:.0%}"
        if (found := known.get(kind))
        else f"{kind}: not known"
        for kind in (ORDINARY, OTHERS)
    )
    return f"error against silicon in {'; in '.join(texts)}"


def summary(replay: Replay, traces: Sequence[Trace]) -> list[str]:
    """Lines of text about launches in a row."""
    chip, found = replay.chip, report(replay, traces)
    omitted = "" if chip.constants["tensor_core"] else "; tensor core omitted: this chip has none for tcgen05"
    lines = [f"clock: modelled on {chip.name}, {error_band(chip)}{omitted}"]
    lines.append(f"  {'launch':>6}  {'kernel':{_NAME}}  {'start us':>9}  {'modelled us':>11}")
    for number, (trace, start, end) in enumerate(zip(traces, replay.starts, replay.ends)):
        if number == LONGEST_LIST and len(traces) > LONGEST_LIST + 1:
            lines.append(f"  {'...':>6}  {len(traces) - LONGEST_LIST} more")
            break
        name = trace.name if len(trace.name) <= _NAME else trace.name[: _NAME - 1] + "…"
        lines.append(
            f"  {number:>6}  {name:{_NAME}}  {chip.us(start - replay.starts[0]):>9.2f}  {chip.us(end - start):>11.2f}"
        )
    lines.append(f"  from the first start to the last end: {found.us:.2f} modelled us")
    lines.append(f"  utilisation: {shares(found.utilisation)}")
    lines += [f"  {line}" for line in waits(found)]
    return lines


def waits(found: Report) -> list[str]:
    """Lines of text, one for each role: its waits, and the share of its time in which it issues."""
    width = max(map(len, found.waits), default=0)
    lines = []
    for role, parts in found.waits.items():
        waited = {f"waits for {reason}" if reason != "issue" else "issues": part for reason, part in parts.items()}
        lines.append(f"{role:{width}}  {shares({name: part for name, part in waited.items() if part >= _LEAST})}")
    return lines


def shares(parts: dict[str, float]) -> str:
    """The names with their shares in percent."""
    return ", ".join(f"{name} {part:.0%}" for name, part in parts.items())
