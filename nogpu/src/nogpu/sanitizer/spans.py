"""Bytes of global memory as spans: int64[n, 3], rows (start, end, tag) in order of their addresses, none overlapping.

A tag is a number that a span carries along, such as that of an instruction, and not 0.
"""

from __future__ import annotations

import numpy as np

UNTAGGED = -1
NOWHERE = np.zeros((0, 3), np.int64)


def of_runs(starts: np.ndarray, ends: np.ndarray, tags: np.ndarray) -> np.ndarray:
    """The spans of ranges in order, but for those with tag 0. starts, ends, tags: int64[n]."""
    starts, ends, tags = starts[tags != 0], ends[tags != 0], tags[tags != 0]
    if not len(starts):
        return NOWHERE
    first = np.ones(len(starts), bool)
    first[1:] = (starts[1:] != ends[:-1]) | (tags[1:] != tags[:-1])
    last = np.append(first[1:], True)
    return np.stack([starts[first], ends[last], tags[first]], axis=1)


def merged(starts: np.ndarray, ends: np.ndarray, tag: int) -> np.ndarray:
    """The spans of ranges in any order that may overlap. starts, ends: int64[n]."""
    if not len(starts):
        return NOWHERE
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    first = np.ones(len(starts), bool)
    first[1:] = starts[1:] > ends[:-1]
    last = np.append(first[1:], True)
    return np.stack([starts[first], ends[last], np.full(int(first.sum()), tag)], axis=1)


def of_box(address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(starts, ends) of the runs of a box of bytes, int64[n] each. strides: bytes, in any order, none negative."""
    run, axes = 1, sorted((stride, n) for n, stride in zip(shape, strides) if n > 1 and stride)
    while axes and axes[0][0] <= run:
        stride, n = axes.pop(0)
        run += stride * (n - 1)
    starts: np.ndarray = np.full((), address, np.int64)
    for stride, n in axes:
        starts = starts[..., None] + np.arange(n) * stride
    starts = starts.ravel()
    return starts, starts + run


def joined(parts: list[np.ndarray]) -> np.ndarray:
    """Union of several sets of spans; a byte in two of them keeps the tag of the first."""
    found = NOWHERE
    for part in parts:
        more = without(part, found) if len(found) else part
        found = np.concatenate([found, more])
        found = found[np.argsort(found[:, 0], kind="stable")]
    return found


def common(one: np.ndarray, other: np.ndarray) -> tuple[int, int, int, int] | None:
    """First bytes that two sets have in common, with the tags of both: (start, end, tag, tag)."""
    if not len(one) or not len(other) or one[-1, 1] <= other[0, 0] or other[-1, 1] <= one[0, 0]:
        return None
    at = np.searchsorted(other[:, 1], one[:, 0], "right")
    inside = np.minimum(at, len(other) - 1)
    meets = (at < len(other)) & (other[inside, 0] < one[:, 1])
    if not meets.any():
        return None
    mine = one[int(meets.argmax())]
    theirs = other[int(at[meets.argmax()])]
    return int(max(mine[0], theirs[0])), int(min(mine[1], theirs[1])), int(mine[2]), int(theirs[2])


def without(spans: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Parts of spans outside of others."""
    if common(spans, others) is None:
        return spans
    points = np.unique(np.concatenate([spans[:, :2].ravel(), others[:, :2].ravel()]))
    starts, ends = points[:-1], points[1:]
    of = np.searchsorted(spans[:, 0], starts, "right") - 1
    by = np.searchsorted(others[:, 0], starts, "right") - 1
    kept = (of >= 0) & (spans[of, 1] > starts) & ~((by >= 0) & (others[by, 1] > starts))
    starts, ends, of = starts[kept], ends[kept], of[kept]
    return of_runs(starts, ends, spans[of, 2])
