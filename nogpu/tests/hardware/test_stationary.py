"""tcgen05.mma.ws: products in the layouts D, E and G, A in tensor memory, zero columns, the four collectors of B."""

import numpy as np
import pytest

from nogpu.errors import Fault
from nogpu.hardware.tensor.instruction import decode_instruction
from tests.support.tensor_operands import (
    FORMATS,
    NARROW_BITS,
    B,
    K,
    assert_close,
    d_places,
    instruction,
    packed_rows,
    put_operand,
    random_elements,
)
from tests.support.tensor_problem import Problem

LAYOUTS = [(128, "D"), (64, "E"), (32, "G")]
"""Pairs of M and the layout's letter (PTX ISA, "Data Path Layout Organization")."""
PARTS = {"D": 1, "E": 2, "G": 4}
PAIRS = [(kind, element) for kind in ("f16", "tf32", "f8f6f4", "i8") for element in FORMATS[kind]]


def make(m, layout, n=64, kind="f16", element=None, seed=3, **fields):
    d_type = "s32" if kind == "i8" else fields.pop("d_type", "f32")
    return Problem(np.random.default_rng(seed), 1, m, n, kind, element, element, d_type, layout=layout, **fields)


def check(problem, a, b, before=0.0):
    view = np.int32 if problem.kind == "i8" else np.float32
    assert_close(problem.results(view=view)[0].astype(np.float64), a, b, before)


@pytest.mark.parametrize(("m", "layout"), LAYOUTS)
@pytest.mark.parametrize("n", [64, 128, 256])
@pytest.mark.parametrize(("kind", "element"), PAIRS)
def test_products(kind, element, n, m, layout):
    problem = make(m, layout, n, kind, element)
    a, b = problem.a_values[0], problem.b_values
    before = problem.untouched(8)
    assert problem.run(False, 8, stationary=True) == 2 * m * n * K[kind]
    first = problem.results(8, np.int32 if kind == "i8" else np.float32)[0].astype(np.float64)
    assert_close(first, a, b)
    problem.run(True, 8, stationary=True)
    assert_close(problem.results(8, np.int32 if kind == "i8" else np.float32)[0].astype(np.float64), a, b, first)
    assert np.array_equal(problem.untouched(8), before)


@pytest.mark.parametrize(("m", "layout"), LAYOUTS)
@pytest.mark.parametrize(
    ("kind", "element", "mode", "transpose"),
    [
        ("f16", "bf16", 64, (0, 1)),
        ("f16", "bf16", 64, (1, 0)),
        ("i8", "s8", 32, (1, 1)),
        ("tf32", "tf32", "128 of 32", (1, 1)),
    ],
)
def test_transposed_operands(kind, element, mode, transpose, m, layout):
    problem = make(m, layout, 64, kind, element, mode=mode, transpose=transpose)
    problem.run(stationary=True)
    check(problem, problem.a_values[0], problem.b_values)


@pytest.mark.parametrize(("m", "layout"), LAYOUTS)
def test_f16_accumulator(m, layout):
    problem = make(m, layout, d_type="f16")
    problem.run(stationary=True)
    words = problem.results(view=np.uint32)[0]
    a, b = problem.a_values[0], problem.b_values.T
    exact, slack = a @ b, 2.0**-20 * (np.abs(a) @ np.abs(b))  # bound of fp32 sums in any order
    actual = (words & 0xFFFF).astype(np.uint16).view(np.float16)
    assert np.all(((exact - slack).astype(np.float16) <= actual) & (actual <= (exact + slack).astype(np.float16)))


@pytest.mark.parametrize(("m", "layout"), LAYOUTS)
@pytest.mark.parametrize(("kind", "element"), [("f16", "f16"), ("tf32", "tf32"), ("i8", "u8"), ("f8f6f4", "e2m3")])
def test_a_in_tensor_memory_of_each_part(kind, element, m, layout):
    """Each part of N is multiplied by the A in its own lanes."""
    problem = make(m, layout, 128, kind, element)
    elements, values = random_elements(np.random.default_rng(5), 128, kind, element)
    held = elements << {4: 2, 6: 1}[NARROW_BITS[element]] if element in NARROW_BITS else elements
    problem.ctas[0][1].words[:, 200:208] = np.ascontiguousarray(held).view(np.uint32).reshape(128, 8)
    problem.run(a=200, a_in_tmem=True, stationary=True)
    columns = 128 // PARTS[layout]
    found = problem.results(view=np.int32 if kind == "i8" else np.float32)[0].astype(np.float64)
    for part in range(PARTS[layout]):
        of_part = slice(part * columns, (part + 1) * columns)
        assert_close(found[:, of_part], values[part * m :][:m], problem.b_values[of_part])


