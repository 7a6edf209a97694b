"""CUDA C++ kernels, compiled by nvcc and run from their PTX: GEMMs with TMA, mbarriers and tcgen05; the language."""

import ctypes
import re

import ml_dtypes
import numpy as np
import pytest

import nogpu
from nogpu.errors import EmulatorError
from nogpu.execution.device import Device
from tests.support.encoding import tensor_map
from tests.support.nvcc import SOURCES, needs_nvcc, ptx

pytestmark = needs_nvcc

TILE_M, TILE_N, TILE_K, STAGES = 128, 64, 64, 3  # sizes of gemm.cu
SHARED = STAGES * 2 * TILE_K * (TILE_M + TILE_N)


@pytest.fixture(scope="module")
def language():
    return nogpu.load_ptx(ptx("language.cu", "-lineinfo"))


def operands(m, n, k):
    """Operands A and B, f16 integers: sums in fp32 are exact in any order."""
    random = np.random.default_rng(m * n + k)
    return tuple(nogpu.array(random.integers(-8, 9, (rows, k)).astype(np.float16)) for rows in (m, n))


def gemm(m, n, k, text, shared=SHARED, box=TILE_K):
    a, b = operands(m, n, k)
    c = nogpu.array(np.full((m, n), np.nan, np.float32))
    maps = [
        tensor_map(x.ctypes.data, (k, len(x)), (2 * k,), (box, rows), "f16", 128)
        for x, rows in ((a, TILE_M), (b, TILE_N))
    ]
    nogpu.load_ptx(text)["gemm"].launch((n // TILE_N, m // TILE_M), 128, [*maps, c, n, k], shared=shared)
    return c, a.astype(np.float32) @ b.astype(np.float32).T


@pytest.mark.parametrize("m,n,k", [(128, 64, 64), (256, 128, 320), (128, 192, 704)])
def test_gemm(m, n, k):
    c, expected = gemm(m, n, k, ptx("gemm.cu"))
    assert c.tobytes() == expected.tobytes()


def test_gemm_under_every_kind_of_schedule(monkeypatch):
    monkeypatch.setattr(Device.current(), "schedules", ("late", "eager", "random:1", "random:2"))
    c, expected = gemm(256, 64, 256, ptx("gemm.cu"))
    assert c.tobytes() == expected.tobytes()


def scale_blocks(scales):
    """Scales [rows, K / 16] as blocks of 128 rows by 4: row r, scale s at byte r % 32 * 16 + r // 32 * 4 + s."""
    rows, columns = scales.shape
    return np.ascontiguousarray(scales.reshape(rows // 128, 4, 32, columns // 4, 4).transpose(0, 3, 2, 1, 4))


@pytest.mark.parametrize("m,n,k", [(128, 128, 256), (128, 256, 1280)])
def test_nvfp4_gemm(m, n, k):
    """Scale factors are powers of two and values multiples of a half: sums in fp32 are exact."""
    random = np.random.default_rng(n * k)
    values = [random.integers(0, 16, (rows, k), dtype=np.uint8) for rows in (m, n)]
    scales = [(2.0 ** random.integers(-3, 3, (rows, k // 16))).astype(ml_dtypes.float8_e4m3fn) for rows in (m, n)]
    packed = [nogpu.array(codes[:, ::2] | codes[:, 1::2] << 4) for codes in values]
    maps = [tensor_map(x.ctypes.data, (k, len(x)), (k // 2,), (256, 128), "b4x16", 128) for x in packed]
    blocks = [nogpu.array(scale_blocks(scale.view(np.uint8))) for scale in scales]
    c = nogpu.array(np.full((m, n), np.nan, np.float32))
    kernel = nogpu.load_ptx(ptx("nvfp4.cu"))["nvfp4"]
    kernel.launch((n // 128, m // 128), 128, [*maps, *blocks, c, n, k], shared=2 * (128 * 256 + 2 * 2048))
    a, b = (
        codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64) * np.repeat(scale.astype(np.float64), 16, axis=1)
        for codes, scale in zip(values, scales, strict=True)
    )
    assert c.tobytes() == (a @ b.T).astype(np.float32).tobytes()


@pytest.mark.parametrize(
    "change,reason",
    [
        ({"shared": SHARED - 1}, "shared offset"),
        ({"box": 32}, "12288 bytes outstanding"),
        ({"text": (r"mbarrier\.init\.shared::cta\.b64 \[\S+\], \S+;", "")}, "there is no mbarrier"),
        ({"text": (r"tcgen05\.dealloc[^;]*;", "")}, "exits with tensor memory allocated"),
        ({"text": (r"tcgen05\.commit[^;]*;", "")}, "hangs"),
    ],
)
def test_a_broken_gemm_is_noticed(change, reason):
    change = dict(change)
    pattern = change.pop("text", None)
    text = re.sub(*pattern, ptx("gemm.cu")) if pattern else ptx("gemm.cu")
    with pytest.raises(EmulatorError, match=reason) as error:
        gemm(128, 64, 512, text, **change)
    assert error.value.kernel == "gemm" and error.value.ptx_line


def test_errors_carry_the_line_of_the_source():
    text = re.sub(r"tcgen05\.dealloc", "tcgen05.dealloc.nonsense", ptx("gemm.cu", "-lineinfo"))
    with pytest.raises(EmulatorError, match="tcgen05.dealloc.nonsense.* is not modelled") as error:
        gemm(128, 64, 64, text)
    lines = (SOURCES / "sm100.cuh").read_text().splitlines()
    line = next(number for number, line in enumerate(lines, 1) if "tcgen05.dealloc" in line)
    assert error.value.source.endswith((f"sm100.cuh:{line - 1}", f"sm100.cuh:{line}"))


def test_device_functions(language):
    values = np.arange(64, dtype=np.float32)
    kernel_values = nogpu.array(values)
    language["calls"].launch(1, 64, [kernel_values])

    def rotate(x, y, times):
        for _ in range(times):
            x, y = -y, x
        return x, y

    def spread(column, source):
        return [column[source[i]] + rotate(column[i], 1.0, source[i] & 3)[0] for i in range(64)]

    first = [rotate(values[i], 2.0 * i, i & 3)[1] if i % 3 == 0 else values[i] for i in range(64)]
    one, two = spread(first, [i * 7 & 63 for i in range(64)]), spread(values, [5] * 64)
    assert kernel_values.tolist() == [a + b for a, b in zip(one, two, strict=True)]


@pytest.mark.parametrize("shift", [0, 1])
def test_calls_through_pointers(language, shift):
    values = nogpu.array(np.arange(32, dtype=np.int32))
    language["pointers"].launch(1, 32, [values, shift])
    assert values.tolist() == [i * i if (i + shift) & 1 else 2 * i for i in range(32)]


def test_constants(language):
    out = nogpu.array(np.zeros(32, np.float32))
    language["constants"].launch(1, 32, [out, 3])
    weights = language.variable("weights").view(np.float32)
    assert weights.tolist() == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
    assert out.tolist() == [weights[i + 3 & 7] for i in range(32)]
    before = weights.copy()
    weights[:] = -before
    language["constants"].launch(1, 32, [out, 0])
    assert out.tolist() == [-before[i & 7] for i in range(32)]
    weights[:] = before


def test_variables_keep_what_kernels_store():
    module = nogpu.load_ptx(ptx("language.cu"))
    out = nogpu.array(np.zeros(32, np.int32))
    for counter in (5, 6):
        module["variables"].launch(1, 32, [out])
        history = [0, 0, counter, 0]
        assert out.tolist() == [history[i & 3] * 100 + counter + 1 + b"hello"[i % 5] for i in range(32)]
    with pytest.raises(EmulatorError, match=r"0 byte\(s\) past the end of variable history") as error:
        module["past_the_end"].launch(1, 1, [4])
    assert "st.global" in error.value.ptx_text


def test_structures_by_value(language):
    class Table(ctypes.Structure):
        _fields_ = [("out", ctypes.c_uint64), ("values", ctypes.c_int8 * 24)]

    out = nogpu.array(np.zeros(48, np.int32))
    values = [3 * i - 40 for i in range(24)]
    language["by_value"].launch(1, 48, [Table(out.ctypes.data, (ctypes.c_int8 * 24)(*values)), 5])
    assert out.tolist() == [values[(i + 5) % 24] for i in range(48)]


def test_printf(language, capfd):
    language["print"].launch(1, 32, [-42])
    first = "-42|  -42|-42  |-0042|-42|4000000000|ff|0XFF|10|q|%\n"
    second = f"[hello]    -63.000 1.234568e+04 1e-07 {-(1 << 40)} {(1 << 64) - 1} 44 0.67\n"
    assert capfd.readouterr().out == first * 2 + second * 2 + "plain, last of 0 arguments\n"


def test_assertions(language):
    values = nogpu.array(np.arange(32, dtype=np.int32))
    language["checked"].launch(1, 32, [values, 32])
    with pytest.raises(EmulatorError, match=r"assertion `values\[threadIdx.x\] < limit` failed .*thread \(20, 0, 0\)"):
        language["checked"].launch(1, 32, [values, 20])


def test_128_bit_integers(language):
    words = [0xFEDCBA9876543210, 0xFFFFFFFFFFFFFFFF, 0x0123456789ABCDEF, 0x8000000000000001]
    out = nogpu.array(np.zeros(6, np.uint64))
    language["wide"].launch(1, 1, [nogpu.array(np.array(words, np.uint64)), out])
    a, b = words[0] << 64 | words[1], words[2] << 64 | words[3]
    expected = [value % (1 << 128) for value in (a + b, a - b, a * b)]
    assert [int(out[2 * i]) << 64 | int(out[2 * i + 1]) for i in range(3)] == expected


def test_cluster_dimensions(language):
    out = nogpu.array(np.zeros(4 * 32, np.int32))
    language["neighbours"].launch(4, 32, [out])
    assert out.tolist() == [10 * (cta ^ 1) + i for cta in range(4) for i in range(32)]
    with pytest.raises(EmulatorError, match=r"cluster \(4, 1, 1\) is not the \(2, 1, 1\) .*reqnctapercluster"):
        language["neighbours"].launch(4, 32, [out], cluster=4)
    with pytest.raises(EmulatorError, match=r"grid \(3, 1, 1\) is not a multiple of cluster \(2, 1, 1\)"):
        language["neighbours"].launch(3, 32, [out])


def test_launch_bounds(language):
    out = nogpu.array(np.zeros(128, np.int32))
    language["bounded"].launch(1, 64, [out])
    assert out.sum() == 64
    with pytest.raises(EmulatorError, match=r"has 96 threads, more than the 64 .*\.maxntid"):
        language["bounded"].launch(1, 96, [out])


def test_counting_barriers(language):
    out = nogpu.array(np.zeros(96, np.int32))
    language["counted"].launch(1, 96, [out, 40])
    assert out.tolist() == [40 + 100 + 200] * 96


def test_halves(language):
    values = (np.arange(32) % 5 - 2).astype(np.float16)
    out = nogpu.array(np.zeros(32, np.float16))
    language["halves"].launch(1, 32, [out, nogpu.array(values), 16])
    assert out.tolist() == [float(values.sum() * values[i]) for i in range(32)]


def test_mathematical_functions(language):
    x = np.linspace(-3, 3, 32)
    doubles, floats = nogpu.array(x), nogpu.array(x.astype(np.float32))
    language["functions_of"].launch(1, 32, [doubles, floats])
    np.testing.assert_allclose(doubles, np.exp(x) / 3 + np.sqrt(np.abs(x)), rtol=1e-15)
    expected = np.exp(x) + np.sin(x) * np.tanh(x) + 1 / np.sqrt(np.abs(x) + 1)
    np.testing.assert_allclose(floats, expected, rtol=2e-6)


@pytest.mark.parametrize(
    "name,m,n,of_ab,of_d",
    [
        *(("bf16", 16, 16, ml_dtypes.bfloat16, np.float32), ("bf16_wide", 8, 32, ml_dtypes.bfloat16, np.float32)),
        *(("f16", 32, 8, np.float16, np.float16), ("tf32", 16, 16, np.float32, np.float32)),
        *(("s8", 16, 16, np.int8, np.int32), ("f64", 8, 8, np.float64, np.float64)),
    ],
)
def test_warp_matrices(name, m, n, of_ab, of_d):
    random, k = np.random.default_rng(7), 64
    a, b, c = (random.integers(-4, 5, size) for size in ((m, k), (n, k), (m, n)))
    d = nogpu.array(np.zeros((m, n), of_d))
    arrays = [nogpu.array(x.astype(t)) for x, t in ((a, of_ab), (b, of_ab), (c, of_d))]
    nogpu.load_ptx(ptx("wmma.cu"))[name].launch(1, 32, [*arrays, d, k])
    assert np.array_equal(d, (2 * a @ b.T + c).astype(of_d))


def test_warp_matrices_through_shared_memory():
    random = np.random.default_rng(8)
    a, b = (random.integers(-4, 5, (16, 16)) for _ in range(2))
    arrays = [nogpu.array(x.astype(ml_dtypes.bfloat16)) for x in (a, b)]
    d = nogpu.array(np.zeros((16, 16), np.float32))
    nogpu.load_ptx(ptx("wmma.cu"))["through_shared"].launch(1, 32, [*arrays, d])
    assert np.array_equal(d, (a @ b).astype(np.float32))
