"""A whole MMA for the tests: random operands in one CTA or both of a pair, the instruction, and D."""

import numpy as np

from nogpu.hardware.tensor.order import COLUMNS
from tests.support.tensor_operands import (
    FORMATS,
    SFA,
    SFB,
    A,
    B,
    K,
    assert_close,
    d_places,
    instruction,
    make_cta,
    mma,
    packed_rows,
    put_b_scales,
    put_operand,
    put_scales,
    put_transposed,
    random_elements,
    scale_values,
)


class Problem:
    """Random operands of an MMA in one CTA or in both of a pair, and their values in float64, scaled."""

    def __init__(
        self,
        rng,
        group,
        m,
        n,
        kind,
        a_type=None,
        b_type=None,
        d_type="f32",
        *,
        lane=0,
        layout="D",
        mode=128,
        transpose=(0, 0),
        scale=None,
        block=0,
        **fields,
    ):
        self.ctas = [make_cta() for _ in range(group)]
        self.group, self.kind, self.n, self.rows, self.lane, self.layout = group, kind, n, m // group, lane, layout
        self.block = block or None
        self.a_type, self.b_type = a_type or next(iter(FORMATS[kind])), b_type or next(iter(FORMATS[kind]))
        b, self.b_values = random_elements(rng, n, kind, self.b_type)
        self.a_values, self.a_elements = [], []
        limits = (0x00, 0x7F) if scale == "ue4m3" else (117, 137)
        b_codes = rng.integers(*limits, (n, K[kind] // block), dtype=np.uint8) if block else None
        for rank, (shared, tmem) in enumerate(self.ctas):
            a, a_values = random_elements(rng, self.rows, kind, self.a_type)
            part = n // group
            self.a = self._put(shared, A, a, self.a_type, mode, transpose[0])
            self.b = self._put(shared, B, b[rank * part :][:part], self.b_type, mode, transpose[1])
            if block:
                codes = rng.integers(*limits, (self.rows, K[kind] // block), dtype=np.uint8)
                put_scales(tmem, SFA, codes, fields.get("sfa_id", 0))
                put_b_scales(tmem, SFB, b_codes, fields.get("sfb_id", 0), layout)
                a_values = a_values * scale_values(codes, scale, block)
            self.a_values.append(a_values)
            self.a_elements.append(a)
        if block:
            self.b_values = self.b_values * scale_values(b_codes, scale, block)
        self.idesc = instruction(
            kind,
            m,
            n,
            self.a_type,
            self.b_type,
            d_type,
            scale,
            transpose_a=transpose[0],
            transpose_b=transpose[1],
            **fields,
        )

    def _put(self, shared, start, elements, element, mode, transposed):
        if transposed:
            return put_transposed(shared, start, elements, element, mode)
        return put_operand(
            shared, start, packed_rows(elements, self.kind, element), mode, 0x4000 if mode == 0 else None
        )

    def run(self, accumulate=False, column=0, **options):
        """Run the MMA. Returns the number of operations done."""
        a = options.pop("a", self.a)
        addresses = (self.lane << 16 | column, a, self.b, self.idesc, SFA, SFB)
        return mma(self.ctas, self.kind, self.group, self.block, *addresses, accumulate, **options)

    def results(self, column=0, view=np.float32):
        """D of each CTA, [rows, n]."""
        lanes, columns = d_places(self.layout, self.rows, self.n, self.lane)
        return [tmem.words.view(view)[lanes, columns + column] for _, tmem in self.ctas]

    def untouched(self, column=0):
        """The words outside D, of each CTA."""
        lanes, columns = d_places(self.layout, self.rows, self.n, self.lane)
        mask = np.ones((128, COLUMNS), bool)
        mask[lanes, columns + column] = False
        return [tmem.words[mask] for _, tmem in self.ctas]


def check(problem, column=0):
    """Check D = A B, then D = A B + D."""
    before = problem.untouched(column)
    m, n = problem.rows * problem.group, problem.n
    assert problem.run(False, column) == 2 * m * n * K[problem.kind]
    firsts = problem.results(column)
    for first, a in zip(firsts, problem.a_values, strict=True):
        assert_close(first, a, problem.b_values)
    problem.run(True, column)
    for second, first, a in zip(problem.results(column), firsts, problem.a_values, strict=True):
        assert_close(second, a, problem.b_values, first.astype(np.float64))
    for now, then in zip(problem.untouched(column), before, strict=True):
        assert np.array_equal(now, then)
