"""The kernel's PTX with its synchronisation broken, one instruction at a time: the emulator must notice each under its
default schedules, by an error or by a wrong result. A check that has never failed is unproven."""

import functools
import itertools
import re

import pytest
import torch

import reference
import submission
from tests.support.configurations import EMULATED, label, set_chip, solver
from tests.support.mutants import replaced, run_mutated, without, without_one
from tests.support.slow import sampled

nogpu = pytest.importorskip("nogpu")
pytestmark = pytest.mark.skipif(not EMULATED, reason="mutates PTX in the emulator")

SCHEDULES = ("late", "random:1", "random:2")
# One cluster has more tiles than accumulators and more k-tiles than stages.
SIZES = {"m": (200, 130, 64), "n": (384, 128, 256), "k": (512, 64, 1280), "g": 3, "seed": 5}

WAIT = re.compile(r"(mbarrier\.try_wait\S+ done, \[\S+\], \S+;\s*@done bra DONE;\s*)bra WAIT;")
ARRIVE = r"mbarrier\.arrive\.shared::(?:cta|cluster)"
# Waits in the order of the PTX. Only pairs have MMA_END and RELAY_FULL; MMA_END needs many tiles, too.
LOAD_EMPTY, LOAD_END, MMA_FULL, MMA_ACCUMULATOR, MMA_END, RELAY_FULL = range(6)
EPILOGUE_ACCUMULATOR = -1
# Fences of tensor memory in the order of the PTX, from its allocation to its release.
GIVEN_BACK, FULL_STAGE, ACCUMULATOR = 1, 1, 2
TO_ACCUMULATOR, TO_EMPTY = 0, 1  # indices of commits in the order of the PTX


def no_wait(which):
    """Let the which-th mbarrier wait of the PTX return at once."""

    def mutate(ptx):
        match = list(WAIT.finditer(ptx))[which]
        return ptx[: match.start()] + match[1] + ptx[match.end() :]

    return mutate


MUTATIONS = {
    "load does not wait for an empty stage": no_wait(LOAD_EMPTY),
    "load does not wait for the last commits": no_wait(LOAD_END),
    "MMA does not wait for a full stage": no_wait(MMA_FULL),
    "MMA does not wait for a free accumulator": no_wait(MMA_ACCUMULATOR),
    "epilogue does not wait for the accumulator": no_wait(EPILOGUE_ACCUMULATOR),
    "full barrier expects 512 bytes too few": replaced(
        r"(mbarrier\.arrive\.expect_tx\S+ _, \[%r\d+\], )(%r\d+);", r"{.reg .b32 t; sub.s32 t, \2, 512; \1t;}"
    ),
    "full barrier expects 512 bytes too many": replaced(
        r"(mbarrier\.arrive\.expect_tx\S+ _, \[%r\d+\], )(%r\d+);", r"{.reg .b32 t; add.s32 t, \2, 512; \1t;}"
    ),
    "no commit to the accumulator's barrier": without_one(r"tcgen05\.commit", TO_ACCUMULATOR),
    "no commit to the empty barrier": without_one(r"tcgen05\.commit", TO_EMPTY),
    "no arrival on the empty accumulator": without(ARRIVE),
    "two arrivals on the empty accumulator": replaced(rf"({ARRIVE}[^;]*;)", r"\1 \1"),
    "tokens past M and rows past N are stored": replaced(r"@p st\.global", "st.global"),
    "threads of a pair of tokens do not exchange halves": replaced(r"(shfl\.sync\.bfly\.b32 other, \S+) 1,", r"\1 0,"),
    "odd threads take the low halves as well": replaced(
        r"selp\.b32(\s+%r\d+), 21520, 12918,", r"selp.b32\1, 21520, 21520,"
    ),
    "nobody waits for the TMEM's address": without(rf"bar\.sync\s+{submission.SETUP_BARRIER},"),
    "barriers' initialisation is not fenced": without(r"fence\.mbarrier_init"),
    "the accumulator is not waited for in registers": without(r"tcgen05\.wait::ld"),
    "no fence before the accumulator is given back": without_one(r"tcgen05\.fence::before_thread_sync", GIVEN_BACK),
    "no fence behind the wait for a full stage": without_one(r"tcgen05\.fence::after_thread_sync", FULL_STAGE),
    "no fence behind the wait for the accumulator": without_one(r"tcgen05\.fence::after_thread_sync", ACCUMULATOR),
    "TMEM is not given back": without(r"tcgen05\.dealloc"),
    "TMEM is not allocated": without(r"tcgen05\.alloc"),
    "scale factors are copied after the MMA that needs them": replaced(
        r"(?s)(\{[^{}]*tcgen05\.cp[^{}]*\})(.*?\{[^{}]*tcgen05\.mma[^;]*;\s*\})", r"\2\1"
    ),
}


