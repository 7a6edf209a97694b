"""Rubin's tensor core (sm_107): a doubled K, the collector of B, 576 columns, 327 KiB of shared memory.

The forms of opcodes and descriptors are those that nvidia-cutlass-dsl 4.8.1 emits for sm_107a.
"""

from contextlib import nullcontext

import numpy as np
import pytest

from nogpu import commands
from nogpu.cuda import triton_hooks
from nogpu.cuda.loader import load_ptx
from nogpu.errors import EmulatorError, Fault
from nogpu.hardware.memory import SHARED_BASE
from nogpu.hardware.properties import RUBIN, DeviceProperties, LaunchConfig, check_launch
from nogpu.hardware.shared_memory import SharedMemory
from nogpu.hardware.tensor.core import Mma, MmaForm, MmaOperands
from nogpu.hardware.tensor.elements import NARROW_BITS
from nogpu.hardware.tensor.instruction import decode_instruction
from nogpu.hardware.tensor.multiply import use_amx
from nogpu.hardware.tensor.tmem import ColumnAllocator, TensorMemory
from nogpu.ptx import module as ptx
from nogpu.sanitizer.observer import Sanitizer
from tests.support.emulated import run as command
from tests.support.small_kernels import launch_entry, module, store
from tests.support.tensor_kernels import WAIT
from tests.support.tensor_operands import (
    DTYPES,
    SFA,
    SFB,
    A,
    B,
    assert_close,
    descriptor,
    floats,
    instruction,
    put_operand,
    put_scales,
    put_transposed,
    scale_values,
)

WIDE = {"f8f6f4": 1 << 29, "mxf8f6f4": 1 << 31, "mxf4nvf4": 1 << 3}
"""Kind -> the bit of the descriptor that doubles K (cute/arch/mma_sm107_desc.hpp; of f8f6f4: the DSL's PTX)."""


def cta():
    tmem = TensorMemory(ColumnAllocator(RUBIN.tensor_memory_columns))
    tmem.alloc(576, exclusive=True)
    return SharedMemory(RUBIN.shared_memory_per_block_optin), tmem


def elements(rng, rows, k, element):
    """(codes uint8[rows, k], their values in float64), all finite."""
    codes = rng.integers(0, 1 << NARROW_BITS.get(element, 8), (rows, k), dtype=np.uint8)
    values = codes.view(DTYPES[element]).astype(np.float64)
    codes[~np.isfinite(values)] = 0
    return codes, np.where(np.isfinite(values), values, 0.0)


def packed(codes, kind, element="e2m1"):
    """uint8[rows, bytes] of a K-major operand, without padding."""
    bits = 8 if kind == "f8f6f4" else NARROW_BITS.get(element, 8)
    digits = np.unpackbits(codes[:, :, None], axis=2, bitorder="little")[:, :, :bits]
    return np.packbits(digits.reshape(len(codes), -1), axis=1, bitorder="little")


def run(ctas, form, a, b, idesc, accumulate=False, d=0, sfa=SFA, sfb=SFB):
    operation = Mma.decode(form, MmaOperands(d, a, b, idesc, sfa, sfb, accumulate), rubin=True)
    operation.check(ctas)
    return operation.run(ctas)


