"""torch.cuda._compile_kernel on the device: NVIDIA's nvcc in the place of NVRTC, runtime/ in that of the driver."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Sequence
from typing import Any

import torch.cuda._utils

from nogpu import store, toolchain
from nogpu.cuda.programs import status
from nogpu.errors import EmulatorError
from nogpu.hardware.properties import of_process

MAX_KERNELS = 256  # kernels that the cache keeps
# A pointer to the kernel, whose value in the PTX is the kernel's name there, also that of a template's instance.
_NAMED = '\n#line 1 "the kernel\'s name"\n__device__ auto nogpu_named = &{name};\n'
# For the pointer nvcc declares the kernel before its definition, which the PTX does not need.
_LOWERED = re.compile(r"^.*\bnogpu_named = ([\w$]+);\n", re.MULTILINE)
_DECLARED = re.compile(r"^[^\n]*\.entry [\w$]+\s*\([^)]*\)\s*;\n", re.MULTILINE)


def compiled(
    kernel_source: str,
    kernel_name: str,
    compute_capability: str | None = None,
    cuda_include_dirs: Sequence[str] | None = None,
    nvcc_options: Sequence[str] | None = None,
    auto_pch: bool = False,
) -> tuple[bytes, str]:
    """Answers torch.cuda._utils._nvrtc_compile: (PTX of a kernel, its name there), kept in the user's cache.

    Raises RuntimeError with the compiler's messages where it fails.
    """
    from nogpu.cuda.programs import toolkit  # needed where kernels are compiled

    source = f'#line 1 "{kernel_name}.cu"\n{kernel_source}' + _NAMED.format(name=kernel_name)
    options = [f"-arch=sm_{compute_capability or f'{of_process().architecture}a'}", "-std=c++17", "-lineinfo"]
    options += [*(f"-I{folder}" for folder in cuda_include_dirs or ()), *(nvcc_options or ())]
    key = hashlib.sha256(repr((source, options, str(toolkit.home()), toolkit.version())).encode()).hexdigest()[:16]
    folder = store.root() / "kernels"
    folder.mkdir(exist_ok=True)
    # Headers of the program's own may change under one source.
    entry = None if cuda_include_dirs else folder / f"{key}.sealed"
    kept = store.read(entry) if entry is not None else None
    text = (kept or _ptx(str(toolkit.home() / "bin" / "nvcc"), source, kernel_name, options)).decode()
    if entry is not None and kept is None:
        store.write(entry, text.encode(), MAX_KERNELS)
    lowered = _LOWERED.search(text)
    if lowered is None:
        raise EmulatorError(f"nvcc's PTX does not name the kernel {kernel_name}")
    return _DECLARED.sub("", _LOWERED.sub("", text)).encode() + b"\0", lowered[1]


def _ptx(nvcc: str, source: str, name: str, options: list[str]) -> bytes:
    with store.scratch(store.root()) as scratch, toolchain.telling(f"compiling {name} with nvcc; the result is kept"):
        file, made = scratch / "kernel.cu", scratch / "kernel.ptx"
        file.write_text(source)
        done = subprocess.run([nvcc, *options, "-ptx", "-o", made, file], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Kernel compilation failed:\n{done.stderr}")
        return made.read_bytes()


def driver() -> Any:
    """Answers torch.cuda._utils._get_gpu_runtime_library by runtime/."""
    from nogpu.cuda.programs.connection import connect  # needed where kernels are compiled

    return connect()


def install() -> None:
    """Replace the functions that compile and load kernels; a call raises the EmulatorError of its kernel."""
    utils: Any = torch.cuda._utils
    utils._nvrtc_compile, utils._get_gpu_runtime_library = compiled, driver
    utils._CudaKernel.__call__ = status.raising(utils._CudaKernel.__call__)
    utils._cuda_load_module = status.raising(utils._cuda_load_module)
