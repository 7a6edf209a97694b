"""Outputs as the worker describes them, and tensors in the shared memory."""

import os

import pytest
import torch

from harness.outputs import describe, find_fault, overlaps
from harness.shared_memory import SharedMemory, contiguous_places, fill_all, layout_of, load, save, tensors
from harness.worker import sealed_memory


def group_data(*sizes):
    """A group GEMM's input tuple, without values."""
    abc = [tuple(torch.zeros(size, dtype=torch.float16) for _ in range(3)) for size in sizes]
    return abc, [], [], [(size, 1, 1, 1) for size in sizes]


def test_outputs_may_be_the_callers_c_or_storages_of_their_own():
    data = group_data(8, 8)
    c = [group[2] for group in data[0]]
    assert overlaps(data, c) == ["", ""]
    assert overlaps(data, [torch.zeros(8), torch.zeros(8)]) == ["", ""]
    assert overlaps(data, [c[0], c[0]]) == ["the output of group 1", "the output of group 0"]
    assert overlaps(data, c[::-1]) == ["an input", "an input"]
    assert overlaps(data, [data[0][1][0], c[1]]) == ["an input", ""]
    both = torch.zeros(12, dtype=torch.float16)
    assert overlaps(data, [both[:4], both[4:]]) == ["the output of group 1", "the output of group 0"]
    assert overlaps(data, [both[:4], torch.zeros(8)]) == ["", ""]
    assert overlaps(group_data(0, 0), [both[:0], both[:0]]) == ["", ""], "what is empty overlaps nothing"


def test_a_lone_tensor_is_asked_for():
    want = torch.zeros(4)
    data = (torch.zeros(4), torch.zeros(4))
    assert find_fault(want, describe(data, torch.ones(4))) == ""
    assert find_fault(want, describe(data, [torch.ones(4)])) == "output is of type list, expected a tensor"
    assert find_fault(want, describe(data, None)) == "output is of type NoneType, expected a tensor"
    assert find_fault(want, describe(data, torch.ones(4).as_subclass(Subclass))) == "c: got Subclass, expected a tensor"
    assert find_fault(want, describe(data, data[0])) == "c: its storage overlaps that of an input"


class Subclass(torch.Tensor):
    pass


@pytest.fixture
def memory():
    shared = SharedMemory(sealed_memory())
    yield shared
    shared.close()


def test_an_input_crosses_with_its_strides(memory):
    values = torch.arange(2 * 3 * 4, dtype=torch.int16).view(2, 3, 4).permute(1, 2, 0)
    scales = torch.arange(8, dtype=torch.uint8).view(torch.float8_e4m3fn)
    data = ([(values, values[:0])], [scales[::2]], (1, 2), torch.zeros(3))
    layout, end = layout_of(data)
    memory.require(end)
    save(data, layout, memory.bytes)
    there = SharedMemory(memory.fd)
    there.map(len(memory.bytes))
    copy = load(layout, there.bytes)
    assert type(copy) is tuple and type(copy[0]) is list and copy[2] == (1, 2)
    for want, got in zip(tensors(data), tensors(copy)):
        if isinstance(want, torch.Tensor):
            assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype)
            assert torch.equal(got.float(), want.float())
            assert not got.numel() or got.data_ptr() != want.data_ptr()
    addresses = [tensor.data_ptr() for tensor in tensors(copy) if isinstance(tensor, torch.Tensor)]
    values.neg_()
    save(data, layout, memory.bytes)
    fill_all(copy, layout, there.bytes)
    assert torch.equal(copy[0][0][0], values)
    assert addresses == [tensor.data_ptr() for tensor in tensors(copy) if isinstance(tensor, torch.Tensor)]


def test_places_in_the_shared_memory(memory):
    """Places of outputs are contiguous and apart; the memory grows and does not shrink."""
    places, end = contiguous_places([torch.zeros(4, 6).T, torch.zeros(5, dtype=torch.float16)])
    assert [place.stride for place in places] == [(4, 1), (1,)]
    assert places[0].offset == 0 and places[1].offset >= 96 and end >= places[1].offset + 10
    assert memory.require(10) >= 10
    size = memory.require(2**21)
    assert size == len(memory.bytes) == os.fstat(memory.fd).st_size >= 2**21
    assert memory.require(1) == size
    with pytest.raises(PermissionError):
        os.ftruncate(memory.fd, 0)
