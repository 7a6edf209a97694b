"""GEMM and dual GEMM by `solve` in every configuration; the GPU or the emulator runs the kernel's PTX.

GEMM is compared bit for bit. The dual GEMM's exact sums do not fit float32 (reference.dual_gemm_ref_kernel), so it is
compared within the contest's tolerance, and nearly all of it is the nearest float16.
"""

import itertools

import pytest
import torch

import reference
import submission
from harness import plan_report
from tests.support.configurations import EMULATED, EVERY, label, label_with_products, solver
from tests.support.slow import sampled

REFERENCES = {1: reference.REFERENCES["gemm"], 2: reference.REFERENCES["dual_gemm"]}
NOT_NEAREST = 1e-3  # largest fraction of a dual GEMM's results that may not be the nearest float16


def generate(products, m, n, k, batches=1, seed=1):
    """A problem's input, with NaN in c."""
    data = REFERENCES[products].generate_input(m=m, n=n, k=k, l=batches, seed=seed)
    data[-1].fill_(float("nan"))
    return data


def guarded(data):
    """Data with a c of NaN, the memory that has guards of 777 around it, and the size of a guard."""
    m, n, batches = data[-1].shape
    guard, size = 256 * n, m * n * batches  # more rows than a tile has past M
    memory = torch.full((guard + size + guard,), 777.0, dtype=torch.float16, device="cuda")
    memory[guard : guard + size] = float("nan")
    c = memory[guard : guard + size].view(batches, m, n).permute(1, 2, 0)
    return (*data[:-1], c), memory, guard


def ordered(values):
    """The ranks of the float16 values as integers; both zeros have 0."""
    bits = values.contiguous().view(torch.int16).int()
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)


def compare(data, found, products):
    want = REFERENCES[products].ref_kernel(data)
    if products == 1:
        assert torch.equal(found.view(torch.int16), want.view(torch.int16))
        return
    passed, message = REFERENCES[products].compare(want, found)
    assert passed, message
    # Results are at most one spacing away; for sums that are small beside their terms, the tolerance suffices.
    distance = (ordered(found) - ordered(want)).abs()
    assert bool((distance[want.abs() > 1e-2] <= 1).all())
    assert int(distance.count_nonzero()) <= max(2, NOT_NEAREST * distance.numel())


def solve_and_compare(products, m, n, k, batches=1, seed=1, solve=submission.solve):
    data, memory, guard = guarded(generate(products, m, n, k, batches, seed))
    got = solve(data)
    assert got is data[-1], "solve returns the caller's tensor"
    compare(data, got.clone(), products)
    canaries = torch.cat([memory[:guard], memory[-guard:]])
    assert bool((canaries == 777.0).all()), "written outside of c"


# One configuration of one product is enough: test_kernel.py runs them all.
CONFIGURATIONS = [case for case in EVERY if case[1] == 2 or case[0] == (128, 2, 1, 1)]


@pytest.fixture(scope="module", params=sampled(CONFIGURATIONS, 12), ids=lambda case: label_with_products(*case))
def configuration(request):
    """A configuration's shape and products."""
    return request.param


def rows(shape):
    """Weight rows of one tile of one product, or of two tiles of two products."""
    return 128 * shape[1]


@pytest.mark.parametrize("past", sampled([8, 64, 72, 128], 2))
def test_a_ragged_problem(configuration, past):
    """Tiles past M and a short last k-tile; N ends within or at the end of a tile's first or second 64 rows.

    The first two of these leave the last tile of two products without rows.
    """
    shape, products = configuration
    solve_and_compare(products, 2 * shape[0] - 57, rows(shape) + past, 384, solve=solver(shape))


@pytest.mark.parametrize(
    ("shape", "products"),
    sampled(
        [((128, 1, 1, 2), 1), ((64, 1, 2, 1), 2), ((192, 2, 1, 1), 2), ((64, 1, 1, 2), 2), ((64, 2, 1, 2), 2)], 4, 2
    ),
)
def test_batches(shape, products):
    """Three batch entries are groups of one launch."""
    solve_and_compare(products, 9, 136, 320, 3, solve=solver(shape))


@pytest.mark.parametrize("shape", sampled([(128, 1, 1, 1), (64, 2, 2, 1), (128, 2, 1, 2), (64, 1, 1, 2)], 2), ids=label)
def test_batches_of_a_group_gemm(shape):
    """Groups of different sizes with one to three entries each, some without tokens."""
    sizes = [(70, 136, 1088, 3), (0, 128, 256, 2), (7, 264, 832, 1), (200, 8, 1024, 2)]
    inputs = [generate(1, m, n, k, batches, seed) for seed, (m, n, k, batches) in enumerate(sizes)]
    a, b, _, _, sfa, sfb, c = zip(*inputs)
    got = solver(shape)((list(zip(a, b, c)), None, list(zip(sfa, sfb)), sizes))
    assert all(ours is theirs for ours, theirs in zip(got, c)) and len(got) == len(c)
    for data in inputs:
        compare(data, data[-1].clone(), 1)


