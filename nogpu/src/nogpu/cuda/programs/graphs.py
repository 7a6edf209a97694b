"""Entry points for CUDA graphs: captured from queues, or made node by node.

The nodes of a graph run one after the other in the queue of its launch, each behind those that it depends on. The
sanitizer is told the order among the queues of a captured graph; nodes that were added one by one are all ordered.
A graph that is being captured is a list of the queue's work (cuda/graphs.py); what asks for its nodes makes them of it.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from nogpu import headers
from nogpu.cuda import graph_conditions, graphs
from nogpu.cuda.backends import current
from nogpu.cuda.graphs import ALLOCATION, CONDITIONAL, COPY, EMPTY, FILL, GRAPH, HOST, KERNEL, RELEASE, CUDAGraph, Work
from nogpu.cuda.handles import Table
from nogpu.cuda.programs import arrays, driver_arrays, graph_memory, launches, memory, modules, status
from nogpu.cuda.programs.entries import ADDRESS, HANDLE, INT, QUEUE, SIZE, U64, UINT, copied, entry, put
from nogpu.errors import Fault

if TYPE_CHECKING:
    from nogpu.cuda.modules import Kernel

Run = Callable[[int], None]
"""The work of a node, a function of the queue's handle."""

_handles = itertools.count(1)
_graphs = Table["Graph"]("graph", _handles, Fault)
_nodes = Table["Node"]("node of a graph", _handles, Fault)
_executables = Table["Executable"]("executable graph", _handles, Fault)


class KernelParameters(ctypes.Structure):
    """cudaKernelNodeParams, and the first fields of CUDA_KERNEL_NODE_PARAMS: the launch of a node."""

    _fields_ = headers.fields("word kernel; u32 grid[3], block[3], shared; word parameters, extra")


class FillParameters(ctypes.Structure):
    """cudaMemsetParams and CUDA_MEMSET_NODE_PARAMS: a fill of rows."""

    _fields_ = headers.fields("word pointer, pitch; u32 value, size; word width, height")


class Node:
    """A node of a graph: a kind, what it does, and the nodes that it depends on."""

    def __init__(self, graph: Graph, kind: int, run: Run, needs: Iterable[Node]):
        self.handle = _nodes.add(self)
        self.graph, self.kind, self.run, self.needs = graph, kind, run, list(needs)


class Graph:
    """The nodes of a cudaGraph_t."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.conditions: list[tuple[int, int]] = []
        """(handle, value) of the conditions that a launch sets."""

    def add(self, kind: int, run: Run, needs: Iterable[Node] = ()) -> Node:
        """A new node of the graph."""
        node = Node(self, kind, run, needs)
        self.nodes.append(node)
        return node

    def nodes_at(self, address: int, count: int) -> list[Node]:
        """`count` nodes whose handles are at an address. Raises Refused for one that is not the graph's."""
        found = [_nodes[handle] for handle in (ctypes.c_size_t * count).from_address(address)] if count else []
        for node in found:
            if node.graph is not self:
                raise status.Refused(status.INVALID_VALUE, f"{node.handle:#x} is a node of another graph")
        return found

    def ordered(self) -> list[Node]:
        """The nodes, each behind those that it depends on. Raises Refused for a cycle."""
        found: list[Node] = []
        left = self.nodes
        while left:
            ready = [node for node in left if all(needed in found for needed in node.needs)]
            if not ready:
                raise status.Refused(status.INVALID_VALUE, "the graph's dependencies have a circle")
            found += ready
            left = [node for node in left if node not in ready]
        return found


class Executable:
    """A cudaGraphExec_t: the work of a graph's nodes at the time of its making or last update."""

    def __init__(self, graph: Graph):
        self.replayed = CUDAGraph()
        self.update(graph)

    def update(self, graph: Graph) -> None:
        self.steps = [(node.handle, node.run) for node in graph.ordered()]
        self.conditions = list(graph.conditions)

    def launch(self, queue: int) -> None:
        _set_conditions(self.conditions, queue)
        self.replayed.work = [Work(functools.partial(run, queue), None) for _, run in self.steps]
        self.replayed.replay(queue)


# Capture

_captured = 0
"""The handle of the graph that is captured; 0 before the end of a capture of which nobody has asked for it."""
_numbers = itertools.count(1)  # of captures
_number = 0


