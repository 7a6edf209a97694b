"""The replay of recorded launches on a chip (native/*.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypedDict, Unpack

import numpy as np

from nogpu import headers, toolchain
from nogpu.clock.chip import Chip
from nogpu.clock.costs import Costs, costs_of
from nogpu.clock.trace import Trace
from nogpu.errors import EmulatorError

EVENTS_AT_ONCE = 1_000_000  # events of a call of compiled code, for whose end signals and progress wait
OTHER_DATA = 1 << 36  # distance, in lines, between different data of launches
SPAN = np.dtype(headers.structure("clock/native/clock.h", "Span"))


@headers.mirrors("clock/native/clock.h", "Launch")
class _Launch(ctypes.Structure):
    pass


@cache
def _library() -> tuple[ctypes.CDLL, list[str]]:
    """The compiled replay, and the names of the chip's constants."""
    library = toolchain.load("clock/native")
    names: list[str] = []
    pointers = (ctypes.c_char_p * 256).in_dll(library, "constant_names")
    while (text := pointers[len(names)]) is not None:
        names.append(text.decode())
    library.new_sim.restype = library.all_spans.restype = ctypes.c_void_p
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    library.new_sim.argtypes = [pointer, pointer, number, pointer, number, ctypes.c_int64, number]
    library.advance.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    library.launch_figure.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]
    library.chip_figure.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    library.launch_figure.restype = library.chip_figure.restype = ctypes.c_double
    library.span_figure.restype = ctypes.c_int64
    library.span_figure.argtypes = library.all_spans.argtypes = library.end_sim.argtypes = [ctypes.c_void_p]
    library.error_text.restype = ctypes.c_char_p
    library.error_text.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.end_sim.restype = None
    return library, names


def constant_names() -> list[str]:
    """The constants that a profile must have."""
    return list(_library()[1])


@dataclass(frozen=True)
class Usage:
    """The work of the chip's parts: bytes, or cycles of all tensor cores."""

    dram_read: float
    dram_written: float
    l2_hits: float
    l2_misses: float
    sm_in: float
    sm_out: float
    tensor_cycles: float


@dataclass(frozen=True)
class Replay:
    """The result of a replay, with times in cycles."""

    chip: Chip
    starts: list[float]
    first_ctas: list[float]
    ends: list[float]
    usage: Usage
    waits: list[np.ndarray]
    """Cycles of waits at each instruction, summed over CTAs, by launch: float64[warps of a CTA, instructions]."""
    busy: list[np.ndarray]
    """Cycles of issue, summed over CTAs, by launch: float64[warps of a CTA]."""
    spans: np.ndarray
    """SPAN[n]: CTAs, waits, stalls, MMAs, copies and signals (`kind`: SpanKind of native/clock.h)."""

    @property
    def us(self) -> float:
        """The microseconds from the first launch's start to the last one's end."""
        return self.chip.us(self.ends[-1] - self.starts[0])


class Options(TypedDict, total=False):
    """Options of a replay."""

    programmatic: bool | None
    """Attribute of all launches; None: as recorded."""
    spans: int
    """Number of spans to keep, at most."""
    progress: Callable[[int, int], None] | None
    """Function that gets the numbers of finished CTAs and of all."""
    skips: Sequence[np.ndarray] | None
    """For each launch uint8[instructions], the waits of an instruction that cost nothing: SKIP_WAIT, SKIP_DATA. A later
    operation then waits for what it needs.
    """


def replay(
    traces: Sequence[Trace],
    chip: Chip,
    *,
    other_data: bool | Sequence[int] = True,
    dirty_l2: bool = False,
    **options: Unpack[Options],
) -> Replay:
    """Replay launches, one after another in one queue.

    other_data: True if each launch has data of its own, which is not in L2; or a number for each launch, equal for
    launches with the same data. dirty_l2: True if L2 at first holds data that others have written (a flush by writes),
    which goes to DRAM when its place is needed.

    Raises EmulatorError for launches that never end on this chip, and ValueError for a profile that lacks a
    constant or a family of instructions.
    """
    library, names = _library()
    missing = [name for name in names if name not in chip.constants]
    if missing:
        raise ValueError(f"chip profile {chip.name!r} lacks {', '.join(missing)}")
    for number, trace in enumerate(traces):
        _check_room(number, trace, chip)
    programmatic, skips = options.get("programmatic"), options.get("skips")
    constants = np.array([chip.constants[name] for name in names], np.float64)
    gpc_ends = np.cumsum(chip.gpc_sms).astype(np.int32)
    costs = _costs(traces, chip, skips)
    launches, waits, busy = _launches(traces, costs)
    for number, (launch, trace) in enumerate(zip(launches, traces)):
        launch.programmatic = trace.programmatic if programmatic is None else programmatic
        launch.skips = skips is not None and bool(skips[number].any())
        launch.salt = OTHER_DATA * (number * other_data if isinstance(other_data, bool) else other_data[number])
    simulation = library.new_sim(
        constants.ctypes.data,
        gpc_ends.ctypes.data,
        len(gpc_ends),
        launches,
        len(traces),
        options.get("spans", 0),
        dirty_l2,
    )
    try:
        starts, first_ctas, ends = _figures(library, simulation, traces, chip, options.get("progress"))
        usage = Usage(*(library.chip_figure(simulation, what) for what in range(1, 8)))
        found = _spans(library, simulation)
        return Replay(chip, starts, first_ctas, ends, usage, waits, busy, found)
    finally:
        library.end_sim(simulation)


