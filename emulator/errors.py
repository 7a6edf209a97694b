"""The emulator's two exceptions, and its warning.

`Fault` is raised where a rule is broken and says only what was wrong. The scheduler knows who broke it and turns the
fault into an `EmulatorError`, the one exception that a user of the emulator sees.
"""

from __future__ import annotations

import os
import warnings


class Fault(Exception):
    """A broken rule without its place: value, limit, reason and, for hardware rules, the section of the PTX ISA."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


class EmulatorError(RuntimeError):
    """What went wrong in an emulated kernel, and where.

    kernel: entry name; cta: (x, y, z) of the CTA in the grid; warp: index in the CTA; ptx_line: 1-based line of the
    PTX text; ptx_text: the statement; source: "file.py:line" if the PTX has line information; reason: value, limit
    and rule. Everything but `reason` is None where it is not known (a launch that was refused has no warp).
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
        self.reason = reason
        self.kernel = kernel
        self.cta = cta
        self.warp = warp
        self.ptx_line = ptx_line
        self.ptx_text = ptx_text
        self.source = source
        super().__init__(self._message())

    def _message(self) -> str:
        lines = [self.reason]
        if self.kernel is not None:
            lines.append(f"  kernel   {self.kernel}")
        if self.cta is not None:
            warp = "" if self.warp is None else f" warp {self.warp}"
            lines.append(f"  at       CTA {self.cta}{warp}")
        if self.ptx_line is not None:
            lines.append(f"  PTX      line {self.ptx_line}: {self.ptx_text or ''}".rstrip())
        if self.source is not None:
            lines.append(f"  source   {self.source}")
        return "\n".join(lines)

    def __reduce__(self):
        return _rebuild, (type(self), self.reason, {k: v for k, v in self.__dict__.items() if k != "reason"})


class OrderingWarning(UserWarning):
    """What `ordering_fault` says in a lenient run."""


LENIENT = "EMULATOR_LENIENT"
_reported: set[tuple] = set()


def ordering_fault(reason: str, place: tuple) -> None:
    """A rule of order is broken that a GPU does not check and may get away with: missing fences, a pair's allocation.

    A Fault, unless the environment has EMULATOR_LENIENT=1: then a warning, one for each place (of any hashable kind).
    """
    if os.environ.get(LENIENT) != "1":
        raise Fault(reason)
    if place not in _reported:
        _reported.add(place)
        warnings.warn(reason, OrderingWarning, stacklevel=2)


def _rebuild(cls: type[EmulatorError], reason: str, attributes: dict) -> EmulatorError:
    return cls(reason, **attributes)
