"""The command line: commands, their options and help, and the codes with which they end."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from nogpu import settings
from nogpu.activation import DEVICES
from nogpu.cuda.programs import programs
from nogpu.errors import EXIT_CODES

EXIT_USAGE, EXIT_SETUP, EXIT_NOTHING, EXIT_INTERRUPTED = 2, 3, 103, 130
EXPLORED = 100  # runs of a launch, unless --runs names another number
RANDOM_SECONDS = 60  # time of a process for random schedules, unless --random names another


class Command(NamedTuple):
    """A command that starts programs."""

    summary: str
    description: str
    fixed: dict[str, object] = {}  # settings of the command, unless an option has another value
    is_judged: bool = False  # True: it ends with the verdict on the whole program


PROGRAM = """PROGRAM is a Python script, -m MODULE or -c CODE, as for python; a .cu file, which is compiled first; or an
executable of nvcc. "nvcc ARGS" runs NVIDIA's compiler for such programs. What follows belongs to the program."""

SCHEDULES = """schedules; a launch runs once under each, and all must write the same bytes:
  late           asynchronous work (copies, MMAs, stores) happens when no warp can run
  eager          asynchronous work happens when it is issued
  random:SEED    warps and queues take turns at random
  last:SEED      warps take turns at random; asynchronous work happens when no warp can run
  replay:HOLDS   as nogpu explore has printed it"""

COMMANDS = {
    "run": Command("start a program on the device", SCHEDULES),
    "check": Command(
        "run it with the sanitizer: races that no run shows; the last line is the verdict",
        "Without --schedule a launch runs under late, and while there is time under random:1 to random:5, too.\n"
        "Exit code 103 if the program launches no kernel: nothing has been checked.\n\n" + SCHEDULES,
        {"sanitize": True, "random_seconds": str(RANDOM_SECONDS)},
        is_judged=True,
    ),
    "time": Command(
        "modelled times of its launches on a chip",
        "Launches run one by one under schedule late and are replayed on the chip's profile at the program's end. The\n"
        "times are modelled, not measured: docs/clock.md has their error.",
        {"clock": "b200"},
    ),
    "explore": Command(
        "run all orders of events that differ, for a verdict",
        "The verdict on a launch is clean (no order is left), bounded (it says what is left) or an order that fails:\n"
        "its schedule is printed, and `nogpu run --schedule` repeats it. The schedules run behind the search.\n\n"
        + SCHEDULES,
        {"explore": str(EXPLORED)},
        is_judged=True,
    ),
}

OTHERS = {
    "bench": "the emulator's own time per operation on this CPU",
    "support": "PTX instructions, functions of CUDA and of torch.cuda that are supported",
}
"""Commands that start no program."""

OVERVIEW = f"""usage: nogpu COMMAND [OPTIONS] PROGRAM [ARGS...]

An NVIDIA B200 in software, for programs with CUDA C++, CuTe DSL, Triton or PTX kernels.

{{commands}}

{PROGRAM}
`nogpu PROGRAM` is short for `nogpu run PROGRAM`; `nogpu COMMAND --help` has a command's options.

exit codes: that of the program; besides, if one of these has ended it (in `check`, `explore`: has happened in it):
    1  the program has failed by itself         100  a fault: a kernel breaks a rule
    2  wrong usage                              101  a hang
    3  a compiler or a package is missing       102  refused: a launch that is not legal, or is not modelled
  130  interrupted before the start             103  `check`, `explore`: no kernel was launched
"""


def overview() -> str:
    """The text of `nogpu --help`."""
    rows = [(name, command.summary) for name, command in COMMANDS.items()] + list(OTHERS.items())
    return OVERVIEW.format(commands="\n".join(f"  {name:9}{summary}" for name, summary in rows))


def checked(name: str) -> Callable[[str], str]:
    """The argparse type of a setting's option: checks the text and returns it. Raises argparse.ArgumentTypeError."""

    def check(text: str) -> str:
        try:
            settings.SETTINGS[name].read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return check


