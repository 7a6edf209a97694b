"""Every rule that the emulator enforces, in one table: a kernel that breaks it, and its legal twin.

A row is (name, words of the error, text that breaks the rule, text that keeps it); both texts go to the same place of
their family's kernel, its frame. The error names kernel, CTA, warp and a line of PTX: that of an instruction in the
breaking text or, if the error shows only later, of `at`.
"""

import re
from dataclasses import dataclass

import numpy as np
import pytest

import nogpu
from nogpu import errors
from nogpu.errors import EmulatorError
from tests.support import tables
from tests.support.encoding import block_scaled_idesc, f16_idesc, smem_descriptor, tensor_map
from tests.support.small_kernels import aligned, launch

HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"
SHARED_BYTES = 16384
START = 1024  # shared offset of the kernels' variable smem: the first KB is the system's
NOWHERE = "nowhere"


@dataclass(frozen=True)
class Rule:
    name: str
    words: str
    """Regular expression for the error."""
    broken: str
    legal: str
    at: str | None = None
    """Opcode of the error's PTX line if it is not in `broken`; NOWHERE if the error names no instruction."""
    warp: int | None = 0
    """The error's warp; None if the kernel is refused before it runs."""
    cta: tuple[int, int, int] = (0, 0, 0)
    map_fields: dict | None = None
    """Fields in which the broken kernel's tensor map differs from its twin's."""
    strict: bool = False
    """The error is a warning unless NOGPU_LENIENT is 0."""


FAMILIES = []


class Family:
    """Rules that share a frame: a kernel body with {} at the place of a rule's text."""

    def __init__(self, frame: str, rows: list, options: dict | None = None, **common):
        """options: of `launch`. common: fields of all rules that `rows` has as tuples."""
        FAMILIES.append(self)
        self.frame, self.options = frame, options or {}
        self.rules = [row if isinstance(row, Rule) else Rule(*row, **common) for row in rows]


def run(family, text, map_fields=None):
    """Run a kernel. Parameters: a0, 32 words; a1, the map of a2, 4 x 16 words, with a box of 2 x 16."""
    words, tensor = aligned(np.zeros(32, np.uint32)), aligned(np.zeros((4, 16), np.uint32))
    changes = {"moved": 0, "bits": 0} | (map_fields or {})
    address, bits = tensor.ctypes.data + changes.pop("moved"), changes.pop("bits")
    fields = {"dims": (16, 4), "strides": (64,), "box": (16, 2), "element": "u32"}
    encoded = aligned(tensor_map(address, **fields | changes))
    encoded[8:12].view("<u4")[0] += bits
    launch(family.frame.replace("{}", text), words, encoded, tensor, **{"shared": SHARED_BYTES} | family.options)


# Names in the tables, behind a $
BULK = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
TILE = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
MULTICAST = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
BULK_STORE = "cp.async.bulk.global.shared::cta.bulk_group"
TILE_STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
CP_ASYNC_CA, CP_ASYNC_CG = "cp.async.ca.shared.global", "cp.async.cg.shared.global"
T_ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"
T_FREE = "tcgen05.dealloc.cta_group::1.sync.aligned.b32"
T_LD, T_WAIT = "tcgen05.ld.sync.aligned", "tcgen05.wait::ld.sync.aligned;"
T_COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"
RELINQUISH = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"


def rules(table, **fields):
    """Rules of a table of `support.tables`; tuples, if they have no fields of their own."""
    return [Rule(*row, **fields) if fields else row for row in tables.rows(table, names=globals())]


BEGIN = """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 8192; setp.ne.u32 %p1, %tid, 0; mov.u32 %r1, 0; mov.u32 %r2, 2;
    mov.u64 %rd3, 0; mov.b16 %h1, 1;
"""
INIT = (
    "@%p1 bra READY; mbarrier.init.shared.b64 [%r11], {count}; fence.mbarrier_init.release.cluster;\nREADY: bar.sync 0;"
)
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p9, [%r11], 0; @!%p9 bra W;"
INIT_FENCE = "fence.mbarrier_init.release.cluster;"
ARRIVED, MET = "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"
MEET = f"{ARRIVED} {MET}"
DRAIN = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"

ADDRESSES = Family(
    BEGIN + ".local .align 16 .b8 stack[32]; {}",
    [
        *rules(r"""
load alignment | misaligned by 2 bytes | ld.global.b32 %r1, [%a0+<2 -> 4>];
store alignment | misaligned by 1 bytes | st.global.b16 [%a0+<1 -> 2>], %h1;
vector alignment | misaligned by 8 bytes | st.global.v4.b32 [%a0+<8 -> 16>], {%r1, %r1, %r1, %r1};
alignment by lane | misaligned | mad.wide.u32 %rd1, %tid, <3 -> 4>, %a0; ld.global.b16 %h1, [%rd1];
shared alignment | misaligned by 4 bytes | ld.shared.b64 %rd1, [%r10+<4 -> 8>];
shared vector alignment | misaligned by 8 bytes | st.shared.v2.b64 [%r10+<8 -> 16>], {%rd3, %rd3};
local alignment | local address 0x2: misaligned | ld.local.b32 %r1, [stack+<2 -> 4>];
atomic alignment | misaligned by 2 bytes | atom.global.add.u32 %r3, [%a0+<2 -> 4>], 1;
one byte before an allocation | load of 1 bytes | ld.global.b8 %r1, [%a0<+-1 -> >];
one byte past an allocation | past the end of a0 | ld.global.b8 %r1, [%a0+<128 -> 127>];
store past an allocation | past the end of a0 | st.global.b8 [%a0+<128 -> 127>], %r1;
store past an allocation by a lane | past the end of a0
    | mad.wide.u32 %rd1, %tid, 4, %a0; st.global.b32 [%rd1<+4 -> >], %r1;
shared memory past the launch's size | the launch's shared memory is | ld.shared.b8 %r1, [%r10+<16384 -> 16383>];
an atomic below shared memory | shared address 0xfffffffffffffffc names CTA rank
    | mov.b64 %rd1, 1024; atom.shared.add.u32 %r3, [%rd1+<-1028 -> 0>], 1;
the system's shared memory | the launch's shared memory is | ld.shared.b8 %r1, [%r10<+-1 -> >];
shared memory of a CTA that is not there | CTA rank 1 of a cluster of 1
    | ld.shared::cluster.b32 %r1, [%r10<+0x1000000 -> >];
local memory ahead of its start | access of 4 bytes at local address 0xfffffffc: .* memory, \[0, 0x20\)
    | st.local.b32 [<-4 -> 4>], %r1;
local memory ahead of its start, by a register | access of 8 bytes at local address 0xfffffff8: .* memory, \[0, 0x20\)
    | mov.b64 %rd1, 8; ld.local.v2.b32 {%r1, %r2}, [%rd1+<-16 -> -8>];
local memory past its end | local address .* memory, \[0, 0x20\) | ld.local.b32 %r1, [stack+<4096 -> 28>];
cp.async alignment | must be a multiple of the copy's 16 bytes
    | $CP_ASYNC_CG [%r10], [%a0+<8 -> 16>], 16; cp.async.wait_all;
cp.async source size | src-size 8 is larger than cp-size 4
    | $CP_ASYNC_CA [%r10], [%a0], <4, 8 -> 8, 4>; cp.async.wait_all;
ldmatrix alignment | misaligned by 4 bytes | ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r10+<4 -> 16>];
st.bulk size | st.bulk: size 0xc is not a multiple of 8 | @!%p1 st.bulk.shared::cta [%r10], <12 -> 16>, 0;
""")
    ],
)

