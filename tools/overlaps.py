"""Counts the bytes that a reader which does not wait sees too early, and the launches that overlap, on the GPU at hand.

    python -m tools.overlaps [--tries N] [--save FILE.json]     on a Hopper or a B200, about a minute
    python -m nogpu -m tools.overlaps --smoke                the same program in the emulator, few tries

Early readers: a launch with the programmatic attribute reads memory without waiting for the work just ahead of it,
which has written that memory: a kernel, a fill, a copy. NVIDIA guarantees such writes only to a launch that waits
(`griddepcontrol.wait`); the count says what a GPU does. Words are read from the last one on, by loads and by bulk
copies. The row "kernel that lets its successor start" is the control: its writes come late for certain, so a reader
that finds every word new there has not been early, and the other rows prove nothing. Behind large fills and clones,
readers also let a number of cycles pass between their start and their first read: how late do writes come?

Overlapping launches: a kernel lets its successor start and spins; each of the launches behind it lets its own start,
and waits. How many of them start before the first one ends, and does every launch end after those ahead of it?

A stale byte of a row other than the control is a finding. The exit code is 1 where the run is worthless, because the
control has no stale byte, and where launches end out of order.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.console import make_console, make_table
from workshop import records
from workshop.calibration.device import Gpu, current
from workshop.calibration.launches import END_NS, OWN_B, RECORD, START_NS, SUM, Launch
from workshop.console import command_parser

if TYPE_CHECKING:
    import torch

DATA_BYTES = 2 << 20  # of the device's memory that this program does not use
CONTROL = "kernel that lets its successor start"
FILL, CLONE = "torch fill_", "torch clone, as the contest's check"
READERS = {"loads": "read_loads", "bulk copies": "read_bulk"}
THREADS = 256
# Of the writer, as much as the reader by bulk copies has. An SM drains before it divides its memory anew between L1 and
# shared memory, and so the reader would start late.
SHARED = 16400
LATE = (FILL, CLONE)  # writers
LATE_TIMES = 5  # as many tries of those
EARLY, WAITS = 1, 2  # bits of the mode of launch.cu's `stamp`
BATCH = 20  # tries whose host work one waiting kernel hides


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The amount of work."""

    tries: int  # of each reader behind each writer, for each number of bytes
    late_tries: int  # of each reader behind LATE, for each delay
    nbytes: tuple[int, ...] = (16 << 10, 1 << 20, 16 << 20)  # multiples of what a CTA's bulk copy takes
    late_cycles: int = 20_000  # from the control's trigger to its first write
    launches: int = 16  # behind the one that spins
    spin_cycles: int = 2_000_000
    repeats: int = 20  # of the launches that overlap
    delays: tuple[int, ...] = (500, 1000, 2000, 4000)  # cycles from a late reader's start to its first read


# Few cycles pass, since the emulator executes each turn of a loop that waits for them, and its clock starts anew after
# a few launches that overlap.
SMOKE = Sizes(1, 1, (16 << 10,), 1, 2, 1, 1, (5, 10, 20, 40))


def emulated() -> bool:
    return os.environ.get("NOGPU") == "1"


@dataclasses.dataclass(frozen=True)
class Row:
    """Tries of a reader behind a writer."""

    writer: str
    reader: str
    nbytes: int
    tries: int
    stale_tries: int
    stale_bytes: int
    delay: int = 0  # cycles from the reader's start to its first read


