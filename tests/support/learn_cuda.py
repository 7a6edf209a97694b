"""One kernel of gau-nernst/learn-cuda 02e_matmul_sm100, loaded and checked as its main.py does: FOLDER KERNEL.

main.py's own actions need packages for timing (cuda-bench, pandas); its `get_kernel` compiles the folder's sources as
they are, and its check is repeated here: normal numbers scaled by K**-0.5, bfloat16, torch.testing.assert_close.
"""

from __future__ import annotations

import sys

import torch

M, N, K = 512, 512, 512  # multiples of every version's tile


def main(folder: str, name: str) -> None:
    sys.path.insert(0, folder)
    from main import get_kernel  # type: ignore[import-not-found]

    torch.manual_seed(1)
    a, b = (torch.randn(rows, K, device="cuda").mul(K**-0.5).bfloat16() for rows in (M, N))
    expected = torch.mm(a.float(), b.T.float()).bfloat16()
    torch.testing.assert_close(get_kernel(name)(a, b.T), expected)
    print("result right")


if __name__ == "__main__":
    main(*sys.argv[1:])
