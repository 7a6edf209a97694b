"""Structures that Python reads from C files: laid out as the compiler lays them out, and followed when they change."""

import ctypes
import subprocess

import numpy as np
import pytest

from nogpu import headers, toolchain
from nogpu.clock import costs, recipes, record, replay
from nogpu.compiler.rowcode import image
from nogpu.cuda.programs import modules
from nogpu.execution import turns
from nogpu.hardware import copying, native, store_marks, tile_loads
from nogpu.hardware.tensor import multiply

MIRRORS = [
    ("native/engine.h", "Context", native.Context),
    ("native/engine.h", "Barrier", native.Barrier),
    ("native/engine.h", "Turns", turns.TurnState),
    ("native/engine.h", "Allocation", native.Allocation),
    ("native/engine.h", "Op", image.OP),
    ("native/copies.h", "Window", copying.Window),
    ("native/copies.h", "Traffic", copying.AllocationTraffic),
    ("native/copies.h", "Tile", copying.Tile),
    ("native/copies.h", "StoreMarks", store_marks.MarksState),
    ("native/copies.c", "TensorCopy", copying.TensorCopy),
    ("native/loads.h", "Route", tile_loads.Route),
    ("native/loads.h", "Load", tile_loads.Load),
    ("native/loads.h", "Loads", tile_loads.LoadState),
    ("native/trace.c", "Trace", record._Records),
    ("native/trace.c", "Recorder", record._Recorder),
    ("native/trace.c", "Recipe", recipes.RECIPE),
    ("native/mma.h", "Operand", multiply._Operand),
    ("native/mma.h", "Mma", multiply._Call),
    ("cuda/programs/runtime/runtime.h", "Record", modules.Record),
    ("clock/native/clock.h", "Launch", replay._Launch),
    ("clock/native/clock.h", "Span", replay.SPAN),
    ("clock/native/clock.h", "Instruction", costs.INSTRUCTION),
]
PACKED = [
    ("native/access.c", "Access"),
    ("native/barriers.c", "Operation"),
    ("native/exchange.c", "Shuffle"),
    ("native/loads.c", "Operands"),
    ("native/warp_mma.c", "WarpMma"),
]


def layout(mirror):
    """(bytes, {field: offset}) of a structure or of a NumPy type."""
    if isinstance(mirror, np.dtype):
        return mirror.itemsize, {name: offset for name, (_, offset) in mirror.fields.items()}
    return ctypes.sizeof(mirror), {name: getattr(mirror, name).offset for name, _ in mirror._fields_}


def compiles(source, checks):
    """True if the compiler finds that the checks hold behind the text of a C file."""
    text = f'#include "{toolchain.HERE / source}"\n' + "".join(f'_Static_assert({check}, "");\n' for check in checks)
    command = ["gcc", "-fsyntax-only", "-w", "-x", "c", "-", "-include", "stddef.h"]
    return subprocess.run(command, input=text, text=True, capture_output=True).returncode == 0


@pytest.mark.parametrize(("source", "name", "mirror"), MIRRORS, ids=lambda value: str(value).rsplit(".", 1)[-1])
def test_a_structure_is_laid_out_as_the_compiler_does(source, name, mirror):
    size, offsets = layout(mirror)
    checks = [f"sizeof({name}) == {size}", *(f"offsetof({name}, {at}) == {offset}" for at, offset in offsets.items())]
    assert compiles(source, checks) and not compiles(source, [*checks, f"sizeof({name}) == {size + 8}"])


@pytest.mark.parametrize(("source", "name"), PACKED)
def test_packed_bytes_are_a_structure(source, name):
    structure = headers.structure(source, name)
    assert headers.packer(source, name).size == ctypes.sizeof(structure)
    assert compiles(source, [f"sizeof({name}) == {ctypes.sizeof(structure)}"])


@pytest.mark.parametrize("source", sorted({source for source, *_ in MIRRORS}))
def test_constants_are_those_of_the_compiler(source):
    known = headers._source(source).constants
    assert compiles(source, [f"{name} == {value}" for name, value in known.items()])
    assert not compiles(source, ["1 == 2"])


HEADER = """#include "sizes.h"
enum Kind { FIRST = 1 << 2, SECOND, /* not THIRD, */ LAST = -(FIRST + 1) };
typedef struct Inner { u8 one; f64 two[COUNT][2]; } Inner;  // struct No { u8 a; };
struct Outer {
    const Inner *const *first, *second;
    void (*call)(s32 a, u32 b);
    Inner inner[COUNT];
    %s s16 third, fourth[4];
    const char *text;
};
"""


def test_a_change_is_followed(tmp_path):
    (tmp_path / "sizes.h").write_text("enum { COUNT = 3 };\n")
    (tmp_path / "outer.h").write_text(HEADER % "")
    (tmp_path / "other.h").write_text(HEADER.replace("SECOND,", "SECOND, THIRD,") % "u32 added;")

    offsets = {"first": 0, "second": 8, "call": 16, "inner": 24, "third": 192, "fourth": 194, "text": 208}
    assert layout(headers.structure(str(tmp_path / "outer.h"), "Outer")) == (216, offsets)
    later = {"added": 192, "third": 196, "fourth": 198}
    assert layout(headers.structure(str(tmp_path / "other.h"), "Outer")) == (216, offsets | later)
    assert headers.constants(str(tmp_path / "outer.h"), "COUNT", "SECOND", "LAST") == (3, 5, -5)
    assert headers.enumerators(str(tmp_path / "other.h"), "Kind") == ("FIRST", "SECOND", "THIRD", "LAST")


def test_declarations_of_a_text_are_read_like_those_of_a_file():
    class Inner(ctypes.Structure):
        _fields_ = headers.fields("char name[3]; s64 reserved")

    fields = headers.fields("u8 first; Inner inner[2]; word pitch, *text", Inner=Inner)
    assert fields == [
        ("first", ctypes.c_uint8),
        ("inner", Inner * 2),
        ("pitch", ctypes.c_size_t),
        ("text", ctypes.c_void_p),
    ]
    assert layout(Inner) == (16, {"name": 0, "reserved": 8})
    with pytest.raises(ValueError, match="no declaration of a field that is understood: first"):
        headers.fields("first")
