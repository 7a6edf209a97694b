"""Files that show a replay: a timeline and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nogpu.clock.picture import draw
from nogpu.clock.replay import Replay
from nogpu.clock.timeline import write_timeline
from nogpu.clock.trace import Trace

SPANS = 4_000_000  # spans that a replay keeps at most, 48 bytes each
_TITLE = 60  # characters


@dataclass(frozen=True)
class Views:
    """Paths of the files that show a replay; None for a file that is not wanted."""

    timeline: Path | None = None
    picture: Path | None = None

    @property
    def spans(self) -> int:
        """The number of spans that `replay` must keep for the files."""
        return SPANS if self.timeline or self.picture else 0

    def write(self, replayed: Replay, traces: Sequence[Trace]) -> list[str]:
        """Write the requested files. Returns lines that name them, and say why one is missing or incomplete."""
        lines = []
        if self.spans and len(replayed.spans) == self.spans:
            lines.append(f"the timeline and the picture are cut after {SPANS:,} spans")
        names = ", ".join(dict.fromkeys(trace.name for trace in traces))
        title = f"{names if len(names) <= _TITLE else names[: _TITLE - 1] + '…'}: modelled on {replayed.chip.name}"
        try:
            if self.timeline:
                write_timeline(self.timeline, replayed, traces)
                lines.append(f"wrote {self.timeline}, for ui.perfetto.dev")
            if self.picture:
                draw(self.picture, replayed, traces, title)
                lines.append(f"wrote {self.picture}")
        except (OSError, RuntimeError, ValueError) as error:
            lines.append(str(error))
        return lines
