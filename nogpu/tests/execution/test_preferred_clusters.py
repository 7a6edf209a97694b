"""Launches with a preferred cluster shape: each schedule runs them in clusters of one shape, some in the larger."""

from dataclasses import replace

import numpy as np
import pytest

from nogpu import EmulatorError
from nogpu.execution.device import Device
from nogpu.hardware.properties import LaunchConfig
from tests.support.small_kernels import aligned, entry

# CTA i stores the size of its cluster at word i.
BODY = """mov.u32 %r1, %cluster_nctarank; mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd1, %r2, 4; add.s64 %rd1, %a0, %rd1;
    setp.eq.u32 %p1, %tid, 0; @%p1 st.global.b32 [%rd1], %r1;"""
CONFIG = LaunchConfig((16, 1, 1), (32, 1, 1), (2, 1, 1), preferred_cluster=(8, 1, 1))


def sizes(config, schedule, workers=1):
    device, out = Device((schedule,), workers), aligned(16).view(np.uint32)
    device.memory.register(out.ctypes.data, out.nbytes, "out")
    device.launch(entry(BODY, 1), config, [out.ctypes.data.to_bytes(8, "little")])
    device.synchronize()
    assert device.counters()[0].cluster == (out[0], 1, 1)
    return set(out.tolist())


@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize("schedule", ["late", "random:2", "eager", "random:1"])
def test_the_schedule_chooses_the_clusters(schedule, workers):
    preferred = schedule in ("eager", "random:1")
    assert sizes(CONFIG, schedule, workers) == {8 if preferred else 2}
    assert sizes(replace(CONFIG, preferred_cluster=None), schedule, workers) == {2}


def test_clusters_that_are_too_large_are_not_formed():
    """CUDA permits a preferred shape that no device can have."""
    wide = replace(CONFIG, preferred_cluster=(16, 1, 1))
    assert sizes(wide, "eager") == {2}
    assert sizes(replace(wide, nonportable_cluster=True), "eager") == {16}


@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_shapes_that_are_refused(schedule):
    for shape, reason in (
        ((3, 1, 1), r"preferred cluster \(3, 1, 1\) is not a multiple of cluster \(2, 1, 1\) in x"),
        ((2, 0, 1), "is not a multiple of cluster .* in y"),
        ((6, 1, 1), r"grid \(16, 1, 1\) is not a multiple of preferred cluster \(6, 1, 1\) in x"),
    ):
        with pytest.raises(EmulatorError, match=reason):
            sizes(replace(CONFIG, preferred_cluster=shape), schedule)
