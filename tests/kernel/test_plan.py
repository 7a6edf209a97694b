"""The compile-time plan: SMEM and TMEM maps that neither overlap nor exceed what the hardware has."""

import itertools

import pytest

import submission
from submission import SM_SMEM, TMEM_COLUMNS, Plan
from tests.support.configurations import EVERY

PLANS = [
    Plan(groups, *shape, products) for shape, products in EVERY for groups in (1, 8, submission.max_groups(products))
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_smem_regions_follow_each_other_and_fit(plan):
    nbytes = {
        "weights": plan.stages * plan.products * plan.weight_bytes,
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
    assert plan.stages >= {(1, 1): 4, (1, 2): 3, (2, 1): 2, (2, 2): 2}[plan.ctas_per_sm, plan.products]
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
    assert plan.accumulators * plan.products * plan.part_tokens <= plan.weight_sf_column
    assert plan.weight_sf_column + plan.products * columns <= plan.token_sf_column
    assert plan.token_sf_column + token_columns <= plan.tmem_columns
    assert plan.sf_columns == plan.products * columns + token_columns
    assert plan.parts <= plan.accumulators
    # A second accumulator serves the next tile only.
    assert plan.accumulators == 1 or not plan.one_tile
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
    assert plan.part_tokens % plan.epilogue_tokens == 0
    assert plan.products * plan.epilogue_tokens <= submission.EPILOGUE_REGISTERS


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan.k_split > 1], ids=str)
def test_the_other_split_k_ranks_sums_fit_where_the_stages_were(plan):
    """Barriers and the TMEM address behind the stages stay: the CTA frees its TMEM after the exchange."""
    assert plan.k_split * plan.share_tokens == plan.token_tile and plan.share_tokens % plan.epilogue_tokens == 0
    assert plan.epilogue_tokens % 2 == 0, "tokens are stored in pairs"
    received = [128 * 4 * plan.products * plan.share_tokens] * (plan.k_split - 1)
    assert set(received) == {plan.share_bytes}
    assert sum(received) <= plan.stages * plan.stage_bytes == plan.at.full
    assert plan.cluster_ctas <= 8, "the largest portable cluster"


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


@pytest.mark.parametrize("k_split", [0, 3, 8])
def test_unknown_k_split_is_refused(k_split):
    with pytest.raises(ValueError, match=f"k_split is {k_split}"):
        Plan(1, 128, 1, 1, k_split)


@pytest.mark.parametrize("products", [0, 3])
def test_unknown_number_of_products_is_refused(products):
    with pytest.raises(ValueError, match=f"products is {products}"):
        Plan(1, products=products)


@pytest.mark.parametrize(
    ("shape", "products", "message"),
    [
        ((256, 1, 2), 1, "256 tokens and 1 products needs 304 TMEM columns; a CTA's share at 2 per SM is 256"),
        ((128, 1, 2), 2, "128 tokens and 2 products needs 304 TMEM columns; a CTA's share at 2 per SM is 256"),
        ((256, 2, 1), 2, "256 tokens and 2 products needs 576 TMEM columns; a CTA's share at 1 per SM is 512"),
    ],
)
def test_tiles_whose_accumulators_do_not_fit_are_refused(shape, products, message):
    with pytest.raises(ValueError, match=message):
        Plan(1, *shape, products=products)
    assert shape not in [found[:3] for found in submission.shapes(products)]


@pytest.mark.parametrize(("tile", "k_split", "share"), [(64, 4, 16), (192, 4, 48), (256, 2, 64)])
def test_tokens_of_a_split_k_rank_that_are_no_whole_steps_of_the_epilogue_are_refused(tile, k_split, share):
    with pytest.raises(ValueError, match=f"{k_split} shares of K with tiles of {tile} tokens; .* {share} tokens"):
        Plan(1, tile, 1, 1, k_split)


@pytest.mark.parametrize(("products", "limit"), [(1, 110), (2, 75)])
def test_group_count_is_limited_by_the_parameters(products, limit):
    """That no group more would fit, test_report.py finds in the PTX."""
    assert submission.max_groups(products) == limit
    for groups in (0, limit + 1):
        with pytest.raises(ValueError, match=f"{groups} groups; the kernel parameters hold 1 to {limit}"):
            Plan(groups, products=products)


def test_shapes_are_all_that_a_plan_takes_with_split_k_at_one_cta_per_sm_only():
    for products in submission.PRODUCTS:
        for shape in itertools.product((64, 128, 192, 256), (1, 2), (1, 2), (1, 2, 4)):
            try:
                Plan(1, *shape, products)
                legal = shape[2] == 1 or shape[3] == 1
            except ValueError:
                legal = False
            assert legal == (shape in submission.shapes(products)), (shape, products)


@pytest.mark.parametrize(("tile", "mma_n"), [(64, 64), (128, 128), (192, 192), (256, 128)])
def test_instruction_descriptor_matches_the_bit_fields(tile, mma_n):
    """PTX ISA, "Instruction descriptor" for kind mxf4nvf4: e2m1 is code 1, ue4m3 scales are code 0."""
    for cta_group in submission.CTA_GROUPS:
        plan = Plan(1, tile, cta_group)
        descriptor = submission.instruction_descriptor(plan, plan.part_tokens)
        assert (descriptor >> 24 & 31) * 16 == 128 * cta_group
    assert (descriptor >> 7 & 7, descriptor >> 10 & 7) == (1, 1)
    assert (descriptor >> 17 & 63) * 8 == mma_n
    assert descriptor >> 23 & 1 == 0
