"""PTX of the device code that is written in CUDA C++, compiled by NVRTC once per user and source text.

NVRTC has no header files of the host: it gets the source, the .cuh files beside it, and HOST_HEADERS as text.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from cuda.pathfinder import load_nvidia_dynamic_lib

from nogpu import store
from nogpu.errors import EmulatorError

HERE = Path(__file__).resolve().parent
# Without relocatable code, NVRTC specialises functions to the constants of the callers that it sees, but lowered PTX
# calls the functions with others.
OPTIONS = ("--relocatable-device-code=true", "--std=c++17")
# The PTX version replaces NVRTC's, which older drivers refuse. 8.6 is the oldest with sm_100a and every feature that
# the library uses; drivers from CUDA 12.7 on take it and refuse later features by name.
PTX_VERSION = "8.6"
MAX_ENTRIES = 64  # entries of about 200 KB, ten for each version of the sources
HOST_HEADERS = {
    "cstddef": "#define offsetof(type, member) ((size_t)&((type *)0)->member)\n",
    "cstdint": """
        typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
        typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
        typedef unsigned long long uint64_t;
    """,
    "cstdio": "",  # printf, which NVRTC declares itself
}


@cache
def nvrtc() -> ModuleType:
    """The module cuda.bindings.nvrtc with its library loaded.

    cuda.pathfinder finds the library in NVIDIA's wheels, a conda environment, the toolkit of CUDA_HOME, or by the
    system's loader. Raises EmulatorError if there is none.
    """
    try:
        loaded = load_nvidia_dynamic_lib("nvrtc")
        # NVRTC opens its builtins by name, and the libnvrtc of CUDA 13.0 wheels has no RPATH with which to find them.
        for builtins in Path(loaded.abs_path).parent.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(builtins))
    except (RuntimeError, OSError) as error:  # includes DynamicLibNotFoundError
        raise EmulatorError(
            "NVRTC is needed for the device code of the Hopper path. A CUDA build of torch brings it, and so does `pip "
            "install nvidia-cuda-nvrtc`; CUDA_HOME names a toolkit that has it.\n"
            f"{error}"
        ) from None
    return importlib.import_module("cuda.bindings.nvrtc")


def _call(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
    """The output of an NVRTC function, None if it has none. Raises EmulatorError with NVRTC's name of the failure."""
    status, *outputs = function(*arguments)
    if status != nvrtc().nvrtcResult.NVRTC_SUCCESS:
        text = nvrtc().nvrtcGetErrorString(status)[1].decode()
        raise EmulatorError(f"{function.__name__} failed: {int(status)} ({text})")
    return outputs[0] if len(outputs) == 1 else tuple(outputs) or None


def _text(size_of: Callable[..., tuple[Any, ...]], write: Callable[..., tuple[Any, ...]], program: Any) -> str:
    """A text of the program, by the function that gives its size and the one that writes it to a buffer."""
    buffer = bytearray(_call(size_of, program))
    _call(write, program, buffer)
    return buffer.partition(b"\0")[0].decode(errors="replace")


def _compiled(name: str, source: str, headers: dict[str, str], options: tuple[str, ...]) -> str:
    bindings = nvrtc()
    texts, names = ([text.encode() for text in of] for of in (headers.values(), headers.keys()))
    program = _call(bindings.nvrtcCreateProgram, source.encode(), name.encode(), len(headers), texts, names)
    try:
        _call(bindings.nvrtcCompileProgram, program, len(options), [option.encode() for option in options])
        return _text(bindings.nvrtcGetPTXSize, bindings.nvrtcGetPTX, program)
    except EmulatorError as error:
        log = _text(bindings.nvrtcGetProgramLogSize, bindings.nvrtcGetProgramLog, program)
        raise EmulatorError(f"{name}, {' '.join(options)}: {error}\n{log}") from None
    finally:
        bindings.nvrtcDestroyProgram(program)


@cache
def ptx(source: Path = HERE / "library.cu", arch: str = "sm_90a") -> str:
    """PTX of a CUDA C++ file for an architecture. Raises EmulatorError if NVRTC is missing or refuses the source."""
    headers = HOST_HEADERS | {path.name: path.read_text() for path in sorted(source.parent.glob("*.cuh"))}
    options = (f"--gpu-architecture={arch.replace('sm_', 'compute_')}", *OPTIONS)
    inputs = source.read_text(), headers, options, PTX_VERSION, _call(nvrtc().nvrtcVersion)
    folder = store.folder("device_code")
    entry = folder and folder / f"{source.stem}-{hashlib.sha256(repr(inputs).encode()).hexdigest()[:16]}.ptx"
    kept = store.read(entry) if entry else None
    if kept is not None:
        return kept.decode()
    text = _compiled(source.name, source.read_text(), headers, options)
    text = re.sub(r"^\.version .*$", f".version {PTX_VERSION}", text, flags=re.M)
    if entry:
        store.write(entry, text.encode(), MAX_ENTRIES)
    return text
