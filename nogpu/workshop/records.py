"""Files in which commands save their figures: JSON with the circumstances that a reader needs to judge them."""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nogpu

SOURCES = "*.py", "*.c", "*.h"


class MeasurementError(Exception):
    """Error of a table or a file that cannot be used; the text names it."""


def add_save(parser: argparse.ArgumentParser) -> None:
    """Adds the option --save: a file for all figures of the command, None by default."""
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="save every figure")


def versions(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Versions of torch and the DSL if they are installed, and the command's arguments (None: of this process)."""
    found: dict[str, Any] = {}
    for name in ("torch", "nvidia-cutlass-dsl"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {**found, "command": command(arguments)}


def command(arguments: Sequence[str] | None) -> list[str]:
    """The command's arguments (None: of this process), without folders, for a file that may be published."""
    return list(map(shortened, sys.argv[1:] if arguments is None else arguments))


def shortened(argument: str) -> str:
    """An argument, PATH or NAME=PATH, with the last part of an absolute path only: the file may be published."""
    name, equals, path = argument.rpartition("=")
    return f"{name}{equals}{Path(path).name}" if Path(path).is_absolute() else argument


def emulator() -> str:
    """The hash of the emulator's sources."""
    root, digest = Path(nogpu.__file__).parent, hashlib.sha256()
    for path in sorted(path for pattern in SOURCES for path in root.rglob(pattern)):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def processor() -> str:
    """The processor's text of `nogpu.bench`, for commands of other projects."""
    from nogpu import bench

    return bench.processor()


def driver_and_clocks() -> str:
    """Driver version and maximum SM and memory clocks by nvidia-smi, or "unknown" if that is missing or fails."""
    query = ["--query-gpu=driver_version,clocks.max.sm,clocks.max.mem", "--format=csv,noheader"]
    try:
        return subprocess.run(["nvidia-smi", *query], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def write(path: Path | None, record: dict[str, Any], *rows: str) -> None:
    """Writes figures, unless `path` is None. rows: the keys whose items get a line each; they come last.

    An end of the process leaves the file as it was, or complete.
    """
    if path is None:
        return
    text = json.dumps({name: value for name, value in record.items() if name not in rows}, indent=1)
    for name in rows:
        of = record[name]
        begin, end = "{}" if isinstance(of, dict) else "[]"
        items = [f"{json.dumps(key)}: {json.dumps(of[key])}" for key in of] if begin == "{" else map(json.dumps, of)
        text = f'{text[:-1].rstrip()},\n "{name}": {begin}\n' + ",\n".join(items) + f"\n{end}}}"
    part = path.with_name(f"{path.name}.part")
    part.write_text(text + "\n", encoding="utf-8")
    os.replace(part, path)


def save(path: Path | None, record: dict[str, Any]) -> None:
    """Writes figures and prints the file's path, unless `path` is None."""
    if path is not None:
        write(path, record)
        print(f"every figure is in {path}")


def load(path: Path | None) -> dict[str, Any] | None:
    """The content of a saved file, or None if there is no file. Raises MeasurementError for malformed JSON."""
    if path is None or not path.exists():
        return None
    try:
        saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MeasurementError(f"{path.name}: {error}") from None
    return saved


def earlier(path: Path | None, record: dict[str, Any], facts: Sequence[str]) -> dict[str, Any]:
    """The content of a saved file that a run with a record continues; an empty one if a fact of theirs differs."""
    saved = load(path) or {}
    return saved if all(saved.get(name) == record.get(name) for name in facts) else {}
