"""C++ extensions of torch on the device: their libraries are found, and calls of their functions see the device.

A call raises the EmulatorError of a kernel that it launches. Tensors that C++ code makes, and results of torch's
operations that it calls, are placed on the device by a dispatch mode, as the function mode (host.torch_device) does for
Python code.
"""

from __future__ import annotations

import functools
import importlib.machinery
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch._ops
from torch.utils._python_dispatch import TorchDispatchMode

from emulator.cuda_programs import entries, status
from emulator.cuda_programs.libraries import LINKED_NAME
from emulator.execution.device import run_pending
from emulator.host import torch_device
from emulator.host.torch_memory import kind, on_device, place, storage_addresses, tensors

_TORCHS = {"aten", "prim", "prims", "profiler", "inductor", "quantized", "sparse", "_c10d_functional", "higher_order"}
"""Namespaces of torch's own operations."""


@entries.entry("emulator_has_storage", entries.ADDRESS, always=True)
def has_storage(storage: int) -> int:
    """Whether a c10::StorageImpl is on the device, for torch_headers/emulator/device_tensors.h."""
    return int(storage in storage_addresses)


class ExtensionCall(TorchDispatchMode):
    """Places results of torch's operations on the device, while C++ code runs."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func.namespace not in _TORCHS:
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
        """An operation of an extension: its kernel for CUDA where it has one, with this mode in force."""
        keys = torch._C.DispatchKey
        cuda = func.has_kernel_for_dispatch_key(keys.CUDA)
        with self:
            return func._op_dk(keys.CUDA if cuda else keys.CPU, *args, **kwargs)


_mode = ExtensionCall()
_depth = 0


def on_the_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs C++ code, as one that sees the device and raises the errors of its kernels."""
    raising = status.raising(function)

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        global _depth
        if _depth or os.environ.get("EMULATOR") == "hopper":
            return raising(*arguments, **keywords)
        run_pending()
        _depth += 1
        try:
            with _mode:
                return raising(*arguments, **keywords)
        finally:
            _depth -= 1

    return call


def wrap(module: ModuleType) -> None:
    """Make the functions of an extension module, and the methods of its classes, ones that see the device."""
    for name, value in list(vars(module).items()):
        if isinstance(value, type):
            for method, function in list(vars(value).items()):
                if callable(function) and (not method.startswith("__") or method in ("__init__", "__call__")):
                    setattr(value, method, on_the_device(function))
        elif callable(value) and not name.startswith("__"):
            setattr(module, name, on_the_device(value))


def _create(original: Callable[..., ModuleType]) -> Callable[..., ModuleType]:
    """ExtensionFileLoader.create_module that finds runtime/ and wraps what was built against it."""

    @functools.wraps(original)
    def create_module(loader: Any, spec: Any) -> ModuleType:
        try:
            return original(loader, spec)
        except ImportError as error:
            if LINKED_NAME not in str(error):
                raise
        from emulator.cuda_programs import connection

        connection.connect()
        return original(loader, spec)

    return create_module


def _execute(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def exec_module(loader: Any, module: ModuleType) -> None:
        original(loader, module)
        if is_ours(loader.path):
            wrap(module)

    return exec_module


@functools.cache
def is_ours(path: str) -> bool:
    """Whether a library was linked against runtime/."""
    with open(path, "rb") as file:
        return LINKED_NAME.encode() in file.read()


def _load_library(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def load_library(namespace: Any, path: str) -> None:
        if is_ours(path):
            from emulator.cuda_programs import connection

            connection.connect()
        original(namespace, path)

    return load_library


def _call(original: Callable[..., Any]) -> Callable[..., Any]:
    """The call of an operation of torch.ops, on the device for those of extensions."""

    @functools.wraps(original)
    def call(operation: Any, /, *arguments: Any, **keywords: Any) -> Any:
        name = getattr(operation, "_qualified_op_name", None) or operation.name()
        if name.partition("::")[0] in _TORCHS:
            return original(operation, *arguments, **keywords)
        return on_the_device(original)(operation, *arguments, **keywords)

    return call


def install_calls() -> None:
    """Hook the loading and the calls of extensions."""
    loader: Any = importlib.machinery.ExtensionFileLoader
    loader.create_module, loader.exec_module = _create(loader.create_module), _execute(loader.exec_module)
    namespace: Any = torch._ops._Ops
    namespace.load_library = _load_library(namespace.load_library)
    for operation in (torch._ops.OpOverload, torch._ops.OpOverloadPacket):
        changed: Any = operation
        changed.__call__ = _call(changed.__call__)


def install() -> None:
    """Give this process the device, and extensions the device."""
    torch_device.install()
    install_calls()
