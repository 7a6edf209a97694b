"""Records the circumstances of a run's figures: versions, the submission, the GPU."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from harness import ROOT, devices
from workshop import records


def versions(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """The items of `workshop.records.versions`, and the SHA-256 of submission.py."""
    digest = hashlib.sha256((ROOT / "submission.py").read_bytes()).hexdigest()
    return {**records.versions(arguments), "submission.py sha256": digest}


def gpu() -> dict[str, Any]:
    """The current GPU: name, SMs, driver, clocks, and whether the tensor core takes part."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "sms": properties.multi_processor_count,
        "driver, max clocks": records.driver_and_clocks(),
        "tensor core": "omitted" if os.environ.get("NOGPU") == "hopper" else "as it is",
    }


def on_hopper(module: str, arguments: Sequence[str] | None) -> bool:
    """True if the GPU is a Hopper, False if it is a B200; exits if it is neither.

    On a Hopper the module's command restarts on nogpu's Hopper path, without tensor-core work, unless it is there.
    arguments: the command's; None for this process's.
    """
    hopper = devices.has_hopper()
    if not hopper and not devices.has_b200():
        sys.exit(f"{module}: a B200 or a Hopper GPU is needed; there is neither")
    if hopper and devices.emulator_device() is not devices.HOPPER:
        given = sys.argv[1:] if arguments is None else arguments
        nogpu = ["-m", "nogpu", "--device", "hopper", "--hopper-mode", "timing"]
        os.execv(sys.executable, [sys.executable, *nogpu, "-m", module, *given])
    return hopper
