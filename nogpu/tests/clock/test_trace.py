"""Recorded launches: the records of small kernels word by word, and everything that recording must not change."""

import os
import subprocess
import sys

import numpy as np
import pytest

import nogpu
from nogpu.clock.chip import profile
from nogpu.clock.replay import replay
from nogpu.clock.trace import BOX_WORDS, KINDS, MANY, NOTHING, Trace
from nogpu.errors import EmulatorError
from nogpu.execution.device import Device
from nogpu.hardware.properties import DeviceProperties
from nogpu.hardware.tma.encode import Im2colMap
from tests.support.clocks import recorded
from tests.support.emulated import run
from tests.support.small_kernels import module, store
from tests.support.tensor_kernels import A_TILE, B_TILE, COPY, END, TAKE_OVER, WAIT, image
from tests.support.tensor_kernels import body as tensor_body
from tests.support.tensor_operands import instruction

SMEM = 0x400  # offset of the first byte of dynamic shared memory
GLOBAL, SHARED, REMOTE, LOCAL, CONSTANT = range(5)
BARRIER = SMEM + 2048  # mbarrier at %r71 of SETUP
PEER = 1 << 24  # place in the CTA of rank 1
SETUP = "mov.u32 %r70, smem; add.u32 %r71, %r70, 2048; setp.eq.u32 %p10, %tid, 0;"


def records(trace, opcode="", cta=0, warp=0):
    """Records of instructions with this opcode prefix: (text of the opcode, whether some lanes were off, words)."""
    found = [(trace.instructions[record.pc].opcode, record.part, record.words) for record in trace.records(cta, warp)]
    return [record for record in found if record[0].startswith(opcode)]


def words(trace, opcode, cta=0, warp=0):
    """The words of each record."""
    return [record[2] for record in records(trace, opcode, cta, warp)]


def access(space, nbytes, lanes=32):
    """The first word of a load or store."""
    return space | nbytes << 8 | lanes << 16


def line(address, sectors=15):
    """The two words of a touched line."""
    number = address // 128
    return number & 0xFFFFFFFF, number >> 32 | sectors << 28


def address_of(array):
    return array.__array_interface__["data"][0]


def zeros(shape, dtype=np.uint32):
    """An array of global memory, and its address."""
    data = nogpu.array(np.zeros(shape, dtype))
    return data, address_of(data)


def long(value):
    return value & 0xFFFFFFFF, value >> 32


def box(nbytes, address, row, *dimensions, counted=None):
    """The words of a box. dimensions: (rows, bytes between them)."""
    rest = [(1, 0)] * (4 - len(dimensions))
    flat = [word for count, stride in (*dimensions, *rest) for word in (count, *long(stride))]
    found = [nbytes, *long(address), row, *flat, nbytes if counted is None else counted]
    assert len(found) == BOX_WORDS
    return found


# Instructions in order


LOOP = """
    mov.u32 %r1, 0; setp.lt.u32 %p1, %tid, 5;
AGAIN: @%p1 add.u32 %r2, %r2, 1;
    add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 3; @%p2 bra AGAIN;
"""


def test_every_instruction_of_a_loop_is_recorded():
    trace = recorded(LOOP)
    prologue = [("mov.u32", False, ())] * 3 + [("setp.lt.u32", False, ())]
    turn = [(name, name.startswith("a") and part, ()) for name, part in (("add.u32", True), ("add.u32", False))]
    turn[1] = ("add.u32", False, ())
    turn += [("setp.lt.u32", False, ()), ("bra", False, ())]
    assert records(trace) == prologue + 3 * turn + [("ret", False, ())]


def test_sides_of_a_branch_are_recorded_one_after_the_other():
    """The branch is one inside of a segment, then one that parts the warp, whose groups loop on their own."""
    body = (
        "setp.lt.u32 %p1, %tid, 5; @%p1 bra A; add.u32 %r1, %r1, 1; bra B; A: sub.u32 %r1, %r1, 1; B: not.b32 %r1, %r1;"
    )
    assert records(recorded(body))[2:] == [
        *(("setp.lt.u32", False, ()), ("bra", False, ())),
        *(("add.u32", True, ()), ("bra", True, ()), ("sub.u32", True, ()), ("not.b32", False, ()), ("ret", False, ())),
    ]
    body = "and.b32 %r1, %tid, 1; A: add.u32 %r1, %r1, 2; setp.lt.u32 %p1, %r1, 4; @%p1 bra A; xor.b32 %r1, %r1, 1;"
    names = [(name, part) for name, part, _ in records(recorded(body))[3:]]
    turn = ["add.u32", "setp.lt.u32", "bra"]
    assert names == [
        *((name, False) for name in turn),  # all go on: odd lanes have 3, even ones 2
        *((name, False) for name in turn),  # odd lanes have 5, even ones 4
        *(("xor.b32", False), ("ret", False)),
    ]
    body = "and.b32 %r1, %tid, 1; A: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 2; @%p1 bra A; xor.b32 %r1, %r1, 1;"
    names = [(name, part) for name, part, _ in records(recorded(body))[3:]]
    assert names == [
        *((name, False) for name in turn),
        *((name, True) for name in turn),  # even lanes once more
        *(("xor.b32", False), ("ret", False)),
    ]


@pytest.mark.usefixtures("kernels_and_calls")
@pytest.mark.parametrize("uniform", [True, False])
def test_instructions_that_no_lane_executes_have_no_operands(uniform):
    test = "setp.eq.u32 %p1, %rank, 9;" if uniform else "setp.eq.u32 %p1, %tid, 99;"
    out = nogpu.array(np.zeros(32, np.uint32))
    body = f"{test} @%p1 st.global.b32 [%a0], %tid; @!%p1 st.shared.b32 [smem], %tid; @%p1 bar.sync 1; @%p1 exit;"
    trace = recorded(body, out)
    assert records(trace, "st") == [("st.global.b32", True, ()), ("st.shared.b32", False, (access(SHARED, 4), 1))]
    assert records(trace, "bar") == [("bar.sync", True, ())] and not out.any()


def test_a_predicate_that_all_lanes_share():
    body = "setp.eq.u32 %p1, %rank, 0; @%p1 st.shared.b32 [smem], %tid; @!%p1 st.shared.b32 [smem], %tid;"
    assert records(recorded(body), "st") == [
        ("st.shared.b32", False, (access(SHARED, 4), 1)),
        ("st.shared.b32", True, ()),
    ]


