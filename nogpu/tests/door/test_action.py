"""The GitHub Action: its steps, run as GitHub runs them, with an interpreter of their own."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.door.test_commands import RACE, RIGHT
from tests.support.commands import ROOT, clean_environment

ACTION = (ROOT / "action.yml").read_text()
STEPS = re.findall(r"^      run: (.+)$", ACTION, re.MULTILINE)
DEFAULTS = dict(re.findall(r"^  (\w+):\n    description: .*\n    default: (.+)$", ACTION, re.MULTILINE))


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The variables of a job whose first step has been run."""
    folder = tmp_path_factory.mktemp("job")
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", folder / "venv"], check=True)
    path = clean_environment()["PYTHONPATH"].split(os.pathsep)
    site = sys.prefix + f"/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    variables = clean_environment(
        GITHUB_ACTION_PATH=str(ROOT),
        EXTRAS=DEFAULTS["extras"],
        PATH=f"{folder / 'venv' / 'bin'}:{os.environ['PATH']}",
        PYTHONPATH=os.pathsep.join([*(entry for entry in path if "nogpu" not in entry), site]),
        PIP_NO_DEPS="1",  # they are there, and tests need no network
        PIP_NO_BUILD_ISOLATION="1",
    )
    subprocess.run(["bash", "-c", STEPS[0]], env=variables, check=True, cwd=folder, capture_output=True)
    return variables


@pytest.mark.slow
@pytest.mark.parametrize("text, code, verdict", [(RIGHT, 0, "right"), (RACE, 100, "fault")])
def test_the_steps(environment, tmp_path, text, code, verdict):
    (tmp_path / "program.py").write_text(text)
    given = {"COMMAND": DEFAULTS["command"], "OPTIONS": "--schedule late,eager", "PROGRAM": "program.py 1 2"}
    given |= {"JSON": DEFAULTS["json"], "GITHUB_OUTPUT": str(tmp_path / "outputs")}
    assert set(given) - {"GITHUB_OUTPUT"} == set(re.findall(r"^        ([A-Z]+): ", ACTION, re.MULTILINE)) - {"EXTRAS"}
    command = ["bash", "-e", "-o", "pipefail", "-c", STEPS[1]]
    done = subprocess.run(command, env=environment | given, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert (tmp_path / "outputs").read_text() == f"verdict={verdict}\n"
    assert json.loads((tmp_path / "nogpu.json").read_text())["program"] == ["program.py", "1", "2"]
    assert ("::error::k: sanitizer, rule threads: nothing orders%0A" in done.stdout) == (code == 100)
