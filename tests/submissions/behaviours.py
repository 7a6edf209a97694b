"""Good and bad submissions in plain torch. The M of a case's first group, from M_OF, selects the behaviour."""

import math
import os
import sys
import time
from pathlib import Path

import torch

import reference
from task import SEED_STEP

SEED_OF_CASE = 1111
POPCORN_SEED = 77
COMBINED_SEED = 707377  # 1111 + 1188 * 1189 / 2


def close(data, output):
    output[0].view(torch.int16)[0, 0, 0] ^= 1
    return output


def wrong(data, output):
    output[1][3, 2, 0] += 100
    return output


def nan(data, output):
    output[1][3, 2, 0] = math.nan
    return output


def raises(data, output):
    raise ValueError("first line\nsecond line")


def raises_what_does_not_pickle(data, output):
    class LocalError(Exception):
        pass

    raise LocalError(lambda: None)


def note(pid):
    """Add a process number to a file in the worker's own home: commands.written_by_worker."""
    with (Path.home() / os.environ["PIDS"]).open("a") as file:
        file.write(f" {pid}")


def dies_and_leaves_a_child(data, output):
    """The child holds the worker's pipe open."""
    child = os.fork()
    if not child:
        time.sleep(600)
        os._exit(0)
    note(child)
    os.abort()


def hangs(data, output):
    note(os.getpid())
    while True:
        time.sleep(1)


def breaks_the_device(data, output):
    def fails():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    torch.cuda.synchronize = fails
    return output


def checks_its_surroundings(data, output):
    assert os.environ["CUTE_DSL_DISABLE_FILE_CACHING"] == "1"
    assert not {"POPCORN_SEED", "POPCORN_FD"} & set(os.environ)
    from utils import make_match_reference

    assert callable(make_match_reference), "the contest's module"
    return output


def checks_its_seed(data, output):
    """The seeds of the calls are a step apart."""
    m, n, k, _ = zip(*data[3])
    seeds = [COMBINED_SEED + SEED_STEP * call for call in range(3)]
    inputs = [reference.generate_input(m, n, k, len(m), seed) for seed in seeds]
    drawn = [all(torch.equal(a[2], b[2]) for a, b in zip(one[0], data[0])) for one in inputs]
    assert drawn.count(True) == 1
    return output


BEHAVIOURS = {
    "good": lambda data, output: output,
    **{act.__name__: act for act in (close, wrong, nan)},
    "other_shape": lambda data, output: [output[0][:-1], output[1]],
    "other_dtype": lambda data, output: [output[0], output[1].float()],
    "on_the_cpu": lambda data, output: [output[0].cpu(), output[1]],
    "nothing": lambda data, output: None,
    "one_missing": lambda data, output: [output[0], None],
    "too_short": lambda data, output: output[:1],
    "exits": lambda data, output: sys.exit(3),
    "leaves": lambda data, output: os._exit(4),
    **{act.__name__: act for act in (raises, raises_what_does_not_pickle)},
    **{act.__name__: act for act in (dies_and_leaves_a_child, hangs, breaks_the_device)},
    **{act.__name__: act for act in (checks_its_surroundings, checks_its_seed)},
}
M_OF = {name: 2 + index for index, name in enumerate(BEHAVIOURS)}


def custom_kernel(data):
    first_m = data[3][0][0]
    return [*BEHAVIOURS.values()][first_m - 2](data, reference.ref_kernel(data))


def plan_report(problem_sizes):
    return {"tiles": len(problem_sizes), "waves": 1}
