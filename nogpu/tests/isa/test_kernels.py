"""Every arithmetic row of the opcode table: its kernels give the bytes that the reference in NumPy gives.

The operands differ from lane to lane, are the same in all lanes, or both; the instruction runs in all lanes, in those
of a guard, or on one side of a branch.
"""

import functools
import itertools
import os
import re

import ml_dtypes
import numpy as np
import pytest

from nogpu.compiler import translate
from nogpu.ptx.ir import Immediate, Pair, Register, Vector
from tests.support.opcode_cases import ARITHMETIC, LITERALS, POOL, WIDTHS, forms, is_legal, register, sampled, spellings
from tests.support.reference.results import FAMILIES
from tests.support.small_kernels import entry, launch_entry

SPELLINGS = int(os.environ.get("SPELLINGS") or 32)  # of a row that are tried, if it has more
EACH = 4  # registers of a sort of numbers: two of all, two that hold every pair of its edges
SORTS = ("bits", "integers", "counts", "f16", "bf16", "f32", "f64")
FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
CASES = (("v", ""), ("e", ""), ("e", ""), ("u", ""), ("ul", ""), ("vu", "@%v1_0 "), ("vu", "@!%u1_0 "))
"""Kinds of the operands, "e" for extreme values by lane, "ul" for a last one by lane; guard."""
EDGES = {"counts": (0, 1, 31, 32, 64), "floats": (0.0, -0.0, np.inf, -1.0, np.nan)}


