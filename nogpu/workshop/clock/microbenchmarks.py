"""Published microbenchmarks of a B200, replayed: rings of tensor loads, and one MMA at a time.

    python -m workshop.clock.microbenchmarks [--clock b200] [--set NAME=VALUE ...]

The launches are written down here as traces, as the published sources issue them (SemiAnalysisAI/microbench-blackwell
at 9a068d85: tma2d_throughput, tma2dmcast_throughput, cutlass_gemm_mainloop, umma_latency; L2: ademeure/QuickRunCUDA,
b300_clean/03_caches.md, a B300). What is printed are published figures and those of the replay.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from nogpu.clock.chip import Chip, profile
from nogpu.clock.replay import Replay, replay
from nogpu.clock.trace import Trace
from nogpu.ptx.ir import Instruction
from workshop.console import command_parser

_OPCODES = (
    "mbarrier.init.shared::cta.b64",
    "mbarrier.arrive.expect_tx.shared::cta.b64",
    "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes",
    "mbarrier.try_wait.parity.shared::cta.b64",
    "tcgen05.mma.cta_group::1.kind::f16",
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64",
    "add.s32",
)
_INIT, _EXPECT, _COPY, _WAIT, _MMA, _COMMIT, _ADD = range(len(_OPCODES))
_LINE = 128
LOADS = [  # bytes of a box, stages, published cycles of a load, of 148 CTAs
    *((512, 1, 900), (512, 4, 257), (4096, 1, 1038), (4096, 4, 314), (8192, 1, 1258), (8192, 4, 406)),
    *((16384, 1, 1405), (16384, 2, 826), (16384, 4, 659), (32768, 1, 1757), (32768, 4, 1364), (65536, 2, 2671)),
]
LOADS_GHZ = 1.966
MAIN_LOOP = [  # columns, K of a stage, stages, published ns of a stage: bf16, 128 rows, one CTA
    *((64, 64, 2, 372.1), (64, 64, 4, 188.2), (64, 64, 8, 155.4), (32, 64, 2, 340.9), (32, 64, 6, 129.2)),
    *((64, 128, 2, 533.7), (64, 128, 4, 309.8)),
]
MAIN_LOOP_GHZ = 1.277  # at which its MMAs take N / 2 cycles: 401 ns for 4 of N = 256


class _Warp:
    """The records of a warp."""

    def __init__(self) -> None:
        self.words: list[int] = []

    def add(self, pc: int, *operands: int) -> None:
        self.words += [pc | len(operands) << 24, *operands]

    def load(self, place: int, size: int, address: int) -> None:
        """A box of rows of a line each, that lie one behind the other."""
        rows = max(1, size // _LINE)
        box = [size, address & 0xFFFFFFFF, address >> 32, size // rows, rows, _LINE, 0, *(1, 0, 0) * 3, size]
        self.add(_COPY, 1, 1024, place, 1, 0, 1, *box)


def launch(ctas: Sequence[Sequence[_Warp]], cluster: int = 1) -> Trace:
    """A launch of CTAs of warps."""
    counts = np.array([[len(warp.words) for warp in cta] for cta in ctas])
    ends = np.cumsum(counts.ravel()).reshape(counts.shape)
    return Trace(
        name="written",
        grid=(len(ctas), 1, 1),
        block=(32 * len(ctas[0]), 1, 1),
        cluster=(cluster, 1, 1),
        shared_bytes=200 * 1024,
        registers=32,
        min_ctas=0,
        programmatic=False,
        cooperative=False,
        instructions=[Instruction(opcode, (), None, 0, opcode, "") for opcode in _OPCODES],
        words=np.concatenate([np.array(warp.words, np.uint32) for cta in ctas for warp in cta]),
        starts=np.hstack([ends[:, :1] - counts[:, :1], ends]),
        params=b"",
    )


def ring(size: int, stages: int, loads: int, address: int, stride: int, limit: int = 1 << 60) -> _Warp:
    """A warp that keeps `stages` loads in flight; load i begins at (address + i * stride) % limit."""
    warp = _Warp()
    for stage in range(stages):
        warp.add(_INIT, 8 * stage, 1)
    for number in range(loads + stages):
        stage, use = number % stages, number // stages
        if number >= stages:
            warp.add(_WAIT, 8 * stage, use - 1, 1)
        if number < loads:
            warp.add(_EXPECT, 8 * stage, 1, size)
            warp.load(8 * stage, size, (address + number * stride) % limit)
    return warp


def main_loop(columns: int, depth: int, stages: int, steps: int) -> list[_Warp]:
    """The warps of a CTA that loads and multiplies K = depth at a time, 128 x columns, bf16."""
    loads, multiplies = _Warp(), _Warp()
    for stage in range(stages):
        loads.add(_INIT, 8 * stage, 1)
        loads.add(_INIT, 256 + 8 * stage, 1)
    for step in range(steps):
        stage, use = step % stages, step // stages
        if use:
            loads.add(_WAIT, 256 + 8 * stage, use - 1, 1)
        loads.add(_EXPECT, 8 * stage, 1, (128 + columns) * depth * 2)
        loads.load(8 * stage, 128 * depth * 2, step * 128 * depth * 2)
        loads.load(8 * stage, columns * depth * 2, (1 << 30) + step * columns * depth * 2)
        multiplies.add(_WAIT, 8 * stage, use, 1)
        for _ in range(depth // 16):
            multiplies.add(_MMA, 0, 128, columns, 16, 1, 0, 1)
        multiplies.add(_COMMIT, 256 + 8 * stage, 1, 1)
    return [loads, multiplies]


def _cycles(result: Replay, number: int = 0) -> float:
    return result.ends[number] - result.first_ctas[number]


def load_cycles(chip: Chip, size: int, stages: int) -> float:
    """Cycles of a load where 148 CTAs read DRAM through rings: of the later two thirds of a run."""
    times = []
    for loads in (40, 120):
        loads = max(loads, 4 * stages) if size < 32768 else loads // 2
        ctas = [[ring(size, stages, loads, cta * size, 148 * size)] for cta in range(148)]
        times.append((_cycles(replay([launch(ctas)], chip)), loads))
    (early, few), (late, many) = times
    return (late - early) / (many - few)


def l2_rate(chip: Chip, size: int = 8192, stages: int = 16) -> float:
    """Bytes a cycle into all SMs from 32 MiB of L2, in an order of its own for each SM."""
    data, loads = 32 << 20, 300
    warm = [[ring(size, 4, data // size // 148 + 1, cta * size, 148 * size, data)] for cta in range(148)]
    ctas = [[ring(size, stages, loads, cta * 7919 * size, size * (2 * cta + 1), data)] for cta in range(148)]
    result = replay([launch(warm), launch(ctas)], chip, other_data=False)
    return 148 * loads * size / _cycles(result, 1)


def main_loop_cycles(chip: Chip, columns: int, depth: int, stages: int) -> float:
    """Cycles of a stage, from L2."""
    steps = 160
    warps = launch([main_loop(columns, depth, stages, steps)])
    result = replay([warps, warps], chip, other_data=False)
    return _cycles(result, 1) / steps


def mma_cycles(chip: Chip, columns: int) -> float:
    """Cycles of an MMA, its commit and the wait, one at a time."""
    warp, many = _Warp(), 100
    warp.add(_INIT, 0, 1)
    for number in range(many):
        warp.add(_MMA, 0, 128, columns, 16, 1, 0, 1)
        warp.add(_COMMIT, 0, 1, 1)
        warp.add(_WAIT, 0, number, 1)
    return _cycles(replay([launch([[warp]])], chip)) / many


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    parser = command_parser(__doc__, "workshop.clock.microbenchmarks")
    parser.add_argument("--clock", default="b200", metavar="PROFILE")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="constants, in cycles")
    options = parser.parse_args(arguments)
    chip = profile(options.clock)
    for text in options.set:
        name, value = text.split("=")
        chip = chip.with_constant(name, float(value))
    print("MMA alone, 128 x N, cycles: published, replayed")
    for columns, published in ((128, 200), (256, 264)):
        print(f"  {columns:5} {published:8} {mma_cycles(chip, columns):8.0f}")
    print(f"L2, TB/s at {chip.clock_ghz} GHz: 17 (B300, 1.92 GHz), {l2_rate(chip) * chip.clock_ghz / 1e3:.1f}")
    print("main loop, 128 x N, K, stages, cycles: published, replayed")
    for columns, depth, stages, ns in MAIN_LOOP:
        cycles = main_loop_cycles(chip, columns, depth, stages)
        print(f"  {columns:5} {depth:4} {stages:2} {ns * MAIN_LOOP_GHZ:8.0f} {cycles:8.0f}")
    print("loads by 148 CTAs, bytes, stages, ns: published, replayed")
    for size, stages, published in LOADS:
        replayed = load_cycles(chip, size, stages) / chip.clock_ghz
        print(f"  {size:6} {stages:2} {published / LOADS_GHZ:8.0f} {replayed:8.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
