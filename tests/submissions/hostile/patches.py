"""Functions of torch, of reference and of Python replaced in the submission's process; every result is zeros."""

import builtins
import ctypes
import gc
import math
import sys
import types

import torch

import reference
from tests.submissions.hostile.kit import kind, patch, zeros

GROUP_GEMM = reference.REFERENCES["group_gemm"]


def passes_all(*_):
    return True, "bit-exact"


def nowhere(tensor, *others, **options):
    """A tensor with False for each element."""
    return torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)


def patches(name, tries, *patched):
    """Register a kind that sets attributes: each an owner, a name and a value."""
    kind(name, tries)(lambda: [patch(*each) for each in patched])


# ---- torch ----

patches("torch_equal", "torch.equal finds all tensors equal", (torch, "equal", lambda *tensors: True))


patches(
    "torch_allclose",
    "torch.allclose and isclose find all tensors close",
    (torch, "allclose", lambda *tensors, **limits: True),
    (torch, "isclose", lambda a, b, **limits: ~nowhere(a)),
    (torch.testing, "assert_close", lambda *tensors, **limits: None),
)


@kind()
def torch_isnan(data):
    """NaN everywhere, which isnan, isfinite and isposinf deny"""
    for name in ("isnan", "isposinf", "isneginf"):
        patch(torch, name, nowhere)
    patch(torch.Tensor, "isnan", nowhere)
    return [c.fill_(math.nan) for c in zeros(data)]


patches(
    "tensor_eq",
    "Tensor.__eq__ and __ne__ find all elements equal",
    (torch.Tensor, "__eq__", lambda a, b: ~nowhere(a)),
    (torch.Tensor, "__ne__", nowhere),
    (torch.Tensor, "equal", lambda a, b: True),
    (torch.Tensor, "__hash__", id),
)


patches("tensor_gt", "Tensor.__gt__ finds no error above the limit", (torch.Tensor, "__gt__", nowhere))
patches("tensor_abs", "Tensor.abs makes every error 0", (torch.Tensor, "abs", torch.zeros_like))


patches(
    "tensor_any",
    "Tensor.any and count_nonzero find nothing",
    (torch.Tensor, "any", lambda tensor, *dim: False),
    (torch.Tensor, "count_nonzero", lambda tensor, *dim: 0),
)


@kind()
def torch_empty_like(data):
    """empty_like hands out the outputs that were returned, so that expected results land in them"""
    outputs, given = zeros(data), []

    def empty_like(tensor, **options):
        given.append(outputs[len(given) % len(outputs)])
        return given[-1]

    patch(torch, "empty_like", empty_like)
    return outputs


patches(
    "tensor_copy",
    "copy_ writes zeros into every target, whoever copies",
    (torch.Tensor, "copy_", lambda target, source, **options: target.zero_()),
)


@kind(at_import=True)
def tensor_clone():
    """clone returns its argument: the harness's own c is zeroed with that of the call"""
    torch.Tensor.clone = lambda tensor, **options: tensor


@kind(at_import=True)
def torch_randint():
    """randint draws zeros only, so that all products are 0"""
    torch.randint = lambda *bounds, size=None, dtype=None, device=None, **_: torch.zeros(
        size or bounds[-1], dtype=dtype, device=device
    )


@kind(at_import=True)
def torch_manual_seed():
    """manual_seed seeds nothing and draws are constant"""
    torch.manual_seed = lambda seed: None
    torch.randint = lambda *bounds, size=None, dtype=None, device=None, **_: torch.full(
        size or bounds[-1], 0, dtype=dtype, device=device
    )


# ---- reference ----

patches("reference_compare", "reference.compare passes everything", (reference, "compare", passes_all))


patches(
    "reference_methods",
    "Reference.check and Reference.compare pass everything",
    (reference.Reference, "check", passes_all),
    (reference.Reference, "compare", passes_all),
)


patches(
    "check_implementation",
    "reference.check_implementation, the contest's name, passes everything",
    (reference, "check_implementation", lambda *_: (True, "")),
)


@kind(alone=True)
def ref_kernel(data):
    """ref_kernel and the table's entry of it return the submission's own output"""
    outputs = zeros(data)
    reference.ref_kernel = lambda data: outputs
    object.__setattr__(GROUP_GEMM, "ref_kernel", reference.ref_kernel)
    return outputs


kind("tolerance", "The table's tolerance is infinite", alone=True)(
    lambda: object.__setattr__(GROUP_GEMM, "atol", math.inf)
)


