"""Texts of modules as one: what modules share, what each has for itself, and what two may not define."""

import numpy as np
import pytest

from nogpu import load_ptx
from nogpu.errors import EmulatorError
from nogpu.ptx.joining import joined
from nogpu.ptx.module import parse

HEADER = ".version {}\n.target {}\n.address_size 64\n"


def module(content, version="8.7", target="sm_100a"):
    return HEADER.format(version, target) + content


def function(linking, name, value):
    return f"""{linking} .func (.param .b32 result) {name}(.param .b32 x)
    {{ .reg .b32 %r<2>; ld.param.b32 %r1, [x]; add.u32 %r1, %r1, {value}; st.param.b32 [result], %r1; ret; }}"""


def entry(name, called, offset):
    """A kernel that stores called(5) at byte `offset` of out."""
    return f""".visible .entry {name}(.param .u64 out) {{
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    {{ .param .b32 p; .param .b32 q; st.param.b32 [p], 5; call.uni (q), {called}, (p); ld.param.b32 %r1, [q]; }}
    st.global.u32 [%rd1+{offset}], %r1;
    ret; }}"""


EXTERN = ".extern .func (.param .b32 result) {}(.param .b32 x);"


def outputs(text, *kernels):
    out = np.zeros(4, np.uint32)
    loaded = load_ptx(text)
    for name in kernels:
        loaded[name].launch((1, 1, 1), (1, 1, 1), [out])
    return out.tolist()


def test_a_function_of_another_module_is_called():
    text = joined([module(EXTERN.format("f") + entry("k", "f", 0)), module(function(".visible", "f", 7))])
    assert outputs(text, "k") == [12, 0, 0, 0]


def test_functions_of_one_name_without_a_linking_directive_stay_apart():
    first = module(function("", "f", 1) + entry("k", "f", 0))
    second = module(function("", "f", 2) + entry("m", "f", 4))
    third = module(function(".visible", "f", 3) + entry("n", "f", 8))
    assert outputs(joined([first, second, third]), "k", "m", "n") == [6, 7, 8, 0]


def test_one_weak_function_is_kept_unless_another_is_visible():
    weak = [module(function(".weak", "f", n) + entry(f"k{n}", "f", 4 * n)) for n in range(3)]
    assert outputs(joined(weak), "k0", "k1", "k2") == [5, 5, 5, 0]
    visible = module(function(".visible", "f", 9) + entry("k3", "f", 12))
    assert outputs(joined([*weak, visible]), "k0", "k2", "k3") == [14, 0, 14, 14]


def test_two_visible_functions_are_refused():
    with pytest.raises(EmulatorError, match="two modules define f: only .weak definitions may stand in several"):
        joined([module(function(".visible", "f", 1)), module(function(".visible", "f", 1))])


def test_variables_of_another_module():
    declared = module(
        ".extern .global .align 4 .u32 x; .extern .const .align 4 .b8 y[8]; .global .align 4 .u32 own = 1;"
    )
    defined = module(
        ".visible .global .align 4 .u32 x = 3; .visible .const .align 4 .b8 y[8] = {1};"
        ".global .align 8 .u64 own[2] = {x, generic(x)};"
    )
    for texts in ([declared, defined], [defined, declared]):
        variables = parse(joined(texts)).scope.variables
        assert not variables["x"].extern and variables["x"].initial == bytes([3, 0, 0, 0]) and not variables["y"].extern
        assert sorted(v.size for name, v in variables.items() if name.startswith("own$")) == [4, 16]


def test_dynamic_shared_memory_has_the_strictest_alignment():
    texts = [module(f".extern .shared .align {align} .b8 memory[];") for align in (4, 128, 16)]
    assert parse(joined(texts)).scope.variables["memory"].align == 128


def test_source_lines_name_each_module_s_own_files():
    def with_lines(name, file):
        lines = f'.file 1 "{file}"\n.file 2 "header.h"\n'
        return module(lines + f".visible .entry {name}() {{ .loc 1 3 0\n ret; .loc 2 4 0\n trap; }}")

    entries = parse(joined([with_lines("k", "a.cu"), with_lines("m", "b.cu")])).entries
    assert "a.cu:3" in str(entries["k"].instructions[0].source) and "b.cu:3" in str(entries["m"].instructions[0].source)
    assert "header.h:4" in str(entries["m"].instructions[1].source)


def test_the_newest_version_and_the_own_architecture_hold():
    made = parse(joined([module("", "8.7", "sm_90"), module("", "8.6", "sm_100a")]))
    assert (made.version, made.target) == ("8.7", "sm_100a")


def test_one_module_stays_as_it_is():
    text = module("// a comment\n" + entry("k", "f", 0))
    assert joined([text]) is text


def test_a_function_that_no_module_defines_is_missing_where_it_is_called():
    text = joined([module(EXTERN.format("f") + entry("k", "f", 0)), module(function(".visible", "g", 1))])
    with pytest.raises(EmulatorError, match="f"):
        outputs(text, "k")


def test_strings_are_not_renamed():
    first = module('.file 1 "f"\n' + function("", "f", 1) + "\n.visible .entry k() { .loc 1 9 0\n ret; }")
    made = parse(joined([first, module(function("", "f", 2))]))
    assert "f:9" in str(made.entries["k"].instructions[0].source) and set(made.scope.functions) == {
        "f$module0",
        "f$module1",
    }
