"""What is remembered of a call holds for the same tensor objects, unchanged; nothing stale passes."""

import ctypes
import gc
import weakref

import pytest
import torch

import reference
import submission
from submission import OPERANDS_READY, OUTPUT_FREE

BOTH = OPERANDS_READY | OUTPUT_FREE


@pytest.fixture(autouse=True)
def nothing_known():
    submission.KNOWN.clear()


@pytest.fixture
def checks(monkeypatch):
    """An entry for each call that is checked in full."""
    seen, check = [], submission.check
    monkeypatch.setattr(submission, "check", lambda call: seen.append(1) or check(call))
    return seen


@pytest.fixture
def promised(monkeypatch):
    """Nothing is launched; the promises of each launch."""
    words = []
    monkeypatch.setattr(submission, "host_tables", submission.host_tables.__wrapped__)
    monkeypatch.setattr(submission, "host_pointer", lambda address: ctypes.c_int64.from_address(address).value)
    monkeypatch.setattr(submission, "compiled", lambda plan: words.append)
    return words


def group_input():
    return reference.generate_input(m=(72, 40), n=(128, 128), k=(256, 512), g=2, seed=7)


PROBLEMS = {
    "group_gemm": group_input,
    "gemm": lambda: reference.generate_gemm_input(m=72, n=136, k=256, l=2, seed=7),
    "dual_gemm": lambda: reference.generate_dual_gemm_input(m=72, n=136, k=256, l=2, seed=7),
    "gemv": lambda: reference.generate_gemv_input(m=72, k=256, l=2, seed=7),
}


def asked(data):
    """(addresses, unwritten) of a call."""
    known, unwritten = submission.checked(submission.unpack(data))
    return known.addresses, unwritten


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_same_tensors_are_checked_once(checks, problem):
    data = PROBLEMS[problem]()
    first, again = asked(data), asked(data)
    assert first == (submission.check(submission.unpack(data)), False) and again == (first[0], True)
    assert len(checks) == 2  # the one of this test included


def resize(t, c):
    t.resize_(71, 128, 1)


def set_elsewhere(t, c):
    t.set_(t.clone())


def cut_storage(t, c):
    t.untyped_storage().resize_(t.untyped_storage().nbytes() - 512)


def free_storage(t, c):
    t.untyped_storage().resize_(0)


def grow_storage(t, c):
    """Legal, at another address."""
    t.untyped_storage().resize_(4 * t.untyped_storage().nbytes())


def data_of_another(t, c):
    t.data = t.clone()


def dtype_by_data(t, c):
    t.data = t.view(torch.uint8)


def strides_in_place(t, c):
    t.as_strided_((72, 128, 1), (1, 72, 1))


def transposed_in_place(t, c):
    t.t_() if t.dim() == 2 else t.transpose_(0, 1)


def shape_by_data(t, c):
    t.data = t[:64]


def memory_of_c(t, c):
    t.set_(c.untyped_storage(), 0, t.size(), t.stride())


CHANGES = [
    *(resize, set_elsewhere, cut_storage, free_storage, grow_storage, data_of_another, dtype_by_data),
    *(strides_in_place, transposed_in_place, shape_by_data, memory_of_c),
]
LEGAL = set_elsewhere, grow_storage, data_of_another


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_tensor_is_checked_again(checks, promised, change):
    """Legal changes pass with the address that is there now, the others are refused as in a first call."""
    data = group_input()
    a, _, c = data[0][0]
    a.data = a.clone()  # a storage of its own
    submission.custom_kernel(data)
    before = a.data_ptr()
    change(a, c)
    if change in LEGAL:
        addresses, unwritten = asked(data)
        assert addresses[1] == a.data_ptr() != before and not unwritten
    else:
        with pytest.raises(ValueError, match="^group 0: (a|c) "):
            submission.custom_kernel(data)
        with pytest.raises(ValueError, match="^group 0: (a|c) "):
            submission.solve(data)
    assert len(checks) >= 2


def test_an_address_that_is_another_tensor_s_is_checked_again(checks):
    """A tensor that has gone takes what is known of its calls with it."""
    data = group_input()
    memory = torch.empty(72 * 128, dtype=torch.uint8, device="cuda")

    def over_memory(shape):
        return memory[: 128 * shape].view(torch.float4_e2m1fn_x2).as_strided((shape, 128, 1), (128, 1, 128 * shape))

    def call(a):
        return [(a, *data[0][0][1:]), data[0][1]], *data[1:]

    asked(call(over_memory(72)))
    gc.collect()
    assert not submission.KNOWN
    with pytest.raises(ValueError, match=r"^group 0: a has shape \(64, 128, 1\)"):
        asked(call(over_memory(64)))
    a = over_memory(72)
    asked(call(a))
    assert asked(call(a))[1] and len(checks) == 3


def test_other_sizes_for_the_same_tensors_are_checked_again():
    data = group_input()
    asked(data)
    for m in (71, 64):
        with pytest.raises(ValueError, match="^group 0: a has shape"):
            asked((*data[:3], [(m, *data[3][0][1:]), data[3][1]]))


def test_another_device_is_checked_again(monkeypatch):
    data = group_input()
    asked(data)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    with pytest.raises(ValueError, match="expected the current device, cuda:1"):
        asked(data)


def test_nothing_that_is_known_keeps_a_tensor():
    data = group_input()
    asked(data)
    gone = [weakref.ref(tensor) for tensor in submission.unpack(data).tensors]
    storage = weakref.ref(data[0][0][0].untyped_storage())
    del data
    gc.collect()
    assert not any(reference() for reference in gone) and storage() is None and not submission.KNOWN


def test_what_is_known_has_a_limit(monkeypatch):
    monkeypatch.setattr(submission, "KNOWN_MAX", 2)
    every = [group_input() for _ in range(5)]
    for data in every:
        asked(data)
        assert len(submission.KNOWN) <= 2


def test_promises_are_made_for_tensors_that_were_there_before(promised):
    """A first call waits, on copies too; the same tensors again do not, unless torch has written one."""
    data = group_input()
    copies = [tuple(map(torch.clone, abc)) for abc in data[0]], data[1], data[2], data[3]
    for given in (data, data, copies, copies, data):
        submission.custom_kernel(given)
    assert promised == [0, BOTH, 0, BOTH, BOTH]
    promised.clear()
    for tensor in (data[0][1][0], data[0][0][2], data[2][1][0]):  # an operand, a c, scale factors
        tensor.copy_(tensor.clone())
        submission.custom_kernel(data)
        submission.custom_kernel(data)
    assert promised == [0, BOTH] * 3


def test_solve_promises_what_its_caller_promises(promised):
    data = group_input()
    submission.solve(data, operands_ready=True)
    submission.solve(data, output_free=True)
    submission.solve(data)
    assert promised == [OPERANDS_READY, OUTPUT_FREE, 0]


def test_uncounted_writes_leave_no_promise(promised):
    """Torch counts no writes to tensors of inference mode."""
    with torch.inference_mode():
        data = group_input()
        for _ in range(3):
            submission.custom_kernel(data)
    assert promised == [0, 0, 0]
