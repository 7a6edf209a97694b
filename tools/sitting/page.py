"""Makes the page of a sitting, one HTML text with everything in it, from the JSON alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from harness.launch_modes import ORDINARY
from task import PROBLEMS
from tools.sitting import answer, drawings
from tools.sitting.outcomes import FAILED, NOT_RUN, STATES

Record = Mapping[str, Any]

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em; color: #222; }
h1 { font-size: 1.6em; } h2 { font-size: 1.2em; margin-top: 2em; border-bottom: 1px solid #ccc; }
table { border-collapse: collapse; font-size: 13px; margin: 0.8em 0; } td, th { padding: 2px 8px; text-align: right; }
th { border-bottom: 1px solid #999; vertical-align: bottom; } td:first-child, th:first-child { text-align: left; }
td.left { text-align: left; } .passed { color: #2c7d48; } .failed { color: #b22; font-weight: bold; }
.cut { color: #a06b00; } .not { color: #777; } .chosen { outline: 2px solid #222; } .scroll { overflow-x: auto; }
pre { background: #f4f4f4; padding: 0.6em; overflow-x: auto; font-size: 12px; } svg { width: 100%; height: auto; }
"""
CHECK_MARKS = {True: ("passed", "✓"), False: ("failed", "✗"), None: ("not", "–")}
NO_CELL = "<td>–</td>"
WORST = 2.0  # ratio to the best from which a cell is fully red


def page(record: Record) -> str:
    """The whole page. record: the content of first_light.json."""
    device = record.get("facts", {}).get("device", "no device")
    sections = (
        the_answer(record),
        table(["", ""], summary(record), left=2),
        remarks(record),
        failures(record),
        section("When each step ran", drawings.timeline(record["steps"])),
        section("Every configuration on odd shapes", calls(record)),
        section("The contest's cases", cases(record)),
        *(section(f"Times: {name}", times(record, name)) for name in PROBLEMS),
        *(section(f"Trials: {name}", trials(record, name)) for name in PROBLEMS),
        section("Clusters that run at once", clusters(record)),
        section("The choice of a configuration", suggestion(record)),
        section("Fewer stages", stages(record)),
        section("Constants of the clock's chip profile", constants(record)),
        section("All steps", steps(record)),
    )
    title = f"First light: {device}"
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    return f"{head}<h1>{escape(title)}</h1>{''.join(sections)}</html>\n"


def the_answer(record: Record) -> str:
    """Times beside the best published, verdicts on the results, and changes to make."""
    rows = answer.rows(record)
    if not rows:
        return ""
    changes = [f"<li>{escape(change)}</li>" for change in answer.changes(record)]
    what = f"<p>What to change:</p><ul>{''.join(changes)}</ul>" if changes else "<p>What to change: nothing.</p>"
    return table(answer.NAMES, rows) + what


def section(title: str, content: str) -> str:
    """A part of the page; empty without content."""
    return f"<h2>{escape(title)}</h2>{content}" if content else ""


def table(names: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> str:
    """An HTML table. A cell that starts with "<td" is inserted unchanged. left: number of columns aligned left."""
    body = []
    for row in rows:
        cells = [
            str(cell)
            if str(cell).startswith("<td")
            else f"<td{' class=left' if place < left else ''}>{escape(str(cell))}</td>"
            for place, cell in enumerate(row)
        ]
        body.append(f"<tr>{''.join(cells)}</tr>")
    if not body:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in names) if any(names) else ""
    return f"<div class=scroll><table><tr>{head}</tr>{''.join(body)}</table></div>"


def summary(record: Record) -> list[tuple[str, str]]:
    """Rows (name, text) on the outcomes of the steps and on the device that they ran on."""
    checks = answer.found(record, "checks")
    passed = sum(check["passed"] for check in checks)
    titles = {state: [step["title"] for step in record["steps"] if step["state"] == state] for state in STATES}
    states = ", ".join(f"{len(of_state)} {state}" for state, of_state in titles.items())
    rows = [
        ("steps", states + (" (interrupted)" if record.get("interrupted") else "")),
        ("checks", f"{passed} passed, {len(checks) - passed} failed"),
        ("failed", "; ".join(titles[FAILED]) or "nothing"),
        ("not run", "; ".join(titles[NOT_RUN]) or "nothing"),
        ("began, took", f"{record['began']}, {record.get('seconds', 0):.0f} s of at most {60 * record['minutes']:.0f}"),
    ]
    return rows + [(name, str(value)) for name, value in record.get("facts", {}).items()]


