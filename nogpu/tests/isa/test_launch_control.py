"""Clusters that take over the work of others (PTX ISA, "clusterlaunchcontrol.try_cancel")."""

import numpy as np
import pytest

from nogpu.execution.device import Device, LaunchConfig
from nogpu.hardware.properties import DeviceProperties
from tests.support.small_kernels import entry, launch
from tests.support.tensor_kernels import TAKE_OVER

SCHEDULES = ["late", "eager", "random:3"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("cluster", [1, 2])
def test_every_cta_runs_or_is_taken_over(cluster, schedule):
    """CTA 0 asks for both CTAs of a cluster of two."""
    started, taken = np.zeros(12, np.uint32), np.zeros(12, np.uint32)
    if cluster == 1:
        body = TAKE_OVER.format(condition="", multicast="")
    else:
        body = TAKE_OVER.format(condition="setp.eq.u32 %p5, %rank, 0; @%p5", multicast=".multicast::cluster::all")
    counters = launch(body, started, taken, grid=12, cluster=cluster, shared=1024, schedule=schedule)
    assert (started + taken).tolist() == [1] * 12
    # One cluster is resident at a time, and the first takes all of the others over.
    assert started.sum() == counters.ctas == cluster


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_clusters_that_share_the_chip_with_another_launch(schedule):
    """Two SMs hold four CTAs of this size; they and the next launch's take over the clusters that have not started."""
    properties = DeviceProperties(sm_count=2)
    body = "griddepcontrol.launch_dependents;" + TAKE_OVER.format(condition="", multicast="")
    kernel, counts = entry(body, 2), np.zeros((2, 2, 40), np.uint32)
    device = Device((schedule,), 1, properties)
    device.memory.register(counts.ctypes.data, counts.nbytes, "counts")
    config = LaunchConfig((40, 1, 1), (32, 1, 1), (1, 1, 1), 100 * 1024, programmatic=True)
    for number in range(2):
        device.launch(kernel, config, [int(part.ctypes.data).to_bytes(8, "little") for part in counts[number]])
    device.synchronize()
    assert (counts.sum(axis=1) == 1).all()
    assert all(counts[number, 0].sum() < 40 for number in range(2))
    assert [c.ctas for c in device.counters()] == counts[:, 0].sum(axis=1).tolist()
