"""Rules of the order between two accesses, and the choice of the one that a pair breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nogpu.sanitizer.clocks import ANYWAY, FENCED, FENCED_GLOBAL, MAPPED, UNSCOPED
from nogpu.sanitizer.conflicts import READ_ONLY

if TYPE_CHECKING:
    from nogpu.sanitizer.conflicts import Access, Conflict


class Rule(NamedTuple):
    """Rule that two accesses may break."""

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
REUSE = Rule(
    INITIALISATION.name,
    "others may still wait for the mbarrier, or arrive on it: they find another object, or none",
    "a barrier of all that use it behind their last waits, before mbarrier.inval and mbarrier.init",
    "mbarrier.inval",
)
NAMED = Rule(
    "named-barrier",
    "arrivals of two uses of the barrier's number may count for one use",
    "a number of its own for each group of warps; or a barrier between the two uses, for which the second waits",
    "bar",
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
    "launch that lies between the two; fence.acq_rel.gpu behind the first access, before the launch's first "
    "griddepcontrol.launch_dependents; or a launch without the programmatic attribute",
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
READS = Rule(
    "read-only",
    "they are ordered, but .nc loads through a cache that does not see writes of its launch, or of one that overlaps",
    "ld.global without .nc: no const __restrict__ and no __ldg for what a launch writes",
    "ld.global.nc",
)
SIZES = Rule(
    "sizes",
    "accesses with an order or atomics synchronize where they overlap completely, and these have different sizes",
    "accesses of one size to the word",
    "Morally Strong Operations",
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
PINNED = Rule(
    "queues",
    "the host has waited neither for the queue of the copy nor for an event behind it",
    "synchronize() of the queue, of an event behind the copy or of the device, between the two; a copy without "
    "non_blocking",
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
        *(
            PROXY_GLOBAL,
            MAP_FENCE,
            INITIALISATION,
            NAMED,
            SCOPE,
            ORDER,
            SIZES,
            READS,
            COMPLETION,
            LEFT,
            UNINITIALISED,
            QUEUES,
        ),
    )
}
_OF_MISSING = {FENCED: PROXY, FENCED_GLOBAL: PROXY_GLOBAL, MAPPED: MAP_FENCE, UNSCOPED: SCOPE, ANYWAY: ORDER}


def rule_of(conflict: Conflict, now: Access, memory: str = "shared") -> Rule:
    """Rule that two accesses break. memory: as in `Reporter.report`."""
    before = conflict.before
    if conflict.missing in (UNSCOPED, ANYWAY) and now.is_write and before.cause is not None:
        return COMPLETION
    if conflict.missing == UNSCOPED and before.home is not now.home:
        return SCOPE_OF_WORD
    if conflict.missing == READ_ONLY:
        return READS
    if conflict.missing is None and before.is_strong and now.is_strong and before.size != now.size:
        return SIZES
    if conflict.missing is not None:
        return _OF_MISSING[min(conflict.missing, MAPPED)]
    asynchronous = [access for access in (before, now) if access.cause is not None]
    if memory == "global":
        return _rule_of_global(conflict, now, asynchronous)
    if memory == "tensor":
        return COLUMNS
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


def _opcode(access: Access) -> str:
    group, index = access.issuer
    return group.grid.entry.instructions[index].opcode
