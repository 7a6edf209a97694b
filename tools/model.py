"""Models the time of the group GEMM's benchmark cases on a B200, term by term, from the schedule. Nothing is measured.

    python -m tools.model [--sms N] [--save FILE.json]

Calls come back to back, as the contest makes them, and overlap: where a launch leaves an SM idle, the next launch uses
it. The slowest of three terms decides:

    DRAM       bytes that must move, operands once and the output once, at DRAM_BYTES_PER_US
    SM         bytes into the shared memory of all SMs, repeated tokens included, at SM_BYTES_PER_US for each SM
    MMA        cycles of all tensor cores, at CLOCK_MHZ

EXPOSED_US is added: SMs start and end at different times, which overlapping launches do not hide. For calls in turn,
the busiest SM decides instead of all SMs, and LAUNCH_US, set-up, first latency and tail are added. The hardware chooses
the SM of a CTA; the model assigns clusters in order, CTA i to SM i modulo the number of SMs that whole clusters fill.
With split K, each share of a tile loads its own k-tiles, and the partial sums that shares exchange count as bytes into
shared memory.

Sources of the constants
    [S] SemiAnalysis, microbench-blackwell: TMA throughput on a B200. tma2d_tput_results.csv: 7.2 TB/s from DRAM with
        64 KiB in flight per SM, 5.4 to 5.9 with 32 KiB. tma2dmcast_sweep_full.csv: 13.3 TB/s into 148 SMs where two
        CTAs of a cluster read the same bytes, limited by DRAM: an SM takes at least 90 GB/s. tma2d_lat_results.csv:
        first latency with all SMs loading, 8 KiB each.
    [I] inferred from [S]: one block-scaled MMA of N tokens takes max(N / 2, 32 + N / 4) cycles, for one SM or a pair.
    [H] measured on an H200. EXPOSED_US: the time of case 0 without tensor-core work (tools.compare, docs/worklog.md:
        35.1 us) less the time of its bytes at 4.28 TB/s. LAUNCH_US and these 4.28 TB/s: an empty kernel and a copy,
        measured earlier, by no command of this project.
    [E] estimated from the machine code: cycles of the roles' set-up and of one epilogue step. A step is 32 weight rows
        x 64 tokens of a warp: one TMEM load, about 100 cycles of latency, then 240 to 275 instructions (32 each of
        conversion, shuffle, PRMT, comparison and store, one or two for each address), one per cycle, two for each of
        the 32 address products. The four warps' shuffles and stores share one pipe, in the shadow of these cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import submission
from harness.console import make_console, make_table
from harness.options import add_sms, command_parser
from task import GROUP_GEMM, TestSpec
from tools import records

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
    """Microseconds of one call, and the counts they follow from."""

    schedule: submission.Schedule
    minimum_bytes: int  # operands once and the output once

    def tiles(self, cta: int) -> list[tuple[int, int, int]]:
        """(k-tiles of its share, tokens, parts) of each tile of a CTA."""
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
        """Bytes of whole boxes that a CTA loads into its shared memory."""
        plan = self.schedule.plan
        part_bytes = plan.part_token_bytes + plan.part_atoms * submission.SF_STAGE
        weight_bytes = plan.products * (plan.weight_bytes + submission.SF_STAGE)
        return sum(k_tiles * (weight_bytes + parts * part_bytes) for k_tiles, _, parts in self.tiles(cta))

    @property
    def loads(self) -> list[int]:
        """Bytes into the shared memory of each CTA: its loads, and the partial sums of the other split-K ranks."""
        plan, ctas = self.schedule.plan, range(self.schedule.ctas)
        exchanged = (plan.k_split - 1) * plan.share_bytes
        return [self.loaded(cta) + len(self.tiles(cta)) * exchanged for cta in ctas]

    @property
    def mma_cycles(self) -> list[float]:
        """Cycles of the tensor core for each CTA."""
        plan = self.schedule.plan
        cycles = submission.K_BLOCKS * plan.products * max(plan.part_tokens / 2, 32 + plan.part_tokens / 4)
        ctas = range(self.schedule.ctas)
        return [cycles * sum(k_tiles * parts for k_tiles, _, parts in self.tiles(cta)) for cta in ctas]

    def by_sm(self, work: Sequence[float]) -> list[float]:
        """Work of each SM, from the work of each CTA. Clusters go to neighbouring SMs, in order.

        Where clusters do not divide the number of SMs, the SMs left over have no work.
        """
        sms, cluster = self.schedule.sm_count, self.schedule.plan.cluster_ctas
        used = sms - sms % cluster
        return [sum(work[sm::used]) for sm in range(used)] + [0] * (sms - used)

    def terms_us(self, share: Callable[[Sequence[float]], float]) -> dict[str, float]:
        """Microseconds of DRAM, SM and MMA. share: from the work of every CTA to the work of the deciding SM."""
        return {
            "DRAM": self.minimum_bytes / DRAM_BYTES_PER_US,
            "SM": share(self.loads) / SM_BYTES_PER_US,
            "MMA": share(self.mma_cycles) / CLOCK_MHZ,
        }

    @property
    def overlapping_us(self) -> dict[str, float]:
        """The terms of calls that overlap: every SM has the same share of the work."""
        return self.terms_us(lambda work: sum(work) / self.schedule.sm_count)

    @property
    def in_turn_us(self) -> dict[str, float]:
        """The terms of calls in turn: the busiest SM decides."""
        return self.terms_us(lambda work: max(self.by_sm(work)))

    @property
    def alone_us(self) -> float:
        """Microseconds of set-up, first latency and tail, which a call in turn has to itself."""
        plan = self.schedule.plan
        steps: float = plan.part_tokens / plan.epilogue_tokens
        tail = COMMIT_CYCLES + EPILOGUE_STEP_CYCLES * steps
        return FIRST_LATENCY_US + (SETUP_CYCLES + tail) / CLOCK_MHZ


def estimate(
    sizes: list[tuple[int, int, int]],
    sms: int,
    overlapping: bool = True,
    products: int = 1,
    configurations: submission.Configurations = None,
) -> Estimate:
    """The estimate of one launch. sizes: (M, N, K) of each group. products, configurations: of submission.configure."""
    problems = tuple((*size, 1) for size in sizes)
    (launch,) = submission.configure(problems, sms, overlapping, products, configurations)
    minimum = sum(2 * m * n + (m + products * n) * (k // 2 + k // 16) for m, n, k in sizes)
    return Estimate(launch.schedule, minimum)


# ----------------------------------------------------------------------------------------------------------------------
# The table
# ----------------------------------------------------------------------------------------------------------------------


def tile(plan: submission.Plan) -> str:
    rows = submission.WEIGHT_TILE * plan.cta_group
    return f"{rows}x{plan.token_tile}, {plan.cta_group} / {plan.ctas_per_sm} / {plan.k_split}"


def figures(found: Estimate, alone: Estimate) -> dict[str, str]:
    """A case's column of the table. found: the estimate for calls that overlap; alone: for calls in turn."""
    schedule, overlapping, in_turn = found.schedule, found.overlapping_us, alone.in_turn_us
    slowest = max(overlapping, key=lambda name: overlapping[name])
    plan = schedule.plan
    return {
        "MB that must move": f"{found.minimum_bytes / 1e6:.1f}",
        "tile, CTAs per MMA / per SM / split K": tile(plan),
        "waves x CTAs": f"{schedule.waves} x {schedule.ctas}",
        "MB requested": f"{schedule.requested_bytes / 1e6:.1f}",
        "KB in flight per SM": f"{plan.stages * plan.stage_bytes * plan.ctas_per_sm / 1024:.0f}",
        **{f"{name} us, all SMs": f"{value:.1f}" for name, value in overlapping.items()},
        "calls that overlap, us": f"{overlapping[slowest] + EXPOSED_US:.1f}",
        "dominant": slowest,
        "in turn: tile, CTAs per MMA / per SM / split K": tile(alone.schedule.plan),
        "KB into the busiest SM": f"{max(alone.loads) / 1e3:.0f}",
        **{f"{name} us, busiest SM": f"{value:.1f}" for name, value in in_turn.items()},
        "set-up, latency, tail us": f"{alone.alone_us:.1f}",
        "calls in turn, us": f"{max(in_turn.values()) + alone.alone_us + LAUNCH_US:.1f}",
    }


def case_figures(args: Mapping[str, Any], sms: int) -> dict[str, str]:
    """The column of a group GEMM's case. args: generate_input's arguments."""
    sizes = list(zip(args["m"], args["n"], args["k"]))
    return figures(estimate(sizes, sms), estimate(sizes, sms, overlapping=False))


def main(arguments: list[str] | None = None) -> None:
    parser = command_parser(__doc__)
    parser.prog = "python -m tools.model"
    add_sms(parser)
    records.add_save(parser)
    options = parser.parse_args(arguments)
    columns = [case_figures(TestSpec.parse(benchmark.line).args, options.sms) for benchmark in GROUP_GEMM.benchmarks]
    title = f"A model of a B200 with {options.sms} SMs, not a measurement"
    table = make_table([""], [f"case {case}" for case in range(len(columns))], title=title)
    table.columns[0].no_wrap = True
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    make_console().print(table)
    if options.save:
        record = {"problem": GROUP_GEMM.name, "sms": options.sms, **records.versions(arguments)}
        records.save(options.save, {**record, "cases": columns})


if __name__ == "__main__":
    main()
