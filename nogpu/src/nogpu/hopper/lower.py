"""PTX of a B200 kernel -> PTX for a Hopper GPU.

The lowered text keeps every instruction that sm_90a has; `rules` replaces the others where they stand. In exact mode
tensor memory and tensor core are calls of the library (library.cu), and results are a B200's. In timing mode MMAs and
copies to tensor memory are dropped, loads from it give zeros, and a commit is a plain arrival; all other instructions
take their real time. EmulatorError names an instruction that cannot be lowered, with its line.

Where the software needs warps of its own (library.cu), the launch starts them behind the kernel's own warps, and no
barrier of the kernel counts them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from nogpu.errors import EmulatorError
from nogpu.hopper import MODES
from nogpu.hopper.context import ARRIVED, CONTROL, EXIT, PHASE, Context
from nogpu.hopper.library import PTX_VERSION
from nogpu.hopper.maps import MapFacts
from nogpu.hopper.rules import reason_against, rule
from nogpu.hopper.rules_threads import leave_cluster
from nogpu.hopper.statements import Block, Statement, statements
from nogpu.ptx.ir import Entry, Module
from nogpu.ptx.module import parse
from nogpu.ptx.syntax import without_comments

SERVER_WARPS, FORWARDING_WARPS = 4, 1
CONTROL_BYTES, RING_BYTES = 240, 32 * 16  # sizeof(Control), and bytes of the slots of one issuing CTA, in control.cuh

_SERVED = re.compile(r"tcgen05\.(alloc|cp|mma|ld|st)\.")
_FORWARDED = re.compile(r"cp\.async\.bulk\.tensor\S*\.mbarrier\S*\.cta_group::2")
_HEADER_LINE = re.compile(r"^\s*\.(version|target|address_size)[^\n]*", re.M)
_INLINED = re.compile(r", function_name [^\n]*")  # part of .loc with a string in a section that is left out
_DYNAMIC_MEMORY = re.compile(r"\.extern\s+\.shared\b[^;\[]*?([\w$]+)\s*\[\s*\]\s*;")


@dataclass(frozen=True)
class Lowered:
    """A module for sm_90a with one entry, and the additions that its launches need."""

    ptx: str
    extra_threads: int  # threads to start behind the kernel's own
    control_bytes: int  # bytes to add to the dynamic shared memory, whose size must be a multiple of 16
    uses_tmem: bool  # True if the module's `hopper_pool` must be set
    forwards: bool  # True if loads complete on barriers of other CTAs, in software that takes longer than the loads
    asks: bool  # True if maps of 4-bit elements must have marks (maps.mark)


def lower(
    text: str,
    name: str,
    mode: str,
    maps: dict[str, MapFacts],
    ctas: int,
    library: Callable[[], str],
    block: tuple[int, int, int] | None = None,
) -> Lowered:
    """Lower the entry `name` of a PTX module.

    mode: one of MODES. maps: facts of the tensor maps among the parameters, by parameter name. ctas: CTAs per cluster
    of the launch. library: gives the PTX of library.cu; called only if the kernel needs it. block: the launch's block,
    for entries without .reqntid. Raises ValueError for another mode, EmulatorError for what a Hopper cannot do.
    """
    if mode not in MODES:
        raise ValueError(f"mode {mode!r}; must be one of {', '.join(MODES)}")
    module = parse(text)
    entry = module.entries[name]
    errors = [body.error for body in (entry, *module.scope.functions.values()) if body.error is not None]
    if errors:
        raise errors[0]
    found = list(statements(module.text, entry))
    served = mode == "exact" and any(_SERVED.match(s.opcode) for s in found)
    rings = ctas if any(_FORWARDED.match(s.opcode) for s in found) else 0
    extra_threads = 32 * (SERVER_WARPS * served + FORWARDING_WARPS * bool(rings))
    threads = _threads(entry, entry.reqntid or block) if extra_threads else 0
    context = Context(entry, mode == "exact", ctas, threads, bool(extra_threads), maps, bare=mode == "bare")
    code = _INLINED.sub("", _lowered_body(module.text, entry, found, context))
    header = module.text[entry.place.start : entry.inside.start]
    dynamic, declaration = _dynamic_memory(module.text)
    if extra_threads:
        context.calls = True
        header = re.sub(r"\.(req|max)ntid\s+[\d, ]+", f".reqntid {threads + extra_threads}, 1, 1\n", header)
        arguments = [("b32", CONTROL), *(("b32", str(int(value))) for value in (threads, ctas, rings, served))]
        code = _prologue(dynamic, rings, threads, arguments) + code + _epilogue(arguments, ctas)
    functions = _functions(library()) if context.calls else ""
    ptx = "\n".join(
        (
            f".version {PTX_VERSION}\n.target sm_90a\n.address_size 64",
            declaration,
            functions,
            _module_scope(module),
            header + code + "\n}",
        )
    )
    return Lowered(
        ptx + "\n", extra_threads, _control_bytes(rings) if extra_threads else 0, served, rings > 0, context.asks
    )


def _control_bytes(rings: int) -> int:
    return CONTROL_BYTES + rings * RING_BYTES


def _threads(entry: Entry, block: tuple[int, ...] | None) -> int:
    if block is None or block[1:] != (1, 1) or block[0] % 32:
        text = f"block of {block} threads: a kernel to which warps are added needs whole warps along x only"
        raise EmulatorError(text, kernel=entry.name)
    return block[0]


def _lowered_body(text: str, entry: Entry, found: list[Statement], context: Context) -> str:
    """The text between the entry's braces, with the lowered statements."""
    code: list[str] = []
    position = entry.inside.start
    for statement in found:
        replacement = _replace(statement, context)
        if replacement is not None:
            place = statement.parsed.place
            code += text[position : place.start], replacement
            position = place.end
    return "\n\t".join(("", *context.beginning)) + "".join((*code, text[position : entry.inside.end]))


