"""Launches that kernels make, in PTX; tests/cuda/programs/device_launches.cu has the functions of CUDA C++."""

import numpy as np
import pytest

import nogpu
from nogpu.errors import EmulatorError

HEAD = """
.version 8.8
.target sm_100a
.address_size 64
.extern .func (.param .b64 r) __cudaCDP2GetParameterBufferV2(
    .param .b64 f, .param .align 4 .b8 g[12], .param .align 4 .b8 b[12], .param .b32 s);
.extern .func (.param .b32 r) __cudaCDP2LaunchDeviceV2(.param .b64 p, .param .b64 q);
.extern .func (.param .b32 r) __cudaCDP2FuncGetAttributes(.param .b64 a, .param .b64 f);
.visible .entry child(.param .u64 out, .param .u32 value)
{
    .reg .b32 %r<3>; .reg .b64 %rd<3>;
    ld.param.b64 %rd1, [out]; ld.param.b32 %r1, [value]; mov.u32 %r2, %ctaid.x;
    mad.wide.u32 %rd1, %r2, 4, %rd1; st.global.b32 [%rd1], %r1; ret;
}
"""
PARENT = """
.visible .entry parent(.param .u64 out)
{{
    .reg .b32 %r<3>; .reg .b64 %rd<5>;
    ld.param.b64 %rd1, [out];
    {{ .param .b64 f; .param .align 4 .b8 g[12]; .param .align 4 .b8 b[12]; .param .b32 s; .param .b64 r;
      mov.b64 %rd2, {kernel}; st.param.b64 [f], %rd2; st.param.b32 [s], 0;
      st.param.b32 [g], {ctas}; st.param.b32 [g+4], 1; st.param.b32 [g+8], 1;
      st.param.b32 [b], 1; st.param.b32 [b+4], 1; st.param.b32 [b+8], 1;
      call.uni (r), __cudaCDP2GetParameterBufferV2, (f, g, b, s); ld.param.b64 %rd3, [r]; }}
    st.b64 [%rd3], %rd1; st.b32 [%rd3+8], 9;
    {{ .param .b64 p; .param .b64 q; .param .b32 r; st.param.b64 [p], %rd3; st.param.b64 [q], 0;
      call.uni (r), {function}; }}
    ret;
}}
"""
LAUNCH = "__cudaCDP2LaunchDeviceV2, (p, q)"


def launch(kernel="child", ctas=3, function=LAUNCH, head=HEAD, schedule=None):
    out = nogpu.array(np.zeros(8, np.uint32))
    text = head + PARENT.format(kernel=kernel, ctas=ctas, function=function)
    nogpu.load_ptx(text, schedule)["parent"].launch(1, 1, [out])
    return out.tolist()


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1", "late,random:2"])
def test_a_kernel_launches_another(schedule):
    assert launch(schedule=schedule) == [9, 9, 9, 0, 0, 0, 0, 0]


def test_the_name_of_a_file_may_be_that_of_a_kernel():
    """A module that declares the device runtime's functions needs no kernels, either."""
    text = HEAD + PARENT.format(kernel="child", ctas=1, function=LAUNCH).replace("ld.param", ".loc 1 7 0\nld.param", 1)
    parsed = nogpu.load_ptx(text + '.file 1 "/home/me/child.cu"\n').parsed
    sources = [each.source for each in parsed.entries["parent"].instructions]
    assert any("/home/me/child.cu:7" in str(source) for source in sources)
    assert not list(nogpu.load_ptx(HEAD.partition(".visible")[0]))


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"kernel": "64"}, "a kernel launches 0x40, which is no kernel of its module"),
        (
            {"kernel": "elsewhere", "head": HEAD + ".extern .entry elsewhere(.param .u64 p);"},
            "is no kernel of its module",
        ),
        ({"ctas": 0}, "grid"),
        (
            {"function": "__cudaCDP2FuncGetAttributes, (p, q)"},
            "cudaFuncGetAttributes is .* device runtime .* not modelled",
        ),
        (
            {"head": HEAD.replace(".extern .func", "//").replace("\n    .param .b64 f", " // ")},
            "kernel child, in a module",
        ),
    ],
)
def test_launches_that_are_refused(options, reason):
    with pytest.raises(EmulatorError, match=reason):
        launch(**options)
