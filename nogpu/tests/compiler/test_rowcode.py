"""Row code: watched programs, kernels against calls."""

import ctypes
import gc

import numpy as np
import pytest

from nogpu.compiler import translate
from nogpu.compiler.operands import LANE_SPECIALS, UNIFORM_SPECIALS
from nogpu.compiler.plan import plan
from nogpu.compiler.rowcode.image import OP
from nogpu.errors import EmulatorError
from nogpu.hardware import native
from nogpu.hardware.grid import Grid
from nogpu.hardware.memory import GlobalMemory
from tests.support.emulated import run
from tests.support.small_kernels import entry, launch, module, store

BRANCHES = """
    and.b32 %r1, %tid, 3; setp.eq.u32 %p1, %r1, 1; mov.u32 %r2, 7; mov.u32 %r3, 0;
LOOP: @%p1 add.u32 %r2, %r2, %tid; @%p1 bra ODD; xor.b32 %r2, %r2, 5; bra NEXT;
ODD: shl.b32 %r2, %r2, 1;
NEXT: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 9; @%p2 bra LOOP;
    shfl.sync.bfly.b32 %r4, %r2, 3, 31, -1; vote.sync.ballot.b32 %r5, %p1, -1; add.u32 %r2, %r4, %r5;
"""


@pytest.mark.parametrize("schedule", ["late", "random:3"])
def test_kernels_do_what_calls_do(schedule):
    results = []
    for kernels in (True, False):
        out = np.zeros(64, np.uint32)
        counters = launch(BRANCHES + store("%r2"), out, threads=64, schedule=schedule, kernels=kernels)
        results.append((out.tolist(), counters))
    assert results[0] == results[1] and len(set(results[0][0])) > 4


def test_a_watched_program_names_every_instruction():
    """The call comes before each instruction, with its lanes; a program that is not watched calls nothing."""
    seen = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(native.Context), ctypes.c_void_p)
    def watch(watcher, context, op):
        pc = np.frombuffer((ctypes.c_uint8 * OP.itemsize).from_address(op), OP)["pc"][0]
        seen.append((watcher, int(pc), context.contents.mask))

    body = (
        "setp.lt.u32 %p1, %tid, 5; mov.u32 %r1, 1; @%p1 add.u32 %r1, %r1, 2; @!%p1 bra END; sub.u32 %r1, %r1, 1; END:"
    )
    out = np.zeros(32, np.uint32)
    launch(body + store("%r1"), out, watch=ctypes.cast(watch, ctypes.c_void_p).value, watcher=77)
    assert out.tolist() == [2] * 5 + [1] * 27 and {watcher for watcher, _, _ in seen} == {77}
    texts = [instruction.opcode for instruction in plan(entry(body + store("%r1"))).entry.instructions]
    lanes = {texts[pc]: mask for _, pc, mask in seen}
    assert lanes["add.u32"] == lanes["sub.u32"] == 0b11111 and lanes["setp.lt.u32"] == lanes["ret"] == 0xFFFFFFFF
    assert [pc for _, pc, _ in seen] == list(range(len(texts)))
    before = len(seen)
    launch(body + store("%r1"), out)
    assert len(seen) == before


def test_ctrl_c_stops_a_kernel_that_spins():
    """A counter keeps states from repeating; the signal is handled between two turns."""
    spin = module("mov.u64 %rd2, 0; A: add.u64 %rd2, %rd2, 1; bra A;", 0)
    program = f"""if True:
        import os, signal, threading, time
        import nogpu
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        kernel = nogpu.load_ptx({spin!r})["k"]
        threading.Timer(0.3, lambda: (started.append(time.monotonic()), os.kill(os.getpid(), signal.SIGINT))).start()
        started = []
        try:
            kernel.launch(1, 32)
        except KeyboardInterrupt:
            print(time.monotonic() - started[0] < 1)
    """
    process = run("-c", program, options=("--workers", "1"))
    assert (process.returncode, process.stdout) == (0, "True\n"), process.stderr


def test_interrupts_in_python_rows_are_not_lost():
    """A signal may end the Python function that compiled code calls before its first instruction."""
    loop = module("A: bar.sync 0; bra A;", 0)
    program = f"""if True:
        import signal
        import nogpu
        kernel = nogpu.load_ptx({loop!r})["k"]
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        caught = 0
        for _ in range(12):
            signal.setitimer(signal.ITIMER_REAL, 0.03)
            try:
                kernel.launch(1, 32)
            except KeyboardInterrupt:
                caught += 1
        print(caught)
    """
    assert run("-c", program, options=("--workers", "1")).stdout == "12\n"


