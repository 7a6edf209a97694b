"""The static tile schedule, simulated on the CPU: every tile exactly once, in balance, neighbours share weights."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from submission import TOKEN_TILES, WEIGHT_TILE, Schedule, candidates, ceil_div, configure

SIZES = st.lists(
    st.tuples(st.integers(1, 600), st.integers(1, 128).map(lambda n: 8 * n), st.integers(1, 32).map(lambda k: 64 * k)),
    min_size=1,
    max_size=16,
).map(tuple)
SCHEDULES = st.builds(Schedule, SIZES, st.sampled_from(TOKEN_TILES), st.sampled_from([1, 4, 132, 148]))


@settings(max_examples=200, deadline=None)
@given(SCHEDULES)
def test_every_tile_runs_exactly_once(schedule):
    ran = [tile for cta in range(schedule.ctas) for tile in schedule.tiles_of(cta)]
    wanted = [
        (group, weight_row, token)
        for group, (m, n, _) in enumerate(schedule.sizes)
        for weight_row in range(0, n, WEIGHT_TILE)
        for token in range(0, m, schedule.token_tile)
    ]
    assert sorted(ran) == wanted


@settings(max_examples=200, deadline=None)
@given(SCHEDULES)
def test_no_cta_is_idle_and_none_runs_more_than_the_waves(schedule):
    counts = [len(schedule.tiles_of(cta)) for cta in range(schedule.ctas)]
    assert schedule.ctas <= schedule.sm_count
    assert min(counts) >= 1 and max(counts) == schedule.waves == ceil_div(schedule.tiles, schedule.sm_count)
    assert max(counts) - min(counts) <= 1


@settings(max_examples=100, deadline=None)
@given(SCHEDULES)
def test_token_blocks_of_one_weight_tile_are_neighbours(schedule):
    """Tiles that share weights have consecutive numbers, so they run side by side and share them in L2."""
    order = []
    for wave in range(schedule.waves):
        for cta in range(schedule.ctas):
            work = schedule.tiles_of(cta)
            if wave < len(work):
                order.append(work[wave][:2])
    starts = [tile for tile, before in zip(order, [None, *order]) if tile != before]
    assert len(starts) == len(set(starts))


BENCHMARKS = [
    (tuple((m, 4096, 7168) for m in (80, 176, 128, 72, 64, 248, 96, 160)), 256, 128, 2),
    (tuple((m, 7168, 2048) for m in (40, 76, 168, 72, 164, 148, 196, 160)), 256, 112, 4),
    (((192, 3072, 4096), (320, 3072, 4096)), 128, 120, 1),
    (((128, 4096, 1536), (384, 4096, 1536)), 128, 128, 1),
]


@pytest.mark.parametrize(("sizes", "token_tile", "ctas", "waves"), BENCHMARKS)
def test_configuration_of_the_benchmark_cases(sizes, token_tile, ctas, waves):
    """What the stated order of comparison picks on 148 SMs; the tile is found, not looked up."""
    plan, schedule = configure(sizes, 148)
    assert (plan.token_tile, schedule.ctas, schedule.waves) == (token_tile, ctas, waves)


@settings(max_examples=100, deadline=None)
@given(SIZES, st.sampled_from([1, 4, 132, 148]))
def test_the_chosen_schedule_has_the_fewest_waves(sizes, sms):
    best, *others = candidates(sizes, sms)
    assert all(best.waves <= other.waves for other in others)
    assert all(best.ctas >= other.ctas for other in others if other.waves == best.waves)


@settings(max_examples=100, deadline=None)
@given(SCHEDULES)
def test_requested_bytes_add_up_over_tiles_and_stages(schedule):
    """The formula against a walk over every stage of every tile."""
    total = 0
    for cta in range(schedule.ctas):
        for group, _, token in schedule.tiles_of(cta):
            m, _, k = schedule.sizes[group]
            parts = 1 + (schedule.token_tile == 256 and m - token > 128)
            for k_start in range(0, k, 256):
                blocks = min(4, (k - k_start) // 64)
                total += (128 + schedule.token_tile) * 128 + (1 + parts) * blocks * 512
    assert total == schedule.requested_bytes
