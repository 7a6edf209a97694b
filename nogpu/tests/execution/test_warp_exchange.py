"""bar.warp.sync, shfl, vote, match and redux without Python: its rows have the same results and refuse the same."""

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from tests.support.small_kernels import launch, store

# Lanes of odd and of even numbers have membermasks of their own in %r10, those of 8 lanes in a row theirs in %r11.
HEAD = """
    mul.lo.u32 %r1, %tid, 0x9e3779b1; shr.u32 %r2, %r1, 7; and.b32 %r3, %r2, 3; setp.eq.u32 %p1, %r3, 1;
    mov.u32 %r30, 7;
    and.b32 %r4, %tid, 1; shl.b32 %r10, 0x55555555, %r4; and.b32 %r4, %tid, 24; shl.b32 %r11, 0xff, %r4;
    activemask.b32 %r12; setp.ne.u32 %p9, %r30, 7; @%p9 mov.u32 %r12, 1; mov.u32 %r13, 0x1f;
    mov.u32 %r14, 0x1f; @%p1 mov.u32 %r14, 0x181f; mov.u32 %r20, 0;
    mul.wide.u32 %rd4, %r3, 65537; setp.lt.u32 %p2, %tid, 8; setp.eq.u32 %p4, %r30, 7; setp.eq.u32 %p5, %tid, 0;
"""
INSTRUCTIONS = {
    "a barrier": "bar.warp.sync M;",
    "a lane above": "shfl.sync.down.b32 %r20, %r1, 1, C, M;",
    "a lane below and whether it is there": "shfl.sync.up.b32 %r20|%p3, %r1, 2, C, M; @%p3 add.u32 %r20, %r20, 5;",
    "only whether it is there": "shfl.sync.bfly.b32 _|%p3, %r1, 4, C, M; @%p3 add.u32 %r20, %r20, 5;",
    "a lane that each names": "shfl.sync.idx.b32 %r20, %r1, %r3, C, M;",
    "a value that all have": "shfl.sync.idx.b32 %r20|%p3, %r30, 1, C, M; @%p3 add.u32 %r20, %r20, 5;",
    "one lane's value": "shfl.sync.idx.b32 %r20, %r1, 4, 0x1f, M;",
    "a ballot": "vote.sync.ballot.b32 %r20, %p1, M;",
    "a ballot of one value": "vote.sync.ballot.b32 %r20, %p4, M;",
    "all": "vote.sync.all.pred %p3, %p1, M; @%p3 add.u32 %r20, %r20, 5;",
    "any": "vote.sync.any.pred %p3, %p1, M; @%p3 add.u32 %r20, %r20, 5;",
    "all agree": "vote.sync.uni.pred %p3, %p1, M; @%p3 add.u32 %r20, %r20, 5;",
    "a sum": "redux.sync.add.u32 %r20, %r1, M;",
    "a least": "redux.sync.min.s32 %r20, %r1, M;",
    "a largest number": "redux.sync.max.f32 %r20, %r1, M;",
    "a number closest to 0": "redux.sync.min.abs.f32 %r20, %r1, M;",
    "a least number of two zeros and others": """selp.b32 %r20, 0x80000000, 0, %p1; @%p5 mov.u32 %r20, 0x7fc00001;
        redux.sync.min.f32 %r20, %r20, M;""",
    "no number beside another": """mov.u32 %r20, %r1; @%p5 mov.u32 %r20, 0xffc00001;
        redux.sync.max.NaN.f32 %r20, %r20, M;""",
    "no number at all": "redux.sync.max.abs.f32 %r20, 0f7fc00001, M;",
    "a leader": "elect.sync %r20|%p3, M; @%p3 add.u32 %r20, %r20, 5;",
    "who has the same": "match.any.sync.b32 %r20, %r3, M;",
    "who has the same 64 bits": "match.any.sync.b64 %r20, %rd4, M;",
    "do all have the same": "match.all.sync.b32 %r20|%p3, %r3, M; @%p3 add.u32 %r20, %r20, 5;",
    "do all have the one value": "match.all.sync.b64 %r20|%p3, 9, M; @%p3 add.u32 %r20, %r20, 5;",
    "the value is replaced": "mov.u32 %r20, %r3; match.all.sync.b32 %r20|%p3, %r20, M; @%p3 add.u32 %r20, %r20, 5;",
}
ONE_MEMBERMASK = {"elect", "match"}  # lanes with membermasks of their own are refused
PARTS = {
    "-1": ("", ""),
    "%r12": ("", ""),
    "%r10": ("", ""),
    "%r11": ("", ""),
    "0xff": ("@!%p2 bra OUT;", "OUT:"),
    "%r11 ": ("@!%p2 bra OUT;", "OUT:"),
    "-1 ": ("@!%p2 bra OUT;", "OUT:"),
    "%r10 ": ("@%p1 bra OUT; activemask.b32 %r10;", "OUT:"),
}


def _run(body, kernels):
    out = np.zeros(32, np.uint32)
    try:
        launch(HEAD + body + "add.u32 %r20, %r20, 3;" + store("%r20"), out, kernels=kernels)
    except EmulatorError as error:
        return error.reason
    return out.tolist()


CASES = [(name, members, "0x1f") for name in INSTRUCTIONS for members in PARTS]
CASES += [
    (name, members, clamp)
    for name, text in INSTRUCTIONS.items()
    for members in ("-1", "%r11")
    for clamp in ("0x181f", "0x1800", "0x1000", "%r13", "%r14")
    if "C" in text
]


@pytest.mark.parametrize("name,members,clamp", CASES)
def test_the_results_are_those_of_python(name, members, clamp, rows):
    text = INSTRUCTIONS[name]
    before, behind = PARTS[members]
    body = before + text.replace("C", clamp).replace("M", members.strip()) + behind
    found = _run(body, True)
    used = [opcode for opcode in rows if not opcode.startswith("vote.sync.ballot")]
    assert found == _run(body, False)
    refusals = ("does not take part", "must be the same", "diverged", "hangs")
    assert isinstance(found, list) or any(refusal in found for refusal in refusals)
    is_one = any(f"{opcode}." in text for opcode in ONE_MEMBERMASK) and members.strip() in ("%r10", "%r11")
    waits = (name, members) == ("a barrier", "-1 ")  # for the exit of the others
    assert not used or isinstance(found, str) or is_one or waits
    assert rows, "kernels=False has Python execute it"


@pytest.mark.parametrize("name", INSTRUCTIONS)
@pytest.mark.parametrize("members", ["0x7fffffff", "%r31"])
def test_a_membermask_that_does_not_name_all(name, members):
    """%r31 does not name its own lane in lane 0."""
    body = "mov.u32 %r31, -1; @%p5 mov.u32 %r31, 0xfffffffe;" + INSTRUCTIONS[name].replace("M", members)
    body = body.replace("C", "0x1f")
    found = _run(body, True)
    assert isinstance(found, str) and found == _run(body, False)


def test_a_cluster(rows):
    """Nobody hears of what the warps of a cluster without a sanitizer do."""
    launch("bar.warp.sync -1;" * 3, grid=2, cluster=2)
    assert not rows
