"""Puts processes on the emulated device: this process itself, and child processes by their environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nogpu import settings
from nogpu.errors import EmulatorError
from nogpu.execution.settings import switch
from nogpu.execution.status import PROCESS

if TYPE_CHECKING:
    from nogpu.clock.trace import Trace

BOOTSTRAP = Path(__file__).resolve().parent / "bootstrap"

DEVICES = {"b200": "1", "rubin": "rubin", "hopper": "hopper"}
"""Device -> the value of NOGPU that puts a process on it."""


def environment(device: str = "b200", **values: object) -> dict[str, str]:
    """The environment of a process on the device; its child processes inherit it.

    device: a name of DEVICES, "b200" and "rubin" (software) or "hopper" (a Hopper GPU, nogpu/hopper). values:
    settings by their names (settings.SETTINGS); None leaves one as it is. They are not checked.
    """
    variables = dict(os.environ)
    path = [str(BOOTSTRAP)]
    path += [entry for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != path[0]]
    variables["PYTHONPATH"] = os.pathsep.join(path)
    variables["NOGPU"] = DEVICES[device]
    variables |= settings.texts(values)
    if device != "hopper":
        # Workers share the cores already. NumPy's library reads the variable once, when it is loaded.
        variables["OPENBLAS_NUM_THREADS"] = "1"
        variables.setdefault("OMP_WAIT_POLICY", "passive")  # torch's threads would spin on cores that workers need
        variables.setdefault(PROCESS, str(os.getpid()))  # else a child that asks first would show progress
    return variables


def activate(
    record: str | os.PathLike[str] | Callable[[Trace], None] | None = None, **values: str | int | bool | None
) -> None:
    """Put this process, and the children that it starts later, on the emulated device.

    record: a folder for the traces of launches (`clock.trace.Trace`), or a function that this process calls with the
    trace of each of its launches; record_values=False leaves out the tensor core's products. values: settings of
    `nogpu run` by their names: schedule, workers, max_instructions, lenient (True as --lenient, False turns
    doubts into errors (errors.doubt)), sanitize, explore; None for their defaults.

    It is for test sessions; `nogpu run` is for whole programs. A process on the device stays as it is. Raises
    EmulatorError for settings that are not legal, and where the emulator would come too late: cutlass has been
    imported, torch uses a GPU already, or a kernel has been launched.
    """
    for name, value in values.items():
        _check(name, value)
    for name in ("sanitize", "explore"):
        if values.get(name) and record is not None:
            raise EmulatorError(f"nogpu.activate({name}={values[name]!r}): launches are either so or recorded")
    if os.environ.get("NOGPU") in DEVICES.values():
        return
    try:
        settings.check(os.environ)
    except ValueError as error:
        raise EmulatorError(f"nogpu.activate(): {error}") from None
    late = _too_late()
    if late:
        raise EmulatorError(f"nogpu.activate() comes after {late}; call it before")
    folder = None if record is None or callable(record) else os.fspath(record)
    os.environ.update(environment("b200", record=folder, **values))
    from nogpu.bootstrap.sitecustomize import install

    install()
    if callable(record):
        from nogpu.clock.record import Recording
        from nogpu.execution import device

        device.recording = Recording(record, values.get("record_values") is not False)


def _too_late() -> str | None:
    """The event that has come too early for `activate` to work, for a message, or None."""
    if "cutlass" in sys.modules:
        return "the import of cutlass, which has read the environment"
    torch, device = (sys.modules.get(name) for name in ("torch", "nogpu.execution.device"))
    if torch is not None and torch.cuda.is_initialized():
        return "torch has begun to use a GPU"
    if device is not None and device._current is not None:
        return "the first use of the emulated device"
    return None


def _check(name: str, value: object) -> None:
    """Raise TypeError for an unknown setting, EmulatorError for a value that is not legal."""
    setting = settings.SETTINGS.get(name)
    if setting is None:
        raise TypeError(f"nogpu.activate() has no setting {name!r}: it takes record, {', '.join(settings.SETTINGS)}")
    if value is None:
        return
    given = f"nogpu.activate({name}={value!r})"
    if setting.read is switch:
        if not isinstance(value, bool):
            raise EmulatorError(f"{given}: True, False or None is expected")
        return
    if isinstance(value, bool) or not isinstance(value, (str, int) if setting.value == "N" else str):
        raise EmulatorError(f"{given}: a str is expected, not {type(value).__name__}")
    try:
        setting.read(str(value))
    except ValueError as error:
        raise EmulatorError(f"{given}: {error}") from None
