"""Every row of the opcode table that `test_kernels.py` does not run is in the text of a test."""

import re

from nogpu.compiler.opcodes import table
from tests.support.commands import ROOT
from tests.support.opcode_cases import ARITHMETIC


def test_every_row_is_tested():
    texts = " ".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    texts = texts.replace("x{count}{transposed}", "x4").replace("{load}{vector}.b{width}", "ld.global.nc.b32")
    opcodes = set(re.findall(r"[a-z][\w.:]*[\w]", texts))
    arithmetic = {id(row) for rows in ARITHMETIC.values() for row in rows}
    rows = [row for row in table.TABLE if id(row) not in arithmetic]
    assert rows and [row.expression for row in rows if not any(map(row.pattern.fullmatch, opcodes))] == []


def test_every_expression_compiles():
    """A row compiles its expression when it is first asked for."""
    assert all(row.pattern for row in table.TABLE)
