"""Operand words of instructions that Python executes: copies, MMAs, commits, named barriers, launch control.

`replacements` replaces operations that Python rows call by functions of the same names. Each function calls the
operation, which decides what is legal, then notes its operands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from nogpu.clock.trace import KINDS, NOTHING
from nogpu.hardware.memory import RANK_SHIFT
from nogpu.hardware.tensor.instruction import decode_instruction
from nogpu.hardware.tma import boxes, rules
from nogpu.hardware.tma.modes import Mode
from nogpu.hardware.tma.tensor_map import TensorMap
from nogpu.ops import barriers, bulk_stores, copies, launch_control, tcgen05
from nogpu.ops.active_lanes import pick
from nogpu.ops.copy_operands import LOAD, REDUCTION, STORE, MapReader, issues, signed_coordinates

if TYPE_CHECKING:
    from nogpu.hardware.tensor.core import MmaForm
    from nogpu.hardware.warp import ActiveGroup

Words = list[int]
Note = Callable[["ActiveGroup", list[Words]], None]
"""Function that gets the operand words of each record that an instruction leaves."""

_TO_SHARED, _TO_GLOBAL, _BETWEEN, _PREFETCH = 1, 2, 3, 4
_DIMENSIONS = 4  # dimensions of a box, without the first
_OFFSET = (1 << RANK_SHIFT) - 1
_WORD = 0xFFFFFFFF


def replacements(note: Note) -> dict[str, Any]:
    """Functions that Python rows call instead of the operations, by module name."""
    found: dict[ModuleType, dict[str, Any]] = {}
    for module, name, describe in _DESCRIPTIONS:
        found.setdefault(module, {})[name] = _noted(getattr(module, name), describe, note)
    return {module.__name__.rpartition(".")[2]: SimpleNamespace(**vars(module) | new) for module, new in found.items()}


def _noted(operation: Callable, describe: Callable[..., list[Words]], note: Note) -> Callable:
    names = tuple(signature(operation).parameters)

    @wraps(operation)
    def noted(g: ActiveGroup, *operands: Any) -> Any:
        result = operation(g, *operands)
        # After a wait of the group the instruction runs again and replaces the note.
        note(g, describe(SimpleNamespace(**dict(zip(names, (g, *operands), strict=True)))))
        return result

    return noted


# Boxes


def _long(value: int) -> Words:
    return [value & _WORD, value >> 32 & _WORD]


def _flat(address: int, nbytes: int) -> Words:
    """The words of a box of contiguous bytes."""
    return [nbytes, *_long(address), nbytes, *([1, 0, 0] * _DIMENSIONS), nbytes]


def _tile(tensor_map: TensorMap, coordinates: tuple[int, ...], mode: Mode) -> Words:
    """The words of a tensor copy's boxes, with their number in front."""
    parts = list(boxes.inside(tensor_map, coordinates, mode))
    nbytes, counted = rules.tile_bytes(tensor_map, mode), rules.counted_bytes(tensor_map, mode)
    words = [len(parts)]
    for address, (row, *counts), (_, *strides) in parts:
        words += [nbytes // len(parts), *_long(address), row]
        for count, stride in zip(counts, strides, strict=True):
            words += [count, *_long(stride)]
        words += [1, 0, 0] * (_DIMENSIONS - len(counts)) + [counted // len(parts)]
    return words


# Copies. A description's parameters have the names of the operation's operands. It returns the operand words of
# each record that the instruction leaves.


def _load_tile(o: Any) -> list[Words]:
    found = []
    for dst, address, mbar, targets, *place in issues(o.mask, LOAD, o.operands):
        tile = _tile(MapReader(o.g, address, o.issuer).issued, signed_coordinates(place), o.mode)
        found.append([*_to_shared(dst, mbar, targets), int(o.pair), *tile])
    return found


def _to_shared(destination: int, barrier: int, multicast: int | None) -> Words:
    destination &= _WORD
    ranks = 1 << (destination >> RANK_SHIFT) if multicast is None else multicast
    return [_TO_SHARED, destination & _OFFSET, barrier & _WORD, ranks]


def _load_bulk(o: Any) -> list[Words]:
    return [
        [*_to_shared(dst, mbar, targets), 0, 1, *_flat(address, size)]
        for dst, address, size, mbar, targets, *_ in issues(o.mask, LOAD, o.operands)
    ]


def _copy_shared(o: Any) -> list[Words]:
    kind = LOAD if o.reduction is None else REDUCTION
    return [[_BETWEEN, size, dst & _WORD, mbar & _WORD] for dst, _, size, mbar in issues(o.mask, kind, o.operands)]


def _store_tile(o: Any) -> list[Words]:
    kind = STORE if o.operation is None else REDUCTION
    found = []
    for address, src, *place in issues(o.mask, kind, o.operands):
        tile = _tile(MapReader(o.g, address, o.issuer).issued, signed_coordinates(place), o.mode)
        found.append([_TO_GLOBAL, src & _OFFSET, int(o.operation is not None), *tile])
    return found


def _store_bulk(o: Any) -> list[Words]:
    kind = STORE if o.reduction is None else REDUCTION
    return [
        [_TO_GLOBAL, src & _OFFSET, int(o.reduction is not None), 1, *_flat(address, size)]
        for address, src, size, _ in issues(o.mask, kind, o.operands)
    ]


def _prefetch_tile(o: Any) -> list[Words]:
    return [
        [_PREFETCH, *_tile(MapReader(o.g, address, o.issuer).issued, signed_coordinates(place), o.mode)]
        for address, *place in issues(o.mask, STORE, o.operands)
    ]


def _prefetch_bulk(o: Any) -> list[Words]:
    return [[_PREFETCH, 1, *_flat(address, size)] for address, size in issues(o.mask, STORE, (o.source, o.nbytes))]


# Tensor core, barriers, launch control


def _mma(o: Any) -> list[Words]:
    form: MmaForm = o.form
    idesc = pick(o.operands.idesc, o.mask)
    op = decode_instruction(
        form.kind, form.cta_group, form.scale_block, idesc, sparse=form.sparse, stationary=form.stationary
    )
    # An MMA with .ws fills as many lanes and columns as one of 128 rows.
    shape = op.m * op.parts if form.stationary else op.m, op.columns if form.stationary else op.n, op.k
    return [[KINDS.index(form.kind), *shape, form.cta_group, int(form.a_in_tmem), int(o.operands.accumulate)]]


def _commit(o: Any) -> list[Words]:
    place = pick(o.barrier, o.mask) & _WORD
    return [[place, 1 << (place >> RANK_SHIFT) if o.multicast is None else o.multicast, o.cta_group]]


def _arrive(o: Any) -> list[Words]:
    return [[o.number, o.threads, 1]]


def _sync(o: Any) -> list[Words]:
    """The words of a barrier that waits. Its threads are those that completed it, without those that had exited."""
    return [[o.number, o.g.cta.named_barrier(o.number).completed, 0]]


def _try_cancel(o: Any) -> list[Words]:
    return [[pick(o.barrier, o.mask) & _WORD, NOTHING]]


_DESCRIPTIONS: Iterable[tuple[ModuleType, str, Callable[..., list[Words]]]] = (
    (copies, "load_tile", _load_tile),
    (copies, "load_bulk", _load_bulk),
    (copies, "copy_shared", _copy_shared),
    (copies, "prefetch_tile", _prefetch_tile),
    (copies, "prefetch_bulk", _prefetch_bulk),
    (bulk_stores, "store_tile", _store_tile),
    (bulk_stores, "store_bulk", _store_bulk),
    (tcgen05, "mma", _mma),
    (tcgen05, "commit", _commit),
    (barriers, "arrive", _arrive),
    (barriers, "wait", _sync),
    (barriers, "wait_reduction", _sync),
    (launch_control, "try_cancel", _try_cancel),
)

PATTERN = re.compile(
    "|".join(
        (
            r"cp\.(?:reduce\.)?async\.bulk\.(?!commit_group|wait_group)",
            r"tcgen05\.(?:mma|commit)",
            r"bar(?:rier)?(?:\.cta)?\.(?:sync|red|arrive)",
            r"clusterlaunchcontrol\.try_cancel",
        )
    )
)
"""Opcodes whose words this module notes."""
