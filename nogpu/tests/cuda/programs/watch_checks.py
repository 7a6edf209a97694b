"""Writes to torch's memory between launches that would not run again; test_torch_watches.py runs the checks."""

import ctypes
import faulthandler
import os
import tempfile
import threading

import torch
from cuda.bindings import runtime

import nogpu
from nogpu.cuda import torch_watches
from nogpu.execution import repeats, runs
from nogpu.execution.device import Device

WORDS = 1 << 15
KERNEL = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry plus(.param .u64 from, .param .u64 out, .param .u32 n) .reqntid 32, 1, 1
{ .reg .b32 %r<9>; .reg .b64 %rd<3>; ld.param.b64 %rd1, [from]; ld.param.b64 %rd2, [out]; ld.param.b32 %r2, [n];
  ld.global.b32 %r1, [%rd1+16384]; add.s32 %r1, %r1, %r2; st.global.b32 [%rd2+16384], %r1; ret; }
.visible .entry set(.param .u64 out, .param .u32 n) .reqntid 32, 1, 1
{ .reg .b32 %r<9>; .reg .b64 %rd<3>; ld.param.b64 %rd2, [out]; ld.param.b32 %r2, [n];
  st.global.b32 [%rd2+16384], %r2; ret; }
.visible .entry exchange(.param .u64 out, .param .u32 n) .reqntid 32, 1, 1
{ .reg .b32 %r<9>; .reg .b64 %rd<3>; ld.param.b64 %rd2, [out]; ld.param.b32 %r2, [n];
  atom.global.exch.b32 %r1, [%rd2+16384], %r2; ret; }
