"""Compares nogpu explore, on small random concurrent kernels, with a model that tries every order.

    python -m workshop.orders [--cases 1000] [--seed 0] [--only I]

A case is a few instructions for each of two or three warps: loads, stores and atomics of words, locks, polls, arrivals
on mbarriers, waits for and tests of mbarriers, named barriers, branches on values read. Each warp leaves a number that
depends on all that it has read. A small model executes every interleaving, without any reduction, and finds the numbers
that can be left, and whether a warp may wait for ever or miss a phase. Outcomes:

    fails in both  the search ends with a failure, and the model has one
    clean in both  the verdict is clean, and search and model have the same numbers
    bounded        the search is not exhausted after RUNS runs
    differs        anything else

Cases that differ are printed. The exit code is 1 if there is one, else 0.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from nogpu.errors import EmulatorError
from nogpu.execution.device import Device
from nogpu.execution.trials import Trial, Tried
from nogpu.hardware.properties import LaunchConfig
from nogpu.ptx import module
from nogpu.sanitizer.explore import Explorer
from workshop.console import command_parser

RUNS = 3000  # limit of the runs of a case
WORDS, BARRIERS = 2, 2
SCALE = 7  # factor of a warp's number before a value is added
DRAWS = 50  # attempts at a case that does not wait for ever
KINDS = (
    *("load", "store", "add", "red", "cas", "spin", "lock", "poll"),
    *("arrive", "arrive", "arrive", "wait", "test", "sync"),
)
PHASES = "arrive", "arrive", "wait", "wait", "add"
Instruction = tuple[Any, ...]
FAILS, CLEAN, BOUNDED, DIFFERS = "fails in both", "clean in both", "bounded", "differs"


class Case(NamedTuple):
    """Instructions of each warp, and the arrivals that each mbarrier expects."""

    warps: tuple[tuple[Instruction, ...], ...]
    expected: tuple[int, ...]


def case(seed: int, index: int) -> Case:
    """Case number `index` of a seed. In most cases no warp waits for ever."""
    chance = random.Random(f"{seed}:{index}")
    found = _drawn(chance)
    for _ in range(DRAWS if chance.random() < 0.8 else 0):
        if not Model(found).fails:
            break
        found = _drawn(chance)
    return found


def _drawn(chance: random.Random) -> Case:
    count, tested = chance.choice((2, 2, 3)), set()
    longest = 6 if count == 2 else 4
    kinds, barriers = chance.choice(((KINDS, BARRIERS), (PHASES, 1)))
    warps = []
    for warp in range(count):
        code: list[Instruction] = []
        for _ in range(chance.randint(1, longest)):
            kind = chance.choice(kinds)
            word, barrier = chance.randrange(WORDS), chance.randrange(barriers)
            if kind in ("store", "add", "red"):
                code.append((kind, word, chance.randint(1, 2)))
            elif kind == "cas":
                code.append((kind, word, chance.randrange(2), chance.randint(1, 2)))
            elif kind == "spin":
                code.append((kind, word, chance.randrange(3)))
            elif kind == "lock":
                code += [("lock", word), (chance.choice(("load", "red")), 1 - word, 1), ("store", word, 0)]
            elif kind == "poll":
                for left in (1, 0):
                    code += [("load", word), ("skip_if", 1, 2 * left)]
            elif kind in ("wait", "test"):
                place = warp, barrier, chance.randrange(2)
                if kind == "test" and place in tested:
                    continue
                tested.add(place)
                code.append((kind, barrier, place[2]))
            else:
                code.append((kind, barrier if kind == "arrive" else word))
            if code and code[-1][0] in ("load", "add", "cas", "test") and chance.random() < 0.4:
                code += [("skip_unless", chance.randrange(2), 1), ("red", word, 1)]
        warps.append(tuple(code))
    return Case(tuple(warps), tuple(chance.randint(1, 2) for _ in range(BARRIERS)))


# The model


class _Warp(NamedTuple):
    at: int = 0
    number: int = 0
    value: int = 0
    waits: int = -1  # generation of a named barrier


class _State(NamedTuple):
    warps: tuple[_Warp, ...]
    words: tuple[int, ...]
    barriers: tuple[tuple[int, int], ...]  # (phase, pending arrivals)
    named: tuple[tuple[int, int], ...]  # (generation, warps that have arrived)


def _put(values: tuple, index: int, value: Any) -> tuple:
    return (*values[:index], value, *values[index + 1 :])


class Model:
    """All interleavings of a case."""

    def __init__(self, of: Case) -> None:
        self._case = of
        self.numbers: set[tuple[int, ...]] = set()  # numbers that the warps may leave
        self.fails = False  # True if a warp may wait for ever
        self.misses = False  # True if a warp may miss a phase
        start = _State(
            (_Warp(),) * len(of.warps), (0,) * WORDS, tuple((0, count) for count in of.expected), ((0, 0),) * WORDS
        )
        seen, left = {start}, [start]
        while left:
            state = left.pop()
            following = list(self._following(state))
            for further in following:
                if further not in seen:
                    seen.add(further)
                    left.append(further)
            if all(warp.at >= len(code) for warp, code in zip(state.warps, of.warps)):
                self.numbers.add(tuple(warp.number for warp in state.warps))
            elif not following:
                self.fails = True

    def _following(self, state: _State) -> Iterator[_State]:
        for index, (warp, code) in enumerate(zip(state.warps, self._case.warps)):
            if warp.at < len(code):
                found = self._step(state, index, warp, code[warp.at])
                if found is not None:
                    yield found

    def _step(self, state: _State, index: int, warp: _Warp, instruction: Instruction) -> _State | None:
        kind, place, *rest = instruction
        words, ahead = state.words, 1
        value: int | None = None
        if kind in ("load", "add", "cas"):
            value = words[place]
        if kind in ("store", "lock"):
            if kind == "lock" and words[place]:
                return None
            words = _put(words, place, rest[0] if rest else 1)
        elif kind in ("add", "red"):
            words = _put(words, place, words[place] + rest[0])
        elif kind == "cas" and value == rest[0]:
            words = _put(words, place, rest[1])
        elif kind == "spin" and words[place] != rest[0]:
            return None
        elif kind in ("skip_if", "skip_unless"):
            ahead += rest[0] * ((warp.value == place) == (kind == "skip_if"))
        elif kind in ("wait", "test"):
            passed = state.barriers[place][0] & 1 != rest[0]
            if kind == "wait" and not passed:
                return None
            value = int(passed) if kind == "test" else None
        elif kind == "arrive":
            return self._arrived(state, index, warp, place)
        elif kind == "sync":
            return self._synchronised(state, index, warp, place)
        if value is not None:
            warp = warp._replace(value=value, number=(warp.number * SCALE + value + 1) & 0xFFFFFFFF)
        return state._replace(words=words, warps=_put(state.warps, index, warp._replace(at=warp.at + ahead)))

    def _arrived(self, state: _State, index: int, warp: _Warp, place: int) -> _State:
        phase, pending = state.barriers[place]
        if pending == 1:
            self._look_for_waits(state, place, phase)
            phase, pending = phase + 1, self._case.expected[place]
        else:
            pending -= 1
        barriers = _put(state.barriers, place, (phase, pending))
        return state._replace(barriers=barriers, warps=_put(state.warps, index, warp._replace(at=warp.at + 1)))

    def _look_for_waits(self, state: _State, place: int, phase: int) -> None:
        """Note a wait that can go on now but cannot once the phase is over."""
        for warp, code in zip(state.warps, self._case.warps):
            waits = warp.at < len(code) and code[warp.at][:2] == ("wait", place)
            self.misses |= waits and phase & 1 != code[warp.at][2]

    def _synchronised(self, state: _State, index: int, warp: _Warp, place: int) -> _State | None:
        generation, arrived = state.named[place]
        if warp.waits < 0:
            last = arrived == 1
            named = _put(state.named, place, (generation + last, 0 if last else 1))
            warp = warp._replace(at=warp.at + 1) if last else warp._replace(waits=generation)
            return state._replace(named=named, warps=_put(state.warps, index, warp))
        if generation == warp.waits:
            return None
        return state._replace(warps=_put(state.warps, index, warp._replace(at=warp.at + 1, waits=-1)))


# The kernel


_PTX = {
    "load": "ld.acquire.cta.shared.b32 %r5, {word};",
    "store": "st.release.cta.shared.b32 {word}, {0};",
    "add": "atom.acq_rel.cta.shared.add.u32 %r5, {word}, {0};",
    "red": "red.release.cta.shared.add.u32 {word}, {0};",
    "cas": "atom.acq_rel.cta.shared.cas.b32 %r5, {word}, {0}, {1};",
    "spin": "{label}: ld.acquire.cta.shared.b32 %r6, {word}; setp.ne.u32 %p2, %r6, {0}; @%p2 bra {label};",
    "lock": "{label}: atom.acquire.cta.shared.cas.b32 %r6, {word}, 0, 1; setp.ne.u32 %p2, %r6, 0; @%p2 bra {label};",
    "arrive": "mbarrier.arrive.shared.b64 _, {barrier};",
    "wait": "{label}: mbarrier.try_wait.parity.shared.b64 %p2, {barrier}, {0}; @!%p2 bra {label};",
    "test": "mbarrier.test_wait.parity.shared.b64 %p2, {barrier}, {0}; selp.u32 %r5, 1, 0, %p2;",
    "sync": "bar.sync {named}, 64;",
}


def _ptx(instruction: Instruction, label: str) -> str:
    """PTX of an instruction, without the addition to the warp's number."""
    kind, place, *rest = instruction
    word, barrier = f"[%r10+{4 * place}]", f"[%r11+{8 * place}]"
    return _PTX[kind].format(*rest, word=word, barrier=barrier, named=place + 1, label=label)


