"""Results that are wrong, or right in a form that the contract excludes: it wants a plain list of plain tensors."""

import math

import numpy as np
import torch

import reference
from tests.submissions.hostile.kit import kind, patch, right, zeros

TOLERANCE = reference.CONTEST_TOLERANCE


# ---------------------------------------------------------------------------------------------------------------------
# The list
# ---------------------------------------------------------------------------------------------------------------------


@kind()
def empty_iteration(data):
    """A list subclass with the right length over which nothing iterates"""

    class Outputs(list):
        def __iter__(self):
            return iter(())

    return Outputs(zeros(data))


@kind()
def empty_list_of_length(data):
    """An empty list subclass that claims the right length"""

    class Outputs(list):
        def __len__(self):
            return len(data[0])

    return Outputs()


@kind()
def changing_list(data):
    """A list subclass with right tensors at the first look, zeros later"""
    good, bad = right(data), zeros(data)

    class Outputs(list):
        def __getitem__(self, index):
            return good[index]

    return Outputs(bad)


@kind()
def equal_to_all(data):
    """A list subclass that equals everything"""

    class Outputs(list):
        __hash__ = None

        def __eq__(self, other):
            return True

        def __ne__(self, other):
            return False

    return Outputs(zeros(data))


@kind()
def tuple_of_outputs(data):
    """A tuple, zeros"""
    return tuple(zeros(data))


@kind()
def right_tuple(data):
    """A tuple, right: the contract names a list"""
    return tuple(right(data))


@kind()
def generator(data):
    """A generator of the right results, made as they are asked for"""
    return (result for result in right(data))


@kind()
def dictionary(data):
    """A dictionary by group"""
    return dict(enumerate(right(data)))


@kind()
def nested_list(data):
    """A list in a list"""
    return [right(data)]


@kind()
def numpy_arrays(data):
    """NumPy arrays"""
    return [result.cpu().numpy() for result in right(data)]


@kind()
def nothing(data):
    """None"""


@kind()
def no_outputs(data):
    """An empty list"""
    return []


@kind()
def one_more(data):
    """A right list with one tensor too many"""
    return [*right(data), torch.zeros(1, device="cuda")]


@kind()
def one_less(data):
    """A right list without its last tensor"""
    return right(data)[:-1]


@kind()
def other_order(data):
    """Right results in the reverse order"""
    return right(data)[::-1]


# ---------------------------------------------------------------------------------------------------------------------
# The tensors
# ---------------------------------------------------------------------------------------------------------------------


class Equal(torch.Tensor):
    """An object that is equal to everything, close to everything, without a NaN."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ in ("equal", "allclose"):
            return True
        result = super().__torch_function__(func, types, args, kwargs or {})
        if func.__name__ in ("__gt__", "__ne__", "isnan", "isposinf", "isneginf", "gt", "ne"):
            return torch.zeros_like(result.as_subclass(torch.Tensor))
        return result


class Late(torch.Tensor):
    """A tensor that gets its content when the first function looks at it."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            for late in args:
                if isinstance(late, Late) and hasattr(late, "made"):
                    result = vars(late).pop("made")()
                    late.as_subclass(torch.Tensor).copy_(result)
        return super().__torch_function__(func, types, args, kwargs or {})


@kind()
def tensor_subclass(data):
    """A tensor subclass with a __torch_function__ that finds it equal to all"""
    return [output.as_subclass(Equal) for output in zeros(data)]


@kind()
def lazy_tensor(data):
    """A tensor subclass that makes its content when it is looked at"""
    outputs = [output.as_subclass(Late) for output in zeros(data)]
    for output, result in zip(outputs, right(data)):
        output.made = lambda result=result: result
    return outputs


@kind()
def right_subclass(data):
    """Right results in a subclass without any code, torch.nn.Parameter"""
    return [torch.nn.Parameter(result, requires_grad=False) for result in right(data)]


@kind()
def tensor_like(data):
    """An object with a tensor's class, shape, dtype and device and no content"""

    class Like:
        def __init__(self, tensor):
            self.tensor = tensor

        @property
        def __class__(self):
            return torch.Tensor

        def __getattr__(self, name):
            return getattr(self.tensor, name)

    return [Like(output) for output in zeros(data)]


@kind()
def meta_tensors(data):
    """Tensors on the device meta"""
    return [torch.empty_like(result, device="meta") for result in right(data)]


@kind()
def cpu_tensors(data):
    """Right results on the CPU"""
    return [result.cpu() for result in right(data)]


@kind()
def float32_tensors(data):
    """Right results in float32"""
    return [result.float() for result in right(data)]


@kind()
def bfloat16_tensors(data):
    """Right results in bfloat16, of float16's size"""
    return [result.bfloat16() for result in right(data)]


@kind()
def reinterpreted(data):
    """Right bytes with the dtype int16"""
    return [result.view(torch.int16) for result in right(data)]


@kind()
def sparse_tensors(data):
    """Right results in a sparse layout"""
    with torch._C.DisableTorchFunction():
        return [result[:, :, 0].to_sparse().unsqueeze(2) for result in right(data)]


