"""Tables for `profile`: constants of a chip profile, and the measured constants that they come from.

Names are those of workshop.calibration; "sms" is the number of SMs of the chip.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

RATES = {"dram_rate": "tma.read.dram.map.box_16K.64K_in_flight", "l2_rate": "tma.read.l2.map.box_16K.64K_in_flight"}
PAUSE = 2000  # cycles before each burst
PERIOD = "launch.period.{}.grid_{}.block_256.cluster_{}.shared_{}K"
BURSTS = [f"rate.bursts_after_{kind}.pause_{pause}" for kind in ("writes", "reads") for pause in (0, PAUSE)]
READ, COPY = "rate.plain_read.dram.1_ctas", "rate.plain_copy.dram.1_ctas"
PHASE, ARRIVE = "barrier.mbarrier_phase.1_warps", "barrier.mbarrier_arrive.1_warps"
MANY, ONE = "barrier.barrier_cta.32_warps", "barrier.barrier_cta.1_warps"


def less(value: float, *others: float) -> float:
    return functools.reduce(operator.sub, others, value)


def dirty(dirty: float, clean: float, read: float, copy: float) -> float:
    return (dirty - clean) * read / write_cost(read, copy)


def write_cost(read: float, copy: float) -> float:
    return 2 * read / copy - 1


def saved(dirty: float, dirty_late: float, clean: float, clean_late: float, read: float, copy: float) -> float:
    """Cycles of a burst that a pause ahead saves, divided by those of writing the lines that L2 can clean in it."""
    return (dirty - clean - dirty_late + clean_late) / PAUSE / write_cost(read, copy)


# (constant, unit, function of measured constants, their names); `less` gives the first constant less the others.
RULES: tuple[tuple[Any, ...], ...] = (
    ("l2_latency", "cycles", less, "latency.load.l2"),
    ("l2_dirty", "bytes", dirty, "rate.after_writes.256_MiB", "rate.after_reads.256_MiB", READ, COPY),
    ("dram_write_cost", "count", write_cost, READ, COPY),
    ("l1_latency", "cycles", less, "latency.load.l1"),
    ("sm_in_rate", "bytes/cycle", less, "rate.plain_read.l2.one_sm.1024_threads"),
    ("sm_out_rate", "bytes/cycle", less, "rate.plain_write.l2.one_sm.128_threads"),
    ("l2_write_cost", "count", operator.truediv, RATES["l2_rate"], "tma.write.map.l2.box_16K"),
    (
        *("lsu_in_flight", "count", lambda rate, latency: rate * latency / 128),
        *("rate.plain_read.l2.one_sm.1024_threads", "latency.load.l2"),
    ),
    ("tma_issue", "cycles", less, "tma.load.map.l2.one_sm.box_128.burst_12.between"),
    ("tma_box", "cycles", less, "tma.load.map.l2.one_sm.box_128.burst_12.4_warps.between"),
    ("tma_line", "cycles", lambda rate: 128 / rate, "tma.read.l2.one_sm.map.box_16K.96K_in_flight.4_warps"),
    (
        *("tma_latency", "cycles", less),
        *("tma.load.map.dram.all_sms.box_128.burst_1.first_arrival", "latency.load.dram", "mbarrier.turn"),
    ),
    ("tma_store_latency", "cycles", less, "tma.store.map.one_sm.box_128.burst_1.complete"),
    (
        *("tma_store_line", "cycles", lambda four, one: (four - one) / 3 / 128),
        *(f"tma.store.map.one_sm.box_16384.burst_{count}.read" for count in (4, 1)),
    ),
    ("tma_map_miss", "cycles", less, "latency.load.dram"),
    ("parameter_miss", "cycles", less, "latency.load.l2"),
    ("shared_latency", "cycles", less, "shared.latency.load_4"),
    ("shared_wavefront", "cycles", less, "shared.load_4.stride_4.16_warps"),
    ("remote_latency", "cycles", lambda load: load / 2, "remote.latency.load"),
    ("remote_rate", "bytes/cycle", less, "remote.rate.store.256_threads.both"),
    ("atomic_latency", "cycles", less, "atomic.latency.stride_4", "latency.load.l2"),
    ("mbarrier_arrive", "cycles", less, ARRIVE),
    ("mbarrier_test", "cycles", less, "barrier.mbarrier_try_wait.1_warps"),
    ("mbarrier_wait", "cycles", less, PHASE),
    ("mbarrier_visible", "cycles", less, "mbarrier.turn", PHASE, ARRIVE),
    ("mbarrier_remote", "cycles", less, "mbarrier.turn.remote", PHASE, ARRIVE),
    ("bar_warp", "cycles", lambda many, one: (many - one) / 31, MANY, ONE),
    ("bar_latency", "cycles", lambda many, one: one - (many - one) / 31, MANY, ONE),
    ("cluster_latency", "cycles", less, "barrier.barrier_cluster_relaxed.2_ctas.1_warps"),
    (
        *("cluster_release", "cycles", less),
        *(f"barrier.barrier_cluster{kind}.2_ctas.1_warps" for kind in ("", "_relaxed")),
    ),
    ("warp_sync", "cycles", less, "latency.syncwarp"),
    ("fence", "cycles", less, "barrier.fence_async.1_warps"),
    ("fence_wide", "cycles", less, "barrier.fence_gpu.1_warps"),
    ("launch_period", "us", less, PERIOD.format("early", "1", 1, 0)),
    (
        *("launch_cta", "us", lambda all_sms, one, sms: (all_sms - one) / (sms - 1)),
        *(PERIOD.format("early", "sms", 2, 200), PERIOD.format("early", "1", 2, 200), "sms"),
    ),
    (
        *("cta_interval", "us", lambda eight, one, sms: (eight - one) / (7 * sms)),
        *(PERIOD.format("in_turn", "8_sms", 1, 0), PERIOD.format("in_turn", "sms", 1, 0), "sms"),
    ),
    (
        *(
            "cluster_start",
            "us",
            lambda eight, one, eight_alone, one_alone: (eight - one - eight_alone + one_alone) / 7,
        ),
        *(PERIOD.format("in_turn", grid, cluster, 200) for cluster in (2, 1) for grid in ("8_sms", "sms")),
    ),
    ("launch_fetch", "ns", less, "launch.reads_in_turn.late_gap", "launch.reads_in_turn.early_gap"),
    ("launch_cold", "ns", less, "launch.reads_in_turn.early_gap", "starts.in_turn.after_last_ns"),
    ("tma_map_edited", "cycles", less, "tensormap.edit_load", "tensormap.edit", "tensormap.load"),
    ("dram_idle_clean_share", "count", saved, *BURSTS, READ, COPY),
)
SOURCES = {
    "tma_map_miss": "assumed: a tensor map comes from DRAM in each launch",
    "parameter_miss": "assumed: parameters come from L2 in each launch",
    "l2_bytes": "l2.capacity.32_MiB, l2.capacity.40_MiB: the rate falls between them",
    "l2_coalesces": "tma.fill.pairs_share.l2.box_16K.128K_in_flight, against each_its_own: two neighbours' reads of a "
    "box are one",
}
# Family -> instruction whose latency and rate it has; the rate is that of 16 warps on the four partitions.
INSTRUCTIONS = {
    **{"alu": "add_xor", "logic": "prmt", "float": "fma_f32", "multiply": "mad", "special": "ex2", "double": "fma_f64"},
    **{"convert": "cvt_f32_f16", "convert_pair": "cvt_f16x2_f32", "convert_narrow": "cvt_e4m3x2_f32_and_back"},
    **{"shuffle": "shfl", "redux": "redux", "vote": "ballot"},
}
CONVERSION = {"convert_e2m1": "cvt_f16x2_e2m1x2"}  # for a chip that has the instruction
# (family, operation with its latency and rate, pipe, issue): operations of several machine instructions. An issue of
# None is the interval: they branch or wait for each other, so that others do not issue beside them.
SUBROUTINES = (
    ("special_scaled", "ex2_scaled", "special", 4),
    ("reciprocal", "rcp_rn", "alu", None),
    ("division", "div_rn", "alu", None),
    ("division_full", "div_full", "special", 5),
    ("division_int", "div_u32", "alu", None),
    ("division_long", "div_u64", "alu", None),
    ("multiply_long", "mul_u64", "multiply", 4),
)
EDITS = ("replace", "publish", "acquire")  # steps of an edit of a tensor map
