"""A submission for every problem in plain torch and float32; it reads the reordered scales, as a kernel does."""

import torch

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def values(packed):
    """The values of (mn, k // 2, l) float4_e2m1fn_x2 as (mn, k, l) float32."""
    table = torch.tensor(E2M1 + [-value for value in E2M1], device=packed.device)
    pairs = packed.view(torch.uint8).int()
    return table[torch.stack((pairs & 15, pairs >> 4), dim=2)].flatten(1, 2)


def row_major(reordered):
    """Scales (32, 4, rest_mn, 4, rest_k, l) as (mn, k // 16, l) float32, mn and k // 16 rounded up to whole atoms."""
    return reordered.float().permute(2, 1, 0, 4, 3, 5).flatten(3, 4).flatten(0, 2)


def product(a, b, sfa, sfb):
    """The product, (m, n, l) float32."""
    left, right = (
        values(packed) * row_major(scales).repeat_interleave(16, dim=1)[: packed.shape[0], : 2 * packed.shape[1]]
        for packed, scales in ((a, sfa), (b, sfb))
    )
    return torch.stack([left[:, :, i] @ right[:, :, i].T for i in range(a.shape[2])], dim=2)


def custom_kernel(data):
    if len(data) == 4:
        for (a, b, c), (sfa, sfb) in zip(data[0], data[2]):
            c.copy_(product(a, b, sfa, sfb))
        return [c for _, _, c in data[0]]
    if len(data) == 10:
        a, b1, b2, _, _, _, sfa, sfb1, sfb2, c = data
        return c.copy_(torch.nn.functional.silu(product(a, b1, sfa, sfb1)) * product(a, b2, sfa, sfb2))
    a, b, _, _, sfa, sfb, c = data
    return c.copy_(product(a, b, sfa, sfb)[:, : c.shape[1]])  # only the first row of GEMV's b counts


def plan_report(problem_sizes, problem):
    return {"problem": problem, "products": len(problem_sizes)}
