"""PTX that ptxas refuses, and literals that it would cut off: EmulatorErrors with the line, a legal twin beside each.

Both texts of a row go to the same place of a frame.
"""

import re

import numpy as np
import pytest

import nogpu
from nogpu.errors import EmulatorError
from nogpu.ptx.header import FIRST_VERSION, LAST_MINOR
from tests.support import tables

HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"
ENTRY = ".visible .entry k() { ret; }\n"
REGISTERS = ".reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>;"
DEPTH = 5000  # more levels than Python's recursion limit


def load(text):
    """Load a module and translate its kernels. Functions that none of them calls are parsed, too."""
    module = nogpu.load_ptx(text)
    for function in module.parsed.scope.functions.values():
        if function.error is not None:
            raise function.error
    for name in module:
        module[name].check()
    return module


def check(frame, reason, broken, legal, exact=True):
    """Check that the broken text is refused, on one of its lines unless `exact` is False, and the legal one is not."""
    load(frame.replace("{}", legal))
    text = frame.replace("{}", broken)
    with pytest.raises(EmulatorError, match=reason) as error:
        load(text)
    first = text[: text.index(broken)].count("\n") + 1
    last = first + broken.count("\n") if exact else text.count("\n") + 1
    assert (first if exact else 1) <= error.value.ptx_line <= last, error.value


def rows(table, *others):
    cases = [pytest.param(*row[1:], id=row[0]) for row in tables.rows(table, *others)]
    return pytest.mark.parametrize(("reason", "broken", "legal"), cases)


@rows(
    r"""
no .version | not a PTX module: it must begin with .version | .< -> version 8.8\n.>target sm_100a
other order | it must begin with .version | .target sm_90\n.version 8.8 | .version 8.8\n.target sm_90
no .target | not a PTX module: .target must follow | .version 8.8\n.<entry e() { ret; } -> target sm_90>
no minor | it must begin with .version | .version 8< -> .0>\n.target sm_90
three parts | must begin with .version | .version 8.8<.1 -> >\n.target sm_90
unknown version | PTX version 8.9 is not known; known are 1.0 to 1.5 | .version <8.9 -> 9.0>\n.target sm_90
version of the future | PTX version 10.0 is not known | .version <10.0 -> 9.5>\n.target sm_90
unknown target | target sm_99 is not known | .version 8.8\n.target <sm_99 -> sm_90>
no target's name | target compute_90 is not known | .version 8.8\n.target <compute_90 -> sm_90>
suffix | target sm_100ab is not known | .version 8.8\n.target <sm_100ab -> sm_100a>
too early a version | PTX version 8.5 has no target sm_100a; 8.6 is the first | .version 8.<5 -> 6>\n.target sm_100a
family too early | version 8.7 has no target sm_100f; 8.8 | .version 8.<7 -> 8>\n.target sm_100f
option | option nonsense of .target is not one of debug | .version 8.8\n.target sm_90, <nonsense -> debug>
two targets | option sm_90 of .target | .version 8.8\n.target sm_100a<, sm_90 -> >
32-bit addresses | address_size 32: addresses of the device have 64 bits
    | .version 8.8\n.target sm_90\n.address_size <32 -> 64>
no number | address_size without a number | .version 8.8\n.target sm_90\n.address_size< ->  64>
twice | .address_size stands once | .version 8.8\n.target sm_90<\n.address_size 64\n.address_size 64 ; -> >
another version | .version stands once | .version 8.8\n.target sm_90<\n.version 8.8 ; -> >
another device's | a device of compute capability 10.0 does not run it | .version 8.8\n.target <sm_103a -> sm_100f>
Rubin's | PTX for sm_107a .Rubin.: a device | .version 9.4\n.target <sm_107a -> sm_100a>
""",
    ("huge version", "it must begin with", f".version {'9' * DEPTH}.0\n.target sm_90", ".version 9.0\n.target sm_90"),
)
def test_headers(reason, broken, legal):
    check(f"{{}}\n{ENTRY}", reason, broken, legal)


