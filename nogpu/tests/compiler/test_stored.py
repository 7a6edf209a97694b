"""Translated kernels on disk: a kernel that is read acts like one that is translated, also in every message."""

import os
import tempfile
import threading
import time

import numpy as np
import pytest

import nogpu
from nogpu import bench, store, toolchain
from nogpu.compiler import stored, translate
from nogpu.compiler.stored import LEAST_INSTRUCTIONS, StoredEntry
from nogpu.errors import EmulatorError

# A kernel in which some of 32 lanes part, a call, shared memory, a barrier, a vector store; `more` makes it long.
KERNEL = """
.version 8.8
.target sm_100a
.address_size 64
{outside}
.func (.param .b32 r) twice(.param .b32 x) {{
    .reg .b32 %a; ld.param.b32 %a, [x]; add.u32 %a, %a, %a; st.param.b32 [r], %a; ret;
}}
.visible .entry k(.param .u64 out, .param .u32 n) .reqntid 64, 1, 1 {{
    .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<4>; .shared .align 16 .b8 kept[512];
    .loc 1 7 0
    ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mov.u32 %r3, 0;
L:  and.b32 %r4, %r2, 3; setp.eq.u32 %p1, %r4, 1; @%p1 bra ODD; add.u32 %r3, %r3, %r2; bra NEXT;
ODD: xor.b32 %r3, %r3, 5;
NEXT: sub.u32 %r1, %r1, 1; setp.ne.u32 %p2, %r1, 0; @%p2 bra L;
    {{ .param .b32 x; .param .b32 r; st.param.b32 [x], %r3; call (r), twice, (x); ld.param.b32 %r3, [r]; }}
    shl.b32 %r5, %r2, 3; mov.u32 %r6, kept; add.u32 %r6, %r6, %r5; st.shared.v2.b32 [%r6], {{%r3, %r2}}; bar.sync 0;
    {more}
    .loc 1 9 0
    ld.shared.b32 %r7, [%r6]; mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2; st.global.b32 [%rd3], %r7;
    {last}
    ret;
}}
"""
MORE = "add.u32 %r3, %r3, 1;\n" * LEAST_INSTRUCTIONS
HANG = "{ .reg .pred %q; W: mov.u32 %r8, 1; setp.eq.u32 %q, %r8, 1; @%q bra W; }"
WRONG = {
    "a launch": {"block": 32},
    "outside of memory": {"last": "st.global.b32 [%rd3+400], %r7;"},
    "alignment, by kernel and Python row": {"last": "ld.shared.b32 %r7, [%r6+2];"},
    "a hang": {"last": HANG},
}


def text(more=MORE, last="", outside='.file 1 "scale.py"', **_):
    return KERNEL.format(more=more, last=last, outside=outside)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_folder", lambda name: tmp_path)
    return tmp_path


def loaded(source):
    """The kernel as a new process loads it, and whether it comes from the store."""
    kernel = nogpu.load_ptx(source)["k"]
    return kernel, isinstance(kernel.entry, StoredEntry)


def outcome(kernel, n=5, block=64, **_):
    """Outcome of a launch: (bytes or message, counters)."""
    out = nogpu.array(np.zeros(64, np.uint32))
    nogpu.reset_counters()
    try:
        kernel.launch(1, block, [out, n])
    except EmulatorError as error:
        return str(error).replace(hex(out.ctypes.data)[:-3], "?"), error.ptx_line, error.source
    return out.tobytes(), [vars(one) for one in nogpu.counters()]


def test_a_kernel_is_translated_once(folder):
    first, found = loaded(text())
    assert not found
    want = outcome(first)
    assert len(set(np.frombuffer(want[0], np.uint32))) > 4 and len(list(folder.iterdir())) == 1
    again, found = loaded(text())
    assert found and outcome(again) == want


def test_entries_of_a_folder_that_can_only_be_read_are_used(folder, monkeypatch):
    loaded(text())[0].check()

    def refuse(path):
        raise OSError(f"read-only: {path}")

    monkeypatch.setattr(os, "utime", refuse)
    assert loaded(text())[1]


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_messages_are_the_same(change, monkeypatch):
    out = nogpu.array(np.zeros(64, np.uint32))
    monkeypatch.setattr(nogpu, "array", lambda values: out)
    source = text(**change)
    first, _ = loaded(source)
    first.check()
    want = outcome(first, **change)
    again, found = loaded(source)
    assert found and outcome(again, **change) == want
    assert isinstance(want[0], str) and ("block" in change or want[1] is not None)


def test_line_information_is_kept():
    source = text(last=WRONG["outside of memory"]["last"])
    outcome(loaded(source)[0])
    kernel, found = loaded(source)
    assert found and outcome(kernel)[2] == "scale.py:9"


@pytest.mark.parametrize(
    "change",
    [
        {"more": ""},
        {"outside": ".global .u32 g;"},
        {"outside": ".const .u32 c;"},
        {"outside": ".visible .entry other() { ret; }"},
    ],
    ids=["short", "global variables", "constants", "two kernels"],
)
def test_what_is_not_kept(folder, change):
    source = text(**change)
    for _ in range(2):
        kernel, found = loaded(source)
        assert not found and outcome(kernel)[1]
    assert not list(folder.iterdir())


