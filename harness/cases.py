"""Cases of a problem, inputs that are made ahead of the calls, and the small case that rehearses a large one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.timing import timing_arguments
from task import SEED_STEP, Problem, SpecValue

if TYPE_CHECKING:  # an import of torch
    from reference import Data, Reference

# Largest sizes of a case that is called several times: the emulator, or the judge, takes a second for one call.
SMALL_PRODUCTS = 2**28  # multiplications
SMALL_ELEMENTS = 2**25  # elements of the matrices A and B
SMALL_SIZES = {"m": 136, "n": 384, "k": 768}  # largest sizes of a rehearsal
CALLS, CALLS_OF_LEADERBOARD = 3, 10  # calls of a small case; the third and later ones use the second's addresses


@dataclass(frozen=True)
class Case:
    """A case of a problem: the problem's reference, and generate_input's arguments."""

    problem: Problem
    reference: Reference
    args: Mapping[str, Any]

    def input(self, number: int = 0) -> Data:
        """The input of this number. Its seed is the case's for number 0, and SEED_STEP more for each next number."""
        return self.reference.generate_input(**{**self.args, "seed": self.args["seed"] + SEED_STEP * number})

    def identity(self) -> tuple[Any, ...]:
        """A key that is equal for cases with the same inputs."""
        return self.problem.name, *sorted(self.args.items())

    def timing_inputs(self, first: int) -> Iterator[Data]:
        """The inputs of one timing, each made when it is asked for; see timing.timing_arguments."""
        for args in timing_arguments(self.problem, self.args, first):
            yield self.reference.generate_input(**args)

    def products(self) -> int:
        """The number of multiplications in a call."""
        return self.args.get("l", 1) * sum(m * n * k for m, n, k in self._sizes())

    def elements(self) -> int:
        """The number of elements of A and B, of all groups and batch entries."""
        return self.args.get("l", 1) * sum((m + n) * k for m, n, k in self._sizes())

    def _sizes(self) -> list[tuple[int, ...]]:
        return list(zip(*_same_length([_as_tuple(self.args.get(name, 1)) for name in ("m", "n", "k")])))

    @property
    def small(self) -> bool:
        """True if the case is small enough to be called several times."""
        return self.products() <= SMALL_PRODUCTS and self.elements() <= SMALL_ELEMENTS

    def rehearsal(self) -> Case:
        """This case if it is small, else a small one of the same problem with as many groups and batch entries."""
        if self.small:
            return self
        smaller = {name: _at_most(self.args[name], limit) for name, limit in SMALL_SIZES.items() if name in self.args}
        return Case(self.problem, self.reference, {**self.args, **smaller})


class Inputs:
    """Inputs that the judge makes ahead, in its own memory, while the worker calls the submission on others."""

    def __init__(self) -> None:
        self.made: dict[tuple[Any, ...], Data] = {}

    def prepare(self, case: Case, number: int = 0) -> None:
        """Make an input, unless it is made already. If it cannot be made, `take` raises the exception."""
        key = case.identity(), number
        if key not in self.made:
            with suppress(Exception):
                self.made[key] = case.input(number)

    def take(self, case: Case, number: int = 0) -> Data:
        """Return the input and forget it."""
        key = case.identity(), number
        return self.made.pop(key) if key in self.made else case.input(number)


def _as_tuple(value: SpecValue) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)  # type: ignore[return-value]


def _same_length(sizes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    groups = max(map(len, sizes))
    return [one * groups if len(one) == 1 else one for one in sizes]


def _at_most(value: Any, limit: int) -> Any:
    return tuple(min(size, limit) for size in value) if isinstance(value, tuple) else min(value, limit)
