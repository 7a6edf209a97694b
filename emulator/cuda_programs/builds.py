"""torch.utils.cpp_extension on the device: load, load_inline, CUDAExtension with our toolkit, and its objects kept.

torch itself writes the build and runs ninja; the compilers that it calls are those of toolkit.home()/bin. Builds go to
folders of their own (TORCH_EXTENSIONS_DIR, unless it is set), since what they link differs from torch's.
"""

from __future__ import annotations

import functools
import os
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emulator import toolchain
from emulator.cuda_programs import toolkit


def prepare() -> None:
    """Set what torch reads from the environment."""
    home = toolkit.home()
    os.environ["CXX"] = str(home / "bin" / "c++")
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(toolchain.cache_folder() / "extensions" / home.name))
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "10.0a")


def install() -> None:
    """Make torch find our toolkit, and say what takes so long."""
    from torch.utils import cpp_extension

    module: Any = cpp_extension
    module.CUDA_HOME = str(toolkit.home())
    module._jit_compile = _shown(module._jit_compile)
    module._check_cuda_version = lambda *arguments: None  # a torch without CUDA has no version to compare with
    scripts = sysconfig.get_path("scripts")
    if shutil.which("ninja") is None and (Path(scripts) / "ninja").exists():
        os.environ["PATH"] = os.pathsep.join((os.environ.get("PATH", ""), scripts))


def _shown(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def compile_(name: str, sources: Any, *arguments: Any, **keywords: Any) -> Any:
        if any(str(source).endswith(".cu") for source in sources):
            toolkit.nvcc()  # raises where there is none
        toolchain.show(f"compiling the extension {name}, or taking it from the cache")
        try:
            return original(name, sources, *arguments, **keywords)
        finally:
            toolchain.show("")

    return compile_
