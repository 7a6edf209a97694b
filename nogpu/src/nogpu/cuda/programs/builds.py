"""torch.utils.cpp_extension on the device: load, load_inline, CUDAExtension with our toolkit, and its objects kept.

torch itself writes the build and runs ninja; the compilers that it calls are those of toolkit.home()/bin. Builds are in
a folder of the user's cache (TORCH_EXTENSIONS_DIR, unless it is set), each in one named after its name and arguments:
programs whose extensions have the same name can run side by side.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import inspect
import marshal
import os
import re
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nogpu import store, toolchain
from nogpu.cuda.programs import toolkit
from nogpu.errors import EmulatorError
from nogpu.hardware.properties import of_process

_SEAL = "libraries.sealed"
_QUIET = ("build_directory", "verbose")  # arguments that the result does not depend on


def install() -> None:
    """Make torch find our toolkit, show when it compiles, and build each extension in a folder of its own."""
    from torch.utils import cpp_extension

    module: Any = cpp_extension
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(store.root() / "extensions"))
    if not _runs_any_of(os.environ.get("TORCH_CUDA_ARCH_LIST", "")):
        os.environ["TORCH_CUDA_ARCH_LIST"] = "10.0a"
        if of_process().is_rubin:  # torch 2.13 knows no 10.7; without a name nvcc takes it
            module._get_cuda_arch_flags = lambda cflags=None: []
    with contextlib.suppress(EmulatorError, RuntimeError):  # raised where something is built
        module.CUDA_HOME = str(toolkit.home())
    module._check_cuda_version = lambda *arguments: None  # a torch without CUDA has no version to compare with
    module._jit_compile = _shown(module._jit_compile)
    module.load, module.load_inline = _apart(module.load), _apart(module.load_inline)
    builder = module.BuildExtension
    builder.build_extensions = _by_our_compiler(builder.build_extensions)
    scripts = sysconfig.get_path("scripts")
    if shutil.which("ninja") is None and (Path(scripts) / "ninja").exists():
        os.environ["PATH"] = os.pathsep.join((os.environ.get("PATH", ""), scripts))


def _runs_any_of(listed: str) -> bool:
    """True if the device runs code for one of a list of TORCH_CUDA_ARCH_LIST: an image's names its own GPU."""
    architectures = re.findall(r"(\d+)\.(\d)([af]?)", listed)
    return any(of_process().runs(int(major + minor), suffix) for major, minor, suffix in architectures)


def install_environment() -> None:
    """Make TVM-FFI and programs that look for nvcc themselves find our toolkit; ours finds NVIDIA's at PATH's end."""
    os.environ.setdefault("TVM_FFI_CUDA_ARCH_LIST", "{}.{}a".format(*of_process().capability))
    with contextlib.suppress(EmulatorError, RuntimeError):  # raised where something is built
        home, nvcc = toolkit.home(), toolkit.nvcc()
        libraries = [str(home / "lib64"), *filter(None, [os.environ.get("LIBRARY_PATH")])]
        os.environ["PATH"] = os.pathsep.join([str(home / "path"), *os.get_exec_path(), str(nvcc.parent)])
        os.environ["CUDA_HOME"], os.environ["LIBRARY_PATH"] = str(home), os.pathsep.join(libraries)


def _by_our_compiler(original: Callable[..., Any]) -> Callable[..., Any]:
    """The function, run with our toolkit's compiler for the host. Other functions that run compilers keep theirs."""

    @functools.wraps(original)
    def build(*arguments: Any, **keywords: Any) -> Any:
        before = os.environ.get("CXX")
        os.environ["CXX"] = str(toolkit.home() / "bin" / "c++")
        try:
            return original(*arguments, **keywords)
        finally:
            if before is None:
                del os.environ["CXX"]
            else:
                os.environ["CXX"] = before

    return build


def _apart(original: Callable[..., Any]) -> Callable[..., Any]:
    """load or load_inline in a build folder of its own, one process at a time, unless the program names a folder."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def load(*arguments: Any, **keywords: Any) -> Any:
        given = signature.bind(*arguments, **keywords).arguments
        if given.get("build_directory") is None:
            what = [str(toolkit.home()), str(of_process().architecture)]
            what += [f"{name}={value!r}" for name, value in given.items() if name not in _QUIET]
            key = hashlib.sha256(repr(what).encode()).hexdigest()[:16]
            folder = Path(os.environ["TORCH_EXTENSIONS_DIR"]) / f"{given['name']}-{key}"
            folder.mkdir(parents=True, exist_ok=True)
            given["build_directory"] = str(folder)
            with open(folder / "holder", "a") as holder:
                fcntl.flock(holder, fcntl.LOCK_EX)
                # torch waits for its own lock file to go, without end if a process that was killed has left it.
                (folder / "lock").unlink(missing_ok=True)
                _forget_damaged(folder)
                loaded = original(**given)
                _seal(folder)
                return loaded
        return original(**given)

    return load


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.so"))}


def _seal(folder: Path) -> None:
    """Keeps the digests of the libraries that torch has built in a folder."""
    with contextlib.suppress(OSError):
        store.put(folder / _SEAL, marshal.dumps(_digests(folder)))


def _forget_damaged(folder: Path) -> None:
    """Removes libraries that are not those of `_seal`: loading one that is cut off ends the process."""
    kept = store.read(folder / _SEAL)
    sealed = {} if kept is None else marshal.loads(kept)
    for name, digest in _digests(folder).items():
        if sealed.get(name) != digest:
            if name in sealed:
                store.notice(f"{folder / name} is damaged and is made anew")
            (folder / name).unlink()


def _shown(original: Callable[..., Any]) -> Callable[..., Any]:
    """_jit_compile that raises where there is no compiler, and shows a line on a terminal while it lasts."""
    build = _by_our_compiler(original)

    @functools.wraps(original)
    def compile_(name: str, sources: Any, *arguments: Any, **keywords: Any) -> Any:
        if any(str(source).endswith(".cu") for source in sources):
            toolkit.nvcc()
        with toolchain.telling(f"compiling the extension {name} with torch's headers; the result is kept"):
            return build(name, sources, *arguments, **keywords)

    return compile_
