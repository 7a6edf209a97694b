"""wmma: matrices of every shape, type and order in memory, against NumPy."""

import ml_dtypes
import numpy as np
import pytest

from nogpu.compiler import wmma
from nogpu.errors import EmulatorError
from tests.isa.test_warp_mma import DTYPES, drawn, operand, product, sizes
from tests.support.ptxas import assembles
from tests.support.small_kernels import launch

FORMS = [(shape, of_ab, d) for of_ab, (results, shapes, _) in wmma._FORMS.items() for shape in shapes for d in results]
ORDERS = [("row", "col", "row"), ("col", "row", "col"), ("row", "row", "col"), ("col", "col", "row")]


def orders_of(of_ab):
    """The orders of A, B and C that a type has."""
    return [("row", "col", order) for order in ("row", "col")] if of_ab in ("s4", "u4") else ORDERS


CASES = [(*form, orders) for form in FORMS for orders in orders_of(form[1])]


def stored(matrix, type_name, order, stride):
    """The bytes of a matrix in memory whose lines are `stride` elements apart."""
    lines = matrix if order == "row" else matrix.T
    wide = np.zeros((len(lines), stride), np.float64)
    wide[:, : lines.shape[1]] = lines
    if type_name in ("s4", "u4"):
        codes = wide.astype(np.int64) & 15
        return (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)
    if type_name in ("s8", "u8"):
        return wide.astype(np.int64).astype(np.uint8)
    return wide.astype(DTYPES["f32" if type_name == "tf32" else type_name])


def names(shape, of_ab, d):
    """(kind of register, registers in braces) of A, B, C and D."""
    found = []
    for first, fragment in (
        (0, wmma._operand(of_ab, shape, "a")),
        (10, wmma._operand(of_ab, shape, "b")),
        (20, wmma._result(d, shape)),
        (30, wmma._result(d, shape)),
    ):
        kind = "d" if fragment.bits == 64 else "f" if fragment.type_name == "f32" else "w"
        found.append(operand("", kind, first, len(fragment.places) * fragment.copies))
    return found


def opcodes(shape, of_ab, d, orders, space=".global", modifiers=""):
    """Opcodes of the loads of A, B and C, of the product and the store."""
    a_order, b_order, c_order = orders
    loads = [
        f"wmma.load.{matrix}.sync.aligned.{order}.{shape}{space}.{type_name}"
        for matrix, order, type_name in (("a", a_order, of_ab), ("b", b_order, of_ab), ("c", c_order, d))
    ]
    middle = "" if of_ab == "f16" else f".{of_ab}.{of_ab}"
    multiply = f"wmma.mma.sync.aligned.{a_order}.{b_order}.{shape}.{d}{middle}.{d}{modifiers}"
    return [*loads, multiply, f"wmma.store.d.sync.aligned.{c_order}.{shape}{space}.{d}"]


REGISTERS = ".reg .b32 %w<60>, %s<4>; .reg .f32 %f<60>; .reg .b64 %d<60>, %q<4>;"


def text(shape, of_ab, d, orders, strides, addresses=("%a1", "%a2", "%a3", "%a0"), space=".global", modifiers=""):
    """PTX of loads, product and store. strides: texts behind the operands, of A, B and C."""
    a, b, c, result = names(shape, of_ab, d)
    ops = opcodes(shape, of_ab, d, orders, space, modifiers)
    lines = [f"{op} {x}, [{at}]{stride};" for op, x, at, stride in zip(ops, (a, b, c), addresses, strides)]
    lines.append(f"{ops[3]} {result}, {a}, {b}, {c};")
    return "\n".join([*lines, f"{ops[4]} [{addresses[3]}], {result}{strides[2]};"])


def matrices(shape, of_ab, d, seed=1):
    m, n, k = sizes(shape)
    rng = np.random.default_rng(seed)
    if d == "s32":
        return drawn(rng, (m, k), of_ab), drawn(rng, (k, n), of_ab), rng.integers(-100, 100, (m, n))
    kind = DTYPES["f32" if of_ab == "tf32" else of_ab]
    a, b = (rng.normal(size=size).astype(kind) for size in ((m, k), (k, n)))
    if of_ab == "tf32":
        a, b = ((x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b))
    return a.astype(np.float64), b.astype(np.float64), rng.normal(size=(m, n)).astype(DTYPES[d]).astype(np.float64)


def expected_of(a, b, c, d):
    if d == "s32":
        return (a @ b + c).astype(np.int32)
    if d == "f64":  # fused, in order of k: as near as that, not the same
        return a @ b + c
    return product(a, b, c, np.dtype(DTYPES[d]))


