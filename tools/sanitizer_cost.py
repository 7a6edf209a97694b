"""Measures what the sanitizer costs: processor time of calls with it, over that of the same calls without.

    python -m tools.sanitizer_cost [--calls N] [--configurations 64/1/1/1,192/2/2/1] [--schedule late,random:1]

Rows are configurations of the group GEMM (tokens of a tile, CTAs that share an MMA, CTAs on an SM, tiles side by side),
the GEMV, and kernels that add 1 to each word of an array and store it to another (--elementwise). A time is the best of
--calls calls in the emulator, alternately without and with the sanitizer after one of each, all in this process: a
share of a launch that a worker ran would be missing. Memory is the host's that the sanitizer takes for each byte of the
arrays. The exit code is 1 where a row costs more than --most times.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import gc
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import nogpu
from harness.console import make_console, make_table
from task import GEMV, GROUP_GEMM, TestSpec
from tools import circumstances
from workshop import records
from workshop.console import command_parser
from workshop.tables import command_text, markdown, missing

CONFIGURATIONS = "64/1/1/1,128/1/1/1,128/1/1/2,192/2/2/1,256/2/1/1"
GROUPS = "m: [200, 130, 64]; n: [384, 256, 256]; k: [1024, 2048, 1280]; g: 3; seed: 5"
VECTOR = "m: 128; k: 2048; l: 2; seed: 5"
MOST = 4.0
THREADS = 256
# Each thread adds 1 to 16 bytes: by one access, or by four of the warps' adjacent words.
ELEMENTWISE = {
    "v4": "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%from]; add.u32 %r0, %r0, 1; add.u32 %r1, %r1, 1;"
    "add.u32 %r2, %r2, 1; add.u32 %r3, %r3, 1; st.global.v4.b32 [%to], {%r0, %r1, %r2, %r3};",
    "b32": "".join(
        f"ld.global.b32 %r{n}, [%from+{4 * THREADS * n}]; add.u32 %r{n}, %r{n}, 1;"
        f"st.global.b32 [%to+{4 * THREADS * n}], %r{n};"
        for n in range(4)
    ),
}
MODULE = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y)
{{
    .reg .b32 %r<8>; .reg .b64 %from, %to, %at;
    ld.param.b64 %from, [x]; ld.param.b64 %to, [y];
    mov.u32 %r4, %ctaid.x; mov.u32 %r5, %tid.x; shl.b32 %r4, %r4, 12; mad.lo.u32 %r4, %r5, {size}, %r4;
    cvt.u64.u32 %at, %r4; add.s64 %from, %from, %at; add.s64 %to, %to, %at;
    {body}
    ret;
}}
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = command_parser(__doc__, "tools.sanitizer_cost")
    parser.add_argument("--calls", type=int, default=7, metavar="N", help="of each kind, default: %(default)s")
    parser.add_argument(
        "--configurations",
        default=CONFIGURATIONS,
        metavar="T/G/P/N[,...]",
        help="configurations of the group GEMM; '' for none; default: %(default)s",
    )
    parser.add_argument("--gemm", default=GROUPS, metavar="SPEC", help="the group GEMM's input, default: %(default)s")
    parser.add_argument("--gemv", default=VECTOR, metavar="SPEC", help="the GEMV's, '' for none; default: %(default)s")
    parser.add_argument("--elementwise", type=int, default=0, metavar="MB", help="of each array; default: none")
    parser.add_argument("--schedule", default="late,random:1", metavar="S[,S...]", help="default: %(default)s")
    parser.add_argument("--sms", type=int, default=2, metavar="N", help="of the chip, default: %(default)s")
    parser.add_argument(
        "--sanitize-allow", default="scope", metavar="RULE[,RULE]", help="rules that are waived, default: %(default)s"
    )
    records.add_save(parser)
    parser.add_argument("--most", type=float, default=MOST, metavar="X", help="times that a row may cost")
    options = parser.parse_args(arguments)
    if options.calls < 1 or options.sms < 1:
        parser.error("--calls and --sms must be at least 1")
    try:
        nogpu.schedules(options.schedule)
        options.shapes = [tuple(map(int, text.split("/"))) for text in options.configurations.split(",") if text]
    except ValueError as error:
        parser.error(str(error))
    if any(len(shape) != 4 for shape in options.shapes):
        names = "tokens/CTAs of an MMA/CTAs on an SM/tiles side by side"
        parser.error(f"{options.configurations}: four numbers expected, {names}")
    return options


def _calls(options: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """Name of a row -> a call of the kernel."""
    import submission
    from harness.plan_report import configuration_name
    from reference import REFERENCES

    found: dict[str, Callable[[], Any]] = {}
    data = REFERENCES[GROUP_GEMM.name].generate_input(**TestSpec.parse(options.gemm).args)
    for shape in options.shapes:
        configuration = submission.Configuration(*shape)
        cluster = configuration.cta_group * configuration.neighbours
        # A cluster at a time, so that each has all of the chip's tiles.
        found[configuration_name(configuration)] = partial(
            submission.solve, data, configurations=(configuration,), sms=cluster
        )
    if options.gemv:
        data = REFERENCES[GEMV.name].generate_input(**TestSpec.parse(options.gemv).args)
        found[f"GEMV ({options.gemv})"] = partial(submission.solve, data)
    return found


def _elementwise(megabytes: int) -> dict[str, Callable[[], Any]]:
    """Name of a row -> a launch over two arrays of `megabytes` MiB each."""
    if not megabytes:
        return {}
    words = np.arange(megabytes << 18, dtype=np.uint32)
    arrays = [nogpu.array(words), nogpu.array(np.zeros_like(words))]
    found: dict[str, Callable[[], Any]] = {}
    for name, body in ELEMENTWISE.items():
        kernel = nogpu.load_ptx(MODULE.format(body=body, size=16 if name == "v4" else 4))["add"]
        grid = words.nbytes // (16 * THREADS)
        found[f"y = x + 1 ({name}, {megabytes} MB)"] = partial(kernel.launch, grid, THREADS, arrays)
    return found


def _resident(field: str) -> int:
    """Bytes of this process's memory that are resident now (VmRSS), or were at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _follow(options: argparse.Namespace, is_followed: bool) -> None:
    """Start or stop the sanitizer of the device's launches."""
    from nogpu import Device
    from nogpu.sanitizer import Sanitizer

    waived = options.sanitize_allow.split(",") if options.sanitize_allow else []
    Device.current().sanitizer = Sanitizer(waived) if is_followed else None