LOAD_TILE = f"{TILE} [%r10], [%a1, {{%r1, %r1}}], [%r11];"
LOAD_FRAME = (
    BEGIN
    + INIT.format(count=1)
    + "@%p1 bra ISSUED; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128; {}\nISSUED:"
    + WAIT
)
LOADS = Family(
    LOAD_FRAME,
    [
        *rules(r"""
bulk size | size 0x18 is not a multiple of 16 | $BULK [%r10], [%a0], <24 -> 128>, [%r11];
bulk global address | is not a multiple of 16 | $BULK [%r10], [%a0<+8], 64 -> ], 128>, [%r11];
bulk shared address | is not a multiple of 16 | $BULK [%r10+<8 -> 16>], [%a0], 128, [%r11];
bulk past an allocation | past the end of a0 | $BULK [%r10], [%a0<+16 -> >], 128, [%r11];
bulk past shared memory | store of 128 bytes at shared offset | $BULK [%r10+<16272 -> 16256>], [%a0], 128, [%r11];
bulk over a live barrier | touches a live barrier | $BULK [%r11< -> +16>], [%a0], 128, [%r11];
barrier of a copy is initialised | was not initialised | $BULK [%r10], [%a0], 128, [%r11<+8 -> >];
barrier of a copy is aligned | must be 8-byte aligned | $BULK [%r10], [%a0], 128, [%r11<+4 -> >];
multicast to a CTA that is not there | multicast mask 0x0002 for a cluster of 1
    | mov.b16 %h2, <2 -> 1>; $MULTICAST [%r10], [%a0], 128, [%r11], %h2;
multicast to nobody | multicast mask 0x0000 | mov.b16 %h2, <0 -> 1>; $MULTICAST [%r10], [%a0], 128, [%r11], %h2;
tile shared address | is not a multiple of 128 | $TILE [%r10+<64 -> 128>], [%a1, {%r1, %r1}], [%r11];
tile past shared memory | store of 128 bytes at shared offset
    | $TILE [%r10+<16384 -> 16256>], [%a1, {%r1, %r1}], [%r11];
tile over a live barrier | touches a live barrier | $TILE [%r11< -> +128>], [%a1, {%r1, %r1}], [%r11];
coordinates are as many as the map's rank | 1 coordinates for a tensor map of rank 2 |
    <cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r10], [%a1, { -> $TILE [%r10],
    [%a1, {%r1, >%r1}], [%r11];
tensor map address | must be 64-byte aligned | $TILE [%r10], [%a1<+16 -> >, {%r1, %r1}], [%r11];
tensor map in shared memory | a tensor map in shared memory | <cvt.u64.u32 %rd4, %r10; cvta.shared.u64 %rd4, %rd4; $TILE
    [%r10], [%rd4 -> $TILE [%r10], [%a1>, {%r1, %r1}], [%r11];
what is used as a map is one | tensor map | $TILE [%r10], [%<a2 -> a1>, {%r1, %r1}], [%r11];
tensormap prefetch address | must be a 64-byte aligned
    | prefetch.tensormap [%a1<+16 -> >]; $TILE [%r10], [%a1, {%r1, %r1}], [%r11];
bulk prefetch size | size 0x8 is not a multiple of 16
    | cp.async.bulk.prefetch.L2.global [%a0], <8 -> 16>; $TILE [%r10], [%a1, {%r1, %r1}], [%r11];
""")
    ],
)

STORES = Family(
    BEGIN + "@%p1 bra ISSUED; {} " + DRAIN + "\nISSUED:",
    [
        *rules(r"""
bulk store size | size 0x8 is not a multiple of 16 | $BULK_STORE [%a0], [%r10], <8 -> 16>;
bulk store global address | is not a multiple of 16 | $BULK_STORE [%a0+<4 -> 16>], [%r10], 16;
bulk store shared address | is not a multiple of 16 | $BULK_STORE [%a0], [%r10+<8 -> 16>], 16;
bulk store past an allocation | store of 144 bytes .*past the end of a0 | $BULK_STORE [%a0], [%r10], <144 -> 128>;
bulk store from past shared memory | load of 32 bytes at shared offset | $BULK_STORE [%a0], [%r10+<16368 -> 16352>], 32;
tile store shared address | is not a multiple of 128 | $TILE_STORE [%a1, {%r1, %r1}], [%r10+<16 -> 128>];
tile store coordinates | must not be negative | $TILE_STORE [%a1, {<-1, %r1 -> %r1, 3>}], [%r10];
""")
    ],
)

MAPS = Family(
    LOAD_FRAME,
    [
        Rule(name, words, LOAD_TILE, LOAD_TILE, map_fields=fields)
        for name, words, fields in [
            ("map address", "is not a multiple of 16", {"moved": 8}),
            ("map inner row of 16 bytes", "in a row are no multiple of 16 bytes", {"box": (3, 2)}),
            ("map row inside of the swizzle", "64 bytes is wider than the 32-byte swizzle span", {"swizzle": 32}),
            ("map rank", "tensor map rank 6; limit 1 to 5", {"bits": 4 << 4}),
            ("map element type", "element type code", {"bits": 13 << 7}),
            ("map flags", "not a tensor map", {"bits": 1}),
            ("map fills integers with NaN", "only floats can", {"fill_nan": True}),
            (
                "map of 4-bit elements has even rows",
                "must be even",
                {"element": "b4x16", "dims": (31, 4), "box": (32, 2)},
            ),
            (
                "map swizzle of other atoms",
                "swizzle of 64 bytes with atoms of 32 bytes",
                {"swizzle": 64, "atom": "32B"},
            ),
            ("map interleave", "rank 2 with interleave 16B", {"interleave": 1}),
            ("map element stride", "element stride 2 in dimension 0", {"element_strides": (2, 1)}),
        ]
    ],
)

