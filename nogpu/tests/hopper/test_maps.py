"""Tensor maps rewritten for a Hopper GPU."""

import json
from pathlib import Path

import pytest

from nogpu.errors import EmulatorError
from nogpu.hardware.tma.tensor_map import TensorMap
from nogpu.hopper.maps import MARK_4_BIT, MARK_OFFSET, MapFacts, mark, patch, patch_members
from tests.support.encoding import tensor_map

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "tensormap_vectors.json").read_text())


@pytest.mark.parametrize("dims", [(512, 40), (64, 3), (514, 1, 7)])
def test_4_bit_elements_become_bytes(dims):
    box = (256, *(1 for _ in dims[1:]))
    strides = [272 * 2**i for i in range(len(dims) - 1)]
    before = tensor_map(0x7F0000001000, dims, strides, box, "b4x16", swizzle=128).tobytes()
    after, facts = patch(before)
    old, new = TensorMap.decode(before), TensorMap.decode(after)
    assert new.element.name == "u8"
    assert (new.dims[0], new.box[0]) == (dims[0] // 2, 128)
    assert (new.dims[1:], new.box[1:], new.strides, new.swizzle) == (old.dims[1:], old.box[1:], old.strides, 128)
    assert (new.address, new.inner_bytes, new.box_bytes) == (old.address, old.inner_bytes, old.box_bytes)
    assert facts == MapFacts(True, old.box_bytes)
    assert len(after) == 128
    marked = mark(after)
    assert marked[MARK_OFFSET] == MARK_4_BIT and TensorMap.decode(marked) == new


@pytest.mark.parametrize("vector", [v for v in VECTORS if v["map"]], ids=lambda v: v["name"])
def test_maps_of_a_hopper_stay(vector):
    before = bytes.fromhex(vector["map"])
    after, facts = patch(before)
    assert after[:64] == before[:64]
    assert facts == MapFacts(False, int.from_bytes(before[64:68], "little"))
    assert after[MARK_OFFSET] != MARK_4_BIT


def test_maps_that_could_not_be_told_apart_are_refused():
    strides = (64, 64, 64, 64)
    for element, last in (("b4x16", 1), ("u8", MARK_4_BIT + 1)):
        with pytest.raises(EmulatorError, match="5 dimensions"):
            patch(tensor_map(4096, (128, 1, 1, 1, 256), strides, (64, 1, 1, 1, last), element).tobytes())


def test_other_parameters_of_128_bytes_stay():
    raw = bytes(range(128))
    assert patch(raw) == (raw, None)


def test_unpacked_elements_are_refused():
    with pytest.raises(EmulatorError, match="b4x16_p64"):
        patch(tensor_map(4096, (128, 8), (64,), (128, 8), "b4x16_p64").tobytes())


def test_maps_inside_a_structure_become_bytes():
    """Any member with a map's alignment may be a map of 4-bit elements; other members and other maps stay."""
    four_bit = tensor_map(0x7F0000001000, (256, 40, 28), (3584, 128), (256, 128, 1), "b4x16", swizzle=128).tobytes()
    other = tensor_map(0x7F0000002000, (512,), (), (256,), "s64").tobytes()
    rest = bytes(range(1, 41))
    after = patch_members(four_bit + other + bytes(64) + four_bit + rest)
    assert after[:64] == mark(patch(four_bit)[0])[:64] == after[320:384] != four_bit[:64]
    assert after[128:320] == other + bytes(64) and after[448:] == rest
