"""Rows of the opcode table: control flow, warp exchange, barriers, fences (PTX ISA, "Parallel Synchronization and
Communication").
"""

from __future__ import annotations

import re

from emulator.code import Code
from emulator.instructions import SINK, Immediate, Instruction, Pair, Vector
from emulator.rows import KindOf, Row, always_lanes, always_uniform, called, ignored, row


def _ends(code: Code, instruction: Instruction, match: re.Match) -> None:
    raise AssertionError("control flow is emitted by translate.py")


def _trap(code: Code, instruction: Instruction, match: re.Match) -> None:
    code.line(f"raise Fault({match.group()!r} + ' is executed')")


def _elect_kind(instruction: Instruction, writes: int, kind_of: KindOf) -> str:
    return "bits"


def _elect(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, membermask = instruction.operands
    leader = code.temporary()
    code.line(f"{leader} = elect(g, {code.mask}, {code.single(membermask)})")
    if not isinstance(destination, Pair):
        raise code.fail("elect.sync needs two destinations, d|p")
    if destination.first != SINK:
        code.assign(destination.first, f"{leader}.bit_length() - 1", "uniform")
    if destination.second != SINK:
        code.assign(destination.second, leader, "bits")


def _is_broadcast(instruction: Instruction, kind_of: KindOf) -> bool:
    """shfl.sync.idx of one lane's value to the whole warp."""
    if not instruction.opcode.startswith("shfl.sync.idx"):
        return False
    lane, clamp = instruction.operands[2:4]
    return kind_of(lane) == "uniform" and isinstance(clamp, Immediate) and clamp.value & 0x1F1F == 0x1F


def _shuffle_kind(instruction: Instruction, writes: int, kind_of: KindOf) -> str:
    if isinstance(instruction.operands[0], Pair):
        return "lanes"
    broadcast = _is_broadcast(instruction, kind_of) or kind_of(instruction.operands[1]) == "uniform"
    return "uniform" if broadcast else "lanes"


def _shuffle(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, a, b, c, membermask = instruction.operands
    mask, members = code.mask, code.single(membermask)
    if code.kind == "uniform":
        code.line(f"members(g, {mask}, {members}, 'shfl.sync')")
        source = code.value(a)
        code.assign(
            destination, source if code.is_uniform(a) else f"broadcast({source}, {code.value(b)}, {mask})", "uniform"
        )
        return
    result = code.temporary()
    operands = f"{code.value(a)}, {code.value(b)}, {code.value(c)}, {members}"
    code.line(f"{result} = shuffle(g, {mask}, {match.group('mode')!r}, {operands})")
    targets = (destination.first, destination.second) if isinstance(destination, Pair) else (destination,)
    for i, target in enumerate(targets):
        if target != SINK:
            code.assign(target, f"{result}[{i}]", "lanes")


def _vote(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, predicate, membermask = instruction.operands
    call = f"vote(g, {code.mask}, {match.group('mode')!r}, {code.predicate_bits(predicate)}, {code.single(membermask)})"
    code.assign(destination, call, "uniform")


def _match_all(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, a, membermask = instruction.operands
    result = code.temporary()
    code.line(
        f"{result} = match_all(g, {code.mask}, {code.value(a)}, {match.group('width')}, {code.single(membermask)})"
    )
    targets = (destination.first, destination.second) if isinstance(destination, Pair) else (destination,)
    for i, target in enumerate(targets):
        if target != SINK:
            code.assign(target, f"{result}[{i}]", "uniform")


def _load_matrix(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, address = instruction.operands
    items = destination.items if isinstance(destination, Vector) else (destination,)
    if len(items) != int(match.group("count")):
        raise code.fail(f"{len(items)} registers for .x{match.group('count')}")
    transposed = match.group("trans") is not None
    call = f"load_matrix(g, {code.mask}, {code.address(address)}, {len(items)}, {transposed}, (g, {code.pc}))"
    code.assign_parts(destination, call, "lanes")


def _store_matrix(code: Code, instruction: Instruction, match: re.Match) -> None:
    address, source = instruction.operands
    items = source.items if isinstance(source, Vector) else (source,)
    if len(items) != int(match.group("count")):
        raise code.fail(f"{len(items)} registers for .x{match.group('count')}")
    values = ", ".join(code.value(item) for item in items)
    transposed = match.group("trans") is not None
    code.line(
        f"store_matrix(g, {code.mask}, {code.address(address)}, stack([{values}], 32), {transposed}, (g, {code.pc}))"
    )


_SCOPE = r"(?:\.(?:cta|cluster|gpu|sys))"
_SEM = r"(?:\.(?:sc|acq_rel|acquire|release))"
_BARRIER_SPACE = r"(?:\.(?P<space>shared::cta|shared::cluster|shared))?"
_WAIT_ORDER = r"(?:\.(?:acquire|relaxed))?(?:\.(?:cta|cluster))?"
_ARRIVE_ORDER = r"(?:\.(?:release|relaxed))?(?:\.(?:cta|cluster))?"

CONTROL = [
    row(r"bra(?:\.uni)?", _ends, writes=0, flow="branch"),
    row(r"ret(?:\.uni)?|exit", _ends, writes=0, flow="exit"),
    row(r"trap|brkpt", _trap, writes=0),
    ignored(r"nanosleep\.u32"),
    ignored(r"pmevent(?:\.mask)?"),
    ignored(r"setmaxnreg\.(?:inc|dec)\.sync\.aligned\.u32"),
]

EXCHANGE = [
    row(r"elect\.sync", _elect, kind=_elect_kind),
    row(r"shfl\.sync\.(?P<mode>idx|up|down|bfly)\.b32", _shuffle, kind=_shuffle_kind),
    row(r"vote\.sync\.(?P<mode>ballot)\.b32", _vote, kind=always_uniform),
    row(r"vote\.sync\.(?P<mode>all|any|uni)\.pred", _vote, kind=always_uniform),
    called(r"match\.any\.sync\.b(?P<width>32|64)", "match_any(g, {m}, {1:v}, {width}, {2:i})", kind=always_lanes),
    row(r"match\.all\.sync\.b(?P<width>32|64)", _match_all, kind=always_uniform),
    called(
        r"redux\.sync\.(?P<op>add|min|max|and|or|xor)\.(?P<type>u32|s32|b32)",
        "reduce(g, {m}, {op}, {1:v}, {type}, {2:i})",
        kind=always_uniform,
    ),
    called(
        r"redux\.sync\.(?P<op>(?:min|max)(?:\.abs)?(?:\.NaN)?)\.(?P<type>f32)",
        "reduce(g, {m}, {op}, {1:v}, {type}, {2:i})",
        kind=always_uniform,
    ),
    called(r"activemask\.b32", "{m}", kind=always_uniform),
    row(r"ldmatrix\.sync\.aligned\.m8n8\.x(?P<count>1|2|4)(?P<trans>\.trans)?(?:\.shared(?:::cta)?)\.b16", _load_matrix, kind=always_lanes),
    row(r"stmatrix\.sync\.aligned\.m8n8\.x(?P<count>1|2|4)(?P<trans>\.trans)?(?:\.shared(?:::cta)?)\.b16", _store_matrix, writes=0),
]  # fmt: skip

BARRIERS = [
    called(r"(?P<bar>bar|barrier)(?:\.cta)?\.sync(?P<aligned>\.aligned)?", "wait_barrier(g, {m}, {bar} == 'bar' or {aligned:b}, {0:i}, {1:i}, {who})", writes=0, flow="wait"),
    called(r"(?P<bar>bar|barrier)(?:\.cta)?\.arrive(?P<aligned>\.aligned)?", "barrier_arrive(g, {m}, {bar} == 'bar' or {aligned:b}, {0:i}, {1:i}, {who})", writes=0),
    called(r"bar\.warp\.sync", "wait_warp_barrier(g, {m}, {0:i}, {who})", writes=0, flow="wait"),
    called(
        r"barrier\.cluster\.arrive(?:\.(?:release|relaxed))?(?P<aligned>\.aligned)?",
        "cluster_arrive(g, {m}, {aligned:b}, {who})",
        writes=0,
    ),
    called(
        r"barrier\.cluster\.wait(?:\.acquire)?(?P<aligned>\.aligned)?",
        "wait_cluster(g, {m}, {aligned:b}, {who})",
        writes=0,
        flow="wait",
    ),
    called(r"griddepcontrol\.wait", "wait_for_grids(g, {who})", writes=0, flow="wait"),
    called(r"griddepcontrol\.launch_dependents", "launch_dependents(g, {who})", writes=0, flow="wait"),
    ignored(rf"fence{_SEM}?{_SCOPE}|membar\.(?:cta|gl|sys)"),
    ignored(r"fence\.(?:acquire|release)\.sync_restrict::shared::(?:cta|cluster)\.cluster"),
    ignored(r"fence\.mbarrier_init\.release\.cluster"),
    ignored(r"fence\.proxy\.(?:alias|async(?:\.(?:global|shared::cta|shared::cluster))?)"),
    ignored(r"fence\.proxy\.async::generic\.(?:acquire|release)\.sync_restrict::shared::(?:cta|cluster)\.cluster"),
    ignored(rf"fence\.proxy\.tensormap::generic\.(?:acquire|release){_SCOPE}"),
]  # fmt: skip

MBARRIERS = [
    called(rf"mbarrier\.init{_BARRIER_SPACE}\.b64", "init_barrier(g, {m}, {space}, {0:x}, {1:v}, {who})", writes=0),
    called(rf"mbarrier\.inval{_BARRIER_SPACE}\.b64", "invalidate_barrier(g, {m}, {space}, {0:a}, {who})", writes=0),
    called(
        rf"mbarrier\.arrive(?P<drop>_drop)?{_ARRIVE_ORDER}{_BARRIER_SPACE}\.b64",
        "arrive(g, {m}, {space}, {1:x}, {2:v}, None, {drop:b}, {who})",
        kind=always_uniform,
    ),
    called(
        rf"mbarrier\.arrive(?P<drop>_drop)?\.expect_tx{_ARRIVE_ORDER}{_BARRIER_SPACE}\.b64",
        "arrive(g, {m}, {space}, {1:x}, None, {2:v}, {drop:b}, {who})",
        kind=always_uniform,
    ),
    called(rf"mbarrier\.expect_tx(?:\.relaxed)?{_SCOPE}?{_BARRIER_SPACE}\.b64", "expect_bytes(g, {m}, {space}, {0:x}, {1:v}, {who})", writes=0),
    called(rf"mbarrier\.complete_tx(?:\.relaxed)?{_SCOPE}?{_BARRIER_SPACE}\.b64", "complete_bytes(g, {m}, {space}, {0:x}, {1:v}, {who})", writes=0),
    called(
        rf"mbarrier\.(?P<mode>test|try)_wait\.parity{_WAIT_ORDER}{_BARRIER_SPACE}\.b64",
        "test_parity(g, {m}, {space}, {1:a}, {2:i}, {who})",
        kind=always_uniform,
    ),
    called(
        rf"mbarrier\.(?P<mode>test|try)_wait{_WAIT_ORDER}{_BARRIER_SPACE}\.b64",
        "test_state(g, {m}, {space}, {1:a}, {2:l}, {who})",
        kind=always_uniform,
    ),
]  # fmt: skip

ROWS: list[Row] = [*CONTROL, *EXCHANGE, *BARRIERS, *MBARRIERS]