def test_every_version_and_target_that_ptxas_knows():
    for major, last in LAST_MINOR.items():
        for minor in range(last + 1):
            load(f".version {major}.{minor}\n.target sm_10\n{ENTRY}")
    assert {
        load(f".version {'{}.{}'.format(*FIRST_VERSION[t])}\n.target {t}\n{ENTRY}") and t for t in ("sm_90", "sm_100")
    }


FUNCTION = ".func f() { ret; }"


@rows(
    r"""
two entries | entry e: the module has an entry of this name | .entry e() { ret; }\n.entry <e -> f>() { ret; }
entry and function | function e: the module has an entry of this name | .entry e() { ret; }\n.func <e -> f>() { ret; }
entry and variable | variable e: the module has an entry | .entry e() { ret; }\n.global .u32 <e -> v>;
variable and function | function v: the module has a variable | .global .u32 v;\n.func <v -> f>() { ret; }
other prototype | function f is declared with params of other types
    | .func f(.param .b32 a);\n.func f(.param .<b64 a -> b32 b>) { ret; }
other results | declared with results of other types
    | .func (.param .b32 r) f();\n.func < -> (.param .b32 s) >f() { ret; }
body of an extern | function f is .extern: it has no body | .extern .func f()< { ret; } -> ;>
variable twice | variable v is declared twice | .global .u32 v;\n.global .u32 <v -> w>;
variable of another size | variable v is declared otherwise | .extern .global .u32 v;\n.visible .global .<u64 -> u32> v;
static behind extern | it must be .visible here | .extern .global .u32 v;\n.< -> weak .>global .u32 v;
parameter twice | parameter a is declared twice | .entry e(.param .u32 a, .param .u32 <a -> b>) { ret; }
result and parameter | a parameter and a result of one name: a, a
    | .func (.param .u32 <a -> r>) f(.param .u32 a) { ret; }
parameter and register | a is declared twice | .entry e(.param .u32 a) { .reg .b32 <a -> b>; ret; }
entry with results | entry e has results | .<entry -> func> (.param .u32 r) e() { ret; }
entry without a body | entry e has no body | .<entry -> func> e();
body of an extern entry | entry e is .extern: it has no body | .extern .entry e()< { ret; } -> ;>
entry without a name | header not understood | .entry < -> e>() { ret; }
""",
    ("function twice", "function f is defined twice", f"{FUNCTION}\n{FUNCTION}", f".func f();\n{FUNCTION}"),
)
def test_names(reason, broken, legal):
    check(f"{HEADER}{{}}\n{ENTRY}", reason, broken, legal)


@rows(
    r"""
surplus } | surplus closing brace: no brace is open | <} -> >
missing } | unbalanced braces: this one is never closed | .entry e() { ret;< ->  }>
stray { | syntax not understood | <{ -> >
stray ; | syntax not understood | <; -> >
stray text | declaration not understood|syntax not understood | <hello; -> >
instruction | declaration not understood | <mov.u32 %r1, 1; -> >
section without braces | syntax not understood|declaration not understood | .section <debug; -> .debug { }>
pragma without quotes | declaration not understood | .pragma <nounroll -> "nounroll">;
file without a name | declaration not understood | .file 1<; ->  "a.cu">
location outside | declaration not understood | <.loc 1 2 3; -> >
registers outside | declaration not understood | <.reg .b32 r; -> >
parameter's comma | parameter not understood: '' | .func f(.param .u32 a<, -> >);
parameter's type | parameter not understood | .func f(.param .<b7 -> b8> a);
parameter's pointer | parameter not understood | .func f(.param .u64 .ptr .<nonsense -> global> a);
parameter's alignment | .align 3: must be a power of two | .entry f(.param .align <3 -> 4> .b8 a[4]) { ret; }
alignment 0 | .align 0: must be a power of two | .entry f(.param .align <0 -> 1> .b8 a[4]) { ret; }
parameter of no bytes | an array of 0 elements, must be at least 1 | .entry f(.param .u32 a[<0 -> 1>]) { ret; }
""",
    ("foreign character", "character '\xe9': PTX is ASCII", ".global .u32 \xe9;", ".global .u32 e; // \xe9"),
    ("foreign digit", "PTX is ASCII", ".global .u32 x[\u0663];", ".global .u32 x[3];"),
    ("NUL", "PTX is ASCII", ".global .u32 x\0;", ".global .u32 x;"),
    (
        "size that does not fit",
        "does not fit 64 bits",
        f".entry f(.param .u32 a[{'9' * DEPTH}]) {{ ret; }}",
        ".entry f(.param .u32 a[9]) { ret; }",
    ),
)
def test_text_outside_of_bodies(reason, broken, legal):
    check(f"{HEADER}{{}}\n{ENTRY}", reason, broken, legal)


