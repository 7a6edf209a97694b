"""The report of a replay, in words and numbers: times, utilisation, waits and their reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from nogpu.clock.replay import Replay
from nogpu.clock.roles import roles_of_each
from nogpu.clock.trace import Trace


@dataclass(frozen=True)
class Report:
    """The report of launches that were replayed one after another."""

    us: float  # time from the first start to the last end
    utilisation: dict[str, float]  # part of the chip -> share of its rate
    waits: dict[str, dict[str, float]]  # role -> reason, or "issue" -> share of the role's time


def report(replay: Replay, traces: Sequence[Trace]) -> Report:
    """The report of a replay of these launches."""
    chip, usage = replay.chip, replay.usage
    constants = chip.constants
    cycles = max(replay.ends[-1] - replay.starts[0], 1.0)
    utilisation = {
        "DRAM": (usage.dram_read + usage.dram_written) / cycles / constants["dram_rate"],
        "L2": (usage.l2_hits + usage.l2_misses) / cycles / constants["l2_rate"],
        "SMEM fill": usage.sm_in / cycles / constants["sms"] / constants["sm_in_rate"],
    }
    if constants["tensor_core"]:
        utilisation["tensor core"] = usage.tensor_cycles / cycles / constants["sms"]
    return Report(replay.us, utilisation, _waits(replay, traces))


def _waits(replay: Replay, traces: Sequence[Trace]) -> dict[str, dict[str, float]]:
    """The shares of each role's time."""
    spent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for roles, waits, busy in zip(roles_of_each(traces), replay.waits, replay.busy, strict=True):
        for warp, name in enumerate(roles.names):
            spent[name]["issue"] += float(busy[warp])
            for pc in waits[warp].nonzero()[0]:
                spent[name][roles.reasons.get(int(pc), "data")] += float(waits[warp][pc])
    return {
        name: {reason: part / sum(parts.values()) for reason, part in sorted(parts.items(), key=lambda item: -item[1])}
        for name, parts in spent.items()
        if sum(parts.values())
    }
