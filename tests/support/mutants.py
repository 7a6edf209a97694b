"""Kernels broken in their PTX or source: changes by pattern, launches that run the changed text, calls that need each
wait.
"""

import functools
import importlib.util
import itertools
import re
import sys
from pathlib import Path

import submission

NUMBERS = itertools.count()
WAIT_FOR_LAUNCHES = r"griddepcontrol\.wait;"
WAITS = LOAD_WAIT, STORE_WAIT, LAST_WAIT = "before loads", "before stores", "CTA 0's at the end"  # names as in the PTX


def source_mutant(folder, replacements):
    """A module with submission.py's text after replacements; the DSL reads the code from its file."""
    source = Path(submission.__file__).read_text()
    for old, new in replacements:
        assert source.count(old) == 1, f"not once in submission.py: {old}"
        source = source.replace(old, new)
    path = folder / f"mutant_{next(NUMBERS)}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_mutated(monkeypatch, mutate):
    """Make launches run their kernels' PTX as `mutate` changes it; the DSL's compiled kernels stay unchanged.

    The emulator's doubts become errors.
    """
    from nogpu.compiler import stored
    from nogpu.cuda.modules import Kernel

    @functools.cache
    def mutated(ptx):
        text = mutate(ptx)
        assert text != ptx, "the mutation did not apply"
        return stored.module(text)

    monkeypatch.setenv("NOGPU_LENIENT", "0")
    monkeypatch.setattr(Kernel, "entry", property(lambda kernel: mutated(kernel.module.text).entries[kernel.name]))


def replaced(old, new, count=0):
    """A mutation that replaces `count` (0: all) matches."""
    return lambda ptx: re.sub(old, new, ptx, count=count)


def nth_replaced(old, new, which):
    """A mutation that replaces only the which-th match."""

    def mutate(ptx):
        match = list(re.finditer(old, ptx))[which]
        return ptx[: match.start()] + match.expand(new) + ptx[match.end() :]

    return mutate


def without(opcode, count=0):
    """A mutation that drops `count` (0: all) instructions with this beginning."""
    return replaced(rf"(@\S+ )?{opcode}[^;]*;", "", count)


def without_one(opcode, which):
    """A mutation that drops the which-th instruction with this beginning."""
    return nth_replaced(rf"(@\S+ )?{opcode}[^;]*;", "", which)


def without_wait(wait):
    """A mutation that drops one of the kernel's waits for the previous launch.

    The compiler may have split the wait before loads in two, for a CTA's first tile and for its others: both go.
    """

    def mutate(ptx):
        found = [match.start() for match in re.finditer(WAIT_FOR_LAUNCHES, ptx)]
        before_loads = found[: 1 - len(WAITS)]
        assert len(before_loads) in (1, 2)
        for start in reversed(before_loads if wait == LOAD_WAIT else [found[WAITS.index(wait) - len(WAITS)]]):
            ptx = ptx[:start] + re.sub(WAIT_FOR_LAUNCHES, "", ptx[start:], count=1)
        return ptx

    return mutate


def calls_that_need(chained, sharing_outputs, bystander):
    """A function for each wait that makes calls, (data, promises); without the wait the last call's result is wrong.

    chained() makes two calls, the second with the first one's output as an operand; sharing_outputs() two calls that
    write the same tensors; bystander() one call that shares nothing with the others.
    """

    def consumed():
        return [(data, {}) for data in chained()]

    def overwritten():
        return [(data, {"operands_ready": True}) for data in sharing_outputs()]

    def consumed_past_another():
        first, third = chained()
        return [(first, {}), (bystander(), {"operands_ready": True, "output_free": True}), (third, {})]

    return {LOAD_WAIT: consumed, STORE_WAIT: overwritten, LAST_WAIT: consumed_past_another}
