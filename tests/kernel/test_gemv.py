"""The GEMV: its plans, its kernel bit for bit, overlapping and refused calls, and broken kernels that are noticed."""

import functools
import itertools
import re

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import reference
import submission
import task
from emulator.ptx.module import parse
from submission import GemvPlan, ceil_div
from tests.support.configurations import EMULATED, PROMISED, set_chip
from tests.support.mutants import calls_that_need, nth_replaced, replaced, run_mutated, without, without_wait
from tools import binaries, report

SCHEDULES = ("eager", "late", "random:1")
in_emulation = pytest.mark.skipif(not EMULATED, reason="overlaps launches and mutates PTX in emulation")
needs_ptxas = pytest.mark.skipif(
    not binaries.installed("ptxas"), reason="no ptxas in site-packages or on PATH; the extra `report` brings it"
)

# e4m3 codes of scales, and the unit that all of them are multiples of.
NAN = 0x7F
INTEGERS = (0x00, 0x38, 0x40, 0x44, 0xB8, 0xC0, 0xC4), 1  # 0 to 3
SUBNORMAL = (*range(0x01, 0x08), *range(0x81, 0x88)), 2**-9
LARGEST = (*range(0x78, 0x7F), *range(0xF8, 0xFF)), 32  # 256 to 448
FINITE = tuple(code for code in range(256) if code & 0x7F != NAN), 2**-9
SMALL = (*range(0x20), *range(0x80, 0xA0)), 2**-9  # below 1/8, subnormal ones too


# ----------------------------------------------------------------------------------------------------------------------
# Inputs and comparison
# ----------------------------------------------------------------------------------------------------------------------


def batched(rows):
    """[rows, columns, L] from [L, rows, columns]."""
    return rows.permute(1, 2, 0)


