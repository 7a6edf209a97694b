"""Settings of the environment: each is checked before a program starts, and documented."""

import re

import pytest

import nogpu
from nogpu import activation, settings
from nogpu.errors import EmulatorError
from tests.support.commands import PACKAGE, ROOT
from tests.support.emulated import run

ILLEGAL = {
    **{"schedule": "bogus", "workers": "x", "max_instructions": "-1", "explore": "0", "lenient": "yes"},
    **{"sanitize": "true", "sanitize_allow": "race", "sanitize_schedule": "soon", "sanitize_log": "/nowhere/log"},
    **{"record": "/dev/null", "record_values": "no", "clock": "b201", "clock_timeline": "t.txt"},
    **{"clock_picture": "/nowhere/p.png", "clock_why": "why", "hopper_mode": "fast", "progress": "-1"},
    **{"report": "/nowhere/report", "autotune": "0", "random_seconds": "-1", "every_launch": "2"},
}
# Variables of processes that the emulator starts, not for users.
INTERNAL = {"NOGPU_CUDA_PROGRAM", "NOGPU_LIBPYTHON", "NOGPU_PYTHON"}


def test_every_setting_is_tried():
    assert ILLEGAL.keys() == settings.SETTINGS.keys()


@pytest.mark.parametrize(("name", "text"), ILLEGAL.items(), ids=ILLEGAL)
def test_a_variable_that_is_not_legal(name, text, monkeypatch, refusal):
    """The command line and `activate` refuse the text; an empty text counts as unset."""
    variable = settings.variable(name)
    last = refusal("-c", "", **{variable: text}).splitlines()[-1]
    assert last.startswith(f"nogpu run: error: environment variable {variable}: ") and text in last
    monkeypatch.delenv("NOGPU", raising=False)
    monkeypatch.setenv(variable, text)
    with pytest.raises(EmulatorError, match=rf"nogpu.activate\(\): environment variable {variable}: "):
        nogpu.activate()
    settings.check({variable: ""})


def test_an_option_takes_the_place_of_a_variable():
    process = run("-c", "print('started')", options=("--workers", "2"), NOGPU_WORKERS="x")
    assert process.stdout == "started\n"


def test_schedules_to_follow_are_among_those_that_run():
    process = run("-c", "", options=("--schedule", "late"), NOGPU_SANITIZE_SCHEDULE="eager")
    assert process.returncode == 2 and "NOGPU_SANITIZE_SCHEDULE: eager: launches run under late" in process.stderr


def test_what_a_command_sets_is_legal():
    given = {"schedule": "eager", "workers": "2", "explore": "3", "sanitize_allow": "lanes"}
    settings.check(
        activation.environment(**given, lenient=True, record="folder", clock="b200", clock_why=True, sanitize=True)
    )


def test_every_variable_is_a_setting_and_documented():
    sources = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".c", ".h")]
    named = {name for path in sources for name in re.findall(r"\bNOGPU_[A-Z_]*[A-Z]\b", path.read_text())}
    variables = set(map(settings.variable, settings.SETTINGS))
    assert named <= variables | INTERNAL | {"NOGPU_NAME"}
    documented = set(re.findall(r"^\| `(NOGPU_\w+)` \|", (ROOT / "docs/manual.md").read_text(), re.MULTILINE))
    assert documented == variables
