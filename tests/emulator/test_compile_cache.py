"""Compiled functions on disk: what is read is what would be compiled."""

import os
import time
from pathlib import Path

import pytest

from emulator import toolchain
from emulator.host import compile_cache
from emulator.host.compile_cache import Lowered
from tests.support.emulated import PROGRAMS, run

pytest.importorskip("cutlass")

# For each factor: the PTX's digest, how often passes ran, and whether the result is right.
PROGRAM = """
import hashlib, sys
from kernel_checks import N, make_scale, vector
from cutlass._mlir.passmanager import PassManager
from emulator.host import dsl

parsed, parse = [], PassManager.parse
PassManager.parse = lambda *args, **kwargs: parsed.append(args) or parse(*args, **kwargs)
for factor in map(float, sys.argv[1:]):
    x, view = vector()
    make_scale(factor)(view, N)
    right = x.tolist() == [factor * i for i in range(N)]
    print(hashlib.sha256(dsl.captured[-1][1].encode()).hexdigest(), len(parsed), right)
    parsed.clear()
"""


def scaled(folder, *factors):
    """[(PTX's digest, pass pipelines that ran)] of the kernels for these factors."""
    process = run("-c", PROGRAM, *factors, PYTHONPATH=str(PROGRAMS), XDG_CACHE_HOME=str(folder), EMULATOR_WORKERS="1")
    lines = [line.split() for line in process.stdout.splitlines()]
    assert len(lines) == len(factors) and all(line[2] == "True" for line in lines), process.stderr
    return [(digest, int(count)) for digest, count, _ in lines]


@pytest.fixture
def folder(tmp_path):
    """A cache that holds nothing but the emulator's own libraries, which take long to compile."""
    cache = tmp_path / "sm100-emulator"
    cache.mkdir()
    for library in toolchain.cache_folder().glob("*.so"):
        (cache / library.name).symlink_to(library)
    return tmp_path


def entries(folder):
    return sorted((folder / "sm100-emulator" / "compiled").iterdir())


def test_a_function_is_lowered_once_and_its_entry_is_checked(folder):
    first = scaled(folder, "2", "3")
    assert [count > 0 for _, count in first] == [True, True] and first[0][0] != first[1][0]
    assert len(entries(folder)) == 2
    again = scaled(folder, "3", "2", "5")
    assert again[:2] == [(first[1][0], 0), (first[0][0], 0)] and again[2][1] > 0
    for number, entry in enumerate(entries(folder)):
        data = bytearray(entry.read_bytes())
        entry.write_bytes((b"", data[:-1], data[:-1] + bytes([data[-1] ^ 1]))[number])
    repaired = scaled(folder, "2", "3", "5")
    assert [digest for digest, _ in repaired] == [first[0][0], first[1][0], again[2][0]]
    assert all(count > 0 for _, count in repaired)
    assert [count for _, count in scaled(folder, "2", "3", "5")] == [0, 0, 0]


def test_a_packed_result_is_read_back_and_nothing_else_is():
    lowered = Lowered(".sm_100a.ptx", b"PTX", b"\0module\xff")
    packed = lowered.pack()
    assert Lowered.unpack(packed) == lowered
    assert [Lowered.unpack(packed[:size]) for size in range(len(packed))] == [None] * len(packed)
    assert Lowered.unpack(packed + b"\0") is None


def test_the_entries_used_last_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(compile_cache, "MAX_ENTRIES", 3)
    lowered = Lowered("", b"", b"")
    for number, name in enumerate("abc"):
        compile_cache._write(tmp_path / name, lowered)
        os.utime(tmp_path / name, (time.time() - 100 + number,) * 2)
    assert compile_cache._read(tmp_path / "a") == lowered
    compile_cache._write(tmp_path / "d", lowered)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c", "d"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    missing = tmp_path / "missing"
    compile_cache._write(missing / "entry", Lowered("", b"", b""))
    assert not missing.exists() and compile_cache._read(missing / "entry") is None


class Pipeline:
    """A compiler whose passes write PTX and count their runs."""

    _post_compile_hook = None
    runs = 0

    def compile(self, module, pipeline, *args, **kwargs):
        self.runs += 1
        path = pipeline.partition("dump-ptx-path='")[2].partition("'")[0]
        if path:
            Path(path + ".ptx").write_text("PTX")
        return module


@pytest.mark.parametrize(
    "change",
    [
        {"pipeline": "passes{dump-ptx-path='PATH' dump-cubin-path='x'}"},
        {"pipeline": "passes{}"},
        {"pipeline": "passes{dump-ptx-path='PATH' link-libraries=x.bc}"},
        {"warnings_filter": "all"},
        {"_post_compile_hook": print},
        {},
    ],
)
def test_only_what_an_entry_holds_is_kept(tmp_path, monkeypatch, change):
    monkeypatch.setattr(compile_cache, "_folder", lambda: tmp_path)
    monkeypatch.setattr(compile_cache, "_bytecode", lambda module: b"module")
    monkeypatch.setattr(compile_cache, "_replace", lambda module, bytecode: None)
    compiler, options = Pipeline(), dict(change)
    compiler._post_compile_hook = options.pop("_post_compile_hook", None)
    pipeline = options.pop("pipeline", "passes{dump-ptx-path='PATH'}").replace("PATH", str(tmp_path / "k"))
    compile = compile_cache.cached(Pipeline.compile)
    for _ in range(2):
        assert compile(compiler, "module", pipeline, "sm_100a", **options) == "module"
    assert compiler.runs == (2 if change else 1)
