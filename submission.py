#!POPCORN leaderboard nvfp4_group_gemm
#!POPCORN gpu B200
"""NVFP4 block-scaled GEMMs and GEMV for NVIDIA B200 (sm_100a) in CuTe DSL, behind one `solve`:

    group GEMM    for every group of a call, with its own M, N and K, batches likewise
                  C[M, N] (fp16) = (A[M, K] * SFA[M, K/16]) @ (B[N, K] * SFB[N, K/16])^T
    dual GEMM     silu(A @ B1^T) * (A @ B2^T), scaled in the same way, both products in one pass over A
    GEMV          for every batch A @ b^T with a single row b

Accumulation and silu are fp32, with one rounding at the end. One warp-specialised kernel computes the group GEMM, the
GEMM and the dual GEMM; the GEMV has a kernel of its own, described last.

A and B hold e2m1 values, two per byte; every 16 consecutive K elements share one e4m3 scale. In the contest's shapes
B is the weight matrix (thousands of rows) and A the tokens of one expert (tens to hundreds), so the operands are
swapped on the tensor core: weights take the MMA's M side, always 128 rows per CTA, and tokens its N side, whose width
can follow the problem. The accumulator is C^T: TMEM lanes are weight rows, TMEM columns are tokens.

Work: a tile is 128 weight rows (256 of a pair) x 64 to 256 tokens of one group over all its K, in k-tiles of 256
elements. Tiles are numbered group by group, largest M first, token blocks of the same weight rows next to each other,
so that CTAs that run side by side share a weight tile in L2. Cluster i of n takes tiles i, i + n, ...: nothing is
looked up in memory. A tile of 256 tokens is two parts of 128, an accumulator each; a part without tokens costs nothing.
An MMA multiplies only the tokens that its part has, rounded up to 64.

Residence: one persistent CTA per SM runs all its tiles, and the epilogue of one tile runs beside the loads of the next.
Or two CTAs share an SM, each for one tile only, and one CTA's epilogue runs beside the next CTA's loads. With split K
a CTA has an SM for itself, and one tile.

Split K, for calls in turn that have few tiles: a cluster has two or four MMAs (split-K ranks), and each multiplies a
part of the tile's K. At the end every rank stores a part of the tile's tokens: the other ranks send it their sums for
those tokens, into SMEM that its stages no longer need.

Pairs (cta_group 2): two CTAs of a cluster share a tile. Each loads its own 128 weight rows, half of every part's tokens
and all scale factors that it needs; the leader (even CTA) issues every MMA for both, and each stores its own half of
C. Loads count on the barriers of the CTA they go to; the other CTA tells the leader when a stage is full, and the
leader's commits arrive in both.

Overlap: every launch lets the next one start as soon as its CTAs have their TMEM; a GEMV does so at once. The next
launch's CTAs set themselves up wherever there is room. As far as the caller promises that it is safe, they load,
compute and store before the end of the launch ahead. Launches always end in order.

Roles (192 threads)
    warp    role        work
    0-3     epilogue    accumulator -> fp16 -> C, from registers; warp w owns TMEM lanes 32w..32w+31
    4       load        one thread: sets up barriers and starts at once, before TMEM and a pair's other CTA are ready;
                        operand tiles by tensor map, scale factors by plain bulk copies
    5       MMA         TMEM allocation; one thread: scale factors SMEM -> TMEM, MMAs, commits; in a pair's other CTA:
                        tells the leader of full stages

Pipelines (mbarriers; stage and phase are carried across tiles and never reset)
    edge                barrier      in              arrivals per phase                          depth
    load -> MMA         full         every CTA       1 with the stage's bytes; in a pair's       stages
                                                     leader 1 more, from the other CTA
    MMA -> load         empty        every CTA       1, by tcgen05.commit                        stages
    MMA -> epilogue     acc_full     every CTA       1, by tcgen05.commit                        accumulators
    epilogue -> MMA     acc_empty    leader          4 per CTA, one per epilogue warp; none      accumulators
                                                     where a CTA has one tile only

SMEM of a CTA (bytes from a base that is a multiple of 1024; P = products, T = token_tile / cta_group, A = atoms of 128
tokens)
    stages x  weights   P x 128 x 128  e2m1 [product][row][256 of K], 128B swizzle
    stages x  tokens    T x 128        e2m1 [part][row][256 of K], 128B swizzle
    stages x  SF        (P + A) x 2048 weights', then tokens' scale factors: 4 atoms of 128 rows x 64 of K each
              barriers  8 each, then the TMEM base address
    split K, after the last MMA, from 0 on: the other ranks' sums, fp32 [sender][product][token / 4][row][4]

TMEM holds the accumulators and the scale factors of one k-tile; `Plan` has the map of its columns.

Tensor maps (per group: weights, tokens) are encoded by the JIT-compiled host code from a table of pointers and
sizes and travel by value as kernel parameters: no workspace, no device-side edits, no copies. A reordered scale tensor
already is a sequence of the 512-byte atoms that `tcgen05.cp` reads, so its k-tile is one contiguous copy.

GEMV: CUDA cores read every byte of A and of its scales once and use it once. A launch has as
many CTAs per batch as run at once, if every team has a row, and more where a CTA would have more than 256 rows; each
takes consecutive rows, equally many but for one. The CTA's warps form one team along K or, where K is short, several
teams that take the rows in turns. A lane owns 2 blocks of 16 elements: it converts its part of b once, into
registers, and from then on reads nothing but A and its row-major scales, 18 bytes per row, four rows ahead:
up to 73,728 bytes in flight per SM. Where K ends inside a warp, its last lanes repeat the last part of the row, with
zeros for b's scales; where K is longer than a team, the team goes round again. Products of e2m1 are exact in f16x2,
each half a sum of 8 (at most 8 x 36, multiples of 1/4); one fp32 FMA per block multiplies their sum by both scales.
Lanes add up in a butterfly, warps through SMEM ([row][warp of the team], fp32), always in the same order.
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
from cutlass import Float4E2M1FN, Float32, Int16, Int32, Int64, cute
from cutlass._mlir.dialects import cute as cute_ir
from cutlass._mlir.dialects import cute_nvgpu as cute_nvgpu_ir
from cutlass._mlir.dialects import llvm
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_ptr

from task import input_t, output_t

try:  # what torch guards compiled functions by; not public
    from torch._C._dynamo.guards import TensorGuards
except ImportError:
    TensorGuards = None

# ----------------------------------------------------------------------------------------------------------------------
# Constants of the data format and of the hardware
# ----------------------------------------------------------------------------------------------------------------------

WEIGHT_TILE = 128  # rows of B per tile: the M of a 1-SM block-scaled MMA
K_TILE = 256  # elements of K per stage: 128 bytes of e2m1, the span of the 128B swizzle
MMA_K = 64  # elements of K per tcgen05.mma.kind::mxf4nvf4
K_BLOCKS = K_TILE // MMA_K
SF_ATOM = 512  # bytes of scale factors of 128 rows x 64 of K
SF_STAGE = K_BLOCKS * SF_ATOM
SF_COLUMNS = 4  # TMEM columns that one atom fills (32 lanes x 4 columns x 4 bytes)

EPILOGUE_WARPS, LOAD_WARP, MMA_WARP = 4, 4, 5  # the epilogue's number, the others' places
THREADS = 32 * 6
TOKEN_STEP = 64  # N of every MMA, and a tile's first token, is a multiple
MMA_TOKENS = 192  # the widest part of a tile; two such accumulators and all scale factors fit TMEM
TOKEN_TILES = (64, 128, 192, 256)
K_SPLITS = (1, 2, 4)
CTA_GROUPS = CTAS_PER_SM = PRODUCTS = (1, 2)
PAIR = 0b11  # mask of both CTAs of a cluster's first pair
LEADER_MASK = 0xFEFFFFFF  # clears the rank bit of a shared address: the same place in the even CTA of the pair
SETUP_BARRIER, TEARDOWN_BARRIER = 1, 2  # named barriers; 0 is the CTA's
LOW_HALVES, HIGH_HALVES = 0x5410, 0x3276  # prmt selectors: low halves of both operands; high ones, the second first
WARP_ROWS = 32  # weight rows of an epilogue warp: the TMEM lanes that it can read
SUM_BYTES = 16  # four tokens' fp32 sums: one store between split-K ranks
EPILOGUE_REGISTERS = 32  # accumulator columns that an epilogue thread reads from TMEM at once

SM_SMEM = 228 * 1024  # bytes per SM; every resident CTA takes SMEM_RESERVED more than it asks for
SMEM_RESERVED = 1024
TMEM_COLUMNS = 512  # per SM
PARAMETER_BYTES = 32764  # kernel parameters per launch (PTX ISA, "Kernel Function Parameters")
TENSOR_MAP_BYTES = 128

ALIGNMENT = 16  # bytes; every tensor's address is a multiple

OPERANDS_READY, OUTPUT_FREE = 1, 2  # a caller's promises, see `solve`

# The host table, int64 words: promises, tiles, CTAs; per group M, N, K, first tile; per group its `tensor_names`.
TABLE_HEADER, TABLE_SIZES = 3, 4

# GEMV.
SF_BLOCK = 16  # elements of K that share a scale
BLOCK_BYTES = SF_BLOCK // 2
LANE_BLOCKS = 2  # blocks of K per lane and row: one load of 16 bytes, and one of 2 scales
ROW_WORDS = LANE_BLOCKS * BLOCK_BYTES // 4 + 1  # 32-bit words of a lane and row, scales last
WARP_BLOCKS = 32 * LANE_BLOCKS
ROWS_AT_ONCE = 2  # rows of a warp that one butterfly adds up, one in each half of the lanes
ROWS_AHEAD = 2 * ROWS_AT_ONCE  # rows of a warp in flight
WARPS = 32  # per CTA, at most; one CTA per SM, so 64 registers per thread
ROWS_MAX = 256  # rows per CTA, at most
BATCHES_MAX = 65535  # the most that a grid's y dimension takes

# Its host table, int64 words: promises, M, K / SF_BLOCK, rows of b, rows per CTA, CTAs per batch, batches; addresses.
GEMV_HEADER, GEMV_TENSORS = 7, 5

LARGEST = 2**31 - 2**12  # sizes and tile numbers are 32-bit in the kernel, which adds a tile or a grid to them


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def check_size(name: str, value: int, least: int, multiple: int, reason: str, most: int = LARGEST):
    if not least <= value <= most or value % multiple:
        raise ValueError(f"{name} is {value}; it must be {least} to {most}, a multiple of {multiple}: {reason}")


# ----------------------------------------------------------------------------------------------------------------------
# Plans
# ----------------------------------------------------------------------------------------------------------------------

Sizes = tuple[tuple[int, int, int], ...]  # (M, N, K) by group
Problems = tuple[tuple[int, int, int, int], ...]  # (M, N, K, L) by group, a batch of L each

# Byte offsets in SMEM; `end` is its size.
SmemMap = namedtuple("SmemMap", "weights tokens scales full empty acc_full acc_empty tmem_address end")

derived = functools.cached_property


class Configuration(NamedTuple):
    """The part of a `Plan` that a launch's sizes do not fix: `candidates` chooses it."""

    token_tile: int
    cta_group: int  # CTAs that share one MMA, and so a tile
    ctas_per_sm: int  # CTAs that fit an SM at once: 1 for many tiles each (split K: one), 2 for one each
    k_split: int  # MMAs of a cluster, its split-K ranks, that each multiply a part of a tile's K


