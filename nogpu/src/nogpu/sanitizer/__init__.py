"""The sanitizer: happens-before, by vector clocks, over what the threads and asynchronous operations of a cluster do.

Two accesses to a byte, one of which is a write, must be ordered by a chain of events that the PTX memory model names
(PTX ISA, "Memory Consistency Model": causality order). A pair that is not is an error, whatever the bytes were under
the schedule that ran.

Agents. Each has a component in every vector clock (`clocks.py`):

| agent | its count grows |
|---|---|
| a lane of a warp | with each release of its warp: arrival, barrier, issue of an asynchronous operation |
| a place in shared memory that asynchronous copies write (bulk and tensor copies, st.async, ...) | with each copy |
| the tcgen05.mma and cp of one thread | with each tcgen05.commit: it tracks all that the thread has issued before |
| the bulk stores of one thread | with each cp.async.bulk.commit_group |
| the cp.async of a lane | with each instruction |
| the tcgen05.ld of a warp, and its tcgen05.st | with each tcgen05.wait::ld or ::st |

The clock of a lane has, by agent, the count up to which that agent's accesses happen before the lane's next one. Lanes
of a warp share one clock until a wait that some of them execute parts them; bar.warp.sync, or another barrier at which
they meet, gives them one clock again. Reconvergence behind a branch orders nothing.

Edges. A release passes a clock on, an acquire joins it (`hardware/events.py`):

| from | to |
|---|---|
| arrivals on an mbarrier, and copies, commits that complete on it | a wait that sees the end of that phase |
| arrivals on a named barrier, on the cluster's, or bar.warp.sync | the threads that wait there |
| the issue of an asynchronous operation | the operation, and what its completion releases |
| a bulk store's read of shared memory | cp.async.bulk.wait_group{.read} of its thread |
| a copy of cp.async | cp.async.wait_group, or the arrival of cp.async.mbarrier.arrive |
| a store or an atomic with an order | an ordered load or atomic of the same word, until another thread stores to it |
| a strong write of a word | what follows a strong read that observes it |
| a fence.sc of the device, ahead of such a write | a fence.sc of the device behind such a read |
| a bulk store's write to global memory | cp.async.bulk.wait_group of its thread |
| a copy's read of its tensor map | cp.async.bulk.wait_group{.read} of its thread; the copy's completion |
| the end of a launch | griddepcontrol.wait of the next |
| work of a queue | the queue's later work; by an event, another queue's; what the host submits once it has waited |
| a fence of the device before griddepcontrol.launch_dependents | the start of the next launch |

Proxies. A clock has a second row: the counts up to which writes are visible to the async proxy. fence.proxy.async sets
it to the first row, and releases and acquires pass both on. An access of the async proxy (bulk and tensor copies,
tensor core) to bytes that threads have written needs the second (PTX ISA, "Async proxy"). Copies that have completed
are visible to threads without a fence, and the order of a read before a write needs none.

Accesses. The shadow of each CTA's shared memory (`shadow.py`) has, by byte, the last write and the reads since; that of
its tensor memory (`columns.py`) has them by column and eighth of the lanes. Both are tables of `shadow_tables.py`.
Compiled code notes threads' loads and stores of shared memory (`access_log.py`).

Global memory. All clusters of launches that may overlap share one shadow (`global_accesses.py`, `global_tables.py`). A
clock covers other clusters' clocks once it has acquired them by a word (`words.py`), and the launches that are over.
Compiled code notes loads and stores (`access_log.py`). Those of CTAs that do nothing else are kept as ranges of bytes
(`apart.py`) until another access may conflict with one of them. A store by a thread needs fence.proxy.async.global
before the async proxy reads its bytes. A copy reads its tensor map through the tensormap proxy, at any time until it is
complete; between an edit of the map and the copy there must be a release by fence.proxy.tensormap and an acquire of
that map (`maps.py`).

Orders and scopes. A relaxed arrival releases what came before the last fence of its lanes; a relaxed wait acquires at
the next fence. If the scope of an arrival, or of the wait for it, is the CTA, it synchronizes with threads of that CTA
only (PTX ISA, "Morally Strong Operations"). Further rows of a clock leave out orders or scopes, so that a report can
name the rule.

Named barriers. An arrival must be ordered behind the previous use of the barrier (`barriers.py`).

Exit of a CTA. Every copy and bulk store that concerns the CTA's memory, and every arrival there by another CTA, must
happen before the exit of its last thread, and no barrier may be half arrived on (`left_behind.py`).

Uninitialised data. Shadows of a CTA's and a warp's memories (`origins.py`) have 0xFF for each byte that nobody has
written; registers have uninitialised bits (`registers.py`), which instructions spread (`propagate.py`,
`between_lanes.py`) and MMAs pass on (`products.py`, `tensors.py`). They are reported where they count (`effects.py`).
An uninitialised word of global memory is found by its value (`uninitialised.py`).

Queues. Launches, copies and operations of torch are ordered by queues, events and waits of the host (`queues.py`,
`queue_clocks.py`). The accesses of a launch are read from the shadow at its end (`touched.py`, `spans.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nogpu import lazy

if TYPE_CHECKING:
    from nogpu.sanitizer.explore import Explorer
    from nogpu.sanitizer.observer import Sanitizer
    from nogpu.sanitizer.rules import RULES
    from nogpu.sanitizer.waivers import Waiver

__all__ = ["RULES", "Explorer", "Sanitizer", "Waiver", "waivers"]
__getattr__ = lazy.names(__name__, explore="Explorer", observer="Sanitizer", rules="RULES", waivers="Waiver")
