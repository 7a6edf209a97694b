"""Inputs, reference results and comparison, against the contract written out the slow way."""

import math
import operator

import pytest
import torch

import reference
from task import GROUP_GEMM, TestSpec

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def as_bytes(tensor):
    return tensor.cpu().view(torch.uint8)


def as_bits(tensor):
    return tensor.cpu().view({1: torch.int8, 2: torch.int16}[tensor.element_size()])


@pytest.fixture(scope="module")
def data():
    return reference.generate_input(m=(40, 200), n=(136, 72), k=(64, 208), g=2, seed=1111)


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
            in_memory_order = reordered.permute(5, 2, 4, 0, 1, 3)
            assert in_memory_order.is_contiguous()
        assert {tensor.device.type for tensor in (a, b, c, sfa_reordered, sfb_reordered)} == {"cuda"}
        assert {tensor.device.type for tensor in (sfa, sfb)} == {"cpu"}


def test_draws_follow_the_contests_order(data):
    def reordered(scales, padded):
        """The reordered bytes in memory order, by the position that the format gives to each scale."""
        flat, (_, _, rest_k, *_) = padded.flatten().tolist(), padded.shape
        for row in range(scales.shape[0]):
            for scale in range(scales.shape[1]):
                atom = (row // 128) * rest_k + scale // 4
                flat[atom * 512 + (row % 32) * 16 + (row % 128 // 32) * 4 + scale % 4] = int(scales[row, scale, 0])
        return torch.tensor(flat, dtype=torch.uint8)

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
            want = reordered(as_bytes(scales), as_bytes(padded))
            found = as_bytes(tensor).permute(5, 2, 4, 0, 1, 3).flatten()
            assert torch.equal(found, want)
            assert set(found.tolist()) == {0x38, 0x40}, "scales are 1 and 2, in the padding too"


def test_sizes_must_match_the_group_count():
    with pytest.raises(ValueError, match="n has 1 entries, g is 2"):
        reference.generate_input(m=(8, 8), n=(8,), k=(64, 64), g=2, seed=1)
    with pytest.raises(ValueError, match=r"m is 8; expected a list of g = 1 sizes, such as \[8\]"):
        reference.generate_input(m=8, n=(8,), k=(64,), g=1, seed=1)


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


def test_every_e2m1_value_is_dequantized():
    every_byte = torch.arange(256, dtype=torch.uint8, device="cuda").reshape(2, 128).view(torch.float4_e2m1fn_x2)
    scales = torch.tensor([[0.5] * 16, [448.0] * 16], device="cuda").to(torch.float8_e4m3fn)
    found = reference.dequantize(every_byte, scales).cpu().flatten().tolist()
    signed = E2M1 + [-value for value in E2M1]
    want = [signed[nibble] * (0.5 if byte < 128 else 448) for byte in range(256) for nibble in (byte & 15, byte >> 4)]
    assert found == want


def test_empty_groups_have_empty_results():
    results = reference.ref_kernel(reference.generate_input(m=(0, 8), n=(8, 8), k=(64, 64), g=2, seed=1))
    assert [tuple(result.shape) for result in results] == [(0, 8, 1), (8, 8, 1)]


def test_minimum_traffic(data):
    entry = reference.REFERENCES["group_gemm"]
    loads = sum((m + n) * (k // 2 + k // 16) for m, n, k, _ in data[3])
    assert entry.minimum_traffic(data) == (loads, sum(2 * m * n for m, n, _, _ in data[3]))
    assert entry.problem_sizes(data) == data[3]


@pytest.fixture(scope="module")
def expected(data):
    return reference.ref_kernel(data)


def spoiled(expected, group, index, value):
    output = [tensor.clone() for tensor in expected]
    output[group][index] = value
    return output


def test_an_exact_output_passes(data, expected):
    assert reference.check_implementation(data, [tensor.clone() for tensor in expected]) == (True, "bit-exact")
    assert reference.compare(expected[0], expected[0].clone(), 0, 0) == (True, "bit-exact")


def test_the_tolerance(expected):
    index, total, spacing = (3, 2, 0), sum(tensor.numel() for tensor in expected), 2**-10  # of float16 from 1 to 2
    expected = spoiled(expected, 1, index, 1)  # allows 0.002, which is 2.048 spacings
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
    """By the tensor cores of a B200, or by the emulated device's own torch._scaled_mm."""
    data = reference.generate_input(**TestSpec.parse(line).args)
    monkeypatch.setattr(reference, "has_native_scaled_mm", lambda: False)
    exact = reference.ref_kernel(data)
    monkeypatch.setattr(reference, "has_native_scaled_mm", lambda: True)
    assert reference.compare(exact, reference.ref_kernel(data), 1e-3, 1e-3)[0]
    assert reference.compare(exact, reference.group_gemm_baseline(data), 1e-3, 1e-3)[0]


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
