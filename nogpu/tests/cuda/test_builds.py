"""Builds of CUDA C++: architectures, the cache of object files, fat binaries."""

import os
import shutil
import struct
import subprocess

import pytest

from nogpu.cuda.programs import builds, fatbin, nvcc, tensor_headers, toolkit
from nogpu.cuda.programs.status import ERRORS, code_of, keep, raising
from nogpu.errors import EmulatorError
from tests.support.nvcc import needs_nvcc


@pytest.mark.parametrize(
    "values,chosen",
    [
        *(([], "100a"), (["native"], "100a"), (["sm_100a"], "100a"), (["arch=compute_100f,code=sm_100f"], "100a")),
        (["arch=compute_100,code=sm_100"], "100"),
        (["arch=compute_80,code=sm_80", "arch=compute_90,code=sm_90"], "90"),
        (["arch=compute_80,code=sm_80", "arch=compute_90a,code=sm_90a"], "80"),
        (
            [
                "arch=compute_90a,code=sm_90a",
                "arch=compute_100a,code=[sm_100a,compute_100a]",
                "arch=compute_120,code=sm_120",
            ],
            "100a",
        ),
    ],
)
def test_the_architecture_is_one_that_the_device_runs(values, chosen):
    assert nvcc.architecture(values) == chosen


@pytest.mark.parametrize(
    "values,chosen",
    [
        *(([], "107a"), (["native"], "107a"), (["arch=compute_107f,code=sm_107f"], "107a"), (["sm_100"], "100")),
        (["arch=compute_100f,code=sm_100f"], "100f"),
        (["arch=compute_100a,code=sm_100a", "arch=compute_107a,code=sm_107a"], "107a"),
    ],
)
def test_architectures_of_a_rubin(values, chosen, monkeypatch):
    monkeypatch.setenv("NOGPU", "rubin")
    assert nvcc.architecture(values) == chosen
    with pytest.raises(nvcc.Usage, match="a Rubin, runs no code for sm_100a, sm_110f: compile for sm_107a"):
        nvcc.architecture(["sm_100a", "sm_110f"])


@pytest.mark.parametrize(
    "listed,chip,runs",
    [
        *(("", "b200", False), ("9.0a", "b200", False), ("9.0a;12.0+PTX", "b200", False), ("Hopper", "b200", False)),
        *(("8.0 9.0+PTX", "b200", True), ("9.0a 10.0a", "b200", True), ("10.0a", "rubin", False)),
    ],
)
def test_a_list_of_other_architectures_is_an_images_own(listed, chip, runs, monkeypatch):
    monkeypatch.setenv("NOGPU", chip)
    assert builds._runs_any_of(listed) is runs


