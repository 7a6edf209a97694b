"""Takes points of random shapes from times of `tools.choice --measure`, by a rule that looks at no time.

A point is a shape, a configuration and a launch mode. Of every shape that was drawn, not of the benchmark's cases,
these configurations are taken, each in all of its modes: those that `submission.candidates` chooses for operands that
are ready and for those that are not (`tools.choice`), and the OTHERS with the smallest SHA-256 of shape and
configuration among the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable
from typing import Any

from harness.launch_modes import LaunchMode
from tools.choice.times import CALLS, PROMISED, Drawn, choice

Point = dict[str, Any]

OTHERS = 2


def place(drawn: Drawn, configuration: str) -> str:
    """The SHA-256 of shape and configuration, in hexadecimal digits, which orders configurations at random."""
    return hashlib.sha256(json.dumps([drawn.problem, drawn.sizes, configuration]).encode()).hexdigest()


def taken(drawn: Drawn, configurations: Iterable[str], sms: int) -> list[str]:
    """The configurations of a shape that are replayed, the chosen ones first.

    Raises ValueError if a chosen one is not among `configurations`.
    """
    chosen = list(dict.fromkeys(choice(drawn, sms, overlapping) for overlapping in (True, False)))
    known = set(configurations)
    if missing := [name for name in chosen if name not in known]:
        raise ValueError(f"{drawn.problem} {drawn.sizes}: no times of {missing[0]}, which is chosen today")
    return chosen + sorted(known - set(chosen), key=lambda name: place(drawn, name))[:OTHERS]


def truth(times: dict[str, Any], numbers: Container[int] | None = None) -> dict[str, Any]:
    """Times of tools.choice in the form of a file of `truth`. A point has `sizes` and `promised` in place of a case.

    numbers: the drawn shapes that are taken, from 1 on in the order of the file; None for all.
    """
    promised = times.get("promised", PROMISED)  # modes with promises; files differ in them
    points: list[Point] = []
    count = 0
    for number, entry in enumerate((entry for entry in times["shapes"] if entry["case"] is None), 1):
        if numbers is not None and number not in numbers:
            continue
        drawn = Drawn(entry["problem"], tuple(map(tuple, entry["sizes"])), None)
        count += 1
        for name in taken(drawn, entry["us"], times["sms"]):
            facts: Point = {"program": "submission.py", "configuration": name, "problem": drawn.problem, "mode": None}
            facts |= {"sizes": entry["sizes"], "calls": CALLS}
            us = entry["us"][name]
            for mode in LaunchMode:
                if mode in us:
                    points.append({**facts, "launches": mode, "promised": mode in promised, "us": us[mode][0]})
    origin = {name: times[name] for name in ("submission.py sha256", "command")}
    return {"device": times["device"], "sms": times["sms"], "shapes": count, "times": origin, "points": points}
