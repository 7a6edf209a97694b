"""Records of a launch, warp by warp, and the time that it takes on a chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nogpu import lazy

if TYPE_CHECKING:
    from nogpu.clock.chip import PROFILES, Chip, profile
    from nogpu.clock.loop import WORDS, Loop, modelled_loop
    from nogpu.clock.paths import picture_path, timeline_path
    from nogpu.clock.record import Recording, recording
    from nogpu.clock.trace import Trace
    from nogpu.clock.views import Views
    from nogpu.clock.why import Study

__all__ = [
    "Chip",
    "Loop",
    "PROFILES",
    "Recording",
    "Study",
    "Trace",
    "Views",
    "WORDS",
    "modelled_loop",
    "picture_path",
    "profile",
    "recording",
    "summary",
    "timeline_path",
    "why",
]
__getattr__ = lazy.names(
    __name__,
    chip="PROFILES Chip profile",
    loop="WORDS Loop modelled_loop",
    paths="picture_path timeline_path",
    record="Recording recording",
    trace="Trace",
    views="Views",
    why="Study",
)
