"""Confined processes: the limits of their reach, and the end of all that they start."""

import os
import platform
import pty
import re
import subprocess
import sys
import termios
import textwrap
from pathlib import Path

import pytest

from harness import landlock, seccomp
from tests.support.commands import ROOT

needs_landlock = pytest.mark.skipif(landlock.abi() < landlock.LEAST_ABI, reason="this kernel's Landlock is too old")


def run_python(code, **options):
    variables = {name: options.pop(name) for name in list(options) if name.isupper()}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, **options)


CONFINED = """
    import os, termios
    from pathlib import Path
    from harness.confinement import Confinement
    folder = Path(os.environ["FOLDER"])
    def tries(what):
        try:
            what()
        except (OSError, termios.error) as error:
            return error.args[1]
        return "done"
"""

REACH = (
    CONFINED
    + """
    if os.environ["CONFINED"]:
        assert Confinement((folder / "own",)).enter() >= 2
    parent = f"/proc/{os.getppid()}"
    print(tries(lambda: open(f"{parent}/mem", "rb")), tries(lambda: os.listdir(f"{parent}/fd") and
        os.stat(f"{parent}/fd/0")), tries(lambda: os.kill(os.getppid(), 0)), sep=", ")
"""
)


@needs_landlock
def test_a_confined_process_does_not_reach_its_parent(tmp_path):
    (tmp_path / "own").mkdir()
    assert run_python(REACH, CONFINED="", FOLDER=str(tmp_path)).stdout == "done, done, done\n"
    run = run_python(REACH, CONFINED="1", FOLDER=str(tmp_path))
    scoped = landlock.abi() >= landlock.SCOPES_ABI
    killed = "Operation not permitted" if scoped else "done"
    assert run.stdout == f"Permission denied, Permission denied, {killed}\n", run.stderr


FILES = (
    CONFINED
    + """
    assert Confinement((folder / "own", folder / "named"), bool(os.environ["KEEPS_RIGHTS"])).enter()
    for place in ("own", "other"):
        made, kept = folder / place / "made", folder / place / "kept"
        print(tries(made.touch) == "done", tries(lambda: kept.open("a")) == "done",
            tries(lambda: os.truncate(kept, 0)) == "done", tries(lambda: kept.rename(f"{kept}.new")) == "done",
            tries((folder / place / "folder").rmdir) == "done")
    print(tries(lambda: (folder / "named").write_text("written")), tries(lambda: (folder / "named").unlink()) == "done")
    print((folder / "other" / "kept").read_text(), tries(lambda: open("/dev/null", "w")), os.getuid())
"""
)


@pytest.mark.skipif(landlock.abi() < landlock.FILES_ABI, reason="this kernel's Landlock is too old")
@pytest.mark.parametrize("keeps_rights", ["", "1"])
def test_files_change_in_named_places_only(tmp_path, keeps_rights):
    """Files are also safe where the kernel refuses namespaces, which a process that keeps its rights does not enter."""
    for place in ("own", "other"):
        (tmp_path / place / "folder").mkdir(parents=True)
        (tmp_path / place / "kept").write_text("content")
    (tmp_path / "named").touch()
    run = run_python(FILES, FOLDER=str(tmp_path), KEEPS_RIGHTS=keeps_rights)
    expected = f"{'True ' * 4}True\n{'False ' * 4}False\ndone False\ncontent done {os.getuid()}\n"
    assert run.stdout == expected, run.stderr
    assert (tmp_path / "named").read_text() == "written"


PROCESSES = (
    CONFINED
    + """
    import threading
    from harness.confinement import fork_confined
    judge = os.getpid()
    if not os.fork():
        fork_confined(Confinement((folder,), bool(os.environ["KEEPS_RIGHTS"])), judge)
        release = threading.Event()
        thread = threading.Thread(target=release.wait)
        thread.start()
        names = [f"/proc/self/task/{thread.native_id}/comm", "/proc/self/comm", f"/proc/{judge}/oom_score_adj",
            f"/proc/{os.getppid()}/oom_score_adj", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"]
        print(*(tries(lambda: os.close(os.open(name, os.O_WRONLY))) == "done" for name in names))
        release.set()
        thread.join()
        os._exit(0)
    os.wait()
"""
)


@needs_landlock
@pytest.mark.parametrize("keeps_rights", ["", "1"])
def test_a_confined_process_names_its_threads_only(tmp_path, keeps_rights):
    """Without them cuInit fails with CUDA_ERROR_OPERATING_SYSTEM; the other entries of /proc stay closed."""
    run = run_python(PROCESSES, FOLDER=str(tmp_path), KEEPS_RIGHTS=keeps_rights, PYTHONUNBUFFERED="1")
    assert run.stdout == f"True True{' False' * 4}\n", run.stderr


TERMINAL = (
    CONFINED
    + """
    import fcntl
    fd = os.open(os.environ["TERMINAL"], os.O_RDONLY | os.O_NOCTTY)  # as one that a parent leaves open
    attributes = termios.tcgetattr(fd)
    if os.environ["CONFINED"]:
        Confinement((folder,)).enter()
    results = [tries(lambda: open(os.environ["TERMINAL"], "w"))]
    attributes[3] &= ~termios.ECHO
    results += [tries(lambda: termios.tcsetattr(fd, termios.TCSANOW, attributes)),
        tries(lambda: termios.tcflow(fd, termios.TCOOFF)), tries(lambda: termios.tcflow(fd, termios.TCOON)),
        tries(lambda: fcntl.ioctl(fd, 0x5412, b"x"))]
    print(*results, sep=", ")
"""
)


