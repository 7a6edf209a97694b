"""Programs of which mutants are made: our kernels in their configurations, and NVIDIA's, which the caller has.

Calls of our kernels have several tiles for each CTA and more k-tiles than stages. They depend on each other in each of
the ways for which a kernel waits: a call reads what an earlier call writes, also past a call with both promises, or
writes the same outputs.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from harness import ROOT
from nogpu.sanitizer import RULES, waivers
from workshop.modules import run_script
from workshop.mutants.tape import Program, Tape, record

Data = Any
Promised = dict[str, bool]
Call = tuple[Data, Promised]

READY: Promised = {"operands_ready": True}
ALL: Promised = {"operands_ready": True, "output_free": True}


def as_operand(c: Any) -> Any:
    """The bytes of an output [M, N, 1] fp16 as an operand [M, 2 N, 1] of e2m1 pairs.

    Every output is a legal operand, since e2m1 has no NaN.
    """
    import torch

    return c.permute(2, 0, 1).view(torch.uint8).view(torch.float4_e2m1fn_x2).permute(1, 2, 0)


SIZES = {"m": (200, 64), "n": (384, 264), "k": (1280, 1024)}


def _group_calls() -> Iterator[list[Call]]:
    import reference

    generate = reference.generate_input
    yield [(generate(**SIZES, g=2, seed=5), {})]

    def small(seed: int, n: int = 128, m: int = 64) -> Data:
        return generate(m=(64, m), n=(256, n), k=(1024, 1024), g=2, seed=seed)

    first, third = small(8, n=256), small(9)
    for group, ((_, _, c), (_, b, output)) in enumerate(zip(first[0], third[0], strict=True)):
        third[0][group] = (as_operand(c), b, output)
    yield [(first, {}), (small(10, m=40), ALL), (third, {})]
    one, other = small(11), small(12)
    for group, ((_, _, c), (a, b, _)) in enumerate(zip(one[0], other[0], strict=True)):
        other[0][group] = (a, b, c)
    yield [(one, READY), (other, READY)]


def _dual_calls() -> Iterator[list[Call]]:
    import reference

    generate = reference.generate_dual_gemm_input
    yield [(generate(m=136, n=264, k=1280, l=1, seed=5), {})]
    small = {"m": 64, "n": 256, "k": 1024, "l": 1}
    first, third = generate(**small, seed=8), generate(**small, seed=9)
    yield [(first, {}), (generate(**small, seed=10), ALL), ((as_operand(first[-1]), *third[1:]), {})]
    one, other = generate(**small, seed=11), generate(**small, seed=12)
    yield [(one, READY), ((*other[:-1], one[-1]), READY)]


def _gemv_calls() -> Iterator[list[Call]]:
    import reference

    generate, k = reference.generate_gemv_input, 2560  # more k-tiles than stages
    yield [(generate(m=392, k=k, l=1, seed=5), {})]
    first, third = generate(m=k // 4, k=k, l=1, seed=8), generate(m=24, k=k, l=1, seed=9)
    b = as_operand(first[-1].permute(1, 0, 2))
    chain = third[0], b, third[2], third[3][:1], *third[4:]
    yield [(first, {}), (generate(m=8, k=k, l=1, seed=10), ALL), (chain, {})]
    one, other = generate(m=392, k=k, l=1, seed=11), generate(m=392, k=k, l=1, seed=12)
    yield [(one, READY), ((*other[:-1], one[-1]), READY)]


def _light_calls(products: int, few: bool) -> Iterator[list[Call]]:
    """Two calls that may overlap. few: they have no more tokens than the smallest tile."""
    import reference

    if products == 2:
        made = [reference.generate_dual_gemm_input(m=136, n=264, k=1088, l=1, seed=seed) for seed in (1, 2)]
    else:
        sizes = {"m": (16, 7) if few else (136, 40), "n": (264, 128), "k": (1024, 1088)}
        made = [reference.generate_input(**sizes, g=2, seed=seed) for seed in (1, 2)]
    yield [(made[0], {}), (made[1], ALL)]


def _outputs(data: Data) -> list[Any]:
    return [c for _, _, c in data[0]] if isinstance(data[0], list) else [data[-1]]


def _ours(calls: Callable[[], Iterator[list[Call]]], shape: tuple[int, ...], sms: int) -> Iterator[None]:
    """Makes the calls, planned for `sms` SMs, and yields after each list of calls that may overlap."""
    import submission

    made = list(calls())
    for data, _ in (call for part in made for call in part):
        for c in _outputs(data):
            c.fill_(float("nan"))
    shapes = (submission.Configuration(*shape),)
    for part in made:
        for data, promises in part:
            submission.solve(data, **promises, configurations=shapes, sms=sms)
        yield


def _waived() -> list[str]:
    """The texts of the waivers that stand beside submission.py's instructions."""
    text = (ROOT / "submission.py").read_text()
    return list(dict.fromkeys(waiver.text for waiver in waivers.in_source(text, "submission.py", RULES)))