COLUMN = r"(tcgen05\.cp[^\[;]*\[)([^\]]+)\]"
SF_COLUMN = r"(tcgen05\.mma[^;]*, \[)([^\]]+)(\], p;)"
COPIES = 3  # copies per 64 of K: scale factors of the tokens' first atom, the tokens' second, the weights'


def columns(ptx):
    """The TMEM columns of each copy of scale factors."""
    found = [match[2] for match in re.finditer(COLUMN, ptx)]
    assert len(found) == 4 * COPIES
    return found


def second_atom_over_the_first(ptx):
    found, counter = columns(ptx), itertools.count()

    def copy(match):
        index = next(counter)
        return f"{match[1]}{found[index - (index % COPIES == 1)]}]"

    return re.sub(COLUMN, copy, ptx)


def half_atom_ignored(ptx):
    starts = iter(columns(ptx)[::COPIES])
    return re.sub(SF_COLUMN, lambda match: f"{match[1]}{next(starts)}{match[3]}", ptx)


def second_atom_loaded_from_the_first(ptx):
    """Let the last of a stage's three bulk loads read the bytes of the one before it."""
    weights, first, second = re.finditer(r"cp\.async\.bulk\.shared::cluster\.global\S+ \[\S+\], \[(\S+)\]", ptx)
    return ptx[: second.start(1)] + first[1] + ptx[second.end(1) :]


def second_atom_always_loaded(ptx):
    """Drop the branch around the last of a stage's three bulk loads; the barrier does not expect its bytes."""
    *_, second = re.finditer(r"cp\.async\.bulk\.shared::cluster\.global", ptx)
    branch = list(re.finditer(r"@!?%p\d+ bra\s+\S+;", ptx[: second.start()]))[-1]
    return ptx[: branch.start()] + ptx[branch.end() :]


# Tiles of 192 tokens have one and a half atoms of scale factors.
ATOM_MUTATIONS = {
    "the second atom is copied over the first": second_atom_over_the_first,
    "an odd tile begins with its first atom's first half": half_atom_ignored,
    "the second atom is loaded from where the first is": second_atom_loaded_from_the_first,
    "a second atom past M is loaded": second_atom_always_loaded,
    "MMA does not wait for a full stage": no_wait(MMA_FULL),
    "epilogue does not wait for the accumulator": no_wait(EPILOGUE_ACCUMULATOR),
}


TEARDOWN = re.compile(rf"(bar\.sync\s+{submission.TEARDOWN_BARRIER},)")
CLUSTER_BARRIER = without(r"barrier\.cluster\.(?:wait|arrive)")


def without_the_first_barrier(ptx):
    """Let CTAs of a cluster begin without each other."""
    before, teardown, after = TEARDOWN.split(ptx)
    return CLUSTER_BARRIER(before) + teardown + after


def without_the_last_barrier(ptx):
    """Let CTAs of a cluster end without each other."""
    before, teardown, after = TEARDOWN.split(ptx)
    return before + teardown + CLUSTER_BARRIER(after)


PAIR_MUTATIONS = {
    "the leader hears of a full stage before it is full": no_wait(RELAY_FULL),
    "the leader hears twice of a full stage": lambda ptx: re.sub(rf"({ARRIVE}[^;]*;)", r"\1 \1", ptx, count=1),
    "the leader never hears of a full stage": without(ARRIVE, 1),
    "the other CTA does not learn that a stage is empty": replaced(
        r"(tcgen05\.commit\S+)\.multicast::cluster(\.b64 \[\S+\]), \S+;", r"\1\2;"
    ),
}


# Short tiles soon put one role far ahead of another.
SHORT_SIZES = {**SIZES, "k": (64, 64, 256)}
SHORT_SCHEDULES = tuple(f"random:{seed}" for seed in range(1, 7))


def given_back_early(ptx):
    """Let a warp release an accumulator after the first tokens' sums, before the last ones'."""
    first, *_, last = re.finditer(r"tcgen05\.wait::ld\.sync\.aligned;", ptx)
    arrival = re.compile(r"(?s)\s*tcgen05\.fence::before_thread_sync;.*?mbarrier\.arrive.*?\n\$L\w+:")
    given_back = arrival.search(ptx, last.end())
    before, between, after = ptx[: first.end()], ptx[first.end() : given_back.start()], ptx[given_back.end() :]
    return before + given_back[0] + between + after


SHORT_CASES = [
    ("an accumulator is given back after its first 32 tokens", given_back_early, (128, 1, 1, 1)),
    ("an accumulator is given back after its first 32 tokens", given_back_early, (128, 2, 1, 1)),
    ("nobody waits for the other CTA's barriers", without_the_first_barrier, (128, 2, 1, 1)),
    ("nobody waits for the neighbour's barriers", without_the_first_barrier, (128, 1, 1, 2)),
    (
        "nobody waits for the barriers to be initialised",
        without(rf"bar\.sync\s+{submission.START_BARRIER},"),
        (128, 1, 1, 1),
    ),
]