def zero_mask(starts=(), firsts=(), skip=2, use=3, shift=0, generated=1):
    """A zero-column mask descriptor; starts and firsts from sub-mask 0 on."""
    value = generated << 39 | skip << 40 | use << 48 | shift << 56
    for part, (start, first) in enumerate(zip(starts, firsts, strict=True)):
        value |= start << 8 * part | first << 32 + part
    return value


# PTX ISA, "Zero-Column Mask Descriptor", examples 1 to 4: M, descriptor, the ends of the sub-masks, lowest bit last
EXAMPLES = [
    (128, zero_mask((0,), (0,), 4, 3, generated=0), ["00000000000000"]),
    (128, zero_mask((0,), (0,)), ["11100001110000"]),
    (64, zero_mask((0, 0), (1, 0)), ["11100001110000111", "00001110000111 0000".replace(" ", "")]),
    (
        32,
        zero_mask((0, 1, 2, 1), (1, 1, 0, 0), shift=2),
        ["00001110000111", "0000111000011", "111000011100", "1110000111000"],
    ),
]


@pytest.mark.parametrize("poisoned", [False, True])
@pytest.mark.parametrize(("m", "mask", "ends"), EXAMPLES)
def test_zero_columns(m, mask, ends, poisoned):
    """Masked columns of B count as zeros whatever they hold; the shift moves the window of N columns."""
    n, shift, layout = 128, mask >> 56, dict(LAYOUTS)[m]
    problem = make(m, layout, n)
    elements, values = random_elements(np.random.default_rng(6), n + shift, "f16", "f16")
    values = values[shift:]
    columns = n // PARTS[layout]
    zeros = np.zeros(n, bool)
    for part, end in enumerate(ends):
        pattern = end[::-1]
        period = [pattern[i % 7 + len(pattern) - 7 - (len(pattern) - 7) % 7] for i in range(7)]
        bits = [pattern[i] if i < len(pattern) else period[i % 7] for i in range(columns)]
        zeros[part * columns :][:columns] = np.array(bits) == "1"
    if poisoned:
        elements[shift:][zeros] = np.nan
    problem.b = put_operand(problem.ctas[0][0], B, packed_rows(elements, "f16", "f16"))
    problem.idesc |= 1 << 30
    problem.run(zero_columns=mask, stationary=True)
    check(problem, problem.a_values[0], np.where(zeros[:, None], 0, values))


def test_shift_of_a_transposed_b():
    """Chunks of 16 bytes can be shifted: eight columns of 16 bits."""
    problem = make(64, "E", 128, transpose=(0, 1))
    wide = make(64, "E", 256, transpose=(0, 1))
    problem.ctas, problem.b, problem.idesc = wide.ctas, wide.b, problem.idesc | 2 << 30
    problem.run(zero_columns=8 << 56, stationary=True)
    check(problem, wide.a_values[0], wide.b_values[8:136])
    with pytest.raises(Fault, match="an N-major matrix from column 4 on, no multiple of 8: not modelled"):
        problem.run(zero_columns=4 << 56, stationary=True)


@pytest.mark.parametrize(
    ("m", "code", "mask", "message"),
    [
        (128, 3, 33 << 56, "column shift 33, must be at most 32 for M = 128"),
        (32, 3, 17 << 56, "column shift 17, must be at most 16 for M = 32"),
        (64, 1, 9 << 56, "column shift 9, must be at most 8 .* maximum shift of 8"),
        (64, 0, 1 << 56, "column shift 1, must be at most 0 .* maximum shift of 0"),
        (64, 0, 1 << 36, "reserved bits"),
        (64, 0, 1 << 63, "reserved bits"),
        (64, 0, zero_mask((0, 4), (0, 0)), "start count 1 is 4, beyond a first span of 4, which is not modelled"),
        (64, 0, zero_mask((3, 0), (1, 0)), "start count 0 is 3, beyond a first span of 3, which is not modelled"),
    ],
)
def test_illegal_zero_columns(m, code, mask, message):
    problem = make(m, dict(LAYOUTS)[m])
    problem.idesc |= code << 30
    with pytest.raises(Fault, match=f"zero-column mask descriptor {mask:#018x}: .*{message}"):
        problem.run(zero_columns=mask, stationary=True)


