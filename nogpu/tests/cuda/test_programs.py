"""CUDA C++ host programs: the runtime's calls, inside of this process; programs, in processes of their own."""

import ctypes
import hashlib
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from nogpu import store, toolchain
from nogpu.cuda.programs import connection, properties, status, toolkit
from nogpu.cuda.programs.entries import ENTRIES
from nogpu.errors import EmulatorError
from tests.support.commands import ROOT
from tests.support.emulated import copy_libraries, run
from tests.support.nvcc import needs_nvcc, needs_nvcc_for_rubin

SOURCES = ROOT / "tests" / "cuda" / "programs"
RUNTIME = toolchain.HERE / "cuda" / "programs" / "runtime"

CHECKS = (
    *("vector_add", "symbols", "queues", "dynamic_shared", "clusters", "cooperative", "grid_barrier", "occupancy"),
    *("device", "memory", "events", "illegal_address", "driver_entry_points", "modules_by_driver"),
    *("graph_by_nodes", "graph_by_driver", "graph_by_capture", "device_heap", "libraries_by_runtime"),
    *("pools", "linked_by_driver", "queries_by_driver", "memory_of_graphs"),
    *("bytes_of_graphs", "conditional_nodes", "capture_with_added_nodes"),
)


SHARING = ("-gencode", "arch=compute_100a,code=compute_100a", "-lcuda")
LIBRARY = ("-shared", "-Xcompiler", "-fPIC", "-lcuda", "-arch=sm_100a")  # nvcc's options


def compiled(source, *options, compiler=None):
    """A file of SOURCES, compiled by our nvcc or another; the user's cache has it by source, options and compiler."""
    compiler = compiler or toolkit.home() / "bin" / "nvcc"
    text = (SOURCES / source).read_text()
    key = hashlib.sha256(repr((text, options, compiler, toolkit.version())).encode()).hexdigest()[:16]
    folder = store.root() / "tests"
    folder.mkdir(exist_ok=True)
    made = folder / f"{Path(source).stem}-{key}"
    if not made.exists():
        scratch = folder / f"{made.name}-{os.getpid()}"
        command = [compiler, "-std=c++17", *options, "-o", scratch, SOURCES / source]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        os.replace(scratch, made)
    return made


@pytest.fixture(scope="module")
def checks():
    connection.connect()
    return ctypes.CDLL(str(compiled("runtime.cu", *LIBRARY)))


@needs_nvcc
def test_every_check_is_called():
    assert (SOURCES / "runtime.cu").read_text().count('extern "C" int') == len(CHECKS)


@needs_nvcc
@pytest.mark.parametrize("name", CHECKS)
def test_the_runtime(checks, name, capfd):
    try:
        assert getattr(checks, name)() == 0, f"the line of runtime.cu that failed; output: {capfd.readouterr()}"
    finally:
        status.reset()


@needs_nvcc
def test_a_failed_kernel_is_printed_with_its_place(checks, capfd):
    checks.illegal_address()
    printed = capfd.readouterr().err
    assert "store of 4 bytes" in printed and "past the end of cuMemAlloc(4)" in printed and "PTX      line" in printed


@needs_nvcc
def test_a_call_from_python_raises_the_kernels_error(checks, capfd):
    with pytest.raises(EmulatorError, match="past the end of") as error:
        status.raising(checks.illegal_address)()
    assert error.value.ptx_line and not capfd.readouterr().err
    assert status.raising(checks.vector_add)() == 0


@needs_nvcc
def test_a_source_file():
    done = run(SOURCES / "tiles.cu")
    assert (done.returncode, done.stdout[:7], done.stderr) == (0, "right, ", "")


@needs_nvcc
def test_a_program_without_kernels(tmp_path):
    source = tmp_path / "query.cpp"
    source.write_text(
        "#include <cuda_runtime.h>\n#include <stdio.h>\n"
        'int main() { cudaDeviceProp p; cudaGetDeviceProperties(&p, 0); printf("%d SMs\\n", p.multiProcessorCount); }\n'
    )
    done = run(compiled(source))
    assert (done.returncode, done.stdout, done.stderr) == (0, "148 SMs\n", "")


@needs_nvcc
def test_a_program_with_the_static_runtime():
    """The program has the form that NVIDIA's nvcc makes: machine code beside compressed PTX."""
    codes = ("-gencode", "arch=compute_100a,code=[sm_100a,compute_100a]")
    made = compiled("tiles.cu", *codes, compiler=toolkit.nvcc())
    done = run(made, options=["--schedule", "eager"])
    assert (done.returncode, done.stdout[:7], done.stderr) == (0, "right, ", "")
    done = run(made, "wrong")
    assert done.returncode == 1 and "an illegal memory access was encountered" in done.stdout
    assert "past the end of cuMemAlloc(1536)" in done.stderr and "PTX      line" in done.stderr