MBARRIERS = Family(
    BEGIN + INIT.format(count=2) + "@%p1 bra END; {}\nEND:",
    [
        *rules(r"""
re-initialised while live | of a live barrier without mbarrier.inval
    | mbarrier.<arrive.shared.b64 _, -> inval.shared.b64> [%r11]; mbarrier.init.shared.b64 [%r11], 1;
count of 0 | must be 1 to 1048575 | mbarrier.init.shared.b64 [%r11+8], <0 -> 1>;
count overflow | count 1048576: must be 1 to 1048575 | mbarrier.init.shared.b64 [%r11+8], <1048576 -> 1048575>;
pending count overflow | would exceed 1048575 | mbarrier.init.shared.b64 [%r11+8], 1048575;
    cp.async.mbarrier.arrive.<shared.b64 [%r11+8] -> noinc.shared.b64 [%r11+8]; cp.async.wait_all>;
arrivals underflow | 2 pending of 2: the count would underflow | mbarrier.arrive.shared.b64 _, [%r11], <3 -> 2>;
noComplete completes | would complete the phase | mbarrier.arrive.noComplete.shared.b64 %rd4, [%r11], <2 -> 1>;
transaction bytes overflow | tx-count of mbarrier .* would be 1048576
    | mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r11], <1048576 -> 1048575>;
used before init | was not initialised | mbarrier.arrive.shared.b64 _, [%r11<+8 -> >];
used after inval | was not initialised
    | mbarrier.<inval.shared.b64 [%r11]; mbarrier. -> >test_wait.parity.shared.b64 %p2, [%r11], 0;
invalidated in use | mbarrier.inval of a barrier in use
    | mbarrier.<expect_tx.relaxed.cta.shared::cta.b64 [%r11], 16; mbarrier. -> >inval.shared.b64 [%r11];
barrier alignment | must be 8-byte aligned | mbarrier.init.shared.b64 [%r11+<12 -> 16>], 1;
barrier outside of shared memory | inside of the launch's shared memory
    | mbarrier.init.shared.b64 [%r10+<16384 -> 16376>], 1;
phase parity | phase parity 2: must be 0 or 1 | mbarrier.test_wait.parity.shared.b64 %p2, [%r11], <2 -> 1>;
old state token | the state token is of phase 0 | mbarrier.arrive.shared.b64 %rd4, [%r11], 2;
    mbarrier.<arrive.shared.b64 _, [%r11], 2; mbarrier. -> >test_wait.shared.b64 %p2, [%r11], %rd4;
stored over | store of 4 bytes .* touches a live barrier | st.shared.b32 [%r11+<4 -> 8>], %r1;
read as data | load of 8 bytes .* touches a live barrier | ld.shared.b64 %rd4, [%r11< -> +-8>];
arrival at a CTA that is not there | names CTA rank 1 of a cluster of 1
    | mbarrier.arrive.shared::cluster.b64 _, [%r11<+0x1000000 -> >];
"""),
        Rule(
            "re-initialised while live and untouched",
            "of a live barrier without mbarrier.inval",
            "mbarrier.init.shared.b64 [%r11], 1; mbarrier.arrive.shared.b64 _, [%r11];" + WAIT,
            "mbarrier.inval.shared.b64 [%r11]; mbarrier.init.shared.b64 [%r11], 1;"
            + "mbarrier.arrive.shared.b64 _, [%r11];"
            + WAIT,
            strict=True,
        ),
    ],
)

BARRIERS = Family(
    BEGIN + "{}",
    [
        *rules(r"""
barrier number | there are 16 per CTA | bar.sync <16 -> 15>;
barrier threads | must be a positive multiple of 32 | bar.sync 1, <48 -> 64>;
cluster wait before arrive | without a barrier.cluster.arrive | $MET | $MEET
cluster arrive twice | arrive twice | <$ARRIVED  -> >$MEET
membermask | are not in its membermask | vote.sync.any.pred %p2, %p1, < -> ->1;
""")
    ],
    options={"threads": 64},
)

NAMED = Family(
    BEGIN + "shr.u32 %r5, %tid, 5; setp.ne.u32 %p2, %r5, 0; @%p2 bra OTHER; bar.arrive 1, 96;\nOTHER: {}",
    [("barrier threads differ", "is used with 64 threads while", "@%p2 bar.sync 1, 64;", "@%p2 bar.sync 1, 96;")],
    {"threads": 96},
    warp=1,
)

# Lanes 8 to 31 go around the instruction.
SPLIT = "@%p2 bra AROUND; {0}\nAROUND:"
DIVERGED = Family(
    BEGIN + "setp.ge.u32 %p2, %tid, 8; {} st.shared.b32 [%r10], %r1;",
    [
        (f"divergence at {text.split()[0].rstrip(';')}", words, SPLIT.format(text), text)
        for text, words in [
            ("bar.sync 0;", "the warp has diverged"),
            ("barrier.cta.arrive.aligned 1, 64; bar.sync 1, 64;", "the warp has diverged"),
            ("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", "the warp has diverged"),
            ("setmaxnreg.dec.sync.aligned.u32 40;", "the warp has diverged"),
            ("tcgen05.wait::ld.sync.aligned;", "the warp has diverged"),
            ("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", "the warp has diverged"),
            ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r10];", "diverged"),
            ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r10], {%r1};", "diverged"),
            ("movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r1;", "diverged"),
            ("shfl.sync.idx.b32 %r3, %tid, 0, 31, -1;", "have diverged and are elsewhere"),
            ("elect.sync %r3|%p3, -1;", "have diverged and are elsewhere"),
            ("vote.sync.any.pred %p3, %p1, -1;", "have diverged and are elsewhere"),
            ("redux.sync.add.u32 %r3, %tid, -1;", "have diverged and are elsewhere"),
            ("match.any.sync.b32 %r3, %tid, -1;", "have diverged and are elsewhere"),
        ]
    ],
)

ALLOC = f"{T_ALLOC} [%r10], 64; ld.shared.b32 %r12, [%r10];"
DEALLOC = f"{T_FREE} %r12, 64;"
P_ALLOCATES, P_FREES = (text.replace("group::1", "group::2") for text in (ALLOC, DEALLOC))
PAIRED = P_ALLOCATES + P_FREES
LD = "tcgen05.ld.sync.aligned.{shape}.b32 {{{registers}}}, [{place}]; tcgen05.wait::ld.sync.aligned;"


def ld(place="%r12", shape="32x32b.x1", registers="%r3"):
    return LD.format(place=place, shape=shape, registers=registers)


