"""Events of a warp on barriers depend on sizes by tiles and k-tiles alone (docs/interleavings.md, "Families").

The blocks of a warp's sequence, one for a k-tile or a tile, are learned from a small launch; they predict each warp's
sequence in larger ones.
"""

import itertools
import re
from functools import partial

import pytest

import reference
import submission
from tests.support.configurations import EMULATED, EVERY, set_chip, solver
from tests.support.slow import sampled

pytestmark = pytest.mark.skipif(not EMULATED, reason="reads traces of the emulator")
RINGS = "full", "empty", "acc_full", "acc_empty"
END = "end"  # kind of a block in which a load warp waits for a stage's last commit


class Recorded(Exception):
    """Events of a launch, whose own run, behind the recorded one, would show nothing more."""


def sequences(monkeypatch, call):
    """Events of a launch on barriers by agent, as `traces.Trace.sequences`."""
    from nogpu.execution.device import Device
    from nogpu.execution.launch import Sanitizer
    from nogpu.execution.replay import UNHELD
    from nogpu.sanitizer.explore import Explorer
    from nogpu.sanitizer.observer import hide_barriers
    from nogpu.sanitizer.traces import Trace

    class Follower(Sanitizer):
        """Follower of the events on barriers, and of no access."""

        def __init__(self):
            self.trace, self.hidden = Trace(), []
            self.begins, self.repeats, self.found = self.trace.begins, self.trace.repeats, self.trace.sequences

        def follows(self, schedule):
            return True

        def join(self, cluster):
            self.hidden.append(hide_barriers(cluster))
            cluster.events.observe(self.trace)

        def take_touched(self):
            return {}

    class Recorder(Explorer):
        def follower(self):
            return Follower()

        def explore(self, trial):
            (tried,) = trial.run([UNHELD])
            assert tried.failure is None
            raise Recorded(tried.found)

    set_chip(monkeypatch, ["late"])
    monkeypatch.setattr(Device.current(), "explorer", Recorder(1))
    with pytest.raises(Recorded) as recorded:
        call()
        Device.current().synchronize()
    return recorded.value.args[0]


def offset_of(text):
    """The offset in shared memory that a barrier's name has."""
    return int(re.search("offset 0x([0-9a-f]+)", text)[1], 16)


class Family:
    """Launches of a plan, in which rings have no ends: the event of stage s in phase p has number p * depth + s."""

    def __init__(self, plan):
        self.plan = plan
        self.depths = dict(zip(RINGS, (plan.stages, plan.stages, plan.accumulators, plan.accumulators)))

    def numbered(self, cta, event, base):
        """(how, ring or name, number, CTA that has the barrier less the own one)."""
        how, name, phase = event
        place = name[0]
        if not (isinstance(place, tuple) and isinstance(place[0], tuple)):  # a named barrier, or the cluster's
            return how, name[-1], phase, 0
        (_, where), text = place
        offset = offset_of(text) - base
        ring = next(ring for ring in reversed(RINGS) if offset >= getattr(self.plan.at, ring))
        stage = (offset - getattr(self.plan.at, ring)) // 8
        return how, ring, phase * self.depths[ring] + stage, where - cta

    def leading(self, warp):
        """The ring of the wait with which a block of a warp begins."""
        plan = self.plan
        return "acc_full" if warp < plan.epilogue_warps else "full" if warp == plan.threads // 32 - 1 else "empty"

    def blocks(self, cta, warp, tiles):
        """(kind, k-tile, tile) of each block of a warp whose CTA has tiles of so many k-tiles."""
        leading, stages = self.leading(warp), self.plan.stages
        if leading == "acc_full":
            return [((), None, tile) for tile in range(len(tiles))]
        places = [(tile, k == 0, k == count - 1) for tile, count in enumerate(tiles) for k in range(count)]
        found = [((first, last), q, tile) for q, (tile, first, last) in enumerate(places)]
        if leading == "empty":
            found = [((), q, None) for _, q, _ in found] + [(END, len(found) + i, None) for i in range(stages)]
            turn = warp - self.plan.epilogue_warps
            found = [block for block in found if block[1] % stages % submission.LOAD_WARPS == turn]
        return found

    def operations(self, cta, warp, tiles):
        """(ring, number) of the arrivals by a warp's copies, commits and messages to other CTAs."""
        leading, k_tiles = self.leading(warp), [q for _, q, _ in self.blocks(cta, warp, tiles)]
        if leading == "acc_full":
            other = self.plan.cta_group == 2 and cta % 2 and not self.plan.one_tile
            return [("acc_empty", tile) for tile in range(len(tiles))] if other else []
        if leading == "empty" or cta % self.plan.cta_group:
            return [("full", q) for q in k_tiles if q < sum(tiles)]
        blocks = self.blocks(cta, warp, tiles)
        return [each for (_, last), q, tile in blocks for each in [("acc_full", tile)] * last + [("empty", q)]]


