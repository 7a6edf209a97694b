"""The PTX parser: scopes, operands, parameters, line information, and errors that name the line."""

import re

import pytest

from nogpu.errors import EmulatorError
from nogpu.ptx import module as ptx
from nogpu.ptx.ir import SINK, Address, Immediate, Negated, Pair, Register, Special, Symbol, Vector

MODULE = """
// a comment with a brace {
.version 8.8
.target sm_100a
.address_size 64
.file 1 "kernel.py"
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry k(
    .param .u32 count, /* a comment
    over two lines */
    .param .align 64 .b8 map[128],
    .param .u64 .ptr .global .align 16 out
)
.reqntid 128, 2
.minnctapersm 1
{
    .reg .pred %p<3>;
    .reg .b32 %r<4>, %flag;
    .reg .b64 %rd<2>;
    .shared .align 16 .b8 table[48];
    .local .align 8 .b8 __local_depot0[24];
    .loc 1 7 3
    ld.param.b32 %r1, [count];
    {
    .reg .pred P1;
    LAB_WAIT:
    mbarrier.try_wait.parity.shared.b64 P1, [%r1+-8], 0, 0x989680;
    @P1 bra.uni DONE;
    bra.uni LAB_WAIT;
    DONE:
    }
    {
    .reg .pred P1;
    LAB_WAIT: mbarrier.try_wait.parity.shared.b64 P1, [%r1], 1;
    @!P1 bra LAB_WAIT;
    }
    .loc 1 9 1, function_name $L__info, inlined_at 1 20 1
    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [map, {%r1, -1}], [table+16];
    elect.sync _|%p1, -1;
    @!%p1 bra $L__end;
    mov.b64 {%r2, _}, 0d3FF0000000000000; add.f32 %r2, %r2, 0f40000000;
    setp.lt.and.s32 %p2, %r2, %tid.x, !%p1;
$L__end:
    ret;
}
.visible .entry other() { ret; }
"""


@pytest.fixture(scope="module")
def entry():
    return ptx.parse(MODULE).entries["k"]


def test_module(entry):
    module = ptx.parse(MODULE)
    assert list(module.entries) == ["k", "other"] and module.target == "sm_100a" and module.version == "8.8"
    assert [i.opcode for i in module.entries["other"].instructions] == ["ret"]


def test_parameters(entry):
    assert [(p.name, p.size, p.align) for p in entry.params] == [("count", 4, 4), ("map", 128, 64), ("out", 8, 8)]
    assert entry.param_offsets() == {"count": 0, "map": 64, "out": 192, "": 200}
    packed = entry.pack([b"\1\0\0\0", b"\2" * 128, b"\3" * 8])
    assert len(packed) == 200 and packed[0] == 1 and packed[64:192] == b"\2" * 128 and packed[192:] == b"\3" * 8
    with pytest.raises(EmulatorError, match="parameter map has 1 bytes, not 128"):
        entry.pack([b"\1\0\0\0", b"\2", b"\3" * 8])
    with pytest.raises(EmulatorError, match="2 parameters for 3"):
        entry.pack([b"", b""])


def test_declarations(entry):
    assert entry.reqntid == (128, 2, 1)
    assert entry.registers["%r3"] == Register("%r3", 32) and entry.registers["%flag"].width == 32
    variables = {v.name: (v.space, v.size, v.align, v.extern) for v in entry.variables.values()}
    assert variables == {
        "dynamic": ("shared", 0, 1024, True),
        "table": ("shared", 48, 16, False),
        "__local_depot0": ("local", 24, 8, False),
    }


def find(entry, opcode, number=0):
    return [i for i in entry.instructions if i.opcode.startswith(opcode)][number]


def test_scopes_of_inline_assembly(entry):
    first, second = find(entry, "mbarrier", 0), find(entry, "mbarrier", 1)
    assert first.operands[0] != second.operands[0] and first.operands[0].width == 1
    branch, back, again = (find(entry, "bra", i).operands[0].name for i in range(3))
    instructions = entry.instructions
    assert entry.labels[branch] == instructions.index(first) + 3
    assert entry.labels[back] == instructions.index(first)
    assert entry.labels[again] == instructions.index(second)


