"""Errors of a run, at their places in the kernel.

The error of a hang, or of a run that is stopped, lists every warp that has not exited, its barrier, and the warps that
have not arrived there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nogpu.errors import EmulatorError, Fault
from nogpu.hardware.barriers import ClusterBarrier, NamedBarrier
from nogpu.hardware.mbarriers import MBarrier
from nogpu.ptx.ir import located

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cluster, Cta
    from nogpu.hardware.grid import Grid
    from nogpu.hardware.warp import ActiveGroup, Warp

REPORTED_WARPS = 40
REPORTED_CULPRITS = 8  # warps per barrier


def error_at(grid: Grid, cta: tuple[int, int, int], warp: int, instruction: int | None, reason: str) -> EmulatorError:
    """Error at an instruction (index; None: unknown) of a warp."""
    found = grid.entry.instructions[instruction] if instruction is not None else None
    return located(reason, grid.entry, found, cta=cta, warp=warp)


def error_of(warp: Warp, fault: Fault) -> EmulatorError:
    """Error at the instruction that a warp executes, or at that of a fault."""
    cta, index, pc = fault.place or (warp.cta.index, warp.index, warp.registers.context.pc)
    return error_at(warp.cta.grid, cta, index, pc, fault.reason)


def report(headline: str, resident: list[Cluster], notes: list[str]) -> EmulatorError:
    """Error at the first group that has not exited, with a line for each such group. notes: further lines."""
    lines_of: dict[Grid, list[str]] = {}
    barriers: dict[int, tuple[object, Cta]] = {}
    warps = [warp for cluster in resident for cta in cluster.ctas for warp in cta.warps]
    groups = [group for warp in warps for group in warp.groups]
    for group in groups:
        lines_of.setdefault(group.grid, []).append(_waiting_line(group, barriers))
    lines = []
    for of_grid in lines_of.values():
        shown = REPORTED_WARPS // len(lines_of)
        more = [f"  ... and {len(of_grid) - shown} more"] if len(of_grid) > shown else []
        lines += [*of_grid[:shown], *more]
    for barrier, cta in barriers.values():
        lines += [f"  {barrier}", *(f"      {line}" for line in _culprits(barrier, cta))]
    text = "\n".join([headline, *lines, *(f"  {note}" for note in notes)])
    if not groups:
        return EmulatorError(text)
    first = groups[0]
    return error_at(first.grid, first.cta.index, first.warp.index, first.pc, text)


def _waiting_line(group: ActiveGroup, barriers: dict[int, tuple[object, Cta]]) -> str:
    warp = group.warp
    lanes = "" if group.bits == warp.live else f" lanes {group.bits:#010x}"
    line = f"  {group.cta.label} warp {warp.index}{lanes} {_position(group)}"
    if group.waiting is None:
        return line + (" [waits for the other lanes]" if group.blocked else " [can run]")
    what, target, phase = group.waiting
    barriers[id(target)] = target, group.cta
    name = getattr(target, "name", None) or str(target)
    return f"{line}\n      waits for {what + ' (phase ' + str(phase) + ') of ' if what else ''}{name}"


def _position(group: ActiveGroup) -> str:
    instruction = group.grid.entry.instructions[group.pc]
    place = f" ({instruction.source})" if instruction.source else ""
    return f"at PTX line {instruction.line}{place}: {instruction.text}"


def _whereabouts(warp: Warp) -> str:
    where = _position(warp.groups[0]) if warp.groups else "has exited"
    return f"warp {warp.index} of {warp.cta.label}, {where}"


def _culprits(barrier: object, cta: Cta) -> list[str]:
    """Lines on the warps that should have arrived, as far as they are determined, and their present places."""
    if isinstance(barrier, MBarrier):
        absent = [warp for warp, phase in barrier.phases.items() if phase < barrier.phase]
        what = f"has arrived in an earlier phase, not in phase {barrier.phase}"
        lines = _listed(what, absent)
        if not barrier.pending and barrier.bytes > 0:
            lines.append(f"all have arrived; no copy is outstanding that would bring the {barrier.bytes} bytes")
        elif not barrier.phases:
            exited = [warp for warp in cta.warps if not warp.live]
            lines += _listed("has exited, and nobody has ever arrived", exited)
        return lines
    if isinstance(barrier, NamedBarrier) and barrier.number >= 0:
        names = {name for name, _ in barrier.arrived}
        return _listed("has not arrived", [warp for warp in cta.warps if f"warp {warp.index}" not in names])
    if isinstance(barrier, ClusterBarrier):
        warps = [warp for other in cta.cluster.ctas for warp in other.warps]
        return _listed("has not arrived", [warp for warp in warps if warp.live & ~warp.cluster_arrived])
    return []


def _listed(what: str, warps: list[Warp]) -> list[str]:
    more = [f"... and {len(warps) - REPORTED_CULPRITS} more"] if len(warps) > REPORTED_CULPRITS else []
    return [f"{what}: {_whereabouts(warp)}" for warp in warps[:REPORTED_CULPRITS]] + more