def test_warps_of_a_block_that_is_no_multiple_of_32():
    trace = recorded("st.shared.b32 [smem], %tid;", threads=40)
    assert records(trace, "st", warp=0) == [("st.shared.b32", False, (access(SHARED, 4), 1))]
    assert records(trace, "st", warp=1) == [("st.shared.b32", True, (access(SHARED, 4, 8), 1))]
    assert trace.block == (40, 1, 1) and trace.starts.shape == (1, 3)


def test_header():
    text = module("", 0, ".shared .align 16 .b8 fixed[96];").replace(
        "k()\n", "k()\n.maxnreg 64 .minnctapersm 2 .reqntid 64\n"
    )
    text = text.replace("ret;", "st.shared.b32 [fixed], 0; ret;")
    traces = []
    nogpu.load_ptx(text)["k"].launch((4, 3), 64, shared=160, cluster=2, programmatic=True, record=traces.append)
    (trace,) = traces
    assert (trace.name, trace.grid, trace.block, trace.cluster) == ("k", (4, 3, 1), (64, 1, 1), (2, 1, 1))
    assert (trace.registers, trace.min_ctas, trace.programmatic, trace.cooperative) == (64, 2, True, False)
    # Dynamic shared memory is aligned to 1024 bytes.
    assert trace.shared_bytes == 1024 + 160 and trace.params == b"" and trace.starts.shape == (12, 3)


# Loads and stores


@pytest.mark.usefixtures("kernels_and_calls")
def test_global_accesses():
    data, at = zeros(4096)
    trace = recorded(
        """mad.wide.u32 %rd1, %tid, 4, %a0; mad.wide.u32 %rd2, %tid, 16, %a0; mad.wide.u32 %rd3, %tid, 256, %a0;
        setp.lt.u32 %p1, %tid, 3;
        ld.global.b32 %r1, [%rd1]; ld.global.b32 %r1, [%rd1+96]; ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd2];
        @%p1 ld.global.nc.L1::no_allocate.b8 %r1, [%rd3+64]; ld.global.b64 %rd5, [%a0+32]; ld.b32 %r1, [%rd1];
        st.global.b16 [%rd1], %h1; ld.relaxed.gpu.global.b32 %r1, [%a0]; prefetch.global.L2 [%rd1];
        """,
        data,
    )
    assert words(trace, "ld")[1:] == [
        *((access(GLOBAL, 4), *line(at)), (access(GLOBAL, 4), *line(at, 8), *line(at + 128, 7))),
        (access(GLOBAL, 16), *line(at), *line(at + 128), *line(at + 256), *line(at + 384)),
        (access(GLOBAL, 1, 3), *line(at, 4), *line(at + 256, 4), *line(at + 512, 4)),
        *((access(GLOBAL, 8), *line(at, 2)), (access(GLOBAL, 4), *line(at)), (access(GLOBAL, 4), *line(at, 1))),
    ]
    assert words(trace, "st") == [(access(GLOBAL, 2), *line(at))]
    assert words(trace, "prefetch") == [(access(GLOBAL, 1), *line(at))]


def test_parameters_constants_and_local_memory():
    trace = recorded(
        """.local .align 8 .b8 own[16]; .reg .b64 %l, %q; ld.const.b32 %r1, [table]; st.local.b32 [own+4], %tid;
        mov.u64 %l, own; cvta.local.u64 %q, %l; ld.v2.b32 {%r2, %r3}, [%q];
        mov.u64 %l, a0; cvta.param.u64 %q, %l; ld.b16 %h1, [%q+2];""",
        nogpu.array(np.zeros(4, np.uint32)),
        declarations=".const .align 4 .b32 table[4] = {1, 2, 3, 4};",
    )
    assert words(trace, "ld.param") == [(access(CONSTANT, 8),)] and words(trace, "ld.const") == [(access(CONSTANT, 4),)]
    assert words(trace, "st.local") == [(access(LOCAL, 4),)] and words(trace, "ld.v2") == [(access(LOCAL, 8),)]
    assert words(trace, "ld.b16") == [(access(CONSTANT, 2),)]


WAVEFRONTS = [
    ("%tid, 4", "b32", 1),
    ("%tid, 8", "b32", 2),
    ("%tid, 128", "b32", 32),
    ("%tid, 132", "b32", 1),
    ("0, 4", "b32", 1),
    ("%tid, 2", "b16", 1),
    ("%tid, 128", "b8", 32),
    ("%tid, 8", "v2.b32", 2),  # two halves of the warp, 128 bytes each
    ("%tid, 16", "b64", 4),  # two of each half
    ("%tid, 16", "v4.b32", 4),
    ("%tid, 32", "v4.b32", 8),
    ("0, 16", "v4.b32", 1),
]


@pytest.mark.parametrize(("address", "modifiers", "wavefronts"), WAVEFRONTS)
def test_wavefronts_in_shared_memory(address, modifiers, wavefronts):
    registers = {"b64": "%rd9", "b16": "%h1", "v2.b32": "{%r1, %r2}", "v4.b32": "{%r1, %r2, %r3, %r4}"}
    register = registers.get(modifiers, "%r1")
    size = {"b8": 1, "b16": 2, "b32": 4, "b64": 8, "v2.b32": 8, "v4.b32": 16}[modifiers]
    body = f"""mov.u32 %r70, smem; mov.u32 %r9, 0; mad.lo.u32 %r71, {address.replace("0,", "%r9,", 1)}, %r70;
        .reg .b64 %g; cvt.u64.u32 %g, %r71; cvta.shared.u64 %g, %g;
        ld.shared.{modifiers} {register}, [%r71]; st.shared.{modifiers} [%r71], {register};
        ld.{modifiers} {register}, [%g];"""
    trace = recorded(body, shared=8192)
    expected = access(SHARED, size), wavefronts
    assert words(trace, "ld") == [expected] * 2 and words(trace, "st") == [expected]