def test_operands(entry):
    r1, r2, p1 = Register("%r1", 32), Register("%r2", 32), Register("%p1", 1)
    assert find(entry, "mbarrier").operands[1:] == (Address(r1, -8), Immediate(0), Immediate(10000000))
    copy = find(entry, "cp.async").operands
    assert copy == (Address(Symbol("map"), 0, (r1, Immediate(-1))), Address(Symbol("table"), 16))
    assert find(entry, "elect").operands == (Pair(SINK, p1), Immediate(-1))
    assert find(entry, "mov").operands == (Vector((r2, SINK)), Immediate(0x3FF0000000000000, 64))
    assert find(entry, "add").operands[2] == Immediate(0x40000000, 32)
    assert find(entry, "setp").operands[2:] == (Special("%tid.x"), Negated(p1))
    guard = find(entry, "bra", 3).predicate
    assert guard.register == p1 and guard.negated


def test_lines_and_sources(entry):
    load, store = find(entry, "ld"), find(entry, "cp.async")
    assert MODULE.splitlines()[load.line - 1].strip() == load.text + ";"
    assert MODULE.splitlines()[find(entry, "ret").line - 1].strip() == "ret;"
    assert load.source == "kernel.py:7" and store.source == "kernel.py:9"


@pytest.mark.parametrize(
    "line,reason",
    [
        ("add.s32 %r1, %nothing, 1;", "neither declared nor a special register"),
        ("@%q bra L;", "register '%q' is not declared"),
        ("mov.b32 %r1, 1x;", "operand '1x' not understood"),
        (".unknown 5;", "directive not understood"),
        ("{ .reg .b32 inner; } mov.b32 inner, 1;", "'inner' is not declared"),
        ("@%r1 ret;", "register '%r1' has 32 bits; a predicate is expected"),
        (".reg .b32 %r<2>;", "%r0 is declared twice"),
        ("L: ret; L: ret;", "label L stands twice"),
        ("mov.b32 %r1, [%r0*4];", "operand '%r0\\*4' not understood"),
        ("mov.b32 %r1, [%tid.x];", "address .%tid.x. not understood"),
        (".shared .b32 x = {1};", ".shared variables have no initialiser"),
    ],
)
def test_errors_name_the_line(line, reason):
    text = f".version 8.8\n.target sm_100a\n.visible .entry k()\n{{\n.reg .b32 %r<2>;\n{line}\nret;\n}}\n"
    error = ptx.parse(text).entries["k"].error
    assert re.search(reason, error.reason) and error.kernel == "k"
    assert error.ptx_line == 6 and line.endswith((error.ptx_text or "") + ";")


def test_not_a_module():
    with pytest.raises(EmulatorError, match="not a PTX module"):
        ptx.parse("hello")
    with pytest.raises(EmulatorError, match="unbalanced braces"):
        ptx.parse(".version 8.8\n.target sm_100a\n.visible .entry k() { ret;")


DECLARATIONS = """
.version 9.0
.target sm_100a, debug
.address_size 64
.pragma "nounroll";
.extern .func (.param .b32 status) vprintf
(
    .param .b64 format,
    .param .b64 arguments
)
;
.extern .func stop(.param .b64 p) .noreturn;
.visible .const .align 8 .b8 table[2][4] = {{1, 2}, {3}};
.weak .global .u32 counter;
.extern .shared .align 128 .b8 dynamic[];
.func (.param .align 8 .b8 result[8]) f(.param .b32 x) { .reg .b32 %r<2>; ld.param.b32 %r1, [x]; ret; }
.visible .entry k(.param .f32 x, .param .align 4 .b8 pad[6]) .maxntid 64, 2 .minnctapersm 2
.explicitcluster
.reqnctapercluster 2
{
    .reg .b64 %rd<3>;
    .loc 2 7 0
    { .param .b64 p; mov.b64 %rd1, counter; call stop, (p); }
    { .param .b64 p; .param .b64 q; st.param.b64 [p+0], %rd1; }
    ret;
}
.file 1 "a.cu"
.file 2 "b.cuh", 1234, 5678
.section .debug_str
{
    .b8 1, 2
    .b32 $k
}
"""


