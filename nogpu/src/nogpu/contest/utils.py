"""The contest's module `utils`, as far as submissions import it, with the contest's names and results."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import torch

SHOWN = 5  # elements that differ, in a reason


def set_seed(seed: int = 42) -> None:
    """Seed Python's and torch's random numbers."""
    random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def get_device(use_cuda: bool = True) -> torch.device:
    """The GPU if it is wanted and there is one, else the CPU."""
    return torch.device("cuda" if use_cuda and torch.cuda.is_available() else "cpu")


def verbose_allclose(
    received: torch.Tensor, expected: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-8, max_print: int = SHOWN
) -> list[str]:
    """Reasons why two tensors are not close, none if they are: a NaN is close to a NaN, an infinity to its like."""
    if received.shape != expected.shape:
        return [f"SIZE MISMATCH: {tuple(received.shape)}, expected {tuple(expected.shape)}"]
    close = torch.isclose(received.float(), expected.float(), rtol=rtol, atol=atol, equal_nan=True)
    return _reasons(received, expected, ~close, max_print)


def verbose_allequal(received: torch.Tensor, expected: torch.Tensor, max_print: int = SHOWN) -> list[str]:
    """Reasons why two tensors are not equal, none if they are."""
    return _reasons(received, expected, torch.not_equal(received, expected), max_print)


def _reasons(received: torch.Tensor, expected: torch.Tensor, differs: torch.Tensor, shown: int) -> list[str]:
    count = int(differs.sum())
    if not count:
        return []
    places = [tuple(place) for place in differs.nonzero()[:shown].tolist()]
    lines = [f"ERROR AT {place}: {received[place].item()} {expected[place].item()}" for place in places]
    more = [f"... and {count - shown} more mismatched elements."] if count > shown else []
    return [f"Number of mismatched elements: {count}", *lines, *more]


def match_reference(
    data: Any, output: Any, reference: Callable[[Any], Any], rtol: float = 1e-5, atol: float = 1e-8
) -> tuple[bool, str]:
    """(True if an output is close to the reference's, the text of the reasons why not)."""
    expected = reference(data)
    pairs = [(output, expected)] if isinstance(expected, torch.Tensor) else list(zip(output, expected, strict=True))
    reasons = [reason for a, b in pairs for reason in verbose_allclose(a, b, rtol, atol)]
    return not reasons, "mismatch found! custom implementation doesn't match reference: " * bool(reasons) + " ".join(
        reasons
    )


def make_match_reference(reference: Callable[[Any], Any], **tolerances: float) -> Callable[..., tuple[bool, str]]:
    """A function of (data, output) that compares the output with the reference's."""

    def check(data: Any, output: Any) -> tuple[bool, str]:
        return match_reference(data, output, reference, **tolerances)

    return check


class DeterministicContext:
    """A context in which torch's operations are deterministic, without TF32 in cuDNN."""

    def __enter__(self) -> DeterministicContext:
        self._workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG", "")
        self._tf32, self._deterministic = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
        torch.use_deterministic_algorithms(True)
        return self

    def __exit__(self, *failure: object) -> None:
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = self._tf32, self._deterministic
        torch.use_deterministic_algorithms(False)
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = self._workspace


def clear_l2_cache() -> None:
    """Overwrite more memory than L2 holds."""
    torch.empty(256 * 2**20, dtype=torch.uint8, device="cuda").fill_(42)
