"""Constants of launches: periods of empty kernels, starts and ends of CTAs, clocks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from workshop.calibration.launches import (
    END,
    END_NS,
    OUT_BYTES,
    OWN_A,
    OWN_B,
    RECORD,
    SHARED,
    SM,
    START,
    START_NS,
    SUM,
    Launch,
    Measurement,
    Records,
    Sizes,
    medians,
)

EARLY, WAITS = 1, 2  # bits of a mode
STAMPED = 12  # launches of a `stamp` measurement
DURATION = 4000  # cycles of a CTA
READ_LAUNCHES, READ_BYTES = 40, 48 << 10  # launches of a loop that reads; bytes of each CTA
AT_HAND, LATER = 4, 8  # number of early gaps of the loop; index of the first late one


STAMPS = (  # name, mode, CTAs per SM, bytes of shared memory, CTAs of a cluster
    ("in_turn", 0, 1, SHARED, 1),
    ("in_turn.cluster_2", 0, 1, SHARED, 2),
    ("in_turn.cluster_4", 0, 1, SHARED, 4),
    ("in_turn.waves", 0, 8, SHARED, 1),
    ("in_turn.waves_small", 0, 64, 0, 1),
    ("early", EARLY | WAITS, 1, 0, 1),
    ("early.cluster_2", EARLY | WAITS, 1, 0, 2),
    ("early_full", EARLY | WAITS, 1, SHARED, 1),
    ("early_no_wait", EARLY, 1, 0, 1),
)
MODES = {"in_turn": 0, "early_no_wait": EARLY, "early": EARLY | WAITS, "programmatic_late": WAITS}
GRIDS = {"1": 0, "sms": 1, "2_sms": 2, "8_sms": 8}  # CTAs per SM; 0 for one CTA in all


def measurements(sizes: Sizes) -> Iterator[Measurement]:
    """Every measurement of this module."""
    for of in (clocks, stamps, periods, reads):
        yield from of(sizes)


def clocks(sizes: Sizes) -> Iterator[Measurement]:
    """Clocks under load: the SMs' cycles by the GPU's nanoseconds."""
    box = 16 << 10
    boxes = max(8 * sizes.moved // sizes.sms // box, 2)
    arguments = ("rows:128", "out", "data", 32 * box * sizes.sms, boxes, box, 8, 1)
    loads = Launch("tma", "tma_read_bulk", arguments, sizes.sms, 64, 8 * box)
    fma = Launch("issue", "rate_fma_f32", ("out", 100 * sizes.rounds, 3), sizes.sms, 512)
    for name, launch in (("loads", loads), ("fma", fma)):
        yield Measurement(f"clock.{name}", "cycles per ns", launch, clock)


def clock(records: Records) -> float:
    ns = records[:, END_NS] - records[:, START_NS]
    return float((records[:, END] - records[:, START]).sum() / max(ns.sum(), 1))


def periods(sizes: Sizes) -> Iterator[Measurement]:
    """Empty kernels back to back. Their figure is None: events of the host measure the time."""
    for kind, grid, block, cluster, shared in product(MODES, GRIDS, (32, 256), (1, 2, 4), (0, SHARED)):
        mode, ctas = MODES[kind], max((GRIDS[grid] * sizes.sms or 1) // cluster, 1) * cluster
        launch = Launch("launch", "empty", (mode,), ctas, block, shared, cluster, bool(mode))
        name = f"launch.period.{kind}.grid_{grid}.block_{block}.cluster_{cluster}.shared_{shared >> 10}K"
        yield Measurement(name, "us per launch", launch, None, launches=sizes.launches)
    for ctas, grid in ((1, "1"), (sizes.sms, "sms")):
        launch = Launch("launch", "empty", (0,), ctas, 256)
        yield Measurement(f"launch.alone.grid_{grid}.block_256", "us between events", launch, None)


def reads(sizes: Sizes) -> Iterator[Measurement]:
    """Launches back to back that read DRAM: their gaps grow once the commands that were fetched ahead are used up."""
    count, arguments = (
        min(READ_LAUNCHES, 2 * sizes.launches),
        ("out", "data", "number", min(READ_BYTES, sizes.moved_sm)),
    )
    launch = Launch("launch", "read_stamp", arguments, sizes.sms, 256)
    yield Measurement("launch.reads_in_turn", "ns", launch, gap_figures, flush="reads", launches=count)


def gap_figures(records: Records) -> dict[str, float]:
    """Nanoseconds from the last end of a launch to the next one's first start: early_gap and late_gap."""
    by_launch = [records[records[:, OWN_A] == number] for number in np.unique(records[:, OWN_A])]
    gaps = [float(b[:, START_NS].min() - a[:, END_NS].max()) for a, b in zip(by_launch, by_launch[1:])]
    return {"early_gap": float(np.median(gaps[:AT_HAND])), "late_gap": float(np.mean(gaps[LATER:] or gaps))}


