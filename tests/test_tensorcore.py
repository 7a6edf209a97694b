"""Descriptors, tcgen05.cp and tcgen05.mma against element-by-element models and float64 products."""

import ml_dtypes
import numpy as np
import pytest
from encoding import block_scaled_idesc, f16_idesc, smem_descriptor, tensor_map

from emulator import tensorcore, tma
from emulator.descriptors import SmemDescriptor, decode_instruction, operand_chunks
from emulator.errors import Fault
from emulator.memory import GlobalMemory, SharedMemory
from emulator.tensormap import TensorMap
from emulator.tmem import TensorMemory

A, B, SF = 0x2000, 0x12000, 0x1000
D, SFA, SFB = 0, 384, 400
SWIZZLES = (0, 32, 64, 128)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def make_cta(size=200 * 1024) -> tuple[SharedMemory, TensorMemory]:
    tmem = TensorMemory()
    tmem.alloc(512)
    return SharedMemory(size), tmem


def operand_address(start, row, byte, swizzle, stride, leading) -> int:
    """Address of a byte of a K-major operand (PTX ISA, "Shared Memory Layout and Swizzling")."""
    if swizzle == 0:
        return start + row // 8 * stride + row % 8 * 16 + byte // 16 * leading + byte % 16
    address = start + row // 8 * stride + row % 8 * swizzle + byte
    return address ^ (address >> 7 & {32: 1, 64: 3, 128: 7}[swizzle]) << 4


def put_operand(shared, start, rows: np.ndarray, swizzle=128, leading=2048) -> int:
    """Write uint8[rows, bytes] and return its descriptor."""
    stride = 8 * (swizzle or 16)
    for (row, byte), value in np.ndenumerate(rows):
        shared.data[operand_address(start, row, byte, swizzle, stride, leading)] = value
    return smem_descriptor(start, stride, swizzle, leading)


def put_scales(tmem, column, codes: np.ndarray, first_byte=0) -> int:
    """Write scale factor codes uint8[rows, blocks] to all four quadrants (PTX ISA, "Scale Factor A ID")."""
    words = tmem.words.view(np.uint8).reshape(128, 512, 4)
    for (row, block), code in np.ndenumerate(codes):
        for quadrant in range(4):
            words[32 * quadrant + row % 32, column + row // 32, first_byte + block] = code
    return column


def unpack(packed: np.ndarray) -> np.ndarray:
    """float64 of e2m1 pairs."""
    return E2M1[np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)]


def scale_values(codes, scale, block) -> np.ndarray:
    dtype = {"ue4m3": ml_dtypes.float8_e4m3fn, "ue8m0": ml_dtypes.float8_e8m0fnu}[scale]
    return np.repeat(codes.view(dtype).astype(np.float64), block, axis=1)


