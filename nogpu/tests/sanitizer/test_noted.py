"""Accesses to shared memory that compiled code notes: checked together, with the reports of a check of each alone."""

import gc
import re
import weakref
from collections import Counter

import pytest

from nogpu import EmulatorError
from nogpu.compiler import python_rows
from nogpu.sanitizer import access_log, observer
from nogpu.sanitizer.global_tables import Tables
from nogpu.sanitizer.observer import Sanitizer
from tests.support.small_kernels import aligned, launch
from tests.support.twins import twin

BEGIN = """
    mov.u32 %r10, smem; setp.eq.u32 %p1, %tid, 0; setp.lt.u32 %p2, %tid, 32;
    mad.lo.u32 %r2, %tid, 4, %r10; mul.wide.u32 %rd1, %tid, 4; add.s64 %rd1, %a0, %rd1;
"""
WARP, CTA = "bar.warp.sync -1;", "bar.sync 0;"
MANY = access_log.ROOM + 8  # more stores than the log takes


def run(body, schedule, threads=64, allowed=(), words=256, **options):
    data = aligned(words)
    options |= {"shared": 256 * (MANY + 1), "sanitizer": Sanitizer(allowed)}
    launch(BEGIN + body, data, schedule=schedule, threads=threads, **options)
    return data


def stores(count, first=0):
    """Stores of each thread, 256 bytes apart."""
    return "\n".join(f"st.shared.b32 [%r2+{256 * (first + n)}], %tid;" for n in range(count))


RACES = {
    "a lane's store, and another's by the next instruction": twin(
        "lanes", "@%p2 st.shared.b32 [%r2], %tid; {edge} @%p2 st.shared.b32 [%r2+4], %tid;", edge=("", WARP)
    ),
    "a lane's store, and another's load": twin(
        "lanes", "@%p2 st.shared.b32 [%r2], %tid; {edge} @%p2 ld.shared.b32 %r5, [%r2+4];", edge=("", WARP)
    ),
    "a lane's store to global memory, and another's by the next instruction": twin(
        "lanes", "@%p2 st.global.b32 [%rd1], %tid; {edge} @%p2 st.global.b32 [%rd1+4], %tid;", edge=("", WARP)
    ),
    "loads, the second of which is read-only": twin(
        "read-only",
        "st.global.b32 [%rd1+256], %tid; ld.global.b32 %r5, [%rd1]; ld.global{path}.b32 %r5, [%rd1+256];",
        path=(".nc", ""),
    ),
    "stores of one lane, and a load of all": twin(
        "lanes|threads",
        "@%p1 st.shared.b32 [%r10], %tid; @%p1 st.shared.b32 [%r10+4], %tid; {edge} ld.shared.b32 %r5, [%r10+4];",
        edge=("", CTA),
    ),
    "loads, and another warp's store": twin(
        "threads",
        "@%p2 ld.shared.b32 %r5, [%r10+128]; @%p2 ld.shared.b32 %r5, [%r10+132]; {edge} @!%p2 st.shared.b32 [%r2], 1;",
        edge=("", CTA),
    ),
}
WRITTEN = "st.shared.b32 [%r2], %tid; bar.sync 0;"


@pytest.mark.parametrize("name", RACES)
def test_a_race_is_reported_and_its_ordered_twin_is_not(name, schedule):
    rule, _, racy, legal = RACES[name]
    with pytest.raises(EmulatorError, match=f"sanitizer, rule ({rule}): nothing orders"):
        run(WRITTEN + racy, schedule)
    run(WRITTEN + legal, schedule)


@pytest.mark.parametrize("chosen", (0, 2, MANY - 1))
def test_the_instruction_of_the_byte_is_named(chosen):
    """The report names the right one of many instructions that one warp executes in a row."""
    body = f"@!%p2 bra OTHER;\n{stores(MANY)}\nbra DONE;\nOTHER: ld.shared.b32 %r5, [%r10+{256 * chosen}];\nDONE:"
    with pytest.raises(EmulatorError, match="rule threads: nothing orders") as error:
        run(body, "late")
    lines = [int(line) for line in re.findall(r"at PTX line (\d+), which", error.value.reason)]
    assert abs(lines[0] - lines[1]) == MANY - chosen + 1


WAIT = "WAITS: mbarrier.try_wait.parity.shared.b64 %p9, [%r10+2048], 0; @!%p9 bra WAITS;"
STOPS = {"hangs": WAIT, "polls": "POLLS: bra POLLS;", "counts": "COUNTS: add.u32 %r9, %r9, 1; bra COUNTS;"}


