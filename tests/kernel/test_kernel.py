"""The kernel's PTX, run by the GPU or the emulator, bit for bit against the float64 product."""

import pytest
import torch

import reference
import submission
from harness import plan_report
from tests.support.configurations import EMULATED, SINGLE, label, solver
from tests.support.slow import sampled


def solve_and_compare(sizes, seed=1, solve=submission.solve):
    m, n, k = zip(*sizes)
    data = reference.generate_input(m=m, n=n, k=k, g=len(sizes), seed=seed)
    got = solve(data)
    outputs = [c for _, _, c in data[0]]
    assert all(ours is theirs for ours, theirs in zip(got, outputs)), "solve returns the caller's tensors"
    found = [c.clone() for c in got]
    want = reference.ref_kernel(data)
    for group, (ours, theirs) in enumerate(zip(found, want)):
        assert torch.equal(ours.view(torch.int16), theirs.view(torch.int16)), f"group {group} of {sizes}"


@pytest.fixture(scope="module", params=sampled(SINGLE, 7), ids=label)
def configuration(request):
    """Each configuration of one product; test_problems.py has the others."""
    return request.param


def few_sms(shape):
    """Number of SMs at which a CTA runs many tiles and every pipeline wraps."""
    return max(3, shape.cta_group * shape.neighbours)


def tokens(shape, m):
    """The number of tokens that the configuration takes, at most m."""
    return min(m, 16) if shape.token_tile == 16 else m


def fitting(shape, sizes):
    return [(tokens(shape, m), n, k) for m, n, k in sizes]


@pytest.mark.parametrize(
    "sizes",
    [
        [(128, 128, 256)],
        [(1, 8, 64)],
        [(129, 136, 320)],
        [(65, 120, 192), (7, 264, 128), (300, 8, 1024), (1, 512, 64)],
        [(384, 256, 64), (64, 384, 1856), (2, 16, 64), (1, 8, 320)],
    ],
    ids=str,
)
def test_tails(sizes, configuration):
    solve_and_compare(fitting(configuration, sizes), solve=solver(configuration))


def test_many_tiles_per_cta(configuration):
    """Stages and accumulators wrap across tiles of different groups, and the load warps change places in between.

    Some groups have an odd number of tiles, and neighbours have the same weight rows or others.
    """
    sizes = [(300, 264, 576), (130, 136, 256), (16, 256, 1088), (385, 128, 64)]
    solve_and_compare(fitting(configuration, sizes), solve=solver(configuration, sms=few_sms(configuration)))


@pytest.fixture(scope="module", params=sampled([shape for shape in SINGLE if shape.token_tile == 192], 4), ids=label)
def tiles_of_192(request):
    return request.param


@pytest.mark.parametrize("m", sampled([65, 64, 128, 192, 193, 256, 257, 320, 384, 385], 4))
def test_tiles_of_one_and_a_half_atoms(tiles_of_192, m):
    """Odd tiles begin in the middle of an atom of scale factors; the second atom of a tile may lie past M."""
    solve_and_compare([(m, 136, 320)], m, solver(tiles_of_192))


def test_tiles_of_one_and_a_half_atoms_one_after_the_other(tiles_of_192):
    sizes = [(385, 264, 320), (320, 136, 64), (193, 136, 832), (128, 8, 256)]
    solve_and_compare(sizes, solve=solver(tiles_of_192, sms=few_sms(tiles_of_192)))


def test_empty_groups_are_dropped():
    solve_and_compare([(0, 128, 256), (72, 128, 256), (0, 256, 512)])


def test_groups_that_launch_nothing(monkeypatch):
    """The entry point promises nothing; its result is that of `solve`."""
    monkeypatch.setattr(submission, "compiled", lambda plan: pytest.fail("launched"))
    data = reference.generate_input(m=(0, 0), n=(128, 128), k=(256, 256), g=2, seed=1)
    assert [tuple(c.shape) for c in submission.solve(data)] == [(0, 128, 1), (0, 128, 1)]
    assert submission.solve(([], [], [], [])) == []
    calls = []
    monkeypatch.setattr(submission, "solve", lambda *arguments: calls.append(arguments) or "outputs")
    assert submission.custom_kernel("data") == "outputs"
    assert calls == [("data",)]


def small_groups(count):
    return [(1 + group % 5, 8 + 8 * (group % 3), 64) for group in range(count)]


def test_more_groups_than_one_launch_holds():
    solve_and_compare(small_groups(submission.MAX_GROUPS + 2))


@pytest.mark.parametrize("m", [70, 201])
def test_nothing_outside_c_is_written(configuration, m):
    """Rows past M and columns past N of the last tiles must not reach memory: canaries on all sides stay."""
    m, n, k = tokens(configuration, m), 136, 192
    (((a, b, _),), scales, reordered, sizes) = reference.generate_input(m=(m,), n=(n,), k=(k,), g=1, seed=3)
    guard = 64 * n  # more rows on either side than a tile has past M
    buffer = torch.full((guard + m * n + guard,), 777.0, dtype=torch.float16, device="cuda")
    c = buffer[guard : guard + m * n].view(1, m, n).permute(1, 2, 0)
    data = ([(a, b, c)], scales, reordered, sizes)
    solver(configuration)(data)
    found = buffer.clone()
    want = reference.ref_kernel(data)[0]
    assert torch.equal(found[guard : guard + m * n].view(m, n), want[:, :, 0])
    assert bool((found[:guard] == 777.0).all()) and bool((found[guard + m * n :] == 777.0).all())


@pytest.mark.parametrize("m", [70, 200])
def test_scale_padding_is_never_used(configuration, m):
    """Scale bytes of rows past M and N are garbage by contract; NaN there must not spread."""
    m = tokens(configuration, m)
    data = reference.generate_input(m=(m,), n=(136,), k=(192,), g=1, seed=5)
    rows = torch.arange(128, device="cuda")
    for tensor, size in zip(data[2][0], (m, 136)):
        last = tensor.view(torch.uint8)[:, :, -1]
        past = rows[rows >= size % 128]
        last[past % 32, past // 32] = 0x7F
    solver(configuration)(data)
    found = data[0][0][2].clone()
    assert torch.equal(found, reference.ref_kernel(data)[0])


@pytest.mark.skipif(not EMULATED, reason="the emulator counts bytes")
def test_loads_read_what_the_schedule_says(configuration):
    """Requested bytes of each operand, over groups of different sizes."""
    import nogpu

    m, n, k = zip(*fitting(configuration, [(130, 264, 320), (300, 136, 576), (40, 8, 64), (7, 8, 256)]))
    data = reference.generate_input(m=m, n=n, k=k, g=4, seed=6)
    nogpu.reset_counters()
    solver(configuration)(data)
    (counters,) = nogpu.counters()
    (launch,) = submission.configure(tuple(data[3]), submission.sm_count(0), False, 1, (configuration,))
    requested = {int(key.partition("@")[2] or key, 16): count for key, (count, _) in counters.per_allocation.items()}
    wanted = plan_report.requested(launch.schedule)
    found = dict.fromkeys(wanted, 0)
    for (a, b, _), (sfa, sfb) in zip(data[0], data[2]):
        for name, tensor in {"weights": b, "tokens": a, "weight SF": sfb, "token SF": sfa}.items():
            found[name] += requested[tensor.untyped_storage().data_ptr()]
    assert found == wanted
