"""The text of a report: times, utilisation and waits, always called modelled, with the error that is known of them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from emulator.clock.chip import Chip
from emulator.clock.replay import Replay
from emulator.clock.report import Report, report
from emulator.clock.trace import Trace

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
ORDINARY = "ordinary launches"  # of a point; where it does not say, it is one
LONGEST_LIST = 40  # launches that are listed
_NAME = 44  # characters
_LEAST = 0.005  # share of a role's time below which a reason is left out


def error_band(chip: Chip, folder: Path = RESULTS) -> str:
    """The text on the model's error on a chip, by the points of clock-NAME.json.

    Of ordinary launches, as published kernels are timed, and of others, with the programmatic attribute.
    """
    try:
        points = json.loads((folder / f"clock-{chip.name}.json").read_text())["points"]
        known = [point for point in points if "modelled_us" in point and not point.get("floor")]
        sizes: dict[bool, list[float]] = {True: [], False: []}
        for point in known:
            is_ordinary = point.get("launches", ORDINARY) == ORDINARY
            sizes[is_ordinary].append(abs(point["modelled_us"] / point["silicon_us"] - 1))
    except (OSError, ValueError, KeyError, TypeError):
        return "error not known on this chip"
    return f"error against silicon in {ORDINARY}: {_errors(sizes[True])}; in others: {_errors(sizes[False])}"


def _errors(sizes: list[float]) -> str:
    if not sizes:
        return "not known"
    high = sorted(sizes)[min(int(0.9 * len(sizes)), len(sizes) - 1)]
    return f"median {statistics.median(sizes):.0%}, 90 % of {len(sizes)} points within {high:.0%}"


def summary(replay: Replay, traces: Sequence[Trace]) -> list[str]:
    """Lines of text on launches in a row."""
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
    """A line for each role: what it waits for, and what of its time it issues."""
    width = max(map(len, found.waits), default=0)
    lines = []
    for role, parts in found.waits.items():
        waited = {f"waits for {reason}" if reason != "issue" else "issues": part for reason, part in parts.items()}
        lines.append(f"{role:{width}}  {shares({name: part for name, part in waited.items() if part >= _LEAST})}")
    return lines


def shares(parts: dict[str, float]) -> str:
    """Names with percent."""
    return ", ".join(f"{name} {part:.0%}" for name, part in parts.items())
