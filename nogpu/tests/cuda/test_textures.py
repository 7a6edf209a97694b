"""Textures, surfaces and CUDA arrays of C++ programs, against a reference in NumPy of CUDA's "Texture Fetching"."""

import ctypes
import itertools
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest

import nogpu
from nogpu.cuda.programs import connection, status
from nogpu.errors import EmulatorError
from nogpu.execution.device import Device
from nogpu.hardware import textures
from nogpu.ops import textures as rows
from nogpu.sanitizer.observer import Sanitizer
from tests.cuda.test_programs import LIBRARY, SOURCES, compiled
from tests.support.calls import called
from tests.support.nvcc import needs_nvcc, nvcc

LINEAR, PITCHED, ARRAY = range(3)
WRAP, CLAMP, MIRROR, BORDER = range(4)
EMITTED = """
tex.1d.v4.f32.f32 tex.2d.v4.f32.f32 tex.3d.v4.f32.f32 tex.1d.v4.f32.s32 tex.2d.v4.u32.f32 tex.1d.v4.s32.s32
tex.cube.v4.f32.f32 tex.acube.v4.f32.f32
tex.a1d.v4.f32.f32 tex.a2d.v4.f32.f32 tex.level.2d.v4.f32.f32 tld4.g.2d.v4.f32.f32 suld.b.2d.b8.clamp
suld.b.2d.v2.b16.zero sust.b.1d.b32.clamp sust.b.3d.v4.b32.zero suld.b.2d.v2.b32.trap
""".split()


class Case(ctypes.Structure):
    """struct Case of textures.cu."""

    _fields_ = [
        *(("source", ctypes.c_int), ("dimensions", ctypes.c_int), ("sizes", ctypes.c_int * 3)),
        *(("count", ctypes.c_int), ("bits", ctypes.c_int), ("kind", ctypes.c_int)),
        *(("filter", ctypes.c_int), ("fraction", ctypes.c_int), ("normalized", ctypes.c_int)),
        *(("modes", ctypes.c_int * 3), ("border", ctypes.c_float * 4)),
    ]


def case(texels, source, dimensions, filter=0, fraction=0, normalized=0, modes=(CLAMP,) * 3, border=(0,) * 4):
    """texels: (depth, height, width, channels)."""
    kind = {"i": 0, "u": 1, "f": 2}[texels.dtype.kind]
    depth, height, width, count = texels.shape
    shape = (width, height, depth)
    return Case(
        source, dimensions, shape, count, 8 * texels.itemsize, kind, filter, fraction, normalized, modes, border
    )


@pytest.fixture(scope="module")
def library():
    connection.connect()
    return ctypes.CDLL(str(compiled("textures.cu", *LIBRARY)))


@pytest.fixture(params=["runtime", "driver"])
def either(library, request):
    """The library, whose textures and arrays are the runtime's or the driver's."""
    library.use_driver(request.param == "driver")
    yield library
    library.use_driver(0)


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def fetched(library, function, c, texels, at, dtype, count):
    """The results (places, count) of a function of textures.cu. at: (places, 3)."""
    places = np.ascontiguousarray(at.T, np.float32)
    out = np.zeros((len(at), count), dtype)
    line = getattr(library, function)(ctypes.byref(c), pointer(texels), pointer(places), len(at), pointer(out))
    assert line == 0, f"line {line} of textures.cu"
    return out


def positions(index, size, mode):
    """(index of the texel that stands for each, whether it is one)."""
    if mode == WRAP:
        return np.take(np.arange(size), index, mode="wrap"), np.ones(index.shape, bool)
    if mode == MIRROR:
        return np.take(np.r_[:size, size - 1 : -1 : -1], index, mode="wrap"), np.ones(index.shape, bool)
    return np.clip(index, 0, size - 1), (index >= 0) & (index < size) if mode == BORDER else np.ones(index.shape, bool)


def values_of(texels, fraction):
    """Texels as a fetch returns them, in float64."""
    if not fraction or texels.dtype.kind == "f":
        return texels.astype(np.float64)
    return np.maximum(texels.astype(np.float64) / np.iinfo(texels.dtype).max, -1)


