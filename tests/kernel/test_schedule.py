"""The static tile schedule, simulated on the CPU: every tile once, in balance, shared weights for neighbours."""

import itertools
import operator
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import submission
from harness.plan_report import requested
from nogpu.clock.chip import profile
from submission import (
    HOPPER_SMS,
    IN_TURN_LOSS,
    MAX_GROUPS,
    PRODUCTS,
    WEIGHT_TILE,
    Configuration,
    Cta,
    Plan,
    Schedule,
    candidates,
    ceil_div,
    configure,
    legal_configurations,
)
from tests.support.configurations import EVERY
from tests.support.tiles import tiles_of

SIZES = st.lists(
    st.tuples(st.integers(1, 600), st.integers(1, 128).map(lambda n: 8 * n), st.integers(1, 32).map(lambda k: 64 * k)),
    min_size=1,
    max_size=16,
).map(tuple)
FEW = SIZES.map(lambda sizes: tuple((1 + m % 16, n, k) for m, n, k in sizes))
SCHEDULES = st.builds(
    lambda sizes, shape, sms: Schedule(Plan(len(sizes), *shape[0], shape[1]), sizes, sms),
    SIZES,
    st.sampled_from(EVERY),
    st.sampled_from([2, 5, 8, 132, 148]),
).filter(lambda schedule: schedule.plan.cluster_ctas <= schedule.sm_count)


@settings(max_examples=200, deadline=None)
@given(SCHEDULES)
def test_tiles_of_ctas(schedule):
    """Every tile is stored once; CTAs have the same number but for one; K-tiles, bytes and cycles of tiles."""
    plan, ran = schedule.plan, [tile for cta in range(schedule.ctas) for tile in tiles_of(schedule, cta)]
    wanted = [
        (group, weight_row, token)
        for group, (m, n, _) in enumerate(schedule.sizes)
        for weight_row in range(0, n, plan.rows)
        for token in range(0, m, plan.token_tile)
    ]
    assert sorted(tile for tile in ran if tile[1] < schedule.sizes[tile[0]][1]) == wanted
    counted = 0
    for m, n, _ in schedule.sizes:
        whole = ceil_div(m, plan.token_tile) * ceil_div(n, WEIGHT_TILE * plan.cta_group) * plan.products
        counted += plan.cta_group * (whole + whole % plan.neighbours)
    assert len(ran) == counted
    counts = [len(tiles_of(schedule, cta)) for cta in range(schedule.ctas)]
    plan = schedule.plan
    waves = ceil_div(schedule.tiles, schedule.slots * plan.neighbours)
    if plan.ctas_per_sm == 2:
        assert set(counts) == {1} and schedule.ctas == schedule.tiles * plan.cta_group
    else:
        assert schedule.ctas <= schedule.sm_count and min(counts) >= 1
        assert max(counts) == waves and max(counts) - min(counts) <= 1
    plan = schedule.plan
    for group, (m, _, k) in enumerate(schedule.sizes):
        found = [schedule.work(group, block) for block in range(ceil_div(m, plan.token_tile))]
        assert sum(tokens for *_, tokens in found) == m and {k_tiles for k_tiles, *_ in found} == {k / 256}
        for k_tiles, loaded, cycles, count, tokens in found:
            assert count == 1 and loaded / k_tiles <= plan.stage_bytes
            assert loaded / k_tiles == plan.stage_bytes or ceil_div(tokens, 128) < plan.atoms
            # An MMA of 64 of K takes half a cycle for each of its columns, its copies of scale factors come to that.
            assert cycles >= k_tiles * 4 * min(plan.token_tile, ceil_div(tokens, 64) * 64) / 2


