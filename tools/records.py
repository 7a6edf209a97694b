"""Files in which commands save their figures: JSON with the circumstances that a reader needs to judge them."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness import ROOT


def add_save(parser: argparse.ArgumentParser) -> None:
    """--save: a file for all figures of the command; None where it is not given."""
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="save every figure")


def versions(arguments: list[str] | None = None) -> dict[str, Any]:
    """Versions of torch and the DSL, hash of submission.py, arguments of the command (None: of this process).

    An absolute path among the arguments, or behind NAME=, is shortened to its last part: the file may be published.
    """
    import cutlass
    import torch

    arguments = sys.argv[1:] if arguments is None else arguments
    return {
        "torch": torch.__version__,
        "nvidia-cutlass-dsl": cutlass.__version__,
        "submission.py sha256": hashlib.sha256((ROOT / "submission.py").read_bytes()).hexdigest(),
        "command": list(map(shortened, arguments)),
    }


def shortened(argument: str) -> str:
    """An argument, PATH or NAME=PATH, with the last part of an absolute path only."""
    name, equals, path = argument.rpartition("=")
    return f"{name}{equals}{Path(path).name}" if Path(path).is_absolute() else argument


def gpu() -> dict[str, Any]:
    """The current GPU: name, SMs, driver, clocks, and whether the tensor core takes part."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "sms": properties.multi_processor_count,
        "driver, max clocks": driver_and_clocks(),
        "tensor core": "omitted" if os.environ.get("NOGPU") == "hopper" else "as it is",
    }


def driver_and_clocks() -> str:
    """Driver version and maximum SM and memory clocks by nvidia-smi, "unknown" where it is missing or fails."""
    query = ["--query-gpu=driver_version,clocks.max.sm,clocks.max.mem", "--format=csv,noheader"]
    try:
        return subprocess.run(["nvidia-smi", *query], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def save(path: Path, record: dict[str, Any]) -> None:
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"every figure is in {path}")
