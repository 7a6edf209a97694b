"""Every constraint of the kernel is checked before a launch, and the message names the value and the limit."""

import pytest
import torch

import reference
import submission

SIZES = {"m": (72, 40), "n": (128, 256), "k": (256, 512), "g": 2, "seed": 7}


@pytest.fixture
def data():
    return reference.generate_input(**SIZES)


@pytest.fixture(autouse=True, params=["the first call", "after a legal call", "without torch's guards"])
def calls_before(request, monkeypatch, gemm, dual):
    """A test runs without and after a legal call, whose memory must decide nothing."""
    submission.tensor_layouts.cache_clear()
    if request.param == "without torch's guards":
        monkeypatch.setattr(submission, "TensorGuards", None)
    if request.param != "the first call":
        for legal in (reference.generate_input(**SIZES), gemm, dual):
            submission.check(submission.unpack(legal))


def on_the_cpu(t):
    return t.cpu()


def test_tensors_of_a_known_layout_are_checked_at_once(monkeypatch, data):
    """Tensors of another known layout are, too; tensors of an unknown layout are checked one by one."""
    submission.check(submission.unpack(data))
    looked_at = []
    monkeypatch.setattr(submission, "check_tensor", lambda tensor, device, name, *expected: looked_at.append(name))
    submission.check(submission.unpack(reference.generate_input(**{**SIZES, "seed": 8})))
    assert len(looked_at) == (0 if submission.TensorGuards else 10)
    odd = replaced(data, OPERANDS, 0, 2, lambda t: t.as_strided(t.shape, (t.stride(0), 1, 12345)))
    submission.check(submission.unpack(odd))
    assert len(looked_at) == (10 if submission.TensorGuards else 20)


def replaced(data, where, group, index, value):
    """The input tuple with one tensor, or one number of a problem size, replaced."""
    lists = [list(part) for part in data]
    entry = list(lists[where][group])
    entry[index] = value(entry[index])
    lists[where][group] = tuple(entry)
    return tuple(lists)


OPERANDS, SCALES, SIZES_AT = 0, 2, 3


def misaligned(t):
    """A tensor with these shape, strides and dtype that starts 8 bytes past an allocation's beginning."""
    itemsize = t.element_size()
    shift = 8 // itemsize
    buffer = torch.zeros(t.numel() + shift, dtype=torch.uint8 if itemsize == 1 else t.dtype, device="cuda")
    return buffer[shift:].view(t.dtype).as_strided(t.shape, t.stride())


def strided(t):
    """A tensor with this shape and dtype whose rows are one row's length further apart."""
    rows, columns, _ = t.shape
    buffer = torch.zeros(2 * t.numel(), dtype=torch.uint8 if t.element_size() == 1 else t.dtype, device="cuda")
    return buffer.view(t.dtype).as_strided(t.shape, (2 * columns, 1, 1))


