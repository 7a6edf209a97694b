"""cuda.bindings for the emulated device: CUDA graphs that are captured from a queue."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from nogpu.cuda import graphs
from nogpu.cuda.backends import integer
from nogpu.cuda.graphs import CUDAGraph, Work
from nogpu.errors import Fault

_handles = itertools.count(1)
_graphs: dict[int, list[Work]] = {}
_executables: dict[int, CUDAGraph] = {}


def _found(handle: object, table: dict[int, Any], what: str) -> Any:
    number = integer(handle, what)
    if number not in table:
        raise Fault(f"{number:#x} is no {what}, or it has been destroyed")
    return table[number]


def _begin(queue: int) -> None:
    if queue == 0:
        raise Fault("the legacy default queue cannot be captured")
    try:
        graphs.begin(queue)
    except RuntimeError as error:
        raise Fault(str(error)) from None


def _end(queue: int) -> int:
    if not graphs.capturing(queue):
        raise Fault(f"queue {queue:#x} is not captured")
    handle = next(_handles)
    _graphs[handle] = graphs.end()
    return handle


def _instantiated(graph: object) -> int:
    handle = next(_handles)
    _executables[handle] = executable = CUDAGraph()
    executable.work = list(_found(graph, _graphs, "graph"))
    return handle


def _destroyed(handle: object, table: dict[int, Any], what: str) -> None:
    _found(handle, table, what)
    del table[integer(handle, what)]


def functions(module: ModuleType, is_driver: bool, queue_of: Callable[[object], int]) -> dict[str, Callable[..., Any]]:
    """The functions of graphs that the driver and the runtime have alike, by their names without a prefix.

    module: that of cuda.bindings. queue_of: the number of a queue's handle.
    """
    names = ("CUgraph", "CUgraphExec", "CUgraphNode")
    if not is_driver:
        names = ("cudaGraph_t", "cudaGraphExec_t", "cudaGraphNode_t")
    graph_type, executable_type, node_type = (getattr(module, name) for name in names)

    def nodes(graph: object, count: int = 0) -> tuple[list[Any], int]:
        """`count` nodes, and the number of all. A node is a number, of which nothing can be asked."""
        total = sum(work.kind is not None for work in _found(graph, _graphs, "graph"))
        return [node_type(1 + i) for i in range(min(integer(count, "count"), total))], total

    def launch(executable: object, queue: object) -> None:
        _found(executable, _executables, "executable graph").replay(queue_of(queue))

    return {
        "StreamBeginCapture": lambda queue, mode: _begin(queue_of(queue)),
        "StreamEndCapture": lambda queue: graph_type(_end(queue_of(queue))),
        "GraphGetNodes": nodes,
        "GraphInstantiate": lambda graph, flags=0: executable_type(_instantiated(graph)),
        "GraphLaunch": launch,
        "GraphDestroy": lambda graph: _destroyed(graph, _graphs, "graph"),
        "GraphExecDestroy": lambda executable: _destroyed(executable, _executables, "executable graph"),
    }
