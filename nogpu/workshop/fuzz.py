"""Mutates PTX modules, and loads and translates them in the emulator: no error but EmulatorError may come of it.

    python -m workshop.fuzz [--inputs 10000] [--seed 0] [--only I] [--save FILE.json] [FILE.ptx ...]

An input is an excerpt of a module with one or more random changes of its characters, tokens, lines or instructions. The
modules are the emulator's benchmark kernels, and files that it must accept. Input I of a seed is the same on every
machine with the same modules. Outcomes:

    accepted      the module loads and its kernels translate
    refused       the parser or the translation raises an EmulatorError
    failed        any other exception is raised, or an EmulatorError that hides one or whose text names no line
    late          more than LIMIT_SECONDS pass, or LIMIT_BYTES more memory do not suffice

Of the inputs that are failed or late in the same place the shortest is shortened further and printed. The exit code is
1 if there is one, else 0.
"""

from __future__ import annotations

import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import nogpu
from nogpu import store
from nogpu.bench_kernels import CASES, ptx
from nogpu.errors import EmulatorError
from workshop import records
from workshop.console import command_parser, make_console, make_table, tracked
from workshop.mutations import LEVELS, Input, Mutator

PACKAGE = str(Path(nogpu.__file__).parent)
LIMIT_SECONDS = 5.0
LIMIT_BYTES = 4 << 30
ACCEPTED, PARSER, TRANSLATION = "accepted", "refused by the parser", "refused in translation"
BAD = FAILED, LATE = "failed", "late"
OUTCOMES = ACCEPTED, PARSER, TRANSLATION, *BAD
_SHORTENING = 1000  # trials


@dataclass(frozen=True)
class Outcome:
    """The outcome of an input."""

    kind: str
    place: str = ""  # exception, file and line of the emulator, if the outcome is one of BAD


class _Late(BaseException):
    """Exception at the end of an input's time. No handler of Exception stops it."""


def _raise_late(number: int, frame: FrameType | None) -> NoReturn:
    raise _Late


@contextmanager
def limits() -> Iterator[None]:
    """Within the context an input ends after LIMIT_SECONDS, and this process may take LIMIT_BYTES of memory more."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    handler = signal.signal(signal.SIGALRM, _raise_late)
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGALRM, handler)


def examine(text: str) -> Outcome:
    """Loads a module and translates its kernels. The caller must be within `limits`."""
    stage = PARSER
    signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS)
    try:
        with store.unused():
            module = nogpu.load_ptx(text)
        stage = TRANSLATION
        for name in module:
            module[name].check()
        return Outcome(ACCEPTED)
    except EmulatorError as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        hidden = error.__cause__
        if hidden is not None and not isinstance(hidden, EmulatorError):
            return Outcome(FAILED, _place(hidden))
        return Outcome(stage) if error.ptx_line is not None else Outcome(FAILED, f"no line: {error.reason}")
    except (_Late, MemoryError) as error:
        return Outcome(LATE, _place(error))
    except Exception as error:
        return Outcome(FAILED, _place(error))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _place(error: BaseException) -> str:
    """The exception's name, and the file and line of the emulator's last frame in its traceback."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(PACKAGE)]
    where = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__.strip('_')}{where}"


def shortened(text: str, place: str) -> str:
    """A part of the text that fails in the same place: lines, then characters, are left out while it still does."""
    trials = 0
    for join in ("\n", ""):
        parts = text.split(join) if join else list(text)
        size = max(1, len(parts) // 2)
        while size and trials < _SHORTENING:
            start = 0
            while start < len(parts) and trials < _SHORTENING:
                fewer = parts[:start] + parts[start + size :]
                trials += 1
                if examine(join.join(fewer)).place == place:
                    parts = fewer
                else:
                    start += size
            size //= 2
        text = join.join(parts)
    return text


@dataclass
class Tally:
    """Outcomes of inputs."""

    counts: dict[str, Counter[str]] = field(default_factory=lambda: {level: Counter() for level in LEVELS})
    """Level of the last mutation -> outcome -> inputs."""
    bad: dict[str, tuple[int, Input]] = field(default_factory=dict)
    """Place -> (number, input) of the shortest input that failed there."""

    def add(self, number: int, tried: Input, outcome: Outcome) -> None:
        self.counts[tried.levels[-1]][outcome.kind] += 1
        if outcome.kind in BAD:
            known = self.bad.get(outcome.place)
            if known is None or len(tried.text) < len(known[1].text):
                self.bad[outcome.place] = number, tried


def run(texts: Sequence[str], numbers: Sequence[int], seed: int, progress: bool = False) -> Tally:
    """Tries the inputs of these numbers, made from modules. progress: True for a progress bar on a terminal."""
    mutator, tally = Mutator(texts), Tally()
    with limits():
        for number in tracked(numbers, "trying", hidden=not progress):
            tried = mutator.make(random.Random(f"{seed}:{number}"))
            tally.add(number, tried, examine(tried.text))
    return tally


def record(tally: Tally, modules: int, seconds: float, versions: dict[str, Any]) -> dict[str, Any]:
    """All figures, as --save writes them."""
    bad = {place: {"input": number, "text": tried.text} for place, (number, tried) in tally.bad.items()}
    counts = {level: {kind: counts[kind] for kind in OUTCOMES} for level, counts in tally.counts.items()}
    return {**versions, "modules": modules, "seconds": seconds, "counts": counts, "bad": bad}


def show(tally: Tally) -> None:
    """Print the table and the inputs that failed."""
    console = make_console(highlight=False)
    table = make_table(["last mutation"], ["inputs", *OUTCOMES])
    total = sum(tally.counts.values(), Counter[str]())
    for level, counts in (*tally.counts.items(), ("all", total)):
        table.add_row(level, *(f"{n:,}" for n in (counts.total(), *(counts[kind] for kind in OUTCOMES))))
    console.print(table)
    for place, (number, tried) in sorted(tally.bad.items(), key=lambda item: len(item[1][1].text)):
        with limits():
            text = shortened(tried.text, place)
        console.print(f"\ninput {number} ({', '.join(tried.levels)}): {place}")
        print(text.encode("ascii", "backslashreplace").decode())


def main(
    arguments: list[str] | None = None,
    more: Sequence[str] = (),
    versions: Callable[[list[str] | None], dict[str, Any]] = records.versions,
) -> None:
    """Runs the command. more: further modules. versions: function that gives the file's facts on the run.

    Raises SystemExit.
    """
    parser = command_parser(__doc__, "workshop.fuzz")
    parser.add_argument("--inputs", type=int, default=10_000, metavar="N", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default: %(default)s")
    parser.add_argument("--only", type=int, metavar="I", help="try input I only")
    records.add_save(parser)
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE.ptx", help="modules beside the project's own")
    options = parser.parse_args(arguments)
    if options.inputs < 1:
        parser.error(f"--inputs {options.inputs}: at least 1 expected")
    texts = [*map(ptx, CASES), *more, *(path.read_text() for path in options.files)]
    numbers = range(options.inputs) if options.only is None else [options.only]
    start = time.monotonic()
    tally = run(texts, numbers, options.seed, progress=True)
    records.save(options.save, record(tally, len(texts), time.monotonic() - start, versions(arguments)))
    show(tally)
    sys.exit(1 if tally.bad else 0)


if __name__ == "__main__":
    main()
