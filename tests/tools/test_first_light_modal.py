"""tools/first_light_modal.py: everything but the remote call, by the real package where it is, else by a recorder."""

import datetime
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.commands import ROOT, clean_environment

FILE = ROOT / "tools" / "first_light_modal.py"
INSTALLED = importlib.util.find_spec("modal") is not None
REAL = pytest.mark.skipif(
    not INSTALLED,
    reason="modal is not installed: pip install --constraint tools/requirements/dsl-4.8.1.txt -e '.[modal]'",
)
TODAY = datetime.date(2026, 11, 22)
# A kit that prints its options, leaves files and ends with the code that it is told.
FAKE_KIT = """import os, pathlib, sys
*options, save, folder = sys.argv[1:]
print("options", *options, os.getcwd(), flush=True)
print("careful", file=sys.stderr)
assert save == "--save"
(pathlib.Path(folder) / "pictures").mkdir()
(pathlib.Path(folder) / "first_light.json").write_text("{}")
(pathlib.Path(folder) / "pictures" / "one.png").write_bytes(bytes([0, 255]))
sys.exit(3)
"""


class Chain:
    """An image or an app that records the calls which make it, (name, arguments, options) each."""

    def __init__(self, calls=()):
        self.calls = [*calls]

    def __getattr__(self, name):
        return lambda *arguments, **options: Chain([*self.calls, (name, arguments, options)])


class App:
    """Functions are themselves, with `remote` for what a test puts there."""

    def __init__(self, name):
        self.name, self.options = name, {}

    def function(self, **options):
        self.options = options
        return lambda function: SimpleNamespace(local=function, remote=None)

    def local_entrypoint(self):
        return lambda function: function


def loaded(monkeypatch, modal):
    """The file as a module that imports this as modal; None: the real one."""
    if modal is not None:
        monkeypatch.setitem(sys.modules, "modal", modal)
    spec = importlib.util.spec_from_file_location("first_light_modal", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def module(monkeypatch):
    return loaded(monkeypatch, SimpleNamespace(App=App, Image=Chain()))


@pytest.fixture
def kit_folder(tmp_path):
    folder = tmp_path / "source"
    (folder / "tools").mkdir(parents=True)
    (folder / "tools" / "first_light.py").write_text(FAKE_KIT)
    return folder


# ---- The image ----


def test_the_definition(module):
    calls = {name: (arguments, options) for name, arguments, options in module.app.options["image"].calls}
    assert calls["from_registry"] == (("nvidia/cuda:13.0.2-devel-ubuntu24.04",), {"add_python": "3.13"})
    assert calls["uv_pip_install"] == ((), {"requirements": [str(ROOT / module.LOCK)]})
    assert calls["add_local_dir"] == ((module.ROOT, module.SOURCE), {"ignore": module.IGNORED})
    assert module.app.options["gpu"] == "B200"
    assert module.app.options["timeout"] > 60 * module.MOST_MINUTES
    lines = (ROOT / module.LOCK).read_text().splitlines()
    names = {re.split(r"[=; ]", line)[0] for line in lines}
    assert names >= {"torch", "nvidia-cutlass-dsl", "cuda-bindings", "matplotlib", "numpy", "rich", "msgspec"}
    (cuda,) = [line for line in lines if line.startswith("cuda-toolkit==")]
    assert cuda.startswith("cuda-toolkit==13.0."), "the image's CUDA is 13.0"


def test_the_kit_is_where_the_command_looks_for_it(module):
    kit = ROOT / module.KIT
    if not kit.exists():
        pytest.skip(f"{module.KIT} is not in this tree")
    process = subprocess.run(
        [sys.executable, kit, "--help"], cwd="/", env=clean_environment(), capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    assert all(option in process.stdout for option in ("--save", "--minutes", "--only"))


def parts(image):
    """modal's own recipe of an image, last layer first: variables of the functions that would build it (1.6.4)."""
    (inner,) = [getattr(image, name) for name in dir(image) if name.startswith("_sync_original_")]
    while inner is not None and inner._load is not None:
        names, cells = inner._load.__code__.co_freevars, inner._load.__closure__ or ()
        found = dict(zip(names, (cell.cell_contents for cell in cells)))
        yield found
        inner = found.get("base_image") or next(
            iter((found.get("base_images") or {}).values()), found.get("single_layer_image")
        )


@REAL
def test_modal_makes_this_image(monkeypatch):
    module = loaded(monkeypatch, None)
    found = list(parts(module.image()))
    (mount,) = [part["mount"] for part in found if "mount" in part]
    sent = {str(remote) for _, remote in mount.entries[0].get_files_to_upload()}
    there = {
        f"{module.SOURCE}/{name}"
        for name in ("submission.py", "eval.py", module.LOCK, "nogpu/src/nogpu/native/engine.h")
    }
    assert there <= sent
    assert not [name for name in sent if re.search(r"/(\.git|\.venv[^/]*|__pycache__|\.\w+_cache)(/|$)", name)]
    makers = [part["dockerfile_function"] for part in found if part.get("dockerfile_function")]
    lines = [line for make in makers for line in make("2025.06").commands]
    assert [line for line in lines if line.startswith("RUN") and "uv pip install" in line and "--requirements" in line]
    assert [line for line in lines if line.startswith("RUN apt-get install") and "gcc" in line]
    assert "FROM nvidia/cuda:13.0.2-devel-ubuntu24.04" in lines
    assert [line for line in lines if line.startswith("ENV PYTHONPATH") and module.SOURCE in line]


@REAL
def test_modal_calls_the_function_and_the_entry(monkeypatch, kit_folder, tmp_path):
    """Here, where the container's part runs in this process."""
    module = loaded(monkeypatch, None)
    result = module.kit.local(["--minutes", "2"], str(kit_folder))
    assert result["exit code"] == 3 and set(result["files"]) == {"first_light.json", "pictures/one.png"}
    parameters = inspect.signature(module.main.info.raw_f).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        "minutes": module.MINUTES,
        "only": "",
        "save": "first_light",
    }


@REAL
def test_the_command_line_knows_the_options(tmp_path):
    """`modal run FILE --help` talks to no service."""
    environment = clean_environment(HOME=str(tmp_path), MODAL_CONFIG_PATH=str(tmp_path / "none"))
    command = [sys.executable, "-m", "modal", "run", str(FILE), "--help"]
    process = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    assert all(option in process.stdout for option in ("--minutes", "--only", "--save"))


# ---- Arguments, and what comes back ----


@pytest.mark.parametrize(
    ("minutes", "only", "expected"),
    [
        (10.0, "", ["--minutes", "10"]),
        (2.5, "calls.", ["--minutes", "2.5", "--only", "calls."]),
        (10.0, "calls., tests ,", ["--minutes", "10", "--only", "calls.", "--only", "tests"]),
    ],
)
def test_arguments(module, minutes, only, expected):
    assert module.kit_arguments(minutes, only) == expected


@pytest.mark.parametrize("minutes", [0.0, -1.0, 30.5, float("nan")])
def test_a_time_that_the_container_has_not_is_refused(module, minutes):
    with pytest.raises(ValueError, match=f"--minutes is {minutes:g}; it must be above 0 and at most 30"):
        module.kit_arguments(minutes, "")


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("NVIDIA B200, 580.95.05", "2026-11-22-B200-driver-580.95.05"),
        ("NVIDIA H100 80GB HBM3, 575.57.08", "2026-11-22-H100-80GB-HBM3-driver-575.57.08"),
        ("unknown, unknown", "2026-11-22-unknown-driver-unknown"),
    ],
)
def test_results_are_named_by_date_and_driver(module, gpu, expected):
    assert module.folder_name(gpu, TODAY) == expected