@pytest.mark.parametrize("shape", sampled([(64, 1, 1, 1), (64, 2, 1, 1), (64, 1, 1, 2), (64, 2, 1, 2)], 3), ids=label)
def test_many_tiles_of_two_products_per_cta(shape):
    """Stages, accumulators and the buffers of the exchange wrap, and the load warps change places in between."""
    solve_and_compare(2, 200, 2 * rows(shape) + 72, 1344, solve=solver(shape, sms=shape[1] * shape[3]))


@pytest.mark.slow
def test_more_batch_entries_than_one_launch_holds():
    solve_and_compare(2, 2, 8, 64, submission.MAX_GROUPS + 1)


@pytest.mark.parametrize("products", submission.PRODUCTS)
def test_without_tokens_nothing_is_launched(monkeypatch, products):
    monkeypatch.setattr(submission, "compiled", lambda plan: pytest.fail("launched"))
    data = generate(products, 0, 128, 256, 2, 1)
    assert submission.solve(data) is data[-1] and data[-1].shape == (0, 128, 2)


@pytest.mark.skipif(not EMULATED, reason="the emulator counts bytes")
def test_loads_read_what_the_schedule_says(configuration):
    """Requested bytes of each operand, counted launch by launch, against the schedule's formula."""
    import nogpu

    (shape, products), names = configuration, ["weights", "tokens", "weight SF", "token SF"]
    m, n, k = shape[0] + 10, 136, 320
    *inputs, _ = data = generate(products, m, n, k, 1, seed=6)
    operands = [inputs[1 : 1 + products], inputs[:1], inputs[-products:], inputs[-products - 1 : -products]]
    nogpu.reset_counters()
    solver(shape)(data)
    (counters,) = nogpu.counters()
    (launch,) = submission.configure(((m, n, k, 1),), submission.sm_count(0), False, products, (shape,))
    requested = {int(key.partition("@")[2] or key, 16): count for key, (count, _) in counters.per_allocation.items()}
    found = {
        name: sum(requested[tensor.untyped_storage().data_ptr()] for tensor in tensors)
        for name, tensors in zip(names, operands)
    }
    assert found == plan_report.requested(launch.schedule)


# ---- silu ----


def constant(rows, k, values, scale=1.0):
    """A [rows, K/2, 1] operand from a [rows, K/16] table of e2m1 codes, one for 16 elements, and its scales,
    row-major and reordered; scale: one value, or one for each row."""
    codes = values.to(torch.uint8).repeat_interleave(8, dim=1)
    packed = (codes | codes << 4).to("cuda").unsqueeze(0).contiguous()
    scales = (torch.ones(rows, k // 16, 1) * scale).to(torch.float8_e4m3fn).to("cuda")
    padding = torch.zeros(reference.atoms_shape(1, rows, k // 16), dtype=torch.uint8, device="cuda")
    return reference.pack_e2m1(packed), scales, reference.reorder_scales(scales, padding.view(torch.float8_e4m3fn))


GATES = (-1536.0, -448.0, -192.0, -104.0, -96.0, -88.0, -64.0, -6.0, -0.5, 0.0, 0.5, 6.0, 96.0, 192.0, 448.0, 1536.0)
UPS = (-2.0, -1.0, 0.0, 0.5, 1.0, 20.0)


@pytest.mark.parametrize("shape", sampled([(64, 1, 2, 1), (128, 2, 1, 1), (128, 2, 1, 2)], 3), ids=label)
def test_silu_to_the_limits(shape):
    """Gates at which 2^x overflows or vanishes, and 0. Each weight row has a gate and a factor of its own, both sums of
    16 equal products; the other k-tiles are zeros."""
    pairs = torch.tensor(list(itertools.product(GATES, UPS)), dtype=torch.float32)
    m, n, k = 64, len(pairs), 1024
    tokens = torch.zeros(m, 64, dtype=torch.int64)
    tokens[:, 0] = 0b0010  # code of the value 1

    def weights(values):
        """Values as 16 products of a scale and 0, 1 or -1; 4 or -4 where no scale is large enough."""
        codes = torch.zeros(n, 64, dtype=torch.int64)
        large = values.abs() > 16 * 448 / 8
        codes[:, 0] = torch.where(values == 0, 0, torch.where(large, 0b0110, 0b0010) | (values < 0) * 0b1000)
        return constant(n, k, codes, (values.abs() / torch.where(large, 64, 16)).view(n, 1, 1))

    a, sfa, sfa_reordered = constant(m, k, tokens)
    (b1, sfb1, sfb1_reordered), (b2, sfb2, sfb2_reordered) = weights(pairs[:, 0]), weights(pairs[:, 1])
    c = torch.full((1, m, n), float("nan"), dtype=torch.float16, device="cuda").permute(1, 2, 0)
    data = (a, b1, b2, sfa, sfb1, sfb2, sfa_reordered, sfb1_reordered, sfb2_reordered, c)
    solver(shape)(data)
    found, want = c.clone(), reference.dual_gemm_ref_kernel(data)
    gate, up = pairs.double().T
    exact = (gate * torch.sigmoid(gate) * up).expand(m, n)
    assert torch.allclose(want[:, :, 0].double().cpu(), exact, rtol=2**-10, atol=2**-24), "the scales hold these values"
    assert bool(found.isfinite().all())
    assert bool(((ordered(found) - ordered(want)).abs() <= 1).all()) and bool((found[want == 0] == 0).all())
