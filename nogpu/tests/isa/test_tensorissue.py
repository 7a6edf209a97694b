"""tcgen05.mma and tcgen05.cp issued by small kernels: operands of every form, and operands refused at issue.

A kernel that must be refused goes on to a trap: an error found only when the operation happens is found too late.
"""

import contextlib

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from nogpu.hardware.memory import SHARED_BASE
from tests.support.small_kernels import aligned, launch
from tests.support.tensor_kernels import A_TILE, B_TILE, CLUSTER_SYNC, COPY, END, OTHER, TILE, WAIT, body, image
from tests.support.tensor_operands import (
    K,
    descriptor,
    expanded,
    instruction,
    make_cta,
    packed_rows,
    put_metadata,
    random_elements,
    random_indices,
)

SCHEDULES = ["late", "eager", "random:1"]


def run(text, idesc, a, b, schedule="late"):
    """The result D of 128 rows and 16 columns as uint32."""
    out = np.zeros((128, 16), np.uint32)
    source = body(text, idesc, A_TILE, B_TILE, copy=COPY) + WAIT + END
    launch(source, out, image(a), image(b), threads=128, shared=0x8000, schedule=schedule)
    return out


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("kind", "d"), [("f16", "f32"), ("tf32", "f32"), ("f8f6f4", "f32"), ("i8", "s32")])
def test_plain_kinds(kind, d, schedule):
    rng = np.random.default_rng(1)
    a, b = (
        random_elements(rng, rows, kind, {"f16": "f16", "tf32": "tf32", "i8": "u8", "f8f6f4": "e4m3"}[kind])
        for rows in (128, 16)
    )
    issue = f"""
        tcgen05.mma.cta_group::1.kind::{kind} [%tmem], %a, %b, %idesc, %zero;
        tcgen05.mma.cta_group::1.kind::{kind}.collector::a::lastuse [%tmem], %a, %b, %idesc, {{%r2, %r2, %r2, %r2}},
        %one;
    """
    out = run(issue, instruction(kind, 128, 16, d=d), a[0], b[0], schedule)
    once = a[1] @ b[1].T
    if d == "s32":
        assert np.array_equal(out.view(np.int32), 2 * once)
    else:
        bound = 2 * K[kind] * 2.0**-23 * (np.abs(a[1]) @ np.abs(b[1]).T)
        assert (np.abs(out.view(np.float32) - 2 * once) <= bound).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("m", [32, 64, 128])
@pytest.mark.parametrize(
    ("kind", "element", "d"), [("f16", "bf16", "f32"), ("tf32", "tf32", "f32"), ("i8", "s8", "s32")]
)
def test_weight_stationary(kind, element, d, m, schedule):
    """A B with columns 0-3, 7-10, ... zeroed, then both operands once more; the first 16 columns of each part of N."""
    a, b = (random_elements(np.random.default_rng(1), rows, kind, element) for rows in (m, 64))
    issue = f"""
        tcgen05.mma.ws.cta_group::1.kind::{kind}.collector::b2::fill [%tmem], %a, %b, %idesc, %zero, 0x0003028f00000000;
        tcgen05.mma.ws.cta_group::1.kind::{kind}.collector::b2::lastuse [%tmem], %a, %b, %idesc, %one, 0;
        tcgen05.mma.ws.cta_group::1.kind::{kind} [%tmem], %a, %b, %idesc, %one;
    """
    idesc = instruction(kind, m, 64, element, element, d)
    out = run(issue, idesc, a[0], b[0], schedule).view(np.int32 if d == "s32" else np.float32).astype(np.float64)
    columns = 64 * m // 128
    factors = np.where(np.arange(64) % columns % 7 < 3, 2, 3)
    product = a[1] @ (b[1] * factors[:, None]).T
    bound = 0 if d == "s32" else 3 * K[kind] * 2.0**-23 * (np.abs(a[1]) @ np.abs(b[1] * 3).T)
    for part in range(128 // m):
        shown = slice(part * columns, part * columns + 16)
        error = np.abs(out[part * m :][:m] - product[:, shown])
        assert (error <= (bound if d == "s32" else bound[:, shown])).all()


def test_collectors_have_names():
    rows = np.ones((128, 16), np.float16)
    mma = "tcgen05.mma.ws.cta_group::1.kind::f16"
    operands = "[%tmem], %a, %b, %idesc, %zero"
    issue = f"{mma}.collector::b0::fill {operands}; {mma}.collector::b1::use {operands};"
    with pytest.raises(EmulatorError, match="collector::b1::use: no B has been filled in"):
        run(issue, instruction("f16", 64, 64), rows, rows)


def test_disabled_lanes_and_scaled_accumulator():
    """Integers small enough to be exact: D = A B, then D = A B + D / 4 except in lanes 1 and 127.

    A word and a predicate of the thread differ from lane to lane of its warp.
    """
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-3, 4, (rows, 16)).astype(np.float16) for rows in (128, 16))
    issue = """
        add.u32 %r7, %tid, 2; mov.u32 %r8, 0x80000000;
        tcgen05.mma.cta_group::1.kind::f16 [%tmem], %a, %b, %idesc, %leader;
        tcgen05.mma.cta_group::1.kind::f16 [%tmem], %a, %b, %idesc, {%r7, %r2, %r2, %r8}, %one, 2;
    """
    out = run(issue, instruction("f16", 128, 16), a, b).view(np.float32)
    once = a.astype(np.float64) @ b.astype(np.float64).T
    expected = once * 1.25
    expected[[1, 127]] = once[[1, 127]]
    assert np.array_equal(out, expected)


