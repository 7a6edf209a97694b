"""Microbenchmarks: a launch of one kernel, and the figure that its records give."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

START, END, START_NS, END_NS, SM, SUM, OWN_A, OWN_B = range(8)  # words of a record (common.cuh)
RECORD, OUT_BYTES = 8, 4 << 20  # words of a record; bytes of all records
SHARED = 200 << 10  # bytes of dynamic shared memory with which one CTA fits into an SM

Argument = int | str
Records = np.ndarray  # int64 [records, RECORD]
Figure = Callable[[Records], float]


@dataclasses.dataclass(frozen=True)
class Launch:
    """A kernel of a file beside this module, with every argument in order.

    arguments: integers; "out", the records; "data" and "target", zeroed memory; "rows:N", a tensor map of "data" with
    rows of 128 bytes, N of them in a box; "number", 0, 1, ... in launches that run back to back.
    """

    file: str
    kernel: str
    arguments: tuple[Argument, ...]
    grid: int = 1  # CTAs
    block: int = 32  # threads
    shared: int = 0  # bytes, dynamic
    cluster: int = 1  # CTAs
    programmatic: bool = False


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The measurement of a constant of a chip profile.

    figure: function from int64 [records, RECORD], without rows that were not written, to a number, or several by name;
    None for the time by the host's events. words: number of words that a kernel writes instead of records; figure then
    gets int64 [words]. fill: called with the device before the first run. flush: filling of L2 with other data before
    each run, by "reads", "writes", or "writes, rest" (some milliseconds earlier); "" for none. launches: number of
    launches, back to back.
    """

    name: str
    unit: str
    launch: Launch
    figure: Callable[[np.ndarray], float | dict[str, float]] | None
    words: int = 0
    fill: Callable[[Any], None] | None = None
    flush: str = ""
    launches: int = 1


def span(records: Records) -> float:
    """Cycles from the first start to the last end of warps of one SM."""
    return float(records[:, END].max() - records[:, START].min())


def median_span(records: Records) -> float:
    """Median over records of cycles from start to end."""
    return float(np.median(records[:, END] - records[:, START]))


def nanoseconds(records: Records) -> float:
    """Time from the first start to the last end, on all SMs."""
    return float(records[:, END_NS].max() - records[:, START_NS].min())


def medians(figures: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(np.median(values)) for name, values in figures.items()}


def cycles_per(operations: float) -> Figure:
    """Cycles of one SM, divided by the number of operations."""
    return lambda records: span(records) / operations


def operations_per_cycle(operations: float) -> Figure:
    return lambda records: operations / span(records)


def gigabytes_per_second(total: float) -> Figure:
    """Rate of all SMs. total: bytes that all CTAs move."""
    return lambda records: total / nanoseconds(records)


def bytes_per_cycle(each: float) -> Figure:
    """Rate of one SM. each: bytes that the only CTA moves."""
    return lambda records: each / span(records)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The amount of work of a measurement. SMOKE is for a test: its figures mean nothing."""

    rounds: int = 64  # iterations of unrolled loops
    loads: int = 2048  # loads of a chain in memory
    moved: int = 512 << 20  # bytes of a whole chip's measurement
    moved_sm: int = 8 << 20  # bytes of one SM's measurement
    hits: int = 16 << 20  # bytes that stay in L2
    launches: int = 60
    repeats: int = 7
    warps: Sequence[int] = (1, 2, 4, 8, 16, 32)
    sms: int = 0  # 0: all
    region: int = 0  # bytes of `data` on the device


SMOKE = Sizes(1, 16, 256 << 10, 128 << 10, 512 << 10, 2, 1, (1, 4), 4)
