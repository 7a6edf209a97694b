"""The process that starts workers, from code that it loaded before a submission ran.

    python -m harness.nursery_process SOCKET SETTING     a descriptor, and a nursery.Setting as JSON

A request on the socket brings the descriptors of a worker's socket and shared memory. The process forks, and the child
confines itself before it reads a file again. So even where the kernel cannot keep a submission from changing the files
of the project, of Python or of a library, a submission changes no code that confines a later worker. No submission's
code runs in this process. The process ends with the judge; a worker becomes a child of the judge.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import msgspec

from harness.confinement import Confinement, fork_confined
from harness.folders import Folders
from harness.interpreter import leave, without_collection
from harness.linux import PR_SET_DUMPABLE, PR_SET_PDEATHSIG, prctl
from harness.nursery import MOST_BYTES, Setting


def preload() -> None:
    """Import a worker's modules for the emulated device, and load the emulator's compiled functions."""
    with without_collection():
        import harness.outputs
        import harness.runner
        import harness.shared_memory  # noqa: F401
        import nogpu

        nogpu.preload()


def emulators_cache() -> Path | None:
    """The emulator's own cache, which no worker can change; None if the emulator does not run in this process."""
    if not os.environ.get("NOGPU"):
        return None
    from nogpu import store

    return store.root()


def link_files(source: Path, folder: Path) -> None:
    """Make links in a worker's folder to the entries of the emulator's cache, to save compiling them.

    Links that a full disk or an entry of an earlier worker prevents are left out.
    """
    for kind in source.iterdir():
        if kind.is_dir():
            with suppress(OSError):
                (folder / kind.name).mkdir(mode=0o700, parents=True, exist_ok=True)
            for entry in os.scandir(kind):
                if entry.is_file():
                    with suppress(OSError):
                        os.symlink(entry.path, folder / kind.name / entry.name)


def start_worker(setting: Setting, connection: int, memory: int, judge: int) -> int:
    """Start a worker, which the judge adopts, and return the worker's process number.

    connection, memory: descriptors of the worker's socket and of the shared memory.
    """
    reading, writing = os.pipe()
    parent = os.fork()
    if not parent:  # the parent of the worker, which ends at once so that the judge adopts it
        child = os.fork()
        if child:
            os.write(writing, str(child).encode())
            os._exit(0)
        try:
            close_all_but(connection, memory)
            become_worker(setting, connection, memory, judge)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.waitpid(parent, 0)
    os.close(writing)
    with os.fdopen(reading) as numbers:
        return int(numbers.read())


def close_all_but(*descriptors: int) -> None:
    """Close all descriptors but these and the three standard ones, among them this process's socket to the judge."""
    for first, last in pairwise([2, *sorted(descriptors), os.sysconf("SC_OPEN_MAX")]):
        os.closerange(first + 1, last)


def become_worker(setting: Setting, connection: int, memory: int, judge: int) -> NoReturn:
    """Confine this process and serve the judge."""
    folders = Folders(Path(setting.home), Path(setting.temporary))
    writable = [folders.home, folders.temporary, *map(Path, setting.files)]
    environment = folders.environment()
    if setting.keeps_rights:  # a common folder, in which a profiler's processes meet
        environment["TMPDIR"] = tempfile.gettempdir()
        writable.append(Path(tempfile.gettempdir()))
    cache = emulators_cache()
    fork_confined(Confinement(tuple(writable), setting.keeps_rights), judge)
    if cache:
        link_files(cache, folders.home / ".cache" / cache.name)
    if not setting.preloads:
        for fd in (connection, memory):
            os.set_inheritable(fd, True)
        arguments = setting.submission, str(connection), str(memory)
        os.execve(sys.executable, [sys.executable, "-P", "-m", "harness.runner", *arguments], environment)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # makes tempfile read the new environment
    from harness.runner import serve

    serve(setting.submission, connection, memory)
    leave(0)


def main() -> None:
    judge = os.getppid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_DUMPABLE, 0)  # hides this process's memory from other processes, also on a kernel without Landlock
    setting = msgspec.convert(json.loads(sys.argv[2]), Setting)
    try:
        emulators_cache()  # loads its module now
        if setting.preloads:
            preload()
    except (OSError, RuntimeError) as error:  # no compiler, or no folder for compiled code
        sys.exit(f"eval.py: {error}")
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        while True:
            request, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, 2)
            if not request:
                break
            if len(os.listdir("/proc/self/task")) > 1:
                answer = "the process that starts workers has a second thread, which a fork would not have"
            else:
                answer = str(start_worker(setting, descriptors[0], descriptors[1], judge))
            for fd in descriptors:
                os.close(fd)
            requests.send(answer.encode())
    leave(0)


if __name__ == "__main__":
    main()