@needs_nvcc_for_rubin
@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
def test_a_program_for_rubin(schedule):
    done = run(SOURCES / "rubin.cu", options=["--device", "rubin", "--schedule", schedule])
    expected = "10.7, 334848 bytes of shared memory, PTX 107\nright\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


@needs_nvcc_for_rubin
def test_an_executable_for_rubin():
    """The program has the form that NVIDIA's nvcc makes, without machine code."""
    codes = ("-gencode", "arch=compute_107a,code=compute_107a")
    made = compiled("rubin.cu", *codes, compiler=toolkit.nvcc())
    assert run(made, options=["--device", "rubin"]).stdout.endswith("right\n")
    done = run(made)
    assert done.returncode and "holds PTX for sm_107a, and the device runs PTX up to sm_100a" in done.stderr


@needs_nvcc
@pytest.mark.slow
def test_a_program_in_modelled_time():
    """The launches of a stand-alone executable are recorded in its own process and replayed at its end."""
    made = compiled("tiles.cu")
    done = run(made, options=["time"])
    assert (done.returncode, done.stdout) == (0, run(made).stdout), done.stderr
    title, _, *launches, total, used = [line for line in done.stderr.splitlines() if "waits for" not in line]
    assert title.startswith("clock: modelled on b200, error")
    assert launches and all("transpose" in line and float(line.split()[-1]) > 0 for line in launches)
    assert total.endswith(" modelled us") and "DRAM" in used


@needs_nvcc
@pytest.mark.parametrize("way", ["one command", "objects", "archive", "device link"])
def test_relocatable_device_code(way, tmp_path):
    def nvcc(*arguments):
        command = [toolkit.home() / "bin" / "nvcc", "-std=c++17", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    sources = [SOURCES / "relocatable.cu", SOURCES / "relocatable_parts.cu"]
    if way == "one command":
        nvcc("-rdc=true", *sources, "-o", "program")
    else:
        nvcc("-dc", *sources)
    if way == "objects":
        nvcc("relocatable.o", "relocatable_parts.o", "-o", "program")
    elif way == "archive":
        nvcc("-lib", "relocatable_parts.o", "-o", "libparts.a")
        nvcc("relocatable.o", "libparts.a", "-o", "program")
    elif way == "device link":
        nvcc("-dlink", "relocatable.o", "relocatable_parts.o", "-o", "linked.o")
        objects, libraries = ["relocatable.o", "relocatable_parts.o", "linked.o"], toolkit.home() / "lib64" / "program"
        subprocess.run(
            ["c++", *objects, f"-L{libraries}", "-lcudadevrt", "-lcudart", "-o", "program"], check=True, cwd=tmp_path
        )
    done = run(tmp_path / "program")
    assert (done.returncode, done.stdout) == (0, "no error\n"), done.stderr


@needs_nvcc
@pytest.mark.parametrize("schedule", ["late", "random:1", "late,random:1,random:2"])
def test_kernels_that_launch_kernels(schedule):
    """The file needs -rdc=true, which `nogpu run` finds out. With several schedules, records of launches may differ."""
    done = run(SOURCES / "device_launches.cu", options=["run", "--schedule", schedule])
    assert (done.returncode, done.stdout) == (0, "no error\n"), done.stderr


@needs_nvcc
def test_a_library_by_ctypes():
    """The library's first call connects it to the Python that has loaded it."""
    call = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).symbols())"
    done = run("-c", call, compiled("runtime.cu", *LIBRARY))
    assert (done.returncode, done.stdout) == (0, "")


@needs_nvcc
def test_programs_that_cannot_run_say_why(tmp_path):
    made = compiled("tiles.cu", "-gencode", "arch=compute_100a,code=sm_100a", compiler=toolkit.nvcc())
    assert "holds machine code for sm_100, and the device runs PTX" in run(made).stderr
    stripped = shutil.copy(made, tmp_path / "stripped")
    subprocess.run(["strip", stripped], check=True)
    assert "compile it with -cudart shared, or do not strip it" in run(stripped).stderr
    wrong = tmp_path / "wrong.cu"
    wrong.write_text("int main() { return undeclared; }\n")
    assert 'identifier "undeclared" is undefined' in run(wrong).stderr


