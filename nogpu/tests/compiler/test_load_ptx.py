"""nogpu.load_ptx: launches with raw arguments, module variables, device functions, indexed branches, printf."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nogpu
from nogpu.compiler.linking import link
from nogpu.cuda import arrays
from nogpu.errors import EmulatorError
from nogpu.execution.device import Device, LaunchConfig
from nogpu.ptx import module as ptx

HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"
REGISTERS = ".reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>;"
LOAD_OUT = "ld.param.b64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2;"


def load(body, params=".param .u64 out", declarations="", directives=""):
    """A module with entry `k`; %rd1 holds `out`, %r1 the thread, %rd2 the address of out[thread]."""
    head = f"{HEADER}{declarations}\n.visible .entry k({params}) {directives}\n"
    text = f"{head}{{ {REGISTERS} {LOAD_OUT}\n{body}\nret; }}\n"
    return nogpu.load_ptx(text)


def run(body, *args, threads=32, **options):
    """The array out, u32 per thread, after a launch of `load(body)`; args follow out."""
    out = nogpu.array(np.zeros(threads, np.uint32))
    load(body, **options)["k"].launch(1, threads, [out, *args])
    return out.tolist()


STORE = "st.global.b32 [%rd2], %r2;"

# Launches and arguments


def test_three_lines():
    out = np.zeros(64, np.float32)
    scale = "ld.param.f32 %r2, [x]; cvt.rn.f32.u32 %r3, %r1; mul.f32 %r2, %r2, %r3;" + STORE
    load(scale, ".param .u64 out, .param .f32 x")["k"].launch(1, 64, [out, 0.5])
    assert out.tolist() == [0.5 * i for i in range(64)]


@pytest.mark.parametrize(
    "declared,value,stored",
    [
        (".u8 x", 200, b"\xc8"),
        (".s8 x", -3, b"\xfd"),
        (".u16 x", 65535, b"\xff\xff"),
        (".b32 x", -1, b"\xff\xff\xff\xff"),
        (".u32 x", np.int32(-2), b"\xfe\xff\xff\xff"),
        (".s64 x", -5, (-5 & (1 << 64) - 1).to_bytes(8, "little")),
        (".f16 x", 1.5, b"\x00\x3e"),
        (".f32 x", 2, b"\x00\x00\x00\x40"),
        (".f64 x", -0.5, b"\x00\x00\x00\x00\x00\x00\xe0\xbf"),
        (".f32 x", np.float32(1.5), b"\x00\x00\xc0\x3f"),
        (".b32 x", np.float32(1.5), b"\x00\x00\xc0\x3f"),
        (".align 4 .b8 x[6]", b"abcdef", b"abcdef"),
        (".align 8 .b8 x[8]", np.arange(4, dtype=np.uint16), bytes([0, 0, 1, 0, 2, 0, 3, 0])),
    ],
)
def test_arguments_by_declared_type(declared, value, stored):
    out = nogpu.array(np.zeros(16, np.uint8))
    bytes_ = "".join(f"ld.param.u8 %h1, [x+{i}]; st.global.u8 [%rd1+{i}], %h1;" for i in range(len(stored)))
    load(bytes_, f".param .u64 out, .param {declared}")["k"].launch(1, 1, [out, value])
    assert out.tobytes() == stored.ljust(16, b"\0")


@pytest.mark.parametrize(
    "declared,value,reason",
    [
        (".u32 x", 1.5, r"parameter x \(\.u32\): float given"),
        (".u32 x", 1 << 32, "4294967296 does not fit 32 bits"),
        (".u32 x", -(1 << 31) - 1, "-2147483649 does not fit 32 bits"),
        (".f32 x", "1", r"\(\.f32\): str given"),
        (".f32 x", np.float64(1), "float64 has 8 bytes, 4 expected"),
        (".f32 x", np.uint32(1), "uint32 given"),
        (".u32 x", np.zeros(4), "its address needs a 64-bit integer parameter"),
        (".align 8 .b8 x[128]", b"1234", r"x \(\.b8\[128\]\): 4 bytes given, 128 expected"),
        (".align 8 .b8 x[128]", 7, "int given, bytes expected"),
    ],
)
def test_arguments_that_do_not_fit(declared, value, reason):
    with pytest.raises(EmulatorError, match=reason) as error:
        load("", f".param .u64 out, .param {declared}")["k"].launch(1, 32, [0, value])
    assert error.value.kernel == "k"


def test_an_entry_without_instructions_exits():
    empty = nogpu.load_ptx(".version 8.8\n.target sm_100a\n.address_size 64\n.entry e(.param .u64 p)\n{\n}\n")["e"]
    empty.launch(2, 64, [0])
    with pytest.raises(EmulatorError, match="x must be 1 to 1024"):
        empty.launch(1, 10000, [0])


def test_launches_that_are_refused():
    module = load("")
    with pytest.raises(EmulatorError, match=r"0 arguments for 1 parameters: out \(\.u64\)"):
        module["k"].launch(1, 32)
    with pytest.raises(EmulatorError, match=r"block \(1, 2, 3, 4\): one to three integers"):
        module["k"].launch(1, (1, 2, 3, 4), [0])
    with pytest.raises(EmulatorError, match=r"grid \(1.5,\): one to three integers"):
        module["k"].launch((1.5,), 32, [0])
    with pytest.raises(KeyError, match="no kernel 'other'; it has k"):
        module["other"]


def test_every_byte_of_an_array_and_no_more():
    kernel = load("ld.global.b32 %r2, [%rd2];")["k"]
    for array in (np.zeros(32, np.uint32), nogpu.array(np.zeros(32, np.uint32))):
        kernel.launch(1, 32, [array])
        kernel.launch(1, 31, [array[1:]])
        with pytest.raises(EmulatorError, match="0 byte.s. past the end of array uint32.32."):
            kernel.launch(1, 32, [array[1:]])


def test_arrays_are_on_the_device_as_long_as_they_live():
    array = nogpu.array(np.zeros(8, np.uint32))
    address = array.ctypes.data
    allocation = Device.current().memory.allocation(address)
    assert address % 256 == 0 and (allocation.start, allocation.end) == (address, address + 32)
    del allocation
    view = array[2:]
    del array
    gc.collect()
    assert Device.current().memory.allocation(address) is not None
    del view
    gc.collect()
    assert Device.current().memory.allocation(address) is None


def test_read_only_arrays_are_not_stored_to():
    array = np.zeros(32, np.uint32)
    array.flags.writeable = False
    with pytest.raises(EmulatorError, match="is read-only"):
        load("mov.u32 %r2, 1;" + STORE)["k"].launch(1, 32, [array])


def test_a_launch_may_be_left_pending():
    add = "griddepcontrol.wait; ld.global.b32 %r2, [%rd2]; add.u32 %r2, %r2, 1;" + STORE
    kernel = load("griddepcontrol.launch_dependents;" + add)["k"]
    kernel.launch(1, 32, [out := nogpu.array(np.zeros(32, np.uint32))], wait=False)
    kernel.launch(1, 32, [out], programmatic=True, wait=False)
    assert out.tolist() == [0] * 32 and Device.current().pending == 2
    nogpu.synchronize()
    assert out.tolist() == [2] * 32 and Device.current().pending == 0


@pytest.mark.parametrize("target", ["sm_90", "sm_100", "sm_100f", "sm_100a, debug"])
def test_targets_that_run(target):
    assert list(nogpu.load_ptx(HEADER.replace("sm_100a", target) + ".entry k() { ret; }")) == ["k"]


OTHERS = {"sm_90a": "Hopper", "sm_103": "B300", "sm_103a": "B300", "sm_120a": "RTX Blackwell"}


@pytest.mark.parametrize("target", OTHERS)
def test_targets_that_do_not(target):
    with pytest.raises(EmulatorError, match=rf"PTX for {target} \({OTHERS[target]}\): .*10.0"):
        nogpu.load_ptx(HEADER.replace("sm_100a", target))


def test_a_hopper_takes_no_text(monkeypatch):
    monkeypatch.setenv("NOGPU", "hopper")
    with pytest.raises(EmulatorError, match="on the emulated B200 only"):
        load("")["k"].launch(1, 32, [0])


# Variables of the module


def test_initial_values():
    declarations = """
    .global .align 4 .b8 bytes[8] = {1, 0xff, 010, 0b11, -1};
    .global .f32 floats[3] = {1.5, 0f40000000, 0d3FE0000000000000};
    .global .u16 table[2][3] = {{1}, {2, 3}};
    .const .s32 one = -7;
    .global .u64 places[3] = {floats+4, generic(bytes), 5};
    .global .align 8 .b8 pieces[2] = {0xff(bytes), 0xff00(bytes)};
    .global .align 16 .b8 zeros[64];
    .global .u32 open[] = {4, 5, 6};
    .global .align 4096 .b8 page[4];
    """
    module = load("mov.b64 %rd3, bytes;", declarations=declarations)
    address = module.variable("bytes").ctypes.data
    assert address % 256 == 0
    assert module.variable("bytes").tolist() == [1, 255, 8, 3, 255, 0, 0, 0]
    assert module.variable("floats").view(np.float32).tolist() == [1.5, 2.0, 0.5]
    assert module.variable("table").view(np.uint16).tolist() == [1, 0, 0, 2, 3, 0]
    assert module.variable("one").view(np.int32).tolist() == [-7]
    floats = module.variable("floats").ctypes.data
    assert module.variable("places").view(np.uint64).tolist() == [floats + 4, address, 5]
    assert module.variable("pieces").tolist() == [address & 0xFF, address >> 8 & 0xFF]
    assert not module.variable("zeros").any() and len(module.variable("zeros")) == 64
    assert module.variable("page").ctypes.data % 4096 == 0
    assert module.variable("open").view(np.uint32).tolist() == [4, 5, 6]
    with pytest.raises(KeyError, match="no variable 'none'; it has bytes, floats"):
        module.variable("none")


def test_too_many_bytes_of_constants():
    with pytest.raises(EmulatorError, match="65537 bytes of .const variables, the limit is 65536"):
        load("", declarations=".const .b8 big[65537];").variable("big")


def test_constants_are_not_stored_to():
    declarations = ".const .u32 limit[2] = {3, 4};"
    body = "and.b32 %r3, %r1, 1; mul.wide.u32 %rd3, %r3, 4; mov.b64 %rd4, limit; add.s64 %rd4, %rd4, %rd3; {}"
    load_ = body.format("ld.const.u32 %r2, [%rd4];" + STORE)
    assert run(load_, declarations=declarations) == [3, 4] * 16
    with pytest.raises(EmulatorError, match="variable limit .* is read-only"):
        run(body.format("st.global.u32 [%rd4], 1;"), declarations=declarations)


def test_shared_variables_of_the_module_count_where_they_are_used():
    declarations = ".shared .align 4 .b8 used[128]; .shared .align 8 .b8 unused[240000];"
    body = "mov.u32 %r4, used; mad.lo.u32 %r4, %r1, 4, %r4; st.shared.u32 [%r4], %r1; ld.shared.u32 %r2, [%r4];" + STORE
    assert run(body, declarations=declarations) == list(range(32))
    with pytest.raises(EmulatorError, match="0 bytes of dynamic and 240000 of static shared memory"):
        run("mov.u32 %r4, unused;", declarations=declarations)


# Device functions

FUNCTIONS = """
.extern .func (.param .b32 status) elsewhere (.param .b32 code);
.func (.param .b32 result) later (.param .b32 x);
.func (.param .b32 result) add (.param .b32 x, .param .b32 y)
{
    .reg .pred %p<2>; .reg .b32 %r<4>;
    ld.param.b32 %r1, [x];
    ld.param.b32 %r2, [y];
    setp.gt.u32 %p1, %r1, 1000;
    @%p1 bra BIG;
    add.u32 %r3, %r1, %r2;
    st.param.b32 [result], %r3;
    ret;
BIG:
    st.param.b32 [result], 0;
    ret;
}
.func (.param .b32 result) later (.param .b32 x)
{
    .reg .pred %p<2>; .reg .b32 %r<4>;
    .shared .align 4 .b8 seen[128];
    ld.param.b32 %r1, [x];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, seen;
    mad.lo.u32 %r3, %r2, 4, %r3;
    st.shared.u32 [%r3], %r1;
    setp.lt.u32 %p1, %r2, 4;
    st.param.b32 [result], %r1;
    @%p1 ret;
    { .param .b32 a; st.param.b32 [a], %r1; call (result), add, (a, x); }
    ld.shared.u32 %r1, [%r3];
    st.param.b32 [result+0], %r1;
}
.func (.param .b32 result) forever (.param .b32 x) { call (result), again, (x); ret; }
.func (.param .b32 result) again (.param .b32 x) { call (result), forever, (x); ret; }
.global .b32 place;
.func stop () { .reg .pred %p<1>; exit; }
"""


def test_arguments_in_variables_and_registers():
    body = (
        "{ .param .b32 a; .param .b32 b; .param .b32 c; st.param.b32 [a], %r1; st.param.b32 [b], 5;"
        " call.uni (c), add, (a, b); ld.param.b32 %r2, [c]; }"
        " call (%r3), add, (%r2, 7); add.u32 %r2, %r2, %r3;" + STORE
    )
    assert run(body, declarations=FUNCTIONS) == [2 * i + 17 for i in range(32)]


def test_calls_in_diverged_code():
    """Odd threads call, by a guard on the call itself; the function's addend is limited."""
    body = (
        "and.b32 %r3, %r1, 1; setp.ne.u32 %p1, %r3, 0; mul.lo.u32 %r4, %r1, 50; mov.u32 %r2, 9;"
        "@%p1 call (%r2), add, (%r4, %r1);" + STORE
    )
    assert run(body, declarations=FUNCTIONS) == [(51 * i if 50 * i <= 1000 else 0) if i & 1 else 9 for i in range(32)]


