"""Tensor copies in im2col mode, against patches that NumPy slices out of padded images; test_boxes.py has more."""

import numpy as np
import pytest

from nogpu.errors import EmulatorError, Fault
from nogpu.hardware.tma.encode import Im2colMap
from nogpu.hardware.tma.im2col import Im2col
from nogpu.hardware.tma.tensor_map import TensorMap
from tests.isa.test_async_rows import SCHEDULES, SETUP, SYNC, WAIT
from tests.support.small_kernels import aligned, launch

U32, CHANNELS = 2, 8
BYTES = "mbarrier::complete_tx::bytes"
IMAGES = {3: (3, 7), 4: (2, 4, 5), 5: (2, 3, 2, 4)}  # rank -> images, D, H, W
STEPS, PADDING, FILTER = (2, 1, 2), 1, 3  # steps W first


def images(rank, seed=0):
    shape = (*IMAGES[rank], CHANNELS)
    return aligned(np.random.default_rng(seed).integers(1, 1 << 30, shape, dtype=np.uint32))


def map_of(array, pixels, lower=-PADDING, upper=PADDING - FILTER + 1, steps=STEPS, channels=CHANNELS):
    spatial = array.ndim - 2
    corners, steps = ([lower] * spatial, [upper] * spatial), [1, *steps[:spatial], 1]
    place = array.ctypes.data, array.shape[::-1], array.strides[-2::-1]
    return aligned(np.frombuffer(Im2colMap(U32, *place, *corners, channels, pixels, steps).encode(), np.uint8))


def patches(array, tap):
    """The column of the im2col matrix that belongs to a tap of the filter: uint32[pixels, channels]. tap: W first."""
    spatial = array.ndim - 2
    padded = np.pad(array, [(0, 0), *[(PADDING, PADDING)] * spatial, (0, 0)])
    slices = [
        slice(offset, offset + dim + 2 * PADDING - FILTER + 1, step)
        for offset, dim, step in zip(tap[::-1], array.shape[1:-1], STEPS[:spatial][::-1])
    ]
    return padded[(slice(None), *slices)].reshape(-1, CHANNELS)


def braces(values):
    return "{" + ", ".join(str(value) for value in values) + "}"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("rank", IMAGES)
def test_the_taps_of_a_convolution(rank, schedule):
    """Two loads in a row for each of two taps, the second one from the middle of a line on and past the last image."""
    array, spatial, pixels = images(rank), rank - 2, 6
    taps = [(2, 0, 1)[:spatial], (1, 1, 2)[:spatial]]
    whole = [patches(array, tap) for tap in taps]
    base = [-PADDING] * spatial
    per_line = len(range(-PADDING, array.shape[-2] - FILTER + 1 + PADDING, STEPS[0]))
    later = len(whole[0]) // len(array) * (len(array) - 1) + per_line - 1
    last = [STEPS[0] * (per_line - 1) - PADDING, *base[1:]]
    out = np.zeros((len(taps), 2, pixels, CHANNELS), np.uint32)
    body = f"{SETUP} @%p1 bra DONE; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], {out.nbytes};\n"
    for i, tap in enumerate(taps):
        body += "".join(f"mov.b16 %h{j}, {offset};" for j, offset in enumerate(tap))
        for j, place in enumerate(([0, *base, 0], [0, *last, len(array) - 1])):
            body += f"""cp.async.bulk.prefetch.tensor.{rank}d.L2.global.im2col [%a0, {braces(place)}], {braces(tap)};
            cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.{BYTES}
            [%r10+{256 * (2 * i + j)}], [%a0, {braces(place)}], [%r11], {braces(f"%h{k}" for k in range(spatial))};"""
    body += WAIT.format(n=0, place="%r11", parity=0)
    for i in range(len(taps) * 2):
        body += f"cp.async.bulk.global.shared::cta.bulk_group [%a1+{192 * i}], [%r10+{256 * i}], 192;"
    launch(
        body + "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nDONE:",
        *(map_of(array, pixels), out, array),
        shared=16384,
        schedule=schedule,
    )
    for found, expected in zip(out, whole):
        filled = np.concatenate([expected, np.zeros((pixels, CHANNELS), np.uint32)])
        np.testing.assert_array_equal(found, [filled[:pixels], filled[later : later + pixels]])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_multicast_of_a_pair(schedule):
    """CTA 1 loads for both, with the modifiers in CUTLASS's order; the leader's barrier counts both halves."""
    array, out = images(4), np.zeros((2, 4, CHANNELS), np.uint32)
    body = f"""{SETUP} and.b32 %r12, %r11, 0xFEFFFFFF; @%p1 bra ISSUED; setp.eq.u32 %p5, %rank, 0;
        @%p5 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 256; @%p5 bra ISSUED; mov.b16 %h1, 3; mov.u64 %rd9, 0;
        cp.async.bulk.tensor.4d.im2col.cta_group::2.shared::cluster.global.{BYTES}.multicast::cluster.L2::cache_hint
        [%r10], [%a1, {{%r1, -1, -1, %r1}}], [%r12], {{1, 2}}, %h1, %rd9;
    ISSUED: setp.ne.u32 %p6, %rank, 0; @%p6 bra NOT; {WAIT.format(n=0, place="%r11", parity=0)}
    NOT: {SYNC} mad.lo.u32 %r3, %tid, 4, %r10; ld.shared.b32 %r4, [%r3]; mad.lo.u32 %r5, %rank, 32, %tid;
        mad.wide.u32 %rd1, %r5, 4, %a0; st.global.b32 [%rd1], %r4; {SYNC}"""
    launch(body, out, map_of(array, 4), array, grid=2, cluster=2, shared=16384, schedule=schedule)
    np.testing.assert_array_equal(out, [patches(array, (1, 2))[:4]] * 2)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("rank", IMAGES)