@pytest.mark.parametrize("memory", ["shared", "global"])
@pytest.mark.parametrize("name", STOPS)
def test_a_kernel_that_does_not_end_has_its_accesses_checked(name, memory):
    """Accesses that no event has followed are checked, since they may be the reason."""
    place = {"shared": "%r10", "global": "%a0"}[memory]
    body = "mov.u32 %r9, 0; @%p1 mbarrier.init.shared.b64 [%r10+2048], 1; bar.sync 0; setp.eq.u32 %p3, %tid, 32;"
    body += f"@%p1 st.{memory}.b32 [{place}], 1; @%p3 st.{memory}.b32 [{place}+OTHER], 2;" + STOPS[name]
    with pytest.raises(EmulatorError, match="rule threads: nothing orders"):
        run(body.replace("OTHER", "0"), "late", max_instructions=5000)
    with pytest.raises(EmulatorError, match="the kernel hangs|stopped after"):
        run(body.replace("OTHER", "4"), "late", max_instructions=5000)


# Warp 0 stores 128 bytes by one instruction, 128 by another; they are loaded, or stored in bulk, at once.
BOTH = {
    "global": (
        "@%p2 st.global.b32 [%rd1], %tid; @%p2 st.global.u32 [%rd1+128], %tid; sub.s64 %rd1, %rd1, 128; {}"
        "@!%p2 ld.global.u32 %r5, [%rd1]; @!%p2 ld.global.u32 %r5, [%rd1+128];",
        "threads",
        CTA,
    ),
    "shared": (
        "@%p2 st.shared.b32 [%r2], %tid; @%p2 st.shared.u32 [%r2+128], %tid; {} bar.sync 0;"
        "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r10], 256; @%p1 cp.async.bulk.commit_group;"
        "@%p1 cp.async.bulk.wait_group 0;",
        "proxy-fence",
        "fence.proxy.async.shared::cta;",
    ),
}


@pytest.mark.parametrize("memory", BOTH)
def test_each_instruction_has_its_waiver_and_its_report(memory, monkeypatch, tmp_path):
    body, rule, edge = BOTH[memory]
    for one, other in (("b32", "u32"), ("u32", "b32")):
        with pytest.raises(EmulatorError, match=rf"rule {rule}: (?s:.*) behind\n    st\.{memory}\.{other}"):
            run(body.format(""), "late", allowed=[f"{rule}@st.{memory}.{one}"])
    run(body.format(""), "late", allowed=[f"{rule}@st.{memory}.{one}" for one in ("b32", "u32")])
    run(body.format(edge), "late")
    monkeypatch.setenv("NOGPU_SANITIZE_LOG", str(tmp_path / "log"))
    run(body.format(""), "late")
    texts = (tmp_path / "log").read_text()
    assert all(f"behind\\n    st.{memory}.{one}" in texts for one in ("b32", "u32"))


# Bytes of a lane -> type and registers. A warp accesses words in a row, twice, 1,536 bytes apart.
WORDS = {1: ("u8", "%r5"), 2: ("u16", "%h1"), 4: ("b32", "%r5"), 8: ("b64", "%rd5")}
WORDS |= {16: ("v4.b32", "{%r5, %r6, %r7, %r8}"), 32: ("v4.b64", "{%rd5, %rd6, %rd7, %rd8}")}
SET = "mov.u32 %r9, 0; mov.u16 %h1, 0;" + "".join(f"mov.u32 %r{n}, 0; mov.u64 %rd{n}, 0;" for n in range(5, 9))
RUNS = f"""{SET}
    and.b32 %r3, %tid, 31; mad.wide.u32 %rd2, %r3, {{width}}, %a0; add.s64 %rd2, %rd2, {{start}}; @!%p2 bra OTHERS;
    {{access}} {{access_behind}} bra DONE; OTHERS: setp.eq.u32 %p3, %tid, 32; @%p3 {{other}}.global.u8 {{byte}}; DONE:
"""


@pytest.mark.parametrize(("kind", "other"), (("st", "ld"), ("ld", "st")))
@pytest.mark.parametrize(("width", "start"), [(w, s) for w in WORDS for s in sorted({0, w % 16, 4 * w % 16 or w})])
def test_words_in_a_row_are_exactly_their_bytes(width, start, kind, other):
    """Another warp races with the first and the last of them, and with none beside them."""

    def access(kind, at):
        type_of, registers = WORDS[width]
        place = f"[%rd2+{at}]"
        return f"{kind}.global.{type_of} " + (f"{registers}, {place};" if kind == "ld" else f"{place}, {registers};")

    def beside(offset):
        byte = f"%r9, [%a0+{offset}]" if other == "ld" else f"[%a0+{offset}], %r9"
        accesses = {"access": access(kind, 0), "access_behind": access(kind, 1536)}
        run(RUNS.format(width=width, start=start, other=other, byte=byte, **accesses), "late", words=1024)

    for first in (start, start + 1536):
        for racy in (first, first + 32 * width - 1):
            with pytest.raises(EmulatorError, match="rule threads: nothing orders"):
                beside(racy)
        for silent in {first - 1, first + 32 * width} - {-1}:
            beside(silent)


