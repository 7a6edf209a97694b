"""A replay as a trace file that ui.perfetto.dev opens: SMs with their warps by role, copies, tensor core, signals.

Each SM is a process and each warp of a CTA's slot a thread, with a slice for the warp's life. Inside it, waits and
stalls are slices with their reasons. Copies are slices from issue to completion, side by side where they overlap. An
arrow leads from the end of an mbarrier's phase to each warp that waited for it.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from nogpu import headers
from nogpu.clock.replay import Replay
from nogpu.clock.roles import Roles, roles_of_each
from nogpu.clock.trace import Trace

_CLOCK = "clock/native/clock.h"
CTA, WAIT, STALL, MULTIPLY, COPY, SIGNAL = headers.constants(_CLOCK, *headers.enumerators(_CLOCK, "SpanKind"))
"""Kinds of spans."""
ENGINE_TRACK, TENSOR_TRACK = headers.constants(_CLOCK, "ENGINE_TRACK", "TENSOR_TRACK")
_COPIES = {1: "load", 2: "store", 3: "copy to another CTA", 4: "prefetch"}
_WARPS = 32  # tracks of the warps of a CTA
_TENSOR, _COPY = 100_000, 100_001  # tracks of an SM's tensor core and of the first of its copies
_INSIDE = 1e-3  # microseconds from an arrow's start to the end of its slice


def write_timeline(path: Path, replay: Replay, traces: Sequence[Trace]) -> None:
    """Write the spans of a replay, gzipped if the path ends in .gz.

    Raises ValueError for a replay without spans.
    """
    if not len(replay.spans):
        raise ValueError("the replay has kept no spans: give it room for them")
    events = list(_events(replay, traces))
    text = json.dumps({"displayTimeUnit": "ns", "traceEvents": events}, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def tracks(spans: np.ndarray) -> np.ndarray:
    """The slot of each span's CTA on its SM, int[spans] from 0: CTAs that overlap in time have different slots."""
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


def _events(replay: Replay, traces: Sequence[Trace]) -> Iterator[dict]:
    spans = replay.spans.copy()
    for name in ("start", "end"):  # times from the first launch's start, as in the table
        spans[name] -= replay.starts[0]
    roles = roles_of_each(traces)
    scale = 1e-3 / replay.chip.clock_ghz  # microseconds per cycle
    named: set[tuple[int, int]] = set()
    lanes = _lanes(spans)
    ends = _ends(spans, lanes)
    for number, (span, place) in enumerate(zip(spans, tracks(spans).tolist())):
        sm, warp, kind, pc = (int(span[name]) for name in ("sm", "warp", "kind", "pc"))
        launch = int(span["launch"])
        start, end = float(span["start"]) * scale, float(span["end"]) * scale
        track = _warp_track(place, warp)
        if kind == SIGNAL:
            source, cause = pc >> 8, pc & 0xFF
            begin = start
            tid = _warp_track(place, cause)
            if cause in (ENGINE_TRACK, TENSOR_TRACK):
                tid, begin = _before(ends.get((source, cause), []), start / scale, cause)
                begin = begin * scale - _INSIDE
            flow = {"cat": "mbarrier", "name": "mbarrier", "id": number}
            yield {**flow, "ph": "s", "pid": source, "tid": tid, "ts": begin}
            yield {**flow, "ph": "f", "bp": "e", "pid": sm, "tid": track, "ts": end - _INSIDE}
            continue
        if kind == CTA:
            for index, role in enumerate(roles[launch].names):
                tid = _warp_track(place, index)
                yield from _names(named, sm, tid, f"slot {place} warp {index}: {role}")
                yield {"ph": "X", "pid": sm, "tid": tid, "ts": start, "dur": end - start, "name": f"role: {role}"}
        elif kind == MULTIPLY:
            track = _TENSOR
        elif kind == COPY:
            track = _COPY + lanes[number]
        title = {CTA: f"CTA slot {place}", MULTIPLY: "tensor core", COPY: "copies"}.get(kind, "")
        if title:
            yield from _names(named, sm, track, title)
        title = _title(kind, pc, launch, int(span["cta"]), traces[launch], roles[launch])
        yield {"ph": "X", "pid": sm, "tid": track, "ts": start, "dur": end - start, "name": title}


def _warp_track(place: int, warp: int) -> int:
    return (place + 1) * 2 * _WARPS + warp


def _lanes(spans: np.ndarray) -> dict[int, int]:
    """The track of each copy on its SM, by span: slices of a track must not overlap."""
    found: dict[int, int] = {}
    busy: dict[int, list[float]] = {}
    copies = (spans["kind"] == COPY).nonzero()[0]
    for number in copies[np.argsort(spans["start"][copies], kind="stable")].tolist():
        lanes = busy.setdefault(int(spans["sm"][number]), [])
        lane = next((i for i, end in enumerate(lanes) if end <= spans["start"][number]), len(lanes))
        lanes[lane : lane + 1] = [float(spans["end"][number])]
        found[number] = lane
    return found


def _ends(spans: np.ndarray, lanes: dict[int, int]) -> dict[tuple[int, int], list[tuple[float, int]]]:
    """The copies or multiplications of each (SM, ENGINE_TRACK or TENSOR_TRACK), as (end, track) in order."""
    found: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for number, span in enumerate(spans):
        if span["kind"] == COPY:
            found.setdefault((int(span["sm"]), ENGINE_TRACK), []).append((float(span["end"]), _COPY + lanes[number]))
        elif span["kind"] == MULTIPLY:
            found.setdefault((int(span["sm"]), TENSOR_TRACK), []).append((float(span["end"]), _TENSOR))
    for ends in found.values():
        ends.sort()
    return found


def _before(ends: list[tuple[float, int]], time: float, cause: int) -> tuple[int, float]:
    """The (track, end) of the last operation that has ended at a time."""
    at = bisect_right(ends, (time, 1 << 30))
    if not at:
        return _COPY if cause == ENGINE_TRACK else _TENSOR, time
    end, track = ends[at - 1]
    return track, end


def _title(kind: int, pc: int, launch: int, cta: int, trace: Trace, roles: Roles) -> str:
    if kind == CTA:
        return f"launch {launch}, CTA {cta}"
    if kind == MULTIPLY:
        return "MMA"
    if kind == COPY:
        return _COPIES[pc]
    line = trace.instructions[pc].line
    return f"waits: {roles.reasons.get(pc, 'data')} (PTX line {line})" if kind == WAIT else f"stalls (PTX line {line})"


def _names(named: set[tuple[int, int]], sm: int, track: int, title: str) -> Iterator[dict]:
    """The names of an SM and of its track, each once."""
    if (sm, track) in named:
        return
    named.add((sm, track))
    yield {"ph": "M", "name": "process_name", "pid": sm, "tid": 0, "args": {"name": f"SM {sm}"}}
    yield {"ph": "M", "name": "thread_name", "pid": sm, "tid": track, "args": {"name": title}}
    yield {"ph": "M", "name": "thread_sort_index", "pid": sm, "tid": track, "args": {"sort_index": track}}
