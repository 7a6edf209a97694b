"""The kernel's configurations, and how a test takes one of them whatever would be chosen."""

import functools

import submission

WHOLE = [shape for shape in submission.shapes() if shape[3] == 1]  # a tile's K is one MMA's
SHARED = [shape for shape in submission.shapes() if shape[3] > 1]  # of one product
EVERY = [(shape, products) for products in submission.PRODUCTS for shape in submission.shapes(products)]


def label(shape):
    """What pytest calls a shape."""
    return "{} tokens, {}-SM, {} per SM, K by {}".format(*shape)


def label_with_products(shape, products):
    return f"{label(shape)}, {'dual' if products == 2 else 'single'}"


def force(monkeypatch, *shapes):
    """Let `configure` choose among these shapes only, with a cache of its own."""
    monkeypatch.setattr(submission, "shapes", lambda products=1: list(shapes))
    monkeypatch.setattr(submission, "configure", functools.lru_cache(submission.configure.__wrapped__))