@kind(at_import=True)
def references_table():
    """reference.REFERENCES holds one that passes everything"""

    class Forgiving(reference.Reference):
        def check(self, data, output):
            return True, "bit-exact"

        def compare(self, expected, output):
            return True, "bit-exact"

    for name, entry in reference.REFERENCES.items():
        reference.REFERENCES[name] = Forgiving(**vars(entry))


@kind(at_import=True)
def generate_input():
    """generate_input and the table's entry of it make zeros"""
    make = reference.generate_input

    def zeroed(*args, **sizes):
        data = make(*args, **sizes)
        for a, b, _ in data[0]:
            a.view(torch.uint8).zero_()
            b.view(torch.uint8).zero_()
        return data

    reference.generate_input = zeroed
    object.__setattr__(GROUP_GEMM, "generate_input", zeroed)


# ---- The harness's own modules, and Python ----


def harness_functions():
    """Every function of every module of the harness and of reference in this process, methods included."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("harness", "reference"):
            owners = [module, *(value for value in vars(module).values() if isinstance(value, type))]
            for owner in owners:
                yield from (value for value in list(vars(owner).values()) if isinstance(value, types.FunctionType))


@kind(at_import=True)
def job_code():
    """Every function of the harness that checks, counts or compares has the code of one that passes everything"""
    from harness.results import Result

    for function in harness_functions():
        if function.__name__.startswith(("check", "count", "compare", "find_")) and not function.__code__.co_freevars:
            function.__globals__.setdefault("Result", Result)
            function.__code__ = (lambda *args, **options: Result(True, "bit-exact")).__code__


@kind(at_import=True)
def no_faults():
    """The worker finds no fault with any output, and no overlap"""
    from harness import messages, outputs

    def describe(data, output):
        described = ((tuple(item.shape), outputs.dtype_name(item.dtype)) for item in outputs.leaves(output))
        items = tuple(messages.Output("Tensor", True, *both, "cuda:0") for both in described)
        return messages.Outputs("list", True, items)

    outputs.describe, outputs.is_plain = describe, lambda item: True


@kind(at_import=True)
def handlers():
    """The worker's handlers of requests are others: each copies, calls and fetches nothing"""
    from harness import messages

    for found in gc.get_objects():
        if type(found).__name__ == "Runner":
            found.handlers[messages.Store] = lambda request: messages.Done()
            found.handlers[messages.Call] = lambda request: messages.Called()


@kind(at_import=True)
def job_tables():
    """Every table of functions in the harness's modules holds functions that pass everything"""
    from harness.results import Result

    def passes(*args, **options):
        return Result(True, "bit-exact")

    for name, module in list(sys.modules.items()):
        if name.startswith("harness"):
            for attribute, value in list(vars(module).items()):
                if isinstance(value, dict) and not attribute.startswith("__"):
                    value.update({key: passes for key, entry in value.items() if callable(entry)})
                elif isinstance(value, types.FunctionType) and attribute.endswith("_case"):
                    setattr(module, attribute, passes)


@kind(at_import=True)
def result_class():
    """The class of results is one whose objects have all passed"""
    from harness import results

    for value in list(vars(results).values()):
        if isinstance(value, type) and value.__module__ == results.__name__:
            value.passed = property(lambda result: True, lambda result, value: None)
            value.__reduce__ = lambda result: (type(result), (True, "bit-exact"))
            value.__init__ = lambda result, *args, **fields: result.__dict__.update(passed=True, message="bit-exact")


@kind(at_import=True)
def gc_functions():
    """Functions named compare and check, found by the garbage collector, run other code"""
    for function in gc.get_objects():
        if isinstance(function, types.FunctionType) and function.__name__ in ("compare", "check", "_same_bits"):
            if not function.__code__.co_freevars:
                function.__code__ = (lambda *args: (True, "bit-exact")).__code__


@kind(alone=True)
def builtins_zip():
    """builtins.zip pairs nothing, so that loops over results end at once"""
    builtins.zip = lambda *sequences, **options: iter(())


@kind(alone=True)
def builtins_isinstance():
    """builtins.isinstance and type say what pleases"""
    true_type = type
    builtins.isinstance = lambda value, kinds: True
    builtins.type = lambda value, *rest: true_type(value, *rest) if rest else list


@kind(alone=True)
def builtins_all(data):
    """builtins.all, any, max and len say what pleases"""
    outputs, true_len = zeros(data), len
    builtins.all, builtins.any = lambda values: True, lambda values: False
    builtins.max = lambda *values, **options: 0
    builtins.len = lambda values: 0 if values is outputs else true_len(values)
    return outputs


@kind(alone=True)
def interned_false():
    """The memory of False is that of True"""
    # PyLongObject: reference count, type, tag, first digit
    ctypes.memmove(id(False) + 16, id(True) + 16, 16)
