"""The contest's project uses nogpu as a stranger would: by the names of nogpu and of its public packages."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PUBLIC = {"nogpu", "nogpu.clock", "nogpu.hopper", "nogpu.ptx", "nogpu.sanitizer"}
FILES = sorted([*ROOT.glob("*.py"), *(ROOT / "harness").rglob("*.py"), *(ROOT / "tools").rglob("*.py")])


def private(text):
    """Names of nogpu that a module's text imports and that are not public."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("nogpu."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "nogpu":
            known = importlib.import_module(node.module).__all__ if node.module in PUBLIC else ()
            yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name not in known)


def test_imports_of_nogpu_are_public():
    found = {str(path.relative_to(ROOT)): list(private(path.read_text())) for path in FILES}
    assert len(found) > 70 and not {path: names for path, names in found.items() if names}


def test_a_private_import_is_seen():
    text = "import nogpu.clock\nfrom nogpu.clock.chip import Chip\nfrom nogpu.clock import Chip, costs\nimport nogpu"
    assert list(private(text)) == ["nogpu.clock", "nogpu.clock.chip.Chip", "nogpu.clock.costs"]


@pytest.mark.parametrize("package", sorted(PUBLIC))
def test_public_names_exist(package):
    module = importlib.import_module(package)
    for name in module.__all__:
        exec(f"from {package} import {name}")
