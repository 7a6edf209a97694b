"""Arrivals, stores, waits and loads that are relaxed or have the scope of a CTA, for reports to name them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nogpu.hardware.warp import Issuer
    from nogpu.sanitizer.conflicts import Access

KEPT = 16  # last instructions of a warp


class Weak(NamedTuple):
    """Instruction that orders less than it might."""

    at: int  # count of its warp's lanes
    is_relaxed: bool
    is_narrow: bool  # its scope is a CTA
    issuer: Issuer
    place: str  # barrier or word, in words


class Relaxed:
    """Weak releases and acquires, by warp."""

    def __init__(self) -> None:
        self._releases: dict[tuple[str, int], deque[Weak]] = {}
        self._acquires: dict[tuple[str, int], deque[Weak]] = {}

    def note(self, weak: Weak, releases: bool) -> None:
        """Notes an instruction. releases: False for an acquire."""
        of = self._releases if releases else self._acquires
        of.setdefault(_warp(weak.issuer), deque(maxlen=KEPT)).append(weak)

    def between(self, before: Access, now: Access, by_scope: bool) -> Weak | None:
        """Weak instruction that may be why nothing orders two accesses: a release by the first one's warp behind it, or
        an acquire by the second one's. by_scope: a narrow one, rather than a relaxed one.
        """
        releases = self._releases.get(_warp(before.issuer), ())
        behind = (each for each in releases if not before.lanes or each.at >= before.count)
        ahead = reversed(self._acquires.get(_warp(now.issuer), deque()))
        for each in (*behind, *ahead):
            if each.is_narrow if by_scope else each.is_relaxed:
                return each
        return None


def _warp(issuer: Issuer) -> tuple[str, int]:
    return issuer[0].cta.label, issuer[0].warp.index
