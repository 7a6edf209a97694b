"""Draws the page's pictures as SVG text: a timeline of steps, bars, lines. Lengths are pixels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

WIDTH, ROW, FIGURES = 960, 18, 50  # widths of a picture and of a value beside the longest bar; ROW is a bar's height
CHARACTER = 0.62  # largest mean width of a character in long texts, over the font's size
STATE_COLOURS = {"passed": "#3a9a5b", "failed": "#cc3b3b", "cut short": "#d99a2b", "not run": "#9aa0a6"}
COLOURS = ("#2f6db5", "#8fb4dd", "#d9822b", "#6f9e5c", "#9b6fb0", "#777777", "#c2a14a", "#4fb0ae")


def text(x: float, y: float, content: str, anchor: str = "start", size: int = 12) -> str:
    """A line of text whose baseline is at y."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(content)}</text>'


def box(x: float, y: float, width: float, height: float, colour: str, title: str) -> str:
    """A filled rectangle that says `title` where the pointer is on it."""
    at = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{height:.1f}" fill="{colour}"'
    return f"<rect {at}><title>{escape(title)}</title></rect>"


def picture(height: float, parts: Sequence[str], label: str) -> str:
    """An SVG of width WIDTH around `parts`. label: its text for screen readers."""
    head = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">'
    return head + "".join(parts) + "</svg>"


def width_of(texts: Iterable[str], size: int = 11) -> float:
    """The width of the longest of the texts, with a margin."""
    return 12 + CHARACTER * size * max(map(len, texts), default=0)


def axis(left: float, end: float, height: float, unit: str) -> list[str]:
    """Six vertical lines from 0, at `left`, to `end`, with their values below."""
    parts = []
    for share in range(6):
        x = left + (WIDTH - left - FIGURES) * share / 5
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height:.0f}" stroke="#ddd"/>')
        parts.append(text(x, height + 14, f"{end * share / 5:.3g} {unit}", "middle", 11))
    return parts


def timeline(steps: Sequence[Mapping]) -> str:
    """Bars from each step's start to its end, coloured by state. Steps that did not run are left out."""
    ran = [step for step in steps if step["seconds"]]
    if not ran:
        return ""
    end, left = max(step["started_s"] + step["seconds"] for step in ran), width_of(step["title"] for step in ran)
    scale = (WIDTH - left - FIGURES) / end
    parts = axis(left, end, len(ran) * ROW, "s")
    for row, step in enumerate(sorted(ran, key=lambda step: step["started_s"])):
        label = f"{step['title']}: {step['state']}, {step['seconds']} s"
        x, colour = left + step["started_s"] * scale, STATE_COLOURS[step["state"]]
        parts.append(text(left - 6, row * ROW + 13, step["title"], "end", 11))
        parts.append(box(x, row * ROW + 3, step["seconds"] * scale, ROW - 6, colour, label))
    return picture(len(ran) * ROW + 20, parts, "when each step ran")


def bars(groups: Mapping[str, Mapping[str, float]], unit: str) -> str:
    """Horizontal bars of the values: group -> name -> value. Bars of one name have one colour in all groups."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    if not names:
        return ""
    end, left = max(value for group in groups.values() for value in group.values()), width_of(names)
    scale = (WIDTH - left - FIGURES) / end
    rows = sum(len(group) + 1 for group in groups.values())
    parts, row = axis(left, end, rows * ROW, unit), 0
    for title, group in groups.items():
        parts.append(text(4, row * ROW + 13, title, size=12))
        row += 1
        for name, value in group.items():
            colour = COLOURS[names.index(name) % len(COLOURS)]
            parts.append(text(left - 6, row * ROW + 13, name, "end", 11))
            parts.append(box(left, row * ROW + 3, value * scale, ROW - 6, colour, f"{name}: {value:.2f} {unit}"))
            parts.append(text(left + value * scale + 4, row * ROW + 13, f"{value:.2f}", size=11))
            row += 1
    return picture(rows * ROW + 20, parts, "bars")


def lines(series: Mapping[str, Sequence[tuple[float, float]]], across: str, unit: str) -> str:
    """A line through the points (x, y) of each series, with the series' name at its end. The y axis begins at 0."""
    points = [point for one in series.values() for point in one]
    if not points:
        return ""
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    top = max(y for _, y in points) * 1.05
    height, marks = 260, [(top * share / 4, f"{top * share / 4:.3g} {unit}") for share in range(5)]
    left, right = width_of(mark for _, mark in marks), WIDTH - width_of(series)

    def place(x: float, y: float) -> tuple[float, float]:
        return left + (right - left) * (x - low) / max(high - low, 1), height - height * y / top

    parts = [text(right, height + 30, across, "end", 11)]
    for x in sorted({x for x, _ in points}):
        parts.append(text(place(x, 0)[0], height + 15, f"{x:g}", "middle", 11))
    for y, mark in marks:
        at = place(low, y)[1]
        parts.append(f'<line x1="{left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(text(left - 4, at + 4, mark, "end", 11))
    ends: list[float] = []
    for number, (name, one) in enumerate(sorted(series.items(), key=lambda entry: -entry[1][-1][1])):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in sorted(one))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = place(*max(one))
        y = max([y, *(end + 13 for end in ends[-1:])])
        ends.append(y)
        parts.append(f'<text x="{right + 8}" y="{y + 4:.1f}" font-size="11" fill="{colour}">{escape(name)}</text>')
    return picture(max(height + 34, *ends, 0) + 10, parts, across)
