"""The contest's inputs, reference results and check, one Reference per problem (REFERENCES).

The module-level generate_input, ref_kernel and check_implementation are group GEMM's: the names that the contest's own
file has. An ordinary CUDA program: everything is on device "cuda" but the row-major scales, which the contest makes and
keeps on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from task import input_t, output_t

SF_VECTOR = 16  # consecutive K elements that share a scale
SF_ATOM_ROWS = 128  # a reordered scale atom: 128 rows x 4 scales = 512 bytes
SF_ATOM_SCALES = 4
MISMATCHES_SHOWN = 5

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_INTEGER_OF_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32}


@dataclass(frozen=True)
class Reference:
    """What one problem's outputs are checked against.

    data is the problem's input tuple, an output is a tensor or a list of tensors, as the problem defines.
    """

    generate_input: Callable[..., tuple]
    ref_kernel: Callable[[tuple], Any]  # data -> expected output; leaves data as it is
    baseline: Callable[[tuple], Any]  # data -> output by torch's own kernels, from device memory only, to be timed
    problem_sizes: Callable[[tuple], list[tuple[int, int, int, int]]]  # data -> (m, n, k, l) of each GEMM
    minimum_traffic: Callable[[tuple], tuple[int, int]]  # data -> bytes that must be read and written at least once
    rtol: float
    atol: float

    def check(self, data: tuple, output: Any) -> tuple[bool, str]:
        """Compute the expected output of `data` and compare; see compare."""
        return self.compare(self.ref_kernel(data), output)

    def compare(self, expected: Any, output: Any) -> tuple[bool, str]:
        """(passed, message): what differs and where, or how close a passing output is."""
        return compare(expected, output, self.rtol, self.atol)


# ---------------------------------------------------------------------------------------------------------------------
# Inputs
# ---------------------------------------------------------------------------------------------------------------------


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def random_e2m1(batches: int, mn: int, k: int) -> torch.Tensor:
    """(mn, k // 2, batches) float4_e2m1fn_x2 on cuda, K contiguous, random values of magnitude up to 1.5."""
    pairs = torch.randint(255, size=(batches, mn, k // 2), dtype=torch.uint8, device="cuda")
    keep_sign_and_two_low_bits = 0b1011_1011
    return (pairs & keep_sign_and_two_low_bits).permute(1, 2, 0).view(torch.float4_e2m1fn_x2)


def reorder_scales(scales: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    """Row-major (mn, k // 16, l) float8_e4m3fn scales in the layout that tcgen05 and cuBLAS take.

    padding, (l, rest_mn, rest_k, 32, 4, 4) float8_e4m3fn, supplies the bytes of rows past mn and columns past k // 16.
    Returns (32, 4, rest_mn, 4, rest_k, l), whose memory is contiguous in the order of padding's dimensions: 512-byte
    atoms in which row r, scale s is at byte (r % 32) * 16 + (r // 32) * 4 + s.
    """
    mn, sf_k, batches = scales.shape
    _, rest_mn, rest_k, *_ = padding.shape
    atoms = padding.view(torch.int8)
    rows = atoms.permute(0, 1, 4, 3, 2, 5).reshape(batches, rest_mn * SF_ATOM_ROWS, rest_k * SF_ATOM_SCALES)
    rows[:, :mn, :sf_k] = scales.to(padding.device).view(torch.int8).permute(2, 0, 1)
    atoms = rows.view(batches, rest_mn, 4, 32, rest_k, SF_ATOM_SCALES).permute(0, 1, 4, 3, 2, 5).contiguous()
    return atoms.view(torch.float8_e4m3fn).permute(3, 4, 1, 5, 2, 0)


def generate_input(m: tuple[int, ...], n: tuple[int, ...], k: tuple[int, ...], g: int, seed: int) -> input_t:
    """Group GEMM's input for `g` groups of (m[i], n[i], k[i]).

    Returns (abc, sfasfb, sfasfb_reordered, problem_sizes), lists over the groups of
    - a (m, k // 2, 1), b (n, k // 2, 1) float4_e2m1fn_x2, K contiguous; c (m, n, 1) float16, N contiguous, random
    - sfa (m, k // 16, 1), sfb (n, k // 16, 1) float8_e4m3fn, on the CPU
    - sfa_reordered, sfb_reordered (32, 4, rest_mn, 4, rest_k, 1) float8_e4m3fn
    - (m, n, k, 1)
    The order of the random draws is the contest's. Raises ValueError unless m, n and k have length g.
    """
    for name, sizes in (("m", m), ("n", n), ("k", k)):
        if isinstance(sizes, (int, str)):
            raise ValueError(f"{name} is {sizes}; expected a list of g = {g} sizes, such as [{sizes}]")
        if len(sizes) != g:
            raise ValueError(f"{name} has {len(sizes)} entries, g is {g}")
    torch.manual_seed(seed)

    def random_scales(mn: int, k: int) -> torch.Tensor:
        shape = (1, mn, ceil_div(k, SF_VECTOR))
        return torch.randint(1, 3, shape, dtype=torch.int8).to(torch.float8_e4m3fn).permute(1, 2, 0)

    def reorder(scales: torch.Tensor) -> torch.Tensor:
        mn, sf_k, batches = scales.shape
        shape = (batches, ceil_div(mn, SF_ATOM_ROWS), ceil_div(sf_k, SF_ATOM_SCALES), 32, 4, SF_ATOM_SCALES)
        return reorder_scales(
            scales, torch.randint(1, 3, shape, dtype=torch.int8, device="cuda").to(torch.float8_e4m3fn)
        )

    abc, sfasfb, sfasfb_reordered, problem_sizes = [], [], [], []
    for mi, ni, ki in zip(m, n, k):
        a = random_e2m1(1, mi, ki)
        b = random_e2m1(1, ni, ki)
        c = torch.randn((1, mi, ni), dtype=torch.float16, device="cuda").permute(1, 2, 0)
        sfa = random_scales(mi, ki)
        sfb = random_scales(ni, ki)
        abc.append((a, b, c))
        sfasfb.append((sfa, sfb))
        sfasfb_reordered.append((reorder(sfa), reorder(sfb)))
        problem_sizes.append((mi, ni, ki, 1))
    return abc, sfasfb, sfasfb_reordered, problem_sizes


# ---------------------------------------------------------------------------------------------------------------------
# Expected results
# ---------------------------------------------------------------------------------------------------------------------


def has_native_scaled_mm() -> bool:
    """Whether torch._scaled_mm multiplies e2m1 by this device's tensor cores."""
    return torch.cuda.get_device_capability() == (10, 0) and "emulated" not in torch.cuda.get_device_name()


def dequantize(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """(mn, k) float64 from (mn, k // 2) float4_e2m1fn_x2 and (mn, k // 16) float8_e4m3fn.

    Element 2i is the low nibble of byte i.
    """
    mn, pairs_per_row = values.shape
    e2m1 = torch.tensor([*_E2M1, *(-value for value in _E2M1)], dtype=torch.float64, device=values.device)
    byte = torch.arange(256, device=values.device)
    pair_of_byte = torch.stack((e2m1[byte & 15], e2m1[byte >> 4]), dim=1)
    elements = pair_of_byte.index_select(0, values.view(torch.uint8).flatten().int()).view(mn, -1, SF_VECTOR)
    return elements.mul_(scales.to(values.device).double().unsqueeze(2)).view(mn, 2 * pairs_per_row)


def float64_mm(a: torch.Tensor, b: torch.Tensor, sfa: torch.Tensor, sfb: torch.Tensor) -> torch.Tensor:
    """(m, n) float64 product of dequantized a (m, k // 2) and b (n, k // 2).

    Exact, in whatever order it is summed: with the contest's integer scales of at most 3, products are multiples of 1/4
    and at most 18 * 18, so a sum over any K below 2**42 fits float64's 53 bits; with scales in [0, 1), multiples of
    2**-9, products are multiples of 2**-20 and at most 36, which leaves K 2**27.
    """
    rows_per_block = 1024  # bounds the float64 copy of b
    left = dequantize(a, sfa)
    blocks = zip(b.view(torch.uint8).split(rows_per_block), sfb.split(rows_per_block))
    return torch.cat([left @ dequantize(values, scales).T for values, scales in blocks], dim=1)


def blocked_scales(scales: torch.Tensor) -> torch.Tensor:
    """The flat reordered scales that torch._scaled_mm takes, from row-major (mn, k // 16); zeros in the padding."""
    mn, sf_k = scales.shape
    shape = (1, ceil_div(mn, SF_ATOM_ROWS), ceil_div(sf_k, SF_ATOM_SCALES), 32, 4, SF_ATOM_SCALES)
    padding = torch.zeros(shape, dtype=torch.int8, device="cuda").view(torch.float8_e4m3fn)
    return flat_scales(reorder_scales(scales.unsqueeze(2), padding), 0)


def flat_scales(reordered: torch.Tensor, batch: int) -> torch.Tensor:
    """One batch entry of (32, 4, rest_mn, 4, rest_k, l) reordered scales, flat in memory order."""
    return reordered[..., batch].permute(2, 4, 0, 1, 3).flatten()


def scaled_mm(a: torch.Tensor, b: torch.Tensor, sfa: torch.Tensor, sfb: torch.Tensor) -> torch.Tensor:
    """(m, n) float16 product of a (m, k // 2) and b (n, k // 2) with flat reordered scales, by torch's kernel."""
    return torch._scaled_mm(a, b.transpose(0, 1), sfa, sfb, bias=None, out_dtype=torch.float16)


def ref_kernel(data: input_t) -> output_t:
    """Group GEMM's expected c tensors, newly allocated: A @ B^T per group, rounded to float16 once."""
    native = has_native_scaled_mm()
    results = []
    for (a, b, c), (sfa, sfb) in zip(data[0], data[1]):
        result = torch.empty_like(c)
        for batch in range(c.shape[2] if c.numel() else 0):
            operands = a[:, :, batch], b[:, :, batch]
            scales = sfa[:, :, batch], sfb[:, :, batch]
            if native:
                result[:, :, batch] = scaled_mm(*operands, *map(blocked_scales, scales))
            else:
                result[:, :, batch] = float64_mm(*operands, *scales)
        results.append(result)
    return results


def group_gemm_baseline(data: input_t) -> output_t:
    """Group GEMM by one torch._scaled_mm per group, with the scales that are reordered on the device already."""
    return [
        scaled_mm(a[:, :, 0], b[:, :, 0], flat_scales(sfa, 0), flat_scales(sfb, 0)).unsqueeze(2)
        for (a, b, _), (sfa, sfb) in zip(data[0], data[2])
    ]


def group_gemm_minimum_traffic(data: input_t) -> tuple[int, int]:
    """Bytes of every a, b, sfa and sfb, and of every c."""
    loads = sum(tensor.nbytes for (a, b, _), scales in zip(data[0], data[1]) for tensor in (a, b, *scales))
    return loads, sum(c.nbytes for _, _, c in data[0])


# ---------------------------------------------------------------------------------------------------------------------
# Comparison
# ---------------------------------------------------------------------------------------------------------------------


def compare(expected: Any, output: Any, rtol: float, atol: float) -> tuple[bool, str]:
    """Whether abs(got - want) <= atol + rtol * abs(want) everywhere, with NaN and infinities just where expected.

    expected is a tensor or a list of tensors; output must have its length, shapes, dtypes and device.
    Returns (passed, message); a failure's message names every tensor that differs and its first few differing elements.
    """
    if isinstance(expected, torch.Tensor):
        expected, output, names = [expected], [output], ["c"]
    else:
        names = [f"group {index}" for index in range(len(expected))]
        if not isinstance(output, (list, tuple)):
            return False, f"output is of type {type(output).__name__}, expected a list of {len(expected)} tensors"
        if len(output) != len(expected):
            return False, f"output has {len(output)} tensors, expected {len(expected)}"

    failures, differing, largest = [], 0, 0.0
    for name, want, got in zip(names, expected, output):
        problem = _metadata_mismatch(want, got)
        if problem:
            failures.append(f"{name}: {problem}")
            continue
        if _same_bits(want, got):
            continue
        unequal = (got != want) & ~(got.isnan() & want.isnan())
        mismatched = _mismatches(want, got, rtol, atol)
        error = (got.float() - want.float()).abs()
        largest = max(largest, error[error.isfinite()].max().item() if error.isfinite().any() else 0.0)
        differing += int(unequal.count_nonzero())
        if mismatched.any():
            failures.append(f"{name} ({' x '.join(map(str, want.shape))}): {_describe(want, got, mismatched, error)}")
    if failures:
        return False, "\n".join(failures)
    if differing:
        total = sum(want.numel() for want in expected)
        return True, f"within tolerance: {differing} of {total} elements differ, largest error {largest:g}"
    return True, "bit-exact"


def _metadata_mismatch(want: torch.Tensor, got: Any) -> str:
    if not isinstance(got, torch.Tensor):
        return f"got {type(got).__name__}, expected a tensor"
    for attribute in ("shape", "dtype", "device"):
        have, need = getattr(got, attribute), getattr(want, attribute)
        if have != need:
            have, need = (tuple(have), tuple(need)) if attribute == "shape" else (have, need)
            return f"{attribute} is {have}, expected {need}"
    return ""


def _same_bits(want: torch.Tensor, got: torch.Tensor) -> bool:
    integer = _INTEGER_OF_SIZE[want.element_size()]
    return torch.equal(want.view(integer), got.view(integer))


def _mismatches(want: torch.Tensor, got: torch.Tensor, rtol: float, atol: float) -> torch.Tensor:
    # In the output's own dtype, as in the contest: a value at the edge then passes here if and only if it passes there.
    mismatched = (got - want).abs() > atol + rtol * want.abs()
    for is_special in (torch.isnan, torch.isposinf, torch.isneginf):
        mismatched |= is_special(got) != is_special(want)
    return mismatched


def _describe(want: torch.Tensor, got: torch.Tensor, mismatched: torch.Tensor, error: torch.Tensor) -> str:
    count = int(mismatched.count_nonzero())
    finite = mismatched & error.isfinite()
    parts = [f"{count} of {want.numel()} elements differ"]
    if finite.any():
        parts.append(f"largest error {error[finite].max().item():g}")
    if not finite.equal(mismatched):
        parts.append(f"{count - int(finite.count_nonzero())} NaN or inf")
    text = ", ".join(parts)
    for index in mismatched.nonzero()[:MISMATCHES_SHOWN].tolist():
        text += f"\n    at {index}: got {got[tuple(index)].item():g}, want {want[tuple(index)].item():g}"
    return text + (f"\n    and {count - MISMATCHES_SHOWN} more" if count > MISMATCHES_SHOWN else "")


REFERENCES = {
    "group_gemm": Reference(
        generate_input=generate_input,
        ref_kernel=ref_kernel,
        baseline=group_gemm_baseline,
        problem_sizes=lambda data: data[3],
        minimum_traffic=group_gemm_minimum_traffic,
        rtol=1e-3,
        atol=1e-3,
    ),
}

check_implementation = REFERENCES["group_gemm"].check
