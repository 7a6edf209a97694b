"""The memory that the worker shares with the harness."""

import ctypes
import fcntl
import mmap
import os
import threading
import time
from contextlib import suppress

from tests.submissions.hostile.kit import kind

SEALS = {"SEAL": 1, "SHRINK": 2, "GROW": 4, "WRITE": 8, "FUTURE_WRITE": 16}
F_ADD_SEALS = 1033
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
libc = ctypes.CDLL(None, use_errno=True)


def memory_files():
    """The descriptors of this process that are memory files."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # descriptor of the listing itself
            if os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:"):
                found.append(int(name))
    return found


def mappings():
    """The (start, bytes) of the writable shared memory files in this process, from its list of mappings."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, access, *rest = line.split()
            if "memfd:" in line and access.startswith("rw"):
                start, end = (int(address, 16) for address in span.split("-"))
                yield start, end - start


@kind()
def truncated_memory():
    """The shared memory is cut to 0 bytes, then grown"""
    for fd in memory_files():
        for size in (0, 1 << 40):
            with suppress(OSError):
                os.ftruncate(fd, size)


@kind(then=("larger",))
def grown_memory():
    """The shared memory grows to more bytes than a process can map; a right case that needs more memory must pass"""
    for fd in memory_files():
        with suppress(OSError):
            os.ftruncate(fd, 1 << 62)


@kind()
def punched_memory():
    """The shared memory's pages are removed"""
    for fd in memory_files():
        size = os.fstat(fd).st_size
        libc.fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, ctypes.c_long(0), ctypes.c_long(size))


@kind(then=("all_zeros", "all_zeros"))
def sealed_memory():
    """The shared memory is sealed against all later writes"""
    for fd in memory_files():
        for seal in SEALS.values():
            with suppress(OSError):
                fcntl.fcntl(fd, F_ADD_SEALS, seal)


@kind()
def cleared_memory():
    """Inputs and outputs in the shared memory are zeros"""
    for start, size in mappings():
        ctypes.memset(start, 0, size)
    for fd in memory_files():
        os.pwrite(fd, bytes(os.fstat(fd).st_size), 0)


@kind()
def memory_written_later():
    """A thread overwrites the shared memory with random bytes for two seconds"""
    end = time.monotonic() + 2

    def overwrite():
        while time.monotonic() < end:
            for fd in memory_files():
                size = os.fstat(fd).st_size
                os.pwrite(fd, os.urandom(min(size, 1 << 20)), 0)

    threading.Thread(target=overwrite, daemon=True).start()


@kind(at_import=True)
def unmapped_memory():
    """The shared memory is unmapped, and its descriptors closed"""
    for start, size in list(mappings()):
        libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(size))
    for fd in memory_files():
        os.close(fd)


@kind()
def private_mapping():
    """The shared memory's mapping is replaced by a private one"""
    for start, size in list(mappings()):
        libc.mmap.restype = ctypes.c_void_p
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10  # MAP_FIXED
        libc.mmap(
            ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, ctypes.c_long(0)
        )
