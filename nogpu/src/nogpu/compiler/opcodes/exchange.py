"""Rows of the opcode table: exchange among the lanes of a warp (PTX ISA, "shfl.sync", "vote.sync", "match.sync",
"redux.sync", "elect.sync").
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from nogpu import headers
from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.rows import KindOf, Row, always_bits, always_lanes, always_uniform, called, row
from nogpu.compiler.rowcode.assembler import Assembler, Unsupported
from nogpu.ptx.ir import SINK, Immediate, Instruction, Pair, Register
from nogpu.ptx.literals import literal_bits

_MODES = ("up", "down", "bfly", "idx")
_SHUFFLE = headers.packer("native/exchange.c", "Shuffle")


def _elect(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, membermask = instruction.operands
    leader = code.temporary()
    code.line(f"{leader} = exchange.elect(g, {code.mask}, {code.single(membermask)})")
    if not isinstance(destination, Pair):
        raise code.fail("elect.sync needs two destinations, d|p")
    if destination.first != SINK:
        code.assign(destination.first, f"{leader}.bit_length() - 1", "uniform")
    if destination.second != SINK:
        code.assign(destination.second, leader, "bits")


def _one_membermask(instruction: Instruction, writes: int, kind_of: KindOf) -> str:
    """The kind of a result that the lanes of a membermask share: uniform if the membermask is, else a row."""
    return "uniform" if kind_of(instruction.operands[-1]) == "uniform" else "lanes"


def _is_broadcast(instruction: Instruction, kind_of: KindOf) -> bool:
    """True for a shfl.sync.idx of one lane's value to the whole warp."""
    if not instruction.opcode.startswith("shfl.sync.idx"):
        return False
    lane, clamp, membermask = instruction.operands[2:5]
    if kind_of(membermask) != "uniform":
        return False
    return kind_of(lane) == "uniform" and isinstance(clamp, Immediate) and clamp.value & 0x1F1F == 0x1F


def _shuffle_kind(instruction: Instruction, writes: int, kind_of: KindOf) -> str:
    if isinstance(instruction.operands[0], Pair):
        return "lanes"
    broadcast = _is_broadcast(instruction, kind_of) or kind_of(instruction.operands[1]) == "uniform"
    return "uniform" if broadcast else "lanes"


