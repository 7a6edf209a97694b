"""The tiles of a CTA, by the kernel's arithmetic."""

from submission import WEIGHT_TILE, Schedule, ceil_div


def tiles_of(schedule: Schedule, cta: int) -> list[tuple[int, int, int]]:
    """The (group, first weight row, first token) of each tile of a CTA, in the order of execution.

    A CTA has `plan.rows` rows of each product. They may all lie past N: those of a pair's second CTA, of the second
    half of 128 rows with two products, and of the tile that makes the number of a group's tiles even.
    """
    plan, work = schedule.plan, []
    cluster, place = divmod(cta, plan.cluster_ctas)
    neighbour, rank = divmod(place, plan.cta_group)
    for tile in range(cluster * plan.neighbours + neighbour, schedule.tiles, schedule.clusters * plan.neighbours):
        group = sum(tile >= first for first in schedule.first_tiles[1:])
        token_blocks = ceil_div(schedule.sizes[group][0], plan.token_tile)
        weight_block, token_block = divmod(tile - schedule.first_tiles[group], token_blocks)
        atom, half = divmod(weight_block, plan.products)
        row = (atom * plan.cta_group + rank) * WEIGHT_TILE + half * plan.rows
        work.append((group, row, token_block * plan.token_tile))
    return work
