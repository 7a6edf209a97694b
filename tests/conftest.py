"""Puts the whole session on the emulated device where there is no B200: the same test bodies run on either."""

import subprocess
import sys
from pathlib import Path

import pytest

import emulator

ROOT = Path(__file__).resolve().parent.parent


def answer(question: str) -> bool:
    """The question is put to a process of its own: the emulator must be there before torch is imported here."""
    result = subprocess.run([sys.executable, "-c", question], cwd=ROOT, capture_output=True, text=True, check=True)
    return result.stdout.strip() == "True"


HAS_GPU = answer("import ctypes.util; print(bool(ctypes.util.find_library('cuda')))") and answer(
    "import torch; print(torch.cuda.is_available())"
)
if not HAS_GPU or not answer("import eval; print(eval.has_b200())"):
    emulator.activate(schedule="late")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("gpu") and not HAS_GPU:
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU"))
