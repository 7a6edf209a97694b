#!POPCORN leaderboard nvfp4_group_gemm
#!POPCORN gpu B200
"""NVFP4 block-scaled group GEMM for NVIDIA B200 (sm_100a), one persistent warp-specialised kernel in CuTe DSL.

For every group g of a call, with its own M, N and K:

    C[M, N] (fp16) = (A[M, K] * SFA[M, K/16]) @ (B[N, K] * SFB[N, K/16])^T          fp32 accumulation, one rounding

A and B hold e2m1 values, two per byte; every 16 consecutive K elements share one e4m3 scale. In the shapes that matter
B is the weight matrix (thousands of rows) and A the tokens of one expert (tens to hundreds), so the operands are
swapped on the tensor core: weights take the MMA's M side, which is always 128 rows, and tokens its N side, whose width
can follow the problem. The accumulator is C^T: TMEM lanes are weight rows, TMEM columns are tokens.

Work: a tile is 128 weight rows (256 of a pair) x 64 to 256 tokens of one group over all its K, in k-tiles of 256
elements. Tiles are numbered group by group, largest M first, token blocks of the same weight rows next to each other,
so that CTAs that run side by side share a weight tile in L2. Cluster i of n takes tiles i, i + n, ...: nothing is
looked up in memory. A tile of 256 tokens is two parts of 128, an accumulator each; a part without tokens costs nothing.

Residence: one CTA per SM stays for all its tiles, and the epilogue of one runs beside the loads of the next. Or two
CTAs share an SM, each for one tile only, and the next CTA's loads run beside the epilogue of the one before.

Pairs (cta_group 2): two CTAs of a cluster share a tile. Each loads its own 128 weight rows, half of every part's tokens
and all scale factors that it needs; the leader (even CTA) issues every MMA for both, and each stores its own half of
C. Loads count on the barriers of the CTA they go to; the other CTA tells the leader when a stage is full, the
leader's commits arrive in both.

Launches overlap: every launch lets the next one start as soon as its CTAs have their TMEM. The next one's CTAs set
themselves up wherever there is room and, as far as the caller promises that it is safe, load, compute and store before
the end of the launch before them. Launches end in their order all the same.

Roles (192 threads)
    warp    role        what it does
    0-3     epilogue    accumulator -> fp16 -> C, from registers; warp w owns TMEM lanes 32w..32w+31
    4       load        one thread: operand tiles by tensor map, scale factors by plain bulk copies
    5       MMA         TMEM allocation; one thread: scale factors SMEM -> TMEM, MMAs, commits; of a pair's other CTA:
                        tells the leader of full stages

Pipelines (mbarriers; stage and phase are carried across tiles and never reset)
    edge                barrier      in              arrivals per phase                          depth
    load -> MMA         full         every CTA       1 and the bytes of a stage; leader: 1 per CTA        stages
    MMA -> load         empty        every CTA       1, by tcgen05.commit                        stages
    MMA -> epilogue     acc_full     every CTA       1, by tcgen05.commit                        accumulators
    epilogue -> MMA     acc_empty    leader          4 per CTA, one per epilogue warp            accumulators

The load role sets up its CTA's barriers and starts at once; neither TMEM allocation nor a pair's other CTA delays it.

SMEM of a CTA (bytes from a base that is a multiple of 1024; T = token_tile / cta_group, A = atoms of 128 tokens)
    stages x  weights   128 x 128      e2m1 [row][256 of K], 128B swizzle
    stages x  tokens    T x 128        e2m1 [part][row][256 of K], 128B swizzle
    stages x  SF        (1 + A) x 2048 weights', then tokens' scale factors: 4 atoms of 128 rows x 64 of K each
              barriers  8 each, then the TMEM base address

TMEM (512 columns, 256 with two CTAs per SM; W = tokens per accumulator; E = W x accumulators)
    0 .. E-1            accumulators, two where they fit
    E .. E+15           weights' scale factors of one k-tile, 4 columns per 64 of K
    E+16 ..             tokens' scale factors, by part and 64 of K, 4 columns per atom of 128 tokens

Tensor maps (per group: weights, tokens) are encoded by the JIT-compiled host code from a table of pointers and
sizes and travel by value as kernel parameters: no workspace, no device-side edits, no copies. A reordered scale tensor
already is a sequence of the 512-byte atoms that `tcgen05.cp` wants, so its k-tile is one contiguous copy.
"""

import functools
import itertools
import math
import operator
from array import array
from collections import namedtuple
from dataclasses import dataclass
from typing import NamedTuple

import cutlass
import torch
from cutlass import Float4E2M1FN, Int16, Int32, Int64, cute
from cutlass._mlir.dialects import cute as cute_ir
from cutlass._mlir.dialects import cute_nvgpu as cute_nvgpu_ir
from cutlass._mlir.dialects import llvm
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_ptr

from task import input_t, output_t

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

EPILOGUE_WARPS = 4
LOAD_WARP = 4
MMA_WARP = 5
THREADS = 32 * 6
MMA_TOKENS = 192  # the widest part of a tile; two such accumulators and all scale factors fit TMEM
TOKEN_TILES = (64, 128, 192, 256)
CTA_GROUPS = (1, 2)
CTAS_PER_SM = (1, 2)
PAIR = 0b11  # mask of both CTAs of a cluster
LEADER_MASK = 0xFEFFFFFF  # clears the rank bit of a shared address: the same place in the even CTA of the pair
SETUP_BARRIER, TEARDOWN_BARRIER = 1, 2  # named barriers; 0 is the CTA's
LOW_HALVES, HIGH_HALVES = 0x5410, 0x3276  # prmt selectors: low halves of both operands; high ones, the second first
WARP_ROWS = 32  # weight rows of an epilogue warp: the TMEM lanes that it can read
EPILOGUE_TOKENS = 64  # tokens read from TMEM at once

SM_SMEM = 228 * 1024  # bytes of SMEM per SM, of which every resident CTA takes SMEM_RESERVED more than it asks for
SMEM_RESERVED = 1024
TMEM_COLUMNS = 512  # per SM
PARAMETER_BYTES = 32764  # kernel parameters per launch (PTX ISA, "Kernel Function Parameters")
TENSOR_MAP_BYTES = 128

EVICT_NORMAL = 0x1000000000000000  # L2 cache policies as CUTLASS's TMA::CacheHintSm90 encodes them
EVICT_LAST = 0x14F0000000000000

OPERANDS_READY, OUTPUT_FREE = 1, 2  # a caller's promises, see `solve`

# The host table, int64 words: promises, tiles, CTAs; per group M, N, K, first tile; per group its five addresses.
TABLE_HEADER, TABLE_SIZES, TABLE_TENSORS = 3, 4, 5


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


# ----------------------------------------------------------------------------------------------------------------------
# Plans
# ----------------------------------------------------------------------------------------------------------------------