def test_wavefronts_are_counted_by_quarters_of_the_warp():
    """Each quarter's 16-byte accesses fall on 8 banks, while the whole warp's spread over all."""
    body = f"""{SETUP} and.b32 %r1, %tid, 7; shl.b32 %r1, %r1, 6; shr.u32 %r2, %tid, 3; mad.lo.u32 %r1, %r2, 16, %r1;
        add.u32 %r1, %r1, %r70; ld.shared.v4.b32 {{%r3, %r4, %r5, %r6}}, [%r1];"""
    assert words(recorded(body), "ld.shared") == [(access(SHARED, 16), 16)]


def test_shared_memory_of_another_cta():
    body = f"""{SETUP} xor.b32 %r1, %rank, 1; mapa.shared::cluster.u32 %r2, %r70, %r1; mad.lo.u32 %r3, %tid, 8, %r2;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        ld.shared::cluster.b32 %r4, [%r3]; mapa.shared::cluster.u32 %r5, %r70, %rank; ld.shared::cluster.b32 %r4, [%r5];
        atom.shared::cluster.add.u32 %r6, [%r2], 1;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""
    trace = recorded(body, grid=2, cluster=2)
    for rank in (0, 1):
        assert words(trace, "ld", cta=rank) == [(access(REMOTE, 4), 2, 1 - rank), (access(SHARED, 4), 1)]
        assert words(trace, "atom", cta=rank) == [(access(REMOTE, 4), 1, 1 - rank)]
        assert words(trace, "barrier.cluster", cta=rank) == [(0,), (1,)] * 2


def test_atomics():
    data, at = zeros(64)
    trace = recorded(
        f"""{SETUP} mad.wide.u32 %rd1, %tid, 8, %a0; mad.lo.u32 %r1, %tid, 8, %r70;
        atom.global.add.u32 %r2, [%rd1], 1; red.global.add.u32 [%a0+64], 1; atom.shared.cas.b32 %r2, [%r1], 0, 1;
        @%p10 atom.global.exch.b64 %rd3, [%a0], %rd1;""",
        data,
    )
    assert words(trace, "atom.global.add") == [(access(GLOBAL, 4), *line(at), *line(at + 128))]
    assert words(trace, "red") == [(access(GLOBAL, 4), *line(at, 4))]
    assert words(trace, "atom.shared") == [(access(SHARED, 4), 2)]
    assert records(trace, "atom.global.exch") == [("atom.global.exch.b64", True, (access(GLOBAL, 8, 1), *line(at, 1)))]


def test_copies_of_lanes():
    data, at = zeros(1024)
    trace = recorded(
        f"""{SETUP} mad.wide.u32 %rd1, %tid, 32, %a0; mad.lo.u32 %r1, %tid, 16, %r70;
        @%p10 mbarrier.init.shared.b64 [%r71], 64; bar.sync 0;
        cp.async.cg.shared.global [%r1], [%rd1], 16; cp.async.ca.shared.global [%r1+512], [%a0], 4;
        cp.async.mbarrier.arrive.shared.b64 [%r71]; cp.async.mbarrier.arrive.noinc.shared.b64 [%r71];
        cp.async.commit_group; cp.async.wait_group 1; cp.async.wait_all;""",
        data,
    )
    lines = [word for i in range(8) for word in line(at + 128 * i)]
    assert words(trace, "cp.async.c")[:2] == [(access(GLOBAL, 16), *lines), (access(GLOBAL, 4), *line(at, 1))]
    assert words(trace, "cp.async.mbarrier") == [(SMEM + 2048, 32, 0)] * 2
    assert words(trace, "cp.async.commit") == [(0, 0)]
    assert words(trace, "cp.async.wait") == [(1, 0), (0, 0)]


def test_matrices():
    trace = recorded(
        f"""{SETUP} mad.lo.u32 %r1, %tid, 16, %r70; mad.lo.u32 %r2, %tid, 128, %r70;
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r3}}, [%r1];
        ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%r3, %r4}}, [%r2];
        stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {{%r3, %r4, %r5, %r6}};
        stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r2], {{%r3, %r4, %r5, %r6}};"""
    )
    assert words(trace, "ldmatrix") == [(access(SHARED, 16, 8), 1), (access(SHARED, 16, 16), 16)]
    assert words(trace, "stmatrix") == [(access(SHARED, 16), 4), (access(SHARED, 16), 32)]


def test_asynchronous_stores():
    body = f"""{SETUP} xor.b32 %r1, %rank, 1; mapa.shared::cluster.u32 %r2, %r70, %r1; mad.lo.u32 %r3, %tid, 16, %r2;
        mapa.shared::cluster.u32 %r4, %r71, %r1;
        @%p10 mbarrier.init.shared.b64 [%r71], 1; @%p10 mbarrier.arrive.expect_tx.shared.b64 _, [%r71], 640;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r3], {{%r1, %r1, %r1, %r1}}, [%r4];
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r2], %r1, [%r4];
        W: mbarrier.try_wait.parity.shared.b64 %p1, [%r71], 0; @!%p1 bra W;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""
    trace = recorded(body, grid=2, cluster=2)
    peer = SMEM + 2048 + PEER
    assert words(trace, "st.async") == [(access(REMOTE, 16), 4, 1, peer, 512)]
    assert words(trace, "red.async") == [(access(REMOTE, 4), 1, 1, peer, 128)]


# mbarriers and other barriers


