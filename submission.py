#!POPCORN leaderboard nvfp4_group_gemm
#!POPCORN gpu B200
"""NVFP4 block-scaled GEMMs and GEMV for NVIDIA B200 (sm_100a) in CuTe DSL, one kernel behind one `solve`:

    group GEMM    for every group of a call, with its own M, N and K, batches likewise
                  C[M, N] (fp16) = (A[M, K] * SFA[M, K/16]) @ (B[N, K] * SFB[N, K/16])^T
    dual GEMM     silu(A @ B1^T) * (A @ B2^T), scaled in the same way, both products in one pass over A
    GEMV          for every batch A @ b^T with a single row b: the GEMM of one token, A as its weights

Accumulation and silu are fp32, with one rounding at the end.

A and B hold e2m1 values, two per byte; every 16 consecutive K elements share one e4m3 scale. In the contest's shapes
B is the weight matrix (thousands of rows) and A the tokens of one expert (tens to hundreds), so the operands are
swapped on the tensor core: weights take the MMA's M side, always 128 rows per CTA, and tokens its N side, whose width
can follow the problem. The accumulator is C^T: TMEM lanes are weight rows, TMEM columns are tokens.

Work: a tile is 128 weight rows (256 of a pair) x 16 to 256 tokens of one group over all its K, in k-tiles of 256
elements. Tiles are numbered group by group, largest M first, token blocks of the same weight rows next to each other,
so that CTAs that run side by side share a weight tile in L2. Cluster i of n takes tiles i, i + n, ...

Two products share the tensor core's 128 rows: a CTA has 64 rows of B1 and the same 64 of B2, so that every MMA has
as many tokens as one of a single product.

Pairs (cta_group 2): two CTAs of a cluster share a tile. Each loads its own 128 weight rows, half of the tokens and the
scale factors of its own weight rows and of all the tile's tokens; the leader (even CTA) issues every MMA for both, and
each stores its own half of C.

Neighbours: a cluster can compute two tiles side by side. Where they have the same weight rows, each loads half of
them, and their scale factors, into both (multicast).

Residence: one persistent CTA per SM runs all its tiles, and the epilogue of one tile runs beside the loads of the next.
Or two CTAs share an SM, each for one tile only, and one CTA's epilogue runs beside the next CTA's loads.

Overlap: every launch lets the next one start as soon as its CTAs have their TMEM. The next launch's CTAs set themselves
up wherever there is room, and as far as the caller promises that it is safe, they load, compute and store before the
end of the launch ahead. Launches always end in order.

Roles (E = 4 epilogue warps, 8 of two products)
    warp        role        work
    0 .. E-1    epilogue    accumulator -> fp16 -> C, from registers; warp w owns TMEM lanes 32(w % 4)..32(w % 4)+31
    E, E+1      load        one thread each for even and odd stages: operand tiles by tensor map, scale factors by bulk
                            copies; the first sets up the barriers and starts at once, before there is TMEM
    E+2         MMA         TMEM allocation; one thread: scale factors SMEM -> TMEM, MMAs, commits; in a pair's other
                            CTA: tells the leader of full stages

Pipelines (mbarriers; stage and phase are carried across tiles and never reset)
    edge                barrier      in              arrivals per phase                          depth
    load -> MMA         full         every CTA       1 with the stage's bytes; in a pair's       stages
                                                     leader 1 more, from the other CTA
    MMA -> load         empty        every CTA       1 of each neighbour, by tcgen05.commit      stages
    MMA -> epilogue     acc_full     every CTA       1, by tcgen05.commit                        accumulators
    epilogue -> MMA     acc_empty    leader          1 of each CTA's epilogue warps; none        accumulators
                                                     where a CTA has one tile only

SMEM of a CTA (bytes from a base that is a multiple of 1024; P = products, T = token_tile / cta_group, A = atoms of 128
tokens)
    stages x  weights   128 x 128      e2m1 [product][row][256 of K], 128B swizzle
    stages x  tokens    T x 128        e2m1 [row][256 of K], 128B swizzle
    stages x  SF        (P + A) x 2048 weights', then tokens' scale factors: 4 atoms of 128 rows x 64 of K each
    2 x       exchange  8192           two products: fp32 sums [warp][token / 4][lane][4] on their way to another warp
              barriers  8 each, then the TMEM base address

TMEM holds the accumulators and the scale factors of one k-tile; `Plan` has the map of its columns.

Tensor maps (per group: weights, tokens) are encoded by the JIT-compiled host code from a table of pointers and
sizes and travel by value as kernel parameters: no workspace, no device-side edits, no copies. A reordered scale tensor
already is a sequence of the 512-byte atoms that `tcgen05.cp` reads, so its k-tile is one contiguous copy.
"""

import contextlib
import functools
import itertools
import math
import operator
from array import array
from bisect import bisect_left, bisect_right
from collections import namedtuple
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cutlass
import torch
from cutlass import Float4E2M1FN, Int16, Int32, Int64, Uint32, cute
from cutlass._mlir.dialects import cute as cute_ir
from cutlass._mlir.dialects import cute_nvgpu as cute_nvgpu_ir
from cutlass._mlir.dialects import llvm
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_ptr

from task import input_t, output_t

try:  # the guards of torch's compiled functions; not public
    from torch._C._dynamo.guards import TensorGuards
except ImportError:
    TensorGuards = None

# ---- Constants of the data format and of the hardware ----

WEIGHT_TILE = 128  # rows of B per tile: the M of a 1-SM block-scaled MMA
K_TILE = 256  # elements of K per stage: 128 bytes of e2m1, the span of the 128B swizzle
MMA_K = 64  # elements of K per tcgen05.mma.kind::mxf4nvf4
K_BLOCKS = K_TILE // MMA_K
SF_ATOM = 512  # bytes of scale factors of 128 rows x 64 of K
SF_STAGE = K_BLOCKS * SF_ATOM
SF_COLUMNS = 4  # TMEM columns that one atom fills (32 lanes x 4 columns x 4 bytes)

LOAD_WARPS = 2
TOKEN_STEP = 64  # N of every MMA, and a tile's first token, is a multiple; a tile of FEW_TOKENS is N itself
FEW_TOKENS = 16
TOKEN_TILES = (FEW_TOKENS, 64, 128, 192, 256)
CTA_GROUPS = CTAS_PER_SM = NEIGHBOURS = PRODUCTS = (1, 2)
LEADER_MASK = 0xFEFFFFFF  # clears the rank bit of a shared address: the same place in the even CTA of the pair
START_BARRIER, SETUP_BARRIER, TEARDOWN_BARRIER, EXCHANGE_BARRIER = 1, 2, 3, 4  # named barriers, the last of four
LOW_HALVES, HIGH_HALVES = 0x5410, 0x3276  # prmt selectors: low halves of both operands; high ones, the second first
WARP_ROWS = 32  # weight rows of an epilogue warp: the TMEM lanes that it can read
EPILOGUE_TOKENS = 32  # accumulator columns that an epilogue thread reads from TMEM at once

SM_SMEM = 228 * 1024  # bytes per SM; every resident CTA takes SMEM_RESERVED more than it asks for
SMEM_RESERVED = 1024
TMEM_COLUMNS = 512  # per SM
MAX_GROUPS = 32  # of a launch; of 64, tiles of 256 tokens need more registers than there are

ALIGNMENT = 16  # bytes; every tensor's address is a multiple

OPERANDS_READY, OUTPUT_FREE = 1, 2  # a caller's promises, see `solve`

# The host table, int64 words: promises, tiles, CTAs; per group M, N, K, first tile; per group its `group_layouts`.
TABLE_HEADER, TABLE_SIZES, TABLE_TENSORS = 3, 4, 3  # and two tensors more of each product

# Sizes and tile numbers are 32-bit. Headroom: the kernel adds up to one tile or one grid stride before it compares.
LARGEST = 2**31 - 2**12


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def check_size(name: str, value: int, least: int, multiple: int, reason: str):
    if not least <= value <= LARGEST or value % multiple:
        raise ValueError(f"{name} is {value}; it must be {least} to {LARGEST}, a multiple of {multiple}: {reason}")


# ---- Plans ----

Sizes = tuple[tuple[int, int, int], ...]  # (M, N, K) by group
Problems = tuple[tuple[int, int, int, int], ...]  # (M, N, K, L) by group, a batch of L each

# Byte offsets in SMEM; `end` is its size.
SmemMap = namedtuple("SmemMap", "weights tokens scales exchange full empty acc_full acc_empty tmem_address end")

derived = functools.cached_property


class Configuration(NamedTuple):
    """The part of a `Plan` that a launch's sizes do not fix: `candidates` chooses it."""

    token_tile: int
    cta_group: int  # CTAs that share one MMA, and so a tile
    ctas_per_sm: int  # CTAs that fit an SM at once: 1 for many tiles each, 2 for one each
    neighbours: int  # tiles that a cluster computes side by side; those of the same weight rows share their loads


Configurations = tuple[Configuration, ...] | None  # the configurations to choose among; None: all that are legal


