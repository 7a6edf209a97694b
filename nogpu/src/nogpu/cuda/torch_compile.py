"""torch.compile on the emulated device: functions and modules run uncompiled, with one warning.

What TorchInductor has made of a program, a Python file with Triton kernels, runs with those kernels on the device.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

UNCOMPILED = "torch.compile: the emulated device runs {name} uncompiled, and all else that is to be compiled"
_warned: list[object] = []  # the first model, after the warning


def compile(model: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Answers torch.compile, also as a decorator with options, with the model itself."""
    if model is None:
        return functools.partial(compile, **options)
    by_torch = sys._getframe(1).f_globals.get("__name__", "").startswith("torch.")  # flex_attention's own call
    if not (_warned or by_torch):
        _warned.append(model)
        name = getattr(model, "__qualname__", type(model).__qualname__)
        warnings.warn(UNCOMPILED.format(name=name), stacklevel=2)
    return model


def install() -> None:
    """Replace torch.compile, and the allocation in files of TorchInductor, which calls no function of torch's."""
    torch.compile = functools.wraps(torch.compile)(compile)
    guards: Any = torch._C._dynamo.guards
    guards._empty_strided_cuda = lambda size, stride, dtype: torch.empty_strided(
        size, stride, dtype=dtype, device="cuda"
    )


def install_inductor() -> None:
    """Make TorchInductor launch by Triton's driver; its own launcher hands cubins to CUDA's."""
    from torch._inductor import config

    config.use_static_cuda_launcher = False