@pytest.mark.parametrize("mode", [128, 64, 0])
@pytest.mark.parametrize(("group", "n"), [(1, 8), (1, 192), (1, 256), (2, 64), (2, 256)])
@pytest.mark.parametrize(
    ("kind", "k", "a_type", "b_type", "scale", "block"),
    [
        ("f8f6f4", 64, "e4m3", "e5m2", None, 0),
        ("mxf8f6f4", 64, "e5m2", "e4m3", "ue8m0", 32),
        ("mxf4nvf4", 128, "e2m1", "e2m1", "ue4m3", 16),
        ("mxf4nvf4", 128, "e2m1", "e2m1", "ue8m0", 16),
        ("mxf4nvf4", 128, "e2m1", "e2m1", "ue8m0", 32),
        ("mxf4nvf4", 128, "e2m1", "e2m1", "ue4m3", 32),
        ("mxf4nvf4", 128, "e2m1", "e2m1", "ue5m3", 16),
        ("mxf4nvf4", 128, "e2m1", "e2m1", "ue5m3", 32),
        ("mxf8f6f4", 64, "e2m1", "e5m2", "ue8m0", 32),
        ("mxf8f6f4", 64, "e4m3", "e2m1", "ue8m0", 32),
        ("mxf8f6f4", 64, "e3m2", "e2m1", "ue8m0", 32),
        ("mxf8f6f4", 64, "e2m1", "e2m3", "ue8m0", 32),
    ],
)
def test_products_of_a_doubled_k(kind, k, a_type, b_type, scale, block, group, n, mode):
    """D = A B, then D = A B + D, against float64; nothing else is written."""
    rng = np.random.default_rng(1)
    ctas, m, ids = [cta() for _ in range(group)], 128 * group, {}
    b_codes, b_values = elements(rng, n, k, b_type)
    b_scales = random_scales(rng, scale, n, 8)
    factors = k // block if block else 0
    if kind == "mxf8f6f4":
        ids = {"sfa_id": 2, "sfb_id": 2}
    expected = []
    if block:
        b_values = b_values * scale_values(b_scales[:, :factors].copy(), scale, block)
    for rank, (shared, tmem) in enumerate(ctas):
        a_codes, a_values = elements(rng, 128, k, a_type)
        part = n // group
        leading = 0x4000 if mode == 0 else None
        a = put_operand(shared, A, packed(a_codes, kind, a_type), mode, leading)
        b = put_operand(shared, B, packed(b_codes[rank * part :][:part], kind, b_type), mode, leading)
        if block:
            a_scales = random_scales(rng, scale, 128, 8)
            for start, codes, rows in ((SFA, a_scales, 128), (SFB, b_scales, n)):
                for first in range(0, factors, 4):
                    # The words with the upper four factors follow those of all rows, rounded up to 128.
                    column = start + first // 4 * 4 * -(-rows // 128)
                    put_scales(tmem, column, codes[:, first : min(first + 4, factors)], ids.get("sfa_id", 0))
            a_values = a_values * scale_values(a_scales[:, :factors].copy(), scale, block)
        expected.append(a_values)
    idesc = instruction(kind, m, n, a_type, b_type, scale=scale, **ids) | WIDE[kind]
    form = MmaForm(kind, group, block or None)
    outside = [tmem.words[:, n:].copy() for _, tmem in ctas]
    assert run(ctas, form, a, b, idesc) == 2 * m * n * k
    firsts = [floats(tmem)[:, :n].copy() for _, tmem in ctas]
    run(ctas, form, a, b, idesc, accumulate=True)
    for (_, tmem), first, values, rest in zip(ctas, firsts, expected, outside, strict=True):
        assert_close(first, values, b_values)
        assert_close(floats(tmem)[:, :n], values, b_values, first.astype(np.float64))
        assert np.array_equal(tmem.words[:, n:], rest)


def random_scales(rng, scale, rows, count):
    low, high = {"ue4m3": (0x30, 0x48), "ue5m3": (0x60, 0x90), "ue8m0": (120, 134), None: (0, 1)}[scale]
    return rng.integers(low, high, (rows, count), np.uint8)


