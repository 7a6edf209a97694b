"""Writes a chip profile (nogpu/clock/profiles/*.json) from the constants that `workshop.calibration` has measured.

    python -m workshop.calibration.profile CONSTANTS.json ... [--recordings FOLDER] [--profile FILE.json]

Of several files of one chip, a later one adds its constants to those before it, or replaces them. The H200's profile
comes from docs/results/h200-constants.json, h200-maps.json and h200-subroutines.json.

Each constant has a value, a unit and a source: the names of the measured constants it comes from, or "assumed" and why.
Rates of L2 and DRAM are what the model has to be given so that its replay of a microbenchmark gives the measured rate:
--recordings holds those microbenchmarks, recorded with as many SMs as the chip has, each in a folder of its name with a
file for each launch. Without it the measured rates stand.
l2_clean_share is the measured one in any case; the committed one of the H200 was found by replays of such bursts.
What the file of the profile has beyond this (a chip's tensor core) is kept.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from nogpu.clock.chip import PROFILES, Chip, profile, resolved
from nogpu.clock.replay import replay
from workshop.calibration.rules import ASSUMED, CONVERSION, EDITS, INSTRUCTIONS, RATES, RULES, SHARED_READS, SUBROUTINES
from workshop.clock.record import load
from workshop.console import command_parser

COPIED = 4  # kind of a span
TURNS = 3  # of a rate's search
LINES = re.compile(r"latency\.l2_line\.sm_\d+\.median")  # of a file whose chip was measured SM by SM


class Measured(dict[str, float]):
    """Values of measured constants by name, and of "sms", the SMs of the chip. Raises ValueError for one that lacks."""

    def __missing__(self, name: str) -> float:
        raise ValueError(
            f"the measured constants lack {name}, which the profile comes from: `python -m workshop.calibration` has it"
        )


def measured_of(records: Sequence[dict[str, Any]]) -> Measured:
    """Constants of calibrations, a later one before an earlier one. Raises ValueError for two chips."""
    chips = sorted({f"{record['device']} with {record['sms']} SMs" for record in records})
    if len(chips) > 1:
        raise ValueError(f"measured constants of {len(chips)} chips, must be of one: {', '.join(chips)}")
    value = Measured(sms=float(records[0]["sms"]))
    for record in records:
        value.update({name: float(entry["value"]) for name, entry in record["constants"].items()})
    return value


def far_lines(value: Measured) -> tuple[float, str]:
    """(cycles by which a line in the far part of L2 is later than one in the near part, source)."""
    lines = [each for name, each in value.items() if LINES.fullmatch(name)]
    if lines and "latency.l2_line.far" not in value:
        source = "latency.l2_line.sm_NUMBER.median of all SMs, latency.load.l2"
        return 2 * (median(lines) - value["latency.load.l2"]), source
    return value["latency.l2_line.far"] - value["latency.l2_line.near"], "latency.l2_line.far, latency.l2_line.near"


def several(value: Measured) -> dict[str, dict[str, Any]]:
    """Families whose instructions are several of the machine: 64-bit sums, and where the chip has no conversion from
    e2m1, that one. nogpu/hopper lowers it to a byte's extraction, two multiplications, one beside the other, two
    logic operations and a product of pairs.
    """
    found = {
        "alu_long": {
            "issue": 2,
            "interval": 2 * 4 / value["rate.add64_xor64.16_warps"],
            "latency": 2 * value["latency.add64_xor64"],
            "source": "latency.add64_xor64, rate.add64_xor64.16_warps: two instructions",
        }
    }
    if "latency.cvt_f16x2_e2m1x2" not in value:
        logic, product = 4 / value["rate.prmt.16_warps"], 4 / value["rate.mad.16_warps"]
        found["convert_e2m1"] = {
            "issue": 6,
            "interval": max(3 * logic, 2 * product),
            "latency": 3 * value["latency.prmt"] + value["latency.mad"] + value["latency.fma_f16x2"],
            "source": "latency and rate of prmt and mad, latency.fma_f16x2: six instructions of nogpu/hopper",
        }
    return found


def derived(profile_data: dict[str, Any], value: Measured) -> dict[str, Any]:
    """The profile with every constant that a rule has. Raises ValueError for a measured constant that is missing."""
    constants = dict(profile_data["constants"])
    for name, unit, sources, rule in RULES:
        source = ASSUMED.get(name, ", ".join(sources))
        constants[name] = {"value": round(rule(*(value[each] for each in sources)), 5), "unit": unit, "source": source}
    for name, constant in RATES.items():
        constants[name] = {"value": round(value[constant] / 1e3, 4), "unit": "TB/s", "source": constant}
    own = {name: float(constants[name]["value"]) for name in ("cta_start", "grid_end", "dram_spread")}
    start_ns = own["cta_start"] / value["clock.loads"]
    far, far_source = far_lines(value)
    for name, unit, source, number in (
        ("l2_far", "cycles", far_source, far),
        (
            "dram_latency",
            "cycles",
            "latency.load.dram less half of dram_spread",
            value["latency.load.dram"] - own["dram_spread"] / 2,
        ),
        (
            "launch_first",
            "us",
            "launch.alone.grid_1.block_256 less grid_end and cta_start",
            value["launch.alone.grid_1.block_256"] - (own["grid_end"] + start_ns) / 1e3,
        ),
        ("grid_wait", "ns", "starts.early.waited_ns less grid_end", value["starts.early.waited_ns"] - own["grid_end"]),
        (
            "launch_gap",
            "ns",
            "starts.in_turn.after_last_ns less grid_end and cta_start",
            value["starts.in_turn.after_last_ns"] - own["grid_end"] - start_ns,
        ),
        (
            "cta_exit",
            "cycles",
            "starts.in_turn.waves.same_sm_wave_cycles less cta_start",
            value["starts.in_turn.waves.same_sm_wave_cycles"] - own["cta_start"],
        ),
        ("l2_bytes", "bytes", "l2.capacity.32_MiB, l2.capacity.40_MiB: the rate falls between them", 36 << 20),
    ):
        constants[name] = {"value": round(number, 5), "unit": unit, "source": source}
    constants["l2_coalesces"] = {"value": 2, "unit": "count", "source": SHARED_READS}
    instructions = dict(profile_data["instructions"])
    named = "latency.cvt_f16x2_e2m1x2" in value
    for family, latency, rate in (*INSTRUCTIONS, *(CONVERSION if named else ())):
        figures = {
            "interval": round(4 / value[f"rate.{rate}.16_warps"], 3),
            "latency": round(value[f"latency.{latency}"], 3),
            "source": f"latency.{latency}, rate.{rate}.16_warps",
        }
        instructions[family] = {**instructions[family], **figures}
    for family, name, pipe, issue in SUBROUTINES:
        cycles = round(4 / value[f"rate.{name}.16_warps"], 3)
        figures = {"issue": issue or cycles, "interval": cycles, "latency": round(value[f"latency.{name}"], 3)}
        instructions[family] = {"pipe": pipe, **figures, "source": f"latency.{name}, rate.{name}.16_warps"}
    for family, source in EDITS:
        instructions[family] = {**instructions[family], "latency": round(value[source], 3), "source": source}
    for family, found in several(value).items():
        rounded = {name: round(x, 3) if isinstance(x, float) else x for name, x in found.items()}
        instructions[family] = {**instructions[family], **rounded}
    clock = {"value": round(value["clock.loads"], 5), "unit": "GHz", "source": "clock.loads"}
    return {**profile_data, "clock_ghz": clock, "constants": constants, "instructions": instructions}


def replayed_rate(chip: Chip, recording: Path) -> float:
    """GB/s of a recorded microbenchmark's copies between the first and the last quarter of them; L2 has what it can."""
    result = replay(2 * load(recording), chip, other_data=False, spans=1 << 21)
    last = result.spans[(result.spans["kind"] == COPIED) & (result.spans["launch"] == len(result.ends) - 1)]
    ends = np.sort(last["end"])
    quarter = len(ends) // 4
    share = (len(ends) - 2 * quarter) / len(ends)
    return result.usage.sm_in / 2 * share / chip.us(ends[-1 - quarter] - ends[quarter]) / 1e3


