"""python -m emulator [OPTIONS] SCRIPT ARGS...: starts the program again, in this process, on the emulated device."""

from __future__ import annotations

import argparse
import os
import re
import sys

from emulator.activation import DEVICES, environment
from emulator.hopper import MODES

SCHEDULE = re.compile(r"late|eager|random:\d+")

DESCRIPTION = """Runs a Python program that uses torch's device "cuda" and CuTe DSL kernels on an emulated
NVIDIA B200. The program is named as `python` itself takes it; what follows belongs to it."""

EPILOG = """A kernel is run once under every schedule; all must write the same bytes:
  late           asynchronous work (copies, MMAs, stores) happens only when no warp can run
  eager          asynchronous work happens when it is issued
  random:SEED    warps and queues take turns at random
With --device hopper, torch is the real one and launches go to a Hopper GPU, the kernel's sm_100a PTX lowered to sm_90a:
  exact          tensor memory and tensor core in software on the GPU, results are a B200's
  timing         tensor-core work is left out, results are worthless, the rest takes its real time
  bare           the same, and conversions from e2m1 are one instruction with wrong values, as many as a B200 needs
The environment variables EMULATOR_SCHEDULE, EMULATOR_WORKERS and EMULATOR_HOPPER_MODE give the defaults."""


def schedules(text: str) -> str:
    names = text.split(",")
    for schedule in names:
        if not SCHEDULE.fullmatch(schedule):
            raise argparse.ArgumentTypeError(f"{schedule!r} is no schedule: late, eager or random:SEED expected")
        if names.count(schedule) > 1:
            raise argparse.ArgumentTypeError(f"{schedule!r} is given twice")
    return text


def workers(text: str) -> str:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes: an integer from 1 expected")
    return text


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m emulator",
        usage="%(prog)s [--schedule S[,S...]] [--workers N] [--lenient] [--device D [--hopper-mode M]] "
        "(SCRIPT | -m MODULE | -c CODE) [ARGS...]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--schedule", type=schedules, metavar="S[,S...]", help="order of asynchronous work (late)")
    parser.add_argument("--workers", type=workers, metavar="N", help="processes that share a launch (number of cores)")
    parser.add_argument(
        "--lenient", action="store_true", help="broken rules of order (fences, a pair's allocation) only warn"
    )
    parser.add_argument("--device", choices=DEVICES, default="b200", help="emulated B200 (b200), or a Hopper GPU")
    parser.add_argument("--hopper-mode", choices=MODES, help="what becomes of tensor-core work on a Hopper (exact)")
    parser.add_argument("-m", nargs=argparse.REMAINDER, metavar=("MODULE", "ARGS"), help="run a module as a script")
    parser.add_argument("-c", nargs=argparse.REMAINDER, metavar=("CODE", "ARGS"), help="run a program given as text")
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT ARGS", help="run a file")
    options = parser.parse_args(arguments)
    if options.m is not None or options.c is not None:
        flag, rest = ("-m", options.m) if options.m is not None else ("-c", options.c)
        options.program = [flag, *rest]
    else:
        rest = options.program = options.script
        if rest and not os.path.exists(rest[0]):
            parser.error(f"cannot find the script {rest[0]!r}")
    if not rest:
        parser.error("a program is needed: SCRIPT, -m MODULE or -c CODE")
    if options.device == "hopper" and (options.schedule or options.workers or options.lenient):
        parser.error("--schedule, --workers and --lenient are for the emulated B200")
    if options.device != "hopper" and options.hopper_mode:
        parser.error("--hopper-mode is for --device hopper")
    if sys.flags.no_site or sys.flags.ignore_environment:
        parser.error("python's -S, -E and -I keep a process off the emulated device: start without them")
    return options


def interpreter_options() -> list[str]:
    """The options that Python itself was started with, without the one that names this module."""
    options = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv)]
    if options and options[-1].startswith("-") and options[-1].endswith("m"):
        options[-1:] = [options[-1][:-1]] if len(options[-1]) > 2 else []
    return options


def main() -> None:
    options = parse(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, *interpreter_options(), *options.program]
    variables = environment(options.schedule, options.workers, options.device, options.hopper_mode, options.lenient)
    os.execve(sys.executable, command, variables)


if __name__ == "__main__":
    main()
