"""Constants of memory: latencies and rates of L1, L2, DRAM, the copy engine and the other CTA's shared memory."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
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
    nanoseconds,
)

if TYPE_CHECKING:
    from workshop.calibration.device import Gpu

PLAIN_THREADS, VECTORS = 512, 8  # vectors of 16 bytes of a thread in memory.cu
IN_FLIGHT = tuple(kib << 10 for kib in (4, 8, 16, 32, 48, 64, 96, 128, 192))  # bytes per SM
BOXES = (4 << 10, 8 << 10, 16 << 10)  # bytes
BURST_BOXES = (128, 1 << 10, 4 << 10, 16 << 10)
LARGE, DEEP = 16 << 10, 128 << 10  # bytes of a box and in flight that reach the rates
MAX_STAGES = 64  # tma.cu
MAP_ROW = 128  # bytes
FILLED, BURSTS, PAUSES = 256 << 20, 8, (0, 2_000, 10_000, 400_000)  # bytes; bursts; cycles before each
LINES, LINE_LOADS = 64, 16  # of L2, and loads of each
MAX_SMS = 256  # numbers of SMs are below
REMOTE_BYTES = 16 << 10
READ_MIB = (8, 16, 32, 48, 64, 96, 128, 256)


def measurements(device: Gpu, sizes: Sizes) -> Iterator[Measurement]:
    """Every measurement of this module. The chains of addresses are written to the device's memory when they run."""
    sms, region = sizes.sms or device.sms, device.data_bytes // (64 << 10) * (64 << 10)
    yield from chains(device, sizes)
    yield from halves(device, sizes, sms)
    yield from plain(sizes, sms, region)
    yield from after_flushes(sizes, sms)
    yield from after_writes(sizes, sms)
    yield from engine(sizes, sms, region)
    yield from bursts(sizes, sms, region)
    yield from others(sizes, sms)


# ----------------------------------------------------------------------------------------------------------------------
# Latencies
# ----------------------------------------------------------------------------------------------------------------------


