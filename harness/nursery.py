"""The judge's side of the nursery: a process that is started before any submission runs, and that starts the workers.

harness.nursery_process is the nursery's own side.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import msgspec

from harness import ROOT
from harness.relay import Relay

END_TIMEOUT_S = 10
MOST_BYTES = 4096  # size limit of an answer


class NurseryLost(Exception):
    """The nursery has ended, does not answer in time, or cannot start a worker; the text says which."""


class Setting(msgspec.Struct):
    """The settings that all workers of a run share."""

    submission: str
    home: str
    temporary: str
    files: tuple[str, ...]  # files that a worker writes for the command line, beside its folders
    keeps_rights: bool  # see Confinement
    preloads: bool  # workers are forks with torch and the emulator in them; otherwise they start a new interpreter


class Child:
    """A child process of this one: its number and its pidfd."""

    def __init__(self, process: int):
        self.process, self.pidfd = process, os.pidfd_open(process)
        self.code: int | None = None

    def wait(self, timeout_s: float) -> int | None:
        """The exit code, negative for a signal; None for a process that runs on."""
        if self.code is None:
            poll = select.poll()
            poll.register(self.pidfd, select.POLLIN)
            if not poll.poll(max(0, timeout_s) * 1000):
                return None
            self.code = -signal.SIGKILL  # unless the status is still there
            with suppress(ChildProcessError):
                self.code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        return self.code

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGTERM)


class Nursery:
    """The nursery's process and the socket to it."""

    def __init__(self, setting: Setting, relay: Relay):
        """relay: takes the workers' output."""
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.relay = relay
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        arguments = str(theirs.fileno()), json.dumps(msgspec.structs.asdict(setting))  # ASCII, whatever the paths
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "harness.nursery_process", *arguments],
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=relay.writing[0],
                stderr=relay.writing[1],
            )
        relay.start()

    def order(self, connection: int, memory: int) -> None:
        """Ask for a worker with copies of these descriptors."""
        with suppress(OSError):  # a nursery that has ended, which `deliver` notices
            socket.send_fds(self.socket, [b"start"], [connection, memory])

    def deliver(self, deadline: float) -> Child:
        """Return the worker that was ordered. Raises NurseryLost. deadline: in time.monotonic's seconds."""
        try:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            answer = self.socket.recv(MOST_BYTES).decode(errors="replace")
        except TimeoutError:
            raise NurseryLost("the process that starts workers does not answer") from None
        except OSError:
            answer = ""
        if not answer.isdecimal():
            raise NurseryLost(answer or "the process that starts workers has ended")
        return Child(int(answer))

    def end(self) -> None:
        """End the process and show the rest of the workers' output. No worker may run any more."""
        self.socket.close()
        try:
            self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.relay.end()
