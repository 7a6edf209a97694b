"""The tensor core's work that compiled code issues and executes (native/tensor_work.c), and its plans."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from nogpu import headers
from nogpu.hardware.native import Barrier, library
from nogpu.hardware.tensor.copy import Copy
from nogpu.hardware.tensor.order import COLUMNS, HALVES, MASK_WORDS
from nogpu.hardware.tma.swizzle import CHUNK

if TYPE_CHECKING:
    from nogpu.hardware.async_operations import AsyncOperation
    from nogpu.hardware.counters import LaunchCounters
    from nogpu.hardware.tensor.core import Mma

PLACES, ARRIVALS = headers.constants("native/tensor_work.h", "PLACES", "ARRIVALS")
BY_PYTHON, BY_PLAN = headers.constants("native/tensor_work.h", "BY_PYTHON", "BY_PLAN")
_FIRST_ROOM = 32  # places of a thread's queue at first, a power of two
_MOST_PLANS = PLACES // 4

_Queue = headers.structure("native/tensor_work.h", "TensorQueue")
"""A thread's work in the order of issue."""
_State = headers.structure("native/tensor_work.h", "TensorWork")
"""Plans and queues."""


@headers.mirrors("native/tensor_work.h")
class TensorPlan(ctypes.Structure):
    """MMA or copy that Python has decoded and found legal."""


@headers.mirrors("native/tensor_work.h")
class IssuedWork(ctypes.Structure):
    """Work that a thread has issued."""


@headers.mirrors("native/tensor_work.h")
class PendingArrival(ctypes.Structure):
    """Arrival of a commit at an mbarrier of another CTA."""


class TensorPlans:
    """Plans of a program's instructions, which outlive its launches."""

    def __init__(self) -> None:
        self._table = (ctypes.c_void_p * PLACES)()
        self.address = ctypes.addressof(self._table)
        self._known: dict[int, tuple[TensorPlan, Mma | Copy]] = {}  # by the plan's address

    def operation(self, address: int) -> tuple[Mma | Copy, int]:
        """The MMA or copy of a plan, and the number of its CTAs."""
        plan, operation = self._known[address]
        return operation, plan.ctas

    def learn(self, description: int, values: ctypes.Array, operation: Mma | Copy, ctas: int) -> None:
        """Adds the plan of a legal operation. description, values: its key, as compiled code has it. ctas: 1 or 2."""
        plan = TensorPlan(description, values, ctas=ctas)
        if isinstance(operation, Copy):
            reads, writes, chunks = 0, operation.columns, [operation.chunks]
            plan.copy = operation.compiled
        else:
            reads, writes, chunks = operation.reads, operation.writes, operation.chunks
            for i, call in enumerate(operation.calls):
                plan.products[i] = call
            plan.parts, plan.flops = len(operation.calls), operation.op.flops
        for i, each in enumerate(chunks):
            plan.places[i], plan.place_counts[i] = each.places.ctypes.data, each.places.size
        plan.end = CHUNK * (max(each.highest for each in chunks) + 1)
        plan.reads, plan.writes = _mask(reads), _mask(writes)
        plan.columns = _columns(reads | writes)
        address = ctypes.addressof(plan)
        if len(self._known) < _MOST_PLANS and library().learn_plan(self.address, address):
            self._known[address] = plan, operation


def _mask(columns: int) -> ctypes.Array:
    """A mask of columns (`order.columns_mask`) as compiled code takes it."""
    return (ctypes.c_uint64 * MASK_WORDS).from_buffer_copy(columns.to_bytes(8 * MASK_WORDS, "little"))


