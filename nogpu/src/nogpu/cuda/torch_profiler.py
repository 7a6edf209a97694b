"""torch.profiler for the emulated device, which has no activities of its own: operations are timed on the host.

torch would record CUDA events through a library that is missing, and warn of that for every operation.
"""

from __future__ import annotations

import functools
from typing import Any

import torch.autograd.profiler


def install() -> None:
    """Make profiles of device "cuda" profiles of the host."""
    kind: Any = torch.autograd.profiler.profile
    original = kind.__init__

    @functools.wraps(original)
    def init(profile: Any, *args: Any, use_device: str | None = None, use_cpu: bool = True, **kwargs: Any) -> None:
        cuda = use_device == "cuda"
        original(profile, *args, use_device=None if cuda else use_device, use_cpu=use_cpu or cuda, **kwargs)

    kind.__init__ = init
