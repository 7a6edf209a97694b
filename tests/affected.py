"""Runs the tests nearest to a change: `make affected`, `make affected BASE=main`, `make affected FILES="a.py b.c"`.

Test files named after what changed come first, then those of its subject, then those with the fewest imports in
between and the fewest modules below them. The first MOST of them take about half a minute, without those marked slow;
`make test` runs all.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "nogpu": ("nogpu", "workshop", "tests"),
    ".": ("harness", "tools", "nogpu", "tests"),
}  # by the folder of the tests
MOST = 12


def git(*words):
    done = subprocess.run(["git", *words, "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.split("\0")


def changed(base):
    """Files of the working tree that differ from the last commit common with another one, or that git does not know."""
    files = git("diff", "--name-only", "--merge-base", base) + git("ls-files", "--others", "--exclude-standard")
    return [Path(file) for file in filter(None, files)]


def imports(folder, packages):
    """Import graph of packages, which are looked for in a folder and its folder src first."""
    sys.path[:0] = places = [str(folder / "src"), str(folder)]
    graph = grimp.build_graph(*packages, include_external_packages=True, cache_dir=None)
    del sys.path[: len(places)]
    return graph


def module(file):
    """Name by which a file is imported, from its path below the root."""
    parts = file.with_suffix("").parts
    start = 2 if parts[:2] == ("nogpu", "src") else parts[0] == "nogpu"
    return ".".join(part for part in parts[start:] if part != "__init__")


def distances(graph, names):
    """{module: least number of imports between it and one of the names}."""
    found, level = {}, names & graph.modules
    while level:
        found |= dict.fromkeys(level, max(found.values(), default=-1) + 1)
        level = {each for name in level for each in graph.find_modules_that_directly_import(name)} - found.keys()
    return found


def nearest(graph, names):
    """Names of test modules that a change of modules may touch, the nearest first."""
    found, stems = distances(graph, names), tuple(f"test_{name.rpartition('.')[2]}" for name in names)
    tests = {each: each.rpartition(".")[2] for each in graph.modules if ".test_" in each}
    of_its_name = {each for each, stem in tests.items() if each in names or stem.startswith(stems)}
    of_its_subject = {each for each in tests for name in names if is_of_subject(each, name)}

    def order(test):
        named = test not in of_its_name, test not in of_its_subject
        return *named, found.get(test, 0), len(graph.find_upstream_modules(test)), test

    return sorted((tests.keys() & found.keys()) | of_its_name | of_its_subject, key=order)


def is_of_subject(test, name):
    """True if a test module lies in a folder named like one of the module's, and begins with its name's first word:
    such a test may run the module in another process, without an import.
    """
    *folders, own = name.split(".")
    return any(f".{folder}.test_{own.partition('_')[0]}" in test for folder in folders)


def main():
    parser = argparse.ArgumentParser(prog="tests.affected", description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="changed files, below the root; git's otherwise")
    parser.add_argument("--base", default="HEAD", help="commit from which the change begins")
    arguments = parser.parse_args()
    files, left, codes = arguments.files or changed(arguments.base), MOST, {0}
    for folder, packages in PACKAGES.items():
        other = ("nogpu", "tests") if folder == "." else ("tests",)  # imported by the same name
        names = {module(file) for file in files if file.parts[: len(other)] != other}
        found = nearest(imports(ROOT / folder, packages), names)
        chosen = [f"{name.replace('.', '/')}.py" for name in found[:left]]
        left -= len(chosen)
        print(f"{folder}: the nearest {len(chosen)} of {len(found)} test files", *chosen, flush=True)
        if chosen:
            command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", "-m", "not slow"]
            codes.add(subprocess.run([*command, *chosen], cwd=ROOT / folder, check=False).returncode)
    sys.exit(max(codes - {5}))  # 5: all tests are slow


if __name__ == "__main__":
    main()
