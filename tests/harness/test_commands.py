"""The parts that commands share: options, console, modules by path, the import order of the package."""

import argparse
import ast
import sys

import pytest

from harness import console, options
from harness.modules import load_module
from tests.support.commands import ROOT


def parse(add, *arguments, **settings):
    parser = options.command_parser("usage")
    add(parser, **settings)
    return parser.parse_args(arguments)


def test_options_of_several_commands():
    assert parse(options.add_problem).problem == "group_gemm"
    assert parse(options.add_problem, "--problem", "all", more=[options.ALL]).problem == "all"
    assert (parse(options.add_case).case, parse(options.add_case, "--case", "2").case) == (None, [2])
    assert parse(options.add_case, "--case", "2", "--case", "0").case == [2, 0]
    assert parse(options.add_device, "--device", "hopper").device == "hopper"
    assert parse(options.add_sms).sms == 148
    assert parse(options.add_submission).submission == ROOT / "submission.py"
    assert parse(options.add_timeout, "--timeout", "0.5").timeout == 0.5
    for text in ("0", "-1", "nan", "soon"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a number of seconds above 0"):
            options.seconds(text)
    assert options.seconds("1e6") == 1e6
    for text in ("inf", "1e300", "1000001"):
        with pytest.raises(argparse.ArgumentTypeError, match="is more than 1000000 seconds, eleven days"):
            options.seconds(text)


@pytest.mark.parametrize(("columns", "width"), [(None, 123), ("77", 77), ("0", 123), ("-5", 123), ("99999", 10_000)])
def test_a_console_is_as_wide_as_the_environment_says(monkeypatch, columns, width):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    assert console.make_console(123).width == width


def test_tables_and_means():
    table = console.make_table(["case"], ["us", "ratio"])
    assert [(column.header, column.justify) for column in table.columns] == [
        ("case", "left"),
        ("us", "right"),
        ("ratio", "right"),
    ]
    assert console.geomean([2.0, 8.0]) == pytest.approx(4.0)


def test_a_module_from_a_path(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "one_of_mine", raising=False)
    path = tmp_path / "file.py"
    path.write_text("import sys\nassert sys.modules[__name__].__file__ == __file__\nvalue = 7\n")
    module = load_module("one_of_mine", path)
    assert module.value == 7 and sys.modules.pop("one_of_mine") is module
    path.write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        load_module("one_of_mine", path)
    assert "one_of_mine" not in sys.modules
    with pytest.raises(ImportError, match=r"its name does not end in \.py"):
        load_module("one_of_mine", tmp_path / "file.txt")


LAYERS = [
    {
        "dsl",
        "console",
        "modules",
        "interpreter",
        "timing",
        "messages",
        "linux",
        "launch_modes",
        "folders",
    },
    {"submissions", "results", "counts", "clocks", "plan_report", "cases", "shared_memory", "sanitizing", "processes"},
    {"landlock", "namespaces", "seccomp", "relay"},
    {"outputs", "profiling", "confinement", "nursery"},
    {"judge", "runner"},
    {"devices", "worker", "nursery_process"},
    {"restart", "options", "protocol", "tables"},
    {"modes"},
]


def imports(path):
    """Names of the modules that a file imports, at any place."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "harness":
            yield from (f"harness.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_imports_of_the_package_point_one_way():
    below = {f"harness.{name}": layer for layer, names in enumerate(LAYERS) for name in names}
    files = {path.stem: path for path in (ROOT / "harness").glob("*.py") if path.stem != "__init__"}
    assert set(files) == set().union(*LAYERS)
    for name, path in files.items():
        for imported in imports(path):
            assert imported.split(".")[0] not in {"eval", "tools", "tests"}, (name, imported)
            if imported in below:
                assert below[imported] < below[f"harness.{name}"], (name, imported)
