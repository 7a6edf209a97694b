"""A kernel's resources as ptxas has recorded them in a cubin: the attributes of its section .nv.info.

A cubin is an ELF64 file (System V ABI, "ELF Header", "Sections"). Each attribute of .nv.info is a format, a number and
a size; those read here hold the symbol of a function and a count. `cuobjdump -elf` prints them as EIATTR_REGCOUNT and
EIATTR_FRAME_SIZE.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_SIZED = 4  # the format of attributes with a payload; those of other formats have their value in place of the size
_REGCOUNT, _FRAME_SIZE = 0x2F, 0x11


class Resources(NamedTuple):
    """Registers of a thread, and its bytes of local memory."""

    registers: int
    local_bytes: int


class _Section(NamedTuple):
    name: str
    link: int  # the number of the section that this one refers to
    data: bytes


def _name(names: bytes, offset: int) -> str:
    return names[offset : names.index(b"\0", offset)].decode()


def _sections(image: bytes) -> list[_Section]:
    (table,), (count, names) = struct.unpack_from("<Q", image, 0x28), struct.unpack_from("<2H", image, 0x3C)
    headers = [struct.unpack_from("<2I4Q2I2Q", image, table + 64 * i) for i in range(count)]
    contents = [image[start : start + size] for _, _, _, _, start, size, *_ in headers]
    return [_Section(_name(contents[names], h[0]), h[6], data) for h, data in zip(headers, contents)]


def resources(image: bytes, kernel: str) -> Resources | None:
    """The resources of a kernel of a cubin; None where the image does not say."""
    if image[:4] != b"\x7fELF":
        return None
    sections = {section.name: section for section in _sections(image)}
    if ".symtab" not in sections or ".nv.info" not in sections:
        return None
    symbols, names = sections[".symtab"].data, sections[".strtab"].data
    found: dict[int, int] = {}
    info, position = sections[".nv.info"].data, 0
    while position < len(info):
        form, number, size = struct.unpack_from("<2BH", info, position)
        position += 4
        if form != _SIZED:
            continue
        if number in (_REGCOUNT, _FRAME_SIZE):
            symbol, value = struct.unpack_from("<2I", info, position)
            if _name(names, *struct.unpack_from("<I", symbols, 24 * symbol)) == kernel:
                found[number] = value
        position += size
    return Resources(found[_REGCOUNT], found.get(_FRAME_SIZE, 0)) if _REGCOUNT in found else None
