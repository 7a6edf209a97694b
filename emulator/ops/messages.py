"""Messages between warps through memory: words that are stored and loaded with an order or scope, and atomics.

Memory is coherent here, so that they order nothing. They only pass on what warps know of other CTAs (`ops.peers`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.arithmetic.lanes import lane_list
from emulator.ops.memory import SHARED_TAG, TAG_SHIFT

if TYPE_CHECKING:
    from emulator.hardware.warp import ActiveGroup
    from emulator.ops.active_lanes import Operand

_SHARED_MASK = (1 << 32) - 1


def _keys(mask: int, address: Operand) -> list[int]:
    """The addresses, those of shared memory without a tag."""
    places = [address] if isinstance(address, int) else [int(address[lane]) for lane in lane_list(mask)]
    return [place & _SHARED_MASK if place >> TAG_SHIFT == SHARED_TAG else place for place in places]


def tell(g: ActiveGroup, mask: int, address: Operand) -> None:
    """The active lanes store words that others may wait for, at addresses of any space: the warp's knowledge goes with
    them.
    """
    causes = g.cta.cluster.causes
    if causes is not None:
        for key in _keys(mask, address):
            causes.told(g.warp, mask, key)
    if g.cta.cluster.size > 1:
        for key in _keys(mask, address):
            g.cta.cluster.told[key] = g.cta.cluster.told.get(key, 0) | g.warp.known


def hear(g: ActiveGroup, mask: int, address: Operand) -> None:
    """The active lanes have loaded words that others may have stored."""
    causes = g.cta.cluster.causes
    if causes is not None:
        for key in _keys(mask, address):
            causes.learned(g.warp, mask, key)
    if g.cta.cluster.size > 1:
        for key in _keys(mask, address):
            g.warp.known |= g.cta.cluster.told.get(key, 0)
