"""Constants of a chip profile from measured ones, and errors that name those that are missing."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from nogpu.clock.chip import resolved
from workshop import CHECKOUT
from workshop.calibration import __main__ as calibrate
from workshop.calibration import device
from workshop.calibration import profile as chip_profile
from workshop.calibration.launches import Sizes
from workshop.calibration.profile import Measured, derived, measured_of
from workshop.calibration.rules import RATES

RESULTS, H200 = CHECKOUT / "docs/results", CHECKOUT / "nogpu/src/nogpu/clock/profiles/h200.json"
REPLAYED = (*RATES, "dram_idle_clean_share")  # found by replays that take recordings


def measured_on_the_h200():
    names = ("h200-constants.json", "h200-maps.json", "h200-subroutines.json")
    return [json.loads((RESULTS / name).read_text()) for name in names]


def test_the_h200_profile_is_what_its_measured_constants_give():
    committed = json.loads(H200.read_text())
    again = derived(committed, measured_of(measured_on_the_h200()))
    for name, entry in committed["constants"].items():
        assert name in REPLAYED or entry == again["constants"][name], name
    assert committed["instructions"] == again["instructions"] and committed["clock_ghz"] == again["clock_ghz"]
    for name in REPLAYED:
        assert "through the replay of" in committed["constants"][name]["source"]
        # A replay corrects what is measured; it does not find another chip.
        assert committed["constants"][name]["value"] == pytest.approx(again["constants"][name]["value"], rel=0.2)


@pytest.mark.parametrize(
    ("cut", "error"),
    (
        ("latency.l2_line", "lack latency.l2_line.far"),
        ("launch.period.early.grid_sms.block_256.cluster_2.shared_200K", "lack launch.period.early.grid_sms.block_256"),
        ("clock.loads", "lack clock.loads,"),
        ("tensormap.publish", "lack tensormap.publish,"),
        ("rate.bursts_after_writes.pause_2000", "lack rate.bursts_after_writes.pause_2000,"),
        ("rate.prmt.16_warps", "lack rate.prmt.16_warps,"),
    ),
)
def test_a_measured_constant_that_is_missing_is_named(cut, error, tmp_path):
    paths = []
    for number, record in enumerate(measured_on_the_h200()):
        record["constants"] = {name: x for name, x in record["constants"].items() if not name.startswith(cut)}
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(record))
    profile = tmp_path / "profile.json"
    profile.write_bytes(H200.read_bytes())
    with pytest.raises(SystemExit, match=re.escape(error)):
        chip_profile.main([*map(str, paths), "--profile", str(profile)])
    assert profile.read_bytes() == H200.read_bytes()


def test_the_rules_know_the_number_of_sms():
    records = measured_on_the_h200()
    profile = json.loads(H200.read_text())
    half = [{**record, "sms": 66} for record in records]
    at = {sms: derived(profile, measured_of(of))["constants"] for sms, of in ((132, records), (66, half))}
    assert at[66]["launch_cta"]["value"] / at[132]["launch_cta"]["value"] == pytest.approx(131 / 65, rel=0.01)
    assert at[66]["cta_interval"]["value"] / at[132]["cta_interval"]["value"] == pytest.approx(2, rel=0.02)
    with pytest.raises(ValueError, match="of 2 chips.* 132 SMs.* 66 SMs"):
        measured_of([records[0], half[1]])


# Of two launches, each of two CTAs that follow one another on SM 0: start and end in cycles, in ns, SM, launch, waits.
WAVES = np.array([[at, at + 50, at, at + 50, 0, at // 200, at, at] for at in (0, 100, 200, 300)])


class Asked(Measured):
    """Any constant is 2; remembers the names that were asked for."""

    def __missing__(self, name):
        self[name] = 2.0
        return 2.0


@pytest.mark.parametrize(("arch", "name"), (("sm_90a", "h200"), ("sm_100a", "b200")))
def test_the_calibration_measures_what_a_profile_comes_from(arch, name):
    asked = Asked(sms=132)
    if arch == "sm_100a":
        asked["latency.cvt_f16x2_e2m1x2"] = 2.0
    derived(resolved(json.loads((H200.parent / f"{name}.json").read_text())), asked)
    gpu = SimpleNamespace(arch=arch, sms=132, data_bytes=device.DATA_BYTES, address=lambda name: 0)
    found = set()
    for measurement in calibrate.measurements(gpu, Sizes(), []):
        records = np.arange(measurement.words) if measurement.words else WAVES
        figures = measurement.figure(records) if measurement.figure else 0.0
        names = figures if isinstance(figures, dict) else [""]
        found |= {f"{measurement.name}.{name}".rstrip(".") for name in names}
    assert len(asked) > 60 and set(asked) - {"sms"} <= found
