"""Every constraint of the kernel is checked before a launch, and the message names the value and the limit."""

import pytest
import torch

import reference
import submission

SIZES = {"m": (72, 40), "n": (128, 256), "k": (256, 512), "g": 2, "seed": 7}


@pytest.fixture
def data():
    return reference.generate_input(**SIZES)


def replaced(data, where, group, index, value):
    """The input tuple with one tensor, or one number of a problem size, replaced."""
    lists = [list(part) for part in data]
    entry = list(lists[where][group])
    entry[index] = value(entry[index])
    lists[where][group] = tuple(entry)
    return tuple(lists)


OPERANDS, SCALES, SIZES_AT = 0, 2, 3


def misaligned(t):
    """The same shape, strides and dtype, starting 8 bytes past an allocation's beginning."""
    itemsize = t.element_size()
    shift = 8 // itemsize
    buffer = torch.zeros(t.numel() + shift, dtype=torch.uint8 if itemsize == 1 else t.dtype, device="cuda")
    return buffer[shift:].view(t.dtype).as_strided(t.shape, t.stride())


def strided(t):
    """The same shape and dtype with rows one row's length further apart."""
    rows, columns, _ = t.shape
    buffer = torch.zeros(2 * t.numel(), dtype=torch.uint8 if t.element_size() == 1 else t.dtype, device="cuda")
    return buffer.view(t.dtype).as_strided(t.shape, (2 * columns, 1, 1))


@pytest.mark.parametrize(
    ("where", "group", "index", "value", "message"),
    [
        (SIZES_AT, 1, 3, lambda _: 2, "group 1: l is 2"),
        (SIZES_AT, 0, 0, lambda _: -1, "group 0: m is -1; it must be 0 to"),
        (SIZES_AT, 0, 1, lambda _: 4, "group 0: n is 4"),
        (SIZES_AT, 0, 1, lambda _: 132, "group 0: n is 132"),
        (SIZES_AT, 1, 2, lambda _: 0, "group 1: k is 0"),
        (SIZES_AT, 1, 2, lambda _: 96, "group 1: k is 96"),
        (SIZES_AT, 0, 0, lambda _: 73, r"group 0: a has shape \(72, 128, 1\); expected \(73, 128, 1\)"),
        (OPERANDS, 0, 1, lambda t: t[:64], r"group 0: b has shape \(64, 128, 1\)"),
        (OPERANDS, 1, 2, lambda t: t.to(torch.bfloat16), "group 1: c has dtype torch.bfloat16"),
        (OPERANDS, 1, 0, lambda t: t.view(torch.uint8), "group 1: a has dtype torch.uint8"),
        (OPERANDS, 0, 2, lambda t: t.cpu(), "group 0: c is on cpu"),
        (OPERANDS, 0, 2, strided, "group 0: c has strides"),
        (OPERANDS, 0, 0, strided, "group 0: a has strides"),
        (OPERANDS, 0, 2, misaligned, "group 0: c starts at address .* a multiple of 16 bytes"),
        (SCALES, 0, 1, misaligned, "group 0: sfb_reordered starts at address"),
        (SCALES, 1, 0, lambda t: t.contiguous(), "group 1: sfa_reordered has strides"),
        (SCALES, 1, 0, lambda t: t.view(torch.uint8), "group 1: sfa_reordered has dtype torch.uint8"),
    ],
)
def test_violations_name_group_value_and_limit(data, where, group, index, value, message):
    with pytest.raises(ValueError, match=message):
        submission.solve(replaced(data, where, group, index, value))


def test_lists_of_different_lengths(data):
    abc, row_major, reordered, sizes = data
    with pytest.raises(ValueError, match="2 groups of operands, 2 of reordered scales, 1 of problem sizes"):
        submission.solve((abc, row_major, reordered, sizes[:1]))


def test_something_else_than_the_tuple():
    with pytest.raises(ValueError, match="expected the tuple"):
        submission.solve((1, 2, 3))


def test_strides_of_single_entry_dimensions_are_free(data):
    """torch leaves the stride of a dimension of size 1 open; so does the check."""
    c = data[0][0][2]
    odd = replaced(data, OPERANDS, 0, 2, lambda t: t.as_strided(t.shape, (t.stride(0), 1, 12345)))
    assert submission.check(odd)[0][2] == c.data_ptr()


def test_addresses_and_sizes(data):
    (a, b, c), (sfa, sfb) = data[0][0], data[2][0]
    addresses, problems = submission.check(data)
    assert addresses[:5] == [t.data_ptr() for t in (b, a, c, sfb, sfa)] and problems == tuple(data[3])


@pytest.mark.parametrize("where", [OPERANDS, SCALES, 3])
def test_a_group_with_too_few_members_is_named(data, where):
    parts = list(data)
    parts[where] = [parts[where][0], parts[where][1][:-1]]
    with pytest.raises(ValueError, match=r"group 1: expected \(a, b, c\), \(sfa, sfb\) and \(m, n, k, l\)"):
        submission.solve(tuple(parts))


def test_something_else_than_a_tensor(data):
    with pytest.raises(ValueError, match="group 1: a is a list; expected a torch.Tensor"):
        submission.solve(replaced(data, OPERANDS, 1, 0, lambda t: [1, 2]))


@pytest.mark.parametrize("value", [64.5, "64", None])
def test_sizes_that_are_no_integers(data, value):
    with pytest.raises(ValueError, match="group 0: .* cannot be interpreted as an integer"):
        submission.solve(replaced(data, SIZES_AT, 0, 0, lambda _: value))


def test_a_group_that_is_nothing(data):
    abc, row_major, reordered, sizes = data
    with pytest.raises(ValueError, match=r"group 1: expected \(a, b, c\)"):
        submission.solve(([abc[0], None], row_major, reordered, sizes))


def test_explain_checks_sizes_and_says_when_there_is_nothing(capsys):
    with pytest.raises(ValueError, match="group 0: n is 100"):
        submission.explain([(64, 100, 128, 1)], 148)
    submission.explain([(0, 128, 128, 1)], 148)
    assert "nothing to launch" in capsys.readouterr().out
