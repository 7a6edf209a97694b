"""Messages between warps through memory: words that are stored and loaded with an order or scope, and atomics.

Memory is coherent here: messages order nothing, they only pass on what warps know of other CTAs (`ops.peers`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nogpu.arithmetic.lanes import sharers
from nogpu.ops.memory import SHARED_TAG, TAG_SHIFT

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup
    from nogpu.ops.active_lanes import Operand

_SHARED_BITS = SHARED_TAG << TAG_SHIFT
_OFFSET_MASK = (1 << 32) - 1


def _words(g: ActiveGroup, mask: int, space: str, address: Operand) -> list[tuple[int, int]]:
    """(generic address, lanes that have it) of each word; none if nobody follows messages."""
    if g.cta.cluster.size == 1 and not g.cta.cluster.events.is_observed:
        return []
    return [(_generic(space, place), lanes) for place, lanes in sharers(mask, address).items()]


def _generic(space: str, place: int) -> int:
    """Generic address of an address in a state space. Global memory may lie below 4 GiB, as shared offsets do."""
    if space.startswith("shared") or place >> TAG_SHIFT == SHARED_TAG:
        return _SHARED_BITS | place & _OFFSET_MASK
    return place


def tell(g: ActiveGroup, mask: int, space: str, address: Operand) -> None:
    """Notes that the active lanes store words for which others may wait: the warp's knowledge goes with them."""
    for key, lanes in _words(g, mask, space, address):
        g.cta.cluster.events.word_stored(g.warp, lanes, key)
        g.cta.cluster.told[key] = g.cta.cluster.told.get(key, 0) | g.warp.known


def hear(g: ActiveGroup, mask: int, space: str, address: Operand) -> None:
    """Notes that the active lanes have loaded words that others may have stored."""
    for key, lanes in _words(g, mask, space, address):
        g.cta.cluster.events.word_loaded(g.warp, lanes, key)
        g.warp.known |= g.cta.cluster.told.get(key, 0)
