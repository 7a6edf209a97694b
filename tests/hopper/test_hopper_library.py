"""Device code in CUDA C++, compiled by NVRTC without a GPU or a CUDA toolkit."""

import pytest

from emulator.errors import EmulatorError
from emulator.hopper import library


@pytest.fixture
def no_results(monkeypatch, tmp_path):
    """Nothing that was compiled or found before; a user's folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library.ptx.cache_clear()
    yield
    library.ptx.cache_clear()


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
    library.ptx.cache_clear()
    header.write_text("#define VALUE 4321\n")
    assert "1234" in first and "4321" in library.ptx(source)


def test_errors_of_the_source_are_shown(no_results, tmp_path):
    source = tmp_path / "wrong.cu"
    source.write_text("int f( {\n")
    with pytest.raises(EmulatorError, match=r"(?s)wrong\.cu, --gpu-architecture=compute_90a .*wrong\.cu\(1\): error"):
        library.ptx(source)


def test_without_nvrtc_it_says_where_it_was_sought(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "SONAMES", ("libnvrtc.so.0",))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(EmulatorError, match="pip install nvidia-cuda-nvrtc") as caught:
        library.nvrtc.__wrapped__()
    assert "libnvrtc.so.0 is neither in" in caught.value.reason and f"{tmp_path}/lib64" in caught.value.reason


def test_a_toolkit_serves_without_wheels(monkeypatch, tmp_path):
    found = library.nvrtc()._name
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libnvrtc.so.13").symlink_to(found)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(library.sys, "prefix", str(tmp_path / "none"))
    assert library.nvrtc.__wrapped__()._name == f"{tmp_path}/lib64/libnvrtc.so.13"