class Memory:
    """Tensors of a number of bytes: where writers write, what copies read, and the readers' count."""

    def __init__(self, nbytes: int) -> None:
        import torch

        def make(value: int, **options: Any) -> torch.Tensor:
            return torch.full((nbytes // 4,), value, dtype=torch.int32, **options)

        self.words = nbytes // 4
        self.target = make(0, device="cuda")
        self.sources = [make(number + 1, device="cuda") for number in range(BATCH)]
        # The emulated device has no pinned memory; its copies are done when they return.
        self.host = [make(number + 1, pin_memory=not emulated()) for number in range(BATCH)]
        self.stale = torch.zeros(BATCH, dtype=torch.int64, device="cuda")


Writer = Callable[[Gpu, Memory, int], "torch.Tensor"]  # enqueues the writing of number + 1; returns what was written


def by_kernel(early: bool, cycles: int) -> Writer:
    """overlap.cu's `write`, an ordinary launch. early: it lets its successor start, and writes so much later."""

    def write(gpu: Gpu, memory: Memory, number: int) -> torch.Tensor:
        arguments = (memory.target.data_ptr(), memory.words, number + 1, int(early), cycles)
        gpu.enqueue(Launch("overlap", "write", arguments, gpu.sms, THREADS, SHARED))
        return memory.target

    return write


def writers(sizes: Sizes) -> dict[str, Writer]:
    """Name -> what is put ahead of a reader."""
    return {
        CONTROL: by_kernel(True, sizes.late_cycles),
        "kernel": by_kernel(False, 0),
        FILL: lambda gpu, memory, number: memory.target.fill_(number + 1),
        "torch copy_": lambda gpu, memory, number: memory.target.copy_(memory.sources[number]),
        CLONE: lambda gpu, memory, number: memory.sources[number].clone(),
        "torch copy_ from the host": lambda gpu, memory, number: memory.target.copy_(
            memory.host[number], non_blocking=True
        ),
    }


def early_reader(gpu: Gpu, name: str, data: torch.Tensor, number: int, memory: Memory, delay: int) -> None:
    """Enqueue a reader that adds the words other than number + 1 to the count of the try."""
    count = memory.stale.data_ptr() + 8 * number
    arguments = (data.data_ptr(), memory.words, number + 1, count, delay)
    gpu.enqueue(Launch("overlap", READERS[name], arguments, gpu.sms, THREADS, programmatic=True))


def batch(gpu: Gpu, memory: Memory, write: Writer, reader: str, delay: int, tries: int) -> list[int]:
    """Stale bytes of each try; the tries are back to back, and none has begun when the host is done.

    Raises ValueError where the host is too slow for that.
    """
    import torch

    memory.stale.zero_()
    memory.target.zero_()
    for factor in (1, 4, 16):
        event = torch.cuda.Event()
        gpu.enqueue(Launch("launch", "spin", (factor * gpu.wait_cycles,)))
        event.record()
        for number in range(tries):
            early_reader(gpu, reader, write(gpu, memory, number), number, memory, delay)
        hidden = emulated() or not event.query()  # where nothing is timed, nothing is late
        torch.cuda.synchronize()
        if hidden:
            return [4 * count for count in memory.stale[:tries].tolist()]
        memory.stale.zero_()
    raise ValueError(f"the host takes longer for {tries} tries than a kernel of {16 * gpu.wait_cycles} cycles")


def early_rows(gpu: Gpu, sizes: Sizes) -> Iterator[Row]:
    """Every reader behind every writer; then, of the most bytes, with delays."""
    every = writers(sizes)
    for nbytes in sizes.nbytes:
        memory = Memory(nbytes)
        for writer, reader in itertools.product(every.items(), READERS):
            batch(gpu, memory, writer[1], reader, 0, 1)  # compiles and loads
            yield early_row(gpu, memory, writer, reader, 0, sizes.tries)
    for name, reader, delay in itertools.product(LATE, READERS, (0, *sizes.delays)):
        yield early_row(gpu, memory, (name, every[name]), reader, delay, sizes.late_tries)


def early_row(gpu: Gpu, memory: Memory, writer: tuple[str, Writer], reader: str, delay: int, tries: int) -> Row:
    """`tries` tries of one reader behind one writer, of a name."""
    counts: list[int] = []
    while len(counts) < tries:
        counts += batch(gpu, memory, writer[1], reader, delay, min(BATCH, tries - len(counts)))
    stale = sum(count > 0 for count in counts)
    return Row(writer[0], reader, 4 * memory.words, len(counts), stale, sum(counts), delay)


def overlapping(stamps: np.ndarray) -> tuple[int, bool]:
    """Launches that started before the first one ended, and whether all ended in order.

    stamps: records [launch, RECORD] of `stamp`, one of each launch.
    """
    stamps = stamps[np.argsort(stamps[:, SUM])]
    started = int((stamps[1:, START_NS] < stamps[0, END_NS]).sum())
    in_order = bool((stamps[1:, OWN_B] >= stamps[:-1, END_NS]).all())
    return started, in_order


def launches_behind(gpu: Gpu, sizes: Sizes) -> list[tuple[int, bool]]:
    """`overlapping` of each repeat."""
    found = []
    for _ in range(sizes.repeats):
        first = Launch("launch", "stamp", ("out", 0, EARLY, sizes.spin_cycles), programmatic=True)
        behind = [
            Launch("launch", "stamp", ("out", number, EARLY | WAITS, 0), programmatic=True)
            for number in range(1, sizes.launches + 1)
        ]
        gpu.run_together([first, *behind])
        stamps = gpu.records()
        if len(stamps) != sizes.launches + 1 or stamps.shape[1] != RECORD:
            raise ValueError(f"{len(stamps)} of {sizes.launches + 1} launches have left a record")
        found.append(overlapping(stamps))
    return found


def findings(rows: list[Row]) -> list[str]:
    """The rows that have stale bytes behind work that lets nothing start beside it."""
    return [
        f"{row.stale_bytes} stale bytes in {row.stale_tries} of {row.tries} tries: {row.reader} behind {row.writer}, "
        f"{row.nbytes} bytes" + (f", {row.delay} cycles after the reader's start" if row.delay else "")
        for row in rows
        if row.stale_bytes and row.writer != CONTROL
    ]


def faults(rows: list[Row], behind: list[tuple[int, bool]]) -> list[str]:
    """Faults that make the run worthless, or the contract of `solve` untrue; none where all is well."""
    found = [
        f"no stale byte: {row.reader} behind a {CONTROL}, {row.nbytes} bytes; the reader was not early"
        for row in rows
        if row.writer == CONTROL and not row.stale_bytes
    ]
    if not all(in_order for _, in_order in behind):
        found.append("launches end out of order")
    return found


def summary(rows: list[Row], behind: list[tuple[int, bool]]) -> dict[str, Any]:
    """The figures that pages quote: of all rows but the control, and of the launches behind one that spins."""
    started = [count for count, _ in behind]

    def total(name: str, of_control: bool) -> int:
        return sum(getattr(row, name) for row in rows if (row.writer == CONTROL) == of_control)

    return {
        "tries": total("tries", False),
        "stale tries": total("stale_tries", False),
        "control's stale tries": total("stale_tries", True),
        "control's tries": total("tries", True),
        "launches started behind one that spins": [min(started), max(started)],
        "ends in order": all(in_order for _, in_order in behind),
    }


def show(rows: list[Row], figures: dict[str, Any]) -> None:
    columns = ["bytes", "tries", "stale tries", "stale bytes", "after cycles"]
    table = make_table(["written by", "read early by"], columns)
    for row in rows:
        table.add_row(*map(str, dataclasses.astuple(row)))
    make_console().print(table)
    for name, value in figures.items():
        print(f"{name}: {value}")


def main(arguments: list[str] | None = None) -> int:
    parser = command_parser(__doc__, "tools.overlaps")
    parser.add_argument("--tries", type=positive, default=1000, metavar="N", help="of each row; default: %(default)s")
    parser.add_argument("--smoke", action="store_true", help="a try of each row, few bytes")
    records.add_save(parser)
    options = parser.parse_args(arguments)
    started = time.monotonic()
    sizes = SMOKE if options.smoke else Sizes(options.tries, LATE_TIMES * options.tries)
    gpu = current(DATA_BYTES)
    rows, behind = list(early_rows(gpu, sizes)), launches_behind(gpu, sizes)
    figures = summary(rows, behind)
    show(rows, figures)
    if options.save:
        record = {
            "device": gpu.name,
            "driver, max clocks": records.driver_and_clocks(),
            "command": records.command(arguments),
            "seconds": round(time.monotonic() - started, 1),
            "summary": figures,
            "rows": [dataclasses.asdict(row) for row in rows],
            "launches": [{"started": count, "in order": in_order} for count, in_order in behind],
        }
        records.save(options.save, record)
    print(*findings(rows), sep="\n")
    wrong = faults(rows, behind)
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    return int(bool(wrong))


def positive(text: str) -> int:
    """A number above 0. Raises argparse.ArgumentTypeError."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