def test_shared_variables_of_functions_are_there_once():
    body = "call (%r2), later, (%r1); call (%r3), later, (%r2); add.u32 %r2, %r2, %r3;" + STORE
    assert run(body, declarations=FUNCTIONS) == [2 * i for i in range(32)]
    module = load(body, declarations=FUNCTIONS)
    out = nogpu.array(np.zeros(32, np.uint32))
    limit = (227 << 10) - 128
    module["k"].launch(1, 32, [out], shared=limit)
    with pytest.raises(EmulatorError, match=f"{limit + 1} bytes of dynamic and 128 of static"):
        module["k"].launch(1, 32, [out], shared=limit + 1)


def test_exit_in_a_function_ends_the_thread():
    body = "mov.u32 %r2, 1;" + STORE + "setp.lt.u32 %p1, %r1, 8; @%p1 call stop; mov.u32 %r2, 2;" + STORE
    assert run(body, declarations=FUNCTIONS) == [1] * 8 + [2] * 24


@pytest.mark.parametrize(
    "call,reason",
    [
        ("call (%r2), forever, (%r1);", "recursive calls are not modelled: forever -> again -> forever"),
        ("call (%r2), elsewhere, (%r1);", "the module has no body of function elsewhere"),
        ("call (%r2), add, (%r1);", "1 arguments and 1 results for add, which has 2 and 1"),
        ("call add, (%r1, %r1);", "2 arguments and 0 results for add"),
        ("call (%r2), out, (%r1);", "is not a function"),
        ("call (%r2), nowhere, (%r1);", "'nowhere' is not declared"),
        ("{ .param .b64 a; call (%r2), add, (a, a); }", "a@1 has 8 bytes, parameter x 4"),
        ("call (%r2), add, (place, %r1);", "argument place is neither a .param variable nor a register"),
        ("tex.2d %r2, %r1;", "tex.2d is not modelled"),
    ],
)
def test_calls_that_are_refused(call, reason):
    with pytest.raises(EmulatorError, match=reason) as error:
        run("\n" + call, declarations=FUNCTIONS)
    assert error.value.kernel == "k" and error.value.ptx_text


