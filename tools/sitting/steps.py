"""Lists the steps of a sitting at a device, the most valuable first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import ROOT
from task import PROBLEMS
from tools.sitting.outcomes import RESULTS, Found, read_constants, read_events, read_protocol

EMULATOR, HOPPER, B200 = "emulator", "hopper", "b200"
EXACT, TIMING = ("--device", "hopper", "--hopper-mode", "exact"), ("--device", "hopper", "--hopper-mode", "timing")
NO_TIMES = "an emulator has no times"

# The emulator's plan is reduced: groups have these checks, and modes have the first lines of a problem's tests.
EMULATED_GROUPS = (
    "group_gemm.sm2.tile64.x1.n1",
    "group_gemm.sm1.tile128.x1.n2",
    "group_gemm.sm1.tile128.x2.n1",
    "dual_gemm.sm2.tile64.x2.n1",
)
EMULATED_CHECKS = ("edges", "overlap")
EMULATED_TESTS = 1
EMULATED_CONSTANTS = ("barrier.", "mbarrier.")


@dataclass(frozen=True)
class Step:
    """A step: the command of its process, and its limits.

    limit_s: the time of all its processes together. needs_s: the least time left with which it begins. row_limit_s: the
    time of one check or row; a process that exceeds it is killed. measures: figures count, and a step that reaches its
    limit keeps them. alone: nothing else uses the device meanwhile. resumes: another process runs the rest after one is
    lost. expected: the checks that must end. refusal: the reason why this device does not run the step, or "".
    needs_file: a file that another step must have left. Times are seconds.
    """

    name: str
    title: str
    command: tuple[str, ...] = ()
    limit_s: float = 60
    needs_s: float = 10
    row_limit_s: float = 600
    measures: bool = False
    alone: bool = True
    resumes: bool = False
    expected: tuple[str, ...] = ()
    refusal: str = ""
    needs_file: Path | None = None
    read: Callable[[Path], Found] = read_events


def work(device: str, *arguments: str, options: Sequence[str] = EXACT) -> tuple[str, ...]:
    """The command of `tools.sitting.work` on a device. options: those of `python -m nogpu` for a Hopper GPU."""
    under = {EMULATOR: ("-m", "nogpu"), HOPPER: ("-m", "nogpu", *options), B200: ()}[device]
    return (sys.executable, *under, "-m", "tools.sitting.work", *arguments)


def plain_work(*arguments: str) -> tuple[str, ...]:
    """The command of `tools.sitting.work` for work without a device."""
    return (sys.executable, "-m", "tools.sitting.work", *arguments)


def eval_command(device: str, mode: str, problem: str, specs: Path, *options: str) -> tuple[str, ...]:
    """The command of eval.py, with the contest's protocol in the file that the variable RESULTS names."""
    with_protocol = f'exec 3>>"${RESULTS}"; export POPCORN_FD=3; exec "$@"'
    of_eval = (sys.executable, str(ROOT / "eval.py"), mode, str(specs), "--problem", problem, "--device", device)
    return ("/bin/sh", "-c", with_protocol, "sh", *of_eval, *options)


def calls_steps(device: str, groups: Mapping[str, Sequence[str]]) -> list[Step]:
    """The steps of the checks of calls, one for each group in the order of `groups`; fewer in the emulator."""
    reduced = device == EMULATOR
    found = []
    for group, checks in groups.items():
        names = tuple(name for name in checks if not reduced or name in EMULATED_CHECKS)
        if reduced and group not in EMULATED_GROUPS:
            continue
        found.append(
            Step(
                f"calls.{group}",
                f"calls, {title(group)}",
                work(device, "calls", group, *names),
                limit_s=300 if reduced else 120,
                row_limit_s=120 if reduced else 30,
                alone=False,
                resumes=True,
                expected=names,
            )
        )
    return found


def title(group: str) -> str:
    """The title of a group of checks."""
    tried = ", which the choice leaves out" if group.startswith("trials.") else ""
    parts = group.removeprefix("trials.").split(".")
    if len(parts) == 1:
        known = {"chosen": "a benchmark case of each problem", "mixed": "two kernels in turn", "trials": "edits to try"}
        return known.get(group, group)
    problem, cta_group, tile, per_sm, neighbours = parts
    kind = "pairs" if cta_group == "sm2" else "single CTAs"
    together = "" if neighbours == "n1" else f", {neighbours[1:]} side by side"
    return f"{problem}, {kind}, {tile[4:]} tokens, {per_sm[1:]} per SM{together}{tried}"


