"""Use from Python: schedules and leniency of single launches, tensor maps, and the content of errors."""

import os
import pickle
import re
import subprocess
import sys
import tomllib

import ml_dtypes
import numpy as np
import pytest

import nogpu
from nogpu import errors
from nogpu.bootstrap.sitecustomize import EXTRAS
from nogpu.errors import EmulatorError, OrderingWarning
from nogpu.hardware.tma.encode import TiledMap
from tests.support.commands import ROOT, clean_environment
from tests.support.emulated import run

HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"
# Lane 0 stores 7 to shared memory, copies it to out, and overwrites it at once. A missing fence is broken order.
RACE = (
    HEADER
    + """.visible .entry {name}(.param .u64 out)
{{
    .reg .b64 %d; .reg .b32 %r<3>; .reg .pred %p;
    ld.param.u64 %d, [out]; mov.u32 %r0, smem; mov.u32 %r1, %tid.x; setp.ne.u32 %p, %r1, 0; @%p ret;
    st.shared.v4.b32 [%r0], {{7, 7, 7, 7}}; {fence}
    cp.async.bulk.global.shared::cta.bulk_group [%d], [%r0], 16; cp.async.bulk.commit_group;
    st.shared.v4.b32 [%r0], {{8, 8, 8, 8}}; {fence}
    cp.async.bulk.wait_group 0; ret;
}}
"""
)
FENCE = "fence.proxy.async;"


def kernel(fence=FENCE, name="k", **options):
    return nogpu.load_ptx(RACE.format(fence=fence, name=name), **options)[name]


def test_schedules_of_a_launch_and_of_a_module():
    out = nogpu.array(np.zeros(4, np.uint32))
    for schedule, value in (("eager", 7), ("late", 8)):
        kernel().launch(1, 32, [out], shared=1024, schedule=schedule)
        assert out.tolist() == [value] * 4
        kernel(schedule=schedule).launch(1, 32, [out], shared=1024)
        assert out.tolist() == [value] * 4
    kernel(schedule="eager").launch(1, 32, [out], shared=1024, schedule="late")
    assert out.tolist() == [8] * 4
    with pytest.raises(EmulatorError, match="schedules disagree"):
        kernel().launch(1, 32, [out], shared=1024, schedule="late,eager")


@pytest.mark.parametrize("lenient,place", [(True, "launch"), (True, "module"), (None, "launch"), (False, "launch")])
def test_lenient_launches(monkeypatch, lenient, place):
    """A missing fence is a warning in a lenient launch only; the next launch is not concerned."""
    monkeypatch.setattr(errors, "_reported", set())
    out = nogpu.array(np.zeros(4, np.uint32))
    of_launch, of_module = ({"lenient": lenient}, {}) if place == "launch" else ({}, {"lenient": lenient})
    subject = kernel("", **of_module)
    if lenient:
        with pytest.warns(OrderingWarning, match="fence.proxy.async is missing"):
            subject.launch(1, 32, [out], shared=1024, schedule="eager", **of_launch)
        assert out.tolist() == [7] * 4
        with pytest.raises(EmulatorError, match="fence.proxy.async is missing"):
            subject.launch(1, 32, [out], shared=1024, lenient=False)
    else:
        with pytest.raises(EmulatorError, match="fence.proxy.async is missing"):
            subject.launch(1, 32, [out], shared=1024, **of_launch)


def test_doubts_are_errors_where_a_launch_is_not_lenient(monkeypatch):
    monkeypatch.setattr(errors, "_reported", set())
    out = nogpu.array(np.zeros(4, np.uint32))
    text = RACE.format(fence=FENCE, name="k").replace("cp.async.bulk.wait_group 0;", "")
    subject = nogpu.load_ptx(text)["k"]
    with pytest.warns(OrderingWarning, match="which has exited"):
        subject.launch(1, 32, [out], shared=1024)
    with pytest.raises(EmulatorError, match="which has exited"):
        subject.launch(1, 32, [out], shared=1024, lenient=False)


@pytest.mark.parametrize(
    "options,reason",
    [
        ({"schedule": "sometimes"}, "'sometimes' is no schedule"),
        ({"schedule": 5}, "schedule 5: a text"),
        ({"lenient": "yes"}, "lenient 'yes': True or False is expected"),
    ],
)
def test_options_that_are_not_legal(options, reason):
    with pytest.raises(EmulatorError, match=reason):
        kernel(**options)
    with pytest.raises(EmulatorError, match=f"launch refused: .*{reason}"):
        kernel().launch(1, 32, [nogpu.array(np.zeros(4, np.uint32))], **options)


@pytest.mark.parametrize("lenient,code", [(True, "1"), (False, "0"), (None, "None")])
def test_activation(lenient, code):
    program = f"import nogpu, os; nogpu.activate(lenient={lenient}); print(os.environ.get('NOGPU_LENIENT'))"
    done = alone(program)
    assert done.stdout.strip() == code, done.stderr