ALLOCATION = Family(
    BEGIN + "{}",
    [
        *rules(r"""
columns are a power of two | 48 columns; must be a power of two | $T_ALLOC [%r10], 48; ld.shared.b32 %r12, [%r10];
    | $ALLOC $DEALLOC
columns to 512 | 1024 columns; must be a power of two
    | $T_ALLOC [%r10], <1024; ld.shared.b32 %r12, [%r10] -> 512; ld.shared.b32 %r12, [%r10]; $T_FREE %r12, 512>;
alloc after relinquish | after tcgen05.relinquish_alloc_permit | $RELINQUISH $ALLOC | $ALLOC $RELINQUISH $DEALLOC
address of an allocation is aligned | must be in this CTA, 4-byte aligned
    | $T_ALLOC [%r10+2], 64; ld.shared.b32 %r12, [%r10+2]; | $ALLOC $DEALLOC
freed twice | is not an allocation of this CTA | $ALLOC $DEALLOC< $T_FREE %r12, 64; -> >
freed in part | is not an allocation of this CTA | $ALLOC <$T_FREE %r12, 32; -> $DEALLOC>
cta_group differs | cta_group::2 in a CTA that has used cta_group::1 | $ALLOC <$P_FREES -> $DEALLOC>
pair without a cluster | cta_group::2 in a cluster of 1 | $P_ALLOCATES | $ALLOC $DEALLOC
"""),
        ("columns from 32", "16 columns; must be a power of two", ALLOC.replace("64", "16"), ALLOC + DEALLOC),
        ("used before alloc", "column 0 .* is not allocated; allocated: none", ld("%r1"), ALLOC + ld() + DEALLOC),
        ("used after dealloc", "is not allocated", ALLOC + DEALLOC + ld(), ALLOC + ld() + DEALLOC),
        Rule("left allocated", "exits with tensor memory allocated", ALLOC, ALLOC + DEALLOC, at="ret"),
        Rule(
            "more columns than are free",
            "kernel hangs",
            (ALLOC + ALLOC).replace("64", "512"),
            (ALLOC + DEALLOC + ALLOC + DEALLOC).replace("64", "512"),
            at="tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32",
        ),
    ],
)
TENSOR_MEMORY = Family(
    BEGIN + ALLOC + "{}" + DEALLOC,
    [
        *rules(r"""
outside of the allocation | column 64 .* is not allocated | $T_LD.32x32b.x2.b32 {%r3, %r4}, [%r12+<63 -> 62>]; $T_WAIT
stored outside of the allocation | column 64 .* is not allocated
    | tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12+<64 -> 63>], %r1;
lanes of another warp | lane 32 of warp 0 of its group; the warp reaches lanes 0 to 31
    | add.u32 %r13, %r12, <0x200000 -> 0>; $T_LD.32x32b.x1.b32 {%r3}, [%r13]; $T_WAIT
lane of a 16-lane shape | an access of 16 lanes starts at a multiple of 16
    | add.u32 %r13, %r12, <0x80000 -> 0x100000>; $T_LD.16x64b.x1.b32 {%r3}, [%r13]; $T_WAIT
columns past 511 | limit 511 | $T_LD.32x32b.x2.b32 {%r3, %r4}, [%r12+<511 -> 62>]; $T_WAIT
copy by the whole warp | tcgen05.cp is executed by 32 lanes | <tcgen05.cp.cta_group::1.32x128b.warpx4 [%r12], %rd3; -> >
"""),
        (
            "commit to a barrier that is none",
            "was not initialised",
            "@!%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11];",
            INIT.format(count=1)
            + "@!%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11];"
            + WAIT,
        ),
    ],
)

# One warp; A at shared offset 4096, 128 x 32 bytes, B at 8192 + 128; D in the first of 256 columns, scales from 192.
A = smem_descriptor(START + 2048, 256, leading=128)
B = smem_descriptor(START + 12288, 256, leading=128)
SWIZZLED = smem_descriptor(START + 12288, 1024, 128)
F16 = f16_idesc(128, 16)
NVFP4 = block_scaled_idesc(128, 16)
PLAIN_MMA = "tcgen05.mma.cta_group::1.kind::f16 [%r12], %rd5, %rd6, %r15, %p4;"
SCALED_MMA = (
    "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 [%r12], %rd5, %rd6, %r15, [%r12+192], [%r12+200], %p4;"
)


SPARSE_MMA = "tcgen05.mma.sp.cta_group::1.kind::f16 [%r12], %rd5, %rd6, [%r12+{}], %r15, %p4;"
SPARSE = F16 | 1 << 2


def mma(idesc=F16, a=A, b=B, text=PLAIN_MMA):
    return f"mov.b64 %rd5, {a}; mov.b64 %rd6, {b}; mov.b32 %r15, {idesc}; {text}"


def sparse(idesc=SPARSE, place=192, index=4):
    """A sparse MMA with metadata in tensor memory columns from `place` on, all with the same index."""
    copied = min(place & -4, 252)
    return (
        f"mov.u32 %r15, {index * 0x11111111};"
        + "".join(f"st.shared.v4.b32 [%r10+{1024 + i}], {{%r15, %r15, %r15, %r15}};" for i in range(0, 512, 16))
        + f"fence.proxy.async.shared::cta; mov.b64 %rd5, {smem_descriptor(START + 1024, 128)};"
        + f"tcgen05.cp.cta_group::1.32x128b.warpx4 [%r12+{copied}], %rd5;"
        + mma(idesc, text=SPARSE_MMA.format(place))
    )


def scaled(idesc=NVFP4, text=SCALED_MMA):
    return mma(idesc, text=text)


