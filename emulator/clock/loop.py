"""A call in a loop, as benchmarks time it: its launches are replayed again and again, each call on other data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from emulator.clock.chip import Chip
from emulator.clock.replay import Replay, replay
from emulator.clock.report import Report, report
from emulator.clock.trace import Trace

REPLAYED = 16  # calls that are replayed, at most; those of the second half say what each of the others takes


@dataclass(frozen=True)
class Loop:
    """Modelled figures of a loop."""

    us: float
    """Of a call: from the first call's start to the last one's end, by their number."""
    report: Report
    """Of the calls that were replayed."""
    replay: Replay


def modelled_loop(
    traces: Sequence[Trace],
    chip: Chip,
    calls: int,
    programmatic: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Loop:
    """A loop of so many calls, each of which makes these launches, after a flush of L2 by writes, as benchmarks do it.

    programmatic, progress: as of `replay`.

    Raises what `replay` raises, and ValueError for a call without launches and for no calls.
    """
    if not traces or calls < 1:
        raise ValueError(f"a loop of {calls} calls with {len(traces)} launches each: there must be some of both")
    replayed = min(calls, REPLAYED)
    launches = list(traces) * replayed
    data = [number // len(traces) for number in range(len(launches))]
    found = replay(launches, chip, programmatic=programmatic, other_data=data, dirty_l2=True, progress=progress)
    ends = [end - found.starts[0] for end in found.ends[len(traces) - 1 :: len(traces)]]
    total = ends[-1]
    if calls > replayed:
        half = replayed // 2
        total += (calls - replayed) * (ends[-1] - ends[half - 1]) / (replayed - half)
    return Loop(chip.us(total / calls), report(found, launches), found)