def sampled(c, texels, at):
    """(places, channels) float64 of fetches, as the guide defines them: weights are multiples of 1/256."""
    values, shape = values_of(texels, c.fraction), texels.shape[2::-1]
    modes = [mode if c.normalized or mode == BORDER else CLAMP for mode in c.modes]
    axes = []
    for axis in range(c.dimensions):
        x = at[:, axis].astype(np.float64) * (shape[axis] if c.normalized else 1)
        if not c.filter:
            axes.append([(np.floor(x).astype(int), np.ones(len(x)))])
            continue
        first = np.floor(x - 0.5)
        weight = np.round((x - 0.5 - first) * 256) / 256
        axes.append([(first.astype(int), 1 - weight), (first.astype(int) + 1, weight)])
    total = np.zeros((len(at), texels.shape[3]))
    for corner in itertools.product(*axes):
        places, real, weight = [0, 0, 0], np.ones(len(at), bool), np.ones(len(at))
        for axis, (index, share) in enumerate(corner):
            places[axis], there = positions(index, shape[axis], modes[axis])
            real, weight = real & there, weight * share
        found = values[places[2], places[1], places[0]]
        total += weight[:, None] * np.where(real[:, None], found, np.array(c.border[: texels.shape[3]]))
    return total


def texels_of(dtype, shape, seed=1):
    random = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return (random.integers(-1000, 1000, shape) / 16).astype(dtype)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def coordinates(sizes, normalized, seed=2):
    """Places inside, outside and on the edges of texels, 96 of them."""
    random = np.random.default_rng(seed)
    at = np.concatenate([random.uniform(-1.2, 2.2, (64, 3)) * sizes, random.integers(-3, 9, (32, 3)) / 2])
    return (at / sizes if normalized else at).astype(np.float32)


FORMATS = [  # function, type of texels, channels, read as fractions
    *(("float", "f4", 1, 0), ("float4", "f4", 4, 0), ("float", "f2", 1, 0), ("float2", "f2", 2, 0)),
    *(("int", "i4", 1, 0), ("uint2", "u4", 2, 0), ("uchar", "u1", 1, 0), ("uchar4", "u1", 4, 0), ("char", "i1", 1, 0)),
    *(("short2", "i2", 2, 0), ("ushort4", "u2", 4, 0)),
    *(("float", "u1", 1, 1), ("float4", "u1", 4, 1), ("float2", "i1", 2, 1), ("float", "u2", 1, 1)),
    *(("float4", "i2", 4, 1), ("float", "f4", 1, 1)),
]


@needs_nvcc
@pytest.mark.parametrize(("function", "dtype", "count", "fraction"), FORMATS)
@pytest.mark.parametrize(("source", "dimensions"), [(LINEAR, 1), (PITCHED, 2), (ARRAY, 2)])
def test_formats(either, function, dtype, count, fraction, source, dimensions):
    texels = texels_of(dtype, (1, 5 if dimensions > 1 else 1, 7, count))
    border = (0.25, -2, 3, 0.5) if source == ARRAY and function.startswith("float") else (0,) * 4
    c = case(texels, source, dimensions, 0, fraction, 0, (BORDER, CLAMP, CLAMP), border)
    at = coordinates((7, 5, 1), False)
    if source == LINEAR:
        at[:, 0] = np.trunc(at[:, 0])
    result = np.float32 if function.startswith("float") else dtype
    found = fetched(either, f"fetch_{function}", c, texels, at, result, count)
    assert np.array_equal(found, sampled(c, texels, at).astype(result))


@needs_nvcc
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("modes", [(WRAP, MIRROR, CLAMP), (MIRROR, BORDER, WRAP), (CLAMP, WRAP, BORDER)])
@pytest.mark.parametrize("normalized", [0, 1])
@pytest.mark.parametrize("filter", [0, 1])
def test_addresses_and_filters(library, dimensions, modes, normalized, filter):
    sizes = (6, 5 if dimensions > 1 else 1, 4 if dimensions > 2 else 1)
    texels = texels_of("f4", (*sizes[::-1], 1))
    c = case(texels, ARRAY, dimensions, filter, 0, normalized, modes, (7.5, 0, 0, 0))
    at = coordinates((6, 5, 4), normalized)
    found = fetched(library, "fetch_float", c, texels, at, np.float32, 1)
    np.testing.assert_allclose(found, sampled(c, texels, at), rtol=3e-7, atol=1e-7)


