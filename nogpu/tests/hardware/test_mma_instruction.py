"""Instruction descriptors: every M and N of every kind, types, and illegal fields."""

import pytest

from nogpu.errors import Fault
from nogpu.hardware.tensor.instruction import SCALE_BLOCKS, decode_instruction
from tests.support.tensor_operands import FORMATS, K, instruction

EIGHTS, SIXTEENS, THIRTY_TWOS = set(range(8, 257, 8)), set(range(16, 257, 16)), set(range(32, 257, 32))
# PTX ISA, "Various combinations of .kind and shapes", dense, without .ws: kind -> (block, D), cta_group -> (M, N)
SHAPES = {
    "f16": ((None, "f32"), {1: ({64, 128}, EIGHTS), 2: ({128, 256}, SIXTEENS)}),
    "tf32": ((None, "f32"), {1: ({64, 128}, EIGHTS), 2: ({128, 256}, SIXTEENS)}),
    "f8f6f4": ((None, "f32"), {1: ({64, 128}, EIGHTS), 2: ({128, 256}, SIXTEENS)}),
    "i8": ((None, "s32"), {1: ({64, 128}, {8, 24} | SIXTEENS), 2: ({128, 256}, THIRTY_TWOS)}),
    "mxf8f6f4": ((32, "f32"), {1: ({128}, EIGHTS), 2: ({128, 256}, SIXTEENS)}),
    "mxf4": ((32, "f32"), {1: ({128}, EIGHTS), 2: ({128, 256}, SIXTEENS)}),
    "mxf4nvf4": ((16, "f32"), {1: ({128}, EIGHTS), 2: ({128, 256}, SIXTEENS)}),
}
LAYOUTS = {(1, 64): "F", (1, 128): "D", (2, 128): "B", (2, 256): "A"}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("group", [1, 2])
def test_every_shape(kind, group):
    (block, d), shapes = SHAPES[kind]
    legal_m, legal_n = shapes[group]
    for m in range(0, 512, 16):
        for n in range(0, 512, 8):
            idesc = instruction(kind, m, n, d=d, scale="ue8m0")
            if m in legal_m and n in legal_n:
                op = decode_instruction(kind, group, block, idesc)
                assert (op.m, op.n, op.k, op.rows, op.layout) == (m, n, K[kind], m // group, LAYOUTS[group, m])
                assert op.columns == (n // 2 if op.layout == "B" else n)
            else:
                with pytest.raises(Fault, match=rf"[MN] is {n if m in legal_m else m}, must be "):
                    decode_instruction(kind, group, block, idesc)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_pair_of_types(kind):
    (block, d), _ = SHAPES[kind]
    for a in FORMATS[kind]:
        for b in FORMATS[kind]:
            op = decode_instruction(kind, 1, block, instruction(kind, 128, 64, a, b, d, "ue8m0"))
            assert (op.a_type, op.b_type, op.d_type) == (a, b, d)
    codes = set(FORMATS[kind].values())
    good = instruction(kind, 128, 64, d=d, scale="ue8m0")
    b_codes = range(4) if kind.startswith("mxf4") else range(8)
    for shift, name, possible in ((7, "A", range(8)), (10, "B", b_codes)):
        for code in set(possible) - codes:
            with pytest.raises(Fault, match=rf"format of {name} is {code}; kind::{kind} has "):
                decode_instruction(kind, 1, block, good & ~(7 << shift) | code << shift)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(
    ("kind", "b", "d"), [("f8f6f4", "e4m3", "f32"), ("f8f6f4", "e5m2", "f16"), ("i8", "s8", "s32")]
)
def test_n_of_a_transposed_b_of_8_bits(group, kind, b, d):
    """PTX ISA, "Various combinations of N shape with .cta_group qualifier for 8bit transpose B"."""
    legal = {1: SIXTEENS, 2: THIRTY_TWOS}[group]
    for n in SHAPES[kind][1][group][1]:
        idesc = instruction(kind, 128, n, b=b, d=d, transpose_b=1)
        if n in legal:
            assert decode_instruction(kind, group, None, idesc).b_transposed
        else:
            with pytest.raises(Fault, match=f"N is {n}, must be a multiple of .* N-major B of 8 bits"):
                decode_instruction(kind, group, None, idesc)


def test_scale_factor_ids():
    """PTX ISA, "Scale Factor A ID": one byte, a half or the whole of a word."""
    for kind, block, legal in (("mxf8f6f4", 32, {0, 1, 2, 3}), ("mxf4", 32, {0, 2}), ("mxf4nvf4", 16, {0})):
        for name in ("sfa_id", "sfb_id"):
            for value in range(4):
                idesc = instruction(kind, 128, 64, scale="ue8m0", **{name: value})
                if value in legal:
                    assert getattr(decode_instruction(kind, 1, block, idesc), name) == value
                else:
                    with pytest.raises(Fault, match=rf"{name.upper()} is {value}, must be 0.* with block{block}"):
                        decode_instruction(kind, 1, block, idesc)


def test_names_of_block_sizes():
    assert SCALE_BLOCKS["mxf8f6f4"]["scale_vec::1X"] == SCALE_BLOCKS["mxf8f6f4"][None] == 32
    assert SCALE_BLOCKS["mxf4"]["scale_vec::2X"] == SCALE_BLOCKS["mxf4"]["block32"] == 32
    assert SCALE_BLOCKS["mxf4nvf4"]["scale_vec::4X"] == SCALE_BLOCKS["mxf4nvf4"]["block16"] == 16
    assert None not in SCALE_BLOCKS["mxf4nvf4"]


SCALED = {"kind": "mxf4nvf4", "group": 1, "block": 16, "idesc": instruction("mxf4nvf4", 128, 64)}
F16 = {"kind": "f16", "group": 1, "block": None, "idesc": instruction("f16", 128, 64)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "f64"}, r"kind::f64; must be f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4"),
        ({"group": 3}, r"cta_group::3; must be 1 or 2"),
        ({"block": 64}, r"with block64; allowed: block16, block32"),
        ({"block": None}, r"with block0; allowed: block16, block32"),
        ({"kind": "mxf4"}, r"kind::mxf4 with block16; allowed: block32"),
        ({"kind": "mxf4", "block": 32}, r"scale type ue4m3 with kind::mxf4 and block32"),
        ({"block": 32}, r"scale type ue4m3 with kind::mxf4nvf4 and block32"),
        ({"idesc": SCALED["idesc"] | 4}, r"sparsity bits 0-2 are 4, must be 0"),
        ({"idesc": SCALED["idesc"] | 8}, r"reserved bit 3"),
        ({"idesc": SCALED["idesc"] | 1 << 6}, r"reserved bit 6"),
        (
            {"idesc": SCALED["idesc"] | 1 << 15},
            r"transposed A \(bit 15\) of type e2m1, not supported by kind::mxf4nvf4",
        ),
        ({"idesc": SCALED["idesc"] | 1 << 16}, r"transposed B \(bit 16\) of type e2m1"),
        ({"idesc": SCALED["idesc"] | 1 << 31}, r"K of 96 \(bit 31\) needs sm_103a"),
        (
            {"kind": "mxf8f6f4", "block": 32, "idesc": instruction("mxf8f6f4", 128, 64, scale="ue8m0") | 1 << 31},
            r"reserved bit 31",
        ),
        (F16 | {"block": 16}, r"kind::f16 with block16; allowed: no block scaling"),
        (F16 | {"idesc": instruction("f16", 128, 64, "bf16", "bf16", "f16")}, r"D of type f16 with A of type bf16"),
        (F16 | {"idesc": instruction("f16", 128, 64, "f16", "bf16", "f16")}, r"D of type f16 .* B of type bf16"),
        (F16 | {"idesc": F16["idesc"] | 3 << 4}, r"format of D is 3; kind::f16 has 0 \(f16\), 1 \(f32\)"),
        (F16 | {"idesc": F16["idesc"] | 1 << 30}, r"maximum shift 1 \(bits 30-31\), must be 0 without .ws"),
        (F16 | {"idesc": F16["idesc"] | 1 << 29}, r"reserved bits 23 or 29"),
        (F16 | {"idesc": F16["idesc"] | 1 << 3}, r"saturation \(bit 3\), which kind::i8 has"),
        (
            F16 | {"kind": "i8", "idesc": instruction("i8", 128, 64, d="s32", negate_b=1)},
            r"negated A or B \(bits 13, 14\), not supported by kind::i8",
        ),
    ],
)
def test_illegal_instructions(changes, message):
    for legal in (SCALED, F16):
        decode_instruction(legal["kind"], legal["group"], legal["block"], legal["idesc"])
    bad = SCALED | changes
    with pytest.raises(Fault, match=message):
        decode_instruction(bad["kind"], bad["group"], bad["block"], bad["idesc"])


def test_a_dsl_instruction_descriptor():
    """M = 128, N = 256, e2m1, ue4m3 as CuTe DSL encodes it."""
    assert instruction("mxf4nvf4", 128, 256) == 0x08400480
    op = decode_instruction("mxf4nvf4", 1, 16, 0x08400480)
    assert (op.m, op.n, op.k, op.layout) == (128, 256, 64, "D")
    assert (op.scale_type, op.a_type, op.d_type) == ("ue4m3", "e2m1", "f32")


def test_the_third_bit_of_b_s_format_is_not_part_of_it_for_kinds_of_4_bits():
    """CUTLASS's 2cta_mma_blockscale_m128.py encodes 5, which is e2m1's code in other kinds."""
    op = decode_instruction("mxf4nvf4", 2, 16, 0x08401480)
    assert (op.a_type, op.b_type, op.m, op.n, op.layout) == ("e2m1", "e2m1", 128, 256, "B")
