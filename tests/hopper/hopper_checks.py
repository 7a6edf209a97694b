"""Checks on a Hopper GPU, each in a process of its own with a time limit, since a kernel may hang: one line for each.

    python tests/hopper/hopper_checks.py [--limit SECONDS] [--jobs N] [CHECK ...]

Runs all checks, or those that begin with one of the CHECKs; N at once on the same GPU. Every configuration computes
single calls of several sizes, 15 overlapping calls into outputs of their own (both promises), and 15 overlapping calls
into shared outputs (operands promised). Results are exact mode's, compared bit for bit; those of a dual GEMM within the
contest's tolerance. Needs a Hopper GPU, torch with CUDA, and nvidia-cutlass-dsl.
"""

import argparse
import functools
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CALLS = 15  # of an overlapping check: as many as the contest times together
LONGER = 16
BUSY_CYCLES = 20_000_000  # the GPU waits until the host has queued all of them

# Case -> (M, N, K) of every group.
CASES = {
    "one_tile": [(128, 128, 256)],
    "short_k": [(128, 128, 64), (16, 136, 192)],
    "edges": [(65, 120, 192), (7, 264, 128), (300, 8, 1024)],
    "odd_tiles": [(193, 264, 320), (385, 136, 64), (320, 128, 256)],
    "many_tiles": [(384, 1024, 768), (130, 2048, 512)],
}
# With split K: every rank has a k-tile of 256.
SPLIT_CASES = {
    "one_tile": [(128, 128, 1024)],
    "edges": [(65, 120, 832), (7, 264, 1088), (300, 8, 1984)],
    "many_tiles": [(384, 1024, 1792), (130, 2048, 1024)],
}
# Arguments of the input generators; l is the number of batches.
DUAL_CASES = {
    "one_tile": {"m": 64, "n": 128, "k": 1024, "l": 1},
    "edges": {"m": 193, "n": 264, "k": 1088, "l": 2},
    "many_tiles": {"m": 384, "n": 1024, "k": 1792, "l": 1},
}
GEMV_CASES = {
    "short_k": {"m": 129, "k": 64, "l": 2},
    "edges": {"m": 1021, "k": 4672, "l": 3},
    "long_k": {"m": 300, "k": 35904, "l": 1},
}


def arguments(sizes):
    """Arguments of the group GEMM's input generator."""
    m, n, k = zip(*sizes)
    return {"m": m, "n": n, "k": k, "g": len(sizes)}


def outputs_of(data):
    return [c for _, _, c in data[0]] if len(data) == 4 else [data[-1]]


def with_outputs(data, outputs):
    """The same call into other tensors."""
    if len(data) == 4:
        return ([(a, b, c) for (a, b, _), c in zip(data[0], outputs)], *data[1:])
    return (*data[:-1], *outputs)


def lengthened(args):
    """The same case with LONGER times K: a call that is still running when a short one behind it could be done."""
    k = args["k"]
    return {**args, "k": k * LONGER if isinstance(k, int) else tuple(size * LONGER for size in k)}


def solve(problem, args, configurations, calls=1, shared=False, **promises):
    """Calls in a row on different inputs; every output that is not overwritten later is compared."""
    import torch

    import reference
    import submission

    compared = reference.REFERENCES[problem]
    every = [lengthened(args) if shared and call < calls - 1 else args for call in range(calls)]
    inputs = [compared.generate_input(**of_call, seed=1 + call) for call, of_call in enumerate(every)]
    if shared:
        inputs = [with_outputs(data, outputs_of(inputs[0])) for data in inputs]
    for data in inputs[:: max(1, calls - 1)]:
        submission.run(data, configurations=configurations)  # compiles
    for data in inputs:
        for c in outputs_of(data):
            c.fill_(float("nan"))
    torch.cuda.synchronize()
    if calls > 1:
        torch.cuda._sleep(BUSY_CYCLES)
    for data in inputs:
        submission.run(data, **promises, configurations=configurations)
    torch.cuda.synchronize()
    for call in [calls - 1] if shared else range(calls):
        outputs = [c.clone() for c in outputs_of(inputs[call])]
        passed, message = compared.check(inputs[call], outputs if problem == "group_gemm" else outputs[0])
        assert passed and (message == "bit-exact" or problem == "dual_gemm"), f"call {call} of {calls}: {message}"


def two_kernels():
    """Kernels of different compilations have the same entry name; each launch must run its own code."""
    for tile in (64, 192, 64):
        solve("group_gemm", arguments(CASES["edges"]), ((tile, 1, 1, 1),))


def of_configuration(problem, cases, configurations):
    """Check -> function: the cases as single calls, and `edges` as calls that overlap."""
    found = {name: functools.partial(solve, problem, args, configurations) for name, args in cases.items()}
    many = functools.partial(solve, problem, cases["edges"], configurations, CALLS, operands_ready=True)
    return found | {
        "overlap": functools.partial(many, output_free=True),
        "shared": functools.partial(many, shared=True),
    }


def checks():
    """Name -> function of every check."""
    import submission

    found = {("two_kernels",): two_kernels}
    for products, problem in ((1, "group_gemm"), (2, "dual_gemm")):
        for shape in sorted(submission.shapes(products), key=lambda x: (x.k_split, x.cta_group, x.ctas_per_sm)):
            groups = CASES if shape.k_split == 1 else SPLIT_CASES
            cases = DUAL_CASES if products == 2 else {name: arguments(sizes) for name, sizes in groups.items()}
            kind = f"sm{shape.cta_group}.tile{shape.token_tile}.x{shape.ctas_per_sm}.k{shape.k_split}"
            of_shape = of_configuration(problem, cases, (shape,))
            found |= {(problem, kind, name): function for name, function in of_shape.items()}
    for problem, cases in (("gemm", DUAL_CASES), ("gemv", GEMV_CASES)):
        found |= {(problem, name): function for name, function in of_configuration(problem, cases, None).items()}
    return {".".join(parts): function for parts, function in found.items()}


def run_check(name, limit_s):
    """(name, seconds, "ok" or what went wrong) of one check in a process of its own."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "emulator", "--device", "hopper", __file__]
    variables = {**os.environ, "HOPPER_CHECK": name}
    try:
        process = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, timeout=limit_s)
        lines = (process.stdout + process.stderr).strip().splitlines()
        outcome = "ok" if process.returncode == 0 else "FAILED: " + "\n    ".join(lines[-12:])
    except subprocess.TimeoutExpired:
        outcome = f"FAILED: no end after {limit_s:g} s"
    return name, time.perf_counter() - start, outcome


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=60, metavar="SECONDS", help="limit for one check (60)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="checks that run at once (1)")
    parser.add_argument("names", nargs="*", metavar="CHECK")
    options = parser.parse_args()
    # The DSL reads it when it is imported; its default is the present GPU.
    os.environ.setdefault("CUTE_DSL_ARCH", "sm_100a")
    sys.path.insert(0, str(ROOT))
    if "HOPPER_CHECK" in os.environ:
        checks()[os.environ["HOPPER_CHECK"]]()
        return 0
    chosen = [name for name in checks() if not options.names or name.startswith(tuple(options.names))]
    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for name, seconds, outcome in pool.map(lambda name: run_check(name, options.limit), chosen):
            failed += outcome != "ok"
            print(f"{name:<40} {seconds:6.1f} s  {outcome}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return int(failed > 0 or not chosen)


if __name__ == "__main__":
    sys.exit(main())
