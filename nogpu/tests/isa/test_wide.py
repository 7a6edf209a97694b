"""128-bit registers: moves, loads and stores of 16 and 32 bytes per lane, registers that lanes write apart."""

import numpy as np
import pytest

from tests.support.small_kernels import aligned, launch

DECLARED = ".reg .b128 %w, %v; mad.wide.u32 %rd5, %tid, 16, %a0; mad.wide.u32 %rd6, %tid, 16, %a1;"
BOTH = pytest.mark.parametrize("kernels", [True, False])
VALUE = 0x123456789ABCDEF0


def empty():
    return aligned(np.zeros(64, np.uint64))


@BOTH
def test_moves(kernels):
    out = empty()
    body = f"""{DECLARED} cvt.u64.u32 %rd1, %tid; mov.u64 %rd2, {VALUE}; mov.b128 %w, {{%rd1, %rd2}};
        mov.b128 %v, %w; mov.b128 {{%rd3, %rd4}}, %v; st.global.v2.b64 [%rd5], {{%rd4, %rd3}};
        mov.b128 {{_, %rd4}}, %w; st.global.b64 [%rd5], %rd4;"""
    launch(body, out, empty(), kernels=kernels)
    assert (out[::2] == VALUE).all() and out[1::2].tolist() == list(range(32))


@BOTH
@pytest.mark.parametrize("guard", ["", "@%p1 "])
def test_values_of_lanes_that_part(kernels, guard):
    """Odd lanes branch, and with a guard they alone write the second register again."""
    out = empty()
    body = f"""{DECLARED} mov.u64 %rd1, 1; mov.u64 %rd2, 2; and.b32 %r1, %tid, 1; setp.ne.u32 %p1, %r1, 0;
        mov.b128 %w, {{%rd1, %rd2}}; @%p1 bra ODD; bra B; ODD: mov.b128 %w, {{%rd2, %rd2}};
        B: mov.b128 %v, %w; {guard}mov.b128 %v, {{%rd2, %rd1}}; st.global.b128 [%rd5], %v;"""
    launch(body, out, empty(), kernels=kernels)
    even = [1, 2] if guard else [2, 1]
    assert out.reshape(16, 2, 2).tolist() == [[even, [2, 1]]] * 16


@BOTH
@pytest.mark.parametrize(
    "load,store",
    [
        ("ld.global.b128 %w, [%rd6];", "st.global.b128 [%rd5], %w;"),
        ("ld.b128.nc.global.L1::no_allocate %w, [%rd6];", "st.b128.global [%rd5], %w;"),
        ("ld.b128 %w, [%rd6];", "st.volatile.global.b128 [%rd5], %w;"),
        ("ld.relaxed.gpu.global.b128 %w, [%rd6];", "st.weak.b128 [%rd5], %w;"),
        (
            "ld.global.b128 %v, [%rd6]; mad.lo.u32 %r1, %tid, 16, %r10; st.shared.b128 [%r1], %v;",
            "ld.shared::cta.b128 %w, [%r1]; st.global.b128 [%rd5], %w;",
        ),
    ],
)
def test_accesses(kernels, load, store):
    source, out = aligned(np.random.default_rng(1).integers(0, 2**64, 64, np.uint64)), empty()
    launch(f"{DECLARED} mov.u32 %r10, smem; {load} {store}", out, source, kernels=kernels)
    assert np.array_equal(out, source)


@BOTH
def test_pairs(kernels):
    source, out = aligned(np.random.default_rng(1).integers(0, 2**64, 64, np.uint64)), empty()
    body = f"""{DECLARED} setp.gt.u32 %p1, %tid, 15; mad.wide.u32 %rd5, %tid, 32, %a0; mad.wide.u32 %rd6, %tid, 32, %a1;
        @%p1 bra END; ld.global.v2.b128 {{%w, %v}}, [%rd6]; st.global.v2.b128 [%rd5], {{%v, %w}}; END:"""
    launch(body, out, source, kernels=kernels)
    assert np.array_equal(out.reshape(16, 2, 2), source.reshape(16, 2, 2)[:, ::-1])