def _columns(mask: int) -> ctypes.Array:
    """A byte for each column, 1 if the mask has it in any half."""
    halves = (mask >> COLUMNS * half & (1 << COLUMNS) - 1 for half in range(HALVES))
    bits = np.frombuffer(reduce(or_, halves).to_bytes(COLUMNS // 8, "little"), np.uint8)
    return (ctypes.c_uint8 * COLUMNS).from_buffer_copy(np.unpackbits(bits, bitorder="little").tobytes())


class _Thread:
    """A thread's queue, and its key."""

    def __init__(self, key: tuple) -> None:
        self.key = key
        self.entries = (IssuedWork * _FIRST_ROOM)()
        self.queue = _Queue(ctypes.addressof(self.entries), _FIRST_ROOM)
        self.address = ctypes.addressof(self.queue)

    def add(self) -> None:
        """Adds an entry of Python's."""
        queue = self.queue
        if queue.count == queue.room:
            grown = (IssuedWork * (2 * queue.room))()
            for i in range(queue.count):
                grown[i] = self.entries[(queue.first + i) % queue.room]
            self.entries = grown
            queue.entries, queue.room, queue.first = ctypes.addressof(grown), len(grown), 0
        self.entries[(queue.first + queue.count) % queue.room].kind = BY_PYTHON
        queue.count += 1

    def take(self) -> IssuedWork:
        """Removes and returns the first entry."""
        queue = self.queue
        entry = IssuedWork.from_buffer_copy(self.entries[queue.first % queue.room])
        queue.first += 1
        queue.count -= 1
        return entry


class TensorWork:
    """The tensor core's work in a machine's run, by thread in the order of their first work.

    Compiled code has the order of all of it: for what Python keeps (`async_operations.Queues`) a queue has an entry.
    """

    def __init__(self, plans: TensorPlans, revived: Callable[[PendingArrival], AsyncOperation]) -> None:
        """revived: makes the operation of an arrival that compiled code does not perform."""
        self.plans, self._revived = plans, revived
        self._state = _State(plans=plans.address)
        self.address = ctypes.addressof(self._state)
        self._threads: dict[tuple, _Thread] = {}  # by key
        self._order = (ctypes.c_void_p * 0)()

    def __len__(self) -> int:
        """Number of entries and arrivals that are pending."""
        return self._state.count + self._state.arrival_count

    def _thread(self, key: tuple) -> _Thread:
        thread = self._threads.get(key)
        if thread is None:
            thread = self._threads[key] = _Thread(key)
            self._list()
        return thread

    def _list(self) -> None:
        self._order = (ctypes.c_void_p * len(self._threads))(*[thread.address for thread in self._threads.values()])
        self._state.queues, self._state.queue_count = ctypes.addressof(self._order), len(self._threads)

    def queue(self, key: tuple) -> int:
        """Address of a thread's queue."""
        return self._thread(key).address

    def add(self, key: tuple) -> None:
        """Adds an entry for an operation of a thread that Python keeps."""
        self._thread(key).add()
        self._state.count += 1

    def take(self) -> tuple[tuple, IssuedWork]:
        """Removes and returns the first work: the thread's key, and the entry."""
        first = library().first_queue(self.address)
        thread = next(thread for thread in self._threads.values() if thread.address == first)
        self._state.count -= 1
        return thread.key, thread.take()

    def take_arrivals(self) -> list[AsyncOperation]:
        """Removes the pending arrivals. Returns operations in their place."""
        state = self._state
        places = [(state.first_arrival + i) % ARRIVALS for i in range(state.arrival_count)]
        state.first_arrival, state.arrival_count = 0, 0
        return [self._revived(PendingArrival.from_buffer_copy(state.arrivals[place])) for place in places]

    @property
    def missed(self) -> bool:
        """True if compiled code has looked for a plan of the instruction that Python executes, and found none."""
        return bool(self._state.is_missed)

    def learn(self, operation: Mma | Copy, ctas: int) -> None:
        """Adds a plan of the instruction that Python executes, which is legal. ctas: 1, or 2 for a pair."""
        self.plans.learn(self._state.description, self._state.values, operation, ctas)

    def awaits(self, barrier: Barrier) -> bool:
        """True if an arrival is on its way to an mbarrier."""
        return bool(library().awaits_work(self.address, barrier.address))

    def settle(self, counters: LaunchCounters) -> None:
        """Adds the MMAs that compiled code has executed to the launch's counters."""
        counters.mma += self._state.mma
        counters.mma_flops += self._state.flops
        self._state.mma = self._state.flops = 0

    def forget(self, prefix: tuple) -> None:
        """Drops the queues, which are empty, of a cluster or grid that is over. prefix: start of its threads' keys."""
        for key in [key for key in self._threads if key[: len(prefix)] == prefix]:
            del self._threads[key]
        self._list()