def _replace(statement: Statement, context: Context) -> str | None:
    """The PTX that replaces the statement; None if the statement stays."""
    change = rule(statement.opcode)
    replacement = change(statement, context) if change is not None else None
    if replacement is not None:
        return replacement
    reason = reason_against(statement.opcode)
    if reason is not None:
        raise context.refuse(statement, reason)
    if context.extra and "%ntid.x" in statement.operands:
        operands = [str(context.threads) if o == "%ntid.x" else o for o in statement.operands]
        return f"{statement.guard} {statement.opcode} {', '.join(operands)};"
    return None


def _dynamic_memory(text: str) -> tuple[str, str]:
    """The name of the dynamic shared memory, and its declaration if the module has none."""
    declared = _DYNAMIC_MEMORY.search(text)
    if declared:
        return declared[1], ""
    return "hopper_dynamic", ".extern .shared .align 16 .b8 hopper_dynamic[];"


def _prologue(dynamic: str, rings: int, threads: int, arguments: list[tuple[str, str]]) -> str:
    """The entry's first instructions, which set up Control and send the extra warps to the library."""
    block = Block()
    size, thread, own = block.register(), block.register(), block.register("pred")
    block.add(f"mov.b32 {CONTROL}, {dynamic};")
    block.add(f"mov.u32 {size}, %dynamic_smem_size;")
    block.add(f"add.s32 {CONTROL}, {CONTROL}, {size};")
    block.add(f"sub.s32 {CONTROL}, {CONTROL}, {_control_bytes(rings)};")
    block.add(f"mov.b32 {PHASE}, 0;")
    block.add(f"mov.b32 {ARRIVED}, 0;")
    block.call("hopper_begin", *arguments)
    block.add(f"mov.u32 {thread}, %tid.x;")
    block.add(f"setp.lt.u32 {own}, {thread}, {threads};")
    block.add(f"@{own} bra $hopper_kernel;")
    block.call("hopper_serve", *arguments)
    block.add("ret;")
    return f"\n\t.reg .b32 {CONTROL}, {PHASE}, {ARRIVED};\n\t{block.text()}\n$hopper_kernel:\n"


def _epilogue(arguments: list[tuple[str, str]], ctas: int) -> str:
    """The instructions with which the kernel's own threads end."""
    block = Block()
    if ctas > 1:
        leave_cluster(block, ctas)
    block.call("hopper_leave", *arguments)
    block.add("ret;")
    return f"\n{EXIT}:\n\t{block.text()}\n"


def _functions(library: str) -> str:
    """The library's PTX without its header; its functions are visible only in the module."""
    return re.sub(r"\.visible\s+\.func", ".func", _HEADER_LINE.sub("", without_comments(library)))


def _module_scope(module: Module) -> str:
    """The declarations outside the entries. Debug sections, which describe another text, are left out."""
    position, parts = 0, []
    for entry in sorted(module.entries.values(), key=lambda entry: entry.place):
        parts.append(module.text[position : entry.place.start])
        position = entry.place.end
    parts.append(module.text[position:])
    return _HEADER_LINE.sub("", re.sub(r"\.section\s+[^{]*\{[^}]*\}", "", "".join(parts)))
