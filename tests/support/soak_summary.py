"""The summary of a soak: its counts, as a line, as a table and as a record for a file."""

import collections
import time

from harness.console import make_table

MANY = "configuration"  # category with many values, of which the table has only the number
NO_ANSWER = "no answer"


class Summary:
    """Counts of problems by kind and traits, and of wrong ones among them."""

    def __init__(self, jobs):
        self.start, self.jobs = time.monotonic(), jobs
        self.done = 0
        self.sums = collections.Counter()  # sums over all answers of calls, work, seconds and compile_seconds
        self.kinds, self.traits = collections.Counter(), collections.Counter()  # traits by (category, value)
        self.wrong, self.wrong_traits = {}, collections.Counter()  # wrong: number -> kind

    def add(self, number, answer):
        """Count a problem. answer: the result from soak_worker.Runner; None without one."""
        self.done += 1
        kind = answer["kind"] if answer else NO_ANSWER
        self.kinds[kind] += 1
        if answer is None or answer["errors"]:
            self.wrong[number] = kind
        if answer:
            self.sums.update({name: answer[name] for name in ("calls", "work", "seconds", "compile_seconds")})
        for trait in map(tuple, answer["traits"] if answer else ()):
            self.traits[trait] += 1
            self.wrong_traits[trait] += number in self.wrong

    def ordered(self):
        """Pairs (category, value) of all traits, with values by their leading number or by name."""

        def key(trait):
            first = trait[1].split()[0]
            return trait[0], int(first) if first.isdecimal() else float("inf"), trait[1]

        return sorted(self.traits, key=key)

    @property
    def elapsed(self):
        return time.monotonic() - self.start

    @property
    def rate(self):
        """The problems per second."""
        return self.done / self.elapsed

    @property
    def compile_share(self):
        """The share of compilation in the processes' time on problems."""
        return self.sums["compile_seconds"] / self.sums["seconds"] if self.sums["seconds"] else 0.0

    def line(self):
        return (
            f"{self.done:,} problems, {self.sums['calls']:,} calls of {self.sums['work']:.3g} products, "
            f"{len(self.wrong)} wrong; {self.elapsed:.0f} s, {self.rate:.1f} problems/s in {self.jobs} processes, "
            f"{self.compile_share:.0%} of their time compiling"
        )

    def table(self, configurations):
        """A rich table: problems, passed and wrong by kind and trait. configurations: their total number."""
        wrong = collections.Counter(self.wrong.values())
        rows = [("problem", kind, count, wrong[kind]) for kind, count in sorted(self.kinds.items())]
        rows += [(*t, self.traits[t], self.wrong_traits[t]) for t in self.ordered() if t[0] != MANY]
        every = [trait for trait in self.traits if trait[0] == MANY]
        if every:
            counts = [self.traits[trait] for trait in every]
            text = f"{len(counts)} of {configurations} values, {min(counts):,} to {max(counts):,} problems each"
            rows.append((MANY, text, sum(counts), sum(self.wrong_traits[trait] for trait in every)))
        table, before = make_table(["", ""], ["problems", "passed", "wrong"]), None
        for category, value, count, faults in rows:
            first = category if category != before else ""
            table.add_row(
                first, value, f"{count:,}", f"{count - faults:,}", f"{faults:,}", style="red" if faults else ""
            )
            before = category
        return table

    def record(self):
        """Every count, for a file; "counts" has the problems by category and value."""
        counts = {"problem": dict(sorted(self.kinds.items()))}
        for category, value in self.ordered():
            counts.setdefault(category, {})[value] = self.traits[category, value]
        return {
            "problems": self.done,
            "wrong": dict(sorted(self.wrong.items())),
            "calls": self.sums["calls"],
            "products": self.sums["work"],
            "jobs": self.jobs,
            "seconds": round(self.elapsed, 1),
            "compile share": round(self.compile_share, 3),
            "counts": counts,
        }