@pytest.mark.usefixtures("kernels_and_calls")
def test_mbarrier_operations():
    trace = recorded(
        f"""{SETUP} mad.lo.u32 %r1, %tid, 8, %r71; setp.lt.u32 %p1, %tid, 4; mov.u32 %r3, 2; setp.lt.u32 %p2, %tid, 1;
        @%p1 mbarrier.init.shared.b64 [%r1], 100; mbarrier.init.shared.b64 [%r71+64], 7;
        bar.sync 0;
        mbarrier.arrive.shared.b64 %rd1, [%r71]; @%p10 mbarrier.arrive.shared.b64 _, [%r71], %r3;
        @%p10 mbarrier.arrive.expect_tx.shared.b64 _, [%r71], 48; mbarrier.expect_tx.relaxed.cta.shared.b64 [%r71], 16;
        @%p10 mbarrier.complete_tx.shared.b64 [%r71], 48;
        mbarrier.complete_tx.shared.b64 [%r71], 16; mbarrier.expect_tx.relaxed.cta.shared.b64 [%r71], %tid;
        mbarrier.complete_tx.shared.b64 [%r71], %tid;
        @%p10 mbarrier.arrive_drop.shared.b64 _, [%r71];
        and.b32 %r4, %tid, 1; mad.lo.u32 %r4, %r4, 8, %r71; add.u32 %r4, %r4, 8; mbarrier.arrive.shared.b64 _, [%r4];
        bar.sync 0; @%p1 mbarrier.inval.shared.b64 [%r71];"""
    )
    inits = [word for i in range(4) for word in (BARRIER + 8 * i, 100)]
    assert records(trace, "mbarrier.init") == [
        ("mbarrier.init.shared.b64", True, tuple(inits)),
        ("mbarrier.init.shared.b64", False, (BARRIER + 64, 7)),
    ]
    assert words(trace, "mbarrier.arrive") == [
        *((BARRIER, 32, 0), (BARRIER, 2, 0), (BARRIER, 1, 48), (BARRIER, 1, 0)),
        (BARRIER + 8, 16, 0, BARRIER + 16, 16, 0),
    ]
    assert words(trace, "mbarrier.expect_tx") == [(BARRIER, 0, 512), (BARRIER, 0, 496)]
    completed = [48, 512, 496]
    assert words(trace, "mbarrier.complete_tx") == [(BARRIER, 0, 2**32 - nbytes) for nbytes in completed]
    assert words(trace, "mbarrier.inval") == [(BARRIER,)]


def test_arrivals_at_another_cta():
    """Each of lanes 0 and 1 arrives at the barrier of the CTA with its number."""
    body = f"""{SETUP} @%p10 mbarrier.init.shared.b64 [%r71], 2; setp.lt.u32 %p1, %tid, 2;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; mapa.shared::cluster.u32 %r1, %r71, %tid;
        @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];
        W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r71], 0; @!%p2 bra W;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""
    trace = recorded(body, grid=2, cluster=2)
    assert words(trace, "mbarrier.arrive") == [(BARRIER, 1, 0, BARRIER + PEER, 1, 0)]
    for rank in (0, 1):
        assert words(trace, "mbarrier.try_wait", cta=rank) == [(BARRIER + rank * PEER, 0, 1)]


@pytest.mark.usefixtures("kernels_and_calls")
def test_a_wait_is_recorded_once_when_it_is_over():
    """Warp 1 waits for four phases that warp 0 ends. A producer's first wait is for the phase before the first."""
    body = f"""{SETUP} @%p10 mbarrier.init.shared.b64 [%r71], 1; @%p10 mbarrier.init.shared.b64 [%r71+8], 1;
        bar.sync 0; mov.u32 %r1, 0; setp.ge.u32 %p1, %tid, 32; and.b32 %r9, %tid, 31; setp.eq.u32 %p11, %r9, 0;
        @%p1 bra READER;
    WRITE: xor.b32 %r2, %r1, 1; and.b32 %r2, %r2, 1;
        A: mbarrier.try_wait.parity.shared.b64 %p2, [%r71+8], %r2; @!%p2 bra A;
        @%p11 mbarrier.arrive.shared.b64 _, [%r71]; add.u32 %r1, %r1, 1; setp.lt.u32 %p3, %r1, 4; @%p3 bra WRITE;
        bra END;
    READER: and.b32 %r2, %r1, 1;
        B: mbarrier.try_wait.parity.shared.b64 %p2, [%r71], %r2; @!%p2 bra B;
        @%p11 mbarrier.arrive.shared.b64 _, [%r71+8]; add.u32 %r1, %r1, 1; setp.lt.u32 %p3, %r1, 4; @%p3 bra READER;
    END:"""
    trace = recorded(body, threads=64)
    full, empty = SMEM + 2048, SMEM + 2056
    assert words(trace, "mbarrier.try", warp=0) == [(empty, phase & NOTHING, 1) for phase in (-1, 0, 1, 2)]
    assert words(trace, "mbarrier.try", warp=1) == [(full, phase, 1) for phase in (0, 1, 2, 3)]


def test_polls_in_vain_are_recorded():
    body = f"""{SETUP} @%p10 mbarrier.init.shared.b64 [%r71], 1; bar.sync 0; mov.u32 %r1, 0;
        POLL: mbarrier.test_wait.parity.shared.b64 %p1, [%r71], 0; add.u32 %r1, %r1, 1; setp.eq.u32 %p2, %r1, 3;
        and.pred %p3, %p2, %p10; @%p3 mbarrier.arrive.shared.b64 %rd1, [%r71]; @!%p1 bra POLL;
    """
    assert words(recorded(body), "mbarrier.test_wait") == [(BARRIER, 0, 0)] * 3 + [(BARRIER, 0, 1)]


def test_waits_for_a_state():
    """Phase 0 is over; phases 1 and 2 are not, when lane 0 alone has arrived in them."""
    alone = """@%p10 mbarrier.arrive.shared.b64 %rd2, [%r71]; mov.b64 {%r6, %r7}, %rd2;
        shfl.sync.idx.b32 %r6, %r6, 0, 31, -1; mov.b64 %rd2, {%r6, %r7};
        mbarrier.test_wait.shared.b64 %p1, [%r71], %rd2;"""
    body = f"""{SETUP} @%p10 mbarrier.init.shared.b64 [%r71], 32; bar.sync 0; setp.ne.u32 %p2, %tid, 0;
        mbarrier.arrive.shared.b64 %rd1, [%r71]; mbarrier.test_wait.shared.b64 %p1, [%r71], %rd1;
        {alone} @%p2 mbarrier.arrive.shared.b64 _, [%r71]; {alone}"""
    assert words(recorded(body), "mbarrier.test_wait") == [(BARRIER, 0, 1), (BARRIER, 1, 0), (BARRIER, 2, 0)]