def test_another_emulator_translates_again(folder, monkeypatch):
    loaded(text())[0].check()
    monkeypatch.setattr(stored, "_sources", lambda: b"other sources")
    kernel, found = loaded(text())
    kernel.check()
    assert not found and len(list(folder.iterdir())) == 2


def test_sources_decide(tmp_path, monkeypatch):
    (tmp_path / "parts").mkdir()
    monkeypatch.setattr(toolchain, "HERE", tmp_path)
    digests = set()
    for name, content in [("a.py", "1"), ("a.py", "2"), ("parts/b.c", ""), ("parts/b.h", "1"), ("c.txt", "1")]:
        (tmp_path / name).write_text(content)
        os.utime(tmp_path / name, (1, 1))
        digests.add(stored._sources.__wrapped__())
    assert len(digests) == 4
    monkeypatch.setattr(stored.sys, "version", "4.0")
    assert stored._sources.__wrapped__() not in digests


def test_sources_that_are_newer_than_the_process_decide_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(toolchain, "HERE", tmp_path)
    (tmp_path / "a.py").write_text("")
    os.utime(tmp_path / "a.py", (time.time() + 9,) * 2)
    assert stored._sources.__wrapped__() is None
    monkeypatch.setattr(stored, "_sources", lambda: None)
    loaded(text())[0].check()
    assert not loaded(text())[1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: store.sealed(b"not a program"),
        lambda data: store.sealed(stored.zlib.compress(b"not a program")),
        lambda data: store.sealed(stored.zlib.compress(stored.marshal.dumps((1, 2)))),
        lambda data: store.sealed(stored.zlib.compress(stored.marshal.dumps(("k", (1, 2, 3), [], [], [], 0, [], [])))),
    ],
)
def test_a_broken_entry_is_translated_again(folder, damage):
    want = outcome(loaded(text())[0])
    (entry,) = folder.iterdir()
    good = entry.read_bytes()
    entry.write_bytes(damage(good))
    kernel, found = loaded(text())
    assert not found and outcome(kernel) == want and entry.read_bytes() == good


def test_directives_are_kept():
    source = text().replace(".reqntid 64, 1, 1", ".maxntid 64 .maxnreg 80 .minnctapersm 2 .maxclusterrank 4")
    (first, from_store), _ = loaded(source), outcome(loaded(source)[0])
    second, again = loaded(source)
    assert (from_store, again) == (False, True)
    names = ("reqntid", "maxntid", "cluster", "max_cluster", "min_ctas", "registers_per_thread")
    kept = [getattr(second.entry, name) for name in names]
    assert kept == [getattr(first.entry, name) for name in names] == [None, (64, 1, 1), None, 4, 2, 80]


def test_a_kernel_from_the_store_is_recorded():
    """The records need operands, which the store lacks."""
    outcome(loaded(text())[0])
    (kernel, from_store), traces = loaded(text()), []
    out = nogpu.array(np.zeros(64, np.uint32))
    kernel.launch(1, 64, [out, 5], record=traces.append)
    (trace,) = traces
    stores = [r.words for r in trace.records(0, 1) if trace.instructions[r.pc].opcode == "st.shared.v2.b32"]
    assert from_store and stores == [(1 | 8 << 8 | 32 << 16, 2)] and out.any()


def test_followed_programs_have_the_whole_kernel():
    loaded(text())[0].check()
    kernel, found = loaded(text())
    assert found
    followed = translate.translate(kernel.entry, follows_registers=True)
    assert not isinstance(followed.entry, StoredEntry) and followed.entry.instructions[0].operands
    assert isinstance(translate.translate(kernel.entry).entry, StoredEntry)


@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_a_folder_that_others_can_write_to_is_not_used(tmp_path, monkeypatch, mode):
    """The folder in the temporary folder replaces it."""
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for place in ("nogpu", f"nogpu-{os.getuid()}"):
        found = store._folder.__wrapped__("programs")
        assert found == tmp_path / place / "programs" and found.stat().st_mode & 0o777 == 0o700
        found.chmod(mode)
    assert store._folder.__wrapped__("programs") is None


def test_without_a_folder_everything_is_translated(monkeypatch):
    monkeypatch.setattr(store, "_folder", lambda name: None)
    loaded(text())[0].check()
    assert not loaded(text())[1]


def test_what_measures_translation_leaves_entries_alone(folder, monkeypatch):
    loaded(text())[0].check()
    with store.unused():
        assert not loaded(text())[1]
    assert loaded(text())[1]
    monkeypatch.setattr(store, "read", lambda entry: pytest.fail("read"))
    monkeypatch.setattr(store, "write", lambda *args: pytest.fail("written"))
    assert len(bench._translations(1)) == 1


def test_entries_are_whole_while_others_write_them(tmp_path):
    entry, over = tmp_path / "entry", threading.Event()

    def write(letter):
        while not over.is_set():
            store.write(entry, letter * 100_000, 4)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b")]
    for thread in threads:
        thread.start()
    while not entry.exists():
        time.sleep(0.001)
    read = {store.read(entry) for _ in range(100)}
    over.set()
    for thread in threads:
        thread.join()
    assert read <= {b"a" * 100_000, b"b" * 100_000} and os.listdir(tmp_path) == ["entry"]
