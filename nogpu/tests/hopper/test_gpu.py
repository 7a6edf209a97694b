"""The driver's interface without a GPU: the launch configuration, and errors by name."""

import ctypes
import struct

import pytest
from cuda.bindings import driver

from nogpu.errors import EmulatorError
from nogpu.hardware.properties import LaunchConfig
from nogpu.hopper import gpu

# CUlaunchConfig: grid, block, bytes of shared memory, queue, attributes, their count.
CONFIG = struct.Struct("<3I3IIxxxxQQI")
# CUlaunchAttribute: CUlaunchAttributeID, padding, the first words of the value.
ATTRIBUTE = struct.Struct("<Ixxxx3I52x")


def unpacked(config):
    """The (grid and block, shared bytes, queue, [(attribute, words)]) that the driver reads."""
    made = gpu.launch_config(config, 77)
    *dims, shared, queue, attributes, count = CONFIG.unpack(ctypes.string_at(made.getPtr(), CONFIG.size))
    raw = ctypes.string_at(attributes, count * ATTRIBUTE.size) if count else b""
    return dims, shared, queue, [(kind, words) for kind, *words in ATTRIBUTE.iter_unpack(raw)]


def test_a_plain_launch_has_no_attributes():
    config = LaunchConfig(grid=(1, 2, 3), block=(4, 5, 6), dynamic_shared_bytes=7)
    assert unpacked(config) == ([1, 2, 3, 4, 5, 6], 7, 77, [])


def test_attributes_of_a_launch():
    config = LaunchConfig(grid=(4, 1, 1), block=(64, 1, 1), cluster=(2, 1, 1), programmatic=True, cooperative=True)
    kinds = driver.CUlaunchAttributeID
    assert unpacked(config)[-1] == [
        (kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, [2, 1, 1]),
        (kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, [1, 0, 0]),
        (kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, [1, 0, 0]),
    ]


def test_failures_have_the_drivers_name(monkeypatch):
    monkeypatch.setattr(gpu, "_initialize", lambda: None)
    monkeypatch.setattr(gpu._thread, "ready", True, raising=False)
    monkeypatch.setattr(driver, "cuGetErrorName", lambda status: (0, status.name.encode()))
    monkeypatch.setattr(driver, "cuGetErrorString", lambda status: (0, b"invalid argument"))

    def cuFuncSetAttribute(*arguments):
        return (driver.CUresult.CUDA_ERROR_INVALID_VALUE,)

    monkeypatch.setattr(driver, "cuFuncSetAttribute", cuFuncSetAttribute)
    message = r"cuFuncSetAttribute failed: 1 \(CUDA_ERROR_INVALID_VALUE: invalid argument\)"
    with pytest.raises(EmulatorError, match=message):
        gpu.set_attribute(None, gpu.NONPORTABLE_CLUSTER, 1)


def test_without_a_driver_it_says_so(monkeypatch):
    def absent(flags):
        raise RuntimeError("no libcuda")

    monkeypatch.setattr(driver, "cuInit", absent)
    with pytest.raises(EmulatorError, match="the Hopper device needs NVIDIA's driver: no libcuda"):
        gpu._initialize.__wrapped__()


def test_unknown_device_attributes_are_refused():
    with pytest.raises(EmulatorError, match="device attribute 99999 is unknown"):
        gpu.device_attribute(99999)