def test_a_section_swallows_no_entry():
    with pytest.raises(EmulatorError, match="not understood"):
        load(f"{HEADER}.section debug\n{ENTRY}")


@rows(
    r"""
u8 | literal 256 does not fit .u8: -128 to 255 do | .global .u8 x = <256 -> 255>;
s8 | literal -129 does not fit .s8 | .global .s8 x = -<129 -> 128>;
u16 | literal 65536 does not fit .u16 | .global .u16 x[2] = {1, <65536 -> 65535>};
u32 | does not fit .u32 | .global .u32 x = <0x100000000 -> 0xffffffff>;
u64 | does not fit 64 bits | .global .u64 x = <18446744073709551616 -> 18446744073709551615>;
f32 too large | literal 1e.39 does not fit f32 | .global .f32 x = 1.<0e39 -> 0e38>;
f64 too large | does not fit f64 | .global .f64 x = 1.<0e400 -> 0e300>;
f64 too small | does not fit f64 | .global .f64 x = <1 -> 0>.0e-400;
integer for a float | integer literal 1 for type .f32 | .global .f32 x = 1< -> .0>;
float for an integer | 64-bit floating-point value for type .u32 | .global .<u32 -> b64> x = 1.5;
f16 | type .f16 has no literals | .global .f16 x< = 1.5 -> >;
octal digit | initial value '09' not understood | .global .u32 x = <09 -> 07>;
too many values | 12 bytes of initial values for 8 bytes | .global .u32 x[2] = {1, 2<, 3 -> >};
missing value | initial value '' not understood | .global .u32 x[3] = {1,<, -> > 2};
braces for one | initial value '\{1\}' not understood | .global .u32 x< -> [1]> = {1};
one for an array | of an array: braces are expected|braces are expected | .global .u32 x<[1] -> > = 1;
rows without braces | braces are expected | .global .u32 x[2][2] = {<1, 2 -> {1}, {2}>};
unknown symbol | variable x holds the address of y, which is no | .global .< -> u32 y; .global .>u64 x = y;
entry's address | holds the address of k | .global .u64 x = k; | .func f() { ret; } .global .u64 x = f;
shared address | holds the address of y | .<shared -> const> .u32 y; .global .u64 x = y;
address in a byte | 'y' not understood for type .u8 | .global .u32 y; .global .u8 x = <y -> 0xff(y)>;
mask | mask 0xf0f of an address | .global .u32 y; .global .u8 x = <0xf0f -> 0xff00>(y);
no size | variable x has no size | .global .u32 x[]< ->  = {1}>;
size 0 | an array of 0 elements | .shared .u32 x[<0 -> 1>];
initialised giant | more than 1073741824 bytes | .global .u8 x[<99999999999 -> 9>] = {1};
alignment | must be a power of two | .global .align <3 -> 4> .b8 x[4];
giant alignment | must be a power of two | .global .align <4294967296 -> 4096> .b8 x[4];
type | declaration not understood | .global .<f128 -> b128> x;
attribute | declaration not understood | .global .attribute(.<nonsense -> managed>) .u32 x;
extern with a value | variable x is .extern: it has no initialiser | .<extern -> visible> .global .u32 x = 5;
shared with a value | .shared variables have no initialiser | .shared .u32 x< = 1 -> >;
linking twice | declaration not understood | .<extern . -> >visible .global .u32 x;
""",
    ("long literal", "does not fit 64 bits", f".global .u64 x = {'9' * DEPTH};", ".global .u64 x = 9;"),
    ("depth", "not understood", f".global .u32 x[1] = {'{' * DEPTH}1{'}' * DEPTH};", ".global .u32 x[1] = {1};"),
    (
        "size beyond addresses",
        "more than a 64-bit address reaches",
        f".global .u32 x{'[65536]' * 5};",
        ".global .u32 x[65536];",
    ),
)
def test_variables(reason, broken, legal):
    check(f"{HEADER}{{}}\n{ENTRY}", reason, broken, legal)


