"""Tensor maps: decoding against a driver's encodings, the encoder's rules, and tensormap.replace."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from nogpu.errors import Fault
from nogpu.hardware.tma.boxes import inside
from nogpu.hardware.tma.encode import TiledMap
from nogpu.hardware.tma.tensor_map import TensorMap, edit
from tests.support.encoding import tensor_map

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "tensormap_vectors.json").read_text())
ENCODED = [vector for vector in VECTORS if vector["map"]]
REFUSED = [vector for vector in VECTORS if not vector["map"]]
NAMES = {
    **{"UINT8": "u8", "UINT16": "u16", "UINT32": "u32", "INT32": "s32", "UINT64": "u64", "INT64": "s64"},
    **{"FLOAT16": "f16", "BFLOAT16": "bf16", "FLOAT32": "f32", "FLOAT64": "f64", "FLOAT32_FTZ": "f32.ftz"},
    **{"TFLOAT32": "tf32", "TFLOAT32_FTZ": "tf32.ftz"},
}


def enumerator(vector: dict, field: str) -> str:
    """The last part of an enumerator's name, as FLOAT32 of CU_TENSOR_MAP_DATA_TYPE_FLOAT32."""
    return re.search(r"CU_TENSOR_MAP_(?:DATA_TYPE|INTERLEAVE|SWIZZLE|FLOAT_OOB_FILL)_(\w+):", vector[field])[1]


def test_all_vectors_are_there():
    assert (len(VECTORS), len(ENCODED)) == (58, 47)


@pytest.mark.parametrize("vector", ENCODED, ids=lambda v: v["name"])
def test_decodes_what_the_driver_encoded(vector):
    raw = bytes.fromhex(vector["map"])
    decoded = TensorMap.decode(raw)
    rank = vector["rank"]
    assert decoded.rank == rank
    assert decoded.address == vector["addr"]
    assert decoded.element.name == NAMES[enumerator(vector, "type")]
    assert decoded.dims == tuple(vector["dims"][:rank])
    assert decoded.strides == tuple(vector["strides"][: rank - 1])
    assert decoded.box == tuple(vector["box"][:rank])
    assert decoded.element_strides == tuple(vector["es"][:rank])
    assert decoded.swizzle == int(enumerator(vector, "swz").replace("NONE", "0").rstrip("B"))
    assert decoded.interleave == enumerator(vector, "inter").lower().replace("b", "B")
    assert decoded.fill_nan == enumerator(vector, "oob").startswith("NAN")
    # This driver leaves its own count of the box's bytes behind the map.
    assert decoded.box_bytes == int.from_bytes(raw[64:68], "little")


def test_vectors_the_driver_refused():
    """A Hopper driver has no sub-byte types and no swizzle atoms but 16 bytes; no driver has NaN fill of integers."""
    later = [v for v in REFUSED if re.search(r"16U[46]", enumerator(v, "type")) or "ATOM" in enumerator(v, "swz")]
    nan = [v for v in REFUSED if v not in later]
    assert [v["name"] for v in nan] == [
        "oob <CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA: 1>"
    ]
    with pytest.raises(Fault, match="only floats can"):
        TensorMap.decode(tensor_map(nan[0]["addr"], nan[0]["dims"], nan[0]["strides"], nan[0]["box"], fill_nan=True))


def test_four_bit_elements():
    decoded = TensorMap.decode(tensor_map(0x7F00_0000_1000, (7168, 512), (3584,), (256, 128), "b4x16", 128))
    assert (decoded.element.bits, decoded.inner_bytes, decoded.box_bytes) == (4, 128, 128 * 128)


def test_the_last_64_bytes_do_not_matter():
    raw = tensor_map(0x1000, (64, 64), (64,), (16, 8))
    other = raw.copy()
    other[64:] = 0
    assert TensorMap.decode(raw) is TensorMap.decode(other) is TensorMap.decode(bytes(other))


