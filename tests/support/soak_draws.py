"""Random legal problems of `submission.solve`.

A problem follows from a seed and its number alone. UNIT problems in a row launch the same kernel: a process that takes
whole units compiles few.
"""

import math
import random
from dataclasses import dataclass, field

from tests.support.soak_problems import MOST_ENTRIES, OPERANDS, Block, Call, Group, Kernel, Problem

UNIT = 10  # problems in a row that launch one kernel
TILE_K = 256
FEW_TOKENS = 16  # no tile of so few takes more
LEAST_WORK, LARGE_WORK, MOST_WORK = 1e4, 2e7, 1.5e9  # products of a call: its limit is drawn from between two of these
GEMV_ROWS, GEMV_ROWS_MANY = 600, 6000  # rows of a GEMV's calls, once for each GEMV_ROWS_K of K
GEMV_ROWS_K, GEMV_LONGEST = 1024, 32768
TRIES = 4  # attempts to lay a tensor over others
SMS = (2, 5, 8, 20, 148)
GEMV_UNITS, CHOSEN_UNITS = 6, 12  # units beside one unit for each configuration
COMPANIONS = 0.12  # share of calls that launch another kernel, the same kernel in all units

# Values of scales. Every sum is exact in fp32, in any order, as long as K is at most `longest_k`. The last two bring
# float16's infinity, and subnormal numbers of float16 and e4m3.
PALETTES = (0, 1, 2, 3), (0, 1), (1, 2), (0.25, 0.5, 1), (8, 16), (2**-9, 2**-8)
LARGEST_VALUE, VALUE_STEP = 6, 0.5  # values of e2m1


def longest_k(palette):
    """The largest K for which a sum of K products is at most 2**24 times the common step of all products."""
    step = min(scale for scale in palette if scale)
    return 2**24 * (VALUE_STEP * step) ** 2 // (LARGEST_VALUE * max(palette)) ** 2


