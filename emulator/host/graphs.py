"""CUDA graphs: launches are recorded instead of run, and every replay runs them.

Only launches of kernels can be captured: a torch operation on the device raises NotImplementedError meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from emulator.execution import device

Pool = tuple[int, int]
_capturing: list[Callable[[], None]] | None = None


def capturing() -> bool:
    """Whether a graph is being captured."""
    return _capturing is not None


def submit(launch: Callable[[], None]) -> None:
    """Run a launch, or add it to the graph that is being captured."""
    if _capturing is None:
        launch()
    else:
        _capturing.append(launch)


def refuse_while_capturing(what: str) -> None:
    """Raise NotImplementedError for an operation that is no launch, if a graph is being captured."""
    if _capturing is not None:
        raise NotImplementedError(f"{what} while a CUDA graph is captured: the emulated device records launches only")


class CUDAGraph:
    """torch.cuda.CUDAGraph: the launches between capture_begin and capture_end.

    The graph keeps the device memory that exists at capture_end.
    """

    def __init__(self, keep_graph: bool = False):
        self._launches: list[Callable[[], None]] | None = None
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
        self._launches, _capturing = _capturing, None
        self._kept = [owner() for owner in device.memory_owners]

    def replay(self) -> None:
        if self._launches is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        for launch in self._launches:
            launch()

    def reset(self) -> None:
        self._launches, self._kept = None, []

    def pool(self) -> Pool:
        return 0, 0


@contextlib.contextmanager
def graph(
    cuda_graph: CUDAGraph, pool: Pool | None = None, stream: object = None, capture_error_mode: str = "global"
) -> Iterator[None]:
    """torch.cuda.graph."""
    cuda_graph.capture_begin(pool, capture_error_mode)
    try:
        yield
    finally:
        cuda_graph.capture_end()
