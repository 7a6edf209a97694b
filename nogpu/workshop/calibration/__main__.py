"""Measures the constants of a chip profile on the GPU at hand, a Hopper or a B200, with microbenchmarks of our own.

    python -m workshop.calibration [--only PREFIX ...] [--save FILE.json]    about two minutes on a GPU
    python -m nogpu -m workshop.calibration --smoke                          are the kernels legal? No figure counts

The file has every constant by name: unit, median, extremes and samples of repeated runs, and the launch that measured
it (kernels: *.cu). The command needs NVIDIA's driver, cuda.bindings and NVRTC, which a CUDA build of torch brings, and
no nvcc. Nothing is fitted.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nogpu.errors import EmulatorError
from workshop import records
from workshop.calibration import copies, multiprocessor, starts, tensor
from workshop.calibration.device import DATA_BYTES, Gpu, current
from workshop.calibration.launches import SMOKE, Launch, Measurement, Sizes
from workshop.console import command_parser, make_console, make_table

SMOKE_DATA_BYTES, REGION = 2 << 20, 64 << 10
WARM_UP_S = 0.7  # time in which an idle GPU raises its clocks
SPIN_CYCLES = 50_000_000
SAVE_S = 5
LOST = ("CUDA_ERROR_ILLEGAL", "CUDA_ERROR_LAUNCH", "CUDA_ERROR_MISALIGNED")  # errors after which nothing runs
MANY = ("starts.", "latency.l2_line")  # measurements whose records say more than their figures


def measurements(device: Gpu, sizes: Sizes, only: list[str]) -> list[Measurement]:
    """The measurements whose names start with one of `only`; all if `only` is empty."""
    sizes = dataclasses.replace(sizes, sms=sizes.sms or device.sms, region=device.data_bytes // REGION * REGION)
    every = itertools.chain(
        starts.measurements(sizes),
        multiprocessor.instructions(sizes, device.arch),
        multiprocessor.shared(sizes),
        multiprocessor.barriers(sizes),
        copies.measurements(sizes),
        multiprocessor.maps(sizes),
        tensor.measurements(sizes) if device.arch == "sm_100a" else (),
    )
    return [x for x in every if not only or x.name.startswith(tuple(only))]


def warm_up(device: Gpu) -> None:
    """Raise the GPU's clocks."""
    end = time.monotonic() + WARM_UP_S
    while time.monotonic() < end:
        device.run(Launch("launch", "spin", (SPIN_CYCLES,)))


def numbered(launch: Launch, count: int) -> list[Launch]:
    """The launch `count` times, with its "number" filled in."""
    return [
        dataclasses.replace(launch, arguments=tuple(number if x == "number" else x for x in launch.arguments))
        for number in range(count)
    ]


def samples(device: Gpu, measurement: Measurement, repeats: int) -> dict[str, list[float]]:
    """Figures of repeated runs by name, "" for a single figure. The first of several runs is not counted."""
    result: dict[str, list[float]] = {}
    if measurement.fill is not None:
        measurement.fill(device)
    launches = numbered(measurement.launch, measurement.launches)
    for repeat in range(repeats + (repeats > 1)):
        if measurement.flush:
            device.flush(measurement.flush)
        if measurement.figure is None:
            figures: Any = device.period(launches)
        else:
            if len(launches) == 1:
                device.run(launches[0])
            else:
                device.run_together(launches)
            figures = measurement.figure(device.records(measurement.words))
        for name, value in (figures if isinstance(figures, dict) else {"": figures}).items():
            if repeat or repeats == 1:
                result.setdefault(name, []).append(value)
    return result


def entry(measurement: Measurement, values: list[float]) -> dict[str, Any]:
    """The file's entry of a constant."""
    return {
        "value": round(statistics.median(values), 5),
        "unit": measurement.unit,
        "low": round(min(values), 5),
        "high": round(max(values), 5),
        "samples": [round(x, 5) for x in values],
        "launch": dataclasses.asdict(measurement.launch),
        **({"launches": measurement.launches} if measurement.launches > 1 else {}),
    }


def calibrate(
    device: Gpu, sizes: Sizes, only: list[str], save: Callable[[dict[str, Any], dict[str, str]], None]
) -> tuple[dict[str, Any], dict[str, str], dict[str, np.ndarray]]:
    """(constants by name, errors by name, last records of MANY by name).

    save: called with constants and errors now and then, in case a kernel hangs.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    raw: dict[str, np.ndarray] = {}
    constants: dict[str, Any] = {}
    errors: dict[str, str] = {}
    saved = time.monotonic()
    todo = measurements(device, sizes, only)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, transient=True) as progress:
        bar = progress.add_task("", total=len(todo))
        for measurement in todo:
            progress.update(bar, description=measurement.name)
            try:
                found = samples(device, measurement, sizes.repeats)
                if measurement.name.startswith(MANY):
                    raw[measurement.name] = device.records(measurement.words)
            except (EmulatorError, ValueError) as error:
                errors[measurement.name] = str(error)
                if any(name in str(error) for name in LOST):
                    break
                found = {}
            for name, values in found.items():
                constants[measurement.name + (f".{name}" if name else "")] = entry(measurement, values)
            progress.advance(bar)
            if time.monotonic() - saved > SAVE_S:
                save(constants, errors)
                saved = time.monotonic()
    return constants, errors, raw


def show(constants: dict[str, Any], errors: dict[str, str]) -> None:
    """Print the constants, then the errors."""
    table = make_table(["constant"], ["median", "low", "high"])
    table.add_column("unit")
    for name, found in constants.items():
        table.add_row(name, *(f"{found[key]:.4g}" for key in ("value", "low", "high")), found["unit"])
    make_console().print(table)
    for name, error in errors.items():
        print(f"{name}: {error}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    parser = command_parser(__doc__, "workshop.calibration")
    parser.add_argument("--only", action="append", default=[], metavar="PREFIX", help="constants of this name")
    parser.add_argument("--raw", type=Path, metavar="FILE.npz", help="save the last records of what has many")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, whose figures mean nothing")
    records.add_save(parser)
    options = parser.parse_args(arguments)
    started = time.monotonic()
    device = current(SMOKE_DATA_BYTES if options.smoke else DATA_BYTES)
    sizes = SMOKE if options.smoke else Sizes()
    if not options.smoke:
        warm_up(device)

    def save(constants: dict[str, Any], errors: dict[str, str]) -> None:
        record = {
            "device": device.name,
            "arch": device.arch,
            "sms": device.sms,
            "l2_bytes": device.l2_bytes,
            "driver, max clocks": records.driver_and_clocks(),
            "command": records.command(arguments),
            "seconds": round(time.monotonic() - started, 1),
            "errors": errors,
            "constants": constants,
        }
        records.write(options.save, record, "constants")

    constants, errors, raw = calibrate(device, sizes, options.only, save)
    save(constants, errors)
    if options.raw:
        np.savez_compressed(options.raw, **raw)  # type: ignore[arg-type]
    show(constants, errors)
    print(f"{len(constants)} constants of {device.name} in {time.monotonic() - started:.0f} s, {len(errors)} failed")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
