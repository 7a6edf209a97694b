"""The rows of tools.compare beside the kernel: a ring of copies with the schedule's own traffic, and other kernels.

NVIDIA_GROUPED_EXAMPLE names grouped_blockscaled_gemm.py from NVIDIA/cutlass for the tests that need it.
"""

import contextlib
import dataclasses
import os
import re
from pathlib import Path

import pytest
import torch

import nogpu
import reference
import submission
from harness import devices
from harness.launch_modes import LaunchMode
from harness.plan_report import requested
from nogpu.commands import parse
from nogpu.execution.device import Device
from nogpu.hopper import gpu, library
from submission import SMEM_RESERVED, Plan, Schedule
from tests.support.configurations import EVERY
from tests.support.slow import sampled
from tools import compare, peers, rings
from tools.clock import recorder
from tools.variants import ORDINARY_EDIT

EXAMPLE = os.environ.get("NVIDIA_GROUPED_EXAMPLE")
SIZES = ((300, 384, 1024), (130, 256, 512), (64, 256, 256))


def schedule_of(shape, products):
    sizes = ((16, 384, 1024), (9, 256, 512)) if shape.token_tile == submission.FEW_TOKENS else SIZES
    sizes = sizes if products == 1 else sizes[:1]
    return Schedule(Plan(len(sizes), *shape, products), sizes, 8)


@pytest.fixture
def emulated_driver(monkeypatch):
    """Let rings.run_ring launch on the emulated device."""
    for name in ("Module", "launch", "set_attribute", "device_attribute"):
        monkeypatch.setattr(gpu, name, getattr(gpu, name))  # lets monkeypatch restore them
    rings.ring_kernel.cache_clear()
    recorder._take_driver()
    yield
    rings.ring_kernel.cache_clear()


