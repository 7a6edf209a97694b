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
    assert schedule.ctas <= schedule.sm_count
    slots = schedule.sm_count // schedule.plan.cta_group
    assert min(counts) >= 1 and max(counts) == schedule.waves == ceil_div(schedule.tiles, slots)
    assert max(counts) - min(counts) <= 1


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
    (tuple((m, 4096, 7168) for m in (80, 176, 128, 72, 64, 248, 96, 160)), 256, 2, 128, 2),
    (tuple((m, 7168, 2048) for m in (40, 76, 168, 72, 164, 148, 196, 160)), 256, 2, 112, 4),
    (((192, 3072, 4096), (320, 3072, 4096)), 128, 2, 120, 1),
    (((128, 4096, 1536), (384, 4096, 1536)), 128, 1, 128, 1),
]


@pytest.mark.parametrize(("sizes", "token_tile", "cta_group", "ctas", "waves"), BENCHMARKS)
def test_configuration_of_the_benchmark_cases(sizes, token_tile, cta_group, ctas, waves):
    """What the stated order of comparison picks on 148 SMs; the tile is found, not looked up."""
    (launch,) = configure(tuple((*size, 1) for size in sizes), 148)
    schedule = launch.schedule
    assert (schedule.plan.token_tile, schedule.plan.cta_group) == (token_tile, cta_group)
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


@pytest.mark.parametrize(("sizes", "balance"), list(zip([case[0] for case in BENCHMARKS], (1.04, 1.04, 1.0, 1.0))))
def test_ctas_load_about_the_same(sizes, balance):
    """Bytes of the busiest CTA over the mean: what a wave's last CTA makes the others wait for."""
    (launch,) = configure(tuple((*size, 1) for size in sizes), 148)
    schedule, plan = launch.schedule, launch.schedule.plan

    def tile_bytes(group, token):
        m, _, k = schedule.sizes[group]
        parts = ceil_div(min(m - token, plan.token_tile), 128)
        return k * (plan.weight_bytes + 2048 + parts * (plan.part_token_bytes + 2048))

    loads = [sum(tile_bytes(g, token) for g, _, token in schedule.tiles_of(cta)) for cta in range(schedule.ctas)]
    assert max(loads) <= balance * sum(loads) / len(loads)


def test_explain_names_the_choice_and_what_the_others_lost_by(capsys):
    explain([(192, 3072, 4096, 1), (320, 3072, 4096, 1), (0, 128, 128, 1)], 148)
    head, names, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith(
        "2 groups on 148 SMs; compared by waves, then idle SMs, then bytes, then CTAs per SM, then tokens per tile"
    )
    assert len(rows) == len(shapes()) and "MB requested" in names
    assert rows[0].split()[0] == "256x128x256" and rows[0].endswith("<- chosen")
    assert all(" > " in row for row in rows[1:])
    assert any("idle SMs: 76 > 28" in row for row in rows)


@settings(max_examples=100, deadline=None)
@given(SIZES, st.sampled_from([1, 2, 132, 148]))
def test_the_chosen_schedule_has_the_fewest_waves(sizes, sms):
    best, *others = candidates(sizes, sms)
    assert all(best.waves <= other.waves for other in others)
    idle = merits(best)["idle SMs"]
    assert all(idle <= merits(other)["idle SMs"] for other in others if other.waves == best.waves)


def test_half_a_pair_without_rows_is_no_work():
    """N of 128 is one CTA's weight rows: a pair would keep two SMs busy for them."""
    assert candidates(((64, 128, 7168),), 148)[0].plan.cta_group == 1


@settings(max_examples=100, deadline=None)
@given(SCHEDULES)
def test_requested_bytes_add_up_over_tiles_and_stages(schedule):
    """The formula against a walk over every stage of every CTA's tiles."""
    plan = schedule.plan
    part_rows = min(plan.token_tile, 128) // plan.cta_group
    total = dict.fromkeys(schedule.requested, 0)
    for cta in range(schedule.ctas):
        rank = cta % plan.cta_group
        for group, weight_row, token in schedule.tiles_of(cta):
            m, n, k = schedule.sizes[group]
            for k_start in range(0, k, 256):
                row_bytes, sf_bytes = min(256, k - k_start) // 2, min(256, k - k_start) * 8
                total["weights"] += max(0, min(128, n - weight_row)) * row_bytes
                total["weight SF"] += sf_bytes
                for part in range(token, min(token + plan.token_tile, m), 128):
                    first = part + rank * part_rows
                    total["tokens"] += max(0, min(part_rows, m - first)) * row_bytes
                    # The leader of a pair loads the tokens' scale factors for both.
                    total["token SF"] += sf_bytes if rank == 0 else 0
    assert total == schedule.requested
