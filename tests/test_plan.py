"""The compile-time plan: SMEM and TMEM maps that neither overlap nor exceed what the hardware has."""

import pytest

import submission
from submission import SM_SMEM, TMEM_COLUMNS, Plan

PLANS = [
    Plan(groups, tile, cta_group, ctas_per_sm)
    for tile, cta_group, ctas_per_sm in submission.shapes()
    for groups in (1, 8, submission.MAX_GROUPS)
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_smem_regions_follow_each_other_and_fit(plan):
    nbytes = {
        "weights": plan.stages * plan.weight_bytes,
        "tokens": plan.stages * plan.token_bytes,
        "scales": plan.stages * plan.scale_bytes,
        "store": submission.EPILOGUE_WARPS * plan.store_buffers * plan.store_bytes,
        "full": 8 * plan.stages,
        "empty": 8 * plan.stages,
        "acc_full": 8 * plan.accumulators,
        "acc_empty": 8 * plan.accumulators,
        "tmem_address": 4,
    }
    starts = plan.at._asdict()
    assert [*nbytes, "end"] == list(starts)
    for (name, start), following in zip(starts.items(), list(starts.values())[1:]):
        assert start + nbytes[name] <= following
    # The hardware takes 1 KiB more per CTA than it asks for.
    assert plan.ctas_per_sm * (plan.at.end + 1024) <= SM_SMEM


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_no_further_stage_would_fit(plan):
    assert plan.stages >= (4 if plan.ctas_per_sm == 1 else 2)
    buffers = submission.EPILOGUE_WARPS * plan.store_bytes
    spared = (plan.store_buffers - submission.STORE_BUFFERS[0]) * buffers
    assert plan.at.end - spared + plan.stage_bytes + 16 > plan.smem_capacity
    assert plan.store_buffers == submission.STORE_BUFFERS[1] or plan.at.end + buffers > plan.smem_capacity
    assert plan.store_buffers >= submission.STORE_BUFFERS[0]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_alignment_of_swizzled_buffers(plan):
    """A 128B-swizzled buffer must start at 1024 bytes, a 64B-swizzled one at 512, barriers at 8."""
    for offset in (plan.weight_bytes, plan.at.tokens, plan.token_bytes, plan.part_token_bytes):
        assert offset % 1024 == 0
    assert plan.at.scales % 128 == 0
    assert plan.at.store % 512 == 0 and plan.store_bytes % 512 == 0
    assert plan.at.full % 8 == 0


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_tmem_columns_follow_each_other_and_fit(plan):
    columns = submission.K_BLOCKS * submission.SF_COLUMNS
    assert plan.accumulators * plan.part_tokens <= plan.weight_sf_column
    assert plan.weight_sf_column + columns <= plan.token_sf_column
    assert plan.ctas_per_sm * (plan.token_sf_column + plan.parts * columns) <= TMEM_COLUMNS
    assert plan.parts <= plan.accumulators
    # tcgen05.alloc takes powers of two from 32.
    assert plan.tmem_columns.bit_count() == 1 and plan.ctas_per_sm * plan.tmem_columns <= TMEM_COLUMNS


@pytest.mark.parametrize("tile", [0, 32, 96, 512])
def test_unknown_token_tile_is_refused(tile):
    with pytest.raises(ValueError, match=f"token_tile is {tile}"):
        Plan(1, tile)


@pytest.mark.parametrize("cta_group", [0, 3, 4])
def test_unknown_cta_group_is_refused(cta_group):
    with pytest.raises(ValueError, match=f"cta_group is {cta_group}"):
        Plan(1, 128, cta_group)


@pytest.mark.parametrize("ctas_per_sm", [0, 3])
def test_unknown_number_of_ctas_per_sm_is_refused(ctas_per_sm):
    with pytest.raises(ValueError, match=f"ctas_per_sm is {ctas_per_sm}"):
        Plan(1, 128, 1, ctas_per_sm)


def test_tiles_whose_accumulators_leave_no_room_for_a_second_cta_are_refused():
    with pytest.raises(ValueError, match="256 tokens needs 2 accumulators; 256 TMEM columns.*hold 1"):
        Plan(1, 256, 1, 2)
    assert (256, 1, 2) not in submission.shapes() and (256, 2, 2) not in submission.shapes()


@pytest.mark.parametrize("groups", [0, submission.MAX_GROUPS + 1])
def test_group_count_is_limited_by_the_parameters(groups):
    with pytest.raises(ValueError, match=f"{groups} groups; the kernel parameters hold 1 to {submission.MAX_GROUPS}"):
        Plan(groups)


@pytest.mark.parametrize(("tile", "mma_n"), [(64, 64), (128, 128), (256, 128)])
def test_instruction_descriptor_matches_the_bit_fields(tile, mma_n):
    """PTX ISA, "Instruction descriptor" for kind mxf4nvf4: e2m1 is code 1, ue4m3 scales are code 0."""
    for cta_group in submission.CTA_GROUPS:
        descriptor = submission.instruction_descriptor(Plan(1, tile, cta_group))
        assert (descriptor >> 24 & 31) * 16 == 128 * cta_group
    assert (descriptor >> 7 & 7, descriptor >> 10 & 7) == (1, 1)
    assert (descriptor >> 17 & 63) * 8 == mma_n
    assert descriptor >> 23 & 1 == 0
