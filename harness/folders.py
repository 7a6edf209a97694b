"""The folders of a worker: a home that stays for later runs of the same submission, and a temporary one."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

KEPT_HOMES = 16
REMOVAL_TIMEOUT_S = 30
CACHES = (
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TRITON_HOME", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR"),
    *("TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH", "CUTE_DSL_CACHE_DIR"),
)
"""Variables that would lead a worker to other places than its home."""


@dataclass(frozen=True)
class Folders:
    """A worker's own folders. Only a confined worker reads their content."""

    home: Path
    temporary: Path

    def environment(self) -> dict[str, str]:
        """The environment of this process, changed so that programs find these folders."""
        variables = {name: value for name, value in os.environ.items() if name not in CACHES}
        return {
            **variables,
            **{"HOME": str(self.home), "TMPDIR": str(self.temporary), "PYTHONUSERBASE": site.getuserbase()},
        }

    def remove(self) -> None:
        """Remove the temporary folder."""
        _remove(self.temporary)
        if self.temporary.exists():
            print(f"eval.py: {self.temporary}, a folder of the submission, could not be removed", file=sys.stderr)


class FolderError(Exception):
    """A machine without a place for a temporary folder."""


def make_folders(digest: str) -> Folders:
    """Make the folders for a submission with this digest, and remove all homes but those used last.

    Raises FolderError if a temporary folder cannot be made.
    """
    try:
        temporary = Path(tempfile.mkdtemp(prefix="nvfp4-worker-"))
    except OSError as error:
        raise FolderError(
            f"no temporary folder: {error.strerror}; name one in the environment variable TMPDIR"
        ) from None
    try:
        named = Path(os.environ.get("XDG_CACHE_HOME") or "")
        homes = (named if named.is_absolute() else Path.home() / ".cache") / "nvfp4-worker"
        homes.mkdir(mode=0o700, parents=True, exist_ok=True)
        home = homes / digest
        home.mkdir(mode=0o700, exist_ok=True)
        os.utime(home)
        for old in sorted(homes.iterdir(), key=lambda one: one.lstat().st_mtime_ns)[:-KEPT_HOMES]:
            _remove(old)
    except (OSError, RuntimeError):  # no home, or one that cannot be written
        home = temporary / "home"
        home.mkdir(mode=0o700)
    return Folders(home, temporary)


def _remove(folder: Path) -> None:
    """Remove a folder with any content: a tree too deep for shutil.rmtree, folders without permissions."""
    for command in (["rm", "-rf"], ["chmod", "-Rf", "u+rwx"], ["rm", "-rf"]):
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [*command, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=REMOVAL_TIMEOUT_S,
                check=False,
            )
        if not folder.exists():
            return
