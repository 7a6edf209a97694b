"""Command-line options that several commands share, each with one name, one meaning and one help text."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness import ROOT
from harness.clocks import Clocking
from harness.devices import DEVICES
from task import GROUP_GEMM, PROBLEMS

ALL = "all"  # --problem: every problem, one after the other
B200_SMS = 148
LONGEST_S = 1_000_000  # longest wait that the system can take: it counts milliseconds in 31 bits


def command_parser(usage: str) -> argparse.ArgumentParser:
    """A parser whose help begins with `usage`, a module's docstring, with its line breaks."""
    return argparse.ArgumentParser(
        description=usage, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )


def add_problem(parser: argparse.ArgumentParser, more: Sequence[str] = ()) -> None:
    """Add --problem: a name of task.PROBLEMS or one of `more`."""
    parser.add_argument("--problem", choices=(*PROBLEMS, *more), default=GROUP_GEMM.name, help="default: %(default)s")


def add_case(parser: argparse.ArgumentParser) -> None:
    """Add --case: a list of numbers; None by default."""
    parser.add_argument(
        "--case", type=int, action="append", metavar="I", help="run only this case, numbered from 0; may be repeated"
    )


def add_submission(parser: argparse.ArgumentParser) -> None:
    """Add --submission: a file that defines custom_kernel."""
    parser.add_argument(
        "--submission",
        type=Path,
        default=ROOT / "submission.py",
        metavar="FILE",
        help="file that defines custom_kernel; default: the project's submission.py",
    )


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add --device: a name of devices.DEVICES; None by default."""
    parser.add_argument(
        "--device",
        choices=tuple(DEVICES),
        help="default: b200 if the machine has one, else hopper if it has one, else emulator",
    )


def add_schedule(parser: argparse.ArgumentParser) -> None:
    """Add --schedule: text for `python -m nogpu`."""
    parser.add_argument("--schedule", metavar="S[,S...]", help="passed on to the emulator if that is the device")


def add_sanitizer(parser: argparse.ArgumentParser) -> None:
    """Add --sanitize, and --sanitize-allow and --sanitize-schedule, whose text is for `python -m nogpu`."""
    parser.add_argument(
        "--sanitize",
        action="store_true",
        help="emulator: check that events order all accesses that conflict, whatever a schedule shows; lines of the "
        "submission with a comment `sanitizer: allow RULE: REASON` behind a PTX instruction waive the rule there",
    )
    parser.add_argument("--sanitize-allow", metavar="RULE[,RULE]", help="of --sanitize: further rules that are waived")
    parser.add_argument("--sanitize-schedule", metavar="S[,S...]", help="of --sanitize: under these schedules only")


def add_clock(parser: argparse.ArgumentParser) -> None:
    """Add --clock, --why, --timeline and --picture; `clocking` reads them."""
    parser.add_argument(
        "--clock",
        type=chip,
        metavar="CHIP",
        help="emulator, benchmark and leaderboard: replay recorded calls on a chip (b200, h200, a profile's file) and "
        "show modelled times",
    )
    parser.add_argument(
        "--why",
        action="store_true",
        help="of --clock: replay the loop again with each part of the chip, or each kind of wait, for nothing, and say "
        "what that would gain",
    )
    parser.add_argument(
        "--timeline",
        type=timeline,
        metavar="FILE",
        help="of --clock: the replayed calls for ui.perfetto.dev (.json, .json.gz)",
    )
    parser.add_argument("--picture", type=picture, metavar="FILE", help="of --clock: the replayed calls as a PNG")


def clocking(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Clocking | None:
    """The request that the options of `add_clock` make. Exits with 2 if one of them needs --clock, which is missing."""
    if args.clock:
        return Clocking(args.clock, args.why, args.timeline, args.picture)
    for name in ("why", "timeline", "picture"):
        if getattr(args, name):
            parser.error(
                f"--{name} is of --clock, which replays what the emulator has recorded: give --clock CHIP, too"
            )
    return None


@contextmanager
def _argument_errors() -> Iterator[None]:
    """A context that turns a ValueError into an argparse.ArgumentTypeError."""
    try:
        yield
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def chip(text: str) -> str:
    """A chip profile's name, or the absolute path of its file."""
    from nogpu.clock import profile

    with _argument_errors():
        profile(text)
    return str(Path(text).resolve()) if Path(text).is_file() else text


def timeline(text: str) -> Path:
    """The absolute path of a timeline's file."""
    from nogpu.clock import timeline_path

    with _argument_errors():
        return Path(timeline_path(text)).absolute()


def picture(text: str) -> Path:
    """The absolute path of a picture's file."""
    from nogpu.clock import picture_path

    with _argument_errors():
        return Path(picture_path(text)).absolute()


def add_plans(parser: argparse.ArgumentParser) -> None:
    """Add --plans: the choice of the submission's plans that run."""
    parser.add_argument(
        "--plans",
        choices=("chosen", ALL),
        default="chosen",
        help="test: what the submission chooses (default), or one call more in every plan that can take the case",
    )


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Add --timeout: seconds above 0; None by default."""
    limits = ", ".join(f"{device.timeout_s} on {name}" for name, device in DEVICES.items())
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help=f"limit for one case, and for all its plans; default: {limits}",
    )


def add_sms(parser: argparse.ArgumentParser) -> None:
    """Add --sms: a number of SMs; a B200's by default."""
    parser.add_argument("--sms", type=int, default=B200_SMS, help="SMs to plan for; default: %(default)s, a B200's")


def seconds(text: str) -> float:
    """A positive number up to LONGEST_S. Raises argparse.ArgumentTypeError for any other text."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    if value > LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {LONGEST_S} seconds, eleven days: give fewer")
    return value
