"""A random problem: up to six calls of `submission.solve` in a row, and the places of their tensors in memory.

tests/support/soak_draws.py draws problems, and tests/support/soak_memory.py makes their tensors.
"""

import itertools
from dataclasses import dataclass

MOST_ENTRIES = 32  # entries per launch
OPERANDS = {0: ("a", "b"), 1: ("a", "b"), 2: ("a", "b1", "b2")}  # operands by the number of products; a GEMV has 0


@dataclass(frozen=True)
class Kernel:
    """The kernel that a unit compiles; products is 0 for a GEMV."""

    products: int
    entries: int = 1  # groups or batch entries with tokens
    shape: tuple | None = None  # configuration
    chosen: bool = False  # chosen by the schedule: calls whose sizes lead to the kernel name no configuration


@dataclass(frozen=True)
class Block:
    """A range of a storage's bytes."""

    storage: int
    offset: int
    size: int

    def overlaps(self, other):
        apart = self.offset + self.size <= other.offset or other.offset + other.size <= self.offset
        return self.storage == other.storage and self.size > 0 < other.size and not apart


@dataclass(frozen=True)
class Group:
    """The sizes of a group, and the block of each tensor that the kernel uses, by name; a GEMV's n is b's rows."""

    m: int
    n: int
    k: int
    l: int  # noqa: E741
    blocks: dict[str, Block]

    def rows(self, name):
        return self.m if name in ("a", "sfa", "c") else self.n


@dataclass(frozen=True)
class Call:
    kind: str  # name in reference.REFERENCES
    products: int
    groups: tuple[Group, ...]
    configurations: tuple | None
    sms: int | None
    ready: bool
    free: bool
    palette: tuple

    def blocks(self):
        return [block for group in self.groups for block in group.blocks.values()]

    def outputs(self):
        return [group.blocks["c"] for group in self.groups]

    def operands(self):
        return [block for group in self.groups for name, block in group.blocks.items() if name != "c"]

    @property
    def entries(self):
        return sum(group.l for group in self.groups if group.m)

    @property
    def work(self):
        """Number of products of two elements."""
        return sum(g.m * (g.n if self.products else 1) * g.k * g.l for g in self.groups) * max(1, self.products)


@dataclass(frozen=True)
class Problem:
    seed: int
    number: int
    kind: str  # kind of the calls that launch the unit's kernel
    kernel: Kernel
    calls: tuple[Call, ...]
    storages: tuple[int, ...]  # bytes of each storage
    layout: str
    chip: int  # SMs of the emulated chip
    schedules: tuple[str, ...]

    def describe(self):
        """A line for the problem, and one for each call."""
        schedules = " ".join(self.schedules)
        lines = [f"problem {self.number}, {self.kind}: {self.layout} on {self.chip} SMs, schedules {schedules}"]
        for number, call in enumerate(self.calls):
            sizes = " ".join(f"{g.m}x{g.n}x{g.k}" + f"x{g.l}" * (g.l > 1) for g in call.groups)
            shape = tuple(call.configurations[0]) if call.configurations else None
            promises = [name for name in ("ready", "free") if getattr(call, name)]
            over = [f"{a} over {b}" for a, b in self.overlaps(number)]
            words = [f"configuration {shape}", f"SMs {call.sms}", f"promises {' and '.join(promises) or 'none'}", *over]
            lines.append(f"  call {number}: {call.kind} {sizes}; {', '.join(words)}")
        return "\n".join(lines)

    def overlaps(self, number):
        """Overlaps of a call with earlier ones: pairs of "operand" or "output", the call's own before the other's."""
        call, found = self.calls[number], set()
        for earlier in self.calls[:number]:
            for ours, theirs in itertools.product(("operand", "output"), repeat=2):
                pairs = itertools.product(getattr(call, f"{ours}s")(), getattr(earlier, f"{theirs}s")())
                if any(a.overlaps(b) for a, b in pairs):
                    found.add((ours, theirs))
        return sorted(found)

    def traits(self):
        """Pairs (category, value) for a summary's counts, each once per problem."""
        found = {("memory", self.layout), ("calls in a row", str(len(self.calls)))}
        found |= {("schedule", schedule.partition(":")[0]) for schedule in self.schedules}
        for number, call in enumerate(self.calls):
            found.add(("promises", f"ready {call.ready}, free {call.free}".lower()))
            found.add(("groups and batches", bucket(call.entries)))
            found |= {("overlap", f"{a} over an earlier {b}") for a, b in self.overlaps(number)}
        kernel = self.kernel
        given = any(call.configurations for call in self.calls if call.products == kernel.products)
        found.add(("configuration is", "given" if given else "the schedule's choice"))
        found.add(("configuration", f"{kernel.shape}, products {kernel.products}"))
        return sorted(found)


def bucket(entries):
    """The range in which a number of entries lies, as text."""
    limits = (0, 1, 4, 8, 16, 32, MOST_ENTRIES)
    for below, limit in zip((-1, *limits), limits):
        if entries <= limit:
            return str(limit) if limit == below + 1 else f"{below + 1} to {limit}"
    return f"more than {MOST_ENTRIES}"
