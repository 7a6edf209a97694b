"""Checks of the kernel's calls on a device: every configuration on odd shapes, alone and in calls that overlap.

A check is a function that raises AssertionError, with a text on the fault. Single calls wait for the launches ahead of
them. `overlap` is CALLS calls with both promises, each with operands and outputs of its own; all outputs are compared.
`shared` is as many calls that promise their operands only and write the same c, the last one the shortest: a store
that does not wait for those ahead of it leaves another call's values. Results are compared with the exact reference,
rounded once: bit for bit, but those of a dual GEMM within the contest's tolerance.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import harness.dsl  # noqa: F401
import reference
import submission
from task import PROBLEMS, TestSpec
from tools.sitting import trials
from tools.sitting.outcomes import group_of

CALLS = 15  # number of calls that overlap; the contest times as many of a group GEMM
LONGER = 16
BUSY_CYCLES = 20_000_000  # the GPU waits until the host has queued all calls

Arguments = Mapping[str, Any]  # arguments of an input generator; l is the number of batches
Check = Callable[[], None]

# (M, N, K) of every group, by case.
CASES = {
    "one_tile": [(128, 128, 256)],
    "short_k": [(128, 128, 64), (16, 136, 192)],
    "edges": [(65, 120, 192), (7, 264, 128), (300, 8, 1024)],
    "odd_tiles": [(193, 264, 320), (385, 136, 64), (320, 128, 256)],
    "many_tiles": [(384, 1024, 768), (130, 2048, 512)],
}
# Cases for tiles of few tokens.
FEW_CASES = {
    "one_tile": [(16, 128, 256)],
    "short_k": [(16, 128, 64), (3, 136, 192)],
    "edges": [(15, 120, 192), (7, 264, 128), (1, 8, 1024)],
    "many_tiles": [(16, 1024, 768), (9, 2048, 512)],
}
DUAL_CASES: dict[str, Arguments] = {
    "one_tile": {"m": 64, "n": 128, "k": 1024, "l": 1},
    "edges": {"m": 193, "n": 264, "k": 1088, "l": 2},
    "many_tiles": {"m": 384, "n": 1024, "k": 1792, "l": 1},
}
GEMV_CASES: dict[str, Arguments] = {
    "short_k": {"m": 136, "k": 64, "l": 2},
    "edges": {"m": 1016, "k": 4672, "l": 3},
    "long_k": {"m": 304, "k": 35904, "l": 1},
}


def arguments(sizes: Sequence[tuple[int, int, int]]) -> Arguments:
    """The arguments of the group GEMM's input generator. sizes: (M, N, K) of each group."""
    m, n, k = zip(*sizes)
    return {"m": m, "n": n, "k": k, "g": len(sizes)}


def outputs_of(data: tuple) -> list[torch.Tensor]:
    """The c tensors of a call's input."""
    return [c for _, _, c in data[0]] if len(data) == 4 else [data[-1]]


def with_outputs(data: tuple, outputs: list[torch.Tensor]) -> tuple:
    """A call's input with other output tensors."""
    if len(data) == 4:
        return ([(a, b, c) for (a, b, _), c in zip(data[0], outputs)], *data[1:])
    return (*data[:-1], *outputs)


def lengthened(args: Arguments) -> Arguments:
    """A case with LONGER times K, so that its call still runs when a short call behind it could be done."""
    k = args["k"]
    return {**args, "k": k * LONGER if isinstance(k, int) else tuple(size * LONGER for size in k)}


