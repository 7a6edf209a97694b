"""torch.utils.cpp_extension on the device: load, load_inline, CUDAExtension with our toolkit, and its objects kept.

torch itself writes the build and runs ninja; the compilers that it calls are those of toolkit.home()/bin. Builds are in
a folder of the user's cache (TORCH_EXTENSIONS_DIR, unless it is set), each in one named after its name and arguments:
programs whose extensions have the same name can run side by side.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emulator import toolchain
from emulator.cuda_programs import toolkit

_QUIET = ("build_directory", "verbose")  # arguments that the result does not depend on


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
    module.load, module.load_inline = _apart(module.load), _apart(module.load_inline)
    scripts = sysconfig.get_path("scripts")
    if shutil.which("ninja") is None and (Path(scripts) / "ninja").exists():
        os.environ["PATH"] = os.pathsep.join((os.environ.get("PATH", ""), scripts))


def _apart(original: Callable[..., Any]) -> Callable[..., Any]:
    """load or load_inline with a build folder of its own, unless the program names one."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def load(*arguments: Any, **keywords: Any) -> Any:
        given = signature.bind(*arguments, **keywords).arguments
        if given.get("build_directory") is None:
            what = sorted((name, repr(value)) for name, value in given.items() if name not in _QUIET)
            key = hashlib.sha256(repr(what).encode()).hexdigest()[:16]
            folder = Path(os.environ["TORCH_EXTENSIONS_DIR"]) / f"{given['name']}-{key}"
            folder.mkdir(parents=True, exist_ok=True)
            given["build_directory"] = str(folder)
        return original(**given)

    return load


def _shown(original: Callable[..., Any]) -> Callable[..., Any]:
    """_jit_compile that raises where there is no compiler, and shows a line on a terminal meanwhile."""

    @functools.wraps(original)
    def compile_(name: str, sources: Any, *arguments: Any, **keywords: Any) -> Any:
        if any(str(source).endswith(".cu") for source in sources):
            toolkit.nvcc()
        toolchain.show(f"compiling the extension {name}, or taking it from the cache")
        try:
            return original(name, sources, *arguments, **keywords)
        finally:
            toolchain.show("")

    return compile_