def find_rates(path: Path, data: dict[str, Any], value: Measured, recordings: Path) -> None:
    """Sets the rates so that the replays give what was measured; writes the profile at each turn."""
    for _ in range(TURNS):
        for name, constant in RATES.items():
            write(path, data)
            rate, wanted = replayed_rate(profile(str(path)), recordings / constant), value[constant]
            entry = data["constants"][name]
            source = f"{constant}, through the replay of its recording"
            data["constants"][name] = {**entry, "value": round(entry["value"] * wanted / rate, 4), "source": source}
            print(f"{name}: replayed {rate:.0f} GB/s, measured {wanted:.0f} GB/s")


def write(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = command_parser(__doc__, "workshop.calibration.profile")
    parser.add_argument("constants", type=Path, nargs="+", metavar="CONSTANTS.json", help="of workshop.calibration")
    parser.add_argument(
        "--recordings", type=Path, metavar="FOLDER", help="that has a folder of traces for each microbenchmark"
    )
    parser.add_argument("--profile", type=Path, default=PROFILES / "h200.json", metavar="FILE.json")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    try:
        value = measured_of([json.loads(path.read_text(encoding="utf-8")) for path in options.constants])
        data = derived(resolved(json.loads(options.profile.read_text(encoding="utf-8"))), value)
    except ValueError as error:
        sys.exit(str(error))
    write(options.profile, data)
    if options.recordings:
        find_rates(options.profile, data, value, options.recordings)
        write(options.profile, data)
    assumed = [name for name, entry in data["constants"].items() if "assumed" in entry["source"]]
    print(f"{options.profile.name}: assumed are {', '.join(assumed)}")


if __name__ == "__main__":
    main()
