"""PTX of a B200 kernel -> PTX that a Hopper runs.

Everything that sm_90a has stays as it is; `rules` replaces the rest, where it stands in the text. In exact mode tensor
memory and tensor core are calls of the library, and results are those of a B200. In timing mode copies to tensor
memory and MMAs are dropped, loads from it give zeros and a commit is a plain arrival; what remains takes the time that
it takes. What cannot be lowered raises EmulatorError with the instruction and its line.

Where the software needs warps of its own (library.cu), the launch starts them behind the kernel's own ones; they do
not count in any barrier of the kernel's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from emulator.errors import EmulatorError
from emulator.hopper import MODES
from emulator.hopper.context import CONTROL, EXIT, PHASE, Context
from emulator.hopper.library import PTX_VERSION
from emulator.hopper.maps import MapFacts
from emulator.hopper.rules import reason_against, rule
from emulator.hopper.statements import Block, Statement, span, statements, without_comments
from emulator.ptx.module import parse

SERVER_WARPS, FORWARDING_WARPS = 4, 1
CONTROL_BYTES, RING_BYTES = 240, 32 * 16  # sizeof(Control), and of the slots of one issuing CTA, in control.cuh

_SERVED = re.compile(r"tcgen05\.(alloc|cp|mma|ld|st)\.")
_FORWARDED = re.compile(r"cp\.async\.bulk\.tensor\S*\.mbarrier\S*\.cta_group::2")


@dataclass(frozen=True)
class Lowered:
    """A module for sm_90a with one entry.

    extra_threads: to be started behind the kernel's own. control_bytes: to be added to its dynamic shared memory,
    which must be a multiple of 16 bytes. uses_tmem: whether the module's `hopper_pool` must be set. forwards: whether
    loads complete on barriers of other CTAs, which takes software longer than the loads take. asks: whether maps of
    4-bit elements must be marked (maps.mark).
    """

    ptx: str
    extra_threads: int
    control_bytes: int
    uses_tmem: bool
    forwards: bool
    asks: bool


def lower(text: str, name: str, mode: str, maps: dict[str, MapFacts], ctas: int, library: Callable[[], str]) -> Lowered:
    """Lower the entry `name` of a PTX module.

    mode: one of MODES. maps: facts of the tensor maps among the parameters, by parameter name. ctas: size of
    the launch's clusters. library: gives the PTX of library.cu, and is asked only if the kernel calls it.
    """
    if mode not in MODES:
        raise ValueError(f"mode {mode!r}; must be one of {', '.join(MODES)}")
    clean = without_comments(text)
    entry = parse(text).entries[name]
    start, body, end = span(clean, name)
    found = list(statements(clean, body, end, entry))
    served = mode == "exact" and any(_SERVED.match(s.opcode) for s in found)
    rings = ctas if any(_FORWARDED.match(s.opcode) for s in found) else 0
    extra_threads = 32 * (SERVER_WARPS * served + FORWARDING_WARPS * bool(rings))
    threads = _threads(entry) if extra_threads else 0
    context = Context(entry, mode == "exact", ctas, threads, bool(extra_threads), maps, bare=mode == "bare")
    code, position = [], body
    for statement in found:
        replacement = _replace(statement, context)
        if replacement is not None:
            code += clean[position : statement.start], replacement
            position = statement.end
    code.append(clean[position : end - 1])
    header = clean[start:body]
    dynamic, declaration = _dynamic_memory(clean)
    if extra_threads:
        context.calls = True
        header = re.sub(r"\.(req|max)ntid\s+[\d, ]+", f".reqntid {threads + extra_threads}, 1, 1\n", header)
        arguments = [("b32", CONTROL), *(("b32", str(int(value))) for value in (threads, ctas, rings, served))]
        code = [_prologue(dynamic, rings, threads, arguments), *code, _epilogue(arguments)]
    functions = _functions(library()) if context.calls else ""
    ptx = "\n".join(
        (
            f".version {PTX_VERSION}\n.target sm_90a\n.address_size 64",
            declaration,
            functions,
            _module_scope(clean, {entry.name: (start, end)}),
            header + "".join(code) + "\n}",
        )
    )
    return Lowered(
        ptx + "\n", extra_threads, _control_bytes(rings) if extra_threads else 0, served, rings > 0, context.asks
    )


def _control_bytes(rings: int) -> int:
    return CONTROL_BYTES + rings * RING_BYTES


def _threads(entry) -> int:
    if entry.reqntid is None or entry.reqntid[1:] != (1, 1) or entry.reqntid[0] % 32:
        raise EmulatorError(
            f"block of {entry.reqntid} threads: a kernel to which warps are added needs .reqntid with whole warps "
            "along x only",
            kernel=entry.name,
        )
    return entry.reqntid[0]


def _replace(statement: Statement, context: Context) -> str | None:
    change = rule(statement.opcode)
    if change is not None:
        return change(statement, context)
    reason = reason_against(statement.opcode)
    if reason is not None:
        raise context.refuse(statement, reason)
    if context.extra and "%ntid.x" in statement.operands:
        operands = [str(context.threads) if o == "%ntid.x" else o for o in statement.operands]
        return f"{statement.guard} {statement.opcode} {', '.join(operands)};"
    return None


def _dynamic_memory(clean: str) -> tuple[str, str]:
    """(name of the dynamic shared memory, its declaration if the module has none)."""
    declared = re.search(r"\.extern\s+\.shared\b[^;\[]*?([\w$]+)\s*\[\s*\]\s*;", clean)
    if declared:
        return declared[1], ""
    return "hopper_dynamic", ".extern .shared .align 16 .b8 hopper_dynamic[];"


def _prologue(dynamic: str, rings: int, threads: int, arguments: list[tuple[str, str]]) -> str:
    block = Block()
    size, thread, own = block.register(), block.register(), block.register("pred")
    block.add(f"mov.b32 {CONTROL}, {dynamic};")
    block.add(f"mov.u32 {size}, %dynamic_smem_size;")
    block.add(f"add.s32 {CONTROL}, {CONTROL}, {size};")
    block.add(f"sub.s32 {CONTROL}, {CONTROL}, {_control_bytes(rings)};")
    block.add(f"mov.b32 {PHASE}, 0;")
    block.call("hopper_begin", *arguments)
    block.add(f"mov.u32 {thread}, %tid.x;")
    block.add(f"setp.lt.u32 {own}, {thread}, {threads};")
    block.add(f"@{own} bra $hopper_kernel;")
    block.call("hopper_serve", *arguments)
    block.add("ret;")
    return f"\n\t.reg .b32 {CONTROL}, {PHASE};\n\t{block.text()}\n$hopper_kernel:\n"


def _epilogue(arguments: list[tuple[str, str]]) -> str:
    block = Block()
    block.call("hopper_leave", *arguments)
    block.add("ret;")
    return f"\n{EXIT}:\n\t{block.text()}\n"


def _functions(library: str) -> str:
    """The library without its header, with functions that are only visible in the module."""
    clean = re.sub(r"^\s*\.(version|target|address_size)[^\n]*", "", without_comments(library), flags=re.M)
    return re.sub(r"\.visible\s+\.func", ".func", clean)


def _module_scope(clean: str, taken: dict[str, tuple[int, int]]) -> str:
    """What stands outside of the entries: declarations. Debug sections are left out, they describe another text."""
    position, parts = 0, []
    for match in re.finditer(r"\.entry\s+([\w$]+)", clean):
        start, _, end = span(clean, match[1])
        parts.append(clean[position:start])
        position = end
    parts.append(clean[position:])
    outside = re.sub(r"\.section\s+[^{]*\{[^}]*\}", "", "".join(parts))
    return re.sub(r"^\s*\.(version|target|address_size)[^\n]*", "", outside, flags=re.M)
