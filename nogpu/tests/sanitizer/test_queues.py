"""The sanitizer on several queues: unordered work, and twins that an event, a queue or the host orders."""

import itertools
import os
import threading
from typing import NamedTuple

import numpy as np
import pytest

import nogpu
from nogpu import EmulatorError
from tests.support.commands import Lazy
from tests.support.small_kernels import module

if os.environ.get("NOGPU") != "1":
    pytest.skip("the session runs on a GPU", allow_module_level=True)

import cuda.bindings.driver as driver  # noqa: E402
import cuda.bindings.runtime as runtime  # noqa: E402

from nogpu.cuda import graphs  # noqa: E402
from nogpu.cuda.backends import emulated  # noqa: E402
from nogpu.cuda.modules import Module  # noqa: E402
from nogpu.cuda.programs import connection  # noqa: E402, F401  # fills the table of entry points
from nogpu.cuda.programs.entries import ENTRIES  # noqa: E402
from nogpu.cuda.queues import CURRENT  # noqa: E402
from nogpu.execution.device import Device, LaunchConfig  # noqa: E402
from nogpu.sanitizer import queues, spans  # noqa: E402
from nogpu.sanitizer.observer import Sanitizer  # noqa: E402

torch, torch_pinned = Lazy("torch"), Lazy("nogpu.cuda.torch_pinned")
BLOCKING, NON_BLOCKING = 0, 1
LEGACY, PER_THREAD = 0, 2
PLACE = "mul.wide.u32 %rd2, %tid, 4; add.s64 %rd3, %a0, %rd2;"
KERNELS = {
    "store": module(PLACE + "st.global.b32 [%rd3], %tid;"),
    "load": module(PLACE + "ld.global.b32 %r5, [%rd3];"),
    "add": module("atom.global.add.u32 %r5, [%a0], 1;"),
    "bytes": module("cvt.u64.u32 %rd2, %tid; add.s64 %rd3, %a0, %rd2; st.global.b8 [%rd3], %tid;"),
    "overlapping": module(PLACE + "griddepcontrol.launch_dependents; griddepcontrol.wait; st.global.b32 [%rd3], %tid;"),
    "copy": module(PLACE + "add.s64 %rd4, %a1, %rd2; ld.global.b32 %r5, [%rd3]; st.global.b32 [%rd4], %r5;", 2),
}


@pytest.fixture(autouse=True)
def sanitizer(monkeypatch):
    device = Device.current()
    device.synchronize()
    monkeypatch.setattr(device, "sanitizer", Sanitizer())
    monkeypatch.setattr(device, "schedules", ("late",))
    torch.cuda.current_stream()  # imports torch
    monkeypatch.setattr(
        "nogpu.cuda.torch_queues._pools", {}
    )  # a sanitizer knows only queues that were created under it
    monkeypatch.setattr("nogpu.cuda.torch_queues._capturing", [])
    yield device.sanitizer
    device.synchronize()


@pytest.fixture
def array():
    return nogpu.array(np.zeros(64, np.uint32))


@pytest.fixture(scope="module")
def kernels():
    return {name: nogpu.load_ptx(text)["k"] for name, text in KERNELS.items()}


def value(result):
    assert int(result[0]) == 0
    return int(result[1]) if len(result) > 1 else None


def queue(flags=NON_BLOCKING):
    return value(driver.cuStreamCreate(flags))


class Program:
    """A host program."""

    def __init__(self, kernels, array):
        self.kernels, self.array, self.address = kernels, array, array.ctypes.data
        self.a, self.b, self.event = queue(), queue(), value(driver.cuEventCreate(0))
        self.other, made = value(driver.cuMemAlloc(128)), place([0])
        entered("cudaMallocHost", made, 128)
        self.pinned = int(made[0])

    def run(self, name, on, *arrays, **options):
        self.kernels[name].launch(1, 32, arrays or [self.array], queue=on, wait=False, **options)

    def submit(self, name, on, *arrays):
        """Launch like `run`, but by the calls of the DSL and Triton, which graphs capture."""
        values = [array.data_ptr().to_bytes(8, "little") for array in arrays]
        Module(KERNELS[name])["k"].submit(LaunchConfig((1, 1, 1), (32, 1, 1), (1, 1, 1), 0), values, on)

    def step(self, name, on):
        """Does what a step of a history says."""
        if name in self.kernels:
            self.run(name, on)
        else:
            getattr(self, name.replace(" ", "_"))(on)

    def fill(self, on):
        value(driver.cuMemsetD8Async(self.address, 1, 128, on))

    def copy_to(self, on):
        value(copy(self.address, self.other, WITHIN, on))

    def copy_from(self, on):
        value(copy(self.other, self.address, WITHIN, on))

    def upload(self, on):
        value(copy(self.address, self.pinned, TO_DEVICE, on))

    def download(self, on):
        value(copy(self.pinned, self.address, TO_HOST, on))

    def host(self, on):
        value(driver.cuStreamSynchronize(on))

    def record(self, on):
        value(driver.cuEventRecord(self.event, on))

    def wait(self, on):
        value(driver.cuStreamWaitEvent(on, self.event, 0))


