"""Draws programs that nobody has chosen from checkouts of public repositories, and writes them as a list.

    python -m workshop.foreign.draw FOLDER --seed N [--share cu=45,triton=25,...] [--most 4] [--without LIST.toml]
                                    --save LIST.toml
    python -m workshop.foreign FOLDER --lists LIST.toml --schedule late --timeout 300 --jobs 14 --save FILE.json

FOLDER holds the checkouts, each as OWNER+NAME. A candidate is a file that stands alone, of one of five kinds:

    cu        a .cu file with a `main` and a launch, and every header that it names in quotes
    triton    a script with `@triton.jit` and a launch
    ext       a script that builds an extension with `load_inline` or `torch.utils.cpp_extension.load`
    test      a test_*.py that names Triton, CUTLASS or CUDA, of which the tests with the first one's name run
    dsl       a script with `@cute.jit` or `@cute.kernel`, and a call

Left out are files with graphics, MPI, NCCL, input from a terminal, arguments that they insist on, Hopper's own
instructions (wgmma, sm_90a), headers of CUTLASS or cuDNN, NVIDIA's copyright (copies of examples that lists have),
"bench" in their path, and texts that were met before. Each kind's candidates are shuffled, and the first ones taken, of
a repository at most --most; then all are shuffled, so that an interrupted sweep is a sample, too.
"""

from __future__ import annotations

import hashlib
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from workshop.console import command_parser
from workshop.foreign import runs

SHARE = "cu=45,triton=25,ext=10,test=10,dsl=10"
LARGEST = 200_000  # bytes of a source
_LEFT_OUT = re.compile(
    r"GL/|glfw|glut|opencv|SDL|<mpi\.h>|mpi4py|nccl|wgmma|sm_?90a|[Ss]m90|warpgroup|cin\s*>>|scanf\s*\(|\binput\(|argc\s*(?:!=|<)"
    r"|required=True|torch\.distributed|<cut(?:lass|e)/|[<\"]cudnn|NVIDIA CORPORATION"
)
_LAUNCH = re.compile(r"\w\s*\[[^\]\n]+\]\(|\w\[\s*\n")  # kernel[grid](...)
# Something that runs when the script does
_CALL = re.compile(r"__main__|^\w[\w.]*(?:\[.*\])?\(|^\w+ = \w+\(", re.MULTILINE)
_HEADER = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_TEST = re.compile(r"^\s*def (test_\w+)\(", re.MULTILINE)
_EXTENSION = re.compile(r"\bload_inline\(|\bcpp_extension import (?:.*\b)?load\b|\bcpp_extension\.load\(")
_COMMAND = "-m nogpu run --schedule {schedule} {file}"
_OF_TEST = "-m nogpu run --schedule {schedule} -m pytest -q -x -p no:cacheprovider {file} {arguments}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0."""
    parser = command_parser(__doc__, "workshop.foreign.draw")
    parser.add_argument("folder", type=Path, help="folder with the checkouts")
    parser.add_argument("--seed", type=int, required=True, help="of the draw")
    parser.add_argument("--share", default=SHARE, metavar="KIND=N,...", help="default: %(default)s")
    parser.add_argument("--most", type=int, default=4, metavar="N", help="of a kind and repository; default: 4")
    parser.add_argument("--without", action="append", type=Path, default=[], metavar="LIST.toml", help="none of these")
    parser.add_argument("--save", type=Path, required=True, metavar="LIST.toml", help="the list to write")
    options = parser.parse_args(arguments)
    share = {kind: int(number) for kind, number in (each.split("=") for each in options.share.split(","))}
    found = candidates(options.folder)
    other = {each.file for path in options.without for each in runs.programs(options.folder, set(), path)}
    found = {kind: [path for path in paths if path not in other] for kind, paths in found.items()}
    drawn = draw(found, share, options.most, random.Random(options.seed))
    options.save.write_text(listed(drawn, options.folder))
    for kind, number in share.items():
        count = Counter(each for each, _ in drawn)[kind]
        print(f"{kind}: {count} of {len(found[kind])} candidates" + (f", {number} were asked for" * (count < number)))
    return 0


def kind_of(path: Path, text: str) -> str:
    """The kind of a file with this text, "" if it is no candidate."""
    if _LEFT_OUT.search(text):
        return ""
    if path.suffix == ".cu":
        headers = [name for name in _HEADER.findall(text) if not name.startswith(("cu", "device_"))]
        beside = all((path.parent / name).exists() for name in headers)
        return "cu" if re.search(r"\bmain\s*\(", text) and "<<<" in text and beside else ""
    if path.name.startswith("test_"):
        return "test" if _TEST.search(text) and re.search(r"triton|cutlass|cuda", text) else ""
    if _EXTENSION.search(text):
        return "ext"
    called = _CALL.search(text)
    if "@triton.jit" in text:
        return "triton" if called and _LAUNCH.search(text) else ""
    return "dsl" if called and re.search(r"@cute\.(?:jit|kernel)", text) else ""


def candidates(folder: Path) -> dict[str, list[Path]]:
    """Kind -> the candidates in the checkouts of a folder, in the order of their paths."""
    found: dict[str, list[Path]] = {kind: [] for kind in ("cu", "triton", "ext", "test", "dsl")}
    met: set[bytes] = set()
    for path in sorted(each for each in folder.glob("*+*/**/*") if each.suffix in (".cu", ".py") and each.is_file()):
        if path.stat().st_size > LARGEST or "bench" in str(path.relative_to(folder)).lower():
            continue
        text = path.read_text(errors="replace")
        kind, digest = kind_of(path, text), hashlib.sha256("".join(text.split()).encode()).digest()
        if kind and digest not in met:
            found[kind].append(path)
            met.add(digest)
    return found


def draw(
    found: dict[str, list[Path]], share: dict[str, int], most: int, generator: random.Random
) -> list[tuple[str, Path]]:
    """(kind, file) of the programs drawn, in the order in which they run."""
    drawn: list[tuple[str, Path]] = []
    for kind, number in share.items():
        drawn += [(kind, each) for each in _first(generator.sample(found[kind], len(found[kind])), number, most)]
    return generator.sample(drawn, len(drawn))


def _first(paths: Sequence[Path], number: int, most: int) -> Iterator[Path]:
    taken: Counter[str] = Counter()
    for path in paths:
        repository = next(part for part in path.parts if "+" in part)
        if taken[repository] < most and taken.total() < number:
            taken[repository] += 1
            yield path


def listed(drawn: Sequence[tuple[str, Path]], folder: Path) -> str:
    """The list (`workshop.foreign.runs.programs`) of drawn programs, one group each: their order is the draw's."""
    groups = []
    for kind, path in drawn:
        checkout, *inner = path.relative_to(folder).parts
        test = _TEST.search(path.read_text(errors="replace")) if kind == "test" else None
        arguments = f', arguments = "-k {test.group(1)}"' if test else ""
        cut = 0 if kind == "test" else len(inner) - 1  # tests run in the checkout's folder, others in their own
        groups.append(
            f'[[group]]\nframework = "{kind}"\nrepository = "{checkout.replace("+", "/", 1)}"\n'
            f'folder = "{"/".join(inner[:cut])}"\ncommand = "{_OF_TEST if kind == "test" else _COMMAND}"\n'
            f'programs = [{{ file = "{"/".join(inner[cut:])}"{arguments} }}]\n'
        )
    return "\n".join(groups)


if __name__ == "__main__":
    sys.exit(main())