def test_a_run_is_kept_whole(module, kit_folder, tmp_path, monkeypatch, capfd):
    """The run goes from the entry to the files, with the container's part in this process."""
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text("#!/bin/sh\necho 'NVIDIA B200, 580.95.05'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    module.kit.remote = lambda arguments: module.kit.local(arguments, str(kit_folder))
    for name in ("", "-2"):  # a second run does not overwrite the first
        with pytest.raises(SystemExit) as ended:
            module.main(2.0, "calls.", str(tmp_path / "saved"))
        assert ended.value.code == 3
        place = tmp_path / "saved" / f"{datetime.date.today()}-B200-driver-580.95.05{name}"
        assert (place / "first_light.json").read_text() == "{}"
        assert (place / "pictures" / "one.png").read_bytes() == bytes([0, 255])
        output = (place / "output.txt").read_text()
        assert output == f"options --minutes 2 --only calls. {kit_folder}\ncareful\n"
    printed = capfd.readouterr().out
    assert output in printed and f"2 files of NVIDIA B200, 580.95.05 are in {place}" in printed


@pytest.mark.parametrize("query", ["false", "true", "no-such-program"])
def test_without_a_driver_there_is_a_name_all_the_same(module, kit_folder, monkeypatch, query):
    monkeypatch.setattr(module, "QUERY", [query])
    assert module.kit.local([], str(kit_folder))["gpu"] == "unknown, unknown"


def test_what_is_refused(module, tmp_path):
    result = {"gpu": "NVIDIA B200, 1", "output": "", "exit code": 0, "files": {"../../elsewhere": b""}}
    with pytest.raises(ValueError, match="'../../elsewhere' would lie outside of"):
        module.keep(result, tmp_path / "saved", TODAY)
    assert not Path(tmp_path / "elsewhere").exists()
    with pytest.raises(SystemExit, match="first_light_modal: --minutes is 0"):
        module.main(0.0, "", "saved")
