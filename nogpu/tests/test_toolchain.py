"""Builds of the package's C files: repeated compilations, skipped ones, and errors."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from nogpu import store, toolchain
from tests.support.commands import ROOT, clean_environment

CACHE = "cache of ключ 日本"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """An empty cache and an empty temporary folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / CACHE))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture
def folder(tmp_path):
    """A library of two C files that share a header: six() is two() from one file times THREE from the header."""
    folder = tmp_path / "parts, ключ 日本"
    folder.mkdir()
    (folder / "parts.h").write_text("#define THREE 3\nint two(void);\n")
    (folder / "two.c").write_text('#include "parts.h"\nint two(void) { return 2; }\n')
    (folder / "six.c").write_text('#include "parts.h"\nint six(void) { return two() * THREE; }\n')
    return folder


def build(folder):
    """Build like a new process."""
    toolchain.build.cache_clear()
    return toolchain.build(str(folder))


def test_a_folder_becomes_one_library(folder):
    library = toolchain.load(str(folder))
    assert library.six() == 6
    assert isinstance(library, ctypes.PyDLL)


def test_a_folder_is_built_once(folder):
    first = build(folder)
    built = first.stat().st_ino
    assert build(folder) == first and first.stat().st_ino == built
    assert list(first.parent.iterdir()) == [first]


@pytest.mark.parametrize("name", ["two.c", "parts.h"])
def test_every_source_and_header_counts(folder, name):
    before = build(folder)
    (folder / name).write_text((folder / name).read_text() + "\n")
    assert build(folder) != before


LOGS = """#!/bin/sh
for last; do :; done
case "$*" in *" -c "*) basename "$last" >> '{log}';; esac
exec gcc "$@"
"""


@pytest.fixture
def compiled(folder, tmp_path, monkeypatch):
    """Builds the folder and returns the names of the files that were compiled."""
    path, log = tmp_path / "gcc that logs", tmp_path / "log"
    path.write_text(LOGS.format(log=log))
    path.chmod(0o755)
    monkeypatch.setenv("CC", f"'{path}'")
    toolchain._compiler.cache_clear()

    def build_and_read():
        log.write_text("")
        build(folder)
        return sorted(log.read_text().split())

    yield build_and_read
    toolchain._compiler.cache_clear()


def test_only_what_has_changed_is_compiled(folder, compiled, tmp_path):
    (folder / "one.c").write_text("int one(void) { return 1; }\n")
    assert compiled() == ["one.c", "six.c", "two.c"] and compiled() == []
    (folder / "two.c").write_text('#include "parts.h"\nint two(void) { return 1 + 1; }\n')
    assert compiled() == ["two.c"]
    (folder / "parts.h").write_text('#include "../number.h"\n#define THREE NUMBER\nint two(void);\n')
    (tmp_path / "number.h").write_text("#define NUMBER 3\n")
    assert compiled() == ["six.c", "two.c"]
    (tmp_path / "number.h").write_text("#define NUMBER 4\n")
    assert compiled() == ["six.c", "two.c"]
    assert toolchain.load.__wrapped__(str(folder)).six() == 8
    (tmp_path / "number.h").write_text("#define NUMBER 3\n")
    assert compiled() == [], "what was there before is still there"


def test_an_error_in_one_file_keeps_the_others(folder, compiled):
    (folder / "bad.c").write_text("int bad(void) { return missing; }\n")
    with pytest.raises(RuntimeError, match=r"bad\.c"):
        compiled()
    (folder / "bad.c").write_text("int bad(void) { return 0; }\n")
    assert compiled() == ["bad.c"]


def test_a_damaged_object_is_compiled_anew(folder, compiled, capfd):
    compiled()
    (damaged,) = (store.root() / "library_objects").glob("two-*.o")
    damaged.write_bytes(damaged.read_bytes()[:-40])
    (folder / "six.c").write_text('#include "parts.h"\nint six(void) { return THREE * two(); }\n')
    assert compiled() == ["six.c", "two.c"]
    assert capfd.readouterr().err == f"nogpu: {damaged} is damaged and is made anew\n"
    assert toolchain.load.__wrapped__(str(folder)).six() == 6


def test_another_cpu_builds_its_own(folder, tmp_path, monkeypatch):
    """Machines may share home folders."""
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
    assert len(list((store.root() / "library_objects").glob("two-*"))) == 5, "objects, too"