def remarks(record: Record) -> str:
    """A remark on figures of a device other than a B200; empty on a B200."""
    text = {
        "hopper": "A Hopper GPU ran the B200's PTX: results with tensor memory and tensor core in software, times with "
        "the tensor core omitted. They are no times of a B200.",
        "emulator": "The emulator ran a reduced plan on a CPU. It has no times.",
    }.get(record.get("device", ""), "")
    return f"<p>{escape(text)}</p>" if text else ""


def failures(record: Record) -> str:
    """The checks and steps that failed, with the end of the steps' output."""
    parts = []
    for step in record["steps"]:
        bad = [check for check in step["checks"] if not check["passed"]]
        if step["state"] != "failed" and not bad:
            continue
        parts.append(f"<h3 class=failed>{escape(step['title'])}: {escape(step['reason'])}</h3>")
        parts.append(table(["check", "what is wrong"], [(check["name"], check["message"][:500]) for check in bad], 2))
        if step["output"]:
            parts.append(f"<details><summary>output</summary><pre>{escape(step['output'])}</pre></details>")
    return section("What failed", "".join(parts))


def mark(passed: bool | None, message: str = "") -> str:
    """A cell for the outcome of a check. passed: None for a check that has not ended."""
    style, sign = CHECK_MARKS[passed]
    return f'<td class={style} title="{escape(message, quote=True)}">{sign}</td>'


def calls(record: Record) -> str:
    """A table of the checks of calls: a row for each group, a column for each check."""
    found = [step for step in record["steps"] if step["name"].startswith("calls.")]
    names = list(dict.fromkeys(check["name"] for step in found for check in step["checks"]))
    rows = []
    for step in found:
        ends = {check["name"]: check for check in step["checks"]}
        marks = [mark(ends[n]["passed"], ends[n]["message"]) if n in ends else mark(None) for n in names]
        rows.append([step["title"].removeprefix("calls, "), *marks])
    return table(["", *names], rows)


def cases(record: Record) -> str:
    """A table of eval.py's outcomes, a row for each problem and mode, and one of the times that it reports."""
    rows, timed = [], []
    for step in record["steps"]:
        mode, _, problem = step["name"].partition(".")
        if mode not in ("test", "benchmark", "leaderboard"):
            continue
        good = sum(check["passed"] for check in step["checks"])
        counts = f"{good} passed, {len(step['checks']) - good} failed"
        rows.append((step["title"], step["state"], counts, step["reason"]))
        for figure in step["figures"]:
            benchmark = PROBLEMS[problem].benchmarks[figure["case"]]
            spread = f"{figure['best_us']:.2f} .. {figure['worst_us']:.2f}"
            limits = f"{benchmark.speed_of_light_us:.2f}", f"{benchmark.best_published_us:g}"
            label = f"{problem} {mode}, case {figure['case']}"
            timed.append((label, f"{figure['mean_us']:.2f}", spread, *limits, figure["message"]))
    names = ["case", "us", "best .. worst", "speed of light", "best published", ""]
    return table(["", "state", "cases", ""], rows, 4) + table(names, timed)


def times(record: Record, problem: str) -> str:
    """Bars of our times and of the rows beside them, then every configuration's time by case."""
    figures = answer.timed(record, "compare", problem)
    groups: dict[str, dict[str, float]] = {}
    for figure in figures:
        if "configuration" not in figure:
            label = figure["row"] + (" (host included)" if figure["host_included"] else "")
            groups.setdefault(f"case {figure['case']}", {})[label] = figure["us"]
    if record.get("device") == "b200":
        for case, group in groups.items():
            benchmark = PROBLEMS[problem].benchmarks[int(case.split()[1])]
            group[f"best published, {ORDINARY}"] = benchmark.best_published_us
            group["speed of light"] = benchmark.speed_of_light_us
    return drawings.bars(groups, "us") + heat(figures)


def trials(record: Record, problem: str) -> str:
    """The times of trials, with a column per case and launch mode."""
    return heat([{**figure, "name": figure["trial"]} for figure in answer.timed(record, "trials", problem)])


