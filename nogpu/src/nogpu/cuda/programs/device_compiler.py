"""Device code that a program compiles while it runs: by nvcc in the place of NVRTC, kept in the user's cache."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from nogpu import store, toolchain
from nogpu.cuda.programs import toolkit
from nogpu.errors import EmulatorError

MAX_KERNELS = 256  # results that the cache keeps
# A pointer to a kernel or variable, whose value in the PTX is the name there, also that of a template's instance.
_NAMED = '\n#line 1 "the name of {name}"\n__device__ auto nogpu_named_{number} = &{name};\n'
# For the pointer nvcc declares the kernel before its definition, which the PTX does not need.
_LOWERED = re.compile(r"^.*\bnogpu_named_(\d+) = (?:generic\()?([\w$]+)\)?;\n", re.MULTILINE)
_DECLARED = re.compile(r"^[^\n]*\.entry [\w$]+\s*\([^)]*\)\s*;\n", re.MULTILINE)


class Failed(Exception):
    """The compiler's messages."""


def compiled(
    source: str, file: str, options: Sequence[str], names: Sequence[str], headers: Mapping[str, str], keep: bool
) -> tuple[str, list[str]]:
    """(PTX, name there of each of `names`) of a source with nvcc's options.

    file: what messages call the source. headers: name in #include -> text. keep: the result depends on no other files.
    Raises Failed, or EmulatorError if there is no compiler.
    """
    text = f'#line 1 "{file}"\n{source}'
    text += "".join(_NAMED.format(name=name, number=number) for number, name in enumerate(names))
    decides = text, list(options), sorted(headers.items()), str(toolkit.home()), toolkit.version()
    folder = store.root() / "kernels"
    folder.mkdir(exist_ok=True)
    entry = folder / f"{hashlib.sha256(repr(decides).encode()).hexdigest()[:16]}.sealed"
    kept = store.read(entry) if keep else None
    made = kept or _ptx(text, file, options, headers)
    if keep and kept is None:
        store.write(entry, made, MAX_KERNELS)
    ptx = made.decode()
    lowered = {int(number): name for number, name in _LOWERED.findall(ptx)}
    missing = [name for number, name in enumerate(names) if number not in lowered]
    if missing:
        raise EmulatorError(f"nvcc's PTX does not name {missing[0]}")
    return _DECLARED.sub("", _LOWERED.sub("", ptx)), [lowered[number] for number in range(len(names))]


def _ptx(text: str, file: str, options: Sequence[str], headers: Mapping[str, str]) -> bytes:
    with store.scratch(store.root()) as scratch, toolchain.telling(f"compiling {file} with nvcc; the result is kept"):
        source, made = scratch / "kernel.cu", scratch / "kernel.ptx"
        source.write_text(text)
        for name, content in headers.items():
            (scratch / "headers" / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / "headers" / name).write_text(content)
        nvcc: list[str | Path] = [toolkit.home() / "bin" / "nvcc", *options, "-I", scratch / "headers"]
        done = subprocess.run([*nvcc, "-ptx", "-o", made, source], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(done.stderr)
        return made.read_bytes()