def recorded(calls: Callable[[], Iterator[list[Call]]], shape: tuple[int, ...], planned: int, sms: int) -> Tape:
    return record(_ours(calls, shape, planned), sms, allowed=_waived())


def ours() -> list[Program]:
    """Programs of six configurations of the kernel: (tokens, CTAs per MMA, CTAs per SM, neighbours)."""
    groups: dict[str, tuple[Any, ...]] = {
        "1-SM": ((128, 1, 1, 1), 2, 4),
        "pairs": ((128, 2, 1, 1), 2, 6),
        "neighbours": ((128, 1, 1, 2), 2, 6),
        "two per SM": ((64, 2, 2, 1), 4, 4),
    }  # configuration, SMs of the plan, SMs of the chip: room for the small launches beside each other
    found = [Program(name, partial(recorded, _group_calls, *how)) for name, how in groups.items()]
    found.append(Program("dual", partial(recorded, _dual_calls, (64, 1, 2, 1), 2, 2)))
    return [*found, Program("GEMV", partial(recorded, _gemv_calls, (16, 1, 1, 1), 2, 4))]


def every() -> list[Program]:
    """A program of each of the kernel's configurations."""
    import submission

    found = []
    for products in submission.PRODUCTS:
        for shape in submission.legal_configurations(products):
            sms = shape.cta_group * shape.neighbours * 2
            name = f"{'dual ' if products == 2 else ''}{'-'.join(map(str, shape))}"
            calls = partial(_light_calls, products, few=shape.token_tile == submission.FEW_TOKENS)
            found.append(Program(name, partial(recorded, calls, shape, sms, 2 * sms)))
    return found


EXAMPLES = "examples/python/CuTeDSL/cute/blackwell/kernel"
NVIDIA = "NVIDIA/cutlass"
FOREIGN = {
    "NVIDIA dense": (
        f"{EXAMPLES}/blockscaled_gemm/dense_blockscaled_gemm_persistent.py",
        "--mma_tiler_mn 256,128 --cluster_shape_mn 2,1 --mnkl 256,512,1280,1 --warmup_iterations 0 --iterations 1",
        2,
    ),
    "NVIDIA grouped": (
        f"{EXAMPLES}/grouped_gemm/grouped_gemm.py",
        "--num_groups 3 --problem_sizes_mnkl (128,256,384,1),(64,256,256,1),(64,128,512,1) --mma_tiler_mn 128,128 "
        "--cluster_shape_mn 1,1 --tensormap_update_mode GMEM --host_problem_shape_available",
        1,
    ),
}
"""Name -> (path in NVIDIA's repository, arguments, SMs of the chip: one CTA, or pair, has all tiles)."""


def _script(path: Path, arguments: str) -> Iterator[None]:
    """Runs a script. Its checks of results may fail, since its launches are only recorded."""
    with contextlib.suppress(SystemExit, AssertionError), contextlib.redirect_stdout(sys.stderr):
        run_script(path, arguments.split())
    yield


def _foreign(path: Path, arguments: str, sms: int) -> Tape:
    # NVIDIA's kernels arrive at the scope of a CTA, and use what tcgen05.ld loads without a wait.
    allowed = "scope", "fragment"
    tape = record(_script(path, arguments), sms, allowed=allowed, strict=False, wanted=_has_products, most=1)
    tape.steps *= 2  # so that a launch follows a launch
    return tape


def _has_products(ptx: str) -> bool:
    return "tcgen05.mma" in ptx


def foreign(folder: Path) -> list[Program]:
    """NVIDIA's programs, from a checkout of its repository at OWNER+NAME in the folder.

    Raises FileNotFoundError if one is missing.
    """
    checkout = folder / NVIDIA.replace("/", "+")
    found = []
    for name, (path, arguments, sms) in FOREIGN.items():
        if not (checkout / path).is_file():
            raise FileNotFoundError(f"{checkout / path}: git clone https://github.com/{NVIDIA} {checkout}")
        found.append(Program(name, partial(_foreign, checkout / path, arguments, sms), f"{NVIDIA}: {path} {arguments}"))
    return found
