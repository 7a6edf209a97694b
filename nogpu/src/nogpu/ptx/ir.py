"""The result of parsing PTX text: operands, instructions, entries and modules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from nogpu.errors import EmulatorError


@dataclass(frozen=True)
class Register:
    """A declared register."""

    name: str
    width: int  # bits; 1 for a predicate


@dataclass(frozen=True)
class Special:
    """A special register."""

    name: str  # "%tid.x"


@dataclass(frozen=True)
class Symbol:
    """A name that stands for an address or a place in the code."""

    name: str  # label, parameter or variable


@dataclass(frozen=True)
class Immediate:
    """A number in the text."""

    value: int  # integer value, or the bits of a floating-point number
    float_width: int = 0  # 32 or 64 for a floating-point number, else 0


@dataclass(frozen=True)
class Negated:
    """The source "!p"."""

    register: Register


@dataclass(frozen=True)
class Vector:
    """The operand "{a, b}"."""

    items: tuple


def items_of(operand: object) -> tuple:
    """The items of a vector, or the operand itself."""
    return operand.items if isinstance(operand, Vector) else (operand,)


@dataclass(frozen=True)
class Pair:
    """The operand "d|p"."""

    first: object
    second: object


@dataclass(frozen=True)
class Address:
    """The operand "[base + offset]", "[map, {c0, c1}]" of a tensor copy, or without brackets "variable + offset"."""

    base: object  # Register, Symbol or Immediate
    offset: int = 0  # bytes
    coordinates: tuple | None = None  # coordinates of a tensor copy
    direct: bool = False  # true without brackets: the address itself, as a source of mov


SINK = Symbol("_")


@dataclass(frozen=True)
class Predicate:
    """The guard "@p" or "@!p" of an instruction."""

    register: Register
    negated: bool


class Place(NamedTuple):
    """Characters [start, end) of Module.text."""

    start: int
    end: int


@dataclass(frozen=True)
class Instruction:
    """One instruction of a body."""

    opcode: str  # opcode with its modifiers, "ld.global.b32"
    operands: tuple
    predicate: Predicate | None
    line: int  # 1-based line of the PTX text
    text: str  # the statement, in one line
    source: str | None = None  # "file.py:line"
    place: Place = field(default=Place(0, 0), compare=False, repr=False)  # characters from guard to semicolon


@dataclass(frozen=True)
class Param:
    """A parameter of an entry, or a parameter or result of a device function."""

    name: str
    size: int  # bytes
    align: int  # bytes
    type: str = "b8"  # element type
    array: bool = False
    pointer: bool = False  # has .ptr in its declaration


@dataclass(frozen=True)
class Relocation:
    """An address among a variable's initial bytes (PTX ISA, "Initializers").

    Its value is ((address of `name` + addend) & mask), shifted down by the mask's trailing zeros.
    """

    offset: int  # bytes from the variable's start
    name: str
    addend: int
    size: int  # bytes
    mask: int


@dataclass(frozen=True)
class Variable:
    """A declared variable."""

    name: str
    space: str  # "shared", "local", "global" or "const"; "param" for an argument or result of a call
    size: int  # bytes; 0 for `.extern .shared` arrays
    align: int  # bytes
    extern: bool = False
    initial: bytes | None = None
    relocations: tuple[Relocation, ...] = ()
    line: int | None = field(default=None, compare=False, repr=False)  # 1-based line of a module's variable


@dataclass
class Body:
    """The part that entries and device functions have in common."""

    name: str
    params: list[Param]
    instructions: list[Instruction] = field(default_factory=list, kw_only=True)
    labels: dict[str, int] = field(default_factory=dict, kw_only=True)  # label -> index of the instruction behind it
    registers: dict[str, Register] = field(default_factory=dict, kw_only=True)
    variables: dict[str, Variable] = field(default_factory=dict, kw_only=True)
    branch_targets: dict[str, list[str]] = field(default_factory=dict, kw_only=True)
    scope: Scope | None = field(default=None, kw_only=True, repr=False)  # declarations of the module
    line: int = field(default=0, kw_only=True)  # line of the header
    error: EmulatorError | None = field(default=None, kw_only=True, repr=False)  # reason for refusing the body
    place: Place = field(default=Place(0, 0), kw_only=True, repr=False)  # characters from directive to closing brace
    inside: Place = field(default=Place(0, 0), kw_only=True, repr=False)  # characters between the braces


@dataclass
class Function(Body):
    """A device function."""

    results: list[Param] = field(default_factory=list)  # one result or none
    defined: bool = True  # true if the module has its body


@dataclass
class Entry(Body):
    """A kernel (PTX ISA, "Performance-Tuning Directives", "Cluster Dimension Directives")."""

    reqntid: tuple[int, int, int] | None = None  # exact threads of a CTA
    maxntid: tuple[int, int, int] | None = None  # most threads of a CTA
    cluster: tuple[int, int, int] | None = None  # exact CTAs of a cluster
    max_cluster: int | None = None  # most CTAs of a cluster
    min_ctas: int | None = None  # CTAs that an SM should hold, at least
    registers_per_thread: int | None = None  # most registers of a thread
    stored_at: tuple | None = field(default=None, kw_only=True, compare=False, repr=False)  # state of `compiler.stored`

    def param_offsets(self) -> dict[str, int]:
        """The byte offset of every parameter in the packed buffer, and under "" the size of the buffer."""
        offsets, position = {}, 0
        for param in self.params:
            position = -(-position // param.align) * param.align
            offsets[param.name] = position
            position += param.size
        offsets[""] = position
        return offsets

    def pack(self, values: list[bytes]) -> bytes:
        """Pack the parameters' bytes into one aligned buffer (PTX ISA, "Kernel Function Parameters").

        Raises EmulatorError for a wrong number or size of values.
        """
        if len(values) != len(self.params):
            raise EmulatorError(f"{len(values)} parameters for {len(self.params)} in the PTX", kernel=self.name)
        offsets = self.param_offsets()
        buffer = bytearray(offsets[""])
        for param, value in zip(self.params, values, strict=True):
            if len(value) != param.size:
                raise EmulatorError(
                    f"parameter {param.name} has {len(value)} bytes, not {param.size}", kernel=self.name
                )
            buffer[offsets[param.name] : offsets[param.name] + param.size] = value
        return bytes(buffer)


@dataclass(eq=False)  # distinguishes modules with the same text
class Scope:
    """The declarations of a module outside of its bodies, which all bodies share."""

    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    kernels: set[str] = field(default_factory=set)
    """Names of entries."""


@dataclass
class Module:
    """A parsed PTX module."""

    entries: dict[str, Entry]
    target: str  # "sm_100a"
    version: str  # PTX version, as "8.7"
    scope: Scope = field(default_factory=Scope)
    text: str = field(default="", repr=False)  # text of the module, with blanks in place of comments
    target_line: int = 0  # 1-based


def located(
    reason: str,
    entry: Body,
    instruction: Instruction | None,
    *,
    cta: tuple[int, int, int] | None = None,
    warp: int | None = None,
) -> EmulatorError:
    """An error at an instruction, or in the entry as a whole. cta, warp: as in EmulatorError."""
    if instruction is None:
        return EmulatorError(reason, kernel=entry.name, cta=cta, warp=warp)
    line, text, source = instruction.line, instruction.text, instruction.source
    return EmulatorError(reason, kernel=entry.name, cta=cta, warp=warp, ptx_line=line, ptx_text=text, source=source)
