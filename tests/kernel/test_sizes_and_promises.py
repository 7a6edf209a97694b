"""The numbers of a call: problem sizes are integers, promises are bools, after any earlier calls."""

import ctypes
import itertools
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

import reference
import submission

OTHERS = (256, 512, 1)  # n, k and l of the group with the tested m


@pytest.fixture
def launches(monkeypatch):
    """The plans that calls would have launched. Nothing is launched, and nothing is remembered."""
    for remembered in (submission.tensor_layouts, submission.configure):
        remembered.cache_clear()
    plans = []
    monkeypatch.setattr(submission, "compiled", lambda plan: lambda table: plans.append(plan))
    return plans


def inputs(m, size):
    """Two groups' input, the second of m tokens; in its problem size m is `size`."""
    *tensors, problems = reference.generate_input(m=(40, m), n=(128, 256), k=(256, 512), g=2, seed=7)
    return *tensors, [problems[0], (size, *OTHERS)]


# Some of these values are equal to 64 and have its hash.
NO_INTEGERS = [
    *(64.0, 64.5, np.float64(64), np.float16(64), 64 + 0j, np.complex128(64), Fraction(64), Decimal(64)),
    *("64", None, [64], (64,), {64}, np.array([64, 64]), torch.tensor([64, 64]), torch.tensor(64.0)),
]


@pytest.mark.parametrize("after_integers", [False, True])
@pytest.mark.parametrize("value", NO_INTEGERS, ids=lambda value: f"{type(value).__name__} {value}")
def test_sizes_that_are_no_integers(launches, value, after_integers):
    if after_integers:
        submission.solve(inputs(64, 64))
        assert launches.pop()
    sizes = re.escape(f"({value!r}, {', '.join(map(str, OTHERS))})")
    with pytest.raises(ValueError, match=f"^group 1: expected .*integers; its sizes are {sizes}: .* (integer|index)"):
        submission.solve(inputs(64, value))
    assert not launches


@pytest.mark.parametrize("after_integers", [False, True])
def test_numpy_s_bool_is_no_integer(launches, after_integers):
    if after_integers:
        submission.solve(inputs(1, 1))
        assert launches.pop()
    with pytest.raises(ValueError, match=r"^group 1: .*its sizes are \((np\.)?True_?, 256, 512, 1\)"):
        submission.solve(inputs(1, np.True_))
    assert not launches


@pytest.mark.parametrize("after_integers", [False, True])
@pytest.mark.parametrize(
    ("m", "convert"),
    [(1, bool), (0, bool), (64, np.int64), (64, np.uint8), (64, np.array), (64, torch.tensor)],
    ids=["True", "False", "int64", "uint8", "array", "tensor"],
)
def test_integers_of_any_type(launches, m, convert, after_integers):
    """A value counts as the integer that it is; a bool is 0 or 1."""
    if after_integers:
        submission.solve(inputs(m, m))
    data = inputs(m, convert(m))
    (found, size) = submission.unpack(data).problems
    assert size == (m, *OTHERS) and {type(value) for value in (*found, *size)} == {int}
    assert submission.solve(data) == [c for _, _, c in data[0]]
    assert len(launches) == 1 + after_integers


@pytest.mark.parametrize("promise", ["operands_ready", "output_free"])
@pytest.mark.parametrize("value", [2, 1, 0, None, "x", "", np.True_, torch.ones(2)], ids=repr)
def test_a_promise_is_a_bool(launches, promise, value):
    """No other value passes: neither 2, which is the other promise's bit, nor a mistake in the argument's place."""
    with pytest.raises(TypeError, match=f"{promise} is {re.escape(repr(value))}.*; a promise is True or False"):
        submission.solve(inputs(64, 64), **{promise: value})
    assert not launches


@pytest.mark.parametrize("promises", list(itertools.product([False, True], repeat=2)), ids=str)
def test_each_promise_is_a_bit_of_the_host_table(launches, monkeypatch, promises):
    words = []
    monkeypatch.setattr(submission, "host_pointer", lambda address: ctypes.c_int64.from_address(address).value)
    monkeypatch.setattr(submission, "compiled", lambda plan: words.append)
    submission.solve(inputs(64, 64), *promises)
    assert words == [promises[0] * submission.OPERANDS_READY | promises[1] * submission.OUTPUT_FREE]


@pytest.mark.parametrize("promises", list(itertools.product([False, True], repeat=2)), ids=str)
def test_launches_overlap_where_operands_are_ready(launches, monkeypatch, promises):
    """The choice of a configuration depends only on that promise."""
    asked, configure = [], submission.configure
    monkeypatch.setattr(submission, "configure", lambda *how: asked.append(how[2]) or configure(*how))
    submission.solve(inputs(64, 64), *promises)
    assert asked == [promises[0]]
