"""Every row of the opcode table is tested. The tests of arithmetic run in one process, which says what they ran."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nogpu.compiler.opcodes import carry, comparisons, conversions, floats, halves, integers, packed, table
from tests.support.commands import ROOT, clean_environment

FOLDER = Path(__file__).parent
ARITHMETIC = [carry, comparisons, conversions, floats, halves, integers, packed]
RUN = """
import sys
import pytest
code = pytest.main(sys.argv[2:])
from tests.support.opcode_runs import TESTED
open(sys.argv[1], "w").write(" ".join(TESTED))
sys.exit(code)
"""


def opcodes_run(file):
    """Opcodes that the tests of arithmetic run; they write them to a file."""
    files = sorted(map(str, FOLDER.glob("test_opcodes*.py")))
    command = [sys.executable, "-c", RUN, file, "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return set(file.read_text().split())


def missing(rows, opcodes):
    return [row.pattern.pattern for row in rows if not any(map(row.pattern.fullmatch, opcodes))]


@pytest.mark.slow
def test_every_row_is_tested(tmp_path):
    """A row is tested by a test of arithmetic, or, if it is another row, by an opcode in any test's text."""
    ours = opcodes_run(tmp_path / "tested")
    for module in ARITHMETIC:
        assert module.ROWS and not missing(module.ROWS, ours), module.__name__
    texts = " ".join(path.read_text() for path in FOLDER.glob("test_*.py"))
    texts = texts.replace("x{count}{transposed}", "x4").replace("{load}{vector}.b{width}", "ld.global.nc.b32")
    others = {id(row) for module in ARITHMETIC for row in module.ROWS}
    rows = [row for row in table.TABLE if id(row) not in others]
    assert rows and not missing(rows, ours | set(re.findall(r"[a-z][\w.:]*[\w]", texts)))


def test_every_row_of_arithmetic_states_its_operand_count():
    rows = [row for module in ARITHMETIC for row in module.ROWS]
    assert [row.pattern.pattern for row in rows if not row.operands] == []
