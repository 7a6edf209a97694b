"""CUDA graphs: launches are recorded instead of run, and every replay runs them in the order of their calls. What
events and waits order among them is recorded, too.

Only launches of kernels can be captured: a torch operation on the device raises NotImplementedError meanwhile.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

from nogpu.cuda import current_queue
from nogpu.execution import device
from nogpu.execution.device import queue_order

Pool = tuple[int, int]
_capturing: list[Callable[[], None]] | None = None
_numbers = itertools.count()


def capturing() -> bool:
    """True if a graph is being captured."""
    return _capturing is not None


def submit(work: Callable[[], None]) -> None:
    """Do what is a launch, or orders launches; or add it to the graph that is being captured."""
    if _capturing is None:
        work()
    else:
        _capturing.append(work)


def refuse_while_capturing(what: str) -> None:
    """Raise NotImplementedError for an operation that is no launch, if a graph is being captured."""
    if _capturing is not None:
        raise NotImplementedError(f"{what} while a CUDA graph is captured: the emulated device records launches only")


class CUDAGraph:
    """torch.cuda.CUDAGraph: the launches between capture_begin and capture_end.

    The graph keeps the device memory that exists at capture_end.
    """

    def __init__(self, keep_graph: bool = False):
        self._work: list[Callable[[], None]] | None = None
        self._number = next(_numbers)
        self._kept: list[object] = []

    def capture_begin(self, pool: Pool | None = None, capture_error_mode: str = "global") -> None:
        global _capturing
        if _capturing is not None:
            raise RuntimeError("a CUDA graph is being captured already")
        device.run_pending()
        _capturing = []

    def capture_end(self) -> None:
        global _capturing
        if _capturing is None:
            raise RuntimeError("no CUDA graph is being captured")
        self._work, _capturing = _capturing, None
        self._kept = [owner() for owner in device.memory_owners]

    def replay(self) -> None:
        if self._work is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        order = queue_order()
        with contextlib.nullcontext() if order is None else order.replaying(self._number, current_queue.get()):
            for work in self._work:
                work()

    def reset(self) -> None:
        self._work, self._kept = None, []
        order = queue_order()
        if order is not None:
            order.forget_graph(self._number)

    def pool(self) -> Pool:
        return 0, 0