def _parser(name: str) -> argparse.ArgumentParser:
    """The parser of a command, without the checks of `parse`."""
    parser = argparse.ArgumentParser(
        prog=f"nogpu {name}",
        usage="%(prog)s [OPTIONS] PROGRAM [ARGS...]",
        description=f"{COMMANDS[name].summary.capitalize()}.\n\n{PROGRAM}",
        epilog=COMMANDS[name].description,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=26, width=120),
        allow_abbrev=False,
    )
    for key, setting in settings.SETTINGS.items():
        flag = setting.flag(key) if name in setting.commands else ""
        if flag and setting.value is None:
            parser.add_argument(flag, dest=key, action="store_true", default=None, help=setting.help)
        elif flag:
            parser.add_argument(flag, dest=key, type=checked(key), metavar=setting.value, help=setting.help)
    if name == "run":
        parser.add_argument(
            "--device", choices=DEVICES, help="emulated B200 or Rubin, or real Hopper GPU; default: b200"
        )
    elif name in settings.SANITIZED:
        parser.add_argument("--device", choices=("b200", "rubin"), help="emulated chip; default: b200")
    parser.add_argument("--json", metavar="FILE", help="write verdict, launches, faults and times; -: standard output")
    for flag, text in (("-m", "MODULE"), ("-c", "CODE")):
        parser.add_argument(flag, nargs=argparse.REMAINDER, metavar=(text, "ARGS"), help=argparse.SUPPRESS)
    parser.add_argument("script", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def wrong_usage(command: str, reason: str) -> NoReturn:
    """Exits with 2, and with usage and reason on standard error."""
    _parser(command).error(reason)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options, with the command's name as `command` and the program with its own arguments as `program`.

    Exits with 2 for wrong usage, and for help.
    """
    command = arguments[0] if arguments and arguments[0] in COMMANDS else "run"
    parser = _parser(command)
    options = parser.parse_args(arguments[arguments[:1] == [command] :])
    options.command, options.device = command, getattr(options, "device", None) or "b200"
    options.is_judged = COMMANDS[command].is_judged or options.json is not None
    if command == "check":
        scheduled = options.schedule or os.environ.get("NOGPU_SCHEDULE")
        if scheduled and options.random_seconds:
            parser.error(f"--random is for launches without schedules of their own: these run under {scheduled}")
        options.random_seconds = "0" if scheduled else options.random_seconds or os.environ.get("NOGPU_RANDOM_SECONDS")
    for name, value in COMMANDS[command].fixed.items():
        if not getattr(options, name, None):
            setattr(options, name, value)
    if options.m is not None or options.c is not None:
        flag, rest = ("-m", options.m) if options.m is not None else ("-c", options.c)
        options.program = [flag, *rest]
    else:
        rest = options.program = options.script
        if rest and not os.path.exists(rest[0]) and rest[0] != programs.NVCC:
            parser.error(f"cannot find the script {rest[0]!r}")
    if not rest:
        parser.error("a program is needed: SCRIPT, -m MODULE or -c CODE")
    _check_together(parser, options)
    if options.json not in (None, "-"):
        try:
            settings.file(options.json)
        except ValueError as error:
            parser.error(f"--json: {error}")
    if sys.flags.no_site or sys.flags.ignore_environment:
        parser.error("python's options -S, -E and -I keep a process off the emulated device: start without them")
    return options


def _check_together(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exits with 2 for options, and environment variables, that do not go together."""
    if getattr(options, "sanitize_allow", None) and not options.sanitize:
        parser.error("--allow is of --sanitize: give that, too")
    option = getattr(options, "sanitize_schedule", None)
    followed = option or os.environ.get("NOGPU_SANITIZE_SCHEDULE")
    if followed and options.command != "time":
        given = (options.schedule or os.environ.get("NOGPU_SCHEDULE") or "late").split(",")
        absent = [name for name in followed.split(",") if name not in given]
        if absent:
            by = "--follow" if option else "environment variable NOGPU_SANITIZE_SCHEDULE:"
            parser.error(f"{by} {absent[0]}: launches run under {', '.join(given)}")
    if options.device == "hopper" and any(
        (options.schedule, options.workers, options.lenient, options.max_instructions)
    ):
        parser.error("--schedule, --workers, --lenient and --max-instructions are for the emulated B200")
    if options.device == "rubin" and os.environ.get("NOGPU_CLOCK"):
        parser.error("environment variable NOGPU_CLOCK: no profile models the times of Rubin")
    if options.command == "run" and options.device != "hopper" and options.hopper_mode:
        parser.error("--hopper-mode is for --device hopper")


def version() -> str:
    """The version of nogpu that is installed, "unknown" if none is."""
    try:
        return importlib.metadata.version("nogpu")
    except importlib.metadata.PackageNotFoundError:  # a checkout's folder on the path
        return "unknown"


VERDICTS = {0: "right", EXIT_USAGE: "wrong usage", EXIT_SETUP: "set-up missing", EXIT_NOTHING: "nothing launched"} | {
    code: kind for kind, code in EXIT_CODES.items()
}
"""Exit code of a command -> its verdict; any other code is "failed"."""