def clusters(record: Record) -> str:
    """A table of the clusters that run at once, by the driver and by the schedule."""
    found = answer.found(record, "figures", "clusters")
    names = ["configuration", "CTAs of a cluster", "SMEM bytes of a CTA", "cuOccupancyMaxActiveClusters", "slots"]
    return table(names, ([figure[k] for k in ("name", "cluster", "smem", "active", "slots")] for figure in found))


def heat(figures: Sequence[Mapping[str, Any]]) -> str:
    """A table with a row per configuration and a column per case and launch mode; slower cells are redder."""
    columns: dict[tuple[int, str], dict[str, float]] = {}
    for figure in figures:
        if "name" in figure:
            columns.setdefault((figure["case"], figure["launches"]), {})[figure["name"]] = figure["us"]
    columns = dict(sorted(columns.items()))
    names = dict.fromkeys(figure["name"] for figure in figures if "name" in figure)
    rows = [
        [
            name,
            *(heat_cell(of[name], of[name] / min(of.values())) if name in of else NO_CELL for of in columns.values()),
        ]
        for name in names
    ]
    return table(["us, launches", *(f"case {case}, {launches}" for case, launches in columns)], rows)


def heat_cell(us: float, ratio: float) -> str:
    share = min((ratio - 1) / (WORST - 1), 1)
    colour = f"hsl({120 - 120 * share:.0f} 60% {92 - 12 * share:.0f}%)"
    return f'<td style="background:{colour}" title="{ratio:.3f} of the best">{us:.2f}</td>'


def suggestion(record: Record) -> str:
    """The present and suggested constants, then the chosen and best configuration of every case."""
    found = [figure["suggestion"] for figure in answer.found(record, "figures") if "suggestion" in figure]
    if not found:
        return ""
    (last,) = found[-1:]
    values = [(name, f"{value:g}", f"{last['suggested'][name]:g}") for name, value in last["constants"].items()]
    means = f"{last['ratio']:.4f}", f"{last['suggested ratio']:.4f}"
    values.append(("chosen time / best time, geometric mean", *means))
    rows = [
        (
            *(f"{case['problem']}, case {case['case']}, {case['launches']}", case["chosen"]),
            *(f"{case['chosen us']:.2f}", case["best"], f"{case['best us']:.2f}", f"{case['ratio']:.3f}"),
            *(case["suggested"], f"{case['suggested ratio']:.3f}", case["configurations"]),
        )
        for case in last["cases"]
    ]
    names = ["", "chosen", "us", "best", "us", "ratio", "with the suggestion", "ratio", "configurations"]
    return table(["constant of submission.py", "present", "suggested"], values) + table(names, rows)


def stages(record: Record) -> str:
    """Pictures of time by number of stages, one for each case and launch mode."""
    parts = []
    for problem in PROBLEMS:
        series: dict[str, dict[str, list[tuple[float, float]]]] = {}
        for figure in answer.timed(record, "stages", problem):
            title = f"{problem}, case {figure['case']}, {figure['launches']}"
            of_shape = series.setdefault(title, {}).setdefault(figure["name"], [])
            of_shape.append((figure["stages"], figure["us"]))
        for title, of_case in series.items():
            parts.append(f"<h3>{escape(title)}</h3>{drawings.lines(of_case, 'stages', 'us')}")
    return "".join(parts)


def constants(record: Record) -> str:
    """A table of the chip profile's constants, each measured or from the committed profile."""
    measured = answer.found(record, "figures", "calibrate")
    profiles = [figure["profile"] for figure in answer.found(record, "figures") if "profile" in figure]
    count_text = f"<p>{len(measured)} constants were measured; the JSON has all of them.</p>" if measured else ""
    rows = [
        (name, f"{entry['value']:g}", entry["unit"], entry["source"])
        for profile in profiles[-1:]
        for name, entry in profile["constants"].items()
    ]
    return count_text + table(["constant of the profile", "value", "unit", "source"], rows)


def steps(record: Record) -> str:
    """A table of every step with its state, time and reason."""
    rows = []
    for step in record["steps"]:
        state = f"<td class={step['state'].split()[0]}>{step['state']}</td>"
        rows.append((step["title"], state, f"{step['seconds']:.1f}", f"<td class=left>{escape(step['reason'])}</td>"))
    return table(["step", "state", "s", ""], rows)