@entry("cudaStreamBeginCapture cuStreamBeginCapture_v2", QUEUE, INT)
def begin_capture(queue: int, mode: int) -> None:
    global _captured, _number
    if queue == 0:
        raise status.Refused(status.CAPTURE_UNSUPPORTED, "the legacy default queue cannot be captured")
    try:
        graphs.begin(queue)
    except RuntimeError as error:
        raise status.Refused(status.CAPTURE_UNSUPPORTED, str(error)) from None
    _captured, _number = 0, next(_numbers)


@entry("cudaStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph", QUEUE, HANDLE, ADDRESS, ADDRESS, SIZE, INT)
def begin_capture_to_graph(queue: int, graph: int, needed: int, edges: int, count: int, mode: int) -> None:
    """Capture into a graph: what is captured comes behind all nodes that it has."""
    global _captured
    _graphs[graph]
    begin_capture(queue, mode)
    _captured = graph


def _in_own_queue(work: Work) -> Run:
    return lambda queue: work.run()


def _read_capture() -> Graph:
    """The graph that is captured, with a node for what has been captured since the last call."""
    global _captured
    _captured = _captured or _graphs.add(Graph())
    graph, captured = _graphs[_captured], graphs.captured()
    for work in captured:
        # A wait between queues, which is no node of the program's, becomes an empty one.
        kind = EMPTY if work.kind is None else work.kind
        graph.add(kind, _in_own_queue(work), graph.nodes[-1:])
    captured.clear()
    return graph


@entry("cudaStreamEndCapture cuStreamEndCapture", QUEUE, ADDRESS)
def end_capture(queue: int, result: int) -> None:
    global _captured
    if not graphs.capturing(queue):
        raise status.Refused(status.CAPTURE_UNMATCHED, f"queue {queue:#x} is not captured")
    _read_capture()
    graphs.end()
    handle, _captured = _captured, 0
    if result:
        put(result, ctypes.c_size_t, handle)


_last_node = ctypes.c_size_t()  # where capture_info says what the next node depends on


@entry(
    "cudaStreamGetCaptureInfo cuStreamGetCaptureInfo_v3", QUEUE, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS
)
def capture_info(queue: int, state: int, number: int, graph: int, needed: int, edges: int, count: int) -> None:
    """Stores what the program asks for, which null pointers leave out. Edges have no data."""
    active = graphs.capturing(queue)
    put(state, ctypes.c_int32, int(active))
    if not active:
        return
    nodes = _read_capture().nodes
    _last_node.value = nodes[-1].handle if nodes else 0
    values = (number, _number), (graph, _captured), (needed, ctypes.addressof(_last_node) if nodes else 0), (edges, 0)
    for place, value in (*values, (count, len(nodes[-1:]))):
        if place:
            put(place, ctypes.c_uint64, value)


@entry("cudaStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies_v2", QUEUE, ADDRESS, ADDRESS, SIZE, UINT)
def update_capture(queue: int, needed: int, edges: int, count: int, flags: int) -> None:
    """Checks the nodes: what is captured comes behind all nodes that the graph has."""
    for handle in (ctypes.c_size_t * count).from_address(needed) if count else ():
        _nodes[handle]


@entry("cudaStreamIsCapturing cuStreamIsCapturing", QUEUE, ADDRESS)
def is_capturing(queue: int, result: int) -> None:
    put(result, ctypes.c_int32, int(graphs.capturing(queue)))


@entry("cudaThreadExchangeStreamCaptureMode cuThreadExchangeStreamCaptureMode", ADDRESS)
def exchange_mode(mode: int) -> None:
    """Does nothing: the mode says which unsafe calls a capture forbids, and the emulator has none."""


# Graphs and nodes


@entry("cudaGraphCreate cuGraphCreate", ADDRESS, INT)
def create(result: int, flags: int) -> None:
    put(result, ctypes.c_size_t, _graphs.add(Graph()))


@entry("cudaGraphDestroy cuGraphDestroy", HANDLE)
def destroy(handle: int) -> None:
    for node in _graphs.take(handle).nodes:
        del _nodes[node.handle]


@entry("cudaGraphClone cuGraphClone", ADDRESS, HANDLE)
def clone(result: int, handle: int) -> None:
    copy, twins = Graph(), dict[Node, Node]()
    for node in _graphs[handle].ordered():
        twins[node] = copy.add(node.kind, node.run, [twins[needed] for needed in node.needs])
    copy.conditions = list(_graphs[handle].conditions)
    put(result, ctypes.c_size_t, _graphs.add(copy))


