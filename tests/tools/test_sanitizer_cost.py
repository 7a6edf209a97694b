"""tools.sanitizer_cost: its table, its limit, and what it refuses."""

import pytest

from nogpu.execution.device import Device
from tests.support.configurations import EMULATED
from tools import sanitizer_cost

SMALL = ["--calls", "1", "--gemm", "m: [64]; n: [128]; k: [256]; g: 1; seed: 1", "--schedule", "late"]

pytestmark = pytest.mark.skipif(not EMULATED, reason="the emulator's cost")


@pytest.mark.parametrize(("most", "code"), ((1000, 0), (0.01, 1)))
def test_rows_and_limit(most, code, capsys, tmp_path):
    device = Device.current()
    before = device.schedules, device.properties, device.sanitizer, device.workers
    options = [*SMALL, "--configurations", "64/1/1/1", "--gemv", "", "--most", str(most)]
    options += ["--save", str(tmp_path / "sanitizer_cost.json")]
    assert sanitizer_cost.main(options) == code
    shown = capsys.readouterr().out
    assert "128x64, 1 per SM" in shown and "GEMV" not in shown and shown.count(" times") == 1 + code
    assert (device.schedules, device.properties, device.sanitizer, device.workers) == before
    assert "| 128x64, 1 per SM" in sanitizer_cost.cost_table(tmp_path, "")


@pytest.mark.slow  # a megabyte under the sanitizer
def test_rows_of_elementwise_kernels(capsys):
    options = [*SMALL, "--configurations", "", "--gemv", "", "--elementwise", "1", "--most", "1000"]
    assert sanitizer_cost.main(options) == 0
    shown = capsys.readouterr().out
    assert "y = x + 1 (v4, 1 MB)" in shown and "(b32, 1 MB)" in shown and shown.count(" times") == 2
    assert shown.count("bytes per byte") == 2


@pytest.mark.parametrize(("taken", "text"), ((-0.04, "0.0"), (-0.3, "-0.3"), (0.94, "0.9")))
def test_memory_below_what_is_measured_has_no_sign(taken, text):
    row = {"row": "add", "schedule": "late", "ms": 1.0, "times": 2.0, "bytes per byte": taken}
    assert sanitizer_cost._cells([row]) == [["add", "1.0 ms", f"2.0 times, {text} bytes per byte"]]


@pytest.mark.parametrize("options", (["--configurations", "64/1/1"], ["--schedule", "soon"], ["--calls", "0"]))
def test_options_that_are_refused(options):
    with pytest.raises(SystemExit) as error:
        sanitizer_cost.parse(options)
    assert error.value.code == 2
