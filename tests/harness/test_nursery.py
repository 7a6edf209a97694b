"""Workers from the nursery: forks or new interpreters, their folders and their output."""

import os
import time

import pytest

from harness import landlock
from harness.confinement import shortcomings
from harness.folders import KEPT_HOMES, make_folders
from harness.nursery_process import link_files
from harness.relay import MOST_BYTES, Relay
from tests.support.commands import BEHAVIOURS, ROOT, run_eval, spec_line

RUN = """
import sys
from pathlib import Path
from harness import seccomp
from harness.devices import EMULATOR
from harness.linux import PR_SET_NO_NEW_PRIVS, prctl
from harness.submissions import Submission
from harness.worker import Worker
from task import GROUP_GEMM

if sys.argv[2] == "no namespaces":  # as in most containers
    seccomp.REFUSED, seccomp.LIMITED = {"unshare": (272, 97)}, {}
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install()
with Worker(Submission.of(Path(sys.argv[1])), 100, preloads=sys.argv[2] != "interpreters") as worker:
    for spec in GROUP_GEMM.parse_specs(sys.argv[3:]):
        result = worker.run(EMULATOR.jobs["test"].run, GROUP_GEMM, spec)
        print(result.passed, result.message)
print(worker.folders.temporary.exists())
"""


@pytest.mark.slow
@pytest.mark.parametrize("start", ["forks", "interpreters", "no namespaces"])
def test_a_worker_that_ended_is_followed_by_another(start):
    lines = [spec_line(name) for name in ("good", "leaves", "good")]
    run = run_eval("-m", "nogpu", "-c", RUN, BEHAVIOURS, start, *lines, script="", PYTHONPATH=str(ROOT))
    expected = ["True bit-exact", "False the worker process exited with code 4", "True bit-exact", "False"]
    assert run.stdout.splitlines() == expected, run.stderr


def test_homes_of_the_submissions_that_ran_last_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for number in range(KEPT_HOMES + 2):
        folders = make_folders(f"{number:02}")
        os.utime(folders.home, (number, number))
        (folders.temporary / "closed").mkdir(mode=0)
        folders.remove()
        assert not folders.temporary.exists()
    kept = sorted(path.name for path in (tmp_path / "nvfp4-worker").iterdir())
    assert kept == [f"{number:02}" for number in range(2, KEPT_HOMES + 2)]
    assert make_folders("17").home == tmp_path / "nvfp4-worker" / "17"


def test_a_cache_is_named_by_an_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    folders = make_folders("digest")
    assert folders.home == tmp_path / "home" / ".cache" / "nvfp4-worker" / "digest"
    folders.remove()


def test_links_that_cannot_be_made_are_left_out(tmp_path):
    """An earlier worker has made a file in a folder's place, or something else in a link's."""
    cache, folder = tmp_path / "cache", tmp_path / "home"
    for kind in ("first", "second"):
        (cache / kind).mkdir(parents=True)
        for name in ("a", "b"):
            (cache / kind / name).write_text(name)
    (folder / "second").mkdir(parents=True)
    (folder / "first").touch()
    (folder / "second" / "a").mkdir()
    link_files(cache, folder)
    assert (folder / "second" / "b").readlink() == cache / "second" / "b" and (folder / "first").is_file()


def test_without_a_cache_the_home_is_temporary(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    folders = make_folders("digest")
    assert folders.home.parent == folders.temporary
    environment = folders.environment()
    assert environment["HOME"] == str(folders.home) and "XDG_CACHE_HOME" not in environment
    folders.remove()


@pytest.mark.parametrize(
    ("version", "text"),
    [(0, "no Landlock"), (2, "can cut off files"), (5, "can send signals to the judge"), (6, ""), (7, "")],
)
def test_what_a_kernel_cannot_prevent_is_said(monkeypatch, version, text):
    monkeypatch.setattr(landlock, "abi", lambda: version)
    assert text in shortcomings() and bool(shortcomings()) == bool(text)


def relayed(data, shown=True):
    """The bytes that a relay writes to a stdout."""
    reading, writing = os.pipe()
    relay = Relay((writing, writing) if shown else (None, None))
    copies = [os.dup(fd) for fd in relay.writing]
    relay.start()
    os.set_blocking(reading, False)
    text, rest = b"", memoryview(data)
    while rest:
        rest = rest[os.write(copies[0], rest[: 1 << 15]) :]
        text += drained(reading)
    for fd in copies:
        os.close(fd)
    while relay.thread.is_alive():
        text += drained(reading)
        time.sleep(0.001)
    os.close(writing)
    text += drained(reading)
    os.close(reading)
    return text


def drained(fd):
    text = b""
    try:
        while part := os.read(fd, 1 << 16):
            text += part
    except BlockingIOError:
        pass
    return text


def test_output_is_shown_without_control_characters_and_up_to_a_limit():
    assert relayed("ä\n\t\x1b[2J\r\x9b \udcff".encode(errors="surrogateescape")) == (
        "ä\n\t\\x1b[2J\\r\\x9b \\xff".encode()
    )
    text = relayed(b"x" * (MOST_BYTES + 5000))
    assert text == b"x" * MOST_BYTES + b"\n(5,000 bytes more of the submission's output are not shown)\n"
    assert relayed(b"text", shown=False) == b""


def test_an_output_that_stands_still_stops_the_thread_that_copies_alone():
    """An output stands still like a stopped terminal."""
    reading, writing = os.pipe()
    relay = Relay((writing, writing))
    copies = [os.dup(fd) for fd in relay.writing]
    relay.start()
    os.set_blocking(copies[0], False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(copies[0], b"x" * 4096)
            time.sleep(0.001)
    for fd in copies:
        os.close(fd)
    assert relay.thread.is_alive(), "and a worker is stopped by its full pipe"
    os.set_blocking(reading, False)
    while relay.thread.is_alive():
        drained(reading)
    for fd in (reading, writing):
        os.close(fd)
