"""Entry points for memory pools of cudaMallocAsync. All take their memory from the same allocator; a pool counts it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

from nogpu.cuda.handles import Table
from nogpu.cuda.programs import status
from nogpu.cuda.programs.entries import ADDRESS, DEVICE, HANDLE, INT, SIZE, constant, copied, entry, ignored, put
from nogpu.cuda.programs.virtual_memory import Location, accesses
from nogpu.errors import Fault

_FLAGS = (1, 2, 3)  # cudaMemPoolReuse...: int, what of freed memory is taken again; without effect on results
_THRESHOLD, _RESERVED, _MOST_RESERVED, _USED, _MOST_USED = range(4, 9)  # cudaMemPoolAttr..., bytes in 64 bits
_DEFAULT = 1
_READ_WRITE = 3  # cudaMemAccessFlagsProtReadWrite


class Properties(ctypes.Structure):
    """cudaMemPoolProps and CUmemPoolProps, as far as they are read."""

    _fields_ = [("kind", ctypes.c_int32), ("handle_types", ctypes.c_int32), ("location", Location)]


@dataclass
class _Pool:
    values: dict[int, int] = field(default_factory=lambda: {**dict.fromkeys(_FLAGS, 1), _THRESHOLD: 0})
    used: int = 0
    most_used: int = 0


_pools = Table[_Pool]("memory pool")
_pools.add(_Pool())  # the default one
_taken: dict[int, tuple[_Pool, int]] = {}  # allocation -> its pool, and bytes
_current = _DEFAULT


def check(handle: int) -> None:
    """Raise UnknownHandle for the handle of no pool."""
    _pools[handle]


def took(address: int, nbytes: int, handle: int | None = None) -> None:
    """Count an allocation of a pool, by default of the device's current one."""
    pool = _pools[_current if handle is None else handle]
    _taken[address] = pool, nbytes
    pool.used += nbytes
    pool.most_used = max(pool.most_used, pool.used)


def gave(address: int) -> None:
    """Count the release of an allocation, if a pool has it."""
    if address in _taken:
        pool, nbytes = _taken.pop(address)
        pool.used -= nbytes


@entry("cudaMemPoolCreate cuMemPoolCreate", ADDRESS, ADDRESS)
def create(result: int, properties: int) -> None:
    given = copied(Properties, properties)
    given.location.check()
    if given.handle_types:
        raise status.Refused(status.NOT_SUPPORTED, "memory pools that other processes open are not modelled")
    put(result, HANDLE, _pools.add(_Pool()))


@entry("cudaMemPoolDestroy cuMemPoolDestroy", HANDLE)
def destroy(handle: int) -> None:
    global _current
    if handle == _DEFAULT:
        raise Fault("the default pool of a device cannot be destroyed")
    _pools.take(handle)
    if handle == _current:
        _current = _DEFAULT


@entry("cudaDeviceGetMemPool cuDeviceGetMemPool", ADDRESS, DEVICE)
def current_pool(result: int, device: int) -> None:
    put(result, HANDLE, _current)


@entry("cudaDeviceSetMemPool cuDeviceSetMemPool", DEVICE, HANDLE)
def set_current_pool(device: int, handle: int) -> None:
    global _current
    check(handle)
    _current = handle


@entry("cudaMemPoolGetAttribute cuMemPoolGetAttribute", HANDLE, INT, ADDRESS)
def attribute(handle: int, number: int, result: int) -> None:
    pool = _pools[handle]
    counts = {_RESERVED: pool.used, _MOST_RESERVED: pool.most_used, _USED: pool.used, _MOST_USED: pool.most_used}
    values = {**pool.values, **counts}
    if number not in values:
        raise status.Refused(status.NOT_SUPPORTED, f"attribute {number} of memory pools is not modelled")
    put(result, ctypes.c_int32 if number in _FLAGS else ctypes.c_uint64, values[number])


@entry("cudaMemPoolSetAttribute cuMemPoolSetAttribute", HANDLE, INT, ADDRESS)
def set_attribute(handle: int, number: int, value: int) -> None:
    pool = _pools[handle]
    if not value:
        raise status.Refused(status.INVALID_VALUE, "a null pointer for a value")
    if number in (_MOST_RESERVED, _MOST_USED):  # 0 is the one value that is allowed: count anew
        pool.most_used = pool.used
    elif number in pool.values:
        kind = ctypes.c_int32 if number in _FLAGS else ctypes.c_uint64
        pool.values[number] = kind.from_address(value).value
    else:
        raise status.Refused(status.NOT_SUPPORTED, f"attribute {number} of memory pools is not modelled")


@entry("cudaMemPoolSetAccess cuMemPoolSetAccess", HANDLE, ADDRESS, SIZE)
def set_access(handle: int, descriptions: int, count: int) -> None:
    check(handle)
    for given in accesses(descriptions, count):
        if given.flags != _READ_WRITE:
            raise Fault("the device of a pool always has access to it")


@entry("cudaMemPoolGetAccess cuMemPoolGetAccess", ADDRESS, HANDLE, ADDRESS)
def access(result: int, handle: int, location: int) -> None:
    check(handle)
    copied(Location, location).check()
    put(result, ctypes.c_int32, _READ_WRITE)


constant("cudaDeviceGetDefaultMemPool cuDeviceGetDefaultMemPool", _DEFAULT, ADDRESS, DEVICE, kind=HANDLE)
ignored("cudaMemPoolTrimTo cuMemPoolTrimTo", HANDLE, SIZE)
