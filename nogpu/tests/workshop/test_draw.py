"""workshop.foreign.draw: which files are candidates, what a seed draws of them, and the list that it writes."""

import random
from collections import Counter

import pytest

from workshop.foreign import draw, runs

CU = "__global__ void k() {}\nint main() { k<<<1, 1>>>(); }\n"
TRITON = "import triton\n@triton.jit\ndef k(x): pass\nk[(1,)](0)\n"
DSL = 'import cutlass.cute as cute\n@cute.jit\ndef f(): pass\nif __name__ == "__main__":\n    f()\n'
EXT = "from torch.utils.cpp_extension import load_inline\nm = load_inline(name='m', cpp_sources='')\n"
TEST = "import triton\ndef test_first(): pass\ndef test_second(): pass\n"


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.cu", CU, "cu"),
        ("a.cu", CU.replace("main", "other"), ""),
        ("a.cu", '#include "absent.h"\n' + CU, ""),
        ("a.cu", '#include "a.cu"\n' + CU, "cu"),
        ("a.cu", CU + "// wgmma.mma_async\n", ""),
        ("a.cu", CU.replace("main() {", "main(int argc, char** argv) { if (argc != 2) return 1;"), ""),
        ("bench/a.cu", CU, ""),
        ("a.py", TRITON, "triton"),
        ("a.py", TRITON.replace("k[(1,)](0)", ""), ""),
        ("a.py", DSL, "dsl"),
        ("a.py", EXT, "ext"),
        ("test_a.py", TEST, "test"),
        ("a.py", "print(1)\n", ""),
    ],
)
def test_kind(tmp_path, name, text, kind):
    path = tmp_path / "owner+name" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert [each for each, paths in draw.candidates(tmp_path).items() if paths] == ([kind] if kind else [])


@pytest.fixture
def checkouts(tmp_path):
    for owner in "abc":
        folder = tmp_path / f"{owner}+name" / "inner"
        folder.mkdir(parents=True)
        for number in range(6):
            (folder / f"{number}.cu").write_text(f"// {owner}{number}\n{CU}")
        (folder / "test_it.py").write_text(f"# {owner}\n{TEST}")
        (folder / "copy.cu").write_text(f"//  {owner}0\n\n{CU}")  # a text met before: blanks do not count
    return tmp_path


def test_draw_keeps_shares_and_what_a_repository_gives(checkouts):
    found = draw.candidates(checkouts)
    assert {kind: len(paths) for kind, paths in found.items() if paths} == {"cu": 18, "test": 3}
    drawn = draw.draw(found, {"cu": 5, "test": 2}, 2, random.Random(1))
    assert Counter(kind for kind, _ in drawn) == {"cu": 5, "test": 2}
    assert max(Counter(path.parts[-3] for kind, path in drawn if kind == "cu").values()) == 2
    assert drawn == draw.draw(found, {"cu": 5, "test": 2}, 2, random.Random(1))
    assert drawn != draw.draw(found, {"cu": 5, "test": 2}, 2, random.Random(2))


def test_list_is_one_that_runs_are_made_of(checkouts, capsys):
    first, second = checkouts / "first.toml", checkouts / "second.toml"
    share = ["--share", "cu=9,test=2", "--most", "5"]
    draw.main([str(checkouts), "--seed", "3", *share, "--save", str(first)])
    draw.main([str(checkouts), "--seed", "3", *share, "--without", str(first), "--save", str(second)])
    assert "test: 1 of 1 candidates, 2 were asked for" in capsys.readouterr().out
    one, other = (list(runs.programs(checkouts, set(), path)) for path in (first, second))
    assert len(one) == 11 and not {each.file for each in one} & {each.file for each in other}
    test = next(each for each in one if each.framework == "test")
    assert test.folder.name in ("a+name", "b+name", "c+name") and test.command.endswith("{file} -k test_first")
    assert all(each.folder == each.file.parent for each in one if each.framework == "cu")