def test_an_nvcc_that_is_too_old_for_a_rubin_is_named(monkeypatch, tmp_path):
    old = tmp_path / "bin" / "nvcc"
    old.parent.mkdir()
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo release 13.0, V13.0.88 || echo compute_100 compute_103\n')
    old.chmod(0o755)
    monkeypatch.setattr(toolkit.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setattr(toolkit.os, "get_exec_path", lambda: [])
    assert toolkit.nvcc.__wrapped__() == old
    monkeypatch.setenv("NOGPU", "rubin")
    with pytest.raises(toolkit.NoCompiler, match=r"nvcc 13.0 \(.*\) knows no sm_107a: pip install nvidia-cuda-nvcc=="):
        toolkit.nvcc.__wrapped__()
    old.write_text(old.read_text().replace("compute_103", "compute_107"))
    assert toolkit.nvcc.__wrapped__() == old


@pytest.mark.parametrize("value", ["sm_90a", "sm_120", "compute_103a"])
def test_architectures_that_it_does_not_run_are_refused(value):
    with pytest.raises(nvcc.Usage, match=f"runs no code for sm_{value.partition('_')[2]}"):
        nvcc.architecture([value])


def test_arguments_are_rewritten():
    given = "-O3 -gencode=arch=compute_100a,code=sm_100a -arch sm_90 -cudart=static -c x.cu -o x.o".split()
    made = nvcc.rewritten(given)
    assert made[:5] == ["-O3", "-c", "x.cu", "-o", "x.o"]
    assert made[5:9] == ["-gencode", "arch=compute_100a,code=[compute_100a]", "-cudart", "none"]
    assert "-lcudart" not in made and "-lcudart" in nvcc.rewritten(["x.cu"])
    assert nvcc.rewritten(["-cubin", "x.cu"])[:2] == ["-fatbin", "x.cu"]
    # The device linker runs where there may be relocatable code, and only then: it takes a tenth of a second.
    for relocatable in (
        "-rdc=true x.cu",
        "-rdc true x.cu",
        "--relocatable-device-code=true x.cu",
        "x.o y.o",
        "x.cu y.a",
    ):
        assert "shared" in nvcc.rewritten(relocatable.split()), relocatable
    assert "-lcudart" not in nvcc.rewritten(["-dc", "x.cu"]) and "-lcudart" not in nvcc.rewritten(["-dlink", "x.o"])


@pytest.mark.parametrize("release, also", [("13.0, V13.0.88", ",sm_90"), ("13.3, V13.3.33", "")])
def test_links_have_the_machine_code_that_the_device_linker_asks_for(monkeypatch, release, also):
    """The device linker of 13.0 takes no PTX alone; nothing but a link pays for machine code."""
    monkeypatch.setattr(nvcc.toolkit, "version", lambda: f"Cuda compilation tools, release {release}")
    assert f"arch=compute_90,code=[compute_90{also}]" in nvcc.rewritten(["-rdc=true", "-arch=sm_90", "x.cu"])
    assert "arch=compute_90,code=[compute_90]" in nvcc.rewritten(["-arch=sm_90", "x.cu"])


@needs_nvcc
def test_programs_that_look_for_nvcc_find_ours(monkeypatch):
    """A process that they start finds NVIDIA's compiler behind ours, also without the packages of PyPI."""
    compiler = toolkit.nvcc()
    for name in ("CUDA_HOME", "LIBRARY_PATH", "TVM_FFI_CUDA_ARCH_LIST"):
        monkeypatch.setenv(name, "/none")
    monkeypatch.setenv("PATH", os.defpath)
    builds.install_environment()
    home = toolkit.home()
    assert (os.environ["CUDA_HOME"], shutil.which("nvcc")) == (str(home), str(home / "path" / "nvcc"))
    assert os.environ["LIBRARY_PATH"] == f"{home}/lib64:/none" and shutil.which("c++") == shutil.which(
        "c++", path=os.defpath
    )
    monkeypatch.setattr(toolkit.importlib.util, "find_spec", lambda name: None)
    assert toolkit.nvcc.__wrapped__() == compiler


def test_response_files_are_read(tmp_path):
    """A response file may name another; the key of an object has all options that decide its content."""
    for name, text in (("a.rsp", "-O1 '-DNAME=\"a b\"' @b.rsp"), ("b.rsp", "-arch=sm_90\n-c x.cu\t-o x.o")):
        (tmp_path / name).write_text(text.replace("@", f"@{tmp_path}/"))
    words = ["-O1", '-DNAME="a b"', "-arch=sm_90", "-c", "x.cu", "-o", "x.o"]
    assert nvcc.expanded(["-v", f"@{tmp_path}/a.rsp", "-w"]) == ["-v", *words, "-w"]
    assert nvcc.expanded(["-optf", f"{tmp_path}/a.rsp"], nvcc._OPTIONS_FILES) == words
    assert (
        nvcc.expanded([f"--options-file={tmp_path}/a.rsp,{tmp_path}/b.rsp"], nvcc._OPTIONS_FILES) == words + words[2:]
    )
    assert nvcc.expanded(["@none", "-Dx=@y"]) == ["@none", "-Dx=@y"]
    with pytest.raises(nvcc.Usage, match=f"response file {tmp_path}/none"):
        nvcc.expanded(["-optf", f"{tmp_path}/none"], nvcc._OPTIONS_FILES)
    made = nvcc.rewritten(nvcc.expanded([f"@{tmp_path}/a.rsp"]))
    assert "-arch=sm_90" not in made and "arch=compute_90,code=[compute_90]" in made


@needs_nvcc
def test_objects_are_kept_by_what_response_files_say(project, folder):
    for define in ("-DA", "-DB"):
        (folder / "options").write_text(define)
        assert project(f"@{folder}/options") and not project(f"@{folder}/options")


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "of a project"
    made.mkdir()
    return made


@pytest.fixture
def project(tmp_path, folder, monkeypatch):
    """A project with a C++ file and a header: compile() -> whether the compiler has run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    toolkit.home.cache_clear()
    runs, run = [], subprocess.run

    def counted(command, **options):
        runs.extend(command)
        return run(command, **options)

    monkeypatch.setattr(nvcc.subprocess, "run", counted)
    (folder / "value.h").write_text("#define VALUE 1\n")
    (folder / "file.cpp").write_text('#include "value.h"\nint value() { return VALUE; }\n')

    def compile_(*options):
        runs.clear()
        command = ["g++", "-c", str(folder / "file.cpp"), "-o", str(folder / "file.o"), *options]
        assert nvcc.main(command) == 0 and (folder / "file.o").exists()
        (folder / "file.o").unlink()
        return "-c" in runs

    yield compile_
    toolkit.home.cache_clear()


@needs_nvcc
def test_objects_are_kept_by_their_contents(project, folder):
    assert project() and not project()
    assert project("-O1") and not project("-O1")
    rule = folder / "file.o.d"
    assert project("-MMD", "-MF", str(rule))
    rule.unlink()
    assert not project("-MMD", "-MF", str(rule)) and "value.h" in rule.read_text()
    (folder / "value.h").write_text("#define VALUE 2\n")
    assert project() and not project()
    (folder / "value.h").write_text("#define VALUE 1\n")
    assert not project()
    (folder / "file.cpp").write_text("int value() { return 3; }\n")
    assert project()


@needs_nvcc
def test_objects_and_scripts_that_are_damaged_are_made_anew(project, tmp_path, capfd):
    assert project()
    (entry,) = tmp_path.rglob("*.sealed")
    entry.write_bytes(entry.read_bytes()[:-100])
    assert project() and not project()
    assert capfd.readouterr().err == f"nogpu: {entry} is damaged and is made anew\n"
    place = toolkit.home()
    toolkit.home.cache_clear()
    assert toolkit.home() == place and not capfd.readouterr().err
    (place / "bin" / "nvcc").write_text("#!/bin/sh\n")
    toolkit.home.cache_clear()
    assert toolkit.home() == place and "exec" in (place / "bin" / "nvcc").read_text()
    assert capfd.readouterr().err == f"nogpu: {place} is damaged and is made anew\n"


def test_libraries_of_extensions_that_are_damaged_are_linked_again(tmp_path, capfd):
    """A truncated library would end the process that loads it."""
    whole, cut, new = (tmp_path / f"{name}.so" for name in ("whole", "cut", "new"))
    for path in (whole, cut):
        path.write_bytes(b"library")
    builds._seal(tmp_path)
    cut.write_bytes(b"lib")
    new.write_bytes(b"not ended")
    builds._forget_damaged(tmp_path)
    assert [path.exists() for path in (whole, cut, new)] == [True, False, False]
    assert capfd.readouterr().err == f"nogpu: {cut} is damaged and is made anew\n"


@needs_nvcc
@pytest.mark.parametrize("variable,first,second", [("CPATH", "one", "other"), ("NVCC_APPEND_FLAGS", "-DA", "-DB")])
def test_objects_are_kept_by_what_compilers_read_from_the_environment(project, monkeypatch, variable, first, second):
    for value in (first, second):
        monkeypatch.setenv(variable, value)
        assert project() and not project()


def image(kind, architecture, data, compressed=0, flags=0, full=0):
    return fatbin._IMAGE.pack(kind, 0x101, 64, len(data), compressed, architecture, flags, full) + data


def block(*images):
    body = b"".join(images)
    return fatbin._BLOCK.pack(fatbin.BLOCK_MAGIC, 1, 16, len(body)) + body


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A compiler for the host that notes its options, and makes no object of "whole" with short headers."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "compiler"
    path.write_text(
        f"""#!/bin/sh
case " $* " in *" -v "*) exit 0;; esac
echo "$*" >> {tmp_path}/log
case "$*" in *AT_PER_OPERATOR*) if grep -q whole {tmp_path}/a.cpp; then echo short >&2; exit 1; fi;; esac
echo object > {tmp_path}/a.o
echo "a.o: {tmp_path}/a.cpp" > {tmp_path}/a.o.d
echo message >&2
"""
    )
    path.chmod(0o755)
    return path


def _compiled(compiler, source, *options):
    """(exit code; of each call of the compiler, whether it had short headers)"""
    folder = compiler.parent
    (folder / "a.cpp").write_text(source)
    (folder / "log").write_text("")
    (folder / "a.o").unlink(missing_ok=True)
    code = nvcc.run([str(compiler), *options, "-c", str(folder / "a.cpp"), "-o", str(folder / "a.o")])
    return code, [tensor_headers.SHORT in line.split() for line in (folder / "log").read_text().splitlines()]


TORCH = "#include <torch/extension.h>\n"


def test_extensions_are_compiled_with_short_headers_of_torch(compiler, capfd):
    assert _compiled(compiler, "int x;") == (0, [False])
    assert _compiled(compiler, TORCH) == (0, [True])
    assert _compiled(compiler, TORCH) == (0, [])
    assert _compiled(compiler, f"{TORCH} torch::nn::Linear x;") == (0, [False])
    capfd.readouterr()
    assert _compiled(compiler, f"{TORCH} int whole;") == (0, [True, False])
    assert capfd.readouterr().err == "message\n"
    assert _compiled(compiler, f"{TORCH} int whole;") == (0, [])


def test_short_headers_declare_the_functions_that_a_source_names(compiler, tmp_path):
    (tmp_path / "b.h").write_text("at::Tensor f() { return at::cumsum(g(), 0); }")
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / "c.h").write_text("using torch::relu;")
    assert _compiled(compiler, f'{TORCH}#include "b.h"\n  # include "c.h"\nint sum;', f"-I{tmp_path}/headers")[0] == 0
    options = (tmp_path / "log").read_text().split()
    named = {option.removeprefix("-DNOGPU_OPERATION_") for option in options if "OPERATION" in option}
    assert {"sum", "cumsum", "relu"} <= named and "add" not in named
    assert options[0] == f"-I{toolkit.home()}/short"


@needs_nvcc
def test_the_host_s_code_of_extensions_is_compiled_faster(tmp_path):
    source = tmp_path / "a.cu"
    source.write_text(TORCH)
    command = ["-O3", "-c", str(source)]
    assert "-O3" in nvcc._with_short_headers(["g++", *command])
    short = nvcc._with_short_headers([str(toolkit.nvcc()), *command])
    assert "-O1" in short and "-O3" not in short


def test_short_headers():
    headers = tensor_headers.short()
    functions = headers["ATen/Functions.h"]
    assert "#ifdef NOGPU_OPERATION_sum\n#include <ATen/ops/sum.h>\n#endif\n" in functions
    assert functions.index("\n#include <ATen/ops/var.h>") < functions.index("namespace at {")
    assert "torch/types.h" in headers["torch/all.h"] and "torch/nn" not in headers["torch/all.h"]
    assert "torch/csrc/utils/pybind.h" in headers["torch/python.h"] and "torch/nn" not in headers["torch/python.h"]


def test_the_newest_ptx_that_the_device_runs_is_chosen():
    found = block(
        image(fatbin.MACHINE_CODE, 100, b"\x7fELF"),
        image(fatbin.PTX, 80, b"old\0"),
        image(fatbin.PTX, 100, b"right\0\0\0"),
        image(fatbin.PTX, 120, b"new\0"),
    )
    assert fatbin.choose(list(fatbin.images(found))) == "right"
    for images, held in (
        ([image(fatbin.MACHINE_CODE, 100, b"\x7fELF")], "machine code for sm_100"),
        ([image(fatbin.PTX, 120, b"new\0")], "PTX for sm_120"),
        ([], "nothing"),
    ):
        with pytest.raises(EmulatorError, match=f"the program holds {held}, and the device runs PTX up to sm_100a"):
            fatbin.choose(list(fatbin.images(block(*images))))


def test_ptx_for_one_architecture_or_family_runs_there_only(monkeypatch):
    def texts(*targets):
        return [
            fatbin.Image(fatbin.PTX, int(name.strip("af")), f"//\n.version 9.4\n.target sm_{name}\n".encode())
            for name in targets
        ]

    found = texts("90a", "80", "100f", "100a", "103f", "107", "107a", "110")
    assert ".target sm_100" in fatbin.choose(found)
    with pytest.raises(
        EmulatorError, match="holds PTX for sm_107a, PTX for sm_90a, and the device runs PTX up to sm_100a"
    ):
        fatbin.choose(texts("90a", "107a"))
    monkeypatch.setenv("NOGPU", "rubin")
    assert ".target sm_107" in fatbin.choose(found)
    assert ".target sm_103f" in fatbin.choose(texts("80", "100a", "100f", "103f"))
    with pytest.raises(
        EmulatorError, match="holds PTX for sm_100a, and the device runs PTX up to sm_107a.*device rubin nvcc"
    ):
        fatbin.choose(texts("100a"))


def lz4_blocks():
    """Pairs (compressed, text): literals, matches that overlap themselves, and lengths of more than a nibble."""
    yield b"\x30abc", b"abc"
    yield b"\x1fa\x01\x00\x05\x10b", b"a" + b"a" * 24 + b"b"
    long = bytes(range(256)) * 2
    yield b"\xf0" + bytes([255, len(long) - 15 - 255]) + long, long
    yield b"\x42abcd\x02\x00\x10!", b"abcdcdcdcd!"


@pytest.mark.parametrize("data,text", list(lz4_blocks()))
def test_lz4(data, text):
    assert fatbin.lz4(data, len(text)) == text
    packed = image(fatbin.PTX, 100, data + bytes(-len(data) % 8), len(data), fatbin._LZ4, len(text))
    assert next(fatbin.images(block(packed))).data == text


def test_compression_that_is_not_known_is_refused():
    with pytest.raises(EmulatorError, match=r"compression is unknown \(flags 0x4000\)"):
        list(fatbin.images(block(image(fatbin.PTX, 100, b"12345678", 8, 0x4000, 20))))


def test_a_wrapper_with_another_magic_number_is_refused():
    import ctypes

    wrapper = ctypes.create_string_buffer(struct.pack("<IIQ", 0x12345678, 1, 0))
    with pytest.raises(EmulatorError, match="magic number is 0x12345678"):
        fatbin.ptx(ctypes.addressof(wrapper))


class CodeError(Exception):
    """An exception that host code raises for an error code."""

    error_code = property(lambda self: self.code)


@pytest.mark.parametrize("kind,is_caught", [(CodeError, True), (ValueError, True), (FileNotFoundError, False)])
def test_handlers_of_the_code_s_own_error_catch_the_emulator_s(kind, is_caught):
    error = EmulatorError("launch refused: cooperative launch of 5000 CTAs, 296 fit", kernel="k")

    def calls():
        keep(error)
        own = kind("what host code says of it")
        own.code = code_of(error)
        raise own

    with pytest.raises(EmulatorError, match="5000 CTAs") as caught:
        raising(calls)()
    assert isinstance(caught.value, kind) == is_caught and caught.value.kernel == "k"
    if kind is CodeError:
        assert caught.value.error_code == 720


@pytest.mark.parametrize(
    "reason,code",
    [
        ("store of 4 bytes at 0x10: null pointer", 700),
        ("load of 4 bytes at 0x7f01: must be 4-byte aligned", 716),
        ("the kernel hangs: no warp can run", 702),
        ("stopped after 100 warp instructions (--max-instructions)", 702),
        ("launch refused: grid (0, 1, 1): x must be 1 to 2147483647", 9),
        ("launch refused: cluster (3, 1, 1) has 3 CTAs", 912),
        ("launch refused: cooperative launch of 5000 CTAs, 4736 fit", 720),
        ("wgmma.fence is not modelled", 218),
        ("tcgen05.ld.sync.aligned.32x32b.x1.b32 touches tensor memory columns of an MMA", 719),
        ("any other rule", 719),
    ],
)
def test_errors_have_the_codes_of_hardware(reason, code):
    assert code_of(EmulatorError(reason)) == code and code in ERRORS
