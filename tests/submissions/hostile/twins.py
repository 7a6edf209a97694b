"""Legal submissions that do within the contract what hostile ones do: every case must pass."""

import ctypes
import functools
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

import reference
from tests.submissions.hostile.kit import into_c, kind, right

kind("callers_c", "Into the caller's c")(lambda data: into_c(data))
kind("fresh_tensors", "Fresh tensors of its own")(lambda data: right(data))


@kind()
def half_and_half(data):
    """The first group in c, the others in fresh tensors"""
    first, *rest = right(data)
    return [data[0][0][2].copy_(first), *rest]


@kind()
def spaced_rows(data):
    """Fresh tensors whose rows have a gap between them"""
    outputs = []
    for result in right(data):
        m, n, _ = result.shape
        outputs.append(torch.zeros(m, n + 8, 1, dtype=torch.float16, device="cuda")[:, :n])
        outputs[-1].copy_(result)
    return outputs


kind("views_of_c", "Other tensor objects over the caller's c")(lambda data: [c.view(c.shape) for c in into_c(data)])
kind("column_major", "Fresh tensors with M contiguous")(
    lambda data: [result[:, :, 0].T.contiguous().T.unsqueeze(2) for result in right(data)]
)


@kind()
def within_tolerance(data):
    """One spacing of float16 off where that is within the tolerance"""
    outputs = right(data)
    outputs[0].view(torch.int16)[0, 0, 0] ^= 1
    return outputs


kind("minus_zero", "-0.0 where the result is 0.0")(
    lambda data: [torch.where(result == 0, -0.0, result) for result in right(data)]
)


@kind()
def prints():
    """Prints much, on both outputs"""
    for file in (sys.stdout, sys.stderr):
        print("compiling...\n" * 10_000, file=file)


@kind()
def threads(data):
    """Threads that it joins, one per group"""
    with ThreadPoolExecutor() as pool:
        results = pool.map(lambda group: right(([group[0]], [group[1]]))[0], zip(data[0], data[1]))
        return [c.copy_(result) for (_, _, c), result in zip(data[0], results)]


kind("daemon_thread", "A daemon thread that stays")(
    lambda: threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
)
kind("program", "A program that it starts and waits for")(
    lambda: subprocess.run([sys.executable, "-S", "-c", "print(1)"], check=True, capture_output=True)
)


@kind()
def process_pool():
    """A forked process that it waits for, and a pipe to it"""
    theirs, ours = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=theirs.send, args=("ready",))
    child.start()
    assert ours.recv() == "ready"
    child.join()


@kind()
def sockets():
    """A pair of sockets and one on the loopback, as compilers' caches have"""
    ours, theirs = socket.socketpair()
    ours.send(b"x")
    assert theirs.recv(1) == b"x"
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))


@functools.cache
def compiled():
    """A shared library from C source, compiled once in a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-twin-"))
    (folder / "one.c").write_text("int one(void) { return 1; }\n")
    subprocess.run(["gcc", "-shared", "-o", folder / "one.so", folder / "one.c"], check=True)
    library = ctypes.CDLL(str(folder / "one.so"))
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return library


@kind()
def compiled_code():
    """Code that it compiles in a temporary folder at the first call, and keeps"""
    assert compiled().one() == 1


@functools.cache
def workspace(sizes):
    return [torch.empty(m, n, 1, dtype=torch.float16, device="cuda") for m, n, _, _ in sizes]


@kind()
def kept_workspace(data):
    """A workspace that it keeps by the sizes, copied to c"""
    spaces = workspace(tuple(data[3]))
    return [c.copy_(space.copy_(result)) for (_, _, c), space, result in zip(data[0], spaces, right(data))]


@kind()
def random_numbers():
    """Draws random numbers with a seed of its own"""
    torch.manual_seed(1)
    torch.randn(100, device="cuda")


@kind()
def own_inputs(data):
    """Makes inputs of its own with reference.py and compares its result"""
    sizes = list(zip(*data[3]))
    other = reference.generate_input(*sizes[:3], len(data[3]), 1)
    passed, _ = reference.check_implementation(other, right(other))
    assert passed
    return into_c(data)


@kind()
def alarm():
    """A signal handler and a timer, both taken back"""
    was = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    time.sleep(0.01)
    signal.signal(signal.SIGALRM, was)


@kind()
def environment():
    """Variables, the working directory and the recursion limit changed"""
    os.environ["CUTE_DSL_ARCH"] = "sm_100a"
    os.chdir(tempfile.gettempdir())
    sys.setrecursionlimit(5000)


@kind()
def changed_inputs(data):
    """Uses the inputs' memory as scratch after reading them"""
    results = right(data)
    for a, _, _ in data[0]:
        a.view(torch.uint8).zero_()
    return [c.copy_(result) for (_, _, c), result in zip(data[0], results)]


kind("ranked", "Mode leaderboard", mode="leaderboard")(lambda data: into_c(data))
kind("benchmark", "Mode benchmark", mode="benchmark")(lambda data: into_c(data))
kind("gemv", "GEMV: a tensor", problem="gemv", line="m: 40; k: 128; l: 2; seed: 3")(
    lambda data: reference.gemv_ref_kernel(data)
)
kind("larger", "More memory than a run's first case", line="m: [3, 24]; n: [16, 8192]; k: [64, 512]; g: 2; seed: 3")(
    lambda data: into_c(data)
)
