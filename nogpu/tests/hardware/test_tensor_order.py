"""The order of accesses to tensor memory that compiled code keeps, against one that keeps it in Python."""

import random
from types import SimpleNamespace

import pytest

from nogpu.errors import EmulatorError, Fault
from nogpu.hardware.tensor import order as orders
from nogpu.hardware.tensor.order import Epoch, Release, TensorOrder, columns_mask

COLUMNS = [columns_mask(column, count) for column, count in ((0, 2), (0, 4), (2, 2), (4, 4), (6, 1), (570, 6))]
COLUMNS += [columns_mask(column, 3, halves) for column, halves in ((1, 0x55), (2, 0xAA), (3, 0x0C))]


class Model:
    """An order that checks each access against all epochs."""

    def __init__(self):
        self.found = []

    def access(self, issuer, release, seen, reads, writes, frees=False):
        warp = issuer[0].warp
        for epoch in self.found:
            if epoch.warp is not warp and (epoch.writes & (reads | writes) or epoch.reads & writes):
                orders._check(epoch, issuer, seen, frees)
        own = [epoch for epoch in self.found if epoch.warp is warp and epoch.release is release]
        mine = own[0] if own else Epoch(warp, release, 0, 0, 0)
        if not own:
            release.used = 1
            self.found.append(mine)
        grown = mine._replace(reads=mine.reads | reads, writes=mine.writes | writes, pc=issuer[1])
        self.found = [grown if epoch is mine else epoch for epoch in self.found]
        if writes & ~mine.writes:
            self.forget(writes, grown)

    def forget(self, columns, kept=None):
        left = [
            epoch if epoch is kept else epoch._replace(reads=epoch.reads & ~columns, writes=epoch.writes & ~columns)
            for epoch in self.found
        ]
        self.found = [epoch for epoch in left if epoch is kept or epoch.reads or epoch.writes]

    def free(self, issuer, columns):
        self.access(issuer, Release(), issuer[0].warp.tensor.seen, 0, columns, frees=True)
        self.forget(columns)

    def epochs(self):
        return self.found


class Warps:
    """Warps, their releases, and the releases of others that they have acquired."""

    def __init__(self, fences):
        instruction = SimpleNamespace(opcode="tcgen05.mma", line=1)
        traits = SimpleNamespace(tensor_fences=fences)
        entry = SimpleNamespace(name="k", instructions=[instruction] * 4)
        grid = SimpleNamespace(entry=entry, program=SimpleNamespace(traits=traits))
        self.groups, self.time = [], 0
        for index in range(3):
            release = Release()
            tensor = SimpleNamespace(seen=(-1, -1), issued=release, own=release, queue=[])
            warp = SimpleNamespace(index=index, tensor=tensor, registers=SimpleNamespace(context_address=8 + index))
            group = SimpleNamespace(warp=warp, grid=grid, cta=SimpleNamespace(label="CTA"))
            warp.first_group = group
            self.groups.append(group)

    def run(self, order, step):
        kind, index, pc, reads, writes = step
        group = self.groups[index]
        user = group.warp.tensor
        if kind == "access":
            # Another thread of the warp may have issued the operation before the warp's last fence.
            seen = user.seen[0] - (pc == 3), user.seen[1] - (pc == 3)
            order.access((group, pc), user.issued, seen, reads, writes)
        elif kind == "free":
            order.free((group, pc), writes)
        elif kind == "commit":
            self.time += 1
            user.issued.time = self.time
            user.issued = user.own = Release()
        else:
            user.seen = self.time, self.time


def outcome(order, steps, fences):
    """The state after the steps, and the index and message of the first refused step."""
    warps, refused = Warps(fences), None
    for i, step in enumerate(steps):
        try:
            warps.run(order, step)
        except (EmulatorError, Fault) as error:
            refused = i, str(error)
            break
    return refused, [(e.warp.index, e.release.time, e.release.used, e.reads, e.writes, e.pc) for e in order.epochs()]


def steps(seed):
    rng = random.Random(seed)
    kinds = ["access"] * 12 + ["free", "commit", "commit", "fence", "fence"]
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


@pytest.mark.parametrize("fences", [True, False])
@pytest.mark.parametrize("first", range(0, 600, 100))
def test_outcome(first, fences):
    refused = 0
    for seed in range(first, first + 100):
        expected = outcome(Model(), steps(seed), fences)
        assert outcome(TensorOrder(), steps(seed), fences) == expected
        refused += expected[0] is not None
    assert 20 < refused < 100


def test_releases_that_no_access_names_are_dropped():
    order, warps = TensorOrder(), Warps(False)
    for _ in range(1000):
        warps.run(order, ("access", 0, 0, 0, COLUMNS[0]))
        warps.run(order, ("commit", 0, 0, 0, 0))
        assert len(order.epochs()) == 1
    assert len(order._releases) < 70
    assert order.epochs()[0].release.time == 1000
