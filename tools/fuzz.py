"""Runs the emulator's fuzzer (workshop.fuzz) with two configurations of the kernel among its modules.

python -m tools.fuzz [--inputs 10000] [--seed 0] [--only I] [--save FILE.json] [FILE.ptx ...]
"""

from __future__ import annotations

import submission
from tools import circumstances
from tools.report import compile_plan
from workshop import fuzz

CONFIGURATIONS = ((128, 1, 1, 1), (64, 2, 1, 2))  # tokens of a tile, CTAs per MMA, CTAs per SM, neighbours

if __name__ == "__main__":
    compiled = [compile_plan(submission.Plan(1, *shape)).ptx for shape in CONFIGURATIONS]
    fuzz.main(None, compiled, circumstances.versions)
