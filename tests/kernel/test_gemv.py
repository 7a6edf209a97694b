"""GEMV, C^T of one token by the GEMM kernel: its own calls, and the one row of b that counts."""

import functools
import re

import pytest
import torch

import reference
import submission
import task
from tests.support.configurations import EMULATED, SINGLE, label, set_chip, solver
from tests.support.slow import sampled

SCHEDULES = ("late", "eager", "random:2")
A, B, SFA, SFB, SFA_REORDERED, SFB_REORDERED, C = range(7)
NAN = 0x7F  # code of a scale


def operand(rows, k, batches):
    """e2m1 values of every code, and row-major scales of 0 to 3."""
    values = torch.randint(0, 256, (batches, rows, k // 2), dtype=torch.uint8, device="cuda")
    scales = torch.randint(0, 4, (rows, k // 16, batches), device="cuda").to(torch.float8_e4m3fn)
    return reference.pack_e2m1(values), scales


def reordered(scales):
    """Scales in the kernel's order, NaN in rows past the last."""
    rows, blocks, batches = scales.shape
    padding = torch.full(reference.atoms_shape(batches, rows, blocks), NAN, dtype=torch.uint8, device="cuda")
    return reference.reorder_scales(scales, padding.view(torch.float8_e4m3fn))


def generate(m, k, batches=1, b_rows=128, seed=1):
    """A call's tuple, with NaN in c and in the scales of all rows of b but the first."""
    torch.manual_seed(seed)
    (a, sfa), (b, sfb) = operand(m, k, batches), operand(b_rows, k, batches)
    sfb.view(torch.uint8)[1:] = NAN
    c = torch.full((batches, m, 1), torch.nan, dtype=torch.float16, device="cuda").permute(1, 2, 0)
    return a, b, sfa, sfb, reordered(sfa), reordered(sfb), c


def same(ours, theirs):
    return torch.equal(ours.contiguous().view(torch.int16), theirs.contiguous().view(torch.int16))


def right(data):
    return same(data[C].clone(), reference.gemv_ref_kernel(data))


def solve_and_compare(data, solve=submission.solve):
    assert solve(data) is data[C], "solve returns the caller's tensor"
    assert right(data)


# ---- The kernel ----


def sizes_of(spec):
    return {name: int(value) for name, value in re.findall(r"(\w+): (\d+)", spec)}


CHEAP = [spec for spec in task.GEMV.tests if sizes_of(spec)["m"] * sizes_of(spec)["k"] * sizes_of(spec)["l"] < 400_000]
assert len(CHEAP) == 3, "the others are those of `eval.py test`"


@pytest.mark.parametrize("spec", CHEAP)
def test_contest_tests(monkeypatch, spec):
    set_chip(monkeypatch, SCHEDULES)
    data = reference.generate_gemv_input(**sizes_of(spec))
    data[C].fill_(torch.nan)
    solve_and_compare(data)


@pytest.mark.parametrize("shape", sampled(SINGLE, 10), ids=label)
def test_every_configuration(shape):
    """Tiles past M and a short last k-tile, in a launch of three groups."""
    solve_and_compare(generate(128 * shape.cta_group + 136, 320, 3), solver(shape))


@pytest.mark.parametrize(
    ("m", "k", "batches", "sms"), [(8, 64, 1, 1), (8, 1088, 3, 3), (136, 448, 2, 1), (264, 64, 1, 148)]
)
def test_ragged_shapes(m, k, batches, sms):
    solve_and_compare(generate(m, k, batches, seed=m + k), functools.partial(submission.solve, sms=sms))


@pytest.mark.parametrize("b_rows", [1, 5, 128, 129, 300])
def test_the_first_row_of_b_counts(b_rows):
    """Scales of the other rows are NaN in every batch."""
    solve_and_compare(generate(8, 448, 3, b_rows))


def inside(tensor, poison):
    """A copy of the tensor between two areas of poison of at least its size, the buffer, and the copy's slice of it."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    packed = tensor.permute(order)
    guard = -(-max(tensor.nbytes, 1 << 14) // 32) * 32
    buffer = torch.full((guard + tensor.nbytes + guard,), poison, dtype=torch.uint8, device="cuda")
    middle = buffer[guard : guard + tensor.nbytes]
    middle[:] = packed.contiguous().view(torch.uint8).flatten()
    view = middle.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())
    return view, buffer, slice(guard, guard + tensor.nbytes)


@pytest.mark.parametrize(("m", "k", "batches", "b_rows"), [(8, 64, 1, 1), (136, 1088, 3, 128)])
def test_nothing_outside_is_used_or_written(m, k, batches, b_rows):
    """The buffers have poison around every operand, and canaries around c."""
    a, b, sfa, sfb, *of_kernel, c = data = generate(m, k, batches, b_rows)
    want = reference.gemv_ref_kernel(data)
    poisons = (a, 0x77), (b, 0x77), *((scales, NAN) for scales in of_kernel), (c, 0x5A)
    poisoned = [inside(tensor, poison) for tensor, poison in poisons]
    before = [buffer.clone() for _, buffer, _ in poisoned]
    a, b, *of_kernel, c = [tensor for tensor, _, _ in poisoned]
    submission.solve((a, b, sfa, sfb, *of_kernel, c))
    found, where = [buffer.clone() for _, buffer, _ in poisoned], poisoned[-1][2]
    assert all(torch.equal(*pair) for pair in zip(found[:-1], before[:-1])), "operands stay as they are"
    assert same(found[-1][where].view(torch.float16), want.permute(2, 0, 1).flatten())
    assert torch.equal(found[-1][: where.start], before[-1][: where.start])
    assert torch.equal(found[-1][where.stop :], before[-1][where.stop :])


def as_operand(halves, rows):
    """Bytes of a contiguous float16 tensor, read as e2m1 [rows, K/2, 1]; e2m1 has no NaN."""
    return halves.view(torch.uint8).view(1, rows, -1).view(torch.float4_e2m1fn_x2).permute(1, 2, 0)


@pytest.mark.parametrize("output_free", [False, True])
def test_a_gemm_between_two_gemvs(monkeypatch, output_free):
    """Calls of different plans on the same SMs, each with the previous output as an operand."""
    if EMULATED:
        set_chip(monkeypatch, SCHEDULES, 2)
    first, last = generate(128, 64, seed=1), generate(24, 512, b_rows=1, seed=2)
    (((_, b, c),), *rest) = reference.generate_input(m=(2,), n=(128,), k=(256,), g=1, seed=3)
    gemm = ([(as_operand(first[C].permute(2, 1, 0), 2), b, c)], *rest)
    last = (last[A], as_operand(c.permute(2, 0, 1)[:, :1], 1), *last[SFA:])
    for data in (first, gemm, last):
        submission.solve(data, output_free=output_free, sms=2 if EMULATED else None)
    assert right(first) and right(last)
    assert same(c.clone(), reference.ref_kernel(gemm)[0])


# ---- Refused calls ----


def with_changed(data, changes):
    return tuple(changes[index](entry) if index in changes else entry for index, entry in enumerate(data))


@pytest.fixture
def unlaunched(monkeypatch):
    """Launches fail, and earlier calls' layouts are forgotten."""
    submission.tensor_layouts.cache_clear()
    monkeypatch.setattr(submission, "compiled", lambda plan: pytest.fail("launched"))


def shifted(tensor):
    """Zeros in the tensor's layout, 8 bytes past a multiple of 16."""
    buffer = torch.zeros(tensor.nbytes + 64, dtype=torch.uint8, device="cuda")
    start = -buffer.data_ptr() % 16 + 8
    return buffer[start : start + tensor.nbytes].view(tensor.dtype).as_strided(tensor.shape, tensor.stride())


def with_rows_apart(tensor):
    rows, columns, batches = tensor.shape
    buffer = torch.zeros(2 * tensor.nbytes, dtype=torch.uint8, device="cuda").view(tensor.dtype)
    return buffer.as_strided(tensor.shape, (2 * columns, 1, 2 * rows * columns))


VIOLATIONS = {
    "a's dtype": (A, lambda t: t.view(torch.uint8), r"^a has dtype torch.uint8; expected torch.float4_e2m1fn_x2"),
    "c's dtype": (C, lambda t: t.float(), r"^c has dtype torch.float32; expected torch.float16"),
    "sfa on the CPU": (SFA_REORDERED, lambda t: t.cpu(), r"^sfa is on cpu; expected the current device, cuda:"),
    "c on the CPU": (C, lambda t: t.cpu(), r"^c is on cpu; expected the current device, cuda:"),
    "b's K": (B, lambda t: t[:, :64], r"^b has shape \(128, 64, 2\); expected \(128, 128, 2\)"),
    "sfa's rows": (SFA_REORDERED, lambda t: t[:, :, :1], r"^sfa has shape .*; expected \(32, 4, 2, 4, 4, 2\)"),
    "sfb row-major": (SFB_REORDERED, lambda t: t[0, 0], r"^sfb has shape .*; expected \(32, 4, 1, 4, 4, 2\)"),
    "c's rows": (C, lambda t: t[:128], r"^c has shape \(128, 1, 2\); expected \(136, 1, 2\)"),
    "b's L": (B, lambda t: t[:, :, :1], r"^b has shape \(128, 128, 1\); expected \(128, 128, 2\)"),
    "a's rows apart": (A, with_rows_apart, r"^a has strides \(256, 1, 34816\); expected \(128, 1, 17408\)"),
    "c's rows apart": (C, with_rows_apart, r"^c has strides \(2, 1, 272\); expected \(1, 1, 136\)"),
    "b misaligned": (B, shifted, r"^b starts at address 0x\w+; loads need a multiple of 16 bytes, not 0"),
    "no sfb": (SFB_REORDERED, lambda t: None, r"^sfb is a NoneType; expected a torch.Tensor"),
    "no b": (B, lambda t: None, r"^b is NoneType; expected a tensor of 3 dimensions"),
    "M 132": (
        A,
        lambda t: t[:132],
        r"^m is 132; it must be 8 to \d+, a multiple of 8: .* c must be a multiple of 16 b",
    ),
    "M 0": (A, lambda t: t[:0], r"^m is 0; it must be 8 to"),
    "K 96": (A, lambda t: t[:, :48], r"^k is 96; it must be 64 to \d+, a multiple of 64"),
    "K 0": (A, lambda t: t[:, :0], r"^k is 0; it must be 64 to"),
    "L 0": (A, lambda t: t[:, :, :0], r"^l is 0; it must be 1 to"),
    "b without rows": (B, lambda t: t[:0], r"^rows of b is 0; it must be 1 to"),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_violations_name_the_tensor_and_the_limit(unlaunched, name):
    index, change, message = VIOLATIONS[name]
    with pytest.raises(ValueError, match=message):
        submission.solve(with_changed(generate(136, 256, 2), {index: change}))


@pytest.mark.parametrize("columns", [2, 8])
def test_wider_c_is_a_gemm_s(columns):
    data = reference.generate_gemm_input(m=5, n=8, k=64, l=1, seed=1)
    data = with_changed(data, {C: lambda t: t[:, :columns], B: lambda t: t[:columns]})
    assert submission.unpack(data).products == 1
    if columns == 2:
        with pytest.raises(ValueError, match="^n is 2; it must be 8"):
            submission.solve(data)
    assert submission.unpack(generate(8, 64)).products == 0


def test_row_major_scales_are_not_looked_at():
    data = generate(8, 256, 2)
    want = reference.gemv_ref_kernel(data)
    found = submission.solve((*data[:SFA], "anything", 3, *data[SFA_REORDERED:]))
    assert same(found.clone(), want)