def write_chain(device: Gpu, size: int, step: int) -> None:
    """A ring of addresses in random order, `step` bytes apart in the first `size` bytes of the device's memory."""
    count = size // step
    order = np.random.default_rng(0).permutation(count).astype(np.uint64)
    base, words = np.uint64(device.address("data")), np.zeros(size // 8, np.uint64)
    words[order * np.uint64(step // 8)] = base + np.roll(order, -1) * np.uint64(step)
    device.write(words)


def chains(device: Gpu, sizes: Sizes) -> Iterator[Measurement]:
    for name, size, step, caching in (
        ("l1", 16 << 10, 128, 1),
        ("l2", 2 << 20, 128, 0),
        ("l2_far_apart", 16 << 20, 4096, 0),
        ("dram", 512 << 20, 65536, 0),
        ("dram_near", 256 << 20, 4096 + 128, 0),
    ):
        size = min(size, device.data_bytes)
        loads = sizes.loads if name != "dram_near" else 4 * sizes.loads
        yield Measurement(
            f"latency.load.{name}",
            "cycles per dependent load",
            Launch("memory", "chase", ("out", "data", min(loads, size // step), caching, -1)),
            cycles_per(min(loads, size // step)),
            fill=functools.partial(write_chain, size=size // step * step, step=step),
            flush="reads" if name.startswith("dram") else "",
        )


def halves(device: Gpu, sizes: Sizes, sms: int) -> Iterator[Measurement]:
    """Latencies of single lines of L2 from every SM, one SM after the other."""
    arguments = ("out", "data", LINES, 4096 + 128, LINE_LOADS, "number")
    launch = Launch("memory", "chase_lines", arguments, sms, shared=SHARED)
    yield Measurement(
        "latency.l2_line",
        "cycles per dependent load",
        launch,
        line_figure,
        words=MAX_SMS * LINES,
        fill=clear,
        launches=sms,
    )


def line_figure(words: np.ndarray) -> dict[str, float]:
    """Percentiles over SMs and lines; and where the lines of an SM are parted in two, near and far, so that the two
    differ most: the mean of each, and the share of near ones.
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


# ----------------------------------------------------------------------------------------------------------------------
# Rates
# ----------------------------------------------------------------------------------------------------------------------


def plain(sizes: Sizes, sms: int, region: int) -> Iterator[Measurement]:
    """Loads and stores of threads."""
    block = PLAIN_THREADS * 16 * VECTORS
    for kind in ("plain_read", "plain_write", "plain_copy"):
        for place, window in (("dram", region), ("l2", sizes.hits)):
            for per_sm in (1, 2, 4):
                ctas = per_sm * sms
                each = max(sizes.moved // ctas // block, 1) * block
                arguments = ("out", "data", "target", each, window, 1)
                launch = Launch("memory", kind, arguments, ctas, PLAIN_THREADS)
                total = each * ctas * (2 if kind == "plain_copy" else 1)
                yield Measurement(
                    f"rate.{kind}.{place}.{per_sm}_ctas", "GB/s, all SMs", launch, gigabytes_per_second(total)
                )
        for threads in (128, 512, 1024):
            block_ = threads * 16 * VECTORS
            each = max(sizes.moved_sm // block_, 1) * block_
            arguments = ("out", "data", "target", each, min(sizes.hits, 2 << 20), 1)
            launch = Launch("memory", kind, arguments, 1, threads)
            yield Measurement(f"rate.{kind}.l2.one_sm.{threads}_threads", "bytes/cycle", launch, bytes_per_cycle(each))


def after_writes(sizes: Sizes, sms: int) -> Iterator[Measurement]:
    """Bursts of loads from DRAM into an L2 that is full of written lines, and into one full of lines that were read."""
    for (kind, stores), pause in itertools.product((("writes", 1), ("reads", 0)), PAUSES):
        arguments = ("out", "data", "target", min(sizes.moved // 2, FILLED), stores, pause, BURSTS)
        launch = Launch("memory", "read_after", arguments, sms, PLAIN_THREADS)
        yield Measurement(
            f"rate.bursts_after_{kind}.pause_{pause}",
            f"cycles of a burst of {PLAIN_THREADS * 16 * 4} bytes into each SM",
            launch,
            lambda records: float(records[:, OWN_A].mean()) / BURSTS,
            flush="reads",
        )


def read_launch(
    sizes: Sizes, kind: str, ctas: int, region: int, box: int, in_flight: int, pairs: int = 1, share: int = 1
) -> tuple[Launch, int]:
    """(launch of tma_read_KIND, bytes that each CTA gets). pairs: of warps, each with its part of what is in flight."""
    boxes = max((sizes.moved if ctas > 2 else sizes.moved_sm * ctas) // ctas // pairs // box, 2)
    rows, cluster = (box // 2 // MAP_ROW, 2) if kind == "multicast" else (box // MAP_ROW, 1)
    arguments = (f"rows:{rows}", "out", "data", region // box * box, boxes, box, in_flight // box // pairs, share)
    return Launch("tma", f"tma_read_{kind}", arguments, ctas, 64 * pairs, in_flight, cluster), boxes * box * pairs


def engine(sizes: Sizes, sms: int, region: int) -> Iterator[Measurement]:
    """Streams of boxes, in and out."""
    for place, window in (("dram", region), ("l2", sizes.hits)):
        for kind, box, in_flight, pairs in itertools.product(("map", "bulk"), BOXES, IN_FLIGHT, (1, 4)):
            if in_flight // box // pairs not in range(1, MAX_STAGES // pairs + 1):
                continue
            name = f"{kind}.box_{box >> 10}K.{in_flight >> 10}K_in_flight" + (".4_warps" if pairs > 1 else "")
            launch, each = read_launch(sizes, kind, sms, window, box, in_flight, pairs)
            figure = gigabytes_per_second(each * sms)
            yield Measurement(f"tma.read.{place}.{name}", "GB/s, all SMs", launch, figure)
            if place == "l2":
                launch, each = read_launch(sizes, kind, 1, min(window, 4 << 20), box, in_flight, pairs)
                yield Measurement(f"tma.read.l2.one_sm.{name}", "bytes/cycle", launch, bytes_per_cycle(each))
    yield from shared_boxes(sizes, sms // 2 * 2, region)
    for mib in (4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 192, 256):
        launch, each = read_launch(sizes, "bulk", sms, min(region, mib << 20), LARGE, DEEP)
        figure = gigabytes_per_second(each * sms)
        yield Measurement(f"l2.capacity.{mib}_MiB", "GB/s, all SMs", launch, figure)
    yield from stores(sizes, sms, region)


def shared_boxes(sizes: Sizes, ctas: int, region: int) -> Iterator[Measurement]:
    """Boxes that several CTAs read: each by itself, or two by multicast."""
    unit = "GB/s into shared memory, all SMs"
    for name, share, kind in (("each_its_own", 1, "map"), ("pairs_share", 2, "map"), ("multicast", 2, "multicast")):
        for (place, window), box in itertools.product((("dram", region), ("l2", sizes.hits)), (8 << 10, LARGE)):
            for in_flight in (DEEP // 2, DEEP):
                launch, each = read_launch(sizes, kind, ctas, window, box, in_flight, 1, share)
                constant = f"tma.fill.{name}.{place}.box_{box >> 10}K.{in_flight >> 10}K_in_flight"
                yield Measurement(constant, unit, launch, gigabytes_per_second(each * ctas))
    for name, share in (("share_4", 4), ("share_8", 8), ("share_16", 16), ("share_all", ctas)):
        for far in (1, -1) if share <= ctas else ():
            launch, each = read_launch(sizes, "map", ctas // share * share, sizes.hits, LARGE, DEEP, 1, far * share)
            constant = f"tma.fill.{name}{'_far' if far < 0 else ''}.l2.box_{LARGE >> 10}K.{DEEP >> 10}K_in_flight"
            yield Measurement(constant, unit, launch, gigabytes_per_second(each * launch.grid))


def after_flushes(sizes: Sizes, sms: int) -> Iterator[Measurement]:
    """Reads of more and more bytes by all SMs, after L2 has been filled by reads or by writes."""
    block = PLAIN_THREADS * 16 * VECTORS
    for mib, flush in itertools.product(READ_MIB, ("reads", "writes", "writes, rest")):
        each = max(min(mib << 20, sizes.moved) // sms // block, 1) * block
        launch = Launch("memory", "plain_read", ("out", "data", "target", each, each * sms, 1), sms, PLAIN_THREADS)
        yield Measurement(f"rate.after_{flush.replace(', ', '_')}.{mib}_MiB", "ns", launch, nanoseconds, flush=flush)


def stores(sizes: Sizes, sms: int, region: int) -> Iterator[Measurement]:
    for place, window in (("dram", region), ("l2", sizes.hits)):
        for box, warps in itertools.product((4 << 10, LARGE), (1, 2)):
            boxes = max(sizes.moved // sms // warps // box, 4)
            name = f"{place}.box_{box >> 10}K" + (f".{warps}_warps" if warps > 1 else "")
            figure = gigabytes_per_second(boxes * box * warps * sms)
            for kind in ("map", "bulk"):
                arguments = (f"rows:{box // MAP_ROW}", "out", "data", window // box * box, boxes, box, 4)
                launch = Launch("tma", f"tma_write_{kind}", arguments, sms, 32 * warps, 4 * box * warps)
                yield Measurement(f"tma.write.{kind}.{name}", "GB/s, all SMs", launch, figure)
            copy = ("out", "data", "target", window // box * box, boxes, box, DEEP // box // warps)
            launch = Launch("tma", "tma_copy", copy, sms, 32 * warps, DEEP)
            figure = gigabytes_per_second(2 * boxes * box * warps * sms)
            yield Measurement(f"tma.copy.{name}", "GB/s read and written, all SMs", launch, figure)


def burst_figure(words: np.ndarray, burst: int, warps: int) -> dict[str, float]:
    """Cycles of tma_burst: an issue, to the first and the last box, between boxes; medians over CTAs and trials."""
    trials = words.reshape(-1, warps, burst + 2)
    trials = trials[trials[:, 0, 0] > 0]
    start, first, last = trials[:, :, 0].min(1), trials[:, :, 2].min(1), trials[:, :, -1].max(1)
    figures = {
        "issue": np.median(trials[:, :, 1] - trials[:, :, 0], axis=1) / burst,
        "first_arrival": first - start,
        "last_arrival": last - start,
    }
    if burst > 1:
        figures["between"] = (last - first) / (burst * warps - 1)
    return {name: float(np.median(values)) for name, values in figures.items()}


def store_figure(words: np.ndarray, burst: int) -> dict[str, float]:
    """Cycles of tma_store_burst: an issue, the commit, to the end of reading and of the stores; medians."""
    trials = words.reshape(-1, 5)
    trials = trials[trials[:, 0] > 0]
    figures = {
        "issue": (trials[:, 1] - trials[:, 0]) / burst,
        "commit": trials[:, 2] - trials[:, 1],
        "read": trials[:, 3] - trials[:, 0],
        "complete": trials[:, 4] - trials[:, 0],
    }
    return {name: float(np.median(values)) for name, values in figures.items()}


def bursts(sizes: Sizes, sms: int, region: int) -> Iterator[Measurement]:
    """Short bursts of boxes: issue, latency and the engine's interval."""
    trials = min(16, sizes.rounds)
    for ctas, who in ((1, "one_sm"), (sms, "all_sms")):
        near = min(sizes.hits, 1 << 20) if ctas == 1 else sizes.hits
        for (place, window), kind in itertools.product((("dram", region), ("l2", near)), ("map", "bulk")):
            for box, burst, warps in itertools.product(BURST_BOXES, (1, 4, 12), (1, 4)):
                if burst * warps * box > SHARED or (burst, warps) == (1, 4):
                    continue
                name = f"{kind}.{place}.{who}.box_{box}.burst_{burst}" + (f".{warps}_warps" if warps > 1 else "")
                arguments = (f"rows:{box // MAP_ROW}", "out", "data", window // box * box, burst, box, trials)
                launch = Launch("tma", f"tma_burst_{kind}", arguments, ctas, 32 * warps, burst * box * warps)
                figure = functools.partial(burst_figure, burst=burst, warps=warps)
                words = ctas * trials * warps * (burst + 2)
                yield Measurement(
                    f"tma.load.{name}", "cycles", launch, figure, words=words, flush="reads" if place == "dram" else ""
                )
        for kind, box, burst in itertools.product(("map", "bulk"), BURST_BOXES, (1, 4)):
            name = f"{kind}.{who}.box_{box}.burst_{burst}"
            arguments = (f"rows:{box // MAP_ROW}", "out", "data", sizes.hits, burst, box, trials)
            launch = Launch("tma", f"tma_store_burst_{kind}", arguments, ctas, 32, burst * box)
            figure = functools.partial(store_figure, burst=burst)
            yield Measurement(f"tma.store.{name}", "cycles", launch, figure, words=ctas * trials * 5)


# ----------------------------------------------------------------------------------------------------------------------
# Atomics, and the other CTA of a cluster
# ----------------------------------------------------------------------------------------------------------------------


def rate_of(moved: float, both: int) -> Callable[[Records], float]:
    """Bytes per cycle of CTA 0; both: CTA 1 wrote records, too."""
    return lambda records: moved / median_span(records[: len(records) // 2] if both else records)


def others(sizes: Sizes, sms: int) -> Iterator[Measurement]:
    count = 4 * sizes.rounds
    for stride in (0, 4, 128):
        launch = Launch("memory", "global_atomic", ("out", "data", count, stride, 1))
        yield Measurement(
            f"atomic.latency.stride_{stride}", "cycles per warp atomic", launch, cycles_per(count), fill=clear
        )
        for threads in (32, 256):
            launch = Launch("memory", "global_atomic", ("out", "data", count, stride, 0), sms, threads)
            total = sms * threads * count
            yield Measurement(
                f"atomic.rate.stride_{stride}.{threads}_threads",
                "atomics per ns, all SMs",
                launch,
                gigabytes_per_second(total),
            )
    chain = 4 * sizes.rounds
    launch = Launch("memory", "remote_access", ("out", 0, chain, REMOTE_BYTES, 0, 1), 2, 32, REMOTE_BYTES, 2)
    yield Measurement("remote.latency.load", "cycles per dependent load", launch, cycles_per(chain))
    for mode, kind in ((1, "load"), (2, "store")):
        for threads in (32, 256, 1024):
            for both in (0, 1):
                arguments = ("out", mode, chain, REMOTE_BYTES, both, 1)
                launch = Launch("memory", "remote_access", arguments, 2, threads, REMOTE_BYTES, 2)
                moved = 16 * threads * chain
                yield Measurement(
                    f"remote.rate.{kind}.{threads}_threads.{'both' if both else 'one'}",
                    "bytes/cycle of an SM",
                    launch,
                    rate_of(moved, both),
                )
    for cluster, peers, both in ((4, 1, 1), (4, 3, 0), (4, 3, 1)):
        arguments = ("out", 2, chain, REMOTE_BYTES, both, peers)
        launch = Launch("memory", "remote_access", arguments, cluster, 256, REMOTE_BYTES, cluster)
        constant = f"remote.rate.store.256_threads.cluster_{cluster}.to_{peers}.{'all' if both else 'one'}"
        yield Measurement(constant, "bytes/cycle of an SM", launch, rate_of(16 * 256 * chain, both))
    for box in (1 << 10, 4 << 10, 16 << 10):
        for stages in (1, 4, 8):
            for both in (0, 1):
                launch = Launch("tma", "remote_bulk", ("out", 8 * sizes.rounds, box, stages, both), 2, 64, 2 * box, 2)
                yield Measurement(
                    f"remote.bulk.box_{box >> 10}K.{stages}_in_flight.{'both' if both else 'one'}",
                    "cycles per copy",
                    launch,
                    lambda records: median_span(records) / (8 * sizes.rounds),
                )