MMA = Family(
    BEGIN
    + INIT.format(count=1)
    + (ALLOC.replace("64", "256") + "setp.ne.u32 %p4, %r1, 0; @%p1 bra ISSUED; {}")
    + "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11];\nISSUED:"
    + WAIT
    + DEALLOC.replace("64", "256"),
    [
        ("M of f16", "M is 96, must be 64 or 128", mma(f16_idesc(96, 16)), mma(f16_idesc(64, 16))),
        ("M of one CTA", "M is 256, must be 64 or 128", mma(f16_idesc(256, 16)), mma()),
        ("N of 0", "N is 0, must be", mma(f16_idesc(128, 0)), mma()),
        ("N above 256", "N is 264, must be", mma(f16_idesc(128, 264)), mma(f16_idesc(128, 256), b=A)),
        ("M of mxf4nvf4", "M is 64, must be 128", scaled(block_scaled_idesc(64, 16)), scaled()),
        ("reserved bit", "reserved bit 6", mma(F16 | 1 << 6), mma()),
        ("sparsity bits", "sparsity bits 0-2", mma(F16 | 1), mma()),
        ("sparsity", "sparsity bit 2 is 0, must be 1", sparse(F16), sparse()),
        ("sparsity selector", "selector 2 .bits 0-1., must be 0 or 1", sparse(SPARSE | 2), sparse(SPARSE | 1)),
        ("metadata past the allocation", "metadata: tensor memory column 256", sparse(place=256), sparse(place=252)),
        ("column of metadata", "column 193, must be a multiple of 2", sparse(place=193), sparse(place=194)),
        ("index of metadata", "row 0 of A, .* has index 0b0000", sparse(index=0), sparse(index=14)),
        ("element type of A", "format of A is 3", mma(F16 | 3 << 7), mma(F16 | 1 << 7 | 1 << 10)),
        ("type of D", "format of D is 2", mma(f16_idesc(128, 16, d="f16") | 2 << 4), mma(f16_idesc(128, 16, d="f16"))),
        (
            "bf16 into f16",
            "D of type f16 with A of type bf16",
            mma(f16_idesc(128, 16, "bf16", "bf16", "f16")),
            mma(f16_idesc(128, 16, "bf16", "bf16")),
        ),
        ("saturation of floats", r"saturation \(bit 3\)", mma(F16 | 8), mma()),
        ("scale factor ID", "SFA_ID is 1, must be", scaled(block_scaled_idesc(128, 16, sfa_id=1)), scaled()),
        (
            "scale type",
            "scale type ue4m3 with kind::mxf4nvf4 and block32",
            scaled(text=SCALED_MMA.replace("block16", "block32")),
            scaled(block_scaled_idesc(128, 16, "ue8m0"), SCALED_MMA.replace("block16", "block32")),
        ),
        ("descriptor version", "bits 46-48 are 0, must be 1", mma(b=B ^ 1 << 46), mma()),
        ("descriptor reserved bits", "reserved bits", mma(b=B | 1 << 53), mma()),
        ("descriptor address bits", "the start address has 18 bits", mma(b=B | 1 << 14), mma()),
        ("descriptor swizzling mode", "swizzling mode", mma(b=B | 7 << 61), mma(b=SWIZZLED)),
        ("descriptor absolute leading address", "needs sm_103a", mma(b=B | 1 << 52), mma()),
        ("descriptor stride", "stride dimension byte offset is 0", mma(b=SWIZZLED & ~(0x3FFF << 32)), mma(b=SWIZZLED)),
        ("descriptor leading dimension", "leading dimension byte offset is 0", mma(b=B & ~(0x3FFF << 16)), mma()),
        ("row inside of the swizzle's span", "cross its end", mma(b=SWIZZLED + 7), mma(b=SWIZZLED + 6)),
        ("operand past shared memory", "tcgen05.mma A, .*shared offset", mma(a=A + 0x300), mma()),
        (
            "D past the allocation",
            "tcgen05.mma D: tensor memory column 256",
            mma(text=PLAIN_MMA.replace("[%r12]", "[%r12+250]")),
            mma(text=PLAIN_MMA.replace("[%r12]", "[%r12+240]")),
        ),
        (
            "scale factors past the allocation",
            "tcgen05.mma SFB: tensor memory column 256",
            scaled(text=SCALED_MMA.replace("%r12+200", "%r12+256")),
            scaled(),
        ),
        (
            "lane of D",
            "D at lane 16, not allowed for M = 128",
            mma(text=PLAIN_MMA.replace("[%r12]", "[%r12+1048576]")),
            mma(f16_idesc(64, 16), text=PLAIN_MMA.replace("[%r12]", "[%r12+1048576]")),
        ),
        (
            "fence.proxy.async before an MMA",
            "fence.proxy.async is missing",
            "st.shared.b32 [%r10+2048], %r1;" + mma(),
            "st.shared.b32 [%r10+2048], %r1; fence.proxy.async.shared::cta;" + mma(),
        ),
        (
            "cta_group of the MMA",
            "in a cluster of 1 CTA|has used cta_group::1",
            mma(text=PLAIN_MMA.replace("group::1", "group::2")),
            mma(),
        ),
    ],
)

# Two CTAs of a cluster, each with a barrier of one arrival; %r6 and %r7 are the other one's smem and barrier.
REMOTE = "xor.b32 %r5, %rank, 1; mapa.shared::cluster.u32 %r6, %r10, %r5; mapa.shared::cluster.u32 %r7, %r11, %r5;"
PEER_COPY = "@!%p1 cp.async.bulk.shared::{space}.global.mbarrier::complete_tx::bytes [{to}], [%a0], 16, [{barrier}];"
EXPECT_16 = "@!%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 16;" + MEET
OWN_COPY = EXPECT_16 + PEER_COPY.format(space="cta", to="%r10", barrier="%r11") + WAIT
PAIR_MMA = (
    "setp.{when}.u32 %p2, %rank, 0; or.pred %p3, %p1, %p2; setp.ne.u32 %p4, %r1, 0; "
    "@!%p3 tcgen05.mma.cta_group::2.kind::f16 [%r1], %rd3, %rd3, %r1, %p4;"
)
OUTLIVED = """
    setp.eq.u32 %p2, %rank, 0; @%p2 ret; mov.u32 %r8, 0;
LATER: add.u32 %r8, %r8, 1; setp.lt.u32 %p3, %r8, 3000; @%p3 bra LATER; ld.shared::cluster.b32 %r1, [%r6];
"""
INVALIDATE = "@!%p1 mbarrier.inval.shared.b64 [%r11];"
REMOTE_ARRIVAL = "@!%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];"
MEET_RELAXED = MEET.replace("arrive", "arrive.relaxed")  # it does not wait for arrivals on mbarriers
# The CTAs stay until an arrival on a second barrier has come, which is issued behind the operation in flight.
ANOTHER = (
    "@!%p1 mbarrier.init.shared.b64 [%r11+8], 1; fence.mbarrier_init.release.cluster;"
    + MEET
    + "{}"
    + REMOTE_ARRIVAL.replace("%r7", "%r7+8")
    + MEET_RELAXED
    + "{}"
    + INVALIDATE
    + WAIT.replace("%r11", "%r11+8").replace("W", "X")
)
REMOTE_BYTES = "@!%p1 mbarrier.{}_tx.relaxed.cluster.shared::cluster.b64 [%r7], 16;"
CLUSTERS = Family(
    BEGIN + INIT.format(count=1) + MEET + REMOTE + "{}" + MEET,
    [
        *rules(r"""
barrier of another CTA is waited for | the instruction takes this CTA's only
    | mbarrier.try_wait.parity.shared::cta.b64 %p2, [%<r7 -> r11>], 1;
barrier of another CTA is tested | the instruction takes this CTA's only
    | cvt.u64.u32 %rd1, %<r7 -> r11>; cvta.shared::cluster.u64 %rd1, %rd1; mbarrier.test_wait.b64 %p2, [%rd1], %rd3;
another CTA's barrier is stored over | touches a live barrier | st.shared::cluster.b32 [%<r7 -> r6>], %r1;
"""),
        *rules(
            r"""
data and barrier of a copy in one CTA | the barrier is in CTA rank 1, the destination in rank 0 | $EXPECT_16 @!%p1
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%<r10], [%a0], 16, [%r7]; -> r6], [%a0], 16,
    [%r7]; $WAIT>
an arrival in flight to an invalidated barrier | arrival of .* reaches the mbarrier .* after mbarrier.inval | @!%p1
    mbarrier.init.shared.b64 [%r11+8], 1; $INIT_FENCE$MEET$REMOTE_ARRIVAL@!%p1
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7+8];$MEET_RELAXED< -> $WAIT>$INVALIDATE X:
    mbarrier.try_wait.parity.shared.b64 %p9, [%r11+8], 0; @!%p9 bra X;
""",
            cta=(0, 0, 0),
        ),
        Rule(
            "destination of .shared::cta in the CTA",
            "destination .* is in CTA rank 1",
            EXPECT_16 + PEER_COPY.format(space="cta", to="%r6", barrier="%r7"),
            OWN_COPY,
        ),
        (
            "shared memory of a CTA that has exited",
            "reaches CTA .0, 0, 0., which has exited",
            OUTLIVED,
            OUTLIVED.replace("ret", "bra END") + "END:",
        ),
        Rule(
            "expected bytes in flight to an invalidated barrier",
            "expect_tx of .* reaches the mbarrier .* after mbarrier.inval",
            ANOTHER.format(REMOTE_BYTES.format("expect"), ""),
            ANOTHER.format(REMOTE_BYTES.format("expect") + REMOTE_BYTES.format("complete") + REMOTE_ARRIVAL, WAIT),
        ),
        ("pair's MMA by the odd CTA", "issued by CTA rank 1: the even CTA of the pair", PAIR_MMA.format(when="eq"), ""),
    ],
    {"grid": 2, "cluster": 2},
    cta=(1, 0, 0),
)

