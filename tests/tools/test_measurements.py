"""Tables of figures are what the committed files give, and the documents around them hold together: their tables are up
to date, pages begin with their maps, links and anchors resolve, every command that they name exists, and the README is
one screen.
"""

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest

from task import PROBLEMS
from tools import measurements
from tools.measurements import render
from workshop.records import MeasurementError

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "nogpu/*.md", "nogpu/docs/*.md") for path in ROOT.glob(pattern)
)
README_LINES = 120
OTHERS_FILES = re.compile(r"my_\w+\.py|other\.py|grouped_blockscaled_gemm\.py|starter\.py")  # of the reader, of NVIDIA


def saved_comparison(device="NVIDIA H200", problem="group_gemm", tensor_core="omitted"):
    return {
        "device": device,
        "sms": 132,
        "torch": "2.13.0",
        "nvidia-cutlass-dsl": "4.8.1",
        "submission.py sha256": "0123456789abcdef",
        "tensor core": tensor_core,
        "problem": problem,
        "command": ["--problem", problem, "--save", "file.json"],
        "us": {
            "ours, overlapping": {"0": [3.0, 1.0, 2.0], "1": [4.0, 4.0, 4.0]},
            "ours, programmatic, nothing promised": {"0": [5.0], "1": [6.0]},
            "ours, 256x192, 2 per SM": {"0": [7.5], "1": [8.25]},
            "plain read": {"0": [9.0]},
        },
    }


def saved(folder, name, content):
    (folder / f"{name}.json").write_text(json.dumps(content))


def table(name, folder):
    """The lines between the markers."""
    text = render(f"before\n<!-- table: {name} -->\nold\n<!-- end -->\nafter\n", folder)
    first, marker, *lines, end, last = text.splitlines()
    assert (first, marker, end, last) == ("before", f"<!-- table: {name} -->", "<!-- end -->", "after")
    return lines


def test_comparison(tmp_path):
    saved(tmp_path, "h200-group_gemm", saved_comparison())
    *rows, _, caption = table("comparison h200-group_gemm", tmp_path)
    assert rows == [
        "| us | case 0 | case 1 |",
        "| --- | ---: | ---: |",
        "| **ours, overlapping** | **2.00** | **4.00** |",
        "| **ours, programmatic, nothing promised** | **5.00** | **6.00** |",
        "| plain read | 9.00 | - |",
    ]
    assert "NVIDIA H200, 132 SMs, **tensor core omitted: no times of a B200**" in caption
    assert "`python -m tools.compare --problem group_gemm --save file.json`" in caption
    assert "within 100.0%" in caption and "0123456789ab" in caption and "4.8.1" in caption
    saved(tmp_path, "h200-group_gemm.peers", saved_comparison())
    assert table("comparison h200-group_gemm.peers", tmp_path)[2] == "| **ours, overlapping** | **2.00** | **4.00** |"
    (missing,) = table("comparison h200-gemm.peers", tmp_path)
    assert "--problem gemm --shapes --save docs/results/h200-gemm.peers.json" in missing
    saved(tmp_path, "h200-group_gemm", saved_comparison())
    assert table("configurations h200-group_gemm", tmp_path)[2:-2] == ["| ours, 256x192, 2 per SM | 7.50 | 8.25 |"]


@pytest.mark.parametrize("kind", ["comparison", "configurations"])
def test_what_is_not_there_names_its_command(tmp_path, kind):
    (line,) = table(f"{kind} h200-gemm", tmp_path)
    assert "python -m tools.compare --problem gemm --shapes --save docs/results/h200-gemm.json" in line


def test_published_figures_without_ours(tmp_path):
    rows = table("b200 group_gemm", tmp_path)
    assert (
        rows[2]
        == "| 0: 8 groups, N 4096, K 7168, M 64..248 | 18.8 | 27.9 | not measured | not measured | not measured |"
    )
    assert (
        rows[4]
        == "| 2: 2 groups, N 3072, K 4096, M 192, 320 | 2.41 | 8.48 | not measured | not measured | not measured |"
    )
    # The best of each case is no one submission's.
    assert rows[6] == "| geometric mean of the column | 5.21 | 13.00 | not measured | not measured | not measured |"
    assert rows[7] == "| best published geometric mean of one submission |  | 13.09 |  |  |  |"


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_has_a_row_per_case(tmp_path, name):
    assert len(table(f"b200 {name}", tmp_path)) == 2 + len(PROBLEMS[name].benchmarks) + 2


