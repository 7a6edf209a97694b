"""The static tile schedule, simulated on the CPU: every tile exactly once, in balance, neighbours share weights."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.clock.chip import profile
from harness.plan_report import requested
from submission import (
    FILL_RATES,
    HOPPER_SMS,
    IN_TURN,
    OVERLAPPING,
    PRODUCTS,
    WEIGHT_TILE,
    Configuration,
    Plan,
    Schedule,
    candidates,
    ceil_div,
    configure,
    max_groups,
    shapes,
)
from tests.support.configurations import EVERY
from tests.support.tiles import tiles_of

SIZES = st.lists(
    st.tuples(st.integers(1, 600), st.integers(1, 128).map(lambda n: 8 * n), st.integers(1, 32).map(lambda k: 64 * k)),
    min_size=1,
    max_size=16,
).map(tuple)
SCHEDULES = st.builds(
    lambda sizes, shape, sms: Schedule(Plan(len(sizes), *shape[0], shape[1]), sizes, sms),
    SIZES.map(lambda sizes: tuple((m, n, k + 192 * 4) for m, n, k in sizes)),  # a k-tile for each of four split-K ranks
    st.sampled_from(EVERY),
    st.sampled_from([2, 5, 8, 132, 148]),
).filter(lambda schedule: schedule.plan.cluster_ctas <= schedule.sm_count)


@settings(max_examples=200, deadline=None)
@given(SCHEDULES)
def test_every_tile_runs_exactly_once_in_every_split_k_rank(schedule):
    ran = [tile for cta in range(schedule.ctas) for tile in tiles_of(schedule, cta)]
    weight_rows = WEIGHT_TILE * schedule.plan.cta_group
    wanted = [
        (group, weight_row, token)
        for group, (m, n, _) in enumerate(schedule.sizes)
        for weight_row in range(0, ceil_div(n, weight_rows) * weight_rows, WEIGHT_TILE)
        for token in range(0, m, schedule.plan.token_tile)
    ]
    assert sorted(ran) == sorted(wanted * schedule.plan.k_split)
    plan = schedule.plan
    for cta in range(schedule.ctas):  # all split-K ranks of a cluster have the same tiles
        first = cta // plan.cluster_ctas * plan.cluster_ctas + cta % plan.cta_group
        assert tiles_of(schedule, cta) == tiles_of(schedule, first)


@settings(max_examples=200, deadline=None)
@given(SCHEDULES)
def test_every_token_is_stored_exactly_once_by_every_weight_tile(schedule):
    """Split-K ranks divide a tile's tokens among them: the twin of the epilogue's bounds."""
    plan, stored = schedule.plan, {}
    for cta in range(schedule.ctas):
        split_rank = cta % plan.cluster_ctas // plan.cta_group
        for group, weight_row, token in tiles_of(schedule, cta):
            begin = token + split_rank * (plan.token_tile // plan.k_split)
            tokens = range(begin, min(begin + plan.token_tile // plan.k_split, schedule.sizes[group][0]))
            stored.setdefault((group, weight_row), []).extend(tokens)
    assert {key[0] for key in stored} == set(range(len(schedule.sizes)))
    assert all(sorted(tokens) == list(range(schedule.sizes[group][0])) for (group, _), tokens in stored.items())


@settings(max_examples=200, deadline=None)
@given(SCHEDULES)
def test_no_cta_is_idle_and_none_runs_more_than_the_waves(schedule):
    counts = [len(tiles_of(schedule, cta)) for cta in range(schedule.ctas)]
    plan = schedule.plan
    slots = plan.ctas_per_sm * schedule.sm_count // (plan.cta_group * plan.k_split)
    if plan.ctas_per_sm == 2 or plan.k_split > 1:
        assert set(counts) == {1} and schedule.ctas == schedule.tiles * plan.cta_group * plan.k_split
    else:
        assert schedule.ctas <= schedule.sm_count and min(counts) >= 1
        assert max(counts) == ceil_div(schedule.tiles, schedule.slots) and max(counts) - min(counts) <= 1
    assert ceil_div(schedule.tiles, schedule.slots) == ceil_div(schedule.tiles, slots)


@settings(max_examples=100, deadline=None)
@given(SCHEDULES)
def test_token_blocks_of_one_weight_tile_are_neighbours(schedule):
    """Tiles that share weights have consecutive numbers, so they run side by side and share them in L2."""
    order = []
    for wave in range(ceil_div(schedule.tiles, schedule.slots)):
        for cta in range(0, schedule.ctas, schedule.plan.cluster_ctas):
            work = tiles_of(schedule, cta)
            if wave < len(work):
                order.append(work[wave][:2])
    starts = [tile for tile, before in zip(order, [None, *order]) if tile != before]
    assert len(starts) == len(set(starts))


BENCHMARKS = [
    (tuple((m, 4096, 7168) for m in (80, 176, 128, 72, 64, 248, 96, 160)), (192, 2, 1, 1), 148, 2),
    (tuple((m, 7168, 2048) for m in (40, 76, 168, 72, 164, 148, 196, 160)), (192, 2, 1, 1), 148, 4),
    (((192, 3072, 4096), (320, 3072, 4096)), (128, 1, 1, 1), 120, 1),
    (((128, 4096, 1536), (384, 4096, 1536)), (128, 1, 1, 1), 128, 1),
]


@pytest.mark.parametrize(("sizes", "shape", "ctas", "waves"), BENCHMARKS)
def test_configuration_of_the_benchmark_cases(sizes, shape, ctas, waves):
    """The choice on 148 SMs; the tile is found, not looked up."""
    (launch,) = configure(tuple((*size, 1) for size in sizes), 148)
    schedule = launch.schedule
    plan = schedule.plan
    assert (plan.token_tile, plan.cta_group, plan.ctas_per_sm, plan.k_split) == shape
    assert (schedule.ctas, ceil_div(schedule.tiles, schedule.slots)) == (ctas, waves)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(SIZES, st.integers(1, 3)).map(lambda p: (p[0][0][0] - 1, *p[0][0][1:], p[1])), max_size=70),
    st.sampled_from(PRODUCTS),
)
def test_launches_hold_every_batch_entry_with_tokens_once_by_descending_m(problems, products):
    """An entry of a batch is a group, whose tensors begin where the entry does."""
    launches = configure(tuple(problems), 148, products=products)
    order = [group for launch in launches for group in launch.groups]
    assert sorted(order) == [group for group, (m, _, _, batch) in enumerate(problems) for _ in range(m and batch)]
    ms = [problems[group][0] for group in order]
    assert ms == sorted(ms, reverse=True)
    count, seen = 2 * products + 3, [0] * len(problems)
    bases = [tensor << 40 for tensor in range(count * len(problems))]
    for schedule, groups, words, places in launches:
        assert schedule.sizes == tuple(problems[group][:3] for group in groups) and schedule.plan.products == products
        assert len(groups) <= max_groups(products)
        assert list(words[:2]) == [schedule.tiles, schedule.ctas]
        assert list(words[2:]) == [
            word for size, first in zip(schedule.sizes, schedule.first_tiles) for word in (*size, first)
        ]
        wanted = []
        for group in groups:
            m, n, k, _ = problems[group]
            pitches = [n * k // 2] * products + [m * k // 2, 2 * m * n]
            pitches += [ceil_div(n, 128) * 128 * k // 16] * products + [ceil_div(m, 128) * 128 * k // 16]
            wanted += [bases[count * group + i] + seen[group] * pitch for i, pitch in enumerate(pitches)]
            seen[group] += 1
        assert [bases[tensor] + offset for tensor, offset in places] == wanted


# 144 and 252 tiles on 74 pairs of SMs: two waves and four, the last of them part empty.
BALANCE = (1.21, 1.32, 1.0, 1.0)


@pytest.mark.parametrize(("sizes", "balance"), list(zip([case[0] for case in BENCHMARKS], BALANCE)))
def test_ctas_load_about_the_same(sizes, balance):
    """Bytes of the busiest CTA over the mean: the others wait for a wave's last CTA."""
    (launch,) = configure(tuple((*size, 1) for size in sizes), 148)
    schedule, plan = launch.schedule, launch.schedule.plan

    def tile_bytes(group, token):
        m, _, k = schedule.sizes[group]
        parts = ceil_div(min(m - token, plan.token_tile), plan.part_tokens)
        return k * (plan.weight_bytes + 2048 + parts * (plan.part_token_bytes + plan.part_atoms * 2048))

    loads = [sum(tile_bytes(g, token) for g, _, token in tiles_of(schedule, cta)) for cta in range(schedule.ctas)]
    assert max(loads) <= balance * sum(loads) / len(loads)


