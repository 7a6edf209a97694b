"""Check and time a submission on the contest's cases: on a B200, on a Hopper GPU, or emulated if there is neither.

    python eval.py test                  the test cases
    python eval.py benchmark             the benchmark cases, timed; the emulator checks and counts, it never times
    python eval.py leaderboard           benchmark on inputs that were not seen before; timed outputs are checked
    python eval.py profile               where a B200 spends its time, or every count of the emulator
    python eval.py test --problem gemm   another of the contest's problems; all: every problem, one after the other
    python eval.py MODE SPECFILE --case 2                one case (numbered from 0) of a spec file; may be repeated
    python eval.py test --device emulator --schedule random:1
    python eval.py test --sanitize       the emulator also checks what orders accesses (nogpu/docs/sanitizer.md)
    python eval.py test --plans all      each case also in every configuration that can take it
    python eval.py benchmark --clock b200       recorded in the emulator and replayed on a model of the chip's times
    python eval.py benchmark --clock b200 --why     also what would make it faster; --timeline, --picture: files
    python eval.py test --device hopper  on a Hopper GPU, with tensor memory and tensor core in software
    python eval.py benchmark --device hopper    there without tensor-core work: times of the rest, results not checked

With POPCORN_FD in the environment this is the contest's eval.py: results are `key: value` lines on that descriptor.
The contest has an eval.py, a task and a reference for each problem; here --problem names it, group_gemm by default.
Exit codes: 0 all passed, 112 a case failed, 2 usage, 113 unreadable or malformed spec file, 111 POPCORN_FD unusable,
1 no device to run on or a package is missing, 3 no C compiler for the emulator or no folder for what a process leaves,
120 the results cannot be written, 130 interrupted.

Cases run in a spawned worker process. A worker that dies or exceeds --timeout fails its case; the next case gets a new
one. The package harness does the work; this file is its command line.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from typing import Any

from harness import options, sanitizing
from harness.clocks import Clocking
from harness.confinement import shortcomings
from harness.devices import B200, DEVICES, EMULATOR, MODES, Device, DeviceError, Job, choose_device, emulator_device
from harness.folders import FolderError
from harness.interpreter import UNWRITTEN, OutputError, escaped, leave, open_streams, remark
from harness.modes import Wishes, run_mode
from harness.profiling import has_outer_profiler
from harness.protocol import ProtocolReport, usable_fd
from harness.restart import OPTIONS, RESTARTED, check_packages, restart_under_emulator
from harness.sanitizing import Sanitizer
from harness.submissions import Submission
from harness.tables import ConsoleReport, print_total
from harness.worker import Worker
from task import PROBLEMS, Problem, SpecError, TestSpec

EXIT_NO_DEVICE = 1  # exit code without a device, or without a torch to reach it with
EXIT_USAGE = 2  # argparse's own exit code
EXIT_NO_FOLDER = 3  # the emulator's own exit code, too
EXIT_BAD_POPCORN_FD = 111
EXIT_CHECK_FAILED = 112
EXIT_BAD_SPEC = 113
EXIT_INTERRUPTED = 130

RIGHTS_KEPT = "a profiler has started this process: the submission keeps its user's rights and temporary folder"


def make_parser() -> argparse.ArgumentParser:
    parser = options.command_parser(__doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("specfile", nargs="?", help="spec lines to run in place of the problem's own")
    options.add_problem(parser, more=[options.ALL])
    options.add_case(parser)
    options.add_submission(parser)
    options.add_device(parser)
    options.add_schedule(parser)
    options.add_sanitizer(parser)
    parser.add_argument("--baseline", action="store_true", help="time torch's own kernels as well (b200)")
    options.add_clock(parser)
    options.add_plans(parser)
    options.add_timeout(parser)
    return parser


@dataclass(frozen=True)
class Selection:
    """The selected cases of one problem."""

    problem: Problem
    specs: list[TestSpec]
    numbers: list[int]  # the specs' numbers in the problem or the spec file

    def label(self, number: int, several: bool, several_problems: bool) -> str:
        """The part of file names that tells case `number` from others; empty if it is the only case."""
        return f"{f'{self.problem.name}-' if several_problems else ''}case{number}" if several else ""


def select_cases(parser: argparse.ArgumentParser, args: argparse.Namespace) -> list[Selection]:
    """The cases that the command line selects, with POPCORN_SEED combined into the seeds.

    Raises SpecError for an unreadable or malformed spec file.
    """
    if args.problem == options.ALL and args.specfile is not None:
        parser.error(f"--problem {options.ALL} takes no SPECFILE: a spec file holds the cases of one problem")
    if args.problem == options.ALL and args.case is not None:
        parser.error(f"--problem {options.ALL} takes no --case: it is the number of a case of one problem")
    seed = os.environ.get("POPCORN_SEED")
    try:
        secret = int(seed) if seed else None
    except ValueError:
        parser.error(f"POPCORN_SEED={seed!r} is not an integer")
    selections = []
    for problem in PROBLEMS.values() if args.problem == options.ALL else [PROBLEMS[args.problem]]:
        if args.specfile is not None:
            specs = problem.read_spec_file(args.specfile)
        else:
            lines = problem.tests if args.mode == "test" else [benchmark.line for benchmark in problem.benchmarks]
            specs = problem.parse_specs(lines)
        numbers = list(range(len(specs)))
        if args.case is not None:
            for number in args.case:
                if number not in numbers:
                    parser.error(f"--case {number}: the cases are numbered 0 to {len(specs) - 1}")
            numbers = args.case
        try:
            specs = [specs[i] if secret is None else specs[i].combine_seed(secret) for i in numbers]
        except SpecError as error:
            parser.error(f"POPCORN_SEED={seed}: {error}")
        selections.append(Selection(problem, specs, numbers))
    return selections


def settle_device(parser: argparse.ArgumentParser, args: argparse.Namespace, protocol_fd: int | None) -> Device:
    """The device that this process runs on. Unless that is a B200, the process restarts under the emulator.

    Wrong options end the process with a message. Raises DeviceError if the requested device is not available.
    """
    current = emulator_device()
    if protocol_fd is None and not current:
        check_packages()
    device = choose_device(DEVICES.get(args.device))
    if args.baseline and not device.offers_baseline(args.mode):
        parser.error("--baseline is a time: it needs a B200, and mode benchmark or leaderboard")
    if args.clock and device.jobs.get(args.mode) and not device.offers_clock(args.mode):
        parser.error(
            f"--clock replays what the emulator records: it needs --device emulator and mode benchmark or leaderboard, "
            f"not {device.title} and mode {args.mode}"
        )
    if args.plans == options.ALL and (args.mode != "test" or protocol_fd is not None):
        parser.error(f"--plans {options.ALL} is of mode test, for a person: not of mode {args.mode} or POPCORN_FD")
    if args.clock and (args.schedule or args.sanitize or protocol_fd is not None):
        parser.error(
            "--clock records calls under schedule late, for a person: it takes no --schedule, no --sanitize and no "
            "POPCORN_FD"
        )
    if args.mode not in device.jobs:
        parser.error(f"on {device.title} there are the modes {' and '.join(device.jobs)}, not {args.mode}")
    if device is not B200 and not current:
        if protocol_fd is not None:
            os.set_inheritable(protocol_fd, True)
        emulated = device.has_schedules
        restart_under_emulator(args.schedule if emulated else None, device, sanitizer_of(parser, args, device))
    return device


def sanitizer_of(parser: argparse.ArgumentParser, args: argparse.Namespace, device: Device) -> Sanitizer | None:
    """The sanitizer that follows launches on the device; None without --sanitize."""
    for name in ("allow", "schedule"):
        if getattr(args, f"sanitize_{name}") and not args.sanitize:
            parser.error(f"--sanitize-{name} is of --sanitize: give that, too")
    if not args.sanitize or not device.has_schedules:
        return None
    try:
        return sanitizing.chosen(args.submission, args.sanitize_allow, args.sanitize_schedule)
    except ValueError as error:
        parser.error(str(error))


def prepare_environment(job: Job) -> None:
    """Set the variables that the worker inherits, and hide the harness's own from it."""
    os.environ["CUTE_DSL_DISABLE_FILE_CACHING"] = "1"
    for name in ("POPCORN_SEED", "POPCORN_FD", RESTARTED):
        os.environ.pop(name, None)
    os.environ.update(job.environment)


