"""Compiled functions on disk: a function that is read equals one that would be compiled."""

import importlib.util
import os
import time
from pathlib import Path

import pytest

from nogpu import store
from nogpu.cuda.dsl import compile_cache
from nogpu.cuda.dsl.compile_cache import Lowered
from tests.support.emulated import PROGRAMS, run

pytestmark = pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="CuTe DSL is not installed")

# Output for each factor: the PTX's digest, passes that ran, whether the result is right. "damage" breaks all entries.
PROGRAM = """
import hashlib, sys
from kernel_checks import N, make_scale, vector
from cutlass._mlir.passmanager import PassManager
from nogpu.cuda.dsl import compile_cache, hooks

parsed, parse = [], PassManager.parse
PassManager.parse = lambda *args, **kwargs: parsed.append(args) or parse(*args, **kwargs)
for argument in sys.argv[1:]:
    if argument == "damage":
        for number, entry in enumerate(sorted(compile_cache._folder().iterdir())):
            data = bytearray(entry.read_bytes())
            entry.write_bytes((b"", data[:-1], data[:-1] + bytes([data[-1] ^ 1]))[number])
        continue
    factor = float(argument)
    x, view = vector()
    make_scale(factor)(view, N)
    right = x.tolist() == [factor * i for i in range(N)]
    print(hashlib.sha256(hooks.captured[-1][1].encode()).hexdigest(), len(parsed), right)
    parsed.clear()
"""


def scaled(folder, *factors):
    """The (PTX's digest, pass pipelines that ran) of the kernels for these factors."""
    process = run("-c", PROGRAM, *factors, PYTHONPATH=str(PROGRAMS), XDG_CACHE_HOME=str(folder), NOGPU_WORKERS="1")
    lines = [line.split() for line in process.stdout.splitlines()]
    launches = len(factors) - factors.count("damage")
    assert len(lines) == launches and all(line[2] == "True" for line in lines), process.stderr
    return [(digest, int(count)) for digest, count, _ in lines]


@pytest.fixture
def folder(tmp_path):
    """A cache with only the emulator's own libraries, which take long to compile."""
    cache = tmp_path / "nogpu"
    cache.mkdir()
    (cache / "libraries").symlink_to(store.root() / "libraries")
    return tmp_path


def entries(folder):
    return sorted((folder / "nogpu" / "lowered").iterdir())


@pytest.mark.slow
def test_a_function_is_lowered_once_and_its_entry_is_checked(folder):
    first = scaled(folder, "2", "3")
    assert [count > 0 for _, count in first] == [True, True] and first[0][0] != first[1][0]
    assert len(entries(folder)) == 2
    again = scaled(folder, "3", "2", "5", "damage", "2", "3", "5", "5", "3", "2")
    assert again[:2] == [(first[1][0], 0), (first[0][0], 0)] and again[2][1] > 0
    repaired, kept = again[3:6], again[6:]
    assert [digest for digest, _ in repaired] == [first[0][0], first[1][0], again[2][0]]
    assert all(count > 0 for _, count in repaired)
    assert kept == [(digest, 0) for digest, _ in repaired[::-1]]


SOURCE = """
import cutlass
import cutlass.cute as cute

@cute.kernel
def store(x: cute.Tensor, value: cutlass.Int32):
    x[0] = value

@cute.jit
def host(x: cute.Tensor, value: cutlass.Int32):
    store(x, value).launch(grid=[1, 1, 1], block=[1, 1, 1])
"""


