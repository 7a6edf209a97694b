"""The harness's data, reached through frames, the garbage collector and Python's hooks; every result is zeros."""

import gc
import inspect
import sys
import threading
import weakref

import torch

from tests.submissions.hostile.kit import kind, right, zeros


def bytes_of(tensor):
    return tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor


def zero_all(value, depth=4):
    """Zero the tensors in a value and in its parts."""
    if isinstance(value, torch.Tensor):
        bytes_of(value).zero_()
    elif depth:
        if isinstance(value, dict):
            value = list(value.values())
        elif hasattr(value, "__dict__"):
            value = list(vars(value).values())
        if isinstance(value, (list, tuple)):
            for item in value:
                zero_all(item, depth - 1)


@kind()
def frame_data():
    """sys._getframe: the tensors in the locals of every calling frame are zeroed"""
    frame = sys._getframe(1)
    while frame:
        for value in list(frame.f_locals.values()):
            if isinstance(value, (torch.Tensor, list, tuple)):
                zero_all(value)
        frame = frame.f_back


@kind()
def stack_objects():
    """inspect.stack: the same, and through the attributes of the objects there"""
    for entry in inspect.stack()[1:]:
        if "harness" in entry.filename:
            zero_all(dict(entry.frame.f_locals), depth=6)


@kind()
def gc_tensors():
    """gc.get_objects: every tensor of the process is zeroed"""
    for found in gc.get_objects():
        if isinstance(found, torch.Tensor) and not found.is_meta:
            bytes_of(found.detach()).zero_()


@kind()
def gc_referrers(data):
    """gc.get_referrers: every list that leads to the argument is emptied"""
    outputs = zeros(data)
    for holder in gc.get_referrers(data):
        if isinstance(holder, list):
            holder.clear()
    return outputs


@kind()
def argument_lists(data):
    """The argument's lists are emptied and its sizes are 0"""
    outputs = zeros(data)
    for part in data:
        part.clear()
    return outputs


@kind(alone=True)
def profile_hook():
    """sys.setprofile: when compare is called, what it expects is copied into the outputs"""

    def hook(frame, event, argument):
        if event == "call" and frame.f_code.co_name == "compare":
            values = frame.f_locals
            for want, got in zip(values.get("expected", ()), values.get("output", ())):
                got.copy_(want)

    sys.setprofile(hook)
    threading.setprofile(hook)


@kind(alone=True)
def trace_hook():
    """sys.settrace: results named passed become true as they are made"""

    def hook(frame, event, argument):
        if event == "return" and isinstance(argument, tuple) and argument[:1] == (False,):
            frame.f_locals["failures"].clear()
        elif "failures" in frame.f_locals:
            frame.f_locals["failures"].clear()
        return hook

    sys.settrace(hook)
    frame = sys._getframe()
    while frame:
        frame.f_trace = hook
        frame = frame.f_back


@kind(alone=True)
def audit_hook():
    """sys.addaudithook: whatever the harness opens, imports or compiles from now on fails"""

    def hook(event, arguments):
        if event in ("open", "import", "exec", "compile", "socket.connect"):
            raise RuntimeError("refused by the submission")

    sys.addaudithook(hook)


@kind()
def finalizer(data):
    """The result is made when the harness lets go of the argument"""

    class Late:
        def __init__(self):
            self.outputs, self.results = zeros(data), right(data)

        def __del__(self):
            for output, result in zip(self.outputs, self.results):
                output.copy_(result)

    data[3].append(Late())
    return list(data[3][-1].outputs)


@kind()
def weak_reference(data):
    """A weak reference's callback makes the result when the list of outputs is dropped"""

    class Outputs(list):
        pass

    outputs, results = zeros(data), right(data)
    returned = Outputs(outputs)

    def fill(_):
        for output, result in zip(outputs, results):
            output.copy_(result)

    weak_reference.kept = weakref.ref(returned, fill)
    return returned


@kind(alone=True)
def tensor_attribute(data):
    """An output carries an object whose __del__ forgives every result that the process knows"""
    outputs = zeros(data)

    class Forgives:
        def __del__(self):
            for found in gc.get_objects():
                if hasattr(found, "passed"):
                    object.__setattr__(found, "passed", True)

    outputs[0].forgives = Forgives()
    return outputs
