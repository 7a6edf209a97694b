"""Checks on a Hopper GPU, each in a process of its own with a time limit, since a kernel may hang: one line for each.

    python tests/hopper/hopper_checks.py [--limit SECONDS] [CHECK ...]   all checks, or those with one of these prefixes

Needs a Hopper GPU, torch with CUDA, and nvidia-cutlass-dsl.
"""

import argparse
import functools
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CASES = {
    "one_tile": [(128, 128, 256)],
    "short_k": [(128, 128, 64), (16, 136, 192)],
    "edges": [(65, 120, 192), (7, 264, 128), (300, 8, 1024)],
    "odd_tiles": [(193, 264, 320), (385, 136, 64), (320, 128, 256)],
    "many_tiles": [(384, 1024, 768), (130, 2048, 512)],
}
# With split K: every rank has a k-tile of 256.
SHARED_CASES = {
    "one_tile": [(128, 128, 1024)],
    "edges": [(65, 120, 832), (7, 264, 1088), (300, 8, 1984)],
    "many_tiles": [(384, 1024, 1792), (130, 2048, 1024)],
}
# (M, N, K, L).
DUAL_CASES = {
    "one_tile": (64, 128, 1024, 1),
    "edges": (193, 264, 1088, 2),
    "many_tiles": (384, 1024, 1792, 1),
}


def solve(sizes, shape):
    """One launch of a configuration, bit for bit against the float64 product."""
    import torch

    import reference
    import submission

    m, n, k = zip(*sizes)
    data = reference.generate_input(m=m, n=n, k=k, g=len(sizes), seed=1)
    for _, _, c in data[0]:
        c.fill_(float("nan"))
    submission.run(data, configurations=(shape,))
    torch.cuda.synchronize()
    found = [c.clone() for _, _, c in data[0]]
    for group, (ours, theirs) in enumerate(zip(found, reference.ref_kernel(data))):
        wrong = ours.view(torch.int16) != theirs.view(torch.int16)
        assert not wrong.any(), (
            f"group {group}: {int(wrong.sum())} of {wrong.numel()} wrong, first {wrong.nonzero()[0]}"
        )


def solve_dual(size, shape):
    """One launch of a dual GEMM's configuration, within the contest's tolerance."""
    import torch

    import reference
    import submission

    m, n, k, batches = size
    data = reference.generate_dual_gemm_input(m=m, n=n, k=k, l=batches, seed=1)
    data[-1].fill_(float("nan"))
    submission.run(data, configurations=(shape,))
    torch.cuda.synchronize()
    passed, message = reference.REFERENCES["dual_gemm"].check(data, data[-1].clone())
    assert passed, message


def two_kernels():
    """Kernels of different compilations have the same entry name; each launch must run its own code."""
    for tile in (64, 192, 64):
        solve(CASES["edges"], (tile, 1, 1, 1))


def checks():
    import submission

    found = {"two_kernels": two_kernels}
    for shape in sorted(submission.shapes(), key=lambda shape: (shape[3], shape[1], shape[2])):
        tile, group, residents, shares = shape
        cases = CASES if shares == 1 else SHARED_CASES
        kind = f"sm{group}.tile{tile}.x{residents}" + (f".k{shares}" if shares > 1 else "")
        found |= {f"{kind}.{name}": functools.partial(solve, cases[name], shape) for name in cases}
    for shape, name in itertools.product(submission.shapes(2), DUAL_CASES):
        tile, group, residents, shares = shape
        found[f"dual.sm{group}.tile{tile}.x{residents}.k{shares}.{name}"] = functools.partial(
            solve_dual, DUAL_CASES[name], shape
        )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=60, metavar="SECONDS")
    parser.add_argument("names", nargs="*", metavar="CHECK")
    options = parser.parse_args()
    # The DSL reads it when it is imported; its default is the present GPU.
    os.environ.setdefault("CUTE_DSL_ARCH", "sm_100a")
    sys.path.insert(0, str(ROOT))
    if "HOPPER_CHECK" in os.environ:
        checks()[os.environ["HOPPER_CHECK"]]()
        return 0
    failed = 0
    for name in checks():
        if options.names and not name.startswith(tuple(options.names)):
            continue
        start = time.perf_counter()
        variables = {**os.environ, "HOPPER_CHECK": name}
        command = [sys.executable, "-m", "emulator", "--device", "hopper", __file__]
        try:
            process = subprocess.run(
                command, env=variables, cwd=ROOT, capture_output=True, text=True, timeout=options.limit
            )
            lines = (process.stdout + process.stderr).strip().splitlines()
            outcome = "ok" if process.returncode == 0 else "FAILED: " + "\n    ".join(lines[-12:])
        except subprocess.TimeoutExpired:
            outcome = f"FAILED: no end after {options.limit:g} s"
        failed += outcome != "ok"
        print(f"{name:<36} {time.perf_counter() - start:6.1f} s  {outcome}", flush=True)
    print(f"{failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
