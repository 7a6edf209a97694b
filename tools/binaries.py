"""Finds and runs NVIDIA's ptxas and nvdisasm, and reads the machine code in a cubin."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import marshal
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from harness.dsl import ARCH
from nogpu import store

WHEELS = {"ptxas": "nvidia-cuda-nvcc-cu12", "nvdisasm": "nvidia-cuda-nvdisasm"}  # packages of the extra "report"
MAX_ENTRIES = 1024  # kept runs, about 100 KB each
EXTRA = "`pip install '.[report]'` brings it"


class ReportError(Exception):
    """A tool is missing or refuses its input."""


def installed(tool: str) -> list[str]:
    """Paths of a tool: in NVIDIA's wheels, those of CUDA 12 before those of CUDA 13, then on PATH."""
    spec = importlib.util.find_spec("nvidia")
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    wheels = [path for folder in folders for path in Path(folder).glob(f"*/bin/{tool}")]
    on_path = shutil.which(tool)
    return [str(path) for path in sorted(wheels, key=lambda path: path.parts[-3] != "cuda_nvcc")] + [
        path for path in (on_path,) if path
    ]


def required(tool: str) -> list[str]:
    """Paths of a tool as `installed` finds them. Raises ReportError if there is none."""
    found = installed(tool)
    if not found:
        raise ReportError(f"{tool} is neither in site-packages nor on PATH; {EXTRA} ({WHEELS[tool]})")
    return found


def check_installed() -> None:
    """Raise ReportError unless every tool and pyelftools are there."""
    for tool in WHEELS:
        required(tool)
    if importlib.util.find_spec("elftools") is None:
        raise ReportError(f"there is no package pyelftools; {EXTRA}")


def release(tool: str) -> str:
    """CUDA release of a tool, such as "12.9.86". Raises ReportError if the tool names none."""
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"V([\d.]+)", version)
    if found is None:
        raise ReportError(f"{tool} --version names no release:\n{version.strip()}")
    return found[1]


class Ran(NamedTuple):
    """The outcome of a tool's process."""

    code: int
    stdout: str
    stderr: str
    output: bytes  # content of the file that the tool writes; empty if there is none


def run(tool: str, options: Sequence[str], source: bytes, writes: bool = False) -> Ran:
    """Run a tool on a file with these bytes. A successful run is kept on disk, and returned for the same run again.

    writes: the tool takes the name of a file to write, behind `-o`.
    """
    status = os.stat(tool)
    identity = repr((tool, status.st_size, status.st_mtime_ns, options, writes)).encode()
    folder = store.folder("binaries")
    entry = folder and folder / hashlib.sha256(len(identity).to_bytes(8, "big") + identity + source).hexdigest()
    kept = store.read(entry) if entry else None
    if kept is not None:
        return Ran(*marshal.loads(kept))
    with tempfile.TemporaryDirectory(prefix="report-") as scratch:
        given, target = Path(scratch, "kernel"), Path(scratch, "written")
        given.write_bytes(source)
        command = [tool, *options, str(given), *(("-o", str(target)) if writes else ())]
        result = subprocess.run(command, capture_output=True, text=True)
        written = target.read_bytes() if target.is_file() else b""
    ran = Ran(result.returncode, result.stdout, result.stderr, written)
    if entry and ran.code == 0:
        store.write(entry, marshal.dumps(tuple(ran)), MAX_ENTRIES)
    return ran


# ----------------------------------------------------------------------------------------------------------------------
# ptxas
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assembled:
    """The output of `ptxas -v`. Registers and stack are those of the function that needs most, spills are sums."""

    ptxas: str  # path
    cubin: bytes
    registers: int  # 32-bit, per thread
    stack_bytes: int  # per thread
    spill_store_bytes: int
    spill_load_bytes: int
    warnings: tuple[str, ...]


def assemble(ptx: str) -> Assembled:
    """Run the first ptxas that knows the PTX's version, at its default -O3, which is the DSL's level too.

    Raises ReportError with ptxas's message if none knows the version or the first that does refuses the PTX.
    """
    refusals = []
    for ptxas in required("ptxas"):
        ran = run(ptxas, ["-v", f"-arch={ARCH}"], ptx.encode(), writes=True)
        log = ran.stdout + ran.stderr
        if ran.code == 0:
            return _assembled(ptxas, log, ran.output)
        if "Unsupported .version" not in log:
            raise ReportError(f"{ptxas} refuses the PTX:\n{log.strip()}")
        refusals.append(f"{ptxas}: {log.strip().splitlines()[0].rpartition('fatal')[2].strip(' :')}")
    raise ReportError("no ptxas knows this PTX version:\n" + "\n".join(refusals))


def _assembled(ptxas: str, log: str, cubin: bytes) -> Assembled:
    registers = [int(count) for count in re.findall(r"Used (\d+) registers", log)]
    memory = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    if not registers or not memory:
        raise ReportError(f"{ptxas} -v states no registers or no spills:\n{log.strip()}")
    stack, stores, loads = zip(*(map(int, line) for line in memory))
    warnings = tuple(line.strip() for line in log.splitlines() if "warning" in line.lower())
    return Assembled(ptxas, cubin, max(registers), max(stack), sum(stores), sum(loads), warnings)


def machine_code(cubin: bytes) -> bytes:
    """The .text sections of a cubin, an ELF file, without the names of its kernels. pyelftools must be installed."""
    from elftools.elf.elffile import ELFFile

    sections = ELFFile(io.BytesIO(cubin)).iter_sections()
    return b"".join(section.data() for section in sections if section.name.startswith(".text."))


def disassembly(cubin: bytes) -> str:
    """nvdisasm's listing of the code in a cubin. Raises ReportError if nvdisasm refuses the cubin."""
    ran = run(required("nvdisasm")[0], ["-c"], cubin)
    if ran.code:
        raise ReportError(f"nvdisasm refuses the cubin: {ran.stderr.strip()}")
    return ran.stdout