def solve(
    problem: str,
    args: Arguments,
    configurations: submission.Configurations,
    calls: int = 1,
    shared: bool = False,
    trial: str = "",
    **promises: bool,
) -> None:
    """Make calls in a row on different inputs, and compare every output that is not overwritten later.

    shared: all calls write the first one's outputs. trial: name of edits of submission.py (`trials`). Raises
    AssertionError for a wrong output, with the call's number.
    """
    compared, run = reference.REFERENCES[problem], (trials.module(trial) if trial else submission).solve
    every = [lengthened(args) if shared and call < calls - 1 else args for call in range(calls)]
    inputs = [compared.generate_input(**of_call, seed=1 + call) for call, of_call in enumerate(every)]
    if shared:
        inputs = [with_outputs(data, outputs_of(inputs[0])) for data in inputs]
    for data in inputs[:: max(1, calls - 1)]:
        run(data, configurations=configurations)  # compiles
    for data in inputs:
        for c in outputs_of(data):
            c.fill_(float("nan"))
    torch.cuda.synchronize()
    if calls > 1 and not reference.is_emulated():
        torch.cuda._sleep(BUSY_CYCLES)
    for data in inputs:
        run(data, **promises, configurations=configurations)
    torch.cuda.synchronize()
    for call in [calls - 1] if shared else range(calls):
        outputs = [c.clone() for c in outputs_of(inputs[call])]
        passed, message = compared.check(inputs[call], outputs if problem == "group_gemm" else outputs[0])
        if not passed or (message != "bit-exact" and problem != "dual_gemm"):
            raise AssertionError(f"call {call} of {calls}: {message}")


def two_kernels() -> None:
    """Check that each launch runs its own code, though kernels of different compilations have the same entry name."""
    for tile in (64, 192, 64):
        solve("group_gemm", arguments(CASES["edges"]), ((tile, 1, 1, 1),))


def of_configuration(
    problem: str, cases: Mapping[str, Arguments], configurations: submission.Configurations
) -> dict[str, Check]:
    """Name -> check: the cases as single calls, and `edges` as CALLS calls (`overlap`, `shared`)."""
    found: dict[str, Check] = {
        name: functools.partial(solve, problem, args, configurations) for name, args in cases.items()
    }
    many = functools.partial(solve, problem, cases["edges"], configurations, CALLS, operands_ready=True)
    return found | {
        "overlap": functools.partial(many, output_free=True),
        "shared": functools.partial(many, shared=True),
    }


def of_benchmark(problem: str) -> Check:
    """A check of the smallest benchmark case, called as in the contest: CALLS calls in the chosen configuration."""
    args = min((TestSpec.parse(each.line).args for each in PROBLEMS[problem].benchmarks), key=operations)
    without_seed = {name: value for name, value in args.items() if name != "seed"}
    return functools.partial(solve, problem, without_seed, None, CALLS)


def operations(args: Arguments) -> int:
    """The number of multiplications in a call."""
    m, n, k = (value if isinstance(value, tuple) else (value,) for value in (args["m"], args.get("n", 1), args["k"]))
    return args.get("l", 1) * sum(x * y * z for x, y, z in zip(m, n, k))


def groups() -> dict[str, dict[str, Check]]:
    """Group -> name -> check. Configurations of pairs come first.

    A group is a configuration of a problem, the choice of a problem, edits to try, or a configuration that the choice
    leaves out.
    """
    found: dict[str, dict[str, Check]] = {}
    tried: dict[str, dict[str, Check]] = {}
    for products, problem in ((1, "group_gemm"), (2, "dual_gemm")):
        left_out = trials.left_out(products)
        for shape in [*submission.legal_configurations(products), *left_out]:
            sizes = FEW_CASES if shape.token_tile == submission.FEW_TOKENS else CASES
            cases = DUAL_CASES if products == 2 else {name: arguments(of_case) for name, of_case in sizes.items()}
            checks_of_shape, name = of_configuration(problem, cases, (shape,)), group_of(problem, shape)
            if shape in left_out:
                tried[f"trials.{name}"] = checks_of_shape
            else:
                found[name] = checks_of_shape
    found = dict(sorted(found.items(), key=lambda entry: ".sm2." not in entry[0]))
    for problem, cases in (("gemm", DUAL_CASES), ("gemv", GEMV_CASES)):
        found[problem] = of_configuration(problem, cases, None)
    found["chosen"] = {problem: of_benchmark(problem) for problem in PROBLEMS}
    found["mixed"] = {"two_kernels": two_kernels}
    edges = {"group_gemm": arguments(CASES["edges"]), "dual_gemm": DUAL_CASES["edges"], "gemv": GEMV_CASES["edges"]}
    found["trials"] = {
        f"{name}, {problem}": functools.partial(solve, problem, args, None, 3, trial=name)
        for name in trials.TRIALS
        for problem, args in edges.items()
    }
    return found | tried


def checks() -> dict[str, Check]:
    """Every check, by its name GROUP.CHECK."""
    return {f"{group}.{name}": check for group, of_group in groups().items() for name, check in of_group.items()}
