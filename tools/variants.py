"""Submission files of every configuration for popcorn-cli, and the service's replies as a table; needs no GPU.

    python tools/variants.py write FOLDER [--problem NAME] [--mode MODE ...]    files, and submit.sh with the commands
    sh FOLDER/submit.sh                                                 submits them, one after the other
    python tools/variants.py read FOLDER [--save FILE.json]             every reply in FOLDER/replies, as tables

A variant is submission.py with a few small edits: the leaderboard's name, and (harness.launch_modes)

    ordinary                   launches lack the programmatic attribute
    programmatic               no further edit: custom_kernel promises nothing
    overlapping                custom_kernel gives both promises of `solve`, so that calls overlap; a comment in the
                               file says what that does, and whom to ask before it is submitted
    sm2-tile192-x2-n1, ...     custom_kernel forces a configuration: CTAs per MMA, tokens per tile, CTAs per SM,
                               neighbours

An edit replaces text that must be there exactly once in its function or class. Each file is checked for what the
service refuses before it is written. --mode, which may be repeated, is one of popcorn-cli's: test, benchmark (default),
leaderboard, profile. A variant is left out of a mode with a case that its configuration cannot take.

popcorn-cli prints no times of cases from version 1.3.16 on. submit.sh therefore also asks the service for the
submission's record, which has those of modes test and benchmark. `read` takes both, and the text of older versions.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

if not __package__:  # python tools/variants.py
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from harness import ROOT
from harness.launch_modes import ORDINARY, OVERLAPPING, PROGRAMMATIC
from harness.options import ALL, B200_SMS, add_problem, command_parser
from harness.plan_report import PRODUCTS, configurations
from submission import Configuration, candidates, configure
from task import PROBLEMS, Problem
from tools import replies
from tools.plans import sizes_of
from workshop import records

SUBMISSION = ROOT / "submission.py"
REPLIES = "replies"  # subfolder of a folder of variants
MODES = "test", "benchmark", "leaderboard", "profile"
RUNS_TESTS = "test", "leaderboard"  # modes in which the service runs the problem's tests
RUNS_BENCHMARKS = "benchmark", "leaderboard", "profile"
MOST_BYTES = 1_000_000  # largest file that the service takes
SERVICE = "https://site--bot--dxfjds728w5v.code.run"  # popcorn-cli's default for POPCORN_API_URL
# Text of custom_kernel, and the overlapping variant's replacement.
UNPROMISED = "It promises nothing: a call is right behind any kernel, copy or harness."
ENTRY = "return solve(data)"
PROMISED = """\
# Calls overlap. The challenge's rules say "Single-kernel optimizations only" and "All gains must come from
    # within the kernel itself": ask the leaderboard's organisers before you submit this file.
    return solve(data, operands_ready=True, output_free=True)"""
DIRECTIVE = "#!POPCORN leaderboard "


@dataclass(frozen=True)
class Edit:
    """A replacement of `old`, which the function or class `where` (None: the whole file) has exactly once."""

    where: str | None
    old: str
    new: str

    def apply(self, source: str) -> str:
        """The edited source. Raises ValueError unless `old` is there exactly once."""
        start, end = self._span(source)
        inside = source[start:end]
        if (count := inside.count(self.old)) != 1:
            place = self.where or "the file"
            raise ValueError(f"{place} has {self.old!r} {count} times; the edit to {self.new!r} needs it exactly once")
        return source[:start] + inside.replace(self.old, self.new) + source[end:]

    def _span(self, source: str) -> tuple[int, int]:
        if self.where is None:
            return 0, len(source)
        kinds = ast.ClassDef, ast.FunctionDef
        found = [node for node in parsed(source).body if isinstance(node, kinds) and node.name == self.where]
        if len(found) != 1 or found[0].end_lineno is None:
            raise ValueError(f"the file has {len(found)} functions or classes {self.where}; an edit needs one")
        starts = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]
        return starts[found[0].lineno - 1], starts[found[0].end_lineno]


ORDINARY_EDIT = Edit("Gemm", "use_pdl=True", "use_pdl=False")  # takes the programmatic attribute from launches


@dataclass(frozen=True)
class Variant:
    """A variant of submission.py for one problem. configuration: the forced one; None if the kernel chooses."""

    problem: Problem
    kind: str
    configuration: Configuration | None = None
    promised: bool = False
    programmatic: bool = True

    @property
    def name(self) -> str:
        """The name of the variant's files, without an ending."""
        return f"{self.problem.name}.{self.kind}"

    def source(self, source: str) -> str:
        """The variant of submission.py's text. Raises ValueError for an edit that does not fit, or by `check`."""
        for edit in self.edits(source):
            source = edit.apply(source)
        check(source, self.problem.leaderboard)
        return source

    def edits(self, source: str) -> Iterator[Edit]:
        """The edits that turn submission.py's text, `source`, into the variant."""
        if self.problem.leaderboard != (current := directives(source).get("leaderboard", "")):
            yield Edit(None, f"{DIRECTIVE}{current}\n", f"{DIRECTIVE}{self.problem.leaderboard}\n")
        if not self.programmatic:
            yield ORDINARY_EDIT
        if self.promised:
            yield Edit("custom_kernel", UNPROMISED, "It gives both promises of `solve`.")
            yield Edit("custom_kernel", ENTRY, PROMISED)
        if self.configuration is not None:
            yield Edit("custom_kernel", ENTRY, f"return solve(data, configurations=({self.configuration!r},))")

    def refused(self, mode: str) -> str:
        """The spec line of the mode's first case that the forced configuration cannot take; empty if it takes all."""
        if self.configuration is None:
            return ""
        lines = [*self.problem.tests] if mode in RUNS_TESTS else []
        if mode in RUNS_BENCHMARKS:
            lines += [benchmark.line for benchmark in self.problem.benchmarks]
        return next((line for line in lines if not takes(self.configuration, line, self.problem.name)), "")


