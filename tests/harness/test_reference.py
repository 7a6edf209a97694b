"""Inputs, reference results and comparison, against the contract computed element by element."""

import hashlib
import math
import operator
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import reference
from task import GROUP_GEMM, PROBLEMS, TestSpec
from tests.submissions import all_problems

SISTERS = ("dual_gemm", "gemm", "gemv")
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def as_bytes(tensor):
    return tensor.cpu().view(torch.uint8)


def as_bits(tensor):
    return tensor.cpu().view({1: torch.int8, 2: torch.int16}[tensor.element_size()])


@pytest.fixture(scope="module")
def data():
    return reference.generate_input(m=(40, 200), n=(136, 72), k=(64, 208), g=2, seed=1111)


def make(problem, m, n, k, batches, seed):
    """The problem's input; n is for problems that have one."""
    args = {"m": m, "n": n, "k": k, "l": batches, "seed": seed}
    return reference.REFERENCES[problem].generate_input(**{key: args[key] for key in PROBLEMS[problem].parameters})


def parts(data):
    """Values, row-major scales, reordered scales and c of a sister problem's tuple, the first three as lists."""
    count = len(data) // 3
    return data[:count], data[count : 2 * count], data[2 * count : 3 * count], data[3 * count]


def reordered_bytes(scales, padded):
    """The reordered bytes in memory order, by the position that the format gives to each row-major scale.

    scales: (mn, sf_k, l) bytes. padded: bytes in memory order that the scales overwrite in part.
    """
    flat, (_, rest_mn, rest_k, *_) = padded.flatten().tolist(), padded.shape
    rows, columns, batches = scales.shape
    for batch in range(batches):
        for row in range(rows):
            for scale in range(columns):
                atom = (batch * rest_mn + row // 128) * rest_k + scale // 4
                position = atom * 512 + (row % 32) * 16 + (row % 128 // 32) * 4 + scale % 4
                flat[position] = int(scales[row, scale, batch])
    return torch.tensor(flat, dtype=torch.uint8)


def in_memory_order(reordered):
    return as_bytes(reordered).permute(5, 2, 4, 0, 1, 3)


def test_shapes_and_layouts(data):
    assert data[3] == [(40, 136, 64, 1), (200, 72, 208, 1)]
    for (a, b, c), (sfa, sfb), (sfa_reordered, sfb_reordered), (m, n, k, _) in zip(*data):
        for tensor, rows in ((a, m), (b, n)):
            assert tensor.shape == (rows, k // 2, 1)
            assert tensor.stride()[:2] == (k // 2, 1)
            assert tensor.dtype == torch.float4_e2m1fn_x2
        assert (c.shape, c.stride()[:2], c.dtype) == ((m, n, 1), (n, 1), torch.float16)
        for tensor, reordered, rows in ((sfa, sfa_reordered, m), (sfb, sfb_reordered, n)):
            assert (tensor.shape, tensor.dtype) == ((rows, k // 16, 1), torch.float8_e4m3fn)
            rest_mn, rest_k = math.ceil(rows / 128), math.ceil(k / 64)
            assert (reordered.shape, reordered.dtype) == ((32, 4, rest_mn, 4, rest_k, 1), torch.float8_e4m3fn)
            assert reordered.permute(5, 2, 4, 0, 1, 3).is_contiguous()
        assert {tensor.device.type for tensor in (a, b, c, sfa_reordered, sfb_reordered)} == {"cuda"}
        assert {tensor.device.type for tensor in (sfa, sfb)} == {"cpu"}


def test_draws_follow_the_contests_order(data):
    torch.manual_seed(1111)
    for (a, b, c), (sfa, sfb), (sfa_reordered, sfb_reordered), (m, n, k, _) in zip(*data):
        for tensor, rows in ((a, m), (b, n)):
            drawn = torch.randint(255, size=(1, rows, k // 2), dtype=torch.uint8, device="cuda") & 0b10111011
            assert torch.equal(as_bytes(tensor), drawn.permute(1, 2, 0).cpu())
        assert torch.equal(c, torch.randn((1, m, n), dtype=torch.float16, device="cuda").permute(1, 2, 0))
        for tensor, rows in ((sfa, m), (sfb, n)):
            drawn = torch.randint(1, 3, (1, rows, k // 16), dtype=torch.int8)
            assert torch.equal(tensor.float(), drawn.permute(1, 2, 0).float())
        for tensor, scales, rows in ((sfa_reordered, sfa, m), (sfb_reordered, sfb, n)):
            shape = (1, math.ceil(rows / 128), math.ceil(k / 64), 32, 4, 4)
            padded = torch.randint(1, 3, shape, dtype=torch.int8, device="cuda").to(torch.float8_e4m3fn)
            want = reordered_bytes(as_bytes(scales), as_bytes(padded))
            found = in_memory_order(tensor).flatten()
            assert torch.equal(found, want)
            assert set(found.tolist()) == {0x38, 0x40}, "scales are 1 and 2, in the padding too"


@pytest.mark.parametrize("problem", SISTERS)
def test_shapes_and_layouts_of_the_sister_problems(problem):
    m, n, k, batches = 40, 136, 208, 3
    tensors = make(problem, m, n, k, batches, seed=1111)
    values, scales, reordered, c = parts(tensors)
    assert len(tensors) == 3 * len(values) + 1 == (10 if problem == "dual_gemm" else 7)
    rows_of = {"dual_gemm": (m, n, n), "gemm": (m, n), "gemv": (m, 128)}[problem]
    columns = 1 if problem == "gemv" else n
    assert (c.shape, c.dtype) == ((m, columns, batches), torch.float16)
    assert c.permute(2, 0, 1).is_contiguous()
    for value, scale, atoms, rows in zip(values, scales, reordered, rows_of):
        assert (value.shape, value.dtype) == ((rows, k // 2, batches), torch.float4_e2m1fn_x2)
        assert (scale.shape, scale.dtype) == ((rows, k // 16, batches), torch.float8_e4m3fn)
        assert value.permute(2, 0, 1).is_contiguous() and scale.permute(2, 0, 1).is_contiguous()
        assert atoms.shape == (32, 4, math.ceil(rows / 128), 4, math.ceil(k / 64), batches)
        assert atoms.dtype == torch.float8_e4m3fn
        assert atoms.permute(5, 2, 4, 0, 1, 3).is_contiguous()
    assert {tensor.device.type for tensor in tensors} == {"cuda"}


@pytest.mark.parametrize("problem", SISTERS)
def test_draws_of_the_sister_problems_follow_the_contests_order(problem):
    """The draws are every value, c, then per operand its row-major scales and the padding of the reordered ones."""
    m, n, k, batches = 40, 136, 208, 2
    values, scales, reordered, c = parts(make(problem, m, n, k, batches, seed=77))
    rows_of = {"dual_gemm": (m, n, n), "gemm": (m, n), "gemv": (m, 128)}[problem]

    def draw_integers(low, high, shape, dtype=torch.int8):
        return torch.randint(low, high, shape, dtype=dtype, device="cuda")

    torch.manual_seed(77)
    for value, rows in zip(values, rows_of):
        shape = (batches, rows, k // 2)
        if problem == "dual_gemm":
            drawn = draw_integers(0, 255, shape, torch.uint8) & 0b10111011
        elif problem == "gemm":
            drawn = draw_integers(-128, 128, shape).view(torch.uint8)
        else:
            drawn = draw_integers(0, 4, shape, torch.uint8)
        assert torch.equal(as_bytes(value), drawn.permute(1, 2, 0).cpu())
    drawn = torch.randn((batches, m, c.shape[1]), dtype=torch.float16, device="cuda")
    assert torch.equal(c, drawn.permute(1, 2, 0))
    for scale, atoms, rows in zip(scales, reordered, rows_of):
        shape, padded_shape = (batches, rows, k // 16), (batches, math.ceil(rows / 128), math.ceil(k / 64), 32, 4, 4)
        if problem == "dual_gemm":
            drawn = torch.rand(shape, device="cuda")
            padded = torch.full(padded_shape, 448.0)  # no draw, because the contest's padding is uninitialized
        else:
            end = {"gemm": 4, "gemv": 3}[problem]
            drawn = draw_integers(0, end, shape)
            padded = draw_integers(0, end, padded_shape).cpu()
        drawn, padded = drawn.cpu().to(torch.float8_e4m3fn), padded.to(torch.float8_e4m3fn)
        assert torch.equal(as_bytes(scale), as_bytes(drawn).permute(1, 2, 0))
        assert torch.equal(in_memory_order(atoms).flatten(), reordered_bytes(as_bytes(scale), as_bytes(padded)))


@pytest.mark.skipif(not torch.cuda.is_available() or "emulated" not in torch.cuda.get_device_name(), reason="CPU draws")
@pytest.mark.parametrize(
    ("problem", "sizes", "sha256"),
    [
        ("group_gemm", {"m": (40, 7), "n": (72, 8), "k": (208, 64), "g": 2}, "5d05879c03250296"),
        ("dual_gemm", {"m": 128, "n": 256, "k": 192, "l": 3}, "e99199973edc4c41"),
        ("gemm", {"m": 72, "n": 136, "k": 208, "l": 3}, "04cb3764626e3886"),
        ("gemv", {"m": 72, "k": 208, "l": 3}, "ec5fe978cd98dd86"),
    ],
)
def test_inputs_are_the_contests_own(problem, sizes, sha256):
    """Digests of the contest's generate_input for seed 5 under `python -m nogpu`.

    gpu-mode/reference-kernels at f83cb92, problems/nvidia/nvfp4_*/reference.py; the bytes of every tensor of the tuple
    in order, each as .contiguous() writes them. With these sizes the contest leaves no byte uninitialized.
    """

    def tensors(item):
        if isinstance(item, torch.Tensor):
            return [item]
        return [tensor for part in item for tensor in tensors(part)] if isinstance(item, (list, tuple)) else []

    digest = hashlib.sha256()
    for tensor in tensors(reference.REFERENCES[problem].generate_input(**sizes, seed=5)):
        digest.update(as_bits(tensor).contiguous().numpy().tobytes())
    assert digest.hexdigest()[:16] == sha256


def slow_product(a, b, sfa, sfb):
    def dequantize(values, scales):
        rows = []
        for packed, row_scales in zip(as_bytes(values[:, :, 0]).tolist(), scales[:, :, 0].float().tolist()):
            nibbles = [nibble for byte in packed for nibble in (byte & 15, byte >> 4)]
            signed = [(-1 if nibble & 8 else 1) * E2M1[nibble & 7] for nibble in nibbles]
            rows.append([value * row_scales[index // 16] for index, value in enumerate(signed)])
        return rows

    left, right = dequantize(a, sfa), dequantize(b, sfb)
    return torch.tensor([[sum(map(operator.mul, x, y)) for y in right] for x in left], dtype=torch.float64)


def test_ref_kernel_is_the_exact_product(data):
    before = [[as_bits(tensor).clone() for tensor in group] for group in data[0]]
    results = reference.ref_kernel(data)
    for (a, b, c), (sfa, sfb), result in zip(data[0], data[1], results):
        assert (result.shape, result.stride(), result.dtype, result.device) == (c.shape, c.stride(), c.dtype, c.device)
        assert torch.equal(result[:, :, 0].cpu(), slow_product(a, b, sfa, sfb).half())
    after = [[as_bits(tensor) for tensor in group] for group in data[0]]
    assert all(torch.equal(x, y) for old, new in zip(before, after) for x, y in zip(old, new)), "inputs are left alone"


def exact_reference(problem, data):
    """The reference's result, by float64 also on a B200."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "has_native_scaled_mm", lambda: False)
        return reference.REFERENCES[problem].ref_kernel(data)


def exact_product(a, b, sfa, sfb):
    """Exact product as rows of Fractions: batch entries of a (m, k // 2) times b (n, k // 2), element by element."""

    def dequantize(values, scales):
        rows = []
        for packed, row_scales in zip(as_bytes(values).tolist(), scales.float().cpu().tolist()):
            nibbles = [nibble for byte in packed for nibble in (byte & 15, byte >> 4)]
            signed = [Fraction(E2M1[nibble & 7]) * (-1 if nibble & 8 else 1) for nibble in nibbles]
            rows.append([value * Fraction(row_scales[index // 16]) for index, value in enumerate(signed)])
        return rows

    left, right = dequantize(a, sfa), dequantize(b, sfb)
    return [[sum(map(operator.mul, x, y)) for y in right] for x in left]


def exact_result(problem, data, batch):
    """The result by the problem's definition, element by element: rows of floats, not yet rounded to float16."""
    values, scales, _, c = parts([tensor[:, :, batch] if tensor.dim() == 3 else tensor for tensor in data])
    columns = c.shape[1]  # of a GEMV's b only the first row counts
    products = [exact_product(values[0], b[:columns], scales[0], sfb) for b, sfb in zip(values[1:], scales[1:])]
    if problem != "dual_gemm":
        return [list(map(float, row)) for row in products[0]]
    gate, up = ([list(map(float, row)) for row in rows] for rows in products)
    return [[x / (1 + math.exp(-x)) * y for x, y in zip(*rows)] for rows in zip(gate, up)]


@pytest.mark.parametrize("problem", SISTERS)
@settings(max_examples=12, deadline=None)
@given(
    m=st.integers(1, 9), n=st.integers(1, 7), k=st.sampled_from([16, 64, 80, 256]), batches=st.integers(1, 3),
    seed=st.integers(0, 2**31),
)  # fmt: skip
def test_sister_problems_results_are_exact(problem, m, n, k, batches, seed):
    data = make(problem, m, n, k, batches, seed)
    if problem == "gemv":
        rows = n % 2 * 127 + 1  # rows; only the first counts, and there may be only one
        data = tuple(tensor[:rows] if i in (1, 3) else tensor for i, tensor in enumerate(data))
    before, c = [as_bits(tensor).clone() for tensor in data], data[-1]
    result = exact_reference(problem, data)
    assert (result.shape, result.stride(), result.dtype, result.device) == (c.shape, c.stride(), c.dtype, c.device)
    want = np.array([exact_result(problem, data, batch) for batch in range(batches)]).astype(np.float16)
    assert torch.equal(result.permute(2, 0, 1).cpu(), torch.from_numpy(want))
    assert all(map(torch.equal, before, map(as_bits, data))), "inputs are left alone"


MIDDLE = 1 + 2**-11  # middle of two float16 values


@given(st.lists(st.floats(allow_nan=False, width=64), min_size=1))
@example([MIDDLE + 2**-40, MIDDLE - 2**-40, -MIDDLE - 2**-40, MIDDLE, MIDDLE + 2**-10, 0.0, -0.0])
@example([65519.999, 65520.0, 1e300, math.inf, -math.inf, 2**-25, 2**-25 + 2**-60, 1e-300, -1e-300])
def test_float64_is_rounded_once(values):
    found = reference.round_to_float16(torch.tensor(values, dtype=torch.float64))
    with np.errstate(over="ignore", under="ignore"):
        want = np.array(values).astype(np.float16)
    assert torch.equal(found.view(torch.int16), torch.from_numpy(want).view(torch.int16))


def test_rounding_and_every_e2m1_value():
    assert reference.round_to_float16(torch.tensor([math.nan], dtype=torch.float64)).isnan().all()
    single = torch.tensor([1.0, MIDDLE, 1e9, 1e-30])
    assert torch.equal(reference.round_to_float16(single), single.half())
    every_byte = torch.arange(256, dtype=torch.uint8, device="cuda").reshape(2, 128).view(torch.float4_e2m1fn_x2)
    scales = torch.tensor([[0.5] * 16, [448.0] * 16], device="cuda").to(torch.float8_e4m3fn)
    found = reference.dequantize(every_byte, scales).cpu().flatten().tolist()
    signed = E2M1 + [-value for value in E2M1]
    want = [signed[nibble] * (0.5 if byte < 128 else 448) for byte in range(256) for nibble in (byte & 15, byte >> 4)]
    assert found == want


@pytest.mark.parametrize("problem", SISTERS)
def test_float32_arithmetic_passes(problem):
    """Reordered scales are the source; in GEMM and GEMV every sum is exact in float32."""
    entry = reference.REFERENCES[problem]
    data = make(problem, 144, 200, 1024, 2, seed=3)
    expected = exact_reference(problem, data)
    passed, message = entry.compare(expected, all_problems.custom_kernel(data))
    assert passed and (problem == "dual_gemm" or message == "bit-exact"), message
    spacings = (as_bits(expected).int() - as_bits(data[-1]).int()).abs()
    assert (spacings > 1).sum() <= 2, "and dual GEMM's are one spacing away, unless a sum is near 0"


@pytest.mark.parametrize(
    "mistake", [lambda gate, up: torch.nn.functional.silu(up) * gate, lambda gate, up: gate * up, None]
)
def test_a_wrong_dual_gemm_is_noticed(mistake):
    entry = reference.REFERENCES["dual_gemm"]
    data = make("dual_gemm", 64, 32, 256, 1, seed=3)
    a, b1, b2, _, _, _, sfa, sfb1, sfb2, c = data
    gate, up = all_problems.product(a, b1, sfa, sfb1), all_problems.product(a, b2, sfa, sfb2)
    output = mistake(gate, up).half() if mistake else (torch.nn.functional.silu(gate).half() * up.half())
    passed, message = entry.compare(exact_reference("dual_gemm", data), output)
    assert not passed, "the last of these rounds to float16 between"
    assert message.startswith("c (64 x 32 x 1): ")


@pytest.mark.parametrize("problem", SISTERS)
def test_sizes_and_traffic_of_the_sister_problems(problem):
    m, n, k, batches = 40, 136, 208, 3
    entry, tensors = reference.REFERENCES[problem], make(problem, m, n, k, batches, seed=1)
    columns = 1 if problem == "gemv" else n
    rows = m + (2 * n if problem == "dual_gemm" else columns)
    assert entry.problem_sizes(tensors) == [(m, columns, k, batches)]
    assert entry.minimum_traffic(tensors) == (rows * (k // 2 + k // 16) * batches, 2 * m * columns * batches)
    assert (entry.rtol, entry.atol) == (1e-3, 1e-3)
    with pytest.raises(ValueError, match=r"k is \(64, 64\); expected an integer"):
        make(problem, 8, 8, (64, 64), 1, seed=1)


def extreme_operand(mn, k, value, scale):
    byte = E2M1.index(value) * 0x11
    values = torch.full((mn, k // 2), byte, dtype=torch.uint8, device="cuda").view(torch.float4_e2m1fn_x2)
    return values, torch.full((mn, k // 16), scale, device="cuda").to(torch.float8_e4m3fn)


def random_operand(mn, k, largest):
    values = torch.randint(0, 256, (mn, k // 2), dtype=torch.uint8, device="cuda").view(torch.float4_e2m1fn_x2)
    return values, torch.randint(-largest, largest + 1, (mn, k // 16), device="cuda").to(torch.float8_e4m3fn)


on_a_cpu = pytest.mark.skipif(not reference.is_emulated(), reason="a GPU multiplies in float64")


@on_a_cpu
@pytest.mark.parametrize("k", [16, 7168, reference._LARGEST_INT8_K])
def test_the_integer_product_is_the_float64_product(k):
    torch.manual_seed(k)
    for left, right in (
        (random_operand(3, k, 10), random_operand(5, k, 10)),
        (extreme_operand(2, k, 6.0, 10), extreme_operand(3, k, 6.0, -10)),
    ):
        arguments = left[0], right[0], left[1], right[1]
        assert reference.fits_int8(left[1], k) and reference.fits_int8(right[1], k)
        assert torch.equal(
            reference.integer_mm(*arguments).view(torch.int64), reference.float64_mm(*arguments).view(torch.int64)
        )


@on_a_cpu
@pytest.mark.parametrize(
    ("rows", "multiplies_int8", "expected"),
    [(16, True, "integer_mm"), (15, True, "integer_mm"), (16, False, "float64_mm"), (15, False, "integer_mm")],
)
def test_the_faster_way_is_chosen_by_the_cpu_and_the_number_of_rows(monkeypatch, rows, multiplies_int8, expected):
    left, right = random_operand(rows, 64, 3), random_operand(18, 64, 3)
    monkeypatch.setattr(reference, "multiplies_int8", lambda: multiplies_int8)
    for name in ("integer_mm", "float64_mm"):
        monkeypatch.setattr(reference, name, lambda *operands, name=name: name)
    for one, other in ((left, right), (right, left)):
        assert reference.exact_mm(one[0], other[0], one[1], other[1]) == expected


@on_a_cpu
@pytest.mark.parametrize("scale", [0.5, 11, 448, 2.0**-9, math.nan])
def test_scales_that_int8_cannot_hold_are_multiplied_in_float64(scale):
    """One such scale among others suffices, in either operand."""
    torch.manual_seed(1)
    left, right = random_operand(4, 64, 3), random_operand(6, 64, 3)
    for scales in (left[1], right[1]):
        kept = scales.clone()
        scales[2, 1] = scale
        arguments = left[0], right[0], left[1], right[1]
        found, want = reference.exact_mm(*arguments), reference.float64_mm(*arguments)
        assert torch.equal(found.isnan(), want.isnan()) and torch.equal(found.nan_to_num(), want.nan_to_num())
        scales.copy_(kept)
    assert not reference.fits_int8(left[1], 2 * reference._LARGEST_INT8_K)


def test_group_sizes_and_traffic(data):
    entry = reference.REFERENCES["group_gemm"]
    loads = sum((m + n) * (k // 2 + k // 16) for m, n, k, _ in data[3])
    assert entry.minimum_traffic(data) == (loads, sum(2 * m * n for m, n, _, _ in data[3]))
    assert entry.problem_sizes(data) == data[3]
    with pytest.raises(ValueError, match="n has 1 entries, g is 2"):
        reference.generate_input(m=(8, 8), n=(8,), k=(64, 64), g=2, seed=1)
    with pytest.raises(ValueError, match=r"m is 8; expected a list of g = 1 sizes, such as \[8\]"):
        reference.generate_input(m=8, n=(8,), k=(64,), g=1, seed=1)


@pytest.fixture(scope="module")
def expected(data):
    return reference.ref_kernel(data)


def spoiled(expected, group, index, value):
    output = [tensor.clone() for tensor in expected]
    output[group][index] = value
    return output


def test_exact_and_empty_results(data, expected):
    assert reference.check_implementation(data, [tensor.clone() for tensor in expected]) == (True, "bit-exact")
    assert reference.compare(expected[0], expected[0].clone(), 0, 0) == (True, "bit-exact")
    results = reference.ref_kernel(reference.generate_input(m=(0, 8), n=(8, 8), k=(64, 64), g=2, seed=1))
    assert [tuple(result.shape) for result in results] == [(0, 8, 1), (8, 8, 1)]


def test_the_tolerance(expected):
    index, total, spacing = (3, 2, 0), sum(tensor.numel() for tensor in expected), 2**-10  # spacing from 1 to 2
    expected = spoiled(expected, 1, index, 1)  # tolerance 0.002, which is 2.048 spacings
    for steps, passes in ((2, True), (3, False), (-2, True), (-4, True), (-5, False)):
        error = steps * spacing if steps > 0 else steps * spacing / 2
        passed, message = reference.compare(expected, spoiled(expected, 1, index, 1 + error), 1e-3, 1e-3)
        assert passed == passes, steps
        if passes:
            assert message == f"within tolerance: 1 of {total} elements differ, largest error {abs(error):g}"


def test_a_mismatch_says_how_much_and_where(expected):
    output = [tensor.clone() for tensor in expected]
    output[0][:, 7, 0] += 1
    output[0][5, 7, 0] += 2
    output[1][3, 2, 0] = 1000
    passed, message = reference.compare(expected, output, 1e-3, 1e-3)
    assert not passed
    first, second = message.split("\ngroup 1 ")
    assert first.startswith(
        "group 0 (40 x 136 x 1): 40 of 5440 elements differ, largest error 3\n    at [0, 7, 0]: got "
    )
    assert "and 35 more" in first
    assert second.startswith("(200 x 72 x 1): 1 of 14400 elements differ, largest error ")
    assert second.endswith(f"    at [3, 2, 0]: got 1000, want {expected[1][3, 2, 0].item():g}")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinities_must_match(expected, value):
    other = -math.inf if value == math.inf else math.inf
    special = spoiled(expected, 0, (1, 1, 0), value)
    assert reference.compare(special, special, 1e-3, 1e-3)[0]
    for want, got in ((expected, special), (special, expected), (spoiled(expected, 0, (1, 1, 0), other), special)):
        passed, message = reference.compare(want, got, 1e-3, 1e-3)
        assert not passed
        assert "1 of 5440 elements differ, 1 NaN or inf" in message


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda out: None, "output is of type NoneType, expected a list of 2 tensors"),
        (lambda out: out[0], "output is of type Tensor, expected a list of 2 tensors"),
        (lambda out: out[:1], "output has 1 tensors, expected 2"),
        (lambda out: [*out, out[0]], "output has 3 tensors, expected 2"),
        (lambda out: [out[0], None], "group 1: got NoneType, expected a tensor"),
        (lambda out: [out[0][:, :, 0], out[1]], "group 0: shape is (40, 136), expected (40, 136, 1)"),
        (lambda out: [out[0].float(), out[1]], "group 0: dtype is torch.float32, expected torch.float16"),
        (lambda out: [out[0], out[1].cpu()], "group 1: device is cpu, expected cuda:0"),
    ],
)
def test_an_output_of_another_form_is_refused(expected, spoil, message):
    assert reference.compare(expected, spoil(list(expected)), 1e-3, 1e-3) == (False, message)


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (10, 0), reason="no fp4 tensor cores"
)
@pytest.mark.parametrize("line", GROUP_GEMM.tests)
def test_torchs_scaled_mm_agrees_with_the_float64_product(monkeypatch, line):
    """The product comes from the tensor cores of a B200, or from the emulated device's own torch._scaled_mm."""
    data = reference.generate_input(**TestSpec.parse(line).args)
    monkeypatch.setattr(reference, "has_native_scaled_mm", lambda: False)
    exact = reference.ref_kernel(data)
    monkeypatch.setattr(reference, "has_native_scaled_mm", lambda: True)
    assert reference.compare(exact, reference.ref_kernel(data), 1e-3, 1e-3)[0]
    assert reference.compare(exact, reference.group_gemm_baseline(data), 1e-3, 1e-3)[0]


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (10, 0), reason="no fp4 tensor cores"
)
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("problem", SISTERS)
def test_torchs_scaled_mm_agrees_in_the_sister_problems(monkeypatch, problem, batches):
    entry = reference.REFERENCES[problem]
    data = make(problem, 256, 128, 512, batches, seed=2)
    exact = exact_reference(problem, data)
    assert entry.compare(exact, entry.baseline(data))[0]
    monkeypatch.setattr(reference, "has_native_scaled_mm", lambda: True)
    assert entry.compare(exact, entry.ref_kernel(data))[0]


@pytest.mark.parametrize(
    ("name", "capability", "native"),
    [
        ("NVIDIA B200", (10, 0), True),
        ("NVIDIA B200 (emulated)", (10, 0), False),
        ("NVIDIA H200", (9, 0), False),
    ],
)
def test_only_a_real_b200_multiplies_by_itself(monkeypatch, name, capability, native):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert reference.has_native_scaled_mm() == native
