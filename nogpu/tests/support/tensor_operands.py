"""Operands of tcgen05 operations for the tests, at the PTX ISA's places, byte by byte, and their values."""

import ml_dtypes
import numpy as np

from nogpu.hardware.shared_memory import SharedMemory
from nogpu.hardware.tensor.copy import Copy
from nogpu.hardware.tensor.core import Mma, MmaForm, MmaOperands
from nogpu.hardware.tensor.order import COLUMNS
from nogpu.hardware.tensor.tmem import TensorMemory

A, B, SF = 0x2000, 0x12000, 0x1000
D, SFA, SFB, META = 0, 384, 400, 440
MODES = {0: 0, 32: 6, 64: 4, 128: 2, "128 of 32": 1}
"""Swizzling -> bits 61-63; "128 of 32" is 128-byte swizzling with 32-byte atoms."""

DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "u8": np.uint8,
    "s8": np.int8,
    "ue4m3": ml_dtypes.float8_e4m3fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
}
NARROW_BITS = {"e2m1": 4, "e2m3": 6, "e3m2": 6}
FORMATS = {
    "f16": {"f16": 0, "bf16": 1},
    "tf32": {"tf32": 2},
    "i8": {"u8": 0, "s8": 1},
    "mxf4": {"e2m1": 1},
    "mxf4nvf4": {"e2m1": 1},
}
FORMATS |= dict.fromkeys(("f8f6f4", "mxf8f6f4"), {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5})
K = {"f16": 16, "tf32": 8, "i8": 32, "f8f6f4": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}


def floats(tmem: TensorMemory) -> np.ndarray:
    """float32[128, 512], a view of the words."""
    return tmem.words.view(np.float32)


def make_cta(size=200 * 1024) -> tuple[SharedMemory, TensorMemory]:
    tmem = TensorMemory()
    tmem.alloc(512)
    return SharedMemory(size), tmem


def decoded(
    kind,
    cta_group,
    scale_block,
    d,
    a,
    b,
    idesc,
    sfa=0,
    sfb=0,
    accumulate=False,
    disabled=(),
    metadata=0,
    zero_columns=0,
    **form,
) -> Mma:
    operands = MmaOperands(d, a, b, idesc, sfa, sfb, accumulate, tuple(disabled), metadata, zero_columns)
    return Mma.decode(MmaForm(kind, cta_group, scale_block, **form), operands)


def mma(ctas, *arguments, issuer=None, **options) -> int:
    operation = decoded(*arguments, **options)
    operation.check(ctas)
    return operation.run(ctas, issuer)


def copy(ctas, *arguments, issuer=None) -> None:
    operation = Copy.decode(*arguments)
    operation.check(ctas)
    operation.run(ctas, issuer)


def descriptor(start, stride, mode=0, leading=16, base=0) -> int:
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | base << 49 | MODES[mode] << 61


def swizzled(address, mode, base=0) -> int:
    """PTX ISA, "Swizzling Modes", for a pattern that starts `base` lines of 128 bytes behind its boundary."""
    moved = address - 128 * base
    if mode == "128 of 32":
        moved ^= (moved >> 7 & 3) << 5
    elif mode:
        moved ^= (moved >> 7 & {32: 1, 64: 3, 128: 7}[mode]) << 4
    return moved + 128 * base


def span_of(mode) -> int:
    return 128 if mode == "128 of 32" else mode