def test_a_missing_compiler_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(toolkit.importlib.util, "find_spec", lambda name: None)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmulatorError, match=r"pip install 'nogpu\[cuda\]'"):
        toolkit.nvcc.__wrapped__()


def test_every_entry_point_has_a_function():
    declared = {name for _, name in re.findall(r"ENTRY\((\d+), (\w+)\)", (RUNTIME / "entries.h").read_text())}
    connection.connect()
    import torch  # noqa: F401  # with it comes the entry point for its tensors

    assert declared == set(ENTRIES)


@needs_nvcc
@pytest.mark.parametrize("schedule", ["late", "random:1"])
def test_memory_and_events_of_two_processes(schedule, tmp_path):
    done = run("--schedule", schedule, compiled("sharing.cu", *SHARING), "share", tmp_path / "handles")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    for reason in ("the handle is of no memory", "this process itself has exported", "shares it no longer"):
        assert reason in done.stderr


@needs_nvcc
def test_virtual_memory():
    done = run(compiled("sharing.cu", *SHARING), "map")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert re.search(r"load of 4 bytes at 0x[0-9a-f]+00000: no live allocation: the address is reserved", done.stderr)
    assert re.search(r"store of 4 bytes at 0x[0-9a-f]+: cuMemMap\(2097152\).* is read-only", done.stderr)


@needs_nvcc
def test_structures_are_as_nvidia_declares_them(tmp_path):
    from nogpu.cuda.programs import arrays, graphs, kernels, launches, memory, textures, virtual_memory

    structures = {
        "cudaDeviceProp": (properties.CudaDeviceProp, None),
        "cudaFuncAttributes": (kernels.Attributes, ("numRegs", "maxDynamicSharedSizeBytes", "requiredClusterWidth")),
        "cudaPointerAttributes": (memory.PointerAttributes, ("device", "devicePointer", "hostPointer")),
        "cudaLaunchConfig_t": (launches.Config, ("dynamicSmemBytes", "attrs", "numAttrs")),
        "CUlaunchConfig": (launches.DriverConfig, ("sharedMemBytes", "attrs", "numAttrs")),
        "cudaLaunchAttribute": (launches.Attribute, ("val",)),
        "cudaKernelNodeParams": (graphs.KernelParameters, ("gridDim", "kernelParams", "extra")),
        "cudaMemAllocNodeParams": (graphs.AllocationParameters, ("accessDescs", "bytesize", "dptr")),
        "cudaConditionalNodeParams": (graphs.ConditionalParameters, ("type", "size", "phGraph_out")),
        "CUmemAllocationProp": (virtual_memory.Properties, ("location",)),
        "CUmemAccessDesc": (virtual_memory.Access, ("location", "flags")),
        "cudaMemsetParams": (graphs.FillParameters, ("pitch", "value", "elementSize", "width", "height")),
        "cudaMemcpy3DParms": (arrays.CopyParameters, ("srcPtr", "dstArray", "dstPtr", "extent", "kind")),
        "cudaPitchedPtr": (arrays.Pitched, ("pitch", "xsize", "ysize")),
        "cudaChannelFormatDesc": (arrays.Channels, ("f",)),
        "cudaResourceDesc": (textures.Resource, ("res", "flags")),
        "cudaTextureDesc": (textures.Description, ("filterMode", "readMode", "borderColor", "normalizedCoords")),
    }
    ours = {
        "numRegs": "registers",
        "maxDynamicSharedSizeBytes": "max_dynamic_shared",
        "requiredClusterWidth": "cluster",
        **{"devicePointer": "device_pointer", "hostPointer": "host_pointer", "val": "words"},
        **{"dynamicSmemBytes": "shared", "sharedMemBytes": "shared", "attrs": "attributes", "numAttrs": "count"},
        **{"accessDescs": "access", "bytesize": "nbytes", "dptr": "address"},
        **{"gridDim": "grid", "kernelParams": "parameters", "elementSize": "size"},
        **{"type": "kind", "phGraph_out": "graphs"},
        **{"xsize": "width", "ysize": "height", "f": "kind", "res": "place", "filterMode": "is_filtered"},
        **{"readMode": "is_fraction", "borderColor": "border", "normalizedCoords": "is_normalized"},
        **{"srcPtr": "source", "dstArray": "target_array", "dstPtr": "target"},
    }
    lines, expected = [], []
    for name, (structure, fields) in structures.items():
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        # Padding at the end may differ: only arrays of attributes need the size.
        expected.append(ctypes.sizeof(structure))
        for field in fields or [field for field, _ in structure._fields_]:
            lines.append(f'printf("%zu\\n", offsetof({name}, {field}));')
            expected.append(getattr(structure, ours.get(field, field) if fields else field).offset)
    source = tmp_path / "sizes.cpp"
    headers = "\n".join(f"#include <{name}>" for name in ("cuda.h", "cuda_runtime_api.h", "cstddef", "cstdio"))
    source.write_text(f"{headers}\nint main() {{ {' '.join(lines)} }}\n")
    include = toolkit.home() / "include"
    subprocess.run(["g++", f"-I{include}", "-o", tmp_path / "sizes", source], check=True)
    printed = subprocess.run([tmp_path / "sizes"], capture_output=True, text=True, check=True).stdout
    assert list(map(int, printed.split())) == expected


