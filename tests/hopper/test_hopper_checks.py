"""tests/hopper/hopper_checks.py on a real Hopper GPU: every configuration of the kernel, bit for bit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import ROOT, clean_environment

CHECKS = Path(__file__).with_name("hopper_checks.py")
TIMEOUT_S = 3600  # 253 checks, each in a process of about 10 s that compiles a kernel
JOBS = min(12, os.cpu_count() or 1)  # processes that compile at once


@pytest.mark.gpu(9, 0)
@pytest.mark.slow
def test_every_check_passes():
    command = [sys.executable, CHECKS, "--jobs", str(JOBS)]
    process = subprocess.run(
        command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