@rows(
    r"""
0 threads | .reqntid 0: sizes must be 1 to | .reqntid <0 -> 1>
too many axes | .reqntid 1, 2, 3, 4 not understood | .reqntid 1, 2, 3<, 4 -> >
no number | .maxnreg not understood | .maxnreg< ->  32>
trailing comma | directives not understood|not understood | .reqntid 32<, -> >
leading comma | not understood | .reqntid <, -> >32
two numbers | not understood | .reqntid 32< -> ,> 32
too large | sizes must be 1 to 4294967295 | .maxntid <99999999999 -> 1024>
twice | .maxntid stands twice | .maxntid 1< .maxntid 1 -> >
exclusive sizes | .reqntid and .maxntid exclude each other | .<maxntid 64 . -> >reqntid 32
exclusive clusters | exclude each other | .<maxclusterrank 2 . -> >reqnctapercluster 2
cluster 0 | sizes must be 1 to | .reqnctapercluster 0 | .explicitcluster .reqnctapercluster 1
unknown | directive .nonsense 3 not understood | .<nonsense -> minnctapersm> 3
of functions | directive .noreturn not understood | .noreturn | .maxntid 1
"""
)
def test_directives(reason, broken, legal):
    check(f"{HEADER}.entry e() {{}}\n{{{{ ret; }}}}\n".replace("{{ ret; }}", "{ ret; }"), reason, broken, legal)


@rows(
    r"""
surplus } in a body | a brace above is surplus | <ret; } -> >
block never closed | unbalanced braces | { mov.u32 %r1, 0;< ->  }>
brace in an operand | a brace above is surplus | mov.b64 {%r1, %r2}<} -> >, %rd1;
no semicolon | operand|semicolon is missing | mov.u32 %r1, 0< -> ;>
only a semicolon | a statement is missing in front of the semicolon | ret;<; -> >
register count | %q<99999999999> declares 99999999999 registers | .reg .b32 %q<<99999999999 -> 9>>;
register type | directive not understood | .reg .<b7 -> b8> %q;
register's name | '5' is no name of a register | .reg .b32 <5 -> a5>;
register's percent sign | '%' is no name | .reg .b32 %< -> a>;
negative registers | no name of a register | .reg .b32 %q<<- -> >1>;
address of a function's variable | holds the address of x, which is no .global or .const variable and no function of
    the module | .global .u64 x; .global .u64 y = <x -> 1>;
extern in a body | .extern variables stand outside | .<extern .shared .b8 x[ -> shared .b8 x[1>];
targets without a label | .branchtargets without a label in front | < -> T: >.branchtargets E;
unknown branch target | branch target 'N' is no label | T: .branchtargets <N -> E>;
prototype | .callprototype hello not understood | T: .callprototype <hello -> _ ()>;
undefined label | 'N' is not declared | bra <N -> E>;
branch to a vector | branch target {} is not a label | bra <{} -> E>;
bracket | operand '\[%rd1' does not end in '\]' | ld.global.u32 %r1, [%rd1< -> ]>;
three parts | has 3 parts, d|p has two | setp.eq.u32 %p1|%p2<|%p3 -> >, %r1, 1;
no opcode | statement not understood | <%r1; -> >
capitals | statement not understood | <MOV.U32 -> mov.u32> %r1, 0;
""",
    ("nested braces", "operand", f"mov.b64 {'{' * DEPTH}%r1{'}' * DEPTH}, %rd1;", "mov.b64 {%r1, %r2}, %rd1;"),
    ("brackets", "operand", f"ld.global.u32 %r1, {'[' * DEPTH}%rd1{']' * DEPTH};", "ld.global.u32 %r1, [%rd1];"),
)
def test_statements(reason, broken, legal):
    """The error for braces that do not match may be on another line, since the wrong brace cannot be known."""
    check(f"{HEADER}.entry e() {{ {REGISTERS}\n{{}}\nE: ret; }}\n", reason, broken, legal, exact="brace" not in reason)


