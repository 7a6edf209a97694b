"""wmma.load, wmma.mma and wmma.store as loads, mma.sync and stores (PTX ISA, "Warp-level Matrix Instructions: wmma").

The PTX ISA leaves it open which element is where in a fragment. Here fragments are those of mma.sync
(`arithmetic.fragments`), so that a wmma.mma is an mma.sync for each block of 16 x 8 elements, 8 x 8 of f64 and of 4-bit
integers. With 8 rows and 32 columns the product is transposed, B being the operand of 16 rows.

A position in a matrix has two indices: one by `lane / 4`, in steps of 8, and one by `lane % 4`, which is k in A and B.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import chain

from nogpu.compiler.order import orders
from nogpu.compiler.signatures import misfit
from nogpu.ptx.ir import Address, Immediate, Register, Special, Vector, items_of

_SHAPE, _TYPE = r"m\d+n\d+k\d+", r"f16|bf16|tf32|f32|f64|[su]8|[su]4|s32"
ACCESS = (
    rf"wmma\.(?P<access>load|store)\.(?P<matrix>a|b|c|d)\.sync\.aligned\.(?P<order>row|col)\.(?P<shape>{_SHAPE})"
    rf"(?P<space>\.global|\.shared(?:::cta)?)?\.(?P<type>{_TYPE})"
)
PRODUCT = (
    rf"wmma\.mma\.sync\.aligned\.(?P<a_order>row|col)\.(?P<b_order>row|col)\.(?P<shape>{_SHAPE})(?:\.rn)?"
    rf"\.(?P<d>{_TYPE})(?:\.(?P<a>{_TYPE})\.(?P<b>{_TYPE}))?\.(?P<c>{_TYPE})(?:\.rn|(?P<sat>\.satfinite))?"
)
_ACCESS, _PRODUCT = re.compile(ACCESS), re.compile(PRODUCT)
_SQUARE = ("m16n16k16", "m8n32k16", "m32n8k16")
# Type of A and B -> (types of C and D, shapes, bits of an element).
_FORMS: dict[str, tuple[tuple[str, ...], tuple[str, ...], int]] = {
    "f16": (("f16", "f32"), _SQUARE, 16),
    "bf16": (("f32",), _SQUARE, 16),
    "tf32": (("f32",), ("m16n16k8",), 32),
    "f64": (("f64",), ("m8n8k4",), 64),
    **dict.fromkeys(("s8", "u8"), (("s32",), _SQUARE, 8)),
    **dict.fromkeys(("s4", "u4"), (("s32",), ("m8n8k32",), 4)),
}
_BITS = {"f16": 16, "f32": 32, "s32": 32, "f64": 64}  # of an element of C and D
_HALVES = 8  # registers of A and B of f16 in every shape; those that a fragment does not fill hold its elements again

Part = tuple[str, tuple]
"""(opcode, operands)."""
NewRegister = Callable[[int], Register]
"""Bits -> a new register."""


@dataclass(frozen=True)
class _Fragment:
    """The places of a fragment's registers: (index by lane / 4, index by lane % 4) of each, both without the lane."""

    places: tuple[tuple[int, int], ...]
    per: int
    """Elements of a register, adjacent in the index by lane % 4."""
    step: int
    """Elements from lane to lane in that index."""
    bits: int
    type_name: str
    copies: int = 1


def _sizes(shape: str) -> tuple[int, int, int]:
    m, n, k = map(int, re.findall(r"\d+", shape))
    return m, n, k


def _is_transposed(shape: str) -> bool:
    return shape.startswith("m8n32")