TO_DEVICE, TO_HOST, WITHIN = 1, 2, 3


def copy(to, source, kind, on):
    return runtime.cudaMemcpyAsync(to, source, 128, kind, on)


@pytest.fixture
def program(kernels, array):
    return Program(kernels, array)


def race(call, *words):
    with pytest.raises(EmulatorError, match="rule queues") as caught:
        call()
    text = str(caught.value)
    for word in words:
        assert word in text, text
    return text


def test_report(program):
    program.run("store", program.a)
    text = race(lambda: program.run("load", program.b))
    second, first = text.index(f"the launch of k on queue {program.b:#x}"), text.index(f"on queue {program.a:#x}")
    assert second < first and "which reads by ld.global.b32" in text and "which writes by st.global.b32" in text
    assert "at bytes 0x0..0x7f of array uint32[64]" in text and "test_queues.py:" in text
    assert "cudaStreamWaitEvent" in text and "CUDA C++ Programming Guide" in text


# Steps of a host program: `work queue`, and `record queue` and `wait queue` of one event. One behind "!" is a race.
HISTORIES = {
    "atomics race with loads": "add a, ! load b",
    "third queue learns": "store a, record a, wait c, record c, wait b, load b",
    "queue that is created later": "store legacy, ! load new",
    "the runtime's queue with flags": "store legacy, load blocking",
    "the runtime's queue without flags": "store legacy, ! load free",
    "non-blocking queue before the legacy one": "store a, ! load legacy",
    "non-blocking queue behind the legacy one": "store legacy, ! load a",
}
# Work on the array, whether it writes it, of every kind: launches, fills and copies.
WORK = {
    "store": True,
    "fill": True,
    "copy to": True,
    "upload": True,
    "load": False,
    "copy from": False,
    "download": False,
}
# The order that is missing between the first work, on queue a, and the second one, on b; then the twin that has it.
ORDERED = "{} a, record a, wait b, {} b"
MISSING = {
    "no event": ("{} a, ! {} b", ORDERED),
    "event ahead of the work": ("record a, {} a, wait b, ! {} b", ORDERED),
    "wait ahead of the event": ("{} a, wait b, record a, ! {} b", ORDERED),
    "event of another queue": ("{} a, record c, wait b, ! {} b", ORDERED),
    "wait of another queue": ("{} a, record a, wait c, ! {} b", ORDERED),
    "wait of the host for another queue": ("{} a, host c, ! {} b", "{} a, host a, {} b"),
}


class Race(NamedTuple):
    """A row of the catalogue of races (`test_catalogue`)."""

    missing: str
    racy: str
    legal: str
    memory: str = "global, host queues"
    rule: str = "queues"


def races():
    for missing, (racy, legal) in MISSING.items():
        for pair in itertools.product(WORK, WORK) if missing == "no event" else [("store", "load"), ("load", "fill")]:
            if WORK[pair[0]] or WORK[pair[1]]:
                yield Race(missing, racy.format(*pair), legal.format(*pair))


RACES = list(races())


def steps(program, history):
    blocking, free = (value(runtime.cudaStreamCreateWithFlags(flags)) for flags in (BLOCKING, NON_BLOCKING))
    found = {"a": program.a, "b": program.b, "c": queue(), "legacy": LEGACY, "blocking": blocking, "free": free}
    for step in history.split(", "):
        what, _, on = step.removeprefix("! ").rpartition(" ")
        at = queue() if on == "new" else found[on]
        if step[0] == "!":
            race(lambda what=what, at=at: program.step(what, at))
        else:
            program.step(what, at)


@pytest.mark.parametrize("name", HISTORIES)
def test_histories(program, name):
    steps(program, HISTORIES[name])


@pytest.mark.parametrize("each", RACES, ids=lambda each: each.racy)
def test_unordered_work_and_its_ordered_twin(program, each):
    steps(program, each.legal)
    value(driver.cuCtxSynchronize())
    steps(program, each.racy)


def test_what_is_no_race(program):
    program.run("store", program.a)
    program.run("store", program.a)  # one queue
    program.run("store", program.b, program.array[32:])  # other bytes
    other = nogpu.array(np.zeros(1, np.uint32))
    program.run("add", program.a, other)
    program.run("add", program.b, other)  # atomics
    third = nogpu.array(np.zeros(32, np.uint32))
    program.run("load", program.a, third)
    program.run("load", program.b, third)  # nobody writes


def test_neighbouring_bytes(program):
    program.run("bytes", program.a)
    program.run("bytes", program.b, program.array.view(np.uint8)[32:])
    race(lambda: program.run("bytes", program.b, program.array.view(np.uint8)[31:]), "at byte 0x1f of")


NOT_READY = 600


def polled(query):
    """Asks until the answer is that the work is over."""
    answers = 0
    while int((found := query())[0]) == NOT_READY:
        answers += 1
        assert answers < 3
    return found