@rows(
    r"""
u32 | literal 4294967296 does not fit .u32 | mov.u32 %r1, <4294967296 -> 4294967295>;
negative u32 | literal -2147483649 does not fit .u32 | mov.u32 %r1, -<2147483649 -> 1>;
b16 | literal 65536 does not fit .b16 | mov.b16 %h1, <65536 -> 65535>;
s16 | does not fit .u16: -32768 to 65535 | add.s16 %h1, %h1, <70000 -> -32768>;
u64 | does not fit 64 bits | mov.u64 %rd1, <18446744073709551616 -> -9223372036854775808>;
logic | does not fit .b32 | and.b32 %r1, %r1, <0x1ffffffff -> 0xffffffff>;
shift | does not fit .u32 | shl.b64 %rd1, %rd1, <4294967296 -> 99>;
comparison | does not fit .u32 | setp.eq.u32 %p1, %r1, <4294967296 -> 1>;
selection | does not fit .b32 | selp.b32 %r1, <4294967296 -> 0f3F800000>, 0, %p1;
wide factor | does not fit .u32 | mul.wide.u32 %rd1, %r1, <4294967296 -> -5>;
stored byte | literal 256 does not fit .u8 | st.shared.u8 [%r1], <256 -> 255>;
stored element | does not fit .u32 | st.shared.v2.u32 [%r1], {1, <4294967296 -> 2>};
parts | does not fit .b32 | mov.b64 %rd1, {%r1, <4294967296 -> 1>};
converted | literal 256 does not fit .u8 | cvt.u32.u8 %r1, <256 -> 255>;
shuffle | does not fit .b32 | shfl.sync.idx.b32 %r1, %r1, <4294967296 -> 0>, 31, -1;
atomic | does not fit .u32 | atom.global.add.u32 %r1, [%rd1], <4294967296 -> 1>;
mbarrier's count | does not fit .u32 | mbarrier.init.shared.b64 [%r1], <4294967296 -> 1>;
offset | offset 2147483648 of an address does not fit 32 signed bits | ld.global.u32 %r1, [%rd1+< -> ->2147483648];
f32 | literal 1e.39 does not fit f32 | mov.f32 %r1, 1.<0e39 -> 0e38>;
f64 | does not fit f64 | mov.f64 %rd1, <1.0e400 -> 1e300>;
integer for a float | integer literal 1 for type .f32 | add.f32 %r1, %r1, 1< -> .0>;
integer for a stored float | for type .f32 | st.shared.f32 [%r1], 1< -> .5>;
float for an integer | floating-point value for type .u32 | add.u32 %r1, %r1, <0f3F800000 -> 1>;
float of another width | for type .b32 | mov.<b32 %r1 -> b64 %rd1>, 1.5;
bits of another width | for type .b64 | mov.<b64 -> f64> %rd1, 0f3F800000;
half | type .f16 has no literals | add.f16 %h1, %h1, <0x3C00 -> %h2>;
pair | type .f16x2 has no literals | add.f16x2 %r1, %r1, <0x3C003C00 -> %r2>;
octal digit | operand '08' not understood | mov.u32 %r1, <08 -> 010>;
binary digit | operand '0b2' not understood | mov.u32 %r1, <0b2 -> 0b1>;
short bits | operand '0f3F80000' not understood | mov.f32 %r1, <0f3F80000 -> 0f3F800000>;
underscore | operand '1_000' not understood | mov.u32 %r1, <1_000 -> 1000>;
"""
)
def test_literals(reason, broken, legal):
    check(f"{HEADER}.entry e() {{ {REGISTERS}\n{{}}\nret; }}\n", reason, broken, legal)