def test_figures_of_a_b200(tmp_path):
    content = saved_comparison("NVIDIA B200", tensor_core="as it is")
    content["us"]["ours, overlapping"] |= {"2": [8.0], "3": [float(x) for x in (15, *[16] * 8, 17, 18)]}
    saved(tmp_path, "b200-group_gemm", content)
    rows = table("b200 group_gemm", tmp_path)
    assert rows[0].endswith("| ours, ordinary launches | ours, programmatic, nothing promised | ours, overlapping |")
    assert rows[2].endswith("| 27.9 | not measured | 5.00 (5.00-5.00) | 2.00 (1.00-3.00) |")
    assert rows[4].endswith("| 8.48 | not measured | not measured | 8.00 (8.00-8.00) |")
    assert rows[5].endswith("| 6.43 | not measured | not measured | 16.00 (16.00-17.00) |")
    assert rows[6].endswith("| 13.00 | not measured | not measured | 5.66 |")  # the fourth root of 2 x 4 x 8 x 16
    assert "NVIDIA B200" in rows[-1] and "omitted" not in rows[-1]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("b200-group_gemm", saved_comparison(), "measured on NVIDIA H200"),
        ("b200-group_gemm", saved_comparison("NVIDIA B200"), "no times of a B200"),
        ("b200-group_gemm", saved_comparison("NVIDIA B200", "gemm", "as it is"), "is of gemm"),
    ],
)
def test_a_b200s_figures_are_a_b200s(tmp_path, name, content, words):
    saved(tmp_path, name, content)
    with pytest.raises(MeasurementError, match=words):
        table("b200 group_gemm", tmp_path)


def test_model(tmp_path):
    assert "python -m tools.model --save" in table("model", tmp_path)[0]
    case = {"problem": "gemm", "case": 1, "bytes": 18_100_000, "dram_us": 2.484, "tensor_us": 0.8374}
    saved(tmp_path, "model", {"chip": "b200", "cases": [case]})
    assert table("model", tmp_path)[2] == "| gemm, case 1 | 18.1 | 2.48 | 0.84 |"
    assert "python -m tools.modelled --save" in table("modelled b200", tmp_path)[0]


def test_emulator(tmp_path):
    assert "python -m nogpu.bench --json" in table("emulator", tmp_path)[0]
    times = {"seconds": 2e-6, "low": 1e-6, "high": 3e-6}
    results = [
        {"family": "mbarrier", "name": "arrive", **times, "rate": None, "unit": ""},
        {"family": "copy", "name": "bulk load", **times, "rate": 1e-9, "unit": "byte"},
    ]
    saved(tmp_path, "emulator", {"processor": "a CPU, 2 cores", "python": "3.11.7", "results": results})
    rows = table("emulator", tmp_path)
    assert rows[2] == "| mbarrier: arrive | 2 us | 1 us to 3 us |  |"
    assert rows[3] == "| copy: bulk load | 2 us | 1 us to 3 us | 1.00 ns per byte |"
    assert "a CPU, 2 cores" in rows[-1] and "not of any GPU" in rows[-1]


def saved_soak(device, **counts):
    versions = {"torch": "2.13.0", "nvidia-cutlass-dsl": "4.8.1", "submission.py sha256": "0123456789abcdef"}
    figures = {"problems": 10000, "wrong": {"17": "gemm"}, "calls": 30000, "seconds": 301.4, "jobs": 16}
    return {
        "device": device,
        "command": ["tests/soak.py", "--problems", "10000"],
        **versions,
        **figures,
        "counts": counts,
    }


def test_soak(tmp_path):
    assert "python -m nogpu tests/soak.py --problems 10000 --save" in table("soak", tmp_path)[0]
    configurations = {str(number): 7 for number in range(42)}
    one = saved_soak("a CPU", problem={"gemm": 6000, "gemv": 4000}, schedule={"late": 1}, configuration=configurations)
    saved(tmp_path, "soak-emulator", one)
    saved(tmp_path, "soak-h100", saved_soak("H100", problem={"gemm": 9999}))
    *rows, _, first, _, second = table("soak", tmp_path)
    assert rows == [
        "|  | a CPU | H100 |",
        "| --- | ---: | ---: |",
        "| problems | **10,000** | **10,000** |",
        "| wrong | **1** | **1** |",
        "| calls | 30,000 | 30,000 |",
        "| problem: gemm | 6,000 | 9,999 |",
        "| problem: gemv | 4,000 | 0 |",
        "| schedule: late | 1 | 0 |",
        "| configuration: different ones | 42 | 0 |",
    ]
    assert (
        first.startswith("a CPU: `python tests/soak.py --problems 10000`; 301 s in 16 processes") and "H100" in second
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<!-- table: speed -->\n<!-- end -->\n", "'speed' is none of b200"),
        ("<!-- table: model -->\n", "1 tables begin and 0 of them end"),
        ("<!-- table: model -->\n<!-- table: emulator -->\n<!-- end -->\n", "'model' has no"),
        ("<!-- table: comparison h200-gemv2 -->\n<!-- end -->\n", "gemv2"),
    ],
)
def test_malformed_documents(tmp_path, text, words):
    saved(tmp_path, "h200-gemv2", {})
    with pytest.raises(MeasurementError, match=words):
        render(text, tmp_path)


