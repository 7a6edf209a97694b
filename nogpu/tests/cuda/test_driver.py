"""The calls of cuda.bindings misused: an EmulatorError names function, value and limit; legal twins succeed."""

import os

import numpy as np
import pytest

from nogpu.errors import EmulatorError

if os.environ.get("NOGPU") != "1":
    pytest.skip("the session runs on a GPU, whose driver answers with codes", allow_module_level=True)

import cuda.bindings.driver as driver  # noqa: E402
import cuda.bindings.runtime as runtime  # noqa: E402

SIZE = 64
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3  # cudaMemcpyKind
HOST = np.zeros(SIZE + 8, np.uint8)


def value(result):
    """The result of a call, without its status."""
    assert int(result[0]) == 0
    return result[1] if len(result) > 1 else None


@pytest.fixture
def memory():
    pointer = value(driver.cuMemAlloc(SIZE))
    yield int(pointer)
    value(driver.cuMemFree(pointer))


def refused(call, reason, *names):
    for name in names:
        with pytest.raises(EmulatorError, match=f"{name}: .*{reason}"):
            call(getattr(driver, name, None) or getattr(runtime, name))


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        *((-1, "size -1: must be 1 to 191501434880"), (2**63, "must be 1 to")),
        *((1.5, "size 1.5: an integer is expected"), ("5", "size '5': an integer"), (None, "size None: an integer")),
    ],
)
def test_allocations(size, reason):
    refused(lambda call: call(size), reason, "cuMemAlloc", "cudaMalloc")


def test_allocations_of_nothing():
    refused(lambda call: call(0), "size 0: must be 1 to", "cuMemAlloc")
    assert value(runtime.cudaMalloc(0)) == 0
    value(runtime.cudaFree(0))
    value(driver.cuMemFree(0))


def test_frees(memory):
    refused(lambda call: call(memory + 1), "no allocation of this interface starts there", "cuMemFree", "cudaFree")
    for pointer, reason in ((-1, "must be 0 to"), (None, "an integer is expected"), (1.5, "an integer is expected")):
        refused(lambda call, pointer=pointer: call(pointer), reason, "cuMemFree", "cudaFree")
    pointer = value(driver.cuMemAlloc(8))
    value(driver.cuMemFree(pointer))
    refused(lambda call: call(pointer), "or it is free already", "cuMemFree")


def test_fills(memory):
    for number, reason in ((256, "value 256: must be 0 to 255"), (-1, "value -1"), (1.5, "an integer is expected")):
        refused(lambda call, number=number: call(memory, number, 4), reason, "cuMemsetD8")
    for count, reason in ((SIZE + 1, "the last 1 bytes are past the end"), (-1, "count -1: must be 0 to")):
        refused(lambda call, count=count: call(memory, 1, count), reason, "cuMemsetD8", "cudaMemset")
    refused(lambda call: call(0, 1, 4), "store of 4 bytes at 0x0: null pointer", "cuMemsetD8", "cudaMemset")
    refused(lambda call: call(memory + 1, 1, 4), "misaligned by 1 bytes", "cuMemsetD32")
    refused(lambda call: call(memory, 2**32, 4), "must be 0 to 4294967295", "cuMemsetD32")
    value(runtime.cudaMemset(memory, -1, SIZE))  # a memset of the low byte of an int
    value(driver.cuMemsetD8(memory + 1, 255, 0))
    value(runtime.cudaMemcpy(HOST.ctypes.data, memory, SIZE, TO_HOST))
    assert HOST[:SIZE].tolist() == [255] * SIZE


def test_copies(memory):
    host = HOST.ctypes.data
    for arguments, reason in (
        ((memory, host, SIZE + 1, TO_DEVICE), "store of 65 bytes at .* past the end"),
        ((host, memory, SIZE + 1, TO_HOST), "load of 65 bytes at .* past the end"),
        ((memory, host, SIZE, ON_DEVICE), "load of 64 bytes at "),
        ((0, host, 4, TO_DEVICE), "store of 4 bytes at 0x0: null pointer"),
        ((memory, 0, 4, TO_DEVICE), "load of 4 bytes at 0x0: null pointer"),
        ((host, 0, 4, TO_HOST), "load of 4 bytes at 0x0: null pointer"),
        ((memory, host, -1, TO_DEVICE), "count -1: must be 0 to"),
        ((memory, host, 4, 9), "cudaMemcpyKind 9: must be 0 to 4"),
        ((memory, host, 4, None), "cudaMemcpyKind None: an integer"),
    ):
        refused(lambda call, arguments=arguments: call(*arguments), reason, "cudaMemcpy")
    value(runtime.cudaMemcpy(memory, host, SIZE, TO_DEVICE))
    value(runtime.cudaMemcpy(memory, memory + 8, 8, runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice))
    value(runtime.cudaMemcpy(0, 0, 0, TO_DEVICE))