def stamps(sizes: Sizes) -> Iterator[Measurement]:
    """Launches whose CTAs write when they start and end."""
    duration = DURATION if sizes.launches > 2 else 10
    for name, mode, waves, shared, cluster in STAMPS:
        grid = waves * sizes.sms // cluster * cluster
        most = OUT_BYTES // (8 * RECORD) // grid
        arguments = ("out", "number", mode, duration)
        launch = Launch("launch", "stamp", arguments, grid, 32, shared, cluster, bool(mode))
        count = min(STAMPED, sizes.launches, most)
        yield Measurement(f"starts.{name}", "as named", launch, stamp_figures, launches=count)


def stamp_figures(records: Records) -> dict[str, float]:
    """Figures of launches' stamps, medians.

    skew_ns: first to last start of a launch. after_last_ns: from the last end of a launch to the first start of the
    next. waited_ns: from the last end of a launch to the first return of griddepcontrol.wait in the next.
    same_sm_cycles: from the last end of a CTA on an SM to the next launch's first start there; same_sm_wave_cycles: to
    a later start of a CTA of the same launch. cycles_per_ns: the clock. at_once: CTAs of a launch that start before its
    first one ends. neighbours: share of the CTAs with even numbers whose next CTA is on the other SM of a pair 2i,
    2i + 1.
    """
    figures: dict[str, list[float]] = {}

    def add(name: str, *values: float) -> None:
        figures.setdefault(name, []).extend(values)

    by_launch = [records[records[:, SUM] == number] for number in np.unique(records[:, SUM])]
    for before, now in zip([None, *by_launch], by_launch):
        start_ns = now[:, START_NS]
        add("skew_ns", float(start_ns.max() - start_ns.min()))
        add("at_once", float((start_ns < now[:, END_NS].min()).sum()))
        together = now[: len(now) // 2 * 2, SM].reshape(-1, 2)
        add("neighbours", float((together[:, 0] ^ 1 == together[:, 1]).mean()))
        add("start_spread_ns", float(np.percentile(start_ns, 90) - np.percentile(start_ns, 10)))
        for number in np.unique(now[:, SM]):
            here = now[now[:, SM] == number]
            here = here[np.argsort(here[:, START])]
            # In the order of starts, each CTA takes the place of the one that ended last before it.
            ends = np.sort(here[:, END])
            for start in here[1:, START]:
                earlier = ends[ends <= start]
                if len(earlier):
                    add("same_sm_wave_cycles", float(start - earlier[-1]))
        if before is None:
            continue
        add("after_last_ns", float(start_ns.min() - before[:, END_NS].max()))
        add("waited_ns", float(now[:, OWN_B].min() - before[:, END_NS].max()))
        add("waited_last_ns", float(now[:, OWN_B].max() - before[:, END_NS].max()))
        add("start_to_start_ns", float(start_ns.min() - before[:, START_NS].min()))
        for number in np.intersect1d(now[:, SM], before[:, SM]):
            mine, theirs = now[now[:, SM] == number], before[before[:, SM] == number]
            add("same_sm_cycles", float(mine[:, START].min() - theirs[:, END].max()))
            add("same_sm_waited_cycles", float(mine[:, OWN_A].min() - theirs[:, END].max()))
    cycles, ns = records[:, END] - records[:, START], records[:, END_NS] - records[:, START_NS]
    if ns.sum():
        add("cycles_per_ns", float(cycles.sum() / ns.sum()))
    return medians(figures)