def test_a_fault_in_a_function_says_where():
    broken = ".func broken (.param .b64 p) { .reg .b64 %a; ld.param.b64 %a, [p];\nst.global.b32 [%a], 1;\nret; }"
    with pytest.raises(EmulatorError, match="store of 4 bytes at 0x10") as error:
        run("mov.b64 %rd3, 16; call broken, (%rd3);", declarations=broken)
    assert error.value.ptx_line == 5 and error.value.ptx_text == "st.global.b32 [%a], 1"


def test_calls_through_pointers():
    body = (
        "mov.b64 %rd3, add; mov.b64 %rd4, later; setp.lt.u32 %p1, %r1, 9; selp.b64 %rd3, %rd3, 5, %p1;"
        "PROTOTYPE: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);\n"
        "@%p1 call (%r2), %rd3, (%r1, %r1), PROTOTYPE;" + STORE
    )
    assert run(body, declarations=FUNCTIONS) == [2 * i if i < 9 else 0xFFFFFFFF for i in range(32)]
    with pytest.raises(EmulatorError, match="call through 0x5, which is no function with these parameters"):
        run(body.replace("@%p1 call", "call"), declarations=FUNCTIONS)


def test_what_is_left_of_calls():
    """Calls of the driver's functions and of a pointer to no function fail; each error has the text of the call."""
    body = "call (%r2), vprintf, (%rd1, %rd1); call (%r2), add, (%r1, %r1);\ncall (%r3), %rd1, (%r1, %r2);"
    head = f"{HEADER}{PRINTF.format(format=0)}{FUNCTIONS}"
    text = f"{head}.entry k(.param .u64 out) {{ {REGISTERS} {LOAD_OUT} {body} ret; }}"
    linked = link(ptx.parse(text).entries["k"])
    left = {i.opcode: i.text for i in linked.instructions if i.opcode.startswith(("call", "brx"))}
    assert left == {"call.vprintf": "call (%r2), vprintf, (%rd1, %rd1)", "call.unknown": "call (%r3), %rd1, (%r1, %r2)"}
    assert sum(instruction.text == "ld.param.b32 %r2, [y]" for instruction in linked.instructions) == 2