def test_options_count(folder, monkeypatch):
    before = build(folder)
    monkeypatch.setattr(toolchain, "_FOLDER_OPTIONS", (*toolchain._FOLDER_OPTIONS, "-DOTHER"))
    assert build(folder) != before


def test_a_file_that_does_not_compile(folder):
    (folder / "bad.c").write_text("int bad(void) { return missing; }\n")
    with pytest.raises(RuntimeError, match=r"bad\.c' failed:\n(.*\n)*.*missing"):
        build(folder)
    assert not list((store.root() / "libraries").iterdir())


def test_files_that_do_not_link(folder):
    (folder / "two.c").unlink()
    (folder / "again.c").write_text("int six(void) { return 6; }\n")
    with pytest.raises(RuntimeError, match="six"):
        build(folder)


LOADS = "import sys; from nogpu import toolchain; print(toolchain.load(sys.argv[1]).six())"


def command(folder, *before):
    return [*before, sys.executable, "-c", LOADS, str(folder)]


def load(folder, *before, **variables):
    """The library of the folder, built and loaded by a process of its own."""
    environment = clean_environment(PYTHONPATH=str(ROOT)) | variables
    return subprocess.run(command(folder, *before), env=environment, capture_output=True, text=True, timeout=60)


def libraries(folder):
    return sorted(folder.rglob("*.so"))


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"x" * len(data)]
)
def test_a_damaged_library_is_built_anew(folder, tmp_path, damage):
    """A truncated library ends the process that loads it by SIGBUS."""
    assert load(folder).stdout == "6\n"
    (library,) = libraries(tmp_path)
    whole = library.read_bytes()
    library.write_bytes(damage(whole))
    done = load(folder)
    assert (done.returncode, done.stdout) == (0, "6\n")
    assert done.stderr == f"nogpu: {library} is damaged and is made anew\n"
    assert load(folder).stderr == ""


