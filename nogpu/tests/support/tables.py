"""Tables of texts that are refused, each beside a legal twin, for pytest's parameters."""

import re

_DIFFERENCE = re.compile(r"<([^<>]*) -> ([^<>]*)>")


def _cells(table):
    return [line.split(" | ") for line in re.sub(r"\n[ \t]+", " ", table.strip("\n")).split("\n")]


def _filled(text, names):
    return re.sub(r"\$(\w+)", lambda match: names[match.group(1)], text) if names else text


def pairs(table, names):
    """(words of the error, refused text) of each row, WORDS | TEXT; continued lines and names as in `rows`."""
    return [(words, _filled(text, names)) for words, text in _cells(table)]


def rows(table, *others, names=None):
    """(name, words of the error, refused text, legal text) of each row, and the others.

    A row is NAME | WORDS | TEXT, with <REFUSED -> LEGAL> where the texts differ, or NAME | WORDS | REFUSED | LEGAL. A
    line that is indented continues the row above. \\n in a text is a new line, $X the text of that name.
    """
    found = []
    for name, words, *texts in _cells(table):
        if len(texts) == 1:
            texts = [_DIFFERENCE.sub(lambda match, i=i: match.group(i), texts[0]) for i in (1, 2)]
        found.append((name, words, *(_filled(text, names).replace(r"\n", "\n") for text in texts)))
    assert all(len(row) == 4 and row[2] != row[3] for row in found)
    return found + list(others)
