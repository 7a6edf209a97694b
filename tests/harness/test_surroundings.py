"""eval.py in the folders, for the users and under the interruptions that a developer does not have."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from nogpu import store
from tests.support.commands import BEHAVIOURS, ROOT, clean_environment, run_eval, write_specs
from tests.support.emulated import copy_libraries

NOBODY = 65534
# A program that runs a command as another user, in a mount namespace in which that user can read folders below homes:
# the interpreter may be in root's home. Arguments: a scratch folder, the folders, "--", the command.
AS_NOBODY = f"""
set -e
scratch=$1; shift; count=0; places=
while [ "$1" != -- ]; do
  count=$((count + 1)); mkdir "$scratch/$count"; mount --bind "$1" "$scratch/$count"; places="$places $1"; shift
done
shift
mount -t tmpfs -o mode=755 tmpfs /root
count=0
for place in $places; do
  count=$((count + 1)); mkdir -p "$place"; mount --bind "$scratch/$count" "$place"
done
exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups "$@"
"""
PLACES = sorted({os.path.realpath(place) for place in (sys.base_prefix, sys.prefix, ROOT)})


def evaluate(*arguments, before=(), script=ROOT / "eval.py", cwd=None, **variables):
    """Run eval.py's test on the emulator; returns the completed process."""
    command = [*before, sys.executable, script, "test", *arguments, "--device", "emulator"]
    environment = clean_environment(**variables)
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=300)


def passes(process):
    return (
        process.returncode == 0
        and process.stdout.endswith("1 passed, 0 failed\n")
        and "Traceback" not in process.stderr
    )


@pytest.mark.slow
def test_a_checkout_whose_path_has_spaces_and_other_alphabets(tmp_path):
    """eval.py starts from a folder above, by relative paths."""
    checkout = tmp_path / "a b" / "ключ 日本"
    checkout.mkdir(parents=True)
    for name in ("eval.py", "task.py", "reference.py"):
        shutil.copy(ROOT / name, checkout)
    for name in ("harness", "nogpu"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / "наша submission.py").write_bytes(BEHAVIOURS.read_bytes())
    write_specs(checkout / "cases é.txt", ["good"])
    copy_libraries(checkout / "cache", link=True)
    within = checkout.relative_to(tmp_path)
    arguments = within / "cases é.txt", "--submission", within / "наша submission.py"
    for locale in ("C", "C.UTF-8"):
        process = evaluate(
            *arguments, script=within / "eval.py", cwd=tmp_path, PYTHONPATH=str(checkout / "nogpu" / "src"),
            LC_ALL=locale, XDG_CACHE_HOME=str(checkout / "cache"),
        )  # fmt: skip
        assert passes(process), process.stdout + process.stderr
    assert process.stdout.startswith(f"group_gemm test · NVIDIA B200 (emulated) · {within}/наша submission.py · ")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are run by an ordinary user already")
