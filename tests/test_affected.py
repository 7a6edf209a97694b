"""tests/affected.py: which test files are near to a change, and in which order."""

from pathlib import Path

import pytest

from tests.affected import imports, module, nearest

FILES = {
    "src/affectable/low.py": "",
    "src/affectable/middle.py": "from affectable import low",
    "src/affectable/apart.py": "",
    "proofs/helper.py": "from affectable import middle",
    "proofs/test_helper.py": "import proofs.helper",
    "proofs/test_middle.py": "import affectable.middle",
    "proofs/test_more.py": "import affectable.middle, affectable.apart",
    "proofs/test_low_level.py": "",
    "proofs/test_apart.py": "import affectable.apart",
    "src/affectable/hall/door_handle.py": "",
    "proofs/hall/test_door.py": "",
    "proofs/hall/test_other.py": "",
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("affected")
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(text)
    return imports(folder, ("affectable", "proofs"))


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("affectable.low", ["test_low_level", "test_middle", "test_more", "test_helper"]),
        ("affectable.middle", ["test_middle", "test_more", "test_helper"]),
        ("affectable.apart", ["test_apart", "test_more"]),
        ("proofs.helper", ["test_helper"]),
        ("proofs.test_more", ["test_more"]),
        ("affectable.low_level_of_c", []),
        ("affectable.hall.door_handle", ["hall.test_door"]),
    ],
)
def test_the_nearest_come_first(graph, changed, tests):
    assert nearest(graph, {changed}) == [f"proofs.{test}" for test in tests]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("nogpu/src/nogpu/store.py", "nogpu.store"),
        ("nogpu/tests/support/nvcc.py", "tests.support.nvcc"),
        ("nogpu/workshop/fuzz.py", "workshop.fuzz"),
        ("harness/__init__.py", "harness"),
        ("submission.py", "submission"),
    ],
)
def test_a_file_is_imported_by_its_name(file, name):
    assert module(Path(file)) == name