def alone(program):
    """The end of a process that is not on the device."""
    environment = clean_environment(PYTHONPATH=f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'cuda' / 'programs'}")
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, timeout=300)


LATE = """
import numpy, torch
on_the_host = torch.ones(3)
{imports}
import nogpu
nogpu.activate()
import {checks}
from tests.support.emulated import checks
for name in checks("{checks}.py"):
    getattr({checks}, name)()
assert on_the_host.sum() == 3
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("imports", "checks"),
    [
        ("from torch.utils import dlpack", "torch_checks"),
        ("from torch import autograd", "torch_gradient_checks"),
        ("import triton.language", "triton_checks"),
    ],
)
def test_activation_behind_imports(imports, checks):
    if "triton" in imports:
        pytest.importorskip("triton")
    done = alone(LATE.format(imports=imports, checks=checks))
    assert done.returncode == 0, done.stderr


USED = "import sys, types; cuda = types.SimpleNamespace(is_initialized=lambda: True)"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import sys; sys.modules['cutlass'] = sys", "the import of cutlass, which has read the environment"),
        (f"{USED}; sys.modules['torch'] = types.SimpleNamespace(cuda=cuda)", "torch has begun to use a GPU"),
        ("import nogpu; nogpu.counters()", "the first use of the emulated device"),
    ],
)
def test_activation_that_comes_too_late(program, reason):
    done = alone(f"{program}; import nogpu; nogpu.activate()")
    assert done.stderr.endswith(f"nogpu.errors.EmulatorError: nogpu.activate() comes after {reason}; call it before\n")


def test_a_launch_is_recorded_where_the_device_was_imported_first(tmp_path):
    launch = 'nogpu.load_ptx(PTX)["k"].launch(1, 32)'
    text = ".version 8.8 .target sm_100a .address_size 64 .visible .entry k() { ret; }"
    done = alone(
        f"import numpy, nogpu.execution.device, nogpu; PTX = {text!r}; traces = []; "
        f"nogpu.activate(record=traces.append); {launch}; print(len(traces))"
    )
    assert done.stdout == "1\n", done.stderr


def test_an_error_names_its_schedule_and_those_that_end():
    """The copy reads 7s under eager, so that the kernel ends, and 8s under late, so that it traps."""
    text = RACE.format(fence=FENCE, name="k").replace(
        "wait_group 0; ret;", "wait_group 0; ld.global.b32 %r2, [%d]; setp.eq.u32 %p, %r2, 8; @%p trap; ret;"
    )
    subject, out = nogpu.load_ptx(text)["k"], nogpu.array(np.zeros(4, np.uint32))
    with pytest.raises(EmulatorError) as error:
        subject.launch(1, 32, [out], shared=1024, schedule="eager,late")
    assert (error.value.schedule, error.value.passed) == ("late", ("eager",))
    assert str(error.value).endswith("  schedule late; it does not happen under eager: the order of events decides")
    again = pickle.loads(pickle.dumps(error.value))
    assert str(again) == str(error.value)
    with pytest.raises(EmulatorError) as error:
        subject.launch(1, 32, [out], shared=1024, schedule="late")
    assert error.value.passed == () and str(error.value).endswith("\n  schedule late")


def test_names_are_demangled_and_cut():
    name = "_ZN7cutlass6KernelINS_4gemm4TileILi128EEEEEvNT_6ParamsE"
    with pytest.raises(EmulatorError) as error:
        kernel("", name=name).launch(1, 32, [nogpu.array(np.zeros(4, np.uint32))], shared=1024)
    assert error.value.kernel == name
    if errors._cxx_library() is None:
        pytest.skip("no libstdc++.so.6")
    shown = "void cutlass::Kernel<cutlass::gemm::Tile<128> >(cutlass::gemm::Tile<128>::Params)"
    assert f"  kernel   {shown}\n" in str(error.value)
    assert errors.readable("_Znothing") == "_Znothing"
    long = errors.readable("k" * 500)
    assert len(long) == errors.NAME_LIMIT and long.endswith("k...")


@pytest.mark.parametrize(
    "dtype,number",
    [(np.uint8, 0), (np.int8, 0), (np.int32, 3), (np.float16, 6), (np.float32, 7), (ml_dtypes.bfloat16, 9)],
)
def test_tensor_maps_of_arrays(dtype, number):
    array = nogpu.array(np.zeros((4, 6, 64), dtype))
    size, address = array.itemsize, array.ctypes.data
    shape = (64, 6, 4), (64 * size, 384 * size), (16, 2, 1), (1, 1, 1)
    assert nogpu.tensor_map(array, (16, 2, 1)) == TiledMap(number, address, *shape).encode()
    swizzled = nogpu.tensor_map(array, (16, 2, 1), swizzle="64B", l2_promotion="128B")
    assert swizzled == TiledMap(number, address, *shape, 0, 2, 2, 0).encode()


def test_tensor_maps_that_are_given_in_full():
    packed = nogpu.array(np.zeros((32, 128), np.uint8))
    found = nogpu.tensor_map(
        packed,
        (256, 16),
        element="16u4_align8b",
        dims=(256, 32),
        strides=(128,),
        swizzle="128B_atom_32B",
        element_strides=(1, 2),
        l2_promotion="256B",
    )
    assert found == TiledMap(13, packed.ctypes.data, (256, 32), (128,), (256, 16), (1, 2), 0, 4, 3, 0).encode()
    assert nogpu.tensor_map(packed.ctypes.data, (64,), element="float16", dims=(64,), strides=(), fill="nan") == (
        TiledMap(6, packed.ctypes.data, (64,), (), (64,), (1,), 0, 0, 0, 1).encode()
    )


@pytest.mark.parametrize(
    "change,reason",
    [
        ({"element": "float12"}, "element 'float12': one of uint8, uint16"),
        *(({"swizzle": "96B"}, "swizzle '96B': one of none, 32B"), ({"box": (16,)}, "2 dims, 1 strides, a box of 1")),
        ({"box": (300, 1)}, "tensor map box 300 of dimension 0; limit 1 to 256"),
        *(({"box": (1.5, 1)}, "integers are expected"), ({"dims": (64, 0)}, "tensor map size 0 of dimension 1")),
        ({"array": 4096}, "an address says no type"),
        ({"array": np.zeros((64, 64), np.float32)[:, ::2]}, "last dimension has a stride of 8 bytes"),
        *(({"array": np.zeros((4, 4), object)}, "holds Python objects"), ({"array": [1, 2]}, "tensor map refused")),
    ],
)
def test_tensor_maps_that_are_refused(change, reason):
    array = np.zeros((64, 64), np.float32)
    nogpu.tensor_map(array, (16, 1))
    given = {"array": array, "box": (16, 1)} | change
    with pytest.raises(EmulatorError, match=reason):
        nogpu.tensor_map(**given)


def test_a_tensor_map_is_a_kernels_argument():
    text = (
        HEADER
        + """.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out)
{
    .reg .b64 %d<3>; .reg .b32 %r<8>; .reg .pred %p<2>;
    mov.u64 %d0, map; ld.param.u64 %d1, [out]; mov.u32 %r0, smem; mov.u32 %r1, %tid.x; setp.ne.u32 %p0, %r1, 0;
    mov.u32 %r2, 16; mov.u32 %r3, 1;
    @%p0 bra READY; mbarrier.init.shared.b64 [%r0+512], 1; fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r0+512], 128;
    cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r0], [%d0, {%r2, %r3}], [%r0+512];
    READY: bar.sync 0; W: mbarrier.try_wait.parity.shared.b64 %p1, [%r0+512], 0; @!%p1 bra W;
    mad.lo.u32 %r4, %r1, 4, %r0; ld.shared.b32 %r5, [%r4]; mad.wide.u32 %d2, %r1, 4, %d1; st.global.b32 [%d2], %r5; ret;
}
"""
    )
    matrix = nogpu.array(np.arange(256, dtype=np.float32).reshape(8, 32))
    out = nogpu.array(np.zeros((2, 16), np.float32))
    nogpu.load_ptx(text)["k"].launch(1, 32, [nogpu.tensor_map(matrix, (16, 2)), out], shared=1024)
    assert np.array_equal(out, matrix[1:3, 16:])


def test_some_names_of_many():
    text = HEADER + "".join(f".visible .entry k{i}() {{ ret; }}\n" for i in range(9))
    with pytest.raises(KeyError, match="no kernel 'x'; it has k0, k1, k2, k3, k4 and 4 more"):
        nogpu.load_ptx(text)["x"]


def test_extras_are_named_where_a_package_is_missing():
    """The extras that `EXTRAS` and the messages name are those of pyproject.toml."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = [path.read_text() for path in (ROOT / "src").rglob("*.py")]
    named = {extra for text in sources for extra in re.findall(r"pip install 'nogpu\[(\w+)\]'", text)}
    assert named >= {"cuda", "pictures"} and named | set(EXTRAS.values()) <= set(extras)
    for package, extra in {**EXTRAS, "cuda.bindings": "hopper"}.items():
        code = f"raise ModuleNotFoundError('no {package}', name='{package}')"
        result = run("-c", code)
        assert result.returncode == 3 and result.stderr.endswith(f"pip install 'nogpu[{extra}]'\n"), result.stderr
    code = "import sys; sys.modules['triton'] = sys; raise ModuleNotFoundError('no triton.ops', name='triton.ops')"
    result = run("-c", code)
    assert result.returncode == 1 and "pip install" not in result.stderr, "a module that this version of it lacks"
