"""A model, not a measurement: what the benchmark cases should take on a B200, term by term, from the kernel's schedule.

    python model.py [--sms N]

Calls come back to back, as the contest makes them, and overlap: where a launch leaves an SM idle, the next one uses it.
The slowest of these decides:

    DRAM       bytes that must move, operands once and the output, at DRAM_BYTES_PER_US
    SM         bytes into all SMs' shared memory, repeated tokens included, at SM_BYTES_PER_US for each SM
    MMA        cycles of all tensor cores, at CLOCK_MHZ

To that comes what overlapping launches do not hide, EXPOSED_US: SMs start and end at different times. Where launches
come in turn, the busiest SM decides instead of all, and set-up, first latency, tail and the gap between two launches,
LAUNCH_US, are added. Which CTA runs on which SM is the hardware's choice; the model gives clusters out in order, CTA i to
SM i modulo the number of SMs that whole clusters fill. Shares of a tile's K load their k-tiles each; the sums that they
send each other count as bytes into shared memory.

Sources of the constants
    [S] SemiAnalysis, microbench-blackwell: TMA throughput on a B200. tma2d_tput_results.csv: 7.2 TB/s from DRAM with
        64 KiB in flight per SM, 5.4 to 5.9 with 32 KiB. tma2dmcast_sweep_full.csv: 13.3 TB/s into 148 SMs where two CTAs
        of a cluster read the same bytes, and DRAM was the limit: SMs take at least 90 GB/s each. tma2d_lat_results.csv:
        first latency with all SMs loading, 8 KiB each.
    [I] one block-scaled MMA of N tokens takes max(N / 2, 32 + N / 4) cycles, for one SM or for a pair [S, inferred].
    [H] an H200. EXPOSED_US: what case 1 took there without tensor-core work (compare.py, WORKLOG.md: 35.1 us) beyond its
        bytes at 4.28 TB/s. LAUNCH_US and these 4.28 TB/s: an empty kernel and a copy, measured earlier and not by a
        command of this project.
    [E] an estimate from the machine code: cycles of the roles' set-up; and of one epilogue step, 32 weight rows x 64
        tokens of a warp, which is one TMEM load, about 100 cycles until it is there, and then 240 to 275 instructions (32
        each of conversion, shuffle, PRMT, comparison, store and one or two for the address), one per cycle, of which
        the 32 address products take two. The four warps' shuffles and stores share one pipe, which that hides.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass

os.environ.setdefault("CUTE_DSL_ARCH", "sm_100a")  # read when the DSL is imported; its default is the GPU that is there

import submission  # noqa: E402
import task  # noqa: E402

SMS = 148
CLOCK_MHZ = 1900  # under load [S]
DRAM_BYTES_PER_US = 7.2e6  # [S], with 64 KiB in flight per SM
SM_BYTES_PER_US = 90e3  # [S]
FIRST_LATENCY_US = 1.06  # [S]
COMMIT_CYCLES = 264  # from the last MMA to a thread that waits for it [S]
EXPOSED_US = 1.3  # [H]
LAUNCH_US = 1.55  # [H]
SETUP_CYCLES = 600  # [E]
EPILOGUE_STEP_CYCLES = 380  # [E]


@dataclass(frozen=True)
class Estimate:
    """Microseconds of one call, and the counts behind them."""

    schedule: submission.Schedule
    minimum_bytes: int

    def tiles(self, cta: int) -> list[tuple[int, int, int]]:
        """(k-tiles of this CTA's share, tokens, parts) of a CTA's tiles."""
        plan, sizes = self.schedule.plan, self.schedule.sizes
        share = cta % plan.cluster_ctas // plan.cta_group
        found = []
        for group, _, token in self.schedule.tiles_of(cta):
            tokens = min(sizes[group][0] - token, plan.token_tile)
            k_tiles = -(-sizes[group][2] // submission.K_TILE)
            of_share = (share + 1) * k_tiles // plan.k_split - share * k_tiles // plan.k_split
            found.append((of_share, tokens, -(-tokens // plan.part_tokens)))
        return found

    def loaded(self, cta: int) -> int:
        """Bytes that a CTA loads into its shared memory, whole boxes."""
        plan = self.schedule.plan
        part_bytes = plan.part_token_bytes + plan.part_atoms * submission.SF_STAGE
        weight_bytes = plan.products * (plan.weight_bytes + submission.SF_STAGE)
        return sum(k_tiles * (weight_bytes + parts * part_bytes) for k_tiles, _, parts in self.tiles(cta))

    @property
    def loads(self) -> list[int]:
        """Bytes into each CTA's shared memory: what it loads, and of each tile the sums of the other shares of K."""
        plan, ctas = self.schedule.plan, range(self.schedule.ctas)
        exchanged = (plan.k_split - 1) * plan.share_bytes
        return [self.loaded(cta) + len(self.tiles(cta)) * exchanged for cta in ctas]

    @property
    def mma_cycles(self) -> list[float]:
        """Of each CTA's tensor core."""
        plan = self.schedule.plan
        cycles = submission.K_BLOCKS * plan.products * max(plan.part_tokens / 2, 32 + plan.part_tokens / 4)
        ctas = range(self.schedule.ctas)
        return [cycles * sum(k_tiles * parts for k_tiles, _, parts in self.tiles(cta)) for cta in ctas]

    def by_sm(self, work: list[float]) -> list[float]:
        """Of each SM, from what each CTA has: clusters are given out in order, each to SMs side by side.

        SMs that are left over where clusters do not divide their number have nothing.
        """
        sms, cluster = self.schedule.sm_count, self.schedule.plan.cluster_ctas
        used = sms - sms % cluster
        return [sum(work[sm::used]) for sm in range(used)] + [0] * (sms - used)

    def terms_us(self, share: Callable[[list[float]], float]) -> dict[str, float]:
        """DRAM, SM and MMA time; share: what of all CTAs' work one SM has."""
        return {
            "DRAM": self.minimum_bytes / DRAM_BYTES_PER_US,
            "SM": share(self.loads) / SM_BYTES_PER_US,
            "MMA": share(self.mma_cycles) / CLOCK_MHZ,
        }

    @property
    def overlapping_us(self) -> dict[str, float]:
        return self.terms_us(lambda work: sum(work) / self.schedule.sm_count)

    @property
    def in_turn_us(self) -> dict[str, float]:
        return self.terms_us(lambda work: max(self.by_sm(work)))

    @property
    def alone_us(self) -> float:
        """Set-up, first latency and tail of a call that overlaps with no other."""
        tail = (
            COMMIT_CYCLES + EPILOGUE_STEP_CYCLES * self.schedule.plan.part_tokens / self.schedule.plan.epilogue_tokens
        )
        return FIRST_LATENCY_US + (SETUP_CYCLES + tail) / CLOCK_MHZ


def estimate(
    sizes: list[tuple[int, int, int]],
    sms: int,
    overlapping: bool = True,
    products: int = 1,
    configurations: submission.Configurations = None,
) -> Estimate:
    """The estimate of one launch for groups of (M, N, K); configurations as `submission.configure` takes them."""
    problems = tuple((*size, 1) for size in sizes)
    (launch,) = submission.configure(problems, sms, overlapping, products, configurations)
    minimum = sum(2 * m * n + (m + products * n) * (k // 2 + k // 16) for m, n, k in sizes)
    return Estimate(launch.schedule, minimum)


# ----------------------------------------------------------------------------------------------------------------------
# The table
# ----------------------------------------------------------------------------------------------------------------------


def tile(plan: submission.Plan) -> str:
    return f"{submission.WEIGHT_TILE * plan.cta_group}x{plan.token_tile}, {plan.cta_group} / {plan.ctas_per_sm} / {plan.k_split}"


def figures(found: Estimate, alone: Estimate) -> dict[str, str]:
    """The table's column of a case: found for calls that overlap, alone for calls in turn."""
    schedule, overlapping, in_turn = found.schedule, found.overlapping_us, alone.in_turn_us
    slowest = max(overlapping, key=overlapping.get)
    plan = schedule.plan
    return {
        "MB that must move": f"{found.minimum_bytes / 1e6:.1f}",
        "tile, CTAs per MMA / per SM / shares of K": tile(plan),
        "waves x CTAs": f"{schedule.waves} x {schedule.ctas}",
        "MB requested": f"{schedule.requested_bytes / 1e6:.1f}",
        "KB in flight per SM": f"{plan.stages * plan.stage_bytes * plan.ctas_per_sm / 1024:.0f}",
        **{f"{name} us, all SMs": f"{value:.1f}" for name, value in overlapping.items()},
        "calls that overlap, us": f"{overlapping[slowest] + EXPOSED_US:.1f}",
        "dominant": slowest,
        "in turn: tile, CTAs per MMA / per SM / shares of K": tile(alone.schedule.plan),
        "KB into the busiest SM": f"{max(alone.loads) / 1e3:.0f}",
        **{f"{name} us, busiest SM": f"{value:.1f}" for name, value in in_turn.items()},
        "set-up, latency, tail us": f"{alone.alone_us:.1f}",
        "calls in turn, us": f"{max(in_turn.values()) + alone.alone_us + LAUNCH_US:.1f}",
    }


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sms", type=int, default=SMS, help="SMs to plan for (148)")
    sms = parser.parse_args().sms
    columns = []
    for benchmark in task.PROBLEMS["group_gemm"].benchmarks:
        args = task.TestSpec.parse(benchmark.line).args
        sizes = list(zip(args["m"], args["n"], args["k"]))
        columns.append(figures(estimate(sizes, sms), estimate(sizes, sms, overlapping=False)))
    table = Table(title=f"A model of a B200 with {sms} SMs, not a measurement")
    table.add_column("", no_wrap=True)
    for case in range(len(columns)):
        table.add_column(f"case {case + 1}", justify="right")
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    Console(width=max(Console().width, 110)).print(table)


if __name__ == "__main__":
    main()
