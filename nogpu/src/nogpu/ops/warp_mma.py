"""mma.sync (PTX ISA, "Warp-level Matrix Instructions: mma")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nogpu.arithmetic import fragments
from nogpu.arithmetic.lanes import FULL
from nogpu.errors import Fault
from nogpu.ops.active_lanes import whole_warp

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup


def multiply(
    g: ActiveGroup,
    mask: int,
    m: int,
    types: tuple[str, str, str],
    saturates: bool,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
) -> np.ndarray:
    """uint[count, 32]: the registers of D = A B + C.

    types: of D and C, of A, of B. a, b, c: uint[count, 32], registers.
    """
    whole_warp(g, mask, "mma.sync")
    if mask != FULL:
        raise Fault(f"mma.sync needs all 32 lanes, {mask:#010x} are live")
    result, of_a, of_b = types
    rows, columns = fragments.rows_of_a(a, of_a, m), fragments.columns_of_b(b, of_b)
    total = fragments.product(rows, columns, fragments.matrix_of_c(c, result, m), result, saturates)
    return fragments.registers_of_d(total, m)
