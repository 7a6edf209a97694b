"""The contest's problems as data: input and output types, test and benchmark cases, the figures to beat.

A case is written as a spec line in the contest's grammar, `key: value; key: value; ...`. A key is letters and
underscores; a value is an integer, a word, or a list of integers in brackets or parentheses:

    m: [96, 128]; n: [128, 256]; k: [256, 512]; g: 2; seed: 1111
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:  # saves eval.py the seconds of torch's import
    import torch

# The contest's names for the entry point's argument and result. The length of the tuple tells the problem:
# - group GEMM, 4: (abc, sfasfb, sfasfb_reordered, problem_sizes), lists over the groups of (a, b, c), (sfa, sfb),
#   (sfa_reordered, sfb_reordered) and (m, n, k, l). Returns the list of c.
# - dual GEMM, 10: (a, b1, b2, sfa, sfb1, sfb2, sfa_reordered, sfb1_reordered, sfb2_reordered, c). Returns c.
# - GEMM and GEMV, 7: (a, b, sfa, sfb, sfa_reordered, sfb_reordered, c). Returns c, which has N = 1 for GEMV.
input_t = TypeVar(
    "input_t",
    bound="tuple[list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], list[tuple[torch.Tensor, torch.Tensor]], "
    "list[tuple[torch.Tensor, torch.Tensor]], list[tuple[int, int, int, int]]] | tuple[torch.Tensor, ...]",
)
output_t = TypeVar("output_t", bound="list[torch.Tensor] | torch.Tensor")

SEED_STEP = 42  # difference of the seeds of successive inputs of a timing

SIZES = range(2**31)
SEEDS = range(-(2**63), 2**64 - 2**32)  # torch's range, less the steps from one input of a case to the next
LARGEST_FILE = 2**20  # bytes of a file of spec lines

SpecValue = int | str | tuple[int, ...]

_KEY = r"[a-zA-Z_]+"
_INTEGER = r"[+-]?[0-9]+"
_WORD = r"[a-zA-Z_]+"
_LIST = r"\[[^\]]*\]|\([^)]*\)"
_ITEM = re.compile(rf"\s*({_KEY})\s*:\s*({_LIST}|{_WORD}|{_INTEGER})\s*")


class SpecError(ValueError):
    """A malformed spec line or an unreadable file; the text names the line and its malformed part."""


@dataclass(frozen=True)
class TestSpec:
    """One case: the keyword arguments of generate_input, and their spec line."""

    __test__ = False  # keeps pytest from collecting the class

    line: str
    args: Mapping[str, SpecValue]

    @classmethod
    def parse(cls, line: str) -> TestSpec:
        """Read one spec line. Lists become tuples. Raises SpecError for a malformed line."""
        args: dict[str, SpecValue] = {}
        for part in line.split(";"):
            item = _ITEM.fullmatch(part)
            if item is None:
                raise SpecError(f"invalid test case '{_shown(line)}': '{_shown(part.strip())}' is not 'key: value'")
            key, text = item.groups()
            if key in args:
                raise SpecError(f"invalid test case '{_shown(line)}': key '{_shown(key)}' appears twice")
            args[key] = _parse_value(text, line)
        return cls(line, args)

    @classmethod
    def from_args(cls, args: Mapping[str, SpecValue]) -> TestSpec:
        """The inverse of parse: the case with these arguments of generate_input, with a spec line made from them."""
        return cls("; ".join(f"{key}: {_format_value(value)}" for key, value in args.items()), dict(args))

    def combine_seed(self, popcorn_seed: int) -> TestSpec:
        """A copy of the case whose seed is the contest's combination of the public seed and the secret `popcorn_seed`.

        Raises SpecError for a seed that torch does not take.
        """
        if "seed" not in self.args:
            return self
        a, b = cast(int, self.args["seed"]), popcorn_seed
        seed = a + (a + b) * (a + b + 1) // 2
        _check(self.line, "the combined seed", seed, SEEDS)
        return replace(self, args={**self.args, "seed": seed})


def _shown(line: str) -> str:
    return line if len(line) <= 200 else f"{line[:200]}..."


def _check(line: str, name: str, value: SpecValue, legal: range) -> None:
    """Raise SpecError unless the value is an integer in the range."""
    if not isinstance(value, int) or value not in legal:
        shown = _shown(_format_value(value))
        raise SpecError(
            f"invalid test case '{_shown(line)}': {name} is {shown}; expected an integer from {legal[0]} to {legal[-1]}"
        )


def _integer(text: str, line: str) -> int:
    try:
        return int(text)
    except ValueError:  # more digits than Python converts
        raise SpecError(f"invalid test case '{_shown(line)}': an integer has {len(text)} digits") from None


def _parse_value(text: str, line: str) -> SpecValue:
    if text[0] in "[(":
        inner = text[1:-1].strip()
        items = [item.strip() for item in inner.split(",")] if inner else []
        for item in items:
            if not re.fullmatch(_INTEGER, item):
                raise SpecError(
                    f"invalid test case '{_shown(line)}': '{_shown(item)}' in list '{_shown(text)}' is not an integer"
                )
        return tuple(_integer(item, line) for item in items)
    return _integer(text, line) if re.fullmatch(_INTEGER, text) else text


def _format_value(value: SpecValue) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class Benchmark:
    """A timed case with the figures to beat, in microseconds on a B200."""

    line: str
    speed_of_light_us: float  # the task authors' model: max(tensor core time, DRAM time) at 1.5 GHz
    best_published_us: float  # best submission in this case; other cases may have other submissions


@dataclass(frozen=True)
class Problem:
    """One of the contest's problems."""

    name: str
    leaderboard: str
    parameters: tuple[str, ...]  # arguments of generate_input and keys of a spec line
    inputs_per_timing: int  # different inputs with one call each, back to back between one pair of CUDA events
    tests: tuple[str, ...]
    benchmarks: tuple[Benchmark, ...]
    # The best geometric mean over the benchmarks that any single submission has published. It is not the geometric mean
    # of the benchmarks' best_published_us, which are the figures of several submissions.
    best_geomean_us: float

    def parse_specs(self, lines: Sequence[str]) -> list[TestSpec]:
        """Read spec lines. Raises SpecError for no lines, and for a line whose parameters are not this problem's."""
        specs = [TestSpec.parse(line) for line in lines]
        for spec in specs:
            if set(spec.args) != set(self.parameters):
                raise SpecError(
                    f"invalid test case '{_shown(spec.line)}': {self.name} takes {', '.join(self.parameters)}; "
                    f"got {_shown(', '.join(spec.args))}"
                )
            self._check_values(spec)
        if not specs:
            raise SpecError("no test cases")
        return specs

    def _check_values(self, spec: TestSpec) -> None:
        """Raise SpecError unless all values are sizes, or lists of g sizes if there are groups, and a seed."""
        for name, value in spec.args.items():
            if name == "seed" or name == "g" or "g" not in self.parameters:
                _check(spec.line, name, value, SEEDS if name == "seed" else SIZES)
                continue
            if not isinstance(value, tuple) or len(value) != spec.args["g"]:
                raise SpecError(
                    f"invalid test case '{_shown(spec.line)}': {name} is {_shown(_format_value(value))}; expected a "
                    f"list of g = {_shown(_format_value(spec.args['g']))} sizes"
                )
            for size in value:
                _check(spec.line, f"a size of {name}", size, SIZES)

    def read_spec_file(self, path: str | Path) -> list[TestSpec]:
        """Read a file of spec lines. Raises SpecError for an unreadable, empty or malformed file."""
        try:
            with open(path, "rb") as file:
                content = file.read(LARGEST_FILE + 1)
            text = content.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"could not read spec file '{path}': {error}") from error
        if len(content) > LARGEST_FILE:
            raise SpecError(f"spec file '{path}' has more than {LARGEST_FILE} bytes")
        lines = text.splitlines()
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                raise SpecError(f"spec file '{path}': line {number} is empty; every line must be a test case")
        try:
            return self.parse_specs(lines)
        except SpecError as error:
            raise SpecError(f"spec file '{path}': {error}") from None

    def find_benchmark(self, spec: TestSpec) -> Benchmark | None:
        """The benchmark with the shapes of `spec`, whose seed may differ; None if there is none."""

        def shapes(args: Mapping[str, SpecValue]) -> dict[str, SpecValue]:
            return {key: value for key, value in args.items() if key != "seed"}

        for benchmark in self.benchmarks:
            if shapes(TestSpec.parse(benchmark.line).args) == shapes(spec.args):
                return benchmark
        return None


