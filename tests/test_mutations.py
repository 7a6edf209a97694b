"""A check that has never caught anything is unproven: break the kernel's synchronisation, one instruction at a time, and
the emulator must notice under its default schedules, by an error or by a wrong result."""

import re

import pytest
import torch

import reference
import submission

emulator = pytest.importorskip("emulator")
pytestmark = pytest.mark.skipif(torch.cuda.get_device_name().find("emulated") < 0, reason="mutates PTX in the emulator")

SCHEDULES = ("late", "random:1", "random:2")
SIZES = {"m": (200, 130, 64), "n": (384, 512, 256), "k": (1024, 64, 2048), "g": 3, "seed": 5}

WAIT = re.compile(r"(mbarrier\.try_wait\S+ done, \[\S+\], \S+;\s*@done bra DONE;\s*)bra WAIT;")
ARRIVE = r"mbarrier\.arrive\.shared::(?:cta|cluster)"
LOAD_EMPTY, LOAD_END, MMA_FULL, MMA_ACCUMULATOR, RELAY_FULL = range(5)  # in the order of the PTX, one part per tile
EPILOGUE_ACCUMULATOR = -1


def without(pattern, count=0):
    """Drop `count` (0: all) instructions that match."""
    return lambda ptx: re.sub(rf"(@\S+ )?{pattern}[^;]*;", "", ptx, count=count)


def no_wait(which):
    """Let the which-th mbarrier wait of the PTX return at once."""

    def mutate(ptx):
        match = list(WAIT.finditer(ptx))[which]
        return ptx[: match.start()] + match[1] + ptx[match.end() :]

    return mutate


def replaced(old, new):
    return lambda ptx: re.sub(old, new, ptx)


MUTATIONS = {
    "load does not wait for an empty stage": no_wait(LOAD_EMPTY),
    "load does not wait for the last commits": no_wait(LOAD_END),
    "MMA does not wait for a full stage": no_wait(MMA_FULL),
    "MMA does not wait for a free accumulator": no_wait(MMA_ACCUMULATOR),
    "epilogue does not wait for the accumulator": no_wait(EPILOGUE_ACCUMULATOR),
    "full barrier expects 512 bytes too few": replaced(
        r"(mbarrier\.arrive\.expect_tx\S+ _, \[%r\d+\], )(%r\d+);", r"{.reg .b32 t; sub.s32 t, \2, 512; \1t;}"
    ),
    "full barrier expects 512 bytes too many": replaced(
        r"(mbarrier\.arrive\.expect_tx\S+ _, \[%r\d+\], )(%r\d+);", r"{.reg .b32 t; add.s32 t, \2, 512; \1t;}"
    ),
    "no commit to the empty barrier": without(r"tcgen05\.commit", 1),
    "no arrival on the empty accumulator": without(ARRIVE),
    "two arrivals on the empty accumulator": replaced(rf"({ARRIVE}[^;]*;)", r"\1 \1"),
    "store buffers are reused before they are read": replaced(r"wait_group\.read [1-9];", "wait_group.read 9;"),
    "SMEM is given up before it is stored": without(r"cp\.async\.bulk\.wait_group\.read 0"),
    "nobody waits for the barriers to be initialised": without(r"bar\.sync", 1),
    "TMEM is not given back": without(r"tcgen05\.dealloc"),
    "TMEM is not allocated": without(r"tcgen05\.alloc"),
    "scale factors are copied after the MMA that needs them": replaced(
        r"(?s)(tcgen05\.cp\S+ [^;]*;)(.*?)(tcgen05\.mma[^;]*;)", r"\2\3\1"
    ),
}


PAIR_MUTATIONS = {
    "the leader hears of a full stage before it is full": no_wait(RELAY_FULL),
    "the leader hears twice of a full stage": lambda ptx: re.sub(rf"({ARRIVE}[^;]*;)", r"\1 \1", ptx, count=1),
    "the leader never hears of a full stage": without(ARRIVE, 1),
    "loads do not wait for the other CTA's barriers": without(r"barrier\.cluster\.wait", 1),
    "a CTA of the pair does not wait for the other at its end": lambda ptx: "".join(
        without(r"barrier\.cluster\.(?:wait|arrive)")(part) if i else part
        for i, part in enumerate(re.split(r"(?=bar\.sync\s+2)", ptx))
    ),
    "the other CTA does not learn that a stage is empty": replaced(
        r"(tcgen05\.commit\S+)\.multicast::cluster(\.b64 \[\S+\]), \S+;", r"\1\2;"
    ),
}


def outcomes(monkeypatch, mutate, cta_group):
    """Per schedule: None if the result is right, else what was noticed."""
    from emulator import runtime
    from emulator.device import Device

    device = Device.current()
    changed = []

    def module(text, original=runtime.module):
        changed.append(mutate(text) != text)
        return original(mutate(text))

    found = {}
    for schedule in SCHEDULES:
        with monkeypatch.context() as patch:
            patch.setattr(runtime, "module", module)
            patch.setattr(device, "schedules", (schedule,))
            patch.setattr(submission, "sm_count", lambda device: 2 * cta_group)
            patch.setattr(submission, "shapes", lambda: [(128, cta_group, 1)])
            submission.configure.cache_clear()
            submission.compiled.cache_clear()
            data = reference.generate_input(**SIZES)
            try:
                got = [c.clone() for c in submission.solve(data)]
            except emulator.EmulatorError as error:
                found[schedule] = f"{error}"
            else:
                want = reference.ref_kernel(data)
                same = all(torch.equal(a, b) for a, b in zip(got, want))
                found[schedule] = None if same else "wrong result"
    submission.compiled.cache_clear()
    submission.configure.cache_clear()
    assert changed and all(changed), "the mutation did not apply"
    return found


CASES = [(name, mutate, group) for group in submission.CTA_GROUPS for name, mutate in MUTATIONS.items()]
CASES += [(name, mutate, 2) for name, mutate in PAIR_MUTATIONS.items()]


@pytest.mark.parametrize(
    ("name", "mutate", "cta_group"), CASES, ids=[f"{name}, {group}-SM" for name, _, group in CASES]
)
def test_mutation_is_noticed(monkeypatch, name, mutate, cta_group):
    found = outcomes(monkeypatch, mutate, cta_group)
    assert any(found.values()), f"{name}: unnoticed under {', '.join(SCHEDULES)}"


@pytest.mark.parametrize("cta_group", submission.CTA_GROUPS)
def test_unmutated_kernel_is_silent(monkeypatch, cta_group):
    found = outcomes(monkeypatch, lambda ptx: ptx.replace("// Generated", "// Also generated"), cta_group)
    assert not any(found.values())
