"""A replay as a picture: one SM, warp by warp, above all SMs of the chip. Needs matplotlib (extra `pictures`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from emulator.clock.replay import Replay
from emulator.clock.roles import roles_of
from emulator.clock.timeline import COPY, CTA, MULTIPLY, STALL, WAIT, tracks
from emulator.clock.trace import Trace

_COLOURS = {
    "loads": "#4c78a8",
    "tensor core": "#f58518",
    "other warps": "#b279a2",
    "data": "#9d755d",
    "launch before": "#bab0ac",
    "issue": "#54a24b",
}
_OTHER = "#e0d8c8"


def draw(path: Path, replay: Replay, traces: Sequence[Trace], title: str, sm: int = 0) -> None:
    """Writes a PNG. Raises ValueError for a replay without spans, RuntimeError without matplotlib."""
    if not len(replay.spans):
        raise ValueError("the replay has kept no spans: give it room for them")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RuntimeError("a picture needs matplotlib: pip install '.[pictures]'") from error
    figure = Figure(figsize=(14, 9), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(3, 2))
    _one_sm(above, replay, traces, sm)
    _all_sms(below, replay)
    figure.suptitle(title)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _one_sm(axes, replay: Replay, traces: Sequence[Trace], sm: int) -> None:
    spans = replay.spans[replay.spans["sm"] == sm]
    places = tracks(spans)
    known = {id(trace): roles_of(trace) for trace in traces}
    rows: dict[str, int] = {}
    shown: dict[str, str] = {}
    for span, place in zip(spans, places):
        kind, pc, roles = int(span["kind"]), int(span["pc"]), known[id(traces[span["launch"]])]
        if kind == CTA:
            for warp, name in enumerate(roles.names):
                bar = rows.setdefault(f"slot {place} warp {warp}: {name}", len(rows))
                _bar(axes, replay, span, bar, _COLOURS["issue"], 0.8)
            shown["issue"] = _COLOURS["issue"]
    for span, place in zip(spans, places):
        kind, pc, roles = int(span["kind"]), int(span["pc"]), known[id(traces[span["launch"]])]
        if kind in (WAIT, STALL):
            warp = int(span["warp"])
            reason = roles.reasons.get(pc, "data")
            colour = shown[reason] = _COLOURS.get(reason, _OTHER)
            _bar(axes, replay, span, rows[f"slot {place} warp {warp}: {roles.names[warp]}"], colour, 0.8)
        elif kind == MULTIPLY:
            _bar(axes, replay, span, rows.setdefault("tensor core", len(rows)), "#e45756", 0.8)
        elif kind == COPY:
            _bar(axes, replay, span, rows.setdefault("copies in flight", len(rows)), "#4c78a833", 0.8)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_title(f"SM {sm}: what each warp waits for", loc="left")
    axes.legend(
        [axes.barh([0], [0], color=colour) for colour in shown.values()],
        [f"waits for {name}" if name != "issue" else "issues" for name in shown],
        loc="upper right",
        fontsize="small",
    )


def _all_sms(axes, replay: Replay) -> None:
    lives = replay.spans[replay.spans["kind"] == CTA]
    launches = max(1, int(lives["launch"].max()) + 1 if len(lives) else 1)
    for span in lives:
        shade = 0.25 + 0.6 * (int(span["launch"]) % 4) / 3 if launches > 1 else 0.5
        _bar(axes, replay, span, int(span["sm"]), (0.3, 0.47, 1 - shade, 0.6), 1.0)
    axes.set_ylabel("SM")
    axes.set_xlabel("modelled us")
    axes.set_title("All SMs: CTAs, a shade for each launch", loc="left")


def _bar(axes, replay: Replay, span: np.void, row: int, colour: object, height: float) -> None:
    start, end = replay.chip.us(float(span["start"])), replay.chip.us(float(span["end"]))
    axes.barh(row, end - start, left=start, height=height, color=colour, linewidth=0)