def test_named_barriers():
    """Warps 0 and 1 wait for each other; warp 2 arrives for warp 0. A barrier without a count is for all threads."""
    body = """shr.u32 %r1, %tid, 5; setp.eq.u32 %p1, %r1, 2; setp.eq.u32 %p2, %r1, 0;
        bar.sync 0; bar.red.popc.u32 %r2, 3, 96, %p1; barrier.cta.sync.aligned 4, 96; bar.warp.sync 0xffffffff;
        @%p1 bar.arrive 5, 64; @%p2 bar.sync 5, 64; nanosleep.u32 40;"""
    trace = recorded(body, threads=96)
    common = [("bar.sync", False, (0, 96, 0)), ("bar.red.popc.u32", False, (3, 96, 0))]
    common += [("barrier.cta.sync.aligned", False, (4, 96, 0)), ("bar.warp.sync", False, ())]
    off = {"bar.arrive": ("bar.arrive", True, ()), "bar.sync": ("bar.sync", True, ())}
    assert records(trace, "bar", warp=0) == [*common, off["bar.arrive"], ("bar.sync", False, (5, 64, 0))]
    assert records(trace, "bar", warp=1) == [*common, off["bar.arrive"], off["bar.sync"]]
    assert records(trace, "bar", warp=2) == [*common, ("bar.arrive", False, (5, 64, 1)), off["bar.sync"]]
    assert words(trace, "nanosleep") == [(40,)]


def test_threads_of_a_barrier_are_those_that_have_not_exited():
    """Warp 0 arrives when warp 1 has executed nothing, and is woken when it exits."""
    trace = recorded("setp.ge.u32 %p1, %tid, 32; @%p1 exit; bar.sync 0; bar.sync 0;", threads=64)
    assert words(trace, "bar") == [(0, 32, 0)] * 2


def test_grid_dependencies():
    """A recorded launch runs on its own, even if it lets another start early."""
    data = nogpu.array(np.zeros(32, np.uint32))
    traces = []
    kernel = nogpu.load_ptx(module("griddepcontrol.wait; griddepcontrol.launch_dependents;" + store("%tid")))["k"]
    for _ in range(2):
        kernel.launch(1, 32, [data], programmatic=True, wait=False, record=traces.append)
    assert not Device.current().pending
    for trace in traces:
        assert words(trace, "griddepcontrol") == [(0,), (1,)] and trace.programmatic
    assert len(traces) == 2


# Copies


TILE_SETUP = f"""{SETUP} @%p10 mbarrier.init.shared.b64 [%r71], 1; fence.mbarrier_init.release.cluster;
    .reg .b64 %map; mov.u64 %map, %a1; mov.u32 %r1, %r70; mov.u32 %r2, 4; mov.u32 %r3, 2; mov.u32 %r4, -2;"""


def tile_kernel(body, *arrays, box_=None, tensor_map=None, cluster=1, **options):
    """A launch with a tensor map, by default over the first array, 16 x 64 float32, as its second parameter."""
    text = module(TILE_SETUP + body, 1).replace(".param .u64 a0", ".param .u64 a0, .param .align 64 .b8 m[128]")
    text = text.replace("mov.u64 %map, %a1;", "mov.u64 %map, m;")
    tensor_map = tensor_map or nogpu.tensor_map(arrays[0], box_, **options)
    traces = []
    kernel = nogpu.load_ptx(text)["k"]
    kernel.launch(cluster, 32, [arrays[0], tensor_map], cluster=cluster, shared=4096, record=traces.append)
    return traces[0]


WAIT_TILE = "W: mbarrier.try_wait.parity.shared.b64 %p1, [%r71], 0; @!%p1 bra W;"
LOAD_TILE = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"


def test_tile_loads_and_stores():
    data = nogpu.array(np.zeros((16, 64), np.float32))
    at, row = address_of(data), 256
    trace = tile_kernel(
        f"""@%p10 mbarrier.arrive.expect_tx.shared.b64 _, [%r71], 768;
        @%p10 {LOAD_TILE} [%r1], [%map, {{%r2, %r3}}], [%r71];
        @%p10 {LOAD_TILE} [%r1+256], [%map, {{%r4, %r3}}], [%r71]; mov.u32 %r5, 62; mov.u32 %r6, 14;
        @%p10 {LOAD_TILE} [%r1+512], [%map, {{%r5, %r6}}], [%r71];
        {WAIT_TILE}
        @%p10 cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%map, {{%r2, %r6}}];
        @%p10 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%map, {{%r5, %r3}}], [%r1+128];
        @%p10 cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%map, {{%r2, %r3}}], [%r1];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;""",
        data,
        box_=(16, 4),
    )
    whole = box(256, at + 2 * row + 16, 64, (4, row))
    assert records(trace, "cp.async.bulk.tensor.2d.shared") == [
        (LOAD_TILE, True, tuple(words_))
        for words_ in (
            [1, SMEM, BARRIER, 1, 0, 1, *whole],
            [1, SMEM + 256, BARRIER, 1, 0, 1, *box(256, at + 2 * row, 56, (4, row))],
            [1, SMEM + 512, BARRIER, 1, 0, 1, *box(256, at + 14 * row + 248, 8, (2, row))],
        )
    ]
    assert words(trace, "cp.async.bulk.prefetch") == [(4, 1, *box(256, at + 14 * row + 16, 64, (2, row)))]
    assert words(trace, "cp.async.bulk.tensor.2d.global") == [
        (2, SMEM + 128, 0, 1, *box(256, at + 2 * row + 248, 8, (4, row)))
    ]
    assert words(trace, "cp.reduce") == [(2, SMEM, 1, 1, *whole)]
    assert words(trace, "cp.async.bulk.commit") == [(0, 0)]
    assert words(trace, "cp.async.bulk.wait") == [(0, 1), (0, 0)]


def test_every_load_of_a_tile_is_recorded():
    """Compiled code, which would repeat a load to the same place, must leave none out."""
    data = nogpu.array(np.zeros((16, 64), np.float32))
    trace = tile_kernel(
        f"""mov.u32 %r9, 0; L: @%p10 mbarrier.arrive.expect_tx.shared.b64 _, [%r71], 256; and.b32 %r8, %r9, 1;
        @%p10 {LOAD_TILE} [%r1], [%map, {{%r2, %r9}}], [%r71];
        W: mbarrier.try_wait.parity.shared.b64 %p1, [%r71], %r8; @!%p1 bra W;
        add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 5; @%p2 bra L;""",
        data,
        box_=(16, 4),
    )
    boxes = [box(256, address_of(data) + 256 * turn + 16, 64, (4, 256)) for turn in range(5)]
    assert words(trace, LOAD_TILE) == [(1, SMEM, SMEM + 2048, 1, 0, 1, *found) for found in boxes]