def _memory(call: Callable[[], Any], options: argparse.Namespace) -> int:
    """Bytes of the host's memory that a call takes with the sanitizer, beyond those of a call without."""
    import torch

    taken = []
    for is_followed in (False, True):
        call()  # a first call, which translates
        _follow(options, is_followed)
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
        before = _resident("VmRSS")
        call()
        torch.cuda.synchronize()
        taken.append(_resident("VmHWM") - before)
    return taken[1] - taken[0]


def _measure(call: Callable[[], Any], options: argparse.Namespace) -> tuple[float, float]:
    """Seconds of processor time of the best call without the sanitizer, and of the best with it."""
    import torch

    best: dict[bool, list[float]] = {False: [], True: []}
    for number in range(options.calls + 1):
        for is_followed, times in best.items():
            _follow(options, is_followed)
            start = time.process_time()
            call()
            torch.cuda.synchronize()
            if number:  # not the first call, which translates
                times.append(time.process_time() - start)
    return min(best[False]), min(best[True])


def _header(rows: Sequence[dict[str, Any]]) -> list[str]:
    schedules = dict.fromkeys(row["schedule"] for row in rows)
    return ["configuration", *(text for name in schedules for text in (name, "with the sanitizer"))]


def _cells(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The cells of a table: those of a configuration under all schedules are a line."""
    lines: dict[str, list[str]] = {}
    for row in rows:
        taken = f", {row['bytes per byte']:z.1f} bytes per byte" if "bytes per byte" in row else ""
        lines.setdefault(row["row"], [row["row"]]).extend((f"{row['ms']:.1f} ms", f"{row['times']:.1f} times{taken}"))
    return list(lines.values())


def cost_table(results: Path, _: str) -> str:
    """The table of docs/results/sanitizer_cost.json."""
    saved = records.load(results / "sanitizer_cost.json")
    if saved is None:
        return missing("python -m tools.sanitizer_cost --elementwise 8 --save docs/results/sanitizer_cost.json")
    caption = f"{command_text('tools.sanitizer_cost', saved['command'])}; {saved['processor']}"
    return f"{markdown(_header(saved['rows']), _cells(saved['rows']))}\n\n{caption}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print every row. Returns exit code 1 if a row costs more than --most times, else 0."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    nogpu.activate()

    from nogpu import Device

    device = Device.current()
    schedules = nogpu.schedules(options.schedule)
    rows: list[dict[str, Any]] = []
    properties = dataclasses.replace(device.properties, sm_count=options.sms)
    kept: dict[str, Any] = {"schedules": device.schedules, "sanitizer": device.sanitizer}
    with mock.patch.multiple(device, properties=properties, workers=1, **kept):
        arrays = _elementwise(options.elementwise)
        for name, call in (_calls(options) | arrays).items():
            for schedule in schedules:
                device.schedules = (schedule,)
                plain, followed = _measure(call, options)
                row = {"row": name, "schedule": schedule, "ms": plain * 1e3, "times": followed / plain}
                if name in arrays:
                    row["bytes per byte"] = _memory(call, options) / (2 * options.elementwise << 20)
                rows.append(row)
    record = {**circumstances.versions(arguments), "processor": records.processor(), "rows": rows}
    records.write(options.save, record, "rows")
    table = make_table(_header(rows)[:1], _header(rows)[1:])
    for cells in _cells(rows):
        table.add_row(*cells)
    console = make_console(highlight=False)
    console.print(table)
    highest = max((row["times"] for row in rows), default=0.0)
    if highest > options.most:
        console.print(f"a row costs {highest:.2f} times a plain run; the limit is {options.most:g}")
    return int(highest > options.most)


if __name__ == "__main__":
    sys.exit(main())
