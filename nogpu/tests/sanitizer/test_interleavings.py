"""Verdicts on constructs that one order does not show: the broken kernel fails in some order, its twin is clean."""

from contextlib import nullcontext

import pytest

from nogpu import EmulatorError
from nogpu.execution.device import Device
from nogpu.hardware.properties import LaunchConfig
from nogpu.sanitizer import traces
from nogpu.sanitizer.explore import Explorer
from nogpu.sanitizer.observer import Sanitizer
from tests.support.small_kernels import aligned, entry
from workshop import orders

RUNS = 400


def started(explorer=None, schedule="late", sanitized=False):
    """(words, device that has them as a0)"""
    data, device = aligned(256), Device((schedule,), 1)
    device.memory.register(data.ctypes.data, data.nbytes, "a0")
    kept = {"kept_reads": None} if schedule.startswith("replay:") else {}
    device.explorer, device.sanitizer = explorer, Sanitizer(**kept) if sanitized else None
    return data, device


def run(body, warps=2, grid=1, cluster=1, **options):
    """Run a body. Returns the words that it leaves."""
    data, device = started(**options)
    config = LaunchConfig((grid, 1, 1), (32 * warps, 1, 1), (cluster, 1, 1), 4096)
    device.launch(entry(body), config, [data.ctypes.data.to_bytes(8, "little")])
    device.synchronize()
    return data


def verdict(body, runs=RUNS, **options):
    """Verdict on a body. Raises EmulatorError."""
    explorer = Explorer(runs)
    run(body, explorer=explorer, **options)
    return explorer.verdicts[0]


# Thread 0 of each warp, %r1 its number, %r10 where words of zeros are.
START = """
    mov.u32 %r10, smem; mad.lo.u32 %r4, %tid, 4, %r10; st.shared.b32 [%r4], 0; bar.sync 0;
    shr.u32 %r1, %tid, 5; and.b32 %r2, %tid, 31; setp.ne.u32 %p1, %r2, 0; @%p1 bra END; setp.ne.u32 %p2, %r1, 1;
"""


def by_warp(first, others):
    """PTX in which warp 1, the first behind the barrier under "late", does one thing, others another."""
    return START + f"@%p2 bra OTHER;\n{first}\nbra END;\nOTHER: {others}\nEND:"


LOCK = "L{n}: atom.acquire.cta.shared.cas.b32 %r6, [%r10+4], 0, 1; setp.ne.u32 %p3, %r6, 0; @%p3 bra L{n};"
UNLOCK = "st.release.cta.shared.b32 [%r10+4], 0;"
WRITE, READ = "st.shared.b32 [%r10+16], 5;", "ld.shared.b32 %r7, [%r10+16];"
LOCKED, OTHER = LOCK.format(n=0), LOCK.format(n=1)
COUNT = "atom.acq_rel.cta.shared.add.u32 %r6, [%r10+8], 1;"
SIGNAL, LOOK = "st.release.cta.shared.b32 [%r10+8], 1;", "ld.acquire.cta.shared.b32 %r6, [%r10+8];"
IF_SET = "setp.ne.u32 %p4, %r6, 1; @%p4 bra END;"
TICKET = "atom.relaxed.cta.shared.add.u32 %r6, [%r10+8], 1; setp.ne.u32 %p4, %r6, 0; @%p4 bra SECOND{n};"
GO = "st.release.cta.shared.b32 [%r10+12], 1; bra END;"
AWAIT = "SECOND{n}: ld.acquire.cta.shared.b32 %r6, [%r10+12]; setp.ne.u32 %p4, %r6, 1; @%p4 bra SECOND{n}; {then}"
TRY = "atom.acquire.cta.shared.cas.b32 %r6, [%r10+4], 0, 1;"
TELLS = "atom.release.cta.shared.cas.b32 %r6, [%r10+8], 0, 1;"
CLAIMS = "atom.relaxed.cta.shared.cas.b32 %r6, [%r10+8], 0, 2;" + LOOK
IF_LOCKED = "setp.ne.u32 %p4, %r6, 0; @%p4 bra END;"
POLL = "mov.u32 %r5, 0; P: {look} add.u32 %r5, %r5, 1; setp.ne.u32 %p4, %r6, 1; setp.lt.u32 %p5, %r5, 3;"
POLL += "and.pred %p5, %p4, %p5; @%p5 bra P;"
ARRIVE = "atom.{order}.gpu.global.add.u32 %r6, [%a0+64], 1; setp.ne.u32 %p4, %r6, 1; @%p4 bra END;"
PARTIAL = "mul.wide.u32 %rd1, %r20, 4; add.s64 %rd1, %a0, %rd1; st.global.b32 [%rd1], 7;"
LAST = "ld.global.b32 %r7, [%a0]; ld.global.b32 %r8, [%a0+4]; add.u32 %r7, %r7, %r8;"
LAST += "st.global.b32 [%a0+128], %r7; bra END;"
READERS = 10
SEE, SAY = "ld.global.b32 %r7, [%a0];", "red.release.cta.shared.add.u32 [%r10+8], 1;"


