"""Makes the page's beginning: times in three launch modes beside the best published, verdicts, changes to make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.launch_modes import ORDINARY, OVERLAPPING, PROGRAMMATIC
from task import PROBLEMS
from tools.sitting.outcomes import FAILED, PASSED, group_of

Record = Mapping[str, Any]
Row = Mapping[str, Any]

MODES = ORDINARY, PROGRAMMATIC, OVERLAPPING
GAIN = 0.98  # share of our time; a time up to it is worth a change
NAMES = ("", *(f"{mode}, us" for mode in MODES), "best published, us", "published / ordinary", "results")
NO_TIME = "–"


def found(record: Record, what: str, step: str = "") -> list[Row]:
    """The checks or figures of a step, or of all steps if `step` is empty. what: "checks" or "figures"."""
    return [each for of in record["steps"] if step in ("", of["name"]) for each in of[what]]


def timed(record: Record, kind: str, problem: str) -> list[Row]:
    """The figures of a problem's timing step. kind: "compare", "trials" or "stages"."""
    return found(record, "figures", f"{kind}.{problem}")


def ours(record: Record, problem: str, case: int) -> dict[str, float]:
    """Launch mode -> microseconds per call of the unchanged kernel."""
    rows = {figure["row"]: figure["us"] for figure in timed(record, "compare", problem) if figure["case"] == case}
    return {mode: rows[f"ours, {mode}"] for mode in MODES if f"ours, {mode}" in rows}


def verdict(record: Record, problem: str) -> str:
    """A text on the checks of a problem's results: the contest's tests, and calls of each configuration."""
    steps = [step for step in record["steps"] if _checks(step["name"], problem)]
    checks = [check for step in steps for check in step["checks"]]
    # The check of a problem's chosen configuration has the problem's name.
    checks += [check for check in found(record, "checks", "calls.chosen") if check["name"] == problem]
    if not checks:
        return "not checked"
    wrong = sum(not check["passed"] for check in checks)
    if wrong or any(step["state"] == FAILED for step in steps):
        return f"WRONG: {wrong} of {len(checks)} checks failed"
    missing = sum(step["state"] != PASSED for step in steps)
    return "right" + (f"; {missing} of {len(steps)} steps have no end" if missing else "")


def _checks(step: str, problem: str) -> bool:
    """True for a step that checks results of a problem. GEMM and group GEMM share their kernels."""
    kind, *rest = step.split(".")
    same = {"gemm": ("gemm", "group_gemm")}.get(problem, (problem,))
    return kind in ("calls", "test", "leaderboard") and bool(rest) and rest[0] in same[: 1 + (kind == "calls")]


def rows(record: Record) -> list[tuple[str, ...]]:
    """A row for every benchmark case that was timed, or whose problem was checked. The columns are NAMES."""
    lines = []
    for problem, of in PROBLEMS.items():
        checked = verdict(record, problem)
        for case, benchmark in enumerate(of.benchmarks):
            us = ours(record, problem, case)
            if not us and checked == "not checked":
                continue
            published = benchmark.best_published_us
            times = (f"{us[mode]:.2f}" if mode in us else NO_TIME for mode in MODES)
            ratio = f"{published / us[ORDINARY]:.2f}" if ORDINARY in us else NO_TIME
            lines.append((f"{problem}, case {case}", *times, f"{published:g}", ratio, checked))
    return lines


def changes(record: Record) -> Iterator[str]:
    """Changes to make and their gains: wrong results first, then faster variants, then wrong assumptions."""
    for problem in PROBLEMS:
        if (checked := verdict(record, problem)).startswith("WRONG"):
            yield f"{problem}: {checked}. Its times mean nothing before that is mended."
    for problem, of in PROBLEMS.items():
        for case in range(len(of.benchmarks)):
            for mode, us in ours(record, problem, case).items():
                name, least = min(faster(record, problem, case, mode).items(), key=lambda x: x[1], default=("", us))
                if least <= GAIN * us:
                    yield f"{problem}, case {case}, {mode}: {least:.2f} us instead of {us:.2f} by {name}"
    for figure in found(record, "figures", "clusters"):
        if figure["active"] != figure["slots"]:
            active = f"{figure['active']} clusters of {figure['cluster']} CTAs run at once ({figure['name']})"
            yield f"submission.Schedule.slots: {active}; it assumes {figure['slots']}"
    for suggestion in (figure["suggestion"] for figure in found(record, "figures") if "suggestion" in figure):
        before, after = suggestion["ratio"], suggestion["suggested ratio"]
        if after < GAIN * before:
            yield f"constants of the choice, as suggested below: from {before:.3f} to {after:.3f} of the best"


def faster(record: Record, problem: str, case: int, mode: str) -> dict[str, float]:
    """Name -> microseconds per call in a launch mode, for each configuration or trial without a wrong result."""
    kind = "dual_gemm" if problem == "dual_gemm" else "group_gemm"
    failed = [
        (step["name"], check["name"]) for step in record["steps"] for check in step["checks"] if not check["passed"]
    ]

    def is_wrong(figure: Row) -> bool:
        if "configuration" in figure:
            return any(step.endswith(group_of(kind, figure["configuration"])) for step, _ in failed)
        return any(check.startswith(f"{figure['trial']}, ") for step, check in failed if step == "calls.trials")

    return {
        figure.get("trial") or figure["name"]: figure["us"]
        for figure in [*timed(record, "compare", problem), *timed(record, "trials", problem)]
        if figure["case"] == case and figure.get("launches") == mode and not is_wrong(figure)
    }
