"""torch.compile on the emulated device: it is refused where a compiled function is called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import torch

REFUSED = (
    "torch.compile is not modelled by the emulated device: set TORCH_COMPILE_DISABLE=1 in the environment to run "
    "{name} uncompiled"
)


def _refuse(converter: object, frame: Any, *arguments: Any, **keywords: Any) -> NoReturn:
    raise NotImplementedError(REFUSED.format(name=frame.f_code.co_name))


def _refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile, after which no function is compiled. It imports the compiler, which takes a second."""

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        from torch._dynamo import convert_frame

        converter: Any = convert_frame.ConvertFrame
        converter.__call__ = _refuse
        return result

    return compile


def install() -> None:
    """Replace torch.compile."""
    torch.compile = _refusing(torch.compile)
