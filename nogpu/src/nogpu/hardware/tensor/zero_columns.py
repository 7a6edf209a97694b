"""The zero-column mask descriptor of tcgen05.mma.ws (PTX ISA, "Zero-Column Mask Descriptor").

A mask of N bits, in as many sub-masks as N has parts in the lanes: spans of columns of B that are used and spans that
are taken as zeros take turns. The ISA's table calls "skip span" the length of those that are used and "use span" that
of zeros. Its examples say the opposite, which is taken here.
"""

from __future__ import annotations

from functools import lru_cache

from nogpu.errors import Fault
from nogpu.hardware.tensor.instruction import MmaInstruction

_RESERVED = 7 << 36 | 3 << 62
SECTION = "PTX ISA, Zero-Column Mask Descriptor"


@lru_cache(maxsize=1024)
def zero_columns(op: MmaInstruction, descriptor: int) -> tuple[int, int]:
    """(mask of the columns of B that are taken as zeros, number of B's column that is the first).

    Raises Fault for reserved bits, a shift beyond the instruction's, and a start count that skips a whole span.
    """
    if descriptor & _RESERVED:
        raise _refuse(descriptor, "reserved bits (36-38, 62 or 63) are set, must be 0")
    shift, most = descriptor >> 56 & 63, min(op.max_shift, 16 if op.m == 32 else 32)
    if shift > most:
        raise _refuse(
            descriptor,
            f"column shift {shift}, must be at most {most} for M = {op.m} and the instruction descriptor's maximum "
            f"shift of {op.max_shift}",
        )
    if not descriptor >> 39 & 1:
        return 0, shift
    zeros, used = (descriptor >> 40 & 0xFF) + 1, (descriptor >> 48 & 0xFF) + 1
    mask = 0
    for part in range(op.parts):
        begins_with_zeros, start = descriptor >> 32 + part & 1, descriptor >> 8 * part & 0xFF
        first = zeros if begins_with_zeros else used
        if start >= first:
            raise _refuse(
                descriptor, f"start count {part} is {start}, beyond a first span of {first}, which is not modelled"
            )
        for column in range(op.columns):
            place = (column + start) % (zeros + used)
            if place < zeros if begins_with_zeros else place >= used:
                mask |= 1 << part * op.columns + column
    return mask, shift


def _refuse(descriptor: int, what: str) -> Fault:
    return Fault(f"tcgen05.mma.ws, zero-column mask descriptor {descriptor:#018x}: {what} ({SECTION})")