def arrivals(zero, others):
    """Two CTAs store parts; the last to arrive adds them. CTA 0 arrives with one order, CTA 1 with another."""
    return (
        "setp.ne.u32 %p1, %tid, 0; @%p1 bra END; mov.u32 %r20, %ctaid.x;\n"
        + PARTIAL
        + f"setp.ne.u32 %p2, %r20, 0; @%p2 bra OTHER;\n{ARRIVE.format(order=zero)}{LAST}"
        f"\nOTHER: {ARRIVE.format(order=others)}{LAST}\nEND:"
    )


def tickets(one, other):
    return by_warp(
        TICKET.format(n=0) + one + AWAIT.format(n=0, then=""), TICKET.format(n=1) + other + AWAIT.format(n=1, then="")
    )


def readers(first):
    """Ten warps load a word and say so, the first of them in another order; then warp 1 stores it."""
    return by_warp(
        "W: ld.acquire.cta.shared.b32 %r6, [%r10+8]; setp.ne.u32 %p4, %r6, 10; @%p4 bra W; st.global.b32 [%a0], 5;",
        f"setp.eq.u32 %p3, %r1, 0; @%p3 bra FIRST; {SEE}{SAY} bra END; FIRST: {first}",
    )


RACE = "sanitizer, rule"
CONSTRUCTS = {
    # name: (broken, how it fails, right, options)
    "lock hand-off": (
        by_warp(WRITE + LOCKED + UNLOCK, OTHER + READ + UNLOCK),
        RACE,
        by_warp(LOCKED + WRITE + UNLOCK, OTHER + READ + UNLOCK),
        {},
    ),
    "acq_rel counter": (by_warp(WRITE + COUNT, COUNT + READ), RACE, by_warp(WRITE + COUNT, COUNT + IF_SET + READ), {}),
    "flag looked at once": (
        by_warp(WRITE + SIGNAL, LOOK + READ),
        RACE,
        by_warp(WRITE + SIGNAL, LOOK + IF_SET + READ),
        {},
    ),
    "ticket branch": (tickets(GO, "bra END;"), "the kernel hangs", tickets(GO, GO), {}),
    "try-lock whose loser proceeds": (
        by_warp(LOCKED + WRITE + UNLOCK, TRY + WRITE + UNLOCK),
        RACE,
        by_warp(LOCKED + WRITE + UNLOCK, TRY + IF_LOCKED + WRITE + UNLOCK),
        {},
    ),
    "failing CAS as release": (
        by_warp(
            WRITE + TELLS,
            CLAIMS + "setp.eq.u32 %p4, %r6, 0; @%p4 bra END;" + READ,
        ),
        RACE,
        by_warp(
            WRITE + TELLS,
            CLAIMS + IF_SET + READ,
        ),
        {},
    ),
    "bounded poll": (
        by_warp(WRITE + SIGNAL, POLL.format(look=LOOK) + READ),
        RACE,
        by_warp(WRITE + SIGNAL, POLL.format(look=LOOK) + IF_SET + READ),
        {},
    ),
    "more than eight readers": (
        readers(SAY + SEE),
        RACE,
        readers(SEE + SAY),
        {"warps": READERS + 1},
    ),
    "CTA 0 arrives last": (
        arrivals("release", "acq_rel"),
        RACE,
        arrivals("acq_rel", "acq_rel"),
        {"grid": 2, "warps": 1},
    ),
}
# Constructs that one order shows, too: the sanitizer knows that there have been more readers than it names.
SHOWN = ("more than eight readers",)


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_broken_construct(name):
    """One order shows nothing, but for SHOWN; the search finds one that does, and its replay shows it again."""
    body, how, _, options = CONSTRUCTS[name]
    with pytest.raises(EmulatorError, match=how) if name in SHOWN else nullcontext():
        run(body, sanitized=True, **options)
    with pytest.raises(EmulatorError, match=how) as error:
        verdict(body, sanitized=True, **options)
    assert "again by --" in error.value.reason
    with pytest.raises(EmulatorError, match=how):
        run(body, schedule=error.value.schedule, sanitized=True, **options)


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_its_right_twin(name):
    body, options = CONSTRUCTS[name][2:]
    found = verdict(body, sanitized=True, **options)
    assert found.word == "clean", found


# Barriers whose phases depend on the order: (broken, how it fails); its twin waits where it must