def test_stores_and_reductions(rank, schedule):
    """Pixels are written, then added, from the second one of the last image on; those past the image are dropped."""
    array, pixels, spatial = images(rank), 7, rank - 2
    box = aligned(np.arange(pixels * CHANNELS, dtype=np.uint32))
    expected = array.copy()
    chosen = expected[(slice(None), *[slice(None, None, step) for step in STEPS[:spatial][::-1]])]
    places = [index for index in np.ndindex(chosen.shape[:-1]) if index[0] == len(array) - 1][1 : 1 + pixels]
    for i, index in enumerate(places):
        chosen[index] = 2 * box.reshape(pixels, CHANNELS)[i]
    place = braces([0, STEPS[0], *[0] * (spatial - 1), len(array) - 1])
    store = f"async.bulk.tensor.{rank}d.global.shared::cta"
    body = f"""{SETUP} @%p1 bra DONE; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], {box.nbytes};
        cp.async.bulk.shared::cta.global.{BYTES} [%r10], [%a1], {box.nbytes}, [%r11];
        {WAIT.format(n=0, place="%r11", parity=0)} cp.{store}.im2col_no_offs.bulk_group [%a0, {place}], [%r10];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        cp.reduce.{store}.add.im2col_no_offs.bulk_group [%a0, {place}], [%r10];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nDONE:"""
    launch(body, map_of(array, pixels, 0, 0), box, array, shared=16384, schedule=schedule)
    np.testing.assert_array_equal(array, expected)


LOAD = f"cp.async.bulk.tensor.4d.shared::cta.global.im2col.{BYTES}"
TILE = f"cp.async.bulk.tensor.4d.shared::cta.global.tile.{BYTES}"
STORE = "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group"
AT, ZERO = "{%r1, %r1, %r1, %r1}", "{0, 0}"
RULES = [
    # (changes of the map, instruction, reason)
    ({}, f"{LOAD} [%r10], [%a0, {{0, 4, 0, 0}}], [%r11], {ZERO};", "coordinate 4 in dimension 1 is outside .* -1 to 3"),
    ({}, f"{LOAD} [%r10], [%a0, {{0, 0, -2, 0}}], [%r11], {ZERO};", "coordinate -2 in dimension 2 .* from -1 to 2"),
    ({}, f"{LOAD} [%r10], [%a0, {AT}], [%r11], {{0, 256}};", "im2col offset 256 in dimension 2; limit 255"),
    ({}, f"{TILE} [%r10], [%a0, {AT}], [%r11];", "in tile mode with a tensor map of cuTensorMapEncodeIm2col"),
    ({}, f"{STORE} [%a0, {AT}], [%r10];", r"corners \(-1, -1\) and \(-1, -1\) of the bounding box; the lower"),
    ({"lower": 0, "upper": 1}, f"{STORE} [%a0, {AT}], [%r10];", r"corners \(0, 0\) and \(1, 1\)"),
    ({"lower": 0, "upper": 0}, f"{STORE} [%a0, {{0, 0, 0, -1}}], [%r10];", "must not be negative"),
    ({}, f"{LOAD} [%r10+64], [%a0, {AT}], [%r11], {ZERO};", "0x440 is not a multiple of 128"),
    ({}, f"{LOAD.replace('4d', '5d')} [%r10], [%a0, {{0, 0, 0, 0, 0}}], [%r11], {{0, 0, 0}};", "5 coordinates .* 4"),
    ({}, "tensormap.replace.tile.box_dim.global.b1024.b32 [%a0], 0, %r1;", "of a tensor map for im2col copies"),
    ({}, f"{LOAD} [%r10], [%a0, {AT}], [%r11], {{0, 0, 0}};", "3 im2col offsets in a copy of 4 dimensions"),
    ({}, f"{LOAD} [%r10], [%a0, {AT}], [%r11];", "0 im2col offsets in a copy of 4"),
    ({}, f"{LOAD.replace('4d', '2d')} [%r10], [%a0, {{0, 0}}], [%r11];", "im2col of 2 dimensions: there are 3 to 5"),
    ({}, f"{LOAD.replace('im2col', 'im2col::w')} [%r10], [%a0, {AT}], [%r11], {ZERO};", "im2col::w"),
]


