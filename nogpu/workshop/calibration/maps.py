"""Constants of tensor maps that kernels edit: each part of an edit alone, and a load with and without it."""

from __future__ import annotations

from collections.abc import Iterator

from workshop.calibration.launches import Launch, Measurement, Sizes, cycles_per

KERNELS = ("map_replace", "map_publish", "map_acquire", "map_load", "map_edit", "map_edit_load")


def measurements(sizes: Sizes) -> Iterator[Measurement]:
    """Cycles of a round of one warp: the cost of the first load by an edited map is edit_load - edit - load."""
    for kernel in KERNELS:
        launch = Launch("maps", kernel, ("rows:8", "out", "data", "target", sizes.rounds))
        yield Measurement(f"tensormap.{kernel[4:]}", "cycles per round of a warp", launch, cycles_per(sizes.rounds))
