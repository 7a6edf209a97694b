"""Memory of a call's tensors: as much as its layout needs, and no byte that c shares with another tensor."""

import functools
import itertools
import random
import re

import pytest
import torch

import reference
import submission

# Sizes with a c whose bytes are a multiple of ALIGNMENT, so that a tensor may start where it ends.
PROBLEMS = {
    "group_gemm": functools.partial(reference.generate_input, m=(72, 72), n=(128, 128), k=(256, 512), g=2),
    "gemm": functools.partial(reference.generate_gemm_input, m=72, n=136, k=256, l=2),
    "dual_gemm": functools.partial(reference.generate_dual_gemm_input, m=72, n=136, k=256, l=2),
    "gemv": functools.partial(reference.generate_gemv_input, m=72, k=256, l=2),
}


@functools.cache
def problem_data(problem):
    return PROBLEMS[problem](seed=7)


def layouts_of(data):
    call = submission.unpack(data)
    return submission.tensor_layouts(call.problems, call.products)


def tensors_of(data):
    """The tensors of a call by their names in messages."""
    return dict(zip(layouts_of(data).names, submission.unpack(data).tensors))


# Every tensor of every problem that is read or written.
TENSORS = [(problem, name) for problem in PROBLEMS for name in tensors_of(problem_data(problem))]
OPERANDS = [(problem, name) for problem, name in TENSORS if name[-1] != "c"]


def with_tensors(value, **changes):
    """A call's tuple, or a part of it, with other tensors in the places of those with these names."""
    changes = {id(tensors_of(value)[name]): tensor for name, tensor in changes.items()}

    def changed(part):
        if isinstance(part, (list, tuple)):
            return type(part)(map(changed, part))
        return changes.get(id(part), part)

    return changed(value)


CALLS = 500  # calls per kernel, at random addresses


def bytes_buffer(nbytes):
    return torch.zeros(nbytes, dtype=torch.uint8, device="cuda")


def placed(tensor, buffer, offset):
    """A tensor of the same shape, strides and dtype on the bytes of a buffer from `offset` on."""
    return buffer[offset : offset + tensor.nbytes].view(tensor.dtype).as_strided(tensor.shape, tensor.stride())


def fresh(tensor, before=0, behind=0):
    """A copy of the tensor in memory of its own, with bytes before and behind it."""
    return placed(tensor, bytes_buffer(before + tensor.nbytes + behind), before)


@pytest.fixture
def launches(monkeypatch):
    """The plans that calls would have launched. Nothing is launched."""
    plans = []
    monkeypatch.setattr(submission, "compiled", lambda plan: lambda table: plans.append(plan))
    return plans


# ---- Memory that is there ----


@pytest.fixture(autouse=True, params=["the first call", "after a legal call"])
def calls_before(request):
    """A test runs without and after legal calls, whose memory must decide nothing."""
    submission.tensor_layouts.cache_clear()
    if request.param == "after a legal call":
        for problem in PROBLEMS:
            submission.check(submission.unpack(problem_data(problem)))


def resized(tensor, nbytes):
    tensor = fresh(tensor)
    tensor.untyped_storage().resize_(nbytes)
    return tensor


def sparse(tensor):
    # The emulated device has no sparse tensors.
    device = "cpu" if "emulated" in torch.cuda.get_device_name() else "cuda"
    values = torch.zeros(1, dtype=torch.uint8, device=device).repeat(tensor.element_size()).view(tensor.dtype)
    place = torch.zeros(tensor.dim(), 1, dtype=torch.int64, device=device)
    return torch.sparse_coo_tensor(place, values, size=tensor.shape, check_invariants=False)


def view_cut_to(tensor, nbytes):
    """A view from byte 64 on, of a storage that has `nbytes` bytes left."""
    view = fresh(tensor, before=64)
    view.untyped_storage().resize_(nbytes)
    return view


