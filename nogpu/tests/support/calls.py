"""Programs whose instructions Python executes where it can: rows of the opcode table without their kernels."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from nogpu.compiler import translate
from nogpu.compiler.opcodes import table, warp_mma
from nogpu.compiler.stored import StoredEntry
from nogpu.execution.device import Device


@contextmanager
def called(is_called: bool = True) -> Iterator[None]:
    """Makes kernels translated inside call Python for every instruction that has a call, as they do in rare cases."""
    if not is_called:
        yield
        return
    # The call of mma.sync refuses it where lanes are missing, and does no more.
    rows = [replace(row, kernels=None) if row.emit and row not in warp_mma.ROWS else row for row in table.TABLE]
    translated = translate.translate

    def from_text(entry, *arguments, **options):
        return translated(entry.parsed() if isinstance(entry, StoredEntry) else entry, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "TABLE", rows)
        patch.setattr(translate, "translate", from_text)
        patch.setattr(translate, "keep", lambda *arguments: None)
        patch.setattr(Device.current(), "_programs", {})
        table.lookup.cache_clear()
        yield
    table.lookup.cache_clear()