def test_malformed_files(tmp_path):
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(MeasurementError, match="model.json"):
        table("model", tmp_path)
    saved(tmp_path, "model", {"cases": [{}]})
    with pytest.raises(MeasurementError, match="there is no 'problem'"):
        table("model", tmp_path)


def test_command_line(tmp_path, monkeypatch, capsys):
    """--check says what writing would change, and nothing once it is written."""
    document = tmp_path / "document.md"
    document.write_text("<!-- table: model -->\n<!-- end -->\n")
    monkeypatch.setattr(measurements, "DOCUMENTS", (document,))
    monkeypatch.setattr(measurements, "RESULTS", tmp_path)
    monkeypatch.setattr(measurements.summary, "ERRORS", tmp_path / "errors.json")
    (tmp_path / "errors.json").write_text("{}\n")
    assert measurements.main(["--check"]) == 1
    assert "+*Not measured yet." in capsys.readouterr().out and "Not" not in document.read_text()
    assert measurements.main([]) == 0 and "*Not measured yet." in document.read_text()
    assert measurements.main(["--check"]) == 0


# ---- The documents ----


def anchor(heading):
    """The anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    return set(map(anchor, re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)))


def ids(path):
    return str(path.relative_to(ROOT))


def test_documents_are_up_to_date(capsys):
    assert measurements.main(["--check"]) == 0, capsys.readouterr().out
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


@pytest.mark.parametrize("path", DOCUMENTS, ids=ids)
def test_links_resolve(path):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if not re.match(r"https?://", link):
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(link)
    assert not broken


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path.name != "worklog.md"], ids=ids)
def test_commands_exist(path):
    """Modules and files that documents start by `python`, and targets that they `make`; the log's are of their time."""
    code = "\n".join(map("".join, re.findall(r"```\w*\n(.*?)```|`([^`\n]+)`", path.read_text(), flags=re.DOTALL)))
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    unknown = {f"make {name}" for name in re.findall(r"^make ([a-z0-9]+)", code, flags=re.MULTILINE)}
    unknown -= {f"make {name}" for name in targets}
    for name in set(re.findall(r"python -m ([\w.]+)", code)) - {"venv"}:
        if importlib.util.find_spec(name) is None:
            unknown.add(f"python -m {name}")
    for name in re.findall(r"python (?:-m nogpu (?:--?[\w-]+(?:[ =][\w,:]+)? )*)?([\w/]+\.py)", code):
        # A file that the document itself shows begins with its name.
        if not OTHERS_FILES.fullmatch(name) and not (ROOT / name).exists() and f"\n# {name}\n" not in code:
            unknown.add(name)
    assert not unknown


@pytest.mark.parametrize("path", DOCUMENTS, ids=ids)
def test_pages_begin_with_their_map(path):
    """Every section of a page with three or more is linked ahead of the first; the README is one screen."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    start, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    linked = set(re.findall(r"\]\(#([^)]+)\)", start))
    missing = [title for title in (section.partition("\n")[0] for section in sections) if anchor(title) not in linked]
    assert len(sections) < 3 or path.name == "README.md" or not missing


def test_layers_of_the_emulator_are_those_of_its_contract():
    """The map of internals.md, top to bottom."""
    contract, *_ = tomllib.loads((ROOT / "nogpu/pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    table = (ROOT / "nogpu/docs/internals.md").read_text().partition("\n## Layers\n")[2].partition("\n## ")[0]
    rows = [set(re.findall(r"`(\w+)`", row)) for row in re.findall(r"^\| (`.*?`) \|", table, flags=re.MULTILINE)]
    assert rows == [set(re.findall(r"\w+", row)) for row in contract["layers"]]


def test_what_internals_says_where_to_look_for_is_there():
    """Files that its table names exist, and the first of a row has all words of the example."""
    source = ROOT / "nogpu" / "src" / "nogpu"
    table = (ROOT / "nogpu/docs/internals.md").read_text().partition("\n## Where to look\n")[2].partition("\n## ")[0]
    rows = [re.findall(r"`([^`]+)`", row) for row in table.splitlines() if row.startswith("| ") and "`" in row]
    for example, first, *others in rows:
        assert all((source / path).exists() for path in (first, *others)), (first, *others)
        words = set(re.findall(r"[A-Za-z0-9]+", (source / first).read_text()))
        assert words.issuperset(re.findall(r"[A-Za-z0-9]+", example)), (first, example)
    assert len(rows) == 9


@pytest.mark.parametrize("path", DOCUMENTS, ids=ids)
def test_no_path_of_one_machine(path):
    assert not re.search(r"(?<![\w.])/(?:work|tmp|root|home)/", path.read_text())
