"""Entry points of the driver for virtual memory: addresses, physical memory, and what maps one to the other.

CUDA Driver API, "Virtual Memory Management". Physical memory is a file in memory. It has pages in the process where it
is mapped with access; elsewhere in a reservation the addresses are nobody's, so that kernels, copies and the host fault
there. Neighbours that are mapped with the same access are one allocation to kernels.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from nogpu import headers
from nogpu.cuda.handles import Table
from nogpu.cuda.programs import devices, pages, status
from nogpu.cuda.programs.entries import ADDRESS, HANDLE, INT, SIZE, U64, copied, entry, put, store
from nogpu.errors import Fault

GRANULARITY = 2 << 20  # bytes, of a B200's device memory, minimum and recommended
_DEVICE, _PINNED = 1, 1  # CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_PINNED
_FILE = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_NO_ACCESS, _READ, _READ_WRITE = 0, 1, 3  # CUmemAccess_flags


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = headers.fields("s32 kind, number")

    def check(self) -> None:
        """Raise Refused unless it is the device."""
        if (self.kind, self.number) != (_DEVICE, 0):
            what = f"memory at a location of kind {self.kind}, number {self.number}"
            raise status.Refused(status.NOT_SUPPORTED, f"{what}, is not modelled: device 0's is")


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = headers.fields("s32 kind, handle_types; Location location; word metadata; u64 flags", Location=Location)

    def check(self) -> None:
        """Raise Refused for what is not modelled."""
        self.location.check()
        if self.kind != _PINNED or self.handle_types & ~_FILE or self.flags:
            reason = "pinned memory is modelled, with file descriptors as handles, not compressed and not for RDMA"
            raise status.Refused(status.NOT_SUPPORTED, reason)


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", Location), ("flags", ctypes.c_int32)]


def accesses(address: int, count: int) -> Iterator[Access]:
    """The descriptions at an address. Raises Refused for one of another location than the device."""
    for number in range(count):
        given = copied(Access, address + number * ctypes.sizeof(Access))
        given.location.check()
        yield given


@dataclass(eq=False)
class _Physical:
    """Memory in a file. It lives while a handle or a mapping has it."""

    file: int
    nbytes: int
    properties: Properties
    users: int = 0

    def drop(self) -> None:
        self.users -= 1
        if not self.users:
            os.close(self.file)


@dataclass
class _Mapping:
    start: int
    nbytes: int
    memory: _Physical
    access: int = _NO_ACCESS

    @property
    def end(self) -> int:
        return self.start + self.nbytes


@dataclass
class _Reservation:
    start: int
    nbytes: int
    mappings: dict[int, _Mapping] = field(default_factory=dict)
    placed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """First address -> (end, access) of what kernels may access."""

    @property
    def end(self) -> int:
        return self.start + self.nbytes

    def whole(self, start: int, nbytes: int) -> list[_Mapping]:
        """The mappings that make up a range. Raises Fault unless they do, each as a whole."""
        found = [each for _, each in sorted(self.mappings.items()) if start <= each.start < start + nbytes]
        if not found or sum(each.nbytes for each in found) != nbytes or found[-1].end != start + nbytes:
            raise Fault(f"{nbytes} bytes at {start:#x} are not whole mappings of cuMemMap")
        return found

    def place(self) -> None:
        """Tell the device what kernels may access."""
        runs: dict[int, tuple[int, int]] = {}
        first = -1
        for start, each in sorted(self.mappings.items()):
            if each.access == _NO_ACCESS:
                continue
            if first not in runs or runs[first] != (start, each.access):
                first = start
            runs[first] = each.end, each.access
        device = devices.emulated("virtual memory management")
        for start, run in self.placed.items():
            if runs.get(start) != run:
                device.remove(start)
        for start, (end, access) in runs.items():
            if self.placed.get(start) != (end, access):
                device.place(start, end - start, f"cuMemMap({end - start})", access == _READ_WRITE)
        self.placed = runs


_memories = Table[_Physical]("handle of cuMemCreate")
_reservations: dict[int, _Reservation] = {}


def _check_size(nbytes: int) -> None:
    if not nbytes or nbytes % GRANULARITY:
        raise Fault(f"size {nbytes}: must be a multiple of {GRANULARITY} (cuMemGetAllocationGranularity)")


def _reservation(start: int, nbytes: int) -> _Reservation:
    found = next((each for each in _reservations.values() if each.start <= start < each.end), None)
    if found is None or start + nbytes > found.end:
        raise Fault(f"{nbytes} bytes at {start:#x} have not been reserved by cuMemAddressReserve")
    return found


def _add(result: int, memory: _Physical) -> None:
    memory.users += 1
    put(result, U64, _memories.add(memory))


@entry("cuMemGetAllocationGranularity", ADDRESS, ADDRESS, INT)
def granularity(result: int, properties: int, option: int) -> None:
    copied(Properties, properties).check()
    put(result, ctypes.c_size_t, GRANULARITY)


@entry("cuMemAddressReserve", ADDRESS, SIZE, SIZE, ADDRESS, U64)
def reserve(result: int, nbytes: int, alignment: int, wish: int, flags: int) -> None:
    _check_size(nbytes)
    if alignment & (alignment - 1):
        raise Fault(f"alignment {alignment}: must be a power of two")
    start = pages.reserve(nbytes, max(alignment, GRANULARITY))
    _reservations[start] = _Reservation(start, nbytes)
    devices.emulated("virtual memory management").reserved(start, nbytes)
    put(result, ctypes.c_size_t, start)


@entry("cuMemAddressFree", ADDRESS, SIZE)
def free_addresses(start: int, nbytes: int) -> None:
    found = _reservations.get(start)
    if found is None or found.nbytes != nbytes:
        raise Fault(f"{nbytes} bytes at {start:#x} are no whole reservation of cuMemAddressReserve")
    if found.mappings:
        raise Fault(f"{nbytes} bytes at {start:#x} are mapped: cuMemUnmap comes before cuMemAddressFree")
    devices.emulated("virtual memory management").reserved(start, 0)
    del _reservations[start]
    pages.give_back(start, nbytes)


@entry("cuMemCreate", ADDRESS, SIZE, ADDRESS, U64)
def create(result: int, nbytes: int, properties: int, flags: int) -> None:
    given = copied(Properties, properties)
    given.check()
    _check_size(nbytes)
    if nbytes > devices.emulated("virtual memory management").memory()[0]:
        raise status.Refused(status.OUT_OF_MEMORY, f"size {nbytes}: the device has not that much memory")
    _add(result, _Physical(pages.create(nbytes), nbytes, given))


@entry("cuMemRelease", HANDLE)
def release(handle: int) -> None:
    _memories.take(handle).drop()


@entry("cuMemMap", ADDRESS, SIZE, SIZE, HANDLE, U64)
def map_memory(start: int, nbytes: int, offset: int, handle: int, flags: int) -> None:
    memory = _memories[handle]
    _check_size(nbytes)
    if offset or nbytes > memory.nbytes:
        raise Fault(f"{nbytes} bytes from byte {offset} of {memory.nbytes}: they must begin at 0 and be inside")
    if start % GRANULARITY:
        raise Fault(f"address {start:#x}: must be a multiple of {GRANULARITY}")
    found = _reservation(start, nbytes)
    other = next((each for each in found.mappings.values() if each.start < start + nbytes and start < each.end), None)
    if other is not None:
        raise Fault(f"{nbytes} bytes at {start:#x}: {other.nbytes} bytes at {other.start:#x} are mapped already")
    memory.users += 1
    found.mappings[start] = _Mapping(start, nbytes, memory)


@entry("cuMemUnmap", ADDRESS, SIZE)
def unmap(start: int, nbytes: int) -> None:
    found = _reservation(start, nbytes)
    gone = found.whole(start, nbytes)
    for each in gone:
        del found.mappings[each.start]
    found.place()
    pages.reserve(nbytes, GRANULARITY, start)
    for each in gone:
        each.memory.drop()


@entry("cuMemSetAccess", ADDRESS, SIZE, ADDRESS, SIZE)
def set_access(start: int, nbytes: int, descriptions: int, count: int) -> None:
    found = _reservation(start, nbytes)
    changed = found.whole(start, nbytes)
    for wanted in accesses(descriptions, count):
        if wanted.flags not in (_NO_ACCESS, _READ, _READ_WRITE):
            raise Fault(f"access flags {wanted.flags}: must be 0, 1 or 3 (CUmemAccess_flags)")
        for each in changed:
            if not each.access and wanted.flags:
                pages.show(each.memory.file, each.nbytes, each.start)
            each.access = wanted.flags
        found.place()
        for each in changed:
            if not each.access:
                pages.reserve(each.nbytes, GRANULARITY, each.start)


@entry("cuMemGetAccess", ADDRESS, ADDRESS, ADDRESS)
def get_access(result: int, location: int, address: int) -> None:
    copied(Location, location).check()
    put(result, U64, _mapping(address).access)


def _mapping(address: int) -> _Mapping:
    found = _reservation(address, 1).mappings.values()
    mapping = next((each for each in found if each.start <= address < each.end), None)
    if mapping is None:
        raise Fault(f"address {address:#x} is reserved and not mapped")
    return mapping


def _check_kind(kind: int) -> None:
    if kind != _FILE:
        raise status.Refused(status.NOT_SUPPORTED, f"handles of type {kind} are not modelled: file descriptors are")


@entry("cuMemExportToShareableHandle", ADDRESS, HANDLE, INT, U64)
def export_memory(result: int, handle: int, kind: int, flags: int) -> None:
    memory = _memories[handle]
    _check_kind(kind)
    if not memory.properties.handle_types & _FILE:
        raise Fault("the memory has been created without CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR")
    put(result, ctypes.c_int32, os.dup(memory.file))


@entry("cuMemImportFromShareableHandle", ADDRESS, ADDRESS, INT)
def import_memory(result: int, file: int, kind: int) -> None:
    _check_kind(kind)
    try:
        nbytes, own = os.fstat(file).st_size, os.dup(file)
    except OSError as error:
        raise Fault(f"file descriptor {file}: {error}") from None
    _add(result, _Physical(own, nbytes, Properties(_PINNED, _FILE, Location(_DEVICE, 0))))


@entry("cuMemGetAllocationPropertiesFromHandle", ADDRESS, HANDLE)
def properties_of(result: int, handle: int) -> None:
    store(result, _memories[handle].properties)


@entry("cuMemRetainAllocationHandle", ADDRESS, ADDRESS)
def retain(result: int, address: int) -> None:
    _add(result, _mapping(address).memory)
