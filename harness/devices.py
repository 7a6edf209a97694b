"""The devices that cases run on, the job of each mode there, and the choice among the devices of this machine."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.cases import CALLS_OF_LEADERBOARD
from harness.judge import check_case, count_case, count_launches, profile_case, time_case, time_pipeline
from harness.results import Result
from harness.timing import BENCHMARK, BENCHMARK_WARM_UP, LEADERBOARD, LEADERBOARD_WARM_UP, Limits


@dataclass(frozen=True)
class Job:
    """The work of one mode on each case, on one device."""

    run: Callable[..., Result]
    options: Mapping[str, Any] = field(default_factory=dict)  # keyword arguments of run
    warm_up: Limits | None = None  # limits of the calls of run before the first case
    warms_up_every_case: bool = False  # calls before every case, not only before the first
    has_clock: bool = False  # run can replay a recorded call on a chip
    has_baseline: bool = False  # run can time torch's own kernels as well
    environment: Mapping[str, str] = field(default_factory=dict)  # variables that the worker needs
    remark: str = ""  # printed before the first case


@dataclass(frozen=True, eq=False)
class Device:
    """A kind of device; three are defined below. Devices are compared by identity."""

    name: str  # value of --device
    title: str  # name for a sentence, with its article
    timeout_s: float  # seconds for one case
    jobs: Mapping[str, Job] = field(repr=False)  # mode -> its job; other modes are not offered
    emulator_variable: str | None = None  # value of NOGPU in a process that `python -m nogpu` has put on the device
    emulator_options: tuple[str, ...] = ()  # options of that `python -m nogpu`
    has_schedules: bool = False  # the emulator runs each launch under schedules that can be chosen

    def offers_baseline(self, mode: str) -> bool:
        """True if `mode` can time torch's own kernels as well."""
        return mode in self.jobs and self.jobs[mode].has_baseline

    def offers_clock(self, mode: str) -> bool:
        """True if `mode` can replay recorded calls on a chip."""
        return mode in self.jobs and self.jobs[mode].has_clock


B200 = Device(
    name="b200",
    title="a B200",
    timeout_s=240,  # twice the 120 s that the stop rules allow a timing
    jobs={
        "test": Job(check_case),
        "benchmark": Job(time_case, {"limits": BENCHMARK}, BENCHMARK_WARM_UP, has_baseline=True),
        "leaderboard": Job(
            time_case,
            {"limits": LEADERBOARD, "recheck": True},
            LEADERBOARD_WARM_UP,
            warms_up_every_case=True,
            has_baseline=True,
        ),
        "profile": Job(profile_case),
    },
)
HOPPER = Device(
    name="hopper",
    title="a Hopper GPU",
    timeout_s=240,
    jobs={
        "test": Job(
            check_case,
            environment={"NOGPU_HOPPER_MODE": "exact"},
            remark="memory, TMA, mbarriers, clusters and launches are a Hopper's; tensor memory and tensor core are "
            "software",
        ),
        "benchmark": Job(
            time_pipeline,
            {"limits": BENCHMARK},
            BENCHMARK_WARM_UP,
            environment={"NOGPU_HOPPER_MODE": "timing"},
            remark="memory, TMA, mbarriers, clusters and launches are a Hopper's; tensor-core work is left out, "
            "results are not checked, and times are no B200's",
        ),
    },
    emulator_variable="hopper",
    emulator_options=("--device", "hopper"),
)
EMULATOR = Device(
    name="emulator",
    title="an emulated B200",
    timeout_s=1800,
    jobs={
        "test": Job(check_case),
        "benchmark": Job(count_case, has_clock=True),
        "leaderboard": Job(count_case, {"calls": CALLS_OF_LEADERBOARD}, has_clock=True),
        "profile": Job(count_launches),
    },
    emulator_variable="1",
    has_schedules=True,
)
DEVICES = {device.name: device for device in (B200, HOPPER, EMULATOR)}
MODES = tuple(B200.jobs)


class DeviceError(Exception):
    """A device that cannot be used, or the lack of any; the text says what is missing."""


# ---- Choice ----


def emulator_device() -> Device | None:
    """The device that `python -m nogpu` has put this process on; None if it has not. torch is not imported."""
    variable = os.environ.get("NOGPU")
    return next((device for device in DEVICES.values() if variable and device.emulator_variable == variable), None)


def cuda_capability() -> tuple[int, int] | None:
    """Compute capability (major, minor) of the current CUDA device; None if there is no device."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None  # saves the seconds of torch's import
    import torch

    return torch.cuda.get_device_capability() if torch.cuda.is_available() else None


def has_b200() -> bool:
    """True if the current CUDA device runs sm_100a code."""
    return cuda_capability() == (10, 0)


def has_hopper() -> bool:
    """True if the current CUDA device runs sm_90a code."""
    return cuda_capability() == (9, 0)


def choose_device(requested: Device | None) -> Device:
    """The device to run on. Raises DeviceError if the requested one is not available."""
    current = emulator_device()
    if current:
        if requested not in (None, current):
            raise DeviceError(f"--device {requested.name} cannot be had under python -m nogpu as it was started")
        return current
    if requested is B200:
        check_b200()
    if requested is HOPPER and not has_hopper():
        raise DeviceError("--device hopper: the current CUDA device, if there is one, does not have capability 9.0")
    return requested or (B200 if has_b200() else HOPPER if has_hopper() else EMULATOR)


def check_b200() -> None:
    """Raise DeviceError, naming the device that is there, unless the current CUDA device is a B200."""
    import torch

    if not torch.cuda.is_available():
        raise DeviceError("--device b200: there is no CUDA device, or torch is built without CUDA")
    major, minor = torch.cuda.get_device_capability()
    if (major, minor) != (10, 0):
        name = torch.cuda.get_device_name()
        raise DeviceError(f"--device b200: the current device is {name}, capability {major}.{minor}; a B200 has 10.0")
