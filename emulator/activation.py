"""Puts processes on the emulated device: the environment that children inherit, and this process itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from emulator.errors import LENIENT

BOOTSTRAP = Path(__file__).resolve().parent / "bootstrap"


DEVICES = {"b200": "1", "hopper": "hopper"}
"""Device -> the value of EMULATOR that puts a process on it."""


def environment(
    schedule: str | None = None,
    workers: str | None = None,
    device: str = "b200",
    hopper_mode: str | None = None,
    lenient: bool = False,
) -> dict[str, str]:
    """The environment of a process on the emulated device; its child processes inherit it.

    device: "b200", all software, or "hopper", a Hopper GPU (emulator/hopper); hopper_mode: one of its MODES.
    lenient: whether broken rules of order are warnings (errors.ordering_fault).
    """
    variables = dict(os.environ)
    path = [str(BOOTSTRAP)]
    path += [entry for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != path[0]]
    variables["PYTHONPATH"] = os.pathsep.join(path)
    variables["EMULATOR"] = DEVICES[device]
    if device == "hopper":
        if hopper_mode:
            variables["EMULATOR_HOPPER_MODE"] = hopper_mode
        return variables
    # Launches are spread over processes already, and NumPy reads this once, when it is loaded.
    variables["OPENBLAS_NUM_THREADS"] = "1"
    if schedule:
        variables["EMULATOR_SCHEDULE"] = schedule
    if workers:
        variables["EMULATOR_WORKERS"] = workers
    if lenient:
        variables[LENIENT] = "1"
    return variables


def activate(schedule: str | None = None, workers: str | None = None) -> None:
    """Put this process, and the children it will start, on the emulated device.

    `python -m emulator` does this for whole programs; here for a test session. Does nothing in a process that is there
    already. Raises RuntimeError once torch, cutlass or NumPy has been imported: the emulator would come too late.
    """
    if os.environ.get("EMULATOR") in DEVICES.values():
        return
    late = [name for name in ("torch", "cutlass", "numpy") if name in sys.modules]
    if late:
        raise RuntimeError(f"emulator.activate() comes after the import of {', '.join(late)}; call it before")
    os.environ.update(environment(schedule, workers))
    from emulator.bootstrap.sitecustomize import install

    install()