@pytest.mark.parametrize("home", ["theirs", "/nonexistent"])
def test_another_user(home):
    """A user without a home gets the temporary folder."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no mount namespace")
    with tempfile.TemporaryDirectory() as name:
        evaluate_as_nobody(Path(name), home)


def evaluate_as_nobody(tmp_path, home):
    tmp_path.chmod(0o755)
    write_specs(tmp_path / "specs.txt", ["good"])
    temporary, theirs = tmp_path / "temporary", tmp_path / "theirs"
    copy_libraries(theirs / ".cache")
    copy_libraries(temporary)
    (temporary / store.NAME).rename(temporary / f"{store.NAME}-{NOBODY}")
    for path in (theirs, temporary, *theirs.rglob("*"), *temporary.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    (tmp_path / "submission.py").write_bytes(BEHAVIOURS.read_bytes())
    (tmp_path / "mounts").mkdir()
    below = [place for place in PLACES if Path("/root") in Path(place).parents]
    before = "unshare", "--mount", "sh", "-c", AS_NOBODY, "sh", tmp_path / "mounts", *below, "--"
    process = evaluate(
        tmp_path / "specs.txt", "--submission", tmp_path / "submission.py", before=before, cwd="/",
        HOME=home.replace("theirs", str(theirs)), TMPDIR=str(temporary), XDG_CACHE_HOME="",
    )  # fmt: skip
    assert passes(process), process.stdout + process.stderr


@pytest.mark.slow
def test_an_output_in_ascii(tmp_path):
    specs = write_specs(tmp_path / "specs.txt", ["good"])
    process = evaluate(specs, "--submission", BEHAVIOURS, PYTHONIOENCODING="ascii", COLUMNS="0")
    assert passes(process), process.stdout + process.stderr
    assert process.stdout.startswith(r"group_gemm test \xb7 ")


def test_no_temporary_folder(tmp_path):
    """Python makes none whose trial file cannot be written, as on a full disk."""
    specs = write_specs(tmp_path / "specs.txt", ["good"])
    process = evaluate(specs, "--submission", BEHAVIOURS, before=("prlimit", "--fsize=0"))
    assert (process.returncode, process.stdout) == (3, "") and "Traceback" not in process.stderr
    assert process.stderr.splitlines()[-1].endswith("; name one in the environment variable TMPDIR")


def test_a_working_folder_that_is_gone(tmp_path):
    (tmp_path / "gone").mkdir()
    remove = "sh", "-c", 'rmdir ../gone && exec "$@"', "sh"
    process = evaluate(before=remove, cwd=tmp_path / "gone")
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr == "eval.py: the working folder has been removed: change to another\n"


# ---- Ctrl-C ----

# As module `sitecustomize` this text stops the judge on the device at its import of torch.
STOPS = """
import os, sys, time

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "torch" and any(text.endswith("eval.py") for text in sys.orig_argv):
            open(os.environ["MARK"], "w").close()
            time.sleep(100)

sys.meta_path.insert(0, Stop())
"""
COMPILER = """#!/bin/sh
case "$*" in *-shared*) touch {mark}; exec sleep 100;; esac
exec gcc "$@"
"""


def wait(until, process):
    deadline = time.monotonic() + 100
    while not until() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)


def writes(process):
    """True if the process is in the middle of a write to standard output."""
    try:
        return Path(f"/proc/{process.pid}/syscall").read_text().startswith("1 0x1 ")
    except OSError:
        return False


def interrupted(until, arguments=(), stdout=subprocess.PIPE, **variables):
    """Start eval.py, press Ctrl-C when `until` holds of the process, and check its end."""
    process = subprocess.Popen(
        [sys.executable, ROOT / "eval.py", "test", *arguments, "--device", "emulator"],
        env=clean_environment(**variables), stdout=stdout, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # A shell's background jobs, which these tests may be, ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    wait(lambda: until(process), process)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130 and stderr.endswith(": interrupted\n") and "Traceback" not in stderr


def test_an_interruption_while_it_is_set_up(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(STOPS)
    mark = tmp_path / "mark"
    path = os.pathsep.join((str(tmp_path), clean_environment()["PYTHONPATH"]))
    interrupted(lambda _: mark.exists(), PYTHONPATH=path, MARK=str(mark))


def test_an_interruption_while_it_compiles(tmp_path):
    compiler, mark = tmp_path / "cc", tmp_path / "mark"
    compiler.write_text(COMPILER.format(mark=mark))
    compiler.chmod(0o755)
    interrupted(lambda _: mark.exists(), CC=str(compiler), XDG_CACHE_HOME=str(tmp_path))
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith("scratch-") or path.suffix == ".so"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="needs the system's list of calls")
def test_an_interruption_while_it_reports(tmp_path):
    """Nobody reads the process's output."""
    specs = write_specs(tmp_path / "specs.txt", ["good"])
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    os.set_blocking(writing, True)

    try:
        interrupted(writes, (specs, "--submission", BEHAVIOURS), stdout=writing)
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("variable", ["NOGPU_WORKERS", "NOGPU_SCHEDULE"])
def test_a_submission_is_not_blamed_for_a_setting(variable):
    process = run_eval("test", "--device", "emulator", "--case", 0, **{variable: "x"})
    assert (process.returncode, process.stdout) == (2, "") and f"environment variable {variable}: " in process.stderr