GROUP_GEMM = Problem(
    name="group_gemm",
    leaderboard="nvfp4_group_gemm",
    parameters=("m", "n", "k", "g", "seed"),
    inputs_per_timing=15,
    tests=(
        "m: [96, 128]; n: [128, 256]; k: [256, 512]; g: 2; seed: 1111",
        "m: [256, 72]; n: [512, 384]; k: [256, 256]; g: 2; seed: 1111",
        "m: [128, 128]; n: [128, 256]; k: [512, 256]; g: 2; seed: 1111",
        "m: [80, 128, 256]; n: [384, 256, 128]; k: [256, 512, 256]; g: 3; seed: 1111",
        "m: [64, 72, 96]; n: [128, 384, 512]; k: [512, 512, 256]; g: 3; seed: 1111",
        "m: [64, 256, 128]; n: [768, 128, 256]; k: [512, 256, 512]; g: 3; seed: 1111",
        "m: [128, 128, 64]; n: [256, 512, 512]; k: [768, 256, 768]; g: 3; seed: 1111",
        "m: [128, 128, 128, 128]; n: [128, 128, 128, 128]; k: [512, 256, 512, 256]; g: 4; seed: 1111",
        "m: [40, 56, 384, 512]; n: [512, 384, 256, 128]; k: [256, 256, 256, 256]; g: 4; seed: 1111",
        "m: [512, 384, 256, 128]; n: [256, 256, 256, 256]; k: [512, 768, 512, 768]; g: 4; seed: 1111",
    ),
    benchmarks=(
        Benchmark(
            "m: [80, 176, 128, 72, 64, 248, 96, 160]; n: [4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096]; "
            "k: [7168, 7168, 7168, 7168, 7168, 7168, 7168, 7168]; g: 8; seed: 1111",
            speed_of_light_us=18.833,
            best_published_us=27.9,
        ),
        Benchmark(
            "m: [40, 76, 168, 72, 164, 148, 196, 160]; n: [7168, 7168, 7168, 7168, 7168, 7168, 7168, 7168]; "
            "k: [2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048]; g: 8; seed: 1111",
            speed_of_light_us=10.667,
            best_published_us=18.8,
        ),
        Benchmark(
            "m: [192, 320]; n: [3072, 3072]; k: [4096, 4096]; g: 2; seed: 1111",
            speed_of_light_us=2.406,
            best_published_us=8.48,
        ),
        Benchmark(
            "m: [128, 384]; n: [4096, 4096]; k: [1536, 1536]; g: 2; seed: 1111",
            speed_of_light_us=1.525,
            best_published_us=6.43,
        ),
    ),
    best_geomean_us=13.09,
)

