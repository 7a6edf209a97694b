"""The user's cache: entries on disk that save a process from repeating another's work. Entries are executed.

An entry's name says what decides its content, so that no entry is ever out of date. An entry ends with the digest of
its content and is put in place whole. A process that still finds a damaged entry makes it anew, with a line of notice.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

NAME = "nogpu"
_DIGEST_BYTES = 32
_OTHERS = 0o022  # write permissions of others
_LEFT_S = 24 * 3600  # age in seconds at which a scratch folder counts as left by a killed process

_is_used = True


class SetupError(RuntimeError):
    """The lack of a C compiler that works, or of a folder. The text says what is missing, and how to get it."""


@contextmanager
def unused() -> Iterator[None]:
    """A context in which no entry is read or written, to measure or test what entries save."""
    global _is_used
    before, _is_used = _is_used, False
    try:
        yield
    finally:
        _is_used = before


# ----------------------------------------------------------------------------------------------------------------------
# Folders
# ----------------------------------------------------------------------------------------------------------------------


def _places() -> list[Path]:
    """The places where the cache may be, the best first: in the user's cache, then in the temporary folder."""
    places = []
    named = Path(os.environ.get("XDG_CACHE_HOME") or "")
    with suppress(RuntimeError):  # a user without a home
        places.append((named if named.is_absolute() else Path.home() / ".cache") / NAME)
    with suppress(FileNotFoundError):  # no temporary folder
        places.append(Path(tempfile.gettempdir()) / f"{NAME}-{os.getuid()}")
    return places


def _made(place: Path) -> bool:
    """True if the place is a folder of this user, made here if it was missing."""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = place.stat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def nowhere() -> SetupError:
    """The error for a machine without any place for the cache."""
    return SetupError(
        f"the emulator needs a folder for its cache that is yours and that you, and no others, can write to "
        f"({' or '.join(map(str, _places())) or 'there is neither a home nor a temporary folder'} is none): name one "
        "in the environment variable XDG_CACHE_HOME"
    )


def root() -> Path:
    """The cache's folder. Raises SetupError if there is no place to write to."""
    for place in _places():
        if _made(place) and os.access(place, os.W_OK | os.X_OK, effective_ids=True):
            return place
    raise nowhere()


def folders(name: str) -> Iterator[Path]:
    """The folders with this name that no other user can write to; later ones serve if earlier ones fail."""
    for place in _places():
        found = place / name
        if _made(place) and _made(found) and not found.stat().st_mode & _OTHERS:
            yield found


def folder(name: str) -> Path | None:
    """A folder of the cache; None if there can be none, or if other users can write to it."""
    return _folder(name) if _is_used else None


@cache
def _folder(name: str) -> Path | None:
    return next(folders(name), None)


@contextmanager
def scratch(place: Path) -> Iterator[Path]:
    """A folder inside of a cache folder, for unfinished entries. Folders left by killed processes are removed."""
    for left in place.glob("scratch-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_S:
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=place, ignore_cleanup_errors=True) as name:
        yield Path(name)


# ----------------------------------------------------------------------------------------------------------------------
# Entries
# ----------------------------------------------------------------------------------------------------------------------


def notice(text: str) -> None:
    """Write a line to standard error, unless that is closed or missing."""
    with suppress(OSError, ValueError, AttributeError):  # closed, or missing
        print(f"nogpu: {text}", file=sys.stderr, flush=True)


def sealed(data: bytes) -> bytes:
    """The data followed by its digest: the system can load a library in this form as it is."""
    return data + hashlib.sha256(data).digest()


def read(entry: Path) -> bytes | None:
    """The content of an entry; None if it is missing or damaged. Damage is reported."""
    try:
        data = entry.read_bytes()
    except OSError:
        return None
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        notice(f"{entry} is damaged and is made anew")
        return None
    with suppress(OSError):  # a folder without write permission
        os.utime(entry)  # marks the entry as used, since the last used ones are kept
    return content


def put(entry: Path, data: bytes) -> None:
    """Put an entry in place, whole. Raises OSError where that fails."""
    descriptor, name = tempfile.mkstemp(dir=entry.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(sealed(data))
        os.replace(name, entry)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def write(entry: Path, data: bytes, most: int) -> None:
    """Put an entry in place; a full disk or a folder without write permission is no error.

    most: number of entries to keep in its folder.
    """
    with suppress(OSError):
        put(entry, data)
        if len(os.listdir(entry.parent)) > most:
            entries = sorted(entry.parent.iterdir(), key=lambda one: one.stat().st_mtime_ns)
            for old in entries[:-most]:
                old.unlink(missing_ok=True)
