"""Torch programs with pending launches; test_dependent_launch.py runs them on the emulated device."""

import gc
import tempfile

import torch
from torch_checks import raises

import nogpu
from nogpu.cuda import bindings
from nogpu.cuda.backends import emulated
from nogpu.execution.device import Device, LaunchConfig
from tests.support.small_kernels import entry, store

TRIGGER = "griddepcontrol.launch_dependents;\n"
WORDS = 1 << 20  # words of a large allocation, whose memory leaves the process when it is freed


def launch(x, *parts, programmatic=False):
    config = LaunchConfig((1, 1, 1), (32, 1, 1), dynamic_shared_bytes=1024, programmatic=programmatic)
    Device.current().launch(entry("".join(parts)), config, [x.data_ptr().to_bytes(8, "little")])


def pending():
    return Device.current().pending


def fresh():
    """A tensor to which a pending launch will store 5."""
    x = torch.zeros(32, dtype=torch.int32, device="cuda")
    launch(x, TRIGGER, "mov.u32 %r1, 5;", store("%r1"))
    assert pending() == 1
    return x


def check_metadata_is_no_use_of_data():
    x = fresh()
    asked = (x.shape, x.size(), x.size(0), x.stride(), x.dtype, x.device, x.is_cuda, x.get_device(), x.data_ptr())
    asked += (x.numel(), x.dim(), x.ndim, x.element_size(), x.is_contiguous(), x.storage_offset(), x.layout, len(x))
    asked += (x.is_neg(), torch.is_neg(x), x.is_conj(), torch.is_conj(x))
    asked += (x.requires_grad, x.nbytes, x.itemsize, x.view(4, 8).shape, x.detach().shape, x.is_floating_point())
    asked += (torch.empty(3, device="cuda").shape, torch.empty_like(x).shape, x.permute(0).stride(), x.T.shape)
    asked += (isinstance(x, torch.Tensor), torch.is_tensor(x), torch.cuda.current_device(), hash(x), x.__dlpack__())
    asked += (x.untyped_storage().nbytes(), x.untyped_storage().data_ptr(), len(x.untyped_storage()))
    assert len(asked) and pending() == 1
    assert x.tolist() == [5] * 32 and pending() == 0


def saved_storage(x):
    with tempfile.TemporaryFile() as file:
        torch.save(x.untyped_storage(), file)
        file.seek(0)
        return torch.load(file).tolist()[::4]


def check_every_use_of_data_runs_what_is_pending():
    uses = {
        "cpu": lambda x: x.cpu().tolist(),
        "tolist": lambda x: x.tolist(),
        "item": lambda x: [x[0].item()] * 32,
        "add": lambda x: (x + 0).tolist(),
        "clone": lambda x: torch.clone(x).tolist(),
        "copy_": lambda x: torch.zeros(32, dtype=torch.int32, device="cuda").copy_(x).tolist(),
        "out": lambda x: torch.add(x, 0, out=torch.empty_like(x)).tolist(),
        "iter": lambda x: [int(v) for v in x],
        "repr": lambda x: [5] * 32 if "5, 5" in repr(x) else None,
        "equal": lambda x: [5] * 32 if torch.equal(x, torch.full_like(x, 5)) else None,
        "storage": lambda x: list(x.untyped_storage())[::4],
        "storage's list": lambda x: x.untyped_storage().tolist()[::4],
        "storage's copy": lambda x: x.untyped_storage().clone().tolist()[::4],
        "storage's file": saved_storage,
        "synchronize": lambda x: torch.cuda.synchronize() or x.tolist(),
    }
    for name, use in uses.items():
        assert use(fresh()) == [5] * 32, name
        assert pending() == 0, name


def check_a_write_comes_behind_what_is_pending():
    x = fresh()
    x.fill_(7)
    assert x.tolist() == [7] * 32
    x = fresh()
    x[:4] = 9
    assert x.tolist() == [9] * 4 + [5] * 28
    x = fresh()
    x.untyped_storage().fill_(1)
    assert x.tolist() == [0x01010101] * 32
    x = fresh()
    x.untyped_storage()[0] = 7
    assert x.tolist() == [7] + [5] * 31
    x = fresh()
    x.untyped_storage().resize_(64)
    assert x[:16].tolist() == [5] * 16


def check_queues_events_and_counters_run_what_is_pending():
    event, other = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    event.record()
    calls = [
        *(torch.cuda.synchronize, event.record, event.query, event.synchronize),
        *(torch.cuda.current_stream().synchronize, torch.cuda.current_stream().query, torch.cuda.memory_allocated),
        *(torch.cuda.mem_get_info, nogpu.counters, nogpu.reset_counters),
    ]
    for call in calls:
        x = fresh()
        call()
        assert pending() == 0, call
        del x
    other.record()
    assert event.elapsed_time(other) >= 0


def check_the_driver_s_calls_run_what_is_pending():
    address = emulated().allocate(128)
    event = 1
    for call in (
        *(lambda: emulated().fill(address, 1, 128, 1), lambda: emulated().copy(address, address, 128, 3)),
        *(lambda: bindings._record(event), bindings._synchronize, lambda: emulated().free(address)),
    ):
        x = fresh()
        call()
        assert pending() == 0
        del x
    x = fresh()
    bindings._nothing()
    assert pending() == 1 and x[0].item() == 5


def check_freed_memory_lasts_until_the_launch_has_run():
    """The program has freed a tensor before the launch on it runs; no new tensor may get its memory until then."""
    copy = "ld.param.b64 %rd9, [a0]; add.s64 %rd9, %rd9, 4096; mul.wide.u32 %rd8, %tid, 4; add.s64 %rd9, %rd9, %rd8;"
    copy += "ld.global.b32 %r1, [%rd9]; add.u32 %r1, %r1, 1; st.global.b32 [%rd9], %r1;"
    for words in (WORDS, 4096):
        x = torch.full((words,), 3, dtype=torch.int32, device="cuda")
        registered = Device.current().memory.allocation(x.data_ptr())
        launch(x, TRIGGER, copy)
        address = x.data_ptr()
        del x
        gc.collect()
        assert pending() == 1 and Device.current().memory.allocation(address) is registered
        others = [torch.empty(words, dtype=torch.int32, device="cuda") for _ in range(4)]
        assert address not in [other.data_ptr() for other in others]
        torch.cuda.synchronize()
        assert Device.current().memory.allocation(address) is None
        del others


def check_memory_of_a_later_launch_lasts_too():
    x = fresh()
    y = torch.empty(WORDS, dtype=torch.int32, device="cuda")
    launch(y, TRIGGER, "griddepcontrol.wait; mov.u32 %r1, 6;", store("%r1"), programmatic=True)
    del y
    gc.collect()
    assert pending() == 2 and x.tolist() == [5] * 32


def check_freed_memory_counts_as_free_once_the_launch_has_run():
    before = torch.cuda.memory_allocated()
    x = fresh()
    del x
    assert torch.cuda.memory_allocated() == before


def check_errors_come_from_the_call_that_needs_the_data():
    x = torch.zeros(32, dtype=torch.int32, device="cuda")
    launch(x, TRIGGER, "st.global.b32 [%a0+4096], %tid;")
    assert x.shape == (32,)
    raises(nogpu.EmulatorError, "outside every live allocation|past the end", x.cpu)
    assert x.cpu().tolist() == [0] * 32
    assert fresh().tolist() == [5] * 32
