"""The restart of eval.py under `python -m emulator`, which emulates a B200 or puts its programs on a Hopper GPU."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from typing import NoReturn

from harness import ROOT
from harness.devices import EMULATOR, Device, DeviceError

RESTARTED = "EVAL_RESTARTED_UNDER_EMULATOR"  # variable of a process that was restarted


def check_packages() -> None:
    """Raise DeviceError if this Python lacks a package that eval.py needs."""
    for name in ("torch", "rich"):
        if importlib.util.find_spec(name) is None:
            raise DeviceError(
                f"{sys.executable} has no package {name!r}; `make eval` sets up a virtual environment, "
                ".venv-dsl-VERSION, that has all: activate it first"
            )


def without_schedule(arguments: list[str]) -> list[str]:
    """The arguments without --schedule, which the shown command gives to the emulator and eval.py would refuse."""
    kept = [argument for argument in arguments if not argument.startswith("--schedule=")]
    if "--schedule" in kept:
        at = kept.index("--schedule")
        del kept[at : at + 2]
    return kept


def restart_under_emulator(schedule: str | None, device: Device = EMULATOR) -> NoReturn:
    """Replace this process by `python -m emulator eval.py` with the same arguments; file descriptors stay open.

    schedule: of the emulator, None for its default. Raises DeviceError if there is no emulator to start.
    """
    if os.environ.get(RESTARTED):
        raise DeviceError(f"python -m emulator is another package of that name in {os.getcwd()}")
    if not (ROOT / "emulator" / "__main__.py").is_file():
        raise DeviceError(f"there is no emulator to run in place of a B200: {ROOT / 'emulator'} is missing")
    options = [*(["--schedule", schedule] if schedule else []), *device.emulator_options]
    command = ["-m", "emulator", *options, str(ROOT / "eval.py"), *sys.argv[1:]]
    shown = shlex.join(["python", "-m", "emulator", *options, "eval.py", *without_schedule(sys.argv[1:])])
    print(f"eval.py: restarting on {device.title}: {shown}", file=sys.stderr, flush=True)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.execve(sys.executable, [sys.executable, *command], {**os.environ, "PYTHONPATH": path, RESTARTED: "1"})
