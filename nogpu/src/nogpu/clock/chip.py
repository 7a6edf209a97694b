"""Chip profiles: rates, latencies and sizes of a chip's parts, as data (profiles/*.json)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

PROFILES = Path(__file__).resolve().parent / "profiles"
PIPES = ("alu", "float", "multiply", "special", "double", "tensor", "memory", "tmem")
"""Pipes of an SM's partition, by their numbers in native/clock.h."""


@dataclass(frozen=True)
class Cost:
    """Cost of an instruction of a family, in cycles: of the issue port, of the pipe (PIPES[pipe]), to its result."""

    pipe: int
    issue: float
    interval: float
    latency: float


@dataclass(frozen=True)
class Sustained:
    """The clock to which a chip falls in long work, because of its power limit."""

    clock_ghz: float
    after_us: float  # time of continuous work from which the clock is this one
    tensor_tflops: float  # rate of 16-bit products at that clock, in the work with which the clock was measured


@dataclass(frozen=True)
class Chip:
    """A chip profile. Raises ValueError unless the SMs of the GPCs add up to the chip's."""

    name: str
    clock_ghz: float
    constants: dict[str, float]  # name -> cycles, or bytes a cycle
    instructions: dict[str, Cost]  # family -> its cost
    gpc_sms: tuple[int, ...]
    """SMs of each GPC. An SM that forms clusters with none but its neighbour is in a GPC of two."""
    sustained: Sustained | None = None

    def __post_init__(self) -> None:
        if sum(self.gpc_sms) != self.constants["sms"]:
            raise ValueError(f"gpc_sms: {sum(self.gpc_sms)} SMs in all, the chip has {self.constants['sms']:g}")

    def us(self, cycles: float) -> float:
        """The time of `cycles` in microseconds."""
        return cycles / self.clock_ghz / 1e3

    def with_constant(self, name: str, value: float) -> Chip:
        """The chip with another value of a constant."""
        return replace(self, constants={**self.constants, name: value})

    def with_sms(self, count: int) -> Chip:
        """The chip with more or fewer SMs: the smallest GPCs get another pair, or the largest lose one.

        Raises ValueError for a number whose parity differs from the chip's.
        """
        gpcs, missing = list(self.gpc_sms), count - sum(self.gpc_sms)
        if missing % 2:
            raise ValueError(f"{count} SMs: {self.name} has {sum(gpcs)}, and GPCs change by pairs")
        while sum(gpcs) != count:
            chosen = gpcs.index((min if missing > 0 else max)(gpcs))
            gpcs[chosen] += 2 if missing > 0 else -2
        return replace(self, constants={**self.constants, "sms": float(count)}, gpc_sms=tuple(gpcs))


def profile(name_or_path: str, sustained: bool = False) -> Chip:
    """The chip of a profile. name_or_path: "b200", "h200", or the path of a profile's JSON file.

    sustained: True for the chip at its clock in long work (`Sustained`). Raises ValueError for an unknown name, for a
    file that is not a profile, and for a sustained clock that the profile lacks.
    """
    path = PROFILES / f"{name_or_path}.json"
    if not path.exists():
        path = Path(name_or_path)
    if not path.is_file():
        known = ", ".join(sorted(found.stem for found in PROFILES.glob("*.json")))
        raise ValueError(f"chip profile {name_or_path!r}: known are {known}, or the path of a JSON file")
    try:
        data = resolved(json.loads(path.read_text()))
        clock, lasting = float(data["clock_ghz"]["value"]), None
        if "sustained" in data:
            lasting = Sustained(**{name: float(entry["value"]) for name, entry in data["sustained"].items()})
        if sustained:
            if lasting is None:
                raise ValueError("it has no sustained clock")
            clock = lasting.clock_ghz
        constants = {name: _cycles(entry, clock) for name, entry in data["constants"].items()}
        instructions = {
            name: Cost(PIPES.index(entry["pipe"]), entry["issue"], entry["interval"], entry["latency"])
            for name, entry in data["instructions"].items()
        }
        gpc_sms = tuple(int(sms) for sms in data["gpc_sms"]["value"])
        return Chip(data["name"], clock, constants, instructions, gpc_sms, lasting)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"chip profile {path}: {type(error).__name__}: {error}") from error


def resolved(data: dict) -> dict:
    """A profile's data, with the values of other chips that its entries refer to.

    An entry {"as": CHIP, ...} has the value of that chip's entry. With "share_of": NAME that value is scaled by the
    ratio of this chip's constant NAME to the other chip's.
    """

    def other(name: str) -> dict:
        found: dict = json.loads((PROFILES / f"{name}.json").read_text())
        return found

    for table in ("constants", "instructions"):
        for name, entry in data[table].items():
            if "as" not in entry:
                continue
            theirs = other(entry["as"])[table]
            found = {**theirs[name], "source": f"{entry['source']}: {theirs[name]['source']}"}
            if whole := entry.get("share_of"):
                found["value"] *= data[table][whole]["value"] / theirs[whole]["value"]
            data[table][name] = found
    return data


def _cycles(entry: dict, clock_ghz: float) -> float:
    """A constant's value in cycles, in bytes a cycle, or as a count. Raises ValueError for an unknown unit."""
    value, unit = float(entry["value"]), entry["unit"]
    if unit in ("cycles", "bytes/cycle", "count", "bytes", "columns/cycle", "registers/cycle"):
        return value
    if unit == "ns":
        return value * clock_ghz
    if unit == "us":
        return value * clock_ghz * 1e3
    if unit == "GB/s":
        return value / clock_ghz
    if unit == "TB/s":
        return value * 1e3 / clock_ghz
    raise ValueError(f"unit {unit!r}")