@pytest.mark.parametrize("span_bit", [21])
def test_the_large_tensor_bit_is_ignored(span_bit):
    raw = tensor_map(0x1000, (64, 64), (64,), (16, 8))
    marked = raw.copy()
    marked[8:12].view("<u4")[0] |= 1 << span_bit
    assert TensorMap.decode(marked) == TensorMap.decode(raw)


GOOD = {"address": 0x1000, "dims": (64, 64, 8), "strides": (256, 65536), "box": (16, 8, 1)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"box": (24, 8, 1), "element": "b4x16"}, r"24 b4x16 in a row are no multiple"),
        ({"box": (64, 8, 1), "swizzle": 64, "element": "u16"}, r"128 bytes is wider than the 64-byte"),
        ({"box": (256, 8, 1), "swizzle": 128}, r"256 bytes is wider than the 128-byte"),
        ({"dims": (96, 64, 8), "box": (128, 8, 1), "element": "b4x16_p64"}, r"must be a multiple of 128"),
        (
            {"address": 0x1010, "dims": (128, 64, 8), "box": (128, 8, 1), "element": "b4x16_p64"},
            r"not a multiple of 32",
        ),
        ({"address": 0x1020, "dims": (256, 64, 8), "box": (64, 8, 1), "element": "b6x16_p32"}, r"its box 64; must be"),
        (
            {"dims": (128, 64, 8), "box": (128, 8, 1), "element": "b6x16_p32", "swizzle": 64},
            r"swizzle of 64 bytes: must be none or 128",
        ),
        (
            {"dims": (128, 64, 8), "box": (128, 8, 1), "element": "b4x16_p64", "swizzle": 128, "atom": "32B flip"},
            r"swizzle of 128 bytes with 8-byte flip: must be none or 128 without the flip",
        ),
        ({"interleave": 2}, r"swizzle 0 with interleave 32B"),
        (
            {"interleave": 2, "swizzle": 32, "strides": (272, 65536)},
            r"stride 272 of dimension 1 is not a multiple of 32",
        ),
        ({"interleave": 3}, r"interleave code 3"),
    ],
)
def test_rules_of_the_encoder(changes, message):
    TensorMap.decode(tensor_map(**GOOD))
    with pytest.raises(Fault, match=message):
        TensorMap.decode(tensor_map(**GOOD | changes))


@pytest.mark.parametrize(
    ("bits", "message"),
    [
        (14 << 7, "element type code 14"),
        (1 << 24, "not a tensor map"),
        (1 << 23, "tensor map rank 1 for im2col copies; limit 3 to 5"),
        (1 << 22, "swizzle of 96 bytes is not modelled"),
    ],
)
def test_unknown_encodings(bits, message):
    raw = tensor_map(0x1000, (64,), (), (16,))
    raw[8:12].view("<u4")[0] |= bits
    with pytest.raises(Fault, match=message):
        TensorMap.decode(raw)


def test_too_short():
    with pytest.raises(Fault, match="63 bytes"):
        TensorMap.decode(bytes(63))


