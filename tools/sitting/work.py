"""The process of a step, which writes events to the file that LIGHT_RESULTS names (`outcomes`).

python -m tools.sitting.work which                     the device that there is
python -m tools.sitting.work survey                    device, driver, versions, hash of submission.py, check groups
python -m tools.sitting.work calls GROUP [CHECK ...]   checks of a group of `calls`
python -m tools.sitting.work compare PROBLEM           times: ours, baseline, memory, every configuration
python -m tools.sitting.work trials PROBLEM            times of edits of submission.py
python -m tools.sitting.work stages PROBLEM            times with fewer stages
python -m tools.sitting.work clusters                  clusters that run at once
python -m tools.sitting.work profile CONSTANTS.json    the clock's chip profile, from measured constants
python -m tools.sitting.work suggest FIGURES.json      better constants for the choice
"""

from __future__ import annotations

import functools
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness import devices
from tools.sitting.outcomes import Writer, is_skipped


def which(writer: Writer) -> None:
    writer.figure(device=devices.choose_device(None).name)


def survey(writer: Writer) -> None:
    import torch

    from tools import circumstances
    from tools.sitting import calls

    facts = {
        **circumstances.gpu(),
        "capability": ".".join(map(str, torch.cuda.get_device_capability())),
        **circumstances.versions([]),
        "cuda of torch": torch.version.cuda,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    del facts["command"]
    writer.figure(facts=facts, groups={name: list(checks) for name, checks in calls.groups().items()})


def run_calls(writer: Writer, group: str, *names: str) -> None:
    """Run each check once. A check that raises is reported; the next follows unless the device has failed, too."""
    from tools.sitting import calls

    for name, check in calls.groups()[group].items():
        if is_skipped(name) or (names and name not in names):
            continue
        writer.begin(name)
        began = time.monotonic()
        try:
            check()
        except Exception as error:  # an error of the kernel, the compiler or the driver
            writer.fail(name, error)
        else:
            writer.end(name, True, f"{time.monotonic() - began:.1f} s")


def timed(kind: str, writer: Writer, problem: str) -> None:
    """Run the function `kind` of `times`: compare, trials or stages."""
    from tools.sitting import times

    getattr(times, kind)(writer, problem)


def clusters(writer: Writer) -> None:
    from tools.sitting import clusters

    for figure in clusters.figures(devices.has_hopper()):
        writer.figure(**figure)


def profile(writer: Writer, constants: str) -> None:
    """Write the chip's profile as a figure: the committed one with the measured constants. constants: their file."""
    from nogpu.clock import PROFILES
    from workshop.calibration import profile as chip_profile

    record = json.loads(Path(constants).read_text(encoding="utf-8"))
    base = PROFILES / ("b200.json" if record["arch"] == "sm_100a" else "h200.json")
    data = chip_profile.derived(json.loads(base.read_text(encoding="utf-8")), chip_profile.measured_of([record]))
    writer.figure(profile=data, base=base.name)


def suggest(writer: Writer, figures: str) -> None:
    from tools.sitting.suggest import suggestion

    record = json.loads(Path(figures).read_text(encoding="utf-8"))
    writer.figure(suggestion=suggestion(record["figures"], record["sms"]))


KINDS: dict[str, Callable[..., None]] = {
    "which": which,
    "survey": survey,
    "calls": run_calls,
    **{kind: functools.partial(timed, kind) for kind in ("compare", "trials", "stages")},
    "clusters": clusters,
    "profile": profile,
    "suggest": suggest,
}


def main() -> None:
    kind, *arguments = sys.argv[1:]
    KINDS[kind](Writer(), *arguments)


if __name__ == "__main__":
    main()