# Kind -> the tensor, and the number of bytes that it has of those that it needs.
TOO_LITTLE = {
    "meta": (lambda t: t.to("meta"), lambda needed: 0),
    "sparse": (sparse, lambda needed: 0),
    "storage of 0 bytes": (lambda t: resized(t, 0), lambda needed: 0),
    "one byte less": (lambda t: resized(t, t.nbytes - 1), lambda needed: needed - 1),
    "half": (lambda t: resized(t, t.nbytes // 2), lambda needed: needed // 2),
    "view, storage of 0 bytes": (lambda t: view_cut_to(t, 0), lambda needed: 0),
    "view, storage that ends before it": (lambda t: view_cut_to(t, 32), lambda needed: 0),
    "view, one byte less": (lambda t: view_cut_to(t, 64 + t.nbytes - 1), lambda needed: needed - 1),
}


@pytest.mark.parametrize("kind", TOO_LITTLE)
@pytest.mark.parametrize(("problem", "name"), TENSORS)
def test_too_little_memory(launches, problem, name, kind):
    """The message has the numbers of available and needed bytes, also after the same call has passed."""
    data = problem_data(problem)
    submission.solve(data)
    launches.clear()
    make, there = TOO_LITTLE[kind]
    tensor = tensors_of(data)[name]
    with pytest.raises(ValueError, match=rf"^{name} .*\b{there(tensor.nbytes)} bytes.*\b{tensor.nbytes} needed$"):
        submission.solve(with_tensors(data, **{name: make(tensor)}))
    assert not launches


@pytest.mark.parametrize(("before", "behind"), [(0, 0), (0, 48), (64, 0), (64, 48)])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_views_of_longer_storages(launches, problem, before, behind):
    data = problem_data(problem)
    views = {name: fresh(tensor, before, behind) for name, tensor in tensors_of(data).items()}
    submission.solve(with_tensors(data, **views))
    assert launches


def test_memory_that_shrinks_between_calls(launches):
    data = with_tensors(problem_data("gemm"), c=fresh(problem_data("gemm")[-1]))
    submission.solve(data)
    data[-1].untyped_storage().resize_(data[-1].nbytes - 16)
    with pytest.raises(ValueError, match="^c has"):
        submission.solve(data)
    data[-1].untyped_storage().resize_(data[-1].nbytes)
    submission.solve(data)
    assert len(launches) == 2


def test_a_tensor_that_changes_at_its_address(launches):
    """Memory of earlier calls at an address says nothing about the tensor there."""
    data = problem_data("gemm")
    submission.solve(data)
    c = data[-1]
    for other in (c.view(torch.bfloat16), c.as_strided(c.shape, (136, 1, 9784)), c[:71]):
        assert other.data_ptr() == c.data_ptr()
        with pytest.raises(ValueError, match="^c has"):
            submission.solve(with_tensors(data, c=other))
    assert len(launches) == 1


@pytest.mark.parametrize("problem", PROBLEMS)
def test_addresses_of_0(problem):
    """A tensor of the right kind and size may have no memory: torch's fake tensors."""
    call = submission.unpack(problem_data(problem))
    addresses = [tensor.data_ptr() for tensor in call.tensors]
    for index, name in enumerate(layouts_of(problem_data(problem)).names):
        changed = (*addresses[:index], 0, *addresses[index + 1 :])
        with pytest.raises(ValueError, match=f"^{name} starts at address 0x0; loads need a multiple of 16 bytes"):
            submission.check_addresses(changed, call.problems, call.products)


# ---- Memory that is shared ----


def overlap(data, c, other, buffer_bytes, c_at, other_at):
    """The call with two tensors on one buffer, and the message that is expected."""
    tensors, buffer = tensors_of(data), bytes_buffer(buffer_bytes)
    found = {c: placed(tensors[c], buffer, c_at), other: placed(tensors[other], buffer, other_at)}
    first = buffer.data_ptr() + max(c_at, other_at)
    last = buffer.data_ptr() + min(c_at + tensors[c].nbytes, other_at + tensors[other].nbytes) - 1
    return with_tensors(data, **found), f"^{c} and {other} share bytes {first:#x} to {last:#x}; a c has"


# Name -> where c and the other tensor start, from the bytes of both.
PLACES = {
    "same start": lambda c, other: (0, 0),
    "c's last bytes": lambda c, other: (0, c - 16),
    "c's first bytes": lambda c, other: (-(-other // 16) * 16 - 16, 0),
    "inside": lambda c, other: (0, (c - other) // 32 * 16) if c > other else ((other - c) // 32 * 16, 0),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("problem", "name"), OPERANDS)
def test_c_over_an_operand(launches, problem, name, place):
    data = problem_data(problem)
    tensors = tensors_of(data)
    for c in [c for c in tensors if c[-1] == "c"]:
        starts = PLACES[place](tensors[c].nbytes, tensors[name].nbytes)
        changed, message = overlap(data, c, name, tensors[c].nbytes + tensors[name].nbytes + 16, *starts)
        for _ in range(2):
            with pytest.raises(ValueError, match=message):
                submission.solve(changed)
    assert not launches


@pytest.mark.parametrize(("problem", "name"), OPERANDS)
def test_c_next_to_an_operand(launches, problem, name):
    data = problem_data(problem)
    tensors = tensors_of(data)
    c, other = next(t for n, t in tensors.items() if n[-1] == "c"), tensors[name]
    ceiling = -(-other.nbytes // 16) * 16
    for c_at, other_at in ((0, c.nbytes), (ceiling, 0)):
        buffer = bytes_buffer(c.nbytes + ceiling)
        c_name = next(n for n in tensors if n[-1] == "c")
        submission.solve(with_tensors(data, **{c_name: placed(c, buffer, c_at), name: placed(other, buffer, other_at)}))
    assert len(launches) == 2


@pytest.mark.parametrize("shift", [0, 16, 72 * 128 * 2 - 16])
def test_c_of_two_groups(launches, shift):
    changed, message = overlap(problem_data("group_gemm"), "group 0: c", "group 1: c", 1 << 16, 0, shift)
    with pytest.raises(ValueError, match=message):
        submission.solve(changed)
    assert not launches


def test_outputs_of_two_groups(launches):
    """A c may have no gaps: columns of one buffer share no byte, and their strides are refused."""
    abc, row_major, reordered, sizes = problem_data("group_gemm")
    same = [(a, b, abc[0][2]) for a, b, _ in abc]
    with pytest.raises(ValueError, match="^group 0: c and group 1: c share bytes"):
        submission.solve((same, row_major, reordered, sizes))
    assert not launches
    buffer = torch.zeros(72, 256, 1, dtype=torch.float16, device="cuda")
    columns = {"group 0: c": buffer[:, :128], "group 1: c": buffer[:, 128:]}
    with pytest.raises(ValueError, match="^group 0: c has strides"):
        submission.solve(with_tensors(problem_data("group_gemm"), **columns))
    assert not launches
    changed, _ = overlap(problem_data("group_gemm"), "group 0: c", "group 1: c", 1 << 16, 0, 72 * 128 * 2)
    assert submission.solve(changed) and launches


def test_an_output_inside_an_operand_behind_another_one(launches):
    """The tensor that starts just before c ends before c; the tensor that contains c starts earlier."""
    data, tensors = problem_data("gemm"), tensors_of(problem_data("gemm"))
    buffer = bytes_buffer(1 << 16)
    changes = {"b": placed(tensors["b"], buffer, 0), "sfa": placed(tensors["sfa"], buffer, 16)}
    assert 16 + tensors["sfa"].nbytes < 8192 < tensors["b"].nbytes
    with pytest.raises(ValueError, match="^c and b share bytes"):
        submission.solve(with_tensors(data, **changes, c=placed(tensors["c"], buffer, 8192)))
    assert not launches
    submission.solve(with_tensors(data, **changes))
    assert launches


def test_operands_may_share():
    """Two groups with the same weights, and a c of its own each."""
    (a, b, c), (_, _, other_c) = problem_data("group_gemm")[0]
    (sfa, sfb), row_major = problem_data("group_gemm")[2][0], problem_data("group_gemm")[1][0]
    data = [(a, b, c), (a, b, other_c)], [row_major] * 2, [(sfa, sfb)] * 2, [(72, 128, 256, 1)] * 2
    outputs = submission.solve(data)
    assert reference.check_implementation(data, outputs) == (True, "bit-exact")


@pytest.mark.parametrize("shared", [0, 16, 128])
def test_empty_groups_share_nothing(launches, shared):
    """A c without rows may lie anywhere."""
    data = reference.generate_input(m=(0, 72, 0), n=(128, 128, 128), k=(256, 256, 256), g=3, seed=7)
    tensors = tensors_of(data)
    empty = tensors["group 1: c"][shared // 16 : shared // 16]
    assert empty.shape == tensors["group 0: c"].shape
    submission.solve(with_tensors(data, **{"group 0: c": empty, "group 2: c": empty}))
    assert launches


def test_the_same_addresses_in_a_larger_problem(launches):
    """Smaller tensors that passed at these addresses do not vouch for larger ones."""
    buffer = bytes_buffer(1 << 16)

    def call(m):
        data = reference.generate_input(m=(m, m), n=(128, 128), k=(256, 512), g=2, seed=7)
        places = {"group 0: c": 0, "group 1: c": 64 * 128 * 2}
        tensors = tensors_of(data)
        return with_tensors(data, **{name: placed(tensors[name], buffer, at) for name, at in places.items()})

    submission.solve(call(64))
    with pytest.raises(ValueError, match="^group 0: c and group 1: c share"):
        submission.solve(call(65))
    submission.solve(call(64))
    assert len(launches) == 2


def shared_bytes(first, second):
    return range(max(first.start, second.start), min(first.stop, second.stop))


@pytest.mark.parametrize("products", [0, 1, 2])
def test_random_addresses_against_every_pair(products):
    """Tensors at random places of a small memory are refused if c and another tensor overlap, and only then."""
    rng, refused = random.Random(products), 0
    for _ in range(CALLS):
        n = 128 if products == 0 else 8  # number of b's rows where m is a's
        groups = rng.randint(1, 4) if products == 1 else 1
        problems = tuple(
            (rng.choice((8, 16) if products == 0 else (1, 8, 16)), n, 64, rng.randint(1, 2)) for _ in range(groups)
        )
        names, _, _, _, sizes, _ = submission.tensor_layouts(problems, products)
        most = rng.choice((200, 600, 2000, 6000, 20000))
        addresses = tuple(16 * rng.randint(1, most) for _ in names)
        spans = [range(start, start + size) for start, size in zip(addresses, sizes)]
        clashes = {
            f"{names[i]} and {names[j]} share bytes {shared[0]:#x} to {shared[-1]:#x};"
            for i, j in itertools.permutations(range(len(names)), 2)
            if names[i].endswith("c") and (shared := shared_bytes(spans[i], spans[j]))
        }
        try:
            submission.check_addresses(addresses, problems, products)
            message = None
        except ValueError as error:
            message = re.match(".*?;", str(error)).group()
        assert message in clashes if clashes else message is None
        refused += bool(clashes)
    assert CALLS // 10 < refused < CALLS - CALLS // 10