def make_worker(args: argparse.Namespace, submission: Submission, device: Device, **more: Any) -> Worker:
    return Worker(submission, args.timeout or device.timeout_s, device is EMULATOR, has_outer_profiler(), **more)


def run_for_the_contest(
    args: argparse.Namespace, submission: Submission, device: Device, selected: Selection, protocol_fd: int
) -> bool:
    """Run the selected cases and report them by the protocol. Returns whether all passed."""
    with ProtocolReport(protocol_fd, submission) as protocol:
        with make_worker(args, submission, device, shown=not protocol.is_output) as worker:
            wishes = Wishes(args.baseline)
            passed = run_mode(args.mode, device, selected.problem, selected.specs, worker, protocol, wishes)
        protocol.end(passed)  # after the last process of the submission has ended
    return passed


def run_for_a_person(
    args: argparse.Namespace,
    submission: Submission,
    device: Device,
    selections: list[Selection],
    sanitizer: Sanitizer | None,
    clock: Clocking | None,
) -> bool:
    """Run the selected cases and print their tables. Returns whether all passed."""
    reports: list[ConsoleReport] = []
    outcomes: list[bool] = []
    several = sum(len(selected.specs) for selected in selections) > 1
    clocks = {
        selected.problem: [
            clock.of_case(selected.label(number, several, len(selections) > 1)) for number in selected.numbers
        ]
        for selected in selections
        if clock
    }
    files = [file for of_cases in clocks.values() for of_case in of_cases for file in of_case.make_files()]
    with make_worker(args, submission, device, files=files) as worker:
        name = worker.device_name()
        if args.schedule and device.has_schedules:
            name += f", schedules {args.schedule}"
        for selected in selections:
            if reports:
                reports[-1].end(outcomes[-1])
                print(flush=True)
            reports.append(ConsoleReport(selected.problem, f"{name} · {submission}", selected.numbers))
            with reports[-1] as report:
                wishes = Wishes(args.baseline, clocks.get(selected.problem), args.plans == options.ALL)
                passed = run_mode(args.mode, device, selected.problem, selected.specs, worker, report, wishes)
            outcomes.append(passed)
    reports[-1].end(outcomes[-1])  # after the last process of the submission has ended
    if len(reports) > 1:
        print_total(reports)
    if sanitizer is not None:
        print(sanitizer)
    return all(outcomes)


