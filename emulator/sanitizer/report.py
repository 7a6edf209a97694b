"""Reports: both accesses, the edge that is missing, the usual way to put it in."""

from __future__ import annotations

import json
import linecache
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from emulator.compiler.plan import plan
from emulator.compiler.stored import StoredEntry
from emulator.compiler.tmem_uses import first_uses
from emulator.errors import Fault, doubt
from emulator.hardware.barriers import label
from emulator.sanitizer.clocks import ANYWAY, FENCED, UNSCOPED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from emulator.hardware.cluster import Cta
    from emulator.hardware.warp import Issuer
    from emulator.ptx.ir import Entry
    from emulator.sanitizer.shadow import Access, Conflict


_ALLOW = re.compile(r"(?:#|//) sanitizer: allow ([\w ,-]+)")


class Rule(NamedTuple):
    """What is missing between two accesses."""

    name: str
    missing: str
    usual: str
    section: str


LANES = Rule(
    "lanes",
    "nothing orders these lanes of one warp, which may run one after the other",
    "bar.warp.sync (__syncwarp) between the two",
    "bar.warp.sync",
)
THREADS = Rule(
    "threads",
    "no barrier that one arrives on after its access and the other waits for before its own",
    "bar.sync, or an arrival on an mbarrier after the first access and a wait for its phase before the second",
    "Causality order",
)
PROXY = Rule(
    "proxy-fence",
    "a barrier orders them, but the async proxy may not see what the threads have stored",
    "fence.proxy.async.shared::cta by the threads that store, before the barrier",
    "membar/fence",
)
COPY = Rule(
    "copy",
    "the copy's bytes are used before it is known to be complete, or it may overwrite what others still use",
    "a wait for the mbarrier or group with which the copy completes, before its bytes are used; before the copy is "
    "issued, a wait for an mbarrier on which those arrive who use the bytes (tcgen05.commit for an MMA)",
    "Async proxy",
)
STAGING = Rule(
    "staging",
    "the bulk store may read the bytes after or while they are written",
    "a barrier before its issue; cp.async.bulk.wait_group.read by the thread that has issued it, then another barrier",
    "cp.async.bulk.wait_group",
)
TENSOR = Rule(
    "tensor-core",
    "the tensor core may read the bytes while they are written",
    "a wait for the bytes before the instruction is issued; tcgen05.commit by its thread behind it, and a wait for the "
    "mbarrier on which that arrives before they are overwritten",
    "tcgen05.commit",
)


COLUMNS = Rule(
    "tensor-memory",
    "the columns are accessed before it is known that the earlier access is complete",
    "tcgen05.commit behind an MMA or copy, tcgen05.wait::ld or ::st behind a load or store; then an arrival on an "
    "mbarrier for which the other waits, or a barrier",
    "tcgen05 Memory Consistency Model",
)
FRAGMENT = Rule(
    "fragment",
    "registers are used while the tcgen05.ld that fills them is under way",
    "tcgen05.wait::ld.sync.aligned before their first use",
    "tcgen05.wait",
)
SCOPE = Rule(
    "scope",
    "an arrival and a wait order them, but the scope of one of the two is the CTA",
    ".release.cluster at the arrival and .acquire.cluster at the wait",
    "Scope",
)
ORDER = Rule(
    "order",
    "an arrival and a wait stand between them, but one of the two is relaxed",
    ".release at the arrival and .acquire at the wait, or fence.acq_rel before the one and behind the other",
    "Release and Acquire Patterns",
)
RULES = {rule.name: rule for rule in (THREADS, LANES, COPY, STAGING, TENSOR, COLUMNS, FRAGMENT, PROXY, SCOPE, ORDER)}
_OF_MISSING = {FENCED: PROXY, UNSCOPED: SCOPE, ANYWAY: ORDER}


def rule_of(conflict: Conflict, now: Access) -> Rule:
    """The rule that two accesses break."""
    before = conflict.before
    if conflict.missing is not None:
        return _OF_MISSING[conflict.missing]
    asynchronous = [access for access in (before, now) if access.cause is not None]
    if not asynchronous:
        return LANES if conflict.same_warp else THREADS
    if any(_opcode(access).startswith("tcgen05.") for access in asynchronous):
        return TENSOR
    is_store = len(asynchronous) == 1 and not asynchronous[0].is_write
    return STAGING if is_store else COPY


