"""Runs tools/first_light.py on a B200 that Modal rents out by the second, and brings its results back.

    pip install --constraint tools/requirements/dsl-4.8.1.txt -e '.[modal]'     on any machine, once
    modal setup                                                                 an account, once
    modal run tools/first_light_modal.py [--minutes N] [--only PREFIX,...] [--save FOLDER]

The first run builds the image: CUDA 13 and the packages of the lock file, in its versions. The working tree goes along,
uncommitted changes included. Results come back to FOLDER/DATE-GPU-driver-VERSION (FOLDER: first_light): the kit's
files, and output.txt with what it printed. The exit code is the kit's.

There was no account where this was written. Everything but the remote call is tested; the call has not been made.
"""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import modal

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "/source"  # the working tree in the container
LOCK = "tools/requirements/dsl-4.8.1.txt"
CUDA_IMAGE, PYTHON = "nvidia/cuda:13.0.2-devel-ubuntu24.04", "3.13"
GPU = "B200"
# Entries of .gitignore, and files that no run needs.
IGNORED = [".git", ".*_cache", ".hypothesis", ".venv*", ".gpu", "**/__pycache__", "**/*.egg-info", "first_light"]
KIT = "tools/first_light.py"
MINUTES, MOST_MINUTES = 10.0, 30.0
SLACK_S = 300  # seconds between the kit's own limit and the container's
QUERY = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]


def image() -> modal.Image:
    """The container's image. The project is not installed; PYTHONPATH leads to it, as in the kit's own processes."""
    return (
        modal.Image.from_registry(CUDA_IMAGE, add_python=PYTHON)
        .entrypoint([])
        .apt_install("gcc", "make")
        .uv_pip_install(requirements=[str(ROOT / LOCK)])
        .env({"PYTHONPATH": f"{SOURCE}:{SOURCE}/nogpu/src", "PYTHONUNBUFFERED": "1"})
        .add_local_dir(ROOT, SOURCE, ignore=IGNORED)
    )


app = modal.App("nvfp4-first-light")


@app.function(image=image(), gpu=GPU, timeout=int(60 * MOST_MINUTES + SLACK_S))
def kit(arguments: list[str], source: str = SOURCE) -> dict[str, Any]:
    """Run the kit in the container. Returns its exit code, output and files by name, and the GPU's name and driver."""
    try:
        gpu = subprocess.run(QUERY, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        gpu = "unknown, unknown"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(Path(source) / KIT), *arguments, "--save", folder]
        printed: list[str] = []
        with subprocess.Popen(
            command, cwd=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            for line in process.stdout or ():
                print(line, end="")
                printed.append(line)
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        return {
            "exit code": process.returncode,
            "output": "".join(printed),
            "gpu": gpu,
            "files": {str(path.relative_to(folder)): path.read_bytes() for path in files},
        }


def kit_arguments(minutes: float, only: str) -> list[str]:
    """Options of the kit. only: prefixes of steps, separated by commas. Raises ValueError for a time out of range."""
    if not 0 < minutes <= MOST_MINUTES:
        raise ValueError(
            f"--minutes is {minutes:g}; it must be above 0 and at most {MOST_MINUTES:g}, the container's time"
        )
    prefixes = [prefix.strip() for prefix in only.split(",") if prefix.strip()]
    return ["--minutes", f"{minutes:g}", *(text for prefix in prefixes for text in ("--only", prefix))]


def folder_name(gpu: str, today: datetime.date) -> str:
    """The name DATE-GPU-driver-VERSION. gpu: nvidia-smi's name and driver version, separated by a comma."""
    name, _, driver = (part.strip() for part in gpu.partition(","))
    return re.sub(r"[^\w.-]+", "-", f"{today.isoformat()}-{name.removeprefix('NVIDIA ')}-driver-{driver}")


def keep(result: dict[str, Any], folder: Path, today: datetime.date) -> Path:
    """Write the kit's files and output to a new folder inside `folder`, and return it. Raises ValueError for others."""
    name = folder_name(result["gpu"], today)
    place, number = folder / name, 1
    while place.exists():
        number += 1
        place = folder / f"{name}-{number}"
    for relative, content in {**result["files"], "output.txt": result["output"].encode()}.items():
        path = (place / relative).resolve()
        if not path.is_relative_to(place.resolve()):
            raise ValueError(f"the container's file {relative!r} would lie outside of {place}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return place


@app.local_entrypoint()
def main(minutes: float = MINUTES, only: str = "", save: str = "first_light") -> None:
    try:
        arguments = kit_arguments(minutes, only)
    except ValueError as error:
        sys.exit(f"first_light_modal: {error}")
    result = kit.remote(arguments)
    place = keep(result, Path(save), datetime.date.today())
    print(f"{len(result['files'])} files of {result['gpu']} are in {place}")
    sys.exit(result["exit code"])
