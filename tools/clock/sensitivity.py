"""Computes how far modelled times move where a constant of the chip's profile moves by 20 %.

    python -m tools.clock.sensitivity --profile NAME [--recordings FOLDER] [--also FOLDER] [--only TEXT] [--jobs N]
                                [--vary TEXT] [--save FILE.json]

workshop.clock.sensitivity says what is moved. The sample is fixed. On h200 it is launches of the truth
(tools.clock.truth), so that the change of the median error is known, too. On another profile it is the launches that
solve chooses, with both promises (overlapping) and without (programmatic, ordinary), in the smallest benchmark case of
each GEMM problem, CALLS calls. --also names a folder of recordings that join the sample, in ordinary launches, such as
a published kernel's. Launches that FOLDER (`recordings`) lacks are recorded first. The file is saved after each
recording of the sample, the smallest first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.launch_modes import ORDINARY, OVERLAPPING, PROGRAMMATIC
from nogpu.clock import profile
from tools import circumstances
from tools.clock import recordings
from workshop import records
from workshop.clock.sensitivity import SHARE, Work, sensitivities
from workshop.console import command_parser
from workshop.tables import command_text, markdown, missing

CALLS = 4
SMALLEST = {"group_gemm": 3, "dual_gemm": 2, "gemm": 2}  # benchmark cases
CHOSEN = {"chosen": (OVERLAPPING,), "chosen, nothing promised": (PROGRAMMATIC, ORDINARY)}  # configuration -> modes
MATTERS = 0.01  # change of a modelled time, as a share
MEASURED = ("h200",)  # profiles that have a truth
SAMPLE = {  # recordings of the truth
    "group_gemm-3-chosen": (OVERLAPPING, ORDINARY),
    "group_gemm-2-256x128_1_per_SM": (OVERLAPPING, ORDINARY),
    "dual_gemm-2-chosen": (OVERLAPPING, ORDINARY),
    "gemm-2-chosen": (OVERLAPPING, ORDINARY),
    "gemm-2-128x128_1_per_SM": (OVERLAPPING, ORDINARY),
    "gemm-2-ring_our_traffic": (OVERLAPPING,),
    "gemm-2-ring_ordinary_launches": (ORDINARY,),
    "gemm-2-plain_read": (ORDINARY,),
}


def truth_sample(folder: Path) -> tuple[list[recordings.Point], list[Work]]:
    """(points to record, the sample) of the H200's truth. Raises KeyError if the truth lacks a point of SAMPLE."""
    truth = json.loads(recordings.TRUTH.read_text(encoding="utf-8"))
    points = {(recordings.name_of(point), point["launches"]): point for point in truth["points"]}
    chosen = {(name, launches): points[name, launches] for name, ways in SAMPLE.items() for launches in ways}
    sample = [Work(folder, name, launches, p["calls"], p["us"]) for (name, launches), p in chosen.items()]
    return list(chosen.values()), sample


def chosen_sample(folder: Path) -> tuple[list[recordings.Point], list[Work]]:
    """(points to record, the sample) of the launches that our kernel chooses in each launch mode."""
    points, sample = [], []
    for name, case in SMALLEST.items():
        facts = {"program": recordings.OURS, "problem": name, "case": case, "mode": None}
        for configuration, modes in CHOSEN.items():
            points.append({**facts, "configuration": configuration})
            recording = recordings.name_of(points[-1])
            sample += [Work(folder, recording, launches, CALLS) for launches in modes]
    return points, sample


def table(results: Path, name: str) -> str:
    """The table of the constants and families that move times by MATTERS, the largest first. name: the profile's."""
    saved = records.load(results / f"sensitivity-{name}.json")
    if saved is None:
        return missing(
            f"python -m tools.clock.sensitivity --profile {name} --save docs/results/sensitivity-{name}.json"
        )
    every = [(key, ways) for key, ways in saved["constants"].items()]
    every += [(f"instructions: {key}", ways) for key, ways in saved["instructions"].items()]
    shown = sorted((row for row in every if _size(row[1]) >= MATTERS), key=lambda row: -_size(row[1]))
    with_errors = any("silicon_us" in work for work in saved["sample"])
    rows = [[key, *(_cell(ways[way], with_errors) for way in ("lower", "higher"))] for key, ways in shown]
    share = f"{saved['share']:.0%}"
    header = ["constant", f"{share} lower: median, largest", f"{share} higher: median, largest"]
    if with_errors:
        header[1:] = [f"{text}; median error" for text in header[1:]]
    counted = (
        f"{len(every) - len(shown)} of {len(every)} constants and families move no modelled time of the sample by "
        f"{MATTERS:.0%}"
    )
    sample = f"{len(saved['sample'])} loops of calls on profile {saved['profile']}"
    return (
        f"{markdown(header, rows)}\n\n{sample}; {counted}; {command_text('tools.clock.sensitivity', saved['command'])}"
    )


def _size(ways: dict[str, dict[str, Any]]) -> float:
    """The size of the largest change, as a share; infinity where launches come to no end."""
    return max(float("inf") if "no end" in way else abs(way.get("largest", 0.0)) for way in ways.values())


def _cell(way: dict[str, Any], with_errors: bool) -> str:
    parts = [f"{way[key]:+.1%}" for key in ("median", "largest") if key in way]
    text = ", ".join(parts)
    if with_errors and "median error" in way:
        text += f"; {100 * way['median error']:+.1f} points"
    return f"{text} ({way['no end']} come to no end)".strip() if "no end" in way else text


def main(arguments: list[str] | None = None) -> None:
    parser = command_parser(__doc__, "tools.clock.sensitivity")
    parser.add_argument("--profile", default="h200", metavar="NAME", help="chip profile; default: %(default)s")
    parser.add_argument("--vary", default="", metavar="TEXT", help="constants and families with this in their names")
    parser.add_argument("--also", type=Path, metavar="FOLDER", help="of recordings that join the sample")
    recordings.add_recording_options(parser)
    records.add_save(parser)
    options = parser.parse_args(arguments)
    sms = int(profile(options.profile).constants["sms"])
    folder = options.recordings or recordings.cache_folder(sms)
    points, sample = (truth_sample if options.profile in MEASURED else chosen_sample)(folder)
    points = [point for point in points if options.only in recordings.name_of(point)]
    reasons = recordings.record(points, folder, sms, options.jobs)
    for name, reason in reasons.items():
        print(f"{name} has no recording: {reason}")
    if options.also:
        names = dict.fromkeys(path.parent.name for path in sorted(options.also.glob("*/*.npz")))
        sample += [Work(options.also, name, ORDINARY, CALLS) for name in names]
    sample = [work for work in sample if options.only in work.name and work.name not in reasons]
    sample.sort(key=lambda work: sum(file.stat().st_size for file in (work.folder / work.name).iterdir()))
    found: dict[str, Any] = {}
    for found in sensitivities(sample, options.profile, options.jobs, options.vary):
        record = {"profile": options.profile, **circumstances.versions(arguments), "share": SHARE, **found}
        records.write(options.save, record, "constants")
    for name, ways in [*found.get("constants", {}).items(), *found.get("instructions", {}).items()]:
        print(f"{name}: " + ", ".join(f"{direction} {json.dumps(each)}" for direction, each in ways.items()))


if __name__ == "__main__":
    main()
