"""Notebooks: `%load_ext nogpu` puts a session of IPython on the device; errors of kernels are shown without frames."""

from __future__ import annotations

import sys
from typing import Any

from nogpu.activation import activate
from nogpu.errors import EmulatorError


def load(shell: Any) -> None:
    """Put the session on the device. Raises EmulatorError as `activate` does."""
    activate()
    shell.set_custom_exc((EmulatorError,), _show)
    shell.events.register("post_run_cell", _run_pending)


def _show(
    shell: Any, kind: type[BaseException], error: BaseException, trace: Any, tb_offset: int | None = None
) -> None:
    """Show an error in IPython by its text and the cell's line."""
    error.__cause__, error.__suppress_context__ = None, True
    shell.showtraceback((kind, error, _of_cells(trace)), tb_offset=0, running_compiled_code=True)


def _of_cells(trace: Any) -> Any:
    """The traceback up to the last frame of the program itself."""
    from nogpu.bootstrap.sitecustomize import own_frames

    return own_frames(trace)


def _run_pending(result: Any) -> None:
    """Run the launches that a cell has left pending; an error is shown below the cell."""
    device = sys.modules.get("nogpu.execution.device")
    if device is not None:
        try:
            device.run_pending()
        except EmulatorError as error:
            print(error, file=sys.stderr)
