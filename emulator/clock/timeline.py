"""A replay as a trace file that ui.perfetto.dev opens: SMs with their warps by role, copies, tensor core, signals.

Each SM is a process and each slot of a CTA's warp a thread. Waits and stalls are slices that say for what; copies are
slices from issue to completion; an arrow leads from what has ended an mbarrier's phase to each warp that waited for it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from emulator.clock.replay import Replay
from emulator.clock.roles import Roles, roles_of
from emulator.clock.trace import Trace

CTA, WAIT, STALL, MULTIPLY, COPY, SIGNAL = range(6)
"""Kinds of spans, as in native/clock.h."""
ENGINE_TRACK, TENSOR_TRACK = 254, 255
_COPIES = {1: "load", 2: "store", 3: "copy to another CTA", 4: "prefetch"}
_WARPS = 32  # tracks of a CTA's warps


def write_timeline(path: Path, replay: Replay, traces: Sequence[Trace], sms: Sequence[int] | None = None) -> None:
    """Writes the spans of a replay, gzipped if the path ends in .gz. sms: these SMs only.

    Raises ValueError for a replay without spans.
    """
    if not len(replay.spans):
        raise ValueError("the replay has kept no spans: give it room for them")
    events = list(_events(replay, traces, sms))
    text = json.dumps({"displayTimeUnit": "ns", "traceEvents": events}, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def tracks(spans: np.ndarray) -> np.ndarray:
    """int[spans]: for each span the place of its CTA on its SM, from 0: CTAs that are there at once have different ones."""
    places: dict[tuple[int, int], int] = {}
    ends: dict[int, list[float]] = {}
    lives = spans[spans["kind"] == CTA]
    for span in lives[np.argsort(lives["start"], kind="stable")]:
        busy = ends.setdefault(int(span["sm"]), [])
        place = next((i for i, end in enumerate(busy) if end <= span["start"]), len(busy))
        busy[place : place + 1] = [float(span["end"])]
        places[int(span["launch"]), int(span["cta"])] = place
    keys = zip(spans["launch"].tolist(), spans["cta"].tolist())
    return np.array([places.get(key, 0) for key in keys], int)


def _events(replay: Replay, traces: Sequence[Trace], sms: Sequence[int] | None) -> Iterator[dict]:
    spans = replay.spans if sms is None else replay.spans[np.isin(replay.spans["sm"], sms)]
    known = {id(trace): roles_of(trace) for trace in traces}
    roles = [known[id(trace)] for trace in traces]
    scale = 1e-3 / replay.chip.clock_ghz  # microseconds of a cycle
    named: set[tuple[int, int]] = set()
    for number, (span, place) in enumerate(zip(spans, tracks(spans))):
        sm, warp, kind, pc = (int(span[name]) for name in ("sm", "warp", "kind", "pc"))
        launch = int(span["launch"])
        track = (place + 1) * _WARPS * 2 + warp
        if kind == MULTIPLY:
            track = TENSOR_TRACK
        elif kind == COPY:
            track = ENGINE_TRACK
        if (sm, track) not in named:
            named.add((sm, track))
            yield from _names(sm, track, place, warp, kind, roles[launch])
        start, end = float(span["start"]) * scale, float(span["end"]) * scale
        if kind == SIGNAL:
            flow = {"cat": "mbarrier", "name": "mbarrier", "id": number}
            source = pc & 0xFF
            tid = source if source >= ENGINE_TRACK else (place + 1) * _WARPS * 2 + source
            yield {**flow, "ph": "s", "pid": pc >> 8, "tid": tid, "ts": start}
            yield {**flow, "ph": "f", "bp": "e", "pid": sm, "tid": track, "ts": end}
            continue
        slice_ = {"ph": "X", "pid": sm, "tid": track, "ts": start, "dur": end - start}
        yield {**slice_, "name": _title(kind, pc, launch, int(span["cta"]), traces[launch], roles[launch])}


def _title(kind: int, pc: int, launch: int, cta: int, trace: Trace, roles: Roles) -> str:
    if kind == CTA:
        return f"launch {launch}, CTA {cta}"
    if kind == MULTIPLY:
        return "MMA"
    if kind == COPY:
        return _COPIES[pc]
    line = trace.instructions[pc].line
    return f"waits: {roles.reasons.get(pc, 'data')} (PTX line {line})" if kind == WAIT else f"stalls (PTX line {line})"


def _names(sm: int, track: int, place: int, warp: int, kind: int, roles: Roles) -> Iterator[dict]:
    yield {"ph": "M", "name": "process_name", "pid": sm, "tid": 0, "args": {"name": f"SM {sm}"}}
    title = (
        f"CTA slot {place}" if kind == CTA else "copies" if kind == COPY else "tensor core" if kind == MULTIPLY else ""
    )
    if not title:
        title = f"slot {place} warp {warp}: {roles.names[warp]}"
    yield {"ph": "M", "name": "thread_name", "pid": sm, "tid": track, "args": {"name": title}}
