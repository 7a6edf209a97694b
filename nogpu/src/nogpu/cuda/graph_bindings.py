"""cuda.bindings for the emulated device: CUDA graphs that are captured from a queue."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from nogpu.cuda import graphs
from nogpu.cuda.backends import integer
from nogpu.cuda.graphs import CUDAGraph, Work
from nogpu.cuda.handles import Table
from nogpu.errors import Fault

_handles = itertools.count(1)
_graphs = Table[list[Work]]("graph", _handles, Fault)
_executables = Table[CUDAGraph]("executable graph", _handles, Fault)


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
    return _graphs.add(graphs.end())


def _instantiated(graph: object) -> int:
    executable = CUDAGraph()
    executable.work = list(_graphs[integer(graph, "graph")])
    return _executables.add(executable)


def _destroyed(table: Table[Any], handle: int) -> None:
    table.take(handle)


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
        total = sum(work.kind is not None for work in _graphs[integer(graph, "graph")])
        return [node_type(1 + i) for i in range(min(integer(count, "count"), total))], total

    def launch(executable: object, queue: object) -> None:
        _executables[integer(executable, "executable graph")].replay(queue_of(queue))

    return {
        "StreamBeginCapture": lambda queue, mode: _begin(queue_of(queue)),
        "StreamEndCapture": lambda queue: graph_type(_end(queue_of(queue))),
        "GraphGetNodes": nodes,
        "GraphInstantiate": lambda graph, flags=0: executable_type(_instantiated(graph)),
        "GraphLaunch": launch,
        "GraphDestroy": lambda graph: _destroyed(_graphs, integer(graph, "graph")),
        "GraphExecDestroy": lambda executable: _destroyed(_executables, integer(executable, "executable graph")),
    }