@pytest.mark.parametrize(
    ("where", "group", "index", "value", "message"),
    [
        (SIZES_AT, 1, 3, lambda _: 0, "group 1: l is 0; it must be 1 to"),
        (SIZES_AT, 1, 3, lambda _: -1, "group 1: l is -1"),
        (SIZES_AT, 1, 3, lambda _: 2, r"group 1: b has shape \(256, 256, 1\); expected \(256, 256, 2\)"),
        (SIZES_AT, 0, 0, lambda _: -1, "group 0: m is -1; it must be 0 to"),
        (SIZES_AT, 0, 1, lambda _: 4, "group 0: n is 4"),
        (SIZES_AT, 0, 1, lambda _: 132, "group 0: n is 132"),
        (SIZES_AT, 1, 2, lambda _: 0, "group 1: k is 0"),
        (SIZES_AT, 1, 2, lambda _: 96, "group 1: k is 96"),
        (SIZES_AT, 0, 0, lambda _: 73, r"group 0: a has shape \(72, 128, 1\); expected \(73, 128, 1\)"),
        (OPERANDS, 0, 1, lambda t: t[:64], r"group 0: b has shape \(64, 128, 1\)"),
        (OPERANDS, 1, 2, lambda t: t.to(torch.bfloat16), "group 1: c has dtype torch.bfloat16"),
        (OPERANDS, 1, 0, lambda t: t.view(torch.uint8), "group 1: a has dtype torch.uint8"),
        (OPERANDS, 0, 2, on_the_cpu, "group 0: c is on cpu"),
        (OPERANDS, 0, 2, torch._neg_view, "group 0: c has torch's negative bit"),
        (OPERANDS, 1, 2, lambda t: t.requires_grad_(), "group 1: c requires grad"),
        (OPERANDS, 0, 2, strided, "group 0: c has strides"),
        (OPERANDS, 0, 0, strided, "group 0: a has strides"),
        (OPERANDS, 0, 2, misaligned, "group 0: c starts at address .* a multiple of 16 bytes, not 0"),
        (SCALES, 0, 1, misaligned, "group 0: sfb starts at address"),
        (SCALES, 1, 0, lambda t: t.contiguous(), "group 1: sfa has strides"),
        (SCALES, 1, 0, lambda t: t.view(torch.uint8), "group 1: sfa has dtype torch.uint8"),
    ],
)
def test_violations_name_group_value_and_limit(data, where, group, index, value, message):
    with pytest.raises(ValueError, match=message):
        submission.solve(replaced(data, where, group, index, value))


LENGTHS = r"4 \(group GEMM\), 7 \(.*GEMM.*\) or 10 entries \(dual GEMM\), found {}: \(abc_tensors, .*\(a, b1,"
NO_LISTS = r"expected lists over the groups in the tuple \(abc_tensors, .*problem_sizes\)"
MEMBERS = r"group 1: expected \(a, b, c\), \(sfa, sfb\) and \(m, n, k, l\)"


def with_part(data, where, part):
    return tuple(part(of) if index == where else of for index, of in enumerate(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: (*data[:3], data[3][:1]), "2 groups of operands, 2 of reordered scales, 1 of problem sizes"),
        *((lambda data, n=n: tuple(range(n)), LENGTHS.format(n)) for n in (0, 3, 5, 6, 8, 9, 11)),
        *(
            (lambda data, value=value: value, f"expected a tuple of 4 .*, found {name}")
            for value, name in ((None, "a NoneType"), (7, "a int"), (iter(()), "a tuple_iterator"), ({}, "a dict"))
        ),
        *((lambda data, v=value: v, NO_LISTS) for value in ((1, 2, 3, 4), ([], [], [], None), (None, [], [], []))),
        *(
            (lambda data, at=where: with_part(data, at, lambda part: [part[0], part[1][:-1]]), MEMBERS)
            for where in (OPERANDS, SCALES, SIZES_AT)
        ),
        (lambda data: with_part(data, OPERANDS, lambda part: [part[0], None]), r"group 1: expected \(a, b, c\)"),
        (
            lambda data: replaced(data, OPERANDS, 1, 0, lambda t: [1, 2]),
            "group 1: a is a list; expected a torch.Tensor",
        ),
    ],
)
def test_calls_of_another_form(data, change, message):
    with pytest.raises(ValueError, match=message):
        submission.solve(change(data))


def test_strides_of_single_entry_dimensions_are_free(data):
    """torch leaves the stride of a dimension of size 1 open, and so does the check."""
    c = data[0][0][2]
    odd = replaced(data, OPERANDS, 0, 2, lambda t: t.as_strided(t.shape, (t.stride(0), 1, 12345)))
    assert submission.check(submission.unpack(odd))[2] == c.data_ptr()


def test_addresses_and_sizes(data):
    (a, b, c), (sfa, sfb) = data[0][0], data[2][0]
    call = submission.unpack(data)
    addresses, problems = submission.check(call), call.problems
    assert addresses[:5] == tuple(t.data_ptr() for t in (b, a, c, sfb, sfa)) and problems == tuple(data[3])


# ---- GEMM and dual GEMM ----

