"""Random legal shapes through every configuration of the kernel, back to back, for as long as wanted: bit for bit.

    python -m emulator --schedule eager,late,random:1 tests/soak.py [--seconds N] [--seed N]

Prints each call that is wrong with what repeats it, and exits with 1 if there was one. Shapes: 1 to 16 groups, M 0..600,
N 8..1024, K 64..2048; chips of 2, 5 and 148 SMs; one to three calls in a row, which overlap. They share their outputs,
and only the last one's are left to compare; or each has its own, which allows the promise that they are free.
"""

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import reference  # noqa: E402
import submission  # noqa: E402

LARGEST_WORK = 1.5e9  # products per call, which bounds the seconds that one takes


def shapes_of(rng):
    """Sizes of one call: (m, n, k) per group."""
    while True:
        groups = rng.choice((1, 2, 3, 5, 8, 16))
        sizes = [
            (rng.choice((0, rng.randint(1, 64), rng.randint(1, 600))), 8 * rng.randint(1, 128), 64 * rng.randint(1, 32))
            for _ in range(groups)
        ]
        if sum(m * n * k for m, n, k in sizes) < LARGEST_WORK:
            return sizes


def run(seed):
    """One random experiment. Returns what it was, and what was wrong or ""."""
    import torch

    rng = random.Random(seed)
    sizes, shape, sms, calls = shapes_of(rng), rng.choice(ALL_SHAPES), rng.choice((2, 5, 148)), rng.choice((1, 1, 2, 3))
    ready, shared = rng.random() < 0.5, rng.random() < 0.5
    free = not shared and rng.random() < 0.7
    submission.shapes = lambda: [shape]
    submission.sm_count = lambda device: sms
    submission.configure.cache_clear()
    m, n, k = zip(*sizes)
    inputs = [reference.generate_input(m=m, n=n, k=k, g=len(sizes), seed=seed + call) for call in range(calls)]
    if shared:
        outputs = [c for _, _, c in inputs[0][0]]
        inputs = [([(a, b, c) for (a, b, _), c in zip(abc, outputs)], *rest) for abc, *rest in inputs]
    text = f"seed {seed}: {calls} calls, {shape}, {sms} SMs, ready {ready}, shared {shared}, free {free}, {sizes}"
    wrong = []
    try:
        for data in inputs:
            submission.solve(data, operands_ready=ready, output_free=free)
        compared = {calls - 1} if shared else range(calls)
        found = {call: [c.clone() for _, _, c in inputs[call][0]] for call in compared}
    except Exception as error:
        return text, f"{type(error).__name__}: {error}"
    for call, outputs in found.items():
        want = reference.ref_kernel(inputs[call])
        wrong += [(call, g) for g, (ours, theirs) in enumerate(zip(outputs, want)) if not torch.equal(ours, theirs)]
    return text, f"(call, group) {wrong} differ" if wrong else ""


ALL_SHAPES = submission.shapes()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    end, done, failed, seed = time.monotonic() + options.seconds, 0, 0, options.seed * 1_000_000
    while time.monotonic() < end:
        text, problem = run(seed)
        if problem:
            print(f"{text}\n    {problem}", flush=True)
        done, failed, seed = done + 1, failed + bool(problem), seed + 10
    print(f"{done} experiments, {failed} wrong")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
