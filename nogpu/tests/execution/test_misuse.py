"""Misuse of the public functions: an EmulatorError names any wrong argument, and legal uses go on.

Python itself raises TypeError for arguments that a function does not have, and KeyError for a name that a module does
not have.
"""

import array as python_array
import ctypes
import decimal
from pathlib import Path

import numpy as np
import pytest

import nogpu
from nogpu import activation
from nogpu.errors import EmulatorError
from nogpu.execution import device as device_module
from nogpu.execution.device import Device

HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"
ENTRY = ".entry k() { ret; }"
HUGE = 10**5000  # number that Python refuses to print


def kernel(params="", body="ret;"):
    return nogpu.load_ptx(f"{HEADER}.visible .entry k({params}) {{ {body} }}")["k"]


class Unwilling:
    """An object whose conversion to a number raises an exception."""

    def __int__(self):
        raise RuntimeError

    __index__ = __bool__ = __int__


def refused(call, reason):
    with pytest.raises(EmulatorError, match=reason) as error:
        call()
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((None, "takes the text of a module, a str; NoneType given"), (5, "int given"), (1.5, "float given")),
        *(([], "list given"), (object(), "object given"), (Path("axpy.ptx"), "PosixPath given")),
        *((b".version 8.8", "bytes given: decode it"), (bytearray(b".version 8.8"), "bytearray given: decode it")),
        (memoryview(b".version 8.8"), "memoryview given: decode it"),
        *(("axpy.ptx", "not the name of its file: 'axpy.ptx'"), ("", "not a PTX module"), (" \n ", "not a PTX module")),
        *(("// .version 8.8\n", "not a PTX module"), ("\ud800", "PTX is ASCII")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_texts(text, reason):
    refused(lambda: nogpu.load_ptx(text), reason)


def test_texts_that_are_legal():
    assert list(nogpu.load_ptx(HEADER + ENTRY)) == list(nogpu.load_ptx(np.str_(HEADER + ENTRY))) == ["k"]
    assert list(nogpu.load_ptx(HEADER)) == []


EXPECTED = "one to three integers are expected"


@pytest.mark.parametrize("what", ["grid", "block", "cluster"])
@pytest.mark.parametrize(
    "size",
    [
        *(
            *(None, 1.5, "1", "abc", b"\x01", True, 1j, float("nan"), float("inf"), object(), Unwilling()),
            decimal.Decimal(1),
        ),
        *((), [], (1, 2, 3, 4), (1.5,), (1, None), (1, "2"), ("1",), (1, (2,)), (1, True), {1}, {1: 2}),
        *((size for size in (1,)), np.float32(1), np.array(1), np.array([1.5]), np.ones((1, 1), int), np.bool_(True)),
    ],
    ids=lambda size: f"{type(size).__name__} {size!r:.20}",
)
def test_sizes(what, size):
    sizes = {"grid": 1, "block": 32} | {what: size}
    refused(lambda: kernel().launch(**sizes), f"launch refused: {what} .*{EXPECTED}")


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        *(({"grid": 0}, r"grid \(0, 1, 1\): x must be 1 to 2147483647"), ({"grid": -1}, "x must be 1 to")),
        *(({"grid": (1, 0)}, "y must be 1 to 65535"), ({"grid": 2**31}, "x must be 1 to 2147483647")),
        *(({"grid": (1, 65536)}, "y must be 1 to 65535"), ({"grid": (1, 1, 65536)}, "z must be 1 to 65535")),
        *(({"grid": HUGE}, "no size has more than 63 bits"), ({"grid": (1, -HUGE)}, "grid an integer of 16610 bits")),
        *(({"block": 0}, r"block \(0, 1, 1\): x must be 1 to 1024"), ({"block": -32}, "x must be 1 to 1024")),
        *(({"block": 1025}, "x must be 1 to 1024"), ({"block": (1, 1, 65)}, "z must be 1 to 64")),
        *(({"block": (32, 33)}, "1056 threads, the limit is 1024"), ({"block": HUGE}, "no size has more than 63 bits")),
        *(({"cluster": 0}, "every axis must be at least 1"), ({"cluster": -2}, "every axis must be at least 1")),
        ({"cluster": 3, "grid": 4}, "not a multiple of cluster"),
        ({"cluster": 16, "grid": 16}, "has 16 CTAs, the limit is 8 without the non-portable"),
        ({"cluster": 32, "grid": 32, "nonportable_cluster": True}, "has 32 CTAs, the limit is 16"),
        *(({"cluster": HUGE}, "no size has more than 63 bits"), ({"shared": -1}, "shared -1: must be at least 0")),
        ({"shared": 1.5}, "shared 1.5: an integer is expected"),
        ({"shared": 16.0}, "shared 16.0: an integer is expected"),
        ({"shared": None}, "shared None: an integer is expected"),
        *(({"shared": "0"}, "shared '0': an integer is expected"), ({"shared": (1,)}, "an integer is expected")),
        ({"shared": True}, "shared True: an integer is expected"),
        *(({"shared": np.float64(5)}, "an integer is expected"), ({"shared": np.array([4])}, "an integer is expected")),
        ({"shared": 232449}, "232449 bytes of dynamic and 0 of static shared memory, the limit .* is 232448"),
        ({"shared": 2**40}, "the limit of both together is 232448"),
        ({"shared": HUGE}, "shared an integer of 16610 bits: must be at least 0 and at most 63 bits"),
        ({"wait": None}, "wait None: True or False is expected"),
        ({"wait": Unwilling()}, "True or False is expected"),
        ({"programmatic": 2}, "programmatic 2: True or False is expected"),
        ({"cooperative": "yes"}, "cooperative 'yes': True or False is expected"),
        ({"nonportable_cluster": np.zeros(2)}, "True or False is expected"),
        ({"cooperative": True, "grid": 10**6}, "cooperative launch of 1000000 CTAs"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str({k: f"{type(v).__name__}" for k, v in value.items()}),
)
def test_launches(sizes, reason):
    refused(lambda: kernel().launch(**{"grid": 1, "block": 32} | sizes), reason)


def test_launches_that_are_legal():
    k = kernel()
    for size in (1, np.int64(1), [1], (1, 1), (1, 1, 1), range(1, 2), np.array([1, 1])):
        k.launch(size, size, cluster=size)
    k.launch(1, 1024, shared=np.int32(232448), programmatic=np.bool_(False))
    k.launch(16, (8, 8, 16), cluster=16, nonportable_cluster=True, wait=False)
    nogpu.synchronize()
    with pytest.raises(TypeError, match="unexpected keyword argument 'stream'"):
        k.launch(1, 32, stream=0)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (None, "args None: a list or tuple with an argument for each parameter is expected"),
        *((5, "args 5: a list or tuple"), ("x", "args 'x': a list or tuple"), (b"12345678", "a list or tuple")),
        *(({"out": 5}, "a list or tuple"), ({5}, "a list or tuple"), (iter([5]), "a list or tuple")),
        *((np.zeros(1), "a list or tuple"), ((), r"0 arguments for 1 parameters: out \(\.u64\)")),
        ([5, 5], "2 arguments for 1 parameters"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_lists_of_arguments(args, reason):
    refused(lambda: kernel(".param .u64 out").launch(1, 32, args), f"launch refused: .*{reason}")
    kernel(".param .u64 out").launch(1, 32, [5])


POINTER = ".u64 x"


@pytest.mark.parametrize(
    ("declared", "value", "reason"),
    [
        (POINTER, None, "None given; a null pointer is 0"),
        *((POINTER, ctypes.c_void_p(), "None given; a null pointer is 0"), (POINTER, 1.5, "float given")),
        *((POINTER, "x", "str given"), (POINTER, [5], "list given"), (POINTER, b"12345678", "bytes given")),
        (POINTER, memoryview(b"12345678"), "memoryview given"),
        (POINTER, python_array.array("I", [1]), "array given"),
        *((POINTER, ctypes.pointer(ctypes.c_int(5)), "LP_c_int given"), (POINTER, decimal.Decimal(5), "Decimal given")),
        *((POINTER, Unwilling(), "Unwilling given"), (POINTER, 2**64, "18446744073709551616 does not fit 64 bits")),
        (POINTER, -(2**63) - 1, "does not fit 64 bits"),
        (POINTER, HUGE, "an integer of 16610 bits does not fit 64 bits"),
        *((POINTER, np.uint32(1), "uint32 has 4 bytes, 8 expected"), (POINTER, np.float64(1), "float64 given")),
        (POINTER, np.datetime64(5, "s"), r"datetime64\[s\] given"),
        (POINTER, np.array([{}], object), "dtype object holds Python objects: a kernel would overwrite their pointers"),
        (POINTER, np.zeros(4, [("a", "u4"), ("b", object)]), "holds Python objects"),
        (POINTER, np.array([{}], object)[:0], "holds Python objects"),
        (POINTER, np.zeros(4, ">u4"), "dtype >u4 is big-endian, the device is little-endian"),
        *((".u32 x", 2**32, "4294967296 does not fit 32 bits"), (".u32 x", 1.0, "float given")),
        (".u32 x", np.zeros(1, np.uint32), "an array given; its address needs a 64-bit integer parameter"),
        *((".u32 x", ctypes.c_uint64(2**40), "does not fit 32 bits"), (".u8 x", 256, "256 does not fit 8 bits")),
        *((".s16 x", -32769, "-32769 does not fit 16 bits"), (".b128 x", 2**128, "does not fit 128 bits")),
        *((".f32 x", 1e39, "1e.39 does not fit 32 bits"), (".f32 x", 2**128, "does not fit 32 bits")),
        (".f32 x", HUGE, "an integer of 16610 bits does not fit 32 bits"),
        *((".f64 x", 10**400, "does not fit 64 bits"), (".f16 x", 65520, "65520 does not fit 16 bits")),
        *((".f32 x", "1.5", "str given"), (".f32 x", 1j, "complex given")),
        *((".f32 x", np.longdouble(1), "has 16 bytes, 4 expected"), (".f64 x", np.zeros(1), "an array given")),
        (".align 8 .b8 x[16]", b"1" * 15, "15 bytes given, 16 expected"),
        (".align 8 .b8 x[16]", "1" * 16, "str given, bytes expected"),
        (".align 8 .b8 x[16]", [1] * 16, "list given, bytes expected"),
        (".align 8 .b8 x[16]", None, "NoneType given, bytes expected"),
        (".align 8 .b8 x[16]", np.zeros(2, object), "holds Python objects"),
        (".align 8 .b8 x[16]", np.zeros(4, ">u4"), "big-endian"),
        (".align 8 .b8 x[16]", np.zeros(3), "24 bytes given, 16 expected"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_arguments(declared, value, reason):
    refused(lambda: kernel(f".param {declared}").launch(1, 32, [value]), f"argument for parameter x .*{reason}")


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        *((POINTER, 0), (POINTER, -1), (POINTER, np.zeros(4, "U5"))),
        *((POINTER, np.zeros(4, [("a", "u4"), ("b", "f8")])), (POINTER, np.zeros(0)), (POINTER, ctypes.c_void_p(64))),
        *((".u32 x", True), (".u32 x", ctypes.c_int(-5)), (".f32 x", 10**38), (".f32 x", float("nan"))),
        *((".f32 x", float("inf")), (".b128 x", 2**128 - 1), (".align 8 .b8 x[16]", (ctypes.c_int * 4)())),
        *((".align 8 .b8 x[16]", np.zeros(2)), (".align 8 .b8 x[16]", memoryview(b"1" * 16))),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_arguments_that_are_legal(declared, value):
    kernel(f".param {declared}").launch(1, 32, [value])


@pytest.mark.parametrize(
    "data",
    [
        *(None, object(), {}, set(), [object()], [None], [10**30], Unwilling(), len, (x for x in (1,))),
        *(np.zeros(3, object), np.zeros(2, [("a", "O")]), [[1], [1, 2]], np.zeros(2, ">f4")),
    ],
    ids=lambda data: f"{type(data).__name__} {data!r:.20}",
)
def test_arrays(data):
    refused(lambda: nogpu.array(data), "array refused: ")


def test_an_array_that_no_memory_holds():
    refused(lambda: nogpu.array(np.broadcast_to(np.uint8(0), (1 << 50,))), "array refused: Unable to allocate")


def test_arrays_that_are_legal():
    for data in (5, 1.5, [1, 2], b"abc", "abc", np.zeros(0), np.zeros((2, 3)), [1j], True):
        assert nogpu.array(data).tolist() == np.asarray(data).tolist()


def test_names_that_a_module_does_not_have():
    module = nogpu.load_ptx(HEADER + ENTRY)
    for name in ("x", 5, None, b"k", ("k",)):
        with pytest.raises(KeyError, match="the module has no kernel"):
            module[name]
        with pytest.raises(KeyError, match="the module has no variable"):
            module.variable(name)


NULLS = {
    "load": "ld.global.b32 %r1, [%rd1+{}];",
    "store": "st.global.b32 [%rd1+{}], 0;",
    "generic load": "ld.b32 %r1, [%rd1+{}];",
    "atomic": "atom.global.add.u32 %r1, [%rd1+{}], 1;",
    "vector": "ld.global.v4.b32 {{%r1, %r1, %r1, %r1}}, [%rd1+{}];",
    "by lane": "mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; st.global.b32 [%rd1+{}], 0;",
    "prefetched map": "prefetch.tensormap [%rd1+{}];",
    "bulk prefetch": "cp.async.bulk.prefetch.L2.global [%rd1+{}], 16;",
}


@pytest.mark.parametrize("access", NULLS)
def test_null_pointers(access):
    """The error names a null pointer in the first page, and treats it like any other address behind it."""
    registers = ".reg .b32 %r<4>; .reg .b64 %rd<4>; ld.param.u64 %rd1, [x];"
    for offset, reason in ((0, "null pointer"), (512, "null pointer and an offset of 512 bytes")):
        text = f"{registers} {NULLS[access].format(offset)} ret;"
        refused(lambda text=text: kernel(".param .u64 x", text).launch(1, 32, [0]), f"0x.*: {reason}\n")
    text = f"{registers} {NULLS[access].format(4096)} ret;"
    with pytest.raises(EmulatorError, match="before|outside") as error:
        kernel(".param .u64 x", text).launch(1, 32, [0])
    assert "null" not in error.value.reason


def test_memory_that_no_device_has():
    variables = f"{HEADER}.global .b8 x[{1 << 40}];\n{ENTRY.replace('ret;', '.reg .b64 %rd; mov.u64 %rd, x; ret;')}"
    refused(lambda: nogpu.load_ptx(variables)["k"].launch(1, 1), "1099511627776 bytes of .global .* the device has")
    body = ".local .b8 x[524289]; .reg .b64 %rd; mov.u64 %rd, x; ret;"
    refused(lambda: kernel("", body).launch(1, 1), "524289 bytes of local memory per thread, the limit is 524288")
    kernel("", body.replace("524289", "524288")).launch(1, 1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"schedule": "soon"}, "'soon' is no schedule: late, eager, random:SEED, last:SEED or replay:HOLDS expected"),
        *(({"schedule": ""}, "'' is no schedule"), ({"schedule": "late,late"}, "'late' is given twice")),
        *(({"schedule": "random:-1"}, "'random:-1' is no schedule"), ({"schedule": "random:\u0663"}, "is no schedule")),
        *(({"schedule": 5}, "a str is expected, not int"), ({"schedule": ["late"]}, "a str is expected, not list")),
        ({"workers": 0}, "'0' is no number of processes: an integer from 1 to 1024 expected"),
        *(({"workers": "x"}, "'x' is no number of processes"), ({"workers": 1.5}, "a str is expected, not float")),
        *(({"workers": True}, "a str is expected, not bool"), ({"workers": 10**30}, "is no number of processes")),
        ({"max_instructions": "-1"}, "'-1' is no number of warp instructions"),
        ({"max_instructions": "1e9"}, "is no number of warp instructions"),
    ],
    ids=str,
)
def test_settings(settings, reason, monkeypatch):
    """The error comes from `activate`, and from the environment variables that it sets."""
    refused(lambda: nogpu.activate(**settings), rf"nogpu.activate\(.*{reason}")
    ((name, value),) = settings.items()
    if isinstance(value, str) and value:
        monkeypatch.setattr(device_module, "_current", None)
        monkeypatch.setenv(f"NOGPU_{name.upper()}", value)
        refused(Device.current, f"environment variable NOGPU_{name.upper()}: .*{reason}")


def test_settings_that_are_legal(monkeypatch):
    for settings in ({"workers": 2}, {"workers": "2"}, {"schedule": "late, random:7"}, {"max_instructions": 10**12}):
        with monkeypatch.context() as context:
            context.setenv("NOGPU", "1")  # setting of a process that is on the device already
            nogpu.activate(**settings)
    assert activation.environment(schedule="late")["NOGPU_SCHEDULE"] == "late"
