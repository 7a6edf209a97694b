"""The sanitizer on words that order accesses: atomics by lane, stores that end a release, scopes of clusters."""

import pytest

from nogpu import EmulatorError
from nogpu.sanitizer.observer import Sanitizer
from tests.support.small_kernels import aligned, launch
from tests.support.twins import twin

BEGIN = """
    .reg .b32 %cta, %lane, %warp; mov.u32 %cta, %ctaid.x; and.b32 %lane, %tid, 31; shr.u32 %warp, %tid, 5;
    mov.u32 %r10, smem; mad.lo.u32 %r2, %tid, 4, %r10; mov.u64 %rd9, smem;
    mul.wide.u32 %rd2, %tid, 4; add.s64 %rd2, %a0, %rd2; mov.u32 %r4, 1;
    setp.eq.u32 %p1, %tid, 0; setp.eq.u32 %p2, %warp, 0; setp.eq.u32 %p3, %lane, 0;
    setp.eq.u32 %p5, %cta, 0; setp.eq.u32 %p6, %cta, 1; setp.eq.u32 %p7, %cta, 2;
"""

# Lanes store words, and change their own by an atomic, or another lane's.
OWN = "st.shared.b32 [%r2], 0; xor.b32 %r3, %tid, {other}; mad.lo.u32 %r3, %r3, 4, %r10; {atomic}"
OWN_GLOBAL = """
    st.global.b32 [%rd2], 0; xor.b32 %r3, %tid, {other}; mul.wide.u32 %rd3, %r3, 4; add.s64 %rd3, %a0, %rd3; {atomic}
"""
# Lanes of warp 0 store a word each, and release a flag each; warp 1 acquires the first lane's flag, and loads.
FLAGS = """
    st.shared.b32 [%r2+1024], 0; bar.sync 0; @!%p2 bra LOADS;
    st.shared.b32 [%r2], %tid; st.release.cta.shared.b32 [%r2+1024], %r4; bra END;
LOADS: ld.acquire.cta.shared.b32 %r5, [%r10+1024]; setp.eq.u32 %p9, %r5, 0; @%p9 bra LOADS;
    ld.shared.b32 %r6, [%r10+{word}];
END:
"""

# Warp 0 stores a word and releases a flag. Warp 1 may look, and then changes the flag, too; warp 2 looks only when
# that is over, of which it learns from a relaxed word: it has not seen the first value.
SHARED_FLAG = """
    @%p1 st.shared.b32 [%r10+1024], 0; @%p1 st.shared.b32 [%r10+1028], 0; bar.sync 0; @!%p3 bra END;
    setp.eq.u32 %p4, %warp, 1; @%p2 bra FIRST;
    @%p4 bra SECOND;
THIRD: ld.relaxed.cta.shared.b32 %r5, [%r10+1028]; setp.ne.u32 %p9, %r5, 1; @%p9 bra THIRD;
    ld.acquire.cta.shared.b32 %r5, [%r10+1024]; ld.shared.b32 %r6, [%r10]; bra END;
SECOND: ld.{look}.cta.shared.b32 %r5, [%r10+1024]; setp.ne.u32 %p9, %r5, 1; @%p9 bra SECOND; {second}
    st.relaxed.cta.shared.b32 [%r10+1028], 1; bra END;
FIRST: st.shared.b32 [%r10], %tid; st.release.cta.shared.b32 [%r10+1024], %r4;
END:
"""
# Three CTAs and a flag in global memory.
GLOBAL_FLAG = """
    @!%p1 bra END; @%p5 bra FIRST; @%p6 bra SECOND;
THIRD: ld.relaxed.gpu.global.b32 %r5, [%a0+516]; setp.ne.u32 %p9, %r5, 1; @%p9 bra THIRD;
    ld.acquire.gpu.global.b32 %r5, [%a0+512]; ld.global.b32 %r6, [%a0]; bra END;
SECOND: ld.{look}.gpu.global.b32 %r5, [%a0+512]; setp.ne.u32 %p9, %r5, 1; @%p9 bra SECOND; {second}
    st.relaxed.gpu.global.b32 [%a0+516], %r4; bra END;
FIRST: st.global.b32 [%a0], %r4; st.release.gpu.global.b32 [%a0+512], %r4;
END:
"""
# CTA 0 releases; CTA 1, in a cluster of its own, stores the flag; another thread of CTA 0 waits for that.
THERE_AND_BACK = """
    @!%p3 bra END; @%p6 bra SECOND; @!%p2 bra THIRD;
    st.global.b32 [%a0], %r4; st.release.gpu.global.b32 [%a0+512], %r4; bra END;
SECOND: @!%p2 bra END;
AGAIN: ld.{look}.gpu.global.b32 %r5, [%a0+512]; setp.ne.u32 %p9, %r5, 1; @%p9 bra AGAIN; {second}
    st.relaxed.gpu.global.b32 [%a0+516], %r4; bra END;
THIRD: ld.relaxed.gpu.global.b32 %r5, [%a0+516]; setp.ne.u32 %p9, %r5, 1; @%p9 bra THIRD;
    ld.acquire.gpu.global.b32 %r5, [%a0+512]; ld.global.b32 %r6, [%a0];
END:
"""
# One thread releases a flag, and stores it again.
AGAIN = """
    @%p1 st.shared.b32 [%r10+1024], 0; @%p1 st.shared.b32 [%r10+1028], 0; bar.sync 0; @!%p3 bra END; @%p2 bra FIRST;
LOADS: ld.acquire.cta.shared.b32 %r5, [%r10+1024]; setp.ne.u32 %p9, %r5, 2; @%p9 bra LOADS;
    ld.shared.b32 %r6, [%r10]; bra END;
FIRST: {before} st.release.cta.shared.b32 [%r10+1024], 1; {behind} st.relaxed.cta.shared.b32 [%r10+1024], 2;
END:
"""
# Lanes of warp 0 draw tickets by one instruction; the lane with one of them releases a flag. Warp 1 loads the word.
TICKETS = """
    @%p1 st.shared.b32 [%r10], 0; @%p1 st.shared.b32 [%r10+1024], 0; bar.sync 0; @!%p2 bra LOADS;
    atom.shared.add.u32 %r5, [%r10], 1; setp.eq.u32 %p4, %r5, {ticket};
    @%p4 st.release.cta.shared.b32 [%r10+1024], 1; bra END;
LOADS: ld.acquire.cta.shared.b32 %r5, [%r10+1024]; setp.eq.u32 %p9, %r5, 0; @%p9 bra LOADS; ld.shared.b32 %r6, [%r10];
END:
"""
RELEASED, RELEASED_GLOBAL = "st.release.cta.shared.b32 [%r10+1024], 2;", "st.release.gpu.global.b32 [%a0+512], 2;"
RELAXED_GLOBAL = RELEASED_GLOBAL.replace("release", "relaxed")
ADDED = "atom.relaxed.cta.shared.add.u32 %r7, [%r10+1024], 1;"
ADDED_GLOBAL = "red.relaxed.gpu.global.add.u32 [%a0+512], 1;"
STORED = "st.shared.b32 [%r10], %tid;"

