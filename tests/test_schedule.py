"""The static tile schedule, simulated on the CPU: every tile exactly once, in balance, neighbours share weights."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from submission import CTA_GROUPS, TOKEN_TILES, WEIGHT_TILE, Schedule, candidates, ceil_div, configure

SIZES = st.lists(
    st.tuples(st.integers(1, 600), st.integers(1, 128).map(lambda n: 8 * n), st.integers(1, 32).map(lambda k: 64 * k)),
    min_size=1,
    max_size=16,
).map(tuple)
SCHEDULES = st.builds(
    Schedule, SIZES, st.sampled_from(TOKEN_TILES), st.sampled_from(CTA_GROUPS), st.sampled_from([2, 5, 132, 148])
)


@settings(max_examples=200, deadline=None)
@given(SCHEDULES)
def test_every_tile_runs_exactly_once(schedule):
    ran = [tile for cta in range(schedule.ctas) for tile in schedule.tiles_of(cta)]
    weight_rows = WEIGHT_TILE * schedule.cta_group
    wanted = [
        (group, weight_row, token)
        for group, (m, n, _) in enumerate(schedule.sizes)
        for weight_row in range(0, ceil_div(n, weight_rows) * weight_rows, WEIGHT_TILE)
        for token in range(0, m, schedule.token_tile)
    ]
    assert sorted(ran) == wanted


@settings(max_examples=200, deadline=None)
@given(SCHEDULES)
def test_no_cta_is_idle_and_none_runs_more_than_the_waves(schedule):
    counts = [len(schedule.tiles_of(cta)) for cta in range(schedule.ctas)]
    assert schedule.ctas <= schedule.sm_count
    slots = schedule.sm_count // schedule.cta_group
    assert min(counts) >= 1 and max(counts) == schedule.waves == ceil_div(schedule.tiles, slots)
    assert max(counts) - min(counts) <= 1


@settings(max_examples=100, deadline=None)
@given(SCHEDULES)
def test_token_blocks_of_one_weight_tile_are_neighbours(schedule):
    """Tiles that share weights have consecutive numbers, so they run side by side and share them in L2."""
    order = []
    for wave in range(schedule.waves):
        for cta in range(0, schedule.ctas, schedule.cta_group):
            work = schedule.tiles_of(cta)
            if wave < len(work):
                order.append(work[wave][:2])
    starts = [tile for tile, before in zip(order, [None, *order]) if tile != before]
    assert len(starts) == len(set(starts))


BENCHMARKS = [
    (tuple((m, 4096, 7168) for m in (80, 176, 128, 72, 64, 248, 96, 160)), 256, 2, 128, 2),
    (tuple((m, 7168, 2048) for m in (40, 76, 168, 72, 164, 148, 196, 160)), 256, 2, 112, 4),
    (((192, 3072, 4096), (320, 3072, 4096)), 128, 2, 120, 1),
    (((128, 4096, 1536), (384, 4096, 1536)), 128, 2, 128, 1),
]


@pytest.mark.parametrize(("sizes", "token_tile", "cta_group", "ctas", "waves"), BENCHMARKS)
def test_configuration_of_the_benchmark_cases(sizes, token_tile, cta_group, ctas, waves):
    """What the stated order of comparison picks on 148 SMs; the tile is found, not looked up."""
    plan, schedule = configure(sizes, 148)
    assert (plan.token_tile, plan.cta_group) == (token_tile, cta_group)
    assert (schedule.ctas, schedule.waves) == (ctas, waves)


@settings(max_examples=100, deadline=None)
@given(SIZES, st.sampled_from([1, 2, 132, 148]))
def test_the_chosen_schedule_has_the_fewest_waves(sizes, sms):
    best, *others = candidates(sizes, sms)
    assert all(best.waves <= other.waves for other in others)
    assert all(best.ctas >= other.ctas for other in others if other.waves == best.waves)


def test_pairs_only_where_their_scale_coordinates_fit():
    """A pair's scale factors are addressed by a 32-bit coordinate: rows / 128 x K of int64 elements."""
    below, above = ((128, 2**20, 2**17),), ((128, 2**21, 2**17),)
    assert {schedule.cta_group for schedule in candidates(below, 148)} == {1, 2}
    assert {schedule.cta_group for schedule in candidates(above, 148)} == {1}


@settings(max_examples=100, deadline=None)
@given(SCHEDULES)
def test_requested_bytes_add_up_over_tiles_and_stages(schedule):
    """The formula against a walk over every stage of every CTA's tiles."""
    pair, part_rows = schedule.cta_group == 2, min(schedule.token_tile, 128) // schedule.cta_group
    total = 0
    for cta in range(schedule.ctas):
        for group, _, token in schedule.tiles_of(cta):
            m, _, k = schedule.sizes[group]
            parts = 1 + (schedule.token_tile == 256 and m - token > 128)
            # The leader of a pair loads the tokens' scale factors for both.
            scales = 1 + (parts if cta % schedule.cta_group == 0 else 0)
            for k_start in range(0, k, 256):
                atoms = 4 if pair else min(4, (k - k_start) // 64)
                total += (128 + parts * part_rows) * 128 + scales * atoms * 512
    assert total == schedule.requested_bytes
