"""Repeated accesses of the tensor core: a check of only the first has the same outcome as a check of each."""

import random
from types import SimpleNamespace

import pytest

from nogpu.errors import EmulatorError, Fault
from nogpu.hardware.tensor.order import Release, TensorOrder, columns_mask

COLUMNS = [columns_mask(column, count) for column, count in ((0, 2), (0, 4), (2, 2), (4, 4), (6, 1))]


class Checked(TensorOrder):
    """A record that checks every access."""

    def touch(self, *access):
        self.access(*access)


class Warps:
    """Three warps, their releases, and the releases of others that they have acquired."""

    def __init__(self):
        instruction = SimpleNamespace(opcode="tcgen05.mma", line=1)
        traits = SimpleNamespace(tensor_fences=True)
        entry = SimpleNamespace(name="k", instructions=[instruction] * 4)
        grid = SimpleNamespace(entry=entry, program=SimpleNamespace(traits=traits))
        self.groups, self.time = [], 0
        for index in range(3):
            tensor = SimpleNamespace(seen=(-1, -1), issued=Release(), queue=[])
            warp = SimpleNamespace(index=index, tensor=tensor)
            self.groups.append(SimpleNamespace(warp=warp, grid=grid, cta=SimpleNamespace(label="CTA")))

    def run(self, order, step):
        kind, index, pc, reads, writes = step
        group = self.groups[index]
        user = group.warp.tensor
        if kind == "touch":
            # Another thread of the warp may have issued the operation before the warp's last fence.
            seen = user.seen[0] - (pc == 3), user.seen[1] - (pc == 3)
            order.touch((group, pc), user.issued, seen, reads, writes)
        elif kind == "access":
            order.access((group, pc), user.issued, user.seen, reads, writes)
        elif kind == "free":
            order.free((group, pc), writes)
        elif kind == "commit":
            self.time += 1
            user.issued.time, user.issued = self.time, Release()
        else:
            user.seen = self.time, self.time


def outcome(order, steps):
    """The state after the steps, and the index and message of the first refused step."""
    warps, refused = Warps(), None
    for i, step in enumerate(steps):
        try:
            warps.run(order, step)
        except (EmulatorError, Fault) as error:
            refused = i, str(error)
            break
    epochs = [(e.warp.index, e.release.time, e.reads, e.writes, e.issuer[1]) for e in order._epochs]
    return refused, epochs, order._others


def steps(seed):
    rng = random.Random(seed)
    kinds = ["touch"] * 12 + ["access", "free", "commit", "commit", "fence", "fence"]
    warp, found = 0, []
    for _ in range(60):
        if rng.random() < 0.15:
            found += [("commit", warp, 0, 0, 0)] * (rng.random() < 0.9)
            warp = rng.randrange(3)
            found += [("fence", warp, 0, 0, 0)] * (rng.random() < 0.9)
        reads, writes = rng.choice([(0, rng.choice(COLUMNS)), (rng.choice(COLUMNS), 0)])
        kind = rng.choice(kinds)
        found.append((kind, warp, rng.randrange(4), reads, writes or columns_mask(0, 1) if kind == "free" else writes))
    return found


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_outcome(first):
    refused = 0
    for seed in range(first, first + 100):
        expected = outcome(Checked(), steps(seed))
        assert outcome(TensorOrder(), steps(seed)) == expected
        refused += expected[0] is not None
    assert 20 < refused < 100