@pytest.mark.parametrize("seed", range(20))
def test_edit_makes_any_map_out_of_any_other(seed):
    """Fields of one map are replaced by those of another one by one, as kernels do with a template in shared memory."""
    rng = np.random.default_rng(seed)

    def random_map() -> dict:
        element = str(rng.choice(["u8", "f16", "f32", "b4x16", "f64"]))
        rank = int(rng.integers(1, 6))
        return {
            "address": 16 * int(rng.integers(1 << 43)),
            "dims": tuple(2 * int(rng.integers(1, 1 << 31)) for _ in range(rank)),
            "strides": tuple(16 * int(rng.integers(1, 1 << 36)) for _ in range(rank - 1)),
            "box": (32, *(int(rng.integers(1, 257)) for _ in range(rank - 1))),
            "element": element,
            "swizzle": 0 if element == "f64" else 128,
            "element_strides": [int(rng.integers(1, 9)) for _ in range(rank)],
            "fill_nan": element.startswith("f"),
        }

    before, after = random_map(), random_map()
    raw = tensor_map(**before)
    edit(raw, "global_address", None, after["address"])
    edit(raw, "rank", None, len(after["dims"]) - 1)
    codes = {"u8": 0, "f16": 6, "f32": 7, "b4x16": 13, "f64": 9}
    edit(raw, "elemtype", None, codes[after["element"]])
    edit(raw, "swizzle_mode", None, {0: 0, 128: 3}[after["swizzle"]])
    edit(raw, "fill_mode", None, int(after["fill_nan"]))
    for i, dim in enumerate(after["dims"]):
        edit(raw, "global_dim", i, dim & 0xFFFFFFFF)
        edit(raw, "box_dim", i, after["box"][i])
        edit(raw, "element_stride", i, after["element_strides"][i])
    for i, stride in enumerate(after["strides"]):
        edit(raw, "global_stride", i, stride)
    assert TensorMap.decode(raw) == TensorMap.decode(tensor_map(**after))
    assert (raw[64:] == 0xA5).all()


@pytest.mark.parametrize(("value", "name"), [(11, "tf32"), (12, "tf32.ftz"), (8, "f32.ftz"), (10, "bf16"), (5, "s64")])
def test_edit_of_element_types(value, name):
    raw = tensor_map(0x1000, (64,), (), (16,), "f16")
    edit(raw, "elemtype", None, value)
    assert TensorMap.decode(raw).element.name == name
    edit(raw, "elemtype", None, 7)
    assert TensorMap.decode(raw).element.name == "f32"


@pytest.mark.parametrize(
    ("field", "ordinal", "value", "message"),
    [
        ("global_address", None, 0x1001, "not a multiple of 16"),
        ("global_address", 0, 0x1000, "takes no ordinal"),
        ("rank", None, 5, "limit 0 to 4"),
        ("box_dim", 0, 257, "limit 1 to 256"),
        ("box_dim", 0, 0, "limit 1 to 256"),
        ("box_dim", None, 1, "needs an ordinal"),
        ("box_dim", 5, 1, "limit 0 to 4"),
        ("global_stride", 4, 16, "limit 0 to 3"),
        ("global_stride", 0, 24, "not a multiple of 16"),
        ("global_stride", 0, 1 << 40, r"below 2\*\*40"),
        ("element_stride", 1, 9, "limit 1 to 8"),
        ("elemtype", None, 16, "limit 0 to 15"),
        ("swizzle_mode", None, 4, "limit 0 to 3"),
        ("swizzle_atomicity", None, 4, "limit 0 to 3"),
        ("interleave_layout", None, 3, "limit 0 to 2"),
        ("fill_mode", None, 2, "limit 0 to 1"),
        ("colour", None, 0, "colour is not known"),
    ],
)
def test_edit_refuses(field, ordinal, value, message):
    raw = tensor_map(0x1000, (64, 64), (64,), (16, 8))
    before = raw.copy()
    with pytest.raises(Fault, match=message):
        edit(raw, field, ordinal, value)
    assert np.array_equal(raw, before)


def test_edit_of_interleave_and_atomicity_show_in_the_decoded_map():
    raw = tensor_map(0x1000, (64, 64, 4), (64, 4096), (16, 8, 1))
    edit(raw, "interleave_layout", None, 1)
    assert TensorMap.decode(raw).interleave == "16B"
    edit(raw, "swizzle_atomicity", None, 1)
    with pytest.raises(Fault, match="swizzle of 0 bytes with atoms of 32 bytes"):
        TensorMap.decode(raw)
    edit(raw, "swizzle_mode", None, 3)
    assert (TensorMap.decode(raw).atom, TensorMap.decode(raw).flip) == (32, False)
    edit(raw, "swizzle_atomicity", None, 2)
    assert (TensorMap.decode(raw).atom, TensorMap.decode(raw).flip) == (32, True)
    edit(raw, "swizzle_atomicity", None, 3)
    assert (TensorMap.decode(raw).atom, TensorMap.decode(raw).flip) == (64, False)