def ptx(of: Case) -> str:
    """Kernel of a case."""
    inits = "".join(f"@%p1 mbarrier.init.shared.b64 [%r11+{8 * i}], {n}; " for i, n in enumerate(of.expected))
    lines = [
        ".version 8.8\n.target sm_100a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];",
        ".visible .entry k(.param .u64 a0)\n{\n.reg .pred %p<5>; .reg .b32 %r<20>; .reg .b64 %rd<4>;",
        "ld.param.b64 %rd0, [a0]; mov.u32 %r10, smem; add.u32 %r11, %r10, 256; mov.u32 %r1, %tid.x;",
        "setp.eq.u32 %p1, %r1, 0; mov.u32 %r5, 0; mov.u32 %r4, 0;",
        *(f"@%p1 st.shared.b32 [%r10+{4 * i}], 0;" for i in range(WORDS)),
        f"{inits}bar.sync 0; and.b32 %r2, %r1, 31; setp.ne.u32 %p1, %r2, 0; @%p1 exit; shr.u32 %r3, %r1, 5;",
        *(f"setp.eq.u32 %p1, %r3, {warp}; @%p1 bra W{warp};" for warp in range(len(of.warps))),
    ]
    for warp, code in enumerate(of.warps):
        lines.append(f"W{warp}:")
        for at, instruction in enumerate(code):
            lines.append(f"W{warp}_{at}:")
            if instruction[0].startswith("skip"):
                test = "eq" if instruction[0] == "skip_if" else "ne"
                target = f"W{warp}_{at + 1 + instruction[2]}"
                lines.append(f"setp.{test}.u32 %p3, %r5, {instruction[1]}; @%p3 bra {target};")
                continue
            lines.append(_ptx(instruction, f"S{warp}_{at}"))
            if instruction[0] in ("load", "add", "cas", "test"):
                lines.append(f"mad.lo.u32 %r4, %r4, {SCALE}, %r5; add.u32 %r4, %r4, 1;")
        lines.append(f"W{warp}_{len(code)}: st.global.b32 [%rd0+{4 * warp}], %r4; exit;")
    return "\n".join([*lines, "}"])