PROBLEMS = {1: "gemm", 2: "dual"}  # fixtures
AT = {
    products: {
        name: i for i, name in enumerate(["a", *b, *(f"row-major sf{x}" for x in of), *(f"sf{x}" for x in of), "c"])
    }
    for products, b, of in ((1, ["b"], "ab"), (2, ["b1", "b2"], ["a", "b1", "b2"]))
}


@pytest.fixture(scope="module")
def gemm():
    return reference.generate_gemm_input(m=72, n=136, k=256, l=2, seed=7)


@pytest.fixture(scope="module")
def dual():
    return reference.generate_dual_gemm_input(m=72, n=136, k=256, l=2, seed=7)


@pytest.mark.parametrize(("products", "weights"), [(1, ["b"]), (2, ["b1", "b2"])])
def test_what_is_found_in_a_call(request, products, weights):
    data, places = request.getfixturevalue(PROBLEMS[products]), AT[products]
    call = submission.unpack(data)
    assert (call.products, call.problems, call.outputs) == (products, ((72, 136, 256, 2),), data[-1])
    names = [*weights, "a", "c", *(name.replace("b", "sfb") for name in weights), "sfa"]
    assert submission.check(call) == tuple(data[places[name]].data_ptr() for name in names)


def changed(data, places, name, change):
    entries = list(data)
    entries[places[name]] = change(entries[places[name]])
    return tuple(entries)


def first_batch(t):
    return t[..., :1]


def batch_first(t):
    """A tensor with this shape and the batches between the rows."""
    memory = torch.zeros(t.numel(), dtype=torch.uint8 if t.element_size() == 1 else t.dtype, device="cuda").view(
        t.dtype
    )
    rows, columns, batches = t.shape
    return memory.as_strided(t.shape, (columns * batches, 1, columns))