def number(vector: dict, field: str) -> int:
    return int(re.search(r": (\d+)>", vector[field])[1])


def encoded(vector: dict) -> bytes:
    rank = vector["rank"]
    sizes = (vector["dims"][:rank], vector["strides"][: rank - 1], vector["box"][:rank], vector["es"][:rank])
    options = (number(vector, field) for field in ("inter", "swz", "l2", "oob"))
    return TiledMap(number(vector, "type"), vector["addr"], *sizes, *options).encode()


@pytest.mark.parametrize("vector", ENCODED, ids=lambda v: v["name"])
def test_encodes_as_the_driver_does(vector):
    assert encoded(vector)[:64] == bytes.fromhex(vector["map"])[:64]


def test_encodes_what_a_hopper_driver_refuses():
    """The refused ones are younger 4-bit types and swizzle atoms; all drivers refuse NaN fill of integers."""
    for vector in REFUSED:
        name = enumerator(vector, "type")
        if "ATOM" in enumerator(vector, "swz"):
            decoded = TensorMap.decode(encoded(vector))
            expected = {4: (32, False), 5: (32, True), 6: (64, False)}[number(vector, "swz")]
            assert (decoded.swizzle, decoded.atom, decoded.flip) == (128, *expected)
        elif vector["name"].startswith("u4 swz128") and name == "16U4_ALIGN8B":
            decoded = TensorMap.decode(encoded(vector))
            assert (decoded.element.name, decoded.swizzle, decoded.box) == ("b4x16", 128, tuple(vector["box"][:2]))
    with pytest.raises(Fault, match="only floats can"):
        encoded(next(v for v in REFUSED if v["name"].startswith("oob")))


ARGUMENTS = {"data_type": 1, "address": 0x1000, "dims": (64, 64), "strides": (128,), "box": (16, 8)}
ARGUMENTS |= {"element_strides": (1, 1)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dims": (), "strides": (), "box": (), "element_strides": ()}, "rank 0; limit 1 to 5"),
        ({"data_type": 16}, "data type 16 is not known"),
        ({"swizzle": 7}, "swizzle 7 is not known"),
        ({"interleave": 3}, "interleave 3 is not known"),
        ({"l2_promotion": 4}, "L2 promotion 4 is not known"),
        ({"fill_nan": 2}, "out-of-bounds fill 2 is not known"),
        ({"dims": (64, 0)}, "size 0 of dimension 1; limit 1 to 4294967296"),
        ({"dims": ((1 << 32) + 1, 64)}, "size 4294967297 of dimension 0"),
        ({"box": (16, 257)}, "box 257 of dimension 1; limit 1 to 256"),
        ({"box": (0, 8)}, "box 0 of dimension 0"),
        ({"element_strides": (1, 9)}, "element stride 9 of dimension 1; limit 1 to 8"),
        ({"strides": (1 << 40,)}, "stride 1099511627776 of dimension 1; limit 0 to"),
        ({"strides": (136,)}, "stride 136 of dimension 1 is not a multiple of 16"),
        ({"box": (128, 8), "swizzle": 3}, "wider than the 128-byte"),
    ],
)
def test_encoding_refuses(changes, message):
    TiledMap(**ARGUMENTS).encode()
    with pytest.raises(Fault, match=message):
        TiledMap(**ARGUMENTS | changes).encode()


def test_addresses_have_64_bits():
    """A coordinate of 2**30 rows of 2**34 bytes moves a box by 2**64 bytes: to where it was."""
    described = TiledMap(7, 1 << 20, [64, 8, 1 << 31], [256, 1 << 34], [64, 4, 1], [1] * 3)
    ((address, *_),) = inside(TensorMap.decode(described.encode()), (0, 2, 1 << 30))
    assert address == (1 << 20) + 512
