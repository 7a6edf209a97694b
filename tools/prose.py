"""Names docstrings that begin without a subject or a verb: "What it is", "Whether it is", "As `x`", "The same for y".

python -m tools.prose [FILE ...]      exit code 1 if there is one; default: all Python files of the checkout
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HEADLESS = re.compile(
    "(What|Whether|Why|Where|When|How|Which|That|If|So|And|But|Not|Also|Both|Only|Like|As|Of|By|In|On|To|For|From|With|Under"
    r"|The same(?= (as|for|of|in|with|by|but|where)\b|[,;:.]|$))\b"
)


def headless(text: str) -> Iterator[tuple[int, str]]:
    """(line, first line of the docstring) of each such docstring in a module's text."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring and HEADLESS.match(docstring):
                yield node.body[0].lineno, docstring.splitlines()[0]


def main(names: list[str]) -> int:
    listed = subprocess.run(["git", "ls-files", "*.py"], capture_output=True, text=True, check=True).stdout.splitlines()
    found = 0
    for name in names or listed:
        for line, first in headless(Path(name).read_text(encoding="utf-8")):
            found += 1
            print(f"{name}:{line}: {first}")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