def test_shifted_a():
    """Two MMAs of the same A in tensor memory, the first of which shifts it: the second one's product counts."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-3, 4, (rows, 16)).astype(np.float16) for rows in (128, 16))
    issue = """
        add.u32 %r7, %tmem, 64; tcgen05.cp.cta_group::1.128x256b [%r7], %a;
        tcgen05.mma.cta_group::1.kind::f16.ashift.collector::a::discard [%tmem], [%r7], %b, %idesc, %zero;
        tcgen05.mma.cta_group::1.kind::f16 [%tmem], [%r7], %b, %idesc, %zero;
    """
    out = run(issue, instruction("f16", 128, 16), a, b).view(np.float32)
    rows = np.arange(128)
    shifted = a.astype(np.float64)[np.where(rows % 32 == 31, rows, rows + 1)]
    assert np.array_equal(out, shifted @ b.astype(np.float64).T)


@pytest.mark.parametrize(
    ("kind", "qualifiers"),
    [
        ("mxf8f6f4", ".block_scale"),
        ("mxf8f6f4", ".block_scale.scale_vec::1X"),
        ("mxf8f6f4", ".block_scale.block32"),
        ("mxf4", ".block_scale"),
        ("mxf4", ".block_scale.scale_vec::2X"),
        ("mxf4nvf4", ".block_scale.scale_vec::2X"),
        ("mxf4nvf4", ".block_scale.scale_vec::4X"),
        ("mxf4nvf4", ".block_scale.block16"),
    ],
)
def test_block_scaled_kinds(kind, qualifiers):
    """Scale factors of 2 (ue8m0: 128) for A and B, written by tcgen05.cp from a tile of such bytes, elements 1."""
    one = 0x22 if kind.startswith("mxf4") else 0x38
    a = np.full((128, 32), one, np.uint8)
    a[4:64] = 128
    issue = f"""
        mov.b64 %rank64, {descriptor(SHARED_BASE + TILE + 0x400, 128)};
        tcgen05.cp.cta_group::1.32x128b.warpx4 [%sfa], %rank64; tcgen05.cp.cta_group::1.32x128b.warpx4 [%sfb], %rank64;
        mov.b64 %a, %b;
        tcgen05.mma.cta_group::1.kind::{kind}{qualifiers} [%tmem], %a, %b, %idesc, [%sfa], [%sfb], %zero;
    """
    out = run(issue, instruction(kind, 128, 16, scale="ue8m0"), a, np.full((128, 32), one, np.uint8))
    assert np.array_equal(out.view(np.float32), np.full((128, 16), 4.0 * K[kind]))


SPARSE_B = descriptor(SHARED_BASE + OTHER, 512, 0, 128)
METADATA = f"""
    mov.b64 %rank64, {descriptor(SHARED_BASE + TILE + 0x1000, 128)}; add.u32 %r7, %tmem, 96;
    tcgen05.cp.cta_group::1.128x128b [%r7], %rank64;
