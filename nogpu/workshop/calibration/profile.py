"""Writes a chip profile (nogpu/clock/profiles/*.json) from the constants that `workshop.calibration` has measured.

    python -m workshop.calibration.profile CONSTANTS.json ... [--recordings FOLDER] [--profile FILE.json]

Of several files of one chip, a later one adds its constants to those before it, or replaces them. The H200's profile
comes from docs/results/h200-constants.json, h200-maps.json and h200-subroutines.json.

Each constant has a value, a unit and a source: the names of the measured constants it comes from, or "assumed" and why.
Rates of L2 and DRAM are set so that the model's replay of a microbenchmark gives the measured rate. --recordings holds
those microbenchmarks, recorded with as many SMs as the chip has, each in a folder of its name with a file for each
launch. Without it the measured rates stand.
dram_idle_clean_share is the measured one in any case; the H200's committed one was found by replays of such bursts.
Other entries of the profile's file (a chip's tensor core) are kept.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from nogpu.clock.chip import PROFILES, Chip, profile, resolved
from nogpu.clock.replay import replay
from workshop import records
from workshop.calibration.rules import CONVERSION, EDITS, INSTRUCTIONS, RATES, RULES, SOURCES, SUBROUTINES
from workshop.clock.record import load
from workshop.console import command_parser

COPIED = 4  # kind of a copy's span
TURNS = 3  # steps of the search for a rate
ROWS = "constants", "instructions"  # of a profile, of which each item gets a line
LINES = re.compile(r"latency\.l2_line\.sm_\d+\.median")  # constants of a chip that was measured SM by SM


class Measured(dict[str, float]):
    """Values of measured constants by name, and the number of SMs as "sms". Raises ValueError for a missing name."""

    def __missing__(self, name: str) -> float:
        raise ValueError(
            f"the measured constants lack {name}, which the profile comes from: `python -m workshop.calibration` has it"
        )


def measured_of(files: Sequence[dict[str, Any]]) -> Measured:
    """Constants of calibrations; a later file's replace an earlier one's. Raises ValueError for files of two chips."""
    chips = sorted({f"{record['device']} with {record['sms']} SMs" for record in files})
    if len(chips) > 1:
        raise ValueError(f"measured constants of {len(chips)} chips, must be of one: {', '.join(chips)}")
    value = Measured(sms=float(files[0]["sms"]))
    for record in files:
        value.update({name: float(entry["value"]) for name, entry in record["constants"].items()})
    return value


def far_lines(value: Measured) -> tuple[float, str]:
    """(cycles by which a line in the far part of L2 is later than one in the near part, source)."""
    lines = [each for name, each in value.items() if LINES.fullmatch(name)]
    if lines and "latency.l2_line.far" not in value:
        source = "latency.l2_line.sm_NUMBER.median of all SMs, latency.load.l2"
        return 2 * (median(lines) - value["latency.load.l2"]), source
    return value["latency.l2_line.far"] - value["latency.l2_line.near"], "latency.l2_line.far, latency.l2_line.near"


def several(value: Measured) -> Iterator[tuple[str, dict[str, Any]]]:
    """(family, figures) of families that take several machine instructions: 64-bit sums, and the conversion from e2m1
    if the chip has none. nogpu/hopper lowers the conversion to a byte's extraction, two multiplications, one beside the
    other, two logic operations and a product of pairs.
    """
    interval, latency = 2 * 4 / value["rate.add64_xor64.16_warps"], 2 * value["latency.add64_xor64"]
    source = "latency.add64_xor64, rate.add64_xor64.16_warps: two instructions"
    yield "alu_long", {"issue": 2, "interval": interval, "latency": latency, "source": source}
    if "latency.cvt_f16x2_e2m1x2" not in value:
        interval = max(3 * 4 / value["rate.prmt.16_warps"], 2 * 4 / value["rate.mad.16_warps"])
        latency = 3 * value["latency.prmt"] + value["latency.mad"] + value["latency.fma_f16x2"]
        source = "latency and rate of prmt and mad, latency.fma_f16x2: six instructions of nogpu/hopper"
        yield "convert_e2m1", {"issue": 6, "interval": interval, "latency": latency, "source": source}


def derived(profile_data: dict[str, Any], value: Measured) -> dict[str, Any]:
    """The profile with every constant that a rule gives. Raises ValueError if a measured constant is missing."""
    clock = {"value": round(value["clock.loads"], 5), "unit": "GHz", "source": "clock.loads"}
    constants = {**profile_data["constants"], **constants_of(profile_data["constants"], value)}
    instructions = dict(profile_data["instructions"])
    for family, figures in instructions_of(value):
        rounded = {name: round(x, 3) if isinstance(x, float) else x for name, x in figures.items()}
        instructions[family] = {**({} if "pipe" in figures else instructions[family]), **rounded}
    return {**profile_data, "clock_ghz": clock, "constants": constants, "instructions": instructions}


def constants_of(assumed: dict[str, Any], value: Measured) -> dict[str, Any]:
    """Constants by name. assumed: the profile's own constants, some of which the rules need."""
    found = {}

    def add(name: str, unit: str, number: float, source: str) -> None:
        found[name] = {"value": round(number, 5), "unit": unit, "source": SOURCES.get(name, source)}

    for name, unit, rule, *sources in RULES:
        add(name, unit, rule(*(value[each] for each in sources)), ", ".join(sources))
    for name, constant in RATES.items():
        found[name] = {"value": round(value[constant] / 1e3, 4), "unit": "TB/s", "source": constant}
    add("l2_far", "cycles", *far_lines(value))
    start, end, spread = (float(assumed[name]["value"]) for name in ("cta_start", "grid_end", "dram_spread"))
    start_ns = start / value["clock.loads"]
    for name, unit, measured, parts, less in (
        ("dram_latency", "cycles", "latency.load.dram", "half of dram_spread", spread / 2),
        ("launch_first", "us", "launch.alone.grid_1.block_256", "grid_end and cta_start", (end + start_ns) / 1e3),
        ("grid_wait", "ns", "starts.early.waited_ns", "grid_end", end),
        ("launch_gap", "ns", "starts.in_turn.after_last_ns", "grid_end and cta_start", end + start_ns),
        ("cta_exit", "cycles", "starts.in_turn.waves.same_sm_wave_cycles", "cta_start", start),
    ):
        add(name, unit, value[measured] - less, f"{measured} less {parts}")
    add("l2_bytes", "bytes", 36 << 20, "")
    found["l2_coalesces"] = {"value": 2, "unit": "count", "source": SOURCES["l2_coalesces"]}
    return found


