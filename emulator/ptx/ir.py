"""What PTX text is parsed into: operands, instructions, entries and modules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from emulator.errors import EmulatorError


@dataclass(frozen=True)
class Register:
    name: str
    width: int  # bits; 1 for a predicate


@dataclass(frozen=True)
class Special:
    name: str  # "%tid.x"


@dataclass(frozen=True)
class Symbol:
    name: str  # label, parameter or variable


@dataclass(frozen=True)
class Immediate:
    value: int  # integer value, or the bits of a floating-point number
    float_width: int = 0  # 32 or 64 where the text was a floating-point number


@dataclass(frozen=True)
class Negated:
    register: Register  # "!p" as a source


@dataclass(frozen=True)
class Vector:
    items: tuple  # "{a, b}"


@dataclass(frozen=True)
class Pair:
    first: object  # "d|p"
    second: object


@dataclass(frozen=True)
class Address:
    base: object  # Register, Symbol or Immediate
    offset: int = 0
    coordinates: tuple | None = None  # "[map, {c0, c1}]"


SINK = Symbol("_")


@dataclass(frozen=True)
class Predicate:
    register: Register
    negated: bool


class Place(NamedTuple):
    """Characters [start, end) of Module.text."""

    start: int
    end: int


@dataclass(frozen=True)
class Instruction:
    opcode: str
    operands: tuple
    predicate: Predicate | None
    line: int  # 1-based line of the PTX text
    text: str
    source: str | None = None  # "file.py:line"
    place: Place = field(default=Place(0, 0), compare=False, repr=False)  # guard to semicolon


@dataclass(frozen=True)
class Param:
    name: str
    size: int  # bytes
    align: int  # bytes
    type: str = "b8"  # of an element
    array: bool = False
    pointer: bool = False  # declared .ptr


@dataclass(frozen=True)
class Relocation:
    """Where a variable's initial bytes hold an address: ((address of `name` + addend) & mask), shifted down by the
    mask's trailing zeros (PTX ISA, "Initializers").
    """

    offset: int
    name: str
    addend: int
    size: int  # bytes
    mask: int


@dataclass(frozen=True)
class Variable:
    name: str
    space: str  # "shared", "local", "global" or "const"; "param" for what a call passes
    size: int  # bytes; 0 for `.extern .shared` arrays
    align: int
    extern: bool = False
    initial: bytes | None = None
    relocations: tuple[Relocation, ...] = ()


@dataclass
class Body:
    """What entries and device functions have in common. scope: what the module declares, for all of its bodies."""

    name: str
    params: list[Param]
    instructions: list[Instruction] = field(default_factory=list, kw_only=True)
    labels: dict[str, int] = field(default_factory=dict, kw_only=True)  # -> index of the instruction that follows
    registers: dict[str, Register] = field(default_factory=dict, kw_only=True)
    variables: dict[str, Variable] = field(default_factory=dict, kw_only=True)
    branch_targets: dict[str, list[str]] = field(default_factory=dict, kw_only=True)
    scope: Scope | None = field(default=None, kw_only=True, repr=False)
    line: int = field(default=0, kw_only=True)
    place: Place = field(default=Place(0, 0), kw_only=True, repr=False)  # directive to closing brace
    inside: Place = field(default=Place(0, 0), kw_only=True, repr=False)  # between the braces


@dataclass
class Function(Body):
    """A device function. results: what it returns, at most one. defined: whether the module has its body."""

    results: list[Param] = field(default_factory=list)
    defined: bool = True


@dataclass
class Entry(Body):
    """A kernel. reqntid, maxntid: threads of its CTAs, exactly and at most; cluster, max_cluster: CTAs of its
    clusters, likewise (PTX ISA, "Performance-Tuning Directives", "Cluster Dimension Directives").
    """

    reqntid: tuple[int, int, int] | None = None
    maxntid: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None
    max_cluster: int | None = None

    def param_offsets(self) -> dict[str, int]:
        """Byte offset of every parameter in the packed buffer, and under "" the size of the buffer."""
        offsets, position = {}, 0
        for param in self.params:
            position = -(-position // param.align) * param.align
            offsets[param.name] = position
            position += param.size
        offsets[""] = position
        return offsets

    def pack(self, values: list[bytes]) -> bytes:
        """The parameters' bytes as one buffer, aligned as PTX says (PTX ISA, "Kernel Function Parameters")."""
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


@dataclass(eq=False)  # identity tells modules of the same text apart
class Scope:
    """The declarations of a module outside of its bodies."""

    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)


@dataclass
class Module:
    entries: dict[str, Entry]
    target: str
    version: str
    scope: Scope = field(default_factory=Scope)
    text: str = field(default="", repr=False)  # of the module, its comments blanked


def located(reason: str, entry: Body, instruction: Instruction | None, **place) -> EmulatorError:
    """An error at an instruction. place: cta and warp, where they are known."""
    if instruction is None:
        return EmulatorError(reason, kernel=entry.name, **place)
    line, text, source = instruction.line, instruction.text, instruction.source
    return EmulatorError(reason, kernel=entry.name, ptx_line=line, ptx_text=text, source=source, **place)
