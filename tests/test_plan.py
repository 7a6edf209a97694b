"""The compile-time plan: SMEM and TMEM maps that neither overlap nor exceed what the hardware has."""

from itertools import pairwise

import pytest

import submission
from submission import MAX_GROUPS, SMEM_CAPACITY, TMEM_COLUMNS, Plan

PLANS = [Plan(groups, tile) for groups in (1, 8, MAX_GROUPS) for tile in submission.TOKEN_TILES]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_smem_regions_follow_each_other_and_fit(plan):
    regions = [
        (0, plan.stages * plan.weight_bytes),
        (plan.tokens_at, plan.stages * plan.token_bytes),
        (plan.scales_at, plan.stages * plan.scale_bytes),
        (plan.store_at, submission.EPILOGUE_WARPS * submission.STORE_BUFFERS * plan.store_bytes),
        (plan.full_at, 8 * plan.stages),
        (plan.empty_at, 8 * plan.stages),
        (plan.acc_full_at, 8 * submission.ACCUMULATORS),
        (plan.acc_empty_at, 8 * submission.ACCUMULATORS),
        (plan.tmem_address_at, 4),
    ]
    for (start, nbytes), (following, _) in pairwise(regions):
        assert start + nbytes <= following
    assert regions[-1][0] + regions[-1][1] <= plan.smem_bytes <= SMEM_CAPACITY


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_no_further_stage_would_fit(plan):
    assert plan.stages >= 4
    assert plan.smem_bytes + plan.stage_bytes + 16 > SMEM_CAPACITY


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_alignment_of_swizzled_buffers(plan):
    """A 128B-swizzled buffer must start at 1024 bytes, a 64B-swizzled one at 512, barriers at 8."""
    for offset in (plan.weight_bytes, plan.tokens_at, plan.token_bytes):
        assert offset % 1024 == 0
    assert plan.scales_at % 128 == 0
    assert plan.store_at % 512 == 0 and plan.store_bytes % 512 == 0
    assert plan.full_at % 8 == 0


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_tmem_columns_follow_each_other_and_fit(plan):
    columns = submission.K_BLOCKS * submission.SF_COLUMNS
    assert submission.ACCUMULATORS * plan.part_tokens <= plan.weight_sf_column
    assert plan.weight_sf_column + columns <= plan.token_sf_column
    assert plan.token_sf_column + plan.parts * columns <= TMEM_COLUMNS


@pytest.mark.parametrize("tile", [0, 32, 96, 512])
def test_unknown_token_tile_is_refused(tile):
    with pytest.raises(ValueError, match=f"token_tile is {tile}"):
        Plan(1, tile)


@pytest.mark.parametrize("groups", [0, MAX_GROUPS + 1])
def test_group_count_is_limited_by_the_parameters(groups):
    with pytest.raises(ValueError, match=f"{groups} groups; the kernel parameters hold 1 to {MAX_GROUPS}"):
        Plan(groups)


@pytest.mark.parametrize(("tile", "mma_n"), [(64, 64), (128, 128), (256, 128)])
def test_instruction_descriptor_matches_the_bit_fields(tile, mma_n):
    """PTX ISA, "Instruction descriptor" for kind mxf4nvf4: e2m1 is code 1, ue4m3 scales are code 0."""
    descriptor = submission.instruction_descriptor(Plan(1, tile))
    assert (descriptor >> 7 & 7, descriptor >> 10 & 7) == (1, 1)
    assert (descriptor >> 17 & 63) * 8 == mma_n
    assert (descriptor >> 24 & 31) * 16 == 128
    assert descriptor >> 23 & 1 == 0