DUAL_GEMM = Problem(
    name="dual_gemm",
    leaderboard="nvfp4_dual_gemm",
    parameters=("m", "n", "k", "l", "seed"),
    inputs_per_timing=50,
    tests=(
        "m: 1536; n: 512; k: 7168; l: 1; seed: 1111",
        "m: 256; n: 512; k: 256; l: 1; seed: 1111",
        "m: 1536; n: 512; k: 7168; l: 1; seed: 1111",
        "m: 3072; n: 1024; k: 1536; l: 1; seed: 1111",
        "m: 7168; n: 1024; k: 256; l: 1; seed: 1111",
        "m: 7168; n: 2304; k: 2048; l: 1; seed: 1111",
        "m: 4608; n: 384; k: 7168; l: 1; seed: 1111",
        "m: 7168; n: 384; k: 2304; l: 1; seed: 1111",
        "m: 512; n: 768; k: 7168; l: 1; seed: 1111",
        "m: 4096; n: 768; k: 512; l: 1; seed: 1111",
    ),
    benchmarks=(
        Benchmark("m: 256; n: 4096; k: 7168; l: 1; seed: 1111", speed_of_light_us=4.708, best_published_us=12.4),
        Benchmark("m: 512; n: 4096; k: 7168; l: 1; seed: 1111", speed_of_light_us=8.714, best_published_us=15.3),
        Benchmark("m: 256; n: 3072; k: 4096; l: 1; seed: 1111", speed_of_light_us=2.125, best_published_us=9.43),
        Benchmark("m: 512; n: 3072; k: 7168; l: 1; seed: 1111", speed_of_light_us=6.535, best_published_us=14.4),
    ),
    best_geomean_us=13.12,
)

