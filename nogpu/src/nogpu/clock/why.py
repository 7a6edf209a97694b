"""Causes of a launch's time: replays in which one part of the chip, or one kind of wait, costs nothing.

A part of the chip is a `Resource`. At a wait that costs nothing warps go on at once, as if it were over; operations
that then come too early wait instead. Each gain stands alone, and is an upper bound of what a faster part, or a
shorter wait, can bring. Replays run in threads: the compiled code of one leaves Python to the others.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nogpu.clock.chip import Chip
from nogpu.clock.costs import SKIP_DATA, SKIP_WAIT, family_of
from nogpu.clock.loop import modelled_loop
from nogpu.clock.replay import Replay
from nogpu.clock.resources import RESOURCES, Resource
from nogpu.clock.roles import Roles, roles_of_each
from nogpu.clock.trace import Trace
from nogpu.errors import EmulatorError
from nogpu.ptx.ir import Instruction

WORDS, CALLS = 8_000_000, 4  # size of a loop in each replay: words of its records, or calls if they have more
LEAST = 0.005  # share of the time below which gains are summed up
PLACES, LEAST_PLACE = 2, 0.1  # source lines of a row, and the least share of its waits for the second line
_WAITS = {  # reason of a wait -> name of its row
    "data": "wait for data",
    "named barrier": "wait at named barriers",
    "cluster barrier": "wait at cluster barriers",
    "launch before": "wait for the launch before",
    "bulk copies": "wait for groups of bulk copies",
    "cp.async copies": "wait for cp.async copies",
    "tensor memory columns": "wait for columns of tensor memory",
    "tensor memory": "wait for loads of tensor memory",
    "nanosleep": "nanosleep",
}

Skips = Sequence[np.ndarray]
"""Waits that cost nothing, by launch: uint8[instructions], as for `replay`."""
Run = Callable[[Chip, Skips | None], tuple[float, Replay]]
"""Function that replays the launches, once or repeatedly. Returns the microseconds that count, and the replay."""


@dataclass(frozen=True)
class Change:
    """One thing that costs nothing: a part of the chip, or waits at some instructions of each launch."""

    name: str
    resource: Resource | None = None
    skips: Skips | None = None
    waits: Mapping[int, set[int]] = field(default_factory=dict)
    """Instructions at which warps wait, by identity of a launch's instructions."""


@dataclass(frozen=True)
class Gain:
    """The gain from a change."""

    name: str
    us: float
    places: list[tuple[str, float]]
    """Pairs (source line, role and reason; share of the saved waits), the largest first."""


class Study:
    """Replays of launches, each with one thing that costs nothing."""

    def __init__(self, traces: Sequence[Trace], chip: Chip, run: Run, base: tuple[float, Replay] | None = None) -> None:
        """base: the result of `run` for the unchanged chip. Raises the errors of `run`."""
        self._traces, self._run = list(traces), run
        self.chip = chip
        self.us, replayed = base or run(chip, None)
        self._roles = roles_of_each(self._traces)
        self._spent = self._spent_in(replayed)
        self._changes = [*(Change(part.name, part) for part in self._resources()), *self._waits()]
        self.gains: list[Gain] = []
        self.failed: dict[str, str] = {}  # name of a change -> reason why it has no replay
        self.done = 0

    @property
    def total(self) -> int:
        """The number of changes; `done` of them have been replayed."""
        return len(self._changes)

    def advance(self) -> None:
        """Replay a change on each core. Raises the errors of a replay, except for launches that never end."""
        batch = self._changes[self.done : self.done + len(os.sched_getaffinity(0))]
        for change, outcome in zip(batch, _each(lambda change: self._gain(change), batch)):
            if isinstance(outcome, Gain):
                self.gains.append(outcome)
            elif isinstance(outcome, (EmulatorError, ValueError)):
                self.failed[change.name] = str(outcome).splitlines()[0]
            else:
                raise outcome
        self.done += len(batch)
        self.gains.sort(key=lambda gain: -gain.us)

    def _gain(self, change: Change) -> Gain:
        chip = change.resource.freed(self.chip) if change.resource else self.chip
        us, replayed = self._run(chip, change.skips)
        return Gain(change.name, self.us - us, self._places(replayed, change))

    def _spent_in(self, replayed: Replay) -> list[np.ndarray]:
        """Cycles of waits in all repetitions of each launch: float64[warps of a CTA, instructions]."""
        count = len(self._traces)
        return [np.sum(replayed.waits[number::count], axis=0) for number in range(count)]

    def _resources(self) -> list[Resource]:
        """The parts that the launches' instructions use."""
        kinds = {family_of(each.opcode)[0] for trace in self._traces for each in trace.instructions}
        return [part for part in RESOURCES if not part.classes or kinds.intersection(part.classes)]

    def _waits(self) -> list[Change]:
        """A change for each kind of wait that costs time; waits at mbarriers are split by role and reason."""
        found: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))  # name -> instructions -> pcs
        for trace, roles, spent in zip(self._traces, self._roles, self._spent, strict=True):
            for pc in np.flatnonzero(spent.any(axis=0)).tolist():
                warps = np.flatnonzero(spent[:, pc]).tolist()
                name = _name_of(trace.instructions[pc], roles, pc, warps)
                found[name][id(trace.instructions)].add(pc)
        return [Change(name, skips=self._skips(name, pcs), waits=pcs) for name, pcs in found.items()]

    def _skips(self, name: str, pcs: Mapping[int, set[int]]) -> Skips:
        """The skips of a change; launches of one kernel share an array. Data is skipped at all instructions."""
        arrays: dict[int, np.ndarray] = {}
        for trace in self._traces:
            key = id(trace.instructions)
            if key not in arrays:
                arrays[key] = np.zeros(len(trace.instructions), np.uint8)
                if name == _WAITS["data"]:
                    arrays[key][:] = SKIP_DATA
                else:
                    arrays[key][list(pcs.get(key, ()))] = SKIP_WAIT
        return [arrays[id(trace.instructions)] for trace in self._traces]

    def _places(self, replayed: Replay, change: Change) -> list[tuple[str, float]]:
        """The source lines with the largest gains, averaged over a role's warps; for skipped waits only their lines."""
        parts: dict[str, float] = defaultdict(float)
        several = len({trace.name for trace in self._traces}) > 1
        for number, after in enumerate(self._spent_in(replayed)):
            trace, roles = self._traces[number], self._roles[number]
            saved = np.maximum(self._spent[number] - after, 0)
            if change.skips is not None:
                others = np.ones(saved.shape[1], bool)
                others[list(change.waits.get(id(trace.instructions), ()))] = False
                saved[:, others] = 0
            for role in dict.fromkeys(roles.names):
                warps = [warp for warp, name in enumerate(roles.names) if name == role]
                waiting = np.maximum((self._spent[number][warps] > 0).sum(axis=0), 1)
                of_warp = saved[warps].sum(axis=0) / waiting  # an average, because waits side by side take no longer
                for pc in np.flatnonzero(of_warp).tolist():
                    place = _place(trace.instructions[pc], roles, role, pc)
                    parts[f"{trace.name}: {place}" if several else place] += float(of_warp[pc])
        largest = sorted(parts.items(), key=lambda item: -item[1])[:PLACES]
        whole = sum(parts.values())
        return [
            (place, part / whole) for place, part in largest if place == largest[0][0] or part >= LEAST_PLACE * whole
        ]


