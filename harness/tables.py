"""Prints a mode's results for a person: tables with a row or column per case, failures in full, and a summary line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import clocks, counts
from harness.console import geomean, make_console, make_table
from harness.judge import OMITTED
from harness.results import Plans, Result
from harness.timing import Stats
from task import Benchmark, Problem, TestSpec

if TYPE_CHECKING:
    from rich.progress import TaskID
    from rich.table import Table
    from rich.text import Text

CASE_COLUMNS = ["case", "shapes"]
CHOSEN = "* "
PLANS_TITLE = f"one call in every plan ({CHOSEN}chosen, - cannot take the case, exact: bit-exact)"


class ConsoleReport:
    """Reports a mode's cases of one problem as tables, with a progress bar on a terminal until they are printed."""

    def __init__(self, problem: Problem, headline: str, numbers: list[int]):
        """numbers: the cases' numbers, as --case counts them."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

        self.problem, self.headline, self.numbers = problem, headline, numbers
        self.console = make_console(markup=False)  # names and texts are a submission's
        description = TextColumn("{task.description}", markup=False)
        columns = SpinnerColumn(), description, BarColumn(), MofNCompleteColumn()
        self.progress = Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)
        self.results: list[tuple[int, TestSpec, Result]] = []
        self.replays: TaskID | None = None

    def __enter__(self) -> ConsoleReport:
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def begin(self, mode: str, specs: list[TestSpec]) -> None:
        self._print(f"{self.problem.name} {mode} · {self.headline}", "bold")
        self.bar = self.progress.add_task(mode, total=len(specs))
        self.progress.start()

    def working(self, what: str) -> None:
        self.progress.update(self.bar, description=what)

    def case_begins(self, index: int, spec: TestSpec) -> None:
        self.spec = spec
        self.progress.update(self.bar, description=f"case {self.numbers[index]}: {shapes_text(spec)}")

    def replaying(self, done: int, total: int) -> None:
        """Show the number of finished replays of a case; the line disappears with the last one."""
        if self.replays is None:
            self.replays = self.progress.add_task("what would make it faster: replays", total=total)
        self.progress.update(self.replays, completed=done, total=total, visible=done < total)

    def case_ends(self, index: int, result: Result) -> None:
        self.results.append((self.numbers[index], self.spec, result))
        self.progress.advance(self.bar)

    def end(self, passed: bool) -> None:
        self.progress.stop()
        timed = any(result.stats for _, _, result in self.results)
        self.console.print(self._timing_table() if timed else self._result_table())
        if any(result.plans and result.plans.names for _, _, result in self.results):
            self._print(PLANS_TITLE, "bold")
            self.console.print(self._plans_table())
        if any(result.counts for _, _, result in self.results):
            self._print(counts.TITLE, "bold")
            self.console.print(
                self._columns({n: counts.counts_column(r.counts) for n, _, r in self.results if r.counts})
            )
        clocked = {number: result.clock for number, _, result in self.results if result.clock}
        if clocked:
            self._print(clocks.title(next(iter(clocked.values()))), "bold")
            self.console.print(self._columns({n: clocks.clock_column(clock) for n, clock in clocked.items()}))
        for number, clock in clocked.items():
            for line in [*clock["why"], *clock["files"]]:
                self._print(line if line.startswith(" ") else f"case {number}: {line}")
        for number, spec, result in self.results:
            if result.report:
                self._print(f"\ncase {number}: {shapes_text(spec)}\n{result.report}")
        self._print_failures()
        self._print(self.summary(), "bold green" if passed else "bold red")

    def count(self) -> tuple[int, int]:
        """(number of cases that passed, number that failed)."""
        passed = sum(result.passed for _, _, result in self.results)
        return passed, len(self.results) - passed

    def summary(self) -> str:
        """Text on the cases passed and failed; if all were timed, also the geometric mean and the figures to beat."""
        passed, failed = self.count()
        text = f"{passed} passed, {failed} failed"
        means = [result.stats.mean / 1e3 for _, _, result in self.results if result.stats]
        if passed < len(self.numbers) or len(means) < len(self.results):
            return text
        text += f"; geomean {geomean(means):.3f} us"
        if any(result.plain_read for _, _, result in self.results):
            return f"{text}, {OMITTED}"
        if [self.problem.find_benchmark(spec) for _, spec, _ in self.results] == list(self.problem.benchmarks):
            light = geomean([benchmark.speed_of_light_us for benchmark in self.problem.benchmarks])
            text += f" (speed of light {light:.2f}, best published {self.problem.best_geomean_us:.2f})"
        return text

    def _print(self, text: str, style: str | None = None) -> None:
        self.console.print(text, style=style, highlight=False, soft_wrap=True)

    def _print_failures(self) -> None:
        seen: dict[str, int] = {}  # text of a failure -> number of the first case with it
        for number, spec, result in self.results:
            if not result.passed:
                self._print(f"\ncase {number} FAILED: {shapes_text(spec)}", "bold red")
                text = result.traceback or result.message
                first = seen.setdefault(text, number)
                self._print(text if first == number else f"as case {first}: {result.message.partition(chr(10))[0]}")

    def _result_table(self) -> Table:
        table = make_table(CASE_COLUMNS, ["result"])
        for number, spec, result in self.results:
            text = f"pass, {result.message}" if result.message else "pass"
            table.add_row(str(number), shapes_text(spec), _styled(result, text))
        return table

    def _plans_table(self) -> Table:
        """The table of plans: a row for each plan, a column for each case."""
        plans = {number: result.plans for number, _, result in self.results if result.plans}
        table = make_table(["plan"], [f"case {number}" for number in plans])
        for name in dict.fromkeys(name for of_case in plans.values() for name in of_case.names):
            table.add_row(name, *(_plan_text(name, of_case) for of_case in plans.values()))
        return table

    def _timing_table(self) -> Table:
        names = ["us", "best .. worst", "speed\nof\nlight", "ratio", "best\npublished"]
        if any(result.plain_read for _, _, result in self.results):
            names = [f"us\n({OMITTED})", "best .. worst", "plain read\nof the same bytes", "ratio"]
        if any(result.baseline for _, _, result in self.results):
            names += ["torch.\n_scaled_mm", "speed-up"]
        table = make_table(CASE_COLUMNS, names)
        for number, spec, result in self.results:
            row: list[str | Text] = [str(number), shapes_text(spec)]
            if result.stats:
                row += [_mean_text(result.stats), _range_text(result.stats)]
                if result.plain_read:
                    row += [_mean_text(result.plain_read), f"{result.stats.mean / result.plain_read.mean:.2f}"]
                else:
                    row += _against(self.problem.find_benchmark(spec), result.stats.mean / 1e3)
                if result.baseline:
                    row += [f"{result.baseline.mean / 1e3:.3f}", f"{result.baseline.mean / result.stats.mean:.2f}"]
            else:
                row.append(_styled(result, ""))
            table.add_row(*row)
        return table

    def _columns(self, columns: dict[int, dict[str, str]]) -> Table:
        """A table with a column of figures by label for each case."""
        table = make_table([""], [f"case {number}" for number in columns])
        table.columns[0].no_wrap = True
        for name in dict.fromkeys(name for column in columns.values() for name in column):
            table.add_row(name, *(column.get(name, "") for column in columns.values()))
        return table


def print_total(reports: list[ConsoleReport]) -> None:
    """Print a line per problem and a line for all of them."""
    table = make_table(["all problems", ""], [])
    for report in reports:
        table.add_row(report.problem.name, report.summary())
    passed, failed = (sum(counted) for counted in zip(*(report.count() for report in reports)))
    table.add_section()
    table.add_row("total", f"{passed} passed, {failed} failed", style="bold red" if failed else "bold green")
    reports[0].console.print(table)


def shapes_text(spec: TestSpec) -> str:
    """The case's arguments without its seed; a list of equal numbers is shown as one number."""
    parts = []
    for key, value in spec.args.items():
        if isinstance(value, tuple):
            value = value[0] if len(set(value)) == 1 else " ".join(map(str, value))
        if key != "seed":
            parts.append(f"{key} {value}")
    return ", ".join(parts)


def _plan_text(name: str, plans: Plans) -> Text:
    from rich.text import Text

    end = plans.ends.get(name)
    if end is None:
        return Text("-")
    mark = CHOSEN if name == plans.chosen else ""
    if not end.passed:
        return Text(f"{mark}FAIL", style="bold red")
    return Text(f"{mark}{'exact' if end.message == 'bit-exact' else 'pass'}", style="green")


def _mean_text(stats: Stats) -> str:
    return f"{stats.mean / 1e3:.3f} ± {stats.std / 1e3:.3f}"


def _range_text(stats: Stats) -> str:
    return f"{stats.best / 1e3:.3f} .. {stats.worst / 1e3:.3f}"


def _styled(result: Result, text: str) -> Text:
    from rich.text import Text

    return Text(text, style="green") if result.passed else Text("FAIL", style="bold red")


def _against(figures: Benchmark | None, mean_us: float) -> list[str]:
    if figures is None:
        return ["-", "-", "-"]
    light = figures.speed_of_light_us
    return [f"{light:.3f}", f"{mean_us / light:.2f}", f"{figures.best_published_us:g}"]