def takes(configuration: Configuration, line: str, problem: str) -> bool:
    """True if the configuration can compute the case; tiles for few tokens cannot take more."""
    products = PRODUCTS[problem]
    schedules = [launch.schedule for launch in configure(tuple(sizes_of(line, problem)), B200_SMS, products=products)]
    return all(candidates(x.sizes, B200_SMS, False, x.plan.products, (configuration,)) for x in schedules)


def variants(problem: Problem) -> Iterator[Variant]:
    """Every variant for a problem."""
    yield Variant(problem, ORDINARY.keyword, programmatic=False)
    yield Variant(problem, PROGRAMMATIC.keyword)
    yield Variant(problem, OVERLAPPING.keyword, promised=True)
    for configuration in configurations(problem.name):
        tile, ctas, per_sm, neighbours = configuration
        yield Variant(problem, f"sm{ctas}-tile{tile}-x{per_sm}-n{neighbours}", configuration)


def directives(source: str) -> dict[str, str]:
    """The #!POPCORN lines as the service reads them: those of the first unbroken block of comment lines."""
    block = itertools.takewhile(lambda line: line.startswith(("#", "//")), source.splitlines())
    found = (re.fullmatch(r"#!POPCORN (\w+) (.+)", line) for line in block)
    return {match[1].lower(): match[2] for match in found if match}


def check(source: str, leaderboard: str) -> None:
    """Raise ValueError for a file that the service refuses, or that names another leaderboard or GPU."""
    if (size := len(source.encode())) > MOST_BYTES:
        raise ValueError(f"the file has {size} bytes; the service takes {MOST_BYTES}")
    if match := re.search("stream", source, re.IGNORECASE):
        line = source.count("\n", 0, match.start()) + 1
        raise ValueError(f"line {line} has {match[0]!r}; the service refuses every file with this word")
    if (found := directives(source)) != (expected := {"leaderboard": leaderboard, "gpu": "B200"}):
        raise ValueError(f"the file begins with directives {found}; expected {expected}")
    parsed(source)


