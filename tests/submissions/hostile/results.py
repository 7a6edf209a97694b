"""Results that are wrong, or right in a form that the contract excludes: it wants a plain list of plain tensors."""

import math

import numpy as np
import torch

import reference
from tests.submissions.hostile.kit import kind, patch, right, zeros

TOLERANCE = reference.CONTEST_TOLERANCE


def each(name, tries, change):
    """Register a kind whose results are the right ones, each of them changed."""
    kind(name, tries)(lambda data: [change(result) for result in right(data)])


# ---- The list ----


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


kind("tuple_of_outputs", "A tuple, zeros")(lambda data: tuple(zeros(data)))
kind("right_tuple", "A tuple, right: the contract names a list")(lambda data: tuple(right(data)))
kind("generator", "A generator of the right results, made as they are asked for")(
    lambda data: (result for result in right(data))
)
kind("dictionary", "A dictionary by group")(lambda data: dict(enumerate(right(data))))
kind("nested_list", "A list in a list")(lambda data: [right(data)])
each("numpy_arrays", "NumPy arrays", lambda result: result.cpu().numpy())


@kind()
def nothing(data):
    """None"""


kind("no_outputs", "An empty list")(lambda data: [])
kind("one_more", "A right list with one tensor too many")(lambda data: [*right(data), torch.zeros(1, device="cuda")])
kind("one_less", "A right list without its last tensor")(lambda data: right(data)[:-1])
kind("other_order", "Right results in the reverse order")(lambda data: right(data)[::-1])


# ---- The tensors ----


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


kind("tensor_subclass", "A tensor subclass with a __torch_function__ that finds it equal to all")(
    lambda data: [output.as_subclass(Equal) for output in zeros(data)]
)


@kind()
def lazy_tensor(data):
    """A tensor subclass that makes its content when it is looked at"""
    outputs = [output.as_subclass(Late) for output in zeros(data)]
    for output, result in zip(outputs, right(data)):
        output.made = lambda result=result: result
    return outputs


each(
    "right_subclass",
    "Right results in a subclass without any code, torch.nn.Parameter",
    lambda result: torch.nn.Parameter(result, requires_grad=False),
)


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


each("meta_tensors", "Tensors on the device meta", lambda result: torch.empty_like(result, device="meta"))
each("cpu_tensors", "Right results on the CPU", lambda result: result.cpu())
each("float32_tensors", "Right results in float32", lambda result: result.float())
each("bfloat16_tensors", "Right results in bfloat16, of float16's size", lambda result: result.bfloat16())
each("reinterpreted", "Right bytes with the dtype int16", lambda result: result.view(torch.int16))


@kind()
def sparse_tensors(data):
    """Right results in a sparse layout"""
    with torch._C.DisableTorchFunction():
        return [result[:, :, 0].to_sparse().unsqueeze(2) for result in right(data)]


each(
    "expanded",
    "A single element expanded over the shape with strides of 0",
    lambda result: result[:1, :1].expand_as(result),
)
each("flat", "Right elements in a shape without the last dimension", lambda result: result.squeeze(2))
each("transposed", "Right elements, M and N exchanged", lambda result: result.transpose(0, 1))
each(
    "negative_bit",
    "Tensors whose bytes are right and whose values, by torch's lazy negation, have the other sign",
    lambda result: torch._neg_view(result),
)


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


# ---- Memory that outputs share ----


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


kind("input_returned", "The inputs a and b")(
    lambda data: [tensor for a, b, _ in data[0] for tensor in (a, b)][: len(data[0])]
)


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


# ---- Values ----


def with_last(data, change):
    """Right results except for the last element of the last group."""
    outputs = right(data)
    outputs[-1][-1, -1, -1] = change(outputs[-1][-1, -1, -1])
    return outputs


kind("all_zeros", "Zeros")(lambda data: zeros(data))
kind("untouched", "c as it was given")(lambda data: [c for _, _, c in data[0]])
kind("all_nan", "NaN everywhere")(lambda data: [c.fill_(math.nan) for c in zeros(data)])
kind("last_nan", "NaN in the last element alone")(lambda data: with_last(data, lambda value: math.nan))
kind("last_infinite", "An infinity in the last element alone")(lambda data: with_last(data, lambda value: math.inf))
kind("last_negated", "The last element's sign is wrong")(lambda data: with_last(data, lambda value: -value - 1))


@kind()
def past_tolerance(data):
    """The last element is off by one float16 spacing more than the tolerance"""

    def off(value):
        limit = float(value) + TOLERANCE["atol"] + TOLERANCE["rtol"] * abs(float(value))
        return float(np.nextafter(np.nextafter(np.float16(limit), np.float16(np.inf)), np.float16(np.inf)))

    return with_last(data, off)


each("scaled", "Every element is 1 % too large", lambda result: result * 1.01)
each("shifted_row", "Rows are shifted by one", lambda result: result.roll(1, dims=0))


@kind()
def truncated_k(data):
    """The last scale vector of K is left out"""
    cut = [tuple(t[:, :-8] for t in (a, b)) + (c,) for a, b, c in data[0]]
    scales = [tuple(t[:, :-1] for t in pair) for pair in data[1]]
    return right((cut, scales))
