"""A call in a loop, as benchmarks time it: its launches are replayed repeatedly, each call on other data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

from nogpu.clock.chip import Chip
from nogpu.clock.replay import Options, Replay, replay
from nogpu.clock.report import Report, report
from nogpu.clock.trace import Trace

WORDS = 40_000_000  # words of records that are replayed, in some 4 s; more if LEAST calls have more
LEAST = 8  # least number of calls that are replayed


@dataclass(frozen=True)
class Loop:
    """The modelled figures of a loop."""

    us: float
    """Microseconds of a call: from the event before the first to the end of the last, divided by their number."""
    report: Report
    """Report of the calls that were replayed."""
    replay: Replay


def modelled_loop(
    traces: Sequence[Trace],
    chip: Chip,
    calls: int,
    *,
    words: int = WORDS,
    same_data: bool = False,
    least: int = LEAST,
    **options: Unpack[Options],
) -> Loop:
    """Model a loop of `calls` calls with these launches, after a flush of L2 by writes, as in benchmarks.

    Only as many calls as have `words` words of records, but at least `least`, are replayed. Each further call adds the
    time that a call of the second half of those adds. same_data: True if every call has the data of the first, instead
    of its own. options: those of `replay`; skips has one item per launch of a call.

    Raises the errors of `replay`, and ValueError for a call without launches and for no calls.
    """
    if not traces or calls < 1:
        raise ValueError(f"a loop of {calls} calls with {len(traces)} launches each: there must be some of both")

    skips, spans = options.get("skips"), options.get("spans", 0)

    def of(count: int, spans: int = 0) -> Replay:
        data = [0 if same_data else number // len(traces) for number in range(count * len(traces))]
        of_calls: Options = {**options, "spans": spans, "skips": None if skips is None else list(skips) * count}
        return replay(list(traces) * count, chip, other_data=data, dirty_l2=True, **of_calls)

    count = min(calls, max(least, words // sum(len(trace.words) for trace in traces)))
    found = of(count, spans)
    total = found.ends[-1]  # time from the event before the first launch
    if calls > count:
        half = count // 2
        if options.get("programmatic") is False or not any(trace.programmatic for trace in traces):
            halfway = found.ends[half * len(traces) - 1]
        else:  # overlapping calls end in batches, so half the calls are replayed with no call behind them
            shorter = of(half)
            halfway = shorter.ends[-1]
        total += (calls - count) * (total - halfway) / (count - half)
    return Loop(chip.us(total / calls), report(found, list(traces) * count), found)
