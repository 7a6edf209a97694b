"""The contest's inputs, reference results and check, one Reference per problem (REFERENCES).

The contest's own file has the names generate_input, ref_kernel and check_implementation; here they are group GEMM's.
All tensors are on device "cuda", except for group GEMM's row-major scales: the contest makes and keeps them on the CPU.

L is the number of batch entries, 1 in group GEMM. In shapes mn is m or n, and rest_mn = ceil(mn / 128) and
rest_k = ceil(k / 64) count scale atoms.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Data = tuple[Any, ...]  # one of the contest's input tuples, task.input_t

SF_VECTOR = 16  # consecutive K elements that share a scale
SF_ATOM_ROWS = 128  # a reordered scale atom: 128 rows x 4 scales = 512 bytes
SF_ATOM_SCALES = 4
MISMATCHES_SHOWN = 5

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_LARGEST_INT8_SCALE = 10  # twice an element, 2 * 6 * 10 at most, fits int8
_LARGEST_INT8_K = 2**17  # a sum of so many products of two such integers fits int32
_FEW_ROWS = 16  # number of an operand's rows below which decoding takes longer than multiplication
_INTEGER_OF_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32}


@dataclass(frozen=True)
class Reference:
    """One problem's inputs, expected outputs and tolerance.

    `data` is the problem's input tuple (see task.input_t). An output is a tensor, or for group GEMM a list of tensors.
    """

    generate_input: Callable[..., tuple]
    ref_kernel: Callable[[tuple], Any]  # data -> expected output, newly allocated; does not change data
    baseline: Callable[[tuple], Any]  # data -> output of torch's own kernels, which read device memory only; for timing
    problem_sizes: Callable[
        [tuple], list[tuple[int, int, int, int]]
    ]  # data -> (m, n, k, l) of each group or of the call
    minimum_traffic: Callable[[tuple], tuple[int, int]]  # data -> (bytes read, bytes written) if each byte moves once
    rtol: float
    atol: float

    def check(self, data: tuple, output: Any) -> tuple[bool, str]:
        """Compare an output with the expected one of `data`; see compare."""
        return self.compare(self.ref_kernel(data), output)

    def compare(self, expected: Any, output: Any) -> tuple[bool, str]:
        """Return (passed, message). The message names the differing elements, or says how close a passing output is."""
        return compare(expected, output, self.rtol, self.atol)


# ---------------------------------------------------------------------------------------------------------------------
# Inputs
# ---------------------------------------------------------------------------------------------------------------------


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def pack_e2m1(pairs: torch.Tensor) -> torch.Tensor:
    """View drawn bytes (l, mn, k // 2) as (mn, k // 2, l) float4_e2m1fn_x2, K contiguous."""
    return pairs.permute(1, 2, 0).view(torch.float4_e2m1fn_x2)


def random_e2m1(batches: int, mn: int, k: int) -> torch.Tensor:
    """(mn, k // 2, batches) float4_e2m1fn_x2 on cuda, K contiguous, random values of magnitude up to 1.5."""
    keep_sign_and_two_low_bits = 0b1011_1011
    pairs = torch.randint(255, size=(batches, mn, k // 2), dtype=torch.uint8, device="cuda")
    return pack_e2m1(pairs.bitwise_and_(keep_sign_and_two_low_bits))


def random_c(batches: int, m: int, n: int) -> torch.Tensor:
    """Random content of an output before a call: (m, n, batches) float16 on cuda, N contiguous."""
    return torch.randn((batches, m, n), dtype=torch.float16, device="cuda").permute(1, 2, 0)


def atoms_shape(batches: int, mn: int, sf_k: int) -> tuple[int, ...]:
    """The shape of reordered scales in memory order: (batches, rest_mn, rest_k, 32, 4, 4). sf_k: scales per row."""
    return batches, ceil_div(mn, SF_ATOM_ROWS), ceil_div(sf_k, SF_ATOM_SCALES), 32, 4, SF_ATOM_SCALES


def reorder_scales(scales: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    """Scales in the layout of cuBLAS, whose atoms tcgen05.cp copies to TMEM (PTX ISA, "tcgen05.cp", .32x128b.warpx4).

    scales: (mn, k // 16, l) float8_e4m3fn, row-major. padding: (l, rest_mn, rest_k, 32, 4, 4) float8_e4m3fn, whose
    bytes stay in rows past mn and columns past k // 16.
    Returns (32, 4, rest_mn, 4, rest_k, l), contiguous in the order of padding's dimensions: 512-byte atoms in which
    scale s of row r is byte (r % 32) * 16 + (r // 32) * 4 + s.
    """
    mn, sf_k, batches = scales.shape
    _, rest_mn, rest_k, *_ = padding.shape
    atoms = padding.view(torch.int8)
    rows = atoms.permute(0, 1, 4, 3, 2, 5).reshape(batches, rest_mn * SF_ATOM_ROWS, rest_k * SF_ATOM_SCALES)
    rows[:, :mn, :sf_k] = scales.to(padding.device).view(torch.int8).permute(2, 0, 1)
    atoms = rows.view(batches, rest_mn, 4, 32, rest_k, SF_ATOM_SCALES).permute(0, 1, 4, 3, 2, 5).contiguous()
    return atoms.view(torch.float8_e4m3fn).permute(3, 4, 1, 5, 2, 0)


def generate_input(m: tuple[int, ...], n: tuple[int, ...], k: tuple[int, ...], g: int, seed: int) -> Data:
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
        padding = torch.randint(1, 3, atoms_shape(batches, mn, sf_k), dtype=torch.int8, device="cuda")
        return reorder_scales(scales, padding.to(torch.float8_e4m3fn))

    abc, sfasfb, sfasfb_reordered, problem_sizes = [], [], [], []
    for mi, ni, ki in zip(m, n, k):
        a = random_e2m1(1, mi, ki)
        b = random_e2m1(1, ni, ki)
        c = random_c(1, mi, ni)
        sfa = random_scales(mi, ki)
        sfb = random_scales(ni, ki)
        abc.append((a, b, c))
        sfasfb.append((sfa, sfb))
        sfasfb_reordered.append((reorder(sfa), reorder(sfb)))
        problem_sizes.append((mi, ni, ki, 1))
    return abc, sfasfb, sfasfb_reordered, problem_sizes


def draw_scales(
    draw: Callable[[tuple[int, ...]], torch.Tensor],
    draw_padding: Callable[[tuple[int, ...]], torch.Tensor],
    batches: int,
    mn: int,
    k: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales on cuda: (row-major, reordered) float8_e4m3fn. First draw makes the values, then draw_padding the padding.

    draw(shape) and draw_padding(shape) return tensors of any dtype that float8_e4m3fn can hold.
    """
    sf_k = ceil_div(k, SF_VECTOR)
    scales = draw((batches, mn, sf_k)).to(torch.float8_e4m3fn).permute(1, 2, 0)
    padding = draw_padding(atoms_shape(batches, mn, sf_k)).to(torch.float8_e4m3fn)
    return scales, reorder_scales(scales, padding)


def integer_scales(end: int) -> Callable[[tuple[int, ...]], torch.Tensor]:
    """A draw for draw_scales: random int8 from 0 to end - 1."""
    return lambda shape: torch.randint(0, end, shape, dtype=torch.int8, device="cuda")


def check_sizes(**sizes: Any) -> None:
    """Raise ValueError for a size that is a list or a word: only group GEMM has lists."""
    for name, size in sizes.items():
        if not isinstance(size, int):
            raise ValueError(f"{name} is {size}; expected an integer")


def generate_dual_gemm_input(m: int, n: int, k: int, l: int, seed: int) -> Data:  # noqa: E741
    """Dual GEMM's input for c = silu(a @ b1^T) * (a @ b2^T).

    Returns (a, b1, b2, sfa, sfb1, sfb2, sfa_reordered, sfb1_reordered, sfb2_reordered, c). The order of the random
    draws is the contest's. The contest leaves the padding of the reordered scales uninitialized; here it is the largest
    scale.
    """
    check_sizes(m=m, n=n, k=k, l=l)
    torch.manual_seed(seed)

    def draw(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.rand(shape, dtype=torch.float32, device="cuda")

    def largest(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.full(shape, torch.finfo(torch.float8_e4m3fn).max, device="cuda")

    values = [random_e2m1(l, mn, k) for mn in (m, n, n)]
    c = random_c(l, m, n)
    scales, reordered = zip(*(draw_scales(draw, largest, l, mn, k) for mn in (m, n, n)))
    return *values, *scales, *reordered, c


def generate_gemm_input(m: int, n: int, k: int, l: int, seed: int) -> Data:  # noqa: E741
    """GEMM's input for c = a @ b^T. Elements take every e2m1 value; scales are integers from 0 to 3.

    Returns (a, b, sfa, sfb, sfa_reordered, sfb_reordered, c). The order of the random draws is the contest's.
    """
    check_sizes(m=m, n=n, k=k, l=l)
    torch.manual_seed(seed)
    a, b = (pack_e2m1(torch.randint(-128, 128, (l, mn, k // 2), dtype=torch.int8, device="cuda")) for mn in (m, n))
    c = random_c(l, m, n)
    draw = integer_scales(4)
    scales, reordered = zip(*(draw_scales(draw, draw, l, mn, k) for mn in (m, n)))
    return a, b, *scales, *reordered, c


def generate_gemv_input(m: int, k: int, l: int, seed: int) -> Data:  # noqa: E741
    """GEMV's input for c = a @ b[0]^T; b has 128 rows. Even elements are 0 to 1.5, odd ones 0, scales 0 to 2.

    Returns (a, b, sfa, sfb, sfa_reordered, sfb_reordered, c), c (m, 1, l). The order of the random draws is the
    contest's.
    """
    check_sizes(m=m, k=k, l=l)
    torch.manual_seed(seed)
    a, b = (
        pack_e2m1(torch.randint(0, 4, (l, mn, k // 2), dtype=torch.uint8, device="cuda")) for mn in (m, SF_ATOM_ROWS)
    )
    c = random_c(l, m, 1)
    draw = integer_scales(3)
    scales, reordered = zip(*(draw_scales(draw, draw, l, mn, k) for mn in (m, SF_ATOM_ROWS)))
    return a, b, *scales, *reordered, c


# ---------------------------------------------------------------------------------------------------------------------
# Expected results
# ---------------------------------------------------------------------------------------------------------------------


def has_native_scaled_mm() -> bool:
    """True if torch._scaled_mm multiplies e2m1 on this device's tensor cores."""
    return torch.cuda.get_device_capability() == (10, 0) and not is_emulated()


def is_emulated() -> bool:
    """True if device "cuda" is the CPU."""
    return "emulated" in torch.cuda.get_device_name()


def decode(values: torch.Tensor, factor: float, dtype: torch.dtype) -> torch.Tensor:
    """Elements (mn, k // 16, 16) of (mn, k // 2) float4_e2m1fn_x2, times a factor that makes them fit the dtype.

    The low nibble of byte i is element 2i, the high nibble element 2i + 1.
    """
    mn, pairs_per_row = values.shape
    e2m1 = torch.tensor([*_E2M1, *(-value for value in _E2M1)], device=values.device).mul_(factor).to(dtype)
    byte = torch.arange(256, device=values.device)
    pair_of_byte = torch.stack((e2m1[byte & 15], e2m1[byte >> 4]), dim=1)
    indices = values.view(torch.uint8).flatten().int()
    if dtype is torch.int8:  # selects pairs by 16-bit numbers, four times as fast
        pairs = pair_of_byte.view(torch.int16).flatten().index_select(0, indices).view(torch.int8)
    else:
        pairs = pair_of_byte.index_select(0, indices)
    return pairs.view(mn, 2 * pairs_per_row // SF_VECTOR, SF_VECTOR)


def dequantize(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """(mn, k) float64 values from (mn, k // 2) float4_e2m1fn_x2 and (mn, k // 16) float8_e4m3fn scales."""
    elements = decode(values, 1, torch.float64)
    return elements.mul_(scales.to(values.device).double().unsqueeze(2)).flatten(1)


def float64_mm(a: torch.Tensor, b: torch.Tensor, sfa: torch.Tensor, sfb: torch.Tensor) -> torch.Tensor:
    """(m, n) float64 product of dequantized a (m, k // 2) and b (n, k // 2).

    The sum is exact in any order: with the contest's integer scales of at most 3, products are multiples of 1/4
    and at most 18 * 18, so a sum over any K below 2**42 fits float64's 53 bits; with scales in [0, 1], multiples of
    2**-9, products are multiples of 2**-20 and at most 36, which allows K up to 2**27.
    """
    rows_per_block = 1024  # bounds the float64 copy of b
    left = dequantize(a, sfa)
    blocks = zip(b.view(torch.uint8).split(rows_per_block), sfb.split(rows_per_block))
    return torch.cat([left @ dequantize(values, scales).T for values, scales in blocks], dim=1)


def fits_int8(scales: torch.Tensor, k: int) -> bool:
    """True if integer_mm takes float8_e4m3fn scales of an operand with this K."""
    single = scales.float()
    return 0 < k <= _LARGEST_INT8_K and bool(((single == single.round()) & (single.abs() <= _LARGEST_INT8_SCALE)).all())


def integer_mm(a: torch.Tensor, b: torch.Tensor, sfa: torch.Tensor, sfb: torch.Tensor) -> torch.Tensor:
    """The product of float64_mm for integer scales of at most 10: in a tenth of its time if `multiplies_int8`.

    On another CPU it takes ten times as long. The sum is exact: twice an element is an integer that int8 holds, and
    int32 holds the sum of up to 2**17 products.
    """

    def doubled(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        elements = decode(values, 2, torch.int8)
        return elements.mul_(scales.to(values.device).to(torch.int8).unsqueeze(2)).flatten(1)

    return torch._int_mm(doubled(a, sfa), doubled(b, sfb).T).double() / 4


@functools.cache
def multiplies_int8() -> bool:
    """True if the CPU has instructions that add up products of int8, as torch's fast integer product needs."""
    found = torch.cpu.get_capabilities()
    return any(found.get(name, False) for name in ("avx512_vnni", "avx_vnni", "amx_int8"))


def exact_mm(a: torch.Tensor, b: torch.Tensor, sfa: torch.Tensor, sfb: torch.Tensor) -> torch.Tensor:
    """The exact (m, n) float64 product, by the faster of two ways to the same bits."""
    k = 2 * a.shape[1]
    # int8 decodes faster on every CPU, which decides for few rows.
    is_faster = is_emulated() and (multiplies_int8() or min(a.shape[0], b.shape[0]) < _FEW_ROWS)
    multiply = integer_mm if is_faster and fits_int8(sfa, k) and fits_int8(sfb, k) else float64_mm
    return multiply(a, b, sfa, sfb)


def blocked_scales(scales: torch.Tensor) -> torch.Tensor:
    """Scales for torch._scaled_mm: row-major (mn, k // 16) ones in flat reordered form; the padding is 0."""
    padding = torch.zeros(atoms_shape(1, *scales.shape), dtype=torch.int8, device="cuda").view(torch.float8_e4m3fn)
    return flat_scales(reorder_scales(scales.unsqueeze(2), padding), 0)


def flat_scales(reordered: torch.Tensor, batch: int) -> torch.Tensor:
    """The reordered scales (32, 4, rest_mn, 4, rest_k, l) of one batch entry, flat in memory order."""
    return reordered[..., batch].permute(2, 4, 0, 1, 3).flatten()


def scaled_mm(
    a: torch.Tensor, b: torch.Tensor, sfa: torch.Tensor, sfb: torch.Tensor, dtype: torch.dtype = torch.float16
) -> torch.Tensor:
    """(m, n) product of a (m, k // 2) and b (n, k // 2) with flat reordered scales, by torch's kernel."""
    return torch._scaled_mm(a, b.transpose(0, 1), sfa, sfb, bias=None, out_dtype=dtype)


def round_to_float16(exact: torch.Tensor) -> torch.Tensor:
    """Round float64 or float32 to float16 once; torch's own conversion may round to float32 in between.

    The way through float32 rounds to odd: towards zero, then the last bit is set if the value was inexact. That keeps
    the side of the midpoint between two float16 values on which a value lies.
    """
    single = exact.float()
    single = torch.where(single.abs() > exact.abs(), torch.nextafter(single, torch.zeros_like(single)), single)
    return (single.view(torch.int32) | (single != exact).int()).view(torch.float32).half()


def product(a: torch.Tensor, b: torch.Tensor, sfa: torch.Tensor, sfb: torch.Tensor) -> torch.Tensor:
    """(m, n) product of a (m, k // 2) and b (n, k // 2) with row-major scales.

    It is exact and float64; on a B200 it is the tensor cores' float32 result, with which the contest compares.
    """
    if has_native_scaled_mm():
        return scaled_mm(a, b, blocked_scales(sfa), blocked_scales(sfb), torch.float32)
    return exact_mm(a, b, sfa, sfb)


def gemm(a: torch.Tensor, b: torch.Tensor, sfa: torch.Tensor, sfb: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """A @ B^T of every batch entry, newly allocated in c's layout, rounded to float16 once."""
    result = torch.empty_like(c)
    for batch in range(c.shape[2] if c.numel() else 0):
        operands = (tensor[:, :, batch] for tensor in (a, b, sfa, sfb))
        result[:, :, batch] = round_to_float16(product(*operands))
    return result


def ref_kernel(data: Data) -> list[torch.Tensor]:
    """Group GEMM's expected c tensors, newly allocated: A @ B^T per group, rounded to float16 once."""
    return [gemm(a, b, sfa, sfb, c) for (a, b, c), (sfa, sfb) in zip(data[0], data[1])]


def gemm_ref_kernel(data: Data) -> torch.Tensor:
    """GEMM's expected c, newly allocated: A @ B^T, rounded to float16 once."""
    a, b, sfa, sfb, _, _, c = data
    return gemm(a, b, sfa, sfb, c)


def gemv_ref_kernel(data: Data) -> torch.Tensor:
    """GEMV's expected c, newly allocated: A times the first row of B, rounded to float16 once."""
    a, b, sfa, sfb, _, _, c = data
    result = torch.empty_like(c)
    for batch in range(c.shape[2]):
        # float64_mm converts all of its left operand to float64, but only one block of its right one at a time.
        exact = exact_mm(b[:1, :, batch], a[:, :, batch], sfb[:1, :, batch], sfa[:, :, batch])
        result[:, 0, batch] = round_to_float16(exact[0])
    return result


def dual_gemm_ref_kernel(data: Data) -> torch.Tensor:
    """Dual GEMM's expected c, newly allocated: silu(A @ B1^T) * (A @ B2^T), rounded to float16 once.

    The sums are exact; silu and the product are float64. On a B200 all of them are float32, as in the contest. float32
    does not hold these sums exactly, as it does those of the other problems, so a right kernel is not bit-exact. It may
    differ by one float16 spacing where the result is near the midpoint of two values, and by more, well inside the
    tolerance, where a sum is near 0.
    """
    c = data[-1]
    result = torch.empty_like(c)
    for batch in range(c.shape[2] if c.numel() else 0):
        a, b1, b2, sfa, sfb1, sfb2 = (tensor[:, :, batch] for tensor in data[:6])
        exact = torch.nn.functional.silu(product(a, b1, sfa, sfb1)) * product(a, b2, sfa, sfb2)
        result[:, :, batch] = round_to_float16(exact)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Baselines and traffic
# ---------------------------------------------------------------------------------------------------------------------


def stack_batches(results: list[torch.Tensor]) -> torch.Tensor:
    """(m, n, l) from l tensors (m, n); a single one is not copied."""
    return results[0].unsqueeze(2) if len(results) == 1 else torch.stack(results).permute(1, 2, 0)


def group_gemm_baseline(data: Data) -> list[torch.Tensor]:
    """Group GEMM by one torch._scaled_mm per group, with the reordered scales of the input."""
    return [
        scaled_mm(a[:, :, 0], b[:, :, 0], flat_scales(sfa, 0), flat_scales(sfb, 0)).unsqueeze(2)
        for (a, b, _), (sfa, sfb) in zip(data[0], data[2])
    ]


def dual_gemm_baseline(data: Data) -> torch.Tensor:
    """Dual GEMM by two torch._scaled_mm to float32, silu, product and conversion, per batch entry."""
    a, b1, b2, _, _, _, sfa, sfb1, sfb2, c = data
    results = []
    for i in range(c.shape[2]):
        left, left_scales = a[:, :, i], flat_scales(sfa, i)
        gate = scaled_mm(left, b1[:, :, i], left_scales, flat_scales(sfb1, i), torch.float32)
        up = scaled_mm(left, b2[:, :, i], left_scales, flat_scales(sfb2, i), torch.float32)
        results.append((torch.nn.functional.silu(gate) * up).half())
    return stack_batches(results)


def gemm_baseline(data: Data) -> torch.Tensor:
    """GEMM by one torch._scaled_mm per batch entry."""
    a, b, _, _, sfa, sfb, c = data
    batches = range(c.shape[2])
    return stack_batches([scaled_mm(a[:, :, i], b[:, :, i], flat_scales(sfa, i), flat_scales(sfb, i)) for i in batches])


def gemv_baseline(data: Data) -> torch.Tensor:
    """GEMV by one torch._scaled_mm per batch entry with all 128 rows of b: torch multiplies no single row."""
    return gemm_baseline(data)[:, :1]


def group_gemm_minimum_traffic(data: Data) -> tuple[int, int]:
    """(bytes of every a, b, sfa and sfb, bytes of every c)."""
    loads = sum(tensor.nbytes for (a, b, _), scales in zip(data[0], data[1]) for tensor in (a, b, *scales))
    return loads, sum(c.nbytes for _, _, c in data[0])


def dual_gemm_minimum_traffic(data: Data) -> tuple[int, int]:
    """(bytes of a, b1, b2 and their scales, bytes of c)."""
    return sum(tensor.nbytes for tensor in data[:6]), data[-1].nbytes


def gemm_minimum_traffic(data: Data) -> tuple[int, int]:
    """(bytes of a, b and their scales, bytes of c)."""
    return sum(tensor.nbytes for tensor in data[:4]), data[-1].nbytes


def gemv_minimum_traffic(data: Data) -> tuple[int, int]:
    """(bytes of a, of the first row of b and of their scales, bytes of c)."""
    a, b, sfa, sfb, _, _, c = data
    return sum(tensor.nbytes for tensor in (a, b[:1], sfa, sfb[:1])), c.nbytes


def size_of_c(data: Data) -> list[tuple[int, int, int, int]]:
    """[(m, n, k, l)] of a problem whose tuple ends with its one c."""
    m, n, batches = data[-1].shape
    return [(m, n, 2 * data[0].shape[1], batches)]


# ---------------------------------------------------------------------------------------------------------------------
# Comparison
# ---------------------------------------------------------------------------------------------------------------------


def compare(expected: Any, output: Any, rtol: float, atol: float) -> tuple[bool, str]:
    """Compare by abs(got - want) <= atol + rtol * abs(want), with NaN and infinities exactly where expected.

    expected: a tensor or a list of tensors. output must have the same length, shapes, dtypes and device.
    Returns (passed, message). The message of a failure names every differing tensor and its first differing elements.
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
    # Computed in the output's dtype, as in the contest: a value at the limit passes here if and only if it does there.
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


CONTEST_TOLERANCE = {"rtol": 1e-3, "atol": 1e-3}

REFERENCES = {
    "group_gemm": Reference(
        generate_input=generate_input,
        ref_kernel=ref_kernel,
        baseline=group_gemm_baseline,
        problem_sizes=lambda data: data[3],
        minimum_traffic=group_gemm_minimum_traffic,
        **CONTEST_TOLERANCE,
    ),
    "dual_gemm": Reference(
        generate_input=generate_dual_gemm_input,
        ref_kernel=dual_gemm_ref_kernel,
        baseline=dual_gemm_baseline,
        problem_sizes=size_of_c,
        minimum_traffic=dual_gemm_minimum_traffic,
        **CONTEST_TOLERANCE,
    ),
    "gemm": Reference(
        generate_input=generate_gemm_input,
        ref_kernel=gemm_ref_kernel,
        baseline=gemm_baseline,
        problem_sizes=size_of_c,
        minimum_traffic=gemm_minimum_traffic,
        **CONTEST_TOLERANCE,
    ),
    "gemv": Reference(
        generate_input=generate_gemv_input,
        ref_kernel=gemv_ref_kernel,
        baseline=gemv_baseline,
        problem_sizes=size_of_c,
        minimum_traffic=gemv_minimum_traffic,
        **CONTEST_TOLERANCE,
    ),
}

check_implementation = REFERENCES["group_gemm"].check
