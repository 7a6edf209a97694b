"""The static tile schedule, simulated on the CPU: every tile exactly once, in balance, neighbours share weights."""

from hypothesis import given, settings
from hypothesis import strategies as st

from submission import WEIGHT_TILE, Schedule, ceil_div

SIZES = st.lists(
    st.tuples(st.integers(1, 600), st.integers(1, 128).map(lambda n: 8 * n), st.integers(1, 32).map(lambda k: 64 * k)),
    min_size=1,
    max_size=16,
).map(tuple)
SCHEDULES = st.builds(Schedule, SIZES, st.sampled_from([64, 128]), st.sampled_from([1, 4, 132, 148]))


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


def test_even_waves():
    """352 tiles on 148 SMs need three waves; 118 CTAs run them as evenly as 148 would, and share more."""
    schedule = Schedule(tuple((m, 4096, 7168) for m in (80, 176, 128, 72, 64, 248, 96, 160)), 128, 148)
    assert (schedule.tiles, schedule.waves, schedule.ctas) == (352, 3, 118)
