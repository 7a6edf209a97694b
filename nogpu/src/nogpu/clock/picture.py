"""A replay as a picture: one SM, warp by warp, above all SMs of the chip. Needs matplotlib (extra `pictures`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nogpu.clock.replay import Replay
from nogpu.clock.roles import roles_of_each
from nogpu.clock.timeline import COPY, CTA, MULTIPLY, STALL, WAIT, tracks
from nogpu.clock.trace import Trace

ISSUE = "issue"
_REASONS = {  # activity or reason to wait -> colour, in the order of the legend
    ISSUE: "#54a24b",
    "loads": "#4c78a8",
    "tensor core": "#f58518",
    "data": "#9d755d",
    "other warps": "#b279a2",
    "launch before": "#2f2f2f",
    "named barrier": "#d8d0c0",
    "cluster barrier": "#b8b0a0",
    "bulk copies": "#72b7b2",
    "cp.async copies": "#8fc8e8",
    "tensor memory": "#eeca3b",
    "tensor memory columns": "#ffd8a8",
}
_OTHER = "#ff9da6"
_MULTIPLIES, _COPIES = "#e45756", "#4c78a8"
_LAUNCHES = ("#4c78a8", "#e4a257", "#54a24b", "#b279a2")

Bars = dict[tuple[int, str], list[tuple[float, float]]]
"""(row, colour) -> (start, duration) in us of each bar."""


def draw(path: Path, replay: Replay, traces: Sequence[Trace], title: str, sm: int | None = None) -> None:
    """Write a PNG. sm: the SM whose warps are shown, by default the one with the first CTA.

    Raises ValueError for a replay without spans or an SM without CTAs, RuntimeError without matplotlib.
    """
    lives = replay.spans[replay.spans["kind"] == CTA]
    if not len(lives):
        raise ValueError("the replay has kept no spans of CTAs: give it room for them")
    sm = int(lives["sm"][np.argmin(lives["start"])]) if sm is None else sm
    if not (lives["sm"] == sm).any():
        raise ValueError(f"SM {sm} has no CTA")
    try:
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError as error:
        raise RuntimeError("a picture needs matplotlib: pip install 'nogpu[pictures]'") from error
    names, bars, reasons = _one_sm(replay, traces, sm)
    figure = Figure(figsize=(12, 3.6 + 0.24 * len(names)), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(len(names), 9), sharex=True)
    _show(above, bars, 0.85)
    above.set_yticks(range(len(names)), names, fontsize="small")
    above.set_ylim(len(names) - 0.4, -0.6)
    above.set_title(f"SM {sm}: what each warp waits for", loc="left", fontsize="medium")
    known = [reason for reason in _REASONS if reason in reasons]
    patches = [Patch(color=_REASONS[reason], label=_label(reason)) for reason in known]
    if len(known) < len(reasons):
        patches.append(Patch(color=_OTHER, label="waits for something else"))
    _show(below, _all_sms(replay, lives), 1.0)
    below.set_ylim(-0.5, int(lives["sm"].max()) + 0.5)
    below.set_ylabel("SM")
    below.set_xlabel("modelled us")
    below.set_title("all SMs: when each holds CTAs, a colour for each launch", loc="left", fontsize="medium")
    figure.legend(handles=patches, loc="outside lower center", ncols=5, fontsize="small", frameon=False)
    figure.suptitle(title)
    for axes in (above, below):
        axes.margins(x=0.01)
        axes.set_xlim(left=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=100, metadata={"Software": None})


def _label(reason: str) -> str:
    return "issues" if reason == ISSUE else f"waits for {reason}"


def _one_sm(replay: Replay, traces: Sequence[Trace], sm: int) -> tuple[list[str], Bars, set[str]]:
    """The row names, bars and reasons of one SM. A warp issues when it does not wait."""
    spans = replay.spans[replay.spans["sm"] == sm]
    places = tracks(spans).tolist()
    roles = roles_of_each(traces)
    lives = [(place, int(span["launch"])) for span, place in zip(spans, places) if span["kind"] == CTA]
    warps = {place: roles[launch].names for place, launch in sorted(lives, reverse=True)}
    several = len(warps) > 1
    rows: dict[tuple[int, int], int] = {}
    names: list[str] = []
    for place in sorted(warps):
        for warp, role in enumerate(warps[place]):
            rows[place, warp] = len(rows)
            names.append((f"CTA place {place}, " if several else "") + f"warp {warp}: {role}")
    copies, multiplies = len(names), len(names) + 1
    bars: Bars = defaultdict(list)
    reasons = {ISSUE}
    for span, place in zip(spans, places):
        kind, part = int(span["kind"]), _part(replay, span)
        if kind == CTA:
            for warp in range(len(roles[span["launch"]].names)):
                bars.setdefault((rows.setdefault((place, warp), len(rows)), _REASONS[ISSUE]), []).append(part)
        elif kind == COPY:
            bars[copies, _COPIES].append(part)
        elif kind == MULTIPLY:
            bars[multiplies, _MULTIPLIES].append(part)
    for span, place in zip(spans, places):
        if int(span["kind"]) in (WAIT, STALL):
            reason = roles[span["launch"]].reasons.get(int(span["pc"]), "data")
            reasons.add(reason)
            bars[rows[place, int(span["warp"])], _REASONS.get(reason, _OTHER)].append(_part(replay, span))
    names += ["copies in flight"]
    if bars.get((multiplies, _MULTIPLIES)):
        names += ["tensor core busy"]
    return names, bars, reasons


def _all_sms(replay: Replay, lives: np.ndarray) -> Bars:
    bars: Bars = defaultdict(list)
    for span in lives:
        bars[int(span["sm"]), _LAUNCHES[int(span["launch"]) % len(_LAUNCHES)]].append(_part(replay, span))
    return bars


def _show(axes: Any, bars: Bars, height: float) -> None:
    for (row, colour), parts in bars.items():
        shade = 0.3 if colour == _COPIES and height < 1 and len(parts) > 1 and _overlap(parts) else 1.0
        alpha = 0.6 if height == 1 else shade
        axes.broken_barh(parts, (row - height / 2, height), color=colour, linewidth=0, alpha=alpha)


def _overlap(parts: list[tuple[float, float]]) -> bool:
    ordered = sorted(parts)
    return any(start + duration > following for (start, duration), (following, _) in zip(ordered, ordered[1:]))


def _part(replay: Replay, span: np.void) -> tuple[float, float]:
    """The start and the duration of a span, in us from the first launch's start."""
    start, end = replay.chip.us(float(span["start"])), replay.chip.us(float(span["end"]))
    return start - replay.chip.us(replay.starts[0]), end - start