@pytest.mark.parametrize("kind", ["f16", "tf32", "f8f6f4", "i8"])
def test_shapes(kind):
    """PTX ISA, "Various combinations of .kind and shapes", dense, with .ws."""
    d = "s32" if kind == "i8" else "f32"
    for m in range(0, 512, 16):
        for n in range(0, 512, 8):
            idesc = instruction(kind, m, n, d=d)
            if m in (32, 64, 128) and n in (64, 128, 256):
                op = decode_instruction(kind, 1, None, idesc, stationary=True)
                assert (op.m, op.n, op.layout, op.columns) == (m, n, dict(LAYOUTS)[m], n * m // 128)
            else:
                with pytest.raises(
                    Fault, match=r"[MN] is \d+, must be (32 or 64 or 128|64 or 128 or 256) for .* with .ws"
                ):
                    decode_instruction(kind, 1, None, idesc, stationary=True)


def test_doubled_k_is_refused():
    idesc = instruction("f8f6f4", 128, 64) | 1 << 29
    assert decode_instruction("f8f6f4", 1, None, idesc, rubin=True).k == 64
    with pytest.raises(Fault, match="K of 64 with .ws on sm_107, which is not modelled"):
        decode_instruction("f8f6f4", 1, None, idesc, rubin=True, stationary=True)


def test_lane_of_d():
    problem = make(64, "E")
    problem.lane = 16
    with pytest.raises(Fault, match="D at lane 16, not allowed for M = 64; must be 0"):
        problem.run(stationary=True)


def test_collectors_are_four():
    """Each keeps its own B; a use may take another window of the columns than the fill."""
    problem = make(64, "E", 64)
    shared = problem.ctas[0][0]
    operands = [random_elements(np.random.default_rng(seed), 72, "f16", "f16") for seed in range(4)]
    places = [
        put_operand(shared, B + 0x4000 * number, packed_rows(elements, "f16", "f16"))
        for number, (elements, _) in enumerate(operands)
    ]
    problem.idesc |= 1 << 30
    for use, shift in (("fill", 0), ("use", 3), ("lastuse", 8)):
        for number, place in enumerate(places):
            problem.b = place
            problem.run(b_collector=use, b_buffer=f"b{number}", zero_columns=shift << 56, stationary=True)
            check(problem, problem.a_values[0], operands[number][1][shift:][:64])


@pytest.mark.parametrize("use", ["use", "lastuse"])
def test_misused_collectors(use):
    problem = make(64, "E", 64)

    def run(use, buffer="b0", **options):
        problem.run(b_collector=use, b_buffer=buffer, stationary=True, **options)

    # Without a collector's name the instruction discards b0.
    for before in ([], [("fill", "b1")], [("fill", "b0"), ("lastuse", "b0")], [("fill", "b0"), (None, "b0")]):
        for each in before:
            run(*each)
        with pytest.raises(Fault, match=rf"collector::b0::{use}: no B has been filled in since the last"):
            run(use)
    for buffer in ("b0", "b3"):
        run("fill", buffer)
        run("discard", {"b0": "b3", "b3": "b0"}[buffer])
        run("use", buffer)
        problem.ctas[0][0].data[B] ^= 1
        with pytest.raises(Fault, match=rf"collector::{buffer}::{use}: B has changed in shared memory"):
            run(use, buffer)


def test_places_are_those_of_the_figures():
    """PTX ISA, Layouts E and G: rows and columns of some lanes."""
    lanes, columns = d_places("E", 64, 128)
    assert (lanes[33, 70], columns[0, 70]) == (97, 6)
    lanes, columns = d_places("G", 32, 256)
    assert (lanes[31, 64], columns[0, 64], lanes[0, 255], columns[0, 255]) == (63, 0, 96, 63)
