"""The static tile schedule, simulated on the CPU: every tile exactly once, in balance, neighbours share weights."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from submission import WEIGHT_TILE, Plan, Schedule, candidates, ceil_div, configure, explain, merits, shapes

SIZES = st.lists(
    st.tuples(st.integers(1, 600), st.integers(1, 128).map(lambda n: 8 * n), st.integers(1, 32).map(lambda k: 64 * k)),
    min_size=1,
    max_size=16,
).map(tuple)
SCHEDULES = st.builds(
    lambda sizes, shape, sms: Schedule(Plan(len(sizes), *shape), sizes, sms),
    SIZES,
    st.sampled_from(shapes()),
    st.sampled_from([2, 5, 132, 148]),
)


@settings(max_examples=200, deadline=None)
@given(SCHEDULES)
def test_every_tile_runs_exactly_once(schedule):
    ran = [tile for cta in range(schedule.ctas) for tile in schedule.tiles_of(cta)]
    weight_rows = WEIGHT_TILE * schedule.plan.cta_group
    wanted = [
        (group, weight_row, token)
        for group, (m, n, _) in enumerate(schedule.sizes)
        for weight_row in range(0, ceil_div(n, weight_rows) * weight_rows, WEIGHT_TILE)
        for token in range(0, m, schedule.plan.token_tile)
    ]
    assert sorted(ran) == wanted


@settings(max_examples=200, deadline=None)
@given(SCHEDULES)
def test_no_cta_is_idle_and_none_runs_more_than_the_waves(schedule):
    counts = [len(schedule.tiles_of(cta)) for cta in range(schedule.ctas)]
    if schedule.plan.ctas_per_sm == 2:
        assert set(counts) == {1} and schedule.ctas == schedule.tiles * schedule.plan.cta_group
        slots = 2 * schedule.sm_count // schedule.plan.cta_group
    else:
        slots = schedule.sm_count // schedule.plan.cta_group
        assert schedule.ctas <= schedule.sm_count and min(counts) >= 1
        assert max(counts) == schedule.waves and max(counts) - min(counts) <= 1
    assert schedule.waves == ceil_div(schedule.tiles, slots)


@settings(max_examples=100, deadline=None)
@given(SCHEDULES)
def test_token_blocks_of_one_weight_tile_are_neighbours(schedule):
    """Tiles that share weights have consecutive numbers, so they run side by side and share them in L2."""
    order = []
    for wave in range(schedule.waves):
        for cta in range(0, schedule.ctas, schedule.plan.cta_group):
            work = schedule.tiles_of(cta)
            if wave < len(work):
                order.append(work[wave][:2])
    starts = [tile for tile, before in zip(order, [None, *order]) if tile != before]
    assert len(starts) == len(set(starts))


BENCHMARKS = [
    (tuple((m, 4096, 7168) for m in (80, 176, 128, 72, 64, 248, 96, 160)), (256, 2, 1), 148, 2),
    (tuple((m, 7168, 2048) for m in (40, 76, 168, 72, 164, 148, 196, 160)), (256, 2, 1), 148, 4),
    (((192, 3072, 4096), (320, 3072, 4096)), (192, 2, 2), 72, 1),
    (((128, 4096, 1536), (384, 4096, 1536)), (192, 2, 2), 96, 1),
]


@pytest.mark.parametrize(("sizes", "shape", "ctas", "waves"), BENCHMARKS)
def test_configuration_of_the_benchmark_cases(sizes, shape, ctas, waves):
    """What the stated order of comparison picks on 148 SMs; the tile is found, not looked up."""
    (launch,) = configure(tuple((*size, 1) for size in sizes), 148)
    schedule = launch.schedule
    assert (schedule.plan.token_tile, schedule.plan.cta_group, schedule.plan.ctas_per_sm) == shape
    assert (schedule.ctas, schedule.waves) == (ctas, waves)


@settings(max_examples=100, deadline=None)
@given(st.lists(SIZES.map(lambda sizes: (sizes[0][0] - 1, *sizes[0][1:])), max_size=120).map(tuple))
def test_launches_hold_every_group_with_tokens_once_by_descending_m(sizes):
    launches = configure(tuple((*size, 1) for size in sizes), 148)
    order = [group for launch in launches for group in launch.groups]
    assert sorted(order) == [group for group, (m, _, _) in enumerate(sizes) if m]
    ms = [sizes[group][0] for group in order]
    assert ms == sorted(ms, reverse=True)
    addresses = list(range(5 * len(sizes)))
    for schedule, groups, words, pick in launches:
        assert schedule.sizes == tuple(sizes[group] for group in groups)
        assert list(words[:2]) == [schedule.tiles, schedule.ctas]
        assert list(words[2:]) == [
            word for size, first in zip(schedule.sizes, schedule.first_tiles) for word in (*size, first)
        ]
        assert list(pick(addresses)) == [5 * group + tensor for group in groups for tensor in range(5)]


# 128 and 224 tiles on 74 pairs of SMs: two waves and four, the last of them part empty.
BALANCE = (1.21, 1.32, 1.0, 1.0)


@pytest.mark.parametrize(("sizes", "balance"), list(zip([case[0] for case in BENCHMARKS], BALANCE)))
def test_ctas_load_about_the_same(sizes, balance):
    """Bytes of the busiest CTA over the mean: what a wave's last CTA makes the others wait for."""
    (launch,) = configure(tuple((*size, 1) for size in sizes), 148)
    schedule, plan = launch.schedule, launch.schedule.plan

    def tile_bytes(group, token):
        m, _, k = schedule.sizes[group]
        parts = ceil_div(min(m - token, plan.token_tile), plan.part_tokens)
        return k * (plan.weight_bytes + 2048 + parts * (plan.part_token_bytes + plan.part_atoms * 2048))

    loads = [sum(tile_bytes(g, token) for g, _, token in schedule.tiles_of(cta)) for cta in range(schedule.ctas)]
    assert max(loads) <= balance * sum(loads) / len(loads)


