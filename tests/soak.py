"""Random legal shapes through every configuration of the kernel, back to back, for as long as wanted.

    python -m emulator --schedule eager,late,random:1 tests/soak.py [--seconds N] [--seed N]

Prints each wrong call with the seed and sizes that repeat it, and exits with 1 if there was one. Group GEMMs of 1 to
16 groups, GEMMs and dual GEMMs of 1 to 3 batch entries; M 0..600, N 8..1024, K 64..2816; chips of 2, 5, 8 and 148 SMs;
one to three calls in a row, which overlap. Either they share their outputs, and only the last call's are compared; or
each has its own, which allows the promise that they are free. Results must be bit-exact; a dual GEMM's must be within
the contest's tolerance.
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


def sizes_of(rng, problem, k_split):
    """generate_input's arguments of one call, but for the seed: every split-K rank has a k-tile of 256."""
    while True:
        groups = rng.choice((1, 2, 3, 5, 8, 16)) if problem == "group_gemm" else rng.choice((1, 1, 2, 3))
        sizes = [
            (
                rng.choice((0, rng.randint(1, 64), rng.randint(1, 600))),
                8 * rng.randint(1, 128),
                256 * (k_split - 1) + 64 * rng.randint(1, 32),
            )
            for _ in range(groups)
        ]
        if problem != "group_gemm":
            sizes = [sizes[0]] * groups
        if sum(m * n * k for m, n, k in sizes) < LARGEST_WORK:
            break
    m, n, k = zip(*sizes)
    if problem == "group_gemm":
        return {"m": m, "n": n, "k": k, "g": groups}
    return {"m": m[0], "n": n[0], "k": k[0], "l": groups}


def outputs_of(problem, data):
    return [c for _, _, c in data[0]] if problem == "group_gemm" else [data[-1]]


def with_outputs(problem, data, outputs):
    """The same call into other tensors."""
    if problem == "group_gemm":
        return ([(a, b, c) for (a, b, _), c in zip(data[0], outputs)], *data[1:])
    return (*data[:-1], *outputs)


def run(seed):
    """One random experiment. Returns its description and its error, "" if there is none."""
    rng = random.Random(seed)
    problem = rng.choice(("group_gemm", "group_gemm", "gemm", "dual_gemm"))
    shape = rng.choice(ALL_SHAPES[2 if problem == "dual_gemm" else 1])
    sms = rng.choice([sms for sms in (2, 5, 8, 148) if sms >= shape[1] * shape[3]])
    sizes, calls = sizes_of(rng, problem, shape[3]), rng.choice((1, 1, 2, 3))
    ready, shared = rng.random() < 0.5, rng.random() < 0.5
    free = not shared and rng.random() < 0.7
    compared = reference.REFERENCES[problem]
    inputs = [compared.generate_input(**sizes, seed=seed + call) for call in range(calls)]
    if shared:
        inputs = [with_outputs(problem, data, outputs_of(problem, inputs[0])) for data in inputs]
    promises = f"ready {ready}, shared {shared}, free {free}"
    text = f"seed {seed}: {calls} calls, {problem}, {tuple(shape)}, {sms} SMs, {promises}, {sizes}"
    wrong = []
    try:
        for data in inputs:
            submission.run(data, ready, free, (shape,), sms)
        last = {calls - 1} if shared else range(calls)
        found = {call: [c.clone() for c in outputs_of(problem, inputs[call])] for call in last}
    except Exception as error:
        return text, f"{type(error).__name__}: {error}"
    for call, outputs in found.items():
        passed, message = compared.check(inputs[call], outputs if problem == "group_gemm" else outputs[0])
        if not passed or (message != "bit-exact" and problem != "dual_gemm"):
            wrong.append(f"call {call}: {message}")
    return text, "\n    ".join(wrong)


ALL_SHAPES = {products: submission.shapes(products) for products in submission.PRODUCTS}


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