@rows(
    r"""
destination literal | a destination of add.u32 is no register | add.u32 <5 -> %r2>, %r1, %r1;
destination special | a destination of mov.u32 is no register | mov.u32 <%tid.x -> %r2>, %r1;
destination vector | a destination of mov.b64 is no register | mov.b64 {%r2, <1 -> %r1>}, %rd1;
wide destination | register %r2 has 32 bits, the operand's type .u64 64 | mul.wide.u32 <%r2 -> %rd2>, %r1, %r1;
shift count | register %rd1 has 64 bits, the operand's type .u32 32 | shl.b64 %rd3, %rd1, <%rd1 -> %r1>;
vote's predicate | %r1 is no predicate | vote.sync.any.pred %p1, <%r1 -> %p2>, -1;
branch to nothing | bra with 0 operands; it takes 1 | bra< ->  E>;
branch to a register | is not a label | bra <%r1 -> E>;
return of a value | ret with 1 operands; it takes 0 | ret< %r1 -> >;
sleep of no time | nanosleep.u32 with 0 operands; it takes 1 | nanosleep.u32< ->  %r1>;
no address | an address in brackets is expected, not %rd1 | ld.global.u32 %r1, <%rd1 -> [%rd1]>;
operands exchanged | address in brackets is expected, not %r1 | st.global.u32 <%r1, [%rd1] -> [%rd1], %r1>;
coordinates | without coordinates is expected|address | ld.global.u32 %r1, [%rd1<, {%r1} -> >];
predicate as an address | register %p1 has 1 bits, an address has 32 or 64 | ld.shared.u32 %r1, [%<p1 -> r2>];
narrow global address | register %r1 has 32 bits, a global or generic address 64 | ld.<global -> shared>.u32 %r1, [%r1];
literal address | address 16 is a literal | ld.global.u32 %r1, [< -> %rd1+>16];
parameter elsewhere | a is a .param variable, the access is to .global | ld.<global -> param>.u64 %rd1, [a];
sum of registers | address .* not understood | ld.global.u32 %r1, [%rd1+<%rd2 -> 4>];
minus | operand '%rd1-4' not understood|not understood | ld.global.u32 %r1, [%rd1< -> +>-4];
sink | _ stands among the elements of a vector only | ld.global.<u32 _ -> v2.u32 {%r1, _}>, [%rd1];
mixed widths | registers of 32 and 64 bits | ld.global.v2.u32 {%r1, %<rd2 -> r2>}, [%rd1];
destination | is no register|a register is expected | ld.shared.b32 <[%r1] -> %r1>, [%r2];
empty vector | two or four parts | mov.b64 {< -> %r1, %r2>}, %rd1;
three parts | two or four parts | mov.b64 {%<r1, %r2, %r3 -> h1, %h2, %h3, _>}, %rd1;
unequal parts | register %h1 has 16 bits | mov.b64 {%<h1 -> r1>, %r2}, %rd1;
predicate as a number | register %p1 has 1 bits | mov.<u32 %r1 -> pred %p2>, %p1;
number as a predicate | %r1 is no predicate | setp.eq.u32 %<r1 -> p1>, %r1, 1;
label as a number | of type .u32 is expected, not E | add.u32 %r1, <E -> %r2>, 1;
address as a number | not \[%r1\] | add.u32 %r1, <[%r1] -> %r1>, 1;
narrow source | register %r1 has 32 bits, the operand's type .u64 64 | cvt.u32.<u64 -> u16> %r1, %r1;
barrier | register %rd1 has 64 bits | bar.sync %<rd1 -> r1>;
barrier's address | not \[%r1\] | bar.sync <[%r1] -> 1>;
ballot | register %rd1 has 64 bits | vote.sync.ballot.b32 %<rd1 -> r1>, %p1, -1;
two sinks | one of two destinations must be a register | elect.sync _|<_ -> %p1>, -1;
mbarrier's state | register %r2 has 32 bits | mbarrier.arrive.shared.b64 %<r2 -> rd1>, [%r1];
prefetch | an address without coordinates is expected, not %rd1 | prefetch.global.L2 <%rd1 -> [%rd1]>;
prefetch of nothing | 0 operands; it takes 1 | prefetch.global.L2< ->  [%rd1]>;
fence with operands | 1 operands; it takes 0 | fence.acq_rel.gpu< 5 -> >;
look-up table | an integer literal is expected, not %r5 | lop3.b32 %r1, %r2, %r3, %r4, <%r5 -> 5>;
multicast mask | operands; it takes 2
    | tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.<multicast::cluster. -> >b64 [%r1];
brackets | not \[smem\] | mov.u32 %r1, <[smem] -> smem>;
brackets of a converted address | not \[smem\] | cvta.shared.u64 %rd1, <[smem] -> smem+4>;
no brackets | an address in brackets is expected, not smem.4 | ld.shared.u32 %r1, <smem+4 -> [smem+4]>;
global address in 32 bits | the address of word has 64 bits, more than .b32 | mov.<u32 %r1, word -> u64 %rd1, word+4>;
address as a float | of type .f32 is expected, not smem | mov.<f32 -> b32> %r1, smem;
another space | word is a .global variable, .shared is expected | cvta.<shared -> global>.u64 %rd1, word;
mapped global | word is a .global variable | mapa.shared::cluster.u32 %r1, <word -> smem>, 0;
offset of a register | only a variable's address can have an offset | mov.u32 %r1, <%r2 -> smem>+4;
generic address of 32 bits | register %r1 has 32 bits | cvta.shared.u64 %rd1, %<r1 -> rd2>;
""",
    (
        "vector to convert to",
        "is expected, not {}",
        "cvt.rn.f16x2.f32 [%r1], %r1, %r2;".replace("[%r1]", "{}"),
        "cvt.rn.f16x2.f32 %r1, %r1, %r2;",
    ),
)
def test_operands(reason, broken, legal):
    variables = ".shared .b8 smem[64]; .global .u32 word;"
    check(f"{HEADER}{variables} .entry e(.param .u64 a) {{ {REGISTERS}\n{{}}\nE: ret; }}\n", reason, broken, legal)


