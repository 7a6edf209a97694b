"""Schedules under which the sanitizer has to find the same."""

import pytest


@pytest.fixture(params=["late", "eager", "random:1"])
def schedule(request):
    return request.param
