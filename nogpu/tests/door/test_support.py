"""The support matrix: how patterns are read, and the page, which is made from the tables."""

import contextlib
import re
import sys

import pytest

from nogpu import support
from nogpu.__main__ import main
from nogpu.compiler.opcodes.table import TABLE, lookup
from tests.support.commands import ROOT


@pytest.mark.parametrize(
    "pattern, text",
    [
        (r"add\.(?P<type>u16|s16)", "add.{u16,s16}"),
        (r"(?:mad24\.hi)\.(?:u32|s32)", "mad24.hi.{u32,s32}"),
        (r"setp(?:\.(?P<combine>and|or))?\.b32", "setp[.{and,or}].b32"),
        (r"ldu?(?P<modifiers>\.(?!param::func).+)", "ld[u].MODIFIERS"),
        (r"madc?\.[us](?:32|64)", "mad[c].{u,s}{32,64}"),
        (r"mma\.m\d+n[0-9]+", "mma.mNnN"),
        (r"trap|brkpt", "trap or brkpt"),
    ],
)
def test_patterns_are_readable(pattern, text):
    assert support.readable(pattern) == text


def chosen(form):
    """An opcode of a form: the first of alternatives, nothing of what may be left out."""
    before = None
    while form != before:
        before = form
        form = re.sub(r"\[[^\[\]]*\]", "", form)
        form = re.sub(r"\{([^{},]*)[^{}]*\}", r"\1", form)
    return form.partition(" or ")[0]


def test_forms_are_opcodes_of_the_table():
    """The page agrees with the table for one opcode of each form."""
    forms = [form for found in support.instructions().values() for form in found if "MODIFIERS" not in form]
    assert len(forms) > 250
    for form in forms:
        opcode = chosen(form).replace("TYPE", "b32").replace("N", "1")
        assert lookup(opcode) is not None, (form, opcode)
    assert sum(map(len, support.instructions(refused=True).values())) >= sum(row.refuses for row in TABLE) > 2


def test_the_page_is_that_of_the_tables():
    pytest.importorskip("torch")
    shown = (ROOT / "docs" / "support.md").read_text()
    assert shown == "\n".join(support.lines()) + "\n", "nogpu support --markdown > docs/support.md"


@pytest.mark.parametrize(
    "text, code, words",
    [
        ("tcgen05.mma.cta_group::1.kind::f16", 0, "runs      tcgen05.mma.cta_group::1.kind::f16\n"),
        ("wgmma.fence.sync.aligned", 0, "refused   wgmma.fence.sync.aligned\n"),
        ("cudaMallocA", 0, "answered  cudaMallocAsync\n"),
        ("cudaMallocMipmappedArray", 0, "refused   cudaMallocMipmappedArray\n"),
        ("get_device_capability", 0, "torch     torch.cuda.get_device_capability\n"),
        ("tex.base.2d.v4.f32.f32", 1, "it is not supported"),
    ],
)
def test_the_command(text, code, words, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["nogpu", "support", text])
    with contextlib.nullcontext() if code == 0 else pytest.raises(SystemExit, check=lambda ended: ended.code == code):
        main()
    assert words in "".join(capsys.readouterr())