GEMM = Problem(
    name="gemm",
    leaderboard="nvfp4_gemm",
    parameters=("m", "n", "k", "l", "seed"),
    inputs_per_timing=50,
    tests=(
        "m: 128; n: 256; k: 256; l: 1; seed: 1111",
        "m: 128; n: 1536; k: 7168; l: 1; seed: 1111",
        "m: 128; n: 3072; k: 1536; l: 1; seed: 1111",
        "m: 256; n: 7168; k: 256; l: 1; seed: 1111",
        "m: 256; n: 7168; k: 2048; l: 1; seed: 1111",
        "m: 2304; n: 4608; k: 7168; l: 1; seed: 1111",
        "m: 384; n: 7168; k: 2304; l: 1; seed: 1111",
        "m: 512; n: 512; k: 7168; l: 1; seed: 1111",
        "m: 512; n: 4096; k: 512; l: 1; seed: 1111",
        "m: 512; n: 1536; k: 7168; l: 1; seed: 1111",
    ),
    benchmarks=(
        Benchmark("m: 128; n: 7168; k: 16384; l: 1; seed: 1111", speed_of_light_us=8.994, best_published_us=18.3),
        Benchmark("m: 128; n: 4096; k: 7168; l: 1; seed: 1111", speed_of_light_us=2.354, best_published_us=8.29),
        Benchmark("m: 128; n: 7168; k: 2048; l: 1; seed: 1111", speed_of_light_us=1.333, best_published_us=6.54),
    ),
    best_geomean_us=9.98,
)

GEMV = Problem(
    name="gemv",
    leaderboard="nvfp4_gemv",
    parameters=("m", "k", "l", "seed"),
    inputs_per_timing=1,
    tests=(
        "m: 128; k: 256; l: 1; seed: 1111",
        "m: 128; k: 1536; l: 1; seed: 1111",
        "m: 128; k: 3072; l: 1; seed: 1111",
        "m: 256; k: 7168; l: 1; seed: 1111",
        "m: 256; k: 7168; l: 1; seed: 1111",
        "m: 2432; k: 4608; l: 2; seed: 1111",
        "m: 384; k: 7168; l: 2; seed: 1111",
        "m: 512; k: 512; l: 2; seed: 1111",
        "m: 512; k: 4096; l: 2; seed: 1111",
        "m: 512; k: 1536; l: 2; seed: 1111",
    ),
    benchmarks=(
        Benchmark("m: 7168; k: 16384; l: 1; seed: 1111", speed_of_light_us=8.622, best_published_us=18.4),
        Benchmark("m: 4096; k: 7168; l: 8; seed: 1111", speed_of_light_us=17.275, best_published_us=28.0),
        Benchmark("m: 7168; k: 2048; l: 4; seed: 1111", speed_of_light_us=4.317, best_published_us=12.4),
    ),
    best_geomean_us=18.55,
)

PROBLEMS = {problem.name: problem for problem in (GROUP_GEMM, DUAL_GEMM, GEMM, GEMV)}
