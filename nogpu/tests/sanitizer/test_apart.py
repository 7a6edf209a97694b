"""CTAs that compiled code keeps under the sanitizer: the reports of CTAs that Python starts, and no Python."""

import json
import random
import re

import numpy as np
import pytest

from nogpu import EmulatorError
from nogpu.compiler.python_rows import PythonRows
from nogpu.execution import machine
from nogpu.sanitizer import observer, spans
from nogpu.sanitizer.global_accesses import GlobalAccesses
from nogpu.sanitizer.observer import Sanitizer
from tests.support.small_kernels import aligned, launch

CTAS, THREADS = 60, 64
ALONE = 25  # a CTA that is neither the first nor the last of those that compiled code keeps in a row
SEEDS = 12
WORDS = 16 * CTAS * THREADS
# %rd1, %rd2: a place of 16 bytes by thread in each of two arrays; %rd3: the warp's place, %rd4: a neighbour's.
BEGIN = f"""
    mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, {THREADS}, %tid; mul.wide.u32 %rd5, %r2, 16;
    add.s64 %rd1, %a0, %rd5; add.s64 %rd2, %a1, %rd5; mul.wide.u32 %rd6, %tid, 12; sub.s64 %rd3, %rd1, %rd6;
    xor.b32 %r3, %r2, 1; mul.wide.u32 %rd6, %r3, 16; add.s64 %rd4, %a1, %rd6; mov.u32 %r10, 0;
    mov.u32 %r11, 0; mov.u32 %r12, 0; mov.u32 %r13, 0; setp.eq.u32 %p1, %r1, {ALONE}; setp.lt.u32 %p2, %tid, 40;
    setp.ge.u32 %p3, %r1, 45; mov.u32 %r14, smem;
"""
ACCESSES = (
    *("ld.global.b32 %r10, [{}];", "st.global.b32 [{}], %r10;", "ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [{}];"),
    *("st.global.v4.b32 [{}], {{%r10, %r11, %r12, %r13}};", "ld.global.nc.b32 %r10, [{}];", "st.global.b32 [{}], 7;"),
)
PLACES = ("%rd1", "%rd2", "%rd3", "%rd4", "%rd1", "%rd2", "%a0", "%a1+61424", "%rd1+16", "%rd2+1024", "%rd3+4")
GUARDS = ("", "", "", "@%p1 ", "@%p2 ", "@!%p2 ", "@%p3 ")
OTHERS = ("bar.sync 0;", "@%p3 bar.sync 0;", "@%p1 atom.shared.add.u32 %r20, [%r14], 1;", "st.shared.b32 [%r14], 1;")
PUBLIC = "@%p1 fence.acq_rel.gpu;"


def body(seed):
    """A random kernel whose CTAs mostly keep apart."""
    random_ = random.Random(seed)
    choose = random_.choice
    places = PLACES[:2] if random_.random() < 0.5 else PLACES
    lines = []
    for access in random_.choices(ACCESSES, k=random_.randint(2, 5)):
        aligned_places = [place for place in places if "v4" not in access or "%rd3" not in place]
        lines.append(choose(GUARDS) + access.format(choose(aligned_places)))
    if random_.random() < 0.4:
        lines.insert(random_.randrange(len(lines)), choose((*OTHERS, PUBLIC)))
    return BEGIN + "\n".join(lines)


def reports(path):
    """(rule, lines of the two instructions, in any order) of a log's."""
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(each["rule"], *sorted(re.findall(r"at PTX line (\d+)", each["text"])[:2])) for each in found}


def touched(sanitizer, arrays):
    """[writes, reads of other bytes]: spans of the arrays by offset in the first one, with the writes' instructions."""
    base, found = np.array([arrays.ctypes.data, arrays.ctypes.data, 0]), {True: [spans.NOWHERE], False: [spans.NOWHERE]}
    for each in sanitizer.take_touched().get(0, ()):
        if 0 <= each.start - arrays.ctypes.data < arrays.nbytes:
            found[each.writes].append(each.spans - base)
    writes, reads = (np.concatenate(found[kind]) for kind in (True, False))
    writes = spans.of_runs(*writes[np.argsort(writes[:, 0])].T)
    return writes.tolist(), spans.without(spans.merged(reads[:, 0], reads[:, 1], 1), writes).tolist()


@pytest.fixture
def followed(monkeypatch):
    """A function that runs a body: (reason of an error, logged reports, spans). Its argument: CTAs may be kept."""

    def run(text, keeps, tmp_path):
        arrays = aligned(2 * WORDS).reshape(2, WORDS)
        results = []
        with monkeypatch.context() as patch:
            patch.setattr(machine, "MOST_IN_VAIN", machine.MOST_IN_VAIN if keeps else 0)
            patch.setattr(observer, "KEPT_ROOM", 256)
            for log in (None, tmp_path / f"{keeps}.log"):
                patch.delenv("NOGPU_SANITIZE_LOG", raising=False)
                if log is not None:
                    patch.setenv("NOGPU_SANITIZE_LOG", str(log))
                sanitizer = Sanitizer()
                sanitizer.queues.are_several = True
                try:
                    launch(text, *arrays, grid=CTAS, threads=THREADS, schedule="late", sanitizer=sanitizer)
                    results.append(None)
                except EmulatorError as error:
                    results.append(error.reason)
            found = touched(sanitizer, arrays)
        return results, reports(tmp_path / f"{keeps}.log"), found

    return run


