"""Counts the kernel's clusters that run at once: the driver's answer beside the schedule's assumption."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cuda.bindings import driver

import harness.dsl  # noqa: F401
import submission
from harness.plan_report import configuration_name, current_sms
from nogpu import LaunchConfig
from nogpu.hopper import gpu, library, lower
from tools.report import compile_plan

# A configuration for each number of CTAs in a cluster and on an SM.
CONFIGURATIONS = tuple(
    submission.Configuration(64, *rest) for rest in ((1, 1, 1), (2, 1, 1), (1, 1, 2), (2, 1, 2), (1, 2, 1), (2, 2, 1))
)


def kernel(plan: submission.Plan, hopper: bool) -> driver.CUfunction:
    """The plan's compiled kernel on the current device."""
    compiled = compile_plan(plan)
    name = compiled.entry.name
    if hopper:
        text = lower.lower(compiled.ptx, name, "timing", {}, plan.cluster_ctas, library.ptx).ptx
        return gpu.Module(text).function(name)
    return gpu.call(driver.cuModuleGetFunction, gpu.call(driver.cuModuleLoadData, compiled.cubin), name.encode())


def active(function: driver.CUfunction, plan: submission.Plan) -> int:
    """The driver's cuOccupancyMaxActiveClusters for launches of the kernel."""
    gpu.set_attribute(function, gpu.MAX_DYNAMIC_SHARED_BYTES, plan.at.end)
    grid, block, cluster = ((count, 1, 1) for count in (plan.cluster_ctas, plan.threads, plan.cluster_ctas))
    config = gpu.launch_config(LaunchConfig(grid, block, cluster, plan.at.end), 0)
    if plan.cluster_ctas == 1:  # a launch without the attribute is no launch of clusters
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        size = attribute.value.clusterDim
        size.x = size.y = size.z = 1
        config.attrs, config.numAttrs = [attribute], 1
    return int(gpu.call(driver.cuOccupancyMaxActiveClusters, function, config))


def figures(hopper: bool) -> Iterator[dict[str, Any]]:
    """The figures of each configuration: CTAs of a cluster, SMEM bytes of a CTA, clusters by driver and by schedule."""
    for configuration in CONFIGURATIONS:
        plan = submission.Plan(1, *configuration)
        slots = submission.Schedule(plan, ((64, 128, 256),), current_sms()).slots
        facts = {"cluster": plan.cluster_ctas, "name": configuration_name(configuration), "smem": plan.at.end}
        yield {**facts, "active": active(kernel(plan, hopper), plan), "slots": slots}
