"""Runs files of tools.variants in the emulator for test_variants.py: FILE..., prints {FILE: its launch}.

Each file computes one small case of its problem as the contest calls it. The output says whether the result is right,
and has the plan and the programmatic attribute of its launch.
"""

import json
import sys
from pathlib import Path

import reference
from harness.modules import load_module
from nogpu.execution.device import Device
from task import PROBLEMS

CASES = {
    "group_gemm": {"m": (65, 7), "n": (264, 128), "k": (1024, 1088), "g": 2, "seed": 1},
    "dual_gemm": {"m": 65, "n": 264, "k": 1024, "l": 1, "seed": 1},
    "gemm": {"m": 65, "n": 264, "k": 1024, "l": 1, "seed": 1},
    "gemv": {"m": 136, "k": 1024, "l": 2, "seed": 1},
}
FEW = {"group_gemm": {"m": (16, 7)}, "gemm": {"m": 16}}  # sizes for tiles of few tokens


def run(path):
    name = Path(path).name.split(".")[0]
    compared, module = reference.REFERENCES[name], load_module(f"variant_{Path(path).stem}", Path(path))
    device, plans, launches = Device.current(), [], []
    compiled, launch = module.compiled, device.launch
    module.compiled = lambda plan: plans.append(plan) or compiled(plan)
    device.launch = lambda entry, config, *rest, **more: launches.append(config) or launch(entry, config, *rest, **more)
    try:
        few = FEW.get(name, {}) if "-tile16-" in str(path) else {}
        data = compared.generate_input(**CASES[name] | few)
        passed, message = compared.check(data, module.custom_kernel(data))
    finally:
        del device.launch
    (plan,), (config,) = plans, launches
    fields = ("token_tile", "cta_group", "ctas_per_sm", "neighbours")
    return {
        "right": bool(passed) and (message == "bit-exact" or name == "dual_gemm"),
        "plan": [getattr(plan, field) for field in fields] if hasattr(plan, "token_tile") else None,
        "programmatic": config.programmatic,
    }


if __name__ == "__main__":
    assert set(CASES) == set(PROBLEMS)
    print(json.dumps({Path(path).stem: run(path) for path in sys.argv[1:]}))