@needs_nvcc
@pytest.mark.parametrize(("source", "dtype", "function"), [(PITCHED, "f4", "float"), (ARRAY, "u1", "float4")])
def test_filters_of_other_texels(library, source, dtype, function):
    texels = texels_of(dtype, (1, 5, 6, 4 if function == "float4" else 1))
    c = case(texels, source, 2, 1, 1, 1, (WRAP, CLAMP, CLAMP))
    at = coordinates((6, 5, 1), True)
    found = fetched(library, f"fetch_{function}", c, texels, at, np.float32, texels.shape[3])
    np.testing.assert_allclose(found, sampled(c, texels, at), rtol=3e-7, atol=1e-7)


@needs_nvcc
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_python_s_row_of_a_fetch(library, dimensions):
    sizes = (6, 5 if dimensions > 1 else 1, 4 if dimensions > 2 else 1)
    texels, at = texels_of("i1", (*sizes[::-1], 2)), coordinates((6, 5, 4), True)
    c = case(texels, ARRAY, dimensions, 1, 1, 1, (WRAP, MIRROR, BORDER), (0.5, -0.5, 0, 0))
    compiled_code = fetched(library, "fetch_float2", c, texels, at, np.float32, 2)
    with called():
        assert np.array_equal(fetched(library, "fetch_float2", c, texels, at, np.float32, 2), compiled_code)


@needs_nvcc
def test_weights_have_eight_bits_of_fraction(library):
    """A ramp of 256 steps between two texels takes 257 values with the ends; weights are rounded to the nearest."""
    texels = np.array([0, 256], np.float32).reshape(1, 1, 2, 1)
    at = np.zeros((2049, 3), np.float32)
    at[:, 0] = 0.5 + np.arange(2049) / 2048
    c = case(texels, ARRAY, 1, 1)
    found = fetched(library, "fetch_float", c, texels, at, np.float32, 1)[:, 0]
    assert np.array_equal(np.unique(found), np.arange(257))
    assert np.array_equal(found[::8], np.arange(257))
    assert np.array_equal(found[3::8], np.arange(256)) and np.array_equal(found[5::8], np.arange(256) + 1)


@needs_nvcc
def test_gather(library):
    texels = texels_of("f4", (1, 5, 6, 2))
    at = coordinates((6, 5, 1), False)
    found = fetched(library, "gather_second", case(texels, ARRAY, 2), texels, at, np.float32, 4)
    x, y = (np.floor(at[:, axis].astype(np.float64) - 0.5).astype(int) for axis in (0, 1))
    for n, (right, down) in enumerate(((0, 1), (1, 1), (1, 0), (0, 0))):
        expected = texels[0, np.clip(y + down, 0, 4), np.clip(x + right, 0, 5), 1]
        assert np.array_equal(found[:, n], expected)


@needs_nvcc
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize(
    ("type_name", "dtype", "count", "mode"),
    [
        ("uchar", "u1", 1, "Clamp"),
        ("short2", "i2", 2, "Zero"),
        ("float", "f4", 1, "Clamp"),
        ("float4", "f4", 4, "Zero"),
    ],
)
def test_surfaces(library, dimensions, type_name, dtype, count, mode):
    sizes = np.array((6, 5 if dimensions > 1 else 1, 4 if dimensions > 2 else 1))
    texels, out = (texels_of(dtype, (*sizes[::-1], count), seed) for seed in (3, 4))
    random = np.random.default_rng(5)
    at = np.unique(random.integers(-1, sizes + 1, (24, 3)) * (np.arange(3) < dimensions), axis=0).astype(np.int32)
    if mode == "Clamp":  # two lanes must not store to one place
        at = at[((at >= 0) & (at < sizes)).all(1) | (np.arange(len(at)) < 1)]
    expected = out.copy()
    for place in at:
        inside = ((place >= 0) & (place < sizes)).all()
        x, y, z = np.clip(place, 0, sizes - 1)
        u, v, w = np.clip(sizes - 1 - place, 0, sizes - 1)
        if inside or mode == "Clamp":
            expected[w, v, u] = texels[z, y, x]
    assert not np.array_equal(expected, out)
    places = np.ascontiguousarray(at.T)
    function = getattr(library, f"move_{type_name}_{mode}")
    c = case(texels, ARRAY, dimensions)
    line = function(ctypes.byref(c), pointer(texels), pointer(out), pointer(places), len(at))
    assert line == 0 and np.array_equal(out, expected), f"line {line} of textures.cu"


