"""Random legal problems through every configuration of the kernel, in as many processes as there are cores.

    python -m nogpu tests/soak.py [--problems N] [--seconds S] [--jobs N] [--seed N] [--save FILE.json]
    python -m nogpu tests/soak.py --seed N --only NUMBER     one of them again
    python -m nogpu --device hopper tests/soak.py ...        on a Hopper GPU, in exact mode

Problems are numbered from 0, and one follows from the seed and its number alone. A problem is one to six calls in a
row: of all four problems, with 1 to 64 groups or batch entries and some that are empty, with every
configuration given and with the schedule's own choice, for chips of 2 to 148 SMs. M is up to 800, N to 1024 and K to
4096, a GEMV's M to 6000 and K to 32768; most calls have less than 2e7 products, some up to 1.5e9. Tensors are whole
storages, slices of larger ones, or all in one storage. Dimensions of size 1 may have any stride; padding, and scales
that no kernel may read, are garbage. Calls promise what is true of them or less: without a promise they read what an
earlier call writes, and write what an earlier call reads or writes.

Every byte of memory is compared with what it must be; a dual GEMM's result may be the float16 value next to it. In the
emulator a problem runs under one to three schedules. A wrong problem is printed with the command that repeats it; so is
one whose process dies, or is not done within --limit seconds. Exits with 1 if a problem was wrong or none was run, with
2 if a process cannot start, and with 130 if interrupted.
"""

import itertools
import math
import os
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tools  # noqa: E402, F401, the path of workshop
from harness.console import make_console  # noqa: E402
from harness.options import add_submission, command_parser  # noqa: E402
from tests.support.soak_draws import UNIT  # noqa: E402
from tests.support.soak_summary import Summary  # noqa: E402
from workshop.processes import Pool, PoolError  # noqa: E402
from workshop.records import add_save, save  # noqa: E402

SECONDS = 60  # seconds without a number of problems and without a time


def make_runner(*arguments):
    """The maker of the workers' answers. This process needs neither torch nor the kernel."""
    from tests.support.soak_worker import Runner

    return Runner(*arguments)


def units(options):
    """The numbers of the problems in lists that launch one kernel each."""
    if options.only is not None:
        return [[options.only]]
    most = math.inf if options.problems is None else options.problems
    starts = itertools.takewhile(lambda first: first < most, itertools.count(0, UNIT))
    return (range(first, min(first + UNIT, most)) for first in starts)


def command(*arguments):
    """Python's arguments of a soak on this device."""
    device = {"1": ["-m", "nogpu"], "hopper": ["-m", "nogpu", "--device", "hopper"]}
    return [*device.get(os.environ.get("NOGPU"), []), "tests/soak.py", *arguments]


def repeat_command(options, number):
    """The command that runs one problem again."""
    submission = ["--submission", str(options.submission)] if options.submission != DEFAULTS.submission else []
    return shlex.join(["python", *command(*submission, "--seed", str(options.seed), "--only", str(number))])


def make_parser():
    parser = command_parser(__doc__)
    parser.add_argument("--problems", type=int, metavar="N", help="run the problems 0 to N-1")
    parser.add_argument("--seconds", type=float, metavar="S", help=f"begin none later ({SECONDS} without --problems)")
    jobs = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=jobs, metavar="N", help="processes; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of all problems; default: %(default)s")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="run this problem, and print what it is")
    parser.add_argument("--limit", type=float, default=300, metavar="S", help="for one problem; default: %(default)s")
    add_submission(parser)
    add_save(parser)
    return parser


DEFAULTS = make_parser().parse_args([])


def parse(arguments):
    """The options, checked. Exits with 2 for wrong usage."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    for name, least in (("problems", 1), ("jobs", 1), ("only", 0)):
        value = getattr(options, name)
        if value is not None and value < least:
            parser.error(f"--{name} is {value}; it must be at least {least}")
    if options.problems is options.seconds is options.only is None:
        options.seconds = SECONDS
    return options


def soak(options, console, summary, pool):
    """Run the problems, count them and print the wrong ones."""
    from rich import progress

    columns = progress.BarColumn(), "{task.fields[text]}", progress.TimeElapsedColumn()
    with progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=1 if options.only is not None else options.problems or options.seconds, text="")

        def stop():
            done = summary.elapsed if options.problems is None and options.only is None else summary.done
            text = f"{summary.done:,} problems, {len(summary.wrong)} wrong, {summary.rate:.1f}/s"
            bar.update(task, completed=done, text=text)
            return options.seconds is not None and summary.elapsed > options.seconds

        for number, answer, reason in pool.answers(stop):
            summary.add(number, answer)
            text = answer["text"] if answer else f"problem {number}"
            errors = answer["errors"] if answer else [reason]
            if options.only is not None or errors:
                again = [f"  again: {repeat_command(options, number)}"] if errors else []
                lines = [("WRONG: " if errors else "") + text, *(f"  {error}" for error in errors), *again]
                console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def main(arguments=None):
    options = parse(arguments)
    console, summary = make_console(), Summary(options.jobs)
    full_command = command(*(sys.argv[1:] if arguments is None else arguments))
    make_arguments = options.seed, options.submission, full_command
    pool = Pool(make_runner, make_arguments, units(options), options.jobs, options.limit)
    code = 0
    try:
        soak(options, console, summary, pool)
    except KeyboardInterrupt:
        code = 130
    except PoolError as error:
        print(f"soak: {error}", file=sys.stderr)
        code = 2
    about = pool.about or {}
    if summary.done and options.only is None:
        console.print(summary.table(about.get("configurations", 0)))
    console.print(summary.line(), markup=False, highlight=False, soft_wrap=True)
    if options.save:
        save(options.save, {**about, **summary.record()})
    return code or int(not summary.done or bool(summary.wrong))


if __name__ == "__main__":
    sys.exit(main())