def test_a_box_outside_of_the_tensor_has_nothing_inside():
    data = nogpu.array(np.zeros((16, 64), np.float32))
    trace = tile_kernel(
        f"""@%p10 mbarrier.arrive.expect_tx.shared.b64 _, [%r71], 256; mov.u32 %r2, 64;
        @%p10 {LOAD_TILE} [%r1], [%map, {{%r2, %r3}}], [%r71]; {WAIT_TILE}""",
        data,
        box_=(16, 4),
    )
    (found,) = words(trace, LOAD_TILE)
    assert found[:7] == (1, SMEM, SMEM + 2048, 1, 0, 1, 256) and found[9:11] == (0, 4) and found[-1] == 256


def test_gathered_rows_are_a_box_each():
    data, at = zeros((16, 64), np.float32)
    trace = tile_kernel(
        """@%p10 mbarrier.arrive.expect_tx.shared.b64 _, [%r71], 256; mov.u32 %r5, 7; mov.u32 %r6, 16;
        @%p10 cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes
        [%r1], [%map, {%r2, %r3, %r5, %r6, %r3}], [%r71];"""
        + WAIT_TILE,
        data,
        box_=(16, 1),
    )
    ((*head, count),) = [found[:6] for found in words(trace, "cp.async.bulk.tensor")]
    assert (head, count) == ([1, SMEM, SMEM + 2048, 1, 0], 4)
    boxes = np.array(words(trace, "cp.async.bulk.tensor")[0][6:]).reshape(4, BOX_WORDS).tolist()
    rows = [box(64, at + 256 * number + 16, 64, (1, 256)) for number in (2, 7, 2)]
    assert [boxes[i] for i in (0, 1, 3)] == rows and boxes[2][4] == 0


def test_pixels_are_a_box_each():
    """Four pixels of an image of 3 x 4, every second one of a line: the last of line 1, two of line 2, one outside."""
    array = nogpu.array(np.zeros((1, 3, 4, 64), np.float32))
    at = address_of(array)
    trace = tile_kernel(
        f"""@%p10 mbarrier.arrive.expect_tx.shared.b64 _, [%r71], 256; mov.u32 %r5, 1;
        @%p10 cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes
        [%r1], [%map, {{%r2, %r3, %r5, 0}}], [%r71], {{1, 0}}; {WAIT_TILE}""",
        array,
        tensor_map=Im2colMap(7, at, (64, 4, 3, 1), (256, 1024, 3072), (0, 0), (0, 0), 16, 4, (1, 2, 1, 1)).encode(),
    )
    (found,) = words(trace, "cp.async.bulk.tensor")
    assert found[:6] == (1, SMEM, SMEM + 2048, 1, 0, 4)
    *pixels, last = np.array(found[6:]).reshape(4, BOX_WORDS).tolist()
    assert pixels == [
        box(64, at + 1024 * line + 256 * column + 16, 64, (1, 512), (1, 1024), (1, 3072))
        for line, column in ((1, 3), (2, 1), (2, 3))
    ]
    assert last[10] == 0


def test_a_record_of_many_words():
    """Sixteen pixels have more words than the first word of a record counts; its readers find the next record."""
    array = nogpu.array(np.zeros((1, 3, 16, 64), np.float32))
    trace = tile_kernel(
        f"""@%p10 mbarrier.arrive.expect_tx.shared.b64 _, [%r71], 1024; mov.u32 %r5, 0;
        @%p10 cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes
        [%r1], [%map, {{%r2, %r5, %r5, 0}}], [%r71], {{0, 0}}; {WAIT_TILE}""",
        array,
        tensor_map=Im2colMap(
            7, address_of(array), (64, 16, 3, 1), (256, 4096, 12288), (0, 0), (0, 0), 16, 16, (1, 1, 1, 1)
        ).encode(),
    )
    (found,) = words(trace, "cp.async.bulk.tensor")
    assert found[5] == 16 and len(found) == 6 + 16 * BOX_WORDS > MANY
    assert [found[0] for found in words(trace, "mbarrier.try_wait")] == [SMEM + 2048]
    assert replay([trace], profile("b200")).usage.sm_in == 1024


def test_multicast_and_pairs():
    data, at = zeros((16, 64), np.float32)
    load = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    trace = tile_kernel(
        f"""@%p10 mbarrier.arrive.expect_tx.shared.b64 _, [%r71], 512; setp.eq.u32 %p2, %rank, 0; .reg .b16 %ranks;
        and.pred %p2, %p2, %p10; mov.b16 %ranks, 3; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        @%p2 {load}.multicast::cluster [%r1], [%map, {{%r2, %r3}}], [%r71], %ranks;
        @%p2 {load}.multicast::cluster.cta_group::2 [%r1+256], [%map, {{%r2, %r3}}], [%r71], %ranks;
        {WAIT_TILE} barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;""".replace(
            "expect_tx.shared.b64 _, [%r71], 512", "expect_tx.shared.b64 _, [%r71], %r60"
        ).replace("@%p10 mbarrier", "mad.lo.u32 %r60, %rank, -512, 768; @%p10 mbarrier"),
        data,
        box_=(16, 4),
        cluster=2,
    )
    whole = box(256, at + 512 + 16, 64, (4, 256))
    assert words(trace, load) == [(1, SMEM, BARRIER, 3, 0, 1, *whole), (1, SMEM + 256, BARRIER, 3, 1, 1, *whole)]
    assert words(trace, load, cta=1) == [(), ()]


def test_padded_elements():
    """A row of 16 elements of 4 bits takes 16 bytes in shared memory, 8 in global memory and on the barrier."""
    data = nogpu.array(np.zeros((16, 128), np.uint8))
    trace = tile_kernel(
        f"""@%p10 mbarrier.arrive.expect_tx.shared.b64 _, [%r71], 128; mov.u32 %r2, 0;
        @%p10 {LOAD_TILE} [%r1], [%map, {{%r2, %r3}}], [%r71]; {WAIT_TILE}""",
        data,
        box_=(128, 2),
        element="16u4_align16b",
    )
    assert words(trace, LOAD_TILE)[0][6:] == tuple(box(256, address_of(data) + 256, 64, (2, 128), counted=128))