@needs_nvcc
def test_an_access_outside_a_surface_traps(library):
    texels = texels_of("f4", (1, 5, 6, 1))
    c, out = case(texels, ARRAY, 2), texels.copy()
    for place, words in (((5, 4), None), ((6, 4), "bytes at (24, 4)"), ((0, -1), "rows of 24 bytes by 5")):
        places = np.array([*place, 0], np.int32)
        call = status.raising(library.move_float_Trap)
        arguments = (ctypes.byref(c), pointer(texels), pointer(out), pointer(places), 1)
        if words is None:
            assert call(*arguments) == 0
            continue
        with pytest.raises(EmulatorError) as error:
            call(*arguments)
        assert words in error.value.reason and ".trap" in error.value.reason and error.value.ptx_line


@needs_nvcc
@pytest.mark.parametrize("name", ["copies", "copies_by_driver", "layers", "faces", "refusals"])
def test_the_runtimes_functions(library, name, capfd):
    assert getattr(library, name)() == 0, f"the line of textures.cu that failed; output: {capfd.readouterr()}"


@needs_nvcc
def test_what_nvcc_emits(tmp_path):
    command = [nvcc(), "-arch=sm_100a", "-std=c++17", "-ptx", "-o", tmp_path / "made.ptx", SOURCES / "textures.cu"]
    subprocess.run(command, check=True)
    text = (tmp_path / "made.ptx").read_text()
    assert [opcode for opcode in EMITTED if opcode not in text] == []


# PTX that nvcc does not emit, and what kernels may not do