def compiled(path, options):
    """Compile SOURCE from this file."""
    import cutlass
    from cutlass import cute
    from cutlass.cute.runtime import make_fake_compact_tensor

    path.parent.mkdir()
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("placed", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cute.compile(module.host, make_fake_compact_tensor(cutlass.Int32, (4,)), cutlass.Int32(1), options=options)


@pytest.mark.parametrize(("options", "number"), [("", 1), ("--generate-line-info", 2)])
def test_copies_of_a_source_share_an_entry_unless_it_has_lines(tmp_path, monkeypatch, options, number):
    folder = tmp_path / "entries"
    folder.mkdir()
    monkeypatch.setattr(compile_cache, "_folder", lambda: folder)
    for copy in ("first", "second"):
        compiled(tmp_path / copy / "source.py", options)
    assert len(list(folder.iterdir())) == number


def test_a_packed_result_is_read_back():
    lowered = Lowered({".sm_100a.ptx": b"PTX", ".sm_100a.cubin": b"\0\xff"}, b"\0module\xff")
    assert Lowered.unpack(lowered.pack()) == lowered


def test_the_entries_used_last_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(compile_cache, "MAX_ENTRIES", 3)
    lowered = Lowered({}, b"")
    for number, name in enumerate("abc"):
        compile_cache._write(tmp_path / name, lowered)
        os.utime(tmp_path / name, (time.time() - 100 + number,) * 2)
    assert compile_cache._read(tmp_path / "a") == lowered
    compile_cache._write(tmp_path / "d", lowered)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c", "d"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    missing = tmp_path / "missing"
    compile_cache._write(missing / "entry", Lowered({}, b""))
    assert not missing.exists() and compile_cache._read(missing / "entry") is None


class Pipeline:
    """A compiler whose passes write PTX and cubin to the requested files, and count their runs."""

    _post_compile_hook = None
    runs = 0

    def compile(self, module, pipeline, *args, **kwargs):
        self.runs += 1
        for kind in ("ptx", "cubin"):
            path = pipeline.partition(f"dump-{kind}-path='")[2].partition("'")[0]
            if path:
                Path(f"{path}.sm_100a.{kind}").write_text(f"{kind} of {module}")
        return module


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"pipeline": "passes{dump-cubin-path='PATH' dump-ptx-path='OTHER'}"}, None),
        *(({"pipeline": "passes{dump-cubin-path='PATH'}"}, None), ({"pipeline": "passes{}"}, None)),
        *(({"pipeline": "passes{dump-ptx-path='PATH' link-libraries=x.bc}"}, None), ({"warnings_filter": "all"}, None)),
        *(({"_post_compile_hook": print}, None), ({}, ["ptx"])),
        ({"pipeline": "passes{dump-cubin-path='PATH' dump-ptx-path='PATH'}"}, ["cubin", "ptx"]),
    ],
)
def test_only_what_an_entry_holds_is_kept(tmp_path, monkeypatch, change, kept):
    monkeypatch.setattr(compile_cache, "_folder", lambda: tmp_path)
    monkeypatch.setattr(compile_cache, "_bytecode", lambda module: b"module")
    monkeypatch.setattr(compile_cache, "_replace", lambda module, bytecode: None)
    compiler, options = Pipeline(), dict(change)
    compiler._post_compile_hook = options.pop("_post_compile_hook", None)
    pipeline = options.pop("pipeline", "passes{dump-ptx-path='PATH'}").replace("OTHER", str(tmp_path / "other"))
    compile = compile_cache.cached(Pipeline.compile)
    for number in range(2):
        out = tmp_path / f"files{number}"
        out.mkdir()
        assert compile(compiler, "k", pipeline.replace("PATH", str(out / "k")), "sm_100a", **options) == "k"
        written = {file.name: file.read_text() for file in out.iterdir()}
        assert kept is None or written == {f"k.sm_100a.{kind}": f"{kind} of k" for kind in kept}
    assert compiler.runs == (1 if kept else 2)


def test_with_and_without_a_cubin_are_different_entries(tmp_path, monkeypatch):
    monkeypatch.setattr(compile_cache, "_folder", lambda: tmp_path)
    monkeypatch.setattr(compile_cache, "_bytecode", lambda module: b"module")
    monkeypatch.setattr(compile_cache, "_replace", lambda module, bytecode: None)
    compile, compiler = compile_cache.cached(Pipeline.compile), Pipeline()
    for options in ("dump-ptx-path='PATH'", "dump-cubin-path='PATH' dump-ptx-path='PATH'"):
        compile(compiler, "k", f"passes{{{options}}}".replace("PATH", str(tmp_path / "k")), "sm_100a")
    assert compiler.runs == 2
