"""Finds the submission's file and its digest."""

from __future__ import annotations

import errno
import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path

from harness.interpreter import escaped


@dataclass(frozen=True)
class Submission:
    """A submission's file, and the SHA-256 of its bytes in hexadecimal digits."""

    path: Path
    digest: str

    @classmethod
    def of(cls, path: Path) -> Submission:
        """The submission at a path. Raises OSError for a path that is no readable file named *.py."""
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        if path.suffix != ".py":
            raise OSError(errno.EINVAL, "its name does not end in .py")
        with path.open("rb") as file:
            return cls(path, hashlib.file_digest(file, "sha256").hexdigest())

    def __str__(self) -> str:
        return f"{escaped(str(self.path))} · SHA-256 {self.digest}"
