"""The judge opens no code once a submission may have run, because the submission may have changed it."""

import subprocess
import sys

import pytest

from tests.harness.test_eval import LAUNCHES
from tests.support.commands import BEHAVIOURS, ROOT, clean_environment, watched_eval, write_specs

pytestmark = pytest.mark.slow  # one such run is test_protocol.py's

LARGE = "m: [160, 300]; n: [512, 256]; k: [1024, 2048]; g: 2; seed: 1111\n"
UNMADE = "m: [4, 4]; n: [16, 16]; k: [63, 63]; g: 2; seed: 1\n"  # sizes with which the judge's own generate_input fails
PRINTS = """
print("\\x1b[2J \\udcff")


def plan_report(sizes):
    return {"\\x1b": "\\x1b[2J"}
"""


@pytest.mark.parametrize(
    ("arguments", "protocol"),
    [
        (["test"], False),
        (["benchmark"], False),
        (["leaderboard"], True),
        (["profile"], False),
        (["benchmark", "--clock", "b200", "--why"], False),
        (["test", "--plans", "all"], False),
    ],
)
def test_the_judge_opens_no_code_after_its_first_request(tmp_path, arguments, protocol):
    specs = write_specs(
        tmp_path / "specs.txt",
        ["good", "close", "wrong", "nan", "raises", "other_shape", "nothing", "leaves", "checks_its_seed", "good"],
    )
    with specs.open("a") as file:
        file.write(UNMADE)
    submission = BEHAVIOURS
    if arguments[0] != "test":
        specs.write_text(specs.read_text().splitlines()[0] + "\n" + LARGE)
        submission = tmp_path / "launches.py"
        submission.write_text(LAUNCHES + PRINTS)
    elif "--plans" in arguments:
        specs.write_text(specs.read_text().splitlines()[0])
        submission = ROOT / "submission.py"
    program, recorded = watched_eval(tmp_path)
    with open(tmp_path / "protocol", "w") as file:
        run = subprocess.run(
            [sys.executable, *program, arguments[0], specs, *arguments[1:], "--submission", submission],
            env=clean_environment(**({"POPCORN_FD": str(file.fileno())} if protocol else {})),
            pass_fds=[file.fileno()],
            capture_output=True,
            text=True,
            timeout=300,
        )
    asked, events = recorded()
    assert "Call" in asked and run.returncode in (0, 112), run.stderr
    assert events == []