def test_queues(memory):
    queue, event = value(driver.cuStreamCreate(0)), value(driver.cuEventCreate(0))
    for known in (queue, 0, 1, 2, value(runtime.cudaStreamCreate())):
        value(driver.cuMemsetD8Async(memory, 1, SIZE, known))
        value(driver.cuStreamSynchronize(known))
        value(driver.cuEventRecord(event, known))
    value(driver.cuStreamDestroy(queue))
    for unknown in (queue, 0x1234):
        for call, arguments in (
            (driver.cuMemsetD8Async, (memory, 1, SIZE, unknown)),
            (runtime.cudaMemsetAsync, (memory, 1, SIZE, unknown)),
            (driver.cuStreamSynchronize, (unknown,)),
            (driver.cuStreamWaitEvent, (unknown, event, 0)),
            (driver.cuEventRecord, (event, unknown)),
            (driver.cuStreamDestroy, (unknown,)),
        ):
            with pytest.raises(EmulatorError, match=f"queue {int(unknown):#x}: no such queue"):
                call(*arguments)
    refused(lambda call: call(0), "a default queue cannot be destroyed", "cuStreamDestroy", "cudaStreamDestroy")


def test_queries():
    for number in (1, -1, None, "x", 1.5):
        refused(lambda call, number=number: call(number), "device ", "cuDeviceGet", "cudaSetDevice")
    for number in (9999, -1, None, "x", 1.5):
        with pytest.raises(EmulatorError, match="device attribute .* is not modelled"):
            driver.cuDeviceGetAttribute(number, 0)
    event = value(driver.cuEventCreate(0))
    refused(lambda call: call(event, event), "has not been recorded", "cuEventElapsedTime")
    refused(lambda call: call(None), "event None", "cuEventRecord")
    refused(lambda call: call(1, 0, 32), "blocks 0: must be 1 to 32", "cuOccupancyAvailableDynamicSMemPerBlock")
    refused(lambda call: call(1, 0, 0), "threads 0: must be 1 to", "cuOccupancyMaxActiveBlocksPerMultiprocessor")
    refused(lambda call: call(1, 32, -1), "shared memory -1", "cuOccupancyMaxActiveBlocksPerMultiprocessor")
    refused(lambda call: call(1, None), "config None: a CUlaunchConfig", "cuOccupancyMaxActiveClusters")
    refused(lambda call: call(-5, 0), "length -5: must be 1 to", "cuDeviceGetName")
    value(runtime.cudaSetDevice(0))
    assert int(value(driver.cuDeviceGet(np.int64(0)))) == 0
    assert value(driver.cuOccupancyAvailableDynamicSMemPerBlock(1, 1, 32)) == 232448
    assert value(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(1, 1024, 0)) == 2


@pytest.mark.parametrize("module,prefix", [(driver, "cu"), (runtime, "cuda")])
def test_graphs(module, prefix, memory):
    def call(name, *arguments):
        status, *results = getattr(module, prefix + name)(*arguments)
        assert int(status) == 0
        return results

    (queue,) = call("StreamCreate", *((0,) if prefix == "cu" else ()))
    call("StreamBeginCapture", queue, 1)
    if prefix == "cu":
        call("MemsetD8Async", memory, 7, SIZE, queue)
    else:
        call("MemsetAsync", memory, 7, SIZE, queue)
    refused(lambda f: f(queue, 1), "captured already", f"{prefix}StreamBeginCapture")
    (graph,) = call("StreamEndCapture", queue)
    assert call("GraphGetNodes", graph) == [[], 1] and len(call("GraphGetNodes", graph, 2)[0]) == 1
    (executable,) = call("GraphInstantiate", graph, 0)
    call("GraphDestroy", graph)
    value(driver.cuMemsetD8(memory, 0, SIZE))
    call("GraphLaunch", executable, queue)
    host = np.zeros(SIZE, np.uint8)
    value(runtime.cudaMemcpy(host.ctypes.data, memory, SIZE, TO_HOST))
    assert (host == 7).all()
    call("GraphExecDestroy", executable)
    refused(lambda f: f(graph), "is no graph", f"{prefix}GraphDestroy", f"{prefix}GraphGetNodes")
    refused(lambda f: f(executable, queue), "is no executable graph", f"{prefix}GraphLaunch")
    refused(lambda f: f(queue), "is not captured", f"{prefix}StreamEndCapture")
    refused(lambda f: f(0, 1), "legacy default queue", f"{prefix}StreamBeginCapture")
    call("StreamDestroy", queue)