"""


def sparse_images(a, b, words):
    """Tiles of A, with rows of 16 bytes of metadata behind it, and of a B with rows of 64 bytes (`image`)."""
    tile = image(a)
    tile[0x1000:0x1800] = words.view(np.uint8).ravel()
    groups = b.view(np.uint8).reshape(-1, 8, 4, 16).transpose(0, 2, 1, 3)
    return tile, aligned(np.resize(groups, 8192), 64)


def run_sparse(issue, idesc, a, b, words, schedule="late"):
    """The result D of 128 rows and 16 columns as uint32."""
    out = np.zeros((128, 16), np.uint32)
    source = body(METADATA + issue, idesc, A_TILE, SPARSE_B, copy=COPY) + WAIT + END
    launch(source, out, *sparse_images(a, b, words), threads=128, shared=0x8000, schedule=schedule)
    return out


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("kind", "element", "qualifiers"),
    [
        ("f16", "f16", ""),
        ("tf32", "tf32", ".collector::a::fill"),
        ("f8f6f4", "e4m3", ".collector::a::discard"),
        ("i8", "u8", ""),
        ("mxf8f6f4", "e4m3", ".block_scale"),
        ("mxf4", "e2m1", ".block_scale.scale_vec::2X"),
        ("mxf4nvf4", "e2m1", ".block_scale.block32.collector::a::lastuse"),
    ],
)
def test_sparse_kinds(kind, element, qualifiers, schedule):
    """Metadata by tcgen05.cp, scale factors by it from a tile of 127 (ue8m0: 1), A in shared memory and behind it in
    tensor memory.
    """
    rng = np.random.default_rng(4)
    (a, a_values), *b = (random_elements(rng, rows, kind, element) for rows in (128, 16, 16))
    indices, tmem = random_indices(rng, 128, kind), make_cta()[1]
    put_metadata(tmem, 0, indices, kind, "D")
    packed = [packed_rows(elements, kind, element) for elements in (a, b[0][0], b[1][0])]
    scales = ""
    if ".block_scale" in qualifiers:
        scales = "[%sfa], [%sfb], "
        setup = f"""
            mov.b64 %rank64, {descriptor(SHARED_BASE + OTHER + 0x400, 128)};
            tcgen05.cp.cta_group::1.32x128b.warpx4 [%sfa], %rank64;
            tcgen05.cp.cta_group::1.32x128b.warpx4 [%sfb], %rank64;
        """
    issue = f"""{setup if scales else ""} add.u32 %r7, %tmem, 64; tcgen05.cp.cta_group::1.128x256b [%r7], %a;
        tcgen05.mma.sp.cta_group::1.kind::{kind}{qualifiers} [%tmem], %a, %b, [%tmem+96], %idesc, {scales}%zero;
        tcgen05.mma.sp.cta_group::1.kind::{kind}{qualifiers} [%tmem], [%r7], %b, [%tmem+96], %idesc, {scales}%one;
    """
    b_rows = np.concatenate([np.concatenate(packed[1:], axis=1), np.full((16, 64), 127, np.uint8)])
    idesc = instruction(kind, 128, 16, element, element, "s32" if kind == "i8" else "f32", "ue8m0", sparse=1)
    out = run_sparse(issue, idesc, packed[0], b_rows, tmem.words[:, :4], schedule)
    dense, b_values = expanded(a_values, indices, kind), np.concatenate([values for _, values in b], axis=1)
    found = out.view(np.int32 if kind == "i8" else np.float32)
    bound = 2 * 2 * K[kind] * 2.0**-23 * (np.abs(dense) @ np.abs(b_values).T)
    assert (np.abs(found - 2 * (dense @ b_values.T)) <= bound).all()


def test_sparse_disabled_lanes_scaled_accumulator_and_selector():
    """Integers small enough to be exact: D = A B, then D = A B + D / 4 except in lane 1. Metadata in odd columns."""
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((128, 16), (16, 32)))
    indices, tmem = random_indices(rng, 128, "f16"), make_cta()[1]
    put_metadata(tmem, 1, indices, "f16", "D")
    issue = """
        tcgen05.mma.sp.cta_group::1.kind::f16 [%tmem], %a, %b, [%tmem+96], %idesc, %zero;
        mov.u32 %r8, 2;
        tcgen05.mma.sp.cta_group::1.kind::f16 [%tmem], %a, %b, [%tmem+96], %idesc, {%r8, %r2, %r2, %r2}, %one, 2;
    """
    idesc = instruction("f16", 128, 16, sparse=1, selector=1)
    out = run_sparse(issue, idesc, a, b, tmem.words[:, :4]).view(np.float32)
    once = expanded(a, indices, "f16").astype(np.float64) @ b.astype(np.float64).T
    expected = once * 1.25
    expected[1] = once[1]
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("barrier", [True, False])
def test_metadata_are_stored_before_a_sparse_mma_reads_them(barrier):
    """Each warp stores those of its lanes: a barrier has to stand before the MMA."""
    a, b = np.ones((128, 16), np.float16), np.ones((16, 32), np.float16)
    stored = """
        mov.u32 %r7, 0x44444444; shl.b32 %r8, %r1, 21; add.u32 %r8, %r8, %tmem;
        tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8+96], %r7; tcgen05.wait::st.sync.aligned;
    """
    if barrier:
        stored += "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;"
    issue = "tcgen05.mma.sp.cta_group::1.kind::f16 [%tmem], %a, %b, [%tmem+96], %idesc, %zero;"
    source = body(issue, instruction("f16", 128, 16, sparse=1), A_TILE, SPARSE_B, copy=COPY)
    source = source.replace("or.pred %p, %leader", stored + "or.pred %p, %leader")
    out, images = np.zeros((128, 16), np.float32), sparse_images(a, b, np.zeros((128, 4), np.uint32))
    with (
        contextlib.nullcontext()
        if barrier
        else pytest.raises(EmulatorError, match=r"tcgen05.mma.sp.* touches tensor memory columns of the tcgen05.st")
    ):
        launch(source + WAIT + END, out, *images, threads=128, shared=0x8000)
        assert (out == 16).all()


def test_copies_of_every_form():
    """4x256b and the unpacking forms reach tensor memory; test_tensorcopy.py tests their bytes."""
    a = np.arange(128 * 32, dtype=np.int64).astype(np.uint8).reshape(128, 32)
    issue = """
        add.u32 %r7, %tmem, 0x50000;
        tcgen05.cp.cta_group::1.128x256b [%tmem], %a; tcgen05.cp.cta_group::1.4x256b [%r7], %a; add.u32 %r7, %tmem, 8;
        tcgen05.cp.cta_group::1.128x128b.b8x16.b4x16_p64 [%r7], %a; add.u32 %r7, %tmem, 12;
        tcgen05.cp.cta_group::1.128x128b.b8x16.b6x16_p32 [%r7], %a;
    """
    out = run(issue, 0, a, a)
    rows = a.view(np.uint32).copy()
    rows[5::32] = rows[:4]
    assert np.array_equal(out[:, :8], rows)
    nibbles = np.stack([a[:, :8] & 15, a[:, :8] >> 4], axis=-1).reshape(128, 16) << 2
    assert np.array_equal(out[:, 8:12], np.ascontiguousarray(nibbles).view(np.uint32))
    assert np.array_equal(out[:, 12:].view(np.uint8)[:, 0], (a[:, 0] & 63) << 1)


GOOD = instruction("f16", 128, 16)
MMA = "tcgen05.mma.cta_group::1.kind::f16 [%tmem], %a, %b, %idesc, %zero;"
SWIZZLED = descriptor(SHARED_BASE + OTHER, 1024, 128)


@pytest.mark.parametrize(
    ("text", "idesc", "a", "b", "message"),
    [
        (
            MMA,
            instruction("f16", 96, 16),
            A_TILE,
            B_TILE,
            r"M is 96, must be 64 or 128 .*\(PTX ISA, tcgen05: Matrix Shape\)",
        ),
        (MMA, GOOD, A_TILE, SWIZZLED + 7, "tcgen05.mma B, .* cross its end"),
        (MMA, GOOD, A_TILE + 0x800, B_TILE, r"tcgen05.mma A, shared memory descriptor .* shared offset"),
        (MMA.replace("[%tmem]", "[%tmem+250]"), GOOD, A_TILE, B_TILE, "tcgen05.mma D: tensor memory column 256"),
        (
            MMA.replace("::f16", "::f16.ashift"),
            GOOD,
            A_TILE,
            B_TILE,
            "ashift with M = 128; it needs A in tensor memory",
        ),
        (MMA.replace("%a", "[%tmem+250]"), GOOD, A_TILE, B_TILE, "tcgen05.mma A: tensor memory column 256"),
        ("tcgen05.cp.cta_group::1.128x256b [%tmem], %a;", 0, SWIZZLED + 7, 0, "tcgen05.cp, .* cross its end"),
        ("tcgen05.cp.cta_group::1.128x256b [%tmem+252], %a;", 0, A_TILE, 0, "tcgen05.cp: tensor memory column 256"),
        ("tcgen05.cp.cta_group::1.64x128b [%tmem], %a;", 0, A_TILE, 0, "tcgen05.cp.64x128b; must be "),
    ],
)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_refused_at_issue(text, idesc, a, b, message, schedule):
    with pytest.raises(EmulatorError, match=message) as caught:
        launch(body(f"{text} trap;", idesc, a, b), np.zeros(4, np.uint32), threads=64, shared=0x8000, schedule=schedule)
    assert caught.value.ptx_text.startswith(text.split(" ")[0]) and caught.value.warp == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pair_of_64_rows_each(schedule):
    """M = 128 of a pair with block scaling is legal; N must then be a multiple of 16."""
    text = "tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale.block16 [%tmem], %a, %b, %idesc, [%sfa], [%sfb], %zero;"
    for n, message in (
        (24, "N is 24, must be a multiple of 16 from 16 to 256"),
        (32, "exits with tensor memory allocated"),
    ):
        source = body(text, instruction("mxf4nvf4", 128, n), A_TILE, B_TILE, group=2) + CLUSTER_SYNC
        with pytest.raises(EmulatorError, match=message):
            launch(source, np.zeros(4, np.uint32), threads=64, shared=0x8000, grid=2, cluster=2, schedule=schedule)