def eval_step(device: str, mode: str, problem: str, folder: Path, limit_s: float) -> Step:
    """The step of a mode of eval.py on a problem's cases. Writes the spec file."""
    of = PROBLEMS[problem]
    lines = of.tests if mode == "test" else [benchmark.line for benchmark in of.benchmarks]
    if device == EMULATOR:
        lines = of.tests[:EMULATED_TESTS]
    specs = folder / f"{mode}.{problem}.specs"
    specs.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    # A hanging test leaves time for the next one. Timings are long, and slow is not wrong: the step's limit cuts them.
    case_limit = ("--timeout", f"{limit_s / 2 if mode == 'test' else limit_s:g}")
    options = (*case_limit, *(("--baseline",) if mode == "benchmark" and device == B200 else ()))
    return Step(
        f"{mode}.{problem}",
        f"eval.py {mode}, {problem}",
        eval_command(device, mode, problem, specs, *options),
        limit_s=limit_s,
        needs_s=20,
        measures=mode != "test" and device != EMULATOR,
        alone=mode != "test" and device != EMULATOR,
        expected=tuple(f"case {case}" for case in range(len(lines))),
        refusal="without a tensor core its times mean nothing and its results are not checked"
        if mode == "leaderboard" and device == HOPPER
        else "",
        read=read_protocol,
    )


def timing_step(device: str, kind: str, problem: str, limit_s: float) -> Step:
    """The step of `compare`, `trials` or `stages` for a problem."""
    what = {
        "compare": "every configuration and the rows beside ours",
        "trials": "edits, and configurations that the choice leaves out",
        "stages": "fewer stages",
    }[kind]
    return Step(
        f"{kind}.{problem}",
        f"times, {problem}: {what}",
        work(device, kind, problem, options=TIMING),
        limit_s=limit_s,
        needs_s=20,
        row_limit_s=30,
        measures=True,
        resumes=True,
        refusal=NO_TIMES if device == EMULATOR else "",
    )


def calibration_step(device: str, folder: Path) -> Step:
    """The step of workshop.calibration, in the emulator with a few small kernels."""
    command = ["-m", "workshop.calibration", "--save", str(folder / "constants.json")]
    if device == EMULATOR:
        only = [option for prefix in EMULATED_CONSTANTS for option in ("--only", prefix)]
        command = ["-m", "nogpu", *command, "--smoke", *only]
    return Step(
        "calibrate",
        "calibration of the clock's chip profile",
        (sys.executable, *command),
        limit_s=150,
        needs_s=40,
        measures=True,
        read=lambda _: read_constants(folder / "constants.json"),
    )


def cluster_step(device: str) -> Step:
    """The step that counts the clusters that run at once."""
    return Step(
        *("clusters", "clusters that run at once", work(device, "clusters", options=TIMING)),
        refusal="an emulator has no driver to ask" if device == EMULATOR else "",
    )


def steps(device: str, groups: Mapping[str, Sequence[str]], folder: Path) -> list[Step]:
    """All steps but the first and the last, the most valuable first. folder: place of files that steps exchange."""
    group_gemm, *others = PROBLEMS
    tests = [eval_step(device, "test", problem, folder, 300 if device == EMULATOR else 120) for problem in PROBLEMS]
    return [
        *calls_steps(device, groups),
        *(tests[:2] if device == EMULATOR else tests),
        eval_step(device, "benchmark", group_gemm, folder, 90),
        eval_step(device, "leaderboard", group_gemm, folder, 100),
        calibration_step(device, folder),
        cluster_step(device),
        timing_step(device, "compare", group_gemm, 100),
        *(() if device == EMULATOR else (eval_step(device, "benchmark", problem, folder, 75) for problem in others)),
        *(timing_step(device, "compare", problem, 90) for problem in others),
        *(timing_step(device, "trials", problem, 60) for problem in PROBLEMS),
        timing_step(device, "stages", group_gemm, 90),
        *(() if device == EMULATOR else (eval_step(device, "leaderboard", problem, folder, 90) for problem in others)),
    ]


def last_steps(device: str, folder: Path) -> list[Step]:
    """Steps that use the results of the others; their time is kept back."""
    no_times = NO_TIMES if device == EMULATOR else ""
    constants, figures = folder / "constants.json", folder / "figures.json"
    return [
        Step(
            *("profile", "the clock's chip profile", plain_work("profile", str(constants))),
            limit_s=10,
            needs_s=5,
            measures=True,
            refusal=no_times,
            needs_file=constants,
        ),
        Step(
            *("suggest", "constants of the choice", plain_work("suggest", str(figures))),
            limit_s=60,
            needs_s=5,
            measures=True,
            refusal=no_times,
            needs_file=figures,
        ),
    ]