FOLLOWED = """
#include <cstdio>
int main() {
    int *freed, *p, *both;
    cudaMalloc(&freed, 4096);
    cudaFree(freed);
    cudaMalloc(&p, 64);
    cudaMallocManaged(&both, 64);
    cudaMemset(p, 1, 64);
    cudaMemset(both, 1, 64);
    printf("%x\\n", both[1]);
    fflush(stdout);
    return p[1];
}
"""


@needs_nvcc
def test_the_host_cannot_reach_device_memory(tmp_path):
    source = tmp_path / "followed.cu"
    source.write_text(FOLLOWED)
    done = run("check", source)
    assert done.stdout == "1010101\n" and "byte 4 of the device memory cudaMalloc(64)" in done.stderr
    assert done.returncode == -signal.SIGSEGV and "SIGSEGV" in done.stderr.splitlines()[-1]


THREADS = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
__global__ void twice(float *p) { p[threadIdx.x] *= 2; }
int main() {
    float *a, found[32] = {1, 2, 3};
    cudaMalloc(&a, 1 << 20);
    cudaMemcpy(a, found, sizeof found, cudaMemcpyHostToDevice);
    std::thread([&] { twice<<<1, 32>>>(a); cudaDeviceSynchronize(); }).join();
    cudaMemcpy(found, a, sizeof found, cudaMemcpyDeviceToHost);
    printf("%g\n", found[2]);
    void *places[64];
    for (auto &place : places) cudaMalloc(&place, 4096);
    for (auto &place : places) cudaFree(place);
    for (auto &place : places) memset(place = malloc(8192), 1, 8192);
    puts("host memory again");
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[400];
    size_t first, end, key = 0;
    for (bool is_here = false; fgets(line, sizeof line, maps);) {
        if (sscanf(line, "%zx-%zx ", &first, &end) == 2) is_here = first <= (size_t)a && (size_t)a < end;
        if (is_here) sscanf(line, "ProtectionKey: %zu", &key);
    }
    puts(key ? "key" : "no key");
    fflush(stdout);
    std::thread([&] { found[0] = a[1]; }).join();
}
"""


@needs_nvcc
def test_which_threads_reach_device_memory(tmp_path):
    """Those inside of entry points do; host memory in the place of device memory is no one's."""
    source = tmp_path / "threads.cu"
    source.write_text(THREADS)
    done = run("check", source)
    has_keys = " pku " in Path("/proc/cpuinfo").read_text()
    assert done.stdout == f"6\nhost memory again\n{'key' if has_keys else 'no key'}\n"
    assert "byte 4 of the device memory cudaMalloc(1048576)" in done.stderr and done.returncode == -signal.SIGSEGV


SEVEN = """
#include <cstdio>
__global__ void seven(int *p) { *p = 7; }
int main() {
    int *p, value;
    cudaMalloc(&p, 4);
    seven<<<1, 1>>>(p);
    cudaMemcpy(&value, p, 4, cudaMemcpyDeviceToHost);
    printf("%d\\n", value);
}
"""


@needs_nvcc
@pytest.mark.slow
def test_paths_with_spaces_and_other_alphabets(tmp_path):
    folder = tmp_path / "a b" / "ключ 日本"
    copy_libraries(folder / "cache")
    (folder / "seven é.cu").write_text(SEVEN)
    library = folder / "seven é.so"
    options = "-shared", "-Xcompiler", "-fPIC", "-o", library
    for arguments, printed in (
        ([folder / "seven é.cu"], "7\n"),
        (["nvcc", *options, folder / "seven é.cu"], ""),
        ([library], "7\n"),
    ):
        process = run(*arguments, XDG_CACHE_HOME=str(folder / "cache"))
        assert (process.returncode, process.stdout) == (0, printed), process.stderr