def run(shape, of_ab, d, orders, padding=None, registers=False, **options):
    """(D, what is expected of it). padding: elements behind each line, None: no stride is given."""
    a, b, c = matrices(shape, of_ab, d)
    data, strides = [], []
    for matrix, type_name, order in zip((a, b, c), (of_ab, of_ab, d), orders):
        stride = matrix.shape[order == "row"] + (padding or 0)
        data.append(np.ascontiguousarray(stored(matrix, type_name, order, stride)))
        strides.append(stride)
    out = np.zeros_like(data[2])
    head, behind = REGISTERS, [""] * 3
    if padding is not None:
        behind = [f", {stride}" for stride in strides]
    if registers:
        head += "".join(f"mov.u32 %s{i}, {stride};" for i, stride in enumerate(strides))
        behind = [f", %s{i}" for i in range(3)]
    launch(head + text(shape, of_ab, d, orders, behind, **options), out, *data)
    lines = out[:, : out.shape[1] - (padding or 0)]
    assert not out[:, lines.shape[1] :].any()
    return lines if orders[2] == "row" else lines.T, expected_of(a, b, c, d)


def check(found, expected):
    if found.dtype == np.float64:
        assert np.allclose(found, expected, rtol=0, atol=1e-14)
    else:
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("shape,of_ab,d,orders", CASES)
def test_products(shape, of_ab, d, orders):
    check(*run(shape, of_ab, d, orders))


@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.parametrize(
    "shape,of_ab,d", [("m16n16k16", "bf16", "f32"), ("m8n32k16", "s8", "s32"), ("m32n8k16", "f16", "f16")]
)
def test_strides(shape, of_ab, d, orders, registers):
    check(*run(shape, of_ab, d, orders, padding=16, registers=registers))


def test_modifiers_in_any_order():
    a = np.zeros((16, 16), ml_dtypes.bfloat16)
    launch(f"{REGISTERS} wmma.load.a.m16n16k16.global.row.aligned.sync.bf16 {operand('', 'w', 0, 4)}, [%a0];", a)


@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize("space", ["", ".shared", ".shared::cta"])
def test_spaces(space, registers):
    """A of bf16 in shared memory, by a 32-bit or a generic address."""
    shape, orders = "m16n16k16", ("col", "col", "row")
    a, b, c = matrices(shape, "bf16", "f32")
    data = [stored(x, t, order, 16) for x, t, order in zip((a, b, c), ("bf16", "bf16", "f32"), orders)]
    out = np.zeros((16, 16), np.float32)
    names_of = names(shape, "bf16", "f32")
    lines = text(shape, "bf16", "f32", orders, [", 16"] * 3).splitlines()
    at = "%q0" if space == "" else "%s0"
    stride = "%s1" if registers else "16"
    lines[0] = f"wmma.load.a.sync.aligned.col.{shape}{space}.bf16 {names_of[0]}, [{at}+32], {stride};"
    copy = """mov.u32 %s1, 16; mov.u32 %s0, smem; cvt.u64.u32 %q0, %s0; cvta.shared.u64 %q0, %q0;
    mad.wide.u32 %q1, %tid, 16, %a1;
    ld.global.v4.b32 {%w50, %w51, %w52, %w53}, [%q1]; mad.lo.u32 %s2, %tid, 16, %s0;
    st.shared.v4.b32 [%s2+32], {%w50, %w51, %w52, %w53}; bar.warp.sync -1;"""
    launch(REGISTERS + copy + "\n".join(lines), out, *map(np.ascontiguousarray, data))
    check(out, expected_of(a, b, c, "f32"))


@pytest.mark.parametrize("of_d,of_c", [("f16", "f32"), ("f32", "f16")])
@pytest.mark.parametrize("shape", wmma._SQUARE)
def test_c_and_d_of_different_types(shape, of_d, of_c):
    a, b, c = matrices(shape, "f16", of_c)
    data = [np.ascontiguousarray(x.astype(DTYPES[t])) for x, t in ((a, "f16"), (b, "f16"), (c, of_c))]
    out = np.zeros(c.shape, DTYPES[of_d])
    left, right, third, _ = names(shape, "f16", of_c)
    result = names(shape, "f16", of_d)[3]
    body = [
        f"wmma.load.{x}.sync.aligned.row.{shape}.global.{t} {to}, [%a{i}];"
        for i, (x, t, to) in enumerate((("a", "f16", left), ("b", "f16", right), ("c", of_c, third)), 1)
    ]
    body.append(f"wmma.mma.sync.aligned.row.row.{shape}.{of_d}.{of_c} {result}, {left}, {right}, {third};")
    body.append(f"wmma.store.d.sync.aligned.row.{shape}.global.{of_d} [%a0], {result};")
    launch(REGISTERS + "\n".join(body), out, *data)
    assert np.array_equal(out, product(a, b, c, np.dtype(np.float32)).astype(DTYPES[of_d]))