def _adds(names: str, kind: int, *types: Any) -> Callable[[Callable[..., Run]], Callable[..., Run]]:
    """A decorator that makes entry points to add a node from a function: (parameters, ...) -> the node's work."""

    def register(work: Callable[..., Run]) -> Callable[..., Run]:
        @entry(names, ADDRESS, HANDLE, ADDRESS, SIZE, *types)
        def add(result: int, graph: int, needed: int, count: int, *parameters: int) -> None:
            _add(result, graph, needed, count, kind, work(*parameters))

        return work

    return register


def _add(result: int, graph: int, needed: int, count: int, kind: int, run: Run) -> None:
    """Add a node with this work behind `count` nodes, whose handles are at `needed`, and store its handle."""
    if graph == _captured:
        _read_capture()
    to = _graphs[graph]
    put(result, ctypes.c_size_t, to.add(kind, run, to.nodes_at(needed, count)).handle)


def _launch(kernel: Kernel, config: launches.Config, values: list[bytes], queue: int) -> None:
    config.queue = queue
    launches.run(kernel, config, values)


@_adds("cudaGraphAddKernelNode cuGraphAddKernelNode_v2", KERNEL, ADDRESS)
def _kernel_run(parameters: int) -> Run:
    given = KernelParameters.from_address(parameters)
    kernel = modules.kernel(given.kernel)
    values = launches.values(kernel, given.parameters, given.extra)
    config = launches.Config(tuple(given.grid), tuple(given.block), given.shared)
    return functools.partial(_launch, kernel, config, values)


@entry("cudaGraphKernelNodeSetParams cuGraphKernelNodeSetParams_v2", HANDLE, ADDRESS)
def set_kernel(node: int, parameters: int) -> None:
    _nodes[node].run = _kernel_run(parameters)


@entry("cudaGraphExecKernelNodeSetParams cuGraphExecKernelNodeSetParams_v2", HANDLE, HANDLE, ADDRESS)
def set_kernel_of_executable(handle: int, node: int, parameters: int) -> None:
    executable, run = _executables[handle], _kernel_run(parameters)
    executable.steps = [(own, run if own == node else old) for own, old in executable.steps]


@_adds("cudaGraphAddMemcpyNode", COPY, ADDRESS)
def _copy_run(parameters: int) -> Run:
    return functools.partial(arrays.copy_given_box, copied(arrays.CopyParameters, parameters))


@_adds("cuGraphAddMemcpyNode", COPY, ADDRESS, HANDLE)
def _copy_run_by_driver(parameters: int, context: int) -> Run:
    return functools.partial(driver_arrays.copy_given_box, copied(driver_arrays.Box, parameters))


@_adds("cudaGraphAddMemcpyNode1D", COPY, ADDRESS, ADDRESS, SIZE, INT)
def _copy_of_bytes(*copy: int) -> Run:
    return functools.partial(current().copy, *copy)


@_adds("cudaGraphAddMemsetNode", FILL, ADDRESS)
@_adds("cuGraphAddMemsetNode", FILL, ADDRESS, HANDLE)
def _fill_run(parameters: int, context: int = 0) -> Run:
    p = copied(FillParameters, parameters)

    def run(queue: int) -> None:
        for row in range(p.height):
            current().fill(p.pointer + row * p.pitch, p.value & (1 << 8 * p.size) - 1, p.width, p.size, queue)

    return run


@_adds("cudaGraphAddHostNode cuGraphAddHostNode", HOST, ADDRESS)
def _host_run(parameters: int) -> Run:
    function, data = (ctypes.c_size_t * 2).from_address(parameters)
    return lambda queue: launches.call_on_host(function, data)


@_adds("cudaGraphAddEmptyNode cuGraphAddEmptyNode", EMPTY)
def _empty_run() -> Run:
    return lambda queue: None


class AllocationParameters(ctypes.Structure):
    """cudaMemAllocNodeParams and CUDA_MEM_ALLOC_NODE_PARAMS: of what pool, how many bytes, and where they are."""

    _fields_ = headers.fields("word pool[11], access, access_count, nbytes, address")


