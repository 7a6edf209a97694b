"""Files of the project, attacked in a copy: modules changed, added and replaced where a later process imports them."""

import os
from contextlib import suppress

import torch

from tests.submissions.hostile.judge import memory_file
from tests.submissions.hostile.kit import ANY, kind, patch, right, tree, zeros

PASSES_ALL = """
import sys
from contextlib import suppress
if "reference" in sys.modules:
    sys.modules["reference"].compare = lambda *_: (True, "bit-exact")
"""
FORGES = "import os\nos.write(1, b'check: pass')\n"


def write(path, text):
    """Replace a file, by any way that is open."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@kind()
def reference_on_disk():
    """reference.py passes everything from the next start on"""
    path = tree() / "reference.py"
    write(path, path.read_text() + "\ncompare = lambda *_: (True, 'bit-exact')\n")


@kind()
def harness_on_disk():
    """Every module of the harness makes reference.compare pass everything where it is imported from then on"""
    for path in (tree() / "harness").glob("*.py"):
        write(path, path.read_text() + PASSES_ALL)


@kind(then=("all_zeros", "all_zeros"))
def harness_on_disk_then_exit():
    """Every module of the harness and reference.py changed likewise; then the worker ends, so that another starts"""
    for path in [*(tree() / "harness").glob("*.py"), tree() / "reference.py"]:
        write(path, path.read_text() + PASSES_ALL)
    os._exit(0)


@kind()
def replaced_on_disk():
    """eval.py is renamed and another put in its place; the folder nogpu is moved"""
    for name in ("eval.py", "nogpu"):
        with suppress(OSError):
            os.rename(tree() / name, tree() / f"{name}.old")
    write(tree() / "eval.py", FORGES)


@kind()
def sitecustomize():
    """sitecustomize.py, usercustomize.py and modules with the names of Python's own, beside eval.py"""
    for name in ("sitecustomize", "usercustomize", "json", "socket", "rich", "msgspec", "torch"):
        write(tree() / f"{name}.py", FORGES)
    write(tree() / "hostile.pth", FORGES)


@kind()
def compiled_modules():
    """Compiled modules in __pycache__ are replaced"""
    for folder in (tree(), tree() / "harness"):
        write(folder / "__pycache__" / "reference.cpython-311.pyc", FORGES)


@kind(verdict=ANY)
def removed(data):
    """The folder of the harness is removed"""
    for path in sorted((tree() / "harness").glob("*.py")):
        with suppress(OSError):
            path.unlink()
    return right(data)


@kind()
def links():
    """Hard and symbolic links to the harness's files are written through"""
    target = tree() / "task.py"
    for number, link in enumerate((os.link, os.symlink)):
        name = f"{os.environ['HOSTILE_FOLDER']}/link{number}"
        with suppress(OSError):
            link(target, name)
            with open(name, "a") as file:
                file.write("\nhostile = True\n")


UNCONFINED = """
def confine(*_):
    return 0


fork_confined = restrict = install = enter = drop_capabilities = confine
if "Confinement" in globals():
    Confinement.enter = confine
"""


@kind(then=("zeros_and_a_forgery", "all_zeros"), verdict=ANY)
def second_worker(data):
    """A right result; what confines a worker does nothing from the next start on, and the device looks unusable"""
    for name in ("confinement", "landlock", "seccomp", "namespaces", "runner", "nursery_process"):
        path = tree() / "harness" / f"{name}.py"
        if path.exists():
            write(path, path.read_text() + UNCONFINED)
    path = tree() / "nogpu" / "src" / "nogpu" / "bootstrap" / "sitecustomize.py"
    write(path, path.read_text() + "\nimport os\nos.environ['HOSTILE_SITE'] = '1'\n")

    def fails():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    outputs = right(data)
    patch(torch.cuda, "synchronize", fails)
    return outputs


kind(
    "zeros_and_a_forgery",
    "Changed memory of the harness, from a process that is not confined: see memory_file",
    copied_tree=False,
)(lambda: memory_file())


@kind(then=("all_zeros",))
def pipes_in_place_of_files():
    """FIFOs in place of the files of harness, which a reader waits for"""
    for path in (tree() / "harness").glob("*.py"):
        with suppress(OSError):
            path.unlink()
            os.mkfifo(path)
    raise ValueError("a traceback is made")


kind(
    "protocol_file", "A line far behind the harness's own in the file of POPCORN_FD", protocol="file", copied_tree=False
)(lambda data: behind_the_end(data, "protocol"))
kind(
    "output_file",
    "A summary far behind the harness's own in the file of its output",
    protocol="reader",
    copied_tree=False,
)(lambda data: behind_the_end(data, "output"))


def behind_the_end(data, name):
    descriptors = [1, 2]
    with suppress(OSError):
        descriptors.append(os.open(f"{os.environ['HOSTILE_FOLDER']}/{name}", os.O_WRONLY))
    for fd in descriptors:
        with suppress(OSError):
            os.pwrite(fd, b"\ncheck: pass\n1 passed, 0 failed\n", 1 << 16)
    return zeros(data)
