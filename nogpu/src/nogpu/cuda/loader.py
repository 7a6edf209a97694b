"""Modules from PTX text: their kernels are launched with raw arguments, from plain Python or beside torch."""

from __future__ import annotations

import re

from nogpu.cuda import arguments
from nogpu.cuda.modules import Module
from nogpu.errors import EmulatorError
from nogpu.hardware.properties import of_process

_CHIPS = {90: "Hopper", 103: "B300", 107: "Rubin", 110: "Thor", 120: "RTX Blackwell"}
"""Number of a target -> the chip that it is for."""


def load_ptx(text: str, schedule: str | None = None, lenient: bool | None = None) -> Module:
    """Parse PTX for sm_100a or a target whose PTX runs there. schedule, lenient: settings of its kernels' launches,
    as `Kernel.launch` takes them.

    Raises EmulatorError with the line for syntax that is not understood outside of functions, and for anything but
    text. The first launch of a kernel raises it for a statement of the kernel or of a function that it calls that is
    not understood or not modelled; `Kernel.check` does so without a launch.
    """
    if not isinstance(text, str):
        hint = ": decode it" if isinstance(text, bytes | bytearray | memoryview) else ""
        raise EmulatorError(f"load_ptx takes the text of a module, a str; {type(text).__name__} given{hint}")
    if "\n" not in text and text.endswith(".ptx"):
        raise EmulatorError(f"load_ptx takes the text of a module, not the name of its file: {text[:200]!r}")
    try:
        arguments.schedules(schedule)
        arguments.choice("lenient", lenient)
    except (ValueError, TypeError) as error:
        raise EmulatorError(f"load_ptx: {error}") from None
    module = Module(text, schedule, lenient)
    _check_target(module.parsed.target, module.parsed.target_line)
    return module


def _check_target(target: str, line: int) -> None:
    """Raise EmulatorError for a target whose PTX does not run on the device."""
    properties = of_process()
    major, minor = properties.capability
    name = target.partition(",")[0]
    sm = re.fullmatch(r"sm_(\d+)([af]?)", name)
    number = int(sm[1]) if sm else 0
    if sm is None or not properties.runs(number, sm[2]):
        chip = f" ({_CHIPS[number]})" if number in _CHIPS else ""
        reason = f"PTX for {name}{chip}: a device of compute capability {major}.{minor} does not run it"
        raise EmulatorError(reason, ptx_line=line, ptx_text=f".target {target}")
