"""Translated kernels on disk: a module whose kernel was translated before is neither parsed nor translated.

An entry of the store is named by the module's text, the emulator's sources and the version of Python. It holds what
launches need of the module, as plain data: the kernel's header, lines of instructions for messages, and its image.
Modules of one kernel without variables in global memory are kept, since addresses of variables are part of an image.
Short kernels are not: they are translated as soon as they are read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import marshal
import os
import sys
import time
import zlib
from functools import cache
from pathlib import Path

from nogpu import store, toolchain
from nogpu.compiler.rowcode.image import Image
from nogpu.ptx.ir import Entry, Instruction, Module, Param, Scope, Variable
from nogpu.ptx.module import parse

MAX_ENTRIES = 2048  # entries of about 70 KB
LEAST_INSTRUCTIONS = 100
_STARTED = time.time()
_HEADER = ("reqntid", "maxntid", "cluster", "max_cluster", "min_ctas", "registers_per_thread", "line")
_SOURCES = (".py", ".c", ".h")


@dataclasses.dataclass
class StoredEntry(Entry):
    """A kernel from the store: calls are expanded, instructions have no operands, and there are no labels."""

    module_text: str = dataclasses.field(kw_only=True, repr=False)
    communication: tuple[bool, bool] = dataclasses.field(kw_only=True)
    """`Program.inter_cta` and `Program.awaits`."""
    image: Image = dataclasses.field(kw_only=True, repr=False)

    def parsed(self) -> Entry:
        """Kernel, parsed again from the module's text."""
        return parse(self.module_text).entries[self.name]


def module(text: str) -> Module:
    """The module of a text, as from `ptx.module.parse`; its kernel may be a StoredEntry."""
    path = _path(text)
    data = None if path is None else store.read(path)
    found = None if data is None else _unpacked(data, text)
    if found is not None:
        return found
    parsed = parse(text)
    if path is not None and len(parsed.entries) == 1 and not _has_global_variables(parsed.scope):
        (entry,) = parsed.entries.values()
        entry.stored_at = path, parsed.target, parsed.version, parsed.target_line
    return parsed


def keep(entry: Entry, linked: Entry, image: Image, communication: tuple[bool, bool]) -> None:
    """Puts a translation into the store, if `module` has read the entry and it is long enough."""
    if entry.stored_at is None or len(linked.instructions) < LEAST_INSTRUCTIONS:
        return
    path, *target = entry.stored_at
    instructions = [(i.opcode, i.line, i.text, i.source) for i in linked.instructions]
    params = [dataclasses.astuple(param) for param in linked.params]
    variables = [dataclasses.astuple(dataclasses.replace(v, line=None)) for v in linked.variables.values()]
    header = [getattr(linked, name) for name in _HEADER]
    fields = [getattr(image, field.name) for field in dataclasses.fields(image)]
    content = linked.name, target, header, params, variables, communication, fields, instructions
    store.write(path, zlib.compress(marshal.dumps(content), 1), MAX_ENTRIES)


def _unpacked(content: bytes, text: str) -> Module | None:
    """The module of a translation; None for bytes that `keep` has not written."""
    scope = Scope()
    try:
        name, (target, version, line), header, params, variables, communication, fields, instructions = marshal.loads(
            zlib.decompress(content)
        )
        entry = StoredEntry(
            name,
            [Param(*param) for param in params],
            instructions=[Instruction(opcode, (), None, *rest) for opcode, *rest in instructions],
            variables={variable[0]: Variable(*variable) for variable in variables},
            scope=scope,
            module_text=text,
            communication=communication,
            image=Image(*fields),
            **dict(zip(_HEADER, header)),
        )
        return Module({name: entry}, target, version, scope, text, line)
    except (zlib.error, EOFError, TypeError, ValueError):
        return None


def _has_global_variables(scope: Scope) -> bool:
    return any(variable.space in ("global", "const") for variable in scope.variables.values())


def _path(text: str) -> Path | None:
    """The path of a module's translation; None if it cannot be kept."""
    folder, sources = store.folder("programs"), _sources()
    if folder is None or sources is None:
        return None
    return folder / hashlib.sha256(sources + text.encode(errors="surrogatepass")).hexdigest()


@cache
def _sources() -> bytes | None:
    """A digest of the emulator's sources and of Python's version; None if a source is newer than this process."""
    digest = hashlib.sha256(sys.version.encode())
    root = toolchain.HERE
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            if name.endswith(_SOURCES):
                path = os.path.join(folder, name)
                if os.stat(path).st_mtime > _STARTED:
                    return None
                with open(path, "rb") as file:
                    content = file.read()
                digest.update(f"{os.path.relpath(path, root)} {len(content)} ".encode() + content)
    return digest.digest()