def main() -> int:
    if not open_streams() and "POPCORN_FD" not in os.environ:
        remark("eval.py: standard output is closed: there is nowhere to write results")
        return UNWRITTEN
    try:
        os.getcwd()
    except FileNotFoundError:
        remark("eval.py: the working folder has been removed: change to another")
        return EXIT_USAGE
    if "POPCORN_FD" not in os.environ:
        return evaluate(None)
    protocol_fd = usable_fd(os.environ["POPCORN_FD"])
    if protocol_fd is None:
        print(f"POPCORN_FD={os.environ['POPCORN_FD']!r} is not open for writing", file=sys.stderr)
        return EXIT_BAD_POPCORN_FD
    return evaluate(protocol_fd)


def evaluate(protocol_fd: int | None) -> int:
    """Run what the command line asks for, and return the exit code.

    protocol_fd: the descriptor for the contest's protocol; None if a person reads the results.
    """
    parser = make_parser()
    args = parser.parse_args()
    if protocol_fd is not None and args.specfile is None:
        parser.error("SPECFILE is required where POPCORN_FD is set")
    try:
        submission = Submission.of(args.submission)
    except OSError as error:
        parser.error(f"--submission {escaped(str(args.submission))}: {error.strerror}")
    clock = options.clocking(parser, args)
    try:
        selections = select_cases(parser, args)
    except SpecError as error:
        print(error, file=sys.stderr)
        return EXIT_BAD_SPEC
    try:
        device = settle_device(parser, args, protocol_fd)
    except DeviceError as error:
        print(f"eval.py: {error}", file=sys.stderr)
        return EXIT_NO_DEVICE
    if emulator_device() and not os.environ.get(RESTARTED):
        for option in OPTIONS:
            if getattr(args, option[2:].replace("-", "_")):
                parser.error(f"give {option} to python -m nogpu, before eval.py")

    job = device.jobs[args.mode]
    prepare_environment(job)
    if job.remark:
        remark(f"eval.py: {job.remark}")
    for line in (shortcomings(), RIGHTS_KEPT if has_outer_profiler() else ""):
        if line:
            remark(f"eval.py: {line}")
    sanitizer = sanitizer_of(parser, args, device)
    try:
        if protocol_fd is not None:
            (selected,) = selections
            passed = run_for_the_contest(args, submission, device, selected, protocol_fd)
        else:
            passed = run_for_a_person(args, submission, device, selections, sanitizer, clock)
        sys.stdout.flush()
    except FolderError as error:
        remark(f"eval.py: {error}")
        return EXIT_NO_FOLDER
    except OutputError as error:
        where = "standard output" if protocol_fd is None else f"POPCORN_FD={protocol_fd}"
        remark(f"eval.py: the results cannot be written to {where}: {error.strerror}")
        return UNWRITTEN if protocol_fd is None else EXIT_BAD_POPCORN_FD
    return 0 if passed else EXIT_CHECK_FAILED


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        remark("eval.py: interrupted")
        code = EXIT_INTERRUPTED
    leave(code)
