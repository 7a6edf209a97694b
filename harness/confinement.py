"""Confines a worker process to what it may do, under a keeper that ends all that the worker has started."""

from __future__ import annotations

import glob
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from harness import landlock, namespaces, seccomp
from harness.linux import PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, prctl

DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "dri")
"""Entries of /dev that a worker may write to: no terminal, no disk. A pattern may name a folder."""

OWN_PROCESS = "/proc/self"
"""The place where CUDA names its threads (task/TID/comm); without it cuInit returns 304."""

ADOPTION_PAUSE_S = 0.0005


@dataclass(frozen=True)
class Confinement:
    """The files and folders that a worker may change. Everything else is read-only."""

    writable: tuple[Path, ...]  # folders and files
    keeps_rights: bool = False  # true if it keeps capabilities and namespaces, which a profiler around it needs

    def enter(self) -> int:
        """Put this process and all that it starts under these rules. Returns Landlock's ABI, 0 if there is none.

        Raises OSError if the kernel refuses. Must be called before a second thread starts.
        """
        if not self.keeps_rights:
            namespaces.enter(self.writable)
            namespaces.drop_capabilities()
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        seccomp.install()
        return landlock.restrict([*self._places(), namespaces.PROCESSES])

    def keep_to_itself(self) -> None:
        """Confine this process further: of the entries in /proc, it and its threads may change only their own.

        Raises OSError if the kernel refuses. Must be called before a second thread starts.
        """
        os.set_inheritable(os.open(OWN_PROCESS, os.O_PATH), True)  # open, to keep the rule's entry alive
        landlock.restrict([*self._places(), OWN_PROCESS])

    def _places(self) -> list[Path]:
        devices = [Path(path) for name in DEVICES for path in glob.glob(f"/dev/{name}")]
        return [*self.writable, *devices, namespaces.SHARED_MEMORY]


def shortcomings() -> str:
    """A sentence about the acts from which this kernel cannot keep a worker; empty if there are none."""
    version = landlock.abi()
    if version < landlock.LEAST_ABI:
        return (
            "this kernel has no Landlock: the submission can end the judge, and change files unless the kernel lets it "
            "enter namespaces"
        )
    if version < landlock.FILES_ABI:
        return "Landlock is older than Linux 6.2: the submission can cut off files, this project's among them"
    if version < landlock.SCOPES_ABI:
        return "Landlock is older than Linux 6.12: the submission can send signals to the judge"
    return ""


# ---- The keeper of a worker ----


def fork_confined(confinement: Confinement, judge: int) -> None:
    """Confine this process and return in a child that is confined further; the process itself becomes its keeper.

    The keeper ends at SIGTERM or after the child, with the child's status. Before it ends, it kills every process of
    its domain: one system call reaches all of them, however fast they fork. The child cannot reach the keeper, which is
    outside of the child's domain. If Landlock has no scopes for signals, there is no keeper, and this process returns.

    judge: the number of the process that adopts this one, whose parent is about to end.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    while os.getppid() != judge:
        time.sleep(ADOPTION_PAUSE_S)
    prctl(PR_SET_DUMPABLE, 1)  # otherwise root owns this process's files in /proc
    scoped = confinement.enter() >= landlock.SCOPES_ABI
    _die_with(judge)
    if scoped:
        keeper, child = os.getpid(), os.fork()
        if child:
            _keep(child, judge)
        _die_with(keeper)
    confinement.keep_to_itself()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGCHLD})


def _die_with(parent: int) -> None:
    """End this process when its parent ends: a killed judge must not leave a hung kernel behind."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _keep(child: int, judge: int) -> NoReturn:
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    status = None
    while status is None:
        number = signal.sigwait({signal.SIGTERM, signal.SIGCHLD})
        ended, found = os.waitpid(child, os.WNOHANG)
        if ended:
            status = found
        elif number == signal.SIGTERM:
            status = signal.SIGKILL
    try:
        os.kill(judge, 0)
    except PermissionError:  # no signal leaves the domain, so -1 means the processes in it
        with suppress(ProcessLookupError, PermissionError):
            os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass
    _end_as(status)


def _end_as(status: int) -> NoReturn:
    """End this process with the wait status of another one."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with suppress(OSError):  # SIGKILL, whose action cannot be set
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
