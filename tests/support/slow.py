"""Cases that `make test` leaves to `make check`."""

import pytest


def sampled(cases, step, names=1):
    """Cases for parameters of so many names: `make test` runs one in `step`, `make check` all."""
    return [
        case if index % step == 0 else pytest.param(*(case if names > 1 else [case]), marks=pytest.mark.slow)
        for index, case in enumerate(cases)
    ]
