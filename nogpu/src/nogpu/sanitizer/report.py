"""Reports broken rules: both accesses, the edge that is missing, the usual way to add it."""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING

from nogpu.compiler.flow import Flow
from nogpu.compiler.plan import plan
from nogpu.compiler.steps import rows_of, steps_of
from nogpu.compiler.stored import StoredEntry
from nogpu.compiler.tmem_uses import first_uses
from nogpu.errors import EmulatorError, Fault, doubt, ordering_fault
from nogpu.hardware.barriers import NamedBarrier, label
from nogpu.hardware.properties import WARP_THREADS
from nogpu.sanitizer.clocks import ANYWAY, MAPPED, UNSCOPED, Cause
from nogpu.sanitizer.queue_clocks import HOST
from nogpu.sanitizer.relaxed import Relaxed
from nogpu.sanitizer.rules import (
    COMPLETION,
    FRAGMENT,
    FREED,
    INITIALISATION,
    LANES,
    LEFT,
    NAMED,
    PINNED,
    QUEUES,
    READS,
    REUSE,
    RULES,
    SCOPE,
    UNINITIALISED,
    Rule,
    rule_of,
)
from nogpu.sanitizer.waivers import Waivers, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.mbarriers import MBarrier
    from nogpu.hardware.warp import ActiveGroup, Issuer
    from nogpu.ptx.ir import Entry
    from nogpu.sanitizer.conflicts import Access, Conflict
    from nogpu.sanitizer.origins import Origin
    from nogpu.sanitizer.queue_history import Conflict as QueueConflict


