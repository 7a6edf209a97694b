"""Constants of a chip profile, and the measured ones that they come from: the tables of `profile`.

Names are those of workshop.calibration; "sms" is the number of SMs of the chip.
"""

from __future__ import annotations

from collections.abc import Callable

RATES = {
    "dram_rate": "tma.read.dram.map.box_16K.64K_in_flight",
    "l2_rate": "tma.read.l2.map.box_16K.64K_in_flight",
}
SHARED_READS = (
    "tma.fill.pairs_share.l2.box_16K.128K_in_flight, against each_its_own: two neighbours' reads of a box are one"
)
PAUSE = 2000  # cycles before each burst

# (constant, unit, measured constants, value from theirs)
Rule = tuple[str, str, tuple[str, ...], Callable[..., float]]
PERIOD = "launch.period.{}.grid_{}.block_256.cluster_{}.shared_{}K"
RULES: tuple[Rule, ...] = (
    ("l2_latency", "cycles", ("latency.load.l2",), lambda load: load),
    (
        "l2_dirty",
        "bytes",
        (
            *("rate.after_writes.256_MiB", "rate.after_reads.256_MiB"),
            *("rate.plain_read.dram.1_ctas", "rate.plain_copy.dram.1_ctas"),
        ),
        lambda dirty, clean, read, copy: (dirty - clean) * read / (2 * read / copy - 1),
    ),
    (
        *("dram_write_cost", "count", ("rate.plain_read.dram.1_ctas", "rate.plain_copy.dram.1_ctas")),
        lambda read, copy: 2 * read / copy - 1,
    ),
    ("l1_latency", "cycles", ("latency.load.l1",), lambda load: load),
    ("sm_in_rate", "bytes/cycle", ("rate.plain_read.l2.one_sm.1024_threads",), lambda rate: rate),
    ("sm_out_rate", "bytes/cycle", ("rate.plain_write.l2.one_sm.128_threads",), lambda rate: rate),
    (
        *("l2_write_cost", "count", ("tma.read.l2.map.box_16K.64K_in_flight", "tma.write.map.l2.box_16K")),
        lambda read, write: read / write,
    ),
    (
        *("lsu_in_flight", "count", ("rate.plain_read.l2.one_sm.1024_threads", "latency.load.l2")),
        lambda rate, latency: rate * latency / 128,
    ),
    ("tma_issue", "cycles", ("tma.load.map.l2.one_sm.box_128.burst_12.between",), lambda between: between),
    ("tma_box", "cycles", ("tma.load.map.l2.one_sm.box_128.burst_12.4_warps.between",), lambda between: between),
    ("tma_line", "cycles", ("tma.read.l2.one_sm.map.box_16K.96K_in_flight.4_warps",), lambda rate: 128 / rate),
    (
        "tma_latency",
        "cycles",
        ("tma.load.map.dram.all_sms.box_128.burst_1.first_arrival", "latency.load.dram", "mbarrier.turn"),
        lambda arrival, load, turn: arrival - load - turn,
    ),
    ("tma_store_latency", "cycles", ("tma.store.map.one_sm.box_128.burst_1.complete",), lambda complete: complete),
    (
        "tma_store_line",
        "cycles",
        ("tma.store.map.one_sm.box_16384.burst_4.read", "tma.store.map.one_sm.box_16384.burst_1.read"),
        lambda four, one: (four - one) / 3 / 128,
    ),
    ("tma_map_miss", "cycles", ("latency.load.dram",), lambda load: load),
    ("parameter_miss", "cycles", ("latency.load.l2",), lambda load: load),
    ("shared_latency", "cycles", ("shared.latency.load_4",), lambda load: load),
    ("shared_wavefront", "cycles", ("shared.load_4.stride_4.16_warps",), lambda access: access),
    ("remote_latency", "cycles", ("remote.latency.load",), lambda load: load / 2),
    ("remote_rate", "bytes/cycle", ("remote.rate.store.256_threads.both",), lambda rate: rate),
    (
        *("atomic_latency", "cycles", ("atomic.latency.stride_4", "latency.load.l2")),
        lambda atomic, load: atomic - load,
    ),
    ("mbarrier_arrive", "cycles", ("barrier.mbarrier_arrive.1_warps",), lambda arrive: arrive),
    ("mbarrier_test", "cycles", ("barrier.mbarrier_try_wait.1_warps",), lambda test: test),
    ("mbarrier_wait", "cycles", ("barrier.mbarrier_phase.1_warps",), lambda phase: phase),
    (
        "mbarrier_visible",
        "cycles",
        ("mbarrier.turn", "barrier.mbarrier_phase.1_warps", "barrier.mbarrier_arrive.1_warps"),
        lambda turn, phase, arrive: turn - phase - arrive,
    ),
    (
        "mbarrier_remote",
        "cycles",
        ("mbarrier.turn.remote", "barrier.mbarrier_phase.1_warps", "barrier.mbarrier_arrive.1_warps"),
        lambda turn, phase, arrive: turn - phase - arrive,
    ),
    (
        *("bar_warp", "cycles", ("barrier.barrier_cta.32_warps", "barrier.barrier_cta.1_warps")),
        lambda many, one: (many - one) / 31,
    ),
    (
        *("bar_latency", "cycles", ("barrier.barrier_cta.32_warps", "barrier.barrier_cta.1_warps")),
        lambda many, one: one - (many - one) / 31,
    ),
    ("cluster_latency", "cycles", ("barrier.barrier_cluster_relaxed.2_ctas.1_warps",), lambda relaxed: relaxed),
    (
        "cluster_release",
        "cycles",
        ("barrier.barrier_cluster.2_ctas.1_warps", "barrier.barrier_cluster_relaxed.2_ctas.1_warps"),
        lambda release, relaxed: release - relaxed,
    ),
    ("warp_sync", "cycles", ("latency.syncwarp",), lambda sync: sync),
    ("fence", "cycles", ("barrier.fence_async.1_warps",), lambda fence: fence),
    ("fence_wide", "cycles", ("barrier.fence_gpu.1_warps",), lambda fence: fence),
    (
        "launch_period",
        "us",
        (PERIOD.format("early", "1", 1, 0),),
        lambda period: period,
    ),
    (
        "launch_cta",
        "us",
        (PERIOD.format("early", "sms", 2, 200), PERIOD.format("early", "1", 2, 200), "sms"),
        lambda all_sms, one, sms: (all_sms - one) / (sms - 1),
    ),
    (
        "cta_interval",
        "us",
        (PERIOD.format("in_turn", "8_sms", 1, 0), PERIOD.format("in_turn", "sms", 1, 0), "sms"),
        lambda eight, one, sms: (eight - one) / (7 * sms),
    ),
    (
        "cluster_start",
        "us",
        (PERIOD.format("in_turn", "8_sms", 2, 200), PERIOD.format("in_turn", "sms", 2, 200))
        + (PERIOD.format("in_turn", "8_sms", 1, 200), PERIOD.format("in_turn", "sms", 1, 200)),
        lambda eight, one, eight_alone, one_alone: (eight - one - eight_alone + one_alone) / 7,
    ),
    (
        *("launch_fetch", "ns", ("launch.reads_in_turn.late_gap", "launch.reads_in_turn.early_gap")),
        lambda late, early: late - early,
    ),
    (
        *("launch_cold", "ns", ("launch.reads_in_turn.early_gap", "starts.in_turn.after_last_ns")),
        lambda early, empty: early - empty,
    ),
    (
        *("tma_map_edited", "cycles", ("tensormap.edit_load", "tensormap.edit", "tensormap.load")),
        lambda both, edit, load: both - edit - load,
    ),
    # Cycles of a burst that a pause before it saves, by those of writing the lines that L2 could have cleaned in it.
    (
        "l2_clean_share",
        "count",
        (
            *(f"rate.bursts_after_{kind}.pause_{pause}" for kind in ("writes", "reads") for pause in (0, PAUSE)),
            *("rate.plain_read.dram.1_ctas", "rate.plain_copy.dram.1_ctas"),
        ),
        lambda dirty, dirty_late, clean, clean_late, read, copy: (
            (dirty - clean - dirty_late + clean_late) / PAUSE / (2 * read / copy - 1)
        ),
    ),
)
ASSUMED = {
    "tma_map_miss": "assumed: a tensor map comes from DRAM in each launch",
    "parameter_miss": "assumed: parameters come from L2 in each launch",
}
# (family, latency of, rate of): of 16 warps on the four partitions
INSTRUCTIONS = (
    ("alu", "add_xor", "add_xor"),
    ("logic", "prmt", "prmt"),
    ("float", "fma_f32", "fma_f32"),
    ("multiply", "mad", "mad"),
    ("special", "ex2", "ex2"),
    ("convert", "cvt_f32_f16", "cvt_f32_f16"),
    ("convert_pair", "cvt_f16x2_f32", "cvt_f16x2_f32"),
    ("convert_narrow", "cvt_e4m3x2_f32_and_back", "cvt_e4m3x2_f32_and_back"),
    ("double", "fma_f64", "fma_f64"),
    ("shuffle", "shfl", "shfl"),
    ("redux", "redux", "redux"),
    ("vote", "ballot", "ballot"),
)
# (family, latency and rate of, pipe, issue): several instructions of the machine. None: what their rate says, where
# they branch or wait for each other, so that others do not issue beside them.
SUBROUTINES = (
    ("special_scaled", "ex2_scaled", "special", 4),
    ("reciprocal", "rcp_rn", "alu", None),
    ("division", "div_rn", "alu", None),
    ("division_full", "div_full", "special", 5),
    ("division_int", "div_u32", "alu", None),
    ("division_long", "div_u64", "alu", None),
    ("multiply_long", "mul_u64", "multiply", 4),
)
# (family, latency of): of an edit of a tensor map
EDITS = (
    ("map_replace", "tensormap.replace"),
    ("map_publish", "tensormap.publish"),
    ("map_acquire", "tensormap.acquire"),
)
CONVERSION = (("convert_e2m1", "cvt_f16x2_e2m1x2", "cvt_f16x2_e2m1x2"),)  # of a chip that has the instruction
