"""Rows of the opcode table: barriers, fences, mbarriers (PTX ISA, "Parallel Synchronization and Communication")."""

from __future__ import annotations

import re

from nogpu import headers
from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.rows import Row, always_uniform, called, ignored, row
from nogpu.compiler.rowcode.assembler import Assembler, Unsupported
from nogpu.hardware.native import NAMED_BARRIERS
from nogpu.ptx.ir import Address, Immediate, Instruction, Register
from nogpu.ptx.literals import literal_bits

(_UNCOUNTED,) = headers.constants("native/engine.h", "UNCOUNTED")
_SCOPE = r"(?:\.(?:cta|cluster|gpu|sys))"
_SEM = r"(?:\.(?:sc|acq_rel|acquire|release))"
_BARRIER_SPACE = r"(?:\.(?P<space>shared::cta|shared::cluster|shared))?"
_WAIT_ORDER = r"(?:\.(?:acquire|relaxed))?(?:\.(?:cta|cluster))?"
_ARRIVE_ORDER = r"(?:\.(?:release|relaxed))?(?:\.(?:cta|cluster))?"


def _reduce(code: Code, instruction: Instruction, match: re.Match) -> None:
    """Emits bar.red d, barrier{, threads}, {!}predicate."""
    destination, number, *threads, predicate = instruction.operands
    for operand in (number, *threads):
        code.fits(operand, "u32")
    aligned = match.group("bar") == "bar" or match.group("aligned") is not None
    count = code.single(threads[0]) if threads else "None"
    number = code.single(number)
    operands = f"{aligned}, {number}, {count}, {code.predicate_bits(predicate)}"
    code.line(f"if not barriers.wait_reduction(g, {code.mask}, {operands}, (g, {code.pc})): return {~code.pc}")
    code.assign(destination, f"barriers.reduction(g, {number}, {match.group('op')!r})", "uniform")


def _sync_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """Emits bar.sync at a barrier that is named by a legal constant, of all threads or of a constant number."""
    numbers = [literal_bits(x, "u32") for x in instruction.operands if isinstance(x, Immediate)]
    number, threads = (*numbers, 0, 0)[:2]
    if len(numbers) < len(instruction.operands) or number >= NAMED_BARRIERS or threads >> 31:
        raise Unsupported
    code.emit("bar_sync", a=number, b=threads if numbers[1:] else _UNCOUNTED)


def _warp_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    members = code.source(instruction.operands[0], "b32")
    code.emit("bar_warp", a=members.offset, b=int(members.row))


def _fence_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    code.emit("fence", b=int("cta" not in match.groups()))


def _fence_async_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    code.emit("fence_async", b=int(match.group("space") != "global"))


BARRIERS = [
    called(
        r"(?P<bar>bar|barrier)(?:\.cta)?\.sync(?P<aligned>\.aligned)?",
        "barriers.wait(g, {m}, {bar} == 'bar' or {aligned:b}, {0:i}, {1:i}, {issuer})",
        writes=0,
        flow="wait",
        takes="u32 u32?",
        kernels=_sync_kernels,
    ),
    called(
        r"(?P<bar>bar|barrier)(?:\.cta)?\.arrive(?P<aligned>\.aligned)?",
        "barriers.arrive(g, {m}, {bar} == 'bar' or {aligned:b}, {0:i}, {1:i}, {issuer})",
        writes=0,
        takes="u32 u32",
    ),
    row(
        r"(?P<bar>bar|barrier)(?:\.cta)?\.red\.(?:(?P<op>popc)(?P<aligned>\.aligned)?\.u32)",
        _reduce,
        kind=always_uniform,
        flow="wait",
        takes="u32 u32 . .?",
    ),
    row(
        r"(?P<bar>bar|barrier)(?:\.cta)?\.red\.(?P<op>and|or)(?P<aligned>\.aligned)?\.pred",
        _reduce,
        kind=always_uniform,
        flow="wait",
        takes="p u32 . .?",
    ),
    called(
        r"bar\.warp\.sync",
        "barriers.wait_warp(g, {m}, {0:v}, {issuer})",
        writes=0,
        flow="wait",
        takes="b32",
        kernels=_warp_kernels,
    ),
    called(
        r"barrier\.cluster\.arrive(?:\.release|(?P<relaxed>\.relaxed))?(?P<aligned>\.aligned)?",
        "barriers.arrive_cluster(g, {m}, {aligned:b}, {relaxed:b}, {issuer})",
        writes=0,
    ),
    called(
        r"barrier\.cluster\.wait(?:\.acquire)?(?P<aligned>\.aligned)?",
        "barriers.wait_cluster(g, {m}, {aligned:b}, {issuer})",
        writes=0,
        flow="wait",
    ),
    called(r"griddepcontrol\.wait", "barriers.wait_for_grids(g, {issuer})", writes=0, flow="wait"),
    called(r"griddepcontrol\.launch_dependents", "barriers.launch_dependents(g, {issuer})", writes=0, flow="wait"),
    called(
        rf"fence{_SEM}?\.(?P<scope>cta|cluster|gpu|sys)|membar\.(?P<level>cta|gl|sys)",
        "fences.thread(g, {scope} or {level})",
        writes=0,
        kernels=_fence_kernels,
    ),
    ignored(r"fence\.(?:acquire|release)\.sync_restrict::shared::(?:cta|cluster)\.cluster"),
    called(r"fence\.mbarrier_init\.release\.cluster", "fences.mbarrier_init(g)", writes=0),
    ignored(r"fence\.proxy\.alias"),
    called(
        r"fence\.proxy\.async(?:\.(?P<space>shared::cta|shared::cluster|global))?",
        "fences.proxy_async(g, {space})",
        writes=0,
        kernels=_fence_async_kernels,
    ),
    ignored(r"fence\.proxy\.async::generic\.(?:acquire|release)\.sync_restrict::shared::(?:cta|cluster)\.cluster"),
    called(
        rf"fence\.proxy\.tensormap::generic\.acquire{_SCOPE}",
        "fences.acquire_map(g, {m}, {0:x})",
        writes=0,
        takes=". #",
    ),
    called(rf"fence\.proxy\.tensormap::generic\.release{_SCOPE}", "fences.release_maps(g, {m})", writes=0),
]

