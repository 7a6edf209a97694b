"""A process of tools.clock.recordings that records rows of `truth`, random shapes and programs on the emulated device.

The launches of rings and plain reads, which elsewhere go through CUDA's driver, go to the emulated device, too. Kernels
keep their tensor-core work; a profile says how long it takes.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import io
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from workshop.clock.record import save

if TYPE_CHECKING:
    from nogpu import LaunchConfig
    from nogpu.clock import Trace

Point = dict[str, Any]

_traces: list[Trace] = []


def start(sms: int) -> None:
    """Records launches of this process in `_traces`. The process is on the emulated device, which gets `sms` SMs."""
    from nogpu import Device
    from nogpu.clock import Recording

    device = Device.current()
    device.properties = dataclasses.replace(device.properties, sm_count=sms)
    device.recording = Recording(_traces.append, values=False)
    _take_driver()


def _take_driver() -> None:
    """Makes nogpu.hopper.gpu load and launch kernels on the emulated device."""
    import nogpu
    from nogpu import Device
    from nogpu.hopper import gpu

    class Module:
        def __init__(self, ptx: str) -> None:
            self._module = nogpu.load_ptx(ptx)

        def function(self, name: str) -> Any:
            return self._module[name].entry

    def launch(entry: Any, config: LaunchConfig, parameters: list[bytes], queue: int) -> None:
        Device.current().launch(entry, config, parameters)

    gpu.Module = Module  # type: ignore[assignment, misc]
    gpu.launch = launch  # type: ignore[assignment]
    gpu.set_attribute = lambda function, attribute, value: None
    gpu.device_attribute = lambda number: Device.current().properties.sm_count


def record(points: dict[str, Point], folder: Path) -> dict[str, str]:
    """Records the points, each under its name in the folder. Returns name -> reason for a missing recording, or ""."""
    return {name: _recorded(name, point, folder) for name, point in points.items()}


def _recorded(name: str, point: Point, folder: Path) -> str:
    output = io.StringIO()
    _traces.clear()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            if point.get("problem") is None:
                failure = _run(Path(point["path"]), point["configuration"])
                if not _traces:
                    return f"launched nothing: {failure}"
                del _traces[:-1]
            elif "sizes" in point:
                _call_shape(point)
            else:
                _call(point)
    except Exception as error:  # an error of the compiler, the program or the emulator
        return f"{type(error).__name__}: {error}"[:300]
    save(folder / name, _traces)
    _traces.clear()
    return ""


def _run(path: Path, configuration: str) -> str:
    from tools.clock.truth import run_program

    with _once():
        return str(run_program(path, shlex.split(configuration)))


@contextlib.contextmanager
def _once() -> Iterator[None]:
    """A context in which a launch that repeats an earlier one is not run again: programs time theirs in loops."""
    from nogpu import Device

    device = Device.current()
    run = device.launch
    known: dict[tuple[Any, ...], tuple[Any, Trace]] = {}

    def launch(entry: Any, config: LaunchConfig, parameters: list[bytes], *rest: Any) -> None:
        key = id(entry), config, tuple(parameters)
        if key in known:
            _traces.append(known[key][1])
        else:
            run(entry, config, parameters, *rest)
            known[key] = entry, _traces[-1]

    with mock.patch.object(device, "launch", launch):
        yield


def _call(point: Point) -> None:
    """Calls the row of a point once. Raises ValueError for a row that is not known."""
    import torch

    from tools.clock.truth import case_rows
    from tools.rows import timed_case

    of = timed_case(point["problem"], point["case"], [_input(point["problem"], point["case"])])
    path = Path(point["path"]) if "path" in point else None
    example = path if path is not None and path.stem.startswith("grouped") else None
    options = argparse.Namespace(example=example, peer=[path] if path is not None and example is None else [])
    for row, facts in case_rows(of, options, hopper=False):
        if (facts["program"], facts["configuration"]) == (point["program"], point["configuration"]):
            torch.cuda.synchronize()
            _traces.clear()
            row.call(row.inputs[0])
            torch.cuda.synchronize()
            return
    raise ValueError(f"{point['program']} has no row {point['configuration']!r}")


def _call_shape(point: Point) -> None:
    """Calls a configuration once on a random shape, as tools.choice times it. Operands are 0: they decide no time."""
    import torch

    import submission
    from harness.launch_modes import OVERLAPPING, PROGRAMMATIC
    from harness.plan_report import configuration_name
    from tools.choice.times import call_bytes, call_data, kernel, products

    problem, sizes = point["problem"], tuple(map(tuple, point["sizes"]))
    configurations = {configuration_name(shape): shape for shape in submission.legal_configurations(products(problem))}
    data = call_data(problem, sizes, torch.zeros(call_bytes(problem, sizes), dtype=torch.uint8, device="cuda"))
    # Ordinary launches are one of these without the programmatic attribute, which is left out in the replay.
    call = kernel(configurations[point["configuration"]], OVERLAPPING if point["promised"] else PROGRAMMATIC)
    torch.cuda.synchronize()
    _traces.clear()
    call(data)
    torch.cuda.synchronize()


@functools.lru_cache(maxsize=4)
def _input(problem: str, case: int) -> Any:
    import reference
    from task import PROBLEMS, TestSpec

    line = PROBLEMS[problem].benchmarks[case].line
    return reference.REFERENCES[problem].generate_input(**TestSpec.parse(line).args)
