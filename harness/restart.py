"""Restarts eval.py under `python -m nogpu`, which emulates a B200 or runs B200 programs on a Hopper GPU."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from typing import NoReturn

from harness import ROOT
from harness.devices import EMULATOR, Device, DeviceError
from harness.interpreter import remark
from harness.sanitizing import Sanitizer

RESTARTED = "EVAL_RESTARTED_UNDER_NOGPU"  # environment variable that marks a restarted process


def check_packages() -> None:
    """Raise DeviceError if this Python lacks a package that eval.py needs."""
    for name in ("torch", "rich", "nogpu"):
        if importlib.util.find_spec(name) is None:
            raise DeviceError(
                f"{sys.executable} has no package {name!r}; `make eval` sets up a virtual environment, "
                ".venv-dsl-VERSION, that has all: activate it first"
            )


OPTIONS = {"--schedule": True, "--sanitize": False, "--sanitize-allow": True, "--sanitize-schedule": True}
"""Options of eval.py that the emulator gets -> whether a value follows."""


def without_options(arguments: list[str]) -> list[str]:
    """The arguments without those that only the emulator takes and eval.py would refuse."""
    kept, rest = [], iter(arguments)
    for argument in rest:
        name, equals, _ = argument.partition("=")
        if name not in OPTIONS:
            kept.append(argument)
        elif OPTIONS[name] and not equals:
            next(rest, None)
    return kept


def emulator_variables(sanitizer: Sanitizer | None) -> dict[str, str]:
    """The variables of the sanitizer. They replace `nogpu check`, which judges by notes that workers may not leave."""
    if sanitizer is None:
        return {}
    waived = ",".join(waiver.text for waiver in sanitizer.waivers)
    given = {"": "1", "_ALLOW": waived, "_SCHEDULE": sanitizer.schedules}
    return {f"NOGPU_SANITIZE{name}": value for name, value in given.items() if value}


def restart_under_emulator(
    schedule: str | None, device: Device = EMULATOR, sanitizer: Sanitizer | None = None
) -> NoReturn:
    """Replace this process by `python -m nogpu eval.py` with the same arguments; file descriptors stay open.

    schedule: the emulator's --schedule; None for its default. sanitizer: None to run without. Raises DeviceError in a
    process that was restarted this way before.
    """
    if os.environ.get(RESTARTED):
        raise DeviceError("python -m nogpu is another package of that name: PYTHONPATH leads to it")
    variables = emulator_variables(sanitizer)
    options = [*(["--schedule", schedule] if schedule else []), *device.emulator_options]
    command = ["-P", "-m", "nogpu", *options, str(ROOT / "eval.py"), *sys.argv[1:]]
    shown = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items()) + " " * bool(variables)
    shown += shlex.join(["python", "-m", "nogpu", *options, "eval.py", *without_options(sys.argv[1:])])
    remark(f"eval.py: restarting on {device.title}: {shown}")
    os.execve(sys.executable, [sys.executable, *command], {**os.environ, **variables, RESTARTED: "1"})
