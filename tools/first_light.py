"""One sitting at a GPU: everything that this project wants to know of a B200, in one command of at most ten minutes.

    python tools/first_light.py [--save FOLDER]        on a B200; also as python -m tools.first_light, or make b200
    python tools/first_light.py --device emulator      a reduced plan, to try the command itself
    python tools/first_light.py --only calls.          steps whose names begin so; may be repeated

Steps, the most valuable first: every configuration forced on odd shapes, pairs first, alone and in 15 overlapping
calls; the contest's tests; its benchmark beside torch's own kernels; its leaderboard mode; every configuration timed;
the constants of the clock's chip profile; fewer stages than fit; better constants for the choice. Each runs in
processes of its own with a time limit: what hangs is killed, what dies is reported, the rest goes on. On a Hopper GPU
the same runs with tensor memory and tensor core in software (results) or omitted (times).

FOLDER gets first_light.json, with everything that was found, and first_light.html, a page with pictures that needs no
other file. Both are written after every step. Exit codes: 0 all that ran has passed, 1 something failed, 2 usage,
130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MINUTES = 10.0


def main() -> int:
    from harness.devices import DEVICES
    from harness.options import command_parser
    from tools.sitting import session

    parser: argparse.ArgumentParser = command_parser(__doc__)
    parser.prog = "tools/first_light.py"
    parser.add_argument("--device", choices=tuple(DEVICES), help="default: what there is, as for eval.py")
    parser.add_argument("--save", type=Path, default=Path("first_light"), metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--minutes", type=float, default=MINUTES, metavar="N", help="at most; default: %(default)s")
    parser.add_argument("--only", action="append", default=[], metavar="PREFIX", help="steps whose names begin so")
    parser.add_argument("--jobs", type=int, metavar="N", help="checks side by side; default: most cores, up to 12")
    options = parser.parse_args()
    if not options.minutes > 0:
        parser.error(f"--minutes {options.minutes}: a sitting takes time")
    if options.jobs is not None and options.jobs < 1:
        parser.error(f"--jobs {options.jobs}: at least one check runs at a time")
    return session.run(options)


if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # where Python has put this file's own folder, or the current one
    sys.exit(main())
