"""The launch modes have one name each, in code and in every file of figures."""

import json
import re
from pathlib import Path

import pytest

from harness.launch_modes import ALONE, ORDINARY, OVERLAPPING, PROGRAMMATIC, LaunchMode

ROOT = Path(__file__).resolve().parents[2]
RESULTS = sorted((ROOT / "docs/results").glob("*.json"))
OTHERS = "in turn", "nothing promised", "unpromised", "programmatic launch off"  # rejected names of the modes


def test_names_and_fields():
    assert [*LaunchMode] == ["ordinary launches", "programmatic, nothing promised", "overlapping"]
    assert [mode.keyword for mode in LaunchMode] == ["ordinary", "programmatic", "overlapping"]
    assert [mode.field for mode in LaunchMode] == ["ordinary_us", "programmatic_us", "overlapping_us"]
    assert (ORDINARY, PROGRAMMATIC, OVERLAPPING) == tuple(LaunchMode)
    points = json.loads((ROOT / "docs/results/clock-ours-b200.json").read_text())["points"]
    fields = {mode.field for mode in LaunchMode}
    for point in points:
        found = {name for name in point if name.endswith("_us")}
        assert found <= (fields if point["entry"] == "ours" else {ORDINARY.field}) and found


def launches_of(value):
    """Every value of a field `launches`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if key == "launches" and isinstance(item, str):
            yield item
        yield from launches_of(item)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_files_of_figures_use_them(path):
    saved = json.loads(path.read_text())
    assert set(launches_of(saved)) <= {*LaunchMode, ALONE}
    for row in saved.get("us", ()):
        plain = row.replace(PROGRAMMATIC, "")
        assert not any(name in plain for name in OTHERS), row


def test_titles_of_tables_in_the_documents():
    """Columns and rows of the generated tables have only names from their files and programs."""
    for name in ("README.md", "docs/measurements.md"):
        tables = re.findall(
            r"<!-- table: (?!foreign)[^\n]*-->\n(.*?)<!-- end -->", (ROOT / name).read_text(), re.DOTALL
        )
        for cell in re.findall(r"\| ([^|\n]*ours[^|\n]*|ring[^|\n]*) (?=\|)", "\n".join(tables)):
            assert not any(other in cell.replace(PROGRAMMATIC, "") for other in OTHERS), cell
