"""Docstrings without a head are found; `make lint` asks for them."""

import pytest

from tools import prose


@pytest.mark.parametrize(
    ("first", "is_headless"),
    [
        ("What a launch has read.", True),
        ("Whether it is a folder.", True),
        ("As `release`, of a relaxed arrival.", True),
        ("Of one warp.", True),
        ("The same for a pair.", True),
        ("The same.", True),
        ("The same kernel as its text has it.", False),
        ("Offsets of the fields.", False),
        ("Inputs of a case.", False),
        ("True if it is a folder.", False),
        ("Assembles PTX.", False),
    ],
)
def test_a_docstring_begins_with_a_noun_or_a_verb(first, is_headless):
    for text in (f'"""{first}"""', f'def f():\n    """{first}\n\n    More."""', f'class C:\n    """{first}"""'):
        assert [line for _, line in prose.headless(text)] == [first] * is_headless


def test_code_without_docstrings():
    assert not list(prose.headless('"""A module."""\nx = """What is no docstring"""\ndef f(): return 1\n'))