def test_bulk_copies():
    data, at = zeros(256)
    bulk = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    trace = recorded(
        f"""{SETUP} @%p10 mbarrier.init.shared.b64 [%r71], 1; fence.mbarrier_init.release.cluster;
        setp.lt.u32 %p2, %tid, 2;
        mad.lo.u32 %r1, %tid, 64, %r70; mad.wide.u32 %rd1, %tid, 64, %a0;
        @%p10 mbarrier.arrive.expect_tx.shared.b64 _, [%r71], 64; bar.warp.sync -1;
        @%p2 {bulk} [%r1], [%rd1], 32, [%r71];
        {WAIT_TILE}
        @%p10 cp.async.bulk.prefetch.L2.global [%a0], 512;
        @%p10 cp.async.bulk.global.shared::cta.bulk_group [%a0+16], [%r70], 48;
        @%p10 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%a0], [%r70+64], 16;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        @%p10 mbarrier.arrive.expect_tx.shared.b64 _, [%r71], 32;
        @%p10 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r70+128], [%r70], 32, [%r71];
        V: mbarrier.try_wait.parity.shared.b64 %p1, [%r71], 1; @!%p1 bra V;""",
        data,
    )
    assert words(trace, bulk) == [
        (1, SMEM + 64 * lane, BARRIER, 1, 0, 1, *box(32, at + 64 * lane, 32)) for lane in (0, 1)
    ]
    assert words(trace, "cp.async.bulk.prefetch") == [(4, 1, *box(512, at, 512))]
    assert words(trace, "cp.async.bulk.global") == [(2, SMEM, 0, 1, *box(48, at + 16, 48))]
    assert words(trace, "cp.reduce") == [(2, SMEM + 64, 1, 1, *box(16, at, 16))]
    assert words(trace, "cp.async.bulk.shared::cluster.shared") == [(3, 32, SMEM + 128, BARRIER)]


# The tensor core, launch control


MMA = "tcgen05.mma.cta_group::1.kind::f16 [%tmem], %a, %b, %idesc, "


def tensor_trace(values=True):
    """The (trace, D) of two MMAs, the second of which accumulates."""
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-3, 4, (rows, 16)).astype(np.float16) for rows in (128, 16))
    issue = f"""{MMA} %zero; {MMA} %one; tcgen05.cp.cta_group::1.128x256b [%tmem+32], %a;
        tcgen05.cp.cta_group::1.32x128b.warpx4 [%tmem+64], %a; tcgen05.cp.cta_group::1.4x256b [%tmem+96], %a;"""
    source = tensor_body(issue, instruction("f16", 128, 16), A_TILE, B_TILE, copy=COPY) + WAIT
    source += "tcgen05.st.sync.aligned.16x64b.x2.b32 [%r6], {%r1, %r1}; tcgen05.wait::st.sync.aligned;" + END
    out = nogpu.array(np.zeros((128, 16), np.float32))
    inputs = nogpu.array(image(a)), nogpu.array(image(b))
    trace = recorded(source, out, *inputs, threads=128, shared=0x8000, values=values)
    return trace, out.copy(), a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize("m", [32, 64])