# Byte offsets in SMEM; `end` is the size of the whole.
SmemMap = namedtuple("SmemMap", "weights tokens scales full empty acc_full acc_empty tmem_address end")

derived = functools.cached_property


@dataclass(frozen=True)
class Plan:
    """Everything about the kernel that is fixed at compile time, derived from the tile sizes."""

    groups: int
    token_tile: int = 128
    cta_group: int = 1  # CTAs that share one MMA, and so a tile
    ctas_per_sm: int = 1  # CTAs that fit an SM at once: 1 for many tiles each, 2 for one tile each

    def __post_init__(self):
        allowed = {"token_tile": TOKEN_TILES, "cta_group": CTA_GROUPS, "ctas_per_sm": CTAS_PER_SM}
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name} is {getattr(self, name)}; the kernel is written for {values}")
        if not 1 <= self.groups <= MAX_GROUPS:
            raise ValueError(f"{self.groups} groups; the kernel parameters hold 1 to {MAX_GROUPS}")
        if self.accumulators < self.parts:
            raise ValueError(
                f"a tile of {self.token_tile} tokens needs {self.parts} accumulators; {self.tmem_columns} TMEM columns "
                f"(a CTA's share at {self.ctas_per_sm} per SM) hold {self.accumulators}"
            )

    # A tile has one or two parts, each with an accumulator and MMAs of its own.
    parts = derived(lambda plan: ceil_div(plan.token_tile, MMA_TOKENS))
    part_tokens = derived(lambda plan: plan.token_tile // plan.parts)
    part_atoms = derived(lambda plan: ceil_div(plan.part_tokens, 128))  # of scale factors, per 64 of K
    # Token rows of a part in one CTA's SMEM: CTAs that share an MMA halve its N side between them.
    token_rows = derived(lambda plan: plan.part_tokens // plan.cta_group)

    weight_bytes = WEIGHT_TILE * K_TILE // 2
    part_token_bytes = derived(lambda plan: plan.token_rows * K_TILE // 2)
    token_bytes = derived(lambda plan: plan.parts * plan.part_token_bytes)
    scale_bytes = derived(lambda plan: (1 + plan.parts * plan.part_atoms) * SF_STAGE)
    stage_bytes = derived(lambda plan: plan.weight_bytes + plan.token_bytes + plan.scale_bytes)
    smem_capacity = derived(lambda plan: SM_SMEM // plan.ctas_per_sm - SMEM_RESERVED)
    fixed_bytes = derived(lambda plan: 16 * (plan.accumulators + 1))
    stages = derived(lambda plan: (plan.smem_capacity - plan.fixed_bytes) // (plan.stage_bytes + 16))

    # Two accumulators, if they fit beside the scale factors, so that one is stored while the other is computed.
    tmem_columns = derived(lambda plan: TMEM_COLUMNS // plan.ctas_per_sm)
    sf_columns = derived(lambda plan: plan.scale_bytes // SF_ATOM * SF_COLUMNS)
    accumulators = derived(lambda plan: 2 if 2 * plan.part_tokens + plan.sf_columns <= plan.tmem_columns else 1)
    weight_sf_column = derived(lambda plan: plan.accumulators * plan.part_tokens)
    token_sf_column = derived(lambda plan: plan.weight_sf_column + K_BLOCKS * SF_COLUMNS)

    @functools.cached_property
    def at(self) -> SmemMap:
        """Where everything starts in SMEM: arrays of equal parts, one after the other."""
        parts = (
            self.stages * self.weight_bytes,
            self.stages * self.token_bytes,
            self.stages * self.scale_bytes,
            *(8 * self.stages, 8 * self.stages, 8 * self.accumulators, 8 * self.accumulators),
            16,
        )
        return SmemMap(*itertools.accumulate(parts, initial=0))


@dataclass(frozen=True)
class Schedule:
    """Which tiles a launch has and how many CTAs share them: the pure-Python twin of what the kernel computes.

    `sizes` holds (M, N, K) per group, none of them empty, in the order in which the tiles are numbered.
    """

    plan: Plan
    sizes: tuple[tuple[int, int, int], ...]
    sm_count: int

    @functools.cached_property
    def first_tiles(self) -> tuple[int, ...]:
        """Number of the first tile of each group, and last the number of tiles."""
        rows, tokens = WEIGHT_TILE * self.plan.cta_group, self.plan.token_tile
        tiles = (ceil_div(n, rows) * ceil_div(m, tokens) for m, n, _ in self.sizes)
        return tuple(itertools.accumulate(tiles, initial=0))

    tiles = derived(lambda schedule: schedule.first_tiles[-1])
    # Clusters that run at once, if all fit: how a GPU's SMs are grouped may leave some without a neighbour for a pair.
    slots = derived(lambda schedule: schedule.sm_count * schedule.plan.ctas_per_sm // schedule.plan.cta_group)
    waves = derived(lambda schedule: ceil_div(schedule.tiles, schedule.slots))
    # CTAs that share an SM are short: the hardware hands out their tiles, the next launch's after this one's.
    clusters = derived(
        lambda schedule: schedule.tiles if schedule.plan.ctas_per_sm > 1 else min(schedule.tiles, schedule.slots)
    )
    ctas = derived(lambda schedule: schedule.clusters * schedule.plan.cta_group)
    requested_bytes = derived(lambda schedule: sum(schedule.requested.values()))

    @functools.cached_property
    def requested(self) -> dict[str, int]:
        """Bytes by operand that the loads of all tiles read from memory, which is not what boxes have past M, N, K."""
        plan, total = self.plan, dict.fromkeys(("weights", "tokens", "weight SF", "token SF"), 0)
        for m, n, k in self.sizes:
            weight_tiles, token_tiles = ceil_div(n, WEIGHT_TILE * plan.cta_group), ceil_div(m, plan.token_tile)
            total["weights"] += token_tiles * n * k // 2
            total["tokens"] += weight_tiles * m * k // 2
            total["weight SF"] += token_tiles * weight_tiles * plan.cta_group * (k // MMA_K) * SF_ATOM
            token_atoms = ceil_div(m, plan.part_tokens) * plan.part_atoms
            total["token SF"] += weight_tiles * plan.cta_group * token_atoms * (k // MMA_K) * SF_ATOM
        return total

    def tiles_of(self, cta: int) -> list[tuple[int, int, int]]:
        """(group, first weight row, first token) of each tile of a CTA, in the order it runs them.

        A tile of two CTAs has 256 weight rows, half of them each; the second half may lie past N.
        """
        plan, work = self.plan, []
        cluster, rank = divmod(cta, plan.cta_group)
        for tile in range(cluster, self.tiles, self.clusters):
            group = sum(tile >= first for first in self.first_tiles[1:])
            token_blocks = ceil_div(self.sizes[group][0], plan.token_tile)
            weight_block, token_block = divmod(tile - self.first_tiles[group], token_blocks)
            work.append((group, (weight_block * plan.cta_group + rank) * WEIGHT_TILE, token_block * plan.token_tile))
        return work


# Groups whose parameters fit one launch: two maps, three addresses, four integers; and the two of the launch, padded.
MAX_GROUPS = (PARAMETER_BYTES - TENSOR_MAP_BYTES) // (2 * TENSOR_MAP_BYTES + 3 * 8 + 4 * 4)


def shapes() -> list[tuple[int, int, int]]:
    """(token_tile, cta_group, ctas_per_sm) of every configuration; two parts' accumulators take over half of TMEM."""
    every = itertools.product(TOKEN_TILES, CTA_GROUPS, CTAS_PER_SM)
    return [shape for shape in every if shape[0] <= MMA_TOKENS or shape[2] == 1]


# ----------------------------------------------------------------------------------------------------------------------
# PTX instructions, one function each. Shared addresses are 32-bit integers, tensor maps and policies 64-bit ones.
# ----------------------------------------------------------------------------------------------------------------------


def ptx(code: str, constraints: str, *operands, result=None):
    """Emit one block of PTX; $0, $1, ... are the results, then the operands."""
    values = [operand.ir_value() for operand in operands]
    return llvm.inline_asm(result, values, code, constraints, has_side_effects=True, asm_dialect=llvm.AsmDialect.AD_ATT)


def instruction(code: str, constraints: str = ""):
    """A function that emits the instruction with its arguments as operands."""
    return functools.partial(ptx, code + ";", constraints)


# Barriers.
mbarrier_arrive_expect_tx = instruction("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1", "r,r")
mbarrier_init = instruction("mbarrier.init.shared::cta.b64 [$0], $1", "r,r")
# Makes initialised mbarriers visible to the async proxy and the cluster (PTX ISA, "membar/fence").
fence_mbarrier_init = instruction("fence.mbarrier_init.release.cluster")
# Relaxed: it orders what `fence_mbarrier_init` has released, and nothing waits for the SM's other memory traffic.
cluster_arrive = instruction("barrier.cluster.arrive.relaxed.aligned")
cluster_wait = instruction("barrier.cluster.wait.acquire.aligned")

# The launch before this one is over, and what it wrote is visible (PTX ISA, "griddepcontrol").
grid_wait = instruction("griddepcontrol.wait")
# The next launch may start, wherever there is room, once every CTA of this one has come here.
grid_launch_dependents = instruction("griddepcontrol.launch_dependents")

# Bulk copies.
tma_load = instruction(  # SMEM, tensor map, column, row, barrier, policy
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
    "[$0], [$1, {$2, $3}], [$4], $5",
    "r,l,r,r,r,l",
)
bulk_load = instruction(  # SMEM, address, bytes, barrier, policy
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [$0], [$1], $2, [$3], $4",
    "r,l,r,r,l",
)

# Order tcgen05 work after what this thread has just waited for, and before its next arrival.
tmem_fence_after_sync = instruction("tcgen05.fence::after_thread_sync")
tmem_fence_before_sync = instruction("tcgen05.fence::before_thread_sync")


def mbarrier_wait(barrier: Int32, parity: Int32):
    """Returns once the phase of this parity has completed; parity 1 of a fresh barrier passes at once."""
    ptx(
        "{\n\t.reg .pred done;\n\tWAIT:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n\t"
        "@done bra DONE;\n\tbra WAIT;\n\tDONE:\n\t}",
        *("r,r", barrier, parity),
    )


def mbarrier_arrive(barrier: Int32, plan: Plan):
    """One arrival on the barrier at this address in the leader CTA.

    At the default scope, as elsewhere for pairs: .cluster would drain all of the SM's memory traffic at every arrival,
    and what is ordered here, a stage that TMA has filled or TMEM that has been read, is done when the thread goes on.
    """
    if plan.cta_group == 1:
        ptx("mbarrier.arrive.shared::cta.b64 _, [$0];", "r", barrier)
    else:
        ptx("mbarrier.arrive.shared::cluster.b64 _, [$0];", "r", barrier & LEADER_MASK)


def barrier_arrive(name: int, threads: int):
    """Arrive without waiting on a named barrier of so many threads."""
    ptx(f"bar.arrive {name}, {threads};", "")


def barrier_sync(name: int, threads: int):
    ptx(f"bar.sync {name}, {threads};", "")


def tmem_alloc(smem: Int32, plan: Plan):
    """Allocate the plan's columns; a pair's CTAs do it together, so that neither goes on before both have them.

    (PTX ISA, "Issue Granularity" of tcgen05.) The base address, the same in both, goes to SMEM.
    """
    alloc = f"tcgen05.alloc.cta_group::{plan.cta_group}.sync.aligned.shared::cta.b32"
    ptx(f"{alloc} [$0], {plan.tmem_columns};", "r", smem)
    ptx(f"tcgen05.relinquish_alloc_permit.cta_group::{plan.cta_group}.sync.aligned;", "")


def tmem_dealloc(base: Int32, plan: Plan):
    ptx(f"tcgen05.dealloc.cta_group::{plan.cta_group}.sync.aligned.b32 $0, {plan.tmem_columns};", "r", base)


def tcgen05_copy_sf(column: Int32, descriptor: Int64, plan: Plan):
    """One 512-byte atom of scale factors to 4 TMEM columns, repeated in all four lane quarters; in each CTA its own."""
    ptx(f"tcgen05.cp.cta_group::{plan.cta_group}.32x128b.warpx4 [$0], $1;", "r,l", column, descriptor)


def tcgen05_mma(plan: Plan, *operands):
    """D[TMEM] (+)= A @ B; operands: D, descriptors of A and B, TMEM columns of their scale factors, accumulate."""
    ptx(
        f"{{\n\t.reg .pred p;\n\tsetp.ne.b32 p, $5, 0;\n\ttcgen05.mma.cta_group::{plan.cta_group}.kind::mxf4nvf4"
        ".block_scale.block16 [$0], $1, $2, $6, [$3], [$4], p;\n\t}",
        *("r,l,l,r,r,r,r", *operands, Int32(instruction_descriptor(plan))),
    )


def tcgen05_commit(barrier: Int32, plan: Plan):
    """One arrival, in every CTA of the group, once all tcgen05 work issued by this thread so far has finished."""
    commit = f"tcgen05.commit.cta_group::{plan.cta_group}.mbarrier::arrive::one.shared::cluster"
    if plan.cta_group == 1:
        ptx(f"{commit}.b64 [$0];", "r", barrier)
    else:
        ptx(f"{commit}.multicast::cluster.b64 [$0], $1;", "r,h", barrier, Int16(PAIR))


def tmem_load_rows(address: Int32) -> list[Int32]:
    """Read 32 lanes x EPILOGUE_TOKENS columns and wait for them: thread t gets all columns of lane t, as fp32 bits.

    (PTX ISA, "tcgen05.ld", shape .32x32b.)
    """
    count = EPILOGUE_TOKENS
    names = ", ".join(f"${i}" for i in range(count))
    values = ptx(
        f"tcgen05.ld.sync.aligned.32x32b.x{count}.b32 {{{names}}}, [${count}];\n\ttcgen05.wait::ld.sync.aligned;",
        ",".join(["=r"] * count + ["r"]),
        address,
        result=llvm.StructType.get_literal([Int32.mlir_type] * count),
    )
    return [Int32(llvm.extractvalue(Int32.mlir_type, values, [i])) for i in range(count)]


def pack_f16x2(low: Int32, high: Int32) -> Int32:
    """Two fp32 bit patterns to one pair of fp16, rounded to nearest even."""
    return Int32(ptx("cvt.rn.f16x2.f32 $0, $2, $1;", "=r,r,r", low, high, result=Int32.mlir_type))


def transpose_pair(pair: Int32, selector: Int32) -> Int32:
    """Halves of this thread's pair and its neighbour's: both low ones in even threads, both high ones in odd threads.

    selector: LOW_HALVES or HIGH_HALVES, accordingly.
    """
    code = "{\n\t.reg .b32 other;\n\tshfl.sync.bfly.b32 other, $1, 1, 31, -1;\n\tprmt.b32 $0, $1, other, $2;\n\t}"
    return Int32(ptx(code, "=r,r,r", pair, selector, result=Int32.mlir_type))


def store_if_positive(count: Int32, address: Int64, value: Int32):
    code = "{\n\t.reg .pred p;\n\tsetp.gt.s32 p, $0, 0;\n\t@p st.global.b32 [$1], $2;\n\t}"
    ptx(code, "r,l,r", count, address, value)


def load_shared(address: Int32) -> Int32:
    return Int32(ptx("ld.shared.b32 $0, [$1];", "=r,r", address, result=Int32.mlir_type))


# ----------------------------------------------------------------------------------------------------------------------
# Descriptors (PTX ISA, "Shared memory descriptor" and "Instruction descriptor")
# ----------------------------------------------------------------------------------------------------------------------

# K-major operand tile, 128B swizzle (code 2 at bit 61), 1024 bytes from one group of 8 rows to the next.
OPERAND_DESCRIPTOR = 2 << 61 | 1 << 46 | (1024 >> 4) << 32 | 1 << 16
# Scale factors: no swizzle, groups of 8 rows of 16 bytes follow each other.
SF_DESCRIPTOR = 1 << 46 | (128 >> 4) << 32


def smem_descriptor(kind: int, address: Int32) -> Int64:
    return Int64(kind) | Int64(address >> 4)


def instruction_descriptor(plan: Plan) -> int:
    """e2m1 x e2m1 with e4m3 scales, both operands K-major, M = WEIGHT_TILE per CTA, N = part_tokens."""
    return (WEIGHT_TILE * plan.cta_group >> 4) << 24 | (plan.part_tokens >> 3) << 17 | 1 << 10 | 1 << 7


# ----------------------------------------------------------------------------------------------------------------------
# The kernel
# ----------------------------------------------------------------------------------------------------------------------


def tensor_map_address(atom: cute.CopyAtom) -> Int64:
    """Generic address of the tensor map that a TMA atom carries as a kernel parameter."""
    pointer = cute_ir.PtrType.get(cute_nvgpu_ir.TmaDescriptorTiledType.get(), cute.AddressSpace.generic, 64)
    return Int64(cute_nvgpu_ir.get_tma_desc_addr(pointer, cute_nvgpu_ir.atom_make_exec_tma(atom._trait.value)).toint())


def next_stage(stage: Int32, phase: Int32, stages: int) -> tuple[Int32, Int32]:
    wrapped = stage + 1 == stages
    return cutlass.select_(wrapped, Int32(0), stage + 1), cutlass.select_(wrapped, phase ^ 1, phase)


class GroupGemm:
    """Host launcher and device roles for one `Plan`; see the module's docstring for roles, pipelines and maps.

    `kernel` sets what all roles read: smem, cluster, rank in it, clusters, tiles, and first_tiles, ms, ns, ks by group.
    """

    def __init__(self, plan: Plan):
        self.plan = plan

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

    def parts(self, token_row: Int32, m: Int32) -> Int32:
        """Parts of a tile that have tokens."""
        return cutlass.select_(token_row + self.plan.part_tokens < m, Int32(self.plan.parts), Int32(1))

    @cute.jit
    def load(self, promises: Int32, weight_maps: tuple, token_maps: tuple, weight_scales: tuple, token_scales: tuple):
        """Load role, one thread per CTA: fill a stage as soon as the MMA role has emptied it, weights before tokens."""
        plan, smem, rank = self.plan, self.smem, self.rank
        if promises & OPERANDS_READY == 0:
            grid_wait()
        stage, phase = Int32(0), Int32(0)
        for tile in cutlass.range(self.cluster, self.tiles, self.clusters, unroll=1):
            weight_block, token_row, m = self.position(tile)
            weight_block = weight_block * plan.cta_group + rank
            n, k = self.of_group(self.ns, tile), self.of_group(self.ks, tile)
            weight_map, token_map = self.of_group(weight_maps, tile), self.of_group(token_maps, tile)
            # Scale factors of 128 rows are consecutive atoms, K fastest. A pair's second half may lie past N, where
            # whatever is multiplied is not stored: it takes the last rows' scale factors.
            row_sf = Int64(k // MMA_K) * SF_ATOM
            weight_sf = self.of_group(weight_scales, tile) + cutlass.min(weight_block, (n - 1) // 128) * row_sf
            token_sf = self.of_group(token_scales, tile) + token_row // 128 * row_sf
            last_atom = (m - 1) // 128 - token_row // 128
            parts = self.parts(token_row, m)

            for k_start in cutlass.range(0, k, K_TILE, unroll=1):
                full = smem + (plan.at.full + 8 * stage)
                weight_smem = smem + (plan.at.weights + stage * plan.weight_bytes)
                token_smem = smem + (plan.at.tokens + stage * plan.token_bytes)
                scale_smem = smem + (plan.at.scales + stage * plan.scale_bytes)
                # Boxes of operands are always whole, zero-filled past M, N and K; copies of scale factors end with K.
                sf_bytes = cutlass.min(k - k_start, K_TILE) * (SF_ATOM // MMA_K)
                part_bytes = plan.part_token_bytes + plan.part_atoms * sf_bytes
                stage_bytes = plan.weight_bytes + sf_bytes + parts * part_bytes
                sf_offset = Int64(k_start // MMA_K) * SF_ATOM
                mbarrier_wait(smem + (plan.at.empty + 8 * stage), phase ^ 1)
                mbarrier_arrive_expect_tx(full, stage_bytes)
                tma_load(weight_smem, weight_map, k_start, weight_block * WEIGHT_TILE, full, Int64(EVICT_NORMAL))
                bulk_load(scale_smem, weight_sf + sf_offset, sf_bytes, full, Int64(EVICT_NORMAL))
                for part in cutlass.range_constexpr(plan.parts):
                    if part < parts:
                        first = token_row + (part * plan.part_tokens + rank * plan.token_rows)
                        part_smem = token_smem + part * plan.part_token_bytes
                        tma_load(part_smem, token_map, k_start, first, full, Int64(EVICT_LAST))
                        for atom in cutlass.range_constexpr(part * plan.part_atoms, (part + 1) * plan.part_atoms):
                            # A tile's second atom may lie past M, like a pair's second half past N.
                            atom_sf = token_sf + cutlass.min(atom, last_atom) * row_sf + sf_offset
                            bulk_load(scale_smem + (1 + atom) * SF_STAGE, atom_sf, sf_bytes, full, Int64(EVICT_LAST))
                stage, phase = next_stage(stage, phase, plan.stages)
        # Nobody else waits for the last commits; they must arrive before this CTA's SMEM is given up.
        for _ in cutlass.range(plan.stages, unroll=1):
            mbarrier_wait(smem + (plan.at.empty + 8 * stage), phase ^ 1)
            stage, phase = next_stage(stage, phase, plan.stages)

    @cute.jit
    def mma(self, tmem: Int32):
        """MMA role, one thread: scale factors and MMAs in issue order; each part commits on its own.

        A pair's leader works for both; in the other CTA only `relay` has something to do.
        """
        plan, smem, tiles = self.plan, self.smem, self.tiles
        if cutlass.const_expr(plan.cta_group == 2):
            # The other CTA has no tiles here. A branch around the role instead costs its loop the uniform registers.
            tiles = cutlass.select_(self.rank == 0, tiles, Int32(0))
        stage, phase = Int32(0), Int32(0)
        used = Int32(0)  # accumulators so far: which one is next, and in which phase
        for tile in cutlass.range(self.cluster, tiles, self.clusters, unroll=1):
            _, token_row, m = self.position(tile)
            k = self.of_group(self.ks, tile)
            # Atoms cover 128 rows; an odd tile of 64 or 192 tokens begins with the second half of one, two columns on.
            half_atom = token_row % 128 // 32
            for k_start in cutlass.range(0, k, K_TILE, unroll=1):
                weights = smem_descriptor(OPERAND_DESCRIPTOR, smem + (plan.at.weights + stage * plan.weight_bytes))
                tokens = smem_descriptor(OPERAND_DESCRIPTOR, smem + (plan.at.tokens + stage * plan.token_bytes))
                scales = smem_descriptor(SF_DESCRIPTOR, smem + (plan.at.scales + stage * plan.scale_bytes))
                mbarrier_wait(smem + (plan.at.full + 8 * stage), phase)
                for part in cutlass.range_constexpr(plan.parts):
                    if token_row + part * plan.part_tokens < m:
                        accumulator = (used + part) % plan.accumulators
                        if k_start == 0:
                            empty = smem + (plan.at.acc_empty + 8 * accumulator)
                            mbarrier_wait(empty, (used + part) // plan.accumulators % 2 ^ 1)
                        tmem_fence_after_sync()
                        self.multiply(tmem, accumulator, part, half_atom, k - k_start, k_start, weights, tokens, scales)
                        if k_start + K_TILE >= k:
                            tcgen05_commit(smem + (plan.at.acc_full + 8 * accumulator), plan)
                tcgen05_commit(smem + (plan.at.empty + 8 * stage), plan)
                stage, phase = next_stage(stage, phase, plan.stages)
            used += self.parts(token_row, m)
        if cutlass.const_expr(plan.cta_group == 2):
            # The other CTA's last arrivals must come before this one's SMEM is given up.
            for _ in cutlass.range(plan.accumulators, unroll=1):
                empty = smem + (plan.at.acc_empty + 8 * (used % plan.accumulators))
                mbarrier_wait(empty, used // plan.accumulators % 2 ^ 1)
                used += 1
            self.relay()

    @cute.jit
    def relay(self):
        """In a pair's other CTA, the MMA role's thread: tell the leader of every stage that is full here."""
        plan, smem = self.plan, self.smem
        stage, phase = Int32(0), Int32(0)
        for tile in cutlass.range(
            self.cluster, cutlass.select_(self.rank == 1, self.tiles, Int32(0)), self.clusters, unroll=1
        ):
            for _ in cutlass.range(0, self.of_group(self.ks, tile), K_TILE, unroll=1):
                full = smem + (plan.at.full + 8 * stage)
                mbarrier_wait(full, phase)
                mbarrier_arrive(full, plan)
                stage, phase = next_stage(stage, phase, plan.stages)

    @cute.jit
    def multiply(
        self,
        tmem: Int32,
        accumulator: Int32,
        part: cutlass.Constexpr,
        half_atom: Int32,
        k_left: Int32,
        k_start: Int32,
        weights: Int64,
        tokens: Int64,
        scales: Int64,
    ):
        """One stage into one accumulator. Weights' scale factors are in TMEM already for every part but the first."""
        plan = self.plan
        d = tmem + accumulator * plan.part_tokens
        weight_sf = tmem + plan.weight_sf_column
        token_sf = tmem + (plan.token_sf_column + part * K_BLOCKS * plan.part_atoms * SF_COLUMNS)
        for block in cutlass.range_constexpr(K_BLOCKS):
            if block * MMA_K < k_left:
                weight_column = weight_sf + block * SF_COLUMNS
                token_column = token_sf + block * plan.part_atoms * SF_COLUMNS
                if cutlass.const_expr(part == 0):
                    tcgen05_copy_sf(weight_column, scales + (block * SF_ATOM >> 4), plan)
                for atom in cutlass.range_constexpr(plan.part_atoms):
                    source = scales + ((1 + part * plan.part_atoms + atom) * SF_STAGE + block * SF_ATOM >> 4)
                    tcgen05_copy_sf(token_column + atom * SF_COLUMNS, source, plan)
                tcgen05_mma(
                    plan,
                    d,
                    weights + (block * MMA_K // 2 >> 4),
                    tokens + (part * plan.part_token_bytes + block * MMA_K // 2 >> 4),
                    weight_column,
                    token_column + half_atom,
                    Int32(k_start + block > 0),
                )

    @cute.jit
    def epilogue(self, promises: Int32, tmem: Int32, warp: Int32, outputs: tuple):
        """Epilogue role, one warp: its 32 weight rows of every part, EPILOGUE_TOKENS tokens at a time.

        A thread reads one weight row and stores pairs of rows: even threads of even tokens, odd ones of odd tokens, so
        that a warp writes 64 consecutive bytes of each of two tokens at once.
        Unless promised otherwise, an earlier launch may still write the same C, or read it: stores come after its end.
        """
        plan, smem = self.plan, self.smem
        lane = cute.arch.lane_idx()
        odd = lane % 2
        selector = cutlass.select_(odd == 0, Int32(LOW_HALVES), Int32(HIGH_HALVES))
        used = Int32(0)
        for tile in cutlass.range(self.cluster, self.tiles, self.clusters, unroll=1):
            weight_block, token_row, m = self.position(tile)
            n = self.of_group(self.ns, tile)
            row = (weight_block * plan.cta_group + self.rank) * WEIGHT_TILE + warp * WARP_ROWS + lane - odd
            pitch = Int64(n) * 2  # bytes from one token to the next
            output = self.of_group(outputs, tile) + (token_row + odd) * pitch + Int64(row) * 2
            tokens = cutlass.min(m - token_row, plan.token_tile)
            # N is even: both rows of the pair are stored, or none.
            stored_tokens = cutlass.select_(row < n, tokens - odd, Int32(0))
            for part in cutlass.range(0, tokens, plan.part_tokens, unroll=1):
                accumulator = used % plan.accumulators
                source = tmem + (warp * WARP_ROWS << 16) + accumulator * plan.part_tokens
                mbarrier_wait(smem + (plan.at.acc_full + 8 * accumulator), used // plan.accumulators % 2)
                tmem_fence_after_sync()
                end = cutlass.min(tokens, part + plan.part_tokens)
                for first in cutlass.range(part, end, EPILOGUE_TOKENS, unroll=1):
                    values = tmem_load_rows(source + (first - part))
                    if first + EPILOGUE_TOKENS >= end:
                        tmem_fence_before_sync()
                        cute.arch.sync_warp()
                        with cute.arch.elect_one():
                            mbarrier_arrive(smem + (plan.at.acc_empty + 8 * accumulator), plan)
                    if promises & OUTPUT_FREE == 0:
                        grid_wait()
                    for token in cutlass.range_constexpr(0, EPILOGUE_TOKENS, 2):
                        pair = transpose_pair(pack_f16x2(values[token], values[token + 1]), selector)
                        store_if_positive(stored_tokens - (first + token), output + (first + token) * pitch, pair)
                used += 1
        # One CTA is enough to keep launches ending in their order; the others make room.
        if self.cluster == 0:
            grid_wait()

    @cute.kernel
    def kernel(self, maps: tuple, addresses: tuple, sizes: tuple, tiles: Int32, promises: Int32):
        """By group: maps of weights, tokens; addresses of C, weight SF, token SF; sizes M, N, K and first tile."""
        plan = self.plan
        thread, _, _ = cute.arch.thread_idx()
        cta, _, _ = cute.arch.block_idx()
        ctas, _, _ = cute.arch.grid_dim()
        warp = cute.arch.make_warp_uniform(thread // 32)
        self.smem = smem = Int32(cute.arch.get_dyn_smem(cutlass.Uint8, 1024).toint())
        self.cluster, self.rank, self.clusters = cta // plan.cta_group, cta % plan.cta_group, ctas // plan.cta_group
        self.tiles, (self.ms, self.ns, self.ks, self.first_tiles) = tiles, sizes
        weight_maps, token_maps = [tuple(map(tensor_map_address, operand)) for operand in maps]
        outputs, *scales = addresses

        if warp == LOAD_WARP:
            with cute.arch.elect_one():
                self.initialise_barriers()
            cute.arch.sync_warp()
        self.announce_barriers(warp)
        if warp == LOAD_WARP:
            with cute.arch.elect_one():
                self.load(promises, weight_maps, token_maps, *scales)
            cute.arch.sync_warp()
            if cutlass.const_expr(plan.cta_group == 2):
                cluster_wait()
        else:
            if warp == MMA_WARP:
                tmem_alloc(smem + plan.at.tmem_address, plan)
                # Not before: a CTA of the next launch could take this one's columns, and then wait for its end.
                grid_launch_dependents()
                tmem_fence_before_sync()
            if cutlass.const_expr(plan.cta_group == 2):
                cluster_wait()
            barrier_sync(SETUP_BARRIER, THREADS)
            tmem_fence_after_sync()
            tmem = load_shared(smem + plan.at.tmem_address)
            if warp == MMA_WARP:
                with cute.arch.elect_one():
                    self.mma(tmem)
                cute.arch.sync_warp()
            else:
                self.epilogue(promises, tmem, warp, outputs)
            tmem_fence_before_sync()
            barrier_sync(TEARDOWN_BARRIER, THREADS - 32)
        if cutlass.const_expr(plan.cta_group == 2):
            # A pair ends together: until then its MMAs read both CTAs' SMEM, and its barriers are arrived on from both.
            cluster_arrive()
            cluster_wait()
        if warp == MMA_WARP:
            tmem_fence_after_sync()
            tmem_dealloc(load_shared(smem + plan.at.tmem_address), plan)

    def initialise_barriers(self):
        plan, smem = self.plan, self.smem
        for stage in range(plan.stages):
            # A pair's leader needs the other CTA's word as well.
            mbarrier_init(smem + (plan.at.full + 8 * stage), plan.cta_group - self.rank)
            mbarrier_init(smem + (plan.at.empty + 8 * stage), Int32(1))
        for accumulator in range(plan.accumulators):
            mbarrier_init(smem + (plan.at.acc_full + 8 * accumulator), Int32(1))
            mbarrier_init(smem + (plan.at.acc_empty + 8 * accumulator), Int32(EPILOGUE_WARPS * plan.cta_group))
        fence_mbarrier_init()

    @cute.jit
    def announce_barriers(self, warp: Int32):
        """All warps: the load warp's mbarriers are ready for the others, and for the other CTA of a pair."""
        if cutlass.const_expr(self.plan.cta_group == 2):
            cluster_arrive()
        if warp == LOAD_WARP:
            barrier_arrive(SETUP_BARRIER, THREADS)

    @cute.jit
    def launch(self, table: cute.Pointer):
        """Encode the tensor maps of all groups from the host table (see `TABLE_HEADER`) and launch."""
        plan = self.plan
        words = cute.make_tensor(table, cute.make_layout(TABLE_HEADER + (TABLE_SIZES + TABLE_TENSORS) * plan.groups))

        def operand_map(address, rows, k, tile_rows):
            pointer = cute.make_ptr(Float4E2M1FN, address, cute.AddressSpace.gmem, assumed_align=16)
            tensor = cute.make_tensor(pointer, cute.make_layout((rows, k), stride=(cute.assume(k, MMA_K), 1)))
            box = tile_rows, K_TILE
            layout = cute.make_composed_layout(cute.make_swizzle(3, 4, 3), 0, cute.make_ordered_layout(box, (1, 0)))
            return cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), tensor, layout, box)[0]

        def words_of(start, count):
            return [[words[start + count * group + i] for i in range(count)] for group in range(plan.groups)]

        sizes = [[Int32(word) for word in group] for group in words_of(TABLE_HEADER, TABLE_SIZES)]
        addresses = words_of(TABLE_HEADER + TABLE_SIZES * plan.groups, TABLE_TENSORS)
        maps = (
            tuple(operand_map(b, n, k, WEIGHT_TILE) for (m, n, k, _), (b, a, *_) in zip(sizes, addresses)),
            tuple(operand_map(a, m, k, plan.token_rows) for (m, n, k, _), (b, a, *_) in zip(sizes, addresses)),
        )
        others = tuple(zip(*(tensors[2:] for tensors in addresses)))
        self.kernel(maps, others, tuple(zip(*sizes)), Int32(words[1]), Int32(words[0])).launch(
            grid=(Int32(words[2]), 1, 1),
            block=(THREADS, 1, 1),
            cluster=(plan.cta_group, 1, 1),
            smem=plan.at.end,
            use_pdl=True,
        )


# ----------------------------------------------------------------------------------------------------------------------
# Host side
# ----------------------------------------------------------------------------------------------------------------------

# What is lost beside the bytes, in bytes that L2 delivers meanwhile; fitted on an H200, calls back to back.
PAIR_BYTES = 5_000_000  # where the CTAs of a pair wait for each other
ALONE_BYTES = 10_000_000  # where nothing is loaded between the end of a CTA and the start of the next on its SM
LARGEST = 2**31 - 2**12  # sizes and tile numbers are 32-bit in the kernel, which adds a tile or a grid to them


TENSORS = ("b", "a", "c", "sfb_reordered", "sfa_reordered")  # of a group, in the order of the host table


def group_layouts(m: int, n: int, k: int, batch: int) -> list[tuple]:
    """(dtype, shape, strides) of a group's TENSORS. Raises ValueError for sizes that the kernel cannot take."""
    if batch != 1:
        raise ValueError(f"l is {batch}; a group is one matrix product, so it must be 1")
    if not 0 <= m <= LARGEST:
        raise ValueError(f"m is {m}; it must be 0 to {LARGEST}")
    if not 8 <= n <= LARGEST or n % 8:
        raise ValueError(f"n is {n}; a row of C must be a multiple of 16 bytes, so n of 8, at least 8")
    if not MMA_K <= k <= LARGEST or k % MMA_K:
        raise ValueError(f"k is {k}; it must be a multiple of {MMA_K}, at least {MMA_K}, one MMA's K")

    def matrix(dtype, rows, columns):
        return dtype, (rows, columns, 1), (columns, 1, rows * columns)

    def scales(rows):
        blocks, pitch = ceil_div(rows, 128), k // MMA_K * SF_ATOM
        return torch.float8_e4m3fn, (32, 4, blocks, 4, k // MMA_K, 1), (16, 4, pitch, 1, SF_ATOM, blocks * pitch)

    fp4 = torch.float4_e2m1fn_x2
    return [matrix(fp4, n, k // 2), matrix(fp4, m, k // 2), matrix(torch.float16, m, n), scales(n), scales(m)]


@functools.lru_cache(maxsize=1024)
def tensor_layouts(problems: tuple[tuple[int, int, int, int], ...]) -> list[tuple]:
    """group_layouts of all groups of (M, N, K, 1), one after the other. Raises ValueError naming the group."""
    rows = []
    for group, problem in enumerate(problems):
        try:
            rows += group_layouts(*map(operator.index, problem))
        except (TypeError, ValueError) as error:
            raise ValueError(f"group {group}: {error}") from None
    return rows


def check_tensor(tensor: torch.Tensor, device: int, name: str, dtype, shape: tuple, strides: tuple):
    """Raise ValueError for what the kernel cannot take: dtype, device, shape, strides or alignment.

    A stride counts only where its dimension has more than one entry; torch leaves the others open.
    """
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name} is a {type(tensor).__name__}; expected a torch.Tensor")
    if tensor.dtype != dtype:
        raise ValueError(f"{name} has dtype {tensor.dtype}; expected {dtype}")
    if tensor.get_device() != device:
        raise ValueError(f"{name} is on {tensor.device}; expected the current device, cuda:{device}")
    if tensor.shape != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected {shape}")
    found = tensor.stride()
    if 0 not in shape and any(size > 1 and a != b for size, a, b in zip(shape, found, strides)):
        raise ValueError(f"{name} has strides {found}; expected {strides} (elements)")
    if tensor.data_ptr() % 16:
        raise ValueError(f"{name} starts at address {tensor.data_ptr():#x}; TMA needs a multiple of 16 bytes")


def unpack(data: input_t) -> tuple[list[torch.Tensor], tuple[tuple[int, int, int, int], ...]]:
    """All groups' TENSORS, one after the other, and the problem sizes. Raises ValueError for another structure."""
    try:
        operands, _, reordered, problems = data
        lengths = len(operands), len(reordered), len(problems)
    except (TypeError, ValueError):
        names = "abc_tensors, sfasfb_tensors, sfasfb_reordered_tensors, problem_sizes"
        raise ValueError(f"expected the tuple ({names})") from None
    if len(set(lengths)) > 1:
        raise ValueError(
            "{} groups of operands, {} of reordered scales, {} of problem sizes: the three lists must be of one "
            "length".format(*lengths)
        )
    tensors, sizes = [], []
    try:
        for (a, b, c), (sfa, sfb), (m, n, k, batch) in zip(operands, reordered, problems):
            tensors += b, a, c, sfb, sfa
            sizes.append((m, n, k, batch))
    except (TypeError, ValueError):
        raise ValueError(f"group {len(sizes)}: expected (a, b, c), (sfa, sfb) and (m, n, k, l)") from None
    return tensors, tuple(sizes)


def check(data: input_t) -> tuple[list[int], tuple[tuple[int, int, int, int], ...]]:
    """Check every constraint of the kernel. Returns the addresses of all groups' TENSORS, and the problem sizes.

    Raises ValueError naming the group, the value, the limit and the reason; nothing has been launched then.
    """
    tensors, problems = unpack(data)
    layouts, device = tensor_layouts(problems), torch.cuda.current_device()
    try:
        addresses = [tensor.data_ptr() for tensor in tensors]
        usual = (
            [(tensor.dtype, tensor.shape, tensor.stride()) for tensor in tensors] == layouts
            and set(map(torch.Tensor.get_device, tensors)) <= {device}
            and math.gcd(16, *addresses) == 16
        )
    except (AttributeError, TypeError):
        usual = False
    if not usual:
        for index, (tensor, layout) in enumerate(zip(tensors, layouts)):
            group, of_group = divmod(index, len(TENSORS))
            try:
                check_tensor(tensor, device, TENSORS[of_group], *layout)
            except ValueError as error:
                raise ValueError(f"group {group}: {error}") from None
    return addresses, problems


@functools.cache
def sm_count(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def merits(schedule: Schedule, overlapping: bool = True) -> dict[str, int]:
    """What schedules are compared by, least first; the first difference decides.

    Launches that overlap share the SMs, and what all of them must fetch counts; of one on its own the busiest SM.
    """
    plan = schedule.plan
    if overlapping:
        waiting = PAIR_BYTES * (plan.cta_group > 1) + ALONE_BYTES * (plan.ctas_per_sm == 1)
        return {"bytes and waits": schedule.requested_bytes + waiting, "tokens per tile": plan.token_tile}
    k_tiles = ceil_div(max(k for _, _, k in schedule.sizes), K_TILE)
    busiest = schedule.waves * plan.ctas_per_sm * k_tiles * plan.stage_bytes
    return {"bytes of the busiest SM": busiest, "bytes": schedule.requested_bytes, "tokens per tile": plan.token_tile}


def candidates(sizes: tuple[tuple[int, int, int], ...], sms: int, overlapping: bool = True) -> list[Schedule]:
    """The schedules worth comparing, best first."""
    schedules = [Schedule(Plan(len(sizes), *shape), sizes, sms) for shape in shapes() if shape[1] <= sms]
    return sorted(schedules, key=lambda schedule: tuple(merits(schedule, overlapping).values()))


class Launch(NamedTuple):
    """One launch: its schedule, the groups of the call in the order of its tiles, and what fills the host table."""

    schedule: Schedule
    groups: tuple[int, ...]
    words: array  # tiles, CTAs, and every group's sizes and first tile
    pick: operator.itemgetter  # of all tensors' addresses those of the groups


@functools.lru_cache(maxsize=1024)
def configure(
    problems: tuple[tuple[int, int, int, int], ...], sms: int, overlapping: bool = True
) -> tuple[Launch, ...]:
    """Launches for groups of (M, N, K, 1): groups without tokens left out, the others by descending M.

    overlapping: whether the launch will load beside the end of the one before it.

    Raises ValueError for sizes that the kernel cannot take.
    """
    tensor_layouts(problems)
    sizes = [problem[:3] for problem in problems]
    order = sorted((group for group, (m, _, _) in enumerate(sizes) if m), key=lambda group: -sizes[group][0])
    launches = []
    for start in range(0, len(order), MAX_GROUPS):
        groups = tuple(order[start : start + MAX_GROUPS])
        schedule = candidates(tuple(sizes[group] for group in groups), sms, overlapping)[0]
        if schedule.tiles > LARGEST:
            raise ValueError(f"{schedule.tiles} tiles in one launch; tile numbers are 32-bit, at most {LARGEST}")
        words = [schedule.tiles, schedule.ctas]
        for size, first_tile in zip(schedule.sizes, schedule.first_tiles):
            words += [*size, first_tile]
        tensors = [TABLE_TENSORS * group + tensor for group in groups for tensor in range(TABLE_TENSORS)]
        launches.append(Launch(schedule, groups, array("q", words), operator.itemgetter(*tensors)))
    return tuple(launches)


@functools.cache
def compiled(plan: Plan):
    """The compiled launcher of a plan; takes a pointer to the host table."""
    return cute.compile(GroupGemm(plan).launch, make_ptr(Int64, 0, cute.AddressSpace.generic, assumed_align=8))


def solve(data: input_t, operands_ready: bool = False, output_free: bool = False) -> output_t:
    """Compute every group of `data` into the caller's c tensors and return them.

    data: (abc_tensors, sfasfb_tensors, sfasfb_reordered_tensors, problem_sizes) as the contest defines them: per group
        a [M, K/2, 1] and b [N, K/2, 1] float4_e2m1fn_x2, c [M, N, 1] float16, reordered scales
        [32, 4, ceil(rows/128), 4, K/64, 1] float8_e4m3fn, sizes (M, N, K, 1). M >= 0, N a multiple of 8, K of 64.
    The kernel waits for the end of whatever is ahead of it in the queue before it loads operands and before it stores
    c, except where the caller promises that it need not. Of every kernel that is still running, or was when the one
    just ahead began:
    operands_ready: none of them writes operands of this call.
    output_free: none of them reads or writes c.
    Launches on the device's default queue and returns at once; does nothing at all where every group is empty.
    Raises ValueError before any launch where a constraint does not hold.
    """
    addresses, problems = check(data)
    promises = operands_ready * OPERANDS_READY | output_free * OUTPUT_FREE
    for schedule, _, words, pick in configure(problems, sm_count(torch.cuda.current_device()), operands_ready):
        table = array("q", (promises,)) + words + array("q", pick(addresses))
        compiled(schedule.plan)(make_ptr(Int64, table.buffer_info()[0], cute.AddressSpace.generic, assumed_align=8))
    return [c for _, _, c in data[0]]


def describe(schedule: Schedule) -> dict[str, str]:
    """The figures of a schedule that people compare, as text."""
    plan = schedule.plan
    return {
        "tile": f"{WEIGHT_TILE * plan.cta_group}x{plan.token_tile}x{K_TILE}",
        "CTAs per MMA": f"{plan.cta_group}",
        "CTAs per SM": f"{plan.ctas_per_sm}",
        "stages": f"{plan.stages}",
        "SMEM bytes": f"{plan.at.end:,}",
        "tiles": f"{schedule.tiles}",
        "waves": f"{schedule.waves}",
        "CTAs": f"{schedule.ctas}",
        "MB requested": f"{schedule.requested_bytes / 1e6:.1f}",
    }


def explain(
    problem_sizes: list[tuple[int, int, int, int]], sms: int | None = None, operands_ready: bool = True
) -> None:
    """Print what `solve` launches for these (M, N, K, 1) sizes: every candidate, and what each lost by.

    sms: SMs to plan for, by default those of the current device. operands_ready: as for `solve`.
    """
    sms = sm_count(torch.cuda.current_device()) if sms is None else sms
    launches = configure(tuple(map(tuple, problem_sizes)), sms, operands_ready)
    if not launches:
        print("nothing to launch: no group has tokens")
    for launch in launches:
        best, rows = merits(launch.schedule, operands_ready), []
        for schedule in candidates(launch.schedule.sizes, sms, operands_ready):
            values = merits(schedule, operands_ready)
            lost = [f"{name}: {value:,} > {best[name]:,}" for name, value in values.items() if value > best[name]]
            rows.append({**describe(schedule), "": lost[0] if rows else "<- chosen"})
        widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
        print(f"{len(launch.groups)} groups on {sms} SMs; compared by {', then '.join(best)}:")
        for row in ({name: name for name in widths}, *rows):
            print("  ".join(row[name].rjust(width) if name else row[name] for name, width in widths.items()))


def plan_report(problem_sizes: list[tuple[int, int, int, int]]) -> dict[str, str]:
    """What `custom_kernel` launches for these (M, N, K, 1) sizes, as text; launches are separated by " + "."""
    sms = sm_count(torch.cuda.current_device())
    rows = [describe(launch.schedule) for launch in configure(tuple(map(tuple, problem_sizes)), sms)]
    return {name: " + ".join(row[name] for row in rows) for name in (rows[0] if rows else ())}


def custom_kernel(data: input_t) -> output_t:
    """The contest's entry point: the calls that it times have operands and outputs of their own, ready before the first."""
    return solve(data, operands_ready=True, output_free=True)
