"""Events of grids and clusters, which observers handle."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from nogpu.hardware.async_operations import AsyncOperation
    from nogpu.hardware.cluster import Cluster, Cta
    from nogpu.hardware.mbarriers import MBarrier
    from nogpu.hardware.memory import GlobalMemory
    from nogpu.hardware.tensor.tmem import Place
    from nogpu.hardware.tma.modes import Mode
    from nogpu.hardware.tma.tensor_map import TensorMap
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp


class Events:
    """Events of a cluster, as methods that do nothing until there are observers.

    mask: the lanes of the warp that take part.
    """

    is_observed = False

    def observe(self, *observers: object) -> None:
        """Passes each event on to the observers that have a method of its name, in this order."""
        self.is_observed = True
        for kind, places in _hearers(tuple(map(type, observers))):
            if len(places) == 1:
                setattr(self, kind, getattr(observers[places[0]], kind))
            else:
                setattr(self, kind, partial(_pass_on, [getattr(observers[place], kind) for place in places]))

    def forget(self) -> None:
        """Forgets the observers."""
        vars(self).clear()

    def issued(self, async_op: AsyncOperation, g: ActiveGroup, issuer: Issuer, running: AsyncOperation | None) -> None:
        """An asynchronous operation is issued, by the lanes that run, or by another operation. An observer may keep the
        operation's clock as `AsyncOperation.cause`.
        """

    def mbarrier_arrived(self, barrier: MBarrier, issuer: Issuer, running: AsyncOperation | None) -> None:
        """An arrival on an mbarrier, or bytes of it, are about to count."""

    def expected(self, barrier: MBarrier) -> None:
        """The mbarrier's phase is about to wait for more bytes."""

    def initialised(self, barrier: MBarrier, warp: Warp, mask: int) -> None:
        """Lanes have executed mbarrier.init."""

    def polled(self, barrier: MBarrier, warp: Warp) -> None:
        """The lanes that run have seen that the mbarrier's phase is not over."""

    def invalidated(self, barrier: MBarrier, warp: Warp, mask: int) -> None:
        """Lanes execute mbarrier.inval, or mbarrier.init of a live object."""

    def fenced_initialisation(self, warp: Warp) -> None:
        """The lanes that run execute fence.mbarrier_init."""

    def passed(self, barrier: MBarrier, warp: Warp) -> None:
        """The lanes that run have seen that the mbarrier's last phase is over."""

    def arrived(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """Lanes arrive on a named or cluster barrier, or one of bar.warp.sync."""

    def met(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """Lanes have waited for a barrier on which they have `arrived`."""

    def joined(self, warp: Warp, mask: int) -> None:
        """All lanes of a bar.warp.sync have arrived at once."""

    def fenced(self, warp: Warp, space: str | None) -> None:
        """The lanes that run execute fence.proxy.async, for one state space or (None) all."""

    def released_maps(self, warp: Warp, mask: int) -> None:
        """Lanes execute fence.proxy.tensormap::generic.release."""

    def acquired_map(self, warp: Warp, mask: int, address: int) -> None:
        """Lanes execute fence.proxy.tensormap::generic.acquire of the tensor map at an address."""

    def fenced_threads(self, warp: Warp, scope: str) -> None:
        """The lanes that run execute fence.sc, .acq_rel, .acquire, .release or membar. scope: "cta" or wider."""

    def committed(self, warp: Warp, mask: int) -> None:
        """Lanes have executed cp.async.bulk.commit_group."""

    def completed(self, warp: Warp, mask: int, newest: int, read_only: bool) -> None:
        """Lanes have waited for all but the `newest` groups of cp.async.bulk, or for their reads only."""

    def lane_copies_committed(self, warp: Warp, mask: int) -> None:
        """Lanes execute cp.async.commit_group."""

    def lane_copies_completed(self, warp: Warp, mask: int, newest: int | None) -> None:
        """Lanes have waited for all but the `newest` groups of cp.async, or (None) for all copies."""

    def stored(self, mask: int, addresses: np.ndarray, values: np.ndarray, issuer: Issuer) -> None:
        """Lanes are about to store values uint[count, 32] to addresses uint64[32]."""

    def word_stored(self, warp: Warp, mask: int, key: int) -> None:
        """Lanes store a word with an order, or change it by an atomic. key: its generic address."""

    def word_loaded(self, warp: Warp, mask: int, key: int) -> None:
        """Lanes have loaded a word with an order, or by an atomic. key: its generic address."""

    def waited_for(self, warp: Warp, grid: int) -> None:
        """The lanes that run have seen the end of the launch ahead, by its number (griddepcontrol.wait)."""

    def triggered(self, warp: Warp) -> None:
        """The lanes that run are the first of their CTA to execute griddepcontrol.launch_dependents."""

    def touched(self, cta: Cta, issuer: Issuer, reads: int, writes: int) -> None:
        """The tensor core operation that runs, or else the warp's tcgen05.ld or st, accesses tensor memory columns of a
        CTA (masks, `tensor.order.columns_mask`).
        """

    def allocated(self, cta: Cta, columns: int) -> None:
        """tcgen05.alloc has given a CTA columns (mask)."""

    def freed(self, cta_group: int, issuer: Issuer, columns: int) -> None:
        """tcgen05.dealloc with .cta_group::1 or 2 has freed columns (mask)."""

    def fragments_completed(self, warp: Warp, kind: str) -> None:
        """The warp has executed tcgen05.wait::ld (kind "ld") or ::st ("st")."""

    def fragments_used(self, g: ActiveGroup, loads: Sequence[int]) -> None:
        """The warp is about to use the results of these instructions, all tcgen05.ld."""

    def uninitialised_named(self, g: ActiveGroup, mask: int, index: int) -> None:
        """Lanes are about to execute an instruction that names a register with uninitialised bits."""

    def loaded(
        self, g: ActiveGroup, mask: int, address: int | np.ndarray, values: Sequence[Any], nbytes: int, issuer: Issuer
    ) -> None:
        """Lanes have loaded words of `nbytes` bytes from global memory. The address, and each word, is an integer
        for all lanes, or uint[32].
        """

    def landed(self, cta: Cta, place: int | np.ndarray, nbytes: int, issuer: Issuer) -> None:
        """Bytes of global memory are in a CTA's shared memory: `nbytes` at an offset, or at each of several."""

    def stores_tile(
        self, cta: Cta, tensor_map: TensorMap, coords: tuple[int, ...], offset: int, mode: Mode, issuer: Issuer
    ) -> None:
        """A tensor store has read its box from a CTA's shared memory."""

    def stores_bulk(self, cta: Cta, offset: int, nbytes: int, kept: int | None, issuer: Issuer) -> None:
        """A bulk store has read its bytes from a CTA's shared memory. kept: mask of the bytes written of each 16."""

    def fragment(self, g: ActiveGroup, issuer: Issuer, place: Place, stores: bool) -> None:
        """The warp executes tcgen05.ld, or tcgen05.st if it `stores`, at a place in tensor memory."""

    def excused(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """Lanes exit, and a barrier of the CTA or cluster no longer waits for them."""

    def exited(self, cta: Cta) -> None:
        """The last thread of a CTA exits."""

    def settle(self, warp: Warp) -> None:
        """Checks a warp's accesses that are still unchecked before the run is stopped. Raises Fault if one is wrong."""

    def end(self) -> None:
        """Nothing of the cluster happens any more."""


KINDS = tuple(name for name in vars(Events) if name[0] != "_" and name not in ("is_observed", "observe", "forget"))
"""Names of the events."""


@lru_cache(maxsize=64)
def _hearers(types: tuple[type, ...]) -> list[tuple[str, list[int]]]:
    """(event, indices of the observer types that have a method of its name), for each event with such types."""
    found = [(kind, [place for place, of in enumerate(types) if hasattr(of, kind)]) for kind in KINDS]
    return [(kind, places) for kind, places in found if places]


def _pass_on(hearers: list[Callable[..., None]], *arguments: object) -> None:
    for hear in hearers:
        hear(*arguments)


class Follower(Protocol):
    """Follower of CTAs that compiled code keeps in one place, one after another (`execution.kept_ctas`)."""

    address: int
    """Address of the notes of their accesses (native/engine.h, KeptCta.notes)."""

    def hear(self, numbers: Sequence[int], current: int, of_all: bool) -> None:
        """Handles the notes, or leaves some for later if not `of_all`. numbers: the CTAs' clusters, in order. current:
        index of the one that runs. Raises Fault for accesses that nothing orders.
        """

    def renew(self) -> None:
        """Handles that the cluster is another one now (`Cluster.become`)."""

    def end(self) -> None:
        """Python keeps the CTA that runs from now on. Raises Fault as `hear` does."""


class GridObserver:
    """Observer of a grid."""

    def following(self, memory: GlobalMemory) -> AbstractContextManager[None]:
        """Context in which launches that may overlap run, under one schedule."""
        return nullcontext()

    def begins(self, step: object, actor: Warp | AsyncOperation) -> None:
        """The events that follow happen in this step (`execution.replay.Step`) of a warp or an operation."""

    def repeats(self, step: object) -> None:
        """A warp takes this step again: the events since then have changed nothing, and the warp is where it was."""

    def dropped(self) -> None:
        """A hold has been dropped, since the order that it asks for is impossible."""

    def join(self, cluster: Cluster) -> None:
        """The cluster is resident; its warps have executed nothing."""

    def keep(self, cluster: Cluster) -> Follower | None:
        """Compiled code is about to keep the one CTA of a cluster. None: the observer cannot follow it."""
        return None

    def leave(self, cluster: Cluster) -> None:
        """The CTAs of the cluster have exited."""

    def cancelled(self, request: AsyncOperation, number: int | None) -> None:
        """A clusterlaunchcontrol.try_cancel has taken over a cluster of the grid; None: there was none left."""