class Reporter:
    """Reports of a process, but for what is allowed."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """allowed: names of rules. Raises ValueError for one that is none.

        With EMULATOR_SANITIZE_LOG in the environment, reports are lines of JSON that are added to that file, once for a
        rule and two instructions of a kernel, and launches go on.
        """
        self.allowed = tuple(dict.fromkeys(allowed))
        for name in self.allowed:
            check_rule(name)
        self._unscoped: set[str] = set()
        self._log = os.environ.get("EMULATOR_SANITIZE_LOG")
        self._logged: set[tuple[object, ...]] = set()
        self._early: dict[int, tuple[Entry, frozenset[int]]] = {}  # by id: the entry, and its loads

    def fail(self, rule: Rule, text: str, *issuers: Issuer) -> None:
        """Raises Fault, or adds the text to the log. issuers: of the accesses, the later one first."""
        if self._log is None:
            raise Fault(text)
        entry = issuers[0][0].grid.entry
        place = entry.name, rule.name, *(index for _, index in issuers)
        if place not in self._logged:
            self._logged.add(place)
            with open(self._log, "a") as file:
                file.write(json.dumps({"rule": rule.name, "kernel": entry.name, "text": text}) + "\n")

    def follows_scopes(self, kernel: str) -> bool:
        """Whether scopes matter to what is ordered: they are not waived, and no doubt has been reported."""
        return SCOPE.name not in self.allowed and kernel not in self._unscoped

    def report_use(self, issuer: Issuer, loads: set[int]) -> None:
        """Raises Fault for an instruction that uses what a tcgen05.ld loads. loads: indices of those under way."""
        group, index = issuer
        found = loads & self._used_early(group.grid.entry)
        if FRAGMENT.name in self.allowed or not found:
            return
        load = min(found)
        text = (
            f"sanitizer, rule {FRAGMENT.name}: nothing orders\n"
            f"    {group.grid.entry.instructions[index].opcode} of {label(issuer)}\n  behind\n"
            f"    {group.grid.entry.instructions[load].opcode} of {label((group, load))}\n"
            f"  : {FRAGMENT.missing}.\n"
            f"  The usual way: {FRAGMENT.usual} (PTX ISA, {FRAGMENT.section}){self._waived}"
        )
        self.fail(FRAGMENT, text, issuer, (group, load))

    def _used_early(self, entry: Entry) -> frozenset[int]:
        """The tcgen05.ld of a kernel whose registers may be used before a wait, by more than a mov."""
        if id(entry) not in self._early:
            flow = plan(entry.parsed() if isinstance(entry, StoredEntry) else entry).flow
            uses = first_uses(flow, through_moves=True)
            self._early[id(entry)] = entry, frozenset().union(*uses.values())
        return self._early[id(entry)][1]

    @property
    def _waived(self) -> str:
        return f"\n  Allowed: {', '.join(self.allowed)}" if self.allowed else ""

    def report(self, conflict: Conflict, now: Access, cta: Cta, columns: bool = False) -> None:
        """Raises Fault for an access that is not ordered behind an earlier one. cta: whose memory it is.
        columns: it is tensor memory.

        Kernels that ship for B200s leave scopes out: that is a doubt (`errors.doubt`).
        """
        rule, before = rule_of(conflict, now), conflict.before
        if columns and rule in (TENSOR, THREADS, STAGING, COPY):
            rule = COLUMNS
        place = f"column {conflict.place % 512:#x}" if columns else f"shared offset {conflict.place:#x}"
        if rule.name in self.allowed or any(_is_allowed_at(access, rule) for access in (before, now)):
            return
        text = (
            f"sanitizer, rule {rule.name}: nothing orders\n"
            f"    {_text(now)}\n  behind\n    {_text(before)}\n"
            f"  at {place} of {cta.label}: {rule.missing}.\n"
            f"  The usual way: {rule.usual} (PTX ISA, {rule.section}){self._waived}"
        )
        if rule is SCOPE:
            kernel = now.issuer[0].grid.entry.name
            if self._log is None:
                doubt(text, (kernel, rule.name))
            else:
                self.fail(rule, text, now.issuer, before.issuer)
            self._unscoped.add(kernel)
            return
        self.fail(rule, text, now.issuer, before.issuer)


def check_rule(name: str) -> str:
    """The name of a rule. Raises ValueError if it is none."""
    if name not in RULES:
        raise ValueError(f"{name!r} is no rule of the sanitizer: {', '.join(RULES)}")
    return name


def _is_allowed_at(access: Access, rule: Rule) -> bool:
    """Whether the line of the kernel's source, where it is known, waives a rule: # sanitizer: allow RULE."""
    group, index = access.issuer
    file, colon, line = (group.grid.entry.instructions[index].source or "").rpartition(":")
    if not colon or not line.isdecimal():
        return False
    found = _ALLOW.search(linecache.getline(file, int(line)))
    return found is not None and rule.name in re.split(r"[\s,]+", found[1])


def _opcode(access: Access) -> str:
    group, index = access.issuer
    return group.grid.entry.instructions[index].opcode


def _text(access: Access) -> str:
    group, index = access.issuer
    instruction = group.grid.entry.instructions[index]
    lanes = "" if access.lanes in (0, 0xFFFFFFFF) else f", lanes {access.lanes:#010x}"
    source = f", {instruction.source}" if instruction.source else ""
    how = "writes" if access.is_write else "reads"
    proxy = "async" if access.is_async else "generic"
    return f"{instruction.opcode} of {label(access.issuer)}{lanes}{source}, which {how} through the {proxy} proxy"
