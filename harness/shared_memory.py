"""Stores tensors in memory that the judge and the worker process share: the layout of an input tuple, and its bytes.

The memory is a memfd that can grow but not shrink: a worker that cut it off would end the judge by SIGBUS.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator
from typing import Any

import torch

from harness.messages import Nested, Tensor

ALIGNMENT = 4096
LEAST_BYTES = 2**20


class SharedMemory:
    """A memfd and its mapping, as bytes that torch can copy."""

    def __init__(self, fd: int):
        """fd: see worker.sealed_memory."""
        self.fd = fd
        self.bytes = torch.empty(0, dtype=torch.uint8)

    def require(self, count: int) -> int:
        """Grow the memory to at least `count` bytes, map them, and return the size of the mapping.

        The other process may have grown the memory to more than can be mapped.
        """
        if len(self.bytes) < count:
            size = max(count, LEAST_BYTES)
            if os.fstat(self.fd).st_size < size:
                os.ftruncate(self.fd, size)
            self.map(size)
        return len(self.bytes)

    def map(self, count: int) -> None:
        """Map the first `count` bytes, unless they are mapped. A GPU copies from and to them at full speed."""
        if len(self.bytes) < count:
            self._unmap()
            self.bytes = torch.frombuffer(mmap.mmap(self.fd, count), dtype=torch.uint8)
            if has_gpu():
                torch.cuda.cudart().cudaHostRegister(self.bytes.data_ptr(), count, 0)

    def _unmap(self) -> None:
        if len(self.bytes) and has_gpu():
            torch.cuda.cudart().cudaHostUnregister(self.bytes.data_ptr())
        self.bytes = torch.empty(0, dtype=torch.uint8)

    def close(self) -> None:
        self._unmap()
        os.close(self.fd)


def has_gpu() -> bool:
    """True if device "cuda" is a GPU: torch has CUDA, and the emulator has not taken its place."""
    return torch.version.cuda is not None and "emulated" not in torch.cuda.get_device_name()


# ---- Layouts ----


def tensors(data: Any) -> Iterator[Any]:
    """The leaves of nested tuples and lists."""
    if isinstance(data, (tuple, list)):
        for item in data:
            yield from tensors(item)
    else:
        yield data


def clone(data: Any) -> Any:
    """A copy of nested tuples and lists with every tensor cloned."""
    if isinstance(data, (tuple, list)):
        return type(data)(clone(item) for item in data)
    return data.clone() if isinstance(data, torch.Tensor) else data


def span(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """The number of elements from the first to the last of a strided tensor, inclusive; 0 for an empty tensor."""
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride)) if math.prod(shape) else 0


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def aligned(count: int) -> int:
    return -(-count // ALIGNMENT) * ALIGNMENT


def layout_of(data: Any, offset: int = 0) -> tuple[Any, int]:
    """(layout, end) of nested tuples and lists of tensors and integers, whose bytes lie from `offset` to `end`."""
    if isinstance(data, torch.Tensor):
        shape, stride = tuple(data.shape), data.stride()
        layout = Tensor(shape, stride, dtype_name(data.dtype), data.device.type, offset)
        return layout, aligned(offset + span(shape, stride) * data.element_size())
    if isinstance(data, int):
        return data, offset
    items = []
    for item in data:
        item, offset = layout_of(item, offset)
        items.append(item)
    return Nested("tuple" if isinstance(data, tuple) else "list", tuple(items)), offset


def contiguous_places(expected: list[torch.Tensor]) -> tuple[tuple[Tensor, ...], int]:
    """(layouts, end in bytes) of contiguous tensors with the expected ones' shapes and dtypes."""
    layout, end = layout_of([torch.empty(tensor.shape, dtype=tensor.dtype, device="meta") for tensor in expected])
    return layout.items, end


# ---- Bytes ----


def element_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes from the first to the last element of a strided tensor, as a view."""
    count = span(tuple(tensor.shape), tensor.stride())
    return tensor.as_strided((count,), (1,)).view(torch.uint8)


def save(data: Any, layout: Any, memory: torch.Tensor) -> None:
    """Copy the tensors of `data` to their places in the shared memory's bytes."""
    for tensor, place in zip(tensors(data), places(layout)):
        if isinstance(tensor, torch.Tensor) and tensor.numel():
            source = element_bytes(tensor)
            memory[place.offset : place.offset + len(source)].copy_(source)


def places(layout: Tensor | Nested | int) -> Iterator[Any]:
    """The leaves of a layout, in the order of `tensors`."""
    if isinstance(layout, Nested):
        for item in layout.items:
            yield from places(item)
    else:
        yield layout


def load(layout: Any, memory: torch.Tensor) -> Any:
    """The data of a layout, copied from shared memory to new tensors with the layout's strides."""
    if isinstance(layout, Nested):
        items = [load(item, memory) for item in layout.items]
        return tuple(items) if layout.kind == "tuple" else items
    if isinstance(layout, int):
        return layout
    dtype = getattr(torch, layout.dtype)
    tensor = torch.empty_strided(layout.shape, layout.stride, dtype=dtype, device=layout.device)
    return fill(tensor, layout, memory)


def fill(tensor: torch.Tensor, layout: Tensor, memory: torch.Tensor) -> torch.Tensor:
    """Copy the bytes at the layout's place into the tensor, which has this layout, and return it."""
    if tensor.numel():
        destination = element_bytes(tensor)
        destination.copy_(memory[layout.offset : layout.offset + len(destination)])
    return tensor


def fill_all(data: Any, layout: Nested, memory: torch.Tensor) -> None:
    """Apply `fill` to the tensors of nested tuples and lists."""
    for tensor, place in zip(tensors(data), places(layout)):
        if isinstance(tensor, torch.Tensor):
            fill(tensor, place, memory)
