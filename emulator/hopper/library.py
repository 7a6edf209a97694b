"""PTX of the device code that is written in CUDA C++, compiled by NVRTC once per user and source text.

NVRTC is a shared library that comes with every CUDA build of torch. It is given all text: the source, the .cuh files
beside it, and HOST_HEADERS in place of the host's, which it does not have.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import importlib.util
import os
import re
import sys
import tempfile
from functools import cache
from pathlib import Path

from emulator import toolchain
from emulator.errors import EmulatorError

HERE = Path(__file__).resolve().parent
SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12")
# Without relocatable code, functions are specialised to the constants of callers that are not here.
OPTIONS = ("--relocatable-device-code=true", "--std=c++17")
# Stated instead of NVRTC's own, which a driver refuses where it is older than NVRTC. Drivers from CUDA 12.7 on take this
# one, which is the oldest with sm_100a and with all that the library uses. A later feature is refused by name.
PTX_VERSION = "8.6"
HOST_HEADERS = {
    "cstddef": "#define offsetof(type, member) ((size_t)&((type *)0)->member)\n",
    "cstdint": """
        typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
        typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
        typedef unsigned long long uint64_t;
    """,
    "cstdio": "",  # printf is built in
}


@cache
def nvrtc() -> ctypes.CDLL:
    """NVRTC: of NVIDIA's wheels, which torch depends on, of a conda environment, of the toolkit, or of the loader."""
    spec = importlib.util.find_spec("nvidia")
    wheels = [os.path.join(folder, "*", "lib") for folder in (spec and spec.submodule_search_locations) or ()]
    toolkit = os.path.join(os.environ.get("CUDA_HOME") or "/usr/local/cuda", "lib64")
    folders = [*wheels, os.path.join(sys.prefix, "lib"), toolkit]
    found = [path for folder in folders for name in SONAMES for path in glob.glob(os.path.join(folder, name))]
    failures = []
    for path in (*found, *SONAMES):
        try:
            # NVRTC opens them by name, and some of its wheels do not say that they lie beside it.
            for builtins in glob.glob(os.path.join(os.path.dirname(path) or "-", "libnvrtc-builtins.so.*")):
                ctypes.CDLL(builtins)
            return ctypes.CDLL(path)
        except OSError as error:
            failures.append(str(error))
    raise EmulatorError(
        f"NVRTC is needed for the device code of the Hopper path: {' or '.join(SONAMES)} is neither in "
        f"{', '.join(folders)} nor known to the loader. A CUDA build of torch brings it, and so does `pip install "
        "nvidia-cuda-nvrtc` (CUDA 13) or `pip install nvidia-cuda-nvrtc-cu12`; CUDA_HOME names a toolkit that has it.\n"
        + "\n".join(failures)
    )


def _call(name: str, *arguments) -> None:
    status = getattr(nvrtc(), name)(*arguments)
    if status:
        text = nvrtc().nvrtcGetErrorString
        text.restype = ctypes.c_char_p
        raise EmulatorError(f"{name} failed: {status} ({text(status).decode()})")


def _text(what: str, program: ctypes.c_void_p) -> str:
    """The program's "PTX" or "ProgramLog"."""
    size = ctypes.c_size_t()
    _call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    _call(f"nvrtcGet{what}", program, buffer)
    return buffer.value.decode(errors="replace")


def _strings(texts) -> ctypes.Array:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


def _compiled(name: str, source: str, headers: dict[str, str], options: tuple[str, ...]) -> str:
    program = ctypes.c_void_p()
    names, texts = _strings(headers.keys()), _strings(headers.values())
    _call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(), len(headers), texts, names)
    try:
        _call("nvrtcCompileProgram", program, len(options), _strings(options))
        return _text("PTX", program)
    except EmulatorError as error:
        raise EmulatorError(f"{name}, {' '.join(options)}: {error}\n{_text('ProgramLog', program)}") from None
    finally:
        nvrtc().nvrtcDestroyProgram(ctypes.byref(program))


@cache
def ptx(source: Path = HERE / "library.cu", arch: str = "sm_90a") -> str:
    """A CUDA C++ file as PTX for an architecture. Raises EmulatorError where there is no NVRTC, or it fails."""
    headers = HOST_HEADERS | {path.name: path.read_text() for path in sorted(source.parent.glob("*.cuh"))}
    options = (f"--gpu-architecture={arch.replace('sm_', 'compute_')}", *OPTIONS)
    version = ctypes.c_int(), ctypes.c_int()
    _call("nvrtcVersion", *map(ctypes.byref, version))
    inputs = source.read_text(), headers, options, PTX_VERSION, [number.value for number in version]
    made = toolchain.cache_folder() / f"{source.stem}-{hashlib.sha256(repr(inputs).encode()).hexdigest()[:16]}.ptx"
    if not made.exists():
        text = _compiled(source.name, source.read_text(), headers, options)
        with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
            output = Path(scratch) / made.name
            output.write_text(re.sub(r"^\.version .*$", f".version {PTX_VERSION}", text, flags=re.M))
            os.replace(output, made)
    return made.read_text()