@pytest.mark.parametrize("width", WORDS)
def test_a_lane_of_words_in_a_row_has_its_own(width):
    type_of, registers = WORDS[width]
    body = f"""{SET}
        mad.wide.u32 %rd2, %tid, {width}, %a0; st.global.{type_of} [%rd2], {registers};
        xor.b32 %r3, %tid, OTHER; mad.wide.u32 %rd2, %r3, {width}, %a0; EDGE ld.global.{type_of} {registers}, [%rd2];
    """
    with pytest.raises(EmulatorError, match="rule lanes: nothing orders"):
        run(body.replace("OTHER", "31").replace("EDGE", ""), "late", threads=32)
    run(body.replace("OTHER", "31").replace("EDGE", WARP), "late", threads=32)
    run(body.replace("OTHER", "0").replace("EDGE", ""), "late", threads=32)
    run(body.replace("OTHER", "0").replace("EDGE", "setp.gt.u32 %p3, %tid, 12; @%p3"), "late", threads=32)


def test_loads_and_stores_of_the_same_words_are_reported_in_order():
    body = CTA + "ld.global.b32 %r5, [%rd1]; st.global.b32 [%rd1], %tid; ld.global.b32 %r5, [%rd1+4];"
    with pytest.raises(EmulatorError, match=r"rule lanes: nothing orders\n    ld.*\n  behind\n    st\."):
        run(body, "late", threads=32)


def test_reads_of_a_warp_are_one_entry_until_somebody_writes(monkeypatch):
    kept, begin = [], Tables.__init__

    def noted(self, allocation):
        begin(self, allocation)
        kept.append(self)

    monkeypatch.setattr(Tables, "__init__", noted)
    body = "".join(f"ld.global.b32 %r5, [%rd1+{256 * n}];" for n in range(4))
    run(body, "late", words=256 + 64)
    assert [len(tables.reads) for tables in kept if tables.end - tables.start == 1280] == [2]  # one of each warp
    kept.clear()
    with pytest.raises(EmulatorError, match="rule threads: nothing orders"):
        run(body + "@%p1 st.global.b32 [%a0+128], 1;", "late", words=256 + 64)
    assert [tables.reads for tables in kept if tables.end - tables.start == 1280] == [None]


def test_bytes_that_nobody_has_written_are_followed():
    copied = "ld.shared.b32 %r5, [%r2+{}]; st.shared.b32 [%r2+512], %r5; ld.shared.b32 %r6, [%r2+512];"
    out = "st.global.b32 [%rd1], %r6;"
    with pytest.raises(EmulatorError, match="rule uninitialised"):
        run(WRITTEN + copied.format(256) + out, "late")
    found = run(WRITTEN + copied.format(0) + out, "late")
    assert found[:64].tolist() == list(range(64))


def test_accesses_stay_in_compiled_code(monkeypatch):
    """All accesses are in compiled code, except for one each time that the log is full."""
    called, execute = Counter(), python_rows.PythonRows.run

    def counted(self, index, g, mask):
        if index >= 0:
            called[g.grid.entry.instructions[index].opcode] += 1
        return execute(self, index, g, mask)

    monkeypatch.setattr(python_rows.PythonRows, "run", counted)
    run(stores(8) + CTA + "ld.shared.b32 %r5, [%r2];", "late")
    assert not called["st.shared.b32"] and not called["ld.shared.b32"]
    run(stores(MANY), "late", threads=32)
    assert called["st.shared.b32"] == 1


def test_what_follows_a_cluster_is_freed_when_it_ends(monkeypatch):
    """No search for garbage frees it, and the collector's settings stay."""
    followed, thresholds = [], gc.get_threshold()
    begin = observer.ClusterSanitizer.__init__

    def kept(self, *arguments):
        begin(self, *arguments)
        followed.append(weakref.ref(self))

    monkeypatch.setattr(observer.ClusterSanitizer, "__init__", kept)
    gc.disable()
    try:
        run(stores(8), "late")
        assert len(followed) == 1 and followed[0]() is None
    finally:
        gc.enable()
    assert gc.get_threshold() == thresholds