THREADS, TWO, THREE = {"threads": 64}, {"threads": 64, "grid": 2}, {"threads": 32, "grid": 3}
WARPS = {"threads": 96}
CASES = {
    **{
        name: twin("lanes", body, THREADS, other=(1, 0), atomic=atomic)
        for name, body, atomic in (
            ("an atomic of another lane's word", OWN, "atom.shared.add.u32 %r5, [%r3], 1;"),
            ("an atomic sum of another lane's number", OWN, "red.shared.add.f32 [%r3], 0f3F800000;"),
            ("an atomic of another lane's global word", OWN_GLOBAL, "atom.global.add.u32 %r5, [%rd3], 1;"),
        )
    },
    "the lane with the last ticket but one tells": twin("threads", TICKETS, THREADS, ticket=(30, 31)),
    "a flag of each lane": twin("threads", FLAGS, THREADS, word=(4, 0)),
    "a relaxed store of another warp": twin(
        "order|threads", SHARED_FLAG, WARPS, look="relaxed", second=(RELEASED.replace("release", "relaxed"), ADDED)
    ),
    "another warp releases what it has not acquired": twin(
        "order|threads", SHARED_FLAG, WARPS, look=("relaxed", "acquire"), second=RELEASED
    ),
    "a relaxed store of another cluster": twin(
        "order|clusters", GLOBAL_FLAG, THREE, look="relaxed", second=(RELAXED_GLOBAL, ADDED_GLOBAL)
    ),
    "another cluster releases what it has not acquired": twin(
        "order|clusters", GLOBAL_FLAG, THREE, look=("relaxed", "acquire"), second=RELEASED_GLOBAL
    ),
    "a relaxed store of another cluster in between": twin(
        "order|threads", THERE_AND_BACK, TWO, look="acquire", second=(RELAXED_GLOBAL, RELEASED_GLOBAL)
    ),
    "stores of a thread behind its release": twin("order", AGAIN, THREADS, before=("", STORED), behind=(STORED, "")),
}


def run(body, schedule, **options):
    launch(BEGIN + body, aligned(512), schedule=schedule, sanitizer=Sanitizer(), **options)


@pytest.mark.parametrize("name", CASES)
def test_a_race_is_reported_and_its_ordered_twin_is_silent(name, schedule, monkeypatch):
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    rule, options, racy, legal = CASES[name]
    with pytest.raises(EmulatorError, match=f"sanitizer, rule ({rule}): nothing orders") as error:
        run(racy, schedule, **options)
    assert error.value.reason.partition("namely")[0].count("at PTX line") == 2 and "(PTX ISA, " in error.value.reason
    run(legal, schedule, **options)
