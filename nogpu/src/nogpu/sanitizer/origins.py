"""Origins of uninitialised bits, and the memories' shadows, which have the bytes that nobody has written.

A shadow is a memory of the same kind: a byte of it is 0xFF where the memory's is uninitialised, else 0. Code that moves
bytes, boxes and fragments moves their shadows as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nogpu.hardware.memory import SHARED_BASE, UNWRITTEN
from nogpu.hardware.shared_memory import SharedMemory
from nogpu.hardware.tensor.order import COLUMNS
from nogpu.hardware.tensor.tmem import TensorMemory
from nogpu.hardware.tma.swizzle import CHUNK, CHUNK_TYPE
from nogpu.sanitizer.shadow_tables import is_zero

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.warp import Issuer, Warp

INVALID = 0xFF
_TYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, CHUNK: CHUNK_TYPE}


class Origin(NamedTuple):
    """Origin of uninitialised bits."""

    place: str
    issuer: Issuer | None  # the first instruction that has read them; None for a register's own
    section: str  # title in the PTX ISA
    is_global: bool = False


class SharedShadow:
    """Bytes of a CTA's shared memory that nobody has written."""

    def __init__(self, cta: Cta) -> None:
        self._cta = cta
        self.version = 0  # grows where bytes may become invalid
        self.memory = SharedMemory(len(cta.shared.data) - SHARED_BASE, cta.rank)
        self.data = self.memory.data
        self._views: dict[int, np.ndarray] = {
            width: self.data[: self.data.size // width * width].view(kind) for width, kind in _TYPES.items()
        }
        self._origins: dict[int, Origin] = {}  # chunk -> origin of bits that were stored there

    def found(self, place: int | np.ndarray, width: int) -> np.ndarray | None:
        """uint8[places, width]: invalid bits of the bytes; None if there are none."""
        if not isinstance(place, np.ndarray):
            part = self.data[place : place + width]
            return None if is_zero(part) else part.reshape(1, -1)
        view = self._views.get(width)
        if view is None or (width > 1 and (place & (width - 1)).any()):
            part = self.data[place[:, None] + np.arange(width)]
        else:
            part = view.take(place // width).view(np.uint8).reshape(-1, width)
        return None if is_zero(part) else part

    def chunks(self, places: np.ndarray) -> np.ndarray:
        """uint8[..., 16]: invalid bits of chunks, by their numbers."""
        return self._views[CHUNK].take(places)[..., None].view(np.uint8)

    def write(self, place: int | np.ndarray, width: int, invalid: np.ndarray | int = 0) -> None:
        """Marks a write of the bytes. invalid: uint8[places, width], the written invalid bits; 0: none."""
        self.version += not isinstance(invalid, int)
        if not isinstance(place, np.ndarray):
            self.data[place : place + width] = invalid if isinstance(invalid, int) else invalid[0]
            return
        view = self._views.get(width)
        if isinstance(invalid, int) and view is not None and not (width > 1 and (place & (width - 1)).any()):
            view[place // width] = invalid
        else:
            self.data[place[:, None] + np.arange(width)] = invalid

    def stems_from(self, place: int | np.ndarray, width: int, origin: Origin) -> None:
        """Sets the origin of invalid bits that are stored in these bytes."""
        for offset in place.tolist() if isinstance(place, np.ndarray) else [place]:
            for chunk in range(offset // CHUNK, (offset + width - 1) // CHUNK + 1):
                self._origins[chunk] = origin

    def origin(self, offset: int, issuer: Issuer) -> Origin:
        """Origin of an invalid byte, which an instruction reads."""
        known = self._origins.get(offset // CHUNK)
        if known is not None:
            return known
        return Origin(f"shared offset {offset:#x} of {self._cta.label}", issuer, "Shared State Space")

    def first(self, place: int | np.ndarray, invalid: np.ndarray) -> int:
        """Offset of the first invalid byte. invalid: as `found` returns it."""
        row, byte = np.argwhere(invalid)[0].tolist()
        return (int(place[row]) if isinstance(place, np.ndarray) else place) + byte

    def copied(self, place: int | np.ndarray, nbytes: int, issuer: Issuer) -> None:
        """Marks a copy of bytes from global memory: words that nobody has written stay uninitialised."""
        data = self._cta.shared.data
        if nbytes % 4:
            return
        if isinstance(place, np.ndarray):
            words = data[place[:, None].astype(np.int64) + np.arange(nbytes)].view(np.uint32)
        else:
            words = data[place : place + nbytes].view(np.uint32)[None]
        unwritten = words == UNWRITTEN
        if not is_zero(unwritten):
            invalid = np.repeat(unwritten, 4, axis=1).astype(np.uint8) * np.uint8(INVALID)
            place = place.astype(np.int64) if isinstance(place, np.ndarray) else place
            self.write(place, nbytes, invalid)
            self.stems_from(place, nbytes, global_origin(issuer))


class LocalShadow:
    """Bytes of the local memory of a warp's lanes that nobody has written."""

    def __init__(self, size: int) -> None:
        self._data = np.full((32, size), INVALID, np.uint8)
        self.origin: Origin | None = None  # of bits that were stored there last

    def found(self, places: list[tuple[int, int]], nbytes: int) -> np.ndarray | None:
        """uint8[32, nbytes]: invalid bits of the lanes' bytes; None if there are none. places: (lane, offset)."""
        found = np.zeros((32, nbytes), np.uint8)
        for lane, offset in places:
            found[lane] = self._data[lane, offset : offset + nbytes]
        return None if is_zero(found) else found

    def write(self, places: list[tuple[int, int]], nbytes: int, invalid: np.ndarray | None) -> None:
        """Marks a write. invalid: uint8[32, nbytes], the written invalid bits; None: none."""
        for lane, offset in places:
            self._data[lane, offset : offset + nbytes] = 0 if invalid is None else invalid[lane]


def local_origin(warp: Warp, issuer: Issuer) -> Origin:
    """Origin of local memory that nobody has written."""
    return Origin(f"local memory of warp {warp.index} of {warp.cta.label}", issuer, "Local State Space")


def global_origin(issuer: Issuer) -> Origin:
    """Origin of words of global memory that an instruction has read."""
    return Origin("global memory", issuer, "Global State Space", is_global=True)


class TensorShadow:
    """Words of a CTA's tensor memory that nobody has written."""

    def __init__(self, cta: Cta) -> None:
        self._cta = cta
        self.version = 0  # grows where bits may become invalid
        self.memory = TensorMemory()
        self._origins: dict[int, Origin] = {}  # by column

    @property
    def words(self) -> np.ndarray:
        """uint32[LANES, COLUMNS]: all bits of a word are set where nobody has written it."""
        return self.memory.words

    def allocated(self, base: int, columns: int) -> None:
        """Marks columns as uninitialised at their allocation."""
        self.version += 1
        self.words[:, base : base + columns] = 0xFFFFFFFF
        for column in range(base, base + columns):
            self._origins.pop(column, None)

    def stems_from(self, columns: range, origin: Origin) -> None:
        """Sets the origin of invalid bits that are stored in these columns."""
        self.version += 1
        for column in columns:
            self._origins[column % COLUMNS] = origin

    def origin(self, column: int, issuer: Issuer) -> Origin:
        """Origin of an invalid bit of a column, which an instruction reads."""
        known = self._origins.get(column % COLUMNS)
        if known is not None:
            return known
        place = f"column {column:#x} of the tensor memory of {self._cta.label}"
        return Origin(place, issuer, "tcgen05.alloc")
