"""The directives at the start of a module: .version, .target and .address_size (PTX ISA, "PTX Module Directives").

The lists of versions and targets are those of ptxas 13.5.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nogpu.errors import EmulatorError

LAST_MINOR = {1: 5, 2: 3, 3: 2, 4: 3, 5: 1, 6: 5, 7: 8, 8: 8, 9: 5}  # major PTX version -> its last minor version
_TARGETS_BY_VERSION = {
    (1, 0): "sm_10 sm_11",
    (1, 2): "sm_12 sm_13",
    (2, 0): "sm_20 sm_21",
    (3, 0): "sm_30",
    (3, 1): "sm_35",
    (4, 0): "sm_32 sm_50",
    (4, 1): "sm_37 sm_52",
    (4, 2): "sm_53",
    (5, 0): "sm_60 sm_61 sm_62",
    (5, 1): "sm_70",
    (6, 1): "sm_72",
    (6, 2): "sm_82",
    (6, 3): "sm_75",
    (7, 0): "sm_80",
    (7, 1): "sm_86",
    (7, 4): "sm_87",
    (7, 8): "sm_89 sm_90",
    (8, 0): "sm_90a",
    (8, 6): "sm_100 sm_100a sm_101 sm_101a",
    (8, 7): "sm_120 sm_120a",
    (8, 8): "sm_100f sm_101f sm_103 sm_103a sm_103f sm_120f sm_121 sm_121a sm_121f",
    (9, 0): "sm_88 sm_110 sm_110a sm_110f",
    (9, 4): "sm_107 sm_107a sm_107f",
}
FIRST_VERSION = {target: version for version, names in _TARGETS_BY_VERSION.items() for target in names.split()}
"""Target -> the first PTX version, (major, minor), that has it."""
_OPTIONS = ("debug", "texmode_unified", "texmode_independent")  # options of .target without effect here
_ADDRESS_BITS = 64
_VERSION = re.compile(r"\s*\.version\s+(\d{1,4})\.(\d{1,4})(?=\s)")
_TARGET = re.compile(r"\s*\.target\s+(\w+(?:\s*,\s*\w+)*)(?=\s|\Z)")
_ADDRESS_SIZE = re.compile(r"\s*\.address_size\b\s*(\d+)?")


class Header(NamedTuple):
    """The start of a module."""

    version: str  # PTX version, as "8.7"
    target: str  # target with its options, as "sm_100a, debug"
    target_line: int  # 1-based
    end: int  # offset of what follows, in characters


def header(text: str) -> Header:
    """Parse the start of a module's text without comments.

    Raises EmulatorError with the line for directives that are missing or out of order, for an unknown version, target
    or option, for a target that the version lacks, and for addresses of other than 64 bits.
    """

    def line(position: int) -> int:
        return text.count("\n", 0, position + len(text[position:]) - len(text[position:].lstrip())) + 1

    def refuse(position: int, reason: str) -> EmulatorError:
        return EmulatorError(reason, ptx_line=line(position))

    version = _VERSION.match(text)
    if version is None:
        raise refuse(0, 'not a PTX module: it must begin with .version, as ".version 8.8" (PTX ISA, .version)')
    number = int(version[1]), int(version[2])
    if number[1] > LAST_MINOR.get(number[0], -1):
        known = ", ".join(f"{major}.0 to {major}.{minor}" for major, minor in LAST_MINOR.items())
        raise refuse(0, f"PTX version {version[1]}.{version[2]} is not known; known are {known}")
    target = _TARGET.match(text, version.end())
    if target is None:
        raise refuse(
            version.end(), 'not a PTX module: .target must follow .version, as ".target sm_100a" (PTX ISA, .target)'
        )
    name, *options = (part.strip() for part in target[1].split(","))
    if name not in FIRST_VERSION:
        raise refuse(
            version.end(), f"target {name} is not known; known are {len(FIRST_VERSION)}, from sm_10 to sm_121f"
        )
    if number < FIRST_VERSION[name]:
        first = "{}.{}".format(*FIRST_VERSION[name])
        raise refuse(version.end(), f"PTX version {version[1]}.{version[2]} has no target {name}; {first} is the first")
    for option in options:
        if option not in _OPTIONS:
            raise refuse(version.end(), f"option {option} of .target is not one of {', '.join(_OPTIONS)}")
    size = _ADDRESS_SIZE.match(text, target.end())
    if size is not None and size[1] != str(_ADDRESS_BITS):
        raise refuse(
            target.end(),
            f".address_size {size[1] or 'without a number'}: addresses of the device have {_ADDRESS_BITS} bits",
        )
    return Header(f"{number[0]}.{number[1]}", ", ".join((name, *options)), line(version.end()), (size or target).end())