@pytest.mark.parametrize(("shape", "products"), sampled(EVERY, 7, names=2))
def test_ring_moves_what_the_schedule_moves(shape, products, emulated_driver):
    """Bytes that ring.cu loads, counted launch by launch, against the kernel's; no byte of its memory is left out."""
    schedule = schedule_of(shape, products)
    buffer = torch.full((rings.schedule_ring(schedule, None)[1],), 0x7F, dtype=torch.uint8, device="cuda")
    work, nbytes = rings.schedule_ring(schedule, buffer)
    nogpu.reset_counters()
    rings.run_ring(schedule.ctas, True, work)
    torch.cuda.synchronize()
    (counters,) = nogpu.counters()
    sizes = [2 * m * n for m, n, _ in schedule.sizes]
    places = [group.output - buffer.data_ptr() for group in work.groups[: len(sizes)]]
    assert counters.tma_load_requested_bytes == sum(requested(schedule).values())
    # The half past N of a pair's last tile is not there.
    past = sum(-(-n // 128) % shape.cta_group * products * k * 64 for _, n, k in schedule.sizes)
    assert counters.tma_load_unique_bytes == nbytes - sum(sizes) - past
    assert not any((buffer[place : place + size] == 0x7F).any() for place, size in zip(places, sizes))


@pytest.mark.parametrize("nbytes", [144_600_000, 81_900_000, 18_500_000, 11_700_000])
def test_plain_ring_moves_its_bytes(nbytes):
    work = rings.plain_ring(1 << 20, nbytes, 132, True)
    loaded = work.tiles * work.groups[0].k_tiles * work.weight_bytes
    assert 0.98 * nbytes <= loaded <= nbytes
    assert work.weight_bytes % 128 == 0 and work.weight_bytes <= rings.RING_STAGE
    assert rings.ring_shared_bytes(work) <= rings.SMEM_BYTES


@pytest.mark.parametrize(("shape", "products"), EVERY)
def test_ring_fits_shared_memory(shape, products):
    work, _ = rings.schedule_ring(schedule_of(shape, products), None)
    assert rings.ring_shared_bytes(work) + SMEM_RESERVED <= 228 * 1024 // shape.ctas_per_sm


def test_structures_are_those_of_the_kernel():
    """Fields of ring.cu's structs, in order; all are int64 first, then int32, so there is no padding between them."""
    text = rings.SOURCE.read_text()
    for kind, skip in ((rings.Group, 0), (rings.Work, 1)):
        body = re.sub(r"//.*", "", re.search(rf"struct {kind.__name__} {{(.*?)}};", text, re.S)[1])
        names = [name for line in re.findall(r"int(?:64|32)_t ([^;]+);", body) for name in line.split(", ")]
        assert names == [name for name, _ in kind._fields_[skip:]]


def test_ring_compiles():
    assert ".visible .entry ring(" in library.ptx(rings.SOURCE, "sm_90")


def test_submissions_are_loaded_from_their_paths(tmp_path):
    """Files of one name stay apart, and find their own module where dataclasses look for it."""
    text = """
from __future__ import annotations
import dataclasses

@dataclasses.dataclass
class Answer:
    value: int

def custom_kernel(data):
    return Answer(FACTOR * data).value
"""
    calls = []
    for factor in (2, 3):
        folder = tmp_path / str(factor)
        folder.mkdir()
        (folder / "kernel.py").write_text(f"{text}\nFACTOR = {factor}\n")
        calls.append(peers.load_submission(folder / "kernel.py"))
    assert [call(7) for call in calls] == [14, 21]


@pytest.mark.parametrize("hopper", [False, True])
def test_rows_of_ours_are_named_after_their_launch_modes(hopper):
    names = [row.name for row in compare.kernel_rows(submission, [], [], 1, hopper)]
    assert names[:3] == [f"ours, {mode}" for mode in LaunchMode]
    assert names[3:] == (["ours, plans for overlapping calls, ordinary launches"] if hopper else [])


@pytest.mark.slow
def test_without_a_hopper_ordinary_launches_are_of_an_edited_file():
    data = reference.generate_input(m=(65, 7), n=(264, 128), k=(512, 576), g=2, seed=1)
    launched = []
    for module in (submission, compare.edited_module(ORDINARY_EDIT)):
        with recording_configs() as configs:
            outputs = module.solve(data)
        assert reference.check_implementation(data, outputs) == (True, "bit-exact")
        launched += configs
    assert [config.programmatic for config in launched] == [True, False]
    assert dataclasses.replace(launched[0], programmatic=False) == launched[1], "the plan stays"


@contextlib.contextmanager
def recording_configs():
    """A list that collects the configurations of launches in the block."""
    device, configs = Device.current(), []
    launch = device.launch
    device.launch = lambda entry, config, *rest, **more: configs.append(config) or launch(entry, config, *rest, **more)
    try:
        yield configs
        torch.cuda.synchronize()
    finally:
        del device.launch


def test_rows_of_the_example(monkeypatch):
    """B200s alone time loads that two SMs share."""
    monkeypatch.setattr(compare, "load_grouped_example", lambda *arguments: arguments)
    path = Path("example.py")
    one, two = compare.EXAMPLES
    assert compare.example_calls(None, False) == {}
    assert compare.example_calls(path, True) == {one: (path, (128, 128), (1, 1))}
    assert compare.example_calls(path, False)[two] == (path, (256, 128), (2, 1))


@pytest.mark.examples
@pytest.mark.skipif(EXAMPLE is None, reason="NVIDIA_GROUPED_EXAMPLE names no file")
@pytest.mark.parametrize("name", compare.EXAMPLES)
def test_example_computes_every_input(name, monkeypatch):
    """Inputs of equally many groups share a compiled kernel; an input that was seen before makes no new arrays."""
    call = compare.example_calls(Path(EXAMPLE), False)[name]
    inputs = [
        reference.generate_input(m=(96, 130), n=(128, 256), k=(256, 512), g=2, seed=1),
        reference.generate_input(m=(300, 40), n=(256, 136), k=(320, 256), g=2, seed=2),
    ]
    expected = list(map(reference.ref_kernel, inputs))

    def check():
        for data, want in zip(inputs, expected):
            for _, _, c in data[0]:
                c.fill_(float("nan"))
            assert reference.compare(want, call(data), 0, 0) == (True, "bit-exact")

    check()
    assert call.compiled.cache_info().misses == 1
    with monkeypatch.context() as patch:
        patch.setattr(torch, "tensor", None)
        patch.setattr(torch, "empty", None)
        check()


def test_cases_are_numbered_from_0(capsys):
    """The numbers are those of eval.py."""
    assert compare.parse_arguments(["--case", "0", "--case", "3"])[1] == [0, 3]
    assert compare.parse_arguments([])[1] == [0, 1, 2, 3]
    for outside in ("4", "-1"):
        with pytest.raises(SystemExit):
            compare.parse_arguments(["--case", outside])
        assert f"--case {outside}: the cases are numbered 0 to 3" in capsys.readouterr().err
    compare.show({"ours": {0: [1.0, 3.0, 2.0]}}, [0, 3], "title")
    text = capsys.readouterr().out
    assert "case 0" in text and "case 3" in text and "2.00 (1.00-3.00)" in text


def test_on_a_hopper_it_restarts_without_tensor_core_work(monkeypatch):
    """The command must be one that `python -m nogpu` takes."""
    monkeypatch.setattr(devices, "has_hopper", lambda: True)
    monkeypatch.setattr(devices, "emulator_device", lambda: None)

    def execv(path, command):
        raise SystemExit(command[command.index("nogpu") + 1 :])

    monkeypatch.setattr(os, "execv", execv)
    with pytest.raises(SystemExit) as stopped:
        compare.main(["--case", "0", "--shapes"])
    options = parse(stopped.value.code)
    assert (options.device, options.hopper_mode) == ("hopper", "timing")
    assert options.program == ["-m", "tools.compare", "--case", "0", "--shapes"]