WRONG = [
    # Kinds.
    ("a", lambda t: [1, 2], "a is list; expected a tensor of 3 dimensions"),
    ("b", lambda t: None, "b1? is NoneType; expected a tensor of 3 dimensions"),
    ("a", lambda t: t[:, :, 0], r"a is \(72, 128\); expected a tensor of 3 dimensions"),
    ("b", lambda t: t[:, :, 0], r"b1? is \(136, 128\); expected a tensor of 3 dimensions"),
    ("c", lambda t: None, "c is a NoneType; expected a torch.Tensor"),
    ("sfa", lambda t: "sfa", "sfa is a str; expected a torch.Tensor"),
    ("sfb", lambda t: 1.0, "sfb1? is a float; expected a torch.Tensor"),
    # Types.
    ("a", lambda t: t.view(torch.uint8), "a has dtype torch.uint8; expected torch.float4_e2m1fn_x2"),
    ("b", lambda t: t.view(torch.int8), "b1? has dtype torch.int8; expected torch.float4_e2m1fn_x2"),
    ("c", lambda t: t.float(), "c has dtype torch.float32; expected torch.float16"),
    ("sfa", lambda t: t.view(torch.uint8), "sfa has dtype torch.uint8; expected torch.float8_e4m3fn"),
    ("sfb", lambda t: t.view(torch.float8_e5m2), "sfb1? has dtype torch.float8_e5m2"),
    # Values that memory cannot hold, and a history that a launch would not belong to.
    ("c", torch._neg_view, "c has torch's negative bit"),
    ("c", lambda t: t.clone().requires_grad_(), "c requires grad"),
    # Places.
    ("c", on_the_cpu, "c is on cpu; expected the current device, cuda:0"),
    ("b", on_the_cpu, "b1? is on cpu"),
    ("sfa", on_the_cpu, "sfa is on cpu"),
    # Shapes: M, N, K and L are those of a and b.
    ("a", lambda t: t[:71], r"a has strides \(128, 1, 9216\); expected \(128, 1, 9088\)"),
    ("c", lambda t: t[:71], r"c has shape \(71, 136, 2\); expected \(72, 136, 2\)"),
    ("b", lambda t: t[:132], "n is 132; it must be 8 to .*, a multiple of 8"),
    ("b", lambda t: t[:0], "n is 0; it must be 8 to"),
    ("a", lambda t: t[:, :112], "k is 224; it must be 64 to .*, a multiple of 64"),
    ("a", lambda t: t[:, :0], "k is 0; it must be 64 to"),
    ("a", lambda t: t[:, :64], r"b1? has shape \(136, 128, 2\); expected \(136, 64, 2\)"),
    ("b", lambda t: t[:, :64], r"b1? has shape \(136, 64, 2\); expected \(136, 128, 2\)"),
    ("c", lambda t: t[:, :128], r"c has shape \(72, 128, 2\); expected \(72, 136, 2\)"),
    ("sfb", lambda t: t[:, :, :1], r"sfb1? has shape \(32, 4, 1, 4, 4, 2\); expected \(32, 4, 2, 4, 4, 2\)"),
    ("sfa", lambda t: t[:, :, :, :, :2], r"sfa has shape \(32, 4, 1, 4, 2, 2\)"),
    # Batches.
    ("a", lambda t: t[..., :0], "l is 0; it must be 1 to"),
    ("a", first_batch, r"b1? has shape \(136, 128, 2\); expected \(136, 128, 1\)"),
    ("b", first_batch, r"b1? has shape \(136, 128, 1\); expected \(136, 128, 2\)"),
    ("c", first_batch, r"c has shape \(72, 136, 1\); expected \(72, 136, 2\)"),
    ("sfa", first_batch, r"sfa has shape \(32, 4, 1, 4, 4, 1\); expected \(32, 4, 1, 4, 4, 2\)"),
    ("sfb", first_batch, r"sfb1? has shape \(32, 4, 2, 4, 4, 1\); expected \(32, 4, 2, 4, 4, 2\)"),
    # Layouts.
    ("a", batch_first, r"a has strides \(256, 1, 128\); expected \(128, 1, 9216\)"),
    ("c", batch_first, r"c has strides \(272, 1, 136\); expected \(136, 1, 9792\)"),
    ("c", lambda t: t.contiguous(), r"c has strides \(272, 2, 1\)"),
    ("sfa", lambda t: t.contiguous(), "sfa has strides"),
    ("sfb", misaligned, "sfb1? starts at address .* a multiple of 16 bytes, not 0"),
    ("b", misaligned, "b1? starts at address .* a multiple of 16 bytes, not 0"),
    ("c", misaligned, "c starts at address .* a multiple of 16 bytes, not 0"),
]


SECOND_WEIGHTS = [
    ("b2", lambda t: None, "b2 is a NoneType"),
    ("b2", lambda t: t[:128], r"b2 has shape \(128, 128, 2\); expected \(136, 128, 2\)"),
    ("b2", first_batch, r"b2 has shape \(136, 128, 1\); expected \(136, 128, 2\)"),
    ("b2", misaligned, "b2 starts at address"),
    ("sfb2", lambda t: t.view(torch.uint8), "sfb2 has dtype torch.uint8"),
    ("sfb2", first_batch, "sfb2 has shape"),
    ("sfb2", lambda t: t.contiguous(), "sfb2 has strides"),
]


@pytest.mark.parametrize(
    ("products", "name", "change", "message"),
    [*((1, *row) for row in WRONG), *((2, *row) for row in WRONG + SECOND_WEIGHTS)],
)
def test_violations_of_other_problems(request, monkeypatch, products, name, change, message):
    monkeypatch.setattr(submission, "compiled", lambda plan: pytest.fail("launched"))
    if products == 2:
        name = {"b": "b1", "sfb": "sfb1"}.get(name, name)
    with pytest.raises(ValueError, match=message):
        submission.solve(changed(request.getfixturevalue(PROBLEMS[products]), AT[products], name, change))


@pytest.mark.parametrize("name", ["row-major sfa", "row-major sfb"])
def test_row_major_scales_of_a_gemm_are_not_looked_at(gemm, name):
    assert submission.check(submission.unpack(changed(gemm, AT[1], name, lambda t: None)))