# Branches by index

SWITCH = """
    and.b32 %r3, %r1, 3;
    mov.u32 %r2, 0;
    {table}
    {guard} brx.idx %r3, TABLE;
    mov.u32 %r2, 77;
    bra END;
L0: add.u32 %r2, %r2, 10;
L1: add.u32 %r2, %r2, 1; bra END;
L2: mov.u32 %r2, 50;
END:
    vote.sync.ballot.b32 %r4, 1, -1;
    popc.b32 %r4, %r4;
    mad.lo.u32 %r2, %r4, 1000, %r2;
"""


@pytest.mark.parametrize("guard", ["", "@%p1", "@!%p1"])
def test_indexed_branches(guard):
    text = SWITCH.format(table="TABLE: .branchtargets L0, L1, L2, L0;", guard=guard)
    taken = {"": lambda i: True, "@%p1": lambda i: i < 20, "@!%p1": lambda i: i >= 20}[guard]
    expected = [32000 + ([11, 1, 50, 11][i & 3] if taken(i) else 77) for i in range(32)]
    assert run("setp.lt.u32 %p1, %r1, 20;" + text + STORE) == expected


def test_an_index_outside_of_the_table():
    with pytest.raises(EmulatorError, match="index 3 of lane 3, the table has 3 targets") as error:
        run(SWITCH.format(table="TABLE: .branchtargets L0, L1, L2;", guard="") + STORE)
    assert error.value.ptx_text.startswith("brx.idx")
    with pytest.raises(EmulatorError, match="the list of targets is not declared"):
        run("L: brx.idx %r3, L;")


