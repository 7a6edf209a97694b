"""Puts the whole session on the emulated device where there is no B200: the same test bodies run on either."""

import subprocess
import sys
from pathlib import Path

import emulator

# Asked of a process of its own: the emulator must be there before torch is imported here.
QUESTION = "import eval; print(eval.has_b200())"
ROOT = Path(__file__).resolve().parent.parent
if subprocess.check_output([sys.executable, "-c", QUESTION], cwd=ROOT, text=True).strip() != "True":
    emulator.activate(schedule="late")
