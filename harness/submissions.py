"""The submission's file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Submission:
    """A submission's file, and the SHA-256 of its bytes in hexadecimal digits."""

    path: Path
    digest: str

    @classmethod
    def of(cls, path: Path) -> Submission:
        """The submission at a path. Raises OSError for a file that cannot be read."""
        with path.open("rb") as file:
            return cls(path, hashlib.file_digest(file, "sha256").hexdigest())

    def __str__(self) -> str:
        return f"{self.path} · SHA-256 {self.digest}"
