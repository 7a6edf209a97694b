"""Device code in CUDA C++, compiled by NVRTC without a GPU or a CUDA toolkit."""

import types

import pytest
from cuda.pathfinder import DynamicLibNotFoundError

from nogpu import store
from nogpu.errors import EmulatorError
from nogpu.hopper import library


@pytest.fixture
def no_results(monkeypatch, tmp_path):
    """An empty cache, nothing found before, and a user's folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for cached in (library.ptx, store._folder):
        cached.cache_clear()
    yield
    for cached in (library.ptx, store._folder):
        cached.cache_clear()


def test_sources_compile_to_the_stated_ptx_version(no_results):
    functions = library.ptx()
    assert f".version {library.PTX_VERSION}\n" in functions and ".target sm_90a\n" in functions
    assert ".visible .func hopper_begin(" in functions and ".visible .global .align 8 .b8 hopper_pool[24]" in functions
    kernel = library.ptx(library.HERE / "plain_read.cu", "sm_90")
    assert f".version {library.PTX_VERSION}\n" in kernel and ".visible .entry plain_read(" in kernel


def test_a_result_is_kept_for_its_text_and_headers(no_results, monkeypatch, tmp_path):
    source, header = tmp_path / "one.cu", tmp_path / "one.cuh"
    source.write_text('#include "one.cuh"\nextern "C" __global__ void one(int *to) { *to = VALUE; }\n')
    header.write_text("#define VALUE 1234\n")
    first = library.ptx(source)
    library.ptx.cache_clear()
    with monkeypatch.context() as without:
        without.setattr(library, "_compiled", None)
        assert library.ptx(source) == first
    (entry,) = (tmp_path / "cache").rglob("*.ptx")
    entry.write_text(first[:100])
    library.ptx.cache_clear()
    assert library.ptx(source) == first, "one that is cut off is compiled again"
    library.ptx.cache_clear()
    header.write_text("#define VALUE 4321\n")
    assert "1234" in first and "4321" in library.ptx(source)


def test_errors_of_the_source_are_shown(no_results, tmp_path):
    source = tmp_path / "wrong.cu"
    source.write_text("int f( {\n")
    with pytest.raises(EmulatorError, match=r"(?s)wrong\.cu, --gpu-architecture=compute_90a .*wrong\.cu\(1\): error"):
        library.ptx(source)


def test_without_nvrtc_it_says_how_to_get_one(monkeypatch):
    def absent(name):
        raise DynamicLibNotFoundError(f"no {name} in CUDA_HOME")

    monkeypatch.setattr(library, "load_nvidia_dynamic_lib", absent)
    with pytest.raises(EmulatorError, match="(?s)pip install nvidia-cuda-nvrtc.*no nvrtc in CUDA_HOME"):
        library.nvrtc.__wrapped__()


def test_nvrtc_needs_no_rpath_to_its_builtins(monkeypatch, tmp_path):
    """The libnvrtc of CUDA 13.0 wheels has no RPATH: the builtins beside it are loaded first."""
    module, opened = library.nvrtc(), []  # loaded before ctypes opens nothing
    (tmp_path / "libnvrtc-builtins.so.13.0").touch()
    (tmp_path / "libnvrtc-builtins.alt.so.13.0").touch()
    found = types.SimpleNamespace(abs_path=str(tmp_path / "libnvrtc.so.13"))
    monkeypatch.setattr(library, "load_nvidia_dynamic_lib", lambda name: found)
    monkeypatch.setattr(library.ctypes, "CDLL", opened.append)
    assert library.nvrtc.__wrapped__() is module
    assert opened == [str(tmp_path / "libnvrtc-builtins.so.13.0")]
