"""python -m nogpu [OPTIONS] SCRIPT ARGS...: restart this process as the program, on the emulated device."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from nogpu import settings, toolchain
from nogpu.activation import DEVICES, environment
from nogpu.cuda.programs import libraries, programs
from nogpu.errors import EmulatorError

DESCRIPTION = """Run a Python program that uses torch's device "cuda" and CuTe DSL kernels on an emulated NVIDIA B200.

SCRIPT, -m and -c mean what they mean to python; the arguments behind them belong to the program. SCRIPT may also be a
program of CUDA C++: an executable, a library with a `main`, or a .cu file, which is compiled first. "nvcc ARGS" runs
NVIDIA's compiler for such programs."""

EPILOG = """schedules; a launch runs once under each, and all must write the same bytes:
  late           asynchronous work (copies, MMAs, stores) happens when no warp can run
  eager          asynchronous work happens when it is issued
  random:SEED    warps and queues take turns at random
  last:SEED      warps take turns at random; asynchronous work happens when no warp can run
  replay:HOLDS   as --explore has printed it

--device hopper: torch is the real one, and launches run on a Hopper GPU, their sm_100a PTX lowered to sm_90a:
  exact          tensor memory and tensor core are software on the GPU; results are a B200's
  timing         no tensor-core work; results are worthless, all other instructions take their real time
  bare           timing, with each conversion from e2m1 as one instruction (a B200 needs one) with wrong values

--clock CHIP records each launch, and at the program's end replays all of them on a chip's profile ("b200", "h200", or
a JSON file): modelled microseconds, utilisation and who waits for what go to standard error. Launches run one by one
under schedule late. --timeline FILE (.json, .json.gz: for ui.perfetto.dev) and --picture FILE.png show them in time.
--why replays them again, with each part of the chip or each kind of wait for nothing, and prints what that would gain.

A launch of more than a few seconds shows its progress where standard error is a terminal, in the first process only:
its children show none. The environment variable NOGPU_PROGRESS=0 turns that off.

The environment variables NOGPU_SCHEDULE, NOGPU_WORKERS, NOGPU_MAX_INSTRUCTIONS and NOGPU_HOPPER_MODE
set other defaults.

Exit codes, besides those of the program: 2 for an option or a variable NOGPU_... that is not legal, 3 where the
machine lacks a C compiler that works, or a folder to keep what it makes, 130 for an interruption before the start."""

EXIT_SETUP = 3
EXIT_INTERRUPTED = 130


def checked(name: str) -> Callable[[str], str]:
    """The type of a setting's option: its text, checked. It raises argparse.ArgumentTypeError."""

    def check(text: str) -> str:
        try:
            settings.SETTINGS[name].read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return check


def make_parser() -> argparse.ArgumentParser:
    """The command line's parser, without the checks of `parse`."""
    parser = argparse.ArgumentParser(
        prog="python -m nogpu",
        usage="%(prog)s [OPTIONS] (SCRIPT | -m MODULE | -c CODE) [ARGS...]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for name, setting in settings.SETTINGS.items():
        flag = setting.flag(name)
        if flag and setting.value is None:
            parser.add_argument(flag, dest=name, action="store_true", default=None, help=setting.help)
        elif flag:
            parser.add_argument(flag, dest=name, type=checked(name), metavar=setting.value, help=setting.help)
    parser.add_argument(
        "--device", choices=DEVICES, default="b200", help="emulated B200 or real Hopper GPU; default: %(default)s"
    )
    parser.add_argument("-m", nargs=argparse.REMAINDER, metavar=("MODULE", "ARGS"), help="run a module as a script")
    parser.add_argument("-c", nargs=argparse.REMAINDER, metavar=("CODE", "ARGS"), help="run a program given as text")
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT ARGS", help="run a file")
    return parser


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options, with the program's own arguments as `program`. Exits with 2 for wrong usage."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.m is not None or options.c is not None:
        flag, rest = ("-m", options.m) if options.m is not None else ("-c", options.c)
        options.program = [flag, *rest]
    else:
        rest = options.program = options.script
        if rest and not os.path.exists(rest[0]) and rest[0] != programs.NVCC:
            parser.error(f"cannot find the script {rest[0]!r}")
    if not rest:
        parser.error("a program is needed: SCRIPT, -m MODULE or -c CODE")
    emulated = options.schedule, options.workers, options.lenient, options.max_instructions
    for option in ("allow", "schedule"):
        if getattr(options, f"sanitize_{option}") and not options.sanitize:
            parser.error(f"--sanitize-{option} is of --sanitize: give that, too")
    if options.sanitize_schedule:
        given = (options.schedule or os.environ.get("NOGPU_SCHEDULE") or "late").split(",")
        absent = [name for name in options.sanitize_schedule.split(",") if name not in given]
        if absent:
            parser.error(f"--sanitize-schedule {absent[0]}: launches run under {', '.join(given)}")
    for option in ("sanitize", "explore"):
        if getattr(options, option) and (options.clock or options.device == "hopper"):
            parser.error(f"--{option} is for the emulated B200, without --clock")
    if options.clock and (options.device == "hopper" or options.schedule):
        parser.error("--clock records what the emulated B200 does under schedule late: no --device, no --schedule")
    for name in ("clock_why", "clock_timeline", "clock_picture"):
        if getattr(options, name) and not options.clock:
            parser.error(
                f"{settings.SETTINGS[name].flag(name)} is of --clock, which replays launches: give --clock CHIP, too"
            )
    if options.device == "hopper" and any(emulated):
        parser.error("--schedule, --workers, --lenient and --max-instructions are for the emulated B200")
    if options.device != "hopper" and options.hopper_mode:
        parser.error("--hopper-mode is for --device hopper")
    if sys.flags.no_site or sys.flags.ignore_environment:
        parser.error("python's options -S, -E and -I keep a process off the emulated device: start without them")
    return options


def interpreter_options() -> list[str]:
    """The options that Python itself was started with, without the -m that names this module."""
    options = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv)]
    if options and options[-1].startswith("-") and options[-1].endswith("m"):
        options[-1:] = [options[-1][:-1]] if len(options[-1]) > 2 else []
    return options


def prepare(device: str) -> None:
    """Make the libraries that programs on the device load. Raises RuntimeError as `toolchain.build`."""
    libraries.library(libraries.CUTE_DSL)
    for source in () if device == "hopper" else ("cuda/align.c", "native"):
        toolchain.build(source)


def main() -> None:
    """The command line. Ends the process, or replaces it by Python running the program."""
    try:
        start()
    except KeyboardInterrupt:
        print("python -m nogpu: interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def start() -> None:
    """Replace this process by Python running the program."""
    options = parse(sys.argv[1:])
    variables = environment(options.device, **{name: getattr(options, name, None) for name in settings.SETTINGS})
    try:
        settings.check(variables)
    except ValueError as error:
        make_parser().error(str(error))
    try:
        prepare(options.device)
    except RuntimeError as error:
        print(f"python -m nogpu: {error}", file=sys.stderr)
        sys.exit(EXIT_SETUP)
    command = [sys.executable, *interpreter_options(), *options.program]
    if programs.is_program(options.program[0]):
        try:
            command, variables = programs.command(options.program, variables)
        except (EmulatorError, RuntimeError) as error:
            sys.exit(f"python -m nogpu: {error}")
    for output in filter(None, (sys.stdout, sys.stderr)):  # a closed one is None
        output.flush()
    os.execve(command[0], command, variables)


if __name__ == "__main__":
    main()