@settings(max_examples=100, deadline=None)
@given(SCHEDULES)
def test_the_kernel_s_arithmetic_is_the_schedule_s(schedule):
    """The kernel's functions on Python's integers: the tiles of every CTA, in their order, and whether neighbours load
    weights for each other, which they do if both have the same rows."""
    plan, host = schedule.plan, SimpleNamespace(select_=lambda chosen, a, b: a if chosen else b, min=min)
    *sizes, first_tiles = [*zip(*schedule.sizes), schedule.first_tiles]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submission, "cutlass", host)
        patch.setattr(submission, "divide", lambda a, b: a // b)
        patch.setattr(submission, "remainder", lambda a, b: a % b)
        for block in range(0, schedule.ctas, plan.cluster_ctas):
            cluster, of_cluster = block // plan.cluster_ctas, []
            for place in range(plan.cluster_ctas):
                state = cluster, schedule.clusters, *divmod(place, plan.cta_group), 0, schedule.tiles
                cta = Cta(plan, 0, *state, *sizes, first_tiles)
                numbers = range(cta.first_tile, cta.tiles, cta.tile_step)
                found = [(cta.of_group(range(plan.groups), tile), *cta.position(tile)) for tile in numbers]
                assert [tile[:3] for tile in found] == tiles_of(schedule, block + place)
                assert [m for *_, m, _ in found] == [schedule.sizes[group][0] for group, *_ in found]
                of_cluster.append([(group, row, shared) for group, row, *_, shared in found])
            if plan.neighbours == 2:
                for rank in range(plan.cta_group):
                    for ours, theirs in zip(of_cluster[rank], of_cluster[plan.cta_group + rank], strict=True):
                        assert ours[0] == theirs[0], "neighbours' tiles are of one group, and so of one K"
                        assert ours[2] == theirs[2] == (ours[1] == theirs[1])


@pytest.mark.parametrize(
    ("shape", "sms", "slots"),
    [
        *(((128, 1, 1, 1), 148, 148), ((128, 2, 1, 1), 148, 74), ((128, 1, 1, 2), 148, 74), ((128, 2, 2, 1), 148, 148)),
        *(((128, 2, 1, 2), 148, 32), ((128, 2, 1, 2), 132, 28), ((128, 2, 1, 2), 160, 35), ((128, 2, 1, 2), 4, 1)),
    ],
)
def test_clusters_of_four_leave_sms_over(shape, sms, slots):
    assert Schedule(Plan(1, *shape), ((64, 128, 256),), sms).slots == slots


@settings(max_examples=100, deadline=None)
@given(SCHEDULES)
def test_rows_follow_and_requested_bytes_add_up(schedule):
    """Successive tiles share weights in L2, and neighbours load them for each other; bytes add up over tiles."""
    plan, order = schedule.plan, []
    for wave in range(ceil_div(schedule.tiles, schedule.slots)):
        for cta in range(0, schedule.ctas, plan.cta_group):
            work = tiles_of(schedule, cta)
            if wave < len(work):
                order.append(work[wave][:2])
    starts = [tile for tile, before in zip(order, [None, *order]) if tile != before]
    assert len(starts) == len(set(starts))
    assert walk(schedule) == requested(schedule)


BENCHMARKS = [
    (tuple((m, 4096, 7168) for m in (80, 176, 128, 72, 64, 248, 96, 160)), (128, 2, 1, 2), 128, 3),
    (tuple((m, 7168, 2048) for m in (40, 76, 168, 72, 164, 148, 196, 160)), (192, 2, 1, 2), 128, 4),
    (((192, 3072, 4096), (320, 3072, 4096)), (128, 2, 1, 2), 120, 1),
    (((128, 4096, 1536), (384, 4096, 1536)), (128, 2, 1, 2), 128, 1),
]


@pytest.mark.parametrize(("sizes", "shape", "ctas", "waves"), BENCHMARKS)
def test_configuration_of_the_benchmark_cases(sizes, shape, ctas, waves):
    """The choice on 148 SMs; the schedule searches for the tile instead of looking it up."""
    (launch,) = configure(tuple((*size, 1) for size in sizes), 148)
    schedule = launch.schedule
    plan = schedule.plan
    assert (plan.token_tile, plan.cta_group, plan.ctas_per_sm, plan.neighbours) == shape
    assert (schedule.ctas, ceil_div(schedule.tiles, schedule.slots * plan.neighbours)) == (ctas, waves)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(SIZES, st.integers(1, 3)).map(lambda p: (p[0][0][0] - 1, *p[0][0][1:], p[1])), max_size=70),
    st.sampled_from(PRODUCTS),
)
def test_launches_hold_every_batch_entry_with_tokens_once_by_descending_m(problems, products):
    """An entry of a batch is a group, whose tensors begin at the entry."""
    launches = configure(tuple(problems), 148, products=products)
    order = [group for launch in launches for group in launch.groups]
    assert sorted(order) == [group for group, (m, _, _, batch) in enumerate(problems) for _ in range(m and batch)]
    ms = [problems[group][0] for group in order]
    assert ms == sorted(ms, reverse=True)
    count, seen = 2 * products + 3, [0] * len(problems)
    bases = [tensor << 40 for tensor in range(count * len(problems))]
    for schedule, groups, words, tensors, offsets in launches:
        assert schedule.sizes == tuple(problems[group][:3] for group in groups) and schedule.plan.products == products
        assert len(groups) <= MAX_GROUPS
        assert list(words[:3]) == [0, schedule.tiles, schedule.ctas]
        assert list(words[3:]) == [
            word for size, first in zip(schedule.sizes, schedule.first_tiles) for word in (*size, first)
        ]
        wanted = []
        for group in groups:
            m, n, k, _ = problems[group]
            pitches = [n * k // 2] * products + [m * k // 2, 2 * m * n]
            pitches += [ceil_div(n, 128) * 128 * k // 16] * products + [ceil_div(m, 128) * 128 * k // 16]
            wanted += [bases[count * group + i] + seen[group] * pitch for i, pitch in enumerate(pitches)]
            seen[group] += 1
        assert list(map(operator.add, tensors(bases), offsets or itertools.repeat(0))) == wanted


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 40), st.integers(1, 130), st.sampled_from([1, 148]))
def test_a_gemv_is_a_gemm_of_one_token(eighths, b_rows, k_steps, batch, sms):
    """A GEMV's a are the weights and its b the tokens, of which only the first counts: a launch's groups have M = 1."""
    m, k, entry = 8 * eighths, 64 * k_steps, 0
    launches = configure(((m, b_rows, k, batch),), sms, products=0)
    assert [group for launch in launches for group in launch.groups] == [0] * batch
    for schedule, groups, words, tensors, offsets in launches:
        assert schedule.plan.products == 1 and schedule.sizes == ((1, m, k),) * len(groups)
        assert list(words[3:]) == [word for first in schedule.first_tiles[:-1] for word in (1, m, k, first)]
        assert len(groups) <= MAX_GROUPS and tensors(range(5)) == (0, 1, 2, 3, 4) * len(groups)
        pitches = m * k // 2, b_rows * k // 2, 2 * m, *(ceil_div(rows, 128) * 128 * k // 16 for rows in (m, b_rows))
        expected = [(entry + i) * pitch for i in range(len(groups)) for pitch in pitches]
        assert (offsets or [0] * len(expected)) == expected
        entry += len(groups)


