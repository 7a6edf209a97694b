"""The pytest plugin: `pytest --nogpu` puts a session on the device; the marker `nogpu` has settings of a test.

Without --nogpu it does nothing but skip tests with the marker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from nogpu.execution.device import Device

MARKER = """nogpu(schedule=None, sanitize=None, lenient=None): a test for nogpu's device, skipped without --nogpu. \
schedule: of its launches, as --nogpu-schedule. sanitize: True or False, in place of --nogpu-sanitize. \
lenient: True makes broken rules of order warnings, False doubts errors"""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("nogpu", "an NVIDIA B200 in software")
    group.addoption("--nogpu", action="store_true", help='device "cuda" is the emulated one in this session')
    group.addoption("--nogpu-schedule", metavar="S[,S...]", help="with --nogpu: orders of events; default: late")
    group.addoption("--nogpu-sanitize", action="store_true", help="with --nogpu: check what orders accesses")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Put the session on the device before a conftest.py imports cutlass, which reads the environment."""
    options = early_config.known_args_namespace
    if options.nogpu:
        import nogpu

        try:
            nogpu.activate(schedule=options.nogpu_schedule, sanitize=options.nogpu_sanitize or None)
        except nogpu.EmulatorError as error:
            raise pytest.UsageError(str(error)) from None
    elif options.nogpu_schedule or options.nogpu_sanitize:
        raise pytest.UsageError("--nogpu-schedule and --nogpu-sanitize are of --nogpu: give that, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def pytest_report_header(config: pytest.Config) -> str | None:
    if not config.option.nogpu:
        return None
    sanitizer = ", sanitizer" if config.option.nogpu_sanitize else ""
    return f"nogpu: emulated NVIDIA B200, schedule {config.option.nogpu_schedule or 'late'}{sanitizer}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("nogpu") and not item.config.option.nogpu:
        pytest.skip("needs --nogpu")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Runs a test under its marker's settings, then the launches that it leaves pending: their errors fail it."""
    if not item.config.option.nogpu:
        return (yield)
    marker = item.get_closest_marker("nogpu")
    with _settings(**(marker.kwargs if marker else {})):
        result = yield
        from nogpu.execution import device

        device.run_pending()
    return result


@contextmanager
def _settings(schedule: str | None = None, sanitize: bool | None = None, lenient: bool | None = None) -> Iterator[None]:
    """A context with settings of its launches. Raises EmulatorError or TypeError for those that are not legal."""
    if schedule is None and sanitize is None and lenient is None:
        yield
        return
    from nogpu.errors import leniency
    from nogpu.execution import settings
    from nogpu.execution.device import Device
    from nogpu.sanitizer import Sanitizer

    device = Device.current()
    before: dict[str, Any] = {"schedules": device.schedules, "sanitizer": device.sanitizer}
    if schedule is not None:
        device.schedules = settings.schedules(schedule)
    if sanitize is not None:
        device.sanitizer = (device.sanitizer or Sanitizer()) if sanitize else None
    try:
        with leniency(lenient):
            yield
    finally:
        for name, value in before.items():
            setattr(device, name, value)


@pytest.fixture
def nogpu_device(request: pytest.FixtureRequest) -> Device:
    """The emulated device, with its counters reset: `.counters()` has those of the test's launches."""
    if not request.config.option.nogpu:
        pytest.skip("needs --nogpu")
    import nogpu

    device = nogpu.Device.current()
    device.reset_counters()
    return device