def test_reports_are_those_of_ctas_that_python_starts(followed, tmp_path, monkeypatch):
    kept = []
    keep = GlobalAccesses.keep
    monkeypatch.setattr(GlobalAccesses, "keep", lambda self, *a: (kept.append(len(a[1])), keep(self, *a))[1])
    counts = []
    for seed in range(SEEDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        text = body(seed)
        (one, in_log), logged, found = followed(text, True, folder)
        (other, _), expected, bytes_touched = followed(text, False, folder)
        assert logged == expected and in_log is None, f"seed {seed}"
        assert (one is None) == (other is None) == (not logged), f"seed {seed}: {one}"
        assert found == bytes_touched, f"seed {seed}"
        counts.append(len(logged))
    assert 0 in counts and any(counts) and sum(kept) > 1000


@pytest.mark.parametrize(
    "text",
    [
        "ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd1]; st.global.v4.b32 [%rd2], {%r10, %r11, %r12, %r13};",
        "ld.global.b32 %r10, [%rd3]; st.global.b32 [%rd3], %r10;",  # in place
        "@%p2 ld.global.b32 %r10, [%a1]; @%p2 st.global.b32 [%rd1], %r10;",  # part of a warp, one word for all
        # More accesses of a warp than its log takes.
        "mov.u32 %r20, 0; L: st.global.b32 [%rd1], %r20; add.u32 %r20, %r20, 1; setp.lt.u32 %p9, %r20, 150;@%p9 bra L;",
    ],
)
def test_ctas_that_keep_apart_need_no_python(text, monkeypatch):
    counted, arrays = [], aligned(2 * WORDS).reshape(2, WORDS)
    run = PythonRows.run
    monkeypatch.setattr(PythonRows, "run", lambda *a: (counted.append(1), run(*a))[1])
    monkeypatch.setattr(GlobalAccesses, "_replay", lambda *a: pytest.fail("recorded"))
    launch(BEGIN + text, *arrays, grid=CTAS, threads=THREADS, schedule="late", sanitizer=Sanitizer())
    assert not counted


# CTAs a and b, whose numbers are in a2, access 512 bytes behind the others' places, b with an offset that a2 has, too.
MEETING = """
    st.global.b32 [%rd1], %r2; ld.global.v4.b32 {{%r20, %r21, %r22, %r23}}, [%a2]; and.b32 %r3, %tid, 31;
    setp.lt.u32 %p5, %tid, 32; setp.eq.and.u32 %p6, %r1, %r20, %p5; setp.eq.and.u32 %p7, %r1, %r21, %p5;
    {place} cvt.u64.u32 %rd8, %r22; add.s64 %rd8, %rd7, %rd8;
    @%p6 {first}.global.{first_type} {first_operands};
    @%p7 {second}.global.{second_type} {second_operands};
"""
OPERANDS = {"st": "[{}], %r1", "ld": "%r10, [{}]"}
PAIRS = [(0, 1), (1, 4), (3, 4), (4, 5), (4, 8), (6, 7), (6, 40), (13, 14), (29, 30), (13, 59), (58, 59)]


@pytest.mark.parametrize(
    "first, second, stride",
    [("st", "st", 0), ("st", "st", 4), ("st", "ld", 0), ("st", "ld", 12), ("ld", "st", 4), ("ld", "st", 12)],
)
def test_two_ctas_that_meet_are_named(first, second, stride):
    """Wherever they are among those that compiled code keeps and those that Python starts or ends."""
    operands = OPERANDS[first].format("%rd7"), OPERANDS[second].format("%rd8")
    types = {"first_type": "b32", "second_type": "u32"}
    place = f"mad.wide.u32 %rd7, %r3, {stride}, %a3;" if stride else "mov.b64 %rd7, %a3;"
    text = MEETING.format(
        place=place, first=first, second=second, first_operands=operands[0], second_operands=operands[1], **types
    )
    for a, b in PAIRS:
        for offset in (0, 512):
            arrays = [aligned(WORDS), aligned(WORDS), aligned(np.array([a, b, offset, 0], np.uint32)), aligned(256)]
            options = {"grid": CTAS, "threads": THREADS, "schedule": "late", "sanitizer": Sanitizer()}
            if offset:
                launch(BEGIN + text, *arrays, **options)
                continue
            with pytest.raises(EmulatorError, match="sanitizer, rule clusters: nothing orders") as error:
                launch(BEGIN + text, *arrays, **options)
            named = re.findall(r"(\w+)\.global\.(\w)32 of warp 0 of CTA \((\d+), 0, 0\)", error.value.reason)
            assert named == [(second, "u", str(b)), (first, "b", str(a))], (a, b)
            assert error.value.cta == (b, 0, 0) and error.value.warp == 0


@pytest.mark.parametrize("path", [".nc", ""])
def test_a_lane_loads_what_it_has_stored(path):
    text = BEGIN + f"st.global.b32 [%rd3], 7; @%p1 ld.global{path}.b32 %r10, [%rd3];"
    options = {"grid": CTAS, "threads": THREADS, "schedule": "late", "sanitizer": Sanitizer()}
    arrays = aligned(2 * WORDS).reshape(2, WORDS)
    if path:
        with pytest.raises(EmulatorError, match="sanitizer, rule read-only"):
            launch(text, *arrays, **options)
    else:
        launch(text, *arrays, **options)
