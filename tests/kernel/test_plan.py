"""The compile-time plan: SMEM and TMEM maps that neither overlap nor exceed the hardware's limits."""

import itertools

import pytest

import submission
from submission import SM_SMEM, TMEM_COLUMNS, Plan
from tests.support.configurations import EVERY

PLANS = [Plan(groups, *shape, products) for shape, products in EVERY for groups in (1, 8, submission.MAX_GROUPS)]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_smem_regions_follow_each_other_and_fit(plan):
    nbytes = {
        "weights": plan.stages * 128 * 128,
        "tokens": plan.stages * plan.token_rows * 128,
        "scales": plan.stages * (plan.products + plan.atoms) * 2048,
        "exchange": 2 * 4 * 32 * plan.epilogue_warps * plan.epilogue_tokens // 2 if plan.products == 2 else 0,
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
    # The hardware takes 1 KiB per CTA more than the plan asks for.
    assert plan.ctas_per_sm * (plan.at.end + 1024) <= SM_SMEM
    assert plan.stages >= (4 - plan.products if plan.ctas_per_sm == 1 else 2)
    assert plan.at.end + plan.stage_bytes + 16 > plan.smem_capacity


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_alignment_of_swizzled_buffers(plan):
    """A 128B-swizzled buffer must start at 1024 bytes, an atom of scale factors at 128, barriers at 8."""
    of_neighbour = plan.rows // plan.neighbours * 128  # first row of a product, and first row that a neighbour loads
    for offset in (plan.weight_bytes, of_neighbour, plan.at.tokens, plan.token_bytes):
        assert offset % 1024 == 0
    assert plan.at.scales % 128 == 0 and plan.at.exchange % 16 == 0
    assert submission.SF_ATOM % 128 == 0 and plan.scale_bytes % submission.SF_STAGE == 0
    assert plan.at.full % 8 == 0


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_tmem_columns_and_atoms_fit(plan):
    """Columns follow each other; an odd tile begins at most half an atom into the first of its atoms."""
    columns = submission.K_BLOCKS * submission.SF_COLUMNS
    token_columns = plan.atoms * columns
    assert plan.accumulators * plan.token_tile <= plan.weight_sf_column
    assert plan.weight_sf_column + plan.products * columns <= plan.token_sf_column
    assert plan.token_sf_column + token_columns <= plan.tmem_columns
    assert plan.sf_columns == plan.products * columns + token_columns
    # A second accumulator serves only the next tile.
    assert plan.accumulators == 1 or not plan.one_tile
    # tcgen05.alloc takes powers of two from 32.
    assert plan.tmem_columns.bit_count() == 1 and plan.ctas_per_sm * plan.tmem_columns <= TMEM_COLUMNS
    assert plan.cta_group * plan.token_rows == plan.token_tile
    assert plan.token_rows % 8 == 0, "rows of a swizzle atom"
    # N of an MMA (PTX ISA, "tcgen05.mma", shapes of kind mxf4nvf4): up to 256, and of a pair's a multiple of 16.
    assert plan.token_tile <= 256 and plan.token_tile % (8 * plan.cta_group) == 0
    for token in range(0, 4 * plan.token_tile, plan.token_tile):
        first = token % 128
        # Half an atom takes two columns of TMEM; a tile of 16 tokens is the only one of its group.
        assert first in (0, 64) and first + plan.token_tile <= plan.atoms * 128 or plan.token_tile == 16


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_the_epilogue_s_steps_cover_the_tile(plan):
    """Its warps store pairs of tokens; of two products each sends half of a step's tokens, four at a time."""
    assert plan.token_tile % (plan.products * plan.epilogue_tokens) == 0 and plan.epilogue_tokens % 2 == 0
    assert plan.epilogue_warps * 32 == 128 * plan.products and plan.threads == 32 * (plan.epilogue_warps + 3) <= 1024
    if plan.products == 2:
        sent = plan.epilogue_tokens // 2
        assert sent % 4 == 0 and plan.sent_bytes == plan.epilogue_warps * 32 * sent * 4
        barriers = {submission.EXCHANGE_BARRIER + warp // 4 * 2 + warp % 2 for warp in range(plan.epilogue_warps)}
        assert barriers == {4, 5, 6, 7}, "one for each two warps, besides the three of all"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(((1, tile), f"token_tile is {tile}") for tile in (0, 32, 96, 512)),
        *(((1, 128, cta_group), f"cta_group is {cta_group}") for cta_group in (0, 3, 4)),
        *(((1, 128, 1, ctas_per_sm), f"ctas_per_sm is {ctas_per_sm}") for ctas_per_sm in (0, 3)),
        *(((1, 128, 1, 1, neighbours), f"neighbours is {neighbours}") for neighbours in (0, 3, 4)),
        *(((1, 128, 1, 1, 1, products), f"products is {products}") for products in (0, 3)),
        *(
            ((groups,), f"{groups} groups; a launch takes 1 to {submission.MAX_GROUPS}")
            for groups in (0, submission.MAX_GROUPS + 1)
        ),
        # Accumulators that do not fit.
        ((1, 256, 1, 2), "256 tokens and 1 products needs 304 TMEM columns; a CTA's share at 2 per SM is 256"),
        ((1, 256, 2, 2, 1, 2), "256 tokens and 2 products needs 320 TMEM columns; a CTA's share at 2 per SM is 256"),
        # Few tokens are for one CTA and one product.
        ((1, 16, 2, 1, 1, 1), "16 tokens with clusters of 2, 1 products; the kernel is written for 1 and 1"),
        ((1, 16, 1, 1, 2, 1), "16 tokens with clusters of 2, 1 products; the kernel is written for 1 and 1"),
        ((1, 16, 1, 2, 1, 2), "16 tokens with clusters of 1, 2 products; the kernel is written for 1 and 1"),
    ],
    ids=str,
)
def test_plans_that_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Plan(*arguments)


def test_legal_configurations_are_all_that_a_plan_takes_with_neighbours_at_one_cta_per_sm_only():
    for products in submission.PRODUCTS:
        for shape in itertools.product((16, 64, 128, 192, 256), (1, 2), (1, 2), (1, 2)):
            try:
                Plan(1, *shape, products)
                legal = shape[2:] != (2, 2)
            except ValueError:
                legal = False
            assert legal == (shape in submission.legal_configurations(products)), (shape, products)


@pytest.mark.parametrize("columns", [16, 64, 128, 192, 256])
def test_instruction_descriptor_matches_the_bit_fields(columns):
    """PTX ISA, "Instruction descriptor" for kind mxf4nvf4: e2m1 is code 1, ue4m3 scales are code 0."""
    for cta_group in submission.CTA_GROUPS:
        descriptor = submission.instruction_descriptor(Plan(1, 256, cta_group), columns)
        assert (descriptor >> 24 & 31) * 16 == 128 * cta_group
    assert (descriptor >> 7 & 7, descriptor >> 10 & 7) == (1, 1)
    assert (descriptor >> 17 & 63) * 8 == columns
    assert descriptor >> 23 & 1 == 0