"""
AT = 4096  # the word that kernels access
module = nogpu.load_ptx(KERNEL)
repeats.SHARE = 1e9
compared = []
compare = repeats._compare
repeats._compare = lambda *of: compared.append(of[0]) or compare(*of)


def tensor():
    return torch.zeros(WORDS, dtype=torch.int32, device="cuda")


def plus(x, y, n=1, times=1):
    for _ in range(times):
        module["plus"].launch(1, 32, [x, y, n])


def address(x):
    return x.data_ptr() + 4 * AT


def alias_of(x):
    return torch.from_dlpack(x)


def by_file(x, n, is_real=False):
    bytes_of = torch.full((WORDS,), n, dtype=torch.int32).numpy().tobytes()
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(len(bytes_of).to_bytes(8, "little") + bytes_of)
        file.flush()
        file.seek(0)
        x.untyped_storage()._set_from_file(file, None, is_real, 1)


def by_thread(x, n):
    thread = threading.Thread(target=lambda: x.fill_(n))
    thread.start()
    thread.join()


def by_graph():
    value = tensor()
    graphs = {}

    def replay(x, n):
        value.fill_(n)
        if x.data_ptr() not in graphs:
            graphs[x.data_ptr()] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graphs[x.data_ptr()]):
                x.copy_(value)
        graphs[x.data_ptr()].replay()

    return replay


def by_runtime(x, n):
    word = ctypes.c_int32(n)
    kind = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
    assert runtime.cudaMemcpy(address(x), ctypes.addressof(word), 4, kind)[0] == 0


def by_workers(x, n):
    device, seconds = Device.current(), runs.SPLIT_SECONDS
    device.workers, runs.SPLIT_SECONDS = 2, 0.0
    module["set"].launch(2, 32, [x, n])
    device.workers, runs.SPLIT_SECONDS = 1, seconds


WAYS = {
    "item": lambda x, n: x.__setitem__(AT, n),
    "in place": lambda x, n: x.zero_().add_(n),
    "copy": lambda x, n: x.copy_(torch.full((WORDS,), n, dtype=torch.int32)),
    "out": lambda x, n: torch.full((WORDS,), n, out=x, dtype=torch.int32, device="cuda"),
    "view": lambda x, n: x.view(8, -1)[1].fill_(n),
    "data": lambda x, n: x.data.fill_(n),
    "bytes": lambda x, n: x.view(torch.uint8)[4 * AT :].fill_(0) is x[AT:].add_(n),
    "operator": lambda x, n: torch.ops.aten.fill_.Scalar(x, n),
    "foreach": lambda x, n: torch._foreach_add_([x], n - x[AT].item()),
    "storage": lambda x, n: x.untyped_storage().copy_(torch.full((WORDS,), n, dtype=torch.int32).untyped_storage()),
    "DLPack": lambda x, n: alias_of(x).fill_(n),
    "pointer": lambda x, n: setattr(ctypes.c_int32.from_address(address(x)), "value", n),
    "memmove": lambda x, n: ctypes.memmove(address(x), ctypes.byref(ctypes.c_int32(n)), 4),
    "file": by_file,
    "descriptor": lambda x, n: by_file(x, n, True),
    "thread": by_thread,
    "graph": by_graph(),
    "cudaMemcpy": by_runtime,
    "cudaMemset": lambda x, n: runtime.cudaMemset(x.data_ptr(), n, 4 * WORDS),
    "kernel": lambda x, n: module["set"].launch(1, 32, [x, n]),
    "atomic": lambda x, n: module["exchange"].launch(1, 32, [x, n]),
    "workers": by_workers,
}


def check_each_write_to_an_operand_or_a_result_counts():
    for name, write in WAYS.items():
        for place in (0, 1):
            x, y = tensor(), tensor()
            for n in (5, 9):
                plus(x, y, times=6)
                compared.clear()
                ran = Device.current().repeats.skipped
                plus(x, y, times=3)
                assert not compared and Device.current().repeats.skipped == ran + 3, (name, place, n, compared)
                write((x, y)[place], n)
                found = (x, y)[place][AT].item()
                assert found == n or (name == "cudaMemset" and found == n * 0x1010101), (name, place, found)
                expected = x[AT].item() + 1
                plus(x, y)
                assert y[AT].item() == expected, (name, place, n, y[AT])


def check_a_kernel_that_reads_what_it_writes_runs_each_time():
    x = tensor()
    plus(x, x, times=20)
    assert x[AT] == 20


def check_launches_in_turn_run_or_store():
    """Two kernels write different bytes to one tensor."""
    x, y, z = tensor(), tensor(), tensor()
    for _ in range(12):
        plus(x, y, 1)
        assert y[AT] == 1
        plus(x, y, 2)
        assert y[AT] == 2
        plus(y, z, 3)
        assert z[AT] == 5


def check_memory_in_the_place_of_other_memory_is_other_memory():
    places = set()
    for n in range(30):
        x, y = tensor(), tensor()
        x.fill_(n)
        plus(x, y, times=7)
        assert y[AT] == n + 1
        places.add(x.data_ptr())
        del x, y
    assert len(places) < 30


def check_a_storage_that_is_resized_is_another():
    x, y = tensor(), tensor()
    plus(x, y, times=6)
    x.untyped_storage().resize_(8 * WORDS)
    x[AT] = 7
    plus(x, y, times=6)
    assert y[AT] == 8


def check_a_child_process_writes_to_memory_of_its_own():
    x, y = tensor(), tensor()
    plus(x, y, times=6)
    child = os.fork()
    if not child:
        x[AT] = 3
        plus(x, y)
        os._exit(y[AT].item())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    plus(x, y)
    assert y[AT] == 1


def check_what_another_process_sends_counts():
    """torch.distributed receives into the tensor by a system call."""
    folder = tempfile.mkdtemp()
    child = os.fork()
    torch.distributed.init_process_group("gloo", f"file://{folder}/ranks", rank=int(not child), world_size=2)
    x, y = tensor(), tensor()
    if not child:
        torch.distributed.send(x.fill_(7), 0)
        torch.distributed.barrier()
        os._exit(0)
    plus(x, y, times=6)
    assert Device.current().memory.starting_at(x.data_ptr()).state()
    torch.distributed.recv(x, 1)
    plus(x, y)
    assert y[AT] == 8
    torch.distributed.barrier()
    assert os.waitpid(child, 0)[1] == 0


def check_a_handler_of_faults_is_installed_behind_that_of_watches():
    x, y = tensor(), tensor()
    plus(x, y, times=6)
    faulthandler.enable()
    x[AT] = 7
    plus(x, y)
    assert y[AT] == 8


def check_what_other_allocators_give_out_is_compared():
    """A small block shares its pages; memory of the program's own may be written to by system calls."""
    small, own = torch.zeros(64, device="cuda"), (ctypes.c_int32 * WORDS)()
    assert not torch_watches.watch(small.data_ptr(), True)
    assert not torch_watches.watch(ctypes.addressof(own), True)


def check_a_watch_that_is_broken_each_time_begins_ever_more_rarely():
    x, y = tensor(), tensor()
    begun, library = [], torch_watches._library()
    before = library.watch
    library.watch = lambda at: begun.append(at) or before(at)
    for _ in range(64):
        x.fill_(3)
        plus(x, y)
    library.watch = before
    assert begun.count(x.data_ptr()) <= 6, begun
