"""Reports: both accesses, the edge that is missing, the usual way to put it in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

from emulator.errors import Fault
from emulator.hardware.barriers import label

if TYPE_CHECKING:
    from emulator.hardware.cluster import Cta
    from emulator.sanitizer.shadow import Access, Conflict


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


def rule_of(conflict: Conflict, now: Access) -> Rule:
    """The rule that two accesses break."""
    before, asynchronous = conflict.before, [x for x in (conflict.before, now) if x.cause is not None]
    if conflict.unfenced:
        return PROXY
    if not asynchronous:
        return LANES if conflict.same_warp else THREADS
    if any(_opcode(access).startswith("tcgen05.") for access in asynchronous):
        return TENSOR
    reads_only = any(not access.is_write for access in asynchronous)
    return STAGING if reads_only and (before.cause is None or now.cause is None) else COPY


def refuse(conflict: Conflict, now: Access, cta: Cta) -> NoReturn:
    """Raises Fault for an access that is not ordered behind an earlier one. cta: whose shared memory it is."""
    rule, before = rule_of(conflict, now), conflict.before
    raise Fault(
        f"sanitizer, rule {rule.name}: nothing orders\n"
        f"    {_text(now)}\n  behind\n    {_text(before)}\n"
        f"  at shared offset {conflict.place:#x} of {cta.label}: {rule.missing}.\n"
        f"  The usual way: {rule.usual} (PTX ISA, {rule.section})"
    )


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