def operand(rows, k, batches, of_scales):
    """Every e2m1 code, and e4m3 scales of these codes."""
    values = torch.randint(0, 256, (batches, rows, k // 2), dtype=torch.uint8, device="cuda")
    codes = torch.tensor(of_scales[0], dtype=torch.uint8, device="cuda")
    scales = codes[torch.randint(0, len(codes), (batches, rows, k // 16), device="cuda")]
    return batched(values.view(torch.float4_e2m1fn_x2)), batched(scales.view(torch.float8_e4m3fn))


def generate(m, k, batches=1, b_rows=128, seed=1, of_a=INTEGERS, of_b=INTEGERS):
    """A call's tuple without the reordered scales, which a GEMV does not read.

    c is full of NaN, and so are the scales of all rows of b but the first.
    """
    torch.manual_seed(seed)
    (a, sfa), (b, sfb) = operand(m, k, batches, of_a), operand(b_rows, k, batches, of_b)
    sfb.view(torch.uint8)[1:] = NAN
    c = batched(torch.full((batches, m, 1), torch.nan, dtype=torch.float16, device="cuda"))
    return a, b, sfa, sfb, None, None, c


def magnitudes(data):
    """Float64 sums of the products' magnitudes, [L, M]."""
    a, b, sfa, sfb, *_ = data
    unsigned = [
        (tensor.permute(2, 0, 1).contiguous().view(torch.uint8) & mask).view(tensor.dtype)
        for tensor, mask in ((b[:1], 0x77), (a, 0x77), (sfb[:1], 0x7F), (sfa, 0x7F))
    ]
    return torch.stack([reference.float64_mm(*(of[batch] for of in unsigned))[0] for batch in range(a.shape[2])])


def same(ours, theirs):
    return torch.equal(ours.contiguous().view(torch.int16), theirs.contiguous().view(torch.int16))


def solve_and_compare(data, unit=None, solve=submission.solve):
    """Bit for bit. unit: every product is a multiple of it; checks that fp32 sums of them are exact, in any order."""
    if unit is not None:
        assert magnitudes(data).max() < 2**24 * unit
    got = solve(data)
    assert got is data[-1], "solve returns the caller's tensor"
    assert same(got.clone(), reference.gemv_ref_kernel(data))


def prepare(monkeypatch, plan=None, sms=None, schedules=None, mutate=None, share_sms=False):
    """A solver for so many SMs; from now on with this plan for every K, these schedules, every kernel's PTX mutated.

    share_sms: the emulated chip has no more SMs either, so that launches meet on them.
    """
    if plan is not None:
        monkeypatch.setattr(submission, "gemv_plan", lambda k: plan)
    for remembered in ("configure_gemv", "host_tables"):
        monkeypatch.setattr(submission, remembered, functools.lru_cache(getattr(submission, remembered).__wrapped__))
    set_chip(monkeypatch, schedules, sms if share_sms else None)
    if mutate is not None:
        run_mutated(monkeypatch, mutate)
    return functools.partial(submission.run, sms=sms)


# ----------------------------------------------------------------------------------------------------------------------
# Plans
# ----------------------------------------------------------------------------------------------------------------------


def test_a_team_spans_k_in_as_few_rounds_and_warps_as_that_takes():
    for k in range(64, 200_001, 64):
        plan = submission.gemv_plan(k)
        of_warp = 32 * 2 * 16
        rounds = ceil_div(k, plan.k_warps * of_warp)
        assert rounds == ceil_div(k, 32 * of_warp), k
        assert (plan.k_warps - 1) * rounds * of_warp < k, f"K {k}: one warp too many"
        assert plan.team_blocks * 16 == plan.k_warps * of_warp


def test_lanes_loads_are_whole():
    """K is a multiple of what a lane takes of a row, so no load crosses the end of one."""
    assert submission.MMA_K % (submission.LANE_BLOCKS * submission.SF_BLOCK) == 0
    assert submission.WARP_BLOCKS == 32 * submission.LANE_BLOCKS
    assert submission.ROWS_AHEAD % submission.ROWS_AT_ONCE == 0
    assert submission.ROW_WORDS == submission.LANE_BLOCKS * 2 + 1, "values, and the scales in a word"


def test_plans_fit_the_hardware():
    for k in range(64, 200_001, 64):
        plan = submission.gemv_plan(k)
        warps = plan.k_warps * plan.teams
        assert 1 <= warps <= 32 and 32 - warps < plan.k_warps, f"K {k}: room for another team"
        assert plan.threads == 32 * warps and plan.threads % 32 == 0
        assert plan.smem_bytes == 4 * submission.ROWS_MAX * plan.k_warps <= 48 * 1024, "what needs no opting in"
        # Rows ahead, b as f16x2 and its scales, of the registers that ptxas may give a thread.
        blocks = submission.LANE_BLOCKS
        held = submission.ROWS_AHEAD * submission.ROW_WORDS + 8 * blocks + blocks
        assert held <= 65536 // 1024 - 24, "little is left for sums and addresses"


def test_bytes_in_flight_are_the_docstring_s():
    plan = submission.gemv_plan(2048)
    in_flight = plan.threads * submission.ROWS_AHEAD * submission.LANE_BLOCKS * 9
    assert f"{in_flight:,} bytes in flight per SM" in submission.__doc__


@pytest.mark.parametrize(
    ("name", "values", "others", "most"),
    [
        ("k_warps", (0, -1, 33), {}, 32),
        ("k_warps", (5, 16), {"warps": 4}, 4),
        ("warps", (0, -1, 33), {"k_warps": 1}, 32),
    ],
)
def test_refused_plans(name, values, others, most):
    for value in values:
        with pytest.raises(ValueError, match=f"^{name} is {value}; it must be 1 to {most},"):
            GemvPlan(**{name: value}, **others)


ROWS = (1, 2, 7, 15, 16, 17, 128, 129, 255, 256, 257, 2432, 4096, 7168, 37_888, 37_889, 100_000, 1_000_003)
PLANS = [submission.gemv_plan(k) for k in (64, 4160, 7168, 16384, 32832)] + [GemvPlan(2, warps=5)]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_rows_of_ctas(plan):
    for m, batches, sms in itertools.product(ROWS, (1, 2, 3, 8, 147, 148, 149, 1000), (1, 2, 3, 132, 148)):
        ctas = submission.ctas_per_batch(plan, m, batches, sms)
        share, longer = m // ctas, m % ctas  # as the kernel takes them
        ends = [min(cta, longer) + cta * share for cta in {0, 1, longer, ctas - 1, ctas} if cta <= ctas]
        assert ends[0] == 0 and max(ends) == m, "the first begins at row 0 and the last ends at row M"
        assert 1 <= share and share + (longer > 0) <= submission.ROWS_MAX, (m, batches, sms)
        for_rows = ceil_div(m, submission.ROWS_MAX)
        assert ctas * batches <= sms or ctas == for_rows, (m, batches, sms)
        assert ctas <= ceil_div(m, plan.teams) or ctas == for_rows, f"{(m, batches, sms)}: a team without a row"
        assert (ctas + 1) * batches > sms or ctas >= ceil_div(m, plan.teams), f"{(m, batches, sms)}: an idle SM"


def test_the_host_table_has_the_share_of_a_cta(monkeypatch):
    prepare(monkeypatch)
    for m, batches, sms in itertools.product(ROWS, (1, 8), (3, 148)):
        plan, words = submission.configure_gemv(m, 128, 2048, batches, sms)
        ctas = submission.ctas_per_batch(plan, m, batches, sms)
        assert list(words) == [m, 128, 128, m // ctas, ctas, batches]
    assert 1 + len(words) == submission.GEMV_HEADER
    assert len(submission.tensor_names(0)) == submission.GEMV_TENSORS


# ----------------------------------------------------------------------------------------------------------------------
# The kernel
# ----------------------------------------------------------------------------------------------------------------------


def sizes_of(spec):
    return {name: int(value) for name, value in re.findall(r"(\w+): (\d+)", spec)}


CHEAP = [spec for spec in task.GEMV.tests if sizes_of(spec)["m"] * sizes_of(spec)["k"] * sizes_of(spec)["l"] < 400_000]


@pytest.mark.parametrize("spec", CHEAP)
def test_contest_tests(monkeypatch, spec):
    """The cheap ones; the others are those of `eval.py test`."""
    solve = prepare(monkeypatch, schedules=SCHEDULES)
    data = reference.generate_gemv_input(**sizes_of(spec))
    data[-1].fill_(torch.nan)
    solve_and_compare(data, unit=1 / 4, solve=solve)


def test_there_are_cheap_contest_tests():
    assert len(CHEAP) == 3


@pytest.mark.parametrize("k", [64, 448, 1088])
@pytest.mark.parametrize("m", [1, 7, 129])
def test_ragged_shapes(monkeypatch, m, k):
    for batches, sms in ((1, 1), (3, 3), (1, 148)):
        solve = prepare(monkeypatch, sms=sms, schedules=("late",))
        solve_and_compare(generate(m, k, batches, seed=m + k), unit=1 / 4, solve=solve)


@pytest.mark.parametrize("k", [1088, 4160])
def test_schedules_agree(monkeypatch, k):
    solve = prepare(monkeypatch, sms=3, schedules=SCHEDULES)
    solve_and_compare(generate(19, k, 3), unit=1 / 4, solve=solve)


@pytest.mark.parametrize("b_rows", [1, 5, 128])
def test_first_row_of_b_counts(b_rows):
    """Scales of the other rows are NaN; every batch has as many of them."""
    solve_and_compare(generate(7, 448, 3, b_rows), unit=1 / 4)


ROUND_AGAIN = {
    GemvPlan(1, warps=1): (64, 1024, 1088, 2112),
    GemvPlan(2, warps=5): (1088, 2048, 2112, 3136),
    GemvPlan(1, warps=3): (64, 1024, 1088, 3136),
    GemvPlan(3, warps=3): (2112, 3072, 3136, 4160, 5184),
}


@pytest.mark.parametrize("plan", ROUND_AGAIN, ids=str)
def test_k_longer_than_a_team_goes_round_again(monkeypatch, plan):
    solve = prepare(monkeypatch, plan, sms=2)
    for k in ROUND_AGAIN[plan]:
        solve_and_compare(generate(11, k, seed=k), unit=1 / 4, solve=solve)


def test_k_longer_than_the_widest_team(monkeypatch):
    """33 warps' K: two rounds of 17, the last of which has two lanes' parts."""
    plan = submission.gemv_plan(32832)
    assert (plan.k_warps, plan.teams) == (17, 1)
    solve = prepare(monkeypatch, sms=2)
    solve_and_compare(generate(5, 32832), unit=1 / 4, solve=solve)


@pytest.mark.parametrize("rows", [255, 256, 257])
def test_as_many_rows_as_a_cta_takes(monkeypatch, rows):
    """K 4160 makes six teams, which do not divide the most rows."""
    solve = prepare(monkeypatch, sms=1)
    solve_and_compare(generate(rows, 4160, seed=rows), unit=1 / 4, solve=solve)


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [(SUBNORMAL, SUBNORMAL), (LARGEST, SUBNORMAL), (SUBNORMAL, LARGEST), (LARGEST, LARGEST), (INTEGERS, LARGEST)],
    ids=["subnormal", "largest and subnormal", "subnormal and largest", "largest", "integers and largest"],
)
def test_extreme_scales(monkeypatch, of_a, of_b):
    """Signed ones too. Of the largest scales most sums are beyond float16 and become infinite."""
    solve = prepare(monkeypatch, sms=3)
    data = generate(129, 1088, of_a=of_a, of_b=of_b)
    solve_and_compare(data, unit=of_a[1] * of_b[1] / 4, solve=solve)
    finite = data[-1].isfinite().float().mean()
    assert finite < 0.1 if of_a is of_b is LARGEST else finite > 0.1
    assert not data[-1].isnan().any()


def test_every_pair_of_codes(monkeypatch):
    """Row 16 i + j has code i where b has code j, and zeros elsewhere: each product by itself."""
    solve = prepare(monkeypatch, sms=3)
    a, b, sfa, sfb, *rest = generate(256, 256, b_rows=1)
    place = torch.arange(256, device="cuda")
    codes = torch.zeros((256, 256), dtype=torch.uint8, device="cuda")
    codes[place, place] = (place // 16).to(torch.uint8)
    of_b = (place % 16).to(torch.uint8)[None]
    for tensor, values in ((a, codes), (b, of_b)):
        tensor.view(torch.uint8)[:, :, 0] = values[:, 0::2] | values[:, 1::2] << 4
    for scales in (sfa, sfb):
        scales.view(torch.uint8).fill_(0x38)
    data = (a, b, sfa, sfb, *rest)
    solve_and_compare(data, unit=1 / 4, solve=solve)
    assert len(set(data[-1].flatten().tolist())) == 37, "as many products as there are"


@pytest.mark.parametrize("k", [1088, 6208])
def test_any_finite_scales(monkeypatch, k):
    """Sums do not fit fp32: in at most 1% of the rows the rounding error shows, as one spacing of float16."""
    solve = prepare(monkeypatch, sms=3)
    data = generate(256, k, of_a=FINITE, of_b=SMALL)
    found, want = solve(data).clone(), reference.gemv_ref_kernel(data)
    assert found.isfinite().float().mean() > 0.9
    bits = [tensor.contiguous().view(torch.int16).int() for tensor in (found, want)]
    ordered = [torch.where(of < 0, -(of & 0x7FFF), of) for of in bits]
    apart = (ordered[0] - ordered[1]).abs()
    assert apart.max() <= 1 and (apart > 0).float().mean() <= 0.01


def inside(tensor, poison, rows):
    """The same tensor with as many rows of poison before and behind it, and the buffer that it lies in."""
    packed = tensor.permute(2, 0, 1)
    guard = ceil_div(rows * packed.shape[2] * packed.element_size(), 32) * 32
    content = packed.contiguous().view(torch.uint8).flatten()
    buffer = torch.full((guard + content.numel() + guard,), poison, dtype=torch.uint8, device="cuda")
    buffer[guard : guard + content.numel()] = content
    middle = buffer[guard : guard + content.numel()]
    return batched(middle.view(tensor.dtype).view(packed.shape)), buffer, slice(guard, guard + content.numel())


@pytest.mark.parametrize(("m", "k", "batches", "sms"), [(7, 64, 1, 148), (129, 1088, 3, 3), (37, 4160, 2, 1)])
def test_nothing_outside_is_used_or_written(monkeypatch, m, k, batches, sms):
    """Neighbours of every operand are poison, those of c canaries."""
    solve = prepare(monkeypatch, sms=sms)
    a, b, sfa, sfb, *_, c = data = generate(m, k, batches)
    want = reference.gemv_ref_kernel(data)
    poisoned = [inside(t, poison, 128) for t, poison in ((a, 0x77), (b, 0x77), (sfa, NAN), (sfb, NAN), (c, 0x5A))]
    before = [buffer.clone() for _, buffer, _ in poisoned]
    *operands, output = [tensor for tensor, _, _ in poisoned]
    solve((*operands, None, None, output))
    found = [buffer.clone() for _, buffer, _ in poisoned]
    assert all(torch.equal(*pair) for pair in zip(found[:-1], before[:-1])), "operands stay as they are"
    where = poisoned[-1][2]
    assert same(found[-1][where].view(torch.float16), want.permute(2, 0, 1).flatten())
    assert torch.equal(found[-1][: where.start], before[-1][: where.start])
    assert torch.equal(found[-1][where.stop :], before[-1][where.stop :])


@st.composite
def plans_and_k(draw):
    """A plan and a K that gives each warp of a team its part; the plans of `gemv_plan` are no narrower than that."""
    warps = draw(st.integers(1, 32))
    plan = GemvPlan(draw(st.integers(1, min(warps, 4))), warps)
    least = (plan.k_warps - 1) * submission.WARP_BLOCKS * 16
    return plan, least + 64 * draw(st.integers(1, 60))


WITHOUT_SHRINKING = (Phase.explicit, Phase.generate)  # which would compile hundreds of plans


@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=WITHOUT_SHRINKING,
)
@given(
    plans_and_k(),
    st.integers(1, 60),
    st.integers(1, 3),
    st.sampled_from((1, 3, 128)),
    st.sampled_from((1, 3, 20)),
    st.integers(0, 2**31),
)
def test_random_legal_shapes_and_plans(plan_and_k, m, batches, b_rows, sms, seed):
    plan, k = plan_and_k
    with pytest.MonkeyPatch.context() as patch:
        solve = prepare(patch, plan, sms)
        solve_and_compare(generate(m, k, batches, b_rows, seed), unit=1 / 4, solve=solve)


# ----------------------------------------------------------------------------------------------------------------------
# Calls back to back
# ----------------------------------------------------------------------------------------------------------------------

OVERLAPPING = ("late", "eager", "random:2")


def with_c_of(data, other):
    return *data[:-1], other[-1]


def sharing_c(count, m=20, k=1088):
    """Calls that write the same c, the last with the most to do before it stores."""
    calls = [generate(m, k if index else 4 * k, seed=index) for index in range(count)]
    return [with_c_of(data, calls[0]) for data in calls]


def as_operand(halves, rows):
    """The bytes of a contiguous tensor of float16 as those of e2m1 [rows, K/2, 1]."""
    return batched(halves.view(torch.uint8).view(1, rows, -1).view(torch.float4_e2m1fn_x2))


def chained():
    """Two calls, the second with the first one's output as its b: 128 values of fp16 are 512 of e2m1.

    e2m1 has no NaN, so every output is a legal operand, and small scales keep the sums exact and finite.
    """
    first, second = generate(128, 320, seed=8), generate(20, 512, b_rows=1, seed=9)
    return first, (second[0], as_operand(first[-1].permute(2, 1, 0), 1), *second[2:])


def bystander():
    """A short call that shares nothing with the others."""
    return generate(8, 64, seed=10)


def right(data):
    return same(data[-1].clone(), reference.gemv_ref_kernel(data))


@pytest.fixture
def solve(monkeypatch):
    """A solver for two SMs, on which launches meet."""
    return prepare(monkeypatch, sms=2, schedules=OVERLAPPING, share_sms=True) if EMULATED else submission.solve


@pytest.mark.parametrize("operands_ready", [False, True])
def test_the_last_of_calls_that_share_their_output_stays(solve, operands_ready):
    calls = sharing_c(3)
    for data in calls:
        solve(data, operands_ready=operands_ready)
    assert right(calls[-1])


def test_calls_with_free_outputs(solve):
    """As the contest times them."""
    calls = [generate(m, k, seed=m) for m, k in ((20, 1088), (40, 448), (7, 4160))]
    for data in calls:
        solve(data, **PROMISED)
    assert all(map(right, calls))


def test_repeated_calls_of_one_input(solve):
    data = generate(20, 1088)
    for _ in range(2):
        solve(data, **PROMISED)
    assert right(data)


@pytest.mark.parametrize("output_free", [False, True])
def test_a_call_may_consume_the_output_of_the_one_before(solve, output_free):
    first, second = chained()
    solve(first)
    solve(second, output_free=output_free)
    assert right(second)


def test_a_call_may_consume_an_output_past_a_call_that_waits_for_nothing(solve):
    """The third call waits for the end of the second, which comes after the end of the first."""
    (first, third), second = chained(), bystander()
    solve(first)
    solve(second, **PROMISED)
    solve(third)
    assert right(second) and right(third)


def test_a_gemm_between_two_gemvs(solve):
    """Kernels of different kinds on the same SMs, each with the output of the one before as an operand."""
    first, last = generate(128, 64, seed=1), generate(20, 512, b_rows=1, seed=2)
    (((_, b, c),), *rest) = reference.generate_input(m=(2,), n=(128,), k=(256,), g=1, seed=3)
    gemm = ([(as_operand(first[-1].permute(2, 1, 0), 2), b, c)], *rest)
    last = (last[0], as_operand(c.permute(2, 0, 1)[:, :1], 1), *last[2:])
    for data in (first, gemm, last):
        solve(data)
    assert right(first) and right(last)
    assert same(c.clone(), reference.ref_kernel(gemm)[0])


@in_emulation
@pytest.mark.parametrize("promise", ["operands_ready", "output_free"])
def test_promises_are_used(monkeypatch, promise):
    """A wrong one makes the result depend on who is first."""
    import emulator

    solve = prepare(monkeypatch, sms=2, schedules=OVERLAPPING, share_sms=True)
    first, second = chained() if promise == "operands_ready" else sharing_c(2)
    solve(first)
    solve(second, operands_ready=True, output_free=promise == "output_free")
    with pytest.raises(emulator.EmulatorError, match="schedules disagree"):
        right(second)


# ----------------------------------------------------------------------------------------------------------------------
# Refused calls
# ----------------------------------------------------------------------------------------------------------------------

A, B, SFA, SFB, _, _, C = range(7)


def with_changed(data, index, change):
    entries = list(data)
    entries[index] = change(entries[index])
    return tuple(entries)


def shifted(tensor):
    """The same tensor 8 bytes past a multiple of 16."""
    buffer = torch.zeros(tensor.nbytes + 64, dtype=torch.uint8, device="cuda")
    start = -buffer.data_ptr() % 16 + 8
    middle = buffer[start : start + tensor.nbytes].view(tensor.dtype)
    return middle.as_strided(tensor.shape, tensor.stride())


def with_rows_apart(tensor):
    rows, columns, batches = tensor.shape
    buffer = torch.zeros(2 * tensor.nbytes, dtype=torch.uint8, device="cuda").view(tensor.dtype)
    return buffer.as_strided(tensor.shape, (2 * columns, 1, 2 * rows * columns))


@pytest.fixture
def unlaunched(monkeypatch):
    monkeypatch.setattr(submission, "compiled", lambda plan: pytest.fail("launched"))


VIOLATIONS = {
    "a's dtype": (A, lambda t: t.view(torch.uint8), r"^a has dtype torch.uint8; expected torch.float4_e2m1fn_x2"),
    "sfa's dtype": (SFA, lambda t: t.view(torch.uint8), r"^sfa has dtype torch.uint8; expected torch.float8_e4m3fn"),
    "c's dtype": (C, lambda t: t.float(), r"^c has dtype torch.float32; expected torch.float16"),
    "sfa on the CPU": (SFA, lambda t: t.cpu(), r"^sfa is on cpu; expected the current device, cuda:"),
    "sfb on the CPU": (SFB, lambda t: t.cpu(), r"^sfb is on cpu; expected the current device, cuda:"),
    "c on the CPU": (C, lambda t: t.cpu(), r"^c is on cpu; expected the current device, cuda:"),
    "b's K": (B, lambda t: t[:, :64], r"^b has shape \(128, 64, 2\); expected \(128, 128, 2\)"),
    "sfa's rows": (SFA, lambda t: t[:4], r"^sfa has shape \(4, 16, 2\); expected \(5, 16, 2\)"),
    "sfb's rows": (SFB, lambda t: t[:1], r"^sfb has shape \(1, 16, 2\); expected \(128, 16, 2\)"),
    "c's rows": (C, lambda t: t[:4], r"^c has shape \(4, 1, 2\); expected \(5, 1, 2\)"),
    "b's L": (B, lambda t: t[:, :, :1], r"^b has shape \(128, 128, 1\); expected \(128, 128, 2\)"),
    "c's L": (C, lambda t: t[:, :, :1], r"^c has shape \(5, 1, 1\); expected \(5, 1, 2\)"),
    "a's rows apart": (A, with_rows_apart, r"^a has strides \(256, 1, 1280\); expected \(128, 1, 640\)"),
    "sfa's rows apart": (SFA, with_rows_apart, r"^sfa has strides \(32, 1, 160\); expected \(16, 1, 80\)"),
    "c's rows apart": (C, with_rows_apart, r"^c has strides \(2, 1, 10\); expected \(1, 1, 5\)"),
    "a misaligned": (A, shifted, r"^a starts at address 0x\w+; loads need a multiple of 16 bytes"),
    "b misaligned": (B, shifted, r"^b starts at address 0x\w+; loads need a multiple of 16 bytes"),
    "no sfa": (SFA, lambda t: None, r"^sfa is a NoneType; expected a torch.Tensor"),
    "no b": (B, lambda t: None, r"^b is NoneType; expected a tensor of 3 dimensions"),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_violations_name_the_tensor_and_the_limit(unlaunched, name):
    index, change, message = VIOLATIONS[name]
    with pytest.raises(ValueError, match=message):
        submission.solve(with_changed(generate(5, 256, 2), index, change))


def cut(data, rows=None, columns=None, of=(A, SFA, C)):
    """Fewer rows or columns of the operands, K / 2 of values and K / 16 of scales."""
    for index in of:
        data = with_changed(data, index, lambda t: t[:rows])
    if columns is not None:
        for index, count in ((A, columns // 2), (B, columns // 2), (SFA, columns // 16), (SFB, columns // 16)):
            data = with_changed(data, index, lambda t, count=count: t[:, :count].contiguous())
    return data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: cut(data, columns=96), r"^k is 96; it must be 64 to \d+, a multiple of 64"),
        (lambda data: cut(data, columns=0), r"^k is 0; it must be 64 to"),
        (lambda data: cut(data, rows=0), r"^m is 0; it must be 1 to"),
        (lambda data: cut(data, rows=0, of=(B, SFB)), r"\bb\b.*\b0\b"),
        (lambda data: tuple(t if t is None else t[:, :, :0] for t in data), r"^l is 0; it must be 1 to 65535"),
    ],
    ids=["K 96", "K 0", "M 0", "b without rows", "L 0"],
)
def test_sizes_out_of_range(unlaunched, change, message):
    with pytest.raises(ValueError, match=message):
        submission.solve(change(generate(5, 256, 2)))


@pytest.mark.parametrize("columns", [2, 8])
def test_wider_c_is_a_gemm_s(columns):
    data = reference.generate_gemm_input(m=5, n=8, k=64, l=1, seed=1)
    data = with_changed(with_changed(data, C, lambda t: t[:, :columns]), B, lambda t: t[:columns])
    call = submission.unpack(data)
    assert call.products == 1
    if columns == 2:
        with pytest.raises(ValueError, match="^n is 2; it must be 8"):
            submission.solve(data)
    assert submission.unpack(generate(5, 64)).products == 0


def test_reordered_scales_are_not_looked_at():
    data = list(generate(5, 256, 2))
    data[4:6] = "anything", 3
    solve_and_compare(tuple(data))


# ----------------------------------------------------------------------------------------------------------------------
# Broken kernels
# ----------------------------------------------------------------------------------------------------------------------


def stores_past_the_rows(ptx):
    """Every thread stores once, whatever the CTA's rows."""
    before, barrier, after = re.split(r"(bar\.sync[^;]*;)", ptx)
    return before + barrier + re.sub(r"setp\.ge\.s32(\s+%p\d+, %r\d+), %r\d+;", r"setp.gt.s32\1, 2147483647;", after)


def forgets_earlier_rounds(ptx):
    before, barrier, after = re.split(r"(bar\.sync[^;]*;)", ptx)
    return re.sub(r"ld\.shared\.f32 (%\w+), [^;]*;", r"mov.f32 \1, 0f00000000;", before) + barrier + after


TAILS = GemvPlan(3, warps=6)  # K 2112: the third warp has two lanes' parts
ROUNDS = GemvPlan(1, warps=2)  # and the third round
SCALE_LOAD = r"ld\.global\.L1::no_allocate\.b16 (%r\d+), \[(%rd\d+)\];"
WRONG = "^wrong result$"

# Name, mutation, plan, and the expected error or result.
MUTATIONS = [
    ("no barrier before sums are added", without(r"bar\.sync"), TAILS, WRONG),
    (
        "scales past K are not zeroed",
        replaced(r"selp\.f32(\s+%[rf]\d+), 0f00000000, (%[rf]\d+), %p\d+;", r"mov.f32\1, \2;"),
        TAILS,
        WRONG,
    ),
    ("rounds do not add up", forgets_earlier_rounds, ROUNDS, WRONG),
    ("rows past the CTA's are loaded", replaced(r"@p ld\.global", "ld.global"), TAILS, "^load of .* bytes at"),
    ("rows past the CTA's are stored", stores_past_the_rows, TAILS, "(load|store) of .* bytes at"),
    (
        "b's scales are another lane's",
        nth_replaced(SCALE_LOAD, r"ld.global.L1::no_allocate.b16 \1, [\2+2];", submission.ROWS_AHEAD),
        TAILS,
        WRONG,
    ),
    (
        "a's scales are another lane's",
        nth_replaced(SCALE_LOAD, r"ld.global.L1::no_allocate.b16 \1, [\2+2];", 0),
        TAILS,
        WRONG,
    ),
    (
        "one exchange of the butterfly is of a wrong distance",
        nth_replaced(r"(shfl\.sync\.bfly\.b32 %\w+, %\w+), 4,", r"\1, 8,", 0),
        TAILS,
        WRONG,
    ),
    (
        "the upper lanes keep the wrong row",
        nth_replaced(r"selp\.f32(\s+%\w+), (%\w+), (%\w+), (%p\d+);", r"selp.f32\1, \3, \2, \4;", 0),
        TAILS,
        WRONG,
    ),
    (
        "batches of b are a row apart",
        replaced(r"ld\.param\.[bu]32(\s+%r\d+), \[\w+_param_7\];", r"mov.b32\1, 1;"),
        TAILS,
        WRONG,
    ),
    ("the last of b's products of a block is lost", nth_replaced(r"fma\.rn\.f16x2 [^;]*;", "", 6), TAILS, WRONG),
    (
        "sums of all warps but one are added",
        nth_replaced(r"ld\.shared\.f32 (%\w+), [^;]*;", r"mov.f32 \1, 0f00000000;", -1),
        TAILS,
        WRONG,
    ),
]


def noticed(schedule, monkeypatch, calls, **how):
    """The error under this schedule: a wrong last result or the emulator's reason; None if all is well."""
    import emulator

    with monkeypatch.context() as patch:
        solve = prepare(patch, sms=2, schedules=(schedule,), share_sms=True, **how)
        try:
            for data, promises in calls():
                solve(data, **promises)
            return None if right(data) else "wrong result"
        except emulator.EmulatorError as error:
            return error.reason


def one_call():
    return [(generate(7, 2112, 2), {})]


@in_emulation
@pytest.mark.parametrize(("name", "mutate", "plan", "what"), MUTATIONS, ids=[name for name, *_ in MUTATIONS])
def test_mutation_is_noticed(monkeypatch, name, mutate, plan, what):
    """Under the schedule eager."""
    found = noticed("eager", monkeypatch, one_call, plan=plan, mutate=mutate)
    assert found is not None and re.search(what, found)


@in_emulation
@pytest.mark.parametrize("plan", [TAILS, ROUNDS], ids=str)
def test_whole_kernel_is_silent(monkeypatch, plan):
    assert not any(noticed(of, monkeypatch, one_call, plan=plan) for of in SCHEDULES)


NEEDS = calls_that_need(chained, lambda: sharing_c(2), bystander)


@in_emulation
@pytest.mark.parametrize("wait", NEEDS)
def test_each_missing_wait_is_noticed(monkeypatch, wait):
    """Under the schedule late; never under eager, where the oldest launch is first."""
    assert noticed("late", monkeypatch, NEEDS[wait], mutate=without_wait(wait)) == "wrong result"
    assert noticed("eager", monkeypatch, NEEDS[wait], mutate=without_wait(wait)) is None


# ----------------------------------------------------------------------------------------------------------------------
# The compiled kernel
# ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[2048, 7168, 16384], ids="K {}".format)
def compiled(request):
    return report.compile_plan(submission.gemv_plan(request.param))


def test_instructions(compiled):
    """Loads of 128 bits that pass L1 by, each e2m1 pair converted once, and nothing that is added in global memory."""
    ahead, blocks = submission.ROWS_AHEAD, submission.LANE_BLOCKS
    (entry,) = parse(compiled.ptx).entries.values()
    opcodes = [instruction.opcode for instruction in entry.instructions]
    loads = [opcode for opcode in opcodes if opcode.startswith("ld.global")]
    # Rows ahead before the loop and in it, and b.
    assert loads.count("ld.global.L1::no_allocate.v4.b32") == 2 * ahead + 1
    assert loads.count("ld.global.L1::no_allocate.b16") == 2 * ahead + 1
    assert len(loads) == 4 * ahead + 2
    assert opcodes.count("cvt.rn.f16x2.e2m1x2") == 8 * blocks * (ahead + 1)
    assert opcodes.count("mul.rn.f16x2") + opcodes.count("fma.rn.f16x2") == 8 * blocks * ahead
    forbidden = ("atom", "red.", "multimem", "cp.reduce", "ld.local", "st.local")
    assert not [opcode for opcode in opcodes if opcode.startswith(forbidden)]
    assert opcodes.count("bar.sync") == 1 and opcodes.count("griddepcontrol.wait") == 3


@needs_ptxas
def test_nothing_is_spilled(compiled):
    assembled = binaries.assemble(compiled.ptx)
    assert (assembled.spill_store_bytes, assembled.spill_load_bytes, assembled.stack_bytes) == (0, 0, 0)
    assert assembled.registers * compiled.plan.threads <= 65536
