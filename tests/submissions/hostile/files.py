"""Files of the project, attacked in a copy: modules changed, added and replaced where a later process imports them."""

import os

from tests.submissions.hostile.kit import ANY, kind, right, tree, zeros

PASSES_ALL = """
import sys
if "reference" in sys.modules:
    sys.modules["reference"].compare = lambda *_: (True, "bit-exact")
"""
FORGES = "import os\nos.write(1, b'check: pass')\n"


def write(path, text):
    """Replace a file, by whatever way is open."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError:
        pass


@kind(copied_tree=True)
def reference_on_disk(data):
    """reference.py passes everything from the next start on"""
    path = tree() / "reference.py"
    write(path, path.read_text() + "\ncompare = lambda *_: (True, 'bit-exact')\n")
    return zeros(data)


@kind(copied_tree=True)
def harness_on_disk(data):
    """Every module of the harness makes reference.compare pass everything where it is imported from then on"""
    for path in (tree() / "harness").glob("*.py"):
        write(path, path.read_text() + PASSES_ALL)
    return zeros(data)


@kind(copied_tree=True, then=("all_zeros", "all_zeros"))
def harness_on_disk_then_exit(data):
    """The same; then the worker ends, so that another starts"""
    for path in [*(tree() / "harness").glob("*.py"), tree() / "reference.py"]:
        write(path, path.read_text() + PASSES_ALL)
    os._exit(0)


@kind(copied_tree=True)
def replaced_on_disk(data):
    """eval.py is renamed and another put in its place; the package emulator is moved"""
    for name in ("eval.py", "emulator"):
        try:
            os.rename(tree() / name, tree() / f"{name}.old")
        except OSError:
            pass
    write(tree() / "eval.py", FORGES)
    return zeros(data)


@kind(copied_tree=True)
def sitecustomize(data):
    """sitecustomize.py, usercustomize.py and modules with the names of Python's own, beside eval.py"""
    for name in ("sitecustomize", "usercustomize", "json", "socket", "rich", "msgspec", "torch"):
        write(tree() / f"{name}.py", FORGES)
    write(tree() / "hostile.pth", FORGES)
    return zeros(data)


@kind(copied_tree=True)
def compiled_modules(data):
    """Compiled modules in __pycache__ are replaced"""
    for folder in (tree(), tree() / "harness"):
        write(folder / "__pycache__" / "reference.cpython-311.pyc", FORGES)
    return zeros(data)


@kind(copied_tree=True, verdict=ANY)
def removed(data):
    """The folder of the harness is removed"""
    for path in sorted((tree() / "harness").glob("*.py")):
        try:
            path.unlink()
        except OSError:
            pass
    return right(data)


@kind(copied_tree=True)
def links(data):
    """Hard and symbolic links to the harness's files are written through"""
    target = tree() / "task.py"
    for number, link in enumerate((os.link, os.symlink)):
        name = f"{os.environ['HOSTILE_FOLDER']}/link{number}"
        try:
            link(target, name)
            with open(name, "a") as file:
                file.write("\nhostile = True\n")
        except OSError:
            pass
    return zeros(data)
