"""Settings: options of nogpu's commands, variables NOGPU_NAME of the environment and arguments of `activate`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nogpu.clock.paths import picture_path, timeline_path
from nogpu.execution.meter import MAX_INSTRUCTIONS
from nogpu.execution.settings import candidates, instructions, runs, schedules, seconds, switch, workers
from nogpu.hopper import MODES


def chip(text: str) -> object:
    """The profile of a chip, from its name or file."""
    from nogpu.clock.chip import profile

    return profile(text)


def rules(text: str) -> list[str]:
    """Rules of the sanitizer, with commas between, each as `waivers.parse` takes it."""
    from nogpu.sanitizer.rules import RULES
    from nogpu.sanitizer.waivers import parse

    return [parse(each, RULES).text for each in text.split(",")]


def mode(text: str) -> str:
    """A mode of tensor-core work on a Hopper GPU (`hopper.MODES`)."""
    if text not in MODES:
        raise ValueError(f"{text!r} is no mode: {', '.join(MODES)} expected")
    return text


def folder(text: str) -> str:
    """A folder, which may be missing."""
    if os.path.exists(text) and not os.path.isdir(text):
        raise ValueError(f"{text!r} is no folder")
    return text


def file(text: str) -> str:
    """A file to write, which may be missing, in a folder that exists."""
    if os.path.isdir(text) or not os.path.isdir(os.path.dirname(os.path.abspath(text))):
        raise ValueError(f"{text!r} cannot be written: it is a folder, or there is no folder for it")
    return text


def process(text: str) -> int:
    """The number of the process that shows progress; 0: none does."""
    if not re.fullmatch("[0-9]{1,10}", text):
        raise ValueError(f"{text!r} is no number of a process: 0 expected, for no progress")
    return int(text)


@dataclass(frozen=True)
class Setting:
    """A setting: its variable is NOGPU_NAME, and `activate` takes it by its name."""

    read: Callable[[str], object]  # parser of its text; raises ValueError for what is not legal
    help: str = ""
    value: str | None = None  # name of the option's value; None: a switch
    option: str | None = None  # option's name if it is not the setting's; "": no option
    is_file: bool = False  # a path, which a process in another folder must find
    commands: tuple[str, ...] = ("run", "check", "time", "explore")  # commands that have the option

    def flag(self, name: str) -> str:
        """The option of the setting with this name; "" if there is none."""
        named = name.replace("_", "-") if self.option is None else self.option
        return named and f"--{named}"


UNTIMED = ("run", "check", "explore")
SANITIZED = ("check", "explore")

SETTINGS = {
    "schedule": Setting(schedules, "orders of events; default: late", "S[,S...]", commands=UNTIMED),
    "random_seconds": Setting(
        seconds,
        "time of a process for random:1 to random:5 behind late, without --schedule; default: 60",
        "N",
        option="random",
        commands=("check",),
    ),
    "workers": Setting(workers, "processes that share a launch; default: one per core", "N"),
    "lenient": Setting(switch, "only warn of broken rules of order (fences, a pair's allocation)"),
    "max_instructions": Setting(
        instructions,
        f"stop a launch after so many warp instructions, and say where it is; default: {MAX_INSTRUCTIONS}",
        "N",
    ),
    "sanitize": Setting(
        switch, "check that events order all accesses that conflict, as nogpu check does", commands=("explore",)
    ),
    "sanitize_allow": Setting(
        rules,
        "rules that may be broken, RULE@OPCODE by some instructions",
        "RULE[,RULE]",
        option="allow",
        commands=SANITIZED,
    ),
    "sanitize_schedule": Setting(
        schedules,
        "check under these schedules only; the others run as without the sanitizer",
        "S[,S...]",
        option="follow",
        commands=SANITIZED[:1],
    ),
    "sanitize_log": Setting(file, option="", is_file=True),
    "explore": Setting(runs, "runs of a launch at most; default: 100", "N", option="runs", commands=("explore",)),
    "every_launch": Setting(switch, "run launches again whose stores are known, too", commands=("run",)),
    "autotune": Setting(candidates, "candidates that Triton's autotuning runs; default: first", "first|N|all"),
    "record": Setting(folder, option="", is_file=True),
    "record_values": Setting(switch, option=""),
    "clock": Setting(
        chip, "b200, h200, or a profile's JSON file; default: b200", "CHIP", "chip", is_file=True, commands=("time",)
    ),
    "clock_why": Setting(switch, "say what would make the launches faster", option="why", commands=("time",)),
    "clock_timeline": Setting(
        timeline_path, "write what ui.perfetto.dev opens", "FILE", "timeline", is_file=True, commands=("time",)
    ),
    "clock_picture": Setting(picture_path, "write a PNG", "FILE", "picture", is_file=True, commands=("time",)),
    "hopper_mode": Setting(
        mode, "tensor-core work on a Hopper GPU: exact (default), timing, bare", "MODE", commands=("run",)
    ),
    "progress": Setting(process, option=""),
    "report": Setting(file, option="", is_file=True),
}


def variable(name: str) -> str:
    """The environment variable of a setting. An empty one counts as unset."""
    return f"NOGPU_{name.upper()}"


def texts(values: Mapping[str, object]) -> dict[str, str]:
    """{variable: text} of settings, without those that are None; paths are absolute."""
    found = {}
    for name, value in values.items():
        if value is None:
            continue
        text = str(int(value)) if isinstance(value, bool) else str(value)
        names_a_file = SETTINGS[name].is_file and (name != "clock" or os.path.isfile(text))
        found[variable(name)] = os.path.abspath(text) if names_a_file else text
    return found


def check(variables: Mapping[str, str]) -> None:
    """Raise ValueError, which names the variable, for an environment with a setting that is not legal."""
    for name, setting in SETTINGS.items():
        text = variables.get(variable(name))
        if text:
            try:
                setting.read(text)
            except ValueError as error:
                raise ValueError(f"environment variable {variable(name)}: {error}") from None