@functools.cache
def problem(*sizes):
    """An input of these sizes and the right results."""
    data = reference.generate_input(**dict(sizes))
    return data, reference.ref_kernel(data)


def outcomes(monkeypatch, mutate, shape, schedules=SCHEDULES, sizes=SIZES):
    """Yield None for each schedule with a right result, else the error or "wrong result"."""
    solve = solver(shape, sms=shape[1] * shape[3])
    run_mutated(monkeypatch, mutate)
    data, want = problem(*sizes.items())
    for schedule in schedules:
        set_chip(monkeypatch, [schedule])
        for _, _, c in data[0]:
            c.fill_(float("nan"))
        try:
            got = [c.clone() for c in solve(data)]
        except nogpu.EmulatorError as error:
            yield f"{error}"
        else:
            yield None if all(torch.equal(a, b) for a, b in zip(got, want)) else "wrong result"


def unchanged(ptx):
    return ptx.replace("// Generated", "// Also generated")


PAIRS = [(128, 2, 1, 1), (128, 2, 1, 2)]
SHAPES = [(128, 1, 1, 1), *PAIRS]
ATOM_SHAPES = [(192, 1, 1, 1), (192, 2, 2, 1)]
CASES = [(name, mutate, shape) for shape in SHAPES for name, mutate in MUTATIONS.items()]
CASES += [(name, mutate, shape) for shape in PAIRS for name, mutate in PAIR_MUTATIONS.items()]
CASES += [(name, mutate, shape) for shape in ATOM_SHAPES for name, mutate in ATOM_MUTATIONS.items()]


@pytest.mark.parametrize(
    ("name", "mutate", "shape"), sampled(CASES, 4, names=3), ids=[f"{name}, {label(shape)}" for name, _, shape in CASES]
)
def test_mutation_is_noticed(monkeypatch, name, mutate, shape):
    assert any(outcomes(monkeypatch, mutate, shape)), f"{name}: unnoticed under {', '.join(SCHEDULES)}"


@pytest.mark.parametrize("shape", sampled(SHAPES + ATOM_SHAPES, 3), ids=str)
def test_unmutated_kernel_is_silent(monkeypatch, shape):
    assert not any(outcomes(monkeypatch, unchanged, shape))


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_unmutated_kernel_is_silent_under_many_seeds(monkeypatch, shape):
    """Three tiles of one stage each exceed the number of accumulators."""
    sizes = {"m": (72,), "n": (3 * 128 * shape[1] * shape[3],), "k": (128,), "g": 1, "seed": 6}
    schedules = [f"random:{seed}" for seed in range(50)]
    assert not any(outcomes(monkeypatch, unchanged, shape, schedules, sizes))


@pytest.mark.parametrize(
    ("name", "mutate", "shape"),
    sampled(SHORT_CASES, 2, names=3),
    ids=[f"{name}, {shape}" for name, _, shape in SHORT_CASES],
)
def test_mutation_is_noticed_where_tiles_are_short(monkeypatch, name, mutate, shape):
    found = outcomes(monkeypatch, mutate, shape, SHORT_SCHEDULES, SHORT_SIZES)
    noticed = "touches tensor memory columns", "has not heard of the other CTA", "there is no mbarrier"
    assert any(problem == "wrong result" or any(what in (problem or "") for what in noticed) for problem in found)


@pytest.mark.parametrize(
    ("shape", "wait"),
    sampled([*((shape, MMA_END) for shape in PAIRS), ((192, 2, 2, 1), None), ((128, 1, 1, 2), LOAD_END)], 3, names=2),
    ids=str,
)
def test_nothing_arrives_in_a_cta_that_has_exited(monkeypatch, shape, wait):
    """Roles wait for all arrivals in their CTA before they end. The barrier at a cluster's end would often hide a
    missing wait, so it is left out: with the waits nothing goes wrong; without the leader's wait the other CTA's
    epilogue arrives in a CTA that has exited, and without the load role's a neighbour's commit. Where CTAs have one
    tile each, no epilogue frees an accumulator, and the leader has nothing to wait for."""
    how = shape, ("late", "eager", *(f"random:{seed}" for seed in range(4, 10))), SHORT_SIZES
    assert not any(outcomes(monkeypatch, without_the_last_barrier, *how))
    assert (wait is None) == submission.Plan(1, *shape).one_tile
    if wait is not None:
        found = outcomes(monkeypatch, lambda ptx: no_wait(wait)(without_the_last_barrier(ptx)), *how)
        problems = [problem for problem in found if problem]
        assert problems and all("has exited" in problem for problem in problems)