def run_rule(instruction, changes):
    array = images(4)
    body = f"{SETUP} @%p1 bra A; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128; {instruction}\n"
    body += WAIT.format(n=0, place="%r11", parity=0) if BYTES in instruction else ""
    body += "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nA:"
    launch(body, map_of(array, 4, **changes), array, shared=16384)


@pytest.mark.parametrize(("changes", "instruction", "reason"), RULES)
def test_rules(changes, instruction, reason):
    with pytest.raises(EmulatorError, match=reason):
        run_rule(instruction, changes)


@pytest.mark.parametrize(
    ("changes", "instruction"),
    [
        ({}, f"{LOAD} [%r10], [%a0, {{0, 3, 2, 9}}], [%r11], {{255, 255}};"),
        ({"lower": 0, "upper": 0}, f"{STORE} [%a0, {{0, 4, 3, 9}}], [%r10];"),
    ],
)
def test_what_the_rules_allow(changes, instruction):
    run_rule(instruction, changes)


ENCODED = {"data_type": U32, "address": 0x1000, "dims": (8, 5, 4, 2), "strides": (32, 160, 640), "lower": (-1, 2)}
ENCODED |= {"upper": (-3, 1), "channels": 8, "pixels": 1024, "element_strides": (1, 2, 1, 1)}


@pytest.mark.parametrize(
    ("rank", "lower", "upper"),
    [(3, (-32768,), (32767,)), (4, (-128, 127), (127, 126)), (5, (-16, 15, -1), (15, 14, -2))],
)
def test_maps_keep_their_fields(rank, lower, upper):
    dims, strides = (64, 9, 9, 9, 9)[:rank], (1 << 8, 1 << 12, 1 << 16, 1 << 38)[: rank - 1]
    steps = [1] * rank
    raw = Im2colMap(6, 0x7000, dims, strides, lower, upper, 32, 1024, steps, 0, 2, 0, 1).encode()
    found = TensorMap.decode(raw)
    assert found.im2col == Im2col(lower, upper, 1024) and found.box == (32, *[1] * (rank - 1))
    assert (found.dims, found.strides, found.swizzle, found.fill_nan) == (dims, strides, 64, True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dims": (8, 4), "strides": (32,)}, "rank 2 for im2col copies; limit 3 to 5"),
        ({"lower": (-129, 0)}, "lower corner -129 of dimension 1; limit -128 to 127"),
        ({"upper": (0, 128)}, "upper corner 128 of dimension 2; limit -128 to 127"),
        ({"channels": 257}, "channels per pixel 257; limit 1 to 256"),
        ({"channels": 0}, "channels per pixel 0; limit 1"),
        ({"pixels": 1025}, "pixels per column 1025; limit 1 to 1024"),
        ({"lower": (3, 2)}, "bounding box from 3 to 1 in dimension 1 has no element"),
        ({"swizzle": 1, "channels": 16}, "a row of 64 bytes is wider than the 32-byte swizzle"),
    ],
)
def test_rules_of_the_encoder(changes, message):
    Im2colMap(**ENCODED).encode()
    with pytest.raises(Fault, match=message):
        Im2colMap(**ENCODED | changes).encode()
