"""The entry points behind cuda_headers/nvrtc.h: NVRTC's programs, which NVIDIA's nvcc compiles to PTX.

NVRTC's cubin is PTX too, which the driver takes in the place of machine code.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
from dataclasses import dataclass, field

from nogpu import headers
from nogpu.cuda.programs import device_compiler, toolkit
from nogpu.cuda.programs.entries import ADDRESS, HANDLE, INT, entry, put, text
from nogpu.errors import EmulatorError
from nogpu.hardware.properties import of_process

_INVALID_INPUT, _INVALID_PROGRAM, _INVALID_OPTION, _COMPILATION = 3, 4, 5, 6  # nvrtcResult
_NAMES_AFTER_COMPILATION, _NO_NAMES_BEFORE_COMPILATION, _NAME_NOT_VALID = 8, 9, 10
_PTX, _LOG = headers.constants("cuda/programs/cuda_headers/nvrtc.h", "EMULATOR_NVRTC_PTX", "EMULATOR_NVRTC_LOG")
# Options of NVRTC that nvcc lacks, and that do not change what kernels compute
_WITHOUT_EFFECT = re.compile(
    r"--?(?:pch|create-pch|use-pch|pch-.*|instantiate-templates-in-pch|minimal|device-int128|builtin-.*|no-cache)(?:=.*)?"
)
_RELOCATABLE = re.compile(r"--?(?:dlto|gen-opt-lto|rdc=true|relocatable-device-code=true|dc|device-c)")
_ARCHITECTURE = re.compile(r"--?(?:gpu-architecture|arch)=.*")
_FOLDERS = re.compile(r"--?(?:I|include-path|pre-include|include)\b.*|-I.*")
_WITHOUT_FOLDER = re.compile(r"--?no-source-include")
_INCLUDED = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


@dataclass
class _Program:
    source: str
    name: str
    headers: dict[str, str]
    names: list[str] = field(default_factory=list)
    texts: dict[int, bytes] = field(default_factory=dict)
    lowered: dict[str, ctypes.Array] = field(default_factory=dict)


_handles = itertools.count(1)
_programs: dict[int, _Program] = {}


@entry("emulator_nvrtc_create", ADDRESS, ADDRESS, ADDRESS, INT, ADDRESS, ADDRESS, always=True)
def create(result: int, source: int, name: int, count: int, headers: int, names: int) -> int | None:
    if not result or not source or count < 0:
        return _INVALID_INPUT
    arrays = ((ctypes.c_size_t * count).from_address(place) for place in (names, headers)) if count else ((), ())
    given = {text(included): text(content) for included, content in zip(*arrays)}
    handle = next(_handles)
    _programs[handle] = _Program(text(source), text(name) if name else "default_program", given)
    put(result, HANDLE, handle)
    return None


@entry("emulator_nvrtc_destroy", ADDRESS, always=True)
def destroy(program: int) -> int | None:
    handle = ctypes.c_size_t.from_address(program).value
    if _programs.pop(handle, None) is None:
        return _INVALID_PROGRAM
    put(program, HANDLE, 0)
    return None


@entry("emulator_nvrtc_add_name", HANDLE, ADDRESS, always=True)
def add_name(handle: int, name: int) -> int | None:
    if handle not in _programs:
        return _INVALID_PROGRAM
    if _programs[handle].texts:
        return _NAMES_AFTER_COMPILATION
    _programs[handle].names.append(text(name))
    return None


@entry("emulator_nvrtc_compile", HANDLE, INT, ADDRESS, always=True)
def compile_(handle: int, count: int, options: int) -> int | None:
    if handle not in _programs:
        return _INVALID_PROGRAM
    program = _programs[handle]
    given = [text(option) for option in (ctypes.c_size_t * count).from_address(options)] if count else []
    relocatable = [option for option in given if _RELOCATABLE.fullmatch(option.strip())]
    if relocatable:
        program.texts = {_LOG: f"relocatable device code ({relocatable[0]}) is not modelled".encode()}
        return _INVALID_OPTION
    kept = [
        option for option in given if not _WITHOUT_EFFECT.fullmatch(option) and not _WITHOUT_FOLDER.fullmatch(option)
    ]
    if not any(map(_WITHOUT_FOLDER.fullmatch, given)):  # the folder of the name is searched, too
        kept.append(f"-I{os.path.dirname(program.name) or '.'}")
    others = set(_INCLUDED.findall(program.source)) - set(program.headers)
    keep = not others and not any(map(_FOLDERS.match, given))
    if not any(map(_ARCHITECTURE.match, kept)):
        kept.append(f"-arch=sm_{of_process().architecture}a")
    plain = [name.strip().removeprefix("&") for name in program.names]
    try:
        ptx, lowered = device_compiler.compiled(program.source, program.name, kept, plain, program.headers, keep)
    except (device_compiler.Failed, EmulatorError) as failed:
        program.texts = {_LOG: str(failed).encode()}
        return _COMPILATION
    program.texts = {_PTX: ptx.encode(), _LOG: b""}
    program.lowered = {
        name: ctypes.create_string_buffer(value.encode()) for name, value in zip(program.names, lowered, strict=True)
    }
    return None


@entry("emulator_nvrtc_text", HANDLE, INT, ADDRESS, ADDRESS, always=True)
def read(handle: int, which: int, nbytes: int, result: int) -> int | None:
    """Stores the bytes of a text, with the zero at its end, and the text, each unless its place is null."""
    if handle not in _programs or which not in _programs[handle].texts:
        return _INVALID_PROGRAM
    found = _programs[handle].texts[which] + b"\0"
    if nbytes:
        put(nbytes, ctypes.c_size_t, len(found))
    if result:
        ctypes.memmove(result, found, len(found))
    return None


@entry("emulator_nvrtc_lowered_name", HANDLE, ADDRESS, ADDRESS, always=True)
def lowered_name(handle: int, name: int, result: int) -> int | None:
    if handle not in _programs:
        return _INVALID_PROGRAM
    program = _programs[handle]
    if not program.texts:
        return _NO_NAMES_BEFORE_COMPILATION
    if text(name) not in program.lowered:
        return _NAME_NOT_VALID
    put(result, HANDLE, ctypes.addressof(program.lowered[text(name)]))
    return None


@entry("emulator_nvrtc_version", ADDRESS, ADDRESS, always=True)
def version(major: int, minor: int) -> None:
    found = re.search(r"release (\d+)\.(\d+)", toolkit.version())
    for place, value in zip((major, minor), map(int, found.groups() if found else (13, 0))):
        put(place, ctypes.c_int32, value)
