"""Calls an entry of the MLSys 2026 FlashInfer contest and compares it with the formula of its problem, in float64.

    python -m nogpu -m workshop.foreign.contest SOURCE FUNCTION PROBLEM [--size N]

SOURCE is the entry's kernel.py, which is imported as a module of the package that its folder is, or its kernel.cu,
which TVM-FFI builds with the folder's other .cu files, as the contest does. --size: sequences of one token for
`decode`, tokens of the one sequence for `prefill`. A wrong result: a traceback and exit code 1.

The problems are the gated delta nets: 4 heads of q and k, 8 of v, of 128 in bfloat16; the state in float32, K last.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.nn import functional

from workshop.console import command_parser

Function = Callable[..., Any]
HEADS, VALUE_HEADS, WIDTH = 4, 8, 128


def load(source: Path, name: str) -> Function:
    """The function of a kernel.py or of a module that TVM-FFI builds."""
    if source.suffix == ".py":
        package = sys.modules["entry"] = ModuleType("entry")
        package.__path__ = [str(source.parent)]
        return getattr(importlib.import_module(f"entry.{source.stem}"), name)
    import tvm_ffi

    files = sorted(map(str, source.parent.glob("*.cu")))
    options = ["-O3", "-lineinfo"]
    built = tvm_ffi.cpp.build("entry", cuda_files=files, extra_cuda_cflags=options)
    return getattr(tvm_ffi.load_module(built), name)


def bf16(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda").bfloat16()


def gated_delta(function: Function, size: int, decode: bool) -> None:
    """Calls a gated delta net of `size` sequences of a token, or one of `size` tokens, and checks it."""
    sequences, tokens = (size, 1) if decode else (1, size)
    count = sequences * tokens
    q, k = bf16(count, HEADS, WIDTH), functional.normalize(torch.randn(count, HEADS, WIDTH, device="cuda"), dim=-1)
    k = k.bfloat16()
    v, a, b = bf16(count, VALUE_HEADS, WIDTH), bf16(count, VALUE_HEADS), bf16(count, VALUE_HEADS)
    state = torch.randn(sequences, VALUE_HEADS, WIDTH, WIDTH, device="cuda")
    rates, bias = torch.randn(2, VALUE_HEADS, device="cuda")
    scale = WIDTH**-0.5
    output, new_state = torch.empty_like(v), torch.empty_like(state)
    before = state.clone()
    if decode:
        parts = [part.unsqueeze(1) for part in (q, k, v)]
        function(*parts, state, rates, a.unsqueeze(1), bias, b.unsqueeze(1), scale, output.unsqueeze(1), new_state)
    else:
        offsets = torch.tensor([0, count], dtype=torch.int64, device="cuda")
        function(q, k, v, state, rates, a, bias, b, offsets, scale, output, new_state)
    decay = torch.exp(-torch.exp(rates.double()) * functional.softplus(a.double() + bias.double()))
    beta = torch.sigmoid(b.double())
    q, k = (part.double().repeat_interleave(VALUE_HEADS // HEADS, 1) for part in (q, k))
    expected, expected_state = torch.empty_like(v, dtype=torch.float64), before.double()
    for token in range(count):
        row = expected_state[token // tokens]
        row *= decay[token, :, None, None]
        error = v[token].double() - torch.einsum("hvk,hk->hv", row, k[token])
        row += torch.einsum("hv,hk->hvk", beta[token, :, None] * error, k[token])
        expected[token] = scale * torch.einsum("hvk,hk->hv", row, q[token])
    close(output, expected)
    close(new_state, expected_state)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=1e-2, atol=1e-2)


PROBLEMS: dict[str, Callable[[Function, int], None]] = {
    "decode": lambda function, size: gated_delta(function, size, decode=True),
    "prefill": lambda function, size: gated_delta(function, size, decode=False),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns exit code 0. Raises AssertionError for a wrong result."""
    parser = command_parser(__doc__, "workshop.foreign.contest")
    parser.add_argument("source", type=Path)
    parser.add_argument("function")
    parser.add_argument("problem", choices=PROBLEMS)
    parser.add_argument("--size", type=int, default=1, metavar="N", help="default: %(default)s")
    options = parser.parse_args(arguments)
    torch.manual_seed(1)
    PROBLEMS[options.problem](load(options.source, options.function), options.size)
    print(f"{options.function}, {options.problem} of {options.size}: right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