_OPERATION = headers.packer("native/barriers.c", "Operation")


def _operation(
    code: Assembler, address: object, count: object = None, nbytes: object = None, parity: object = None
) -> bytes:
    """The description of an mbarrier operation. Raises Unsupported unless `address` is one without coordinates."""
    if not isinstance(address, Address) or address.coordinates is not None:
        raise Unsupported
    slot, displacement, by_lane = code.address(address)
    wide = not isinstance(address.base, Register) or address.base.width == 64
    values, rows = [], int(by_lane)
    for i, operand in enumerate((count, nbytes, parity), start=1):
        source = None if operand is None else code.source(operand, "u32")
        rows |= (source is not None and source.row) << i
        values.append(-1 if source is None else source.offset)
    return _OPERATION.pack(slot, wide, displacement, *values, rows)


def _arrive_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    state, address, *amount = instruction.operands
    if match.group("drop") or match.group("space") in (None, "shared::cluster"):
        raise Unsupported
    amounts = dict.fromkeys(["nbytes" if ".expect_tx" in match.string else "count"], *amount)
    code.shared_result("mbarrier_arrive", state, x=code.described(_operation(code, address, **amounts)))


def _wait_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    holds, address, parity = instruction.operands[:3]
    if match.group("space") is None:
        raise Unsupported
    description = _operation(code, address, parity=parity)
    code.shared_result("mbarrier_wait", holds, b=int(code.waits), x=code.described(description))


MBARRIERS = [
    called(rf"mbarrier\.init{_BARRIER_SPACE}\.b64", "mbarrier.init(g, {m}, {0:x}, {1:v}, {issuer})", takes="[] u32"),
    called(rf"mbarrier\.inval{_BARRIER_SPACE}\.b64", "mbarrier.invalidate(g, {m}, {0:a}, {issuer})", takes="[]"),
    called(
        rf"mbarrier\.arrive(?P<drop>_drop)?{_ARRIVE_ORDER}{_BARRIER_SPACE}\.b64",
        "mbarrier.arrive(g, {m}, {space}, {1:x}, ({2:v}, None), {drop:b}, {issuer})",
        kind=always_uniform,
        kernels=_arrive_kernels,
        takes="_b64 [] u32?",
    ),
    called(
        rf"mbarrier\.arrive(?P<drop>_drop)?\.expect_tx{_ARRIVE_ORDER}{_BARRIER_SPACE}\.b64",
        "mbarrier.arrive(g, {m}, {space}, {1:x}, (None, {2:v}), {drop:b}, {issuer})",
        kind=always_uniform,
        kernels=_arrive_kernels,
        takes="_b64 [] u32",
    ),
    called(
        rf"mbarrier\.arrive(?P<drop>_drop)?\.noComplete{_ARRIVE_ORDER}{_BARRIER_SPACE}\.b64",
        "mbarrier.arrive_without_completing(g, {m}, {space}, {1:x}, {2:v}, {drop:b}, {issuer})",
        kind=always_uniform,
        takes="_b64 [] u32",
    ),
    called(r"mbarrier\.pending_count\.b64", "mbarrier.pending_count({1:l})", kind=always_uniform, takes="u32 b64"),
    called(
        rf"mbarrier\.expect_tx(?:\.relaxed)?{_SCOPE}?{_BARRIER_SPACE}\.b64",
        "mbarrier.expect_tx(g, {m}, {space}, {0:x}, {1:v}, {issuer})",
        takes="[] u32",
    ),
    called(
        rf"mbarrier\.complete_tx(?:\.relaxed)?{_SCOPE}?{_BARRIER_SPACE}\.b64",
        "mbarrier.complete_tx(g, {m}, {space}, {0:x}, {1:v}, {issuer})",
        takes="[] u32",
    ),
    called(
        rf"mbarrier\.(?P<mode>test|try)_wait\.parity{_WAIT_ORDER}{_BARRIER_SPACE}\.b64",
        "mbarrier.test_parity(g, {m}, {1:a}, {2:i}, {issuer})",
        kind=always_uniform,
        kernels=_wait_kernels,
        takes="p [] u32 u32?",
    ),
    called(
        rf"mbarrier\.(?P<mode>test|try)_wait{_WAIT_ORDER}{_BARRIER_SPACE}\.b64",
        "mbarrier.test_state(g, {m}, {1:a}, mbarrier.state_of({2:v}, {m}), {issuer})",
        kind=always_uniform,
        takes="p [] b64 u32?",
    ),
]

ROWS: list[Row] = [*BARRIERS, *MBARRIERS]