PTX = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 object, .param .u64 out)
{{
    .reg .b64 %rd<4>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b16 %rs<4>;
    ld.param.u64 %rd1, [object]; ld.param.u64 %rd2, [out];
    mov.b32 %f0, 0f3F800000; mov.b32 %r0, 1;
    {body}
    st.global.b32 [%rd2], %r1;
    ret;
}}
"""


def launched(body, handle):
    out = nogpu.array(np.zeros(1, np.uint32))
    nogpu.load_ptx(PTX.format(body=body))["k"].launch(1, 1, [handle, out])
    return int(out[0])


@pytest.fixture
def objects():
    """Handles of a 4 x 3 texture of floats, of one of linear memory, and of a surface; and their memory."""
    data = nogpu.array(np.arange(12, dtype=np.float32))
    place, sizes, strides = data.ctypes.data, (4, 3, 1), (4, 16, 0)
    modes = (CLAMP, CLAMP, CLAMP)
    texture = textures.Texture(place, sizes, strides, modes, 2, 1, 32, textures.FLOAT)
    line = textures.Texture(place, (12, 1, 1), (4, 0, 0), (BORDER, CLAMP, CLAMP), 1, 1, 32, textures.FLOAT)
    line.is_linear = 1
    surface = textures.Surface(place, 2, sizes, (16, 3, 1), (1, 16, 48))
    handles = [textures.add(each) for each in (texture, line, surface)]
    yield SimpleNamespace(**dict(zip(("texture", "line", "surface"), handles)), data=data)
    for handle in handles:
        textures.forget(handle)


@pytest.mark.parametrize(
    ("body", "on", "expected"),
    [
        *(("txq.width.b32 %r1, [%rd1];", "texture", 4), ("txq.height.b32 %r1, [%rd1];", "texture", 3)),
        *(("txq.depth.b32 %r1, [%rd1];", "texture", 1), ("suq.width.b32 %r1, [%rd1];", "surface", 4)),
        *(("suq.height.b32 %r1, [%rd1];", "surface", 3), ("suq.depth.b32 %r1, [%rd1];", "surface", 1)),
        (
            "tex.grad.2d.v4.f32.f32 {%f1, _, _, _}, [%rd1, {%f0, %f0}], {%f0, %f0}, {%f0, %f0}; mov.b32 %r1, %f1;",
            "texture",
            0x40A00000,  # 5
        ),
    ],
)
def test_ptx(objects, body, on, expected):
    assert launched(body, getattr(objects, on)) == expected


TEX = "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f0, %f0}]; mov.b32 %r1, %f1;"


@pytest.mark.parametrize(
    ("body", "on", "reason"),
    [
        (TEX, None, "0xabcdef is no texture object"),
        (TEX, "surface", "is no texture object"),
        ("suld.b.2d.b32.trap {%r1}, [%rd1, {%r0, %r0}];", "texture", "is no surface object"),
        ("suld.b.2d.b32.trap {%r1}, [%rd1, {%r0, %r0}];", "surface", "misaligned by 1 bytes"),
        ("suld.b.1d.b32.zero {%r1}, [%rd1, {%r0}];", "surface", "to a 1D surface; the object is a 2D surface"),
        (
            "suld.b.2d.v4.b64.trap {%rd3, _, _, _}, [%rd1, {%r0, %r0}];",
            "surface",
            "256 bits; the limit is 128",
        ),
        (TEX, "line", "a fetch from a 2D texture; the object is a 1D texture"),
        (TEX.replace("2d", "1d").replace("%f0, %f0", "%f0"), "line", "linear memory needs an integer coordinate"),
        (TEX.replace("2d.v4.f32", "2d.v4.u32").replace("%f", "%r"), "texture", "a fetch of .u32; the texture returns"),
        (TEX.replace("tex", "tld4.r"), "texture", "without cudaArrayTextureGather"),
        (TEX.replace("{%f0, %f0}", "{%f0}"), "texture", "1 coordinates for .2d, 2 expected"),
        (TEX.replace("f32.f32", "f32.s32").replace("%f0", "%r0"), "texture", "integers address linear memory only"),
        (
            "tex.a2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%r0, %f0, %f0, %f0}];",
            "texture",
            "a fetch from a 2D layered texture; the object is a 2D texture",
        ),
        (
            "tex.level.a2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%r0, %f0, %f0, %f0}], %f0;",
            "texture",
            "a fetch from a 2D layered texture; the object is a 2D texture",
        ),
        (
            "tex.grad.a1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%r0, %f0}], {%f0}, {%f0};",
            "texture",
            "a fetch from a 1D layered texture; the object is a 2D texture",
        ),
        (
            "tex.cube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f0, %f0, %f0, %f0}];",
            "texture",
            "a fetch from a cubemap texture; the object is a 2D texture",
        ),
        (
            "tex.level.acube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%r0, %f0, %f0, %f0}], %f0;",
            "texture",
            "a fetch from a layered cubemap texture; the object is a 2D texture",
        ),
        ("tld4.r.cube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f0, %f0, %f0, %f0}];", "texture", "faces by tex"),
        ("tex.2dms.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r0, %r0, %r0, %r0}];", "texture", "without samples"),
        ("suld.b.a1d.b32.trap {%r1}, [%rd1, {%r0, %r0}];", "surface", "surfaces without layers"),
    ],
)
def test_what_kernels_may_not_do(objects, body, on, reason):
    with pytest.raises(EmulatorError, match=reason):
        launched(body, 0xABCDEF if on is None else getattr(objects, on))


@pytest.mark.parametrize(
    ("body", "on"),
    [
        (TEX, "texture"),
        (TEX.replace("tex", "tex.level").replace("];", "], %f0;"), "texture"),
        (TEX.replace("];", "], {%f0, %f0}, {%f0, %f0};").replace("tex", "tex.grad"), "texture"),
        (TEX.replace("2d.v4.f32.f32", "1d.v4.f32.s32").replace("{%f0, %f0}", "{%r0}"), "line"),
    ],
)
def test_fetches_need_no_python(objects, body, on, monkeypatch):
    monkeypatch.setattr(rows, "fetch", None)
    assert launched(body, getattr(objects, on)) == (0x3F800000 if on == "line" else 0x40A00000)


def test_linear_memory_may_end_ahead_of_the_texture(objects):
    """Texels that are fetched need memory, others do not."""
    line = textures.Texture(
        objects.data.ctypes.data, (14, 1, 1), (4, 0, 0), (BORDER, CLAMP, CLAMP), 1, 1, 32, textures.FLOAT
    )
    line.is_linear = 1
    handle = textures.add(line)
    fetch = TEX.replace("2d.v4.f32.f32", "1d.v4.f32.s32").replace("{%f0, %f0}", "{%r0}")
    at = [f"mov.b32 %r0, {index}; {fetch}" for index in (1, 11, 12, 14)]
    assert [launched(at[i], handle) for i in (0, 1, 3)] == [0x3F800000, 0x41300000, 0]
    with pytest.raises(EmulatorError, match="the last 4 bytes are past the end of"):
        launched(at[2], handle)
    textures.forget(handle)


def test_lanes_with_textures_of_their_own(objects):
    other = nogpu.array(np.arange(12, dtype=np.float32) + 100)
    handle = textures.add(
        textures.Texture(other.ctypes.data, (4, 3, 1), (4, 16, 0), (CLAMP,) * 3, 2, 1, 32, textures.FLOAT)
    )
    body = "mov.u32 %r2, %tid.x; cvt.u64.u32 %rd3, %r2; mul.lo.u64 %rd3, %rd3, {step}; add.u64 %rd1, %rd1, %rd3;"
    sum_up = "redux.sync.add.u32 %r1, %r3, 0x3; // both lanes' texels"
    body = body.format(step=handle - objects.texture) + TEX + f" cvt.rzi.u32.f32 %r3, %f1; {sum_up}"
    out = nogpu.array(np.zeros(1, np.uint32))
    nogpu.load_ptx(PTX.format(body=body))["k"].launch(1, 2, [objects.texture, out])
    textures.forget(handle)
    assert out[0] == 5 + 105


def test_a_texture_whose_memory_is_freed():
    data = nogpu.array(np.zeros(12, np.float32))
    handle = textures.add(
        textures.Texture(data.ctypes.data, (4, 3, 1), (4, 16, 0), (CLAMP,) * 3, 2, 1, 32, textures.FLOAT)
    )
    del data
    with pytest.raises(EmulatorError, match="load of 48 bytes"):
        launched(TEX, handle)
    textures.forget(handle)


def test_the_sanitizer_sees_the_texels(objects, monkeypatch):
    """Lane 1 stores to a texel that lane 0 fetches, and to one that it does not."""
    store = "mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 0; @%p1 bra L; st.global.b32 [%rd1+{offset}], %r2; ret; L:"
    ptx = PTX.replace(".reg .b16", ".reg .pred %p<2>; .reg .b16").replace("object", "object, .param .u64 memory", 1)
    device = Device()
    for offset, races in ((20, True), (16, False)):
        body = f"ld.param.u64 %rd3, [memory]; {store.format(offset=offset).replace('%rd1', '%rd3')} {TEX}"
        module = nogpu.load_ptx(ptx.format(body=body))
        device.sanitizer = Sanitizer()
        out = nogpu.array(np.zeros(1, np.uint32))
        for array in (objects.data, out):
            if device.memory.allocation(array.ctypes.data) is None:
                device.memory.register(array.ctypes.data, array.nbytes)
        given = [int(v).to_bytes(8, "little") for v in (objects.texture, objects.data.ctypes.data, out.ctypes.data)]
        config = nogpu.LaunchConfig((1, 1, 1), (2, 1, 1))
        if races:
            with pytest.raises(EmulatorError, match="rule lanes"):
                device.launch(module["k"].entry, config, given)
        else:
            device.launch(module["k"].entry, config, given)
