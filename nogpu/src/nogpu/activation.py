"""Puts processes on the emulated device: this process itself, and child processes by their environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nogpu import settings
from nogpu.errors import LENIENT, EmulatorError
from nogpu.execution.status import PROCESS

if TYPE_CHECKING:
    from nogpu.clock.trace import Trace

BOOTSTRAP = Path(__file__).resolve().parent / "bootstrap"

DEVICES = {"b200": "1", "hopper": "hopper"}
"""Device -> the value of NOGPU that puts a process on it."""


def environment(
    schedule: str | None = None,
    workers: str | None = None,
    device: str = "b200",
    hopper_mode: str | None = None,
    lenient: bool = False,
    max_instructions: str | None = None,
    record: str | None = None,
    record_values: bool = True,
    clock: str | None = None,
    timeline: str | None = None,
    picture: str | None = None,
    why: bool = False,
    sanitize: bool = False,
    sanitize_allow: str | None = None,
    sanitize_schedule: str | None = None,
    explore: str | None = None,
) -> dict[str, str]:
    """The environment of a process on the device; its child processes inherit it.

    schedule, workers, max_instructions: the options of `python -m nogpu`. device: a name of DEVICES, "b200"
    (software) or "hopper" (a Hopper GPU, nogpu/hopper); hopper_mode: one of its MODES. lenient: broken rules of
    order are warnings (errors.ordering_fault). record: a folder for the traces of all launches; record_values: as of
    `clock.record.Recording`. clock: a chip profile's name or file, on which launches are replayed (`clock.live`);
    timeline, picture: files that it writes; why: it says what would make them faster. sanitize: every access is checked
    against the order of events (nogpu/sanitizer); sanitize_allow: rules that are waived, by commas;
    sanitize_schedule: schedules under which that is done, None for all. explore: runs in which interleavings of a
    launch are searched (nogpu/sanitizer/explore.py). A device "hopper" takes hopper_mode only.
    """
    variables = dict(os.environ)
    path = [str(BOOTSTRAP)]
    path += [entry for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != path[0]]
    variables["PYTHONPATH"] = os.pathsep.join(path)
    variables["NOGPU"] = DEVICES[device]
    if device == "hopper":
        if hopper_mode:
            variables["NOGPU_HOPPER_MODE"] = hopper_mode
        return variables
    # Workers share the cores already. NumPy's library reads the variable once, when it is loaded.
    variables["OPENBLAS_NUM_THREADS"] = "1"
    variables.setdefault("OMP_WAIT_POLICY", "passive")  # torch's threads would spin on cores that workers need
    variables.setdefault(PROCESS, str(os.getpid()))  # not a child that starts first
    if schedule:
        variables["NOGPU_SCHEDULE"] = schedule
    if workers:
        variables["NOGPU_WORKERS"] = workers
    if max_instructions:
        variables["NOGPU_MAX_INSTRUCTIONS"] = max_instructions
    if lenient:
        variables[LENIENT] = "1"
    if record:
        variables["NOGPU_RECORD"] = os.path.abspath(record)
        variables["NOGPU_RECORD_VALUES"] = str(int(record_values))
    if sanitize:
        variables["NOGPU_SANITIZE"] = "1"
    if sanitize_allow:
        variables["NOGPU_SANITIZE_ALLOW"] = sanitize_allow
    if sanitize_schedule:
        variables["NOGPU_SANITIZE_SCHEDULE"] = sanitize_schedule
    if explore:
        variables["NOGPU_EXPLORE"] = explore
    if clock:
        variables["NOGPU_CLOCK"] = os.path.abspath(clock) if os.path.isfile(clock) else clock
    for name, file in (("TIMELINE", timeline), ("PICTURE", picture)):
        if file:
            variables[f"NOGPU_CLOCK_{name}"] = os.path.abspath(file)
    if why:
        variables["NOGPU_CLOCK_WHY"] = "1"
    return variables


def activate(
    schedule: str | None = None,
    workers: str | int | None = None,
    max_instructions: str | int | None = None,
    lenient: bool | None = None,
    record: str | os.PathLike[str] | Callable[[Trace], None] | None = None,
    record_values: bool = True,
    sanitize: bool = False,
    explore: str | int | None = None,
) -> None:
    """Put this process, and the children that it starts later, on the emulated device.

    schedule, workers, max_instructions: the options of `python -m nogpu`, None for their defaults. lenient: True as
    --lenient, False turns doubts into errors (errors.doubt), None leaves NOGPU_LENIENT as it is. record: a folder
    for the traces of launches (`clock.trace.Trace`), or a function that this process calls with the trace of each of
    its launches; record_values: False leaves out the tensor core's products. sanitize, explore: as --sanitize,
    --explore; not with record.

    For test sessions; `python -m nogpu` does it for whole programs. A process on the device stays as it is. Raises
    EmulatorError for settings that are not legal, and where the emulator would come too late: cutlass has been
    imported, torch uses a GPU already, or a kernel has been launched.
    """
    texts = {
        name: None if value is None else _checked(name, value)
        for name, value in (
            *(("schedule", schedule), ("workers", workers), ("max_instructions", max_instructions)),
            ("explore", explore),
        )
    }
    if explore is not None and record is not None:
        raise EmulatorError(f"nogpu.activate(explore={explore!r}): what is explored cannot be recorded")
    if lenient not in (None, True, False):
        raise EmulatorError(f"nogpu.activate(lenient={lenient!r}): True, False or None is expected")
    if sanitize not in (True, False) or (sanitize and record is not None):
        raise EmulatorError(f"nogpu.activate(sanitize={sanitize!r}): True or False is expected, without record")
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
    os.environ.update(
        environment(
            texts["schedule"],
            texts["workers"],
            max_instructions=texts["max_instructions"],
            record=folder,
            record_values=record_values,
            sanitize=sanitize,
            explore=texts["explore"],
        )
    )
    if lenient is not None:
        os.environ[LENIENT] = str(int(lenient))
    from nogpu.bootstrap.sitecustomize import install

    install()
    if callable(record):
        from nogpu.clock.record import Recording
        from nogpu.execution import device

        device.recording = Recording(record, record_values)


def _too_late() -> str | None:
    """What has happened that should not happen before the process is on the device."""
    if "cutlass" in sys.modules:
        return "the import of cutlass, which has read the environment"
    torch, device = (sys.modules.get(name) for name in ("torch", "nogpu.execution.device"))
    if torch is not None and torch.cuda.is_initialized():
        return "torch has begun to use a GPU"
    if device is not None and device._current is not None:
        return "the first use of the emulated device"
    return None


def _checked(name: str, value: object) -> str:
    """The text of a setting. Raises EmulatorError if it is not legal."""
    numeric = isinstance(value, int) and not isinstance(value, bool) and name != "schedule"
    if not (isinstance(value, str) or numeric):
        raise EmulatorError(f"nogpu.activate({name}={value!r}): a str is expected, not {type(value).__name__}")
    try:
        settings.SETTINGS[name](str(value))
    except ValueError as error:
        raise EmulatorError(f"nogpu.activate({name}={value!r}): {error}") from None
    return str(value)
