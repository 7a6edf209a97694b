"""Run-time part of calls that `compiler.linking` has expanded: vprintf and __assertfail, which a driver provides, and
checks of function pointers and branch indices.

The arguments of a system call are variables in local memory.
"""

from __future__ import annotations

import re
import struct
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from nogpu.arithmetic.lanes import lane_list
from nogpu.errors import Fault
from nogpu.ops.memory import LOCAL_TAG, SHARED_TAG, TAG_SHIFT, shared_target

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup, Issuer
    from nogpu.ops.active_lanes import Operand

STRING_LIMIT = 1 << 16  # bytes
_CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?"
    r"(?P<length>hh|h|ll|l|j|z|t|L)?(?P<kind>.)",
    re.S,
)
_LONG = ("l", "ll", "j", "z", "t")


def print_format(g: ActiveGroup, mask: int, places: tuple[int, int, int], issuer: Issuer) -> None:
    """vprintf(format, arguments), lane by lane, to standard output (CUDA C++ Programming Guide, "Formatted Output").

    places: offsets in local memory of the result, of the pointer to the format and of that to the arguments. A launch
    under several schedules prints under the first one only.
    """
    result, *pointers = places
    formats, arguments = (_word(g, mask, place, 8) for place in pointers)
    counts = np.zeros((1, 32), np.uint32)
    texts = []
    known: dict[int, str] = {}  # formats in global memory, by address
    for lane in lane_list(mask):
        address = int(formats[lane])
        format_ = known.get(address)
        if format_ is None:
            format_ = _string(g, lane, address)
            if not address >> TAG_SHIFT:
                known[address] = format_
        text, counts[0, lane] = _formatted(g, lane, format_, int(arguments[lane]))
        texts.append(text)
    g.warp.local.store(mask, np.full(32, result, np.uint32), counts)
    g.cta.machine.progress += 1
    if g.grid.program.printing_schedule in (None, g.grid.counters.schedule):
        sys.stdout.write("".join(texts))
        sys.stdout.flush()  # forked children end without flushing


def check_index(g: ActiveGroup, mask: int, index: Operand, count: int) -> None:
    """Raises Fault for an index outside of the table of `count` targets (PTX ISA, "brx.idx")."""
    for lane in lane_list(mask):
        value = index if isinstance(index, int) else int(index[lane])
        if value >= count:
            raise Fault(f"brx.idx: index {value} of lane {lane}, the table has {count} targets")


def unknown_function(g: ActiveGroup, mask: int, pointer: Operand) -> None:
    """Raises Fault: the pointer of a call is the address of no function with such parameters and results."""
    address = pointer if isinstance(pointer, int) else int(pointer[lane_list(mask)[0]])
    raise Fault(f"call through {address:#x}, which is no function with these parameters that may be called here")


def fail_assertion(g: ActiveGroup, mask: int, places: tuple[int, ...], issuer: Issuer) -> None:
    """__assertfail(message, file, line, function, character size): raises Fault for the lowest lane.

    places: offsets of the arguments in local memory.
    """
    lane = lane_list(mask)[0]
    message, file, function = (_string(g, lane, int(_word(g, mask, places[i], 8)[lane])) for i in (0, 1, 3))
    line = int(_word(g, mask, places[2], 4)[lane])
    thread = tuple(int(axis[lane]) for axis in g.warp.tid)
    raise Fault(f"assertion `{message}` failed in {function}, {file}:{line}, thread {thread}")


SYSTEM_CALLS = {"vprintf": "print_format", "__assertfail": "fail_assertion"}
"""A device function that a module may declare without a body -> its implementation in this module."""


def _word(g: ActiveGroup, mask: int, place: int, nbytes: int) -> np.ndarray:
    return g.warp.local.load(mask, np.full(32, place, np.uint32), nbytes, 1)[0]


def _bytes(g: ActiveGroup, lane: int, address: int, nbytes: int) -> bytes:
    """Bytes at a lane's generic address."""
    tag = address >> TAG_SHIFT
    if tag == LOCAL_TAG:
        offset, local = address & 0xFFFFFFFF, g.warp.local.data
        if offset + nbytes > local.shape[1]:
            raise Fault(f"access of {nbytes} bytes at local address {offset:#x}: past {local.shape[1]:#x}")
        return local[lane, offset : offset + nbytes].tobytes()
    if tag == SHARED_TAG:
        cta, offset = shared_target(g, address)
        return cta.shared.read(offset, nbytes, None, "generic").tobytes()
    return g.grid.memory.read(address, nbytes, None, "generic").tobytes()


def _string(g: ActiveGroup, lane: int, address: int) -> str:
    if not address:
        return "(null)"
    if not address >> TAG_SHIFT and g.grid.memory.observer is None:
        allocation = g.grid.memory.at(address, 1, "load")
        start = address - allocation.start
        found, end, _ = bytes(allocation.view[start : start + STRING_LIMIT]).partition(b"\0")
        if end:
            return found.decode("utf-8", "replace")
    text = bytearray()
    while len(text) < STRING_LIMIT:
        byte = _bytes(g, lane, address + len(text), 1)
        if byte == b"\0":
            return text.decode("utf-8", "replace")
        text += byte
    raise Fault(f"the string at {address:#x} has no end within {STRING_LIMIT} bytes")


@lru_cache(maxsize=256)
def _parts(format_: str) -> tuple[str | re.Match, ...]:
    """A format's texts and conversions in order."""
    parts: list[str | re.Match] = []
    end = 0
    for match in _CONVERSION.finditer(format_):
        parts += [format_[end : match.start()], match]
        end = match.end()
    return (*parts, format_[end:])


def _formatted(g: ActiveGroup, lane: int, format_: str, arguments: int) -> tuple[str, int]:
    """(text, number of arguments). arguments: a generic address; they are laid out as in a C structure, after C's
    default argument promotions.
    """
    position = count = 0

    def take(code: str) -> Any:
        """Reads the next argument. code: its format for `struct`."""
        nonlocal position, count
        size = struct.calcsize(code)
        position, count = -(-position // size) * size, count + 1
        value = struct.unpack(code, _bytes(g, lane, arguments + position, size))[0]
        position += size
        return value

    def replace(match: re.Match) -> str:
        kind, flags = match["kind"], match["flags"]
        if kind == "%":
            return "%"
        if kind not in "diouxXeEfFgGcsp" or (kind == "o" and "#" in flags):
            raise Fault(f"printf: conversion {match.group()!r} is not modelled")
        width, precision = (take("<i") if match[part] == "*" else match[part] for part in ("width", "precision"))
        python = f"%{flags}{width}" + ("" if precision is None else f".{precision or 0}")
        if kind in "eEfFgG":
            return f"{python}{kind}" % take("<d")
        if kind == "s":
            return f"{python}s" % _string(g, lane, take("<Q"))
        if kind == "p":
            return f"{python}s" % hex(take("<Q"))
        if kind == "c":
            return f"{python}c" % chr(take("<i") & 0xFF)
        code = "q" if match["length"] in _LONG else "i"
        value = take("<" + (code if kind in "di" else code.upper()))
        narrow = {"h": 16, "hh": 8}.get(match["length"])
        if narrow:
            value &= (1 << narrow) - 1
            value -= (1 << narrow) if kind in "di" and value >> narrow - 1 else 0
        return f"{python}{kind}" % value

    return "".join(part if isinstance(part, str) else replace(part) for part in _parts(format_)), count
