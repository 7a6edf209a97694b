"""Checks on a Hopper GPU, each in a process of its own with a time limit, since a kernel may hang: one line for each.

    python tests/hopper/hopper_checks.py [--limit SECONDS] [--jobs N] [CHECK ...]

Runs all checks, or those that begin with one of the CHECKs; N at once on the same GPU. Every configuration computes
single calls of several sizes, 15 overlapping calls into outputs of their own (both promises), and 15 overlapping calls
into shared outputs (operands promised); what is chosen computes 15 overlapping calls of a benchmark case.
Results are exact mode's, compared bit for bit; those of a dual GEMM within the contest's tolerance. `tools.sitting`
has the checks, which `tools.first_light` runs on a B200. Needs a Hopper GPU, torch with CUDA, and nvidia-cutlass-dsl.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_check(name, limit_s):
    """(name, seconds, "ok" or what went wrong) of one check in a process of its own."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "nogpu", "--device", "hopper", __file__]
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
    sys.path.insert(0, str(ROOT))
    from tools.sitting.calls import checks

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
