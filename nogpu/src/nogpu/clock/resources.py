"""Parts of a chip that can cost nothing in a replay: each with a name and the constants of a profile that it frees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from nogpu.clock.chip import Chip, Cost

ENDLESS = 1e9  # a rate in bytes a cycle, or a size, without limit
MAPS = "map_"  # prefix of the families that edit tensor maps


@dataclass(frozen=True)
class Resource:
    """A part of a chip, and the values of its constants when it costs nothing."""

    name: str
    constants: Mapping[str, float | str] = field(default_factory=dict)
    """Name of a constant -> its value at no cost, or the constant whose value it then has."""
    instructions: Literal["", "issue", "latency", "maps"] = ""
    """Cost of instructions that vanishes: issue slots and pipes, latency of results, or latency of edits of maps."""
    classes: tuple[str, ...] = ()
    """Classes of instructions (costs.CLASSES): only kernels with some of these use this part. Empty: all kernels do."""

    def freed(self, chip: Chip) -> Chip:
        """The chip with this part at no cost."""
        for name, value in self.constants.items():
            chip = chip.with_constant(name, chip.constants[value] if isinstance(value, str) else value)
        if not self.instructions:
            return chip
        return replace(chip, instructions={name: self._free(name, cost) for name, cost in chip.instructions.items()})

    def _free(self, family: str, cost: Cost) -> Cost:
        if family.startswith(MAPS) != (self.instructions == "maps"):
            return cost
        if self.instructions == "issue":
            return replace(cost, issue=0, interval=0)
        return replace(cost, latency=0)


RESOURCES = (
    Resource(
        "tensor core: products",
        {"mma_columns_rate": ENDLESS, "mma_operand_rate": ENDLESS, "mma_scaled": 0},
        classes=("mma",),
    ),
    Resource(
        "tensor core: latency",
        dict.fromkeys(("mma_issue", "mma_latency", "mma_pair", "commit_latency"), 0),
        classes=("mma",),
    ),
    Resource("copies of scale factors to tensor memory", {"cp_rate": ENDLESS}, classes=("tmem_copy",)),
    Resource(
        "tensor memory: loads and stores",
        {"tmem_load_latency": 0, "tmem_load_rate": ENDLESS, "tmem_store_rate": ENDLESS},
        classes=("tmem_load",),
    ),
    Resource("tensor memory: allocation", {"tmem_alloc": 0}, classes=("alloc",)),
    Resource("TMA: issue", {"tma_issue": 1, "tma_box": 0, "tma_line": 0, "tma_store_line": 0}, classes=("copy",)),
    Resource("TMA: latency", {"tma_latency": 0, "tma_store_latency": 0}, classes=("copy",)),
    Resource("tensor maps: misses and edits", {"tma_map_miss": 0, "tma_map_edited": 0}, "maps", ("copy", "edit")),
    Resource("L2: rate", {"l2_rate": ENDLESS, "l2_link_rate": ENDLESS}),
    Resource("L2: latency of hits", {"l2_latency": 0, "l2_far": 0}),
    Resource("DRAM: rate", {"dram_rate": ENDLESS}),
    Resource("DRAM: latency beside L2's", {"dram_latency": "l2_latency", "dram_spread": 0}),
    Resource("DRAM: writes of what L2 evicts", {"dram_write_cost": 0}),
    Resource("SM: port for what comes in", {"sm_in_rate": ENDLESS}),
    Resource("global loads: L1 and lines in flight", {"lsu_in_flight": ENDLESS, "lsu_line": 0, "l1_latency": 0}),
    Resource("global stores: issue and port", {"sm_out_rate": ENDLESS, "store_issue": 0}),
    Resource("atomics", {"atomic_latency": 0, "atomic_line": 0}, classes=("atomic",)),
    Resource("shared memory", {"shared_latency": 0, "shared_wavefront": 0}),
    Resource("shared memory of other SMs", {"remote_latency": 0, "remote_rate": ENDLESS}),
    Resource(
        "mbarriers: arrivals, signals, waking",
        {"mbarrier_arrive": 1, **dict.fromkeys(("mbarrier_visible", "mbarrier_remote", "mbarrier_wait"), 0)}
        | {"mbarrier_test": 0},
    ),
    Resource("named and cluster barriers: latency", dict.fromkeys(("bar_latency", "bar_warp", "cluster_latency"), 0)),
    Resource("fences and releases", {"fence": 0, "fence_wide": 0, "cluster_release": 0}),
    Resource("instructions: issue and pipes", instructions="issue"),
    Resource("instructions: latency of results", {"warp_sync": 0}, instructions="latency"),
    Resource(
        "launches: start of the first, gaps",
        dict.fromkeys(
            (
                "launch_first",
                "launch_gap",
                "launch_cold",
                "launch_fetch",
                "launch_overlap",
                "launch_period",
                "launch_cta",
            ),
            0,
        ),
    ),
    Resource("launches: parameters", {"parameter_miss": 0}),
    Resource("CTAs: start and end", dict.fromkeys(("cta_interval", "cta_start", "cta_exit", "cluster_start"), 0)),
    Resource("launches: ends", {"grid_end": 0, "grid_wait": 0}),
    Resource("cluster launch control", {"cancel_latency": 0}, classes=("cancel",)),
    Resource(
        "room for more CTAs on an SM",
        dict.fromkeys(("sm_ctas", "sm_threads", "sm_registers", "sm_shared_bytes"), ENDLESS),
    ),
)

KEPT = (
    *("sms", "tensor_core", "l1_lines", "dram_channels", "launch_ahead"),
    *("l2_bytes", "l2_storage", "l2_dirty", "l2_ways", "l2_slices", "l2_halves", "l2_coalesces"),
    *("l2_write_cost", "l2_outside_cost", "dram_idle_clean_share"),
)
"""Constants that no resource frees: sizes, counts, and costs relative to a rate that a resource frees."""