def counted_amounts(schedule):
    """Amounts, counted CTA by CTA; CTAs are given out in order."""
    plan, sms = schedule.plan, schedule.sm_count
    pair, split, alone = plan.cta_group == 2, plan.k_split > 1, plan.ctas_per_sm == 1
    longest = ceil_div(ceil_div(max(k for _, _, k in schedule.sizes), 256), plan.k_split)
    filled, tiles, ctas = 0, [0] * sms, 0
    whole = sms // plan.cluster_ctas * plan.cluster_ctas  # SMs that clusters fill
    for cta in range(schedule.ctas):
        for number, (group, _, token) in enumerate(tiles_of(schedule, cta)):
            m, _, k = schedule.sizes[group]
            parts = ceil_div(min(m - token, plan.token_tile), plan.part_tokens)
            of_parts = parts * (plan.part_token_bytes + plan.part_atoms * 2048)
            filled += ceil_div(k, 256) * (plan.products * (plan.weight_bytes + 2048) + of_parts) / plan.k_split
            tiles[(cta + number * schedule.ctas) % whole] += 1
            ctas += 1
    operands = sum((plan.products * n + m) * k * 9 // 16 for m, n, k in schedule.sizes)
    return {
        "pairs": pair,
        "pair_ctas": ctas / sms if pair else 0,
        "pair_k_tiles": max(tiles) * longest if pair else 0,
        "alone": ctas / sms if alone else 0,
        "split": ctas / sms if split else 0,
        "exchanged": max(tiles) * (plan.k_split - 1) * plan.share_bytes / 1e6 if split else 0,
        "fill": filled / sms / (73e3 if sms == 132 else 130e3 if sms == 148 else 73e3),
        "turns": max(tiles) * longest / plan.stages,
        "tiles": max(tiles),
        "tokens": min(max(m for m, _, _ in schedule.sizes), plan.token_tile) * plan.products / plan.k_split / 100,
        "share": operands / min(ctas, sms) / 1e6,
    }


@settings(max_examples=200, deadline=None)
@given(SCHEDULES)
def test_a_schedule_is_judged_by_what_its_ctas_do(schedule):
    counted = counted_amounts(schedule)
    assert schedule.amounts._asdict() == pytest.approx(counted)
    for overlapping, costs in ((True, OVERLAPPING), (False, IN_TURN)):
        us = sum(counted[name] * cost for name, cost in costs._asdict().items())
        assert schedule.cost(overlapping) == pytest.approx(us)


@settings(max_examples=50, deadline=None)
@given(SIZES, st.sampled_from([1, 2, 5, 132, 148]), st.sampled_from(PRODUCTS))
def test_every_configuration_that_fits_is_a_candidate(sizes, sms, products):
    """Those whose clusters fit the chip and whose split-K ranks have a k-tile each in every group."""
    found, k_tiles = candidates(sizes, sms, True, products), min(ceil_div(k, 256) for _, _, k in sizes)
    possible = [shape for shape in shapes(products) if shape[1] * shape[3] <= sms and shape.k_split <= k_tiles]
    plans = [schedule.plan for schedule in found]
    assert sorted((p.token_tile, p.cta_group, p.ctas_per_sm, p.k_split) for p in plans) == possible


@pytest.mark.parametrize(("rate", "chip"), list(zip(FILL_RATES, ("h200", "b200"))), ids=("h200", "b200"))
def test_loads_fill_an_sm_at_its_share_of_l2_s_rate(rate, chip):
    """The clock's profile of each chip has it, in bytes a cycle; the choice knows two figures of it."""
    constants, clock_ghz = profile(chip).constants, profile(chip).clock_ghz
    assert rate == pytest.approx(constants["l2_rate"] * clock_ghz * 1e3 / constants["sms"], rel=0.01)
    assert (constants["sms"] > HOPPER_SMS) == (chip == "b200")


@settings(max_examples=50, deadline=None)
@given(SIZES, st.sampled_from([2, 148]), st.booleans(), st.sampled_from(PRODUCTS))
def test_candidates_come_in_the_order_of_their_cost(sizes, sms, overlapping, products):
    schedules = candidates(sizes, sms, overlapping, products)
    found = [schedule.cost(overlapping) for schedule in schedules]
    assert found == sorted(found)
    (launch,) = configure(tuple((*size, 1) for size in sorted(sizes, reverse=True)), sms, overlapping, products)
    assert launch.schedule.cost(overlapping) == found[0]


def test_ties_go_to_the_first_configuration():
    """One CTA per SM or two cost the same in turn where each stage is used at most once."""
    found = [schedule for schedule in candidates(((16, 128, 64),), 148, False) if schedule.plan.cta_group == 1]
    order = [shapes().index(Configuration(*(getattr(x.plan, name) for name in Configuration._fields))) for x in found]
    ties = [(a, b) for a, b, one, two in zip(order, order[1:], found, found[1:]) if one.cost(False) == two.cost(False)]
    assert all(a < b for a, b in ties)


def test_half_a_pair_without_rows_is_no_work():
    """N of 128 is one CTA's weight rows: a pair would keep two SMs busy for them."""
    assert candidates(((64, 128, 7168),), 148, overlapping=True)[0].plan.cta_group == 1


def walk(schedule):
    """Bytes requested by operand, over every stage of every CTA's tiles."""
    plan = schedule.plan
    part = 128 if plan.token_tile == 256 else plan.token_tile
    part_rows = part // plan.cta_group
    total = dict.fromkeys(requested(schedule), 0)
    for cta in range(schedule.ctas):
        rank, split = cta % plan.cta_group, cta // plan.cta_group % plan.k_split
        for group, weight_row, token in tiles_of(schedule, cta):
            m, n, k = schedule.sizes[group]
            starts = range(0, k, 256)
            for k_start in starts[split * len(starts) // plan.k_split : (split + 1) * len(starts) // plan.k_split]:
                row_bytes, sf_bytes = min(256, k - k_start) // 2, min(256, k - k_start) * 8
                total["weights"] += plan.products * max(0, min(128, n - weight_row)) * row_bytes
                total["weight SF"] += plan.products * sf_bytes
                total["token SF"] += (
                    len({row // 128 for row in range(token, min(token + plan.token_tile, m))}) * sf_bytes
                )
                for start in range(token, min(token + plan.token_tile, m), part):
                    columns = min(
                        part, -(-(m - start) // 64) * 64
                    )  # N of the MMA, of which a pair's CTAs hold half each
                    mine = start + rank * columns // plan.cta_group
                    total["tokens"] += max(0, min(part_rows, m - mine)) * row_bytes
    return total


@settings(max_examples=100, deadline=None)
@given(SCHEDULES)
def test_requested_bytes_add_up_over_tiles_and_stages(schedule):
    assert walk(schedule) == requested(schedule)


def test_forced_configurations_are_the_only_candidates():
    sizes, forced = ((64, 128, 7168),), (Configuration(192, 1, 2, 1), Configuration(128, 2, 1, 4))
    found = candidates(sizes, 148, configurations=forced)
    assert {schedule.plan for schedule in found} == {Plan(1, *shape) for shape in forced}
    for shape in forced:
        (launch,) = configure(((64, 128, 7168, 1),), 148, configurations=(shape,))
        assert launch.schedule.plan == Plan(1, *shape)
    (launch,) = configure(((64, 128, 7168, 1),), 148, configurations=forced)
    assert launch.schedule == found[0]
