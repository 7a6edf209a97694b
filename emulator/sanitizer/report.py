"""Reports: both accesses, the edge that is missing, the usual way to put it in."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from emulator.compiler.flow import Flow
from emulator.compiler.plan import plan
from emulator.compiler.steps import rows_of, steps_of
from emulator.compiler.stored import StoredEntry
from emulator.compiler.tmem_uses import first_uses
from emulator.errors import EmulatorError, Fault, doubt, ordering_fault
from emulator.hardware.barriers import label
from emulator.sanitizer.clocks import ANYWAY, FENCED, FENCED_GLOBAL, MAPPED, UNSCOPED, Cause
from emulator.sanitizer.waivers import Waivers, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from emulator.hardware.cluster import Cta
    from emulator.hardware.mbarriers import MBarrier
    from emulator.hardware.warp import Issuer
    from emulator.ptx.ir import Entry, Instruction
    from emulator.sanitizer.history import Access, Conflict
    from emulator.sanitizer.origins import Origin
    from emulator.sanitizer.queues import Conflict as QueueConflict
    from emulator.sanitizer.queues import Node


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
SCOPE_OF_WORD = Rule(
    SCOPE.name,
    "these CTAs are not in one cluster, and the scope of a store, a load, an atomic or a fence that would order them "
    "is the CTA or the cluster",
    ".gpu at each of them: st.release.gpu, ld.acquire.gpu, fence.acq_rel.gpu",
    "Scope; Morally Strong Operations",
)
ORDER = Rule(
    "order",
    "an arrival and a wait stand between them, but one of the two is relaxed",
    ".release at the arrival and .acquire at the wait, or fence.acq_rel before the one and behind the other",
    "Release and Acquire Patterns",
)
INITIALISATION = Rule(
    "initialisation",
    "it may not see that the mbarrier has been initialised",
    "fence.mbarrier_init.release.cluster by the thread that initialises it, before a barrier that both take part in, "
    "of the cluster for another CTA",
    "membar/fence",
)
COMPLETION = Rule(
    "completion",
    "somebody has seen that the operation is complete, but passes that on by what is relaxed, or has too small a scope",
    ".release and .acquire, with the cluster's scope for another CTA, behind the wait that has seen it",
    "Causality order; Release and Acquire Patterns",
)
CLUSTERS = Rule(
    "clusters",
    "these CTAs of one launch are not in one cluster, and nothing that one does before it tells the other",
    "fence.acq_rel.gpu and an atomic, or st.release.gpu, behind the first access; ld.acquire.gpu of that word, in a "
    "loop, ahead of the second; a barrier of the CTA between these and other threads' accesses; or two launches",
    "Release and Acquire Patterns",
)
LAUNCH = Rule(
    "launch",
    "the launch may begin before the one ahead of it has ended, and nothing waits for that",
    "griddepcontrol.wait before the access, by its thread or one that it meets at a barrier in between, and in each "
    "launch that lies between the two; or a launch without the programmatic attribute",
    "griddepcontrol",
)
BULK_STORE = Rule(
    "bulk-store",
    "the bulk store may write the bytes later",
    "cp.async.bulk.wait_group, without .read, by the thread that has issued it, then a barrier, or an ordered word",
    "cp.async.bulk.wait_group",
)
PROXY_GLOBAL = Rule(
    "global-fence",
    "they are ordered, but the async proxy may not see what the threads have stored to global memory",
    "fence.proxy.async.global, or fence.proxy.async, by the threads that store, before what orders them",
    "membar/fence",
)
MAP_FENCE = Rule(
    "map-fence",
    "they are ordered, but the tensormap proxy may not see the tensor map that has been stored",
    "fence.proxy.tensormap::generic.release behind the edit, or tensormap.cp_fenceproxy; then, behind what orders "
    "them, fence.proxy.tensormap::generic.acquire of its 128 bytes",
    "membar/fence",
)
MAP = Rule(
    "tensor-map",
    "the copy may read the tensor map any time until it is known to be complete",
    "a wait for the mbarrier with which it completes, or cp.async.bulk.wait_group.read by its thread, before the map "
    "is written again; before the copy is issued, an order behind the map's stores",
    "Tensor-map",
)
LEFT = Rule(
    "left-behind",
    "work may reach a CTA that has exited, or somebody counts on more arrivals than come",
    "a wait for the mbarrier, group or barrier by a thread of this CTA before its last thread exits; as many arrivals "
    "as the barrier counts",
    "Asynchronous operations; mbarrier; bar",
)
UNINITIALISED = Rule(
    "uninitialised",
    "what it holds is left to chance",
    "a store, a copy or an MMA that does not accumulate, before it is read; for what lies outside of the data a zero",
    "State Spaces",
)
QUEUES = Rule(
    "queues",
    "no event, queue or wait of the host that the second is behind is behind the first",
    "record an event behind the first, and let the queue of the second wait for it (cudaEventRecord and "
    "cudaStreamWaitEvent; in torch second.wait_stream(first)); one queue for both; a wait of the host in between",
    "CUDA C++ Programming Guide, Asynchronous Concurrent Execution",
)
FREED = Rule(
    "queues",
    "the tensor there has been freed, its memory is given out again to the queue for which it was allocated, and the "
    "other queue may still use it",
    "tensor.record_stream(queue) before the tensor is freed; or a wait of the queue for which it was allocated",
    "torch.Tensor.record_stream",
)
RULES = {
    rule.name: rule
    for rule in (
        *(THREADS, LANES, CLUSTERS, LAUNCH, COPY, STAGING, BULK_STORE, TENSOR, COLUMNS, FRAGMENT, MAP, PROXY),
        *(PROXY_GLOBAL, MAP_FENCE, INITIALISATION, SCOPE, ORDER, COMPLETION, LEFT, UNINITIALISED, QUEUES),
    )
}
_OF_MISSING = {FENCED: PROXY, FENCED_GLOBAL: PROXY_GLOBAL, MAPPED: MAP_FENCE, UNSCOPED: SCOPE, ANYWAY: ORDER}


def rule_of(conflict: Conflict, now: Access, memory: str = "shared") -> Rule:
    """The rule that two accesses break. memory: as in `Reporter.report`."""
    before = conflict.before
    if conflict.missing in (UNSCOPED, ANYWAY) and now.is_write and before.cause is not None:
        return COMPLETION
    if conflict.missing == UNSCOPED and before.home is not now.home:
        return SCOPE_OF_WORD
    if conflict.missing is not None:
        return _OF_MISSING[min(conflict.missing, MAPPED)]
    asynchronous = [access for access in (before, now) if access.cause is not None]
    if memory == "global":
        return _rule_of_global(conflict, now, asynchronous)
    if memory == "tensor":
        return LANES if not asynchronous and conflict.same_warp else COLUMNS
    if not asynchronous:
        return LANES if conflict.same_warp else THREADS
    if any(_opcode(access).startswith("tcgen05.") for access in asynchronous):
        return TENSOR
    is_store = len(asynchronous) == 1 and not asynchronous[0].is_write
    return STAGING if is_store else COPY


def _rule_of_global(conflict: Conflict, now: Access, asynchronous: list[Access]) -> Rule:
    before = conflict.before
    if before.home is not now.home and before.home is not None and now.home is not None:
        return CLUSTERS if before.home.grid == now.home.grid else LAUNCH
    if any(access.fence >= MAPPED for access in asynchronous):
        return MAP
    if not asynchronous:
        return LANES if conflict.same_warp else THREADS
    return BULK_STORE if any(access.is_write for access in asynchronous) else COPY


class Reporter:
    """Reports of a process, but for what is allowed."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """allowed: as `waivers.parse` takes each. Raises ValueError.

        With EMULATOR_SANITIZE_LOG in the environment, reports are lines of JSON that are added to that file, once for a
        rule and two instructions of a kernel, and launches go on.
        """
        self.waivers = Waivers(parse(text, RULES) for text in allowed)
        self._unscoped: set[str] = set()
        self._log = os.environ.get("EMULATOR_SANITIZE_LOG")
        self._logged: set[tuple[object, ...]] = set()
        self._early: dict[int, tuple[Entry, frozenset[int]]] = {}  # by id: the entry, and its loads

    def _fail(self, rule: Rule, text: str, *issuers: Issuer, how: Callable[[], None] | None = None) -> None:
        """Raises Fault, or reports by `how`, or adds the text to the log. issuers: the later one first."""
        entry = issuers[0][0].grid.entry
        place = entry.name, rule.name, *(index for _, index in issuers)
        if self._log is None:
            if how is None:
                raise Fault(text)
            how()
        elif place not in self._logged:
            self._logged.add(place)
            with open(self._log, "a") as file:
                file.write(json.dumps({"rule": rule.name, "kernel": entry.name, "text": text}) + "\n")

    def follows_scopes(self, kernel: str) -> bool:
        """Whether scopes matter to what is ordered: they are not waived, and no doubt has been reported."""
        return not self.waivers.waives(SCOPE.name) and kernel not in self._unscoped

    def allows(self, rule: Rule, *issuers: Issuer) -> bool:
        """Whether one of the instructions may break a rule."""
        return any(self.waivers.waives_at(rule.name, g.grid.entry.instructions[index]) for g, index in issuers)

    def report_use(self, issuer: Issuer, loads: set[int]) -> None:
        """Raises Fault for an instruction that uses what a tcgen05.ld loads. loads: indices of those under way."""
        group, index = issuer
        found = loads & self._used_early(group.grid.entry)
        load = min(found, default=index)
        if not found or self.allows(FRAGMENT, issuer, (group, load)):
            return
        text = (
            f"sanitizer, rule {FRAGMENT.name}: nothing orders\n"
            f"    {group.grid.entry.instructions[index].opcode} of {label(issuer)}\n  behind\n"
            f"    {group.grid.entry.instructions[load].opcode} of {label((group, load))}\n"
            f"  : {FRAGMENT.missing}.\n"
            f"  The usual way: {FRAGMENT.usual} (PTX ISA, {FRAGMENT.section}){self._waived}"
        )
        self._fail(FRAGMENT, text, issuer, (group, load))

    def _used_early(self, entry: Entry) -> frozenset[int]:
        """The tcgen05.ld of a kernel whose registers may be used before a wait, by more than a mov."""
        if id(entry) not in self._early:
            if isinstance(entry, StoredEntry):
                flow = plan(entry.parsed()).flow
            else:  # its calls are expanded
                flow = Flow(entry, steps_of(entry, rows_of(entry)))
            uses = first_uses(flow, through_moves=True)
            self._early[id(entry)] = entry, frozenset().union(*uses.values())
        return self._early[id(entry)][1]

    def report_uninitialised(self, what: str, issuer: Issuer, lanes: int, origin: Origin, is_doubt: bool) -> None:
        """Raises Fault for an instruction whose effect depends on what nobody has written. what: how. lanes: a mask."""
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
        """Raises Fault for what a CTA leaves behind when it exits, or doubts it. issuer: of the last part of it."""
        if self.allows(LEFT, issuer):
            return
        text = (
            f"sanitizer, rule {LEFT.name}: {cta.label} exits and leaves behind\n    {what}\n  : {LEFT.missing}.\n"
            f"  The usual way: {LEFT.usual} (PTX ISA, {LEFT.section}){self._waived}"
        )
        place = issuer[0].grid.entry.name, issuer[1], LEFT.name
        self._fail(LEFT, text, issuer, how=None if is_error else lambda: doubt(text, place))

    def report_queues(self, conflict: QueueConflict) -> None:
        """Raises EmulatorError for two nodes of queues that nothing orders."""
        nodes = conflict.before, conflict.now
        used = [
            node.entry.instructions[tag - 1] if node.entry is not None and tag > 0 else None
            for node, tag in zip(nodes, conflict.tags)
        ]
        waivers = self.waivers
        if waivers.waives(QUEUES.name) or any(each and waivers.waives_at(QUEUES.name, each) for each in used):
            return
        first, second = (_node(*each) for each in zip(nodes, conflict.writes, used))
        start, rule = conflict.allocation.start, FREED if conflict.reuses else QUEUES
        text = (
            f"sanitizer, rule {QUEUES.name}: nothing orders\n    {second}\n  behind\n    {first}\n"
            f"  at {spread('byte', conflict.first - start, conflict.end - start)} of {conflict.allocation}: "
            f"{rule.missing}.\n  The usual way: {rule.usual} ({rule.section}){self._waived}"
        )
        name = nodes[1].what
        place = name, QUEUES.name, nodes[0].what, *conflict.tags
        if self._log is None:
            raise EmulatorError(text, kernel=nodes[1].entry.name if nodes[1].entry is not None else None)
        if place not in self._logged:
            self._logged.add(place)
            with open(self._log, "a") as file:
                file.write(json.dumps({"rule": QUEUES.name, "kernel": name, "text": text}) + "\n")

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
        """Raises Fault for a use of an mbarrier whose initialisation may not be seen; a lenient run warns."""
        if self.allows(INITIALISATION, user, initialiser):
            return
        group, index = user
        how = "by its thread" if by_thread else "through the async proxy"
        text = (
            f"sanitizer, rule {INITIALISATION.name}: nothing orders\n"
            f"    {_instruction(user)}, which uses the {barrier.name} {how}\n  behind\n"
            f"    {_instruction(initialiser)}\n  : {INITIALISATION.missing}.\n"
            f"  The usual way: {INITIALISATION.usual} (PTX ISA, {INITIALISATION.section}){self._waived}"
        )
        place = group.grid.entry.name, initialiser[1], index, INITIALISATION.name
        self._fail(INITIALISATION, text, user, initialiser, how=lambda: ordering_fault(text, place))

    @property
    def _waived(self) -> str:
        return f"\n  Allowed: {self.waivers}" if str(self.waivers) else ""

    def report(self, conflict: Conflict, now: Access, place: str, memory: str = "shared") -> None:
        """Raises Fault for an access that is not ordered behind an earlier one. place: of a byte of both, in words.
        memory: "shared", "tensor" or "global".

        Kernels that ship for B200s leave scopes out, and pass on relaxed that an operation is complete: those are
        doubts (`errors.doubt`).
        """
        rule, before = rule_of(conflict, now, memory), conflict.before
        if self.allows(rule, before.issuer, now.issuer):
            return
        text = (
            f"sanitizer, rule {rule.name}: nothing orders\n"
            f"    {_text(now)}\n  behind\n    {_text(before)}\n"
            f"  at {place}: {rule.missing}.\n"
            f"  The usual way: {rule.usual} (PTX ISA, {rule.section}){self._waived}"
        )
        if rule in (SCOPE, COMPLETION):
            kernel = now.issuer[0].grid.entry.name
            self._fail(rule, text, now.issuer, before.issuer, how=lambda: doubt(text, (kernel, rule.name)))
            if rule is SCOPE:
                self._unscoped.add(kernel)
            return
        self._fail(rule, text, now.issuer, before.issuer)


def spread(what: str, first: int, end: int) -> str:
    """Places from the first to the end, in words."""
    return f"{what} {first:#x}" if end == first + 1 else f"{what}s {first:#x}..{end - 1:#x}"


def _opcode(access: Access) -> str:
    group, index = access.issuer
    return group.grid.entry.instructions[index].opcode


def _instruction(issuer: Issuer, lanes: str = "") -> str:
    group, index = issuer
    instruction = group.grid.entry.instructions[index]
    source = f", {instruction.source}" if instruction.source else ""
    return f"{instruction.opcode} of {label(issuer)}{lanes}{source}"


def _node(node: Node, writes: bool, instruction: Instruction | None) -> str:
    """A launch, copy or operation, in words."""
    where = f" ({node.where})" if node.where else ""
    place = f" at PTX line {instruction.line}" if instruction is not None else ""
    source = f", {instruction.source}" if instruction is not None and instruction.source else ""
    by = f" by {instruction.opcode}{place}{source}" if instruction is not None else ""
    return f"{node.what} on {node.place}{where}, which {'writes' if writes else 'reads'}{by}"


def _text(access: Access) -> str:
    lanes = "" if access.lanes in (0, 0xFFFFFFFF) else f", lanes {access.lanes:#010x}"
    how = "writes" if access.is_write else "reads"
    proxy = "generic" if not access.is_async else "tensormap" if access.fence >= MAPPED else "async"
    tells = access.cause.tells if isinstance(access.cause, Cause) else None
    end = f" and completes on the {tells}" if tells else ""
    return f"{_instruction(access.issuer, lanes)}, which {how} through the {proxy} proxy{end}"