def relative(events, q, tile):
    """Events of a block by numbers relative to its k-tile and tile; those of other barriers to their first one."""
    first, found = {}, []
    for how, ring, number, cta in events:
        origin = {"full": q, "empty": q, "acc_full": tile, "acc_empty": tile}.get(ring)
        origin = first.setdefault(ring, number) if origin is None else origin
        found.append((how, ring, number - origin, cta))
    return tuple(found)


def examine(family, found, tiles_of, known):
    """Compares each warp's sequence with the blocks that are known, or adds to them. Returns the number of blocks."""
    names = {str(name) for turns in found.values() for turn in turns for _, name, _ in turn}
    base, count = min(offset_of(name) for name in names if "offset" in name) - family.plan.at.full, 0
    operations = {}
    for agent in sorted(found, key=lambda agent: [int(each) for each in re.findall(r"\d+", agent)]):
        cta, warp, *number = map(int, re.findall(r"\d+", agent))
        events = [family.numbered(cta, event, base) for turn in found[agent] for event in sorted(turn, key=str)]
        if number:
            operations.setdefault((cta, warp), []).extend((ring, at) for _, ring, at, _ in events)
            continue
        starts = [i for i, (how, ring, _, _) in enumerate(events) if (how, ring) == ("waits", family.leading(warp))]
        blocks = family.blocks(cta, warp, tiles_of(cta))
        assert len(starts) == len(blocks), (agent, len(starts), len(blocks))
        role, count = (warp, cta % family.plan.cluster_ctas), count + len(blocks)
        head = relative(events[: starts[0]], 0, 0)
        assert known.setdefault((*role, "head"), head) == head, agent
        bounds = itertools.pairwise([*starts, len(events)])
        for number, ((kind, q, tile), (start, end)) in enumerate(zip(blocks, bounds), 1):
            text, key = relative(events[start:end], q, tile), (*role, kind, number == len(blocks))
            assert known.setdefault(key, text) == text, (agent, key)
    for (cta, warp), events in operations.items():
        collapsed = [event for event, _ in itertools.groupby(events)]
        assert collapsed == family.operations(cta, warp, tiles_of(cta)), (cta, warp)
    return count


def problem(plan, k_tiles, rows):
    """A problem with so many tiles along the weights, of so many k-tiles (by group)."""
    m = min(plan.token_tile, submission.TOKEN_STEP)
    n = plan.rows * plan.cta_group * plan.neighbours * rows
    ks = [k * submission.K_TILE for k in k_tiles]
    if plan.products == 2:
        return reference.generate_dual_gemm_input(m=m, n=n, k=ks[0], l=1, seed=5)
    return reference.generate_input(m=(m,) * len(ks), n=(n,) * len(ks), k=tuple(ks), g=len(ks), seed=5)


def k_tiles_of(schedule, cta):
    """K-tiles of each tile of a CTA."""
    plan, first_tiles = schedule.plan, schedule.first_tiles[:-1]
    mine = range(cta // plan.cta_group, schedule.tiles, schedule.ctas // plan.cta_group)
    groups = [max(group for group, first in enumerate(first_tiles) if first <= tile) for tile in mine]
    return [submission.ceil_div(schedule.sizes[group][2], submission.K_TILE) for group in groups]


def compare(monkeypatch, shape, data, clusters, known):
    """`examine` of a launch on so many clusters at most."""
    call = submission.unpack(data)
    configuration = submission.Configuration(*shape)
    sms = configuration.cta_group * configuration.neighbours * clusters
    (launch,) = submission.configure(call.problems, sms, False, call.products, (configuration,))
    found = sequences(monkeypatch, lambda: solver(shape, sms=sms)(data))
    return examine(Family(launch.schedule.plan), found, partial(k_tiles_of, launch.schedule), known)


@pytest.mark.parametrize(("shape", "products"), sampled(EVERY, 12, names=2))
def test_larger_launches_repeat_the_blocks_of_a_small_one(monkeypatch, shape, products):
    plan, known = submission.Plan(1, *shape, products), {}
    for k_tiles in (1, 2, 3, 2 * plan.stages + 1):
        compare(monkeypatch, shape, problem(plan, [k_tiles], 2), 1, known)
    blocks, groups = dict(known), 1 if products == 2 else 2
    for k_tiles, rows in (([5, 4], 3), ([2 * plan.stages + 3, 1], 4)):
        assert compare(monkeypatch, shape, problem(plan, k_tiles[:groups], rows), 2, known) > sum(k_tiles[:groups])
        assert known == blocks, "a larger launch has blocks that the small ones have not"