def _operand(type_name: str, shape: str, matrix: str) -> _Fragment:
    """The fragment of A or B."""
    _, shapes, bits = _FORMS[type_name]
    if shape not in shapes:
        raise ValueError(f"no shape .{shape} of .{type_name} (PTX ISA, wmma)")
    m, n, k = _sizes(shape)
    is_first = (matrix == "a") != _is_transposed(shape)  # mma.sync's A
    lines = m if matrix == "a" else n
    block = 16 if is_first and lines > 8 else 8
    per = max(1, 32 // bits)
    places = tuple(
        (line + half, column)
        for line in range(0, lines, block)
        for column in range(0, k, 4 * per)
        for half in range(0, block, 8)
    )
    return _Fragment(places, per, per, bits, type_name, _HALVES // len(places) if type_name == "f16" else 1)


def _result(type_name: str, shape: str) -> _Fragment:
    """The fragment of C and D. With 8 rows and 32 columns the index by lane / 4 is the column."""
    if not any(type_name in results and shape in shapes for results, shapes, _ in _FORMS.values()):
        raise ValueError(f"no shape .{shape} of .{type_name} (PTX ISA, wmma)")
    m, n, _ = _sizes(shape)
    lines, columns = (n, m) if _is_transposed(shape) else (m, n)
    block, per = min(lines, 16), 2 if type_name == "f16" else 1
    places = tuple(
        (line + half, column + odd)
        for line in range(0, lines, block)
        for column in range(0, columns, 8)
        for half in range(0, block, 8)
        for odd in range(0, 2, per)
    )
    return _Fragment(places, per, 2, _BITS[type_name], type_name)


def expanded(opcode: str, operands: tuple, new: NewRegister) -> Iterator[Part]:
    """The instructions that replace one; the first is itself with what all lanes must share: address and stride.

    Raises ValueError for what the PTX ISA does not have and for operands that do not fit.
    """
    for pattern, parts in ((_ACCESS, _access), (_PRODUCT, _multiply)):
        match = next(filter(None, map(pattern.fullmatch, chain((opcode,), orders(opcode)))), None)
        if match is not None:
            yield from parts(match, operands, new)
            return
    raise ValueError(f"{opcode} is not modelled")


def _registers(operand: object, fragment: _Fragment, name: str) -> tuple:
    items, count = items_of(operand), len(fragment.places) * fragment.copies
    if len(items) != count:
        raise ValueError(f"{name} is {len(items)} registers, {count} expected (PTX ISA, wmma)")
    return items


# Loads and stores


def _access(match: re.Match, operands: tuple, new: NewRegister) -> Iterator[Part]:
    matrix, shape, type_name = match["matrix"], match["shape"], match["type"]
    is_store = match["access"] == "store"
    if is_store != (matrix == "d"):
        raise ValueError(f"wmma.{match['access']}.{matrix} (PTX ISA, wmma)")
    in_ab = matrix in "ab"
    if type_name not in (_FORMS if in_ab else _BITS):
        raise ValueError(f"wmma.{match['access']}.{matrix} of .{type_name} (PTX ISA, wmma)")
    fragment = _operand(type_name, shape, matrix) if in_ab else _result(type_name, shape)
    if len(operands) not in (2, 3):
        raise ValueError(f"wmma.{match['access']} with {len(operands)} operands; it takes 2 or 3")
    address, data = operands[:2] if is_store else operands[1::-1]
    refusal = misfit(address, "[]")
    if refusal is not None:
        raise ValueError(refusal)
    assert isinstance(address, Address)
    items = _registers(data, fragment, matrix.upper())
    m, n, k = _sizes(shape)
    rows, columns = {"a": (m, k), "b": (k, n)}.get(matrix, (m, n))
    by_row = match["order"] == "row"
    stride = operands[2] if len(operands) == 3 else Immediate(columns if by_row else rows)
    by_lane_group_is_row = matrix == "a" or (not in_ab and not _is_transposed(shape))
    yield match.string, (address, *((stride,) if isinstance(stride, Register) else ()))
    places = _Places(address, stride, fragment, by_row == by_lane_group_is_row, match["space"] or "", new)
    if fragment.bits == 4 and not places.adjacent:
        raise ValueError(f"A of .{type_name} is .row and B .col (PTX ISA, wmma)")
    yield from places.start()
    for index, place in enumerate(fragment.places):
        yield from places.store(items[index], *place) if is_store else places.load(items[index], *place)
    for index, item in enumerate(items[len(fragment.places) :]):
        yield "mov.b32", (item, items[index])


class _Places:
    """The addresses of a fragment's elements."""

    def __init__(
        self, address: Address, stride: object, fragment: _Fragment, adjacent: bool, space: str, new: NewRegister
    ) -> None:
        """adjacent: the index by lane % 4 is that of adjacent elements in memory. space: ".shared"; empty: generic."""
        self.adjacent = adjacent
        self._address, self._stride, self._fragment, self._space, self._new = address, stride, fragment, space, new
        base = address.base
        self._width = base.width if isinstance(base, Register) else 32 if "shared" in space else 64
        self._pointers: dict[int, Register] = {}
        """Index of a line of adjacent elements -> its address in this lane."""
        self._line = new(self._width)

    def _bytes(self, elements: int) -> int:
        return elements * self._fragment.bits // 8

    def start(self) -> Iterator[Part]:
        """Computes this lane's address of index 0 in both directions, and the bytes from line to line."""
        new, width, step = self._new, self._width, self._fragment.step
        group, member, place = new(32), new(32), new(width)
        yield "mov.u32", (group, Special("%laneid"))
        yield "and.b32", (member, group, Immediate(3))
        yield "shr.u32", (group, group, Immediate(2))
        if isinstance(self._address.base, Register):
            yield f"add.s{width}", (place, self._address.base, Immediate(self._address.offset))
        else:
            yield f"mov.b{width}", (place, Address(self._address.base, self._address.offset, direct=True))
        yield from self._scaled()
        by_line, along = (group, member) if self.adjacent else (member, group)
        lines, elements = (1, step) if self.adjacent else (step, 1)
        yield from self._add(place, by_line, lines, self._line)
        yield from self._add(place, along, 1, Immediate(self._bytes(elements)))
        self._pointers[0] = place

    def _scaled(self) -> Iterator[Part]:
        """The stride in bytes."""
        stride, width, bits = self._stride, self._width, self._fragment.bits
        if isinstance(stride, Immediate):
            yield f"mov.b{width}", (self._line, Immediate(self._bytes(stride.value)))
        elif bits < 8:
            half = self._new(32)
            yield "shr.u32", (half, stride, Immediate(1))
            yield f"cvt.u{width}.u32", (self._line, half)
        else:
            name = "mul.wide.u32" if width == 64 else "mul.lo.u32"
            yield name, (self._line, stride, Immediate(bits // 8))

    def _add(self, place: Register, index: Register, factor: int, unit: object) -> Iterator[Part]:
        """place += index * factor * unit. index: of 32 bits."""
        width = self._width
        count = index
        if factor > 1:
            count = self._new(32)
            yield "mul.lo.u32", (count, index, Immediate(factor))
        if width == 64:
            long = self._new(64)
            yield "cvt.u64.u32", (long, count)
            count = long
        yield f"mad.lo.u{width}", (place, count, unit, place)

    def _element(self, group: int, member: int) -> Iterator[Part | Address]:
        """The address of the element at both indices, and what computes it."""
        line, along = (group, member) if self.adjacent else (member, group)
        if line not in self._pointers:
            self._pointers[line] = pointer = self._new(self._width)
            yield f"mad.lo.u{self._width}", (pointer, self._line, Immediate(line), self._pointers[0])
        yield Address(self._pointers[line], self._bytes(along))

    def _addresses(self, group: int, member: int) -> tuple[list[Part], list[Address]]:
        """The addresses of a register's elements, only the first where they are adjacent, after what computes them."""
        parts: list[Part] = []
        addresses = []
        for element in range(1 if self.adjacent else self._fragment.per):
            *before, address = self._element(group, member + element)
            parts += before  # type: ignore[arg-type]
            addresses.append(address)
        return parts, addresses  # type: ignore[return-value]

    def load(self, register: object, group: int, member: int) -> Iterator[Part]:
        """Loads the elements of a register."""
        fragment = self._fragment
        before, addresses = self._addresses(group, member)
        yield from before
        if len(addresses) == 1:
            yield f"ld{self._space}.b{max(fragment.bits, 32)}", (register, addresses[0])
            return
        parts = [self._new(16) for _ in addresses]
        for part, address in zip(parts, addresses):
            yield f"ld{self._space}.u{fragment.bits}", (part, address)
        halves = parts
        if fragment.bits == 8:
            halves = parts[::2]
            for low, high in zip(halves, parts[1::2]):
                yield "mad.lo.u16", (low, high, Immediate(256), low)
        yield "mov.b32", (register, Vector(tuple(halves)))

    def store(self, register: object, group: int, member: int) -> Iterator[Part]:
        """Stores the elements of a register of D."""
        before, addresses = self._addresses(group, member)
        yield from before
        if len(addresses) == 1:
            yield f"st{self._space}.b{max(self._fragment.bits, 32)}", (addresses[0], register)
            return
        parts = [self._new(16) for _ in addresses]
        yield "mov.b32", (Vector(tuple(parts)), register)
        for part, address in zip(parts, addresses):
            yield f"st{self._space}.b16", (address, part)


# Products


def _multiply(match: re.Match, operands: tuple, new: NewRegister) -> Iterator[Part]:
    shape, of_d, of_c, of_ab = match["shape"], match["d"], match["c"], match["a"] or "f16"
    results, shapes, bits = _FORMS.get(of_ab, ((), (), 0))
    mixed = of_ab == "f16" and match["a"] is None  # of these alone C and D may differ
    if shape not in shapes or {of_c, of_d} - set(results) or (match["b"] or "f16") != of_ab:
        raise ValueError("no combination of shape and types (PTX ISA, wmma.mma)")
    if (of_ab == "f16") != mixed:
        raise ValueError("wmma.mma of .f16 does not name the types of A and B (PTX ISA, wmma.mma)")
    if match["sat"] and of_d != "s32":
        raise ValueError(".satfinite is for integers (PTX ISA, wmma.mma)")
    if bits == 4 and (match["a_order"], match["b_order"]) != ("row", "col"):
        raise ValueError(f"A of .{of_ab} is .row and B .col (PTX ISA, wmma.mma)")
    if len(operands) != 4:
        raise ValueError(f"wmma.mma with {len(operands)} operands; it takes 4")
    fragments = [_result(of_d, shape), *(_operand(of_ab, shape, name) for name in "ab"), _result(of_c, shape)]
    d, a, b, c = (_registers(*parts) for parts in zip(operands, fragments, "DABC"))
    yield match.string, ()
    (m, n, k), transposed = _sizes(shape), _is_transposed(shape)
    first, second = (b, a) if transposed else (a, b)
    lines, columns = (n, m) if transposed else (m, n)
    block = min(lines, 16)
    of_first = k * block * bits // max(32, bits) // 32
    of_second = of_first * 8 // block
    of_sum = "f32" if "f32" in (of_c, of_d) else of_d
    if of_c != of_sum:
        c = yield from _singles(c, new)
    aliased = {item for item in (*a, *b)} | {item for i, item in enumerate(c) if d[i : i + 1] != (item,)}
    is_narrowed = of_d != of_sum
    target = [new(max(32, _BITS[of_sum])) if is_narrowed or d[i] in aliased else d[i] for i in range(len(c))]
    of_result = len(c) // (lines // block * (columns // 8))
    opcode = f"mma.sync.aligned.m{block}n8k{k}.row.col{match['sat'] or ''}.{of_sum}.{of_ab}.{of_ab}.{of_sum}"
    for number in range(len(c) // of_result):
        line, column = divmod(number, columns // 8)
        result = slice(number * of_result, (number + 1) * of_result)
        parts = (
            target[result],
            first[line * of_first : (line + 1) * of_first],
            second[column * of_second : (column + 1) * of_second],
            c[result],
        )
        yield opcode, tuple(Vector(tuple(part)) for part in parts)
    if is_narrowed:
        for item, low, high in zip(d, target[::2], target[1::2]):
            yield "cvt.rn.f16x2.f32", (item, high, low)
        return
    for item, found in zip(d, target):
        if item is not found:
            yield f"mov.b{found.width}", (item, found)


def _singles(halves: tuple, new: NewRegister) -> Generator[Part, None, tuple]:
    """The elements of a fragment of f16 as f32; returns their registers, in the order of a fragment of f32."""
    found = []
    for pair in halves:
        parts = new(16), new(16)
        yield "mov.b32", (Vector(parts), pair)
        for part in parts:
            found.append(new(32))
            yield "cvt.f32.f16", (found[-1], part)
    return tuple(found)
