"""tools.validate: modelled times, errors and orders of points; tools.chip_profile: constants from measured ones."""

import json

import pytest

from harness import ROOT
from tools.chip_profile import INSTRUCTIONS, RATES, RULES, derived
from tools.validate import file_of, ordered, summary


def point(configuration, silicon, modelled, launches="in turn", case=0):
    facts = {"problem": "gemm", "case": case, "launches": launches, "configuration": configuration}
    return {**facts, "silicon_us": silicon, "modelled_us": modelled}


def test_pairs_count_where_silicon_differs_by_more_than_5_percent_in_the_same_case_and_launches():
    points = [point("a", 10, 3), point("b", 10.4, 2), point("c", 12, 4), point("d", 20, 1, case=1)]
    assert ordered(points) == (2, 2)  # a-c and b-c; a and b are too near, d is another case
    assert ordered([*points, point("e", 15, 3.5)]) == (4, 5)  # c-e is not in order


def test_errors_are_of_silicons_time():
    *_, (problem, launches, count, median, p90, mean, alike, pairs) = summary([point("a", 10, 11), point("b", 20, 16)])
    assert (problem, launches, count, alike, pairs) == ("all", "all", 2, 1, 1)
    assert (median, p90, mean) == pytest.approx((0.15, 0.2, -0.05))


def test_a_point_without_a_modelled_time_is_left_out():
    failed = {key: value for key, value in point("a", 1, 1).items() if key != "modelled_us"}
    assert summary([failed]) == []


def test_files_are_named_by_configuration(tmp_path):
    named = {"chosen": "ours", "256x64, 1 per SM, K in 2": "256x64_1perSM_Kin2", "128x64, 2 per SM": "128x64_2perSM"}
    for configuration, name in named.items():
        assert file_of(tmp_path, point(configuration, 1, 1)).name == f"gemm-0-{name}.xz"


def test_the_h200_profile_is_what_its_measured_constants_give():
    measured = json.loads((ROOT / "docs/results/h200-constants.json").read_text())["constants"]
    committed = json.loads((ROOT / "emulator/clock/profiles/h200.json").read_text())
    again = derived(committed, measured)
    for name in {rule[0] for rule in RULES}:
        assert committed["constants"][name] == again["constants"][name], name
    for family, *_ in INSTRUCTIONS:
        assert committed["instructions"][family] == again["instructions"][family], family
    for name, constant in RATES.items():
        assert committed["constants"][name]["source"].startswith(constant)