def d_places(layout: str, rows: int, n: int, lane=0) -> tuple[np.ndarray, np.ndarray]:
    """Lanes and columns of D, each broadcastable to [rows, n]. PTX ISA, "Data Path Layout Organization"."""
    m, j = np.arange(rows)[:, None], np.arange(n)[None, :]
    if layout == "F":
        return m // 16 * 32 + m % 16 + lane, j
    if layout == "B":
        return m + 64 * (j >= n // 2), j % (n // 2)
    return m, j


def assert_close(actual, a, b, before=0.0):
    """Up to 7 * 2**-24 of the sum of magnitudes was measured as the error of float32 sums; 16 * 2**-24 is allowed."""
    expected = a @ b.T + before
    bound = 2.0**-20 * (np.abs(a) @ np.abs(b).T + np.abs(before))
    assert (np.abs(actual - expected) <= bound).all()


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("start", [0x2000, 0x2020, 0x2080, 0x2470])
@pytest.mark.parametrize(("rows", "row_chunks"), [(8, 1), (24, 2), (128, 2), (32, 1)])
def test_operand_chunks(swizzle, start, rows, row_chunks):
    stride = 16 * 8 * 16
    descriptor = smem_descriptor(start, stride, swizzle, leading=4096)
    chunks, lowest, highest = operand_chunks(descriptor, rows, row_chunks)
    expected = [
        [operand_address(start, row, 16 * chunk, swizzle, stride, 4096) // 16 for chunk in range(row_chunks)]
        for row in range(rows)
    ]
    assert np.array_equal(chunks, expected)
    assert (lowest, highest) == (np.min(expected), np.max(expected))


def test_smem_descriptor_fields():
    """The constants that CuTe DSL kernels use for 128-byte swizzled operands and for scale factors."""
    operand = SmemDescriptor.decode(0x4000404000010000 | 0x8400 >> 4)
    assert operand == SmemDescriptor(start=0x8400, leading=16, stride=1024, swizzle=128)
    scales = SmemDescriptor.decode(0x0000400800000000 | 0x3FFF)
    assert scales == SmemDescriptor(start=0x3FFF0, leading=0, stride=128, swizzle=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (1 << 46, "bits 46-48 are 0, must be 1"),
        (1 << 47, "bits 46-48 are 3, must be 1"),
        (1 << 14, "reserved bits"),
        (1 << 31, "reserved bits"),
        (1 << 53, "reserved bits"),
        (1 << 60, "reserved bits"),
        (3 << 49, "base offset 3 is not modelled"),
        (1 << 52, "needs sm_103a"),
        (3 << 61, "32-byte atoms is not modelled"),
        (1 << 61, "swizzling mode 3 is invalid"),
        (5 << 61, "swizzling mode 7 is invalid"),
        (1 << 32, "stride 1040 is not a multiple of the 1024 bytes"),
        (8 << 32, "stride 1152 is not a multiple of the 1024 bytes"),
    ],
)
def test_illegal_smem_descriptors(changes, message):
    good = smem_descriptor(0x2000, 1024, 128)
    SmemDescriptor.decode(good)
    with pytest.raises(Fault, match=message):
        SmemDescriptor.decode(good ^ changes)


@pytest.mark.parametrize(
    ("shape", "multicast", "rows", "row_bytes", "quadrants"),
    [
        ("32x128b", "warpx4", 32, 16, (0, 0, 0, 0)),
        ("64x128b", "warpx2::02_13", 64, 16, (0, 1, 0, 1)),
        ("64x128b", "warpx2::01_23", 64, 16, (0, 0, 1, 1)),
        ("128x128b", None, 128, 16, (0, 1, 2, 3)),
        ("128x256b", None, 128, 32, (0, 1, 2, 3)),
    ],
)
def test_copy(shape, multicast, rows, row_bytes, quadrants):
    pairs = [make_cta(), make_cta()]
    images = []
    for seed, (shared, _) in enumerate(pairs):
        data = np.random.default_rng(seed).integers(0, 256, (rows, row_bytes), dtype=np.uint8)
        descriptor = put_operand(shared, SF, data, swizzle=0, leading=4096)
        images.append(data)
    tensorcore.copy(shape, multicast, 40, descriptor, pairs)
    for data, (_, tmem) in zip(images, pairs, strict=True):
        expected = np.full((128, 512, 4), 0xFF, np.uint8)
        for lane in range(128):
            row = 32 * quadrants[lane // 32] + lane % 32
            expected[lane, 40 : 40 + row_bytes // 4] = data[row].reshape(-1, 4)
        assert np.array_equal(tmem.words.view(np.uint8).reshape(128, 512, 4), expected)


def test_copy_brings_scale_factors_where_the_mma_looks_for_them():
    """The 512-byte atom of 128 rows by 4 blocks (cuBLAS, 1D block scaling layout)."""
    cta = make_cta()
    codes = np.random.default_rng(0).integers(0, 0x7F, (128, 4), dtype=np.uint8)
    for (row, block), code in np.ndenumerate(codes):
        cta[0].data[SF + row % 32 * 16 + row // 32 * 4 + block] = code
    tensorcore.copy("32x128b", "warpx4", SFA, 0x0000400800000000 | SF >> 4, [cta])
    other = make_cta()
    put_scales(other[1], SFA, codes)
    assert np.array_equal(cta[1].words, other[1].words)


@pytest.mark.parametrize(
    ("shape", "multicast", "taddr", "start", "message"),
    [
        ("4x256b", None, 0, SF, r"tcgen05.cp.4x256b is not modelled"),
        ("32x128b", None, 0, SF, r"tcgen05.cp.32x128b is not modelled"),
        ("128x128b", "warpx4", 0, SF, r"tcgen05.cp.128x128b.warpx4 is not modelled"),
        ("32x128b", "warpx4", 32 << 16, SF, r"lane 32; must be 0"),
        ("32x128b", "warpx4", 509, SF, r"columns 509 to 512; limit 511"),
        ("32x128b", "warpx4", 0, 0x200, r"tcgen05.cp, shared memory descriptor 0x.* at shared offset 0x200"),
        ("128x128b", None, 0, 200 * 1024, r"tcgen05.cp, shared memory descriptor .* 0x32400\)"),
    ],
)
def test_illegal_copies(shape, multicast, taddr, start, message):
    with pytest.raises(Fault, match=message):
        tensorcore.copy(shape, multicast, taddr, smem_descriptor(start, 128), [make_cta()])


SCALED = [
    ("mxf4nvf4", 16, "ue4m3", 0, 0),
    ("mxf4nvf4", 16, "ue8m0", 0, 0),
    ("mxf4nvf4", 32, "ue8m0", 2, 0),
    ("mxf4", 32, "ue8m0", 0, 2),
]


class Problem:
    """Random operands of a block-scaled MMA in one CTA or in both of a pair, and their values in float64."""

    def __init__(self, rng, ctas, rows, n, scale, block, sfa_id=0, sfb_id=0, swizzle=128):
        group = len(ctas)
        self.a, self.b = [], []
        b_packed = rng.integers(0, 256, (n, 32), dtype=np.uint8)
        # ue8m0: exponents near 127; ue4m3: everything but NaN.
        limits = (0x00, 0x7F) if scale == "ue4m3" else (117, 137)
        b_codes = rng.integers(*limits, (n, 64 // block), dtype=np.uint8)
        for rank, (shared, tmem) in enumerate(ctas):
            a_packed = rng.integers(0, 256, (rows, 32), dtype=np.uint8)
            a_codes = rng.integers(*limits, (rows, 64 // block), dtype=np.uint8)
            part = n // group
            self.a_descriptor = put_operand(shared, A, a_packed, swizzle, leading=0x4000)
            self.b_descriptor = put_operand(shared, B, b_packed[rank * part :][:part], swizzle, leading=0x4000)
            put_scales(tmem, SFA, a_codes, sfa_id)
            put_scales(tmem, SFB, b_codes, sfb_id)
            self.a.append(unpack(a_packed) * scale_values(a_codes, scale, block))
        self.b_values = unpack(b_packed) * scale_values(b_codes, scale, block)


@pytest.mark.parametrize(("kind", "block", "scale", "sfa_id", "sfb_id"), SCALED)
@pytest.mark.parametrize("n", [8, 64, 72, 256])
@pytest.mark.parametrize("swizzle", [128, 0])
def test_block_scaled_mma_in_one_cta(kind, block, scale, sfa_id, sfb_id, n, swizzle):
    rng = np.random.default_rng(n)
    ctas = [make_cta()]
    problem = Problem(rng, ctas, 128, n, scale, block, sfa_id, sfb_id, swizzle)
    idesc = block_scaled_idesc(128, n, scale, sfa_id, sfb_id)
    addresses = (D, problem.a_descriptor, problem.b_descriptor, idesc, SFA, SFB)
    floats = ctas[0][1].floats
    assert tensorcore.mma(kind, 1, block, *addresses, False, ctas) == 2 * 128 * n * 64
    assert_close(floats[:, D : D + n], problem.a[0], problem.b_values)
    before = floats[:, D : D + n].copy()
    tensorcore.mma(kind, 1, block, *addresses, True, ctas)
    assert_close(floats[:, D : D + n], problem.a[0], problem.b_values, before.astype(np.float64))
    assert (ctas[0][1].words[:, n:SFA] == 0xFFFFFFFF).all()


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("n", [16, 128, 240])
def test_block_scaled_mma_in_a_pair(swizzle, n):
    """Layout A: each CTA has 128 rows of A and of D; B's rows are half in the even CTA, half in the odd one."""
    ctas = [make_cta(), make_cta()]
    problem = Problem(np.random.default_rng(n), ctas, 128, n, "ue4m3", 16, swizzle=swizzle)
    idesc = block_scaled_idesc(256, n)
    addresses = (100, problem.a_descriptor, problem.b_descriptor, idesc, SFA, SFB)
    flops = tensorcore.mma("mxf4nvf4", 2, 16, *addresses, False, ctas)
    assert flops == 2 * 256 * n * 64
    for (_, tmem), a in zip(ctas, problem.a, strict=True):
        assert_close(tmem.floats[:, 100 : 100 + n], a, problem.b_values)


def test_k_slices_of_a_swizzled_tile():
    """Four MMAs over a 128-byte wide tile, the descriptor advancing 32 bytes at a time inside the swizzle pattern."""
    rng = np.random.default_rng(0)
    shared, tmem = cta = make_cta()
    a, b = (rng.integers(0, 256, (128, 128), dtype=np.uint8) for _ in range(2))
    a_descriptor, b_descriptor = put_operand(shared, A, a), put_operand(shared, B, b)
    ones = np.full((128, 4), 0x38, np.uint8)
    put_scales(tmem, SFA, ones), put_scales(tmem, SFB, ones)
    for k in range(4):
        descriptors = (a_descriptor + 2 * k, b_descriptor + 2 * k)
        tensorcore.mma("mxf4nvf4", 1, 16, D, *descriptors, block_scaled_idesc(128, 128), SFA, SFB, k > 0, [cta])
    assert np.array_equal(tmem.floats[:, :128], unpack(a) @ unpack(b).T)


def f16_operand(rng, rows, element) -> tuple[np.ndarray, np.ndarray]:
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[element]
    values = rng.standard_normal((rows, 16)).astype(dtype)
    return values.view(np.uint8).reshape(rows, 32), values.astype(np.float64)


@pytest.mark.parametrize(("a_type", "b_type"), [("f16", "f16"), ("bf16", "bf16"), ("bf16", "f16")])
@pytest.mark.parametrize(
    ("group", "m", "lane", "layout"), [(1, 64, 0, "F"), (1, 64, 16, "F"), (1, 128, 0, "D"), (2, 128, 0, "B")]
)
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_f16_mma(a_type, b_type, group, m, lane, layout, swizzle):
    rng = np.random.default_rng(m + group)
    n = 48
    ctas = [make_cta() for _ in range(group)]
    b_bytes, b = f16_operand(rng, n, b_type)
    operands = []
    for rank, (shared, _) in enumerate(ctas):
        a_bytes, a = f16_operand(rng, m // group, a_type)
        operands.append(a)
        part = n // group
        descriptors = (
            put_operand(shared, A, a_bytes, swizzle, 0x4000),
            put_operand(shared, B, b_bytes[rank * part :][:part], swizzle, 0x4000),
        )
    arguments = (lane << 16 | 32, *descriptors, f16_idesc(m, n, a_type, b_type), 0, 0)
    tensorcore.mma("f16", group, None, *arguments, False, ctas)
    tensorcore.mma("f16", group, None, *arguments, True, ctas)
    for (_, tmem), a in zip(ctas, operands, strict=True):
        lanes, columns = d_places(layout, m // group, n, lane)
        assert_close(tmem.floats[lanes, columns + 32], a, b, a @ b.T)
        untouched = np.ones((128, 512), bool)
        untouched[lanes, columns + 32] = False
        assert (tmem.words[untouched] == 0xFFFFFFFF).all()


@pytest.mark.parametrize(("group", "m", "layout"), [(1, 64, "F"), (1, 128, "D"), (2, 256, "A"), (2, 128, "B")])
def test_f16_accumulator(group, m, layout):
    """A 16-bit D is rounded after each instruction and lies in the low halves of its words."""
    rng = np.random.default_rng(1)
    ctas = [make_cta() for _ in range(group)]
    n = 32
    b_bytes, b = f16_operand(rng, n, "f16")
    operands = []
    for rank, (shared, _) in enumerate(ctas):
        a_bytes, a = f16_operand(rng, m // group, "f16")
        operands.append(a)
        part = n // group
        descriptors = put_operand(shared, A, a_bytes), put_operand(shared, B, b_bytes[rank * part :][:part])
    for accumulate in (False, True):
        tensorcore.mma("f16", group, None, D, *descriptors, f16_idesc(m, n, d="f16"), 0, 0, accumulate, ctas)
    for (_, tmem), a in zip(ctas, operands, strict=True):
        words = tmem.words[d_places(layout, m // group, n)]
        assert (words >> 16 == 0xFFFF).all()
        actual = (words & 0xFFFF).astype(np.uint16).view(np.float16)
        product = (a.astype(np.float32) @ b.T.astype(np.float32)).astype(np.float32)
        expected = (product + product.astype(np.float16).astype(np.float32)).astype(np.float16)
        assert np.array_equal(actual, expected)


@pytest.mark.parametrize(
    ("group", "m", "lane", "layout"), [(1, 64, 16, "F"), (1, 128, 0, "D"), (2, 256, 0, "A"), (2, 128, 0, "B")]
)
def test_a_in_tensor_memory(group, m, lane, layout):
    rng = np.random.default_rng(2)
    ctas = [make_cta() for _ in range(group)]
    n = 32
    b_bytes, b = f16_operand(rng, n, "f16")
    operands = []
    for rank, (shared, tmem) in enumerate(ctas):
        a_bytes, a = f16_operand(rng, m // group, "f16")
        operands.append(a)
        rows = np.arange(m // group)
        lanes = {"F": rows // 16 * 32 + rows % 16 + lane}.get(layout, rows)
        tmem.words[lanes, 200:208] = a_bytes.view(np.uint32)
        if layout == "B":
            tmem.words[lanes + 64, 200:208] = a_bytes.view(np.uint32)
        descriptor = put_operand(shared, B, b_bytes[rank * (n // group) :][: n // group])
    arguments = (lane << 16, lane << 16 | 200, descriptor, f16_idesc(m, n), 0, 0, False, ctas)
    tensorcore.mma("f16", group, None, *arguments, a_in_tmem=True)
    for (_, tmem), a in zip(ctas, operands, strict=True):
        assert_close(tmem.floats[d_places(layout, m // group, n, lane)], a, b)
    ctas[0][1].dealloc(0, 512)
    ctas[0][1].alloc(128)
    with pytest.raises(Fault, match=r"tcgen05.mma A: tensor memory column 200"):
        tensorcore.mma("f16", group, None, *arguments, a_in_tmem=True)
    ctas[0][1].alloc(256)
    if layout == "F":
        with pytest.raises(Fault, match="A at lane 0, D at lane 16; must be the same"):
            tensorcore.mma("f16", group, None, lane << 16, 200, *arguments[2:], a_in_tmem=True)
    if layout == "B":
        ctas[1][1].words[70, 203] ^= 1
        with pytest.raises(Fault, match="lanes 64-127 differs from lanes 0-63"):
            tensorcore.mma("f16", group, None, *arguments, a_in_tmem=True)


def test_a_in_tensor_memory_of_4_bits():
    rng = np.random.default_rng(3)
    ctas = [make_cta()]
    problem = Problem(rng, ctas, 128, 64, "ue4m3", 16)
    shared, tmem = ctas[0]
    tmem.words[:, 300:308] = tensorcore._gather(shared, problem.a_descriptor, 128, 2, "test", None).view(np.uint32)
    arguments = (problem.b_descriptor, block_scaled_idesc(128, 64), SFA, SFB, False, ctas)
    tensorcore.mma("mxf4nvf4", 1, 16, D, 300, *arguments, a_in_tmem=True)
    assert_close(tmem.floats[:, :64], problem.a[0], problem.b_values)


@pytest.mark.parametrize(("negate_a", "negate_b"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_negation(negate_a, negate_b):
    ctas = [make_cta()]
    problem = Problem(np.random.default_rng(4), ctas, 128, 32, "ue4m3", 16)
    idesc = block_scaled_idesc(128, 32, negate_a=negate_a, negate_b=negate_b)
    tensorcore.mma("mxf4nvf4", 1, 16, D, problem.a_descriptor, problem.b_descriptor, idesc, SFA, SFB, False, ctas)
    assert_close(ctas[0][1].floats[:, :32], problem.a[0] * (-1) ** (negate_a + negate_b), problem.b_values)


@pytest.mark.parametrize(("code", "scale"), [(0x7F, "ue4m3"), (0xFF, "ue4m3"), (0xFF, "ue8m0")])
def test_a_nan_scale_spoils_its_row_or_column_and_nothing_else(code, scale):
    ctas = [make_cta()]
    problem = Problem(np.random.default_rng(5), ctas, 128, 64, scale, 16)
    tmem = ctas[0][1]
    put_scales(tmem, SFA + 2, np.full((7, 1), code, np.uint8), first_byte=2)
    put_scales(tmem, SFB, np.full((1, 1), code, np.uint8), first_byte=1)
    idesc = block_scaled_idesc(128, 64, scale)
    tensorcore.mma("mxf4nvf4", 1, 16, D, problem.a_descriptor, problem.b_descriptor, idesc, SFA, SFB, False, ctas)
    expected = np.zeros((128, 64), bool)
    expected[64:71] = True
    expected[:, 0] = True
    assert np.array_equal(np.isnan(tmem.floats[:, :64]), expected)


def test_accumulating_into_untouched_columns_gives_nan():
    ctas = [make_cta()]
    problem = Problem(np.random.default_rng(6), ctas, 128, 32, "ue4m3", 16)
    arguments = (D, problem.a_descriptor, problem.b_descriptor, block_scaled_idesc(128, 32), SFA, SFB)
    tensorcore.mma("mxf4nvf4", 1, 16, *arguments, True, ctas)
    assert np.isnan(ctas[0][1].floats[:, :32]).all()


def test_infinities_follow_ieee():
    shared, tmem = cta = make_cta()
    a, b = np.zeros((128, 16), np.float16), np.zeros((16, 16), np.float16)
    a[0, 0], b[0, 0], b[1, 0] = np.inf, 2, -1
    descriptors = put_operand(shared, A, a.view(np.uint8)), put_operand(shared, B, b.view(np.uint8))
    tensorcore.mma("f16", 1, None, D, *descriptors, f16_idesc(128, 16), 0, 0, False, [cta])
    assert tmem.floats[0, 0] == np.inf and tmem.floats[0, 1] == -np.inf
    assert np.isnan(tmem.floats[0, 2:16]).all() and not tmem.floats[1:128, :16].any()


def test_scale_factors_must_be_the_same_in_all_quadrants():
    ctas = [make_cta()]
    problem = Problem(np.random.default_rng(7), ctas, 128, 40, "ue4m3", 16)
    arguments = (D, problem.a_descriptor, problem.b_descriptor, block_scaled_idesc(128, 40), SFA, SFB, False, ctas)
    words = ctas[0][1].words
    words[96 + 8, SFB + 1] = 0  # row 40 of 40: not in use
    tensorcore.mma("mxf4nvf4", 1, 16, *arguments)
    words[64 + 7, SFB + 1] ^= 1 << 8
    with pytest.raises(Fault, match=r"SFB: row 39 in column 401 differs between lanes 7 and 71"):
        tensorcore.mma("mxf4nvf4", 1, 16, *arguments)


GOOD = {"kind": "mxf4nvf4", "group": 1, "block": 16, "idesc": block_scaled_idesc(128, 64)}
F16 = {"kind": "f16", "group": 1, "block": None, "idesc": f16_idesc(128, 64)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "tf32"}, r"kind::tf32 is not modelled; modelled: f16, mxf4, mxf4nvf4"),
        ({"group": 3}, r"cta_group::3; must be 1 or 2"),
        ({"block": 64}, r"with block64; allowed: block16, block32"),
        ({"block": None}, r"with block0; allowed: block16, block32"),
        ({"kind": "mxf4"}, r"kind::mxf4 with block16; allowed: block32"),
        ({"kind": "mxf4", "block": 32}, r"scale type ue4m3 with kind::mxf4 and block32"),
        ({"block": 32}, r"scale type ue4m3 with kind::mxf4nvf4 and block32"),
        ({"idesc": block_scaled_idesc(64, 64)}, r"M is 64, must be 128 for kind::mxf4nvf4 with cta_group::1"),
        ({"idesc": block_scaled_idesc(256, 64)}, r"M is 256, must be 128"),
        ({"group": 2}, r"M = 128 for a pair of CTAs is not modelled"),
        ({"group": 2, "idesc": block_scaled_idesc(256, 24)}, r"N is 24, must be a multiple of 16 up to 256"),
        ({"idesc": block_scaled_idesc(128, 0)}, r"N is 0, must be a multiple of 8"),
        ({"idesc": block_scaled_idesc(128, 264)}, r"N is 264, must be a multiple of 8 up to 256"),
        ({"idesc": block_scaled_idesc(128, 64, sfa_id=1)}, r"SFA_ID is 1, must be 0 for block16"),
        ({"idesc": block_scaled_idesc(128, 64, sfb_id=2)}, r"SFB_ID is 2, must be 0 for block16"),
        ({"block": 32, "idesc": block_scaled_idesc(128, 64, "ue8m0", 3)}, r"SFA_ID is 3, must be 0 or 2 for block32"),
        ({"idesc": GOOD["idesc"] | 4}, r"sparsity bits 0-2"),
        ({"idesc": GOOD["idesc"] | 8}, r"reserved bits \(3, 6\)"),
        ({"idesc": GOOD["idesc"] | 1 << 6}, r"reserved bits \(3, 6\)"),
        ({"idesc": GOOD["idesc"] ^ 4 << 7}, r"formats A 5, B 1; kind::mxf4nvf4 has only 1"),
        ({"idesc": GOOD["idesc"] ^ 1 << 10}, r"formats A 1, B 0"),
        ({"idesc": GOOD["idesc"] | 1 << 15}, r"transposed A or B \(bits 15, 16\) with kind::mxf4nvf4"),
        ({"idesc": GOOD["idesc"] | 1 << 31}, r"K of 96 \(bit 31\) needs sm_103a"),
        (F16 | {"block": 16}, r"kind::f16 with block16; allowed: no block scaling"),
        (F16 | {"idesc": f16_idesc(256, 64)}, r"M is 256, must be 64 or 128 for kind::f16"),
        (F16 | {"group": 2, "idesc": f16_idesc(64, 64)}, r"M is 64, must be 128 or 256 for kind::f16"),
        (F16 | {"idesc": f16_idesc(128, 64, "bf16", "bf16", "f16")}, r"D of type f16 needs A and B of type f16"),
        (F16 | {"idesc": F16["idesc"] | 2 << 7}, r"formats A 2, B 0, D 1"),
        (F16 | {"idesc": F16["idesc"] | 3 << 4}, r"formats A 0, B 0, D 3"),
        (F16 | {"idesc": F16["idesc"] | 1 << 16}, r"transposed .* is not modelled"),
        (F16 | {"idesc": F16["idesc"] | 1 << 30}, r"maximum shift 1"),
        (F16 | {"idesc": F16["idesc"] | 1 << 29}, r"reserved bits \(3, 6, 23, 29\)"),
        (F16 | {"idesc": F16["idesc"] | 1 << 3}, r"saturation or reserved bits"),
    ],
)
def test_illegal_instructions(changes, message):
    good = GOOD | changes
    for legal in (GOOD, F16):
        decode_instruction(legal["kind"], legal["group"], legal["block"], legal["idesc"])
    with pytest.raises(Fault, match=message):
        decode_instruction(good["kind"], good["group"], good["block"], good["idesc"])


def test_a_dsl_instruction_descriptor():
    """M = 128, N = 256, e2m1, ue4m3 as CuTe DSL encodes it."""
    assert block_scaled_idesc(128, 256) == 0x08400480
    op = decode_instruction("mxf4nvf4", 1, 16, 0x08400480)
    assert (op.m, op.n, op.k, op.layout, op.scale_type, op.a_type, op.d_type) == (
        128,
        256,
        64,
        "D",
        "ue4m3",
        "e2m1",
        "f32",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d": 16 << 16}, r"D at lane 16, not allowed for M = 128"),
        ({"d": 480}, r"columns 480 to 543; limit 511"),
        ({"d": 230}, r"tcgen05.mma D: tensor memory column 256 \(of 230 to 293\) is not allocated"),
        ({"sfa": 254}, r"tcgen05.mma SFA: tensor memory column 256"),
        ({"sfb": 255}, r"tcgen05.mma SFB: tensor memory column 256"),
        ({"sfa": 32 << 16}, r"SFA at lane 32; must be 0"),
        ({"sfb": 1 << 16}, r"SFB at lane 1; must be 0"),
        (
            {"a": smem_descriptor(0x200, 1024, 128)},
            r"tcgen05.mma A, shared memory descriptor .* at shared offset 0x240",
        ),
        ({"b": smem_descriptor(0x3F000, 1024, 128)}, r"tcgen05.mma B, shared memory descriptor"),
        ({"a": smem_descriptor(A, 1024, 128, version=0)}, r"bits 46-48 are 0, must be 1"),
    ],
)
def test_illegal_operands(changes, message):
    tmem = TensorMemory()
    tmem.alloc(256)
    shared = SharedMemory(200 * 1024)
    shared.data[:] = 0
    arguments = {
        "d": 0,
        "a": smem_descriptor(A, 1024, 128),
        "b": smem_descriptor(B, 1024, 128),
        "idesc": GOOD["idesc"],
        "sfa": 128,
        "sfb": 192 | 3 << 30,  # the byte id in bits 30-31 of the address is the kernel's own note
        "accumulate": False,
        "ctas": [(shared, tmem)],
    }
    tensorcore.mma("mxf4nvf4", 1, 16, **arguments)
    with pytest.raises(Fault, match=message):
        tensorcore.mma("mxf4nvf4", 1, 16, **arguments | changes)


def test_the_number_of_ctas_must_fit():
    with pytest.raises(ValueError, match=r"cta_group::2 needs 2 CTAs, got 1"):
        tensorcore.mma("mxf4nvf4", 2, 16, 0, 0, 0, block_scaled_idesc(256, 64), 0, 0, False, [make_cta()])


def test_observers_see_every_chunk_read():
    ctas = [make_cta()]
    problem = Problem(np.random.default_rng(8), ctas, 128, 64, "ue4m3", 16)
    seen = []
    ctas[0][0].observer = lambda kind, proxy, addresses, shape, strides, who: seen.append(
        (kind, proxy, sorted(addresses.tolist()), shape, strides, who)
    )
    arguments = (D, problem.a_descriptor, problem.b_descriptor, block_scaled_idesc(128, 64), SFA, SFB, False, ctas)
    tensorcore.mma("mxf4nvf4", 1, 16, *arguments, who="me")

    def chunks(start, rows):
        return sorted(
            {operand_address(start, row, byte, 128, 1024, 0) & -16 for row in range(rows) for byte in (0, 16)}
        )

    assert seen == [("load", "async", chunks(start, rows), (16,), (1,), "me") for start, rows in ((B, 64), (A, 128))]


def test_a_tile_from_global_memory_to_registers():
    """Tensor and bulk loads, tcgen05.cp, four MMAs over a K tile of 256, tcgen05.ld: against the product in float64."""
    rng = np.random.default_rng(9)
    shared, tmem = cta = make_cta()
    rows, n, blocks = 128, 64, 16
    a, b = (rng.integers(0, 256, (size, 128), dtype=np.uint8) for size in (rows, n))
    codes = [rng.integers(0x30, 0x40, (128, blocks), dtype=np.uint8) for _ in range(2)]
    memory, storage = GlobalMemory(), []

    def publish(data: np.ndarray) -> int:
        storage.append(np.zeros(data.size + 128, np.uint8))
        start = -storage[-1].ctypes.data % 128
        storage[-1][start : start + data.size] = data.ravel()
        memory.register(storage[-1].ctypes.data + start, data.size)
        return storage[-1].ctypes.data + start

    for offset, matrix in ((A, a), (B, b)):
        raw = tensor_map(publish(matrix), (256, len(matrix)), (128,), (256, len(matrix)), "b4x16", 128)
        tma.load_tile(TensorMap.decode(raw), (0, 0), memory, shared, offset)
    for offset, matrix, column in ((SF, codes[0], SFA), (SF + 2048, codes[1], SFB)):
        # 512-byte atoms of 128 rows by 4 blocks: [block / 4][row % 32][row / 32][block % 4]
        atoms = matrix.reshape(4, 32, blocks // 4, 4).transpose(2, 1, 0, 3)
        tma.load_bulk(memory, publish(np.ascontiguousarray(atoms)), shared, offset, 2048)
        for k in range(4):
            tensorcore.copy("32x128b", "warpx4", column + 4 * k, smem_descriptor(offset + 512 * k, 128), [cta])
    for k in range(4):
        descriptors = smem_descriptor(A + 32 * k, 1024, 128), smem_descriptor(B + 32 * k, 1024, 128)
        scales = SFA + 4 * k, SFB + 4 * k
        tensorcore.mma("mxf4nvf4", 1, 16, D, *descriptors, block_scaled_idesc(rows, n), *scales, k > 0, [cta])
    a_values = unpack(a) * scale_values(codes[0], "ue4m3", 16)
    b_values = unpack(b) * scale_values(codes[1][:n], "ue4m3", 16)
    quadrants = [tmem.load("32x32b", n, warp, 32 * warp << 16).T.copy().view(np.float32) for warp in range(4)]
    assert np.array_equal(np.concatenate(quadrants), a_values @ b_values.T)
