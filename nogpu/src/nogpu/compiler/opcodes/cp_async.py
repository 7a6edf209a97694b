"""Rows of the opcode table: cp.async and its groups (PTX ISA, "Non-bulk copy")."""

from __future__ import annotations

import re

from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.rows import Row, called, row
from nogpu.compiler.rowcode.accesses import cp_async
from nogpu.compiler.rowcode.assembler import Assembler
from nogpu.ptx.ir import Address, Immediate, Instruction, Negated

_ALL_GROUPS = (1 << 31) - 1
_SIZES = {"ca": (4, 8, 16), "cg": (16,)}


def _parsed(
    code: Code | Assembler, instruction: Instruction, match: re.Match
) -> tuple[Address, Address, Immediate, object | None]:
    """(destination, source, cp-size, src-size or ignore-src or None). Raises EmulatorError for other operands."""
    destination, source, size, *options = instruction.operands
    sizes, hinted = _SIZES[match.group("level")], ".L2::cache_hint" in instruction.opcode
    if size.value not in sizes:
        must = " or ".join(map(str, sizes))
        raise code.fail(f"cp.async.{match.group('level')} with cp-size {size.value}: must be {must}")
    if len(options) not in (hinted, hinted + 1):
        raise code.fail(f"cp.async with {len(options)} operands after cp-size, {int(hinted)} or {hinted + 1} expected")
    option = options[0] if len(options) > hinted else None
    if option is not None:
        code.fits(option, "pred" if _is_predicate(option) else "u32")
    return destination, source, size, option


def _is_predicate(option: object | None) -> bool:
    return isinstance(option, Negated) or getattr(option, "width", None) == 1


def _kernel(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """Emits the kernel that finds legal copies."""
    destination, source, size, option = _parsed(code, instruction, match)
    if _is_predicate(option):
        cp_async(code, destination, source, size.value, None, code.source(option, "pred"))
    else:
        cp_async(code, destination, source, size.value, option, None)


def _copy(code: Code, instruction: Instruction, match: re.Match) -> None:
    """Emits cp.async [dst], [src], cp-size{, src-size or ignore-src}{, cache policy}."""
    destination, source, size, option = _parsed(code, instruction, match)
    source_size = ignored = "None"
    if _is_predicate(option):
        ignored = code.predicate_row(option)
    elif option is not None:
        source_size = code.value(option)
    places = f"{code.address(destination)}, {code.address(source)}, ({size.value}, {source_size}), {ignored}"
    code.line(f"cp_async.copy(g, {code.mask}, {places}, (g, {code.pc}))")


def _wait(code: Code, instruction: Instruction, match: re.Match) -> None:
    (newest,) = instruction.operands
    if newest.value < 0:
        raise code.fail(
            f"cp.async.wait_group {newest.value}: a number of groups is expected (PTX ISA, cp.async.wait_group)"
        )
    code.line(f"cp_async.wait_groups(g, {code.mask}, {newest.value})")


def _commit_kernel(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    code.emit("commit_copies")


def _wait_all_kernel(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    code.emit("wait_copies", a=-1)


def _wait_kernel(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    (newest,) = instruction.operands
    code.emit("wait_copies", a=min(newest.value, _ALL_GROUPS))


ROWS: list[Row] = [
    row(
        r"cp\.async\.(?P<level>ca|cg)\.shared(?:::cta)?\.global(?:\.L2::cache_hint)?(?:\.L2::(?:64|128|256)B)?(?:\.L2::cache_hint)?",
        _copy,
        takes="[] [] # .? b64?",
        kernels=_kernel,
    ),
    called(r"cp\.async\.commit_group", "cp_async.commit_group(g, {m})", writes=0, kernels=_commit_kernel),
    row(r"cp\.async\.wait_group", _wait, takes="#", kernels=_wait_kernel),
    called(r"cp\.async\.wait_all", "cp_async.wait_copies(g, {m})", writes=0, kernels=_wait_all_kernel),
    called(
        r"cp\.async\.mbarrier\.arrive(?P<noinc>\.noinc)?(?:\.shared(?:::cta)?)?\.b64",
        "cp_async.arrive(g, {m}, {noinc:b}, {0:x}, {issuer})",
        takes="[]",
    ),
]