# The comparison


class _Trial:
    """Trial that collects the numbers its runs leave, and takes different ones for no failure."""

    at_once = 1

    def __init__(self, trial: Trial, warps: int) -> None:
        self._trial, self.kernel, self.is_sanitized = trial, trial.kernel, False
        self.numbers: set[tuple[int, ...]] = set()
        self._warps = warps

    def run(self, schedules: list[str]) -> list[Tried]:
        found = self._trial.run(schedules)
        for tried in found:
            if tried.found is not None:
                tried.failure = None
                (journal,) = tried.stores
                (written,) = journal.values()
                words = np.zeros(256, np.uint8)
                written.put(words, 0)
                self.numbers.add(tuple(words.view(np.uint32)[: self._warps].tolist()))
        return found

    def check(self, schedule: str) -> EmulatorError | None:
        return self._trial.check(schedule)


class _Explorer(Explorer):
    numbers: set[tuple[int, ...]]

    def __init__(self, warps: int) -> None:
        super().__init__(RUNS)
        self._warps = warps

    def explore(self, trial: Any) -> None:
        collects = _Trial(trial, self._warps)
        try:
            super().explore(collects)  # type: ignore[arg-type]
        finally:
            self.numbers = collects.numbers


def outcome(of: Case) -> tuple[str, str, int]:
    """(outcome, its reason in words, number of runs) of a case."""
    model, explorer = Model(of), _Explorer(len(of.warps))
    data = np.zeros(64, np.uint32)
    device = Device(("late",), 1)
    device.memory.register(data.ctypes.data, data.nbytes, "numbers")
    device.explorer = explorer
    config = LaunchConfig((1, 1, 1), (32 * len(of.warps), 1, 1), (1, 1, 1), 4096)
    failure = ""
    try:
        device.launch(module.parse(ptx(of)).entries["k"], config, [data.ctypes.data.to_bytes(8, "little")])
    except EmulatorError as error:
        failure = error.reason.splitlines()[0]
    if failure:
        is_right = model.fails or (model.misses and "missed" in failure)
        return FAILS if is_right else DIFFERS, f"the search: {failure}; the model: none", 0
    if not explorer.verdicts:
        return DIFFERS, "no verdict", 0
    verdict = explorer.verdicts[0]
    if model.fails:
        word = BOUNDED if verdict.word == BOUNDED else DIFFERS
        return word, f"the model: a warp waits for ever; the search: {verdict}", verdict.runs
    if verdict.word == BOUNDED:
        return BOUNDED, str(verdict), verdict.runs
    missing, more = model.numbers - explorer.numbers, explorer.numbers - model.numbers
    if missing or more:
        return DIFFERS, f"{len(missing)} outcomes not seen, {len(more)} that cannot be: {verdict}", verdict.runs
    return CLEAN, str(verdict), verdict.runs


def main() -> None:
    parser = command_parser(__doc__, "workshop.orders")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    orders = 0
    for index in range(options.cases) if options.only is None else [options.only]:
        of = case(options.seed, index)
        word, text, runs = outcome(of)
        counts[word] += 1
        orders += runs
        if word in (DIFFERS, BOUNDED) or options.only is not None:
            print(f"case {index} {word}: {text}\n  {of}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in sorted(counts.items())) + f"; {orders} runs")
    sys.exit(counts[DIFFERS] > 0)


if __name__ == "__main__":
    main()
