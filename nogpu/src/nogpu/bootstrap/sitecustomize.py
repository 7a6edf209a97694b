"""Puts a Python process on the emulated device.

`nogpu run` puts this folder on PYTHONPATH and sets NOGPU; child processes inherit both. Its import loads
no other module of nogpu: hooks wait for the modules that need the device.
"""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(HERE)

# (module of the emulator, function for the time before the hooked module is executed, function for the time after)
Hook = tuple[str, str | None, str | None]

TRITON_HOOKS: dict[str, Hook] = {
    "triton.backends.nvidia.driver": ("nogpu.cuda.triton_hooks", None, "install_driver"),
    "triton.backends.nvidia.compiler": ("nogpu.cuda.triton_hooks", None, "install_compiler"),
    "triton.compiler.compiler": ("nogpu.cuda.triton_hooks", None, "install_loading"),
}

# hooked module -> hook
HOOKS: dict[str, Hook] = {
    "torch": ("nogpu.cuda.programs.extensions", None, "install"),
    "torch.utils.cpp_extension": ("nogpu.cuda.programs.builds", None, "install"),
    "torch._inductor.config": ("nogpu.cuda.torch_compile", None, "install_inductor"),
    "tvm_ffi": ("nogpu.cuda.torch_device", None, "install_tvm_ffi"),
    "tvm_ffi.module": ("nogpu.cuda.programs.extensions", None, "install_modules"),
    "tvm_ffi.cpp": ("nogpu.cuda.programs.builds", None, "install_environment"),
    "cutlass": ("nogpu.cuda.dsl.hooks", "prepare", "install"),
    "cutlass.cutlass_dsl.tvm_ffi_provider": ("nogpu.cuda.dsl.hooks", None, "install_tvm_ffi"),
    "cutlass.testing": ("nogpu.cuda.dsl.hooks", None, "install_testing"),
    "cutlass.cute.testing": ("nogpu.cuda.dsl.hooks", None, "install_testing"),
    "cuda.bindings.driver": ("nogpu.cuda.bindings", None, "install_driver"),
    "cuda.bindings.runtime": ("nogpu.cuda.bindings", None, "install_runtime"),
    **TRITON_HOOKS,
    "triton.testing": ("nogpu.cuda.triton_hooks", None, "install_testing"),
    "triton.runtime.autotuner": ("nogpu.cuda.triton_hooks", None, "install_autotuning"),
}

FOLLOWERS = {
    "NOGPU_RECORD": "nogpu.clock.record",
    "NOGPU_CLOCK": "nogpu.clock.live",
    "NOGPU_SANITIZE": "nogpu.sanitizer.observer",
    "NOGPU_EXPLORE": "nogpu.sanitizer.explore",
}
"""Variable -> the module that follows the launches of nogpu.execution.device. Of several the last one does."""

# On a Hopper GPU, torch, the driver and the times are real.
HOPPER_HOOKS: dict[str, Hook] = {
    "cutlass": HOOKS["cutlass"],
    "cutlass.cutlass_dsl.tvm_ffi_provider": HOOKS["cutlass.cutlass_dsl.tvm_ffi_provider"],
    "cuda.bindings.runtime": ("nogpu.hopper.launch", None, "install_runtime"),
    "torch": ("nogpu.cuda.programs.extensions", None, "install_calls"),
    "torch.utils.cpp_extension": HOOKS["torch.utils.cpp_extension"],
    **TRITON_HOOKS,
}


EXTRAS = {"cutlass": "cutlass", "triton": "triton", "torch": "cutlass", "cuda": "hopper"}
"""Package that a program may lack -> the extra that brings it."""

INNER = ("nogpu", "triton", "cutlass", "torch")
"""Packages whose frames at the end of a traceback say nothing about the program."""

LARGE = ("torch", "cutlass")
"""Modules whose import makes half a million objects that stay."""


