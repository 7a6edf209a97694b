"""Work that a CTA leaves behind when it exits, on small kernels: reported under every schedule, and twins that wait."""

import warnings

import pytest

from nogpu import EmulatorError, errors
from nogpu.sanitizer.observer import Sanitizer
from tests.support.small_kernels import aligned, launch
from tests.support.twins import twin

BEGIN = """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 2048; setp.eq.u32 %p1, %tid, 0; setp.lt.u32 %p2, %tid, 32;
    mad.lo.u32 %r2, %tid, 4, %r10; mul.wide.u32 %rd1, %tid, 4; add.s64 %rd1, %a0, %rd1;
"""
INIT = "@%p1 mbarrier.init.shared.b64 [%r11], {count}; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;"
READ = "@%p1 cp.async.bulk.wait_group.read 0;"
WAIT = "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p9, [%r11], 0; @!%p9 bra W;"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
PEER = INIT.format(count=1) + MEET + "mapa.shared::cluster.u32 %r5, %r11, 1; setp.eq.u32 %p4, %rank, 1; @%p4 bra HEARS;"
# The other CTA stays long enough only by chance.
STAY = "mov.u32 %r7, 0; STAY: add.u32 %r7, %r7, 1; setp.lt.u32 %p5, %r7, 3000; @%p5 bra STAY;"
END = " bra END; HEARS: {wait}" + STAY + " END:"
CLUSTER = {"grid": 2, "cluster": 2}

ARRIVAL = PEER + "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];" + END
COPY = PEER + (
    "@%p1 mapa.shared::cluster.u32 %r4, %r10, 1;"
    "@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r4], [%r10], 128, [%r5]; bra END;"
    "HEARS: @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128; {wait}" + STAY + " END:"
)
STORED = """
    st.shared.b32 [%r2], %tid; fence.proxy.async.shared::cta; bar.sync 0;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r10], 128; @%p1 cp.async.bulk.commit_group; {wait}
"""
LANE_COPY = "cp.async.ca.shared.global [%r2], [%rd1], 4; cp.async.commit_group; {wait}"
LOADED = (
    INIT.format(count=1)
    + """@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128;
    @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [%a0], 128, [%r11]; {wait}"""
)

FAULTS = {
    "an arrival of another CTA": twin("left-behind", ARRIVAL, wait=("", WAIT)),
    "a copy of another CTA": twin("left-behind", COPY, wait=("", WAIT)),
    "an arrival of another CTA behind the one that is waited for": twin(
        "left-behind",
        "@%p1 mbarrier.init.shared.b64 [%r11+8], 1;"
        + ARRIVAL.replace(" bra END;", "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5+8]; bra END;"),
        wait=(WAIT, WAIT.replace("%r11", "%r11+8")),
    ),
    "an arrival of another CTA, none of its own threads waits": twin(
        "left-behind", ARRIVAL.replace("END:", "END: {meet}"), wait="", meet=("", MEET)
    ),
}
DOUBTS = {
    "a bulk store": twin("left-behind", STORED, wait=("", READ)),
    "a bulk store that is not committed": twin(
        "left-behind",
        STORED.replace("@%p1 cp.async.bulk.commit_group;", ""),
        wait=(READ, "@%p1 cp.async.bulk.commit_group;" + READ),
    ),
    "cp.async": twin("left-behind", LANE_COPY, wait=("cp.async.wait_group 1;", "cp.async.wait_group 0;")),
    "a copy of its own": twin("left-behind", LOADED, wait=("", WAIT)),
    "half of a phase": twin(
        "left-behind",
        INIT.format(count=2) + "@%p1 mbarrier.arrive.shared.b64 _, [%r11]; {rest}",
        rest=("", "@%p1 mbarrier.arrive.shared.b64 _, [%r11];"),
    ),
    "a warp on a named barrier": twin(
        "left-behind", "@%p2 bra ARRIVES; {rest} bra END; ARRIVES: bar.arrive 1, 64; END:", rest=("", "bar.sync 1, 64;")
    ),
    "the cluster's barrier": twin(
        "left-behind",
        MEET + "barrier.cluster.arrive.aligned; setp.eq.u32 %p4, %rank, 1; @%p4 bra END; {wait} END:",
        wait=("", "barrier.cluster.wait.aligned;"),
    ),
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """A state in which doubts are reported anew."""
    monkeypatch.setattr(errors, "_reported", set())


def run(body, schedule, allowed=()):
    options = CLUSTER if "cluster.arrive.aligned" in body else {}
    launch(BEGIN + body, aligned(256), schedule=schedule, sanitizer=Sanitizer(allowed), threads=64, **options)


@pytest.mark.parametrize("name", FAULTS)
def test_what_may_reach_a_cta_that_has_exited_is_an_error(monkeypatch, name, schedule):
    """The report does not depend on the schedule; where the work does reach the CTA, a plain rule refuses it."""
    *_, wrong, legal = FAULTS[name]
    with pytest.raises(EmulatorError, match="rule left-behind: .* exits and leaves behind|which has exited") as error:
        run(wrong, schedule)
    if schedule == "eager":
        assert "sanitizer, rule left-behind" in error.value.reason and "(PTX ISA, " in error.value.reason
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    run(legal, schedule)


@pytest.mark.parametrize("name", DOUBTS)
def test_what_is_left_behind_otherwise_is_a_doubt(monkeypatch, name, schedule):
    """A doubt is a warning, or an error in a strict run; a plain rule's where the work is still to come."""
    *_, wrong, legal = DOUBTS[name]
    words = "rule left-behind: .* exits and leaves behind|which has exited without waiting"
    with pytest.warns(errors.OrderingWarning, match=words) as found:
        run(wrong, schedule)
    if schedule == "eager":
        assert all("sanitizer, rule left-behind" in str(warning.message) for warning in found)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run(wrong, schedule, ["left-behind"])
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    with pytest.raises(EmulatorError, match=words):
        run(wrong, schedule)
    run(legal, schedule)


def test_last_phases_that_are_over_need_no_waiter(monkeypatch, schedule):
    """Pipelines end so, including one with expected bytes that no copy brings."""
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    run(INIT.format(count=1) + "@%p1 mbarrier.arrive.shared.b64 _, [%r11];", schedule)
    run(INIT.format(count=1) + "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128;", schedule)