Configurations = tuple[Configuration, ...] | None  # the configurations to choose among; None: all that are legal


@dataclass(frozen=True)
class Plan:
    """Everything about the GEMM kernel that is fixed at compile time; for the first fields see `Configuration`."""

    groups: int
    token_tile: int = 128
    cta_group: int = 1
    ctas_per_sm: int = 1
    k_split: int = 1
    products: int = 1  # weights that share the tokens: C = A @ B^T, or C = silu(A @ B1^T) * (A @ B2^T)

    def __post_init__(self):
        allowed = TOKEN_TILES, CTA_GROUPS, CTAS_PER_SM, K_SPLITS, PRODUCTS
        for name, values in zip((*Configuration._fields, "products"), allowed):
            if getattr(self, name) not in values:
                raise ValueError(f"{name} is {getattr(self, name)}; the kernel is written for {values}")
        if not 1 <= self.groups <= max_groups(self.products):
            raise ValueError(f"{self.groups} groups; the kernel parameters hold 1 to {max_groups(self.products)}")
        needed = self.parts * self.accumulator_columns + self.sf_columns
        if needed > self.tmem_columns:
            raise ValueError(
                f"a tile of {self.token_tile} tokens and {self.products} products needs {needed} TMEM columns; a CTA's "
                f"share at {self.ctas_per_sm} per SM is {self.tmem_columns}"
            )
        if self.k_split > 1 and (self.parts > 1 or self.share_tokens % self.epilogue_tokens):
            raise ValueError(
                f"{self.k_split} shares of K with tiles of {self.token_tile} tokens; a share adds up "
                f"{self.share_tokens} tokens, which must be a multiple of {self.epilogue_tokens} of one part"
            )

    cluster_ctas = derived(lambda self: self.cta_group * self.k_split)
    # Not persistent: one tile per CTA, assigned by the block scheduler, before any tile of the next launch.
    one_tile = derived(lambda self: self.ctas_per_sm > 1 or self.k_split > 1)

    # A tile has one or two parts, each with an accumulator and MMAs of its own.
    parts = derived(lambda self: ceil_div(self.token_tile, MMA_TOKENS))
    part_tokens = derived(lambda self: self.token_tile // self.parts)
    part_atoms = derived(lambda self: ceil_div(self.part_tokens, 128))  # atoms of scale factors per 64 of K
    # Token rows of a part in one CTA's SMEM: the CTAs of a pair hold half of the MMA's N side each.
    token_rows = derived(lambda self: self.part_tokens // self.cta_group)

    weight_bytes = WEIGHT_TILE * K_TILE // 2
    part_token_bytes = derived(lambda self: self.token_rows * K_TILE // 2)
    token_bytes = derived(lambda self: self.parts * self.part_token_bytes)
    scale_bytes = derived(lambda self: (self.products + self.parts * self.part_atoms) * SF_STAGE)
    stage_bytes = derived(lambda self: self.products * self.weight_bytes + self.token_bytes + self.scale_bytes)
    smem_capacity = derived(lambda self: SM_SMEM // self.ctas_per_sm - SMEM_RESERVED)
    fixed_bytes = derived(lambda self: 16 * (self.accumulators + 1))
    stages = derived(lambda self: (self.smem_capacity - self.fixed_bytes) // (self.stage_bytes + 16))

    # Columns of TMEM (512, or 256 with two CTAs per SM; P = products, E = accumulators x P x tokens of a part):
    #     0 .. E-1        accumulators [accumulator][product][token]; two if they fit and the CTA has a next tile
    #     E .. E+16P-1    weights' scale factors of one k-tile [product][64 of K], 4 columns each
    #     E+16P ..        tokens' scale factors [part][64 of K][atom], 4 columns each
    tmem_columns = derived(lambda self: TMEM_COLUMNS // self.ctas_per_sm)
    sf_columns = derived(lambda self: self.scale_bytes // SF_ATOM * SF_COLUMNS)
    accumulator_columns = derived(lambda self: self.products * self.part_tokens)
    two_fit = derived(lambda self: 2 * self.accumulator_columns + self.sf_columns <= self.tmem_columns)
    accumulators = derived(lambda self: 2 if self.two_fit and not self.one_tile else 1)
    weight_sf_column = derived(lambda self: self.accumulators * self.accumulator_columns)
    token_sf_column = derived(lambda self: self.weight_sf_column + self.products * K_BLOCKS * SF_COLUMNS)

    # Tokens that the epilogue reads from TMEM at once; tokens of a tile that a split-K rank stores.
    epilogue_tokens = derived(lambda self: EPILOGUE_REGISTERS // self.products)
    share_tokens = derived(lambda self: self.part_tokens // self.k_split)
    share_bytes = derived(lambda self: self.products * self.share_tokens * WEIGHT_TILE * 4)  # fp32 sums of one rank

    @functools.cached_property
    def at(self) -> SmemMap:
        """Byte offsets of the regions of SMEM, one after the other."""
        parts = (
            self.stages * self.products * self.weight_bytes,
            self.stages * self.token_bytes,
            self.stages * self.scale_bytes,
            *(8 * self.stages, 8 * self.stages, 8 * self.accumulators, 8 * self.accumulators),
            16,
        )
        return SmemMap(*itertools.accumulate(parts, initial=0))


@functools.cache
def max_groups(products: int) -> int:
    """Groups that fit one launch's parameters: maps, addresses, four integers each; and two of the launch, padded."""
    of_group = (products + 1) * TENSOR_MAP_BYTES + (products + 2) * 8 + 4 * 4
    return (PARAMETER_BYTES - TENSOR_MAP_BYTES) // of_group


@functools.cache
def shapes(products: int = 1) -> list[Configuration]:
    """Every legal configuration: its accumulators fit TMEM."""
    found = []
    for shape in map(Configuration._make, itertools.product(TOKEN_TILES, CTA_GROUPS, CTAS_PER_SM, K_SPLITS)):
        # Split K only at one CTA per SM: with two, overlapping launches already fill the chip.
        if shape.ctas_per_sm == 1 or shape.k_split == 1:
            with contextlib.suppress(ValueError):
                Plan(1, *shape, products)
                found.append(shape)
    return found


class Amounts(NamedTuple):
    """What schedules of the same sizes differ in; times the microseconds that each costs, the choice adds them up."""

    pairs: float  # 1 for a launch of pairs
    pair_ctas: float  # CTAs of pairs per SM
    pair_k_tiles: float  # k-tiles of the busiest SM that a pair hands over
    alone: float  # CTAs per SM that have it for themselves: no loads between the end of one and the start of the next
    split: float  # CTAs of a split K per SM: they wait for each other, and leave no SM to the next launch
    exchanged: float  # MB of sums that the busiest SM of a split K gets
    fill: float  # microseconds of all loads at the rate of FILL_RATES
    turns: float  # of the busiest SM's ring of stages
    tiles: float  # of the busiest SM
    tokens: float  # hundreds in a CTA's last epilogue, of all products
    share: float  # MB of operands for each CTA at work


# Fitted to `python -m tools.choice` on an H200.
OVERLAPPING = Amounts(0.19, 0.197, 0, 0.575, 2.21, 0, 0.617, 0.083, 0.039, 0, 0)
IN_TURN = Amounts(0.393, 0, 0.0324, 0, 2.6, 43.7, 0.399, 0.598, 0.56, 0.587, 5.12)
HOPPER_SMS = 144  # at most; a B200 has 148
FILL_RATES = 73e3, 130e3  # bytes per microsecond that L2 gives each SM of a Hopper, of a B200


@dataclass(frozen=True)
class Schedule:
    """A launch's tiles and CTAs: the pure-Python twin of the kernel's own arithmetic."""

    plan: Plan
    sizes: Sizes  # no group is empty; in the order in which the tiles are numbered
    sm_count: int

    @functools.cached_property
    def first_tiles(self) -> tuple[int, ...]:
        """Number of the first tile of each group, and last the number of tiles."""
        rows, tokens = WEIGHT_TILE * self.plan.cta_group, self.plan.token_tile
        tiles = (ceil_div(n, rows) * ceil_div(m, tokens) for m, n, _ in self.sizes)
        return tuple(itertools.accumulate(tiles, initial=0))

    tiles = derived(lambda self: self.first_tiles[-1])
    # Clusters that run at once, at most: the GPU's grouping of SMs may leave some without a neighbour.
    slots = derived(lambda self: self.sm_count * self.plan.ctas_per_sm // self.plan.cluster_ctas)
    clusters = derived(lambda self: self.tiles if self.plan.one_tile else min(self.tiles, self.slots))
    ctas = derived(lambda self: self.clusters * self.plan.cluster_ctas)

    @functools.cached_property
    def amounts(self) -> Amounts:
        plan, sms, filled, operands = self.plan, self.sm_count, 0, 0
        for m, n, k in self.sizes:
            rows, parts = ceil_div(n, WEIGHT_TILE * plan.cta_group), ceil_div(m, plan.part_tokens)
            weights = ceil_div(m, plan.token_tile) * plan.products * (plan.weight_bytes + SF_STAGE)
            tokens = parts * (plan.part_token_bytes + plan.part_atoms * SF_STAGE)
            filled += rows * plan.cta_group * ceil_div(k, K_TILE) * (weights + tokens)
            operands += (plan.products * n + m) * k * (SF_BLOCK // 2 + 1) // SF_BLOCK
        ctas = self.tiles * plan.cluster_ctas
        tiles = ceil_div(self.tiles, max(1, sms // plan.cluster_ctas))
        k_tiles = tiles * ceil_div(ceil_div(max(k for _, _, k in self.sizes), K_TILE), plan.k_split)
        pair, split, alone = plan.cta_group == 2, plan.k_split > 1, plan.ctas_per_sm == 1
        return Amounts(
            pairs=pair,
            pair_ctas=pair * ctas / sms,
            pair_k_tiles=pair * k_tiles,
            alone=alone * ctas / sms,
            split=split * ctas / sms,
            exchanged=split * tiles * (plan.k_split - 1) * plan.share_bytes / 1e6,
            fill=filled / sms / FILL_RATES[sms > HOPPER_SMS],
            turns=k_tiles / plan.stages,
            tiles=tiles,
            tokens=min(max(m for m, _, _ in self.sizes), plan.token_tile) * plan.products / plan.k_split / 100,
            share=operands / min(ctas, sms) / 1e6,
        )

    def cost(self, overlapping: bool = False) -> float:
        """Modelled microseconds, but for what all schedules of the same sizes have in common."""
        return sum(map(operator.mul, self.amounts, OVERLAPPING if overlapping else IN_TURN))


def candidates(
    sizes: Sizes, sms: int, overlapping: bool = False, products: int = 1, configurations: Configurations = None
) -> list[Schedule]:
    """The schedules of the configurations whose clusters fit the chip and whose K splits into k-tiles, best first.

    Ties go to the first in `shapes`.
    """
    plans = [Plan(len(sizes), *shape, products) for shape in configurations or shapes(products)]
    k_tiles = min(ceil_div(k, K_TILE) for _, _, k in sizes)
    possible = [plan for plan in plans if plan.cluster_ctas <= sms and plan.k_split <= k_tiles]
    schedules = [Schedule(plan, sizes, sms) for plan in possible]
    return sorted(schedules, key=lambda schedule: schedule.cost(overlapping))


@dataclass(frozen=True)
class GemvPlan:
    """Everything about the GEMV kernel that is fixed at compile time."""

    k_warps: int  # warps of a team, side by side along K; each must have some of it
    warps: int = WARPS  # limit per CTA: as many teams as fit

    def __post_init__(self):
        check_size("warps", self.warps, 1, 1, "a thread has 64 registers", WARPS)
        check_size("k_warps", self.k_warps, 1, 1, "a team is part of one CTA", self.warps)

    teams = derived(lambda self: self.warps // self.k_warps)
    threads = derived(lambda self: 32 * self.k_warps * self.teams)
    team_blocks = derived(lambda self: self.k_warps * WARP_BLOCKS)
    smem_bytes = derived(lambda self: 4 * ROWS_MAX * self.k_warps)


def gemv_plan(k: int) -> GemvPlan:
    """The plan for K: a team with the fewest rounds over K and, among those, the fewest warps."""
    warps = ceil_div(k, WARP_BLOCKS * SF_BLOCK)
    return GemvPlan(ceil_div(warps, ceil_div(warps, WARPS)))


def ctas_per_batch(plan: GemvPlan, m: int, batches: int, sms: int) -> int:
    """CTAs that share a batch's rows: all that run at once, if every team has a row; more past ROWS_MAX rows each."""
    return max(min(max(1, sms // batches), ceil_div(m, plan.teams)), ceil_div(m, ROWS_MAX))


# ----------------------------------------------------------------------------------------------------------------------
# PTX instructions, one function each. Shared addresses are 32-bit integers, tensor maps 64-bit ones.
# ----------------------------------------------------------------------------------------------------------------------


def ptx(code: str, constraints: str, *operands, results: Sequence = ()) -> list:
    """Emit one block of PTX; $0, $1, ... are the results, whose types are given, then the operands."""
    types = [kind.mlir_type for kind in results]
    returned = llvm.StructType.get_literal(types) if len(types) > 1 else next(iter(types), None)
    values = [operand.ir_value() for operand in operands]
    dialect = llvm.AsmDialect.AD_ATT
    found = llvm.inline_asm(returned, values, code, constraints, has_side_effects=True, asm_dialect=dialect)
    if len(types) > 1:
        return [kind(llvm.extractvalue(kind.mlir_type, found, [i])) for i, kind in enumerate(results)]
    return [kind(found) for kind in results]


def instruction(code: str, constraints: str = "", *results):
    """A function that emits this PTX with its arguments as operands and returns the result, or the list of several."""

    def emit(*operands):
        found = ptx(code, constraints, *operands, results=results)
        return found[0] if len(results) == 1 else found

    return emit


# Barriers.
mbarrier_arrive_expect_tx = instruction("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r")
mbarrier_init = instruction("mbarrier.init.shared::cta.b64 [$0], $1;", "r,r")
# Makes initialised mbarriers visible to the async proxy and the cluster (PTX ISA, "membar/fence").
fence_mbarrier_init = instruction("fence.mbarrier_init.release.cluster;")
# Relaxed: `fence_mbarrier_init` has released the barriers, and the arrival need not wait for other memory traffic.
cluster_arrive = instruction("barrier.cluster.arrive.relaxed.aligned;")
cluster_arrive_release = instruction("barrier.cluster.arrive.release.aligned;")
cluster_wait = instruction("barrier.cluster.wait.acquire.aligned;")
# Named barriers: set-up takes all warps, and the load warp does not wait; teardown takes all but the load warp.
setup_arrive = instruction(f"bar.arrive {SETUP_BARRIER}, {THREADS};")
setup_sync = instruction(f"bar.sync {SETUP_BARRIER}, {THREADS};")
teardown_sync = instruction(f"bar.sync {TEARDOWN_BARRIER}, {THREADS - 32};")
# Barrier, parity: wait for the end of the phase of this parity; on a fresh barrier parity 1 passes at once.
mbarrier_wait = instruction(
    "{\n\t.reg .pred done;\n\tWAIT:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n\t"
    "@done bra DONE;\n\tbra WAIT;\n\tDONE:\n\t}",
    "r,r",
)

# Wait for the end of the launch ahead; its writes are visible then (PTX ISA, "griddepcontrol").
grid_wait = instruction("griddepcontrol.wait;")
# Let the next launch start, wherever there is room, once every CTA of this one has executed it.
grid_launch_dependents = instruction("griddepcontrol.launch_dependents;")

# Bulk copies.
prefetch_map = instruction("prefetch.tensormap [$0];", "l")  # tensor map
tma_load = instruction(  # SMEM, tensor map, column, row, barrier
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$0], [$1, {$2, $3}], [$4];",
    "r,l,r,r,r",
)
bulk_load = instruction(  # SMEM, address, bytes, barrier
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];", "r,l,r,r"
)

# Order tcgen05 work after this thread's last wait, and before its next arrival.
tmem_fence_after_sync = instruction("tcgen05.fence::after_thread_sync;")
tmem_fence_before_sync = instruction("tcgen05.fence::before_thread_sync;")
tmem_load_wait = instruction("tcgen05.wait::ld.sync.aligned;")

# SMEM. `cluster_address` takes an address and the rank of the CTA of the cluster that has the same place.
cluster_address = instruction("mapa.shared::cluster.u32 $0, $1, $2;", "=r,r,r", Int32)
store_shared_cluster = instruction(
    "st.shared::cluster.v4.b32 [$0], {$1, $2, $3, $4};",  # sanitizer: allow completion: see `exchange`
    "r,r,r,r,r",
)
load_shared = instruction("ld.shared.b32 $0, [$1];", "=r,r", Int32)
load_shared_f32 = instruction("ld.shared.f32 $0, [$1];", "=f,r", Float32)
load_shared_f32x4 = instruction("ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];", "=f,=f,=f,=f,r", *[Float32] * 4)
store_shared_f32 = instruction("st.shared.f32 [$0], $1;", "r,f")

# The epilogue's arithmetic, on fp32 as bits; `add_f32` adds another split-K rank's sum as it was loaded.
add_f32 = instruction("add.f32 $0, $1, $2;", "=r,r,f", Int32)
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

# The GEMV's arithmetic: eight e2m1 values to four f16x2 of neighbours, lower one first; two e4m3 values to fp32.
unpack_e2m1 = instruction(
    "{\n\t.reg .b8 x<4>;\n\tmov.b32 {x0, x1, x2, x3}, $4;\n\tcvt.rn.f16x2.e2m1x2 $0, x0;\n\t"
    "cvt.rn.f16x2.e2m1x2 $1, x1;\n\tcvt.rn.f16x2.e2m1x2 $2, x2;\n\tcvt.rn.f16x2.e2m1x2 $3, x3;\n\t}",
    "=r,=r,=r,=r,r",
    *[Int32] * 4,
)
unpack_e4m3 = instruction(
    "{\n\t.reg .b16 x, low, high;\n\t.reg .b32 pair;\n\tcvt.u16.u32 x, $2;\n\tcvt.rn.f16x2.e4m3x2 pair, x;\n\t"
    "mov.b32 {low, high}, pair;\n\tcvt.f32.f16 $0, low;\n\tcvt.f32.f16 $1, high;\n\t}",
    "=f,=f,r",
    *[Float32] * 2,
)
# Dot product of 8 f16x2 and 8 f16x2: each half's sum in fp16, then both halves in fp32.
block_product = instruction(
    "{\n\t.reg .b32 pair;\n\t.reg .b16 low, high;\n\t.reg .f32 x, y;\n\tmul.rn.f16x2 pair, $1, $9;\n\t"
    + "".join(f"fma.rn.f16x2 pair, ${1 + i}, ${9 + i}, pair;\n\t" for i in range(1, 8))
    + "mov.b32 {low, high}, pair;\n\tcvt.f32.f16 x, low;\n\tcvt.f32.f16 y, high;\n\tadd.rn.f32 $0, x, y;\n\t}",
    "=f" + ",r" * 16,
    Float32,
)
fma = instruction("fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", Float32)
# Address, value: rounded to nearest even.
store_f16 = instruction("{\n\t.reg .b16 h;\n\tcvt.rn.f16.f32 h, $1;\n\tst.global.b16 [$0], h;\n\t}", "l,f")

# Load a lane's part of a row, words of e2m1 and one word of e4m3 scales, if the first operand is positive; otherwise
# return the given words. No byte is read twice, so L1 is passed by.
load_row = instruction(  # wanted, address of values, of scales, words
    "{\n\t.reg .pred p;\n\tsetp.gt.s32 p, $5, 0;\n\t"
    "@p ld.global.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$6];\n\t"
    "@p ld.global.L1::no_allocate.b16 $4, [$7];\n\t}",
    "=r," * ROW_WORDS + "r,l,l," + ",".join(map(str, range(ROW_WORDS))),
    *[Int32] * ROW_WORDS,
)


def exchange(value: Float32, distance: int) -> Float32:
    """The value of the lane whose number differs in this bit."""
    return ptx(f"shfl.sync.bfly.b32 $0, $1, {distance}, 31, -1;", "=f,f", value, results=[Float32])[0]


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


def tcgen05_mma(plan: Plan, shape: Int32, *operands):
    """D[TMEM] (+)= A @ B; operands: D, descriptors of A and B, TMEM columns of their scale factors, accumulate."""
    ptx(
        f"{{\n\t.reg .pred p;\n\tsetp.ne.b32 p, $5, 0;\n\ttcgen05.mma.cta_group::{plan.cta_group}.kind::mxf4nvf4"
        ".block_scale.block16 [$0], $1, $2, $6, [$3], [$4], p;\n\t}",
        *("r,l,l,r,r,r,r", *operands, shape),
    )


def tcgen05_commit(barrier: Int32, pair: Int16, plan: Plan):
    """Arrive once in every CTA of the pair when all tcgen05 work issued by this thread so far has finished."""
    commit = f"tcgen05.commit.cta_group::{plan.cta_group}.mbarrier::arrive::one.shared::cluster"
    if plan.cta_group == 1:
        ptx(f"{commit}.b64 [$0];", "r", barrier)
    else:
        ptx(f"{commit}.multicast::cluster.b64 [$0], $1;", "r,h", barrier, pair)


def tmem_load_rows(addresses: list[Int32], count: int) -> list[list[Int32]]:
    """Start to read 32 lanes x `count` columns from each address: thread t gets all columns of lane t, as fp32 bits.

    They are there after `tmem_load_wait` (PTX ISA, "tcgen05.ld", shape .32x32b).
    """
    total = count * len(addresses)
    loads = [
        f"tcgen05.ld.sync.aligned.32x32b.x{count}.b32 {{{', '.join(f'${i * count + j}' for j in range(count))}}}, "
        f"[${total + i}];"
        for i in range(len(addresses))
    ]
    constraints = ["=r"] * total + ["r"] * len(addresses)
    registers = ptx("\n\t".join(loads), ",".join(constraints), *addresses, results=[Int32] * total)
    return [registers[i * count : (i + 1) * count] for i in range(len(addresses))]


# Descriptors (PTX ISA, "Shared memory descriptor" and "Instruction descriptor").
# K-major operand tile, 128B swizzle (code 2 at bit 61), 1024 bytes from one group of 8 rows to the next.
OPERAND_DESCRIPTOR = 2 << 61 | 1 << 46 | (1024 >> 4) << 32 | 1 << 16
# Scale factors: no swizzle, groups of 8 rows of 16 bytes follow each other.
SF_DESCRIPTOR = 1 << 46 | (128 >> 4) << 32


def smem_descriptor(kind: int, address: Int32) -> Int64:
    return Int64(kind) | Int64(address >> 4)


def instruction_descriptor(plan: Plan, columns: int | Int32) -> int | Int32:
    """For e2m1 x e2m1 with e4m3 scales, both operands K-major, M = WEIGHT_TILE per CTA, N = columns."""
    return columns >> 3 << 17 | (WEIGHT_TILE * plan.cta_group >> 4) << 24 | 1 << 10 | 1 << 7


# ----------------------------------------------------------------------------------------------------------------------
# The GEMM kernel
# ----------------------------------------------------------------------------------------------------------------------


def tensor_map_address(atom: cute.CopyAtom) -> Int64:
    """Generic address of the tensor map that a TMA atom carries as a kernel parameter."""
    pointer = cute_ir.PtrType.get(cute_nvgpu_ir.TmaDescriptorTiledType.get(), cute.AddressSpace.generic, 64)
    return Int64(cute_nvgpu_ir.get_tma_desc_addr(pointer, cute_nvgpu_ir.atom_make_exec_tma(atom._trait.value)).toint())


def next_stage(stage: Int32, phase: Int32, stages: int) -> tuple[Int32, Int32]:
    wrapped = stage + 1 == stages
    return cutlass.select_(wrapped, Int32(0), stage + 1), cutlass.select_(wrapped, phase ^ 1, phase)


@dataclass(frozen=True)
class Cta:
    """Trace-time state that all roles read. Frozen, so that the DSL does not carry it through the roles' loops."""

    plan: Plan
    smem: Int32  # base address
    cluster: Int32
    clusters: Int32
    rank: Int32  # in the pair; 0 without one
    split_rank: Int32  # which of the cluster's split-K ranks the CTA, or its pair, is
    pair: Int16  # mask of the pair's CTAs in the cluster
    promises: Int32
    tiles: Int32
    ms: tuple
    ns: tuple
    ks: tuple
    first_tiles: tuple  # number of each group's first tile

    def of_group(self, values: tuple, tile: Int32):
        """The entry of `values` for the group that owns a tile: a chain of selects, no memory."""
        chosen = values[0]
        for group in range(1, self.plan.groups):
            chosen = cutlass.select_(tile >= self.first_tiles[group], values[group], chosen)
        return chosen

    def position(self, tile: Int32) -> tuple[Int32, Int32, Int32]:
        """(weight block, first token, M of the group) of a tile."""
        m = self.of_group(self.ms, tile)
        index = tile - self.of_group(self.first_tiles, tile)
        token_blocks = (m + (self.plan.token_tile - 1)) // self.plan.token_tile
        return index // token_blocks, index % token_blocks * self.plan.token_tile, m

    def columns(self, tokens: Int32) -> Int32:
        """N of the MMAs of a part that has so many tokens left to multiply, its own and later ones."""
        return cutlass.min((tokens + (TOKEN_STEP - 1)) // TOKEN_STEP * TOKEN_STEP, self.plan.part_tokens)

    def parts(self, token_row: Int32, m: Int32) -> Int32:
        """Parts of a tile that have tokens."""
        return cutlass.select_(token_row + self.plan.part_tokens < m, Int32(self.plan.parts), Int32(1))

    def atoms(self, token_row: Int32, m: Int32) -> Int32:
        """Atoms of scale factors, for 64 of K, that a tile's tokens touch."""
        first, last = token_row // 128, (cutlass.min(m, token_row + self.plan.token_tile) - 1) // 128
        return last - first + 1

    def k_range(self, tile: Int32) -> tuple[Int32, Int32]:
        """First and last + 1 of the elements of K that this CTA's split-K rank multiplies."""
        k, split = self.of_group(self.ks, tile), self.plan.k_split
        if split == 1:
            return Int32(0), k
        k_tiles, rank = (k + (K_TILE - 1)) // K_TILE, self.split_rank
        return rank * k_tiles // split * K_TILE, cutlass.min((rank + 1) * k_tiles // split * K_TILE, k)


class Gemm:
    """Host launcher and device roles for one `Plan`; see the module's docstring for roles, pipelines and maps."""

    def __init__(self, plan: Plan):
        self.plan = plan

    @cute.jit
    def load(self, cta: Cta, weight_maps: list, token_maps: tuple, weight_scales: list, token_scales: tuple):
        """Load role, one thread per CTA: fill a stage as soon as the MMA role has emptied it, weights before tokens."""
        plan, smem, rank = self.plan, cta.smem, cta.rank
        stage, phase = Int32(0), Int32(0)
        for tile in cutlass.range(cta.cluster, cta.tiles, cta.clusters, unroll=1):
            weight_block, token_row, m = cta.position(tile)
            weight_block = weight_block * plan.cta_group + rank
            n, k = cta.of_group(cta.ns, tile), cta.of_group(cta.ks, tile)
            k_begin, k_end = cta.k_range(tile)
            token_map = cta.of_group(token_maps, tile)
            weight_map = [cta.of_group(maps, tile) for maps in weight_maps]
            # Scale factors of 128 rows are consecutive atoms, K fastest. A pair's second half may lie past N: none of
            # its products are stored, and it takes the last rows' scale factors.
            row_sf = Int64(k // MMA_K) * SF_ATOM
            first_sf = cutlass.min(weight_block, (n - 1) // 128) * row_sf
            weight_sf = [cta.of_group(scales, tile) + first_sf for scales in weight_scales]
            token_sf = cta.of_group(token_scales, tile) + token_row // 128 * row_sf
            parts, atoms = cta.parts(token_row, m), cta.atoms(token_row, m)
            if cta.promises & OPERANDS_READY == 0:
                # Maps are parameters of the launch: they may be fetched, and addresses computed, before its wait.
                for tensor_map in (*weight_map, token_map):
                    prefetch_map(tensor_map)
                grid_wait()

            for k_start in cutlass.range(k_begin, k_end, K_TILE, unroll=1):
                full = smem + (plan.at.full + 8 * stage)
                weight_smem = smem + (plan.at.weights + stage * (plan.products * plan.weight_bytes))
                token_smem = smem + (plan.at.tokens + stage * plan.token_bytes)
                scale_smem = smem + (plan.at.scales + stage * plan.scale_bytes)
                # Boxes of operands are always whole, zero-filled past M, N and K; copies of scale factors end with K.
                sf_bytes = cutlass.min(k_end - k_start, K_TILE) * (SF_ATOM // MMA_K)
                operand_bytes = plan.products * plan.weight_bytes + parts * plan.part_token_bytes
                sf_offset = Int64(k_start // MMA_K) * SF_ATOM
                mbarrier_wait(smem + (plan.at.empty + 8 * stage), phase ^ 1)
                mbarrier_arrive_expect_tx(full, operand_bytes + (plan.products + atoms) * sf_bytes)
                for i in cutlass.range_constexpr(plan.products):
                    part_smem = weight_smem + i * plan.weight_bytes
                    tma_load(part_smem, weight_map[i], k_start, weight_block * WEIGHT_TILE, full)
                    bulk_load(scale_smem + i * SF_STAGE, weight_sf[i] + sf_offset, sf_bytes, full)
                for part in cutlass.range_constexpr(plan.parts):
                    if part < parts:
                        first = token_row + part * plan.part_tokens
                        first += rank * (cta.columns(m - first) // 2)
                        part_smem = token_smem + part * plan.part_token_bytes
                        tma_load(part_smem, token_map, k_start, first, full)
                for atom in cutlass.range_constexpr(plan.parts * plan.part_atoms):
                    if atom < atoms:
                        atom_smem = scale_smem + (plan.products + atom) * SF_STAGE
                        bulk_load(atom_smem, token_sf + atom * row_sf + sf_offset, sf_bytes, full)
                stage, phase = next_stage(stage, phase, plan.stages)
        # No other role waits for the last commits; they must arrive before this CTA's SMEM is given up.
        for _ in cutlass.range(plan.stages, unroll=1):
            mbarrier_wait(smem + (plan.at.empty + 8 * stage), phase ^ 1)
            stage, phase = next_stage(stage, phase, plan.stages)

    @cute.jit
    def mma(self, cta: Cta, tmem: Int32):
        """MMA role, one thread: scale factors and MMAs in issue order; each part commits on its own.

        A pair's leader issues for both CTAs; the other CTA only runs `relay`.
        """
        plan, smem, tiles = self.plan, cta.smem, cta.tiles
        if cutlass.const_expr(plan.cta_group == 2):
            # The other CTA has no tiles here. A branch around the role instead costs its loop the uniform registers.
            tiles = cutlass.select_(cta.rank == 0, tiles, Int32(0))
        # A shared address has the CTA's rank above its 18 bits; a descriptor must not.
        local = smem & 0x3FFFF
        stage, phase = Int32(0), Int32(0)
        used = Int32(0)  # accumulators so far; tells the next one and its phase
        for tile in cutlass.range(cta.cluster, tiles, cta.clusters, unroll=1):
            _, token_row, m = cta.position(tile)
            k_begin, k_end = cta.k_range(tile)
            for k_start in cutlass.range(k_begin, k_end, K_TILE, unroll=1):
                weight_smem = local + (plan.at.weights + stage * (plan.products * plan.weight_bytes))
                weights = smem_descriptor(OPERAND_DESCRIPTOR, weight_smem)
                tokens = smem_descriptor(OPERAND_DESCRIPTOR, local + (plan.at.tokens + stage * plan.token_bytes))
                scales = smem_descriptor(SF_DESCRIPTOR, local + (plan.at.scales + stage * plan.scale_bytes))
                mbarrier_wait(smem + (plan.at.full + 8 * stage), phase)
                for part in cutlass.range_constexpr(plan.parts):
                    if token_row + part * plan.part_tokens < m:
                        accumulator = (used + part) % plan.accumulators
                        if k_start == k_begin:
                            empty = smem + (plan.at.acc_empty + 8 * accumulator)
                            mbarrier_wait(empty, (used + part) // plan.accumulators % 2 ^ 1)
                        tmem_fence_after_sync()
                        k_left, k_done = k_end - k_start, k_start - k_begin
                        d = tmem + accumulator * plan.accumulator_columns
                        stage_data = weights, tokens, scales
                        self.multiply(cta, tmem, d, part, (token_row, m), (k_left, k_done), stage_data)
                        if k_left <= K_TILE:
                            tcgen05_commit(smem + (plan.at.acc_full + 8 * accumulator), cta.pair, plan)
                tcgen05_commit(smem + (plan.at.empty + 8 * stage), cta.pair, plan)
                stage, phase = next_stage(stage, phase, plan.stages)
            used += cta.parts(token_row, m)
        if cutlass.const_expr(plan.cta_group == 2):
            # The other CTA's last arrivals must come before this CTA's SMEM is given up.
            for _ in cutlass.range(0 if plan.one_tile else plan.accumulators, unroll=1):
                empty = smem + (plan.at.acc_empty + 8 * (used % plan.accumulators))
                mbarrier_wait(empty, used // plan.accumulators % 2 ^ 1)
                used += 1
            self.relay(cta)

    @cute.jit
    def relay(self, cta: Cta):
        """MMA role in a pair's other CTA, one thread: tell the leader of every stage that is full here."""
        plan, smem = self.plan, cta.smem
        tiles = cutlass.select_(cta.rank == 1, cta.tiles, Int32(0))
        stage, phase = Int32(0), Int32(0)
        for tile in cutlass.range(cta.cluster, tiles, cta.clusters, unroll=1):
            k_begin, k_end = cta.k_range(tile)
            for _ in cutlass.range(k_begin, k_end, K_TILE, unroll=1):
                full = smem + (plan.at.full + 8 * stage)
                mbarrier_wait(full, phase)
                mbarrier_arrive(full, plan)
                stage, phase = next_stage(stage, phase, plan.stages)

    @cute.jit
    def multiply(self, cta: Cta, tmem: Int32, d: Int32, part: cutlass.Constexpr, tile: tuple, k: tuple, stage: tuple):
        """Multiply one part of a stage into its accumulator, which begins at column d.

        tile: its first token, and M. k: elements of K left, this stage's included, and done. stage: descriptors of
        weights, tokens, scale factors. The first part's call copies the weights' scale factors to TMEM for all parts.
        """
        plan, (token_row, m), (k_left, k_done), (weights, tokens, scales) = self.plan, tile, k, stage
        shape = instruction_descriptor(plan, cta.columns(m - token_row - part * plan.part_tokens))
        # Atoms cover 128 rows; an odd tile of 64 or 192 tokens begins with the second half of one, two columns on.
        atoms, half_atom = cta.atoms(token_row, m), token_row % 128 // 32
        for block in cutlass.range_constexpr(K_BLOCKS):
            if block * MMA_K < k_left:
                token_sf = tmem + (plan.token_sf_column + (part * K_BLOCKS + block) * plan.part_atoms * SF_COLUMNS)
                for atom in cutlass.range_constexpr(plan.part_atoms):
                    source = (plan.products + part * plan.part_atoms + atom) * SF_STAGE + block * SF_ATOM
                    # A tile's second atom may lie past M; it is not loaded then.
                    wanted = atoms - atom if atom else 1
                    tcgen05_copy_sf(token_sf + atom * SF_COLUMNS, scales + (source >> 4), plan, wanted)
                for i in cutlass.range_constexpr(plan.products):
                    weight_sf = tmem + (plan.weight_sf_column + (i * K_BLOCKS + block) * SF_COLUMNS)
                    if cutlass.const_expr(part == 0):
                        tcgen05_copy_sf(weight_sf, scales + (i * SF_STAGE + block * SF_ATOM >> 4), plan)
                    tcgen05_mma(
                        plan,
                        shape,
                        d + i * plan.part_tokens,
                        weights + (i * plan.weight_bytes + block * MMA_K // 2 >> 4),
                        tokens + (part * plan.part_token_bytes + block * MMA_K // 2 >> 4),
                        weight_sf,
                        token_sf + half_atom,
                        Int32(k_done + block > 0),
                    )

    @cute.jit
    def epilogue(self, cta: Cta, tmem: Int32, warp: Int32, outputs: tuple):
        """Epilogue role, one warp: its 32 weight rows of every part, `epilogue_tokens` tokens at a time.

        A thread reads one weight row and stores pairs of rows, even threads for even tokens and odd threads for odd
        ones, so that a warp writes 64 consecutive bytes of each of two tokens at once. Without the promise OUTPUT_FREE
        an earlier launch may still read or write the same C: stores come after its end.
        """
        plan, smem = self.plan, cta.smem
        lane = cute.arch.lane_idx()
        odd = lane % 2
        selector = cutlass.select_(odd == 0, Int32(LOW_HALVES), Int32(HIGH_HALVES))
        used = Int32(0)
        for tile in cutlass.range(cta.cluster, cta.tiles, cta.clusters, unroll=1):
            weight_block, token_row, m = cta.position(tile)
            n = cta.of_group(cta.ns, tile)
            row = (weight_block * plan.cta_group + cta.rank) * WEIGHT_TILE + warp * WARP_ROWS + lane - odd
            pitch = Int64(n) * 2  # bytes from one token to the next
            output = cta.of_group(outputs, tile) + (token_row + odd) * pitch + Int64(row) * 2
            tokens = cutlass.min(m - token_row, plan.token_tile)
            # N is even: both rows of the pair are stored, or none.
            stored_tokens = cutlass.select_(row < n, tokens - odd, Int32(0))
            for part in cutlass.range(0, tokens, plan.part_tokens, unroll=1):
                accumulator = used % plan.accumulators
                source = tmem + (warp * WARP_ROWS << 16) + accumulator * plan.accumulator_columns
                mbarrier_wait(smem + (plan.at.acc_full + 8 * accumulator), used // plan.accumulators % 2)
                tmem_fence_after_sync()
                begin, end = part, cutlass.min(tokens, part + plan.part_tokens)
                last = (end - 1) // plan.epilogue_tokens * plan.epilogue_tokens
                if cutlass.const_expr(plan.k_split > 1):
                    self.exchange(cta, source, tokens, warp * WARP_ROWS + lane)
                    begin += cta.split_rank * plan.share_tokens
                source = source - part
                ahead = self.read(source + cutlass.min(begin, last))
                if cta.promises & OUTPUT_FREE == 0:
                    grid_wait()
                for token in cutlass.range_constexpr(0, plan.share_tokens, plan.epilogue_tokens):
                    tmem_load_wait()
                    sums = ahead
                    if cutlass.const_expr(token + plan.epilogue_tokens < plan.share_tokens):
                        ahead = self.read(source + cutlass.min(begin + (token + plan.epilogue_tokens), last))
                    elif cutlass.const_expr(not plan.one_tile):
                        # This warp has read the accumulator for the last time.
                        tmem_fence_before_sync()
                        cute.arch.sync_warp()
                        with cute.arch.elect_one():
                            mbarrier_arrive(smem + (plan.at.acc_empty + 8 * accumulator), plan)
                    first = begin + token
                    if first < end:
                        values = self.outputs(smem, sums, token, warp * WARP_ROWS + lane)
                        # All shuffles before all stores: in PTX's order a store would wait for its own.
                        pairs = [transpose_pair(pair, selector) for pair in map(pack_f16x2, values[::2], values[1::2])]
                        for i in cutlass.range_constexpr(len(pairs)):
                            left = stored_tokens - (first + 2 * i)
                            store_if_positive(left, output + (first + 2 * i) * pitch, pairs[i])
                used += 1
        # One cluster is enough to keep launches ending in order; the others make room.
        if cta.cluster == 0:
            grid_wait()

    @cute.jit
    def exchange(self, cta: Cta, source: Int32, tokens: Int32, row: Int32):
        """Split K, one epilogue warp: send every other split-K rank this rank's sums for the tokens that it stores.

        They go where its stages were, fp32 [sender][product][token / 4][row][4]; the ranks' distance numbers a sender.
        """
        plan = self.plan
        # Every CTA of the cluster has done its MMAs and read its stages. No memory is to be made visible: relaxed.
        cluster_arrive()
        cluster_wait()
        for distance in cutlass.range(1, plan.k_split, unroll=1):
            to = (cta.split_rank + distance) % plan.k_split
            buffer = cta.smem + (plan.at.weights + (plan.k_split - distance - 1) * plan.share_bytes + row * SUM_BYTES)
            target = cluster_address(buffer, to * plan.cta_group + cta.rank)
            wanted = cutlass.min(tokens - to * plan.share_tokens, plan.share_tokens)
            for first in cutlass.range(0, wanted, plan.epilogue_tokens, unroll=1):
                columns = [i * plan.part_tokens + to * plan.share_tokens + first for i in range(plan.products)]
                sums = tmem_load_rows([source + column for column in columns], plan.epilogue_tokens)
                tmem_load_wait()
                for i in cutlass.range_constexpr(plan.products):
                    for token in cutlass.range_constexpr(0, plan.epilogue_tokens, 4):
                        at = (i * plan.share_tokens + first + token) // 4 * (WEIGHT_TILE * SUM_BYTES)
                        store_shared_cluster(target + at, *sums[i][token : token + 4])
        cluster_arrive_release()
        cluster_wait()

    def read(self, source: Int32) -> list[list[Int32]]:
        """Start to read `epilogue_tokens` tokens' sums of one weight row per thread, from TMEM column source on."""
        plan = self.plan
        return tmem_load_rows([source + i * plan.part_tokens for i in range(plan.products)], plan.epilogue_tokens)

    def outputs(self, smem: Int32, sums: list[list[Int32]], token: int, row: Int32) -> list[Int32]:
        """C of one weight row per thread and `epilogue_tokens` tokens, by their sums of each product, as fp32 bits.

        Split K adds the other ranks' sums; token is the first of the tokens, counted from the first of this rank.
        """
        plan, results = self.plan, [list(values) for values in sums]
        for sender in range(plan.k_split - 1):
            for i, values in enumerate(results):
                at = plan.at.weights + sender * plan.share_bytes + row * SUM_BYTES
                for j in range(0, plan.epilogue_tokens, 4):
                    quad = (i * plan.share_tokens + token + j) // 4 * (WEIGHT_TILE * SUM_BYTES)
                    others = load_shared_f32x4(smem + at + quad)
                    values[j : j + 4] = map(add_f32, values[j : j + 4], others)
        return results[0] if plan.products == 1 else list(map(silu_times, *results))

    @cute.kernel
    def kernel(self, maps: tuple, addresses: tuple, sizes: tuple, tiles: Int32, promises: Int32):
        """By group: maps of weights..., tokens; addresses of C, weight SF..., token SF; sizes M, N, K, first tile."""
        plan = self.plan
        thread, block, blocks = cute.arch.thread_idx()[0], cute.arch.block_idx()[0], cute.arch.grid_dim()[0]
        warp = cute.arch.make_warp_uniform(thread // 32)
        smem = Int32(cute.arch.get_dyn_smem(cutlass.Uint8, 1024).toint())
        cluster, clusters = block // plan.cluster_ctas, blocks // plan.cluster_ctas
        rank, split_rank = block % plan.cta_group, block % plan.cluster_ctas // plan.cta_group
        pair = Int16(PAIR << split_rank * plan.cta_group) if plan.k_split > 1 else Int16(PAIR)
        cta = Cta(plan, smem, cluster, clusters, rank, split_rank, pair, promises, tiles, *sizes)
        *weight_maps, token_maps = [tuple(map(tensor_map_address, operand)) for operand in maps]
        outputs, *weight_scales, token_scales = addresses

        if warp == LOAD_WARP:
            with cute.arch.elect_one():
                self.initialise_barriers(smem, rank)
            cute.arch.sync_warp()
        # Tell the other warps, and the other CTA of a pair, that the load warp has set up the mbarriers.
        if cutlass.const_expr(plan.cta_group == 2):
            cluster_arrive()
        if warp == LOAD_WARP:
            setup_arrive()
            with cute.arch.elect_one():
                self.load(cta, weight_maps, token_maps, weight_scales, token_scales)
            cute.arch.sync_warp()
            if cutlass.const_expr(plan.cta_group == 2):
                cluster_wait()
            self.attend_exchange()
        else:
            if cutlass.const_expr(plan.cta_group == 2):
                cluster_wait()
            if warp == MMA_WARP:
                tmem_alloc(smem + plan.at.tmem_address, plan)
                # Not earlier: a CTA of the next launch could take this one's columns, and then wait for its end.
                grid_launch_dependents()
                tmem_fence_before_sync()
            setup_sync()
            tmem_fence_after_sync()
            tmem = load_shared(smem + plan.at.tmem_address)
            if warp == MMA_WARP:
                with cute.arch.elect_one():
                    self.mma(cta, tmem)
                cute.arch.sync_warp()
                self.attend_exchange()
            else:
                self.epilogue(cta, tmem, warp, outputs)
            tmem_fence_before_sync()
            teardown_sync()
        if cutlass.const_expr(plan.cta_group == 2):
            # A pair ends together: until then its MMAs read both CTAs' SMEM, and its barriers are arrived on from both.
            cluster_arrive()
            cluster_wait()
        if warp == MMA_WARP:
            tmem_fence_after_sync()
            tmem_dealloc(load_shared(smem + plan.at.tmem_address), plan)

    def attend_exchange(self):
        """The load and MMA warps' part in `exchange`: a cluster's barriers take all of its threads."""
        for _ in range(2 if self.plan.k_split > 1 else 0):
            cluster_arrive()
            cluster_wait()

    def initialise_barriers(self, smem: Int32, rank: Int32):
        plan = self.plan
        for stage in range(plan.stages):
            # In a pair's leader also the other CTA arrives.
            mbarrier_init(smem + (plan.at.full + 8 * stage), plan.cta_group - rank)
            mbarrier_init(smem + (plan.at.empty + 8 * stage), Int32(1))
        for accumulator in range(plan.accumulators):
            mbarrier_init(smem + (plan.at.acc_full + 8 * accumulator), Int32(1))
            mbarrier_init(smem + (plan.at.acc_empty + 8 * accumulator), Int32(EPILOGUE_WARPS * plan.cta_group))
        fence_mbarrier_init()

    @cute.jit
    def launch(self, table: cute.Pointer):
        """Encode the tensor maps of all groups from the host table (see `TABLE_HEADER`) and launch."""
        plan = self.plan
        tensors = 2 * plan.products + 3
        words = cute.make_tensor(table, cute.make_layout(TABLE_HEADER + (TABLE_SIZES + tensors) * plan.groups))

        def operand_map(address, rows, k, tile_rows):
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
        maps = [tuple(operand_map(b, n, k, WEIGHT_TILE) for b, n, k in zip(bs, ns, ks)) for bs in weights]
        maps.append(tuple(operand_map(a, m, k, plan.token_rows) for a, m, k in zip(tokens, ms, ks)))
        grid = Int32(words[2]), 1, 1
        launched = self.kernel(tuple(maps), tuple(others), sizes, Int32(words[1]), Int32(words[0]))
        # ptxas may use all registers; without a limit it aims at so few that it spills.
        shape = {"grid": grid, "block": (THREADS, 1, 1), "cluster": (plan.cluster_ctas, 1, 1)}
        launched.launch(**shape, smem=plan.at.end, use_pdl=True, min_blocks_per_mp=1)


# ----------------------------------------------------------------------------------------------------------------------
# The GEMV kernel
# ----------------------------------------------------------------------------------------------------------------------


class Gemv:
    """Host launcher and device code for one `GemvPlan`; see the module's docstring."""

    def __init__(self, plan: GemvPlan):
        self.plan = plan

    @cute.jit
    def multiply(
        self, block: Int32, a: Int64, sfa: Int64, b: Int64, sfb: Int64, blocks: Int32, rows: Int32, sums: Int32
    ):
        """One warp: partial sums of its team's rows over its part of K; a later part adds to the sums of the first.

        block: the part's first of all `blocks` of K. a, sfa, sums: addresses of the team's first row. rows: the CTA's
        rows from that row on.
        """
        plan, nothing = self.plan, [Int32(0)] * ROW_WORDS
        lane = cute.arch.lane_idx()
        lane_block, last = block + lane * LANE_BLOCKS, blocks - LANE_BLOCKS
        place = cutlass.min(lane_block, last)
        a, sfa = a + place * BLOCK_BYTES, sfa + place
        a_pitch, sfa_pitch = Int64(blocks) * (BLOCK_BYTES * plan.teams), Int64(blocks) * plan.teams

        ahead = []
        for slot in cutlass.range_constexpr(ROWS_AHEAD):
            ahead += load_row(rows - slot * plan.teams, a, sfa, *nothing)
            a, sfa = a + a_pitch, sfa + sfa_pitch
        ahead = tuple(ahead)

        *of_b, scales_of_b = load_row(Int32(1), b + place * BLOCK_BYTES, sfb + place, *nothing)
        vector = self.unpack(of_b)
        scales = [cutlass.select_(lane_block <= last, scale, Float32(0)) for scale in unpack_e4m3(scales_of_b)]

        for left in cutlass.range(rows, 0, -ROWS_AHEAD * plan.teams, unroll=1):
            rest = []
            for first in cutlass.range_constexpr(0, ROWS_AHEAD, ROWS_AT_ONCE):
                slots = range(first, first + ROWS_AT_ONCE)
                parts = [ahead[slot * ROW_WORDS : (slot + 1) * ROW_WORDS] for slot in slots]
                if left > first * plan.teams:
                    total = self.add_lanes(*[self.dot(part, vector, scales) for part in parts], lane)
                    of_lane = (first + lane // 16) * plan.teams
                    if lane % 16 == 0 and of_lane < left:
                        address = sums + (rows - left + of_lane) * (4 * plan.k_warps)
                        if block >= plan.team_blocks:
                            total += load_shared_f32(address)
                        store_shared_f32(address, total)
                for slot, part in zip(slots, parts):
                    rest += load_row(left - (ROWS_AHEAD + slot) * plan.teams, a, sfa, *part)
                    a, sfa = a + a_pitch, sfa + sfa_pitch
            ahead = tuple(rest)

    def unpack(self, words: list[Int32]) -> list[Int32]:
        return [pair for word in words for pair in unpack_e2m1(word)]

    def dot(self, row: list[Int32], vector: list[Int32], scales: list[Float32]) -> Float32:
        """A lane's part of a row of A times its part of b."""
        values, total = self.unpack(row[:-1]), Float32(0)
        for block, scale in enumerate(unpack_e4m3(row[-1])):
            pairs = slice(8 * block, 8 * block + 8)
            total = fma(block_product(*values[pairs], *vector[pairs]), scale * scales[block], total)
        return total

    def add_lanes(self, first: Float32, second: Float32, lane: Int32) -> Float32:
        """Sums over all lanes of two rows: the lower half of the lanes has the first, the upper one the second."""
        upper = lane & 16 != 0
        kept, sent = cutlass.select_(upper, second, first), cutlass.select_(upper, first, second)
        total = kept + exchange(sent, 16)
        for distance in (8, 4, 2, 1):
            total = total + exchange(total, distance)
        return total

    @cute.kernel
    def kernel(self, addresses: tuple, m: Int32, blocks: Int32, b_rows: Int32, share: Int32, promises: Int32):
        """addresses: of `tensor_names(0)`. blocks: K / SF_BLOCK. share: rows per CTA; M % CTAs have one more."""
        plan = self.plan
        a, b, sfa, sfb, c = addresses
        thread, (cta, batch, _), ctas = cute.arch.thread_idx()[0], cute.arch.block_idx(), cute.arch.grid_dim()[0]
        warp = cute.arch.make_warp_uniform(thread // 32)
        smem = Int32(cute.arch.get_dyn_smem(cutlass.Uint8, 16).toint())
        grid_launch_dependents()
        longer = m - share * ctas
        first = cta * share + cutlass.min(cta, longer)
        rows = cutlass.select_(cta < longer, share + 1, share)

        team, k_warp = warp // plan.k_warps, warp % plan.k_warps
        a_blocks = (Int64(batch) * m + (first + team)) * blocks
        b_blocks = Int64(batch) * b_rows * blocks
        if promises & OPERANDS_READY == 0:
            grid_wait()
        for block in cutlass.range(k_warp * WARP_BLOCKS, blocks, plan.team_blocks, unroll=1):
            operands = a + a_blocks * BLOCK_BYTES, sfa + a_blocks, b + b_blocks * BLOCK_BYTES, sfb + b_blocks
            left, sums = rows - team, smem + (team * plan.k_warps + k_warp) * 4
            self.multiply(block, *operands, blocks, left, sums)
        cute.arch.sync_threads()
        # Without the promise an earlier launch may still read or write the same c.
        if promises & OUTPUT_FREE == 0:
            grid_wait()
        for row in cutlass.range(thread, rows, plan.threads, unroll=1):
            total = load_shared_f32(smem + row * (4 * plan.k_warps))
            for other in cutlass.range_constexpr(1, plan.k_warps):
                total += load_shared_f32(smem + (row * plan.k_warps + other) * 4)
            store_f16(c + (Int64(batch) * m + (first + row)) * 2, total)
        # One CTA is enough to keep launches ending in order.
        if cta + batch == 0:
            grid_wait()

    @cute.jit
    def launch(self, table: cute.Pointer):
        """Launch from the host table (see `GEMV_HEADER`)."""
        words = cute.make_tensor(table, cute.make_layout(GEMV_HEADER + GEMV_TENSORS))
        addresses = tuple(words[GEMV_HEADER + i] for i in range(GEMV_TENSORS))
        sizes = [Int32(words[i]) for i in range(GEMV_HEADER)]
        promises, m, blocks, b_rows, share, ctas, batches = sizes
        self.kernel(addresses, m, blocks, b_rows, share, promises).launch(
            grid=(ctas, batches, 1), block=(self.plan.threads, 1, 1), smem=self.plan.smem_bytes, use_pdl=True
        )


# ----------------------------------------------------------------------------------------------------------------------
# Host side
# ----------------------------------------------------------------------------------------------------------------------


def tensor_names(products: int) -> list[str]:
    """A group's tensors in the order of the host table; a GEMM's scale factors are the reordered ones."""
    if products == 0:
        return ["a", "b", "sfa", "sfb", "c"]
    numbers = [""] if products == 1 else [str(i + 1) for i in range(products)]
    return [*(f"b{i}" for i in numbers), "a", "c", *(f"sfb{i}" for i in numbers), "sfa"]


def matrix_layout(dtype: torch.dtype, rows: int, columns: int, batch: int) -> tuple:
    return dtype, (rows, columns, batch), (columns, 1, rows * columns)


def sf_layout(rows: int, k: int, batch: int) -> tuple:
    """(dtype, shape, strides) of reordered scale factors."""
    blocks, pitch = ceil_div(rows, 128), k // MMA_K * SF_ATOM
    return torch.float8_e4m3fn, (32, 4, blocks, 4, k // MMA_K, batch), (16, 4, pitch, 1, SF_ATOM, blocks * pitch)


def gemm_layouts(m: int, n: int, k: int, batch: int, products: int) -> list[tuple]:
    """(dtype, shape, strides) of a group's `tensor_names`. Raises ValueError for sizes that the kernel cannot take."""
    check_size("l", batch, 1, 1, "a batch")
    check_size("m", m, 0, 1, "tokens")
    check_size("n", n, 8, 8, "a row of C must be a multiple of 16 bytes")
    check_size("k", k, MMA_K, MMA_K, "one MMA's K")
    weights, tokens = (matrix_layout(torch.float4_e2m1fn_x2, rows, k // 2, batch) for rows in (n, m))
    output = matrix_layout(torch.float16, m, n, batch)
    return [*[weights] * products, tokens, output, *[sf_layout(n, k, batch)] * products, sf_layout(m, k, batch)]


def gemv_layouts(m: int, b_rows: int, k: int, batch: int) -> list[tuple]:
    """(dtype, shape, strides) of `tensor_names(0)`. Raises ValueError for sizes that the kernel cannot take."""
    check_size("m", m, 1, 1, "rows of a")
    check_size("rows of b", b_rows, 1, 1, "the first counts")
    check_size("k", k, MMA_K, MMA_K, "the K of one load")
    check_size("l", batch, 1, 1, "a grid's y dimension", BATCHES_MAX)
    fp4, fp8 = torch.float4_e2m1fn_x2, torch.float8_e4m3fn
    shapes = (fp4, m, k // 2), (fp4, b_rows, k // 2), (fp8, m, k // SF_BLOCK), (fp8, b_rows, k // SF_BLOCK)
    return [matrix_layout(*shape, batch) for shape in (*shapes, (torch.float16, m, 1))]


class Layouts(NamedTuple):
    """What a call's tensors must be, an entry for each: group by group, in the order of `tensor_names`."""

    names: list[str]  # for messages
    dtypes: list[torch.dtype]
    shapes: list[tuple[int, ...]]
    strides: list[tuple[int, ...]]  # elements; they leave no gaps
    sizes: list[int]  # bytes
    guards: dict[int, Any]  # by device, for all tensors at once: types, dtypes, devices, shapes and strides as checked


@functools.lru_cache(maxsize=1024)
def tensor_layouts(problems: Problems, products: int = 1) -> Layouts:
    """For all groups of (M, N, K, L); products 0 is a GEMV. Raises ValueError for sizes that the kernel cannot take."""
    rows = []
    for group, problem in enumerate(problems):
        prefix = f"group {group}: " if len(problems) > 1 else ""
        try:
            layouts = gemm_layouts(*problem, products) if products else gemv_layouts(*problem)
        except ValueError as error:
            raise ValueError(f"{prefix}{error}") from None
        for name, (dtype, shape, strides) in zip(tensor_names(products), layouts):
            rows.append((prefix + name, dtype, shape, strides, math.prod(shape) * dtype.itemsize))
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
            return Call(0, [a, b, sfa, sfb, c], sizes, c)
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
    for name, start, size in zip(names, addresses, sizes):
        if start % ALIGNMENT or (size and not start):
            raise ValueError(f"{name} starts at address {start:#x}; loads need a multiple of {ALIGNMENT} bytes, not 0")
    of_group, ends = tensor_names(products), list(map(operator.add, addresses, sizes))
    starts_in_order, ends_in_order = sorted(addresses), sorted(ends)
    for c in range(of_group.index("c"), len(names), len(of_group)):
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
    words: list[int]  # tiles, CTAs, and every group's sizes and first tile
    places: list[tuple[int, int]]  # every group's tensors: number in the call, bytes from there to the batch entry


@functools.lru_cache(maxsize=1024)
def configure(
    problems: Problems, sms: int, overlapping: bool = False, products: int = 1, configurations: Configurations = None
) -> tuple[Launch, ...]:
    """Launches for groups of (M, N, K, L), each L groups: those without tokens left out, the others by descending M.

    overlapping: it loads beside the end of the launch ahead. Raises ValueError for sizes that the kernel cannot take.
    """
    layouts, count = tensor_layouts(problems, products), len(tensor_names(products))
    every = [(group, index) for group, problem in enumerate(problems) if problem[0] for index in range(problem[3])]
    every.sort(key=lambda entry: -problems[entry[0]][0])
    launches = []
    for start in range(0, len(every), max_groups(products)):
        part = every[start : start + max_groups(products)]
        sizes = tuple(problems[group][:3] for group, _ in part)
        schedule = candidates(sizes, sms, overlapping, products, configurations)[0]
        if schedule.tiles > LARGEST:
            raise ValueError(f"{schedule.tiles} tiles in one launch; tile numbers are 32-bit, at most {LARGEST}")
        rows = [(*size, first_tile) for size, first_tile in zip(schedule.sizes, schedule.first_tiles)]
        words = [schedule.tiles, schedule.ctas, *itertools.chain(*rows)]
        tensors = [(count * group + tensor, index) for group, index in part for tensor in range(count)]
        places = [(tensor, index * layouts.sizes[tensor] // problems[tensor // count][3]) for tensor, index in tensors]
        launches.append(Launch(schedule, tuple(group for group, _ in part), words, places))
    return tuple(launches)


@functools.lru_cache(maxsize=1024)
def configure_gemv(m: int, b_rows: int, k: int, batches: int, sms: int) -> tuple[GemvPlan, list[int]]:
    """The plan for these sizes, and the host table but for the promises and the addresses."""
    plan = gemv_plan(k)
    ctas = ctas_per_batch(plan, m, batches, sms)
    return plan, [m, k // SF_BLOCK, b_rows, m // ctas, ctas, batches]


def host_pointer(address: int) -> cute.Pointer:
    return make_ptr(Int64, address, cute.AddressSpace.generic, assumed_align=8)


def compile_kernel(plan: Plan | GemvPlan):
    kernel = Gemm(plan) if isinstance(plan, Plan) else Gemv(plan)
    return cute.compile(kernel.launch, host_pointer(0))


@functools.cache
def compiled(plan: Plan | GemvPlan):
    """The compiled launcher of a plan; takes a pointer to the host table."""
    executor = compile_kernel(plan).to()
    # As a call converts its arguments, in a third of the time.
    return lambda pointer: executor.run_compiled_program(pointer.__c_pointers__())


@functools.lru_cache(maxsize=1024)
def host_tables(
    addresses: tuple, problems: Problems, products: int, promises: int, sms: int, configurations: Configurations
) -> list[tuple]:
    """Plan, pointer to the host table, and table of a call's launches. Raises ValueError as `check_addresses` does.

    The arguments are numbers and all that the result depends on; what a tensor is may change, so `check` always asks.
    """
    check_addresses(addresses, problems, products)
    if products == 0:
        plan, words = configure_gemv(*problems[0], sms)
        launches = [(plan, [*words, *addresses])]
    else:
        found = configure(problems, sms, bool(promises & OPERANDS_READY), products, configurations)
        launches = [(x.schedule.plan, [*x.words, *(addresses[i] + offset for i, offset in x.places)]) for x in found]
    tables = [(plan, array("q", [promises, *words])) for plan, words in launches]
    return [(plan, host_pointer(table.buffer_info()[0]), table) for plan, table in tables]


def run(
    data: tuple,
    operands_ready: bool = False,
    output_free: bool = False,
    configurations: Configurations = None,
    sms: int | None = None,
) -> output_t:
    """`solve`, for tests and tools that force a GEMM's configuration or the number of SMs to plan for."""
    if {type(operands_ready), type(output_free)} != {bool}:
        found = f"operands_ready is {operands_ready!r}, output_free is {output_free!r}"
        raise TypeError(f"{found}; a promise is True or False")
    call = unpack(data)
    promises = operands_ready * OPERANDS_READY | output_free * OUTPUT_FREE
    sms = sm_count(torch.cuda.current_device()) if sms is None else sms
    for plan, pointer, _ in host_tables(check(call), call.problems, call.products, promises, sms, configurations):
        compiled(plan)(pointer)
    return call.outputs


def solve(data: tuple, operands_ready: bool = False, output_free: bool = False) -> output_t:
    """Compute one of the contest's problems into the caller's c and return it; for groups, the list of c.

    data: (abc_tensors, sfasfb_tensors, sfasfb_reordered_tensors, problem_sizes), a group GEMM: per group (a, b, c), the
        scales (sfa, sfb) row-major, which are not read, the same reordered, and (M, N, K, L);
        (a, b, sfa, sfb, sfa_reordered, sfb_reordered, c), a GEMM, or where c is [M, 1, L] a GEMV with the first row of
        b, which reads the row-major scales; or
        (a, b1, b2, sfa, sfb1, sfb2, sfa_reordered, sfb1_reordered, sfb2_reordered, c), silu(a @ b1^T) * (a @ b2^T).
        a [M, K/2, L] and b [N, K/2, L] float4_e2m1fn_x2, c [M, N, L] float16, reordered scales
        [32, 4, ceil(rows/128), 4, K/64, L] and row-major ones [rows, K/16, L] float8_e4m3fn. M >= 0 (GEMV 1), N a
        multiple of 8, K of 64: integers of any type, bool included. All but the scales that are not read are on the
        current device. A c shares memory with no other of these tensors; operands may share theirs.
    The kernel waits for all work ahead of it in the queue before it loads operands and before it stores c, unless the
    caller promises that it need not. Work has been waited for where the host has synchronised with it, or an ordinary
    launch stands between it and this call: one without the programmatic attribute. Work just ahead of the call has
    not, even if nothing can start beside it: its writes may come late (NVIDIA/cccl#9134). Nor have earlier calls, of
    which several can still be running.
    operands_ready: True if whatever has written operands of this call has been waited for.
    output_free: True if whatever has read or written c has been waited for.
    Launches on the device's default queue and returns at once; launches nothing where every group is empty.
    Raises ValueError before any launch where a constraint does not hold, TypeError for a promise that is no bool.
    """
    return run(data, operands_ready, output_free)


def custom_kernel(data: input_t) -> output_t:
    """The contest's entry point. It promises nothing: a call is right behind any kernel, copy or harness."""
    return solve(data)
