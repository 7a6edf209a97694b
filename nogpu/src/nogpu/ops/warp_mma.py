"""mma.sync (PTX ISA, "Warp-level Matrix Instructions: mma")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nogpu.errors import Fault
from nogpu.ops.active_lanes import whole_warp

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup


def refuse(g: ActiveGroup, mask: int) -> None:
    """Raises Fault for an instruction that some lanes do not execute."""
    whole_warp(g, mask, "mma.sync")
    raise Fault(f"mma.sync needs all 32 lanes, {mask:#010x} are live")
