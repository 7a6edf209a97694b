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
    assert plan.at.end + plan.stage_bytes + 16 > plan.smem_capacity


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_alignment_of_swizzled_buffers(plan):
    """A 128B-swizzled buffer must start at 1024 bytes, an atom of scale factors at 128, barriers at 8."""
    for offset in (plan.weight_bytes, plan.at.tokens, plan.token_bytes, plan.part_token_bytes):
        assert offset % 1024 == 0
    assert plan.at.scales % 128 == 0
    assert submission.SF_ATOM % 128 == 0 and plan.scale_bytes % submission.SF_STAGE == 0
    assert plan.at.full % 8 == 0


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_tmem_columns_follow_each_other_and_fit(plan):
    columns = submission.K_BLOCKS * submission.SF_COLUMNS
    token_columns = plan.parts * plan.part_atoms * columns
    assert plan.accumulators * plan.part_tokens <= plan.weight_sf_column
    assert plan.weight_sf_column + columns <= plan.token_sf_column
    assert plan.token_sf_column + token_columns <= plan.tmem_columns
    assert plan.sf_columns == columns + token_columns
    assert plan.parts <= plan.accumulators
    # tcgen05.alloc takes powers of two from 32.
    assert plan.tmem_columns.bit_count() == 1 and plan.ctas_per_sm * plan.tmem_columns <= TMEM_COLUMNS


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_parts_and_their_atoms_cover_the_tile(plan):
    """A part is one MMA's tokens; an odd tile begins at most half an atom into the first of the part's atoms."""
    assert plan.parts * plan.part_tokens == plan.token_tile and plan.part_tokens <= submission.MMA_TOKENS
    assert plan.cta_group * plan.token_rows == plan.part_tokens
    assert plan.token_rows % 8 == 0, "rows of a swizzle atom"
    for token in range(0, 4 * plan.token_tile, plan.token_tile):
        first = token % 128
        assert first in (0, 64) and first + plan.part_tokens <= plan.part_atoms * 128
    assert plan.part_tokens % submission.EPILOGUE_TOKENS == 0


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


@pytest.mark.parametrize(("tile", "mma_n"), [(64, 64), (128, 128), (192, 192), (256, 128)])
def test_instruction_descriptor_matches_the_bit_fields(tile, mma_n):
    """PTX ISA, "Instruction descriptor" for kind mxf4nvf4: e2m1 is code 1, ue4m3 scales are code 0."""
    for cta_group in submission.CTA_GROUPS:
        descriptor = submission.instruction_descriptor(Plan(1, tile, cta_group))
        assert (descriptor >> 24 & 31) * 16 == 128 * cta_group
    assert (descriptor >> 7 & 7, descriptor >> 10 & 7) == (1, 1)
    assert (descriptor >> 17 & 63) * 8 == mma_n
    assert descriptor >> 23 & 1 == 0
