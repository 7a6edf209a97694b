"""ptxas, to check PTX that was lowered for a Hopper GPU."""

import pytest

from tools import binaries

PTXAS = binaries.installed("ptxas")


def assembles(ptx):
    """True if an installed ptxas takes the PTX for sm_90a. AssertionError with its message otherwise."""
    if not PTXAS:
        pytest.skip("no ptxas in site-packages or on PATH; the extra `report` brings one")
    refusals = []
    for ptxas in PTXAS:
        result = binaries.run(ptxas, ["-arch=sm_90a"], ptx.encode(), writes=True)
        if result.code == 0:
            return True
        refusals.append(result.stdout + result.stderr)
    if all("Unsupported .version" in refusal for refusal in refusals):
        pytest.skip("ptxas is older than the PTX")
    raise AssertionError("\n".join(refusals))
