"""Launches towards a Hopper GPU, with a replaced driver: its modules, kept kernels and arguments."""

import types

import pytest

from nogpu.errors import EmulatorError
from nogpu.hardware.properties import LaunchConfig
from nogpu.hopper import gpu, launch, library
from nogpu.hopper.maps import mark, patch
from nogpu.ptx.module import parse
from tests.support.encoding import tensor_map

PTX = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u32 n)
.reqntid 64, 1, 1
{
    .reg .b32 %r<2>;
    mov.b32 %r1, NUMBER;
    BODY
    ret;
}
"""
ALLOCATES = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;"
LIMIT = 232448


class Driver:
    """A replacement that records the calls of the driver."""

    def __init__(self):
        self.modules, self.launches, self.attributes = [], [], []

    def module(self, ptx):
        self.modules.append(ptx)
        return types.SimpleNamespace(function=lambda name: (len(self.modules), name), write=lambda *data: None)

    def launch(self, function, config, parameters, queue):
        self.launches.append((function, config, parameters, queue))


@pytest.fixture
def driver(monkeypatch):
    recorder = Driver()
    monkeypatch.setattr(gpu, "Module", recorder.module)
    monkeypatch.setattr(gpu, "launch", recorder.launch)
    monkeypatch.setattr(gpu, "set_attribute", lambda *arguments: recorder.attributes.append(arguments))
    monkeypatch.setattr(gpu, "device_attribute", {gpu.SHARED_PER_BLOCK_OPTIN: LIMIT, gpu.SM_COUNT: 2}.get)
    monkeypatch.setattr(library, "ptx", lambda source="library.cu": ".version 9.0\n.target sm_90a\n.address_size 64\n")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda *device: (9, 0))
    monkeypatch.setattr("torch.cuda.init", lambda: None)
    monkeypatch.setattr(launch.Hopper, "_tensor_memory", lambda self: bytes(24))
    monkeypatch.setattr(launch.Hopper, "_queue", lambda self: 77)
    monkeypatch.delenv("NOGPU_HOPPER_MODE", raising=False)
    return recorder


def run(hopper, ptx, **config):
    config = {"grid": (4, 1, 1), "block": (64, 1, 1), **config}
    hopper.launch(ptx, parse(ptx).entries["k"], LaunchConfig(**config), [b"\1\0\0\0"])


def test_kernels_of_one_name_run_their_own_code(driver):
    """Different compilations give kernels the same entry name; the module is found by its text."""
    hopper = launch.Hopper()
    one, two = (PTX.replace("NUMBER", number).replace("BODY", "") for number in "12")
    for ptx in (one, two, one, two):
        run(hopper, ptx)
    assert [text.count("mov.b32 %r1, 1;") for text in driver.modules] == [1, 0]
    assert [function[0] for function, *_ in driver.launches] == [1, 2, 1, 2]


def test_modes_and_cluster_sizes_have_code_of_their_own(driver, monkeypatch):
    hopper = launch.Hopper()
    ptx = PTX.replace("NUMBER", "1").replace("BODY", ALLOCATES)
    run(hopper, ptx)
    run(hopper, ptx, cluster=(2, 1, 1))
    monkeypatch.setenv("NOGPU_HOPPER_MODE", "timing")
    run(hopper, ptx)
    assert len(driver.modules) == 3
    monkeypatch.setenv("NOGPU_HOPPER_MODE", "fast")
    with pytest.raises(ValueError, match="must be one of exact, timing"):
        run(hopper, ptx)


def test_the_launch_is_passed_on_with_room_for_extra_warps(driver):
    hopper = launch.Hopper()
    plain, allocates = (PTX.replace("NUMBER", "1").replace("BODY", body) for body in ("", ALLOCATES))
    asked = {"dynamic_shared_bytes": 1000, "programmatic": True, "cluster": (2, 1, 1)}
    run(hopper, plain, **asked)
    (_, config, parameters, queue) = driver.launches[0]
    assert config == LaunchConfig(grid=(4, 1, 1), block=(64, 1, 1), **asked)
    assert (parameters, queue) == ([b"\1\0\0\0"], 77)
    run(hopper, allocates, **asked)
    config = driver.launches[1][1]
    assert config.block == (64 + 128, 1, 1) and config.programmatic and config.cluster == (2, 1, 1)
    assert config.dynamic_shared_bytes % 16 == 0 and config.dynamic_shared_bytes > 1000
    assert driver.attributes[-1][1:] == (gpu.MAX_DYNAMIC_SHARED_BYTES, config.dynamic_shared_bytes)


def test_maps_inside_a_structure_are_patched(driver):
    """A structure of more than 128 bytes, aligned as a map, is a parameter of CUDA C++ programs."""
    ptx = PTX.replace("NUMBER", "1").replace("BODY", "")
    map_ = tensor_map(4096, (256, 40), (128,), (256, 128), "b4x16", swizzle=128).tobytes()
    for align, patched in ((64, mark(patch(map_)[0])[:64]), (8, map_[:64])):
        text = ptx.replace(".param .u32 n", f".param .align {align} .b8 n[192]")
        launch.Hopper().launch(text, parse(text).entries["k"], LaunchConfig((1, 1, 1), (64, 1, 1)), [map_ + bytes(64)])
        assert driver.launches[-1][2][0][:64] == patched


def test_a_kernel_says_its_cluster_and_the_launch_its_threads(driver):
    """The kernel is a CUDA C++ program's, with __cluster_dims__ and without .reqntid."""
    ptx = (
        PTX.replace("NUMBER", "1").replace("BODY", ALLOCATES).replace(".reqntid 64, 1, 1", ".reqnctapercluster 2, 1, 1")
    )
    run(launch.Hopper(), ptx)
    config = driver.launches[0][1]
    assert (config.cluster, config.block) == ((2, 1, 1), (64 + 128, 1, 1))
    assert ".reqntid" not in driver.modules[0]


def test_no_room_is_said(driver):
    ptx = PTX.replace("NUMBER", "1").replace("BODY", ALLOCATES)
    with pytest.raises(EmulatorError, match=f"{LIMIT} bytes of dynamic shared memory leave no room"):
        run(launch.Hopper(), ptx, dynamic_shared_bytes=LIMIT)


def test_another_gpu_is_refused(driver, monkeypatch):
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda *device: (8, 0))
    with pytest.raises(EmulatorError, match=r"capability 9\.0"):
        launch.Hopper()