def test_literals_are_converted():
    """A 32-bit literal of an f64 operand is widened, and a sum takes numbers where it takes bits otherwise."""
    text = (
        f"{HEADER}.entry k(.param .u64 a) {{ {REGISTERS} ld.param.u64 %rd1, [a]; mov.u32 %r1, 1;"
        "mov.f64 %rd2, 0f3FC00000;"
        "slct.f32.s32 %r2, 2.5, 0f00000000, %r1; copysign.f32 %r3, -1.0, 3.0;"
        "st.global.f64 [%rd1], %rd2; st.global.f64 [%rd1+8], 0f40200000;"
        "st.global.f32 [%rd1+16], %r2; st.global.f32 [%rd1+20], %r3; ret; }"
    )
    out = nogpu.array(np.zeros(3))
    nogpu.load_ptx(text)["k"].launch(1, 1, [out])
    assert out[:2].tolist() == [1.5, 2.5] and out.view(np.float32)[4:].tolist() == [2.5, -3.0]


@pytest.mark.parametrize("broken", ["mov.u32 %r1, 4294967296;", "}", "bra %r1;", ".reg .b7 %q;"])
def test_the_error_names_line_and_text(broken):
    text = f"{HEADER}.entry e() {{ {REGISTERS}\n\n{broken}\nret; }}\n"
    with pytest.raises(EmulatorError) as error:
        load(text)
    lines = text.split("\n")
    named = lines[error.value.ptx_line - 1]
    assert (error.value.ptx_text or "") in re.sub(r"\s+", " ", named + " " + " ".join(lines[error.value.ptx_line :]))