def study_of_loop(traces: Sequence[Trace], chip: Chip, calls: int, programmatic: bool | None = None) -> Study:
    """A study of a call of `modelled_loop`, with fewer calls in each replay. programmatic: that of `replay`."""

    def run(chip: Chip, skips: Skips | None) -> tuple[float, Replay]:
        loop = modelled_loop(traces, chip, calls, programmatic=programmatic, words=WORDS, least=CALLS, skips=skips)
        return loop.us, loop.replay

    return Study(traces, chip, run)


def lines(study: Study, what: str) -> list[str]:
    """Lines of text about the gains, the largest first. what: the timed work, as in "3 launches"."""
    us, gains = study.us, study.gains
    shown = [gain for gain in gains if gain.us >= LEAST * us]
    found = [
        f"clock: why {us:.2f} modelled us on {study.chip.name} for {what}: what goes if one thing costs nothing, by "
        f"{study.total} replays",
        f"  {'modelled us':>11}  {'share':>6}  what costs nothing, and who waits because of it (share of its waits)",
    ]
    for gain in shown:
        found.append(f"  {gain.us:>11.2f}  {gain.us / us:>6.1%}  {gain.name}")
        if gain.places:
            places = "; ".join(f"{place} {share:.0%}" for place, share in gain.places)
            found.append(f"  {'':>11}  {'':>6}    {places}")
    slower = [gain for gain in reversed(gains) if gain.us <= -LEAST * us]
    rest = [gain for gain in gains if abs(gain.us) < LEAST * us]
    if rest:
        names = ", ".join(gain.name for gain in rest)
        found.append(
            f"  {sum(gain.us for gain in rest):>11.2f}  {'':>6}  less than {LEAST:.1%} each, together: {names}"
        )
    for gain in slower:
        found.append(f"  {gain.us:>11.2f}  {gain.us / us:>6.1%}  slower: {gain.name}")
    found += [f"  not replayed: {name}: {reason}" for name, reason in study.failed.items()]
    return found


def _each(run: Callable[[Change], Gain], batch: Sequence[Change]) -> list[Gain | BaseException]:
    """The result or exception of each call, with the calls in threads."""
    found: list[Gain | BaseException] = [RuntimeError("a thread has not run")] * len(batch)

    def call(number: int) -> None:
        try:
            found[number] = run(batch[number])
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=call, args=(number,), daemon=True) for number in range(1, len(batch))]
    for number, thread in enumerate(threads, 1):
        try:
            thread.start()
        except RuntimeError:  # Python ends and starts no more threads
            call(number)
    call(0)
    for thread in threads:
        if thread.ident is not None:
            thread.join()
    return found


def _name_of(instruction: Instruction, roles: Roles, pc: int, warps: Sequence[int]) -> str:
    """The name of the row that a wait belongs to."""
    reason = roles.reasons.get(pc, "data")
    if family_of(instruction.opcode)[0] != "wait":
        return _WAITS[reason]
    who = dict.fromkeys("warps" if roles.names[warp].startswith("warp ") else roles.names[warp] for warp in warps)
    return f"wait at mbarriers of {', '.join(sorted(who))} for {'others' if reason == 'data' else reason}"


def _place(instruction: Instruction, roles: Roles, role: str, pc: int) -> str:
    """The place of a wait: source line, or PTX line and opcode, then the role that waits there and the reason."""
    where = f"PTX line {instruction.line}, {'.'.join(instruction.opcode.split('.')[:2])}"
    if instruction.source:
        where = os.path.basename(instruction.source)
    return f"{where}: {role} for {roles.reasons.get(pc, 'data')}"