# Warp 1 arrives on the barrier for which warp 0 has begun to wait.
MISSED = """
    setp.gt.u32 %p3, %tid, 31; @%p3 bra OTHER; bar.arrive 1, 64;
W:  mbarrier.try_wait.parity.shared.b64 %p9, [%r11], 0; @!%p9 bra W; bra END;
OTHER: bar.sync 1, 64; setp.ne.u32 %p4, %tid, 32; @%p4 bra END; mbarrier.arrive.shared.b64 _, [%r11];
"""
EXPECT = "@!%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], {};"
EXPECT_128 = EXPECT.format(128)
FILL, EMPTY = f"@!%p1 {BULK} [%r10], [%a0], 128, [%r11];", f"@!%p1 {BULK_STORE} [%a0], [%r10], 128;"
COMMIT = f"@!%p1 {T_COMMIT} [%r11];"
CP_ASYNC = "@!%p1 cp.async.cg.shared.global [%r10], [%a0], 16; @!%p1 cp.async.mbarrier.arrive.noinc.shared.b64 [%r11];"
TRY_WAIT = "mbarrier.try_wait.parity.shared.b64"
ENDS = Family(
    BEGIN + INIT.format(count=1) + "{}",
    [
        *rules(
            r"""
bytes arrive at a dead CTA | a bulk copy reaches CTA .*, which has exited | $EXPECT_128 $FILL< ->  $WAIT>
a store outlives its CTA | a bulk store reaches CTA .*, which has exited | $EMPTY< ->  $DRAIN>
""",
            strict=True,
        ),
        *rules(r"""
a commit in flight to an invalidated barrier | tcgen05.commit of .* reaches the mbarrier .* after mbarrier.inval
    | $COMMIT< ->  $WAIT>$INVALIDATE
bytes in flight to an invalidated barrier | bulk copy of .* reaches the mbarrier .* after mbarrier.inval
    | <$FILL -> $EXPECT_128$FILL $WAIT>$INVALIDATE
a cp.async arrival in flight to an invalidated barrier | arrival of .* reaches the mbarrier .* after mbarrier.inval
    | $CP_ASYNC< ->  $WAIT>$INVALIDATE
a commit to a CTA that is not there | multicast mask 0x0004 | mov.b16 %h1, <4 -> 1>; @!%p1
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r11], %h1;< ->  $WAIT>
a warp does not come to a barrier | kernel hangs[\s\S]*has not arrived: warp 1
    | <setp.gt.u32 %p2, %tid, 31; @%p2 ret;  -> >bar.sync 1, 64;
"""),
        *rules(
            r"""
some of the expected bytes have come | the grid has ended, but mbarrier .* 64 bytes outstanding
    | $EXPECT_128@!%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r11], <64 -> 128>;
more bytes come than are expected | the grid has ended, but mbarrier .* 64 bytes more than were expected
    | @!%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r11], 64; | $EXPECT_128
""",
            at=NOWHERE,
        ),
        *rules(
            r"""
a phase is missed | phase 0 was waited for and missed | $MISSED <mbarrier.arrive.shared.b64 _, [%r11]; -> >\nEND:
expected bytes never come | kernel hangs[\s\S]*no copy is outstanding that would bring the 128 bytes
    | <@!%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 256; -> $EXPECT_128>$FILL $WAIT
an arrival is missing | kernel hangs[\s\S]*nobody has ever arrived | setp.gt.u32 %p2, %tid, 31; < -> setp.eq.u32 %p3,
    %tid, 32; @%p3 mbarrier.arrive.shared.b64 _, [%r11]; >@%p2 ret; $WAIT
""",
            at=TRY_WAIT,
        ),
    ],
    {"threads": 64},
)

UNFENCED = INIT.format(count=1).replace(INIT_FENCE, "{}")
P_ALLOC = "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32"
FENCES = [
    Family(
        BEGIN + "mad.lo.u32 %r5, %tid, 4, %r10; st.shared.b32 [%r5], %r1; {} bar.sync 0;" + EMPTY + DRAIN,
        [
            *rules(r"""
fence.proxy.async before a bulk store | fence.proxy.async is missing |  | fence.proxy.async.shared::cta;
no other fence does before a bulk store | fence.proxy.async is missing | fence.<acq_rel.cluster -> proxy.async>;
""")
        ],
        at="cp.async.bulk.global.shared::cta.bulk_group",
    ),
    Family(
        BEGIN + UNFENCED + EXPECT_128 + FILL + WAIT,
        [("fence.mbarrier_init before a copy", "fence.mbarrier_init is missing", "", INIT_FENCE)],
        at="cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes",
        strict=True,
    ),
    Family(
        BEGIN
        + UNFENCED
        + "setp.ne.u32 %p3, %rank, 0; @!%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128;"
        + MEET.replace("arrive", "arrive.relaxed")
        + "or.pred %p3, %p1, %p3; mov.b16 %h2, 3;"
        + "@!%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        + ".multicast::cluster [%r10], [%a0], 128, [%r11], %h2;"
        + WAIT,
        [("fence.mbarrier_init before another CTA's copy", "fence.mbarrier_init is missing", "", INIT_FENCE)],
        {"grid": 2, "cluster": 2},
        at="cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
    ),
    Family(
        BEGIN
        + UNFENCED
        + MEET.replace("arrive", "arrive.relaxed")
        + REMOTE
        + "@!%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];"
        + WAIT
        + MEET,
        [("fence.mbarrier_init before a remote arrival", "fence.mbarrier_init is missing", "", INIT_FENCE)],
        {"grid": 2, "cluster": 2},
        at="mbarrier.arrive.release.cluster.shared::cluster.b64",
        cta=(1, 0, 0),
    ),
    Family(
        BEGIN
        + "cvt.u64.u32 %rd2, %tid; mul.lo.u64 %rd2, %rd2, 4; add.s64 %rd2, %rd2, %a0; mad.lo.u32 %r5, %tid, 4, %r10;"
        "cp.async.ca.shared.global [%r5], [%rd2], 4; cp.async.wait_all; {} bar.sync 0;" + EMPTY + DRAIN,
        [("fence.proxy.async behind cp.async", "fence.proxy.async is missing", "", "fence.proxy.async.shared::cta;")],
        at="cp.async.bulk.global.shared::cta.bulk_group",
    ),
    Family(
        BEGIN + "{}" + MEET,
        [
            *rules(
                r"""
a pair allocates once both CTAs have started
    | tcgen05\.alloc\.cta_group::2 where this warp has not heard of the other CTA
    | < -> $MEET >$PAIRED
""",
                at=P_ALLOC,
            ),
            *rules(
                r"""
a pair allocates behind the cluster barrier
    | tcgen05\.alloc\.cta_group::2 where this warp has not heard of the other CTA
    | $ARRIVED $P_ALLOCATES $MET $P_FREES | $MEET $PAIRED
""",
                at=P_ALLOC,
                strict=True,
            ),
            *rules(
                r"""
a pair frees once both CTAs have started
    | tcgen05\.dealloc\.cta_group::2 where this warp has not heard of the other CTA
    | $ARRIVED $PAIRED $MET | $ARRIVED $MET $PAIRED
""",
                at="tcgen05.dealloc.cta_group::2.sync.aligned.b32",
            ),
        ],
        {"grid": 2, "cluster": 2},
    ),
    Family(
        BEGIN + "xor.b32 %r2, %rank, 1; mapa.shared::cluster.u32 %r7, %r10, %r2; {}"
        "st.shared::cluster.b32 [%r7], 1;" + MEET,
        [("another CTA is accessed once it has started", "where this warp has not heard of that CTA", "", MEET)],
        {"grid": 2, "cluster": 2},
        at="st.shared::cluster.b32",
    ),
]