@dataclass(frozen=True)
class Plan:
    """Everything about the GEMM kernel that is fixed at compile time; for the first fields see `Configuration`."""

    groups: int
    token_tile: int = 128
    cta_group: int = 1
    ctas_per_sm: int = 1
    neighbours: int = 1
    products: int = 1  # weights that share the tokens: C = A @ B^T, or C = silu(A @ B1^T) * (A @ B2^T)

    def __post_init__(self):
        allowed = TOKEN_TILES, CTA_GROUPS, CTAS_PER_SM, NEIGHBOURS, PRODUCTS
        for name, values in zip((*Configuration._fields, "products"), allowed):
            if getattr(self, name) not in values:
                raise ValueError(f"{name} is {getattr(self, name)}; the kernel is written for {values}")
        if not 1 <= self.groups <= MAX_GROUPS:
            raise ValueError(f"{self.groups} groups; a launch takes 1 to {MAX_GROUPS}")
        needed = self.token_tile + self.sf_columns
        if needed > self.tmem_columns:
            raise ValueError(
                f"a tile of {self.token_tile} tokens and {self.products} products needs {needed} TMEM columns; a CTA's "
                f"share at {self.ctas_per_sm} per SM is {self.tmem_columns}"
            )
        if self.token_tile == FEW_TOKENS and self.cluster_ctas * self.products > 1:
            found = f"clusters of {self.cluster_ctas}, {self.products} products"
            raise ValueError(f"a tile of {FEW_TOKENS} tokens with {found}; the kernel is written for 1 and 1")

    cluster_ctas = derived(lambda self: self.cta_group * self.neighbours)
    # Not persistent: one tile per CTA, assigned by the block scheduler, before any tile of the next launch.
    one_tile = derived(lambda self: self.ctas_per_sm > 1)
    rows = derived(lambda self: WEIGHT_TILE // self.products)  # of C^T that a CTA computes of a tile

    atoms = derived(lambda self: ceil_div(self.token_tile, 128))  # of the tokens' scale factors per 64 of K
    # Token rows in one CTA's SMEM: the CTAs of a pair hold half of the MMA's N side each.
    token_rows = derived(lambda self: self.token_tile // self.cta_group)
    # An epilogue warp can read a quarter of TMEM's lanes; two of each, for two products, have more arithmetic at hand.
    epilogue_warps = derived(lambda self: 4 * self.products)
    threads = derived(lambda self: 32 * (self.epilogue_warps + LOAD_WARPS + 1))
    # Accumulator columns that the epilogue reads at once; of two products an epilogue warp sends half of them.
    epilogue_tokens = derived(lambda self: min(EPILOGUE_TOKENS // self.products, self.token_tile))

    weight_bytes = WEIGHT_TILE * K_TILE // 2
    token_bytes = derived(lambda self: self.token_rows * K_TILE // 2)
    scale_bytes = derived(lambda self: (self.products + self.atoms) * SF_STAGE)
    stage_bytes = derived(lambda self: self.weight_bytes + self.token_bytes + self.scale_bytes)
    sent_bytes = derived(lambda self: (self.products - 1) * self.epilogue_tokens // 2 * self.epilogue_warps * 32 * 4)
    smem_capacity = derived(lambda self: SM_SMEM // self.ctas_per_sm - SMEM_RESERVED)
    fixed_bytes = derived(lambda self: 2 * self.sent_bytes + 16 * (self.accumulators + 1))
    stages = derived(lambda self: (self.smem_capacity - self.fixed_bytes) // (self.stage_bytes + 16))

    # Columns of TMEM (512, or 256 with two CTAs per SM; P = products, E = accumulators x tokens of a tile):
    #     0 .. E-1        accumulators [accumulator][token]; two if they fit and the CTA has a next tile
    #     E .. E+16P-1    weights' scale factors of one k-tile [64 of K][product], 4 columns each; see `Gemm.mma`
    #     E+16P ..        tokens' scale factors [64 of K][atom], 4 columns each
    tmem_columns = derived(lambda self: TMEM_COLUMNS // self.ctas_per_sm)
    sf_columns = derived(lambda self: self.scale_bytes // SF_ATOM * SF_COLUMNS)
    two_fit = derived(lambda self: 2 * self.token_tile + self.sf_columns <= self.tmem_columns)
    accumulators = derived(lambda self: 2 if self.two_fit and not self.one_tile else 1)
    weight_sf_column = derived(lambda self: self.accumulators * self.token_tile)
    token_sf_column = derived(lambda self: self.weight_sf_column + self.products * K_BLOCKS * SF_COLUMNS)

    @functools.cached_property
    def at(self) -> SmemMap:
        """Byte offsets of the regions of SMEM, one after the other."""
        parts = (
            self.stages * self.weight_bytes,
            self.stages * self.token_bytes,
            self.stages * self.scale_bytes,
            2 * self.sent_bytes,
            *(8 * self.stages, 8 * self.stages, 8 * self.accumulators, 8 * self.accumulators),
            16,
        )
        return SmemMap(*itertools.accumulate(parts, initial=0))


@functools.cache
def legal_configurations(products: int = 1) -> list[Configuration]:
    """Every legal configuration: its accumulators fit TMEM."""
    found = []
    for configuration in map(Configuration._make, itertools.product(TOKEN_TILES, CTA_GROUPS, CTAS_PER_SM, NEIGHBOURS)):
        # Neighbours only at one CTA per SM: with two, the other CTA's loads hide what they would save.
        if configuration.ctas_per_sm * configuration.neighbours < 4:
            with contextlib.suppress(ValueError):
                Plan(1, *configuration, products)
                found.append(configuration)
    return found


class Rates(NamedTuple):
    """Rates of a chip for the parts of a `Schedule`: bytes or cycles per microsecond, else microseconds."""

    sm: float  # bytes that an SM gets
    l2: float  # bytes that L2 gives to all
    dram: float
    tensor: float  # cycles of the tensor core
    latency: float  # from a load to the next one into its stage
    tile: float
    token: float  # of an epilogue
    hop: float  # a pair's k-tile: the other CTA tells the leader
    pair: float  # a launch of pairs
    neighbours: float  # a launch whose tiles have neighbours
    residents: float  # in turn: a launch with two CTAs per SM. Overlapping: every CTA that has an SM for itself


ENDLESS = 1e9  # a rate that bounds nothing
# Fitted to `python -m tools.choice` on an H200 without tensor core, (in turn, overlapping).
HOPPER = (
    Rates(ENDLESS, 7.83e6, ENDLESS, ENDLESS, 2.46, 0.059, 0.003, 0.03, 1.07, 1.28, 0.4),
    Rates(60e3, 8.4e6, 4.24e6, ENDLESS, 1.22, 0.098, 0.0043, 0, 0.48, 0.42, 1.13),
)
# Fitted to the emulator's clock of a B200: no measured times.
BLACKWELL = (
    Rates(166e3, 16.2e6, 10.5e6, 1.68e3, 0.98, 0.026, 0.0044, 0, 0.35, 0.02, 0.03),
    Rates(166e3, 16.2e6, 7.3e6, 1.68e3, 0.98, 0.098, 0.0044, 0, 0.2, 0.1, 0.6),
)
HOPPER_SMS = 144  # at most; a B200 has 148
SCALED_MMA, SF_COPY = 44, 12.8  # cycles of the tensor core: the shortest MMA with scale factors, a copy of an atom
SHARPNESS = 4  # of the step from one bound to the next
IN_TURN_LOSS = 1.5  # the most that a choice for overlapping launches may cost where they do not overlap


@dataclass(frozen=True)
class Schedule:
    """A launch's tiles and CTAs: the pure-Python twin of the kernel's own arithmetic."""

    plan: Plan
    sizes: Sizes  # no group is empty; in the order in which the tiles are numbered
    sm_count: int

    @functools.cached_property
    def first_tiles(self) -> tuple[int, ...]:
        """Number of the first tile of each group, and last the number of tiles."""
        plan, rows = self.plan, WEIGHT_TILE * self.plan.cta_group
        tiles = (plan.products * ceil_div(n, rows) * ceil_div(m, plan.token_tile) for m, n, _ in self.sizes)
        clusters = (ceil_div(count, plan.neighbours) for count in tiles)
        return tuple(plan.neighbours * first for first in itertools.accumulate(clusters, initial=0))

    tiles = derived(lambda self: self.first_tiles[-1])
    # Clusters that run at once. Those of four leave some SMs of their GPC over: an H200 runs 30 of 33.
    usable_sms = derived(lambda self: self.sm_count * 7 // 8 if self.plan.cluster_ctas > 2 else self.sm_count)
    slots = derived(lambda self: max(1, self.usable_sms * self.plan.ctas_per_sm // self.plan.cluster_ctas))
    wanted = derived(lambda self: self.tiles // self.plan.neighbours)  # clusters for a tile each
    clusters = derived(lambda self: self.wanted if self.plan.one_tile else min(self.wanted, self.slots))
    ctas = derived(lambda self: self.clusters * self.plan.cluster_ctas)

    def work(self, group: int, block: int) -> tuple[float, ...]:
        """k-tiles, bytes of a CTA, tensor-core cycles, 1 and tokens of a tile: the block-th of its group's tokens."""
        plan, (m, _, k) = self.plan, self.sizes[group]
        tokens, k_tiles = min(m - block * plan.token_tile, plan.token_tile), k / K_TILE
        columns = min(ceil_div(tokens, TOKEN_STEP) * TOKEN_STEP, plan.token_tile)
        atoms = plan.products + ceil_div(tokens, 128)
        cycles = k_tiles * K_BLOCKS * max(SCALED_MMA + SF_COPY * atoms, columns / 2)
        return k_tiles, k_tiles * (plan.weight_bytes + plan.token_bytes + atoms * SF_STAGE), cycles, 1, tokens

    def busy(self, rates: Rates, tiles: list, last: int = 0) -> float:
        """Microseconds of an SM that computes these tiles. last: tokens of an epilogue that no tile waits for."""
        plan = self.plan
        k_tiles, loaded, cycles, count, tokens = map(sum, zip(*tiles))
        slowest = max(loaded / rates.sm, cycles / rates.tensor) * plan.ctas_per_sm
        waited_for = tokens - last if plan.accumulators == 1 and not plan.one_tile else 0
        started = count * rates.tile + k_tiles * (plan.cta_group - 1) * rates.hop
        return max(slowest, k_tiles * rates.latency / plan.stages) + started + waited_for * rates.token

    def cost(self, overlapping: bool = False) -> float:
        """Modelled microseconds, but for what all schedules of the same sizes have in common.

        In turn: of the first cluster, whose tiles are the largest. Overlapping: of all tiles, on all SMs.
        """
        plan, rates = self.plan, (BLACKWELL if self.sm_count > HOPPER_SMS else HOPPER)[overlapping]
        every, l2, dram = [], 0.0, 0.0
        for group, (m, n, k) in enumerate(self.sizes):
            tiles = [self.work(group, block) for block in range(ceil_div(m, plan.token_tile))]
            rows = (self.first_tiles[group + 1] - self.first_tiles[group]) / len(tiles)
            # Half of a row's tiles load no weights for themselves where neighbours share them.
            shared = len(tiles) // 2 * (plan.neighbours - 1) * (plan.weight_bytes + plan.products * SF_STAGE)
            l2 += rows * plan.cta_group * (sum(loaded for _, loaded, *_ in tiles) - shared * k / K_TILE)
            dram += (plan.products * n + m) * k * 9 / 16
            every += [[rows * amount for amount in work] for work in tiles]
        fixed = (plan.cta_group - 1) * rates.pair + (plan.neighbours - 1) * rates.neighbours
        if overlapping:
            busy = self.busy(rates, every) * plan.cta_group / self.sm_count / plan.ctas_per_sm
            fixed += (2 - plan.ctas_per_sm) * rates.residents * self.ctas / self.sm_count
        else:
            first = range(0, self.tiles, min(self.wanted, self.slots) * plan.neighbours)
            groups = [bisect_right(self.first_tiles, tile) - 1 for tile in first]
            blocks = [ceil_div(self.sizes[group][0], plan.token_tile) for group in groups]
            places = [(tile - self.first_tiles[group]) % count for tile, group, count in zip(first, groups, blocks)]
            tiles = list(map(self.work, groups, places))
            busy, last = self.busy(rates, tiles, tiles[-1][-1]), tiles[-1][-1]
            fixed += (plan.ctas_per_sm - 1) * rates.residents + last * rates.token
        return sum(bound**SHARPNESS for bound in (busy, l2 / rates.l2, dram / rates.dram)) ** (1 / SHARPNESS) + fixed


def candidates(
    sizes: Sizes, sms: int, overlapping: bool = False, products: int = 1, configurations: Configurations = None
) -> list[Schedule]:
    """The schedules of the configurations whose clusters fit the chip and whose tiles hold the tokens, best first.

    Ties go to the first of `legal_configurations`.
    """
    plans = [Plan(len(sizes), *each, products) for each in configurations or legal_configurations(products)]
    few = max(m for m, _, _ in sizes) <= FEW_TOKENS
    possible = [x for x in plans if x.cluster_ctas <= sms and (x.token_tile > FEW_TOKENS or few)]
    schedules = sorted((Schedule(plan, sizes, sms) for plan in possible), key=Schedule.cost)
    if not overlapping or not schedules:
        return schedules
    most = IN_TURN_LOSS * schedules[0].cost()
    return sorted(schedules, key=lambda schedule: (schedule.cost() > most, schedule.cost(True)))


# ---- PTX instructions, one function each. Shared addresses are 32-bit integers, tensor maps 64-bit ones. ----


def ptx(code: str, constraints: str, *operands, results: Sequence = ()):
    """Emit one block of PTX and return its result, or the list of several.

    $0, $1, ... are the results, whose types are given, then the operands.
    """
    types = [kind.mlir_type for kind in results]
    returned = llvm.StructType.get_literal(types) if len(types) > 1 else next(iter(types), None)
    values = [operand.ir_value() for operand in operands]
    dialect = llvm.AsmDialect.AD_ATT
    found = llvm.inline_asm(returned, values, code, constraints, has_side_effects=True, asm_dialect=dialect)
    if len(types) > 1:
        return [kind(llvm.extractvalue(kind.mlir_type, found, [i])) for i, kind in enumerate(results)]
    return results[0](found) if results else None


def instruction(code: str, constraints: str = "", *results):
    """A function that emits this PTX with its arguments as operands."""
    return functools.partial(ptx, code, constraints, results=results)


# Barriers.
mbarrier_arrive_expect_tx = instruction("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r")
mbarrier_init = instruction("mbarrier.init.shared::cta.b64 [$0], $1;", "r,r")
# Barrier, parity: wait for the end of the phase of this parity; on a fresh barrier parity 1 passes at once.
mbarrier_wait = instruction(
    "{\n\t.reg .pred done;\n\tWAIT:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n\t"
    "@done bra DONE;\n\tbra WAIT;\n\tDONE:\n\t}",
    "r,r",
)


# Bulk copies.
prefetch_map = instruction("prefetch.tensormap [$0];", "l")  # tensor map


def bulk_copy(copy: str, constraints: str, mask: Int16 | None, *operands):
    """Start a bulk copy to this CTA, or to the same place of the CTAs in the mask, whose barriers get its bytes."""
    kind, places = copy.split(maxsplit=1)
    opcode = f"cp.async.bulk.{kind}.mbarrier::complete_tx::bytes"
    if mask is None:
        ptx(f"{opcode} {places};", constraints, *operands)
    else:
        ptx(f"{opcode}.multicast::cluster {places}, ${len(operands)};", f"{constraints},h", *operands, mask)


# Mask, SMEM address, tensor map, column, row, barrier: load a box of the map.
tma_load = functools.partial(bulk_copy, "tensor.2d.shared::cluster.global.tile [$0], [$1, {$2, $3}], [$4]", "r,l,r,r,r")
# Mask, SMEM address, address, count, barrier: load consecutive bytes.
bulk_load = functools.partial(bulk_copy, "shared::cluster.global [$0], [$1], $2, [$3]", "r,l,r,r")

# Order tcgen05 work after this thread's last wait, and before its next arrival.
tmem_fence_after_sync = instruction("tcgen05.fence::after_thread_sync;")
tmem_fence_before_sync = instruction("tcgen05.fence::before_thread_sync;")
tmem_load_wait = instruction("tcgen05.wait::ld.sync.aligned;")

# SMEM.
load_shared = instruction("ld.shared.b32 $0, [$1];", "=r,r", Int32)
load_shared_v4 = instruction("ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,r", *[Int32] * 4)
store_shared_v4 = instruction("st.shared.v4.b32 [$0], {$1, $2, $3, $4};", "r,r,r,r,r")

# The epilogue's arithmetic, on fp32 as bits.
# silu(gate) * up = gate / (1 + 2^(-gate * log2 e)) * up: within a few fp32 ulps, in the limits too.
silu_times = instruction(
    "{\n\t.reg .f32 e;\n\tmul.f32 e, $1, 0fBFB8AA3B;\n\tex2.approx.f32 e, e;\n\tadd.f32 e, e, 0f3F800000;\n\t"
    "rcp.approx.f32 e, e;\n\tmul.f32 e, e, $1;\n\tmul.f32 $0, e, $2;\n\t}",
    "=r,r,r",
    Int32,
)
# Two fp32, the low one first, to a pair of fp16, rounded to nearest even.
pack_f16x2 = instruction("cvt.rn.f16x2.f32 $0, $2, $1;", "=r,r,r", Int32)
# From this thread's pair and its neighbour's: even threads take both low halves, by LOW_HALVES; odd threads take both
# high halves, by HIGH_HALVES.
transpose_pair = instruction(
    "{\n\t.reg .b32 other;\n\tshfl.sync.bfly.b32 other, $1, 1, 31, -1;\n\tprmt.b32 $0, $1, other, $2;\n\t}",
    "=r,r,r",
    Int32,
)
store_if_positive = instruction(  # count, address, value
    "{\n\t.reg .pred p;\n\tsetp.gt.s32 p, $0, 0;\n\t@p st.global.b32 [$1], $2;\n\t}", "r,l,r"
)


def mbarrier_arrive(barrier: Int32, plan: Plan):
    """One arrival on the barrier at this address in the leader CTA.

    At the default scope, as elsewhere for pairs: .cluster would drain all of the SM's memory traffic at every arrival.
    It is not needed: the stage that TMA has filled, or the read of TMEM, is complete when the thread goes on.
    """
    if plan.cta_group == 1:
        ptx("mbarrier.arrive.shared::cta.b64 _, [$0];", "r", barrier)
    else:
        address = barrier & LEADER_MASK
        ptx("mbarrier.arrive.shared::cluster.b64 _, [$0];", "r", address)  # sanitizer: allow scope: see the docstring


def tmem_alloc(smem: Int32, plan: Plan):
    """Allocate the plan's columns, in both CTAs of a pair once both have started, and write the base address to SMEM.

    A pair's CTAs get the same address (PTX ISA, "tcgen05.alloc").
    """
    alloc = f"tcgen05.alloc.cta_group::{plan.cta_group}.sync.aligned.shared::cta.b32"
    ptx(f"{alloc} [$0], {plan.tmem_columns};", "r", smem)
    ptx(f"tcgen05.relinquish_alloc_permit.cta_group::{plan.cta_group}.sync.aligned;", "")


def tmem_dealloc(base: Int32, plan: Plan):
    ptx(f"tcgen05.dealloc.cta_group::{plan.cta_group}.sync.aligned.b32 $0, {plan.tmem_columns};", "r", base)


def tcgen05_copy_sf(column: Int32, descriptor: Int64, plan: Plan, count: int | Int32 = 1):
    """Copy a 512-byte atom of scale factors to 4 TMEM columns, in all four lane quarters, if count is positive.

    Each CTA of a pair copies its own.
    """
    copy = f"tcgen05.cp.cta_group::{plan.cta_group}.32x128b.warpx4 [$0], $1;"
    code = f"{{\n\t.reg .pred p;\n\tsetp.gt.s32 p, $2, 0;\n\t@p {copy}\n\t}}"
    ptx(code, "r,l,r", column, descriptor, Int32(count))


def tcgen05_mma(plan: Plan, descriptor: Int32, *operands):
    """D[TMEM] (+)= A @ B; operands: D, descriptors of A and B, TMEM columns of their scale factors, accumulate."""
    ptx(
        f"{{\n\t.reg .pred p;\n\tsetp.ne.b32 p, $5, 0;\n\ttcgen05.mma.cta_group::{plan.cta_group}.kind::mxf4nvf4"
        ".block_scale.block16 [$0], $1, $2, $6, [$3], [$4], p;\n\t}",
        *("r,l,l,r,r,r,r", *operands, descriptor),
    )


def tcgen05_commit(barrier: Int32, mask: Int16, plan: Plan):
    """Arrive once in every CTA of the mask when all tcgen05 work issued by this thread so far has finished."""
    commit = f"tcgen05.commit.cta_group::{plan.cta_group}.mbarrier::arrive::one.shared::cluster"
    if plan.cluster_ctas == 1:
        ptx(f"{commit}.b64 [$0];", "r", barrier)
    else:
        ptx(f"{commit}.multicast::cluster.b64 [$0], $1;", "r,h", barrier, mask)


def tmem_load_rows(address: Int32, count: int) -> list[Int32]:
    """Start to read 32 lanes x `count` columns: thread t gets all columns of lane t, as fp32 bits.

    They are there after `tmem_load_wait` (PTX ISA, "tcgen05.ld", shape .32x32b).
    """
    registers = ", ".join(f"${i}" for i in range(count))
    code = f"tcgen05.ld.sync.aligned.32x32b.x{count}.b32 {{{registers}}}, [${count}];"
    return ptx(code, "=r," * count + "r", address, results=[Int32] * count)


# Descriptors (PTX ISA, "Shared memory descriptor" and "Instruction descriptor").
# K-major operand tile, 128B swizzle (code 2 at bit 61), 1024 bytes from one group of 8 rows to the next.
OPERAND_DESCRIPTOR = 2 << 61 | 1 << 46 | (1024 >> 4) << 32 | 1 << 16
# Scale factors: no swizzle, groups of 8 rows of 16 bytes follow each other.
SF_DESCRIPTOR = 1 << 46 | (128 >> 4) << 32


def smem_descriptor(kind: int, address: Int32) -> Int64:
    return Int64(kind) | Int64(address >> 4)


def instruction_descriptor(plan: Plan, columns: int | Int32) -> int | Int32:
    """e2m1 x e2m1 with e4m3 scales, both operands K-major, M = WEIGHT_TILE per CTA, N = columns."""
    return columns >> 3 << 17 | (WEIGHT_TILE * plan.cta_group >> 4) << 24 | 1 << 10 | 1 << 7


# ---- The GEMM kernel ----


def tensor_map_address(atom: cute.CopyAtom) -> Int64:
    """Generic address of the tensor map that a TMA atom carries as a kernel parameter."""
    pointer = cute_ir.PtrType.get(cute_nvgpu_ir.TmaDescriptorTiledType.get(), cute.AddressSpace.generic, 64)
    return Int64(cute_nvgpu_ir.get_tma_desc_addr(pointer, cute_nvgpu_ir.atom_make_exec_tma(atom._trait.value)).toint())


def divide(a: Int32, b: int | Int32) -> Int32:
    """a // b of numbers that are not negative, as the hardware divides: Python's takes three times the instructions."""
    return Int32(Uint32(a) // Uint32(b))


def remainder(a: Int32, b: int | Int32) -> Int32:
    return Int32(Uint32(a) % Uint32(b))


def ahead(stage: Int32, phase: Int32, stages: int) -> tuple[Int32, Int32]:
    """The next stage and its phase."""
    wrapped = stage + 1 >= stages
    return cutlass.select_(wrapped, Int32(0), stage + 1), cutlass.select_(wrapped, phase ^ 1, phase)


@dataclass(frozen=True)
class Cta:
    """Trace-time state that all roles read. Frozen, so that the DSL does not carry it through the roles' loops."""

    plan: Plan
    smem: Int32  # base address
    cluster: Int32
    clusters: Int32
    neighbour: Int32  # which of the cluster's tiles is this CTA's
    rank: Int32  # in the pair; 0 without one
    promises: Int32
    tiles: Int32
    ms: tuple
    ns: tuple
    ks: tuple
    first_tiles: tuple  # number of each group's first tile

    first_tile = property(lambda self: self.cluster * self.plan.neighbours + self.neighbour)
    tile_step = property(lambda self: self.clusters * self.plan.neighbours)

    def of_group(self, values: tuple, tile: Int32):
        """The entry of `values` for the group that owns a tile: a chain of selects, no memory."""
        chosen = values[0]
        for group in range(1, self.plan.groups):
            chosen = cutlass.select_(tile >= self.first_tiles[group], values[group], chosen)
        return chosen

    def position(self, tile: Int32) -> tuple:
        """(first row of C^T of this CTA, first token, M of the group, True if the neighbour has the same rows)."""
        plan, m = self.plan, self.of_group(self.ms, tile)
        index = tile - self.of_group(self.first_tiles, tile)
        token_blocks = divide(m + (plan.token_tile - 1), plan.token_tile)
        block = divide(index, token_blocks)
        # Two tiles of two products share the scale factors of 128 rows. A pair's CTAs have the same half of theirs.
        atom_row = (divide(block, plan.products) * plan.cta_group + self.rank) * WEIGHT_TILE
        row = atom_row + remainder(block, plan.products) * plan.rows
        shares_weights = divide(index ^ 1, token_blocks) == block
        return row, (index - block * token_blocks) * plan.token_tile, m, shares_weights

    def columns(self, token_row: Int32, m: Int32) -> Int32:
        """N of a tile's MMAs: its tokens, rounded up."""
        return cutlass.min(divide(m - token_row + (TOKEN_STEP - 1), TOKEN_STEP) * TOKEN_STEP, self.plan.token_tile)

    def atoms(self, token_row: Int32, m: Int32) -> Int32:
        """Atoms of scale factors, for 64 of K, that a tile's tokens touch."""
        first, last = divide(token_row, 128), divide(cutlass.min(m, token_row + self.plan.token_tile) - 1, 128)
        return last - first + 1


class Gemm:
    """Host launcher and device roles for one `Plan`; see the module's docstring for roles, pipelines and maps."""

    def __init__(self, plan: Plan):
        self.plan = plan

    @cute.jit
    def load(
        self, cta: Cta, turn: Int32, weight_maps: list, token_maps: tuple, weight_scales: list, token_scales: tuple
    ):
        """Load role, one thread in each of two warps: one fills the even stages, the other, of turn 1, the odd ones.

        A stage has one thread for all its phases. With two, one could take a phase for the one before the last: commits
        may arrive in another order than they were issued, and nothing keeps a thread from overtaking the other.
        """
        plan, smem, rank = self.plan, cta.smem, cta.rank
        stage, phase = Int32(0), Int32(0)
        for tile in cutlass.range(cta.first_tile, cta.tiles, cta.tile_step, unroll=1):
            row, token_row, m, shared = cta.position(tile)
            n, k = cta.of_group(cta.ns, tile), cta.of_group(cta.ks, tile)
            token_map = cta.of_group(token_maps, tile)
            weight_map = [cta.of_group(maps, tile) for maps in weight_maps]
            # Scale factors of 128 rows are consecutive atoms, K fastest. A pair's second half may lie past N: none of
            # its products are stored, and it takes the last rows' scale factors.
            row_sf = Int64(divide(k, MMA_K)) * SF_ATOM
            first_sf = divide(cutlass.min(row, n - 1), 128) * row_sf
            weight_sf = [cta.of_group(scales, tile) + first_sf for scales in weight_scales]
            token_sf = cta.of_group(token_scales, tile) + divide(token_row, 128) * row_sf
            first_token, atoms = token_row + rank * divide(cta.columns(token_row, m), 2), cta.atoms(token_row, m)
            # Neighbours of the same weight rows load a half each, for both; others load both halves for themselves.
            mask = None
            if cutlass.const_expr(plan.neighbours == 2):
                own, both = cta.neighbour * plan.cta_group + rank, 1 | 1 << plan.cta_group
                mask = Int16(cutlass.select_(shared, both << rank, 1 << own))
            if cta.promises & OPERANDS_READY == 0:
                cute.arch.griddepcontrol_wait()

            for k_start in cutlass.range(0, k, K_TILE, unroll=1):
                if remainder(stage, LOAD_WARPS) == turn:
                    full = smem + (plan.at.full + 8 * stage)
                    weight_smem = smem + (plan.at.weights + stage * plan.weight_bytes)
                    token_smem = smem + (plan.at.tokens + stage * plan.token_bytes)
                    scale_smem = smem + (plan.at.scales + stage * plan.scale_bytes)
                    # Boxes of operands are whole, zero-filled past M, N and K; copies of scale factors end with K.
                    sf_bytes = cutlass.min(k - k_start, K_TILE) * (SF_ATOM // MMA_K)
                    sf_offset = Int64(divide(k_start, MMA_K)) * SF_ATOM
                    mbarrier_wait(smem + (plan.at.empty + 8 * stage), phase ^ 1)
                    expected = plan.weight_bytes + plan.token_bytes + (plan.products + atoms) * sf_bytes
                    mbarrier_arrive_expect_tx(full, expected)
                    piece_rows, piece_bytes = plan.rows // plan.neighbours, divide(sf_bytes, plan.neighbours)
                    for i in cutlass.range_constexpr(plan.products):
                        for piece in cutlass.range_constexpr(plan.neighbours):
                            if cutlass.const_expr(plan.neighbours == 1) or not shared or piece == cta.neighbour:
                                target = weight_smem + (i * plan.rows + piece * piece_rows) * (K_TILE // 2)
                                tma_load(mask, target, weight_map[i], k_start, row + piece * piece_rows, full)
                                target, source = scale_smem + (i * SF_STAGE), weight_sf[i] + sf_offset
                                piece_start = piece * piece_bytes
                                bulk_load(mask, target + piece_start, source + piece_start, piece_bytes, full)
                    tma_load(None, token_smem, token_map, k_start, first_token, full)
                    for atom in cutlass.range_constexpr(plan.atoms):
                        if atom < atoms:
                            atom_smem = scale_smem + (plan.products + atom) * SF_STAGE
                            bulk_load(None, atom_smem, token_sf + atom * row_sf + sf_offset, sf_bytes, full)
                stage, phase = ahead(stage, phase, plan.stages)
        # No other role waits for the last commits; they must arrive before this CTA's SMEM is given up.
        for _ in cutlass.range(plan.stages, unroll=1):
            if remainder(stage, LOAD_WARPS) == turn:
                mbarrier_wait(smem + (plan.at.empty + 8 * stage), phase ^ 1)
            stage, phase = ahead(stage, phase, plan.stages)

    @cute.jit
    def mma(self, cta: Cta, tmem: Int32):
        """MMA role, one thread: scale factors and MMAs in issue order.

        A pair's leader issues for both CTAs; the other CTA only runs `relay`. Of two products, the weights' rows 0-63
        are of the first and 64-127 of the second. Each has its atoms of 128 rows, of which the tile has one half: the
        copies overlap so that these halves come to lie side by side, in the atoms' first columns or the second ones.
        """
        plan, smem, tiles = self.plan, cta.smem, cta.tiles
        if cutlass.const_expr(plan.cta_group == 2):
            # The other CTA has no tiles here. A branch around the role instead costs its loop the uniform registers.
            tiles = cutlass.select_(cta.rank == 0, tiles, Int32(0))
        # A shared address has the CTA's rank above its 18 bits; a descriptor must not.
        local = smem & 0x3FFFF
        tile_ctas = Int16((1 << plan.cta_group) - 1 << cta.neighbour * plan.cta_group)
        cluster_ctas = Int16((1 << plan.cluster_ctas) - 1)
        stage, phase = Int32(0), Int32(0)
        accumulator, acc_phase = Int32(0), Int32(0)
        for tile in cutlass.range(cta.first_tile, tiles, cta.tile_step, unroll=1):
            row, token_row, m, _ = cta.position(tile)
            k, second_half = cta.of_group(cta.ks, tile), divide(remainder(row, WEIGHT_TILE), plan.rows)
            # Atoms cover 128 rows; an odd tile of 64 or 192 tokens begins with the second half of one, two columns on.
            atoms, half_atom = cta.atoms(token_row, m), divide(remainder(token_row, 128), 32)
            descriptor = instruction_descriptor(plan, cta.columns(token_row, m))
            d = tmem + accumulator * plan.token_tile
            for k_start in cutlass.range(0, k, K_TILE, unroll=1):
                weights = smem_descriptor(OPERAND_DESCRIPTOR, local + (plan.at.weights + stage * plan.weight_bytes))
                tokens = smem_descriptor(OPERAND_DESCRIPTOR, local + (plan.at.tokens + stage * plan.token_bytes))
                scales = smem_descriptor(SF_DESCRIPTOR, local + (plan.at.scales + stage * plan.scale_bytes))
                mbarrier_wait(smem + (plan.at.full + 8 * stage), phase)
                if k_start == 0:
                    mbarrier_wait(smem + (plan.at.acc_empty + 8 * accumulator), acc_phase ^ 1)
                tmem_fence_after_sync()
                for block in cutlass.range_constexpr(K_BLOCKS):
                    if k_start + block * MMA_K < k:
                        token_sf = tmem + (plan.token_sf_column + block * plan.atoms * SF_COLUMNS)
                        for atom in cutlass.range_constexpr(plan.atoms):
                            source = (plan.products + atom) * SF_STAGE + block * SF_ATOM >> 4
                            # A tile's second atom may lie past M; it is not loaded then.
                            wanted = atoms - atom if atom else 1
                            tcgen05_copy_sf(token_sf + atom * SF_COLUMNS, scales + source, plan, wanted)
                        weight_sf = tmem + (plan.weight_sf_column + block * plan.products * SF_COLUMNS)
                        for i in cutlass.range_constexpr(plan.products):
                            # No later copy overwrites the half that counts.
                            product = i ^ second_half
                            source = product * SF_STAGE + block * SF_ATOM >> 4
                            tcgen05_copy_sf(weight_sf + product * (SF_COLUMNS // 2), scales + source, plan)
                        scale_factors = weight_sf + second_half * (SF_COLUMNS // 2), token_sf + half_atom
                        offset, accumulate = block * MMA_K // 2 >> 4, Int32(k_start + block > 0)
                        tcgen05_mma(plan, descriptor, d, weights + offset, tokens + offset, *scale_factors, accumulate)
                if k - k_start <= K_TILE:
                    tcgen05_commit(smem + (plan.at.acc_full + 8 * accumulator), tile_ctas, plan)
                tcgen05_commit(smem + (plan.at.empty + 8 * stage), cluster_ctas, plan)
                stage, phase = ahead(stage, phase, plan.stages)
            accumulator, acc_phase = ahead(accumulator, acc_phase, plan.accumulators)
        if cutlass.const_expr(plan.cta_group == 2):
            # The other CTA's last arrivals must come before this CTA's SMEM is given up.
            for _ in cutlass.range(0 if plan.one_tile else plan.accumulators, unroll=1):
                mbarrier_wait(smem + (plan.at.acc_empty + 8 * accumulator), acc_phase ^ 1)
                accumulator, acc_phase = ahead(accumulator, acc_phase, plan.accumulators)
            self.relay(cta)

    @cute.jit
    def relay(self, cta: Cta):
        """MMA role in a pair's other CTA, one thread: tell the leader of every stage that is full here."""
        plan, smem = self.plan, cta.smem
        tiles = cutlass.select_(cta.rank == 1, cta.tiles, Int32(0))
        stage, phase = Int32(0), Int32(0)
        for tile in cutlass.range(cta.first_tile, tiles, cta.tile_step, unroll=1):
            for _ in cutlass.range(0, cta.of_group(cta.ks, tile), K_TILE, unroll=1):
                full = smem + (plan.at.full + 8 * stage)
                mbarrier_wait(full, phase)
                mbarrier_arrive(full, plan)
                stage, phase = ahead(stage, phase, plan.stages)

    @cute.jit
    def epilogue(self, cta: Cta, tmem: Int32, warp: Int32, outputs: tuple):
        """Epilogue role, one warp: its 32 weight rows of every part, `epilogue_tokens` tokens at a time.

        A thread reads one weight row and stores pairs of rows, even threads for even tokens and odd threads for odd
        ones, so that a warp writes 64 consecutive bytes of each of two tokens at once. Warps w and w + 2 have two
        products' sums of the same rows, and each stores half of the tokens. An earlier launch may still read or write
        the same C without the promise OUTPUT_FREE: stores come after its end.
        """
        plan, smem = self.plan, cta.smem
        lane = cute.arch.lane_idx()
        odd = remainder(lane, 2)
        selector = cutlass.select_(odd == 0, Int32(LOW_HALVES), Int32(HIGH_HALVES))
        # Two warps of each quarter of the lanes take chunks of tokens in turns.
        quarter, turn, product, stored = warp, 0, 0, plan.epilogue_tokens
        if cutlass.const_expr(plan.products == 2):
            quarter, turn, stored = remainder(warp, 4), divide(warp, 4), plan.epilogue_tokens // 2
            product = divide(quarter, 2)
        accumulator, acc_phase, exchanges = Int32(0), Int32(0), Int32(0)
        for tile in cutlass.range(cta.first_tile, cta.tiles, cta.tile_step, unroll=1):
            row, token_row, m, _ = cta.position(tile)
            n = cta.of_group(cta.ns, tile)
            row += remainder(quarter * WARP_ROWS, plan.rows) + lane - odd
            pitch = Int64(n) * 2  # bytes from one token to the next
            output = cta.of_group(outputs, tile) + (token_row + odd) * pitch + Int64(row) * 2
            tokens = cutlass.min(m - token_row, plan.token_tile)
            # N is even: both rows of the pair are stored, or none.
            stored_tokens = cutlass.select_(row < n, tokens - odd, Int32(0))
            source = tmem + (quarter * WARP_ROWS << 16) + accumulator * plan.token_tile
            last = divide(tokens - 1, plan.epilogue_tokens) * plan.epilogue_tokens
            mbarrier_wait(smem + (plan.at.acc_full + 8 * accumulator), acc_phase)
            tmem_fence_after_sync()
            sums = self.read(source + cutlass.min(turn * plan.epilogue_tokens, last), product)
            if cta.promises & OUTPUT_FREE == 0:
                cute.arch.griddepcontrol_wait()
            step = plan.products * plan.epilogue_tokens
            for token in cutlass.range_constexpr(0, plan.token_tile, step):
                tmem_load_wait()
                now, first = sums, token + turn * plan.epilogue_tokens
                if cutlass.const_expr(token + step < plan.token_tile):
                    sums = self.read(source + cutlass.min(first + step, last), product)
                elif cutlass.const_expr(not plan.one_tile):
                    # This warp has read the accumulator for the last time.
                    tmem_fence_before_sync()
                    cute.arch.sync_warp()
                    with cute.arch.elect_one():
                        mbarrier_arrive(smem + (plan.at.acc_empty + 8 * accumulator), plan)
                if first < tokens:
                    values = now[0]
                    if cutlass.const_expr(plan.products == 2):
                        values = self.exchange(smem, remainder(exchanges, 2), warp, product, now)
                        first += product * stored
                        exchanges += 1
                    # All shuffles before all stores: in PTX's order a store would wait for its own.
                    packed = [transpose_pair(pair, selector) for pair in map(pack_f16x2, values[::2], values[1::2])]
                    address, left = output + first * pitch, stored_tokens - first
                    for i in cutlass.range_constexpr(len(packed)):
                        store_if_positive(left - 2 * i, address + (2 * i) * pitch, packed[i])
            accumulator, acc_phase = ahead(accumulator, acc_phase, plan.accumulators)
        # One cluster is enough to keep launches ending in order; the others make room.
        if cta.cluster == 0:
            cute.arch.griddepcontrol_wait()

    def read(self, source: Int32, product: Int32) -> list[list[Int32]]:
        """Start to read `epilogue_tokens` tokens' sums of one weight row per thread, from TMEM column source on.

        Two products have two lists: of the half of the tokens that this warp stores, then of the other.
        """
        half = self.plan.epilogue_tokens // self.plan.products
        if self.plan.products == 1:
            return [tmem_load_rows(source, half)]
        return [tmem_load_rows(source + first * half, half) for first in (product, 1 - product)]

    def exchange(self, smem: Int32, turn: Int32, warp: Int32, product: Int32, sums: list[list[Int32]]) -> list[Int32]:
        """C of the tokens that this warp stores of two products, from its sums and those that the other warp sends.

        A warp writes [token / 4][lane][4]; two buffers in turns, so that one barrier is enough.
        """
        kept, sent = sums
        buffer = smem + (self.plan.at.exchange + turn * self.plan.sent_bytes + cute.arch.lane_idx() * 16)
        warp_bytes = self.plan.sent_bytes // self.plan.epilogue_warps
        quads = range(0, len(sent), 4)
        for i in quads:
            store_shared_v4(buffer + warp * warp_bytes + i * (32 * 4), *sent[i : i + 4])
        cute.arch.barrier(barrier_id=EXCHANGE_BARRIER + divide(warp, 4) * 2 + remainder(warp, 2), number_of_threads=64)
        received = [value for i in quads for value in load_shared_v4(buffer + (warp ^ 2) * warp_bytes + i * (32 * 4))]
        first = product == 0
        return [
            silu_times(cutlass.select_(first, own, other), cutlass.select_(first, other, own))
            for own, other in zip(kept, received)
        ]

    @cute.kernel
    def kernel(self, maps: tuple, addresses: tuple, sizes: tuple, tiles: Int32, promises: Int32):
        """Groups: maps of weights..., tokens; addresses of C, weight SF..., token SF; sizes M, N, K, first tile."""
        plan = self.plan
        thread, block, blocks = cute.arch.thread_idx()[0], cute.arch.block_idx()[0], cute.arch.grid_dim()[0]
        warp = cute.arch.make_warp_uniform(divide(thread, 32))
        smem = Int32(cute.arch.get_dyn_smem(cutlass.Uint8, 1024).toint())
        cluster, clusters = divide(block, plan.cluster_ctas), divide(blocks, plan.cluster_ctas)
        neighbour, rank = divide(remainder(block, plan.cluster_ctas), plan.cta_group), remainder(block, plan.cta_group)
        cta = Cta(plan, smem, cluster, clusters, neighbour, rank, promises, tiles, *sizes)
        *weight_maps, token_maps = [tuple(map(tensor_map_address, operand)) for operand in maps]
        outputs, *weight_scales, token_scales = addresses

        first_load_warp, mma_warp = plan.epilogue_warps, plan.epilogue_warps + LOAD_WARPS
        if warp == first_load_warp:
            with cute.arch.elect_one():
                self.initialise_barriers(smem, rank)
            cute.arch.sync_warp()
        # The mbarriers are set up, and a cluster's other CTAs have started.
        if cutlass.const_expr(plan.cluster_ctas > 1):
            cute.arch.cluster_arrive_relaxed(aligned=True)
        elif warp == first_load_warp:
            cute.arch.barrier_arrive(barrier_id=START_BARRIER, number_of_threads=32 * (LOAD_WARPS + 1))
        if warp == 0:
            # Maps are parameters of the launch: they may be fetched before its wait.
            with cute.arch.elect_one():
                for operand in (*weight_maps, token_maps):
                    prefetch_map(cta.of_group(operand, cta.first_tile))
        if cutlass.const_expr(plan.cluster_ctas > 1):
            cute.arch.cluster_wait()
        elif warp > first_load_warp:
            cute.arch.barrier(barrier_id=START_BARRIER, number_of_threads=32 * (LOAD_WARPS + 1))
        if warp >= first_load_warp and warp < mma_warp:
            with cute.arch.elect_one():
                self.load(cta, warp - first_load_warp, weight_maps, token_maps, weight_scales, token_scales)
            cute.arch.sync_warp()
        else:
            if warp == mma_warp:
                tmem_alloc(smem + plan.at.tmem_address, plan)
                # Not earlier: a CTA of the next launch could take this one's columns, and then wait for its end.
                cute.arch.griddepcontrol_launch_dependents()
                tmem_fence_before_sync()
            cute.arch.barrier(barrier_id=SETUP_BARRIER, number_of_threads=plan.threads - 32 * LOAD_WARPS)
            tmem_fence_after_sync()
            tmem = load_shared(smem + plan.at.tmem_address)
            if warp == mma_warp:
                with cute.arch.elect_one():
                    self.mma(cta, tmem)
                cute.arch.sync_warp()
            else:
                self.epilogue(cta, tmem, warp, outputs)
            tmem_fence_before_sync()
            cute.arch.barrier(barrier_id=TEARDOWN_BARRIER, number_of_threads=plan.threads - 32 * LOAD_WARPS)
        if cutlass.const_expr(plan.cluster_ctas > 1):
            # A cluster ends together: until then its CTAs arrive at each other's barriers, and a pair's MMAs read both.
            cute.arch.cluster_arrive_relaxed(aligned=True)
            cute.arch.cluster_wait()
        if warp == mma_warp:
            tmem_fence_after_sync()
            tmem_dealloc(load_shared(smem + plan.at.tmem_address), plan)

    def initialise_barriers(self, smem: Int32, rank: Int32):
        """One thread: a fence that a whole warp executes takes 0.4 us longer on an H200."""
        plan = self.plan
        for stage in range(plan.stages):
            # In a pair's leader also the other CTA arrives.
            mbarrier_init(smem + (plan.at.full + 8 * stage), plan.cta_group - rank)
            mbarrier_init(smem + (plan.at.empty + 8 * stage), Int32(plan.neighbours))
        for accumulator in range(plan.accumulators):
            mbarrier_init(smem + (plan.at.acc_full + 8 * accumulator), Int32(1))
            mbarrier_init(smem + (plan.at.acc_empty + 8 * accumulator), Int32(plan.epilogue_warps * plan.cta_group))
        cute.arch.mbarrier_init_fence()

    @cute.jit
    def launch(self, table: cute.Pointer):
        """Encode the tensor maps of all groups from the host table (see `TABLE_HEADER`) and launch."""
        plan = self.plan
        tensors = TABLE_TENSORS + 2 * plan.products
        words = cute.make_tensor(table, cute.make_layout(TABLE_HEADER + (TABLE_SIZES + tensors) * plan.groups))

        def operand_map(tile_rows, address, rows, k):
            pointer = cute.make_ptr(Float4E2M1FN, address, cute.AddressSpace.gmem, assumed_align=16)
            tensor = cute.make_tensor(pointer, cute.make_layout((rows, k), stride=(cute.assume(k, MMA_K), 1)))
            box = tile_rows, K_TILE
            layout = cute.make_composed_layout(cute.make_swizzle(3, 4, 3), 0, cute.make_ordered_layout(box, (1, 0)))
            return cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), tensor, layout, box)[0]

        def by_word(start, count):  # a tuple over the groups for each of a group's `count` words
            return [tuple(words[start + count * group + i] for group in range(plan.groups)) for i in range(count)]

        sizes = tuple(tuple(map(Int32, column)) for column in by_word(TABLE_HEADER, TABLE_SIZES))
        operands = by_word(TABLE_HEADER + TABLE_SIZES * plan.groups, tensors)
        weights, tokens, others = operands[: plan.products], operands[plan.products], operands[plan.products + 1 :]
        ms, ns, ks, _ = sizes
        weight_map = functools.partial(operand_map, plan.rows // plan.neighbours)
        maps = [tuple(map(weight_map, addresses, ns, ks)) for addresses in weights]
        maps.append(tuple(map(functools.partial(operand_map, plan.token_rows), tokens, ms, ks)))
        launched = self.kernel(tuple(maps), tuple(others), sizes, Int32(words[1]), Int32(words[0]))
        counts = {"grid": (Int32(words[2]), 1, 1), "block": (plan.threads, 1, 1), "cluster": (plan.cluster_ctas, 1, 1)}
        # ptxas may use all registers; without min_blocks_per_mp it aims at so few that it spills.
        launched.launch(**counts, smem=plan.at.end, use_pdl=True, min_blocks_per_mp=1)


# ---- Host side ----


def group_layouts(m: int, n: int, k: int, batch: int, products: int) -> list[tuple]:
    """(name, dtype, shape, strides) of a group's tensors in the order of the host table; products 0: a GEMV.

    Scale factors are the reordered ones. Raises ValueError for sizes that the kernel cannot take.
    """
    check_size("l", batch, 1, 1, "a batch")
    if products:
        check_size("m", m, 0, 1, "tokens")
        check_size("n", n, 8, 8, "a row of C must be a multiple of 16 bytes")
        weights, tokens = [(f"b{i}", n) for i in ([""] if products == 1 else [1, 2])], ("a", m)
    else:
        check_size("m", m, 8, 8, "rows of a; a batch entry of c must be a multiple of 16 bytes")
        check_size("rows of b", n, 1, 1, "the first counts")
        weights, tokens = [("a", m)], ("b", n)
    check_size("k", k, MMA_K, MMA_K, "one MMA's K")

    def matrix(name: str, rows: int, columns: int, dtype: torch.dtype) -> tuple:
        return name, dtype, (rows, columns, batch), (columns, 1, rows * columns)

    def scales(name: str, rows: int) -> tuple:
        blocks, pitch = ceil_div(rows, 128), k // MMA_K * SF_ATOM
        shape, strides = (32, 4, blocks, 4, k // MMA_K, batch), (16, 4, pitch, 1, SF_ATOM, blocks * pitch)
        return f"sf{name}", torch.float8_e4m3fn, shape, strides

    operands = [matrix(*each, k // 2, torch.float4_e2m1fn_x2) for each in (*weights, tokens)]
    c = matrix("c", m, n if products else 1, torch.float16)
    return [*operands, c, *(scales(*each) for each in (*weights, tokens))]


class Layouts(NamedTuple):
    """Layouts of a call's tensors, an entry for each: group by group, in the order of `group_layouts`."""

    names: list[str]  # for messages
    dtypes: list[torch.dtype]
    shapes: list[tuple[int, ...]]
    strides: list[tuple[int, ...]]  # elements; they leave no gaps
    sizes: list[int]  # bytes
    guards: dict[int, Any]  # by device, for all tensors at once: types, dtypes, devices, shapes and strides as checked


@functools.lru_cache(maxsize=1024)
def tensor_layouts(problems: Problems, products: int = 1) -> Layouts:
    """Layouts of (M, N, K, L) by group; products 0: a GEMV. Raises ValueError for sizes that the kernel cannot take."""
    rows = []
    for group, problem in enumerate(problems):
        prefix = f"group {group}: " if len(problems) > 1 else ""
        try:
            for name, dtype, shape, strides in group_layouts(*problem, products):
                rows.append((prefix + name, dtype, shape, strides, math.prod(shape) * dtype.itemsize))
        except ValueError as error:
            raise ValueError(f"{prefix}{error}") from None
    return Layouts(*([row[column] for row in rows] for column in range(5)), {})


def check_tensor(tensor: torch.Tensor, device: int, name: str, dtype, shape: tuple, strides: tuple, needed: int):
    """Raise ValueError for a dtype, shape, memory, device, strides or state that the kernel cannot take."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name} is a {type(tensor).__name__}; expected a torch.Tensor")
    if tensor.dtype != dtype:
        raise ValueError(f"{name} has dtype {tensor.dtype}; expected {dtype}")
    try:
        size, found, storage = tuple(tensor.shape), tensor.stride(), tensor.untyped_storage()
        there = max(0, storage.nbytes() - tensor.storage_offset() * dtype.itemsize) if storage.data_ptr() else 0
    except RuntimeError:  # sparse, nested, traced
        found = f"{name} is {tensor.layout}, a {type(tensor).__name__} without plain memory"
        raise ValueError(f"{found}: it has 0 bytes, {needed} needed") from None
    if size != shape:
        raise ValueError(f"{name} has shape {size}; expected {shape}")
    if tensor.is_neg():
        raise ValueError(f"{name} has torch's negative bit: its memory holds the opposite values; resolve_neg() it")
    if tensor.requires_grad:
        raise ValueError(f"{name} requires grad, and autograd sees no launch; detach() it")
    if there < needed:
        raise ValueError(f"{name} has {there} bytes of memory from its first element on; {needed} needed")
    if tensor.get_device() != device:
        raise ValueError(f"{name} is on {tensor.device}; expected the current device, cuda:{device}")
    # A stride counts only where its dimension has more than one entry; torch leaves the others open.
    if 0 not in shape and any(size > 1 and a != b for size, a, b in zip(shape, found, strides)):
        raise ValueError(f"{name} has strides {found}; expected {strides} (elements)")


class Call(NamedTuple):
    """The content of a caller's tuple: the tensors of all groups, one after the other, and (M, N, K, L) by group.

    products is 0 for a GEMV; its N is the number of rows of b, and only the first row counts.
    """

    products: int
    tensors: list[torch.Tensor]
    problems: Problems
    outputs: Any  # the return value of `solve`


def unpack(data: tuple) -> Call:
    """Tell the problems apart by the length of the tuple. Raises ValueError for another structure."""
    length = len(data) if isinstance(data, (tuple, list)) else f"a {type(data).__name__}"
    if length == 4:
        return unpack_groups(data)
    if length == 7:
        a, b, sfa, sfb, sfa_reordered, sfb_reordered, c = data
        sizes = (problem_size(a, b),)
        if isinstance(c, torch.Tensor) and c.dim() == 3 and c.shape[1] == 1:
            return Call(0, [a, b, c, sfa_reordered, sfb_reordered], sizes, c)
        return Call(1, [b, a, c, sfb_reordered, sfa_reordered], sizes, c)
    if length == 10:
        a, b1, b2, _, _, _, sfa, sfb1, sfb2, c = data
        return Call(2, [b1, b2, a, c, sfb1, sfb2, sfa], (problem_size(a, b1),), c)
    raise ValueError(
        f"expected a tuple of 4 (group GEMM), 7 (GEMM, GEMV) or 10 entries (dual GEMM), found {length}: "
        "(abc_tensors, sfasfb_tensors, sfasfb_reordered_tensors, problem_sizes), (a, b, sfa, sfb, sfa_reordered, "
        "sfb_reordered, c) or (a, b1, b2, sfa, sfb1, sfb2, sfa_reordered, sfb1_reordered, sfb2_reordered, c)"
    )


def problem_size(a: torch.Tensor, b: torch.Tensor) -> tuple[int, int, int, int]:
    """(M, N, K, L) of a [M, K/2, L] and b [N, K/2, L]. Raises ValueError unless both have 3 dimensions."""
    for name, tensor in (("a", a), ("b", b)):
        if not isinstance(tensor, torch.Tensor) or tensor.dim() != 3:
            found = tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise ValueError(f"{name} is {found}; expected a tensor of 3 dimensions")
    (m, half_k, batch), n = a.shape, b.shape[0]
    return m, n, 2 * half_k, batch


def unpack_groups(data: tuple) -> Call:
    """The group GEMM's lists. Raises ValueError for another structure, and for sizes that are no integers."""
    operands, _, reordered, problems = data
    try:
        lengths = len(operands), len(reordered), len(problems)
    except TypeError:
        names = "abc_tensors, sfasfb_tensors, sfasfb_reordered_tensors, problem_sizes"
        raise ValueError(f"expected lists over the groups in the tuple ({names})") from None
    if len(set(lengths)) > 1:
        text = "{} groups of operands, {} of reordered scales, {} of problem sizes: the lists must be of one length"
        raise ValueError(text.format(*lengths))
    tensors, sizes, outputs = [], [], []
    for group, (abc, scales, size) in enumerate(zip(operands, reordered, problems)):
        try:
            # Python's own integers: what is remembered of 64 would be found for 64.0 too, which is equal.
            (a, b, c), (sfa, sfb), (m, n, k, batch) = abc, scales, map(operator.index, size)
        except (TypeError, ValueError) as error:
            expected = "expected (a, b, c), (sfa, sfb) and (m, n, k, l), integers"
            raise ValueError(f"group {group}: {expected}; its sizes are {size}: {error}") from None
        tensors += b, a, c, sfb, sfa
        sizes.append((m, n, k, batch))
        outputs.append(c)
    return Call(1, tensors, tuple(sizes), outputs)


def check(call: Call) -> tuple[int, ...]:
    """Check every tensor of a call by itself and return their addresses, which `check_addresses` checks.

    Raises ValueError naming the group, the value, the limit and the reason.
    """
    tensors, device = call.tensors, torch.cuda.current_device()
    layouts = tensor_layouts(call.problems, call.products)
    try:
        addresses = tuple(map(torch.Tensor.data_ptr, tensors))
        there = map(torch.UntypedStorage.nbytes, map(torch.Tensor.untyped_storage, tensors))
        if any(map(torch.Tensor.storage_offset, tensors)):
            there = (size - tensor.storage_offset() * tensor.itemsize for size, tensor in zip(there, tensors))
        guard = layouts.guards.get(device)
        usual = (
            guard is not None
            and guard.check(*tensors)
            and set(map(torch.Tensor.get_device, tensors)) <= {device}
            and all(map(operator.le, layouts.sizes, there))
        )
    except (AttributeError, TypeError, RuntimeError):
        usual = False
    if not usual:
        for tensor, *expected in zip(tensors, *layouts[:-1]):
            check_tensor(tensor, device, *expected)
        with contextlib.suppress(TypeError, RuntimeError):  # another torch may have another guard, or none: None here
            layouts.guards[device] = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    return addresses


def check_addresses(addresses: tuple[int, ...], problems: Problems, products: int):
    """Raise ValueError for a tensor without an aligned address, or a c that shares bytes with another tensor."""
    names, _, _, _, sizes, _ = tensor_layouts(problems, products)
    if math.gcd(*addresses) % ALIGNMENT or 0 in addresses:
        for name, start, size in zip(names, addresses, sizes):
            if start % ALIGNMENT or (size and not start):
                found = f"{name} starts at address {start:#x}"
                raise ValueError(f"{found}; loads need a multiple of {ALIGNMENT} bytes, not 0")
    ends = list(map(operator.add, addresses, sizes))
    starts_in_order, ends_in_order = sorted(addresses), sorted(ends)
    if all(map(operator.le, ends_in_order, starts_in_order[1:])):
        return  # no tensor shares bytes with any other
    for c in [index for index, name in enumerate(names) if name.endswith("c")]:
        # Tensors that start before c's end, less those that end before its start: c and all that overlap it.
        if bisect_left(starts_in_order, ends[c]) - bisect_right(ends_in_order, addresses[c]) > 1:
            for other, name in enumerate(names):
                start, end = max(addresses[c], addresses[other]), min(ends[c], ends[other])
                if other != c and start < end:
                    both = f"{names[c]} and {name} share bytes {start:#x} to {end - 1:#x}"
                    raise ValueError(f"{both}; a c has its memory for itself, only operands may share theirs")


@functools.cache
def sm_count(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


class Launch(NamedTuple):
    """One launch: its schedule, the groups of the call in the order of its tiles, and its host table's contents."""

    schedule: Schedule
    groups: tuple[int, ...]
    words: array  # of the host table before the tensors, without promises
    tensors: operator.itemgetter  # every group's tensors among those of the call
    offsets: list[int]  # bytes from there to the batch entry; none of calls without batches


@functools.lru_cache(maxsize=1024)
def configure(
    problems: Problems, sms: int, overlapping: bool = False, products: int = 1, configurations: Configurations = None
) -> tuple[Launch, ...]:
    """Launches for groups of (M, N, K, L), each L groups: without those that have no tokens, by descending M and K.

    overlapping: it loads beside the end of the launch ahead. Raises ValueError for sizes that the kernel cannot take.
    """
    layouts, count = tensor_layouts(problems, products), TABLE_TENSORS + 2 * max(products, 1)
    every = [(group, index) for group, problem in enumerate(problems) if problem[0] for index in range(problem[3])]
    every.sort(key=lambda entry: (-problems[entry[0]][0], -problems[entry[0]][2]))
    launches = []
    for start in range(0, len(every), MAX_GROUPS):
        part = every[start : start + MAX_GROUPS]
        sizes = tuple(problems[group][:3] for group, _ in part)
        if products == 0:  # C^T of a single token
            sizes = tuple((1, m, k) for m, _, k in sizes)
        found = candidates(sizes, sms, overlapping, max(products, 1), configurations)
        if not found:
            raise ValueError(f"no configuration of {configurations} takes up to {sizes[0][0]} tokens on {sms} SMs")
        schedule = found[0]
        if schedule.tiles > LARGEST:
            raise ValueError(f"{schedule.tiles} tiles in one launch; tile numbers are 32-bit, at most {LARGEST}")
        rows = [(*size, first_tile) for size, first_tile in zip(schedule.sizes, schedule.first_tiles)]
        words = array("q", (0, schedule.tiles, schedule.ctas, *itertools.chain(*rows)))
        places = [(count * group + i, index, problems[group][3]) for group, index in part for i in range(count)]
        offsets = [layouts.sizes[tensor] // batch * index for tensor, index, batch in places]
        tensors = operator.itemgetter(*(tensor for tensor, _, _ in places))
        groups = tuple(group for group, _ in part)
        launches.append(Launch(schedule, groups, words, tensors, offsets if any(offsets) else []))
    return tuple(launches)


def host_pointer(address: int) -> cute.Pointer:
    return make_ptr(Int64, address, cute.AddressSpace.generic, assumed_align=8)


def compile_kernel(plan: Plan):
    return cute.compile(Gemm(plan).launch, host_pointer(0))


@functools.cache
def compiled(plan: Plan):
    """The compiled launcher of a plan; takes a pointer to the host table."""
    executor = compile_kernel(plan).to()
    # The arguments are converted as by a call, in a third of the time.
    return lambda pointer: executor.run_compiled_program(pointer.__c_pointers__())


def solve(
    data: tuple,
    operands_ready: bool = False,
    output_free: bool = False,
    configurations: Configurations = None,
    sms: int | None = None,
) -> output_t:
    """Compute one of the contest's problems into the caller's c and return it; for groups, the list of c.

    data: (abc_tensors, sfasfb_tensors, sfasfb_reordered_tensors, problem_sizes), a group GEMM: per group (a, b, c), the
        scales (sfa, sfb) row-major, which are not read, the same reordered, and (M, N, K, L);
        (a, b, sfa, sfb, sfa_reordered, sfb_reordered, c), a GEMM, or where c is [M, 1, L] a GEMV with the first row of
        b; or (a, b1, b2, sfa, sfb1, sfb2, sfa_reordered, sfb1_reordered, sfb2_reordered, c), a dual GEMM.
        a [M, K/2, L] and b [N, K/2, L] float4_e2m1fn_x2, c [M, N, L] float16, reordered scales
        [32, 4, ceil(rows/128), 4, K/64, L] float8_e4m3fn. M >= 0, N a multiple of 8 (a GEMV's M is), K of 64: integers
        of any type, bool included. All but the row-major scales are on the current device. A c shares memory with no
        other of these tensors; operands may share theirs.
    The kernel waits for all work ahead of it in the queue before it loads operands and before it stores c, unless the
    caller promises that it need not. Waited for: the host has synchronised, or an ordinary launch, one without the
    programmatic attribute, stands in between. Work just ahead of the call has not been waited for, even if nothing can
    start beside it: its writes may come late (NVIDIA/cccl#9134). Nor have earlier calls: several can still be running.
    operands_ready: True if whatever has written operands of this call has been waited for.
    output_free: True if whatever has read or written c has been waited for.
    configurations, sms: for tests and tools, the configurations to choose among and the SMs to plan for.
    Launches on the device's default queue and returns at once; launches nothing where every group is empty.
    Raises ValueError before any launch where a constraint does not hold, TypeError for a promise that is no bool.
    """
    if {type(operands_ready), type(output_free)} != {bool}:
        found = f"operands_ready is {operands_ready!r}, output_free is {output_free!r}"
        raise TypeError(f"{found}; a promise is True or False")
    call = unpack(data)
    promises = operands_ready * OPERANDS_READY | output_free * OUTPUT_FREE
    sms = sm_count(torch.cuda.current_device()) if sms is None else sms
    addresses = check(call)
    check_addresses(addresses, call.problems, call.products)
    for launch in configure(call.problems, sms, operands_ready, call.products, configurations):
        tensors = launch.tensors(addresses)
        if launch.offsets:
            tensors = map(operator.add, tensors, launch.offsets)
        table = launch.words + array("q", tensors)
        table[0] = promises
        compiled(launch.schedule.plan)(host_pointer(table.buffer_info()[0]))
    return call.outputs


def custom_kernel(data: input_t) -> output_t:
    """The contest's entry point. It promises nothing: a call is right behind any kernel, copy or harness."""
    return solve(data)