INIT = """
    mov.u32 %r10, smem; setp.eq.u32 %p1, %tid, 0; @%p1 mbarrier.init.shared.b64 [%r10+64], {count}; bar.sync 0;
    shr.u32 %r1, %tid, 5; and.b32 %r2, %tid, 31; setp.ne.u32 %p1, %r2, 0; @%p1 bra END; setp.ne.u32 %p2, %r1, 1;
    @%p2 bra OTHER;
"""
ON = "mbarrier.arrive{more}.shared.b64 _, [%r10+64]{bytes};"
HERE, EXPECTS = ON.format(more="", bytes=""), ON.format(more=".expect_tx", bytes=", 16")
PHASE = "W{n}: mbarrier.try_wait.parity.shared.b64 %p3, [%r10+64], {n}; @!%p3 bra W{n};"
ZERO, ONE = PHASE.format(n=0), PHASE.format(n=1)
AGAIN = ZERO.replace("W0", "V0")
LATER = "mbarrier.expect_tx.relaxed.cta.shared.b64 [%r10+64], 16;"
COPY = "add.u32 %r11, %r10, 128; add.u32 %r12, %r10, 64; cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes "
COPY += "[%r11], [%a0], 16, [%r12]; {expects} " + AGAIN + "ld.shared.b32 %r5, [%r11];"


def phases(one, other, count=1):
    return INIT.format(count=count) + f"{one}\nbra END;\nOTHER: {other}\nEND:"


PHASES = {
    "a phase that a warp may miss": (
        phases(ZERO + HERE, HERE + AGAIN),
        "the kernel hangs",
        phases(ZERO + HERE, HERE + ONE),
    ),
    "bytes that are expected when the phase may be over": (
        phases(COPY.format(expects=LATER), HERE),
        f"{RACE}|the kernel hangs",
        phases(COPY.format(expects=EXPECTS), HERE, 2),
    ),
    "two warps race for a phase": (phases(HERE, HERE + HERE, 2), None, phases(HERE + ZERO, HERE + AGAIN, 2)),
}


@pytest.mark.parametrize("name", PHASES)
def test_phases(name):
    """A phase that depends on the order: an error, or further orders; none where threads wait as they must."""
    body, how, right = PHASES[name]
    if how is None:
        assert verdict(body).traces > 1
    else:
        with pytest.raises(EmulatorError, match=how):
            verdict(body, sanitized=True)
    found = verdict(right, sanitized=True)
    assert (found.word, found.traces) == ("clean", 1)


def test_what_is_left():
    """A verdict is bounded where the search cannot reverse an order, or has not run all that it has found."""
    lanes = "mov.u32 %r10, smem; and.b32 %r2, %tid, 1; setp.eq.u32 %p3, %r2, 1; @%p3 bra ODD;"
    lanes += "L: ld.acquire.cta.shared.b32 %r6, [%r10+8]; setp.ne.u32 %p4, %r6, 1; @%p4 bra L; bra END;"
    lanes += "ODD: st.release.cta.shared.b32 [%r10+8], 1; END:"
    lanes = "mov.u32 %r10, smem; setp.eq.u32 %p1, %tid, 0; @%p1 st.shared.b32 [%r10+8], 0; bar.sync 0;" + lanes
    found = verdict(lanes, warps=1)
    assert found.word == "bounded" and "lanes of a warp that have parted" in found.left[0]
    clock = verdict("mov.u32 %r5, %clock; st.volatile.global.b32 [%a0], 1;")
    assert clock.word == "bounded" and clock.left == ["values of the clock"]
    few = verdict(CONSTRUCTS["bounded poll"][2], runs=2)
    assert few.word == "bounded" and few.runs == 2 and few.left[-1].startswith("orders that were found and not run: ")


@pytest.mark.parametrize("index", range(24))
def test_random_kernels(index):
    """The search and a model that executes all interleavings one by one agree (`workshop.orders`)."""
    found, text, _ = orders.outcome(orders.case(0, index))
    assert found in (orders.CLEAN, orders.FAILS), text


def test_a_search_that_takes_words_for_independent_is_noticed(monkeypatch):
    """The model sees outcomes that a search without pairs of words does not."""
    monkeypatch.setattr(traces.Trace, "_word", lambda *arguments: None)
    words = {orders.outcome(orders.case(0, index))[0] for index in range(12)}
    assert orders.DIFFERS in words


SENDS = WRITE + "st.{}.cta.shared.b32 [%r10+4], 1;"
RECEIVES = "L: ld.{}.cta.shared.b32 %r6, [%r10+4]; setp.eq.u32 %p3, %r6, 0; @%p3 bra L;" + READ
LOAD = "ld.shared.b32 %r6, [%r10+{}]; setp.eq.u32 %p3, %r6, 0; @%p3 bra END;"
# Each with what breaks the rule, and its right twin.
RULES = {
    "order": [
        by_warp(SENDS.format(how), RECEIVES.format(then))
        for how, then in (("relaxed", "relaxed"), ("release", "acquire"))
    ],
    "uninitialised": [by_warp(LOAD.format(offset), "") for offset in (1024, 16)],
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_that_no_order_shows(rule):
    """A search under the sanitizer reports them, one without it does not; a kept rule is silent."""
    broken, right = RULES[rule]
    assert verdict(broken).word == "clean"
    with pytest.raises(EmulatorError, match=rf"(?s){RACE} {rule}:.*found in run 1 of"):
        verdict(broken, sanitized=True)
    assert verdict(right, sanitized=True).word == "clean"
