"""Constants of memory: latencies and rates of L1, L2, DRAM, the copy engine and the other CTA's shared memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from workshop.calibration.launches import (
    OWN_A,
    SHARED,
    Launch,
    Measurement,
    Records,
    Sizes,
    bytes_per_cycle,
    cycles_per,
    gigabytes_per_second,
    median_span,
    medians,
    nanoseconds,
)

if TYPE_CHECKING:
    from workshop.calibration.device import Gpu

PLAIN_THREADS, VECTORS = 512, 8  # threads of a CTA; vectors of 16 bytes per thread in memory.cu
IN_FLIGHT = tuple(kib << 10 for kib in (4, 8, 16, 32, 48, 64, 96, 128, 192))  # bytes per SM
BOXES = (4 << 10, 8 << 10, 16 << 10)  # bytes
BURST_BOXES = (128, 1 << 10, 4 << 10, 16 << 10)
LARGE, DEEP = 16 << 10, 128 << 10  # bytes of a box, and in flight, that reach the highest rates
MAX_STAGES = 64  # limit of tma.cu
MAP_ROW = 128  # bytes
FILLED, BURSTS, PAUSES = 256 << 20, 8, (0, 2_000, 10_000, 400_000)  # bytes; bursts; cycles before each
LINES, LINE_LOADS = 64, 16  # lines of L2, and loads of each
MAX_SMS = 256  # bound above the numbers of SMs
REMOTE_BYTES = 16 << 10
READ_MIB = (8, 16, 32, 48, 64, 96, 128, 256)
CAPACITY_MIB = (4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 192, 256)
ALL_SMS, LOAD = "GB/s, all SMs", "cycles per dependent load"
CHAINS = (  # name, bytes, bytes between addresses, 1 if L1 caches
    ("l1", 16 << 10, 128, 1),
    ("l2", 2 << 20, 128, 0),
    ("l2_far_apart", 16 << 20, 4096, 0),
    ("dram", 512 << 20, 65536, 0),
    ("dram_near", 256 << 20, 4096 + 128, 0),
)


def measurements(sizes: Sizes) -> Iterator[Measurement]:
    """Every measurement of this module. The chains of addresses are written to the device's memory when they run."""
    for of in (chains, halves, plain, after_flushes, after_writes, engine, bursts, atomics, remote):
        yield from of(sizes)


def places(sizes: Sizes) -> tuple[tuple[str, int], ...]:
    """Pairs (memory, bytes of a window that lies in it)."""
    return ("dram", sizes.region), ("l2", sizes.hits)


