"""Memory that graphs allocate, and the entry points for what it amounts to.

It lives as long as the process, since every launch of a graph has it anew, at the same address. What is counted is how
much a driver would need: what is released serves later allocations, until the program trims it.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from nogpu.cuda.backends import current
from nogpu.cuda.programs import status
from nogpu.cuda.programs.entries import ADDRESS, DEVICE, INT, entry, put

_USED, _MOST_USED, _RESERVED, _MOST_RESERVED = range(4)  # cudaGraphMemAttributeType

_sizes: dict[int, int] = {}  # allocation -> bytes
_live: set[int] = set()  # allocations that a launch has made and nothing has released


@dataclass
class _Count:
    """Bytes: those of live allocations, those that released ones have left, and the most of both together."""

    live: int = 0
    left: int = 0
    most: int = 0


_count = _Count()


def allocate(nbytes: int) -> int:
    """The address of memory of a node of a graph, which counts from the launch on."""
    address = current().allocate(nbytes)
    _sizes[address] = nbytes
    return address


def is_graphs(address: int) -> bool:
    """True for an address that `allocate` has returned."""
    return address in _sizes


def made(address: int) -> None:
    """Count an allocation: a launch has come to its node."""
    if address in _live:
        return
    _live.add(address)
    _count.live += _sizes[address]
    _count.left = max(0, _count.left - _sizes[address])
    _count.most = max(_count.most, _count.live + _count.left)


def released(address: int) -> None:
    """Count the release of an allocation, by a node or the program."""
    if address in _live:
        _live.remove(address)
        _count.live -= _sizes[address]
        _count.left += _sizes[address]


@entry("cudaDeviceGetGraphMemAttribute cuDeviceGetGraphMemAttribute", DEVICE, INT, ADDRESS)
def attribute(device: int, number: int, result: int) -> None:
    now = _count.live + _count.left
    values = {_USED: now, _RESERVED: now, _MOST_USED: _count.most, _MOST_RESERVED: _count.most}
    if number not in values:
        raise status.Refused(status.INVALID_VALUE, f"{number} is no attribute of graphs' memory")
    put(result, ctypes.c_uint64, values[number])


@entry("cudaDeviceSetGraphMemAttribute cuDeviceSetGraphMemAttribute", DEVICE, INT, ADDRESS)
def set_attribute(device: int, number: int, value: int) -> None:
    """Counts the most bytes anew: 0 is the one value that is allowed."""
    if number not in (_MOST_USED, _MOST_RESERVED) or not value or ctypes.c_uint64.from_address(value).value:
        raise status.Refused(status.INVALID_VALUE, "of graphs' memory only the most bytes can be set, to 0")
    _count.most = _count.live + _count.left


@entry("cudaDeviceGraphMemTrim cuDeviceGraphMemTrim", DEVICE)
def trim(device: int) -> None:
    _count.left = 0