def instructions_of(value: Measured) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (family, figures). Figures with a pipe are complete; others are added to the profile's."""
    for family, name in (INSTRUCTIONS | (CONVERSION if "latency.cvt_f16x2_e2m1x2" in value else {})).items():
        yield family, figures_of(name, value)
    for family, name, pipe, issue in SUBROUTINES:
        figures = figures_of(name, value)
        yield family, {"pipe": pipe, "issue": issue or figures["interval"], **figures}
    for edit in EDITS:
        yield f"map_{edit}", {"latency": value[f"tensormap.{edit}"], "source": f"tensormap.{edit}"}
    yield from several(value)


def figures_of(name: str, value: Measured) -> dict[str, Any]:
    """Latency of an instruction, and its interval by the rate of 16 warps on the four partitions."""
    latency, rate = f"latency.{name}", f"rate.{name}.16_warps"
    return {"interval": 4 / value[rate], "latency": value[latency], "source": f"{latency}, {rate}"}


def replayed_rate(chip: Chip, recording: Path) -> float:
    """GB/s of a recorded microbenchmark's copies, without the first and last quarter, in a repetition with warm L2."""
    result = replay(2 * load(recording), chip, other_data=False, spans=1 << 21)
    last = result.spans[(result.spans["kind"] == COPIED) & (result.spans["launch"] == len(result.ends) - 1)]
    ends = np.sort(last["end"])
    quarter = len(ends) // 4
    share = (len(ends) - 2 * quarter) / len(ends)
    return result.usage.sm_in / 2 * share / chip.us(ends[-1 - quarter] - ends[quarter]) / 1e3


def find_rates(path: Path, data: dict[str, Any], value: Measured, recordings: Path) -> None:
    """Sets the rates so that the replays give the measured rates; writes the profile before each replay."""
    for _ in range(TURNS):
        for name, constant in RATES.items():
            records.write(path, data, *ROWS)
            rate, wanted = replayed_rate(profile(str(path)), recordings / constant), value[constant]
            entry = data["constants"][name]
            source = f"{constant}, through the replay of its recording"
            data["constants"][name] = {**entry, "value": round(entry["value"] * wanted / rate, 4), "source": source}
            print(f"{name}: replayed {rate:.0f} GB/s, measured {wanted:.0f} GB/s")


def main(arguments: list[str] | None = None) -> None:
    parser = command_parser(__doc__, "workshop.calibration.profile")
    parser.add_argument("constants", type=Path, nargs="+", metavar="CONSTANTS.json", help="of workshop.calibration")
    text = "that has a folder of traces for each microbenchmark"
    parser.add_argument("--recordings", type=Path, metavar="FOLDER", help=text)
    parser.add_argument("--profile", type=Path, default=PROFILES / "h200.json", metavar="FILE.json")
    options = parser.parse_args(arguments)
    try:
        value = measured_of([json.loads(path.read_text(encoding="utf-8")) for path in options.constants])
        data = derived(resolved(json.loads(options.profile.read_text(encoding="utf-8"))), value)
    except ValueError as error:
        sys.exit(str(error))
    records.write(options.profile, data, *ROWS)
    if options.recordings:
        find_rates(options.profile, data, value, options.recordings)
        records.write(options.profile, data, *ROWS)
    assumed = [name for name, entry in data["constants"].items() if "assumed" in entry["source"]]
    print(f"{options.profile.name}: assumed are {', '.join(assumed)}")


if __name__ == "__main__":
    main()
