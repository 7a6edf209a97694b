"""Calls a bf16 matmul of gau-nernst/learn-cuda's 02e_matmul_sm100 and checks it as the repository does.

    python -m nogpu -m workshop.foreign.matmul FOLDER KERNEL [--shape M,N,K] [--seed N]

FOLDER is the checkout's 02e_matmul_sm100, KERNEL a name of its main.py, such as matmul_v3. `get_kernel` of main.py
compiles the folder's sources and finds the kernel; its check is repeated here, since the function that has it needs
packages for timing: A of shape (M, K) and B of shape (K, N), column-major, normal numbers scaled by K**-0.5 in
bfloat16; the reference multiplies in fp32; torch.testing.assert_close. A wrong result: a traceback and exit code 1.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from workshop.console import command_parser
from workshop.modules import load_module


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns exit code 0. Raises AssertionError for a wrong result."""
    parser = command_parser(__doc__, "workshop.foreign.matmul")
    parser.add_argument("folder", type=Path)
    parser.add_argument("kernel")
    parser.add_argument("--shape", default="4096,4096,4096", metavar="M,N,K", help="default: the author's, %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default: %(default)s")
    options = parser.parse_args(arguments)
    m, n, k = map(int, options.shape.split(","))
    matmul = load_module("main", options.folder / "main.py").get_kernel(options.kernel)
    torch.manual_seed(options.seed)
    a, b = (torch.randn(rows, k, device="cuda").mul(k**-0.5).bfloat16() for rows in (m, n))
    expected = torch.mm(a.float(), b.T.float()).bfloat16()
    torch.testing.assert_close(matmul(a, b.T), expected)
    print(f"{options.kernel} {m} x {n} x {k}: right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