BOTH = pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "calls"])


@BOTH
@pytest.mark.parametrize(
    "body, reason",
    [
        ("mov.u64 %rd2, 0; ld.shared.b32 %r1, [%rd2+-4];", "shared"),
        ("mov.u64 %rd2, 0; st.shared.b32 [%rd2+-4], %tid;", "shared"),
        (
            "setp.eq.u32 %p1, %tid, 31; selp.b64 %rd2, -4, %a0, %p1; ld.global.b32 %r1, [%rd2];",
            "load of 4 bytes at 0xfffffffffffffffc",
        ),
        (
            "setp.eq.u32 %p1, %tid, 31; selp.b64 %rd2, -8, %a0, %p1; st.global.b64 [%rd2], %rd2;",
            "store of 8 bytes at 0xfffffffffffffff8",
        ),
    ],
)
def test_accesses_at_the_end_of_the_address_space(kernels, body, reason):
    with pytest.raises(EmulatorError, match=reason):
        launch(body, np.zeros(32, np.uint32), kernels=kernels)


@BOTH
def test_every_special_register_can_be_read(kernels):
    """The kernel reads the modelled registers in a CTA whose warps do not all exist when the first one starts."""
    names = [name for name in (*UNIFORM_SPECIALS, *LANE_SPECIALS) if "64" not in name and name != "%globaltimer"]
    body = "\n".join(f"mov.u32 %r1, {name};" for name in names)
    launch(body, np.zeros(1, np.uint32), threads=96, kernels=kernels)
    out = np.zeros(96, np.uint32)
    launch("mov.u32 %r1, %nwarpid;" + store("%r1"), out, threads=96, kernels=kernels)
    assert set(out.tolist()) == {3}


@pytest.mark.parametrize("schedule", ["late", "random:1"])
def test_special_registers_are_sources_of_any_width(schedule):
    """Python reads the clock under random:1."""
    body = """
    mov.u16 %h1, %tid.x; mov.u64 %rd2, %tid.x; cvt.u8.u32 %h2, %laneid; add.u32 %r1, %ntid.x, %tid.x;
    cvt.u32.u16 %r2, %h1; cvt.u32.u64 %r3, %rd2; cvt.u32.u16 %r4, %h2; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;
    add.u32 %r1, %r1, %r4; sub.u64 %rd3, %clock64, %clock64; setp.lt.s64 %p1, %rd3, 0; selp.u32 %r5, 1000, 0, %p1;
    add.u32 %r1, %r1, %r5; setp.eq.u32 %p2, %tid, 40; @%p2 mad.lo.u32 %r1, %clock, 0, %r1;"""
    out = np.zeros(64, np.uint32)
    launch(body + store("%r1"), out, threads=64, schedule=schedule)
    assert out.tolist() == [1064 + 3 * thread + thread % 32 for thread in range(64)]


@BOTH
def test_unused_bits_of_a_shuffles_clamp(kernels):
    out = np.zeros(32, np.uint32)
    launch("shfl.sync.down.b32 %r1, %tid, 1, 0xffff001f, -1;" + store("%r1"), out, kernels=kernels)
    assert out.tolist() == [*range(1, 32), 31]


@BOTH
def test_every_access_to_an_observed_memory_is_seen(monkeypatch, kernels):
    seen, start = [], GlobalMemory.__init__

    def observed(memory):
        start(memory)
        memory.observer = lambda kind, *others: seen.append(kind)

    monkeypatch.setattr(GlobalMemory, "__init__", observed)
    body = "mul.wide.u32 %rd2, %tid, 4; add.s64 %rd2, %a0, %rd2; ld.global.b32 %r1, [%rd2]; st.global.b32 [%rd2], %r1;"
    launch(body, np.zeros(32, np.uint32), kernels=kernels)
    assert seen == ["load", "load", "store"]  # the first load is the parameter's


def test_a_program_keeps_no_grid(monkeypatch):
    programs, translated = [], translate.translate
    monkeypatch.setattr(translate, "translate", lambda *a, **o: programs.append(translated(*a, **o)) or programs[-1])
    launch("mov.u32 %r1, 1;" + store("%r1"), np.zeros(32, np.uint32))
    gc.collect()
    (program,) = programs
    assert not [thing for thing in gc.get_objects() if type(thing) is Grid and thing.program is program]