# Warp 0 loads from tensor memory, then lane 0 of warp 1 has tcgen05.cp write there, then warp 0 loads again.
COPIED_OVER = """
    setp.gt.u32 %p2, %tid, 31; setp.ne.u32 %p3, %tid, 32; @%p2 bra COPIES;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 64; ld.shared.b32 %r12, [%r10];
    {early} tcgen05.ld.sync.aligned.32x32b.x1.b32 %r3, [%r12]; {wait} {before} {meet} bra WAITS;
COPIES: bar.sync 1, 64; {after} ld.shared.b32 %r12, [%r10]; @%p3 bra WAITS; mov.b64 %rd5, 0x0000400800000100;
    tcgen05.cp.cta_group::1.32x128b.warpx4 [%r12], %rd5; {commit}
WAITS: bar.sync 2; {told} @%p2 bra END; tcgen05.ld.sync.aligned.32x32b.x1.b32 %r3, [%r12];
    tcgen05.wait::ld.sync.aligned; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r12, 64;
END:
"""
ORDERED = {
    "early": "",
    "meet": "bar.arrive 1, 64;",
    "wait": "tcgen05.wait::ld.sync.aligned;",
    "before": "tcgen05.fence::before_thread_sync;",
    "after": "tcgen05.fence::after_thread_sync;",
    "commit": "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11];",
    "told": WAIT + "tcgen05.fence::after_thread_sync;",
}
RACES = {"early": ORDERED["meet"], "meet": ""}
NO_FENCE = "has not executed tcgen05.fence::"
MISSING_AFTER = "tcgen05.fence::after_thread_sync is missing since that was released"
CP, READ = "tcgen05.cp.cta_group::1.32x128b.warpx4", "tcgen05.ld.sync.aligned.32x32b.x1.b32"
TENSOR_ORDER = Family(
    BEGIN + INIT.format(count=1) + "{}",
    [
        Rule(
            name,
            words,
            COPIED_OVER.format(**ORDERED | changes),
            COPIED_OVER.format(**ORDERED),
            at=at,
            warp=warp,
            strict=strict,
        )
        for name, words, changes, at, warp, strict in [
            ("tcgen05.wait::ld", "tcgen05.wait::ld is missing", {"wait": ""}, CP, 1, False),
            (
                "tcgen05.fence::before_thread_sync",
                f"{NO_FENCE}before_thread_sync since \\(",
                {"before": ""},
                CP,
                1,
                True,
            ),
            ("tcgen05.fence::after_thread_sync", f"{MISSING_AFTER} \\(", {"after": ""}, CP, 1, True),
            ("tcgen05.fence behind a commit", f"{MISSING_AFTER} \\(", {"told": WAIT}, READ, 0, True),
            ("a barrier between two accesses", f"{MISSING_AFTER}, and no barrier", RACES, CP, 1, False),
            (
                "a barrier between two accesses without fences",
                f"{NO_FENCE}before_thread_sync since, and no barrier",
                RACES | {"before": ""},
                CP,
                1,
                False,
            ),
        ]
    ],
    {"threads": 64},
)

UNCOMMITTED = Family(
    TENSOR_ORDER.frame,
    [
        (
            "tcgen05.commit",
            "no tcgen05.commit behind it has arrived",
            COPIED_OVER.format(**ORDERED | {"commit": "", "told": ORDERED["after"]}),
            COPIED_OVER.format(**ORDERED),
        )
    ],
    {"threads": 64, "schedule": "eager"},
)

DEC, INC = "setmaxnreg.dec.sync.aligned.u32", "setmaxnreg.inc.sync.aligned.u32"
OTHERS_SKIP = "setp.gt.u32 %p2, %tid, 31; @%p2 bra OTHER;"
REGISTERS = [
    Family(
        BEGIN + "{}\nOTHER: st.shared.b32 [%r10], %r1;",
        [
            *rules(r"""
setmaxnreg.inc to fewer registers | to 64 registers from 72 | $DEC <72; $INC 64 -> 64; $INC 72>;
setmaxnreg.dec to more registers | to 64 registers from 40 | $DEC <40 -> 72>; $DEC 64;
"""),
            *rules(
                r"""
one setmaxnreg for a warpgroup | all must execute the same
    | setp.gt.u32 %p2, %tid, 31; @%p2 bra MORE; $DEC 64; bra OTHER; MORE: $DEC 96; | $DEC 64;
setmaxnreg.dec by a warp of a warpgroup
    | warp 0: 72, 64 \(2 times\), warp 1: none, warp 2: none, warp 3: none; all must execute the same
    | <$OTHERS_SKIP  -> >$DEC 72; $DEC 64; $DEC 64;
""",
                **{"at": "ret", "warp": 3, "strict": True},
            ),
            *rules(
                r"""
setmaxnreg.inc by a warp of a warpgroup | warp 0: 168, warp 1: none, warp 2: none, warp 3: none; all must execute the
    same | <$OTHERS_SKIP  -> >$INC 168;
""",
                **{"at": "ret", "warp": 3},
            ),
        ],
        {"threads": 128},
    ),
    Family(
        BEGIN + "{}",
        [("registers of an SM", "have asked for 98304 registers, an SM has 65536", f"{INC} 256;", f"{INC} 168;")],
        {"threads": 384},
        warp=8,
    ),
]

