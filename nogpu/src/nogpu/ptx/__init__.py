"""Parser of PTX text into entries, instructions and operands, for the emulator and the Hopper path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nogpu import lazy

if TYPE_CHECKING:
    from nogpu.ptx.ir import Entry
    from nogpu.ptx.module import parse

__all__ = ["Entry", "parse"]
__getattr__ = lazy.names(__name__, ir="Entry", module="parse")