# printf

PRINTF = """
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 format[32] = {{{format}}};
"""
PRINT = (
    ".local .align 8 .b8 arguments[16]; mov.b64 %rd5, arguments; cvta.local.u64 %rd6, %rd5;"
    "st.local.b32 [%rd5], %r1; st.local.b64 [%rd5+8], 0; mov.b64 %rd7, format; call (%r2), vprintf, (%rd7, %rd6);"
)


def printing(format_):
    codes = ", ".join(str(byte) for byte in format_.encode() + b"\0")
    return load(PRINT + STORE, declarations=PRINTF.format(format=codes))["k"]


def test_printf_of_some_threads(capfd):
    out = nogpu.array(np.zeros(40, np.uint32))
    printing("%d;").launch(1, 40, [out])
    assert capfd.readouterr().out == "".join(f"{i};" for i in range(40)) and out.tolist() == [1] * 40
    printing("%*s|\n").launch(1, 2, [out])
    assert capfd.readouterr().out == "(null)|\n(null)|\n" and out.tolist()[:3] == [2, 2, 1]


@pytest.mark.parametrize(
    "format_,reason", [("%n", "conversion '%n' is not modelled"), ("%#o", "'%#o'"), ("%s", "load of 1 bytes at 0x")]
)
def test_formats_that_are_refused(format_, reason):
    with pytest.raises(EmulatorError, match=reason) as error:
        printing(format_).launch(1, 32, [nogpu.array(np.zeros(32, np.uint32))])
    assert "vprintf" in error.value.ptx_text


