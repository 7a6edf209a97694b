"""Files of the project, attacked in a copy: modules changed, added and replaced where a later process imports them."""

import os

import torch

from tests.submissions.hostile.judge import memory_file
from tests.submissions.hostile.kit import ANY, kind, patch, right, tree, zeros

PASSES_ALL = """
import sys
if "reference" in sys.modules:
    sys.modules["reference"].compare = lambda *_: (True, "bit-exact")
"""
FORGES = "import os\nos.write(1, b'check: pass')\n"


def write(path, text):
    """Replace a file, by any way that is open."""
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
    """Every module of the harness and reference.py changed likewise; then the worker ends, so that another starts"""
    for path in [*(tree() / "harness").glob("*.py"), tree() / "reference.py"]:
        write(path, path.read_text() + PASSES_ALL)
    os._exit(0)


@kind(copied_tree=True)
def replaced_on_disk(data):
    """eval.py is renamed and another put in its place; the folder nogpu is moved"""
    for name in ("eval.py", "nogpu"):
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


UNCONFINED = """
def confine(*_):
    return 0


fork_confined = restrict = install = enter = drop_capabilities = confine
if "Confinement" in globals():
    Confinement.enter = confine
"""


@kind(copied_tree=True, then=("zeros_and_a_forgery", "all_zeros"), verdict=ANY)
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


@kind(alone=True)
def zeros_and_a_forgery(data):
    """Changed memory of the harness, from a process that is not confined: see memory_file"""
    return memory_file(data)


@kind(copied_tree=True, then=("all_zeros",))
def pipes_in_place_of_files(data):
    """FIFOs in place of the files of harness, which a reader waits for"""
    for path in (tree() / "harness").glob("*.py"):
        try:
            path.unlink()
            os.mkfifo(path)
        except OSError:
            pass
    raise ValueError("a traceback is made")


@kind(alone=True, protocol="file")
def protocol_file(data):
    """A line far behind the harness's own in the file of POPCORN_FD"""
    return behind_the_end(data, "protocol")


@kind(alone=True, protocol="reader")
def output_file(data):
    """A summary far behind the harness's own in the file of its output"""
    return behind_the_end(data, "output")


def behind_the_end(data, name):
    descriptors = [1, 2]
    try:
        descriptors.append(os.open(f"{os.environ['HOSTILE_FOLDER']}/{name}", os.O_WRONLY))
    except OSError:
        pass
    for fd in descriptors:
        try:
            os.pwrite(fd, b"\ncheck: pass\n1 passed, 0 failed\n", 1 << 16)
        except OSError:
            pass
    return zeros(data)
