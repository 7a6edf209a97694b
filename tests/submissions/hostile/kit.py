"""Tools of the hostile submissions: their register, plain results, patches, and the processes that they may attack."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import reference

FIRST_M = 2  # M of the first group in a run's first case; in a run of several cases M selects the case
TIMEOUT_S = 60.0
OVER = "over"  # file of a run's folder that exists once the run is judged, for attacks that cannot be caught
SERVICE = "service"  # socket in a run's folder, on which a process outside of eval.py listens
PROOF = "ran-in-the-harness"  # file of a run's folder, with the id of the process that wrote it
FAILS, PASSES, ANY = "fails", "passes", "any"  # a case's right verdict; ANY if only the harness's own conduct counts

KINDS: dict[str, "Kind"] = {}


@dataclass(frozen=True)
class Kind:
    """One hostile submission or legal twin."""

    name: str
    tries: str  # text for a sentence
    family: str
    act: Callable  # custom_kernel, or a function without arguments: see `answer`
    takes_data: bool = True
    verdict: str = FAILS
    at_import: bool = False
    alone: bool = False  # has a run of eval.py of its own, outside its family's
    mode: str = "test"
    problem: str = "group_gemm"
    line: str = ""  # the case's spec line; empty for a small case
    timeout_s: float = TIMEOUT_S  # value of --timeout; a special one where the case takes all of it
    then: tuple[str, ...] = ()  # kinds of the run's further cases
    protocol: str = "pipe"  # POPCORN_FD: a pipe of its own, that of "output" (stdout and stderr), a "file" of its own
    # (the output is another file), or none: a "person", a "reader" of a file, or a "terminal"
    options: tuple[str, ...] = ()  # options of eval.py, beside those of every run
    copied_tree: bool = False  # runs a copy of eval.py and the packages, which must stay unchanged


# Properties that a family's kinds share, where a kind does not say otherwise.
OF_FAMILY = {
    **dict.fromkeys(("surroundings", "memory", "descriptors", "judge"), {"alone": True}),
    "files": {"copied_tree": True},
    "processes": {"alone": True, "verdict": ANY},
    "twins": {"verdict": PASSES},
}


def kind(name: str = "", tries: str = "", **properties) -> Callable:
    """Register a function, or a lambda by this name; a function's docstring names the attempt."""

    def register(act: Callable) -> Callable:
        family = act.__module__.rpartition(".")[2]
        takes = bool(inspect.signature(act).parameters)
        texts = name or act.__name__, tries or act.__doc__, family
        kind = Kind(*texts, act, takes, **OF_FAMILY.get(family, {}) | properties)
        if kind.name in KINDS:
            raise ValueError(f"{kind.name}: in {KINDS[kind.name].family} and in {family}")
        special = (OF_FAMILY.get(family, {}) | properties).keys() - {"verdict", "timeout_s", "alone"}
        KINDS[kind.name] = replace(kind, alone=True) if special else kind
        return act

    return register


# ---- Results ----

right = reference.ref_kernel  # group GEMM's, in newly allocated tensors


def zeros(data):
    """The caller's c, zeroed: a wrong result that costs nothing."""
    return data[-1].zero_() if len(data) != 4 else [c.zero_() for _, _, c in data[0]]


def into_c(data):
    """The right result in the caller's c tensors."""
    return [c.copy_(result) for (_, _, c), result in zip(data[0], right(data))]


def answer(chosen: Kind, data):
    """Result of a kind's call: of a function without arguments zeros, or the right one where the case may pass."""
    if chosen.takes_data:
        return chosen.act(data)
    outputs = zeros(data)
    if not chosen.at_import:
        chosen.act()
    return outputs if chosen.at_import or chosen.verdict == FAILS else into_c(data)


# ---- Patches ----

_patched: list[tuple[object, str, list]] = []


def patch(owner, name, value):
    """Set an attribute until `undo`, which the next call of custom_kernel does first."""
    _patched.append((owner, name, [vars(owner)[name]] if name in vars(owner) else []))
    setattr(owner, name, value)


def undo():
    while _patched:
        owner, name, was = _patched.pop()
        if was:
            setattr(owner, name, *was)
        else:
            delattr(owner, name)


# ---- Other processes and files ----


def folder() -> Path:
    """The run's own folder, for the submission's traces."""
    return Path(os.environ["HOSTILE_FOLDER"])


def tree() -> Path:
    """The copy of the project that a run with copied_tree uses. Raises KeyError in other runs."""
    return Path(os.environ["HOSTILE_TREE"])


def ancestors() -> list[int]:
    """The harness's processes above this one, the nearest first, up to the one that runs the hostile submissions.

    No submission writes to, or signals, a process that is neither among these nor its own child.
    """
    runner, pid, found = int(os.environ["HOSTILE_RUNNER"]), os.getppid(), []
    while pid not in (0, 1, runner):
        found.append(pid)
        status = Path(f"/proc/{pid}/status").read_text()
        pid = int(status.split("PPid:")[1].split()[0])
    return found