def test_stationary_mma(m):
    """The columns that it fills, of 128 rows."""
    issue = f"{MMA.replace('mma.', 'mma.ws.')} %zero;"
    source = tensor_body(issue, instruction("f16", m, 64), A_TILE, B_TILE, copy=COPY) + WAIT + END
    inputs = [nogpu.array(image(np.ones((rows, 16), np.float16))) for rows in (m, 64)]
    trace = recorded(source, nogpu.array(np.zeros((128, 16), np.float32)), *inputs, threads=128, shared=0x8000)
    assert words(trace, "tcgen05.mma") == [(KINDS.index("f16"), 128, m // 2, 16, 1, 0, 0)]


def test_tensor_core():
    trace, out, product = tensor_trace()
    assert np.array_equal(out, 2 * product)
    kind = KINDS.index("f16")
    assert records(trace, "tcgen05.mma") == [
        ("tcgen05.mma.cta_group::1.kind::f16", True, (kind, 128, 16, 16, 1, 0, accumulates)) for accumulates in (0, 1)
    ]
    assert words(trace, "tcgen05.cp") == [(128 * 32, 1), (128 * 16, 1), (4 * 32, 1)]
    assert words(trace, "tcgen05.commit") == [(SMEM + 0x40, 1, 1)]
    assert words(trace, "tcgen05.alloc") == [(256, 1)] and words(trace, "tcgen05.dealloc") == [(256, 1)]
    for warp in range(4):
        assert words(trace, "tcgen05.ld", warp=warp) == [(16, 32, 0)]
        assert words(trace, "tcgen05.st", warp=warp) == [(2, 16, 1)]
    assert not words(trace, "tcgen05.alloc", warp=1)


def test_products_can_be_left_out():
    """The records are the same, and the accumulator stays as it was."""
    trace, out, _ = tensor_trace()
    without, untouched, product = tensor_trace(values=False)
    assert [records(without, warp=warp, opcode="tcgen05") for warp in range(4)] == [
        records(trace, warp=warp, opcode="tcgen05") for warp in range(4)
    ]
    assert np.isnan(untouched).all() and not np.isnan(out).any()


def test_checks_stay_where_products_are_left_out():
    body = tensor_body(MMA + "%zero;", instruction("f16", 128, 16), A_TILE, B_TILE ^ 1 << 46)
    with pytest.raises(EmulatorError, match="must be 1"):
        recorded(body, nogpu.array(np.zeros(4)), threads=128, shared=0x8000, values=False)


def test_clusters_that_take_over_others(monkeypatch):
    """All clusters that fit get equal turns, so that none takes over all of the work."""
    monkeypatch.setattr(Device.current(), "properties", DeviceProperties(sm_count=3))
    started, taken = (nogpu.array(np.zeros(12, np.uint32)) for _ in range(2))
    trace = recorded(TAKE_OVER.format(condition="", multicast=""), started, taken, grid=12, shared=1024)
    assert (started + taken).tolist() == [1] * 12 and started.sum() == 3
    found = [words(trace, "clusterlaunchcontrol.try", cta=cta) for cta in range(12)]
    taken_over = [number for requests in found for _, number in filter(None, requests) if number != NOTHING]
    assert sorted(taken_over) == list(range(3, 12)) and not any(found[3:])
    assert {place for requests in found for place, _ in filter(None, requests)} == {SMEM + 16}
    for requests in found[:3]:
        assert requests[-1][1] == NOTHING and len(requests) >= 3


# Effects that recording must not have


COUNT = """
    mov.u32 %r1, %ctaid.x; mad.lo.u32 %r1, %r1, 32, %tid; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %rd1, %a0;
    ld.global.b32 %r2, [%rd1]; mad.lo.u32 %r2, %r2, 3, %r1; st.global.b32 [%rd1], %r2;
"""


def test_workers_records_are_merged(monkeypatch):
    starts = []
    for workers in (1, 3):
        monkeypatch.setattr(Device.current(), "workers", workers)
        data = nogpu.array(np.arange(13 * 32, dtype=np.uint32))
        trace, first = recorded(COUNT, data, grid=13), address_of(data) >> 7 & 0xFFFFFFFF
        starts.append(trace.starts.tolist())
        assert np.array_equal(data, (np.arange(13 * 32) * 4).astype(np.uint32))
        for cta in range(13):
            assert [found[1] - first for found in words(trace, "ld.global", cta=cta)] == [cta]
    assert starts[0] == starts[1]


def test_ctas_that_exit_in_another_order():
    """CTAs that communicate are resident together; the first counts for longer."""
    body = """mov.u32 %r9, %ctaid.x; setp.eq.u32 %p9, %r9, 0; selp.u32 %r8, 2000, 1, %p9; red.global.add.u32 [%a1], 1;
        L: sub.u32 %r8, %r8, 1; setp.ne.u32 %p1, %r8, 0; @%p1 bra L;"""
    data, counter = (nogpu.array(np.zeros(size, np.uint32)) for size in (128, 1))
    trace = recorded(body + COUNT, data, counter, grid=4)
    first = address_of(data) >> 7 & 0xFFFFFFFF
    assert [words(trace, "ld.global", cta=cta)[0][1] - first for cta in range(4)] == [0, 1, 2, 3]
    assert [len(words(trace, "sub", cta=cta)) for cta in range(4)] == [2000, 1, 1, 1]


def test_traces_are_saved(tmp_path):
    data = nogpu.array(np.zeros(64, np.uint32))
    kernel = nogpu.load_ptx(module(store("%tid")))["k"]
    for _ in range(2):
        kernel.launch(2, 32, [data], record=tmp_path / "traces")
    files = sorted((tmp_path / "traces").iterdir())
    assert [file.name for file in files] == ["0000-k.npz", "0001-k.npz"]
    trace = recorded(store("%tid"), data, grid=2)
    for file in files:
        loaded = Trace.load(file)
        assert np.array_equal(loaded.words, trace.words) and np.array_equal(loaded.starts, trace.starts)
        names = ("name", "grid", "block", "cluster", "registers", "min_ctas", "programmatic", "cooperative")
        assert [getattr(loaded, name) for name in names] == [getattr(trace, name) for name in names]
        assert [(i.opcode, i.line, i.text) for i in loaded.instructions] == [
            (i.opcode, i.line, i.text) for i in trace.instructions
        ]
        assert loaded.params == address_of(data).to_bytes(8, "little") and loaded.params == trace.params


def test_warps_that_repeat_each_other_are_saved_small(tmp_path):
    """Data at random places can be predicted only from the same words of another warp."""
    trace = recorded("", grid=1)
    once = np.random.default_rng(1).integers(0, 1 << 32, 30_000, np.uint32)
    trace.words = np.tile(once, 50)
    trace.save(tmp_path / "trace.npz")
    assert (tmp_path / "trace.npz").stat().st_size < 1.2 * once.nbytes
    assert np.array_equal(Trace.load(tmp_path / "trace.npz").words, trace.words)


def test_files_that_are_no_traces_are_refused(tmp_path):
    path = tmp_path / "trace.npz"
    zeros = {name: np.zeros(4, np.uint8) for name in ("header", "words", "starts", "params")}
    for arrays in ({"words": np.zeros(4, np.uint32)}, zeros):
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match=r"trace\.npz: no trace of a launch, or of another version"):
            Trace.load(path)


def test_a_launch_that_fails_leaves_no_trace():
    traces = []
    kernel = nogpu.load_ptx(module("trap;", 0))["k"]
    with pytest.raises(EmulatorError, match="trap"):
        kernel.launch(1, 32, record=traces.append)
    assert not traces
    nogpu.load_ptx(module("", 0))["k"].launch(1, 32, record=traces.append)
    assert len(traces) == 1


def test_a_record_is_a_function_or_a_folder():
    with pytest.raises(EmulatorError, match="record is a int; a function, a folder or a Recording is expected"):
        nogpu.load_ptx(module("", 0))["k"].launch(1, 32, record=3)


PROGRAM = f"""if True:
    import sys
    import nogpu
    traces = []
    record = {{"folder": sys.argv[-1], "function": traces.append, "none": None}}[sys.argv[1]]
    nogpu.activate(record=record)
    import numpy as np
    data = nogpu.array(np.zeros(32, np.uint32))
    nogpu.load_ptx({module(store("%tid"))!r})["k"].launch(1, 32, [data])
    print(len(traces), data.sum())
"""


@pytest.mark.parametrize("record", ["folder", "function", "none"])
def test_a_process_is_recorded(tmp_path, record):
    variables = {name: value for name, value in os.environ.items() if not name.startswith("NOGPU")}
    command = [sys.executable, "-c", PROGRAM, record, str(tmp_path / "traces")]
    process = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert process.stdout == f"{int(record == 'function')} 496\n", process.stderr
    assert len(list(tmp_path.rglob("*.npz"))) == (record == "folder")


def test_children_are_recorded(tmp_path):
    program = f"""if True:
        import numpy as np
        import nogpu
        data = nogpu.array(np.zeros(32, np.uint32))
        nogpu.load_ptx({module(store("%tid"))!r})["k"].launch(1, 32, [data])
    """
    process = run("-c", program, NOGPU_RECORD=str(tmp_path / "traces"))
    assert process.returncode == 0, process.stderr
    assert [file.name for file in tmp_path.rglob("*.npz")] == ["0000-k.npz"]
