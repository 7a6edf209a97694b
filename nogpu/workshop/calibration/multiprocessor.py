"""Constants of one SM: instructions between registers, shared memory, barriers."""

from __future__ import annotations

from collections.abc import Iterator

from workshop.calibration.launches import Launch, Measurement, Sizes, cycles_per, operations_per_cycle, span

STEPS, RATE_STEPS, CHAINS = 64, 16, 8  # issue.cu
ACCESSES = 32  # shared.cu
LOOP_STEPS = 16  # barriers.cu
WINDOW = 32 << 10  # bytes of shared memory that accesses stay in

# Instructions in a step: where a chain of one kind would be joined, two alternate.
OPERATIONS = {
    **{name: 2 for name in ("add_xor", "setp_selp", "cvt_e4m3x2_f32_and_back", "ballot")},
    "add64_xor64": 4,
    **dict.fromkeys(("mad", "prmt", "popc", "fma_f32", "fma_f16x2", "fma_f64", "ex2", "rsqrt", "tanh"), 1),
    **dict.fromkeys(("ex2_scaled", "rcp_scaled", "rcp_rn", "sqrt_rn", "div_rn", "div_full"), 1),
    **dict.fromkeys(("div_u32", "div_u64", "mul_u64"), 1),
    **dict.fromkeys(
        ("cvt_f16x2_f32", "cvt_f32_f16", "cvt_f16x2_e4m3x2", "cvt_f32_u32", "shfl", "redux", "syncwarp"), 1
    ),
}
OPERATIONS_100 = {"fma_f32x2": 1, "cvt_f16x2_e2m1x2": 1}

# Bytes between lanes of an access of 4, 8, 16 bytes: without conflicts, at one address, with more and more conflicts.
STRIDES = {4: (4, 0, 8, 16, 32, 64, 128), 8: (8, 0, 16, 32, 128), 16: (16, 0, 32, 64, 128, 144)}

WARP_LOOPS = (
    *("empty_loop", "mbarrier_arrive", "mbarrier_arrive_lanes", "mbarrier_arrive_state", "mbarrier_expect"),
    *("mbarrier_try_wait", "mbarrier_phase", "fence_async", "fence_async_after_store", "fence_mbarrier_init"),
    *("fence_async_all", "fence_async_global", "fence_cta", "fence_cluster", "fence_gpu"),
)


def measurements(arch: str, sizes: Sizes) -> Iterator[Measurement]:
    """Every measurement of this module."""
    yield from instructions(arch, sizes)
    yield from shared(sizes)
    yield from barriers(sizes)


def instructions(arch: str, sizes: Sizes) -> Iterator[Measurement]:
    rounds = sizes.rounds
    for name, per_step in (OPERATIONS | (OPERATIONS_100 if arch == "sm_100a" else {})).items():
        chain = Launch("issue", f"latency_{name}", ("out", rounds, 3))
        yield Measurement(f"latency.{name}", "cycles per instruction", chain, cycles_per(rounds * STEPS * per_step))
        for warps in (4, 16):
            launch = Launch("issue", f"rate_{name}", ("out", rounds, 3), block=32 * warps)
            count = rounds * RATE_STEPS * CHAINS * per_step * warps
            yield Measurement(
                f"rate.{name}.{warps}_warps", "warp instructions per cycle", launch, operations_per_cycle(count)
            )


def shared(sizes: Sizes) -> Iterator[Measurement]:
    rounds = sizes.rounds
    for width in (4, 8, 16):
        launch = Launch("shared", f"shared_chase_{width}", ("out", rounds, WINDOW, 0), shared=WINDOW)
        yield Measurement(f"shared.latency.load_{width}", "cycles per load", launch, cycles_per(rounds * ACCESSES))
    accesses = [
        (f"{kind}_{width}", stride) for kind in ("load", "store") for width in STRIDES for stride in STRIDES[width]
    ]
    accesses += [(kind, stride) for kind in ("atomic", "reduction") for stride in (4, 0, 8, 128)]
    accesses += [("ldmatrix", stride) for stride in (16, 128, 144)]
    for kind, stride in accesses:
        for warps in (1, 16):
            arguments = ("out", rounds, WINDOW, stride)
            launch = Launch("shared", f"shared_{kind}", arguments, block=32 * warps, shared=WINDOW)
            yield Measurement(
                f"shared.{kind}.stride_{stride}.{warps}_warps",
                "cycles per warp access",
                launch,
                cycles_per(rounds * ACCESSES * warps),
            )


def barriers(sizes: Sizes) -> Iterator[Measurement]:
    rounds = sizes.rounds
    each = cycles_per(rounds * LOOP_STEPS)
    for kind in ("barrier_cta", "barrier_zero"):
        for warps in sizes.warps:
            launch = Launch("barriers", kind, ("out", rounds), block=32 * warps)
            yield Measurement(f"barrier.{kind}.{warps}_warps", "cycles per barrier", launch, each)
    for kind in WARP_LOOPS:
        for warps in (1, 4) if kind != "mbarrier_phase" else (1,):
            launch = Launch("barriers", kind, ("out", rounds), block=32 * warps)
            yield Measurement(f"barrier.{kind}.{warps}_warps", "cycles per step of a warp", launch, each)
    for cluster in (1, 2, 4):
        for kind in ("barrier_cluster", "barrier_cluster_relaxed"):
            for warps in (1, 4):
                launch = Launch("barriers", kind, ("out", rounds), cluster, 32 * warps, cluster=cluster)
                # SMs have clocks of their own: the span of each warp.
                yield Measurement(
                    f"barrier.{kind}.{cluster}_ctas.{warps}_warps",
                    "cycles per barrier",
                    launch,
                    lambda records: span(records[:1]) / (rounds * LOOP_STEPS),
                )
    trips = 16 * rounds
    turn = "cycles from an arrival to the waiter's next instruction and its own arrival"
    yield Measurement(
        "mbarrier.turn", turn, Launch("barriers", "ping_pong", ("out", trips), block=64), cycles_per(2 * trips)
    )
    for kind in ("ping_pong_remote", "ping_pong_release", "ping_pong_store"):
        yield Measurement(
            f"mbarrier.turn.{kind[10:]}",
            turn,
            Launch("barriers", kind, ("out", trips), 2, cluster=2),
            lambda records: span(records[:1]) / (2 * trips),
        )