@kind()
def expanded(data):
    """A single element expanded over the shape with strides of 0"""
    return [result[:1, :1].expand_as(result) for result in right(data)]


@kind()
def flat(data):
    """Right elements in a shape without the last dimension"""
    return [result.squeeze(2) for result in right(data)]


@kind()
def transposed(data):
    """Right elements, M and N exchanged"""
    return [result.transpose(0, 1) for result in right(data)]


@kind()
def negative_bit(data):
    """Tensors whose bytes are right and whose values, by torch's lazy negation, have the other sign"""
    return [torch._neg_view(result) for result in right(data)]


@kind()
def no_storage(data):
    """Right shapes over a storage that was resized to nothing"""
    outputs = right(data)
    for output in outputs:
        output.untyped_storage().resize_(0)
    return outputs


@kind()
def slices(data):
    """Right results in one storage, although the parts do not overlap"""
    results = right(data)
    parts = torch.empty(sum(map(torch.numel, results)), dtype=torch.float16, device="cuda").split(
        [result.numel() for result in results]
    )
    return [part.view(result.shape).copy_(result) for part, result in zip(parts, results)]


@kind()
def short_storage(data):
    """Right shapes over a storage that ends before the last row"""
    outputs = right(data)
    for output in outputs:
        output.untyped_storage().resize_(output.nbytes - 2 * output.shape[1])
    return outputs


# ---------------------------------------------------------------------------------------------------------------------
# Memory that outputs share
# ---------------------------------------------------------------------------------------------------------------------


@kind()
def one_output_for_all(data):
    """All outputs over the memory of the last"""
    largest = max(right(data), key=torch.Tensor.numel)
    return [largest.flatten()[: c.numel()].view(c.shape) for _, _, c in data[0]]


@kind()
def overlap_denied(data):
    """Outputs over one memory, whose data_ptr and untyped_storage deny it"""
    address = iter(range(1 << 40, 1 << 41, 1 << 20))
    outputs = one_output_for_all(data)
    patch(torch.Tensor, "data_ptr", lambda tensor: next(address))
    return outputs


@kind()
def other_groups_c(data):
    """Right results, each in the c of another group (resized)"""
    cs, results = [c for _, _, c in data[0]][::-1], right(data)
    for c, result in zip(cs, results):
        c.untyped_storage().resize_(max(c.nbytes, result.nbytes))
        c.set_(c.untyped_storage(), 0, result.shape, result.stride())
        c.copy_(result)
    return cs


@kind()
def input_returned(data):
    """The inputs a and b"""
    return [tensor for a, b, _ in data[0] for tensor in (a, b)][: len(data[0])]


@kind()
def over_inputs(data):
    """Right results over the memory of the inputs a"""
    outputs = []
    for (a, _, c), result in zip(data[0], right(data)):
        storage = a.untyped_storage()
        storage.resize_(max(storage.nbytes(), c.nbytes))
        over = torch.empty(0, dtype=torch.float16, device="cuda").set_(storage, 0, c.shape, c.stride())
        outputs.append(over.copy_(result))
    return outputs


# ---------------------------------------------------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------------------------------------------------


def with_last(data, change):
    """Right results except for the last element of the last group."""
    outputs = right(data)
    outputs[-1][-1, -1, -1] = change(outputs[-1][-1, -1, -1])
    return outputs


@kind()
def all_zeros(data):
    """Zeros"""
    return zeros(data)


@kind()
def untouched(data):
    """c as it was given"""
    return [c for _, _, c in data[0]]


@kind()
def all_nan(data):
    """NaN everywhere"""
    return [c.fill_(math.nan) for c in zeros(data)]


@kind()
def last_nan(data):
    """NaN in the last element alone"""
    return with_last(data, lambda value: math.nan)


@kind()
def last_infinite(data):
    """An infinity in the last element alone"""
    return with_last(data, lambda value: math.inf)


@kind()
def last_negated(data):
    """The last element's sign is wrong"""
    return with_last(data, lambda value: -value - 1)


@kind()
def past_tolerance(data):
    """The last element is off by one float16 spacing more than the tolerance"""

    def off(value):
        limit = float(value) + TOLERANCE["atol"] + TOLERANCE["rtol"] * abs(float(value))
        return float(np.nextafter(np.nextafter(np.float16(limit), np.float16(np.inf)), np.float16(np.inf)))

    return with_last(data, off)


@kind()
def scaled(data):
    """Every element is 1 % too large"""
    return [result * 1.01 for result in right(data)]


@kind()
def shifted_row(data):
    """Rows are shifted by one"""
    return [result.roll(1, dims=0) for result in right(data)]


@kind()
def truncated_k(data):
    """The last scale vector of K is left out"""
    cut = [tuple(t[:, :-8] for t in (a, b)) + (c,) for a, b, c in data[0]]
    scales = [tuple(t[:, :-1] for t in pair) for pair in data[1]]
    return right((cut, scales))