def _shuffle(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, a, b, c, membermask = instruction.operands
    mask, members = code.mask, code.value(membermask)
    if code.kind == "uniform":
        code.line(f"active_lanes.members(g, {mask}, {members}, 'shfl.sync')")
        source = code.value(a)
        code.assign(
            destination,
            source if code.is_uniform(a) else f"exchange.broadcast({source}, {code.value(b)}, {mask})",
            "uniform",
        )
        return
    operands = f"{code.value(a)}, {code.value(b)}, {code.value(c)}, {members}"
    code.assign_parts(destination, f"exchange.shuffle(g, {mask}, {match.group('mode')!r}, {operands})", "lanes")


def _shuffle_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, *operands = instruction.operands
    target, holds = (destination.first, destination.second) if isinstance(destination, Pair) else (destination, SINK)
    if code.kind == "uniform":
        source, lane = code.source(operands[0], "b32"), code.source(operands[1], "b32")
        _by_members(code, operands[3], lambda x: code.shared_result("broadcast", destination, source, lane.offset, x=x))
        return
    results = []
    for result in (target, holds):
        if result != SINK and not code.is_row(result):
            raise Unsupported
        results.append(code.slots[result.name].offset if isinstance(result, Register) else -1)
    sources = [code.source(operand, "b32") for operand in operands]
    rows = sum(source.row << i for i, source in enumerate(sources))
    places = *results, *(source.offset for source in sources)
    code.emit_described("shuffle", _SHUFFLE.pack(_MODES.index(match.group("mode")), *places, rows))


def _by_members(code: Assembler, membermask: object, emit: Callable[[int], None], of_lanes: bool = True) -> None:
    """Emits an operation whose x is the membermask, by a function of x.

    of_lanes: whether lanes may have membermasks of their own. Raises Unsupported where they may not and do.
    """
    if isinstance(membermask, Immediate):
        emit(literal_bits(membermask, "b32"))
        return
    members = code.source(membermask, "b32")
    if members.row and not of_lanes:
        raise Unsupported
    code.emit("by_membermask", a=members.offset, b=int(members.row))
    emit(0)


def _elect_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, membermask = instruction.operands
    assert isinstance(destination, Pair)
    leader, holds = destination.first, destination.second
    keeps, slot = code.guarded, code.temporary(1, row=True).offset
    if isinstance(holds, Register):
        keeps, slot = keeps or holds.name in code.flow.merged, code.slots[holds.name].offset
    _by_members(code, membermask, lambda x: code.shared_result("elect", leader, b=int(keeps), c=slot, x=x), False)


def _vote_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, predicate, membermask = instruction.operands
    held, kernel = code.source(predicate, "pred"), f"vote_{match.group('mode')}"
    _by_members(code, membermask, lambda x: code.shared_result(kernel, destination, held, x=x))


def _match_any_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, value, membermask = instruction.operands
    kernel, source = f"match_any_{match.group('width')}", code.source(value, f"b{match.group('width')}")
    _by_members(code, membermask, lambda x: code.operation(kernel, destination, [source], x), False)


def _match_all_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """Emits the predicate's operation and the mask's, which may replace the value."""
    destination, value, membermask = instruction.operands
    width = match.group("width")
    lanes: object = destination
    same: object = SINK
    if isinstance(destination, Pair):
        lanes, same = destination.first, destination.second
    source = code.source(value, f"b{width}")
    for name, result in (("same", same), ("all", lanes)):
        kernel = f"match_{name}_{width}"
        _by_members(code, membermask, partial(code.shared_result, kernel, result, source, 0, 0), False)


def _reduce_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, value, membermask = instruction.operands
    operation, type_name = match.group("op").replace(".", "_"), match.group("type")
    as_named = type_name == "f32" or (type_name == "s32" and operation in ("min", "max"))
    source, kernel = code.source(value, type_name), f"redux_{operation}_{type_name if as_named else 'u32'}"
    _by_members(code, membermask, lambda x: code.shared_result(kernel, destination, source, x=x))


def _active_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    code.shared_result("activemask", instruction.operands[0])


ROWS: list[Row] = [
    row(r"elect\.sync", _elect, kind=always_bits, kernels=_elect_kernels, takes="b32|p b32"),
    row(
        r"shfl\.sync\.(?P<mode>idx|up|down|bfly)\.b32",
        _shuffle,
        kind=_shuffle_kind,
        kernels=_shuffle_kernels,
        takes="b32|p b32 b32 b32 b32",
    ),
    *(
        called(
            rf"vote\.sync\.(?P<mode>{modes})\.{of}",
            "exchange.vote(g, {m}, {mode}, {1:p}, {2:v})",
            kind=_one_membermask,
            kernels=_vote_kernels,
            takes=f"{result} p b32",
        )
        for modes, of, result in (("ballot", "b32", "b32"), ("all|any|uni", "pred", "p"))
    ),
    called(
        r"match\.any\.sync\.b(?P<width>32|64)",
        "exchange.match_any(g, {m}, {1:v}, {width}, {2:i})",
        kind=always_lanes,
        kernels=_match_any_kernels,
        takes="b32 b{width} b32",
    ),
    called(
        r"match\.all\.sync\.b(?P<width>32|64)",
        "exchange.match_all(g, {m}, {1:v}, {width}, {2:i})",
        parts=True,
        kind=always_uniform,
        kernels=_match_all_kernels,
        takes="b32|p b{width} b32",
    ),
    called(
        r"redux\.sync\.(?P<op>add|min|max|and|or|xor)\.(?P<type>u32|s32|b32)",
        "exchange.reduce(g, {m}, {op}, {1:v}, {type}, {2:v})",
        kind=_one_membermask,
        kernels=_reduce_kernels,
        takes="{type} {type} b32",
    ),
    called(
        r"redux\.sync\.(?P<op>(?:min|max)(?:\.abs)?(?:\.NaN)?)\.(?P<type>f32)",
        "exchange.reduce(g, {m}, {op}, {1:v}, {type}, {2:v})",
        kind=_one_membermask,
        kernels=_reduce_kernels,
        takes="{type} {type} b32",
    ),
    row(r"activemask\.b32", kind=always_uniform, kernels=_active_kernels, takes="b32"),
]
