"""Cost of the sanitizer: processor time of calls with it, over that of the same calls without.

A time is the best of so many calls in the emulator, alternately without and with the sanitizer after one of each, all
in this process: a share of a launch that a worker ran would be missing.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from nogpu.execution import settings
from nogpu.execution.device import Device
from nogpu.sanitizer.observer import Sanitizer
from workshop.console import make_console, make_table

MOST = 4.0
Calls = Mapping[str, Callable[[], Any]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """--calls, --schedule, --sms, --sanitize-allow, --most."""
    parser.add_argument("--calls", type=at_least_one, default=7, metavar="N", help="of each kind, default: %(default)s")
    parser.add_argument(
        "--schedule",
        type=settings.schedules,
        default="late,random:1",
        metavar="S[,S...]",
        help="default: %(default)s",
    )
    parser.add_argument("--sms", type=at_least_one, default=2, metavar="N", help="of the chip, default: %(default)s")
    parser.add_argument(
        "--sanitize-allow", default="scope", metavar="RULE[,RULE]", help="rules that are waived, default: %(default)s"
    )
    parser.add_argument("--most", type=float, default=MOST, metavar="X", help="times that a row may cost")


def at_least_one(text: str) -> int:
    """A number from 1 on. Raises ValueError."""
    if (value := int(text)) < 1:
        raise ValueError(f"{value} is below 1")
    return value


def _measure(call: Callable[[], Any], options: argparse.Namespace) -> tuple[float, float]:
    """Seconds of processor time of the best call without the sanitizer, and of the best with it."""
    import torch

    waived = options.sanitize_allow.split(",") if options.sanitize_allow else []
    best: dict[bool, list[float]] = {False: [], True: []}
    for number in range(options.calls + 1):
        for is_followed, times in best.items():
            Device.current().sanitizer = Sanitizer(waived) if is_followed else None
            start = time.process_time()
            call()
            torch.cuda.synchronize()
            if number:  # the first one translates
                times.append(time.process_time() - start)
    return min(best[False]), min(best[True])


def show(calls: Calls, options: argparse.Namespace) -> int:
    """Prints a row for each call. Exit code 1 if a row costs more than it may."""
    device = Device.current()
    before = {name: getattr(device, name) for name in ("properties", "schedules", "sanitizer", "workers")}
    device.properties = dataclasses.replace(device.properties, sm_count=options.sms)
    device.workers = 1
    table = make_table(["call"], [text for name in options.schedule for text in (name, "with the sanitizer")])
    highest = 0.0
    try:
        for name, call in calls.items():
            cells = []
            for schedule in options.schedule:
                device.schedules = (schedule,)
                plain, followed = _measure(call, options)
                cells += [f"{plain * 1e3:.1f} ms", f"{followed / plain:.1f} times"]
                highest = max(highest, followed / plain)
            table.add_row(name, *cells)
    finally:
        for name, value in before.items():
            setattr(device, name, value)
    console = make_console(highlight=False)
    console.print(table)
    if highest > options.most:
        console.print(f"a row costs {highest:.2f} times a plain run; the limit is {options.most:g}")
    return int(highest > options.most)
