"""Published microbenchmarks of a B200 as traces, written down as their sources issue them: rings of tensor loads, MMAs.

Sources: SemiAnalysisAI/microbench-blackwell at 9a068d85 (tma2d_throughput, umma_latency); of L2, ademeure/QuickRunCUDA,
b300_clean/03_caches.md, a B300.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nogpu.clock.chip import Chip
from nogpu.clock.replay import replay
from nogpu.clock.trace import Trace
from nogpu.ptx.ir import Instruction

_OPCODES = (
    "mbarrier.init.shared::cta.b64",
    "mbarrier.arrive.expect_tx.shared::cta.b64",
    "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes",
    "mbarrier.try_wait.parity.shared::cta.b64",
    "tcgen05.mma.cta_group::1.kind::f16",
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64",
    "add.s32",
)
INIT, EXPECT, COPY, WAIT, MMA, COMMIT, ADD = range(len(_OPCODES))
_LINE = 128


class Warp:
    """The records of a warp."""

    def __init__(self) -> None:
        self.words: list[int] = []

    def add(self, pc: int, *operands: int) -> None:
        self.words += [pc | len(operands) << 24, *operands]

    def load(self, place: int, size: int, address: int) -> None:
        """A box of rows of a line each, that lie one behind the other."""
        rows = max(1, size // _LINE)
        box = [size, address & 0xFFFFFFFF, address >> 32, size // rows, rows, _LINE, 0, *(1, 0, 0) * 3, size]
        self.add(COPY, 1, 1024, place, 1, 0, 1, *box)


def launch(ctas: Sequence[Sequence[Warp]], cluster: int = 1) -> Trace:
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


def ring(size: int, stages: int, loads: int, address: int, stride: int, limit: int = 1 << 60) -> Warp:
    """A warp that keeps `stages` loads in flight; load i begins at (address + i * stride) % limit."""
    warp = Warp()
    for stage in range(stages):
        warp.add(INIT, 8 * stage, 1)
    for number in range(loads + stages):
        stage, use = number % stages, number // stages
        if number >= stages:
            warp.add(WAIT, 8 * stage, use - 1, 1)
        if number < loads:
            warp.add(EXPECT, 8 * stage, 1, size)
            warp.load(8 * stage, size, (address + number * stride) % limit)
    return warp


def mma_cycles(chip: Chip, columns: int) -> float:
    """Cycles of an MMA, its commit and the wait, one at a time."""
    warp, many = Warp(), 100
    warp.add(INIT, 0, 1)
    for number in range(many):
        warp.add(MMA, 0, 128, columns, 16, 1, 0, 1)
        warp.add(COMMIT, 0, 1, 1)
        warp.add(WAIT, 0, number, 1)
    result = replay([launch([[warp]])], chip)
    return (result.ends[0] - result.first_ctas[0]) / many