@contextmanager
def uncollected() -> Iterator[None]:
    """A context that exempts new objects for good from garbage collection, which is half the time of torch's import."""
    if not gc.isenabled():
        yield
        return
    gc.collect()  # before the freeze, which would keep garbage
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class HookedLoader:
    """A wrapper of a module's loader that calls a function before and one after the module is executed."""

    def __init__(self, loader: Any, module: str, before: str | None, after: str | None) -> None:
        self._loader, self._module, self._before, self._after = loader, module, before, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        if module.__name__ in LARGE:
            with uncollected():
                self._execute(module)
        else:
            self._execute(module)

    def _execute(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        if self._before:
            getattr(importlib.import_module(self._module), self._before)()
        self._loader.exec_module(module)
        if self._after:
            getattr(importlib.import_module(self._module), self._after)()


class Finder:
    """A finder of sys.meta_path that finds the emulator without a path entry, and hooks modules."""

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self.hooks = hooks

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if sys.meta_path[0] is not self:  # pytest's finder, which rewrites assertions, would hide hooked modules
            sys.meta_path.remove(self)
            sys.meta_path.insert(0, self)
        if name == "nogpu":
            location = os.path.join(PACKAGE, "__init__.py")
            return importlib.util.spec_from_file_location(name, location, submodule_search_locations=[PACKAGE])
        if name not in self.hooks:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None and spec.loader is None:  # a folder of that name, which import takes for a package
                return spec
            if spec is not None:
                loader: Any = HookedLoader(spec.loader, *self.hooks[name])
                spec.loader = loader
                return spec
        return None


class ContestFinder:
    """A finder of the contest's module `utils`, for a submission that has none beside it."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "utils":
            return None
        return importlib.util.spec_from_file_location(name, os.path.join(PACKAGE, "contest", "utils.py"))


EXIT_SETUP = 3


def say_how_it_ends(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The sys.excepthook: it names the extra of a missing package, and gives the emulator's errors their exit codes.

    An emulator error's traceback ends with the program's own line. Raises SystemExit, from which Python takes the code.
    """
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    errors, store = (sys.modules.get(name) for name in ("nogpu.errors", "nogpu.store"))
    code = None
    if package in EXTRAS and package not in sys.modules:  # else another version of it is asked for
        error.add_note(f"{package} comes with an extra of nogpu: pip install 'nogpu[{EXTRAS[package]}]'")
        code = EXIT_SETUP
    elif store is not None and isinstance(error, store.SetupError):
        code = EXIT_SETUP
    elif errors is not None and isinstance(error, errors.EmulatorError):
        error.note()
        error.__cause__, error.__suppress_context__ = None, True
        error.__traceback__ = trace = own_frames(trace)
        code = errors.EXIT_CODES[error.kind]
    sys.__excepthook__(kind, error, trace)
    if code is not None:
        raise SystemExit(code)


def own_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback up to the last frame of the program itself."""
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    while frames and frames[-1].tb_frame.f_globals.get("__name__", "").partition(".")[0] in INNER:
        frames.pop()
    for frame in reversed(frames):
        trace = TracebackType(trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return trace


def chain() -> None:
    """Run the sitecustomize that this one hides."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def install() -> None:
    """Hook the modules for the device that NOGPU names, also those that are imported already."""
    hooks = HOPPER_HOOKS if os.environ.get("NOGPU") == "hopper" else HOOKS
    for variable, module in FOLLOWERS.items():
        value = os.environ.get(variable)
        if value == "1" if variable == "NOGPU_SANITIZE" else value:
            hooks = hooks | {"nogpu.execution.device": (module, None, "install")}
    sys.meta_path.insert(0, Finder(hooks))
    sys.meta_path.append(ContestFinder())
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = say_how_it_ends
    for name, (module, _, after) in hooks.items():
        if name in sys.modules and after:
            getattr(importlib.import_module(module), after)()


if __name__ == "sitecustomize":
    if os.environ.get("NOGPU") in ("1", "rubin", "hopper"):
        install()
    chain()
