"""The list of what is supported, from the tables that decide it: PTX instructions, functions of CUDA, torch.cuda.

nogpu support [TEXT]       lines with this text; for a whole opcode, whether it runs
nogpu support --markdown   the page docs/support.md
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys

from nogpu.clock import chip
from nogpu.compiler.opcodes.table import TABLE, lookup
from nogpu.toolchain import HERE

_TOKEN = re.compile(
    r"\(\?[!=][^)]*\)|(?P<type>\[a-z\]\+(?:\\d|\[0-9\])\+)|(?P<open>\(\?P<\w+>|\(\?:|\()|(?P<close>\))"
    r"|(?P<any>\\d[+*]?|\[0-9\][+*]?)|\[(?P<set>[^\]]+)\]|(?P<others>\.\+)|(?P<maybe>[?*])|(?P<plus>\+)|(?P<bar>\|)|\\?(?P<plain>.)"
)
_WORDS = {"any": "N", "others": "MODIFIERS", "type": "TYPE"}
_ENTRY = re.compile(r"(ENTRY|ALIAS|IN_C|REFUSED)\((?:\d+, )?(\w+)[^)]*\)")
_SUFFIXES = re.compile(r"_(?:ptsz|ptds)\Z")  # names for per-thread default queues
_HEAD = """# What is supported

Made by `nogpu support --markdown` from the tables that decide it; a test compares them. `nogpu support TEXT` searches
it. Braces hold alternatives, brackets what may be left out, N is a number, TYPE a type, MODIFIERS are those that the
instruction's own code reads. They may stand in another order than here. Operands that do not fit, and combinations that
the PTX ISA excludes, are refused by name: [what is modelled](manual.md#what-is-modelled).

[PTX](#ptx) · [the CUDA runtime and driver](#the-cuda-runtime-and-driver) · [torch](#torch)
"""


def readable(pattern: str) -> str:
    """A pattern of opcodes as PTX documentation writes it: {a,b} for alternatives, [.c] for what may be left out."""
    stack: list[list[str]] = [[""]]  # alternatives of each open group
    last = ""  # the part that a ? or * behind it makes optional
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup
        if kind == "open":
            stack.append([""])
        elif kind == "bar":
            stack[-1].append("")
        elif kind == "maybe":
            stack[-1][-1] = stack[-1][-1].removesuffix(last) + f"[{last}]"
        elif kind is not None and kind != "plus":
            last = token[kind]
            if kind == "close":
                choices = stack.pop()
                last = choices[0] if len(choices) == 1 else f"{{{','.join(choices)}}}"
            elif kind in _WORDS:
                last = _WORDS[kind]
            elif kind == "set":
                first, _, end = last.partition("-")
                last = ",".join(map(str, range(int(first), int(end) + 1)) if end.isdigit() else last)
                last = f"{{{last}}}"
            stack[-1][-1] += last
    return " or ".join(stack[0])


def instructions(refused: bool = False) -> dict[str, list[str]]:
    """Name of a PTX instruction -> its forms, in the table's order. refused: of those refused with a reason."""
    found: dict[str, list[str]] = {}
    for row in TABLE:
        for form in _forms(readable(row.expression)) if row.refuses == refused else ():
            found.setdefault(re.split(r"\W", form)[0], []).append(form)
    return {name: list(dict.fromkeys(found[name])) for name in sorted(found)}


def _forms(form: str) -> list[str]:
    """A form, split by the instructions that it begins with: "{add,sub}.u32" becomes two forms."""
    if not form.startswith("{"):
        return [form]
    names, _, rest = form[1:].partition("}")
    return [name + rest for name in names.split(",")]


def functions() -> dict[str, list[str]]:
    """Names of the "answered" and "refused" functions of CUDA's runtime and driver, without per-thread queues' own."""
    text = (HERE / "cuda" / "programs" / "runtime" / "entries.h").read_text()
    found: dict[str, set[str]] = {"answered": set(), "refused": set()}
    for kind, name in _ENTRY.findall(text):
        if name.startswith(("cu", "nv")) and not _SUFFIXES.search(name):
            found["refused" if kind == "REFUSED" else "answered"].add(name)
    return {kind: sorted(names) for kind, names in found.items()}


def torch_names() -> list[str] | None:
    """Names in torch's modules that the device answers, with their modules; None without torch."""
    if importlib.util.find_spec("torch") is None:
        return None
    from nogpu.cuda import torch_cuda

    return sorted(
        f"{module.__name__}.{name}"
        for module, names in torch_cuda.PATCHES
        for name in names
        if not name.startswith("_")
    )


def lines() -> list[str]:
    """Lines of docs/support.md."""
    found, known = instructions(), functions()
    profiles = ", ".join(f"`{name}`" for name in sorted(path.stem for path in chip.PROFILES.glob("*.json")))
    text = [*_HEAD.splitlines(), "", "## PTX", ""]
    text += [
        "Chips: sm_100a (B200) and sm_107a ([Rubin](manual.md#rubin)); `tcgen05.ld.red`, `.exclusive`, "
        "`.collector::b` and `.sync_restrict::shared::read::mma::a` are of the latter. "
        f"`nogpu time` has profiles of {profiles}.",
        "",
        "| instruction | forms |",
        "|---|---|",
    ]
    for name, forms in found.items():
        text.append(f"| `{name}` | {'<br>'.join(f'`{form}`' for form in forms)} |")
    refused = [f"`{form}`" for forms in instructions(refused=True).values() for form in forms]
    text += ["", f"Refused with a reason: {', '.join(refused)}. Others are unknown, and refused so."]
    text += ["", "## The CUDA runtime and driver", ""]
    for kind, say in (("answered", "are answered"), ("refused", "return cudaErrorNotSupported and say so")):
        text += [f"{len(known[kind])} functions {say}:", "", ", ".join(f"`{name}`" for name in known[kind]) + ".", ""]
    names = torch_names()
    text += ["## torch", ""]
    if names is None:
        return [*text, "torch is not installed."]
    text += ["Operations run by torch's own library for CPUs, on memory of the device. The device itself answers:", ""]
    return [*text, ", ".join(f"`{name}`" for name in names) + "."]


def main(arguments: list[str]) -> None:
    """Runs `nogpu support` with the arguments. Exits with 1 where nothing has the text."""
    parser = argparse.ArgumentParser(prog="nogpu support", description="List what is supported.")
    parser.add_argument("--markdown", action="store_true", help="print docs/support.md")
    parser.add_argument("text", nargs="?", default="", help="a part of a name, or a whole opcode with its modifiers")
    options = parser.parse_args(arguments)
    if options.markdown:
        print("\n".join(lines()))
        return
    wanted = options.text.lower()
    shown = [f"PTX       {form}" for forms in instructions().values() for form in forms]
    shown += [f"refused   {form}" for forms in instructions(refused=True).values() for form in forms]
    shown += [f"{kind:10}{name}" for kind, names in functions().items() for name in names]
    shown += [f"torch     {name}" for name in torch_names() or ()]
    shown = [line for line in shown if wanted in line.lower()]
    known = lookup(options.text) if "." in wanted else None
    if known is not None:
        shown.insert(0, f"{'refused' if known[0].refuses else 'runs':10}{options.text}")
    if not shown:
        print(f"nogpu support: nothing has {options.text!r} in its name: it is not supported", file=sys.stderr)
        sys.exit(1)
    print("\n".join(shown))