@_adds("cudaGraphAddMemAllocNode cuGraphAddMemAllocNode", ALLOCATION, ADDRESS)
def _allocation(parameters: int) -> Run:
    given = AllocationParameters.from_address(parameters)
    address = given.address = graph_memory.allocate(given.nbytes)
    return lambda queue: graph_memory.made(address)


@_adds("cudaGraphAddMemFreeNode cuGraphAddMemFreeNode", RELEASE, ADDRESS)
def _release(pointer: int) -> Run:
    return lambda queue: graph_memory.released(pointer)


@_adds("cudaGraphAddChildGraphNode cuGraphAddChildGraphNode", GRAPH, HANDLE)
def _child_run(child: int) -> Run:
    runs = [node.run for node in _graphs[child].ordered()]  # the child graph as it is now

    def run(queue: int) -> None:
        for each in runs:
            each(queue)

    return run


class ConditionalParameters(ctypes.Structure):
    """cudaConditionalNodeParams, and the first fields of CUDA_CONDITIONAL_NODE_PARAMS: a condition, and its graphs."""

    _fields_ = headers.fields("u64 handle; s32 kind; u32 size; word graphs")


_IF, _WHILE, _SWITCH = range(3)  # cudaGraphConditionalNodeType
_conditions: set[int] = set()  # handles
_bodies: list[ctypes.Array] = []  # arrays of the handles of nodes' graphs, which programs may read at any time


@entry("cudaGraphConditionalHandleCreate", ADDRESS, HANDLE, UINT, UINT)
def create_condition(result: int, graph: int, value: int, flags: int) -> None:
    """flags: 1 if each launch of the graph sets the condition to `value`."""
    owner = _graphs[graph]
    handle = current().allocate(graph_conditions.NBYTES)
    _conditions.add(handle)
    _set_conditions([(handle, value)], 0)
    if flags & 1:
        owner.conditions.append((handle, value))
    put(result, ctypes.c_uint64, handle)


@entry("cuGraphConditionalHandleCreate", ADDRESS, HANDLE, HANDLE, UINT, UINT)
def create_condition_by_driver(result: int, graph: int, context: int, value: int, flags: int) -> None:
    create_condition(result, graph, value, flags)


def _set_conditions(values: list[tuple[int, int]], queue: int) -> None:
    for handle, value in values:
        current().fill(handle, value, 1, graph_conditions.NBYTES, queue)


def _conditional(parameters: int) -> Run:
    given = ConditionalParameters.from_address(parameters)
    handle, kind, size = given.handle, given.kind, given.size
    if handle not in _conditions:
        raise status.Refused(status.INVALID_VALUE, f"{handle:#x} is no handle of a condition")
    if not {_IF: 1 <= size <= 2, _WHILE: size == 1, _SWITCH: size >= 1}.get(kind, False):
        raise status.Refused(status.INVALID_VALUE, f"a conditional node of type {kind} with {size} graphs")
    bodies = [Graph() for _ in range(size)]
    _bodies.append((ctypes.c_size_t * size)(*map(_graphs.add, bodies)))
    given.graphs = ctypes.addressof(_bodies[-1])

    def condition(queue: int) -> int:
        value = ctypes.c_uint32()
        current().copy(ctypes.addressof(value), handle, graph_conditions.NBYTES, memory.TO_HOST, queue)
        return value.value

    def body(number: int, queue: int) -> None:
        if number < size:
            _set_conditions(bodies[number].conditions, queue)
            for node in bodies[number].ordered():
                node.run(queue)

    def run(queue: int) -> None:
        value = condition(queue)
        if kind == _WHILE:
            while condition(queue):
                body(0, queue)
        else:
            body(value if kind == _SWITCH else int(not value), queue)

    return run


_PARAMETERS = 16  # offset of a node's own parameters in cudaGraphNodeParams and CUgraphNodeParams
_WORK: dict[int, Callable[[int], Run]] = {
    KERNEL: _kernel_run,
    FILL: _fill_run,
    HOST: _host_run,
    GRAPH: lambda parameters: _child_run(ctypes.c_size_t.from_address(parameters).value),
    EMPTY: lambda parameters: _empty_run(),
    ALLOCATION: _allocation,
    RELEASE: lambda parameters: _release(ctypes.c_size_t.from_address(parameters).value),
    CONDITIONAL: _conditional,
}
"""Type of a node -> its work, from the address of its parameters. Copies are described in two ways."""