def ceil_div(a, b):
    return -(-a // b)


def log_uniform(rng, low, high):
    """A random integer of low to high; every power of two is equally likely."""
    return min(high, int(math.exp(rng.uniform(math.log(low), math.log(high + 1)))))


# ---- Kernels of units ----


def draw_entries(rng):
    low, high = rng.choices(((1, 1), (2, 4), (5, 8), (9, 16), (17, MOST_ENTRIES)), (6, 8, 4, 3, 1))[0]
    return rng.randint(low, high)


def shape_of(submission, launch):
    """The configuration of a launch."""
    return tuple(getattr(launch.schedule.plan, name) for name in submission.Configuration._fields)


def kernel_of(submission, seed, unit):
    """The unit's kernel: every configuration has its turn, in a new order in every round."""
    kinds = [
        (products, shape) for products in submission.PRODUCTS for shape in submission.legal_configurations(products)
    ]
    kinds += [(0, None)] * GEMV_UNITS + [(products, None) for products in (1, 1, 2)] * (CHOSEN_UNITS // 3)
    turn, place = divmod(unit, len(kinds))
    random.Random(f"{seed} turn {turn}").shuffle(kinds)
    rng, (products, shape) = random.Random(f"{seed} unit {unit}"), kinds[place]
    entries = draw_entries(rng)
    if products == 0:
        return Kernel(0, entries, tuple(rng.choice(submission.legal_configurations())))
    if shape is None:
        sizes, sms = draw_sizes(rng, products, (64, 1, 1, 1), entries, draw_work(rng)), rng.choice(SMS)
        (launch,) = submission.configure(sizes, sms, rng.random() < 0.5, products)
        return Kernel(products, entries, shape_of(submission, launch), chosen=True)
    return Kernel(products, entries, tuple(shape))


# ---- Sizes ----


def draw_work(rng):
    """A limit for the products of a call."""
    low, high = (LARGE_WORK, MOST_WORK) if rng.random() < 0.06 else (LEAST_WORK, LARGE_WORK)
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def draw_size(rng, shape, limit):
    """Sizes (M, N, K) of a group, at most `limit` products if the least sizes allow: any, or near a tile's edge."""
    tokens, pair, _, _ = shape
    unit = {"m": 1, "n": 8, "k": 64}
    size = dict(unit)
    edge = {"m": tokens, "n": 128 * pair, "k": TILE_K}
    most = {"m": FEW_TOKENS if tokens == FEW_TOKENS else 600, "n": 1024, "k": 4096}
    for name in rng.sample(sorted(unit), 3):
        step, room = unit[name], limit * size[name] // math.prod(size.values())
        anything = step * log_uniform(rng, 1, most[name] // step)
        value = rng.choice((anything, edge[name] * rng.randint(1, 3) + step * rng.randint(-1, 1)))
        if value > room:
            value = step * log_uniform(rng, 1, max(1, int(room) // step))
        if tokens == FEW_TOKENS and name == "m":
            value = min(value, FEW_TOKENS)
        size = {**size, name: max(step, value)}
    return tuple(size[name] for name in "mnk")


def draw_sizes(rng, products, shape, entries, work, grouped=False):
    """Sizes (M, N, K, L) of all groups, of which `entries` batch entries have tokens; grouped: of several groups."""
    batches, left = [], entries
    while left:
        batches.append(min(left, rng.choice((1, 1, 1, 2, 3))) if grouped else left)
        left -= batches[-1]
    limit = work / entries / products
    draws = rng.choice((1, 1, 8) if work < LARGE_WORK else (8, 16))
    sizes = [(*max((draw_size(rng, shape, limit) for _ in range(draws)), key=math.prod), batch) for batch in batches]
    for _ in range(rng.choice((0, 0, 0, 1, 3)) if grouped else 0):
        empty = 0, 8 * rng.randint(1, 64), 64 * rng.randint(1, 32), rng.randint(1, 3)
        sizes.insert(rng.randint(0, len(sizes)), empty)
    return tuple(sizes)


def draw_gemv_sizes(rng, batches, rows):
    """Sizes (M, rows of b, K, L). rows: a limit for all entries together, counted once for each GEMV_ROWS_K of K."""
    k = 64 * log_uniform(rng, 1, GEMV_LONGEST // 64)
    eighths = log_uniform(rng, 1, rows) // (8 * ceil_div(k, GEMV_ROWS_K) * batches)
    b_rows = rng.choice((1, 128, rng.randint(1, 300)))
    if b_rows * k * batches > 2**23:
        b_rows = 1
    return ((8 * max(1, eighths), b_rows, k, batches),)


# ---- Places in memory ----


@dataclass
class Memory:
    """Blocks at multiples of 16 bytes: each a storage of its own, each within a storage, or all in one storage."""

    rng: random.Random
    layout: str
    storages: list[int] = field(default_factory=list)

    def new(self, size):
        if self.layout == "own storages":
            self.storages.append(size)
            return Block(len(self.storages) - 1, 0, size)
        if self.layout == "slices" or not self.storages:
            self.storages.append(0)
        gap = 16 * self.rng.choice((1, 2, 3, self.rng.randint(4, 40)))
        if self.layout == "one storage" and self.storages[-1]:
            gap = self.rng.choice((0, 0, gap))
        start = self.storages[-1] + gap
        block = Block(len(self.storages) - 1, start, size)
        self.grow(block, 16 * self.rng.randint(1, 8) if self.layout == "slices" else 0)
        return block

    def grow(self, block, more=0):
        """Make the block's storage long enough."""
        end = 16 * ceil_div(block.offset + block.size + more, 16)
        self.storages[block.storage] = max(self.storages[block.storage], end)


LAYOUTS = "own storages", "slices", "one storage"


@dataclass
class Places:
    """Places of the tensors of successive calls, some at places of earlier calls, as far as promises allow it."""

    rng: random.Random
    memory: Memory
    operands: list[Block] = field(default_factory=list)  # operands of all calls so far, without scales
    read: list[Block] = field(default_factory=list)  # blocks that calls have read
    written: list[Block] = field(default_factory=list)
    inexact: list[Block] = field(default_factory=list)  # outputs of dual GEMMs, whose last bits are open

    def operand(self, size, ready):
        """A block of e2m1 values, which any byte has: new, or from a place in an earlier operand or output on."""
        kind = self.rng.random()
        if kind < 0.2 and not ready:
            block = self.over(self.written, size, self.inexact)
        else:
            block = self.over(self.operands, size, self.written if ready else self.inexact) if kind < 0.35 else None
        self.operands.append(block or self.memory.new(size))
        return self.operands[-1]

    def output(self, size, free, of_call):
        """A block for c beside the call's other blocks: new, or from a place in an earlier call's block on."""
        kind, block = self.rng.random(), None
        if not free and kind < 0.6:
            block = self.over(self.written if kind < 0.4 else self.read, size, of_call)
        return block or self.memory.new(size)

    def over(self, blocks, size, forbidden):
        """A block that begins in one of `blocks` and overlaps none of the forbidden; None if none is found."""
        for block in self.rng.sample(blocks, min(TRIES, len(blocks))):
            start = 16 * self.rng.choice((0, self.rng.randint(0, max(0, block.size - 1) // 16)))
            found = Block(block.storage, block.offset + start, size)
            if not any(map(found.overlaps, forbidden)):
                self.memory.grow(found)
                return found
        return None

    def group(self, products, sizes, ready):
        """The blocks of a group's operands and scales, by name."""
        m, n, k, batch = sizes
        blocks = {}
        for name in OPERANDS[products]:
            blocks[name] = self.operand((m if name == "a" else n) * k // 2 * batch, ready)
        for name in OPERANDS[products]:
            rows = m if name == "a" else n
            blocks[f"sf{name}"] = self.memory.new(128 * ceil_div(rows, 128) * k // 16 * batch)
        return blocks

    def call(self, products, sizes, ready, free):
        """The call's groups with their blocks."""
        every = [self.group(products, of_group, ready) for of_group in sizes]
        of_call = [block for blocks in every for block in blocks.values()]
        read = list(of_call)
        for blocks, (m, n, _, batch) in zip(every, sizes):
            blocks["c"] = self.output(2 * m * (n if products else 1) * batch, free, of_call)
            of_call.append(blocks["c"])
        outputs = [blocks["c"] for blocks in every]
        self.read += read
        self.written += outputs
        self.inexact += outputs if products == 2 else []
        return tuple(Group(*of_group, blocks) for of_group, blocks in zip(sizes, every))


# ---- Problems ----

CALLS = {"large": (6, 3, 0, 0, 0), "middle": (6, 4, 1, 0, 0), "small": (8, 6, 3, 2, 1)}  # weights of 1, 2, 3, 4, 6
COMPANION_GEMM, COMPANION_GEMV = Kernel(1, 1, (64, 1, 2, 1)), Kernel(0, 1, (16, 1, 2, 1))


def draw_call(submission, rng, kernel, places, kind, work):
    """A call that launches this kernel, or occasionally none: it then has no tokens."""
    ready, free = rng.random() < 0.6, rng.random() < 0.6
    configurations = None
    _, pair, _, neighbours = kernel.shape
    sms = rng.choice([sms for sms in SMS if sms >= pair * neighbours])
    if kernel.products == 0:
        rows = GEMV_ROWS_MANY if rng.random() < 0.05 else GEMV_ROWS // (4 if kernel is COMPANION_GEMV else 1)
        sizes = draw_gemv_sizes(rng, kernel.entries, rows)
        configurations = (submission.Configuration(*kernel.shape),)
    else:
        for _ in range(40 if kernel.chosen else rng.choice((0, 3))):
            sizes = draw_sizes(rng, kernel.products, kernel.shape, kernel.entries, work, kind == "group_gemm")
            (launch,) = submission.configure(sizes, sms, ready, kernel.products)
            if shape_of(submission, launch) == kernel.shape:
                break
        else:
            sizes = draw_sizes(rng, kernel.products, kernel.shape, kernel.entries, work, kind == "group_gemm")
            configurations = (submission.Configuration(*kernel.shape),)
        if rng.random() < 0.01:
            sizes = tuple((0, *rest) for _, *rest in sizes)
    longest = max(k for _, _, k, _ in sizes)
    palette = rng.choice([palette for palette in PALETTES if longest <= longest_k(palette)])
    groups = places.call(kernel.products, sizes, ready, free)
    sms = None if sms == max(SMS) and rng.random() < 0.5 else sms
    return Call(kind, kernel.products, groups, configurations, sms, ready, free, palette)


def draw(submission, seed, number):
    """The problem with this number. submission: the module, for its configurations and their choice."""
    kernel = kernel_of(submission, seed, number // UNIT)
    rng = random.Random(f"{seed} problem {number}")
    kind = {0: "gemv", 1: rng.choice(("group_gemm", "group_gemm", "gemm")), 2: "dual_gemm"}[kernel.products]
    layout, work = rng.choice(LAYOUTS), draw_work(rng)
    size = "large" if work > LARGE_WORK or kernel.entries > 16 else "middle" if kernel.entries > 8 else "small"
    places = Places(rng, Memory(rng, layout))
    calls = []
    for _ in range(rng.choices((1, 2, 3, 4, 6), CALLS[size])[0]):
        if rng.random() < COMPANIONS and not kernel.chosen:
            other = COMPANION_GEMM if kernel.products == 0 else COMPANION_GEMV
            calls.append(draw_call(submission, rng, other, places, "gemm" if other.products else "gemv", 2e6))
        else:
            calls.append(draw_call(submission, rng, kernel, places, kind, work))
    cluster = kernel.shape[1] * kernel.shape[3]
    chip = rng.choice([sms for sms in SMS if sms >= cluster])
    names = [rng.choice(("late", "eager", f"random:{rng.randrange(10**6)}", f"random:{rng.randrange(10**6)}"))]
    for other in ("late", f"random:{rng.randrange(10**6)}"):
        if rng.random() < (0.2 if size == "small" else 0.05) and other not in names:
            names.append(other)
    storages = tuple(places.memory.storages)
    return Problem(seed, number, kind, kernel, tuple(calls), storages, layout, chip, tuple(names))
