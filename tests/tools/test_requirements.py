"""The lock files in tools/requirements hold a version of every requirement of pyproject.toml that it allows."""

import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.commands import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"].values()
REQUIREMENTS = [Requirement(text) for texts in (PROJECT["dependencies"], *EXTRAS) for text in texts]


@pytest.mark.parametrize("dsl", ["4.5.2", "4.8.1"])
def test_every_requirement_is_locked(dsl):
    lines = (ROOT / "tools" / "requirements" / f"dsl-{dsl}.txt").read_text().splitlines()
    locked = [Requirement(line) for line in lines]
    versions = {canonicalize_name(entry.name): next(iter(entry.specifier)).version for entry in locked}
    wanted = {canonicalize_name(entry.name): entry.specifier for entry in REQUIREMENTS if entry.name != PROJECT["name"]}
    missing = {name: str(allowed) for name, allowed in wanted.items() if versions.get(name, "") not in allowed}
    assert not missing, f"run `make lock`: {missing}"
    assert versions["nvidia-cutlass-dsl"] == dsl