@entry("cudaGraphAddNode", ADDRESS, HANDLE, ADDRESS, ADDRESS, SIZE, ADDRESS)
def add_node(result: int, graph: int, needed: int, edges: int, count: int, parameters: int) -> None:
    _add_by_type(result, graph, needed, count, parameters, lambda address: _copy_run(address + _PARAMETERS))


@entry("cuGraphAddNode_v2", ADDRESS, HANDLE, ADDRESS, ADDRESS, SIZE, ADDRESS)
def add_node_by_driver(result: int, graph: int, needed: int, edges: int, count: int, parameters: int) -> None:
    _add_by_type(
        result, graph, needed, count, parameters, lambda address: _copy_run_by_driver(address + _PARAMETERS, 0)
    )


def _add_by_type(result: int, graph: int, needed: int, count: int, parameters: int, copy: Callable[[int], Run]) -> None:
    if not parameters:
        raise status.Refused(status.INVALID_VALUE, "a null pointer for a node's parameters")
    kind = ctypes.c_int32.from_address(parameters).value
    work = {**_WORK, COPY: copy}.get(kind)
    if work is None:
        raise status.Refused(status.NOT_SUPPORTED, f"nodes of type {kind} (cudaGraphNodeType) are not modelled")
    _add(result, graph, needed, count, kind, work(parameters + _PARAMETERS))


@entry("cudaGraphAddDependencies cuGraphAddDependencies_v2", HANDLE, ADDRESS, ADDRESS, ADDRESS, SIZE)
def add_dependencies(graph: int, sources: int, targets: int, edges: int, count: int) -> None:
    of = _graphs[graph]
    for source, target in zip(of.nodes_at(sources, count), of.nodes_at(targets, count)):
        target.needs.append(source)


@entry("cudaGraphGetNodes cuGraphGetNodes", HANDLE, ADDRESS, ADDRESS)
def nodes(graph: int, result: int, count: int) -> None:
    _listed(_graphs[graph].nodes, result, count)


@entry("cudaGraphGetRootNodes cuGraphGetRootNodes", HANDLE, ADDRESS, ADDRESS)
def root_nodes(graph: int, result: int, count: int) -> None:
    _listed([node for node in _graphs[graph].nodes if not node.needs], result, count)


def _listed(found: list[Node], result: int, count: int) -> None:
    """Store nodes, where there is a place for them, as many as asked for, and the number of all."""
    if result:
        asked = ctypes.c_size_t.from_address(count).value
        for i, node in enumerate(found[:asked]):
            put(result + 8 * i, ctypes.c_size_t, node.handle)
    put(count, ctypes.c_size_t, len(found))


@entry("cudaGraphNodeGetType cuGraphNodeGetType", HANDLE, ADDRESS)
def kind(node: int, result: int) -> None:
    put(result, ctypes.c_int32, _nodes[node].kind)


# Executables


@entry("cudaGraphInstantiate cudaGraphInstantiateWithFlags cuGraphInstantiateWithFlags", ADDRESS, HANDLE, U64)
def instantiate(result: int, graph: int, flags: int) -> None:
    put(result, ctypes.c_size_t, _executables.add(Executable(_graphs[graph])))


@entry("cudaGraphExecUpdate cuGraphExecUpdate_v2", HANDLE, HANDLE, ADDRESS)
def update(handle: int, graph: int, result: int) -> None:
    executable, new = _executables[handle], _graphs[graph]
    if len(new.nodes) != len(executable.steps):
        put(result, ctypes.c_int32, 1)  # cudaGraphExecUpdateError
        raise status.Refused(status.UPDATE_FAILURE)
    executable.update(new)
    put(result, ctypes.c_int32, 0)


@entry("cudaGraphUpload cuGraphUpload", HANDLE, QUEUE)
def upload(handle: int, queue: int) -> None:
    _executables[handle]


@entry("cudaGraphLaunch cuGraphLaunch", HANDLE, QUEUE)
def launch(handle: int, queue: int) -> None:
    graphs.submit(functools.partial(_executables[handle].launch, queue), queue, GRAPH)


@entry("cudaGraphExecDestroy cuGraphExecDestroy", HANDLE)
def destroy_executable(handle: int) -> None:
    _executables[handle].replayed.reset()
    del _executables[handle]
