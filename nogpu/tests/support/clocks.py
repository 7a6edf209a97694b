"""A chip with round constants, and replays of small recorded kernels on it, with cycles computed by hand."""

import numpy as np

import nogpu
from nogpu.clock.chip import PIPES, Chip, Cost
from nogpu.clock.record import Recording
from nogpu.clock.replay import constant_names, replay
from nogpu.clock.timeline import CTA
from tests.support.small_kernels import module

ROUND = {
    **{"sm_shared_bytes": 65536, "sm_threads": 1024, "sm_registers": 65536, "sm_ctas": 2},
    **{"l2_bytes": 2**20, "l2_storage": 2**20, "l2_dirty": 2**20, "l2_ways": 16, "l2_slices": 1, "l2_rate": 128},
    **{"l2_write_cost": 1, "l2_latency": 200},
    **{"dram_channels": 1, "dram_rate": 64, "dram_latency": 600, "dram_write_cost": 1},
    **{"sm_in_rate": 64, "sm_out_rate": 64, "l1_lines": 256, "l1_latency": 30, "lsu_line": 1, "lsu_in_flight": 64},
    **{"tma_issue": 10, "tma_box": 20, "tma_line": 2, "tma_latency": 50},
    **{"tma_store_latency": 100, "tma_store_line": 2},
    **{"shared_latency": 20, "shared_wavefront": 2, "remote_latency": 50, "remote_rate": 32},
    **{"atomic_latency": 10, "atomic_line": 4, "store_issue": 3},
    **{"mbarrier_arrive": 5, "mbarrier_visible": 10, "mbarrier_remote": 40, "mbarrier_wait": 30, "mbarrier_test": 20},
    **{"bar_latency": 15, "cluster_latency": 100, "fence": 7},
    **{"tensor_core": 1, "mma_issue": 25, "mma_latency": 80, "mma_scaled": 16, "mma_columns_rate": 2},
    **{"mma_operand_rate": 1024, "l2_halves": 1, "l2_link_rate": 1024},
    **{"commit_latency": 35, "cp_rate": 64, "tmem_load_latency": 60, "tmem_load_rate": 1, "tmem_store_rate": 1},
    **{"tmem_alloc": 200, "launch_gap": 1000, "launch_overlap": 500, "launch_period": 100},
    **{"cta_interval": 10, "cta_start": 100, "cta_exit": 50, "cluster_start": 40, "grid_end": 300, "grid_wait": 250},
    **{"cancel_latency": 100},
}
"""Constants of a chip of 1 GHz; all others are 0."""
FREE = Cost(0, 0, 0, 0)
FAMILIES = """
    uniform memory copy tensor warp_sync alu alu_long logic float multiply multiply_long special special_scaled
    reciprocal division division_full division_int division_long convert convert_pair convert_narrow convert_e2m1
    double shuffle redux vote mma_sync map_replace map_publish map_acquire
""".split()


def tiny(gpc_sms=(2, 2), **changed):
    """The chip of the tests. An instruction takes a cycle, its result comes after four; the prologue is free."""
    constants = {**dict.fromkeys(constant_names(), 0), **ROUND, "sms": sum(gpc_sms), **changed}
    instructions = {family: Cost(PIPES.index("alu"), 1, 1, 4) for family in FAMILIES}
    instructions["float"] = Cost(PIPES.index("float"), 1, 1, 4)
    instructions |= {"none": FREE, "constant": FREE, "special_register": FREE, "branch": Cost(0, 1, 0, 0)}
    return Chip("tiny", 1.0, constants, instructions, gpc_sms)


def recorded(body, *arrays, threads=32, declarations="", shared=4096, grid=1, values=True, **options):
    """The trace of a launch of the body, as `small_kernels.module` makes a kernel of it."""
    traces = []
    kernel = nogpu.load_ptx(module(body, len(arrays), declarations))["k"]
    kernel.launch(grid, threads, arrays, shared=shared, record=Recording(traces.append, values), **options)
    (trace,) = traces
    return trace


def lines_of(count):
    """An array of `count` lines of 128 bytes, aligned to a line."""
    storage = nogpu.array(np.zeros(32 * (count + 1), np.uint32))
    start = -storage.__array_interface__["data"][0] % 128 // 4
    return storage[start : start + 32 * count]


def lives(replayed, launch=0):
    """The (SM, start, end) of each CTA of a launch, by its number."""
    spans = replayed.spans[(replayed.spans["kind"] == CTA) & (replayed.spans["launch"] == launch)]
    spans = spans[np.argsort(spans["cta"], kind="stable")]
    return [(int(span["sm"]), float(span["start"]), float(span["end"])) for span in spans]


def life(trace, **changed):
    """The cycles from the start of the first CTA to its end, including the last instruction's cycle."""
    _, start, end = lives(replay([trace], tiny(**changed), spans=100_000))[0]
    return end - start
