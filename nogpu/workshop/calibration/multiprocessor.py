"""Constants of one SM: instructions on registers, shared memory, barriers, edits of tensor maps by kernels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from workshop.calibration.launches import Figure, Launch, Measurement, Sizes, cycles_per, operations_per_cycle, span

STEPS, RATE_STEPS, CHAINS = 64, 16, 8  # issue.cu's kSteps, kRateSteps, kChains
ACCESSES = 32  # shared.cu's kAccesses
LOOP_STEPS = 16  # barriers.cu's kSteps
WINDOW = 32 << 10  # bytes of shared memory that accesses stay in

# Instructions in a step. Two kinds alternate if the compiler would join a chain of one.
OPERATIONS = {
    **dict.fromkeys("add_xor setp_selp cvt_e4m3x2_f32_and_back ballot".split(), 2),
    "add64_xor64": 4,
    **dict.fromkeys("mad prmt popc fma_f32 fma_f16x2 fma_f64 ex2 rsqrt tanh".split(), 1),
    **dict.fromkeys("ex2_scaled rcp_scaled rcp_rn sqrt_rn div_rn div_full div_u32 div_u64 mul_u64".split(), 1),
    **dict.fromkeys("cvt_f16x2_f32 cvt_f32_f16 cvt_f16x2_e4m3x2 cvt_f32_u32 shfl redux syncwarp".split(), 1),
}
OPERATIONS_100 = {"fma_f32x2": 1, "cvt_f16x2_e2m1x2": 1}

# Bytes between lanes of an access of 4, 8, 16 bytes: without conflicts, at one address, with more and more conflicts.
STRIDES = {4: (4, 0, 8, 16, 32, 64, 128), 8: (8, 0, 16, 32, 128), 16: (16, 0, 32, 64, 128, 144)}
ACCESS_KINDS = (
    *((f"{kind}_{width}", stride) for kind in ("load", "store") for width in STRIDES for stride in STRIDES[width]),
    *product(("atomic", "reduction"), (4, 0, 8, 128)),
    *product(("ldmatrix",), (16, 128, 144)),
)
WARP_LOOPS = (
    *("empty_loop", "mbarrier_arrive", "mbarrier_arrive_lanes", "mbarrier_arrive_state", "mbarrier_expect"),
    *("mbarrier_try_wait", "mbarrier_phase", "fence_async", "fence_async_after_store", "fence_mbarrier_init"),
    *("fence_async_all", "fence_async_global", "fence_cta", "fence_cluster", "fence_gpu"),
)
MAPS = ("map_replace", "map_publish", "map_acquire", "map_load", "map_edit", "map_edit_load")


def instructions(sizes: Sizes, arch: str) -> Iterator[Measurement]:
    """Latencies and rates of instructions on registers."""
    for name, per_step in (OPERATIONS | (OPERATIONS_100 if arch == "sm_100a" else {})).items():
        chain = Launch("issue", f"latency_{name}", ("out", sizes.rounds, 3))
        figure = cycles_per(sizes.rounds * STEPS * per_step)
        yield Measurement(f"latency.{name}", "cycles per instruction", chain, figure)
        for warps in (4, 16):
            launch = Launch("issue", f"rate_{name}", ("out", sizes.rounds, 3), block=32 * warps)
            figure = operations_per_cycle(sizes.rounds * RATE_STEPS * CHAINS * per_step * warps)
            yield Measurement(f"rate.{name}.{warps}_warps", "warp instructions per cycle", launch, figure)


def shared(sizes: Sizes) -> Iterator[Measurement]:
    """Accesses to a CTA's own shared memory."""
    count = sizes.rounds * ACCESSES
    for width in STRIDES:
        launch = Launch("shared", f"shared_chase_{width}", ("out", sizes.rounds, WINDOW, 0), shared=WINDOW)
        yield Measurement(f"shared.latency.load_{width}", "cycles per load", launch, cycles_per(count))
    for (kind, stride), warps in product(ACCESS_KINDS, (1, 16)):
        arguments = ("out", sizes.rounds, WINDOW, stride)
        launch = Launch("shared", f"shared_{kind}", arguments, block=32 * warps, shared=WINDOW)
        name = f"shared.{kind}.stride_{stride}.{warps}_warps"
        yield Measurement(name, "cycles per warp access", launch, cycles_per(count * warps))


def of_first_warp(operations: int) -> Figure:
    """Cycles of the first warp, divided by the number of operations; other SMs have clocks of their own."""
    return lambda records: span(records[:1]) / operations


def barriers(sizes: Sizes) -> Iterator[Measurement]:
    """Barriers, mbarriers and fences."""
    rounds, trips = sizes.rounds, 16 * sizes.rounds
    steps = rounds * LOOP_STEPS
    for kind, warps in product(("barrier_cta", "barrier_zero"), sizes.warps):
        launch = Launch("barriers", kind, ("out", rounds), block=32 * warps)
        yield Measurement(f"barrier.{kind}.{warps}_warps", "cycles per barrier", launch, cycles_per(steps))
    for kind, warps in product(WARP_LOOPS, (1, 4)):
        if (kind, warps) != ("mbarrier_phase", 4):
            launch = Launch("barriers", kind, ("out", rounds), block=32 * warps)
            yield Measurement(f"barrier.{kind}.{warps}_warps", "cycles per step of a warp", launch, cycles_per(steps))
    for cluster, kind, warps in product((1, 2, 4), ("barrier_cluster", "barrier_cluster_relaxed"), (1, 4)):
        launch = Launch("barriers", kind, ("out", rounds), cluster, 32 * warps, cluster=cluster)
        name = f"barrier.{kind}.{cluster}_ctas.{warps}_warps"
        yield Measurement(name, "cycles per barrier", launch, of_first_warp(steps))
    turn = "cycles from an arrival to the waiter's next instruction and its own arrival"
    launch = Launch("barriers", "ping_pong", ("out", trips), block=64)
    yield Measurement("mbarrier.turn", turn, launch, cycles_per(2 * trips))
    for kind in ("remote", "release", "store"):
        launch = Launch("barriers", f"ping_pong_{kind}", ("out", trips), 2, cluster=2)
        yield Measurement(f"mbarrier.turn.{kind}", turn, launch, of_first_warp(2 * trips))


def maps(sizes: Sizes) -> Iterator[Measurement]:
    """Each part of an edit of a tensor map alone, and a load with and without an edit: cycles of a round of one warp.
    The cost of the first load by an edited map is edit_load - edit - load.
    """
    for kernel in MAPS:
        launch = Launch("maps", kernel, ("rows:8", "out", "data", "target", sizes.rounds))
        yield Measurement(f"tensormap.{kernel[4:]}", "cycles per round of a warp", launch, cycles_per(sizes.rounds))
