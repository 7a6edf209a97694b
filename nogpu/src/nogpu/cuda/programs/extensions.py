"""C++ extensions of torch on the device: their libraries are found, and calls of their functions see the device.

A call raises the EmulatorError of a kernel that it launches. Tensors that C++ code makes, and results of torch's
operations that it calls, are placed on the device by a dispatch mode, as the function mode (cuda.torch_device) does for
Python code.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch._ops
from torch.utils._python_dispatch import TorchDispatchMode

from nogpu.cuda import torch_autocast, torch_device
from nogpu.cuda.programs import entries, runtime_compilation, status
from nogpu.cuda.programs.libraries import LINKED_NAME
from nogpu.cuda.torch_memory import kind, on_device, place, storage_addresses, tensors
from nogpu.execution.device import run_pending

_CONNECTION = "nogpu.cuda.programs.connection"  # imported when a library of ours is loaded
_operations: set[str] = set()
"""The operations of torch.ops that libraries of ours have registered, "namespace::name"."""


@entries.entry("emulator_has_storage", entries.ADDRESS, always=True)
def has_storage(storage: int) -> int:
    """1 if a c10::StorageImpl is on the device, else 0, for torch_headers/emulator/device_tensors.h."""
    return int(storage in storage_addresses)


class ExtensionCall(TorchDispatchMode):
    """A dispatch mode that places results of torch's operations on the device, while C++ code runs."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func._schema.name in _operations:
            return self._own(func, args, kwargs)
        with torch._C.DisableTorchFunction():
            run_pending()
            device = kwargs.get("device")
            wanted = None if device is None else kind(device)
            if wanted == "cuda":
                kwargs["device"] = torch.device("cpu")
            if kwargs.get("pin_memory"):
                kwargs["pin_memory"] = False
            sources = [*tensors(args), *tensors(kwargs.values())]
            explicit = wanted is not None
            if wanted is None and any(map(on_device, sources)):
                wanted = "cuda"
            return place(func(*args, **kwargs), wanted, sources, explicit)

    def _own(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an extension's operation by its kernel for CUDA, else by that for the CPU, with this mode in force."""
        has_kernel = torch._C._dispatch_has_computed_kernel_for_dispatch_key
        key = next((key for key in ("CUDA", "CPU") if has_kernel(func.name(), key)), None)
        if key is None:
            raise NotImplementedError(f"{func.name()} has no kernel for CUDA")
        with self:
            return func._op_dk(getattr(torch._C.DispatchKey, key), *args, **kwargs)


class _Thread(threading.local):
    inside = False  # True while a call is under way


_mode, _thread = ExtensionCall(), _Thread()


def on_the_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which runs C++ code, so that it sees the device and raises the errors of its kernels."""
    raising = status.raising(function)

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if _thread.inside or os.environ.get("NOGPU") == "hopper":
            return raising(*arguments, **keywords)
        run_pending()
        _thread.inside = True
        try:
            with _mode, torch_autocast.as_on_device():
                return raising(*arguments, **keywords)
        finally:
            _thread.inside = False

    return call


def wrap(module: ModuleType) -> None:
    """Replace the functions of an extension module, and the methods of its classes, by ones that see the device."""
    for name, value in list(vars(module).items()):
        if isinstance(value, type):
            for method, function in list(vars(value).items()):
                if callable(function) and (not method.startswith("__") or method in ("__init__", "__call__")):
                    setattr(value, method, on_the_device(function))
        elif callable(value) and not name.startswith("__"):
            setattr(module, name, on_the_device(value))


def _loading(load: Callable[[], Any]) -> Any:
    """The result of `load`, which loads a library of ours. Operations that the library registers are noted."""
    before = set(torch._C._dispatch_get_all_op_names())
    result = load()
    added = {name.partition(".")[0] for name in set(torch._C._dispatch_get_all_op_names()) - before}
    if added and not _operations:
        for kind in (torch._ops.OpOverload, torch._ops.OpOverloadPacket):
            changed: Any = kind
            changed.__call__ = _call(changed.__call__)
    _operations.update(added)
    return result


def _call(original: Callable[..., Any]) -> Callable[..., Any]:
    """The call of an operation of torch.ops, which sees the device if it is ours."""
    on_device = on_the_device(original)

    @functools.wraps(original)
    def call(operation: Any, /, *arguments: Any, **keywords: Any) -> Any:
        name = getattr(operation, "_qualified_op_name", None) or operation._schema.name
        return (on_device if name in _operations else original)(operation, *arguments, **keywords)

    return call


def _create(original: Callable[..., ModuleType]) -> Callable[..., ModuleType]:
    """ExtensionFileLoader.create_module that finds runtime/ for libraries built against it."""

    @functools.wraps(original)
    def create_module(loader: Any, spec: Any) -> ModuleType:
        known = _CONNECTION in sys.modules and is_ours(loader.path)
        try:
            return _loading(lambda: original(loader, spec)) if known else original(loader, spec)
        except ImportError as error:
            if LINKED_NAME not in str(error):
                raise
        importlib.import_module(_CONNECTION).connect()
        return _loading(lambda: original(loader, spec))

    return create_module


def _execute(original: Callable[..., None]) -> Callable[..., None]:
    """ExtensionFileLoader.exec_module that wraps modules built against runtime/."""

    @functools.wraps(original)
    def exec_module(loader: Any, module: ModuleType) -> None:
        original(loader, module)
        if _CONNECTION in sys.modules and is_ours(loader.path):
            wrap(module)

    return exec_module


def _load_library(original: Callable[..., None]) -> Callable[..., None]:
    """torch.ops.load_library that finds runtime/ for libraries built against it."""

    @functools.wraps(original)
    def load_library(namespace: Any, path: Any) -> None:
        if not is_ours(str(path)):
            return original(namespace, path)
        importlib.import_module(_CONNECTION).connect()
        return _loading(lambda: original(namespace, path))

    return load_library


def _load_module(original: Callable[..., Any]) -> Callable[..., Any]:
    """tvm_ffi.load_module that finds runtime/ for libraries built against it, and whose functions see the device."""

    @functools.wraps(original)
    def load_module(path: Any, *arguments: Any, **keywords: Any) -> Any:
        if not is_ours(os.fspath(path)):
            return original(path, *arguments, **keywords)
        importlib.import_module(_CONNECTION).connect()
        module = original(path, *arguments, **keywords)
        find = module.get_function
        module.get_function = lambda *names, **options: on_the_device(find(*names, **options))
        return module

    return load_module


@functools.cache
def is_ours(path: str) -> bool:
    """True if a library was linked against runtime/."""
    with open(path, "rb") as file:
        return LINKED_NAME.encode() in file.read()


def install_calls() -> None:
    """Hook the loading of extensions."""
    loader: Any = importlib.machinery.ExtensionFileLoader
    loader.create_module, loader.exec_module = _create(loader.create_module), _execute(loader.exec_module)
    namespace: Any = torch._ops._Ops
    namespace.load_library = _load_library(namespace.load_library)


def install_modules() -> None:
    """Hook the loading of TVM-FFI's modules."""
    from tvm_ffi import module

    module.load_module = _load_module(module.load_module)


def install() -> None:
    """Put this process and its extensions on the device."""
    torch_device.install()
    runtime_compilation.install()
    install_calls()
