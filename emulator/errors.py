"""The emulator's two exceptions, and its warning.

The code that checks a rule raises `Fault`, which says only what is wrong. The scheduler knows which warp broke the rule
and turns the fault into an `EmulatorError`, the one exception that a user of the emulator sees.
"""

from __future__ import annotations

import os
import warnings


class Fault(Exception):
    """A broken rule without its place. The reason has value, limit, rule and, for hardware, the PTX ISA's section."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


class EmulatorError(RuntimeError):
    """A broken rule in an emulated kernel, and its place.

    All attributes but `reason` are None where they are not known: a launch that was refused has no warp.
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

    def __reduce__(self) -> tuple:
        return _rebuild, (type(self), self.reason, {k: v for k, v in self.__dict__.items() if k != "reason"})


class OrderingWarning(UserWarning):
    """The warning that `ordering_fault` issues in place of a Fault in a lenient run."""


LENIENT = "EMULATOR_LENIENT"
_reported: set[tuple] = set()


def ordering_fault(reason: str, place: tuple) -> None:
    """Reports a broken rule of order that a GPU does not check and that may do no harm: a missing fence.

    Raises Fault; with EMULATOR_LENIENT=1 in the environment it warns instead, once for each `place` (any hashable
    tuple).
    """
    if os.environ.get(LENIENT) != "1":
        raise Fault(reason)
    if place not in _reported:
        _reported.add(place)
        warnings.warn(reason, OrderingWarning, stacklevel=2)


def _rebuild(cls: type[EmulatorError], reason: str, attributes: dict) -> EmulatorError:
    return cls(reason, **attributes)