# 176 and 252 tiles on 32 clusters of two: three waves and four, the last of them part empty.
BALANCE = (1.1, 1.02, 1.0, 1.0)


@pytest.mark.parametrize(("sizes", "balance"), list(zip([case[0] for case in BENCHMARKS], BALANCE)))
def test_ctas_load_about_the_same(sizes, balance):
    """Bytes of the busiest CTA over the mean: the others wait for a wave's last CTA."""
    (launch,) = configure(tuple((*size, 1) for size in sizes), 148)
    schedule, plan = launch.schedule, launch.schedule.plan

    of_tiles = [[schedule.sizes[group][2] for group, *_ in tiles_of(schedule, cta)] for cta in range(schedule.ctas)]
    loads = [sum(ks) * plan.stage_bytes for ks in of_tiles]
    assert max(loads) <= balance * sum(loads) / len(loads)


@settings(max_examples=200, deadline=None)
@given(SCHEDULES.filter(lambda schedule: not schedule.plan.one_tile))
def test_in_turn_a_schedule_is_judged_by_the_tiles_of_its_first_cta(schedule):
    """The first CTA has the most tiles; before them, `cost` asks for every token block of every group."""
    asked, work = [], Schedule.work
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schedule, "work", lambda self, *tile: asked.append(tile) or work(self, *tile))
        schedule.cost()
    blocks = [
        (g, i) for g, (m, _, _) in enumerate(schedule.sizes) for i in range(ceil_div(m, schedule.plan.token_tile))
    ]
    of_first = [(group, token // schedule.plan.token_tile) for group, _, token in tiles_of(schedule, 0)]
    assert asked == blocks + of_first


@settings(max_examples=50, deadline=None)
@given(SIZES | FEW, st.sampled_from([1, 2, 5, 132, 148]), st.sampled_from(PRODUCTS))
def test_every_configuration_that_fits_is_a_candidate(sizes, sms, products):
    """Candidates are the configurations whose clusters fit the chip; tiles of 16 tokens only if no group has more."""
    found, few = candidates(sizes, sms, True, products), max(m for m, _, _ in sizes) <= 16
    legal = legal_configurations(products)
    possible = [shape for shape in legal if shape[1] * shape[3] <= sms and (few or shape.token_tile > 16)]
    plans = [schedule.plan for schedule in found]
    assert sorted((p.token_tile, p.cta_group, p.ctas_per_sm, p.neighbours) for p in plans) == possible


@pytest.mark.parametrize("chip", ["h200", "b200"])
def test_chips_are_told_apart_by_their_sms(chip):
    assert (profile(chip).constants["sms"] > HOPPER_SMS) == (chip == "b200")


@settings(max_examples=50, deadline=None)
@given(SIZES, st.sampled_from([2, 148]), st.booleans(), st.sampled_from(PRODUCTS))
def test_candidates_come_in_the_order_of_their_cost(sizes, sms, overlapping, products):
    """Overlapping candidates that would cost far more in turn come last."""
    sizes = sorted(sizes, key=lambda size: (-size[0], -size[2]))
    schedules = candidates(tuple(sizes), sms, overlapping, products)
    most = IN_TURN_LOSS * min(schedule.cost() for schedule in schedules)
    found = [
        (schedule.cost() > most, schedule.cost(True)) if overlapping else schedule.cost() for schedule in schedules
    ]
    assert found == sorted(found)
    (launch,) = configure(tuple((*size, 1) for size in sizes), sms, overlapping, products)
    assert launch.schedule.cost() <= most and launch.schedule.cost(overlapping) == schedules[0].cost(overlapping)


@pytest.mark.parametrize("overlapping", [False, True])
def test_ties_go_to_the_first_configuration(monkeypatch, overlapping):
    monkeypatch.setattr(Schedule, "cost", lambda self, overlapping=False: 1.0)
    found = [schedule.plan for schedule in candidates(((16, 128, 64),), 148, overlapping)]
    assert found == [Plan(1, *each) for each in legal_configurations()]


def test_half_a_pair_without_rows_and_forced_configurations():
    """A pair would keep two SMs busy for N of 128, which is one CTA's weight rows."""
    assert candidates(((64, 128, 7168),), 148, overlapping=True)[0].plan.cta_group == 1
    sizes, forced = ((64, 128, 7168),), (Configuration(192, 1, 2, 1), Configuration(128, 2, 1, 2))
    found = candidates(sizes, 148, configurations=forced)
    assert {schedule.plan for schedule in found} == {Plan(1, *shape) for shape in forced}
    for shape in forced:
        (launch,) = configure(((64, 128, 7168, 1),), 148, configurations=(shape,))
        assert launch.schedule.plan == Plan(1, *shape)
    (launch,) = configure(((64, 128, 7168, 1),), 148, configurations=forced)
    assert launch.schedule == found[0]


def walk(schedule):
    """Requested bytes by operand, over every CTA's tiles; neighbours of the same rows load half each."""
    plan = schedule.plan
    total = dict.fromkeys(requested(schedule), 0)
    for cta in range(schedule.ctas):
        rank, neighbour = cta % plan.cta_group, cta // plan.cta_group % plan.neighbours
        other = cta + (1 - 2 * neighbour) * plan.cta_group if plan.neighbours == 2 else cta
        for (group, weight_row, token), theirs in zip(tiles_of(schedule, cta), tiles_of(schedule, other), strict=True):
            m, n, k = schedule.sizes[group]
            pieces = plan.neighbours if (group, weight_row) == theirs[:2] else 1
            half = plan.rows // pieces
            first = weight_row + (neighbour * half if pieces == 2 else 0)
            columns = min(plan.token_tile, -(-(m - token) // 64) * 64)  # N of the MMA, half of it per CTA of a pair
            mine = token + rank * columns // plan.cta_group
            row_bytes, sf_bytes = k // 2, 8 * k
            total["weights"] += plan.products * max(0, min(half, n - first)) * row_bytes
            total["weight SF"] += plan.products * sf_bytes // pieces
            total["tokens"] += max(0, min(plan.token_rows, m - mine)) * row_bytes
            total["token SF"] += len({row // 128 for row in range(token, min(token + plan.token_tile, m))}) * sf_bytes
    return total