@pytest.mark.parametrize("first", [0, 10, 21])
def test_the_result_may_overwrite_operands(first):
    """D in the registers of A, of B, or in those of C by one further."""
    shape = "m16n16k8"
    a, b, c = matrices(shape, "tf32", "f32")
    data = [np.ascontiguousarray(x.astype(np.float32)) for x in (a, b, c)]
    out = np.zeros((16, 16), np.float32)
    orders = ("row", "row", "row")
    lines = text(shape, "tf32", "f32", orders, [""] * 3).replace("%f", "%w")
    lines = lines.replace(operand("", "w", 30, 8), operand("", "w", first, 8))
    launch(REGISTERS + lines, out, *data)
    check(out, expected_of(a, b, c, "f32"))


@pytest.mark.parametrize("saturates", [False, True])
def test_sums_of_integers_that_overflow(saturates):
    data = [np.full((16, 16), 127, np.uint8)] * 2 + [np.full((16, 16), (1 << 31) - 1, np.int32)]
    out = np.zeros((16, 16), np.int32)
    modifiers = ".satfinite" if saturates else ""
    body = text("m16n16k16", "s8", "s32", ("row", "col", "row"), [""] * 3, modifiers=modifiers)
    launch(REGISTERS + body, out, *(x.copy() for x in data))
    total = (1 << 31) - 1 + 16 * 127 * 127
    assert set(out.ravel().tolist()) == {(1 << 31) - 1 if saturates else total - (1 << 32)}


def test_all_lanes_take_part_with_one_address():
    a = np.zeros((16, 16), ml_dtypes.bfloat16)
    load = f"wmma.load.a.sync.aligned.row.m16n16k16.global.bf16 {operand('', 'w', 0, 4)}, "
    with pytest.raises(EmulatorError, match="wmma needs all 32 lanes"):
        launch(f"{REGISTERS} setp.gt.u32 %p1, %tid, 7; @%p1 bra END; {load} [%a0]; END:", a)
    with pytest.raises(EmulatorError, match="the same in all active lanes"):
        launch(f"{REGISTERS} mad.wide.u32 %q0, %tid, 4, %a0; {load} [%q0];", a)
    with pytest.raises(EmulatorError, match="the same in all active lanes"):
        launch(f"{REGISTERS} and.b32 %s0, %tid, 16; {load} [%a0], %s0;", a)
    launch(f"{REGISTERS} setp.gt.u32 %p1, %tid, 31; @%p1 {load} [%a0];", a)


@pytest.mark.parametrize(
    "line,reason",
    [
        ("wmma.load.a.sync.aligned.row.m16n16k8.global.bf16 {%w0,%w1,%w2,%w3}, [%a0];", "no shape .m16n16k8"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.bf16 {%w0,%w1,%w2}, [%a0];", "3 registers, 4 expected"),
        ("wmma.load.a.sync.aligned.row.m8n8k128.global.b1 %w0, [%a0];", "is not modelled"),
        ("wmma.load.d.sync.aligned.row.m16n16k8.global.f32 {%f0,%f1}, [%a0];", r"wmma\.load\.d"),
        ("wmma.load.b.sync.aligned.row.m8n8k32.global.s4 %w0, [%a0];", r"A of \.s4 is \.row and B \.col"),
        ("wmma.load.a.sync.aligned.row.m8n8k4.global.f64 %d0, [%a0], 4, 4;", "4 operands"),
        ("wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f32 {%d0,%d1}, %d2, %d3, {%d0,%d1};", "no combination"),
        ("wmma.mma.sync.aligned.row.col.m8n8k4.rn.f64.f64.f64.f64 {%d0,%d1}, %d2, %d3;", "3 operands"),
    ],
)
def test_what_is_refused(line, reason):
    with pytest.raises(EmulatorError, match=reason):
        launch(REGISTERS + line, np.zeros((16, 16), np.float32))


def test_ptxas_takes_the_same_forms():
    """Combinations, orders and numbers of registers are those of sm_100a."""
    body = "".join(text(*case, [", 32"] * 3) for case in CASES)
    head = ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k() {\n.reg .b64 %a<4>;"
    assert assembles(f"{head} {REGISTERS} {body} ret; }}", "sm_100a")