SCRIPT = f"""
import sys
sys.path[:0] = {[str(Path(__file__).resolve().parents[2])]!r}
import numpy as np
from tests.compiler.test_load_ptx import printing
import nogpu
out = nogpu.array(np.zeros(32, np.uint32))
print("before")
printing("%d ").launch(1, 3, [out])
print("after", out.tolist()[:4], "torch" in sys.modules)
"""


def test_printf_without_torch_under_several_schedules():
    """Each schedule runs in a child process; its output is printed once and in order."""
    environment = {name: value for name, value in os.environ.items() if name[:6] not in ("EMULAT", "PYTHON")}
    environment |= {"NOGPU_SCHEDULE": "late,random:1,eager", "NOGPU_WORKERS": "2"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("before\n0 1 2 after [1, 1, 1, 0] False\n", "")


@pytest.mark.slow
def test_torch_tensors():
    torch = pytest.importorskip("torch")
    if "emulat" not in torch.cuda.get_device_name():
        pytest.skip("device cuda is a GPU")
    x = torch.arange(32, dtype=torch.int32, device="cuda")
    load("ld.global.b32 %r2, [%rd2]; add.u32 %r2, %r2, %r1;" + STORE)["k"].launch(1, 32, [x])
    assert x.tolist() == [2 * i for i in range(32)]
    with pytest.raises(EmulatorError, match="the tensor is not on the emulated device"):
        load("")["k"].launch(1, 32, [torch.zeros(4)])


# Directives and special registers


def test_launches_within_the_directives():
    directives = ".maxntid 64 .minnctapersm 2 .maxnreg 128 .explicitcluster .reqnctapercluster 2, 1, 1"
    body = "mov.u32 %r3, %cluster_nctarank; mov.u32 %r4, %cluster_ctarank; mad.lo.u32 %r2, %r3, 10, %r4;" + STORE
    out = nogpu.array(np.zeros(32, np.uint32))
    for cluster in (1, 2):
        load(body.replace(STORE, "setp.eq.u32 %p1, %r4, 1; @%p1 " + STORE), directives=directives)["k"].launch(
            2, 32, [out], cluster=cluster
        )
        assert out.tolist() == [21] * 32


def test_special_registers_of_shared_memory():
    body = "".join(
        f"mov.u32 %r2, %{name}; st.global.b32 [%rd1+{4 * i}], %r2;"
        for i, name in enumerate(
            ("reserved_smem_offset_begin", "reserved_smem_offset_end", "aggr_smem_size", "total_smem_size")
        )
    )
    out = nogpu.array(np.zeros(4, np.uint32))
    load(body)["k"].launch(1, 1, [out], shared=512)
    assert out.tolist() == [0, 1024, 1536, 512]
    with pytest.raises(EmulatorError, match="special register %envreg0 is not modelled") as error:
        run("mov.b32 %r2, %envreg0;")
    assert error.value.ptx_text == "mov.b32 %r2, %envreg0"


def test_arrays_keep_no_registration_behind():
    gc.collect()
    before = len(arrays._arrays)
    run("mov.u32 %r2, 1;" + STORE)
    gc.collect()
    assert len(arrays._arrays) == before


# A module with two kernels and three functions, one of each not understood.
PARTLY = """.version 8.8
.target sm_100a
.address_size 64
.func (.param .b32 r) wrong(.param .b32 a)
{
    .reg .b32 %r<3>; what.is.this %r0;;
    ret;
}
.func odd(.reg .b32 a) { ret; }
.visible .entry calls(.param .u64 out)
{
    .reg .b64 %d; .param .b32 x; .param .b32 y;
    call (x), wrong, (y);
    ret;
}
.visible .entry broken(.param .u64 out) { .reg .b32 %r; mov.b32 %r, %nothing; ret; }
.visible .entry asks(.param .u64 out) { wgmma.fence.sync.aligned; ret; }
.visible .entry good(.param .u64 out)
{
    .reg .b64 %d; ld.param.u64 %d, [out]; st.global.u32 [%d], 4 * (2 + 1) - 1; ret;
}
"""


def test_one_bad_function_does_not_refuse_the_others():
    module = nogpu.load_ptx(PARTLY)
    out = nogpu.array(np.zeros(1, np.uint32))
    module["good"].launch(1, 1, [out])
    assert out[0] == 11
    for run in (lambda kernel: kernel.launch(1, 1, [out]), lambda kernel: kernel.check()):
        with pytest.raises(EmulatorError, match="register '%nothing' is neither declared") as error:
            run(module["broken"])
        assert (error.value.kernel, error.value.ptx_line) == ("broken", 16)
        with pytest.raises(
            EmulatorError, match="statement is missing.*in function wrong, which the kernel calls"
        ) as error:
            run(module["calls"])
        assert (error.value.kernel, error.value.ptx_line) == ("calls", 6)
        with pytest.raises(EmulatorError, match="wgmma is of sm_90a only, sm_100a has tcgen05.mma"):
            run(module["asks"])


def test_a_function_whose_header_is_not_understood_is_refused_where_it_is_called():
    text = PARTLY.replace("call (x), wrong, (y);", "call odd, (y);")
    with pytest.raises(EmulatorError, match="parameter not understood: '.reg .b32 a' .in function odd, which"):
        nogpu.load_ptx(text)["calls"].check()


DECLARED = """.version 8.8
.target sm_100a
.address_size 64
.const .b32 table[4] = {10, 20, 30 + 5, 1 << 6};
.visible .entry k(.param .u64 out)
{
    .reg .b64 %d<4>; .reg .b32 %r<4>; .reg .f16x2 %packed; .reg .f16 %h<2>; .reg .v2 .b32 %pair; .reg .v4 .f32 %quad<2>;
    .reg .align 8 .b32 %aligned;
    .global .b32 own[2] = {7, 8}; .const .b64 place = table;
    ld.param.u64 %d0, [out];
    mov.b32 %packed, 0x40003c00; add.f16x2 %packed, %packed, %packed; st.global.b32 [%d0], %packed;
    mov.b32 {%h0, %h1}, %packed; add.f16 %h0, %h0, %h1; st.global.b16 [%d0 + 2 * 2], %h0;
    mov.u64 %d1, own; ld.global.b32 %r0, [%d1+(1)*4]; ld.global.b32 %aligned, [own];
    st.global.b32 [%d0+8], %r0; st.global.b32 [%d0+3<<2], %aligned;
    ld.const.u64 %d2, [place]; ld.b32 %r1, [%d2+ 8 - 4]; st.global.b32 [%d0+16], %r1;
    ld.global.v2.b32 %pair, [own]; st.global.v2.b32 [%d0+24], %pair; add.u32 %pair.x, %pair.x, %pair.g;
    st.global.b32 [%d0+32], %pair.x;
    mov.f32 %quad1.x, 1.5 + 2.0 * 2.0; mov.f32 %quad1.w, -(1.0); st.global.b32 [%d0+36], %quad1.r;
    st.global.b32 [%d0+40], %quad1.a; mov.u64 %d3, table; ld.const.b32 %r2, [table+12]; st.global.b32 [%d0+44], %r2;
    ret;
}
"""


@pytest.mark.usefixtures("kernels_and_calls")
def test_declarations_and_constants_that_ptxas_takes():
    """Packed and vector registers, variables of the module inside of a body, constant expressions."""
    device, text = Device(("late",)), DECLARED
    out = np.zeros(12, np.uint32)
    kernel = nogpu.load_ptx(text)["k"].entry
    device.memory.register(out.ctypes.data, out.nbytes, "out")
    device.launch(kernel, LaunchConfig((1, 1, 1), (1, 1, 1)), [out.ctypes.data.to_bytes(8, "little")])
    assert out[:2].tolist() == [0x44004000, 0x4600]
    assert out[2:5].tolist() == [8, 7, 20]
    assert out[6:9].tolist() == [7, 8, 15]
    assert out[9:11].view(np.float32).tolist() == [5.5, -1.0] and out[11] == 64