def whole(size: int, unit: int) -> int:
    """`size` rounded down to a multiple of `unit`, but at least `unit`."""
    return max(size // unit, 1) * unit


def write_chain(device: Gpu, size: int, step: int) -> None:
    """Write a ring of addresses in random order, `step` bytes apart, to the first `size` bytes of `data`."""
    count = size // step
    order = np.random.default_rng(0).permutation(count).astype(np.uint64)
    base, words = np.uint64(device.address("data")), np.zeros(size // 8, np.uint64)
    words[order * np.uint64(step // 8)] = base + np.roll(order, -1) * np.uint64(step)
    device.write(words)


def chains(sizes: Sizes) -> Iterator[Measurement]:
    """Latencies of loads whose addresses depend on each other."""
    for name, size, step, caching in CHAINS:
        count = min(size, sizes.region) // step
        loads = min(sizes.loads if name != "dram_near" else 4 * sizes.loads, count)
        launch = Launch("memory", "chase", ("out", "data", loads, caching, -1))
        fill = functools.partial(write_chain, size=count * step, step=step)
        flush = "reads" if name.startswith("dram") else ""
        yield Measurement(f"latency.load.{name}", LOAD, launch, cycles_per(loads), fill=fill, flush=flush)


def halves(sizes: Sizes) -> Iterator[Measurement]:
    """Latencies of single lines of L2 from every SM, one SM after the other."""
    arguments = ("out", "data", LINES, 4096 + 128, LINE_LOADS, "number")
    launch = Launch("memory", "chase_lines", arguments, sizes.sms, shared=SHARED)
    words = MAX_SMS * LINES
    yield Measurement("latency.l2_line", LOAD, launch, line_figure, words, clear, launches=sizes.sms)


def line_figure(words: np.ndarray) -> dict[str, float]:
    """Percentiles over SMs and lines; and for each SM's lines parted into near and far ones, so that the variances of
    the two are least, the mean latency of each and the share of near lines. words: int64 [MAX_SMS * LINES], cycles.
    """
    each = np.sort(words.reshape(-1, LINES), axis=1) / LINE_LOADS
    each = each[each[:, 0] > 0]
    figures = {name: np.percentile(each, at) for name, at in (("p5", 5), ("median", 50), ("p95", 95))}
    parts = []
    for line in each:
        within = [line[:i].var() * i + line[i:].var() * (LINES - i) for i in range(1, LINES)]
        at = int(np.argmin(within)) + 1
        parts.append((line[:at].mean(), line[at:].mean(), at / LINES))
    figures |= dict(zip(("near", "far", "near_share"), np.mean(parts, axis=0)))
    return {name: float(value) for name, value in figures.items()}


def clear(device: Gpu) -> None:
    device.clear()


def plain(sizes: Sizes) -> Iterator[Measurement]:
    """Loads and stores of threads."""
    for kind in ("plain_read", "plain_write", "plain_copy"):
        for (place, window), per_sm in product(places(sizes), (1, 2, 4)):
            ctas = per_sm * sizes.sms
            each = whole(sizes.moved // ctas, PLAIN_THREADS * 16 * VECTORS)
            launch = Launch("memory", kind, ("out", "data", "target", each, window, 1), ctas, PLAIN_THREADS)
            figure = gigabytes_per_second(each * ctas * (2 if kind == "plain_copy" else 1))
            yield Measurement(f"rate.{kind}.{place}.{per_sm}_ctas", ALL_SMS, launch, figure)
        for threads in (128, 512, 1024):
            each = whole(sizes.moved_sm, threads * 16 * VECTORS)
            launch = Launch("memory", kind, ("out", "data", "target", each, min(sizes.hits, 2 << 20), 1), 1, threads)
            yield Measurement(f"rate.{kind}.l2.one_sm.{threads}_threads", "bytes/cycle", launch, bytes_per_cycle(each))


def after_writes(sizes: Sizes) -> Iterator[Measurement]:
    """Bursts of loads from DRAM into an L2 that is full of written lines, and into one full of lines that were read."""
    unit = f"cycles of a burst of {PLAIN_THREADS * 16 * 4} bytes into each SM"
    for (kind, stores), pause in product((("writes", 1), ("reads", 0)), PAUSES):
        arguments = ("out", "data", "target", min(sizes.moved // 2, FILLED), stores, pause, BURSTS)
        launch = Launch("memory", "read_after", arguments, sizes.sms, PLAIN_THREADS)
        yield Measurement(f"rate.bursts_after_{kind}.pause_{pause}", unit, launch, burst_cycles, flush="reads")


def burst_cycles(records: Records) -> float:
    """Mean cycles of a burst of `after_writes`."""
    return float(records[:, OWN_A].mean()) / BURSTS


def after_flushes(sizes: Sizes) -> Iterator[Measurement]:
    """Reads of more and more bytes by all SMs, after L2 has been filled by reads or by writes."""
    for mib, flush in product(READ_MIB, ("reads", "writes", "writes, rest")):
        each = whole(min(mib << 20, sizes.moved) // sizes.sms, PLAIN_THREADS * 16 * VECTORS)
        arguments = ("out", "data", "target", each, each * sizes.sms, 1)
        launch = Launch("memory", "plain_read", arguments, sizes.sms, PLAIN_THREADS)
        yield Measurement(f"rate.after_{flush.replace(', ', '_')}.{mib}_MiB", "ns", launch, nanoseconds, flush=flush)


@dataclass(frozen=True)
class Reads:
    """A stream of boxes into shared memory."""

    kind: str  # KIND of the kernel tma_read_KIND
    window: int  # bytes of memory that it reads
    box: int  # bytes
    in_flight: int  # bytes of a CTA
    pairs: int = 1  # pairs of warps, each with its part of the bytes in flight
    share: int = 1  # number of CTAs that read one box; negative if they are far from each other

    def launch(self, sizes: Sizes, ctas: int) -> tuple[Launch, int]:
        """(launch of tma_read_KIND, bytes that each CTA gets)."""
        box, pairs = self.box, self.pairs
        boxes = max((sizes.moved if ctas > 2 else sizes.moved_sm * ctas) // ctas // pairs // box, 2)
        rows, cluster = (box // 2 // MAP_ROW, 2) if self.kind == "multicast" else (box // MAP_ROW, 1)
        stages = self.in_flight // box // pairs
        arguments = (f"rows:{rows}", "out", "data", self.window // box * box, boxes, box, stages, self.share)
        launch = Launch("tma", f"tma_read_{self.kind}", arguments, ctas, 64 * pairs, self.in_flight, cluster)
        return launch, boxes * box * pairs

    def rate(self, name: str, sizes: Sizes, ctas: int, unit: str = ALL_SMS) -> Measurement:
        """The measurement of the stream's rate in `ctas` CTAs, one for each SM."""
        launch, each = self.launch(sizes, ctas)
        return Measurement(name, unit, launch, gigabytes_per_second(each * ctas))


def engine(sizes: Sizes) -> Iterator[Measurement]:
    """Streams of boxes, in and out."""
    for (place, window), kind, box, in_flight, pairs in product(
        places(sizes), ("map", "bulk"), BOXES, IN_FLIGHT, (1, 4)
    ):
        if in_flight // box // pairs not in range(1, MAX_STAGES // pairs + 1):
            continue
        name = f"{kind}.box_{box >> 10}K.{in_flight >> 10}K_in_flight" + (".4_warps" if pairs > 1 else "")
        yield Reads(kind, window, box, in_flight, pairs).rate(f"tma.read.{place}.{name}", sizes, sizes.sms)
        if place == "l2":
            launch, each = Reads(kind, min(window, 4 << 20), box, in_flight, pairs).launch(sizes, 1)
            yield Measurement(f"tma.read.l2.one_sm.{name}", "bytes/cycle", launch, bytes_per_cycle(each))
    yield from shared_boxes(sizes, sizes.sms // 2 * 2)
    for mib in CAPACITY_MIB:
        stream = Reads("bulk", min(sizes.region, mib << 20), LARGE, DEEP)
        yield stream.rate(f"l2.capacity.{mib}_MiB", sizes, sizes.sms)
    yield from stores(sizes)


def shared_boxes(sizes: Sizes, ctas: int) -> Iterator[Measurement]:
    """Boxes that several CTAs read: each by itself, or two by multicast."""
    unit = "GB/s into shared memory, all SMs"
    for name, share, kind in (("each_its_own", 1, "map"), ("pairs_share", 2, "map"), ("multicast", 2, "multicast")):
        for (place, window), box, in_flight in product(places(sizes), (8 << 10, LARGE), (DEEP // 2, DEEP)):
            constant = f"tma.fill.{name}.{place}.box_{box >> 10}K.{in_flight >> 10}K_in_flight"
            yield Reads(kind, window, box, in_flight, 1, share).rate(constant, sizes, ctas, unit)
    for name, share in (("share_4", 4), ("share_8", 8), ("share_16", 16), ("share_all", ctas)):
        for far in (1, -1) if share <= ctas else ():
            constant = f"tma.fill.{name}{'_far' if far < 0 else ''}.l2.box_{LARGE >> 10}K.{DEEP >> 10}K_in_flight"
            stream = Reads("map", sizes.hits, LARGE, DEEP, 1, far * share)
            yield stream.rate(constant, sizes, ctas // share * share, unit)


def stores(sizes: Sizes) -> Iterator[Measurement]:
    """Streams of boxes out of shared memory, and through it."""
    for (place, window), box, warps in product(places(sizes), (4 << 10, LARGE), (1, 2)):
        boxes = max(sizes.moved // sizes.sms // warps // box, 4)
        name = f"{place}.box_{box >> 10}K" + (f".{warps}_warps" if warps > 1 else "")
        moved = boxes * box * warps * sizes.sms
        of = (window // box * box, boxes, box)
        for kind in ("map", "bulk"):
            arguments = (f"rows:{box // MAP_ROW}", "out", "data", *of, 4)
            launch = Launch("tma", f"tma_write_{kind}", arguments, sizes.sms, 32 * warps, 4 * box * warps)
            yield Measurement(f"tma.write.{kind}.{name}", ALL_SMS, launch, gigabytes_per_second(moved))
        copy = ("out", "data", "target", *of, DEEP // box // warps)
        launch = Launch("tma", "tma_copy", copy, sizes.sms, 32 * warps, DEEP)
        unit = "GB/s read and written, all SMs"
        yield Measurement(f"tma.copy.{name}", unit, launch, gigabytes_per_second(2 * moved))


def burst_figure(words: np.ndarray, burst: int, warps: int) -> dict[str, float]:
    """Cycles of tma_burst: of an issue, to the first and last box, between boxes; medians over CTAs and trials."""
    trials = words.reshape(-1, warps, burst + 2)
    trials = trials[trials[:, 0, 0] > 0]
    start, first, last = trials[:, :, 0].min(1), trials[:, :, 2].min(1), trials[:, :, -1].max(1)
    figures = {
        "issue": np.median(trials[:, :, 1] - trials[:, :, 0], axis=1) / burst,
        "first_arrival": first - start,
        "last_arrival": last - start,
    }
    return medians(figures | ({"between": (last - first) / (burst * warps - 1)} if burst > 1 else {}))


def store_figure(words: np.ndarray, burst: int) -> dict[str, float]:
    """Cycles of tma_store_burst: of an issue, of the commit, to the end of reading and of the stores; medians."""
    trials = words.reshape(-1, 5)
    start, issued, committed, read, complete = trials[trials[:, 0] > 0].T
    figures = {"issue": (issued - start) / burst, "commit": committed - issued}
    return medians({**figures, "read": read - start, "complete": complete - start})


def bursts(sizes: Sizes) -> Iterator[Measurement]:
    """Short bursts of boxes: issue, latency and the engine's interval."""
    trials = min(16, sizes.rounds)
    for ctas, who in ((1, "one_sm"), (sizes.sms, "all_sms")):
        near = min(sizes.hits, 1 << 20) if ctas == 1 else sizes.hits
        memories = ("dram", sizes.region), ("l2", near)
        for (place, window), kind, box, burst, warps in product(
            memories, ("map", "bulk"), BURST_BOXES, (1, 4, 12), (1, 4)
        ):
            if burst * warps * box > SHARED or (burst, warps) == (1, 4):
                continue
            name = f"{kind}.{place}.{who}.box_{box}.burst_{burst}" + (f".{warps}_warps" if warps > 1 else "")
            arguments = (f"rows:{box // MAP_ROW}", "out", "data", window // box * box, burst, box, trials)
            launch = Launch("tma", f"tma_burst_{kind}", arguments, ctas, 32 * warps, burst * box * warps)
            figure = functools.partial(burst_figure, burst=burst, warps=warps)
            words, flush = ctas * trials * warps * (burst + 2), "reads" if place == "dram" else ""
            yield Measurement(f"tma.load.{name}", "cycles", launch, figure, words, flush=flush)
        for kind, box, burst in product(("map", "bulk"), BURST_BOXES, (1, 4)):
            arguments = (f"rows:{box // MAP_ROW}", "out", "data", sizes.hits, burst, box, trials)
            launch = Launch("tma", f"tma_store_burst_{kind}", arguments, ctas, 32, burst * box)
            figure = functools.partial(store_figure, burst=burst)
            name = f"tma.store.{kind}.{who}.box_{box}.burst_{burst}"
            yield Measurement(name, "cycles", launch, figure, ctas * trials * 5)


def atomics(sizes: Sizes) -> Iterator[Measurement]:
    """Latency and rate of atomics on global memory."""
    count = 4 * sizes.rounds
    for stride in (0, 4, 128):
        launch = Launch("memory", "global_atomic", ("out", "data", count, stride, 1))
        name = f"atomic.latency.stride_{stride}"
        yield Measurement(name, "cycles per warp atomic", launch, cycles_per(count), fill=clear)
        for threads in (32, 256):
            launch = Launch("memory", "global_atomic", ("out", "data", count, stride, 0), sizes.sms, threads)
            figure = gigabytes_per_second(sizes.sms * threads * count)
            name = f"atomic.rate.stride_{stride}.{threads}_threads"
            yield Measurement(name, "atomics per ns, all SMs", launch, figure)


def rate_of(moved: float, both: int) -> Callable[[Records], float]:
    """Bytes per cycle of CTA 0. both: 1 if CTA 1 wrote records, too."""
    return lambda records: moved / median_span(records[: len(records) // 2] if both else records)


def remote(sizes: Sizes) -> Iterator[Measurement]:
    """Accesses to the shared memory of another CTA of a cluster."""
    chain, unit = 4 * sizes.rounds, "bytes/cycle of an SM"
    launch = Launch("memory", "remote_access", ("out", 0, chain, REMOTE_BYTES, 0, 1), 2, 32, REMOTE_BYTES, 2)
    yield Measurement("remote.latency.load", LOAD, launch, cycles_per(chain))
    for (mode, kind), threads, both in product(((1, "load"), (2, "store")), (32, 256, 1024), (0, 1)):
        arguments = ("out", mode, chain, REMOTE_BYTES, both, 1)
        launch = Launch("memory", "remote_access", arguments, 2, threads, REMOTE_BYTES, 2)
        name = f"remote.rate.{kind}.{threads}_threads.{'both' if both else 'one'}"
        yield Measurement(name, unit, launch, rate_of(16 * threads * chain, both))
    for cluster, peers, both in ((4, 1, 1), (4, 3, 0), (4, 3, 1)):
        arguments = ("out", 2, chain, REMOTE_BYTES, both, peers)
        launch = Launch("memory", "remote_access", arguments, cluster, 256, REMOTE_BYTES, cluster)
        name = f"remote.rate.store.256_threads.cluster_{cluster}.to_{peers}.{'all' if both else 'one'}"
        yield Measurement(name, unit, launch, rate_of(16 * 256 * chain, both))
    for box, stages, both in product((1 << 10, 4 << 10, 16 << 10), (1, 4, 8), (0, 1)):
        launch = Launch("tma", "remote_bulk", ("out", 8 * sizes.rounds, box, stages, both), 2, 64, 2 * box, 2)
        name = f"remote.bulk.box_{box >> 10}K.{stages}_in_flight.{'both' if both else 'one'}"
        yield Measurement(name, "cycles per copy", launch, lambda records: median_span(records) / (8 * sizes.rounds))