@needs_landlock
def test_a_terminal_is_out_of_reach(tmp_path):
    """A terminal cannot be opened by name, and an open descriptor changes neither settings nor flow nor input."""
    main, side = pty.openpty()
    before = termios.tcgetattr(side)
    run = run_python(TERMINAL, CONFINED="1", FOLDER=str(tmp_path), TERMINAL=os.ttyname(side))
    texts = run.stdout.strip().split(", ")
    assert texts[0] in ("Permission denied", "Read-only file system") and "done" not in texts and len(texts) == 5, (
        run.stdout + run.stderr
    )
    assert termios.tcgetattr(side) == before
    run = run_python(TERMINAL, CONFINED="", FOLDER=str(tmp_path), TERMINAL=os.ttyname(side))
    assert run.stdout.startswith("done, done, done, done"), run.stdout + run.stderr
    os.close(main)
    os.close(side)


def numbers(path):
    text = Path(path).read_text()
    return {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)\n", text)}


HEADERS = ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm-generic/unistd.h")  # in MACHINES' order


@pytest.mark.parametrize(("machine", "header"), list(enumerate(HEADERS)))
def test_numbers_of_system_calls_are_the_kernels(machine, header):
    if not Path(header).exists():
        pytest.skip(f"{header} is missing")
    known = numbers(header)
    calls = {**seccomp.REFUSED, **{name: of for name, (of, _) in seccomp.LIMITED.items()}, "ioctl": seccomp.IOCTL}
    found = {name: of[machine] for name, of in calls.items() if name in known}
    assert found == {name: known[name] for name in found} and len(found) > 50


def verdict(machine, number, *arguments, architecture=None):
    """The filter's answer to a call."""
    known = seccomp.ARCHITECTURES[machine] if architecture is None else architecture
    words = {seccomp.AT_NUMBER: number, seccomp.AT_ARCHITECTURE: known}
    words |= {seccomp.AT_ARGUMENT_0 + seccomp.ARGUMENT_BYTES * at: value for at, value in enumerate(arguments)}
    code, at, word = seccomp.program(machine), 0, 0
    while True:
        kind, if_true, if_false, constant = code[at]
        at += 1
        if kind == seccomp.LOAD_WORD:
            word = words[constant]
        elif kind == seccomp.AND:
            word &= constant
        elif kind == seccomp.RETURN:
            return {seccomp.ALLOW: "allowed", seccomp.REFUSE: "refused"}[constant]
        else:
            at += if_true if (word == constant if kind == seccomp.JUMP_EQUAL else word >= constant) else if_false


@pytest.mark.parametrize("machine", range(len(seccomp.MACHINES)))
def test_the_filter_refuses_what_it_lists(machine):
    assert all(verdict(machine, of[machine]) == "refused" for of in seccomp.REFUSED.values())
    for of, allowed in seccomp.LIMITED.values():
        own = [allowed.get(at, 9) for at in range(4)]
        assert verdict(machine, of[machine], *own) == "allowed"
        for at in allowed:
            assert (
                verdict(machine, of[machine], *(7 if one == at else value for one, value in enumerate(own)))
                == "refused"
            )
    ioctl, getpid = seccomp.IOCTL[machine], (39, 172)[machine]
    assert verdict(machine, ioctl, 1, 0x5401) == verdict(machine, ioctl, 1, 0xC0104601) == "allowed"
    for request in (0x5412, 0x402C542B, 0x540A):
        assert verdict(machine, ioctl, 1, request) == "refused"
    assert verdict(machine, getpid) == "allowed"
    assert (
        verdict(machine, getpid + seccomp.OTHER_ABI) == verdict(machine, getpid, architecture=0x40000003) == "refused"
    )


PRIORITY = (
    CONFINED
    + """
    Confinement((folder,)).enter()
    print(tries(lambda: os.setpriority(os.PRIO_PROCESS, 0, 5)), tries(lambda: os.setpriority(os.PRIO_PROCESS,
        os.getppid(), 5)), tries(lambda: os.setpriority(os.PRIO_USER, 0, 5)),
        tries(lambda: os.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0))), sep=", ")
"""
)


@pytest.mark.skipif(platform.machine() not in seccomp.MACHINES, reason="no filter for this machine")
def test_its_own_priority_changes_and_no_others(tmp_path):
    run = run_python(PRIORITY, FOLDER=str(tmp_path))
    assert run.stdout == "done" + ", Operation not permitted" * 3 + "\n", run.stderr


FORKS = """
import os, time
for _ in range(6):
    if not os.fork():
        os.setsid()
if os.fork():
    os._exit(0)  # the rest are orphans
time.sleep(600)
"""

TREE = """
    import os, subprocess, sys, time
    from harness.processes import children, end_descendants, protect_from_children
    protect_from_children()
    kept = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    spared = children()
    subprocess.Popen([sys.executable, "-c", os.environ["FORKS"]])
    deadline = time.monotonic() + 30
    while len(children()) < 65 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(children()) >= 65
    assert end_descendants(spared)
    assert children() == spared == {kept.pid} and kept.poll() is None
    print("all gone")
    kept.communicate(b"")
"""


def test_orphans_in_sessions_of_their_own_are_ended_and_others_are_spared():
    run = run_python(TREE, FORKS=FORKS)
    assert run.stdout == "all gone\n", run.stderr
