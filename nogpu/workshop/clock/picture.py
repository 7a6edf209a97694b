"""Pictures of modelled times over times of silicon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def scatter(
    path: Path,
    sets: Mapping[str, Sequence[Mapping[str, Any]]],
    looks: Mapping[str, tuple[int, str]],
    axis: str,
    others: str,
) -> None:
    """Draws the points' modelled_us over their silicon_us, as a PNG. sets: points by label. looks: color and mark of
    each set. axis, others: words for silicon's times, on the axis and in the title. Raises RuntimeError without
    matplotlib.
    """
    try:
        from matplotlib import colormaps
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RuntimeError("a picture needs matplotlib: pip install 'nogpu[pictures]'") from error
    figure = Figure(figsize=(11, 8), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    points = [point for of in sets.values() for point in of]
    for label, of in sets.items():
        color, mark = looks[label]
        if of:
            x, y = ([point[name] for point in of] for name in ("silicon_us", "modelled_us"))
            axes.scatter(x, y, s=16, marker=mark, color=colormaps["tab20"](color), label=label, linewidths=0.8)
    ends = [choose(point[name] for point in points for name in ("silicon_us", "modelled_us")) for choose in (min, max)]
    for share, style in ((1, "-"), (0.8, ":"), (1.2, ":")):
        axes.plot(ends, [share * end for end in ends], style, color="grey", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel=f"{axis}, us a call", ylabel="modelled, us a call")
    axes.set_title(f"Modelled and {others} times; dotted: 20 % off")
    figure.legend(fontsize="small", loc="outside right upper")
    figure.savefig(path, metadata={"Software": None})