@pytest.mark.parametrize("amx", [True, False])
@pytest.mark.parametrize("mode", [128, 64, 0])
@pytest.mark.parametrize(("group", "n"), [(1, 8), (1, 192), (1, 256), (2, 64), (2, 256)])
@pytest.mark.parametrize(
    ("scale", "block", "ids"),
    [("ue4m3", 16, (0, 0)), ("ue4m3", 16, (2, 0)), ("ue8m0", 16, (0, 2)), ("ue8m0", 16, (2, 2))]
    + [("ue8m0", 32, ids) for ids in ((0, 0), (1, 2), (3, 1))],
)
def test_products_of_k_of_96(scale, block, ids, group, n, mode, amx):
    """D = A B, then D = A B + D, against float64. A row's factors begin at its byte of a word and end in the next."""
    before = use_amx(amx)
    rng, factors = np.random.default_rng(6), 96 // block
    ctas, part = [cta() for _ in range(group)], n // group
    b_codes, b_values = elements(rng, n, 96, "e2m1")
    b_scales = random_scales(rng, scale, n, factors)
    b_values, expected = b_values * scale_values(b_scales, scale, block), []
    for rank, (shared, tmem) in enumerate(ctas):
        a_codes, a_values = elements(rng, 128, 96, "e2m1")
        a_scales = random_scales(rng, scale, 128, factors)
        a = put_operand(shared, A, packed(a_codes, "mxf4nvf4"), mode, 0x4000 if mode == 0 else None)
        b = put_operand(
            shared, B, packed(b_codes[rank * part :][:part], "mxf4nvf4"), mode, 0x4000 if mode == 0 else None
        )
        for start, codes, rows, first in ((SFA, a_scales, 128, ids[0]), (SFB, b_scales, n, ids[1])):
            for number in range(factors):
                word, byte = divmod(first + number, 4)
                put_scales(tmem, start + word * 4 * -(-rows // 128), codes[:, number : number + 1], byte)
        expected.append(a_values * scale_values(a_scales, scale, block))
    idesc = instruction("mxf4nvf4", 128 * group, n, scale=scale, sfa_id=ids[0], sfb_id=ids[1]) | 1 << 31
    form = MmaForm("mxf4nvf4", group, block)
    assert run(ctas, form, a, b, idesc) == 2 * 128 * group * n * 96
    firsts = [floats(tmem)[:, :n].copy() for _, tmem in ctas]
    run(ctas, form, a, b, idesc, accumulate=True)
    use_amx(before)
    for (_, tmem), first, values in zip(ctas, firsts, expected, strict=True):
        assert_close(first, values, b_values)
        assert_close(floats(tmem)[:, :n], values, b_values, first.astype(np.float64))


def test_rows_of_k_of_96_end_in_their_span():
    shared, tmem = cta()
    a, b = (put_operand(shared, place, np.zeros((rows, 48), np.uint8)) for place, rows in ((A, 128), (B, 64)))
    idesc = NVFP4 | 1 << 31
    run([(shared, tmem)], MmaForm("mxf4nvf4", 1, 32), a + (80 >> 4), b, idesc)
    with pytest.raises(Fault, match="48 adjacent bytes start 96 bytes into the swizzle's span of 128"):
        run([(shared, tmem)], MmaForm("mxf4nvf4", 1, 32), a + (96 >> 4), b, idesc)
    for wrong, reason in (
        (a | 1 << 52, None),  # all in one span: the leading address is not used
        (a + (96 >> 4) | 1 << 52, "the absolute leading address 0x10 is not the start of a span"),
        (put_operand(shared, A, np.zeros((128, 48), np.uint8), 64) | 1 << 52, "needs 128-byte swizzling"),
    ):
        with pytest.raises(Fault, match=reason) if reason else nullcontext():
            run([(shared, tmem)], MmaForm("mxf4nvf4", 1, 32), wrong, b, idesc)
    with pytest.raises(Fault, match="absolute leading address .* with rows of 64 bytes"):
        run([(shared, tmem)], MmaForm("mxf4nvf4", 1, 32), a | 1 << 52, b, NVFP4 | WIDE["mxf4nvf4"])
    with pytest.raises(Fault, match="needs sm_103a or sm_107a"):
        Mma.decode(MmaForm("mxf4nvf4", 1, 32), MmaOperands(0, a | 1 << 52, b, NVFP4))
    with pytest.raises(Fault, match="K of 96 and A in tensor memory is not modelled"):
        run([(shared, tmem)], MmaForm("mxf4nvf4", 1, 32, True), 64, b, idesc)


@pytest.mark.parametrize(
    ("kind", "element", "k", "start"),
    [("mxf4nvf4", "e2m1", 96, start) for start in (48, 80, 96, 112)] + [("mxf8f6f4", "e3m2", 64, n) for n in (48, 96)],
)
def test_rows_of_48_bytes_cross_spans(kind, element, k, start):
    """Columns of 128 bytes of A and B lie apart: a row goes on at the absolute leading address."""
    rng, (shared, tmem) = np.random.default_rng(8), cta()
    values, places = [], []
    for place, rows in ((A, 128), (B, 64)):
        codes, decoded = elements(rng, rows, 512, element)
        columns = packed(codes, kind, element)
        first = put_operand(shared, place, columns[:, :128])
        second = place + 128 * rows + 0x400
        put_operand(shared, second, columns[:, 128:256])
        values.append(decoded[:, start * k // 48 :][:, :k])
        places.append((first & ~(0x3FFF << 16)) + (start >> 4) | second >> 4 << 16 | 1 << 52)
    tmem.words[:, SFA : SFA + 16] = tmem.words[:, SFB : SFB + 16] = 0x7F7F7F7F  # factors of 1
    idesc = instruction(kind, 128, 64, element, element, scale="ue8m0") | 1 << 31
    run([(shared, tmem)], MmaForm(kind, 1, 32), *places, idesc)
    assert_close(floats(tmem)[:, :64], *values)


@pytest.mark.parametrize("group", [1, 2])
def test_scale_factors_of_a_in_its_lanes(group):
    """Row r's eight factors of K of 128 are two words in lane r, with nothing in other lanes."""
    rng = np.random.default_rng(7)
    ctas, n = [cta() for _ in range(group)], 64
    b_codes, b_values = elements(rng, n, 128, "e2m1")
    b_scales, expected = random_scales(rng, "ue4m3", n, 8), []
    b_values = b_values * scale_values(b_scales, "ue4m3", 16)
    for rank, (shared, tmem) in enumerate(ctas):
        a_codes, a_values = elements(rng, 128, 128, "e2m1")
        a_scales = random_scales(rng, "ue4m3", 128, 8)
        a = put_operand(shared, A, packed(a_codes, "mxf4nvf4"))
        b = put_operand(shared, B, packed(b_codes[rank * n // group :][: n // group], "mxf4nvf4"))
        tmem.words[:, SFA : SFA + 2] = a_scales.view(np.uint32)
        for first in (0, 4):
            put_scales(tmem, SFB + first, b_scales[:, first : first + 4])
        expected.append(a_values * scale_values(a_scales, "ue4m3", 16))
    idesc = instruction("mxf4nvf4", 128 * group, n, scale="ue4m3") | WIDE["mxf4nvf4"] | 1 << 26
    run(ctas, MmaForm("mxf4nvf4", group, 16), a, b, idesc)
    for (_, tmem), values in zip(ctas, expected, strict=True):
        assert_close(floats(tmem)[:, :n], values, b_values)


@pytest.mark.parametrize("transposed", [(1, 0), (0, 1), (1, 1)])
def test_transposed_operands_of_a_doubled_k(transposed):
    rng = np.random.default_rng(2)
    shared, tmem = cta()
    (a, a_values), (b, b_values) = (elements(rng, rows, 64, "e4m3") for rows in (128, 64))
    places = [
        put_transposed(shared, start, codes, "e4m3") if flag else put_operand(shared, start, codes)
        for flag, start, codes in zip(transposed, (A, B), (a, b), strict=True)
    ]
    idesc = instruction("f8f6f4", 128, 64, transpose_a=transposed[0], transpose_b=transposed[1]) | WIDE["f8f6f4"]
    run([(shared, tmem)], MmaForm("f8f6f4", 1), *places, idesc)
    assert_close(floats(tmem)[:, :64], a_values, b_values)


def test_a_of_a_doubled_k_in_tensor_memory():
    """Rows of 64 bytes take 16 columns, here the last ones."""
    rng = np.random.default_rng(3)
    shared, tmem = cta()
    (a, a_values), (b, b_values) = (elements(rng, rows, 64, "e5m2") for rows in (128, 64))
    tmem.words[:, 560:] = a.view(np.uint32)
    b_place = put_operand(shared, B, b)
    idesc = instruction("f8f6f4", 128, 64, "e5m2", "e5m2") | WIDE["f8f6f4"]
    form = MmaForm("f8f6f4", 1, None, True)
    run([(shared, tmem)], form, 560, b_place, idesc)
    assert_close(floats(tmem)[:, :64], a_values, b_values)
    with pytest.raises(Fault, match=r"A: tensor memory columns 561 to 576; limit 575"):
        run([(shared, tmem)], form, 561, b_place, idesc)
    idesc = instruction("mxf8f6f4", 128, 64, "e2m1", "e5m2", scale="ue8m0") | WIDE["mxf8f6f4"]
    with pytest.raises(Fault, match="K of 64 and A of type e2m1 in tensor memory is not modelled"):
        run([(shared, tmem)], MmaForm("mxf8f6f4", 1, 32, True), 0, b_place, idesc)


NVFP4 = instruction("mxf4nvf4", 128, 64, scale="ue8m0")


@pytest.mark.parametrize(
    ("kind", "group", "block", "idesc", "message"),
    [
        ("i8", 1, None, instruction("i8", 128, 64, d="s32"), "sm_107 does not have it"),
        ("f16", 1, None, instruction("f16", 128, 64) | 1 << 29, "reserved bits 23 or 29"),
        ("f8f6f4", 1, None, instruction("f8f6f4", 128, 64, d="f16") | 1 << 29, "D of type f16 is not modelled"),
        ("f8f6f4", 1, None, instruction("f8f6f4", 128, 64, "e2m3") | 1 << 29, "e2m3 and B of type e4m3; must be e4m3"),
        ("mxf4", 1, 32, instruction("mxf4", 128, 64, scale="ue8m0") | 1 << 3, "reserved bit 3 is set"),
        ("mxf4", 1, 32, instruction("mxf4", 128, 64, scale="ue8m0") | 1 << 31, "K of 96 .* kind::mxf4nvf4 sm_107a"),
        ("mxf4nvf4", 1, 32, NVFP4 | 1 << 3 | 1 << 31, "K of 96"),
        ("mxf4nvf4", 2, 32, NVFP4 | 1 << 31, "K of 96 .* M of 128; must be 256"),
        ("mxf4nvf4", 1, 16, NVFP4 | 1 << 31 | 1 << 29, "SFA_ID is 1, must be 0 or 2"),
        ("mxf4nvf4", 1, 32, NVFP4 ^ 1 << 23, "scale type ue4m3 with kind::mxf4nvf4 and block32"),
        (
            "mxf8f6f4",
            1,
            32,
            instruction("mxf8f6f4", 128, 64, "e2m1", scale="ue8m0", transpose_a=1) | 1 << 31,
            "K of 64 .* with a transposed A of type e2m1 is not modelled",
        ),
        ("mxf4nvf4", 1, 32, NVFP4 ^ 3 << 23, "scale type ue5m3 with kind::mxf4nvf4 and block32"),
        ("mxf4nvf4", 1, 32, NVFP4 | 1 << 24 | 1 << 3, r"scale type 3 \(bits 23-24\) with kind::mxf4nvf4"),
        (
            "mxf8f6f4",
            1,
            32,
            instruction("mxf8f6f4", 128, 64, scale="ue5m3") | 1 << 31,
            "scale type ue5m3 with kind::mx",
        ),
        ("mxf4nvf4", 1, 32, NVFP4 | 1 << 25, "reserved bit 25 of sm_107"),
        (
            "mxf4nvf4",
            1,
            32,
            NVFP4 | 1 << 3 | 1 << 26,
            "bit 26, A's scale factors in 128 lanes, with K of 128 and block32",
        ),
        ("mxf4nvf4", 1, 16, NVFP4 | 1 << 26, "bit 26, A's scale factors in 128 lanes, with K of 64 and block16"),
        ("mxf8f6f4", 1, 32, instruction("mxf8f6f4", 128, 64, scale="ue8m0") | 1 << 26, "bit 26, A's scale"),
        ("mxf4nvf4", 1, 16, NVFP4 | 1 << 3 | 2 << 29, "SFA_ID is 2, must be 0 for"),
        ("mxf4nvf4", 2, 32, instruction("mxf4nvf4", 128, 64, scale="ue8m0") | 1 << 3, "M of 128; must be 256"),
        (
            "mxf8f6f4",
            1,
            32,
            instruction("mxf8f6f4", 128, 64, scale="ue8m0", sfa_id=1) | 1 << 31,
            "SFA_ID is 1, must be",
        ),
    ],
)
def test_refused_descriptors(kind, group, block, idesc, message):
    with pytest.raises(Fault, match=message):
        decode_instruction(kind, group, block, idesc, rubin=True)


@pytest.mark.parametrize("kind", WIDE)
def test_a_b200_has_no_doubled_k(kind):
    block = 32 if kind.startswith("mx") else None
    idesc = instruction(kind, 128, 64, scale="ue8m0") | WIDE[kind]
    assert decode_instruction(kind, 1, block, idesc, rubin=True).passes == 2
    with pytest.raises(Fault, match="reserved bit"):
        decode_instruction(kind, 1, block, idesc)


class Collected:
    """An A at two places and a B, whose MMAs use the collector."""

    def __init__(self):
        rng = np.random.default_rng(4)
        self.ctas = [cta()]
        shared = self.ctas[0][0]
        (a, self.a_values), (b, self.b_values) = (elements(rng, rows, 64, "e4m3") for rows in (256, 64))
        self.a = put_operand(shared, A, a[:128]), put_operand(shared, A + 0x4000, a[128:])
        self.b, self.other_b = put_operand(shared, B, b), put_operand(shared, B + 0x4000, b)

    def mma(self, use, half=0, b=None, n=64):
        idesc = instruction("f8f6f4", 128, n) | WIDE["f8f6f4"]
        form = MmaForm("f8f6f4", 1, b_collector=use)
        run(self.ctas, form, self.a[half], self.b if b is None else b, idesc, d=64 * half)


@pytest.mark.parametrize("uses", [("fill", "lastuse"), ("fill", "use", "lastuse"), ("fill", "use", "use", "discard")])
def test_collector_of_b(uses):
    collected = Collected()
    for number, use in enumerate(uses):
        collected.mma(use, number % 2)
    for half in (0, 1):
        found = floats(collected.ctas[0][1])[:, 64 * half :][:, :64]
        assert_close(found, collected.a_values[128 * half :][:128], collected.b_values)


@pytest.mark.parametrize("use", ["use", "lastuse"])
def test_misused_collector_of_b(use):
    collected = Collected()
    for before in ([], ["fill", "lastuse"], ["fill", "discard"], ["fill", None]):
        for each in before:
            collected.mma(each)
        with pytest.raises(Fault, match=rf"collector::b::{use}: no B has been filled in since the last"):
            collected.mma(use)
    for options in ({"b": collected.other_b}, {"n": 32}):
        collected.mma("fill")
        with pytest.raises(Fault, match=rf"collector::b::{use}: B is .* the collector holds 64 x 64 of e4m3 at"):
            collected.mma(use, **options)
    collected.mma("fill")
    collected.ctas[0][0].data[B + 10] ^= 1
    with pytest.raises(Fault, match=rf"collector::b::{use}: B has changed in shared memory since it was filled in"):
        collected.mma(use)
    with pytest.raises(Fault, match=rf"collector::b::{use} needs sm_107"):
        Mma.decode(MmaForm("f8f6f4", 1, b_collector=use), MmaOperands(0, 0, 0, 0))


def test_exclusive_allocation():
    tmem = TensorMemory(ColumnAllocator(576))
    assert tmem.alloc(512) == 0
    assert tmem.alloc(32) is None  # the upper 64 are for exclusive allocations
    assert tmem.alloc(576, exclusive=True) is None
    tmem.dealloc(0, 512)
    assert tmem.alloc(576, exclusive=True) == 0
    assert tmem.alloc(32) is None
    with pytest.raises(Fault, match=r"dealloc of 576 columns; more than 512 need .exclusive"):
        tmem.dealloc(0, 576)
    tmem.dealloc(0, 576, exclusive=True)
    assert tmem.alloc(32) == 0


@pytest.mark.parametrize(
    ("columns", "wanted", "exclusive", "message"),
    [
        (512, 576, True, "alloc.exclusive needs sm_107: this chip has 512 columns"),
        (512, 512, True, "alloc.exclusive needs sm_107"),
        (576, 512, True, "alloc.exclusive of 512 columns is not modelled"),
        (576, 576, False, "alloc of 576 columns; must be a power of two"),
    ],
)
def test_refused_allocations(columns, wanted, exclusive, message):
    with pytest.raises(Fault, match=message):
        TensorMemory(ColumnAllocator(columns)).alloc(wanted, exclusive)


HIGH = 0x4E000  # of A and B in dynamic shared memory, behind the 256 KiB that a B200's descriptors reach
KERNEL = f"""
    .reg .b32 %smem, %tmem, %bar, %at; .reg .b64 %a, %b; .reg .pred %leader, %p;
    mov.u32 %smem, smem; add.u32 %bar, %smem, 64; shr.u32 %r1, %tid, 5; setp.ne.u32 %p1, %r1, 0;
    setp.ne.u32 %leader, %tid, 0; mov.pred %p, %leader;
    @%leader bra READY; mbarrier.init.shared.b64 [%bar], 1; fence.mbarrier_init.release.cluster;
READY: bar.sync 0; mov.u32 %r3, 576;
    @%p1 bra ALLOCATED; tcgen05.alloc.exclusive.cta_group::1.sync.aligned.shared::cta.b32 [%smem], %r3;
ALLOCATED: mad.wide.u32 %rd1, %tid, 64, %a1; mad.lo.u32 %at, %tid, 64, %smem; add.u32 %at, %at, {HIGH};
""" + "".join(
    f"""ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd1+{i}];
    st.shared.v4.b32 [%at+{i}], {{%r10, %r11, %r12, %r13}};
    """
    for i in range(0, 64, 16)
)
ISSUE = f"""
    fence.proxy.async.shared::cta; bar.sync 0; ld.shared.b32 %tmem, [%smem]; add.u32 %tmem, %tmem, 560;
    mov.b64 %a, {descriptor(SHARED_BASE + HIGH, 512, 0, 128)}; mov.b64 %b, %a; mov.b32 %r7, 0; setp.eq.u32 %p4, %r7, 1;
    @%leader bra ISSUED;
    tcgen05.mma.cta_group::1.kind::f8f6f4.collector::a::discard.collector::b::fill [%tmem], %a, %b,
    {instruction("f8f6f4", 128, 16) | WIDE["f8f6f4"]}, {{%r7, %r7, %r7, %r7}}, %p4; setp.eq.u32 %p4, %r7, 0;
    tcgen05.mma.cta_group::1.kind::f8f6f4.collector::a::discard.collector::b::lastuse [%tmem], %a, %b,
    {instruction("f8f6f4", 128, 16) | WIDE["f8f6f4"]}, {{%r7, %r7, %r7, %r7}}, %p4;
ISSUED:
"""
FREE = """
    tcgen05.fence::before_thread_sync; bar.sync 0; @%p1 bra END; sub.u32 %tmem, %tmem, 560;
    tcgen05.dealloc.exclusive.cta_group::1.sync.aligned.b32 %tmem, %r3;
END:
"""


def text():
    return module(KERNEL + ISSUE + WAIT + FREE, 2).replace(
        ".version 8.8\n.target sm_100a", ".version 9.4\n.target sm_107a"
    )


def launch(properties, schedule="late", body=None):
    """(D of two MMAs in columns 560 to 575, the values of A, whose first 16 rows are B)."""
    codes, values = elements(np.random.default_rng(5), 128, 64, "e4m3")
    # Not swizzled: chunks of 16 bytes 128 bytes apart, groups of eight rows 512.
    tile = np.ascontiguousarray(codes.reshape(16, 8, 4, 16).transpose(0, 2, 1, 3)).view(np.uint32).reshape(-1)
    out = np.zeros((128, 16), np.float32)
    arrays = out, tile
    parameters = [array.ctypes.data.to_bytes(8, "little") for array in arrays]
    entry = ptx.parse(body or text()).entries["k"]
    shared = RUBIN.shared_memory_per_block_optin
    launch_entry(entry, parameters, arrays, (128, 1, 1), shared=shared, schedule=schedule, properties=properties)
    return out, values


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
def test_kernel_of_sm_107a(schedule):
    """Exclusive columns, a descriptor behind 256 KiB, K of 64 and the collector of B in one kernel."""
    out, values = launch(RUBIN, schedule)
    bound = 2 * 64 * 2.0**-23 * (np.abs(values) @ np.abs(values[:16]).T)
    assert (np.abs(out - 2 * values @ values[:16].T) <= bound).all()


RESTRICTED = "one.sync_restrict::shared::read::mma::a.shared"


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
def test_a_commit_behind_reads_of_a_orders_nothing_in_tensor_memory(schedule):
    with pytest.raises(EmulatorError, match=r"tcgen05.ld.* tensor memory columns of the tcgen05.mma.*"):
        launch(RUBIN, schedule, text().replace("one.shared", RESTRICTED))


def test_a_commit_behind_reads_of_a_that_is_refused():
    body = f"""
    mov.u32 %r1, smem; setp.ne.u32 %p1, %tid, 0; @%p1 bra END; mbarrier.init.shared.b64 [%r1], 1;
    tcgen05.commit.cta_group::1.mbarrier::arrive::{RESTRICTED}::cluster.b64 [%r1];
END:
"""
    entry, out = ptx.parse(module(body)).entries["k"], np.zeros(32, np.uint32)
    arguments = entry, [out.ctypes.data.to_bytes(8, "little")], (out,)
    launch_entry(*arguments, properties=RUBIN)
    with pytest.raises(EmulatorError, match="sync_restrict::shared::read::mma::a needs sm_107"):
        launch_entry(*arguments, properties=DeviceProperties())
    with pytest.raises(EmulatorError, match="sync_restrict::shared::read::mma::a is not modelled where accesses"):
        launch_entry(*arguments, properties=RUBIN, sanitizer=Sanitizer())


def test_a_b200_refuses_the_kernel(monkeypatch):
    with pytest.raises(EmulatorError, match="alloc.exclusive needs sm_107"):
        launch(DeviceProperties())
    with pytest.raises(EmulatorError, match=r"PTX for sm_107a \(Rubin\)"):
        load_ptx(text())
    monkeypatch.setenv("NOGPU", "rubin")
    load_ptx(text())["k"].check()
    with pytest.raises(EmulatorError, match=r"PTX for sm_100a: a device of compute capability 10.7"):
        load_ptx(text().replace(".target sm_107a", ".target sm_100a"))


def test_shared_memory_of_a_cta():
    entry = ptx.parse(text()).entries["k"]
    for properties, limit in ((RUBIN, 334848), (DeviceProperties(), 232448)):
        check_launch(entry, LaunchConfig((1, 1, 1), (128, 1, 1), dynamic_shared_bytes=limit), properties)
        with pytest.raises(EmulatorError, match=f"the limit of both together is {limit}"):
            check_launch(entry, LaunchConfig((1, 1, 1), (128, 1, 1), dynamic_shared_bytes=limit + 1), properties)


def test_descriptors_of_a_b200_start_in_the_first_256_kib():
    operands = MmaOperands(0, descriptor(1 << 18, 1024, 128), descriptor(B, 1024, 128), instruction("f8f6f4", 128, 64))
    Mma.decode(MmaForm("f8f6f4", 1), operands, rubin=True)
    with pytest.raises(Fault, match="reserved bits 14-15 are 1"):
        Mma.decode(MmaForm("f8f6f4", 1), operands)
    operands = operands._replace(a=descriptor(1 << 19, 1024, 128))
    with pytest.raises(Fault, match="reserved bits 15-15 are 1, must be 0: the start address has 19 bits"):
        Mma.decode(MmaForm("f8f6f4", 1), operands, rubin=True)


def reduction_of(words, op, kind, absolute, nan):
    """The result of a thread, in plain Python."""
    if kind != "f32":
        values = [word - (1 << 32) if kind == "s32" and word >> 31 else word for word in words]
        return (min if op == "min" else max)(values) & 0xFFFFFFFF
    words = [word & 0x7FFFFFFF if absolute else word for word in words]
    numbers = [word for word in words if word & 0x7FFFFFFF <= 0x7F800000]
    if not numbers or (nan and len(numbers) < len(words)):
        return 0x7FFFFFFF
    # The order is that of values, -0 before +0.
    order = sorted(numbers, key=lambda word: (float(np.uint32(word).view(np.float32)), not word >> 31))
    return order[0 if op == "min" else -1]


REDUCING = (
    "tcgen05.ld.red.sync.aligned.32x32b.x4.max.f32",
    "tcgen05.ld.red.sync.aligned.32x32b.x4.max.abs.f32",
    "tcgen05.ld.red.sync.aligned.32x32b.x4.max.NaN.f32",
    "tcgen05.ld.red.sync.aligned.32x32b.x4.max.abs.NaN.f32",
    "tcgen05.ld.red.sync.aligned.32x32b.x4.max.s32",
    "tcgen05.ld.red.sync.aligned.32x32b.x4.max.u32",
)


@pytest.mark.parametrize("schedule", ["late", "eager"])
@pytest.mark.parametrize("opcode", REDUCING)
@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("shape", ["32x32b", "16x32bx2"])
def test_reducing_loads(shape, op, opcode, schedule):
    special = np.array([0, 1 << 31, 0x7FC00000, 0xFFC00001, 0x7F800000, 0xFF800000, 1, 0x80000001], np.uint32)
    words = np.random.default_rng(9).integers(0, 1 << 32, (128, 4), np.uint32)
    words[::3] = np.random.default_rng(10).choice(special, words[::3].shape)
    words[0], words[3] = special[2:4].repeat(2), (0, 1 << 31, 0, 1 << 31)
    split = ", 2" if shape == "16x32bx2" else ""
    number = 2 if split else 4
    registers = ", ".join(f"%r{20 + i}" for i in range(number))
    opcode = opcode.replace("32x32b.x4.max", f"{shape}.x{number}.{op}")
    body = f"""
    .reg .b32 %tmem; .reg .b32 %red; mov.u32 %r1, smem; mov.u32 %r3, 32; shr.u32 %r2, %tid, 5; setp.ne.u32 %p1, %r2, 0;
    @%p1 bra ALLOCATED; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], %r3;
ALLOCATED: bar.sync 0; ld.shared.b32 %tmem, [%r1]; mad.wide.u32 %rd1, %tid, 16, %a1;
    ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd1];
    tcgen05.st.sync.aligned.32x32b.x4.b32 [%tmem], {{%r10, %r11, %r12, %r13}}; tcgen05.wait::st.sync.aligned;
    {opcode} {{{registers}}}, %red, [%tmem]{split};
    tcgen05.wait::ld.sync.aligned; mad.wide.u32 %rd2, %tid, 4, %a0; st.global.b32 [%rd2], %red;
    bar.sync 0; @%p1 bra END; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, %r3;
END:
"""
    text = module(body, 2).replace(".version 8.8\n.target sm_100a", ".version 9.4\n.target sm_107a")
    out = np.zeros(128, np.uint32)
    parameters = [array.ctypes.data.to_bytes(8, "little") for array in (out, words)]
    arguments = ptx.parse(text).entries["k"], parameters, (out, words), (128, 1, 1)
    launch_entry(*arguments, shared=1024, schedule=schedule, properties=RUBIN)
    modifiers, kind = opcode.split("."), opcode.rpartition(".")[2]
    for thread in range(128):
        lane = thread // 32 * 32 + thread % 16 if split else thread
        columns = slice(thread % 32 // 16 * 2, thread % 32 // 16 * 2 + 2) if split else slice(4)
        expected = reduction_of(words[lane, columns].tolist(), op, kind, "abs" in modifiers, "NaN" in modifiers)
        assert out[thread] == expected, thread
    with pytest.raises(EmulatorError, match="ld.red needs sm_103a or sm_107a"):
        launch_entry(*arguments, shared=1024, properties=DeviceProperties())


@pytest.mark.parametrize("stored", [True, False])
def test_a_reduction_of_uninitialised_columns(stored):
    """The sanitizer follows uninitialised bits into the result of the reduction, which the kernel branches on."""
    body = f"""
    .reg .b32 %tmem; .reg .b32 %red; mov.u32 %r1, smem; mov.u32 %r3, 32; mov.u32 %r4, 1;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], %r3; ld.shared.b32 %tmem, [%r1];
    {"tcgen05.st.sync.aligned.32x32b.x2.b32 [%tmem], {%r4, %r4}; tcgen05.wait::st.sync.aligned;" if stored else ""}
    tcgen05.ld.red.sync.aligned.32x32b.x2.max.u32 {{%r20, %r21}}, %red, [%tmem]; tcgen05.wait::ld.sync.aligned;
    setp.ne.u32 %p1, %red, 1; @%p1 bra END; st.global.b32 [%a0], %r4;
END: bar.warp.sync -1; tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, %r3;
"""
    text, out = (
        module(body).replace(".version 8.8\n.target sm_100a", ".version 9.4\n.target sm_107a"),
        np.zeros(32, np.uint32),
    )
    arguments = ptx.parse(text).entries["k"], [out.ctypes.data.to_bytes(8, "little")], (out,)
    with nullcontext() if stored else pytest.raises(EmulatorError, match="uninitialised"):
        launch_entry(*arguments, properties=RUBIN, sanitizer=Sanitizer())
    assert out[0] == stored


def test_device_of_commands():
    body = module(store("%tid"))
    for target, code in (("sm_107a", 0), ("sm_100a", commands.EXIT_CODES["refused"])):
        made = body.replace(".version 8.8", ".version 9.4").replace("sm_100a", target)
        program = (
            f"import nogpu, numpy as np; x = nogpu.array(np.zeros(32, np.uint32)); "
            f"nogpu.load_ptx({made!r})['k'].launch(1, 32, [x]); assert (x == np.arange(32)).all()"
        )
        for name in ("run", "check"):
            done = command(name, "--device", "rubin", "-c", program)
            assert done.returncode == code, done.stderr
    done = command("run", "--device", "rubin", "-c", "", NOGPU_CLOCK="b200")
    assert done.returncode == commands.EXIT_USAGE and "no profile models the times of Rubin" in done.stderr


def test_a_front_that_is_not_modelled(monkeypatch):
    monkeypatch.setenv("NOGPU", "rubin")
    with pytest.raises(EmulatorError, match=r"Triton on Rubin: CuTe DSL, CUDA C\+\+ and load_ptx only"):
        triton_hooks._target(None)


@pytest.mark.parametrize("conversion", ["rp.satfinite.ue5m3x2.f32 %h, %g, %g", "rn.bf16x2.ue5m3x2 %r0, %h"])
def test_conversions_of_ue5m3(conversion):
    body = f"    .reg .b16 %h; .reg .f32 %g; mov.b16 %h, 0; mov.f32 %g, 0f3F800000; cvt.{conversion};"
    text = module(body, 0).replace(".version 8.8", ".version 9.4").replace("sm_100a", "sm_107a")
    with pytest.raises(EmulatorError, match="instruction cvt.*ue5m3x2.* is not modelled"):
        launch_entry(ptx.parse(text).entries["k"], [], [], properties=RUBIN)