def _figures(
    library: ctypes.CDLL,
    simulation: int,
    traces: Sequence[Trace],
    chip: Chip,
    progress: Callable[[int, int], None] | None,
) -> list[list[float]]:
    """`Replay.starts`, first_ctas and ends of a simulation, which runs to its end. Raises EmulatorError."""
    while (state := library.advance(simulation, EVENTS_AT_ONCE)) == 1:
        if progress is not None:
            over = sum(int(library.launch_figure(simulation, i, 4)) for i in range(len(traces)))
            progress(over, sum(trace.starts.shape[0] for trace in traces))
    if state < 0:
        raise _broken(library, simulation, traces, chip)
    figures = [[library.launch_figure(simulation, i, what) for i in range(len(traces))] for what in range(4)]
    for number, done in enumerate(figures.pop()):
        if done != 2:
            raise _endless(int(library.launch_figure(simulation, number, 4)), number, traces[number], chip)
    return figures


def _spans(library: ctypes.CDLL, simulation: int) -> np.ndarray:
    """`Replay.spans` of a simulation that is over."""
    found = np.zeros(library.span_figure(simulation), SPAN)
    if len(found):
        ctypes.memmove(found.ctypes.data, library.all_spans(simulation), found.nbytes)
    return found


def _costs(traces: Sequence[Trace], chip: Chip, skips: Sequence[np.ndarray] | None) -> list[Costs]:
    """Costs of the launches' instructions; launches of one kernel, skipping the same waits, share them."""
    known: dict[tuple[int, int], Costs] = {}
    found = []
    for number, trace in enumerate(traces):
        key = id(trace.instructions), 0 if skips is None else id(skips[number])
        costs = known.get(key) or costs_of(trace, chip)
        if skips is not None:
            costs.table["skips"] = skips[number]
        known[key] = costs
        found.append(costs)
    return found


def _launches(
    traces: Sequence[Trace], costs: list[Costs]
) -> tuple[ctypes.Array[_Launch], list[np.ndarray], list[np.ndarray]]:
    """Launches for compiled code, and the arrays that it fills (`Replay.waits`, `Replay.busy`)."""
    launches: ctypes.Array[_Launch] = (_Launch * len(traces))()
    waits, busy = [], []
    for launch, trace, of in zip(launches, traces, costs):
        warps = trace.starts.shape[1] - 1
        waits.append(np.zeros((warps, len(trace.instructions))))
        busy.append(np.zeros(warps))
        launch.words, launch.starts = trace.words.ctypes.data, trace.starts.ctypes.data
        launch.instructions, launch.values = of.table.ctypes.data, of.values.ctypes.data
        launch.instruction_count, launch.value_count = len(trace.instructions), of.registers
        launch.ctas, launch.warps = trace.starts.shape[0], warps
        launch.cluster, launch.threads = int(np.prod(trace.cluster)), int(np.prod(trace.block))
        launch.shared_bytes, launch.registers = trace.shared_bytes, trace.registers
        launch.waits, launch.busy = waits[-1].ctypes.data, busy[-1].ctypes.data
    return launches, waits, busy


def _broken(library: ctypes.CDLL, simulation: int, traces: Sequence[Trace], chip: Chip) -> EmulatorError:
    detail = (ctypes.c_int64 * 4)()
    text = library.error_text(simulation, detail).decode()
    place = f"{_title(detail[3], traces[detail[3]])}, CTA {detail[0]}, mbarrier at {detail[1]:#x}"
    return EmulatorError(f"replay on {chip.name}: {place}, phase {detail[2]}: {text}")


def _endless(over: int, number: int, trace: Trace, chip: Chip) -> EmulatorError:
    """The error of a launch that does not end. over: number of its CTAs that have ended."""
    return EmulatorError(
        f"replay on {chip.name}: {_title(number, trace)} comes to no end: {over} of {trace.starts.shape[0]} CTAs are "
        "over, the warps of the others wait, or their cluster finds no room"
    )


def _title(number: int, trace: Trace) -> str:
    return f"launch {number} ({trace.name})"


def _check_room(number: int, trace: Trace, chip: Chip) -> None:
    """Raise EmulatorError for a CTA that does not fit on any SM of the chip."""
    threads = int(np.prod(trace.block))
    needs = {"sm_threads": threads, "sm_shared_bytes": trace.shared_bytes, "sm_registers": threads * trace.registers}
    for name, need in needs.items():
        if need > chip.constants[name]:
            raise EmulatorError(
                f"replay on {chip.name}: {_title(number, trace)}: a CTA needs {need} of {name}, an SM has "
                f"{chip.constants[name]:g}"
            )
