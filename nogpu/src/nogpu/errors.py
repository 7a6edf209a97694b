"""The emulator's two exceptions and its warning.

The code that checks a rule raises `Fault`, which says only what is wrong. The scheduler knows which warp broke the rule
and turns the fault into an `EmulatorError`, the one exception that a user of the emulator sees.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from nogpu.notes import note

EXIT_CODES = {"fault": 100, "hang": 101, "refused": 102}
"""`EmulatorError.kind` -> the exit code of a program that ends with it."""

_HANGS = re.compile(r"\Athe kernel hangs|\Astopped after ")
_BREAKS = re.compile(r"\Asanitizer, rule |schedules disagree|CTAs disagree")
_UNSUPPORTED = re.compile(r"not modelled|not understood")
_RULE = re.compile(r"\Asanitizer, rule ([\w-]+)")


class Fault(Exception):
    """A broken rule without its place. The reason names value, limit, rule and, for hardware, the PTX ISA's section."""

    def __init__(self, reason: str, place: tuple[tuple[int, int, int], int, int] | None = None):
        """place: index of the CTA, the warp and the instruction; None: those of the warp that runs."""
        super().__init__(reason)
        self.reason, self.place = reason, place


class UnknownHandle(Fault):
    """The fault of a handle that no queue and no event has."""


def _program() -> str:
    """The script that runs with its arguments, quoted for a shell; "PROGRAM" where it is no script."""
    name, *arguments = sys.argv or [""]
    return shlex.join([name, *arguments]) if name.endswith(".py") else "PROGRAM"


class EmulatorError(RuntimeError):
    """A broken rule in an emulated kernel with its place, or a launch or call that is refused.

    An attribute that is not known is None: a launch that was refused has no warp.
    """

    def __init__(
        self,
        reason: str,
        *,
        kernel: str | None = None,
        cta: tuple[int, int, int] | None = None,
        warp: int | None = None,
        ptx_line: int | None = None,
        ptx_text: str | None = None,
        source: str | None = None,
    ):
        self.reason = reason  # value, limit and rule
        self.kernel = kernel  # entry name
        self.cta = cta  # (x, y, z) in the grid
        self.warp = warp  # index in the CTA
        self.ptx_line = ptx_line  # 1-based line of the PTX text
        self.ptx_text = ptx_text  # the statement
        self.source = source  # "file.py:line", if the PTX has line information
        self.schedule: str | None = None  # schedule of the run that failed
        self.passed: tuple[str, ...] = ()  # schedules under which the launch had run to its end before
        self.shape: str | None = None  # grid, block and cluster of the launch
        self.is_noted = False
        super().__init__(reason)

    @property
    def kind(self) -> str:
        """A key of EXIT_CODES: a hang, a rule that a running kernel breaks, or a launch or call that is refused."""
        if _HANGS.search(self.reason):
            return "hang"
        if _BREAKS.search(self.reason) or (self.cta is not None and not _UNSUPPORTED.search(self.reason)):
            return "fault"
        return "refused"

    def note(self) -> None:
        """Adds the error to the program's notes (`notes.note`), once."""
        if not self.is_noted:
            self.is_noted = True
            file, _, line = (self.source or "").rpartition(":")
            rule = _RULE.search(self.reason)
            note(
                "fault",
                kind=self.kind,
                rule=rule and rule[1],
                reason=self.reason,
                kernel=self.kernel and readable(self.kernel),
                shape=self.shape,
                cta=self.cta,
                warp=self.warp,
                ptx_line=self.ptx_line,
                file=file or None,
                line=int(line) if line.isdigit() else None,
                schedule=self.schedule,
            )

    def __str__(self) -> str:
        lines = [self.reason]
        if self.kernel is not None:
            lines.append(f"  kernel   {readable(self.kernel)}")
        if self.cta is not None:
            warp = "" if self.warp is None else f" warp {self.warp}"
            shape = "" if self.shape is None else f"; launch of {self.shape}"
            lines.append(f"  at       CTA {self.cta}{warp}{shape}")
        if self.ptx_line is not None:
            lines.append(f"  PTX      line {self.ptx_line}: {self.ptx_text or ''}".rstrip())
        if self.source is not None:
            lines.append(f"  source   {self.source}")
        if self.schedule is not None:
            passed = f"; it does not happen under {', '.join(self.passed)}: the order of events decides"
            lines.append(f"  schedule {self.schedule}{passed if self.passed else ''}")
            if self.reason.startswith("sanitizer,"):
                lines.append(f"  replay   nogpu check --schedule {self.schedule} {_program()}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple:
        return _rebuild, (type(self), self.reason, {k: v for k, v in self.__dict__.items() if k != "reason"})


class OrderingWarning(UserWarning):
    """The warning that `ordering_fault` (in a lenient run) and `doubt` issue in place of a Fault."""


LENIENT = "NOGPU_LENIENT"
_LEVELS = {"1": True, "0": False}
_reported: set[tuple] = set()
_chosen: list[bool | None] = []  # choices of `leniency`, the innermost last


@contextmanager
def leniency(lenient: bool | None) -> Iterator[None]:
    """A context in which `lenient` stands for NOGPU_LENIENT: True for 1, False for 0. None changes nothing."""
    _chosen.append(is_lenient() if lenient is None else lenient)
    try:
        yield
    finally:
        _chosen.pop()


def is_lenient() -> bool | None:
    """True if broken rules of order are warnings, False if doubts are errors, None if neither."""
    return _chosen[-1] if _chosen else _LEVELS.get(os.environ.get(LENIENT, ""))


def ordering_fault(reason: str, place: tuple) -> None:
    """Reports a broken rule of order that a GPU does not check and that may do no harm, such as a missing fence.

    Raises Fault; with NOGPU_LENIENT=1 in the environment it warns instead, once for each `place` (any hashable
    tuple).
    """
    hint = " (--lenient, or lenient=True, only warns of it)"
    _report(reason, place, fails=is_lenient() is not True, hint=hint)


def doubt(reason: str, place: tuple) -> None:
    """Reports a use that the PTX ISA forbids or leaves open, although kernels with it run on B200s.

    Warns, once for each `place` (any hashable tuple); with NOGPU_LENIENT=0 in the environment it raises Fault.
    """
    _report(reason, place, fails=is_lenient() is False)


def _report(reason: str, place: tuple, fails: bool, hint: str = "") -> None:
    if fails:
        raise Fault(reason + hint)
    if place not in _reported:
        _reported.add(place)
        note("doubt", text=reason)
        warnings.warn(reason, OrderingWarning, stacklevel=3)


def _rebuild(cls: type[EmulatorError], reason: str, attributes: dict) -> EmulatorError:
    error = cls(reason)
    error.__dict__.update(attributes)
    return error


NAME_LIMIT = 160  # characters of a kernel's name in a message


@lru_cache(maxsize=1024)
def readable(name: str) -> str:
    """A kernel's name for messages: that of C++ demangled, where the C++ library is installed, and a long one cut."""
    shown = name
    library = _cxx_library() if name.startswith("_Z") else None
    if library is not None:
        status = ctypes.c_int()
        found = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
        if found:
            shown = ctypes.string_at(found).decode(errors="replace")
            ctypes.CDLL(None).free(ctypes.c_void_p(found))
    return shown if len(shown) <= NAME_LIMIT else shown[: NAME_LIMIT - 3] + "..."


@lru_cache(maxsize=1)
def _cxx_library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
    except (OSError, AttributeError):
        return None
    return library
