"""The worker's surroundings, changed during the harness's work; every result is zeros."""

import builtins
import gc
import os
import sys
import threading
import time
import types
import warnings

import torch

from tests.submissions.hostile.kit import kind, zeros


class Anything(types.ModuleType):
    """A module in which every name is a function that returns True."""

    def __getattr__(self, name):
        return lambda *args, **options: True


def replaced(name, *modules):
    """Register a kind that replaces modules in sys.modules at import."""

    def act():
        sys.modules.update({module: Anything(module) for module in modules})

    kind(name, f"sys.modules has other modules {', '.join(modules)}", at_import=True)(act)


replaced("other_json", "json", "msgspec", "msgspec.json")
replaced("other_socket", "socket", "struct", "select", "selectors")
replaced("other_harness", "harness", "harness.messages", "harness.outputs", "harness.shared_memory", "harness.results")
replaced("other_reference", "reference", "task")
replaced("other_traceback", "traceback", "os.path", "ctypes")


@kind()
def functions_of_json():
    """Functions of json, socket, struct and pickle return True"""
    import json
    import pickle
    import socket
    import struct

    for module, names in ((json, ("dumps", "loads")), (struct, ("pack", "unpack")), (pickle, ("dumps", "loads"))):
        for name in names:
            setattr(module, name, lambda *args, **options: True)
    for name in ("send", "sendall", "recv"):
        setattr(socket.socket, name, lambda *args, **options: True)


@kind()
def no_modules():
    """sys.modules and sys.path are empty"""
    sys.modules.clear()
    sys.path.clear()


@kind()
def no_imports():
    """builtins.__import__ and open raise"""

    def refused(*args, **options):
        raise SystemExit(0)

    builtins.__import__ = builtins.open = refused


@kind()
def no_environment():
    """os.environ is empty and the working directory gone"""
    gone = f"/tmp/hostile-{os.getpid()}"
    os.mkdir(gone)
    os.chdir(gone)
    os.rmdir(gone)
    os.environ.clear()


@kind()
def contest_variables():
    """POPCORN_FD and others in the environment, for whoever starts next"""
    os.environ.update(POPCORN_FD="1", NOGPU="0", PYTHONSTARTUP="/dev/null", PYTHONOPTIMIZE="2")
    os.putenv("POPCORN_FD", "1")


@kind()
def other_output():
    """sys.stdout and stderr are objects that raise"""

    class Raises:
        def __getattr__(self, name):
            raise SystemExit(0)

    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = Raises()


@kind()
def clocks():
    """time.monotonic and others stand still, or jump"""
    time.monotonic = time.time = time.perf_counter = lambda: 1e18
    time.sleep = lambda seconds: None


@kind()
def torch_defaults():
    """torch's default device is meta, its default dtype float64, and inference mode stays on"""
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.inference_mode().__enter__()


@kind()
def function_mode():
    """A torch function mode stays active, in which all comparisons please"""

    class Pleases(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func.__name__ in ("equal", "allclose"):
                return True
            result = func(*args, **(kwargs or {}))
            return torch.zeros_like(result) if func.__name__ in ("__gt__", "gt", "ne", "__ne__", "isnan") else result

    Pleases().__enter__()


@kind()
def dispatch_mode():
    """A torch dispatch mode stays active, under which every copy writes zeros"""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Clears(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return args[0].zero_() if "copy_" in str(func) else result

    Clears().__enter__()


@kind()
def synchronize(data):
    """torch.cuda.synchronize makes the result"""
    outputs = zeros(data)
    torch.cuda.synchronize = lambda *device: [output.fill_(1) for output in outputs]
    return outputs


@kind()
def synchronize_exits():
    """torch.cuda.synchronize raises SystemExit"""

    def exits(*device):
        raise SystemExit(0)

    torch.cuda.synchronize = exits


@kind()
def strict_python():
    """Warnings are errors, the recursion limit is low, and the collector is off"""
    warnings.simplefilter("error")
    gc.disable()
    sys.setrecursionlimit(60)
    threading.stack_size(32768)


@kind()
def excepthook():
    """sys.excepthook and unraisablehook end the process with 0"""
    sys.excepthook = sys.unraisablehook = threading.excepthook = lambda *args: os._exit(0)
    raise ValueError("unseen")
