"""The tiles of a CTA, by the kernel's arithmetic."""

from submission import WEIGHT_TILE, Schedule, ceil_div


def tiles_of(schedule: Schedule, cta: int) -> list[tuple[int, int, int]]:
    """(group, first weight row, first token) of each tile of a CTA, in the order it runs them.

    A tile of two CTAs has 256 weight rows, half of them each; the second half may lie past N.
    """
    plan, work = schedule.plan, []
    cluster, rank = cta // plan.cluster_ctas, cta % plan.cta_group
    for tile in range(cluster, schedule.tiles, schedule.clusters):
        group = sum(tile >= first for first in schedule.first_tiles[1:])
        token_blocks = ceil_div(schedule.sizes[group][0], plan.token_tile)
        weight_block, token_block = divmod(tile - schedule.first_tiles[group], token_blocks)
        work.append((group, (weight_block * plan.cta_group + rank) * WEIGHT_TILE, token_block * plan.token_tile))
    return work
