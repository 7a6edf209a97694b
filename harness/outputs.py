"""Describes the result of a call, in the worker, and finds faults in the description, in the judge.

An output is a list of tensors for group GEMM and a tensor for the other problems. Each tensor has a storage of its own
or is the caller's c. The tensors' bytes reach the judge separately, in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from harness.messages import MAX_NAME, Output, Outputs, Tensor
from harness.shared_memory import dtype_name, element_bytes, span, tensors

# ---- In the worker ----


def leaves(output: Any) -> list[Any]:
    """The items of a list or tuple, or the one item."""
    return list(output) if isinstance(output, (list, tuple)) else [output]


def is_plain(item: Any) -> bool:
    """True if an item is a strided torch.Tensor, of no subclass, whose elements are in memory."""
    return type(item) is torch.Tensor and item.layout is torch.strided and item.device.type != "meta"


def save_expected(output: Any, places: tuple[Tensor, ...], memory: torch.Tensor) -> None:
    """Copy each tensor that has the shape and dtype of its place to that place."""
    for item, place in zip(leaves(output), places):
        if is_plain(item) and tuple(item.shape) == place.shape and dtype_name(item.dtype) == place.dtype:
            source = element_bytes(item.detach().contiguous())
            memory[place.offset : place.offset + len(source)].copy_(source)


def describe(data: Any, output: Any) -> Outputs:
    """The description of a call's result on the input tuple `data`."""
    items, faults = leaves(output), overlaps(data, output)
    described = tuple(
        Output(type_text(item), True, tuple(item.shape), dtype_name(item.dtype), str(item.device), fault)
        if is_plain(item)
        else Output(type_text(item), False)
        for item, fault in zip(items, faults)
    )
    if isinstance(output, torch.Tensor):
        return Outputs("", True, described)
    return Outputs(type(output).__name__[:MAX_NAME], type(output) is list, described)


def type_text(item: Any) -> str:
    """The type of an item, with the device or layout that keeps a tensor from being plain."""
    name = type(item).__name__[:MAX_NAME]
    if type(item) is not torch.Tensor or is_plain(item):
        return name
    return f"a {name} on device {item.device}" if item.device.type == "meta" else f"a {name} of layout {item.layout}"


class Extent(NamedTuple):
    """The place of a tensor: addresses of the first byte and after the last one, of its elements and of its storage."""

    device: torch.device
    elements: tuple[int, int]
    storage: tuple[int, int]

    def shares(self, other: Extent, part: str) -> bool:
        """True if the elements or the storages overlap; storages also where the tensors use different parts of them."""
        (begin, end), (first, last) = getattr(self, part), getattr(other, part)
        return self.device == other.device and max(begin, first) < min(end, last)


def extent(item: Any) -> Extent | None:
    """The place of an item of an output or an input; None if it has no elements in memory."""
    if not is_plain(item) or not item.numel():
        return None
    begin, storage = item.data_ptr(), item.untyped_storage()
    end = begin + span(tuple(item.shape), item.stride()) * item.element_size()
    return Extent(item.device, (begin, end), (storage.data_ptr(), storage.data_ptr() + storage.nbytes()))


def overlaps(data: Any, output: Any) -> list[str]:
    """The owner of the storage that each item overlaps; empty for the caller's c and for an item that overlaps none."""
    own_c = [group[2] for group in data[0]] if isinstance(data[0], list) else [data[-1]]
    read = [(tensor, extent(tensor)) for tensor in tensors(data)]
    items = [extent(item) for item in leaves(output)]
    found = []
    for index, item in enumerate(items):
        others = [(f"the output of group {i}", other) for i, other in enumerate(items) if i != index]
        c = own_c[index] if index < len(own_c) else None
        others += [("an input", place) for tensor, place in read if tensor is not c]
        place_of_c = extent(c)
        is_c = item is not None and place_of_c is not None and item.elements == place_of_c.elements
        part = "elements" if is_c else "storage"
        names = (name for name, other in others if item and other and item.shares(other, part))
        found.append(next(names, ""))
    return found


# ---- In the judge ----


def named(expected: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of each expected tensor."""
    if isinstance(expected, torch.Tensor):
        yield "c", expected
    else:
        yield from ((f"group {index}", tensor) for index, tensor in enumerate(expected))


def find_fault(expected: Any, outputs: Outputs) -> str:
    """The reason why the described outputs cannot be compared with the expected ones; empty if they can.

    expected: a tensor or a list of tensors.
    """
    wanted = list(named(expected))
    if isinstance(expected, list):
        if not outputs.is_plain or not outputs.container:
            type_name = outputs.container or "Tensor"
            return f"output is of type {type_name}, expected a list of {len(wanted)} tensors"
        if len(outputs.items) != len(wanted):
            return f"output has {len(outputs.items)} tensors, expected {len(wanted)}"
    elif outputs.container or len(outputs.items) != 1:
        return f"output is of type {outputs.container}, expected a tensor"
    faults = [(name, _item_fault(tensor, item)) for (name, tensor), item in zip(wanted, outputs.items)]
    return "\n".join(f"{name}: {fault}" for name, fault in faults if fault)


def _item_fault(want: torch.Tensor, item: Output) -> str:
    if not item.is_plain:
        return f"got {item.type}, expected a tensor"
    if item.shape != tuple(want.shape):
        return f"shape is {item.shape}, expected {tuple(want.shape)}"
    if item.dtype != dtype_name(want.dtype):
        return f"dtype is torch.{item.dtype}, expected {want.dtype}"
    if item.device != str(want.device):
        return f"device is {item.device}, expected {want.device}"
    return f"its storage overlaps that of {item.fault}" if item.fault else ""
