"""Building the package's C files: what is compiled again, what is not, and errors."""

from __future__ import annotations

import ctypes

import pytest

from emulator import toolchain


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    """A library of two C files that share a header: six() is two() from one file times THREE from the header."""
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "parts.h").write_text("#define THREE 3\nint two(void);\n")
    (folder / "two.c").write_text('#include "parts.h"\nint two(void) { return 2; }\n')
    (folder / "six.c").write_text('#include "parts.h"\nint six(void) { return two() * THREE; }\n')
    return folder


def build(folder):
    """As in a new process."""
    toolchain.build.cache_clear()
    return toolchain.build(str(folder))


def test_a_folder_becomes_one_library(folder):
    library = toolchain.load(str(folder))
    assert library.six() == 6
    assert isinstance(library, ctypes.PyDLL)


def test_a_folder_is_built_once(folder):
    first = build(folder)
    built = first.stat().st_mtime_ns
    assert build(folder) == first and first.stat().st_mtime_ns == built
    assert list(first.parent.iterdir()) == [first]


@pytest.mark.parametrize("name", ["two.c", "parts.h"])
def test_every_source_and_header_counts(folder, name):
    before = build(folder)
    (folder / name).write_text((folder / name).read_text() + "\n")
    assert build(folder) != before


def test_another_cpu_builds_its_own(folder, tmp_path, monkeypatch):
    """Home folders are shared between machines."""
    before, cpu = build(folder), tmp_path / "cpuinfo"
    monkeypatch.setattr(toolchain, "CPU_DESCRIPTION", cpu)
    libraries = set()
    for text in ("processor : 0\nflags : sse2\n", "processor : 0\nflags : sse2 avx2\n", "Features : asimd\n", ""):
        cpu.write_text(text)
        libraries.add(build(folder))
    cpu.write_text("processor : 7\nMHz : 1\nflags : sse2\n")
    assert before not in libraries and len(libraries) == 4 and build(folder) in libraries
    cpu.unlink()
    assert build(folder) in libraries


def test_options_count(folder, monkeypatch):
    before = build(folder)
    monkeypatch.setattr(toolchain, "_FOLDER_OPTIONS", (*toolchain._FOLDER_OPTIONS, "-DOTHER"))
    assert build(folder) != before


def test_a_file_that_does_not_compile(folder):
    (folder / "bad.c").write_text("int bad(void) { return missing; }\n")
    with pytest.raises(RuntimeError, match=r"bad\.c failed:\n(.*\n)*.*missing"):
        build(folder)
    assert not list((toolchain.cache_folder()).iterdir())


def test_files_that_do_not_link(folder):
    (folder / "two.c").unlink()
    (folder / "again.c").write_text("int six(void) { return 6; }\n")
    with pytest.raises(RuntimeError, match="six"):
        build(folder)
