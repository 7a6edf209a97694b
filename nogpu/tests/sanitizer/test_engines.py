"""Random kernels: the sanitizer's reports do not depend on whether compiled code or Python executes an access."""

import json
import random
import re

import pytest

from nogpu import EmulatorError
from nogpu.sanitizer.observer import Sanitizer
from tests.support.small_kernels import aligned, entry, launch_entry

SEEDS = 16  # kernels for each schedule
BEGIN = """
mov.u32 %r10, smem; setp.eq.u32 %p1, %tid, 0; setp.lt.u32 %p2, %tid, 32; and.b32 %r6, %tid, 31;
setp.lt.u32 %p4, %r6, 16; mov.u32 %r40, 0; mov.u16 %h1, 0; cvta.shared.u64 %rd10, smem;
mad.lo.u32 %r20, %tid, 4, %r10; mad.lo.u32 %r21, %r6, 4, %r10; xor.b32 %r7, %r6, 1; mad.lo.u32 %r22, %r7, 4, %r10;
mad.lo.u32 %r23, %r6, 16, %r10; xor.b32 %r3, %rank, 1; mapa.shared::cluster.u32 %r30, %r21, %r3;
mul.wide.u32 %rd1, %r6, 4; add.s64 %rd11, %rd10, %rd1; add.s64 %rd1, %a0, %rd1;
@%p2 st.shared.v4.b32 [%r23], {%r40, %r40, %r40, %r40};
@%p1 mbarrier.init.shared.b64 [%r10+2048], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;
"""
MEET = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;"
LANES = ("", "", "@%p1 ", "@%p2 ", "@!%p2 ", "@%p4 ", "@!%p4 ")
PLACES = ("%r10", "%r20", "%r21", "%r21", "%r22", "%r23")
ACCESSES = (
    *("st.shared.b32 [{place}+{offset}], 7;", "ld.shared.b32 %r50, [{place}+{offset}];"),
    *("st.shared.u8 [{place}+{offset}], %h1;", "ld.shared.v4.b32 {{%r50, %r51, %r52, %r53}}, [%r23+{chunk}];"),
    "st.shared.v4.b32 [%r23+{chunk}], {{%r40, %r40, %r40, %r40}};",
    *("ld.volatile.shared.b32 %r50, [{place}+{offset}];", "red.shared.add.u32 [{place}+{offset}], 1;"),
    *("st.b32 [%rd11+{offset}], 7;", "ld.b32 %r50, [%rd10+{offset}];", "st.shared::cluster.b32 [%r30+{offset}], 7;"),
    *("ld.shared::cluster.b32 %r50, [%r30+{offset}];", "ld.global.b32 %r50, [%rd1+{offset}];"),
    "cp.async.ca.shared.global [%r21+{offset}], [%rd1], 4;\ncp.async.wait_all;",
)
PLAIN = ACCESSES[:5]
EVENTS = ("bar.sync 0;", "bar.sync 0;", "bar.warp.sync -1;", "fence.acq_rel.cta;", "fence.proxy.async;", MEET)
PARTS = "@%p4 bra A{n};\n{}\nbra B{n};\nA{n}:\n{}\nB{n}:"
HANDS_OVER = "@%p2 bra A{n};\n{}\nbar.arrive 1, 64;\nbra B{n};\nA{n}:\nbar.sync 1, 64;\n{}\nB{n}:"
LOOP = "mov.u32 %r70, 0;\nA{n}:\n{}\n{}\nadd.u32 %r70, %r70, 1;\nsetp.lt.u32 %p8, %r70, 5;\n@%p8 bra A{n};"
ARRIVES = (
    "{}\n@%p1 mbarrier.arrive.shared.b64 _, [%r10+2048];\n{}\n"
    "A{n}: mbarrier.try_wait.parity.shared.b64 %p9, [%r10+2048], 0;\n@!%p9 bra A{n};"
)


def body(seed):
    """A kernel of two CTAs of two warps, an instruction a line."""
    random_ = random.Random(seed)
    choose = random_.choice
    kinds, is_tidy = choose((PLAIN, ACCESSES, ACCESSES)), random_.random() < 0.4

    def access(lanes=None):
        if is_tidy:  # mostly stores of each thread to a word of its own
            text = choose(PLAIN[:2]).format(place="%r20" if random_.random() < 0.95 else "%r22", offset=0)
            return choose(LANES) + text
        text = choose(kinds).format(place=choose(PLACES), offset=choose((0, 0, 4, 64)), chunk=choose((0, 0, 16, 512)))
        return (choose(LANES) if lanes is None else lanes) + text

    lines, shapes = [BEGIN, MEET], [PARTS, HANDS_OVER, LOOP, ARRIVES]
    for n in range(random_.randint(3, 6)):
        kind = random_.random()
        if kind < 0.4:
            lines += [access() for _ in range(random_.randint(1, 4))]
        elif kind < 0.7 or not shapes:
            lines.append(choose(EVENTS))
        else:
            shape = choose(shapes)
            shapes.remove(shape)
            lines.append(shape.format(access(""), access(""), n=n))
        lines += [choose(EVENTS)] if random_.random() < 0.5 else []
    return "\n".join((*lines, MEET))


def verdict(kernel, schedule, compiled):
    """The reason why a launch ends, or None."""
    data = aligned(1024)
    options = {"block": (64, 1, 1), "grid": 2, "cluster": 2, "schedule": schedule, "kernels": compiled}
    try:
        launch_entry(kernel, [data.ctypes.data.to_bytes(8, "little")], [data], sanitizer=Sanitizer(), **options)
    except EmulatorError as error:
        return error.reason
    return None


def reports(path):
    """(rule, lines of the two instructions) of a log's."""
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(each["rule"], *re.findall(r"at PTX line (\d+)", each["text"])[:2]) for each in found}


@pytest.mark.parametrize(
    "schedule", ["random:1", *(pytest.param(each, marks=pytest.mark.slow) for each in ("late", "eager"))]
)
def test_compiled_code_and_python_report_the_same(schedule, monkeypatch, tmp_path):
    counts = []
    for seed in range(SEEDS):
        kernel, engines, verdicts = entry(body(f"{schedule} {seed}")), {}, {}
        for compiled in (True, False):
            monkeypatch.delenv("NOGPU_SANITIZE_LOG", raising=False)
            verdicts[compiled] = verdict(kernel, schedule, compiled)
            log = tmp_path / f"{seed}.{compiled}"
            monkeypatch.setenv("NOGPU_SANITIZE_LOG", str(log))
            assert verdict(kernel, schedule, compiled) is None
            engines[compiled] = reports(log)
        assert engines[True] == engines[False], f"seed {seed}"
        for reason in verdicts.values():
            assert (reason is not None) == bool(engines[True]), f"seed {seed}: {reason}"
            assert reason is None or reason.startswith("sanitizer, rule "), f"seed {seed}: {reason}"
        counts.append(len(engines[True]))
    assert 0 in counts and any(counts)
