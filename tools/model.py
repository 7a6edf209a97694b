"""Computes the roofline of the benchmark cases on a chip profile: no kernel can be faster, whatever it does.

    python -m tools.model [--clock b200] [--save FILE.json]

The roofline is the slower of two terms, with constants of the profile (nogpu/clock/profiles) that the clock uses, too:

    DRAM           bytes that must move, operands once and the output once, at dram_rate
    tensor core    products of block-scaled MMAs, 128 rows by mma_columns_rate columns by 64 of K in a cycle of each SM

The clock models the time that a kernel should take: python -m tools.modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.console import make_console, make_table
from nogpu.clock import Chip, profile
from task import PROBLEMS, TestSpec
from tools import circumstances
from workshop import records
from workshop.console import command_parser

MMA_ROWS, MMA_K = 128, 64  # size of one tcgen05.mma of kind mxf4nvf4


@dataclass(frozen=True)
class Roofline:
    """The least time that a call can take, and its terms."""

    bytes: int  # operands once and the output once
    dram_us: float
    tensor_us: float

    @property
    def us(self) -> float:
        return max(self.dram_us, self.tensor_us)


def products(problem: str, args: Mapping[str, Any]) -> list[tuple[int, int, int, int]]:
    """(M, N, K, weight matrices) of each product of a case. args: generate_input's. A GEMV's N is 1, its vector."""
    if "g" in args:
        return [(m, n, k, 1) for m, n, k in zip(args["m"], args["n"], args["k"])]
    matrices = 2 if problem == "dual_gemm" else 1
    return [(args["m"], args.get("n", 1), args["k"], matrices)] * args["l"]


def roofline(problem: str, args: Mapping[str, Any], chip: Chip) -> Roofline:
    """The roofline of a case. args: generate_input's."""
    total, multiplied = 0, 0
    for m, n, k, matrices in products(problem, args):
        total += 2 * m * n + (m + matrices * n) * (k // 2 + k // 16)
        multiplied += m * n * k * matrices
    constants = chip.constants
    dram_cycles = total / constants["dram_rate"]
    tensor_cycles = multiplied / (MMA_ROWS * MMA_K * constants["mma_columns_rate"] * constants["sms"])
    return Roofline(total, chip.us(dram_cycles), chip.us(tensor_cycles))


def rooflines(chip: Chip) -> list[dict[str, Any]]:
    """A dict for every benchmark case: problem, case, bytes, dram_us, tensor_us."""
    found = []
    for problem in PROBLEMS.values():
        for case, benchmark in enumerate(problem.benchmarks):
            least = roofline(problem.name, TestSpec.parse(benchmark.line).args, chip)
            terms = {"dram_us": round(least.dram_us, 3), "tensor_us": round(least.tensor_us, 3)}
            found.append({"problem": problem.name, "case": case, "bytes": least.bytes, **terms})
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = command_parser(__doc__, "tools.model")
    parser.add_argument("--clock", default="b200", metavar="PROFILE", help="default: %(default)s")
    records.add_save(parser)
    options = parser.parse_args(arguments)
    chip = profile(options.clock)
    cases = rooflines(chip)
    header = ["problem", "case", "MB", "DRAM us", "tensor core us"]
    table = make_table(header[:1], header[1:], title=f"The roofline on the profile {chip.name}, not a measurement")
    for case in cases:
        table.add_row(
            case["problem"],
            str(case["case"]),
            f"{case['bytes'] / 1e6:.1f}",
            f"{case['dram_us']:.2f}",
            f"{case['tensor_us']:.2f}",
        )
    make_console().print(table)
    records.save(options.save, {"chip": chip.name, **circumstances.versions(arguments), "cases": cases})


if __name__ == "__main__":
    main()
