"""Entries on disk that save a process from making what another one has made. They are executed, in the end.

An entry's name says what decides its content, so that no entry is ever out of date. A digest tells one that is cut off.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from emulator import toolchain

_DIGEST_BYTES = 32
_OTHERS = 0o022  # permissions of others to write


_is_used = True


@contextmanager
def unused() -> Iterator[None]:
    """Within the context no entry is read or written: for those who measure or test what entries save."""
    global _is_used
    before, _is_used = _is_used, False
    try:
        yield
    finally:
        _is_used = before


def folder(name: str) -> Path | None:
    """A folder of the cache; None if there can be none, or if other users can write to it."""
    return _folder(name) if _is_used else None


@cache
def _folder(name: str) -> Path | None:
    with suppress(OSError, RuntimeError):
        found = toolchain.cache_folder() / name
        found.mkdir(mode=0o700, exist_ok=True)
        status = found.stat()
        if status.st_uid == os.getuid() and not status.st_mode & _OTHERS:
            return found
    return None


def sealed(data: bytes) -> bytes:
    """The data behind its digest."""
    return hashlib.sha256(data).digest() + data


def unsealed(data: bytes) -> bytes | None:
    """What was sealed; None for other bytes."""
    digest, rest = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    return rest if hashlib.sha256(rest).digest() == digest else None


def read(entry: Path) -> bytes | None:
    """The bytes of an entry; None if there is none."""
    try:
        data = entry.read_bytes()
    except OSError:
        return None
    with suppress(OSError):  # a folder that can only be read
        os.utime(entry)  # the entries used last are kept
    return data


def write(entry: Path, data: bytes, most: int) -> None:
    """Put an entry in place, whole; a full disk or a folder that cannot be written is no error.

    most: entries that are kept in its folder.
    """
    with suppress(OSError):
        with tempfile.NamedTemporaryFile(dir=entry.parent, delete=False) as file:
            file.write(data)
        os.replace(file.name, entry)
        if len(os.listdir(entry.parent)) > most:
            entries = sorted(entry.parent.iterdir(), key=lambda one: one.stat().st_mtime_ns)
            for old in entries[:-most]:
                old.unlink(missing_ok=True)
