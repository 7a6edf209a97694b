"""The catalogue of races: the sanitizer names the rule of each, and is silent about its ordered twin."""

import functools
from collections import defaultdict
from pathlib import Path

import pytest

from nogpu import EmulatorError
from nogpu.compiler.translate import translate
from nogpu.sanitizer.observer import Sanitizer
from tests.sanitizer.test_globals import LAUNCHES, MAPS
from tests.sanitizer.test_queues import PINNED_READS, PINNED_WRITES
from tests.sanitizer.test_queues import RACES as QUEUES
from tests.sanitizer.test_races import CASES
from tests.support.encoding import tensor_map
from tests.support.race_catalogue import BEGIN, KERNELS
from tests.support.small_kernels import addresses, aligned, entry, launch_entry

PAGE = Path(__file__).parents[2] / "docs/race_detectors.md"
SCHEDULES = ("late", "eager", "random:1")
# Messages of other checks about a wrong parity, and about columns that nobody has committed.
REFUSED = r"the kernel hangs|no tcgen05\.commit behind it has arrived"


@functools.lru_cache(maxsize=2)
def translated(body):
    """(kernel, its program) of a body, which runs under one schedule after the other."""
    kernel = entry(body, 2)
    return kernel, translate(kernel, follows_registers=True)


def run(body, schedule, count, threads=64, **options):
    data = aligned(256)
    boxes = aligned(tensor_map(data.ctypes.data, (16, 4), (64,), (16, 2), "u32"))
    kernel, program = translated(BEGIN.replace("COUNT", str(count)) + body)
    options |= {"schedule": schedule, "sanitizer": Sanitizer(), "program": program, "block": (threads, 1, 1)}
    launch_entry(kernel, addresses((data, boxes)), (data, boxes), **options)


def cases():
    """Each row under each schedule. The first of each order that a memory lacks, under `late`, is no slow one."""
    known = set()
    for row in KERNELS:
        for schedule in SCHEDULES:
            quick = schedule == "late" and (row.memory, row.missing, row.rule) not in known
            known |= {(row.memory, row.missing, row.rule)}
            name = f"{row.memory}: {row.accesses}: {row.missing}: {schedule}"
            yield pytest.param(row, schedule, id=name, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("row", "schedule"), list(cases()))
def test_a_race_is_reported_and_its_ordered_twin_is_silent(row, schedule, monkeypatch):
    """Doubts are errors."""
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    run(row.legal, schedule, **row.options)
    with pytest.raises(EmulatorError, match=f"sanitizer, rule {row.rule}: nothing orders|{REFUSED}") as error:
        run(row.racy, schedule, **row.options)
    if "nothing orders" in error.value.reason:
        reason = error.value.reason
        assert reason.partition("namely")[0].count("at PTX line") == 2 and "(PTX ISA, " in reason


def counted():
    """(memory, order that is missing, rule) of each race: those of the catalogue, and of tables of other tests."""
    for row in [*KERNELS, *QUEUES]:
        yield row.memory, row.missing, row.rule
    for memory, uses in (("read", PINNED_WRITES), ("written", PINNED_WRITES | PINNED_READS)):
        yield from [(f"pinned, {memory} by a copy", "wait of the host", "queues")] * len(uses)
    yield from (("global, programmatic launches", name, "launch") for name in LAUNCHES)
    yield from (("tensor maps", name, row[0]) for name, row in MAPS.items())
    yield from (("mbarriers", name, row[0]) for name, row in CASES.items() if row[0] == "initialisation")


def table():
    """The page's table of the catalogue."""
    found = defaultdict(list)
    for memory, missing, rule in counted():
        found[memory].append((missing, rule))
    lines = ["| memory | orders that are missing | races | noticed | by rules |", "| --- | --- | ---: | ---: | --- |"]
    for memory, each in found.items():
        missing = "; ".join(dict.fromkeys(name for name, _ in each))
        rules = ", ".join(f"`{rule}`" for rule in dict.fromkeys(rule for _, rule in each) if rule)
        lines.append(f"| {memory} | {missing} | {len(each)} | {sum(bool(rule) for _, rule in each)} | {rules} |")
    every = sum(found.values(), [])
    return "\n".join([*lines, f"| **all** | | {len(every)} | {sum(bool(rule) for _, rule in every)} | |"])


def test_the_page_has_the_catalogue():
    assert table() in PAGE.read_text(), table()