TRANSLATION = Family(
    BEGIN + "{}",
    [
        *rules(r"""
an instruction that is not modelled | wgmma.fence | <wgmma.fence.sync.aligned; -> >
a modifier that does not exist | ld has no .release | ld.<release -> acquire>.gpu.global.b32 %r1, [%a0];
too many operands | add.f32 with 4 operands; it takes 3 | add.f32 %r3, %r1, %r1<, %r1 -> >;
register sizes | register %h1 has 16 bits, the access 32 | ld.global.<b32 -> b16> %h1, [%a0];
vector sizes | .v8 of 16 bits
    | ld.global.<v8.b16 {%h1, %h2, %h3, %h4, %h5, %h6, %h7, %h8 -> v4.b16 {%h1, %h2, %h3, %h4>}, [%a0];
cp.async size | cp-size 8: must be 16 | <$CP_ASYNC_CG -> $CP_ASYNC_CA> [%r10], [%a0], 8; cp.async.wait_all;
setmaxnreg count | an immediate from 24 to 256 in steps of 8 | setmaxnreg.dec.sync.aligned.u32 <20 -> 24>;
types of a bulk reduction | add.s64 is no reduction in global memory
    | @!%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.<s64 -> u64> [%a0], [%r10], 128; $DRAIN
shape of a tensor memory load | is not modelled | $T_LD.32x32b.x3.b32 {%r3, %r4, %r5}, [%r1]; $T_WAIT
    | $ALLOC $T_LD.32x32b.x2.b32 {%r3, %r4}, [%r12]; $T_WAIT $DEALLOC
kinds with block scaling | kind::mxf4 needs .block_scale
    | <tcgen05.mma.cta_group::1.kind::mxf4 [%r1], %rd3, %rd3, %r1, %p1; -> >
scale vector of a kind | mxf4 with .block16; must be .scale_vec::2X, .block32
    | <tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block16 [%r1], %rd3, %rd3, %r1, [%r1], [%r1], %p1; -> >
""")
    ],
    warp=None,
)

RULES = [pytest.param(family, rule, id=rule.name.replace(" ", "-")) for family in FAMILIES for rule in family.rules]


def opcodes(text):
    statements = re.sub(r"@!?%p\d+ |\b[A-Z]+:\s", "", text).split(";")
    return {statement.split()[0] for statement in statements if statement.split()}


@pytest.mark.filterwarnings("ignore::nogpu.errors.OrderingWarning")  # expects a doubt before the error
@pytest.mark.parametrize("family,rule", RULES)
def test_rule(family, rule, monkeypatch):
    if rule.strict:
        monkeypatch.setattr(errors, "_reported", set())
        with pytest.warns(errors.OrderingWarning, match=rule.words):
            run(family, rule.broken, rule.map_fields)
        monkeypatch.setenv("NOGPU_LENIENT", "0")
    with pytest.raises(EmulatorError, match=rule.words) as caught:
        run(family, rule.broken, rule.map_fields)
    error = caught.value
    assert error.kernel == "k"
    if rule.at is not NOWHERE:
        assert error.ptx_line > 0 and opcodes(error.ptx_text) <= ({rule.at} if rule.at else opcodes(rule.broken))
        assert (error.cta, error.warp) == ((None, None) if rule.warp is None else (rule.cta, rule.warp))


@pytest.mark.parametrize("family,rule", RULES)
def test_legal_twin(family, rule):
    run(family, rule.legal)


# Launches that the device refuses before any CTA runs: words, then arguments and directives, and legal ones.
LAUNCHES = {
    "grid of 0": ("grid (0, 1, 1): x must be 1 to 2147483647", {"grid": 0}, {}),
    "grid in y": ("y must be 1 to 65535", {"grid": (1, 65536)}, {"grid": (1, 2)}),
    "threads of an axis": ("z must be 1 to 64", {"block": (1, 1, 65)}, {"block": (1, 1, 64)}),
    "threads": ("has 1056 threads, the limit is 1024", {"block": (528, 2)}, {"block": (512, 2)}),
    "shared memory": ("the limit of both together is 232448", {"shared": 232449}, {"shared": 232448}),
    "shared memory with static": (
        "232441 bytes of dynamic and 8 of static",
        {"shared": 232441, "body": ".shared .b8 s[8];"},
        {"shared": 232440, "body": ".shared .b8 s[8];"},
    ),
    "parameter bytes": ("32768 bytes of parameters, the limit is 32764", {"parameters": 32768}, {"parameters": 32764}),
    "number of arguments": ("1 arguments for 0 parameters", {"args": [1]}, {}),
    "cluster in the grid": (
        "grid (4, 1, 1) is not a multiple of cluster (3, 1, 1) in x",
        {"grid": 4, "cluster": 3},
        {"grid": 4, "cluster": 2},
    ),
    "cluster of 16": (
        "16 CTAs, the limit is 8 without the non-portable",
        {"grid": 16, "cluster": 16},
        {"grid": 16, "cluster": 16, "nonportable_cluster": True},
    ),
    "cluster of 32": (
        "32 CTAs, the limit is 16",
        {"grid": 32, "cluster": 32, "nonportable_cluster": True},
        {"grid": 32, "cluster": 8},
    ),
    "cluster that the kernel requires": (
        "is not the (4, 1, 1) that the kernel requires (.reqnctapercluster)",
        {"grid": 4, "cluster": 2, "directives": ".reqnctapercluster 4"},
        {"grid": 4, "cluster": 4, "directives": ".reqnctapercluster 4"},
    ),
    "cluster that the kernel allows": (
        "the kernel allows 2 (.maxclusterrank)",
        {"grid": 4, "cluster": 4, "directives": ".maxclusterrank 2"},
        {"grid": 4, "cluster": 2, "directives": ".maxclusterrank 2"},
    ),
    "threads that the kernel requires": (
        "is not the (64, 1, 1) that the kernel requires (.reqntid)",
        {"directives": ".reqntid 64"},
        {"directives": ".reqntid 32"},
    ),
    "threads that the kernel allows": (
        "more than the 16 that the kernel allows (.maxntid",
        {"directives": ".maxntid 16"},
        {"directives": ".maxntid 32"},
    ),
    "cooperative launch": (
        "149 CTAs, 148 fit on the device at once",
        {"grid": 149, "shared": 200_000, "cooperative": True},
        {"grid": 148, "shared": 200_000, "cooperative": True},
    ),
}


def launch_empty(grid=1, block=32, args=(), directives="", body="", parameters=0, **options):
    declared = f".param .align 4 .b8 bytes[{parameters}]" if parameters else ""
    text = f"{HEADER}.visible .entry k({declared}) {directives}\n{{ {body} ret; }}\n"
    nogpu.load_ptx(text)["k"].launch(grid, block, [bytes(parameters)] if parameters else args, **options)


@pytest.mark.parametrize("name", LAUNCHES)
def test_launch(name):
    words, broken, legal = LAUNCHES[name]
    with pytest.raises(EmulatorError, match=re.escape(words)) as caught:
        launch_empty(**broken)
    error = caught.value
    assert error.reason.startswith("launch refused") and error.kernel == "k" and error.cta is None
    launch_empty(**legal)