def k_major_address(start, row, byte, mode, stride, leading, base=0) -> int:
    """Address of a byte of a K-major operand (PTX ISA, "Shared Memory Layout and Swizzling")."""
    if mode == 0:
        return start + row // 8 * stride + row % 8 * 16 + byte // 16 * leading + byte % 16
    return swizzled(start + row // 8 * stride + row % 8 * span_of(mode) + byte, mode, base)


def mn_major_address(start, byte, k, mode, stride, leading, base=0) -> int:
    """Address of a byte along M or N of an MN-major operand."""
    if mode == 0:
        return start + byte // 16 * stride + byte % 16 + k // 8 * leading + k % 8 * 16
    span, depth = span_of(mode), 4 if mode == "128 of 32" else 8
    linear = start + byte // span * leading + byte % span + k // depth * stride + k % depth * span
    return swizzled(linear, mode, base)


def put_operand(shared, start, rows: np.ndarray, mode=128, leading=None, base=0) -> int:
    """Write a K-major operand, uint8[rows, bytes]; returns its descriptor."""
    stride = 8 * (span_of(mode) or 16)
    leading = (2048 if mode == 0 else 16) if leading is None else leading
    row, byte = np.indices(rows.shape)
    shared.data[k_major_address(start, row, byte, mode, stride, leading, base)] = rows
    return descriptor(start, stride, mode, leading, base)


def put_transposed(shared, start, elements: np.ndarray, element, mode=128) -> int:
    """Write elements[rows, k] MN-major, atoms adjacent along K first; returns the descriptor."""
    rows, k = elements.shape
    depth = 4 if mode == "128 of 32" else 8
    along_k = depth * (span_of(mode) or 16)
    along_mn = k // depth * along_k
    stride, leading = (along_k, along_mn) if mode else (along_mn, along_k)
    width = elements.itemsize
    by_k = np.ascontiguousarray(elements.T).view(np.uint8)
    if element in NARROW_BITS:
        by_k = padded(by_k, element)
    i, byte = np.indices(by_k.shape)
    shared.data[mn_major_address(start, byte, i, mode, stride, leading)] = by_k
    assert by_k.shape == (k, rows * width)
    return descriptor(start, stride, mode, leading)


def put_scales(tmem, column, codes: np.ndarray, first_byte=0, quadrants=range(4)) -> int:
    """Write scale factor codes uint8[rows, blocks] to these quadrants (PTX ISA, "Scale Factor A ID")."""
    words = tmem.words.view(np.uint8).reshape(128, COLUMNS, 4)
    row, block = np.indices(codes.shape)
    for quadrant in quadrants:
        words[32 * quadrant + row % 32, column + row // 32, first_byte + block] = codes
    return column


def put_b_scales(tmem, column, codes: np.ndarray, first_byte=0, layout="D") -> int:
    """Write scale factors of B. Layout B: lanes 0-63 have those of the lower half of N, lanes 64-127 the others."""
    if layout == "B":
        half = len(codes) // 2
        put_scales(tmem, column, codes[:half], first_byte, (0, 1))
        return put_scales(tmem, column, codes[half:], first_byte, (2, 3))
    return put_scales(tmem, column, codes, first_byte)


def instruction(kind, m, n, a=None, b=None, d="f32", scale=None, **fields) -> int:
    """An instruction descriptor from its fields (PTX ISA, "Instruction Descriptor")."""
    formats = FORMATS[kind]
    a, b = a or next(iter(formats)), b or next(iter(formats))
    value = formats[a] << 7 | formats[b] << 10 | n >> 3 << 17 | m >> 4 << 24
    if kind in ("mxf8f6f4", "mxf4", "mxf4nvf4"):
        value |= (
            int(scale == "ue8m0") << 23
            | int(scale == "ue5m3") << 24
            | fields.get("sfa_id", 0) << 29
            | fields.get("sfb_id", 0) << 4
        )
    else:
        value |= {"f16": 0, "f32": 1, "s32": 2}[d] << 4
    bits = {"selector": 0, "sparse": 2, "saturate": 3}
    bits |= {"negate_a": 13, "negate_b": 14, "transpose_a": 15, "transpose_b": 16}
    for name, bit in bits.items():
        value |= fields.get(name, 0) << bit
    return value


def random_elements(rng, rows, kind, element) -> tuple[np.ndarray, np.ndarray]:
    """Random finite elements: (stored elements, one item each; their values in float64)."""
    shape = rows, K[kind]
    if element == "tf32":
        values = rng.standard_normal(shape).astype(np.float32)
        return values, (values.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64)
    if element in ("f16", "bf16"):
        values = rng.standard_normal(shape).astype(DTYPES[element])
        return values, values.astype(np.float64)
    codes = rng.integers(0, 1 << NARROW_BITS.get(element, 8), shape, dtype=np.uint8)
    values = codes.view(DTYPES[element]).astype(np.float64)
    codes[~np.isfinite(values)] = 0
    return codes, np.where(np.isfinite(values), values, 0.0)


def packed_rows(elements: np.ndarray, kind, element) -> np.ndarray:
    """Rows uint8[rows, 32] of an operand in shared memory's form; padding bytes are 0xA5."""
    if element not in NARROW_BITS:
        return elements.view(np.uint8).reshape(len(elements), 32)
    if kind in ("mxf4", "mxf4nvf4"):
        return elements[:, ::2] | elements[:, 1::2] << 4
    return padded(elements, element)


def padded(codes: np.ndarray, element) -> np.ndarray:
    """uint8, as `codes`: 16 codes of 4 or 6 bits, then padding of 0xA5, in 16 bytes."""
    bits = NARROW_BITS[element]
    packed = np.full((codes.size // 16, 16), 0xA5, np.uint8)
    digits = np.unpackbits(codes.reshape(-1, 16, 1), axis=-1, bitorder="little")[..., :bits]
    packed[:, : 2 * bits] = np.packbits(digits.reshape(-1, 16 * bits), axis=-1, bitorder="little")
    return packed.reshape(codes.shape)


def scale_values(codes, scale, block) -> np.ndarray:
    if scale == "ue5m3":  # codes of numbers, not of a subnormal one or NaN
        return np.repeat((1 + codes % 8 / 8) * 2.0 ** (codes // 8 - 15.0), block, axis=1)
    return np.repeat(codes.view(DTYPES[scale]).astype(np.float64), block, axis=1)


def d_places(layout: str, rows: int, n: int, lane=0) -> tuple[np.ndarray, np.ndarray]:
    """Lanes and columns of D, each broadcastable to [rows, n]. PTX ISA, "Data Path Layout Organization"."""
    m, j = np.arange(rows)[:, None], np.arange(n)[None, :]
    if layout in ("C", "F"):
        return m // 16 * 32 + m % 16 + lane, j
    if layout in ("B", "E", "G"):
        columns = n // {"B": 2, "E": 2, "G": 4}[layout]
        return m + rows * (j // columns), j % columns
    return m, j


# Indices of the PTX ISA, "Sparse Matrices"
TWO_OF_FOUR = np.array([0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110], np.uint8)
ONE_OF_TWO = np.array([0b1110, 0b0100], np.uint8)


def random_indices(rng, rows, kind) -> np.ndarray:
    """Legal indices of metadata, uint8[rows, chunks]: a row has 16 chunks, or 8 of elements wider than a byte."""
    legal = ONE_OF_TWO if kind == "tf32" else TWO_OF_FOUR
    return rng.choice(legal, (rows, 8 if kind in ("f16", "tf32") else 16))


def expanded(stored: np.ndarray, indices: np.ndarray, kind) -> np.ndarray:
    """Rows of K elements from the stored ones (PTX ISA, "Sparse tcgen05.mma.sp with .kind::...")."""
    dense = np.zeros((len(stored), 2 * stored.shape[1]), stored.dtype)
    for row, chunks in enumerate(indices.tolist()):
        for chunk, index in enumerate(chunks):
            if kind == "tf32":
                dense[row, 2 * chunk + (index == 0b1110)] = stored[row, chunk]
                continue
            width = 2 if kind in ("mxf4", "mxf4nvf4") else 1
            for i, position in enumerate((index & 3, index >> 2)):
                first, place = (2 * chunk + i) * width, (4 * chunk + position) * width
                dense[row, place : place + width] = stored[row, first : first + width]
    return dense


def put_metadata(tmem, column, indices: np.ndarray, kind, layout, lane=0) -> None:
    """Write indices of rows (PTX ISA, "Sparsity selector"; CUTLASS, tmem_e_frg). column: that of the selector."""
    words = tmem.words[:, column : column + (1 if kind in ("f16", "tf32") else 2)]
    words[:] = 0
    halved = layout in ("C", "F")
    for m, chunks in enumerate(indices.tolist()):
        for chunk, index in enumerate(chunks):
            k = 4 * chunk
            if kind in ("f16", "tf32"):
                at, word = m % 8 + 8 * (k // 16) + (32 if halved else 16) * (m // 16) + lane, 0
                bit = 16 * (m // 8 % 2) + k % 16
            else:
                at, word, bit = (m // 16 * 32 + m % 16 + lane if halved else m), k // 32, k % 32
            words[at, word] |= np.uint32(index << bit)


LAYOUTS = [(1, 64, 0, "F"), (1, 64, 16, "F"), (1, 128, 0, "D"), (2, 128, 0, "B"), (2, 256, 0, "A")]
"""Tuples (cta_group, M, lane of D, letter of the layout)."""


def assert_close(actual, a, b, before=0.0):
    """Check the bound that nogpu/hardware/tensor/core.py states for one instruction."""
    k = a.shape[1]
    expected = a @ b.T + before
    bound = k * 2.0**-24 / (1 - k * 2.0**-24) * (np.abs(a) @ np.abs(b).T + np.abs(before))
    assert (np.abs(actual - expected) <= bound).all()