class Reporter:
    """Reporter of a process. It leaves out what waivers allow."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """allowed: as `waivers.parse` takes each. Raises ValueError for an unknown rule.

        With NOGPU_SANITIZE_LOG in the environment, reports are lines of JSON that are added to that file, once for a
        rule and two instructions of a kernel, and launches go on.
        """
        self.waivers = Waivers(parse(text, RULES) for text in allowed)
        self._unscoped: set[str] = set()
        self.relaxed = Relaxed()
        self._log = os.environ.get("NOGPU_SANITIZE_LOG")
        self._logged: set[tuple[object, ...]] = set()
        self._early: dict[int, tuple[Entry, dict[int, int]]] = {}  # by id: the entry, and `_early_uses`

    def _fail(self, rule: Rule, text: str, *issuers: Issuer, how: Callable[[], None] | None = None) -> None:
        """Raises Fault, or reports by `how`, or adds the text to the log. issuers: the later one first."""
        entry = issuers[0][0].grid.entry
        place = entry.name, rule.name, *(index for _, index in issuers)
        if self._log is None:
            if how is None:
                group, index = issuers[0]
                raise Fault(text, (group.cta.index, group.warp.index, index))
            how()
        else:
            self._write(rule, entry.name, text, place)

    def follows_scopes(self, kernel: str) -> bool:
        """True if scopes matter to the order: they are not waived, and no doubt has been reported."""
        return not self.waivers.waives(SCOPE.name) and kernel not in self._unscoped

    def allows(self, rule: Rule, *issuers: Issuer) -> bool:
        """True if one of the instructions may break a rule."""
        return any(self.waivers.waives_at(rule.name, g.grid.entry.instructions[index]) for g, index in issuers)

    def tells_apart(self, entry: Entry, indices: list[int]) -> bool:
        """True if a report of one of a kernel's instructions is not enough for all of these: launches go on behind it,
        or the named instruction may break a rule.
        """
        return self._log is not None or not self.waivers.places(entry).isdisjoint(indices)

    def report_use(self, group: ActiveGroup, loads: set[int]) -> None:
        """Doubts a use of the results of tcgen05.ld. loads: indices of those under way.

        Kernels that ship for B200s use them so, since ptxas waits for a register that is under way.
        """
        uses = self._early_uses(group.grid.entry)
        found = sorted((uses[load], load) for load in loads if load in uses)
        if not found:
            return
        user, load = ((group, index) for index in found[0])
        if self.allows(FRAGMENT, user, load):
            return
        text = (
            f"sanitizer, rule {FRAGMENT.name}: nothing orders\n    {_instruction(user)}\n  behind\n"
            f"    {_instruction(load)}\n  : {FRAGMENT.missing}.\n"
            f"  The usual way: {FRAGMENT.usual} (PTX ISA, {FRAGMENT.section}){self._waived}"
        )
        self._fail(
            FRAGMENT, text, user, load, how=lambda: doubt(text, (group.grid.entry.name, FRAGMENT.name, *found[0]))
        )

    def _early_uses(self, entry: Entry) -> dict[int, int]:
        """Index of a tcgen05.ld of a kernel -> that of the first instruction, but for mov, that may use its registers
        before a wait.
        """
        if id(entry) not in self._early:
            if isinstance(entry, StoredEntry):
                flow = plan(entry.parsed()).flow
            else:  # calls of an entry are expanded
                flow = Flow(entry, steps_of(entry, rows_of(entry)))
            uses = first_uses(flow, through_moves=True)
            self._early[id(entry)] = entry, {load: user for user in sorted(uses, reverse=True) for load in uses[user]}
        return self._early[id(entry)][1]

    def report_uninitialised(self, what: str, issuer: Issuer, lanes: int, origin: Origin, is_doubt: bool) -> None:
        """Raises Fault for an instruction whose effect depends on uninitialised data, or doubts it (is_doubt). what:
        the use in words. lanes: a mask.
        """
        issuers = [issuer] if origin.issuer is None else [issuer, origin.issuer]
        if self.allows(UNINITIALISED, *issuers):
            return
        by = f", lanes {lanes:#010x}" if lanes not in (0, 0xFFFFFFFF) else ""
        read = "" if origin.issuer is None else f"\n  read by\n    {_instruction(origin.issuer)}"
        text = (
            f"sanitizer, rule {UNINITIALISED.name}: nobody has written\n"
            f"    {what}, of\n    {_instruction(issuer)}{by}\n"
            f"  It comes from {origin.place}{read}\n  : {UNINITIALISED.missing}.\n"
            f"  The usual way: {UNINITIALISED.usual} (PTX ISA, {origin.section}){self._waived}"
        )
        place = issuer[0].grid.entry.name, issuer[1], UNINITIALISED.name
        self._fail(UNINITIALISED, text, *issuers, how=(lambda: doubt(text, place)) if is_doubt else None)

    def report_left(self, what: str, cta: Cta, issuer: Issuer, is_error: bool) -> None:
        """Raises Fault for a leftover of a CTA that exits, or doubts it. issuer: that of its last part."""
        if self.allows(LEFT, issuer):
            return
        text = (
            f"sanitizer, rule {LEFT.name}: {cta.label} exits and leaves behind\n    {what}\n  : {LEFT.missing}.\n"
            f"  The usual way: {LEFT.usual} (PTX ISA, {LEFT.section}){self._waived}"
        )
        place = issuer[0].grid.entry.name, issuer[1], LEFT.name
        self._fail(LEFT, text, issuer, how=None if is_error else lambda: doubt(text, place))

    def report_queues(self, conflict: QueueConflict) -> None:
        """Raises EmulatorError for work of queues that nothing orders."""
        waivers, rule = self.waivers, FREED if conflict.reuses else QUEUES if conflict.now.queue != HOST else PINNED
        if waivers.waives(rule.name) or any(
            waivers.waives_at(rule.name, each) for each in conflict.instructions if each
        ):
            return
        first, second = conflict.described()
        place = spread("byte", *conflict.offsets)
        text = (
            f"sanitizer, rule {rule.name}: nothing orders\n    {second}\n  behind\n    {first}\n"
            f"  at {place} of {conflict.allocation}: {rule.missing}.\n"
            f"  The usual way: {rule.usual} ({rule.section}){self._waived}"
        )
        if self._log is None:
            raise EmulatorError(text, kernel=conflict.now.entry.name if conflict.now.entry is not None else None)
        self._write(rule, conflict.now.name, text, (conflict.now.name, rule.name, conflict.before.name, *conflict.tags))

    def _write(self, rule: Rule, kernel: str, text: str, place: tuple[object, ...]) -> None:
        """Adds a report to the log, once for a place."""
        if place not in self._logged:
            self._logged.add(place)
            assert self._log is not None  # set where reports are logged
            with open(self._log, "a") as file:
                file.write(json.dumps({"rule": rule.name, "kernel": kernel, "text": text}) + "\n")

    def report_clash(self, issuer: Issuer, lanes: tuple[int, int], address: int) -> None:
        """Raises Fault for a store by which lanes write different values to the same bytes."""
        if self.allows(LANES, issuer):
            return
        text = (
            f"sanitizer, rule {LANES.name}: nothing orders lanes {lanes[0]} and {lanes[1]} of\n"
            f"    {_instruction(issuer)}\n  which store different values at {address:#x}: any of them may stay.\n"
            f"  The usual way: one lane alone stores (PTX ISA, Causality order){self._waived}"
        )
        self._fail(LANES, text, issuer)

    def report_initialisation(self, barrier: MBarrier, user: Issuer, initialiser: Issuer, by_thread: bool) -> None:
        """Raises Fault for a use of an mbarrier whose initialisation may not be visible; a lenient run warns."""
        how = "by its thread" if by_thread else "through the async proxy"
        self._report_pair(INITIALISATION, user, initialiser, f", which uses the {barrier.name} {how}", "")

    def report_reuse(self, barrier: MBarrier, issuer: Issuer, user: Issuer) -> None:
        """Raises Fault for the end of an mbarrier that somebody may still use; a lenient run warns."""
        self._report_pair(REUSE, issuer, user, f", which ends the {barrier.name}", "")

    def report_named(self, barrier: NamedBarrier, issuer: Issuer, before: Issuer) -> None:
        """Raises Fault for an arrival on a named barrier that is unordered with its last use; a lenient run warns."""
        self._report_pair(NAMED, issuer, before, f", which arrives on barrier {barrier.number}", ", of its last use")

    def _report_pair(self, rule: Rule, now: Issuer, before: Issuer, of_now: str, of_before: str) -> None:
        if self.allows(rule, now, before):
            return
        text = (
            f"sanitizer, rule {rule.name}: nothing orders\n"
            f"    {_instruction(now)}{of_now}\n  behind\n    {_instruction(before)}{of_before}\n  : {rule.missing}.\n"
            f"  The usual way: {rule.usual} (PTX ISA, {rule.section}){self._waived}"
        )
        place = now[0].grid.entry.name, before[1], now[1], rule.name
        self._fail(rule, text, now, before, how=lambda: ordering_fault(text, place))

    @property
    def _waived(self) -> str:
        return f"\n  Allowed: {self.waivers}" if str(self.waivers) else ""

    def report(self, conflict: Conflict, now: Access, place: str, memory: str = "shared") -> None:
        """Raises Fault for an access that is not ordered behind an earlier one. place: bytes of both, in words.
        memory: "shared", "tensor" or "global".

        Kernels that ship for B200s leave scopes out, pass on by a relaxed access that an operation is complete, and
        load by .nc what the launch ahead has written: those are doubts (`errors.doubt`).
        """
        rule, before = rule_of(conflict, now, memory), conflict.before
        if self.allows(rule, before.issuer, now.issuer):
            return
        weak = None
        if conflict.missing in (UNSCOPED, ANYWAY):
            weak = self.relaxed.between(before, now, by_scope=conflict.missing == UNSCOPED)
        at = "" if weak is None else f"\n  namely {_instruction(weak.issuer)}, on the {weak.place}"
        text = (
            f"sanitizer, rule {rule.name}: nothing orders\n"
            f"    {_text(now)}\n  behind\n    {_text(before)}\n"
            f"  at {place}: {rule.missing}{at}.\n"
            f"  The usual way: {_usual(rule, now.issuer)} (PTX ISA, {rule.section}){self._waived}"
        )
        launches = {home.grid for home in (before.home, now.home) if home is not None}
        if rule in (SCOPE, COMPLETION) or (rule is READS and len(launches) > 1):
            kernel = now.issuer[0].grid.entry.name
            self._fail(rule, text, now.issuer, before.issuer, how=lambda: doubt(text, (kernel, rule.name)))
            if rule is SCOPE:
                self._unscoped.add(kernel)
            return
        self._fail(rule, text, now.issuer, before.issuer)


def _usual(rule: Rule, issuer: Issuer) -> str:
    """Usual way to keep a rule, in a CTA of the issuer's size."""
    warps = -(-math.prod(issuer[0].grid.config.block) // WARP_THREADS)
    if rule is not LANES or warps == 1:
        return rule.usual
    return f"bar.sync (__syncthreads) between the two, for all {warps} warps; or, if they share no bytes, {rule.usual}"


def spread(what: str, first: int, end: int) -> str:
    """Places from `first` to before `end`, in words."""
    return f"{what} {first:#x}" if end == first + 1 else f"{what}s {first:#x}..{end - 1:#x}"


def _instruction(issuer: Issuer, lanes: str = "") -> str:
    group, index = issuer
    instruction = group.grid.entry.instructions[index]
    source = f", {instruction.source}" if instruction.source else ""
    return f"{instruction.opcode} of {label(issuer)}{lanes}{source}"


def _text(access: Access) -> str:
    lanes = "" if access.lanes in (0, 0xFFFFFFFF) else f", lanes {access.lanes:#010x}"
    how = "writes" if access.is_write else "reads"
    proxy = "generic" if not access.is_async else "tensormap" if access.fence >= MAPPED else "async"
    barrier = access.cause.completes_on if isinstance(access.cause, Cause) else None
    end = f" and completes on the {barrier}" if barrier else ""
    return f"{_instruction(access.issuer, lanes)}, which {how} through the {proxy} proxy{end}"