@functools.lru_cache(maxsize=8)
def parsed(source: str) -> ast.Module:
    """The file's syntax tree. Raises ValueError for a file that is no Python."""
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno} is no Python: {error.msg}") from None


HEAD = """#!/bin/sh
# Submits every file beside this one and keeps the replies in {replies}. A reply that is there is not asked for again.
# Needs popcorn-cli, registered (popcorn-cli register discord, or github), and curl.
cd "$(dirname "$0")" || exit 1
mkdir -p {replies}

submit() { # file without .py, leaderboard, mode
    reply="{replies}/$1.$3"
    [ -s "$reply.txt" ] && return
    echo "$1, $3"
    popcorn-cli submit --no-tui --leaderboard "$2" --gpu B200 --mode "$3" --output "$reply.txt" "$1.py" \\
        > /dev/null 2> "$reply.log" || tail -n 1 "$reply.log"
    # The record of the submission has the times of cases. The service knows its owner by popcorn-cli's own identifier.
    number=$(sed -n 's/.*"submission_id": *\\([0-9][0-9]*\\).*/\\1/p' "$reply.txt" 2> /dev/null | head -n 1)
    [ -n "$number" ] && sed -n 's/^cli_id: */X-Popcorn-Cli-Id: /p' "$HOME/.popcorn.yaml" |
        curl --silent --show-error --fail --header @- --output "$reply.json" \\
            "${POPCORN_API_URL:-{service}}/user/submissions/$number"
}

"""


def script(chosen: Sequence[Variant], modes: Sequence[str]) -> str:
    """The text of submit.sh: a command for every variant and mode."""
    lines = []
    for variant, mode in itertools.product(chosen, modes):
        if refused := variant.refused(mode):
            lines.append(f"# {variant.name}, {mode}: left out, this case has more tokens than its tile: {refused}")
        else:
            lines.append(f"submit {variant.name} {variant.problem.leaderboard} {mode}")
    head = HEAD.replace("{replies}", REPLIES).replace("{service}", SERVICE)
    return head + "\n".join(lines) + "\n"


def write(folder: Path, problems: Sequence[Problem], modes: Sequence[str]) -> list[Path]:
    """Write the problems' variants and submit.sh, which is the last of the returned files.

    Raises ValueError for a variant that cannot be made.
    """
    source = SUBMISSION.read_text()
    chosen = [variant for problem in problems for variant in variants(problem)]
    texts = {f"{variant.name}.py": variant.source(source) for variant in chosen}
    texts["submit.sh"] = script(chosen, modes)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]


def main(arguments: list[str] | None = None) -> int:
    parser = command_parser(__doc__ or "")
    parser.prog = "python tools/variants.py"
    commands = parser.add_subparsers(dest="command", required=True, metavar="write|read")
    writing, reading = (commands.add_parser(name, allow_abbrev=False) for name in ("write", "read"))
    for command in (writing, reading):
        command.add_argument("folder", type=Path, metavar="FOLDER", help="of the variants")
    add_problem(writing, more=[ALL])
    writing.add_argument("--mode", action="append", choices=MODES, help="of submit.sh; default: benchmark")
    records.add_save(reading)
    options = parser.parse_args(arguments)
    try:
        if options.command == "write":
            problems = list(PROBLEMS.values()) if options.problem == ALL else [PROBLEMS[options.problem]]
            *files, commands_file = write(options.folder, problems, options.mode or ["benchmark"])
            print(f"{len(files)} files are in {options.folder}; submit them: sh {commands_file}")
        else:
            found = replies.read(options.folder / REPLIES)
            replies.show(found)
            if options.save:
                records.save(options.save, replies.record(found))
    except (ValueError, OSError) as error:
        sys.exit(f"tools.variants: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