@pytest.mark.slow
def test_processes_that_build_at_the_same_time(folder, tmp_path):
    environment = clean_environment(PYTHONPATH=str(ROOT))
    started = [
        subprocess.Popen(command(folder), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [(*process.communicate(), process.returncode) for process in started] == [("6\n", "", 0)] * 4
    assert len(libraries(tmp_path)) == 1


SLOW = """#!/bin/sh
case "$*" in *-shared*) echo $$ > {mark}.new; mv {mark}.new {mark}; sleep 100;; esac
exec gcc "$@"
"""


@pytest.fixture
def slow(tmp_path):
    """A compiler that never ends its last step, and a file that shows that it has reached it."""
    path, mark = tmp_path / "slow gcc", tmp_path / "mark"
    path.write_text(SLOW.format(mark=mark))
    path.chmod(0o755)
    return path, mark


def start(folder, slow):
    """A process in the middle of a build."""
    path, mark = slow
    environment = clean_environment(PYTHONPATH=str(ROOT), CC=f"'{path}'")
    process = subprocess.Popen(
        command(folder), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not mark.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return process


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_builds(folder, tmp_path, slow):
    process = start(folder, slow)
    process.kill()
    os.killpg(int(slow[1].read_text()), signal.SIGKILL)
    process.communicate()
    (left,) = tmp_path.rglob("scratch-*")
    done = load(folder)
    assert (done.stdout, done.stderr) == ("6\n", "") and left.exists()
    os.utime(left, (time.time() - 2 * 24 * 3600,) * 2)
    (folder / "parts.h").write_text("#define THREE 4\nint two(void);\n")
    assert load(folder).stdout == "8\n" and not left.exists(), "another build tidies up"


@pytest.mark.slow
def test_an_interruption_leaves_nothing(folder, tmp_path, slow):
    process = start(folder, slow)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT and not list(tmp_path.rglob("scratch-*")) and not libraries(tmp_path)
    group = slow[1].read_text().strip()
    running = [line.split() for line in subprocess.check_output(["ps", "-eo", "pgid,stat"], text=True).splitlines()]
    assert not [state for number, state in running if number == group and not state.startswith("Z")], "its `sleep`, too"


NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount", "--")
has_namespaces = pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode != 0,
    reason="needs user namespaces",
)


def mounted(options, *places):
    """The start of a command with a small file system mounted at each place."""
    mounts = " && ".join(f"mount -t tmpfs -o {options} none '{place}'" for place in places)
    return *NAMESPACE, "sh", "-c", f'{mounts} && exec "$@"', "sh"


@pytest.mark.slow
@has_namespaces
def test_a_full_disk(folder, tmp_path):
    """The temporary folder replaces the cache; where that is full, too, a line says so."""
    cache, temporary = tmp_path / CACHE, tmp_path / "temporary"
    cache.mkdir()
    done = load(folder, *mounted("size=8k", cache))
    assert (done.stdout, done.stderr) == ("6\n", "")
    assert libraries(temporary)
    shutil.rmtree(temporary)
    temporary.mkdir()
    done = load(folder, *mounted("size=8k", cache, temporary))
    assert done.returncode == 1 and "No space left on device" in done.stderr.splitlines()[-1]
    assert done.stderr.splitlines()[-1].endswith(": free some room, or set XDG_CACHE_HOME to another folder")


@pytest.mark.slow
@has_namespaces
def test_a_folder_that_cannot_be_written(folder, tmp_path):
    """An existing library is used; otherwise the temporary folder replaces the cache."""
    cache, temporary = tmp_path / CACHE, tmp_path / "temporary"
    cache.mkdir()
    assert load(folder, *mounted("ro", cache)).stdout == "6\n" and len(libraries(temporary)) == 1
    for path in libraries(temporary):
        path.unlink()
    assert load(folder).stdout == "6\n" and len(libraries(cache)) == 1
    bound = *NAMESPACE, "sh", "-c", f"mount --bind -o ro '{cache}' '{cache}' && exec \"$@\"", "sh"
    done = load(folder, *bound)
    assert (done.stdout, done.stderr) == ("6\n", "") and not libraries(temporary)


@pytest.mark.slow
@has_namespaces
def test_a_folder_from_which_no_code_may_run(folder, tmp_path):
    (tmp_path / CACHE).mkdir()
    done = load(folder, *mounted("noexec", tmp_path / CACHE))
    assert done.returncode == 1 and done.stderr.endswith("set XDG_CACHE_HOME to a folder from which code may run\n")


@pytest.mark.slow
def test_files_that_may_not_grow(folder):
    """A limit on the size of files, as of a batch system."""
    done = load(folder, "prlimit", "--fsize=2000")
    assert done.returncode == 1 and "makes no library in" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "variables",
    [{"XDG_CACHE_HOME": "/dev/null"}, {"XDG_CACHE_HOME": "", "HOME": "/proc/nowhere"}, {"XDG_CACHE_HOME": "relative"}],
    ids=str,
)
def test_a_cache_that_cannot_be(folder, tmp_path, variables):
    done = load(folder, **{"HOME": "/dev/null"} | variables)
    assert (done.stdout, done.stderr) == ("6\n", "") and len(libraries(tmp_path / "temporary")) == 1


def test_no_place_at_all(folder, monkeypatch):
    monkeypatch.setattr(store, "_places", lambda: [])
    with pytest.raises(store.SetupError, match="name one in the environment variable XDG_CACHE_HOME"):
        build(folder)
    with pytest.raises(store.SetupError, match="XDG_CACHE_HOME"):
        store.root()


def test_a_cache_of_another_user(folder, tmp_path, monkeypatch):
    (tmp_path / CACHE).mkdir()
    (tmp_path / CACHE / store.NAME).mkdir()
    monkeypatch.setattr(store, "_made", lambda place, made=store._made: CACHE not in place.parts and made(place))
    assert tmp_path / "temporary" in build(folder).parents


NEEDED = "the emulator needs a C compiler: install gcc (Debian: apt install gcc libc6-dev), or name one in the "


@pytest.mark.parametrize(
    ("compiler", "text"),
    [
        ("/bin/false", "/bin/false makes no library in .*: it ends with 1"),
        ("/bin/true", "/bin/true makes no library in .*: it makes no file"),
        ("/nowhere/cc", "CC='/nowhere/cc' names no program"),
        ("gcc 'x", 'CC="gcc \'x" cannot be run: No closing quotation'),
        ("/dev/null", "CC='/dev/null' names no program"),
    ],
)
def test_compilers_that_are_none(folder, monkeypatch, compiler, text):
    monkeypatch.setenv("CC", compiler)
    toolchain._compiler.cache_clear()
    with pytest.raises(store.SetupError) as raised:
        build(folder)
    toolchain._compiler.cache_clear()
    assert re.search(text, str(raised.value)) and NEEDED in str(raised.value) and "\n" not in str(raised.value)


def test_a_compiler_with_options(folder, monkeypatch):
    before = build(folder)
    monkeypatch.setenv("CC", "gcc -DSIX=6")
    toolchain._compiler.cache_clear()
    assert build(folder) != before
    toolchain._compiler.cache_clear()