def test_what_stands_outside_of_entries():
    module = ptx.parse(DECLARATIONS)
    scope, k = module.scope, module.entries["k"]
    assert list(scope.functions) == ["vprintf", "stop", "f"] and list(module.entries) == ["k"]
    assert [f.defined for f in scope.functions.values()] == [False, False, True]
    assert [(p.name, p.size, p.type) for p in scope.functions["vprintf"].params] == [
        ("format", 8, "b64"),
        ("arguments", 8, "b64"),
    ]
    assert [(p.name, p.size, p.align, p.array) for p in scope.functions["f"].results] == [("result", 8, 8, True)]
    variables = {v.name: (v.space, v.size, v.align, v.initial) for v in scope.variables.values()}
    assert variables == {
        "table": ("const", 8, 8, b"\1\2\0\0\3\0\0\0"),
        "counter": ("global", 4, 4, None),
        "dynamic": ("shared", 0, 128, None),
    }
    assert (k.reqntid, k.maxntid, k.cluster, k.max_cluster) == (None, (64, 2, 1), (2, 1, 1), None)
    assert [(p.name, p.size, p.type, p.array) for p in k.params] == [("x", 4, "f32", False), ("pad", 6, "b8", True)]
    assert list(k.variables) == ["p@1", "p@2", "q@2", "dynamic"]
    assert find(k, "call").operands == (Symbol("stop"), Vector((Symbol("p@1"),)))
    assert {i.source for i in k.instructions} == {"b.cuh:7"}


@pytest.mark.parametrize(
    "line,reason",
    [
        (".local .b32 x;", ".local variables stand inside of functions"),
        (".global .b32 x = what?;", "initial value 'what\\?' not understood"),
        (".surfref s;", "declaration not understood"),
        (".visible .entry other(.param .b32 a);", "entry other has no body"),
    ],
)
def test_errors_outside_of_entries_name_the_line(line, reason):
    with pytest.raises(EmulatorError, match=reason) as error:
        ptx.parse(f".version 8.8\n.target sm_100a\n\n{line}\n.visible .entry k() {{ ret; }}")
    assert error.value.ptx_line == 4 and line.startswith(error.value.ptx_text)


@pytest.mark.parametrize(
    "line,reason",
    [
        (".visible .entry other(.param .b32) { ret; }", "parameter not understood: '.param .b32'"),
        (".visible .entry other() .unknown 3 { ret; }", "directive .unknown 3 not understood"),
        (".func other(.reg .b32 a) { ret; }", "parameter not understood: '.reg .b32 a'"),
        (".func (.reg .b32 r) other() { ret; }", "parameter not understood: '.reg .b32 r'"),
        (".func other() .unknown 3 { ret; }", "directive .unknown 3 of a function not understood"),
    ],
)
def test_errors_in_a_header_refuse_that_body_alone(line, reason):
    module = ptx.parse(f".version 8.8\n.target sm_100a\n\n{line}\n.visible .entry k() {{ ret; }}")
    other = module.entries.get("other") or module.scope.functions["other"]
    assert module.entries["k"].error is None and reason in other.error.reason
    assert other.error.ptx_line == 4 and line.startswith(other.error.ptx_text)


def test_a_module_on_one_line():
    header = ".version 8.8 .target sm_100a, debug .address_size 64"
    assert list(ptx.parse(f"{header} .visible .entry k() {{ ret; }}").entries) == ["k"]


def test_directives_need_no_blank_between_them():
    """ptxas reads this; cuda_fp16.hpp of CUDA 13.0 has such registers."""
    text = """.version 8.7\n.target sm_100a\n.address_size 64
.visible.global.align 4 .b8 table[2]={1,2};
.visible.entry k(.param.u64.ptr.global.align 4 out,.param.align 8 .b8 s[16])
{ .reg.b32 f,C,nZ; .reg.v2.f32 q; .shared.align 4 .b8 x[16]; mov.u32 f,x; ret; }"""
    module = ptx.parse(text)
    entry = module.entries["k"]
    assert entry.error is None and {"f", "C", "nZ", "q.x", "q.y"} <= set(entry.registers)
    assert [(p.name, p.size, p.align) for p in entry.params] == [("out", 8, 8), ("s", 16, 8)]
    assert (module.scope.variables["table"].initial, entry.variables["x"].size) == (b"\1\2", 16)