def edges(width, sort, second):
    """uint64[32]: five extreme values of a sort; with those of the other register every pair of them."""
    order = np.arange(32 * 4) // 5 % 5 if second else np.arange(32 * 4) % 5
    if sort in FLOATS and np.dtype(FLOATS[sort]).itemsize * 8 <= width:
        dtype = np.dtype(FLOATS[sort])
        values = np.array(EDGES["floats"], dtype)[order[: 4 * width // dtype.itemsize]]
        return values.view(f"u{width // 8}").astype(np.uint64)
    top = 1 << width - 1
    return np.array(EDGES.get(sort, (0, 1, top - 1, top, 2 * top - 1)), np.uint64)[order[:32]]


def numbers(sort, rng, count):
    """Numbers of a floating-point type: ordinary ones, of all magnitudes, and special ones."""
    dtype, info = FLOATS[sort], ml_dtypes.finfo(FLOATS[sort])
    with np.errstate(all="ignore"):
        values = (rng.normal(size=count) * 2.0 ** (rng.integers(0, 2, count) * rng.integers(-30, 30, count))).astype(
            dtype
        )
        special = [0, -0.0, 1, -1, 0.5, 1.5, 2.5, 448, 1e9, np.inf, -np.inf, np.nan, -np.nan, 1e-7, -6e-8, 65519.0]
        special += [float(info.max), -float(info.max), float(info.tiny), -float(info.smallest_subnormal)]
        values[rng.permutation(count)[:12]] = rng.permutation(np.array(special, dtype))[:12]
    return values


def pool(width, sort, rng):
    """uint64[32]: values of a sort in registers of a width."""
    if sort in FLOATS and np.dtype(FLOATS[sort]).itemsize * 8 <= width:
        count = 32 * width // (np.dtype(FLOATS[sort]).itemsize * 8)
        return numbers(sort, rng, count).view(f"u{width // 8}").astype(np.uint64)
    values = rng.integers(0, 1 << 64, 32, np.uint64, False) >> np.uint64(64 - width)
    if sort == "integers":
        top = 1 << width - 1
        values = values >> rng.integers(0, width, 32).astype(np.uint64)
        values[:8] = rng.permutation(np.array([0, 1, top - 1, top, 2 * top - 1, 2 * top - 2, 7, top + 1], np.uint64))
    elif sort == "counts":
        values = rng.integers(0, 70, 32).astype(np.uint64)
    return values


class Program:
    """PTX of many instructions, each of whose results is stored."""

    def __init__(self, name):
        """name: of the module of the rows."""
        self.name, self.rng = name, np.random.default_rng(len(name))
        self.setup, self.body, self.stores, self.declared = [], [], [], []
        self.values = []
        self.patterns = set()
        self.writers = []  # instruction of each result
        self.expected = []  # (match, operands, guard, first result, (width, name) of each destination before)
        for width in WIDTHS:
            for number in range(POOL):
                self._fill(width, number)

    def _fill(self, width, number):
        offset = 256 * len(self.values)
        sort, place = SORTS[number // EACH], number % EACH
        extreme = place >= EACH // 2 and width > 1
        values = edges(width, sort, place % 2) if extreme else pool(max(width, 8), sort, self.rng)
        self.values.append(values)
        for kind, address in (("v", f"%rd0+{offset}"), ("u", f"%a1+{offset + 8 * (number % 32)}")):
            name = f"%{kind}{width}_{number}"
            self.declared.append(f".reg .{'pred' if width == 1 else f'b{width}'} {name};")
            if width > 1:
                self.setup.append(f"ld.global.b{width} {name}, [{address}];")
            else:
                self.setup.append(f"ld.global.b8 %h0, [{address}]; and.b16 %h0, %h0, 1; setp.ne.b16 {name}, %h0, 0;")

    def add(self, match, operands, guard=""):
        """guard: "@%v1_0 " for lanes in which it holds; the others keep what the destinations had."""
        destination, *sources = operands
        first, before = len(self.writers), [self._result(item) for item in self._parts(destination)]
        results = [f"%x{first + i}" for i in range(len(before))]
        self.expected.append((match, sources, guard, first, before))
        names, opcode = iter(results), match.string
        written = re.sub(r"%d\d+_\d+", lambda found: next(names), text(destination))
        self.body.append(f"{guard}{opcode} {', '.join([written, *map(text, sources)])};")
        self.writers[first:] = [self.body[-1]] * len(results)

    def _parts(self, destination):
        if isinstance(destination, Pair):
            return destination.first, destination.second
        return destination.items if isinstance(destination, Vector) else (destination,)

    def _result(self, like):
        """(width, register of the value before) of a new destination, which is stored in the end."""
        width, name = like.width, f"%x{len(self.writers)}"
        self.declared.append(f".reg .{'pred' if width == 1 else f'b{width}'} {name};")
        before = f"%v{width}_{self.rng.integers(EACH)}"
        move = {1: "mov.pred", 8: "cvt.u8.u8"}.get(width, f"mov.b{width}")
        self.setup.append(f"{move} {name}, {before};")
        source = name
        if width == 1:
            self.stores.append(f"selp.b32 %r0, 1, 0, {name};")
            source, width = "%r0", 32
        self.stores.append(f"st.global.b{width} [%rd1+{256 * len(self.writers)}], {source};")
        self.writers.append(None)
        return like.width, before

    def ptx(self, branch):
        """branch: the instructions are on one side of a branch that lanes take differently."""
        start, end = ("@%v1_2 bra AFTER;", "AFTER:") if branch else ("", "")
        head = "mul.wide.u32 %rd2, %tid, 8; add.s64 %rd0, %a1, %rd2; add.s64 %rd1, %a0, %rd2;"
        return "\n".join([*self.declared, head, *self.setup, start, *self.body, end, *self.stores])

    def bytes(self, branch):
        """Stored rows, the address of the parameters, and the instructions that call Python."""
        out, place = np.zeros((len(self.writers), 32), np.uint64), np.zeros(1, np.uint64)
        arrays, images = (out, np.stack(self.values), place), []
        kernel = entry(self.ptx(branch) + "mov.u64 %rd0, a0; st.global.b64 [%a2], %rd0;", 3)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(translate, "keep", lambda entry, linked, image, communication: images.append(image))
            launch_entry(kernel, [array.ctypes.data.to_bytes(8, "little") for array in arrays], arrays)
        (image,) = images
        return out, int(place[0]), image.without_kernel

    def value(self, name):
        """The row of a register that holds one of the values."""
        kind, width, number = re.fullmatch(r"%([uv])(\d+)_(\d+)", name).groups()
        number = int(number)
        row = self.values[WIDTHS.index(int(width)) * POOL + number]
        row = row if kind == "v" else np.full(32, row[number % 32])
        return row & 1 != 0 if width == "1" else row.astype(f"u{int(width) // 8}")

    def _operands(self, operand):
        """Rows and literals."""
        if isinstance(operand, Vector):
            return [row for item in operand.items for row in self._operands(item)]
        return [self.value(operand.name) if isinstance(operand, Register) else operand]

    def reference(self, branch, parameters):
        """The expected `bytes`."""
        out, flag = np.zeros((len(self.writers), 32), np.uint64), np.zeros(32, bool)
        executed = ~self.value("%v1_2") if branch else np.ones(32, bool)
        given = {"parameters": parameters, "parameter_bytes": 24} if self.name == "addresses" else {}
        for match, operands, guard, first, before in self.expected:
            lanes = executed
            if guard:
                holds = self.value(guard.strip("@! "))
                lanes = executed & (~holds if "!" in guard else holds)
            sources = [row for operand in operands for row in self._operands(operand)]
            sources += [flag] * (self.name == "carry")
            with np.errstate(all="ignore"):
                found = FAMILIES[self.name](match, [width for width, _ in before], sources, **given)
            if self.name == "carry" and ".cc." in match.string:
                flag = np.where(lanes, found[1], flag)
            for i, (_, name) in enumerate(before):
                out[first + i] = np.where(lanes, found[i], self.value(name))
        return out


def text(operand):
    if isinstance(operand, Pair):
        return f"{text(operand.first)}|{text(operand.second)}"
    if isinstance(operand, Vector):
        return "{" + ", ".join(map(text, operand.items)) + "}"
    if isinstance(operand, Immediate):
        return next((name for name, literal in LITERALS.items() if literal == operand), str(operand.value))
    return operand.name


def sorts_of(opcode):
    """The sorts of numbers that suit an opcode."""
    suited = [sort for sort in FLOATS if re.search(rf"(?<![a-z]){sort}(?!\d)", opcode)]
    return 3 * suited + ["integers", "counts", "bits"]


def drawn(row, match, form, kinds, extreme, rng):
    """The form's operands with registers of some sort and kind, extreme ones or others, or literals."""
    order = itertools.count()
    suited = sorts_of(match.string)
    sort = rng.choice(suited)

    def one(operand):
        if isinstance(operand, Vector):
            return Vector(tuple(map(one, operand.items)))
        if not isinstance(operand, Register):
            return operand
        chosen = sort if extreme or rng.random() < 0.7 else rng.choice(suited)
        place = EACH // 2 + next(order) % 2 if extreme else int(rng.integers(EACH))
        kind = "v" if "l" in kinds and operand is form[-1] else rng.choice([kind for kind in kinds if kind != "l"])
        return register(kind, operand.width, EACH * SORTS.index(chosen) + place)

    operands = [form[0], *map(one, form[1:])]
    if "v" in kinds and "u" in kinds and len(operands) > 1:
        place = int(rng.integers(1, len(operands)))
        literal = (*operands[:place], LITERALS[rng.choice(list(LITERALS))], *operands[place + 1 :])
        if is_legal(row, match, literal):
            return literal
    return tuple(operands)


@functools.cache
def program_of(name):
    """A program of the rows of a module."""
    program = Program(name)
    for row in ARITHMETIC[name]:
        for tried, opcode in enumerate(sampled(spellings(row.expression), SPELLINGS, program.rng)):
            match = row.pattern.fullmatch(opcode)
            for form in forms(row, match, 4 if tried < 4 else 1):
                program.patterns.add(row.expression)
                for kinds, guard in CASES:
                    extreme = kinds == "e"
                    operands = drawn(row, match, form, list("v" if extreme else kinds), extreme, program.rng)
                    program.add(match, operands, guard)
    return program


@pytest.mark.parametrize("branch", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["straight", "branch"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_kernels_and_the_reference_agree(name, branch):
    """No instruction calls Python, and of every row at least one opcode has operands that the test can write."""
    program = program_of(name)
    got, parameters, without_kernel = program.bytes(branch)
    wrong = np.flatnonzero((got != program.reference(branch, parameters)).any(axis=1)).tolist()
    assert got.any() and [program.writers[result] for result in wrong] == without_kernel == []
    untried = {row.expression for row in ARITHMETIC[name]} - program.patterns
    assert untried == {pattern for pattern in untried if "createpolicy\\.range" in pattern}


def test_every_row_has_kernels_and_an_operand_count():
    rows = [row for row in itertools.chain(*ARITHMETIC.values()) if row.kernels is None or not row.operands]
    assert [row.expression for row in rows] == []