def test_explain_names_the_choice_and_what_the_others_lost_by(capsys):
    explain([(192, 3072, 4096, 1), (320, 3072, 4096, 1), (0, 128, 128, 1)], 148)
    head, names, *rows = capsys.readouterr().out.splitlines()
    assert head == "2 groups on 148 SMs; compared by bytes and waits, then tokens per tile:"
    assert len(rows) == len(shapes()) and "MB requested" in names
    assert rows[0].split()[:3] == ["256x192x256", "2", "2"] and rows[0].endswith("<- chosen")
    assert all(" > " in row for row in rows[1:])
    # One CTA per SM, which is 10 MB; 37.7 MB of tokens and weights with a pair's 5 MB.
    assert any(row.split()[:3] == ["256x256x256", "2", "1"] and "52,748,736 > 43,535,168" in row for row in rows)


def test_explain_names_a_tie_decided_by_the_tile(capsys):
    explain([(64, 128, 7168, 1)], 148)
    rows = capsys.readouterr().out.splitlines()[2:]
    assert rows[0].split()[0] == "128x64x256"
    assert any("tokens per tile: 128 > 64" in row for row in rows)


def cost(schedule):
    """What decides, counted tile by tile: bytes requested, and so many more for waits."""
    plan = schedule.plan
    waits = {(1, 1): 10_000_000, (1, 2): 0, (2, 1): 15_000_000, (2, 2): 5_000_000}
    return sum(walk(schedule).values()) + waits[plan.cta_group, plan.ctas_per_sm], plan.token_tile


@settings(max_examples=50, deadline=None)
@given(SIZES, st.sampled_from([1, 2, 132, 148]))
def test_the_chosen_schedule_has_the_fewest_bytes_and_waits(sizes, sms):
    found = candidates(sizes, sms)
    assert len(found) == (len(shapes()) if sms > 1 else len([shape for shape in shapes() if shape[1] == 1]))
    assert [cost(schedule) for schedule in found] == sorted(map(cost, found))
    assert [tuple(merits(schedule).values()) for schedule in found] == [cost(schedule) for schedule in found]


@settings(max_examples=100, deadline=None)
@given(SCHEDULES)
def test_no_sm_loads_more_than_a_launch_on_its_own_is_judged_by(schedule):
    """CTAs given out in order, each tile with all the stages and parts that the longest and fullest has."""
    merit = merits(schedule, overlapping=False)
    assert list(merit) == ["bytes of the busiest SM", "bytes", "tokens per tile"]
    plan, loads = schedule.plan, [0] * schedule.sm_count
    for cta in range(schedule.ctas):
        for group, _, _ in schedule.tiles_of(cta):
            loads[cta % schedule.sm_count] += ceil_div(schedule.sizes[group][2], 256) * plan.stage_bytes
    assert max(loads) <= merit["bytes of the busiest SM"]
    assert merit["bytes"] == schedule.requested_bytes


@settings(max_examples=50, deadline=None)
@given(SIZES, st.sampled_from([2, 148]), st.booleans())
def test_candidates_come_in_the_order_of_their_merits(sizes, sms, overlapping):
    found = [tuple(merits(schedule, overlapping).values()) for schedule in candidates(sizes, sms, overlapping)]
    assert found == sorted(found)
    (launch,) = configure(tuple((*size, 1) for size in sorted(sizes, reverse=True)), sms, overlapping)
    assert tuple(merits(launch.schedule, overlapping).values()) == found[0]


def test_half_a_pair_without_rows_is_no_work():
    """N of 128 is one CTA's weight rows: a pair would keep two SMs busy for them."""
    assert candidates(((64, 128, 7168),), 148)[0].plan.cta_group == 1


def walk(schedule):
    """Bytes requested by operand, over every stage of every CTA's tiles."""
    plan = schedule.plan
    part, atoms = (128, 1) if plan.token_tile == 256 else (plan.token_tile, 2 if plan.token_tile == 192 else 1)
    part_rows = part // plan.cta_group
    total = dict.fromkeys(schedule.requested, 0)
    for cta in range(schedule.ctas):
        rank = cta % plan.cta_group
        for group, weight_row, token in schedule.tiles_of(cta):
            m, n, k = schedule.sizes[group]
            for k_start in range(0, k, 256):
                row_bytes, sf_bytes = min(256, k - k_start) // 2, min(256, k - k_start) * 8
                total["weights"] += max(0, min(128, n - weight_row)) * row_bytes
                total["weight SF"] += sf_bytes
                for start in range(token, min(token + plan.token_tile, m), part):
                    total["tokens"] += max(0, min(part_rows, m - start - rank * part_rows)) * row_bytes
                    total["token SF"] += atoms * sf_bytes  # each CTA of a pair loads them all
    return total


@settings(max_examples=100, deadline=None)
@given(SCHEDULES)
def test_requested_bytes_add_up_over_tiles_and_stages(schedule):
    assert walk(schedule) == schedule.requested