QUERIES = {
    "driver, event": lambda p: driver.cuEventQuery(p.event),
    "runtime, event": lambda p: runtime.cudaEventQuery(p.event),
    "program, queue": lambda p: [ENTRIES["cudaStreamQuery"](p.a)],
    "program, event": lambda p: [ENTRIES["cuEventQuery"](p.event)],
    "torch, queue": lambda p: [0 if torch.cuda.ExternalStream(p.a).query() else NOT_READY],
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_no_wait(program, name):
    """The first query behind new work says that it is not over, as a GPU may; that it is, orders what follows."""
    query = QUERIES[name]
    program.run("store", program.a)
    program.record(program.a)
    assert int(query(program)[0]) == NOT_READY
    race(lambda: program.run("load", program.b))
    polled(lambda: query(program))
    program.run("load", program.b)
    assert int(query(program)[0]) == 0


HOST_WAITS = {
    "queue": lambda p: driver.cuStreamSynchronize(p.a),
    "runtime queue": lambda p: runtime.cudaStreamSynchronize(p.a),
    "event": lambda p: driver.cuEventSynchronize(p.event),
    "query of the event": lambda p: polled(lambda: driver.cuEventQuery(p.event)),
    "device": lambda p: driver.cuCtxSynchronize(),
    "runtime device": lambda p: runtime.cudaDeviceSynchronize(),
    "torch": lambda p: (torch.cuda.synchronize(),),
    "free": lambda p: driver.cuMemFree(value(driver.cuMemAlloc(64))),
    "launch that waits": lambda p: (p.kernels["load"].launch(1, 32, [p.array], queue=p.a),),
}


@pytest.mark.parametrize("name", HOST_WAITS)
def test_host_waits(program, name):
    program.run("store", program.a)
    program.record(program.a)
    HOST_WAITS[name](program)
    program.run("load", program.b)


@pytest.mark.parametrize("name", ["queue", "event"])
def test_host_waits_for_something_else(program, name):
    program.record(program.a)
    program.run("store", program.a)
    if name == "queue":
        value(driver.cuStreamSynchronize(program.b))
    else:
        HOST_WAITS[name](program)
    race(lambda: program.run("load", program.b))


@pytest.mark.parametrize("first", [LEGACY, 1, PER_THREAD, "blocking"])
@pytest.mark.parametrize("second", [LEGACY, PER_THREAD, "blocking"])
def test_legacy_queue_waits_for_blocking_ones(program, first, second):
    first, second = (queue(BLOCKING) if each == "blocking" else each for each in (first, second))
    program.run("store", first)
    if LEGACY in (first, second) or 1 in (first, second) or first == second:
        program.run("load", second)
    else:
        race(lambda: program.run("load", second))


def test_blocking_queues_meet_in_the_legacy_queue(program):
    first, second, other = queue(BLOCKING), queue(BLOCKING), nogpu.array(np.zeros(32, np.uint32))
    program.run("store", first)
    program.run("store", LEGACY, other)
    program.run("load", second)


def test_programmatic_launches(program):
    """Launches of one queue overlap; a launch waits for none of another queue."""
    program.run("overlapping", program.a, programmatic=True)
    program.run("overlapping", program.a, programmatic=True)
    assert Device.current().pending == 2
    program.run("overlapping", program.b, nogpu.array(np.zeros(32, np.uint32)), programmatic=True)
    assert Device.current().pending == 1
    race(lambda: program.run("load", program.b))


def test_several_schedules_in_processes(program, monkeypatch):
    monkeypatch.setattr(Device.current(), "schedules", ("late", "random:1"))
    monkeypatch.setattr(Device.current(), "workers", 2)
    program.run("store", program.a)
    race(lambda: program.run("load", program.b))


def test_waivers(program, monkeypatch):
    for allowed in ("queues", "queues@ld.global.b32"):
        monkeypatch.setattr(Device.current(), "sanitizer", Sanitizer([allowed]))
        other = Program(program.kernels, nogpu.array(np.zeros(64, np.uint32)))
        other.run("store", other.a)
        other.run("load", other.b)
    other.run("store", other.a)
    race(lambda: other.run("store", other.b))


def test_what_is_known_does_not_grow(program, sanitizer):
    for _ in range(20):
        program.run("load", program.a)
        program.run("store", program.a)
        program.run("load", program.a)
        program.record(program.a)
        program.wait(program.b)
    assert len(sanitizer.queues.accesses_of(Device.current().memory, program.address)) == 2  # a write and a read
    race(lambda: program.run("store", queue()))


def test_memory_that_is_freed_is_forgotten(program):
    address = value(driver.cuMemAlloc(128))
    value(driver.cuMemsetD8Async(address, 1, 128, program.a))
    value(driver.cuMemFree(address))
    again = value(driver.cuMemAlloc(128))
    value(driver.cuMemsetD8Async(again, 1, 128, program.b))


# CUDA C++ programs


def place(words):
    """The address of integers of 8 bytes, which live as long as the returned object."""
    return np.array(words, np.uint64)


@pytest.fixture
def seen(sanitizer, monkeypatch):
    """The queues of submitted work."""
    found, submitted = [], sanitizer.queues.submitted
    monkeypatch.setattr(sanitizer.queues, "submitted", lambda on, *what: found.append(on) or submitted(on, *what))
    return found


def entered(name, *arguments):
    assert ENTRIES[name](*(each.ctypes.data if isinstance(each, np.ndarray) else each for each in arguments)) == 0


def test_entry_points_pass_their_queues_on(program, seen):
    loaded, kernel, made = place([0]), place([0]), place([0])
    text = np.frombuffer(KERNELS["store"].encode() + b"\0", np.uint8)
    entered("cuModuleLoadData", loaded, text)
    entered("cuModuleGetFunction", kernel, int(loaded[0]), np.frombuffer(b"k\0", np.uint8))
    address = place([program.address])
    parameters, other = place([address.ctypes.data]), nogpu.array(np.zeros(32, np.uint32))
    entered("cudaStreamCreateWithFlags", made, NON_BLOCKING)
    on = int(made[0])
    entered("cuLaunchKernel", int(kernel[0]), 1, 1, 1, 32, 1, 1, 0, on, parameters, 0)
    entered("cudaLaunchKernel", int(kernel[0]), 1 | 1 << 32, 1, 32 | 1 << 32, 1, parameters, 0, on)
    entered("cudaMemsetAsync", program.address, 0, 128, on)
    entered("cudaMemcpyAsync", other.ctypes.data, program.address, 128, WITHIN, on)
    with torch.cuda.stream(torch.cuda.ExternalStream(on)):
        entered("cuLaunchKernel", int(kernel[0]), 1, 1, 1, 32, 1, 1, 0, CURRENT, parameters, 0)
        entered("cudaMemsetAsync", program.address, 0, 128, CURRENT)
    entered("cudaEventRecord", program.event, on)
    entered("cudaStreamWaitEvent", program.a, program.event, 0)
    entered("cuLaunchKernel", int(kernel[0]), 1, 1, 1, 32, 1, 1, 0, program.a, parameters, 0)
    assert seen == [on] * 6 + [program.a]
    entered("cudaStreamSynchronize", program.a)
    program.run("load", program.b)


def test_memory_of_a_queue(program):
    made = place([0])
    entered("cudaMallocAsync", made, 128, program.a)
    x = int(made[0])
    race(lambda: driver.cuMemsetD8Async(x, 1, 128, program.b), "the allocation on queue")
    program.record(program.a)
    program.wait(program.b)
    value(driver.cuMemsetD8Async(x, 1, 128, program.b))
    with pytest.raises(EmulatorError, match="the release on queue"):
        emulated().free(x, program.a)
    value(driver.cuStreamSynchronize(program.b))
    entered("cudaFreeAsync", x, program.a)


# Copies and fills


def host(size=128):
    return np.zeros(size, np.uint8)


def test_fills(program):
    program.run("store", program.a)
    race(lambda: driver.cuMemsetD8Async(program.address, 1, 128, program.b), "a fill on queue")
    value(driver.cuMemsetD8Async(program.address, 1, 128, program.a))
    value(driver.cuCtxSynchronize())
    value(driver.cuMemsetD8(program.address, 1, 128))
    race(lambda: program.run("load", program.a), "a fill on the legacy default queue")


def test_copy(program):
    data, other = host(), value(driver.cuMemAlloc(128))
    program.run("store", program.a)
    race(lambda: copy(other, program.address, WITHIN, program.b), f"a copy on queue {program.b:#x}")
    value(copy(other, program.address, WITHIN, program.a))
    race(lambda: copy(other, data.ctypes.data, TO_DEVICE, program.b))


def test_host_waits_for_copies_to_pageable_memory(program):
    data = host()
    program.run("store", program.a)
    value(runtime.cudaMemcpyAsync(data.ctypes.data, program.address, 128, TO_HOST, program.a))
    program.run("load", program.b)


def test_blocking_copies(program):
    data = host()
    value(runtime.cudaMemcpy(program.address, data.ctypes.data, 128, TO_DEVICE))
    program.run("load", program.a)
    race(lambda: runtime.cudaMemcpy(program.address, data.ctypes.data, 128, TO_DEVICE))


def test_copies_within_the_device_do_not_block(program):
    other = value(driver.cuMemAlloc(128))
    value(runtime.cudaMemcpy(program.address, other, 128, WITHIN))
    race(lambda: program.run("load", program.a), "a copy on the legacy default queue")


def test_copies_by_way_of_pinned_memory(program):
    """Copies of other queues, and those that block, tell of uses of the host's memory."""
    made, other = place([0]), value(driver.cuMemAlloc(128))
    entered("cudaMallocHost", made, 128)
    pinned = int(made[0])
    uses = (
        lambda: copy(other, pinned, TO_DEVICE, program.b),
        lambda: runtime.cudaMemcpy(other, pinned, 128, TO_DEVICE),
        lambda: driver.cuMemsetD8Async(pinned, 1, 128, program.b),
    )
    for use in uses:
        value(copy(pinned, program.address, TO_HOST, program.a))
        race(use, f"a copy on queue {program.a:#x}", "which writes")
        value(driver.cuStreamSynchronize(program.a))
        value(use())
        value(driver.cuCtxSynchronize())
    entered("cudaFreeHost", pinned)


# torch


@pytest.fixture
def side():
    return torch.cuda.Stream()


def tensor(size=32):
    return torch.arange(size, dtype=torch.int32, device="cuda")


def test_torch_queues():
    found = [torch.cuda.Stream() for _ in range(33)]
    assert found[0] == found[32] and len({each.cuda_stream for each in found}) == 32
    assert torch.cuda.current_stream() == torch.cuda.default_stream() and not torch.cuda.current_stream().cuda_stream
    with torch.cuda.stream(found[1]):
        assert torch.cuda.current_stream() == found[1]
        with found[2]:
            assert torch._C._cuda_getCurrentRawStream(0) == found[2].cuda_stream
        assert torch.cuda.current_stream() == found[1]
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_operation_on_another_queue(side):
    x = tensor()

    def use():
        with torch.cuda.stream(side):
            return x + 1

    text = race(use, "on the legacy default queue", f"on queue {side.cuda_stream:#x}")
    assert "torch's add" in text and "torch's arange" in text
    side.wait_stream(torch.cuda.current_stream())
    use()


TORCH_EDGES = {
    "wait_stream": lambda side: side.wait_stream(torch.cuda.current_stream()),
    "wait_event": lambda side: side.wait_event(torch.cuda.current_stream().record_event()),
    "event": lambda side: recorded().wait(side),
    "synchronize": lambda side: torch.cuda.synchronize(),
    "synchronize of the queue": lambda side: torch.cuda.current_stream().synchronize(),
    "synchronize of an event": lambda side: recorded().synchronize(),
    "item": lambda side: tensor(4)[0].item(),
    "cpu": lambda side: tensor(4).cpu(),
    "to the device": lambda side: torch.ones(4).cuda(),
    "list to the device": lambda side: torch.tensor([1.0], device="cuda"),
    "copy_ from the host": lambda side: torch.empty(4, device="cuda").copy_(torch.ones(4)),
    "copy_ to the host": lambda side: torch.empty(4, dtype=torch.int32).copy_(tensor(4)),
    "items from the host": lambda side: tensor(4).__setitem__(slice(2), torch.ones(2)),
    "items to the host": lambda side: torch.empty(4).__setitem__(slice(None), tensor(4)),
    "new_tensor": lambda side: tensor(4).new_tensor([1]),
    "mask": lambda side: tensor(4)[tensor(4) > 1],
    "assignment by a mask": lambda side: tensor(4).__setitem__(tensor(4) > 1, tensor(2)),
    "indices of the host": lambda side: tensor(4)[torch.arange(2)],
    "list of indices": lambda side: tensor(4)[[1, 2]],
    "number as an index": lambda side: tensor(4)[tensor(4)[1]],
    "number as a bound": lambda side: tensor(4)[: tensor(4)[1]],
    "where": lambda side: torch.where(tensor(4)),
    "bincount": lambda side: tensor(4).bincount(),
    "repeat_interleave": lambda side: tensor(4).repeat_interleave(tensor(4)),
    "complex": lambda side: complex(tensor(4)[1]),
}
TORCH_NO_EDGES = {
    "nothing": lambda side: None,
    "other way round": lambda side: torch.cuda.current_stream().wait_stream(side),
    "event of the other queue": lambda side: side.wait_event(side.record_event()),
    "not blocking": lambda side: tensor(4).to("cpu", non_blocking=True),
    "not blocking, copy_": lambda side: torch.empty(4, device="cuda").copy_(torch.ones(4), non_blocking=True),
    "operation": lambda side: tensor(4) + 1,
    "size": lambda side: tensor(4).shape[0],
}


def pinned(size=32):
    return torch.ones(size, dtype=torch.int32).pin_memory()


def to_device(host, on):
    """A copy that does not block, on a queue."""
    with torch.cuda.stream(on):
        return host.to("cuda", non_blocking=True)


def to_host(x, on, host=None):
    on.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(on):
        return x.to("cpu", non_blocking=True) if host is None else host.copy_(x, non_blocking=True)


# The host's uses of pinned memory: while it is copied to the device, and while it is copied from there.
PINNED_WRITES = {
    "fill": lambda host: host.fill_(1),
    "sum in place": lambda host: host.add_(1),
    "copy": lambda host: host.copy_(torch.zeros(32, dtype=torch.int32)),
    "item": lambda host: host.__setitem__(3, 1),
    "part": lambda host: host[8:].zero_(),
}
PINNED_READS = {
    "number": lambda host: host[3].item(),
    "numbers": lambda host: host.tolist(),
    "sum": lambda host: host.sum(),
    "product": lambda host: host * 2,
    "copy of it": lambda host: torch.zeros(32, dtype=torch.int32).copy_(host),
    "comparison": lambda host: torch.equal(host, torch.zeros(32, dtype=torch.int32)),
}
PINNED_NO_USES = {
    "view": lambda host: host.view(4, 8)[1],
    "form": lambda host: torch.zeros_like(host).add_(host.numel()),
    "size": lambda host: host.shape[0],
    "other memory": lambda host: pinned().add_(1),
}
PINNED_EDGES = {
    "queue": lambda side: side.synchronize(),
    "event": lambda side: side.record_event().synchronize(),
    "device": lambda side: torch.cuda.synchronize(),
    "query": lambda side: (side.query(), side.query()),
}


@pytest.mark.parametrize("is_alone", (False, True))
@pytest.mark.parametrize("name", [*PINNED_WRITES, *PINNED_READS, *PINNED_NO_USES])
def test_pinned_memory_that_is_copied(name, is_alone, side):
    """is_alone: the copy is on the default queue."""
    use = {**PINNED_WRITES, **PINNED_READS, **PINNED_NO_USES}[name]
    on = torch.cuda.default_stream() if is_alone else side
    host = pinned()
    x = to_device(host, on)
    if name in PINNED_WRITES:
        text = race(lambda: use(host), "on the host (test_queues.py:", "torch's to on ", "which reads")
        assert "pinned tensor int32" in text and "the host has waited neither for the queue" in text
    else:
        use(host)
    on.synchronize()
    use(host)
    for target in (None, pinned()):
        back = to_host(x, on, target)
        if name in PINNED_NO_USES:
            use(back)
        else:
            race(lambda back=back: use(back), "on the host (", "which writes")
        on.synchronize()
        use(back)


@pytest.mark.parametrize("name", PINNED_EDGES)
def test_host_waits_for_pinned_memory(name, side):
    host = pinned()
    x = to_device(host, side)
    PINNED_EDGES[name](side)
    host.add_(1)
    back = to_host(x, side)
    PINNED_EDGES[name](side)
    assert back.tolist() == [1] * 32


def test_waits_for_something_else_leave_pinned_memory(side):
    host, event = pinned(), side.record_event()
    to_device(host, side)
    event.synchronize()
    torch.cuda.Stream().synchronize()
    torch.cuda.Stream().wait_stream(side)
    race(lambda: host.add_(1))


def test_copies_of_pinned_memory_on_two_queues(side):
    other, x = torch.cuda.Stream(), tensor()
    host = to_host(x, side)
    race(lambda: to_device(host, other), "torch's to on queue", "record an event behind the first")
    host = to_host(x, side)
    other.wait_stream(side)
    to_device(host, other)


def test_memory_that_is_not_pinned_and_copies_that_block(side):
    """CUDA has read pageable memory when the call returns."""
    pageable, host = torch.ones(32, dtype=torch.int32), pinned()
    to_device(pageable, side)
    pageable.add_(1)
    x = host.cuda()
    host.add_(1)
    assert x.cpu().sum() == 32


def test_pin_memory():
    """Pinned memory is a copy, unless it is pinned already."""
    pageable = torch.ones(4)
    host = pageable.pin_memory()
    assert host.is_pinned() and not pageable.is_pinned() and host.data_ptr() != pageable.data_ptr()
    assert host.pin_memory() is host and host[1:].is_pinned() and torch.empty(4, pin_memory=True).is_pinned()
    assert host.cuda().to("cpu", non_blocking=True).is_pinned() and not host.cuda().cpu().is_pinned()
    with pytest.raises(RuntimeError, match="cannot pin"):
        host.cuda().pin_memory()


def test_pinned_memory_is_forgotten():
    """Memory that torch gives out again is not what was copied before."""
    known = len(torch_pinned.MEMORY.snapshot()[1])
    for _ in range(3):
        host = pinned()
        to_device(host, torch.cuda.Stream())
        del host
    assert len(torch_pinned.MEMORY.snapshot()[1]) == known


def recorded():
    event = torch.cuda.Event()
    event.record()
    return event


@pytest.mark.parametrize("name", [*TORCH_EDGES, *TORCH_NO_EDGES])
def test_torch_edges(side, name, program):
    x = tensor()
    if name in TORCH_EDGES:
        TORCH_EDGES[name](side)
        program.run("load", side.cuda_stream, x)
    else:
        TORCH_NO_EDGES[name](side)
        race(lambda: program.run("load", side.cuda_stream, x))


def test_operations_before_the_first_queue(kernels):
    x, z = tensor(), tensor()
    y = x[:16].clone()
    side = torch.cuda.Stream()

    def load(of):
        kernels["load"].launch(1, of.numel(), [of], queue=side.cuda_stream, wait=False)

    race(lambda: load(x), "torch's arange")
    race(lambda: load(y), "torch's clone")
    z[0].item()
    load(z)


def test_host_waits_before_the_first_queue(kernels):
    x = tensor()
    x[0].item()
    side = torch.cuda.Stream()
    kernels["store"].launch(1, 32, [x], queue=side.cuda_stream, wait=False)


def test_what_is_held_before_the_first_queue_is_bounded(kernels, monkeypatch):
    monkeypatch.setattr(queues, "LATER", 3)
    old, recent = tensor(), tensor()
    for _ in range(3):
        recent.add_(1)
    side = torch.cuda.Stream()
    kernels["load"].launch(1, 32, [old], queue=side.cuda_stream, wait=False)
    race(lambda: kernels["load"].launch(1, 32, [recent], queue=side.cuda_stream, wait=False))


def test_dlpack(side, program):
    """The receiver of a tensor names its queue, which from then on is behind the current one."""
    x = tensor()
    x.__dlpack__()
    race(lambda: program.run("load", side.cuda_stream, x))
    x.__dlpack__(stream=side.cuda_stream)
    program.run("load", side.cuda_stream, x)


def test_threads_have_queues_of_their_own(side):
    found = []
    with torch.cuda.stream(side):
        thread = threading.Thread(target=lambda: found.append(torch.cuda.current_stream()))
        thread.start()
        thread.join()
    assert found == [torch.cuda.default_stream()]


WRITES = {
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(1),
    "copy_": lambda x: x.copy_(torch.zeros_like(x)),
    "add_": lambda x: x.add_(1),
    "setitem": lambda x: x.__setitem__(0, 1),
    "out": lambda x: torch.add(torch.zeros_like(x), 1, out=x),
}
READS = {
    "copy_ to the host": lambda x: torch.empty(32).copy_(x, non_blocking=True),
    "clone": lambda x: x.clone(),
    "to": lambda x: x.to(torch.int64),
    "sum": lambda x: x.sum(),
    "item": lambda x: x[0].item(),
    "copy_": lambda x: torch.zeros_like(x).copy_(x),
}
VIEWS = {
    "slice": lambda x: x[:4],
    "view": lambda x: x.view(4, 8),
    "reshape": lambda x: x.reshape(4, 8),
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to("cuda"),
    "pointer": lambda x: x.data_ptr(),
    "empty_like": lambda x: torch.empty_like(x),
    "detach": lambda x: x.detach().requires_grad,
}


@pytest.mark.parametrize("name", WRITES)
def test_operations_that_write(side, program, name):
    x = tensor()
    torch.cuda.synchronize()
    program.run("load", side.cuda_stream, x)
    race(lambda: WRITES[name](x), "which writes", "which reads by ld.global.b32")


@pytest.mark.parametrize("name", READS)
def test_operations_that_read(side, program, name):
    x = tensor()
    torch.cuda.synchronize()
    program.run("load", side.cuda_stream, x)
    READS[name](x)  # two reads
    torch.cuda.synchronize()
    program.run("store", side.cuda_stream, x)
    race(lambda: READS[name](x), "which reads", "which writes by st.global.b32")


@pytest.mark.parametrize("name", VIEWS)
def test_operations_without_data(side, program, name):
    x = tensor()
    torch.cuda.synchronize()
    program.run("store", side.cuda_stream, x)
    VIEWS[name](x)


def test_parts_of_a_tensor(side, program):
    x = torch.zeros(8, 64, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    program.run("store", side.cuda_stream, x[1, 8:])
    x[:, :8].zero_()
    x[2:] = 1
    x[0].add_(1)
    race(lambda: x[:, 8:9].zero_())
    race(lambda: x.__setitem__(1, 1))


# Graphs


def captured(work):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work(torch.cuda.current_stream())
    return graph


def test_graph_is_work_of_its_queue(program, side):
    x = tensor()
    graph = captured(lambda own: program.submit("store", own.cuda_stream, x))
    graph.replay()
    program.run("load", LEGACY, x)
    race(lambda: program.run("load", side.cuda_stream, x))


def test_graph_waits_for_its_queue(program, side):
    x = tensor()
    graph = captured(lambda own: program.submit("load", own.cuda_stream, x))
    program.run("store", side.cuda_stream, x)
    race(graph.replay)
    with torch.cuda.stream(side):
        graph.replay()


def test_operations_of_torch_in_a_graph_are_in_order(program):
    x = tensor()

    def work(own):
        y = x.to(torch.float32).to(torch.int32) + 1
        program.submit("load", own.cuda_stream, y)
        x.copy_(y)

    graph = captured(work)
    graph.replay()
    graph.replay()
    program.run("load", LEGACY, x)


def forked(program, side, x, fork=True, join=True):
    """Two launches of a capture, the second on another queue; the third is behind both."""

    def work(own):
        program.submit("store", own.cuda_stream, x)
        if fork:
            side.wait_stream(own)
        program.submit("store", side.cuda_stream, x)
        if join:
            own.wait_stream(side)
        program.submit("load", own.cuda_stream, x)

    return captured(work)


def test_fork_and_join_in_a_graph(program, side):
    graph = forked(program, side, tensor())
    graph.replay()
    graph.replay()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
        graph.replay()


@pytest.mark.parametrize("missing", ["fork", "join"])
def test_no_fork_or_join_in_a_graph(program, side, missing):
    race(forked(program, side, tensor(), **{missing: False}).replay)


def test_events_in_a_graph(program, side):
    x, event = tensor(), torch.cuda.Event()

    def work(own, waits):
        program.submit("store", own.cuda_stream, x)
        event.record(own)
        if waits:
            event.wait(side)
        program.submit("load", side.cuda_stream, x)

    captured(lambda own: work(own, True)).replay()
    race(captured(lambda own: work(own, False)).replay)


def test_what_follows_a_graph_is_behind_all_of_it(program, side):
    x, y = tensor(), tensor()

    def work(own):
        side.wait_stream(own)
        program.submit("store", side.cuda_stream, x)
        program.submit("store", own.cuda_stream, y)

    captured(work).replay()
    program.run("load", LEGACY, x)
    program.run("load", LEGACY, y)


def test_replays_of_one_graph_follow_each_other(program, side):
    x = tensor()
    graph = captured(lambda own: program.submit("store", own.cuda_stream, x))
    graph.replay()
    with torch.cuda.stream(side):
        graph.replay()
    assert not graphs.capturing()


# Memory of torch's allocator


def used(program, side):
    """A tensor whose last use is on another queue."""
    x = tensor(64)
    side.wait_stream(torch.cuda.current_stream())
    program.run("load", side.cuda_stream, x)
    return x


def test_memory_is_given_out_again(program, side):
    x = used(program, side)
    del x
    text = race(lambda: torch.empty(64, dtype=torch.int32, device="cuda"), "has been freed", "record_stream")
    assert "the launch of k on queue" in text


FREED_EDGES = {
    "record_stream": lambda x, side: x.record_stream(side),
    "wait": lambda x, side: torch.cuda.current_stream().wait_stream(side),
    "synchronize": lambda x, side: side.synchronize(),
}


@pytest.mark.parametrize("name", [*FREED_EDGES, "wait behind the release"])
def test_memory_is_given_out_again_behind_its_uses(program, side, name):
    x = used(program, side)
    if name in FREED_EDGES:
        FREED_EDGES[name](x, side)
    del x
    if name not in FREED_EDGES:
        torch.cuda.current_stream().wait_stream(side)
    torch.empty(64, dtype=torch.int32, device="cuda")


def test_memory_of_another_size_or_queue(program, side):
    x = used(program, side)
    del x
    torch.empty(1 << 20, dtype=torch.int32, device="cuda")  # no block of the small pool
    with torch.cuda.stream(side):
        torch.empty(64, dtype=torch.int32, device="cuda")
    race(lambda: torch.empty(64, dtype=torch.int32, device="cuda"))


# Spans


def of_set(bytes_by_tag):
    """The spans of bytes: {address: tag}."""
    places = sorted(bytes_by_tag)
    starts, tags = np.array(places, np.int64), np.array([bytes_by_tag[place] for place in places], np.int64)
    return spans.of_runs(starts, starts + 1, tags)


def as_set(found):
    assert (found[1:, 0] >= found[:-1, 1]).all() and (found[:, 0] < found[:, 1]).all()
    return {place: tag for start, end, tag in found.tolist() for place in range(start, end)}


@pytest.mark.parametrize("seed", range(20))
def test_spans(seed):
    random = np.random.default_rng(seed)
    one, other = (
        {place: int(random.integers(1, 3)) for place in random.integers(0, 40, count).tolist()}
        for count in random.integers(0, 40, 2)
    )
    first, second = of_set(one), of_set(other)
    assert as_set(first) == one
    assert as_set(spans.without(first, second)) == {p: tag for p, tag in one.items() if p not in other}
    assert as_set(spans.joined([first, second])) == {**other, **one}
    both = sorted(one.keys() & other.keys())
    found = spans.common(first, second)
    assert (found is None) == (not both)
    if found is not None:
        start, end, *tags = found
        assert start == both[0] and set(range(start, end)) <= set(both) and tags == [one[start], other[start]]
    starts = random.integers(0, 40, 8)
    ends = starts + random.integers(1, 6, 8)
    assert set(as_set(spans.merged(starts, ends, 1))) == {p for s, e in zip(starts, ends) for p in range(s, e)}


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((4,), (1,)), ((3, 4), (4, 1)), ((3, 4), (10, 1)), ((2, 1, 3, 2), (50, 7, 4, 1)), ((5, 1), (3, 1))],
)
def test_boxes(shape, strides):
    starts, ends = spans.of_box(100, shape, strides)
    wanted = {100 + sum(i * s for i, s in zip(index, strides)) for index in np.ndindex(*shape)}
    assert {p for s, e in zip(starts.tolist(), ends.tolist()) for p in range(s, e)} == wanted
