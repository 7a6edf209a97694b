"""A program's clock: its launches are recorded as they run, and replayed on a chip when it ends.

NOGPU_CLOCK names the chip's profile, NOGPU_CLOCK_TIMELINE and NOGPU_CLOCK_PICTURE the files of the first process
on the device; its children, which inherit the variables, put their process number before the file's suffixes. If
NOGPU_CLOCK_WHY is 1, the report also says what would make the launches faster.
"""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path

from nogpu.clock.chip import Chip, profile
from nogpu.clock.record import Recording
from nogpu.clock.replay import Replay, replay
from nogpu.clock.summary import error_band, summary
from nogpu.clock.trace import Trace
from nogpu.clock.views import Views
from nogpu.clock.why import Skips, Study
from nogpu.clock.why import lines as why_lines
from nogpu.errors import EmulatorError
from nogpu.execution import device
from nogpu.execution.status import PROCESS, Status
from nogpu.notes import note

CLOCK, TIMELINE, PICTURE = "NOGPU_CLOCK", "NOGPU_CLOCK_TIMELINE", "NOGPU_CLOCK_PICTURE"
WHY = "NOGPU_CLOCK_WHY"
ROOM = 2 << 30  # bytes of records in memory; further ones are replayed before the program's end


_clocks: list[Clock] = []  # the clock of the process, if it has one


class Clock:
    """Traces of a process's launches, with their replay and its report."""

    def __init__(self, chip: Chip, views: Views, why: bool = False) -> None:
        self._chip, self._views, self._why = chip, views, why
        self._traces: list[Trace] = []
        self._bytes = 0
        self._replayed = 0
        self._process = os.getpid()

    def take(self, trace: Trace) -> None:
        """Keep the trace of a launch."""
        self._traces.append(trace)
        self._bytes += trace.words.nbytes
        if self._bytes > ROOM:
            self.report()

    def report(self) -> None:
        """Replay the recorded launches, and print the report to standard error."""
        traces, self._traces, self._bytes = self._traces, [], 0
        if not traces or os.getpid() != self._process:
            return
        bar = Status(f"replaying {len(traces)} launches on {self._chip.name}")
        try:
            replayed = replay(traces, self._chip, other_data=False, spans=self._views.spans, progress=bar)
        except (EmulatorError, ValueError) as error:
            print(f"clock: {error}", file=sys.stderr)
            return
        finally:
            bar.close()
        lines = summary(replayed, traces)
        self._note(replayed, traces)
        if self._replayed:
            lines[0] += f"; launches from number {self._replayed}, with nothing in L2"
        self._replayed += len(traces)
        print(*lines, sep="\n", file=sys.stderr)
        if self._why:
            print(*self._reasons(replayed, traces), sep="\n", file=sys.stderr)
        for line in self._views.write(replayed, traces):
            print(f"clock: {line}", file=sys.stderr)
        sys.stderr.flush()

    def _note(self, replayed: Replay, traces: list[Trace]) -> None:
        """Write the modelled times to the notes of the process (nogpu.notes)."""
        us = self._chip.us
        launches = [
            {"kernel": trace.name, "start_us": us(start - replayed.starts[0]), "us": us(end - start)}
            for trace, start, end in zip(traces, replayed.starts, replayed.ends)
        ]
        note("time", chip=self._chip.name, error=error_band(self._chip), us=replayed.us, launches=launches)

    def _reasons(self, replayed: Replay, traces: list[Trace]) -> list[str]:
        """Lines about what would make the launches faster, from replays of all of them."""

        def run(chip: Chip, skips: Skips | None) -> tuple[float, Replay]:
            found = replay(traces, chip, other_data=False, skips=skips)
            return found.us, found

        study = Study(traces, self._chip, run, (replayed.us, replayed))
        bar = Status(f"what would make it faster, on {self._chip.name}", "replays")
        try:
            while study.done < study.total:
                bar(study.done, study.total)
                study.advance()
        finally:
            bar.close()
        return why_lines(study, f"{len(traces)} launch{'es' * (len(traces) > 1)}")


def install() -> None:
    """Record the launches of this process, and replay them at its end."""
    clock = Clock(profile(os.environ[CLOCK]), Views(_file(TIMELINE), _file(PICTURE)), os.environ.get(WHY) == "1")
    device.recording = Recording(clock.take)
    _clocks.append(clock)
    atexit.register(report)


def report() -> None:
    """Report launches that the process has recorded but not reported."""
    for clock in _clocks:
        clock.report()


def _file(variable: str) -> Path | None:
    text = os.environ.get(variable)
    if not text:
        return None
    path = Path(text)
    if os.environ.get(PROCESS) == str(os.getpid()):
        return path
    stem = path.name.split(".")[0]
    return path.with_name(f"{stem}.{os.getpid()}{path.name[len(stem) :]}")
